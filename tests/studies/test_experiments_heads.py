"""Heads of all languages and of a few: which they are, and what may be claimed after correction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.planted_scores import plant
from support.synthetic_scores import scores_of
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import Table
from headlab.results import HeadScores, Store
from headlab.stats import benjamini_hochberg, holm
from headlab.studies import heads as tables
from headlab.studies.run import Pieces, run_experiment

CODES = ("de", "th", "fi", "hu")


def signs(*rows: list[float], **more: object) -> dict[str, HeadScores]:
    """Scores of these values in points, interval ± 1 point, a language each."""
    return {code: scores_of(code, row, **more) for code, row in zip(CODES, rows, strict=False)}


def heads(table: Table) -> list[int]:
    """Flat numbers of the heads of a table, for the grid of `scores_of` with six heads."""
    places = zip(table.column("layer"), table.column("head"), strict=True)
    return [3 * layer + head for layer, head in places]


def test_heads_in_every_top_k_the_best_worst_rank_first() -> None:
    scores = signs([5, 4, 3, 0, 0, 0], [5, 3, 4, 0, 0, 0], [4, 5, 3, -1, 0, 0])
    assert heads(tables.shared_table(tables.shared_heads(scores, 3))) == [0, 1, 2]
    table = tables.shared_table(tables.shared_heads(scores, 2))
    assert heads(table) == [0]
    assert table.column("worst rank") == [2]
    assert table.column("helps in (raw)") == [3]
    assert tables.shared_table(tables.shared_heads(scores, 1)).rows == ()


def test_unrelated_rankings_share_as_many_heads_as_is_said(rng: np.random.Generator) -> None:
    assert tables.expected_shared(10, 3, 10) == 10
    found = []
    for _ in range(400):
        scores = {code: scores_of(code, rng.permutation(12)) for code in CODES[:2]}
        found.append(tables.in_every_top(scores, 6).sum())
    assert np.mean(found) == pytest.approx(tables.expected_shared(12, 2, 6), abs=0.25)


def test_heads_positive_in_few_are_negative_in_all_others() -> None:
    scores = signs([5, -2, 3, 0.5, 0, 1], [-2, -2, 3, -0.5, 1, 1], [-0.5, -2, -1.5, -0.5, -1, 1])
    table = tables.few_table(tables.few_heads(scores, 1))
    assert heads(table) == [0, 3]
    assert table.rows[0][3:] == (1, 2, 1, 1, -2.0, 5.0, "de", "th, fi")
    assert heads(tables.few_table(tables.few_heads(scores, 2))) == [2, 0, 3]
    assert tables.few_table(tables.few_heads(signs([1] * 6, [1] * 6), 1)).rows == ()


def test_a_sign_that_differs_is_told_by_the_strictest_correction_that_leaves_it() -> None:
    """Head 0 differs whatever is asked, head 1 after Benjamini-Hochberg, head 2 by raw intervals only."""
    p = np.array([1e-6, 0.006, 0.3, 0.9, 0.9, 0.9])
    scores = signs([5, 5, 5, 0, 0, 0], [-5, -5, -5, 0, 0, 0], p_values=p)
    table = tables.specific_table(tables.specific_heads(scores))
    assert heads(table) == [0, 1, 2]
    assert table.column("claimed by") == [tables.HOLM, tables.BH, tables.RAW]
    assert table.column("positive languages") == ["de"] * 3


def test_claims_are_adjusted_over_heads_and_languages_together(rng: np.random.Generator) -> None:
    p = rng.random(size=(3, 6)) ** 4
    values = rng.normal(size=(3, 6))
    scores = {c: scores_of(c, v, p_values=row) for c, v, row in zip(CODES, values, p, strict=False)}
    found = tables.claimed_signs(scores)
    for name, adjust in ((tables.HOLM, holm), (tables.BH, benjamini_hochberg)):
        sure = adjust(p.ravel()).reshape(3, 6) <= 0.05
        np.testing.assert_array_equal(found[name].helps, sure & (values > 0))
        np.testing.assert_array_equal(found[name].harms, sure & (values < 0))
    assert found[tables.HOLM].helps.sum() + found[tables.HOLM].harms.sum() > 0


def test_counts_are_of_the_heads_in_the_tables() -> None:
    p = np.array([1e-6, 0.008, 0.3, 1e-6, 0.9, 0.9])
    scores = signs([5, 5, 5, 4, 0.5, -3], [-5, -5, -5, 4, 0.5, -3], p_values=p)
    found = tables.count_table(scores, 2, 1)
    counts = {row[0]: row[1:] for row in found.rows}
    assert found.columns == (
        "heads that",
        "values",
        tables.RAW,
        tables.BH,
        tables.HOLM,
        "by chance",
    )
    assert counts["help in every language"] == (2, 1, 1, 1, None)
    assert counts["harm in every language"] == (1, 1, 0, 0, None)
    assert counts["help in one language and harm in another"] == (3, 3, 2, 1, None)
    assert counts["among the top 2 of every language"] == (
        0,
        None,
        None,
        None,
        pytest.approx(2 / 3),
    )


def test_without_intervals_no_sign_is_claimed() -> None:
    scores = {code: scores_of(code, [1, -1, 0, 2, 3, 4], width=None) for code in CODES[:2]}
    assert tables.claimed_signs(scores) == {}
    found = {table.name: len(table.rows) for table in tables.heads_result(scores, 2, 1).tables()}
    assert found == {"heads-counts": 5, "heads-agnostic": 2, "heads-specific": 0, "heads-few": 0}
    assert "no sign can be claimed" in " ".join(tables.count_table(scores, 2, 1).notes)


def test_p_values_too_coarse_for_a_correction_are_said() -> None:
    fine, coarse = (signs([1] * 6, [2] * 6, p_values=np.full(6, p)) for p in (1e-4, 0.01))
    assert "smallest p" not in " ".join(tables.count_notes(fine))
    assert "over 12 tests no head can survive Holm's correction" in " ".join(
        tables.count_notes(coarse)
    )


def test_the_experiment_is_of_stored_scores(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    pieces = Pieces(model, tiny_task(), Store(tmp_path), dev_size=12)
    values = np.linspace(0.3, -0.25, 12)
    plant(pieces, "xx", values, (10, 11))
    plant(pieces, "yy", values)
    report = run_experiment("heads", pieces, options={"top": 4})
    assert report.example_forwards == 0
    assert len(report.table("heads-agnostic").rows) == 4
    assert report.table("heads-specific").rows == ()
    counts = report.table("heads-counts").notes
    assert report.notes[: len(counts)] == counts


def test_reported_14_the_experiment_says_that_values_of_heads_let_go_at_a_sign_lean(
    tmp_path: Path,
) -> None:
    pieces = Pieces(
        tiny_model("bert", tokenizer=tiny_tokenizer()), tiny_task(), Store(tmp_path), dev_size=12
    )
    values = np.linspace(0.3, -0.25, 12)
    for language in ("xx", "yy"):
        plant(pieces, language, values, (10, 11))
    *_, note = run_experiment("heads", pieces, options={"top": 4}).notes
    assert (
        "of 24 heads were let go as soon as their sign was decided: their values lean away from 0"
        in note
    )
