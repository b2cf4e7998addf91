"""A stored report on the page: figures, tables to download, caveats, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.core import HeadlabError, Report
from headlab.dashboard.names import plain, with_minus_signs
from headlab.dashboard.panels.heads import link_to_attention
from headlab.dashboard.panels.stored import (
    StoredJob,
    commands_again,
    creation_seconds,
    report_differences,
    report_facts,
    report_label,
    sizes_words,
)
from headlab.dashboard.widgets import draw_figure, set_first_value, show_how_made, show_table
from headlab.jobs.table import ExperimentJob
from headlab.plots import report_figures
from headlab.results import Result
from headlab.studies import (
    STUDIES,
    earlier_scores_sentence,
    heads_listed_by_kind,
    result_of,
    with_paper,
)
from headlab.tasks import language_titles

MAX_STACKED_FIGURES = 3
"""Up to this many figures are stacked; of more, the user chooses one."""


def pick_report(
    results: Sequence[Result[Report]],
    experiment: str,
    requested_key: str | None,
    weights: str | None = None,
) -> Result[Report]:
    """The report to show: the first, or the one chosen here or by the link.

    Args:
        results: Reports of the experiment, the preferred one first.
        experiment: Its key.
        requested_key: Key of the report that the link asks for; None for the first.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    by_key = {result.key: result for result in results}
    if len(results) == 1:
        return results[0]
    keys = ["", *by_key]
    widget_key = f"report-{experiment}"
    if requested_key:
        set_first_value(widget_key, requested_key)
    if st.session_state.get(widget_key, "") not in keys:
        del st.session_state[widget_key]
    first_is_newest = max(map(creation_seconds, results)) == creation_seconds(results[0])
    newest_label = "The newest" if first_is_newest else "The newest of the chosen model in float32"

    def label_of(report_key: str) -> str:
        if report_key:
            return report_label(by_key[report_key], weights)
        return newest_label

    selected_key = st.selectbox("Report", keys, format_func=label_of, key=widget_key)
    return by_key.get(selected_key, results[0])


def draw_report(result: Result[Report], form_job: ExperimentJob, weights: str | None) -> None:
    """Draw a report.

    Args:
        result: The report.
        form_job: The job chosen below; differences from it are stated.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    report = result.record
    st.caption(plain(report_label(result, weights)))
    settings = report_differences(StoredJob.of(report), form_job, weights)
    if settings:
        st.info(
            "This report was made with other settings than those chosen below: "
            f"{plain('; '.join(settings))}."
        )
    for note in filter(None, (*report.notes, earlier_scores_sentence(report.spec))):
        st.markdown(f"- {plain(with_minus_signs(note))}")
    _draw_figures(report)
    _link_to_heads(report)
    for table in with_paper(report):
        show_table(table, result.key)
    _draw_how_made(result)


def _draw_figures(report: Report) -> None:
    try:
        figures = report_figures(report)
    except HeadlabError as error:
        st.warning(plain(f"The figures cannot be drawn: {error}."))
        return
    names = list(figures)
    if len(names) > MAX_STACKED_FIGURES:
        names = [st.selectbox("Figure", names, key=f"figure-{report.name}")]
    study = STUDIES.get(report.name)
    title = report.name if study is None else study.title
    for name in names:
        figure_name = name.removeprefix(report.name).strip("-").replace("-", " ")
        alt = f"{title}, {figure_name}" if figure_name else title
        draw_figure(figures[name], name, alt=alt, subject_details=_subject_words(report))


def _link_to_heads(report: Report) -> None:
    """Links to the heads of each kind that the report lists.

    There are none where the report cannot be read, which is said in place of its figures.
    """
    try:
        result = result_of(report)
    except HeadlabError:
        return
    link_to_attention(heads_listed_by_kind(result))


def _subject_words(report: Report) -> str:
    """What a report is on: languages, method and numbers of examples."""
    job = StoredJob.of(report).job
    method = [str(job.method)] if job.method else []
    return ", ".join([language_titles(job.language_codes), *method, sizes_words(job)])


def _draw_how_made(result: Result[Report]) -> None:
    with st.expander("How it was made"):
        study = STUDIES.get(result.record.name)
        if study is not None:
            st.caption(f"After {study.paper}.")
        commands = commands_again("report", result)
        show_how_made(report_facts(result), commands, result.record, result.record.name, result.key)
