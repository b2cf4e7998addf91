"""Weights that a class does not take: prefixes are dropped, harmless parts named, everything else refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.utils import SafetensorsFileMetadata, SafetensorsRepoMetadata, TensorInfo
from safetensors.torch import load_file, save_file
from support.expected_errors import expect_error, raises
from support.saved_models import save_family, save_model
from support.tiny_models import FAMILIES, VOCAB, tiny_module
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.models import load as load_module
from headlab.models.load import Fact, examine_model
from headlab.training.output import find_base, load_base

Weights = dict[str, torch.Tensor]
Change = Callable[[Weights], Weights]
ATTENTION = "bert.encoder.layer.0.attention.self.query"


def change_weights(folder: Path, change: Change) -> Path:
    """Rewrite a folder's weights."""
    path = folder / "model.safetensors"
    changed_weights = {name: weight.clone() for name, weight in change(load_file(path)).items()}
    save_file(changed_weights, path, metadata={"format": "pt"})
    return folder


def change_config(folder: Path, **values: object) -> Path:
    """Set values of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def with_prefix(prefix: str) -> Change:
    """A change that puts a prefix before the name of every weight."""
    return lambda weights: {prefix + name: weight for name, weight in weights.items()}


def with_added_weights(**shapes: tuple[int, ...]) -> Change:
    """A change that adds weights of these shapes, named with __ for a dot."""
    added_weights = {name.replace("__", "."): torch.ones(shape) for name, shape in shapes.items()}
    return lambda weights: weights | added_weights


def weights_fact(folder: Path) -> Fact:
    """What the check before loading says of the weights."""
    return next(fact for fact in examine_model(str(folder)) if fact.what == "Weights")


def load_with_note(folder: Path, *words: str) -> Model:
    """The model, after its note, the warning and the check before loading have all said these words."""
    check = weights_fact(folder)
    assert check.ok
    with pytest.warns(UserWarning, match=re.escape(words[0])):
        model = headlab.load(folder, device="cpu")
    for word in words:
        assert word in model.checkpoint.note
        assert word in check.words
    return model


def assert_refused(folder: Path, code: str, *values: object) -> None:
    """Loading is refused with this code, and the check before loading says the same."""
    with raises(code, *values) as caught:
        headlab.load(folder, device="cpu")
    check = weights_fact(folder)
    assert check.ok is False
    assert check.words == f"{str(caught.value).rstrip('.')}."


def have_same_weights(model: Model, module: transformers.PreTrainedModel) -> bool:
    weights = model.module.state_dict()
    expected_weights = module.state_dict()
    if weights.keys() != expected_weights.keys():
        return False
    return all(torch.equal(weights[name], weight) for name, weight in expected_weights.items())


def fsdp_names(weights: Weights) -> Weights:
    """As sharded training with activation checkpointing names them, layer by layer."""
    wrapper_names = "._fsdp_wrapped_module._checkpoint_wrapped_module."
    renamed_weights = {}
    for name, weight in weights.items():
        name_in_layer = re.sub(r"(?<=layer\.\d)\.", wrapper_names, name)
        renamed_weights[f"_fsdp_wrapped_module.{name_in_layer}"] = weight
    return renamed_weights


def compiled_layers(weights: Weights) -> Weights:
    """As torch.compile of the encoder names them."""
    return {
        name.replace("bert.encoder.", "bert.encoder._orig_mod."): weight
        for name, weight in weights.items()
    }


PREFIXES: dict[str, tuple[Change, str, str]] = {
    "torch.compile": (with_prefix("_orig_mod."), "_orig_mod.", "torch.compile"),
    "data-parallel": (with_prefix("module."), "module.", "data-parallel training"),
    "both": (with_prefix("module._orig_mod."), "module._orig_mod.", "torch.compile"),
    "both, the other way round": (
        with_prefix("_orig_mod.module."),
        "_orig_mod.module.",
        "torch.compile",
    ),
    "sharded": (fsdp_names, "_fsdp_wrapped_module.", "sharded training"),
    "compiled encoder": (compiled_layers, "bert.encoder._orig_mod.", "torch.compile"),
    "lightning": (with_prefix("model."), "model.", "the program"),
    "lightning, compiled": (with_prefix("model._orig_mod."), "model._orig_mod.", "torch.compile"),
    "flattened state_dict": (with_prefix("state_dict.net."), "state_dict.net.", "the program"),
    "merged adapter": (with_prefix("base_model.model."), "base_model.model.", "the program"),
}


@pytest.mark.parametrize("wrapper", PREFIXES)
def test_reported_05_a_prefix_of_training_is_dropped_and_said(tmp_path, wrapper):
    change, prefix, origin = PREFIXES[wrapper]
    module = tiny_module("bert", torch.float32)
    folder = change_weights(save_model(tmp_path / "m", module, tiny_tokenizer()), change)
    assert have_same_weights(load_with_note(folder, repr(prefix), origin), module)


@pytest.mark.parametrize("family", FAMILIES)
def test_reported_05_a_prefix_is_dropped_in_every_family_and_not_saved_again(tmp_path, family):
    folder = save_family(tmp_path / "m", family)
    module = headlab.load(folder, device="cpu").module
    names = load_file(folder / "model.safetensors").keys()
    change_weights(folder, with_prefix("module._orig_mod."))
    model = load_with_note(folder, "module._orig_mod.")
    assert have_same_weights(model, module)
    model.module.save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == names


def test_reported_05_a_prefix_in_shards_is_dropped(tmp_path):
    folder = save_family(tmp_path / "m", "bert")
    module = tiny_module("bert", torch.float32)
    (folder / "model.safetensors").unlink()
    module.save_pretrained(folder, max_shard_size="30KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    for shard in shards:
        save_file(with_prefix("module.")(load_file(shard)), shard, metadata={"format": "pt"})
    index_file = folder / "model.safetensors.index.json"
    index = json.loads(index_file.read_text())
    index["weight_map"] = {f"module.{name}": file for name, file in index["weight_map"].items()}
    index_file.write_text(json.dumps(index))
    assert have_same_weights(load_with_note(folder, "module."), module)
    shards[0].unlink()
    assert shards[0].name in weights_fact(folder).words
    with raises("model.unreadable", shards[0].name):
        headlab.load(folder, device="cpu")


def test_reported_05_a_model_without_a_remark_keeps_its_fingerprint_and_warns_of_nothing(tmp_path):
    folder = save_family(tmp_path / "m", "bert")
    model = headlab.load(folder, device="cpu")  # a warning would be an error
    assert model.checkpoint.note == ""
    assert headlab.load(folder, device="cpu").fingerprint == model.fingerprint


LAYER_COUNTS = {
    "bert": ("num_hidden_layers", "bert.encoder.layer", 3),
    "xlm-roberta": ("num_hidden_layers", "roberta.encoder.layer", 3),
    "electra": ("num_hidden_layers", "electra.encoder.layer", 3),
    "distilbert": ("n_layers", "distilbert.transformer.layer", 3),
    "deberta-v2": ("num_hidden_layers", "deberta.encoder.layer", 3),
    "gpt2": ("n_layer", "transformer.h", 3),
    "llama": ("num_hidden_layers", "model.layers", 3),
    "bloom": ("n_layer", "transformer.h", 3),
    "marian": ("decoder_layers", "model.decoder.layers", 3),
    "t5": ("num_layers", "encoder.block", 2),
}


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("family", LAYER_COUNTS)
def test_reported_05_more_layers_than_the_config_has_are_refused(tmp_path, family, prefix):
    option, layers, stored_layers = LAYER_COUNTS[family]
    layers_in_config = stored_layers - 1
    folder = change_weights(save_family(tmp_path / "m", family), with_prefix(prefix))
    change_config(folder, **{option: layers_in_config})
    assert_refused(folder, "model.weights_unused", layers, stored_layers, layers_in_config)


def without_name_of_body(weights: Weights) -> Weights:
    return {name.removeprefix("bert."): weight for name, weight in weights.items()}


@pytest.mark.parametrize("architecture", ["BertModel", "BertForSequenceClassification"])
@pytest.mark.parametrize("saved_from", ["body", "classifier"])
def test_reported_05_more_layers_are_refused_whatever_the_names_begin_with(
    tmp_path, architecture, saved_from
):
    folder = save_family(tmp_path / "m", "bert")
    if saved_from == "body":
        change_weights(folder, without_name_of_body)
    change_config(folder, architectures=[architecture], num_hidden_layers=2)
    assert_refused(folder, "model.weights_unused", "encoder.layer", 3, 2)


def same_weights(weights: Weights) -> Weights:
    return weights


def without_classifier(weights: Weights) -> Weights:
    return {name: weight for name, weight in weights.items() if "classifier" not in name}


def with_renamed_classifier(weights: Weights) -> Weights:
    return {name.replace("classifier", "head"): weight for name, weight in weights.items()}


LACKING: dict[str, tuple[Change, dict[str, object], tuple[object, ...]]] = {
    "fewer layers": (
        same_weights,
        {"num_hidden_layers": 5},
        (32, "bert.encoder.layer.3."),
    ),
    "wider": (same_weights, {"intermediate_size": 64}, ("[32]", "[64]")),
    "narrower": (same_weights, {"hidden_size": 12}, ("[24]", "[12]")),
    "larger vocabulary": (same_weights, {"vocab_size": 98}, ("[97, 24]", "[98, 24]")),
    "no classifier": (
        without_classifier,
        {},
        ("classifier.bias",),
    ),
    "classifier of another name": (
        with_renamed_classifier,
        {},
        ("classifier.bias", "head.bias"),
    ),
    "another class": (
        same_weights,
        {"architectures": ["BertForMaskedLM"]},
        ("cls.predictions", "pooler"),
    ),
}


@pytest.mark.parametrize("lack", LACKING)
def test_reported_05_weights_that_would_be_made_up_are_refused(tmp_path, lack):
    change, config_values, values = LACKING[lack]
    folder = change_weights(save_family(tmp_path / "m", "bert"), change)
    change_config(folder, **config_values)
    assert_refused(folder, "model.weights_missing", *values)


FOREIGN: dict[str, tuple[str, Change, str]] = {
    "biases the config denies": (
        "llama",
        with_added_weights(model__layers__0__self_attn__q_proj__bias=(24,)),
        "q_proj.bias",
    ),
    "norms of queries": (
        "llama",
        with_added_weights(model__layers__0__self_attn__q_norm__weight=(6,)),
        "q_norm",
    ),
    "a module in a layer": (
        "bert",
        with_added_weights(bert__encoder__layer__0__bottleneck__weight=(6, 24)),
        "bottleneck",
    ),
    "a norm on top of the body": (
        "bert",
        with_added_weights(bert__encoder__LayerNorm__weight=(24,)),
        "LayerNorm",
    ),
    "scales of quantised weights": (
        "bert",
        with_added_weights(bert__encoder__layer__0__output__dense__SCB=(24,)),
        "SCB",
    ),
    "a prompt that was learned": (
        "bert",
        with_added_weights(prefix_encoder__embedding__weight=(4, 24)),
        "prefix_encoder",
    ),
    "a decoder of labels": (
        "bert-tokens",
        with_added_weights(crf__transitions=(5, 5)),
        "crf.transitions",
    ),
    "a layer more in the head": (
        "xlm-roberta",
        with_added_weights(classifier__extra__weight=(24, 24)),
        "classifier.extra",
    ),
}


@pytest.mark.parametrize("foreign_part", FOREIGN)
def test_reported_05_weights_that_the_model_was_trained_with_are_refused(tmp_path, foreign_part):
    family, change, weight_name = FOREIGN[foreign_part]
    folder = change_weights(save_family(tmp_path / "m", family), change)
    assert_refused(folder, "model.weights_unused", weight_name)


def with_unmerged_adapter(weights: Weights) -> Weights:
    return weights | {f"{ATTENTION}.lora_A.default.weight": torch.ones(2, 24)}


def lora_names(weights: Weights) -> Weights:
    """As peft saves a model with an adapter that is not merged."""
    renamed_weights = {}
    for name, weight in with_unmerged_adapter(weights).items():
        for part in ("weight", "bias"):
            if name == f"{ATTENTION}.{part}":
                name = f"{ATTENTION}.base_layer.{part}"
        renamed_weights[f"base_model.model.{name}"] = weight
    return renamed_weights


@pytest.mark.parametrize("change", [lora_names, with_unmerged_adapter])
def test_reported_05_an_adapter_that_is_not_merged_is_refused(tmp_path, change):
    folder = change_weights(save_family(tmp_path / "m", "bert"), change)
    assert_refused(folder, "model.is_adapter", "merge_and_unload")


HARMLESS: dict[str, tuple[str, Change, tuple[str, ...]]] = {
    "heads of pretraining": (
        "bert",
        with_added_weights(cls__predictions__bias=(VOCAB,), cls__seq_relationship__weight=(2, 24)),
        ("2 weights", "cls.predictions.bias", "BertForSequenceClassification has no such part"),
    ),
    "a pooler": (
        "bert-tokens",
        with_added_weights(bert__pooler__dense__weight=(24, 24)),
        ("bert.pooler.dense.weight",),
    ),
    "a loss": ("bert", with_added_weights(loss_fn__weight=(5,)), ("loss_fn.weight",)),
    "an output layer": (
        "gpt2",
        with_added_weights(lm_head__weight=(VOCAB, 24)),
        ("lm_head.weight",),
    ),
    "constants": (
        "gpt2",
        with_added_weights(transformer__h__0__attn__masked_bias=()),
        ("masked_bias", "constants"),
    ),
}


@pytest.mark.parametrize("harmless_part", HARMLESS)
def test_reported_05_what_changes_no_answer_is_left_out_and_said(tmp_path, harmless_part):
    family, change, words = HARMLESS[harmless_part]
    module = tiny_module(family, torch.float32)
    folder = change_weights(save_model(tmp_path / "m", module, tiny_tokenizer()), change)
    assert have_same_weights(load_with_note(folder, *words), module)


def test_reported_05_a_classifier_read_as_its_body_says_what_is_left_out(tmp_path):
    folder = change_config(save_family(tmp_path / "m", "bert"), architectures=["BertModel"])
    load_with_note(folder, "classifier.bias", "BertModel has no such part")


def test_reported_05_a_prefix_and_a_part_left_out_are_both_said(tmp_path):
    def lightning(weights: Weights) -> Weights:
        return with_prefix("model.")(weights) | {"train_loss.weight": torch.ones(5)}

    module = tiny_module("bert", torch.float32)
    folder = change_weights(save_model(tmp_path / "m", module, tiny_tokenizer()), lightning)
    assert have_same_weights(load_with_note(folder, "'model.'", "train_loss.weight"), module)


def without_two_heads(weights: Weights) -> Weights:
    """Without heads 2 and 3 of layer 1, as `prune_heads` of transformers 4 left it."""
    smaller_weights = dict(weights)
    for name, weight in weights.items():
        if "layer.1.attention.self" in name:
            smaller_weights[name] = weight[:12]
        if "layer.1.attention.output.dense.weight" in name:
            smaller_weights[name] = weight[:, :12]
    return smaller_weights


@pytest.mark.parametrize("prefix", ["", "module."])
def test_reported_05_pruned_heads_name_the_way_on(tmp_path, prefix):
    folder = save_family(tmp_path / "m", "bert")
    change_weights(folder, lambda weights: with_prefix(prefix)(without_two_heads(weights)))
    change_config(folder, pruned_heads={"1": [2, 3]})
    assert_refused(folder, "model.heads_pruned", "pruned_heads", "headlab mask convert config.json")


def test_reported_05_pruned_heads_are_no_reason_for_another_vocabulary(tmp_path):
    folder = change_config(
        save_family(tmp_path / "m", "bert"), pruned_heads={"1": [2, 3]}, vocab_size=98
    )
    assert_refused(folder, "model.weights_missing", "[97, 24]", "[98, 24]")


def test_reported_05_pruned_heads_of_whole_weights_are_used_and_said(tmp_path):
    folder = change_config(save_family(tmp_path / "m", "bert"), pruned_heads={"1": [2, 3]})
    assert load_with_note(folder, "names pruned heads").grid.size == 12
    change_config(folder, pruned_heads={})
    assert headlab.load(folder, device="cpu").checkpoint.note == ""


def test_reported_05_a_file_that_is_not_read_passes_no_check(tmp_path):
    folder = save_family(tmp_path / "m", "bert")
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    fact = weights_fact(folder)
    assert fact.ok is False
    assert "model.fp16.safetensors" in fact.words
    with raises("model.unreadable", "model.safetensors"):
        headlab.load(folder, device="cpu")


def test_reported_05_the_check_reads_headers_only(tmp_path):
    folder = change_weights(save_family(tmp_path / "m", "bert"), with_prefix("module."))
    path = folder / "model.safetensors"
    content = path.read_bytes()
    header_size = 8 + int.from_bytes(content[:8], "little")
    not_numbers = b"\xff" * (len(content) - header_size)
    path.write_bytes(content[:header_size] + not_numbers)
    assert weights_fact(folder).ok


def hub_metadata(folder: Path, prefix: str) -> SafetensorsRepoMetadata:
    """What the hub says of a folder's weights, each name with a prefix."""
    weights = load_file(folder / "model.safetensors")
    tensors = {
        prefix + name: TensorInfo(dtype="F32", shape=list(weight.shape), data_offsets=(0, 0))
        for name, weight in weights.items()
    }
    file = SafetensorsFileMetadata(metadata={}, tensors=tensors)
    files = dict.fromkeys(tensors, "model.safetensors")
    return SafetensorsRepoMetadata(
        None, sharded=False, weight_map=files, files_metadata={"model.safetensors": file}
    )


