"""Made-up tasks with several answers an example: labelled words, and targets to generate."""

from __future__ import annotations

import numpy as np

from headlab.tasks import Example, Split, Task
from support.tiny_models import LABELS, VOCAB


def random_words(rng: np.random.Generator, size: int) -> tuple[str, ...]:
    return tuple(f"w{word_id}" for word_id in rng.integers(4, VOCAB, size))


def read_words(_language: str, split: Split, seed: int) -> list[Example]:
    rng = np.random.default_rng([seed, len(split)])
    examples = []
    for row in range(14):
        words = random_words(rng, int(rng.integers(1, 7)))
        labels = tuple(int(label) for label in rng.integers(len(LABELS), size=len(words)))
        text = " ".join(words)
        examples.append(Example(str(row), text, group=str(row // 2), words=words, labels=labels))
    return examples


def read_pairs(_language: str, split: Split, seed: int) -> list[Example]:
    rng = np.random.default_rng([seed, len(split), 1])
    examples = []
    for row in range(9):
        source = " ".join(random_words(rng, int(rng.integers(1, 6))))
        target = " ".join(random_words(rng, int(rng.integers(1, 6))))
        examples.append(Example(str(row), source, target=target))
    return examples


WORDS = Task("words", LABELS, ("xx",), False, read_words)
PAIRS = Task("pairs", (), ("xx",), False, read_pairs)
