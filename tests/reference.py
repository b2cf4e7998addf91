"""Slow second derivations: each formula of headlab again, in another way. Never imported by the package."""

from __future__ import annotations

from itertools import permutations
from math import exp, factorial, log
from typing import Any

import numpy as np
import torch


def full_shapley(value: Any, players: int) -> np.ndarray:
    """Average marginal gain over all orders, by enumeration. value: frozenset of players present -> float."""
    total = np.zeros(players)
    for order in permutations(range(players)):
        present = set(range(players))
        for player in order:
            before = value(frozenset(present))
            present.remove(player)
            total[player] += before - value(frozenset(present))
    return total / factorial(players)


def top_half_shapley(value: Any, players: int) -> np.ndarray:
    """Average gain of a player over the orders that remove it in their first half, an odd number's middle included."""
    total, count = np.zeros(players), np.zeros(players)
    for order in permutations(range(players)):
        present = set(range(players))
        for player in order[: (players + 1) // 2]:
            before = value(frozenset(present))
            present.remove(player)
            total[player] += before - value(frozenset(present))
            count[player] += 1
    return total / count


def worth(key: str, logits: list[float], label: int) -> float:
    """What one answer is worth as a share of the value's span, from the definition of softmax."""
    if key == "accuracy":
        return float(logits[label] == max(logits))
    highest = max(logits)
    below = sum(exp(x - highest) for x in logits)
    if key == "probability":
        return exp(logits[label] - highest) / below
    nats = logits[label] - highest - log(below)
    return (max(nats, -10.0) + 10.0) / 10.0


def log_capital(
    support: np.ndarray, counts: np.ndarray, mean: float, fractions: tuple[float, ...], shares: tuple[float, ...]
) -> float:
    """Wealth of the mixture bettor, draw by draw, for one head; share k of 1 is put on fraction k."""
    wealth = list(shares)
    for value, count in zip(support, counts, strict=True):
        for _ in range(int(count)):
            wealth = [w * (1 - f + f * (1 + value) / (1 + mean)) for w, f in zip(wealth, fractions, strict=True)]
    return float(np.log(sum(wealth)))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rho from its definition: Pearson of average ranks."""

    def ranks(v: np.ndarray) -> np.ndarray:
        return np.array([(np.sum(v < a) + np.sum(v <= a) - 1) / 2 for a in v])

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def finite_difference(loss: Any, gates: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """d loss / d gate by central differences, one gate at a time. loss: gates [layer, head] -> float."""
    out = np.zeros_like(gates)
    for place in np.ndindex(*gates.shape):
        up, down = gates.copy(), gates.copy()
        up[place] += step
        down[place] -= step
        out[place] = (loss(up) - loss(down)) / (2 * step)
    return out


def confidence(weights: torch.Tensor, ids: list[int], excluded: set[int]) -> tuple[float, int]:
    """Sum over tokens of the largest weight on an allowed token, and the number of tokens: one head, one sentence."""
    total = 0.0
    for query in range(len(ids)):
        total += max((float(weights[query, key]) for key in range(len(ids)) if ids[key] not in excluded), default=0.0)
    return total, len(ids)
