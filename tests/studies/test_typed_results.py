"""Stored reports are read back as what their study found, and shown as the very tables that are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_fronts import made_front
from made_reports import made_reports

from headlab.errors import HeadlabError
from headlab.store import Store
from headlab.studies.result import result_of
from headlab.studies.table import STUDIES
from headlab.tables import Report

COMMITTED = Path(__file__).parents[2] / "cache"
TYPED = {key for key, about in STUDIES.items() if about.result}


def committed_reports() -> Iterator[Report]:
    """The reports of the committed cache whose study has a typed result."""
    for result in Store(COMMITTED).reports().results:
        if result.record.name in TYPED:
            yield result.record


def shown_again(report: Report) -> str:
    """The tables that the report's result is shown as, as they are stored."""
    result = result_of(report)
    assert result is not None
    assert result.notes == report.notes
    return json.dumps([table.to_json() for table in result.tables()])


def stored(report: Report) -> str:
    """The report's own tables, as they are stored."""
    return json.dumps([table.to_json() for table in report.tables])


def test_every_report_of_the_committed_cache_is_shown_as_it_is_stored() -> None:
    reports = list(committed_reports())
    assert {report.name for report in reports} == TYPED
    for report in reports:
        assert shown_again(report) == stored(report), report.name


def test_every_made_report_is_shown_as_it_is_stored(tmp_path: Path) -> None:
    made = made_reports(tmp_path)
    fronts = [made_front(), made_front(within=2.0), made_front(heads=4)]
    reports = [report for name, report in made.items() if name in TYPED]
    for report in [*reports, *fronts]:
        again = Report.from_json(json.loads(json.dumps(report.to_json())))
        assert shown_again(again) == stored(report), report.name


def test_a_front_has_its_question_from_what_it_depends_on() -> None:
    losses = [
        getattr(result_of(made_front(**options)), "loss")
        for options in ({"within": 2.0}, {"heads": 4})
    ]
    assert losses == [2.0, None]


@pytest.mark.parametrize("name", ["front", "front-choice", "front-confirmed", "front-orders"])
def test_a_front_without_a_table_is_refused_with_a_sentence(name: str) -> None:
    report = made_front()
    rest = tuple(table for table in report.tables if table.name != name)
    with pytest.raises(HeadlabError, match=name):
        result_of(Report("front", rest, spec=report.spec))
