"""A head's card: its value in every language with its uncertainty, and links to other pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import streamlit as st

from headlab import plots
from headlab.core import (
    Head,
    HeadGrid,
    display_unit,
    fingerprint_of,
    nouns_of_kinds,
    player_name,
)
from headlab.dashboard.frame import samples_note
from headlab.dashboard.names import (
    head_in_full,
    head_key,
    head_number,
    head_words,
    language_title,
    page_link,
    plain,
)
from headlab.dashboard.panels.heads.attended_sentences import MAX_SIDE_BY_SIDE, side_by_side_params
from headlab.dashboard.panels.heads.head_tables import (
    IN_SHOWN_UNIT,
    table_of_heads,
    table_of_languages,
)
from headlab.dashboard.panels.jobs import head_value_words, interval_verdict, sign_flag
from headlab.dashboard.panels.masks import history_of, mask_link_text
from headlab.dashboard.widgets import draw_figure, table_height, uninterrupted, with_p_values
from headlab.results import AVERAGE_LIMIT, SAMPLING_ERROR_LIMIT, HeadScores, kept_heads_without

SIGNED_COLUMNS = ("value", "low", "high", "sample_mean")
"""Columns of values, which may be below 0."""
SAME_IN_ALL_ROWS = ["method", "estimand", "unit", "note"]
"""Columns of `table_of_heads` that a table on a page leaves out."""
EVERY_HEAD_HEIGHT = 320
"""Of the table of every head in pixels."""


def _column_config(unit: str) -> dict[str, Any]:
    """How the columns of `table_of_languages` are titled and written.

    Args:
        unit: In which values are shown.
    """
    number = st.column_config.NumberColumn
    return {
        "language": st.column_config.TextColumn("Language", pinned=True),
        "head_number": st.column_config.TextColumn("Head", pinned=True, help="Layer and head"),
        "value": number(f"Value, {unit}"),
        "low": number("From", help="Lower end of the interval"),
        "high": number("To", help="Upper end of the interval"),
        "half_width": number("Half-width", format="%.3f", help="Half the interval's length"),
        "sample_mean": number(
            "Samples alone",
            help="Mean of the samples, on which the interval and p rest; the value leans on slopes too",
        ),
        "sampling_error": number(
            "Sampling error", format="%.3f", help=f"Half-width; it {SAMPLING_ERROR_LIMIT}"
        ),
        "average_error": number(
            "Average error",
            format="%.3f",
            help=f"Half-width around the value; it {AVERAGE_LIMIT}",
        ),
        "rank": number("Rank", help="1 = the most useful head of this language"),
        "samples": number("Samples", format="localized"),
        "p": number("p", help="Of “this head does nothing”, two-sided"),
        "p_holm": number("p (Holm)", help="Adjusted for every head of every language shown"),
        "confidence": number(
            "Confidence", format="%.2f", help="Mean of its largest attention weight"
        ),
    }


def _subject_words(head: Head, grid: HeadGrid) -> str:
    """A head or another player within a sentence."""
    if grid.has_only_heads:
        return f"head {head_number(head, grid)}"
    return player_name(grid, head)


def _link_without(grid: HeadGrid, head: Head) -> str:
    return mask_link_text(kept_heads_without(np.array([grid.index(head)]), grid.size))


def draw_card(
    scores: Mapping[str, HeadScores],
    confidence: Mapping[str, HeadScores],
    head: Head,
    clicked_language: str,
    *,
    has_links: bool = True,
) -> None:
    """The card of a head.

    Args:
        scores: By language.
        confidence: Mean of each head's largest attention weight, by language, where it is stored.
        head: The head.
        clicked_language: Code of the language in which it was clicked.
        has_links: Whether links below it lead to what it attends to, and to Prune without it.
    """
    focus_scores = scores[clicked_language]
    unit = display_unit(focus_scores.unit)[1]
    table = table_of_languages(scores, head, confidence).set_index("language", drop=False)
    grid = focus_scores.grid
    st.subheader(plain(head_words(head, grid)), help=head_in_full(head, grid))
    rank = f"rank {table['rank'].loc[clicked_language]} of {focus_scores.grid.size}"
    st.markdown(
        f"In {plain(language_title(clicked_language))} {head_value_words(focus_scores, head)}, {rank}; "
        f"{interval_verdict(focus_scores, head, scores)}."
    )
    names = [str(name) for name in table.index]
    values = table["value"].to_numpy(float)
    low = table["low"].to_numpy(float)
    high = table["high"].to_numpy(float)
    chart = plots.across_languages(names, values, low, high, f"value ({unit})")
    draw_figure(
        chart,
        f"head-{head_key(head)}",
        key="head-figure",
        alt=f"Value of {_subject_words(head, grid)} in every language",
        subject_details=f"{focus_scores.method}, estimand {focus_scores.estimand}. {samples_note(scores)}",
    )
    if has_links:
        _draw_links(scores, head, clicked_language)


def _draw_links(scores: Mapping[str, HeadScores], head: Head, clicked_language: str) -> None:
    """Links to what a head attends to, and to Prune without it; arguments as of `draw_card`."""
    focus_scores = scores[clicked_language]
    with st.container(horizontal=True, gap="medium"):
        if focus_scores.grid.has_only_heads:
            other_languages = [name for name in scores if name != clicked_language]
            languages_side_by_side = [clicked_language, *other_languages][:MAX_SIDE_BY_SIDE]
            page_link(
                "attention",
                "What it attends to",
                side_by_side_params([head_key(head)], languages_side_by_side),
            )
        encoded_mask = _link_without(focus_scores.grid, head)
        history = history_of(str(fingerprint_of(focus_scores.spec)), focus_scores.grid)
        history.written_link_texts.discard(encoded_mask)  # this link must apply its mask
        page_link("prune", "Switch it off", {"m": encoded_mask, "from": clicked_language})


def draw_details(
    scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head
) -> None:
    """The card's figures as a table, the same as its chart."""
    grid = next(iter(scores.values())).grid
    one = nouns_of_kinds(grid.kinds)[0]
    table = table_of_languages(scores, head, confidence).dropna(axis="columns", how="all")
    columns = _column_config(display_unit(next(iter(scores.values())).unit)[1])
    height = table_height(len(table), 738)
    formats = _number_formats(next(iter(scores.values())))
    st.dataframe(
        with_p_values(table, formats), hide_index=True, column_config=columns, height=height
    )
    if "p_holm" in table:
        tests = sum(language_scores.grid.size for language_scores in scores.values())
        subject = f"each of the {len(scores)} languages" if len(scores) > 1 else "the language"
        st.caption(f"p (Holm) is adjusted for {tests:,} tests: every {one} in {subject} shown.")
    if "confidence" not in table and grid.has_only_heads:
        st.caption(
            "Confidence is not cached for these languages: run method `confidence` to see it here."
        )


