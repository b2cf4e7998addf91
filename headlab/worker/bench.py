"""The work itself, as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from headlab.worker.running import Running
from headlab.worker.schemas import (
    AttentionRequest,
    EvaluateRequest,
    Figure,
    GradientRequest,
    LoadedModel,
    Measured,
    MeasureRequest,
    Scores,
    Weights,
)


class Bench(Protocol):
    """The work itself. Made and called in the engine's thread only; `tick` runs between its batches."""

    tick: Callable[[], None]

    @property
    def device(self) -> str:
        """Where the model lives."""
        ...

    @property
    def resident(self) -> str | None:
        """Name of the model in memory."""
        ...

    def fetch(self, model: str) -> Future[None]:
        """Bring a model's files to this machine; may be called from any thread."""
        ...

    def load(self, model: str) -> LoadedModel:
        """Make a model the resident one, freeing the one before."""
        ...

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        """Accuracy of a mask, figure by figure."""
        ...

    def attention(self, request: AttentionRequest) -> Weights:
        """Attention of some heads for one sentence."""
        ...

    def gradient(self, request: GradientRequest) -> Scores:
        """Gradient importance of one language, kept in the store."""
        ...

    def measure(self, request: MeasureRequest) -> Measured:
        """How many heads a model has, and how long a forward pass takes now."""
        ...

    def run(self, running: Running) -> Mapping[str, Any]:
        """Do a job; results go to the store, what it returns to the job list."""
        ...
