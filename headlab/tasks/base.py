"""Tasks: labelled examples per language, in disjoint splits, and the files they come from."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple

import numpy as np

from headlab.errors import HeadlabError, require_type
from headlab.files import is_folder, reason
from headlab.records import Ints, content_key

Split = Literal["train", "dev", "test"]
Likelihood = Literal["", "tokens", "choices"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
DEV_SIZE = 512
TREEBANK = "treebank"  # stands for the task in reports of roles on gold trees


def always_present(_language: str, _split: Split) -> bool:
    """Of a task whose examples are all on this machine."""
    return True


def check_split(split: str) -> None:
    """Raise HeadlabError for an unknown split."""
    if split not in SPLITS:
        raise HeadlabError(f"unknown split {split!r}; use one of {', '.join(SPLITS)}", code="split.unknown")


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled input.

    id: stable for a given task version and seed.  label: index into the task's labels.
    pair: second text of a sentence pair.  group: examples of one group are resampled together
    (for template data the template, for XNLI the prompt).  words, labels: in a token task, the words
    and a label for each, instead of `label`.  target: the text to generate, or to predict after `text`, instead of
    `label`.  choices: in a task of likelihood, possible continuations of `text`, of which number `label` is right.
    place: file and line, where it was read from a file; for errors alone, so it is in no hash.
    """

    id: str
    text: str
    label: int = -1
    pair: str | None = None
    group: str = ""
    words: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    target: str | None = None
    choices: tuple[str, ...] = ()
    place: str = field(default="", compare=False, repr=False)

    @property
    def reference(self) -> str:
        """Its id, with the place it was read from."""
        return f"{self.id} ({self.place})" if self.place else self.id

    @property
    def whole(self) -> str:
        """The text with its target; the right choice, where no text stands before the choices."""
        text = self.text + (self.target or "")
        return self.choices[self.label] if self.choices and not text else text

    @property
    def cluster(self) -> str:
        """Label of what it is resampled with: its group, or itself alone."""
        return self.group or self.id


@dataclass(frozen=True)
class Task:
    """A named task: its labels, its languages and where its examples come from.

    aligned: row i means the same in every language.  read: (language, split, seed) -> examples,
    the whole split, in a fixed order.  salt: for a task that its user may change, what its results depend on
    besides the texts and labels of its examples.  label_map: {label: class of the model}, for models whose names of
    their classes do not say which is which.  likelihood: examples are continued by a language model, whose answers are
    what it finds likeliest: each next token of `target` ("tokens"), or one of `choices` ("choices").  present:
    (language, split) -> whether reading that split fetches nothing.  declaration, data: the file that declares the
    task, and the folder that its files were asked for in; None where there is no such file, or no folder was named.
    """

    name: str
    labels: tuple[str, ...]
    languages: tuple[str, ...]
    aligned: bool
    read: Callable[[str, Split, int], Sequence[Example]]
    seed: int = 0
    salt: str = ""
    label_map: Mapping[str, str] | None = None
    likelihood: Likelihood = ""
    present: Callable[[str, Split], bool] = always_present
    declaration: Path | None = field(default=None, compare=False, repr=False)
    data: Path | None = field(default=None, compare=False, repr=False)

    @property
    def named(self) -> bool:
        """Whether answers have names: labels, or the texts of choices."""
        return bool(self.labels) or self.likelihood == "choices"

    def names_of(self, example: Example) -> tuple[str, ...]:
        """The names of the possible answers to an example, by number."""
        return tuple(choice.strip() for choice in example.choices) or self.labels

    def examples(self, language: str, split: Split = "dev", size: int | None = None) -> tuple[Example, ...]:
        """The first `size` examples of a split (all if None).

        Raises HeadlabError for an unknown language or split, and for an empty split.
        """
        self.check(language, split)
        rows = tuple(self.read(language, split, self.seed))
        if not rows:
            raise HeadlabError(
                f"{self.name} has no {split} examples in {language}; choose another language or split",
                code="task.no_examples",
            )
        require_type("size", size, (Integral, NoneType), "a whole number of examples, or None for all")
        if size is not None and size < 1:
            raise HeadlabError(f"asked for {size} examples; ask for 1 or more", code="task.size_too_small")
        return rows[:size]

    def check(self, language: str, split: str) -> None:
        """Raise HeadlabError unless the task has this language and split."""
        if language not in self.languages:
            raise HeadlabError(
                f"task {self.name} has no language {language!r}; it has {', '.join(self.languages)}",
                code="task.language_unknown",
            )
        check_split(split)

    def data_hash(self, examples: Sequence[Example]) -> str:
        """sha256 over what a score depends on: ids, texts, labels, in order; with a salt, also salt and groups."""
        rows = [[e.id, e.text, e.pair, e.label, *_asked(e)] for e in examples]
        return content_key([rows, self.salt, [e.group for e in examples]] if self.salt else rows)

    def restricted(self, languages: Sequence[str]) -> Task:
        """The same task with only these languages. Raises HeadlabError for one it lacks."""
        for language in languages:
            self.check(language, "dev")
        return replace(self, languages=tuple(languages))

    def mapped(self, label_map: Mapping[str, str] | None) -> Task:
        """The same task with the model's class for each label; None changes nothing.

        Raises HeadlabError for a task without labels; a map of other labels is refused where the model is known.
        """
        if label_map is None:
            return self
        if not self.labels:
            raise HeadlabError(
                f"task {self.name} has no labels, so it takes no label map; leave it out", code="label_map.unused"
            )
        return replace(self, label_map=dict(label_map))

    def card(self) -> Mapping[str, object]:
        """What to print about the task: name, labels, languages, alignment, seed."""
        return {
            "name": self.name,
            "labels": list(self.labels),
            "languages": list(self.languages),
            "aligned": self.aligned,
            "seed": self.seed,
        }


