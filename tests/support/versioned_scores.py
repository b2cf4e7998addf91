"""Made-up scores under several versions of their method, for caches in which some are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.methods import METHODS
from headlab.results import RESULT_FORMAT, HeadScores, Store

GRID = HeadGrid((Stack("encoder", (2, 3)),))
OTHER_GRID = HeadGrid((Stack("encoder", (3, 2)),))


def versioned_scores(
    version: int | None,
    *,
    method: str = "shapley",
    language: str = "de",
    seed: int = 0,
    ablation: str = "zero",
    options: Mapping[str, Any] | None = None,
    has_intervals: bool = True,
    grid: HeadGrid = GRID,
) -> HeadScores:
    """Scores with values of their version.

    Args:
        version: As a spec has it: None for the first.
        method: Key of the method.
        language: Of the examples.
        seed: Of the run.
        ablation: What stands in the place of a removed head.
        options: Those that are not at their defaults.
        has_intervals: Whether the scores have intervals.
        grid: The heads.
    """
    method_spec: dict[str, Any] = {
        "name": method,
        "options": {**METHODS[method].recorded(METHODS[method].resolve({})), **(options or {})},
    }
    if version is not None:
        method_spec["version"] = version
    spec = {
        "format": RESULT_FORMAT,
        "model": {"name": "m", "revision": "r", "fingerprint": "f"},
        "task": {
            "name": "intents",
            "language": language,
            "split": "dev",
            "size": 48,
            "seed": 0,
            "data_hash": language,
        },
        "ablation": ablation,
        "method": method_spec,
        "seed": seed,
    }
    values = np.random.default_rng([version or 1, seed]).normal(size=grid.size)
    scores = HeadScores(
        grid,
        language,
        method,
        values,
        METHODS[method].estimand,
        METHODS[method].unit,
        10,
        1.5,
        spec=spec,
    )
    if has_intervals:
        scores = replace(scores, low=values - 0.1, high=values + 0.2)
    return scores


def keep_scores(root: Path, scores: HeadScores) -> str:
    """Store scores.

    Args:
        root: The cache.
        scores: The scores.

    Returns:
        The key of the stored result.
    """
    stored_run = Store(root).run(scores.spec)
    stored_run.finish(scores, {"created": "2026-11-21T05:00:00+00:00", "versions": {}})
    return stored_run.key


def tear(root: Path, key: str) -> None:
    """Cut off the end of a stored result.

    Args:
        root: The cache.
        key: Of the result.
    """
    path = root / key / "result.npz"
    path.write_bytes(path.read_bytes()[:-40])


def keys_in(root: Path) -> set[str]:
    """The names of all run folders of a cache.

    Args:
        root: The cache.
    """
    return {folder.name for folder in Store(root).folders()}
