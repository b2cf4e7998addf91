"""Parts of a page that redraw themselves while something runs.

A timer that redraws part of a page is a request like a user's, so there are as few as possible: a page that waits for
nothing has none, except the Jobs page, which watches for jobs that others start. What a timer redraws holds no input
and no button; the maps that sharpen can be clicked, and their clicks are in the log of presses (`ui/presses.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import streamlit as st

# Marks a page that is not final yet: it will change by itself.
LIVE = '<span hidden data-state="live"></span>'


def follow(look: Callable[..., None], seconds: float | None, *, waits: bool = True) -> Callable[..., None]:
    """`look`, redrawn every `seconds`; None: drawn once.

    waits: something is running that will end.  False for what only checks for news.
    """

    @wraps(look)
    def looked(*given: Any) -> None:
        look(*given)
        if seconds is not None and waits:
            st.html(LIVE)

    drawn: Callable[..., Any] = st.fragment(looked, run_every=seconds)
    return drawn
