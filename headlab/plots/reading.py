"""A Plotly figure of another package, read as a chart, so that files and documents have it too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from itertools import cycle, islice
from typing import Any

import numpy as np
import plotly.graph_objects as go

from headlab.charts.chart import (
    OPEN,
    SHADE,
    Anchor,
    Axis,
    Band,
    Cells,
    Chart,
    Line,
    Note,
    Points,
    Rule,
    Series,
)
from headlab.core import HeadlabError
from headlab.pictures import UNSURE
from headlab.plots.plotly_defaults import with_defaults

Part = Mapping[str, Any]
KINDS = ("heatmap", "scatter")
ANCHORS: Mapping[str, Anchor] = {"left": "left", "right": "right"}


def chart_of(figure: go.Figure, name: str) -> Chart:
    """A Plotly figure as a chart: its heat map, or its lines, dots and areas, axes and legend.

    Args:
        figure: With traces of the kinds `scatter` and `heatmap`.
        name: What it shows.

    Returns:
        The chart.

    Raises:
        HeadlabError: It has other traces, an area that is not between two lines, or an unknown
            text template.
    """
    layout = figure.layout.to_plotly_json()
    traces = [trace.to_plotly_json() for trace in figure.data]
    unknown = sorted({str(trace.get("type")) for trace in traces} - set(KINDS))
    if unknown:
        raise _cannot_draw(name, ", ".join(unknown))
    try:
        return _chart(*with_defaults(traces, layout), name)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise HeadlabError(
            f"figure {name} cannot be drawn in a file ({type(error).__name__}: {error})",
            code="figure.part_unknown",
        ) from error


def _chart(traces: Sequence[Part], layout: Part, figure_name: str) -> Chart:
    """The chart of a figure whose traces and layout `with_defaults` has completed."""
    x, y = (_axis(layout.get(f"{which}axis", {})) for which in "xy")
    height = float(layout.get("height") or Chart(figure_name, ()).height)
    heatmap = next((trace for trace in traces if trace["type"] == "heatmap"), None)
    if heatmap is not None:
        return Chart(figure_name, (_cells(heatmap),), x=x, y=y, height=height)
    return Chart(
        figure_name,
        [series for trace in traces for series in _series(trace, figure_name)],
        x=x,
        y=y,
        rules=list(_rules(layout.get("shapes") or ())),
        notes=list(map(_note, layout.get("annotations") or ())),
        height=height,
        has_legend=layout.get("showlegend"),
    )


def _cannot_draw(figure_name: str, what: str) -> HeadlabError:
    return HeadlabError(
        f"figure {figure_name} has {what}, which cannot be drawn here", code="figure.part_unknown"
    )


def _plain(text: object) -> str:
    """A text without Plotly's markup."""
    return unescape(str(text).replace("<br>", "\n"))


def _title(part: Part) -> str:
    title = part.get("title") or {}
    return _plain(title.get("text") or "" if isinstance(title, Mapping) else title)


def _axis(axis: Part) -> Axis:
    limits = axis.get("range")
    ticks = None
    if axis.get("ticktext") is not None and axis.get("tickvals") is not None:
        pairs = zip(axis["tickvals"], axis["ticktext"], strict=True)
        ticks = tuple((float(position), _plain(label)) for position, label in pairs)
    return Axis(
        _title(axis),
        limits=None if limits is None else (float(limits[0]), float(limits[1])),
        ticks=ticks,
        number_format=str(axis.get("tickformat") or ""),
        has_zero=axis.get("rangemode") == "tozero",
        has_grid=axis.get("showgrid") is not False,
        is_on_top=axis.get("side") == "top",
    )


def _cells(trace: Part) -> Cells:
    values = np.asarray(trace["z"], float)
    finite = values[np.isfinite(values)]
    columns = trace.get("x")
    rows = trace.get("y")
    names = range(len(values)) if rows is None else rows
    texts = _texts(trace, values)
    has_key = trace.get("showscale") is not False
    return Cells(
        list(map(_plain, names)),
        None if columns is None else list(map(_plain, columns)),
        values,
        texts,
        low=float(trace.get("zmin", finite.min(initial=math.inf) if finite.size else 0)),
        high=None if trace.get("zmax") is None else float(trace["zmax"]),
        scale=tuple(trace["colorscale"]),
        scale_title=(_title(trace.get("colorbar") or {}) or " ") if has_key else "",
        tip="{row}, {column}: {value:.3g}",
    )


def _texts(trace: Part, values: np.ndarray[Any, Any]) -> list[list[str]]:
    """The text on each cell, by Plotly's template. Raises HeadlabError for an unknown template."""
    template = trace.get("texttemplate")
    texts = trace.get("text")
    if template == "%{text}" and texts is not None:
        return [[_plain(text) for text in row] for row in texts]
    if template == "%{z:.0f}":
        return [
            ["" if math.isnan(value) else f"{value:.0f}" for value in row]
            for row in values.tolist()
        ]
    if template:
        raise HeadlabError(
            f"a heat map has the unknown text template {template!r}", code="figure.template_unknown"
        )
    return [[""] * values.shape[1] for _ in range(len(values))]


