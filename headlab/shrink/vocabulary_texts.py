"""Texts that a vocabulary is cut by, and what texts that were held out lose by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headlab.core import HeadlabError, do_nothing, is_folder
from headlab.hooks import Model
from headlab.shrink.pieces import rows_of
from headlab.shrink.vocabulary import LanguagePieces, pieces_of_languages
from headlab.shrink.vocabulary_cut import (
    Losses,
    SmallerVocabulary,
    VocabularyCut,
    require_fewer_pieces,
)
from headlab.tasks import Example, Split, Task
from headlab.tasks.base import in_random_order
from headlab.tasks.text_files import is_blank, read_lines
from headlab.tasks.translation import languages_of_pair

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KEPT_SPLITS: tuple[Split, ...] = ("train", "dev")
"""Splits of a task whose pieces stay; test is held out."""
HELD_OUT_SPLIT: Split = "test"
HELD_OUT_INTERVAL = 10
"""Of a file of texts in a language that the task has not, each tenth line is held out."""


@dataclass(frozen=True)
class TextsBySide:
    """Texts of a language, or of a pair of languages.

    Attributes:
        sources: That a model reads.
        targets: That it writes, like translations.
    """

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources) + len(self.targets)

    def __add__(self, other: TextsBySide) -> TextsBySide:
        return TextsBySide(self.sources + other.sources, self.targets + other.targets)

    def rows(self, tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
        """Token ids of all texts, without those of special tokens; sources first."""
        return [
            *rows_of(tokenizer, self.sources, "source"),
            *rows_of(tokenizer, self.targets, "target"),
        ]


@dataclass(frozen=True)
class CutTexts:
    """Texts by language or pair that a vocabulary is cut by; all have some.

    Attributes:
        kept: Whose pieces all stay.
        held_out: On which is counted what is lost.
        kept_once_counted: Held-out texts whose pieces are added once that is counted.
        words: Words that models are given one by one, whose pieces stay too.
    """

    kept: Mapping[str, TextsBySide]
    held_out: Mapping[str, TextsBySide]
    kept_once_counted: Mapping[str, TextsBySide]
    words: Sequence[str]


def collect_texts(task: Task, languages: Sequence[str], folder: Path | None) -> CutTexts:
    """The texts of a task and of a folder in some languages.

    Test examples of the task are held out. In a language that the task has no test examples of,
    each tenth line of the folder's file is.

    Args:
        task: It need not have all languages.
        languages: Codes, or pairs like en-de.
        folder: With a text file for each language, like de.txt, one text a line; None for none. In
            a pair en-de, sources are those of en.txt, and targets those of de.txt.

    Raises:
        HeadlabError: The folder is none, a file cannot be read, or there are no texts in a
            language.
    """
    if folder is not None and not is_folder(folder):
        raise HeadlabError(
            f"--texts is {folder}, which is not a folder; name one with a text file for each "
            f"language, like {languages_of_pair(languages[0])[0]}.txt",
            code="vocabulary.texts_not_a_folder",
        )
    kept: dict[str, TextsBySide] = {}
    held_out: dict[str, TextsBySide] = {}
    kept_once_counted: dict[str, TextsBySide] = {}
    words: list[str] = []
    for language in languages:
        lines = _texts_in(folder, language)
        examples = _kept_examples(task, language)
        words += _words_of(examples)
        kept[language] = texts_of(examples, task)
        held_out[language] = texts_of(held_out_examples(task, language), task)
        kept_once_counted[language] = TextsBySide()
        if not held_out[language]:
            kept_once_counted[language] = _each_tenth(lines)
            held_out[language] = kept_once_counted[language]
            lines = _all_but_each_tenth(lines)
            _require_lines(held_out[language], language, task, folder)
        kept[language] += lines
    return CutTexts(kept, held_out, kept_once_counted, words)


def _require_lines(lines: TextsBySide, language: str, task: Task, folder: Path | None) -> None:
    """Raise HeadlabError unless a folder has texts in a language, or in both of a pair.

    Args:
        lines: That were held out of it.
        language: A code, or a pair.
        task: That has no test examples in it.
        folder: None for none.
    """
    source, target = languages_of_pair(language)
    lines_by_language = {source: lines.sources}
    if source != target:
        lines_by_language[target] = lines.targets
    missing_language = next((name for name, texts in lines_by_language.items() if not texts), None)
    if missing_language is not None:
        raise HeadlabError(
            f"there are no texts in {missing_language} on which to count what a smaller vocabulary "
            f"loses: task {task.name} has none, {_none_in(folder, missing_language)}; put some into "
            f"{missing_language}.txt, one a line, and name its folder with --texts",
            code="vocabulary.texts_missing",
        )


def _each_tenth(texts: TextsBySide) -> TextsBySide:
    """The texts that are held out of a folder's."""
    return TextsBySide(texts.sources[::HELD_OUT_INTERVAL], texts.targets[::HELD_OUT_INTERVAL])


