"""Roles of the heads that remain: counted slowly on a made-up report, beside what chance would leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import reference
from support.expected_errors import raises
from support.synthetic_scores import scores_of

from headlab.core import Report, Table
from headlab.results import HeadScores
from headlab.studies.remaining import NO_ROLE, remaining, role_counts

VALUES = np.array([5, 4, 3, 2, 1, 0, -1, -2, -3, -4])  # heads leave from the last to the first
HAVE: dict[str, tuple[int, ...]] = {
    "position -1": (0, 9),
    "position +1": (1,),
    "nsubj: dependent to governor": (0, 2, 3),
    "rare word": (),
}
MODEL = {"name": "m", "fingerprint": "0" * 64}


def made(**more: Any) -> tuple[Report, HeadScores]:
    """A report of ten heads, of which the last but one was not judged, and scores of the same model."""
    scores = replace(scores_of("xx", VALUES), spec={"model": MODEL})
    heads = [head for at, head in enumerate(scores.grid.heads) if at != 8]
    places = {head: at for at, head in enumerate(scores.grid.heads)}
    rows = [(*head, role, places[head] in have) for role, have in HAVE.items() for head in heads]
    table = Table(
        "roles", "Roles", ("stack", "layer", "head", "role", "has it"), ("",) * 5, tuple(rows)
    )
    return Report("roles", (table,), (), {"model": MODEL, **more}), scores


def shown(table: Table, left: int) -> dict[str, dict[str, Any]]:
    every = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {row["role"]: row for row in every if row["heads left"] == left}


def test_heads_of_each_role_are_counted_at_every_size() -> None:
    table = remaining(*made(), [10, 4, 1, 0])
    roles = {
        "positional": {0, 1, 9},
        "nsubj: dependent to governor": {0, 2, 3},
        NO_ROLE: {4, 5, 6, 7},
    }
    for left in (10, 4, 1, 0):
        found = shown(table, left)
        assert list(found) == list(roles)  # "rare word" is no head's
        for role, heads in roles.items():
            there = len(heads & set(range(left)))
            assert (found[role]["heads"], found[role]["of"]) == (there, len(heads))
            assert found[role]["kept, %"] == pytest.approx(100 * there / len(heads))
            slow = reference.shared_by_chance(10, len(heads), left)
            assert found[role]["by chance"] == pytest.approx(
                sum(n * share for n, share in enumerate(slow))
            )
            inside = slow[found[role]["chance, low"] : found[role]["chance, high"] + 1]
            assert sum(inside) >= 0.95 - 1e-12
    assert Table.from_json(table.to_json()) == table


def test_random_orders_leave_what_the_range_says(rng: np.random.Generator) -> None:
    """The range holds at least 95 % of random orders at every size, and is not all there is."""
    report, scores = made()
    outside = 0
    for _ in range(200):
        found = shown(remaining(report, replace(scores, values=rng.random(10)), [5]), 5)[NO_ROLE]
        assert (found["chance, low"], found["chance, high"]) == (1, 3)
        outside += not 1 <= found["heads"] <= 3
    assert 1 <= outside <= 20  # 9.5 are expected: 12 of 252 choices


def test_heads_that_may_not_leave_are_neither_counted_nor_drawn(rng: np.random.Generator) -> None:
    """Of 10 heads 6 are free; one role has 3 of these and one other, one role has others only."""
    having = {"a": np.isin(np.arange(10), [0, 1, 2, 9]), "b": np.isin(np.arange(10), [7, 8])}
    free = np.arange(10) < 6
    kept = np.isin(np.arange(10), [0, 3, 6, 7, 8, 9])
    (stay,) = role_counts(having, kept, free)
    assert (stay.role, stay.heads, stay.of) == ("a", 1, 3)
    slow = reference.shared_by_chance(6, 3, 2)
    assert stay.chance.mean == pytest.approx(sum(n * share for n, share in enumerate(slow)))
    drawn = [int(np.isin(rng.permutation(6)[:2], [0, 1, 2]).sum()) for _ in range(400)]
    assert np.mean(drawn) == pytest.approx(stay.chance.mean, abs=4 * np.std(drawn) / 20)
    assert np.mean([stay.chance.low <= n <= stay.chance.high for n in drawn]) >= 0.95
    assert stay.cells == ("a", 1, 3, 100 / 3, *stay.chance)


@pytest.mark.parametrize("sizes", [[], [11], [-1, 3]])
def test_sizes_that_do_not_fit_are_refused(sizes: list[int]) -> None:
    with raises("roles.sizes_out_of_range", 0, 10):
        remaining(*made(), sizes)


def test_roles_of_another_model_or_another_kind_of_report_are_refused() -> None:
    report, scores = made()
    with raises("report.not_roles", "gap"):
        remaining(replace(report, name="gap"), scores, [1])
    with raises("roles.other_model", "m", "scores", "n"):
        remaining(report, replace(scores, spec={"model": {"name": "n", "fingerprint": "1"}}), [1])
    with raises("roles.head_unknown"):
        remaining(report, replace(scores_of("xx", VALUES[:4]), spec={"model": MODEL}), [1])
