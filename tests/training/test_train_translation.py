"""A translation model from scratch learns a toy language, resumes exactly and writes a folder."""

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
from support.expected_errors import raises
from support.toy_language import toy_examples, toy_folder, toy_task
from support.training_runs import assert_same_weights, model_weights
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import headlab
from headlab.cli.run import main
from headlab.core import HeadGrid
from headlab.evaluation import Evaluator, translated_bleu, translations
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models.checkpoint import building_alone
from headlab.tasks import Example
from headlab.training import TranslationOptions
from headlab.training.translation import marian_tokenizer, train_piece_model, train_translation

OPTIONS = TranslationOptions.table()
TINY = TranslationOptions(
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


def train(folder: Path, options: TranslationOptions = TINY, **arguments: Any) -> Path:
    examples = toy_examples("train")
    return train_translation(examples, pair="aa-bb", out=folder, options=options, **arguments)


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained with the options TINY."""
    return train(tmp_path_factory.mktemp("whole") / "model")


class Interrupted(Exception):
    pass


def test_a_resumed_training_ends_with_the_bits_of_an_uninterrupted_one(
    trained_folder: Path, tmp_path: Path
):
    steps = []

    def stop(step: Any) -> None:
        if step.step == 4:
            raise Interrupted

    checkpoints = {"checkpoint_every": 3, "checkpoint_share": 1.0}
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", progress=stop, **checkpoints)
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]
    train(
        tmp_path / "cut",
        progress=lambda step: steps.append(step.step),
        **checkpoints,
    )
    assert steps == [4, 5, 6]
    assert_same_weights(trained_folder, tmp_path / "cut")
    assert [path.name for path in tmp_path.iterdir()] == ["cut"]


def test_the_folder_is_one_that_transformers_and_headlab_read(trained_folder: Path):
    with building_alone():  # which keeps transformers from recommending packages
        module = AutoModelForSeq2SeqLM.from_pretrained(trained_folder)
        tokenizer = AutoTokenizer.from_pretrained(trained_folder)
    inputs = tokenizer(["bala dumo"], return_tensors="pt")
    max_length = 2 * inputs["input_ids"].shape[1] + 11
    (generated_ids,) = module.generate(**inputs, max_length=max_length)
    by_transformers = tokenizer.decode(generated_ids)
    model = headlab.load(str(trained_folder))
    assert model.grid == GRID
    example = Example("0", "bala dumo", target="sen tik")
    task = replace(toy_task(), read=lambda *_: [example])
    (by_headlab,) = translations(Evaluator(model, task, "aa-bb"))
    assert by_headlab == by_transformers.replace("<pad>", "").replace("</s>", "").strip()
    target_ids = tokenizer(text_target="sen tik")["input_ids"]
    assert tokenizer.decode(target_ids, skip_special_tokens=True) == "sen tik"


def test_the_record_says_how_it_was_made_and_names_no_path(trained_folder: Path):
    record = json.loads((trained_folder / "training.json").read_text())
    assert record["heads"] == GRID.to_json()
    assert record["options"] == dict(TINY.record())
    assert record["data"]["examples"] == 160
    assert record["loss"]["last"] < record["loss"]["first"]
    for file in trained_folder.glob("*.json"):
        assert str(trained_folder.parent) not in file.read_text()
        assert "/tmp" not in file.read_text()


def test_each_weight_is_written_once(trained_folder: Path):
    """The embeddings stand in four places of the model."""
    names = model_weights(trained_folder)
    assert "model.shared.weight" in names
    assert not [name for name in names if "embed_tokens" in name or "lm_head" in name]


def test_the_toy_language_is_learned(tmp_path: Path):
    measures: dict[str, float] = {}

    def measure(model: Model) -> dict[str, float]:
        evaluator = Evaluator(model, toy_task(), "aa-bb")
        measures["accuracy"] = evaluator.evaluate().accuracy
        measures["bleu"] = translated_bleu(evaluator).score
        return measures

    options = replace(
        TINY,
        steps=100,
        width=32,
        decoder_layers=1,
        dropout=0.0,
        learning_rate=0.003,
        warmup=30,
    )
    folder = train(tmp_path / "learned", options=options, measure=measure)
    assert json.loads((folder / "training.json").read_text())["measured"] == measures
    assert measures["accuracy"] > 0.6  # the commonest token is a third of all
    assert measures["bleu"] > 10


def test_heads_that_are_off_from_the_start_stay_off_without_a_mask(
    trained_folder: Path, tmp_path: Path
):
    kept_heads = np.ones(GRID.size, bool)
    kept_heads[[1, 3, 9, 17]] = False
    mask = Mask(GRID, kept_heads, {"name": "another", "fingerprint": "x"})
    folder = train(tmp_path / "fewer", mask=mask)
    weights = model_weights(folder)
    weights_of_all_heads = model_weights(trained_folder)
    assert weights.keys() == weights_of_all_heads.keys()
    assert any(not torch.equal(weights[name], weights_of_all_heads[name]) for name in weights)
    record = json.loads((folder / "training.json").read_text())
    recorded_heads = [tuple(head) for head in record["removed"]]
    assert recorded_heads == [tuple(head) for head in mask.removed]
    evaluator = Evaluator(
        headlab.load(str(folder)),
        toy_task(),
        "aa-bb",
        size=8,
    )
    mask_of_any_model = Mask(GRID, kept_heads)
    without_mask = evaluator.evaluate().predicted
    with_mask = evaluator.evaluate(mask_of_any_model).predicted
    assert (without_mask == with_mask).all()
    assert translations(evaluator) == translations(evaluator, mask_of_any_model)
    # A head that is off gets no gradient, so its columns stay at 0.
    columns_of_second_head = evaluator.model.projections[0].weight[:, 8:]
    assert (columns_of_second_head == 0).all()


def test_a_mask_of_other_sizes_is_refused_before_the_first_step(tmp_path: Path):
    other_grid = HeadGrid.from_json({"encoder": [2, 2]})
    mask = Mask(other_grid, np.ones(4, bool))
    with raises("mask.other_grid"):
        train(tmp_path / "no", mask=mask)
    assert not list(tmp_path.iterdir())


def test_options_are_checked():
    rates = [TranslationOptions(warmup=4).rate(step) for step in range(20)]
    assert max(rates) == rates[3] == 0.002
    assert rates[15] == pytest.approx(0.001)
    for settings, *refusal in (
        ({"heads": 3}, "option.unknown", "'heads'"),
        ({"steps": 0}, "option.invalid", "steps", 0, "a whole number of 1"),
        ({"width": 100, "encoder_heads": 8}, "training.width_mismatch", "encoder_heads", 8),
        ({"dropout": None}, "option.invalid", "dropout", "None"),
    ):
        with raises(*refusal):
            TranslationOptions.of(settings)
    assert TranslationOptions.of({"clip": None}).clip is None


def test_a_vocabulary_is_the_same_for_the_same_sentences_and_ends_with_the_padding(tmp_path: Path):
    sentences = []
    for example in toy_examples("train"):
        sentences += [example.text, str(example.target)]
    pieces = train_piece_model(sentences, 40)
    assert pieces == train_piece_model(sentences, 40)
    tokenizer = marian_tokenizer(pieces, "aa-bb", 20, tmp_path)
    assert tokenizer.eos_token_id == 0
    assert tokenizer.unk_token_id == 1
    assert tokenizer.pad_token_id == len(tokenizer) - 1
    assert tokenizer("bala?")["input_ids"][-2:] == [1, 0]


def test_sentences_that_no_vocabulary_can_be_made_of_are_refused(monkeypatch: pytest.MonkeyPatch):
    with raises("vocabulary.not_made", 40):
        train_piece_model([], 40)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with raises("package.sentencepiece_missing"):
        train_piece_model(["a"], 40)


def test_examples_with_labels_are_refused(tmp_path: Path):
    with raises("training.task_not_generating"):
        train_translation(
            [Example("0", "a", 1)],
            pair="aa-bb",
            out=tmp_path / "x",
            options=TINY,
        )


def test_the_commands_train_and_evaluate_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = toy_folder(tmp_path / "data")
    model_folder = tmp_path / "model"
    mask_file = tmp_path / "mask.json"
    train_command = ["train", "translation", "--data", str(data), "--language", "aa-bb"]
    options = []
    for name in OPTIONS:
        value = getattr(TINY, name)
        if name != "seed" and value is not None:
            options += ["-o", f"{name}={value}"]
    sizes = ["--size", "6", "--device", "cpu"]
    assert main([*train_command, "--out", str(model_folder), *sizes, *options, "--json"]) == 0
    output, messages = capsys.readouterr()
    assert re.search(r"^train translation: \d+ forwards, about \d s: 6 steps of 16 ", messages)
    training_report = json.loads(output)
    measures = training_report["training"]["measured"]["dev"]
    assert {
        "accuracy",
        "bleu",
        "bleu_low",
        "signature",
        "beams",
        "log_probability",
        "log_probability_low",
    } <= set(measures)
    assert training_report["training"]["example_forwards"] == 6 * 16
    assert len(training_report["steps"]) == 6
    assert main([*train_command, "--out", str(tmp_path / "again"), *sizes, *options]) == 0
    text = capsys.readouterr().out
    assert len(re.findall(r"^step +\d+  loss \d+\.\d{4}  \d+ s$", text, re.MULTILINE)) == 6
    assert re.search(r"^heads: encoder \d+, .* 0 of them off from the start$", text, re.MULTILINE)
    assert f"dev: {measures['accuracy']:.1%} of the tokens [" in text
    assert f"dev: log-probability {measures['log_probability']:.3f} nats a token [" in text
    assert f"dev: BLEU {measures['bleu']:.1f} [{measures['bleu_low']:.1f}, " in text

    kept_heads = np.ones(GRID.size, bool)
    kept_heads[:2] = False
    model = headlab.load(str(model_folder))
    Mask(GRID, kept_heads, model.identity()).save(mask_file)
    evaluate_command = ["evaluate", "--model", str(model_folder), "--task", "translation"]
    evaluate_command += ["--data", str(data), "--size", "6"]
    command = [*evaluate_command, "--bleu", "--mask", str(mask_file)]
    assert main([*command, "--beams", "2", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["languages"]["aa-bb"]
    assert row["n"] > 6  # tokens
    assert row["bleu"]["sentences"] == 6
    assert {"bleu", "baseline", "difference", "low", "high", "p", "signature"} <= set(row["bleu"])
    assert row["bleu"]["beams"] == 2
    of_tokens = row["log_probability"]
    difference = of_tokens["log_probability"] - of_tokens["baseline"]
    assert difference == pytest.approx(of_tokens["difference"])
    assert of_tokens["low"] <= of_tokens["difference"] <= of_tokens["high"]
    assert of_tokens["answers"] == row["n"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert re.search(
        r"log-probability -\d+\.\d+ nats a token +\[-.*\] +untouched -.* difference [+-]", text
    )
    assert re.search(r"BLEU \d+\.\d .*untouched .*\|beams:1", text)
    assert main([*evaluate_command, "--beams", "2"]) == 2
    assert "--beams applies to translations" in capsys.readouterr().err
    assert main([*train_command, "--out", str(data), *options]) == 2
    assert "is not replaced" in capsys.readouterr().err


def not_reached(*_: object, **__: object) -> None:
    pytest.fail("a model was loaded or trained")


def test_what_could_not_be_measured_is_reported_before_anything_is_trained(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    data = toy_folder(tmp_path / "data")
    train_command = ["train", "translation", "--data", str(data), "--language", "aa-bb"]
    train_command += ["--out", str(tmp_path / "model")]
    evaluate_command = ["evaluate", "--data", str(data), "--bleu"]
    translation = ["--task", "translation", "--languages", "aa-bb"]
    classification = ["--task", "intents", "--languages", "en"]
    # No command below comes as far as that.
    monkeypatch.setattr("headlab.training.translation.train_piece_model", not_reached)
    monkeypatch.setattr("headlab.load", not_reached)
    for command, message in (
        ([*train_command, "--beams", "200"], "choose 1"),
        ([*evaluate_command, *translation, "--beams", "200"], "choose 1"),
        ([*evaluate_command, *classification], "has labels, not texts to generate"),
    ):
        assert main(command) == 2
        assert message in capsys.readouterr().err
    with monkeypatch.context() as without_sacrebleu:
        without_sacrebleu.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
        assert main(train_command) == 2
        assert "headlab[translation]" in capsys.readouterr().err
    (data / "mt/aa-bb.dev.tsv").unlink()
    (data / "mt/aa-bb.test.tsv").unlink()
    assert main(train_command) == 2
    assert "dev" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_every_option_is_documented_with_its_default():
    page = (Path(__file__).parents[2] / "docs/translation.md").read_text(encoding="utf-8")
    table_row = r"^\| (`\w+`(?:, `\w+`)*) \| (`[\w.]+`(?:, `[\w.]+`)*) \|"
    default_texts: dict[str, str] = {}
    for names_cell, defaults_cell in re.findall(table_row, page, re.MULTILINE):
        names = re.findall(r"\w+", names_cell)
        defaults = re.findall(r"[\w.]+", defaults_cell)
        default_texts |= dict(zip(names, defaults, strict=True))
    assert default_texts == {
        name: json.dumps(option.default) for name, option in OPTIONS.items() if name != "seed"
    }
