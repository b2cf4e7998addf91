"""`headlab score` and `headlab curve`: scores of every head, and accuracy as the lowest-scoring heads are removed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.evaluate import as_split
from headlab.cli.output import (
    AsJson,
    Here,
    Workers,
    check_ablation,
    check_workers,
    chosen_task,
    print_json,
    progress_bar,
    stepping,
)
from headlab.cluster.pool import side_by_side
from headlab.jobs.score import CurveJob, ScoreJob
from headlab.json_types import Json
from headlab.methods.costs import caution, cost_of, refuse, remarks
from headlab.methods.method import Method
from headlab.methods.table import method as method_of
from headlab.records import omission_fields
from headlab.scores import POINT, Curve, HeadScores, curve_names, curve_points, curve_summary
from headlab.tasks.base import Task
from headlab.tasks.equal_texts import EqualTexts, equal_texts, equal_texts_notes, equal_texts_record

if TYPE_CHECKING:
    from headlab.cluster.distributed_game import Team
    from headlab.hooks.model import Model
    from headlab.records import Progress


# `headlab score`: scores of every head, stored in the cache.

MANY_FORWARDS = 2_000_000  # above the default method's maximum for a model of 144 heads


def score(
    job: ScoreJob,
    *,
    data: Path | None,
    here: Here,
    ray: Annotated[
        str | None,
        typer.Option(
            help="compute on Ray: local (processes here), auto (this machine's cluster) or its host:port"
        ),
    ] = None,
    workers: Workers = None,
    json: AsJson = False,
) -> None:
    """Score every head on dev. It can be interrupted; run the same command again to resume."""
    import headlab

    check_ablation(job.ablation)
    method = method_of(job.method)
    options = method.resolve(job.options)
    task = chosen_task(job.task, job.languages, data, job.label_map)
    model = here.load(job.model)
    refuse(method, model.grid.size)
    _warn(method, method.max_forwards(options, model.grid.size, job.size))
    check_workers(ray, workers)
    store = here.store()
    with progress_bar("loading") as show, _helpers(model, ray, workers) as team:
        board = Board(method.key, task.languages, show)

        def score_language(language: str, tick: Callable[[], None]) -> HeadScores:
            return headlab.score(
                model,
                task,
                language=language,
                method=method.key,
                seed=job.seed,
                split="dev",
                size=job.size,
                ablation=job.ablation,
                tick=tick,
                store=store,
                on_progress=partial(board.progress, language),
                helpers=team,
                **options,
            )

        side_by_side_count = 1 if team is None else team.pool.size
        scores_by_language = side_by_side(
            task.languages, score_language, side_by_side_count, board.draw
        )
    counts_by_language = {
        language: equal_texts_of(task, language, "dev", job.size) for language in scores_by_language
    }
    say_equal_texts(counts_by_language)
    if json:
        rows = {
            language: record(scores) | equal_texts_record(counts_by_language[language])
            for language, scores in scores_by_language.items()
        }
        print_json({"languages": rows})
    else:
        print_table(scores_by_language)


def equal_texts_of(
    task: Task, language: str, split: str, size: int | None
) -> tuple[EqualTexts, ...]:
    """How many of a result's examples have a text that another split has too."""
    return equal_texts(
        task, language, as_split(split), task.examples(language, as_split(split), size)
    )


def say_equal_texts(counts_by_language: Mapping[str, Sequence[EqualTexts]]) -> None:
    """Print on stderr what the counts say."""
    for language, counts in counts_by_language.items():
        for note in equal_texts_notes(counts):
            typer.echo(f"{language}: {note}", err=True)


@contextmanager
def _helpers(model: Model, address: str | None, workers: int | None) -> Iterator[Team | None]:
    """The workers of a Ray cluster, if one is named."""
    if address is None:
        yield None
        return
    from headlab.cluster.rays import team

    with team(model, address, workers) as found:
        yield found


class Board:
    """Progress of several languages as one line; runs report from their own threads."""

    def __init__(
        self, title: str, languages: Sequence[str], show: Callable[[str, int, int], None]
    ) -> None:
        self._title, self._show, self._of = title, show, len(languages)
        self._seen: dict[str, Progress] = {}

    def progress(self, language: str, step: Progress) -> None:
        """Record one language's progress."""
        self._seen[language] = step

    def draw(self) -> None:
        """Show the progress recorded so far."""
        steps = dict(self._seen)
        at_work = [name for name, step in steps.items() if step.done < step.total]
        if steps:
            title = f"{self._title} {', '.join(at_work) or next(reversed(steps))} ({len(steps)}/{self._of})"
            self._show(
                title, sum(s.done for s in steps.values()), sum(s.total for s in steps.values())
            )


