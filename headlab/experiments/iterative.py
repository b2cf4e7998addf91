"""Figure 3 of Held & Yang (EACL 2023): accuracy on test while heads leave, by what orders them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.curves.compare import labels
from headlab.errors import HeadlabError
from headlab.experiments.ask import Ask, ask_curve, ask_scores
from headlab.experiments.table import ORDERINGS
from headlab.records import Floats
from headlab.scores import Curve, band
from headlab.stats import group_bootstrap, holm
from headlab.tables import Cell, Table

if TYPE_CHECKING:
    from headlab.experiments.pieces import Pieces

POINTS, RUNS, LOSS = 25, 10, 1.0
RANDOM, SHAPLEY = "random", "shapley"
DEFAULT = "random,monte-carlo,shapley,gradient,leave-one-out"
Report = Callable[[str], None]
Curves = Mapping[str, Sequence[Curve]]  # ordering: its curves, of which random has several


def orderings(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The orderings asked for. Raises HeadlabError for one that there is not."""
    names = tuple(name.strip() for name in str(options.get("orderings", DEFAULT)).split(",") if name.strip())
    unknown = [name for name in names if name not in ORDERINGS]
    if unknown or not names:
        raise HeadlabError(
            f"no ordering {', '.join(unknown) or 'given'}; heads can be ordered by {', '.join(ORDERINGS)}"
        )
    return tuple(dict.fromkeys(names))


def plan(options: Mapping[str, Any], seed: int) -> dict[str, list[tuple[str, int, dict[str, Any]]]]:
    """{ordering: (method, seed, options of the method) of every run}; random has several, by seed."""
    extra = {
        SHAPLEY: dict(options.get("method_options") or {}),
        "monte-carlo": dict(options.get("monte_carlo_options") or {}),
    }
    out = {}
    for name in orderings(options):
        method, own = ORDERINGS[name]
        runs = int(options.get("runs", RUNS)) if name == RANDOM else 1
        out[name] = [(method, seed + run, {**own, **extra.get(name, {})}) for run in range(runs)]
    return out


def run(pieces: Pieces, options: Mapping[str, Any], report: Report) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Every ordering's curve in every language: the points, and areas and heads that can go.

    options: orderings, runs, points, loss, method_options (of shapley), monte_carlo_options.
    """
    asked, points = plan(options, pieces.seed), options.get("points", POINTS)
    found: dict[str, Curves] = {}
    for language in pieces.languages:
        found[language] = {}
        for name, runs in asked.items():
            curves = []
            for number, (method, seed, own) in enumerate(runs, 1):
                report(f"iterative, {language}: {name}" + f", order {number} of {len(runs)}" * (len(runs) > 1))
                curves.append(pieces.curve(language, pieces.scores(language, method, seed=seed, **own), points))
            found[language] = {**found[language], name: curves}
    tables = (
        point_table(found),
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
    points, asks = options.get("points", POINTS), []
    for language in pieces.languages:
        for method, seed, own in (run for runs in plan(options, pieces.seed).values() for run in runs):
            asks.append(ask_scores(pieces, language, method, seed=seed, options=own))
            asks.append(ask_curve(pieces, language, method, seed=seed, options=own, points=points))
    return asks


def point_table(found: Mapping[str, Curves]) -> Table:
    """A row per language, ordering and count of heads removed."""
    rows: list[tuple[Cell, ...]] = []
    for language, curves in found.items():
        for name, of in curves.items():
            middle, low, high = _line(name, of)
            for removed, *values in zip(of[0].removed.tolist(), middle, low, high, strict=True):
                rows.append((language, name, removed, *(100 * float(v) for v in values)))
    return Table(
        "iterative",
        "Accuracy on test while heads leave",
        ("language", "ordering", "removed", "accuracy, %", "low, %", "high, %"),
        ("", "", "d", ".1f", ".1f", ".1f"),
        tuple(rows),
        ("low, high: 95 % interval of the difference to the untouched model, around it; of random, the lowest and the "
         "highest of its orders.",),
    )  # fmt: skip


def _line(name: str, curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats]:
    """Accuracy with what encloses it, [point] each."""
    if name == RANDOM:
        spread = band(curves)
        return spread.median, spread.low, spread.high
    (curve,) = curves
    low, high = np.clip(curve.accuracy[0] + np.stack([curve.low, curve.high]), 0, 1)
    return curve.accuracy, low, high


def areas(curve: Curve) -> Floats:
    """Each answer's part in the area under a curve, float [answer]; their mean is `Curve.area`."""
    return np.asarray(np.trapezoid(curve.correct.astype(np.float64), curve.removed / curve.removed[-1], axis=0))


