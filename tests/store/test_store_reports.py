"""Answers under masks and reports of experiments in the store: as they were written, or not at all."""

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
EXAMPLES = tuple(Example(f"x{i}", "text", group=("g", "g", "", "h", "h")[i]) for i in range(5))
IDS = ("x0", "x1#0", "x1#1", "x1#2", "x2", "x3#0", "x3#1")
GROUPS = ("g", "g", "g", "g", "x2", "h", "h")
TASK = {"name": "t", "language": "de", "split": "test", "size": 5, "seed": 0, "data_hash": "d"}
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
    predicted = np.array([0, 1, 2, 0, 1, largest, 2])
    return Evaluation(language, correct, predicted, IDS, GROUPS, 7)


def keep(root: Path, spec: dict[str, Any], digest: str = DIGEST, largest: int = 2) -> Path:
    run = Store(root).run(spec)
    run.keep_answers(digest, evaluation(largest), UNITS)
    return run.folder / f"{digest}.npz"


def log_of(run: StoredRun) -> str:
    path = run.folder / "log.txt"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("largest", [2, 255, 256, 70_000, 250_001])
def test_answers_come_back_as_they_were(tmp_path: Path, largest: int) -> None:
    keep(tmp_path, answers_spec(), largest=largest)
    found = Store(tmp_path).run(answers_spec()).answers(DIGEST, EXAMPLES)
    want = evaluation(largest)
    assert found is not None
    assert (found.correct.dtype.kind, found.predicted.dtype.str) == ("b", "<i8")
    assert found.correct.tolist() == want.correct.tolist()
    assert found.predicted.tolist() == want.predicted.tolist()
    assert (found.language, found.ids, found.groups, found.total, found.done) == (
        "de",
        IDS,
        GROUPS,
        7,
        True,
    )
    assert Store(tmp_path).run(answers_spec()).answers("b" * 64, EXAMPLES) is None
    assert log_of(Store(tmp_path).run(answers_spec())) == ""


def test_an_evaluation_under_way_is_not_kept(tmp_path: Path) -> None:
    run = Store(tmp_path).run(answers_spec())
    begun = evaluation()
    with raises("answers.incomplete", 7, 8):
        run.keep_answers(DIGEST, replace(begun, total=8), UNITS)
    begun.predicted[3] = -1
    with raises("answers.incomplete"):
        run.keep_answers(DIGEST, begun, UNITS)
    assert not run.folder.exists()


def other_examples(path: Path) -> tuple[Example, ...]:
    return (*EXAMPLES[:2], Example("y2", "text"), *EXAMPLES[3:])


def fewer_examples(path: Path) -> tuple[Example, ...]:
    return EXAMPLES[:4]


def torn(path: Path) -> tuple[Example, ...]:
    path.write_bytes(path.read_bytes()[:300])
    return EXAMPLES


def of_another_mask(path: Path) -> tuple[Example, ...]:
    path.write_bytes(keep(path.parents[1], answers_spec(), "b" * 64, largest=1).read_bytes())
    return EXAMPLES


def of_another_run(path: Path) -> tuple[Example, ...]:
    path.write_bytes(keep(path.parents[1], answers_spec("th")).read_bytes())
    return EXAMPLES


def changed(**arrays: Any) -> Callable[[Path], tuple[Example, ...]]:
    def change(path: Path) -> tuple[Example, ...]:
        with np.load(path) as file:
            held = {**file, **arrays}
        np.savez(path, **{name: array for name, array in held.items() if array is not None})
        return EXAMPLES

    return change


def retold(**about: Any) -> Callable[[Path], tuple[Example, ...]]:
    def change(path: Path) -> tuple[Example, ...]:
        with np.load(path) as file:
            text = json.loads(str(file["about"])) | about
        return changed(about=np.array(json.dumps(text)))(path)

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
        changed(correct=np.array([255], np.uint8)),
        "answers that differ from those written",
    ),
    "wide counts": (changed(units=UNITS), "answers that differ from those written"),
    "no predictions": (changed(predicted=None), "lacks predicted"),
    "no text": (changed(about=None), "have no description"),
    "text of numbers": (changed(about=np.array(3)), "have no description"),
    "text in a list": (changed(about=np.array("[]")), "cannot be read"),
    "another format": (retold(format=99), "has format 99"),
    "another mask's name": (retold(mask="c" * 64), "belongs to another run or mask"),
    "other ids": (retold(ids_sha256="0"), "was made on other examples"),
    "a folder": (a_folder, "missing or is not a file"),
}


