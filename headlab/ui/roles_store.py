"""Requesting, finding and reading roles: the job's spec, and the stored reports of a model, best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.pictures import IDLE, MINUS, POSITIONAL, in_order, kind_of, look_of
from headlab.records import Head, HeadGrid, Stack, part
from headlab.roles.table import OPTIONS, resolve
from headlab.store import Result
from headlab.studies.table import JOBS
from headlab.tables import Report, Table, is_number
from headlab.tasks.base import SPLITS, TREEBANK
from headlab.ui.experiments import Shelf, made_at, made_words, origin, shelved, weights_of
from headlab.ui.form_values import Form, wrong
from headlab.ui.headgrid import draw_grid
from headlab.ui.names import language_title
from headlab.ui.shell import Choice, languages_of, listing

# A roles report, validated, head by head. No streamlit here.

ROLES = "roles"  # name of the report, and of its table of heads and roles
PLACE = ("stack", "layer", "head")
NUMBERS = (
    "share, %", "low, %", "high, %", "chance, %", "above chance, points", "low, points", "high, points", "hits",
    "asked", "sentences", "p", "p (Benjamini-Hochberg)",
)  # fmt: skip
HAS = "has it"
MOST = 1000  # layers of a stack, heads of a layer: no model has more


@dataclass(frozen=True)
class Found:
    """One head's result for one role. numbers: the columns of the table `roles`, None where there is no value."""

    head: Head
    role: str
    numbers: Mapping[str, float | None]
    has: bool

    @property
    def kind(self) -> str:
        """The kind of its role."""
        return kind_of(self.role)

    @property
    def above(self) -> float:
        """Points above chance; -inf if unknown, so that it sorts last."""
        value = self.numbers["above chance, points"]
        return -math.inf if value is None else value


@dataclass(frozen=True)
class Roles:
    """A report on one language.

    grid: heads up to the last one examined.  measures: {head: {column: value}}, of the heads examined.  rows: every
    head and role, in the report's order.
    """

    report: Report
    grid: HeadGrid
    measures: Mapping[Head, Mapping[str, float | None]]
    rows: tuple[Found, ...]

    @cached_property
    def by_head(self) -> Mapping[Head, tuple[Found, ...]]:
        """{head: its results, farthest above chance first, but separator and first-token roles last}."""
        out: dict[Head, list[Found]] = {}
        for row in self.rows:
            out.setdefault(row.head, []).append(row)
        return {head: tuple(sorted(rows, key=lambda row: (row.kind in IDLE, -row.above))) for head, rows in out.items()}

    def having(self, head: Head) -> list[Found]:
        """The roles that a head has, the clearest first."""
        return [row for row in self.by_head.get(head, ()) if row.has]

    def kinds(self, head: Head) -> list[str]:
        """The kinds of the roles that a head has, each once, the clearest first."""
        return list(dict.fromkeys(row.kind for row in self.having(head)))

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """{kind of role: number of heads that have one}, for every kind tested, in the legend's order."""
        heads: dict[str, set[Head]] = {kind: set() for kind in in_order([row.kind for row in self.rows])}
        for row in self.rows:
            if row.has:
                heads[row.kind].add(row.head)
        return {kind: len(those) for kind, those in heads.items()}

    @property
    def syntax(self) -> bool:
        """Whether the sentences had trees."""
        return any(":" in row.role for row in self.rows)

    def table(self, name: str) -> Table | None:
        """A table of the report; None if it is missing or empty."""
        return next((table for table in self.report.tables if table.name == name and table.rows), None)


def read(report: Report) -> Roles:
    """A roles report. Raises HeadlabError, naming the fault, if it is damaged or from another version."""
    measures, roles = report.table("measures"), report.table(ROLES)
    names = [name for name in measures.columns if name not in PLACE]
    values = [measures.column(name) for name in names]
    by_head = {
        head: {name: _number(column[at], name) for name, column in zip(names, values, strict=True)}
        for at, head in enumerate(heads_of(measures))
    }
    if not by_head:
        raise HeadlabError("its table measures has no heads", code="roles.no_heads")
    rows = tuple(_rows(roles))
    return Roles(report, _grid([*by_head, *(row.head for row in rows)]), by_head, rows)


def _rows(table: Table) -> list[Found]:
    role, has = table.column("role"), table.column(HAS)
    numbers = {name: table.column(name) for name in NUMBERS}
    out = []
    for at, head in enumerate(heads_of(table)):
        if not isinstance(role[at], str) or not isinstance(has[at], bool):
            raise HeadlabError(
                f"its table roles has {role[at]!r:.40} as a role and {has[at]!r:.40} for whether a head has it; "
                "a role must be a text, and the other true or false",
                code="roles.answer_invalid",
            )
        own = {name: _number(column[at], name) for name, column in numbers.items()}
        out.append(Found(head, role[at], own, has[at]))
    return out


def heads_of(table: Table) -> list[Head]:
    """The head of each row. Raises HeadlabError if one is invalid."""
    rows = zip(*(table.column(name) for name in PLACE), strict=True)
    return [_head(*row) for row in rows]


def _head(stack: Any, layer: Any, head: Any) -> Head:
    numbers = all(type(value) is int and 0 <= value < MOST for value in (layer, head))
    if not isinstance(stack, str) or not stack or not numbers:
        raise HeadlabError(
            f"{stack!r:.40} {layer!r:.40}.{head!r:.40} is not a head of a model", code="roles.head_malformed"
        )
    return Head(stack, layer, head)


def _number(value: Any, name: str) -> float | None:
    if value is None or is_number(value):
        return value
    raise HeadlabError(f"{name} is {value!r:.40}, which is not a number", code="roles.number_invalid")


