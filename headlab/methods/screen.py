"""Screened branching: a gradient predicts gains.

Uncertain ones are computed, the others only with a probability.

A sample is Y = f + (B / p)(g - f), where g is the gain, f the predicted gain, B whether g is
computed, and p the probability of that. E[Y] = g whatever f and p are, as long as neither depends
on B (docs/statistics.md).
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
PASS_COST = 1.0
FORESEEN_PASS_COST = 2.0
# Rows that cost less than this share of a pass are always computed, since their players branch off
# so late.
ALWAYS_COMPUTED_COST = 0.1
# Weight, in rows, of a bin's prior against its own computed rows, and of all groups' pooled rate
# against one group's.
PRIOR_ROWS = 30.0
# Eagerness to compute gains while only the prior is known, and the values tried later.
FIRST_EAGERNESS = 4.0
EAGERNESSES = tuple(2.0 ** (half_power / 2) for half_power in range(-6, 18))
MIN_PROBABILITY = 1e-9


@dataclass(frozen=True)
class Scale:
    """Bins of predicted gains, in descending order of expected prediction error.

    Attributes:
        edges: Between the bins, ascending, [bin - 1].
        prior: Expected mean square of g - f in each bin, [bin].
        of_sizes: Whether gains themselves are predicted, not only how likely they are.
    """

    edges: tuple[float, ...]
    prior: tuple[float, ...]
    of_sizes: bool = False

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.prior)

    def bins_of(self, scores: Floats) -> Ints:
        """The bin of each score; NaN goes to the first bin."""
        return np.digitize(np.nan_to_num(scores, nan=-np.inf), self.edges)


# For accuracy: by how near a toggle is predicted to bring an answer to flipping (`nearness`).
NEARNESS_SCALE = Scale(
    (-0.9, -0.7, -0.5, -0.35, -0.2, -0.1, 0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.2, 1.6, 2.2, 3, 4.5, 7, 12, 25, 60),
    (0.9, 0.82, 0.74, 0.67, 0.61, 0.56, 0.52, 0.43, 0.32, 0.22, 0.14, 0.083, 0.045, 0.021, 0.0075, 0.0017,
     2e-4, 6.5e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6),
)  # fmt: skip
# Otherwise: by minus the size of the predicted gain, which may be wrong by half of it.
SIZE_SCALE = Scale(
    tuple(-(2.0**-k) for k in range(1, 16)),
    tuple(4.0 ** -(k + 1) for k in range(1, 17)),
    of_sizes=True,
)


def nearness(level: Floats, change: Floats) -> Floats:
    """Predicted distance of an answer from flipping, [row, player].

    Its unit is the gradient's likely error.

    Args:
        level: Distance of the margin from 0, [row].
        change: Change of the margin that the gradient predicts, [row, player].
    """
    typical_change = np.sqrt((change**2).mean(axis=1, keepdims=True))
    likely_error = np.abs(change) + 0.1 * typical_change + 0.02
    return np.asarray((level[:, None] + change) / likely_error)


def feasible(foreseen: Floats, value: Floats, kept: Bools) -> Floats:
    """Predicted gains, clipped to the range that the known value of the coalition allows.

    A present player gains between value - 1 and value; a removed one, between -value and 1 - value.
    So |Y| is 1 / p at most.

    Args:
        foreseen: Predicted gains, [row, player].
        value: Value of the coalition, in [0, 1], [row].
        kept: The players that are present, bool [row, player].

    Returns:
        float [row, player].
    """
    low = np.where(kept, value[:, None] - 1, -value[:, None])
    return np.clip(np.nan_to_num(foreseen), low, low + 1)


def weighted_samples(foreseen: Floats, gains: Floats, halvings: Ints) -> Floats:
    """The sample Y of each row and player.

    Args:
        foreseen: Predicted gains.
        gains: Computed gains; NaN where none is computed.
        halvings: The probability of computing a gain is 2 ** -halvings.
    """
    surprise = np.where(np.isnan(gains), 0.0, gains - foreseen)
    return np.asarray(foreseen + surprise * 2.0**halvings)


def player_groups(costs: Floats) -> Ints:
    """Groups of players with similar prediction errors, by layer, int [player].

    They are those of the last layer, of the last but one, of the first quarter, and the others.

    Args:
        costs: Cost of a player's row, which falls from layer to layer, [player].
    """
    levels, from_last = np.unique(costs, return_inverse=True)  # 0 is the last layer
    is_early = from_last >= max(2, len(levels) - len(levels) // 4)
    return np.asarray(np.where(from_last < 2, from_last, np.where(is_early, 2, 3)))


@dataclass(frozen=True)
class Screen:
    """Statistics of predicted and computed gains, and the probability of computing each gain.

    The probability is the current one.

    Attributes:
        foreseen: Number of gains in each bin, int [bin, player].
        computed: Number of those that were computed, int [bin, player].
        surprise: Sum of (g - f)² over the computed ones, float [bin, player].
        square: Sum of g² over the computed ones, float [bin, player].
        halvings: The probability of computing a gain is 2 ** -halvings, int [bin, player].
        whole: Whether every gain is computed, without prediction.
        largest: Size of the largest gain that was computed so far.
        limit: The same when the probabilities were chosen: no larger gain is predicted until they
            are chosen again. A gradient may foresee gains far beyond any that there is.
    """

    foreseen: Ints
    computed: Ints
    surprise: Floats
    square: Floats
    halvings: Ints
    whole: bool
    largest: float = 0.0
    limit: float = 1.0

    @classmethod
    def start(cls, bins: int, players: int) -> Screen:
        """A screen without data, which computes every gain."""
        no_counts = np.zeros((bins, players), np.int64)
        no_sums = np.zeros((bins, players))
        return cls(no_counts, no_counts, no_sums, no_sums, no_counts, True)

    @classmethod
    def restore(
        cls, saved: Mapping[str, npt.NDArray[np.generic]], bins: int, players: int
    ) -> Screen | None:
        """The screen that `arrays` returned; None if the arrays do not fit."""
        empty = cls.start(bins, players).arrays()
        later_arrays = {name: empty[name] for name in ("screen_largest", "screen_limit")}
        if not later_arrays.keys() & saved.keys():  # of a run of an earlier version
            saved = {**later_arrays, **saved}
        if any(name not in saved or saved[name].shape != empty[name].shape for name in empty):
            return None
        foreseen, computed, surprise, square, halvings, whole, largest, limit = (
            saved[name].astype(empty[name].dtype) for name in empty
        )
        return cls(
            foreseen,
            computed,
            surprise,
            square,
            halvings,
            bool(whole),
            float(largest),
            float(limit),
        )

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """What `restore` needs, in its order."""
        return {f"screen_{name}": np.asarray(value) for name, value in vars(self).items()}

    def add(self, bins: Ints, is_drawn: Bools, foreseen: Floats, gains: Floats) -> Screen:
        """The screen with the gains of more rows.

        Args:
            bins: The bin of each gain, int [row, player].
            is_drawn: Whether there is a gain, bool [row, player].
            foreseen: Predicted gains f, float [row, player].
            gains: Computed gains g, float [row, player]; NaN where none is computed.
        """
        is_computed = is_drawn & ~np.isnan(gains)
        sizes = np.abs(gains[is_computed])
        surprise = (gains - foreseen)[is_computed]
        return replace(
            self,
            foreseen=_with_rows(self.foreseen, bins, is_drawn, 1),
            computed=_with_rows(self.computed, bins, is_computed, 1),
            surprise=_with_rows(self.surprise, bins, is_computed, surprise**2),
            square=_with_rows(self.square, bins, is_computed, gains[is_computed] ** 2),
            largest=max(self.largest, float(sizes.max(initial=0.0))),
        )

    def with_best_probabilities(
        self, scale: Scale, costs: Floats, active: Bools, max_halvings: int, slack: float
    ) -> Screen:
        """The screen with the probabilities that minimise variance times cost for the data so far.

        Args:
            scale: The bins.
            costs: Cost of a player's row, in passes, [player].
            active: The players that are still sampled, bool [player].
            max_halvings: Maximum number of halvings of a probability.
            slack: Added to the variance of a gain, for the samples that an interval needs whatever
                their variance.
        """
        group = player_groups(costs)
        surprise = self._rate(self.surprise, scale.prior, group)
        square = self._rate(self.square, scale.prior, group)
        rows = self.foreseen[:, active]
        if not rows.any():
            halvings = _halvings(FIRST_EAGERNESS, surprise, costs, max_halvings)
            return replace(self, halvings=halvings, whole=False)
        mean_surprise = surprise[:, active]
        mean_square = square[:, active]
        row_cost = costs[None, active]
        draws = rows.sum() / active.sum()
        least_variance = (rows * (mean_square + slack)).sum()
        least_work = least_variance * (draws * PASS_COST + (rows * row_cost).sum())
        best_screen = replace(self, whole=True, limit=min(self.largest, 1.0))
        for eagerness in EAGERNESSES:
            halvings = _halvings(eagerness, surprise, costs, max_halvings)
            probability = 2.0 ** -halvings[:, active]
            variance = least_variance + (rows * mean_surprise * (1 / probability - 1)).sum()
            passes = draws * FORESEEN_PASS_COST + (rows * probability * row_cost).sum()
            if variance * passes < least_work:
                least_work = variance * passes
                best_screen = replace(best_screen, halvings=halvings, whole=False)
        return best_screen

    def expected_squares(self) -> Floats | None:
        """Mean square of each player's gains, as foreseen by how its gains fall into the bins.

        It depends little on the gains that the player itself happened to have, so that it says
        how far off a mean is without leaning on the mean. None where nothing was foreseen.

        Returns:
            float [player].
        """
        gains_foreseen = self.foreseen.sum(axis=0)
        if not gains_foreseen.all():
            return None
        squares = self.square.sum(axis=1)
        computed = self.computed.sum(axis=1)
        usual_square = squares.sum() / max(computed.sum(), 1)
        bin_squares = (squares + usual_square) / (computed + 1)
        return np.asarray(bin_squares @ self.foreseen / gains_foreseen)

    def _rate(self, sums: Floats, prior: Sequence[float], group: Ints) -> Floats:
        """Mean of the summed quantity by bin and group, [bin, player].

        It is shrunk to the prior where data are few.
        """
        bin_sums = sums.sum(axis=1)
        bin_counts = self.computed.sum(axis=1)
        bin_rates = (bin_sums + PRIOR_ROWS * np.array(prior)) / (bin_counts + PRIOR_ROWS)
        # A bin's error is no smaller than that of the bins after it.
        pooled_rates = np.maximum.accumulate(bin_rates[::-1])[::-1]
        rates = np.empty_like(sums)
        for number in np.unique(group):
            in_group = group == number
            group_sums = sums[:, in_group].sum(axis=1)
            group_counts = self.computed[:, in_group].sum(axis=1)
            group_rates = (group_sums + PRIOR_ROWS * pooled_rates) / (group_counts + PRIOR_ROWS)
            rates[:, in_group] = group_rates[:, None]
        return rates


def _with_rows(sums: Numbers, bins: Ints, rows: Bools, addends: Floats | float) -> Numbers:
    """Sums plus some rows, [bin, player].

    They are added row by row, so that the result does not depend on the batching.
    """
    row, player = np.nonzero(rows)
    total = sums.copy()
    np.add.at(total, (bins[row, player], player), addends)
    return total


def _halvings(eagerness: float, surprise: Floats, costs: Floats, max_halvings: int) -> Ints:
    """Probabilities of computing a gain, as halvings, int [bin, player].

    They are proportional to the square root of surprise over cost.
    """
    probability = np.clip(eagerness * np.sqrt(surprise / costs), MIN_PROBABILITY, 1)
    halvings = np.minimum(np.floor(-np.log2(probability)).astype(np.int64), max_halvings)
    return np.where(costs < ALWAYS_COMPUTED_COST, 0, halvings)
