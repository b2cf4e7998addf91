"""The one thread that touches the device: live requests first, a job in the pauses between them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import Context
from dataclasses import dataclass, field

from cachetools import FIFOCache
from pydantic import BaseModel

from headlab.core import HeadlabError
from headlab.jobs import Job, JobPlace, Refusal
from headlab.results import HeadScores, Store
from headlab.studies.front_so_far import FrontSoFar
from headlab.worker.jobs import JobList
from headlab.worker.runner import Bench, Runner, Stopping, other_model_in_use
from headlab.worker.schemas import (
    LOG_NAME,
    EvaluateRequest,
    JobRow,
    Submitted,
    code_of,
    is_last,
    log_failure,
    sentence_of,
)

log = logging.getLogger(__name__)

# Live requests: each a stream of records, served one record at a time so that none waits for
# another to end.

MAX_WAITING = 384
# Of one session; a page requests every language at once.
MAX_OF_ONE = 64
# New requests served in a row while begun ones wait: without a limit these could wait for ever.
MAX_NEW_IN_A_ROW = 8
MAX_SESSIONS = 1000


class Stopped(Exception):
    """Raised between batches of a stream that nobody reads any more; not an error."""


Message = BaseModel | Exception


def shutting_down_refusal() -> Refusal:
    """Why a request is not answered to its end by a worker that stops."""
    return Refusal(
        "the worker is shutting down; try again in a moment", 503, code="worker.going_down"
    )


def superseded_refusal() -> Refusal:
    """Why a request ends early when its session asks anew."""
    return Refusal(
        "a newer request of the same session took this one's place; read the newer one's "
        "figures, or give each reader a session of its own",
        409,
        code="worker.request_superseded",
    )


def left_by_reader_refusal() -> Refusal:
    """Why a request ends whose client has gone: an answer that nobody gets."""
    return Refusal("the client left before its answer was there", 408, code="request.left")


@dataclass(eq=False)
class LiveRequest:
    """One request.

    It ends with its last record (see `is_last`) or with the exception that says why there is none.

    Attributes:
        start: Returns the records; called in the device's thread.
        send: Called with each record or with the exception; from any thread, and must not raise.
        model: The model that it needs.
        key: A newer request with the same key supersedes this one.
        is_long: Its only record takes many batches, between which others may be served.
        is_stopped: Whether nobody reads it any more.
        reason: Why it was stopped.
        steps: The records that are still to come; None before it has begun.
        context: Gates are context variables: an empty context each, so that nothing leaks in or
            out.
    """

    start: Callable[[], Iterator[BaseModel]]
    send: Callable[[Message], None]
    model: str | None = None
    key: Hashable | None = None
    is_long: bool = False
    is_stopped: bool = False
    reason: Exception | None = None
    steps: Iterator[BaseModel] | None = None
    context: Context = field(default_factory=Context)

    @property
    def session(self) -> Hashable:
        """The caller's session; None for all requests without one."""
        if not isinstance(self.key, tuple):
            return None
        session: Hashable = self.key[0]
        return session

    def step(self) -> bool:
        """Send the next record.

        Returns whether more are to come: not after the last one, nor after an error.
        """
        try:
            record = self._next_record()
        except Stopped:
            self.end(self.reason or shutting_down_refusal())
        except Exception as error:  # the error is the client's answer; the worker goes on
            self.end(error)
        else:
            self.send(record)
            return self.steps is not None
        return False

    def _next_record(self) -> BaseModel:
        """The next record; after the last one `steps` is None, as its iterator has ended."""
        if self.is_stopped:
            raise Stopped
        if self.steps is None:
            self.steps = self.context.run(self.start)
        record = self.context.run(next, self.steps, None)
        if record is None:
            raise HeadlabError(
                "the worker's work on this request ended without an answer; ask again, and if it "
                f"stays so, report it with {LOG_NAME}",
                code="worker.answer_missing",
            )
        if is_last(record):
            self.context.run(deque, self.steps, 0)
            self.steps = None
        return record

    def end(self, reason: Exception) -> None:
        """End without a further record; in the device's thread once it has begun."""
        remaining_steps = self.steps
        self.steps = None
        close = getattr(remaining_steps, "close", None)
        try:
            if close is not None:
                self.context.run(close)
        except Exception as error:  # the device's thread must go on
            log_failure(log, "the end of a request", error)
        self.send(reason)


