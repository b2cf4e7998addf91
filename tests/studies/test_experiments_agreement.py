"""Agreement between languages as tables and figures.

They hold the same numbers as the statistics, and leave open what the statistics leave open.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.planted_scores import plant_scores
from support.synthetic_scores import scores_of
from support.table_rows import rows_where
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab import stats
from headlab.charts.studies.agreement import agreement_matrix, dendrogram
from headlab.core import EMPTY_CELL, Floats, Table
from headlab.methods import sampling
from headlab.plots.drawing import plotly_figure
from headlab.results import HeadScores, Store
from headlab.studies import agreement
from headlab.studies.agreement import RankAgreement, agreement_result, rank_agreement_of
from headlab.studies.run import Pieces, forecast, missing_pieces, run_experiment

NAMES = ("de", "en", "fi", "zh")


def scores_of_four_languages(
    rng: np.random.Generator, noise: float = 0.2, heads: int = 60
) -> dict[str, HeadScores]:
    """Scores of four languages, of which two pairs are alike.

    Each half of the examples has noise of its own.
    """
    pair_values = rng.normal(size=(2, heads))
    first_values, second_values = pair_values
    true_values = (first_values, second_values, first_values, second_values)
    scores_by_language = {}
    for name, true in zip(NAMES, true_values, strict=True):
        language_noise = rng.normal(size=heads)
        half_noise = rng.normal(size=(2, heads))
        halves = true + 0.2 * language_noise + noise * half_noise
        scores_by_language[name] = scores_of(
            name,
            halves.mean(axis=0),
            halves=halves / 100,
        )
    return scores_by_language


@pytest.fixture(scope="module")
def rank_agreement() -> RankAgreement:
    rng = np.random.default_rng(0)
    return rank_agreement_of(scores_of_four_languages(rng))


def tables_of(agreement_of_languages: RankAgreement) -> tuple[Table, ...]:
    return agreement_result(agreement_of_languages).tables()


def table(agreement_of_languages: RankAgreement, name: str) -> Table:
    return next(
        candidate for candidate in tables_of(agreement_of_languages) if candidate.name == name
    )


def test_every_pair_has_one_row_with_the_figures_of_the_statistics(
    rank_agreement: RankAgreement,
) -> None:
    rows = rows_where(table(rank_agreement, "agreement"))
    assert len(rows) == 6
    rho = rank_agreement.statistics.rho
    noise = rank_agreement.statistics.noise
    assert noise is not None
    for row in rows:
        language_index = NAMES.index(row["language"])
        other_index = NAMES.index(row["other"])
        pair = (language_index, other_index)
        assert row["rho"] == rho.value[pair]
        assert row["low"] == rho.low[pair]
        assert row["high"] == rho.high[pair]
        assert row["ceiling"] == noise.ceiling.value[pair]
        assert row["corrected"] == noise.corrected.value[pair]
        assert row["across halves"] == noise.across.value[pair]
        assert row["noise"] == ""


def test_the_same_scores_and_seed_give_the_same_tables_and_another_seed_other_intervals() -> None:
    scores = scores_of_four_languages(np.random.default_rng(1))

    def pairs_of_seed(seed: int) -> Table:
        return table(rank_agreement_of(scores, seed), "agreement")

    pairs = pairs_of_seed(0)
    pairs_of_another_seed = pairs_of_seed(1)
    assert pairs == pairs_of_seed(0)
    rho = pairs.column("rho")
    low = pairs.column("low")
    assert rho == pairs_of_another_seed.column("rho")
    assert low != pairs_of_another_seed.column("low")


def test_languages_stand_in_the_order_of_the_tree(rank_agreement: RankAgreement) -> None:
    languages_table = table(rank_agreement, "agreement-languages")
    merges = table(rank_agreement, "agreement-clusters")
    names = languages_table.column("language")
    first_pair = sorted(names[:2])
    second_pair = sorted(names[2:])
    named_pairs = sorted([first_pair, second_pair])
    assert named_pairs == [["de", "fi"], ["en", "zh"]]
    numbers = languages_table.column("number")
    assert [NAMES[number] for number in numbers] == names
    last_merge = merges.column("languages")[-1]
    assert last_merge.split(", ") == names
    assert merges.column("size") == [2, 2, 4]
    outlier_percents = languages_table.column("outlier, %")
    assert sum(outlier_percents) == pytest.approx(100)


def test_scores_without_halves_say_that_the_ceiling_is_unknown_and_how_to_get_it() -> None:
    scores = scores_of_four_languages(np.random.default_rng(2))
    for name in NAMES:
        values = scores[name].values * 100
        scores[name] = scores_of(name, values)
    pairs = table(rank_agreement_of(scores), "agreement")
    assert pairs.column("noise") == [agreement.UNKNOWN] * 6
    assert pairs.column("ceiling") == [None] * 6
    assert "compute them again" in " ".join(pairs.notes)


def test_one_language_without_halves_leaves_the_others_their_ceiling() -> None:
    scores = scores_of_four_languages(np.random.default_rng(3))
    values = scores["zh"].values * 100
    scores["zh"] = scores_of("zh", values)
    pairs = table(rank_agreement_of(scores), "agreement")
    for row in rows_where(pairs):
        lacks_halves = "zh" in (row["language"], row["other"])
        expected_noise = agreement.UNKNOWN if lacks_halves else ""
        assert row["noise"] == expected_noise
    assert "the scores of zh do not store" in " ".join(pairs.notes)


def test_languages_with_unequally_many_examples_have_no_value_across_halves() -> None:
    scores = scores_of_four_languages(np.random.default_rng(3))
    scores_with_sizes = {}
    for name, language_scores in scores.items():
        size = 60 if name == "zh" else 100
        spec = {"task": {"size": size}}
        scores_with_sizes[name] = replace(language_scores, spec=spec)
    agreement_of_sizes = rank_agreement_of(scores_with_sizes)
    plain_agreement = rank_agreement_of(scores)
    pairs = table(agreement_of_sizes, "agreement")
    plain_pairs = table(plain_agreement, "agreement")
    column = pairs.columns.index("across halves")
    row_pairs = zip(rows_where(pairs), rows_where(plain_pairs), strict=True)
    for row, plain_row in row_pairs:
        assert plain_row["across halves"] is not None
        if "zh" in (row["language"], row["other"]):
            plain_row["across halves"] = None
        assert row == plain_row
    third_row = pairs.shown_cells()[2]
    assert EMPTY_CELL in third_row[column]  # de and zh
    assert "de 100, en 100, fi 100, zh 60" in " ".join(pairs.notes)
    assert not any("unequally" in note for note in plain_pairs.notes)
    assert plain_agreement.statistics.noise is not None
    assert plain_agreement.statistics.noise.outlier is not None
    assert agreement_of_sizes.statistics.noise is not None
    assert agreement_of_sizes.statistics.noise.outlier is None
    assert "unequally many examples" in agreement.outlier_sentences(agreement_of_sizes)


def test_noise_that_unequally_many_examples_share_would_count_across_halves() -> None:
    """The reason for the rule: a draw may be in the first half of one size, the second of another.

    Its noise is then in both halves that are correlated.
    """
    rng = np.random.default_rng(8)
    draws = 1000
    heads = 2000
    # Both languages draw these coalitions; the heads themselves are worth nothing.
    coalition_gains = rng.normal(size=(draws, heads))

    def halves_of_size(size: int) -> list[Floats]:
        examples = []
        for draw in range(draws):
            examples.append(sampling.cycled_example(0, draw, size))
        doubled_examples = np.array(examples) * 2
        is_second = doubled_examples >= size
        first_half = coalition_gains[~is_second].mean(axis=0)
        second_half = coalition_gains[is_second].mean(axis=0)
        return [first_half, second_half]

    first_half, second_half = halves_of_size(100)
    _, second_half_of_99 = halves_of_size(99)
    halves = np.stack([first_half, second_half, second_half_of_99])
    correlations = stats.spearman(halves)
    _, with_same_size, with_other_size = correlations[0]
    assert abs(with_same_size) < 0.1
    assert with_other_size > 0.4  # half of all draws are shared, where none should be


def test_a_ceiling_that_is_too_low_leaves_the_correction_out() -> None:
    rng = np.random.default_rng(4)
    noisy_scores = scores_of_four_languages(rng, noise=6.0)
    pairs = table(rank_agreement_of(noisy_scores), "agreement")
    assert set(pairs.column("noise")) == {agreement.UNCLEAR}
    assert set(pairs.column("corrected")) == {None}
    assert None not in pairs.column("ceiling")


def test_the_sentence_on_the_outlier_says_how_sure_it_is() -> None:
    rng = np.random.default_rng(5)
    shared_values = rng.normal(size=80)
    scores = {}
    for name in NAMES:
        language_noise = rng.normal(size=80)
        values = shared_values + 0.3 * language_noise
        scores[name] = scores_of(name, values)
    unsettled_sentence = agreement.outlier_sentences(rank_agreement_of(scores))
    assert "not settled" in unsettled_sentence
    unrelated_values = rng.normal(size=80)
    scores["fi"] = scores_of("fi", unrelated_values)
    settled_sentence = agreement.outlier_sentences(rank_agreement_of(scores))
    assert settled_sentence.startswith("By mean ρ, fi agrees least with the others")
    assert "not settled" not in settled_sentence
    scores_of_two = {name: scores[name] for name in NAMES[:2]}
    agreement_of_two = rank_agreement_of(scores_of_two)
    assert agreement.outlier_sentences(agreement_of_two) == ""


def test_a_language_without_differences_has_rows_without_figures() -> None:
    scores = scores_of_four_languages(np.random.default_rng(6))
    scores["xx"] = scores_of("xx", np.zeros(60))
    agreement_with_constant = rank_agreement_of(scores)
    pairs, languages_table, *_ = tables_of(agreement_with_constant)
    rho_with_constant = []
    for row in pairs.rows:
        if "xx" in row[:2]:
            rho_with_constant.append(row[2])
    assert rho_with_constant == [None] * 4
    assert EMPTY_CELL in pairs.markdown()
    assert len(languages_table.rows) == 5
    assert agreement.outlier_sentences(agreement_with_constant) == ""


def test_the_matrix_has_every_pair_twice_and_what_noise_allows_under_the_pointer(
    rank_agreement: RankAgreement,
) -> None:
    pairs = table(rank_agreement, "agreement")
    languages_table = table(rank_agreement, "agreement-languages")
    result = agreement_result(rank_agreement)
    (heatmap,) = plotly_figure(agreement_matrix(result)).data
    languages = list(heatmap.x)
    assert languages == languages_table.column("language")
    np.testing.assert_array_equal(heatmap.z, heatmap.z.T)
    first_cells = pairs.shown_cells()[0]
    row = dict(zip(pairs.columns, first_cells, strict=True))
    row_index = languages.index(row["language"])
    column_index = languages.index(row["other"])
    pointer_text = heatmap.customdata[row_index][column_index]
    interval = f"[{row['low']}, {row['high']}]"
    for part in (
        f"ρ = {row['rho']} {interval}",
        "noise ceiling",
        f"corrected {row['corrected']}",
    ):
        assert part in pointer_text
    matrix = agreement_matrix(result, similar=False)
    (heatmap,) = plotly_figure(matrix).data
    assert list(heatmap.x) == list(NAMES)


def test_the_dendrogram_joins_what_the_table_merges(rank_agreement: RankAgreement) -> None:
    languages_table = table(rank_agreement, "agreement-languages")
    merges = table(rank_agreement, "agreement-clusters")
    result = agreement_result(rank_agreement)
    chart = dendrogram(result.merges.rows, result.languages.rows)
    figure = plotly_figure(chart)
    heights = [max(line.x) for line in figure.data]
    assert heights == merges.column("1 − rho")
    tick_texts = list(figure.layout.yaxis.ticktext)
    assert tick_texts == languages_table.column("language")
    sizes = merges.column("size")
    for line, size in zip(figure.data, sizes, strict=True):
        assert min(line.x) == 0 or size == len(NAMES)


def test_the_experiment_is_of_stored_scores_and_costs_nothing_twice(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())

    def new_pieces() -> Pieces:
        return Pieces(
            model,
            tiny_task(),
            Store(tmp_path),
            dev_size=12,
        )

    rng = np.random.default_rng(7)
    planted_values = []
    for language in ("xx", "yy"):
        halves = rng.normal(size=(2, 12))
        scores = plant_scores(
            new_pieces(),
            language,
            halves.mean(axis=0),
            halves=halves,
        )
        planted_values.append(scores.values)
    report = run_experiment("agreement", new_pieces())
    assert report.example_forwards == 0
    (rho,) = report.table("agreement").column("rho")
    correlations = stats.spearman(np.stack(planted_values))
    expected_rho = correlations[0, 1]
    assert rho == pytest.approx(expected_rho)
    assert forecast("agreement", new_pieces()).forwards == 0
    pieces_without_store = Pieces(model, tiny_task(), None, dev_size=12)
    missing = missing_pieces("agreement", pieces_without_store)
    forwards = sum(ask.forwards for ask in missing)
    assert forwards > 0
    assert {ask.method for ask in missing} == {"shapley"}
