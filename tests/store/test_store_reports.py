"""Answers under masks and reports of experiments in the store: as they were written, or none."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises

from headlab.core import Evaluation, Report, Table
from headlab.results import (
    ANSWERS_KIND,
    REPORT_KIND,
    RESULT_FORMAT,
    Curve,
    HeadScores,
    Store,
    StoredRun,
)
from headlab.tasks import Example

DIGEST = "a" * 64
UNITS = np.array([1, 3, 1, 2, 0])  # answers that each example asks for
EXAMPLES = tuple(
    Example(
        f"x{i}",
        "text",
        group=("g", "g", "", "h", "h")[i],
    )
    for i in range(5)
)
IDS = ("x0", "x1#0", "x1#1", "x1#2", "x2", "x3#0", "x3#1")
GROUPS = ("g", "g", "g", "g", "x2", "h", "h")
TASK = {
    "name": "t",
    "language": "de",
    "split": "test",
    "size": 5,
    "seed": 0,
    "data_hash": "d",
}
MODEL = {"name": "m", "revision": "r", "fingerprint": "f"}


def answers_spec(language: str = "de") -> dict[str, Any]:
    return {
        "format": RESULT_FORMAT,
        "kind": ANSWERS_KIND,
        "model": MODEL,
        "task": TASK | {"language": language},
        "ablation": "zero",
    }


def evaluation(largest: int = 2, language: str = "de") -> Evaluation:
    correct = np.array([True, False, True, True, False, False, True])
    predictions = np.array([0, 1, 2, 0, 1, largest, 2])
    return Evaluation(language, correct, predictions, IDS, GROUPS, 7)


def write_answers(root: Path, spec: dict[str, Any], digest: str = DIGEST, largest: int = 2) -> Path:
    stored_run = Store(root).run(spec)
    stored_run.keep_answers(digest, evaluation(largest), UNITS)
    return stored_run.folder / f"{digest}.npz"


def log_of(stored_run: StoredRun) -> str:
    path = stored_run.folder / "log.txt"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("largest", [2, 255, 256, 70_000, 250_001])
def test_answers_come_back_as_they_were(tmp_path: Path, largest: int) -> None:
    write_answers(tmp_path, answers_spec(), largest=largest)
    stored_run = Store(tmp_path).run(answers_spec())
    answers = stored_run.answers(DIGEST, EXAMPLES)
    assert answers is not None
    assert answers.correct.dtype.kind == "b"
    assert answers.predicted.dtype.str == "<i8"
    assert_same_answers(answers, evaluation(largest))
    assert answers.language == "de"
    assert answers.ids == IDS
    assert answers.groups == GROUPS
    assert answers.total == 7
    assert answers.is_complete is True
    assert stored_run.answers("b" * 64, EXAMPLES) is None
    assert log_of(stored_run) == ""


def assert_same_answers(answers: Evaluation, written_evaluation: Evaluation) -> None:
    assert answers.correct.tolist() == written_evaluation.correct.tolist()
    assert answers.predicted.tolist() == written_evaluation.predicted.tolist()


def test_an_unfinished_evaluation_is_not_stored(tmp_path: Path) -> None:
    stored_run = Store(tmp_path).run(answers_spec())
    incomplete_evaluation = evaluation()
    with raises("answers.incomplete", 7, 8):
        stored_run.keep_answers(DIGEST, replace(incomplete_evaluation, total=8), UNITS)
    incomplete_evaluation.predicted[3] = -1
    with raises("answers.incomplete"):
        stored_run.keep_answers(DIGEST, incomplete_evaluation, UNITS)
    assert not stored_run.folder.exists()


def other_examples(path: Path) -> tuple[Example, ...]:
    return (*EXAMPLES[:2], Example("y2", "text"), *EXAMPLES[3:])


def fewer_examples(path: Path) -> tuple[Example, ...]:
    return EXAMPLES[:4]


def torn(path: Path) -> tuple[Example, ...]:
    path.write_bytes(path.read_bytes()[:300])
    return EXAMPLES


def of_another_mask(path: Path) -> tuple[Example, ...]:
    other_file = write_answers(
        path.parents[1],
        answers_spec(),
        "b" * 64,
        largest=1,
    )
    path.write_bytes(other_file.read_bytes())
    return EXAMPLES


def of_another_run(path: Path) -> tuple[Example, ...]:
    path.write_bytes(write_answers(path.parents[1], answers_spec("th")).read_bytes())
    return EXAMPLES


def with_arrays(**changes: Any) -> Callable[[Path], tuple[Example, ...]]:
    """A function that replaces arrays of a file; None removes one."""

    def change(path: Path) -> tuple[Example, ...]:
        with np.load(path) as file:
            arrays = {**file, **changes}
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
        return EXAMPLES

    return change


def with_description(**changes: Any) -> Callable[[Path], tuple[Example, ...]]:
    """A function that replaces fields in the text that describes a file."""

    def change(path: Path) -> tuple[Example, ...]:
        with np.load(path) as file:
            description = json.loads(str(file["about"])) | changes
        return with_arrays(about=np.array(json.dumps(description)))(path)

    return change


def a_folder(path: Path) -> tuple[Example, ...]:
    path.unlink()
    path.mkdir()
    return EXAMPLES


BAD: dict[str, tuple[Callable[[Path], tuple[Example, ...]], str]] = {
    "other examples": (other_examples, "was made on other examples"),
    "fewer examples": (fewer_examples, "a different number of examples"),
    "torn": (torn, "damaged or is not an npz file"),
    "of another mask": (of_another_mask, "belongs to another run or mask"),
    "of another run": (of_another_run, "belongs to another run or mask"),
    "other answers": (
        with_arrays(correct=np.array([255], np.uint8)),
        "answers that differ from those written",
    ),
    "wide counts": (with_arrays(units=UNITS), "answers that differ from those written"),
    "no predictions": (with_arrays(predicted=None), "lacks predicted"),
    "no text": (with_arrays(about=None), "have no description"),
    "text of numbers": (with_arrays(about=np.array(3)), "have no description"),
    "text in a list": (with_arrays(about=np.array("[]")), "cannot be read"),
    "another format": (with_description(format=99), "has format 99"),
    "another mask's name": (with_description(mask="c" * 64), "belongs to another run or mask"),
    "other ids": (with_description(ids_sha256="0"), "was made on other examples"),
    "a folder": (a_folder, "missing or is not a file"),
}


@pytest.mark.parametrize(("spoil", "reason"), BAD.values(), ids=BAD)
def test_answers_that_cannot_be_trusted_are_skipped_with_a_reason(
    tmp_path: Path, spoil: Callable[[Path], tuple[Example, ...]], reason: str
) -> None:
    path = write_answers(tmp_path, answers_spec())
    stored_run = Store(tmp_path).run(answers_spec())
    assert stored_run.answers(DIGEST, spoil(path)) is None
    assert f"answers under {DIGEST[:12]} skipped" in log_of(stored_run)
    assert reason in log_of(stored_run)


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_byte_of_answers_changed_in_turn_changes_no_answer(tmp_path: Path, flip: int) -> None:
    path = write_answers(tmp_path, answers_spec())
    stored_run = Store(tmp_path).run(answers_spec())
    data = path.read_bytes()
    refusals = 0
    for offset in range(0, len(data), 7):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ flip]) + data[offset + 1 :])
        answers = stored_run.answers(DIGEST, EXAMPLES)
        refusals += answers is None
        if answers is not None:
            assert_same_answers(answers, evaluation())
    assert refusals > 100


def test_answers_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_answers(tmp_path, answers_spec())
    stored_run = Store(tmp_path).run(answers_spec())

    def raise_no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_no_space)
    with raises("file.no_space"):
        stored_run.keep_answers(DIGEST, evaluation(largest=1), UNITS)
    monkeypatch.undo()
    answers = stored_run.answers(DIGEST, EXAMPLES)
    assert answers is not None
    assert answers.predicted.tolist() == evaluation().predicted.tolist()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, "spec.json"]


# Reports


def report_spec(key: str = "gap", seed: int = 0) -> dict[str, Any]:
    task = TASK | {"language": "de,th", "split": "dev,test"}
    return {
        "format": RESULT_FORMAT,
        "kind": REPORT_KIND,
        "experiment": key,
        "version": 1,
        "model": MODEL,
        "task": task,
        "ablation": "zero",
        "options": {},
        "seed": seed,
    }


def report_of(spec: dict[str, Any]) -> Report:
    table = Table(
        "one",
        "A table.",
        ("language", "p", "n", "sure"),
        ("", ".3f", "d", ""),
        (("de", 0.1 + 0.2, 3, True), ("ภาษา", None, 10**15, False)),
        ("a note",),
    )
    return Report(spec["experiment"], (table,), ("know this",), spec, 12, 3.5)


def write_report(root: Path, spec: dict[str, Any]) -> Path:
    stored_run = Store(root).run(spec)
    stored_run.finish(report_of(spec), {"created": "today"})
    return stored_run.folder


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    spec = report_spec()
    folder = write_report(tmp_path, spec)
    (result,) = Store(tmp_path).reports().results
    assert result.record == report_of(spec)
    assert result.key == folder.name
    assert result.folder == folder
    assert result.meta == {"created": "today"}
    result_of_run = Store(tmp_path).run(spec).result(Report)
    assert result_of_run is not None
    assert result_of_run.record == result.record
    assert Store(tmp_path).run(report_spec(seed=1)).result(Report) is None


def test_scores_and_curves_are_listed_without_a_word_about_answers_and_reports(
    tmp_path: Path,
) -> None:
    write_answers(tmp_path, answers_spec())
    folder = write_report(tmp_path, report_spec())
    store = Store(tmp_path)
    assert store.scan().results == ()
    assert store.scan().problems == ()
    assert store.curves().results == ()
    assert store.curves().problems == ()
    assert [r.folder for r in store.reports().results] == [folder]
    with raises("result.other_kind", "report", "scores"):
        store.run(report_spec()).result(HeadScores)
    with raises("result.other_kind", "report", "a curve"):
        store.run(report_spec()).result(Curve)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "half a letter \ud800", object()])
def test_a_report_with_a_value_that_cannot_be_written_is_not_stored(
    tmp_path: Path, value: Any
) -> None:
    report = report_of(report_spec())
    table = replace(report.tables[0], rows=(("de", value, 1, True),))
    with raises("report.value_unstorable"):
        Store(tmp_path).run(report_spec()).finish(replace(report, tables=(table,)), {})
    assert list(tmp_path.iterdir()) == []


def change_description(folder: Path, changes: dict[str, Any]) -> None:
    with np.load(folder / "result.npz") as file:
        description = json.loads(str(file["about"])) | changes
    np.savez(folder / "result.npz", about=np.array(json.dumps(description)))


BAD_TEXT: dict[str, dict[str, Any]] = {
    "no report": {"report": None},
    "another report": {"report": {"name": "gap", "tables": []}},
    "another hash": {"sha256": "0"},
    "notes that are none": {"meta": []},
    "half a letter": {"report": {"name": "\ud800"}},
    "a number without end": {"report": {"name": 1e999}},
}


@pytest.mark.parametrize("changes", BAD_TEXT.values(), ids=BAD_TEXT)
def test_a_report_that_does_not_fit_becomes_a_sentence(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    sound_folder = write_report(tmp_path, report_spec())
    bad_folder = write_report(tmp_path, report_spec(seed=1))
    change_description(bad_folder, changes)
    listing = Store(tmp_path).reports()
    assert [r.folder for r in listing.results] == [sound_folder]
    (problem,) = listing.problems
    assert bad_folder.name in problem
    assert "run the experiment again" in problem


def test_a_report_of_another_experiment_becomes_a_sentence(tmp_path: Path) -> None:
    folder = write_report(tmp_path, report_spec())
    other_folder = write_report(tmp_path, report_spec("transfer"))
    (folder / "result.npz").write_bytes((other_folder / "result.npz").read_bytes())
    (problem,) = Store(tmp_path).reports().problems
    assert "it is a report of transfer, not of gap" in problem


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_fuzz_a_changed_byte_of_a_report_never_crashes(
    tmp_path: Path, position: int, byte: int
) -> None:
    path = write_report(tmp_path, report_spec()) / "result.npz"
    data = bytearray(path.read_bytes())
    data[position % len(data)] = byte
    path.write_bytes(bytes(data))
    listing = Store(tmp_path).reports()
    assert len(listing.results) + len(listing.problems) == 1
    assert all(result.record == report_of(report_spec()) for result in listing.results)
