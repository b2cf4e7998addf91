"""The pairs of one head, where a stored result has them."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from headlab.core import Head, HeadlabError, Report
from headlab.dashboard.frame import Choice, stored_results
from headlab.dashboard.names import SHORT_KEY, language_title, page_link, plain
from headlab.dashboard.panels.heads import HeadData
from headlab.dashboard.panels.stored import StoredJob, matching_reports
from headlab.dashboard.widgets import show_table
from headlab.results import Result
from headlab.studies import INTERACTIONS, Records, typed_result
from headlab.studies.interactions import InteractionsResult, PairInteraction
from headlab.studies.result import table_of

TABLE = "pairs-of-head"


def pairs_of_head(
    choice: Choice, data: HeadData, head: Head, language: str
) -> tuple[Result[Report], Records[PairInteraction]] | None:
    """The newest stored result with pairs of a head in a language, and these pairs.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
        language: Code of the language that is spoken of.

    Returns:
        None if no result has any.
    """
    reports = stored_results(Report).results
    for result in matching_reports(reports, choice, INTERACTIONS, data.fingerprint):
        if is_of_other_weights(result, data.fingerprint):
            continue
        try:
            found = typed_result(result.record, InteractionsResult)
        except HeadlabError:  # the Pairs page says what is wrong with it
            continue
        rows = [pair for pair in found.of_language(language) if pair.has(head, data.grid)]
        if rows:
            rows.sort(key=lambda pair: -abs(pair.interaction))
            return result, replace(found.pairs, title="Its pairs", rows=tuple(rows))
    return None


def is_of_other_weights(result: Result[Report], weights: str | None) -> bool:
    """Whether a report is of other weights than these, or does not say of which.

    Args:
        result: The report.
        weights: Fingerprint of the weights whose heads are shown, None if unknown.
    """
    return weights is not None and StoredJob.of(result.record).fingerprint != weights


def draw_pairs(choice: Choice, data: HeadData, head: Head, language: str) -> None:
    """The head's pairs in a table, with a link to all of them; nothing where none are stored.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        head: The head.
        language: Code of the language that is spoken of.
    """
    found = pairs_of_head(choice, data, head, language)
    if found is None:
        return
    result, records = found
    decided = [pair for pair in records.rows if pair.relation != "open"]
    st.subheader("Which heads does it work with?")
    st.caption(
        plain(
            f"{language_title(language)}: below 0 the two stand in for each other, above 0 they need "
            f"each other. {len(decided) or 'None'} of {len(records.rows)} decided."
        )
    )
    show_table(table_of(records, PairInteraction, TABLE), result.key)
    page_link("pairs", "All pairs", {"pairs": result.key[:SHORT_KEY], "focus": language})
