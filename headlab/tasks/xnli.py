"""The task `xnli`: natural language inference in 15 languages (Conneau et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from headlab.errors import HeadlabError
from headlab.tasks.base import Example, Split, Task
from headlab.tasks.folder import data_root, read_table, whole_number

LABELS = ("entailment", "neutral", "contradiction")
LANGUAGES = ("en", "ar", "bg", "de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
FOLDER, META = "xnli", "meta"
COLUMNS = ("premise", "hypothesis", "label")


def xnli_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: 3 classes, 15 languages, aligned (row i is the same pair everywhere).

    data: a folder with `xnli/{language}.{dev,test}.tsv`; None takes $HEADLAB_DATA.  Examples of one
    premise are a group.  Raises HeadlabError, when examples are read, if there is no such folder.
    """
    return Task("xnli", LABELS, LANGUAGES, True, partial(read, data), seed)


def read(data: Path | None, language: str, split: Split, seed: int) -> Sequence[Example]:
    """A split with its premises in random order, the same in every language; what a premise has stays together."""
    root = data_root(data)
    if root is None:
        raise HeadlabError("task xnli needs its files: name their folder with --data or $HEADLAB_DATA")
    path = root / FOLDER / f"{language}.{split}.tsv"
    if not path.is_file() and split == "train":
        return ()
    return in_order(_examples(path, root / FOLDER / f"{META}.{split}.tsv", split), seed)


def _examples(path: Path, meta: Path, split: Split) -> list[Example]:
    rows = read_table(path, COLUMNS)
    groups = _groups(meta, len(rows), path) if meta.is_file() else [premise for premise, _, _ in rows]
    return [
        Example(
            f"{split}-{row}", premise, whole_number(label, path, row + 2, "label", len(LABELS)), hypothesis,
            groups[row],
        )
        for row, (premise, hypothesis, label) in enumerate(rows)
    ]  # fmt: skip


def _groups(meta: Path, rows: int, path: Path) -> list[str]:
    """The prompt that each row is of."""
    found = [prompt for (prompt,) in read_table(meta, ("promptID",))]
    if len(found) != rows:
        raise HeadlabError(f"{path} has {rows} rows and {meta} has {len(found)}; row i of both must be the same pair")
    return found


def in_order(examples: Sequence[Example], seed: int) -> tuple[Example, ...]:
    """Groups in a random order that depends on seed and number of groups alone; a group's examples side by side."""
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(example.group, []).append(example)
    groups = list(rows.values())
    return tuple(e for at in np.random.default_rng([seed, 11]).permutation(len(groups)) for e in groups[at])
