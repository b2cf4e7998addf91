"""One connection to the worker, closed when no whole request comes in time: uvicorn itself would wait for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0


class Connection(H11Protocol):
    """HTTP/1.1 whose head must be complete REQUEST_SECONDS after the connection, or its last answer, began to wait."""

    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more can come."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self.loop.call_later(REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()
