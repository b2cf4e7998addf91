"""`headlab score` and `headlab curve`: scores of every head, and accuracy as heads are removed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from headlab.cli.evaluate import as_split
from headlab.cli.job_run import print_line
from headlab.cli.output import (
    AsJson,
    ComputeSettings,
    RayAddress,
    ShowProgress,
    Workers,
    check_ablation,
    chosen_task,
    print_json,
    progress_bar,
    progress_callback,
    ray_workers,
)
from headlab.core import HeadlabError, Json, omission_fields
from headlab.jobs import JobPart
from headlab.jobs.local import LocalJob, LocalLab
from headlab.jobs.table import CurveJob, ScoreJob
from headlab.methods import caution, cost_of, remarks
from headlab.methods import method as method_of
from headlab.results import (
    AVERAGE_LIMIT,
    ONE_POINT,
    SAMPLING_ERROR_LIMIT,
    Curve,
    HeadScores,
    curve_names,
    curve_points,
    curve_summary,
    value_notes,
)
from headlab.tasks import EqualTexts, Task, equal_texts, equal_texts_notes, equal_texts_record

if TYPE_CHECKING:
    from headlab.core import Progress


# `headlab score`: scores of every head, stored in the cache.

MANY_FORWARDS = 2_000_000  # above the default method's maximum for a model of 144 heads


def score(
    job: ScoreJob,
    *,
    data: Path | None,
    compute: ComputeSettings,
    ray: RayAddress = None,
    workers: Workers = None,
    interval: Annotated[
        str | None,
        typer.Option(
            help="which intervals decide when a head is done, as -o interval=…: anytime, planned or "
            "average"
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Score every head on dev. It can be interrupted; run the same command again to resume."""
    check_ablation(job.ablation)
    task = chosen_task(job.task, job.languages, data, job.label_map)
    job = _with_interval(job, interval).resolved_on(task)
    lab = LocalLab(compute.store(), compute.load, device=compute.device)
    model = job.model_in(lab, task)
    job.check_model(model)
    _warn_if_costly(job, model.grid.size)
    with (
        progress_bar("loading") as show,
        ray_workers(model, ray, workers, job.ablation) as helpers,
    ):
        if helpers is not None:
            lab.helpers = helpers
            lab.languages_at_once = helpers.pool.size
        scores_by_language = job.scores(lab, ScoreProgress(task.languages, show), task)
    counts_by_language = {
        language: equal_texts_of(task, language, "dev", job.size) for language in scores_by_language
    }
    print_equal_texts(counts_by_language)
    if json:
        rows = {
            language: scores_record(scores) | equal_texts_record(counts_by_language[language])
            for language, scores in scores_by_language.items()
        }
        print_json({"languages": rows})
    else:
        print_scores(scores_by_language)


def _with_interval(job: ScoreJob, interval: str | None) -> ScoreJob:
    """The job with its method's option `interval` set, unless it is None.

    Raises:
        HeadlabError: -o sets the option to another value.
    """
    if interval is None:
        return job
    set_by_option = job.options.get("interval", interval)
    if set_by_option != interval:
        raise HeadlabError(
            f"--interval {interval} and -o interval={set_by_option} differ; give one of them",
            code="option.given_twice",
        )
    return job.model_copy(update={"options": {**job.options, "interval": interval}})


def equal_texts_of(
    task: Task, language: str, split: str, size: int | None
) -> tuple[EqualTexts, ...]:
    """How many of a result's examples have a text that another split has too."""
    return equal_texts(
        task, language, as_split(split), task.examples(language, as_split(split), size)
    )


def print_equal_texts(counts_by_language: Mapping[str, Sequence[EqualTexts]]) -> None:
    """Print on stderr what the counts say."""
    for language, counts in counts_by_language.items():
        for note in equal_texts_notes(counts):
            typer.echo(f"{language}: {note}", err=True)


