"""`headlab.evaluate`: accuracy under a mask in every language of a task, against the untouched model."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType

from headlab.core import Comparison, Evaluation, require_seed, require_type
from headlab.evaluation import Evaluator, accuracy_interval, compare
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.tasks import DEV_SIZE, Split, Task


class Report(dict[str, Comparison | Evaluation]):
    """Evaluations by language; `str` gives a table."""

    @property
    def languages(self) -> Mapping[str, Comparison | Evaluation]:
        """The evaluations as a plain mapping."""
        return dict(self)

    def __str__(self) -> str:
        return "\n".join(map(describe, self.values()))


def describe(row: Comparison | Evaluation) -> str:
    """One language as a line of text, in percent and points.

    Then what of its examples is not counted, if anything.
    """
    omitted = "" if row.omissions is None else row.omissions.sentence
    if omitted:
        omitted = f"  ({omitted})"
    if isinstance(row, Evaluation):
        low, high = accuracy_interval(row)
        return f"{row.language:6} {row.accuracy:6.1%}  [{low:.1%}, {high:.1%}]  n={row.n}{omitted}"
    points, lower, upper = (f"{100 * value:+.1f}" for value in (row.difference, row.low, row.high))
    return (
        f"{row.language:6} {row.accuracy:6.1%}  untouched {row.baseline:.1%}  difference {points} "
        f"points [{lower}, {upper}]  p={row.p:.3g}  right +{row.flipped_right} / wrong "
        f"+{row.flipped_wrong}  n={row.n}{omitted}"
    )


def evaluate(
    model: Model,
    task: Task,
    mask: Mask | None = None,
    *,
    split: Split = "dev",
    size: int | None = DEV_SIZE,
    ablation: str = "zero",
    seed: int = 0,
) -> Report:
    """Accuracy in every language of the task; with a mask, paired with the untouched model.

    Args:
        seed: of the bootstrap.

    Raises:
        HeadlabError: For a mask of another model or a task that does not fit the model.
    """
    require_type("task", task, Task, "a task that headlab.task returns")
    require_type("mask", mask, (Mask, NoneType), "a mask; headlab.load_mask reads one from a file")
    require_seed(seed)
    found = Report()
    for language in task.languages:
        found[language] = evaluated(
            Evaluator(model, task, language, split, size), mask, ablation=ablation, seed=seed
        )
    return found


def evaluated(
    evaluator: Evaluator, mask: Mask | None, *, ablation: str = "zero", seed: int = 0
) -> Comparison | Evaluation:
    """One language of `evaluate`, with an evaluator that may be asked for more."""
    whole = evaluator.evaluate()
    return (
        whole if mask is None else compare(whole, evaluator.evaluate(mask, ablation=ablation), seed)
    )
