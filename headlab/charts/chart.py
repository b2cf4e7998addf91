"""What a chart shows, described once for pages, documents and files.

`headlab.plots.drawing` draws a chart by Plotly, `headlab.charts.static` as SVG and PNG. Neither is
imported here.
All texts are plain: a drawer escapes what its library would take for markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from headlab.core import Floats, Ints
from headlab.pictures import DIVERGING, UNSURE, Scale

Anchor = Literal["left", "center", "right"]  # the edge of a text that stands at its place
Numbers = Sequence[float] | Floats | Ints
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
TICK = "line-ns"  # a short upright line, as a symbol
OPEN = "-open"  # ends the name of a symbol that is an outline by its nature
RING = f"circle{OPEN}"
USUAL_SIZE = 9.0  # of a symbol, in pixels
SHADE = 0.13
FAINT_SHADE = 0.06  # opacity of an area: of few areas, and of many that overlap
FADED = 0.4  # opacity of points that are beside the matter
USUAL_HEIGHT = 410.0  # of a chart that does not say its own, in pixels


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes:
        title: What it measures, with its unit.
        limits: Values at its start (left or bottom) and at its end; the first may be the larger.
            None: as the values need.
        ticks: Positions and labels of its ticks; None for round numbers.
        number_format: Of round numbers, as in `format`.
        has_zero: Whether the axis reaches to 0.
        has_grid: Whether lines cross the plot at its ticks.
        is_on_top: Whether a horizontal axis stands above the plot.
    """

    title: str = ""
    limits: tuple[float, float] | None = None
    ticks: tuple[tuple[float, str], ...] | None = None
    number_format: str = ""
    has_zero: bool = False
    has_grid: bool = True
    is_on_top: bool = False


@dataclass(frozen=True)
class Cells:
    """A coloured cell for each row and column, the first row on top; it is a chart's only series.

    Attributes:
        rows: Names of the rows.
        columns: Names of the columns; None counts them from 0.
        values: Float [row, column], NaN for a cell without one.
        texts: [row][column], what stands on each cell.
        scale: Colours of the values.
        low: The value at the scale's start.
        high: The value at its end; None for the largest one.
        scale_title: Title of the key to the colours; without one there is no key.
        scale_step: Distance between the key's numbers; None for a usual one.
        tip: Text that describes a cell, with {row}, {column}, {value}, {text} and {details} to be
            filled in.
        details: [row][column], more about each cell, for `tip`.
        are_texts_drawn: Whether the texts stand on the cells, or only in their tips.
    """

    rows: Sequence[str]
    columns: Sequence[str] | None
    values: Floats
    texts: Sequence[Sequence[str]]
    low: float
    high: float | None
    scale: Scale = DIVERGING
    scale_title: str = ""
    scale_step: float | None = None
    tip: str = "{row}, {column}: {text}"
    details: Sequence[Sequence[str]] = ()
    are_texts_drawn: bool = True

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, or their numbers."""
        if self.columns is not None:
            return list(self.columns)
        return [str(number) for number in range(self.values.shape[1])]

    @property
    def limits(self) -> tuple[float, float]:
        """The values at the ends of the scale, which differ."""
        largest = float(np.nanmax(self.values, initial=self.low))
        high = largest if self.high is None else self.high
        return self.low, high if high > self.low else self.low + 1

    def tip_of(self, row: int, column: int) -> str:
        """The text that describes one cell."""
        details = self.details[row][column] if len(self.details) else ""
        return self.tip.format(
            row=self.rows[row],
            column=self.column_names[column],
            value=float(self.values[row, column]),
            text=self.texts[row][column],
            details=details,
        )


@dataclass(frozen=True)
class Points:
    """Dots, each with its interval where it has one.

    Attributes:
        name: What the legend calls them.
        x: Float [point].
        y: Float [point].
        colour: "#rrggbb".
        symbol: One of SYMBOLS, TICK or RING.
        is_filled: Bool [point]; the others are outlines.
        sizes: In pixels: one of all points, or one of each.
        is_faint: Bool [point], whether a point is drawn faintly; empty for none.
        outline: Width of the symbols' outline in pixels; None for the usual one.
        low: Float [point], lower ends of the intervals, NaN for none; empty where no point has one.
        high: Float [point], their upper ends.
        along: "x" or "y": the axis of the intervals.
        interval_width: Of their lines, in pixels.
        joined_by: Dashes of a thin line through the points, as of a `Line`; empty for none.
        texts: A text about each point, for `tip`.
        tip: Text that describes a point, with {name} and {text} to be filled in; empty for none.
        keys: What a click on each point gives; empty where nothing can be clicked.
    """

    name: str
    x: Numbers
    y: Numbers
    colour: str
    symbol: str
    is_filled: Sequence[bool]
    sizes: float | Sequence[float] = USUAL_SIZE
    is_faint: Sequence[bool] = ()
    outline: float | None = None
    low: Numbers = ()
    high: Numbers = ()
    along: str = "x"
    interval_width: float = 1.5
    joined_by: str = ""
    texts: Sequence[str] = ()
    tip: str = "{text}"
    keys: Sequence[tuple[str | int, ...]] = ()

    def size_of(self, point: int) -> float:
        """The size of one point, in pixels."""
        return float(self.sizes[point] if isinstance(self.sizes, Sequence) else self.sizes)

    def interval_of(self, point: int) -> tuple[float, float] | None:
        """The ends of one point's interval; None if it has none."""
        if not len(self.low):
            return None
        ends = float(self.low[point]), float(self.high[point])
        if all(map(math.isfinite, ends)):
            return ends
        return None

    def tip_of(self, point: int) -> str:
        """The text that describes one point; empty for none."""
        text = self.texts[point] if len(self.texts) else ""
        return self.tip.format(name=self.name, text=text)


