"""How far rows of noisy values agree, beside how far their noise lets them, and which row stands apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headlab.records import Bools, Floats
from headlab.stats.ranks import DRAWS, bca, cluster_support, cluster_tree, left_out, resamples, spearman_of_counts

# Below such a ceiling's lower end the noise decides what a correlation is.
LOWEST_CEILING = 0.5


class Estimate(NamedTuple):
    """Values with the interval around each; three arrays of one shape."""

    value: Floats
    low: Floats
    high: Floats


class Outlier(NamedTuple):
    """The row that agrees least with the others.

    row, next: the lowest and the second lowest mean correlation.  share: [row] of resamples in which each row is
    the lowest.  gap: mean correlation of `next` minus that of `row`, with its interval.
    """

    row: int
    next: int
    share: Floats
    gap: Estimate


@dataclass(frozen=True)
class Noise:
    """What noise leaves to be seen of the correlations; NaN where a row has no halves.

    reliability: [row], expected rank correlation with a second measurement of the same size.  ceiling: [row,
    row], what two rows that rank alike would correlate.  corrected: [row, row], correlation over ceiling.  across:
    [row, row], the same from halves of other draws only, which share no noise; NaN where the halves of two rows do
    not match.  clear: bool [row, row], whether the ceiling is surely above LOWEST_CEILING.  outlier: by `across`;
    None unless all are clear and known.
    """

    reliability: Estimate
    ceiling: Estimate
    corrected: Estimate
    across: Estimate
    clear: Bools
    outlier: Outlier | None


@dataclass(frozen=True)
class Agreement:
    """Rank correlations of rows.

    rho: [row, row].  mean: [row], mean correlation with the other rows.  tree: [merge, 4], average linkage on
    1 - rho, with the share of resamples that have each cluster too.  outlier: None of fewer than three rows.
    """

    rho: Estimate
    mean: Estimate
    tree: Floats
    support: Floats
    outlier: Outlier | None
    noise: Noise | None


def stepped_up(half: Floats) -> Floats:
    """Reliability of the whole from the correlation of its halves, in [0, 1] (Spearman 1910; Brown 1910).

    2 r / (1 + r), and 0 where the halves do not agree at all.
    """
    return np.asarray(np.clip(2 * half / np.maximum(1 + half, 1e-9), 0.0, 1.0))


def noise_ceiling(reliability: Floats) -> Floats:
    """What two rows of the same true ranks would correlate: sqrt(r_a r_b) of every pair (Spearman 1904).

    reliability: float [..., row] -> float [..., row, row], 1 on the diagonal.
    """
    ceiling = np.sqrt(reliability[..., :, None] * reliability[..., None, :])
    rows = np.arange(reliability.shape[-1])
    ceiling[..., rows, rows] = 1.0
    return np.asarray(ceiling)


class _Draws(NamedTuple):
    """A statistic of the data [1, ...], of its resamples [draw, ...] and without each item [item, ...]."""

    point: Floats
    resampled: Floats
    without: Floats

    def of(self, statistic: Callable[[Floats], Floats]) -> _Draws:
        return _Draws(*map(statistic, self))

    def estimate(self, level: float) -> Estimate:
        return Estimate(self.point[0], *bca(self.point[0], self.resampled, self.without, level))


def reliability(halves: Floats, rng: np.random.Generator, draws: int = DRAWS, level: float = 0.95) -> Estimate:
    """How well rows would rank their items again: Spearman's rho of two halves, stepped up to full length.

    halves: float [row, half, item], values from each half of the examples alone.  Noise is that of which examples
    and which samples there were.  Returns [row]; NaN where halves are.
    """
    rows, _, items = halves.shape
    return _correlations(halves.reshape(2 * rows, items), rng, draws).of(_own).of(stepped_up).estimate(level)


def agreement(
    values: Floats,
    halves: Floats | None,
    rng: np.random.Generator,
    draws: int = DRAWS,
    level: float = 0.95,
    *,
    matched: Bools | None = None,
) -> Agreement:
    """Everything about the agreement of rows, with intervals by resampling items.

    values: float [row, item].  halves: float [row, half, item], NaN where a row has none; None where no row has.
    matched: bool [row, row], whether the first half of one row and the second of the other have no draw in common;
    None if all are such.
    """
    rows = len(values)
    matched = np.ones((rows, rows), bool) if matched is None else matched | np.eye(rows, dtype=bool)
    every = values if halves is None else np.concatenate([values, halves.reshape(2 * rows, -1)])
    found = _correlations(every, rng, draws)
    rho = found.of(lambda part: part[:, :rows, :rows])
    tree = cluster_tree(rho.point[0])
    return Agreement(
        rho.estimate(level),
        rho.of(_mean_to_others).estimate(level),
        tree,
        cluster_support(tree, rho.resampled),
        _outlier(rho, level),
        None if halves is None else _noise(rho, found.of(lambda part: part[:, rows:, rows:]), matched, level),
    )


def _correlations(values: Floats, rng: np.random.Generator, draws: int) -> _Draws:
    """Correlations of all rows, [..., row, row]; NaN in the data where a row has no differences."""
    items = values.shape[1]
    counts = (np.ones((1, items), np.int64), resamples(items, rng, draws), left_out(items))
    found = _Draws(*(spearman_of_counts(values, drawn) for drawn in counts))
    lacking = np.isnan(values).any(axis=1) | (values == values[:, :1]).all(axis=1)
    found.point[0, (lacking[:, None] | lacking) & ~np.eye(len(values), dtype=bool)] = np.nan
    return found


def _own(of_halves: Floats) -> Floats:
    """Correlation of each row's two halves, [..., row], among those of all halves [..., 2 row, 2 row]."""
    first = np.arange(0, of_halves.shape[-1], 2)
    return np.asarray(of_halves[..., first, first + 1])


