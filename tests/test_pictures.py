"""Maps of heads: colours, scale, signs, marks and words, and one head drawn alike wherever it is drawn."""

from __future__ import annotations

import base64
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from reference import between_colours, holm_by_steps
from support.cached_scores import made_up

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

GRID = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (4,))))
SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_of_shares_has_a_pixel_each_on_the_sequential_scale():
    shares = np.array([[0.0, 0.2, 1.0], [0.5, 2.0, 0.75]])
    with Image.open(
        io.BytesIO(base64.b64decode(pictures.png_of_shares(shares).partition(",")[2]))
    ) as image:
        assert (image.size, image.mode) == ((3, 2), "RGB")
        found = np.asarray(image)
    for share, pixel in zip(shares.ravel(), found.reshape(-1, 3), strict=True):
        wanted = pictures.rgb(
            between_colours(pictures.SEQUENTIAL, round(255 * min(share, 1)) / 255)
        )
        assert_array_equal(pixel, wanted)


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
    shown = map_of_scores(of)
    np.testing.assert_allclose(shown.values, 100 * values)
    assert (shown.unit, shown.signed) == ("points", True)
    assert_array_equal(shown.marks, score_marks(of))
    assert map_of_scores(scores(unit="loss"), 3.0).limit == 3.0


def test_a_result_that_does_not_say_so_is_signed_where_there_are_signs_or_intervals():
    values = np.linspace(0.01, 0.04, GRID.size)
    assert not HeadScores(GRID, "de", "magic", values, "e", "accuracy", 1, 1.0).signed
    assert HeadScores(GRID, "de", "magic", -values, "e", "accuracy", 1, 1.0).signed
    assert HeadScores(
        GRID, "de", "magic", values, "e", "accuracy", 1, 1.0, low=values, high=values
    ).signed


def test_sizes_with_intervals_help_nobody_and_have_no_marks():
    values = np.linspace(0.01, 0.04, GRID.size)
    ends = {"low": values / 2, "high": 2 * values}
    sizes = HeadScores(
        GRID, "de", "gradient", values, "gradient", "loss", 1, 1.0, signed=False, **ends
    )
    assert not sizes.helpful.any()
    assert not score_marks(sizes).any()
    assert not maps_of_scores({"de": sizes})["de"].signed
    with pytest.raises(HeadlabError, match="rule harmful needs signs with intervals"):
        sizes.mask("harmful")


def scores(unit="accuracy", **more):
    values = np.linspace(-0.04, 0.04, GRID.size)
    return HeadScores(GRID, "de", "shapley", values, "shapley-top50", unit, 1, 1.0, **more)


def test_tips_say_value_half_width_and_samples_in_points():
    values = np.linspace(-0.04, 0.04, GRID.size)
    tips = score_tips(
        scores(low=values - 0.005, high=values + 0.005, samples=np.full(GRID.size, 1024))
    )
    assert tips[0] == "−4.00 points\n95% interval −4.50 to −3.50, half-width 0.50\n1,024 samples"
    assert tips[-1] == "+4.00 points\n95% interval +3.50 to +4.50, half-width 0.50\n1,024 samples"


def test_tips_of_a_method_without_intervals_name_its_unit():
    assert score_tips(scores(unit="loss"))[0] == "−0.04 (loss)"


def test_marks_are_the_heads_whose_interval_excludes_zero():
    values = np.linspace(-0.04, 0.04, GRID.size)
    marked = score_marks(scores(low=values - 0.015, high=values + 0.015))
    assert marked.tolist() == [-1, -1, -1, 0, 0, 0, 1, 1, 1]
    assert not score_marks(scores()).any()
    p = np.array([0.001, 0.05, 0.06, 0.001, 1, 1, 1, 0.001, 0.001])
    some = score_marks(scores(low=values - 0.015, high=values + 0.015), p)
    assert some.tolist() == [-2, -2, -1, 0, 0, 0, 1, 2, 2]  # no mark without an interval beside 0


def test_p_values_are_corrected_for_all_heads_of_all_maps_on_view():
    values = np.linspace(-0.04, 0.04, GRID.size)
    p = np.geomspace(1e-3, 0.04, GRID.size)
    of = scores(low=values - 0.001, high=values + 0.001, p_values=p)
    for count in (1, 5):
        every = {str(n): of for n in range(count)}
        wanted = np.array_split(holm_by_steps(np.tile(p, count).tolist()), count)
        for name, shown in maps_of_scores(every | {"none": scores()}).items():
            sure = np.abs(shown.marks) == HOLM_CORRECTED
            if name == "none":
                assert (sure.any(), shown.tests, list(shown.meanings)) == (False, 0, [OWN_INTERVAL])
                continue
            assert_array_equal(sure, (wanted[int(name)] <= 0.05) & (shown.marks != 0))
            assert shown.tests == count * GRID.size
            assert f"{count * GRID.size} tests" in shown.meanings[HOLM_CORRECTED]
    assert sure.sum() < np.abs(map_of_scores(of).marks == HOLM_CORRECTED).sum()


