"""Screened branching: a gradient predicts gains; uncertain ones are computed, the others only with a probability.

A sample is Y = f + (B / p)(g - f), where g is the gain, f the predicted gain, B whether g is computed, and p the
probability of that. E[Y] = g whatever f and p are, as long as neither depends on B (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from headlab.core import Bools, Floats, Ints

Numbers = TypeVar("Numbers", Ints, Floats)
# Cost of a coalition in forward passes: alone, and with the gradient that predicts its gains.
PASS, FORESIGHT = 1.0, 2.0
# Rows that cost less than this share of a pass are always computed, since their players branch off so late.
FREE = 0.1
# Weight, in rows, of a bin's prior against its own computed rows, and of all groups' pooled rate against one group's.
TRUST = 30.0
# Eagerness to compute gains while only the prior is known, and the values tried later.
FIRST = 4.0
EAGER = tuple(2.0 ** (half / 2) for half in range(-6, 18))
LEAST = 1e-9


@dataclass(frozen=True)
class Scale:
    """Bins of predicted gains, in descending order of expected prediction error.

    edges: [bin - 1], ascending.  prior: [bin], expected mean square of g - f in each bin.
    """

    edges: tuple[float, ...]
    prior: tuple[float, ...]

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.prior)

    def of(self, scores: Floats) -> Ints:
        """The bin of each score; NaN goes to the first bin."""
        return np.digitize(np.nan_to_num(scores, nan=-np.inf), self.edges)


# For accuracy: by how near a toggle is predicted to bring an answer to flipping (`nearness`).
TURNS = Scale(
    (-0.9, -0.7, -0.5, -0.35, -0.2, -0.1, 0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.2, 1.6, 2.2, 3, 4.5, 7, 12, 25, 60),
    (0.9, 0.82, 0.74, 0.67, 0.61, 0.56, 0.52, 0.43, 0.32, 0.22, 0.14, 0.083, 0.045, 0.021, 0.0075, 0.0017,
     2e-4, 6.5e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6),
)  # fmt: skip
# Otherwise: by minus the size of the predicted gain, which may be wrong by half of it.
SIZES = Scale(tuple(-(2.0**-k) for k in range(1, 16)), tuple(4.0 ** -(k + 1) for k in range(1, 17)))


def nearness(level: Floats, moved: Floats) -> Floats:
    """Predicted distance of an answer from flipping, in units of the gradient's likely error; [row, player].

    level: [row], the distance of a margin from 0.  moved: [row, player], the change that the gradient predicts.
    """
    usual = np.sqrt((moved**2).mean(axis=1, keepdims=True))
    return np.asarray((level[:, None] + moved) / (np.abs(moved) + 0.1 * usual + 0.02))


def feasible(foreseen: Floats, value: Floats, kept: Bools) -> Floats:
    """Predicted gains, clipped to the range that the known value of the coalition allows; [row, player].

    value: [row], in [0, 1].  kept: bool [row, player]. A present player gains between value - 1 and value; a
    removed one, between -value and 1 - value. So |Y| is 1 / p at most.
    """
    low = np.where(kept, value[:, None] - 1, -value[:, None])
    return np.clip(np.nan_to_num(foreseen), low, low + 1)


def samples(foreseen: Floats, gains: Floats, halvings: Ints) -> Floats:
    """Y of each row and player. gains: NaN where not computed.  halvings: p is 2 ** -halvings."""
    return np.asarray(foreseen + np.where(np.isnan(gains), 0.0, gains - foreseen) * 2.0**halvings)


def groups(costs: Floats) -> Ints:
    """Groups of players with similar prediction errors, by layer: last, last but one, first quarter, others.

    costs: [player], cost of a row, which falls from layer to layer. Returns int [player].
    """
    levels, layer = np.unique(costs, return_inverse=True)
    early = layer >= max(2, len(levels) - len(levels) // 4)
    return np.asarray(np.where(layer < 2, layer, np.where(early, 2, 3)))


@dataclass(frozen=True)
class Screen:
    """Statistics of predicted and computed gains, and the current probability of computing each gain.

    foreseen, computed: int [bin, player], number of gains in each bin, and of those that were computed.  surprise,
    square: float [bin, player], sums of (g - f)² and g² over the computed ones.  halvings: int [bin, player], the
    probability is 2 ** -halvings.  whole: every gain is computed, without prediction.
    """

    foreseen: Ints
    computed: Ints
    surprise: Floats
    square: Floats
    halvings: Ints
    whole: bool

    @classmethod
    def start(cls, bins: int, players: int) -> Screen:
        """A screen without data, which computes every gain."""
        none, zero = np.zeros((bins, players), np.int64), np.zeros((bins, players))
        return cls(none, none, zero, zero, none, True)

    @classmethod
    def restore(
        cls, saved: Mapping[str, npt.NDArray[np.generic]], bins: int, players: int
    ) -> Screen | None:
        """The screen that `arrays` returned; None if the arrays do not fit."""
        new = cls.start(bins, players).arrays()
        if any(name not in saved or saved[name].shape != new[name].shape for name in new):
            return None
        foreseen, computed, surprise, square, halvings, whole = (
            saved[name].astype(new[name].dtype) for name in new
        )
        return cls(foreseen, computed, surprise, square, halvings, bool(whole))

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """What `restore` needs, in its order."""
        return {f"screen_{name}": np.asarray(value) for name, value in vars(self).items()}

    def add(self, bins: Ints, drawn: Bools, foreseen: Floats, gains: Floats) -> Screen:
        """The screen with more rows, all [row, player]: bins, whether drawn, f, and g (NaN where not computed)."""
        ran = drawn & ~np.isnan(gains)
        return replace(
            self,
            foreseen=_more(self.foreseen, bins, drawn, 1),
            computed=_more(self.computed, bins, ran, 1),
            surprise=_more(self.surprise, bins, ran, (gains - foreseen)[ran] ** 2),
            square=_more(self.square, bins, ran, gains[ran] ** 2),
        )

    def chosen(self, scale: Scale, costs: Floats, active: Bools, most: int, slack: float) -> Screen:
        """The screen with the probabilities that minimise variance times cost for the data so far.

        costs: [player], of a row, in passes.  active: bool [player], players still sampled.  most: maximum number of
        halvings.  slack: added to the variance of a gain, for the samples an interval needs whatever their variance.
        """
        group = groups(costs)
        surprise, square = (
            self._rate(sums, scale.prior, group) for sums in (self.surprise, self.square)
        )
        rows = self.foreseen[:, active]
        if not rows.any():
            return replace(self, halvings=_halvings(FIRST, surprise, costs, most), whole=False)
        e, g2, cost = surprise[:, active], square[:, active], costs[None, active]
        draws = rows.sum() / active.sum()
        least = (rows * (g2 + slack)).sum()
        best, found = least * (draws * PASS + (rows * cost).sum()), replace(self, whole=True)
        for eagerness in EAGER:
            halvings = _halvings(eagerness, surprise, costs, most)
            odds = 2.0 ** -halvings[:, active]
            variance = least + (rows * e * (1 / odds - 1)).sum()
            work = variance * (draws * FORESIGHT + (rows * odds * cost).sum())
            if work < best:
                best, found = work, replace(self, halvings=halvings, whole=False)
        return found

    def _rate(self, sums: Floats, prior: Sequence[float], group: Ints) -> Floats:
        """Mean of the summed quantity by bin and group, [bin, player]; shrunk to the prior where data are few."""
        whole, count = sums.sum(axis=1), self.computed.sum(axis=1)
        pooled = (whole + TRUST * np.array(prior)) / (count + TRUST)
        pooled = np.maximum.accumulate(pooled[::-1])[
            ::-1
        ]  # a bin's error is no smaller than that of the bins after it
        out = np.empty_like(sums)
        for number in np.unique(group):
            mine = group == number
            own, of = sums[:, mine].sum(axis=1), self.computed[:, mine].sum(axis=1)
            out[:, mine] = ((own + TRUST * pooled) / (of + TRUST))[:, None]
        return out


def _more(sums: Numbers, bins: Ints, rows: Bools, what: Floats | float) -> Numbers:
    """Sums [bin, player] plus these rows; added row by row, so that the result does not depend on the batching."""
    row, player = np.nonzero(rows)
    total = sums.copy()
    np.add.at(total, (bins[row, player], player), what)
    return total


def _halvings(eagerness: float, surprise: Floats, costs: Floats, most: int) -> Ints:
    """Probabilities proportional to the square root of surprise over cost, as halvings, [bin, player]."""
    odds = np.clip(eagerness * np.sqrt(surprise / costs), LEAST, 1)
    found = np.minimum(np.floor(-np.log2(odds)).astype(np.int64), most)
    return np.where(costs < FREE, 0, found)
