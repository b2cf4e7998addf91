"""Masks chosen on one language and tested on every other, against masks evaluated anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference
from support.group_labels import equal_groups
from support.masked_answers import HARMFUL_HEADS, VALUES, correct_answers
from support.planted_scores import plant_scores
from support.table_rows import rows_where
from support.tiny_models import tiny_model
from support.tiny_task import read_tiny, tiny_task, tiny_tokenizer

from headlab.core import Report
from headlab.hooks import Model
from headlab.results import Store
from headlab.stats import group_bootstrap
from headlab.studies.run import Pieces, run_experiment
from headlab.tasks import Task

LANGUAGES = ("xx", "yy", "en")
GROUPS = equal_groups(30, 2)
REMOVED_HEADS: dict[str, tuple[int, ...]] = {
    "xx": HARMFUL_HEADS,
    "yy": (),
    "en": (0, 11),
}


def three_language_task() -> Task:
    return replace(tiny_task(), languages=LANGUAGES, read=read_tiny)


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def report(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Report:
    pieces = Pieces(
        model, three_language_task(), Store(tmp_path_factory.mktemp("store")), dev_size=12
    )
    for language, harmful_heads in REMOVED_HEADS.items():
        plant_scores(pieces, language, VALUES, harmful_heads)
    return run_experiment("transfer", pieces)


@pytest.fixture(scope="module")
def answers(model: Model) -> dict[tuple[str, str], list[bool]]:
    """Which answers are right, by the languages that a mask was chosen on and is tested on.

    Those of the baseline are under "" in the place of the first language.
    """
    task = three_language_task()
    answers_by_languages = {}
    for chosen_on, removed_heads in {**REMOVED_HEADS, "": ()}.items():
        kept = [head not in removed_heads for head in range(12)]
        for tested_on in LANGUAGES:
            is_right = correct_answers(model, tested_on, kept, task=task)
            answers_by_languages[chosen_on, tested_on] = is_right
    return answers_by_languages


def gain_in_points(
    answers: dict[tuple[str, str], list[bool]], chosen_on: str, tested_on: str
) -> float:
    """How much more is right than in the baseline, under a mask, in percentage points."""
    right_count = sum(answers[chosen_on, tested_on])
    baseline_count = sum(answers["", tested_on])
    return 100 * (right_count - baseline_count) / 30


def test_the_matrix_equals_masks_that_are_evaluated_anew(
    report: Report, answers: dict[tuple[str, str], list[bool]]
) -> None:
    all_gains = []
    for chosen_on in LANGUAGES:
        (matrix_row,) = rows_where(report.table("transfer-matrix"), chosen_on=chosen_on)
        gains_elsewhere = []
        for tested_on in LANGUAGES:
            gain = gain_in_points(answers, chosen_on, tested_on)
            shown_gain = matrix_row[f"{tested_on}, points"]
            assert shown_gain == pytest.approx(gain, abs=1e-9)
            all_gains.append(gain)
            if tested_on != chosen_on:
                gains_elsewhere.append(gain)
        mean_elsewhere = sum(gains_elsewhere) / 2
        assert matrix_row["heads removed"] == len(REMOVED_HEADS[chosen_on])
        assert matrix_row["mean of the others, points"] == pytest.approx(mean_elsewhere, abs=1e-9)
    assert any(all_gains)


def test_every_pair_has_its_interval_and_tests(
    report: Report, answers: dict[tuple[str, str], list[bool]]
) -> None:
    table = report.table("transfer")
    for chosen_on in ("xx", "en"):
        p_values = []
        adjusted_p_values = []
        for tested_on in LANGUAGES:
            (table_row,) = rows_where(table, chosen_on=chosen_on, language=tested_on)
            baseline = answers["", tested_on]
            answers_under_mask = answers[chosen_on, tested_on]
            gain = reference.gains(baseline, [answers_under_mask])
            low, high, p = group_bootstrap(
                np.array([gain]),
                GROUPS,
                np.random.default_rng(0),
                draws=10_000,
            )
            assert table_row["low, points"] == pytest.approx(100 * low[0])
            assert table_row["high, points"] == pytest.approx(100 * high[0])
            assert table_row["p"] == pytest.approx(p[0])
            accuracy = 100 * sum(answers_under_mask) / 30
            assert table_row["accuracy, %"] == pytest.approx(accuracy)
            p_values.append(table_row["p"])
            adjusted_p_values.append(table_row["p (Holm)"])
        assert adjusted_p_values == pytest.approx(reference.holm_by_steps(p_values))


def test_a_language_without_harmful_heads_leaves_its_row_at_0_and_says_so(report: Report) -> None:
    (row,) = rows_where(report.table("transfer-matrix"), chosen_on="yy")
    gains = [row[f"{tested_on}, points"] for tested_on in LANGUAGES]
    assert gains == [0, 0, 0]
    assert row["mean of the others, points"] == 0
    assert row["low, points"] is None
    assert row["p"] is None
    assert any("below 0 in yy: that row is 0 by definition" in note for note in report.notes)


def test_the_zero_shot_table_compares_the_mask_of_the_source_with_that_of_each_language(
    report: Report, answers: dict[tuple[str, str], list[bool]]
) -> None:
    for language in LANGUAGES:
        (row,) = rows_where(report.table("zero-shot"), language=language)
        source_gain = gain_in_points(answers, "en", language)
        own_gain = gain_in_points(answers, language, language)
        accuracy = 100 * sum(answers["en", language]) / 30
        assert row["mask of en, %"] == pytest.approx(accuracy)
        assert row["difference, points"] == pytest.approx(source_gain, abs=1e-9)
        assert row["own mask, points"] == pytest.approx(own_gain, abs=1e-9)
        if language == "en":
            assert row["minus own, points"] == 0
            assert row["minus own p"] is None
        else:
            difference = source_gain - own_gain
            assert row["minus own, points"] == pytest.approx(difference, abs=1e-9)
            assert row["minus own low, points"] <= difference <= row["minus own high, points"]


def test_with_k_every_language_removes_its_k_lowest_and_another_source_may_be_named(
    model: Model, tmp_path: Path
) -> None:
    pieces = Pieces(model, tiny_task(), Store(tmp_path), dev_size=12)
    plant_scores(pieces, "xx", VALUES, HARMFUL_HEADS)
    plant_scores(pieces, "yy", VALUES[::-1])
    report = run_experiment("transfer", pieces, options={"k": 2, "source": "yy"})
    matrix_rows = rows_where(report.table("transfer-matrix"))
    removed_counts = [row["heads removed"] for row in matrix_rows]
    assert removed_counts == [2, 2]
    # yy's two lowest: those of xx, from the other end
    kept = [head not in (6, 9) for head in range(12)]
    (row,) = rows_where(report.table("transfer"), chosen_on="yy", language="xx")
    accuracy = 100 * sum(correct_answers(model, "xx", kept)) / 30
    assert row["accuracy, %"] == pytest.approx(accuracy)
    table_names = [table.name for table in report.tables]
    assert table_names == ["transfer-matrix", "transfer", "zero-shot"]
    report_of_default_source = run_experiment("transfer", pieces, options={"k": 2})
    table_names = [table.name for table in report_of_default_source.tables]
    assert table_names == ["transfer-matrix", "transfer"]
    assert any("en is not among the languages" in note for note in report_of_default_source.notes)
