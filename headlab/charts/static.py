"""Charts drawn by matplotlib as SVG and PNG, without a browser.

Import this module only where a file is drawn.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D, Bbox, TransformedBbox

from headlab.charts.chart import (
    FADED,
    OPEN,
    TICK,
    USUAL_SIZE,
    Anchor,
    Axis,
    Band,
    Cells,
    Chart,
    Line,
    Note,
    Points,
    Rule,
)
from headlab.charts.fonts import USUAL, families_for, shortened, width_of
from headlab.charts.svg_text import INK, RULED, SOFT, Tips, finished
from headlab.pictures import MINUS, colour_on_scale, ink_on

# Sizes are in pixels, of which 96 make an inch: a chart is seven inches wide, as text of a page is.
WIDTH = 680.0
PIXELS_PER_INCH = 96
POINTS_PER_INCH = 72
PRINTED_PER_INCH = 300  # pixels of a PNG file
FONT_SIZE = 12.0
RIGHT_MARGIN = 16.0
GAP = 6.0
TITLE_HEIGHT = 18.0
LEGEND_TOP = 16.0
LEGEND_ROW = 18.0
MAX_ROW_NAME = 0.4 * WIDTH  # for the names of rows
MAX_TURNED_NAME = 110.0  # for a turned name of a column
TURN_DEGREES = 52.0  # degrees
ROW_HEIGHT = 24.0
MIN_PLOT_HEIGHT = 60.0  # of a matrix's row, and of any plot
HEIGHT_WITHOUT_PLOT = 110.0  # pixels of a chart's height on a page that are not the plot's
MAX_TICKS = 7
TICK_STEPS = (1, 2, 2.5, 5, 10)
USUAL_OUTLINE = 1.5  # of a symbol
KEY_WIDTH = 240.0
KEY_STRIP = 10.0
KEY_HEIGHT = 46.0
KEY_SHADES = 24
CAPTION_FONT_SIZE = 10.5
CAPTION_LINE = 15.0
CELL_FONT_SIZE = 11.0
MIN_CELL_FONT_SIZE = 6.0
BASELINE = 0.36  # from the middle of a line of text down to its baseline, in sizes of its font
MARKERS = {
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "triangle-up": "^",
    "cross": "P",
    "x": "X",
    TICK: "|",
}
SMALLER = {"diamond": 0.85, "square": 0.9}  # symbols that look larger than the others
# Lengths of strokes and gaps in pixels.
DASH_LENGTHS = {
    "dot": (2, 3),
    "dash": (7, 4),
    "dashdot": (7, 3, 2, 3),
    "longdash": (12, 4),
    "longdashdot": (12, 3, 2, 3),
}
# In which order parts of the plot are drawn, below boxes, symbols and text.
GRID = -3
BANDS = -2
LINES = -1
_LOCK = Lock()  # matplotlib's settings are global


@contextmanager
def _settings(families: Sequence[str]) -> Iterator[None]:
    """Matplotlib's defaults but for a few, whatever the machine's are; one drawing at a time."""
    with _LOCK, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": list(families),
                "svg.fonttype": "none",  # text stays text
                "svg.hashsalt": "headlab",  # equal charts have equal bytes
                "text.parse_math": False,  # a $ is a $
                "lines.scale_dashes": False,
                "path.simplify": False,
            }
        )
        yield


def svg(chart: Chart, *, is_inline: bool = False) -> str:
    """The chart as SVG: text as text, no script, and equal bytes for equal charts.

    Args:
        chart: What to draw.
        is_inline: Whether it stands in an HTML document. The document's style sheet then gives the
            font, and the colours as --ink, --soft and --line; otherwise the chart has its own, dark
            on white.

    Returns:
        An element `svg`.
    """
    with _settings([USUAL]):
        drawing = _drawn(chart, POINTS_PER_INCH)
        buffer = io.StringIO()
        renderer = RendererSVG(  # type: ignore[no-untyped-call]
            WIDTH,
            drawing.layout.height,
            buffer,
            image_dpi=POINTS_PER_INCH,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
        for artist in sorted(drawing.artists, key=lambda artist: artist.get_zorder()):
            artist.draw(renderer)
        renderer.finalize()  # type: ignore[no-untyped-call]
    return finished(buffer.getvalue().encode(), chart, drawing.tips, is_inline=is_inline)


def png(chart: Chart) -> bytes:
    """The chart as a PNG file, dark on white, seven inches wide at 300 dots per inch.

    Args:
        chart: What to draw.

    Returns:
        The file's bytes, equal for equal charts and fonts.

    Raises:
        HeadlabError: No font on this machine has one of its letters.
    """
    # Drawings as SVG need none of it, and it takes long to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    families = families_for(texts_of(chart))
    resolution = PRINTED_PER_INCH * POINTS_PER_INCH / PIXELS_PER_INCH
    with _settings(families):
        drawing = _drawn(chart, resolution)
        inches = (WIDTH / POINTS_PER_INCH, drawing.layout.height / POINTS_PER_INCH)
        figure = Figure(inches, dpi=resolution)
        FigureCanvasAgg(figure)
        for artist in drawing.artists:
            figure.add_artist(artist)
        buffer = io.BytesIO()
        figure.savefig(
            buffer,
            format="png",
            dpi=resolution,
            facecolor="white",
            metadata={"Software": None, "Title": chart.title},
            pil_kwargs={"dpi": (PRINTED_PER_INCH, PRINTED_PER_INCH)},
        )
    return buffer.getvalue()


def captioned_png(chart: Chart, caption: str) -> bytes:
    """The chart as a PNG file as by `png`, with lines of text below it.

    Args:
        chart: What to draw.
        caption: What is to be known of it, which is broken into lines as wide as the chart.

    Returns:
        The file's bytes, equal for equal charts, captions and fonts.

    Raises:
        HeadlabError: No font on this machine has one of the letters.
    """
    from matplotlib.image import imread, imsave

    lines = wrapped(caption, CAPTION_FONT_SIZE, WIDTH - 2 * RIGHT_MARGIN)
    chart_pixels = imread(io.BytesIO(png(chart)))
    caption_pixels = imread(io.BytesIO(_lines_png(lines)))
    buffer = io.BytesIO()
    imsave(
        buffer,
        np.concatenate([chart_pixels, caption_pixels]),
        format="png",
        dpi=PRINTED_PER_INCH,
        metadata={"Software": "headlab", "Title": chart.title, "Description": caption},
    )
    return buffer.getvalue()


def _lines_png(lines: Sequence[str]) -> bytes:
    """Lines of text as a PNG file, as wide as a chart."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = CAPTION_LINE * len(lines) + RIGHT_MARGIN
    resolution = PRINTED_PER_INCH * POINTS_PER_INCH / PIXELS_PER_INCH
    with _settings(families_for(lines)):
        figure = Figure((WIDTH / POINTS_PER_INCH, height / POINTS_PER_INCH), dpi=resolution)
        FigureCanvasAgg(figure)
        for number, line in enumerate(lines):
            figure.text(
                RIGHT_MARGIN / WIDTH,
                1 - (number + 0.5) * CAPTION_LINE / height,
                line,
                fontsize=CAPTION_FONT_SIZE,
                color=INK,
                verticalalignment="center",
            )
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=resolution, facecolor="white")
    return buffer.getvalue()


