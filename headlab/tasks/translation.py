"""The task `translation`: sentences with their translations.

There is one tab-separated file per language pair and split.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from headlab.core import HeadlabError
from headlab.tasks.base import (
    DATA_VARIABLE,
    Example,
    Source,
    Split,
    Task,
    in_random_order,
    languages_in,
    subfolder,
)
from headlab.tasks.record_files import read_tsv_columns
from headlab.tasks.text_files import is_missing

NAME = "translation"
FOLDER = "mt"
SUFFIX = "tsv"
COLUMNS = ("source", "target")
# Pairs to list if there is no data folder: reading a sentence then raises the error that names the
# missing file.
PAIRS = ("en-de", "en-fr")
PAIR = re.compile(r"[A-Za-z][A-Za-z0-9_]*-[A-Za-z][A-Za-z0-9_-]*")
PLACE = re.compile(r"[A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3}")  # a country, a script, or a UN M49 region


def translation_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: a language is a pair, like en-de, source first.

    There are no labels, since texts are generated.

    Args:
        data: A folder with `mt/{pair}.{train,dev,test}.tsv`, which define the pairs; None means
            $HEADLAB_DATA. Rows are not aligned across pairs, and each row is its own group.
    """
    pairs = tuple(pair for pair in languages_in(data, FOLDER, SUFFIX) if PAIR.fullmatch(pair))
    return Task(NAME, (), pairs or PAIRS, False, partial(read, data), seed)


def source(data: Path | None) -> Source:
    """Where the examples come from. Raises HeadlabError if the data folder is not a folder."""
    folder = subfolder(data, FOLDER)
    if folder is None:
        return Source("a folder of your own", False, _advice())
    return Source(str(folder))


def read(data: Path | None, language: str, split: Split, seed: int) -> Sequence[Example]:
    """The sentence pairs of a split in random order; empty for train if it has no file.

    Raises HeadlabError for a pair that could be read as one language and, naming file, line and
    column, for an empty side.
    """
    _check_pair(language)
    folder = subfolder(data, FOLDER)
    if folder is None:
        raise HeadlabError(_advice(), code="data.folder_missing")
    path = folder / f"{language}.{split}.{SUFFIX}"
    if split == "train" and is_missing(path):
        return ()
    return in_random_order(examples(path, split), seed)


def examples(path: Path, split: Split) -> list[Example]:
    """The rows of a file as examples, in the file's order.

    Raises HeadlabError naming file, line and column.
    """
    sentence_pairs = []
    for row, sides in enumerate(read_tsv_columns(path, COLUMNS)):
        for column, text in zip(COLUMNS, sides, strict=True):
            if not _visible(text):
                raise HeadlabError(
                    f"{path}, line {row + 2}, column {column}: it is empty; give a text, or drop "
                    "the row",
                    code="data.text_empty",
                )
        name = f"{split}-{row}"
        sentence_pairs.append(Example(name, sides[0], group=name, target=sides[1]))
    return sentence_pairs


def _visible(text: str) -> bool:
    """Whether a text has a letter, digit, symbol or punctuation mark.

    Spaces, controls and lone accents are none.
    """
    return any(unicodedata.category(character)[0] in "LNPS" for character in text)


def _check_pair(language: str) -> None:
    source_language, target_language = languages_of_pair(language)
    if source_language != target_language:
        return
    lower = language.lower()
    advice = "name two languages, like en-de"
    if len(set(languages_of_pair(lower))) > 1:
        advice = f"write {lower}"
    raise HeadlabError(
        f"the pair {language} could be read as one language, {source_language}; {advice}, in the "
        "names of its files too",
        code="translation.pair_invalid",
    )


def languages_of_pair(language: str) -> tuple[str, str]:
    """('en', 'de') for the pair en-de.

    A single language, like zh or zh-CN, stands twice.

    A country (CN), script (Hans) or region code belongs to the language before it.
    """
    parts = language.split("-")
    source_parts = 1
    while parts[0].islower() and source_parts < len(parts) and PLACE.fullmatch(parts[source_parts]):
        source_parts += 1
    source = "-".join(parts[:source_parts])
    return source, "-".join(parts[source_parts:]) or source


def _advice() -> str:
    return (
        f"no folder was found with the data of task {NAME}: set {DATA_VARIABLE} (or give --data) "
        f"to one that holds {FOLDER}/en-de.dev.{SUFFIX} and the like, with the columns "
        f"{' and '.join(COLUMNS)}"
    )
