"""The Pareto front on the Prune page: the form, stored fronts, and points as masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from headlab.charts.front import front_chart
from headlab.core import HeadlabError, Report
from headlab.dashboard.frame import Choice, stored_results
from headlab.dashboard.names import (
    FRONT_PARAM,
    PRUNE_TAB,
    PRUNE_TABS,
    SHORT_KEY,
    languages_words,
    plain,
)
from headlab.dashboard.pages.prune.front_form import SHOWN_FRONT, FrontForm, draw_form
from headlab.dashboard.pages.prune.state import PruneState
from headlab.dashboard.pages.prune.stored_fronts import (
    HEADS_KEPT,
    MEAN_OF_LANGUAGES,
    PARAMETERS_KEPT,
    WEAKEST_LANGUAGE,
    StoredFront,
    confirmed_table,
    front_dots,
    front_label,
    is_on_languages,
    languages_of_front,
    matching_fronts,
    offered_points,
    other_settings,
    point_label,
    read_front,
)
from headlab.dashboard.panels.masks import MaskHistory
from headlab.dashboard.panels.stored import ShownFront, commands_again
from headlab.dashboard.widgets import (
    PLOTLY_CONFIG,
    button,
    notify_of_link,
    pick_result,
    set_widget,
    show_commands,
    show_table,
    uninterrupted,
    with_p_values,
)
from headlab.jobs.table import FrontJob
from headlab.plots.drawing import plotly_figure
from headlab.results import Result
from headlab.studies import earlier_scores_sentence
from headlab.studies.pareto import (
    CHOICE_TABLE,
    CONFIRMED_TABLE,
    FRONT_TABLE,
    Point,
    chosen_mask,
    mask_at,
)

CHART = "front-figure"
"""Start of the widget key of the chart."""
POINT_LIST = "front-point"
"""Start of the widget key of the list of points."""

INTRO = (
    "Heads are removed in several orders; every intermediate model is measured on dev in each "
    "language, paired with the unpruned one. Only the chosen model is then measured on test."
)

READING = (
    "A click on a dot makes it the current mask and opens the first tab. Filled dots lie on the "
    "line: no other model here is as small and loses less. Their bar reaches down to the lower "
    "bound. All of it is measured on the examples that chose the heads, so it is optimistic. Drag "
    "to zoom in; double-click to see everything."
)

BOUNDS = (
    "The interval is two-sided. Where the text above says how many points may be lost at most, at "
    "95 %, it takes the one-sided bound, which lies closer to the difference than the interval's "
    "lower end."
)


def draw_fronts(choice: Choice, history: MaskHistory, fingerprint: str) -> None:
    """The section, a fragment: the question, and the front that fits it best.

    Fronts are of this model and task.

    Args:
        choice: The sidebar's.
        history: Of the mask of its model, which a point becomes.
        fingerprint: Of the model's weights.
    """
    PruneState.of_session().rerun_if_due()  # the mask has changed, or a job was started
    st.markdown(INTRO)
    form_job = draw_form(FrontForm(choice, history.grid.size))
    stored_reports = stored_results(Report)
    fitting = [
        result for result in stored_reports.results if choice.has_classes_of(result.record.spec)
    ]
    fronts = matching_fronts(fitting, fingerprint, choice.task, choice.languages)
    if not fronts:
        st.caption("No front of this model and task is in the cache yet.")
        return
    results_by_key = {result.key: result for result in fronts}
    _choose_nearest_front(
        results_by_key, form_job, choice.languages, _requested_front(results_by_key)
    )
    shown_result = pick_result(
        "Front", results_by_key, lambda key: front_label(results_by_key[key]), SHOWN_FRONT
    )
    _write_link(shown_result.key)
    settings = other_settings(shown_result, form_job)
    if settings:
        st.info(
            "This front was made with other settings than those in the form above: "
            f"{plain('; '.join(settings))}."
        )
    front = _front_or_warning(shown_result, history)
    if front is not None:
        _draw_front(front, history)


def _requested_front(results_by_key: Mapping[str, Result[Report]]) -> str | None:
    """Full key of the front that another page or the link asks for; None if none does.

    Warns if it is not there.
    """
    shown_front = ShownFront.of_session()
    linked_start = st.query_params.get(FRONT_PARAM, "")
    is_new = SHOWN_FRONT not in st.session_state or linked_start not in shown_front.linked
    key_start = shown_front.requested or (linked_start if is_new else "")
    shown_front.requested = ""
    matches = [key for key in results_by_key if key_start and key.startswith(key_start)]
    sentence = None
    if key_start and not matches:
        sentence = (
            f"The link asks for front {key_start[:80]!r}, which does not exist for this model and "
            "task."
        )
    notify_of_link(SHOWN_FRONT, sentence)
    return matches[0] if matches else None


def _write_link(key: str) -> None:
    """Keep a link that names a front true to the one that is shown.

    Args:
        key: Full key of the front that is shown.
    """
    key_start = key[:SHORT_KEY]
    if st.query_params.get(FRONT_PARAM, key_start) != key_start:
        st.query_params[FRONT_PARAM] = key_start
    ShownFront.of_session().linked.add(key_start)


def _choose_nearest_front(
    results_by_key: Mapping[str, Result[Report]],
    form_job: FrontJob,
    languages: Sequence[str],
    requested_key: str | None,
) -> None:
    """Show the front that fits the form best, until another is chosen by hand.

    A front chosen by hand stays as long as the form does.

    Args:
        results_by_key: The fronts by their keys; of equal ones the newest first.
        form_job: The form's job.
        languages: Codes of the chosen languages; a front on exactly these fits better than any
            other.
        requested_key: Of the front that a link asks for, which is shown whatever fits.
    """

    def misfit(key: str) -> tuple[bool, int]:
        result = results_by_key[key]
        return not is_on_languages(result, languages), len(other_settings(result, form_job))

    nearest_key = min(results_by_key, key=misfit)
    shown_front = ShownFront.of_session()
    nearest_is_new = nearest_key != shown_front.nearest or SHOWN_FRONT not in st.session_state
    if len(results_by_key) > 1 and (requested_key or nearest_is_new):
        set_widget(SHOWN_FRONT, requested_key or nearest_key)
    shown_front.nearest = nearest_key


def _front_or_warning(result: Result[Report], history: MaskHistory) -> StoredFront | None:
    try:
        return read_front(result, history.grid)
    except HeadlabError as error:
        st.warning(plain(f"The front cannot be shown: {error}."))
        return None


def _draw_front(front: StoredFront, history: MaskHistory) -> None:
    st.markdown(f"**On {plain(languages_words(languages_of_front(front.result)))}:**")
    for note in filter(None, (*front.report.notes, earlier_scores_sentence(front.report.spec))):
        st.markdown(f"- {plain(note)}")
    chart_column, answer_column = st.columns([7, 5], gap="large")
    with chart_column:
        _draw_chart(front, history)
    with answer_column:
        _draw_point_list(front, history)
        _draw_test_accuracy(front)
    with st.expander("More tables, and how it was made"):
        for name in (CHOICE_TABLE, CONFIRMED_TABLE, FRONT_TABLE):
            show_table(front.report.table(name), front.result.key)
        show_commands(commands_again("report", front.result))


def _draw_chart(front: StoredFront, history: MaskHistory) -> None:
    with st.container(horizontal=True):
        cost = HEADS_KEPT
        if front.has_parameters:
            costs = [PARAMETERS_KEPT, HEADS_KEPT]
            cost = st.radio("Against", costs, horizontal=True, key="front-cost")
        loss_measure = st.radio(
            "What is lost by",
            [WEAKEST_LANGUAGE, MEAN_OF_LANGUAGES],
            horizontal=True,
            key="front-value",
        )
    answer = front.answer
    chart = front_chart(
        front_dots(front, cost, loss_measure),
        "parameters kept, millions" if cost == PARAMETERS_KEPT else cost,
        f"difference of the {loss_measure}, points",
        loss=front.loss,
        chosen=(answer.order, answer.heads_removed),
    )
    # A new key for every mask: a selected dot has been applied, and can be clicked again.
    key = f"{CHART}-{history.stamp}"
    st.plotly_chart(
        plotly_figure(chart),
        key=key,
        config=PLOTLY_CONFIG,
        on_select=uninterrupted(lambda: take_clicked_point(key, front, history)),
        selection_mode="points",
        alt="Smaller models: what they keep against what they lose",
    )
    st.caption(READING)


def take_clicked_point(key: str, front: StoredFront, history: MaskHistory) -> None:
    """Make the clicked dot the current mask.

    Args:
        key: Widget key of the chart.
        front: The front that it shows.
        history: Of the mask.
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
    take_point(front, history, str(order), int(removed_count))