def _series(trace: Part, figure_name: str) -> Iterator[Series]:
    """The area, line and dots of one trace that `with_defaults` has completed.

    Args:
        trace: One of the figure's traces.
        figure_name: Of the figure, for errors.
    """
    x = trace["x"]
    y = trace["y"]
    mode = str(trace["mode"])
    if trace.get("fill") == "toself":
        yield _band(trace, x, y, figure_name)
    is_named = trace.get("showlegend") is not False and trace.get("fill") != "toself"
    series_name = _plain(trace.get("name") or "") if is_named else ""
    if "lines" in mode:
        line_look = trace["line"]
        yield Line(
            series_name,
            x,
            y,
            str(line_look["color"]),
            str(line_look.get("dash", "solid")),
            float(line_look.get("width", 2)),
            is_step=line_look.get("shape") == "hv",
        )
    if "markers" in mode:
        yield from _points(trace, x, y, "" if "lines" in mode else series_name)


def _band(trace: Part, x: Sequence[float], y: Sequence[float], figure_name: str) -> Band:
    point_count = len(x) // 2
    if len(x) % 2 or list(x[:point_count]) != list(x[point_count:])[::-1]:
        raise _cannot_draw(figure_name, "an area that is not between two lines")
    red, green, blue, opacity = _filled(str(trace.get("fillcolor")))
    colour = f"#{red:02x}{green:02x}{blue:02x}"
    return Band(x[:point_count], list(y[point_count:])[::-1], y[:point_count], colour, opacity)


def _filled(colour: str) -> tuple[int, int, int, float]:
    """Red, green, blue and opacity of "rgba(r,g,b,a)" or "#rrggbb"."""
    if colour.startswith("rgba("):
        *parts, opacity = colour.removeprefix("rgba(").removesuffix(")").split(",")
        red, green, blue = map(int, parts)
        return red, green, blue, float(opacity)
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return red, green, blue, SHADE


def _points(
    trace: Part, x: Sequence[float], y: Sequence[float], series_name: str
) -> Iterator[Points]:
    """The dots of one trace, one series for each colour and symbol.

    Only the first has the name, so that the legend shows it once.
    """
    marker = {"symbol": "circle", "size": 9, "opacity": 1, **trace["marker"]}
    colours, symbols, sizes, opacities = (
        _of_each(marker[name], len(x)) for name in ("color", "symbol", "size", "opacity")
    )
    texts = [_plain(text) for text in _of_each(trace.get("text", ""), len(x))]
    along = "x" if trace.get("error_x") else "y"
    error_bars = trace.get(f"error_{along}") or {}
    upper_lengths = np.array(_of_each(error_bars.get("array", math.nan), len(x)), float)
    lower_lengths = np.array(
        _of_each(error_bars.get("arrayminus", error_bars.get("array", math.nan)), len(x)), float
    )
    values = np.asarray(x if along == "x" else y, float)
    is_one_symbol = isinstance(marker["symbol"], str)
    looks = [
        (str(colour), str(symbol) if is_one_symbol else str(symbol).removesuffix(OPEN))
        for colour, symbol in zip(colours, symbols, strict=True)
    ]
    for number, (colour, symbol) in enumerate(dict.fromkeys(looks)):
        indices = [index for index, look in enumerate(looks) if look == (colour, symbol)]
        yield Points(
            series_name if number == 0 else "",
            [x[index] for index in indices],
            [y[index] for index in indices],
            colour,
            symbol,
            is_filled=[str(symbols[index]) == symbol for index in indices],
            sizes=[float(sizes[index]) for index in indices],
            is_faint=[float(opacities[index]) < 1 for index in indices],
            low=(values - lower_lengths)[indices],
            high=(values + upper_lengths)[indices],
            along=along,
            texts=[texts[index] for index in indices],
        )


def _of_each(values: Any, count: int) -> list[Any]:
    """One value per item: a single value repeated, a list cycled to length."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        return [values] * count
    if len(values):
        return list(islice(cycle(values), count))
    return [math.nan] * count


def _rules(shapes: Sequence[Part]) -> Iterator[Rule]:
    """Lines across the whole plot, upright or level."""
    for shape in shapes:
        look = shape.get("line") or {}
        dashes = str(look.get("dash", "solid"))
        colour = str(look.get("color", UNSURE))
        width = float(look.get("width", 1))
        if str(shape.get("yref", "")).endswith("domain"):
            yield Rule("x", float(shape["x0"]), dashes, width, colour)
        elif str(shape.get("xref", "")).endswith("domain"):
            yield Rule("y", float(shape["y0"]), dashes, width, colour)


def _note(annotation: Part) -> Note:
    font = annotation.get("font") or {}
    return Note(
        float(annotation["x"]),
        float(annotation["y"]),
        _plain(annotation.get("text", "")),
        font.get("color"),
        ANCHORS.get(str(annotation.get("xanchor")), "center"),
        (float(annotation.get("xshift") or 0), float(annotation.get("yshift") or 0)),
        float(font.get("size") or 12),
    )
