"""Whatever is in a file or a link, it is read, or refused in a sentence.

`make soak` tries thousands of cases.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import fuzzing
from support.app_pages import app_on, page_text, run_page
from support.cached_scores import fill_cache

READERS = (
    "mask",
    "mask of another tool",
    "spec.json of scores",
    "result.npz of scores",
    "spec.json of curve",
    "result.npz of curve",
    "spec.json of report",
    "result.npz of report",
    "spec.json of gates",
    "result.npz of gates",
    "places of files",
    "checkpoint.npz",
    "CoNLL-U, trees",
    "CoNLL-U, tags",
    "XNLI",
    "csv",
    "csv that was sent",
    "tsv",
    "tsv that was sent",
    "jsonl",
    "jsonl that was sent",
    "CoNLL-U that was sent",
    "tokens that were sent",
    "declaration of a task",
    "config.json of a model",
    "config.json of a model that is checked",
    "tokenizer.json of a model",
    "tokenizer.json of a model that is checked",
    "tokenizer_config.json of a model",
    "tokenizer_config.json of a model that is checked",
    "model.safetensors of a model",
    "model.safetensors of a model that is checked",
    "label map",
    "mask of a link",
    "head of a link",
    "grid",
    "options",
)
GUIDED_READERS = ("mask", "result.npz of scores", "CoNLL-U, trees", "declaration of a task")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fuzzing.Reader]:
    return fuzzing.readers(tmp_path_factory.mktemp("fuzz"))


def test_every_reader_is_tried(readers: dict[str, fuzzing.Reader]) -> None:
    assert tuple(readers) == READERS


@pytest.mark.parametrize("cases", [12, pytest.param(600, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", READERS)
def test_spoiled_files_are_read_or_refused(
    readers: dict[str, fuzzing.Reader],
    name: str,
    cases: int,
    record_property: Callable[[str, object], None],
) -> None:
    reader = readers[name]
    rng = random.Random(f"{name} {cases}")
    assert all(fuzzing.can_read(reader, content) for content in reader.valid_bytes)
    cases = cases // 4 if reader.is_slow else cases
    record_property("cases", cases)
    for number in range(cases):
        data = fuzzing.spoil(rng, reader.valid_bytes)
        try:
            fuzzing.can_read(reader, data)
        except Exception as error:
            raise AssertionError(f"case {number}: {data[:2000]!r}") from error
    assert fuzzing.can_read(reader, reader.valid_bytes[0])  # spoiled files leave nothing behind


PARAMETERS = (
    "model",
    "task",
    "method",
    "langs",
    "classes",
    "settings",
    "head",
    "focus",
    "m",
    "heads",
    "job",
    "view",
    "across",
    "upwards",
    "acrosslang",
    "upwardslang",
    "colour",
    "chosen",
    "role",
    "against",
    "specific",
    "most",
    "front",
    "point",
    "ask",
    "pairs",
    "players",
)
PAGES = (
    "overview",
    "heads",
    "head",
    "scatter",
    "pairs",
    "languages",
    "roles",
    "gates",
    "prune",
    "masks",
    "experiments",
    "attention",
    "jobs",
    "own",
)
GOOD_VALUES = (
    b"e5-small-intents",
    b"intents",
    b"shapley",
    b"de",
    b"encoder.3.7",
    b"a=b",
    b"within 2 points 9",
    b"mean-24",
    b"AAAA",
    b"1",
    b"heads,neurons:8",
)


@pytest.mark.parametrize("cases", [10, pytest.param(300, marks=pytest.mark.soak)])
def test_no_link_breaks_a_page(
    tmp_path: Path, cases: int, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(cases)
    record_property("cases", cases)
    with app_on(fill_cache(tmp_path)):
        for number in range(cases):
            link = {}
            for name in rng.sample(PARAMETERS, rng.randint(1, 4)):
                value = fuzzing.text_of(fuzzing.spoil(rng, GOOD_VALUES))
                link[name] = value[:500].replace("\0", "")
            page = run_page(PAGES[number % len(PAGES)], **link)
            assert page.title, link
            assert "unexpected error" not in page_text(page), link  # so pages report an exception


@pytest.mark.soak
@pytest.mark.parametrize("name", GUIDED_READERS)
def test_cases_that_atheris_finds_are_read_or_refused(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    runs = 20_000
    record_property("cases", runs)
    if find_spec("atheris") is None:
        pytest.skip("atheris is not installed: requirements-soak.txt has it, where it has a wheel")
    script = str(Path(__file__).parent / "support" / "fuzz_guided.py")
    command = [sys.executable, script, name, "--runs", str(runs)]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert f"Done {runs}" in process.stderr
