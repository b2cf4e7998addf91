"""The order of a split: random and seeded, so that its first examples are a fair subset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.tasks.base import Example


def in_order(examples: Sequence[Example], seed: int) -> tuple[Example, ...]:
    """Groups in a random order that depends on seed and number of groups alone; a group's examples side by side."""
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(example.group, []).append(example)
    groups = list(rows.values())
    return tuple(e for at in np.random.default_rng([seed, 11]).permutation(len(groups)) for e in groups[at])
