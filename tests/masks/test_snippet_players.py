"""The script that applies a mask of other players: its length, and that it gives the same logits."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.players_by_hand import playing
from support.tiny_models import tiny_batch, tiny_model, tiny_module

from headlab.core import KINDS_OF_HEADS, HeadGrid, Stack
from headlab.hooks import Model, gated, make_gateable, script_model_of
from headlab.masks import Mask, ScriptModel, mask_of_heads, mask_script
from headlab.models.checkpoint import Checkpoint, building_alone

CASES = [
    ("bert", "neurons:2"),
    ("bert", "heads,neurons:2"),
    ("bert", "attention"),
    ("bert", "layers"),
    ("bert", "attention,feed-forward,layers"),
    ("llama", "kv-groups"),
    ("llama", "kv-groups,neurons:2,layers"),
    ("gpt2", "heads,feed-forward,layers"),
    ("marian", "feed-forward"),
    ("t5", "heads,neurons:2"),
    ("modernbert", "feed-forward,neurons:2"),
]


def some_off(model: Model, seed: int = 0) -> Mask:
    """A mask with one player of each kind off, and not all layers."""
    rng = np.random.default_rng(seed)
    kinds = np.array([model.grid.kind_of(player) for player in model.grid.heads])
    kept = rng.random(model.grid.size) > 0.3
    for kind in model.grid.kinds:
        players = np.flatnonzero(kinds == kind)
        kept[players[1:]] |= kind == "layers"
        kept[players[0]] = False
    return Mask(model.grid, kept, model.identity())


@pytest.mark.parametrize(("family", "players"), CASES)
def test_the_script_gives_the_masked_logits(family: str, players: str) -> None:
    model = playing(tiny_model(family), players)
    mask = some_off(model)
    text = mask_script(mask, script_model_of(model))
    assert len(text.splitlines()) <= 60
    assert "import headlab" not in text
    names: dict[str, object] = {}
    exec(compile(text, "apply.py", "exec"), names)
    inputs = tiny_batch(model.module)
    with torch.inference_mode():
        untouched = model.module(**inputs).logits
        with gated(model, mask):
            expected = model.module(**inputs).logits
        handles = names["apply_mask"](model.module)  # type: ignore[operator]
        logits = model.module(**inputs).logits
        for handle in handles:
            handle.remove()
        afterwards = model.module(**inputs).logits
    assert torch.allclose(logits, expected, atol=1e-9)
    assert not torch.allclose(logits, untouched, atol=1e-3)
    assert torch.equal(afterwards, untouched)


def test_the_script_says_what_is_off() -> None:
    model = playing(tiny_model("bert"), "neurons:2")
    described = script_model_of(model)
    kept = np.ones(model.grid.size, bool)
    kept[:3] = False
    mask = Mask(model.grid, kept, model.identity(), {"ablation": "mean"})
    text = mask_script(mask, described)
    assert "Switches 3 of 6 groups of neurons of" in text
    assert "The groups of neurons were chosen under mean ablation; here they give 0." in text
    with raises("snippet.layers_mismatch"):
        mask_script(mask, replace(described, downs=described.downs[:1]))
    with raises("mask.not_of_heads"):
        mask_script(mask, replace(described, players=None))


def test_a_large_model_fits_on_60_lines() -> None:
    """Masks of large models make long lines, not more."""
    from headlab.core import Cells, PlayerCells

    layers, neurons = 48, 4096
    rng = np.random.default_rng(0)
    members = tuple(tuple(rng.permutation(np.arange(neurons) % 8).tolist()) for _ in range(layers))
    names = ("decoder-neurons", "decoder-layers")
    stacks = (Stack(names[0], (8,) * layers, members), Stack(names[1], (1,) * layers))
    grid = HeadGrid(stacks)
    cells = tuple(
        (Cells(np.full(neurons, layer), np.array(groups)),) for layer, groups in enumerate(members)
    )
    heads = HeadGrid((Stack("decoder", (2,) * layers),))
    players = PlayerCells(grid, heads, (), cells, tuple(range(layers, 2 * layers)))
    paths = [f"model.layers.{layer}" for layer in range(layers)]
    downs = [f"{path}.mlp.down_proj" for path in paths]
    architecture = {"class": "LlamaForCausalLM", "model_type": "llama"}
    place = ScriptModel([], architecture, downs=downs, layers=paths, players=players)
    text = mask_script(Mask(grid, rng.random(grid.size) > 0.5), place)
    assert len(text.splitlines()) <= 60
    names_in_script: dict[str, object] = {}
    exec(compile(text, "apply.py", "exec"), names_in_script)


def test_layers_that_share_a_module_cannot_be_told_apart() -> None:
    model = playing(tiny_model("albert"), "neurons:2")
    kept = np.ones(model.grid.size, bool)
    kept[0] = False
    with raises("snippet.module_shared"):
        mask_script(Mask(model.grid, kept), script_model_of(model))


@pytest.mark.parametrize("players", ["heads,neurons:2", "kv-groups,neurons:2", "attention,layers"])
def test_a_mask_is_one_of_heads_where_only_heads_are_off(players: str) -> None:
    model = playing(tiny_model("llama"), players)
    described = script_model_of(model)
    is_of_heads = np.array([model.grid.kind_of(one) in KINDS_OF_HEADS for one in model.grid.heads])
    kept = np.ones(model.grid.size, bool)
    kept[0] = False
    mask = Mask(model.grid, kept.copy(), model.identity())
    of_heads = mask_of_heads(mask, described.players)
    assert of_heads is not None
    assert of_heads.grid == model.head_grid
    assert {head.layer for head in of_heads.removed} == {0}
    inputs = tiny_batch(model.module)
    with torch.inference_mode():
        with gated(model, mask):
            expected = model.module(**inputs).logits
        with gated(playing(model, "heads"), of_heads):
            assert torch.equal(model.module(**inputs).logits, expected)
    text = mask_script(mask, described)
    assert "attention heads" in text
    kept[np.flatnonzero(~is_of_heads)[0]] = False
    assert mask_of_heads(Mask(model.grid, kept), described.players) is None
    assert (mask_of_heads(mask) is None) == ("heads" not in players)


RUN_SCRIPT = """
import runpy, sys
sys.modules["headlab"] = None
import torch
from safetensors.torch import load_file, save_file
folder = sys.argv[1]
names = runpy.run_path(f"{folder}/apply.py", run_name="__main__")
with torch.inference_mode():
    out = names["model"](**load_file(f"{folder}/inputs.safetensors")).logits
save_file({"logits": out.contiguous()}, f"{folder}/answer.safetensors")
"""


@pytest.mark.slow
def test_the_script_runs_where_headlab_cannot_be_imported(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    module = tiny_module("llama")
    with building_alone():
        module.save_pretrained(tmp_path)
        saved_module = type(module).from_pretrained(tmp_path)
    model = make_gateable(Checkpoint(str(tmp_path), "test", "llama", saved_module, None))
    model = playing(model, "heads,neurons:2,layers")
    mask = some_off(model)
    described = replace(script_model_of(model), source=str(tmp_path))
    (tmp_path / "apply.py").write_text(mask_script(mask, described), encoding="utf-8")
    inputs = tiny_batch(model.module)
    save_file(inputs, tmp_path / "inputs.safetensors")
    with torch.inference_mode(), gated(model, mask):
        expected = model.module(**inputs).logits
    command = [sys.executable, "-I", "-c", RUN_SCRIPT, str(tmp_path)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr
    logits = load_file(tmp_path / "answer.safetensors")["logits"]
    assert torch.allclose(logits, expected, atol=1e-6)
