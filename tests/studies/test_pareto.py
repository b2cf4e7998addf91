"""Fronts of smaller models: orders, the choice, its confirmation, and what is claimed of it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import reference
import torch
from support.expected_errors import raises
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
EVEN = Costs(100, (0, 1, 1), (LayerCost(0, 3, 1, 10, 1, 1), LayerCost(3, 3, 1, 10, 1, 1)))
GRID = HeadGrid((Stack("encoder", (3, 3)),))


def scores_of(rows):
    return {
        name: HeadScores(GRID, name, "shapley", np.array(row, float), "e", "accuracy", 0, 0.0)
        for name, row in rows.items()
    }


def point(order="mean", removed=0, worst=0.0, mean=0.0, bound=None, kept=None, parameters=None):
    kept = 6 - removed if kept is None else kept
    bound = worst - 0.02 if bound is None else bound
    pair = (worst, max(worst, 2 * mean - worst))
    return Point(
        order,
        removed,
        kept,
        parameters,
        ("xx", "yy"),
        (0.5, 0.5),
        pair,
        pair,
        pair,
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
    assert pareto(cost, value).tolist() == reference.undominated(
        list(zip(cost, value, strict=True))
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_weakest_language_keeps_a_head_that_it_alone_needs(seed):
    every = np.random.default_rng(seed).normal(size=(3, 6))
    assert removal_order(weakest_first(every)).tolist() == reference.leaving_by_best_rank(
        every.tolist()
    )
    needed = np.array([[5.0, 1, 2, 3, 4, 6], [0.0, 9, 8, 7, 6, 5], [0.0, 9, 8, 7, 6, 5]])
    assert removal_order(needed.mean(axis=0))[0] == 0 != removal_order(weakest_first(needed))[0]


def test_by_cost_a_dear_head_leaves_before_a_cheap_one_of_its_score_and_a_group_leaves_together():
    costs = Costs(100, (0, 1, 1), (LayerCost(0, 4, 2, 40, 1, 1), LayerCost(4, 2, 1, 5, 1, 1)))
    found = per_parameter(np.array([1.0, 3, 2, 2, 1, 2]), costs)
    np.testing.assert_allclose(found, [0.1, 0.1, 0.1, 0.1, 0.2, 0.4])
    order = removal_order(per_parameter(np.array([1.0, 4, 2, 0, 1, 2]), costs)).tolist()
    assert {*order[:2]} == {2, 3}
    assert {*order[2:4]} == {0, 1}


def test_orders_that_are_the_same_are_tried_once_and_it_is_said():
    orders, told = candidate_orders(
        ["mean", "weakest", "own", "cost"], scores_of({"xx": range(6)}), EVEN
    )
    assert [one.key for one in orders] == ["mean"]
    assert told == [
        "Order weakest is order mean here.",
        "Order own xx is order mean here.",
        "There is no order by cost: all heads of this model cost alike.",
    ]
    two, told = candidate_orders(
        ["mean", "own"], scores_of({"xx": range(6), "yy": [5, 1, 2, 3, 4, 0]}), EVEN
    )
    assert [one.key for one in two] == ["mean", "own xx", "own yy"]
    assert not told
    for note, why in (
        ("heads stay.", "heads stay"),
        ("", "the cost of this model's heads is unknown"),
    ):
        nothing = dataclasses.replace(EVEN, layers=(), note=note)
        (told,) = candidate_orders(["cost"], scores_of({"xx": range(6)}), nothing)[1]
        assert told == f"There is no order by cost: {why}."


def test_counts_have_the_wanted_number_of_heads_among_them():
    assert counts_of(12, 4, None) == [0, 4, 8, 12]
    assert counts_of(12, 4, 10) == [0, 2, 4, 8, 12]
    assert counts_of(3, 25, 1) == counts_of(3, None, None) == [0, 1, 2, 3]


def test_the_smallest_that_is_within_by_estimate_may_stand_behind_one_that_is_not():
    points = [
        point(removed=0),
        point(removed=1, worst=-0.03),
        point(removed=2, worst=-0.01),
        point(removed=3, worst=-0.2),
    ]
    assert smallest_within(points, 0.01, "estimate").removed == 2
    assert smallest_within(points, 0.005, "estimate").removed == 0


def test_by_the_bound_the_first_count_that_fails_ends_its_order():
    points = [
        point(removed=0, bound=0.0),
        point(removed=1, bound=-0.01),
        point(removed=2, bound=-0.02),
        point(removed=3, bound=-0.01),
        point("weakest", 0, bound=0.0),
        point("weakest", 1, bound=-0.005),
    ]
    assert (
        smallest_within(points, 0.01, "bound").order,
        smallest_within(points, 0.01, "bound").removed,
    ) == (
        "mean",
        1,
    )
    assert smallest_within(points, 0.02, "bound").removed == 3
    assert smallest_within(points[4:], 0.01, "bound").removed == 1


def test_parameters_decide_what_is_smallest_where_they_are_known():
    points = [
        point(removed=0, parameters=100),
        point(removed=1, parameters=60),
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


def pieces_of(model, root=None, **more):
    return Pieces(
        model, tiny_task(), None if root is None else Store(root), dev_size=16, test_size=20, **more
    )


@pytest.fixture(scope="module")
def front(model, tmp_path_factory):
    root = tmp_path_factory.mktemp("cache")
    return root, run_experiment("front", pieces_of(model, root), options=OPTIONS)


def test_every_point_is_what_the_evaluator_says_of_its_mask(model, front):
    points = FrontResult.from_report(front[1]).points
    assert [p.removed for p in points if p.order == "mean"] == [0, 4, 8, 12]
    chosen = next(p for p in points if (p.order, p.removed) == ("weakest", 4))
    mask = mask_at(front[1], "weakest", 4, model.grid)
    assert len(mask.removed) == 4
    for at, language in enumerate(("xx", "yy")):
        evaluator = Evaluator(model, tiny_task(), language, "dev", 16)
        found = compare(evaluator.evaluate(), evaluator.evaluate(mask), 0)
        numbers = (chosen.accuracy[at], chosen.difference[at], chosen.low[at], chosen.high[at])
        np.testing.assert_allclose(
            numbers, (found.accuracy, found.difference, found.low, found.high), atol=1e-12
        )
        assert (
            chosen.low[at] <= chosen.bound[at] <= chosen.difference[at]
            or chosen.difference[at] == 0
        )
    assert chosen.worst == min(chosen.difference)
    assert chosen.weakest == ("xx", "yy")[np.argmin(chosen.difference)]
    np.testing.assert_allclose(chosen.mean, np.mean(chosen.difference), atol=1e-12)
    table = front[1].table(FRONT_TABLE)
    cost = [float(x) for x in table.column("parameters")]
    assert table.column("best for its size") == reference.undominated(
        list(zip(cost, table.column("weakest, points"), strict=True))
    )


def test_the_answer_is_judged_on_test_and_the_mask_carries_what_was_seen_there(model, front):
    report = front[1]
    mask = chosen_mask(report, model.grid)
    rows = report.table(CONFIRMED_TABLE)
    for at, language in enumerate(("xx", "yy")):
        evaluator = Evaluator(model, tiny_task(), language, "test", 20)
        found = compare(evaluator.evaluate(), evaluator.evaluate(mask), 0)
        assert rows.column("difference, points")[at] == pytest.approx(100 * found.difference)
        assert rows.column("low, points")[at] == pytest.approx(100 * found.low)
        assert rows.column("p")[at] == pytest.approx(found.p)
    again = mask_from_json(json.loads(json.dumps(mask.to_json())))
    assert again.digest == mask.digest
    assert again.chosen["rule"] == "front"
    assert again.chosen["within"] == 3.0
    assert set(again.chosen["evaluated"]["test"]["languages"]) == {"xx", "yy"}
    assert any("front judged at most one mask there" in note for note in report.notes)
    # how often the examples were looked at is not known
    assert not any("once" in note for note in report.notes)


def test_a_front_that_is_kept_is_not_made_again_and_another_question_walks_no_further(model, front):
    root, report = front
    again = pieces_of(model, root)
    assert run_experiment("front", again, options=OPTIONS).to_json() == report.to_json()
    assert again.forwards == 0
    assert forecast("front", again, OPTIONS).forwards == 0
    other = {**OPTIONS, "within": 50.0}
    cost = forecast("front", pieces_of(model, root), other)
    assert 0 < cost.forwards <= 2 * 2 * 20
    missing = missing_pieces("front", pieces_of(model, root), other)
    assert {ask.kind for ask in missing} == {"answers"}
    asked = pieces_of(model, root)
    run_experiment("front", asked, options=other)
    assert asked.forwards <= 2 * 20


def test_an_interrupted_front_goes_on_and_ends_with_the_same_numbers(model, front, tmp_path):
    def stop(step):
        if step.note.startswith("order weakest in yy: 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment("front", pieces_of(model, tmp_path), options=OPTIONS, on_progress=stop)
    seen = []
    rest = pieces_of(model, tmp_path)
    report = run_experiment("front", rest, options=OPTIONS, on_progress=seen.append)
    assert report.tables == front[1].tables
    assert report.notes == front[1].notes
    assert 0 < rest.forwards < front[1].example_forwards
    assert seen[-1].done <= seen[-1].total


def test_the_best_with_k_heads_is_the_best_of_the_orders(model, tmp_path):
    options = {"method": "leave-one-out", "points": 2, "heads": 9, "orders": "mean,own"}
    report = run_experiment("front", pieces_of(model, tmp_path), options=options)
    worst = {}
    for order in dict.fromkeys(report.table(FRONT_TABLE).column("order")):
        mask = mask_at(report, order, 3, model.grid)
        evaluators = [
            Evaluator(model, tiny_task(), language, "dev", 16) for language in ("xx", "yy")
        ]
        worst[order] = min(compare(e.evaluate(), e.evaluate(mask)).difference for e in evaluators)
    chosen = report.table("front-choice")
    assert chosen.column("heads kept") == [9]
    assert chosen.column("weakest, points")[0] == pytest.approx(100 * max(worst.values()))
    assert report.table(CONFIRMED_TABLE).column("p of the loss")[0] is None


def test_a_front_reads_back_from_its_json_and_refuses_what_does_not_fit(model, front):
    report = Report.from_json(json.loads(json.dumps(front[1].to_json())))
    assert [p.difference for p in FrontResult.from_report(report).points] == [
        p.difference for p in FrontResult.from_report(front[1]).points
    ]
    assert np.array_equal(
        np.sort(FrontResult.from_report(report).removal_order("mean", model.grid)), np.arange(12)
    )
    with raises("front.order_invalid"):
        FrontResult.from_report(report).removal_order("best", model.grid)
    with raises("report.table_unknown"):
        FrontResult.from_report(Report("front", ()))


def made_curve(rng, language, right, wrong):
    """A curve along six heads: at each count so many of the answers have been lost, and so many gained, on average."""
    n = 400
    base = rng.random(n) < 0.8
    rows = [base]
    for gone in range(1, 7):
        u = rng.random(n)
        rows.append(np.where(base, u >= right * gone, u < wrong * gone))
    order = np.arange(6)
    correct = np.array(rows)
    flat = np.zeros(7)
    return Curve(
        GRID,
        language,
        "dev",
        "x",
        order,
        np.arange(7),
        correct,
        np.arange(n),
        flat,
        flat,
        flat,
        0,
        0.0,
    )


def test_along_an_order_made_without_the_examples_the_bound_is_wrong_as_seldom_as_it_says(
    monkeypatch,
):
    monkeypatch.setattr("headlab.studies.pareto.DRAWS", 400)
    monkeypatch.setattr("headlab.studies.differences.DRAWS", 20)
    rng = np.random.default_rng(0)
    wrong = 0
    runs = 80
    loss = 0.02
    groups = {name: tuple(map(str, range(400))) for name in ("xx", "yy")}
    for _ in range(runs):
        curves = {
            name: made_curve(rng, name, share, 0.0) for name, share in (("xx", 0.0125), ("yy", 0.0))
        }
        chosen = smallest_within(
            points_of("mean", curves, PointTest(groups, 1, 0, False), EVEN), loss, "bound"
        )
        wrong += 0.8 * 0.0125 * chosen.removed > loss  # what is really lost in xx
    assert wrong / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_the_test_confirms_a_model_that_loses_too_much_as_seldom_as_it_says(monkeypatch):
    monkeypatch.setattr("headlab.studies.pareto.DRAWS", 400)
    rng = np.random.default_rng(1)
    confirmed = 0
    runs = 200
    n = 400
    loss = 0.03
    groups = tuple(map(str, range(n)))
    for _ in range(runs):
        verdicts = []
        for language, lost in (("xx", loss), ("yy", 0.0), ("zz", -0.02)):
            before = rng.random(n) < 0.8
            u = rng.random(n)
            # 0.05 is gained, 0.05 + lost is lost
            after = np.where(before, u >= (0.05 + lost) / 0.8, u < 0.25)
            verdicts.append(language_verdict(language, before, after, groups, loss, 0))
        confirmed += p_of_any_loss(verdicts) <= 0.05
    assert confirmed / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_a_mask_that_changes_nothing_is_confirmed_and_its_interval_is_not_empty():
    right = np.ones(400, bool)
    found = language_verdict("xx", right, right, tuple(map(str, range(400))), 0.02, 0)
    assert found.difference == 0
    assert found.p == 1
    assert found.p_loss < 0.05
    assert found.low < 0 < found.high


@pytest.mark.parametrize(
    ("within", "words"), [(1.0, "more than 1 point cannot"), (2.0, "more than 2 points cannot")]
)
def test_a_loss_that_is_not_ruled_out_is_told_by_its_one_sided_bound(within, words):
    lost = LanguageVerdict("xx", 400, 0.8, 0.78, -0.02, -0.05, -0.001, -0.04, 0.03, 0.9)
    options = STUDIES["front"].resolve({"within": within})
    told = sentences([], {"smallest": point(removed=2)}, [lost], options)[1]
    assert words in told
    assert (
        "xx (up to 4.0); in brackets the points that may be lost there, by the one-sided 95 % bound."
        in told
    )


def test_only_languages_that_lose_by_holm_are_named_and_what_may_be_lost_is_told():
    def seen(name, p, difference=-0.02):
        return LanguageVerdict(
            name, 400, 0.8, 0.8 + difference, difference, -0.05, -0.001, -0.04, p, None
        )

    by_chance = [seen("xx", 0.03), *(seen(f"y{i}", 0.9) for i in range(14))]
    options = STUDIES["front"].resolve({"heads": 4})
    words = sentences([], {"best with 4 heads": point(removed=2)}, by_chance, options)
    assert words[1] == (
        f"On test none of the languages xx, {', '.join(f'y{i}' for i in range(14))} is shown to lose (no p by Holm "
        "below 0.05). At 95 % none of them loses more than 4.0 points; the lowest bound is that of xx."
    )
    clear = [seen("xx", 0.001), seen("yy", 0.001, 0.02), *by_chance[1:]]
    words = sentences([], {"best with 4 heads": point(removed=2)}, clear, options)
    assert "on test it loses in xx (p by Holm below 0.05)." in words[1]


def test_reported_12_notes_of_a_front_name_the_languages_that_they_are_of():
    sure = [
        LanguageVerdict(name, 400, 0.8, 0.79, -0.01, -0.02, 0.0, -0.018, 0.08, 0.01)
        for name in ("xx", "yy")
    ]
    chosen = dataclasses.replace(point(removed=2), languages=("xx", "yy"))
    words = sentences(
        [],
        {"smallest within 1 point in every language": chosen},
        sure,
        STUDIES["front"].resolve({"within": 1.0}),
    )
    assert words[0].startswith(
        "Smallest within 1 point in every language (languages: xx, yy): 2 heads are removed"
    )
    assert (
        "within 1 point of the untouched model in every language, xx, yy (p = 0.01 for all"
        in words[1]
    )


def test_an_answer_without_a_removed_head_is_not_tested_against_itself(model):
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
    mask = mask_from_json(json.loads(json.dumps(chosen_mask(report, model.grid).to_json())))
    assert set(mask.chosen["evaluated"]["test"]["languages"]["xx"]) == {
        "n",
        "baseline",
        "accuracy",
        "difference",
    }
    assert (
        report.notes[0]
        == "Best with 12 heads, the weakest language protected (languages: xx, yy): no head goes; 12 are left."
    )
    assert len(report.notes) == 2
    asked = run_experiment(
        "front", pieces_of(model), options={**options, "heads": None, "within": 0.0, "by": "bound"}
    )
    assert any("no head can be removed" in note for note in asked.notes)


@pytest.mark.parametrize(
    ("options", "ablation", "expected"),
    [
        ({"heads": 13}, "zero", ("front.heads_too_many", 13, 12)),
        ({"orders": "cost"}, "zero", ("front.no_order", "cost alike")),
        (
            {"orders": "cost"},
            "mean",
            ("front.no_order", "heads that give their mean cannot be removed"),
        ),
    ],
)
def test_what_does_not_fit_the_model_is_told_before_anything_is_computed(
    model, options, ablation, expected
):
    pieces = pieces_of(model, ablation=ablation)
    for ask in (forecast, run_experiment):
        with raises(*expected):
            ask("front", pieces, options=options)
    assert pieces.forwards == 0


def test_why_there_is_no_order_by_cost_is_told_as_it_is(model):
    options = {"method": "random", "points": 2, "orders": "mean,cost"}
    report = run_experiment("front", pieces_of(model, ablation="mean"), options=options)
    assert (
        "There is no order by cost: heads that give their mean cannot be removed." in report.notes
    )


def test_grouped_queries_and_models_that_cannot_shrink_have_fronts_too(tmp_path):
    for family in ("llama", "deberta-v2"):
        model = tiny_model(family, torch.float32, tokenizer=tiny_tokenizer())
        pieces = Pieces(model, tiny_task().restricted(["xx"]), dev_size=4, test_size=4)
        report = run_experiment(
            "front",
            pieces,
            options={**OPTIONS, "method": "random", "points": 2, "orders": "mean,cost"},
        )
        parameters = report.table(FRONT_TABLE).column("parameters")
        assert all(p is None for p in parameters) == (family == "deberta-v2")
    assert "llama" in FAMILIES
