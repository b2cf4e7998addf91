"""Why the app refuses a connection, for whoever opened it under another name and for its log.

And where a page is whose address was typed in other letters.

Streamlit answers a session of an unknown host or origin with a bare 403 on its socket; its page
then waits for ever.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st
from cachetools import FIFOCache
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headlab.dashboard.streamlit_private import HEALTH_PATH, is_host_allowed

MAX_REMEMBERED = 256  # names and origins that were refused, whoever made them up
HOST_AND_PORT = r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[0-9]{1,5})?"
HOST = re.compile(HOST_AND_PORT, re.IGNORECASE)
ORIGIN = re.compile(f"https?://{HOST_AND_PORT}", re.IGNORECASE)
MISDIRECTED_STATUS = 421
MOVED_STATUS = 307
DENIAL_EXTENSION = (
    "websocket.http.response"  # the extension of ASGI that gives a refused socket a body
)
HELP_SENTENCE = "docs/security.md says more about other host names and reverse proxies."
log = logging.getLogger(__name__)


def host_advice(host: str) -> str:
    """What to do so that the app may be opened under this host name.

    Args:
        host: of a Host header, with or without a port.
    """
    match = HOST.fullmatch(host)
    if match is None:
        return f"This app was opened under a name that cannot be read. Open it as localhost. {HELP_SENTENCE}"
    name = match["name"].strip("[]").lower()
    return (
        f"This app was opened as {name}, a name it was not told to answer to, so it refuses the connection. "
        f"If the name is yours, start the app with it: headlab app --allow-host {name}, or in a checkout "
        f"make app HOSTS={name}, or set the variable "
        f'STREAMLIT_SERVER_ALLOWED_HOSTS to "localhost {name}". {HELP_SENTENCE}'
    )


def origin_advice(origin: str, host: str) -> str:
    """What to do so that a page of this origin may connect to an app under another host name.

    Args:
        origin: of an Origin header: scheme, host and perhaps port.
        host: of the same request's Host header.
    """
    match = ORIGIN.fullmatch(origin)
    if match is None or HOST.fullmatch(host) is None:
        return f"A page whose address cannot be read asked for a connection, which this app refuses. {HELP_SENTENCE}"
    return (
        f"A page at {origin} asked for a connection, but the request came to this app as {host}, so it is refused. "
        "If a reverse proxy of yours stands between, let it pass the browser's Host header on (nginx: "
        "proxy_set_header Host $http_host) and start the app with "
        f"headlab app --allow-host {match['name'].strip('[]')}; or set STREAMLIT_SERVER_CORS_ALLOWED_ORIGINS to {origin}. "
        f"{HELP_SENTENCE}"
    )


FIRST_PAGE = "overview"
"""The key of the page that has the address of the app itself."""


def address_of_page(path: str, page_names: Collection[str], base_path: str = "") -> str:
    """Where the page is that a path means, if it writes its name in other letters: "./prune".

    Streamlit knows a page by its name in small letters, and the first one by no name.

    Args:
        path: Of a request.
        page_names: Of all pages.
        base_path: Under which the app is served, whose own name is no page's.

    Returns:
        The address from there; empty if the path is that of a page, or of none.
    """
    root = f"/{base_path.strip('/')}/".replace("//", "/")
    whole_path = f"/{path.lstrip('/')}"
    if not whole_path.startswith(root):
        return ""
    name = whole_path.removeprefix(root).rstrip("/")
    key = name.lower()
    if key not in page_names or (key == name and key != FIRST_PAGE):
        return ""
    folder = "../" if path.endswith("/") else "./"
    return folder if key == FIRST_PAGE else f"{folder}{key}"


class Door:
    """Tell a browser, and the log, why streamlit refuses its connection.

    The message names the option that would allow it.

    Whether it refuses is streamlit's decision (`server.allowedHosts`, `server.corsAllowedOrigins`);
    here it is only explained. Each name is logged once.
    """

    def __init__(self, app: ASGIApp, page_names: Collection[str] = ()) -> None:
        self._app = app
        self._page_names = page_names
        self._logged: FIFOCache[str, None] = FIFOCache(MAX_REMEMBERED)
        self._advice_by_origin: FIFOCache[str, str] = FIFOCache(MAX_REMEMBERED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "websocket":
            await self._app(scope, receive, self._with_explanation(scope, receive, send))
            return
        answer = self._answer(scope) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _with_explanation(self, scope: Scope, receive: Receive, send: Send) -> Send:
        """A socket's `send` that gives a refusal before the connection a body."""
        is_accepted = False

        async def send_explained(message: Message) -> None:
            nonlocal is_accepted
            is_accepted = is_accepted or message["type"] == "websocket.accept"
            if is_accepted or message["type"] != "websocket.close":
                await send(message)
                return
            refusal = PlainTextResponse(self._socket_advice(Headers(scope=scope)), status_code=403)
            if DENIAL_EXTENSION in scope.get("extensions", {}):
                await refusal(scope, receive, send)
            else:
                await send(message)

        return send_explained

    def _socket_advice(self, headers: Headers) -> str:
        host = headers.get("host", "")
        origin = headers.get("origin", "")
        if not is_host_allowed(host):
            advice = host_advice(host)
        else:
            advice = origin_advice(origin, host)
            self._advice_by_origin[origin] = advice
        self._log_once(advice)
        return advice

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a page's request whose session would be refused; None for any other."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if "text/html" in headers.get("accept", "") and not is_host_allowed(host):
            advice = host_advice(host)
            self._log_once(advice)
            page = f"<!doctype html><title>headlab</title><p>{html.escape(advice)}</p>"
            return HTMLResponse(page, status_code=403)
        base_path = str(st.get_option("server.baseUrlPath") or "")
        address = address_of_page(scope["path"], self._page_names, base_path)
        if "text/html" in headers.get("accept", "") and address:
            query = scope["query_string"].decode("latin-1")
            location = f"{address}?{query}" if query else address
            return Response(status_code=MOVED_STATUS, headers={"location": location})
        if scope["path"].endswith(HEALTH_PATH):
            advice = self._advice_by_origin.get(_origin_of(headers.get("referer", "")), "")
            if advice:
                return PlainTextResponse(advice, status_code=MISDIRECTED_STATUS)
            return None
        return None

    def _log_once(self, advice: str) -> None:
        if advice not in self._logged:
            self._logged[advice] = None
            log.warning("headlab: %s", advice)


def middleware(app_file: str) -> list[Middleware]:
    """What the app's server puts before streamlit.

    Args:
        app_file: The entry file, beside which the folder of pages stands.
    """
    page_names = {path.stem for path in (Path(app_file).parent / "pages").glob("*.py")}
    return [Middleware(Door, page_names=page_names)]


def _origin_of(address: str) -> str:
    """The origin of a page's address; empty for an address that cannot be read."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"
