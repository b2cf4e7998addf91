"""Drawings as SVG text: escaped elements, the colours of headlab's figures, axes, marks and charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from unicodedata import east_asian_width

from headlab.pictures import ink_on

# SVG as text: elements whose attributes and words are escaped here and nowhere else.

FONT_WIDTH = 0.56  # mean width of a letter, in font sizes; browsers differ, so places are kept a little too wide
Attribute = str | float | None


def number(value: float) -> str:
    """A coordinate with two digits at most, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def element(name: str, *children: str, **attributes: Attribute) -> str:
    """An element; children are SVG already.

    Attributes: numbers are shortened, texts escaped, None is left out; `stroke_width` stands for stroke-width, `class_`
    for class.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, int | float) else escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(children)
    return f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>"


def words(x: float, y: float, text: str, **attributes: Attribute) -> str:
    """A text at a place."""
    return element("text", escape(text, quote=False), x=x, y=y, **attributes)


def hint(text: str) -> str:
    """What the pointer shows on the element that this is a child of."""
    return element("title", escape(text, quote=False)) if text else ""


def picture(width: float, height: float, label: str, *children: str) -> str:
    """A whole drawing. label: what it shows, for those who cannot see it."""
    return element(
        "svg", *children, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {number(width)} {number(height)}",
        width=width, height=height, role="img", aria_label=label,
    )  # fmt: skip


def width_of(text: str, size: float) -> float:
    """About how wide a text is, in the unit of its font size; East Asian letters are twice as wide."""
    letters = sum(1.8 if east_asian_width(letter) in "WF" else 1.0 for letter in text)
    return letters * FONT_WIDTH * size


def shortened(text: str, size: float, room: float) -> str:
    """The text, cut with an ellipsis where it is wider than the room."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(text, size) > room - size:
        text = text[:-1]
    return f"{text}…"


# The marks of a chart's dots, by the names that Plotly gives them; "-open" ones are outlines.

# Paths around (0, 0) in halves of the size.
PATHS = {
    "diamond": "M0 -1.25L1.25 0L0 1.25L-1.25 0Z",
    "square": "M-.95 -.95H.95V.95H-.95Z",
    "triangle-up": "M0 -1.2L1.15 .85H-1.15Z",
    "cross": "M-.4 -1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
    "x": "M-1.1 -.55L-.55 -1.1L0 -.55L.55 -1.1L1.1 -.55L.55 0L1.1 .55L.55 1.1L0 .55L-.55 1.1L-1.1 .55L-.55 0Z",
    "line-ns": "M0 -1.3V1.3",
}
OPEN = "-open"


def drawn(symbol: str, x: float, y: float, size: float, colour: str) -> str:
    """A mark of that size in pixels; a name that is not known gives a circle."""
    name, outline = symbol.removesuffix(OPEN), symbol.endswith(OPEN) or symbol.startswith("line")
    fill = "none" if outline else colour
    path = PATHS.get(name)
    if path is None:
        return element("circle", cx=x, cy=y, r=size / 2, fill=fill, stroke=colour, stroke_width=1.5)
    scale = size / 2
    return element(
        "path", d=path, transform=f"translate({x:.1f} {y:.1f}) scale({scale:g})", fill=fill, stroke=colour,
        stroke_width=1.5 / scale,
    )  # fmt: skip


