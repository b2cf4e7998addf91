"""Tables of groups that stream: read as DuoAttention and kvpress read them, and what they say."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.players_by_hand import playing
from support.streaming_by_hand import by_hand, closed_by_hand
from support.tiny_llama import tiny_llama
from support.tiny_models import tiny_model
from support.tiny_task import tiny_tokenizer

from headlab.hooks import ActiveGates, Model
from headlab.masks import Mask
from headlab.shrink import read_pattern, write_duo_folder
from headlab.shrink.duo import remark_on

UNDER = {"ablation": "streaming:2,5"}


def duo_reads(folder: Path) -> tuple[np.ndarray, int, int, Mapping[str, Any]]:
    """The steps of DuoAttention: `load_attn_pattern`, then `sparsify_attention_heads`.

    The second adds noise to break ties and cuts at a quantile.
    """
    config = json.loads((folder / "config.json").read_text())
    table = np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t")
    table = np.clip(table, 0, 1)
    noise = np.random.default_rng(1).uniform(0, 1e-6, table.shape)
    noisy = table + noise
    threshold = np.quantile(noisy, config["sparsity"])
    if config["sparsity"] >= 1:
        threshold = 2
    if config["sparsity"] <= 0:
        threshold = -1
    return (noisy >= threshold).astype(float), config["sink_size"], config["recent_size"], config


def kvpress_reads(folder: Path) -> np.ndarray:
    """The steps of `DuoAttentionPress`: as many lowest scores as its ratio says stream."""
    config = json.loads((folder / "config.json").read_text())
    scores = np.clip(np.loadtxt(folder / "full_attention_heads.tsv", delimiter="\t"), 0, 1)
    streaming = np.zeros(scores.shape, bool)
    count = round(scores.size * config["sparsity"])
    if count:
        lowest = np.argsort(scores, axis=None)[:count]
        streaming[np.unravel_index(lowest, scores.shape)] = True
    return streaming


def duo_mask(tokens: int, sink: int, recent: int) -> torch.Tensor:
    """The streaming mask of DuoAttention's training, bool [query, key]."""
    ones = torch.ones(tokens, tokens, dtype=torch.bool)
    recent_mask = torch.triu(ones, diagonal=-recent + 1)
    sink_mask = ones.clone()
    sink_mask[:, sink:] = False
    return (recent_mask | sink_mask) & ~torch.triu(ones, diagonal=1)


def groups_mask(model: Model, kept: np.ndarray, chosen: dict[str, Any] | None = None) -> Mask:
    return Mask(model.grid, kept, model.identity(), UNDER if chosen is None else chosen)


@pytest.mark.parametrize("closed", [(), (1,), (0, 3, 4), (0, 1, 2, 3, 4, 5)])
def test_both_readers_find_the_groups_of_the_mask(tmp_path: Path, closed: tuple[int, ...]) -> None:
    model = playing(tiny_llama(), "kv-groups")
    kept = ~np.isin(np.arange(model.grid.size), closed)
    record = write_duo_folder(model, groups_mask(model, kept), tmp_path / "out")
    full, sink, recent, config = duo_reads(tmp_path / "out")
    assert (sink, recent, config["model_name"]) == (2, 5, "tiny-llama")
    assert_array_equal(full.ravel() == 1, kept)
    assert full.shape == (3, 2)
    assert_array_equal(~kvpress_reads(tmp_path / "out").ravel(), kept)
    assert record["streaming"] == len(closed)
    assert record["max_logit_difference"] == 0
    assert (record["untouched_difference"] > 0) == bool(closed)
    proof = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert set(proof["files"]) == {
        "config.json",
        "full_attention_heads.tsv",
        "mask.json",
        "README.md",
    }
    assert repr(record["sparsity"]) in (tmp_path / "out" / "README.md").read_text()


def test_what_is_written_gives_the_answers_of_a_slow_loop(tmp_path: Path) -> None:
    """The table alone, with DuoAttention's own mask, gives what the mask does in headlab."""
    whole = tiny_llama()
    whole.module.double()
    model = playing(whole, "kv-groups")
    kept = np.array([True, False, False, True, True, False])
    mask = groups_mask(model, kept)
    write_duo_folder(model, mask, tmp_path / "out")
    pattern = read_pattern(tmp_path / "out")
    seen = duo_mask(12, *pattern.sizes)
    for token in range(12):
        by_list = [other for other in range(token + 1) if other < 2 or other > token - 5]
        assert seen[token].nonzero()[:, 0].tolist() == by_list
    closed = [
        (layer, 2 * group + head)
        for layer, group in np.argwhere(pattern.table == 0).tolist()
        for head in range(2)
    ]
    ids = torch.as_tensor(np.random.default_rng(0).integers(5, 300, (2, 12)))
    with torch.no_grad():
        with closed_by_hand(closed, *pattern.sizes):
            slow = by_hand(whole.module)(input_ids=ids).logits
        gates = torch.as_tensor(model.grid.gates(kept)).double()
        with model.active(ActiveGates(gates=gates, streaming=pattern.sizes)):
            logits = whole.module(input_ids=ids).logits
    assert_allclose(slow.numpy(), logits.numpy(), atol=1e-5)