def _all_but_each_tenth(texts: TextsBySide) -> TextsBySide:
    """The texts that are not held out of a folder's."""
    sources, targets = list(texts.sources), list(texts.targets)
    del sources[::HELD_OUT_INTERVAL], targets[::HELD_OUT_INTERVAL]
    return TextsBySide(sources, targets)


def _texts_in(folder: Path | None, language: str) -> TextsBySide:
    """The texts of a folder in a language, or in both of a pair; none without a folder."""
    if folder is None:
        return TextsBySide()
    source, target = languages_of_pair(language)
    target_lines = [] if source == target else _lines_in(folder / f"{target}.txt")
    return TextsBySide(_lines_in(folder / f"{source}.txt"), target_lines)


def _lines_in(path: Path) -> list[str]:
    """The lines of a text file that are not blank; none if there is no such file."""
    if not path.exists():
        return []
    return [line for line in read_lines(path) if not is_blank(line)]


def _none_in(folder: Path | None, language: str) -> str:
    """That the folder of texts has none in a language, as part of a sentence."""
    if folder is None:
        return "and --texts names no folder"
    return f"and {folder} has no {language}.txt with texts"


def _examples(task: Task, language: str, split: Split) -> Sequence[Example]:
    """A task's examples; none of train where reading them would fetch something."""
    if language not in task.languages:
        return ()
    if split == "train" and not task.present(language, split):
        return ()
    return task.read(language, split, task.seed)


def _kept_examples(task: Task, language: str) -> list[Example]:
    """A task's examples whose pieces stay; none in a language that it has not."""
    return [example for split in KEPT_SPLITS for example in _examples(task, language, split)]


def held_out_examples(task: Task, language: str, size: int | None = None) -> Sequence[Example]:
    """The first test examples of a task in a language; none where it has none.

    Args:
        task: It need not have the language.
        language: A code.
        size: How many, at most; None for all.
    """
    try:
        return _examples(task, language, HELD_OUT_SPLIT)[:size]
    except HeadlabError as error:
        if error.code == "data.unreadable":  # a task of one's own need not have a file for test
            return ()
        raise


def _words_of(examples: Sequence[Example]) -> list[str]:
    """The words that a model is given one by one, each also behind a space."""
    words = dict.fromkeys(word for example in examples for word in example.words)
    return [form for word in words for form in (word, f" {word}")]


def texts_of(examples: Sequence[Example], task: Task) -> TextsBySide:
    """All texts of some examples, as a model is given them.

    Args:
        examples: Of the task.
        task: Says whether targets continue the text, or are translations of it.
    """
    sources: list[str] = []
    targets: list[str] = []
    for example in examples:
        target = example.target or ""
        if task.likelihood:
            sources.append(example.text + target)
        else:
            sources.append(example.text)
            targets.append(target)
        sources += [example.pair or "", " ".join(example.words)]
        sources += [example.text + choice for choice in example.choices]
        targets += example.choices  # an encoder-decoder is given them alone
    return TextsBySide(list(filter(None, sources)), list(filter(None, targets)))


def sentences_of(texts: CutTexts, size: int) -> Task:
    """The texts whose pieces stay as a task without labels, to compare models on.

    Args:
        texts: By language; of a pair the sources are taken.
        size: How many of each language, at most; they are drawn at random.
    """
    kept_texts = {
        language: (texts.kept[language] + texts.kept_once_counted[language]).sources
        for language in texts.kept
    }

    def read(language: str, _split: Split, seed: int) -> tuple[Example, ...]:
        examples = [
            Example(f"{language}-{number}", text, group=str(number))
            for number, text in enumerate(kept_texts[language])
        ]
        return in_random_order(examples, seed)[:size]

    languages = tuple(language for language in kept_texts if kept_texts[language])
    return Task("texts", (), languages, aligned=False, read=read)


