"""Experiment jobs, and two kinds about smaller models: Pareto fronts, and what a mask saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from headlab.errors import HeadlabError
from headlab.masks import mask_from_json
from headlab.methods.table import DEFAULT_METHOD, method
from headlab.records import HeadGrid, content_key
from headlab.scores import HeadScores
from headlab.store import Run
from headlab.studies.table import METHOD, METHOD_OPTIONS, experiment, study
from headlab.tasks.base import Example, Split, Task
from headlab.worker.kinds.kind import (
    Estimate,
    Kind,
    Known,
    Lab,
    Part,
    about,
    measured,
    named,
    task_of,
    total,
    within,
)
from headlab.worker.kinds.score import LARGEST
from headlab.worker.runner import Running, WatchedStore
from headlab.worker.schemas import (
    ExperimentSpec,
    Forecast,
    FrontSpec,
    Measured,
    MeasureRequest,
    Refusal,
    WorthSpec,
)

if TYPE_CHECKING:
    from headlab.records import Progress
    from headlab.studies.run import Pieces


# Experiment jobs: an analysis from a paper, assembled from stored scores, answers and curves.

# Upper limits of options that are counts.
MOST = {
    "runs": 1000,
    "samples": 1 << 20,
    "points": 4096,
    "k": 1 << 20,
    "top": 1 << 20,
    "examples": 100_000,
}
TEXT = 1000


Experimental = TypeVar("Experimental", bound=ExperimentSpec)


def fill(spec: Experimental) -> Experimental:
    """The spec, filled in. Raises HeadlabError for anything unknown or invalid, or if the task's data are missing."""
    by_key = (
        study if isinstance(spec, FrontSpec) else experiment
    )  # a front has jobs of its own kind
    chosen_study, chosen = by_key(spec.experiment), task_of(spec, spec.languages)
    chosen_study.check_languages(len(chosen.languages))
    for place, about_it in ((METHOD, "method"), (METHOD_OPTIONS, "options of the method")):
        if place in spec.options:
            raise HeadlabError(
                f"give the {about_it} beside the options of {chosen_study.key}, not among them",
                code="experiment.option_misplaced",
            )
    full = chosen_study.resolve(options_of(spec))
    for split in ("dev", "test"):
        chosen.examples(chosen.languages[0], split, 1)
    own = {name: value for name, value in full.items() if name not in (METHOD, METHOD_OPTIONS)}
    return spec.model_copy(
        update={
            "languages": list(chosen.languages),
            "method": full.get(METHOD, DEFAULT_METHOD),
            "method_options": modest(within(dict(full.get(METHOD_OPTIONS) or {}), LARGEST)),
            "options": modest(own),
        }
    )


def modest(options: dict[str, Any]) -> dict[str, Any]:
    """The options, unchanged. Raises Refusal (422) if one exceeds its limit."""
    for name, value in options.items():
        if isinstance(value, dict):
            modest(within(value, LARGEST))
        if isinstance(value, str) and len(value) > TEXT:
            raise Refusal(
                f"{name} has {len(value)} characters; a job may have {TEXT} at most",
                422,
                code="job.text_too_long",
            )
    return within(options, MOST)


def options_of(spec: ExperimentSpec) -> dict[str, Any]:
    """The options as the experiment takes them, including the method and its options if it uses one."""
    beside = {METHOD: method(spec.method).key, METHOD_OPTIONS: dict(spec.method_options)}
    fits = study(spec.experiment).options
    given = {name: value for name, value in beside.items() if name in fits and value != {}}
    return {**spec.options, **given}


def pieces_of(
    lab: Lab, spec: ExperimentSpec, tick: Callable[[], None], running: Running | None = None
) -> Pieces:
    """The pieces that the experiment is assembled from.  running: is notified of what is stored."""
    from headlab.studies.run import Pieces

    model = lab.need(spec.model)
    told = None if running is None else PieceLog(running, model.grid)
    return Pieces(
        model,
        _ticking(lab.task(spec.task, spec.label_map).restricted(named(spec.languages)), tick),
        lab.store if told is None else WatchedStore(lab.store.root, kept=told),
        seed=spec.seed,
        dev_size=spec.dev_size,
        test_size=spec.test_size,
        ablation=spec.ablation,
        tick=tick,
        paces=lab.paces,
    )


def _ticking(task: Task, tick: Callable[[], None]) -> Task:
    """The task, calling `tick` before it reads a split: many languages may take a while."""

    def read(language: str, split: Split, seed: int) -> Sequence[Example]:
        tick()
        return task.read(language, split, seed)

    return replace(task, read=read)


class PieceLog:
    """Logs the pieces of a running job, each once, and makes unfinished scores available to look at."""

    def __init__(self, running: Running, grid: HeadGrid) -> None:
        self.running, self._grid = running, grid
        self._seen: set[str] = set()

    def __call__(self, run: Run, finished: bool) -> None:
        """Called when part of a run has been stored.  finished: whether all of it has."""
        kind = str(run.spec.get("kind", "scores"))
        language = str(run.spec["task"]["language"])
        if run.key not in self._seen:
            self._seen.add(run.key)
            if kind in ("scores", "curve"):
                self.running.began(run.folder.name, language)
            if not finished or kind == "answers":
                self.running.log(f"{language}: {_words(run)} started")
        if finished and kind != "answers":
            self.running.log(f"{language}: {_words(run)} stored")
        self.running.look = lambda: None if finished or kind != "scores" else _peek(run, self._grid)
        self.running.kept()


