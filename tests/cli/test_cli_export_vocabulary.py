"""`headlab export --languages`: a vocabulary cut to languages, with and without a mask."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers as hf
from support.cut_vocabularies import save_intents_classifier
from support.exports import export
from support.saved_models import save_classifier, save_model
from support.tiny_llama import UNEVEN, tiny_llama, without_groups
from support.tiny_models import SMALL_OPTIONS

import headlab
from headlab.hooks import gated_in_this_thread
from headlab.tasks.intents.classes import LABELS

THAI_INTENTS = ("--task", "intents", "--languages", "th", "--test-size", "20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier of intents whose vocabulary can be cut, and a mask."""
    return save_intents_classifier(tmp_path_factory.mktemp("vocabulary"))


export_without_mask = partial(export, mask=None)


def test_a_vocabulary_is_cut_without_a_mask(folder, capsys):
    code, stdout, _ = export_without_mask(
        folder, capsys, "small", *THAI_INTENTS, "--json", out="thai"
    )
    result = json.loads(stdout)
    assert code == 0
    rows_gone = result["pieces_before"] - result["pieces_after"]
    assert rows_gone > 5
    width = SMALL_OPTIONS["hidden_size"]
    assert result["parameters_before"] - result["parameters_after"] == rows_gone * width
    assert result["heads_removed"] == 0
    assert result["max_logit_difference"] <= 1e-5
    assert 0 <= result["pieces_lost"]["th"] <= result["texts_changed"]["th"] <= 1
    figure = result["accuracy"]["th"]
    assert figure["n"] == 20
    assert figure["accuracy_low"] <= figure["accuracy"] <= figure["accuracy_high"]
    proof = json.loads((folder / "thai" / "proof.json").read_text())
    assert proof["vocabulary"]["sources"] == {"th": "script Thai"}
    assert proof["vocabulary"]["pieces_after"] == result["pieces_after"]
    assert proof["vocabulary"]["held_out"]["th"]["pieces_lost"] == result["pieces_lost"]["th"]
    assert proof["compared_on"]["languages"] == ["th"]
    card = (folder / "thai" / "README.md").read_text()
    assert "# model, vocabulary of th\n" in card
    assert f"{result['pieces_after']:,} of {result['pieces_before']:,} pieces stay" in card


def test_the_accuracy_is_that_of_the_folder(folder, capsys):
    code, stdout, _ = export_without_mask(
        folder, capsys, "small", *THAI_INTENTS, "--json", out="again"
    )
    assert code == 0
    task = headlab.task("intents").with_languages(["th"])
    written = headlab.load(str(folder / "again"))
    report = headlab.evaluate(written, task, split="test", size=20)
    assert json.loads(stdout)["accuracy"]["th"]["accuracy"] == report["th"].accuracy


def test_stock_transformers_reads_a_plain_folder_with_a_mask_and_fewer_pieces(folder, capsys):
    arguments = ("--mask", str(folder / "mask.json"), *THAI_INTENTS, "--vocabulary", "cut")
    code, stdout, _ = export_without_mask(folder, capsys, "folder", *arguments, out="plain")
    assert code == 0
    assert "4 of 6 heads silenced" in stdout
    assert " pieces; of texts that were held out" in stdout
    assert "accuracy      th: " in stdout
    model = headlab.load(str(folder / "model"))
    text = headlab.task("intents").examples("th", "dev", 1)[0].text
    inputs = model.tokenizer(text, return_tensors="pt")
    mask = headlab.load_mask(folder / "mask.json")
    with torch.inference_mode(), gated_in_this_thread(model, mask):
        expected = model.module(**inputs).logits
    module = hf.AutoModelForSequenceClassification.from_pretrained(folder / "plain")
    tokenizer = hf.AutoTokenizer.from_pretrained(folder / "plain")
    logits = module(**tokenizer(text, return_tensors="pt")).logits
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    classify = hf.pipeline("text-classification", model=str(folder / "plain"))
    assert classify(text)[0]["label"] == LABELS[int(expected.argmax())]


