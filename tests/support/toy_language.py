"""A made-up pair of languages: each word has one translation, and the order is turned round."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headlab.tasks import Example, Task

WORDS = {"bala": "tik", "dumo": "sen", "fera": "lop", "goni": "mur", "kati": "vel", "lupe": "nar"}
SIZES = {"train": 160, "dev": 24, "test": 20}


def toy_rows(split: str) -> list[tuple[str, str]]:
    """Sources with their translations."""
    rng = np.random.default_rng(len(split) + ord(split[0]))
    drawn = [rng.choice(list(WORDS), rng.integers(1, 5)) for _ in range(SIZES[split])]
    return [(" ".join(words), " ".join(WORDS[word] for word in words[::-1])) for words in drawn]


def toy_folder(root: Path) -> Path:
    """A data folder with the pair aa-bb."""
    (root / "mt").mkdir(parents=True)
    for split in SIZES:
        lines = ["source\ttarget", *("\t".join(row) for row in toy_rows(split))]
        (root / f"mt/aa-bb.{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def toy_examples(split: str) -> list[Example]:
    """The same as examples."""
    rows = enumerate(toy_rows(split))
    return [
        Example(f"{split}-{i}", source, group=f"{split}-{i}", target=target)
        for i, (source, target) in rows
    ]


def toy_task() -> Task:
    """The same as a task, in the order of its rows."""
    return Task("translation", (), ("aa-bb",), False, lambda _, split, __: toy_examples(split))
