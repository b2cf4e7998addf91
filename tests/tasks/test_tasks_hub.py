"""Tasks from the hub: parquet in its local cache, and every way in which that fails as a sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub.utils as hub_client
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from support.expected_errors import raises

from headlab.tasks import source_of, task
from headlab.tasks.udpos import HUB as UDPOS
from headlab.tasks.udpos import LABELS, udpos_task
from headlab.tasks.xnli import HUB as XNLI
from headlab.tasks.xnli import xnli_task

datasets = pytest.importorskip("datasets", reason="the extra hub is not installed")
ABSENT = httpx.Response(404, request=httpx.Request("GET", "http://host/"))
NLI = ["entailment", "neutral", "contradiction"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in place of the hub's local cache: `repository/part/split-00000-of-00001.parquet`."""

    def local(repository: str, **_: Any) -> str:
        return str(tmp_path / repository)

    monkeypatch.delenv("HEADLAB_DATA", raising=False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", local)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    yield tmp_path
    datasets.enable_progress_bars()


def write_parquet(path: Path, columns: dict[str, list[Any]], kinds: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(columns, features=datasets.Features(kinds)).to_parquet(str(path))


def write_nli(
    hub: Path, language: str, labels: list[int], premises: list[str], split: str = "validation"
) -> None:
    text = datasets.Value("string")
    write_parquet(
        hub / XNLI.repository / language / f"{split}-00000-of-00001.parquet",
        {
            "premise": premises,
            "hypothesis": [f"{language}{i}" for i in range(len(labels))],
            "label": labels,
        },
        {"premise": text, "hypothesis": text, "label": datasets.ClassLabel(names=NLI)},
    )


def write_pos(
    hub: Path, part: str, words: list[list[str]], tags: list[list[int]], names: tuple[str, ...]
) -> None:
    write_parquet(
        hub / UDPOS.repository / part / "validation-00000-of-00001.parquet",
        {"tokens": words, "pos_tags": tags},
        {
            "tokens": datasets.List(datasets.Value("string")),
            "pos_tags": datasets.List(datasets.ClassLabel(names=list(names))),
        },
    )


def test_xnli_rows_are_grouped_by_the_english_premises(hub: Path) -> None:
    write_nli(hub, "en", [0, 1, 2, 2, 1, 0], ["a"] * 3 + ["b"] * 3)
    write_nli(hub, "de", [0, 1, 2, 2, 1, 0], ["gleich"] * 6)
    english = xnli_task().examples("en")
    german = xnli_task().examples("de")
    for english_example, german_example in zip(english, german, strict=True):
        assert english_example.id == german_example.id
        assert english_example.label == german_example.label
        assert english_example.group == german_example.group
    assert len({example.group for example in german}) == 2
    assert {example.pair for example in german} == {f"de{i}" for i in range(6)}
    assert (hub / "cache").is_dir()


def test_udpos_labels_are_matched_by_name_and_not_by_number(hub: Path) -> None:
    write_pos(hub, "udpos.German", [["Das", "Haus"], ["ja"]], [[1, 0], [0]], ("NOUN", "DET", "X"))
    examples_by_text = {example.text: example for example in udpos_task().examples("de")}
    example = examples_by_text["Das Haus"]
    assert [LABELS[label] for label in example.labels] == ["DET", "NOUN"]
    assert example.words == ("Das", "Haus")


def test_a_split_that_the_data_set_lacks_is_empty(hub: Path) -> None:
    write_pos(hub, "udpos.German", [["ja"]], [[0]], ("X",))
    with raises("task.no_examples", "train", "de"):
        udpos_task().examples("de", "train")


def test_a_folder_goes_before_the_hub(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (hub / "ud").mkdir()
    (hub / "ud" / "de.dev.conllu").write_text("1\tJa\t_\tINTJ" + "\t_" * 6 + "\n", "utf-8")
    write_pos(hub, "udpos.German", [["nein"]], [[0]], ("X",))
    assert [example.text for example in task("udpos", data=hub).examples("de")] == ["Ja"]
    assert source_of("udpos", hub).is_present
    source = source_of("udpos")
    assert not source.is_present
    assert "HEADLAB_DATA" in source.advice
    monkeypatch.setenv("HEADLAB_DATA", str(hub / "none"))
    assert "is not a folder" in source_of("udpos").advice


def test_rows_that_do_not_fit_are_named(hub: Path) -> None:
    write_nli(hub, "en", [0, -1], ["a", "a"])
    with raises("data.label_unknown", "facebook/xnli, en, validation (hub)", "row 1", "None"):
        xnli_task().examples("en")
    write_nli(hub, "en", [0, 1], ["a", "a"])
    write_nli(hub, "de", [0, 2], ["a", "a"])
    with raises("data.labels_differ", "facebook/xnli, de", "line 1", "contradiction"):
        xnli_task().examples("de")
    write_pos(hub, "udpos.German", [["a", "b"]], [[0]], ("X",))
    with raises("data.tags_mismatch", "row 0", 2, 1):
        udpos_task().examples("de")
    write_pos(hub, "udpos.Greek", [["a"]], [[0]], ("_",))
    with raises("data.tag_unknown", "row 0", "'_'"):
        udpos_task().examples("el")


def test_other_columns_and_broken_files_are_named(hub: Path) -> None:
    path = hub / UDPOS.repository / "udpos.German" / "validation-00000-of-00001.parquet"
    write_parquet(path, {"x": [1]}, {"x": datasets.Value("int64")})
    with raises("data.column_missing", "tokens, pos_tags", "x"):
        udpos_task().examples("de")
    path.write_bytes(b"PAR1")
    with raises("hub.data_unreadable", "parquet"):
        udpos_task().examples("de")


def test_half_a_download_is_not_taken_for_the_whole(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pos(hub, "udpos.German", [["ja"]], [[0]], ("X",))
    parquet_file = hub / UDPOS.repository / "udpos.German" / "validation-00000-of-00001.parquet"
    parquet_file.rename(parquet_file.with_name("validation-00000-of-00002.parquet"))
    local_only_of_calls = []

    def download(repository: str, *, local_files_only: bool, **_: Any) -> str:
        local_only_of_calls.append(local_files_only)
        return str(hub / repository)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    udpos_task().examples("de")
    assert local_only_of_calls == [True, False]


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (LocalEntryNotFoundError("x"), ("hub.unreachable", "or name a folder")),
        (
            RepositoryNotFoundError("gone\nmore", response=ABSENT),
            ("hub.data_unknown", "facebook/xnli", "gone"),
        ),
        (httpx.ReadTimeout("slow"), ("hub.fetch_failed", "ReadTimeout")),
        # the error of the client that the hub's package brings
        (hub_client.httpx.ReadTimeout("slow"), ("hub.fetch_failed", "ReadTimeout")),
        (ConnectionResetError(104, "reset"), ("hub.fetch_failed", "ConnectionResetError")),
        (
            RuntimeError("from the package that stores the files"),
            ("hub.fetch_failed", "RuntimeError"),
        ),
        (OSError(28, "No space left on device"), ("file.no_space",)),
    ],
)
def test_reported_19_every_failure_of_the_hub_is_a_sentence(
    hub: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, refusal: tuple[object, ...]
) -> None:
    def fail(name: str, *, local_files_only: bool, revision: str, **_: Any) -> str:
        assert revision == XNLI.revision
        raise LocalEntryNotFoundError("x") if local_files_only else error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with raises(*refusal):
        xnli_task().examples("de")


def test_without_the_package_its_command_is_told(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_nli(hub, "en", [0], ["a"])
    monkeypatch.setitem(sys.modules, "datasets", None)
    with raises("package.datasets_missing", "pip install 'headlab[hub]'", "or name a folder"):
        xnli_task().examples("en")
