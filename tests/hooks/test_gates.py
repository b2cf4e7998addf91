"""Gates on real architectures: ones change nothing, zeros zero columns, rows keep to themselves."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.expected_errors import raises
from support.tiny_models import FAMILIES, tiny_batch, tiny_model, tiny_module

from headlab.hooks import (
    ActiveGates,
    FanOut,
    LayerStates,
    Model,
    attention_of_heads,
    gated,
    head_means,
    make_gateable,
    sum_weights,
)
from headlab.hooks.state import Owner
from headlab.masks import Mask
from headlab.models.checkpoint import Checkpoint

# The inputs of a model, by name.
Batch = dict[str, torch.Tensor]
NOT_RESUMABLE = (
    "layers of this architecture are not separate modules in one list that give plain tensors"
)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(family: str) -> Model:
    return tiny_model(family)


@pytest.fixture(scope="module")
def batch(model: Model) -> Batch:
    return tiny_batch(model.module)


def logits(model: Model, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return model.module(**batch).logits.clone()


def ones(model: Model) -> np.ndarray:
    return np.ones((model.grid.layers, model.grid.width))


def test_gates_of_one_change_nothing(
    family: str,
    model: Model,
    batch: Batch,
) -> None:
    with torch.no_grad():
        baseline = tiny_module(family)(**batch).logits
    with gated(model, ones(model)):
        assert_allclose(logits(model, batch), baseline, atol=1e-12)


def test_each_zero_equals_zeroed_columns(model: Model, batch: Batch) -> None:
    heads_by_row = [heads for stack in model.grid.stacks for heads in stack.heads]
    for row, column in model.grid.flat:
        gates = ones(model)
        gates[row, column] = 0
        projection = model.projections[row]
        layers_of_projection = sum(
            layer_projection is projection for layer_projection in model.projections
        )
        if layers_of_projection > 1:  # its columns are zeroed for all these layers at once
            gates[:, column] = 0
        with gated(model, gates):
            got = logits(model, batch)
        input_axis = 1 if isinstance(projection, torch.nn.Linear) else 0
        head_width = projection.weight.shape[input_axis] // heads_by_row[row]
        original_weight = projection.weight.detach().clone()
        with torch.no_grad():
            columns = projection.weight.narrow(input_axis, int(column) * head_width, head_width)
            columns.zero_()
        want = logits(model, batch)
        with torch.no_grad():
            projection.weight.copy_(original_weight)
        assert_allclose(got, want, atol=1e-10)


def test_a_closed_gate_matters(model: Model, batch: Batch) -> None:
    baseline = logits(model, batch)
    with gated(model, np.zeros_like(ones(model))):
        difference = logits(model, batch) - baseline
    assert difference.abs().max() > 1e-6


def test_rows_equal_row_by_row(
    model: Model,
    batch: Batch,
    rng: np.random.Generator,
) -> None:
    gates = rng.random((3, *ones(model).shape)) < 0.6
    with gated(model, gates):
        logits_by_row = logits(model, batch)
    for row in range(3):
        with gated(model, gates[row]):
            assert_allclose(logits_by_row[row], logits(model, batch)[row], atol=1e-12)


def test_gates_are_undone_after_an_exception(model: Model, batch: Batch) -> None:
    baseline = logits(model, batch)
    with pytest.raises(ZeroDivisionError), gated(model, np.zeros_like(ones(model))):
        _ = 1 / 0
    assert torch.equal(logits(model, batch), baseline)


@pytest.mark.filterwarnings("ignore::headlab.core.errors.UngatedPassWarning")
def test_two_threads_never_mix(
    model: Model,
    batch: Batch,
    rng: np.random.Generator,
) -> None:
    first_gates = rng.random(ones(model).shape) < 0.5
    second_gates = rng.random(ones(model).shape) < 0.5
    with gated(model, first_gates):
        first_logits = logits(model, batch)
    with gated(model, second_gates):
        second_logits = logits(model, batch)
    baseline = logits(model, batch)
    barrier = threading.Barrier(3)
    is_wrong = []

    def use(gates: np.ndarray | None, want: torch.Tensor) -> None:
        barrier.wait()
        for _ in range(8):
            with nullcontext() if gates is None else gated(model, gates):
                is_wrong.append(not torch.allclose(logits(model, batch), want, atol=1e-12))

    threads = [
        threading.Thread(target=use, args=(first_gates, first_logits)),
        threading.Thread(target=use, args=(second_gates, second_logits)),
        threading.Thread(target=use, args=(None, baseline)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(is_wrong) == 24
    assert not any(is_wrong)


def test_weights_equal_eager_attention(
    family: str,
    model: Model,
    batch: Batch,
) -> None:
    eager = tiny_module(family)
    if family not in ("deberta-v2", "xlm", "bloom"):
        eager.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = eager(**batch, output_attentions=True)
    want: list[torch.Tensor] = []
    for stack in model.grid.stacks:
        want += outputs.get(f"{stack.name}_attentions") or outputs["attentions"]
    weights_by_row: dict[int, torch.Tensor] = {}
    sum_weights(model, batch, weights_by_row.__setitem__)
    assert sorted(weights_by_row) == list(range(model.grid.layers))
    for row, weights in enumerate(want):
        assert_allclose(weights_by_row[row][0], weights[0], atol=1e-6)
    head = model.grid.heads[-1]
    one_example = {name: tensor[:1] for name, tensor in batch.items()}
    weights_of_head = attention_of_heads(model, one_example, [head])[head]
    assert_allclose(weights_of_head, want[-1][0, head.head], atol=1e-6)


def test_mean_ablation_differs_from_zero_ablation(model: Model, batch: Batch) -> None:
    means = head_means(model, [batch])
    gates = ones(model)
    gates[0, 0] = 0
    with gated(model, gates, ablation="mean", means=means):
        logits_with_mean = logits(model, batch)
    with gated(model, gates):
        logits_with_zero = logits(model, batch)
    assert means[0, 0].abs().max() > 0
    assert (logits_with_mean - logits_with_zero).abs().max() > 1e-9


def test_resumed_rows_equal_full_passes(
    model: Model,
    batch: Batch,
    rng: np.random.Generator,
) -> None:
    if not model.resumable:
        pytest.skip(NOT_RESUMABLE)
    states = LayerStates(model.grid.layers, first_token=model.first_token)
    gates = torch.ones(3, *ones(model).shape, dtype=torch.float64)
    with torch.no_grad(), model.active(ActiveGates(gates=gates, states=states)):
        model.module(**batch)
    for _ in range(6):
        head_indices = rng.integers(model.grid.size, size=3)
        layers, columns = model.grid.flat[head_indices].T
        gates[np.arange(3), layers, columns] = 0
        states.begin(torch.as_tensor(layers))
        with torch.no_grad(), model.active(ActiveGates(gates=gates, states=states)):
            resumed_logits = model.module(**batch).logits
        with gated(model, gates):
            assert_allclose(resumed_logits, logits(model, batch), atol=1e-10)


def branches(
    model: Model,
    rng: np.random.Generator,
    rows: int,
    count: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that branch off at random layers, from rows of the batch or from earlier branches.

    Args:
        model: Whose layers and heads.
        rng: Decides on layers, origins and gates.
        rows: Rows of the batch.
        count: Branches.

    Returns:
        The first layer of each row, int [row]; the row that it branches off, int [row]; and its
        gates, bool [row, layer, head], below the first layer those of its origin.
    """
    branch_starts = np.sort(rng.integers(model.grid.layers, size=count))
    start = np.concatenate([np.zeros(rows, int), branch_starts])
    origin = np.arange(rows + count)
    gates = rng.random((rows + count, *ones(model).shape)) < 0.7
    for row in range(rows, rows + count):
        possible_origins = np.count_nonzero(start < start[row]) or rows
        origin[row] = rng.integers(possible_origins)
        first_layer = start[row]
        gates[row, :first_layer] = gates[origin[row], :first_layer]
    return start, origin, gates


