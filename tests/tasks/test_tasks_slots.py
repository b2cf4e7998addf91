"""The task `slots`: the sentences of `intents` with a slot for each word, traced through every repair."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlab.tasks import task
from headlab.tasks.intents.splits import build
from headlab.tasks.intents.templates import LANGUAGES, SIZES, DrawnSentence, Piece, tidy
from headlab.tasks.slots import (
    LABELS,
    LANGUAGES_WITHOUT_SPACES,
    OUTSIDE_LABEL,
    replace_with_marks,
    tidy_with_marks,
    words_of,
)

CHECKED_LANGUAGES = ("en", "de", "th", "hu", "zh-CN")  # spaces, repairs, neither, endings, neither


def drawn_sentence(*pieces: tuple[str, str]) -> DrawnSentence:
    sentence_pieces = tuple(Piece(*piece) for piece in pieces)
    return DrawnSentence(tidy("".join(p.text for p in sentence_pieces), ()), sentence_pieces)


def test_a_word_has_the_slot_it_fills() -> None:
    words = words_of(
        drawn_sentence(
            ("turn on  the ", ""), ("floor lamp", "name"), (" in ", ""), ("kitchen", "area")
        ),
        (),
        "en",
    )
    assert words == [
        ("turn", OUTSIDE_LABEL),
        ("on", OUTSIDE_LABEL),
        ("the", OUTSIDE_LABEL),
        ("floor", "name"),
        ("lamp", "name"),
        ("in", OUTSIDE_LABEL),
        ("kitchen", "area"),
    ]


def test_what_is_glued_to_a_filler_is_of_its_slot() -> None:
    assert words_of(drawn_sentence(("to ", ""), ("30", "position"), ("%", "")), (), "en")[-1] == (
        "30%",
        "position",
    )
    assert words_of(drawn_sentence(("a", "area"), ("keittiö", "name"), ("ssä", "")), (), "fi") == [
        ("akeittiössä", "name")
    ]


def test_without_spaces_a_word_is_a_piece_of_the_template() -> None:
    words = words_of(
        drawn_sentence(("打开", ""), ("书房", "area"), ("的", ""), ("灯 带", "name")), (), "zh-CN"
    )
    assert words == [
        ("打开", OUTSIDE_LABEL),
        ("书房", "area"),
        ("的", OUTSIDE_LABEL),
        ("灯", "name"),
        ("带", "name"),
    ]


def test_a_repair_moves_no_slot() -> None:
    repairs = [(re.compile(r"\bin dem\b"), "im"), (re.compile(r"\bzu (\w+)s\b"), r"zur \1")]
    sentence = drawn_sentence(
        ("Licht in dem ", ""), ("Bad", "area"), (" zu ", ""), ("Küches", "floor"), (" aus", "")
    )
    words = words_of(DrawnSentence(tidy(sentence.text, repairs), sentence.pieces), repairs, "de")
    assert words == [
        ("Licht", OUTSIDE_LABEL),
        ("im", OUTSIDE_LABEL),
        ("Bad", "area"),
        ("zur", OUTSIDE_LABEL),
        ("Küche", "floor"),
        ("aus", OUTSIDE_LABEL),
    ]


@given(
    st.text("ab ", max_size=12),
    st.sampled_from(["a+", "b", r"\b", "(a)(b)", "^a", "b$", "a|ab", r"(?<=a)b"]),
    st.sampled_from(["", "x", "aba", "b"]),
)
def test_replacing_with_marks_replaces_as_python_does(
    text: str, pattern: str, replacement: str
) -> None:
    replaced_text, marks = replace_with_marks(
        re.compile(pattern), replacement, text, list(range(len(text)))
    )
    assert replaced_text == re.sub(pattern, replacement, text)
    assert len(marks) == len(replaced_text)
    assert all(
        text[mark] == letter
        for mark, letter in zip(marks, replaced_text, strict=True)
        if letter not in replacement
    )


@pytest.mark.parametrize("language", CHECKED_LANGUAGES)
def test_sentences_and_splits_are_those_of_intents(language: str) -> None:
    splits = build(language, 0)
    clean = build(language, 0).book.words.clean
    for split in ("dev", "test"):
        whole = task("slots").examples(language, split)
        other = task("intents").examples(language, split)
        assert len(whole) == SIZES[split]
        assert [e.group for e in whole] == [e.group for e in other]
        assert [e.id for e in whole] == [e.id.replace("intents/", "slots/") for e in other]
        assert ["".join(e.words) for e in whole] == ["".join(e.text.split()) for e in other]
        assert all(len(e.words) == len(e.labels) > 0 and e.text == " ".join(e.words) for e in whole)
        assert language in LANGUAGES_WITHOUT_SPACES or all(
            e.text == o.text for e, o in zip(whole, other, strict=True)
        )
        assert all(tidy_with_marks(one, clean)[0] == one.text for one in splits.sentences[split])


@pytest.mark.parametrize("language", CHECKED_LANGUAGES)
def test_every_slot_that_was_filled_is_seen_and_no_two_fillers_of_one_slot_meet(
    language: str,
) -> None:
    splits = build(language, 0)
    lost = 0
    for one in splits.sentences["test"]:
        found = [slot for _, slot in words_of(one, splits.book.words.clean, language)]
        fillers = [piece.slot for piece in one.pieces if piece.slot and piece.text.strip()]
        starts = [
            slot
            for i, slot in enumerate(found)
            if slot != OUTSIDE_LABEL and (i == 0 or found[i - 1] != slot)
        ]
        lost += sorted(starts) != sorted(fillers)
    assert lost <= 1  # "Liste Pack", mended to "Packliste", has lost its slot


def test_every_label_is_taught_and_two_words_in_three_are_outside() -> None:
    rows = task("slots").examples("en", "train")
    counts = Counter(label for e in rows for label in e.labels)
    assert set(counts) == set(range(len(LABELS)))
    assert min(counts.values()) >= 80
    assert 0.6 < counts[0] / sum(counts.values()) < 0.72


def test_the_languages_are_those_of_intents_and_another_seed_says_other_sentences() -> None:
    assert task("slots").languages == LANGUAGES
    from headlab.tasks.slots import slots_task

    assert slots_task(seed=1).examples("th")[0] != slots_task().examples("th")[0]
