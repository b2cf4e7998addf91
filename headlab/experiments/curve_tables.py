"""Pruning curves of several orderings as tables: points, areas, paired differences. Pure functions, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headlab.curves.compare import areas, labels
from headlab.experiments.differences import Gain, Groups, pooled
from headlab.records import Floats
from headlab.scores import Curve, band
from headlab.stats import Bootstrap, holm, stratified_bootstrap
from headlab.tables import Cell, Table

RANDOM, LOSS = "random", 1.0
Curves = Mapping[str, Sequence[Curve]]  # ordering: its curves, of which random has several


class Walked(NamedTuple):
    """Curves of one language by ordering, and the group of each answer, [answer]."""

    curves: Curves
    groups: Groups


class Pair(NamedTuple):
    """One ordering minus another: difference in area, its interval, all in points, and p.

    below: how many random orders have the smaller area; None where the other ordering is none of chance.
    """

    ordering: str
    other: str
    difference: float
    low: float
    high: float
    p: float
    below: int | None


def walked(curves: Curves) -> Walked:
    """Curves of one language, their groups under numbers."""
    (first, *_), *_ = curves.values()
    return Walked(curves, labels(first.groups))


def mean_areas(curves: Sequence[Curve]) -> Floats:
    """The same, as the mean over several curves."""
    return np.asarray(np.mean([areas(curve) for curve in curves], axis=0))


def point_table(found: Mapping[str, Curves], name: str) -> Table:
    """A row per language, ordering and count of heads removed."""
    rows: list[tuple[Cell, ...]] = []
    for language, curves in found.items():
        for ordering, of in curves.items():
            middle, low, high = _line(ordering, of)
            for removed, *values in zip(of[0].removed.tolist(), middle, low, high, strict=True):
                rows.append((language, ordering, removed, *(100 * float(v) for v in values)))
    return Table(
        name,
        "Accuracy on test while heads leave",
        ("language", "ordering", "removed", "accuracy, %", "low, %", "high, %"),
        ("", "", "d", ".1f", ".1f", ".1f"),
        tuple(rows),
        ("low, high: 95 % interval of the difference to the untouched model, around it; of random, the lowest and the "
         "highest of its orders.",),
    )  # fmt: skip


def _line(ordering: str, curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats]:
    """Accuracy with what encloses it, [point] each."""
    if ordering == RANDOM:
        spread = band(curves)
        return spread.median, spread.low, spread.high
    (curve,) = curves
    low, high = np.clip(curve.accuracy[0] + np.stack([curve.low, curve.high]), 0, 1)
    return curve.accuracy, low, high


def area_table(found: Mapping[str, Curves], seed: int, loss: float, name: str) -> Table:
    """A row per language and ordering: the area with its interval, and how many heads can go for `loss` points."""
    return Table(
        name,
        f"Area under the curves, and how many heads can go before more than {loss:g} points are lost",
        ("language", "ordering", "area, %", "low, %", "high, %", "heads", "heads, by interval"),
        ("", "", ".1f", ".1f", ".1f", ".0f", ".0f"),
        tuple(
            (language, ordering, *area_cells([walked(curves)], ordering, seed), *_heads(of, loss))
            for language, curves in found.items()
            for ordering, of in curves.items()
        ),
        (f"Area: mean accuracy from no head gone to all of them.  Heads: the most that can go before more than "
         f"{loss:g} points are lost, by the estimate and by its interval (a larger loss is ruled out), of the counts "
         "measured; of random, the median of its orders.",),
    )  # fmt: skip


def area_cells(found: Sequence[Walked], ordering: str, seed: int, *, aligned: bool = False) -> tuple[float, ...]:
    """Mean over languages of the area, and its interval, in percent; arguments as in `pairs_of`."""
    gains = [[Gain(mean_areas(of.curves[ordering]), of.groups, 0) for of in found]]
    mean, (low, high, _) = _resampled(gains, seed, aligned, made_up=(1.0, 0.0))
    return tuple(100 * float(v) for v in (mean[0], low[0], high[0]))


def _heads(curves: Sequence[Curve], loss: float) -> tuple[float, float]:
    estimate, interval = ([curve.heads_until(loss / 100, by) for curve in curves] for by in ("estimate", "interval"))
    return float(np.median(estimate)), float(np.median(interval))


def pairs_of(
    found: Sequence[Walked],
    pairs: Sequence[tuple[str, str]],
    seed: int,
    *,
    aligned: bool = False,
    level: float = 0.95,
) -> list[Pair]:
    """One ordering's area minus another's, paired over the answers: the mean over languages, which count alike.

    found: a language each.  aligned: groups of one name are the same texts in every language, and so are drawn
    together; else each language is resampled for itself.  level: of each interval for itself.
    """
    if not pairs:
        return []
    gains = [[Gain(mean_areas(of.curves[a]) - mean_areas(of.curves[b]), of.groups, 0) for of in found]
             for a, b in pairs]  # fmt: skip
    mean, (low, high, p) = _resampled(gains, seed, aligned, level=level)
    points = zip(*(100 * ends for ends in (mean, low, high)), p, strict=True)
    return [
        Pair(a, b, float(value), float(least), float(most), float(one), _beaten(found, a, b))
        for (a, b), (value, least, most, one) in zip(pairs, points, strict=True)
    ]


def _resampled(
    gains: Sequence[Sequence[Gain]],
    seed: int,
    aligned: bool,
    *,
    made_up: tuple[float, float] = (1.0, -1.0),
    level: float = 0.95,
) -> tuple[Floats, Bootstrap]:
    """Means over languages, [row], and what resampling says of them; gains are [row][language]."""
    rows = [[pooled(row)] if aligned else row for row in gains]
    strata = [(np.stack([row[at].values for row in rows]), one.groups) for at, one in enumerate(rows[0])]
    mean = np.mean([values.mean(axis=1) for values, _ in strata], axis=0)
    return mean, stratified_bootstrap(strata, np.random.default_rng(seed), made_up=made_up, level=level)


def _beaten(found: Sequence[Walked], ordering: str, other: str) -> int | None:
    """How many random orders have the smaller area, as the mean over languages."""
    if other != RANDOM:
        return None
    own, *chance = (
        np.mean(list(each), axis=0)
        for each in zip(*([c.area for c in (*of.curves[ordering], *of.curves[RANDOM])] for of in found), strict=True)
    )
    return sum(bool(area < own) for area in chance)


def pair_table(found: Mapping[str, Sequence[Pair]], name: str, note: str) -> Table:
    """A row per language (or mean) and pair of orderings: the difference in area."""
    rows = [(language, *pair) for language, pairs in found.items() for pair in pairs]
    adjusted = holm(np.array([row[6] for row in rows], float)) if rows else ()
    return Table(
        name,
        "Difference in area under the curve",
        ("language", "ordering", "minus", "difference, points", "low, points", "high, points", "p", "p (Holm)",
         "random orders below"),
        ("", "", "", "+.1f", "+.1f", "+.1f", ".4f", ".4f", "d"),
        tuple((*row[:7], float(p), row[7]) for row, p in zip(rows, adjusted, strict=True)),
        (note,),
    )  # fmt: skip
