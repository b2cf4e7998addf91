"""The frame of every page: the worker, the choice, the cached listing, errors as sentences."""

from __future__ import annotations

import gc
import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import streamlit as st

from headlab.core import HeadlabError, players_title
from headlab.dashboard.frame import guide
from headlab.dashboard.frame.choice import Choice, choice_on_page, current_choice, scores_of
from headlab.dashboard.frame.shared_choice import draw_sidebar
from headlab.dashboard.frame.sidebar import stop_if_refused
from headlab.dashboard.names import PAGES, PAGES_BY_GROUP, error_words, page_link, plain
from headlab.dashboard.streamlit_private import Placeholder, leave_pages_folder
from headlab.dashboard.widgets import notices

# The frame of every page; static/page.css has its style.

FIRST_MODULES = ("pandas", "plotly.graph_objects", "headlab.worker.client")
"""What every page needs before it can be drawn."""
LATER_MODULES = ("scipy.stats", "scipy.cluster.hierarchy")
"""What intervals, tests and trees need, and no map: half a second of the first visitor's wait."""

log = logging.getLogger(__name__)


def boot() -> None:
    """Run the entry file even for a link straight to a page, right after the server has started.

    Until the entry page has been opened, streamlit treats the folder pages/ as an old-style app and
    would run the page without it. tests/browser/test_navigation.py tests this.
    """
    if leave_pages_folder():
        st.rerun()


@st.cache_resource(show_spinner=False)
def warm_up(module_names: tuple[str, ...]) -> None:
    """Import what the pages need, then exempt it from garbage collection; once per server.

    Args:
        module_names: `FIRST_MODULES` before a page is drawn, `LATER_MODULES` after it.
    """
    for name in module_names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _static(name: str) -> Path:
    return Path(str(files("headlab.dashboard") / "static" / name))


def icon_path() -> str:
    """Path of the app's icon; a named one would be fetched from the network."""
    return str(_static("icon.svg"))


def draw_navigation() -> Placeholder:
    """Links to all pages, in groups: none is hidden, however narrow the window is.

    They are the first that every page shows, so the style comes with them.

    Returns:
        The row that they stand in, for what else is on every page.
    """
    st.html(_static("page.css"))
    row = st.container(horizontal=True, key="navigation", vertical_alignment="bottom")
    with row:
        for group, names in PAGES_BY_GROUP.items():
            with st.container(key=f"navigation-{group.lower()}", width="content", gap=None):
                st.caption(group)
                with st.container(horizontal=True, gap=None):
                    for name in names:
                        title, _ = PAGES[name]
                        st.page_link(f"pages/{name}.py", label=title, width="content")
    return row


NEXT_STEPS = {
    "worker.other_model_in_use": ("jobs", "Jobs: how long that job takes, and Cancel"),
    "model.labels_mismatch": ("own", "Bring a model that was fine-tuned on this task"),
    "data.folder_missing": ("own", "Bring your own data"),
    "hub.unreachable": ("own", "Bring your own model or data"),
}
"""By the code of an error: the page that helps, and its link's text."""


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Show a problem as a sentence. Fragments need their own: they run again without their page."""
    try:
        yield
    except HeadlabError as error:
        st.error(plain(error_words(str(error))))
        if error.code in NEXT_STEPS:
            page_link(*NEXT_STEPS[error.code])
    except Exception as error:  # last resort before the user: the traceback goes to the log
        log.exception("page failed")
        problem = plain(f"{type(error).__name__}: {error}")
        st.error(
            f"An unexpected error occurred ({problem}). Nothing is lost; reload the page. Details are "
            "in the server's log."
        )


@contextmanager
def page(name: str, intro: str = "") -> Iterator[Choice]:
    """A page's frame: title, what it answers, notices about the link, and errors as sentences.

    Yields the choice.

    Args:
        name: Key of a page in `PAGES`, or the title of a page that is not listed there.
        intro: What the page answers, where `GUIDES` has no entry for it.
    """
    boot()
    title, _ = PAGES.get(name, (name, ""))
    st.title("headlab" if name == "overview" else title)
    if name in guide.GUIDES:
        guide.draw_guide_above(name)
    elif intro:
        st.markdown(intro)
    notices.draw()
    stop_if_refused()
    with errors_as_sentences():
        choice = current_choice() or draw_sidebar()
        shown_choice = choice_on_page(choice, name)
        if shown_choice != choice:
            st.caption(
                f"This page is about heads. {players_title(choice.players)} are on the Overview, "
                "Heads, Prune and Masks pages."
            )
        yield shown_choice
        notices.settle()
        if name in guide.GUIDES:
            guide.draw_guide_below(name)


found = scores_of
"""The name of `scores_of` in `headlab.ui.shell`, by which pages of other packages may import it."""