def _peek(run: Run, grid: HeadGrid) -> HeadScores | None:
    from headlab.methods.run import peek

    return peek(run, grid)


def _words(run: Run) -> str:
    kind, about = (
        run.spec.get("kind", "scores"),
        run.spec.get("method") or run.spec.get("order") or {},
    )
    name = about.get("name") or about.get("method") if isinstance(about, Mapping) else None
    return f"{name} {kind}" if name else str(kind)


def run(lab: Lab, running: Running, spec: ExperimentSpec) -> Mapping[str, Any]:
    """Make the report; stored pieces are not computed again."""
    from headlab.studies.run import run_experiment

    running.progress(0, 0, "checking the cache", fresh=True)
    pieces = pieces_of(lab, spec, running.tick, running)
    fresh = True

    def on_progress(step: Progress) -> None:
        nonlocal fresh
        running.progress(step.done, step.total, step.note, fresh=fresh)
        fresh = False

    report = run_experiment(
        spec.experiment, pieces, options=options_of(spec), on_progress=on_progress
    )
    done = max(1, pieces.forwards)
    running.progress(done, done, "the report is stored")
    return {"keys": [content_key(report.spec)]}


def foresee(spec: ExperimentSpec, known: Known) -> Estimate:
    """Forecast by the device's thread, which has the model: every piece's key depends on it."""
    if known.measured is not None and known.measured.forecast is not None:
        return Estimate(known.measured.forecast)
    unknown = Forecast(
        forwards=None, seconds=None, basis="what the cache lacks for it is not known yet"
    )
    language = named(spec.languages)[0]
    ask = MeasureRequest(
        model=spec.model, **about(spec), language=language, experiment=spec.model_dump()
    )
    return Estimate(unknown, None if known.measured is not None else ask)


def measure(lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
    """Cost of what the store lacks for an experiment, at the device's present pace. In the device's thread only."""
    from headlab.studies.run import forecast

    spec = ExperimentSpec.model_validate(request.experiment)
    pieces = pieces_of(lab, spec, tick)
    cost = forecast(spec.experiment, pieces, options_of(spec))
    told = Forecast(forwards=cost.forwards, seconds=cost.seconds, basis=cost.words)
    return Measured(heads=pieces.model.grid.size, seconds=0.0, forecast=told)


EXPERIMENT = Kind(
    "experiment",
    ExperimentSpec,
    fill,
    run,
    foresee,
    "An experiment, run on the worker's own device.",
    measure=measure,
    status=422,
)


# Front jobs: nested masks evaluated on dev in every language, the choice among them, and its confirmation on test.


FRONT = Kind(
    "front",
    FrontSpec,
    fill,
    run,
    foresee,
    "A front of smaller models, computed on the worker's own device.",
    status=422,
)


# Worth jobs: how long the untouched, the masked and the shrunk model take on the worker's device now.

# Each timed pass follows an untimed one.  ROWS: examples per pass, as in headlab.studies.savings_run.
MODELS, PASSES, ROWS = 3, 2, 32


def fill_worth(spec: WorthSpec) -> WorthSpec:
    """The spec with its languages filled in. Raises HeadlabError for an unknown task or language, or a bad mask."""
    mask_from_json(spec.mask, "the mask")
    return spec.model_copy(update={"languages": list(task_of(spec, spec.languages).languages)})


def run_worth(lab: Lab, running: Running, spec: WorthSpec) -> Mapping[str, Any]:
    """Measure now; times are not reused, so they are stored with the job only."""
    from headlab.studies.savings_run import measure  # imports torch

    model, mask = lab.need(spec.model), mask_from_json(spec.mask, "the mask")
    chosen = lab.task(spec.task, spec.label_map).restricted(named(spec.languages))
    worth = measure(
        model, mask, task=chosen, batch_sizes=spec.batch_sizes, rounds=spec.rounds, seed=spec.seed, tick=running.tick,
        told=lambda done, total, note: running.progress(done, total, note, fresh=not done),
    )  # fmt: skip
    return {"worth": worth.to_json()}


def foresee_worth(spec: WorthSpec, known: Known) -> Estimate:
    """Cost of the passes of all three models, timed and untimed, at the pace of plain forward passes."""
    rows = sum(max(ROWS, size) for size in set(spec.batch_sizes))
    pace, paced = measured(known)
    part = Part(
        MODELS * PASSES * spec.rounds * rows,
        pace,
        (f"{spec.rounds} rounds at each batch size", paced),
    )
    return total(
        [part], MeasureRequest(model=spec.model, **about(spec), language=named(spec.languages)[0])
    )


WORTH = Kind(
    "worth",
    WorthSpec,
    fill_worth,
    run_worth,
    foresee_worth,
    "What a mask saves, measured on the worker's own device.",
)
