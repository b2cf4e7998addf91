"""Maps of heads: colours, scale, signs, marks and words.

A head looks the same wherever it is drawn.
"""

from __future__ import annotations

import base64
import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from reference import between_colours, holm_by_steps
from support.cached_scores import made_scores

from headlab import pictures, plots
from headlab.core import HeadGrid, HeadlabError, Stack
from headlab.pictures import (
    HOLM_CORRECTED,
    OWN_INTERVAL,
    common_limit,
    head_map,
    map_of_scores,
    maps_of_scores,
    score_marks,
    score_tips,
    symmetric_limit,
)
from headlab.report.commands import Known
from headlab.report.parts import Item
from headlab.report.sections.scores import scores_section
from headlab.results import HeadScores, why_holm_rejects_none

STACKS = (
    Stack("encoder", (3, 2)),
    Stack("cross", (4,)),
)
GRID = HeadGrid(STACKS)
SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_of_shares_has_a_pixel_each_on_the_sequential_scale():
    shares = np.array(
        [
            [0.0, 0.2, 1.0],
            [0.5, 2.0, 0.75],
        ]
    )
    _, _, encoded_png = pictures.png_of_shares(shares).partition(",")
    png = base64.b64decode(encoded_png)
    with Image.open(io.BytesIO(png)) as image:
        assert image.size == (3, 2)
        assert image.mode == "RGB"
        pixels = np.asarray(image).reshape(-1, 3)
    for share, pixel in zip(shares.ravel(), pixels, strict=True):
        drawn_share = round(255 * min(share, 1)) / 255
        colour = between_colours(pictures.SEQUENTIAL, drawn_share)
        assert_array_equal(pixel, pictures.rgb(colour))


@pytest.mark.parametrize("scale", [pictures.DIVERGING, pictures.SEQUENTIAL])
@pytest.mark.parametrize("share", [-1.0, 0.0, 0.1, 0.25, 0.49, 0.5, 0.77, 1.0, 3.0])
def test_a_colour_on_a_scale_is_its_channels_interpolated(scale, share):
    assert pictures.colour_on_scale(scale, share) == between_colours(scale, share)


def test_what_is_written_on_a_colour_can_be_read():
    for share in np.linspace(0, 1, 101):
        for scale in (pictures.DIVERGING, pictures.SEQUENTIAL):
            colour = pictures.colour_on_scale(scale, float(share))
            light = pictures.luminance(colour)
            ink = pictures.luminance(pictures.ink_on(colour))
            lighter = max(light, ink) + 0.05
            darker = min(light, ink) + 0.05
            assert lighter / darker >= 4.2
    assert pictures.luminance("#ffffff") == pytest.approx(1)
    assert pictures.luminance("#000000") == 0


def test_the_scale_ends_at_the_largest_magnitude_or_where_it_is_told_to():
    values = np.array([0.1, -0.2, np.nan, 0, 0, 0, 0, 0, 0.05])
    by_magnitude = head_map(values, GRID)
    assert by_magnitude.limit == 0.2
    assert by_magnitude.lowest == -0.2
    assert by_magnitude.ends == ("−0.2", "0", "+0.2")
    assert by_magnitude.colours[:4] == ("#67a9cf", "#b35806", None, "#f7f7f7")
    assert by_magnitude.signs.tolist() == [1, -1, 0, 0, 0, 0, 0, 0, 1]
    by_limit = head_map(by_magnitude.values, GRID, limit=0.08)
    assert by_limit.ends == ("≤ −0.08", "0", "≥ +0.08")
    assert by_limit.colours[0] == "#2166ac"


def test_values_without_a_sign_are_on_the_upper_half_of_the_same_scale():
    values = np.linspace(0, 0.4, GRID.size)
    signed_map = head_map(values, GRID, signed=True)
    unsigned_map = head_map(values, GRID, signed=False)
    assert signed_map.colours == unsigned_map.colours
    assert unsigned_map.lowest == 0
    assert unsigned_map.ends == ("0", "0.4")
    map_of_negatives = head_map(-values, GRID, signed=False)
    assert map_of_negatives.signs.max() == 0
    assert set(map_of_negatives.colours) == {"#f7f7f7"}


def test_a_map_is_in_the_unit_shown_and_marks_what_differs_from_0():
    values = np.linspace(-0.04, 0.04, GRID.size)
    head_scores = made_up_scores(low=values - 0.015, high=values + 0.015)
    score_map = map_of_scores(head_scores)
    np.testing.assert_allclose(score_map.values, 100 * values)
    assert score_map.unit == "points"
    assert score_map.signed is True
    assert_array_equal(score_map.marks, score_marks(head_scores))
    map_of_losses = map_of_scores(made_up_scores(unit="loss"), 3.0)
    assert map_of_losses.limit == 3.0


