"""Addresses of pages that are typed in other letters lead to the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from headlab.dashboard.names import PAGES
from headlab.dashboard.server.door import Door, address_of_page, middleware


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/Prune", "./prune"),
        ("/PRUNE", "./prune"),
        ("/Prune/", "../prune"),
        ("//Masks", "./masks"),
        ("//other.example/Masks", ""),
        ("/static/Masks", ""),
        ("/_stcore/Masks", ""),
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


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/behind/a/proxy/Masks", "./masks"),
        ("/behind/a/proxy/Overview/", "../"),
        ("/behind/a/proxy/masks", ""),
        ("/behind/a/proxy/", ""),
        ("/behind/a/proxy", ""),
        ("/Masks", ""),
    ],
)
@pytest.mark.parametrize("base_path", ["behind/a/proxy", "/behind/a/proxy/"])
def test_pages_are_below_the_app_s_own_path(path: str, address: str, base_path: str) -> None:
    assert address_of_page(path, set(PAGES), base_path) == address


@pytest.mark.parametrize("base_path", ["overview", "Heads"])
def test_the_app_s_own_path_may_be_called_as_a_page(base_path: str) -> None:
    assert address_of_page(f"/{base_path}/", set(PAGES), base_path) == ""
    assert address_of_page(f"/{base_path}/Prune", set(PAGES), base_path) == "./prune"


async def streamlit(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands for Streamlit."""
    await PlainTextResponse("of Streamlit")(scope, receive, send)


def answer(address: str, accept: str = "text/html") -> Any:
    """How the app answers a browser, from a thread with an event loop of its own."""
    client = TestClient(
        Door(streamlit, set(PAGES)), base_url="http://localhost", follow_redirects=False
    )
    return client.get(address, headers={"accept": accept})


def test_a_browser_is_sent_on_with_what_the_link_says() -> None:
    response = answer("/Prune?langs=de&m=gA.mean")
    assert response.status_code == 307
    assert response.headers["location"] == "./prune?langs=de&m=gA.mean"
    assert answer("/Heads").headers["location"] == "./heads"


@pytest.mark.parametrize(
    ("address", "accept"),
    [("/prune", "text/html"), ("/Elsewhere", "text/html"), ("/Prune", "application/json")],
)
def test_all_else_is_streamlits(address: str, accept: str) -> None:
    assert answer(address, accept).text == "of Streamlit"


@pytest.mark.parametrize("entry", ["app.py", "headlab/dashboard/entry/app.py"])
def test_the_server_knows_all_pages(entry: str) -> None:
    (door,) = middleware(str(Path(__file__).parents[2] / entry))
    assert door.kwargs["page_names"] == set(PAGES)