class ScoreProgress(LocalJob):
    """Progress of several languages as one line, drawn between batches.

    Each language reports from its own thread.
    """

    def __init__(self, languages: Sequence[str], show: ShowProgress) -> None:
        """Nothing is scored yet.

        Args:
            languages: That are scored.
            show: Shows the line, and how much of how much is done.
        """
        super().__init__(show, print_line)
        self._languages_count = len(languages)
        self._progress_by_language: dict[str, Progress] = {}
        self._method = ""

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """The line says nothing of the whole job; see `part_progress`."""

    def part_progress(self, part: JobPart) -> Callable[[Progress], None]:
        """A callback that records how far one language is."""
        self._method = part.work

        def record_progress(step: Progress) -> None:
            self._progress_by_language[part.language] = step

        return record_progress

    def tick(self) -> None:
        """Show the progress recorded so far."""
        steps = dict(self._progress_by_language)
        if not steps:
            return
        at_work = [language for language, step in steps.items() if step.done < step.total]
        languages = ", ".join(at_work) or next(reversed(steps))
        self._show_progress(
            f"{self._method} {languages} ({len(steps)}/{self._languages_count})",
            sum(step.done for step in steps.values()),
            sum(step.total for step in steps.values()),
        )


def _warn_if_costly(job: ScoreJob, heads: int) -> None:
    """Warn if a job may take a very large number of forward passes.

    Args:
        job: It is resolved.
        heads: Of its model.
    """
    method = method_of(job.method)
    forwards = method.max_forwards(job.options, heads, job.size)
    if forwards > MANY_FORWARDS:
        warnings.warn(
            f"{method.key} takes up to {forwards:,} forward passes for each language "
            f"({method.costs.words}); stop it with Ctrl-C and resume with the same command, or "
            "make it shorter with -o samples=N",
            stacklevel=1,
        )


def scores_record(scores: HeadScores) -> dict[str, Json]:
    """One language's scores as JSON; arrays are `[layer][head]`."""
    arrays = {"values": scores.values, "half_width": scores.half_width, **scores.arrays()}
    del arrays["halves"]
    for name in ("sampling_error", "sample_means", "average_error"):  # that few methods have
        if arrays[name] is None:
            del arrays[name]
    row: dict[str, Json] = {
        name: None if array is None else scores.grid.nest(array) for name, array in arrays.items()
    }
    row |= {
        "estimand": scores.estimand,
        "unit": scores.unit,
        "level": scores.level,
        "seconds": scores.seconds,
        "example_forwards": scores.example_forwards,
        "values_sha256": scores.values_sha256(),
    }
    if scores.spec.players:
        row["players"] = scores.spec.players
    if caution(scores.method):
        row["caution"] = caution(scores.method)
    notes: list[Json] = [*remarks([scores])]
    if notes:
        row["notes"] = notes
    if scores.slopes is not None:
        row["slopes"] = scores.slopes.to_json()
    return row | omission_fields(scores.omissions)


def print_scores(scores_by_language: dict[str, HeadScores]) -> None:
    """Print one line per language: results, cost and caution."""
    for language, scores in scores_by_language.items():
        typer.echo(f"{language:6} {scores.estimand}: {'; '.join(_summary_parts(scores))}")


def _summary_parts(scores: HeadScores) -> Iterator[str]:
    cost = cost_of(scores)
    if scores.sampling_error is not None:
        yield (
            f"sampling error median {np.median(scores.sampling_error):.4f}, largest "
            f"{scores.sampling_error.max():.4f}, which {SAMPLING_ERROR_LIMIT}"
        )
    elif cost.median_half_width is None:
        yield "no intervals"
    else:
        if cost.helpful is not None:
            signs = f"helpful {cost.helpful}, harmful {cost.harmful}"
            yield f"{signs}, narrow {cost.narrow} of {scores.grid.size}"
        yield f"half-width median {cost.median_half_width:.4f}, largest {cost.largest_half_width:.4f}"
    if scores.average_error is not None:
        limit = AVERAGE_LIMIT.replace("heads", scores.grid.noun)
        yield f"mean average error {scores.average_error.mean():.4f}, which {limit}"
    if cost.samples is not None:
        min_samples, median_samples, max_samples = cost.samples
        for_each = "a head" if scores.grid.has_only_heads else "each"
        yield f"samples {for_each} {min_samples} / {median_samples:g} / {max_samples}"
    yield f"{cost.forwards} forwards, {cost.seconds:.0f} s"
    yield from remarks([scores])
    for note in value_notes([scores]):
        yield note.removesuffix(".")
    if scores.omissions is not None and scores.omissions.sentence:
        yield scores.omissions.sentence


