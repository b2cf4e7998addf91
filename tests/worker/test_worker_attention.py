"""Attention and answers as the worker sends them."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.saved_models import save_family
from support.several_answers import WORDS
from support.tiny_models import tiny_model, tiny_module
from support.tiny_task import read_tiny, tiny_task, tiny_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headlab import load
from headlab import task as task_named
from headlab.core import Head
from headlab.evaluation import NO_TARGET, Evaluator
from headlab.hooks import Model, gated
from headlab.masks import Mask, full_mask
from headlab.tasks import Example, Split, Task
from headlab.worker.answers import answers_of, attention_weights, next_tokens_of
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import AttentionRequest


def read_pairs(language: str, split: Split, seed: int) -> list[Example]:
    """Examples of the tiny task with the beginning of each text as its second sentence."""
    examples = read_tiny(language, split, seed)
    return [replace(example, pair=example.text[:5]) for example in examples]


SENTENCE_PAIRS = replace(tiny_task(), read=read_pairs)
LONG_TEXT = " ".join(["w5"] * 100)


def request_of(text: str, heads: list[tuple[str, int, int]], **fields: Any) -> AttentionRequest:
    return AttentionRequest(model="m", text=text, heads=heads, **fields)


def test_separators_are_named_by_their_position_unless_they_are_cut_off(tmp_path: Path) -> None:
    model = load(str(save_family(tmp_path / "bert", "bert")))
    heads = [("encoder", 0, 0)]

    def ask(text: str, pair: str | None = None) -> tuple[list[str], list[int]]:
        attention = attention_weights(model, request_of(text, heads, pair=pair))
        return attention.tokens, attention.separators

    tokens, separators = ask("w5 w6")
    assert tokens == ["<s>", "w5", "w6", "</s>"]
    assert separators == [3]
    tokens, separators = ask("w5", "w6 w7")
    assert tokens == ["<s>", "w5", "</s>", "w6", "w7", "</s>"]
    assert separators == [2, 5]
    tokens, separators = ask(LONG_TEXT)
    assert len(tokens) == 64
    assert all(tokens[position] == "</s>" for position in separators)


def test_reported_04_attention_is_cut_to_what_the_model_takes(tmp_path: Path) -> None:
    """RoBERTa's positions begin after the padding's, number 1, so 62 tokens fit in its 64.

    64 tokens were an IndexError.
    """
    model = load(str(save_family(tmp_path / "xlm-roberta", "xlm-roberta")))
    request = request_of(LONG_TEXT, [("encoder", 0, 0)])
    attention = attention_weights(model, request)
    assert len(attention.tokens) == 62
    assert attention.truncated is True


def test_a_translation_model_shows_its_encoder_and_says_why_not_its_decoder(tmp_path: Path) -> None:
    model = load(str(save_family(tmp_path / "marian", "marian")))
    request = request_of("w5 w6", [("encoder", 1, 2)])
    attention = attention_weights(model, request)
    token_count = len(attention.tokens)
    row_lengths = [len(row) for row in attention.weights["encoder.1.2"]]
    assert row_lengths == [token_count] * token_count
    for stack in ("decoder", "cross"):
        request = request_of("w5 w6", [(stack, 0, 0)])
        with raises("head.of_translation"):
            attention_weights(model, request)


def probabilities(evaluator: Evaluator, row: int, mask: Mask) -> np.ndarray:
    """Probabilities of the labels for every answer to one example, from a pass of its own.

    Returns:
        float [answer, label].
    """
    rows = np.array([row])
    with torch.inference_mode(), gated(evaluator.model, mask):
        logits = evaluator.logits(evaluator.tensors(rows))
    targets = evaluator.targets(rows, logits).flatten()
    shares = logits.double().softmax(-1)
    shares = shares.flatten(0, -2)  # [answer, label]
    return shares[targets != NO_TARGET].numpy()


def assert_answers_are_the_evaluators(
    model: Model,
    task: Task,
    language: str,
    heads: list[Head],
    size: int,
) -> int:
    """Check that labels are the evaluator's under the same mask, and probabilities a single pass's.

    Args:
        model: The model.
        task: The task.
        language: The language of the examples.
        heads: The heads that are switched off.
        size: How many examples.

    Returns:
        How many answers flip when the heads are switched off.
    """
    evaluator = Evaluator(model, task, language, "dev", size)
    mask_on = full_mask(model.grid)
    kept_heads = np.array([head not in heads for head in model.grid.heads])
    mask_off = Mask(model.grid, kept_heads, model.identity())
    predictions_on = evaluator.evaluate(None).predicted
    predictions_off = evaluator.evaluate(mask_off).predicted
    word_index = 0
    flips = 0
    for row, example in enumerate(evaluator.examples):
        request = AttentionRequest(
            model="m",
            text=example.text,
            pair=example.pair,
            words=list(example.words),
            heads=[tuple(head) for head in heads],
        )
        answers = answers_of(model, task, request)
        expected_words = list(example.words) or [None]
        answered_words = [answer.word for answer in answers]
        assert answered_words == expected_words
        for state, mask, labels in (
            ("on", mask_on, predictions_on),
            ("off", mask_off, predictions_off),
        ):
            example_labels = labels[word_index : word_index + len(answers)]
            answer_labels = [getattr(answer, state) for answer in answers]
            expected_labels = [task.labels[label] for label in example_labels]
            assert answer_labels == expected_labels
            expected_shares = probabilities(evaluator, row, mask).max(axis=1)
            answer_shares = [getattr(answer, f"p_{state}") for answer in answers]
            np.testing.assert_allclose(answer_shares, expected_shares, rtol=1e-4)
        word_index += len(answers)
        flips += sum(answer.on != answer.off for answer in answers)
    return flips


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("bert", tiny_task()),
        ("bert-tokens", WORDS),
        ("bert", SENTENCE_PAIRS),
    ],
)
def test_answers_with_heads_on_and_off_are_those_of_the_evaluator(family: str, task: Task) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    language = task.languages[0]
    heads = list(model.grid.heads[:6])
    flips = assert_answers_are_the_evaluators(model, task, language, heads, 12)
    assert flips > 0


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("intents", "de"),
        ("slots", "th"),
    ],
)
def test_answers_of_the_embedded_models_are_those_of_the_evaluator(
    name: str, language: str
) -> None:
    model = load(f"e5-small-{name}")
    heads = list(model.grid.heads[96:])
    task = task_named(name)
    flips = assert_answers_are_the_evaluators(model, task, language, heads, 8)
    assert flips > 0


def test_a_typed_sentence_is_answered_word_by_word_where_the_model_labels_words() -> None:
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    request = request_of(" w5  w6 ", [("encoder", 0, 0)])
    answers = answers_of(model, WORDS, request)
    assert [answer.word for answer in answers] == ["w5", "w6"]
    with raises("changes.no_labels"):
        answers_of(model, replace(WORDS, labels=()), request)


def test_the_word_of_each_token_is_known_of_texts_pairs_and_words() -> None:
    model = load("e5-small-slots")

    def ask(text: str, **fields: Any) -> tuple[list[str], list[list[str]]]:
        """The words, and the tokens of each."""
        request = request_of(text, [("encoder", 0, 0)], **fields)
        attention = attention_weights(model, request)
        tokens_of_words: list[list[str]] = [[] for _ in attention.words]
        special_positions = []
        for position, word in enumerate(attention.places):
            if word < 0:
                special_positions.append(position)
            else:
                tokens_of_words[word].append(attention.tokens[position])
        assert set(special_positions) == set(attention.special)
        return attention.words, tokens_of_words

    words, tokens = ask("Küchenlampe  ausschalten", words=["Küchenlampe", "ausschalten"])
    assert words == ["Küchenlampe", "ausschalten"]
    joined_tokens = ["".join(word_tokens).strip("▁") for word_tokens in tokens]
    assert joined_tokens == words
    assert max(map(len, tokens)) > 1
    assert ask("Küchenlampe  ausschalten") == (words, tokens)
    words_of_pair, _ = ask("Küchenlampe ausschalten", pair="Küchenlampe an")
    assert words_of_pair == [*words, "Küchenlampe", "an"]


@pytest.mark.parametrize("family", ["bert", "marian"])
def test_small_maps_are_of_every_head_that_attends_from_the_sentence(
    family: str, tmp_path: Path
) -> None:
    model = load(str(save_family(tmp_path / family, family)))
    heads = []
    for layer, head_count in enumerate(model.grid.stacks[0].heads):
        for head in range(head_count):
            heads.append(("encoder", layer, head))
    request = request_of("w5 w6 w7", heads, maps=True)
    attention = attention_weights(model, request)
    assert list(attention.maps) == list(attention.weights)
    for name, text in attention.maps.items():
        weights = np.frombuffer(b64decode(text), np.uint8) / 255
        rounded_weights = np.ravel(attention.weights[name])
        rounding = 0.5 / 255 + 0.0005
        np.testing.assert_allclose(weights, rounded_weights, atol=rounding)
    request_without_maps = request_of("w5 w6 w7", heads)
    assert attention_weights(model, request_without_maps).maps == {}


def byte_model(family: str = "gpt2") -> Model:
    """A tiny decoder whose tokens are single bytes, as symbols."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="!")
    model = tiny_model(family, tokenizer=tokenizer)
    model.module.resize_token_embeddings(len(model.tokenizer))
    return model