def _asked(example: Example) -> list[object]:
    """Words with labels, choices, or the target; empty for a text with one label, whose hash predates them."""
    if example.words:
        return [list(example.words), list(example.labels)]
    if example.choices:
        return [list(example.choices)]
    return [] if example.target is None else [example.target]


def answer_names(examples: Sequence[Example], units: Ints) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids and groups of all answers, example by example. units: int [example], answers per example."""
    asked = [(e, place, n) for e, n in zip(examples, units.tolist(), strict=True) for place in range(n)]
    ids = tuple(e.id if n == 1 else f"{e.id}#{place}" for e, place, n in asked)
    return ids, tuple(e.cluster for e, _, _ in asked)


# The order of a split: random and seeded, so that any prefix is a random subset.


def in_order(examples: Sequence[Example], seed: int) -> tuple[Example, ...]:
    """Groups in a random order that depends only on the seed and their number; examples of a group stay together."""
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(example.group, []).append(example)
    groups = list(rows.values())
    return tuple(e for at in np.random.default_rng([seed, 11]).permutation(len(groups)) for e in groups[at])


# Languages that put no space between words, by the first part of their codes (ISO 639-1 and 639-3).
UNSPACED = ("zh", "zho", "cmn", "yue", "ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya")


def unspaced(language: str) -> bool:
    """Whether a language puts no space between words."""
    return re.split("[-_]", language)[0].lower() in UNSPACED


# Finding a task's files, and reading tab-separated ones with errors that name file, line and column.

VARIABLE = "HEADLAB_DATA"
Where = Path | str  # the name of a file, in its errors


def data_root(given: Path | None) -> Path | None:
    """The given data folder, or else $HEADLAB_DATA; None if neither is set.

    Raises HeadlabError if it is not a folder.
    """
    named = os.environ.get(VARIABLE)
    root = given if given is not None else Path(named) if named else None
    if root is not None and not is_folder(root):
        where = "--data" if given is not None else f"${VARIABLE}"
        raise HeadlabError(
            f"{where} is {root}, which is not a folder; name the folder that holds the task's files",
            code="data.not_a_folder",
        )
    return root


def subfolder(given: Path | None, name: str) -> Path | None:
    """A task's subfolder of the data folder; None if there is none. Raises HeadlabError as `data_root` does."""
    root = data_root(given)
    return root / name if root is not None and is_folder(root / name) else None


