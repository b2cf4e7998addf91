"""The one reader of CoNLL-U, for tags, gold trees and users' tasks; errors name line and column.

The package conllu reads the same words from treebanks in the tests. It cannot replace this reader:
it keeps no line numbers, so no error could name one, and it reads a line with too few fields, or
with two spaces in a field, as something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headlab.core import HeadlabError
from headlab.tasks.text_files import FileName, is_blank, paragraphs

CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
MUST_BE_WRITTEN = CONLLU[:4]
"""Columns of which a tagged sentence may leave none blank."""
WORD = re.compile("[1-9][0-9]{0,5}")
"""The id of a word."""
NO_WORD = re.compile("[0-9]{1,6}[-.][0-9]{1,6}")
"""The id of a multiword token ("4-5") or of an empty node ("8.1")."""
SENTENCE_ID = re.compile(r"#\s*sent_id\s*=\s*(\S.*?)\s*$")
ID = re.compile(
    r"_|0|[1-9][0-9]*"
    r"|(?P<first>[1-9][0-9]*)-(?P<last>[1-9][0-9]*)"
    r"|[0-9]+\.[1-9][0-9]*"
)
"""An id as the format defines it, or none at all."""
MAX_DIGITS = 4300
"""Digits of an id: as many as Python converts to a number."""


class ConlluWord(NamedTuple):
    """A syntactic word.

    Attributes:
        line: Its number in the file, from 1.
        fields: By column, as they are written.
    """

    line: int
    fields: dict[str, str]


class ConlluSentence(NamedTuple):
    """The lines of a sentence.

    A line is checked when its word is asked for, so errors come in the file's order.

    Attributes:
        where: The file's name, in errors.
        lines: With their numbers from 1, comments included.
    """

    where: FileName
    lines: Sequence[tuple[int, str]]

    @property
    def line(self) -> int:
        """The number of its first line, which may be a comment."""
        return self.lines[0][0]

    @property
    def first_row(self) -> int:
        """The number of its first line that is no comment; 0 if there is none."""
        return next((number for number, line in self.lines if not line.startswith("#")), 0)

    @property
    def id(self) -> str:
        """Its id, which a comment before its words gives; empty if none does."""
        sentence_id = ""
        for _, line in self.lines:
            if not line.startswith("#"):
                break
            match = SENTENCE_ID.match(line)
            if match is not None:
                sentence_id = match.group(1)
        return sentence_id

    def words(self, *, needs_tags: bool = False) -> Iterator[ConlluWord]:
        """Its syntactic words.

        Multiword tokens ("4-5", whose parts follow) and empty nodes ("8.1") are skipped.

        Args:
            needs_tags: Whether all ids must be those of the format, and no field of
                `MUST_BE_WRITTEN` be blank.

        Raises:
            HeadlabError: A line has another number of fields, or words are not numbered from 1.
        """
        next_id = 1
        for number, line in self.lines:
            if line.startswith("#"):
                continue
            fields = _fields(line, self.where, number)
            if needs_tags:
                _require_written(fields, self.where, number)
            word_id = fields["ID"]
            if word_id == str(next_id):
                yield ConlluWord(number, fields)
                next_id += 1
            elif not NO_WORD.fullmatch(word_id):
                raise HeadlabError(
                    f"{self.where}, line {number}, column ID: {word_id!r:.60} where word {next_id} "
                    "of the sentence belongs; words are numbered from 1, and an empty line ends a "
                    "sentence",
                    code="treebank.id_out_of_order",
                )


def conllu_sentences(text: str, file_name: FileName) -> Iterator[ConlluSentence]:
    """The sentences of a text; a blank line ends a sentence, and one may be of comments alone.

    Args:
        text: Of the file, its line ends unchanged.
        file_name: The file's name, in errors.
    """
    for lines in paragraphs(text):
        yield ConlluSentence(file_name, lines)


def _fields(line: str, file_name: FileName, number: int) -> dict[str, str]:
    """The fields of a line by column. Raises HeadlabError unless there is one for each."""
    fields = line.split("\t")
    if len(fields) != len(CONLLU):
        raise HeadlabError(
            f"{file_name}, line {number}: {len(fields)} fields separated by tabs where CoNLL-U has "
            f"{len(CONLLU)} ({', '.join(CONLLU)}): {line!r:.60}; a file with one token a line in "
            'columns of its own can be declared as a task with format = "conll" (docs/tasks.md)',
            code="treebank.fields_mismatch",
        )
    return dict(zip(CONLLU, fields, strict=True))


def _require_written(fields: dict[str, str], file_name: FileName, number: int) -> None:
    """Raise HeadlabError for a blank field of `MUST_BE_WRITTEN`, and for an id that is none."""
    for column in MUST_BE_WRITTEN:
        if is_blank(fields[column]):
            raise HeadlabError(
                f"{file_name}, line {number}, column {column}: it is empty; CoNLL-U writes _ for a "
                "missing value",
                code="treebank.field_empty",
            )
    if not is_id(fields["ID"]):
        raise HeadlabError(
            f"{file_name}, line {number}, column ID: {fields['ID']!r:.60} is not a CoNLL-U id",
            code="treebank.id_invalid",
        )


def is_id(text: str) -> bool:
    """Whether the format has such an id: a number, "4-5", "8.1", or _ for none."""
    match = ID.fullmatch(text)
    if match is None or max(map(len, re.split("[-.]", text))) > MAX_DIGITS:
        return False
    return match["last"] is None or int(match["first"]) <= int(match["last"])
