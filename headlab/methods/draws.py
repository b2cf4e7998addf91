"""The randomness of a run: every draw is a function of (seed, number), so that any run can be taken up anywhere."""

from __future__ import annotations

import numpy as np

from headlab.records import Bools, Floats, Ints


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


def gone(seed: int, number: int, players: int, most: int) -> tuple[Bools, Bools]:
    """Who is gone in a draw, and who is measured there, both bool [player].

    So many players are gone as a number that is uniform on 0 ... most says. Everybody shows a gain by going or
    coming back; but with `most` gone those who are there would leave a coalition too small, and are not measured.
    A player that is measured thus has a gain at a random coalition of the others, of a size that is uniform on
    0 ... most - 1 (docs/statistics.md).
    """
    count = int(np.random.default_rng([seed, 5, number]).integers(most + 1))
    away = np.zeros(players, bool)
    away[order(seed, number, players)[:count]] = True
    return away, away if count == most else np.ones(players, bool)


def uniforms(seed: int, number: int, players: int) -> Floats:
    """A number in [0, 1) for each player, float [player]: whether its gain is computed in this draw."""
    return np.random.default_rng([seed, 8, number]).random(players)


def placed(values: Floats, support: Floats, seed: int, number: int) -> Ints:
    """Places of values in a support, rounded at random to a neighbour so that the mean stays what it was.

    values: float [..., player], within the support.  support: float [level], rising.  Returns int [..., player],
    places in the support. A value that is in the support already is not changed.
    """
    dither = np.random.default_rng([seed, 7, number]).random(values.shape)
    between = np.round(np.interp(values, support, np.arange(len(support))), 9)  # 0.1 + 0.2 is a multiple of 0.1 too
    return np.floor(between + np.minimum(dither, 1 - 1e-9)).astype(np.int64)
