"""Made-up reports of experiments in a cache, so that the page has something to show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headlab.core import Head, Report, Table
from headlab.results import Store
from headlab.studies.heads import HeadCount, HeadsResult, SharedHead, SpecificHead
from headlab.studies.result import Records
from headlab.studies.table import STUDIES

COLUMNS = ("language", "stack", "layer", "head", "difference, points", "p")
FORMATS = ("", "", "d", "d", "+.2f", ".4f")
KEY_ROWS = (("de", "encoder", 9, 0, 1.25, 0.01), ("th", "encoder", 3, 7, -2.5, None))


def made_report(
    experiment: str, model: str = "e5-small-intents", task: str = "intents", seed: int = 0
) -> Report:
    """A report on German and Thai with a table of heads of each kind."""
    specific = (("de", "encoder", 5, 1, 3.0, 0.02),)
    tables = (
        Table(
            "heads-agnostic",
            "Heads among the highest of both languages",
            COLUMNS,
            FORMATS,
            KEY_ROWS,
            ("A note.",),
        ),
        Table("heads-specific", "Heads of one language only", COLUMNS, FORMATS, specific),
    )
    study = STUDIES[experiment]
    spec = {
        "format": 1, "kind": "report", "experiment": experiment, "version": study.version, "ablation": "zero",
        "model": {"name": model, "revision": "made-up", "fingerprint": "0" * 64},
        "task": {"name": task, "language": "de,th", "split": "dev,test", "seed": 0, "data_hash": "x",
                 "sizes": {"dev": [512, 512], "test": [1000, 1000]}},
        "options": study.resolve({}), "seed": seed,
    }  # fmt: skip
    return Report(experiment, tables, ("Made up for a test.",), spec, 4096, 12.0)


def made_heads_report(seed: int = 0) -> Report:
    """A report as the study `heads` writes it, with two shared heads and a specific one."""
    shared_heads = [
        SharedHead(Head("encoder", 9, 0), 2, 1, 1.25, {"raw": 2}),
        SharedHead(Head("encoder", 3, 7), 5, 3, 0.5, {"raw": 1}),
    ]
    specific_head = SpecificHead(Head("encoder", 5, 1), "raw", 1, 1, -0.75, 0.25, "de", "th")
    count = HeadCount("help in every language", {"values": 2, "raw": 1}, None)
    names = {"unit": ("points",), "claim": ("raw",)}
    result = HeadsResult(
        languages=("de", "th"),
        counts=Records("Counts", (count,), names={"claim": ("values", "raw")}),
        shared=Records(
            "Heads among the highest of both languages", tuple(shared_heads), names=names
        ),
        specific=Records("Heads of one language only", (specific_head,), names=names),
        few_positive=Records(
            "Heads of a few languages", (), names={"unit": ("points",), "sign": ()}
        ),
        notes=("Made up for a test.",),
    )
    return replace(made_report("heads", seed=seed), tables=result.tables())


def keep_report(root: Path, report: Report, day: int = 21) -> str:
    """Write a report as one that was made on a day of November 2026.

    Returns:
        The key of the stored report.
    """
    stored_run = Store(root).run(report.spec)
    stored_run.finish(
        report, {"created": f"2026-11-{day:02}T12:00:00+00:00", "versions": {"headlab": "0.5"}}
    )
    return stored_run.key
