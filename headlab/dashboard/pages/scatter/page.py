"""All heads by any two of their measures: what stands out, and what to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from headlab.charts.head_measures import HeadMeasure
from headlab.charts.scatter import (
    HeadGroup,
    groups_by_role,
    groups_by_sign,
    known_in_both,
    one_group,
    scatter_chart,
)
from headlab.core import HEAD_COLUMNS, HEAD_FORMATS, Cell, JsonRecord, Table
from headlab.dashboard.frame import Choice, draw_no_language, page, scores_of
from headlab.dashboard.names import count_words, head_words, language_title, plain
from headlab.dashboard.pages.scatter.chosen import (
    ADD,
    CHART,
    REMOVE,
    REPLACE,
    WAY,
    WAYS,
    ChosenHeads,
    choose_by_chart,
    choose_by_ranges,
    chosen_heads_of,
    chosen_way,
    draw_ranges,
    write_link,
)
from headlab.dashboard.pages.scatter.measures import (
    first_axes,
    pick_measure,
    report_of_colours,
    scores_of_colours,
)
from headlab.dashboard.panels.heads import (
    HeadData,
    draw_head_actions,
    head_data_of,
    ranking_sentence,
)
from headlab.dashboard.panels.jobs import offer_missing_scores
from headlab.dashboard.widgets import button, draw_figure, keep_known_choice, show_table
from headlab.plots.drawing import plotly_figure

BY_SIGN = "sign"
BY_ROLE = "role"
ALIKE = "none"


def pick_groups(data: HeadData, languages: Sequence[str]) -> tuple[list[HeadGroup], str]:
    """Draw the choice of colours; returns the groups of heads, and what they rest on in words.

    Args:
        data: What is stored of the heads.
        languages: Codes of the axes' languages.
    """
    scores = scores_of_colours(data, languages)
    report = report_of_colours(data, languages)
    options = [ALIKE]
    if report is not None:
        options.insert(0, BY_ROLE)
    if scores is not None:
        options.insert(0, BY_SIGN)
    keep_known_choice("colour", "colours", options)
    colour = st.radio(
        "Colours", options, horizontal=True, format_func=str, key="colour", bind="query-params"
    )
    if colour == BY_SIGN and scores is not None:
        words = (
            f"Colours: a head helps or harms if its interval by {scores.method} in "
            f"{language_title(scores.language)} excludes 0."
        )
        return groups_by_sign(scores), words
    if colour == BY_ROLE and report is not None:
        words = f"Colours: the clearest role on {language_title(report.language)} sentences."
        return groups_by_role(report.roles, data.grid.heads), words
    return one_group(data.grid.size), ""


def table_of_chosen(
    data: HeadData,
    x: HeadMeasure,
    y: HeadMeasure,
    groups: Sequence[HeadGroup],
    indices: Sequence[int],
) -> Table:
    """The chosen heads in numbers, the highest value on the upright axis first.

    Args:
        data: What is stored of the heads.
        x: The measure on the horizontal axis.
        y: That on the upright axis.
        groups: All heads, by how they are drawn.
        indices: Of the chosen heads.
    """
    group_by_head = {}
    for group in groups:
        for index in group.head_indices.tolist():
            group_by_head[index] = group.name
    measures: list[HeadMeasure] = []
    for measure in (x, y):
        titles = (*HEAD_COLUMNS, *(other.title for other in measures))
        if measure.title not in titles:
            measures.append(measure)
    rows: list[tuple[Cell, ...]] = []
    for index in sorted(indices, key=partial(_place_of, y)):
        numbers: list[Cell] = []
        for measure in measures:
            value = float(measure.values[index])
            numbers.append(value if np.isfinite(value) else None)
        head = data.grid.heads[index]
        rows.append((*head, *numbers, group_by_head.get(index, "")))
    return Table(
        "chosen-heads",
        f"{count_words(len(indices), 'head')} chosen",
        (*HEAD_COLUMNS, *(measure.title for measure in measures), "group"),
        (*HEAD_FORMATS, *(measure.number_format for measure in measures), ""),
        tuple(rows),
        (),
    )


def _place_of(measure: HeadMeasure, head_index: int) -> tuple[float, int]:
    """What heads are sorted by: the highest value first, those without one last."""
    value = float(measure.values[head_index])
    return (-value if np.isfinite(value) else np.inf), head_index


def draw_chosen(
    choice: Choice,
    data: HeadData,
    chosen: ChosenHeads,
    x: HeadMeasure,
    y: HeadMeasure,
    groups: Sequence[HeadGroup],
) -> None:
    """The chosen heads, and what can be done with them.

    Args:
        choice: The sidebar's.
        data: What is stored of the heads.
        chosen: The chosen heads.
        x: The measure on the horizontal axis.
        y: That on the upright axis.
        groups: All heads, by how they are drawn.
    """
    if chosen.problem and chosen.problem_axes in ((), (x.title, y.title)):
        st.warning(plain(chosen.problem))
    if not chosen.indices:
        st.markdown(
            "**Draw around heads to choose them.** Then they can be switched off, looked at or "
            "saved as a mask."
        )
        return
    st.radio("The next area", WAYS, horizontal=True, key=WAY)
    origin: JsonRecord = {"chosen_in_scatter": chosen.how}
    draw_head_actions(
        choice,
        data.scores,
        [data.grid.heads[index] for index in chosen.indices],
        data.spec,
        origin,
        key="scatter-actions",
        colour_language=y.language if y.language in choice.languages else "",
    )
    button("Choose none", key="scatter-none", on_press=chosen.clear, kind="tertiary", icon="close")
    show_table(table_of_chosen(data, x, y, groups, chosen.indices), "scatter")


def draw_range_choice(x: HeadMeasure, y: HeadMeasure) -> None:
    """The choice of heads by two ranges, without a pointer.

    Args:
        x: The measure on the horizontal axis.
        y: That on the upright axis.
    """
    with st.expander("Choose by two ranges", icon=":material/tune:"):
        indices = draw_ranges(x, y)
        verb = {REPLACE: "Choose", ADD: "Add", REMOVE: "Take away"}[chosen_way()]
        label = f"{verb} the {count_words(len(indices), 'head')} in both ranges"
        button(
            label,
            key="scatter-ranges",
            on_press=choose_by_ranges,
            args=(indices, x, y),
            disabled=not indices,
        )


def draw_scatter(choice: Choice, data: HeadData) -> None:
    """The page where something is stored of the heads.

    Args:
        choice: The sidebar's.
        data: What is stored.
    """
    grid = data.grid
    first_x, first_y = first_axes(choice, data)
    x_place, y_place = st.columns(2)
    with x_place:
        x = pick_measure(data, "across", "Across", *first_x)
    with y_place:
        y = pick_measure(data, "upwards", "Upwards", *first_y)
    groups, colour_words = pick_groups(data, (y.language, x.language))
    chosen = chosen_heads_of(data.fingerprint, grid)
    with st.container(key="scatter-and-chosen"):
        chart_place, chosen_place = st.columns([3, 2], gap="large")
    has_points = bool(known_in_both(x, y).any())
    with chart_place:
        if has_points:
            draw_chart(data, chosen, x, y, groups)
            st.caption(plain(" ".join(filter(None, (colour_words, *words_on_pair(x, y))))))
        else:
            st.info("No head has both measures. Choose another one, or another language.")
    with chosen_place:
        draw_chosen(choice, data, chosen, x, y, groups)
        if has_points:
            draw_range_choice(x, y)
        for measure in (x, y):
            if measure.basis:
                st.caption(plain(f"{measure.title}: {measure.basis}."))
    write_link(chosen, grid)


def draw_chart(
    data: HeadData,
    chosen: ChosenHeads,
    x: HeadMeasure,
    y: HeadMeasure,
    groups: Sequence[HeadGroup],
) -> None:
    """The scatter itself, in which areas can be drawn.

    Args:
        data: What is stored of the heads.
        chosen: The chosen heads, which stand out.
        x: The measure on the horizontal axis.
        y: That on the upright axis.
        groups: All heads, by how they are drawn.
    """
    names = [head_words(head, data.grid) for head in data.grid.heads]
    chart = scatter_chart(x, y, groups, names, selected_indices=set(chosen.indices))
    figure = plotly_figure(chart)
    # Streamlit keeps the selection of a chart that did not change, so each event makes a new one.
    figure.update_layout(meta={"event": chosen.event_number})
    draw_figure(
        figure,
        "scatter",
        key=CHART,
        alt=f"All heads by {x.title} and {y.title}; a point per head",
        on_area=partial(choose_by_chart, x, y),
    )


def words_on_pair(x: HeadMeasure, y: HeadMeasure) -> list[str]:
    """How alike two measures rank the heads, and how many heads lack one of them.

    Args:
        x: The measure on the horizontal axis.
        y: That on the upright axis; some head has both.
    """
    is_known = known_in_both(x, y)
    sentences = []
    unknown_count = int((~is_known).sum())
    if unknown_count:
        sentences.append(
            f"{count_words(unknown_count, 'head')} left out: one of the two values is not known."
        )
    if x.title != y.title:
        both_values = np.stack([x.ranked_values, y.ranked_values])
        is_ranked = is_known & np.isfinite(both_values).all(axis=0)
        unsampled_count = int((is_known & ~is_ranked).sum())
        if unsampled_count:
            sentences.append(
                f"ρ leaves out {count_words(unsampled_count, 'head')} without a sample."
            )
        both_values = both_values[:, is_ranked]
        sentences.append(ranking_sentence(both_values))
        if x.sampled_values is not None or y.sampled_values is not None:
            sentences.append("ρ is of the means of samples; the points lean on slopes too.")
    return sentences


def draw_page() -> None:
    """Draw the page."""
    with page("scatter") as choice:
        data = head_data_of(choice)
        if not choice.languages:
            draw_no_language(choice)
        elif data is None:
            st.info(
                plain(
                    f"Nothing is cached of the heads of {choice.model} yet. Scores make the first "
                    "measures."
                )
            )
            offer_missing_scores(choice, scores_of(choice).missing)
        else:
            draw_scatter(choice, data)