@pytest.mark.parametrize("count", [0, 1, 9])
def test_branching_rows_equal_full_passes(
    model: Model,
    batch: Batch,
    rng: np.random.Generator,
    count: int,
) -> None:
    if not model.resumable:
        pytest.skip(NOT_RESUMABLE)
    start, origin, gates = branches(model, rng, 3, count)
    example = np.arange(len(origin))
    for row in range(3, len(origin)):
        example[row] = example[origin[row]]
    rows_of_batch = torch.as_tensor(example)
    inputs = {name: tensor[rows_of_batch] for name, tensor in batch.items()}
    with gated(model, gates):
        want = logits(model, inputs)
    for first_token in {False, model.first_token}:
        fan_out = FanOut(start, origin, model.grid.layers, first_token=first_token)
        active_gates = ActiveGates(gates=torch.as_tensor(gates), states=fan_out)
        with torch.no_grad(), model.active(active_gates):
            assert_allclose(model.module(**inputs).logits, want, atol=1e-12)
        assert fan_out.rows is None


def test_a_branching_pass_runs_each_row_from_its_own_layer_on(rng: np.random.Generator) -> None:
    model = tiny_model("bert")
    rows_by_layer: list[int] = []

    def count_rows(_module: object, args: tuple[torch.Tensor, ...]) -> None:
        rows_by_layer.append(len(args[0]))

    layers = model.module.bert.encoder.layer
    hooks = [layer.intermediate.register_forward_pre_hook(count_rows) for layer in layers]
    start = np.array([0, 0, 1, 1, 1, 2])
    origin = np.array([0, 1, 0, 0, 1, 4])
    batch = tiny_batch(model.module, lengths=(7, 5, 7, 7, 5, 5))
    gates = torch.ones(6, 3, 4, dtype=torch.float64)
    active_gates = ActiveGates(gates=gates, states=FanOut(start, origin, 3))
    with torch.no_grad(), model.active(active_gates):
        model.module(**batch)
    for hook in hooks:
        hook.remove()
    assert rows_by_layer == [2, 5, 6]


