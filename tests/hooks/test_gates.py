"""Gates on real architectures: ones change nothing, zeros zero columns, rows keep to themselves."""

from __future__ import annotations

import threading

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

ALL = sorted(FAMILIES)


@pytest.fixture(scope="module", params=ALL)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(family: str) -> Model:
    return tiny_model(family)


@pytest.fixture(scope="module")
def batch(model: Model) -> dict[str, torch.Tensor]:
    return tiny_batch(model.module)


def logits(model: Model, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return model.module(**batch).logits.clone()


def ones(model: Model) -> np.ndarray:
    return np.ones((model.grid.layers, model.grid.width))


def test_ones_equal_the_untouched_model(
    family: str, model: Model, batch: dict[str, torch.Tensor]
) -> None:
    with torch.no_grad():
        untouched = tiny_module(family)(**batch).logits
    with gated(model, ones(model)):
        assert_allclose(logits(model, batch), untouched, atol=1e-12)


def test_each_zero_equals_zeroed_columns(model: Model, batch: dict[str, torch.Tensor]) -> None:
    for row, column in model.grid.flat:
        gates = ones(model)
        gates[row, column] = 0
        if sum(p is model.projections[row] for p in model.projections) > 1:
            gates[:, column] = (
                0  # a shared projection has its columns zeroed for all layers at once
            )
        with gated(model, gates):
            got = logits(model, batch)
        projection = model.projections[row]
        inputs = 1 if isinstance(projection, torch.nn.Linear) else 0
        heads = [n for s in model.grid.stacks for n in s.heads][row]
        width = projection.weight.shape[inputs] // heads
        saved = projection.weight.detach().clone()
        with torch.no_grad():
            projection.weight.narrow(inputs, int(column) * width, width).zero_()
        want = logits(model, batch)
        with torch.no_grad():
            projection.weight.copy_(saved)
        assert_allclose(got, want, atol=1e-10)


def test_a_closed_gate_matters(model: Model, batch: dict[str, torch.Tensor]) -> None:
    whole = logits(model, batch)
    with gated(model, np.zeros_like(ones(model))):
        assert (logits(model, batch) - whole).abs().max() > 1e-6


def test_rows_equal_row_by_row(
    model: Model, batch: dict[str, torch.Tensor], rng: np.random.Generator
) -> None:
    gates = rng.random((3, *ones(model).shape)) < 0.6
    with gated(model, gates):
        together = logits(model, batch)
    for row in range(3):
        with gated(model, gates[row]):
            assert_allclose(together[row], logits(model, batch)[row], atol=1e-12)


def test_undone_after_an_exception(model: Model, batch: dict[str, torch.Tensor]) -> None:
    whole = logits(model, batch)
    with pytest.raises(ZeroDivisionError), gated(model, np.zeros_like(ones(model))):
        _ = 1 / 0
    assert torch.equal(logits(model, batch), whole)


@pytest.mark.filterwarnings("ignore::headlab.core.errors.UngatedPassWarning")
def test_two_threads_never_mix(
    model: Model, batch: dict[str, torch.Tensor], rng: np.random.Generator
) -> None:
    masks = [rng.random(ones(model).shape) < 0.5 for _ in range(2)]
    want = []
    for mask in masks:
        with gated(model, mask):
            want.append(logits(model, batch))
    barrier = threading.Barrier(3)
    wrong = []

    def use(index: int | None) -> None:
        barrier.wait()
        for _ in range(8):
            if index is None:
                wrong.append(not torch.allclose(logits(model, batch), whole, atol=1e-12))
            else:
                with gated(model, masks[index]):
                    wrong.append(not torch.allclose(logits(model, batch), want[index], atol=1e-12))

    whole = logits(model, batch)
    threads = [threading.Thread(target=use, args=(i,)) for i in (0, 1, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 24
    assert not any(wrong)


def test_weights_equal_eager_attention(
    family: str, model: Model, batch: dict[str, torch.Tensor]
) -> None:
    eager = tiny_module(family)
    if family not in ("deberta-v2", "xlm", "bloom"):
        eager.set_attn_implementation("eager")
    with torch.no_grad():
        out = eager(**batch, output_attentions=True)
    names = {
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    }
    want = [w for s in model.grid.stacks for w in (out.get(names[s.name]) or out["attentions"])]
    found: dict[int, torch.Tensor] = {}
    sum_weights(model, batch, lambda row, weights: found.__setitem__(row, weights))
    assert sorted(found) == list(range(model.grid.layers))
    for row, weights in enumerate(want):
        assert_allclose(found[row][0], weights[0], atol=1e-6)
    head = model.grid.heads[-1]
    one = {k: v[:1] for k, v in batch.items()}
    assert_allclose(attention_of_heads(model, one, [head])[head], want[-1][0, head.head], atol=1e-6)


def test_mean_ablation_of_a_constant_head_changes_nothing(
    model: Model, batch: dict[str, torch.Tensor]
) -> None:
    """With means taken over one token position, replacing by the mean keeps what is already the mean."""
    means = head_means(model, [batch])
    gates = ones(model)
    gates[0, 0] = 0
    with gated(model, gates, ablation="mean", means=means):
        mean = logits(model, batch)
    with gated(model, gates):
        zero = logits(model, batch)
    assert means[0, 0].abs().max() > 0
    assert (mean - zero).abs().max() > 1e-9


def test_resumed_rows_equal_full_passes(
    model: Model, batch: dict[str, torch.Tensor], rng: np.random.Generator
) -> None:
    if not model.resumable:
        pytest.skip(
            "layers of this architecture are not separate modules in one list that give plain tensors"
        )
    states = LayerStates(model.grid.layers)
    gates = torch.ones(3, *ones(model).shape, dtype=torch.float64)
    with torch.no_grad(), model.active(ActiveGates(gates=gates, states=states)):
        model.module(**batch)
    for _ in range(6):
        flat = model.grid.flat[rng.integers(model.grid.size, size=3)]
        gates[np.arange(3), flat[:, 0], flat[:, 1]] = 0
        states.begin(torch.as_tensor(flat[:, 0]))
        with torch.no_grad(), model.active(ActiveGates(gates=gates, states=states)):
            resumed = model.module(**batch).logits
        with gated(model, gates):
            assert_allclose(resumed, logits(model, batch), atol=1e-10)


def branches(
    model: Model, rng: np.random.Generator, rows: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that branch off at random layers, off the batch's own or off earlier branches: starts, origins, gates."""
    start = np.concatenate(
        [np.zeros(rows, int), np.sort(rng.integers(model.grid.layers, size=count))]
    )
    origin = np.arange(rows + count)
    gates = rng.random((rows + count, *ones(model).shape)) < 0.7
    for row in range(rows, rows + count):
        before = np.count_nonzero(start < start[row]) or rows
        origin[row] = rng.integers(before)
        gates[row, : start[row]] = gates[origin[row], : start[row]]
    return start, origin, gates


@pytest.mark.parametrize("count", [0, 1, 9])
def test_branching_rows_equal_full_passes(
    model: Model, batch: dict[str, torch.Tensor], rng: np.random.Generator, count: int
) -> None:
    if not model.resumable:
        pytest.skip(
            "layers of this architecture are not separate modules in one list that give plain tensors"
        )
    start, origin, gates = branches(model, rng, 3, count)
    example = np.arange(len(origin))
    for row in range(3, len(origin)):
        example[row] = example[origin[row]]
    inputs = {name: value[torch.as_tensor(example)] for name, value in batch.items()}
    with gated(model, gates):
        want = logits(model, inputs)
    for first_token in {False, model.first_token}:
        how = FanOut(start, origin, model.grid.layers, first_token=first_token)
        with torch.no_grad(), model.active(ActiveGates(gates=torch.as_tensor(gates), states=how)):
            assert_allclose(model.module(**inputs).logits, want, atol=1e-12)
        assert how.rows is None


def test_a_branching_pass_runs_each_row_from_its_own_layer_on(rng: np.random.Generator) -> None:
    model = tiny_model("bert")
    given: list[int] = []
    hooks = [
        layer.register_forward_pre_hook(
            lambda _module, args, _kwargs: given.append(len(args[0])), with_kwargs=True
        )
        for layer in (module.intermediate for module in model.module.bert.encoder.layer)
    ]
    start = np.array([0, 0, 1, 1, 1, 2])
    batch = tiny_batch(model.module, lengths=(7, 5, 7, 7, 5, 5))
    gates = torch.ones(6, 3, 4, dtype=torch.float64)
    with (
        torch.no_grad(),
        model.active(
            ActiveGates(gates=gates, states=FanOut(start, np.array([0, 1, 0, 0, 1, 4]), 3))
        ),
    ):
        model.module(**batch)
    for hook in hooks:
        hook.remove()
    assert given == [2, 5, 6]


def test_a_branching_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model = tiny_model("bert")
    batch = tiny_batch(model.module)
    whole = logits(model, batch)
    how = FanOut(np.zeros(3, int), np.arange(3), 3)
    gates = torch.ones(2, 3, 4, dtype=torch.float64)
    with raises("gate.rows_mismatch", 2), model.active(ActiveGates(gates=gates, states=how)):
        logits(model, batch)
    assert how.rows is None
    assert torch.equal(logits(model, batch), whole)


def test_shapes_are_refused_before_anything_is_touched() -> None:
    model = tiny_model("bert")
    with raises("gate.shape_mismatch", "(2, 2)", "3×4"), gated(model, np.ones((2, 2))):
        pass
    other = Mask(model.grid, np.ones(12, bool), {"fingerprint": "f" * 64, "name": "another"})
    with raises("mask.other_model", "another"), gated(model, other):
        pass
    with raises("ablation.needs_means", "mean"), gated(model, ones(model), ablation="mean"):
        pass
    batch = tiny_batch(model.module)
    with raises("gate.rows_mismatch", 2), gated(model, np.ones((2, 3, 4))):
        logits(model, batch)


def test_self_test_stops_a_model_whose_gates_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def watch_only(
        context: torch.Tensor, active: ActiveGates, row: int, _heads: int
    ) -> torch.Tensor:
        if active.contexts is not None:
            active.contexts(row, context)
        return context

    monkeypatch.setattr("headlab.hooks.state.apply_gates", watch_only)
    with raises("model.closed_gate_differs", "BertFor"):
        make_gateable(Checkpoint("x", "", "x", tiny_module("bert"), None))


def test_gates_of_one_model_leave_another_alone() -> None:
    one = tiny_model("bert")
    two = tiny_model("bert", seed=1)
    assert isinstance(one.owner, Owner)
    batch = tiny_batch(two.module)
    whole = logits(two, batch)
    with gated(one, np.zeros((3, 4))):
        assert torch.equal(logits(two, batch), whole)
