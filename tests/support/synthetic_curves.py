"""Made-up pruning curves, as `headlab.studies.curves` keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.results import Curve

GRID = HeadGrid((Stack("encoder", (3, 3)),))


def made_curve(
    language: str = "de", ordering: str = "shapley", seed: int = 0, **model: Any
) -> Curve:
    """A curve along which six heads are removed, with ever fewer right answers.

    The same arguments give the same curve.
    """
    rng = np.random.default_rng([seed, *language.encode(), *ordering.encode()])
    removed_counts = np.arange(GRID.size + 1)
    correct = rng.random((len(removed_counts), 40)) < (0.9 - 0.12 * removed_counts)[:, None]
    difference = correct.mean(axis=1) - correct[0].mean()
    width = np.where(removed_counts, 0.08, 0.0)
    p = np.where(removed_counts, 0.03, 1.0)
    spec = {
        "format": 1, "kind": "curve", "ablation": "zero", "seed": seed, "removed": removed_counts.tolist(),
        "model": {"name": "e5-small-intents", "revision": "made-up", "fingerprint": "0" * 64, **model},
        "task": {"name": "intents", "language": language, "split": "test", "size": 40, "seed": 0, "data_hash": "x"},
        "order": {"method": ordering, "options": {}, "task": "intents", "language": language, "split": "dev",
                  "ablation": "zero", "seed": seed, "run": "a" * 64},
    }  # fmt: skip
    return Curve(
        GRID,
        language,
        "test",
        ordering,
        rng.permutation(GRID.size),
        removed_counts,
        correct,
        np.arange(40),
        difference - width,
        difference + width,
        p,
        280,
        3.0,
        spec=spec,
    )