def test_a_branching_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model = tiny_model("bert")
    batch = tiny_batch(model.module)
    baseline = logits(model, batch)
    fan_out = FanOut(np.zeros(3, int), np.arange(3), 3)
    gates = torch.ones(2, 3, 4, dtype=torch.float64)
    with raises("gate.rows_mismatch", 2), model.active(ActiveGates(gates=gates, states=fan_out)):
        logits(model, batch)
    assert fan_out.rows is None
    assert torch.equal(logits(model, batch), baseline)


def test_shapes_are_refused_before_anything_is_touched() -> None:
    model = tiny_model("bert")
    with raises("gate.shape_mismatch", "(2, 2)", "3×4"), gated(model, np.ones((2, 2))):
        pass
    other_model = {"fingerprint": "f" * 64, "name": "another"}
    mask = Mask(model.grid, np.ones(12, bool), other_model)
    with raises("mask.other_model", "another"), gated(model, mask):
        pass
    with raises("ablation.needs_means", "mean"), gated(model, ones(model), ablation="mean"):
        pass
    batch = tiny_batch(model.module)
    with raises("gate.rows_mismatch", 2), gated(model, np.ones((2, 3, 4))):
        logits(model, batch)


def test_self_test_stops_a_model_whose_gates_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def watch_only(
        context: torch.Tensor,
        active: ActiveGates,
        row: int,
        _heads: int,
    ) -> torch.Tensor:
        if active.contexts is not None:
            active.contexts(row, context)
        return context

    monkeypatch.setattr("headlab.hooks.state.apply_gates", watch_only)
    with raises("model.closed_gate_differs", "BertFor"):
        make_gateable(
            Checkpoint(
                name="x",
                revision="",
                fingerprint="x",
                module=tiny_module("bert"),
                tokenizer=None,
            )
        )


def test_gates_of_one_model_leave_another_alone() -> None:
    gated_model = tiny_model("bert")
    other_model = tiny_model("bert", seed=1)
    assert isinstance(gated_model.owner, Owner)
    batch = tiny_batch(other_model.module)
    baseline = logits(other_model, batch)
    with gated(gated_model, np.zeros((3, 4))):
        assert torch.equal(logits(other_model, batch), baseline)
