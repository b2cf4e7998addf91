"""Shapley values of heads by the slopes of a smoothed value, without computing a single gain.

A draw is one example under one random coalition, drawn as for `headlab.methods.tmab`. Instead of
each head's gain it takes the slope of the value by the head's gate, which one backward pass gives
for all heads at once. Accuracy is 0 or 1 and has no slope, so it is smoothed first: an answer counts
Phi(margin / bandwidth), the chance that it is right once its margin is blurred (docs/statistics.md).

Shapley values add up to what all heads together are worth, which a few forward passes measure. Mean
slopes do not, as they are steeper or flatter than the steps that they stand for; so all of them are
multiplied by one number that makes them add up, as far as the measurement is sure of it.

They are close to Shapley values then, but they are not Shapley values: the blur, and slopes in the
place of steps, leave a bias that no number of draws removes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from headlab.core import (
    Bools,
    Floats,
    HeadlabError,
    Ints,
    Progress,
    integer_in,
    number_in,
    value_function_of,
)
from headlab.methods.costs import require_encoder
from headlab.methods.game import Game, Query, donor_arguments
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.sampling import Draws, cycled_example, draws_of
from headlab.methods.table import BANDWIDTH_DRAWS, method, worth_examples
from headlab.methods.tmab import removal_sizes
from headlab.methods.work import Arrays, Outcome, Work, final_outcome

UNITS = 2.0**20
"""Slopes are rounded to multiples of 1 / UNITS, so that their sums are the same in every order."""
TOTAL_SQUARE_UNITS = 2.0**16
"""As `UNITS`, for squares of sums over heads, which are large."""
SMALLEST_NOISE = 1e-12
"""Variance that a measured worth and a sum of slopes have at least: of rounding."""
MAX_SLOPE = 2.0**8
"""A slope beyond is no prediction of a gain between -1 and 1, and its square would not be summed
exactly."""
BANDWIDTHS_A_DOUBLING = 4
"""Bandwidths are powers of 2 ** (1 / this), so that rounding in a sum of margins rarely matters."""
DRAWS_AT_ONCE = 128
"""Draws that the game is asked for at once, at least."""
USUAL_DEVIATION_OF_SCALE = 0.3
"""How far from 1 the scale is before anything is measured: standard deviation of its prior."""
LIMITS_OF_SCALE = (0.25, 4.0)
"""Slopes that have to be multiplied by less or more do not foresee what heads do."""


@dataclass(frozen=True)
class SlopePlan:
    """When to stop, and the unit of the values.

    Attributes:
        samples: Number of draws.
        span: Of the value function.
        estimand: Which coalitions count.
        level: Level of the sampling error.
    """

    samples: int
    span: float
    estimand: str
    level: float

    @classmethod
    def of(cls, options: Options) -> SlopePlan:
        """The plan given by the method's options."""
        return cls(
            samples=integer_in(options, "samples"),
            span=value_function_of(str(options["value"])).span,
            estimand=str(options["estimand"]),
            level=float(number_in(options, "level")),
        )


