"""Attention as it crosses the worker's door."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.saved_models import save_family
from support.tiny_models import tiny_model
from support.tiny_task import read_tiny, tiny_task, tiny_tokenizer
from test_inputs import WORDS
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headlab import load
from headlab import task as task_named
from headlab.core import Head
from headlab.evaluation import NO_TARGET, Evaluator
from headlab.hooks import Model, gated
from headlab.masks import Mask, full_mask
from headlab.tasks import Task
from headlab.worker.answers import answers_of, attention_weights
from headlab.worker.schemas import AttentionRequest

SENTENCE_PAIRS = replace(
    tiny_task(), read=lambda *of: [replace(one, pair=one.text[:5]) for one in read_tiny(*of)]
)


def test_separators_are_named_by_their_place_and_only_those_that_are_left(tmp_path: Path) -> None:
    model = load(str(save_family(tmp_path / "bert", "bert")))
    heads = [("encoder", 0, 0)]

    def ask(text: str, pair: str | None = None) -> tuple[list[str], list[int]]:
        attention = attention_weights(
            model, AttentionRequest(model="m", text=text, heads=heads, pair=pair)
        )
        return attention.tokens, attention.separators

    assert ask("w5 w6") == (["<s>", "w5", "w6", "</s>"], [3])
    assert ask("w5", "w6 w7") == (["<s>", "w5", "</s>", "w6", "w7", "</s>"], [2, 5])
    tokens, separators = ask(" ".join(["w5"] * 100))
    assert len(tokens) == 64
    assert all(tokens[position] == "</s>" for position in separators)


def test_reported_04_attention_is_cut_to_what_the_model_takes(tmp_path: Path) -> None:
    """RoBERTa's 64 positions begin after that of the padding, number 1: 62 tokens fit, and 64 were an IndexError."""
    model = load(str(save_family(tmp_path / "xlm-roberta", "xlm-roberta")))
    request = AttentionRequest(model="m", text=" ".join(["w5"] * 100), heads=[("encoder", 0, 0)])
    attention = attention_weights(model, request)
    assert (len(attention.tokens), attention.truncated) == (62, True)


def test_a_translation_model_shows_its_encoder_and_says_why_not_its_decoder(tmp_path: Path) -> None:
    model = load(str(save_family(tmp_path / "marian", "marian")))
    attention = attention_weights(
        model, AttentionRequest(model="m", text="w5 w6", heads=[("encoder", 1, 2)])
    )
    assert [len(row) for row in attention.weights["encoder.1.2"]] == [len(attention.tokens)] * len(
        attention.tokens
    )
    for stack in ("decoder", "cross"):
        with raises("head.of_translation"):
            attention_weights(
                model, AttentionRequest(model="m", text="w5 w6", heads=[(stack, 0, 0)])
            )


def probabilities(evaluator: Evaluator, row: int, mask: Mask) -> np.ndarray:
    """Of the labels of every answer to one example, in a pass of its own: float [answer, label]."""
    rows = np.array([row])
    with torch.inference_mode(), gated(evaluator.model, mask):
        logits = evaluator.logits(evaluator.tensors(rows))
    has_target = (evaluator.targets(rows, logits) != NO_TARGET).flatten()
    return logits.double().softmax(-1).flatten(0, -2)[has_target].numpy()


def assert_answers_are_the_evaluators(
    model: Model, task: Task, language: str, heads: list[Head], size: int
) -> int:
    """Labels are those of the evaluator under the same mask, probabilities those of single passes; how many flip."""
    evaluator = Evaluator(model, task, language, "dev", size)
    full = full_mask(model.grid)
    kept_heads = np.array([head not in heads for head in model.grid.heads])
    reduced = Mask(model.grid, kept_heads, model.identity())
    predictions = [evaluator.evaluate(mask).predicted for mask in (None, reduced)]
    word_index = 0
    flips = 0
    for row, example in enumerate(evaluator.examples):
        request = AttentionRequest(
            model="m",
            text=example.text,
            pair=example.pair,
            words=list(example.words),
            heads=[tuple(h) for h in heads],
        )
        answers = answers_of(model, task, request)
        assert [answer.word for answer in answers] == (list(example.words) or [None])
        for side, mask, labels in (("on", full, predictions[0]), ("off", reduced, predictions[1])):
            answer_labels = [getattr(answer, side) for answer in answers]
            assert answer_labels == [
                task.labels[label] for label in labels[word_index : word_index + len(answers)]
            ]
            expected_shares = probabilities(evaluator, row, mask).max(axis=1)
            np.testing.assert_allclose(
                [getattr(answer, f"p_{side}") for answer in answers], expected_shares, rtol=1e-4
            )
        word_index += len(answers)
        flips += sum(answer.on != answer.off for answer in answers)
    return flips