def test_a_result_that_does_not_say_so_is_signed_where_there_are_signs_or_intervals():
    values = np.linspace(0.01, 0.04, GRID.size)
    positive_scores = HeadScores(GRID, "de", "magic", values, "e", "accuracy", 1, 1.0)
    assert not positive_scores.signed
    negative_scores = replace(positive_scores, values=-values, signed=None)
    assert negative_scores.signed
    scores_with_intervals = replace(positive_scores, low=values, high=values, signed=None)
    assert scores_with_intervals.signed


def test_sizes_with_intervals_help_nobody_and_have_no_marks():
    values = np.linspace(0.01, 0.04, GRID.size)
    sizes = HeadScores(
        GRID,
        "de",
        "gradient",
        values,
        "gradient",
        "loss",
        1,
        1.0,
        signed=False,
        low=values / 2,
        high=2 * values,
    )
    assert not sizes.helpful.any()
    assert not score_marks(sizes).any()
    map_of_sizes = maps_of_scores({"de": sizes})["de"]
    assert not map_of_sizes.signed
    with pytest.raises(HeadlabError, match="rule harmful needs signs with intervals"):
        sizes.mask("harmful")


def made_up_scores(unit="accuracy", **fields):
    values = np.linspace(-0.04, 0.04, GRID.size)
    return HeadScores(
        GRID,
        "de",
        "shapley",
        values,
        "shapley-top50",
        unit,
        1,
        1.0,
        **fields,
    )


def test_tips_say_value_half_width_and_samples_in_points():
    values = np.linspace(-0.04, 0.04, GRID.size)
    samples = np.full(GRID.size, 1024)
    head_scores = made_up_scores(low=values - 0.005, high=values + 0.005, samples=samples)
    tips = score_tips(head_scores)
    assert (
        tips[0] == "−4.00 points\n95\u00a0% interval −4.50 to −3.50, half-width 0.50\n1,024 samples"
    )
    assert (
        tips[-1]
        == "+4.00 points\n95\u00a0% interval +3.50 to +4.50, half-width 0.50\n1,024 samples"
    )


def test_tips_of_a_method_without_intervals_name_its_unit():
    tips = score_tips(made_up_scores(unit="loss"))
    assert tips[0] == "−0.04 (loss)"


def test_marks_are_the_heads_whose_interval_excludes_zero():
    values = np.linspace(-0.04, 0.04, GRID.size)
    head_scores = made_up_scores(low=values - 0.015, high=values + 0.015)
    marks = score_marks(head_scores).tolist()
    assert marks == [-1, -1, -1, 0, 0, 0, 1, 1, 1]
    assert not score_marks(made_up_scores()).any()
    p = np.array([0.001, 0.05, 0.06, 0.001, 1, 1, 1, 0.001, 0.001])
    corrected_marks = score_marks(head_scores, p).tolist()
    # no mark where the interval holds 0
    assert corrected_marks == [-2, -2, -1, 0, 0, 0, 1, 2, 2]


def test_p_values_are_corrected_for_all_heads_of_all_maps_on_view():
    values = np.linspace(-0.04, 0.04, GRID.size)
    p = np.geomspace(1e-3, 0.04, GRID.size)
    head_scores = made_up_scores(low=values - 0.001, high=values + 0.001, p_values=p)
    for count in (1, 5):
        tests = count * GRID.size
        all_p = np.tile(p, count).tolist()
        adjusted_p = np.array_split(holm_by_steps(all_p), count)
        copies = {str(n): head_scores for n in range(count)}
        maps = maps_of_scores(copies | {"none": made_up_scores()})
        without_tests = maps.pop("none")
        assert not (np.abs(without_tests.marks) == HOLM_CORRECTED).any()
        assert without_tests.tests == 0
        assert list(without_tests.meanings) == [OWN_INTERVAL]
        for name, score_map in maps.items():
            significant = np.abs(score_map.marks) == HOLM_CORRECTED
            is_rejected = adjusted_p[int(name)] <= 0.05
            is_marked = score_map.marks != 0
            assert_array_equal(significant, is_rejected & is_marked)
            assert score_map.tests == tests
            assert f"{tests} tests" in score_map.meanings[HOLM_CORRECTED]
    map_alone = map_of_scores(head_scores)
    significant_alone = np.abs(map_alone.marks) == HOLM_CORRECTED
    assert significant.sum() < significant_alone.sum()


