"""The sentences that heads are judged on: trees of a treebank, or the examples of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import content_key
from headlab.tasks.base import DEV_SIZE, Example, Split, Task
from headlab.tasks.treebank import Tree

TREEBANK = "treebank"


@dataclass(frozen=True)
class Sentences:
    """Sentences of one language: trees, or examples of `task`; the other is empty.

    name: "treebank", or the task's.  data_hash: sha256 over all that a report depends on.  seed: of their order.
    """

    name: str
    language: str
    split: str
    trees: tuple[Tree, ...] = ()
    examples: tuple[Example, ...] = ()
    data_hash: str = ""
    seed: int = 0
    task: Task | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.trees) or len(self.examples)

    def spec(self) -> dict[str, Any]:
        """What a report's spec says of them."""
        return {
            "name": self.name,
            "language": self.language,
            "split": self.split,
            "size": len(self),
            "seed": self.seed,
            "data_hash": self.data_hash,
        }


def of_trees(trees: Sequence[Tree], language: str, split: str, size: int | None = None, *, seed: int = 0) -> Sentences:
    """Trees of a treebank: all in their order (None), or a random `size` of them that depends on seed and number.

    Raises HeadlabError for no trees, and for a size below 1.
    """
    if not trees:
        raise HeadlabError(f"no trees in {language} to judge heads on; give one or more", code="roles.no_trees")
    if size is not None and size < 1:
        raise HeadlabError(f"asked for {size} trees; ask for 1 or more", code="roles.size_too_small")
    chosen = tuple(trees)
    if size is not None and size < len(chosen):
        picked = np.random.default_rng([seed, 11]).permutation(len(chosen))[:size]
        chosen = tuple(chosen[place] for place in sorted(picked.tolist()))
    told = [[list(tree.words), list(tree.governors), list(tree.relations)] for tree in chosen]
    return Sentences(TREEBANK, language, split, chosen, (), content_key(told), seed)


def of_task(task: Task, language: str, split: Split = "dev", size: int | None = DEV_SIZE) -> Sentences:
    """Examples of a task as its model is given them: texts, pairs of texts, words, sources with their targets.

    Raises HeadlabError for a language or split that the task has not.
    """
    examples = task.examples(language, split, size)
    return Sentences(task.name, language, split, (), examples, task.data_hash(examples), task.seed, task)
