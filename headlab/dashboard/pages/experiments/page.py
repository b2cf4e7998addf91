"""The papers' analyses: their results here, or the cost of computing them."""

from __future__ import annotations

import streamlit as st

from headlab.core import Report
from headlab.dashboard.frame import page, stored_results
from headlab.dashboard.names import plain
from headlab.dashboard.pages.experiments.form import ExperimentForm, draw_form, link_other_reports
from headlab.dashboard.pages.experiments.report import draw_report, pick_report
from headlab.dashboard.panels.stored import (
    choose_experiment,
    current_weights,
    matching_reports,
    requested_report,
    write_report_link,
)
from headlab.dashboard.widgets import show_skipped
from headlab.jobs.table import ExperimentJob
from headlab.studies import offered_experiments


def pick_experiment(task: str) -> str:
    """Draw the list of experiments and return the key of the chosen one."""
    choose_experiment(task)
    studies = offered_experiments()
    key = st.selectbox(
        "What do you want to know?",
        list(studies),
        format_func=lambda name: f"{studies[name].title}: {studies[name].question}",
        key="experiment",
    )
    # In full, as a phone truncates the line above.
    st.caption(f"{studies[key].question} After {studies[key].paper}.")
    return key


def draw_answer(form: ExperimentForm, job: ExperimentJob) -> None:
    """The stored report that answers the question, or what there is instead.

    Args:
        form: The form below.
        job: Its job, as its widgets are now.
    """
    st.subheader("What does it say?")
    stored_reports = stored_results(Report)
    weights = current_weights(form.choice.model)
    results = matching_reports(stored_reports.results, form.choice, form.experiment, weights)
    shown_key = ""
    requested_key = requested_report(form.experiment, [result.key for result in results])
    if results:
        result = pick_report(results, form.experiment, requested_key, weights)
        shown_key = st.session_state.get(f"report-{form.experiment}") or ""
        draw_report(result, job, weights)
    else:
        subject = plain(f"{form.choice.model} and task {form.choice.task}")
        message = f"There is no report yet on {subject}."
        if not form.obstacle(job):
            message += " **Start** below makes one: figures, tables to download, and notes on what limits them."
        st.info(message)
        link_other_reports(form, stored_reports.results)
    show_skipped(stored_reports.problems, "report")
    write_report_link(form.experiment, shown_key)


def draw_page() -> None:
    """Draw the page."""
    with page("experiments") as choice:
        form = ExperimentForm(pick_experiment(choice.task), choice)
        answer_area = st.container()
        form_area = st.container()
        with form_area:
            st.subheader("What will it cost?")
            job = draw_form(form)
        with answer_area:
            draw_answer(form, job)
