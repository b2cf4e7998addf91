"""The figures of an experiment's report, drawn from what it found."""

from __future__ import annotations

import plotly.graph_objects as go

from headlab.charts.chart import Chart
from headlab.charts.report import cannot_draw, study_drawings
from headlab.core import HEAD_COLUMNS, Head, Report, Table
from headlab.plots.drawing import plotly_figure
from headlab.roles import heads_of

Figures = dict[str, go.Figure]


def report_figures(report: Report) -> Figures:
    """{name, usable as a file name: figure} of a report; empty for a study without figures.

    Raises:
        HeadlabError: The report does not hold what its study finds, or the study cannot draw it, as
            one from another package may not.
    """
    figures: Figures = {}
    for name, drawing in study_drawings(report).items():
        if isinstance(drawing, Chart):
            figures[name] = plotly_figure(drawing)
        elif isinstance(drawing, go.Figure):
            figures[name] = drawing
        else:
            raise cannot_draw(report, TypeError(f"{name} is no chart and no Plotly figure"))
    return figures


def heads_by_row(table: Table) -> list[Head]:
    """The head of each row; empty where a table's rows are of no heads.

    Raises:
        HeadlabError: One of them is invalid.
    """
    if {*HEAD_COLUMNS} <= {*table.columns}:
        return heads_of(table)
    return []
