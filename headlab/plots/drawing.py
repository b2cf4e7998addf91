"""Charts drawn by Plotly, for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headlab.charts.chart import FADED, OPEN, Axis, Band, Cells, Chart, Line, Note, Points, Rule
from headlab.pictures import rgb
from headlab.plots.style import LEGEND, bar, cells, interval, with_common_layout

ROW_SPACING = 0.08  # between two rows of a figure, as a share of its height
Position = Mapping[str, int]  # row and column of a figure, as Plotly's methods take them


class _Placeholder:
    """A field of Plotly's hover templates, such as %{y:.1f}, that `format` puts into a tip."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, index: int | str) -> _Placeholder:
        return _Placeholder(f"{self.name}[{index}]")

    def __format__(self, number_format: str) -> str:
        if number_format:
            return f"%{{{self.name}:{number_format}}}"
        return f"%{{{self.name}}}"


def plotly_figure(chart: Chart) -> go.Figure:
    """The chart as a Plotly figure, transparent and without a template of its own.

    Args:
        chart: What to draw.

    Returns:
        A new figure.
    """
    if chart.cells is not None:
        return _matrix(chart, chart.cells)
    figure = go.Figure()
    _add_chart(figure, chart, {})
    layout: dict[str, object] = {"height": chart.height, "hovermode": "closest"}
    if chart.has_legend is not False:
        layout["legend"] = LEGEND
    if chart.has_legend is not None:
        layout["showlegend"] = chart.has_legend
    if chart.is_clickable:
        layout["clickmode"] = "event+select"
    if chart.is_selectable:
        layout["dragmode"] = "lasso"
    return with_common_layout(figure, **layout)


def plotly_rows(charts: Sequence[Chart], height: float) -> go.Figure:
    """Charts with one horizontal axis as a Plotly figure, one below the other, with one legend.

    Args:
        charts: From top to bottom, none of them a matrix; their heights give the shares of the
            rows.
        height: Of the figure, in pixels.

    Returns:
        A new figure.
    """
    total = sum(chart.height for chart in charts)
    figure = make_subplots(
        len(charts),
        1,
        shared_xaxes=True,
        vertical_spacing=ROW_SPACING,
        row_heights=[chart.height / total for chart in charts],
    )
    for number, chart in enumerate(charts, start=1):
        is_last = number == len(charts)
        shown = chart if is_last else replace(chart, x=replace(chart.x, title=""))
        _add_chart(figure, shown, {"row": number, "col": 1})
    return with_common_layout(
        figure, height=height, hovermode="closest", showlegend=True, legend=LEGEND
    )


def _add_chart(figure: go.Figure, chart: Chart, position: Position) -> None:
    """Add all parts of a chart that is no matrix to a figure.

    Args:
        figure: What to add them to.
        chart: Whose parts they are.
        position: Row and column of the figure; empty if it has one plot.
    """
    for series in chart.series:
        match series:
            case Points():
                can_be_chosen = chart.is_clickable or chart.is_selectable
                _add_points(figure, series, position, is_clickable=can_be_chosen)
            case Line():
                _add_line(figure, series, position)
            case Band():
                _add_band(figure, series, position)
    for rule in chart.rules:
        _add_rule(figure, rule, position)
    for note in chart.notes:
        _add_note(figure, note, position)
    figure.update_xaxes(zeroline=False, **_axis(chart.x), **position)
    figure.update_yaxes(zeroline=False, **_axis(chart.y), **position)


def _add_note(figure: go.Figure, note: Note, position: Position) -> None:
    look: dict[str, object] = {}
    if note.anchor != "center":
        look["xanchor"] = note.anchor
    right, up = note.shift
    if right:
        look["xshift"] = right
    font: dict[str, object] = {"size": note.size}
    if note.colour is not None:
        font["color"] = note.colour
    figure.add_annotation(
        x=note.x,
        y=note.y,
        text=_markup(note.text),
        showarrow=False,
        yshift=up,
        font=font,
        **look,
        **position,
    )


def _markup(text: str) -> str:
    """A plain text in the markup that Plotly reads."""
    return escape(text, quote=False).replace("\n", "<br>")


def _hover(template: str) -> dict[str, object]:
    """A trace's text on hover.

    Args:
        template: Plotly's; empty for none.
    """
    if template:
        return {"hovertemplate": f"{template}<extra></extra>"}
    return {"hoverinfo": "skip"}


