"""Universal Dependencies (Nivre et al. 2020): the task `udpos`, and gold trees.

Both are from the same treebanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headlab.core import HeadlabError
from headlab.tasks.base import (
    DATA_VARIABLE,
    Example,
    Source,
    Split,
    Task,
    check_split,
    folder_or_hub,
    in_random_order,
    languages_in,
    subfolder,
)
from headlab.tasks.conllu_text import CONLLU, ConlluWord, conllu_sentences
from headlab.tasks.hub import HubData
from headlab.tasks.text_files import is_missing, read_text

# The task `udpos`: a part of speech for every word.

# All universal parts of speech in alphabetical order, https://universaldependencies.org/u/pos/.
LABELS = (
    "ADJ",
    "ADP",
    "ADV",
    "AUX",
    "CCONJ",
    "DET",
    "INTJ",
    "NOUN",
    "NUM",
    "PART",
    "PRON",
    "PROPN",
    "PUNCT",
    "SCONJ",
    "SYM",
    "VERB",
    "X",
)
# The languages of Held & Yang (2023), and the part of the hub's data set with each.
PARTS = {
    "en": "English",
    "ar": "Arabic",
    "bg": "Bulgarian",
    "de": "German",
    "el": "Greek",
    "es": "Spanish",
    "fr": "French",
    "hi": "Hindi",
    "ru": "Russian",
    "tr": "Turkish",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
LANGUAGES = tuple(PARTS)
# Not pinned; the data's hash shows a changed revision.
HUB = HubData("udpos", "google/xtreme", ("tokens", "pos_tags"))
FOLDER = "ud"
SUFFIX = "conllu"

TaggedSentence = tuple[tuple[str, int], ...]


def udpos_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: 17 labels, one per word; rows are not aligned across languages.

    Args:
        data: A folder with `ud/{language}.{train,dev,test}.conllu`, which define the languages;
            None means $HEADLAB_DATA; without such a folder, the data come from the hub.
    """
    languages = languages_in(data, FOLDER, SUFFIX) or LANGUAGES
    return Task(
        "udpos",
        LABELS,
        languages,
        False,
        partial(read, data),
        seed,
        present=partial(is_present, data),
    )


def is_present(data: Path | None, language: str, split: Split) -> bool:
    """Whether reading a split fetches nothing from the hub."""
    return subfolder(data, FOLDER) is not None or HUB.present(f"udpos.{PARTS[language]}", split)


def source(data: Path | None) -> Source:
    """Where the examples come from."""
    return folder_or_hub("udpos", data, FOLDER, HUB.repository)


def read(data: Path | None, language: str, split: Split, seed: int) -> Sequence[Example]:
    """The sentences of a split in random order.

    Empty for train if the data folder has no file for it.
    """
    folder = subfolder(data, FOLDER)
    if folder is None:
        return in_random_order(examples(hub_sentences(language, split), split), seed)
    path = folder / f"{language}.{split}.{SUFFIX}"
    if is_missing(path) and split == "train":
        return ()
    return in_random_order(examples(sentences(path), split), seed)


def examples(rows: Iterator[TaggedSentence], split: Split) -> list[Example]:
    """Tagged sentences as examples; each is its own group."""
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


def hub_sentences(language: str, split: Split) -> Iterator[TaggedSentence]:
    """Sentences of the hub's data set.

    Raises HeadlabError naming the row if words and labels do not match.
    """
    if language not in PARTS:
        raise HeadlabError(
            f"from {HUB.repository} on the hub, headlab reads {', '.join(PARTS)}, not {language}",
            code="hub.language_unknown",
        )
    split_rows = HUB.read(f"udpos.{PARTS[language]}", split)
    for row, (words, tags) in enumerate(zip(*split_rows.columns.values(), strict=True)):
        if not words or len(words) != len(tags):
            raise HeadlabError(
                f"{split_rows.place}, row {row}: {len(words)} words and {len(tags)} parts of "
                "speech",
                code="data.tags_mismatch",
            )
        for tag in tags:
            if tag not in LABELS:
                raise HeadlabError(
                    f"{split_rows.place}, row {row}, column pos_tags: {tag!r:.60} is none of "
                    f"{LABELS}",
                    code="data.tag_unknown",
                )
        yield tuple((word, LABELS.index(tag)) for word, tag in zip(words, tags, strict=True))


def sentences(path: Path) -> Iterator[TaggedSentence]:
    """Syntactic words of a CoNLL-U file, sentence by sentence.

    Each has the index of its part of speech in LABELS.

    Multiword tokens ("4-5", whose parts follow) and empty nodes ("8.1") are skipped.  Raises
    HeadlabError naming file, line and column.
    """
    for sentence in conllu_sentences(read_text(path), path):
        words = tuple(_tagged_word(word, path) for word in sentence.words(needs_tags=True))
        if words:
            yield words


def _tagged_word(word: ConlluWord, path: Path) -> tuple[str, int]:
    """A word and the index of its part of speech in LABELS.

    Raises HeadlabError if it has none of these.
    """
    tag = word.fields["UPOS"]
    if tag not in LABELS:
        raise HeadlabError(
            f"{path}, line {word.line}, column UPOS: {tag!r:.60} is none of the {len(LABELS)} "
            f"universal parts of speech ({', '.join(LABELS)})",
            code="treebank.tag_unknown",
        )
    # Two spaces in a form count as one, as in earlier versions: the data's hash depends on it.
    return re.sub(" {2,}", " ", word.fields["FORM"]), LABELS.index(tag)


# Gold trees, read from CoNLL-U files.

NUMBER = re.compile("[0-9]{1,6}")