class RequestQueue:
    """The requests that are still to be answered and that somebody reads.

    New ones precede begun ones, at most PATIENCE in a row, and sessions take turns: every record
    served is its session's turn; next comes the session whose turn was longest ago.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[LiveRequest] = deque()
        self._begun: deque[LiveRequest] = deque()
        # Begun ones that nobody reads any more: their iterators are closed in the device's thread.
        self._withdrawn: deque[LiveRequest] = deque()
        self._latest: dict[Hashable, LiveRequest] = {}
        # Of each session, which record was the last that it was served.
        self._turns: FIFOCache[Hashable, int] = FIFOCache(MAX_SESSIONS)
        self._served = 0
        self._new_in_a_row = 0
        self._closed = False

    @property
    def count(self) -> int:
        """Number of waiting requests, new or begun."""
        with self._lock:
            return len(self._new) + len(self._begun)

    def add(self, live: LiveRequest) -> None:
        """Queue a request; it takes the place of the older one with the same key, which ends.

        Raises:
            Refusal: Too many are waiting (429), or the worker is shutting down (503).
        """
        with self._lock:
            if self._closed:
                raise shutting_down_refusal()
            older = None if live.key is None else self._latest.get(live.key)
            self._require_room(live, older)
            never_begun = older is not None and self._remove(older, superseded_refusal())
            if live.key is not None:
                self._latest[live.key] = live
            self._new.append(live)
        if older is not None and never_begun:
            older.end(superseded_refusal())

    def _require_room(self, live: LiveRequest, older: LiveRequest | None) -> None:
        """Raise Refusal (429) if too many requests wait beside the one that a new one replaces."""
        waiting = [request for request in (*self._new, *self._begun) if request is not older]
        if len(waiting) >= MAX_WAITING:
            raise Refusal(
                f"{MAX_WAITING} requests are waiting for the worker; try again in a moment",
                429,
                code="worker.requests_too_many",
            )
        if (
            live.key is not None
            and sum(request.session == live.session for request in waiting) >= MAX_OF_ONE
        ):
            raise Refusal(
                f"{MAX_OF_ONE} requests of this session are waiting; try again in a moment",
                429,
                code="worker.session_requests_too_many",
            )

    def withdraw(self, live: LiveRequest, reason: Exception) -> bool:
        """Take out a request that nobody reads any more; one under way ends at its next batch.

        Returns:
            Whether the device's thread has something to close.
        """
        with self._lock:
            never_begun = self._remove(live, reason)
            to_close = bool(self._withdrawn)
        if never_begun:
            live.end(reason)
        return to_close

    def _remove(self, live: LiveRequest, reason: Exception) -> bool:
        """Stop a request and take it out of its list.

        Returns whether it had not begun, so that it can end at once.
        """
        self._forget(live)
        live.reason = live.reason or reason
        live.is_stopped = True
        if live in self._new:
            self._new.remove(live)
            return True
        if live in self._begun:
            self._begun.remove(live)
            self._withdrawn.append(live)
        return False

    def take(
        self,
        models: Collection[str | None] | None = None,
        *,
        include_begun: bool = True,
        include_long: bool = True,
    ) -> LiveRequest | None:
        """Remove the next request; None if there is none.

        Args:
            models: Of which the request needs one; None for any.
            include_begun: Whether it may have begun already.
            include_long: Whether its only record may take many batches.
        """
        with self._lock:
            for queue in self._queues_in_order(include_begun):
                candidates = [
                    request
                    for request in queue
                    if (models is None or request.model in models)
                    and (include_long or not request.is_long)
                ]
                if candidates:
                    live = min(candidates, key=self._last_turn)
                    queue.remove(live)
                    self._count_turn(live, ahead=queue is self._new)
                    return live
        return None

    def waits_for_other_model(self, models: Collection[str | None]) -> bool:
        """Whether a new request needs a model other than these."""
        with self._lock:
            return any(request.model not in models for request in self._new)

    def take_withdrawn(self) -> list[LiveRequest]:
        """Remove the begun requests that nobody reads any more."""
        with self._lock:
            withdrawn = list(self._withdrawn)
            self._withdrawn.clear()
        return withdrawn

    def _queues_in_order(self, include_begun: bool) -> Sequence[deque[LiveRequest]]:
        may_serve_new = self._new_in_a_row < MAX_NEW_IN_A_ROW
        if not include_begun:
            return (self._new,) if may_serve_new else ()
        if not self._begun:
            self._new_in_a_row = 0
        if may_serve_new:
            return (self._new, self._begun)
        return (self._begun, self._new)

    def _last_turn(self, live: LiveRequest) -> int:
        """When the session of a request was last served, as a count of records; 0 for never."""
        return self._turns.get(live.session, 0)

    def _count_turn(self, live: LiveRequest, ahead: bool) -> None:
        self._new_in_a_row = self._new_in_a_row + 1 if ahead else 0
        self._served += 1
        self._turns[live.session] = self._served  # forgets the session served longest ago

    def put_back(self, live: LiveRequest) -> None:
        """Queue a request that has more records for its next turn."""
        with self._lock:
            queue = self._withdrawn if live.is_stopped else self._begun
            queue.append(live)

    def forget(self, live: LiveRequest) -> None:
        """Forget a request that has ended."""
        with self._lock:
            self._forget(live)

    def _forget(self, live: LiveRequest) -> None:
        if live.key is not None and self._latest.get(live.key) is live:
            del self._latest[live.key]

    def close(self) -> list[LiveRequest]:
        """Take no further request. Returns those that are left, removed."""
        with self._lock:
            self._closed = True
            remaining = [*self._new, *self._begun, *self._withdrawn]
            for queue in (self._new, self._begun, self._withdrawn):
                queue.clear()
        return remaining


__all__ = ["Bench", "Engine"]
IDLE_SECONDS = 1.0


class Engine:
    """Owns the device through its thread. Requests may come from any other thread.

    Attributes:
        jobs: The job list.
        store: Where results are stored.
        ray: One word for where Ray jobs run; empty if they cannot.
    """

    def __init__(
        self,
        make_bench: Callable[[], Bench],
        jobs: JobList,
        store: Store,
        warm: str | None = None,
        *,
        ray: str = "",
    ) -> None:
        """Nothing runs yet; see `start`.

        Args:
            make_bench: Makes what does the work, in the device's thread.
            jobs: The job list.
            store: Where results are stored.
            warm: A model to load at once.
            ray: One word for where Ray jobs run; empty if they cannot.
        """
        self.jobs = jobs
        self.store = store
        self.ray = ray
        self._make_bench = make_bench
        self._warm = warm
        self._waiting = RequestQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._bench: Bench | None = None
        self._broken: Exception | None = None
        self._under_way: list[LiveRequest] = []
        self._runner = Runner(jobs, self._between_job_batches)
        self._thread = threading.Thread(
            target=Context().run, args=(self._main,), name="device", daemon=True
        )

    # Called from any thread.

    def start(self) -> None:
        """Start the device's thread; torch is imported there, so this returns at once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> bool:
        """Stop all work at its next batch; a running job goes back into the queue.

        True if the thread ended.
        """
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def device(self) -> str | None:
        """The device; None until torch has been imported."""
        bench = self._bench
        if bench is not None:
            return bench.device
        return None

    @property
    def resident(self) -> str | None:
        """Name of the model in memory that was used last, if any."""
        residents = self.residents
        return residents[-1] if residents else None

    @property
    def residents(self) -> tuple[str, ...]:
        """Names of the models in memory, the one used last at the end."""
        bench = self._bench
        return () if bench is None else bench.residents

    @property
    def waiting(self) -> int:
        """Number of live requests waiting for their turn."""
        return self._waiting.count

    @property
    def idle(self) -> bool:
        """Whether no live request waits or is under way."""
        return not self._under_way and not self.waiting

    @property
    def trouble(self) -> Exception | None:
        """Why nothing can be computed or the job list cannot be written, or None."""
        return self._broken or self._runner.trouble

    def refusal(self, sentence: str, *, code: str) -> Refusal:
        """The refusal (503) of a request: because of the trouble, or else for the reason given."""
        trouble = self.trouble
        if trouble is not None:
            sentence = sentence_of(trouble)
            code = code_of(trouble)
        return Refusal(sentence, 503, code=code)

    @property
    def alive(self) -> bool:
        """Whether the device's thread can still answer."""
        return self._broken is None and not self._stopping.is_set()

    def fetch(self, model: str) -> Future[None]:
        """Fetch a model's files ahead, so that loading it holds nobody up. Raises Refusal (429)."""
        bench = self._bench
        if bench is not None and model not in bench.residents:
            return bench.fetch(model)
        finished_download: Future[None] = Future()
        finished_download.set_result(None)
        return finished_download

    def ask(
        self,
        work: Callable[[Bench], BaseModel],
        model: str,
        send: Callable[[Message], None],
        *,
        is_long: bool = False,
    ) -> LiveRequest:
        """Request one record.

        Args:
            work: Makes it, in the device's thread.
            model: That it needs.
            send: Called with the record, or with the exception that says why there is none.
            is_long: Whether it takes many batches, between which others may be served.
        """
        return self._queue_request(
            LiveRequest(lambda: iter([work(self._ready_bench)]), send, model, is_long=is_long)
        )

    def evaluate(self, request: EvaluateRequest, send: Callable[[Message], None]) -> LiveRequest:
        """Request the accuracy of a mask, figure by figure."""
        key = (
            None
            if request.session is None
            else (request.session, request.task, request.language, request.split)
        )
        return self._queue_request(
            LiveRequest(lambda: self._ready_bench.evaluate(request), send, request.model, key)
        )

    def submit(self, job: Job, place: JobPlace = "here") -> Submitted:
        """Queue a job. Raises HeadlabError if its fields are invalid or cannot be kept."""
        if place == "ray" and not self.ray:
            raise Refusal(
                "this worker has no Ray to compute on; start it with --ray, or compute here",
                422,
                code="worker.no_ray",
            )
        submission = self.jobs.submit(job.key, job.resolve_or_refuse().queued_params(), place)
        self._wake.set()
        return submission

    def resume(self, job: int) -> JobRow:
        """Queue a cancelled or failed job again."""
        row = self.jobs.resume(job)
        self._wake.set()
        return row

    def scores_so_far(self, job: int) -> HeadScores | None:
        """The scores so far of a running job; None if it is not running or has none."""
        return self._runner.scores_so_far(job)

    def front_so_far(self, job: int) -> FrontSoFar | None:
        """What a running job has measured of a front; None if it is not running or has none."""
        return self._runner.front_so_far(job)

    def delete(self, job: int) -> None:
        """Delete a job, with the checkpoints that only it could continue from; results stay."""
        self._runner.delete(job, self.store.root)

    def withdraw(self, live: LiveRequest) -> None:
        """Stop a request that nobody reads any more; does nothing to one that has ended."""
        if self._waiting.withdraw(live, left_by_reader_refusal()):
            self._wake.set()

    def _queue_request(self, live: LiveRequest) -> LiveRequest:
        if not self.alive:
            reason = shutting_down_refusal()
            raise self.refusal(str(reason), code=reason.code)
        self._waiting.add(live)
        self._wake.set()
        return live

    # Called in the device's thread only.

    @property
    def _ready_bench(self) -> Bench:
        assert self._bench is not None
        return self._bench

    def _main(self) -> None:
        try:
            self._bench = self._make_bench()
            self._bench.tick = self._between_live_batches
        except Exception as error:  # torch missing or broken: /health and every request say so
            log_failure(log, "the device could not be set up", error)
            self._broken = error
        if self._broken is None and self._warm is not None:
            self._warm_up(self._warm)
        try:
            self._loop()
        except Exception as error:
            # This thread must not end unnoticed: /health would stay ok and requests hang.
            log_failure(log, "the device's thread ended", error)
            self._broken = error
        for live in self._waiting.close():
            live.end(live.reason or shutting_down_refusal())

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._serve()
            if self._broken is not None or not self._runner.run_next(self._ready_bench):
                self._wake.wait(IDLE_SECONDS)

    def _warm_up(self, model: str) -> None:
        try:
            self._ready_bench.load(model)
        except Exception as error:  # a request for the model will say why
            log_failure(log, "the model asked for at start could not be loaded", error)

    def _serve(self) -> None:
        """Serve all waiting live requests, one record of each in turn."""
        self._close_withdrawn()
        while not self._stopping.is_set():
            live = self._waiting.take()
            if live is None:
                return
            self._serve_one(live)
            self._close_withdrawn()

    def _close_withdrawn(self) -> None:
        for live in self._waiting.take_withdrawn():
            live.end(live.reason or left_by_reader_refusal())

    def _serve_one(self, live: LiveRequest) -> None:
        """Serve a request its next record.

        One with more to come waits for its next turn, any other has ended.
        """
        refusal = self._refusal_of(live)
        if refusal is not None:
            live.end(refusal)
            self._waiting.forget(live)
            return
        self._under_way.append(live)
        try:
            has_more = live.step()
        finally:
            self._under_way.pop()
        if has_more:
            self._waiting.put_back(live)
        else:
            self._waiting.forget(live)

    def _refusal_of(self, live: LiveRequest) -> Exception | None:
        """Why a request cannot be served now; None if it can."""
        if self._broken is not None:
            return self._broken
        busy = self._runner.model
        has_begun = live.steps is not None
        if has_begun or busy is None or live.model is None:
            return None
        if live.model == busy or self._ready_bench.may_join(live.model):
            return None
        return other_model_in_use(busy, live.model)

    def _between_live_batches(self) -> None:
        """End a live request between its batches if nobody reads it, or serve new ones a record."""
        if not self._under_way:
            return
        if self._stopping.is_set() or self._under_way[-1].is_stopped:
            raise Stopped
        self._close_withdrawn()
        if len(self._under_way) > 1:
            return
        # A request for a model that is not in memory could free the one in use, so it waits until
        # this one ends; so does a long one, which would hold this one up.
        current = self._under_way[-1]
        models = {current.model, *self.residents}
        while True:
            new = self._waiting.take(models, include_begun=False, include_long=False)
            if new is None:
                break
            self._serve_one(new)
        # Served between the batches of a long request, streams would hold up whoever waits for its
        # end: a whole stream passes in the time that the long one needs.
        if not current.is_long or self._waiting.waits_for_other_model(models):
            return
        next_short = self._waiting.take(models, include_long=False)
        if next_short is not None:
            self._serve_one(next_short)

    def _between_job_batches(self) -> None:
        """Called between the batches of a job. Raises Stopping if the worker shuts down."""
        if self._stopping.is_set():
            raise Stopping
        self._serve()