@pytest.mark.parametrize(
    ("prefix", "layers", "ok", "words"),
    [("module.", 3, True, "'module.'"), ("", 2, False, "3 layers")],
)
def test_reported_05_a_hub_model_is_checked_by_headers_before_it_is_fetched(
    tmp_path, monkeypatch, prefix, layers, ok, words
):
    folder = change_config(save_family(tmp_path / ("a" * 40), "bert"), num_hidden_layers=layers)
    metadata = hub_metadata(folder, prefix)
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(load_module, "hub_folder", lambda *_: folder)
    monkeypatch.setattr(load_module, "hub_sizes", lambda _: {"model.safetensors": 438_000_000})
    monkeypatch.setattr("huggingface_hub.get_safetensors_metadata", lambda _: metadata)
    fact = next(fact for fact in examine_model("owner/name") if fact.what == "Weights")
    assert fact.ok is ok
    assert words in fact.words


def test_reported_05_a_base_of_a_training_is_read_the_same_way(tmp_path):
    module = tiny_module("xlm-roberta", torch.float32)
    folder = change_weights(
        save_model(tmp_path / "m", module, tiny_tokenizer()), with_prefix("module.")
    )
    module_to_train, _ = load_base(find_base(str(folder)), ("a", "b"), words=False)
    expected_weights = module.roberta.state_dict()
    for name, weight in module_to_train.roberta.state_dict().items():
        assert torch.equal(weight, expected_weights[name]), name
    change_config(folder, num_hidden_layers=2)
    with pytest.raises(HeadlabError) as caught:
        load_base(find_base(str(folder)), ("a", "b"), words=False)
    expect_error(caught.value, "model.weights_unused", 3, 2)
