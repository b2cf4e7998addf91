"""A bench without a model, slow on purpose, so that tests can look at it while it works."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import HeadlabError
from headlab.jobs import Measured, MeasureRequest
from headlab.results import Store, StoredRun
from headlab.worker.runner import WorkerJob
from headlab.worker.schemas import (
    AttentionRequest,
    Changed,
    EvaluateRequest,
    Figure,
    GradientRequest,
    LoadedModel,
    LoadedPlayers,
    PlayersRequest,
    Scores,
    Weights,
)

MODEL = "fake"
STEPS = 40
DEVICE = threading.Event()  # never set: a batch is a wait for it
LEAK: ContextVar[str] = ContextVar("leak", default="clean")


class FakeBench:
    """A bench that gives three figures for each evaluation and makes `STEPS` steps in each job.

    Attributes:
        batches: Number of batches of live requests so far.
        free: This many first batches of live requests end even while `go` is cleared.
        go: While it is cleared, no other batch of a live request ends.
        stop_at: A job waits before this step, while live requests go on.
        figures: (language, n) of the figures given so far.
        log: What was begun and ended, in order.
        joins: Whether models stay in memory, and may be used beside that of the running job.

    Args:
        folder: Holds the checkpoints, one file a job.
        pause: Seconds of a batch.
    """

    def __init__(self, folder: Path, pause: float = 0.02) -> None:
        self.folder = folder
        self.pause = pause
        self.tick: Callable[[], None] = lambda: None
        self.device = "fake device"
        self.residents: tuple[str, ...] = ()
        self.joins = False
        self.store = Store(folder)
        self.thread = threading.get_ident()
        self.batches = 0
        self.free_batches = 0
        self.batches_may_end = threading.Event()
        self.waiting_step = STEPS + 1
        self.batches_may_end.set()
        self.figures: list[tuple[str, int]] = []
        self.log: list[str] = []

    def fetch(self, model: str) -> Future[None]:
        download: Future[None] = Future()
        download.set_result(None)
        return download

    def may_join(self, model: str) -> bool:
        return self.joins or model == MODEL

    def load(self, model: str) -> LoadedModel:
        assert threading.get_ident() == self.thread
        if model.startswith("missing"):
            raise HeadlabError(f"no model {model}; there is {MODEL}", code="model.unknown")
        others = [name for name in self.residents if name != model] if self.joins else []
        self.residents = (*others, model)
        return LoadedModel(
            name=model,
            revision="1",
            fingerprint="f" * 64,
            grid={"encoder": [4, 4]},
            device="fake device",
            note="",
        )

    def players(self, request: PlayersRequest) -> LoadedPlayers:
        assert threading.get_ident() == self.thread
        raise HeadlabError("this model has no such players", code="players.no_feed_forward")

    def batch(self) -> None:
        """Take `pause` seconds, and then as long as the test keeps `go` cleared."""
        DEVICE.wait(self.pause)
        assert self.batches < self.free_batches or self.batches_may_end.wait(120)
        self.batches += 1
        self.tick()

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        assert threading.get_ident() == self.thread
        assert LEAK.get() == "clean"
        if request.language == "xx":
            raise HeadlabError(
                "task intents has no language 'xx'; it has en, de", code="task.language_unknown"
            )
        if request.language == "boom":
            raise KeyError("turn off the secret lamp")
        self.load(request.model)
        self.log.append(f"begin {request.session} {request.size}")
        for n in (64, 256, 512):
            for _ in range(max(1, n // 64)):
                self.batch()
            if request.language == "late" and n == 256:
                raise KeyError("turn off the secret lamp")
            self.figures.append((request.language, n))
            yield Figure(
                language=request.language,
                n=n,
                total=512,
                accuracy=0.5,
                low=0.4,
                high=0.6,
                done=n == 512,
            )
        self.log.append(f"end {request.session} {request.size}")

    def changes(self, request: EvaluateRequest) -> Changed:
        assert threading.get_ident() == self.thread
        return Changed(language=request.language, total=0, answers=[])

    def attention(self, request: AttentionRequest) -> Weights:
        assert threading.get_ident() == self.thread
        return Weights(
            tokens=["a"],
            weights={"encoder.0.0": [[1.0]]},
            separators=[],
            special=[],
            truncated=False,
        )

    def gradient(self, request: GradientRequest) -> Scores:
        """One answer after ten batches."""
        assert threading.get_ident() == self.thread
        assert LEAK.get() == "clean"
        self.load(request.model)
        self.log.append("begin gradient")
        for _ in range(10):
            self.batch()
        self.log.append("end gradient")
        return Scores(
            grid={"encoder": [2]},
            language=request.language,
            method="gradient",
            estimand="gradient",
            unit="loss",
            example_forwards=request.size,
            seconds=1.0,
            level=0.95,
            spec={},
            values=[0.5, 0.25],
            low=None,
            high=None,
            samples=[request.size] * 2,
            p_values=None,
            signed=False,
        )

    def measure(self, request: MeasureRequest) -> Measured:
        assert threading.get_ident() == self.thread
        self.load(request.model)
        self.log.append(f"measured {request.method}")
        return Measured(heads=8, seconds=0.002)

    def run_of(self, params: Mapping[str, Any], language: str) -> StoredRun:
        """The stored run of a language, shared by all score jobs with the same model and method."""
        return self.store.run(
            {"model": params["model"], "method": params["method"], "language": language}
        )

    def run(self, running: WorkerJob) -> Mapping[str, Any]:
        """Run a job of any kind: make its steps, and keep their number in a file."""
        assert threading.get_ident() == self.thread
        spec = running.job.params
        if "model" in spec:
            running.model = spec["model"]
            self.load(str(spec["model"]))
        LEAK.set("a job's")
        for language in spec.get("languages", ()):
            stored_run = self.run_of(running.job.params, language)
            running.record_folder(stored_run.folder.name, language)
            running.log(f"{language}: scores started")
            stored_run.save({"draws": np.array(1)})
        progress_file = self.folder / f"job-{running.job.id}.txt"
        steps_done = int(progress_file.read_text()) if progress_file.exists() else 0
        running.progress(steps_done, STEPS, "resumed" if steps_done else "started", fresh=True)
        while steps_done < STEPS:
            DEVICE.wait(self.pause)
            while steps_done + 1 >= self.waiting_step:
                running.tick()
                DEVICE.wait(0.01)
            if spec["seed"] == 13 and steps_done == 3:
                raise KeyError("turn off the secret lamp")
            steps_done += 1
            progress_file.with_suffix(".new").write_text(str(steps_done))
            # so that the file is complete whenever the process is killed
            progress_file.with_suffix(".new").replace(progress_file)
            self.log.append(f"step {steps_done}")
            running.progress(steps_done, STEPS, f"step {steps_done}")
        return {"keys": [f"key {running.job.id}"]}


def main() -> None:
    """Run a real worker process around the fake bench; it takes the worker's own arguments."""
    from headlab.worker.__main__ import parser
    from headlab.worker.server import WorkerSettings, serve

    arguments = parser().parse_args()
    settings = WorkerSettings(
        arguments.cache,
        arguments.host,
        arguments.port,
        arguments.device,
        arguments.warm,
        arguments.parent,
        arguments.told,
    )
    serve(settings, lambda: FakeBench(arguments.cache, 0.05))


if __name__ == "__main__":
    sys.exit(main())