def wrapped(text: str, size: float, room: float) -> list[str]:
    """A text in lines that are no wider than the room, but for single long words.

    Args:
        text: Words with spaces between them.
        size: Of its font, in the unit of the room.
        room: Width of a line.
    """
    lines: list[str] = []
    for word in text.split():
        longer_line = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer_line, size) <= room:
            lines[-1] = longer_line
        else:
            lines.append(word)
    return lines


def texts_of(chart: Chart) -> list[str]:
    """All that stands on a drawn chart: titles, names, notes and the texts of cells."""
    axes = _scaled_axes(chart)
    texts = [chart.x.title, chart.y.title, *(series.name for series in chart.named)]
    texts += [label for axis in axes for _, label in axis.ticks]
    texts += [note.text for note in chart.notes]
    cells = chart.cells
    if cells is not None:
        texts += [text for row in cells.texts for text in row] if cells.are_texts_drawn else []
        texts.append(cells.scale_title)
    return [text for text in texts if text]


# Axes with numbers in place of what is left open.


class _ScaledAxis(NamedTuple):
    """An axis with its ends and ticks.

    Attributes:
        axis: As the chart describes it.
        low: Value at its start, which may be the larger.
        high: Value at its end.
        ticks: Positions and labels.
    """

    axis: Axis
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def share(self, value: float) -> float:
        """Position of a value between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def inside(self, value: float) -> float:
        """The value, or the end that it lies beyond."""
        return min(max(value, min(self.low, self.high)), max(self.low, self.high))

    def holds(self, value: float) -> bool:
        """Whether a value is finite and lies between the ends."""
        return math.isfinite(value) and -1e-9 <= self.share(value) <= 1 + 1e-9


def _scaled_axes(chart: Chart) -> tuple[_ScaledAxis, _ScaledAxis]:
    cells = chart.cells
    if cells is not None:
        columns = cells.column_names
        rows = list(cells.rows)
        return (
            _ScaledAxis(chart.x, -0.5, max(len(columns), 1) - 0.5, _numbered(columns)),
            _ScaledAxis(chart.y, max(len(rows), 1) - 0.5, -0.5, _numbered(rows)),
        )
    return _scaled(chart, "x"), _scaled(chart, "y")


def _numbered(names: Sequence[str]) -> list[tuple[float, str]]:
    return [(float(index), name) for index, name in enumerate(names)]


def _scaled(chart: Chart, axis_name: str) -> _ScaledAxis:
    axis: Axis = getattr(chart, axis_name)
    low, high = axis.limits or _limits(list(_values(chart, axis_name)), has_zero=axis.has_zero)
    if low == high:
        low = low - 0.5
        high = high + 0.5
    if axis.ticks is not None:
        return _ScaledAxis(axis, low, high, axis.ticks)
    smallest = min(low, high)
    largest = max(low, high)
    positions = MaxNLocator(nbins=MAX_TICKS, steps=TICK_STEPS).tick_values(smallest, largest)
    tolerance = 1e-9 * (largest - smallest)
    tick_positions = [
        float(position)
        for position in positions
        if smallest - tolerance <= position <= largest + tolerance
    ]
    ticks = [(position, _number_text(position, axis.number_format)) for position in tick_positions]
    return _ScaledAxis(axis, low, high, ticks)


def _number_text(value: float, number_format: str) -> str:
    """A tick's label; zero has no sign."""
    return format(round(value, 12) + 0.0, number_format or "g").replace("-", MINUS)


