"""The figures of a report, made by `headlab.plots` and converted to SVG: no browser and no Plotly script needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.pictures import UNSURE, on_scale
from headlab.report.maps import key, roles_map
from headlab.report.plotly_defaults import with_defaults
from headlab.report.svg import (
    SHADE,
    Area,
    Axis,
    Box,
    Chart,
    Dot,
    Entry,
    Line,
    Mark,
    Words,
    axis,
    draw,
    named,
    widened,
)
from headlab.roles.table import NAME as ROLES
from headlab.tables import Report

ROW, LEAST, USUAL = (
    24.0,
    60.0,
    300.0,
)  # height in pixels: of a row of cells, minimum of a plot, default of a plot
BESIDE = 110.0  # pixels of a Plotly figure's height that are not the plot's
LACKING = "pip install 'headlab[figures]'"
Part = Mapping[str, Any]


def drawn(report: Report) -> dict[str, tuple[str, ...]]:
    """{name: drawings} of a report; empty for one without figures.

    Raises HeadlabError if Plotly, which defines the figures, is not installed, or if the tables lack what the
    figures need.
    """
    try:
        from headlab.plots import report_figures
    except ImportError as error:
        raise HeadlabError(
            f"figures need Plotly, which is not installed: {LACKING}", code="package.plotly_missing"
        ) from error
    try:
        if report.name == ROLES:
            return {"the clearest role of each head": roles_map(report)}
        found = report_figures(report)
        return {name: translated(figure, name) for name, figure in found.items()}
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # tables from a file may hold anything
        raise HeadlabError(
            f"the tables do not hold what is drawn ({type(error).__name__})",
            code="figure.tables_mismatch",
        ) from error


def translated(figure: Any, name: str) -> tuple[str, ...]:
    """A Plotly figure as SVG: the chart, and a key to its colours. Raises HeadlabError for unsupported traces."""
    try:
        return _translated(figure, name)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise HeadlabError(
            f"figure {name} cannot be drawn in a file ({type(error).__name__}: {error})",
            code="figure.part_unknown",
        ) from error


def _translated(figure: Any, name: str) -> tuple[str, ...]:
    layout = figure.layout.to_plotly_json()
    traces = [trace.to_plotly_json() for trace in figure.data]
    unknown = sorted({str(trace.get("type")) for trace in traces} - {"heatmap", "scatter"})
    if unknown:
        raise HeadlabError(
            f"figure {name} has {', '.join(unknown)}, which cannot be drawn here",
            code="figure.part_unknown",
        )
    traces, layout = with_defaults(traces, layout)
    maps = [trace for trace in traces if trace["type"] == "heatmap"]
    if maps:
        return _heatmap(maps[0], layout, name)
    marks = [mark for trace in traces for mark in _marks(trace)]
    x, y = (_axis(layout.get(f"{which}axis", {}), list(_values(marks, which))) for which in "xy")
    marks += [
        *_straight(layout.get("shapes") or (), x, y),
        *_annotations(layout.get("annotations") or ()),
    ]
    height = max(float(layout.get("height") or USUAL + BESIDE) - BESIDE, LEAST)
    legend = _legend(traces)
    shown = layout.get("showlegend", len(legend) > 1)
    return (draw(Chart(x, y, marks, height, name, legend if shown else ())),)


def _heatmap(trace: Part, layout: Part, name: str) -> tuple[str, ...]:
    z = np.asarray(trace["z"], float)
    rows, columns = (
        _names(trace.get(which), count) for which, count in (("y", z.shape[0]), ("x", z.shape[1]))
    )
    low = float(trace.get("zmin", np.nanmin(z) if np.isfinite(z).any() else 0))
    high = float(trace.get("zmax", np.nanmax(z) if np.isfinite(z).any() else 1))
    if not high > low:
        high = low + 1
    scale = [(float(at), str(colour)) for at, colour in trace["colorscale"]]
    text = _text(trace, z)
    marks = [
        Box(column, row, on_scale(scale, (value - low) / (high - low)), text[row][column],
            f"{rows[row]}, {columns[column]}: {value:.3g}")
        for row, line in enumerate(z.tolist()) for column, value in enumerate(line) if math.isfinite(value)
    ]  # fmt: skip
    x = named(columns, title=_title(layout.get("xaxis", {})))
    y = named(rows, title=_title(layout.get("yaxis", {})), downwards=True)
    chart = draw(Chart(x, y, marks, max(ROW * len(rows), LEAST), name))
    if trace.get("showscale") is False:
        return (chart,)
    bar = trace.get("colorbar") or {}
    return chart, key(scale, [f"{end:.3g}" for end in (low, (low + high) / 2, high)], _title(bar))


def _names(given: Any, count: int) -> list[str]:
    return (
        [str(place) for place in range(count)] if given is None else [str(name) for name in given]
    )


def _text(trace: Part, z: np.ndarray[Any, Any]) -> list[list[str]]:
    """The text on each cell, by Plotly's template. Raises HeadlabError for an unknown template."""
    form, text = trace.get("texttemplate"), trace.get("text")
    if form == "%{text}" and text is not None:
        return [[str(cell) for cell in row] for row in text]
    if form == "%{z:.0f}":
        return [
            ["" if math.isnan(value) else f"{value:.0f}" for value in row] for row in z.tolist()
        ]
    if form:
        raise HeadlabError(
            f"a heat map has the unknown text template {form!r}", code="figure.template_unknown"
        )
    return [[""] * z.shape[1] for _ in range(z.shape[0])]


