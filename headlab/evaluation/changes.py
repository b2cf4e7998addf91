"""Answers that a mask changes: text, label, and the model's answers before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np
import torch

from headlab.core import CHANGE_KINDS, Change, Floats, HeadlabError, Ints, Table
from headlab.evaluation.encoding import NO_TARGET
from headlab.evaluation.evaluator import Batch, Evaluator
from headlab.evaluation.inputs import WordInputs, label_order
from headlab.hooks import Model
from headlab.masks import Mask, full_mask
from headlab.tasks import Example, Task

COLUMNS = ("id", "kind", "text", "pair", "word", "label", "before", "after", "p_before", "p_after")
FORMATS = ("", "", "", "", "", "", "", "", ".2f", ".2f")


def changes(evaluator: Evaluator, mask: Mask, *, ablation: str = "zero") -> list[Change]:
    """All answers of the evaluator's examples that a mask changes, in the examples' order.

    Args:
        evaluator: Of the examples.
        mask: Of the evaluator's model.
        ablation: What stands in the place of a removed head: "zero" or "mean".

    Raises:
        HeadlabError: The task has no labels, or the mask is another model's.
    """
    task = evaluator.task
    if not task.has_named_answers:
        raise HeadlabError(
            f"task {task.name} has no labels, so no answer can be right before and wrong after; choose a task that "
            "labels texts or words, or has choices",
            code="changes.no_labels",
        )
    baseline = evaluator.evaluate()
    evaluation = evaluator.evaluate(mask, ablation=ablation)
    answer_indices = np.flatnonzero(baseline.predicted != evaluation.predicted)
    answer_counts = evaluator.inputs.units
    example_of_answer = np.repeat(np.arange(len(answer_counts)), answer_counts)
    first_answer_of_example = np.cumsum(answer_counts) - answer_counts
    changed_examples = np.unique(example_of_answer[answer_indices])
    no_heads_off = full_mask(evaluator.model.grid)
    p_before = probabilities(evaluator, changed_examples, no_heads_off, "zero")
    p_after = probabilities(evaluator, changed_examples, mask, ablation)
    answers_with_p = np.flatnonzero(np.isin(example_of_answer, changed_examples))
    probability_rows = {int(index): row for row, index in enumerate(answers_with_p)}
    changed_answers = []
    for answer_index in answer_indices.tolist():
        example_index = int(example_of_answer[answer_index])
        answer_number = answer_index - int(first_answer_of_example[example_index])
        probability_row = probability_rows[answer_index]
        example = evaluator.examples[example_index]
        label_names = task.names_of(example)
        right_label = int(evaluator.inputs.answers[answer_index])
        old_label = int(baseline.predicted[answer_index])
        new_label = int(evaluation.predicted[answer_index])
        change = Change(
            id=baseline.ids[answer_index],
            kind=_kind_of_change(right_label, old_label, new_label),
            text=example.text,
            pair=example.pair,
            word=_word(evaluator, example_index, answer_number),
            label=label_names[right_label],
            before=label_names[old_label],
            after=label_names[new_label],
            p_before=float(p_before[probability_row, old_label]),
            p_after=float(p_after[probability_row, new_label]),
        )
        changed_answers.append(change)
    return changed_answers


def _kind_of_change(right_label: int, old_label: int, new_label: int) -> str:
    """Whether a changed answer became right, was right, or is wrong both times."""
    becomes_right, becomes_wrong, stays_wrong = CHANGE_KINDS
    if new_label == right_label:
        return becomes_right
    if old_label == right_label:
        return becomes_wrong
    return stays_wrong


def _word(evaluator: Evaluator, example_index: int, answer_number: int) -> str | None:
    """The word of one of an example's answers; None where the text itself is labelled."""
    inputs = evaluator.inputs
    if not isinstance(inputs, WordInputs):
        return None
    word_index = inputs.words[example_index][answer_number]
    return evaluator.examples[example_index].words[word_index]


def probabilities(evaluator: Evaluator, rows: Ints, mask: Mask, ablation: str = "zero") -> Floats:
    """Probabilities of the task's labels for all answers of some examples, row by row.

    Args:
        evaluator: Of the examples.
        rows: Indices of the examples, int [row].
        mask: Of the evaluator's model.
        ablation: What stands in the place of a removed head.

    Returns:
        float [answer, label].
    """

    def softmax_of_answers(
        batch: Batch, logits: torch.Tensor, targets: torch.Tensor
    ) -> list[Floats]:
        is_answer = targets != NO_TARGET
        shares = logits.to(torch.float64).softmax(dim=-1)
        label_count = shares.shape[-1]
        shares_by_example = []
        for batch_row in range(len(batch.rows)):
            answer_shares = shares[batch_row][is_answer[batch_row]].reshape(-1, label_count)
            shares_by_example.append(answer_shares.cpu().numpy())
        return shares_by_example

    probabilities_by_example = evaluator.each(rows, mask, ablation, softmax_of_answers)
    if not probabilities_by_example:
        return np.zeros((0, len(evaluator.task.labels)))
    return np.concatenate(probabilities_by_example)


def answers_to(
    model: Model, task: Task, example: Example, masks: Sequence[Mask]
) -> tuple[list[str | None], list[Floats]]:
    """What a model answers to one example under each mask, computed as an evaluator does.

    Args:
        model: A model of the task.
        task: A task with labels.
        example: Need not be one of the task's.
        masks: Of the model.

    Returns:
        The labelled words (None for the text itself), and for each mask the probabilities of the
        task's labels, float [answer, label].

    Raises:
        HeadlabError: The task has no labels, or the model does not suit it.
    """
    if not task.labels:
        raise HeadlabError(
            f"task {task.name} has no labels to answer with; choose a task that labels texts or words",
            code="changes.no_labels",
        )
    label_order(model, task)  # cached from here on, as the task below has one example only
    evaluator = Evaluator(
        model, replace(task, read=lambda *_: (example,)), task.languages[0], size=1
    )
    words = [_word(evaluator, 0, part) for part in range(int(evaluator.inputs.units[0]))]
    return words, [probabilities(evaluator, np.array([0]), mask) for mask in masks]


def table(changed_answers: Sequence[Change], language: str) -> Table:
    """The changes of one language as a table."""
    rows = [(language, *astuple(change)) for change in changed_answers]
    return Table(
        f"changes-{language}",
        f"Answers that change, {language}",
        ("language", *COLUMNS),
        ("", *FORMATS),
        tuple(rows),
    )
