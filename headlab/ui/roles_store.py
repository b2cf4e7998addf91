"""Reports of roles as the page finds them: those of a model, language by language, the best one of each first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.roles.sentences import TREEBANK
from headlab.store import ReportResult
from headlab.tables import Report
from headlab.ui.experiments_store import listing, made_at, part, told, weights_of
from headlab.ui.jobs_words import duration
from headlab.ui.names import language_title
from headlab.ui.roles_read import ROLES, Roles, read
from headlab.ui.shell import Choice, languages_of

SHORT = 12  # of a fingerprint, enough to tell weights apart


@dataclass(frozen=True)
class Kept:
    """A report of one language that can be read, and where it is from."""

    result: ReportResult
    roles: Roles

    @property
    def key(self) -> str:
        """The report's key."""
        return self.result.key

    @property
    def language(self) -> str:
        """Of its sentences."""
        return str(part(self.result.report.spec, "task", "language"))

    @property
    def source(self) -> str:
        """Where its sentences are from: "treebank" or a task's name."""
        return str(part(self.result.report.spec, "task", "name"))


@dataclass(frozen=True)
class Shelf:
    """What the cache has for a choice.

    by_language: reports of each chosen language that has one (and of those that the task's list does not offer),
    the best first.  missing: chosen languages without.  problems: a sentence for every report that was skipped.
    weights: fingerprint of the chosen model's, None if it is not known.
    """

    by_language: Mapping[str, list[Kept]]
    missing: tuple[str, ...]
    problems: tuple[str, ...]
    weights: str | None = None


def shelf(choice: Choice) -> Shelf:
    """Every report of roles of the chosen model, on a treebank or on the chosen task."""
    found = listing()
    weights, offered = weights_of(choice.model), set(languages_of(choice.task))
    kept: dict[str, list[Kept]] = {}
    problems = [*found.problems]
    for result in found.results:
        if not _about(result.report, choice):
            continue
        language = str(part(result.report.spec, "task", "language"))
        if language in offered and language not in choice.languages:
            continue
        roles = _read(result.key, str(result.meta.get("created")), result)
        if isinstance(roles, str):
            problems.append(roles)
        else:
            kept.setdefault(language, []).append(Kept(result, roles))
    for rows in kept.values():
        rows.sort(key=lambda row: _rank(row, weights), reverse=True)
    order = [*(name for name in choice.languages if name in kept), *sorted(set(kept) - set(choice.languages))]
    missing = tuple(name for name in choice.languages if name not in kept)
    return Shelf({name: kept[name] for name in order}, missing, tuple(problems), weights)


def _about(report: Report, choice: Choice) -> bool:
    if report.name != ROLES or part(report.spec, "model", "name") != choice.model:
        return False
    return part(report.spec, "task", "name") in (TREEBANK, choice.task)


@st.cache_resource(max_entries=64, show_spinner=False)
def _read(key: str, created: str, _result: ReportResult) -> Roles | str:
    """The report, or why it was skipped."""
    try:
        return read(_result.report)
    except HeadlabError as error:
        return (
            f"skipped: the report of roles in {_result.folder.name[:SHORT]}… cannot be shown ({error}); "
            "delete its folder, then make it again"
        )


def _rank(kept: Kept, weights: str | None) -> tuple[bool, bool, bool, float, str]:
    report = kept.result.report
    same = weights is None or part(report.spec, "model", "fingerprint") == weights
    return same, kept.roles.syntax, not part(report.spec, "model", "dtype"), made_at(kept.result), kept.key


def label(kept: Kept, weights: str | None = None) -> str:
    """A report in a line: when it was made, on how much of what, of which weights if of others than the model's."""
    report = kept.result.report
    when = datetime.fromtimestamp(made_at(kept.result), UTC)
    of = "treebank" if kept.source == TREEBANK else f"task {kept.source}, without syntax"
    words = [f"{when.day} {when:%b %Y, %H:%M} UTC", language_title(kept.language)]
    words.append(
        f"{part(report.spec, 'task', 'size') or '?'} sentences of {part(report.spec, 'task', 'split') or '?'} ({of})"
    )
    own = str(part(report.spec, "model", "fingerprint") or "")
    if weights is not None and own != weights:
        words.append(f"made with other weights ({f'{own[:SHORT]}…' if own else 'which, it does not say'})")
    dtype = part(report.spec, "model", "dtype")
    return " · ".join([*words, *([f"in {dtype}"] if dtype else [])])


def job_spec(report: Report) -> dict[str, Any]:
    """The details of the job that makes a report of this spec; its size as it was, not as it was asked for."""
    name = part(report.spec, "task", "name")
    options = part(report.spec, "options")
    return {
        "model": part(report.spec, "model", "name"),
        "task": None if name == TREEBANK else name,
        "languages": [str(part(report.spec, "task", "language"))],
        "source": "treebank" if name == TREEBANK else "task",
        "split": part(report.spec, "task", "split") or "dev",
        "size": part(report.spec, "task", "size"),
        "options": dict(options) if isinstance(options, Mapping) else {},
    }


def facts(kept: Kept) -> list[tuple[str, str]]:
    """How a report was made, a name and a value each."""
    report, spec = kept.result.report, job_spec(kept.result.report)
    rows = [(name.capitalize(), told(value)) for name, value in spec.items() if name != "options"]
    rows += [(f"Option {name}", told(value)) for name, value in spec["options"].items()]
    rows.append(("Model's fingerprint", str(part(report.spec, "model", "fingerprint") or "")))
    rows.append(("Example forwards", f"{report.example_forwards:,}"))
    rows.append(("Time", duration(report.seconds)))
    versions = kept.result.meta.get("versions")
    if isinstance(versions, Mapping):
        rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return [*rows, ("Report", kept.key)]