def _matrix(chart: Chart, matrix: Cells) -> go.Figure:
    tip = matrix.tip.format(
        row=_Placeholder("y"),
        column=_Placeholder("x"),
        value=_Placeholder("z"),
        text=_Placeholder("text"),
        details=_Placeholder("customdata"),
    )
    look: dict[str, object] = {"zmin": matrix.low}
    if matrix.high is not None:
        look["zmax"] = matrix.high
    if matrix.scale_title:
        step = {} if matrix.scale_step is None else {"dtick": matrix.scale_step}
        look["colorbar"] = bar(matrix.scale_title, **step)
    else:
        look["showscale"] = False
    if len(matrix.details):
        look["customdata"] = _all_markup(matrix.details)
    figure = cells(
        matrix.values,
        None if matrix.columns is None else list(map(_markup, matrix.columns)),
        list(map(_markup, matrix.rows)),
        text=_all_markup(matrix.texts),
        texttemplate="%{text}" if matrix.are_texts_drawn else None,
        colorscale=matrix.scale,
        **look,
        **_hover(_markup(tip)),
    )
    side = {"side": "top"} if chart.x.is_on_top else {}
    figure.update_xaxes(**_axis(chart.x), **side)
    figure.update_yaxes(**_axis(chart.y))
    return with_common_layout(figure, height=chart.height)


def _all_markup(texts: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[_markup(text) for text in row] for row in texts]


def _axis(axis: Axis) -> dict[str, object]:
    """What a chart says of an axis, in Plotly's words."""
    settings: dict[str, object] = {}
    if axis.title:
        settings["title"] = _markup(axis.title)
    if axis.limits is not None:
        settings["range"] = list(axis.limits)
    if axis.ticks is not None:
        settings["tickvals"] = [position for position, _ in axis.ticks]
        settings["ticktext"] = [_markup(label) for _, label in axis.ticks]
    if axis.number_format:
        settings["tickformat"] = axis.number_format
    if axis.has_zero:
        settings["rangemode"] = "tozero"
    if not axis.has_grid:
        settings["showgrid"] = False
    return settings


def _add_points(
    figure: go.Figure, points: Points, position: Position, *, is_clickable: bool
) -> None:
    outline = f"{points.symbol.removesuffix(OPEN)}{OPEN}"
    symbols = [points.symbol if is_filled else outline for is_filled in points.is_filled]
    marker: dict[str, object] = {"color": points.colour, "symbol": symbols, "size": points.sizes}
    if len(points.is_faint):
        marker["opacity"] = [FADED if is_faint else 1.0 for is_faint in points.is_faint]
    if points.outline is not None:
        marker["line"] = {"color": points.colour, "width": points.outline}
    look: dict[str, object] = {}
    if len(points.low):
        value = np.asarray(points.x if points.along == "x" else points.y, float)
        low = np.asarray(points.low, float)
        high = np.asarray(points.high, float)
        bars = interval(low, value, high, color=points.colour, thickness=points.interval_width)
        look[f"error_{points.along}"] = bars
    if len(points.texts):
        look["text"] = list(map(_markup, points.texts))
    if len(points.keys):
        look["customdata"] = [list(key) for key in points.keys]
    if is_clickable:
        # A click dims no dot, except where some are faint anyway: the page marks the choice by a
        # ring.
        dimmed = FADED if len(points.is_faint) else 1.0
        look["selected"] = {"marker": {"opacity": 1.0}}
        look["unselected"] = {"marker": {"opacity": dimmed}}
    if points.joined_by:
        look["line"] = {"color": points.colour, "dash": points.joined_by, "width": 1}
    if not points.name:
        look["showlegend"] = False
    tip = points.tip.format(name=points.name, text=_Placeholder("text"))
    figure.add_scatter(
        x=points.x,
        y=points.y,
        name=_markup(points.name),
        mode="lines+markers" if points.joined_by else "markers",
        marker=marker,
        **look,
        **position,
        **_hover(_markup(tip)),
    )


def _add_line(figure: go.Figure, line: Line, position: Position) -> None:
    stroke: dict[str, object] = {"color": line.colour, "dash": line.dashes, "width": line.width}
    if line.is_step:
        stroke["shape"] = "hv"
    look: dict[str, object] = {}
    if line.details is not None:
        look["customdata"] = line.details
    if not line.is_in_legend:
        look["showlegend"] = False
    tip = line.tip.format(
        name=line.name,
        x=_Placeholder("x"),
        y=_Placeholder("y"),
        details=_Placeholder("customdata"),
    )
    figure.add_scatter(
        x=line.x,
        y=line.y,
        name=_markup(line.name) or None,
        mode="lines",
        line=stroke,
        **look,
        **position,
        **_hover(_markup(tip)),
    )


def _add_band(figure: go.Figure, band: Band, position: Position) -> None:
    x, low, high = (np.asarray(values) for values in (band.x, band.low, band.high))
    red, green, blue = rgb(band.colour)
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([high, low[::-1]]),
        mode="none",
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},{band.opacity})",
        hoverinfo="skip",
        showlegend=False,
        **position,
    )


def _add_rule(figure: go.Figure, rule: Rule, position: Position) -> None:
    stroke: dict[str, object] = {"color": rule.colour, "width": rule.width}
    if rule.dashes != "solid":
        stroke["dash"] = rule.dashes
    if rule.axis == "x":
        figure.add_vline(x=rule.value, line=stroke, **position)
    else:
        figure.add_hline(y=rule.value, line=stroke, **position)
