"""The result of a study as records: every stored report is read into them, its tables show them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pytest
from support.expected_errors import raises
from support.synthetic_fronts import made_front
from support.synthetic_pairs import made_pairs
from support.synthetic_reports import made_reports

from headlab.core import Cell, Head, Report, Table
from headlab.results import Store
from headlab.studies.pareto import FrontResult
from headlab.studies.result import (
    Column,
    HeadCells,
    Records,
    StudyResult,
    TableName,
    readable_rows,
    result_of,
    shown_parts,
    typed_result,
)
from headlab.studies.table import STUDIES

CACHE = Path(__file__).parents[2] / "headlab" / "embedded" / "results"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """Reports of the committed cache, one of every experiment, three of fronts, and one of pairs."""
    stored_reports = [result.record for result in Store(CACHE).reports().results]
    new_reports = made_reports(tmp_path_factory.mktemp("store"))
    fronts = [made_front(), made_front(within=2.0), made_front(heads=4)]
    return [*stored_reports, *new_reports.values(), *fronts, made_pairs()]


def as_stored(tables: tuple[Table, ...]) -> str:
    return json.dumps([table.to_json() for table in tables])


def test_the_tables_of_every_report_are_a_view_of_its_records(reports: list[Report]) -> None:
    read_names = set()
    for report in reports:
        result = result_of(report)
        if result is None:
            continue
        read_names.add(report.name)
        assert as_stored(result.tables()) == as_stored(report.tables)
        assert result.notes == report.notes
    assert read_names == {key for key, study in STUDIES.items() if study.result}


@dataclass(frozen=True)
class Share:
    """A record with columns of every kind."""

    language: Annotated[str, Column("language")]
    head: HeadCells
    shares: Annotated[Mapping[str, float | None], Column("{kind}, %", ".1f")]
    highest: Annotated[float, Column("highest, {unit}", ".1f")]
    comment: Annotated[str, Column("comment")] = "none"


@dataclass(frozen=True, kw_only=True)
class Shares(StudyResult):
    """A result with a table that a report may lack."""

    shares: Annotated[Records[Share], TableName("shares")]
    others: Annotated[Records[Share] | None, TableName("others")] = None


NAMES = {"kind": ("old", "new"), "unit": ("points",)}
SHARE = Share(
    "de",
    Head("encoder", 1, 2),
    {"old": 1.0, "new": None},
    2.5,
    "so",
)


def shares(*rows: Share) -> Shares:
    return Shares(shares=Records("Shares", rows, ("A note.",), NAMES), notes=("Beware.",))


def report_of(result: StudyResult) -> Report:
    return Report("shares", *shown_parts(result))


@pytest.mark.parametrize("rows", [(), (SHARE,)])
def test_columns_are_named_by_what_is_in_them_and_read_back(rows: tuple[Share, ...]) -> None:
    (table,) = shares(*rows).tables()
    head_columns = ("stack", "layer", "head")
    share_columns = ("old, %", "new, %", "highest, points")
    assert table.columns == ("language", *head_columns, *share_columns, "comment")
    assert table.formats == ("", "", "d", "d", ".1f", ".1f", ".1f", "")
    assert table.rows == (("de", "encoder", 1, 2, 1.0, None, 2.5, "so"),) * len(rows)
    assert table.notes == ("A note.",)
    assert Shares.from_report(report_of(shares(*rows))) == shares(*rows)


@dataclass(frozen=True, kw_only=True)
class Described:
    """A record whose fields are given by name, one of which stands in no column."""

    share: Annotated[float, Column("share")]
    origin: str = "a table"
    language: Annotated[str, Column("language")]


def test_a_record_may_take_its_fields_by_name_alone_and_have_one_without_a_column() -> None:
    table = Table(
        "t",
        "T",
        ("language", "share"),
        ("", ""),
        (("de", 0.5), ("th", 1)),
    )
    rows = readable_rows(Report("r", (table,)), "t", Described)
    assert rows == (Described(share=0.5, language="de"), Described(share=1, language="th"))


def test_a_column_with_a_default_may_be_missing_in_an_older_report() -> None:
    (table,) = shares(SHARE).tables()
    older_table = replace(
        table,
        columns=table.columns[:-1],
        formats=table.formats[:-1],
        rows=tuple(row[:-1] for row in table.rows),
    )
    (row,) = Shares.from_report(Report("shares", (older_table,))).shares.rows
    assert row == replace(SHARE, comment="none")


@dataclass(frozen=True)
class Language:
    """A record without a placeholder, of which a column may lack."""

    language: Annotated[str, Column("language")]
    share: Annotated[float | None, Column("share", ".1f")] = None


@dataclass(frozen=True, kw_only=True)
class Counted(StudyResult):
    """A result that counts how often a report is read."""

    languages: Annotated[Records[Language], TableName("languages")]
    readings: ClassVar[list[Report]] = []

    @classmethod
    def from_report(cls, report: Report) -> Self:
        cls.readings.append(report)
        return super().from_report(report)


def counted_report(*shares: Cell) -> Report:
    rows = tuple(("de", share) for share in shares)
    table = Table("languages", "X.", ("language", "share"), ("", ".1f"), rows)
    return Report("counted", (table,))


def test_a_report_is_read_once_and_one_that_equals_it_on_its_own() -> None:
    report = counted_report(1.0)
    equal_report = counted_report(1.0)
    results = [typed_result(report, Counted), typed_result(report, Counted)]
    assert results[0] is results[1]
    assert results[0].languages.rows == (Language("de", 1.0),)
    assert Counted.readings == [report]
    assert typed_result(equal_report, Counted) == results[0]
    assert len(Counted.readings) == 2


def test_a_report_of_a_store_is_read_again_once_its_file_has_changed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    report = made_front(within=2.0)
    stored_run = store.run(report.spec)

    def stored_front(title: str, seconds: int) -> FrontResult:
        first_table, *other_tables = report.tables
        stored_run.finish(
            replace(report, tables=(replace(first_table, title=title), *other_tables)), {}
        )
        for name in ("spec.json", "result.npz"):
            os.utime(stored_run.folder / name, (seconds, seconds))
        front = typed_result(store.reports().results[0].record, FrontResult)
        assert typed_result(store.reports().results[0].record, FrontResult) is front
        return front

    assert stored_front("Before", 1000).answers.title == "Before"
    assert stored_front("After", 2000).answers.title == "After"


def test_what_is_read_of_a_report_cannot_be_changed() -> None:
    result = typed_result(report_of(shares(SHARE)), Shares)
    with pytest.raises(TypeError, match="does not support item assignment"):
        result.shares.rows[0].shares["old"] = 5.0  # type: ignore[index] # what is tried
    with pytest.raises(TypeError, match="does not support item assignment"):
        result.shares.names["kind"] = ()  # type: ignore[index] # what is tried


@pytest.mark.parametrize("share", [1, np.float64(0.5), None])
def test_a_share_may_be_a_whole_number_a_number_of_numpy_or_none(share: Cell) -> None:
    rows = Counted.from_report(counted_report(0.25, share)).languages.rows
    assert [row.share for row in rows] == [0.25, share]


def test_a_row_that_can_be_read_stays_where_another_lacks_its_figure() -> None:
    report = counted_report(1.0, "x", float("nan"), 10**400, None)
    with raises("table.column_unreadable", "share"):
        Counted.from_report(report)
    rows = readable_rows(report, "languages", Language)
    assert [row.share for row in rows] == [1.0, None]


def test_a_study_that_cannot_read_its_report_is_an_error_with_a_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        FrontResult, "from_report", classmethod(lambda cls, report: {}["no such table"])
    )
    with raises("report.study_failed", "no such table"):
        result_of(made_front())


ODD: list[tuple[int, Any]] = [
    (0, None),
    (0, 1),
    (1, 5),
    (2, 1.5),
    (2, True),
    (4, "x"),
    (6, None),
    (6, True),
    (6, float("nan")),
    (6, float("inf")),
    (6, 10**400),
]


@pytest.mark.parametrize(("column", "cell"), ODD)
def test_a_cell_of_another_kind_is_an_error_or_leaves_its_row_out(column: int, cell: Any) -> None:
    (table,) = shares(SHARE, SHARE).tables()
    first_row, second_row = table.rows
    unreadable_row = (*first_row[:column], cell, *first_row[column + 1 :])
    unreadable_table = replace(table, rows=(unreadable_row, second_row))
    unreadable_report = Report("shares", (unreadable_table,))
    with raises("table.column_unreadable", table.columns[column]):
        Shares.from_report(unreadable_report)
    assert readable_rows(unreadable_report, "shares", Share) == (SHARE,)


def test_a_report_without_the_table_cannot_be_read_unless_it_may_lack_it() -> None:
    report = report_of(shares(SHARE))
    assert Shares.from_report(report).others is None
    with raises("report.table_unknown", "shares"):
        Shares.from_report(replace(report, tables=()))
    assert readable_rows(replace(report, tables=()), "shares", Share) == ()


def test_a_result_is_not_changed_and_tables_and_notes_alone_are_taken_as_they_are() -> None:
    with pytest.raises(FrozenInstanceError):
        shares(SHARE).notes = ()  # type: ignore[misc] # what is tried
    table = Table("t", "T", ("a",), ("",), ((1,),))
    assert shown_parts(([table], ["A note."])) == ((table,), ("A note.",))


def test_a_front_reads_its_question_from_its_spec() -> None:
    front_within_loss = FrontResult.from_report(made_front(within=2.0))
    front_with_heads = FrontResult.from_report(made_front(heads=4))
    assert front_within_loss.loss == 2.0
    assert front_with_heads.loss is None


@pytest.mark.parametrize("name", ["front", "front-choice", "front-confirmed", "front-orders"])
def test_a_front_without_a_table_is_refused_with_a_sentence(name: str) -> None:
    report = made_front()
    other_tables = tuple(table for table in report.tables if table.name != name)
    with raises("report.table_unknown", name):
        result_of(Report("front", other_tables, spec=report.spec))
