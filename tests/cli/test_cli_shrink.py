"""`headlab shrink` on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers as hf
from support.saved_models import letter_tokenizer, save, save_classifier

import headlab
from headlab.cli.main import main
from headlab.masks import Mask


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tiny classifier of intents and a mask that empties its second layer."""
    folder = tmp_path_factory.mktemp("cli")
    model = headlab.load(str(save_classifier(folder / "model")))
    Mask(model.grid, np.array([1, 0, 1, 0, 0, 0], bool), model.identity()).save(
        folder / "mask.json"
    )
    return folder


def run(place, capsys, *more, out="out", mask="mask.json"):
    given = [
        "--model",
        str(place / "model"),
        "--mask",
        str(place / mask),
        "--out",
        str(place / out),
    ]
    code = main(["shrink", *given, "--size", "5", "--repeats", "6", *more])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_json_has_what_scripts_were_promised(place, capsys):
    code, out, err = run(place, capsys, "--task", "intents", "--languages", "de", "--json")
    found = json.loads(out)
    assert code == 0
    # three models on 5 examples, and 6 rounds of two models on 32, each timed pass after another
    assert err.startswith("shrink: 783 forwards, about ")
    assert found["parameters_before"] - found["parameters_after"] == 4 * (4 * 24 * 8 + 3 * 8)
    assert found["max_logit_difference"] <= found["tolerance"]
    low, high = found["latency_interval"]
    assert 0 < low <= found["latency_ratio"] <= high
    assert (found["heads_before"], found["heads_removed"], found["heads_masked"]) == (6, 4, [])
    assert (found["examples"], found["onnx"], found["cut_alone"]) == (5, None, None)
    assert (found["dtype_before"], found["dtype_after"], found["computed_in"]) == ("float32",) * 3
    assert (
        found["bytes_after"]
        == (place / "out" / "model.safetensors").stat().st_size
        < found["bytes_before"]
    )
    proof = json.loads((place / "out" / "proof.json").read_text())
    assert proof["compared_on"] == {
        "task": "intents",
        "languages": ["de"],
        "split": "dev",
        "seed": 0,
        "size": 5,
    }
    assert proof["model"]["name"] == "model"
    assert headlab.load(str(place / "out")).fingerprint == found["fingerprint"]


@pytest.mark.slow  # sentences of all languages are drawn from
def test_without_a_task_the_embedded_tasks_sentences_are_compared(place, capsys):
    code, out, _ = run(place, capsys, "--size", "17", out="plain")
    assert code == 0
    assert "4 of 6 heads removed" in out
    assert "on 17 different examples" in out
    assert json.loads((place / "plain" / "proof.json").read_text())["examples"] == 17


@pytest.mark.parametrize(
    ("more", "words"),
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
def test_what_does_not_fit_is_a_sentence_and_exit_code_2(place, capsys, more, words):
    code, out, err = run(place, capsys, *more, out="never")
    assert (code, out) == (2, "")
    assert err.startswith("headlab: ")
    assert words in err
    assert not (place / "never").exists()


def test_a_mask_of_another_model_and_a_folder_of_something_else_are_refused(place, capsys):
    other = headlab.load(str(save_classifier(place / "other", seed=1)))
    Mask(other.grid, np.ones(6, bool), other.identity()).save(place / "other.json")
    code, _, err = run(place, capsys, mask="other.json", out="never")
    assert code == 2
    assert "heads of one model say nothing about those of another" in err
    code, _, err = run(place, capsys, out="other")
    assert code == 2
    assert "holds nothing that shrink made" in err


def test_onnx_without_its_extra_says_what_to_install(place, capsys, monkeypatch):
    monkeypatch.setattr(
        "headlab.shrink.folder.find_spec", lambda name: None if name == "onnxscript" else object()
    )
    code, _, err = run(place, capsys, "--onnx", out="never")
    assert code == 2
    assert (
        "ONNX export needs onnxscript, which is not installed; run: pip install 'headlab[onnx]'"
        in err
    )


def test_a_model_in_half_the_bytes_stays_so_and_is_timed_on_whole_batches(place, capsys):
    module = hf.BertForSequenceClassification.from_pretrained(place / "model").to(torch.bfloat16)
    model = headlab.load(str(save(place / "half", module, letter_tokenizer())))
    Mask(model.grid, np.array([1, 0, 1, 0, 0, 0], bool), model.identity()).save(place / "half.json")
    task = ("--task", "intents", "--languages", "de")
    code, out, _ = run(
        place, capsys, *task, "--model", str(place / "half"), out="less", mask="half.json"
    )
    assert code == 0
    assert "kB of bfloat16 -> " in out
    assert "computed in float32" in out
    sizes = [(place / name / "model.safetensors").stat().st_size for name in ("half", "less")]
    assert sizes[1] < sizes[0]
    assert (
        "Times: cpu, float32, 2 batches of 16 examples, 6 rounds"
        in (place / "less" / "README.md").read_text()
    )
    code, out, _ = run(place, capsys, *task, "--dtype", "float16", out="rounded")
    assert code == 0
    assert "rounding      to float16 makes that; the cut alone differs by " in out


def test_a_task_with_fewer_examples_than_asked_for_is_told(place, capsys):
    given = ("--task", "intents", "--languages", "de", "--size", "9999")
    code, out, _ = run(place, capsys, *given, out="all")
    assert code == 0
    assert "different examples (of 9999 asked for)" in out
    proof = json.loads((place / "all" / "proof.json").read_text())
    assert proof["examples"] <= 512
    assert proof["compared_on"]["size"] == 9999


def test_the_model_itself_is_refused_as_the_place_before_it_is_read(place, capsys):
    code, _, err = run(place, capsys, out="model")
    assert code == 2
    assert "is the model that is shrunk" in err
