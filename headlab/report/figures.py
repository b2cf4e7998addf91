"""The figures of a report as SVG: no browser and no script needed."""

from __future__ import annotations

from headlab.charts.chart import Chart
from headlab.charts.report import cannot_draw, study_drawings
from headlab.core import HeadlabError, Report
from headlab.report.maps import roles_map
from headlab.roles import NAME as ROLES


def drawn(report: Report) -> dict[str, tuple[str, ...]]:
    """{name: drawings} of a report; empty for one without figures.

    Raises HeadlabError if the tables lack what the figures need, or if a figure of another package
    cannot be drawn.
    """
    try:
        if report.name == ROLES:
            return {"the clearest role of each head": roles_map(report)}
        return {name: (inline(chart),) for name, chart in charts_of(report).items()}
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # tables from a file may hold anything
        raise HeadlabError(
            f"the tables do not hold what is drawn ({type(error).__name__})",
            code="figure.tables_mismatch",
        ) from error


def charts_of(report: Report) -> dict[str, Chart]:
    """What a report's study draws of it, as charts.

    Args:
        report: Of any study.

    Returns:
        {name, usable as a file name: chart}; a Plotly figure of another package as the chart that
        it shows. Empty for a study without figures.

    Raises:
        HeadlabError: The report does not hold what its study finds, or a figure cannot be drawn.
    """
    charts = {}
    for name, drawing in study_drawings(report).items():
        if isinstance(drawing, Chart):
            charts[name] = drawing
            continue
        if not hasattr(drawing, "to_plotly_json"):
            raise cannot_draw(report, TypeError(f"{name} is no chart and no Plotly figure"))
        # Whoever gives a Plotly figure has installed Plotly.
        from headlab.plots.reading import chart_of

        charts[name] = chart_of(drawing, name)
    return charts


def inline(chart: Chart) -> str:
    """A chart as SVG for an HTML document, in the document's colours and font."""
    from headlab.charts import static

    return static.svg(chart, is_inline=True)
