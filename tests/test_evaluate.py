"""The evaluator: any mask, example by example, resumed or not, streamed or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import Comparison, Evaluation
from headlab.evaluation import Evaluator, compare
from headlab.evaluation import evaluator as evaluate_module
from headlab.hooks import Model
from headlab.masks import Mask


@pytest.fixture(scope="module", params=["bert", "distilbert", "deberta-v2", "gpt2"])
def model(request: pytest.FixtureRequest) -> Model:
    return tiny_model(request.param, tokenizer=tiny_tokenizer())


def mask_of(model: Model, *removed_heads: int) -> Mask:
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[list(removed_heads)] = False
    return Mask(model.grid, kept_heads, model.identity())


def fresh_evaluation(model: Model, mask: Mask | None) -> Evaluation:
    """An evaluation with one example a batch and nothing cached between passes."""
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=1, state_bytes=0)
    return evaluator.evaluate(mask)


def test_a_walk_through_masks_equals_fresh_evaluations(
    model: Model, rng: np.random.Generator
) -> None:
    """Each toggle starts at the layer that changed; the answer is that of a full pass."""
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=7)
    kept_heads = np.ones(model.grid.size, bool)
    for _ in range(8):
        kept_heads = kept_heads.copy()
        kept_heads[rng.integers(model.grid.size)] ^= True
        if kept_heads.sum() < model.grid.size / 2:
            kept_heads[:] = True
        mask = Mask(model.grid, kept_heads, model.identity())
        assert_equals_fresh(evaluator.evaluate(mask), model, mask)


def assert_equals_fresh(evaluation: Evaluation, model: Model, mask: Mask) -> None:
    expected_evaluation = fresh_evaluation(model, mask)
    assert (evaluation.predicted == expected_evaluation.predicted).all()


def test_partial_figures_are_prefixes_of_the_whole(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_module, "CHUNKS", (4, 8))
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=5)
    parts = list(evaluator.stream(mask_of(model, 0)))
    assert [p.n for p in parts] == [4, 12, 24]
    assert [p.is_complete for p in parts] == [False, False, True]
    whole = parts[-1]
    for part in parts:
        assert (part.predicted == whole.predicted[: part.n]).all()
        assert part.ids == whole.ids[: part.n]
    cached_parts = list(evaluator.stream(mask_of(model, 0)))
    assert len(cached_parts) == 1


def test_of_too_many_masks_the_one_that_was_used_longest_ago_is_forgotten(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_module, "CACHED_EVALUATIONS", 2)
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=5)

    def passes(head: int) -> int:
        forwards_before = evaluator.forwards
        evaluator.evaluate(mask_of(model, head))
        return evaluator.forwards - forwards_before

    passes_by_request = [passes(head) for head in (0, 1, 0, 2, 0, 1)]
    assert passes_by_request == [24, 24, 0, 24, 0, 24]


def test_the_first_figure_of_long_texts_is_of_fewer(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = Evaluator(model, tiny_task(), "xx", "dev", 24).lengths
    five_examples = int(lengths[:5].sum())
    almost_six_examples = int(lengths[:6].sum()) - 1
    for max_tokens, first_n in (
        (five_examples, 5),
        (almost_six_examples, 5),
        (1, 2),
    ):
        monkeypatch.setattr(evaluate_module, "FIRST_TOKENS", max_tokens)
        evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24)
        assert [evaluation.n for evaluation in evaluator.stream()] == [first_n, 24]


def test_a_pass_cut_short_is_not_resumed_from(model: Model) -> None:
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=5)
    evaluator.evaluate()

    def stop() -> None:
        raise KeyboardInterrupt

    evaluator.tick = stop
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(mask_of(model, 1, 2))
    evaluator.tick = lambda: None
    mask = mask_of(model, 5)
    assert_equals_fresh(evaluator.evaluate(mask), model, mask)


@pytest.mark.parametrize("threads", [1, 2])
def test_masks_asked_for_between_the_batches_of_another_leave_its_answers_alone(
    model: Model, threads: int
) -> None:
    """A worker serves one session between the batches of another, on the same examples."""
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=3)
    evaluator.evaluate()
    last_head = model.grid.size - 1
    masks = [
        mask_of(model, 0),
        mask_of(model, last_head),
        mask_of(model, 1, 2),
        mask_of(model, 3),
    ]
    evaluations: dict[int, Evaluation] = {}
    is_serving = False

    def serve() -> None:
        nonlocal is_serving
        if not is_serving and len(evaluations) < len(masks) - 1:
            is_serving = True
            index = len(evaluations) + 1
            evaluations[index] = evaluator.evaluate(masks[index])
            is_serving = False

    evaluator.tick = serve
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        evaluations[0] = evaluator.evaluate(masks[0])
        evaluator.tick = lambda: None
        later_evaluation = evaluator.evaluate(mask_of(model, 0, 1))
    finally:
        torch.set_num_threads(threads_before)
    assert len(evaluations) == len(masks)
    for index, mask in enumerate(masks):
        assert_equals_fresh(evaluations[index], model, mask)
    assert_equals_fresh(later_evaluation, model, mask_of(model, 0, 1))


def test_comparison_counts_flips(model: Model) -> None:
    report = headlab.evaluate(
        model,
        tiny_task(),
        mask_of(model, *range(5)),
        size=24,
    )
    for language in ("xx", "yy"):
        row = report[language]
        assert isinstance(row, Comparison)
        evaluator = Evaluator(model, tiny_task(), language, "dev", 24)
        assert row.baseline == evaluator.evaluate().accuracy
        more_right_answers = row.flipped_right - row.flipped_wrong
        assert row.difference == pytest.approx(more_right_answers / 24)
    assert "points" in str(report)


def test_ablation_mean_differs_from_zero(model: Model) -> None:
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24)
    mask = mask_of(model, *range(6))
    zero = evaluator.evaluate(mask)
    mean = evaluator.evaluate(mask, ablation="mean")
    second_zero = evaluator.evaluate(mask)
    assert (zero.predicted == second_zero.predicted).all()
    assert (mean.predicted != zero.predicted).any()
    with raises("ablation.unknown", "median"):
        evaluator.evaluate(mask_of(model, 1), ablation="median")


def test_misuse_is_refused(model: Model) -> None:
    task = tiny_task()
    foreign_mask = Mask(
        model.grid,
        np.ones(model.grid.size, bool),
        {"fingerprint": "0" * 64},
    )
    with raises("mask.other_model"):
        Evaluator(model, task, "xx").evaluate(foreign_mask)
    in_xx = Evaluator(model, task, "xx", "dev", 8).evaluate()
    in_yy = Evaluator(model, task, "yy", "dev", 8).evaluate()
    with raises("evaluation.other_examples"):
        compare(in_xx, in_yy)
    with raises("split.unknown"):
        Evaluator(model, task, "xx", "validation")  # type: ignore[arg-type]
    with raises("model.labels_mismatch", 5, 17):
        Evaluator(model, headlab.task("intents"), "en")
