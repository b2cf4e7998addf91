"""What a person does on a page in a browser, and sees there."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from support.waiting import until

# Streamlit has drawn all that it was asked for.
QUIET = '[data-testid="stApp"][data-test-script-state="notRunning"]'
# the line over a map that sharpens
SHARPENING = re.compile(r"^sharpening: [\d,]+ samples a head so far")
UNDER_POINTER = (
    "() => document.querySelector('.hoverlayer .hovertext') !== null"  # plotly's label of a dot
)
LOOK_MS = 5_000  # after which a list that takes no click is looked at again
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def open_list(box: Any) -> None:
    """Open the list of a box. An open one closes when the page is scrolled, so that comes before, as with a person."""
    box.scroll_into_view_if_needed()
    box.page.evaluate(TWO_FRAMES)
    box.click()


def choose_option(
    box: Any, name: str | re.Pattern[str], typed: str = "", exact: bool = True
) -> None:
    """Choose from the list of a box; where it is long, type what narrows it first.

    An open list closes when anything scrolls, also a fold that has not finished opening or a page that settles. A
    person opens it again, and so does this.
    """
    from playwright.sync_api import TimeoutError

    option = box.page.get_by_role("option", name=name, exact=exact)

    def chosen() -> bool:
        if box.get_attribute("aria-expanded") != "true":
            open_list(box)
        if typed and box.input_value() != typed:
            box.fill(typed)
        try:
            option.click(timeout=LOOK_MS)
        except TimeoutError:
            return False
        return True

    until(chosen, f"an option {name!r}")


def click_dot(dot: Any) -> None:
    """Click a dot of a figure as soon as the figure shows that the pointer is over it, as a person does."""
    page = dot.page

    def over() -> bool:
        if (place := dot.bounding_box()) is None:  # the figure is being drawn anew
            return False
        page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        return bool(page.evaluate(UNDER_POINTER))

    dot.scroll_into_view_if_needed()
    until(over, "a figure that notices the pointer")
    page.mouse.down()
    page.mouse.up()


def tick_first_row(table: Any) -> None:
    """Tick the first row of a table, once its script has come, its rows are drawn, and it stays where it is."""
    page = table.page
    table.locator("canvas tr[aria-rowindex='2']").first.wait_for(state="attached")
    table.evaluate("table => table.scrollIntoView({ block: 'center' })")

    def steady() -> bool:
        before = table.bounding_box()
        page.evaluate(TWO_FRAMES)
        return before is not None and table.bounding_box() == before

    until(steady, "a table that stays where it is")
    box = table.bounding_box()
    page.mouse.click(box["x"] + 14, box["y"] + 52)


def with_model(path: str, model: str) -> str:
    """A link to a page with a model that it names."""
    return f"{path}{'&' if '?' in path else '?'}model={quote(model, safe='')}"
