"""Special tokens that a configuration names: used where the tokenizer has none, refused where the model lacks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from support.expected_errors import raises
from support.saved_models import save_model
from support.tiny_models import VOCAB, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab import load
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.methods.spec import answers_spec
from headlab.models.load import examine_model
from headlab.models.special_ids import config_padding_id
from headlab.tasks import Example, Task
from headlab.training.output import find_base, load_base

PADDING = 0  # of tiny_tokenizer
WORD = 5  # the token w5, which texts have too


def save_with_settings(
    folder: Path, family: str, *, tokenizer_pads: bool = True, **settings: Any
) -> Path:
    """Save a tiny model with other settings in its config.json.

    Args:
        tokenizer_pads: Whether the tokenizer has a padding token.
        settings: Set in config.json.
    """
    tokenizer = tiny_tokenizer()
    if not tokenizer_pads:
        tokenizer.pad_token = None
    save_model(folder, tiny_module(family, torch.float32), tokenizer)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


def load_in_float64(folder: Path) -> Model:
    return load(str(folder), device="cpu", dtype="float64")


def translation_task() -> Task:
    """Sources and targets of several lengths, so that both are padded."""
    examples = []
    for number in range(6):
        source = " ".join(f"w{n}" for n in range(7, 8 + number))
        target = "w9 " * (1 + number % 3) + "w8"
        examples.append(Example(str(number), source, target=target))
    return Task("short", (), ("xx",), False, lambda *_: examples)


def task_of(family: str) -> Task:
    return translation_task() if family == "marian" else tiny_task()


def logits(model: Model, task: Task, rows: list[int]) -> torch.Tensor:
    evaluator = Evaluator(model, task, "xx", "dev", 6)
    with torch.inference_mode():
        return evaluator.logits(evaluator.tensors(np.array(rows)))


def task_spec(model: Model, task: Task) -> Any:
    """What the record of answers says of the task."""
    return answers_spec(Evaluator(model, task, "xx", "dev", 6).dataset)["task"]


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "gpt2", "llama", "marian"])
def test_reported_23_a_padding_token_that_only_the_config_names_is_used(
    tmp_path: Path, family: str
) -> None:
    task = task_of(family)
    with_token = load_in_float64(
        save_with_settings(tmp_path / "with", family, pad_token_id=PADDING)
    )
    without_token = load_in_float64(
        save_with_settings(tmp_path / "without", family, tokenizer_pads=False, pad_token_id=PADDING)
    )
    assert without_token.tokenizer.pad_token is None
    rows = [*range(6)]
    torch.testing.assert_close(
        logits(without_token, task, rows), logits(with_token, task, rows), rtol=0, atol=0
    )
    assert "padding" not in task_spec(without_token, task)


def test_reported_23_a_padding_token_that_only_the_settings_of_generation_name_is_used(
    tmp_path: Path,
) -> None:
    folder = save_with_settings(tmp_path / "m", "gpt2", tokenizer_pads=False, pad_token_id=None)
    with raises("tokenizer.no_padding"):
        Evaluator(load_in_float64(folder), tiny_task(), "xx")
    (folder / "generation_config.json").write_text(json.dumps({"pad_token_id": PADDING}))
    with_token = load_in_float64(
        save_with_settings(tmp_path / "with", "gpt2", pad_token_id=PADDING)
    )
    model_logits = logits(load_in_float64(folder), tiny_task(), [0, 1, 2])
    expected_logits = logits(with_token, tiny_task(), [0, 1, 2])
    torch.testing.assert_close(model_logits, expected_logits, rtol=0, atol=0)


@pytest.mark.parametrize("padding", [VOCAB, -1, [PADDING], "0", True])
def test_reported_23_settings_of_generation_that_name_no_token_are_passed_over(
    tmp_path: Path, padding: Any
) -> None:
    folder = save_with_settings(tmp_path / "m", "gpt2", tokenizer_pads=False, pad_token_id=None)
    (folder / "generation_config.json").write_text(json.dumps({"pad_token_id": padding}))
    with raises("tokenizer.no_padding"):
        Evaluator(load_in_float64(folder), tiny_task(), "xx")


def test_reported_23_the_part_of_a_configuration_for_texts_names_the_padding_token() -> None:
    config = hf.Gemma3Config(text_config={"pad_token_id": 7, "vocab_size": 50})
    assert config_padding_id(config) == 7
    config.text_config.pad_token_id = 50
    config.pad_token_id = None
    assert config_padding_id(config) is None


def test_reported_23_training_pads_with_the_token_of_the_config(tmp_path: Path) -> None:
    folder = save_with_settings(
        tmp_path / "base",
        "bert",
        tokenizer_pads=False,
        pad_token_id=PADDING,
        architectures=["BertModel"],
    )
    _, tokenizer = load_base(find_base(str(folder)), ["a", "b"], words=False)
    assert tokenizer.pad_token == "[PAD]"


def test_reported_19_a_classifier_finds_its_last_token_whatever_the_tokenizer_pads_with(
    tmp_path: Path,
) -> None:
    """The model skips the padding token that its configuration names, to find its last token.

    Were texts padded with the tokenizer's, it would read its answer in the padding.
    """
    model = load_in_float64(save_with_settings(tmp_path / "m", "gpt2", pad_token_id=WORD))
    logits_in_one_batch = logits(model, tiny_task(), [*range(6)])
    logits_one_by_one = torch.cat([logits(model, tiny_task(), [row]) for row in range(6)])
    torch.testing.assert_close(logits_in_one_batch, logits_one_by_one, rtol=0, atol=1e-9)
    assert task_spec(model, tiny_task())["padding"] is True
    encoder = load_in_float64(save_with_settings(tmp_path / "encoder", "bert", pad_token_id=WORD))
    assert "padding" not in task_spec(encoder, tiny_task())


@pytest.mark.parametrize(
    ("family", "setting", "token_id"),
    [
        ("gpt2", "pad_token_id", -1),
        ("gpt2", "pad_token_id", VOCAB),
        ("llama", "pad_token_id", -1),
        ("bert", "pad_token_id", VOCAB),
        ("xlm-roberta", "pad_token_id", 10**9),
        ("marian", "pad_token_id", VOCAB),
        ("marian", "decoder_start_token_id", VOCAB),
        ("marian", "decoder_start_token_id", -1),
    ],
)
def test_reported_19_a_special_token_that_the_model_lacks_is_named_before_loading(
    tmp_path: Path, family: str, setting: str, token_id: int
) -> None:
    folder = save_with_settings(tmp_path / "m", family, **{setting: token_id})
    with raises("model.token_unknown", setting, token_id, VOCAB - 1):
        load_in_float64(folder)
    fact = examine_model(str(folder))[-1]
    assert fact.what == "Special tokens"
    assert fact.ok is False
    assert f"{setting} {token_id}" in fact.words


@pytest.mark.parametrize(
    ("family", "setting", "token_id"),
    [
        ("bert", "pad_token_id", -1),
        ("marian", "pad_token_id", -1),
        ("marian", "eos_token_id", VOCAB),
        ("marian", "bos_token_id", VOCAB),
        ("gpt2", "eos_token_id", -1),
        ("gpt2", "bos_token_id", VOCAB),
        ("bert", "decoder_start_token_id", VOCAB),
    ],
)
def test_reported_19_a_special_token_that_no_answer_needs_changes_none(
    tmp_path: Path, family: str, setting: str, token_id: int
) -> None:
    task = task_of(family)
    model_with_setting = load_in_float64(
        save_with_settings(tmp_path / "odd", family, **{setting: token_id})
    )
    plain_model = load_in_float64(save_with_settings(tmp_path / "usual", family))
    rows = [*range(6)]
    torch.testing.assert_close(
        logits(model_with_setting, task, rows), logits(plain_model, task, rows), rtol=0, atol=1e-12
    )
    assert examine_model(str(tmp_path / "odd"))[-1].ok is not False


def larger_tokenizer() -> Any:
    """A tokenizer that pads with a new token, for which the model's embeddings were not enlarged."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[NEW]"})
    assert tokenizer.pad_token_id == VOCAB
    return tokenizer


