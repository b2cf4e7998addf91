"""What a person does on a page in a browser, as functions of Playwright's locators."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from support.waiting import wait_until

DEADLINE = 120_000  # ms; it only ends a test that would hang
# The app once Streamlit has run its script to the end.
IDLE_APP = '[data-testid="stApp"][data-test-script-state="notRunning"]'
# The line above a head grid whose scores are still being sampled.
SHARPENING = re.compile(r"^sharpening: ([\d,]+ samples a head|slopes of [\d,]+ draws) so far")
# Plotly shows the label of the dot under the pointer.
UNDER_POINTER = "() => document.querySelector('.hoverlayer .hovertext') !== null"
CLICK_TIMEOUT_MS = 5_000  # after which a list that takes no click is looked at again
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def open_list(box: Any) -> None:
    """Open the list of a select box.

    Scrolling closes an open list, so the box is scrolled into view first, as a person would do.
    """
    box.scroll_into_view_if_needed()
    box.page.evaluate(TWO_FRAMES)
    box.click()


def choose_option(
    box: Any, name: str | re.Pattern[str], filter_text: str = "", exact: bool = True
) -> None:
    """Choose an option from the list of a select box.

    An open list closes when anything scrolls, such as an expander that is still opening or a page
    that settles. A person opens it again, and so does this function.

    Args:
        box: The input of the select box.
        name: The option's text.
        filter_text: Typed first, to narrow a long list.
        exact: Whether `name` is the whole text of the option.
    """
    from playwright.sync_api import TimeoutError

    option = box.page.get_by_role("option", name=name, exact=exact)

    def option_took_the_click() -> bool:
        if box.get_attribute("aria-expanded") != "true":
            open_list(box)
        if filter_text and box.input_value() != filter_text:
            box.fill(filter_text)
        try:
            option.click(timeout=CLICK_TIMEOUT_MS)
        except TimeoutError:
            return False
        return True

    wait_until(option_took_the_click, f"an option {name!r}")


def table_download(page: Any, table_name: str) -> Any:
    """The button that saves a table.

    The browser may draw the buttons of several tables one after another, in any order and after
    the server is done, so "the first" may for a moment be another table's.

    Args:
        page: Of the browser.
        table_name: As in the name of the saved file, with "-" for every other sign.
    """
    table = page.locator(f'[class*="st-key-csv-"][class*="-{table_name}"]')
    return table.get_by_role("button", name="Download this table as CSV")


def hover_dot(dot: Any) -> None:
    """Move the pointer over a dot of a figure, until the figure shows that it is there."""
    page = dot.page

    def pointer_is_noticed() -> bool:
        box = dot.bounding_box()
        if box is None:  # the figure is being drawn anew
            return False
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        return bool(page.evaluate(UNDER_POINTER))

    dot.scroll_into_view_if_needed()
    wait_until(pointer_is_noticed, "a figure that notices the pointer")


def click_dot(dot: Any) -> None:
    """Click a dot of a figure once the figure shows that the pointer is over it."""
    hover_dot(dot)
    dot.page.mouse.down()
    dot.page.mouse.up()


def tick_first_row(table: Any) -> None:
    """Tick the first row of a table once its rows are drawn and it has stopped moving."""
    page = table.page
    table.locator("canvas tr[aria-rowindex='2']").first.wait_for(state="attached")
    table.evaluate("table => table.scrollIntoView({ block: 'center' })")

    def table_is_still() -> bool:
        previous_box = table.bounding_box()
        page.evaluate(TWO_FRAMES)
        return previous_box is not None and table.bounding_box() == previous_box

    wait_until(table_is_still, "a table that has stopped moving")
    box = table.bounding_box()
    page.mouse.click(box["x"] + 14, box["y"] + 52)


def link_with_model(path: str, model: str) -> str:
    """The link to a page, with the name of a model added to it."""
    separator = "&" if "?" in path else "?"
    return f"{path}{separator}model={quote(model, safe='')}"