# Where an axis has its ticks, and what is written there.

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    low, high: at the left or lower end, and at the other; low may be the larger.  ticks: (place, words).
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str = ""
    lines: bool = True

    def share(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def axis(low: float, high: float, *, title: str = "", form: str = "g", most: int = 7, unit: str = "") -> Axis:
    """An axis of numbers with round ticks. form: as in `format`; unit: written behind each."""
    if not high > low:
        low, high = low - 0.5, low + 0.5
    places = rounded(low, high, most)
    return Axis(low, high, tuple((place, written(place, form) + unit) for place in places), title)


def named(names: list[str], *, title: str = "", downwards: bool = False) -> Axis:
    """An axis of names, at 0, 1, 2, ...; downwards: the first is at the top."""
    ends = (-0.5, max(len(names), 1) - 0.5)
    low, high = ends[::-1] if downwards else ends
    return Axis(low, high, tuple((float(place), name) for place, name in enumerate(names)), title, lines=False)


def rounded(low: float, high: float, most: int) -> list[float]:
    """Round places between two ends, `most` at most."""
    raw = (high - low) / max(most - 1, 1)
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * step for step in STEPS if scale * step >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def written(value: float, form: str) -> str:
    """A tick's words: without a minus before nothing."""
    return format(value + 0.0 if value else 0.0, form)


def widened(values: list[float], *, zero: bool = False, room: float = 0.04) -> tuple[float, float]:
    """The ends of an axis that all finite values lie on, with some room; 0 to 1 where there are none."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    more = room * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - more, high + more
    return (min(low, 0.0) if low < 0 and min(known) < 0 else 0.0, max(high, 0.0)) if zero else (low, high)


SHADE, FAINT = 0.13, 0.06  # opacity of an area: of few, and of many that lie on each other


# Charts as SVG: lines, areas, dots with intervals and coloured cells on two axes.

WIDTH, FONT = 680.0, 12.0
MOST_LEFT = 0.4 * WIDTH  # what the names of rows may take
STROKES = {
    "solid": None, "dot": "2 3", "dash": "7 4", "dashdot": "7 3 2 3", "longdash": "12 4", "longdashdot": "12 3 2 3",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line through points; it is broken where one is not finite."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dash: str = "solid"
    width: float = 2.0


@dataclass(frozen=True)
class Area:
    """The filled area inside a closed line."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    opacity: float


@dataclass(frozen=True)
class Dot:
    """A mark at a place, with an interval where there is one: low and high lie on the axis `along`."""

    x: float
    y: float
    colour: str
    symbol: str = "circle"
    size: float = 9.0
    told: str = ""
    low: float = math.nan
    high: float = math.nan
    along: str = "x"
    opacity: float = 1.0


@dataclass(frozen=True)
class Box:
    """A coloured cell around a place, one wide and one high."""

    x: float
    y: float
    colour: str
    words: str = ""
    told: str = ""


@dataclass(frozen=True)
class Words:
    """A text at a place, moved by (dx, dy) pixels. anchor: start, middle or end."""

    x: float
    y: float
    text: str
    colour: str | None = None
    anchor: str = "middle"
    dx: float = 0.0
    dy: float = 0.0


Mark = Line | Area | Dot | Box | Words


@dataclass(frozen=True)
class Entry:
    """A name of the legend, and how its marks look: no line without a dash, no dot without a symbol."""

    name: str
    colour: str
    dash: str | None = None
    symbol: str | None = None


@dataclass(frozen=True)
class Chart:
    """A chart. height: pixels of the plot alone.  label: what it shows, for those who cannot see it."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    height: float
    label: str
    legend: Sequence[Entry] = ()


class _Frame:
    """Where the plot lies in the drawing, and where a value lies in the plot."""

    def __init__(self, chart: Chart, top: float) -> None:
        self.chart = chart
        names = max((width_of(name, FONT) for _, name in chart.y.ticks), default=0.0)
        self.left = min(names, MOST_LEFT) + 14 + (18 if chart.y.title else 0)
        self.top, self.wide, self.high = top, WIDTH - 16 - self.left, chart.height
        space = self.wide / max(len(chart.x.ticks), 1)
        self.turned = any(width_of(name, FONT) > space - 3 for _, name in chart.x.ticks)
        longest = max((width_of(name, FONT) for _, name in chart.x.ticks), default=0.0)
        self.bottom = top + self.high
        self.foot = (min(longest, 110.0) * 0.8 + 14 if self.turned else 20) + (18 if chart.x.title else 0)

    def x(self, value: float) -> float:
        return self.left + self.wide * self.chart.x.share(value)

    def y(self, value: float) -> float:
        return self.bottom - self.high * self.chart.y.share(value)

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a cell that is one wide and one high."""
        return self.wide / abs(self.chart.x.high - self.chart.x.low), self.high / abs(
            self.chart.y.high - self.chart.y.low
        )


def draw(chart: Chart) -> str:
    """The chart as SVG."""
    legend, top = _legend(chart.legend)
    frame = _Frame(chart, top)
    parts = [*legend, *_x_axis(frame), *_y_axis(frame)]
    # Cells and areas lie below, words above all.
    for kind in (Area, Box, Line, Dot, Words):
        parts += [_mark(mark, frame) for mark in chart.marks if isinstance(mark, kind)]
    return picture(WIDTH, frame.bottom + frame.foot, chart.label, *parts)


def _legend(entries: Sequence[Entry]) -> tuple[list[str], float]:
    """The legend's parts, and where the plot begins."""
    parts, x, y = [], 8.0, 14.0
    for entry in entries:
        wide = 44 + width_of(entry.name, FONT)
        if x > 8 and x + wide > WIDTH:
            x, y = 8.0, y + 18
        if entry.dash is not None:
            dash = STROKES.get(entry.dash)
            parts.append(_stroke(f"M{x:.0f} {y - 4:.0f}h22", entry.colour, dash, 2.0))
        if entry.symbol is not None:
            parts.append(drawn(entry.symbol, x + 11, y - 4, 9, entry.colour))
        parts.append(words(x + 28, y, shortened(entry.name, FONT, WIDTH - 50), class_="tick"))
        x += wide
    return parts, y + 14 if entries else 12.0


def _x_axis(frame: _Frame) -> list[str]:
    axis, parts = frame.chart.x, []
    for place, name in axis.ticks:
        x, y = frame.x(place), frame.bottom + 15
        if axis.lines:
            parts.append(element("path", d=f"M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}", class_="grid"))
        if frame.turned:
            turn = f"rotate(-52 {x + 4:.1f} {y - 3:.1f})"
            parts.append(
                words(x + 4, y - 3, shortened(name, FONT, 110), class_="tick", text_anchor="end", transform=turn)
            )
        else:
            parts.append(words(x, y, name, class_="tick", text_anchor="middle"))
    if axis.title:
        middle = frame.left + frame.wide / 2
        parts.append(words(middle, frame.bottom + frame.foot - 5, axis.title, class_="axis", text_anchor="middle"))
    return parts


def _y_axis(frame: _Frame) -> list[str]:
    axis, parts = frame.chart.y, []
    for place, name in axis.ticks:
        y = frame.y(place)
        if axis.lines:
            parts.append(element("path", d=f"M{frame.left:.1f} {y:.1f}h{frame.wide:.1f}", class_="grid"))
        cut = shortened(name, FONT, MOST_LEFT)
        parts.append(words(frame.left - 6, y + 4, cut, class_="tick", text_anchor="end"))
    if axis.title:
        middle = frame.top + frame.high / 2
        turn = f"rotate(-90 12 {middle:.1f})"
        parts.append(words(12, middle, axis.title, class_="axis", text_anchor="middle", transform=turn))
    return parts


def _mark(mark: Mark, frame: _Frame) -> str:
    match mark:
        case Line():
            return _stroke(_path(mark.x, mark.y, frame), mark.colour, STROKES.get(mark.dash), mark.width)
        case Area():
            return element("path", d=_path(mark.x, mark.y, frame) + "Z", fill=mark.colour, fill_opacity=mark.opacity)
        case Dot():
            return _dot(mark, frame)
        case Box():
            return _box(mark, frame)
        case Words():
            x, y = frame.x(mark.x) + mark.dx, frame.y(mark.y) + mark.dy + 4
            return words(x, y, mark.text, class_="tick", text_anchor=mark.anchor, style=_fill(mark.colour))


def _fill(colour: str | None) -> str | None:
    return None if colour is None else f"fill:{colour}"


def _stroke(path: str, colour: str, dash: str | None, width: float) -> str:
    return element("path", d=path, fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dash)


def _path(x: Sequence[float], y: Sequence[float], frame: _Frame) -> str:
    """Pieces of a line, each where all its points are finite."""
    points = list(zip(x, y, strict=True))
    pieces = (
        list(run) for whole, run in groupby(points, lambda p: math.isfinite(p[0]) and math.isfinite(p[1])) if whole
    )
    return "".join("M" + "L".join(f"{frame.x(a):.1f} {frame.y(b):.1f}" for a, b in piece) for piece in pieces)


def _dot(dot: Dot, frame: _Frame) -> str:
    if not (math.isfinite(dot.x) and math.isfinite(dot.y)):
        return ""
    x, y, span = frame.x(dot.x), frame.y(dot.y), ""
    if math.isfinite(dot.low) and math.isfinite(dot.high):
        across = dot.along == "x"
        ends = (frame.x(dot.low), frame.x(dot.high)) if across else (frame.y(dot.low), frame.y(dot.high))
        path = f"M{ends[0]:.1f} {y:.1f}H{ends[1]:.1f}" if across else f"M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}"
        span = _stroke(path, dot.colour, None, 1.5)
    faint = dot.opacity if dot.opacity < 1 else None
    return element("g", hint(dot.told), span, drawn(dot.symbol, x, y, dot.size, dot.colour), opacity=faint)


def _box(box: Box, frame: _Frame) -> str:
    wide, high = frame.cell
    x, y = frame.x(box.x) - wide / 2, frame.y(box.y) - high / 2
    rect = element("rect", x=x + 0.5, y=y + 0.5, width=max(wide - 1, 0.5), height=max(high - 1, 0.5), fill=box.colour)
    font = min(11.0, high - 4, (wide - 2) / (0.56 * max(len(box.words), 1)))
    inner = ""
    if box.words and font >= 6:
        inner = words(
            x + wide / 2, y + high / 2 + 0.36 * font, box.words, fill=ink_on(box.colour), font_size=font,
            text_anchor="middle",
        )  # fmt: skip
    return element("g", hint(box.told), rect, inner)
