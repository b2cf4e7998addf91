"""Heads taken out of the weights: the smaller model answers as the masked one, in every family."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from reference import parameters_of_attention
from support.expected_errors import raises
from support.saved_models import save_model
from support.shrunk_families import (
    SHRINKABLE,
    all_attention_model,
    logits,
    mask_of,
    random_model,
    uneven_mask,
)
from support.tiny_models import tiny_batch, tiny_model
from support.tiny_task import tiny_tokenizer

from headlab.hooks import gated
from headlab.masks import combine_masks, full_mask
from headlab.models.load import read_folder
from headlab.shrink import shrink_model

CLOSE = {"atol": 1e-9, "rtol": 0}


def copy_of_weights(module):
    weights = module.state_dict()
    return {name: weight.clone() for name, weight in weights.items()}


def assert_same_weights(module, weights):
    assert module.state_dict().keys() == weights.keys()
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, weights[name]), name


@pytest.mark.parametrize("family", SHRINKABLE)
def test_masked_shrunk_and_reloaded_models_answer_alike(family, tmp_path):
    model = random_model(family)
    mask = uneven_mask(model)
    batch = tiny_batch(model.module)
    weights_before = copy_of_weights(model.module)
    with gated(model, mask):
        masked_logits = logits(model.module, batch)
    difference = logits(model.module, batch) - masked_logits
    mask_changes = difference.abs().max()
    assert mask_changes > 1e-3
    shrunk = shrink_model(model, mask)
    shrunk_logits = logits(shrunk.module, batch)
    torch.testing.assert_close(shrunk_logits, masked_logits, **CLOSE)
    folder = tmp_path / "m"
    save_model(folder, shrunk.module, tiny_tokenizer())
    reloaded_module = read_folder(folder, "folder", "m").module
    reloaded_logits = logits(reloaded_module, batch)
    torch.testing.assert_close(reloaded_logits, masked_logits, **CLOSE)
    assert shrunk.parameters_after < shrunk.parameters_before
    parameters = sum(parameter.numel() for parameter in reloaded_module.parameters())
    assert parameters == shrunk.parameters_after
    assert_same_weights(model.module, weights_before)
    # the shrunk model shares no weight with its model
    shrunk_weights = shrunk.module.state_dict()
    other_weights = {name: weight + 1 for name, weight in shrunk_weights.items()}
    shrunk.module.load_state_dict(other_weights)
    assert_same_weights(model.module, weights_before)


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "llama", "mbart"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_shrunk_model_runs_with_any_attention_function(family, implementation):
    model = random_model(family)
    mask = uneven_mask(model, seed=3)
    batch = tiny_batch(model.module)
    with gated(model, mask):
        masked_logits = logits(model.module, batch)
    module = shrink_model(model, mask).module
    module.set_attn_implementation(implementation)
    # the eager attention of some families takes the softmax in float32
    tolerance = 1e-5 if implementation == "eager" else 1e-9
    shrunk_logits = logits(module, batch)
    torch.testing.assert_close(shrunk_logits, masked_logits, atol=tolerance, rtol=0)


def test_removed_parameters_are_as_counted_by_hand():
    model = random_model("bert")
    mask = uneven_mask(model)
    counts = mask.kept.reshape(3, 4).sum(1)
    heads_by_layer = [int(count) for count in counts]
    assert len(set(heads_by_layer)) == 3
    shrunk = shrink_model(model, mask)
    parameters_before = 3 * parameters_of_attention(24, 6, 4)
    parameters_after = 0
    for head_count in heads_by_layer:
        parameters_after += parameters_of_attention(24, 6, head_count)
    removed_parameters = parameters_before - parameters_after
    assert shrunk.parameters_before - shrunk.parameters_after == removed_parameters
    assert shrunk.removed_count == len(mask.removed)
    assert shrunk.masked_heads == ()


def test_a_model_may_lose_all_its_heads():
    for family in ("bert", "gpt2", "llama", "t5", "distilbert", "marian"):
        model = random_model(family)
        mask = mask_of(model, np.zeros(model.grid.size))
        batch = tiny_batch(model.module)
        with gated(model, mask):
            masked_logits = logits(model.module, batch)
        shrunk_module = shrink_model(model, mask).module
        shrunk_logits = logits(shrunk_module, batch)
        torch.testing.assert_close(shrunk_logits, masked_logits, **CLOSE)


def test_a_mask_that_removes_nothing_gives_a_copy_of_the_familys_own_class():
    model = random_model("bert")
    shrunk = shrink_model(model, full_mask(model.grid))
    assert type(shrunk.module) is type(model.module)
    assert shrunk.module is not model.module
    assert shrunk.parameters_before == shrunk.parameters_after
    batch = tiny_batch(model.module)
    shrunk_logits = logits(shrunk.module, batch)
    model_logits = logits(model.module, batch)
    torch.testing.assert_close(shrunk_logits, model_logits, **CLOSE)


@pytest.mark.parametrize("family", ["llama", "llama-biased", "qwen3", "mistral"])
def test_query_heads_that_share_a_key_go_together_and_the_others_are_silenced(family):
    model = random_model(family)
    # In groups of two, layer 0 loses one whole group, layer 1 one head of each group, and layer 2
    # one group and half of the other.
    mask = mask_of(model, [1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1])
    batch = tiny_batch(model.module)
    with gated(model, mask):
        masked_logits = logits(model.module, batch)
    shrunk = shrink_model(model, mask)
    assert [tuple(head) for head in shrunk.masked_heads] == [
        ("decoder", 1, 1),
        ("decoder", 1, 2),
        ("decoder", 2, 2),
    ]
    assert shrunk.removed_count == 4
    layers = shrunk.module.base_model.layers
    attentions = [layer.self_attn for layer in layers]
    query_sizes = [attention.q_proj.weight.shape[0] for attention in attentions]
    key_sizes = [attention.k_proj.weight.shape[0] for attention in attentions]
    assert query_sizes == [12, 24, 12]
    assert key_sizes == [6, 12, 6]
    shrunk_logits = logits(shrunk.module, batch)
    torch.testing.assert_close(shrunk_logits, masked_logits, **CLOSE)
    assert shrunk.module.config.headlab_masked == {"decoder": [[], [1, 2], [2]]}


@pytest.mark.parametrize("family", ["bert", "t5", "llama", "gpt2"])
def test_shrinking_twice_is_shrinking_once_by_both_masks(family, tmp_path):
    from headlab.hooks import make_gateable
    from headlab.models.checkpoint import Checkpoint

    model = random_model(family)
    first_mask = uneven_mask(model, seed=2)
    batch = tiny_batch(model.module)
    if family == "llama":  # whole groups, so that no silenced head stays
        kept_groups = first_mask.kept[::2]
        first_mask = mask_of(model, np.repeat(kept_groups, 2))
    shrunk_once = shrink_model(model, first_mask)
    smaller = make_gateable(Checkpoint("once", "test", "once", shrunk_once.module, None))
    is_kept = np.arange(smaller.grid.size) % 3 != 0
    second_mask = mask_of(smaller, is_kept)
    shrunk_twice = shrink_model(smaller, second_mask)
    kept_by_both = first_mask.kept.copy()
    kept_by_first = np.flatnonzero(kept_by_both)
    kept_by_both[kept_by_first[~second_mask.kept]] = False
    with gated(model, mask_of(model, kept_by_both)):
        masked_logits = logits(model.module, batch)
    shrunk_logits = logits(shrunk_twice.module, batch)
    torch.testing.assert_close(shrunk_logits, masked_logits, **CLOSE)
    config = json.loads(shrunk_twice.module.config.to_json_string())
    direct = shrink_model(model, mask_of(model, kept_by_both)).module.config
    assert config["headlab_heads"] == direct.headlab_heads
    assert config["model_type"] == direct.model_type


@pytest.mark.parametrize(
    "family", ["gpt2-lm", "llama-lm", "t5-even", "marian", "mistral", "bert-decoder"]
)
def test_generation_with_a_cache_equals_generation_without(family):
    model = random_model(family)
    module = shrink_model(model, uneven_mask(model)).module
    batch = dict(tiny_batch(module, (6, 6)))
    batch.pop("decoder_input_ids", None)
    settings = {"do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6}
    with torch.inference_mode():
        greedy_with_cache = module.generate(**batch, **settings, use_cache=True)
        greedy_without = module.generate(**batch, **settings, use_cache=False)
        beams_with_cache = module.generate(**batch, **settings, use_cache=True, num_beams=3)
        beams_without = module.generate(**batch, **settings, use_cache=False, num_beams=3)
    assert torch.equal(greedy_with_cache, greedy_without)
    assert torch.equal(beams_with_cache, beams_without)


def test_a_shrunk_model_learns_where_it_still_has_weights():
    model = random_model("bert")
    module = shrink_model(model, uneven_mask(model)).module
    module.train().requires_grad_(True)
    batch = tiny_batch(module)
    output = module(**batch, labels=torch.tensor([0, 1, 2]))
    output.loss.backward()
    first_layer, second_layer = module.bert.encoder.layer[:2]
    first_bias = first_layer.attention.output.dense.bias
    second_weight = second_layer.attention.self.value.weight
    assert first_bias.grad.abs().sum() > 0
    assert second_weight.grad.abs().sum() > 0
    copied_layer = copy.deepcopy(module).bert.encoder.layer[0]
    assert copied_layer.attention.output.dense.weight.numel() == 0


@pytest.mark.parametrize("family", ["albert", "deberta-v2", "bloom", "xlm"])
def test_other_families_are_refused_by_name(family):
    model = tiny_model(family)
    with raises("shrink.family_unknown", f"family {family}", "bert, "):
        shrink_model(model, full_mask(model.grid))


def test_another_models_mask_is_refused():
    model = random_model("bert")
    other_model = random_model("bert", seed=1)
    with raises("mask.other_model"):
        shrink_model(model, uneven_mask(other_model))


@pytest.mark.parametrize(
    "chosen_by",
    [
        {"ablation": "mean"},
        {"score": {"ablation": "mean"}},
    ],
)
def test_a_mask_chosen_under_mean_ablation_is_refused(chosen_by):
    model = random_model("bert")
    with raises("shrink.mask_of_means", "--ablation zero"):
        mask = mask_of(model, np.ones(12), **chosen_by)
        shrink_model(model, mask)


def test_a_shrunk_model_has_the_device_and_numbers_of_its_model():
    model = random_model("bert", dtype=torch.bfloat16)
    module = shrink_model(model, uneven_mask(model)).module
    assert module.dtype == torch.bfloat16
    assert module.device == model.device
    assert not module.training


def test_an_all_attention_model_shrinks_too():
    model = all_attention_model()
    mask = uneven_mask(model)
    batch = tiny_batch(model.module)
    with gated(model, mask):
        masked_logits = logits(model.module, batch)
    shrunk = shrink_model(model, mask)
    shrunk_logits = logits(shrunk.module, batch)
    torch.testing.assert_close(shrunk_logits, masked_logits, **CLOSE)
    assert shrunk.parameters_after < shrunk.parameters_before


def attentions_of(module, batch, implementation):
    """Attention weights of each layer, by the name of the output that holds them."""
    module.set_attn_implementation(implementation)
    with torch.inference_mode():
        output = module(**batch, output_attentions=True)
    return {name: output[name] for name in output if name.endswith("attentions")}


def shapes_without_heads(layers):
    """Shapes of the layers' attention weights without their number of heads; False for a layer without weights."""
    shapes = []
    for layer in layers or ():
        shapes.append(layer is not None and (layer.shape[0], *layer.shape[2:]))
    return shapes


