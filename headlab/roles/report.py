"""Reports of roles, read head by head: what is on disk may be damaged or from another version, so it is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

from headlab.core import HEAD, Cell, Head, HeadGrid, HeadlabError, Report, Stack, Table, is_number
from headlab.roles.table import IDLE, NAME, group_of

SHARES = (
    "share, %",
    "low, %",
    "high, %",
    "chance, %",
    "above chance, points",
    "low, points",
    "high, points",
)
NUMBERS = (*SHARES, "hits", "asked", "sentences", "p", "p (Benjamini-Hochberg)")
HAS = "has it"
COLUMNS = (*HEAD, "role", *NUMBERS, HAS)  # of the table `roles`
EXAMPLES, EXAMPLE_TOKENS = (
    "role-examples",
    ("word", "looks at", "should look at"),
)  # a table, its columns of tokens
MOST = 1000  # layers of a stack, heads of a layer: no model has more


@dataclass(frozen=True)
class Found:
    """One head's result for one role. numbers: the columns of the table `roles`, None where there is no value."""

    head: Head
    role: str
    numbers: Mapping[str, float | None]
    has: bool

    @property
    def group(self) -> str:
        """The group of its role."""
        return group_of(self.role)

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
        ordered = {
            head: sorted(rows, key=lambda row: (row.group in IDLE, -row.above))
            for head, rows in out.items()
        }
        return {head: tuple(rows) for head, rows in ordered.items()}

    def having(self, head: Head) -> list[Found]:
        """The roles that a head has, the clearest first."""
        return [row for row in self.by_head.get(head, ()) if row.has]

    def groups(self, head: Head) -> list[str]:
        """The groups of the roles that a head has, each once, the clearest first."""
        return list(dict.fromkeys(row.group for row in self.having(head)))

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """{group of roles: number of heads that have one}, for every group tested."""
        heads: dict[str, set[Head]] = {}
        for row in self.rows:
            heads.setdefault(row.group, set()).update([row.head] if row.has else [])
        return {group: len(those) for group, those in heads.items()}

    @property
    def syntax(self) -> bool:
        """Whether the sentences had trees."""
        return any(":" in row.role for row in self.rows)

    def table(self, name: str) -> Table | None:
        """A table of the report; None if it is missing or empty."""
        return next(
            (table for table in self.report.tables if table.name == name and table.rows), None
        )


def read(report: Report) -> Roles:
    """A roles report. Raises HeadlabError, naming the fault, if it is damaged or from another version."""
    measures, roles = report.table("measures"), report.table(NAME)
    names = [name for name in measures.columns if name not in HEAD]
    values = [measures.column(name) for name in names]
    by_head = {
        head: {name: _number(column[at], name) for name, column in zip(names, values, strict=True)}
        for at, head in enumerate(heads_of(measures))
    }
    if not by_head:
        raise HeadlabError("its table measures has no heads", code="roles.no_heads")
    numbers = {name: roles.column(name) for name in NUMBERS}
    rows = tuple(
        Found(
            head, role, {name: _number(column[at], name) for name, column in numbers.items()}, has
        )
        for at, (head, role, has) in enumerate(judged(roles))
    )
    return Roles(report, _grid([*by_head, *(row.head for row in rows)]), by_head, rows)


def judged(table: Table) -> list[tuple[Head, str, bool]]:
    """Each row's head, role, and whether the head has it. Raises HeadlabError for what is none of these."""
    rows = list(zip(heads_of(table), table.column("role"), table.column(HAS), strict=True))
    for _, role, has in rows:
        if not isinstance(role, str) or not isinstance(has, bool):
            raise HeadlabError(
                f"its table roles has {role!r:.40} as a role and {has!r:.40} for whether a head has it; "
                "a role must be a text, and the other true or false",
                code="roles.answer_invalid",
            )
    return rows


def having(table: Table) -> Table:
    """The table with only the rows of heads that have the role. Raises HeadlabError as `judged` does."""
    return replace(
        table,
        rows=tuple(row for row, (*_, has) in zip(table.rows, judged(table), strict=True) if has),
    )


def heads_of(table: Table) -> list[Head]:
    """The head of each row. Raises HeadlabError if one is invalid."""
    return [_head(*row) for row in zip(*map(table.column, HEAD), strict=True)]


def _head(stack: Cell, layer: Cell, head: Cell) -> Head:
    if not isinstance(stack, str) or not stack or not _is_index(layer) or not _is_index(head):
        raise HeadlabError(
            f"{stack!r:.40} {layer!r:.40}.{head!r:.40} is not a head of a model",
            code="roles.head_malformed",
        )
    return Head(stack, layer, head)


def _is_index(value: Cell) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MOST


def _number(value: Cell, name: str) -> float | None:
    if value is None or is_number(value):
        return value
    raise HeadlabError(
        f"{name} is {value!r:.40}, which is not a number", code="roles.number_invalid"
    )


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
