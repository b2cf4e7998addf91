"""What a task is: labelled examples per language, in splits that share nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headlab.errors import HeadlabError
from headlab.records import content_key

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
DEV_SIZE = 512


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled input.

    id: stable for a given task version and seed.  label: index into the task's labels.
    pair: second text of a sentence pair.  group: examples of one group are resampled together
    (for template data the template, for XNLI the prompt).  words, labels: of a token task, the words
    and a label for each, in place of `label`.  target: the text to be generated, likewise.
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
    the whole split, in an order that does not change.  salt: of a task that its user may change, what its
    results depend on besides its examples' texts and labels.
    """

    name: str
    labels: tuple[str, ...]
    languages: tuple[str, ...]
    aligned: bool
    read: Callable[[str, Split, int], Sequence[Example]]
    seed: int = 0
    salt: str = ""

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
        """sha256 over what a score depends on: ids, texts, labels, in order; with a salt, it and the groups too."""
        rows = [[e.id, e.text, e.pair, e.label, *_asked(e)] for e in examples]
        return content_key([rows, self.salt, [e.group for e in examples]] if self.salt else rows)

    def restricted(self, languages: Sequence[str]) -> Task:
        """The same task with some of its languages only."""
        for language in languages:
            self.check(language, "dev")
        return replace(self, languages=tuple(languages))

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
    """What is asked for beside one label; empty for a text with a label, whose hash predates the rest."""
    if example.words:
        return [list(example.words), list(example.labels)]
    return [] if example.target is None else [example.target]
