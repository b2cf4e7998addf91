"""Decoders without neurons, groups and layers as GGUF: llama.cpp gives the masked model's tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.llama_cpp import ask_llama_cpp, greedy_continuation, with_llama_cpp
from support.players_by_hand import playing
from support.tiny_llama import tiny_llama

from headlab.hooks import Model
from headlab.masks import Mask
from headlab.shrink import shrink_model
from headlab.shrink.gguf_file import read_into, write_gguf
from headlab.shrink.gguf_folder import write_gguf_folder

gguf = pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")

PROMPT_COUNT = 6
# Layers have 96 neurons in two groups, and two groups of two heads.
CASES = {
    "uneven neurons": ("neurons:2", ("neurons 0.1", "neurons 2.0")),
    "even neurons": ("neurons:2", ("neurons 0.1", "neurons 1.0", "neurons 2.1")),
    "a layer without neurons": ("feed-forward", ("feed-forward 1.0",)),
    "a last layer without neurons": ("feed-forward", ("feed-forward 2.0",)),
    "groups and neurons": (
        "kv-groups,neurons:2",
        ("kv-groups 1.0", "kv-groups 1.1", "neurons 1.0"),
    ),
    "nothing of a layer": ("attention,feed-forward", ("attention 0.0", "feed-forward 0.0")),
    "a layer less": ("layers,neurons:2", ("layers 1.0", "neurons 0.1")),
}
# (heads, groups, neurons) of the layers, one for all where they are even.
SIZES: dict[str, Any] = {
    "uneven neurons": ([4, 4, 4], [2, 2, 2], [48, 96, 48]),
    "even neurons": (4, 2, 48),
    "a layer without neurons": ([4, 4, 4], [2, 2, 2], [96, 32, 96]),
    "a last layer without neurons": ([4, 4, 4], [2, 2, 2], [96, 96, 32]),
    "groups and neurons": ([4, 0, 4], [2, 0, 2], [96, 48, 96]),
    "nothing of a layer": ([2, 4, 4], [1, 2, 2], [32, 96, 96]),
    "a layer less": ([4, 4], [2, 2], [48, 96]),
}


def closing(model: Model, names: tuple[str, ...]) -> Mask:
    closed = {f"decoder-{name}" for name in names}
    assert closed <= {str(player) for player in model.grid.heads}
    kept = [str(player) not in closed for player in model.grid.heads]
    return Mask(model.grid, np.array(kept), model.identity())


def prompts_of(model: Model, length: int = 12, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(2, model.module.config.vocab_size, (PROMPT_COUNT, length))
    return [[int(token_id) for token_id in row] for row in rows]


def write(model: Model, mask: Mask, folder: Path, **options: Any) -> Any:
    ids = torch.tensor(prompts_of(model, seed=1))
    batches = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
    return write_gguf_folder(model, mask, folder, batches, compared_on={"task": None}, **options)


def field(path: Path, name: str) -> Any:
    return gguf.GGUFReader(path).fields[name].contents()


def sizes_in(path: Path) -> tuple[str, Any, Any, Any]:
    architecture = field(path, "general.architecture")
    return (
        architecture,
        field(path, f"{architecture}.attention.head_count"),
        field(path, f"{architecture}.attention.head_count_kv"),
        field(path, f"{architecture}.feed_forward_length"),
    )


@with_llama_cpp
@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_continues_as_the_masked_model(case: str, tmp_path: Path) -> None:
    players, names = CASES[case]
    model = playing(tiny_llama(), players)
    mask = closing(model, names)
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
    assert any(
        continuation[: len(tokens)] != tokens
        for tokens, continuation in zip(untouched, answer.continuations, strict=True)
    )


@with_llama_cpp
@pytest.mark.parametrize("number_type", ["float16", "q8_0"])
def test_llama_cpp_reads_smaller_numbers(number_type: str, tmp_path: Path) -> None:
    model = playing(tiny_llama(), "neurons:2")
    mask = closing(model, CASES["uneven neurons"][1])
    prompts = prompts_of(model)
    write(model, mask, tmp_path / "m", number_type=number_type)
    answer = ask_llama_cpp(tmp_path / "m" / "model.gguf", tmp_path, prompts=prompts, count=1)
    first_tokens = [greedy_continuation(model, mask, prompt, 1) for prompt in prompts]
    assert sum(map(list.__eq__, answer.continuations, first_tokens)) >= PROMPT_COUNT - 1


@pytest.mark.parametrize("case", CASES)
def test_lengths_of_layers_are_in_the_file(case: str, tmp_path: Path) -> None:
    players, names = CASES[case]
    model = playing(tiny_llama(), players)
    written, shrunk = write(model, closing(model, names), tmp_path / "m")
    path = written.folder / "model.gguf"
    architecture, *sizes = sizes_in(path)
    assert tuple(sizes) == SIZES[case]
    assert architecture == ("llama" if case == "even neurons" else "deci")
    stand_ins = [
        tensor.data.any()
        for tensor in gguf.GGUFReader(path).tensors
        if 32 in tensor.shape.tolist() and ".ffn_" in tensor.name
    ]
    assert not any(stand_ins)
    assert bool(stand_ins) == ("feed-forward" in players)
    proof = json.loads((written.folder / "proof.json").read_text())
    assert proof["form"] == "gguf"
    assert proof["parameters_after"] == shrunk.parameters_after < proof["parameters_before"]
    assert proof["players"]["removed"] == [
        [player.stack, player.layer, player.head] for player in shrunk.mask.removed
    ]


def test_every_weight_is_read_back(tmp_path: Path) -> None:
    model = playing(tiny_llama(), "kv-groups,neurons:2")
    shrunk = shrink_model(model, closing(model, CASES["groups and neurons"][1]))
    before = {name: weight.clone() for name, weight in shrunk.module.state_dict().items()}
    write_gguf(model, shrunk, tmp_path / "model.gguf", "float32")
    assert not read_into(model, shrunk, tmp_path / "model.gguf")
    for name, weight in shrunk.module.state_dict().items():
        if name != "model.layers.1.input_layernorm.weight":
            assert torch.equal(weight, before[name]), name


def test_a_part_of_a_group_beside_neurons_is_refused(tmp_path: Path) -> None:
    model = playing(tiny_llama(), "heads,neurons:2")
    kept = np.ones(model.grid.size, bool)
    kept[[1, 14]] = False
    with raises("gguf.part_of_group", "0.1", "0.0"):
        write(model, Mask(model.grid, kept, model.identity()), tmp_path / "m")
