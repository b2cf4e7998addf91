"""Tasks: labelled examples per language, in disjoint splits, and the files they come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Literal, NamedTuple

import numpy as np

from headlab.errors import HeadlabError, require_type
from headlab.records import content_key

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
DEV_SIZE = 512
TREEBANK = "treebank"  # stands for the task in reports of roles on gold trees


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled input.

    id: stable for a given task version and seed.  label: index into the task's labels.
    pair: second text of a sentence pair.  group: examples of one group are resampled together
    (for template data the template, for XNLI the prompt).  words, labels: in a token task, the words
    and a label for each, instead of `label`.  target: the text to generate, instead of `label`.
    """

    id: str
    text: str
    label: int = -1
    pair: str | None = None
    group: str = ""
    words: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    target: str | None = None


@dataclass(frozen=True)
class Task:
    """A named task: its labels, its languages and where its examples come from.

    aligned: row i means the same in every language.  read: (language, split, seed) -> examples,
    the whole split, in a fixed order.  salt: for a task that its user may change, what its results depend on
    besides the texts and labels of its examples.  label_map: {label: class of the model}, for models whose names of
    their classes do not say which is which.
    """

    name: str
    labels: tuple[str, ...]
    languages: tuple[str, ...]
    aligned: bool
    read: Callable[[str, Split, int], Sequence[Example]]
    seed: int = 0
    salt: str = ""
    label_map: Mapping[str, str] | None = None

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
        if split not in SPLITS:
            raise HeadlabError(f"unknown split {split!r}; use one of {', '.join(SPLITS)}", code="split.unknown")

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
    """Words with labels, or the target; empty for a text with one label, whose hash predates both."""
    if example.words:
        return [list(example.words), list(example.labels)]
    return [] if example.target is None else [example.target]


# The order of a split: random and seeded, so that any prefix is a random subset.


def in_order(examples: Sequence[Example], seed: int) -> tuple[Example, ...]:
    """Groups in a random order that depends only on the seed and their number; examples of a group stay together."""
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(example.group, []).append(example)
    groups = list(rows.values())
    return tuple(e for at in np.random.default_rng([seed, 11]).permutation(len(groups)) for e in groups[at])


# Finding a task's files, and reading tab-separated ones with errors that name file, line and column.

VARIABLE = "HEADLAB_DATA"


def data_root(given: Path | None) -> Path | None:
    """The given data folder, or else $HEADLAB_DATA; None if neither is set.

    Raises HeadlabError if it is not a folder.
    """
    named = os.environ.get(VARIABLE)
    root = given if given is not None else Path(named) if named else None
    if root is not None and not root.is_dir():
        where = "--data" if given is not None else f"${VARIABLE}"
        raise HeadlabError(
            f"{where} is {root}, which is not a folder; name the folder that holds the task's files",
            code="data.not_a_folder",
        )
    return root


def subfolder(given: Path | None, name: str) -> Path | None:
    """A task's subfolder of the data folder; None if there is none. Raises HeadlabError as `data_root` does."""
    root = data_root(given)
    return root / name if root is not None and (root / name).is_dir() else None


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
    except OSError as error:
        raise HeadlabError(
            f"cannot read {path} ({error.strerror}); check the data folder", code="data.unreadable"
        ) from error
    return decoded(data, path)


def decoded(data: bytes, where: Path | str) -> str:
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
    absent = [name for name in columns if name not in names]
    if absent:
        raise HeadlabError(
            f"{path}, line 1: no column {', '.join(absent)}; it has {', '.join(names)}", code="data.column_missing"
        )
    places = [names.index(name) for name in columns]
    out = []
    for number, line in enumerate(lines, start=2):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise HeadlabError(
                f"{path}, line {number}: {len(fields)} fields where the header has {len(names)}",
                code="data.fields_mismatch",
            )
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
