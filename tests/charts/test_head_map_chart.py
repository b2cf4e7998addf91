"""The map of heads as a chart and as a captioned picture."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support.cached_scores import GRID, HARMFUL, HELPFUL, made_scores

from headlab.charts import static
from headlab.charts.fonts import width_of
from headlab.charts.head_map import head_map_chart, mark_text, marks_in_words
from headlab.core import HeadGrid, Stack
from headlab.pictures import HOLM_CORRECTED, OWN_INTERVAL, head_map, maps_of_scores
from headlab.report.map_picture import map_caption, map_picture


def test_each_cell_has_its_heads_value_and_mark():
    scores = made_scores("de", "shapley")
    drawn_map = maps_of_scores({"de": scores})["de"]
    cells = head_map_chart("Heads", drawn_map).series[0]
    for index, head in enumerate(GRID.heads):
        assert cells.values[head.layer, head.head] == drawn_map.values[index]
        assert cells.texts[head.layer][head.head] == mark_text(int(drawn_map.marks[index]))
    assert (cells.low, cells.high) == (drawn_map.lowest, drawn_map.limit)
    assert cells.texts[9][0] == "++"
    assert cells.texts[3][7] == "−−"


def test_stacks_of_other_sizes_stand_below_each_other():
    grid = HeadGrid((Stack("encoder", (2, 3)), Stack("decoder", (1,))))
    values = np.arange(6.0)
    marks = np.array([0, OWN_INTERVAL, 0, 0, 0, -HOLM_CORRECTED])
    drawn_map = head_map(values, grid, marks=marks)
    cells = head_map_chart("Heads", drawn_map).series[0]
    assert list(cells.rows) == ["encoder 0", "encoder 1", "decoder 0"]
    expected = [[0, 1, np.nan], [2, 3, 4], [5, np.nan, np.nan]]
    np.testing.assert_array_equal(cells.values, expected)
    assert cells.texts == [["", "+", ""], ["", "", ""], ["−−", "", ""]]


def test_the_caption_says_what_is_drawn_and_only_marks_that_occur():
    scores = made_scores("de", "shapley")
    drawn_map = maps_of_scores({"de": scores})["de"]
    caption = map_caption(scores, marks_in_words(drawn_map))
    for words in (
        "e5-small-intents on intents, German (de)",
        "shapley",
        "in points",
        "512 dev examples, 2,048 samples a head. A removed head gives zeros.",
        "+ and −: the head's own interval excludes 0",
        "++ and −−: also after Holm's correction for 144 tests",
        "Weights 000000000000",
    ):
        assert words in caption
    unmarked = head_map(np.zeros(GRID.size), GRID)
    assert marks_in_words(unmarked) == ""
    unsampled = replace(scores, samples=None)
    assert "samples a head" not in map_caption(unsampled, "")


def test_the_picture_is_the_chart_with_its_caption_below():
    scores = {name: made_scores(name, "shapley") for name in ("de", "th")}
    content = map_picture(scores, "th")
    assert content == map_picture(scores, "th")
    picture = Image.open(io.BytesIO(content))
    drawn_map = maps_of_scores(scores)["th"]
    chart = head_map_chart("Attention heads, th", drawn_map)
    chart_alone = Image.open(io.BytesIO(static.png(chart)))
    assert picture.width == chart_alone.width
    assert picture.height > chart_alone.height + 50
    below = np.asarray(picture.convert("L"))[chart_alone.height :]
    assert below.min() < 128  # letters
    assert below.max() == 255
    assert "for 288 tests" in picture.text["Description"]
    # The colours of the two largest effects are those of the page.
    colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24)}
    for index in (HARMFUL, HELPFUL):
        name = drawn_map.colours[index].removeprefix("#")
        assert tuple(bytes.fromhex(name)) in colours


@pytest.mark.parametrize("name", ["a\ue000b", "model 中文"])
def test_a_name_that_no_font_has_does_not_stop_the_picture(name):
    scores = made_scores("de", "shapley", name=name)
    picture = Image.open(io.BytesIO(map_picture({"de": scores}, "de")))
    assert "+ and −" in picture.text["Description"]  # what can be drawn stays
    assert "German (de)" in picture.text["Description"]


@pytest.mark.parametrize("text", ["", "one", "word " * 60, "x" * 500])
def test_lines_of_a_caption_fit_but_for_long_words(text):
    lines = static.wrapped(text, 10, 300)
    assert " ".join(lines) == " ".join(text.split())
    assert all(width_of(line, 10) <= 300 or " " not in line for line in lines)