def _grid(heads: Sequence[Head]) -> HeadGrid:
    sizes: dict[str, dict[int, int]] = {}
    for stack, layer, head in heads:
        layers = sizes.setdefault(stack, {})
        layers[layer] = max(layers.get(layer, 0), head + 1)
    return HeadGrid(
        tuple(
            Stack(name, tuple(layers.get(layer, 0) for layer in range(max(layers) + 1)))
            for name, layers in sizes.items()
        )
    )


# The map of heads by role: the head grid with a colour and a letter per role, and its legend.


def role_map(
    roles: Roles, *, key: str, title: str, selected: Head | None, on_click: Callable[[Head], None] | None
) -> None:
    """Draw every head's roles; a click, or Enter on it, calls `on_click(head)` before the page runs."""
    draw_grid("rolegrid", picture(roles), roles.grid, key, title, selected, on_click)


def picture(roles: Roles) -> dict[str, Any]:
    """Data for the browser: kinds with their colours and counts, and for each head its kinds, mark and tooltip."""
    kinds, heads = list(roles.counts), roles.grid.heads
    looks = {kind: look_of(kind) for kind in kinds}
    return {
        "kinds": [{"name": kind, **looks[kind]._asdict(), "heads": roles.counts[kind]} for kind in kinds],
        "roles": [
            [kinds.index(kind) for kind in roles.kinds(head)] if head in roles.measures else None for head in heads
        ],
        "shown": [_mark(roles, head) for head in heads],
        "tips": [tip(roles, head) for head in heads],
    }


def _mark(roles: Roles, head: Head) -> str:
    """The clearest role's letter; for a position, the offset itself."""
    own = roles.having(head)
    if not own:
        return ""
    return offset(own[0]) if own[0].kind == POSITIONAL else look_of(own[0].kind).mark


def offset(found: Found) -> str:
    """'−1' for 'position -1'."""
    return found.role.removeprefix("position ").replace("-", MINUS)


def tip(roles: Roles, head: Head) -> str:
    """A head's roles, a line each, with their shares."""
    if head not in roles.measures:
        return "not looked at"
    own = roles.having(head)
    lines = [f"{len(own)} roles"] if len(own) > 1 else []
    return "\n".join([*lines, *(f"{words(row.role)}{_share(row)}" for row in own)]) or "no role"


def words(role: str) -> str:
    """A role as displayed, with a minus sign for a hyphen."""
    return role.replace("position -", f"position {MINUS}")


def _share(row: Found) -> str:
    share, chance = row.numbers["share, %"], row.numbers["chance, %"]
    if share is None:
        return ""
    return f", {share:.0f} %" + ("" if chance is None else f" ({against(row.role)} {chance:.0f} %)")


def against(role: str) -> str:
    """What a role's share is compared with: for syntax, always attending to the relation's most frequent offset."""
    return "baseline" if ":" in role else "chance"


# Roles to find: sentences, thresholds and the job's spec.

FORM, SETTINGS = Form("_roles_plan", "roles-plan-"), JOBS["roles"]
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
            **FORM.read(SETTINGS, state),
            "options": FORM.read(OPTIONS, state),
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
    unknown = "" if spec["split"] in SPLITS else f"There is no split {spec['split']}."
    return wrong(resolve, spec["options"]) or unknown


# Stored roles reports of a model, by language, best first.

SHORT = 12  # characters of a folder's name, enough to tell reports apart


@dataclass(frozen=True)
class Kept:
    """A readable report on one language, and the result it is from."""

    result: Result[Report]
    roles: Roles

    @property
    def key(self) -> str:
        """The report's key."""
        return self.result.key

    @property
    def language(self) -> str:
        """Language of its sentences."""
        return str(part(self.result.record.spec, "task", "language"))

    @property
    def source(self) -> str:
        """Where its sentences are from: "treebank" or a task's name."""
        return str(part(self.result.record.spec, "task", "name"))


def shelf(choice: Choice) -> Shelf[Kept]:
    """Every roles report of the chosen model, on a treebank or on the chosen task."""
    found = listing(Report)
    weights, offered = weights_of(choice.model), set(languages_of(choice.task))
    kept: dict[str, list[Kept]] = {}
    problems = [*found.problems]
    for result in found.results:
        if not _about(result.record, choice):
            continue
        language = str(part(result.record.spec, "task", "language"))
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
def _read(key: str, created: str, _result: Result[Report]) -> Roles | str:
    """The report, or why it was skipped."""
    try:
        return read(_result.record)
    except HeadlabError as error:
        return (
            f"skipped: the report of roles in {_result.folder.name[:SHORT]}… cannot be shown ({error}); "
            "delete its folder, then make it again"
        )


def _rank(kept: Kept, weights: str | None) -> tuple[bool, bool, bool, float, str]:
    report = kept.result.record
    same = weights is None or part(report.spec, "model", "fingerprint") == weights
    return same, kept.roles.syntax, not part(report.spec, "model", "dtype"), made_at(kept.result), kept.key


def label(kept: Kept, weights: str | None = None) -> str:
    """A report in one line: date, language, number and source of sentences, and weights if not the model's."""
    report = kept.result.record
    of = "treebank" if kept.source == TREEBANK else f"task {kept.source}, without syntax"
    words = [made_words(kept.result), language_title(kept.language)]
    words.append(
        f"{part(report.spec, 'task', 'size') or '?'} sentences of {part(report.spec, 'task', 'split') or '?'} ({of})"
    )
    own, dtype = (part(report.spec, "model", name) for name in ("fingerprint", "dtype"))
    return " · ".join([*words, *origin(str(own or ""), weights, dtype)])
