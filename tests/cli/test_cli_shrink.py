"""`headlab shrink` on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers as hf
from support.saved_models import letter_tokenizer, save_classifier, save_model

import headlab
from headlab.cli.run import main
from headlab.masks import Mask


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny classifier of intents and a mask that empties its second layer."""
    folder = tmp_path_factory.mktemp("cli")
    model = headlab.load(str(save_classifier(folder / "model")))
    Mask(model.grid, np.array([1, 0, 1, 0, 0, 0], bool), model.identity()).save(
        folder / "mask.json"
    )
    return folder


def shrink(folder, capsys, *arguments, out_name="out", mask_name="mask.json"):
    """Run `headlab shrink`; gives its exit code, stdout and stderr."""
    path_arguments = ["--model", str(folder / "model"), "--mask", str(folder / mask_name)]
    path_arguments += ["--out", str(folder / out_name)]
    code = main(["shrink", *path_arguments, "--size", "5", "--repeats", "6", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_json_has_what_scripts_were_promised(folder, capsys):
    code, stdout, stderr = shrink(
        folder, capsys, "--task", "intents", "--languages", "de", "--json"
    )
    result = json.loads(stdout)
    assert code == 0
    # Three models pass over 5 examples and over as much random input; in 6 rounds two models pass
    # over 32, and each timed pass comes after an untimed one.
    assert stderr.startswith("shrink: 798 forwards, about ")
    assert result["parameters_before"] - result["parameters_after"] == 4 * (4 * 24 * 8 + 3 * 8)
    assert result["max_logit_difference"] <= result["tolerance"]
    low, high = result["latency_interval"]
    assert 0 < low <= result["latency_ratio"] <= high
    assert (result["heads_before"], result["heads_removed"], result["heads_masked"]) == (6, 4, [])
    assert (result["examples"], result["onnx"], result["cut_alone"]) == (5, None, None)
    for dtype in ("dtype_before", "dtype_after", "computed_in"):
        assert result[dtype] == "float32"
    assert result["bytes_after"] == (folder / "out" / "model.safetensors").stat().st_size
    assert result["bytes_after"] < result["bytes_before"]
    proof = json.loads((folder / "out" / "proof.json").read_text())
    assert proof["compared_on"] == {
        "task": "intents",
        "languages": ["de"],
        "split": "dev",
        "seed": 0,
        "size": 5,
    }
    assert proof["model"]["name"] == "model"
    assert headlab.load(str(folder / "out")).fingerprint == result["fingerprint"]


@pytest.mark.slow  # draws sentences of all languages
def test_without_a_task_the_embedded_tasks_sentences_are_compared(folder, capsys):
    code, stdout, _ = shrink(folder, capsys, "--size", "17", out_name="plain")
    assert code == 0
    assert "4 of 6 heads removed" in stdout
    assert "on 17 different examples" in stdout
    assert json.loads((folder / "plain" / "proof.json").read_text())["examples"] == 17


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (("--languages", "de"), "--languages would be about a task, but none is given"),
        (
            ("--languages", "de", "--data", "here", "--label-map", "x=y"),
            "--data and --label-map and --languages would be about a task, but none is given",
        ),
        (("--task", "nope"), "nope"),
        (("--dtype", "int8"), "unknown dtype 'int8'; use one of float32"),
    ],
)
def test_arguments_that_do_not_fit_end_with_a_sentence_and_exit_code_2(
    folder, capsys, arguments, phrase
):
    code, stdout, stderr = shrink(folder, capsys, *arguments, out_name="never")
    assert (code, stdout) == (2, "")
    assert stderr.startswith("headlab: ")
    assert phrase in stderr
    assert not (folder / "never").exists()


def test_a_mask_of_another_model_and_a_folder_of_something_else_are_refused(folder, capsys):
    other_model = headlab.load(str(save_classifier(folder / "other", seed=1)))
    Mask(other_model.grid, np.ones(6, bool), other_model.identity()).save(folder / "other.json")
    code, _, stderr = shrink(folder, capsys, mask_name="other.json", out_name="never")
    assert code == 2
    assert "heads of one model say nothing about those of another" in stderr
    code, _, stderr = shrink(folder, capsys, out_name="other")
    assert code == 2
    assert "holds nothing that shrink or export made" in stderr


def test_onnx_without_its_extra_says_what_to_install(folder, capsys, monkeypatch):
    monkeypatch.setattr(
        "headlab.shrink.folder.find_spec", lambda name: None if name == "onnxscript" else object()
    )
    code, _, stderr = shrink(folder, capsys, "--onnx", out_name="never")
    assert code == 2
    assert (
        "ONNX export needs onnxscript, which is not installed; run: pip install 'headlab[onnx]'"
        in stderr
    )


def test_a_model_in_half_the_bytes_stays_so_and_is_timed_on_whole_batches(folder, capsys):
    module = hf.BertForSequenceClassification.from_pretrained(folder / "model").to(torch.bfloat16)
    model = headlab.load(str(save_model(folder / "half", module, letter_tokenizer())))
    Mask(model.grid, np.array([1, 0, 1, 0, 0, 0], bool), model.identity()).save(
        folder / "half.json"
    )
    task_arguments = ("--task", "intents", "--languages", "de")
    code, stdout, _ = shrink(
        folder,
        capsys,
        *task_arguments,
        "--model",
        str(folder / "half"),
        out_name="less",
        mask_name="half.json",
    )
    assert code == 0
    assert "kB of bfloat16 -> " in stdout
    assert "computed in float32" in stdout
    size_before = (folder / "half" / "model.safetensors").stat().st_size
    size_after = (folder / "less" / "model.safetensors").stat().st_size
    assert size_after < size_before
    readme = (folder / "less" / "README.md").read_text()
    assert "Times: cpu, float32, 2 batches of 16 examples, 6 rounds" in readme
    code, stdout, _ = shrink(
        folder, capsys, *task_arguments, "--dtype", "float16", out_name="rounded"
    )
    assert code == 0
    assert "rounding      to float16 makes that; the cut alone differs by " in stdout


def test_the_report_says_when_a_task_has_fewer_examples_than_asked_for(folder, capsys):
    task_arguments = ("--task", "intents", "--languages", "de", "--size", "9999")
    code, stdout, _ = shrink(folder, capsys, *task_arguments, out_name="all")
    assert code == 0
    assert "different examples (of 9999 asked for)" in stdout
    proof = json.loads((folder / "all" / "proof.json").read_text())
    assert proof["examples"] <= 512
    assert proof["compared_on"]["size"] == 9999


def test_the_models_own_folder_is_refused_as_the_target_before_it_is_read(folder, capsys):
    code, _, stderr = shrink(folder, capsys, out_name="model")
    assert code == 2
    assert "is the model that is shrunk" in stderr
