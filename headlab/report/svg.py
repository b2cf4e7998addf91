"""Drawings as SVG text: escaped elements, symbols, axes, marks and charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from unicodedata import east_asian_width

from headlab.pictures import ink_on, on_scale

# SVG as text: attributes and text are escaped here and nowhere else.

FONT_WIDTH = 0.56  # mean width of a letter, in font sizes; slightly too wide, since browsers differ
Attribute = str | float | None


def number(value: float) -> str:
    """A coordinate with at most two decimals, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def element(name: str, *children: str, **attributes: Attribute) -> str:
    """An SVG element. children: SVG already.

    attributes: numbers are shortened, strings escaped, None omitted; `stroke_width` stands for stroke-width, `class_`
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
    """Text at a position."""
    return element("text", escape(text, quote=False), x=x, y=y, **attributes)


def hint(text: str) -> str:
    """A tooltip for the parent element; empty for an empty text."""
    return element("title", escape(text, quote=False)) if text else ""


def picture(width: float, height: float, label: str, *children: str) -> str:
    """A whole drawing. label: what it shows, for screen readers."""
    return element(
        "svg", *children, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {number(width)} {number(height)}",
        width=width, height=height, role="img", aria_label=label,
    )  # fmt: skip


def width_of(text: str, size: float) -> float:
    """Approximate width of a text, in the unit of its font size; East Asian characters count 1.8 times."""
    letters = sum(1.8 if east_asian_width(letter) in "WF" else 1.0 for letter in text)
    return letters * FONT_WIDTH * size


def shortened(text: str, size: float, room: float) -> str:
    """The text, cut with an ellipsis if it is wider than the room."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(text, size) > room - size:
        text = text[:-1]
    return f"{text}…"


# Words on shaded ground.

CHIP, PAGE, PAD = 14, 900, 6  # font size, width of the drawing, and room around a word, in pixels


def shaded(
    rows: Sequence[tuple[str, Sequence[tuple[str, float, bool]]]],
    colour: str,
    label: str,
    *,
    rtl: bool,
) -> str:
    """Words in lines, each on its share of a colour, below a title for each row; a drawing that stands alone.

    rows: (title, [(word, share from 0 to 1, whether it is framed)]).  rtl: lines run from right to left.
    """
    parts, y = [], 0.0
    for title, chips in rows:
        parts.append(words(PAD, y + 18, title, font_weight="bold"))
        x, y = float(PAD), y + 28
        for word, share, framed in chips:
            wide = width_of(word, CHIP) + 2 * PAD
            if x + wide > PAGE and x > PAD:
                x, y = float(PAD), y + 30
            left, ground = (
                (PAGE - x - wide if rtl else x),
                on_scale(((0.0, "#ffffff"), (1.0, colour)), 0.7 * share),
            )
            line = {
                "stroke": "#222222" if framed else "#cccccc",
                "stroke_width": 2 if framed else 1,
            }
            parts.append(
                element("rect", x=left, y=y, width=wide, height=24, rx=3, fill=ground, **line)
            )
            parts.append(
                words(left + wide / 2, y + 17, word, fill=ink_on(ground), text_anchor="middle")
            )
            x += wide + 3
        y += 34
    ground = element("rect", width=PAGE, height=y, fill="#ffffff")
    return picture(
        PAGE, y, label, element("g", ground, *parts, font_family="sans-serif", font_size=CHIP)
    )


# Symbols of a chart's dots, by Plotly's names; "-open" ones are outlines.

# Paths around (0, 0), in units of half the size.
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
    """A symbol of a size in pixels; an unknown name gives a circle."""
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


# Axes: positions and labels of their ticks.

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    low, high: values at the left or lower end and at the other end; low may be the larger.  ticks: (position, label).
    lines: whether to draw grid lines.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str = ""
    lines: bool = True

    def share(self, value: float) -> float:
        """Position of a value between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def axis(
    low: float, high: float, *, title: str = "", form: str = "g", most: int = 7, unit: str = ""
) -> Axis:
    """An axis of numbers with at most `most` round ticks. form: as in `format`.  unit: appended to each label."""
    if not high > low:
        low, high = low - 0.5, low + 0.5
    places = rounded(low, high, most)
    return Axis(low, high, tuple((place, written(place, form) + unit) for place in places), title)


def named(names: list[str], *, title: str = "", downwards: bool = False) -> Axis:
    """An axis of names at 0, 1, 2, ... downwards: whether the first is at the top."""
    ends = (-0.5, max(len(names), 1) - 0.5)
    low, high = ends[::-1] if downwards else ends
    return Axis(
        low,
        high,
        tuple((float(place), name) for place, name in enumerate(names)),
        title,
        lines=False,
    )


def rounded(low: float, high: float, most: int) -> list[float]:
    """At most `most` round numbers between two ends."""
    raw = (high - low) / max(most - 1, 1)
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * step for step in STEPS if scale * step >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def written(value: float, form: str) -> str:
    """A tick's label; zero has no minus sign."""
    return format(value + 0.0 if value else 0.0, form)


