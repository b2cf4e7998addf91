"""Agreement between languages as tables and figures: the same numbers as the statistics, and open where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.planted_scores import plant
from support.synthetic_scores import scores_of
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab import stats
from headlab.charts.studies.agreement import agreement_matrix, dendrogram
from headlab.core import EMPTY_CELL, Table
from headlab.methods import sampling
from headlab.plots.drawing import plotly_figure
from headlab.results import HeadScores, Store
from headlab.studies import agreement
from headlab.studies.agreement import RankAgreement, agreement_result, rank_agreement_of
from headlab.studies.run import Pieces, forecast, missing_pieces, run_experiment

NAMES = ("de", "en", "fi", "zh")


def languages(
    rng: np.random.Generator, noise: float = 0.2, heads: int = 60
) -> dict[str, HeadScores]:
    """Four languages, two pairs alike; each half of the examples has noise of its own."""
    one, other = rng.normal(size=(2, heads))
    out = {}
    for name, true in zip(NAMES, (one, other, one, other), strict=True):
        halves = true + 0.2 * rng.normal(size=heads) + noise * rng.normal(size=(2, heads))
        out[name] = scores_of(name, halves.mean(axis=0), halves=halves / 100)
    return out


@pytest.fixture(scope="module")
def compared() -> RankAgreement:
    return rank_agreement_of(languages(np.random.default_rng(0)))


def tables_of(compared: RankAgreement) -> tuple[Table, ...]:
    return agreement_result(compared).tables()


def table(compared: RankAgreement, name: str) -> Table:
    return next(t for t in tables_of(compared) if t.name == name)


def test_every_pair_stands_once_with_the_figures_of_the_statistics(compared: RankAgreement) -> None:
    pairs = table(compared, "agreement")
    assert len(pairs.rows) == 6
    at = {name: i for i, name in enumerate(NAMES)}
    noise = compared.found.noise
    assert noise is not None
    for row in pairs.rows:
        cell = dict(zip(pairs.columns, row, strict=True))
        place = (at[str(row[0])], at[str(row[1])])
        assert [cell[name] for name in ("rho", "low", "high")] == [
            part[place] for part in compared.found.rho
        ]
        assert cell["ceiling"] == noise.ceiling.value[place]
        assert cell["corrected"] == noise.corrected.value[place]
        assert cell["across halves"] == noise.across.value[place]
        assert cell["noise"] == ""


def test_the_same_scores_and_seed_give_the_same_tables_and_another_seed_other_intervals() -> None:
    scores = languages(np.random.default_rng(1))
    first, again, other = (tables_of(rank_agreement_of(scores, seed))[0] for seed in (0, 0, 1))
    assert first == again
    assert first.column("rho") == other.column("rho")
    assert first.column("low") != other.column("low")


def test_languages_stand_in_the_order_of_the_tree(compared: RankAgreement) -> None:
    each = table(compared, "agreement-languages")
    merges = table(compared, "agreement-clusters")
    names = each.column("language")
    assert {frozenset(names[:2]), frozenset(names[2:])} == {
        frozenset({"de", "fi"}),
        frozenset({"en", "zh"}),
    }
    assert [NAMES[number] for number in each.column("number")] == names
    assert [row.split(", ") for row in merges.column("languages")][-1] == names
    assert merges.column("size") == [2, 2, 4]
    assert sum(each.column("outlier, %")) == pytest.approx(100)


def test_scores_without_halves_say_that_the_ceiling_is_unknown_and_how_to_get_it() -> None:
    scores = {
        name: scores_of(name, s.values * 100)
        for name, s in languages(np.random.default_rng(2)).items()
    }
    pairs = tables_of(rank_agreement_of(scores))[0]
    assert pairs.column("noise") == [agreement.UNKNOWN] * 6
    assert pairs.column("ceiling") == [None] * 6
    assert "compute them again" in " ".join(pairs.notes)


def test_one_language_without_halves_leaves_the_others_their_ceiling() -> None:
    scores = languages(np.random.default_rng(3))
    scores["zh"] = scores_of("zh", scores["zh"].values * 100)
    pairs = tables_of(rank_agreement_of(scores))[0]
    known = [agreement.UNKNOWN if "zh" in row[:2] else "" for row in pairs.rows]
    assert pairs.column("noise") == known
    assert "the scores of zh do not store" in " ".join(pairs.notes)


def test_languages_with_unequally_many_examples_have_no_value_across_halves() -> None:
    scores = languages(np.random.default_rng(3))
    sized = {
        name: replace(s, spec={"task": {"size": 60 if name == "zh" else 100}})
        for name, s in scores.items()
    }
    found = rank_agreement_of(sized)
    plain = rank_agreement_of(scores)
    pairs = tables_of(found)[0]
    others = tables_of(plain)[0]
    at = pairs.columns.index("across halves")
    for row, other in zip(pairs.rows, others.rows, strict=True):
        want = other[at] if "zh" not in row[:2] else None
        assert row == (*other[:at], want, *other[at + 1 :])
        assert other[at] is not None
    assert EMPTY_CELL in pairs.shown()[2][at]  # de and zh
    assert "de 100, en 100, fi 100, zh 60" in " ".join(pairs.notes)
    assert not any("unequally" in note for note in others.notes)
    assert plain.found.noise is not None
    assert plain.found.noise.outlier is not None
    assert found.found.noise is not None
    assert found.found.noise.outlier is None
    assert "unequally many examples" in agreement.outlier_sentences(found)


def test_noise_that_unequally_many_examples_share_would_count_across_halves() -> None:
    """What the rule is for: with other sizes the halves of a draw are other ones, so its noise is in both."""
    rng = np.random.default_rng(8)
    drawn = 1000
    heads = 2000
    # of coalitions that both languages draw; nothing of the heads' own
    gains = rng.normal(size=(drawn, heads))
    late = {
        size: np.array([sampling.cycled_example(0, n, size) for n in range(drawn)]) * 2 >= size
        for size in (100, 99)
    }
    halves = {
        size: np.stack([gains[~half].mean(axis=0), gains[half].mean(axis=0)])
        for size, half in late.items()
    }
    cross = {
        size: stats.spearman(np.stack([halves[100][0], halves[size][1]]))[0, 1] for size in late
    }
    assert abs(cross[100]) < 0.1 < 0.4 < cross[99]  # half of all draws, where none should be


def test_a_ceiling_that_is_too_low_leaves_the_correction_out() -> None:
    pairs = tables_of(rank_agreement_of(languages(np.random.default_rng(4), noise=6.0)))[0]
    assert set(pairs.column("noise")) == {agreement.UNCLEAR}
    assert set(pairs.column("corrected")) == {None}
    assert None not in pairs.column("ceiling")


def test_the_outlier_is_said_with_how_sure_it_is() -> None:
    rng = np.random.default_rng(5)
    shared = rng.normal(size=80)
    scores = {name: scores_of(name, shared + 0.3 * rng.normal(size=80)) for name in NAMES}
    vague = agreement.outlier_sentences(rank_agreement_of(scores))
    assert "not settled" in vague
    scores["fi"] = scores_of("fi", rng.normal(size=80))
    sure = agreement.outlier_sentences(rank_agreement_of(scores))
    assert sure.startswith("By mean ρ, fi agrees least with the others")
    assert "not settled" not in sure
    assert agreement.outlier_sentences(rank_agreement_of({n: scores[n] for n in NAMES[:2]})) == ""


def test_a_language_without_differences_is_a_row_of_nothing() -> None:
    scores = languages(np.random.default_rng(6)) | {"xx": scores_of("xx", np.zeros(60))}
    found = rank_agreement_of(scores)
    pairs, each, *_ = tables_of(found)
    assert [row[2] for row in pairs.rows if "xx" in row[:2]] == [None] * 4
    assert EMPTY_CELL in pairs.markdown()
    assert len(each.rows) == 5
    assert agreement.outlier_sentences(found) == ""


def test_the_matrix_has_every_pair_twice_and_what_noise_allows_under_the_pointer(
    compared: RankAgreement,
) -> None:
    pairs = table(compared, "agreement")
    each = table(compared, "agreement-languages")
    result = agreement_result(compared)
    (heat,) = plotly_figure(agreement_matrix(result)).data
    assert list(heat.x) == each.column("language")
    np.testing.assert_array_equal(heat.z, heat.z.T)
    row = dict(zip(pairs.columns, pairs.shown()[0], strict=True))
    a = list(heat.x).index(row["language"])
    b = list(heat.x).index(row["other"])
    words = heat.customdata[a][b]
    for part in (
        f"ρ = {row['rho']} [{row['low']}, {row['high']}]",
        "noise ceiling",
        f"corrected {row['corrected']}",
    ):
        assert part in words
    (heat,) = plotly_figure(agreement_matrix(result, similar=False)).data
    assert list(heat.x) == list(NAMES)


def test_the_dendrogram_joins_what_the_table_merges(compared: RankAgreement) -> None:
    each = table(compared, "agreement-languages")
    merges = table(compared, "agreement-clusters")
    result = agreement_result(compared)
    figure = plotly_figure(dendrogram(result.merges.rows, result.languages.rows))
    assert [max(line.x) for line in figure.data] == merges.column("1 − rho")
    assert list(figure.layout.yaxis.ticktext) == each.column("language")
    for line, size in zip(figure.data, merges.column("size"), strict=True):
        assert min(line.x) == 0 or size == len(NAMES)


def test_the_experiment_is_of_stored_scores_and_costs_nothing_twice(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    make = lambda: Pieces(model, tiny_task(), Store(tmp_path), dev_size=12)  # noqa: E731 - pieces anew, store alike
    rng = np.random.default_rng(7)
    planted = {}
    for language in ("xx", "yy"):
        halves = rng.normal(size=(2, 12))
        planted[language] = plant(make(), language, halves.mean(axis=0), halves=halves)
    report = run_experiment("agreement", make())
    assert report.example_forwards == 0
    (rho,) = report.table("agreement").column("rho")
    assert rho == pytest.approx(
        stats.spearman(np.stack([s.values for s in planted.values()]))[0, 1]
    )
    assert forecast("agreement", make()).forwards == 0
    missing = missing_pieces("agreement", Pieces(model, tiny_task(), None, dev_size=12))
    assert sum(ask.forwards for ask in missing) > 0
    assert {ask.method for ask in missing} == {"shapley"}
