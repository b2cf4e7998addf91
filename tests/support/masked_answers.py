"""Planted scores of a tiny model, and its answers under a mask, for studies of pruned heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.tasks import Task
from support.tiny_task import tiny_task

HARMFUL_HEADS = (2, 5, 7)
VALUES = np.array([0.3, 0.1, -0.2, 0.0, 0.05, -0.4, 0.2, -0.1, -0.15, 0.02, 0.01, 0.03])


def correct_answers(
    model: Model,
    language: str,
    kept: Any,
    split: Any = "test",
    size: int | None = None,
    task: Task | None = None,
) -> list[bool]:
    """Which answers are right under a mask, by a new evaluator.

    Args:
        model: The model to evaluate.
        language: The language of the examples.
        kept: Whether each head is kept, [head].
        split: The split of the examples.
        size: How many examples are evaluated; all by default.
        task: The task of the examples; the tiny task by default.
    """
    evaluator = Evaluator(model, task or tiny_task(), language, split, size)
    evaluation = evaluator.evaluate(Mask(model.grid, np.array(kept)))
    return [bool(is_right) for is_right in evaluation.correct]
