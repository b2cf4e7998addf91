"""The papers' analyses, one question each: their results here, or what it would cost to compute them."""

import streamlit as st

from headlab.studies.table import EXPERIMENTS
from headlab.tables import Report
from headlab.ui import experiments, experiments_report
from headlab.ui.experiments import Plan
from headlab.ui.figures import skipped
from headlab.ui.names import plain
from headlab.ui.shell import listing, page


def pick(task):
    experiments.begin(task)
    key = st.selectbox(
        "What do you want to know?",
        list(EXPERIMENTS),
        format_func=lambda k: f"{EXPERIMENTS[k].title}: {EXPERIMENTS[k].question}",
        key="experiment",
    )
    st.caption(
        f"{EXPERIMENTS[key].question} After {EXPERIMENTS[key].paper}."
    )  # a phone truncates the line above
    return key


def answer(plan, wanted):
    st.subheader("What does it say?")
    stored = listing(Report)
    weights = experiments.weights_of(plan.choice.model)
    results = experiments.matching(stored.results, plan.choice, plan.experiment, weights)
    shown, asked = "", experiments.report_of(plan.experiment, [result.key for result in results])
    if results:
        result = experiments_report.pick(results, plan.experiment, asked, weights)
        shown = st.session_state.get(f"report-{plan.experiment}") or ""
        experiments_report.draw(result, {**wanted, "fingerprint": weights})
    else:
        none = f"There is no report yet on {plain(f'{plan.choice.model} and task {plan.choice.task}')}."
        made = "**Start** makes one: figures, tables to download, and notes on what limits them."
        st.info(none if plan.obstacle(wanted) else f"{none} {made}")
        experiments.offer_others(plan, stored.results)
    skipped(stored.problems, "report")
    experiments.write(plan.experiment, shown)


with page("experiments") as choice:
    plan = Plan(pick(choice.task), choice)
    st.subheader("What will it cost?")
    wanted = experiments.draw(plan)
    answer(plan, wanted)