def cut_by_texts(
    model: Model,
    languages: Sequence[str],
    texts: CutTexts,
    tick: Callable[[], None] = do_nothing,
) -> SmallerVocabulary:
    """A model's vocabulary cut to some languages, and what is lost by it.

    Args:
        model: The original.
        languages: Codes.
        texts: In these languages.
        tick: Called now and then; may raise to stop.

    Raises:
        HeadlabError: The tokenizer is of an unknown kind, a package is missing, nothing is known of
            a language, texts are missing that the model would write, or texts whose pieces all
            stay would be split otherwise.
    """
    language_pieces = pieces_of_languages(model, languages, tick)
    _require_both_sides(model, language_pieces, texts)
    kept_rows = rows_of(model.tokenizer, texts.words)
    for kept in texts.kept.values():
        tick()
        kept_rows += kept.rows(model.tokenizer)
    tick()
    cut = language_pieces.cut_with(kept_rows)
    tokenizer = language_pieces.pieces.cut_tokenizer(cut)
    held_out = {
        language: losses(model, cut, tokenizer, texts.held_out[language]) for language in languages
    }
    if any(texts.kept_once_counted.values()):
        for kept in texts.kept_once_counted.values():
            kept_rows += kept.rows(model.tokenizer)
        cut = language_pieces.cut_with(kept_rows)
        tokenizer = language_pieces.pieces.cut_tokenizer(cut)
    for language in languages:  # raises if one is split otherwise
        tick()
        losses(model, cut, tokenizer, texts.kept[language] + texts.kept_once_counted[language])
    return SmallerVocabulary(cut, tokenizer, held_out)


def _require_both_sides(model: Model, language_pieces: LanguagePieces, texts: CutTexts) -> None:
    """Refuse to cut both sides of a vocabulary where texts of one side alone are held out.

    Raises:
        HeadlabError: The sides differ, and in a language nothing is held out on one of them.
    """
    if "target" not in language_pieces.pieces.sides:
        return
    for language, held_out in texts.held_out.items():
        if not (held_out.sources and held_out.targets):
            raise HeadlabError(
                f"{model.name} splits what it reads otherwise than what it writes, and in "
                f"{language} there are texts of one kind alone; name a pair of languages, like "
                "--languages en-de, and its task, like --task translation",
                code="vocabulary.targets_missing",
            )


def cut_by_task(
    model: Model, task: Task, languages: Sequence[str], tick: Callable[[], None] = do_nothing
) -> VocabularyCut:
    """The cut that `cut_by_texts` makes of a task's texts alone, without what is lost by it.

    Args:
        model: The original.
        task: It need not have all languages.
        languages: Codes.
        tick: Called now and then; may raise to stop.

    Raises:
        HeadlabError: The tokenizer is of an unknown kind, a package is missing, nothing is known of
            a language, or no piece goes.
    """
    kept_rows: list[list[int]] = []
    for language in languages:
        tick()
        examples = _kept_examples(task, language)
        kept_rows += texts_of(examples, task).rows(model.tokenizer)
        kept_rows += rows_of(model.tokenizer, _words_of(examples))
    cut = pieces_of_languages(model, languages, tick).cut_with(kept_rows)
    require_fewer_pieces(cut)
    return cut


def losses(
    model: Model, cut: VocabularyCut, tokenizer: PreTrainedTokenizerBase, texts: TextsBySide
) -> Losses:
    """What texts lose by a cut.

    Args:
        model: The original.
        cut: Which pieces stay.
        tokenizer: Of these.
        texts: To split by the original tokenizer and by the smaller one.

    Raises:
        HeadlabError: A text whose pieces all stay is split otherwise.
    """
    old_rows = texts.rows(model.tokenizer)
    new_rows = texts.rows(tokenizer)
    all_texts = [*texts.sources, *texts.targets]
    piece_count = lost_pieces = changed_texts = 0
    for text, old_row, new_row in zip(all_texts, old_rows, new_rows, strict=True):
        expected_row = cut.new_ids[np.array(old_row, dtype=np.int64)].tolist()
        lost_of_text = expected_row.count(-1)
        is_changed = expected_row != new_row
        if is_changed and not lost_of_text:
            raise HeadlabError(
                f"the smaller vocabulary of {model.name} splits the text {text!r:.80} otherwise, "
                "although all its pieces stay, so nothing was written; please report this",
                code="vocabulary.segmentation_differs",
            )
        piece_count += len(old_row)
        lost_pieces += lost_of_text
        changed_texts += is_changed
    return {
        "pieces_lost": lost_pieces / max(piece_count, 1),
        "texts_changed": changed_texts / max(len(texts), 1),
        "texts": len(texts),
    }
