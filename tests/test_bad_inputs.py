"""The runner of the bad inputs: what it calls a refusal, a traceback and a hang.

It survives all of them.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import huggingface_hub.constants
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import reliability  # noqa: E402 - found there
from bad_inputs import command_lines, commands, http_bodies, runner  # noqa: E402 - found there
from bad_inputs.case import Verdict, answer_of_process, process_answer  # noqa: E402
from support.toy_bad_inputs import READERS  # noqa: E402
from support.waiting import wait_until  # noqa: E402


def test_every_answer_is_seen_and_none_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # One input keeps its process for ever and one ends it; those after them are attempted, too.
    hanging = tmp_path / "hanging"
    monkeypatch.setenv("TOY_HANGING", str(hanging))
    wait = runner.Connection.poll

    def wait_unless_hanging(connection: runner.Connection, seconds: float) -> bool:
        while not wait(connection, 0.05):
            if hanging.exists():
                hanging.unlink()
                return False
        return True

    monkeypatch.setattr(runner.Connection, "poll", wait_unless_hanging)
    monkeypatch.setattr(runner, "WAITING_SECONDS", 0.0)
    attempts = list(runner.attempts("support.toy_bad_inputs", len(READERS), 0))
    in_process = [
        (attempt.begun.wrong, attempt.answer.verdict)
        for attempt in attempts
        if not attempt.begun.for_real
    ]
    assert in_process == [
        ("taken", Verdict.ACCEPTED),
        ("refused", Verdict.REFUSED),
        ("refused_without_words", Verdict.TRACEBACK),
        ("failed", Verdict.TRACEBACK),
        ("taken", Verdict.ACCEPTED),
        ("never_ends", Verdict.HANG),
        ("died", Verdict.TRACEBACK),
        ("refused", Verdict.REFUSED),
    ]
    counts = runner.summary(attempts, 1.0)
    assert counts["inputs"] == len(READERS)
    assert (counts["for_real"], counts["refused"]) == (1, 3)
    assert (counts["tracebacks"], counts["hangs"], counts["http_500"]) == (3, 1, 0)
    assert [failure["number"] for failure in counts["failures"]] == [2, 3, 5, 6]


def test_a_family_that_makes_no_input_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match="died"):
        list(runner.attempts("no_such_family", 1, 0))


@pytest.mark.parametrize(
    ("family", "count"),
    [pytest.param("model-folders", 6, marks=pytest.mark.slow), ("stored-files", 60)],
)
def test_reported_19_a_family_is_drawn_from_its_seed_and_answered_in_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = []
    contents = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        inputs = list(islice(runner.family_inputs(family, folder, 7), count))
        contents.append([bad_input.content for bad_input in inputs])
        if number == 0:
            answers = [bad_input.attempt() for bad_input in inputs]
    assert contents[0] == contents[1]
    assert len(set(contents[0])) == count
    assert {answer.verdict for answer in answers} <= {Verdict.ACCEPTED, Verdict.REFUSED}


def test_a_process_s_time_is_that_of_its_processor():
    start = runner.processor_seconds(os.getpid())
    wait_until(lambda: sum(range(100_000)) and runner.processor_seconds(os.getpid()) > start)
    assert runner.processor_seconds(os.getpid()) == pytest.approx(sum(os.times()[:2]), abs=1)
    assert runner.processor_seconds(1 << 30) == 0


@pytest.mark.parametrize(
    ("exit_status", "stderr", "verdict"),
    [
        (0, b"", Verdict.ACCEPTED),
        (1, b"Error: there is no task x", Verdict.REFUSED),
        (2, b"Usage: headlab", Verdict.REFUSED),
        (1, b"", Verdict.TRACEBACK),
        (-11, b"", Verdict.TRACEBACK),
        (1, b"Traceback (most recent call last):\n  KeyError", Verdict.TRACEBACK),
        (0, b"Traceback (most recent call last):\n  in a thread", Verdict.TRACEBACK),
    ],
)
def test_a_process_is_judged_by_status_and_words(
    exit_status: int, stderr: bytes, verdict: Verdict
) -> None:
    assert answer_of_process(exit_status, b"", stderr).verdict == verdict


def test_a_real_command_is_refused_in_words(tmp_path: Path) -> None:
    answer = process_answer(["score", "--no-such-flag"], tmp_path)
    assert answer.verdict == Verdict.REFUSED
    assert "no-such-flag" in answer.words


def test_an_argument_that_no_process_can_have_is_refused(tmp_path: Path) -> None:
    assert process_answer(["score", "a\0b"], tmp_path).verdict == Verdict.REFUSED


# The families themselves: a few inputs of each, in this process.

INPUTS_PER_FAMILY = 20
# A worker that is stopped before it listens leaves its lock and its log open, as its process ends.
LEFT_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
FAMILIES = [family for family, module in runner.FAMILIES.items() if find_spec(module)]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; what a family sets for its process is restored after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name, value in command_lines.OTHERWISE.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@LEFT_OPEN
@pytest.mark.parametrize("family", FAMILIES)
def test_reported_19_bad_inputs_are_taken_or_refused_in_a_sentence(
    family: str, empty_folder: Path
) -> None:
    bad_inputs = list(islice(runner.family_inputs(family, empty_folder, 7), INPUTS_PER_FAMILY))
    assert len({bad_input.content for bad_input in bad_inputs}) == INPUTS_PER_FAMILY
    answers = {bad_input.wrong: bad_input.attempt() for bad_input in bad_inputs}
    expected_verdicts = (Verdict.ACCEPTED, Verdict.REFUSED)
    assert {
        wrong: answer
        for wrong, answer in answers.items()
        if answer.verdict not in expected_verdicts
    } == {}
    refusals = [answer for answer in answers.values() if answer.verdict == Verdict.REFUSED]
    assert all(answer.words.strip() for answer in refusals)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_inputs(family: str, empty_folder: Path) -> None:
    descriptions = []
    for name in ("first", "second"):
        folder = empty_folder / name
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            bad_inputs = islice(runner.family_inputs(family, folder, 3), INPUTS_PER_FAMILY)
            descriptions.append([bad_input.wrong for bad_input in bad_inputs])
    assert descriptions[0] == descriptions[1]


@LEFT_OPEN
def test_the_commands_are_accepted_before_anything_is_wrong_with_them(empty_folder: Path) -> None:
    commands.write_files(empty_folder)
    file_names = frozenset(path.name for path in empty_folder.iterdir())
    command_names = {command.name[0] for command in commands.COMMANDS}
    assert {words[0] for words in commands.known_flags()} == command_names
    refusals = {}
    for command in commands.COMMANDS:
        line = command_lines.CommandLine("nothing", command.arguments)
        answer = command_lines.attempt(line, empty_folder, file_names)
        if answer.verdict != Verdict.ACCEPTED:
            refusals[" ".join(line.arguments)] = answer.words
    assert refusals == {}


def test_the_requests_are_accepted_before_anything_is_wrong_with_them(empty_folder: Path) -> None:
    commands.write_files(empty_folder)
    application = http_bodies.Application(empty_folder / "in-process")
    refusals = {}
    for base in http_bodies.bases(empty_folder):
        answer = http_bodies.judge(application, base.request())
        # Which jobs there are depends on the requests before.
        if answer.verdict != Verdict.ACCEPTED and not base.path.startswith("/jobs/"):
            refusals[f"{base.method} {base.path}"] = answer.words
    assert refusals == {}


def test_the_page_has_a_row_a_family_and_keeps_its_other_parts() -> None:
    counts = dict.fromkeys(
        ("inputs", "for_real", "accepted", "refused", "tracebacks", "hangs", "http_500"), 7
    )
    part = {
        "bad_inputs": 14,
        "seed": 0,
        "commit": "abc",
        "families": {"task-files": counts, "http-bodies": counts},
    }
    results = json.loads(reliability.RESULT_FILE.read_text(encoding="utf-8"))
    page = reliability.page(results | {"inputs": part})
    assert "## 14 bad inputs" in page
    for family in ("task files", "http bodies"):
        assert f"| {family} | 7 | 7 | 7 | 7 | 7 | 7 | 7 |" in page
    assert "## Jobs for 60 minutes" in page
