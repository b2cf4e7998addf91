"""Charts: each is described once, and all drawers show all its words and values."""

from __future__ import annotations

import io
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support.expected_errors import raises

from headlab import pictures
from headlab.charts import fonts, static
from headlab.charts.chart import Axis, Band, Cells, Chart, Line, Note, Points, Rule
from headlab.charts.dots import Dots, dots_chart
from headlab.charts.front import FrontDot, front_chart
from headlab.charts.matrices import correlations_chart
from headlab.plots.drawing import plotly_figure
from headlab.plots.reading import chart_of

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["German", "ไทย", "中文", "العربية", "हिन्दी"]  # all letters of five scripts
RHO = np.linspace(-0.9, 0.9, 25).reshape(5, 5).round(2)
np.fill_diagonal(RHO, 1.0)


def matrix() -> Chart:
    return correlations_chart("agreement of languages", RHO, NAMES)


def intervals() -> Chart:
    value = np.array([1.0, -2.5, 0.5, 3.0, np.nan])
    series = Dots(value, value - 1, value + 1, np.abs(value) > 1)
    return dots_chart("gains", NAMES, {"shapley": series, "random": series}, "gain, points")


def front() -> Chart:
    models = [
        FrontDot("mean", 0, 10.0, 0.0, None, True, "8 heads kept"),
        FrontDot("mean", 2, 8.0, -1.5, -2.0, True, "6 heads kept"),
        FrontDot("weakest <b> & $x$", 3, 9.0, -3.0, -4.0, False, "5 heads kept"),
    ]
    return front_chart(models, "parameters", "difference, points", loss=1.0, chosen=("mean", 2))


def chart_of_other_parts() -> Chart:
    """A chart with every other kind of part."""
    line = Line("a line", [0, 1, 2], [0.0, 0.5, np.nan], "#2b7bba", "dash", tip="{name} {y:.1f}")
    band = Band([0, 1, 2], [0.0, 0.2, 0.3], [0.2, 0.6, 0.7], "#2b7bba")
    note = Note(1, 0.5, "a note", "#d9730d", "left", (2.0, 3.0))
    axis = Axis("share", number_format=".0%", has_zero=True)
    return Chart(
        "lines",
        (band, line),
        x=Axis("step"),
        y=axis,
        rules=(Rule("x", 1),),
        notes=(note,),
        has_legend=True,
    )


CHARTS = {
    "matrix": matrix,
    "intervals": intervals,
    "front": front,
    "lines": chart_of_other_parts,
}
every_chart = pytest.mark.parametrize("make", CHARTS.values(), ids=CHARTS)


def svg_root(chart: Chart, *, is_inline: bool = True) -> ET.Element:
    return ET.fromstring(static.svg(chart, is_inline=is_inline))


def texts(root: ET.Element) -> list[str]:
    return [str(element.text) for element in root.iter(f"{SVG}text")]


def tips(root: ET.Element) -> list[str]:
    """The tooltips of a drawing's parts, without its own title."""
    titles = [str(title.text) for title in root.iter(f"{SVG}title")]
    return titles[1:]


