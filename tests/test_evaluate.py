"""The evaluator: any mask, example by example, resumed or not, streamed or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import Evaluation
from headlab.evaluation import Evaluator, compare
from headlab.evaluation import evaluator as evaluate_module
from headlab.hooks import Model
from headlab.masks import Mask


@pytest.fixture(scope="module", params=["bert", "distilbert", "deberta-v2", "gpt2"])
def model(request: pytest.FixtureRequest) -> Model:
    return tiny_model(request.param, tokenizer=tiny_tokenizer())


def mask_of(model: Model, *removed: int) -> Mask:
    kept = np.ones(model.grid.size, bool)
    kept[list(removed)] = False
    return Mask(model.grid, kept, model.identity())


def fresh(model: Model, mask: Mask | None) -> Evaluation:
    """A new evaluator, one example a batch, nothing kept between passes."""
    return Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=1, state_bytes=0).evaluate(
        mask
    )


def test_a_walk_through_masks_equals_fresh_evaluations(
    model: Model, rng: np.random.Generator
) -> None:
    """Each toggle starts at the layer that changed; the answer is that of a full pass."""
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=7)
    kept = np.ones(model.grid.size, bool)
    for _ in range(8):
        kept = kept.copy()
        kept[rng.integers(model.grid.size)] ^= True
        if kept.sum() < model.grid.size / 2:
            kept[:] = True
        mask = Mask(model.grid, kept, model.identity())
        got = evaluator.evaluate(mask)
        assert (got.predicted == fresh(model, mask).predicted).all()


def test_partial_figures_are_prefixes_of_the_whole(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_module, "CHUNKS", (4, 8))
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=5)
    parts = list(evaluator.stream(mask_of(model, 0)))
    assert [p.n for p in parts] == [4, 12, 24]
    assert [p.done for p in parts] == [False, False, True]
    for part in parts:
        assert (part.predicted == parts[-1].predicted[: part.n]).all()
        assert part.ids == parts[-1].ids[: part.n]
    assert len(list(evaluator.stream(mask_of(model, 0)))) == 1  # remembered


def test_of_too_many_masks_the_one_that_was_used_longest_ago_is_forgotten(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_module, "CACHED_EVALUATIONS", 2)
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=5)

    def passes(head: int) -> int:
        before = evaluator.forwards
        evaluator.evaluate(mask_of(model, head))
        return evaluator.forwards - before

    assert [passes(head) for head in (0, 1, 0, 2, 0, 1)] == [24, 24, 0, 24, 0, 24]


def test_the_first_figure_of_long_texts_is_of_fewer(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = Evaluator(model, tiny_task(), "xx", "dev", 24).lengths
    for most, first in ((int(lengths[:5].sum()), 5), (int(lengths[:6].sum()) - 1, 5), (1, 2)):
        monkeypatch.setattr(evaluate_module, "FIRST_TOKENS", most)
        assert [p.n for p in Evaluator(model, tiny_task(), "xx", "dev", 24).stream()] == [first, 24]


def test_a_pass_cut_short_is_not_resumed_from(model: Model) -> None:
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=5)
    evaluator.evaluate()

    def stop() -> None:
        raise KeyboardInterrupt

    evaluator.tick = stop
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(mask_of(model, 1, 2))
    evaluator.tick = lambda: None
    assert (
        evaluator.evaluate(mask_of(model, 5)).predicted == fresh(model, mask_of(model, 5)).predicted
    ).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_masks_asked_for_between_the_batches_of_another_leave_its_answers_alone(
    model: Model, threads: int
) -> None:
    """A worker serves one session while the batches of another, on the same examples, are under way."""
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24, batch_size=3)
    evaluator.evaluate()
    masks = [mask_of(model, *removed) for removed in ([0], [model.grid.size - 1], [1, 2], [3])]
    answers: dict[int, Evaluation] = {}
    inside: list[int] = []

    def serve() -> None:
        if not inside and len(answers) < len(masks) - 1:
            inside.append(len(answers) + 1)
            answers[inside[0]] = evaluator.evaluate(masks[inside[0]])
            inside.clear()

    evaluator.tick = serve
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        answers[0] = evaluator.evaluate(masks[0])
        evaluator.tick = lambda: None
        again = evaluator.evaluate(mask_of(model, 0, 1))
    finally:
        torch.set_num_threads(before)
    assert len(answers) == len(masks)
    for place, mask in enumerate(masks):
        assert (answers[place].predicted == fresh(model, mask).predicted).all()
    assert (again.predicted == fresh(model, mask_of(model, 0, 1)).predicted).all()


def test_comparison_counts_flips(model: Model) -> None:
    report = headlab.evaluate(model, tiny_task(), mask_of(model, *range(5)), size=24)
    for language in ("xx", "yy"):
        row = report[language]
        before = Evaluator(model, tiny_task(), language, "dev", 24).evaluate()
        assert row.baseline == before.accuracy  # type: ignore[union-attr]
        assert row.difference == pytest.approx((row.flipped_right - row.flipped_wrong) / 24)  # type: ignore[union-attr]
    assert "points" in str(report)


def test_ablation_mean_differs_from_zero(model: Model) -> None:
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24)
    mask = mask_of(model, *range(6))
    zero = evaluator.evaluate(mask)
    mean = evaluator.evaluate(mask, ablation="mean")
    again = evaluator.evaluate(mask)
    assert (zero.predicted == again.predicted).all()
    assert (mean.predicted != zero.predicted).any()
    with raises("ablation.unknown", "median"):
        evaluator.evaluate(mask_of(model, 1), ablation="median")


def test_misuse_is_refused(model: Model) -> None:
    task = tiny_task()
    with raises("mask.other_model"):
        Evaluator(model, task, "xx").evaluate(
            Mask(model.grid, np.ones(model.grid.size, bool), {"fingerprint": "0" * 64})
        )
    one, two = (Evaluator(model, task, language, "dev", 8).evaluate() for language in ("xx", "yy"))
    with raises("evaluation.other_examples"):
        compare(one, two)
    with raises("split.unknown"):
        Evaluator(model, task, "xx", "validation")  # type: ignore[arg-type]
    other = headlab.task("intents")
    with raises("model.labels_mismatch", 5, 17):
        Evaluator(model, other, "en")
