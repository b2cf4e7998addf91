"""Records as Plotly figures, made of the charts that pages and documents show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from headlab.api import Report
from headlab.charts.chart import Chart
from headlab.charts.curves import curves_chart
from headlab.charts.dots import Dots, dots_chart
from headlab.charts.head_map import head_map_chart
from headlab.core import Comparison, Evaluation, needs_extra
from headlab.evaluation import accuracy_interval
from headlab.masks import Mask
from headlab.pictures import SWITCHES, HeadMap, head_map, map_of_scores
from headlab.results import Curve, HeadScores
from headlab.tasks import language_title

ShownRecord = HeadScores | Mask | Curve | Report | Comparison | Evaluation
"""What shows itself: what the public functions return."""
DIFFERENCE = "points against all heads"
ACCURACY = "accuracy, %"
PAPER, INK = "#ffffff", "#1d2733"
DEFAULT_HEIGHT = 360
MARGINS_HEIGHT = 60
"""What the words around a figure take, in pixels."""


def figure_of(record: ShownRecord) -> Any:
    """A record as a figure.

    Args:
        record: Scores, a mask, a curve, evaluations, or those of one language.

    Returns:
        A new `plotly.graph_objects.Figure`.

    Raises:
        HeadlabError: Plotly is not installed.
    """
    with needs_extra("figures"):
        from headlab.plots.drawing import plotly_figure

    return _for_notebooks(plotly_figure(chart_of(record)))


def _for_notebooks(figure: Any) -> Any:
    """A figure on paper of its own, with room for its words.

    Figures of pages are transparent and take their colours from the page, which a notebook does
    not give.

    Args:
        figure: Of Plotly; it is changed.
    """
    figure.update_layout(
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        font={"color": INK},
        margin={"l": 24, "r": 24, "t": 56 if figure.layout.title.text else 40, "b": 24},
        height=(figure.layout.height or DEFAULT_HEIGHT) + MARGINS_HEIGHT,
    )
    figure.update_xaxes(automargin=True, title_standoff=8)
    figure.update_yaxes(automargin=True, title_standoff=8)
    return figure


def chart_of(record: ShownRecord) -> Chart:
    """What a record shows as a chart, which Plotly and matplotlib draw.

    Args:
        record: Scores, a mask, a curve, evaluations, or those of one language.
    """
    match record:
        case HeadScores():
            title = f"Attention heads, {language_title(record.language)}"
            return head_map_chart(title, map_of_scores(record))
        case Mask():
            return head_map_chart("Heads kept and removed", _map_of_mask(record))
        case Curve():
            return curves_chart([record])
        case Report():
            return _chart_of_evaluations(record.values())
        case Comparison() | Evaluation():
            return _chart_of_evaluations([record])
    raise TypeError(f"headlab does not show a {type(record).__name__}")


def _map_of_mask(mask: Mask) -> HeadMap:
    """Kept and removed heads on the scale of switches."""
    states = ["kept" if is_kept else "removed" for is_kept in mask.kept.tolist()]
    return head_map(
        mask.kept.astype(np.float64),
        mask.grid,
        unit="1 kept, 0 removed",
        limit=1.0,
        signed=False,
        tips=states,
        own_scale=SWITCHES,
    )


def _chart_of_evaluations(rows: Iterable[Comparison | Evaluation]) -> Chart:
    """A dot with its 95 % interval for each language.

    Differences where there are any, else accuracies. A filled dot's difference is not 0 by its
    interval.
    """
    evaluations = list(rows)
    comparisons = [row for row in evaluations if isinstance(row, Comparison)]
    if comparisons:
        value, low, high = (
            100
            * np.array([(row.difference, row.low, row.high) for row in comparisons])
            .reshape(-1, 3)
            .T
        )
        is_sure = (low > 0) | (high < 0)
        names = [language_title(row.language) for row in comparisons]
        series = {"difference": Dots(value, low, high, is_sure)}
        return dots_chart("Accuracy under the mask, against all heads", names, series, DIFFERENCE)
    alone = [row for row in evaluations if isinstance(row, Evaluation)]
    value = np.array([100 * row.accuracy for row in alone])
    bounds = 100 * np.array([accuracy_interval(row) for row in alone]).reshape(-1, 2)
    dots = Dots(value, bounds[:, 0], bounds[:, 1], np.ones(len(alone), bool))
    names = [language_title(row.language) for row in alone]
    return dots_chart(
        "Accuracy with all heads", names, {"accuracy": dots}, ACCURACY, has_zero_line=False
    )