def strings(value: object) -> Iterator[str]:
    """All texts in JSON values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list | tuple | np.ndarray):
        for inner in value:
            yield from strings(inner)


@every_chart
def test_both_drawers_show_all_words(make):
    chart = make()
    svg_texts = set(texts(svg_root(chart)))
    figure = plotly_figure(chart)
    on_page = " ".join(strings(figure.to_plotly_json()))
    words = {series.name for series in chart.named}
    words |= {note.text for note in chart.notes}
    for axis in (chart.x, chart.y):
        words.add(axis.title)
        words |= {label for _, label in axis.ticks or ()}
    words.discard("")
    if chart.cells is not None:
        words |= {*chart.cells.rows, *chart.cells.column_names}
        for texts_of_row in chart.cells.texts:
            words |= set(texts_of_row)
    hidden_names = set()
    if chart.has_legend is False:
        hidden_names = {series.name for series in chart.named}
    assert words - hidden_names <= svg_texts
    missing_words = []
    for word in words:
        escaped_word = word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        if escaped_word not in on_page:
            missing_words.append(escaped_word)
    assert missing_words == []


@every_chart
def test_both_drawers_show_all_values(make):
    chart = make()
    svg_tips = tips(svg_root(chart))
    traces = plotly_figure(chart).data
    if chart.cells is not None:
        values_on_page = np.array(traces[0].z, float)
        np.testing.assert_array_equal(values_on_page, chart.cells.values)
        cell_tips = []
        for row in range(5):
            for column in range(5):
                cell_tips.append(chart.cells.tip_of(row, column))
        assert svg_tips == cell_tips
        return
    for series, trace in zip(chart.series, traces, strict=True):
        if isinstance(series, Band):
            assert set(trace.y) == {*series.low, *series.high}
            continue
        for trace_values, series_values in ((trace.x, series.x), (trace.y, series.y)):
            numbers = np.array(series_values, float)
            np.testing.assert_array_equal(np.array(trace_values, float), numbers)
        if isinstance(series, Points) and series.tip:
            is_finite = np.isfinite(np.array(series.x, float))
            point_tips = {series.tip_of(index) for index in np.flatnonzero(is_finite)}
            assert point_tips <= set(svg_tips)


@every_chart
@pytest.mark.parametrize("is_inline", [True, False])
def test_an_svg_is_described_has_no_script_or_picture_and_equal_bytes_for_equal_charts(
    make, is_inline
):
    chart = make()
    text = static.svg(chart, is_inline=is_inline)
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title = root[0]
    description = root[1]
    assert title.tag == f"{SVG}title"
    assert title.text == chart.title
    assert description.tag == f"{SVG}desc"
    assert description.text == chart.description
    ids = [title.get("id"), description.get("id")]
    assert root.get("aria-labelledby") == " ".join(ids)
    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    containers = {"svg", "title", "desc", "g", "defs", "clipPath"}
    assert kinds <= containers | {"path", "rect", "circle", "text"}
    assert "DOCTYPE" not in text
    assert "matplotlib" not in text
    assert text == static.svg(make(), is_inline=is_inline)


def test_ids_of_charts_in_one_document_differ():
    ids = []
    for make in CHARTS.values():
        for element in svg_root(make()).iter():
            if element.get("id"):
                ids.append(element.get("id"))
    assert len(ids) == len(set(ids))


def test_text_and_lines_take_the_colours_of_the_document_only_inside_one():
    inline_svg = static.svg(chart_of_other_parts(), is_inline=True)
    file_svg = static.svg(chart_of_other_parts(), is_inline=False)
    assert "var(--ink, " in inline_svg
    assert "var(--line, " in inline_svg
    assert "var(" not in file_svg
    assert "font-family" not in inline_svg
    assert "font-family" in file_svg


def test_a_cell_has_the_colour_of_its_value_and_a_legible_text():
    root = svg_root(matrix())
    styles = [str(path.get("style")) for path in root.iter(f"{SVG}path")]
    fills = " ".join(styles)
    missing_colours = []
    for value in RHO.ravel():
        colour = pictures.colour_on_scale(pictures.DIVERGING, (value + 1) / 2)
        if colour not in fills:
            missing_colours.append(colour)
    assert missing_colours == []
    text_on_dark = next(text for text in root.iter(f"{SVG}text") if text.text == "1.00")
    darkest_colour = pictures.DIVERGING[-1][1]
    assert pictures.ink_on(darkest_colour) in str(text_on_dark.get("style"))


def test_a_matrix_of_nothing_is_drawn():
    no_numbers = np.full((2, 2), np.nan)
    empty_matrix = correlations_chart("none", no_numbers, ["a", "b"])
    assert tips(svg_root(empty_matrix)) == []
    assert static.png(empty_matrix)


def test_a_point_outside_its_axes_is_counted_and_an_axis_without_values_is_drawn():
    points = Points(
        "p",
        [1.0, 9.0],
        [0.0, 0.0],
        "#2b7bba",
        "circle",
        [True, True],
        texts=["in", "out"],
    )
    chart = Chart("c", (points,), x=Axis(limits=(0, 5)))
    assert tips(svg_root(chart)) == ["in"]
    assert {"0", "5", "1 point lies outside"} <= set(texts(svg_root(chart)))
    assert ET.fromstring(static.svg(Chart("empty", ())))
    line = Line("loss", [0], [0.5], "#2b7bba")
    one_step = Chart("one step", (line,), x=Axis(limits=(0, 0)))
    assert {"0", "0.5"} <= set(texts(svg_root(one_step)))


def test_names_that_are_too_wide_for_their_column_are_turned():
    def are_turned(columns: int) -> bool:
        names = [f"language {number}" for number in range(columns)]
        values = np.zeros((1, columns))
        texts_of_cells = [[""] * columns]
        cells = Cells(["row"], names, values, texts_of_cells, -1, 1)
        return "rotate(-52" in static.svg(Chart("c", (cells,)))

    assert not are_turned(2)
    assert are_turned(20)


def test_a_name_that_is_too_long_is_cut():
    assert fonts.shortened("short", 12, 100) == "short"
    shortened_name = fonts.shortened("x" * 200, 12, 100)
    assert shortened_name.endswith("…")
    assert fonts.width_of(shortened_name, 12) <= 100
    assert fonts.width_of("漢字", 12) > fonts.width_of("ab", 12)
    assert fonts.width_of("ก็", 12) == fonts.width_of("ก", 12)  # a mark stands above its letter


def test_a_png_is_seven_inches_wide_on_white():
    latin = replace(front(), title="smaller models")
    image = Image.open(io.BytesIO(static.png(latin)))
    assert image.width == round(680 / 96 * 300)
    corner = image.convert("RGB").getpixel((0, 0))
    assert corner == (255, 255, 255)
    assert round(image.info["dpi"][0]) == 300
    assert static.png(latin) == static.png(latin)


def test_a_png_says_which_font_its_letters_need(monkeypatch):
    monkeypatch.setattr(fonts.fontManager, "ttflist", [])
    for text, font in (
        ("ไทย", "Noto Sans Thai"),
        ("中", "Noto Sans CJK"),
        ("हि", "Noto Sans Devanagari"),
    ):
        with raises("figure.font_missing", font):
            fonts.families_for([text])
    assert fonts.families_for(["Ελλάδα Россия العربية ● −"]) == [fonts.USUAL]


def test_matplotlib_is_not_loaded_for_pages_and_the_worker():
    code = (
        "import sys, headlab, headlab.plots, headlab.report.build, headlab.cli.experiment, "
        "headlab.worker.server, headlab.dashboard.panels.stored.page_report; "
        "headlab.plots.agreement(headlab.plots.matrices.np.eye(2), ['a', 'b']); "
        "print([name for name in sys.modules if name.startswith('matplotlib')])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    *_, last_line = process.stdout.strip().splitlines()
    assert last_line == "[]"


@every_chart
def test_a_plotly_figure_of_a_package_is_read_as_the_chart_it_shows(make):
    chart = make()
    chart_read = chart_of(plotly_figure(chart), chart.title)
    texts_shown = texts(svg_root(chart))
    texts_read = texts(svg_root(chart_read))
    assert sorted(texts_read) == sorted(texts_shown)
    assert sorted(circles(chart_read)) == sorted(circles(chart))


def circles(chart: Chart) -> list[tuple[str | None, ...]]:
    """Positions and sizes of a drawn chart's circles."""
    circle_elements = svg_root(chart).iter(f"{SVG}circle")
    return [tuple(map(circle.get, ("cx", "cy", "r"))) for circle in circle_elements]
