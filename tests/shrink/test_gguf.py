"""A pruned decoder as GGUF: llama.cpp gives the masked model's tokens, and no number is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import llama3_slowing, q8_0, rows_of_gguf
from support.expected_errors import raises
from support.llama_cpp import ask_llama_cpp, greedy_continuation, with_llama_cpp
from support.shrunk_families import random_model
from support.tiny_llama import EVEN, UNEVEN, byte_level_tokenizer, tiny_llama, without_groups
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.shrink import gguf_file, shrink_model
from headlab.shrink.folder import write_shrunk
from headlab.shrink.gguf_file import in_halves, interleaved, read_into, rotation_factors, write_gguf
from headlab.shrink.gguf_folder import write_gguf_folder

gguf = pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")

PROMPT_COUNT = 6
FIRST_LAYER = ((0, 0), (0, 1))
ALL = tuple((layer, group) for layer in range(3) for group in range(2))
"""Every group: each layer is its feed-forward part."""
LAYER_OF_ZEROS = {"deci.attention.head_count": [2, 4, 4], "deci.attention.head_count_kv": [1, 2, 2]}
LLAMA_3_ROTATION = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROTATION = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}


def prompts_of(model: Model, length: int = 12, seed: int = 0) -> list[list[int]]:
    """Prompts of random tokens, no special one among them."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(2, model.module.config.vocab_size, (PROMPT_COUNT, length))
    return [[int(token_id) for token_id in row] for row in rows]


def batches(model: Model) -> list[dict[str, torch.Tensor]]:
    ids = torch.tensor(prompts_of(model, seed=1))
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]


def write(model: Model, mask: Mask, folder: Path, **options: Any) -> Any:
    return write_gguf_folder(
        model, mask, folder, batches(model), compared_on={"task": None}, **options
    )


def tensors_of(path: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def field(path: Path, name: str) -> Any:
    return gguf.GGUFReader(path).fields[name].contents()


# llama.cpp.


@with_llama_cpp
@pytest.mark.parametrize(
    "groups",
    [(), EVEN, UNEVEN, FIRST_LAYER, ALL],
    ids=["none", "even", "uneven", "first", "all"],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tie_word_embeddings": True},
        {"class_name": "MistralForCausalLM"},
        {"rope_parameters": LLAMA_3_ROTATION},
        {"rope_parameters": LINEAR_ROTATION},
    ],
    ids=["llama", "tied", "mistral", "llama3", "linear"],
)
def test_llama_cpp_continues_as_the_masked_model(options, groups, tmp_path):
    model = tiny_llama(**options)
    mask = without_groups(model, groups)
    write(model, mask, tmp_path / "m")
    prompts = prompts_of(model)
    answer = ask_llama_cpp(tmp_path / "m" / "model.gguf", tmp_path, prompts=prompts, count=16)
    compared_tokens = 0
    for prompt, continuation in zip(prompts, answer.continuations, strict=True):
        expected = greedy_continuation(model, mask, prompt, 16)
        assert continuation[: len(expected)] == expected
        compared_tokens += len(expected)
    assert compared_tokens > PROMPT_COUNT * 8
    untouched = [greedy_continuation(model, None, prompt, 16) for prompt in prompts]
    differs = [
        continuation[: len(tokens)] != tokens
        for tokens, continuation in zip(untouched, answer.continuations, strict=True)
    ]
    assert any(differs) == bool(groups)


@with_llama_cpp
def test_llama_cpp_reads_smaller_numbers(tmp_path):
    model = tiny_llama()
    mask = without_groups(model, UNEVEN)
    prompts = prompts_of(model)
    for number_type in ("float16", "q8_0"):
        write(model, mask, tmp_path / number_type, number_type=number_type)
        file = tmp_path / number_type / "model.gguf"
        answer = ask_llama_cpp(file, tmp_path, prompts=prompts, count=1)
        first_tokens = [greedy_continuation(model, mask, prompt, 1) for prompt in prompts]
        equal = sum(map(list.__eq__, answer.continuations, first_tokens))
        assert equal >= PROMPT_COUNT - 1


# The file.