@dataclass(frozen=True)
class Line:
    """A line through points, broken where a value is not finite.

    Attributes:
        name: What the legend, or the label beside it, calls it.
        x: Float [point].
        y: Float [point].
        colour: "#rrggbb".
        dashes: One of `pictures.DASHES`, or "dot".
        width: In pixels.
        is_step: Whether it goes level first, then up or down.
        tip: Text that describes a point, with {name}, {x}, {y} and {details[0]}, {details[1]}, ...
            to be filled in; empty for none.
        details: Float [point, detail], for `tip`.
        is_in_legend: Whether the legend names it.
    """

    name: str
    x: Numbers
    y: Numbers
    colour: str
    dashes: str = "solid"
    width: float = 2.0
    is_step: bool = False
    tip: str = ""
    details: Floats | None = None
    is_in_legend: bool = True


@dataclass(frozen=True)
class Band:
    """The area between two lines.

    Attributes:
        x: Float [point].
        low: Float [point].
        high: Float [point].
        colour: "#rrggbb".
        opacity: From 0 to 1.
    """

    x: Numbers
    low: Numbers
    high: Numbers
    colour: str
    opacity: float = SHADE


@dataclass(frozen=True)
class Rule:
    """A straight line across the whole plot.

    Attributes:
        axis: "x" for an upright line at a value of x, "y" for a level one at a value of y.
        value: Where it stands.
        dashes: As of a `Line`.
        width: In pixels.
        colour: "#rrggbb".
    """

    axis: str
    value: float
    dashes: str = "dot"
    width: float = 1.0
    colour: str = UNSURE


@dataclass(frozen=True)
class Note:
    """A text in the plot.

    Attributes:
        x: Where it stands.
        y: Where it stands.
        text: What it says.
        colour: "#rrggbb"; None for that of other text.
        anchor: "left", "center" or "right": its edge that stands there.
        shift: Pixels to the right and upwards.
        size: Of the font, in pixels.
    """

    x: float
    y: float
    text: str
    colour: str | None = None
    anchor: Anchor = "center"
    shift: tuple[float, float] = (0.0, 0.0)
    size: float = 12.0


Series = Cells | Points | Line | Band


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: What it shows, for screen readers.
        series: Drawn in this order, the first at the bottom.
        x: The horizontal axis.
        y: The upright axis.
        rules: Lines across the plot.
        notes: Texts in the plot.
        height: Of the whole on a page, in pixels.
        has_legend: Whether a legend names the series; None: where there are several.
        is_clickable: Whether a click on a point chooses it, on a page.
        is_selectable: Whether an area that is drawn around points chooses them, on a page.
    """

    title: str
    series: Sequence[Series]
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    rules: Sequence[Rule] = ()
    notes: Sequence[Note] = ()
    height: float = USUAL_HEIGHT
    has_legend: bool | None = None
    is_clickable: bool = False
    is_selectable: bool = False

    @property
    def cells(self) -> Cells | None:
        """Its cells, if it is a matrix."""
        return next((series for series in self.series if isinstance(series, Cells)), None)

    @property
    def named(self) -> list[Points | Line]:
        """The series that a legend names."""
        return [
            series
            for series in self.series
            if (isinstance(series, Points) and series.name)
            or (isinstance(series, Line) and series.name and series.is_in_legend)
        ]

    @property
    def description(self) -> str:
        """What it is made of, in a few sentences for screen readers."""
        return " ".join(_sentences(self))


def _sentences(chart: Chart) -> Iterator[str]:
    cells = chart.cells
    if cells is not None:
        yield f"Rows: {', '.join(cells.rows)}."
        yield f"Columns: {', '.join(cells.column_names)}."
        finite = cells.values[np.isfinite(cells.values)]
        if finite.size:
            ends = f"{finite.min():.3g} to {finite.max():.3g}"
            unit = f" ({cells.scale_title})" if cells.scale_title else ""
            yield f"Values from {ends}{unit}."
        return
    axes = [axis.title for axis in (chart.x, chart.y) if axis.title]
    if axes:
        yield f"Axes: {'; '.join(axes)}."
    if chart.y.ticks and chart.x.ticks is None:
        yield f"Rows: {', '.join(label for _, label in chart.y.ticks)}."
    if chart.named:
        yield f"Series: {', '.join(series.name for series in chart.named)}."