def draw_every_head(
    scores: Mapping[str, HeadScores], key: str, open_head: Callable[[str, Head], None]
) -> None:
    """Every head in every language as a table, in the unit shown; a row that is ticked opens it.

    Args:
        scores: By language.
        key: Widget key of the table.
        open_head: Called with the language and the head of a ticked row.
    """
    rows = table_of_heads(scores)
    heads = [Head(*place) for place in zip(rows["stack"], rows["layer"], rows["head"], strict=True)]
    first_scores = next(iter(scores.values()))
    factor, unit = display_unit(first_scores.unit)
    shown_values = [name for name in IN_SHOWN_UNIT if name in rows]
    table = rows.drop(columns=["stack", "layer", "head", *SAME_IN_ALL_ROWS], errors="ignore")
    table[shown_values] *= factor
    table.insert(1, "head_number", [_row_title(head, first_scores.grid) for head in heads])

    def open_ticked_row() -> None:
        for row_number in st.session_state[key]["selection"]["rows"]:
            open_head(rows["language"].iloc[row_number], heads[row_number])

    columns = _column_config(unit)
    one = nouns_of_kinds(first_scores.grid.kinds)[0]
    if not first_scores.grid.has_only_heads:
        columns["head_number"] = st.column_config.TextColumn("Player", pinned=True)
    st.dataframe(
        with_p_values(table, _number_formats(first_scores)),
        hide_index=True,
        height=EVERY_HEAD_HEIGHT,
        column_config=columns,
        key=key,
        on_select=uninterrupted(open_ticked_row),
        selection_mode="single-row",
    )
    st.caption(f"{len(table):,} rows: every {one} in every chosen language; tick one to open it.")


def _row_title(head: Head, grid: HeadGrid) -> str:
    """A head's number; of another player what it is."""
    return head_number(head, grid) if grid.has_only_heads else head_in_full(head, grid)


def _number_formats(scores: HeadScores) -> dict[str, str]:
    """Formats of the columns of values, with the sign that scores of this method have."""
    sign = sign_flag(scores)
    return dict.fromkeys(SIGNED_COLUMNS, f"{sign}.3f") if sign else {}
