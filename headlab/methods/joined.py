"""Shapley values joined of screened samples and of slopes of a smoothed value.

Samples are right on average, and it takes thousands of them until their mean is near the value.
Slopes are near it after a few hundred draws, and never come nearer. The value joins the two: it
follows the slopes while samples are few, as far as they agree with them, and the samples in the end
(`headlab.stats.joined`, docs/statistics.md). Intervals, p-values and halves rest on samples alone,
and a value is clipped into its interval.

Samples are those of `headlab.methods.tmab`; slopes, those of `headlab.methods.smoothed`, from draws
of their own: 256 before the first sample, then three for each draw of samples, until there are
1,024. All is a function of the seed, whatever the devices and however often a run is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headlab.core import Floats, HeadGrid, HeadlabError, Progress, SlopeUse
from headlab.methods import costs, tmab
from headlab.methods.game import Game
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.sampling import SamplingPlan
from headlab.methods.smoothed import (
    DrawStream,
    SlopePlan,
    SlopeTally,
    measured_first,
    slopes_until,
)
from headlab.methods.table import (
    CANDIDATES_A_NAME,
    DEFAULT_METHOD,
    FIRST_SLOPE_DRAWS,
    METHODS,
    MIN_WORTH_EXAMPLES,
    MOST_SLOPE_DRAWS,
    SLOPE_BANDWIDTH,
    SLOPE_DRAWS_A_SAMPLE,
)
from headlab.methods.tmab import ScreenedTally
from headlab.methods.work import Arrays, Outcome, Work, final_outcome
from headlab.results import AVERAGE
from headlab.stats import JoinedMeans, average_half_widths, join_means

CYCLES_BEFORE_SLOPES = 1 << 32
"""Cycles of examples between the draws of samples and those of slopes: no run has so many."""
EXPECTED_SAMPLES = 512.0
"""Weight, in samples, of the expected square of a head's sample against the squares it has seen."""
WHY_NO_SLOPES = {
    "method.margins_constant": "the right answers lead by the same margin in every coalition tried",
    "method.margins_not_finite": "the right answers' lead over the others is not finite",
    "method.slopes_not_finite": "the model's gradient is not finite for some example",
    "model.gradient_missing": "the model gives no gradient",
}
"""Why a model has no slopes, by the code of the error that says it."""
IS_DECODER = "slopes of a model with a decoder do not foresee what its heads do"
OTHER_PLAYERS = "how well slopes foresee other players than heads has not been measured"
DISAGREE = "the slopes do not foresee what all heads together are worth"
NOT_ASKED = "they were not asked for"
RESOLUTION = 2.0**-30
"""Joined values are multiples of it, as a share of the span: processors differ in digits beyond."""


@dataclass(frozen=True)
class JoinedTally:
    """A snapshot of samples and slopes.

    Attributes:
        samples: The samples so far.
        slopes: The slopes so far.
        why_none: Why no slopes are taken, in a clause; empty if they are.
    """

    samples: ScreenedTally
    slopes: SlopeTally
    why_none: str = ""

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        slope_arrays = {f"slope_{name}": array for name, array in self.slopes.arrays().items()}
        return {**self.samples.arrays(), **slope_arrays, "why_no_slopes": np.array(self.why_none)}

    def outcome(self) -> Outcome:
        """Joined values; their intervals, p-values and halves by the samples alone."""
        joined = self.joined_means()
        by_samples = replace(self.samples.outcome(), average_error=self._average_errors_of(joined))
        if joined is None:
            why_none = self.why_none
            if self.slopes.draws:
                why_none = DISAGREE
            return replace(by_samples, slopes=SlopeUse(0, 0.0, why_none) if why_none else None)
        values = np.rint(joined.values / RESOLUTION) * RESOLUTION
        return replace(
            by_samples,
            values=np.clip(values * self.samples.plan.span, by_samples.low, by_samples.high),
            sample_means=by_samples.values,
            slopes=SlopeUse(self.slopes.draws, float(joined.guess_shares.mean()), ""),
        )

    def average_errors(self) -> Floats | None:
        """Half-widths around the values that hold for a share of the heads on average, [head].

        In the value's unit. None while a head has no sample.
        """
        return self._average_errors_of(self.joined_means())

    def _average_errors_of(self, joined: JoinedMeans | None) -> Floats | None:
        """`average_errors`, of values that were joined already, or of means of samples alone."""
        samples = self.samples
        means = samples.mean(samples.counts)
        variances = variances_of_means(samples)
        if not np.isfinite(variances).all():
            return None
        no_guess = np.zeros(len(means))
        guess_variances = no_guess
        if joined is not None:
            guess_variances = self.slopes.scale**2 * self.slopes.variance_of_means()
        half_widths = average_half_widths(
            values=means if joined is None else joined.values,
            means=means,
            variances=variances,
            guess_shares=no_guess if joined is None else joined.guess_shares,
            guess_variances=guess_variances,
            squares=expected_squares(samples),
            level=samples.plan.level,
        )
        return np.asarray(np.rint(half_widths / RESOLUTION) * RESOLUTION * samples.plan.span)

    def with_candidates(self) -> JoinedTally:
        """The tally before its first sample, of which only candidates are sampled.

        They are the heads of the lowest slopes. As no sample is among what they are chosen by, the
        samples that they are tested on are as of any heads.
        """
        candidate_count = CANDIDATES_A_NAME * (self.samples.plan.names or 0)
        lowest_first = np.argsort(self.slopes.mean_slopes(), kind="stable")
        is_candidate = np.zeros(len(lowest_first), bool)
        is_candidate[lowest_first[:candidate_count]] = True
        return replace(self, samples=self.samples.with_candidates(is_candidate))

    def ended_if_narrow(self) -> JoinedTally:
        """The tally, ended if its average intervals have the target width, on average too."""
        target = self.samples.plan.target
        errors = self.average_errors()
        if target is None or errors is None or errors.mean() > target:
            return self
        no_heads = np.zeros_like(self.samples.active)
        return replace(self, samples=replace(self.samples, active=no_heads))

    def joined_means(self) -> JoinedMeans | None:
        """Values as shares of the span, before they are cut into their intervals.

        None without slopes, and where slopes do not foresee what all heads are worth.
        """
        if not self.slopes.draws or not self.slopes.foresees:
            return None
        slope_scale = self.slopes.scale
        return join_means(
            means=self.samples.mean(self.samples.counts),
            variances=variances_of_means(self.samples),
            guesses=slope_scale * self.slopes.mean_slopes(),
            guess_variances=slope_scale**2 * self.slopes.variance_of_means(),
            squares=expected_squares(self.samples),
            deviation_of_slope=self.slopes.deviation_of_scale,
        )

    def progress(self) -> Progress:
        """Samples drawn, out of the number that will be needed."""
        progress = self.samples.progress()
        if self.samples.draws or not self.slopes.draws:
            return progress
        return replace(progress, note="slopes come first")