def _across(of_halves: Floats) -> Floats:
    """Correlation of one row's half with the other row's other half, over that of equal ranks: [..., row, row].

    Matched halves are of other examples and draws, so what two rows share by chance is in neither.
    """
    mean = (of_halves[..., ::2, 1::2] + of_halves[..., 1::2, ::2]) / 2
    return _over(mean, noise_ceiling(np.maximum(_own(of_halves), 0)))


def _over(rho: Floats, ceiling: Floats) -> Floats:
    """Correlation over ceiling, in [-1, 1], 1 on the diagonal; NaN where the ceiling is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        out = np.where(ceiling > 0, np.clip(rho / ceiling, -1, 1), np.nan)
    rows = np.arange(rho.shape[-1])
    out[..., rows, rows] = 1.0
    return np.asarray(out)


def _mean_to_others(rho: Floats) -> Floats:
    """Mean correlation of each row with the others, [..., row]; 0 stands where there is none."""
    return np.asarray((np.nan_to_num(rho).sum(axis=-1) - 1) / max(1, rho.shape[-1] - 1))


def _outlier(rho: _Draws, level: float) -> Outlier | None:
    mean = rho.of(_mean_to_others)
    rows = mean.point.shape[1]
    if rows < 3 or np.isnan(rho.point).any():
        return None
    lowest, second = (int(row) for row in np.argsort(mean.point[0], kind="stable")[:2])
    gap = mean.of(lambda part: part[:, second] - part[:, lowest]).estimate(level)
    share = np.bincount(mean.resampled.argmin(axis=1), minlength=rows) / len(mean.resampled)
    return Outlier(lowest, second, share, gap)


def _noise(rho: _Draws, of_halves: _Draws, matched: Bools, level: float) -> Noise:
    whole = of_halves.of(_own).of(stepped_up)
    ceiling = whole.of(noise_ceiling)
    across = of_halves.of(_across).of(lambda part: np.where(matched, part, np.nan))
    bounds = ceiling.estimate(level)
    clear = np.asarray(bounds.low > LOWEST_CEILING)
    corrected = _Draws(*(_over(r, c) for r, c in zip(rho, ceiling, strict=True)))
    return Noise(
        whole.estimate(level),
        bounds,
        _filled(corrected).estimate(level),
        _filled(across).estimate(level),
        clear,
        _outlier(_filled(across), level) if clear.all() else None,
    )


def _filled(draws: _Draws) -> _Draws:
    """Resamples without any agreement between halves say nothing of the rest: the data's value stands for them."""
    point = np.nan_to_num(draws.point)
    return _Draws(draws.point, *(np.where(np.isnan(part), point, part) for part in draws[1:]))