def languages_in(given: Path | None, folder: str, suffix: str) -> tuple[str, ...]:
    """Languages with a file `folder/{language}.{split}.{suffix}` below the data folder, English first.

    Empty if there is no such folder: the error is raised when an example is read.
    """
    named = given or os.environ.get(VARIABLE)
    files = sorted(Path(named, folder).glob(f"*.*.{suffix}")) if named else []
    parts = [file.name.removesuffix(f".{suffix}").split(".") for file in files]
    found = dict.fromkeys(part[0] for part in parts if len(part) == 2 and part[0] and part[1] in SPLITS)
    return tuple(sorted(found, key=lambda language: (language != "en", language)))


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text file. Raises HeadlabError as `read_text` does."""
    return lines_of(read_text(path))


def lines_of(text: str) -> list[str]:
    """Lines of a text, without their ends."""
    # not splitlines: a sentence may contain a form feed or a Unicode line separator
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def read_text(path: Path) -> str:
    """A UTF-8 text file, line ends unchanged. Raises HeadlabError naming file, line and byte of invalid UTF-8."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        why = reason(error)
        raise HeadlabError(f"cannot read {path} ({why}); check the data folder", code="data.unreadable") from error
    return decoded(data, path)


def decoded(data: bytes, where: Where) -> str:
    """UTF-8 as text, line ends unchanged. Raises HeadlabError naming `where`, line and byte of invalid UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, start = data.count(b"\n", 0, error.start) + 1, data.rfind(b"\n", 0, error.start)
        raise HeadlabError(
            f"{where}, line {line}, byte {error.start - start}: not UTF-8; save the file as UTF-8", code="data.not_utf8"
        ) from error


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The named columns of a tab-separated file with one header row and no quoting, one tuple per row.

    Raises HeadlabError naming file, line and column for a missing column, file and line for a row of another length.
    """
    header, *lines = read_lines(path)
    names = header.split("\t")
    require_columns(Record(1, dict.fromkeys(names)), path, columns)
    places = [names.index(name) for name in columns]
    out = []
    for number, line in enumerate(lines, start=2):
        fields = line.split("\t")
        _sound(_record(names, fields, path, number, "tsv"))
        out.append(tuple(fields[place] for place in places))
    return out


def whole_number(text: str, path: Path, line: int, column: str, below: int) -> int:
    """A number from 0 to below - 1. Raises HeadlabError naming file, line and column."""
    if not (text.isascii() and text.isdigit() and int(text) < below):
        raise HeadlabError(
            f"{path}, line {line}, column {column}: {text!r:.60}, expected a number from 0 to {below - 1}",
            code="data.number_invalid",
        )
    return int(text)


# Lines of CoNLL-U.

CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
# Ids of words, and of multiword tokens ("4-5") and empty nodes ("8.1").
WORD, NO_WORD = re.compile("[1-9][0-9]{0,5}"), re.compile("[0-9]{1,6}[-.][0-9]{1,6}")


