"""The data card's section on the task `slots`, with counts from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from headlab.tasks.base import SPLITS, Split
from headlab.tasks.slots import LABELS, OUTSIDE, UNSPACED, read

TEXT = """## Task `slots`
The same sentences in the same splits and order, with a label for each word: the slot of the template that it fills,
or `{outside}`. {labels} labels, plain; which they are, and their share of the words in English train:

{shares}

- Words are separated by spaces. In {unspaced}, which are written without, a word is one piece of what the template was
  put together from: a filler, or the text between two choices.
- A word that is only in part a filler ("30%", a name with a case ending) has the filler's slot.
- Slots are named as in the source; `domain`, which English lacks, counts as `{outside}`.
- A repair may lose a word's slot ("Liste Pack" becomes "Packliste"): it does in 4 of 30,680 sentences.
- Always saying `{outside}` is right for the share of words in the last column: that is what an accuracy has to beat.

{table}
"""


def slots_section(languages: Sequence[str], table: Callable[[list[str], list[list[object]]], str]) -> str:
    """The section as Markdown, at seed 0.  table: (head, rows) -> a Markdown table."""
    counts = {language: {split: Counter(labels(language, split)) for split in SPLITS} for language in languages}
    train = counts["en"]["train"]
    shares = ", ".join(f"`{label}` {percent(train, i)}" for i, label in enumerate(LABELS))
    rows = [row(language, splits) for language, splits in counts.items()]
    head = ["language", "words per split", "labels per split", f"share of `{OUTSIDE}` per split"]
    return TEXT.format(
        outside=OUTSIDE, labels=len(LABELS), shares=shares, unspaced=" and ".join(sorted(UNSPACED)),
        table=table(head, rows),
    )  # fmt: skip


def labels(language: str, split: Split) -> list[int]:
    """Labels of all words of a split."""
    return [label for example in read(language, split, 0) for label in example.labels]


def row(language: str, splits: Mapping[Split, Counter[int]]) -> list[object]:
    """One table row: a language's counts as train/dev/test, without the splits it lacks."""
    there = [counts for counts in splits.values() if counts]
    slashed = ("/".join(map(str, column)) for column in ([c.total() for c in there], [len(c) for c in there]))
    return [language, *slashed, "/".join(percent(counts, 0) for counts in there)]


def percent(counts: Counter[int], label: int) -> str:
    """Share of a label, in percent."""
    return f"{100 * counts[label] / counts.total():.1f} %"
