"""What a Plotly figure leaves to Plotly's script, filled in for a file that has none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headlab.pictures import LINE_COLOURS, SEQUENTIAL

Part = Mapping[str, Any]
MARKED_POINTS = 20
"""A line without a mode has markers if it has fewer points, as in Plotly."""
HEXADECIMAL = re.compile("#[0-9a-fA-F]{6}")
RGB = re.compile(r"rgba?\((\d+),\s*(\d+),\s*(\d+).*\)")


def with_defaults(traces: Sequence[Part], layout: Part) -> tuple[list[Part], Part]:
    """A figure's traces and layout, with colours and modes of lines and places for names.

    Args:
        traces: Of the types "scatter" and "heatmap".
        layout: Of the same figure.
    """
    lines = [trace for trace in traces if trace["type"] == "scatter"]
    layout, places = _named_places(lines, layout)
    completed: list[Part] = []
    line_number = 0
    for trace in traces:
        if trace["type"] == "heatmap":
            completed.append({**trace, "colorscale": _colour_scale(trace, layout)})
        else:
            completed.append(_line(trace, _trace_colour(line_number, layout), places))
            line_number += 1
    return completed, layout


def _trace_colour(number: int, layout: Part) -> str:
    """The colour of a line by its number, where it names none."""
    colours = layout.get("colorway") or LINE_COLOURS
    return str(colours[number % len(colours)])


def _line(trace: Part, colour: str, places: Mapping[str, Mapping[str, int]]) -> Part:
    """A line with colours, a mode and numbers.

    Args:
        trace: As the figure has it.
        colour: Where it names none.
        places: The place of each name on an axis, by "x" and "y".
    """
    line = dict(trace.get("line") or {})
    marker = dict(trace.get("marker") or {})
    marker_colour = marker.get("color")
    usual_colour = marker_colour if isinstance(marker_colour, str) else colour
    line.setdefault("color", usual_colour)
    marker.setdefault("color", line["color"])
    points = {
        which: [_number(value, places[which]) for value in _coordinates(trace, which)]
        for which in "xy"
    }
    marked = "lines+markers" if len(points["x"]) < MARKED_POINTS else "lines"
    mode = trace.get("mode") or ("lines" if trace.get("fill") else marked)
    return {**trace, **points, "line": line, "marker": marker, "mode": mode}


def _coordinates(trace: Part, which: str) -> Sequence[Any]:
    """The coordinates of a line's points; their numbers where it has only the other ones."""
    coordinates = trace.get(which)
    if coordinates is not None:
        return list(coordinates)
    return range(len(trace["y" if which == "x" else "x"]))


def _number(value: Any, places: Mapping[str, int]) -> float:
    """A coordinate; not a number where there is a gap."""
    if value is None:
        return math.nan
    if value in places:
        return float(places[value])
    return float(value)


def _named_places(lines: Sequence[Part], layout: Part) -> tuple[Part, dict[str, dict[str, int]]]:
    """The layout with the names on its axes, and the place of each name, first come first."""
    places: dict[str, dict[str, int]] = {}
    for axis_name in "xy":
        names = dict.fromkeys(_names(lines, axis_name))
        places[axis_name] = {name: place for place, name in enumerate(names)}
        if names:
            ticks = {"tickvals": list(range(len(names))), "ticktext": list(names)}
            axis = f"{axis_name}axis"
            layout = {**layout, axis: {**ticks, **layout.get(axis, {})}}
    return layout, places


def _names(lines: Sequence[Part], axis_name: str) -> Iterator[str]:
    """The coordinates on one axis that are names, not numbers."""
    for trace in lines:
        values = trace.get(axis_name)
        if values is not None:
            yield from (value for value in values if isinstance(value, str))


def _colour_scale(trace: Part, layout: Part) -> list[tuple[float, str]]:
    """The colours of a map: its own, those of its axis of colours, or those of headlab."""
    axis = layout.get(str(trace.get("coloraxis")), {})
    scale = trace.get("colorscale") or axis.get("colorscale") or SEQUENTIAL
    return [(float(share), _hexadecimal(str(colour))) for share, colour in scale]


def _hexadecimal(colour: str) -> str:
    """A colour of a scale as "#rrggbb", between two of which a cell's is found.

    Raises:
        ValueError: It is neither given so nor as "rgb(r,g,b)".
    """
    parts = RGB.fullmatch(colour)
    if parts is not None:
        return "#" + "".join(f"{int(part):02x}" for part in parts.groups())
    if HEXADECIMAL.fullmatch(colour) is None:
        raise ValueError(f"its scale has the colour {colour!r}, which is no #rrggbb")
    return colour
