"""Tokenizers in GGUF: llama.cpp splits texts as transformers does, or headlab refuses to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import sentencepiece_pieces
from support.expected_errors import raises
from support.llama_cpp import ask_llama_cpp, with_llama_cpp
from support.tiny_llama import (
    END,
    EVEN,
    START,
    UNSEEN_TEXTS,
    byte_level_tokenizer,
    sentencepiece_model,
    sentencepiece_tokenizer,
    tiny_llama,
    without_groups,
)
from support.tiny_task import tiny_tokenizer
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headlab.shrink import shrink_model
from headlab.shrink.gguf_file import write_gguf
from headlab.shrink.gguf_tokens import scores_of_merges, token_fields

gguf = pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")


def written(tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    """A GGUF file of a tiny model with this tokenizer."""
    model = tiny_llama(tokenizer)
    path = folder / "model.gguf"
    write_gguf(model, shrink_model(model, without_groups(model, EVEN)), path, "float32")
    return path


def with_start(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer, which now begins every text with the start token."""
    start_id = tokenizer.convert_tokens_to_ids(tokenizer.bos_token)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{tokenizer.bos_token} $A", special_tokens=[(tokenizer.bos_token, start_id)]
    )
    return tokenizer


@with_llama_cpp
@pytest.mark.parametrize("rule", ["gpt-2", "smollm", "llama-bpe"])
def test_llama_cpp_splits_byte_level_texts_as_transformers_does(rule, tmp_path):
    tokenizer = byte_level_tokenizer(rule)
    texts = [*UNSEEN_TEXTS, f"{START}and{END} special tokens"]
    answer = ask_llama_cpp(written(tokenizer, tmp_path), tmp_path, texts)
    for text, tokens in zip(texts, answer.tokens, strict=True):
        assert tokens == tokenizer(text)["input_ids"], text
    other_rules = [byte_level_tokenizer(name) for name in ("gpt-2", "smollm", "llama-bpe")]
    lengths = {sum(len(other(text)["input_ids"]) for text in texts) for other in other_rules}
    assert len(lengths) == 3  # the rules differ on these texts


@with_llama_cpp
def test_a_start_token_is_put_before_a_text_where_it_was(tmp_path):
    tokenizer = with_start(byte_level_tokenizer("llama-bpe"))
    answer = ask_llama_cpp(written(tokenizer, tmp_path), tmp_path, UNSEEN_TEXTS)
    assert answer.tokens == [tokenizer(text)["input_ids"] for text in UNSEEN_TEXTS]
    assert {tokens[0] for tokens in answer.tokens} == {tokenizer.bos_token_id}


@with_llama_cpp
@pytest.mark.parametrize("as_step", [False, True], ids=["normalizer", "step"])
def test_llama_cpp_splits_texts_as_sentencepiece_does(as_step, tmp_path):
    tokenizer = with_start(sentencepiece_tokenizer(as_step=as_step))
    answer = ask_llama_cpp(written(tokenizer, tmp_path), tmp_path, UNSEEN_TEXTS)
    for text, tokens in zip(UNSEEN_TEXTS, answer.tokens, strict=True):
        assert tokens == [1, *sentencepiece_model().encode(text)], text
        # As a step, transformers puts no space before a text that begins with one.
        if not (as_step and text.startswith(" ")):
            assert tokens == tokenizer(text)["input_ids"], text


@with_llama_cpp
@pytest.mark.parametrize("as_step", [False, True], ids=["normalizer", "step"])
def test_special_tokens_within_a_text_are_found(as_step, tmp_path):
    tokenizer = with_start(sentencepiece_tokenizer(as_step=as_step))
    text = "Hello</s>lazy dog</s>"
    (tokens,) = ask_llama_cpp(written(tokenizer, tmp_path), tmp_path, [text]).tokens
    encode = sentencepiece_model().encode
    assert tokens == [1, *encode("Hello"), 2, *encode("lazy dog"), 2]
    # As a step, transformers puts a space before a text's beginning only.
    assert (tokens == tokenizer(text)["input_ids"]) != as_step


def test_types_scores_and_special_tokens_are_sentencepieces():
    fields = token_fields(tiny_llama(sentencepiece_tokenizer()))
    model = sentencepiece_model()
    types = gguf.TokenType
    for number, (token, kind) in enumerate(zip(fields.tokens, fields.types, strict=True)):
        assert token == model.id_to_piece(number)
        expected = types.NORMAL
        if model.is_unknown(number):
            expected = types.UNKNOWN
        elif model.is_control(number):
            expected = types.CONTROL
        elif model.is_byte(number):
            expected = types.BYTE
        assert kind == expected, token
    assert fields.special_ids == {
        "add_bos_token_id": 1,
        "add_eos_token_id": 2,
        "add_unk_token_id": 0,
    }
    scores = fields.splitting.scores
    assert scores is not None
    by_own_scores = sorted(scores, key=lambda piece: -scores[piece])
    by_their_scores = sorted(scores, key=lambda piece: -model.get_score(model.piece_to_id(piece)))
    assert by_own_scores == by_their_scores


# Merges and scores.


