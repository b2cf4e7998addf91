"""Intervals by resampling groups of examples, ratios of counts, and p-values of many tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from headlab.core import Bools, Floats, Ints

# Intervals by resampling whole groups of examples, and their p-values.

DRAWS = 10_000
# One bin of a multinomial costs as much as picking this many groups one by one
# (benchmarks/bootstrap.py).
BIN_PICKS = 24
PICKS_AT_ONCE = 1 << 17  # groups picked at once: as many as fit in a CPU's cache
# Digits to which resamples are rounded before they are compared with 0, so that sums that cancel
# give exactly 0.
DIGITS = 12


class Bootstrap(NamedTuple):
    """Interval for a mean, and a two-sided p-value of "the mean is 0"; each float [row]."""

    low: Floats
    high: Floats
    p: Floats


def group_bootstrap(
    values: Floats,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    *,
    pseudo_values: tuple[float, float] = (1.0, -1.0),
    draws: int = DRAWS,
    level: float = 0.95,
    answers: Ints | None = None,
) -> Bootstrap:
    """Percentile intervals for the means of several rows, by resampling whole groups of examples.

    Args:
        values: float [row, example].
        groups: label [example]; examples of one group are drawn together.
        pseudo_values: Two values added to the pool as pseudo-examples, so that rows without any
            difference do not get an interval of length 0 (after Agresti & Min 2005).
        answers: int [example], of which `values` are the sums, and the result is their mean; by
            default one each.
    """
    return bootstrap_summary(
        resampled_means(
            values, groups, rng, pseudo_values=pseudo_values, draws=draws, answers=answers
        ),
        level,
    )


def stratified_bootstrap(
    strata: Sequence[tuple[Floats, tuple[str, ...]]],
    rng: np.random.Generator,
    *,
    pseudo_values: tuple[float, float] = (1.0, -1.0),
    draws: int = DRAWS,
    level: float = 0.95,
) -> Bootstrap:
    """Percentile intervals for the mean over strata of their means.

    Each stratum is resampled separately. Strata have equal weight; each keeps its size, and has its
    own pseudo-examples and its own stream of `rng`. The rest is as in `group_bootstrap`, which
    gives the same result for one stratum.

    Args:
        strata: values [row, example] and groups [example] of each, all with the same rows.
    """
    means_of_strata = [
        resampled_means(values, groups, rng, pseudo_values=pseudo_values, draws=draws)
        for values, groups in strata
    ]
    return bootstrap_summary(np.mean(means_of_strata, axis=0), level)


def resampled_means(
    values: Floats,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    *,
    pseudo_values: tuple[float, float],
    draws: int,
    answers: Ints | None = None,
    pseudo_answers: float = 1.0,
) -> Floats:
    """Means of resamples of whole groups, float [row, draw].

    Groups without answers are left out where a resample would otherwise be of such groups alone.

    Args:
        values: As in `group_bootstrap`, like `groups`, `rng` and `answers`.
        groups: Label of each example.
        rng: Of the draws.
        pseudo_values: The mean of the answers of each pseudo-example, a group of its own.
        draws: Number of resamples.
        answers: Number of answers of each example.
        pseudo_answers: Number of answers of each pseudo-example.
    """
    _, group_indices = np.unique(np.array(groups), return_inverse=True)
    group_sizes = np.bincount(group_indices, answers)
    sizes = np.append(group_sizes, [pseudo_answers, pseudo_answers]).astype(np.float64)
    pseudo_sums = pseudo_answers * np.array(pseudo_values, dtype=np.float64)
    sums: list[Floats] = []
    for row in values:
        group_sums = np.bincount(group_indices, row, minlength=len(group_sizes))
        sums.append(np.append(group_sums, pseudo_sums))
    seed = int(rng.integers(2**63))
    with np.errstate(invalid="ignore"):
        means = np.array(_means_of_resamples(sums, sizes, seed, draws))
    if np.isnan(means).any():
        has_answers = sizes > 0
        means = np.array(
            _means_of_resamples([row[has_answers] for row in sums], sizes[has_answers], seed, draws)
        )
    return means


def bootstrap_summary(resampled_statistics: Floats, level: float) -> Bootstrap:
    """Interval and two-sided p of resampled means, or other statistics, float [row, draw]."""
    rows = np.round(resampled_statistics, DIGITS)
    draws = resampled_statistics.shape[1]
    shares = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.array([np.quantile(row, shares) for row in rows]).T
    tail_counts = np.array([1 + min((row <= 0).sum(), (row >= 0).sum()) for row in rows])
    return Bootstrap(low, high, np.minimum(1.0, 2 * tail_counts / (draws + 1)))


def _means_of_resamples(
    sums: Sequence[Floats], sizes: Floats, seed: int, draws: int
) -> list[Floats]:
    """Means of each row over resamples of as many groups, float [draw] for every row.

    Groups with the same sum and size are interchangeable, so the number drawn of each kind is
    multinomial: the same distribution, at a cost that does not grow with the number of groups. Rows
    with too many kinds pick groups instead.

    Args:
        sums: float [group] of each row.
        sizes: float [group], the number of answers of each group.
        seed: Seed of the draws, the same for every row.
        draws: Number of resamples.
    """
    kinds_of_rows = [np.unique(row + 1j * sizes, return_counts=True) for row in sums]
    rows_to_pick = [
        index
        for index, (kinds, _) in enumerate(kinds_of_rows)
        if len(kinds) * BIN_PICKS > len(sizes)
    ]
    picked_means: dict[int, Floats] = {}
    if rows_to_pick:
        columns = np.stack([*(sums[index] for index in rows_to_pick), sizes], axis=1)
        *picked_sums, picked_sizes = resampled_sums(columns, seed, draws)
        for index, row_sums in zip(rows_to_pick, picked_sums, strict=True):
            picked_means[index] = row_sums / picked_sizes
    return [
        picked_means[index]
        if index in picked_means
        else _means_of_counted_kinds(kinds, groups_of_kind, seed, draws)
        for index, (kinds, groups_of_kind) in enumerate(kinds_of_rows)
    ]


def _means_of_counted_kinds(kinds: Any, groups_of_kind: Ints, seed: int, draws: int) -> Floats:
    """Means of resamples [draw] of groups of a few kinds, each encoded as sum + i size."""
    groups = int(groups_of_kind.sum())
    rng = np.random.default_rng(seed)
    drawn_counts = rng.multinomial(groups, groups_of_kind / groups, size=draws).astype(np.float64)
    return np.asarray((drawn_counts @ kinds.real) / (drawn_counts @ kinds.imag))


def resampled_sums(columns: Floats, seed: int | Sequence[int], draws: int) -> Floats:
    """Sums of columns [group, column] over resamples of as many groups, float [column, draw]."""
    groups, column_count = columns.shape
    rng = np.random.default_rng(seed)
    sums = np.empty((column_count, draws))
    draws_at_once = max(1, PICKS_AT_ONCE // groups)
    for start in range(0, draws, draws_at_once):
        picked_groups = rng.integers(groups, size=(min(draws_at_once, draws - start), groups))
        # One bin for every draw and group.
        bins = picked_groups + groups * np.arange(len(picked_groups))[:, None]
        times_picked = np.bincount(bins.ravel(), minlength=bins.size).reshape(bins.shape)
        sums[:, start : start + draws_at_once] = (times_picked.astype(np.float64) @ columns).T
    return sums


class PairedDifference(NamedTuple):
    """Mean paired difference, its interval, and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    values_before: Bools | Floats,
    values_after: Bools | Floats,
    groups: tuple[str, ...],
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> PairedDifference:
    """Difference in accuracy on the same examples, by resampling whole groups (Koehn 2004).

    Args:
        values_before: [example], right or wrong, or a value in [0, 1].
        values_after: [example], the same afterwards.
        groups: As in `group_bootstrap`.
        rng: As in `group_bootstrap`.
        draws: As in `group_bootstrap`.
    """
    gain = values_after.astype(np.float64) - values_before.astype(np.float64)
    low, high, p = group_bootstrap(gain[None], groups, rng, draws=draws)
    return PairedDifference(float(gain.mean()), float(low[0]), float(high[0]), float(p[0]))


