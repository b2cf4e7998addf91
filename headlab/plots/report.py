"""The figures of an experiment's report, drawn from what it found."""

from __future__ import annotations

import logging

import plotly.graph_objects as go

from headlab.core import HEAD, Head, HeadlabError, Report, Table, implementation
from headlab.roles import heads_of
from headlab.studies.result import result_of
from headlab.studies.table import STUDIES

log = logging.getLogger(__name__)
HOME = "headlab.plots.studies"  # package of the modules that the table of studies names by one word
Figures = dict[str, go.Figure]


def report_figures(report: Report) -> Figures:
    """{name, usable as a file name: figure} of a report; empty for a study without figures.

    Raises:
        HeadlabError: If the report does not hold what its study finds, or the study cannot draw it, as one from
            another package may not.
    """
    study = STUDIES.get(report.name)
    if study is None or not study.figures:
        return {}
    try:
        result = result_of(report)
        figures: Figures = implementation(study.figures, HOME).figures(result)
        for name, figure in figures.items():
            if not isinstance(figure, go.Figure):
                raise TypeError(f"{name} is no Plotly figure")
    except HeadlabError:
        raise
    except Exception as error:  # a package can raise anything
        log.warning("the figures of %s cannot be drawn", report.name, exc_info=True)
        raise HeadlabError(
            f"study {report.name} cannot draw them ({type(error).__name__}: {error})",
            code="figure.study_failed",
        ) from error
    return figures


def heads_by_row(table: Table) -> list[Head]:
    """The head of each row; empty where a table's rows are of no heads. Raises HeadlabError if one is invalid."""
    return heads_of(table) if {*HEAD} <= {*table.columns} else []
