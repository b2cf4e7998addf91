"""The task `udpos`: a part of speech for every word, from Universal Dependencies treebanks (Nivre et al. 2020)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.tasks.base import Example, Split, Task
from headlab.tasks.folder import languages_in, read_lines, subfolder
from headlab.tasks.hub import HubData
from headlab.tasks.order import in_order
from headlab.tasks.source import Source, folder_or_hub

# The universal parts of speech, https://universaldependencies.org/u/pos/: all there are, in the order of their names.
LABELS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
)  # fmt: skip
# The paper's, Held & Yang (2023), and the part of the hub's data set that each is.
PARTS = {
    "en": "English", "ar": "Arabic", "bg": "Bulgarian", "de": "German", "el": "Greek", "es": "Spanish", "fr": "French",
    "hi": "Hindi", "ru": "Russian", "tr": "Turkish", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
LANGUAGES = tuple(PARTS)
HUB = HubData("udpos", "google/xtreme", ("tokens", "pos_tags"))  # the data hash of every result tells another revision
FOLDER, SUFFIX = "ud", "conllu"
COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
READ = ("id", "form", "lemma", "upos")  # the rest of a line is not looked at: some treebanks leave the trees out

Tagged = tuple[tuple[str, int], ...]


def udpos_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: 17 labels, one a word; rows are not aligned across languages.

    data: a folder with `ud/{language}.{train,dev,test}.conllu`, whose languages are the task's; None
    takes $HEADLAB_DATA; where there is no such folder, the hub is asked.
    """
    languages = languages_in(data, FOLDER, SUFFIX) or LANGUAGES
    return Task("udpos", LABELS, languages, False, partial(read, data), seed)


def source(data: Path | None) -> Source:
    """Where its examples come from."""
    return folder_or_hub("udpos", data, FOLDER, HUB.repository)


def read(data: Path | None, language: str, split: Split, seed: int) -> Sequence[Example]:
    """The sentences of a split in a random order; a split without a file is empty if it is train."""
    folder = subfolder(data, FOLDER)
    if folder is None:
        return in_order(examples(hub_sentences(language, split), split), seed)
    path = folder / f"{language}.{split}.{SUFFIX}"
    if not path.is_file() and split == "train":
        return ()
    return in_order(examples(sentences(path), split), seed)


def examples(rows: Iterator[Tagged], split: Split) -> list[Example]:
    """Tagged sentences as examples; each is a group of its own."""
    return [
        Example(
            f"{split}-{row}",
            " ".join(word for word, _ in sentence),
            group=f"{split}-{row}",
            words=tuple(word for word, _ in sentence),
            labels=tuple(label for _, label in sentence),
        )
        for row, sentence in enumerate(rows)
    ]


def hub_sentences(language: str, split: Split) -> Iterator[Tagged]:
    """Sentences of the hub's data set. Raises HeadlabError, naming the row, where words and labels do not fit."""
    if language not in PARTS:
        raise HeadlabError(
            f"{HUB.repository} on the hub is read for {', '.join(PARTS)}, not for {language}",
            code="hub.language_unknown",
        )
    found = HUB.read(f"udpos.{PARTS[language]}", split)
    for row, (words, tags) in enumerate(zip(*found.columns.values(), strict=True)):
        if not words or len(words) != len(tags):
            raise HeadlabError(
                f"{found.place}, row {row}: {len(words)} words and {len(tags)} parts of speech",
                code="data.tags_mismatch",
            )
        for tag in tags:
            if tag not in LABELS:
                raise HeadlabError(
                    f"{found.place}, row {row}, column pos_tags: {tag!r:.60} is none of {LABELS}",
                    code="data.tag_unknown",
                )
        yield tuple((word, LABELS.index(tag)) for word, tag in zip(words, tags, strict=True))


def sentences(path: Path) -> Iterator[Tagged]:
    """Syntactic words of a CoNLL-U file, sentence by sentence, each with the place of its part of speech in LABELS.

    Merged tokens ("4-5", whose parts follow) and empty nodes ("8.1") are no words.  Raises HeadlabError
    that names file, line and column.
    """
    found: list[tuple[str, int]] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if not line:
            if found:
                yield tuple(found)
            found = []
        elif not line.startswith("#"):
            found += _word(line, path, number, len(found) + 1)


def _word(line: str, path: Path, number: int, following: int) -> list[tuple[str, int]]:
    """The word of a line and its label; nothing if the line holds no word of its own."""
    from conllu.exceptions import ParseException  # wanted by this task only
    from conllu.parser import parse_line

    fields = line.split("\t")
    if len(fields) != len(COLUMNS):
        raise HeadlabError(
            f"{path}, line {number}: {len(fields)} fields separated by tabs where CoNLL-U has {len(COLUMNS)} "
            f"({', '.join(COLUMNS)}): {line!r:.60}",
            code="treebank.fields_mismatch",
        )
    for column, field in zip(COLUMNS[:4], fields, strict=False):
        if not field.strip():
            raise HeadlabError(
                f"{path}, line {number}, column {column}: empty; CoNLL-U has _ for what is not given",
                code="treebank.field_empty",
            )
    try:
        # a form may hold spaces, but two in a row would end the field for conllu
        token = parse_line(re.sub(" {2,}", " ", line), READ)
    except (ParseException, ValueError) as error:  # ValueError: more digits than Python reads
        raise HeadlabError(
            f"{path}, line {number}, column ID: {fields[0]!r:.60} is not a CoNLL-U id", code="treebank.id_invalid"
        ) from error
    if isinstance(token["id"], tuple):
        return []
    if token["id"] != following:
        raise HeadlabError(
            f"{path}, line {number}, column ID: {fields[0]!r:.60} where word {following} of the sentence belongs; "
            "words are numbered from 1, and an empty line ends a sentence",
            code="treebank.id_out_of_order",
        )
    if token["upos"] not in LABELS:
        raise HeadlabError(
            f"{path}, line {number}, column UPOS: {token['upos']!r:.60} is none of the {len(LABELS)} universal parts "
            f"of speech ({', '.join(LABELS)})",
            code="treebank.tag_unknown",
        )
    return [(token["form"], LABELS.index(token["upos"]))]
