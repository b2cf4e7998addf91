"""The All-attention Transformer: the paper's formula, gates, removed heads, and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
from support.expected_errors import raises
from support.synthetic_text import VOCAB, gateable_model, made_splits, tiny_lm
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

import headlab
from headlab.core import Head
from headlab.hooks import attention_of_heads, gated
from headlab.masks import Mask, full_mask
from headlab.models.allattention.modelling import (
    AllAttentionConfig,
    AllAttentionForCausalLM,
    parameter_counts,
    remove_heads,
)
from headlab.training.lm_text import make_tokenizer

SHAPES: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "max_position_embeddings": 12},
    {"pre_norm": False},
    {"persistent": 0, "feed_forward": 16},
    {"feed_forward": 16, "pre_norm": False},
]


def ids(
    rows: int = 2,
    tokens: int = 9,
    seed: int = 0,
) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.as_tensor(rng.integers(0, VOCAB, (rows, tokens)))


def assert_same_logits(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, atol=1e-9, rtol=0)


def parameters_of(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def logits(
    model: AllAttentionForCausalLM, token_ids: torch.Tensor, **options: torch.Tensor
) -> torch.Tensor:
    with torch.no_grad():
        outputs = model(token_ids, **options)
    result: torch.Tensor = outputs.logits
    return result


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"positions": "learned", "max_position_embeddings": 12},
        {"persistent": 0},
    ],
)
def test_attention_is_the_papers_sum_over_tokens_and_persistent_vectors(
    shape: dict[str, Any], implementation: str
) -> None:
    model = tiny_lm(**shape)
    model.set_attn_implementation(implementation)
    attention = model.model.layers[1].attention
    hidden = torch.randn(9, 24, generator=torch.manual_seed(1)).double()
    visible = torch.ones(9, 9, dtype=torch.bool).tril()
    with torch.no_grad():
        outputs = attention(hidden[None], visible[None, None])
    got = outputs[0].numpy()
    weights = {}
    for name in ("query", "key", "value", "out"):
        layer = getattr(attention, name)
        weights[name] = layer.weight.detach().numpy()
    no_vectors = np.zeros((3, 0, 6))
    vectors = (no_vectors, no_vectors)
    if model.config.persistent:
        keys = attention.persistent_keys.detach().numpy()
        values = attention.persistent_values.detach().numpy()
        vectors = (keys * 6**0.5, values * 5**0.5)
    distances = None
    if model.config.positions == "relative":
        distances = attention.distances.detach().numpy()
    want = reference.all_attention(
        hidden.numpy(),
        weights,
        3,
        distances,
        vectors,
    )
    np.testing.assert_allclose(got, want, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_token_sees_what_comes_after_it_nor_padding(shape: dict[str, Any]) -> None:
    model = tiny_lm(**shape)
    token_ids = ids()
    want = logits(model, token_ids)[:, :6]
    with_other_end = token_ids.clone()
    with_other_end[:, 6:] = 3
    got = logits(model, with_other_end)[:, :6]
    torch.testing.assert_close(got, want)
    mask = torch.ones_like(token_ids)
    mask[:, 6:] = 0
    with_padded_end = logits(model, token_ids, attention_mask=mask)
    got = with_padded_end[:, :6]
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_before_a_text_changes_nothing(shape: dict[str, Any]) -> None:
    model = tiny_lm(**shape)
    token_ids = ids(tokens=6)
    padding = torch.zeros(2, 3, dtype=torch.long)
    padded_ids = torch.cat([padding, token_ids], dim=1)
    mask = torch.ones_like(padded_ids)
    mask[:, :3] = 0
    got = logits(model, padded_ids, attention_mask=mask)[:, 3:]
    torch.testing.assert_close(got, logits(model, token_ids))


def test_the_loss_is_of_the_tokens_that_follow() -> None:
    model = tiny_lm()
    token_ids = ids()
    labels = token_ids.clone()
    labels[0, 3] = -100
    with torch.no_grad():
        outputs = model(token_ids, labels=labels)
    logits_before_last = outputs.logits[:, :-1].flatten(0, 1)
    next_labels = labels[:, 1:].flatten()
    want = cross_entropy(logits_before_last, next_labels)
    torch.testing.assert_close(outputs.loss, want)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_head_is_found_and_its_gate_has_a_gradient(shape: dict[str, Any]) -> None:
    model = gateable_model(tiny_lm(**shape))
    assert model.grid.to_json() == {"decoder": [4, 3, 4]}
    gates = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    with gated(model, gates):
        outputs = model.module(ids())
        outputs.logits.square().mean().backward()
    assert gates.grad is not None
    assert (gates.grad[0].abs() > 1e-9).all()
    assert gates.grad[1, 3] == 0  # there is no such head


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES)
def test_heads_removed_for_good_answer_as_with_their_gates_closed(
    shape: dict[str, Any], seed: int
) -> None:
    module = tiny_lm(**shape)
    model = gateable_model(module)
    rng = np.random.default_rng(seed)
    kept_heads = rng.random(11) < 0.5
    if seed == 0:  # a whole layer is removed
        kept_heads[:4] = False
    mask = Mask(model.grid, kept_heads)
    with gated(model, mask):
        want = logits(module, ids())
    smaller = remove_heads(module, mask)
    got = logits(smaller, ids())
    assert_same_logits(got, want)
    difference = got - logits(module, ids())
    assert difference.abs().max() > 1e-3
    layers = np.split(kept_heads, [4, 7])
    heads_by_layer = [kept_in_layer.sum() for kept_in_layer in layers]
    assert smaller.config.heads_per_layer == heads_by_layer
    assert parameters_of(smaller) == parameter_counts(smaller.config).total


def test_attention_is_shown_to_tokens_only_and_the_rest_goes_to_persistent_vectors() -> None:
    head = Head("decoder", 1, 2)

    def weights(module: AllAttentionForCausalLM) -> torch.Tensor:
        model = gateable_model(module)
        inputs = {"input_ids": ids(1)}
        return attention_of_heads(model, inputs, [head])[head]

    with_vectors = weights(tiny_lm())
    assert with_vectors.shape == (9, 9)
    assert (with_vectors.triu(1) == 0).all()
    assert (with_vectors.sum(dim=1) < 0.999).all()
    without_vectors = weights(tiny_lm(persistent=0))
    torch.testing.assert_close(without_vectors.sum(dim=1), torch.ones(9))


def test_heads_are_removed_again_from_a_model_that_lost_a_layer() -> None:
    module = tiny_lm()
    grid = gateable_model(module).grid
    without_first_layer = Mask(grid, np.arange(11) >= 4)
    smaller = remove_heads(module, without_first_layer)
    model = gateable_model(smaller)
    assert model.grid.to_json() == {"decoder": [3, 4]}
    mask = Mask(model.grid, np.arange(7) != 2)
    with gated(model, mask):
        want = logits(smaller, ids())
    still_smaller = remove_heads(smaller, mask)
    assert_same_logits(logits(still_smaller, ids()), want)


def test_the_kept_heads_of_a_layer_are_multiplied_where_outputs_are_scaled() -> None:
    module = tiny_lm()
    model = gateable_model(module)
    kept_heads = np.array([1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1], bool)
    mask = Mask(model.grid, kept_heads)
    gates_of_mask = model.grid.gates(mask.kept.astype(float))
    gates = torch.as_tensor(gates_of_mask)
    scale_by_layer = torch.tensor([4 / 1, 3 / 2, 1.0], dtype=torch.float64)
    with gated(model, gates * scale_by_layer[:, None]):
        want = logits(module, ids())
    smaller = remove_heads(module, mask, rescale=True)
    assert_same_logits(logits(smaller, ids()), want)


def test_a_removed_head_takes_its_persistent_vectors_and_a_share_of_the_parameters_along() -> None:
    module = tiny_lm((4, 4))
    grid = gateable_model(module).grid
    two_of_four = np.arange(8) % 4 < 2
    smaller = remove_heads(module, Mask(grid, two_of_four))
    attention = smaller.model.layers[0].attention
    assert attention.persistent_keys.shape == (2, 5, 6)
    counts_before = parameter_counts(module.config)
    counts_after = parameter_counts(smaller.config)
    removed_parameters = counts_before.layers - counts_after.layers
    assert removed_parameters == 4 * counts_before.head
    assert counts_before.head == 4 * 24 * 6 + 2 * 5 * 6


def test_a_mask_of_another_model_is_refused() -> None:
    grid = gateable_model(tiny_lm((4, 4))).grid
    with raises("mask.other_grid", "2×4"):
        remove_heads(tiny_lm((4, 3)), full_mask(grid))


@pytest.mark.parametrize("shape", SHAPES)
def test_parameters_are_counted_without_making_the_model(shape: dict[str, Any]) -> None:
    module = tiny_lm((3, 0, 2), **shape)
    counts = parameter_counts(module.config)
    assert counts.total == parameters_of(module)
    assert counts.layers == parameters_of(module.model.layers)


def test_an_ordinary_transformer_of_the_same_numbers_is_as_large() -> None:
    ours = parameter_counts(AllAttentionConfig(persistent=512))
    plain = parameter_counts(AllAttentionConfig(persistent=0, feed_forward=512))
    assert abs(plain.layers / ours.layers - 1) < 0.01


def test_a_folder_is_read_by_headlab_and_by_transformers(tmp_path: Path) -> None:
    module = torch.nn.Module.to(tiny_lm((2, 0, 3)), dtype=torch.float32)
    module.save_pretrained(tmp_path / "model")
    tokenizer = make_tokenizer(made_splits()["train"], "word", 30)
    tokenizer.save_pretrained(tmp_path / "model")
    model = headlab.load(str(tmp_path / "model"), device="cpu")
    assert model.grid.to_json() == {"decoder": [2, 3]}
    want = logits(module, ids())
    torch.testing.assert_close(logits(model.module, ids()), want)  # type: ignore[arg-type]
    read_by_transformers = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert read_by_transformers.config.heads_per_layer == [2, 0, 3]
    torch.testing.assert_close(logits(read_by_transformers, ids()), want)


def test_a_folder_whose_sizes_are_not_its_weights_is_refused(tmp_path: Path) -> None:
    tiny_lm((2, 3)).save_pretrained(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config_text = config.read_text()
    assert '"persistent": 5' in config_text
    config.write_text(config_text.replace('"persistent": 5', '"persistent": 6'))
    with raises("model.weights_missing"):
        headlab.load(str(tmp_path / "model"))
    config.write_text(config_text.replace('"persistent": 5', '"persistent": "many"'))
    with raises("model.config_number_invalid"):
        headlab.load(str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"heads_per_layer": []}, ("model.config_heads_invalid",)),
        ({"heads_per_layer": [2, -1]}, ("model.config_heads_invalid",)),
        ({"head_size": 0}, ("model.config_number_invalid", 1)),
        ({"persistent": -1}, ("model.config_number_invalid", 0)),
        ({"positions": "sinusoid"}, ("model.config_positions_unknown", "relative", "learned")),
        ({"dropout": 1.0}, ("model.config_dropout_invalid", 1)),
    ],
)
def test_sizes_that_make_no_model_are_refused_with_what_fits(
    options: dict[str, Any], refusal: tuple[object, ...]
) -> None:
    with raises(*refusal):
        AllAttentionConfig(**options)


def test_learned_positions_refuse_a_longer_text() -> None:
    model = tiny_lm(positions="learned")
    with raises("model.text_too_long", 9, 6):
        logits(model, ids())
    mask = torch.ones_like(ids())
    mask[:, :3] = 0  # of nine tokens, six remain
    assert logits(model, ids(), attention_mask=mask).isfinite().all()
