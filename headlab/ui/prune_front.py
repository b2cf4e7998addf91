"""The front on the Prune page: asking for one, and its figure, whose points become the present mask."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.errors import HeadlabError
from headlab.plots.lines import front_figure
from headlab.store import ReportResult
from headlab.studies.pareto import CHOICE, CONFIRMED, FRONT, Point, chosen_mask, mask_at
from headlab.ui import experiments_store
from headlab.ui.experiments_report import show
from headlab.ui.figures import CONFIG
from headlab.ui.history import History
from headlab.ui.presses import button, uninterrupted
from headlab.ui.prune_front_ask import ask
from headlab.ui.prune_front_read import (
    HEADS,
    MEAN,
    PARAMETERS,
    WEAKEST,
    Front,
    command,
    confirmed,
    dots_of,
    label,
    matching,
    offers,
    read_front,
    words,
)
from headlab.ui.prune_worth import AGAIN
from headlab.ui.shell import Choice

FIGURE, PICKED = "front-figure", "front-point"
INTRO = (
    "Heads leave in several orders; every model on the way is judged on dev in each language, paired with the unpruned "
    "one. Of all of them the answer alone is then judged on test."
)
READING = (
    "A click on a dot makes it the present mask. Filled dots lie on the line: no other model here is as small and "
    "loses less. Their bar reaches down to the lower bound. All of it is on the examples that chose the heads, which "
    "flatters. Drag to look closer; a double click shows everything."
)


def draw(choice: Choice, now: History, fingerprint: str) -> None:
    """The section: the question, and the newest front of this model, task and these languages; a fragment's own."""
    if st.session_state.pop(AGAIN, False):
        st.rerun()  # the mask has changed, or a job was asked for: the whole page follows
    st.subheader("Find a smaller model", anchor="smaller")
    st.markdown(INTRO)
    ask(choice, now.grid.size)
    listing = experiments_store.listing()
    found = matching(listing.results, fingerprint, choice.task, choice.languages)
    if not found:
        st.caption("No front of this model and task is in the cache yet.")
        return
    front = _readable(_pick(found), now)
    if front is not None:
        _show(front, now)


def _pick(found: Sequence[ReportResult]) -> ReportResult:
    """The front to show; a choice where there are several."""
    if len(found) == 1:
        return found[0]
    by_key = {result.key: result for result in found}
    if st.session_state.get("front-shown") not in by_key:
        st.session_state.pop("front-shown", None)
    key = st.selectbox("Front", list(by_key), format_func=lambda k: label(by_key[k]), key="front-shown")
    return by_key[key]


def _readable(result: ReportResult, now: History) -> Front | None:
    try:
        return read_front(result, now.grid)
    except HeadlabError as error:
        st.warning(f"The front cannot be shown: {error}.")
        return None


def _show(front: Front, now: History) -> None:
    for note in front.report.notes:
        st.markdown(f"- {note}")
    left, right = st.columns([7, 5], gap="large")
    with left:
        _figure(front, now)
    with right:
        _list(front, now)
        _confirmed(front)
    with st.expander("More tables, and how it was made"):
        for name in (CHOICE, CONFIRMED, FRONT):
            show(front.report.table(name), front.result.key)
        st.caption("The same from a terminal; what is in the cache is not computed again:")
        st.code(command(experiments_store.job_spec(front.report.spec)), language="bash", wrap_lines=True)


def _figure(front: Front, now: History) -> None:
    with st.container(horizontal=True):
        costs = [PARAMETERS, HEADS] if front.counted else [HEADS]
        cost = st.radio("Against", costs, horizontal=True, key="front-cost") if len(costs) > 1 else HEADS
        value = st.radio("What is lost by", [WEAKEST, MEAN], horizontal=True, key="front-value")
    answer = front.answer
    fig = front_figure(
        dots_of(front, cost, value), "parameters kept, millions" if cost == PARAMETERS else cost,
        f"difference of the {value}, points", loss=front.loss, chosen=(answer.order, answer.removed),
    )  # fmt: skip
    key = f"{FIGURE}-{now.stamp}"  # a new one for every mask: what was selected is taken, and may be clicked again
    st.plotly_chart(
        fig, key=key, config=CONFIG, on_select=uninterrupted(lambda: picked(key, front, now)), selection_mode="points",
        alt="Smaller models: what they keep against what they lose",
    )  # fmt: skip
    st.caption(READING)


def picked(key: str, front: Front, now: History) -> None:
    """Make the dot that was clicked the present mask."""
    state = st.session_state.get(key) or {}
    points = (state.get("selection") or {}).get("points") or []
    given = next((p["customdata"] for p in points if p.get("customdata")), None)
    if given is None:
        return
    order, removed = (given["0"], given["1"]) if isinstance(given, dict) else given[:2]
    put(front, now, str(order), int(removed))


def put(front: Front, now: History, order: str, removed: int) -> None:
    """Make the mask of one point the present one."""
    answer = (order, removed) == (front.answer.order, front.answer.removed)  # it alone was judged on test
    mask = chosen_mask(front.report, now.grid) if answer else mask_at(front.report, order, removed, now.grid)
    now.put(mask.kept, mask.chosen)
    st.session_state[AGAIN] = True


def _confirmed(front: Front) -> None:
    """What the answer does on test, in short."""
    st.markdown("##### The answer on test")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns = {
        "Language": text(pinned=True), "Accuracy %": number(format="%.1f"),
        "Difference": number(format="%+.1f", help="Points, on the same examples"),
        "95 % interval": text(help="Of the difference, paired bootstrap, points"),
        "p of the loss": number(format="%.3f", help="One-sided, of more being lost than was allowed"),
    }  # fmt: skip
    st.dataframe(confirmed(front), hide_index=True, column_config=columns, placeholder="–")


def _list(front: Front, now: History) -> None:
    """The same points as a list: for the keyboard, and where a dot is hard to hit."""
    offered = offers(front)
    key = f"{PICKED}-{front.result.key[:12]}"  # one a front: what was chosen of another is no choice here
    chosen: Point = st.selectbox(
        "The answer, and the best for their size", offered, index=offered.index(front.answer), key=key,
        format_func=lambda point: words(point, answer=point == front.answer),
    )  # fmt: skip
    button(
        "Make it the present mask", kind="primary", icon="check", key="front-put", on_press=put,
        args=(front, now, chosen.order, chosen.removed),
    )  # fmt: skip