@pytest.mark.parametrize("family", SHRINKABLE)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_weights_are_given_at_the_numbers_of_their_layers(family, implementation):
    model = random_model(family)
    if (family, implementation) == ("gemma2", "sdpa"):
        pytest.skip("transformers has no such attention for this family")
    shrunk_module = shrink_model(model, uneven_mask(model)).module
    batch = tiny_batch(model.module)
    attentions = attentions_of(model.module, batch, implementation)
    shrunk_attentions = attentions_of(shrunk_module, batch, implementation)
    assert set(attentions) == set(shrunk_attentions)
    for name, layers in attentions.items():
        shapes = shapes_without_heads(layers)
        shrunk_shapes = shapes_without_heads(shrunk_attentions[name])
        assert shapes == shrunk_shapes, name
    if implementation == "eager":
        head_counts = []
        for layers in shrunk_attentions.values():
            head_counts += [layer.shape[1] for layer in layers or ()]
        assert 0 in head_counts


def test_attention_weights_of_a_layer_without_heads_grow_with_the_cache():
    model = random_model("gpt2-lm")
    module = shrink_model(model, uneven_mask(model)).module
    ids = torch.arange(12).reshape(2, 6) + 5
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        cache = module(input_ids=ids, use_cache=True).past_key_values
        output = module(input_ids=ids[:, :2], past_key_values=cache, output_attentions=True)
    shapes = [tuple(layer.shape[2:]) for layer in output.attentions]
    assert shapes == [(2, 8)] * 3


