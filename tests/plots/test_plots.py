"""Records as figures: the figures hold the records' numbers, and nothing global changes."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import plotly.io
import pytest
from support.cached_scores import GRID, HARMFUL, HELPFUL, made_scores
from support.synthetic_reports import made_reports

from headlab import plots
from headlab.charts.dots import Dots, dots_chart
from headlab.charts.matrices import shares_chart, signs_chart, transfer_chart
from headlab.cli.figures import write_figures
from headlab.core import HeadGrid, Report, Stack, Table
from headlab.plots.drawing import plotly_figure
from headlab.results import Curve, HeadScores, band


def test_a_head_map_shows_every_value_on_a_symmetric_scale_around_0():
    scores = made_scores("de", "shapley")
    heat, marks = plots.head_map(scores).data
    # shown in percentage points
    percentages = 100 * scores.values.reshape(12, 12)
    shown_values = np.array(heat.z, float)
    np.testing.assert_allclose(shown_values, percentages)
    limit = plots.symmetric_limit([scores.values])
    assert heat.zmin == -heat.zmax
    assert heat.zmax == pytest.approx(100 * limit)
    assert heat.colorbar.ticktext[2].startswith("≥ +")  # the largest is beyond
    marked_heads = list(zip(marks.text, marks.x, marks.y, strict=True))
    assert ("−", 7, 3) in marked_heads
    has_sign = scores.helpful | scores.harmful
    assert len(marks.text) == int(has_sign.sum())


def test_an_unsigned_method_gets_a_scale_from_0():
    scores = made_scores("de", "gradient")
    (heat,) = plots.head_map(scores, limit=0.2).data
    assert heat.zmin == 0
    assert heat.zmax == 0.2


def test_a_head_map_has_one_map_a_stack_and_rows_of_any_length():
    encoder = Stack("encoder", (2, 3))
    cross = Stack("cross", (1,))
    grid = HeadGrid((encoder, cross))
    values = np.arange(6.0)
    gradient_scores = HeadScores(
        grid,
        "de",
        "gradient",
        values,
        "gradient",
        "loss",
        0,
        0.0,
    )
    figure = plots.head_map(gradient_scores)
    stack_names = [trace.name for trace in figure.data]
    assert stack_names == ["encoder", "cross"]
    encoder_rows = [list(row) for row in figure.data[0].z]
    assert encoder_rows == [[0, 1], [2, 3, 4]]


def test_agreement_writes_every_correlation_and_admits_what_is_undefined():
    rho = np.array(
        [
            [1.0, -0.25],
            [-0.25, 1.0],
        ]
    )
    (heat,) = plots.agreement(rho, ["de", "th"]).data
    texts = [list(row) for row in heat.text]
    assert texts == [
        ["1.00", "-0.25"],
        ["-0.25", "1.00"],
    ]
    assert heat.zmin == -1
    assert heat.zmax == 1
    undefined_rho = np.array(
        [
            [1.0, np.nan],
            [np.nan, 1.0],
        ]
    )
    (undefined_heat,) = plots.agreement(undefined_rho, ["de", "th"]).data
    assert undefined_heat.text[0][1] == "–"


def test_across_languages_colours_by_what_the_interval_says():
    values = np.array([1.0, -1.0, 0.5, 2.0])
    low = np.array([0.5, -2.0, -0.5, np.nan])
    high = np.array([1.5, -0.5, 1.5, np.nan])
    figure = plots.across_languages(
        ["de", "th", "fi", "hu"],
        values,
        low,
        high,
        "points",
    )
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    colours = [dot.marker.color for dot in dots]
    assert colours == [
        plots.HELPS,
        plots.HARMS,
        plots.UNSURE,
        plots.UNSURE,
    ]
    positions = [dot.x[0] for dot in dots]
    assert positions == values.tolist()
    assert "[" not in dots[3].hovertemplate.removesuffix("<extra></extra>")


def test_a_distribution_has_every_head():
    scores = {}
    for code in ("de", "th"):
        scores[code] = made_scores(code, "shapley").values
    figure = plots.distribution(scores, "accuracy")
    sizes_by_language = {}
    for box in figure.data:
        sizes_by_language[box.name] = len(box.x)
    assert sizes_by_language == {"de": GRID.size, "th": GRID.size}


def test_all_maps_have_one_limit():
    # the limit is the 99th percentile
    maps = [
        np.array([0.1, -0.4]),
        np.array([0.2]),
    ]
    assert plots.symmetric_limit(maps) == pytest.approx(0.396)
    assert plots.symmetric_limit([np.zeros(3)]) == 1.0
    assert plots.symmetric_limit([]) == 1.0


def curve(right_answers: list[int], ordering: str = "shapley", language: str = "de") -> Curve:
    """A pruning curve of 8 heads on 100 examples, with intervals two points wide.

    Args:
        right_answers: How many answers are right after each number of removed heads; the numbers
            are evenly spaced from 0 to 8.
        ordering: The method that orders the heads.
        language: The language of the examples.
    """
    counts = np.array(right_answers)
    examples = np.arange(100)
    correct = examples[None, :] < counts[:, None]
    difference = (counts - counts[0]) / 100
    steps = np.arange(len(counts))
    removed_counts = steps * 8 // (len(counts) - 1)
    return Curve(
        HeadGrid((Stack("encoder", (4, 4)),)),
        language,
        "test",
        ordering,
        np.arange(8),
        removed_counts,
        correct,
        np.arange(100),
        difference - 0.01,
        difference + 0.01,
        np.ones(len(right_answers)),
        0,
        0.0,
    )


def test_a_curve_figure_has_a_line_an_interval_and_a_name_for_every_curve():
    shapley_curve = curve([80, 82, 70, 50, 10])
    random_curve = curve([80, 60, 40, 30, 10], "random")
    figure = plots.curve_figure([shapley_curve, random_curve])
    shade, line, *_ = figure.data
    assert list(line.x) == [0, 2, 4, 6, 8]
    assert list(line.y) == shapley_curve.accuracy.tolist()
    upper_edge = 0.8 + shapley_curve.high
    np.testing.assert_allclose(shade.y[:5], upper_edge)
    lower_edge = 0.8 + shapley_curve.low
    np.testing.assert_allclose(shade.y[5:], lower_edge[::-1])
    assert list(shade.x) == [0, 2, 4, 6, 8, 8, 6, 4, 2, 0]
    np.testing.assert_allclose(line.customdata[2], [-10, -11, -9])
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    names = [trace.name for trace in lines]
    assert names == ["shapley", "random"]
    colours = [trace.line.color for trace in lines]
    assert colours == [plots.LINE_COLOURS[0], plots.UNSURE]
    different_colours = set(plots.LINE_COLOURS)
    assert len(different_colours) == len(plots.LINE_COLOURS)
    assert not figure.layout.showlegend


def test_a_curve_is_named_where_it_is_farthest_from_the_others():
    figure = plots.curve_figure(
        [curve([80, 82, 70, 50, 10]), curve([80, 60, 60, 48, 10], "random")]
    )
    upper, lower = figure.layout.annotations
    assert upper.text == "shapley"
    assert upper.x == 2
    assert upper.y == 0.82
    assert upper.yshift == 12
    assert lower.text == "random"
    assert lower.x == 2
    assert lower.y == 0.6
    assert lower.yshift == -12
    three_curves = [
        curve([80, 80, 80, 80, 10], "a"),
        curve([80, 70, 60, 70, 10], "b"),
        curve([80, 68, 10, 40, 10], "c"),
    ]
    annotations = plots.curve_figure(three_curves).layout.annotations
    shifts = [annotation.yshift for annotation in annotations]
    assert shifts == [12, -12, -12]  # away from the nearest line
    figure_of_one = plots.curve_figure([curve([80, 10])])
    (single_annotation,) = figure_of_one.layout.annotations
    assert single_annotation.text == "de by shapley"
    assert single_annotation.yshift == 12


def test_curves_are_named_by_what_differs_between_them():
    def names(*curves: Curve) -> list[str]:
        figure = plots.curve_figure(curves)
        return [trace.name for trace in figure.data if trace.mode == "lines"]

    points = [80, 40, 10]
    german = curve(points)
    thai = curve(points, language="th")
    random_thai = curve(points, "random", "th")
    assert names(german, thai) == ["de", "th"]
    assert names(german, random_thai) == ["de by shapley", "th by random"]
    assert names(german) == ["de by shapley"]
    assert names() == []


def test_a_band_lies_behind_the_curves_in_grey():
    runs = []
    for right_answers in (30, 50, 40):
        runs.append(curve([80, right_answers, 10], "random"))
    shapley_curve = curve([80, 70, 60, 20, 10])
    figure = plots.curve_figure([shapley_curve], band(runs))
    shade, median, *curve_traces = figure.data
    np.testing.assert_allclose(shade.y, [0.8, 0.5, 0.1, 0.1, 0.3, 0.8])
    assert list(median.y) == [0.8, 0.4, 0.1]
    assert list(median.x) == [0, 4, 8]
    assert median.name == "random, median of 3"
    assert median.line.color == plots.UNSURE
    assert len(curve_traces) == 2


def test_figures_are_transparent_valid_json_without_a_template_and_change_no_default():
    default_before = plotly.io.templates.default
    scores = made_scores("de", "shapley")
    for figure in (plots.head_map(scores), plots.curve_figure([curve([80, 10])])):
        assert figure.layout.template == go.layout.Template()
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
        assert json.loads(figure.to_json())["data"]
    assert plotly.io.templates.default == default_before
    assert scores.values[HARMFUL] < 0 < scores.values[HELPFUL]


# Figures of reports


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    return made_reports(tmp_path_factory.mktemp("store"))


def traces(figure: go.Figure) -> dict[str, go.Scatter]:
    """The traces that the legend names."""
    named_traces = {}
    for trace in figure.data:
        if trace.showlegend is not False:
            named_traces[trace.name] = trace
    return named_traces


def numbers(table: Table, name: str, **cells: str) -> list[float]:
    """A column's values in the rows that have certain cells; NaN for an empty one.

    Args:
        table: The table.
        name: Title of the column.
        cells: What the rows must have in other columns; spaces in titles are underscores here.
    """
    rows = []
    for cells_of_row in table.rows:
        row = dict(zip(table.columns, cells_of_row, strict=True))
        rows.append(row)
    for column, cell in cells.items():
        title = column.replace("_", " ")
        rows = [row for row in rows if row[title] == cell]
    values = [row[name] for row in rows]
    return [np.nan if value is None else value for value in values]  # type: ignore[misc] # numbers


def test_every_experiment_has_figures_that_are_transparent_and_fit_for_a_file(reports):
    for name, report in reports.items():
        figures = plots.report_figures(report)
        assert figures, name
        for file, figure in figures.items():
            assert file.replace("-", "").isalnum()
            assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
            assert 100 < figure.layout.height < 2000
            assert json.loads(figure.to_json())["data"]
    assert plots.report_figures(Report("else", ())) == {}


def test_targeted_dots_stand_side_by_side_at_their_differences(reports):
    report = reports["targeted"]
    table = report.table("targeted")
    figure = plots.report_figures(report)["targeted"]
    languages = list(dict.fromkeys(table.column("language")))
    assert list(figure.layout.yaxis.ticktext) == languages
    for name, trace in traces(figure).items():
        differences = numbers(table, "difference, points", removed_by=name)
        low = numbers(table, "low, points", removed_by=name)
        high = numbers(table, "high, points", removed_by=name)
        np.testing.assert_allclose(trace.x, differences)
        value = np.array(trace.x)
        np.testing.assert_allclose(value - trace.error_x.arrayminus, low)
        np.testing.assert_allclose(value + trace.error_x.array, high)
    positions = np.array([trace.y for trace in traces(figure).values()])
    distances = np.abs(positions - np.arange(len(languages)))
    assert (distances < 0.5).all()
    assert (np.diff(positions, axis=0) > 0).all()


def test_a_dot_is_filled_where_it_is_sure_and_random_is_grey():
    value = np.array([1.0, 2.0])
    is_sure = np.array([True, False])
    low = np.array([np.nan, 1.5])
    high = np.array([np.nan, 3.0])
    dots = Dots(value, low, high, is_sure)
    chart = dots_chart(
        "dots",
        ["de", "th"],
        {"shapley": dots, "random": dots},
        "points",
    )
    figure = plotly_figure(chart)
    shapley_trace = figure.data[0]
    assert list(shapley_trace.marker.symbol) == ["circle", "circle-open"]
    colours = [trace.marker.color for trace in figure.data]
    assert colours == [plots.HELPS, plots.UNSURE]
    assert shapley_trace.text == ("de: 1.0", "th: 2.0 [1.5, 3.0]")
    assert len(figure.layout.shapes) == 1
    plain = dots_chart(
        "dots",
        ["de", "th"],
        {"one": dots},
        "points",
        has_zero_line=False,
    )
    assert not plotly_figure(plain).layout.shapes


def test_transfer_has_a_row_for_each_language_that_heads_were_chosen_on(reports):
    report = reports["transfer"]
    table = report.table("transfer")
    figures = plots.report_figures(report)
    (heat,) = figures["transfer"].data
    values = np.array(heat.z, float)
    for table_row in table.rows:
        cells = dict(zip(table.columns, table_row, strict=True))
        row = list(heat.y).index(cells["chosen on"])
        column = list(heat.x).index(cells["language"])
        assert values[row, column] == cells["difference, points"]
    assert heat.zmin == -heat.zmax


def test_a_matrix_marks_what_is_significant_and_admits_what_is_missing():
    values = np.array(
        [
            [-0.04, 2.0],
            [np.nan, -3.0],
        ]
    )
    is_significant = np.array(
        [
            [False, True],
            [True, False],
        ]
    )
    languages = ["de", "th"]
    chart = transfer_chart("t", values, is_significant, languages, languages)
    (heat,) = plotly_figure(chart).data
    texts = [list(row) for row in heat.text]
    assert texts == [
        ["+0.0", "+2.0●"],
        ["–", "-3.0"],
    ]
    assert heat.zmin == -3
    assert heat.zmax == 3
    twelve_languages = [f"l{number}" for number in range(12)]
    values = np.full((1, 12), 2.0)
    is_significant = np.arange(12)[None] < 1
    wide_chart = transfer_chart("t", values, is_significant, ["de"], twelve_languages)
    (heat,) = plotly_figure(wide_chart).data
    wide_texts = list(heat.text[0])
    pointer_texts = list(heat.customdata[0])
    assert wide_texts[:2] == ["●", ""]
    assert pointer_texts[:2] == ["+2.0●", "+2.0"]
    helped_languages = [["de"], []]
    harmed_languages = [["th"], ["de"]]
    rows = ["3.7", "9.0"]
    sign_chart = signs_chart("s", helped_languages, harmed_languages, rows, languages)
    (signs,) = plotly_figure(sign_chart).data
    sign_texts = [list(row) for row in signs.text]
    assert sign_texts == [["+", "−"], ["−", ""]]


def test_iterative_lines_are_the_reports_rows_with_random_behind(reports):
    report = reports["iterative"]
    table = report.table("iterative")
    figures = plots.report_figures(report)
    figure = figures["iterative-yy"]
    lines = traces(figure)
    assert list(lines) == ["random", "shapley", "gradient"]
    for name, line in lines.items():
        removed_counts = numbers(table, "removed", language="yy", ordering=name)
        accuracies = numbers(table, "accuracy, %", language="yy", ordering=name)
        assert list(line.x) == removed_counts
        assert list(line.y) == accuracies
    areas = [trace for trace in figure.data if trace.mode == "none"]
    low = numbers(table, "low, %", language="yy", ordering="random")
    high = numbers(table, "high, %", language="yy", ordering="random")
    outline = [*high, *low[::-1]]
    assert list(areas[0].y) == outline
    # the lines do not differ by their colours only
    dashes = {line.line.dash for line in lines.values()}
    assert len(dashes) == 3
    assert {"iterative-minus-random", "iterative-minus-shapley"} <= set(figures)


def test_the_separator_map_is_the_mean_over_languages(reports):
    report = reports["separators"]
    figures = plots.report_figures(report)
    table = report.table("separators")
    (heat,) = figures["separators"].data
    shares = np.array(table.column("sentences, %"))
    mean_shares = shares.reshape(3, 3, 4).mean(axis=0)
    shown_shares = np.array(heat.z, float)
    np.testing.assert_allclose(shown_shares, mean_shares)
    kinds = set(traces(figures["separator-kinds"]))
    assert kinds == {"language-agnostic", "language-specific", "all"}
    shares_by_head = {
        ("encoder", 0, 0): 1.0,
        ("cross", 0, 1): 2.0,
    }
    stacks = shares_chart("s", shares_by_head, "%")
    (heat_of_stacks,) = plotly_figure(stacks).data
    assert list(heat_of_stacks.y) == ["encoder 0", "cross 0"]


def test_the_gap_is_shown_for_languages_that_lost_heads(reports):
    table = reports["gap"].table("gap")
    for name, figure in plots.report_figures(reports["gap"]).items():
        rule = "harmful" if name == "gap-harmful" else "K lowest"
        removed_counts = np.array(numbers(table, "heads removed", rule=rule))
        gaps = np.array(numbers(table, "dev, points", rule=rule))
        dots_on_dev = traces(figure)["on dev"]
        gaps_of_removed = gaps[removed_counts > 0]
        assert list(dots_on_dev.x) == gaps_of_removed.tolist()
        assert "zz" not in figure.layout.yaxis.ticktext  # no head harms it


def test_specific_heads_show_where_they_help_and_harm(reports):
    figures = plots.report_figures(reports["heads"])
    (heat,) = figures["heads-specific"].data
    assert heat.y[0] == "0.0"
    assert list(heat.x) == ["xx", "yy", "zz"]
    assert list(heat.text[0]) == ["−", "−", "+"]


# Files


def test_a_printed_figure_is_dark_on_white_and_leaves_the_first_as_it_was(reports):
    figure = plots.report_figures(reports["transfer"])["transfer"]
    printed_figure = plots.figure_for_file(figure, "transfer")
    assert printed_figure.layout.paper_bgcolor == "white"
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert figure.data[0].uid is None
    second_printed_figure = plots.figure_for_file(figure, "transfer")
    assert printed_figure.to_json() == second_printed_figure.to_json()
    assert plots.figure_for_file(go.Figure(), "none").layout.height


def test_a_printed_figure_may_say_what_it_shows_in_two_lines_above_its_legend(reports):
    figures = plots.report_figures(reports["targeted"])
    figure = figures["targeted"]
    figure_without_title = plots.figure_for_file(figure, "t")
    figure_with_title = plots.figure_for_file(
        figure, "t", "Gains <on> test", "owner/model on xnli, n = 999"
    )
    assert figure_without_title.layout.title.text is None
    assert figure_with_title.layout.title.text.startswith("Gains &lt;on&gt; test<br>")
    assert "owner/model on xnli, n = 999" in figure_with_title.layout.title.text
    added_height = figure_with_title.layout.height - figure_without_title.layout.height
    assert added_height == figure_with_title.layout.margin.t > figure_without_title.layout.margin.t
    without_legend = go.Figure(go.Scatter(y=[1], name="alone"))
    height_with_title = plots.figure_for_file(without_legend, "t", "A title").layout.height
    height_without_title = plots.figure_for_file(without_legend, "t").layout.height
    assert height_with_title - height_without_title < added_height
    lines = []
    for number in range(8):
        name = "a rather long name " * 3 + str(number)
        lines.append(go.Scatter(y=[1], name=name))
    with_tall_legend = go.Figure(lines)
    printed_figure = plots.figure_for_file(with_tall_legend, "t", "A title")
    margin_of_tall_legend = printed_figure.layout.margin.t
    assert margin_of_tall_legend > figure_with_title.layout.margin.t


def test_files_are_svg_and_png_on_white_and_equal_for_equal_reports(reports, tmp_path):
    first_files = write_figures(reports["transfer"], tmp_path / "first")
    second_files = write_figures(reports["transfer"], tmp_path / "second")
    names = [path.name for path in first_files]
    assert names == ["transfer.svg", "transfer.png", "zero-shot.svg", "zero-shot.png"]
    for path, second_path in zip(first_files, second_files, strict=True):
        assert path.read_bytes() == second_path.read_bytes()
    svg_file, png_file, *_ = first_files
    root = ElementTree.fromstring(svg_file.read_text("utf-8"))
    assert root.tag.endswith("}svg")
    assert png_file.read_bytes().startswith(b"\x89PNG")
    unknown_report = Report("else", ())
    assert write_figures(unknown_report, tmp_path / "none") == []


def test_a_png_without_a_font_for_its_letters_is_left_out_with_a_sentence(
    reports, tmp_path, monkeypatch, capsys
):
    transfer = reports["transfer"]
    thai_tables = tuple(map(in_thai, transfer.tables))
    thai_report = replace(transfer, tables=thai_tables)
    monkeypatch.setattr("headlab.charts.fonts.fontManager.ttflist", [])
    paths = write_figures(thai_report, tmp_path)
    file_names = [path.name for path in paths]
    assert file_names == ["transfer.svg", "zero-shot.svg"]
    assert "ไทย" in paths[0].read_text("utf-8")
    stderr_lines = capsys.readouterr().err.splitlines()
    beginnings = [line.split(":")[0] for line in stderr_lines]
    assert beginnings == ["no transfer.png", "no zero-shot.png"]
    assert all("Noto Sans Thai" in line for line in stderr_lines)


def in_thai(table: Table) -> Table:
    """A table whose first language has a Thai name."""
    rows = []
    for row in table.rows:
        thai_row = ["ไทย" if cell == "xx" else cell for cell in row]
        rows.append(tuple(thai_row))
    return replace(table, rows=tuple(rows))


def test_a_report_that_cannot_be_drawn_is_one_sentence(reports, tmp_path, capsys):
    broken = replace(reports["transfer"], tables=())
    assert write_figures(broken, tmp_path / "out") == []
    stderr_text = capsys.readouterr().err
    assert stderr_text.startswith("no figures: ")
    assert stderr_text.count("\n") == 1
    assert not (tmp_path / "out").exists()