def _title(part: Part) -> str:
    title = part.get("title") or {}
    return str(title.get("text") or "") if isinstance(title, Mapping) else str(title)


def _marks(trace: Part) -> Iterator[Mark]:
    """Area, line and dots of one trace."""
    x, y, mode = (
        list(map(float, trace["x"])),
        list(map(float, trace["y"])),
        str(trace.get("mode") or "lines"),
    )
    if trace.get("fill") == "toself":
        colour, opacity = _filled(str(trace.get("fillcolor")))
        yield Area(x, y, colour, opacity)
    line = trace.get("line") or {}
    if "lines" in mode:
        if line.get("shape") == "hv":
            x, y = _stairs(x, y)
        yield Line(
            x,
            y,
            str(line.get("color", UNSURE)),
            str(line.get("dash", "solid")),
            float(line.get("width", 2)),
        )
    if "markers" in mode:
        yield from _dots(trace, x, y)


def _stairs(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """The points of a step line that goes level first, then up or down (Plotly's shape "hv")."""
    level = [(b, c) for b, c in zip(x[1:], y[:-1], strict=True)]
    pairs = [
        point for both in zip(level, zip(x[1:], y[1:], strict=True), strict=True) for point in both
    ]
    points = [*zip(x[:1], y[:1], strict=True), *pairs]
    return [a for a, _ in points], [b for _, b in points]


def _filled(colour: str) -> tuple[str, float]:
    """The colour "rgba(r,g,b,a)" as "#rrggbb", and its opacity."""
    parts = colour.removeprefix("rgba(").removesuffix(")").split(",")
    if len(parts) != 4:
        return colour, SHADE
    return "#" + "".join(f"{int(part):02x}" for part in parts[:3]), float(parts[3])


def _dots(trace: Part, x: list[float], y: list[float]) -> Iterator[Dot]:
    look, n = trace.get("marker") or {}, len(x)
    usual = {"color": UNSURE, "symbol": "circle", "size": 9, "opacity": 1}
    colours, symbols, sizes, faint = (
        _each(look.get(name, value), n) for name, value in usual.items()
    )
    told, along = _each(trace.get("text", ""), n), "x" if trace.get("error_x") else "y"
    error = trace.get(f"error_{along}") or {}
    more, less = (_each(error.get(name, math.nan), n) for name in ("array", "arrayminus"))
    for i, (a, b) in enumerate(zip(x, y, strict=True)):
        at = a if along == "x" else b
        yield Dot(
            a, b, str(colours[i]), str(symbols[i]), float(sizes[i]), str(told[i]), at - float(less[i]),
            at + float(more[i]), along, float(faint[i]),
        )  # fmt: skip


def _each(given: Any, count: int) -> list[Any]:
    """One value per item: a single value repeated, a list cycled to length."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        return [given] * count
    return list(islice(cycle(given), count)) if len(given) else [math.nan] * count


def _values(marks: Sequence[Mark], which: str) -> Iterator[float]:
    """All values that an axis must have room for."""
    for mark in marks:
        if isinstance(mark, Line | Area):
            yield from getattr(mark, which)
        elif isinstance(mark, Dot):
            yield getattr(mark, which)
            if mark.along == which:
                yield from (mark.low, mark.high)


def _axis(given: Part, values: list[float]) -> Axis:
    title = _title(given)
    if given.get("ticktext") is not None and given.get("tickvals") is not None:
        low, high = given.get("range") or widened(values)
        ticks = tuple(
            (float(at), str(name))
            for at, name in zip(given["tickvals"], given["ticktext"], strict=True)
        )
        return Axis(float(low), float(high), ticks, title, lines=given.get("showgrid") is not False)
    ends = given.get("range")
    low, high = (
        map(float, ends)
        if ends is not None
        else widened(values, zero=given.get("rangemode") == "tozero")
    )
    form = str(given.get("tickformat") or "g")
    found = axis(min(low, high), max(low, high), title=title, form=form)
    return Axis(low, high, found.ticks, title) if low > high else found


def _straight(shapes: Sequence[Part], x: Axis, y: Axis) -> Iterator[Line]:
    """Lines across the whole plot, vertical or horizontal."""
    for shape in shapes:
        line = shape.get("line") or {}
        colour, dash = str(line.get("color", UNSURE)), str(line.get("dash", "solid"))
        if str(shape.get("yref", "")).endswith("domain"):
            place = float(shape["x0"])
            if 0 <= x.share(place) <= 1:
                yield Line([place, place], [y.low, y.high], colour, dash, 1)
        elif (
            str(shape.get("xref", "")).endswith("domain") and 0 <= y.share(float(shape["y0"])) <= 1
        ):
            yield Line([x.low, x.high], [float(shape["y0"])] * 2, colour, dash, 1)


def _annotations(given: Sequence[Part]) -> Iterator[Words]:
    anchors = {"left": "start", "right": "end"}
    for note in given:
        font = note.get("font") or {}
        yield Words(
            float(note["x"]), float(note["y"]), str(note.get("text", "")), font.get("color"),
            anchors.get(str(note.get("xanchor")), "middle"), float(note.get("xshift") or 0),
            -float(note.get("yshift") or 0),
        )  # fmt: skip


def _legend(traces: Sequence[Part]) -> list[Entry]:
    out = []
    for trace in traces:
        if (
            trace.get("showlegend") is False
            or trace.get("fill") == "toself"
            or not trace.get("name")
        ):
            continue
        mode, line, marker = (
            str(trace.get("mode")),
            trace.get("line") or {},
            trace.get("marker") or {},
        )
        dash = str(line.get("dash", "solid")) if "lines" in mode else None
        symbol = _one(marker.get("symbol", "circle")) if "markers" in mode else None
        colour = line.get("color") or _each(marker.get("color", UNSURE), 1)[0]
        out.append(Entry(str(trace["name"]), str(colour), dash, symbol))
    return out


def _one(symbols: Any) -> str:
    """The symbol of a whole trace: if dots have their own, the filled form of the first."""
    return symbols if isinstance(symbols, str) else str(_each(symbols, 1)[0]).removesuffix("-open")
