"""The script that applies a mask without headlab: what it says, and that it gives the same logits."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.tiny_models import tiny_batch, tiny_model, tiny_module

from headlab.hooks import gated, make_gateable, script_model_of
from headlab.masks import Mask, ScriptModel, mask_script, parse_grid
from headlab.models.checkpoint import Checkpoint, building_alone

FAMILIES = ("bert", "marian", "gpt2", "llama")
# Runs a snippet as a script where headlab cannot be imported, and keeps what its model then answers.
CLEAN = """
import runpy, sys
sys.modules["headlab"] = None
import torch
from safetensors.torch import load_file, save_file
for folder in sys.argv[1:]:
    names = runpy.run_path(f"{folder}/apply.py", run_name="__main__")
    with torch.inference_mode():
        out = names["model"](**load_file(f"{folder}/inputs.safetensors")).logits
    handles = runpy.run_path(f"{folder}/apply.py")["apply_mask"](names["model"])
    for handle in handles:
        handle.remove()
    save_file({"logits": out.contiguous()}, f"{folder}/answer.safetensors")
    assert not any(name.startswith("headlab") for name in sys.modules if sys.modules[name] is not None)
"""


def prepared(family, folder, rng):
    """A tiny model saved to a folder with its inputs and script; gives the logits that headlab has under the mask."""
    from safetensors.torch import save_file

    module = tiny_module(family)
    with building_alone():
        module.save_pretrained(folder)
        # Marian does not save its positions: they are a formula
        again = type(module).from_pretrained(folder)
    model = make_gateable(Checkpoint(str(folder), "test", family, again, None))
    mask = Mask(model.grid, rng.random(model.grid.size) > 0.4, model.identity())
    place = replace(script_model_of(model), source=str(folder))
    text = mask_script(mask, place)
    assert len(text.splitlines()) <= 40
    (folder / "apply.py").write_text(text, encoding="utf-8")
    inputs = tiny_batch(model.module)
    save_file(inputs, folder / "inputs.safetensors")
    with torch.inference_mode(), gated(model, mask):
        return model.module(**inputs).logits


@pytest.mark.slow
def test_the_script_gives_the_same_logits_where_headlab_cannot_be_imported(tmp_path, rng):
    """One clean interpreter for all families: it has transformers to import."""
    from safetensors.torch import load_file

    folders = {family: tmp_path / family for family in FAMILIES}
    wanted = {}
    for family, folder in folders.items():
        folder.mkdir()
        wanted[family] = prepared(family, folder, rng)
    command = [sys.executable, "-I", "-c", CLEAN, *map(str, folders.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for family, folder in folders.items():
        got = load_file(folder / "answer.safetensors")["logits"]
        assert torch.allclose(got, wanted[family], atol=1e-9), family


@pytest.mark.parametrize(
    "family", ["bert", "xlm-roberta", "distilbert", "marian", "t5", "gpt2", "llama", "bloom"]
)
def test_the_script_run_here_gives_the_same_logits(family, rng):
    model = tiny_model(family)
    mask = Mask(model.grid, rng.random(model.grid.size) > 0.4, model.identity())
    names: dict[str, object] = {}
    exec(compile(mask_script(mask, script_model_of(model)), "apply.py", "exec"), names)
    inputs = tiny_batch(model.module)
    with torch.inference_mode():
        untouched = model.module(**inputs).logits
        with gated(model, mask):
            wanted = model.module(**inputs).logits
        handles = names["apply_mask"](model.module)  # type: ignore[operator]
        got = model.module(**inputs).logits
        for handle in handles:
            handle.remove()
        again = model.module(**inputs).logits
    assert torch.allclose(got, wanted, atol=1e-9)
    assert not torch.allclose(got, untouched, atol=1e-3)
    assert torch.equal(again, untouched)


def place(layers=12, **more):
    kind = {"class": "BertForMaskedLM", "model_type": "bert"}
    return ScriptModel(
        [f"bert.encoder.layer.{i}.attention.output.dense" for i in range(layers)], kind, **more
    )


@pytest.mark.parametrize("size", ["2x2", "12x12", "48x64"])
def test_the_script_has_at_most_40_lines_however_large_the_model(size, rng):
    grid = parse_grid(size)
    mask = Mask(grid, rng.random(grid.size) > 0.5, {"name": "m", "fingerprint": "f" * 64})
    text = mask_script(mask, place(len(grid.stacks[0].heads)))
    assert len(text.splitlines()) <= 40
    names: dict[str, object] = {}
    exec(compile(text, "apply.py", "exec"), names)
    told = {
        (int(word.split(":")[0]), int(head))
        for _, _, words in names["OFF"]  # type: ignore[attr-defined]
        for word in words.split()
        for head in word.split(":")[1].split(",")
    }
    assert told == {(head.layer, head.head) for head in mask.removed}
    assert "headlab" not in text.replace("headlab's fingerprint", "").replace("headlab.load(", "")


def test_the_script_says_what_a_reader_must_know():
    mask = Mask(
        parse_grid("12x12"),
        np.arange(144) > 3,
        {"name": "e5", "fingerprint": "ab" * 32},
        {"ablation": "mean"},
    )
    text = mask_script(mask, place())
    assert "headlab.load('MODEL').module.save_pretrained('FOLDER')" in text
    assert "headlab.load('e5').module.save_pretrained('FOLDER')" in mask_script(
        mask, place(name="e5")
    )
    assert "chosen under mean ablation" in text
    assert "abababababab" in text
    assert "save_pretrained" not in mask_script(mask, place(source="owner/bert"))
    mixed = replace(mask, chosen={"combined": [{"ablation": "mean"}, {"ablation": "zero"}]})
    assert "Some of the heads were chosen under mean ablation" in mask_script(mixed, place())
    nothing = Mask(parse_grid("12x12"), np.ones(144, bool))
    exec(compile(mask_script(nothing, place()), "apply.py", "exec"), {})


def test_the_script_loads_the_same_weights_wherever_it_is_started(tmp_path, monkeypatch):
    mask = Mask(parse_grid("12x12"), np.arange(144) > 3)
    text = mask_script(mask, place(source="owner/bert", revision="c0ffee"))
    assert "BertForMaskedLM.from_pretrained('owner/bert', revision='c0ffee').eval()" in text
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    tiny = tiny_model("bert")
    folder = replace(tiny, checkpoint=replace(tiny.checkpoint, name="mine", revision="folder"))
    here = script_model_of(folder)
    assert (here.source, here.name) == (str(tmp_path / "mine"), str(tmp_path / "mine"))
    some = Mask(tiny.grid, np.arange(tiny.grid.size) > 0)
    assert f"from_pretrained({str(tmp_path / 'mine')!r}).eval()" in mask_script(some, here)
    (tmp_path / "mine" / "delta.safetensors").write_bytes(b"")
    assert (script_model_of(folder).source, script_model_of(folder).name) == (
        None,
        str(tmp_path / "mine"),
    )
    hub = replace(tiny, checkpoint=replace(tiny.checkpoint, name="owner/bert", revision="c0ffee"))
    assert (script_model_of(hub).source, script_model_of(hub).revision) == ("owner/bert", "c0ffee")


MASK_OF_TWELVE = Mask(parse_grid("12x12"), np.arange(144) > 3)
HOSTILE = (
    '"""\nimport os',
    "a'b\\",
    "\u202eevil\n",
    'x"' * 60,
    "x\nimport os\n",
    'x""";import os;"""',
    "\\",
    '"',
    "\\N{x}",
    "')\nimport os #",
    "{kind}",
    "\ud800",
)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_cannot_break_out_of_the_script(hostile):
    """Neither a mask's words nor a folder's name; with and without a folder to load."""
    mask = Mask(parse_grid("12x12"), np.arange(144) > 3, {"name": hostile, "fingerprint": hostile})
    for here in (
        place(),
        place(name=hostile),
        place(source=hostile),
        place(source=hostile, revision=hostile),
    ):
        text = mask_script(mask, here)
        assert text.encode()
        assert len(text.splitlines()) <= 40
        names: dict[str, object] = {}
        exec(compile(text, "apply.py", "exec"), names)
        assert "os" not in names
        first = text.split('"""')[1]
        assert names["__doc__"] == first
    bare = replace(mask, model={"fingerprint": None, "name": hostile})
    exec(compile(mask_script(bare, place()), "apply.py", "exec"), {})


