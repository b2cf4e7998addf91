"""Live requests: a stream of records each, worked off a record at a time so that none waits for another's end."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field

from pydantic import BaseModel

from headlab.worker.schemas import Refusal

MAX_WAITING = 384
# Of one session, without those it has taken back; a page asks for every language at once.
MAX_OF_ONE = 64
# First figures that may go ahead while others wait for their next one: without a limit they would wait for ever.
PATIENCE = 8
REMEMBERED = 1000


class End:
    """The last thing a stream sends. superseded: a newer request of the same session took its place."""

    def __init__(self, superseded: bool = False) -> None:
        self.superseded = superseded


class Stopped(Exception):
    """Raised between batches of a stream that nobody waits for any more: not an error."""


Message = BaseModel | Exception | End


@dataclass(eq=False)
class Live:
    """One request.

    start: gives the records, called in the device's thread.  send: takes each record, then End or the
    exception that ended the stream; called in the device's thread, must not raise.  model: the one it needs.  key:
    a newer request of the same key takes this one's place.  long: its one record takes many batches, between
    which others may have their turn.
    """

    start: Callable[[], Iterator[BaseModel]]
    send: Callable[[Message], None]
    model: str | None = None
    key: Hashable | None = None
    long: bool = False
    stopped: bool = False
    superseded: bool = False
    steps: Iterator[BaseModel] | None = None
    # An empty context each: gates are context variables, so nothing leaks in or out.
    context: Context = field(default_factory=Context)

    @property
    def session(self) -> Hashable:
        """Who asks; None for all that do not say."""
        return self.key[0] if isinstance(self.key, tuple) else None

    def step(self) -> bool:
        """Send the next record. Returns False when the stream has ended, however it ended."""
        try:
            if self.stopped:
                raise Stopped
            if self.steps is None:
                self.steps = self.context.run(self.start)
            self.send(self.context.run(next, self.steps))
        except (StopIteration, Stopped):
            self._end(End(self.superseded))
        except Exception as error:  # whatever went wrong is the asker's answer, the worker goes on
            self._end(error)
        else:
            return True
        return False

    def _end(self, message: Message) -> None:
        steps, self.steps = self.steps, None
        close = getattr(steps, "close", None)
        if close is not None:
            self.context.run(close)
        self.send(message)


class Waiting:
    """The live requests that wait. First figures go ahead of later ones, a few in a row at most, and sessions in turn.

    Every figure that is served counts as its session's turn: next comes the one whose turn was longest ago.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[Live] = deque()
        self._begun: deque[Live] = deque()
        self._latest: dict[Hashable, Live] = {}
        self._turns: OrderedDict[Hashable, int] = OrderedDict()
        self._ahead = 0

    @property
    def count(self) -> int:
        """How many wait, new or begun, without those that nobody waits for."""
        with self._lock:
            return sum(not live.stopped for live in (*self._new, *self._begun))

    def add(self, live: Live) -> None:
        """Queue a request; the older one of the same key is ended. Raises Refusal (429) when too many wait."""
        with self._lock:
            waiting = [*self._new, *self._begun]
            if len(waiting) >= MAX_WAITING:
                raise Refusal(
                    f"{MAX_WAITING} requests are waiting for the worker; try again in a moment",
                    429,
                    code="worker.requests_too_many",
                )
            if live.key is not None and sum(w.session == live.session and not w.stopped for w in waiting) >= MAX_OF_ONE:
                raise Refusal(
                    f"{MAX_OF_ONE} requests of this session are waiting; try again in a moment",
                    429,
                    code="worker.session_requests_too_many",
                )
            older = self._latest.get(live.key) if live.key is not None else None
            if older is not None:
                older.stopped = older.superseded = True
            if live.key is not None:
                self._latest[live.key] = live
            self._new.append(live)

    def take(self, model: str | None = None, *, begun: bool = True, long: bool = True) -> Live | None:
        """The next request, or None. model: only one that needs it.  begun, long: also those under way, also long."""
        with self._lock:
            for queue in self._order(begun):
                fits = [w for w in queue if model in (None, w.model) and (long or not w.long)]
                if fits:
                    live = min(fits, key=lambda waits: self._turns.get(waits.session, 0))
                    queue.remove(live)
                    self._count(live, ahead=queue is self._new)
                    return live
        return None

    def _order(self, begun: bool) -> Sequence[deque[Live]]:
        patient = self._ahead < PATIENCE
        if not begun:
            return (self._new,) if patient else ()
        if not self._begun:
            self._ahead = 0
        return (self._new, self._begun) if patient else (self._begun, self._new)

    def _count(self, live: Live, ahead: bool) -> None:
        self._ahead = self._ahead + 1 if ahead else 0
        self._turns[live.session] = 1 + next(reversed(self._turns.values()), 0)
        self._turns.move_to_end(live.session)
        while len(self._turns) > REMEMBERED:
            self._turns.popitem(last=False)

    def put_back(self, live: Live) -> None:
        """Let a request that has more to give wait for its next turn."""
        with self._lock:
            self._begun.append(live)

    def forget(self, live: Live) -> None:
        """A request has ended."""
        with self._lock:
            if live.key is not None and self._latest.get(live.key) is live:
                del self._latest[live.key]
