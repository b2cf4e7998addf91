"""Models without closed players, in memory: the masked model's outputs, with fewer weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support.expected_errors import raises
from support.players_by_hand import playing
from support.tiny_models import tiny_batch, tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.hooks import Model, gated
from headlab.masks import Mask
from headlab.shrink import parameters_of, shrink_players
from headlab.studies.savings import Savings
from headlab.studies.savings_run import measure


def mask_with(model: Model, *removed: str) -> Mask:
    names = [str(player) for player in model.grid.heads]
    kept = np.ones(len(names), bool)
    kept[[names.index(name) for name in removed]] = False
    return Mask(model.grid, kept, model.identity())


def logits(module: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return module(**batch).logits.clone()


# Parameters of the tiny models, whose states are 24 wide and whose layers have 32 neurons: an up
# projection has 24 weights a neuron, with a bias one more, and a down projection 24.
CASES = [
    ("bert", "neurons:2", ("encoder-neurons 1.0",), 16 * (24 + 1 + 24)),
    ("bert", "feed-forward", ("encoder-feed-forward 2.0",), 32 * (24 + 1 + 24)),
    ("bert", "heads,neurons:2", ("0.1", "encoder-neurons 0.1"), 4 * 24 * 6 + 18 + 16 * 49),
    ("llama", "neurons:2", ("decoder-neurons 0.1",), 16 * 3 * 24),
    ("gpt2", "neurons:2", ("decoder-neurons 1.1",), 48 * (24 + 1 + 24)),
    ("modernbert", "neurons:2", ("encoder-neurons 1.1",), 16 * 3 * 24),
    ("t5", "neurons:2", ("encoder-neurons 1.1", "decoder-neurons 0.0"), 2 * 16 * 2 * 24),
]


@pytest.mark.parametrize(("family", "players", "removed", "saved"), CASES)
def test_closed_neurons_and_heads_leave_the_weights(
    family: str, players: str, removed: tuple[str, ...], saved: int
) -> None:
    model = playing(tiny_model(family), players)
    mask = mask_with(model, *removed)
    smaller = shrink_players(model, mask)
    assert smaller.parameters_before - smaller.parameters_after == saved
    assert parameters_of(model.module) == smaller.parameters_before
    batch = tiny_batch(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    assert_allclose(logits(smaller.module, batch), want, atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_skipped_layers_leave_the_weights_whole(family: str) -> None:
    model = playing(tiny_model(family), "layers,neurons:2")
    stack = model.grid.stacks[0].base
    mask = mask_with(model, f"{stack}-layers 1.0", f"{stack}-neurons 1.0", f"{stack}-neurons 2.1")
    smaller = shrink_players(model, mask)
    layers = [
        module
        for module in model.module.modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == 3
    ]
    layer = parameters_of(layers[0][1])
    assert smaller.parameters_before - smaller.parameters_after > layer
    batch = tiny_batch(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    assert_allclose(logits(smaller.module, batch), want, atol=1e-6)


def test_heads_of_families_that_are_not_written_are_refused() -> None:
    model = playing(tiny_model("deberta-v2"), "heads,neurons:2")
    with raises("shrink.family_unknown"):
        shrink_players(model, mask_with(model, "0.0"))
    mask = mask_with(model, "encoder-neurons 0.0", "encoder-neurons 1.1")
    smaller = shrink_players(model, mask)
    batch = tiny_batch(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    assert_allclose(logits(smaller.module, batch), want, atol=1e-6)


def test_worth_counts_players_to_the_last_parameter() -> None:
    model = playing(tiny_model("bert", tokenizer=tiny_tokenizer()), "heads,neurons:2")
    mask = mask_with(model, "0.1", "encoder-neurons 0.1")
    task = tiny_task().with_languages(["xx"])
    savings = measure(model, mask, task=task, batch_sizes=(1,), rounds=6, examples=1)
    assert savings.shrunk is not None
    assert savings.refusal == ""
    assert savings.baseline.parameters - savings.shrunk.parameters == 4 * 24 * 6 + 18 + 16 * 49
    tokens = savings.baseline.tokens
    # Each neuron is multiplied by 24 weights up and by 24 down; a head has 6 columns.
    macs = tokens * (16 * 2 * 24 + 4 * 24 * 6) + 2 * 6 * tokens**2
    assert savings.baseline.macs - savings.shrunk.macs == macs
    assert any("of 18 players saves" in sentence for sentence in savings.sentences())
    assert Savings.from_json(savings.to_json()).sentences() == savings.sentences()
