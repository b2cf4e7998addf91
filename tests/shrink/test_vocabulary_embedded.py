"""The embedded classifier with the vocabulary of two languages: its size, its answers, its losses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.shared_data import data_with

import headlab
from headlab.masks import Mask
from headlab.shrink.pieces import rows_of
from headlab.shrink.read_pieces import read_pieces
from headlab.shrink.vocabulary import pieces_of_languages
from headlab.shrink.vocabulary_texts import TextsBySide, collect_texts, cut_by_texts, losses

pytestmark = pytest.mark.soak

STOCK_READER = """
import json, sys
sys.modules["headlab"] = None  # an import of it fails
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
folder, text = sys.argv[1:]
module = AutoModelForSequenceClassification.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
with torch.inference_mode():
    logits = module(**tokenizer(text, return_tensors="pt")).logits.tolist()
classify = pipeline("text-classification", model=folder, device="cpu")
print(json.dumps([logits, classify(text)[0]["label"]]))
"""
RARE_TEXTS = (
    "emoji 😀👩‍👩‍👧 🇩🇪🇹🇭",
    "ᚠᛇᚻ ꦗꦮ 𒀀 𝔘𝔫𝔦",
    "Größe日本語العربيةไทย123abc",
    "e\u0301 \u00a0 \u200b",
    "",
    "   ",
)


def outcome_of(*words: str) -> dict[str, Any]:
    """What a command on the embedded model in German and Thai prints as JSON."""
    subject = ["--model", "e5-small-intents", "--languages", "de,th", "--json"]
    output = subprocess.run(
        [sys.executable, "-m", "headlab.cli", *words, *subject],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    outcome: dict[str, Any] = json.loads(output)
    return outcome


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The folder and the outcome of the command that the docs show."""
    folder = tmp_path_factory.mktemp("export") / "german-thai"
    return folder, outcome_of("export", "--as", "small", "--out", str(folder))


def test_a_third_of_the_parameters_stays_and_the_accuracy_too(exported):
    _, result = exported
    assert result["parameters_after"] <= 0.35 * result["parameters_before"]
    assert result["max_logit_difference"] <= 1e-5
    assert set(result["pieces_lost"]) == set(result["accuracy"]) == {"de", "th"}
    for language in ("de", "th"):
        assert result["pieces_lost"][language] <= 0.02
        assert abs(result["accuracy"][language]["difference"]) <= 0.01


def test_a_process_without_headlab_reads_it(exported):
    folder, _ = exported
    text = headlab.task("intents").examples("th", "dev", 1)[0].text
    output = subprocess.run(
        [sys.executable, "-c", STOCK_READER, str(folder), text],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    model = headlab.load("e5-small-intents")
    with torch.inference_mode():
        logits = model.module(**model.tokenizer(text, return_tensors="pt").to(model.device)).logits
    stock_logits, label = json.loads(output)
    torch.testing.assert_close(torch.tensor(stock_logits), logits.cpu(), atol=1e-5, rtol=0)
    assert label == model.module.config.id2label[int(logits.argmax())]


def test_worth_counts_the_parameters_that_export_writes(tmp_path):
    model = headlab.load("e5-small-intents")
    is_kept = np.arange(model.grid.size) % 3 > 0
    is_kept[24:36] = False
    mask_file = tmp_path / "mask.json"
    Mask(model.grid, is_kept, model.identity()).save(mask_file)
    timing = ("--batch-sizes", "1", "--rounds", "6", "--device", "cpu")
    counted = outcome_of("worth", "--mask", str(mask_file), "--vocabulary", "cut", *timing)
    form = ("--as", "small", "--out", str(tmp_path / "small"))
    sizes = ("--size", "16", "--repeats", "6", "--test-size", "16")
    written = outcome_of("export", "--mask", str(mask_file), *form, *sizes)
    assert counted["parameters"]["untouched"] == written["parameters_before"]
    assert counted["parameters"]["cut"] == written["parameters_after"]
    assert counted["vocabulary"]["cut"]["pieces"] == written["pieces_after"]
    assert 0.8 < counted["vocabulary"]["share"] < 0.84


@pytest.mark.parametrize("languages", [["de", "th"], ["sw", "vi"]])
def test_texts_of_another_task_lose_little(languages):
    data_with("xnli")
    model = headlab.load("e5-small-intents")
    texts = collect_texts(headlab.task("intents"), ["de", "th"], None)
    if "sw" in languages:  # a pair that the rules were not made on, from its dev texts
        texts = collect_texts(headlab.task("xnli"), languages, None)
    vocabulary = cut_by_texts(model, languages, texts)
    for language in languages:
        examples = headlab.task("xnli").examples(language, "test")
        held_out = [text for example in examples for text in (example.text, example.pair or "")]
        lost = losses(model, vocabulary.cut, vocabulary.tokenizer, TextsBySide(held_out))
        assert lost["pieces_lost"] <= 0.02, language


def test_rare_characters_are_read_as_before():
    model = headlab.load("e5-small-intents")
    cut = pieces_of_languages(model, ["th"]).cut_with([])
    smaller = read_pieces(model).cut_tokenizer(cut)
    for text in RARE_TEXTS:
        (old_row,) = rows_of(model.tokenizer, [text])
        (new_row,) = rows_of(smaller, [text])
        assert smaller.decode(new_row) == model.tokenizer.decode(old_row)
