"""Calls assigned to devices and answered in order, and several runs so that no device waits."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from headlab.core import HeadlabError

# Calls assigned to devices and answered in order; those of a lost device are reassigned.

CALLS_PER_DEVICE = 2  # pending at once, so that a device never waits for the next
MAX_TRIES = 4
POLL_SECONDS = 0.05
MAX_SECONDS_UNTIL_READY = 900.0  # a model may have to be downloaded, or other work to end
Tick = Callable[[], None]
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Lost(Exception):
    """The process or machine behind a device was lost; its calls may be sent elsewhere."""


class Device(Protocol):
    """Something that answers calls in another process.

    A future fails with `Lost` when that process is lost.
    """

    def call(self, method: str, *arguments: object) -> Future[object]:
        """Start a call of a method of `headlab.cluster.distributed_game.Replica`."""

    def end(self) -> None:
        """Release the device."""


@dataclass(eq=False)
class DeviceCall(Generic[Answer_co]):
    """One call that any device may answer.

    Attributes:
        key: Key of its setting.
        subject: Its setting, which a device is sent once.
        method: Name of a method of `headlab.cluster.distributed_game.Replica`.
        arguments: Arguments of the method, after the key.
        answer: What the method gives.
        tries: How often it was sent to a device.
    """

    key: str
    subject: object
    method: str
    arguments: tuple[object, ...]
    answer: Future[Answer_co] = field(default_factory=Future)
    tries: int = 0


@dataclass(eq=False)
class Member:
    """A device of the pool.

    Attributes:
        device: The device.
        ready: Whether it has answered `hello`.
        pending_calls: Calls sent to it that it has not answered.
        known_keys: Keys of the settings sent to it.
    """

    device: Device
    ready: bool = False
    pending_calls: set[DeviceCall[object]] = field(default_factory=set)
    known_keys: set[str] = field(default_factory=set)


class Pool:
    """Devices that answer calls; its own thread assigns them, and any thread may ask.

    A lost device is replaced, and its pending calls are reassigned ahead of the rest.

    Args:
        hire: Returns a new device, ready or not yet (its `hello` answers once it is).

    Attributes:
        size: Number of devices to keep.
        kind: What the devices are, "cpu" or "cuda".
        lost: Number of devices lost so far.
    """

    def __init__(self, hire: Callable[[], Device], size: int, kind: str = "cpu") -> None:
        self._hire = hire
        self.size = size
        self.kind = kind
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting: deque[DeviceCall[object]] = deque()
        self._members: list[Member] = []
        self._failure: HeadlabError | None = None
        self._losses = 0  # since the last answer
        self.lost = 0
        self._thread = threading.Thread(target=self._main, name="pool", daemon=True)
        self._thread.start()
        for _ in range(size):
            self._events.put(self._hire_one)

    def close(self) -> None:
        """Release all devices; calls not yet answered fail."""
        self._events.put(None)
        self._thread.join()

    @property
    def ready_count(self) -> int:
        """Number of devices that are ready."""
        return sum(member.ready for member in tuple(self._members))

    @property
    def devices(self) -> tuple[Device, ...]:
        """The present devices, ready or not."""
        return tuple(member.device for member in tuple(self._members))

    def ask(self, calls: Iterable[DeviceCall[Answer]], tick: Tick) -> Iterator[Answer]:
        """Yield the answers to independent calls, in order; some calls are sent ahead.

        Args:
            calls: The calls.
            tick: Called while waiting; may raise to stop.

        Raises:
            HeadlabError: No device is left; any error that a call raised is raised as well.
        """
        sent_calls: deque[DeviceCall[Answer]] = deque()
        remaining_calls = iter(calls)
        try:
            while True:
                while len(sent_calls) < self.size * CALLS_PER_DEVICE:
                    call = next(remaining_calls, None)
                    if call is None:
                        break
                    sent_calls.append(call)
                    self._events.put(partial(self._accept, call))
                if not sent_calls:
                    return
                answer = self.wait(sent_calls[0].answer, tick)
                sent_calls.popleft()
                yield answer
        finally:
            for call in sent_calls:
                call.answer.cancel()

    def wait(self, answer: Future[Answer], tick: Tick) -> Answer:
        """Wait for one answer; `tick` as in `ask`.

        Raises:
            HeadlabError: No device has been ready for too long. Errors of the call are raised too.
        """
        seconds_without_device = 0.0
        while True:
            tick()
            try:
                return answer.result(POLL_SECONDS)
            except FutureTimeout:
                if answer.done():  # it has arrived since, or the call itself timed out
                    return answer.result()
                seconds_without_device = (
                    0.0 if self.ready_count else seconds_without_device + POLL_SECONDS
                )
                if seconds_without_device > MAX_SECONDS_UNTIL_READY:
                    raise HeadlabError(
                        f"none of the {self.size} Ray workers was ready within "
                        f"{MAX_SECONDS_UNTIL_READY / 60:.0f} minutes: the cluster has no free GPUs or "
                        "processors; wait for other work on it, or ask for fewer workers",
                        code="ray.not_ready",
                    ) from None

    # What follows runs in the pool's thread only.

    def _main(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                event()
                self._assign_calls()
            except Exception as error:  # if this thread ended, callers would wait for ever
                self._fail(
                    HeadlabError(
                        f"the pool of Ray workers broke ({type(error).__name__}); run the same "
                        "command again",
                        code="ray.pool_broken",
                    )
                )
        self._fail(HeadlabError("the run on several devices was stopped", code="ray.ended"))
        for member in self._members:
            member.device.end()

    def _accept(self, call: DeviceCall[object]) -> None:
        if self._failure is not None:
            _fail_call(call, self._failure)
        else:
            self._waiting.append(call)

    def _hire_one(self) -> None:
        try:
            member = Member(self._hire())
        except Exception as error:  # whatever it is, the other devices go on
            self._go_on_without(error)
            return
        self._members.append(member)
        self._when_done(member.device.call("hello"), partial(self._on_hello, member))

    def _on_hello(self, member: Member, answer: Future[object]) -> None:
        error = answer.exception()
        if error is None:
            member.ready = True
        else:
            self._remove(member, error)

    def _remove(self, member: Member, error: BaseException) -> None:
        """Remove a device that was lost or never became ready.

        A lost one is replaced unless too many were.
        """
        if member not in self._members:
            return
        self._members.remove(member)
        for call in sorted(member.pending_calls, key=lambda c: c.tries, reverse=True):
            self._retry(call)
        member.pending_calls.clear()
        is_lost = isinstance(error, Lost)
        self.lost += is_lost
        self._losses += is_lost
        member.device.end()
        if is_lost and self._losses <= MAX_TRIES * self.size:
            self._hire_one()
        else:
            self._go_on_without(error)

    def _go_on_without(self, error: BaseException) -> None:
        """Go on without a replacement; if no device is left, all calls fail."""
        if self._members:
            return
        if not isinstance(error, HeadlabError):
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            error = HeadlabError(
                f"no Ray worker is left ({reason}); see Ray's own logs, then run the same command "
                "again",
                code="ray.no_worker_left",
            )
        self._fail(error)

    def _fail(self, error: HeadlabError) -> None:
        self._failure = error
        for call in self._waiting:
            _fail_call(call, error)
        for member in self._members:
            for call in member.pending_calls:
                _fail_call(call, error)
        self._waiting.clear()

    def _assign_calls(self) -> None:
        while self._waiting:
            free_members = [
                member
                for member in self._members
                if member.ready and len(member.pending_calls) < CALLS_PER_DEVICE
            ]
            if not free_members:
                return
            call = self._waiting.popleft()
            if not call.answer.cancelled():
                self._send(min(free_members, key=lambda member: len(member.pending_calls)), call)

    def _send(self, member: Member, call: DeviceCall[object]) -> None:
        call.tries += 1
        member.pending_calls.add(call)
        if call.key not in member.known_keys:
            member.known_keys.add(call.key)
            self._when_done(
                member.device.call("meet", call.key, call.subject),
                partial(self._on_setting, member, call.key),
            )
        self._when_done(
            member.device.call(call.method, call.key, *call.arguments),
            partial(self._on_answer, member, call),
        )

    def _on_setting(self, member: Member, key: str, answer: Future[object]) -> None:
        """If a setting was not accepted, the calls about it fail with the same error."""
        error = answer.exception()
        if error is None or isinstance(error, Lost):
            return  # the call that follows reports it
        member.known_keys.discard(key)
        for call in member.pending_calls:
            if call.key == key:
                _fail_call(call, error)

    def _on_answer(self, member: Member, call: DeviceCall[object], answer: Future[object]) -> None:
        if call not in member.pending_calls:
            return  # the device has been removed meanwhile
        error = answer.exception()
        if isinstance(error, Lost):
            self._remove(member, error)
            return
        member.pending_calls.discard(call)
        self._losses = 0
        if error is not None:
            _fail_call(call, error)
        else:
            with suppress(InvalidStateError):  # nobody waits for it any more
                call.answer.set_result(answer.result())

    def _retry(self, call: DeviceCall[object]) -> None:
        if call.answer.done():
            return
        if call.tries >= MAX_TRIES:
            _fail_call(
                call,
                HeadlabError(
                    f"{MAX_TRIES} Ray workers were lost at the same part of the run; it may need "
                    "more memory than a worker has: give each more (fewer workers), and see Ray's "
                    "own logs",
                    code="ray.workers_lost",
                ),
            )
            return
        self._waiting.appendleft(call)

    def _when_done(self, future: Future[object], event: Callable[[Future[object]], None]) -> None:
        future.add_done_callback(
            lambda answered_future: self._events.put(partial(event, answered_future))
        )


def _fail_call(call: DeviceCall[object], error: BaseException) -> None:
    with suppress(InvalidStateError):  # nobody waits for it any more
        call.answer.set_exception(error)


# Several runs of one process at once, so that devices have work while one run waits for its last
# answers.

MAX_RUNS = 16
Outcome = TypeVar("Outcome")


class RunEnded(Exception):
    """Raised in a run when another has failed or all are stopped; not an error."""


def run_side_by_side(
    names: Iterable[str], start_run: Callable[[str, Tick], Outcome], at_once: int, tick: Tick
) -> dict[str, Outcome]:
    """{name: start_run(name, tick)} in the names' order, each in a thread of its own.

    The error of the first run that failed is raised once all have ended.

    Args:
        names: Names of the runs.
        start_run: Computes a run. Its tick ends it when another has failed or `tick` has raised.
        at_once: Number of runs at a time; one alone needs no thread.
        tick: Called in this thread meanwhile; may raise to stop.
    """
    if at_once == 1:
        return {name: start_run(name, tick) for name in names}
    has_ended = threading.Event()

    def run_tick() -> None:
        if has_ended.is_set():
            raise RunEnded

    with ThreadPoolExecutor(max(1, min(at_once, MAX_RUNS)), "run") as pool:
        futures = {name: pool.submit(start_run, name, run_tick) for name in names}
        pending = set(futures.values())
        try:
            while pending:
                tick()
                finished_futures, pending = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
                for future in finished_futures:
                    future.result()
        finally:
            has_ended.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return {name: future.result() for name, future in futures.items()}
