"""The views of the Attention page, and what may be done to every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import streamlit as st

from headlab.core import Head, HeadGrid
from headlab.dashboard.names import head_from, head_key, head_words, language_title, plain
from headlab.dashboard.pages.attention.pictures import (
    MEAN_QUERY,
    head_view,
    shaded_file,
    shading,
    strongest_links,
    weights_table,
)
from headlab.dashboard.panels.suggestion import MEAN_OF_LANGUAGES, pooled_scores
from headlab.dashboard.widgets import (
    download,
    draw_map,
    figure,
    figures,
    remember_choice,
    remembered_choice,
    saved_name,
    set_widget,
)
from headlab.pictures import HeadMap, head_map, map_of, maps_of, parts_note
from headlab.plots.matrices import MAX_TOKENS, Panel, attention_map, special_words
from headlab.report.maps import pictured
from headlab.results import HeadScores

FRAME_HEIGHT = 420

BERTVIZ, SHADED, TABLE, EVERY = VIEWS = (
    "BertViz",
    "Shaded tokens",
    "Table of weights",
    "All heads",
)

MEAN_HEAD = "mean"


class ViewOptions(NamedTuple):
    """What is done to the attention before it is drawn."""

    hide: bool = False
    words: bool = False
    mean: bool = False

    def of(self, panel: Panel) -> Panel:
        """The panel as it is drawn."""
        panel = panel.in_words() if self.words else panel
        panel = panel.without_special() if self.hide else panel
        return panel.with_mean(MEAN_HEAD) if self.mean and len(panel.weights) > 1 else panel


def pick_view_options(heads: int) -> ViewOptions:
    """The switches for special tokens, words and the mean of the heads, which needs two."""
    with st.container(horizontal=True, gap="medium"):
        return ViewOptions(
            st.toggle("Hide special tokens", key="hide", bind="query-params"),
            st.toggle("Words instead of pieces", key="whole", bind="query-params", help=WORDS_HELP),
            heads > 1 and st.toggle("Mean of the chosen heads", key="mean", bind="query-params"),
        )


WORDS_HELP = (
    "Attention to a word is the sum over its pieces, attention from it their mean (Clark et al. 2019). Words are those "
    "that the tokenizer knows."
)


def draw_view(
    view: str, panels: Sequence[Panel], names: Mapping[str, str], options: ViewOptions
) -> None:
    """Draw the panels in one of VIEWS. names: display name of each head."""
    names = {**names, MEAN_HEAD: "Mean of the chosen heads"}
    shown = [options.of(panel) for panel in panels]
    {BERTVIZ: _draw_bertviz, SHADED: _shaded, TABLE: _table}[view](
        shown, {n: names[n] for n in shown[0].weights}
    )
    for words in caveats(panels, shown, options):
        st.caption(plain(words))


def draw_special_tokens(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    """Draw how much of its weight each head gives special tokens, whether they are shown or not."""
    if said := special_words(panels, names):
        st.caption("Weight on special tokens, averaged over the sentence's tokens:")
        st.caption("\n".join(f"- {plain(words)}." for words in said))


def draw_every_head(
    panel: Panel,
    every: Panel,
    options: ViewOptions,
    scores: Mapping[str, HeadScores],
    language: str,
    grid: HeadGrid,
    shared: Sequence[int] = (),
) -> None:
    """Draw the view of all heads of one sentence, and the head chosen last, or by a click, enlarged.

    panel: of the chosen heads.  every: of all heads.  scores: by language, for the frames.  shared: as `together` of
    `headgrid.draw_map`.
    """
    head = head_from(remembered_choice("head"))
    shown, small = options.of(panel), options.of(every)
    framed, whose = framing(scores, language, grid)
    with st.container(horizontal=True, gap="medium"):  # side by side where there is room
        left, right = st.container(width=540), st.container(width=450)
    with left:
        pictures = [
            small.small(key) if key in small.weights else "" for key in map(head_key, grid.heads)
        ]
        draw_map(
            framed,
            key="every",
            title=panel.title,
            selected=head,
            on_click=choose_head,
            pictures=pictures,
            together=shared,
        )
        st.caption(
            f"One small map per head, its largest weight darkest; frames are {whose}. Click one to choose that head."
        )
        _svg(
            partial(pictured, framed, pictures, f"Attention of all heads: {panel.title}"),
            "all-heads",
        )
    with right:
        key, name = head_key(head), head_words(head, len(grid.stacks) > 1)
        st.markdown(f"##### {plain(name)}")
        figure(
            attention_map(shown, key),
            f"attention-{key}",
            key="enlarged",
            alt=f"Attention of {name}: {panel.title}",
            about=" ".join(panel.tokens)[:120],
        )
        turned = ", from right to left as the sentence runs" if panel.rtl else ""
        st.caption(f"A row per token that looks, a column per token looked at{turned}.")
    for words in caveats([panel], [shown], options):
        st.caption(plain(words))


def choose_head(head: Head) -> None:
    """A click on a head: it is the chosen one, here and on other pages."""
    set_widget("heads", [head_key(head)])
    remember_choice("head", head_key(head))


def framing(scores: Mapping[str, HeadScores], language: str, grid: HeadGrid) -> tuple[HeadMap, str]:
    """The map that frames take their colours and signs from, and whose scores it has, in words."""
    fitting = {name: s for name, s in scores.items() if s.grid.to_json() == grid.to_json()}
    if not fitting:
        return head_map(
            np.full(grid.size, np.nan), grid
        ), "without colour, as there are no scores yet"
    if language in fitting:
        return maps_of(fitting)[
            language
        ], f"coloured by the heads' scores in {language_title(language)}"
    mean = pooled_scores(fitting, MEAN_OF_LANGUAGES)
    assert mean is not None
    return map_of(mean), "coloured by the heads' mean scores"


def caveats(panels: Sequence[Panel], shown: Sequence[Panel], options: ViewOptions) -> list[str]:
    """What to know of panels as they are shown, in sentences."""
    found = []
    if options.hide and any(panel.special for panel in panels):
        found.append(
            "Special tokens are left out; weights are as they were, so a row may sum to less than 1."
        )
    alike = [panel.title for panel in panels if options.words and panel.in_words() is panel]
    if alike:
        found.append(
            f"The tokenizer knows no borders of words here, so pieces are shown: {', '.join(alike)}."
        )
    if parts := parts_note(token for panel in shown for token in panel.tokens):
        found.append(parts)
    if any(panel.cut for panel in shown):
        found.append(
            f"Sentences are cut after {MAX_TOKENS} tokens; what the model says is of the whole sentence."
        )
    return found


def _draw_bertviz(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    st.caption(
        "Lines run from the token that looks (left) to the token looked at (right), as thick in colour as the weight. "
        "Point at a token for its own lines; click a square to hide a head, double-click to see it alone."
    )
    titles = ", ".join(panel.title for panel in panels)
    apart = len(names) > 1 and st.toggle(
        "A picture for each head", key="apart", bind="query-params"
    )
    shown = [alone for panel in panels for alone in panel.heads()] if apart else panels
    # The frame sets its own height once it has drawn.
    st.iframe(
        head_view(
            shown,
            names,
            len(names) if apart else None,
            saved_name("attention", figures.chosen()),
        ),
        height=FRAME_HEIGHT,
        alt=f"Attention of {', '.join(names.values())}: {titles}",
    )


def _shaded(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    for i, (panel, place) in enumerate(
        zip(panels, st.columns(len(panels), gap="medium"), strict=True)
    ):
        with place:
            tokens = {at: f"{at} {token}" for at, token in enumerate(panel.tokens)}
            queries = {MEAN_QUERY: "mean of all tokens", **tokens}
            label = f"{plain(panel.title)}: who looks"
            query = st.selectbox(
                label, list(queries), format_func=queries.__getitem__, key=f"query-{i}"
            )
            st.html(shading(panel, names, query))
            _svg(partial(shaded_file, panel, names, query), f"shaded-{i}")


def _svg(data: Callable[[], str], name: str) -> None:
    saved = f"{saved_name(name, figures.chosen())}.svg"
    download("Save as SVG", data, saved, "image/svg+xml", key=f"svg-{name}")


def _table(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    head = st.selectbox("Head", list(names), format_func=names.__getitem__, key="table-head")
    for panel in panels:
        st.markdown(f"**{plain(panel.title)}**")
        frame = weights_table(panel, head)
        st.dataframe(frame.style.format("{:.3f}").map(_shade), key=f"weights-{panel.title}")
        with st.expander(f"{plain(panel.title)}: the strongest links of each head"):
            st.dataframe(strongest_links(panel, names), hide_index=True)


def _shade(weight: float) -> str:
    return f"background-color: rgba(36, 120, 200, {0.75 * weight:.2f})"
