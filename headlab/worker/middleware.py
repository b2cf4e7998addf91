"""Authentication, limits and error answers: plain ASGI, so that a stream ends when its reader disconnects."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import socket
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from headlab.core import HeadlabError
from headlab.jobs import Name, Refusal
from headlab.worker.schemas import MAX_BODY, MAX_SENT, code_of, log_failure, sentence_of

# One connection to the worker, closed if no complete request arrives in time: uvicorn itself would wait for ever.

REQUEST_SECONDS = 10.0


class Connection(H11Protocol):
    """HTTP/1.1 whose request head must be complete REQUEST_SECONDS after the connection opened or last answered."""

    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Send every line at once, and start waiting for the first request."""
        # asyncio does so only for sockets that name their protocol; else a kept connection stalls for 40 ms an answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self.loop.call_later(REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


# Which models may be requested: any if only this machine can reach the worker, else those its owner named.

VARIABLE = "HEADLAB_MODELS"
PATH_LIKE = ("/", "./", "../", "~")


class Allowed:
    """Admits embedded models and those named here, by exact name: no other text reaches the disk or the hub.

    A folder's path is resolved once; a name that later resolves elsewhere is refused. Raises HeadlabError
    for a name that no request could use.
    """

    def __init__(self, named: Iterable[str] = ()) -> None:
        self._places = {name: _first_place(name) for name in named}

    def __call__(self, model: str) -> str:
        """The model, if it may be requested. Raises Refusal (404)."""
        embedded = embedded_names()
        if model in embedded:
            return model
        if model not in self._places:
            served = ", ".join((*embedded, *self._places))
            raise Refusal(
                f"this worker is open to other machines and serves {served} only, not {model!r}; whoever runs it can "
                f"add a model with --allow or {VARIABLE}",
                404,
                code="model.not_allowed",
            )
        if _place(model) != self._places[model]:
            raise Refusal(
                f"{model} is another folder than when the worker started, so it is not opened; restart the worker if "
                "that was intended",
                404,
                code="model.moved",
            )
        return model


def embedded_names() -> tuple[str, ...]:
    """Models that come with headlab, by their folders. Needs no torch, so it never waits."""
    root = Path(str(files("headlab") / "embedded"))
    return tuple(sorted({path.parent.name for path in root.glob("*/*.json")}))


def admit_local(model: str) -> str:
    """Admit any model: for a worker that only this machine can reach."""
    return model


def named_models(given: Iterable[str] = ()) -> tuple[str, ...]:
    """Models named by --allow and, separated by commas, in $HEADLAB_MODELS; each once."""
    told = os.environ.get(VARIABLE, "").split(",")
    return tuple(dict.fromkeys(name.strip() for name in (*given, *told) if name.strip()))


def _first_place(name: str) -> str | None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise HeadlabError(
            f"a request cannot name the model {name[:80]!r}; give a shorter, printable name",
            code="model.name_invalid",
        ) from error
    place = _place(name)
    if place is None and name.startswith(PATH_LIKE):
        raise HeadlabError(
            f"the model {name} is not a folder here; give an existing folder, or a name from the hub",
            code="model.folder_missing",
        )
    return place


def _place(name: str) -> str | None:
    """Real path of a folder, links resolved; None for what is not a folder, such as a hub id."""
    try:
        return str(Path(name).resolve()) if Path(name).is_dir() else None
    except (OSError, ValueError, RuntimeError):  # too long, not encodable, a loop of links
        return None


