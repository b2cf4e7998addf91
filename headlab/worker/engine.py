"""The one thread that touches the device: live requests first, a job in the pauses between them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from typing import Any, Protocol

from headlab.errors import HeadlabError
from headlab.scores import HeadScores
from headlab.worker.failures import log_failure, sentence_of
from headlab.worker.jobs import Cancelled, Jobs, Running, Stopping
from headlab.worker.live import Live, Message, Stopped, Waiting
from headlab.worker.schemas import (
    AttentionRequest,
    EvaluateRequest,
    Figure,
    Job,
    LoadedModel,
    Refusal,
    Submitted,
    Weights,
)

log = logging.getLogger(__name__)
IDLE_SECONDS = 1.0


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

    def load(self, model: str) -> LoadedModel:
        """Make a model the resident one, freeing the one before."""
        ...

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        """Accuracy of a mask, figure by figure."""
        ...

    def attention(self, request: AttentionRequest) -> Weights:
        """Attention of some heads for one sentence."""
        ...

    def run(self, running: Running) -> None:
        """Do a job; results go to the store."""
        ...


class Engine:
    """Owns the device through its thread. Requests may come from any other thread.

    check: kind of job -> what refuses bad params before they are queued, and gives them in full.
    warm: a model to load at once.
    """

    def __init__(
        self,
        make: Callable[[], Bench],
        jobs: Jobs,
        check: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]],
        warm: str | None = None,
    ) -> None:
        self.jobs = jobs
        self._make, self._check, self._warm = make, check, warm
        self._waiting = Waiting()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._bench: Bench | None = None
        self._broken: Exception | None = None
        self._under_way: list[Live] = []
        self._running: Running | None = None
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
    def trouble(self) -> str:
        """Why nothing can be computed, or empty."""
        return sentence_of(self._broken) if self._broken is not None else ""

    @property
    def alive(self) -> bool:
        """Whether the device's thread can still answer."""
        return self._broken is None and not self._stopping.is_set()

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

    def submit(self, kind: str, params: Mapping[str, Any]) -> Submitted:
        """Queue a job. Raises HeadlabError if its params do not fit."""
        if kind not in self._check:
            raise Refusal(f"unknown kind of job {kind!r}; there is {', '.join(self._check)}", 422)
        submitted = self.jobs.submit(kind, self._check[kind](params))
        self._wake.set()
        return submitted

    def resume(self, job: int) -> Job:
        """Queue a cancelled or failed job again."""
        resumed = self.jobs.resume(job)
        self._wake.set()
        return resumed

    def look(self, job: int) -> HeadScores | None:
        """The scores so far of a running job; None if it does not run, or has none to show."""
        running = self._running
        return running.look() if running is not None and running.job.id == job else None

    def _ask(self, live: Live) -> Live:
        if not self.alive:
            raise Refusal(self.trouble or "the worker is going down; try again in a moment", 503)
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
            if not self._run_next_job():
                self._wake.wait(IDLE_SECONDS)

    def _warm_up(self, model: str) -> None:
        try:
            self._ready.load(model)
        except Exception as error:  # whoever asks for the model will be told why
            log_failure(log, "the model asked for at start could not be loaded", error)

    def _refuse_rest(self) -> None:
        while (live := self._waiting.take()) is not None:
            live.send(Refusal("the worker is going down; try again in a moment", 503))

    def _serve(self) -> None:
        """Work off every waiting live request, a record of each in turn."""
        while not self._stopping.is_set() and (live := self._waiting.take()) is not None:
            self._step(live)

    def _step(self, live: Live) -> None:
        if self._broken is not None:
            live.send(self._broken)
            self._waiting.forget(live)
            return
        busy = self._job_model()
        if live.steps is None and busy is not None and live.model != busy:
            sentence = (
                f"the worker computes scores with {busy} now; wait for that job or cancel it, then ask for {live.model}"
            )
            live.send(Refusal(sentence, 409))
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

    def _job_model(self) -> str | None:
        return None if self._running is None else str(self._running.job.params["model"])

    def _between_batches(self) -> None:
        """Run between the batches of a live request: end it if nobody waits, let new ones have their first record."""
        if not self._under_way:
            return
        if self._stopping.is_set() or self._under_way[-1].stopped:
            raise Stopped
        if len(self._under_way) > 1:
            return
        # Another model would push out the one in use, so such a request waits for the end of this one.
        while (live := self._waiting.take(self._under_way[-1].model, begun=False)) is not None:
            self._step(live)

    def _run_next_job(self) -> bool:
        """Run one waiting job to its end. Returns False if there is none."""
        if self._broken is not None:
            return False
        try:
            job = self.jobs.claim()
        except HeadlabError as error:
            log_failure(log, "the job list", error)
            return False
        if job is None:
            return False
        self._running = running = Running(self.jobs, job, self._breathe)
        try:
            self._record_end(job, *self._outcome(running))
        finally:
            self._running = None
        return True

    def _breathe(self) -> None:
        """Run between the batches of a job."""
        if self._stopping.is_set():
            raise Stopping
        self._serve()

    def _outcome(self, running: Running) -> tuple[str, str | None]:
        log.info("job %d started, attempt %d", running.job.id, running.job.attempts)
        try:
            Context().run(self._ready.run, running)
        except Stopping:
            return "queued", None
        except Cancelled:
            return "cancelled", None
        except Exception as error:  # a failed job is an answer too; the worker goes on
            log_failure(log, f"job {running.job.id}", error)
            return "failed", sentence_of(error)
        return "done", None

    def _record_end(self, job: Job, state: str, error: str | None) -> None:
        log.info("job %d %s", job.id, "put back" if state == "queued" else state)
        try:
            if state == "queued":
                self.jobs.put_back(job.id)
            else:
                self.jobs.end(job.id, state, error)
        except HeadlabError as trouble:  # stays "running": the next start of the worker queues it again
            log_failure(log, f"job {job.id}: its end could not be written", trouble)
