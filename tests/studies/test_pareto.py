"""Fronts of smaller models: orders, the choice, its confirmation, and what is claimed of it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import reference
import torch
from support.expected_errors import raises
from support.group_labels import equal_groups
from support.tiny_models import FAMILIES, tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import HeadGrid, Report, Stack
from headlab.evaluation import Evaluator, compare
from headlab.masks import mask_from_json, removal_order
from headlab.results import Curve, HeadScores, Store
from headlab.studies.pareto import (
    CONFIRMED_TABLE,
    FRONT_TABLE,
    FrontResult,
    LanguageVerdict,
    Point,
    PointTest,
    best_with_heads,
    candidate_orders,
    chosen_mask,
    counts_of,
    language_verdict,
    mask_at,
    p_of_any_loss,
    pareto,
    per_parameter,
    points_of,
    smallest_within,
    weakest_first,
)
from headlab.studies.pareto_run import sentences
from headlab.studies.run import Pieces, forecast, missing_pieces, run_experiment
from headlab.studies.savings import Costs, LayerCost
from headlab.studies.table import STUDIES

OPTIONS = {"method": "leave-one-out", "points": 4, "within": 3.0, "by": "estimate"}
EVEN_COSTS = Costs(100, (0, 1, 1), (LayerCost(0, 3, 1, 10, 1, 1), LayerCost(3, 3, 1, 10, 1, 1)))
GRID = HeadGrid((Stack("encoder", (3, 3)),))


def scores_of(values_by_language):
    scores = {}
    for language, values in values_by_language.items():
        scores[language] = HeadScores(
            GRID, language, "shapley", np.array(values, float), "e", "accuracy", 0, 0.0
        )
    return scores


def point(
    order="mean", removed_count=0, worst=0.0, mean=0.0, bound=None, kept_count=None, parameters=None
):
    kept_count = 6 - removed_count if kept_count is None else kept_count
    bound = worst - 0.02 if bound is None else bound
    differences = (worst, max(worst, 2 * mean - worst))
    return Point(
        order,
        removed_count,
        kept_count,
        parameters,
        ("xx", "yy"),
        (0.5, 0.5),
        differences,
        differences,
        differences,
        (bound, 0.0),
        mean,
        mean,
        mean,
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_front_is_what_no_other_point_beats(seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, 6, 30).astype(float)
    value = rng.integers(0, 6, 30).astype(float)
    points = list(zip(cost, value, strict=True))
    assert pareto(cost, value).tolist() == reference.is_undominated(points)


@pytest.mark.parametrize("seed", range(3))
def test_the_weakest_language_keeps_a_head_that_it_alone_needs(seed):
    scores = np.random.default_rng(seed).normal(size=(3, 6))
    expected_order = reference.leaving_by_best_rank(scores.tolist())
    assert removal_order(weakest_first(scores)).tolist() == expected_order
    alike_scores = [0.0, 9, 8, 7, 6, 5]
    scores_of_needed_head = np.array([[5.0, 1, 2, 3, 4, 6], alike_scores, alike_scores])
    order_by_mean = removal_order(scores_of_needed_head.mean(axis=0))
    order_by_weakest = removal_order(weakest_first(scores_of_needed_head))
    assert order_by_mean[0] == 0
    assert order_by_weakest[0] != 0


def test_by_cost_an_expensive_head_leaves_before_a_cheap_one_and_a_group_leaves_together():
    expensive_layer = LayerCost(0, 4, 2, 40, 1, 1)
    cheap_layer = LayerCost(4, 2, 1, 5, 1, 1)
    costs = Costs(100, (0, 1, 1), (expensive_layer, cheap_layer))
    scores_per_parameter = per_parameter(np.array([1.0, 3, 2, 2, 1, 2]), costs)
    np.testing.assert_allclose(scores_per_parameter, [0.1, 0.1, 0.1, 0.1, 0.2, 0.4])
    other_scores = per_parameter(np.array([1.0, 4, 2, 0, 1, 2]), costs)
    order = removal_order(other_scores).tolist()
    assert {*order[:2]} == {2, 3}
    assert {*order[2:4]} == {0, 1}


def test_orders_that_are_the_same_are_tried_once_and_notes_say_so():
    scores_of_xx = scores_of({"xx": range(6)})
    orders, notes = candidate_orders(["mean", "weakest", "own", "cost"], scores_of_xx, EVEN_COSTS)
    assert [order.key for order in orders] == ["mean"]
    assert notes == [
        "Order weakest is order mean here.",
        "Order own xx is order mean here.",
        "There is no order by cost: all heads of this model cost alike.",
    ]
    scores_of_both = scores_of({"xx": range(6), "yy": [5, 1, 2, 3, 4, 0]})
    candidates, notes = candidate_orders(["mean", "own"], scores_of_both, EVEN_COSTS)
    assert [order.key for order in candidates] == ["mean", "own xx", "own yy"]
    assert not notes
    for note, reason in (
        ("heads stay.", "heads stay"),
        ("", "the cost of this model's heads is unknown"),
    ):
        costs_without_layers = dataclasses.replace(EVEN_COSTS, layers=(), note=note)
        _, notes = candidate_orders(["cost"], scores_of_xx, costs_without_layers)
        assert notes == [f"There is no order by cost: {reason}."]


def test_counts_include_the_requested_number_of_heads():
    assert counts_of(12, 4, None) == [0, 4, 8, 12]
    assert counts_of(12, 4, 10) == [0, 2, 4, 8, 12]
    assert counts_of(3, 25, 1) == [0, 1, 2, 3]
    assert counts_of(3, None, None) == [0, 1, 2, 3]


def test_the_smallest_within_by_estimate_may_come_after_a_point_that_is_not_within():
    points = [
        point(removed_count=0),
        point(removed_count=1, worst=-0.03),
        point(removed_count=2, worst=-0.01),
        point(removed_count=3, worst=-0.2),
    ]
    assert smallest_within(points, 0.01, "estimate").heads_removed == 2
    assert smallest_within(points, 0.005, "estimate").heads_removed == 0


def test_by_the_bound_the_first_count_that_fails_ends_its_order():
    points = [
        point(removed_count=0, bound=0.0),
        point(removed_count=1, bound=-0.01),
        point(removed_count=2, bound=-0.02),
        point(removed_count=3, bound=-0.01),
        point("weakest", 0, bound=0.0),
        point("weakest", 1, bound=-0.005),
    ]
    smallest = smallest_within(points, 0.01, "bound")
    assert smallest.order == "mean"
    assert smallest.heads_removed == 1
    assert smallest_within(points, 0.02, "bound").heads_removed == 3
    assert smallest_within(points[4:], 0.01, "bound").heads_removed == 1


def test_parameters_decide_what_is_smallest_where_they_are_known():
    points = [
        point(removed_count=0, parameters=100),
        point(removed_count=1, parameters=60),
        point("cost", 1, parameters=50),
    ]
    assert smallest_within(points, 0.0, "estimate").order == "cost"


def test_at_k_heads_the_weakest_language_decides_and_then_the_mean():
    points = [
        point("mean", 2, worst=-0.05, mean=0.05),
        point("weakest", 2, worst=-0.01, mean=0.0),
        point("own xx", 2, worst=-0.01, mean=0.01),
        point("weakest", 3, worst=0.0, mean=0.2),
    ]
    assert best_with_heads(points, 4).order == "own xx"


def test_a_front_answers_one_question():
    assert STUDIES["front"].resolve({})["within"] == 1.0
    assert STUDIES["front"].resolve({"heads": 5})["within"] is None
    with raises("front.two_questions"):
        STUDIES["front"].resolve({"heads": 5, "within": 1.0})
    with raises("experiment.list_item_unknown", "orders", "best"):
        STUDIES["front"].resolve({"orders": "mean,best"})
    for loss in (-1.0, 200.0):
        with raises("experiment.option_invalid", "a number from 0 to 100"):
            STUDIES["front"].resolve({"within": loss})


@pytest.fixture(scope="module")
def model():
    return tiny_model("bert", torch.float32, tokenizer=tiny_tokenizer())


def pieces_of(model, store_root=None, **settings):
    store = None if store_root is None else Store(store_root)
    return Pieces(model, tiny_task(), store, dev_size=16, test_size=20, **settings)


@pytest.fixture(scope="module")
def front(model, tmp_path_factory):
    store_root = tmp_path_factory.mktemp("cache")
    return store_root, run_experiment("front", pieces_of(model, store_root), options=OPTIONS)


def test_every_point_is_what_the_evaluator_says_of_its_mask(model, front):
    _, report = front
    points = FrontResult.from_report(report).points
    counts = [front_point.heads_removed for front_point in points if front_point.order == "mean"]
    assert counts == [0, 4, 8, 12]
    points_of_weakest = [front_point for front_point in points if front_point.order == "weakest"]
    chosen = next(
        front_point for front_point in points_of_weakest if front_point.heads_removed == 4
    )
    mask = mask_at(report, "weakest", 4, model.grid)
    assert len(mask.removed) == 4
    for language_index, language in enumerate(("xx", "yy")):
        evaluator = Evaluator(model, tiny_task(), language, "dev", 16)
        comparison = compare(evaluator.evaluate(), evaluator.evaluate(mask), 0)
        difference = chosen.difference[language_index]
        low = chosen.low[language_index]
        high = chosen.high[language_index]
        accuracy = chosen.accuracy[language_index]
        np.testing.assert_allclose(accuracy, comparison.accuracy, atol=1e-12)
        np.testing.assert_allclose(difference, comparison.difference, atol=1e-12)
        np.testing.assert_allclose(low, comparison.low, atol=1e-12)
        np.testing.assert_allclose(high, comparison.high, atol=1e-12)
        assert low <= chosen.bound[language_index] <= difference or difference == 0
    assert chosen.worst == min(chosen.difference)
    assert chosen.weakest == ("xx", "yy")[np.argmin(chosen.difference)]
    np.testing.assert_allclose(chosen.mean, np.mean(chosen.difference), atol=1e-12)
    table = report.table(FRONT_TABLE)
    parameters = [float(cell) for cell in table.column("parameters")]
    weakest_gains = table.column("weakest, points")
    expected = reference.is_undominated(list(zip(parameters, weakest_gains, strict=True)))
    assert table.column("best for its size") == expected


def test_the_answer_is_judged_on_test_and_the_mask_holds_its_figures_there(model, front):
    report = front[1]
    mask = chosen_mask(report, model.grid)
    confirmed_table = report.table(CONFIRMED_TABLE)
    for language_index, language in enumerate(("xx", "yy")):
        evaluator = Evaluator(model, tiny_task(), language, "test", 20)
        comparison = compare(evaluator.evaluate(), evaluator.evaluate(mask), 0)
        assert confirmed_table.column("difference, points")[language_index] == pytest.approx(
            100 * comparison.difference
        )
        assert confirmed_table.column("low, points")[language_index] == pytest.approx(
            100 * comparison.low
        )
        assert confirmed_table.column("p")[language_index] == pytest.approx(comparison.p)
    mask_from_file = mask_from_json(json.loads(json.dumps(mask.to_json())))
    assert mask_from_file.digest == mask.digest
    assert mask_from_file.chosen["rule"] == "front"
    assert mask_from_file.chosen["within"] == 3.0
    assert set(mask_from_file.chosen["evaluated"]["test"]["languages"]) == {"xx", "yy"}
    assert any("front judged at most one mask there" in note for note in report.notes)
    # how often the examples were looked at is not known
    assert not any("once" in note for note in report.notes)


def test_a_stored_front_is_not_computed_again_and_another_question_needs_only_answers(model, front):
    store_root, report = front
    pieces_anew = pieces_of(model, store_root)
    assert run_experiment("front", pieces_anew, options=OPTIONS).to_json() == report.to_json()
    assert pieces_anew.forwards == 0
    assert forecast("front", pieces_anew, OPTIONS).forwards == 0
    other_options = {**OPTIONS, "within": 50.0}
    cost = forecast("front", pieces_of(model, store_root), other_options)
    assert 0 < cost.forwards <= 2 * 2 * 20
    missing = missing_pieces("front", pieces_of(model, store_root), other_options)
    assert {ask.kind for ask in missing} == {"answers"}
    pieces = pieces_of(model, store_root)
    run_experiment("front", pieces, options=other_options)
    assert pieces.forwards <= 2 * 20


def test_an_interrupted_front_goes_on_and_ends_with_the_same_numbers(model, front, tmp_path):
    def stop(step):
        if step.note.startswith("order weakest in yy: 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment("front", pieces_of(model, tmp_path), options=OPTIONS, on_progress=stop)
    steps = []
    resumed_pieces = pieces_of(model, tmp_path)
    report = run_experiment("front", resumed_pieces, options=OPTIONS, on_progress=steps.append)
    assert report.tables == front[1].tables
    assert report.notes == front[1].notes
    assert 0 < resumed_pieces.forwards < front[1].example_forwards
    assert steps[-1].done <= steps[-1].total


def test_the_best_with_k_heads_is_the_best_of_the_orders(model, tmp_path):
    options = {"method": "leave-one-out", "points": 2, "heads": 9, "orders": "mean,own"}
    report = run_experiment("front", pieces_of(model, tmp_path), options=options)
    worst_by_order = {}
    for order in dict.fromkeys(report.table(FRONT_TABLE).column("order")):
        mask = mask_at(report, order, 3, model.grid)
        differences = []
        for language in ("xx", "yy"):
            evaluator = Evaluator(model, tiny_task(), language, "dev", 16)
            comparison = compare(evaluator.evaluate(), evaluator.evaluate(mask))
            differences.append(comparison.difference)
        worst_by_order[order] = min(differences)
    chosen = report.table("front-choice")
    assert chosen.column("heads kept") == [9]
    best_worst = max(worst_by_order.values())
    assert chosen.column("weakest, points")[0] == pytest.approx(100 * best_worst)
    assert report.table(CONFIRMED_TABLE).column("p of the loss")[0] is None


def test_a_front_reads_back_from_its_json_and_refuses_what_does_not_fit(model, front):
    report_text = json.dumps(front[1].to_json())
    report = Report.from_json(json.loads(report_text))
    result = FrontResult.from_report(front[1])
    result_from_json = FrontResult.from_report(report)
    differences = [front_point.difference for front_point in result.points]
    assert [front_point.difference for front_point in result_from_json.points] == differences
    order = result_from_json.removal_order("mean", model.grid)
    assert sorted(order) == list(range(12))
    with raises("front.order_invalid"):
        result_from_json.removal_order("best", model.grid)
    with raises("report.table_unknown"):
        FrontResult.from_report(Report("front", ()))


def random_curve(rng, language, loss_rate, gain_rate):
    """A curve of 400 answers along six heads, of which each loses and gains some answers.

    Args:
        rng: Draws the answers.
        language: The language of the curve.
        loss_rate: Of the answers that are right at first, the share that each removed head loses.
        gain_rate: Of the others, the share that each removed head gains.
    """
    n = 400
    is_right_at_first = rng.random(n) < 0.8
    is_right = [is_right_at_first]
    for removed_count in range(1, 7):
        u = rng.random(n)
        still_right = u >= loss_rate * removed_count
        newly_right = u < gain_rate * removed_count
        is_right.append(np.where(is_right_at_first, still_right, newly_right))
    order = np.arange(6)
    correct = np.array(is_right)
    zeros = np.zeros(7)
    return Curve(
        GRID,
        language,
        "dev",
        "x",
        order,
        np.arange(7),
        correct,
        np.arange(n),
        zeros,
        zeros,
        zeros,
        0,
        0.0,
    )


def test_along_an_order_made_without_the_examples_the_bound_is_seldom_wrong(
    monkeypatch,
):
    monkeypatch.setattr("headlab.studies.pareto.DRAWS", 400)
    monkeypatch.setattr("headlab.studies.differences.DRAWS", 20)
    rng = np.random.default_rng(0)
    wrong_count = 0
    runs = 80
    loss = 0.02
    groups = {"xx": equal_groups(400), "yy": equal_groups(400)}
    for _ in range(runs):
        curves = {
            "xx": random_curve(rng, "xx", 0.0125, 0.0),
            "yy": random_curve(rng, "yy", 0.0, 0.0),
        }
        points = points_of("mean", curves, PointTest(groups, 1, 0, False), EVEN_COSTS)
        chosen = smallest_within(points, loss, "bound")
        wrong_count += 0.8 * 0.0125 * chosen.heads_removed > loss  # what is really lost in xx
    assert wrong_count / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_the_test_seldom_confirms_a_model_that_loses_too_much(monkeypatch):
    monkeypatch.setattr("headlab.studies.pareto.DRAWS", 400)
    rng = np.random.default_rng(1)
    confirmed_count = 0
    runs = 200
    n = 400
    loss = 0.03
    groups = equal_groups(n)
    for _ in range(runs):
        verdicts = []
        for language, loss_rate in (("xx", loss), ("yy", 0.0), ("zz", -0.02)):
            is_right_before = rng.random(n) < 0.8
            u = rng.random(n)
            # Of all answers 0.05 are gained and 0.05 + loss_rate are lost.
            still_right = u >= (0.05 + loss_rate) / 0.8
            newly_right = u < 0.25
            is_right_after = np.where(is_right_before, still_right, newly_right)
            verdict = language_verdict(language, is_right_before, is_right_after, groups, loss, 0)
            verdicts.append(verdict)
        confirmed_count += p_of_any_loss(verdicts) <= 0.05
    assert confirmed_count / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_a_mask_that_changes_nothing_is_confirmed_and_its_interval_is_not_empty():
    all_right = np.ones(400, bool)
    verdict = language_verdict("xx", all_right, all_right, equal_groups(400), 0.02, 0)
    assert verdict.difference == 0
    assert verdict.p == 1
    assert verdict.p_loss < 0.05
    assert verdict.low < 0 < verdict.high


@pytest.mark.parametrize(
    ("within", "loss_text"),
    [(1.0, "more than 1 point cannot"), (2.0, "more than 2 points cannot")],
)
def test_a_loss_that_is_not_ruled_out_is_described_by_its_one_sided_bound(within, loss_text):
    verdict = LanguageVerdict("xx", 400, 0.8, 0.78, -0.02, -0.05, -0.001, -0.04, 0.03, 0.9)
    options = STUDIES["front"].resolve({"within": within})
    sentence = sentences([], {"smallest": point(removed_count=2)}, [verdict], options)[1]
    assert loss_text in sentence
    explanation = "in brackets the points that may be lost there, by the one-sided 95 % bound."
    assert f"xx (up to 4.0); {explanation}" in sentence


def test_only_languages_that_lose_by_holm_are_named_with_what_may_be_lost():
    def verdict_of(language, p, difference=-0.02):
        accuracy = 0.8 + difference
        interval = (-0.05, -0.001)
        return LanguageVerdict(language, 400, 0.8, accuracy, difference, *interval, -0.04, p, None)

    other_languages = [f"y{number}" for number in range(14)]
    other_verdicts = [verdict_of(language, 0.9) for language in other_languages]
    chance_verdicts = [verdict_of("xx", 0.03), *other_verdicts]
    options = STUDIES["front"].resolve({"heads": 4})
    answers = {"best with 4 heads": point(removed_count=2)}
    _, test_sentence, *_ = sentences([], answers, chance_verdicts, options)
    assert test_sentence == (
        f"On test none of the languages xx, {', '.join(other_languages)} is shown to lose "
        "(no p by Holm below 0.05). At 95 % none of them loses more than 4.0 points; "
        "the lowest bound is that of xx."
    )
    losing_verdict = verdict_of("xx", 0.001)
    gaining_verdict = verdict_of("yy", 0.001, 0.02)
    verdicts_with_a_loss = [losing_verdict, gaining_verdict, *other_verdicts]
    _, test_sentence, *_ = sentences([], answers, verdicts_with_a_loss, options)
    assert "on test it loses in xx (p by Holm below 0.05)." in test_sentence


def test_reported_12_notes_of_a_front_name_the_languages_that_they_are_of():
    verdicts = [
        LanguageVerdict(language, 400, 0.8, 0.79, -0.01, -0.02, 0.0, -0.018, 0.08, 0.01)
        for language in ("xx", "yy")
    ]
    chosen = dataclasses.replace(point(removed_count=2), languages=("xx", "yy"))
    answers = {"smallest within 1 point in every language": chosen}
    options = STUDIES["front"].resolve({"within": 1.0})
    answer_sentence, test_sentence, *_ = sentences([], answers, verdicts, options)
    beginning = "Smallest within 1 point in every language (languages: xx, yy): 2 heads are removed"
    assert answer_sentence.startswith(beginning)
    confirmation = (
        "within 1 point of the untouched model in every language, xx, yy (p = 0.01 for all"
    )
    assert confirmation in test_sentence


def test_a_chosen_mask_that_removes_no_head_is_not_compared_with_the_baseline(model):
    options = {"method": "random", "points": 2, "orders": "mean", "heads": 12}
    report = run_experiment("front", pieces_of(model), options=options)
    table = report.table(CONFIRMED_TABLE)
    for column in (
        "low, points",
        "high, points",
        "bound, points",
        "p",
        "p (Holm)",
        "p of the loss",
    ):
        assert table.column(column) == [None, None, None]
    assert table.column("difference, points") == [0.0, 0.0, 0.0]
    mask_text = json.dumps(chosen_mask(report, model.grid).to_json())
    mask = mask_from_json(json.loads(mask_text))
    figures_of_xx = mask.chosen["evaluated"]["test"]["languages"]["xx"]
    assert set(figures_of_xx) == {"n", "baseline", "accuracy", "difference"}
    assert report.notes[0] == (
        "Best with 12 heads, the weakest language protected (languages: xx, yy): "
        "no head goes; 12 are left."
    )
    assert len(report.notes) == 2
    options_within_loss = {**options, "heads": None, "within": 0.0, "by": "bound"}
    report_of_loss = run_experiment("front", pieces_of(model), options=options_within_loss)
    assert any("no head can be removed" in note for note in report_of_loss.notes)


@pytest.mark.parametrize(
    ("options", "ablation", "refusal"),
    [
        ({"heads": 13}, "zero", ("front.heads_too_many", 13, 12)),
        ({"orders": "cost"}, "zero", ("front.no_order", "cost alike")),
        (
            {"orders": "cost"},
            "mean",
            ("front.no_order", "heads that give their mean cannot be removed"),
        ),
        (
            {"orders": "cost"},
            "resample",
            ("front.no_order", "heads that give their output on another text cannot be removed"),
        ),
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_anything_is_computed(
    model, options, ablation, refusal
):
    pieces = pieces_of(model, ablation=ablation)
    for function in (forecast, run_experiment):
        with raises(*refusal):
            function("front", pieces, options=options)
    assert pieces.forwards == 0


def test_the_note_says_why_there_is_no_order_by_cost(model):
    options = {"method": "random", "points": 2, "orders": "mean,cost"}
    report = run_experiment("front", pieces_of(model, ablation="mean"), options=options)
    note = "There is no order by cost: heads that give their mean cannot be removed."
    assert note in report.notes


def test_grouped_queries_and_models_that_cannot_shrink_have_fronts_too(tmp_path):
    for family in ("llama", "deberta-v2"):
        model = tiny_model(family, torch.float32, tokenizer=tiny_tokenizer())
        pieces = Pieces(model, tiny_task().with_languages(["xx"]), dev_size=4, test_size=4)
        options = {**OPTIONS, "method": "random", "points": 2, "orders": "mean,cost"}
        report = run_experiment("front", pieces, options=options)
        parameters = report.table(FRONT_TABLE).column("parameters")
        are_unknown = all(count is None for count in parameters)
        assert are_unknown == (family == "deberta-v2")
    assert "llama" in FAMILIES
