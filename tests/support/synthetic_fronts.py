"""Made-up fronts: two orders of six heads in two languages, and a front of 144 heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import HeadGrid, Report, Stack, nouns_of_kinds
from headlab.results import HeadScores, Store
from headlab.studies.differences import MeanDifference
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
from support.cached_scores import made_scores

GRID = HeadGrid((Stack("encoder", (3, 3)),))
FINGERPRINT = "f" * 64
IDENTITY = {"name": "e5-small-intents", "revision": "r", "fingerprint": FINGERPRINT}
COSTS = Costs(
    2_000_000,
    (0, 1_000_000, 100),
    (LayerCost(0, 3, 1, 200_000, 100_000, 10), LayerCost(3, 3, 1, 100_000, 50_000, 10)),
)
LOADED_MODEL = LoadedModel(**IDENTITY, grid=GRID, device="cpu", note="", costs=COSTS)
LANGUAGES = ("de", "th")
# As many players of other kinds: groups of neurons, layers, and heads with layers.
GRIDS_OF_PLAYERS = {
    "neurons:2": HeadGrid(
        (Stack("encoder-neurons", (2, 2, 2), tuple((0, 1, layer % 2) for layer in range(3))),)
    ),
    "layers": HeadGrid((Stack("encoder-layers", (1,) * 6),)),
    "heads,layers": HeadGrid((Stack("encoder", (2, 2)), Stack("encoder-layers", (1, 1)))),
}
ORDERS = [
    NestedOrder("mean", np.arange(6.0), np.array([0, 1, 2, 3, 4, 5])),
    NestedOrder("weakest", np.arange(6.0), np.array([3, 0, 4, 1, 5, 2])),
]


def made_point(order: NestedOrder, removed_count: int, worst: float, mean: float) -> Point:
    """One made-up masked model.

    Args:
        order: The order that it removes heads by.
        removed_count: How many heads it removes.
        worst: Difference in accuracy in one of the two languages.
        mean: Mean difference over both languages.
    """
    is_kept = np.ones(6, bool)
    is_kept[order.order[:removed_count]] = False
    differences = (worst, 2 * mean - worst)
    low = tuple(difference - 0.01 for difference in differences)
    high = tuple(difference + 0.01 for difference in differences)
    bounds = tuple(difference - 0.008 for difference in differences)
    accuracies = tuple(0.8 + difference for difference in differences)
    return Point(
        order.key,
        removed_count,
        6 - removed_count,
        COSTS.shrunk(is_kept).parameters,
        LANGUAGES,
        accuracies,
        differences,
        low,
        high,
        bounds,
        mean,
        mean - 0.008,
        mean + 0.008,
    )


POINTS = [
    made_point(ORDERS[0], 0, 0.0, 0.0),
    made_point(ORDERS[0], 2, -0.004, 0.002),
    made_point(ORDERS[0], 4, -0.1, -0.05),
    made_point(ORDERS[1], 0, 0.0, 0.0),
    made_point(ORDERS[1], 2, -0.001, 0.0),
    made_point(ORDERS[1], 4, -0.02, -0.01),
]


def spec_of(**options: Any) -> dict[str, Any]:
    """What the front depends on, with as many points as the page asks for by default."""
    players = options.get("players", "heads")
    what_is_switched = {}
    if players != "heads":
        what_is_switched["players"] = players
        groups = GRIDS_OF_PLAYERS[players].members_sha256
        if groups:
            what_is_switched["groups"] = groups
    return what_is_switched | {
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
    """The result of a front, with a made-up mean difference on test."""
    mean = MeanDifference(-0.01, -0.02, 0.0, 0.1)
    return FrontResult(
        answers=answer_records(rules, grid.noun),
        tested_languages=confirmed_records(verdicts, mean, nouns_of_kinds(grid.kinds)),
        models=model_records(points, grid.noun),
        languages=language_records(points, grid.noun),
        orders=order_records(orders, grid),
    )


def made_front(
    points: Sequence[Point] = POINTS, answer: Point | None = None, **options: Any
) -> Report:
    """The report of a front.

    Args:
        points: The models of the front.
        answer: The model it recommends; None for the smallest within a point by the lower bound.
        options: Options of the front; its players are some of GRIDS_OF_PLAYERS, or heads.
    """
    spec = spec_of(**options)
    grid = GRIDS_OF_PLAYERS.get(options.get("players", "heads"), GRID)
    smallest_point = answer or smallest_within(points, 0.01, "bound")
    rules = {"smallest within 1 point in every language, by the lower bound": smallest_point}
    verdicts = [
        LanguageVerdict(name, 1000, 0.8, 0.79, -0.01, -0.02, 0.0, -0.018, 0.08, 0.2)
        for name in LANGUAGES
    ]
    tables = front_result(rules, points, ORDERS, grid, verdicts).tables()
    return Report("front", tables, ("Two heads go, by order weakest; 4 are left.",), spec)


def keep_front(root: Path, hour: int = 5, **front_options: Any) -> str:
    """Keep a made-up front in a cache.

    Args:
        root: The cache folder.
        hour: The hour of its day at which it was made.
        front_options: Arguments of `made_front`.

    Returns:
        The key of the stored report.
    """
    report = made_front(**front_options)
    stored_run = Store(root).run(report.spec)
    stored_run.finish(report, {"created": f"2026-11-22T{hour:02}:00:00+00:00", "versions": {}})
    return stored_run.key


def keep_scores_of_players(root: Path, players: str, method: str = "shapley") -> None:
    """Keep made-up scores of other players than heads, in both languages of the fronts.

    Args:
        root: The cache folder.
        players: Some of GRIDS_OF_PLAYERS.
        method: That they are by.
    """
    grid = GRIDS_OF_PLAYERS[players]
    for language in LANGUAGES:
        scores = made_scores(language, method, FINGERPRINT)
        spec = {name: value for name, value in scores.spec.to_json().items() if name != "groups"}
        spec |= {"model": IDENTITY, "players": players}
        if grid.members_sha256:
            spec["groups"] = grid.members_sha256
        arrays = {
            name: getattr(scores, name)[: grid.size]
            for name in ("values", "low", "high", "samples", "p_values")
            if getattr(scores, name) is not None
        }
        record = HeadScores(
            grid,
            language,
            method,
            estimand=scores.estimand,
            unit=scores.unit,
            example_forwards=scores.example_forwards,
            seconds=scores.seconds,
            signed=scores.signed,
            spec=spec,
            **arrays,
        )
        meta = {"created": "2026-11-21T05:00:00+00:00", "versions": {}}
        Store(root).run(record.spec).finish(record, meta)


def embedded_grid() -> HeadGrid:
    """The head grid of the embedded model."""
    return HeadGrid((Stack("encoder", (12,) * 12),))


def made_embedded_front(fingerprint: str) -> Report:
    """A front of the embedded model: no head removed, a third, a half, two thirds."""
    grid = embedded_grid()
    count = grid.size
    losses = {0: 0.0, count // 3: 0.01, count // 2: 0.04, 2 * count // 3: 0.2}
    return made_front_of(grid, losses, fingerprint, spec_of(within=2.0))


def made_front_without_layers(fingerprint: str) -> Report:
    """A front of the embedded model's layers as earlier versions chose it: all are removed."""
    grid = HeadGrid.from_json({"encoder-layers": [1] * 12})
    spec = spec_of(within=2.0, players="layers")
    return made_front_of(grid, {0: 0.0, grid.size: 0.01}, fingerprint, spec)


def made_front_of(
    grid: HeadGrid, losses: Mapping[int, float], fingerprint: str, spec: Mapping[str, Any]
) -> Report:
    """A front whose second model answers the question.

    Args:
        grid: Of the players.
        losses: {number of players removed: what accuracy loses}.
        fingerprint: Of the model.
        spec: Of the report, with another model.
    """
    order = NestedOrder("mean", np.arange(grid.size) / grid.size, np.arange(grid.size))
    points = []
    for removed_count, lost_accuracy in losses.items():
        differences = (-lost_accuracy, -lost_accuracy / 2)
        points.append(
            Point(
                "mean",
                removed_count,
                grid.size - removed_count,
                33_000_000 - 50_000 * removed_count,
                LANGUAGES,
                (0.9, 0.9),
                differences,
                (-lost_accuracy - 0.01, -lost_accuracy),
                (0.0, 0.0),
                (-lost_accuracy - 0.008, -lost_accuracy),
                -0.75 * lost_accuracy,
                -lost_accuracy,
                0.0,
            )
        )
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
