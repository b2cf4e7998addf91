"""The randomness of a run: every draw is a function of (seed, number), so that any run can be taken up anywhere."""

from __future__ import annotations

import numpy as np

from headlab.records import Floats, Ints


def order(seed: int, number: int, players: int) -> Ints:
    """A random order of the players, int [player]."""
    return np.random.default_rng([seed, 1, number]).permutation(players)


def cycled_example(seed: int, number: int, examples: int, weights: Floats | None = None, stream: int = 0) -> int:
    """Balanced cycling: every cycle of draws is a fresh random order of all examples.

    weights: share of the draws that each example is due, [example]; where they differ, draws are free.
    stream: another one is independent of the first.
    """
    if weights is not None:
        return free_example(seed, number, examples, weights, stream)
    cycle, place = divmod(number, examples)
    return int(_example_rng(seed, 2, cycle, stream).permutation(examples)[place])


def free_example(seed: int, number: int, examples: int, weights: Floats | None = None, stream: int = 0) -> int:
    """One example at random, whatever came before; with its weight as probability, if there are weights."""
    return int(_example_rng(seed, 6, number, stream).choice(examples, p=weights))


def _example_rng(seed: int, kind: int, number: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([seed, kind, number] + [stream] * (stream > 0))


def cuts(seed: int, number: int, high: int, size: int) -> Ints:
    """How many players are gone, `size` independent draws from 0 ... high - 1."""
    return np.random.default_rng([seed, 5, number]).integers(high, size=size)


def rounded(gains: Floats, steps: int, seed: int, number: int) -> Ints:
    """Gains in [-1, 1] as whole multiples of 1 / steps, rounded at random so that the mean stays what it was.

    gains: float [..., player].  A gain that is a multiple already is not changed.
    """
    dither = np.random.default_rng([seed, 7, number]).random(gains.shape)
    scaled = np.round(gains * steps, 9)  # 0.1 + 0.2 is a multiple of 0.1 too
    return np.floor(scaled + np.minimum(dither, 1 - 1e-9)).astype(np.int64)
