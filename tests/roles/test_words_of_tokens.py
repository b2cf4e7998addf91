"""The word that a token belongs to, for tokenizers that do not say so."""

from __future__ import annotations

from itertools import product

import pytest
from support.expected_errors import raises
from support.tiny_models import tiny_model

pytest.importorskip("sentencepiece")

from headlab.evaluation import encode, encode_words, word_ids
from headlab.roles import of_trees
from headlab.roles.tokenised import NO_WORD, read
from headlab.tasks import Tree
from headlab.training.translation import marian_tokenizer, train_piece_model

WORDS = product(("small", "large", "green"), ("dog", "cat", "bird"), ("one", "two", "no"))
TEXTS = [
    f"the {adjective} {animal} sees {count} house{'s' * (number % 2)} again"
    for number, (adjective, animal, count) in enumerate(WORDS)
]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spm")
    tokenizer = marian_tokenizer(train_piece_model(TEXTS, 40), "en-de", 64, folder)
    return tiny_model("marian", tokenizer=tokenizer)


def word_indices_by_pieces(model, ids, words):
    """The word index of each token, by counting the pieces that begin a word; None of `</s>`."""
    pieces = model.tokenizer.convert_ids_to_tokens(ids)
    word_indices = []
    word_index = -1
    for piece in pieces:
        word_index += piece.startswith("▁")
        word_indices.append(None if piece == "</s>" else word_index)
    assert word_index == len(words) - 1
    return word_indices


def test_a_tokenizer_in_python_has_its_words_counted(marian):
    sentences = [text.split() for text in TEXTS]
    encoding = encode_words(marian, sentences)
    token_ids = encoding.columns["input_ids"]
    assert not marian.tokenizer.is_fast
    assert max(map(len, token_ids)) > 8  # words of several pieces are among them
    for ids, word_indices, sentence in zip(token_ids, encoding.word_ids, sentences, strict=True):
        assert word_indices == word_indices_by_pieces(marian, ids, sentence)
    assert token_ids == encode(marian, TEXTS)["input_ids"]


@pytest.mark.parametrize("truncation_side", ["right", "left"])
def test_a_sentence_that_is_cut_keeps_the_words_at_its_other_end(
    marian, truncation_side, monkeypatch
):
    monkeypatch.setattr(marian.tokenizer, "truncation_side", truncation_side)
    words = TEXTS[0].split() * 30
    encoding = encode_words(marian, [words])
    (ids,) = encoding.columns["input_ids"]
    (word_indices,) = encoding.word_ids
    assert len(ids) == len(word_indices) == 64
    assert word_indices[-1] is None
    assert (word_indices[0] == 0) == (truncation_side == "right")
    assert (word_indices[-2] == len(words) - 1) == (truncation_side == "left")
    pieces = marian.tokenizer.convert_ids_to_tokens(ids)
    starting_words = []
    for word_index, piece in zip(word_indices, pieces, strict=True):
        if piece.startswith("▁"):
            starting_words.append(word_index)
    # Every piece that begins a word begins another one.
    assert starting_words == sorted(set(starting_words))


def test_tokens_that_are_not_those_of_the_words_are_refused(marian):
    words = TEXTS[0].split()
    (ids,) = encode_words(marian, [words]).columns["input_ids"]
    assert word_ids(marian.tokenizer, words, ids, 64)[0] == 0
    all_word_indices = word_ids(marian.tokenizer, words, ids, 64)
    assert word_ids(marian.tokenizer, words, [*ids[:3], ids[-1]], 4) == [
        *all_word_indices[:3],
        None,
    ]
    for wrong_ids in (
        [*ids[:3], ids[-1]],
        [*ids[:2], *ids[3:]],
        [ids[1], ids[0], *ids[2:]],
        [*ids[:-1], 5, ids[-1]],
    ):
        with raises("tokenizer.words_unknown"):
            word_ids(marian.tokenizer, words, wrong_ids, 64)


def test_roles_are_read_of_the_encoder_of_a_translation_model(marian):
    words = tuple(TEXTS[4].split())
    governors = (-1, *range(len(words) - 1))
    relations = ("root", *["nsubj"] * (len(words) - 1))
    tree = Tree("one", words, governors, relations, 1)
    tokenised = read(marian, of_trees([tree], "en", "dev"), "none are wanted")
    assert tokenised.stacks == ("encoder",)
    assert sorted(set(tokenised.words_of_tokens[0])) == [NO_WORD, *range(len(words))]
    assert tokenised.complete_words[0].all()