@dataclass(frozen=True)
class SlopeTally:
    """A snapshot: what was measured first, and sums of the slopes so far.

    Attributes:
        sums: Sum of the slopes by half of the examples, in 1 / `UNITS`, int [half, head].
        squares: Sum of their squares, in 1 / `UNITS`, int [head].
        products: Sum of each slope times the sum over the heads of its draw, in 1 / `UNITS`, int
            [head].
        totals: Sum over draws of the sum over heads, in 1 / `UNITS`.
        total_squares: Sum over draws of the squared sum over heads, in 1 / `TOTAL_SQUARE_UNITS`.
        counts: Number of slopes by half of the examples, int [half, head].
        draws: Number of draws.
        bandwidth: In logits; 0 while nothing has been measured.
        worth: What the values of all heads add up to, as a share of the span.
        worth_variance: Its variance over the draws for it.
        plan: When to stop.
    """

    sums: Ints
    squares: Ints
    products: Ints
    totals: int
    total_squares: int
    counts: Ints
    draws: int
    bandwidth: float
    worth: float
    worth_variance: float
    plan: SlopePlan

    @classmethod
    def start(cls, players: int, plan: SlopePlan) -> SlopeTally:
        """Nothing drawn yet."""
        by_half = np.zeros((2, players), np.int64)
        by_head = np.zeros(players, np.int64)
        return cls(by_half, by_head, by_head, 0, 0, by_half, 0, 0.0, 0.0, 0.0, plan)

    @classmethod
    def restore(cls, saved: Arrays, players: int, plan: SlopePlan) -> SlopeTally:
        """The snapshot that an earlier run saved; an empty one if it saved nothing that fits."""
        empty = cls.start(players, plan)
        expected_arrays = empty.arrays()
        for name, expected in expected_arrays.items():
            if name not in saved or saved[name].shape != expected.shape:
                return empty
        return replace(
            empty,
            sums=saved["sums"].astype(np.int64),
            squares=saved["squares"].astype(np.int64),
            products=saved["products"].astype(np.int64),
            totals=int(saved["totals"]),
            total_squares=int(saved["total_squares"]),
            counts=saved["counts"].astype(np.int64),
            draws=int(saved["draws"]),
            bandwidth=float(saved["bandwidth"]),
            worth=float(saved["worth"]),
            worth_variance=float(saved["worth_variance"]),
        )

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        return {
            "sums": self.sums,
            "squares": self.squares,
            "products": self.products,
            "totals": np.array(self.totals),
            "total_squares": np.array(self.total_squares),
            "counts": self.counts,
            "draws": np.array(self.draws),
            "bandwidth": np.array(self.bandwidth),
            "worth": np.array(self.worth),
            "worth_variance": np.array(self.worth_variance),
        }

    def add(self, slopes: Floats, is_measured: Bools, in_second_half: Bools) -> SlopeTally:
        """The tally with more draws.

        Args:
            slopes: As shares of the span, float [draw, head].
            is_measured: Whether a head's slope counts in a draw, bool [draw, head].
            in_second_half: Whether the example of a draw is in the second half, bool [draw].
        """
        measured_slopes = np.where(is_measured, slopes, 0.0)
        # Where not every head is measured, those that are stand for all.
        share_measured = np.maximum(is_measured.sum(axis=1), 1) / is_measured.shape[1]
        totals = measured_slopes.sum(axis=1) / share_measured
        halves = (~in_second_half, in_second_half)
        slopes_in_units = _in_units(measured_slopes)
        return replace(
            self,
            sums=self.sums + np.stack([slopes_in_units[half].sum(axis=0) for half in halves]),
            squares=self.squares + _in_units(measured_slopes**2).sum(axis=0),
            products=self.products + _in_units(measured_slopes * totals[:, None]).sum(axis=0),
            totals=self.totals + int(_in_units(totals).sum()),
            total_squares=self.total_squares + int(_in_units(totals**2, TOTAL_SQUARE_UNITS).sum()),
            counts=self.counts + np.stack([is_measured[half].sum(axis=0) for half in halves]),
            draws=self.draws + len(slopes),
        )

    def mean_slopes(self) -> Floats:
        """Mean slope of each head, a share of the span, float [head]."""
        return np.asarray(self.sums.sum(axis=0) / UNITS / np.maximum(self.counts.sum(axis=0), 1))

    @property
    def scale(self) -> float:
        """The number by which mean slopes are multiplied; NaN where they add up to 0.

        The posterior mean of s, where the worth is s times the sum of the slopes but for the noise
        of both, and s is 1 within `USUAL_DEVIATION_OF_SCALE` before.
        """
        total = float(self.mean_slopes().sum())
        if not total:
            return float("nan")
        prior, precision = self._precisions(total)
        return (prior + precision * total * self.worth) / (prior + precision * total**2)

    @property
    def foresees(self) -> bool:
        """Whether the slopes have to be scaled by so little that they foresee what heads do."""
        low, high = LIMITS_OF_SCALE
        return low <= self.scale <= high

    @property
    def deviation_of_scale(self) -> float:
        """Standard deviation of what is unknown of the scale, as a share of it."""
        total = float(self.mean_slopes().sum())
        prior, precision = self._precisions(total)
        return float((prior + precision * total**2) ** -0.5 / abs(self.scale))

    def _precisions(self, total: float) -> tuple[float, float]:
        """Precision of the scale's prior, and of the worth given the sum of the slopes.

        Args:
            total: The sum of the mean slopes.
        """
        draws = max(self.draws, 1)
        mean_total_square = self.total_squares / TOTAL_SQUARE_UNITS / draws
        mean_total = self.totals / UNITS / draws
        variance_of_total = max(mean_total_square - mean_total**2, 0.0) / max(draws - 1, 1)
        noise = max(self.worth_variance + variance_of_total, SMALLEST_NOISE)
        return USUAL_DEVIATION_OF_SCALE**-2, 1 / noise

    def variance(self) -> Floats:
        """Variance of each head's scaled mean slope, as a share of the span squared, float [head].

        The scale depends on the draws too, through the sum of the slopes and the worth; to the
        first order a draw moves the value by `scale` times the head's slope and by `by_total` times
        the sum of all slopes. The examples' share is counted in, though balanced cycles remove it:
        it is too large rather than too small.
        """
        counts = np.maximum(self.counts.sum(axis=0), 1)
        mean_slopes = self.mean_slopes()
        total = float(mean_slopes.sum())
        scale = self.scale
        prior, precision = self._precisions(total)
        all_precision = prior + precision * total**2
        by_total = mean_slopes * precision * (self.worth - 2 * scale * total) / all_precision
        by_worth = mean_slopes * precision * total / all_precision
        mean_total_square = self.total_squares / TOTAL_SQUARE_UNITS / max(self.draws, 1)
        mean_square_of_move = (
            scale**2 * self.squares / UNITS / counts
            + 2 * scale * by_total * self.products / UNITS / counts
            + by_total**2 * mean_total_square
        )
        mean_move = scale * mean_slopes + by_total * total
        variance_of_moves = np.maximum(mean_square_of_move - mean_move**2, 0.0)
        variance = variance_of_moves / np.maximum(counts - 1, 1)
        return np.asarray(variance + by_worth**2 * self.worth_variance)

    def variance_of_means(self) -> Floats:
        """Variance of each head's mean slope by its own draws, unscaled, float [head].

        As a share of the span squared.
        """
        counts = np.maximum(self.counts.sum(axis=0), 1)
        mean_squares = self.squares / UNITS / counts
        variances = np.maximum(mean_squares - self.mean_slopes() ** 2, 0.0)
        return np.asarray(variances / np.maximum(counts - 1, 1))

    def outcome(self) -> Outcome:
        """Scaled mean slopes with the error of their sampling, in the value's unit."""
        plan = self.plan
        deviations = float(scipy.special.ndtri((1 + plan.level) / 2))
        return Outcome(
            values=np.clip(self.scale * self.mean_slopes(), -1.0, 1.0) * plan.span,
            sampling_error=deviations * np.sqrt(self.variance()) * plan.span,
            samples=self.counts.sum(axis=0),
            level=plan.level,
            halves=self._halves(),
        )

    def _halves(self) -> Floats | None:
        """Values from each half of the examples alone, [half, head].

        None while a head has no draw from one half.
        """
        if not self.counts.all():
            return None
        return np.clip(self.scale * self.sums / UNITS / self.counts, -1, 1) * self.plan.span

    def progress(self) -> Progress:
        """Draws so far, out of all."""
        return Progress(self.draws, max(self.draws, self.plan.samples), "draws")