@pytest.mark.parametrize("groups", [EVEN, UNEVEN])
def test_sizes_of_layers_are_in_the_file(groups, tmp_path):
    model = tiny_llama()
    mask = without_groups(model, groups)
    written, shrunk = write(model, mask, tmp_path / "m")
    path = written.folder / "model.gguf"
    architecture = field(path, "general.architecture")
    heads = field(path, f"{architecture}.attention.head_count")
    groups_left = field(path, f"{architecture}.attention.head_count_kv")
    if groups == EVEN:
        assert (architecture, heads, groups_left) == ("llama", 2, 1)
    else:
        assert (architecture, heads, groups_left) == ("deci", [2, 0, 4], [1, 0, 2])
        assert field(path, "deci.feed_forward_length") == [96, 96, 96]
    assert field(path, f"{architecture}.attention.key_length") == 32
    assert field(path, f"{architecture}.context_length") == 128
    assert gguf_file.groups_removed(model, shrunk) == len(groups)
    names = set(tensors_of(path))
    assert ("blk.1.attn_norm.weight" in names) == (groups == EVEN)
    assert "blk.1.ffn_norm.weight" in names


def test_a_first_layer_without_heads_gets_a_group_of_zeros(tmp_path):
    """llama.cpp reads the width of a head only where the first layer has one."""
    model = tiny_llama()
    written, shrunk = write(model, without_groups(model, FIRST_LAYER), tmp_path / "m")
    path = written.folder / "model.gguf"
    assert {name: field(path, name) for name in LAYER_OF_ZEROS} == LAYER_OF_ZEROS
    tensors = tensors_of(path)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "attn_norm"):
        assert not tensors[f"blk.0.{name}.weight"].data.any()
    assert gguf_file.groups_removed(model, shrunk) == 2


def test_weights_that_only_the_configuration_ties_are_both_written(tmp_path):
    model = tiny_llama()
    model.module.config.tie_word_embeddings = True
    path = write(model, without_groups(model, EVEN), tmp_path / "m")[0].folder / "model.gguf"
    assert {"token_embd.weight", "output.weight"} <= set(tensors_of(path))
    tied = tiny_llama(tie_word_embeddings=True)
    path = write(tied, without_groups(tied, EVEN), tmp_path / "tied")[0].folder / "model.gguf"
    assert "output.weight" not in tensors_of(path)


@pytest.mark.parametrize("number_type", ["float32", "float16", "q8_0"])
def test_every_number_is_the_one_derived_by_hand(number_type, tmp_path):
    model = tiny_llama()
    shrunk = shrink_model(model, without_groups(model, UNEVEN))
    path = tmp_path / "model.gguf"
    write_gguf(model, shrunk, path, number_type)
    state = {name: weight.numpy() for name, weight in shrunk.module.state_dict().items()}
    stored = {
        name: gguf.dequantize(tensor.data, tensor.tensor_type)
        for name, tensor in tensors_of(path).items()
    }
    store = {"float32": list, "float16": np.float16, "q8_0": q8_0}[number_type]
    keys = np.array(rows_of_gguf(state["model.layers.2.self_attn.k_proj.weight"], 32))
    expected_keys = [store(row) for row in keys]
    np.testing.assert_allclose(stored["blk.2.attn_k.weight"], expected_keys, rtol=1e-6)
    down = state["model.layers.0.mlp.down_proj.weight"]
    np.testing.assert_allclose(
        stored["blk.0.ffn_down.weight"], [store(row) for row in down], rtol=1e-6
    )
    np.testing.assert_array_equal(stored["output_norm.weight"], state["model.norm.weight"])
    assert len(stored) == len(state) - 5  # the second layer has no attention


def test_rows_that_blocks_do_not_fit_are_kept_in_half_precision(tmp_path):
    model = tiny_llama(intermediate_size=40)
    shrunk = shrink_model(model, without_groups(model, EVEN))
    write_gguf(model, shrunk, tmp_path / "model.gguf", "q8_0")
    types = {name: t.tensor_type.name for name, t in tensors_of(tmp_path / "model.gguf").items()}
    assert types["blk.0.ffn_down.weight"] == "F16"
    assert types["blk.0.ffn_up.weight"] == "Q8_0"
    assert types["output_norm.weight"] == "F32"


def test_rows_of_queries_turn_with_their_neighbours():
    weight = np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32)
    np.testing.assert_array_equal(interleaved(weight, 8), np.float32(rows_of_gguf(weight, 8)))
    np.testing.assert_array_equal(in_halves(interleaved(weight, 8), 8), weight)


def test_slowed_down_positions_are_those_of_the_rule():
    assert rotation_factors(tiny_llama().module) is None
    factors = rotation_factors(tiny_llama(rope_parameters=LLAMA_3_ROTATION).module)
    expected = llama3_slowing(500.0, 32, 8.0, 1.0, 4.0, 64)
    assert factors is not None
    assert len(set(np.round(expected, 3))) > 2
    np.testing.assert_allclose(factors, expected, rtol=1e-5)
    factors = rotation_factors(tiny_llama(rope_parameters=LINEAR_ROTATION).module)
    np.testing.assert_allclose(factors, np.full(16, 4.0), rtol=1e-5)


