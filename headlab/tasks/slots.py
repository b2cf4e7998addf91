"""The embedded task `slots`: which word fills which slot, in the voice commands of the task `intents`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from headlab.tasks.base import Example, Split, Task
from headlab.tasks.intents import read as read_intents
from headlab.tasks.intents.templates import LANGUAGES, DrawnSentence

OUTSIDE_LABEL = "O"
# The slots of English train, most frequent first; a slot found only in other languages (`domain`) counts as outside.
# No B- and I- prefixes: two fillers of one slot are never adjacent, so they would only make more and rarer labels.
LABELS = (
    OUTSIDE_LABEL, "name", "area", "floor", "temperature", "item", "position", "state", "minutes", "hours", "seconds",
    "device_class", "start_minutes", "volume_step", "start_seconds", "conversation_command", "brightness",
    "start_hours", "volume_level", "color",
)  # fmt: skip
# Written without spaces: a word is then one piece of the template, a filler or the text between two choices.
# Tokenizers treat such pieces as words; single characters would separate Thai vowels from their consonants.
LANGUAGES_WITHOUT_SPACES = frozenset({"th", "zh-CN"})
NO_PIECE = -1  # mark of a character that comes from no piece

MarkedText = tuple[str, list[int]]
Word = tuple[str, str]


def slots_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: 20 labels, one per word, in the 15 languages of `intents`; train in English only; not aligned.

    Args:
        data: Not used; the sentences come with the packages.
    """
    return Task("slots", LABELS, LANGUAGES, False, read, seed)


def read(language: str, split: Split, seed: int) -> Sequence[Example]:
    """The sentences of `intents` in the same splits and order, with a label for each word. Raises as `intents` does."""
    intents = read_intents(language, split, seed)  # first, because it names a missing package
    from headlab.tasks.intents.splits import build

    splits = build(language, seed)
    drawn_sentences = splits.sentences.get(split, ())
    return [
        _example(
            intent.id.replace("intents", "slots", 1),
            intent.group,
            words_of(sentence, splits.book.words.clean, language),
        )
        for intent, sentence in zip(intents, drawn_sentences, strict=True)
    ]


def _example(name: str, group: str, words: Sequence[Word]) -> Example:
    slots = [slot if slot in LABELS else OUTSIDE_LABEL for _, slot in words]
    return Example(
        name,
        " ".join(word for word, _ in words),
        group=group,
        words=tuple(word for word, _ in words),
        labels=tuple(LABELS.index(slot) for slot in slots),
    )


def words_of(
    sentence: DrawnSentence, clean: Sequence[tuple[re.Pattern[str], str]], language: str
) -> list[Word]:
    """The words of a sentence, each with the slot that fills most of its characters; OUTSIDE if none does.

    Characters outside any slot do not count: "30%" has the slot of 30, and a name with a case ending is a name.
    """
    text, marks = tidy_with_marks(sentence, clean)
    tagged_words = []
    for match in re.finditer(r"\S+", text):
        letters = list(zip(match.group(), marks[match.start() : match.end()], strict=True))
        pieces = [list(of_one) for _, of_one in groupby(letters, key=itemgetter(1))]
        for part in pieces if language in LANGUAGES_WITHOUT_SPACES else [letters]:
            slots = Counter(
                sentence.pieces[mark].slot
                for _, mark in part
                if mark != NO_PIECE and sentence.pieces[mark].slot
            )
            tagged_words.append(
                (
                    "".join(letter for letter, _ in part),
                    slots.most_common(1)[0][0] if slots else OUTSIDE_LABEL,
                )
            )
    return tagged_words


def tidy_with_marks(
    sentence: DrawnSentence, clean: Sequence[tuple[re.Pattern[str], str]]
) -> MarkedText:
    """The tidied sentence, and for each of its characters the index in `sentence.pieces` it came from.

    Follows `templates.tidy` step by step.
    """
    text = "".join(piece.text for piece in sentence.pieces)
    marks = [number for number, piece in enumerate(sentence.pieces) for _ in piece.text]
    words = [(m.group(), marks[m.start() : m.end()]) for m in re.finditer(r"\S+", text)]
    text, marks = (
        " ".join(word for word, _ in words),
        [mark for _, some in words for mark in (*some, NO_PIECE)][:-1],
    )
    for pattern, replacement in clean:
        text, marks = replace_with_marks(pattern, replacement, text, marks)
    start = len(text) - len(text.lstrip())
    return text.strip(), marks[start : start + len(text.strip())]


def replace_with_marks(
    pattern: re.Pattern[str], replacement: str, text: str, marks: Sequence[int]
) -> MarkedText:
    """`pattern.sub` that carries the marks along; for those of replaced text see `_marks_of_replacement`."""
    out, kept, at = "", list[int](), 0
    for match in pattern.finditer(text):
        new, (start, end) = match.expand(replacement), match.span()
        before = [*kept, *marks[at:start]]
        kept = [
            *before,
            *_marks_of_replacement(
                match.group(), new, marks[start:end], before[-1] if before else NO_PIECE
            ),
        ]
        out, at = out + text[at:start] + new, end
    return out + text[at:], [*kept, *marks[at:]]


def _marks_of_replacement(
    old_text: str, new_text: str, marks: Sequence[int], mark: int
) -> Iterator[int]:
    """Marks of a replacement: for each character that of the one it replaced, or else of the one before it."""
    for operation, start, end, new_start, new_end in SequenceMatcher(
        None, old_text, new_text, autojunk=False
    ).get_opcodes():
        for offset in range(new_end - new_start):
            if operation != "insert":
                mark = marks[min(start + offset, end - 1)]
            yield mark