MEAN = {"ablation": "mean"}
ZERO = {"ablation": "zero"}


@pytest.mark.parametrize(
    "chosen_by",
    [
        MEAN,
        {"score": MEAN},
        MEAN | {"score": {"spec": 1}},
        {"combined": [MEAN, ZERO]},
        {"combined": [ZERO, {"score": MEAN}]},
        {"combined": [{}, {"combined": [ZERO, MEAN]}]},
        ZERO | {"combined": [MEAN]},
        {"ablation": "mixed"},
    ],
)
def test_a_mask_with_mean_ablation_anywhere_in_its_making_is_refused(chosen_by):
    model = random_model("bert")
    with raises("shrink.mask_of_means"):
        mask = mask_of(model, uneven_mask(model).kept, **chosen_by)
        shrink_model(model, mask)


def test_masks_combined_under_zero_ablation_are_taken():
    model = random_model("bert")
    kept_by_first = uneven_mask(model, seed=0).kept
    first_mask = mask_of(model, kept_by_first, ablation="zero")
    kept_by_second = uneven_mask(model, seed=1).kept
    second_mask = mask_of(model, kept_by_second, ablation="zero")
    combined_mask = combine_masks([first_mask, second_mask], "and")
    assert shrink_model(model, combined_mask).removed_count
    mask_of_means = mask_of(model, second_mask.kept, ablation="mean")
    with raises("shrink.mask_of_means"):
        combined_with_means = combine_masks([first_mask, mask_of_means], "and")
        shrink_model(model, combined_with_means)
