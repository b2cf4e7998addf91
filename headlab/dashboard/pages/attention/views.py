"""The views of the Attention page, and what may be done to every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import streamlit as st

from headlab.core import Head, HeadGrid
from headlab.dashboard.names import (
    head_from,
    head_key,
    head_number,
    head_words,
    language_title,
    plain,
)
from headlab.dashboard.pages.attention.pictures import (
    MEAN_QUERY,
    head_view,
    shaded_file,
    shading,
    strongest_links,
    weights_table,
)
from headlab.dashboard.panels.heads import BERTVIZ
from headlab.dashboard.panels.masks import MEAN_OF_LANGUAGES, pooled_scores
from headlab.dashboard.widgets import (
    chosen_model_and_task,
    download_button,
    draw_figure,
    draw_map,
    file_stem_of,
    remember_choice,
    remembered_choice,
    set_widget,
    uninterrupted,
)
from headlab.pictures import HeadMap, head_map, map_of_scores, maps_of_scores, parts_note
from headlab.plots.matrices import MAX_SHOWN_TOKENS, Panel, attention_map, special_token_texts
from headlab.report.maps import map_of_pictures
from headlab.results import HeadScores

FRAME_HEIGHT = 420
ENLARGED_KEY = "enlarged-head"
"""Widget key of the choice among several heads of the one that is enlarged."""

SHADED_TOKENS = "Shaded tokens"
WEIGHTS_TABLE = "Table of weights"
ALL_HEADS = "All heads"
VIEWS = (ALL_HEADS, BERTVIZ, SHADED_TOKENS, WEIGHTS_TABLE)

MEAN_HEAD = "mean"

# Widths of controls in pixels: on a screen of 1440, all that a task needs stand in one row.
VIEW_WIDTH = 150
SWITCHES_WIDTH = 172


class ViewOptions(NamedTuple):
    """What is done to the attention before it is drawn.

    Attributes:
        hide: Whether special tokens are left out.
        words: Whether pieces are joined to words.
        mean: Whether the mean of the chosen heads is drawn beside them.
    """

    hide: bool = False
    words: bool = False
    mean: bool = False

    def applied_to(self, panel: Panel) -> Panel:
        """The panel as it is drawn."""
        panel = panel.in_words() if self.words else panel
        panel = panel.without_special() if self.hide else panel
        if self.mean and len(panel.weights) > 1:
            return panel.with_mean(MEAN_HEAD)
        return panel


def pick_view() -> str:
    """The list of views."""
    return st.selectbox("View", VIEWS, key="view", bind="query-params", width=VIEW_WIDTH)


def pick_view_options(heads: int) -> ViewOptions:
    """The switches for special tokens, words and the mean of the heads, which needs two."""
    with st.container(width=SWITCHES_WIDTH, gap=None):
        return ViewOptions(
            st.toggle("Hide special tokens", key="hide", bind="query-params"),
            st.toggle("Words, not pieces", key="whole", bind="query-params", help=WORDS_HELP),
            heads > 1 and st.toggle("Mean of the heads", key="mean", bind="query-params"),
        )


WORDS_HELP = (
    "Attention to a word is the sum over its pieces, attention from it their mean (Clark et al. "
    "2019). Words are those that the tokenizer knows."
)


def draw_view(
    view: str, panels: Sequence[Panel], names: Mapping[str, str], options: ViewOptions
) -> None:
    """Draw the panels in one view.

    Args:
        view: One of `VIEWS`.
        panels: The sentences.
        names: Display name of each head.
        options: What is done to the panels before they are drawn.
    """
    names = {**names, MEAN_HEAD: "Mean of the chosen heads"}
    shown_panels = [options.applied_to(panel) for panel in panels]
    shown_names = {name: names[name] for name in shown_panels[0].weights}
    if view == BERTVIZ:
        _draw_bertviz(shown_panels, shown_names)
    elif view == SHADED_TOKENS:
        _draw_shaded(shown_panels, shown_names)
    else:
        _draw_table(shown_panels, shown_names)
    for words in caveats(panels, shown_panels, options):
        st.caption(plain(words))


def draw_special_tokens(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    """Draw how much of its weight each head gives special tokens, whether they are shown or not."""
    sentences = special_token_texts(panels, names)
    if sentences:
        st.caption("Weight on special tokens, averaged over the sentence's tokens:")
        st.caption("\n".join(f"- {plain(words)}." for words in sentences))


def draw_every_head(
    panel: Panel,
    all_heads_panel: Panel,
    options: ViewOptions,
    scores: Mapping[str, HeadScores],
    language: str,
    grid: HeadGrid,
    group_sizes: Sequence[int] = (),
) -> None:
    """Draw all heads of one sentence, and the chosen head enlarged.

    It is the one chosen last, or by a click.

    Args:
        panel: Of the chosen heads.
        all_heads_panel: Of all heads.
        options: What is done to both.
        scores: By language, for the frames.
        language: Code of the sentence's language.
        grid: The model's heads.
        group_sizes: As `group_sizes` of `draw_map`.
    """
    head = head_from(remembered_choice("head"), grid)
    shown_panel = options.applied_to(panel)
    small_panel = options.applied_to(all_heads_panel)
    frame_scores, frame_words = framing(scores, language, grid)
    with st.container(horizontal=True, gap="medium"):  # side by side where there is room
        maps_column = st.container(width=540)
        enlarged_column = st.container(width=450)
    with maps_column:
        pictures = []
        for grid_head in grid.heads:
            key = head_key(grid_head)
            pictures.append(small_panel.thumbnail(key) if key in small_panel.weights else "")
        draw_map(
            frame_scores,
            key="every",
            title=panel.title,
            selected_head=head,
            on_click=choose_head,
            pictures=pictures,
            group_sizes=group_sizes,
        )
        st.caption(
            f"One small map per head, its largest weight strongest; frames are {frame_words}. "
            "Click one to choose that head."
        )
        _offer_svg(
            partial(
                map_of_pictures, frame_scores, pictures, f"Attention of all heads: {panel.title}"
            ),
            "all-heads",
        )
    with enlarged_column:
        key = head_key(head)
        name = head_words(head, grid)
        if len(panel.weights) > 1:
            _pick_enlarged_head(list(panel.weights), key, grid)
        st.markdown(f"##### {plain(name)}")
        draw_figure(
            attention_map(shown_panel, key),
            f"attention-{key}",
            key="enlarged",
            alt=f"Attention of {name}: {panel.title}",
            subject_details=" ".join(panel.tokens)[:120],
        )
        direction_note = ", from right to left as the sentence runs" if panel.rtl else ""
        st.caption(f"A row per token that looks, a column per token looked at{direction_note}.")
    for words in caveats([panel], [shown_panel], options):
        st.caption(plain(words))


def _pick_enlarged_head(head_keys: Sequence[str], enlarged_key: str, grid: HeadGrid) -> None:
    """Which of several chosen heads is enlarged.

    Args:
        head_keys: Of the chosen heads.
        enlarged_key: The one that is shown.
        grid: The model's heads.
    """
    if st.session_state.get(ENLARGED_KEY) != enlarged_key:
        set_widget(ENLARGED_KEY, enlarged_key)
    st.radio(
        "Chosen heads",
        head_keys,
        horizontal=True,
        key=ENLARGED_KEY,
        format_func=lambda key: head_number(head_from(key), grid),
        on_change=uninterrupted(_enlarge_head),
    )


def _enlarge_head() -> None:
    remember_choice("head", st.session_state[ENLARGED_KEY])


def choose_head(head: Head) -> None:
    """Choose a head, here and on other pages: the action of a click."""
    set_widget("heads", [head_key(head)])
    remember_choice("head", head_key(head))


def framing(scores: Mapping[str, HeadScores], language: str, grid: HeadGrid) -> tuple[HeadMap, str]:
    """The map that frames take their colours and signs from, and whose scores it has, in words."""
    fitting = {}
    for name, language_scores in scores.items():
        if language_scores.grid.to_json() == grid.to_json():
            fitting[name] = language_scores
    if not fitting:
        no_scores = np.full(grid.size, np.nan)
        return head_map(no_scores, grid), "without colour, as there are no scores yet"
    if language in fitting:
        words = f"coloured by the heads' scores in {language_title(language)}"
        return maps_of_scores(fitting)[language], words
    mean = pooled_scores(fitting, MEAN_OF_LANGUAGES)
    assert mean is not None
    return map_of_scores(mean), "coloured by the heads' mean scores"


def caveats(
    panels: Sequence[Panel], shown_panels: Sequence[Panel], options: ViewOptions
) -> list[str]:
    """What to know of panels as they are shown, in sentences."""
    sentences = []
    if options.hide and any(panel.special for panel in panels):
        sentences.append(
            "Special tokens are left out; weights are as they were, so a row may sum to less than "
            "1."
        )
    titles_without_words = []
    if options.words:
        titles_without_words = [panel.title for panel in panels if panel.in_words() is panel]
    if titles_without_words:
        sentences.append(
            "The tokenizer knows no borders of words here, so pieces are shown: "
            f"{', '.join(titles_without_words)}."
        )
    note = parts_note(token for panel in shown_panels for token in panel.tokens)
    if note:
        sentences.append(note)
    if any(panel.is_cut for panel in shown_panels):
        sentences.append(f"Sentences are cut after {MAX_SHOWN_TOKENS} tokens.")
    return sentences


def _draw_bertviz(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    st.caption(
        "Lines run from the token that looks (left) to the token looked at (right), as thick in "
        "colour as the weight. Point at a token for its own lines; click a square to hide a head, "
        "double-click to see it alone."
    )
    titles = ", ".join(panel.title for panel in panels)
    one_head_each = len(names) > 1 and st.toggle(
        "A picture for each head", key="apart", bind="query-params"
    )
    shown_panels = panels
    if one_head_each:
        shown_panels = [head_panel for panel in panels for head_panel in panel.heads()]
    # The frame sets its own height once it has drawn.
    st.iframe(
        head_view(
            shown_panels,
            names,
            len(names) if one_head_each else None,
            file_stem_of("attention", chosen_model_and_task()),
        ),
        height=FRAME_HEIGHT,
        alt=f"Attention of {', '.join(names.values())}: {titles}",
    )


def _draw_shaded(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    columns = st.columns(len(panels), gap="medium")
    for panel_index, (panel, column) in enumerate(zip(panels, columns, strict=True)):
        with column:
            queries = {MEAN_QUERY: "mean of all tokens"}
            for token_index, token in enumerate(panel.tokens):
                queries[token_index] = f"{token_index} {token}"
            label = f"{plain(panel.title)}: who looks"
            query = st.selectbox(
                label, list(queries), format_func=queries.__getitem__, key=f"query-{panel_index}"
            )
            st.html(shading(panel, names, query))
            _offer_svg(partial(shaded_file, panel, names, query), f"shaded-{panel_index}")


def _offer_svg(data: Callable[[], str], name: str) -> None:
    file_name = f"{file_stem_of(name, chosen_model_and_task())}.svg"
    download_button("Save as SVG", data, file_name, "image/svg+xml", key=f"svg-{name}")


def _draw_table(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    head = st.selectbox("Head", list(names), format_func=names.__getitem__, key="table-head")
    for panel in panels:
        st.markdown(f"**{plain(panel.title)}**")
        frame = weights_table(panel, head)
        st.dataframe(frame.style.format("{:.3f}").map(_shade), key=f"weights-{panel.title}")
        with st.expander(f"{plain(panel.title)}: the strongest links of each head"):
            st.dataframe(strongest_links(panel, names), hide_index=True)


def _shade(weight: float) -> str:
    return f"background-color: rgba(36, 120, 200, {0.75 * weight:.2f})"
