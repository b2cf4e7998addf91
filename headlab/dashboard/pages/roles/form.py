"""Finding roles: sentences, forecast and Start; and which roles remain as heads are removed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice, task_languages
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.panels.jobs import (
    draw_live_jobs,
    end_job_form,
    show_started_job,
    show_terminal_commands,
    start_job_of_form,
)
from headlab.dashboard.panels.stored import (
    ROLES_FORM,
    SENTENCE_SOURCES,
    TASK_SOURCE,
    TREEBANK_SOURCE,
    RolesRequest,
    StoredByLanguage,
    StoredRoles,
    draw_form_for_missing,
    roles_job_refusal,
    roles_requests,
)
from headlab.jobs.table import RolesJob
from headlab.roles import OPTIONS
from headlab.tasks import DATA_VARIABLE, language_titles, treebank_languages


def draw_form(choice: Choice, stored_reports: StoredByLanguage[StoredRoles]) -> None:
    """The form for the languages without a report.

    If all languages have one, the form is folded, and for other languages, sentences or thresholds.
    """
    draw_form_for_missing(
        stored_reports,
        choice.languages,
        partial(_draw_fields, choice),
        "Other languages, sentences or thresholds",
        "roles-plan",
    )
    show_started_job("Its roles appear on this page when it is done.")
    draw_live_jobs()


def _draw_fields(choice: Choice, languages: tuple[str, ...]) -> None:
    codes_with_trees = languages_with_treebanks()
    offered_by_task = task_languages(choice.task)
    all_codes = list(dict.fromkeys([*languages, *offered_by_task, *codes_with_trees]))
    selected_languages = _pick_languages(languages, all_codes)
    source = _pick_sentences()
    with st.expander("Thresholds"):
        ROLES_FORM.draw_all(OPTIONS)
    requests = roles_requests(choice, selected_languages, codes_with_trees, offered_by_task, source)
    if not selected_languages:
        st.info("No language is chosen. Pick some here, or in the sidebar.")
    for request in requests:
        _draw_end(request, lacks_trees=source == TREEBANK_SOURCE and request.source == TASK_SOURCE)
    covered_languages = {name for request in requests for name in request.languages}
    languages_without_texts = [name for name in selected_languages if name not in covered_languages]
    if languages_without_texts:
        titles = language_titles(languages_without_texts)
        st.warning(plain(f"Task {choice.task} has no texts in {titles}; take gold trees there."))
    if requests:
        show_terminal_commands(*(request.job(ROLES_FORM.values()) for request in requests))


def _pick_languages(default: Sequence[str], offered_languages: list[str]) -> list[str]:
    """Languages to find roles in; the sidebar lists only the task's, a treebank may have others."""
    widget_key = ROLES_FORM.key(f"languages-{','.join(default)}")
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
    names = list(SENTENCE_SOURCES)
    default_index = names.index(ROLES_FORM.last_value("source", TREEBANK_SOURCE))
    for place, (name, option) in zip(setting_places, RolesJob.settings().items(), strict=True):
        with place:
            ROLES_FORM.draw(name, option)
    return source_place.selectbox(
        "Sentences",
        names,
        default_index,
        format_func=SENTENCE_SOURCES.__getitem__,
        key=ROLES_FORM.key("source"),
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
    job = request.job(ROLES_FORM.values())
    titles = plain(language_titles(request.languages))
    st.markdown(f"**{titles}**: {plain(request.words)}.")
    if lacks_trees:
        st.caption(f"No treebank here for {titles}; {DATA_VARIABLE} names the folder of treebanks.")
    press = partial(start_job_of_form, ROLES_FORM, request.job)
    end_job_form(
        job,
        roles_job_refusal(job),
        press,
        key=f"roles-start-{request.source}",
        form_prefix=ROLES_FORM.prefix,
    )
