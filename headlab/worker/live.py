"""Live requests: a stream of records each, worked off a record at a time so that none waits for another's end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextvars import Context
from dataclasses import dataclass, field

from pydantic import BaseModel

from headlab.worker.schemas import Refusal

MAX_WAITING = 64


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
    a newer request of the same key takes this one's place.
    """

    start: Callable[[], Iterator[BaseModel]]
    send: Callable[[Message], None]
    model: str | None = None
    key: Hashable | None = None
    stopped: bool = False
    superseded: bool = False
    steps: Iterator[BaseModel] | None = None
    # An empty context each: gates are context variables, so nothing leaks in or out.
    context: Context = field(default_factory=Context)

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
    """The live requests that wait, oldest first; those under way stand behind those not begun."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._lock = threading.Lock()
        self._new: deque[Live] = deque()
        self._begun: deque[Live] = deque()
        self._latest: dict[Hashable, Live] = {}
        self._limit = limit

    def add(self, live: Live) -> None:
        """Queue a request; the older one of the same key is ended. Raises Refusal (429) when too many wait."""
        with self._lock:
            if len(self._new) + len(self._begun) >= self._limit:
                raise Refusal(f"{self._limit} requests are waiting for the worker; try again in a moment", 429)
            older = self._latest.get(live.key) if live.key is not None else None
            if older is not None:
                older.stopped = older.superseded = True
            if live.key is not None:
                self._latest[live.key] = live
            self._new.append(live)

    def take(self, model: str | None = None, *, begun: bool = True) -> Live | None:
        """The next request, or None. model: only one that needs this model.  begun: also one under way."""
        with self._lock:
            for queue in (self._new, self._begun) if begun else (self._new,):
                for live in queue:
                    if model is None or live.model == model:
                        queue.remove(live)
                        return live
        return None

    def put_back(self, live: Live) -> None:
        """Let a request that has more to give wait for its next turn."""
        with self._lock:
            self._begun.append(live)

    def forget(self, live: Live) -> None:
        """A request has ended."""
        with self._lock:
            if live.key is not None and self._latest.get(live.key) is live:
                del self._latest[live.key]
