"""Roles of heads: one colour and one letter a role, the same in the map, in the figures and in their legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from headlab.plots.matrices import marked
from headlab.plots.style import LEGEND, ROW_PIXELS, UNSURE, finish
from headlab.records import Bools, Floats

POSITIONAL = "positional"


class Look(NamedTuple):
    """How a kind of role is drawn.

    colour, ink: of the cell and of what is written on it.  mark: a letter, so that colour is not all that tells
    roles apart.
    """

    colour: str
    ink: str
    mark: str


DARK, LIGHT = "#101418", "#ffffff"
HATCHED = {"shape": "/", "solidity": 0.25, "fillmode": "overlay", "fgcolor": LIGHT}
# At least 0.12 apart in OKLab, also as people without one of the three cones see them (Machado et al. 2009).
LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        POSITIONAL: Look("#d9952c", DARK, "±"),
        "nsubj": Look("#1c7515", LIGHT, "S"),
        "obj": Look("#59bfba", DARK, "O"),
        "amod": Look("#5e0fa8", LIGHT, "A"),
        "advmod": Look("#a384ee", DARK, "V"),
        "rare word": Look("#e2326e", DARK, "R"),
        "induction": Look("#825bbc", LIGHT, "I"),
        "same token elsewhere": Look("#831b5c", LIGHT, "="),
        "separator": Look("#ecd387", DARK, "E"),
        "first token": Look("#a3e6fa", DARK, "F"),
    }
)
IDLE = ("separator", "first token")  # where heads look that have nothing else to do (Clark et al. 2019, section 3.2)
OTHER = Look(UNSURE, DARK, "?")  # of a role that this version does not know
FAINT = "rgba(138,143,152,0.3)"  # heads of no role


def kind_of(role: str) -> str:
    """The kind that a role is of: 'positional' for 'position -1', 'nsubj' for 'nsubj: dependent to governor'."""
    return POSITIONAL if role.startswith("position ") else role.partition(":")[0]


def look_of(kind: str) -> Look:
    """How a kind of role is drawn."""
    return LOOKS.get(kind, OTHER)


def in_order(kinds: Sequence[str]) -> list[str]:
    """Each kind once: those that are known first, in the order of the legend."""
    known = list(LOOKS)
    return sorted(dict.fromkeys(kinds), key=lambda kind: (known.index(kind) if kind in known else len(known), kind))


def across_languages(
    above: Floats, share: Floats, sure: Bools, rows: Sequence[str], columns: Sequence[str], template: str | None = None
) -> go.Figure:
    """What heads with a role in one language do in others: points above chance on a scale around 0.

    above, share: float [row, language] in points and in percent, NaN where there is none.  sure: bool [row, language],
    has the role there, marked by a dot.  Among many languages the shares are under the pointer only.
    """
    told = [["–" if np.isnan(v) else f"{v:.0f}" for v in row] for row in share]
    hover = "%{y} in %{x}: %{customdata} %, %{z:+.1f} points against chance<extra></extra>"
    figure = marked(above, told, sure, rows, columns, scale="points above chance", hover=hover)
    return finish(figure, template, height=max(150, 90 + ROW_PIXELS * len(rows)))


def stacked(
    sizes: Sequence[int], counts: Mapping[str, Sequence[float]], unit: str, template: str | None = None
) -> go.Figure:
    """How many heads have each role at every size, stacked in the order of the legend, heads of no role above.

    sizes: heads that are left.  counts: {role: heads with it at each size}; the second direction of a relation is
    hatched, since both have its colour.
    """
    figure, seen = go.Figure(), list[str]()
    kinds = in_order([kind_of(role) for role in counts])
    for role in sorted(counts, key=lambda role: kinds.index(kind_of(role))):
        kind = kind_of(role)
        again, colour = kind in seen, look_of(kind).colour if kind in LOOKS else FAINT
        seen.append(kind)
        figure.add_bar(
            x=[str(size) for size in sizes], y=list(counts[role]), name=role,
            marker={"color": colour, "pattern": HATCHED if again else {}},
            hovertemplate=role + ": %{y:g} of %{x} heads<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="heads left", type="category", showgrid=False)
    figure.update_yaxes(title=unit, rangemode="tozero", zeroline=False)
    legend = LEGEND | {"traceorder": "normal"}
    height = 380 + 12 * len(counts)  # a phone stacks the legend
    return finish(figure, template, height=height, barmode="stack", bargap=0.15, showlegend=True, legend=legend)
