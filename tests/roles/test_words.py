"""Which word a token is of, for tokenizers that do not say so."""

from __future__ import annotations

import pytest
from support.expected_errors import raises
from support.tiny_models import tiny_model

pytest.importorskip("sentencepiece")

from headlab.evaluation import encode, encode_words, word_ids
from headlab.roles import of_trees
from headlab.roles.tokenised import NO_WORD, read
from headlab.tasks import Tree
from headlab.training.translation import marian_tokenizer, word_pieces

TEXTS = [
    f"the {a} {b} sees {c} house{'s' * (i % 2)} again"
    for i, (a, b, c) in enumerate(
        (a, b, c)
        for a in ("small", "large", "green")
        for b in ("dog", "cat", "bird")
        for c in ("one", "two", "no")
    )
]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    tokenizer = marian_tokenizer(
        word_pieces(TEXTS, 40), "en-de", 64, tmp_path_factory.mktemp("spm")
    )
    return tiny_model("marian", tokenizer=tokenizer)


def words_by_hand(model, ids, words):
    """Each token's word, by counting the pieces that begin one."""
    pieces = model.tokenizer.convert_ids_to_tokens(ids)
    out = []
    place = -1
    for piece in pieces:
        place += piece.startswith("▁")
        out.append(None if piece == "</s>" else place)
    assert place == len(words) - 1
    return out


def test_a_tokenizer_in_python_has_its_words_counted(marian):
    words = [text.split() for text in TEXTS]
    encoded = encode_words(marian, words)
    token_ids = encoded.columns["input_ids"]
    assert not marian.tokenizer.is_fast
    assert max(map(len, token_ids)) > 8  # words of several pieces are among them
    for ids, places, sentence in zip(token_ids, encoded.word_ids, words, strict=True):
        assert places == words_by_hand(marian, ids, sentence)
    assert token_ids == encode(marian, TEXTS)["input_ids"]


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_sentence_that_is_cut_keeps_the_words_at_its_other_end(marian, side, monkeypatch):
    monkeypatch.setattr(marian.tokenizer, "truncation_side", side)
    words = [f"{word}" for word in (TEXTS[0] + " ").split() * 30]
    encoded = encode_words(marian, [words])
    (ids,) = encoded.columns["input_ids"]
    (places,) = encoded.word_ids
    assert len(ids) == len(places) == 64
    assert places[-1] is None
    assert (places[0] == 0) == (side == "right")
    assert (places[-2] == len(words) - 1) == (side == "left")
    starts = [
        p
        for p, piece in zip(places, marian.tokenizer.convert_ids_to_tokens(ids), strict=True)
        if piece[0] == "▁"
    ]
    assert starts == sorted(set(starts))  # a new word, a new place


def test_tokens_that_are_not_the_words_own_are_refused(marian):
    words = TEXTS[0].split()
    (ids,) = encode_words(marian, [words]).columns["input_ids"]
    assert word_ids(marian.tokenizer, words, ids, 64)[0] == 0
    whole = word_ids(marian.tokenizer, words, ids, 64)
    assert word_ids(marian.tokenizer, words, [*ids[:3], ids[-1]], 4) == [*whole[:3], None]
    for wrong in (
        [*ids[:3], ids[-1]],
        [*ids[:2], *ids[3:]],
        [ids[1], ids[0], *ids[2:]],
        [*ids[:-1], 5, ids[-1]],
    ):
        with raises("tokenizer.words_unknown"):
            word_ids(marian.tokenizer, words, wrong, 64)


def test_roles_are_read_of_a_translation_model_s_encoder(marian):
    words = tuple(TEXTS[4].split())
    tree = Tree(
        "one", words, (-1, *range(len(words) - 1)), ("root", *["nsubj"] * (len(words) - 1)), 1
    )
    given = read(marian, of_trees([tree], "en", "dev"), "none are wanted")
    assert given.stacks == ("encoder",)
    assert sorted(set(given.words_of_tokens[0])) == [NO_WORD, *range(len(words))]
    assert given.complete_words[0].all()