def conllu_sentences(text: str) -> Iterator[list[tuple[int, str]]]:
    """The lines of each sentence, comments included, with their numbers; an empty line ends a sentence."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*lines_of(text), ""], start=1):
        if line:
            block.append((number, line))
        elif block:
            yield block
            block = []


def conllu_fields(line: str, path: Where, number: int) -> dict[str, str]:
    """The fields of a line of CoNLL-U by column. Raises HeadlabError unless there is one for each."""
    fields = line.split("\t")
    if len(fields) != len(CONLLU):
        raise HeadlabError(
            f"{path}, line {number}: {len(fields)} fields separated by tabs where CoNLL-U has {len(CONLLU)} "
            f"({', '.join(CONLLU)}): {line!r:.60}",
            code="treebank.fields_mismatch",
        )
    return dict(zip(CONLLU, fields, strict=True))


def word_fields(line: str, path: Where, number: int, following: int) -> list[dict[str, str]]:
    """The fields of a line of CoNLL-U by column; empty for a multiword token or an empty node.

    following: the word's number in its sentence.  Raises HeadlabError naming file, line and column.
    """
    told = conllu_fields(line, path, number)
    if NO_WORD.fullmatch(told["ID"]):
        return []
    if not WORD.fullmatch(told["ID"]) or int(told["ID"]) != following:
        raise HeadlabError(
            f"{path}, line {number}, column ID: {told['ID']!r:.60} where word {following} of the sentence belongs; "
            "words are numbered from 1, and an empty line ends a sentence",
            code="treebank.id_out_of_order",
        )
    return [told]


# Users' csv, tsv, jsonl and CoNLL-U files, record by record, with the line on which each record begins.


class Record(NamedTuple):
    """One record of a file.  line: on which it begins, from 1.  values: by column."""

    line: int
    values: Mapping[str, Any]


def read_records(path: Path, kind: str, columns: Sequence[str]) -> Sequence[Record]:
    """The records of a file, each with all the columns; cached until the file changes.

    kind: a key of KINDS.  Raises HeadlabError naming file, line and column.
    """
    _, changed, size = state_of(path)
    found = _records(path, kind, changed, size)
    for record in found:
        require_columns(record, path, columns)
    return found


def state_of(file: Path) -> tuple[Path, int, int]:
    """A file with its modification time and size. Raises HeadlabError if it cannot be read."""
    try:
        found = file.stat()
    except OSError as error:
        raise HeadlabError(
            f"cannot read {file} ({error.strerror}); check the task's files", code="data.unreadable"
        ) from error
    return file, found.st_mtime_ns, found.st_size


def require_columns(record: Record, where: Where, columns: Sequence[str]) -> None:
    """Raise HeadlabError if a record lacks one of the columns."""
    absent = [name for name in columns if name not in record.values]
    if absent:
        raise HeadlabError(
            f"{where}, line {record.line}: no column {', '.join(absent)}; it has {', '.join(record.values)}",
            code="data.column_missing",
        )


@lru_cache(maxsize=64)
def _records(path: Path, kind: str, _changed: int, _size: int) -> tuple[Record, ...]:
    return tuple(map(_sound, KINDS[kind](read_text(path), path)))


def _sound(found: Record | HeadlabError) -> Record:
    if isinstance(found, HeadlabError):
        raise found
    return found


# Each reader yields a record, or in its place the error of one that cannot be read, so that a file's errors can be
# listed; it raises HeadlabError for what leaves nothing after it readable.
Found = Iterator[Record | HeadlabError]


# What to do about a file whose only column has one of these marks in its name, by its kind.
ADVICE_ON_SEPARATORS: Mapping[str, Mapping[str, str]] = {
    "csv": {
        "\t": "tabs in its name; give the file the ending .tsv",
        ";": "semicolons in its name; put commas between the columns, or tabs and give the file the ending .tsv",
        "|": "vertical bars in its name; put commas between the columns, or tabs and give the file the ending .tsv",
    },
    "tsv": {
        ",": "commas in its name; give the file the ending .csv",
        ";": "semicolons in its name; put tabs between the columns",
        "|": "vertical bars in its name; put tabs between the columns",
    },
}


def separator_advice(columns: Sequence[str], kind: str) -> str:
    """What to do about a file with other separators than its ending tells.

    Args:
        columns: the names of all its columns.
        kind: a key of KINDS.

    Returns:
        A sentence without its capital and full stop; empty where the file has several columns, or its only column's
        name has no separator.
    """
    if len(columns) != 1:
        return ""
    (name,) = columns
    marks = [mark for mark in ADVICE_ON_SEPARATORS.get(kind, {}) if mark in name]
    if not marks:
        return ""
    mark = max(marks, key=name.count)
    return f"the header is one column alone, with {ADVICE_ON_SEPARATORS[kind][mark]}"


def _csv(text: str, where: Where) -> Found:
    """Comma-separated values as in RFC 4180. Raises HeadlabError for malformed quoting and for other separators."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    line = 1
    try:
        for fields in reader:
            if header is None:
                header = _checked(fields, where)
            elif fields:  # not an empty line
                yield _record(header, fields, where, line, "csv")
            line = reader.line_num + 1
    except csv.Error as error:
        raise HeadlabError(
            f"{where}, line {reader.line_num}: {error}; the record begins on line {line}", code="data.csv_malformed"
        ) from error