def estimate(
    game: Game,
    plan: SlopePlan,
    *,
    seed: int,
    bandwidth: float,
    language: str = "",
    saved: SlopeTally | None = None,
) -> Iterator[SlopeTally]:
    """Tallies that grow by some draws each, until there are as many as planned.

    Args:
        game: The game; it answers "slopes" and "margins".
        plan: When to stop.
        seed: Seed of the draws.
        bandwidth: As a multiple of the standard deviation of the margins.
        language: Named by errors.
        saved: The tally to go on from.

    Raises:
        HeadlabError: The margins are all equal, a slope is no number, or the slopes do not foresee
            what all heads together are worth.
    """
    tally = saved or SlopeTally.start(game.players, plan)
    if tally.draws >= plan.samples:
        require_foresight(tally, language)
        return
    if not tally.bandwidth:
        example_count = worth_examples(plan.samples, game.examples)
        tally = measured_first(game, tally, DrawStream(seed), bandwidth, example_count)
    for longer_tally in slopes_until(game, tally, plan.samples, DrawStream(seed)):
        tally = longer_tally
        if tally.draws == plan.samples:
            require_foresight(tally, language)
        yield tally


class DrawStream(NamedTuple):
    """Draws that share nothing with those of another stream.

    Attributes:
        seed: Seed of the draws.
        first: Number of the first draw. Balanced cycles need a multiple of the number of examples.
    """

    seed: int
    first: int = 0

    def draws(self, game: Game, numbers: range, estimand: str) -> Draws:
        """The draws of these numbers, counted from the first of the stream."""
        numbers_in_all = range(self.first + numbers.start, self.first + numbers.stop)
        max_removed = removal_sizes(estimand, game.players)
        return draws_of(game, numbers_in_all, self.seed, max_removed)

    def donors(
        self, game: Game, numbers: range, draws: Draws
    ) -> dict[str, npt.NDArray[np.generic]]:
        """The argument of a query with the donors of these draws; none where none are drawn."""
        numbers_in_all = range(self.first + numbers.start, self.first + numbers.stop)
        return donor_arguments(game, self.seed, numbers_in_all, draws.examples)


