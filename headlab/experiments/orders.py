"""What orders the heads of a model, and the curves on test that this gives, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headlab.experiments.ask import Ask, ask_curve, ask_scores
from headlab.experiments.curve_tables import RANDOM
from headlab.experiments.table import ORDERINGS

if TYPE_CHECKING:
    from headlab.experiments.pieces import Pieces
    from headlab.scores import Curve, HeadScores

SHAPLEY, MONTE_CARLO = "shapley", "monte-carlo"
POINTS, RUNS = 25, 10
Report = Callable[[str], None]
Run = tuple[str, int, dict[str, Any]]  # method, seed, options of the method
Plan = Mapping[str, list[Run]]


class Order(NamedTuple):
    """Scores that order the heads, and the curve as they leave."""

    scores: HeadScores
    curve: Curve


def plan_of(names: Iterable[str], options: Mapping[str, Any], seed: int) -> dict[str, list[Run]]:
    """{ordering: (method, seed, options of the method) of every run}; random has several, by seed.

    options: runs, method_options (of shapley), monte_carlo_options.
    """
    extra = {
        SHAPLEY: dict(options.get("method_options") or {}),
        MONTE_CARLO: dict(options.get("monte_carlo_options") or {}),
    }
    out = {}
    for name in names:
        method, own = ORDERINGS[name]
        runs = int(options.get("runs", RUNS)) if name == RANDOM else 1
        out[name] = [(method, seed + run, {**own, **extra.get(name, {})}) for run in range(runs)]
    return out


def orders_of(
    pieces: Pieces, language: str, plan: Plan, points: int | None, report: Report, title: str
) -> dict[str, list[Order]]:
    """Every run's scores and curve in one language, by ordering.  title: what `report` is told first."""
    out: dict[str, list[Order]] = {}
    for name, runs in plan.items():
        out[name] = []
        for number, (method, seed, own) in enumerate(runs, 1):
            report(f"{title}, {language}: {name}" + f", order {number} of {len(runs)}" * (len(runs) > 1))
            scores = pieces.scores(language, method, seed=seed, **own)
            out[name].append(Order(scores, pieces.curve(language, scores, points)))
    return out


def asks_of(pieces: Pieces, plan: Plan, points: int | None) -> list[Ask]:
    """Every ordering's scores and curve in every language."""
    asks = []
    for language in pieces.languages:
        for method, seed, own in (run for runs in plan.values() for run in runs):
            asks.append(ask_scores(pieces, language, method, seed=seed, options=own))
            asks.append(ask_curve(pieces, language, method, seed=seed, options=own, points=points))
    return asks
