"""`headlab app` from an unpacked wheel, outside the checkout: the first page has the demo's maps."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from support.browsing import DEADLINE
from support.built_wheel import build_wheel, environment_of, served_app


@pytest.fixture(scope="module")
def address_of_wheel(tmp_path_factory) -> Iterator[str]:
    """Where `headlab app` of the wheel serves."""
    folder = tmp_path_factory.mktemp("elsewhere")
    unpacked = build_wheel(tmp_path_factory.mktemp("built")).unpack(folder / "site-packages")
    program = (sys.executable, "-m", "headlab.cli")
    with served_app(program, folder, environment_of(unpacked, folder / "cache")) as address:
        yield address


@pytest.fixture
def tab_elsewhere(address_of_wheel, chromium):
    """A tab of a browser that knows the app of the wheel alone."""
    outside = []
    context = chromium.new_context(base_url=address_of_wheel)
    context.set_default_timeout(DEADLINE)
    tab = context.new_page()

    def note_request(request) -> None:
        if not request.url.startswith((address_of_wheel, "data:", "blob:")):
            outside.append(request.url)

    tab.on("request", note_request)
    yield tab
    exception_count = tab.get_by_test_id("stException").count()
    context.close()
    assert outside == []
    assert exception_count == 0


def test_the_first_page_has_maps_of_the_demo_and_prune_answers(tab_elsewhere):
    tab_elsewhere.goto("/")
    expect(tab_elsewhere.get_by_role("grid").first.locator('[data-c="11.11"]')).to_be_visible()
    tab_elsewhere.get_by_role("link", name="Prune", exact=True).click()
    expect(tab_elsewhere.get_by_role("heading", name="Prune", exact=True)).to_be_visible()
    tab_elsewhere.get_by_role("grid").first.locator('[data-c="3.7"]').click()
    expect(tab_elsewhere.get_by_text("on dev").first).to_be_visible()


@pytest.mark.parametrize(
    ("name", "title"), [("heads", "Heads"), ("jobs", "Jobs"), ("own", "Bring your own")]
)
def test_a_page_opens_by_its_address(tab_elsewhere, name, title):
    tab_elsewhere.goto(f"/{name}")
    expect(tab_elsewhere.get_by_role("heading", name=title, exact=True).first).to_be_visible()