# `headlab curve`: accuracy as heads are removed, lowest score first.


def curve(
    job: CurveJob,
    *,
    data: Path | None,
    dev_size: int,
    compute: ComputeSettings,
    json: AsJson = False,
) -> None:
    """Remove heads one after another, lowest dev score first, and measure the accuracy.

    Scores come from the cache or are computed first. It can be interrupted; run the same command
    again to resume.
    """
    check_ablation(job.ablation)
    task = chosen_task(job.task, job.languages, data, job.label_map)
    task.check(task.languages[0], job.split)
    job = job.resolved_on(task)
    lab = LocalLab(compute.store(), compute.load, device=compute.device)
    job.check_model(job.model_in(lab, task))
    with progress_bar("loading") as show:
        progress = CurveProgress(task.languages, show)
        curves_by_language = job.curves(lab, progress, task, job.ordering(dev_size))
    counts_by_language = {
        language: equal_texts_of(task, language, job.split, job.size)
        for language in curves_by_language
    }
    print_equal_texts(counts_by_language)
    if json:
        rows = {
            language: curve_record(language_curve)
            | equal_texts_record(counts_by_language[language])
            for language, language_curve in curves_by_language.items()
        }
        print_json({"split": job.split, "languages": rows})
    else:
        typer.echo(curves_markdown(list(curves_by_language.values())))


class CurveProgress(LocalJob):
    """Progress of the scores or the curve of one language after the other."""

    def __init__(self, languages: Sequence[str], show: ShowProgress) -> None:
        """Nothing is measured yet.

        Args:
            languages: That are measured.
            show: Shows what is measured, and how much of how much is done.
        """
        super().__init__(show, print_line)
        self._languages = list(languages)

    def progress(self, done: int, total: int, note: str, *, fresh: bool = False) -> None:
        """The line says nothing of the whole job; see `part_progress`."""

    def part_progress(self, part: JobPart) -> Callable[[Progress], None]:
        """A callback that shows how far the scores or the curve of a language are."""
        number = self._languages.index(part.language) + 1
        return progress_callback(
            self._show_progress, f"{part.work} {part.language} ({number}/{len(self._languages)})"
        )


def curve_record(curve: Curve) -> dict[str, Json]:
    """One language's curve as JSON: lists [point], and the heads in order of removal."""
    arrays = ("removed", "accuracy", "difference", "low", "high", "p_values")
    return {name: getattr(curve, name).tolist() for name in arrays} | {
        "n": curve.n,
        "ordering": curve.ordering,
        "order": [list(curve.grid.heads[i]) for i in curve.order.tolist()],
        "area": curve.area,
        "heads_until_point_lost": {
            criterion: curve.heads_until(ONE_POINT, criterion)
            for criterion in ("estimate", "interval")
        },
        "caution": curve.caution,
        "seconds": curve.seconds,
        "example_forwards": curve.example_forwards,
        "values_sha256": curve.values_sha256(),
        **omission_fields(curve.omissions),
    }


def curves_markdown(curves: Sequence[Curve]) -> str:
    """Every point of each curve as a Markdown table, then a table with a row for each curve."""
    tables = map(curve_points, curves, curve_names(curves))
    parts = [f"{table.title}\n\n{table.markdown()}" for table in tables]
    return "\n\n".join([*parts, curve_summary(curves).markdown()])