@dataclass(frozen=True)
class Tree:
    """A sentence and its dependency tree.

    Attributes:
        governors: 0-based index of each word's governor, -1 for the root.
        relations: Of each word to its governor, the universal part only ("nsubj" for "nsubj:pass").
        line: That of its first word in the file, from 1.
    """

    id: str
    words: tuple[str, ...]
    governors: tuple[int, ...]
    relations: tuple[str, ...]
    line: int = 0


class _TreeRow(NamedTuple):
    """A line with a word."""

    line: int
    word: str
    governor: int
    relation: str


def treebank(data: Path | None, language: str, split: Split) -> tuple[Tree, ...]:
    """The trees of `ud/{language}.{split}.conllu` below the data folder; None means $HEADLAB_DATA.

    Raises HeadlabError if there is no such file, and as `read_trees` does.
    """
    check_split(split)
    folder = subfolder(data, FOLDER)
    name = f"{language}.{split}.{SUFFIX}"
    if folder is None or not (folder / name).is_file():
        present_languages = ", ".join(treebank_languages(data)) or "no language"
        raise HeadlabError(
            f"no treebank {FOLDER}/{name} in the data folder, which has {present_languages}; set "
            f"{DATA_VARIABLE} or give --data, or name a CoNLL-U file of your own with --conllu",
            code="treebank.missing",
        )
    return read_trees(folder / name)


def treebank_languages(data: Path | None, split: str | None = None) -> tuple[str, ...]:
    """Languages with a treebank below the data folder, English first; empty if there is no folder.

    Args:
        split: One that the treebank must have; None for any.
    """
    folder = subfolder(data, FOLDER)
    languages = languages_in(data, FOLDER, SUFFIX)
    if folder is None or split is None:
        return languages
    return tuple(
        language for language in languages if (folder / f"{language}.{split}.{SUFFIX}").is_file()
    )


def read_trees(path: Path) -> tuple[Tree, ...]:
    """Every tree of a CoNLL-U file, in file order.

    Multiword tokens ("4-5", whose parts follow) and empty nodes ("8.1") are skipped.  Raises
    HeadlabError naming file, line and column of a sentence that is not a tree: no root or two, a
    cycle, a governor that is not a word; and for a file without any tree.
    """
    trees = tuple(_trees(path))
    if not trees:
        raise HeadlabError(
            f"{path}, line 1: there is no tree in it; a CoNLL-U file has one line of "
            f"{len(CONLLU)} fields for each word",
            code="treebank.empty",
        )
    return trees


def _trees(path: Path) -> Iterator[Tree]:
    sentence_id = ""
    count = 0
    for sentence in conllu_sentences(read_text(path), path):
        # Comments alone may name the sentence that follows them.
        sentence_id = sentence.id or sentence_id
        if not sentence.first_row:
            continue
        count += 1
        rows = [_tree_row(word, path) for word in sentence.words()]
        yield _tree(rows, sentence_id or str(count), path, sentence.first_row)
        sentence_id = ""


def _tree_row(word: ConlluWord, path: Path) -> _TreeRow:
    """A word with its governor. Raises HeadlabError if it lacks this, a form or a relation."""
    line, fields = word
    head = fields["HEAD"]
    form = fields["FORM"]
    if not NUMBER.fullmatch(head):
        raise HeadlabError(
            f"{path}, line {line}, column HEAD: {head!r:.60} where the number of the governor "
            "belongs, 0 for the root; a treebank without trees cannot be used here",
            code="treebank.head_invalid",
        )
    relation = fields["DEPREL"].split(":")[0].strip()
    for column, is_absent in (("FORM", not form.strip()), ("DEPREL", relation in ("", "_"))):
        if is_absent:
            raise HeadlabError(
                f"{path}, line {line}, column {column}: {fields[column]!r:.60}, which is not a "
                "value",
                code="treebank.column_empty",
            )
    return _TreeRow(line, form, int(head) - 1, relation)


def _tree(rows: Sequence[_TreeRow], name: str, path: Path, first_line: int) -> Tree:
    """The words of a sentence as a tree. Raises HeadlabError if they do not form one."""
    if not rows:
        raise HeadlabError(
            f"{path}, line {first_line}, column ID: a sentence without words",
            code="treebank.sentence_empty",
        )
    for row in rows:
        if row.governor >= len(rows):
            raise HeadlabError(
                f"{path}, line {row.line}, column HEAD: {row.governor + 1}, but the sentence has "
                f"{len(rows)} words",
                code="treebank.head_out_of_range",
            )
    roots = [row for row in rows if row.governor < 0]
    if not roots:
        raise HeadlabError(
            f"{path}, line {rows[0].line}, column HEAD: this sentence has no root; one word must "
            "have HEAD 0",
            code="treebank.root_missing",
        )
    if len(roots) > 1:
        raise HeadlabError(
            f"{path}, line {roots[1].line}, column HEAD: a second root; line {roots[0].line} "
            "already is the root",
            code="treebank.root_twice",
        )
    governors = tuple(row.governor for row in rows)
    detached = _first_detached_word(governors)
    if detached is not None:
        raise HeadlabError(
            f"{path}, line {rows[detached].line}, column HEAD: a cycle: this word's governors do "
            "not lead to the root",
            code="treebank.cycle",
        )
    return Tree(
        name, tuple(r.word for r in rows), governors, tuple(r.relation for r in rows), rows[0].line
    )


def _first_detached_word(governors: Sequence[int]) -> int | None:
    """The first word whose chain of governors does not reach the root; None if there is none."""
    reaches_root = [governor < 0 for governor in governors]
    for start in range(len(governors)):
        word = start
        chain: list[int] = []
        while not reaches_root[word]:
            if len(chain) > len(governors):
                return start
            chain.append(word)
            word = governors[word]
        for passed in chain:
            reaches_root[passed] = True
    return None