def _values(chart: Chart, axis_name: str) -> Iterator[float]:
    """All values that an axis must have room for."""
    for series in chart.series:
        match series:
            case Line():
                yield from map(float, getattr(series, axis_name))
            case Band():
                sides = (series.x,) if axis_name == "x" else (series.low, series.high)
                for values in sides:
                    yield from map(float, values)
            case Points():
                yield from map(float, getattr(series, axis_name))
                if series.along == axis_name:
                    yield from map(float, series.low)
                    yield from map(float, series.high)


def _limits(values: Sequence[float], *, has_zero: bool) -> tuple[float, float]:
    """The ends of an axis with room for all finite values; 0 to 1 if there are none.

    Args:
        values: What is drawn on the axis.
        has_zero: Whether 0 must lie on the axis, at its end or between.
    """
    finite_values = [value for value in values if math.isfinite(value)]
    if not finite_values:
        return 0.0, 1.0
    low = min(finite_values)
    high = max(finite_values)
    # A share of the range; where all values are equal, of the value; where all are 0, a half.
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 0.5
    if not has_zero:
        return low - margin, high + margin
    start = low - margin if low < 0 else 0.0
    end = max(high + margin, 0.0)
    return start, end


# Where everything stands.


@dataclass(frozen=True)
class _Layout:
    """Places in the drawing, in pixels from its upper left corner.

    Attributes:
        x: The horizontal axis.
        y: The upright axis.
        legend: Its rows, each of (x, series).
        left: Margin of the plot.
        right: Margin of the plot.
        top: Upper edge of the plot.
        plot_height: Of the plot.
        height: Of the whole drawing.
        are_turned: Whether the labels of the horizontal axis are.
        labels_height: Of these labels.
    """

    x: _ScaledAxis
    y: _ScaledAxis
    legend: Sequence[Sequence[tuple[float, Points | Line]]]
    left: float
    right: float
    top: float
    plot_height: float
    height: float
    are_turned: bool
    labels_height: float

    @property
    def plot_width(self) -> float:
        return WIDTH - self.right - self.left

    @property
    def bottom(self) -> float:
        """Lower edge of the plot."""
        return self.top + self.plot_height

    def x_pixel(self, value: float) -> float:
        return self.left + self.plot_width * self.x.share(value)

    def y_pixel(self, value: float) -> float:
        return self.bottom - self.plot_height * self.y.share(value)