def share_interval(
    correct: Bools, groups: tuple[str, ...], rng: np.random.Generator
) -> tuple[float, float]:
    """95 % interval for an accuracy, (low, high), by resampling whole groups.

    One right and one wrong pseudo-example are added.

    Args:
        correct: Whether each answer is right, bool [example].
        groups: As in `group_bootstrap`.
        rng: As in `group_bootstrap`.
    """
    low, high, _ = group_bootstrap(
        correct[None].astype(np.float64), groups, rng, pseudo_values=(1.0, 0.0)
    )
    return float(low[0]), float(high[0])


# Means of sizes, such as those of gradients: leaving out one group of examples at a time.

MIN_GROUPS = 8  # groups below which there is no interval: the error is not known well enough


def jackknife_interval(
    sums: Floats,
    weights: Floats,
    groups: Sequence[str],
    statistic: Callable[[Floats], Floats] = np.asarray,
    level: float = 0.95,
    upper_limit: float = np.inf,
) -> tuple[Floats, Floats] | None:
    """Lower and upper bounds of `statistic(sum of sums / sum of weights)`, float [item] each.

    None where there are fewer than `MIN_GROUPS` groups.

    The variance is the delete-one jackknife's (Efron & Tibshirani 1993, equation 11.5), and the
    interval is a t interval of the logarithm, exp(log value ± t · error / value): sizes are skewed,
    so the same on their own scale would reach below 0 and miss above.

    Args:
        sums: float [example, item], none below 0.
        weights: float [example, item], none below 0; an example without any weight is not there.
        groups: label [example]; examples of one group are left out together.
        statistic: Statistic of the ratios [item], which gives as many numbers that are not below 0.
        upper_limit: The upper bounds are at most this.
    """
    has_weight = weights.any(axis=1)
    group_names, group_indices = np.unique(np.asarray(groups)[has_weight], return_inverse=True)
    if len(group_names) < MIN_GROUPS:
        return None
    group_totals = np.zeros((len(group_names), 2, sums.shape[1]))  # sums and weights of each group
    np.add.at(group_totals, group_indices, np.stack([sums, weights], axis=1)[has_weight])
    total_sums, total_weights = group_totals.sum(axis=0)
    value = statistic(total_sums / total_weights)
    leave_one_out = np.array(
        [
            statistic((total_sums - group_sums) / (total_weights - group_weights))
            for group_sums, group_weights in group_totals
        ]
    )
    error = np.sqrt((len(group_names) - 1) * leave_one_out.var(axis=0))
    relative_error = np.divide(error, value, out=np.zeros_like(error), where=value > 0)
    log_half_width = scipy.stats.t.ppf((1 + level) / 2, len(group_names) - 1) * relative_error
    return value * np.exp(-log_half_width), np.minimum(value * np.exp(log_half_width), upper_limit)


