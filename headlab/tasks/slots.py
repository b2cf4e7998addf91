"""The embedded task `slots`: which word fills which slot.

Its sentences are the voice commands of the task `intents`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from headlab.tasks.base import Example, Split, Task
from headlab.tasks.intents import read as read_intents
from headlab.tasks.intents.classes import LANGUAGES

if TYPE_CHECKING:  # it needs the extra `demo`
    from headlab.tasks.intents.templates import DrawnSentence

OUTSIDE_LABEL = "O"
# The slots of English train, most frequent first; a slot found only in other languages (`domain`)
# counts as outside. No B- and I- prefixes: two fillers of one slot are never adjacent, so they
# would only make more and rarer labels.
LABELS = (
    OUTSIDE_LABEL,
    "name",
    "area",
    "floor",
    "temperature",
    "item",
    "position",
    "state",
    "minutes",
    "hours",
    "seconds",
    "device_class",
    "start_minutes",
    "volume_step",
    "start_seconds",
    "conversation_command",
    "brightness",
    "start_hours",
    "volume_level",
    "color",
)
# Written without spaces: a word is then one piece of the template, a filler or the text between two
# choices. Tokenizers treat such pieces as words; single characters would separate Thai vowels from
# their consonants.
LANGUAGES_WITHOUT_SPACES = frozenset({"th", "zh-CN"})
NO_PIECE = -1  # mark of a character that comes from no piece

MarkedText = tuple[str, list[int]]
Word = tuple[str, str]


def slots_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: 20 labels, one per word, in the 15 languages of `intents`.

    Train is in English only; rows are not aligned across languages.

    Args:
        data: Not used; the sentences come with the packages.
    """
    return Task("slots", LABELS, LANGUAGES, False, read, seed)


def read(language: str, split: Split, seed: int) -> Sequence[Example]:
    """The sentences of `intents` in the same splits and order, with a label for each word.

    Raises as `intents` does.
    """
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
    """An example of tagged words; a slot that is no label counts as outside."""
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
    """The words of a sentence, each with the slot that fills most of its characters.

    A word that no slot fills has OUTSIDE_LABEL.

    Characters outside any slot do not count: "30%" has the slot of 30, and a name with a case
    ending is a name.
    """
    text, marks = tidy_with_marks(sentence, clean)
    tagged_words = []
    for match in re.finditer(r"\S+", text):
        marked_letters = list(zip(match.group(), marks[match.start() : match.end()], strict=True))
        words = [marked_letters]
        if language in LANGUAGES_WITHOUT_SPACES:
            words = [list(of_piece) for _, of_piece in groupby(marked_letters, key=itemgetter(1))]
        for word in words:
            word_text = "".join(letter for letter, _ in word)
            tagged_words.append((word_text, _most_frequent_slot(sentence, word)))
    return tagged_words


def _most_frequent_slot(sentence: DrawnSentence, word: Sequence[tuple[str, int]]) -> str:
    """The slot of most letters of a word; letters outside any slot do not count.

    Args:
        sentence: The sentence that the word is from.
        word: The word's letters, each with its mark, the index of its piece in the sentence.
    """
    slots = Counter[str]()
    for _, mark in word:
        if mark != NO_PIECE and sentence.pieces[mark].slot:
            slots[sentence.pieces[mark].slot] += 1
    if slots:
        return slots.most_common(1)[0][0]
    return OUTSIDE_LABEL


def tidy_with_marks(
    sentence: DrawnSentence, clean: Sequence[tuple[re.Pattern[str], str]]
) -> MarkedText:
    """The tidied sentence, and its marks.

    The mark of a character is the index in `sentence.pieces` of the piece that it came from.

    Follows `templates.tidy` step by step.
    """
    untidy_text = "".join(piece.text for piece in sentence.pieces)
    untidy_marks: list[int] = []
    for index, piece in enumerate(sentence.pieces):
        untidy_marks += [index] * len(piece.text)
    words: list[str] = []
    marks: list[int] = []
    for match in re.finditer(r"\S+", untidy_text):
        if words:
            marks.append(NO_PIECE)  # of the space between two words
        words.append(match.group())
        marks += untidy_marks[match.start() : match.end()]
    text = " ".join(words)
    for pattern, replacement in clean:
        text, marks = replace_with_marks(pattern, replacement, text, marks)
    start = len(text) - len(text.lstrip())
    return text.strip(), marks[start : start + len(text.strip())]


def replace_with_marks(
    pattern: re.Pattern[str], replacement: str, text: str, marks: Sequence[int]
) -> MarkedText:
    """`pattern.sub` that carries the marks along.

    Marks of replaced text are those of `_marks_of_replacement`.
    """
    new_text = ""
    new_marks: list[int] = []
    end_of_last = 0
    for match in pattern.finditer(text):
        start, end = match.span()
        replaced_by = match.expand(replacement)
        new_text += text[end_of_last:start] + replaced_by
        new_marks += marks[end_of_last:start]
        mark_before = new_marks[-1] if new_marks else NO_PIECE
        new_marks += _marks_of_replacement(
            match.group(), replaced_by, marks[start:end], mark_before
        )
        end_of_last = end
    return new_text + text[end_of_last:], [*new_marks, *marks[end_of_last:]]


def _marks_of_replacement(
    old_text: str, new_text: str, marks: Sequence[int], last_mark: int
) -> Iterator[int]:
    """A mark for each character of `new_text`.

    It is the mark of the character of `old_text` that it replaces.

    An inserted character has the mark of the character before it.

    Args:
        old_text: What is replaced.
        new_text: What it is replaced by.
        marks: Of the characters of old_text: indices of pieces.
        last_mark: Of the character before old_text.
    """
    matcher = SequenceMatcher(None, old_text, new_text, autojunk=False)
    for operation, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        for offset in range(new_end - new_start):
            if operation != "insert":
                last_mark = marks[min(old_start + offset, old_end - 1)]
            yield last_mark
