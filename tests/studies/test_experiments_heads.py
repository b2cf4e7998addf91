"""Heads of all languages and of a few: which they are, and what may be claimed after correction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.planted_scores import plant_scores
from support.synthetic_scores import scores_of
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import Table
from headlab.results import HeadScores, Store
from headlab.stats import benjamini_hochberg, holm
from headlab.studies import heads as tables
from headlab.studies.run import Pieces, run_experiment

CODES = ("de", "th", "fi", "hu")


def scores_in_points(*rows: list[float], **fields: object) -> dict[str, HeadScores]:
    """Scores of each language's values in points, with an interval of ± 1 point."""
    scores = {}
    for code, row in zip(CODES, rows, strict=False):
        scores[code] = scores_of(code, row, **fields)
    return scores


def head_numbers(table: Table) -> list[int]:
    """The number from 0 to 5 of each head of a table, for scores of six heads."""
    layers = table.column("layer")
    heads = table.column("head")
    return [3 * layer + head for layer, head in zip(layers, heads, strict=True)]


def test_heads_in_every_top_k_the_best_worst_rank_first() -> None:
    scores = scores_in_points(
        [5, 4, 3, 0, 0, 0],
        [5, 3, 4, 0, 0, 0],
        [4, 5, 3, -1, 0, 0],
    )
    three_heads = tables.shared_heads(scores, 3)
    table_of_three = tables.shared_table(three_heads)
    assert head_numbers(table_of_three) == [0, 1, 2]
    shared_heads = tables.shared_heads(scores, 2)
    table = tables.shared_table(shared_heads)
    assert head_numbers(table) == [0]
    assert table.column("worst rank") == [2]
    assert table.column("helps in (raw)") == [3]
    no_heads = tables.shared_heads(scores, 1)
    table_of_none = tables.shared_table(no_heads)
    assert table_of_none.rows == ()


def test_unrelated_rankings_share_as_many_heads_as_expected(rng: np.random.Generator) -> None:
    assert tables.expected_shared(10, 3, 10) == 10
    shared_counts = []
    for _ in range(400):
        scores = {}
        for code in CODES[:2]:
            scores[code] = scores_of(code, rng.permutation(12))
        is_shared = tables.in_every_top(scores, 6)
        shared_counts.append(is_shared.sum())
    expected_count = tables.expected_shared(12, 2, 6)
    assert np.mean(shared_counts) == pytest.approx(expected_count, abs=0.25)


def test_heads_positive_in_few_are_negative_in_all_others() -> None:
    scores = scores_in_points(
        [5, -2, 3, 0.5, 0, 1],
        [-2, -2, 3, -0.5, 1, 1],
        [-0.5, -2, -1.5, -0.5, -1, 1],
    )
    heads_of_one_language = tables.heads_positive_in_few(scores, 1)
    table = tables.few_table(heads_of_one_language)
    assert head_numbers(table) == [0, 3]
    first_row = table.rows[0]
    *_, lowest, highest, positive_languages, negative_languages = first_row
    assert first_row[3:7] == (1, 2, 1, 1)
    assert lowest == -2.0
    assert highest == 5.0
    assert positive_languages == "de"
    assert negative_languages == "th, fi"
    heads_of_two_languages = tables.heads_positive_in_few(scores, 2)
    table_of_two = tables.few_table(heads_of_two_languages)
    assert head_numbers(table_of_two) == [2, 0, 3]
    equal_scores = scores_in_points(
        [1] * 6,
        [1] * 6,
    )
    no_heads = tables.heads_positive_in_few(equal_scores, 1)
    table_of_none = tables.few_table(no_heads)
    assert table_of_none.rows == ()


def test_a_sign_that_differs_is_claimed_by_the_strictest_correction_that_leaves_it() -> None:
    """Head 0 differs after Holm, head 1 after Benjamini-Hochberg, head 2 by raw intervals only."""
    p_values = np.array([1e-6, 0.006, 0.3, 0.9, 0.9, 0.9])
    scores = scores_in_points(
        [5, 5, 5, 0, 0, 0],
        [-5, -5, -5, 0, 0, 0],
        p_values=p_values,
    )
    specific_heads = tables.specific_heads(scores)
    table = tables.specific_table(specific_heads)
    assert head_numbers(table) == [0, 1, 2]
    assert table.column("claimed by") == [
        tables.HOLM,
        tables.BH,
        tables.RAW,
    ]
    assert table.column("positive languages") == ["de"] * 3