def measured_first(
    game: Game, tally: SlopeTally, stream: DrawStream, multiple: float, example_count: int
) -> SlopeTally:
    """The tally with its bandwidth, and with what all heads together are worth.

    Args:
        game: The game.
        tally: Without a draw.
        stream: Of the draws.
        multiple: The bandwidth as a multiple of the standard deviation of the margins.
        example_count: Number of examples on which the worth is measured.

    Raises:
        HeadlabError: The margins are all equal, or not finite.
    """
    worth, worth_variance = _worth_of_all(game, tally.plan.estimand, stream, example_count)
    return replace(
        tally,
        bandwidth=_chosen_bandwidth(game, tally.plan.estimand, stream, multiple),
        worth=worth,
        worth_variance=worth_variance,
    )


def slopes_until(
    game: Game, tally: SlopeTally, end: int, stream: DrawStream
) -> Iterator[SlopeTally]:
    """Tallies that grow by some draws each, until there are so many.

    Args:
        game: The game.
        tally: To go on from; its bandwidth has been chosen.
        end: Number of draws at the end.
        stream: Of the draws.

    Raises:
        HeadlabError: A slope is no number.
    """
    size = max(game.round, DRAWS_AT_ONCE)
    parts = []
    for start in range(tally.draws, end, size):
        numbers = range(start, min(start + size, end))
        parts.append((numbers, stream.draws(game, numbers, tally.plan.estimand)))
    bandwidth = np.array(tally.bandwidth)
    asks = (
        Query(
            "slopes",
            {
                "kept": draws.kept,
                "examples": draws.examples,
                "bandwidth": bandwidth,
                **stream.donors(game, numbers, draws),
            },
        )
        for numbers, draws in parts
    )
    for (_, draws), slopes in zip(parts, game.answers(asks), strict=True):
        _require_slopes(slopes)
        tally = tally.add(slopes, draws.wanted, draws.examples >= game.examples / 2)
        yield tally


def _in_units(numbers: Floats, units: float = UNITS) -> Ints:
    """Numbers as multiples of 1 / units, rounded."""
    return np.asarray(np.rint(numbers * units), dtype=np.int64)


