"""Kinds of jobs of a package that has mistakes: each in one part of its class."""

from __future__ import annotations

from datetime import date
from typing import ClassVar

from pydantic import field_serializer, model_serializer

from headlab.core import Option
from headlab.jobs import Estimate, Forecast, ForecastBasis, Job, Lab, Outcome, RunningJob, setting


class SoundJob(Job):
    """A job that does nothing, without a mistake."""

    unit: str = setting(Option("share", "what is given", ("share", "percent")))
    limit: float = setting(Option(1.0, "largest share", kind=float, low=0))

    key: ClassVar[str] = "sound"
    name: ClassVar[str] = "Sound"
    on_jobs_page: ClassVar[bool] = True

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Nothing is computed."""
        return Estimate(Forecast(forwards=0, seconds=1.0, basis="nothing is computed"))

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Nothing."""
        return {"figure": 1}


class SpeechlessJob(SoundJob):
    """One that cannot say what it is."""

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
    """One whose cost cannot be said."""

    key: ClassVar[str] = "unpredictable"

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Fails."""
        raise ZeroDivisionError


class UnresolvedJob(SoundJob):
    """One that cannot be filled in."""

    key: ClassVar[str] = "unresolved"

    def resolve(self) -> UnresolvedJob:
        """Fails."""
        raise ZeroDivisionError


class DatedJob(SoundJob):
    """One with a field that JSON has no word for."""

    day: date = date(2026, 11, 28)

    key: ClassVar[str] = "dated"


class EndlessJob(SoundJob):
    """One that fills in what is no number."""

    key: ClassVar[str] = "endless"

    def resolve(self) -> EndlessJob:
        """A limit that is no number."""
        return self.model_copy(update={"limit": float("nan")})


class UnwrittenJob(SoundJob):
    """One whose fields cannot be written."""

    key: ClassVar[str] = "unwritten"

    @field_serializer("limit")
    def written(self, limit: float) -> float:
        """Fails."""
        raise ZeroDivisionError


class ListedJob(SoundJob):
    """One that is written as a list."""

    key: ClassVar[str] = "listed"

    @model_serializer
    def written(self) -> list[float]:
        """A list."""
        return [self.limit]


class FailingJob(SoundJob):
    """One whose work fails."""

    key: ClassVar[str] = "failing"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Fails."""
        raise ZeroDivisionError


class SetJob(SoundJob):
    """One that returns what JSON has no word for."""

    key: ClassVar[str] = "set"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """A set."""
        return {"figures": {1, 2}}


class NanJob(SoundJob):
    """One that returns no number."""

    key: ClassVar[str] = "nan"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """A figure that is no number."""
        return {"figure": float("nan")}


class ListJob(SoundJob):
    """One that returns no mapping."""

    key: ClassVar[str] = "list"

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """A list."""
        return [1]  # type: ignore[return-value]  # the mistake