log = logging.getLogger(__name__)
TOO_LARGE = (
    f"the request is larger than {MAX_BODY >> 20} MiB, or for a task's files {MAX_SENT >> 20} MiB"
)
OPEN_PATH = "/health"
SENT_PATH, MAX_SENDERS = (
    "/tasks",
    4,
)  # files come here, so bodies may be larger, and few are held in memory at a time
BODY_SECONDS, SENT_SECONDS = 20.0, 300.0  # within which a body arrives
MAX_REQUESTS = 400
# A Host header: `localhost`, `127.0.0.1` or `[::1]`, and perhaps a port.
HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[0-9]{1,5})?", re.IGNORECASE)
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class AccessControl:
    """Refuse requests without the token, too large, too slow or from another site; turn a crash into a message.

    hosts: accepted names in the Host header; None or "*": any.
    """

    def __init__(
        self, app: ASGIApp, token: str | None = None, hosts: Iterable[str] | None = None
    ) -> None:
        self._app = app
        self._token = token
        named = frozenset(hosts or ("*",))
        self._hosts = None if "*" in named else named
        self._inside = self._senders = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(scope, Headers(scope=scope))
            if refusal is None:
                await self._enter(scope, receive, send)
            else:
                await refusal(scope, receive, _with_headers(send))

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        sends = _sends_files(scope)
        self._inside, self._senders = self._inside + 1, self._senders + sends
        try:
            most, seconds = (MAX_SENT, SENT_SECONDS) if sends else (MAX_BODY, BODY_SECONDS)
            await self._app(scope, _limited(receive, most, seconds), _with_headers(watched))
        except Exception as error:  # last resort: nothing but a message may get out
            route = getattr(scope.get("route"), "path", "unknown path")  # never what was typed
            log_failure(log, f"{scope['method']} {route}", error)
            if not started:
                await refused(500, sentence_of(error), code=code_of(error))(
                    scope, receive, _with_headers(send)
                )
        finally:
            self._inside, self._senders = self._inside - 1, self._senders - sends

    def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "")
        named = HOST.fullmatch(host)
        if self._hosts is not None and (named is None or named[1].lower() not in self._hosts):
            names = ", ".join(sorted(self._hosts))
            return refused(
                400,
                f"the request's Host header does not name this worker, which answers to {names} only; use one of these "
                "in HEADLAB_WORKER, or start the worker with --host 0.0.0.0 and HEADLAB_TOKEN: then it answers to any "
                "name",
                code="request.host_unknown",
            )
        origin = headers.get("origin")
        if origin is not None and _place_of(origin) != host:
            return refused(
                403,
                "pages of other sites may not use this worker, and no option allows them: ask from a program, which "
                "sends no Origin header; a reverse proxy in front of the worker must pass the Host header on",
                code="request.other_site",
            )
        sends = _sends_files(scope)
        if not _small(headers.get("content-length", "0"), MAX_SENT if sends else MAX_BODY):
            return refused(413, TOO_LARGE, code="request.too_large")
        if self._inside >= MAX_REQUESTS or (sends and self._senders >= MAX_SENDERS):
            many = (
                f"{MAX_SENDERS} tasks are being sent"
                if sends
                else f"{MAX_REQUESTS} requests are in progress"
            )
            return refused(503, f"{many}; try again in a moment", code="request.too_many_under_way")
        if self._token is None or scope["path"] == OPEN_PATH:
            return None
        given = headers.get("authorization", "").encode("latin-1")
        if hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return None
        return refused(
            401,
            "this worker needs a token: set HEADLAB_TOKEN to the one it was started with",
            code="token.wrong",
        )


def _sends_files(scope: Scope) -> bool:
    return bool(scope["path"] == SENT_PATH and scope["method"] == "POST")


def _limited(receive: Receive, most: int, seconds: float) -> Receive:
    """The request's body as it arrives. Raises HTTPException if it gets too large (413) or takes too long (408)."""
    loop = asyncio.get_running_loop()
    until, taken, whole = loop.time() + seconds, 0, False

    async def counted() -> Message:
        nonlocal taken, whole
        if whole:  # from here on it waits for the client to disconnect, which may take long
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, until - loop.time()))
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {seconds:.0f} s") from None
        taken += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if taken > most:
            raise HTTPException(413)
        return message

    return counted


def _with_headers(send: Send) -> Send:
    """Add the headers that forbid browsers any use of an answer, unless the route has set its own."""

    async def headed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return headed


def refused(status: int, sentence: str, *, code: str) -> JSONResponse:
    """The answer to a request that is refused; its fields are those of `schemas.Problem`."""
    return JSONResponse({"error": sentence, "code": code}, status)


def _small(length: str, most: int) -> bool:
    """Whether a body of this Content-Length is accepted."""
    return (
        length.isascii() and length.isdigit() and int(length) <= most if len(length) < 20 else False
    )


def _place_of(origin: str) -> str:
    """Host and port of an Origin header; empty for one that cannot be parsed, such as "null"."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
