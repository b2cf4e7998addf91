"""The papers' analyses, one question each: their results here, or what it would cost to compute them."""

from __future__ import annotations

import streamlit as st

from headlab.core import Report
from headlab.dashboard.frame import page, stored_results
from headlab.dashboard.names import plain
from headlab.dashboard.panels import report, stored_reports
from headlab.dashboard.panels.stored_reports import ExperimentForm
from headlab.dashboard.widgets import show_skipped
from headlab.studies.table import offered_experiments


def pick(task):
    stored_reports.begin(task)
    studies = offered_experiments()
    key = st.selectbox(
        "What do you want to know?",
        list(studies),
        format_func=lambda k: f"{studies[k].title}: {studies[k].question}",
        key="experiment",
    )
    st.caption(
        f"{studies[key].question} After {studies[key].paper}."
    )  # a phone truncates the line above
    return key


def answer(form, job):
    st.subheader("What does it say?")
    stored = stored_results(Report)
    weights = stored_reports.weights_of(form.choice.model)
    results = stored_reports.matching(stored.results, form.choice, form.experiment, weights)
    shown = ""
    requested = stored_reports.report_of(form.experiment, [result.key for result in results])
    if results:
        result = report.pick(results, form.experiment, requested, weights)
        shown = st.session_state.get(f"report-{form.experiment}") or ""
        report.draw(result, job, weights)
    else:
        subject = plain(f"{form.choice.model} and task {form.choice.task}")
        none = f"There is no report yet on {subject}."
        made = "**Start** makes one: figures, tables to download, and notes on what limits them."
        st.info(none if form.obstacle(job) else f"{none} {made}")
        stored_reports.offer_others(form, stored.results)
    show_skipped(stored.problems, "report")
    stored_reports.write(form.experiment, shown)


def draw_page() -> None:
    """Draw the page."""
    with page("experiments") as choice:
        form = ExperimentForm(pick(choice.task), choice)
        st.subheader("What will it cost?")
        job = stored_reports.draw(form)
        answer(form, job)
