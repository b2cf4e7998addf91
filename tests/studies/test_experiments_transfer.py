"""Masks chosen on one language and tested on every other, against masks that are evaluated afresh."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from support.planted_scores import plant
from support.tiny_models import tiny_model
from support.tiny_task import read_tiny, tiny_task, tiny_tokenizer
from test_experiments_targeted import HARM, VALUES, right, rows

from headlab.core import Report
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.results import Store
from headlab.stats import group_bootstrap
from headlab.studies.run import Pieces, run_experiment
from headlab.tasks import Task

LANGUAGES = ("xx", "yy", "en")
GROUPS = tuple(str(i // 2) for i in range(30))
GONE: dict[str, tuple[int, ...]] = {"xx": HARM, "yy": (), "en": (0, 11)}


def three() -> Task:
    return replace(tiny_task(), languages=LANGUAGES, read=read_tiny)


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def report(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Report:
    pieces = Pieces(model, three(), Store(tmp_path_factory.mktemp("store")), dev_size=12)
    for language, gone in GONE.items():
        plant(pieces, language, VALUES, gone)
    return run_experiment("transfer", pieces)


@pytest.fixture(scope="module")
def answers(model: Model) -> dict[tuple[str, str], list[bool]]:
    """Which answers are right, by (chosen on, tested on); chosen on nothing: the untouched model."""

    def fresh(gone: tuple[int, ...], language: str) -> list[bool]:
        mask = Mask(model.grid, np.array([head not in gone for head in range(12)]))
        return [
            bool(one)
            for one in Evaluator(model, three(), language, "test", None).evaluate(mask).correct
        ]

    return {
        (row, column): fresh(gone, column)
        for row, gone in {**GONE, "": ()}.items()
        for column in LANGUAGES
    }


def points(answers: dict[tuple[str, str], list[bool]], row: str, column: str) -> float:
    return 100 * (sum(answers[row, column]) - sum(answers["", column])) / 30


def test_the_matrix_equals_masks_that_are_evaluated_afresh(
    report: Report, answers: dict[tuple[str, str], list[bool]]
) -> None:
    for row in LANGUAGES:
        (found,) = rows(report.table("transfer-matrix"), chosen_on=row)
        others = [points(answers, row, column) for column in LANGUAGES if column != row]
        for column in LANGUAGES:
            assert found[f"{column}, points"] == pytest.approx(
                points(answers, row, column), abs=1e-9
            )
        assert found["heads removed"] == len(GONE[row])
        assert found["mean of the others, points"] == pytest.approx(sum(others) / 2, abs=1e-9)
    assert any(points(answers, row, column) for row in LANGUAGES for column in LANGUAGES)


def test_every_pair_has_its_interval_and_tests(
    report: Report, answers: dict[tuple[str, str], list[bool]]
) -> None:
    for row in ("xx", "en"):
        tested = []
        for column in LANGUAGES:
            (found,) = rows(report.table("transfer"), chosen_on=row, language=column)
            gain = reference.gains(answers["", column], [answers[row, column]])
            low, high, p = group_bootstrap(
                np.array([gain]), GROUPS, np.random.default_rng(0), draws=10_000
            )
            got: Any = (found["low, points"], found["high, points"], found["p"])
            assert got == pytest.approx((100 * low[0], 100 * high[0], p[0]))
            assert found["accuracy, %"] == pytest.approx(100 * sum(answers[row, column]) / 30)
            tested.append(found)
        want = reference.holm_by_steps([found["p"] for found in tested])
        assert [found["p (Holm)"] for found in tested] == pytest.approx(want)


def test_a_language_without_harmful_heads_leaves_its_row_at_0_and_says_so(report: Report) -> None:
    (row,) = rows(report.table("transfer-matrix"), chosen_on="yy")
    assert [row[f"{column}, points"] for column in LANGUAGES] == [0, 0, 0]
    assert (row["mean of the others, points"], row["low, points"], row["p"]) == (0, None, None)
    assert any("below 0 in yy: that row is 0 by definition" in note for note in report.notes)


def test_the_zero_shot_table_sets_the_mask_of_the_source_beside_each_languages_own(
    report: Report, answers: dict[tuple[str, str], list[bool]]
) -> None:
    for column in LANGUAGES:
        (found,) = rows(report.table("zero-shot"), language=column)
        zero = points(answers, "en", column)
        own = points(answers, column, column)
        assert found["mask of en, %"] == pytest.approx(100 * sum(answers["en", column]) / 30)
        assert found["difference, points"] == pytest.approx(zero, abs=1e-9)
        assert found["own mask, points"] == pytest.approx(own, abs=1e-9)
        if column == "en":
            assert (found["minus own, points"], found["minus own p"]) == (0, None)
        else:
            assert found["minus own, points"] == pytest.approx(zero - own, abs=1e-9)
            assert found["minus own low, points"] <= zero - own <= found["minus own high, points"]


def test_with_k_every_language_removes_its_k_lowest_and_another_source_may_be_named(
    model: Model, tmp_path: Path
) -> None:
    pieces = Pieces(model, tiny_task(), Store(tmp_path), dev_size=12)
    plant(pieces, "xx", VALUES, HARM)
    plant(pieces, "yy", VALUES[::-1])
    found = run_experiment("transfer", pieces, options={"k": 2, "source": "yy"})
    assert [row["heads removed"] for row in rows(found.table("transfer-matrix"))] == [2, 2]
    # yy's two lowest: those of xx, from the other end
    kept = [head not in (6, 9) for head in range(12)]
    (row,) = rows(found.table("transfer"), chosen_on="yy", language="xx")
    assert row["accuracy, %"] == pytest.approx(100 * sum(right(model, "xx", kept)) / 30)
    assert [t.name for t in found.tables] == ["transfer-matrix", "transfer", "zero-shot"]
    without = run_experiment("transfer", pieces, options={"k": 2})
    assert [t.name for t in without.tables] == ["transfer-matrix", "transfer"]
    assert any("en is not among the languages" in note for note in without.notes)
