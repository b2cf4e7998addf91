"""The script that applies a mask without headlab: its text, and that it gives the same logits."""

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
# Runs a script where headlab cannot be imported, and saves the logits that its model then gives.
CLEAN_SCRIPT = """
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
    modules = [name for name, module in sys.modules.items() if module is not None]
    assert not any(name.startswith("headlab") for name in modules)
"""


def logits_of_prepared_model(family, folder, rng):
    """Save a tiny model with its inputs and script, and give headlab's logits under the mask."""
    from safetensors.torch import save_file

    module = tiny_module(family)
    with building_alone():
        module.save_pretrained(folder)
        # Marian does not save its positions, which are a formula.
        saved_module = type(module).from_pretrained(folder)
    model = make_gateable(Checkpoint(str(folder), "test", family, saved_module, None))
    kept_heads = rng.random(model.grid.size) > 0.4
    mask = Mask(model.grid, kept_heads, model.identity())
    described_model = replace(script_model_of(model), source=str(folder))
    text = mask_script(mask, described_model)
    assert len(text.splitlines()) <= 40
    (folder / "apply.py").write_text(text, encoding="utf-8")
    inputs = tiny_batch(model.module)
    save_file(inputs, folder / "inputs.safetensors")
    with torch.inference_mode(), gated(model, mask):
        return model.module(**inputs).logits


@pytest.mark.slow
def test_the_script_gives_the_same_logits_where_headlab_cannot_be_imported(tmp_path, rng):
    """One interpreter runs the scripts of all families, since importing transformers takes long."""
    from safetensors.torch import load_file

    folders = {family: tmp_path / family for family in FAMILIES}
    expected_logits = {}
    for family, folder in folders.items():
        folder.mkdir()
        expected_logits[family] = logits_of_prepared_model(family, folder, rng)
    command = [
        sys.executable,
        "-I",
        "-c",
        CLEAN_SCRIPT,
        *map(str, folders.values()),
    ]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr
    for family, folder in folders.items():
        logits = load_file(folder / "answer.safetensors")["logits"]
        assert torch.allclose(logits, expected_logits[family], atol=1e-9), family


@pytest.mark.parametrize(
    "family", ["bert", "xlm-roberta", "distilbert", "marian", "t5", "gpt2", "llama", "bloom"]
)
def test_the_script_run_here_gives_the_same_logits(family, rng):
    model = tiny_model(family)
    kept_heads = rng.random(model.grid.size) > 0.4
    mask = Mask(model.grid, kept_heads, model.identity())
    names: dict[str, object] = {}
    text = mask_script(mask, script_model_of(model))
    exec(compile(text, "apply.py", "exec"), names)
    inputs = tiny_batch(model.module)
    with torch.inference_mode():
        baseline_logits = model.module(**inputs).logits
        with gated(model, mask):
            expected_logits = model.module(**inputs).logits
        handles = names["apply_mask"](model.module)  # type: ignore[operator]
        logits = model.module(**inputs).logits
        for handle in handles:
            handle.remove()
        logits_afterwards = model.module(**inputs).logits
    assert torch.allclose(logits, expected_logits, atol=1e-9)
    assert not torch.allclose(logits, baseline_logits, atol=1e-3)
    assert torch.equal(logits_afterwards, baseline_logits)


def script_model(layers=12, **fields):
    kind = {"class": "BertForMaskedLM", "model_type": "bert"}
    paths = [f"bert.encoder.layer.{layer}.attention.output.dense" for layer in range(layers)]
    return ScriptModel(paths, kind, **fields)


@pytest.mark.parametrize("size", ["2x2", "12x12", "48x64"])
def test_the_script_has_at_most_40_lines_however_large_the_model(size, rng):
    grid = parse_grid(size)
    mask = Mask(
        grid,
        rng.random(grid.size) > 0.5,
        {"name": "m", "fingerprint": "f" * 64},
    )
    text = mask_script(mask, script_model(len(grid.stacks[0].heads)))
    assert len(text.splitlines()) <= 40
    names: dict[str, object] = {}
    exec(compile(text, "apply.py", "exec"), names)
    heads_in_script = set()
    for _, _, words in names["OFF"]:  # type: ignore[attr-defined]
        for word in words.split():
            layer, heads = word.split(":")
            heads_in_script |= {(int(layer), int(head)) for head in heads.split(",")}
    assert heads_in_script == {(head.layer, head.head) for head in mask.removed}
    assert "headlab" not in text.replace("headlab's fingerprint", "").replace("headlab.load(", "")


def test_the_script_says_what_a_reader_must_know():
    model = {"name": "e5", "fingerprint": "ab" * 32}
    mask = Mask(
        parse_grid("12x12"),
        np.arange(144) > 3,
        model,
        {"ablation": "mean"},
    )
    text = mask_script(mask, script_model())
    assert "headlab.load('MODEL').module.save_pretrained('FOLDER')" in text
    text_with_name = mask_script(mask, script_model(name="e5"))
    assert "headlab.load('e5').module.save_pretrained('FOLDER')" in text_with_name
    assert "chosen under mean ablation" in text
    assert "abababababab" in text
    assert "save_pretrained" not in mask_script(mask, script_model(source="owner/bert"))
    choice_under_both = {"combined": [{"ablation": "mean"}, {"ablation": "zero"}]}
    text_of_mixed_mask = mask_script(replace(mask, chosen=choice_under_both), script_model())
    assert "Some of the heads were chosen under mean ablation" in text_of_mixed_mask
    mask_of_all_heads = Mask(parse_grid("12x12"), np.ones(144, bool))
    text_of_all_heads = mask_script(mask_of_all_heads, script_model())
    exec(compile(text_of_all_heads, "apply.py", "exec"), {})


