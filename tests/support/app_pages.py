"""Pages of the app run without a browser, and what they say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Never

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from headlab.core import HeadlabError
from headlab.dashboard.frame import supervisor, worker_supervisor
from headlab.dashboard.panels.jobs import job_actions

ROOT = Path(__file__).parents[2]
NO_WORKER = "no worker in this test; start one"


def no_worker() -> Never:
    """Connecting fails."""
    raise HeadlabError(NO_WORKER, code="worker.unreachable")


@contextmanager
def app_on(cache: Path, connect: Callable[[], object] = no_worker) -> Iterator[None]:
    """The app with the results of a cache folder.

    It knows before its first page whether it has a worker. Streamlit's caches are empty at the
    start and at the end.

    Args:
        cache: Folder of stored results.
        connect: Gives the worker, or raises HeadlabError.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADLAB_CACHE", str(cache))
        patch.delenv("HEADLAB_DATA", raising=False)
        patch.setattr(worker_supervisor, "connect", connect)
        patch.setattr(worker_supervisor, "HEAD_START_SECONDS", 0.0)
        patch.setattr(job_actions, "FIRST_SECONDS", 60.0)  # these pages never ask a second time
        st.cache_resource.clear()
        with suppress(HeadlabError):
            supervisor().client()
        try:
            yield
        finally:
            st.cache_resource.clear()


def run_page(path: str, **query) -> AppTest:
    """A page, opened by a link with these parameters; it must not end in an exception."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.switch_page(f"pages/{path}.py")
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def open_share(app: AppTest) -> AppTest:
    """Unfold Share on a page; the page must not end in an exception."""
    app.session_state["share"] = True
    app.run()
    assert not app.exception
    return app


def page_text(app: AppTest) -> str:
    """All messages, captions and Markdown of a page, as a browser shows them."""
    element_lists = (
        app.error,
        app.warning,
        app.info,
        app.success,
        app.caption,
        app.markdown,
        app.subheader,
    )
    return "\n".join(shown_text(element) for elements in element_lists for element in elements)


def shown_text(element: Any) -> str:
    """The text of an element, without the backslashes that escape Markdown."""
    return re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", element.value)
