"""How long models take, side by side: all of them in every round, so that what slows the machine slows all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from headlab.errors import HeadlabError
from headlab.records import Floats, Ints
from headlab.worth.ratio import Ratio, ratio_of

Inputs = Sequence[Mapping[str, torch.Tensor]]
Pass = Callable[[], object]
ROUNDS = 15
LEAST = 6  # rounds that a 95 % interval of a median needs


def latency_ratio(
    before: nn.Module, after: nn.Module, inputs: Inputs, *, repeats: int = ROUNDS, seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:  # fmt: skip
    """Time of `after` over that of `before` on the same batches: below 1 means that `after` is faster.

    inputs: batches on the modules' device, called as module(**batch) one after another in a pass.  repeats: rounds, 6
    or more, in each of which both are timed, in an order drawn by `seed` and turned round in every other one.
    Raises HeadlabError for fewer rounds or no batch.
    """
    if not inputs:
        raise HeadlabError("there is no batch to time; give one or more", code="latency.no_batch")
    device = next(iter(inputs[0].values())).device
    passes = [lambda m=m: [m(**batch) for batch in inputs] for m in (before, after)]
    (seconds,) = timed([passes], device, rounds=repeats, seed=seed, clock=clock)
    return ratio_of(seconds[:, 0], seconds[:, 1])


def timed(
    groups: Sequence[Sequence[Pass]], device: torch.device, *, rounds: int, seed: int,
    clock: Callable[[], float] = time.perf_counter, tick: Callable[[], None] = lambda: None,
    told: Callable[[int], None] = lambda turn: None,
) -> list[Floats]:  # fmt: skip
    """Seconds of every pass of each group in every round, float [round, pass].

    All groups have their turn in every round, and the passes of one, which are compared with each other, follow one
    another there.  A pass that is timed follows one of the same kind that is not, so that none pays for what another
    left behind.  tick: called between passes; may raise to stop.  told: called before each round, with those done.
    Raises HeadlabError for too few rounds.
    """
    if rounds < LEAST:
        raise HeadlabError(
            f"asked for {rounds} rounds; an interval of their median needs {LEAST} or more",
            code="latency.rounds_too_few",
        )
    seconds = [np.zeros((rounds, len(passes))) for passes in groups]
    within = [orders(rounds, len(passes), seed) for passes in groups]
    with torch.inference_mode():
        for turn, order in enumerate(orders(rounds, len(groups), seed)):
            told(turn)
            for group in order.tolist():
                for number in within[group][turn].tolist():
                    tick()
                    seconds[group][turn, number] = _one(groups[group][number], device, clock)
    return seconds


def orders(rounds: int, passes: int, seed: int) -> list[Ints]:
    """Which pass comes when, for each round: an order by lot, then the same the other way round, and so on."""
    rng, out = np.random.default_rng(seed), list[Ints]()
    while len(out) < rounds:
        drawn = rng.permutation(passes)
        out += [drawn, drawn[::-1]]
    return out[:rounds]


def _one(run: Pass, device: torch.device, clock: Callable[[], float]) -> float:
    run()
    _wait(device)
    begun = clock()
    run()
    _wait(device)
    return clock() - begun


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
