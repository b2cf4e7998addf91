"""Requesting and finding roles: the job's spec, and the stored reports of a model, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.report.commands import job_of, part
from headlab.roles.table import OPTIONS, resolve
from headlab.store import ReportResult
from headlab.tables import Report
from headlab.tasks.base import SPLITS, TREEBANK
from headlab.ui import experiments
from headlab.ui.experiments import Shelf, listing, made_at, made_words, origin, shelved, weights_of
from headlab.ui.names import language_title
from headlab.ui.roles_read import ROLES, Roles, read
from headlab.ui.shell import Choice, languages_of

# Roles to find: sentences, thresholds and the job's spec.

SPLIT = "dev"
TREES, TEXTS = "treebank", "task"
SOURCES = {TREES: "Gold trees, where there are any", TEXTS: "The texts of the task, without syntax"}


@dataclass(frozen=True)
class Plan:
    """What one job would compute: roles on one kind of sentences. source: TREES or TEXTS."""

    choice: Choice
    source: str
    languages: tuple[str, ...]

    def spec(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults."""
        return {
            "model": self.choice.model,
            "task": self.choice.task if self.source == TEXTS else None,
            "languages": list(self.languages),
            "source": self.source,
            "split": state.get(key("split"), SPLIT),
            "size": state.get(key("size")),
            "options": {name: state.get(key(name), option.default) for name, option in OPTIONS.items()},
        }

    @property
    def words(self) -> str:
        """The sentences, in words."""
        if self.source == TREES:
            return "gold trees of their treebanks: every role can be found"
        return (
            f"the texts of task {self.choice.task}, without syntax: positions, rare words, separators and the like, "
            "but no subjects, objects or modifiers"
        )


def key(name: str) -> str:
    """Key of a widget."""
    return f"roles-plan-{name}"


def plans(
    choice: Choice, languages: Sequence[str], treebanks: Sequence[str], offered: Sequence[str], source: str
) -> list[Plan]:
    """A job for the languages with a treebank and one for those without; source TEXTS uses no treebank.

    offered: languages of the task; a language with neither texts nor trees is in no plan.
    """
    with_trees = tuple(name for name in languages if name in treebanks and source == TREES)
    rest = tuple(name for name in languages if name not in with_trees and name in offered)
    return [Plan(choice, kind, those) for kind, those in ((TREES, with_trees), (TEXTS, rest)) if those]


def trouble(spec: Mapping[str, Any]) -> str:
    """Why this cannot be started; empty if it can."""
    try:
        resolve(spec["options"])
    except HeadlabError as error:
        return f"{error}."
    return "" if spec["split"] in SPLITS else f"There is no split {spec['split']}."


# Stored roles reports of a model, by language, best first.

SHORT = 12  # characters of a folder's name, enough to tell reports apart


@dataclass(frozen=True)
class Kept:
    """A readable report on one language, and the result it is from."""

    result: ReportResult
    roles: Roles

    @property
    def key(self) -> str:
        """The report's key."""
        return self.result.key

    @property
    def language(self) -> str:
        """Language of its sentences."""
        return str(part(self.result.report.spec, "task", "language"))

    @property
    def source(self) -> str:
        """Where its sentences are from: "treebank" or a task's name."""
        return str(part(self.result.report.spec, "task", "name"))


def shelf(choice: Choice) -> Shelf[Kept]:
    """Every roles report of the chosen model, on a treebank or on the chosen task."""
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
    return shelved(choice, kept, problems, weights)


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
    """A report in one line: date, language, number and source of sentences, and weights if not the model's."""
    report = kept.result.report
    of = "treebank" if kept.source == TREEBANK else f"task {kept.source}, without syntax"
    words = [made_words(kept.result), language_title(kept.language)]
    words.append(
        f"{part(report.spec, 'task', 'size') or '?'} sentences of {part(report.spec, 'task', 'split') or '?'} ({of})"
    )
    own, dtype = (part(report.spec, "model", name) for name in ("fingerprint", "dtype"))
    return " · ".join([*words, *origin(str(own or ""), weights, dtype)])


def job_spec(report: Report) -> dict[str, Any]:
    """Spec of the job that would make this report; its size as it was, not as it was asked for."""
    return job_of("report", report.spec)[1]


def facts(kept: Kept) -> list[tuple[str, str]]:
    """How a report was made, as (name, value) pairs."""
    return experiments.facts(kept.result)
