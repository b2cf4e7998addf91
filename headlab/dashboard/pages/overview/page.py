"""What headlab is, what was found, the maps, and where to go next."""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st

from headlab.core import Head, Report, part
from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    open_page,
    other_choices,
    page,
    scores_of,
    stored_results,
)
from headlab.dashboard.names import head_key, page_link, plain
from headlab.dashboard.pages.overview.findings import by_preference, findings
from headlab.dashboard.panels import (
    creation_seconds,
    draw_comparison_by_language,
    draw_live_jobs,
    matching_reports,
    offer_missing_scores,
    offer_page_report,
    scores_refusal,
)
from headlab.dashboard.widgets import (
    PageState,
    button,
    draw_small_maps,
    group_sizes_of,
    how_to_read_maps,
    pick_scale,
)
from headlab.pictures import maps_of_scores
from headlab.results import HeadScores, Result, default_root
from headlab.studies import STUDIES


@dataclass
class HeadToOpen(PageState):
    """The head that the Overview page of one session is about to open on the Heads page.

    Attributes:
        link_params: Parameters of the link to the head that was clicked; empty if none was.
    """

    key = "_open"
    link_params: dict[str, str] = field(default_factory=dict)


def open_head(language: str, head: Head) -> None:
    """Open the Heads page at this head in the next run of the page: the action of a click."""
    HeadToOpen.of_session().link_params = {"focus": language, "head": head_key(head)}


def draw_findings(choice: Choice, results: StoredScores) -> None:
    """What scores and reports say; only reports on the very model that the scores are of."""
    reports_on_name = []
    for result in stored_results(Report).results:
        if part(result.record.spec, "model", "name") == choice.model:
            reports_on_name.append(result)
    same_model_reports = _reports_on_one_model(reports_on_name, results.first_scores)
    ablation = "zero"
    if results.first_scores is not None:
        ablation = results.first_scores.spec.get("ablation", "zero")
    reports_by_study = {}
    for study in STUDIES:
        matching = matching_reports(same_model_reports, choice, study)
        reports_by_study[study] = by_preference(matching, choice.languages, choice.method, ablation)
    sentences = findings(results.scores, reports_by_study, choice.languages)
    if not sentences:
        return
    with st.container(border=True, key="findings"):
        st.markdown("##### What was found")
        for finding in sentences:
            sentence_place, link_place = st.columns([4, 1], vertical_alignment="center")
            sentence_place.markdown(plain(finding.sentence))
            with link_place:
                page_link(finding.page, plain(finding.label), finding.link_params)


def _reports_on_one_model(
    reports: list[Result[Report]], first_scores: HeadScores | None
) -> list[Result[Report]]:
    """The reports on the same model as the scores, or without scores as the newest report.

    Args:
        reports: Of models of one name.
        first_scores: Any of the scores shown; None if there are none.
    """
    if not reports:
        return []
    record = first_scores or max(reports, key=creation_seconds).record
    return [report for report in reports if report.record.spec.get("model") == record.spec["model"]]


def draw_maps(choice: Choice, results: StoredScores) -> None:
    """A map for each language, or what there is in the cache instead."""
    if not results.scores:
        cache_words = (
            f"({default_root()}) has no {choice.method} results of {choice.model} on {choice.task}"
        )
        other_advice = (
            "other settings in the sidebar" if results.other_variants else "another method"
        )
        advice = "Choose" if scores_refusal(choice) else "Compute them below, or choose"
        st.info(
            f"The cache folder {plain(cache_words)} for these languages. {advice} {other_advice}."
        )
        return
    st.markdown(how_to_read_maps(results.scores) + " Click a head to see it in every language.")
    draw_small_maps(
        maps_of_scores(results.scores, common=pick_scale(len(results.scores))),
        key="overview",
        on_click=open_head,
        group_sizes=group_sizes_of(results.first_scores),
    )


def offer_missing(choice: Choice, results: StoredScores) -> None:
    """What can be computed, and jobs that run; what lies in the cache is on the Jobs page."""
    if results.missing:
        offer_missing_scores(choice, results.missing, results.template)
    if draw_live_jobs():
        page_link("heads", "Heads: watch its map sharpen")
    page_link("jobs", "Jobs: what is cached and what it cost")


def link_other_choices(choice: Choice) -> None:
    """Other models and tasks whose results are stored, such as the papers' own."""
    other_results = other_choices(choice)
    if other_results:
        st.markdown("##### Also in the cache")
        st.caption(
            "Results of other models and tasks: scores on every page, reports on Experiments and "
            "Roles."
        )
    for other_result in other_results:
        button(
            other_result.words,
            key=f"other-{other_result.words.partition(':')[0]}",
            on_press=open_page,
            args=(other_result.page, other_result.choice),
        )


def link_pages() -> None:
    """Links to the pages that a reader goes to from here."""
    with st.container(horizontal=True, gap="medium"):
        page_link("heads", "Heads: one head in every language")
        page_link("languages", "Languages: who shares which heads")
        page_link("prune", "Prune: switch heads off")
        page_link("attention", "Attention: what a head looks at")


def draw_page() -> None:
    """Draw the page."""
    with page("overview") as choice:
        head_to_open = HeadToOpen.of_session()
        link_params = head_to_open.link_params
        if link_params:
            head_to_open.link_params = {}
            st.switch_page("pages/heads.py", query_params=link_params)
        if not choice.languages:
            st.info("No language is chosen. Pick some in the sidebar, or press All.")
        else:
            results = scores_of(choice)
            draw_findings(choice, results)
            draw_maps(choice, results)
            draw_comparison_by_language(results.scores, open_head)
            link_pages()
            offer_page_report(choice, results.scores)
            offer_missing(choice, results)
            link_other_choices(choice)