def _worth_of_all(
    game: Game, estimand: str, stream: DrawStream, example_count: int
) -> tuple[float, float]:
    """What the values of all heads add up to, as a share of the span, and its variance.

    It is the value of all heads less that of a coalition from which as many are gone as the
    estimand counts at most, for every head that goes, on the examples of the first draws.
    """
    players = game.players
    max_removed = removal_sizes(estimand, players)
    examples = []
    kept = np.ones((example_count, players), bool)
    for index in range(example_count):
        number = stream.first + index
        examples.append(cycled_example(stream.seed, number, game.examples, game.weights))
        order = np.random.default_rng([stream.seed, 9, number]).permutation(players)
        kept[index, order[:max_removed]] = False
    drawn_examples = np.array(examples)
    numbers = range(stream.first, stream.first + example_count)
    donors = donor_arguments(game, stream.seed, numbers, drawn_examples)
    queries = [
        Query("values", {"kept": np.ones_like(kept), "examples": drawn_examples, **donors}),
        Query("values", {"kept": kept, "examples": drawn_examples, **donors}),
    ]
    value_of_all, value_of_rest = game.answers(queries)
    differences = (value_of_all - value_of_rest) * players / max_removed
    variance = float(differences.var()) / max(example_count - 1, 1)
    # Where every head goes there is one coalition, and each example comes once: all of them leave
    # nothing to vary, unless donors are drawn, of which each example has met one.
    draws_donors = getattr(game, "draws_donors", False)
    if max_removed == players and game.weights is None and not draws_donors:
        variance *= 1 - example_count / game.examples
    return float(differences.mean()), variance


def require_foresight(tally: SlopeTally, language: str) -> None:
    """Raise HeadlabError if the slopes have to be scaled by too much; it names the language."""
    if tally.foresees:
        return
    total = tally.mean_slopes().sum() * tally.plan.span
    worth = tally.worth * tally.plan.span
    raise HeadlabError(
        f"{language or 'here'}: the slopes do not foresee what the heads do: they add up to {total:.3g}, and the heads' "
        f"values to {worth:.3g}; draw more samples, or use shapley, which measures every gain",
        code="method.slopes_disagree",
    )


def _chosen_bandwidth(game: Game, estimand: str, stream: DrawStream, multiple: float) -> float:
    """The bandwidth in logits: a multiple of the spread of the first draws' margins.

    Raises:
        HeadlabError: The margins are all equal, or not finite.
    """
    draws = stream.draws(game, range(BANDWIDTH_DRAWS), estimand)
    donors = stream.donors(game, range(BANDWIDTH_DRAWS), draws)
    query = Query("margins", {"kept": draws.kept, "examples": draws.examples, **donors})
    (moments,) = game.answers([query])
    with np.errstate(invalid="ignore"):  # sums of infinite margins, which are refused below
        count, total, total_square = moments.sum(axis=0)
        variance = total_square / max(count, 1) - (total / max(count, 1)) ** 2
    if not np.isfinite(variance):
        raise HeadlabError(
            "the right answers' lead over the others is not finite, as with a single label, so there is no slope to "
            "take; use another method, such as shapley",
            code="method.margins_not_finite",
        )
    if variance <= 0:
        raise HeadlabError(
            "the right answers lead by the same margin in every coalition that was tried, so there is no slope to "
            "take; use another method, such as shapley",
            code="method.margins_constant",
        )
    steps = np.rint(BANDWIDTHS_A_DOUBLING * np.log2(multiple * np.sqrt(variance)))
    return float(2.0 ** (steps / BANDWIDTHS_A_DOUBLING))


def _require_slopes(slopes: Floats) -> None:
    """Raise HeadlabError if a slope is not finite or far beyond any gain."""
    if not (np.abs(slopes) <= MAX_SLOPE).all():
        raise HeadlabError(
            "the model's gradient is not finite for some example; load the model with dtype float32, or use another "
            "method, such as shapley",
            code="method.slopes_not_finite",
        )


def run(work: Work) -> Outcome:
    """Take slopes at as many random coalitions as planned.

    Raises:
        HeadlabError: The model is a decoder, or gives no gradient.
    """
    require_encoder(method("smoothed"), work.evaluator.model.grid)
    game = game_of(work)
    tally = restore(work.saved or {}, work.options, game.players)
    bandwidth = float(number_in(work.options, "bandwidth"))
    tallies = estimate(
        game,
        tally.plan,
        seed=work.seed,
        bandwidth=bandwidth,
        language=work.evaluator.language,
        saved=tally,
    )
    return final_outcome(work, tally, tallies)


def restore(saved: Arrays, options: Options, players: int) -> SlopeTally:
    """The snapshot stored in a checkpoint; an empty one if it does not fit.

    Args:
        saved: Arrays of the checkpoint.
        options: Of the method.
        players: Number of players.
    """
    return SlopeTally.restore(saved, players, SlopePlan.of(options))
