"""Whether methods agree and which to trust.

Tables are compared with slow counts, and verdicts with curves of which the best is known.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import reference
from support.expected_errors import raises
from support.falling_curves import expected_area, falling_curve
from support.planted_scores import plant_scores
from support.synthetic_scores import scores_of
from support.table_rows import rows_where
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab import plots
from headlab.core import Report, Table
from headlab.results import Store
from headlab.stats import expected_overlap, overlap_p_value
from headlab.studies import methods
from headlab.studies.iterative import (
    AreaPair,
    GroupedCurves,
    area_cells,
    grouped_by_number,
    orders_of,
    pairs_of,
)
from headlab.studies.methods import (
    MEAN,
    BestMethod,
    MethodAgreement,
    MethodVerdict,
    Overlap,
    Scores,
    agreement_records,
    area_differences,
    best_method,
    joined_names,
    level_of,
    mean_rho,
    named_pairs,
    overlap_records,
    trust_words,
    verdict_records,
)
from headlab.studies.result import table_of
from headlab.studies.run import Pieces, forecast, run_experiment
from headlab.studies.table import STUDIES

OPTIONS: dict[str, Any] = {
    "methods": "shapley,gradient,confidence",
    "points": 5,
    "runs": 3,
    "top": 4,
}
NAMES = ("shapley", "gradient", "confidence")


def overlap_table(scores: Scores, k: int) -> Table:
    return table_of(overlap_records(scores, k), Overlap, "methods-overlap")


def verdict_table(verdicts: dict[str, MethodVerdict], level: float) -> Table:
    return table_of(verdict_records(verdicts, level), BestMethod, "methods-verdict")


def agreement_table(scores: Scores, seed: int) -> Table:
    return table_of(agreement_records(scores, seed), MethodAgreement, "methods-agreement")


@pytest.fixture(scope="module")
def report_and_pieces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Pieces]:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    store = Store(tmp_path_factory.mktemp("store"))
    pieces = Pieces(model, tiny_task(), store, dev_size=10, test_size=12)
    rng = np.random.default_rng(0)
    for language in pieces.languages:
        halves = rng.normal(0, 0.2, (2, 12))
        plant_scores(pieces, language, halves.mean(axis=0), halves=halves)
    expected_forwards = forecast("methods", pieces, OPTIONS).forwards
    report = run_experiment("methods", pieces, options=OPTIONS)
    curve_forwards = (3 + 3) * 5 * 12
    score_forwards = 2 * 10
    assert expected_forwards == 2 * (curve_forwards + score_forwards)
    assert report.example_forwards == expected_forwards
    return report, pieces


def curves_of_language(
    rng: np.random.Generator, chances: dict[str, float], runs: int = 2
) -> GroupedCurves:
    """Curves by method, beside random orders that fall early."""
    curves = {}
    for name, chance in chances.items():
        curves[name] = [falling_curve(rng, name, chance)]
    random_curves = [falling_curve(rng, "random", 0.2) for _ in range(runs)]
    return grouped_by_number({"random": random_curves, **curves})


# The report


def test_the_report_has_every_pair_of_methods_and_every_language(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    report, _ = report_and_pieces
    languages = ["xx"] * 3 + ["yy"] * 3 + [MEAN] * 3
    assert report.table("methods-agreement").column("language") == languages
    overlap = report.table("methods-overlap")
    verdict_languages = report.table("methods-verdict").column("language")
    differences = report.table("methods-differences")
    curves = report.table("methods-curves")
    areas = report.table("methods-areas")
    assert len(overlap.rows) == 2 * 3 * 2
    assert verdict_languages == ["xx", "yy", MEAN]
    assert len(differences.rows) == 3 * (3 + 3)
    assert len(curves.rows) == 2 * 4 * 5
    assert len(areas.rows) == 3 * 4
    verdict = "The data do not show which score to trust for this model: over 2 languages"
    assert report.notes[0].startswith(verdict)
    assert Report.from_json(report.to_json()) == report


def test_the_curves_are_those_of_the_pieces_and_the_mean_weighs_languages_alike(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    report, pieces = report_and_pieces
    areas = {}
    for language in pieces.languages:
        scores = pieces.scores(language, "shapley")
        areas[language] = pieces.curve(language, scores, 5).area
    areas[MEAN] = np.mean(list(areas.values()))
    table = report.table("methods-areas")
    for language, area in areas.items():
        (row,) = rows_where(table, language=language, ordering="shapley")
        assert row["area, %"] == pytest.approx(100 * area)
        assert row["low, %"] <= row["area, %"] <= row["high, %"]
    (mean_row,) = rows_where(table, language=MEAN, ordering="shapley")
    assert mean_row["heads"] is None


def test_a_warm_run_costs_nothing(report_and_pieces: tuple[Report, Pieces]) -> None:
    report, pieces = report_and_pieces
    pieces_anew = Pieces(pieces.model, tiny_task(), pieces.store, dev_size=10, test_size=12)
    # another report of the same pieces
    other_report = run_experiment("methods", pieces_anew, options=OPTIONS | {"top": 3})
    assert pieces_anew.forwards == other_report.example_forwards == 0
    assert other_report.table("methods-curves") == report.table("methods-curves")


def test_one_language_has_no_mean(report_and_pieces: tuple[Report, Pieces]) -> None:
    _, pieces_of_both = report_and_pieces
    task = tiny_task().with_languages(["xx"])
    pieces = Pieces(pieces_of_both.model, task, pieces_of_both.store, dev_size=10, test_size=12)
    report = run_experiment("methods", pieces, options=OPTIONS)
    assert report.example_forwards == 0
    assert report.table("methods-verdict").column("language") == ["xx"]
    assert MEAN not in report.table("methods-agreement").column("language")
    assert " in xx " in report.notes[0]
    assert f"methods-agreement-{MEAN}" not in plots.report_figures(report)


def test_one_method_is_too_few_and_unknown_ones_are_refused(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    _, pieces = report_and_pieces
    with raises("experiment.list_too_short", "methods", "shapley", 2):
        forecast("methods", pieces, {"methods": "shapley, shapley"})
    with raises("experiment.list_item_unknown", "methods", "size", "monte-carlo, shapley"):
        run_experiment("methods", pieces, options={"methods": "shapley,size"})
    with raises("experiment.list_item_unknown", "methods", "random"):
        STUDIES["methods"].resolve({"methods": "random,shapley"})


def test_relevance_can_be_chosen_and_is_off_by_default() -> None:
    methods_study = STUDIES["methods"]
    defaults = methods_study.resolve({})
    assert "relevance" not in defaults["methods"]
    options = methods_study.resolve({"methods": "relevance,gradient-token"})
    assert options["methods"] == "relevance,gradient-token"
    plan = methods.plan_of(("gradient-token", "relevance"), defaults, 3)
    assert plan == {
        "gradient-token": [("gradient", 3, {"form": "token"})],
        "relevance": [("relevance", 3, {})],
    }


def test_the_groups_of_an_aligned_task_have_their_names(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    _, pieces = report_and_pieces
    curve = pieces.curve("xx", pieces.scores("xx", "shapley"), 5)
    group_names = pieces.group_names("xx", curve.groups, "test")
    examples = pieces.examples("xx", "test")
    groups_of_examples = [example.group for example in examples]
    assert group_names == tuple(groups_of_examples)


def test_texts_of_an_aligned_task_are_drawn_together(rng: np.random.Generator) -> None:
    """Two languages with the same answers, drawn apart, would seem to be more evidence than one."""
    languages = [curves_of_language(rng, {"shapley": 0.5})] * 2
    area, low, high = area_cells(languages, "shapley", 0, are_aligned=True)
    area_apart, low_apart, high_apart = area_cells(languages, "shapley", 0, are_aligned=False)
    assert area == pytest.approx(area_apart)
    assert high - low > 1.2 * (high_apart - low_apart)


def test_only_the_mean_of_an_aligned_task_is_of_texts_drawn_together(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    _, pieces = report_and_pieces
    names = ("shapley", "gradient")
    options = STUDIES["methods"].resolve(OPTIONS)
    plan = methods.plan_of(("random", *names), options, 0)
    curves_by_method = orders_of(pieces, "xx", plan, 5, lambda _: None, "")
    aligned_task = replace(tiny_task(), aligned=True)
    aligned_pieces = Pieces(pieces.model, aligned_task, None, dev_size=10, test_size=12)
    orders = {"xx": curves_by_method, "yy": curves_by_method}
    differences = methods.judge(aligned_pieces, orders, names, 1.0).differences
    curves = {}
    for name, scored_curves in curves_by_method.items():
        curves[name] = [scored_curve.curve for scored_curve in scored_curves]
    numbers = curves["shapley"][0].groups
    languages = []
    for language in ("xx", "yy"):
        groups = aligned_pieces.group_names(language, numbers, "test")
        languages.append(GroupedCurves(curves, groups))

    def reported(language: str) -> list[tuple[Any, ...]]:
        cells = []
        for row in differences.rows:
            if row.language == language:
                cells.append(astuple(row)[1:7])
        return cells

    def cells_of(pairs: list[AreaPair]) -> list[tuple[Any, ...]]:
        return [tuple(pair[:6]) for pair in pairs]

    drawn_together = cells_of(area_differences(languages, names, 0, are_aligned=True))
    drawn_apart = cells_of(area_differences(languages, names, 0, are_aligned=False))
    assert reported(MEAN) == drawn_together != drawn_apart
    curves_by_number = grouped_by_number(curves)
    in_one_language = cells_of(area_differences([curves_by_number], names, 0))
    assert reported("xx") == in_one_language


# Agreement


def test_correlations_are_those_of_the_scores_with_a_ceiling_where_there_are_halves(
    rng: np.random.Generator,
) -> None:
    true = rng.normal(size=24)
    halves = true + 0.1 * rng.normal(size=(2, 24))
    swapped_halves = halves[::-1]
    left_out_scores = scores_of("xx", true, halves=swapped_halves / 100)
    gradient_scores = scores_of("xx", np.abs(true))
    scores_by_method = {
        "shapley": scores_of("xx", halves.mean(axis=0), halves=halves / 100),
        "leave-one-out": replace(left_out_scores, method="leave-one-out"),
        "gradient": replace(gradient_scores, method="gradient", signed=False),
    }
    table = agreement_table({"xx": scores_by_method}, 0)
    pairs = []
    for row in rows_where(table):
        pairs.append((row["method"], row["other"]))
    assert pairs == list(combinations(scores_by_method, 2))
    for row in rows_where(table):
        first_values = scores_by_method[row["method"]].values
        second_values = scores_by_method[row["other"]].values
        rho = reference.spearman(first_values, second_values)
        assert row["rho"] == pytest.approx(rho)
        has_no_halves = "gradient" in (row["method"], row["other"])
        assert (row["ceiling"] is None) == has_no_halves
    notes = " ".join(table.notes)
    assert "No ceiling where one is gradient:" in notes
    assert "gradient: without a sign" in notes


def test_the_mean_correlation_and_its_interval_resample_heads_for_all_languages_at_once(
    rng: np.random.Generator,
) -> None:
    heads = 15
    draws = 200
    pairs = []
    for _ in range(2):
        pairs.append(list(rng.normal(size=(2, heads))))
    scores = {}
    for language, (shapley_values, gradient_values) in zip(("xx", "yy"), pairs, strict=True):
        scores[language] = {
            "shapley": scores_of(language, shapley_values),
            "gradient": scores_of(language, gradient_values),
        }
    correlation = mean_rho(scores, 7, draws)
    counts = np.random.default_rng([7, 5]).multinomial(
        heads,
        np.full(heads, 1 / heads),
        size=draws,
    )
    resampled_correlations = []
    for head_counts in counts:
        resampled_heads = np.repeat(np.arange(heads), head_counts)
        resampled = reference.mean_correlation(pairs, resampled_heads.tolist())
        resampled_correlations.append(resampled)
    correlations_without_head = []
    for left_out_head in range(heads):
        other_heads = [head for head in range(heads) if head != left_out_head]
        without_head = reference.mean_correlation(pairs, other_heads)
        correlations_without_head.append(without_head)
    point = reference.mean_correlation(pairs, list(range(heads)))
    low, high = reference.bca(
        point, np.array(resampled_correlations), np.array(correlations_without_head)
    )
    assert correlation.value[0, 1] == pytest.approx(point, abs=1e-9)
    assert correlation.low[0, 1] == pytest.approx(low, abs=1e-9)
    assert correlation.high[0, 1] == pytest.approx(high, abs=1e-9)
    of_default_draws = mean_rho(scores, 7)
    mean_row = agreement_table(scores, 7).rows[-1]
    assert mean_row[:3] == (MEAN, "shapley", "gradient")
    assert mean_row[3] == of_default_draws.value[0, 1]
    assert mean_row[4] == of_default_draws.low[0, 1]
    assert mean_row[5] == of_default_draws.high[0, 1]


def test_the_interval_of_the_mean_correlation_covers_it(rng: np.random.Generator) -> None:
    """Normal scores of correlation r have the rank correlation 6 / pi asin(r / 2).

    Both languages share one of the two scores.
    """
    rank_correlations = []
    for r in (0.8, 0.4):
        rank_correlations.append(6 / np.pi * np.arcsin(r / 2))
    truth = np.mean(rank_correlations)
    missed_count = 0
    for seed in range(60):
        base_values = rng.normal(size=50)
        noise = rng.normal(size=(2, 50))
        scores = {}
        for language, r, language_noise in (("xx", 0.8, noise[0]), ("yy", 0.4, noise[1])):
            own_share = np.sqrt(1 - r * r) * language_noise
            correlated_values = r * base_values + own_share
            scores[language] = {
                "a": scores_of(language, base_values),
                "b": scores_of(language, correlated_values),
            }
        correlation = mean_rho(scores, seed, 400)
        low = correlation.low[0, 1]
        high = correlation.high[0, 1]
        missed_count += not low <= truth <= high
    assert missed_count <= 9  # 3 are expected; chance exceeds 9 less than once in 1,000


def test_scores_without_differences_correlate_with_nothing() -> None:
    scores_by_method = {
        "shapley": scores_of("xx", np.arange(12)),
        "confidence": scores_of("xx", np.zeros(12)),
    }
    table = agreement_table({"xx": scores_by_method, "yy": scores_by_method}, 0)
    assert table.column("rho") == [None] * 3


# Heads that two methods share


def test_shared_heads_are_counted_at_both_ends_beside_all_choices() -> None:
    first_values = np.arange(12)
    second_values = np.array([0, 2, 1, 3, 4, 5, 6, 7, 11, 10, 8, 9])
    scores_by_method = {
        "shapley": scores_of("xx", first_values),
        "gradient": scores_of("xx", second_values),
    }
    scores = {"xx": scores_by_method}
    highest, lowest = rows_where(overlap_table(scores, 3))
    assert highest["heads"] == "highest"
    assert highest["shared"] == 2  # 9 and 11
    assert lowest["heads"] == "lowest"
    assert lowest["shared"] == 3
    probabilities = np.array(reference.shared_by_chance(12, 3, 3))
    expected_count = np.arange(len(probabilities)) @ probabilities
    for row in (highest, lowest):
        p_value = probabilities[row["shared"] :].sum()
        assert row["p"] == pytest.approx(p_value)
        assert row["by chance"] == pytest.approx(expected_count)
    assert highest["p (Holm)"] >= highest["p"]
    overlap_of_all_heads = overlap_table(scores, 20)  # more than there are heads
    assert overlap_of_all_heads.column("shared") == [12, 12]
    assert overlap_of_all_heads.column("p") == [1.0, 1.0]


@pytest.mark.parametrize(
    ("heads", "first_size", "second_size"),
    [(12, 3, 3), (10, 4, 7), (9, 0, 5), (8, 8, 3), (7, 2, 0)],
)
def test_chance_is_that_of_all_choices(heads: int, first_size: int, second_size: int) -> None:
    shared_shares = reference.shared_by_chance(heads, first_size, second_size)
    overlap = expected_overlap(heads, first_size, second_size)
    expected_mean = np.arange(len(shared_shares)) @ shared_shares
    assert overlap.mean == pytest.approx(expected_mean)
    first_above = overlap.high + 1
    share_below = sum(shared_shares[: overlap.low])
    share_inside = sum(shared_shares[overlap.low : first_above])
    share_above = sum(shared_shares[first_above:])
    assert share_inside >= 0.95 - 1e-12
    assert share_below <= 0.025 + 1e-12
    assert share_above <= 0.025 + 1e-12
    for shared_heads in range(len(shared_shares)):
        p_value = overlap_p_value(heads, first_size, second_size, shared_heads)
        as_many_or_more = sum(shared_shares[shared_heads:])
        assert p_value == pytest.approx(as_many_or_more, abs=1e-12)


# The verdict


def test_every_pair_is_compared_once_at_a_level_that_holds_for_all() -> None:
    pairs = named_pairs(NAMES)
    unordered_pairs = {frozenset(pair) for pair in pairs}
    assert len(pairs) == 4 * 3 / 2
    assert len(unordered_pairs) == len(pairs)
    error_of_one = 1 - level_of(NAMES)
    assert 6 * error_of_one == pytest.approx(0.05)


def test_the_mean_over_languages_is_paired_answer_by_answer(rng: np.random.Generator) -> None:
    chances = {"shapley": 0.8, "gradient": 0.6}
    languages = [curves_of_language(rng, chances) for _ in range(2)]
    names = [("shapley", "gradient"), ("shapley", "random")]
    gradient_pair, random_pair = pairs_of(languages, names, 0)

    def area(curve: Any) -> float:
        removed = list(curve.removed)
        areas = []
        for is_right in curve.correct.T:
            areas.append(reference.area(list(is_right), removed))
        return float(np.mean(areas))

    areas = {}  # [language, run]
    for name in languages[0].curves:
        areas_by_language = []
        for language_curves in languages:
            curves = language_curves.curves[name]
            areas_by_language.append([area(curve) for curve in curves])
        areas[name] = np.array(areas_by_language)
    shapley_area = areas["shapley"].mean()
    gradient_difference = shapley_area - areas["gradient"].mean()
    random_difference = shapley_area - areas["random"].mean()
    assert gradient_pair.difference == pytest.approx(100 * gradient_difference)
    assert random_pair.difference == pytest.approx(100 * random_difference)
    areas_of_random_orders = areas["random"].mean(axis=0)
    assert random_pair.random_orders_below == (areas_of_random_orders < shapley_area).sum()
    assert gradient_pair.random_orders_below is None
    in_one_language = pairs_of(languages[:1], names[:1], 0)
    in_one_aligned_language = pairs_of(languages[:1], names[:1], 0, are_aligned=True)
    assert in_one_aligned_language == in_one_language


def test_a_method_that_is_far_ahead_is_to_be_trusted(rng: np.random.Generator) -> None:
    chances = {"shapley": 0.4, "gradient": 0.9, "confidence": 0.4}
    language_curves = [curves_of_language(rng, chances)]
    differences = area_differences(language_curves, list(chances), 0)
    verdict = best_method(language_curves, list(chances), differences)
    assert verdict.best == "gradient"
    assert verdict.is_settled is True
    assert verdict.beats_chance is True
    assert verdict.peers == ()
    assert verdict.orders == 2
    assert verdict.minus_next[1] > 0
    assert verdict.minus_next[0] == pytest.approx(
        verdict.areas["gradient"] - verdict.areas[verdict.following]
    )
    words = trust_words({"xx": verdict})
    assert words.startswith("For this model, trust gradient: in xx gradient has the largest area")
    points, low, high = verdict.minus_next
    interval = f"{points:+.1f} points [{low:+.1f}, {high:+.1f}]"
    assert f"{interval} against the next, {verdict.following}" in words
    assert "(2 of 2 lie below it)" in words


def test_methods_that_are_alike_leave_it_open_and_are_named(rng: np.random.Generator) -> None:
    chances = {"shapley": 0.7, "gradient": 0.7, "confidence": 0.1}
    language_curves = [curves_of_language(rng, chances)]
    differences = area_differences(language_curves, list(chances), 0)
    verdict = best_method(language_curves, list(chances), differences)
    assert verdict.best in ("shapley", "gradient")
    assert verdict.peers == (verdict.following,)
    assert verdict.is_settled is False
    assert verdict.beats_chance is True
    words = trust_words({"xx": verdict})
    assert "The data do not show which score to trust" in words
    assert f"but the interval of the difference to {verdict.following} holds 0." in words


def test_methods_no_better_than_chance_are_not_to_be_trusted(rng: np.random.Generator) -> None:
    names = ["shapley", "gradient"]
    language_curves = [curves_of_language(rng, {"shapley": 0.2, "gradient": 0.1})]
    differences = area_differences(language_curves, names, 0)
    verdict = best_method(language_curves, names, differences)
    assert not verdict.beats_chance
    assert not verdict.is_settled
    assert "so not even chance is ruled out." in trust_words({"xx": verdict})


def test_a_third_method_that_is_not_distinguished_from_the_best_leaves_it_open() -> None:
    """The next method may be significantly worse, and another, whose answers differ more, not."""
    differences_of_gradient = {
        "shapley": (1.0, 0.5, 1.5),
        "confidence": (2.0, -1.0, 5.0),
    }
    differences_to_random = {
        "gradient": (9.0, 5.0, 12.0),
        "shapley": (1.0, -1.0, 3.0),
        "confidence": (-3.0, -5.0, -1.0),
    }
    random_pairs = [
        AreaPair(method, "random", *interval, 0.01, 1)
        for method, interval in differences_to_random.items()
    ]
    gradient_pairs = [
        AreaPair("gradient", method, *interval, 0.01, None)
        for method, interval in differences_of_gradient.items()
    ]
    late_groups = {"gradient": 8, "shapley": 7, "confidence": 6}  # of 9 groups, those that fall
    names = list(late_groups)
    rng = np.random.default_rng(0)
    curves = {}
    for name, late_count in late_groups.items():
        group_falls = np.arange(30) % 9 < late_count
        curves[name] = [falling_curve(rng, name, 0, group_falls)]
    random_curve = falling_curve(rng, "random", 0.1)
    language_curves = [grouped_by_number({"random": [random_curve], **curves})]
    verdict = best_method(language_curves, names, random_pairs + gradient_pairs)
    assert verdict.best == "gradient"
    assert verdict.following == "shapley"
    assert verdict.minus_next == differences_of_gradient["shapley"]
    assert verdict.peers == ("confidence",)
    assert not verdict.is_settled
    ending = "holds 0. Significantly worse than random orders: confidence."
    assert trust_words({"xx": verdict}).endswith(ending)
    turned_pairs = []
    for pair in gradient_pairs:
        interval = (-pair.difference, -pair.high, -pair.low)
        turned_pair = AreaPair(pair.other, pair.ordering, *interval, pair.p, None)
        turned_pairs.append(turned_pair)
    assert best_method(language_curves, names, random_pairs + turned_pairs) == verdict


def test_the_sentence_is_of_the_mean_and_counts_the_languages_that_agree() -> None:
    settled_verdict = MethodVerdict(
        "shapley",
        "gradient",
        {"shapley": 50.0},
        (2.0, 1.0, 3.0),
        (9.0, 8.0, 10.0),
        5,
        5,
        (),
    )
    open_verdict = settled_verdict._replace(
        minus_next=(0.5, -1.0, 2.0), peers=("gradient", "confidence")
    )
    words = trust_words(
        {
            "xx": settled_verdict,
            "yy": open_verdict,
            MEAN: settled_verdict,
        }
    )
    beginning = "For this model, trust shapley: over 2 languages shapley has the largest area"
    ending = "In 1 of 2 languages, each tested alone, shapley is significantly the best."
    assert words.startswith(beginning)
    assert words.endswith(ending)
    table_of_open_verdict = verdict_table({"yy": open_verdict}, 0.995)
    (row,) = rows_where(table_of_open_verdict)
    assert row["not told from it"] == "gradient, confidence"
    assert row["settled"] is False
    assert row["minus next, points"] == 0.5
    assert joined_names(["a"]) == "a"
    assert joined_names(["a", "b"]) == "a and b"
    assert joined_names(["a", "b", "c"]) == "a, b and c"


def test_intervals_of_all_pairs_cover_together_and_equal_methods_are_seldom_settled() -> None:
    rng = np.random.default_rng(4)
    chances = {"shapley": 0.6, "gradient": 0.6, "confidence": 0.6}
    difference_to_random = 100 * (expected_area(0.6) - expected_area(0.2))
    missed_count = 0
    settled_count = 0
    for seed in range(60):
        language_curves = [curves_of_language(rng, chances)]
        pairs = area_differences(language_curves, list(chances), seed)
        are_covered = []
        for pair in pairs:
            difference = difference_to_random if pair.other == "random" else 0.0
            are_covered.append(pair.low <= difference <= pair.high)
        missed_count += not all(are_covered)
        verdict = best_method(language_curves, list(chances), pairs)
        settled_count += verdict.is_settled
    assert missed_count <= 9  # 3 are expected; chance exceeds 9 less than once in 1,000
    assert settled_count <= 9


# Figures


def test_the_matrix_has_every_pair_of_methods_twice_with_its_interval_under_the_pointer(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    report, _ = report_and_pieces
    figures = plots.report_figures(report)
    table = report.table("methods-agreement")
    assert list(figures)[:3] == [
        "methods-agreement-mean",
        "methods-agreement-xx",
        "methods-agreement-yy",
    ]
    (heatmap,) = figures["methods-agreement-yy"].data
    columns = list(heatmap.x)
    rows = list(heatmap.y)
    assert columns == rows == list(NAMES)
    (row,) = rows_where(table, language="yy", method="shapley", other="confidence")
    pointer_text = heatmap.customdata[2][0]
    low = row["low"]
    high = row["high"]
    ceiling = row["ceiling"]
    assert heatmap.z[0][2] == row["rho"]
    assert heatmap.z[2][0] == row["rho"]
    assert f"[{low:.2f}, {high:.2f}]" in pointer_text
    assert f"noise ceiling {ceiling:.2f} [" in pointer_text
    assert heatmap.customdata[1][1] == "the same method"
    (mean_heatmap,) = figures["methods-agreement-mean"].data
    assert "ceiling" not in mean_heatmap.customdata[0][1]


def test_the_verdict_and_the_curves_are_drawn_from_the_tables(
    report_and_pieces: tuple[Report, Pieces],
) -> None:
    report, _ = report_and_pieces
    figures = plots.report_figures(report)
    table = report.table("methods-verdict")
    dots = {trace.name: trace for trace in figures["methods-verdict"].data}
    assert list(dots["the next method"].x) == table.column("minus next, points")
    assert list(dots["random"].x) == table.column("minus random, points")
    symbols = dots["the next method"].marker.symbol
    assert all(symbol.endswith("-open") for symbol in symbols)
    traces = figures["methods-curves-xx"].data
    lines = {trace.name: trace for trace in traces if trace.showlegend is not False}
    assert list(lines) == ["random", *NAMES]
    curve_rows = rows_where(report.table("methods-curves"), language="xx", ordering="gradient")
    accuracies = [row["accuracy, %"] for row in curve_rows]
    assert list(lines["gradient"].y) == accuracies
    for name, figure in figures.items():
        assert name.replace("-", "").isalnum()
        assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
