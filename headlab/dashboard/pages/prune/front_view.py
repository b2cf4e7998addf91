"""A stored front on the Prune page: its chart, the pinned model beside it, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from headlab.charts.front import front_chart
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import languages_words, plain, with_minus_signs
from headlab.dashboard.pages.prune.pinned import (
    draw_pinned,
    mask_of_point,
    pin_point,
    pinned_point,
)
from headlab.dashboard.pages.prune.point_words import (
    WholeModel,
    cost_label,
    cost_title,
    difference_title,
    offered_costs,
)
from headlab.dashboard.pages.prune.savings import measurements_by_mask
from headlab.dashboard.pages.prune.stored_fronts import (
    MEAN_OF_LANGUAGES,
    WEAKEST_LANGUAGE,
    StoredFront,
    confirmed_table,
    front_dots,
    languages_of_front,
)
from headlab.dashboard.panels.masks import MaskHistory
from headlab.dashboard.panels.stored import commands_again
from headlab.dashboard.widgets import (
    PLOTLY_CONFIG,
    show_commands,
    show_table,
    uninterrupted,
    with_p_values,
)
from headlab.plots.drawing import plotly_figure
from headlab.studies import earlier_scores_sentence
from headlab.studies.pareto import CHOICE_TABLE, CONFIRMED_TABLE, FRONT_TABLE, Point
from headlab.worker import JobRow

CHART = "front-figure"
"""Start of the widget key of the chart."""

READING = (
    "A click on a dot pins that model: it is described beside the chart. Filled dots lie on the "
    "line: no other model here is as small and loses less. Their bar reaches down to the lower "
    "bound. All of it is measured on the examples that chose the {}, so it is optimistic. Drag to "
    "zoom in; double-click to see everything."
)

BOUNDS = (
    "The interval is two-sided. Where the text above says how many points may be lost at most, at "
    "95 %, it takes the one-sided bound, which lies closer to the difference than the interval's "
    "lower end."
)


def draw_front(
    front: StoredFront,
    whole: WholeModel,
    history: MaskHistory,
    choice: Choice,
    jobs: Sequence[JobRow],
) -> None:
    """Draw a stored front: its answer in words, the chart, the pinned model, and its tables.

    Args:
        front: The front.
        whole: The untouched model.
        history: Of the mask of this model, which a point becomes.
        choice: The sidebar's.
        jobs: Jobs that measure the speed of a mask.
    """
    st.markdown(f"**On {plain(languages_words(languages_of_front(front.result)))}:**")
    for note in filter(None, (*front.report.notes, earlier_scores_sentence(front.report.spec))):
        st.markdown(f"- {plain(with_minus_signs(note))}")
    chart_column, answer_column = st.columns([7, 5], gap="large")
    with chart_column:
        _draw_chart(front, whole, _times_of_points(front, history, choice, jobs))
    with answer_column:
        draw_pinned(front, whole, history, choice, jobs)
    _draw_test_accuracy(front)
    with st.expander("More tables, and how it was made"):
        for name in (CHOICE_TABLE, CONFIRMED_TABLE, FRONT_TABLE):
            show_table(front.report.table(name), front.result.key)
        show_commands(commands_again("report", front.result))


def _times_of_points(
    front: StoredFront, history: MaskHistory, choice: Choice, jobs: Sequence[JobRow]
) -> dict[Point, str]:
    """What is known of the models' speed, in words, for those that were timed.

    Args:
        front: The front that is shown.
        history: Of the mask of this model.
        choice: The sidebar's.
        jobs: Jobs that measure the speed of a mask.
    """
    measurements = measurements_by_mask(jobs, choice.model, choice.task, choice.languages)
    if not measurements:
        return {}
    times = {}
    for point in front.points:
        measurement = measurements.get(mask_of_point(front, point, history).digest)
        if measurement is not None:
            times[point] = "\n".join(measurement.time_words())
    return times


def _draw_chart(front: StoredFront, whole: WholeModel, times: Mapping[Point, str]) -> None:
    costs = offered_costs(whole, has_parameters=front.has_parameters)
    with st.container(horizontal=True):
        cost = costs[0]
        if len(costs) > 1:
            cost = st.radio(
                "Against",
                costs,
                horizontal=True,
                key="front-cost",
                format_func=lambda name: cost_label(name, whole.noun),
            )
        loss_measure = WEAKEST_LANGUAGE
        languages = languages_of_front(front.result)
        if len(languages) > 1:
            loss_measure = st.radio(
                "What is lost by",
                [WEAKEST_LANGUAGE, MEAN_OF_LANGUAGES],
                horizontal=True,
                key="front-value",
            )
    answer = front.answer
    pinned = pinned_point(front)
    chart = front_chart(
        front_dots(front, cost, loss_measure, whole, times),
        cost_title(cost, whole),
        difference_title(loss_measure, languages),
        loss=front.loss,
        chosen=(answer.order, answer.heads_removed),
        pinned=(pinned.order, pinned.heads_removed),
    )
    # A new key for every pinned model: a dot that was clicked can be clicked again.
    key = f"{CHART}-{pinned.order}-{pinned.heads_removed}"
    st.plotly_chart(
        plotly_figure(chart),
        key=key,
        config=PLOTLY_CONFIG,
        on_select=uninterrupted(lambda: pin_clicked_point(key, front)),
        selection_mode="points",
        alt="Smaller models: what they keep against what they lose",
    )
    st.caption(READING.format(whole.noun))


def pin_clicked_point(key: str, front: StoredFront) -> None:
    """Pin the model whose dot is clicked.

    Args:
        key: Widget key of the chart.
        front: The front that it shows.
    """
    event = st.session_state.get(key) or {}
    points = (event.get("selection") or {}).get("points") or []
    custom_data = next((point["customdata"] for point in points if point.get("customdata")), None)
    if custom_data is None:
        return
    if isinstance(custom_data, dict):
        order = custom_data["0"]
        removed_count = custom_data["1"]
    else:
        order, removed_count = custom_data[:2]
    pin_point(front, str(order), int(removed_count))


def _draw_test_accuracy(front: StoredFront) -> None:
    """The answer's accuracy on test, in short."""
    st.markdown("##### The answer on test")
    number = st.column_config.NumberColumn
    text = st.column_config.TextColumn
    columns = {
        "Language": text(pinned=True),
        "Accuracy %": number(format="%.1f"),
        "Difference": number("Difference, points", help="On the same examples"),
        "95 % interval": text(help="Of the difference, paired bootstrap, points; two-sided"),
        "p of the loss": number(help="One-sided, of more being lost than was allowed"),
    }
    st.dataframe(
        with_p_values(confirmed_table(front), {"Difference": "+.1f"}),
        hide_index=True,
        column_config=columns,
        placeholder="–",
    )
    if front.answer.heads_removed:
        st.caption(BOUNDS)
