"""What is computed, what waits, what ended, and what to compute next."""

import streamlit as st

from headlab.ui import jobs_details, jobs_do, jobs_form, jobs_queue
from headlab.ui.shell import page

INTRO = "What the worker computes, what waits for it, and what a new job will cost before it starts."


def asked():
    """The job of the link, if it names one."""
    text = jobs_do.shown()
    if text and not (text.isascii() and text.isdigit() and len(text) < 12):
        st.warning(f"The link asks for job {text[:40]!r}, which is not a job number; here are all jobs.")
    elif text:
        return int(text)
    return None


with page("Jobs", INTRO) as choice:
    number = asked()
    if number is not None:
        jobs_details.draw(number)
    else:
        left, right = st.columns([7, 5], gap="large")
        with left:
            st.subheader("Queue")
            jobs_queue.draw()
        with right:
            jobs_form.draw(choice)
