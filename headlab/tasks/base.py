"""Tasks: labelled examples per language, in disjoint splits, and the files they come from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Literal, NamedTuple

import numpy as np

from headlab.core import HeadlabError, Ints, comma_list, content_key, is_folder, require_type

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
        raise HeadlabError(
            f"unknown split {split!r}; use one of {', '.join(SPLITS)}", code="split.unknown"
        )


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled input.

    Attributes:
        id: Stable for a given task version and seed.
        label: Index into the task's labels.
        pair: Second text of a sentence pair.
        group: Examples of one group are resampled together (for template data the template, for
            XNLI the prompt).
        words, labels: In a token task, the words and a label for each, instead of `label`.
        target: The text to generate, or to predict after `text`, instead of `label`.
        choices: In a task of likelihood, possible continuations of `text`, of which number `label`
            is right.
        counterfactuals: Texts in which only what matters for the answer differs, for what stands in
            a closed player's place: the first that has as many tokens as `text` is taken. They are
            in no hash, as results under other ablations do not depend on them.
        place: File and line, where it was read from a file; for errors alone, so it is in no hash.
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
    counterfactuals: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """Its id, with the place it was read from."""
        if not self.place:
            return self.id
        return f"{self.id} ({self.place})"

    @property
    def full_text(self) -> str:
        """The text with its target; the right choice, where no text stands before the choices."""
        text = self.text + (self.target or "")
        if self.choices and not text:
            return self.choices[self.label]
        return text

    @property
    def cluster(self) -> str:
        """Label of what it is resampled with: its group, or itself alone."""
        return self.group or self.id


@dataclass(frozen=True)
class Task:
    """A named task: its labels, its languages and where its examples come from.

    Attributes:
        aligned: Row i means the same in every language.
        read: (language, split, seed) -> examples, the whole split, in a fixed order.
        salt: For a task that its user may change, what its results depend on besides the texts and
            labels of its examples.
        label_map: {label: class of the model}, for models whose names of their classes do not say
            which is which.
        likelihood: Examples are continued by a language model, whose answers are what it finds
            likeliest: each next token of `target` ("tokens"), or one of `choices` ("choices").
        present: (language, split) -> whether reading that split fetches nothing.
        declaration, data: The file that declares the task, and the folder that its files were asked
            for in; None where there is no such file, or no folder was named.
        all_languages: Of a task that is restricted to `languages`, those that it has; empty where
            it is not restricted.
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
    all_languages: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def has_named_answers(self) -> bool:
        """Whether answers have names: labels, or the texts of choices."""
        return bool(self.labels) or self.likelihood == "choices"

    def names_of(self, example: Example) -> tuple[str, ...]:
        """The names of the possible answers to an example, by number."""
        return tuple(choice.strip() for choice in example.choices) or self.labels

    def examples(
        self, language: str, split: Split = "dev", size: int | None = None
    ) -> tuple[Example, ...]:
        """The first `size` examples of a split (all if None).

        Raises HeadlabError for an unknown language or split, and for an empty split.
        """
        self.check(language, split)
        rows = tuple(self.read(language, split, self.seed))
        if not rows:
            raise HeadlabError(
                f"{self.name} has no {split} examples in {language}; choose another language or "
                "split",
                code="task.no_examples",
            )
        require_type(
            "size", size, (Integral, NoneType), "a whole number of examples, or None for all"
        )
        if size is not None and size < 1:
            raise HeadlabError(
                f"asked for {size} examples; ask for 1 or more", code="task.size_too_small"
            )
        return rows[:size]

    def check(self, language: str, split: str) -> None:
        """Raise HeadlabError unless the task has this language and split."""
        if language not in self.languages:
            raise HeadlabError(
                f"task {self.name} has no language {language!r:.60}; it has "
                f"{comma_list(self.languages)}",
                code="task.language_unknown",
            )
        check_split(split)

    def data_hash(self, examples: Sequence[Example]) -> str:
        """sha256 over what a score depends on: ids, texts and labels, in order.

        With a salt, it is over salt and groups too.
        """
        rows = [[e.id, e.text, e.pair, e.label, *_answer_parts(e)] for e in examples]
        if not self.salt:
            return content_key(rows)
        groups = [example.group for example in examples]
        return content_key([rows, self.salt, groups])

    def with_languages(self, languages: Sequence[str]) -> Task:
        """The same task with only these languages. Raises HeadlabError for one it lacks."""
        for language in languages:
            self.check(language, "dev")
        all_languages = self.all_languages or self.languages
        return replace(self, languages=tuple(languages), all_languages=all_languages)

    def with_all_languages(self) -> Task:
        """The same task with all its languages."""
        return replace(self, languages=self.all_languages or self.languages)

    def with_label_map(self, label_map: Mapping[str, str] | None) -> Task:
        """The same task with the model's class for each label; None changes nothing.

        Raises HeadlabError for a task without labels; a map of other labels is refused where the
        model is known.
        """
        if label_map is None:
            return self
        if not self.labels:
            raise HeadlabError(
                f"task {self.name} has no labels, so it takes no label map; leave it out",
                code="label_map.unused",
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


def _answer_parts(example: Example) -> list[object]:
    """Words with labels, choices, or the target.

    Empty for a text with one label, whose hash predates them.
    """
    if example.words:
        return [list(example.words), list(example.labels)]
    if example.choices:
        return [list(example.choices)]
    if example.target is not None:
        return [example.target]
    return []


def answer_names(
    examples: Sequence[Example], units: Ints
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids and groups of all answers, example by example.

    Args:
        units: int [example], answers per example.
    """
    ids: list[str] = []
    groups: list[str] = []
    for example, count in zip(examples, units.tolist(), strict=True):
        if count == 1:
            ids.append(example.id)
        else:
            ids += [f"{example.id}#{number}" for number in range(count)]
        groups += [example.cluster] * count
    return tuple(ids), tuple(groups)


# The order of a split: random and seeded, so that any prefix is a random subset.


def in_random_order(examples: Sequence[Example], seed: int) -> tuple[Example, ...]:
    """Groups in a random order that depends only on the seed and their number.

    Examples of a group stay together.
    """
    examples_by_group: dict[str, list[Example]] = {}
    for example in examples:
        examples_by_group.setdefault(example.group, []).append(example)
    groups = list(examples_by_group.values())
    order = np.random.default_rng([seed, 11]).permutation(len(groups))
    return tuple(chain.from_iterable(groups[index] for index in order))


# Languages that put no space between words, by the first part of their codes (ISO 639-1 and 639-3).
LANGUAGES_WITHOUT_SPACES = (
    "zh",
    "zho",
    "cmn",
    "yue",
    "ja",
    "jpn",
    "th",
    "tha",
    "lo",
    "lao",
    "km",
    "khm",
    "my",
    "mya",
)


def writes_no_spaces(language: str) -> bool:
    """Whether a language puts no space between words."""
    return re.split("[-_]", language)[0].lower() in LANGUAGES_WITHOUT_SPACES


# Finding a task's files.

DATA_VARIABLE = "HEADLAB_DATA"


def data_root(data: Path | None) -> Path | None:
    """The given data folder, or else $HEADLAB_DATA; None if neither is set.

    Raises HeadlabError if it is not a folder.
    """
    root = data
    named_by = "--data"
    if data is None and os.environ.get(DATA_VARIABLE):
        root = Path(os.environ[DATA_VARIABLE])
        named_by = f"${DATA_VARIABLE}"
    if root is not None and not is_folder(root):
        raise HeadlabError(
            f"{named_by} is {root}, which is not a folder; name the folder that holds the task's "
            "files",
            code="data.not_a_folder",
        )
    return root


def subfolder(data: Path | None, name: str) -> Path | None:
    """A task's subfolder of the data folder; None if there is none.

    Raises HeadlabError as `data_root` does.
    """
    root = data_root(data)
    if root is None or not is_folder(root / name):
        return None
    return root / name


def languages_in(data: Path | None, folder: str, suffix: str) -> tuple[str, ...]:
    """Languages with a file `folder/{language}.{split}.{suffix}` below the data folder.

    English comes first.

    Empty if there is no such folder: the error is raised when an example is read.
    """
    data_folder = data or os.environ.get(DATA_VARIABLE)
    if not data_folder:
        return ()
    languages = set[str]()
    for file in Path(data_folder, folder).glob(f"*.*.{suffix}"):
        language, *splits = file.name.removesuffix(f".{suffix}").split(".")
        if language and len(splits) == 1 and splits[0] in SPLITS:
            languages.add(language)
    return tuple(sorted(languages, key=lambda language: (language != "en", language)))


# Where a task's examples come from, and whether they are on this machine.


class Source(NamedTuple):
    """Where examples come from, in words.

    Attributes:
        description: The place, such as a folder or a repository.
        is_present: Whether they are on this machine.
        advice: What to do if not.
    """

    description: str
    is_present: bool = True
    advice: str = ""


def folder_or_hub(task: str, data: Path | None, folder: str, repository: str) -> Source:
    """The source of a task that is read from a subfolder of the data folder, or else from the hub.

    Raises HeadlabError if the data folder is not a folder.
    """
    task_folder = subfolder(data, folder)
    if task_folder is not None:
        return Source(str(task_folder))
    return Source(
        f"{repository} on the hub",
        False,
        f"the data of task {task} are in no folder here: set {DATA_VARIABLE} (or give --data) to "
        f"one that holds {folder}/; without, they come from the hub ({repository}) or its local "
        "cache, which takes the network once",
    )


def only_language(task: Task, language: str | None) -> str:
    """The given language, or the task's only one.

    Raises HeadlabError if it is ambiguous or not the task's.
    """
    require_type("task", task, Task, "a task that headlab.task returns")
    if language is None:
        if len(task.languages) != 1:
            raise HeadlabError(
                f"task {task.name} has {len(task.languages)} languages; say which, e.g. "
                f"language={task.languages[0]!r}",
                code="language.ambiguous",
            )
        return task.languages[0]
    task.check(language, "dev")
    return language
