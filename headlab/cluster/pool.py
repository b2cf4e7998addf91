"""Calls assigned to devices and answered in order, and several runs at once so that no device waits."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from headlab.core import HeadlabError

# Calls assigned to devices and answered in order; those of a lost device are reassigned.

AHEAD = 2  # calls pending per device, so that it never waits for the next
TRIES = 4
LOOK_SECONDS = 0.05
READY_SECONDS = 900.0  # a model may have to be downloaded, or other work to end
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
class Call(Generic[Answer_co]):
    """One call that any device may answer.

    Attributes:
        key: Of its setting.
        subject: Its setting, which a device is sent once.
        method: Of `headlab.cluster.distributed_game.Replica`.
        arguments: Of the method, after the key.
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
    """A device of the pool, its pending calls and the keys of the settings sent to it."""

    device: Device
    ready: bool = False
    in_hand: set[Call[object]] = field(default_factory=set)
    met: set[str] = field(default_factory=set)


class Pool:
    """Devices that answer calls. Its own thread assigns the calls; any thread may ask.

    A lost device is replaced, and its pending calls are reassigned ahead of the rest.

    Attributes:
        hire: Returns a new device, ready or not yet (its `hello` answers once it is).
        size: Devices wanted.
        kind: of the devices, "cpu" or "cuda".
    """

    def __init__(self, hire: Callable[[], Device], size: int, kind: str = "cpu") -> None:
        self._hire, self.size, self.kind = hire, size, kind
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting: deque[Call[object]] = deque()
        self._members: list[Member] = []
        self._failed: HeadlabError | None = None
        self._losses = 0  # since the last answer
        self.lost = 0
        self._thread = threading.Thread(target=self._main, name="pool", daemon=True)
        self._thread.start()
        for _ in range(size):
            self._events.put(self._add)

    def close(self) -> None:
        """Release all devices; calls not yet answered fail."""
        self._events.put(None)
        self._thread.join()

    @property
    def ready(self) -> int:
        """Number of devices that are ready."""
        return sum(member.ready for member in tuple(self._members))

    @property
    def devices(self) -> tuple[Device, ...]:
        """The present devices, ready or not."""
        return tuple(member.device for member in tuple(self._members))

    def ask(self, calls: Iterable[Call[Answer]], tick: Tick) -> Iterator[Answer]:
        """Yield the answers to independent calls, in order; some calls are sent ahead.

        Args:
            tick: Called while waiting; may raise to stop.

        Raises:
            what: a call raised, and HeadlabError if no device is left.
        """
        under_way: deque[Call[Answer]] = deque()
        more = iter(calls)
        try:
            while True:
                while len(under_way) < self.size * AHEAD and (call := next(more, None)) is not None:
                    under_way.append(call)
                    self._events.put(partial(self._take, call))
                if not under_way:
                    return
                answer = self.wait(under_way[0].answer, tick)
                under_way.popleft()
                yield answer
        finally:
            for call in under_way:
                call.answer.cancel()

    def wait(self, answer: Future[Answer], tick: Tick) -> Answer:
        """Wait for one answer; `tick` as in `ask`."""
        waited = 0.0
        while True:
            tick()
            try:
                return answer.result(LOOK_SECONDS)
            except NotYet:
                if answer.done():  # it has arrived since, or the call itself timed out
                    return answer.result()
                waited = 0.0 if self.ready else waited + LOOK_SECONDS
                if waited > READY_SECONDS:
                    raise HeadlabError(
                        f"none of the {self.size} Ray workers was ready within "
                        f"{READY_SECONDS / 60:.0f} minutes: the cluster has no free GPUs or "
                        "processors; wait for other work on it, or ask for fewer workers",
                        code="ray.not_ready",
                    ) from None

    # What follows runs in the pool's thread only.

    def _main(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                event()
                self._deal()
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

    def _take(self, call: Call[object]) -> None:
        if self._failed is not None:
            _fail(call, self._failed)
        else:
            self._waiting.append(call)

    def _add(self) -> None:
        try:
            member = Member(self._hire())
        except Exception as error:  # whatever it is, the other devices go on
            self._without(error)
            return
        self._members.append(member)
        self._then(member.device.call("hello"), partial(self._greeted, member))

    def _greeted(self, member: Member, answer: Future[object]) -> None:
        error = answer.exception()
        if error is None:
            member.ready = True
        else:
            self._leave(member, error)

    def _leave(self, member: Member, error: BaseException) -> None:
        """Remove a device that was lost or never became ready.

        A lost one is replaced unless too many were.
        """
        if member not in self._members:
            return
        self._members.remove(member)
        for call in sorted(member.in_hand, key=lambda c: c.tries, reverse=True):
            self._again(call)
        member.in_hand.clear()
        lost = isinstance(error, Lost)
        self.lost += lost
        self._losses += lost
        member.device.end()
        if lost and self._losses <= TRIES * self.size:
            self._add()
        else:
            self._without(error)

    def _without(self, error: BaseException) -> None:
        """Go on without a replacement; if no device is left, all calls fail."""
        if self._members:
            return
        if not isinstance(error, HeadlabError):
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            error = HeadlabError(
                f"no Ray worker is left ({said}); see Ray's own logs, then run the same command "
                "again",
                code="ray.no_worker_left",
            )
        self._fail(error)

    def _fail(self, error: HeadlabError) -> None:
        self._failed = error
        for call in (*self._waiting, *(c for member in self._members for c in member.in_hand)):
            _fail(call, error)
        self._waiting.clear()

    def _deal(self) -> None:
        while self._waiting:
            free = [m for m in self._members if m.ready and len(m.in_hand) < AHEAD]
            if not free:
                return
            call = self._waiting.popleft()
            if not call.answer.cancelled():
                self._send(min(free, key=lambda m: len(m.in_hand)), call)

    def _send(self, member: Member, call: Call[object]) -> None:
        call.tries += 1
        member.in_hand.add(call)
        if call.key not in member.met:
            member.met.add(call.key)
            self._then(
                member.device.call("meet", call.key, call.subject),
                partial(self._met, member, call.key),
            )
        self._then(
            member.device.call(call.method, call.key, *call.arguments),
            partial(self._answered, member, call),
        )

    def _met(self, member: Member, key: str, answer: Future[object]) -> None:
        """If a setting was not accepted, the calls about it fail with the same error."""
        error = answer.exception()
        if error is None or isinstance(error, Lost):
            return  # the call that follows reports it
        member.met.discard(key)
        for call in member.in_hand:
            if call.key == key:
                _fail(call, error)

    def _answered(self, member: Member, call: Call[object], answer: Future[object]) -> None:
        if call not in member.in_hand:
            return  # the device has been removed meanwhile
        error = answer.exception()
        if isinstance(error, Lost):
            self._leave(member, error)
            return
        member.in_hand.discard(call)
        self._losses = 0
        if error is not None:
            _fail(call, error)
        else:
            with suppress(InvalidStateError):  # nobody waits for it any more
                call.answer.set_result(answer.result())

    def _again(self, call: Call[object]) -> None:
        if call.answer.done():
            return
        if call.tries >= TRIES:
            _fail(
                call,
                HeadlabError(
                    f"{TRIES} Ray workers were lost at the same part of the run; it may need more "
                    "memory than a worker has: give each more (fewer workers), and see Ray's own "
                    "logs",
                    code="ray.workers_lost",
                ),
            )
            return
        self._waiting.appendleft(call)

    def _then(self, future: Future[object], event: Callable[[Future[object]], None]) -> None:
        future.add_done_callback(lambda done: self._events.put(partial(event, done)))


def _fail(call: Call[object], error: BaseException) -> None:
    with suppress(InvalidStateError):  # nobody waits for it any more
        call.answer.set_exception(error)


# Several runs of one process at once, so that devices have work while one run waits for its last
# answers.

MOST = 16
R = TypeVar("R")


class Ended(Exception):
    """Raised in a run when another has failed or all are stopped; not an error."""


def side_by_side(
    names: Iterable[str], run: Callable[[str, Tick], R], at_once: int, tick: Tick
) -> dict[str, R]:
    """{name: run(name, tick)} in the names' order, `at_once` at a time, each in its own thread (one alone needs none).

    Each run's own tick then ends it, as when another has failed.

    Args:
        tick: Called here meanwhile; may raise to stop.

    Raises:
        the: error of the first run that failed, once all have ended.
    """
    if at_once == 1:
        return {name: run(name, tick) for name in names}
    ended = threading.Event()

    def run_tick() -> None:
        if ended.is_set():
            raise Ended

    with ThreadPoolExecutor(max(1, min(at_once, MOST)), "run") as pool:
        futures = {name: pool.submit(run, name, run_tick) for name in names}
        waiting = set(futures.values())
        try:
            while waiting:
                tick()
                done, waiting = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
        finally:
            ended.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return {name: future.result() for name, future in futures.items()}
