"""From sums over sentences to tables: measures of every head, its roles, the best head of each relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headlab.records import Floats, Head, HeadGrid, Ints
from headlab.roles.looking import MEASURES, Sums
from headlab.roles.table import (
    ALPHA,
    DIRECTIONS,
    KINDS,
    OFFSETS,
    POSITIONAL,
    RELATIONS,
    SYNTACTIC,
    THRESHOLDS,
    kind_of,
    position,
    syntactic,
)
from headlab.stats import benjamini_hochberg
from headlab.stats.ratios import TERMS, ratio_excess, ratio_interval
from headlab.tables import Cell, Table

HEAD = ("stack", "layer", "head")
SHARES = ("share, %", "low, %", "high, %", "chance, %", "above chance, points", "low, points", "high, points")
ROLES = (*HEAD, "role", *SHARES, "hits", "asked", "sentences", "p", "p (Benjamini-Hochberg)", "has it")


class Row(NamedTuple):
    """One head and one candidate role; shares and differences in 0..1.

    counts: float [TERMS].  p: one-sided, against chance; adjusted: over all rows of the report.
    """

    head: Head
    role: str
    counts: Floats
    share: tuple[float, float, float]
    excess: tuple[float, float, float]
    p: float
    adjusted: float = 1.0
    has: bool = False

    def sum(self, term: str) -> float:
        """One of TERMS."""
        return float(self.counts[TERMS.index(term)])

    @property
    def chance(self) -> float:
        """Share that chance, or the baseline, would get."""
        return self.sum("c") / self.sum("n")


def judge(sums: Sums, grid: HeadGrid, options: Mapping[str, Any]) -> list[Row]:
    """Every head and every role that was asked, heads in the grid's order."""
    rows = []
    tried = sum(bool(sums.role(position(offset))[..., TERMS.index("n")].any()) for offset in OFFSETS)
    for places, roles in _candidates(sums, grid):
        found = np.stack([sums.roles[role][tuple(grid.flat[place])] for place, role in zip(places, roles, strict=True)])
        share, excess = ratio_interval(found, options["level"]), ratio_excess(found, options["level"])
        for i, (place, role) in enumerate(zip(places, roles, strict=True)):
            p = float(excess.p[i]) * (tried if kind_of(role) == POSITIONAL else 1)
            told = (tuple(float(v[i]) for v in share), tuple(float(v[i]) for v in excess[:3]))
            rows.append(Row(grid.heads[place], role, found[i], *told, min(p, 1.0)))  # type: ignore[arg-type]
    adjusted = benjamini_hochberg(np.array([row.p for row in rows]))
    rows = [row._replace(adjusted=float(p)) for row, p in zip(rows, adjusted, strict=True)]
    order = {kind: place for place, kind in enumerate(KINDS)}
    rows.sort(key=lambda row: (grid.index(row.head), order[kind_of(row.role)]))
    return [row._replace(has=_has(row, options)) for row in rows]


def _candidates(sums: Sums, grid: HeadGrid) -> Iterator[tuple[list[int], list[str]]]:
    """(flat places of heads, the role of each) of every kind of role that was asked; a head's best position only."""
    h, n = TERMS.index("h"), TERMS.index("n")

    def asked(role: str) -> Ints:
        return np.flatnonzero(sums.roles[role][tuple(grid.flat.T)][:, n])

    names = [position(offset) for offset in OFFSETS if position(offset) in sums.roles]
    if names:
        each = np.stack([sums.roles[name][tuple(grid.flat.T)] for name in names])
        shares = each[..., h] / np.maximum(each[..., n], 1)
        places = np.flatnonzero(each[..., n].any(axis=0))
        if len(places):
            yield places.tolist(), [names[best] for best in shares.argmax(axis=0)[places]]
    for role in sums.roles:
        if kind_of(role) != POSITIONAL and len(asked(role)):
            yield asked(role).tolist(), [role] * len(asked(role))


def _has(row: Row, options: Mapping[str, Any]) -> bool:
    """Whether a head has a role: enough of its tokens or pairs, and surely above chance."""
    base = row.sum("c") if row.role in SYNTACTIC else 0.0
    enough = row.sum("h") - base >= options[THRESHOLDS[kind_of(row.role)]] * row.sum("n") - 1e-9
    return bool(enough and row.adjusted <= ALPHA)


def measures_table(sums: Sums, grid: HeadGrid, stacks: Sequence[str]) -> Table:
    """A row a head: how sharply and how far it looks."""
    rows: list[tuple[Cell, ...]] = []
    for head, (layer, column) in zip(grid.heads, grid.flat, strict=True):
        if head.stack in stacks and sums.tokens[layer]:
            found: list[Cell] = (sums.measures[layer, column] / sums.tokens[layer]).tolist()
            if head.stack == "cross":
                found[MEASURES.index("distance, tokens")] = None
            rows.append((*head, *found, int(sums.tokens[layer])))
    return Table(
        "measures",
        "How sharply and how far heads look: means over the tokens that look",
        (*HEAD, *MEASURES, "tokens"),
        ("", "d", "d", ".3f", ".2f", ".2f", ".3f", ".3f", "d"),
        tuple(rows),
    )


def roles_table(rows: Sequence[Row]) -> Table:
    """A row a head and candidate role."""
    return Table(
        "roles",
        "Roles of heads: how often a head looks where the role wants, against chance or the best fixed offset",
        ROLES,
        ("", "d", "d", "", *[".1f"] * 4, *["+.1f"] * 3, "d", "d", "d", ".4f", ".4f", ""),
        tuple(_row(row) for row in rows),
        ("Has it: the share reaches the role's threshold and the adjusted p is at most 0.05.",),
    )


def _row(row: Row) -> tuple[Cell, ...]:
    numbers = (100 * value for value in (*row.share, row.chance, *row.excess))
    counts = (int(row.sum(term)) for term in ("h", "n", "1"))
    return (*row.head, row.role, *numbers, *counts, row.p, row.adjusted, row.has)


def relations_table(rows: Sequence[Row], offsets: Mapping[str, int]) -> Table:
    """A row a relation and direction: the best head against the baseline of the most frequent offset."""
    out: list[tuple[Cell, ...]] = []
    for relation in RELATIONS:
        for direction in DIRECTIONS:
            of_role = [row for row in rows if row.role == syntactic(relation, direction)]
            if of_role:
                best = max(of_role, key=lambda row: row.share[0])
                shares = [100 * value for value in (*best.share, best.chance)]
                has, pairs = sum(row.has for row in of_role), int(best.sum("n"))
                out.append((relation, direction, *best.head, *shares, offsets[best.role], pairs, has))
    return Table(
        "relations",
        "Syntactic relations: the best head, and the baseline of the relation's most frequent offset",
        ("relation", "direction", *HEAD, "best, %", "low, %", "high, %", "baseline, %", "offset", "pairs", "heads"),
        ("", "", "", "d", "d", ".1f", ".1f", ".1f", ".1f", "+d", "d", "d"),
        tuple(out),
        ("The best of many heads is chosen on the sentences it is shown on, so its share is a little too high.",),
    )


def counts_table(rows: Sequence[Row]) -> Table:
    """A row a kind of role: how many heads have it."""
    kinds = [kind for kind in KINDS if any(kind_of(row.role) == kind for row in rows)]
    counted = [[row.has for row in rows if kind_of(row.role) == kind] for kind in kinds]
    return Table(
        "role-counts",
        "How many heads have each role",
        ("role", "heads", "of"),
        ("", "d", "d"),
        tuple((kind, sum(has), len(has)) for kind, has in zip(kinds, counted, strict=True)),
    )
