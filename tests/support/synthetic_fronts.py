"""A front that is made up: two orders of six heads, in two languages, kept in a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import HeadGrid, Report, Stack
from headlab.results import Store
from headlab.studies.differences import Difference
from headlab.studies.pareto import (
    FrontResult,
    LanguageVerdict,
    NestedOrder,
    Point,
    answer_records,
    confirmed_records,
    language_records,
    model_records,
    order_records,
    smallest_within,
)
from headlab.studies.savings import Costs, LayerCost
from headlab.studies.table import STUDIES
from headlab.worker.schemas import LoadedModel

GRID = HeadGrid((Stack("encoder", (3, 3)),))
FINGERPRINT = "f" * 64
IDENTITY = {"name": "e5-small-intents", "revision": "r", "fingerprint": FINGERPRINT}
COSTS = Costs(
    2_000_000,
    (0, 1_000_000, 100),
    (LayerCost(0, 3, 1, 200_000, 100_000, 10), LayerCost(3, 3, 1, 100_000, 50_000, 10)),
)
LOADED = LoadedModel(**IDENTITY, grid=GRID, device="cpu", note="", costs=COSTS)
LANGUAGES = ("de", "th")
ORDERS = [
    NestedOrder("mean", np.arange(6.0), np.array([0, 1, 2, 3, 4, 5])),
    NestedOrder("weakest", np.arange(6.0), np.array([3, 0, 4, 1, 5, 2])),
]


def point(order: NestedOrder, removed: int, worst: float, mean: float) -> Point:
    """One made-up model."""
    kept = np.ones(6, bool)
    kept[order.order[:removed]] = False
    pair = (worst, 2 * mean - worst)
    low = tuple(d - 0.01 for d in pair)
    high = tuple(d + 0.01 for d in pair)
    return Point(
        order.key,
        removed,
        6 - removed,
        COSTS.shrunk(kept).parameters,
        LANGUAGES,
        tuple(0.8 + d for d in pair),
        pair,
        low,
        high,
        tuple(d - 0.008 for d in pair),
        mean,
        mean - 0.008,
        mean + 0.008,
    )


POINTS = [
    point(ORDERS[0], 0, 0.0, 0.0),
    point(ORDERS[0], 2, -0.004, 0.002),
    point(ORDERS[0], 4, -0.1, -0.05),
    point(ORDERS[1], 0, 0.0, 0.0),
    point(ORDERS[1], 2, -0.001, 0.0),
    point(ORDERS[1], 4, -0.02, -0.01),
]


def spec_of(**options: Any) -> dict[str, Any]:
    """What the front depends on; of as many sizes as the page asks for at first."""
    return {
        "format": 1,
        "kind": "report",
        "experiment": "front",
        "version": 1,
        "model": IDENTITY,
        "task": {
            "name": "intents",
            "language": ",".join(LANGUAGES),
            "split": "dev,test",
            "sizes": {"dev": [512, 512], "test": [1000, 1000]},
            "seed": 0,
            "data_hash": "0" * 64,
        },
        "ablation": "zero",
        "options": STUDIES["front"].resolve({"points": GRID.size + 1} | options),
        "seed": 0,
    }


def front_result(
    rules: Mapping[str, Point],
    points: Sequence[Point],
    orders: Sequence[NestedOrder],
    grid: HeadGrid,
    verdicts: Sequence[LanguageVerdict] = (),
) -> FrontResult:
    """What a front found, with a mean on test that is made up."""
    return FrontResult(
        answers=answer_records(rules),
        confirmed=confirmed_records(verdicts, Difference(-0.01, -0.02, 0.0, 0.1)),
        models=model_records(points),
        languages=language_records(points),
        orders=order_records(orders, grid),
    )


def made_front(
    points: Sequence[Point] = POINTS, answer: Point | None = None, **options: Any
) -> Report:
    """The report.

    Args:
        answer: The smallest within a point by the bound if None.
    """
    spec = spec_of(**options)
    chosen = answer or smallest_within(points, 0.01, "bound")
    rules = {"smallest within 1 point in every language, by the lower bound": chosen}
    verdicts = [
        LanguageVerdict(name, 1000, 0.8, 0.79, -0.01, -0.02, 0.0, -0.018, 0.08, 0.2)
        for name in LANGUAGES
    ]
    tables = front_result(rules, points, ORDERS, GRID, verdicts).tables()
    return Report("front", tables, ("Two heads go, by order weakest; 4 are left.",), spec)


def keep_front(root: Path, hour: int = 5, **given: Any) -> str:
    """Keep it in a cache; returns its key.

    Args:
        hour: When it was made.
        given: As `made_front` takes it.
    """
    report = made_front(**given)
    run = Store(root).run(report.spec)
    run.finish(report, {"created": f"2026-11-22T{hour:02}:00:00+00:00", "versions": {}})
    return run.key


def wide_grid() -> HeadGrid:
    """Heads of the embedded model."""
    return HeadGrid((Stack("encoder", (12,) * 12),))


def made_wide(fingerprint: str) -> Report:
    """A front of the embedded model along one order: none, a third and two thirds of its heads off."""
    grid = wide_grid()
    order = NestedOrder("mean", np.arange(grid.size) / grid.size, np.arange(grid.size))
    points = []
    for removed, lost in ((0, 0.0), (grid.size // 3, 0.01), (2 * grid.size // 3, 0.2)):
        pair = (-lost, -lost / 2)
        points.append(
            Point(
                "mean",
                removed,
                grid.size - removed,
                33_000_000 - 50_000 * removed,
                LANGUAGES,
                (0.9, 0.9),
                pair,
                (-lost - 0.01, -lost),
                (0.0, 0.0),
                (-lost - 0.008, -lost),
                -0.75 * lost,
                -lost,
                0.0,
            )
        )
    spec = spec_of(within=2.0)
    verdicts = [
        LanguageVerdict(name, 1000, 0.9, 0.89, -0.01, -0.02, 0.0, -0.018, 0.08, 0.2)
        for name in LANGUAGES
    ]
    rules = {"smallest within 2 points in every language, by the lower bound": points[1]}
    tables = front_result(rules, points, [order], grid, verdicts).tables()
    return Report(
        "front",
        tables,
        ("A made-up front.",),
        {**spec, "model": {**IDENTITY, "fingerprint": fingerprint}},
    )
