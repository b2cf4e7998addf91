"""What a forecast can go by: the store's results, and what was timed on the device a moment ago."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headlab.core import HEADS, HeadGrid
from headlab.jobs.fields import SimpleValue, Strict
from headlab.methods import Forecast, Part, forecast_of, is_encoder, method, spec_of
from headlab.results import Curve, HeadScores, Result, Store


class Measured(Strict):
    """What was just measured of a model.

    Attributes:
        heads: Their number, or that of the other players asked for.
        seconds: Per forward pass of the work in question.
        resumable: Whether a pass can start at any layer.
        is_encoder: Whether it is an encoder without a decoder.
        forecast: The cost of the whole job, if that was asked for.
    """

    heads: int
    seconds: float
    resumable: bool = True
    is_encoder: bool = True
    forecast: Forecast | None = None


@dataclass(frozen=True)
class MeasureRequest:
    """Work to time briefly on the device.

    Attributes:
        model: Its name.
        task: Of the examples.
        language: Of the examples.
        label_map: As of a job.
        method: Whose passes are timed; None for plain forward passes.
        options: Of the method.
        players: What is switched, as `headlab.core.read_players` reads it.
        job: One that measures in its own way, see `Job.measure`.
    """

    model: str
    task: str
    language: str
    label_map: Mapping[str, str] | None = None
    method: str | None = None
    options: Mapping[str, SimpleValue] = field(default_factory=dict)
    players: str = HEADS
    job: Strict | None = None


@dataclass(frozen=True)
class ForecastBasis:
    """What a forecast is based on.

    Attributes:
        results: The scores in the store, of the players that the job switches.
        curves: The curves in the store, of the same players.
        device: "cpu" or "cuda".
        root: The cache's folder.
        measured: What was timed for this forecast; None if nothing was.
    """

    results: Sequence[Result[HeadScores]]
    curves: Sequence[Result[Curve]]
    device: str
    root: Path
    measured: Measured | None = None

    @classmethod
    def of_store(
        cls,
        store: Store,
        device: str,
        measured: Measured | None = None,
        *,
        players: str = HEADS,
    ) -> ForecastBasis:
        """What a store tells.

        Args:
            store: Its results are read.
            device: That the job will run on, like "cuda:0".
            measured: What was timed for this forecast, if anything was.
            players: What the job switches.
        """
        recorded_players = "" if players == HEADS else players
        results = store.scan(recorded_players).results
        curves = store.curves(recorded_players).results
        return cls(results, curves, device.split(":")[0], store.root, measured)

    def heads_of(self, model: str) -> int | None:
        """Number of heads, or of the players that the job switches; None where unknown.

        It is known from stored results, or as just measured.
        """
        grid = self._stored_grid_of(model)
        if grid is not None:
            return grid.size
        if self.measured is None:
            return None
        return self.measured.heads

    def has_slopes(self, model: str) -> bool:
        """Whether slopes are taken of a model, as its heads say; true where they are unknown."""
        grid = self._stored_grid_of(model)
        if grid is not None:
            return is_encoder(grid)
        return self.measured is None or self.measured.is_encoder

    def _stored_grid_of(self, model: str) -> HeadGrid | None:
        """The heads of a model as a stored result has them; None without one."""
        for result in self.results:
            if spec_of(result.record, "model", "name") == model:
                return result.record.grid
        return None

    def median_pace(self, paces: Sequence[float], basis: str) -> tuple[float | None, str]:
        """The median of earlier results' paces, or the pace just measured.

        Args:
            paces: Seconds a forward pass of earlier results.
            basis: What their median is based on.

        Returns:
            Seconds a forward pass, None where unknown, and what that is based on.
        """
        if not paces:
            return self.measured_pace()
        pace = float(np.median(paces))
        return pace, pace_words(pace, f"as in {basis}")

    def measured_pace(self, method_name: str | None = None) -> tuple[float | None, str]:
        """The pace just measured, None if it was not, and what that is based on."""
        if self.measured is None:
            return None, "how long a forward takes here is not known yet"
        basis = "measured now"
        if method_name is not None and method(method_name).costs.in_walks:
            basis = "measured now on plain forward passes"
        return self.measured.seconds, pace_words(self.measured.seconds, basis)


@dataclass(frozen=True)
class Estimate:
    """A forecast.

    Attributes:
        forecast: As far as it is known.
        measure_request: What to time on the device for a better one; None for nothing.
    """

    forecast: Forecast
    measure_request: MeasureRequest | None = None


def estimate(parts: Sequence[Part], measure_request: MeasureRequest | None = None) -> Estimate:
    """The forecast of a whole job.

    Args:
        parts: The parts of its work, whose costs are added.
        measure_request: What to time if the time of a part is unknown, else it is dropped; None
            where nothing can be timed.
    """
    forecast = forecast_of(parts)
    return Estimate(forecast, measure_request if forecast.seconds is None else None)


def pace_words(pace: float, basis: str) -> str:
    """A pace in words.

    Args:
        pace: Seconds a forward pass.
    """
    return f"{1000 * pace:.3g} ms a forward, {basis}"


def is_about(record: HeadScores | Curve, model: str, task_name: str) -> bool:
    """Whether a result is of this model and task."""
    spec = record.spec
    return bool((spec["model"]["name"], spec["task"]["name"]) == (model, task_name))
