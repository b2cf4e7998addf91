"""Made-up reports of roles, in the columns that `headlab.roles` writes, so that the page has something to show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headlab.core import Head, HeadGrid, Report, Stack, Table
from headlab.pictures import LOOKS
from headlab.roles import VERSION, group_of, resolve
from headlab.roles.table import DIRECTIONS, RELATIONS

GRID = HeadGrid((Stack("encoder", (4, 4, 3)),))
SYNTAX = tuple(f"{relation}: {direction}" for relation in RELATIONS for direction in DIRECTIONS)
PLAIN = ("rare word", "separator", "first token", "same token elsewhere", "induction")
PLACE = ("stack", "layer", "head")
DIGITS = ("", "d", "d")
SENTENCE = "Time <b>flies</b> like an arrow ."
# Which role each of the first heads has; the head after them has two, the others none.
OWN = (
    "position -1",
    "nsubj: dependent to governor",
    "obj: governor to dependent",
    "rare word",
    "separator",
)
TWO = ("amod: dependent to governor", "first token")
MEASURES = (
    "confidence",
    "entropy, nats",
    "distance, tokens",
    "separator share",
    "first-token share",
    "tokens",
)
ROLES = (
    "role",
    "share, %",
    "low, %",
    "high, %",
    "chance, %",
    "above chance, points",
    "low, points",
    "high, points",
    "hits",
    "asked",
    "sentences",
    "p",
    "p (Benjamini-Hochberg)",
    "has it",
)
ROLE_FORMATS = ("", *(".1f",) * 7, *"ddd", ".2g", ".2g", "")
RELATED = ("best, %", "low, %", "high, %", "baseline, %")


def roles_of(place: int, syntax: bool) -> tuple[str, ...]:
    own = TWO if place == len(OWN) else OWN[place : place + 1]
    return tuple(role for role in own if syntax or ":" not in role)


def role_rows(
    grid: HeadGrid, syntax: bool, rng: np.random.Generator, shift: int
) -> Iterator[tuple[Any, ...]]:
    for place, head in enumerate(grid.heads):
        own = roles_of(place - shift, syntax) if place >= shift else ()
        position = next(
            (role for role in own if role.startswith("position")),
            f"position {rng.choice([-2, -1, 1]):+d}",
        )
        for role in (position, *(SYNTAX if syntax else ()), *PLAIN):
            has = role in own
            chance = float(rng.uniform(5, 25))
            share = float(rng.uniform(60, 97)) if has else chance + float(rng.normal(0, 3))
            asked = int(rng.integers(80, 400))
            p = 1e-5 if has else 0.6
            hits = round(asked * share / 100)
            above = share - chance
            ends = (max(0.0, share - 6), min(100.0, share + 6))
            yield (
                *head,
                role,
                share,
                *ends,
                chance,
                above,
                above - 7,
                above + 7,
                hits,
                asked,
                75,
                p,
                min(1, 2 * p),
                has,
            )


def tables(grid: HeadGrid, syntax: bool, seed: int, shift: int) -> tuple[Table, ...]:
    rng = np.random.default_rng(seed)
    rows = tuple(role_rows(grid, syntax, rng, shift))
    measures = tuple((*head, *rng.uniform(0, 1, 5).tolist(), 4321) for head in grid.heads)
    places = [ROLES.index(name) + 3 for name in ("share, %", "low, %", "high, %", "chance, %")]
    best = [
        (*role.split(": "), *grid.heads[1], *(rows[1][place] for place in places), "-1", 300, 1)
        for role in (SYNTAX if syntax else ())
    ]
    held = {
        kind: {row[:3] for row in rows if row[-1] and group_of(row[3]) == kind} for kind in LOOKS
    }
    shown = [
        (OWN[1], *grid.heads[1], right, SENTENCE, "Time", "flies" if right else "arrow", "flies")
        for right in (True, False)
        if syntax
    ]
    return (
        Table(
            "measures",
            "Where every head looks",
            (*PLACE, *MEASURES),
            (*DIGITS, *(".3f",) * 5, "d"),
            measures,
        ),
        Table("roles", "Every head and role", (*PLACE, *ROLES), (*DIGITS, *ROLE_FORMATS), rows),
        Table(
            "relations",
            "The best head of each relation",
            ("relation", "direction", *PLACE, *RELATED, "offset", "pairs", "heads"),
            ("", "", *DIGITS, *(".1f",) * 4, "", "d", "d"),
            tuple(best),
            ("A note on relations.",),
        ),
        Table(
            "role-counts",
            "How many heads have each role",
            ("role", "heads", "of"),
            ("", "d", "d"),
            tuple((kind, len(those), grid.size) for kind, those in held.items()),
        ),
        Table(
            "role-examples",
            "Sentences",
            ("role", *PLACE, "right", "sentence", "word", "looks at", "should look at"),
            ("", *DIGITS, "", "", "", "", ""),
            tuple(shown),
        ),
    )


def made_roles(
    language: str = "en",
    *,
    model: str = "e5-small-intents",
    name: str = "treebank",
    seed: int = 0,
    grid: HeadGrid = GRID,
    shift: int = 0,
    **model_part: str,
) -> Report:
    """A report in which head n has role n of OWN, the one after them two.

    Args:
        shift: Moves all of that by so many heads.
    """
    spec = {
        "format": 1, "kind": "report", "experiment": "roles", "version": VERSION, "ablation": "zero", "seed": 0,
        "model": {"name": model, "revision": "made-up", "fingerprint": "0" * 64, **model_part},
        "task": {"name": name, "language": language, "split": "dev", "size": 75, "seed": 0, "data_hash": f"x{seed}"},
        "options": resolve({}),
    }  # fmt: skip
    return Report(
        "roles",
        tables(grid, name == "treebank", seed, shift),
        ("Made up for a test.",),
        spec,
        75,
        3.0,
    )


def two_roles(grid: HeadGrid = GRID) -> Head:
    """The head that has two roles."""
    return grid.heads[len(OWN)]
