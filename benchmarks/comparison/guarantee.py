"""Seconds until every head's interval is as narrow as asked: headlab's run, and the published recipe worked out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from comparison.costs import Costs
from comparison.recipe import DELTA, orders_for_a_head, recipe_work
from comparison.setting import Long, Setting
from headlab.methods.tally import Plan, Tally
from headlab.records import Floats, Ints

LEVEL = 0.95
MOST = 1 << 20
SEED = 7
DOUBLINGS = 12


def half_width(tally: Tally, counts: Ints) -> Floats:
    """Half-widths with these counts, [head]."""
    low, high = tally.interval(counts)
    return np.asarray((high - low) / 2)


def plan(target: float) -> Plan:
    """Sample every head until its interval is as narrow as asked, however long it takes."""
    return Plan(MOST, target, "width", LEVEL, 1.0)


@dataclass(frozen=True)
class Ours:
    """headlab's run: as far as it was run, and to the end.

    measured: run to the end; else `seconds` and `forwards` are what was spent times samples needed over
    samples drawn, where a head needs as many samples as make its interval narrow enough if the gains go on
    as they came so far.
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
    """What a run to the end takes. cycle: samples between two looks."""
    tally = long.tally
    widths = half_width(tally, tally.counts)
    done = widths <= target
    more = 1.0 if done.all() else float(samples_needed(tally, target, cycle).sum() / max(long.gains, 1))
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
    low, high = np.zeros(len(drawn)), np.full(len(drawn), float(2**DOUBLINGS))
    for _ in range(2 * DOUBLINGS):
        middle = (low + high) / 2
        narrow = half_width(tally, np.rint(tally.counts * middle).astype(np.int64)) <= target
        low, high = np.where(narrow, low, middle), np.where(narrow, middle, high)
    return np.asarray(np.maximum(np.ceil(high * drawn / cycle) * cycle, drawn))


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


def speedups(paper: dict[str, dict[str, Any]], found: Ours) -> dict[str, float]:
    """Times more seconds than ours, by range and batching."""
    return {
        f"{span}, {how.removeprefix('seconds_').replace('_', ' ')}": line[how] / found.seconds
        for span, line in paper.items()
        for how in ("seconds_padded_to_128", "seconds_sorted_by_length")
    }
