"""Tasks whose right answers are what a model gives under a mask."""

from __future__ import annotations

from dataclasses import replace

from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.tasks import Task
from support.tiny_task import tiny_task


def task_answered_by(model: Model, mask: Mask) -> Task:
    """The tiny task whose labels are what a model answers under a mask."""
    task = tiny_task()

    def read(language, split, seed):
        examples = task.read(language, split, seed)
        evaluator = Evaluator(model, task, language, split, None)
        predicted = evaluator.evaluate(mask).predicted
        return [
            replace(example, label=int(label))
            for example, label in zip(examples, predicted, strict=True)
        ]

    return replace(task, read=read)
