"""Roles of the heads that remain: counted slowly, beside what chance would leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import reference
from support.expected_errors import raises
from support.synthetic_scores import scores_of
from support.table_rows import rows_where

from headlab.core import Report, Table
from headlab.results import HeadScores
from headlab.studies.remaining import NO_ROLE, remaining, role_counts

VALUES = np.array([5, 4, 3, 2, 1, 0, -1, -2, -3, -4])  # heads leave from the last to the first
HEADS_BY_ROLE: dict[str, tuple[int, ...]] = {
    "position -1": (0, 9),
    "position +1": (1,),
    "nsubj: dependent to governor": (0, 2, 3),
    "rare word": (),
}
MODEL = {"name": "m", "fingerprint": "0" * 64}


def roles_report_and_scores(**further_spec: Any) -> tuple[Report, HeadScores]:
    """A report of roles of ten heads and scores of the same model; no role of head 8 is known."""
    scores = replace(scores_of("xx", VALUES), spec={"model": MODEL})
    rows = []
    for role, heads_with_role in HEADS_BY_ROLE.items():
        for number, head in enumerate(scores.grid.heads):
            if number != 8:
                rows.append((*head, role, number in heads_with_role))
    columns = ("stack", "layer", "head", "role", "has it")
    table = Table("roles", "Roles", columns, ("",) * 5, tuple(rows))
    spec = {"model": MODEL, **further_spec}
    report = Report("roles", (table,), (), spec)
    return report, scores


def rows_by_role(table: Table, heads_left: int) -> dict[str, dict[str, Any]]:
    rows = rows_where(table, heads_left=heads_left)
    return {row["role"]: row for row in rows}


def test_heads_of_each_role_are_counted_at_every_size() -> None:
    report, scores = roles_report_and_scores()
    table = remaining(report, scores, [10, 4, 1, 0])
    roles = {
        "positional": {0, 1, 9},
        "nsubj: dependent to governor": {0, 2, 3},
        NO_ROLE: {4, 5, 6, 7},
    }
    for heads_left in (10, 4, 1, 0):
        rows = rows_by_role(table, heads_left)
        assert list(rows) == list(roles)  # "rare word" is no head's
        for role, heads in roles.items():
            remaining_heads = heads & set(range(heads_left))
            remaining_count = len(remaining_heads)
            row = rows[role]
            assert row["heads"] == remaining_count
            assert row["of"] == len(heads)
            percent_kept = 100 * remaining_count / len(heads)
            assert row["kept, %"] == pytest.approx(percent_kept)
            by_chance = reference.shared_by_chance(10, len(heads), heads_left)
            probabilities = np.array(by_chance)
            expected_count = np.arange(len(probabilities)) @ probabilities
            assert row["by chance"] == pytest.approx(expected_count)
            low = row["chance, low"]
            high = row["chance, high"]
            range_probabilities = probabilities[low : high + 1]
            assert range_probabilities.sum() >= 0.95 - 1e-12
    assert Table.from_json(table.to_json()) == table


def test_random_orders_leave_what_the_range_says(rng: np.random.Generator) -> None:
    """The range holds at least 95 % of random orders at every size, but not all of them."""
    report, scores = roles_report_and_scores()
    outside_count = 0
    for _ in range(200):
        random_scores = replace(scores, values=rng.random(10))
        table = remaining(report, random_scores, [5])
        row = rows_by_role(table, 5)[NO_ROLE]
        assert row["chance, low"] == 1
        assert row["chance, high"] == 3
        outside_count += not 1 <= row["heads"] <= 3
    assert 1 <= outside_count <= 20  # 9.5 are expected: 12 of 252 choices


def test_heads_that_must_stay_are_neither_counted_nor_drawn(rng: np.random.Generator) -> None:
    """Of 10 heads 6 are free; one role has 3 of these and one other, one role has others only."""
    heads = np.arange(10)
    has_role = {
        "a": np.isin(heads, [0, 1, 2, 9]),
        "b": np.isin(heads, [7, 8]),
    }
    is_free = heads < 6
    is_kept = np.isin(heads, [0, 3, 6, 7, 8, 9])
    (role_count,) = role_counts(has_role, is_kept, is_free)
    assert role_count.role == "a"
    assert role_count.kept_heads == 1
    assert role_count.removable_heads == 3
    chance = role_count.chance
    probabilities = np.array(reference.shared_by_chance(6, 3, 2))
    expected_count = np.arange(len(probabilities)) @ probabilities
    assert chance.mean == pytest.approx(expected_count)
    random_counts = np.empty(400)
    for draw in range(400):
        random_heads = rng.permutation(6)[:2]
        has_role_a = np.isin(random_heads, [0, 1, 2])
        random_counts[draw] = has_role_a.sum()
    standard_error = random_counts.std() / 20
    assert random_counts.mean() == pytest.approx(chance.mean, abs=4 * standard_error)
    is_in_range = (chance.low <= random_counts) & (random_counts <= chance.high)
    assert is_in_range.mean() >= 0.95
    assert role_count.cells == ("a", 1, 3, 100 / 3, *chance)


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [11],
        [-1, 3],
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: list[int]) -> None:
    report, scores = roles_report_and_scores()
    with raises("roles.sizes_out_of_range", 0, 10):
        remaining(report, scores, sizes)


def test_roles_of_another_model_or_another_kind_of_report_are_refused() -> None:
    report, scores = roles_report_and_scores()
    report_of_gap = replace(report, name="gap")
    with raises("report.not_roles", "gap"):
        remaining(report_of_gap, scores, [1])
    other_model = {"name": "n", "fingerprint": "1"}
    scores_of_other_model = replace(scores, spec={"model": other_model})
    with raises("roles.other_model", "m", "scores", "n"):
        remaining(report, scores_of_other_model, [1])
    scores_of_four_heads = replace(
        scores_of("xx", VALUES[:4]),
        spec={"model": MODEL},
    )
    with raises("roles.head_unknown"):
        remaining(report, scores_of_four_heads, [1])