def _layout(chart: Chart) -> _Layout:
    x, y = _scaled_axes(chart)
    legend = _legend_rows(chart)
    widest_row_name = max((width_of(label, FONT_SIZE) for _, label in y.ticks), default=0.0)
    left = min(widest_row_name, MAX_ROW_NAME) + 14 + (TITLE_HEIGHT if y.axis.title else 0)
    spacing = (WIDTH - RIGHT_MARGIN - left) / max(len(x.ticks), 1)
    label_widths = [width_of(label, FONT_SIZE) for _, label in x.ticks]
    are_turned = any(width > spacing - 4 for width in label_widths)
    right = RIGHT_MARGIN
    if are_turned and x.axis.is_on_top:  # the last label leans out of the plot
        turned_width = min(label_widths[-1], MAX_TURNED_NAME) * math.cos(math.radians(TURN_DEGREES))
        right = max(right, turned_width - spacing / 2 + GAP)
    turned_height = (
        min(max(label_widths, default=0.0), MAX_TURNED_NAME) * math.sin(math.radians(TURN_DEGREES))
        + 14
    )
    labels_height = turned_height if are_turned else 20.0
    x_axis_height = labels_height + (TITLE_HEIGHT if x.axis.title else 0)
    above = LEGEND_TOP + LEGEND_ROW * len(legend) if legend else 12.0
    above += x_axis_height if x.axis.is_on_top else 0
    below = 6.0 if x.axis.is_on_top else x_axis_height
    cells = chart.cells
    plot_height = (
        ROW_HEIGHT * len(cells.rows) if cells is not None else chart.height - HEIGHT_WITHOUT_PLOT
    )
    plot_height = max(plot_height, MIN_PLOT_HEIGHT)
    if cells is not None and cells.scale_title:
        below += KEY_HEIGHT
    return _Layout(
        x,
        y,
        legend,
        left,
        right,
        above,
        plot_height,
        above + plot_height + below,
        are_turned,
        labels_height,
    )


def _legend_rows(chart: Chart) -> list[list[tuple[float, Points | Line]]]:
    has_legend = len(chart.named) > 1 if chart.has_legend is None else chart.has_legend
    rows: list[list[tuple[float, Points | Line]]] = []
    x = WIDTH
    for series in chart.named if has_legend else ():
        width = 44 + width_of(series.name, FONT_SIZE)
        if x > 8 and x + width > WIDTH:
            rows.append([])
            x = 8.0
        rows[-1].append((x, series))
        x += width
    return rows


# The drawing.


class _Text(Text):
    """One line of text from its baseline.

    SVG that keeps text as text needs no layout by a font, which takes longer than all else.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw the text; matplotlib calls it."""
        if not isinstance(renderer, RendererSVG):
            super().draw(renderer)
            return
        graphics = renderer.new_gc()
        graphics.set_foreground(self.get_color())
        font = self.get_fontproperties()
        turn = self.get_rotation()
        x, above_bottom = self.get_transform().transform(self.get_unitless_position())
        y = renderer.height - above_bottom
        renderer.draw_text(  # type: ignore[no-untyped-call]
            graphics, x, y, self.get_text(), font, turn, ismath=False, mtext=self
        )
        graphics.restore()