def _tsv(text: str, where: Where) -> Found:
    """Tab-separated, without quoting."""
    first, *lines = lines_of(text)
    header = _checked(first.split("\t"), where)
    for number, line in enumerate(lines, start=2):
        yield _record(header, line.split("\t"), where, number, "tsv")


def _checked(header: list[str], where: Where) -> list[str]:
    double = sorted({name for name in header if header.count(name) > 1})
    if double:
        raise HeadlabError(
            f"{where}, line 1: the column {double[0]!r:.60} appears twice; give each column its own name",
            code="data.column_twice",
        )
    return header


def _record(header: Sequence[str], fields: Sequence[str], where: Where, line: int, kind: str) -> Record | HeadlabError:
    """A row as a record, or the error of one with too many or too few fields.

    Raises HeadlabError where the header has other separators than a file of this kind: all other rows would be wrong
    for the same reason.
    """
    if len(fields) == len(header):
        return Record(line, dict(zip(header, fields, strict=True)))
    mismatch = f"{where}, line {line}: {len(fields)} fields where the header has {len(header)}"
    advice = separator_advice(header, kind)
    if advice:
        raise HeadlabError(f"{mismatch}; {advice}", code="data.separator_other")
    return HeadlabError(mismatch, code="data.fields_mismatch")


def _jsonl(text: str, where: Where) -> Found:
    """One JSON object per line."""
    for number, line in enumerate(lines_of(text), start=1):
        if line.strip():
            yield _object(line, where, number)


def _object(line: str, where: Where, number: int) -> Record | HeadlabError:
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        return HeadlabError(f"{where}, line {number}, character {error.colno}: {error.msg}", code="data.json_malformed")
    except (RecursionError, ValueError) as error:  # nested too deep, or a number with too many digits
        return HeadlabError(f"{where}, line {number}: {error}", code="data.json_unusable")
    if not isinstance(values, dict):
        return HeadlabError(
            f"{where}, line {number}: {line!r:.60} is not a JSON object; give one per line", code="data.json_not_object"
        )
    return Record(number, values)


def _conllu(text: str, where: Where) -> Found:
    """One record a sentence: the columns of CoNLL-U, each a list with the value of every word, None where it is _."""
    yield from filter(None, (_sentence(block, where) for block in conllu_sentences(text)))


def _sentence(block: Sequence[tuple[int, str]], where: Where) -> Record | HeadlabError | None:
    """A sentence of CoNLL-U; None for comments alone."""
    words: list[Mapping[str, str]] = []
    try:
        for number, line in block:
            words += [] if line.startswith("#") else word_fields(line, where, number, len(words) + 1)
    except HeadlabError as error:
        return error
    values = {key: [None if w[key] == "_" and key != "FORM" else w[key] for w in words] for key in CONLLU}
    return Record(block[0][0], values) if words else None


KINDS: Mapping[str, Callable[[str, Where], Found]] = MappingProxyType(
    {"csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "conllu": _conllu}
)


# Where a task's examples come from, and whether they are on this machine.


class Source(NamedTuple):
    """Where examples come from, in words.  here: whether they are on this machine.  advice: what to do if not."""

    words: str
    here: bool = True
    advice: str = ""


def folder_or_hub(task: str, data: Path | None, folder: str, repository: str) -> Source:
    """The source of a task that is read from a subfolder of the data folder, or else from the hub.

    Raises HeadlabError if the data folder is not a folder.
    """
    found = subfolder(data, folder)
    if found is not None:
        return Source(str(found))
    return Source(
        f"{repository} on the hub", False,
        f"the data of task {task} are in no folder here: set {VARIABLE} (or give --data) to one that holds {folder}/; "
        f"without, they come from the hub ({repository}) or its local cache, which takes the network once",
    )  # fmt: skip
