"""The command line, the page and the report show the same table of the same results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import run_page
from support.fake_client import job_row
from support.synthetic_curves import GRID, made_curve
from support.synthetic_gates import THREE_STACKS, keep_gates, made_gates

from headlab.cli.output import ComputeSettings
from headlab.cli.run import main
from headlab.core import Table
from headlab.dashboard.widgets.figures import data_frame
from headlab.jobs.score import ScoreJob
from headlab.report.build import document
from headlab.report.parts import Folded, Item
from headlab.results import Store, curve_names, curve_points, curve_summary
from headlab.training import gates_table

pytestmark = pytest.mark.usefixtures("native_buttons", "worker")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands load no model."""
    monkeypatch.setattr(ComputeSettings, "load", lambda *_: SimpleNamespace(grid=GRID))


def printed_rows(text: str) -> list[list[str]]:
    """The rows of every Markdown table in a text, column names and all."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|") and "---" not in line:
            cells = line.strip("|").split("|")
            rows.append([cell.strip() for cell in cells])
    return rows


def rows_of(table: Table) -> list[list[str]]:
    return [list(table.columns), *table.shown_cells()]


def report_tables(records: list) -> list[Table]:
    """The tables of the report's only section."""
    (section,) = document(
        [Item(record, str(number)) for number, record in enumerate(records)]
    ).sections
    tables = []
    for table in section.tables:
        tables.append(table.table if isinstance(table, Folded) else table)
    return tables


def on_page(app: AppTest, table: Table) -> None:
    (page_frame,) = [
        dataframe.value
        for dataframe in app.dataframe
        if list(dataframe.value.columns) == list(table.columns)
    ]
    pd.testing.assert_frame_equal(page_frame, data_frame(table), check_dtype=False)


@pytest.mark.usefixtures("model")
def test_learned_gates(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = [made_gates(weight=weight, grid=THREE_STACKS) for weight in (0.01, 0.05)]
    gates[1] = replace(gates[1], measured={"test": gates[1].measured["test"]})
    table = gates_table(gates)
    monkeypatch.setattr("headlab.training.l0_learn.sweep", lambda *_, **__: gates)
    assert (
        main(
            [
                "gates",
                "--language",
                "de",
                "--weight",
                "0.01",
                "--weight",
                "0.05",
                "--cache",
                str(cache),
            ]
        )
        == 0
    )
    output = capsys.readouterr().out
    assert printed_rows(output) == rows_of(table)
    assert "undecided: gates that are neither 0 nor 1 with 90 % or more" in output
    assert "Made up for a test." in output
    assert table in report_tables(gates)
    for gates_run in gates:
        keep_gates(cache, gates_run)
    on_page(run_page("gates", langs=["de"]), table)


@pytest.mark.usefixtures("model")
def test_pruning_curves(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = {
        name: replace(made_curve(name), caution="ordered on test too") for name in ("de", "th")
    }
    all_curves = list(curves.values())
    summary = curve_summary(all_curves)
    points = list(map(curve_points, all_curves, curve_names(all_curves)))
    monkeypatch.setattr(ScoreJob, "score", lambda *_: None)
    monkeypatch.setattr(
        "headlab.studies.curves.prune_curve", lambda *_, language, **__: curves[language]
    )
    assert main(["curve", "--languages", "de,th", "--cache", str(cache)]) == 0
    output = capsys.readouterr().out
    expected_rows = []
    for table in (*points, summary):
        expected_rows.extend(rows_of(table))
    assert printed_rows(output) == expected_rows
    assert output.count("ordered on test too") == 1
    assert report_tables(all_curves) == [summary, *points]
    stored_runs = [Store(cache).run(curve.spec) for curve in all_curves]
    for stored_run, curve in zip(stored_runs, all_curves, strict=True):
        stored_run.finish(
            curve, {"created": "2026-11-22T01:00:00+00:00", "versions": {}, "device": "cpu"}
        )

    def show(finished_job):  # its source is run by itself, so it can name no type
        from headlab.dashboard.pages.jobs.results import draw_results

        draw_results(finished_job)

    finished_job = job_row(
        1, "done", kind="curve", result={"keys": [stored_run.key for stored_run in stored_runs]}
    )
    on_page(
        AppTest.from_function(
            show, kwargs={"finished_job": finished_job}, default_timeout=30
        ).run(),
        summary,
    )