def test_a_map_promises_no_correction_that_nothing_can_survive():
    values = np.linspace(-0.04, 0.04, GRID.size)
    p_values = np.full(GRID.size, 0.001)
    head_scores = made_up_scores(low=values - 0.001, high=values + 0.001, p_values=p_values)
    assert map_of_scores(head_scores).tests == GRID.size
    copies = {str(n): head_scores for n in range(6)}
    maps = maps_of_scores(copies)
    assert {score_map.tests for score_map in maps.values()} == {0}
    assert {*maps["0"].meanings} == {OWN_INTERVAL}
    explanation = why_holm_rejects_none([head_scores] * 6)
    assert "0.001: over 54 tests" in explanation
    assert why_holm_rejects_none([head_scores]) == ""
    assert why_holm_rejects_none([made_up_scores()]) == ""


def test_maps_are_on_one_scale_or_on_their_own():
    german = made_up_scores()
    thai = replace(german, language="th", values=3 * german.values)
    scores_by_language = {"de": german, "th": thai}
    maps = maps_of_scores(scores_by_language)
    limits = {score_map.limit for score_map in maps.values()}
    assert limits == {common_limit([german, thai])}
    maps = maps_of_scores(scores_by_language, common=False)
    assert maps["de"].limit == common_limit([german])
    assert maps["th"].limit == common_limit([thai])


def test_one_outlier_does_not_set_the_scale_of_all_maps():
    even_map = np.full(144, 0.01)
    map_with_outlier = np.r_[np.full(143, 0.01), 5.0]
    limit = symmetric_limit([even_map, map_with_outlier])
    assert limit == pytest.approx(0.01)


@pytest.mark.parametrize(
    "maps",
    [
        [],
        [np.zeros(4)],
        [np.full(3, np.nan)],
    ],
)
def test_a_map_without_any_value_still_has_a_scale(maps):
    assert symmetric_limit(maps) > 0


# A head looks the same in Plotly and in the report; tests/browser/test_heads.py compares the pages.


@pytest.mark.parametrize("method", ["shapley", "gradient"])
def test_a_head_has_the_same_colour_sign_and_mark_in_plotly_and_in_the_report(method):
    """The values have few digits, as the sign of a value near 0 depends on rounding.

    A figure of one language corrects for its own heads only.
    """
    scores_by_language = {code: made_scores(code, method) for code in ("de", "th")}
    limit = common_limit(scores_by_language.values())
    maps = maps_of_scores(scores_by_language)
    items = [Item(scores, code) for code, scores in scores_by_language.items()]
    section = scores_section(items, Known())
    factor, *_ = pictures.display_unit(scores_by_language["de"].unit)
    for scores, figure in zip(scores_by_language.values(), section.figures, strict=False):
        score_map = maps[scores.language]
        plotly_figure = plots.head_map(scores, limit / factor)
        heat, *points = plotly_figure.data
        cells = cells_in(figure.drawings[0])
        values = np.array(heat.z, float).ravel()
        unclipped_shares = (values - heat.zmin) / (heat.zmax - heat.zmin)
        shares = np.clip(unclipped_shares, 0, 1)
        plotly_colours = [between_colours(heat.colorscale, share) for share in shares]
        report_colours = [cell.find(f"{SVG}rect").get("fill") for cell in cells]
        assert list(score_map.colours) == plotly_colours == report_colours
        plotly_signs = np.sign(values).astype(int)
        assert_array_equal(plotly_signs, score_map.signs)
        report_marks = [mark_in(cell) for cell in cells]
        assert_array_equal(report_marks, score_map.marks)
        plotly_marks = marks_of(points, np.array(heat.z).shape)
        map_alone = map_of_scores(scores, limit)
        assert_array_equal(plotly_marks, map_alone.marks)
        titles = []
        for head, tip in zip(scores.grid.heads, score_map.tips, strict=True):
            head_in_words = pictures.head_in_words(head)
            tip_on_one_line = tip.replace(chr(10), ", ")
            titles.append(f"{head_in_words}: {tip_on_one_line}")
        report_titles = [cell.find(f"{SVG}title").text for cell in cells]
        assert report_titles == titles


def cells_in(drawing):
    """The elements of the heads in the report's drawing."""
    cells = []
    for group in ET.fromstring(drawing).iter(f"{SVG}g"):
        if group.find(f"{SVG}rect") is not None:
            cells.append(group)
    return cells


def mark_in(cell):
    """The mark of a head in the report's drawing."""
    ring = cell.find(f"{SVG}circle")
    if ring is None:
        return 0
    path = cell.find(f"{SVG}path")
    sign = 1 if "v" in path.get("d") else -1
    strength = 1 if ring.get("fill") == "none" else 2
    return sign * strength


def marks_of(points, shape):
    """The marks of a figure's heads, flat."""
    marks = np.zeros(shape, int)
    for trace in points:
        marker = trace.marker
        for x, y, text, colour in zip(trace.x, trace.y, trace.text, marker.color, strict=True):
            sign = 1 if text == "+" else -1
            strength = 2 if colour == pictures.DARK else 1
            marks[y, x] = sign * strength
    return marks.ravel()