def random_bpe(seed: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A vocabulary over four letters, in which every longer piece is made in one way only."""
    rng = np.random.default_rng(seed)
    pieces = list("abcd")
    merges: list[tuple[str, str]] = []
    for _ in range(60):
        left, right = (str(piece) for piece in rng.choice(pieces, 2))
        longer = left + right
        vocabulary = {*pieces, longer}
        ways = [
            (piece, cut)
            for piece in vocabulary
            for cut in range(1, len(piece))
            if piece[:cut] in vocabulary and piece[cut:] in vocabulary
        ]
        if longer not in pieces and len(ways) == len(merges) + 1:
            pieces.append(longer)
            merges.append((left, right))
    return {piece: number for number, piece in enumerate(pieces)}, merges


def test_scores_put_pieces_together_as_the_merges_do():
    for seed in range(30):
        vocabulary, merges = random_bpe(seed)
        assert len(merges) > 4
        scores = scores_of_merges(vocabulary, merges)
        assert scores is not None
        rng = np.random.default_rng([seed, 1])
        tokenizer = Tokenizer(models.BPE(vocabulary, merges))
        for _ in range(20):
            text = "".join(rng.choice(list("abcd"), 14))
            assert tokenizer.encode(text).tokens == sentencepiece_pieces(text, scores)


def test_merges_that_no_scores_give_are_found():
    vocabulary = {piece: number for number, piece in enumerate(["a", "b", "c", "ab", "bc", "abc"])}
    in_order = [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")]
    assert scores_of_merges(vocabulary, in_order) == {"ab": 0.0, "bc": -1.0, "abc": -2.0}
    assert scores_of_merges(vocabulary, in_order[:3]) is None  # a + bc makes abc without a merge
    apart = [("a", "b"), ("b", "c"), ("ab", "c"), ("c", "a"), ("a", "bc")]
    assert scores_of_merges(vocabulary | {"ca": 6}, apart) is None


# What is refused.


def changed(tokenizer: PreTrainedTokenizerFast, **parts: Any) -> PreTrainedTokenizerFast:
    """The tokenizer with other parts of its tokenizer.json."""
    description = json.loads(tokenizer.backend_tokenizer.to_str())
    for name, value in parts.items():
        if name in description:
            description[name] = value
        else:
            description["model"][name] = value
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(description)),
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
    )


def stripping_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = byte_level_tokenizer("smollm")
    tokenizer.backend_tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def added_later_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = sentencepiece_tokenizer()
    tokenizer.backend_tokenizer.add_tokens([AddedToken("<extra>", normalized=True)])
    return tokenizer


def endless_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = byte_level_tokenizer("smollm")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)


LOWERCASE = {"type": "Lowercase"}
SPACES = {"type": "WhitespaceSplit"}


@pytest.mark.parametrize(
    ("make_tokenizer", "phrase"),
    [
        (tiny_tokenizer, "is of the kind WordLevel"),
        (
            lambda: changed(byte_level_tokenizer("gpt-2"), normalizer=LOWERCASE),
            "changes texts before it splits them",
        ),
        (
            lambda: changed(byte_level_tokenizer("gpt-2"), pre_tokenizer=SPACES),
            "a rule that headlab does not know (WhitespaceSplit)",
        ),
        (
            lambda: changed(byte_level_tokenizer("gpt-2"), ignore_merges=True),
            "takes whole words from its vocabulary",
        ),
        (stripping_tokenizer, "<mask>, that takes the spaces around it"),
        (
            lambda: changed(byte_level_tokenizer("gpt-2"), end_of_word_suffix="</w>"),
            "has end_of_word_suffix set",
        ),
        (
            lambda: changed(sentencepiece_tokenizer(), ignore_merges=True),
            "takes whole words from its vocabulary",
        ),
        (added_later_tokenizer, "looks for its added token <extra> in changed texts"),
        (
            lambda: changed(sentencepiece_tokenizer(), normalizer=LOWERCASE),
            "in a way that headlab does not know (Lowercase)",
        ),
        (
            lambda: changed(sentencepiece_tokenizer(), merges=[]),
            "merges that are not those of SentencePiece's scores",
        ),
    ],
)
def test_tokenizers_that_llama_cpp_would_not_follow_are_refused(make_tokenizer, phrase):
    with raises("gguf.tokenizer_unknown", phrase, "--as folder"):
        token_fields(tiny_llama(make_tokenizer()))


def test_tokens_without_an_embedding_are_refused():
    model = tiny_llama(vocab_size=300)
    with raises("gguf.tokenizer_unknown", "for 300 embeddings"):
        token_fields(model)


def test_the_end_of_a_text_is_what_tokenizer_or_model_say():
    model = tiny_llama(endless_tokenizer(), eos_token_id=None)
    with raises("gguf.tokenizer_unknown", "names no token that ends a text"):
        token_fields(model)
    model.module.generation_config.eos_token_id = [1, 7]
    ids = token_fields(model).special_ids
    assert ids == {"add_bos_token_id": 1, "add_eos_token_id": 1, "add_eot_token_id": 7}


def test_embeddings_without_a_token_are_marked_as_unused():
    model = tiny_llama(vocab_size=448)
    fields = token_fields(model)
    assert len(fields.tokens) == 448
    assert fields.tokens[-1] == "[PAD447]"
    assert fields.types[-1] == gguf.TokenType.UNUSED


def test_a_chat_template_comes_along(tmp_path):
    tokenizer = byte_level_tokenizer("smollm")
    tokenizer.chat_template = "{{ messages }}"
    path = written(tokenizer, tmp_path)
    assert gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents() == "{{ messages }}"


def test_the_steps_of_a_rule_are_those_of_tokenizers():
    """What the rules say in tokenizer.json, built with the library's own classes."""
    steps = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer = byte_level_tokenizer("gpt-2")
    tokenizer.backend_tokenizer.pre_tokenizer = steps
    assert token_fields(tiny_llama(tokenizer)).splitting.rule == "smollm"
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    with raises("gguf.tokenizer_unknown"):
        token_fields(tiny_llama(tokenizer))
