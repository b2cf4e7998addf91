"""A translation model from scratch: it learns a toy language, resumes exactly, and leaves an ordinary folder behind."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.expected_errors import raises
from support.toy_language import toy_examples, toy_folder, toy_task
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import headlab
from headlab.cli.main import main
from headlab.core import HeadGrid
from headlab.evaluation import Evaluator, translated_bleu, translations
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models.checkpoint import building_alone
from headlab.tasks import Example
from headlab.training import TranslationOptions
from headlab.training.translation import marian_tokenizer, train_translation, word_pieces

OPTIONS = TranslationOptions.table()
SMALL = TranslationOptions(
    steps=6,
    batch=16,
    warmup=4,
    vocabulary=40,
    width=16,
    feed_forward=16,
    encoder_layers=1,
    decoder_layers=2,
    encoder_heads=2,
    decoder_heads=4,
    learning_rate=0.01,
)
GRID = HeadGrid.from_json({"encoder": [2], "decoder": [4, 4], "cross": [4, 4]})


def train(out: Path, **more: Any) -> Path:
    return train_translation(
        toy_examples("train"), pair="aa-bb", out=out, **({"options": SMALL} | more)
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    ours = weights(one)
    theirs = weights(other)
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("whole") / "model")


class Interrupted(Exception):
    pass


def test_a_resumed_training_ends_with_the_bits_of_an_undisturbed_one(whole: Path, tmp_path: Path):
    steps = []

    def stop(step: Any) -> None:
        if step.step == 4:
            raise Interrupted

    often = {"checkpoint_every": 3, "checkpoint_share": 1.0}
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", progress=stop, **often)
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]
    train(tmp_path / "cut", progress=lambda step: steps.append(step.step), **often)
    assert steps == [4, 5, 6]
    assert same(whole, tmp_path / "cut")
    assert [path.name for path in tmp_path.iterdir()] == ["cut"]


def test_the_folder_is_one_that_transformers_and_headlab_read(whole: Path):
    with building_alone():  # which keeps transformers from recommending packages
        module = AutoModelForSeq2SeqLM.from_pretrained(whole)
        tokenizer = AutoTokenizer.from_pretrained(whole)
    ids = tokenizer(["bala dumo"], return_tensors="pt")
    plain = tokenizer.decode(
        module.generate(**ids, max_length=2 * ids["input_ids"].shape[1] + 11)[0]
    )
    model = headlab.load(str(whole))
    assert model.grid == GRID
    task = replace(toy_task(), read=lambda *_: [Example("0", "bala dumo", target="sen tik")])
    (text,) = translations(Evaluator(model, task, "aa-bb"))
    assert text == plain.replace("<pad>", "").replace("</s>", "").strip()
    assert (
        tokenizer.decode(tokenizer(text_target="sen tik")["input_ids"], skip_special_tokens=True)
        == "sen tik"
    )


def test_the_record_says_how_it_was_made_and_names_no_place(whole: Path):
    record = json.loads((whole / "training.json").read_text())
    assert record["heads"] == GRID.to_json()
    assert record["options"] == dict(SMALL.record())
    assert record["data"]["examples"] == 160
    assert record["loss"]["last"] < record["loss"]["first"]
    for file in whole.glob("*.json"):
        assert str(whole.parent) not in file.read_text()
        assert "/tmp" not in file.read_text()


def test_each_weight_is_written_once(whole: Path):
    """The embeddings stand in four places of the model."""
    names = weights(whole)
    assert "model.shared.weight" in names
    assert not [name for name in names if "embed_tokens" in name or "lm_head" in name]


def test_the_toy_language_is_learned(tmp_path: Path):
    found: dict[str, float] = {}

    def measure(model: Model) -> dict[str, float]:
        evaluator = Evaluator(model, toy_task(), "aa-bb")
        found.update(accuracy=evaluator.evaluate().accuracy, bleu=translated_bleu(evaluator).score)
        return found

    options = replace(
        SMALL, steps=100, width=32, decoder_layers=1, dropout=0.0, learning_rate=0.003, warmup=30
    )
    folder = train(tmp_path / "learned", options=options, measure=measure)
    assert json.loads((folder / "training.json").read_text())["measured"] == found
    assert found["accuracy"] > 0.6  # the commonest token is a third of all
    assert found["bleu"] > 10


def test_heads_that_are_off_from_the_start_stay_off_without_a_mask(whole: Path, tmp_path: Path):
    kept = np.ones(GRID.size, bool)
    kept[[1, 3, 9, 17]] = False
    mask = Mask(GRID, kept, {"name": "another", "fingerprint": "x"})
    folder = train(tmp_path / "fewer", mask=mask)
    assert not same(whole, folder)
    record = json.loads((folder / "training.json").read_text())
    assert [tuple(head) for head in record["removed"]] == [tuple(head) for head in mask.removed]
    evaluator = Evaluator(headlab.load(str(folder)), toy_task(), "aa-bb", size=8)
    again = Mask(GRID, kept)
    assert (evaluator.evaluate().predicted == evaluator.evaluate(again).predicted).all()
    assert translations(evaluator) == translations(evaluator, again)
    # A head that was off got no gradient: closing it never mattered to the weights.
    columns = evaluator.model.projections[0].weight[:, 8:]
    assert (columns == 0).all()


def test_a_mask_of_other_sizes_is_refused_before_the_first_step(tmp_path: Path):
    mask = Mask(HeadGrid.from_json({"encoder": [2, 2]}), np.ones(4, bool))
    with raises("mask.other_grid"):
        train(tmp_path / "no", mask=mask)
    assert not list(tmp_path.iterdir())


def test_options_are_checked():
    rates = [TranslationOptions(warmup=4).rate(step) for step in range(20)]
    assert max(rates) == rates[3] == 0.002
    assert rates[15] == pytest.approx(0.001)
    for given, *expected in (
        ({"heads": 3}, "option.unknown", "'heads'"),
        ({"steps": 0}, "option.invalid", "steps", 0, "a whole number of 1"),
        ({"width": 100, "encoder_heads": 8}, "training.width_mismatch", "encoder_heads", 8),
        ({"dropout": None}, "option.invalid", "dropout", "None"),
    ):
        with raises(*expected):
            TranslationOptions.of(given)
    assert TranslationOptions.of({"clip": None}).clip is None


def test_a_vocabulary_is_the_same_for_the_same_sentences_and_ends_with_the_padding(tmp_path: Path):
    sentences = [side for e in toy_examples("train") for side in (e.text, str(e.target))]
    pieces = word_pieces(sentences, 40)
    assert pieces == word_pieces(sentences, 40)
    tokenizer = marian_tokenizer(pieces, "aa-bb", 20, tmp_path)
    assert (tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1)
    assert tokenizer.pad_token_id == len(tokenizer) - 1
    assert tokenizer("bala?")["input_ids"][-2:] == [1, 0]


def test_what_no_vocabulary_can_be_made_of_is_told(monkeypatch: pytest.MonkeyPatch):
    with raises("vocabulary.not_made", 40):
        word_pieces([], 40)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with raises("package.sentencepiece_missing"):
        word_pieces(["a"], 40)


def test_examples_with_labels_are_refused(tmp_path: Path):
    with raises("training.task_not_generating"):
        train_translation([Example("0", "a", 1)], pair="aa-bb", out=tmp_path / "x", options=SMALL)


def test_the_commands_train_and_evaluate_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = toy_folder(tmp_path / "data")
    out = tmp_path / "model"
    given = [f"{name}={getattr(SMALL, name)}" for name in OPTIONS if name != "seed"]
    options = [word for pair in given if not pair.endswith("None") for word in ("-o", pair)]
    command = [
        "train",
        "translation",
        "--data",
        str(data),
        "--language",
        "aa-bb",
        "--out",
        str(out),
        "--size",
        "6",
    ]
    assert main([*command, *options, "--device", "cpu", "--json"]) == 0
    text, messages = capsys.readouterr()
    assert re.search(r"^train translation: \d+ forwards, about \d s: 6 steps of 16 ", messages)
    told = json.loads(text)
    dev = told["training"]["measured"]["dev"]
    assert {
        "accuracy",
        "bleu",
        "bleu_low",
        "signature",
        "beams",
        "log_probability",
        "log_probability_low",
    } <= set(dev)
    assert told["training"]["example_forwards"] == 6 * 16
    assert len(told["steps"]) == 6

    kept = np.ones(GRID.size, bool)
    kept[:2] = False
    model = headlab.load(str(out))
    Mask(GRID, kept, model.identity()).save(tmp_path / "mask.json")
    asked = [
        "evaluate",
        "--model",
        str(out),
        "--task",
        "translation",
        "--data",
        str(data),
        "--size",
        "6",
        "--bleu",
    ]
    assert main([*asked, "--mask", str(tmp_path / "mask.json"), "--beams", "2", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["languages"]["aa-bb"]
    assert row["n"] > 6  # tokens
    assert row["bleu"]["sentences"] == 6
    assert {"bleu", "baseline", "difference", "low", "high", "p", "signature"} <= set(row["bleu"])
    assert row["bleu"]["beams"] == 2
    sure = row["log_probability"]
    assert sure["log_probability"] - sure["baseline"] == pytest.approx(sure["difference"])
    assert sure["low"] <= sure["difference"] <= sure["high"]
    assert sure["answers"] == row["n"]
    assert main([*asked, "--mask", str(tmp_path / "mask.json")]) == 0
    told = capsys.readouterr().out
    assert re.search(
        r"log-probability -\d+\.\d+ nats a token +\[-.*\] +untouched -.* difference [+-]", told
    )
    assert re.search(r"BLEU \d+\.\d .*untouched .*\|beams:1", told)
    assert main([*asked[:-1], "--beams", "2"]) == 2
    assert "--beams applies to translations" in capsys.readouterr().err
    assert main([*command[:-4], "--out", str(data), *options]) == 2
    assert "is not replaced" in capsys.readouterr().err


def test_what_could_not_be_measured_is_said_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    data = toy_folder(tmp_path / "data")
    command = [
        "train",
        "translation",
        "--data",
        str(data),
        "--language",
        "aa-bb",
        "--out",
        str(tmp_path / "model"),
    ]
    asked = ["evaluate", "--data", str(data), "--bleu"]
    # nothing comes as far as that
    monkeypatch.setattr("headlab.training.translation.word_pieces", None)
    monkeypatch.setattr("headlab.load", None)
    for words, said in (
        ([*command, "--beams", "200"], "choose 1"),
        ([*asked, "--task", "translation", "--languages", "aa-bb", "--beams", "200"], "choose 1"),
        ([*asked, "--task", "intents", "--languages", "en"], "has labels, not texts to generate"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
        assert main(command) == 2
        assert "headlab[translation]" in capsys.readouterr().err
    (data / "mt/aa-bb.dev.tsv").unlink()
    (data / "mt/aa-bb.test.tsv").unlink()
    assert main(command) == 2
    assert "dev" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_every_option_is_documented_with_its_default():
    page = (Path(__file__).parents[2] / "docs/translation.md").read_text(encoding="utf-8")
    told: dict[str, str] = {}
    for names, defaults in re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| (`[\w.]+`(?:, `[\w.]+`)*) \|", page, re.MULTILINE
    ):
        told |= dict(zip(re.findall(r"\w+", names), re.findall(r"[\w.]+", defaults), strict=True))
    assert told == {
        name: json.dumps(option.default) for name, option in OPTIONS.items() if name != "seed"
    }
