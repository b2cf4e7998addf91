"""Who may come in, and what leaves when something breaks: plain ASGI, so that streams end when their reader does."""

from __future__ import annotations

import hmac
import logging
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headlab.worker.failures import log_failure, sentence_of
from headlab.worker.schemas import MAX_BODY

log = logging.getLogger(__name__)
TOO_LARGE = f"the request is larger than {MAX_BODY >> 20} MiB"
OPEN_PATH = "/health"


class Doors:
    """Refuse what lacks the token, is too large or comes from another site's page; turn a crash into a sentence."""

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope["path"], Headers(scope=scope))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        started, taken = False, 0

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MAX_BODY:
                raise HTTPException(413)
            return message

        try:
            await self._app(scope, counted, watched)
        except Exception as error:  # the last door: nothing may leave but a sentence
            log_failure(log, _what(scope), error)
            if not started:
                await JSONResponse({"error": sentence_of(error)}, 500)(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> JSONResponse | None:
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return JSONResponse({"error": "pages of other sites may not ask this worker"}, 403)
        if int(headers.get("content-length", "0")) > MAX_BODY:
            return JSONResponse({"error": TOO_LARGE}, 413)
        if self._token is None or path == OPEN_PATH:
            return None
        given = headers.get("authorization", "").encode("latin-1")
        if hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return None
        return JSONResponse(
            {"error": "this worker needs a token: set HEADLAB_TOKEN to the one it was started with"}, 401
        )


def _what(scope: MutableMapping[str, Any]) -> str:
    """The request's kind for the log: its route, never what was typed."""
    route = scope.get("route")
    return f"{scope['method']} {getattr(route, 'path', 'unknown path')}"
