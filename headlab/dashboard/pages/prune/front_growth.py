"""A front while its job measures it: the models so far, which say nothing final."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.charts.chart import Chart
from headlab.charts.front import FrontDot, front_chart
from headlab.dashboard.frame import Choice, errors_as_sentences, worker_client
from headlab.dashboard.names import languages_words, plain
from headlab.dashboard.pages.prune.point_words import (
    WholeModel,
    cost_title,
    difference_title,
    drawn_cost,
    hover_text_so_far,
    offered_costs,
    progress_words,
)
from headlab.dashboard.pages.prune.stored_fronts import WEAKEST_LANGUAGE, question_words
from headlab.dashboard.panels.jobs import job_of_row, live_jobs, progress_line
from headlab.dashboard.widgets import PLOTLY_CONFIG, redraw_every
from headlab.jobs.table import FrontJob
from headlab.plots.drawing import plotly_figure
from headlab.studies.front_so_far import FrontSoFar
from headlab.worker import JobRow

REDRAW_SECONDS = 2.0
NOT_FINAL = (
    "Not final: no intervals, and nothing is chosen yet. A dot shows the language that loses most "
    "of those answered so far, on dev; outlines lack languages or examples. If the job is cut off, "
    "it goes on from here."
)


def fronts_under_way(choice: Choice) -> list[JobRow]:
    """The jobs that compute a front of this model, task and players, the running one first.

    Args:
        choice: The sidebar's.
    """
    rows = []
    for row in live_jobs():
        job = job_of_row(row)
        if not isinstance(job, FrontJob) or job.players_switched != choice.players:
            continue
        if (job.model, job.task) == (choice.model, choice.task):
            rows.append(row)
    return rows


def draw_growing_fronts(rows: Sequence[JobRow], whole: WholeModel) -> None:
    """The front that is being computed, redrawn every two seconds, and those that wait.

    Args:
        rows: From `fronts_under_way`.
        whole: The untouched model.
    """
    for row in rows:
        if row.state == "running":
            with st.container(key="front-growing"):
                redraw_every(_draw_growing_front, REDRAW_SECONDS)(row.id, _subject(row), whole)
        else:
            st.caption(f"{plain(_subject(row))}: waits for the worker.")


def _subject(row: JobRow) -> str:
    """Which front a job computes, in words."""
    job = job_of_row(row)
    assert isinstance(job, FrontJob), "only such jobs are drawn"
    languages = languages_words(job.language_codes)
    return f"Front {question_words(job.options)}, {languages}"


def _draw_growing_front(number: int, subject: str, whole: WholeModel) -> None:
    with errors_as_sentences():
        row, front = worker_client().front_so_far(number)
        st.markdown(f"##### {plain(subject)}: being computed")
        if front is None or not front.models:
            st.caption(plain(f"No model to show yet · {progress_line(row)}"))
            return
        st.markdown(f"**{progress_words(front)}** · {plain(progress_line(row))}")
        st.plotly_chart(
            plotly_figure(growing_chart(front, whole)),
            key=f"front-growing-{number}",
            config=PLOTLY_CONFIG,
            alt="Smaller models measured so far: what they keep against what they lose",
        )
        st.caption(NOT_FINAL)


def growing_chart(front: FrontSoFar, whole: WholeModel) -> Chart:
    """The chart of a front that is being computed.

    Args:
        front: What is measured of it.
        whole: The untouched model.
    """
    has_parameters = all(model.parameters is not None for model in front.models)
    cost, *_ = offered_costs(whole, has_parameters=has_parameters)
    dots = []
    for model in front.models:
        dots.append(
            FrontDot(
                model.order,
                model.heads_removed,
                drawn_cost(model.heads_kept, model.parameters, cost, whole),
                100 * model.weakest.difference,
                None,
                model.is_measured(front.languages),
                hover_text_so_far(model, whole, front.languages),
            )
        )
    return front_chart(
        dots,
        cost_title(cost, whole),
        difference_title(f"{WEAKEST_LANGUAGE} so far", front.languages),
        is_final=False,
    )