@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_reported_19_a_padding_token_of_the_tokenizer_that_the_model_lacks_is_replaced(
    tmp_path: Path, family: str
) -> None:
    """Padding with the token that the configuration names gives the answers of the tokenizer that fits."""
    task = task_of(family)
    rows = [*range(6)]
    plain_model = load_in_float64(save_with_settings(tmp_path / "m", family, pad_token_id=PADDING))
    expected_logits = logits(plain_model, task, rows)
    larger_tokenizer().save_pretrained(tmp_path / "m")
    torch.testing.assert_close(
        logits(load_in_float64(tmp_path / "m"), task, rows), expected_logits, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_reported_19_a_model_that_lacks_the_padding_token_of_the_tokenizer_says_so(
    tmp_path: Path, family: str
) -> None:
    """Not "Padding_idx must be within num_embeddings", as where the configuration names none."""
    folder = save_with_settings(tmp_path / "m", family, pad_token_id=None)
    larger_tokenizer().save_pretrained(folder)
    model = load_in_float64(folder)
    with raises("tokenizer.larger_than_model", "[NEW]", VOCAB):
        logits(model, task_of(family), [0, 1])


def test_reported_19_a_base_whose_padding_token_is_unknown_cannot_be_trained_on(
    tmp_path: Path,
) -> None:
    folder = save_with_settings(
        tmp_path / "base", "bert", pad_token_id=VOCAB, architectures=["BertModel"]
    )
    with raises("model.base_untrainable"):
        load_base(find_base(str(folder)), ["a", "b"], words=False)