def expected_squares(samples: ScreenedTally) -> Floats:
    """Expected square of a sample of each head, as a share of the span squared, float [head].

    The screen foresees how heads differ; how large squares are in all, weights included, the
    samples say.
    """
    counts = samples.counts
    sample_counts = counts.sum(axis=0)
    squares = samples.support**2 @ counts
    foreseen_squares = samples.screen.expected_squares()
    if foreseen_squares is None:
        foreseen_squares = np.ones(counts.shape[1])
    foreseen_in_all = float((foreseen_squares * sample_counts).sum())
    if not foreseen_in_all or not squares.any():
        return samples.mean_squares(counts)
    return np.asarray(foreseen_squares * squares.sum() / foreseen_in_all)


def variances_of_means(samples: ScreenedTally) -> Floats:
    """Variance of each head's mean of samples, as a share of the span squared, float [head].

    Squares that were seen count beside the expected ones, since a sample of a large weight is
    foreseen by nothing; and so does one made-up gain of the usual size, as a head's rare gains may
    all have been missed. Infinite for a head without samples.
    """
    counts = samples.counts
    sample_counts = counts.sum(axis=0)
    squares = samples.support**2 @ counts
    sizes = np.abs(samples.support) @ counts
    usual_size = min(1.0, float(squares.sum()) / max(float(sizes.sum()), 1e-300))
    mean_squares = (squares + EXPECTED_SAMPLES * expected_squares(samples)) / (
        sample_counts + EXPECTED_SAMPLES
    )
    numbers = np.maximum(sample_counts, 1)
    variances = (mean_squares + usual_size**2 / numbers) / numbers
    return np.where(sample_counts > 0, variances, np.inf)


def estimate(
    game: Game,
    plan: SamplingPlan,
    slope_plan: SlopePlan,
    *,
    seed: int,
    why_no_slopes: str = "",
    saved: JoinedTally | None = None,
) -> Iterator[JoinedTally]:
    """Tallies that grow by some draws each, until every head is satisfied or has all its samples.

    Samples are the same as without slopes, one by one.

    Args:
        game: The game; it answers "slopes" and "margins" besides what `tmab.estimate` asks.
        plan: When to stop.
        slope_plan: Of the slopes.
        seed: Seed of the draws.
        why_no_slopes: Why no slopes are to be taken, in a clause.
        saved: The tally to go on from.
    """
    if saved is None:
        samples = tmab.started_tally(game, plan, None)
        tally = JoinedTally(samples, SlopeTally.start(game.players, slope_plan), why_no_slopes)
    else:
        samples = tmab.started_tally(game, plan, saved.samples)
        tally = replace(saved, samples=samples, why_none=saved.why_none or why_no_slopes)
    while not tally.samples.is_finished:
        for longer_tally in _with_slopes_due(game, tally, seed):
            tally = longer_tally
            yield tally
        if plan.names is not None and not tally.samples.draws:
            tally = tally.with_candidates()
            yield tally
        if _looks_at_average(tally, game.examples):
            tally = tally.ended_if_narrow()
            yield tally
            if tally.samples.is_finished:
                break
        for samples in tmab.estimate_until_update(
            game, tally.samples, seed=seed, estimand=slope_plan.estimand
        ):
            tally = replace(tally, samples=samples)
            yield tally


