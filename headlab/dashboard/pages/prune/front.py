"""The Pareto front on the Prune page: requesting one, stored fronts, and their points as the current mask."""

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
from headlab.dashboard.pages.prune.front_form import SHOWN, FrontForm, draw_form
from headlab.dashboard.pages.prune.state import PruneState
from headlab.dashboard.pages.prune.stored_fronts import (
    HEADS,
    MEAN,
    PARAMETERS,
    WEAKEST,
    Front,
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
from headlab.dashboard.panels.history import History
from headlab.dashboard.panels.reproduction import commands_again
from headlab.dashboard.panels.shown_front import ShownFront
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
from headlab.studies import earlier_scores
from headlab.studies.pareto import CHOICE, CONFIRMED, FRONT, Point, chosen_mask, mask_at

FIGURE, PICKED = "front-figure", "front-point"

INTRO = (
    "Heads are removed in several orders; every intermediate model is measured on dev in each language, paired with "
    "the unpruned one. Only the chosen model is then measured on test."
)

READING = (
    "A click on a dot makes it the current mask and opens the first tab. Filled dots lie on the line: no other model "
    "here is as small and loses less. Their bar reaches down to the lower bound. All of it is measured on the examples "
    "that chose the heads, so it is optimistic. Drag to zoom in; double-click to see everything."
)

BOUNDS = (
    "The interval is two-sided. Where the text above says how many points may be lost at most, at 95 %, it takes the "
    "one-sided bound, which lies closer to the difference than the interval's lower end."
)


def draw_fronts(choice: Choice, now: History, fingerprint: str) -> None:
    """The section, a fragment: the question, and of this model's and task's fronts the one that fits it best."""
    PruneState.of_session().rerun_if_due()  # the mask has changed, or a job was started
    st.markdown(INTRO)
    form_job = draw_form(FrontForm(choice, now.grid.size))
    stored = stored_results(Report)
    fitting = [result for result in stored.results if choice.fits(result.record.spec)]
    fronts = matching_fronts(fitting, fingerprint, choice.task, choice.languages)
    if not fronts:
        st.caption("No front of this model and task is in the cache yet.")
        return
    by_key = {result.key: result for result in fronts}
    _follow(by_key, form_job, choice.languages, _requested(by_key))
    shown = pick_result("Front", by_key, lambda key: front_label(by_key[key]), SHOWN)
    _write_link(shown.key)
    if settings := other_settings(shown, form_job):
        st.info(
            "This front was made with other settings than those in the form above: "
            f"{plain('; '.join(settings))}."
        )
    front = _readable(shown, now)
    if front is not None:
        _show(front, now)


def _requested(by_key: Mapping[str, Result[Report]]) -> str | None:
    """Full key of the front that another page or the link asks for; None if none does. Warns if it is not there."""
    shown_front = ShownFront.of_session()
    linked = st.query_params.get(FRONT_PARAM, "")
    is_new = SHOWN not in st.session_state or linked not in shown_front.linked
    short = shown_front.requested or (linked if is_new else "")
    shown_front.requested = ""
    matches = [key for key in by_key if short and key.startswith(short)]
    sentence = None
    if short and not matches:
        sentence = (
            f"The link asks for front {short[:80]!r}, which does not exist for this model and task."
        )
    notify_of_link(SHOWN, sentence)
    return matches[0] if matches else None


def _write_link(key: str) -> None:
    """Keep a link that names a front true to the one that is shown. key: its full key."""
    short = key[:SHORT_KEY]
    if st.query_params.get(FRONT_PARAM, short) != short:
        st.query_params[FRONT_PARAM] = short
    ShownFront.of_session().linked.add(short)


def _follow(
    by_key: Mapping[str, Result[Report]],
    form_job: FrontJob,
    languages: Sequence[str],
    requested: str | None,
) -> None:
    """Show the front that fits the form best, until another is chosen by hand and for as long as the form stays.

    Args:
        by_key: The fronts by their keys; of equal ones the newest first.
        form_job: The form's job.
        languages: Codes of the chosen languages; a front on exactly these fits better than any other.
        requested: Key of the front that a link asks for, which is shown whatever fits.
    """

    def misfit(key: str) -> tuple[bool, int]:
        return not is_on_languages(by_key[key], languages), len(
            other_settings(by_key[key], form_job)
        )

    nearest = min(by_key, key=misfit)
    shown_front = ShownFront.of_session()
    changed = nearest != shown_front.nearest or SHOWN not in st.session_state
    if len(by_key) > 1 and (requested or changed):
        set_widget(SHOWN, requested or nearest)
    shown_front.nearest = nearest


def _readable(result: Result[Report], now: History) -> Front | None:
    try:
        return read_front(result, now.grid)
    except HeadlabError as error:
        st.warning(plain(f"The front cannot be shown: {error}."))
        return None


def _show(front: Front, now: History) -> None:
    st.markdown(f"**On {plain(languages_words(languages_of_front(front.result)))}:**")
    for note in filter(None, (*front.report.notes, earlier_scores(front.report.spec))):
        st.markdown(f"- {plain(note)}")
    left, right = st.columns([7, 5], gap="large")
    with left:
        _figure(front, now)
    with right:
        _list(front, now)
        _confirmed(front)
    with st.expander("More tables, and how it was made"):
        for name in (CHOICE, CONFIRMED, FRONT):
            show_table(front.report.table(name), front.result.key)
        show_commands(commands_again("report", front.result))


def _figure(front: Front, now: History) -> None:
    with st.container(horizontal=True):
        costs = [PARAMETERS, HEADS] if front.counted else [HEADS]
        cost = (
            st.radio("Against", costs, horizontal=True, key="front-cost")
            if len(costs) > 1
            else HEADS
        )
        value = st.radio("What is lost by", [WEAKEST, MEAN], horizontal=True, key="front-value")
    answer = front.answer
    chart = front_chart(
        front_dots(front, cost, value),
        "parameters kept, millions" if cost == PARAMETERS else cost,
        f"difference of the {value}, points",
        loss=front.loss,
        chosen=(answer.order, answer.removed),
    )
    key = f"{FIGURE}-{now.stamp}"  # a new one for every mask: a selected dot has been applied, and can be clicked again
    st.plotly_chart(
        plotly_figure(chart),
        key=key,
        config=PLOTLY_CONFIG,
        on_select=uninterrupted(lambda: take_clicked_point(key, front, now)),
        selection_mode="points",
        alt="Smaller models: what they keep against what they lose",
    )
    st.caption(READING)


def take_clicked_point(key: str, front: Front, now: History) -> None:
    """Make the clicked dot the current mask."""
    state = st.session_state.get(key) or {}
    points = (state.get("selection") or {}).get("points") or []
    given = next((p["customdata"] for p in points if p.get("customdata")), None)
    if given is None:
        return
    order, removed = (given["0"], given["1"]) if isinstance(given, dict) else given[:2]
    take_point(front, now, str(order), int(removed))


def take_point(front: Front, now: History, order: str, removed: int) -> None:
    """Make the mask of one point the current one."""
    answer = (order, removed) == (
        front.answer.order,
        front.answer.removed,
    )  # only the answer was measured on test
    mask = (
        chosen_mask(front.report, now.grid)
        if answer
        else mask_at(front.report, order, removed, now.grid)
    )
    now.put(mask.kept, mask.chosen)
    set_widget(PRUNE_TAB, PRUNE_TABS[0])  # where its figures are
    PruneState.of_session().rerun_is_due = True


def _confirmed(front: Front) -> None:
    """The answer's accuracy on test, in short."""
    st.markdown("##### The answer on test")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
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
    if front.answer.removed:
        st.caption(BOUNDS)


def _list(front: Front, now: History) -> None:
    """The same points as a list: for the keyboard, and where a dot is hard to hit."""
    offered = offered_points(front)
    key = f"{PICKED}-{front.result.key[:12]}"  # one per front: a point chosen in another is not valid here
    chosen: Point = st.selectbox(
        "The answer, and the best for their size",
        offered,
        index=offered.index(front.answer),
        key=key,
        format_func=lambda point: point_label(point, answer=point == front.answer),
    )
    button(
        "Make it the current mask",
        kind="primary",
        icon="check",
        key="front-put",
        on_press=take_point,
        args=(front, now, chosen.order, chosen.removed),
    )
