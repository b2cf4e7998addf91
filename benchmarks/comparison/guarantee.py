"""Seconds until every head's interval is as narrow as asked: headlab's run, and the published recipe worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from comparison.costs import Costs
from comparison.race import Ratio, ratio_of_means
from comparison.recipe import DELTA, orders_for_a_head, recipe_work
from comparison.setting import Long, Setting
from headlab.core import Floats, Ints
from headlab.methods.sampling import SamplingPlan, Tally
from headlab.stats import holm

LEVEL = 0.95
MOST = 1 << 20
SEEDS = (7, 8, 9)
DOUBLINGS = 12
NAMED = 10


def half_width(tally: Tally, counts: Ints) -> Floats:
    """Half-widths with these counts, [head]."""
    low, high = tally.interval(counts)
    return np.asarray((high - low) / 2)


def plan(target: float) -> SamplingPlan:
    """Sample every head until its interval is as narrow as asked, however long it takes."""
    return SamplingPlan(MOST, target, "width", LEVEL, 1.0)


@dataclass(frozen=True)
class Ours:
    """headlab's run: as far as it was run, and to the end.

    Attributes:
        measured: Run to the end; else `seconds` and `forwards` are what was spent times samples
            needed over samples drawn, where a head needs as many samples as make its interval
            narrow enough if the gains go on as they came so far.
    """

    measured: bool
    seconds: float
    forwards: float
    spent_seconds: float
    spent_forwards: int
    widest: float
    heads_done: int
    samples: int


def ours(long: Long, target: float, cycle: int) -> Ours:
    """What a run to the end takes.

    Args:
        cycle: Samples between two looks.
    """
    tally = long.tally
    widths = half_width(tally, tally.counts)
    done = widths <= target
    more = (
        1.0
        if done.all()
        else float(samples_needed(tally, target, cycle).sum() / max(long.gains, 1))
    )
    return Ours(
        bool(done.all()),
        long.seconds * more,
        long.forwards * more,
        long.seconds,
        long.forwards,
        float(widths.max()),
        int(done.sum()),
        int(tally.counts.sum(axis=0).max()),
    )


def samples_needed(tally: Tally, target: float, cycle: int) -> Floats:
    """Samples of each head, in whole cycles, that make its interval narrow enough; [head], never fewer than drawn."""
    drawn = tally.counts.sum(axis=0)
    low = np.ones(len(drawn))
    high = np.full(len(drawn), float(2**DOUBLINGS))
    for _ in range(2 * DOUBLINGS):
        middle = (low + high) / 2
        narrow = half_width(tally, np.rint(tally.counts * middle).astype(np.int64)) <= target
        low = np.where(narrow, low, middle)
        high = np.where(narrow, middle, high)
    more = np.where(half_width(tally, tally.counts) <= target, 1.0, high)
    return np.asarray(np.maximum(np.ceil(more * drawn / cycle) * cycle, drawn))


@dataclass(frozen=True)
class Named:
    """Seconds until so many harmful heads are named, all heads judged together (Holm), at the run's level.

    Attributes:
        measured: They were; else `seconds` is what was spent times what the samples would have to
            be, if the gains go on as they came so far.
        named: Heads that the run did name.
    """

    heads: int
    seconds: float
    measured: bool
    named: int


def named(long: Long, cycle: int, heads: int = NAMED) -> Named:
    """When the most harmful heads are named.

    Args:
        cycle: Samples between two looks.
    """
    tally = long.tally

    def count(times: float) -> int:
        found = replace(tally, counts=np.rint(tally.counts * times).astype(np.int64)).outcome()
        assert found.p_values is not None  # a tally has them
        return int(((found.values < 0) & (holm(found.p_values) < 1 - LEVEL)).sum())

    so_far = count(1.0)
    if so_far >= heads:
        return Named(heads, long.seconds, True, so_far)
    cycles = tally.draws / cycle
    low = 0.0
    high = float(2**DOUBLINGS)  # cycles more
    for _ in range(2 * DOUBLINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if count(1 + middle / cycles) >= heads else (middle, high)
    return Named(heads, long.seconds * (1 + np.ceil(high) / cycles), False, so_far)


def published(setting: Setting, costs: Costs) -> dict[str, dict[str, Any]]:
    """The recipe by what it is given: Equation 4's range 1 as printed, or 2, which is what gains span."""
    out = {}
    for span in (1.0, 2.0):
        turns = orders_for_a_head(costs.order_variance_top50, setting.target, span)
        work = recipe_work(turns, setting.game.players)
        forwards = work.coalitions * setting.game.examples
        out[f"range {span:g}"] = {
            "turns_a_head": turns,
            **asdict(work),
            "forwards": forwards,
            "seconds_padded_to_128": forwards * costs.padded_forward,
            "seconds_sorted_by_length": forwards * costs.sorted_forward,
            "delta": DELTA,
        }
    return out


def speedups(paper: dict[str, dict[str, Any]], found: Sequence[Ours]) -> dict[str, Ratio]:
    """Times more seconds than ours, by range and batching."""
    seconds = [each.seconds for each in found]
    return {
        f"{span}, {how.removeprefix('seconds_').replace('_', ' ')}": ratio_of_means(
            line[how], seconds
        )
        for span, line in paper.items()
        for how in ("seconds_padded_to_128", "seconds_sorted_by_length")
    }