class _Drawing:
    """A chart as matplotlib's artists.

    Attributes:
        chart: What is drawn.
        layout: Where everything stands.
        artists: All parts, in the order in which they were added.
        tips: Text that describes an artist, by the artist's id.
        points_outside: Number of points beyond the axes.
    """

    def __init__(self, chart: Chart, resolution: float) -> None:
        """An empty drawing.

        Args:
            resolution: matplotlib's dots per inch, in which 72 of our pixels fit: a pixel is drawn
                as one point.
        """
        self.chart = chart
        self.layout = _layout(chart)
        layout = self.layout
        dots_per_pixel = resolution / POINTS_PER_INCH  # in a pixel
        self.pixel_transform = (
            Affine2D()
            .scale(dots_per_pixel, -dots_per_pixel)
            .translate(0, dots_per_pixel * layout.height)
        )
        to_pixels = Affine2D().translate(-layout.x.low, -layout.y.low)
        to_pixels.scale(
            layout.plot_width / (layout.x.high - layout.x.low),
            -layout.plot_height / (layout.y.high - layout.y.low),
        )
        to_pixels.translate(layout.left, layout.bottom)
        self.value_transform = to_pixels + self.pixel_transform
        corners = [[layout.left, layout.top], [layout.left + layout.plot_width, layout.bottom]]
        self.plot_box = TransformedBbox(Bbox(corners), self.pixel_transform)
        self.artists: list[Artist] = []
        self.tips: Tips = {}
        self.points_outside = 0

    def add_to_plot(self, artist: Artist) -> None:
        """Add an artist whose coordinates are values of the axes; it is cut at the plot's edge."""
        artist.set_transform(self.value_transform)
        artist.set_clip_box(self.plot_box)
        self.artists.append(artist)

    def line_across(self, axis: str, value: float, **look: Any) -> None:
        """A line through the whole plot, upright at a value of "x" or level at a value of "y"."""
        layout = self.layout
        if axis == "x":
            x = [layout.x_pixel(value)] * 2
            y = [layout.bottom, layout.top]
        else:
            x = [layout.left, layout.left + layout.plot_width]
            y = [layout.y_pixel(value)] * 2
        self.artists.append(Line2D(x, y, transform=self.pixel_transform, **look))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: Anchor = "left",
        size: float = FONT_SIZE,
        colour: str = INK,
        turn: float = 0.0,
    ) -> None:
        """Text that begins, has its middle or ends at a place in pixels.

        Args:
            turn: In degrees.
        """
        artist = _Text(
            x,
            y,
            text,
            ha=anchor,
            va="baseline",
            fontsize=size,
            color=colour,
            rotation=turn,
            rotation_mode="anchor",
            transform=self.pixel_transform,
        )
        self.artists.append(artist)

    def line(
        self,
        x: Sequence[float],
        y: Sequence[float],
        colour: str,
        width: float,
        *,
        dashes: str = "solid",
        opacity: float = 1.0,
    ) -> Line2D:
        """A line through places in pixels."""
        line = Line2D(
            x,
            y,
            color=colour,
            linewidth=width,
            linestyle=_stroke(dashes),
            alpha=opacity if opacity < 1 else None,
            solid_capstyle="butt",
            transform=self.pixel_transform,
        )
        self.artists.append(line)
        return line

    def symbol(
        self,
        x: float,
        y: float,
        points: Points,
        size: float,
        *,
        is_filled: bool = True,
        opacity: float = 1.0,
    ) -> Line2D:
        """A symbol of some points at a place in pixels."""
        name = points.symbol.removesuffix(OPEN)
        is_outline = not is_filled or points.symbol.endswith(OPEN)
        symbol = Line2D(
            [x],
            [y],
            linestyle="none",
            marker=MARKERS.get(name, "o"),
            markersize=size * SMALLER.get(name, 1.0),
            markerfacecolor="none" if is_outline else points.colour,
            markeredgecolor=points.colour,
            markeredgewidth=USUAL_OUTLINE if points.outline is None else points.outline,
            alpha=opacity if opacity < 1 else None,
            transform=self.pixel_transform,
        )
        self.artists.append(symbol)
        return symbol

    def box(self, left: float, top: float, width: float, height: float, colour: str) -> Rectangle:
        """A filled box at a place in pixels."""
        box = Rectangle(
            (left, top),
            width,
            height,
            facecolor=colour,
            linewidth=0,
            transform=self.pixel_transform,
        )
        self.artists.append(box)
        return box

    def describe(self, artist: Artist, tip: str) -> None:
        """Show a text where the pointer is on an artist; none if it is empty."""
        if tip:
            name = f"tip-{len(self.tips)}"
            artist.set_gid(name)
            self.tips[name] = tip


