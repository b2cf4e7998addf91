"""The roles of a report as a head map: the colour and the letter of each head's clearest role."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headlab.htmlreport.maps import Cell, named, stack_maps
from headlab.htmlreport.svg import element, picture, width_of, words
from headlab.records import Head, HeadGrid, Stack
from headlab.tables import Report, Table

NONE, LEAST_CLEAR = "#e4e6ea", ("separator", "first token")
ROW, COLUMNS = 22, 3
Look = tuple[str, str]  # colour and letter


def roles_map(report: Report, kind_of: Callable[[str], str], look_of: Callable[[str], Look]) -> tuple[str, ...]:
    """Drawings of a report on roles: a map a stack, and its legend.

    kind_of: of a role's name.  look_of: colour and letter of a kind.  Raises HeadlabError for tables that lack
    the columns.
    """
    having = _having(report.table("roles"), kind_of)
    grid = _grid(report.table("measures"))
    cells = [_cell(head, having.get(head, ()), kind_of, look_of) for head in grid.heads]
    counts: dict[str, int] = {}
    for roles in having.values():
        for kind in dict.fromkeys(map(kind_of, roles)):
            counts[kind] = counts.get(kind, 0) + 1
    legend = [(*look_of(kind), f"{kind}: {count}") for kind, count in counts.items()]
    return (*stack_maps(grid, cells, "the clearest role of every head"), *([_legend(legend)] if legend else []))


def _having(table: Table, kind_of: Callable[[str], str]) -> Mapping[Head, Sequence[str]]:
    """{head: its roles}, the clearest first: those that say most of what it does, farthest above chance."""
    found: dict[Head, list[tuple[bool, float, str]]] = {}
    names = ("stack", "layer", "head", "role", "above chance, points", "has it")
    for stack, layer, head, role, above, has in zip(*map(table.column, names), strict=True):
        if has is True:
            clear = (str(kind_of(role)) in LEAST_CLEAR, -float(above or 0), str(role))
            found.setdefault(Head(str(stack), int(layer), int(head)), []).append(clear)
    return {head: [role for _, _, role in sorted(roles)] for head, roles in found.items()}


def _grid(measures: Table) -> HeadGrid:
    """The heads that were looked at."""
    sizes: dict[str, dict[int, int]] = {}
    for stack, layer, head in zip(*map(measures.column, ("stack", "layer", "head")), strict=True):
        layers = sizes.setdefault(str(stack), {})
        layers[int(layer)] = max(layers.get(int(layer), 0), min(int(head) + 1, 4096))
    return HeadGrid(tuple(Stack(name, tuple(heads[at] for at in sorted(heads))) for name, heads in sizes.items()))


def _cell(head: Head, roles: Sequence[str], kind_of: Any, look_of: Callable[[str], Look]) -> Cell:
    if not roles:
        return Cell(NONE, "", f"{named(head)}: no role")
    colour, mark = look_of(kind_of(roles[0]))
    offset = roles[0].removeprefix("position ").replace("-", "−") if roles[0].startswith("position ") else ""
    return Cell(colour, offset or mark, f"{named(head)}: {', '.join(roles)}")


def _legend(entries: Sequence[tuple[str, str, str]]) -> str:
    parts, wide = list[str](), 40 + max(width_of(f"{mark}  {text}", 12) for _, mark, text in entries)
    for at, (colour, mark, text) in enumerate(entries):
        x, y = wide * (at % COLUMNS), ROW * (at // COLUMNS)
        parts.append(element("rect", x=x + 1, y=y + 2, width=16, height=16, fill=colour))
        parts.append(words(x + 24, y + 14, f"{mark}  {text}", class_="tick"))
    rows = -(-len(entries) // COLUMNS)
    label = "the colours of roles, and how many heads have each"
    return picture(wide * min(len(entries), COLUMNS), ROW * rows, label, *parts)