def _looks_at_average(tally: JoinedTally, examples: int) -> bool:
    """Whether average intervals decide now whether the run ends: after whole cycles of examples.

    The intervals that mark heads hold at every look there (docs/statistics.md). All slopes due by
    then are taken before, so that a run that is taken up decides alike.

    Args:
        tally: The tally so far.
        examples: Number of examples of the game.
    """
    draws = tally.samples.draws
    is_average = tally.samples.plan.interval == AVERAGE
    return is_average and draws > 0 and draws % examples == 0


def _with_slopes_due(game: Game, tally: JoinedTally, seed: int) -> Iterator[JoinedTally]:
    """The tallies until all slopes are there that are due before the next samples.

    A model that turns out to have no slopes goes on without them, and the tally says why.
    """
    stream = DrawStream(seed, CYCLES_BEFORE_SLOPES * game.examples)
    slopes = tally.slopes
    try:
        if not tally.why_none and not slopes.bandwidth:
            example_count = min(game.examples, MIN_WORTH_EXAMPLES)
            slopes = measured_first(game, slopes, stream, SLOPE_BANDWIDTH, example_count)
        due = slopes_due(tally, game.examples)
        for longer_slopes in slopes_until(game, slopes, due, stream):
            yield replace(tally, slopes=longer_slopes)
    except HeadlabError as error:
        if error.code not in WHY_NO_SLOPES:
            raise
        if tally.samples.plan.names is not None:
            raise costs.no_candidates(WHY_NO_SLOPES[error.code]) from error
        empty_slopes = SlopeTally.start(game.players, slopes.plan)
        yield replace(tally, slopes=empty_slopes, why_none=WHY_NO_SLOPES[error.code])


def slopes_due(tally: JoinedTally, examples: int) -> int:
    """How many draws of slopes there are to be before the next sample.

    It changes only where the screen is updated, so that a run that is taken up draws as many as
    one that was never interrupted.

    Args:
        tally: The tally so far.
        examples: Number of examples of the game.
    """
    if tally.why_none:
        return 0
    if tally.samples.plan.names is not None:  # candidates are chosen once, by all of them
        return MOST_SLOPE_DRAWS
    sample_draws = tmab.last_update(tally.samples.draws, examples)
    return min(MOST_SLOPE_DRAWS, FIRST_SLOPE_DRAWS + SLOPE_DRAWS_A_SAMPLE * sample_draws)


def run(work: Work) -> Outcome:
    """Sample until every head has a decided sign, the target half-width, or `samples` samples."""
    options = work.options
    if work.samples_only:
        options = {**options, "names": None}
    costs.require_candidates(options, work.evaluator.model.grid)
    costs.require_stand_in(METHODS[DEFAULT_METHOD], work.ablation, options)
    game = game_of(work)
    tally = restore(work.saved or {}, options, game.players, game.steps)
    tallies = estimate(
        game,
        tally.samples.plan,
        tally.slopes.plan,
        seed=work.seed,
        why_no_slopes=NOT_ASKED
        if work.samples_only
        else why_no_slopes(work.evaluator.model.grid, work.ablation),
        saved=tally,
    )
    return final_outcome(work, tally, tallies)


def why_no_slopes(grid: HeadGrid, ablation: str = "zero") -> str:
    """Why no slopes are taken of a model with these heads, in a clause; empty if they are.

    Args:
        grid: The players.
        ablation: What stands in the place of a closed one.
    """
    if costs.why_unforeseen(ablation):
        return costs.why_unforeseen(ablation)
    if not grid.has_only_heads:
        return OTHER_PLAYERS
    if costs.is_encoder(grid):
        return ""
    return IS_DECODER


def restore(saved: Arrays, options: Options, players: int, steps: int | None = None) -> JoinedTally:
    """The snapshot stored in a checkpoint; an empty one if it does not fit.

    Args:
        saved: Arrays of the checkpoint.
        options: Of the method.
        players: Number of players.
        steps: Number of levels of a gain of 1 in the game; None infers it from the checkpoint.
    """
    samples = tmab.restore(saved, options, players, steps)
    slope_plan = replace(SlopePlan.of(options), samples=MOST_SLOPE_DRAWS)
    slope_arrays = {}
    for name in SlopeTally.start(players, slope_plan).arrays():
        if f"slope_{name}" in saved:
            slope_arrays[name] = saved[f"slope_{name}"]
    return JoinedTally(
        samples,
        SlopeTally.restore(slope_arrays, players, slope_plan),
        str(saved.get("why_no_slopes", "")),
    )