def take_point(front: StoredFront, history: MaskHistory, order: str, removed_count: int) -> None:
    """Make the mask of one point the current one.

    Args:
        front: The front that the point is of.
        history: Of the mask.
        order: Key of the order in which heads are removed.
        removed_count: How many of its first heads are removed.
    """
    if (order, removed_count) == (front.answer.order, front.answer.heads_removed):
        mask = chosen_mask(front.report, history.grid)  # only the answer was measured on test
    else:
        mask = mask_at(front.report, order, removed_count, history.grid)
    history.set_mask(mask.kept, mask.chosen)
    set_widget(PRUNE_TAB, PRUNE_TABS[0])  # where its figures are
    PruneState.of_session().rerun_is_due = True


def _draw_test_accuracy(front: StoredFront) -> None:
    """The answer's accuracy on test, in short."""
    st.markdown("##### The answer on test")
    number = st.column_config.NumberColumn
    text = st.column_config.TextColumn
    columns = {
        "Language": text(pinned=True),
        "Accuracy %": number(format="%.1f"),
        "Difference": number(format="%+.1f", help="Points, on the same examples"),
        "95 % interval": text(help="Of the difference, paired bootstrap, points; two-sided"),
        "p of the loss": number(help="One-sided, of more being lost than was allowed"),
    }
    st.dataframe(
        with_p_values(confirmed_table(front)),
        hide_index=True,
        column_config=columns,
        placeholder="–",
    )
    if front.answer.heads_removed:
        st.caption(BOUNDS)


def _draw_point_list(front: StoredFront, history: MaskHistory) -> None:
    """Draw the answer and the best points as a list.

    It serves the keyboard, and points whose dot is hard to hit.
    """
    points = offered_points(front)
    # One list per front: a point chosen in another front is not valid here.
    key = f"{POINT_LIST}-{front.result.key[:12]}"
    selected_point: Point = st.selectbox(
        "The answer, and the best for their size",
        points,
        index=points.index(front.answer),
        key=key,
        format_func=lambda point: point_label(point, is_answer=point == front.answer),
    )
    button(
        "Make it the current mask",
        kind="primary",
        icon="check",
        key="front-put",
        on_press=take_point,
        args=(front, history, selected_point.order, selected_point.heads_removed),
    )
