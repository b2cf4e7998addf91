"""The task `translation`: sentences with their translations, a language pair each, from tab-separated files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.tasks.base import VARIABLE, Example, Source, Split, Task, in_order, languages_in, read_table, subfolder

NAME, FOLDER, SUFFIX = "translation", "mt", "tsv"
COLUMNS = ("source", "target")
# What is named where there is no folder to look into: whoever asks for a sentence is told which file is missing.
PAIRS = ("en-de", "en-fr")
PAIR = re.compile(r"[A-Za-z][A-Za-z0-9_]*-[A-Za-z][A-Za-z0-9_-]*")
PLACE = re.compile(r"[A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3}")  # a country, a script, or a part of the world


def translation_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: a language is a pair, like en-de, source first; there are no labels, as texts are generated.

    data: a folder with `mt/{pair}.{train,dev,test}.tsv`, whose pairs are the task's; None takes $HEADLAB_DATA.
    Rows are not aligned across pairs, and each is a group of its own.
    """
    found = tuple(pair for pair in languages_in(data, FOLDER, SUFFIX) if PAIR.fullmatch(pair))
    return Task(NAME, (), found or PAIRS, False, partial(read, data), seed)


def source(data: Path | None) -> Source:
    """Where its examples come from. Raises HeadlabError if the data folder is none."""
    found = subfolder(data, FOLDER)
    return Source("a folder of your own", False, _advice()) if found is None else Source(str(found))


def read(data: Path | None, language: str, split: Split, seed: int) -> Sequence[Example]:
    """The pairs of a split in a random order; a split without a file is empty if it is train.

    Raises HeadlabError for a name of one language; and, naming file, line and column, for a side that is empty.
    """
    _check_pair(language)
    folder = subfolder(data, FOLDER)
    if folder is None:
        raise HeadlabError(_advice(), code="data.folder_missing")
    path = folder / f"{language}.{split}.{SUFFIX}"
    if split == "train" and not path.is_file():
        return ()
    return in_order(examples(path, split), seed)


def examples(path: Path, split: Split) -> list[Example]:
    """The rows of a file as examples, in the file's order. Raises HeadlabError naming file, line and column."""
    found = []
    for row, sides in enumerate(read_table(path, COLUMNS)):
        for column, text in zip(COLUMNS, sides, strict=True):
            if not _visible(text):
                raise HeadlabError(
                    f"{path}, line {row + 2}, column {column}: it is empty; give a text, or drop the row",
                    code="data.text_empty",
                )
        name = f"{split}-{row}"
        found.append(Example(name, sides[0], group=name, target=sides[1]))
    return found


def _visible(text: str) -> bool:
    """Whether there is a letter, a digit or a sign: spaces of no width and lone accents are nothing to translate."""
    return any(unicodedata.category(character)[0] in "LNPS" for character in text)


def _check_pair(language: str) -> None:
    one, other = sides(language)
    if one != other:
        return
    lower = language.lower()
    do = f"write {lower}" if len(set(sides(lower))) > 1 else "name two languages, like en-de"
    raise HeadlabError(
        f"the pair {language} could be read as one language, {one}; {do}, in the names of its files too",
        code="translation.pair_invalid",
    )


def sides(language: str) -> tuple[str, str]:
    """('en', 'de') of the pair en-de; of a language that is not a pair, like zh or zh-CN, itself twice.

    What follows a language as a country (CN) or a script (Hans) does belongs to it.
    """
    parts = language.split("-")
    own = 1
    while parts[0].islower() and own < len(parts) and PLACE.fullmatch(parts[own]):
        own += 1
    source = "-".join(parts[:own])
    return source, "-".join(parts[own:]) or source


def _advice() -> str:
    return (
        f"no folder was found with the data of task {NAME}: set {VARIABLE} (or give --data) to one that holds "
        f"{FOLDER}/en-de.dev.{SUFFIX} and the like, with the columns {' and '.join(COLUMNS)}"
    )