def test_claims_are_adjusted_over_heads_and_languages_together(rng: np.random.Generator) -> None:
    p_values = rng.random(size=(3, 6)) ** 4
    values = rng.normal(size=(3, 6))
    scores = {}
    for code, language_values, language_p_values in zip(CODES, values, p_values, strict=False):
        scores[code] = scores_of(code, language_values, p_values=language_p_values)
    claims = tables.claimed_signs(scores)
    corrections = {
        tables.HOLM: holm,
        tables.BH: benjamini_hochberg,
    }
    for name, adjust in corrections.items():
        adjusted_p = adjust(p_values.ravel()).reshape(3, 6)
        is_significant = adjusted_p <= 0.05
        helps = is_significant & (values > 0)
        harms = is_significant & (values < 0)
        np.testing.assert_array_equal(claims[name].helps, helps)
        np.testing.assert_array_equal(claims[name].harms, harms)
    holm_claims = claims[tables.HOLM]
    assert holm_claims.helps.any() or holm_claims.harms.any()


def test_counts_are_of_the_heads_in_the_tables() -> None:
    p_values = np.array([1e-6, 0.008, 0.3, 1e-6, 0.9, 0.9])
    scores = scores_in_points(
        [5, 5, 5, 4, 0.5, -3],
        [-5, -5, -5, 4, 0.5, -3],
        p_values=p_values,
    )
    table = tables.count_table(scores, 2, 1)
    counts = {}
    for kind, *kind_counts in table.rows:
        counts[kind] = tuple(kind_counts)
    claims = (tables.RAW, tables.BH, tables.HOLM)
    assert table.columns == (
        "heads that",
        "values",
        *claims,
        "by chance",
    )
    assert counts["help in every language"] == (2, 1, 1, 1, None)
    assert counts["harm in every language"] == (1, 1, 0, 0, None)
    assert counts["help in one language and harm in another"] == (3, 3, 2, 1, None)
    *top_counts, by_chance = counts["among the top 2 of every language"]
    assert top_counts == [0, None, None, None]
    assert by_chance == pytest.approx(2 / 3)


def test_without_intervals_no_sign_is_claimed() -> None:
    values = [1, -1, 0, 2, 3, 4]
    scores = {}
    for code in CODES[:2]:
        scores[code] = scores_of(code, values, width=None)
    assert tables.claimed_signs(scores) == {}
    result = tables.heads_result(scores, 2, 1)
    row_counts = {table.name: len(table.rows) for table in result.tables()}
    assert row_counts == {
        "heads-counts": 5,
        "heads-agnostic": 2,
        "heads-specific": 0,
        "heads-few": 0,
    }
    count_table = tables.count_table(scores, 2, 1)
    assert "no sign can be claimed" in " ".join(count_table.notes)


def test_a_note_says_when_p_values_are_too_coarse_for_a_correction() -> None:
    values = ([1] * 6, [2] * 6)
    fine_scores = scores_in_points(*values, p_values=np.full(6, 1e-4))
    coarse_scores = scores_in_points(*values, p_values=np.full(6, 0.01))
    notes_of_fine_scores = " ".join(tables.count_notes(fine_scores))
    assert "smallest p" not in notes_of_fine_scores
    notes = " ".join(tables.count_notes(coarse_scores))
    assert "over 12 tests no head can survive Holm's correction" in notes


def test_the_experiment_is_of_stored_scores(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    pieces = Pieces(model, tiny_task(), Store(tmp_path), dev_size=12)
    values = np.linspace(0.3, -0.25, 12)
    plant_scores(pieces, "xx", values, (10, 11))
    plant_scores(pieces, "yy", values)
    report = run_experiment("heads", pieces, options={"top": 4})
    assert report.example_forwards == 0
    assert len(report.table("heads-agnostic").rows) == 4
    assert report.table("heads-specific").rows == ()
    counts = report.table("heads-counts").notes
    assert report.notes[: len(counts)] == counts


def test_reported_14_a_note_says_that_values_of_heads_stopped_at_a_sign_lean(
    tmp_path: Path,
) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    pieces = Pieces(model, tiny_task(), Store(tmp_path), dev_size=12)
    values = np.linspace(0.3, -0.25, 12)
    for language in ("xx", "yy"):
        plant_scores(pieces, language, values, (10, 11))
    report = run_experiment("heads", pieces, options={"top": 4})
    *_, note = report.notes
    warning = "of 24 heads were let go as soon as their sign was decided"
    assert f"{warning}: their values lean away from 0" in note