def test_masks_of_heads_and_attentions_are_written_where_they_keep_groups_whole(
    tmp_path: Path,
) -> None:
    whole = tiny_llama()
    attention = playing(whole, "attention")
    write_duo_folder(
        attention, groups_mask(attention, np.array([True, False, True])), tmp_path / "a"
    )
    assert read_pattern(tmp_path / "a").table.tolist() == [[1, 1], [0, 0], [1, 1]]
    kept = np.ones(12, bool)
    kept[[2, 3]] = False
    write_duo_folder(whole, groups_mask(whole, kept), tmp_path / "b")
    assert read_pattern(tmp_path / "b").table.tolist() == [[1, 0], [1, 1], [1, 1]]
    kept[4] = False
    with raises("duo.group_parted", "layer 1"):
        write_duo_folder(whole, groups_mask(whole, kept), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_model_whose_heads_all_have_keys_of_their_own_has_a_column_for_each(
    tmp_path: Path,
) -> None:
    model = tiny_model("gpt2", tokenizer=tiny_tokenizer())
    kept = np.arange(model.grid.size) % 5 != 0
    record = write_duo_folder(model, groups_mask(model, kept), tmp_path / "out")
    assert_array_equal(read_pattern(tmp_path / "out").table.ravel() == 1, kept)
    assert record["groups"] == 12


@pytest.mark.parametrize(
    ("class_name", "readers"),
    [
        ("LlamaForCausalLM", ["DuoAttention", "kvpress"]),
        ("MistralForCausalLM", ["DuoAttention", "kvpress"]),
        ("Qwen2ForCausalLM", ["kvpress"]),
        ("GPT2LMHeadModel", []),
    ],
)
def test_the_folder_names_the_programs_that_take_such_a_model(
    tmp_path: Path, class_name: str, readers: list[str]
) -> None:
    model = (
        tiny_model("gpt2", tokenizer=tiny_tokenizer())
        if class_name.startswith("GPT2")
        else tiny_llama(class_name=class_name)
    )
    mask = groups_mask(model, np.ones(model.grid.size, bool))
    assert write_duo_folder(model, mask, tmp_path / "out")["readers"] == readers
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("from duo_attn.utils import" in card) == ("DuoAttention" in readers)
    assert ("from kvpress import" in card) == ("kvpress" in readers)
    assert ("is neither" in card) == ("DuoAttention" not in readers)
    assert ("cannot run" in card) == ("kvpress" not in readers)


def test_the_lines_for_kvpress_hand_it_the_table_and_the_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Press:
        """Takes what kvpress's own press takes."""

        def __init__(self, head_compression_ratio: float) -> None:
            self.head_compression_ratio = head_compression_ratio

        @staticmethod
        def load_attention_pattern(model: Any) -> Any:
            raise AssertionError(f"looks for {model} on the net")

    kvpress = ModuleType("kvpress")
    monkeypatch.setattr(kvpress, "DuoAttentionPress", Press, raising=False)
    monkeypatch.setitem(sys.modules, "kvpress", kvpress)
    model = playing(tiny_llama(), "kv-groups")
    write_duo_folder(model, groups_mask(model, np.arange(6) % 3 != 1), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text().replace("THIS FOLDER", f"{tmp_path}/out")
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if "import DuoAttentionPress" in block), names)
    press = names["press"]
    sink, recent, table = press.load_attention_pattern(model)
    assert (sink, recent, press.head_compression_ratio) == (2, 5, 1 / 3)
    assert_array_equal(table, [[1, 0], [1, 1], [0, 1]])


@pytest.mark.parametrize(
    ("chosen", "sizes", "remark"),
    [
        (UNDER, (2, 5), ""),
        ({"score": {"ablation": "streaming:3,4"}}, (3, 4), ""),
        ({"ablation": "zero"}, (4, 64), "chosen under zero ablation"),
        ({"ablation": "mean"}, (4, 64), "chosen under mean ablation"),
        ({}, (4, 64), "of no known ablation"),
    ],
)
def test_a_mask_chosen_under_something_else_is_said(
    tmp_path: Path, chosen: dict[str, Any], sizes: tuple[int, int], remark: str
) -> None:
    model = playing(tiny_llama(), "kv-groups")
    mask = groups_mask(model, np.arange(6) != 2, chosen)
    record = write_duo_folder(model, mask, tmp_path / "out")
    assert (record["sink_size"], record["recent_size"]) == sizes
    assert record["chosen_under"] == mask.ablation
    said = remark_on(mask)
    assert remark in said
    assert bool(said) == bool(remark)


def test_what_has_no_such_table_is_refused(tmp_path: Path) -> None:
    model = playing(tiny_llama(), "kv-groups")
    mixed = groups_mask(model, np.arange(6) != 2, {"ablation": "mixed"})
    with raises("duo.mask_mixed", "streaming:4,64"):
        write_duo_folder(model, mixed, tmp_path / "out")
    for family, players, code in (
        ("bert", "heads", "ablation.streaming_decoders"),
        ("bloom", "heads", "ablation.streaming_attention"),
        ("llama", "layers", "ablation.players"),
    ):
        other = playing(tiny_model(family, tokenizer=tiny_tokenizer()), players)
        with raises(code):
            write_duo_folder(
                other, groups_mask(other, np.ones(other.grid.size, bool)), tmp_path / "out"
            )
    with raises("mask.other_players") as caught:
        write_duo_folder(
            playing(tiny_llama(), "attention"), groups_mask(model, np.ones(6, bool)), tmp_path / "o"
        )
    assert caught
    assert not any(tmp_path.iterdir())


def test_a_folder_of_ones_own_is_kept_and_one_of_headlab_is_replaced(tmp_path: Path) -> None:
    model = playing(tiny_llama(), "kv-groups")
    own = tmp_path / "own"
    own.mkdir()
    (own / "full_attention_heads.tsv").write_text("0.5\t0.5\n")
    with raises("output.not_replaceable"):
        write_duo_folder(model, groups_mask(model, np.ones(6, bool)), own)
    target = tmp_path / "out"
    write_duo_folder(model, groups_mask(model, np.ones(6, bool)), target)
    write_duo_folder(model, groups_mask(model, np.zeros(6, bool)), target)
    assert not read_pattern(target).table.any()
