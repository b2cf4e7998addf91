"""A map that sharpens: the scores so far of the language that a job is at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import streamlit as st

from headlab.methods.costs import caution
from headlab.records import Head
from headlab.scores import HeadScores
from headlab.ui.heads_card import shown_value
from headlab.ui.heads_maps import common_limit, one_map
from headlab.ui.heads_table import verdict
from headlab.ui.jobs_words import Job, duration
from headlab.ui.names import head_words
from headlab.ui.results import spec_of

# Methods that look at their intervals after whole cycles of the examples only.
IN_CYCLES = ("shapley",)


def picture(
    job: Job,
    scores: HeadScores,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    clicked: Callable[[Head], None],
) -> None:
    """The large map of a running job, and how far it is. stored: sets the colour scale."""
    st.markdown(line(job, scores))
    limit = common_limit(stored or {scores.language: scores})
    one_map(scores, limit, key="sharpening", selected=known(scores, selected), on_click=clicked, compact=False)


def about_head(scores: HeadScores, stored: Mapping[str, HeadScores], selected: Head | None) -> None:
    """What is known so far of the selected head; of the highest one if none is."""
    head = known(scores, selected) or scores.grid.heads[int(scores.values.argmax())]
    name = head_words(head, several=len(scores.grid.stacks) > 1)
    st.markdown(f"{name}, so far: {shown_value(scores, head)}; {verdict(scores, head)}.")
    if scores.language in stored:
        st.caption("The stored result stands until this one is done.")


def known(scores: HeadScores, head: Head | None) -> Head | None:
    """The head, if these scores have it: it may be another model's."""
    return head if head in scores.grid.heads else None


def small_picture(scores: HeadScores, stored: Mapping[str, HeadScores]) -> None:
    """The same among the small maps."""
    limit = common_limit(stored or {scores.language: scores})
    one_map(scores, limit, key="sharpening-small", selected=None, on_click=None, compact=True)


def line(job: Job, scores: HeadScores) -> str:
    """How far a sharpening map is, in one line."""
    most = 0 if scores.samples is None else int(scores.samples.max())
    words = [f"sharpening: {most:,} samples a head so far"]
    done = str(job.get("note") or "").partition("; ")[2]  # as the estimator says it
    words += [done] if done else []
    left = job.get("seconds_left")
    words += [f"about {duration(left)} left"] if left is not None else []
    return "; ".join((", ".join(words), *_warnings(scores)))


def _warnings(scores: HeadScores) -> list[str]:
    """What to know about the intervals of a run that is under way."""
    if text := caution(scores.method):
        return [text]
    size, most = spec_of(scores, "task", "size"), int(np.max(scores.samples)) if scores.samples is not None else 0
    middle = scores.method in IN_CYCLES and size and most % size
    return ["intervals in the middle of a cycle are provisional"] if middle else []


def language_at(job: Job) -> str:
    """The language that a running job is at: its note begins with it."""
    return str(job.get("note") or "").partition(":")[0]