def summary_table(found: Mapping[str, Curves], seed: int, loss: float = LOSS) -> Table:
    """A row per language and ordering: the area with its interval, and how many heads can go for `loss` points."""
    return Table(
        "iterative-summary",
        f"Area under the curves, and how many heads can go before more than {loss:g} points are lost",
        ("language", "ordering", "area, %", "low, %", "high, %", "heads", "heads, by interval"),
        ("", "", ".1f", ".1f", ".1f", ".0f", ".0f"),
        tuple(
            (language, name, *_area(of, seed), *_heads(of, loss))
            for language, curves in found.items()
            for name, of in curves.items()
        ),
        (f"Area: mean accuracy from no head gone to all of them.  Heads: the most that can go before more than "
         f"{loss:g} points are lost, by the estimate and by its interval (a larger loss is ruled out), of the counts "
         "measured; of random, the median of its orders.",),
    )  # fmt: skip


def _area(curves: Sequence[Curve], seed: int) -> tuple[float, ...]:
    part = _mean_areas(curves)
    low, high, _ = group_bootstrap(
        part[None], labels(curves[0].groups), np.random.default_rng(seed), made_up=(1.0, 0.0)
    )
    return tuple(100 * float(v) for v in (part.mean(), low[0], high[0]))


def _mean_areas(curves: Sequence[Curve]) -> Floats:
    return np.asarray(np.mean([areas(curve) for curve in curves], axis=0))


def _heads(curves: Sequence[Curve], loss: float) -> tuple[float, float]:
    estimate, interval = ([curve.heads_until(loss / 100, by) for curve in curves] for by in ("estimate", "interval"))
    return float(np.median(estimate)), float(np.median(interval))


def difference_table(found: Mapping[str, Curves], seed: int) -> Table:
    """A row per language, ordering and what it is compared with: the difference in area, paired over the answers."""
    pairs = [
        (language, name, other, curves)
        for language, curves in found.items()
        for other in (RANDOM, SHAPLEY)
        for name in curves
        if other in curves and name != other and (name, other) != (RANDOM, SHAPLEY)
    ]
    rows = [(*pair[:3], *_difference(*pair[1:], seed), _beaten(*pair[1:])) for pair in pairs]
    adjusted = holm(np.array([row[6] for row in rows], float)) if rows else ()
    return Table(
        "iterative-differences",
        "Difference in area under the curve",
        ("language", "ordering", "minus", "difference, points", "low, points", "high, points", "p", "p (Holm)",
         "random orders below"),
        ("", "", "", "+.1f", "+.1f", "+.1f", ".4f", ".4f", "d"),
        tuple((*row[:7], float(p), row[7]) for row, p in zip(rows, adjusted, strict=True)),
        ("Minus random: minus the mean over its orders.  p (Holm) is adjusted for all rows.",),
    )  # fmt: skip


def _difference(name: str, other: str, curves: Curves, seed: int) -> tuple[float, ...]:
    """Difference in area with its interval, in points, and p."""
    gain = _mean_areas(curves[name]) - _mean_areas(curves[other])
    groups = labels(curves[name][0].groups)
    low, high, p = group_bootstrap(gain[None], groups, np.random.default_rng(seed))
    return (*(100 * float(v) for v in (gain.mean(), low[0], high[0])), float(p[0]))


def _beaten(name: str, other: str, curves: Curves) -> int | None:
    """How many random orders have the smaller area."""
    if other != RANDOM:
        return None
    (curve,) = curves[name]
    return sum(run.area < curve.area for run in curves[RANDOM])
