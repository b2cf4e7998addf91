"""A front while it is measured: it grows model by model, is honest about what lacks, and resumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.hooks import Model
from headlab.results import Store
from headlab.studies.curves import Walk
from headlab.studies.front_so_far import AnswersAlongOrder, FrontSoFar, GrowingFront
from headlab.studies.pareto import NestedOrder
from headlab.studies.run import Pieces, run_experiment
from headlab.studies.savings import Costs, LayerCost

OPTIONS = {"method": "leave-one-out", "points": 4, "within": 3.0, "by": "estimate"}
COSTS = Costs(100, (0, 1, 1), (LayerCost(0, 2, 1, 10, 1, 1), LayerCost(2, 2, 1, 5, 1, 1)))
ORDER = NestedOrder("mean", np.arange(4.0), np.arange(4))


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", torch.float32, tokenizer=tiny_tokenizer())


def front_pieces(model: Model, root: Any, fronts: list[FrontSoFar]) -> Pieces:
    return Pieces(
        model,
        tiny_task(),
        Store(root),
        dev_size=16,
        test_size=12,
        show_front=fronts.append,
    )


def growing_front(fronts: list[FrontSoFar]) -> GrowingFront:
    return GrowingFront([ORDER], ["xx", "yy"], [0, 2, 4], 4, COSTS, fronts.append)


def test_a_model_is_compared_on_the_examples_that_it_shares_with_the_untouched_one() -> None:
    fronts: list[FrontSoFar] = []
    correct = np.zeros((3, 4), bool)
    correct[0] = [True, True, False, True]
    correct[1] = [True, False, False, False]
    growing_front(fronts).take(ORDER, "xx", AnswersAlongOrder(correct, np.array([4, 2, 0])))
    (front,) = fronts
    untouched, smaller = front.models
    assert untouched.parameters == 100
    assert smaller.parameters == 80
    assert smaller.heads_removed == 2
    assert smaller.weakest.accuracy == 0.5
    assert smaller.weakest.difference == -0.5  # of the first two examples, not of all four
    assert (smaller.weakest.answers, smaller.weakest.all_answers) == (2, 4)
    assert not smaller.is_measured(["xx"])
    assert untouched.is_measured(["xx"])
    assert not untouched.is_measured(["xx", "yy"])
    assert (front.planned, front.measured, front.measured_in("xx")) == (3, 0, 1)


def test_the_weakest_language_so_far_is_of_those_that_have_answers() -> None:
    fronts: list[FrontSoFar] = []
    front = growing_front(fronts)
    in_xx = np.array([[True, True], [True, False], [False, False]])
    in_yy = np.array([[True, True], [True, True], [True, False]])
    everything = np.full(3, 2)
    front.take(ORDER, "yy", AnswersAlongOrder(in_yy, everything))
    front.take(ORDER, "xx", AnswersAlongOrder(in_xx, everything))
    first, last = fronts
    assert [model.weakest.difference for model in first.models] == [0.0, 0.0, -0.5]
    assert [model.weakest.language for model in last.models[1:]] == ["xx", "xx"]
    assert [model.mean for model in last.models] == [0.0, -0.25, -0.75]
    assert (first.measured, last.measured) == (0, 3)


def test_a_front_grows_model_by_model_and_ends_as_its_report(model: Model, tmp_path: Any) -> None:
    fronts: list[FrontSoFar] = []
    report = run_experiment("front", front_pieces(model, tmp_path, fronts), options=OPTIONS)
    counts = [len(front.models) for front in fronts]
    assert counts == sorted(counts)
    assert len(set(counts)) >= 4
    assert fronts[0].measured == 0
    last = fronts[-1]
    assert last.measured == last.planned == len(report.table("front").rows)
    table = report.table("front")
    measured = {
        (order, removed): (weakest, mean, parameters)
        for order, removed, weakest, mean, parameters in zip(
            table.column("order"),
            table.column("heads removed"),
            table.column("weakest, points"),
            table.column("mean, points"),
            table.column("parameters"),
            strict=True,
        )
    }
    for so_far in last.models:
        weakest, mean, parameters = measured[so_far.order, so_far.heads_removed]
        assert 100 * so_far.weakest.difference == pytest.approx(weakest)
        assert 100 * so_far.mean == pytest.approx(mean)
        assert so_far.parameters == parameters


def test_a_front_that_was_interrupted_shows_at_once_what_was_measured(
    model: Model, tmp_path: Any
) -> None:
    def stop(step: Any) -> None:
        if step.note.startswith("order weakest in yy: 2"):
            raise KeyboardInterrupt

    fronts: list[FrontSoFar] = []
    with pytest.raises(KeyboardInterrupt):
        run_experiment(
            "front", front_pieces(model, tmp_path, fronts), options=OPTIONS, on_progress=stop
        )
    resumed_fronts: list[FrontSoFar] = []
    run_experiment("front", front_pieces(model, tmp_path, resumed_fronts), options=OPTIONS)
    before = len(fronts[-1].models)
    in_yy = [front.measured_in("yy") for front in resumed_fronts]
    # The stored walks come first, one after another; nothing of them is measured again.
    assert len(resumed_fronts[3].models) == before
    assert in_yy == sorted(in_yy)
    assert len(resumed_fronts) < len(fronts) + OPTIONS["points"]


def test_a_walk_says_how_many_answers_each_point_has(model: Model, tmp_path: Any) -> None:
    answered = []

    def look(walk: Walk) -> None:
        counts = walk.answered.tolist()
        assert counts == sorted(counts, reverse=True)
        assert (sum(counts) == 0) == (walk.done == 0)
        answered.append(counts)

    fronts: list[FrontSoFar] = []
    pieces = front_pieces(model, tmp_path, fronts)
    walks = []
    original_go = Walk.go

    def go(walk: Walk, report: Any, tick: Any, _look: Any = None) -> Any:
        walks.append(walk)
        return original_go(walk, report, tick, look)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Walk, "go", go)
        run_experiment("front", pieces, options={**OPTIONS, "orders": "mean"})
    assert walks
    assert answered[-1] == [16] * 4
