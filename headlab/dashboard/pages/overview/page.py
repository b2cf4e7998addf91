"""What headlab is, what was found, the maps, and where to go next."""

from __future__ import annotations

import streamlit as st

from headlab.core import Report, part
from headlab.dashboard.frame import open_page, other_choices, page, scores_of, stored_results
from headlab.dashboard.names import head_key, page_link, plain
from headlab.dashboard.pages.overview.findings import findings, preferred
from headlab.dashboard.panels import contrast, job_actions, job_offer
from headlab.dashboard.panels.page_report import offer_page_report
from headlab.dashboard.panels.stored_reports import made_at, matching_reports
from headlab.dashboard.widgets import (
    button,
    draw_small_maps,
    heads_gated_together,
    how_to_read_maps,
    pick_scale,
)
from headlab.pictures import maps_of
from headlab.results import default_root
from headlab.studies.table import STUDIES


def open_head(language, head):
    st.session_state["_open"] = {"focus": language, "head": head_key(head)}


def found_so_far(choice, results):
    """What the results say: scores, and reports on the very model that the scores are of, where there are any."""
    named = [
        r
        for r in stored_results(Report).results
        if part(r.record.spec, "model", "name") == choice.model
    ]
    first = results.first or next(
        (r.record for r in sorted(named, key=made_at, reverse=True)), None
    )
    kept = [
        r for r in named if first is not None and r.record.spec.get("model") == first.spec["model"]
    ]
    ablation = "zero" if results.first is None else results.first.spec.get("ablation", "zero")
    reports = {
        key: preferred(
            matching_reports(kept, choice, key), choice.languages, choice.method, ablation
        )
        for key in STUDIES
    }
    sentences = findings(results.scores, reports, choice.languages)
    if not sentences:
        return
    with st.container(border=True, key="findings"):
        st.markdown("##### What was found")
        for finding in sentences:
            left, right = st.columns([4, 1], vertical_alignment="center")
            left.markdown(plain(finding.sentence))
            with right:
                page_link(finding.page, plain(finding.label), finding.more)


def maps(choice, results):
    if not results.scores:
        what = (
            f"({default_root()}) has no {choice.method} results of {choice.model} on {choice.task}"
        )
        other = "other settings in the sidebar" if results.others else "another method"
        do = "Choose" if job_actions.refusal(choice) else "Compute them below, or choose"
        st.info(f"The cache folder {plain(what)} for these languages. {do} {other}.")
        return
    st.markdown(how_to_read_maps(results.scores) + " Click a head to see it in every language.")
    common = pick_scale(len(results.scores))
    draw_small_maps(
        maps_of(results.scores, common=common),
        key="overview",
        on_click=open_head,
        together=heads_gated_together(results.first),
    )


def missing(choice, results):
    """What can be computed, and jobs that run; what lies in the cache is on the Jobs page."""
    if results.missing:
        job_offer.offer(choice, results.missing, results.like)
    if job_actions.progress():
        page_link("heads", "Heads: watch its map sharpen")
    page_link("jobs", "Jobs: what is cached and what it cost")


def elsewhere(choice):
    """Other models and tasks whose results are stored, such as the papers' own."""
    if there := other_choices(choice):
        st.markdown("##### Also in the cache")
        st.caption(
            "Results of other models and tasks: scores on every page, reports on Experiments and Roles."
        )
    for other in there:
        button(
            other.words,
            key=f"other-{other.words.partition(':')[0]}",
            on_press=open_page,
            args=(other.page, other.choice),
        )


def onward():
    with st.container(horizontal=True, gap="medium"):
        page_link("heads", "Heads: one head in every language")
        page_link("languages", "Languages: who shares which heads")
        page_link("prune", "Prune: switch heads off")
        page_link("attention", "Attention: what a head looks at")


def draw_page() -> None:
    """Draw the page."""
    with page("overview") as choice:
        if "_open" in st.session_state:
            st.switch_page("pages/heads.py", query_params=st.session_state.pop("_open"))
        if not choice.languages:
            st.info("No language is chosen. Pick some in the sidebar, or press All.")
        else:
            results = scores_of(choice)
            found_so_far(choice, results)
            maps(choice, results)
            contrast.of_languages(results.scores, open_head)
            onward()
            offer_page_report(choice, results.scores)
            missing(choice, results)
            elsewhere(choice)
