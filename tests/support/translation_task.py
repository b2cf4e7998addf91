"""A made-up task of sentences to translate."""

from __future__ import annotations

import numpy as np

from headlab.tasks import Example, Task


def read_sentences(*_: object) -> list[Example]:
    rng = np.random.default_rng(3)
    examples = []
    for row in range(5):
        source, target = (random_words(rng, length) for length in (1 + row % 3, 4))
        examples.append(Example(str(row), source, target=target))
    return examples


def random_words(rng: np.random.Generator, length: int) -> str:
    return " ".join(f"w{word_id}" for word_id in rng.integers(4, 97, length))


TASK = Task("made-up", (), ("aa-bb",), False, read_sentences)