def test_reported_24_tokens_of_bytes_are_sent_as_letters_with_their_part() -> None:
    request = request_of("戏 สี", [("decoder", 0, 0)])
    attention = attention_weights(byte_model(), request)
    parts = []
    for letter in "戏สี":
        for part in (1, 2, 3):
            parts.append(f"{letter}[{part}/3]")
    assert attention.tokens == [*parts[:3], "▁", *parts[3:]]
    assert len(attention.ids) == len(attention.tokens)
    assert len(attention.weights["decoder.0.0"]) == len(attention.tokens)


def test_reported_24_a_letter_that_the_length_limit_cuts_is_still_that_letter() -> None:
    """64 tokens: 21 letters of three bytes, and the first byte of one more."""
    request = request_of("戏" * 30, [("decoder", 0, 0)])
    attention = attention_weights(byte_model(), request)
    assert len(attention.tokens) == 64
    assert attention.truncated is True
    assert attention.tokens[-1] == "戏[1/3]"


# Next tokens of a decoder.


def module_without(family: str, heads: list[Head]) -> Any:
    """The plain transformers model, with zeros where its output projections read these heads."""
    module = tiny_module(family)
    head_dim = 24 // 4
    with torch.no_grad():
        for head in heads:
            rows = slice(head.head * head_dim, (head.head + 1) * head_dim)
            if family == "gpt2-lm":
                module.transformer.h[head.layer].attn.c_proj.weight[rows] = 0
            else:
                module.model.layers[head.layer].self_attn.o_proj.weight[:, rows] = 0
    return module