def widened(values: list[float], *, zero: bool = False) -> tuple[float, float]:
    """The ends of an axis that holds all finite values, with some room; 0 to 1 if there are none."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    more = 0.04 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - more, high + more
    return (
        (min(low, 0.0) if low < 0 and min(known) < 0 else 0.0, max(high, 0.0))
        if zero
        else (low, high)
    )


SHADE, FAINT = 0.13, 0.06  # opacity of an area: for few areas, and for many that overlap


# Charts as SVG: lines, areas, dots with intervals and coloured cells on two axes.

WIDTH, FONT = 680.0, 12.0
MOST_LEFT = 0.4 * WIDTH  # maximum width of the row names
STROKES = {
    "solid": None, "dot": "2 3", "dash": "7 4", "dashdot": "7 3 2 3", "longdash": "12 4", "longdashdot": "12 3 2 3",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line through points, broken where a point is not finite."""

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
    """A symbol at a position. low, high: ends of its interval along the axis `along`, NaN for none.  told: tooltip."""

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
    """A coloured cell around a position, one unit wide and high. told: tooltip."""

    x: float
    y: float
    colour: str
    words: str = ""
    told: str = ""


@dataclass(frozen=True)
class Words:
    """Text at a position, shifted by (dx, dy) pixels. anchor: start, middle or end."""

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
    """An entry of the legend. dash, symbol: style of its line and dot; None draws none."""

    name: str
    colour: str
    dash: str | None = None
    symbol: str | None = None


@dataclass(frozen=True)
class Chart:
    """A chart. height: of the plot alone, in pixels.  label: what it shows, for screen readers."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    height: float
    label: str
    legend: Sequence[Entry] = ()


class _Frame:
    """Position of the plot in the drawing, and of values in the plot."""

    def __init__(self, chart: Chart, top: float) -> None:
        self.chart = chart
        names = max((width_of(name, FONT) for _, name in chart.y.ticks), default=0.0)
        self.left = min(names, MOST_LEFT) + 14 + (18 if chart.y.title else 0)
        self.top, self.wide, self.high = top, WIDTH - 16 - self.left, chart.height
        space = self.wide / max(len(chart.x.ticks), 1)
        self.turned = any(width_of(name, FONT) > space - 3 for _, name in chart.x.ticks)
        longest = max((width_of(name, FONT) for _, name in chart.x.ticks), default=0.0)
        self.bottom = top + self.high
        self.foot = (min(longest, 110.0) * 0.8 + 14 if self.turned else 20) + (
            18 if chart.x.title else 0
        )

    def x(self, value: float) -> float:
        return self.left + self.wide * self.chart.x.share(value)

    def y(self, value: float) -> float:
        return self.bottom - self.high * self.chart.y.share(value)

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height in pixels of a cell of one by one unit."""
        return self.wide / abs(self.chart.x.high - self.chart.x.low), self.high / abs(
            self.chart.y.high - self.chart.y.low
        )


def draw(chart: Chart) -> str:
    """The chart as SVG."""
    legend, top = _legend(chart.legend)
    frame = _Frame(chart, top)
    parts = [*legend, *_x_axis(frame), *_y_axis(frame)]
    # Areas and cells at the bottom, text on top.
    for kind in (Area, Box, Line, Dot, Words):
        parts += [_mark(mark, frame) for mark in chart.marks if isinstance(mark, kind)]
    return picture(WIDTH, frame.bottom + frame.foot, chart.label, *parts)


