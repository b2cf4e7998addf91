"""Which answers a mask changes: each with its text, its label, and the model's answers before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np
import torch

from headlab.core import CHANGES, Change, Floats, HeadlabError, Ints, Table
from headlab.evaluation.encoding import IGNORED
from headlab.evaluation.evaluator import Batch, Evaluator
from headlab.evaluation.inputs import Words, label_order
from headlab.hooks import Model
from headlab.masks import Mask, full_mask
from headlab.tasks import Example, Task

COLUMNS = ("id", "kind", "text", "pair", "word", "label", "before", "after", "p_before", "p_after")
FORMATS = ("", "", "", "", "", "", "", "", ".2f", ".2f")


def changes(evaluator: Evaluator, mask: Mask, *, ablation: str = "zero") -> list[Change]:
    """All answers of the evaluator's examples that a mask changes, in the examples' order.

    Raises HeadlabError for a task without labels, and for another model's mask.
    """
    task = evaluator.task
    if not task.named:
        raise HeadlabError(
            f"task {task.name} has no labels, so no answer can be right before and wrong after; choose a task that "
            "labels texts or words, or has choices",
            code="changes.no_labels",
        )
    whole, masked = evaluator.evaluate(), evaluator.evaluate(mask, ablation=ablation)
    places = np.flatnonzero(whole.predicted != masked.predicted)
    units = evaluator.inputs.units
    row, first = np.repeat(np.arange(len(units)), units), np.repeat(np.cumsum(units) - units, units)
    rows = np.unique(row[places])
    before, after = (
        probabilities(evaluator, rows, kept, how)
        for kept, how in ((full_mask(evaluator.model.grid), "zero"), (mask, ablation))
    )
    at = {int(place): n for n, place in enumerate(np.flatnonzero(np.isin(row, rows)))}
    found = []
    for place in places.tolist():
        old, new = int(whole.predicted[place]), int(masked.predicted[place])
        right = int(evaluator.inputs.answers[place])
        example, part = evaluator.examples[row[place]], place - int(first[place])
        names = task.names_of(example)
        kind = CHANGES[0 if new == right else 1 if old == right else 2]
        told = Change(
            whole.ids[place], kind, example.text, example.pair, _word(evaluator, int(row[place]), part),
            names[right], names[old], names[new],
            float(before[at[place], old]), float(after[at[place], new]),
        )  # fmt: skip
        found.append(told)
    return found


def _word(evaluator: Evaluator, row: int, part: int) -> str | None:
    """The word that an example's answer number `part` is of; None where the text itself is labelled."""
    words = evaluator.examples[row].words
    return words[evaluator.inputs.words[row][part]] if isinstance(evaluator.inputs, Words) else None


def probabilities(evaluator: Evaluator, rows: Ints, mask: Mask, ablation: str = "zero") -> Floats:
    """Probabilities of the task's labels for all answers of some examples, float [answer, label], row by row."""

    def shares(batch: Batch, logits: torch.Tensor, targets: torch.Tensor) -> list[Floats]:
        asked, found = targets != IGNORED, logits.to(torch.float64).softmax(dim=-1)
        return [
            found[n][asked[n]].reshape(-1, found.shape[-1]).cpu().numpy()
            for n in range(len(batch.rows))
        ]

    parts = evaluator.each(rows, mask, ablation, shares)
    return np.concatenate(parts) if parts else np.zeros((0, len(evaluator.task.labels)))


def answers_to(
    model: Model, task: Task, example: Example, masks: Sequence[Mask]
) -> tuple[list[str | None], list[Floats]]:
    """What a model says of one example, which need not be the task's, under each mask: as an evaluator has it.

    Returns the labelled words (None for the text itself), and for each mask the probabilities of the task's labels,
    float [answer, label].  Raises HeadlabError for a task without labels, and for a model that does not suit it.
    """
    if not task.labels:
        raise HeadlabError(
            f"task {task.name} has no labels to answer with; choose a task that labels texts or words",
            code="changes.no_labels",
        )
    label_order(model, task)  # known from here on, also without its examples
    evaluator = Evaluator(
        model, replace(task, read=lambda *_: (example,)), task.languages[0], size=1
    )
    words = [_word(evaluator, 0, part) for part in range(int(evaluator.inputs.units[0]))]
    return words, [probabilities(evaluator, np.array([0]), mask) for mask in masks]


def table(found: Sequence[Change], language: str) -> Table:
    """The changes of one language as a table."""
    return Table(
        f"changes-{language}", f"Answers that change, {language}", ("language", *COLUMNS), ("", *FORMATS),
        tuple((language, *astuple(one)) for one in found),
    )  # fmt: skip
