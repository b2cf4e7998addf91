"""Players of any kind in twenty and more model types: closed gates equal zeroed weights."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.expected_errors import raises
from support.players_by_hand import DOWNS, GROUPS, closed_by_hand, down_of, neuron_groups, playing
from support.tiny_models import tiny_batch, tiny_model

from headlab.core import PLAYER_KINDS, HeadGrid, read_players
from headlab.hooks import (
    ActiveGates,
    FanOut,
    LayerStates,
    Model,
    gated,
    gradient_by_gates,
    groups_by_importance,
    with_players,
)
from headlab.hooks.player_models import parts_of

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import families

OTHER_KINDS = ("kv-groups", "attention", "feed-forward", "neurons:2", "layers")
JOINED = "heads,attention,feed-forward,neurons:2,layers"
Batch = dict[str, torch.Tensor]


@cache
def model_of(kind: str) -> Model:
    """A tiny model of a type, in doubles where it can compute with them."""
    if kind == "marian":  # which tools/families.py makes as a decoder alone
        return tiny_model(kind)
    module = families.tiny_model(kind)
    return families.gateable_model(module if kind in IN_FLOATS else module.double())


def batch_of(model: Model) -> Batch:
    """A padded batch; classifiers with a decoder read the end of a sentence, each one."""
    if not model.module.config.is_encoder_decoder:
        return tiny_batch(model.module)
    batch = tiny_batch(model.module, lengths=(7, 7, 7))
    batch["input_ids"][:, -1] = model.module.config.eos_token_id
    return batch | {"decoder_input_ids": batch["input_ids"].clone()}


def logits(model: Model, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return model.module(**batch).logits.clone()


REFUSED = {
    "mixtral": ("feed-forward", "players.no_feed_forward"),
    "mobilebert": ("feed-forward", "players.no_feed_forward"),
    "xlm": ("layers", "players.no_layers"),
    "bert": ("kv-groups", "players.no_kv_groups"),
}
IN_FLOATS = ("gptj", "mixtral")
SHARES_KEYS = ("llama", "mistral", "qwen2", "gemma2")
ALL_TYPES = sorted({*DOWNS, *REFUSED})


@pytest.fixture(params=ALL_TYPES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def kinds_of(kind: str) -> list[str]:
    """The kinds of players that a type should have."""
    kinds = [other for other in OTHER_KINDS if other != "kv-groups" or kind in SHARES_KEYS]
    if kind in REFUSED and kind not in DOWNS:
        kinds = [other for other in kinds if other not in ("feed-forward", "neurons:2")]
    if REFUSED.get(kind, ("", ""))[0] == "layers":
        kinds.remove("layers")
    return kinds


@pytest.mark.parametrize("kind", sorted(DOWNS))
def test_down_projections_are_those_of_the_architecture(kind: str) -> None:
    model = model_of(kind)
    parts = parts_of(model)
    assert parts.why_no_neurons == ""
    for layer, down in zip(parts.layers, parts.downs, strict=True):
        assert down is down_of(model, kind, layer.stack, layer.number), (kind, layer)


def test_every_type_has_its_players(kind: str) -> None:
    model = model_of(kind)
    for players in kinds_of(kind):
        grid = playing(model, players).grid
        assert grid.kinds == (players.partition(":")[0],)
        for stack in grid.stacks:
            layers = model.grid.stack(stack.base).layers
            assert stack.layers == layers
            expected = {"kv-groups": 2, "neurons": GROUPS}.get(stack.kind, 1)
            assert stack.heads == (expected,) * layers, (kind, players)


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_a_type_lacks_is_refused_with_the_reason(kind: str) -> None:
    players, code = REFUSED[kind]
    with raises(code, kind):
        playing(model_of(kind), players)


def assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = 1e-9 if want.dtype == torch.float64 else 2e-4
    assert_allclose(got, want, atol=tolerance * float(1 + want.abs().max()))


@pytest.mark.parametrize("kind", sorted(set(DOWNS) - {"albert"}))
def test_closed_players_equal_zeroed_weights_row_by_row(kind: str) -> None:
    model = model_of(kind)
    players = playing(model, ",".join(["heads", *kinds_of(kind)]))
    grid = players.grid
    batch = batch_of(model)
    baseline = logits(model, batch)
    rng = np.random.default_rng(5)
    is_open = rng.random((3, grid.size)) < 0.75
    for row in range(3):  # of whole layers one at most, or nothing else is seen
        layers = [n for n, player in enumerate(grid.heads) if grid.kind_of(player) == "layers"]
        is_open[row, layers] = True
        if layers and row:
            is_open[row, rng.choice(layers)] = False
    with gated(players, grid.gates(is_open)):
        by_row = logits(model, batch)
    for row in range(3):
        closed = [player for player, kept in zip(grid.heads, is_open[row], strict=True) if not kept]
        with closed_by_hand(model, kind, closed):
            assert_close(by_row[row], logits(model, batch)[row])
        assert (by_row[row] - baseline[row]).abs().max() > 1e-7
    with gated(players, np.ones((grid.layers, grid.width))):
        assert torch.equal(logits(model, batch), baseline)
    assert torch.equal(logits(model, batch), baseline)


def test_a_part_closed_whole_is_all_of_its_members_closed(kind: str) -> None:
    model = model_of(kind)
    pairs = [("heads", "attention")]
    if "neurons:2" in kinds_of(kind):
        pairs.append(("neurons:2", "feed-forward"))
    batch = batch_of(model)
    for members, whole in pairs:
        of_members, of_whole = playing(model, members), playing(model, whole)
        layer = of_whole.grid.layers - 1
        got = []
        for variant in (of_members, of_whole):
            gates = np.ones((variant.grid.layers, variant.grid.width))
            gates[layer] = 0
            with gated(variant, gates):
                got.append(logits(model, batch))
        assert_close(got[0], got[1])


@pytest.mark.parametrize("kind", ["bert", "llama", "gpt2", "opt", "gemma2"])
def test_rows_that_start_midway_equal_full_passes(kind: str) -> None:
    model = model_of(kind)
    players = playing(model, ",".join(["heads", *kinds_of(kind)]))
    assert players.resumable
    grid = players.grid
    batch = batch_of(model)
    rng = np.random.default_rng(3)
    states = LayerStates(players.depth)
    gates = torch.ones(3, grid.layers, grid.width, dtype=torch.float64)
    with torch.no_grad(), players.active(ActiveGates(gates=gates, states=states)):
        model.module(**batch)
    for _ in range(8):
        rows, columns = grid.flat[rng.integers(grid.size, size=3)].T
        gates[np.arange(3), rows, columns] = 1 - gates[np.arange(3), rows, columns]
        states.begin(torch.as_tensor(players.layer_of_row[rows]))
        with torch.no_grad(), players.active(ActiveGates(gates=gates, states=states)):
            resumed = model.module(**batch).logits
        with gated(players, gates):
            assert_close(resumed, logits(model, batch))
    # Branches: each row is a copy of another from its player's layer on.
    order = np.argsort(players.layer_of_row[grid.flat[:, 0]], kind="stable")
    toggled_rows, toggled_columns = grid.flat[order].T
    start = np.concatenate([np.zeros(3, int), players.layer_of_row[toggled_rows]])
    origin = np.concatenate([np.arange(3), rng.integers(3, size=grid.size)])
    branch_gates = gates[origin]
    index = np.arange(3, len(origin))
    branch_gates[index, toggled_rows, toggled_columns] = (
        1 - branch_gates[index, toggled_rows, toggled_columns]
    )
    inputs = {name: tensor[torch.as_tensor(origin)] for name, tensor in batch.items()}
    with gated(players, branch_gates):
        want = logits(model, inputs)
    for first_token in {False, players.first_token}:
        fan_out = FanOut(start, origin, players.depth, first_token=first_token)
        active = ActiveGates(gates=branch_gates, states=fan_out)
        with torch.no_grad(), players.active(active):
            assert_close(model.module(**inputs).logits, want)


@pytest.mark.parametrize("kind", ["bert", "llama", "t5"])
def test_gradients_by_gates_of_players_are_those_of_finite_differences(kind: str) -> None:
    model = model_of(kind)
    players = playing(model, ",".join(["heads", *kinds_of(kind)]))
    grid = players.grid
    # Norms of the other types are of floats, whatever the model is of.
    step, tolerance = (1e-6, 1e-6) if kind == "bert" else (1e-3, 3e-3)
    batch = {name: tensor[:1] for name, tensor in batch_of(model).items()}
    rng = np.random.default_rng(2)
    gates = grid.gates(rng.uniform(0.3, 1, grid.size))[None]

    def objective(some_gates: torch.Tensor) -> torch.Tensor:
        with players.active(ActiveGates(gates=some_gates)):
            return model.module(**batch).logits.tanh().sum()

    tensor = torch.tensor(gates, requires_grad=True)
    slopes = gradient_by_gates(players, objective(tensor), tensor)[0]
    for row, column in grid.flat[rng.choice(grid.size, 12, replace=False)]:
        values = []
        for change in (step, -step):
            moved = gates.copy()
            moved[0, row, column] += change
            with torch.no_grad():
                values.append(float(objective(torch.tensor(moved))))
        assert_allclose(slopes[row, column], (values[0] - values[1]) / (2 * step), atol=tolerance)


def test_heads_are_gated_as_before_whatever_else_is_asked_for() -> None:
    model, untouched = tiny_model("bert"), tiny_model("bert")
    playing(model, JOINED)
    batch = batch_of(model)
    gates = np.random.default_rng(0).random((3, 3, 4)) < 0.6
    with gated(model, gates), gated(untouched, gates):
        assert torch.equal(logits(model, batch), logits(untouched, batch))
    assert torch.equal(logits(model, batch), logits(untouched, batch))
    assert model.grid == untouched.grid
    assert with_players(model, "heads") is model
    assert playing(model, "layers") is playing(model, "layers")
    assert playing(playing(model, "layers"), "heads") is model


@pytest.mark.parametrize(("kind", "family"), [("llama", "llama-lm"), ("marian", "marian")])
def test_generated_texts_are_those_of_zeroed_weights(kind: str, family: str) -> None:
    """Passes of one token, with keys and values of earlier ones kept."""
    model = tiny_model(family)
    players = playing(model, "heads,neurons:2,layers")
    grid = players.grid
    batch = tiny_batch(model.module, lengths=(5, 5))
    batch = {name: tensor for name, tensor in batch.items() if not name.startswith("decoder")}
    is_open = np.random.default_rng(7).random(grid.size) < 0.8
    kinds = [grid.kind_of(player) for player in grid.heads]
    is_open[[kind == "layers" for kind in kinds]] = True
    is_open[kinds.index("layers") + 1] = False
    closed = [player for player, kept in zip(grid.heads, is_open, strict=True) if not kept]
    settings = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2}
    with torch.no_grad(), gated(players, grid.gates(is_open)):
        got = model.module.generate(**batch, **settings)
    with torch.no_grad(), closed_by_hand(model, kind, closed):
        want = model.module.generate(**batch, **settings)
    with torch.no_grad():
        untouched = model.module.generate(**batch, **settings)
    assert torch.equal(got, want)
    assert got.shape != untouched.shape or not torch.equal(got, untouched)


def test_players_are_gated_in_every_thread_where_that_is_asked_for() -> None:
    model = tiny_model("bert")
    players = playing(model, "layers,neurons:2")
    batch = tiny_batch(model.module)
    gates = players.grid.gates(np.arange(players.grid.size) % 2)
    with gated(players, gates):
        want = logits(model, batch)
    with gated(players, gates, threads=True), ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(logits, model, batch).result(), want)
    assert not torch.equal(logits(model, batch), want)


def test_players_may_be_asked_for_where_gates_are_open() -> None:
    model = tiny_model("bert")
    batch = tiny_batch(model.module)
    with gated(model, np.zeros((3, 4))):
        want = logits(model, batch)
        layers = playing(model, "layers,neurons:2")
        assert torch.equal(logits(model, batch), want)
        with torch.inference_mode(), gated(layers, np.ones((6, 2))):
            untouched = logits(model, batch)  # the inner block alone holds
    assert torch.equal(logits(model, batch), untouched)


@pytest.mark.parametrize("kind", ["bert", "llama", "t5"])
def test_passes_of_other_threads_are_left_alone_while_players_are_made(kind: str) -> None:
    """A worker makes players for a request while the batches of a job run in other threads."""
    module = families.tiny_model(kind).double()
    model = families.gateable_model(module)
    batch = batch_of(model)
    baseline = logits(model, batch)
    this_thread = threading.get_ident()
    answers: list[torch.Tensor] = []
    with ThreadPoolExecutor(1) as pool:

        def run_another_pass(*_: object) -> None:
            if threading.get_ident() == this_thread:
                answers.append(pool.submit(logits, model, batch).result())

        hooks = [
            module.register_forward_pre_hook(run_another_pass),
            parts_of(model).downs[0].register_forward_pre_hook(run_another_pass),
        ]
        players = playing(model, ",".join(kinds_of(kind)))
        for hook in hooks:
            hook.remove()
    assert len(answers) > 8
    assert all(torch.equal(answer, baseline) for answer in answers)
    quiet = playing(
        families.gateable_model(families.tiny_model(kind).double()), str(players.players)
    )
    assert players.grid == quiet.grid
    assert players.resumable == quiet.resumable


def test_players_are_read_in_any_order_and_refused_with_what_fits() -> None:
    assert str(read_players("neurons:8, heads")) == "heads,neurons:8"
    assert read_players("heads").are_heads
    for text, code in {
        "neurons": "players.groups_invalid",
        "neurons:0": "players.groups_invalid",
        "neurons:-1": "players.groups_invalid",
        "neurons:1e3": "players.groups_invalid",
        "neurons:99999": "players.groups_invalid",
        "heads:4": "players.number_unused",
        "experts": "players.unknown",
        "": "players.unknown",
        "heads,heads": "players.twice",
    }.items():
        with raises(code):
            read_players(text)


def test_groups_must_be_the_models_and_means_are_of_heads() -> None:
    model = tiny_model("bert")
    with raises("players.groups_missing", "neurons:2"):
        with_players(model, "neurons:2")
    with raises("players.groups_mismatch", "32"):
        with_players(model, "neurons:2", ((0, 1),) * 3)
    with raises("players.groups_mismatch", "neurons:3"):
        with_players(model, "neurons:3", neuron_groups(model))
    with raises("players.too_many_groups", "neurons:33", 32):
        groups_by_importance([(0.0,) * 32] * 3, 33)
    layers = playing(model, "layers")
    means = torch.zeros(3, 4, 6, dtype=torch.float64)
    with raises("ablation.players"), gated(layers, np.ones((3, 1)), ablation="mean", means=means):
        pass


def test_groups_are_of_equal_size_and_in_the_order_of_importance() -> None:
    groups = groups_by_importance([(0.1, 0.9, 0.5, 0.5, 0.0)], 2)
    assert groups == ((1, 0, 0, 0, 1),)


def test_grids_of_players_are_written_and_read_back() -> None:
    grid = playing(tiny_model("bert"), JOINED).grid
    assert grid.kinds == tuple(kind for kind in PLAYER_KINDS if kind != "kv-groups")
    shuffled = dict(sorted(grid.to_json().items()))
    assert HeadGrid.from_json(shuffled, grid.members_json()) == grid
    assert HeadGrid.from_json(grid.to_json()) != grid  # without the groups' neurons
    for members in ({"encoder": [[0]]}, {"encoder-neurons": [[0, 1]]}, 3, {"encoder-neurons": 1}):
        with pytest.raises(TypeError):
            HeadGrid.from_json(grid.to_json(), members)
    assert HeadGrid.from_json({"cross": [1], "mine-layers": [2], "encoder": [3]}).has_only_heads
