"""Reports of experiments as a run's result: written to bytes, and read back trusting nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import canonical_json, content_key
from headlab.store.arrays import npz
from headlab.store.folder import FORMAT, kind_of, read_content, read_spec, telling
from headlab.tables import Report

REPORT = "report"


@dataclass(frozen=True)
class ReportResult:
    """A finished report, and what is known of how it was made."""

    key: str
    folder: Path
    report: Report
    meta: Mapping[str, Any]


def pack_report(report: Report, meta: Mapping[str, Any]) -> bytes:
    """A report as npz bytes: one JSON text. Raises HeadlabError for what is not a number."""
    content = {name: value for name, value in report.to_json().items() if name != "spec"}
    try:
        about = {"format": FORMAT, "report": content, "sha256": content_key(content), "meta": dict(meta)}
        return npz({"about": np.array(canonical_json(about))})
    except (TypeError, ValueError) as error:
        raise HeadlabError(
            f"the report of {report.name} holds a value that is neither a number nor a text ({error}); "
            "it is not stored",
            code="report.value_unstorable",
        ) from error


def read_report(folder: Path) -> ReportResult:
    """Read one report's folder, trusting nothing. Raises HeadlabError that names it, what is wrong and what to do."""
    with telling(folder, "experiment"):
        spec = read_spec(folder)
        if kind_of(spec) != REPORT:
            raise HeadlabError(f"it holds a {kind_of(spec)}, not a report", code="result.other_kind")
        about, _ = read_content(folder)
        return ReportResult(folder.name, folder, _report(about, spec), dict(about["meta"]))


def _report(about: Mapping[str, Any], spec: Mapping[str, Any]) -> Report:
    content = about.get("report")
    try:
        good = isinstance(content, dict) and about.get("sha256") == content_key(content)
    except ValueError:  # half a surrogate pair, or a number too large for one
        good = False
    if not good or not isinstance(content, dict):
        raise HeadlabError("its tables do not fit what is written beside them", code="result.values_mismatch")
    report = Report.from_json({**content, "spec": {}})
    if report.name != spec.get("experiment"):
        raise HeadlabError(
            f"it is a report of {report.name}, not of {spec.get('experiment')}", code="result.other_report"
        )
    return replace(report, spec=spec)
