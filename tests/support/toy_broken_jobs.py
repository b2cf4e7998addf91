"""Kinds of jobs of a package with mistakes; each class has one mistake."""

from __future__ import annotations

from datetime import date
from typing import ClassVar

from pydantic import field_serializer, model_serializer

from headlab.core import Option
from headlab.jobs import Estimate, Forecast, ForecastBasis, Job, Lab, Outcome, RunningJob, setting


class SoundJob(Job):
    """A job without a mistake, which does nothing."""

    unit: str = setting(Option("share", "what is given", ("share", "percent")))
    limit: float = setting(Option(1.0, "largest share", kind=float, low=0))

    key: ClassVar[str] = "sound"
    name: ClassVar[str] = "Sound"
    on_jobs_page: ClassVar[bool] = True

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Nothing is computed."""
        return Estimate(Forecast(forwards=0, seconds=1.0, basis="nothing is computed"))

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Compute nothing."""
        return {"figure": 1}


class SpeechlessJob(SoundJob):
    """Its title, description and details fail."""

    key: ClassVar[str] = "speechless"
    name: ClassVar[str] = "Speechless"

    def title(self) -> str:
        """Fails."""
        raise ZeroDivisionError

    describe = title
    terminal_lines = title

    def details(self) -> list[tuple[str, str]]:
        """Fails."""
        raise ZeroDivisionError


class UnpredictableJob(SoundJob):
    """Its forecast fails."""

    key: ClassVar[str] = "unpredictable"

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Fails."""
        raise ZeroDivisionError


class UnresolvedJob(SoundJob):
    """Its missing fields cannot be filled in."""

    key: ClassVar[str] = "unresolved"

    def resolve(self) -> UnresolvedJob:
        """Fails."""
        raise ZeroDivisionError


class DatedJob(SoundJob):
    """It has a field that JSON cannot hold."""

    day: date = date(2026, 11, 28)

    key: ClassVar[str] = "dated"


class EndlessJob(SoundJob):
    """It fills in NaN for a limit."""

    key: ClassVar[str] = "endless"

    def resolve(self) -> EndlessJob:
        """Set the limit to NaN."""
        return self.model_copy(update={"limit": float("nan")})


class UnwrittenJob(SoundJob):
    """Its fields cannot be serialised."""

    key: ClassVar[str] = "unwritten"

    @field_serializer("limit")
    def serialised_limit(self, limit: float) -> float:
        """Fails."""
        raise ZeroDivisionError


class ListedJob(SoundJob):
    """It is serialised as a list."""

    key: ClassVar[str] = "listed"

    @model_serializer
    def serialised_job(self) -> list[float]:
        """A list."""
        return [self.limit]


class FailingJob(SoundJob):
    """Its work fails."""

    key: ClassVar[str] = "failing"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Fails."""
        raise ZeroDivisionError


class SetJob(SoundJob):
    """It returns a value that JSON cannot hold."""

    key: ClassVar[str] = "set"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """A set."""
        return {"figures": {1, 2}}


class NanJob(SoundJob):
    """It returns NaN."""

    key: ClassVar[str] = "nan"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """A figure that is NaN."""
        return {"figure": float("nan")}


class ListJob(SoundJob):
    """It returns a list instead of a mapping."""

    key: ClassVar[str] = "list"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """A list."""
        return [1]  # type: ignore[return-value]  # the mistake
