"""Masks to share, and scores in a cache, of one made-up model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.masks import Mask
from headlab.results import HeadScores, Store
from support.cached_scores import made_scores

SHARED_GRID = HeadGrid((Stack("encoder", (2, 3)),))
COMMIT = "a" * 40
HUB_MODEL = {"name": "owner/tiny-bert", "revision": COMMIT, "fingerprint": "1" * 64}
FIGURE = {
    "accuracy": 0.612,
    "n": 1000,
    "accuracy_low": 0.58,
    "accuracy_high": 0.64,
    "baseline": 0.605,
    "difference": 0.007,
    "low": -0.002,
    "high": 0.016,
}


def shared_mask(**chosen: object) -> Mask:
    """A mask of a model of the hub that removes two of five heads, with figures on test."""
    scores = made_scores("th", "shapley", "1" * 64, name="owner/tiny-bert")
    choice = {
        "rule": "bottom",
        "k": 2,
        "method": "shapley",
        "estimand": "shapley-top50",
        "task": "intents",
        "languages": ["th"],
        "score": scores.spec.to_json(),
        "evaluated": {"test": {"task": "intents", "size": 1000, "languages": {"th": FIGURE}}},
        **chosen,
    }
    kept = np.array([True, False, True, True, False])
    return Mask(SHARED_GRID, kept, HUB_MODEL, choice, created="2026-11-21T09:30:00+00:00")


def mask_file(folder: Path, name: str = "m", **chosen: object) -> Path:
    """The file of such a mask in a folder."""
    path = folder / f"{name}.json"
    shared_mask(**chosen).save(path)
    return path


def kept_scores(store: Store, language: str = "de", method: str = "shapley") -> HeadScores:
    """Scores of the made-up model that a store now holds."""
    scores = made_scores(language, method, "1" * 64, name="owner/tiny-bert")
    store.run(scores.spec).finish(
        scores, {"created": "2026-11-21T05:00:00+00:00", "versions": {"headlab": "1"}}
    )
    return scores
