"""A made-up pair of languages: each word has one translation, and the order is reversed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headlab.tasks import Example, Task

WORDS = {"bala": "tik", "dumo": "sen", "fera": "lop", "goni": "mur", "kati": "vel", "lupe": "nar"}
SIZES = {"train": 160, "dev": 24, "test": 20}


def toy_rows(split: str) -> list[tuple[str, str]]:
    """Sources with their translations."""
    rng = np.random.default_rng(len(split) + ord(split[0]))
    rows = []
    for _ in range(SIZES[split]):
        words = rng.choice(list(WORDS), rng.integers(1, 5))
        translation = [WORDS[word] for word in reversed(words)]
        rows.append((" ".join(words), " ".join(translation)))
    return rows


def toy_folder(root: Path) -> Path:
    """A data folder with the pair aa-bb."""
    (root / "mt").mkdir(parents=True)
    for split in SIZES:
        lines = ["source\ttarget", *("\t".join(row) for row in toy_rows(split))]
        (root / f"mt/aa-bb.{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def toy_examples(split: str) -> list[Example]:
    """The sources and translations of a split as examples."""
    examples = []
    for number, (source, target) in enumerate(toy_rows(split)):
        example_id = f"{split}-{number}"
        examples.append(Example(example_id, source, group=example_id, target=target))
    return examples


def toy_task() -> Task:
    """The pair as a task, with examples in the order of `toy_rows`."""
    return Task("translation", (), ("aa-bb",), False, lambda _, split, __: toy_examples(split))