# Shares of answers that are clustered by sentence: ratios of sums, with the sentence as the
# cluster.

# Terms summed over sentences with answers: 1, h (hits), n (answers), c (hits expected by chance)
# and products.
TERMS = ("1", "h", "n", "c", "hh", "hn", "nn", "hc", "nc", "cc")


class ShareWithInterval(NamedTuple):
    """A share and its interval, each float [...] in 0..1; NaN where there are no answers."""

    share: Floats
    low: Floats
    high: Floats


class Excess(NamedTuple):
    """Share minus chance with its interval, and a one-sided p-value; each float [...].

    The p-value is of "no more than chance".
    """

    difference: Floats
    low: Floats
    high: Floats
    p: Floats


def ratio_sums(hits: Floats, answers: Floats, chance: Floats) -> Floats:
    """Sums over some sentences, float [..., TERMS].

    Sentences without answers are omitted.

    Args:
        hits: float [..., sentence], the number of hits.
        answers: float [sentence], the number of answers.
        chance: float [sentence], the number of hits expected by chance.
    """
    has_answers = answers > 0
    h = hits[..., has_answers]
    n = answers[has_answers]
    c = chance[has_answers]
    sums = {
        "1": len(n),
        "h": h.sum(axis=-1),
        "n": n.sum(),
        "c": c.sum(),
        "hh": (h * h).sum(axis=-1),
        "hn": (h * n).sum(axis=-1),
        "nn": (n * n).sum(),
        "hc": (h * c).sum(axis=-1),
        "nc": (n * c).sum(),
        "cc": (c * c).sum(),
    }
    in_order = np.broadcast_arrays(*(sums[name] for name in TERMS))
    return np.stack(in_order, axis=-1).astype(np.float64)


