"""Figure 3: curves by every ordering, their areas and the differences, against slow sums over single answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from support.expected_errors import raises
from support.planted_scores import plant
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import HeadGrid, Report, Stack, Table
from headlab.methods import ORDERINGS
from headlab.results import Curve, Store, areas_by_answer, compare_areas
from headlab.studies import iterative
from headlab.studies.iterative import area_records, cost, difference_records
from headlab.studies.run import Pieces, run_experiment
from headlab.studies.table import STUDIES

OPTIONS: dict[str, Any] = STUDIES["iterative"].resolve(
    {"orderings": "random,shapley,gradient,gradient-batch", "points": 5, "runs": 3, "loss": 10.0}
)
VALUES = np.array([0.3, 0.1, -0.2, 0.0, 0.05, -0.4, 0.2, -0.1, -0.15, 0.02, 0.01, 0.03])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Pieces]:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    pieces = Pieces(
        model, tiny_task(), Store(tmp_path_factory.mktemp("store")), dev_size=10, test_size=12
    )
    for language, values in (("xx", VALUES), ("yy", VALUES[::-1])):
        plant(pieces, language, values)
    expected = sum(ask.forwards for ask in cost(pieces, OPTIONS))
    report = run_experiment("iterative", pieces, options=OPTIONS)
    assert report.example_forwards == expected == 2 * (6 * 5 * 12 + 2 * 10)
    return report, pieces


@pytest.fixture(scope="module")
def curves(made: tuple[Report, Pieces]) -> dict[str, list[Curve]]:
    """The curves of xx, by ordering, from the store."""
    _, pieces = made
    out: dict[str, list[Curve]] = {}
    for name, runs in iterative.plan_of(OPTIONS["orderings"].split(","), OPTIONS, 0).items():
        scores = [pieces.scores("xx", method, seed=seed, **own) for method, seed, own in runs]
        out[name] = [pieces.curve("xx", one, 5) for one in scores]
    return out


def rows(table: Table, **wanted: Any) -> list[dict[str, Any]]:
    every = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return [row for row in every if all(row[name] == value for name, value in wanted.items())]


def test_points_are_those_of_the_curves_and_random_is_a_band(
    made: tuple[Report, Pieces], curves: dict[str, list[Curve]]
) -> None:
    table = made[0].table("iterative")
    for name, of in curves.items():
        found = rows(table, language="xx", ordering=name)
        assert [row["removed"] for row in found] == [0, 3, 6, 9, 12]
        every = np.array([100 * curve.correct.mean(axis=1) for curve in of])
        np.testing.assert_allclose([row["accuracy, %"] for row in found], np.median(every, axis=0))
        ends = [[row["low, %"] for row in found], [row["high, %"] for row in found]]
        if name == "random":
            np.testing.assert_allclose(ends, [every.min(axis=0), every.max(axis=0)])
        else:
            start = every[0, 0]
            np.testing.assert_allclose(ends[0], np.clip(start + 100 * of[0].low, 0, 100))
            np.testing.assert_allclose(ends[1], np.clip(start + 100 * of[0].high, 0, 100))
    assert len({curve.order.tobytes() for curve in curves["random"]}) == 3
    assert len(table.rows) == 2 * 4 * 5


def test_areas_and_heads_are_those_of_the_curves(
    made: tuple[Report, Pieces], curves: dict[str, list[Curve]]
) -> None:
    for name, of in curves.items():
        (row,) = rows(made[0].table("iterative-summary"), language="xx", ordering=name)
        slow = [[reference.area(list(a), list(c.removed)) for a in c.correct.T] for c in of]
        assert row["area, %"] == pytest.approx(100 * np.mean(slow))
        assert row["low, %"] <= row["area, %"] <= row["high, %"]
        for column, by in (("heads", "estimate"), ("heads, by interval", "interval")):
            assert row[column] == np.median([curve.heads_until(0.1, by) for curve in of])  # type: ignore[arg-type]
        np.testing.assert_allclose(areas_by_answer(of[0]), slow[0])


def test_differences_are_paired_over_the_answers(
    made: tuple[Report, Pieces], curves: dict[str, list[Curve]]
) -> None:
    table = made[0].table("iterative-differences")
    pairs = [(row["ordering"], row["minus"]) for row in rows(table, language="xx")]
    assert pairs == [
        ("shapley", "random"),
        ("gradient", "random"),
        ("gradient-batch", "random"),
        ("gradient", "shapley"),
        ("gradient-batch", "shapley"),
    ]
    (row,) = rows(table, language="xx", ordering="gradient", minus="shapley")
    want = compare_areas(curves["gradient"][0], curves["shapley"][0], 0)
    got = (row["difference, points"], row["low, points"], row["high, points"], 100 * row["p"])
    assert got == pytest.approx([100 * value for value in want])
    (row,) = rows(table, language="xx", ordering="shapley", minus="random")
    mean = np.mean([curve.area for curve in curves["random"]])
    assert row["difference, points"] == pytest.approx(100 * (curves["shapley"][0].area - mean))
    assert row["random orders below"] == sum(
        c.area < curves["shapley"][0].area for c in curves["random"]
    )
    assert all(row["p (Holm)"] >= row["p"] for row in rows(table))


def test_a_warm_run_costs_nothing_and_goes_to_json_and_back(made: tuple[Report, Pieces]) -> None:
    report, pieces = made
    again = Pieces(pieces.model, tiny_task(), pieces.store, dev_size=10, test_size=12)
    assert sum(ask.forwards for ask in cost(again, OPTIONS)) == 0
    # another report of the same pieces
    more = run_experiment("iterative", again, options=OPTIONS | {"loss": 20.0})
    assert again.forwards == more.example_forwards == 0
    assert more.table("iterative") == report.table("iterative")
    assert Report.from_json(report.to_json()) == report


def test_ctrl_c_keeps_the_curves_that_are_done(tmp_path: Path, made: tuple[Report, Pieces]) -> None:
    pieces = Pieces(
        made[1].model, tiny_task().restricted(["xx"]), Store(tmp_path), dev_size=6, test_size=6
    )
    options = STUDIES["iterative"].resolve({"orderings": "random", "runs": 3, "points": 3})
    said: list[str] = []

    def stop_at_the_third(text: str) -> None:
        said.append(text)
        if "order 3" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        iterative.run(pieces, options, stop_at_the_third)
    assert said == [f"iterative, xx: random, order {number} of 3" for number in (1, 2, 3)]
    assert sum(ask.forwards for ask in cost(pieces, options)) == 3 * 6


@pytest.mark.parametrize("given", ["", "shapley,size", "Random"])
def test_orderings_that_there_are_not_are_refused(given: str) -> None:
    about = STUDIES["iterative"]
    with raises("experiment.list_item_unknown", "random, monte-carlo"):
        about.resolve({"orderings": given})
    assert about.resolve({"orderings": "shapley, random,shapley"})["orderings"] == "shapley,random"
    assert set(about.resolve({})["orderings"].split(",")) <= set(ORDERINGS)


def made_up(rng: np.random.Generator, ordering: str, chance: float) -> Curve:
    """20 groups of 3 answers: right at the start, and wrong from a count on that the group has in common."""
    falls = np.repeat(rng.binomial(4, chance, 20), 3)
    correct = np.arange(5)[:, None] <= falls[None]
    flat = np.zeros(5)
    return Curve(
        HeadGrid((Stack("encoder", (4,)),)),
        "xx",
        "test",
        ordering,
        np.arange(4),
        np.arange(5),
        correct,
        np.repeat(np.arange(20), 3),
        flat,
        flat,
        flat + 1,
        0,
        0.0,
    )


def test_intervals_of_areas_and_differences_cover_the_truth(rng: np.random.Generator) -> None:
    """A group that falls after count f has the area (f + 1/2) / 4, at most 1; random's mean is over two orders."""
    share = np.minimum((np.arange(5) + 0.5) / 4, 1)
    ways = np.array([1, 4, 6, 4, 1])
    truth = {
        p: float(share @ (ways * p ** np.arange(5) * (1 - p) ** np.arange(4, -1, -1)))
        for p in (0.5, 0.7)
    }
    missed = [0, 0]
    for run in range(60):
        found = {
            "xx": {
                "random": [made_up(rng, "random", 0.5) for _ in range(2)],
                "shapley": [made_up(rng, "shapley", 0.7)],
            }
        }
        (area,) = (
            area for area in area_records(found, run, 1.0).rows if area.ordering == "shapley"
        )
        missed[0] += not area.low_percent <= 100 * truth[0.7] <= area.high_percent
        (gain,) = difference_records(found, run).rows
        missed[1] += not gain.low <= 100 * (truth[0.7] - truth[0.5]) <= gain.high
    assert max(missed) <= 9  # 3 are expected; chance exceeds 9 less than once in 1,000