def _legend(entries: Sequence[Entry]) -> tuple[list[str], float]:
    """The legend's elements, and the top of the plot in pixels."""
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
            parts.append(
                element("path", d=f"M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}", class_="grid")
            )
        if frame.turned:
            turn = f"rotate(-52 {x + 4:.1f} {y - 3:.1f})"
            parts.append(
                words(
                    x + 4,
                    y - 3,
                    shortened(name, FONT, 110),
                    class_="tick",
                    text_anchor="end",
                    transform=turn,
                )
            )
        else:
            parts.append(words(x, y, name, class_="tick", text_anchor="middle"))
    if axis.title:
        middle = frame.left + frame.wide / 2
        parts.append(
            words(
                middle,
                frame.bottom + frame.foot - 5,
                axis.title,
                class_="axis",
                text_anchor="middle",
            )
        )
    return parts


def _y_axis(frame: _Frame) -> list[str]:
    axis, parts = frame.chart.y, []
    for place, name in axis.ticks:
        y = frame.y(place)
        if axis.lines:
            parts.append(
                element("path", d=f"M{frame.left:.1f} {y:.1f}h{frame.wide:.1f}", class_="grid")
            )
        cut = shortened(name, FONT, MOST_LEFT)
        parts.append(words(frame.left - 6, y + 4, cut, class_="tick", text_anchor="end"))
    if axis.title:
        middle = frame.top + frame.high / 2
        turn = f"rotate(-90 12 {middle:.1f})"
        parts.append(
            words(12, middle, axis.title, class_="axis", text_anchor="middle", transform=turn)
        )
    return parts


def _mark(mark: Mark, frame: _Frame) -> str:
    match mark:
        case Line():
            return _stroke(
                _path(mark.x, mark.y, frame), mark.colour, STROKES.get(mark.dash), mark.width
            )
        case Area():
            return element(
                "path",
                d=_path(mark.x, mark.y, frame) + "Z",
                fill=mark.colour,
                fill_opacity=mark.opacity,
            )
        case Dot():
            return _dot(mark, frame)
        case Box():
            return _box(mark, frame)
        case Words():
            x, y = frame.x(mark.x) + mark.dx, frame.y(mark.y) + mark.dy + 4
            style = None if mark.colour is None else f"fill:{mark.colour}"
            return words(x, y, mark.text, class_="tick", text_anchor=mark.anchor, style=style)


def _stroke(path: str, colour: str, dash: str | None, width: float) -> str:
    return element(
        "path", d=path, fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dash
    )


def _path(x: Sequence[float], y: Sequence[float], frame: _Frame) -> str:
    """SVG path of a line, in pieces whose points are all finite."""
    points = list(zip(x, y, strict=True))
    pieces = (
        list(run)
        for whole, run in groupby(points, lambda p: math.isfinite(p[0]) and math.isfinite(p[1]))
        if whole
    )
    return "".join(
        "M" + "L".join(f"{frame.x(a):.1f} {frame.y(b):.1f}" for a, b in piece) for piece in pieces
    )


def _dot(dot: Dot, frame: _Frame) -> str:
    if not (math.isfinite(dot.x) and math.isfinite(dot.y)):
        return ""
    x, y, span = frame.x(dot.x), frame.y(dot.y), ""
    if math.isfinite(dot.low) and math.isfinite(dot.high):
        across = dot.along == "x"
        ends = (
            (frame.x(dot.low), frame.x(dot.high))
            if across
            else (frame.y(dot.low), frame.y(dot.high))
        )
        path = (
            f"M{ends[0]:.1f} {y:.1f}H{ends[1]:.1f}"
            if across
            else f"M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}"
        )
        span = _stroke(path, dot.colour, None, 1.5)
    faint = dot.opacity if dot.opacity < 1 else None
    return element(
        "g", hint(dot.told), span, drawn(dot.symbol, x, y, dot.size, dot.colour), opacity=faint
    )


def _box(box: Box, frame: _Frame) -> str:
    wide, high = frame.cell
    x, y = frame.x(box.x) - wide / 2, frame.y(box.y) - high / 2
    rect = element(
        "rect",
        x=x + 0.5,
        y=y + 0.5,
        width=max(wide - 1, 0.5),
        height=max(high - 1, 0.5),
        fill=box.colour,
    )
    font = min(11.0, high - 4, (wide - 2) / (0.56 * max(len(box.words), 1)))
    inner = ""
    if box.words and font >= 6:
        inner = words(
            x + wide / 2, y + high / 2 + 0.36 * font, box.words, fill=ink_on(box.colour), font_size=font,
            text_anchor="middle",
        )  # fmt: skip
    return element("g", hint(box.told), rect, inner)
