"""Figure 3: curves by every ordering, their areas and their differences.

They are compared with slow sums over single answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from support.expected_errors import raises
from support.falling_curves import expected_area, falling_curve
from support.planted_scores import plant_scores
from support.table_rows import rows_where
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import Report
from headlab.methods import ORDERINGS
from headlab.results import Curve, Store, areas_by_answer, compare_areas
from headlab.studies import iterative
from headlab.studies.iterative import area_records, cost, difference_records
from headlab.studies.run import Pieces, run_experiment
from headlab.studies.table import STUDIES

OPTIONS: dict[str, Any] = STUDIES["iterative"].resolve(
    {
        "orderings": "random,shapley,gradient,gradient-batch",
        "points": 5,
        "runs": 3,
        "loss": 10.0,
    }
)
VALUES = np.array([0.3, 0.1, -0.2, 0.0, 0.05, -0.4, 0.2, -0.1, -0.15, 0.02, 0.01, 0.03])


@pytest.fixture(scope="module")
def report_and_pieces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Pieces]:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    store = Store(tmp_path_factory.mktemp("store"))
    pieces = Pieces(model, tiny_task(), store, dev_size=10, test_size=12)
    plant_scores(pieces, "xx", VALUES)
    plant_scores(pieces, "yy", VALUES[::-1])
    expected_forwards = sum(ask.forwards for ask in cost(pieces, OPTIONS))
    report = run_experiment("iterative", pieces, options=OPTIONS)
    curve_forwards = 6 * 5 * 12
    score_forwards = 2 * 10
    assert expected_forwards == 2 * (curve_forwards + score_forwards)
    assert report.example_forwards == expected_forwards
    return report, pieces


@pytest.fixture(scope="module")
def curves(report_and_pieces: tuple[Report, Pieces]) -> dict[str, list[Curve]]:
    """The curves of xx, by ordering, from the store."""
    _, pieces = report_and_pieces
    curves_by_ordering: dict[str, list[Curve]] = {}
    orderings = OPTIONS["orderings"].split(",")
    plan = iterative.plan_of(orderings, OPTIONS, 0)
    for ordering, runs in plan.items():
        ordering_curves = []
        for method, seed, method_options in runs:
            scores = pieces.scores("xx", method, seed=seed, **method_options)
            ordering_curves.append(pieces.curve("xx", scores, 5))
        curves_by_ordering[ordering] = ordering_curves
    return curves_by_ordering


def test_points_are_those_of_the_curves_and_random_is_a_band(
    report_and_pieces: tuple[Report, Pieces], curves: dict[str, list[Curve]]
) -> None:
    table = report_and_pieces[0].table("iterative")
    for name, ordering_curves in curves.items():
        ordering_rows = rows_where(table, language="xx", ordering=name)
        assert [row["removed"] for row in ordering_rows] == [0, 3, 6, 9, 12]
        accuracies_by_curve = []
        for curve in ordering_curves:
            accuracies_by_curve.append(100 * curve.correct.mean(axis=1))
        accuracies = np.array(accuracies_by_curve)
        reported = [row["accuracy, %"] for row in ordering_rows]
        np.testing.assert_allclose(reported, np.median(accuracies, axis=0))
        low = [row["low, %"] for row in ordering_rows]
        high = [row["high, %"] for row in ordering_rows]
        if name == "random":
            np.testing.assert_allclose(low, accuracies.min(axis=0))
            np.testing.assert_allclose(high, accuracies.max(axis=0))
        else:
            (curve,) = ordering_curves
            baseline = accuracies[0, 0]
            expected_low = np.clip(baseline + 100 * curve.low, 0, 100)
            expected_high = np.clip(baseline + 100 * curve.high, 0, 100)
            np.testing.assert_allclose(low, expected_low)
            np.testing.assert_allclose(high, expected_high)
    random_orders = {curve.order.tobytes() for curve in curves["random"]}
    assert len(random_orders) == 3
    assert len(table.rows) == 2 * 4 * 5


def test_areas_and_heads_are_those_of_the_curves(
    report_and_pieces: tuple[Report, Pieces], curves: dict[str, list[Curve]]
) -> None:
    summary = report_and_pieces[0].table("iterative-summary")
    for name, ordering_curves in curves.items():
        (row,) = rows_where(summary, language="xx", ordering=name)
        answer_areas = []  # [curve, answer]
        for curve in ordering_curves:
            removed = list(curve.removed)
            curve_areas = []
            for is_right in curve.correct.T:
                curve_areas.append(reference.area(list(is_right), removed))
            answer_areas.append(curve_areas)
        mean_area = np.mean(answer_areas)
        assert row["area, %"] == pytest.approx(100 * mean_area)
        assert row["low, %"] <= row["area, %"] <= row["high, %"]
        by_estimate = [curve.heads_until(0.1, "estimate") for curve in ordering_curves]
        by_interval = [curve.heads_until(0.1, "interval") for curve in ordering_curves]
        assert row["heads"] == np.median(by_estimate)
        assert row["heads, by interval"] == np.median(by_interval)
        areas_of_first_curve = areas_by_answer(ordering_curves[0])
        np.testing.assert_allclose(areas_of_first_curve, answer_areas[0])


def test_differences_are_paired_over_the_answers(
    report_and_pieces: tuple[Report, Pieces], curves: dict[str, list[Curve]]
) -> None:
    table = report_and_pieces[0].table("iterative-differences")
    rows = rows_where(table, language="xx")
    pairs = [(row["ordering"], row["minus"]) for row in rows]
    assert pairs == [
        ("shapley", "random"),
        ("gradient", "random"),
        ("gradient-batch", "random"),
        ("gradient", "shapley"),
        ("gradient-batch", "shapley"),
    ]
    (row,) = rows_where(table, language="xx", ordering="gradient", minus="shapley")
    (gradient_curve,) = curves["gradient"]
    (shapley_curve,) = curves["shapley"]
    expected = compare_areas(gradient_curve, shapley_curve, 0)
    assert row["difference, points"] == pytest.approx(100 * expected.difference)
    assert row["low, points"] == pytest.approx(100 * expected.low)
    assert row["high, points"] == pytest.approx(100 * expected.high)
    assert row["p"] == pytest.approx(expected.p)
    (row,) = rows_where(table, language="xx", ordering="shapley", minus="random")
    shapley_area = shapley_curve.area
    random_areas = np.array([curve.area for curve in curves["random"]])
    difference_of_means = shapley_area - random_areas.mean()
    assert row["difference, points"] == pytest.approx(100 * difference_of_means)
    assert row["random orders below"] == (random_areas < shapley_area).sum()
    for row in rows_where(table):
        assert row["p (Holm)"] >= row["p"]


def test_a_warm_run_costs_nothing_and_goes_to_json_and_back(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    report, pieces = report_and_pieces
    pieces_anew = Pieces(
        pieces.model,
        tiny_task(),
        pieces.store,
        dev_size=10,
        test_size=12,
    )
    expected_forwards = sum(ask.forwards for ask in cost(pieces_anew, OPTIONS))
    assert expected_forwards == 0
    # another report of the same pieces
    other_options = OPTIONS | {"loss": 20.0}
    other_report = run_experiment("iterative", pieces_anew, options=other_options)
    assert pieces_anew.forwards == 0
    assert other_report.example_forwards == 0
    assert other_report.table("iterative") == report.table("iterative")
    assert Report.from_json(report.to_json()) == report


def test_ctrl_c_keeps_the_curves_that_are_done(
    tmp_path: Path, report_and_pieces: tuple[Report, Pieces]
) -> None:
    model = report_and_pieces[1].model
    task = tiny_task().with_languages(["xx"])
    pieces = Pieces(model, task, Store(tmp_path), dev_size=6, test_size=6)
    options = STUDIES["iterative"].resolve(
        {
            "orderings": "random",
            "runs": 3,
            "points": 3,
        }
    )
    sentences: list[str] = []

    def stop_at_the_third(text: str) -> None:
        sentences.append(text)
        if "order 3" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        iterative.run(pieces, options, stop_at_the_third)
    assert sentences == [
        "iterative, xx: random, order 1 of 3",
        "iterative, xx: random, order 2 of 3",
        "iterative, xx: random, order 3 of 3",
    ]
    expected_forwards = sum(ask.forwards for ask in cost(pieces, options))
    assert expected_forwards == 3 * 6


@pytest.mark.parametrize("orderings", ["", "shapley,size", "Random"])
def test_unknown_orderings_are_refused(orderings: str) -> None:
    iterative_study = STUDIES["iterative"]
    with raises("experiment.list_item_unknown", "random, monte-carlo"):
        iterative_study.resolve({"orderings": orderings})
    options = iterative_study.resolve({"orderings": "shapley, random,shapley"})
    assert options["orderings"] == "shapley,random"
    defaults = iterative_study.resolve({})
    default_orderings = defaults["orderings"].split(",")
    assert set(default_orderings) <= set(ORDERINGS)


def test_intervals_of_areas_and_differences_cover_the_truth(rng: np.random.Generator) -> None:
    """Twenty groups of 3 answers; the mean of random orders is over two of them."""
    true_area = 100 * expected_area(0.7)
    true_difference = 100 * (expected_area(0.7) - expected_area(0.5))
    missed_areas = 0
    missed_differences = 0

    def curve(ordering: str, chance: float) -> Curve:
        return falling_curve(rng, ordering, chance, groups=20, group_size=3)

    for seed in range(60):
        random_curves = [curve("random", 0.5) for _ in range(2)]
        curves_by_ordering = {
            "random": random_curves,
            "shapley": [curve("shapley", 0.7)],
        }
        curves_by_language = {"xx": curves_by_ordering}
        records = area_records(curves_by_language, seed, 1.0).rows
        (area,) = (record for record in records if record.ordering == "shapley")
        missed_areas += not area.low_percent <= true_area <= area.high_percent
        (gain,) = difference_records(curves_by_language, seed).rows
        missed_differences += not gain.low <= true_difference <= gain.high
    assert missed_areas <= 9  # 3 are expected; chance exceeds 9 less than once in 1,000
    assert missed_differences <= 9
