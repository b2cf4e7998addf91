"""The three views of the Attention page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from headlab.ui import attention_view
from headlab.ui.attention_view import MEAN_QUERY, Panel

FRAME_HEIGHT = 420
BERTVIZ, SHADED, TABLE = VIEWS = ("BertViz", "Shaded tokens", "Table of weights")


def draw(view: str, panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    """Draw the panels in one of VIEWS; names: how to write each head."""
    {BERTVIZ: _bertviz, SHADED: _shaded, TABLE: _table}[view](panels, names)
    if told := attention_view.separator_words(panels, names):
        st.caption(f"Tokens whose largest weight goes to a separator. {_plain('; '.join(told))}.")
    if any(panel.cut for panel in panels):
        st.caption(f"Sentences are cut after {attention_view.MAX_TOKENS} tokens.")


def _bertviz(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    st.caption(
        "Lines run from the token that looks (left) to the token looked at (right), as thick in colour as the weight. "
        "Point at a token for its own lines; click a square to hide a head, double-click to see it alone."
    )
    titles = ", ".join(panel.title for panel in panels)
    apart = len(names) > 1 and st.toggle("A picture for each head", key="apart", bind="query-params")
    shown = [alone for panel in panels for alone in panel.heads()] if apart else panels
    # The frame sets its own height once it has drawn.
    st.iframe(
        attention_view.head_view(shown, names, len(names) if apart else None),
        height=FRAME_HEIGHT,
        alt=f"Attention of {', '.join(names.values())}: {titles}",
    )


def _shaded(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    for i, (panel, place) in enumerate(zip(panels, st.columns(len(panels), gap="medium"), strict=True)):
        with place:
            queries = [MEAN_QUERY, *range(len(panel.tokens))]
            looking = partial(_looking, panel)
            query = st.selectbox(f"{panel.title}: who looks", queries, format_func=looking, key=f"query-{i}")
            st.html(attention_view.shading(panel, names, query))


def _looking(panel: Panel, query: int) -> str:
    return "mean of all tokens" if query == MEAN_QUERY else f"{query} {panel.tokens[query]}"


def _table(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    head = st.selectbox("Head", list(names), format_func=names.__getitem__, key="table-head")
    for panel in panels:
        st.markdown(f"**{_plain(panel.title)}**")
        frame = attention_view.weights_table(panel, head)
        st.dataframe(frame.style.format("{:.3f}").map(_shade), key=f"weights-{panel.title}")
        with st.expander(f"{panel.title}: the strongest links of each head"):
            st.dataframe(attention_view.strongest_links(panel, names), hide_index=True)


def _shade(weight: float) -> str:
    return f"background-color: rgba(36, 120, 200, {0.75 * weight:.2f})"


def _plain(text: str) -> str:
    return "".join("\\" + c if c in "\\`*_[]<>$:#" else c for c in text)
