"""Figure 3 of Held & Yang (EACL 2023): accuracy on test while heads leave, by what orders them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headlab.errors import HeadlabError
from headlab.experiments.ask import Ask
from headlab.experiments.curve_tables import (
    LOSS,
    RANDOM,
    Curves,
    area_table,
    pair_table,
    pairs_of,
    point_table,
    walked,
)
from headlab.experiments.orders import POINTS, SHAPLEY, Report, Run, asks_of, orders_of, plan_of
from headlab.experiments.table import ORDERINGS
from headlab.tables import Table

if TYPE_CHECKING:
    from headlab.experiments.pieces import Pieces

__all__ = ["ORDERINGS", "cost", "difference_table", "orderings", "plan", "run", "summary_table"]

DEFAULT = "random,monte-carlo,shapley,gradient,leave-one-out"


def orderings(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The orderings asked for. Raises HeadlabError for one that there is not."""
    names = tuple(name.strip() for name in str(options.get("orderings", DEFAULT)).split(",") if name.strip())
    unknown = [name for name in names if name not in ORDERINGS]
    if unknown or not names:
        raise HeadlabError(
            f"no ordering {', '.join(unknown) or 'given'}; heads can be ordered by {', '.join(ORDERINGS)}",
            code="experiment.ordering_unknown",
        )
    return tuple(dict.fromkeys(names))


def plan(options: Mapping[str, Any], seed: int) -> dict[str, list[Run]]:
    """{ordering: (method, seed, options of the method) of every run}; random has several, by seed."""
    return plan_of(orderings(options), options, seed)


def run(pieces: Pieces, options: Mapping[str, Any], report: Report) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Every ordering's curve in every language: the points, and areas and heads that can go.

    options: orderings, runs, points, loss, method_options (of shapley), monte_carlo_options.
    """
    asked, points = plan(options, pieces.seed), options.get("points", POINTS)
    found: dict[str, Curves] = {}
    for language in pieces.languages:
        orders = orders_of(pieces, language, asked, points, report, "iterative")
        found[language] = {name: [order.curve for order in of] for name, of in orders.items()}
    tables = (
        point_table(found, "iterative"),
        summary_table(found, pieces.seed, float(options.get("loss", LOSS))),
        difference_table(found, pieces.seed),
    )
    return tables, (
        "Heads leave lowest dev score first; accuracy is of test.",
        f"random: {len(asked[RANDOM])} orders; accuracy is their median, low and high the lowest and highest of them. "
        "Its area is the mean over them, whose interval is about examples, not about other random orders."
        if RANDOM in asked
        else "No random orders were asked for.",
        "Intervals: 95 %, by resampling groups of examples, paired where two orderings are compared.",
    )  # fmt: skip


def cost(pieces: Pieces, options: Mapping[str, Any]) -> list[Ask]:
    """Every ordering's scores and curve in every language."""
    return asks_of(pieces, plan(options, pieces.seed), options.get("points", POINTS))


def summary_table(found: Mapping[str, Curves], seed: int, loss: float = LOSS) -> Table:
    """A row per language and ordering: the area with its interval, and how many heads can go for `loss` points."""
    return area_table(found, seed, loss, "iterative-summary")


def difference_table(found: Mapping[str, Curves], seed: int) -> Table:
    """A row per language, ordering and what it is compared with: the difference in area, paired over the answers."""
    pairs = {
        language: [
            (name, other)
            for other in (RANDOM, SHAPLEY)
            for name in curves
            if other in curves and name != other and (name, other) != (RANDOM, SHAPLEY)
        ]
        for language, curves in found.items()
    }
    return pair_table(
        {language: pairs_of([walked(found[language])], of, seed) for language, of in pairs.items()},
        "iterative-differences",
        "Minus random: minus the mean over its orders.  p (Holm) is adjusted for all rows.",
    )