def ratio_interval(sums: Floats, level: float = 0.95) -> ShareWithInterval:
    """Share R = sum h / sum n, between the Clopper-Pearson bounds of its effective sample size.

    The linearised variance is v = S / (S - 1) * sum (h_s - R n_s)^2 / (sum n)^2 over S sentences
    (Cochran 1977, chapter 6); the effective sample size is R (1 - R) / v, the number of independent
    answers with that variance, and at most sum n. Where all sentences agree (R is 0 or 1) v is
    uninformative, and each sentence counts as one answer. The sample size is reduced for the few
    degrees of freedom, S - 1 (Korn & Graubard 1998, Survey Methodology 24).
    """
    sentence_count, h, n, hh, hn, nn = (
        sums[..., TERMS.index(name)] for name in ("1", "h", "n", "hh", "hn", "nn")
    )
    tail_share = (1 - level) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = h / n
        residual_squares = np.maximum(hh - 2 * share * hn + share**2 * nn, 0)
        variance = sentence_count / (sentence_count - 1) * residual_squares / n**2
        independent_answers = share * (1 - share) / variance
        freedom_correction = (
            scipy.stats.t.ppf(tail_share, np.maximum(n - 1, 1))
            / scipy.stats.t.ppf(tail_share, np.maximum(sentence_count - 1, 1))
        ) ** 2
        all_agree = (h <= 0) | (h >= n) | (sentence_count < 2)
        effective_size = np.where(
            all_agree, sentence_count, np.minimum(independent_answers * freedom_correction, n)
        )
        effective_hits = share * effective_size
        low = np.where(
            effective_hits <= 0,
            0,
            scipy.stats.beta.ppf(tail_share, effective_hits, effective_size - effective_hits + 1),
        )
        high = np.where(
            effective_hits >= effective_size,
            1,
            scipy.stats.beta.ppf(
                1 - tail_share, effective_hits + 1, effective_size - effective_hits
            ),
        )
    no_answers = n <= 0
    return ShareWithInterval(*(np.where(no_answers, np.nan, value) for value in (share, low, high)))


def ratio_excess(sums: Floats, level: float = 0.95) -> Excess:
    """How far the share is above chance, (sum h - sum c) / sum n; h, n and c as in `TERMS`.

    The interval is a t interval of its linearised variance. Two pseudo-sentences of the mean size
    are added, one with all hits and none by chance and one the other way round (after Agresti & Min
    2005), so that a few sentences that agree do not give certainty.
    """
    sentence_count, h, n, c, hh, hn, nn, hc, nc, cc = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_answers = n / sentence_count
        pooled_answer_count = n + 2 * mean_answers
        pooled_sentence_count = sentence_count + 2
        centre = (h - c) / pooled_answer_count
        residual_squares = (
            (hh - 2 * hc + cc)
            - 2 * centre * (hn - nc)
            + centre**2 * nn
            + 2 * mean_answers**2 * (1 + centre**2)
        )
        standard_error = (
            np.sqrt(
                pooled_sentence_count
                / (pooled_sentence_count - 1)
                * np.maximum(residual_squares, 0)
            )
            / pooled_answer_count
        )
        half_width = scipy.stats.t.ppf((1 + level) / 2, pooled_sentence_count - 1) * standard_error
        p = scipy.stats.t.sf(centre / standard_error, pooled_sentence_count - 1)
        low = np.maximum(centre - half_width, -1)
        high = np.minimum(centre + half_width, 1)
        difference = (h - c) / n
    no_answers = n <= 0
    return Excess(*(np.where(no_answers, np.nan, value) for value in (difference, low, high, p)))


# p-values of many tests at once.


def holm(p: Floats) -> Floats:
    """Holm's adjusted p-values, which control the family-wise error rate (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted_p = np.empty_like(p)
    adjusted_p[order] = np.minimum(1.0, steps)
    return adjusted_p


def benjamini_hochberg(p: Floats) -> Floats:
    """Benjamini–Hochberg adjusted p-values, which control the false discovery rate (1995)."""
    order = np.argsort(p, kind="stable")[::-1]
    steps = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    adjusted_p = np.empty_like(p)
    adjusted_p[order] = np.minimum(1.0, steps)
    return adjusted_p
