"""The task `lm`: texts of each language cut into windows.

A language model predicts every token of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from headlab.core import HeadlabError
from headlab.tasks.base import (
    DATA_VARIABLE,
    SPLITS,
    Example,
    Source,
    Split,
    Task,
    languages_in,
    subfolder,
)
from headlab.tasks.text_files import is_missing, read_lines

NAME = "lm"
FOLDER = "lm"
SUFFIX = "txt"
WIKITEXT = "wikitext2"  # English, used where there is no folder `lm`; its files are named by its own splits
WIKITEXT_SPLITS = {"train": "train", "dev": "valid", "test": "test"}
WINDOW = 240  # characters: about 60 tokens of English
TITLE = re.compile(r" ?= [^=].* = ?")  # of an article of WikiText


def lm_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: an example is a window of a text, a group the document it is from.

    Every token is an answer.

    Args:
        data: A folder with `lm/{language}.{train,dev,test}.txt`, or `wikitext2/`; None means
            $HEADLAB_DATA. A document ends at an empty line, an article of WikiText at the next
            one's title.
    """
    languages = languages_in(data, FOLDER, SUFFIX) or ("en",)
    return Task(NAME, (), languages, False, partial(read, data), seed, likelihood="tokens")


def source(data: Path | None) -> Source:
    """Where the texts come from. Raises HeadlabError if the data folder is not a folder."""
    folder = subfolder(data, FOLDER) or subfolder(data, WIKITEXT)
    if folder is None:
        return Source("a folder of your own", False, _advice())
    return Source(str(folder))


def read(data: Path | None, language: str, split: Split, seed: int) -> Sequence[Example]:
    """The windows of a split in random order, so that any prefix is a random subset.

    Empty for train without a file.

    Raises HeadlabError naming the file of a text that is shorter than a window.
    """
    path = _file(data, language, split)
    if split == "train" and is_missing(path):
        return ()
    windows = list(_windows(path, split, articles=path.parent.name == WIKITEXT))
    if not windows:
        raise HeadlabError(
            f"{path}: no document has {WINDOW} characters, the length of a window; give longer "
            "texts",
            code="data.text_too_short",
        )
    order = np.random.default_rng([seed, SPLITS.index(split), 17]).permutation(len(windows))
    return tuple(windows[window] for window in order.tolist())


def _file(data: Path | None, language: str, split: Split) -> Path:
    texts_folder = subfolder(data, FOLDER)
    if texts_folder is not None:
        return texts_folder / f"{language}.{split}.{SUFFIX}"
    wikitext_folder = subfolder(data, WIKITEXT)
    if wikitext_folder is None:
        raise HeadlabError(_advice(), code="data.folder_missing")
    return wikitext_folder / f"{WIKITEXT_SPLITS[split]}.{SUFFIX}"


def _windows(path: Path, split: Split, *, articles: bool) -> Iterator[Example]:
    """The windows of all documents of a file, in their order.

    The rest of a document, behind its last whole window, is left out.

    Args:
        articles: A document ends at the next one's title, not at an empty line.
    """
    lines = read_lines(path)
    document: list[str] = []
    first_line = 0
    for number, text in enumerate([*lines, ""], start=1):
        if articles:
            ends_document = number > len(lines) or TITLE.fullmatch(text) is not None
        else:
            ends_document = not text.strip()
        if ends_document:
            place = f"{path}, in the document from line {first_line}"
            yield from _cut(" ".join(document), f"{split}-{first_line}", place)
            document = []
            first_line = 0
        if text.strip():
            document.append(text.strip())
            first_line = first_line or number


def _cut(document: str, name: str, place: str) -> Iterator[Example]:
    """The windows of a document: WINDOW characters each, and the rest of the last word.

    A text without spaces is cut after WINDOW characters.

    Args:
        document: Its text on one line.
        name: The group of the windows, with which their ids begin.
        place: The document's file and line, in errors.
    """
    start = 0
    number = 0
    while len(document) - start >= WINDOW:
        end = document.find(" ", start + WINDOW)
        if end < 0:
            end = len(document)
        if end - start >= 2 * WINDOW:
            end = start + WINDOW
        yield Example(f"{name}-{number}", "", group=name, target=document[start:end], place=place)
        start = end
        if document[end : end + 1] == " ":
            start += 1
        number += 1


def _advice() -> str:
    return (
        f"no folder was found with the texts of task {NAME}: set {DATA_VARIABLE} (or give --data) "
        f"to one that holds {FOLDER}/en.dev.{SUFFIX} and the like, or {WIKITEXT}/"
    )
