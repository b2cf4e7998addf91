"""The one thread that touches the device: live requests first, a job in the pauses between them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import Context
from typing import Any

from headlab.scores import HeadScores
from headlab.store import Store
from headlab.worker.bench import Bench
from headlab.worker.failures import code_of, log_failure, sentence_of
from headlab.worker.jobs import Jobs
from headlab.worker.live import Live, Message, Stopped, Waiting
from headlab.worker.runner import Runner
from headlab.worker.running import Stopping
from headlab.worker.schemas import (
    AttentionRequest,
    EvaluateRequest,
    GradientRequest,
    Job,
    MeasureRequest,
    Place,
    Refusal,
    Submitted,
)

__all__ = ["Bench", "Engine"]
log = logging.getLogger(__name__)
IDLE_SECONDS = 1.0


class Engine:
    """Owns the device through its thread. Requests may come from any other thread.

    check: kind of job -> what refuses bad params before they are queued, and gives them in full.
    store: where results are kept.  warm: a model to load at once.  ray: a word for where jobs placed on Ray go;
    empty where they cannot.
    """

    def __init__(
        self,
        make: Callable[[], Bench],
        jobs: Jobs,
        check: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]],
        store: Store,
        warm: str | None = None,
        *,
        ray: str = "",
    ) -> None:
        self.jobs, self.store, self.ray = jobs, store, ray
        self._make, self._check, self._warm = make, check, warm
        self._waiting = Waiting()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._bench: Bench | None = None
        self._broken: Exception | None = None
        self._under_way: list[Live] = []
        self._runner = Runner(jobs, self._breathe)
        self._thread = threading.Thread(target=Context().run, args=(self._main,), name="device", daemon=True)

    # Called from any thread.

    def start(self) -> None:
        """Start the device's thread; torch is imported there, so this returns at once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> bool:
        """End what runs at its next batch; a running job goes back into the queue. True if the thread ended."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def device(self) -> str | None:
        """The device, once torch is there."""
        bench = self._bench
        return bench.device if bench is not None else None

    @property
    def resident(self) -> str | None:
        """Name of the model in memory, if any."""
        bench = self._bench
        return bench.resident if bench is not None else None

    @property
    def waiting(self) -> int:
        """Live requests that wait for their turn."""
        return self._waiting.count

    @property
    def idle(self) -> bool:
        """Whether no live request waits or is under way."""
        return not self._under_way and not self.waiting

    @property
    def trouble(self) -> str:
        """Why nothing can be computed, or what cannot be written down; or empty."""
        return sentence_of(self._broken) if self._broken is not None else self._runner.trouble

    @property
    def trouble_code(self) -> str:
        """The code that goes with `trouble`, or empty."""
        return code_of(self._broken) if self._broken is not None else self._runner.trouble_code

    @property
    def alive(self) -> bool:
        """Whether the device's thread can still answer."""
        return self._broken is None and not self._stopping.is_set()

    def fetch(self, model: str) -> Future[None]:
        """Bring a model's files to this machine, so that asking for it keeps nobody waiting. Raises Refusal (429)."""
        bench = self._bench
        if bench is not None and bench.resident != model:
            return bench.fetch(model)
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return nothing

    def load(self, model: str, send: Callable[[Message], None]) -> Live:
        """Ask for a model to be loaded and described."""
        return self._ask(Live(lambda: iter([self._ready.load(model)]), send, model))

    def evaluate(self, request: EvaluateRequest, send: Callable[[Message], None]) -> Live:
        """Ask for the accuracy of a mask, figure by figure."""
        key = None if request.session is None else (request.session, request.task, request.language, request.split)
        return self._ask(Live(lambda: self._ready.evaluate(request), send, request.model, key))

    def attention(self, request: AttentionRequest, send: Callable[[Message], None]) -> Live:
        """Ask for attention weights."""
        return self._ask(Live(lambda: iter([self._ready.attention(request)]), send, request.model))

    def gradient(self, request: GradientRequest, send: Callable[[Message], None]) -> Live:
        """Ask for the gradient importance of a language."""
        return self._ask(Live(lambda: iter([self._ready.gradient(request)]), send, request.model, long=True))

    def measure(self, request: MeasureRequest, send: Callable[[Message], None]) -> Live:
        """Ask how long some work takes now."""
        return self._ask(Live(lambda: iter([self._ready.measure(request)]), send, request.model, long=True))

    def check(self, kind: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Params of a job in full. Raises HeadlabError if they do not fit."""
        if kind not in self._check:
            raise Refusal(
                f"unknown kind of job {kind!r}; choose from {', '.join(self._check)}", 422, code="job.kind_unknown"
            )
        return self._check[kind](params)

    def submit(self, kind: str, params: Mapping[str, Any], place: Place = "here") -> Submitted:
        """Queue a job. Raises HeadlabError if its params do not fit."""
        if place == "ray" and not self.ray:
            raise Refusal(
                "this worker has no Ray to compute on; start it with --ray, or compute here", 422, code="worker.no_ray"
            )
        submitted = self.jobs.submit(kind, self.check(kind, params), place)
        self._wake.set()
        return submitted

    def resume(self, job: int) -> Job:
        """Queue a cancelled or failed job again."""
        resumed = self.jobs.resume(job)
        self._wake.set()
        return resumed

    def look(self, job: int) -> HeadScores | None:
        """The scores so far of a running job; None if it does not run, or has none to show."""
        return self._runner.look(job)

    def delete(self, job: int) -> None:
        """Take a job off the list, with the checkpoints that only it would go on from; results stay."""
        self._runner.delete(job, self.store.root)

    def _ask(self, live: Live) -> Live:
        if not self.alive:
            raise Refusal(
                self.trouble or "the worker is shutting down; try again in a moment",
                503,
                code=self.trouble_code or "worker.going_down",
            )
        self._waiting.add(live)
        self._wake.set()
        return live

    # Called in the device's thread only.

    @property
    def _ready(self) -> Bench:
        assert self._bench is not None
        return self._bench

    def _main(self) -> None:
        try:
            self._bench = self._make()
            self._bench.tick = self._between_batches
        except Exception as error:  # torch missing or broken: health says so, every request is told
            log_failure(log, "the device could not be set up", error)
            self._broken = error
        if self._broken is None and self._warm is not None:
            self._warm_up(self._warm)
        try:
            self._loop()
        except Exception as error:  # nothing may end this thread unseen: health would stay good and requests hang
            log_failure(log, "the device's thread ended", error)
            self._broken = error
        self._refuse_rest()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._serve()
            if self._broken is not None or not self._runner.run_next(self._ready):
                self._wake.wait(IDLE_SECONDS)

    def _warm_up(self, model: str) -> None:
        try:
            self._ready.load(model)
        except Exception as error:  # whoever asks for the model will be told why
            log_failure(log, "the model asked for at start could not be loaded", error)

    def _refuse_rest(self) -> None:
        while (live := self._waiting.take()) is not None:
            live.send(Refusal("the worker is shutting down; try again in a moment", 503, code="worker.going_down"))

    def _serve(self) -> None:
        """Work off every waiting live request, a record of each in turn."""
        while not self._stopping.is_set() and (live := self._waiting.take()) is not None:
            self._step(live)

    def _step(self, live: Live) -> None:
        if self._broken is not None:
            live.send(self._broken)
            self._waiting.forget(live)
            return
        busy = self._runner.model
        if live.steps is None and busy is not None and live.model != busy:
            sentence = (
                f"the worker computes scores with {busy} now; wait for that job or cancel it, then ask for {live.model}"
            )
            live.send(Refusal(sentence, 409, code="worker.other_model_in_use"))
            self._waiting.forget(live)
            return
        self._under_way.append(live)
        try:
            more = live.step()
        finally:
            self._under_way.pop()
        if more:
            self._waiting.put_back(live)
        else:
            self._waiting.forget(live)

    def _between_batches(self) -> None:
        """Run between the batches of a live request: end it if nobody waits, let new ones have their first record."""
        if not self._under_way:
            return
        if self._stopping.is_set() or self._under_way[-1].stopped:
            raise Stopped
        if len(self._under_way) > 1:
            return
        # Another model would push out the one in use, so such a request waits for the end of this one; and so does a
        # long one, which would keep it waiting.
        asked = self._under_way[-1]
        while (live := self._waiting.take(asked.model, begun=False, long=False)) is not None:
            self._step(live)
        if asked.long and (live := self._waiting.take(asked.model, long=False)) is not None:
            self._step(live)

    def _breathe(self) -> None:
        """Run between the batches of a job."""
        if self._stopping.is_set():
            raise Stopping
        self._serve()
