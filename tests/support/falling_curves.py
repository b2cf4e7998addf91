"""Pruning curves of 4 heads whose answers turn wrong group by group, and their expected area."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.results import Curve

HEADS = 4


def falling_curve(
    rng: np.random.Generator,
    ordering: str,
    chance: float,
    group_falls: Any = None,
    *,
    groups: int = 30,
    group_size: int = 2,
) -> Curve:
    """A curve whose answers are right at the start and wrong after a count that their group shares.

    Args:
        rng: Draws the counts.
        ordering: What the heads are ordered by.
        chance: That count is drawn from the binomial distribution of 4 heads with this chance.
        group_falls: The counts of the groups, [group]; drawn by default.
        groups: The number of groups.
        group_size: The number of answers in each group.
    """
    if group_falls is None:
        group_falls = rng.binomial(HEADS, chance, groups)
    counts = np.arange(HEADS + 1)
    correct = counts[:, None] <= np.repeat(group_falls, group_size)[None]
    zeros = np.zeros(HEADS + 1)
    return Curve(
        HeadGrid((Stack("encoder", (HEADS,)),)),
        "xx",
        "test",
        ordering,
        np.arange(HEADS),
        counts,
        correct,
        np.repeat(np.arange(groups), group_size),
        zeros,
        zeros,
        zeros + 1,
        0,
        0.0,
    )


def expected_area(chance: float) -> float:
    """The area expected of a falling curve; a group that falls after f heads has (f + 1/2) / 4."""
    falls = np.arange(HEADS + 1)
    area_by_falls = np.minimum((falls + 0.5) / HEADS, 1)
    orders = np.array([1, 4, 6, 4, 1])
    shares = orders * chance**falls * (1 - chance) ** falls[::-1]
    return float(area_by_falls @ shares)
