"""Which heads are chosen in the scatter: by areas, by two ranges, or by the link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from headlab.charts.head_measures import HeadMeasure
from headlab.charts.scatter import known_in_both
from headlab.core import HeadGrid, HeadlabError
from headlab.dashboard.panels.masks import kept_heads_of_link_text, mask_link_text
from headlab.dashboard.widgets import PageState
from headlab.results import kept_heads_without

CHART = "scatter"
"""Widget key of the chart."""
LINK_PARAM = "chosen"
"""Parameter of the link that holds the chosen heads, as a mask without them."""
SLIDER_STEPS = 200
"""Steps of a slider from the lowest to the highest value of a measure."""
REPLACE = "replaces them"
ADD = "adds to them"
REMOVE = "takes from them"
WAYS = (REPLACE, ADD, REMOVE)
"""What happens to the heads of an area, or of two ranges."""
MAX_HOW_LENGTH = 400
"""Characters of how heads were chosen, which masks of them tell."""
AND_SO_ON = ", then by further areas"
WAY = "scatter-way"
"""Key of the widget that chooses among them."""


@dataclass
class ChosenHeads(PageState):
    """The heads that one session has chosen in the scatter.

    They stay chosen when other measures are shown: what stands out by two of them can be looked at
    by two others.

    Attributes:
        fingerprint: Of their model.
        indices: Of the heads, in the grid's order.
        how: How they were chosen, in words, for a mask of them.
        problem: A sentence on why the last attempt chose nothing; empty if it did.
        problem_axes: Titles of the measures for which that was so; empty for a link.
        event_number: How many events of the chart were handled: each gets a chart of its own, which
            has no area of an earlier one.
        written_link_texts: What the page itself put into its link.
    """

    key = "_scatter"
    fingerprint: str = ""
    indices: tuple[int, ...] = ()
    how: str = ""
    problem: str = ""
    problem_axes: tuple[str, ...] = ()
    event_number: int = 0
    written_link_texts: set[str] = field(default_factory=set)

    def choose(self, indices: Sequence[int], how: str, way: str = REPLACE) -> None:
        """Choose heads in place of those chosen so far, besides them, or take them away.

        Args:
            indices: Of the heads; each once.
            how: How they were chosen, in words.
            way: One of `WAYS`.
        """
        self.problem = ""
        if way == REPLACE:
            self.indices = tuple(sorted(indices))
            self.how = how if indices else ""
            return
        chosen = set(self.indices)
        if way == ADD:
            chosen |= set(indices)
            more = f", and {how}"
        else:
            chosen -= set(indices)
            more = f", without those {how}"
        if len(self.how) + len(more) > MAX_HOW_LENGTH:
            more = "" if self.how.endswith(AND_SO_ON) else AND_SO_ON
        self.indices = tuple(sorted(chosen))
        self.how = f"{self.how}{more}" if chosen else ""

    def clear(self) -> None:
        """Choose no head."""
        self.choose((), "")


def chosen_way() -> str:
    """What happens to the heads of the next area: one of `WAYS`.

    The first area replaces nothing, and its widget is not drawn yet.
    """
    way = str(st.session_state.get(WAY))
    if way not in WAYS or not ChosenHeads.of_session().indices:
        return REPLACE
    return way


def chosen_heads_of(fingerprint: str, grid: HeadGrid) -> ChosenHeads:
    """This session's chosen heads of a model, after its link has been read.

    Args:
        fingerprint: Of the model; heads chosen of another one are dropped.
        grid: Its heads.
    """
    chosen = ChosenHeads.of_session()
    link_text = st.query_params.get(LINK_PARAM)
    if chosen.fingerprint != fingerprint:
        if link_text in chosen.written_link_texts:  # of the model that was shown before
            st.query_params.pop(LINK_PARAM)
            link_text = None
        chosen.clear()
        chosen.written_link_texts.clear()
        chosen.fingerprint = fingerprint
    if link_text and link_text not in chosen.written_link_texts:
        chosen.written_link_texts.add(link_text)
        try:
            kept_heads = kept_heads_of_link_text(link_text, grid)
        except HeadlabError:
            chosen.problem_axes = ()
            chosen.problem = (
                f"The link chooses heads that this model does not have ({LINK_PARAM}="
                f"{link_text[:40]}); none was chosen."
            )
        else:
            chosen.choose(np.flatnonzero(~kept_heads).tolist(), "by a link")
    return chosen


def write_link(chosen: ChosenHeads, grid: HeadGrid) -> None:
    """Put the chosen heads into the page's link."""
    if not chosen.indices:
        st.query_params.pop(LINK_PARAM, None)
        return
    kept_heads = kept_heads_without(np.array(chosen.indices), grid.size)
    link_text = mask_link_text(kept_heads)
    chosen.written_link_texts.add(link_text)
    if st.query_params.get(LINK_PARAM) != link_text:
        st.query_params[LINK_PARAM] = link_text


# By the chart.


def choose_by_chart(x: HeadMeasure, y: HeadMeasure) -> None:
    """Choose, add or take away the heads of an area drawn in the chart: the action of that.

    Args:
        x: The measure on the horizontal axis.
        y: That on the upright axis.
    """
    chosen = ChosenHeads.of_session()
    event = st.session_state.get(CHART)
    if not event:
        return
    selection = event["selection"]
    if not selection.get("box") and not selection.get("lasso"):
        return
    chosen.event_number += 1
    indices = indices_of_points(selection["points"])
    if not indices:
        chosen.problem_axes = (x.title, y.title)
        chosen.problem = "There is no head in that area. Draw around the points themselves."
        return
    chosen.choose(indices, f"by an area of {x.title} against {y.title}", chosen_way())


def indices_of_points(points: Sequence[dict[str, Any]]) -> list[int]:
    """The heads of selected points, each once.

    Args:
        points: As streamlit gives them.
    """
    indices = set()
    for point in points:
        custom_data = point.get("customdata")
        if isinstance(custom_data, list | tuple) and custom_data:
            custom_data = custom_data[0]
        if isinstance(custom_data, int):
            indices.add(custom_data)
    return sorted(indices)


# By two ranges, for those who use no pointer.


def draw_ranges(x: HeadMeasure, y: HeadMeasure) -> list[int]:
    """Draw a range for each axis and return the heads that lie in both.

    Args:
        x: The measure on the horizontal axis.
        y: That on the upright axis.
    """
    is_inside = known_in_both(x, y)
    is_known = is_inside.copy()
    for axis, measure in (("x", x), ("y", y)):
        values = measure.values[is_known]
        low, high = float(values.min()), float(values.max())
        if low == high:
            st.caption(f"All heads have the same value: {measure.title}.")
            continue
        step = (high - low) / SLIDER_STEPS
        start, end = st.slider(
            measure.title,
            low,
            high,
            (low, high),
            step=step,
            format="%.4g",
            key=f"range-{axis}-{measure.title}",
        )
        is_inside &= (measure.values >= start - step / 2) & (measure.values <= end + step / 2)
    return [int(index) for index in np.flatnonzero(is_inside)]


def choose_by_ranges(indices: Sequence[int], x: HeadMeasure, y: HeadMeasure) -> None:
    """Choose the heads of two ranges: the action of a click.

    Args:
        indices: Of the heads.
        x: The measure on the horizontal axis.
        y: That on the upright axis.
    """
    how = f"by ranges of {x.title} and {y.title}"
    ChosenHeads.of_session().choose(indices, how, chosen_way())
