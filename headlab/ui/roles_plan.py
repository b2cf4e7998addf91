"""Roles that are to be found: on which sentences, with which thresholds; the job's spec and the command line.

No streamlit here: whoever starts the job reads the values again, as with a new job of the Jobs page.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headlab.errors import HeadlabError
from headlab.options import option_words
from headlab.roles.table import FILE, OPTIONS, resolve
from headlab.tasks.base import SPLITS
from headlab.ui.shell import Choice

SPLIT = "dev"
TREES, TEXTS = "treebank", "task"
SOURCES = {TREES: "Gold trees, where there are any", TEXTS: "The texts of the task, without syntax"}


@dataclass(frozen=True)
class Plan:
    """What one job would find out: roles on one kind of sentences. source: TREES or TEXTS."""

    choice: Choice
    source: str
    languages: tuple[str, ...]

    def spec(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The job's spec. state: values of the widgets drawn so far; the rest are at their defaults."""
        return {
            "model": self.choice.model,
            "task": self.choice.task if self.source == TEXTS else None,
            "languages": list(self.languages),
            "source": self.source,
            "split": state.get(key("split"), SPLIT),
            "size": state.get(key("size")),
            "options": {name: state.get(key(name), option.default) for name, option in OPTIONS.items()},
        }

    @property
    def words(self) -> str:
        """What the sentences are, plainly."""
        if self.source == TREES:
            return "gold trees of their treebanks: every role can be found"
        return (
            f"the texts of task {self.choice.task}, without syntax: positions, rare words, separators and the like, "
            "but no subjects, objects or modifiers"
        )


def key(name: str) -> str:
    """Key of a widget."""
    return f"roles-plan-{name}"


def plans(
    choice: Choice, languages: Sequence[str], treebanks: Sequence[str], offered: Sequence[str], source: str
) -> list[Plan]:
    """A job for the languages with a treebank and one for those without; source TEXTS takes no treebank.

    offered: languages of the task; one that has neither texts nor trees is in no plan.
    """
    with_trees = tuple(name for name in languages if name in treebanks and source == TREES)
    rest = tuple(name for name in languages if name not in with_trees and name in offered)
    return [Plan(choice, kind, those) for kind, those in ((TREES, with_trees), (TEXTS, rest)) if those]


def trouble(spec: Mapping[str, Any]) -> str:
    """Why this cannot be started, or empty."""
    try:
        resolve(spec["options"])
    except HeadlabError as error:
        return f"{error}."
    return "" if spec["split"] in SPLITS else f"There is no split {spec['split']}."


def command(spec: Mapping[str, Any]) -> str:
    """The command lines that do the same as a spec, one a language."""
    return "\n".join(shlex.join(_words(spec, language)) for language in spec.get("languages") or ())


def _words(spec: Mapping[str, Any], language: str) -> Iterator[str]:
    yield from ("headlab", "roles", "--model", str(spec["model"]))
    if spec.get("task"):
        yield from ("--task", str(spec["task"]))
    yield from ("--language", language)
    if spec.get("split") == FILE:
        yield from ("--conllu", "FILE")
    elif spec.get("split", SPLIT) != SPLIT:
        yield from ("--split", str(spec["split"]))
    if spec.get("size") is not None:
        yield from ("--size", str(spec["size"]))
    yield from option_words("-o", spec.get("options") or {}, OPTIONS)
