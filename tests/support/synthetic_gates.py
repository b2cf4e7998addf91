"""Made-up learned gates, as `headlab.training.l0_learn` keeps them, so that the page has something to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.results import LearnedGates, Store
from headlab.training.l0_options import options_of

GRID = HeadGrid((Stack("encoder", (4, 4, 3)),))
THREE = HeadGrid((Stack("encoder", (4, 4)), Stack("decoder", (4, 4)), Stack("cross", (4, 4))))
STEPS = 100
TIMES = 6


def made_gates(
    language: str = "de",
    weight: float = 0.01,
    *,
    model: str = "e5-small-intents",
    task: str = "intents",
    grid: HeadGrid = GRID,
    fingerprint: str = "0" * 64,
    closed: int | None = None,
    seed: int = 0,
    model_of_its_own: dict[str, Any] | None = None,
    split: str = "train",
    **options: Any,
) -> LearnedGates:
    """Gates of which the first `closed` close one after another, by default more for a larger weight; one stays unsure.

    Args:
        options: As the learning is told.
        model_of_its_own: What a model that was trained along is known by.
    """
    told = options_of({"weight": weight, "steps": STEPS, "history": TIMES, **options}, seed)
    if closed is None:
        closed = min(grid.size, round(grid.size * 8 * weight))
    rng = np.random.default_rng([seed, *language.encode()])
    has = told.heads_with_gate(grid)
    steps = np.array(told.times, np.int64)
    share = steps / steps[-1]
    end = np.where(np.arange(grid.size) < closed, -4.0, 4.0) + rng.normal(0, 0.1, grid.size)
    end[-1] = told.concrete.even + 0.3  # likelier 1 than 0, but not by much
    start = told.concrete.start(told.start)
    log_alpha = (start + share[:, None] * (end - start)).astype(np.float32)
    log_alpha[:, ~has] = np.nan
    likely = 1 / (1 + np.exp(told.concrete.level(0) - log_alpha[:, has].astype(float)))
    loss = np.r_[np.nan, 0.5 - 0.3 * share[1:]]
    lost = closed / grid.size
    spec = {
        "format": 1, "kind": "gates", "version": 1, "ablation": "zero", "seed": seed, "options": told.record(),
        "model": {"name": model, "revision": "made-up", "fingerprint": fingerprint},
        "task": {"name": task, "language": language, "split": split, "size": 900, "seed": 0, "data_hash": "x"},
    }  # fmt: skip
    return LearnedGates(
        grid,
        language,
        steps,
        log_alpha,
        loss,
        weight * likely.sum(axis=1),
        float(weight),
        3200,
        12.0,
        told.concrete,
        {"dev": measured(512, lost), "test": measured(1000, lost)},
        spec,
        model_of_its_own or {},
        ("Made up for a test.",),
    )


def measured(n: int, lost: float) -> dict[str, Any]:
    """What a mask is worth that loses a tenth of `lost`."""
    gain = -0.1 * lost
    return {
        "n": n,
        "examples": n,
        "accuracy": 0.9 + gain,
        "accuracy_low": 0.88 + gain,
        "accuracy_high": 0.92 + gain,
        "baseline": 0.9,
        "difference": gain,
        "low": gain - 0.01,
        "high": gain + 0.01,
        "p": 0.04,
        "flipped_right": 3,
        "flipped_wrong": 5,
        "kept": 1,
        "undecided": 1,
    }


def keep(root: Path, gates: LearnedGates) -> str:
    """Write gates as a finished run; its key."""
    run = Store(root).run(gates.spec)
    run.finish(
        gates,
        {"created": "2026-11-22T01:00:00+00:00", "versions": {"headlab": "0.7"}, "device": "cpu"},
    )
    return run.key