@pytest.mark.parametrize(
    ("family", "task"), [("bert", tiny_task()), ("bert-tokens", WORDS), ("bert", SENTENCE_PAIRS)]
)
def test_answers_with_heads_on_and_off_are_those_of_the_evaluator(family: str, task: Task) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    assert (
        assert_answers_are_the_evaluators(
            model, task, task.languages[0], list(model.grid.heads[:6]), 12
        )
        > 0
    )


@pytest.mark.parametrize(("name", "language"), [("intents", "de"), ("slots", "th")])
def test_answers_of_the_embedded_models_are_those_of_the_evaluator(
    name: str, language: str
) -> None:
    model = load(f"e5-small-{name}")
    assert (
        assert_answers_are_the_evaluators(
            model, task_named(name), language, list(model.grid.heads[96:]), 8
        )
        > 0
    )


def test_a_typed_sentence_is_answered_word_by_word_where_the_model_labels_words() -> None:
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    request = AttentionRequest(model="m", text=" w5  w6 ", heads=[("encoder", 0, 0)])
    assert [answer.word for answer in answers_of(model, WORDS, request)] == ["w5", "w6"]
    with raises("changes.no_labels"):
        answers_of(model, replace(WORDS, labels=()), request)


def test_the_word_of_each_token_is_known_of_texts_pairs_and_words() -> None:
    model = load("e5-small-slots")

    def ask(**sentence: object) -> tuple[list[str], list[list[str]]]:
        """The words, and the tokens of each."""
        attention = attention_weights(
            model, AttentionRequest(model="m", heads=[("encoder", 0, 0)], **sentence)
        )
        assert {place for place, word in enumerate(attention.places) if word < 0} == set(
            attention.special
        )
        pieces = [
            [
                attention.tokens[index]
                for index, word_of_token in enumerate(attention.places)
                if word_of_token == word
            ]
            for word in range(len(attention.words))
        ]
        return attention.words, pieces

    words, pieces = ask(text="Küchenlampe  ausschalten", words=["Küchenlampe", "ausschalten"])
    assert words == ["Küchenlampe", "ausschalten"]
    assert ["".join(word_tokens).strip("▁") for word_tokens in pieces] == words
    assert max(map(len, pieces)) > 1
    assert ask(text="Küchenlampe  ausschalten") == (words, pieces)
    assert ask(text="Küchenlampe ausschalten", pair="Küchenlampe an")[0] == [
        *words,
        "Küchenlampe",
        "an",
    ]


@pytest.mark.parametrize("family", ["bert", "marian"])
def test_small_maps_are_of_every_head_that_attends_from_the_sentence(
    family: str, tmp_path: Path
) -> None:
    model = load(str(save_family(tmp_path / family, family)))
    heads = [
        ("encoder", layer, head)
        for layer, heads in enumerate(model.grid.stacks[0].heads)
        for head in range(heads)
    ]
    fields = {"model": "m", "text": "w5 w6 w7", "heads": heads}
    attention = attention_weights(model, AttentionRequest(**fields, maps=True))
    assert list(attention.maps) == list(attention.weights)
    for name, text in attention.maps.items():
        weights = np.frombuffer(b64decode(text), np.uint8) / 255
        np.testing.assert_allclose(
            weights, np.ravel(attention.weights[name]), atol=0.5 / 255 + 0.0005
        )
    assert attention_weights(model, AttentionRequest(**fields)).maps == {}


def byte_model() -> Model:
    """A tiny decoder whose tokens are single bytes, as symbols."""
    symbols = {
        symbol: number for number, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    backend = Tokenizer(models.BPE(vocab=symbols, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model = tiny_model(
        "gpt2", tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="!")
    )
    model.module.resize_token_embeddings(len(model.tokenizer))
    return model


def test_reported_24_tokens_of_bytes_are_sent_as_letters_with_their_part() -> None:
    attention = attention_weights(
        byte_model(), AttentionRequest(model="m", text="戏 สี", heads=[("decoder", 0, 0)])
    )
    parts = [f"{letter}[{part}/3]" for letter in "戏สี" for part in (1, 2, 3)]
    assert attention.tokens == [*parts[:3], "▁", *parts[3:]]
    assert len(attention.ids) == len(attention.tokens) == len(attention.weights["decoder.0.0"])


def test_reported_24_a_letter_that_the_length_limit_cuts_is_still_that_letter() -> None:
    """64 tokens: 21 letters of three bytes, and the first byte of one more."""
    attention = attention_weights(
        byte_model(), AttentionRequest(model="m", text="戏" * 30, heads=[("decoder", 0, 0)])
    )
    assert (len(attention.tokens), attention.truncated) == (64, True)
    assert attention.tokens[-1] == "戏[1/3]"
