"""Made-up tasks of likelihood for tiny language models: choices, and texts whose tokens count."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from headlab.hooks import Model
from headlab.tasks import Example, Split, Task
from support.tiny_models import VOCAB, tiny_model
from support.tiny_task import tiny_tokenizer


def random_words(rng: np.random.Generator, min_words: int, max_words: int) -> str:
    count = int(rng.integers(min_words, max_words + 1))
    return " ".join(f"w{word_id}" for word_id in rng.integers(4, VOCAB, count))


def read_choices(
    _language: str, split: Split, seed: int, min_words: int = 1, max_words: int = 3
) -> list[Example]:
    rng = np.random.default_rng([seed, len(split), max_words])
    examples = []
    for row in range(12):
        count = int(rng.integers(2, 5))
        texts = [f" {random_words(rng, min_words, max_words)}" for _ in range(count)]
        choices = tuple(dict.fromkeys(texts))
        text = random_words(rng, 2, 6)
        label = int(rng.integers(len(choices)))
        examples.append(Example(str(row), text, label, group=str(row // 2), choices=choices))
    return examples


def read_texts(_language: str, split: Split, seed: int) -> list[Example]:
    rng = np.random.default_rng([seed, len(split), 5])
    return [
        Example(
            str(row),
            random_words(rng, 2, 4) if row % 3 else "",
            group=str(row // 3),
            target=f" {random_words(rng, 2, 7)}",
        )
        for row in range(12)
    ]


CHOICES = Task("choices", (), ("xx",), False, read_choices, likelihood="choices")
SINGLE = replace(CHOICES, read=partial(read_choices, max_words=1))
TEXTS = Task("texts", (), ("xx",), False, read_texts, likelihood="tokens")


def language_model(family: str) -> Model:
    return tiny_model(family, tokenizer=tiny_tokenizer())
