"""The chart of next tokens: a row per token, its two probabilities where they belong."""

from __future__ import annotations

from headlab.charts.next_tokens import MAX_LABEL_LENGTH, next_tokens_chart
from headlab.charts.static import texts_of
from headlab.plots.drawing import plotly_figure

TOKENS = ["▁the", "▁the", "<b>", "x" * 40]
P_ON = [0.9, 0.5, 0.25, 0.0]
P_OFF = [0.1, 0.5, 0.5, 1.0]


def test_each_token_is_a_row_from_top_to_bottom_even_where_tokens_repeat():
    chart = next_tokens_chart(TOKENS, P_ON, P_OFF, "this head off")
    on, off = chart.series
    assert [on.name, off.name] == ["all heads on", "this head off"]
    assert list(on.x) == P_ON
    assert list(off.x) == P_OFF
    assert list(on.y) == list(off.y) == [0, 1, 2, 3]
    bottom, top = chart.y.limits
    assert bottom > top
    assert [label for _, label in chart.y.ticks] == [*TOKENS[:3], "x" * MAX_LABEL_LENGTH]
    assert on.tip_of(0) == "▁the: 90.0\u00a0%\nall heads on"


def test_the_chart_is_drawn_by_both_drawers_and_a_token_is_no_markup():
    chart = next_tokens_chart(TOKENS, P_ON, P_OFF, "this head off")
    figure = plotly_figure(chart)
    assert figure.layout.yaxis.ticktext[2] == "&lt;b&gt;"
    assert [trace.mode for trace in figure.data] == ["lines+markers"] * 2
    assert "<b>" in texts_of(chart)
