"""The model of a front that is pinned: the list, what is known of it, and what can be done."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from headlab.dashboard.frame import Choice
from headlab.dashboard.names import POINT_PARAM, PRUNE_TAB, PRUNE_TABS, plain
from headlab.dashboard.pages.prune.front_question import point_of_text, point_text
from headlab.dashboard.pages.prune.point_words import (
    WholeModel,
    differences_words,
    heads_words,
    point_label,
)
from headlab.dashboard.pages.prune.savings import draw_speed, newest_measured
from headlab.dashboard.pages.prune.state import PruneState
from headlab.dashboard.pages.prune.stored_fronts import StoredFront, offered_points
from headlab.dashboard.panels.masks import MaskHistory, offer_written_model
from headlab.dashboard.widgets import button, notify_of_link, set_widget
from headlab.masks import Mask
from headlab.studies.pareto import Point, chosen_mask, emptied_sentences, mask_at
from headlab.worker import JobRow

POINT_LIST = "front-point"
"""Start of the widget key of the list of points."""


def point_list_key(front: StoredFront) -> str:
    """Widget key of the list of points: one per front, as another one has other points."""
    return f"{POINT_LIST}-{front.result.key[:12]}"


def pinned_point(front: StoredFront) -> Point:
    """The model that is pinned: by a click, from the list, or by the link; else the answer.

    A link's model is taken up once, and one that the front does not have is named.

    Args:
        front: The front that is shown.
    """
    key = point_list_key(front)
    linked_points = PruneState.of_session().linked_points
    linked_text = st.query_params.get(POINT_PARAM, "")
    link = (front.result.key, linked_text)
    is_new = all(text != linked_text for _, text in linked_points)
    is_to_restore = link in linked_points and key not in st.session_state  # the page was left
    sentence = None
    if linked_text and (is_new or is_to_restore):
        linked_points.add(link)
        linked_point = point_of_text(linked_text, front.points)
        if linked_point is not None:
            set_widget(key, linked_point)
        else:
            sentence = f"The link asks for model {linked_text[:80]!r}, which this front lacks."
    notify_of_link(POINT_PARAM, sentence)
    point = st.session_state.get(key)
    return point if point in front.points else front.answer


def pin_point(front: StoredFront, order: str, removed_count: int) -> None:
    """Pin a model of the front.

    Args:
        front: The front.
        order: Key of the order in which heads, or other players, are removed.
        removed_count: How many of its first ones are removed.
    """
    set_widget(point_list_key(front), front.point(order, removed_count))


def draw_pinned(
    front: StoredFront,
    whole: WholeModel,
    history: MaskHistory,
    choice: Choice,
    jobs: Sequence[JobRow],
) -> None:
    """The list of models, the pinned one in words, and what can be done with it.

    Args:
        front: The front that is shown.
        whole: The untouched model.
        history: Of the mask, which the model can become.
        choice: The sidebar's.
        jobs: Jobs that measure the speed of a mask.
    """
    point = _pick_point(front)
    _write_link(front, point)
    mask = mask_of_point(front, point, history)
    with st.container(border=True, key="front-pinned"):
        lines = pinned_lines(point, whole)
        if point.heads_removed and point.parameters is not None:
            measurement = newest_measured(jobs, choice.model, mask, choice.task, choice.languages)
            times = [] if measurement is None else measurement.time_words()
            lines.append(f"Time, {'; '.join(times)}." if times else "Time: not measured yet.")
        lines += emptied_sentences(mask.grid, mask.kept, is_chosen=point == front.answer)
        st.markdown("  \n".join(map(plain, lines)))
        with st.container(horizontal=True):
            button(
                "Make it the current mask",
                kind="primary",
                icon="check",
                key="front-put",
                on_press=take_point,
                args=(front, history, point.order, point.heads_removed),
            )
            if point.heads_removed:
                offer_written_model("Write the smaller model", choice, mask, "front-model")
        if point.heads_removed:
            draw_speed(choice, mask, jobs, "front-speed", is_folded=True)


def pinned_lines(point: Point, whole: WholeModel) -> list[str]:
    """The pinned model in words.

    Args:
        point: The model.
        whole: The untouched one.
    """
    lines = [f"{heads_words(point, whole)}."]
    if point.parameters is not None:
        lines.append(f"Weights: {whole.size_words(point.parameters)}.")
    else:
        lines.append(
            f"Weights: as large as the whole model's, as these {whole.noun} cannot leave them."
        )
    for words in differences_words(point):
        lines.append(f"{words[0].upper()}{words[1:]}.")
    if point.heads_removed:
        lines[-1] += f" On dev, which chose the {whole.noun}: optimistic."
    return lines


def _pick_point(front: StoredFront) -> Point:
    """Draw the list of the answer, the best points and the pinned one; return what is chosen.

    It serves the keyboard, and points whose dot is hard to hit.
    """
    points = offered_points(front)
    pinned = pinned_point(front)
    if pinned not in points:
        points = sorted([*points, pinned], key=lambda point: (point.heads_kept, -point.worst))
    key = point_list_key(front)
    if st.session_state.get(key) not in points:
        st.session_state.pop(key, None)
    chosen_point: Point = st.selectbox(
        "The answer, the best for their size, and what was clicked",
        points,
        index=points.index(front.answer),
        key=key,
        format_func=lambda point: point_label(
            point, front.grid.count_words(point.heads_kept), is_answer=point == front.answer
        ),
    )
    return chosen_point


def _write_link(front: StoredFront, point: Point) -> None:
    """Keep the link true to the pinned model; it names none where that is the answer.

    Args:
        front: The front that is shown.
        point: The pinned model.
    """
    text = "" if point == front.answer else point_text(point)
    PruneState.of_session().linked_points.add((front.result.key, text))
    if text == st.query_params.get(POINT_PARAM, ""):
        return
    if text:
        st.query_params[POINT_PARAM] = text
    else:
        st.query_params.pop(POINT_PARAM, None)


def mask_of_point(front: StoredFront, point: Point, history: MaskHistory) -> Mask:
    """The mask of one model of the front.

    Args:
        front: The front.
        point: The model.
        history: Of the mask of this model.
    """
    if point == front.answer:
        return chosen_mask(front.report, history.grid)  # only the answer was measured on test
    return mask_at(front.report, point.order, point.heads_removed, history.grid)


def take_point(front: StoredFront, history: MaskHistory, order: str, removed_count: int) -> None:
    """Make the mask of one point the current one.

    Args:
        front: The front that the point is of.
        history: Of the mask.
        order: Key of the order in which heads, or other players, are removed.
        removed_count: How many of its first ones are removed.
    """
    mask = mask_of_point(front, front.point(order, removed_count), history)
    history.set_mask(mask.kept, mask.chosen)
    set_widget(PRUNE_TAB, PRUNE_TABS[0])  # where its figures are
    PruneState.of_session().rerun_is_due = True