def test_a_file_is_read_back_whole(tmp_path):
    model = tiny_llama()
    shrunk = shrink_model(model, without_groups(model, UNEVEN))
    path = tmp_path / "model.gguf"
    write_gguf(model, shrunk, path, "float32")
    weights_before = {name: weight.clone() for name, weight in shrunk.module.state_dict().items()}
    assert not read_into(model, shrunk, path)
    with torch.no_grad():
        for parameter in shrunk.module.parameters():
            parameter.add_(1)
    assert read_into(model, shrunk, path)
    state = shrunk.module.state_dict()
    for place in gguf_file.places_of(shrunk.module):
        assert torch.equal(state[place.name], weights_before[place.name]), place.name
    with raises("gguf.tensor_missing", "blk.1.attn_norm.weight"):
        read_into(model, shrink_model(model, without_groups(model, EVEN)), path)


def test_a_weight_that_the_file_lacks_is_found_by_the_proof(tmp_path, monkeypatch):
    model = tiny_llama()
    places = list(gguf_file.places_of(model.module))

    def without_one(module: Any) -> Any:
        return [place for place in exact(module) if place.gguf_name != "blk.2.ffn_up.weight"]

    exact = gguf_file.places_of
    monkeypatch.setattr(gguf_file, "places_of", without_one)
    assert len(without_one(model.module)) == len(places) - 1
    with raises("shrink.model_differs"):
        write(model, without_groups(model, EVEN), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_tensor_that_nothing_reads_is_refused(tmp_path):
    model = tiny_llama(rope_parameters=LINEAR_ROTATION)
    mask = without_groups(model, EVEN)
    path = tmp_path / "model.gguf"
    write_gguf(model, shrink_model(model, mask), path, "float32")
    plain = tiny_llama()
    with raises("gguf.tensor_unread", "rope_freqs.weight"):
        read_into(plain, shrink_model(plain, mask), path)
    other = tiny_llama(rope_parameters=LLAMA_3_ROTATION)
    with raises("gguf.tensor_differs", "rope_freqs.weight"):
        read_into(other, shrink_model(other, mask), path)


# The folder.


def test_proof_and_card_say_what_was_written(tmp_path):
    model = tiny_llama()
    mask = without_groups(model, UNEVEN)
    written, _ = write(model, mask, tmp_path / "m", command=["headlab", "export"])
    proof = json.loads((written.folder / "proof.json").read_text())
    assert proof["form"] == "gguf"
    assert proof["max_logit_difference"] <= 1e-4
    assert proof["random_input"]["max_logit_difference"] <= 1e-4
    assert proof["mask_changes"] > 1e-2
    assert proof["equal_answers"] == 1
    assert proof["cut_alone"] is None
    assert (proof["heads_before"], proof["heads_removed"], proof["heads_masked"]) == (12, 6, [])
    assert proof["bytes_after"] == (written.folder / "model.gguf").stat().st_size
    assert proof["parameters_after"] < proof["parameters_before"]
    assert set(proof["files"]) == {"model.gguf", "mask.json", "README.md"}
    card = (written.folder / "README.md").read_text()
    assert "llama-server -m model.gguf" in card
    assert "6 of 12 attention heads" in card


def test_smaller_numbers_are_proved_apart_from_the_cut(tmp_path):
    model = tiny_llama()
    mask = without_groups(model, EVEN)
    sizes = {}
    for number_type in ("float32", "float16", "q8_0"):
        written, _ = write(model, mask, tmp_path / "m", number_type=number_type)
        sizes[number_type] = written.record["bytes_after"]
        assert written.record["dtype_after"] == number_type
        if number_type != "float32":
            assert written.record["cut_alone"]["max_logit_difference"] <= 1e-4
            assert 0 < written.record["max_logit_difference"] <= written.record["tolerance"]
    assert sizes["float32"] > sizes["float16"] > sizes["q8_0"]


def test_the_same_command_writes_the_same_bytes(tmp_path):
    model = tiny_llama()
    mask = without_groups(model, UNEVEN)
    folders = [write(model, mask, tmp_path / name)[0].folder for name in ("a", "b")]
    contents = [(folder / "model.gguf").read_bytes() for folder in folders]
    assert contents[0] == contents[1]


def test_headlab_says_what_the_folder_is_for(tmp_path):
    model = tiny_llama()
    folder = write(model, without_groups(model, EVEN), tmp_path / "m")[0].folder
    with pytest.raises(HeadlabError, match=r"model\.gguf"):
        headlab.load(str(folder))
    # and it may be written again
    write(model, without_groups(model, UNEVEN), folder)


# What cannot be written so.


@pytest.mark.parametrize(
    ("family", "code", "values"),
    [
        ("bert", "gguf.class_unknown", ("BertForSequenceClassification", "LlamaForCausalLM")),
        ("qwen3", "gguf.class_unknown", ("Qwen3ForCausalLM",)),
        ("llama", "gguf.class_unknown", ("LlamaForSequenceClassification",)),
    ],
)
def test_other_classes_are_refused(family, code, values, tmp_path):
    model = random_model(family, tiny_tokenizer(), dtype=torch.float32)
    mask = Mask(model.grid, np.arange(model.grid.size) > 1, model.identity())
    with raises(code, *values, "--as folder"):
        write_gguf_folder(model, mask, tmp_path / "m", [], compared_on={})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"attention_bias": True}, "biases in its attention"),
        ({"mlp_bias": True}, "biases in its feed-forward parts"),
        ({"class_name": "MistralForCausalLM", "sliding_window": 16}, "sliding window of 16 tokens"),
        ({"hidden_act": "gelu"}, "the activation gelu"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "rotary positions scaled by the rule dynamic",
        ),
    ],
)
def test_layers_that_are_not_llamas_are_refused(options, phrase, tmp_path):
    model = tiny_llama(**options)
    with raises("gguf.layer_unknown", phrase):
        write(model, without_groups(model, EVEN), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_part_of_a_group_is_refused_with_the_next_masks(tmp_path):
    model = tiny_llama()
    is_kept = np.ones(12, bool)
    is_kept[[0, 1, 5, 11]] = False  # a group of the first layer, and two halves
    mask = Mask(model.grid, is_kept, model.identity())
    with raises("gguf.part_of_group") as caught:
        write(model, mask, tmp_path / "m")
    assert "(1.1, 2.3)" in str(caught.value)
    assert "the next larger one also removes 1.0, 2.2" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_too_much_rounding_is_said_to_be_that(tmp_path):
    model = tiny_llama()
    with torch.no_grad():  # float16 has no such number
        model.module.model.layers[0].mlp.up_proj.weight.mul_(1e6)
        model.module.model.layers[0].mlp.down_proj.weight.mul_(1e-6)
    with raises("shrink.rounding_too_large", "float16", "use --dtype float32"):
        write(model, without_groups(model, EVEN), tmp_path / "m", number_type="float16")
    write(model, without_groups(model, EVEN), tmp_path / "m")


def test_a_model_that_was_shrunk_before_is_written(tmp_path):
    model = tiny_llama()
    inputs = batches(model)
    write_shrunk(
        model,
        shrink_model(model, without_groups(model, [(1, 0)])),
        tmp_path / "small",
        inputs,
        compared_on={"task": None},
    )
    smaller = headlab.load(str(tmp_path / "small"))
    is_kept = np.arange(smaller.grid.size) >= 2  # the first group
    mask = Mask(smaller.grid, is_kept, smaller.identity())
    written, _ = write_gguf_folder(
        smaller, mask, tmp_path / "m", inputs, compared_on={"task": None}
    )
    path = written.folder / "model.gguf"
    assert field(path, "deci.attention.head_count") == [2, 2, 4]


def test_numbers_that_gguf_is_not_written_in_are_refused(tmp_path):
    model = tiny_llama()
    with raises("gguf.dtype_unknown", "bfloat16", "q8_0"):
        write(model, without_groups(model, EVEN), tmp_path / "m", number_type="bfloat16")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    model = tiny_llama()
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)
    with raises("package.gguf_missing", "pip install 'headlab[gguf]'"):
        write(model, without_groups(model, EVEN), tmp_path / "m")


def test_a_full_disk_leaves_a_sentence_and_no_folder(tmp_path, monkeypatch):
    def full(*_arguments: Any) -> None:
        raise OSError("24576 requested and 0 written")  # as numpy does

    model = tiny_llama()
    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", full)
    with raises("file.unwritable", "24576 requested and 0 written"):
        write(model, without_groups(model, EVEN), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_file_that_lost_a_number_is_not_called_good(tmp_path, monkeypatch):
    model = tiny_llama(byte_level_tokenizer("gpt-2"))
    exact = gguf_file.interleaved

    def wrong(weight: Any, head_width: int) -> Any:
        return exact(weight, head_width)[::-1]

    monkeypatch.setattr(gguf_file, "interleaved", wrong)
    with raises("shrink.model_differs", "please report this"):
        write(model, without_groups(model, EVEN), tmp_path / "m")
    assert not list(tmp_path.iterdir())
