"""`headlab export` on the command line: each form, what it promises, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import transformers as hf
from support.exports import export
from support.saved_models import save_classifier, save_model
from support.tiny_llama import UNEVEN, tiny_llama, without_groups

import headlab
from headlab.cli.run import main
from headlab.masks import Mask

KEPT = np.array([1, 0, 1, 0, 0, 0], bool)
ON_TASK = ("--task", "intents", "--languages", "de", "--vocabulary", "keep")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier of intents and two masks that empty its second layer."""
    folder = tmp_path_factory.mktemp("cli")
    model = headlab.load(str(save_classifier(folder / "model")))
    Mask(model.grid, KEPT, model.identity()).save(folder / "mask.json")
    mean = {"ablation": "mean"}
    Mask(model.grid, KEPT, model.identity(), mean).save(folder / "mean.json")
    return folder


def test_a_plain_folder_is_what_scripts_were_promised(folder, capsys):
    code, stdout, stderr = export(folder, capsys, "folder", *ON_TASK, "--json", out="plain")
    result = json.loads(stdout)
    assert code == 0
    assert stderr.startswith("export: 30 forwards, about ")
    assert result["form"] == "folder"
    assert result["max_logit_difference"] <= 1e-5
    assert result["random_input"]["max_logit_difference"] <= 1e-5
    assert result["equal_answers"] == 1
    assert (result["heads_before"], result["heads_silenced"]) == (6, 4)
    assert result["parameters_before"] == result["parameters_after"]
    module = hf.AutoModelForSequenceClassification.from_pretrained(folder / "plain")
    assert type(module) is hf.BertForSequenceClassification
    proof = json.loads((folder / "plain" / "proof.json").read_text())
    assert proof["command"][:2] == ["headlab", "export"]
    assert str(folder) not in json.dumps(proof)
    assert headlab.load(str(folder / "plain")).fingerprint == result["fingerprint"]


def test_heads_give_the_mean_of_the_examples_that_are_named(folder, capsys):
    code, stdout, _ = export(folder, capsys, "folder", *ON_TASK, mask="mean.json", out="means")
    assert code == 0
    assert "removed heads give their mean output on dev examples: de 5" in stdout
    proof = json.loads((folder / "means" / "proof.json").read_text())
    assert proof["means_of"] == {"task": "intents", "split": "dev", "examples": {"de": 5}}
    in_three = ("--task", "intents", "--languages", "de,th,fi", "--size", "7")  # a folder keeps all
    code, _, _ = export(folder, capsys, "folder", *in_three, mask="mean.json", out="means")
    assert code == 0
    proof = json.loads((folder / "means" / "proof.json").read_text())
    assert proof["means_of"]["examples"] == {"de": 2, "th": 2, "fi": 2}
    code, _, stderr = export(folder, capsys, "folder", mask="mean.json", out="never")
    assert code == 2
    assert "name those of a task, like --task intents" in stderr
    code, _, stderr = export(folder, capsys, "small", *ON_TASK, mask="mean.json", out="never")
    assert code == 2
    assert "headlab export --as folder" in stderr
    assert not (folder / "never").exists()


def test_the_small_form_is_what_shrink_writes(folder, capsys):
    code, stdout, _ = export(folder, capsys, "small", *ON_TASK, "--json", out="small")
    result = json.loads(stdout)
    assert code == 0
    assert result["form"] == "small"
    assert result["parameters_before"] - result["parameters_after"] == 4 * (4 * 24 * 8 + 3 * 8)
    paths = ["--model", str(folder / "model"), "--mask", str(folder / "mask.json")]
    paths += ["--out", str(folder / "shrunk")]
    code = main(["shrink", *paths, "--size", "5", "--repeats", "6", *ON_TASK[:4], "--json"])
    shrunk = json.loads(capsys.readouterr().out)
    assert code == 0
    assert shrunk["fingerprint"] == result["fingerprint"]
    proof = json.loads((folder / "small" / "proof.json").read_text())
    assert proof["command"] == [
        *("headlab", "export", "--mask", "mask.json", "--out", "small", "--model", "model"),
        *("--task", "intents", "--languages", "de", "--size", "5", "--repeats", "6"),
        *("--vocabulary", "keep", "--as", "small"),
    ]
    assert shrunk.keys() == result.keys() - {"form"}


def test_a_file_for_llama_cpp_is_what_scripts_were_promised(tmp_path, capsys):
    pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")
    tiny = tiny_llama()
    save_model(tmp_path / "model", tiny.module, tiny.tokenizer)
    model = headlab.load(str(tmp_path / "model"))
    without_groups(model, UNEVEN).save(tmp_path / "mask.json")
    arguments = ("--dtype", "q8_0")
    code, stdout, _ = export(tmp_path, capsys, "gguf", *arguments, "--json", out="small")
    result = json.loads(stdout)
    assert code == 0
    assert result["file"] == str(tmp_path / "small" / "model.gguf")
    assert result["bytes_after"] == Path(result["file"]).stat().st_size
    assert result["bytes_after"] < result["bytes_before"] / 2
    assert (result["groups_removed"], result["heads_removed"]) == (3, 6)
    assert result["parameters_after"] < result["parameters_before"]
    assert result["max_logit_difference"] <= result["tolerance"]
    code, stdout, _ = export(tmp_path, capsys, "gguf", *arguments, out="small")  # replaces it
    assert code == 0
    assert "6 of 12 heads removed, in 3 groups; read by llama.cpp" in stdout
    assert "of float32 -> " in stdout
    assert "of q8_0" in stdout


@pytest.mark.parametrize(
    ("form", "arguments", "phrase"),
    [
        ("gif", (), "unknown form 'gif'; use --as with one of folder, small, onnx"),
        ("folder", ("--languages", "de"), "--languages would be about a task"),
        ("folder", ("--dtype", "int8"), "unknown dtype 'int8'"),
        ("gguf", ("--dtype", "float64"), "not in float64"),
        ("onnx", ("--task", "nope"), "nope"),
    ],
)
def test_what_does_not_fit_ends_with_a_sentence(folder, capsys, form, arguments, phrase):
    code, stdout, stderr = export(folder, capsys, form, *arguments, out="never")
    assert (code, stdout) == (2, "")
    assert stderr.startswith("headlab: ")
    assert phrase in stderr
    assert not (folder / "never").exists()


def test_a_model_that_llama_cpp_does_not_know_is_refused(folder, capsys):
    code, stdout, stderr = export(folder, capsys, "gguf", out="never")
    assert (code, stdout) == (2, "")
    assert "BertForSequenceClassification" in stderr
    assert "whose layers are those of llama.cpp's llama" in stderr
    assert not (folder / "never").exists()


def test_a_folder_that_headlab_did_not_write_is_left_alone(folder, capsys):
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("keep")
    code, _, stderr = export(folder, capsys, "folder", out="mine")
    assert code == 2
    assert "holds nothing that shrink or export made" in stderr
    assert (folder / "mine" / "notes.txt").read_text() == "keep"
