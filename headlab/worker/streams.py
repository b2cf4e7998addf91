"""Between the device's thread and the server's: the records of one live request as they come."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable

from fastapi import Request
from pydantic import BaseModel

from headlab.errors import HeadlabError
from headlab.worker.failures import code_of, log_failure, sentence_of
from headlab.worker.live import End, Live, Message
from headlab.worker.schemas import Refusal

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.25
Ask = Callable[[Callable[[Message], None]], Live]


class Inbox:
    """Messages of one live request, sent from the device's thread, read in the server's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Message] = asyncio.Queue()

    def send(self, message: Message) -> None:
        """Called from the device's thread; a server that has gone takes nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    async def read(self) -> BaseModel | End:
        """The next record, or the end. Raises what ended the request."""
        message = await self._queue.get()
        if isinstance(message, Exception):
            raise message
        return message


async def first_of(live: Live, inbox: Inbox, http: Request) -> BaseModel | End:
    """The first record; nothing is computed for a client that has gone while it waited."""
    reading = asyncio.ensure_future(inbox.read())
    try:
        while not (await asyncio.wait({reading}, timeout=LOOK_SECONDS))[0]:
            live.stopped = live.stopped or await http.is_disconnected()
    except asyncio.CancelledError:
        live.stopped = True
        reading.cancel()
        raise
    return reading.result()


async def only(http: Request, ask: Ask) -> BaseModel:
    """The one record of a request."""
    inbox = Inbox()
    record = await first_of(ask(inbox.send), inbox, http)
    if isinstance(record, End):
        raise Refusal("the worker is shutting down; try again in a moment", 503, code="worker.going_down")
    return record


async def lines_of(live: Live, inbox: Inbox, first: BaseModel | End) -> AsyncIterator[str]:
    """All records, the first one included, a line of JSON each."""
    record = first
    try:
        while not isinstance(record, End):
            yield record.model_dump_json(exclude_none=True) + "\n"
            record = await inbox.read()
        if record.superseded:
            yield '{"superseded": true, "done": false}\n'
    except Exception as error:  # the status has been sent: the sentence travels as the last line
        yield json.dumps(_told(error)) + "\n"
    finally:
        live.stopped = True


def _told(error: Exception) -> dict[str, str]:
    """What the asker is told; what nobody expected goes to the log."""
    if not isinstance(error, HeadlabError):
        log_failure(log, "a live request", error)
    return {"error": sentence_of(error), "code": code_of(error)}
