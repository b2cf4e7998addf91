"""Addresses of pages that are typed in other letters lead to the pages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headlab.dashboard.names import PAGES
from headlab.dashboard.server.door import Door, address_of_page, middleware


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/Prune", "./prune"),
        ("/PRUNE", "./prune"),
        ("/Prune/", "../prune"),
        ("/behind/a/proxy/Masks", "./masks"),
        ("//other.example/Masks", "./masks"),
        ("/Overview", "./"),
        ("/overview", "./"),
        ("/", ""),
        ("", ""),
        ("/Nothing", ""),
        ("/static/index.js", ""),
        *((f"/{name}", "") for name in PAGES if name != "overview"),
    ],
)
def test_a_page_is_found_in_any_letters(path: str, address: str) -> None:
    assert address_of_page(path, set(PAGES)) == address


def answer(path: str, query: bytes = b"", accept: bytes = b"text/html") -> dict[str, Any]:
    """How the app answers a browser: the start of the response; empty where Streamlit answers."""
    started: list[dict[str, Any]] = []

    async def streamlit(scope: Any, receive: Any, send: Any) -> None:
        """Stands for Streamlit."""

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            started.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query,
        "headers": [(b"host", b"localhost"), (b"accept", accept)],
    }
    asyncio.run(Door(streamlit, set(PAGES))(scope, None, send))  # type: ignore[arg-type]
    return started[0] if started else {}


def test_a_browser_is_sent_on_with_what_the_link_says() -> None:
    started = answer("/Prune", b"langs=de&m=gA.mean")
    assert started["status"] == 307
    assert dict(started["headers"])[b"location"] == b"./prune?langs=de&m=gA.mean"
    assert dict(answer("/Heads")["headers"])[b"location"] == b"./heads"


def test_all_else_is_streamlits() -> None:
    assert answer("/prune") == {}
    assert answer("/Elsewhere") == {}
    assert answer("/Prune", accept=b"application/json") == {}


@pytest.mark.parametrize("entry", ["app.py", "headlab/dashboard/entry/app.py"])
def test_the_server_knows_all_pages(entry: str) -> None:
    (door,) = middleware(str(Path(__file__).parents[2] / entry))
    assert door.kwargs["page_names"] == set(PAGES)
