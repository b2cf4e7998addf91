"""A device whose memory is full: batches halve until they fit, and nothing else changes.

Where even one row does not fit, the error says so.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.full_memory import EXAMPLE_TOO_LARGE, FAMILIES, evaluator, room_for
from support.tiny_models import tiny_batch, tiny_model

from headlab.core import Head
from headlab.core.parallel import Rows, memory_errors_explained, run_halving
from headlab.hooks import Model, attention_of_heads, head_means
from headlab.masks import Mask


def mask_of(model: Model, seed: int = 1) -> Mask:
    kept_heads = np.random.default_rng(seed).random(model.grid.size) < 0.6
    return Mask(model.grid, kept_heads, {"name": model.name, "fingerprint": model.fingerprint})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("ablation", ["zero", "mean"])
@pytest.mark.filterwarnings("default:this mask removes")
def test_accuracy_is_the_same_from_smaller_batches(family: str, rows: int, ablation: str) -> None:
    ample_memory = evaluator(family)
    little_memory = evaluator(family)
    with room_for(little_memory.model, rows) as sizes:
        for seed in (1, 2, 1):  # the second starts midway, from what the first has stored
            mask = mask_of(ample_memory.model, seed)
            predictions = ample_memory.evaluate(mask, ablation=ablation).predicted
            assert_array_equal(
                little_memory.evaluate(mask, ablation=ablation).predicted, predictions
            )
    assert max(sizes) > rows
    assert little_memory.forwards == ample_memory.forwards  # a pass that failed is not counted


def test_batches_that_did_not_fit_stay_small() -> None:
    little_memory = evaluator()
    with room_for(little_memory.model, 4) as sizes:
        little_memory.evaluate(mask_of(little_memory.model, 1))
        count = len(sizes)
        little_memory.evaluate(mask_of(little_memory.model, 2))
    assert max(sizes[:count]) == 16  # the first figure is on so many
    assert max(sizes[count:]) == 4


@pytest.mark.usefixtures("one_lane")
def test_layer_inputs_kept_for_the_next_mask_are_given_back_first() -> None:
    with_stored_inputs = evaluator(batch_size=8)
    with_stored_inputs.evaluate(mask_of(with_stored_inputs.model, 1))
    assert with_stored_inputs.bytes > 0
    stored_bytes: list[int] = []
    with_stored_inputs.tick = lambda: stored_bytes.append(with_stored_inputs.bytes)
    with room_for(with_stored_inputs.model, 4):
        with_stored_inputs.evaluate(mask_of(with_stored_inputs.model, 2))
    assert stored_bytes[0] == 0


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_rows_of_coalitions_are_the_same_from_smaller_batches(
    ablation: str, rng: np.random.Generator
) -> None:
    ample_memory = evaluator()
    little_memory = evaluator()
    rows = rng.integers(24, size=40)
    grid = ample_memory.model.grid
    gates = grid.gates(rng.random((40, grid.size)) < 0.6)
    correct = ample_memory.correct(gates, rows, ablation=ablation)
    with room_for(little_memory.model, 3) as sizes:
        assert_array_equal(little_memory.correct(gates, rows, ablation=ablation), correct)
    assert max(sizes) > 3
    assert 0 < correct.mean() < 1


@pytest.mark.parametrize("family", [*FAMILIES, "albert", "marian"])
def test_mean_outputs_are_the_same_from_smaller_batches(family: str) -> None:
    model = tiny_model(family)
    batches = [tiny_batch(model.module, (7, 5, 7, 3, 6), seed) for seed in (1, 2)]
    means = head_means(model, batches)
    with room_for(model, 2) as sizes:
        assert_allclose(head_means(model, batches), means, atol=1e-12)
    assert max(sizes) == 5


@pytest.mark.parametrize("family", FAMILIES)
def test_one_row_that_does_not_fit_is_said(family: str) -> None:
    no_memory = evaluator(family)
    model = no_memory.model
    gates = model.grid.gates(np.ones((2, model.grid.size), bool))
    with room_for(model, 0):
        with raises(EXAMPLE_TOO_LARGE):
            no_memory.evaluate()
        with raises(EXAMPLE_TOO_LARGE):
            no_memory.correct(gates, np.array([0, 1]))
        with raises(EXAMPLE_TOO_LARGE):
            no_memory.fill("mean")
        with raises(EXAMPLE_TOO_LARGE):
            attention_of_heads(model, no_memory.tensors(np.array([3])), [Head("encoder", 2, 1)])
    assert no_memory.evaluate().is_complete  # it goes on when there is memory again


def test_other_errors_pass() -> None:
    rows = Rows(np.arange(4))
    parts = []

    def run(part: Rows) -> None:
        parts.append(part)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot"):
        run_halving([rows], run)
    assert parts == [rows]
    with pytest.raises(RuntimeError, match="shapes cannot"), memory_errors_explained():
        run(rows)


def test_parts_are_run_in_order_and_once() -> None:
    rows: list[int] = []

    def run(part: Rows) -> None:
        if len(part.rows) > 2:
            raise MemoryError
        rows.extend(part.rows.tolist())

    assert run_halving([Rows(np.arange(7)), Rows(np.arange(7, 9))], run)
    assert rows == list(range(9))
    assert not run_halving([Rows(np.arange(2))], run)
