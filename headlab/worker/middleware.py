"""Authentication, limits and error answers, as plain ASGI: a stream ends with its reader."""

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

# One connection to the worker, closed if no complete request arrives in time: uvicorn itself would
# wait for ever.

REQUEST_SECONDS = 10.0


class Connection(H11Protocol):
    """HTTP/1.1 that waits at most REQUEST_SECONDS for the head of the next request."""

    _idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Send every line at once, and start waiting for the first request."""
        # asyncio does so only for sockets that name their protocol; else a kept connection stalls
        # for 40 ms an answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._start_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
        super().on_response_complete()
        self._start_waiting()

    def _start_waiting(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self.loop.call_later(REQUEST_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and not self.transport.is_closing():
            self.transport.close()


# Which models may be requested: any if only this machine can reach the worker, else those its owner
# named.

MODELS_VARIABLE = "HEADLAB_MODELS"
PATH_LIKE = ("/", "./", "../", "~")


class AllowedModels:
    """Admits embedded models and those named here, by exact name.

    No other text reaches the disk or the hub. A folder's path is resolved once; a name that later
    resolves elsewhere is refused.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Resolve the folders among the names.

        Args:
            names: Of the models, besides the embedded ones.

        Raises:
            HeadlabError: For a name that no request could use.
        """
        self._folders = {name: _checked_folder(name) for name in names}

    def __call__(self, model: str) -> str:
        """The model, if it may be requested. Raises Refusal (404)."""
        embedded_models = embedded_names()
        if model in embedded_models:
            return model
        if model not in self._folders:
            served_models = ", ".join((*embedded_models, *self._folders))
            raise Refusal(
                f"this worker is open to other machines and serves {served_models} only, not "
                f"{model!r}; whoever runs it can add a model with --allow or {MODELS_VARIABLE}",
                404,
                code="model.not_allowed",
            )
        if _real_folder(model) != self._folders[model]:
            raise Refusal(
                f"{model} is another folder than when the worker started, so it is not opened; "
                "restart the worker if that was intended",
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


def named_models(names: Iterable[str] = ()) -> tuple[str, ...]:
    """Models named by --allow and, separated by commas, in $HEADLAB_MODELS; each once."""
    environment_names = os.environ.get(MODELS_VARIABLE, "").split(",")
    return tuple(
        dict.fromkeys(name.strip() for name in (*names, *environment_names) if name.strip())
    )


def _checked_folder(name: str) -> str | None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise HeadlabError(
            f"a request cannot name the model {name[:80]!r}; give a shorter, printable name",
            code="model.name_invalid",
        ) from error
    folder = _real_folder(name)
    if folder is None and name.startswith(PATH_LIKE):
        raise HeadlabError(
            f"the model {name} is not a folder here; give an existing folder, or a name from the "
            "hub",
            code="model.folder_missing",
        )
    return folder


def _real_folder(name: str) -> str | None:
    """Real path of a folder, links resolved; None for what is not a folder, such as a hub id."""
    try:
        if Path(name).is_dir():
            return str(Path(name).resolve())
        return None
    except (OSError, ValueError, RuntimeError):  # too long, not encodable, a loop of links
        return None


log = logging.getLogger(__name__)
TOO_LARGE = (
    f"the request is larger than {MAX_BODY >> 20} MiB, or for a task's files {MAX_SENT >> 20} MiB"
)
OPEN_PATH = "/health"
# Files come here, so bodies may be larger, and few are held in memory at a time.
SENT_PATH = "/tasks"
MAX_SENDERS = 4
# Within which a body arrives.
BODY_SECONDS = 20.0
SENT_SECONDS = 300.0
MAX_REQUESTS = 400
# A Host header: `localhost`, `127.0.0.1` or `[::1]`, and perhaps a port.
HOST_HEADER = re.compile(
    r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[0-9]{1,5})?", re.IGNORECASE
)
ANSWER_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class AccessControl:
    """Refuse requests without the token, too large, too slow or from another site.

    A crash becomes a message.
    """

    def __init__(
        self, app: ASGIApp, token: str | None = None, hosts: Iterable[str] | None = None
    ) -> None:
        """Nobody is inside yet.

        Args:
            app: What requests are passed on to.
            token: That requests must carry; None for no such check.
            hosts: Accepted names in the Host header; None or "*" for any.
        """
        self._app = app
        self._token = token
        accepted_hosts = frozenset(hosts or ("*",))
        self._hosts = None if "*" in accepted_hosts else accepted_hosts
        self._requests_inside = 0
        self._senders = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(scope, Headers(scope=scope))
            if refusal is None:
                await self._pass_on(scope, receive, send)
            else:
                await refusal(scope, receive, _with_headers(send))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def send_watched(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        sends_files = _is_sending_files(scope)
        self._requests_inside += 1
        self._senders += sends_files
        max_bytes = MAX_SENT if sends_files else MAX_BODY
        max_seconds = SENT_SECONDS if sends_files else BODY_SECONDS
        try:
            receive_limited = _limited_body(receive, max_bytes, max_seconds)
            await self._app(scope, receive_limited, _with_headers(send_watched))
        except Exception as error:  # last resort: nothing but a message may get out
            route = getattr(scope.get("route"), "path", "unknown path")  # never what was typed
            log_failure(log, f"{scope['method']} {route}", error)
            if not has_started:
                response = refusal_response(500, sentence_of(error), code=code_of(error))
                await response(scope, receive, _with_headers(send))
        finally:
            self._requests_inside -= 1
            self._senders -= sends_files

    def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "")
        host_match = HOST_HEADER.fullmatch(host)
        if self._hosts is not None and (
            host_match is None or host_match[1].lower() not in self._hosts
        ):
            names = ", ".join(sorted(self._hosts))
            return refusal_response(
                400,
                f"the request's Host header does not name this worker, which answers to {names} "
                "only; use one of these in HEADLAB_WORKER, or start the worker with --host "
                "0.0.0.0 and HEADLAB_TOKEN: then it answers to any name",
                code="request.host_unknown",
            )
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) != host:
            return refusal_response(
                403,
                "pages of other sites may not use this worker, and no option allows them: ask "
                "from a program, which sends no Origin header; a reverse proxy in front of the "
                "worker must pass the Host header on",
                code="request.other_site",
            )
        sends_files = _is_sending_files(scope)
        if not _is_accepted_length(
            headers.get("content-length", "0"), MAX_SENT if sends_files else MAX_BODY
        ):
            return refusal_response(413, TOO_LARGE, code="request.too_large")
        if self._requests_inside >= MAX_REQUESTS or (sends_files and self._senders >= MAX_SENDERS):
            too_many = f"{MAX_REQUESTS} requests are in progress"
            if sends_files:
                too_many = f"{MAX_SENDERS} tasks are being sent"
            return refusal_response(
                503, f"{too_many}; try again in a moment", code="request.too_many_under_way"
            )
        if self._token is None or scope["path"] == OPEN_PATH:
            return None
        authorization = headers.get("authorization", "").encode("latin-1")
        if hmac.compare_digest(authorization, f"Bearer {self._token}".encode()):
            return None
        return refusal_response(
            401,
            "this worker needs a token: set HEADLAB_TOKEN to the one it was started with",
            code="token.wrong",
        )


def _is_sending_files(scope: Scope) -> bool:
    return bool(scope["path"] == SENT_PATH and scope["method"] == "POST")


def _limited_body(receive: Receive, max_bytes: int, seconds: float) -> Receive:
    """The request's body as it arrives.

    Raises:
        HTTPException: If it gets too large (413) or takes too long (408).
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    received_bytes = 0
    is_complete = False

    async def receive_counted() -> Message:
        nonlocal received_bytes, is_complete
        if is_complete:  # from here on it waits for the client to disconnect, which may take long
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, deadline - loop.time()))
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {seconds:.0f} s") from None
        received_bytes += len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        if received_bytes > max_bytes:
            raise HTTPException(413)
        return message

    return receive_counted


def _with_headers(send: Send) -> Send:
    """Add headers that forbid browsers any use of an answer, unless the route has set its own."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in ANSWER_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers


def refusal_response(status: int, sentence: str, *, code: str) -> JSONResponse:
    """The answer to a request that is refused; its fields are those of `schemas.Problem`."""
    return JSONResponse({"error": sentence, "code": code}, status)


def _is_accepted_length(length: str, max_bytes: int) -> bool:
    """Whether a body of this Content-Length is accepted."""
    if len(length) >= 20 or not (length.isascii() and length.isdigit()):
        return False
    return int(length) <= max_bytes


def _host_of(origin: str) -> str:
    """Host and port of an Origin header; empty for one that cannot be parsed, such as "null"."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