def _drawn(chart: Chart, resolution: float) -> _Drawing:
    drawing = _Drawing(chart, resolution)
    if chart.cells is None:
        _draw_grid(drawing)
    _draw_legend(drawing)
    _draw_x_axis(drawing)
    _draw_y_axis(drawing)
    for rule in chart.rules:
        _draw_rule(drawing, rule)
    for series in chart.series:
        match series:
            case Cells():
                _draw_cells(drawing, series)
            case Points():
                _draw_points(drawing, series)
            case Line():
                _draw_line(drawing, series)
            case Band():
                _draw_band(drawing, series)
    for note in chart.notes:
        _draw_note(drawing, note)
    if drawing.points_outside:  # on a page, a double click shows them
        lie = (
            "1 point lies"
            if drawing.points_outside == 1
            else f"{drawing.points_outside} points lie"
        )
        right = WIDTH - RIGHT_MARGIN
        above = drawing.layout.top - 4
        drawing.text(right, above, f"{lie} outside", anchor="right", size=11, colour=SOFT)
    return drawing


def _stroke(dashes: str) -> Literal["solid"] | tuple[float, tuple[float, ...]]:
    """A line's dashes, as matplotlib names them."""
    lengths = DASH_LENGTHS.get(dashes)
    if lengths is None:
        return "solid"
    return (0.0, lengths)


def _draw_legend(drawing: _Drawing) -> None:
    for number, row in enumerate(drawing.layout.legend):
        y = LEGEND_TOP + LEGEND_ROW * number
        for x, series in row:
            if isinstance(series, Line):
                drawing.line([x, x + 22], [y - 4] * 2, series.colour, 2.0, dashes=series.dashes)
            else:
                drawing.symbol(x + 11, y - 4, series, USUAL_SIZE)
            drawing.text(x + 28, y, shortened(series.name, FONT_SIZE, WIDTH - 50))


def _draw_x_axis(drawing: _Drawing) -> None:
    layout = drawing.layout
    scaled = layout.x
    is_on_top = scaled.axis.is_on_top
    y = layout.top - GAP if is_on_top else layout.bottom + GAP + 9
    for position, label in scaled.ticks:
        x = layout.x_pixel(position)
        if not layout.are_turned:
            drawing.text(x, y, label, anchor="center")
        elif is_on_top:
            drawing.text(x, y, shortened(label, FONT_SIZE, MAX_TURNED_NAME), turn=TURN_DEGREES)
        else:
            shortened_label = shortened(label, FONT_SIZE, MAX_TURNED_NAME)
            drawing.text(x + 4, y - 3, shortened_label, anchor="right", turn=TURN_DEGREES)
    if scaled.axis.title:
        middle = layout.left + layout.plot_width / 2
        room = layout.labels_height
        title_y = layout.top - room - 4 if is_on_top else layout.bottom + room + 13
        drawing.text(middle, title_y, scaled.axis.title, anchor="center", colour=SOFT)


def _draw_y_axis(drawing: _Drawing) -> None:
    layout = drawing.layout
    for position, label in layout.y.ticks:
        y = layout.y_pixel(position) + BASELINE * FONT_SIZE
        drawing.text(
            layout.left - GAP, y, shortened(label, FONT_SIZE, MAX_ROW_NAME), anchor="right"
        )
    if layout.y.axis.title:
        middle = layout.top + layout.plot_height / 2
        title = layout.y.axis.title
        drawing.text(12, middle, title, anchor="center", turn=90, colour=SOFT)


def _draw_grid(drawing: _Drawing) -> None:
    """Lines at the ticks, except where a rule stands."""
    for axis, scaled in (("x", drawing.layout.x), ("y", drawing.layout.y)):
        if not scaled.axis.has_grid:
            continue
        rule_values = {rule.value for rule in drawing.chart.rules if rule.axis == axis}
        for position, _ in scaled.ticks:
            if position not in rule_values:
                drawing.line_across(axis, position, color=RULED, linewidth=1, zorder=GRID)


def _draw_rule(drawing: _Drawing, rule: Rule) -> None:
    scaled = drawing.layout.x if rule.axis == "x" else drawing.layout.y
    if scaled.holds(rule.value):
        drawing.line_across(
            rule.axis,
            rule.value,
            color=rule.colour,
            linewidth=rule.width,
            linestyle=_stroke(rule.dashes),
            zorder=LINES,
        )


def _draw_band(drawing: _Drawing, band: Band) -> None:
    edges = (np.asarray(values, float) for values in (band.x, band.low, band.high))
    areas = FillBetweenPolyCollection("x", *edges)
    for path in areas.get_paths():
        area = PathPatch(path, facecolor=band.colour, alpha=band.opacity, linewidth=0, zorder=BANDS)
        drawing.add_to_plot(area)


