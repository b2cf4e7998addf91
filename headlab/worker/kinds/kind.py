"""What a kind of job is: its details, what is refused before it is queued, how it runs and what it will cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from headlab.errors import HeadlabError
from headlab.scores import HeadScores
from headlab.store import CurveResult, Result, Store
from headlab.worker.kinds.scorespec import ScoreSpec
from headlab.worker.running import Running
from headlab.worker.schemas import Forecast, Measured, MeasureRequest, Strict

if TYPE_CHECKING:  # they import torch, which a worker does after it has opened its door
    from headlab.hooks.model import Model
    from headlab.records import Progress
    from headlab.tasks import Task

PART = 1000  # a job's progress is counted in thousandths of a language
Spec = TypeVar("Spec", bound=Strict)


class Lab(Protocol):
    """What a running job is given to work with; called in the device's thread only."""

    @property
    def device(self) -> str:
        """Where models live."""
        ...

    @property
    def store(self) -> Store:
        """Where results go."""
        ...

    def watched(self, running: Running, language: str) -> Store:
        """The same store; it tells the running job which run is about to be computed."""
        ...

    def need(self, model: str) -> Model:
        """A model, made the resident one."""
        ...

    def task(self, name: str) -> Task:
        """A task by its name."""
        ...

    def base(self) -> Path:
        """Folder of the base that fine-tuning starts from."""
        ...

    def scored(
        self, running: Running, spec: ScoreSpec, language: str, report: Callable[[Progress], None]
    ) -> HeadScores:
        """Scores of one language as a score job has them: from the store, or computed and kept there."""
        ...


@dataclass(frozen=True)
class Known:
    """What a forecast rests on.

    results, curves: the store's.  device: "cpu" or "cuda".  measured: what was timed for this forecast;
    None if nothing was yet.  root: the cache.
    """

    results: Sequence[Result]
    curves: Sequence[CurveResult]
    device: str
    root: Path
    measured: Measured | None = None


@dataclass(frozen=True)
class Estimate:
    """A forecast, and what would have to be timed on the device to make it a better one; None: nothing."""

    forecast: Forecast
    ask: MeasureRequest | None = None


@dataclass(frozen=True)
class Kind(Generic[Spec]):
    """One kind of job.

    spec: the type of its details.  fill: details with every default in place, so that equal work is equal
    details; refuses what does not fit.  run: does the work; returns what the job's `result` says.
    foresee: what it will cost.
    """

    key: str
    spec: type[Spec]
    fill: Callable[[Spec], Spec]
    run: Callable[[Lab, Running, Spec], Mapping[str, Any]]
    foresee: Callable[[Spec, Known], Estimate]

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Params of a job in full. Raises HeadlabError for what does not exist or fit."""
        return self.fill(self.spec.model_validate(dict(params))).model_dump()

    def do(self, lab: Lab, running: Running) -> Mapping[str, Any]:
        """Do a job of this kind."""
        return self.run(lab, running, self.spec.model_validate(running.job.params))

    def forecast(self, params: Mapping[str, Any], known: Known) -> Estimate:
        """What a job with these checked params will cost."""
        return self.foresee(self.spec.model_validate(dict(params)), known)


def named(languages: list[str] | str) -> list[str]:
    """The languages of filled-in details."""
    if isinstance(languages, str):
        raise HeadlabError(
            'a job names its languages; "all" is filled in when it is submitted', code="job.languages_unnamed"
        )
    return languages


def reporter(running: Running, language: str, at: int, languages: int) -> Callable[[Progress], None]:
    """Progress of one language as progress of the job; the first one may come from a checkpoint."""
    fresh = True

    def report(progress: Progress) -> None:
        nonlocal fresh
        share = progress.done / progress.total if progress.total else 0.0
        note = f"{language}: {progress.note or f'{progress.done} of {progress.total}'}"
        running.progress(at * PART + int(PART * share), languages * PART, note, fresh=fresh)
        fresh = False

    return report
