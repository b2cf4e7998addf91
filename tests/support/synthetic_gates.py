"""Made-up learned gates, as `headlab.training.l0_learn` stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import HeadGrid, Stack
from headlab.results import LearnedGates, Store
from headlab.training.l0_options import options_of

GRID = HeadGrid((Stack("encoder", (4, 4, 3)),))
THREE_STACKS = HeadGrid(
    (Stack("encoder", (4, 4)), Stack("decoder", (4, 4)), Stack("cross", (4, 4)))
)
STEPS = 100
HISTORY = 6


def made_gates(
    language: str = "de",
    weight: float = 0.01,
    *,
    model: str = "e5-small-intents",
    task: str = "intents",
    grid: HeadGrid = GRID,
    fingerprint: str = "0" * 64,
    closed_count: int | None = None,
    seed: int = 0,
    model_of_its_own: dict[str, Any] | None = None,
    split: str = "train",
    **options: Any,
) -> LearnedGates:
    """Gates of which the first `closed` close one after another, while the last stays undecided.

    Args:
        language: The language.
        weight: Weight of the penalty.
        model: Name of the model.
        task: Name of the task.
        grid: Its heads.
        fingerprint: Of the model.
        closed: How many gates close; by default more for a larger weight.
        seed: Seed of the noise.
        model_of_its_own: Identity of the model that was trained together with the gates, if any.
        split: The split that the gates learned on.
        options: Options of the learning.
    """
    gate_options = options_of(
        {"weight": weight, "steps": STEPS, "history": HISTORY, **options}, seed
    )
    if closed_count is None:
        closed_count = min(grid.size, round(grid.size * 8 * weight))
    rng = np.random.default_rng([seed, *language.encode()])
    has_gate = gate_options.heads_with_gate(grid)
    steps = np.array(gate_options.times, np.int64)
    share_of_steps = steps / steps[-1]
    end_log_alpha = np.where(np.arange(grid.size) < closed_count, -4.0, 4.0) + rng.normal(
        0, 0.1, grid.size
    )
    end_log_alpha[-1] = (
        gate_options.concrete.even_log_alpha + 0.3
    )  # 1 is only slightly likelier than 0
    start_log_alpha = gate_options.concrete.start(gate_options.start)
    log_alpha = (
        start_log_alpha + share_of_steps[:, None] * (end_log_alpha - start_log_alpha)
    ).astype(np.float32)
    log_alpha[:, ~has_gate] = np.nan
    open_probability = 1 / (
        1 + np.exp(gate_options.concrete.level(0) - log_alpha[:, has_gate].astype(float))
    )
    loss = np.r_[np.nan, 0.5 - 0.3 * share_of_steps[1:]]
    closed_share = closed_count / grid.size
    spec = {
        "format": 1, "kind": "gates", "version": 1, "ablation": "zero", "seed": seed, "options": gate_options.record(),
        "model": {"name": model, "revision": "made-up", "fingerprint": fingerprint},
        "task": {"name": task, "language": language, "split": split, "size": 900, "seed": 0, "data_hash": "x"},
    }  # fmt: skip
    return LearnedGates(
        grid,
        language,
        steps,
        log_alpha,
        loss,
        weight * open_probability.sum(axis=1),
        float(weight),
        3200,
        12.0,
        gate_options.concrete,
        {"dev": made_evaluation(512, closed_share), "test": made_evaluation(1000, closed_share)},
        spec,
        model_of_its_own or {},
        ("Made up for a test.",),
    )


def made_evaluation(n: int, lost_share: float) -> dict[str, Any]:
    """The evaluation of a mask, on `n` examples, that loses a tenth of `lost_share` in accuracy."""
    gain = -0.1 * lost_share
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


def keep_gates(root: Path, gates: LearnedGates) -> str:
    """Write gates as a finished run.

    Returns:
        The key of the run.
    """
    stored_run = Store(root).run(gates.spec)
    stored_run.finish(
        gates,
        {"created": "2026-11-22T01:00:00+00:00", "versions": {"headlab": "0.7"}, "device": "cpu"},
    )
    return stored_run.key
