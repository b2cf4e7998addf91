"""The papers' analyses, one question each: their results here, or what it would cost to compute them."""

import streamlit as st

from headlab.core import Report
from headlab.studies.table import offered_experiments
from headlab.ui import experiments, experiments_report
from headlab.ui.experiments import ExperimentForm
from headlab.ui.figures import skipped
from headlab.ui.names import plain
from headlab.ui.shell import listing, page


def pick(task):
    experiments.begin(task)
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
    stored = listing(Report)
    weights = experiments.weights_of(form.choice.model)
    results = experiments.matching(stored.results, form.choice, form.experiment, weights)
    shown = ""
    requested = experiments.report_of(form.experiment, [result.key for result in results])
    if results:
        result = experiments_report.pick(results, form.experiment, requested, weights)
        shown = st.session_state.get(f"report-{form.experiment}") or ""
        experiments_report.draw(result, job, weights)
    else:
        subject = plain(f"{form.choice.model} and task {form.choice.task}")
        none = f"There is no report yet on {subject}."
        made = "**Start** makes one: figures, tables to download, and notes on what limits them."
        st.info(none if form.obstacle(job) else f"{none} {made}")
        experiments.offer_others(form, stored.results)
    skipped(stored.problems, "report")
    experiments.write(form.experiment, shown)


with page("experiments") as choice:
    form = ExperimentForm(pick(choice.task), choice)
    st.subheader("What will it cost?")
    job = experiments.draw(form)
    answer(form, job)
