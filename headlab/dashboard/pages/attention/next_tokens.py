"""What a language model expects next, token by token, with the chosen heads on and with them off."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.charts.next_tokens import next_tokens_chart
from headlab.core import Table, percent_text
from headlab.dashboard.names import plain
from headlab.dashboard.panels.heads import ShownSentence
from headlab.dashboard.widgets import draw_figure, show_table
from headlab.pictures import MINUS
from headlab.plots.matrices import MAX_SHOWN_TOKENS, with_visible_characters
from headlab.worker import Weights

NO_NEXT_TOKEN = "(end)"
"""In place of the token that follows the last one."""


def next_token_table(weights: Weights, name: str) -> Table:
    """A row per token that is predicted: its probability and the most probable token, on and off.

    Args:
        weights: Of the sentence, with its next tokens.
        name: Of the table's file.
    """
    rows = []
    for answer in weights.next_tokens:
        token = NO_NEXT_TOKEN
        change = None
        if answer.p_on is not None and answer.p_off is not None:
            token = with_visible_characters(weights.tokens[answer.position])
            change = 100 * (answer.p_off - answer.p_on)
        rows.append(
            (
                token,
                _percent(answer.p_on),
                _percent(answer.p_off),
                change,
                _top_text(answer.top_on, answer.p_top_on),
                _top_text(answer.top_off, answer.p_top_off),
            )
        )
    columns = (
        "token that follows",
        "on, %",
        "off, %",
        "change, points",
        "most probable, on",
        "most probable, off",
    )
    formats = ("", ".1f", ".1f", "+.1f", "", "")
    return Table(name, "Token by token", columns, formats, tuple(rows))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _top_text(token: str, share: float) -> str:
    return f"{with_visible_characters(token)} {percent_text(share, 1)}"


def summary_sentence(weights: Weights, heads: int) -> str:
    """How many tokens the model would have said itself, with the heads on and off, and the mean change.

    Args:
        weights: Of a sentence with at least one token that is predicted.
        heads: How many heads are off.
    """
    known_answers = [answer for answer in weights.next_tokens if answer.p_on is not None]
    said_on = 0
    said_off = 0
    changes = []
    for answer in known_answers:
        assert answer.p_on is not None
        assert answer.p_off is not None
        said_on += answer.p_on == answer.p_top_on
        said_off += answer.p_off == answer.p_top_off
        changes.append(100 * (answer.p_off - answer.p_on))
    total = len(known_answers)
    without = "without this head" if heads == 1 else f"without these {heads} heads"
    mean_change = round(sum(changes) / total, 1) + 0.0  # no -0.0
    points = f"{mean_change:+.1f}".replace("-", MINUS)
    return (
        f"The token that follows is the most probable one at {said_on} of {total} tokens, {without} at "
        f"{said_off}; its probability changes by {points} points on average."
    )


def draw_next_tokens(
    sentences: Sequence[ShownSentence], attention: Sequence[Weights], heads: int
) -> None:
    """Draw the chart and the table of each sentence.

    Args:
        sentences: What is shown.
        attention: Of each sentence, with its next tokens.
        heads: How many heads are off.
    """
    head_words = "this head" if heads == 1 else f"these {heads} heads"
    for number, (sentence, weights) in enumerate(zip(sentences, attention, strict=True), start=1):
        if not weights.next_tokens:
            continue
        title = f"Next token with {head_words} on and off"
        if len(sentences) > 1:
            title += f": {sentence.title}"
        st.markdown(f"##### {plain(title)}")
        with st.container(horizontal=True, gap="medium"):  # side by side where there is room
            chart_column = st.container(width=430)
            table_column = st.container(width=580)
        name = f"next-tokens-{number}"
        with chart_column:
            _draw_chart(sentence, weights, heads, f"{head_words} off", name)
        with table_column:
            show_table(next_token_table(weights, name), name)
    cut_note = ""
    if any(weights.truncated for weights in attention):
        cut_note = f" Sentences are cut after {MAX_SHOWN_TOKENS} tokens."
    st.caption(
        "On: all heads. Off: the output of the chosen ones is 0. Each token is predicted from those "
        f"before it.{cut_note}"
    )


def _draw_chart(
    sentence: ShownSentence, weights: Weights, heads: int, off_name: str, name: str
) -> None:
    """Draw the probabilities along a sentence; nothing for a sentence of one token.

    Args:
        sentence: The sentence.
        weights: Its next tokens.
        heads: How many heads are off.
        off_name: How the chart calls the model without them.
        name: Of the figure's file.
    """
    tokens = []
    p_on = []
    p_off = []
    for answer in weights.next_tokens:
        if answer.p_on is None or answer.p_off is None:
            continue
        tokens.append(with_visible_characters(weights.tokens[answer.position]))
        p_on.append(answer.p_on)
        p_off.append(answer.p_off)
    if not tokens:
        return
    st.markdown(plain(summary_sentence(weights, heads)))
    draw_figure(
        next_tokens_chart(tokens, p_on, p_off, off_name),
        name,
        alt=f"Probability of each next token with {off_name}: {sentence.title}",
        subject_details=" ".join(weights.tokens)[:120],
    )
