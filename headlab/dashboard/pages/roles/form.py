"""Finding roles: sentences, forecast and Start; and which roles remain as heads are removed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice, task_languages
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.job_actions import asked, end_form, progress, start_planned, terminal
from headlab.dashboard.panels.shelf import Shelf, draw_form_below
from headlab.dashboard.panels.stored_roles import (
    FORM,
    SOURCES,
    TEXTS,
    TREES,
    RolesRequest,
    StoredRoles,
    roles_requests,
    trouble,
)
from headlab.jobs.table import RolesJob
from headlab.roles import OPTIONS
from headlab.tasks import DATA_VARIABLE, language_titles, treebank_languages


def draw_form(choice: Choice, shelf: Shelf[StoredRoles]) -> None:
    """The form for the languages without a report.

    If all languages have one, the form is folded, and for other languages, sentences or thresholds.
    """
    draw_form_below(
        shelf,
        choice.languages,
        partial(_draw_fields, choice),
        "Other languages, sentences or thresholds",
        "roles-plan",
    )
    asked("Its roles appear on this page when it is done.")
    progress()


def _draw_fields(choice: Choice, languages: tuple[str, ...]) -> None:
    codes_with_trees = languages_with_treebanks()
    offered_by_task = task_languages(choice.task)
    all_codes = list(dict.fromkeys([*languages, *offered_by_task, *codes_with_trees]))
    selected_languages = _pick_languages(languages, all_codes)
    source = _pick_sentences()
    with st.expander("Thresholds"):
        FORM.grid(OPTIONS)
    requests = roles_requests(choice, selected_languages, codes_with_trees, offered_by_task, source)
    if not selected_languages:
        st.info("No language is chosen. Pick some here, or in the sidebar.")
    for request in requests:
        _draw_end(request, lacks_trees=source == TREES and request.source == TEXTS)
    covered_languages = {name for request in requests for name in request.languages}
    languages_without_texts = [name for name in selected_languages if name not in covered_languages]
    if languages_without_texts:
        titles = language_titles(languages_without_texts)
        st.warning(plain(f"Task {choice.task} has no texts in {titles}; take gold trees there."))
    if requests:
        terminal(*(request.job(FORM.values()) for request in requests))


def _pick_languages(default: Sequence[str], offered_languages: list[str]) -> list[str]:
    """Languages to find roles in; the sidebar lists only the task's, a treebank may have others."""
    widget_key = FORM.key(f"languages-{','.join(default)}")
    return st.multiselect(
        "Languages",
        offered_languages,
        default=list(default),
        format_func=language_title,
        key=widget_key,
    )


def _pick_sentences() -> str:
    """Source of the sentences, with widgets for their split and number."""
    source_place, *setting_places = st.columns([2, 1, 1])
    names = list(SOURCES)
    default_index = names.index(FORM.kept("source", TREES))
    for place, (name, option) in zip(setting_places, RolesJob.settings().items(), strict=True):
        with place:
            FORM.draw(name, option)
    return source_place.selectbox(
        "Sentences", names, default_index, format_func=SOURCES.__getitem__, key=FORM.key("source")
    )


def languages_with_treebanks() -> tuple[str, ...]:
    """Languages with a treebank on this machine; a worker elsewhere reports if it has none."""
    try:
        return treebank_languages(None)
    except HeadlabError:
        return ()


def _draw_end(request: RolesRequest, *, lacks_trees: bool) -> None:
    """What one job would do, its forecast and its button.

    Args:
        request: The job.
        lacks_trees: Whether trees were wanted, but these languages have none.
    """
    job = request.job(FORM.values())
    titles = plain(language_titles(request.languages))
    st.markdown(f"**{titles}**: {plain(request.words)}.")
    if lacks_trees:
        st.caption(f"No treebank here for {titles}; {DATA_VARIABLE} names the folder of treebanks.")
    press = partial(start_planned, FORM, request.job)
    end_form(job, trouble(job), press, key=f"roles-start-{request.source}", form=FORM.prefix)