def _warn(method: Method, forwards: int) -> None:
    """Warn if a method may take a very large number of forward passes."""
    if forwards > MANY_FORWARDS:
        warnings.warn(
            f"{method.key} takes up to {forwards:,} forward passes for each language ({method.costs.words}); stop it with "
            "Ctrl-C and resume with the same command, or make it shorter with -o samples=N",
            stacklevel=1,
        )


def record(scores: HeadScores) -> dict[str, Json]:
    """One language's scores as JSON; arrays are `[layer][head]`."""
    arrays = {"values": scores.values, "half_width": scores.half_width, **scores.arrays()}
    del arrays["halves"]
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
    if caution(scores.method):
        row["caution"] = caution(scores.method)
    notes: list[Json] = [*remarks([scores])]
    if notes:
        row["notes"] = notes
    return row | omission_fields(scores.omissions)


def print_table(found: dict[str, HeadScores]) -> None:
    """Print one line per language: results, cost and caution."""
    for language, scores in found.items():
        typer.echo(f"{language:6} {scores.estimand}: {'; '.join(_parts(scores))}")


def _parts(scores: HeadScores) -> Iterator[str]:
    cost = cost_of(scores)
    if cost.median_width is None:
        yield "no intervals"
    else:
        if cost.helpful is not None:
            yield f"helpful {cost.helpful}, harmful {cost.harmful}, narrow {cost.narrow} of {scores.grid.size}"
        yield f"half-width median {cost.median_width:.4f}, largest {cost.largest_width:.4f}"
    if cost.samples is not None:
        least, median, most = cost.samples
        yield f"samples a head {least} / {median:g} / {most}"
    yield f"{cost.forwards} forwards, {cost.seconds:.0f} s"
    yield from remarks([scores])
    if scores.omissions is not None and scores.omissions.sentence:
        yield scores.omissions.sentence


# `headlab curve`: accuracy as heads are removed, lowest score first.


def curve(
    job: CurveJob,
    *,
    data: Path | None,
    dev_size: int,
    here: Here,
    json: AsJson = False,
) -> None:
    """Remove heads one after another, lowest dev score first, and measure the accuracy.

    Scores come from the cache or are computed first. It can be interrupted; run the same command again to resume.
    """
    import headlab
    from headlab.scores import counts

    check_ablation(job.ablation)
    method = method_of(job.method)
    options = method.resolve(job.options)
    task = chosen_task(job.task, job.languages, data, job.label_map)
    task.check(task.languages[0], job.split)
    model = here.load(job.model)
    refuse(method, model.grid.size)
    counts(model.grid.size, job.points)  # raises before anything is scored
    store = here.store()
    curves_by_language: dict[str, Curve] = {}
    with progress_bar("loading") as show:
        for number, language in enumerate(task.languages, start=1):
            place = f"{language} ({number}/{len(task.languages)})"
            scores = headlab.score(
                model,
                task,
                language=language,
                method=method.key,
                size=dev_size,
                seed=job.seed,
                ablation=job.ablation,
                store=store,
                on_progress=stepping(show, f"{method.key} {place}"),
                split="dev",
                tick=None,
                helpers=None,
                **options,
            )
            curves_by_language[language] = headlab.prune_curve(
                model,
                task,
                language=language,
                scores=scores,
                split=job.split,
                size=job.size,
                points=job.points,
                seed=job.seed,
                ablation=job.ablation,
                store=store,
                on_progress=stepping(show, f"curve {place}"),
            )
    counts_by_language = {
        language: equal_texts_of(task, language, job.split, job.size)
        for language in curves_by_language
    }
    say_equal_texts(counts_by_language)
    if json:
        rows = {
            language: curve_record(measured) | equal_texts_record(counts_by_language[language])
            for language, measured in curves_by_language.items()
        }
        print_json({"split": job.split, "languages": rows})
    else:
        typer.echo(told(list(curves_by_language.values())))


def curve_record(curve: Curve) -> dict[str, Json]:
    """One language's curve as JSON: lists [point], and the heads in order of removal."""
    arrays = ("removed", "accuracy", "difference", "low", "high", "p_values")
    return {name: getattr(curve, name).tolist() for name in arrays} | {
        "n": curve.n,
        "ordering": curve.ordering,
        "order": [list(curve.grid.heads[i]) for i in curve.order.tolist()],
        "area": curve.area,
        "heads_until_point_lost": {
            by: curve.heads_until(POINT, by) for by in ("estimate", "interval")
        },
        "caution": curve.caution,
        "seconds": curve.seconds,
        "example_forwards": curve.example_forwards,
        "values_sha256": curve.values_sha256(),
        **omission_fields(curve.omissions),
    }


def told(curves: Sequence[Curve]) -> str:
    """Every point of each curve as a Markdown table under its title, then a row a curve that sums it up."""
    points = map(curve_points, curves, curve_names(curves))
    return "\n\n".join(
        [*(f"{one.title}\n\n{one.markdown()}" for one in points), curve_summary(curves).markdown()]
    )
