"""Made-up reports of roles, in the columns that `headlab.roles` writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headlab.core import Head, HeadGrid, Report, Stack, Table
from headlab.pictures import LOOKS
from headlab.roles import VERSION, group_of, resolve
from headlab.roles.table import DIRECTIONS, RELATIONS

GRID = HeadGrid((Stack("encoder", (4, 4, 3)),))
SYNTACTIC_ROLES = tuple(
    f"{relation}: {direction}" for relation in RELATIONS for direction in DIRECTIONS
)
OTHER_ROLES = ("rare word", "separator", "first token", "same token elsewhere", "induction")
HEAD_COLUMNS = ("stack", "layer", "head")
HEAD_FORMATS = ("", "d", "d")
SENTENCE = "Time <b>flies</b> like an arrow ."
# The role of each of the first heads. The head after them has two roles (TWO), all others have
# none.
HEAD_ROLES = (
    "position -1",
    "nsubj: dependent to governor",
    "obj: governor to dependent",
    "rare word",
    "separator",
)
TWO_ROLES = ("amod: dependent to governor", "first token")
MEASURES = (
    "confidence",
    "entropy, nats",
    "distance, tokens",
    "separator share",
    "first-token share",
    "tokens",
)
ROLE_COLUMNS = (
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
RELATION_SHARES = ("best, %", "low, %", "high, %", "baseline, %")


def _roles_of(index: int, syntax: bool) -> tuple[str, ...]:
    """The roles of a head; without syntactic ones where the text has no trees."""
    roles = TWO_ROLES if index == len(HEAD_ROLES) else HEAD_ROLES[index : index + 1]
    return tuple(role for role in roles if syntax or ":" not in role)


def role_rows(
    grid: HeadGrid, syntax: bool, rng: np.random.Generator, shift: int
) -> Iterator[tuple[Any, ...]]:
    """A row for every head and role, in the columns of the table "roles"."""
    syntactic_roles = SYNTACTIC_ROLES if syntax else ()
    for index, head in enumerate(grid.heads):
        head_roles = _roles_of(index - shift, syntax) if index >= shift else ()
        other_position = f"position {rng.choice([-2, -1, 1]):+d}"
        own_positions = [role for role in head_roles if role.startswith("position")]
        position = own_positions[0] if own_positions else other_position
        for role in (position, *syntactic_roles, *OTHER_ROLES):
            has_role = role in head_roles
            chance = float(rng.uniform(5, 25))
            share = float(rng.uniform(60, 97)) if has_role else chance + float(rng.normal(0, 3))
            asked_count = int(rng.integers(80, 400))
            p = 1e-5 if has_role else 0.6
            hits = round(asked_count * share / 100)
            above_chance = share - chance
            bounds = (max(0.0, share - 6), min(100.0, share + 6))
            yield (
                *head,
                role,
                share,
                *bounds,
                chance,
                above_chance,
                above_chance - 7,
                above_chance + 7,
                hits,
                asked_count,
                75,
                p,
                min(1, 2 * p),
                has_role,
            )


def role_tables(grid: HeadGrid, syntax: bool, seed: int, shift: int) -> tuple[Table, ...]:
    """The tables of a report of roles.

    Args:
        grid: The heads.
        syntax: Whether the text has trees, and so syntactic roles.
        seed: Seed of the numbers.
        shift: Index of the head that has the first role of OWN.
    """
    rng = np.random.default_rng(seed)
    rows = tuple(role_rows(grid, syntax, rng, shift))
    measures = tuple((*head, *rng.uniform(0, 1, 5).tolist(), 4321) for head in grid.heads)
    best_heads = []
    example_rows = []
    if syntax:
        share_columns = ("share, %", "low, %", "high, %", "chance, %")
        shares = [rows[1][len(HEAD_COLUMNS) + ROLE_COLUMNS.index(name)] for name in share_columns]
        for role in SYNTACTIC_ROLES:
            best_heads.append((*role.split(": "), *grid.heads[1], *shares, "-1", 300, 1))
        for is_hit in (True, False):
            attended_word = "flies" if is_hit else "arrow"
            example_rows.append(
                (HEAD_ROLES[1], *grid.heads[1], is_hit, SENTENCE, "Time", attended_word, "flies")
            )
    counts = []
    for kind in LOOKS:
        heads = {row[:3] for row in rows if row[-1] and group_of(row[3]) == kind}
        counts.append((kind, len(heads), grid.size))
    return (
        Table(
            "measures",
            "Where every head looks",
            (*HEAD_COLUMNS, *MEASURES),
            (*HEAD_FORMATS, *(".3f",) * 5, "d"),
            measures,
        ),
        Table(
            "roles",
            "Every head and role",
            (*HEAD_COLUMNS, *ROLE_COLUMNS),
            (*HEAD_FORMATS, *ROLE_FORMATS),
            rows,
        ),
        Table(
            "relations",
            "The best head of each relation",
            ("relation", "direction", *HEAD_COLUMNS, *RELATION_SHARES, "offset", "pairs", "heads"),
            ("", "", *HEAD_FORMATS, *(".1f",) * 4, "", "d", "d"),
            tuple(best_heads),
            ("A note on relations.",),
        ),
        Table(
            "role-counts",
            "How many heads have each role",
            ("role", "heads", "of"),
            ("", "d", "d"),
            tuple(counts),
        ),
        Table(
            "role-examples",
            "Sentences",
            ("role", *HEAD_COLUMNS, "right", "sentence", "word", "looks at", "should look at"),
            ("", *HEAD_FORMATS, "", "", "", "", ""),
            tuple(example_rows),
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
    """A report in which head n has role n of OWN, and the head after those has two roles.

    Args:
        language: The language.
        model: Name of the model.
        name: Name of the task; "treebank" has trees, and so syntactic roles.
        seed: Seed of the numbers.
        grid: The heads.
        shift: The roles begin this many heads later.
        model_part: Other fields of the model's identity.
    """
    spec = {
        "format": 1, "kind": "report", "experiment": "roles", "version": VERSION, "ablation": "zero", "seed": 0,
        "model": {"name": model, "revision": "made-up", "fingerprint": "0" * 64, **model_part},
        "task": {"name": name, "language": language, "split": "dev", "size": 75, "seed": 0, "data_hash": f"x{seed}"},
        "options": resolve({}),
    }  # fmt: skip
    return Report(
        "roles",
        role_tables(grid, name == "treebank", seed, shift),
        ("Made up for a test.",),
        spec,
        75,
        3.0,
    )


def head_with_two_roles(grid: HeadGrid = GRID) -> Head:
    """The head that has two roles."""
    return grid.heads[len(HEAD_ROLES)]
