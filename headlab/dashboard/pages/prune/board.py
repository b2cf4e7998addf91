"""Views of the Prune page: the switches with a suggestion, and what the mask saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import streamlit as st

from headlab.core import HeadGrid, display_unit, kind_title, nouns_of_kinds
from headlab.dashboard.frame import StoredScores
from headlab.dashboard.names import (
    HEAD_NUMBER_HELP,
    count_words,
    head_in_full,
    head_number,
    language_title,
    languages_words,
    plain,
)
from headlab.dashboard.panels.masks import (
    CORRECTION_WORDS,
    MEAN_OF_LANGUAGES,
    SUGGESTION_RULES,
    MaskHistory,
    Suggestion,
    correction_words,
    false_heads_words,
    origin_of_mask,
    pooled_scores,
    removal_warning,
    rule_meaning,
    suggested_heads,
    usable_rules,
)
from headlab.dashboard.widgets import (
    Button,
    button,
    button_row,
    draw_head_switches,
    remember_choice,
    set_widget,
)
from headlab.methods import remarks_on_choice
from headlab.pictures import head_map, map_of_scores
from headlab.results import HeadScores

# The board: the grid of switches, its toolbar, the method's suggestion, and the list of heads.

GRID = "prune-grid"

HOW_TO_SWITCH = (
    "Click {} to switch it off or on; Shift-click takes the rectangle from the last one "
    "clicked; a number at the edge takes its whole layer or column. Keys: arrows, Home, End, "
    "Enter."
)


def how_to_switch(grid: HeadGrid) -> str:
    """How the switches of these players work."""
    return HOW_TO_SWITCH.format("a head" if grid.has_only_heads else "one")


def pick_scores(stored_scores: StoredScores) -> HeadScores | None:
    """Draw the choice of the scores that colour the grid and feed the suggestion.

    It is not drawn where there is nothing to choose.

    Args:
        stored_scores: Of all languages.

    Returns:
        The chosen scores; None if there are none.
    """
    if len(stored_scores.scores) < 2:
        return pooled_scores(stored_scores.scores, MEAN_OF_LANGUAGES)
    noun = nouns_of_kinds(stored_scores.grid.kinds if stored_scores.grid else ())[1]
    source = st.selectbox(
        f"Scores that colour the {noun} and suggest a mask",
        [MEAN_OF_LANGUAGES, *stored_scores.scores],
        help="The mean of all languages, or one language",
        key="from",
        bind="query-params",
    )
    if source != MEAN_OF_LANGUAGES:
        remember_choice("focus", source)  # Heads opens on this language too
    return pooled_scores(stored_scores.scores, source)


def draw_toolbar(history: MaskHistory) -> None:
    """Undo, redo, reset."""
    button_row(
        Button("Undo", "prune-undo", history.undo, icon="undo", disabled=not history.can_undo),
        Button("Redo", "prune-redo", history.redo, icon="redo", disabled=not history.can_redo),
        Button(
            "Reset",
            "prune-reset",
            history.reset,
            icon="restart_alt",
            disabled=not history.mask.removed,
            help=f"All {history.grid.noun} on",
        ),
    )


def draw_switches(
    history: MaskHistory,
    scores: HeadScores | None,
    group_sizes: Sequence[int],
    language_count: int,
) -> None:
    """The grid itself, coloured by the scores if there are any.

    Args:
        history: Of the mask that the grid shows and changes.
        scores: Those that colour the heads; None for none.
        group_sizes: As `group_sizes` of `draw_map`.
        language_count: In how many languages there are scores.
    """
    noun = history.grid.noun
    subject = _capitalised(noun)
    title = subject
    if scores is not None and scores.grid != history.grid:
        scores = None  # of other groups of neurons
    if scores is None:
        head_values = head_map(np.full(history.grid.size, np.nan), history.grid)
    else:
        head_values = map_of_scores(scores)
        title = f"{subject} in {language_title(scores.language)}"
        if scores.language == MEAN_OF_LANGUAGES:
            title = f"{subject}, mean of {count_words(language_count, 'language')}"
    draw_head_switches(
        head_values,
        history.mask.kept,
        key=GRID,
        title=title,
        on_switch=history.switch,
        group_sizes=group_sizes,
    )


def draw_suggestion(
    history: MaskHistory,
    stored_scores: StoredScores,
    scores: HeadScores | None,
    on_test: Callable[[], None],
) -> None:
    """A rule over the scores, its effect, and the button that applies it.

    Args:
        history: Of the mask that the button changes.
        stored_scores: Of all languages.
        scores: Those that the rule is applied to; None where there are none.
        on_test: Draws what the current mask does on test; called where it is the one suggested.
    """
    with st.expander("Take the method's suggestion", icon=":material/auto_fix_high:"):
        if scores is None:
            st.markdown(
                "There is no suggestion yet: no scores of this method are cached for these "
                "languages."
            )
            return
        if not usable_rules(scores):
            st.markdown(
                f"Scores by {scores.method} are for a first look: no rule chooses heads by them. "
                "Compute scores by shapley for a suggestion."
            )
            return
        suggestion = _pick_suggestion(scores)
        suggested_kept = suggested_heads(scores, suggestion)
        removed_count = int((~suggested_kept).sum())
        scored_languages = language_title(scores.language)
        if scores.language == MEAN_OF_LANGUAGES:
            scored_languages = f"the mean over {languages_words([*stored_scores.scores])}"
        st.markdown(
            f"**{removed_count} of {suggested_kept.size} {scores.grid.noun}** would be off, by {scores.method} "
            f"of {plain(scored_languages)}."
        )
        sentence = false_heads_words(scores, suggestion, removed_count)
        if sentence:
            st.caption(sentence)
        warning = removal_warning(suggested_kept, scores.grid)
        if warning:
            st.warning(warning)
        button(
            "Switch these off",
            key="prune-suggest",
            kind="primary",
            disabled=not removed_count,
            on_press=history.set_mask,
            args=(suggested_kept, origin_of_mask(scores, suggestion, list(stored_scores.scores))),
        )
        if not removed_count:
            st.caption(
                f"The rule chooses no {nouns_of_kinds(scores.grid.kinds)[0]}, so there is nothing to "
                f"switch off. **Reset** switches all {scores.grid.noun} on."
            )
        if removed_count and np.array_equal(suggested_kept, history.mask.kept):
            on_test()


def _pick_suggestion(scores: HeadScores) -> Suggestion:
    rules = usable_rules(scores)
    linked_rule = st.query_params.get("rule", "")
    if linked_rule in rules and "rule" not in st.session_state:
        set_widget("rule", linked_rule)  # links of earlier versions hold the rule's key
    rule = st.radio(
        f"Which {scores.grid.noun} to switch off",
        rules,
        format_func=lambda name: SUGGESTION_RULES[name].title,
        captions=[rule_meaning(name, scores.grid) for name in rules],
        key="rule",
        bind="query-params",
    )
    for remark in remarks_on_choice([scores], rule):
        st.caption(f"Caution: {plain(remark)}.")
    if rule == "bottom":
        size = scores.grid.size
        count = st.slider(
            f"k, {scores.grid.noun} to switch off",
            0,
            size,
            min(10, size),
            key="k",
            bind="query-params",
        )
        return Suggestion(rule, k=count)
    if rule == "threshold":
        factor, unit = display_unit(scores.unit)
        low = float(np.min(scores.values)) * factor
        high = float(np.max(scores.values)) * factor
        start = min(max(0.0, low), high)
        typed_threshold = st.number_input(
            f"Threshold ({unit})",
            value=start,
            step=(high - low) / 100 or 0.01,
            format="%.4g",
            key="threshold",
        )
        return Suggestion(rule, threshold=typed_threshold / factor)
    if rule == "harmful" and scores.p_values is not None:
        correction = st.radio(
            f"Corrected for testing many {scores.grid.noun}",
            list(CORRECTION_WORDS),
            format_func=lambda name: correction_words(name, scores.grid),
            key="correct",
            bind="query-params",
        )
        return Suggestion(rule, correction=correction)
    return Suggestion(rule)


def draw_head_list(history: MaskHistory) -> None:
    """The same switches as ordinary widgets."""
    grid = history.grid
    several_stacks = len(grid.stacks) > 1

    def label_of(head_index: int) -> str:
        player = grid.heads[head_index]
        return head_number(player, grid) if grid.has_only_heads else head_in_full(player, grid)

    # A new list for every state that did not come from it, applied only when the button is
    # pressed: on its own, a list also sends what it showed before, and would revert a click in
    # the grid.
    key = f"twin-heads-{history.stamp}"

    def switch_listed() -> None:
        kept_heads = np.ones(grid.size, bool)
        kept_heads[st.session_state[key]] = False
        history.set_by_hand(kept_heads)

    with st.expander("The same switches as a list", icon=":material/list:"):
        st.multiselect(
            f"{_capitalised(grid.noun)} that are off",
            list(range(grid.size)),
            default=np.flatnonzero(~history.mask.kept).tolist(),
            format_func=label_of,
            key=key,
            help=HEAD_NUMBER_HELP if grid.has_only_heads else None,
        )
        button("Switch exactly these off", key="twin-listed", on_press=switch_listed)
        _draw_layer_switches(history, several_stacks)


def _draw_layer_switches(history: MaskHistory, several_stacks: bool) -> None:
    heads_by_layer = _heads_by_layer(history.grid, several_stacks)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = st.selectbox("A whole layer", list(heads_by_layer), key="twin-layer", width=150)
        head_indices = heads_by_layer[layer]
        button_row(
            Button("Switch it off", "twin-layer-off", history.switch, (head_indices, False)),
            Button("Switch it on", "twin-layer-on", history.switch, (head_indices, True)),
        )
    counts_of_layers = []
    for name, head_indices in heads_by_layer.items():
        removed_count = int((~history.mask.kept[head_indices]).sum())
        if removed_count:
            counts_of_layers.append(f"{name} {removed_count}")
    st.caption(f"{_capitalised(history.grid.noun)} off: {', '.join(counts_of_layers) or 'none'}.")


def _capitalised(noun: str) -> str:
    """A noun as the first word of a heading."""
    return noun[0].upper() + noun[1:]


def _heads_by_layer(grid: HeadGrid, several_stacks: bool) -> dict[str, list[int]]:
    """Indices of the heads of each layer, by the layer's name.

    Args:
        grid: The heads.
        several_stacks: Whether the name of a layer says which stack it is in.
    """
    heads_by_layer: dict[str, list[int]] = {}
    for index, head in enumerate(grid.heads):
        name = f"layer {head.layer}"
        if several_stacks and grid.has_only_heads:
            name = f"{head.stack} {name}"
        elif several_stacks:
            several_bases = len({stack.base for stack in grid.stacks}) > 1
            name = f"{name}, {kind_title(head.stack, several_bases=several_bases).lower()}"
        heads_by_layer.setdefault(name, []).append(index)
    return heads_by_layer
