"""What defines a kind of job: its spec, the checks before it is queued, how it runs and what it will cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from headlab.errors import HeadlabError
from headlab.extensions import implementation
from headlab.labels import check_map, same_classes
from headlab.methods import costs
from headlab.methods.costs import spec_of
from headlab.methods.table import method
from headlab.records import content_key
from headlab.scores import Curve, HeadScores
from headlab.store import Result, Store
from headlab.tables import Report
from headlab.tasks import task
from headlab.worker.runner import Running
from headlab.worker.schemas import (
    Forecast,
    Measured,
    MeasureRequest,
    OnTask,
    Refusal,
    ScoreSpec,
    Strict,
)

if TYPE_CHECKING:
    from headlab.hooks.model import Model
    from headlab.records import Progress
    from headlab.tasks.base import Task
    from headlab.training.options import StepMade


PART = 1000  # a job's progress is counted in thousandths of a language
Spec = TypeVar("Spec", bound=Strict)


class Lab(Protocol):
    """What a running job works with; called in the device's thread only."""

    @property
    def device(self) -> str:
        """The device that models are on."""
        ...

    @property
    def store(self) -> Store:
        """Where results are stored."""
        ...

    @property
    def paces(self) -> MutableMapping[tuple[str | None, ...], float]:
        """Seconds a forward pass of the resident model, as timed for forecasts."""
        ...

    def watched(self, running: Running, language: str) -> Store:
        """The same store, which notifies the running job of the run about to be computed."""
        ...

    def need(self, model: str) -> Model:
        """A model, loaded as the resident one."""
        ...

    def task(self, name: str, label_map: Mapping[str, str] | None = None) -> Task:
        """A task by its name, with the classes that stand for its labels where these are stated."""
        ...

    def base(self) -> Path:
        """Folder of the base model that fine-tuning starts from."""
        ...

    def scored(
        self, running: Running, spec: ScoreSpec, language: str, report: Callable[[Progress], None]
    ) -> HeadScores:
        """Scores of one language for a score job: from the store, or computed and stored."""
        ...


@dataclass(frozen=True)
class Known:
    """What a forecast is based on.

    results, curves: the store's.  device: "cpu" or "cuda".  measured: what was timed for this forecast;
    None if nothing was.  root: the cache's folder.
    """

    results: Sequence[Result[HeadScores]]
    curves: Sequence[Result[Curve]]
    device: str
    root: Path
    measured: Measured | None = None


@dataclass(frozen=True)
class Estimate:
    """A forecast.  ask: what to time on the device for a better one, None for nothing."""

    forecast: Forecast
    ask: MeasureRequest | None = None


@dataclass(frozen=True)
class Kind(Generic[Spec]):
    """One kind of job.

    spec: the type of its params.  fill: returns them with every default filled in, so that equal work has
    equal params; raises for invalid ones.  run: does the work; returns the job's `result`.
    foresee: returns what it will cost.  says: a sentence for the documentation.  places: where it may run.
    measure: answers a `MeasureRequest` that holds a spec of this kind; None for kinds that no request has a place for.
    status: of the refusal of a spec that `fill` raises HeadlabError for, if another than that of a wrong request.
    """

    key: str
    spec: type[Spec]
    fill: Callable[[Spec], Spec]
    run: Callable[[Lab, Running, Spec], Mapping[str, Any]]
    foresee: Callable[[Spec, Known], Estimate]
    says: str
    places: Any = Literal["here"]
    measure: Callable[[Lab, MeasureRequest, Callable[[], None]], Measured] | None = None
    status: int | None = None

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A job's params, checked and filled in. Raises HeadlabError for anything unknown or invalid."""
        spec = self.spec.model_validate(dict(params))
        try:
            return self.fill(spec).model_dump()
        except HeadlabError as error:
            if self.status is None:
                raise
            raise Refusal(str(error), self.status, code=error.code) from error

    def do(self, lab: Lab, running: Running) -> Mapping[str, Any]:
        """Run a job of this kind."""
        return self.run(lab, running, self.spec.model_validate(running.job.params))

    def forecast(self, params: Mapping[str, Any], known: Known) -> Estimate:
        """What a job with these checked params will cost."""
        return self.foresee(self.spec.model_validate(dict(params)), known)


