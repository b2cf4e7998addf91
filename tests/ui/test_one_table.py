"""The command line, the page and the report show the same table of the same results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import run_page
from support.fake_client import job
from support.synthetic_curves import GRID, made_curve
from support.synthetic_gates import THREE, keep, made_gates

from headlab.cli.main import main
from headlab.cli.output import ComputeSettings
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


def printed(text: str) -> list[list[str]]:
    """The rows of every Markdown table in a text, column names and all."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rows_of(table: Table) -> list[list[str]]:
    return [list(table.columns), *table.shown()]


def reported(records: list) -> list[Table]:
    """The tables of the report's only section."""
    (section,) = document([Item(record, str(at)) for at, record in enumerate(records)]).sections
    return [table.table if isinstance(table, Folded) else table for table in section.tables]


def on_page(app: AppTest, table: Table) -> None:
    (shown,) = [
        own.value for own in app.dataframe if list(own.value.columns) == list(table.columns)
    ]
    pd.testing.assert_frame_equal(shown, data_frame(table), check_dtype=False)


@pytest.mark.usefixtures("model")
def test_learned_gates(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = [made_gates(weight=weight, grid=THREE) for weight in (0.01, 0.05)]
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
    out = capsys.readouterr().out
    assert printed(out) == rows_of(table)
    assert "undecided: gates that are neither 0 nor 1 with 90 % or more" in out
    assert "Made up for a test." in out
    assert table in reported(gates)
    for own in gates:
        keep(cache, own)
    on_page(run_page("gates", langs=["de"]), table)


@pytest.mark.usefixtures("model")
def test_pruning_curves(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = {
        name: replace(made_curve(name), caution="ordered on test too") for name in ("de", "th")
    }
    every = list(curves.values())
    summary = curve_summary(every)
    points = list(map(curve_points, every, curve_names(every)))
    monkeypatch.setattr(ScoreJob, "score", lambda *_: None)
    monkeypatch.setattr(
        "headlab.studies.curves.prune_curve", lambda *_, language, **__: curves[language]
    )
    assert main(["curve", "--languages", "de,th", "--cache", str(cache)]) == 0
    out = capsys.readouterr().out
    assert printed(out) == [row for table in (*points, summary) for row in rows_of(table)]
    assert out.count("ordered on test too") == 1
    assert reported(every) == [summary, *points]
    runs = [Store(cache).run(curve.spec) for curve in every]
    for run, curve in zip(runs, every, strict=True):
        run.finish(curve, {"created": "2026-11-22T01:00:00+00:00", "versions": {}, "device": "cpu"})

    def show(done):  # run by itself, so it names no type
        from headlab.dashboard.pages.jobs.results import draw_results

        draw_results(done)

    done = job(1, "done", kind="curve", result={"keys": [run.key for run in runs]})
    on_page(AppTest.from_function(show, kwargs={"done": done}, default_timeout=30).run(), summary)
