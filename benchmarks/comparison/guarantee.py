"""Seconds until every head's interval is as narrow as required.

headlab's run is measured; the cost of the published recipe is worked out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from comparison.costs import Costs
from comparison.race import Ratio, ratio_of_means
from comparison.recipe import DELTA, orders_for_a_head, recipe_work
from comparison.setting import LongRun, Setting
from headlab.core import Floats, Ints
from headlab.methods.sampling import SamplingPlan, Tally
from headlab.stats import holm

LEVEL = 0.95
MAX_SAMPLES = 1 << 20
SEEDS = (7, 8, 9)
DOUBLINGS = 12
HEADS_TO_NAME = 10


def half_width(tally: Tally, counts: Ints) -> Floats:
    """Half-widths with these counts, [head]."""
    low, high = tally.interval(counts)
    return np.asarray((high - low) / 2)


def plan(target: float) -> SamplingPlan:
    """Sample every head until its interval is narrow enough, however long that takes."""
    return SamplingPlan(MAX_SAMPLES, target, "width", LEVEL, 1.0)


@dataclass(frozen=True)
class Ours:
    """What headlab's run took so far, and what it takes to the end.

    Attributes:
        measured: Whether it was run to the end. If not, `seconds` and `forwards` are what was spent
            times samples needed over samples drawn, where a head needs as many samples as make its
            interval narrow enough if its gains go on as they came so far.
        seconds: To the end.
        forwards: Example-forwards to the end.
        spent_seconds: So far.
        spent_forwards: So far.
        widest: Largest half-width so far.
        heads_done: How many intervals are narrow enough so far.
        samples: Most samples of a head so far.
    """

    measured: bool
    seconds: float
    forwards: float
    spent_seconds: float
    spent_forwards: int
    widest: float
    heads_done: int
    samples: int


def ours(long_run: LongRun, target: float, cycle: int) -> Ours:
    """What a run takes to its end.

    Args:
        long_run: As far as it came.
        target: Half-width to guarantee.
        cycle: Samples between two looks.
    """
    tally = long_run.tally
    widths = half_width(tally, tally.counts)
    narrow_enough = widths <= target
    factor = 1.0
    if not narrow_enough.all():
        factor = float(samples_needed(tally, target, cycle).sum() / max(long_run.gains, 1))
    return Ours(
        bool(narrow_enough.all()),
        long_run.seconds * factor,
        long_run.forwards * factor,
        long_run.seconds,
        long_run.forwards,
        float(widths.max()),
        int(narrow_enough.sum()),
        int(tally.counts.sum(axis=0).max()),
    )


def samples_needed(tally: Tally, target: float, cycle: int) -> Floats:
    """Samples of each head that make its interval narrow enough, float [head].

    They are whole cycles, and never fewer than were drawn.
    """
    samples_drawn = tally.counts.sum(axis=0)
    low = np.ones(len(samples_drawn))
    high = np.full(len(samples_drawn), float(2**DOUBLINGS))
    for _ in range(2 * DOUBLINGS):
        middle = (low + high) / 2
        narrow = half_width(tally, np.rint(tally.counts * middle).astype(np.int64)) <= target
        low = np.where(narrow, low, middle)
        high = np.where(narrow, middle, high)
    factors = np.where(half_width(tally, tally.counts) <= target, 1.0, high)
    return np.asarray(np.maximum(np.ceil(factors * samples_drawn / cycle) * cycle, samples_drawn))


@dataclass(frozen=True)
class Named:
    """Seconds until a number of harmful heads are named.

    All heads are judged together (Holm), at the run's level.

    Attributes:
        heads: How many are to be named.
        seconds: Until then.
        measured: Whether the run named them. If not, `seconds` is what was spent times how many more
            samples it would take, if the gains go on as they came so far.
        named: Heads that the run did name.
    """

    heads: int
    seconds: float
    measured: bool
    named: int


def seconds_to_named_heads(long_run: LongRun, cycle: int, heads: int = HEADS_TO_NAME) -> Named:
    """When the most harmful heads are named.

    Args:
        long_run: As far as it came.
        cycle: Samples between two looks.
        heads: How many are to be named.
    """
    tally = long_run.tally

    def count(times: float) -> int:
        outcome = replace(tally, counts=np.rint(tally.counts * times).astype(np.int64)).outcome()
        assert outcome.p_values is not None  # a tally has them
        return int(((outcome.values < 0) & (holm(outcome.p_values) < 1 - LEVEL)).sum())

    so_far = count(1.0)
    if so_far >= heads:
        return Named(heads, long_run.seconds, True, so_far)
    cycles = tally.draws / cycle
    low = 0.0
    high = float(2**DOUBLINGS)  # more cycles
    for _ in range(2 * DOUBLINGS):
        middle = (low + high) / 2
        if count(1 + middle / cycles) >= heads:
            high = middle
        else:
            low = middle
    return Named(heads, long_run.seconds * (1 + np.ceil(high) / cycles), False, so_far)


def recipe_costs(setting: Setting, costs: Costs) -> dict[str, dict[str, Any]]:
    """Costs of the published recipe, by the range in its Equation 4.

    The paper prints range 1; gains span 2.
    """
    costs_by_span = {}
    for span in (1.0, 2.0):
        turns = orders_for_a_head(costs.order_variance_top50, setting.target, span)
        work = recipe_work(turns, setting.game.players)
        forwards = work.coalitions * setting.game.examples
        costs_by_span[f"range {span:g}"] = {
            "turns_a_head": turns,
            **asdict(work),
            "forwards": forwards,
            "seconds_padded_to_128": forwards * costs.padded_forward,
            "seconds_sorted_by_length": forwards * costs.sorted_forward,
            "delta": DELTA,
        }
    return costs_by_span


def speedups(paper: dict[str, dict[str, Any]], our_runs: Sequence[Ours]) -> dict[str, Ratio]:
    """How many times more seconds the recipe takes than our runs, by range and batching."""
    seconds = [our_run.seconds for our_run in our_runs]
    ratios = {}
    for span, recipe_cost in paper.items():
        for batching in ("padded to 128", "sorted by length"):
            paper_seconds = recipe_cost[f"seconds_{batching.replace(' ', '_')}"]
            ratios[f"{span}, {batching}"] = ratio_of_means(paper_seconds, seconds)
    return ratios
