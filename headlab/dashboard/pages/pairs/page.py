"""Which heads stand in for each other, which need each other, and what sets of them cost."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.charts.studies.interactions import (
    OPEN_DRAWN,
    interaction_graph,
    pair_words,
    sets_chart,
)
from headlab.core import HeadlabError, Report, Table
from headlab.dashboard.frame import Choice, draw_no_language, known_grid, page, stored_results
from headlab.dashboard.names import SHORT_KEY, count_words, language_title, plain, with_minus_signs
from headlab.dashboard.pages.pairs.form import PairsForm, draw_form
from headlab.dashboard.panels.stored import (
    StoredJob,
    commands_again,
    current_weights,
    matching_reports,
    report_facts,
    report_label,
)
from headlab.dashboard.widgets import (
    draw_figure,
    keep_known_choice,
    set_first_value,
    show_how_made,
    show_skipped,
    show_table,
)
from headlab.results import Result
from headlab.studies import INTERACTIONS, typed_result
from headlab.studies.interactions import InteractionsResult, PairInteraction

REPORT_PARAM = "pairs"
"""Parameter of the link, and widget: the start of the key of the report that is shown."""
LANGUAGE_PARAM = "focus"
GRAPH_WIDTH = 620
"""Widest graph of pairs, in pixels: on a wider one its cells are far from square, and lines bulge."""
NAMED_PAIRS = 3
"""Pairs that the sentence above the graph names."""


def pick_report(results: Sequence[Result[Report]], weights: str | None) -> Result[Report]:
    """Draw the choice of a report, unless there is one only, and return the chosen one.

    The link has it unless it is the first.

    Args:
        results: The newest first.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    by_key = {result.key[:SHORT_KEY]: result for result in results}
    first_key = next(iter(by_key))
    keep_known_choice(REPORT_PARAM, "report", list(by_key))
    asked_key = st.query_params.get(REPORT_PARAM)
    if asked_key in by_key:
        set_first_value(REPORT_PARAM, asked_key)
    chosen_key = first_key
    if len(by_key) > 1:
        chosen_key = st.selectbox(
            "Result",
            list(by_key),
            format_func=lambda key: report_label(by_key[key], weights),
            key=REPORT_PARAM,
        )
    if chosen_key == first_key:
        st.query_params.pop(REPORT_PARAM, None)
    elif chosen_key != asked_key:
        st.query_params[REPORT_PARAM] = chosen_key
    return by_key[chosen_key]


def pick_language(languages: Sequence[str]) -> str:
    """Draw the choice of a language of a report, and return it."""
    keep_known_choice(LANGUAGE_PARAM, "language", list(languages))
    return st.selectbox(
        "Language", list(languages), format_func=str, key=LANGUAGE_PARAM, bind="query-params"
    )


def summary(pairs: Sequence[PairInteraction], unit: str) -> str:
    """What is known of the pairs, in sentences.

    Args:
        pairs: Of one language.
        unit: Of their interactions.
    """
    decided = [pair for pair in pairs if pair.relation != "open"]
    named = [pair for pair in decided if pair.is_named]
    sentences = [f"Of {count_words(len(pairs), 'pair')}, {len(decided) or 'none'} decided."]
    for relation, words in (
        ("stand in", "stand in for each other"),
        ("need", "need each other"),
    ):
        of_sign = [pair for pair in decided if pair.relation == relation]
        largest = sorted(of_sign, key=lambda pair: -abs(pair.interaction))[:NAMED_PAIRS]
        if largest:
            listed = "; ".join(pair_words(pair, unit) for pair in largest)
            more = f" and {len(of_sign) - len(largest)} more" if len(of_sign) > len(largest) else ""
            sentences.append(f"These {words}: {listed}{more}.")
    if decided:
        sentences.append(f"{len(named) or 'None'} of them with all pairs tested together.")
    return " ".join(sentences)


def left_out_words(pairs: Sequence[PairInteraction]) -> str:
    """Which open pairs the graph leaves out, in a sentence after a blank; empty if none."""
    open_count = sum(pair.relation == "open" for pair in pairs)
    if open_count <= OPEN_DRAWN:
        return ""
    return f" The {OPEN_DRAWN} largest of {open_count:,} open pairs are drawn."


def draw_result(result: Result[Report], weights: str | None) -> None:
    """The pairs of one report: their graph, their table, and the sets that were removed.

    Args:
        result: The report.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    report = result.record
    st.caption(plain(report_label(result, weights)))
    try:
        found = typed_result(report, InteractionsResult)
    except HeadlabError as error:
        st.warning(plain(f"This result cannot be read: {error}."))
        return
    if not found.languages:
        st.info("This result has no pairs.")
        return
    language = pick_language(found.languages)
    pairs = found.of_language(language)
    heads = [row.head for row in found.alone.rows if row.language == language]
    grid = known_grid(StoredJob.of(report).fingerprint)
    if grid is not None and not set(heads) <= set(grid.heads):
        grid = None
    st.markdown(plain(with_minus_signs(summary(pairs, found.unit))))
    with st.container(width=GRAPH_WIDTH):
        draw_figure(
            interaction_graph(pairs, heads, found.unit, grid),
            "pairs",
            alt=f"Pairs of heads that interact in {language_title(language)}",
        )
    st.caption(
        "Purple: the two stand in for each other. Green: they need each other. Wider is more. A dotted "
        f"line is open: its interval has 0 in it.{left_out_words(pairs)}"
    )
    pairs_table, alone_table, sets_table = (
        _of_language(table, language) for table in found.tables()
    )
    show_table(pairs_table, result.key)
    sets = [row for row in found.sets.rows if row.language == language]
    if sets:
        st.subheader("What does it cost to remove several?")
        draw_figure(
            sets_chart(sets, found.unit),
            "pairs-sets",
            alt="Loss of removed sets, measured against foreseen",
        )
        show_table(sets_table, result.key)
    show_table(alone_table, result.key)
    for note in report.notes:
        st.caption(plain(with_minus_signs(note)))
    with st.expander("How it was made"):
        commands = commands_again("report", result)
        show_how_made(report_facts(result), commands, report, report.name, result.key)


def _of_language(table: Table, language: str) -> Table:
    """The rows of a table in one language."""
    index = table.columns.index("language")
    rows = tuple(row for row in table.rows if row[index] == language)
    return Table(table.name, table.title, table.columns, table.formats, rows, table.notes)


def draw_answer(choice: Choice) -> None:
    """The stored pairs of the choice's model and task, or what there is instead."""
    stored_reports = stored_results(Report)
    weights = current_weights(choice.model)
    results = matching_reports(stored_reports.results, choice, INTERACTIONS, weights)
    if results:
        draw_result(pick_report(results, weights), weights)
    else:
        subject = plain(f"{choice.model} and task {choice.task}")
        st.info(f"No pairs of {subject} have been measured yet. **Start** below measures some.")
    show_skipped(stored_reports.problems, "report")


def draw_page() -> None:
    """Draw the page."""
    with page("pairs") as choice:
        if not choice.languages:
            draw_no_language(choice)
            return
        answer_area = st.container()
        with st.container():
            st.subheader("Measure pairs")
            draw_form(PairsForm(choice))
        with answer_area:
            draw_answer(choice)
