"""Measures of heads, and the chart of two of them, against what results and reports say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.cached_scores import GRID, HARMFUL, HELPFUL, made_scores
from support.synthetic_roles import GRID as SMALL
from support.synthetic_roles import made_roles

from headlab.charts.chart import Points
from headlab.charts.head_measures import (
    HeadMeasure,
    layer_measure,
    measures_of_roles,
    rank_measure,
    value_measure,
)
from headlab.charts.scatter import (
    NO_ROLE,
    NOT_EXAMINED,
    groups_by_role,
    groups_by_sign,
    known_in_both,
    one_group,
    scatter_chart,
)
from headlab.charts.static import texts_of
from headlab.core import HeadGrid, Stack
from headlab.plots.drawing import plotly_figure
from headlab.roles import read_roles

NAMES = [f"Head {head.layer}.{head.head}" for head in GRID.heads]


@pytest.fixture
def scores():
    return made_scores("de", "shapley")


def test_values_are_in_points_with_their_intervals_and_ranks_count_from_the_highest(scores):
    value = value_measure(scores, "value by shapley")
    assert value.title == "value by shapley, de, points"
    shares_of_accuracy = (scores.values[HARMFUL], scores.low[HARMFUL], scores.high[HARMFUL])
    points = (value.values[HARMFUL], value.low[HARMFUL], value.high[HARMFUL])
    np.testing.assert_allclose(points, [100 * share for share in shares_of_accuracy])
    assert value.text_of(HARMFUL) == "−5.00 [−5.60, −4.40] points"
    rank = rank_measure(scores, "rank by shapley")
    assert rank.values[HELPFUL] == 1
    for index in (0, HARMFUL, 100):
        assert rank.values[index] == 1 + sum(scores.values > scores.values[index])
    assert rank.text_of(HELPFUL) == "1"


def test_scores_without_signs_are_written_without_a_sign_and_without_intervals():
    confidence = value_measure(made_scores("de", "confidence"), "value by confidence")
    assert confidence.text_of(0)[0] not in "+−"
    without_intervals = dataclasses.replace(made_scores("de", "shapley"), low=None, high=None)
    assert value_measure(without_intervals, "value by shapley").text_of(HARMFUL) == "−5.00 points"


def test_layers_count_from_0_in_every_stack():
    grid = HeadGrid((Stack("encoder", (2, 1)), Stack("decoder", (1, 2))))
    assert layer_measure(grid).values.tolist() == [0, 0, 1, 0, 1, 1]


def test_a_report_gives_its_attention_measures_and_the_share_of_every_role():
    roles = read_roles(made_roles())
    measures = measures_of_roles(roles, SMALL, "de")
    entropy = measures["attention: entropy"]()
    assert entropy.title == "attention: entropy, de, nats"
    head = SMALL.heads[3]
    assert entropy.values[3] == roles.measures[head]["entropy, nats"]
    assert "attention: tokens" not in measures
    share = measures["share of role position −1"]()
    (row,) = [row for row in roles.rows if (row.head, row.role) == (SMALL.heads[0], "position -1")]
    assert (share.values[0], share.low[0], share.high[0]) == (
        row.numbers["share, %"],
        row.numbers["low, %"],
        row.numbers["high, %"],
    )
    assert share.unit == "%"


def test_heads_that_a_report_lacks_have_no_value():
    larger = HeadGrid((Stack("encoder", (4, 4, 3, 2)),))
    measures = measures_of_roles(read_roles(made_roles()), larger, "de")
    for maker in measures.values():
        assert np.isnan(maker().values[-2:]).all()


def test_signs_go_by_the_intervals_and_every_head_is_in_one_group(scores):
    groups = groups_by_sign(scores)
    by_name = {group.name: group for group in groups}
    assert HELPFUL in by_name["helps"].head_indices
    assert HARMFUL in by_name["harms"].head_indices
    assert sorted(index for group in groups for index in group.head_indices) == list(
        range(GRID.size)
    )
    assert len({group.symbol for group in groups}) == len(groups)
    without_intervals = dataclasses.replace(scores, low=None, high=None)
    assert [group.name for group in groups_by_sign(without_intervals)] == ["neither for sure"]


def test_roles_go_by_the_clearest_one_and_say_which_heads_were_not_looked_at():
    roles = read_roles(made_roles())
    larger = HeadGrid((Stack("encoder", (4, 4, 3, 2)),))
    groups = {group.name: group for group in groups_by_role(roles, larger.heads)}
    assert groups["positional"].head_indices.tolist() == [0]
    assert groups[NOT_EXAMINED].head_indices.tolist() == [SMALL.size, SMALL.size + 1]
    drawn = sorted(index for group in groups.values() for index in group.head_indices)
    assert drawn == list(range(larger.size))
    assert NO_ROLE in groups


def test_every_head_with_both_values_is_a_point_that_knows_its_index(scores):
    x = value_measure(scores, "value by shapley")
    y = dataclasses.replace(
        layer_measure(GRID), values=np.where(np.arange(GRID.size) < 3, np.nan, 1)
    )
    assert known_in_both(x, y).sum() == GRID.size - 3
    chart = scatter_chart(x, y, groups_by_sign(scores), NAMES)
    points = [series for series in chart.series if isinstance(series, Points)]
    for series in points:
        for x_value, (index,) in zip(series.x, series.keys, strict=True):
            assert x_value == x.values[index]
    keys = sorted(index for series in points for (index,) in series.keys)
    assert keys == list(range(3, GRID.size))
    assert all(not len(series.is_faint) for series in points)


def test_heads_that_are_chosen_stand_out(scores):
    x = value_measure(scores, "value by shapley")
    chart = scatter_chart(
        x, layer_measure(GRID), one_group(GRID.size), NAMES, selected_indices={5, 7}
    )
    (points,) = chart.series
    assert [
        index
        for (index,), is_faint in zip(points.keys, points.is_faint, strict=True)
        if not is_faint
    ] == [5, 7]


def test_the_figure_takes_an_area_and_files_show_it_too(scores):
    x = value_measure(scores, "value by shapley")
    chart = scatter_chart(x, layer_measure(GRID), groups_by_sign(scores), NAMES)
    figure = plotly_figure(chart)
    assert figure.layout.dragmode == "lasso"
    assert figure.layout.xaxis.title.text == "value by shapley, de, points"
    hover = next(trace for trace in figure.data if trace.name == "harms")
    position = [key[0] for key in hover.customdata].index(HARMFUL)
    assert hover.text[position].startswith(
        "Head 3.7<br>value by shapley, de: −5.00 [−5.60, −4.40] points"
    )
    assert "value by shapley, de, points" in texts_of(chart)


def test_heads_without_a_value_have_no_rank_and_ranks_go_by_samples_where_there_are_slopes(scores):
    values = scores.values.copy()
    values[3] = np.nan
    rank = rank_measure(dataclasses.replace(scores, values=values), "rank")
    assert np.isnan(rank.values[3])
    assert np.isfinite(rank.values).sum() == GRID.size - 1
    assert rank.ranked_values is rank.values
    means = -scores.values
    joined = dataclasses.replace(scores, sample_means=means)
    np.testing.assert_allclose(value_measure(joined, "value").ranked_values, 100 * means)
    assert rank_measure(joined, "rank").ranked_values[HARMFUL] == 1
    assert rank_measure(joined, "rank").values[HARMFUL] == GRID.size


def test_a_value_that_is_not_known_says_so():
    measure = HeadMeasure("entropy", "", "nats", np.array([np.nan, 1.25]))
    assert measure.text_of(0) == "not known"
    assert measure.text_of(1) == "1.25 nats"