# By key: the module here that defines the kind, under its key in capitals.
HOMES = {
    "score": "score", "curve": "score", "finetune": "finetune", "experiment": "experiment", "roles": "roles",
    "gates": "gates", "front": "experiment", "worth": "experiment",
}  # fmt: skip


def kind_of(key: str) -> Kind[Any]:
    """A kind by its key. Raises Refusal (422)."""
    if key not in HOMES:
        raise Refusal(
            f"unknown kind of job {key!r}; choose from {', '.join(HOMES)}",
            422,
            code="job.kind_unknown",
        )
    kind: Kind[Any] = getattr(implementation(HOMES[key], "headlab.worker.kinds"), key.upper())
    return kind


def task_of(spec: OnTask, languages: list[str] | str | None = None) -> Task:
    """The task of a spec. Raises HeadlabError for an unknown task or language, and a label map of other labels."""
    found = task(spec.task, languages).mapped(spec.label_map)
    if spec.label_map is not None:
        check_map(found.name, found.labels, spec.label_map)
    return found


def about(spec: OnTask) -> dict[str, Any]:
    """What a request to measure takes over from a spec."""
    return {"task": spec.task, "label_map": spec.label_map}


def named(languages: list[str] | str) -> list[str]:
    """The languages of a filled-in spec. Raises HeadlabError for "all" in place of a list."""
    if isinstance(languages, str):
        raise HeadlabError(
            'a job names its languages; "all" is filled in when it is submitted',
            code="job.languages_unnamed",
        )
    return languages


def within(options: dict[str, Any], most: Mapping[str, int], form: str = "") -> dict[str, Any]:
    """The options, unchanged. Raises Refusal (422) if one exceeds its limit.  form: of the limits in words."""
    for name, limit in most.items():
        if isinstance(value := options.get(name), int) and value > limit:
            raise Refusal(
                f"{name} is {value}; a job may ask for {limit:{form}} at most",
                422,
                code="job.number_too_large",
            )
    return options


def in_turn(
    running: Running,
    languages: Sequence[str],
    make: Callable[[int, str], HeadScores | Curve | Report],
    parts: int = 1,
) -> dict[str, list[str]]:
    """Keys of what `make` returns for each language, given its place and name.  parts: of the work of each."""
    total, keys = len(languages) * parts * PART, []
    for at, language in enumerate(languages):
        running.progress(at * parts * PART, total, language, fresh=True)
        keys.append(content_key(make(at, language).spec))
    running.progress(total, total, f"{', '.join(languages)} done")
    return {"keys": keys}


def reporter(
    running: Running, language: str, at: int, languages: int
) -> Callable[[Progress], None]:
    """Callback that reports progress of one language as the job's; its first call may come from a checkpoint."""
    fresh = True

    def report(progress: Progress) -> None:
        nonlocal fresh
        share = progress.done / progress.total if progress.total else 0.0
        note = f"{language}: {progress.note or f'{progress.done} of {progress.total}'}"
        running.progress(at * PART + int(PART * share), languages * PART, note, fresh=fresh)
        fresh = False

    return report


class StepProgress:
    """Passes on a training's steps to its job: that it continues from a checkpoint, and that a step is on disk."""

    def __init__(self, running: Running) -> None:
        self._running, self._fresh, self._kept = running, True, 0

    def made(self, step: StepMade, done: int, total: int, note: str) -> None:
        """Called after each step; the first may continue from a checkpoint."""
        self._running.progress(done, total, note, fresh=self._fresh)
        if self._fresh:
            self._kept, self._fresh = step.kept, False
        if step.kept > self._kept:
            self._kept = step.kept
            self._running.kept()


# What a job will cost: its parts, each a number of forward passes and their pace.


@dataclass(frozen=True)
class Part:
    """A part of a job.  forwards, pace (seconds per forward pass): None where unknown.  words: the basis of both."""

    forwards: int | None
    pace: float | None
    words: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """How long it will take; None where unknown."""
        if self.forwards == 0:
            return 0.0
        return None if self.forwards is None or self.pace is None else self.forwards * self.pace


def total(parts: Sequence[Part], ask: MeasureRequest) -> Estimate:
    """The sum of the parts.  ask: returned with it if a part's time is unknown."""
    forwards, seconds = [part.forwards for part in parts], [part.seconds for part in parts]
    words = dict.fromkeys(word for part in parts for word in part.words)
    forecast = Forecast(
        forwards=None if None in forwards else sum(f for f in forwards if f is not None),
        seconds=None if None in seconds else sum(s for s in seconds if s is not None),
        basis="; ".join(words),
    )
    return Estimate(forecast, ask if None in seconds else None)


