"""A device whose memory is full: batches halve until they fit, nothing else changes, and one row too many is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.tiny_models import tiny_batch, tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import Head
from headlab.core.parallel import Rows, memory_errors_explained, run_halving
from headlab.evaluation import Evaluator
from headlab.hooks import Model, attention_of_heads, head_means
from headlab.masks import Mask

# resumed and branched, gated by a hook, gated and passed in full
FAMILIES = [
    "bert",
    "deberta-v2",
    "xlm",
]
FULL = "memory.example_too_large"


@contextmanager
def room_for(model: Model, rows: int) -> Iterator[list[int]]:
    """Memory is full in the middle of a forward pass of more rows than that; the sizes that were tried."""
    tried: list[int] = []

    def begin(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        tried.append(len(given["input_ids"]))

    def full(_module: Any, _args: Any) -> None:
        if tried[-1] > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    hooks = [
        model.module.register_forward_pre_hook(begin, with_kwargs=True),
        model.projections[-1].register_forward_pre_hook(
            full
        ),  # by then the layers below have been seen
    ]
    try:
        yield tried
    finally:
        for hook in hooks:
            hook.remove()


def evaluator(family: str = "bert", **options: Any) -> Evaluator:
    return Evaluator(
        tiny_model(family, tokenizer=tiny_tokenizer()), tiny_task(), "xx", "dev", 24, **options
    )


def mask_of(model: Model, seed: int = 1) -> Mask:
    kept = np.random.default_rng(seed).random(model.grid.size) < 0.6
    return Mask(model.grid, kept, {"name": model.name, "fingerprint": model.fingerprint})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("ablation", ["zero", "mean"])
@pytest.mark.filterwarnings("default:this mask removes")
def test_accuracy_is_the_same_from_smaller_batches(family: str, rows: int, ablation: str) -> None:
    whole_room = evaluator(family)
    little_room = evaluator(family)
    with room_for(little_room.model, rows) as tried:
        for seed in (1, 2, 1):  # the second starts midway, from what the first has kept
            mask = mask_of(whole_room.model, seed)
            want = whole_room.evaluate(mask, ablation=ablation)
            got = little_room.evaluate(mask, ablation=ablation)
            assert_array_equal(got.predicted, want.predicted)
    assert max(tried) > rows
    assert little_room.forwards == whole_room.forwards  # a pass that failed is not counted


def test_batches_that_did_not_fit_stay_small() -> None:
    small = evaluator()
    with room_for(small.model, 4) as tried:
        small.evaluate(mask_of(small.model, 1))
        first = len(tried)
        small.evaluate(mask_of(small.model, 2))
    assert max(tried[:first]) == 16  # the first figure is on so many
    assert max(tried[first:]) == 4


@pytest.mark.usefixtures("one_lane")
def test_layer_inputs_kept_for_the_next_mask_are_given_back_first() -> None:
    kept = evaluator(batch_size=8)
    kept.evaluate(mask_of(kept.model, 1))
    assert kept.bytes > 0
    held: list[int] = []
    kept.tick = lambda: held.append(kept.bytes)
    with room_for(kept.model, 4):
        kept.evaluate(mask_of(kept.model, 2))
    assert held[0] == 0


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_rows_of_coalitions_are_the_same_from_smaller_batches(
    ablation: str, rng: np.random.Generator
) -> None:
    big = evaluator()
    small = evaluator()
    rows = rng.integers(24, size=40)
    gates = big.model.grid.gates(rng.random((40, big.model.grid.size)) < 0.6)
    want = big.correct(gates, rows, ablation=ablation)
    with room_for(small.model, 3) as tried:
        assert_array_equal(small.correct(gates, rows, ablation=ablation), want)
    assert max(tried) > 3
    assert 0 < want.mean() < 1


@pytest.mark.parametrize("family", [*FAMILIES, "albert", "marian"])
def test_mean_outputs_are_the_same_from_smaller_batches(family: str) -> None:
    model = tiny_model(family)
    batches = [tiny_batch(model.module, (7, 5, 7, 3, 6), seed) for seed in (1, 2)]
    want = head_means(model, batches)
    with room_for(model, 2) as tried:
        assert_allclose(head_means(model, batches), want, atol=1e-12)
    assert max(tried) == 5


@pytest.mark.parametrize("family", FAMILIES)
def test_one_row_that_does_not_fit_is_said(family: str) -> None:
    none = evaluator(family)
    model = none.model
    with room_for(model, 0):
        with raises(FULL):
            none.evaluate()
        with raises(FULL):
            none.correct(model.grid.gates(np.ones((2, model.grid.size), bool)), np.array([0, 1]))
        with raises(FULL):
            none.fill("mean")
        with raises(FULL):
            attention_of_heads(model, none.tensors(np.array([3])), [Head("encoder", 2, 1)])
    assert none.evaluate().done  # and it goes on when there is room again


def test_other_errors_pass() -> None:
    rows = Rows(np.arange(4))
    tried = []

    def run(part: Rows) -> None:
        tried.append(part)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot"):
        run_halving([rows], run)
    assert tried == [rows]
    with pytest.raises(RuntimeError, match="shapes cannot"), memory_errors_explained():
        run(rows)


def test_parts_are_run_in_order_and_once() -> None:
    done: list[int] = []

    def run(part: Rows) -> None:
        if len(part.rows) > 2:
            raise MemoryError
        done.extend(part.rows.tolist())

    assert run_halving([Rows(np.arange(7)), Rows(np.arange(7, 9))], run)
    assert done == list(range(9))
    assert not run_halving([Rows(np.arange(2))], run)
