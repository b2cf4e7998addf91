"""Running, waiting and ended jobs, and the form for a new one."""

from __future__ import annotations

import streamlit as st

from headlab.dashboard.frame import page
from headlab.dashboard.names import plain
from headlab.dashboard.pages.jobs import form
from headlab.dashboard.pages.jobs.details import draw_details
from headlab.dashboard.pages.jobs.queue import draw_queue
from headlab.dashboard.panels.jobs import opened_job


def linked_job() -> int | None:
    """The number of the job that the link names; None if it names none.

    Warns of what is no number.
    """
    text = opened_job()
    if text and not (text.isascii() and text.isdigit() and len(text) < 12):
        st.warning(
            plain(
                f"The link asks for job {text[:40]!r}, which is not a job number; here are all "
                "jobs."
            )
        )
    elif text:
        return int(text)
    return None


def draw_page() -> None:
    """Draw the page."""
    with page("jobs") as choice:
        number = linked_job()
        if number is not None:
            draw_details(number)
        else:
            queue_column, form_column = st.columns([7, 5], gap="large")
            with queue_column:
                st.subheader("Queue")
                draw_queue()
            with form_column:
                form.draw_form(choice)
            if choice.languages:
                form.draw_cached(choice)