def scores_part(asked: ScoreSpec, languages: Sequence[str], known: Known) -> Part:
    """Cost of the scores that the store lacks. Raises HeadlabError if the model has too many heads for the method."""
    own = [r for r in known.results if is_of(r.record, asked.model, asked.task)]
    stored = {
        r.record.language for r in own if r.record.language in languages and _same(r.record, asked)
    }
    left = [name for name in languages if name not in stored]
    if not left:
        return Part(0, None, ("the scores are in the cache already",))
    there = len(languages) - len(left)
    before = (
        f"{there} of {len(languages)} languages {'is' if there == 1 else 'are'} in the cache already",
    )
    chosen, heads = method(asked.method), heads_of(asked.model, known)
    pace, paced = _pace(asked, known)
    if heads is None:
        return Part(None, pace, ("how many heads the model has is not known yet",))
    costs.refuse(chosen, heads)
    examples = len(task(asked.task).examples(left[0], asked.split, asked.size))
    seen = [r.record for r in own if costs.alike(r.record, chosen, asked.options)]
    resumable = known.measured is None or known.measured.resumable
    each, why = costs.expected_forwards(
        chosen, asked.options, heads, examples, seen, resumable=resumable
    )
    return Part(
        each * len(left), pace, (*(before if there else ()), why, *((paced,) if each else ()))
    )


def heads_of(model: str, known: Known) -> int | None:
    """Number of heads, from stored results or from what was just measured; None where unknown."""
    stored = (
        r.record.grid.size for r in known.results if spec_of(r.record, "model", "name") == model
    )
    return next(stored, None if known.measured is None else known.measured.heads)


def pace_words(pace: float, why: str) -> str:
    """A pace in words."""
    return f"{1000 * pace:.3g} ms a forward, {why}"


def median_pace(seen: Sequence[float], known: Known, why: str) -> tuple[float | None, str]:
    """The median of earlier results' paces, or the pace just measured; and its basis in words.  why: of the median."""
    if not seen:
        return measured(known)
    pace = float(np.median(seen))
    return pace, pace_words(pace, f"as in {why}")


def measured(known: Known, method_name: str | None = None) -> tuple[float | None, str]:
    """The pace just measured, None if it was not; and its basis in words."""
    if known.measured is None:
        return None, "how long a forward takes here is not known yet"
    on_plain_passes = method_name is not None and method(method_name).costs.in_walks
    basis = "measured now on plain forward passes" if on_plain_passes else "measured now"
    return known.measured.seconds, pace_words(known.measured.seconds, basis)


def _pace(asked: ScoreSpec, known: Known) -> tuple[float | None, str]:
    here = [r.record for r in known.results if r.meta.get("device") == known.device]
    here = [
        s
        for s in here
        if is_of(s, asked.model, asked.task) and costs.current(s, method(asked.method))
    ]
    pace = costs.pace(here, asked.model, asked.task, asked.method)
    if pace is None:
        return measured(known, asked.method)
    plural = "s" if len(here) > 1 else ""
    return pace, pace_words(
        pace, f"as in {len(here)} result{plural} computed on such a device ({known.device})"
    )


def is_of(record: HeadScores | Curve, model: str, task_name: str) -> bool:
    """Whether a result is of this model and task."""
    spec = record.spec
    return bool((spec["model"]["name"], spec["task"]["name"]) == (model, task_name))


def _same(scores: HeadScores, asked: ScoreSpec) -> bool:
    """Whether a result is what a job would compute, as far as can be known without the model."""
    got, of = scores.spec, scores.spec["task"]
    by = (
        got["method"]["name"],
        got["method"]["options"],
    )  # whatever its version: see `headlab.methods.run.stored`
    same = (*by, got["seed"], got["ablation"], of["split"])
    want = (asked.method, dict(asked.options), asked.seed, asked.ablation, asked.split)
    # A split may have fewer examples than were asked for; then all of them were taken.
    if same != want or not same_classes(of, asked.label_map):
        return False
    return bool(
        of["size"] == len(task(asked.task).examples(of["language"], asked.split, asked.size))
    )