@pytest.mark.parametrize(("spoil", "why"), BAD.values(), ids=BAD)
def test_answers_that_cannot_be_trusted_are_skipped_with_a_reason(
    tmp_path: Path, spoil: Callable[[Path], tuple[Example, ...]], why: str
) -> None:
    path = keep(tmp_path, answers_spec())
    run = Store(tmp_path).run(answers_spec())
    assert run.answers(DIGEST, spoil(path)) is None
    assert f"answers under {DIGEST[:12]} skipped" in log_of(run)
    assert why in log_of(run)


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_byte_of_answers_changed_in_turn_changes_no_answer(tmp_path: Path, flip: int) -> None:
    path = keep(tmp_path, answers_spec())
    run = Store(tmp_path).run(answers_spec())
    want = evaluation()
    data = path.read_bytes()
    refused = 0
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
        found = run.answers(DIGEST, EXAMPLES)
        refused += found is None
        if found is not None:
            assert found.correct.tolist() == want.correct.tolist()
            assert found.predicted.tolist() == want.predicted.tolist()
    assert refused > 100


def test_answers_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keep(tmp_path, answers_spec())
    run = Store(tmp_path).run(answers_spec())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises("file.no_space"):
        run.keep_answers(DIGEST, evaluation(largest=1), UNITS)
    monkeypatch.undo()
    found = run.answers(DIGEST, EXAMPLES)
    assert found is not None
    assert found.predicted.tolist() == evaluation().predicted.tolist()
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


def write(root: Path, spec: dict[str, Any]) -> Path:
    run = Store(root).run(spec)
    run.finish(report_of(spec), {"created": "today"})
    return run.folder


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = write(tmp_path, spec := report_spec())
    (result,) = Store(tmp_path).reports().results
    assert result.record == report_of(spec)
    assert (result.key, result.folder, result.meta) == (folder.name, folder, {"created": "today"})
    again = Store(tmp_path).run(spec).result(Report)
    assert again is not None
    assert again.record == result.record
    assert Store(tmp_path).run(report_spec(seed=1)).result(Report) is None


def test_scores_and_curves_are_listed_without_a_word_about_answers_and_reports(
    tmp_path: Path,
) -> None:
    keep(tmp_path, answers_spec())
    folder = write(tmp_path, report_spec())
    store = Store(tmp_path)
    assert (store.scan().results, store.scan().problems) == ((), ())
    assert (store.curves().results, store.curves().problems) == ((), ())
    assert [r.folder for r in store.reports().results] == [folder]
    with raises("result.other_kind", "report", "scores"):
        store.run(report_spec()).result(HeadScores)
    with raises("result.other_kind", "report", "a curve"):
        store.run(report_spec()).result(Curve)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "half a letter \ud800", object()])
def test_a_report_with_a_value_that_cannot_be_written_is_not_kept(
    tmp_path: Path, value: Any
) -> None:
    report = report_of(report_spec())
    table = replace(report.tables[0], rows=(("de", value, 1, True),))
    with raises("report.value_unstorable"):
        Store(tmp_path).run(report_spec()).finish(replace(report, tables=(table,)), {})
    assert list(tmp_path.iterdir()) == []


def tell(folder: Path, about: dict[str, Any]) -> None:
    with np.load(folder / "result.npz") as file:
        text = json.loads(str(file["about"])) | about
    np.savez(folder / "result.npz", about=np.array(json.dumps(text)))


BAD_TEXT: dict[str, dict[str, Any]] = {
    "no report": {"report": None},
    "another report": {"report": {"name": "gap", "tables": []}},
    "another hash": {"sha256": "0"},
    "notes that are none": {"meta": []},
    "half a letter": {"report": {"name": "\ud800"}},
    "a number without end": {"report": {"name": 1e999}},
}


@pytest.mark.parametrize("about", BAD_TEXT.values(), ids=BAD_TEXT)
def test_a_report_that_does_not_fit_becomes_a_sentence(
    tmp_path: Path, about: dict[str, Any]
) -> None:
    good = write(tmp_path, report_spec())
    bad = write(tmp_path, report_spec(seed=1))
    tell(bad, about)
    listing = Store(tmp_path).reports()
    assert [r.folder for r in listing.results] == [good]
    assert len(listing.problems) == 1
    assert bad.name in listing.problems[0]
    assert "run the experiment again" in listing.problems[0]


def test_a_report_of_another_experiment_becomes_a_sentence(tmp_path: Path) -> None:
    one = write(tmp_path, report_spec())
    other = write(tmp_path, report_spec("transfer"))
    (one / "result.npz").write_bytes((other / "result.npz").read_bytes())
    (problem,) = Store(tmp_path).reports().problems
    assert "it is a report of transfer, not of gap" in problem


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_fuzz_a_changed_byte_of_a_report_never_crashes(tmp_path: Path, at: int, byte: int) -> None:
    folder = write(tmp_path, report_spec())
    data = bytearray((folder / "result.npz").read_bytes())
    data[at % len(data)] = byte
    (folder / "result.npz").write_bytes(bytes(data))
    listing = Store(tmp_path).reports()
    assert len(listing.results) + len(listing.problems) == 1
    assert all(result.record == report_of(report_spec()) for result in listing.results)