@pytest.mark.parametrize("family", ["gpt2-lm", "llama-lm"])
def test_next_tokens_are_those_of_the_plain_model_given_one_prefix_after_the_other(
    family: str,
) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    heads = [Head("decoder", 0, 1), Head("decoder", 2, 3)]
    request = request_of("w5 w6 w7 w5 w6", [tuple(head) for head in heads])
    attention = attention_weights(model, request)
    assert attention.tokens == ["<s>", "w5", "w6", "w7", "w5", "w6", "</s>"]
    answers = next_tokens_of(model, request)
    assert [answer.position for answer in answers] == [1, 2, 3, 4, 5, 6, 7]
    for state, module in (
        ("on", module_without(family, [])),
        ("off", module_without(family, heads)),
    ):
        for answer in answers:
            prefix = torch.tensor([attention.ids[: answer.position]])
            with torch.no_grad():
                shares = module(input_ids=prefix).logits[0, -1].softmax(-1)
            share, token = shares.max(-1)
            assert getattr(answer, f"top_{state}") == model.tokenizer.convert_ids_to_tokens(
                int(token)
            )
            assert getattr(answer, f"p_top_{state}") == pytest.approx(float(share), rel=1e-4)
            if answer.position == len(attention.ids):
                assert getattr(answer, f"p_{state}") is None
            else:
                following_share = float(shares[attention.ids[answer.position]])
                assert getattr(answer, f"p_{state}") == pytest.approx(following_share, rel=1e-4)
    assert any(answer.p_on != answer.p_off for answer in answers)


def test_next_tokens_of_a_long_sentence_end_at_the_last_token_that_is_shown() -> None:
    model = tiny_model("llama-lm", tokenizer=tiny_tokenizer())
    answers = next_tokens_of(model, request_of(LONG_TEXT, [("decoder", 0, 0)]))
    positions = [answer.position for answer in answers]
    assert positions == list(range(1, 64))
    assert all(answer.p_on is not None for answer in answers)


def test_a_sentence_of_one_token_has_only_what_the_model_would_say_next() -> None:
    model = byte_model("gpt2-lm")
    (answer,) = next_tokens_of(model, request_of("a", [("decoder", 0, 0)]))
    assert answer.position == 1
    assert answer.p_on is None
    assert answer.p_off is None


@pytest.mark.parametrize(
    ("family", "is_told"), [("gpt2-lm", True), ("gpt2", False), ("bert-lm", False)]
)
def test_the_worker_tells_next_tokens_of_decoders_that_have_them_where_a_task_is_named(
    family: str, is_told: bool, tmp_path: Path
) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    stack = model.grid.stacks[0].name
    host = ModelHost(tmp_path, "cpu", loader=lambda name: model, tasks=lambda name: tiny_task())
    request = request_of("w5 w6", [(stack, 0, 0)])
    assert host.attention(request).next_tokens == []
    request_with_task = request.model_copy(update={"task": "tiny"})
    weights = host.attention(request_with_task)
    assert len(weights.next_tokens) == (4 if is_told else 0)
    assert bool(weights.answers or weights.note) is not is_told
