"""The task `xnli`: natural language inference in 15 languages (Conneau et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headlab.core import HeadlabError
from headlab.tasks.base import (
    Example,
    Source,
    Split,
    Task,
    folder_or_hub,
    in_random_order,
    languages_in,
    subfolder,
)
from headlab.tasks.hub import HubData
from headlab.tasks.record_files import read_tsv_columns, whole_number
from headlab.tasks.text_files import is_missing

LABELS = ("entailment", "neutral", "contradiction")
LANGUAGES = (
    "en",
    "ar",
    "bg",
    "de",
    "el",
    "es",
    "fr",
    "hi",
    "ru",
    "sw",
    "th",
    "tr",
    "ur",
    "vi",
    "zh",
)
FOLDER = "xnli"
META_NAME = "meta"
COLUMNS = ("premise", "hypothesis", "label")
# One part per language.
HUB = HubData("xnli", "facebook/xnli", COLUMNS, "b8dd5d7af51114dbda02c0e3f6133f332186418e")


@dataclass(frozen=True)
class PairRows:
    """One language's split as read.

    Attributes:
        place: Its name in error messages.
        first_number: Number of the first row (line 2 of a file, row 0 on the hub).
        pairs: Premise, hypothesis and index of the label in LABELS.
    """

    place: str
    first_number: int
    pairs: Sequence[tuple[str, str, int]]


def xnli_task(data: Path | None = None, seed: int = 0) -> Task:
    """The task: 3 classes, 15 languages, aligned (row i is the same pair in every language).

    Args:
        data: A folder with `xnli/{language}.{dev,test}.tsv`; None means $HEADLAB_DATA; without such
            a folder, the data come from the hub. Examples with the same premise form a group.
    """
    present = [name for name in languages_in(data, FOLDER, "tsv") if name != META_NAME]
    return Task(
        "xnli",
        LABELS,
        tuple(present) or LANGUAGES,
        True,
        partial(read, data),
        seed,
        present=partial(is_present, data),
    )


def is_present(data: Path | None, language: str, split: Split) -> bool:
    """Whether reading a split fetches nothing from the hub."""
    if subfolder(data, FOLDER) is not None:
        return True
    # Rows are compared with those of the first language.
    return all(HUB.present(part, split) for part in (language, LANGUAGES[0]))


def source(data: Path | None) -> Source:
    """Where the examples come from."""
    return folder_or_hub("xnli", data, FOLDER, HUB.repository)


def read(data: Path | None, language: str, split: Split, seed: int) -> Sequence[Example]:
    """A split with its premises in random order, the same in every language.

    Examples of a premise stay together.
    """
    folder = subfolder(data, FOLDER)
    if folder is not None and split == "train" and is_missing(_path(folder, language, split)):
        return ()
    rows = _rows(folder, language, split)
    reference_rows = rows
    reference = LANGUAGES[0] if folder is None else _reference(folder, language, split)
    if language != reference:
        reference_rows = _rows(folder, reference, split)
    _check_same_pairs(rows, reference_rows)
    groups = _groups(folder, split, rows, reference_rows)
    examples = [
        Example(f"{split}-{row}", premise, label, hypothesis, groups[row])
        for row, (premise, hypothesis, label) in enumerate(rows.pairs)
    ]
    return in_random_order(examples, seed)


def _rows(folder: Path | None, language: str, split: Split) -> PairRows:
    """The rows of a language's split, from the folder, or from the hub where there is none."""
    if folder is None:
        return _read_hub(language, split)
    return _read_folder(folder, language, split)


def _path(folder: Path, language: str, split: Split) -> Path:
    return folder / f"{language}.{split}.tsv"


def _reference(folder: Path, language: str, split: Split) -> str:
    """The language that all others are compared with.

    English if it has a file, else the first that has one.
    """
    present = sorted(path.name.split(".")[0] for path in folder.glob(f"*.{split}.tsv"))
    for name in (*LANGUAGES, *present):
        if name != META_NAME and _path(folder, name, split).is_file():
            return name
    return language


def _read_folder(folder: Path, language: str, split: Split) -> PairRows:
    path = _path(folder, language, split)
    pairs = [
        (premise, hypothesis, whole_number(label, path, number, "label", len(LABELS)))
        for number, (premise, hypothesis, label) in enumerate(
            read_tsv_columns(path, COLUMNS), start=2
        )
    ]
    return PairRows(str(path), 2, pairs)


def _read_hub(language: str, split: Split) -> PairRows:
    split_rows = HUB.read(language, split)
    columns = [split_rows.columns[name] for name in COLUMNS]
    pairs = []
    for row, (premise, hypothesis, label) in enumerate(zip(*columns, strict=True)):
        if label not in LABELS:
            raise HeadlabError(
                f"{split_rows.place}, row {row}, column label: {label!r:.60} is none of "
                f"{', '.join(LABELS)}",
                code="data.label_unknown",
            )
        pairs.append((premise, hypothesis, LABELS.index(label)))
    return PairRows(split_rows.place, 0, pairs)


def _check_same_pairs(rows: PairRows, reference: PairRows) -> None:
    """Raise HeadlabError if row i cannot be the same pair in both."""
    rule = "row i must be the same pair in every language"
    if len(rows.pairs) != len(reference.pairs):
        raise HeadlabError(
            f"{rows.place} has {len(rows.pairs)} rows and {reference.place} has "
            f"{len(reference.pairs)}; {rule}",
            code="data.rows_mismatch",
        )
    for row, (pair, reference_pair) in enumerate(zip(rows.pairs, reference.pairs, strict=True)):
        label = pair[2]
        reference_label = reference_pair[2]
        if label != reference_label:
            raise HeadlabError(
                f"{rows.place}, line {row + rows.first_number}, column label: {LABELS[label]}, "
                f"where {reference.place} has {LABELS[reference_label]}; {rule}",
                code="data.labels_differ",
            )


def _groups(folder: Path | None, split: Split, rows: PairRows, reference: PairRows) -> list[str]:
    """The group of each row.

    That is its prompt in the meta file, or else the first row with its premise in the reference.

    The language's own premises are not used: two of them may have the same translation, which would
    change groups.
    """
    meta = None if folder is None else folder / f"{META_NAME}.{split}.tsv"
    if meta is None or is_missing(meta):
        group_by_premise: dict[str, str] = {}
        return [
            group_by_premise.setdefault(premise, f"{split}-{row}")
            for row, (premise, _, _) in enumerate(reference.pairs)
        ]
    prompts = [prompt for (prompt,) in read_tsv_columns(meta, ("promptID",))]
    if len(prompts) != len(rows.pairs):
        raise HeadlabError(
            f"{rows.place} has {len(rows.pairs)} rows and {meta} has {len(prompts)}; row i of "
            "both must be the same pair",
            code="data.rows_mismatch",
        )
    return prompts
