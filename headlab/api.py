"""`headlab.evaluate`: accuracy under a mask in every language of a task, against the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType

from headlab.core import (
    Comparison,
    Evaluation,
    Progress,
    ReportProgress,
    Shown,
    require_seed,
    require_type,
    shown_progress,
)
from headlab.evaluation import Evaluator, compare, require_streaming
from headlab.evaluation import accuracy_interval as accuracy_interval
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.tasks import DEV_SIZE, Split, Task


class Report(dict[str, Comparison | Evaluation], Shown):
    """Evaluations by language; `str` gives a table, and a notebook shows one."""

    @property
    def languages(self) -> Mapping[str, Comparison | Evaluation]:
        """The evaluations as a plain mapping."""
        return dict(self)

    def __str__(self) -> str:
        return "\n".join(map(evaluation_line, self.values()))


def evaluation_line(row: Comparison | Evaluation) -> str:
    """One language as a line of text, in percent and points.

    Then what of its examples is not counted, if anything.
    """
    omission_text = "" if row.omissions is None else row.omissions.sentence
    if omission_text:
        omission_text = f"  ({omission_text})"
    if isinstance(row, Evaluation):
        low, high = accuracy_interval(row)
        return (
            f"{row.language:6} {row.accuracy:6.1%}  [{low:.1%}, {high:.1%}]  "
            f"n={row.n}{omission_text}"
        )
    points, lower, upper = (f"{100 * value:+.1f}" for value in (row.difference, row.low, row.high))
    return (
        f"{row.language:6} {row.accuracy:6.1%}  untouched {row.baseline:.1%}  difference {points} "
        f"points [{lower}, {upper}]  p={row.p:.3g}  right +{row.flipped_right} / wrong "
        f"+{row.flipped_wrong}  n={row.n}{omission_text}"
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
    on_progress: ReportProgress | None = None,
    progress: bool | None = None,
) -> Report:
    """Accuracy in every language of the task; with a mask, paired with the baseline.

    Args:
        model: The model.
        task: The task.
        mask: The mask; None for the baseline alone.
        split: Split of the examples.
        size: Number of examples of each language; None for all.
        ablation: What a removed head outputs, one of `headlab.core.ABLATIONS`; streaming may have its
            sizes, "streaming:4,64".
        seed: Seed of the bootstrap.
        on_progress: Called between batches, counted in thousandths of a language; may raise to
            stop.
        progress: Whether a bar shows the progress; None for one in a notebook and on a terminal,
            unless `on_progress` is given.

    Raises:
        HeadlabError: For a mask of another model or a task that does not fit the model.
    """
    require_type("task", task, Task, "a task that headlab.task returns")
    require_type("mask", mask, (Mask, NoneType), "a mask; headlab.load_mask reads one from a file")
    require_seed(seed)
    report = Report()
    with shown_progress("evaluate", progress, on_progress) as report_progress:
        for index, language in enumerate(task.languages):
            evaluator = Evaluator(model, task, language, split, size)
            _report_between_batches(
                evaluator, report_progress, task.languages, index, passes=1 if mask is None else 2
            )
            report[language] = evaluate_language(evaluator, mask, ablation=ablation, seed=seed)
    return report


UNITS_A_LANGUAGE = 1000
"""Progress is counted in thousandths of a language."""


def _report_between_batches(
    evaluator: Evaluator,
    report_progress: ReportProgress,
    languages: Sequence[str],
    index: int,
    *,
    passes: int,
) -> None:
    """Have an evaluator report how far the evaluation of all languages is.

    Args:
        evaluator: Of one language.
        report_progress: Called between batches.
        languages: All languages of the evaluation.
        index: Of the evaluator's language among them.
        passes: How often the evaluator will run over its examples.
    """
    forwards_expected = passes * len(evaluator.examples)

    def report() -> None:
        share = min(1.0, evaluator.forwards / forwards_expected)
        units_done = round((index + share) * UNITS_A_LANGUAGE)
        total = len(languages) * UNITS_A_LANGUAGE
        report_progress(Progress(units_done, total, languages[index]))

    evaluator.tick = report


def evaluate_language(
    evaluator: Evaluator, mask: Mask | None, *, ablation: str = "zero", seed: int = 0
) -> Comparison | Evaluation:
    """One language of `evaluate`, with an evaluator that may be asked for more."""
    require_streaming(evaluator.model, ablation)  # also where no mask needs it
    baseline = evaluator.evaluate()
    if mask is None:
        return baseline
    return compare(baseline, evaluator.evaluate(mask, ablation=ablation), seed)