@pytest.mark.parametrize("name", [*HOSTILE, '/home/a/it\'s "best" model', "C:\\models"])
def test_reported_20_the_code_in_a_script_names_the_model_as_it_is(name):
    """What writes the model's folder, and what reads it, can be run as they stand."""
    (comment,) = [
        line
        for line in mask_script(MASK_OF_TWELVE, place(name=name)).splitlines()
        if line.startswith("# Write")
    ]
    call = ast.parse(comment.split("first: ")[1].removesuffix("."), mode="eval")
    names = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
    assert names == ["FOLDER", name] or names == [name, "FOLDER"]
    script = ast.parse(mask_script(MASK_OF_TWELVE, place(source=name)))
    assert name in [node.value for node in ast.walk(script) if isinstance(node, ast.Constant)]


def test_what_a_script_cannot_do_is_said():
    grid = parse_grid("2x2")
    uneven = Mask(grid, np.array([True, False, True, True]))
    shared = ScriptModel(
        ["albert.group.0.dense"] * 2, {"class": "AlbertModel", "model_type": "albert"}
    )
    with raises("snippet.module_shared"):
        mask_script(uneven, shared)
    even = mask_script(Mask(grid, np.array([True, False, True, False])), shared)
    assert '"albert.group.{}.dense", 2, "0:1"' in even
    with raises("snippet.layers_mismatch"):
        mask_script(uneven, place(3))
    own = replace(
        place(2),
        architecture={"class": "AllAttentionForCausalLM", "model_type": "headlab-all-attention"},
    )
    with raises("snippet.class_unknown"):
        mask_script(uneven, own)


def test_the_worker_tells_where_a_model_has_its_projections(tmp_path):
    from headlab.worker.model_host import ModelHost

    model = tiny_model("marian")
    told = ModelHost(tmp_path, "cpu", loader=lambda _: model).load("tiny-marian")
    modules = dict(model.module.named_modules())
    assert tuple(modules[path] for path in told.projections) == model.projections
    assert told.architecture == {"class": "MarianMTModel", "model_type": "marian"}
    assert told.source == "tiny-marian"
    embedded = replace(model, checkpoint=replace(model.checkpoint, name="e5-small-intents"))
    assert script_model_of(embedded).source is None  # it is no folder of its own
