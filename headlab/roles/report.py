"""Reports of roles, read head by head.

What is on disk may be damaged or from another version, so it is checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

from headlab.core import (
    HEAD_COLUMNS,
    Cell,
    Head,
    HeadGrid,
    HeadlabError,
    Report,
    Stack,
    Table,
    is_number,
)
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
COLUMNS = (*HEAD_COLUMNS, "role", *NUMBERS, HAS)  # of the table `roles`
EXAMPLES = "role-examples"  # a table
EXAMPLE_TOKENS = ("word", "looks at", "should look at")  # its columns of tokens
MAX_INDEX = 1000  # layers of a stack, heads of a layer: no model has more


@dataclass(frozen=True)
class RoleResult:
    """One head's result for one role.

    Attributes:
        head: The head.
        role: Name of the role.
        numbers: The columns of the table `roles`, None where there is no value.
        has: Whether the head has the role.
    """

    head: Head
    role: str
    numbers: Mapping[str, float | None]
    has: bool

    @property
    def group(self) -> str:
        """The group of its role."""
        return group_of(self.role)

    @property
    def points_above_chance(self) -> float:
        """Points above chance; -inf if unknown, so that it sorts last."""
        points = self.numbers["above chance, points"]
        return -math.inf if points is None else points


@dataclass(frozen=True)
class Roles:
    """A report on one language.

    Attributes:
        report: The report.
        grid: Heads up to the last one examined.
        measures: Of each head that was examined, values by column.
        rows: Every head and role, in the report's order.
    """

    report: Report
    grid: HeadGrid
    measures: Mapping[Head, Mapping[str, float | None]]
    rows: tuple[RoleResult, ...]

    @cached_property
    def by_head(self) -> Mapping[Head, tuple[RoleResult, ...]]:
        """The results of each head, farthest above chance first.

        Separator and first-token roles come last.
        """
        rows_by_head: dict[Head, list[RoleResult]] = {}
        for row in self.rows:
            rows_by_head.setdefault(row.head, []).append(row)
        sorted_rows: dict[Head, tuple[RoleResult, ...]] = {}
        for head, rows in rows_by_head.items():
            rows.sort(key=lambda row: (row.group in IDLE, -row.points_above_chance))
            sorted_rows[head] = tuple(rows)
        return sorted_rows

    def roles_of(self, head: Head) -> list[RoleResult]:
        """The roles that a head has, the clearest first."""
        return [row for row in self.by_head.get(head, ()) if row.has]

    def groups(self, head: Head) -> list[str]:
        """The groups of the roles that a head has, each once, the clearest first."""
        return list(dict.fromkeys(row.group for row in self.roles_of(head)))

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Number of heads that have a role of each group, for every group tested."""
        heads_by_group: dict[str, set[Head]] = {}
        for row in self.rows:
            heads = heads_by_group.setdefault(row.group, set())
            if row.has:
                heads.add(row.head)
        return {group: len(heads) for group, heads in heads_by_group.items()}

    @property
    def has_syntax(self) -> bool:
        """Whether syntactic roles were tested, as they are where the sentences have trees."""
        return any(":" in row.role for row in self.rows)

    def table(self, name: str) -> Table | None:
        """A table of the report; None if it is missing or empty."""
        for table in self.report.tables:
            if table.name == name and table.rows:
                return table
        return None


def read_roles(report: Report) -> Roles:
    """A roles report, read head by head.

    Raises:
        HeadlabError: The report is damaged or from another version; the error names the fault.
    """
    measures = report.table("measures")
    roles = report.table(NAME)
    measure_names = [name for name in measures.columns if name not in HEAD_COLUMNS]
    measure_columns = {name: measures.column(name) for name in measure_names}
    measures_by_head = {}
    for row_index, head in enumerate(heads_of(measures)):
        measures_by_head[head] = _numbers_of_row(measure_columns, row_index)
    if not measures_by_head:
        raise HeadlabError("its table measures has no heads", code="roles.no_heads")
    number_columns = {name: roles.column(name) for name in NUMBERS}
    rows = []
    for row_index, (head, role, has) in enumerate(judged_rows(roles)):
        rows.append(RoleResult(head, role, _numbers_of_row(number_columns, row_index), has))
    grid = _grid([*measures_by_head, *(row.head for row in rows)])
    return Roles(report, grid, measures_by_head, tuple(rows))


def _numbers_of_row(
    columns: Mapping[str, Sequence[Cell]], row_index: int
) -> dict[str, float | None]:
    """The numbers in one row of some columns, by column."""
    return {name: _number(column[row_index], name) for name, column in columns.items()}


def judged_rows(table: Table) -> list[tuple[Head, str, bool]]:
    """Each row's head, its role, and whether the head has it.

    Raises:
        HeadlabError: A row has no head of a model, no role, or no true or false.
    """
    rows = list(zip(heads_of(table), table.column("role"), table.column(HAS), strict=True))
    for _, role, has in rows:
        if not isinstance(role, str) or not isinstance(has, bool):
            raise HeadlabError(
                f"its table roles has {role!r:.40} as a role and {has!r:.40} for whether a head has it; "
                "a role must be a text, and the other true or false",
                code="roles.answer_invalid",
            )
    return rows


def rows_with_role(table: Table) -> Table:
    """The table with only the rows of heads that have the role.

    Raises:
        HeadlabError: As `judged_rows`.
    """
    rows = []
    for row, (_, _, has) in zip(table.rows, judged_rows(table), strict=True):
        if has:
            rows.append(row)
    return replace(table, rows=tuple(rows))


def heads_of(table: Table) -> list[Head]:
    """The head of each row.

    Raises:
        HeadlabError: A head is invalid.
    """
    return [_head(*row) for row in zip(*map(table.column, HEAD_COLUMNS), strict=True)]


def _head(stack: Cell, layer: Cell, head: Cell) -> Head:
    if not isinstance(stack, str) or not stack or not _is_index(layer) or not _is_index(head):
        raise HeadlabError(
            f"{stack!r:.40} {layer!r:.40}.{head!r:.40} is not a head of a model",
            code="roles.head_malformed",
        )
    return Head(stack, layer, head)


def _is_index(value: Cell) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MAX_INDEX


def _number(value: Cell, name: str) -> float | None:
    if value is None or is_number(value):
        return value
    raise HeadlabError(
        f"{name} is {value!r:.40}, which is not a number", code="roles.number_invalid"
    )


def _grid(heads: Sequence[Head]) -> HeadGrid:
    """The smallest grid that contains all these heads."""
    sizes_by_stack: dict[str, dict[int, int]] = {}
    for stack, layer, head in heads:
        head_counts = sizes_by_stack.setdefault(stack, {})
        head_counts[layer] = max(head_counts.get(layer, 0), head + 1)
    stacks = []
    for name, head_counts in sizes_by_stack.items():
        layer_sizes = [head_counts.get(layer, 0) for layer in range(max(head_counts) + 1)]
        stacks.append(Stack(name, tuple(layer_sizes)))
    return HeadGrid(tuple(stacks))