def test_a_map_promises_no_correction_that_nothing_can_survive():
    values = np.linspace(-0.04, 0.04, GRID.size)
    blunt = scores(low=values - 0.001, high=values + 0.001, p_values=np.full(GRID.size, 0.001))
    assert map_of_scores(blunt).tests == GRID.size
    every = maps_of_scores({str(n): blunt for n in range(6)})
    assert {shown.tests for shown in every.values()} == {0}
    assert {*every["0"].meanings} == {OWN_INTERVAL}
    assert "0.001: over 54 tests" in why_holm_rejects_none([blunt] * 6)
    assert why_holm_rejects_none([blunt]) == why_holm_rejects_none([scores()]) == ""


def test_maps_are_on_one_scale_or_on_their_own():
    small = scores()
    large = HeadScores(GRID, "th", "shapley", 3 * small.values, "shapley-top50", "accuracy", 1, 1.0)
    assert {shown.limit for shown in maps_of_scores({"a": small, "b": large}).values()} == {
        common_limit([small, large])
    }
    own = maps_of_scores({"a": small, "b": large}, common=False)
    assert [own[name].limit for name in "ab"] == [common_limit([small]), common_limit([large])]


def test_one_outlier_does_not_set_the_scale_of_all_maps():
    maps = [np.full(144, 0.01), np.r_[np.full(143, 0.01), 5.0]]
    assert symmetric_limit(maps) == pytest.approx(0.01)


@pytest.mark.parametrize("maps", [[], [np.zeros(4)], [np.full(3, np.nan)]])
def test_a_map_without_any_value_still_has_a_scale(maps):
    assert symmetric_limit(maps) > 0


# One head, drawn alike by Plotly and in the report; tests/browser/test_heads.py compares the grid of the pages.


@pytest.mark.parametrize("method", ["shapley", "gradient"])
def test_a_head_has_the_same_colour_sign_and_mark_in_plotly_and_in_the_report(method):
    """Values of few digits: near 0 a sign is a matter of rounding. A figure alone corrects for its own heads only."""
    several = {code: made_up(code, method) for code in ("de", "th")}
    limit = common_limit(several.values())
    together = maps_of_scores(several)
    section = scores_section([Item(of, code) for code, of in several.items()], Known())
    factor = pictures.display_unit(several["de"].unit)[0]
    for of, figure in zip(several.values(), section.figures, strict=False):
        shown = together[of.language]
        own = map_of_scores(of, limit)
        heat, *points = plots.head_map(of, limit / factor).data
        cells = [
            cell
            for cell in ET.fromstring(figure.drawings[0]).iter(f"{SVG}g")
            if cell.find(f"{SVG}rect") is not None
        ]
        rects = [cell.find(f"{SVG}rect") for cell in cells]
        z = np.array(heat.z, float).ravel()
        by_plotly = [
            between_colours(
                heat.colorscale, np.clip((v - heat.zmin) / (heat.zmax - heat.zmin), 0, 1)
            )
            for v in z
        ]
        assert list(shown.colours) == by_plotly == [rect.get("fill") for rect in rects]
        assert_array_equal(np.sign(z).astype(int), shown.signs)
        assert_array_equal([mark_in(cell) for cell in cells], shown.marks)
        assert_array_equal(marks_of(points, np.array(heat.z).shape), own.marks)
        told = [cell.find(f"{SVG}title").text for cell in cells]
        assert told == [
            f"{pictures.head_in_words(h)}: {t.replace(chr(10), ', ')}"
            for h, t in zip(of.grid.heads, shown.tips, strict=True)
        ]


def mark_in(cell):
    """The mark of a head in the report's drawing."""
    ring = cell.find(f"{SVG}circle")
    if ring is None:
        return 0
    return (1 if "v" in cell.find(f"{SVG}path").get("d") else -1) * (
        1 if ring.get("fill") == "none" else 2
    )


def marks_of(points, shape):
    """The marks of a figure's heads, flat."""
    found = np.zeros(shape, int)
    for trace in points:
        for x, y, sign, colour in zip(
            trace.x, trace.y, trace.text, trace.marker.color, strict=True
        ):
            found[y, x] = (1 if sign == "+" else -1) * (2 if colour == pictures.DARK else 1)
    return found.ravel()
