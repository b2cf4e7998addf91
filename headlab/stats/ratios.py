"""Shares of answers that come in sentences: ratios of sums, with the sentence as the cluster.

Of sentence s: h_s hits among n_s answers, of which c_s were to be expected by chance. Only sums over sentences are
kept, so memory does not grow with them, and sums of parts add up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import beta, t

from headlab.records import Floats

# What is summed over sentences that were asked: 1, h, n, c and their products.
TERMS = ("1", "h", "n", "c", "hh", "hn", "nn", "hc", "nc", "cc")


class Ratio(NamedTuple):
    """A share and its interval, each float [...] in 0..1; NaN where nothing was asked."""

    share: Floats
    low: Floats
    high: Floats


class Excess(NamedTuple):
    """Share minus chance with its interval, and a one-sided p-value of "no more than chance"; each float [...]."""

    difference: Floats
    low: Floats
    high: Floats
    p: Floats


def ratio_sums(hits: Floats, asked: Floats, chance: Floats) -> Floats:
    """The sums of some sentences, float [..., TERMS].

    hits: [..., sentence].  asked, chance: [sentence].  A sentence that was asked nothing does not count.
    """
    there = asked > 0
    h, n, c = hits[..., there], asked[there], chance[there]
    same = (len(n), n.sum(), c.sum(), (n * n).sum(), (n * c).sum(), (c * c).sum())
    own = (h.sum(axis=-1), (h * h).sum(axis=-1), (h * n).sum(axis=-1), (h * c).sum(axis=-1))
    count, sn, sc, snn, snc, scc = (np.broadcast_to(np.float64(value), own[0].shape) for value in same)
    sh, shh, shn, shc = own
    return np.stack([count, sh, sn, sc, shh, shn, snn, shc, snc, scc], axis=-1)


def ratio_interval(sums: Floats, level: float = 0.95) -> Ratio:
    """Share R = sum h / sum n, between the Clopper-Pearson bounds of its effective sample size.

    The linearised variance is v = S / (S - 1) * sum (h_s - R n_s)^2 / (sum n)^2 over S sentences (Cochran 1977,
    chapter 6); R (1 - R) / v answers drawn one by one would have it, and no more than were asked. Where all sentences
    agree (R is 0 or 1) v says nothing, and each counts as one answer. The sample size is reduced for the few degrees
    of freedom, S - 1 (Korn & Graubard 1998, Survey Methodology 24).
    """
    count, h, n, hh, hn, nn = (sums[..., TERMS.index(name)] for name in ("1", "h", "n", "hh", "hn", "nn"))
    tail = (1 - level) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = h / n
        spread = np.maximum(hh - 2 * share * hn + share**2 * nn, 0)
        variance = count / (count - 1) * spread / n**2
        alone = share * (1 - share) / variance
        fewer = (t.ppf(tail, np.maximum(n - 1, 1)) / t.ppf(tail, np.maximum(count - 1, 1))) ** 2
        agree = (h <= 0) | (h >= n) | (count < 2)
        size = np.where(agree, count, np.minimum(alone * fewer, n))
        x = share * size
        low = np.where(x <= 0, 0, beta.ppf(tail, x, size - x + 1))
        high = np.where(x >= size, 1, beta.ppf(1 - tail, x + 1, size - x))
    nothing = n <= 0
    return Ratio(*(np.where(nothing, np.nan, value) for value in (share, low, high)))


def ratio_excess(sums: Floats, level: float = 0.95) -> Excess:
    """How far the share is above chance, (sum h - sum c) / sum n, with a t interval of its linearised variance.

    Two made-up sentences of the mean size are added, one all hits against none by chance and one the other way
    round (after Agresti & Min 2005), so that a few sentences that agree do not make a certainty.
    """
    count, h, n, c, hh, hn, nn, hc, nc, cc = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = n / count
        total, sentences = n + 2 * size, count + 2
        centre = (h - c) / total
        spread = (hh - 2 * hc + cc) - 2 * centre * (hn - nc) + centre**2 * nn + 2 * size**2 * (1 + centre**2)
        error = np.sqrt(sentences / (sentences - 1) * np.maximum(spread, 0)) / total
        width = t.ppf((1 + level) / 2, sentences - 1) * error
        p = t.sf(centre / error, sentences - 1)
        found = ((h - c) / n, np.maximum(centre - width, -1), np.minimum(centre + width, 1), p)
    return Excess(*(np.where(n <= 0, np.nan, value) for value in found))