def _draw_line(drawing: _Drawing, line: Line) -> None:
    curve = Line2D(
        line.x,
        line.y,
        color=line.colour,
        linewidth=line.width,
        linestyle=_stroke(line.dashes),
        drawstyle="steps-post" if line.is_step else "default",
        solid_capstyle="butt",
        zorder=LINES,
    )
    drawing.add_to_plot(curve)


def _draw_points(drawing: _Drawing, points: Points) -> None:
    layout = drawing.layout
    if points.joined_by:
        line = Line("", points.x, points.y, points.colour, points.joined_by, width=1)
        _draw_line(drawing, line)
    for index, (x, y) in enumerate(zip(points.x, points.y, strict=True)):
        if not (layout.x.holds(x) and layout.y.holds(y)):
            drawing.points_outside += math.isfinite(x) and math.isfinite(y)
            continue
        is_faint = len(points.is_faint) > index and points.is_faint[index]
        opacity = FADED if is_faint else 1.0
        left = layout.x_pixel(x)
        top = layout.y_pixel(y)
        interval = points.interval_of(index)
        if interval is not None and interval[0] < interval[1]:
            if points.along == "x":
                ends = [layout.x_pixel(layout.x.inside(end)) for end in interval], [top, top]
            else:
                ends = [left, left], [layout.y_pixel(layout.y.inside(end)) for end in interval]
            drawing.line(*ends, points.colour, points.interval_width, opacity=opacity)
        size = points.size_of(index)
        is_filled = bool(points.is_filled[index])
        symbol = drawing.symbol(left, top, points, size, is_filled=is_filled, opacity=opacity)
        drawing.describe(symbol, points.tip_of(index))


def _draw_cells(drawing: _Drawing, cells: Cells) -> None:
    layout = drawing.layout
    low, high = cells.limits
    width = layout.plot_width / max(len(cells.column_names), 1)
    height = layout.plot_height / max(len(cells.rows), 1)
    for row, column in np.ndindex(cells.values.shape):
        left = layout.left + width * column
        top = layout.top + height * row
        value = float(cells.values[row, column])
        ink = SOFT
        if math.isfinite(value):
            colour = colour_on_scale(cells.scale, (value - low) / (high - low))
            ink = ink_on(colour)
            inner = max(width - 1, 0.5), max(height - 1, 0.5)
            box = drawing.box(left + 0.5, top + 0.5, *inner, colour)
            drawing.describe(box, cells.tip_of(row, column))
        text = cells.texts[row][column] if cells.are_texts_drawn else ""
        size = min(CELL_FONT_SIZE, height - 4, (width - 2) / max(width_of(text, 1.0), 0.01))
        if text and size >= MIN_CELL_FONT_SIZE:
            x = left + width / 2
            y = top + height / 2 + BASELINE * size
            drawing.text(x, y, text, anchor="center", size=size, colour=ink)
    if cells.scale_title:
        _draw_key(drawing, cells)


def _draw_key(drawing: _Drawing, cells: Cells) -> None:
    """A strip of the scale's colours, with its ends and its middle, and its title beside it."""
    low, high = cells.limits
    left = drawing.layout.left
    top = drawing.layout.height - KEY_HEIGHT + 14
    step = KEY_WIDTH / KEY_SHADES
    for number in range(KEY_SHADES):
        overlap = 0.3 if number < KEY_SHADES - 1 else 0.0
        colour = colour_on_scale(cells.scale, number / (KEY_SHADES - 1))
        drawing.box(left + step * number, top, step + overlap, KEY_STRIP, colour)
    anchors: tuple[Anchor, ...] = ("left", "center", "right")
    for number, anchor in enumerate(anchors):
        share = number / 2
        label = _number_text(low + share * (high - low), ".3g")
        drawing.text(left + KEY_WIDTH * share, top + KEY_STRIP + 14, label, anchor=anchor)
    drawing.text(left + KEY_WIDTH + 12, top + KEY_STRIP, cells.scale_title, colour=SOFT)


def _draw_note(drawing: _Drawing, note: Note) -> None:
    layout = drawing.layout
    right, up = note.shift
    x = layout.x_pixel(note.x) + right
    y = layout.y_pixel(note.y) - up + BASELINE * note.size
    drawing.text(x, y, note.text, anchor=note.anchor, size=note.size, colour=note.colour or INK)