def test_a_plain_folder_keeps_its_shapes_unless_told_otherwise(folder, capsys):
    arguments = ("--mask", str(folder / "mask.json"), "--task", "intents", "--languages", "th")
    code, stdout, _ = export_without_mask(
        folder, capsys, "folder", *arguments, "--json", out="shapes"
    )
    result = json.loads(stdout)
    assert code == 0
    assert result["parameters_after"] == result["parameters_before"]
    assert "pieces_after" not in result


def test_a_decoder_for_llama_cpp_loses_pieces_too(tmp_path, capsys):
    pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")
    tiny = tiny_llama()
    save_model(tmp_path / "model", tiny.module, tiny.tokenizer)
    model = headlab.load(str(tmp_path / "model"))
    without_groups(model, UNEVEN).save(tmp_path / "mask.json")
    arguments = ("--mask", str(tmp_path / "mask.json"), "--languages", "th", "--json")
    code, stdout, _ = export_without_mask(tmp_path, capsys, "gguf", *arguments, out="thai")
    result = json.loads(stdout)
    assert code == 0
    assert result["pieces_after"] < result["pieces_before"]
    assert result["max_logit_difference"] <= result["tolerance"]
    assert result["accuracy"] == {}


def test_texts_of_a_folder_stand_for_a_language_that_the_task_lacks(folder, capsys, tmp_path):
    (tmp_path / "lo.txt").write_text("ສະບາຍດີ ຂອບໃຈ\n" * 30)
    arguments = ("--languages", "lo", "--texts", str(tmp_path), "--json")
    code, stdout, _ = export_without_mask(folder, capsys, "small", *arguments, out="lao")
    result = json.loads(stdout)
    assert code == 0
    assert result["pieces_lost"] == {"lo": 0}
    assert result["accuracy"] == {}
    assert result["examples"] == 1  # all lines are the same
    proof = json.loads((folder / "lao" / "proof.json").read_text())
    assert proof["compared_on"] == {
        "task": None,
        "languages": ["lo"],
        "split": "dev",
        "seed": 0,
        "size": 5,
    }
    assert str(tmp_path) not in json.dumps(proof)


@pytest.mark.parametrize(
    ("form", "arguments", "phrase"),
    [
        ("small", (), "nothing would change"),
        ("folder", ("--task", "intents", "--languages", "th"), "nothing would change"),
        ("small", ("--vocabulary", "cut"), "needs the languages that stay"),
        ("small", (*THAI_INTENTS, "--vocabulary", "keep"), "nothing would change"),
        ("small", ("--languages", "lo"), "there are no texts in lo"),
        ("small", ("--languages", "th", "--texts", "nowhere"), "which is not a folder"),
        ("small", (*THAI_INTENTS, "--vocabulary", "some"), "keep or cut"),
    ],
)
def test_what_does_not_fit_ends_with_a_sentence(folder, capsys, form, arguments, phrase):
    code, stdout, stderr = export_without_mask(folder, capsys, form, *arguments, out="never")
    assert (code, stdout) == (2, "")
    assert phrase in stderr
    assert not (folder / "never").exists()


def test_settings_of_a_vocabulary_that_stays_are_refused(folder, capsys):
    mask = ("--mask", str(folder / "mask.json"))
    code, _, stderr = export_without_mask(
        folder, capsys, "small", *mask, "--test-size", "5", out="never"
    )
    assert code == 2
    assert "--test-size would have no effect, as the vocabulary stays" in stderr


def test_an_unknown_tokenizer_is_refused(capsys, tmp_path):
    save_classifier(tmp_path / "model")
    code, stdout, stderr = export_without_mask(
        tmp_path, capsys, "small", "--languages", "th", out="never"
    )
    assert (code, stdout) == (2, "")
    assert "is of the kind WordLevel" in stderr
    assert not (tmp_path / "never").exists()
