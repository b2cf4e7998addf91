"""Heads taken out of the weights: the smaller model answers as the masked one, in every family."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from reference import parameters_of_attention
from support.expected_errors import raises
from support.saved_models import save
from support.shrunk_families import SHRINKABLE, logits, mask_of, model_of, uneven
from support.tiny_models import tiny_batch, tiny_model
from support.tiny_task import tiny_tokenizer

from headlab.hooks import gated
from headlab.masks import combine_masks, full_mask
from headlab.models.load import read_folder
from headlab.shrink import shrink_model

CLOSE = {"atol": 1e-9, "rtol": 0}


def state(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("family", SHRINKABLE)
def test_masked_shrunk_and_reloaded_models_answer_alike(family, tmp_path):
    model = model_of(family)
    mask = uneven(model)
    batch = tiny_batch(model.module)
    before = state(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    assert (logits(model.module, batch) - want).abs().max() > 1e-3  # the mask does something
    shrunk = shrink_model(model, mask)
    torch.testing.assert_close(logits(shrunk.module, batch), want, **CLOSE)
    save(tmp_path / "m", shrunk.module, tiny_tokenizer())
    again = read_folder(tmp_path / "m", "folder", "m").module
    torch.testing.assert_close(logits(again, batch), want, **CLOSE)
    assert shrunk.parameters_after < shrunk.parameters_before
    assert sum(p.numel() for p in again.parameters()) == shrunk.parameters_after
    after = state(model.module)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert set(before) == set(after)
    shrunk.module.load_state_dict({name: t + 1 for name, t in shrunk.module.state_dict().items()})
    assert all(torch.equal(before[name], t) for name, t in model.module.state_dict().items())


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "llama", "mbart"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_shrunk_model_runs_with_any_attention_function(family, implementation):
    model = model_of(family)
    mask = uneven(model, seed=3)
    batch = tiny_batch(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    module = shrink_model(model, mask).module
    module.set_attn_implementation(implementation)
    # Written out, some families take the softmax in float32.
    torch.testing.assert_close(
        logits(module, batch), want, atol=1e-5 if implementation == "eager" else 1e-9, rtol=0
    )


def test_parameters_go_as_counted_by_hand():
    model = model_of("bert")
    mask = uneven(model)
    per_layer = mask.kept.reshape(3, 4).sum(1)
    assert len(set(per_layer.tolist())) == 3
    shrunk = shrink_model(model, mask)
    want = sum(
        parameters_of_attention(24, 6, 4) - parameters_of_attention(24, 6, int(n))
        for n in per_layer
    )
    assert shrunk.parameters_before - shrunk.parameters_after == want
    assert (shrunk.removed_count, shrunk.masked) == (len(mask.removed), ())


def test_a_model_may_lose_all_its_heads():
    for family in ("bert", "gpt2", "llama", "t5", "distilbert", "marian"):
        model = model_of(family)
        mask = mask_of(model, np.zeros(model.grid.size))
        batch = tiny_batch(model.module)
        with gated(model, mask):
            want = logits(model.module, batch)
        torch.testing.assert_close(logits(shrink_model(model, mask).module, batch), want, **CLOSE)


def test_a_mask_that_removes_nothing_gives_a_copy_of_the_familys_own_class():
    model = model_of("bert")
    shrunk = shrink_model(model, full_mask(model.grid))
    assert type(shrunk.module) is type(model.module)
    assert shrunk.module is not model.module
    assert shrunk.parameters_before == shrunk.parameters_after
    batch = tiny_batch(model.module)
    torch.testing.assert_close(logits(shrunk.module, batch), logits(model.module, batch), **CLOSE)


@pytest.mark.parametrize("family", ["llama", "llama-biased", "qwen3", "mistral"])
def test_query_heads_that_share_a_key_go_together_and_the_others_are_silenced(family):
    model = model_of(family)
    # groups of two: layer 0 loses one whole group, layer 1 one head of each, layer 2 one group and half of the other
    mask = mask_of(model, [1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1])
    batch = tiny_batch(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    shrunk = shrink_model(model, mask)
    assert [tuple(head) for head in shrunk.masked] == [
        ("decoder", 1, 1),
        ("decoder", 1, 2),
        ("decoder", 2, 2),
    ]
    assert shrunk.removed_count == 4
    layers = shrunk.module.base_model.layers
    assert [layer.self_attn.q_proj.weight.shape[0] for layer in layers] == [12, 24, 12]
    assert [layer.self_attn.k_proj.weight.shape[0] for layer in layers] == [6, 12, 6]
    torch.testing.assert_close(logits(shrunk.module, batch), want, **CLOSE)
    assert shrunk.module.config.headlab_masked == {"decoder": [[], [1, 2], [2]]}


@pytest.mark.parametrize("family", ["bert", "t5", "llama", "gpt2"])
def test_shrinking_twice_is_shrinking_once_by_both_masks(family, tmp_path):
    from headlab.hooks import make_gateable
    from headlab.models.checkpoint import Checkpoint

    model = model_of(family)
    first = uneven(model, seed=2)
    batch = tiny_batch(model.module)
    if family == "llama":  # whole groups, so that no head is left that was silenced
        first = mask_of(model, np.repeat(first.kept[::2], 2))
    once = shrink_model(model, first)
    smaller = make_gateable(Checkpoint("once", "test", "once", once.module, None))
    second = mask_of(smaller, np.arange(smaller.grid.size) % 3 != 0)
    twice = shrink_model(smaller, second)
    both = first.kept.copy()
    both[np.flatnonzero(both)[~second.kept]] = False
    with gated(model, mask_of(model, both)):
        want = logits(model.module, batch)
    torch.testing.assert_close(logits(twice.module, batch), want, **CLOSE)
    config = json.loads(twice.module.config.to_json_string())
    direct = shrink_model(model, mask_of(model, both)).module.config
    assert config["headlab_heads"] == direct.headlab_heads
    assert config["model_type"] == direct.model_type


@pytest.mark.parametrize(
    "family", ["gpt2-lm", "llama-lm", "t5-even", "marian", "mistral", "bert-decoder"]
)
def test_generation_with_a_cache_equals_generation_without(family):
    model = model_of(family)
    module = shrink_model(model, uneven(model)).module
    batch = {k: v for k, v in tiny_batch(module, (6, 6)).items() if k != "decoder_input_ids"}
    settings = {"do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6}
    with torch.inference_mode():
        cached = module.generate(**batch, **settings, use_cache=True)
        plain = module.generate(**batch, **settings, use_cache=False)
        beams = module.generate(**batch, **settings, use_cache=True, num_beams=3)
        beams_plain = module.generate(**batch, **settings, use_cache=False, num_beams=3)
    assert torch.equal(cached, plain)
    assert torch.equal(beams, beams_plain)


def test_a_shrunk_model_learns_where_it_still_has_weights():
    model = model_of("bert")
    module = shrink_model(model, uneven(model)).module.train().requires_grad_(True)
    module(**tiny_batch(module), labels=torch.tensor([0, 1, 2])).loss.backward()
    first, second = (layer.attention for layer in module.bert.encoder.layer[:2])
    assert first.output.dense.bias.grad.abs().sum() > 0
    assert second.self.value.weight.grad.abs().sum() > 0
    assert copy.deepcopy(module).bert.encoder.layer[0].attention.output.dense.weight.numel() == 0


@pytest.mark.parametrize("family", ["albert", "deberta-v2", "modernbert", "bloom", "xlm"])
def test_other_families_are_refused_by_name(family):
    model = tiny_model(family)
    with raises("shrink.family_unknown", f"family {family}", "bert, "):
        shrink_model(model, full_mask(model.grid))


def test_another_models_mask_is_refused():
    model = model_of("bert")
    other = model_of("bert", seed=1)
    with raises("mask.other_model"):
        shrink_model(model, uneven(other))


@pytest.mark.parametrize("chosen", [{"ablation": "mean"}, {"score": {"ablation": "mean"}}])
def test_a_mask_chosen_under_mean_ablation_is_refused(chosen):
    model = model_of("bert")
    with raises("shrink.mask_of_means", "--ablation zero"):
        shrink_model(model, mask_of(model, np.ones(12), **chosen))


def test_a_shrunk_model_has_the_device_and_numbers_of_its_model():
    model = model_of("bert", dtype=torch.bfloat16)
    module = shrink_model(model, uneven(model)).module
    assert (module.dtype, module.device, module.training) == (torch.bfloat16, model.device, False)


def test_an_all_attention_model_shrinks_too():
    from headlab.hooks import make_gateable
    from headlab.models.allattention.modelling import AllAttentionConfig, AllAttentionForCausalLM
    from headlab.models.checkpoint import Checkpoint

    torch.manual_seed(0)
    config = AllAttentionConfig(
        97, 24, 6, [4, 4, 4], 5, dropout=0.0, max_position_embeddings=16, pad_token_id=0
    )
    made = AllAttentionForCausalLM(config).double().eval()
    model = make_gateable(Checkpoint("all", "test", "all", made, None))
    mask = uneven(model)
    batch = tiny_batch(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    shrunk = shrink_model(model, mask)
    torch.testing.assert_close(logits(shrunk.module, batch), want, **CLOSE)
    assert shrunk.parameters_after < shrunk.parameters_before


@pytest.mark.parametrize("family", SHRINKABLE)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_weights_stand_at_their_layers_numbers(family, implementation):
    model = model_of(family)
    smaller = shrink_model(model, uneven(model)).module
    batch = tiny_batch(model.module)
    found = []
    for module in (model.module, smaller):
        module.set_attn_implementation(implementation)
        with torch.inference_mode():
            out = module(**batch, output_attentions=True)
        found.append({name: out[name] for name in out if name.endswith("attentions")})
    assert set(found[0]) == set(found[1])
    for name, layers in found[0].items():
        shapes = [
            [t is not None and (t.shape[0], *t.shape[2:]) for t in one or ()]
            for one in (layers, found[1][name])
        ]
        assert shapes[0] == shapes[1], name
    if implementation == "eager":
        assert 0 in [layer.shape[1] for layers in found[1].values() for layer in layers or ()]


def test_attention_weights_of_a_layer_without_heads_grow_with_the_cache():
    model = model_of("gpt2-lm")
    module = shrink_model(model, uneven(model)).module
    ids = torch.arange(12).reshape(2, 6) + 5
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        past = module(input_ids=ids, use_cache=True).past_key_values
        more = module(input_ids=ids[:, :2], past_key_values=past, output_attentions=True).attentions
    assert [tuple(layer.shape[2:]) for layer in more] == [(2, 8)] * 3


MEAN = {"ablation": "mean"}
ZERO = {"ablation": "zero"}


@pytest.mark.parametrize(
    "chosen",
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
def test_a_mask_with_mean_ablation_anywhere_in_its_making_is_refused(chosen):
    model = model_of("bert")
    with raises("shrink.mask_of_means"):
        shrink_model(model, mask_of(model, uneven(model).kept, **chosen))


def test_masks_combined_under_zero_ablation_are_taken():
    model = model_of("bert")
    parts = [mask_of(model, uneven(model, seed=seed).kept, ablation="zero") for seed in (0, 1)]
    assert shrink_model(model, combine_masks(parts, "and")).removed_count
    mixed = combine_masks([parts[0], mask_of(model, parts[1].kept, ablation="mean")], "and")
    with raises("shrink.mask_of_means"):
        shrink_model(model, mixed)
