"""What a page draws again by itself while something runs.

A timer that draws a part of the page again is a request like a person's, so there are as few as can be: a page that
waits for nothing has none, but for the Jobs page, which looks for jobs that others start. What a timer redraws holds no
input and no button; the maps that sharpen can be clicked, and their clicks are in the log of presses (`ui/presses.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import streamlit as st

# A page with this on it is not final yet: it will change by itself.
LIVE = '<span hidden data-state="live"></span>'


def follow(look: Callable[..., None], seconds: float | None, *, waits: bool = True) -> Callable[..., None]:
    """`look`, drawn again every so many seconds; None: once.

    waits: something is under way that will end.  False for what only looks whether there is news.
    """

    @wraps(look)
    def looked(*given: Any) -> None:
        look(*given)
        if seconds is not None and waits:
            st.html(LIVE)

    drawn: Callable[..., Any] = st.fragment(looked, run_every=seconds)
    return drawn
