"""Maps of heads: colours, scale, signs, marks and words, and one head drawn alike wherever it is drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from cached_scores import made_up
from numpy.testing import assert_array_equal
from reference import between_colours

from headlab import pictures, plots
from headlab.pictures import common_limit, head_map, is_signed, map_of, score_marks, score_tips, symmetric_limit
from headlab.records import HeadGrid, Stack
from headlab.report.parts import Item
from headlab.report.result_sections import scores_section
from headlab.scores import HeadScores

GRID = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (4,))))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("scale", [pictures.DIVERGING, pictures.SEQUENTIAL])
@pytest.mark.parametrize("share", [-1.0, 0.0, 0.1, 0.25, 0.49, 0.5, 0.77, 1.0, 3.0])
def test_a_colour_on_a_scale_is_its_channels_interpolated(scale, share):
    assert pictures.on_scale(scale, share) == between_colours(scale, share)


def test_what_is_written_on_a_colour_can_be_read():
    for share in np.linspace(0, 1, 101):
        for scale in (pictures.DIVERGING, pictures.SEQUENTIAL):
            colour = pictures.on_scale(scale, float(share))
            light, ink = pictures.luminance(colour), pictures.luminance(pictures.ink_on(colour))
            assert (max(light, ink) + 0.05) / (min(light, ink) + 0.05) >= 4.2
    assert pictures.luminance("#ffffff") == pytest.approx(1)
    assert pictures.luminance("#000000") == 0


def test_the_scale_ends_at_the_largest_magnitude_or_where_it_is_told_to():
    shown = head_map(np.array([0.1, -0.2, np.nan, 0, 0, 0, 0, 0, 0.05]), GRID)
    assert (shown.limit, shown.lowest, shown.ends) == (0.2, -0.2, ("−0.2", "0", "+0.2"))
    assert shown.colours[:4] == ("#67a9cf", "#b35806", None, "#f7f7f7")
    assert shown.signs.tolist() == [1, -1, 0, 0, 0, 0, 0, 0, 1]
    short = head_map(shown.values, GRID, limit=0.08)
    assert short.ends == ("≤ −0.08", "0", "≥ +0.08")
    assert short.colours[0] == "#2166ac"


def test_values_without_a_sign_are_on_the_upper_half_of_the_same_scale():
    values = np.linspace(0, 0.4, GRID.size)
    signed, unsigned = (head_map(values, GRID, signed=way) for way in (True, False))
    assert signed.colours == unsigned.colours
    assert (unsigned.lowest, unsigned.ends) == (0, ("0", "0.4"))
    assert head_map(-values, GRID, signed=False).signs.max() == 0
    assert set(head_map(-values, GRID, signed=False).colours) == {"#f7f7f7"}


def test_a_map_is_in_the_unit_shown_and_marks_what_differs_from_0():
    values = np.linspace(-0.04, 0.04, GRID.size)
    of = scores(low=values - 0.015, high=values + 0.015)
    shown = map_of(of)
    np.testing.assert_allclose(shown.values, 100 * values)
    assert (shown.unit, shown.signed) == ("points", True)
    assert_array_equal(shown.marks, score_marks(of))
    assert map_of(scores(unit="loss"), 3.0).limit == 3.0


def test_a_method_that_is_not_installed_is_signed_where_there_are_signs_or_intervals():
    values = np.linspace(0.01, 0.04, GRID.size)
    foreign = HeadScores(GRID, "de", "magic", values, "e", "accuracy", 1, 1.0)
    assert not is_signed(foreign)
    assert is_signed(HeadScores(GRID, "de", "magic", -values, "e", "accuracy", 1, 1.0))
    assert is_signed(HeadScores(GRID, "de", "magic", values, "e", "accuracy", 1, 1.0, low=values, high=values))


def scores(unit="accuracy", **more):
    values = np.linspace(-0.04, 0.04, GRID.size)
    return HeadScores(GRID, "de", "shapley", values, "shapley-top50", unit, 1, 1.0, **more)


def test_tips_say_value_half_width_and_samples_in_points():
    values = np.linspace(-0.04, 0.04, GRID.size)
    tips = score_tips(scores(low=values - 0.005, high=values + 0.005, samples=np.full(GRID.size, 1024)))
    assert tips[0] == "-4.00 points\n95% interval -4.50 to -3.50, half-width 0.50\n1,024 samples"
    assert tips[-1] == "+4.00 points\n95% interval +3.50 to +4.50, half-width 0.50\n1,024 samples"


def test_tips_of_a_method_without_intervals_name_its_unit():
    assert score_tips(scores(unit="loss"))[0] == "-0.04 (loss)"


def test_marks_are_the_heads_whose_interval_excludes_zero():
    values = np.linspace(-0.04, 0.04, GRID.size)
    marked = score_marks(scores(low=values - 0.015, high=values + 0.015))
    assert marked.tolist() == [True, True, True, False, False, False, True, True, True]
    assert not score_marks(scores()).any()


def test_one_outlier_does_not_set_the_scale_of_all_maps():
    maps = [np.full(144, 0.01), np.r_[np.full(143, 0.01), 5.0]]
    assert symmetric_limit(maps) == pytest.approx(0.01)


@pytest.mark.parametrize("maps", [[], [np.zeros(4)], [np.full(3, np.nan)]])
def test_a_map_without_any_value_still_has_a_scale(maps):
    assert symmetric_limit(maps) > 0


# One head, drawn alike by Plotly and in the report; tests/browser/test_heads.py compares the grid of the pages.


@pytest.mark.parametrize("method", ["shapley", "gradient"])
def test_a_head_has_the_same_colour_sign_and_mark_in_plotly_and_in_the_report(method):
    """Values of few digits: near 0 a sign is a matter of rounding."""
    several = {code: made_up(code, method) for code in ("de", "th")}
    limit = common_limit(several.values())
    section = scores_section([(Item(of, code), of) for code, of in several.items()])
    factor = pictures.shown_unit(several["de"].unit)[0]
    for of, figure in zip(several.values(), section.figures, strict=False):
        shown = map_of(of, limit)
        (heat,) = plots.head_map(of, limit / factor).data
        cells = [
            cell for cell in ET.fromstring(figure.drawings[0]).iter(f"{SVG}g") if cell.find(f"{SVG}rect") is not None
        ]
        rects = [cell.find(f"{SVG}rect") for cell in cells]
        z = np.array(heat.z, float).ravel()
        by_plotly = [
            between_colours(heat.colorscale, np.clip((v - heat.zmin) / (heat.zmax - heat.zmin), 0, 1)) for v in z
        ]
        assert list(shown.colours) == by_plotly == [rect.get("fill") for rect in rects]
        assert_array_equal(np.sign(z).astype(int), shown.signs)
        ringed = [rect.get("stroke") is not None for rect in rects]
        dotted = (np.array(heat.text) == "●").ravel()
        assert_array_equal(dotted, shown.marks)
        assert_array_equal(ringed, shown.marks)
        told = [cell.find(f"{SVG}title").text for cell in cells]
        assert told == [
            f"{pictures.named(h)}: {t.replace(chr(10), ', ')}" for h, t in zip(of.grid.heads, shown.tips, strict=True)
        ]
