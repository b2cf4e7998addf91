"""What the study of a report shows of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headlab.core import HeadlabError, Report, import_implementation
from headlab.studies import STUDIES, result_of

log = logging.getLogger(__name__)
HOME = (
    "headlab.charts.studies"  # package of the modules that the table of studies names by one word
)


def study_drawings(report: Report) -> Mapping[str, object]:
    """What a report's study draws of it, as the study gives it.

    Args:
        report: Of any study.

    Returns:
        {name, usable as a file name: chart}; a study from another package may give Plotly figures
        instead. Empty for a study without any.

    Raises:
        HeadlabError: If the report does not hold what its study finds, or the study cannot draw it,
            as one from another package may not.
    """
    study = STUDIES.get(report.name)
    if study is None or not study.figures:
        return {}
    try:
        result = result_of(report)
        drawings: Mapping[str, object] = import_implementation(study.figures, HOME).figures(result)
        return dict(drawings)
    except HeadlabError:
        raise
    except Exception as error:  # a package can raise anything
        raise cannot_draw(report, error) from error


def cannot_draw(report: Report, error: Exception) -> HeadlabError:
    """The error that says why a study cannot draw its report."""
    log.warning("the figures of %s cannot be drawn", report.name, exc_info=error)
    return HeadlabError(
        f"study {report.name} cannot draw them ({type(error).__name__}: {error})",
        code="figure.study_failed",
    )