def test_the_script_loads_the_same_weights_wherever_it_is_started(tmp_path, monkeypatch):
    mask = Mask(parse_grid("12x12"), np.arange(144) > 3)
    text = mask_script(mask, script_model(source="owner/bert", revision="c0ffee"))
    assert "BertForMaskedLM.from_pretrained('owner/bert', revision='c0ffee').eval()" in text
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    tiny = tiny_model("bert")
    folder_checkpoint = replace(tiny.checkpoint, name="mine", revision="folder")
    model_in_folder = replace(tiny, checkpoint=folder_checkpoint)
    described_model = script_model_of(model_in_folder)
    assert described_model.source == str(folder)
    assert described_model.name == str(folder)
    mask_without_first_head = Mask(tiny.grid, np.arange(tiny.grid.size) > 0)
    text = mask_script(mask_without_first_head, described_model)
    assert f"from_pretrained({str(folder)!r}).eval()" in text
    (folder / "delta.safetensors").write_bytes(b"")
    assert script_model_of(model_in_folder).source is None
    assert script_model_of(model_in_folder).name == str(folder)
    hub_checkpoint = replace(tiny.checkpoint, name="owner/bert", revision="c0ffee")
    model_of_hub = script_model_of(replace(tiny, checkpoint=hub_checkpoint))
    assert model_of_hub.source == "owner/bert"
    assert model_of_hub.revision == "c0ffee"


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
    """Neither text in a mask nor the name of a folder can, with and without a folder to load."""
    mask = Mask(
        parse_grid("12x12"),
        np.arange(144) > 3,
        {"name": hostile, "fingerprint": hostile},
    )
    for described_model in (
        script_model(),
        script_model(name=hostile),
        script_model(source=hostile),
        script_model(source=hostile, revision=hostile),
    ):
        text = mask_script(mask, described_model)
        assert text.encode()
        assert len(text.splitlines()) <= 40
        names: dict[str, object] = {}
        exec(compile(text, "apply.py", "exec"), names)
        assert "os" not in names
        docstring = text.split('"""')[1]
        assert names["__doc__"] == docstring
    mask_without_fingerprint = replace(mask, model={"fingerprint": None, "name": hostile})
    text = mask_script(mask_without_fingerprint, script_model())
    exec(compile(text, "apply.py", "exec"), {})


@pytest.mark.parametrize("name", [*HOSTILE, '/home/a/it\'s "best" model', "C:\\models"])
def test_reported_20_the_code_in_a_script_names_the_model_as_it_is(name):
    """The code that writes the folder of the model, and the code that reads it, run as they are."""
    lines = mask_script(MASK_OF_TWELVE, script_model(name=name)).splitlines()
    (comment,) = [line for line in lines if line.startswith("# Write")]
    code = comment.split("first: ")[1].removesuffix(".")
    names = constants_of(ast.parse(code, mode="eval"))
    assert names == ["FOLDER", name] or names == [name, "FOLDER"]
    script = mask_script(MASK_OF_TWELVE, script_model(source=name))
    assert name in constants_of(ast.parse(script))


def constants_of(code: ast.AST) -> list[object]:
    """The constants that are written in code."""
    return [node.value for node in ast.walk(code) if isinstance(node, ast.Constant)]


def test_a_mask_that_no_script_can_apply_is_refused():
    grid = parse_grid("2x2")
    uneven_mask = Mask(grid, np.array([True, False, True, True]))
    albert = {"class": "AlbertModel", "model_type": "albert"}
    shared_model = ScriptModel(["albert.group.0.dense"] * 2, albert)
    with raises("snippet.module_shared"):
        mask_script(uneven_mask, shared_model)
    even_mask = Mask(grid, np.array([True, False, True, False]))
    even_script = mask_script(even_mask, shared_model)
    assert '"albert.group.{}.dense", 2, "0:1"' in even_script
    with raises("snippet.layers_mismatch"):
        mask_script(uneven_mask, script_model(3))
    own_class = {"class": "AllAttentionForCausalLM", "model_type": "headlab-all-attention"}
    own_class_model = replace(script_model(2), architecture=own_class)
    with raises("snippet.class_unknown"):
        mask_script(uneven_mask, own_class_model)


def test_the_worker_says_where_a_model_has_its_projections(tmp_path):
    from headlab.worker.model_host import ModelHost

    model = tiny_model("marian")
    loaded = ModelHost(tmp_path, "cpu", loader=lambda _: model).load("tiny-marian")
    modules = dict(model.module.named_modules())
    assert tuple(modules[path] for path in loaded.projections) == model.projections
    assert loaded.architecture == {"class": "MarianMTModel", "model_type": "marian"}
    assert loaded.source == "tiny-marian"
    embedded_checkpoint = replace(model.checkpoint, name="e5-small-intents")
    embedded_model = replace(model, checkpoint=embedded_checkpoint)
    assert script_model_of(embedded_model).source is None  # it is no folder of its own
