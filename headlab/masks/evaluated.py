"""What a mask was worth, as it carries it: accuracy by split and language, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headlab.masks.fields import shown
from headlab.masks.mask import Mask
from headlab.tables import Table


class Seen(NamedTuple):
    """One language's figures on one split: accuracy, n, and the rest as docs/mask-format.md lists it."""

    split: str
    task: str
    language: str
    figure: Mapping[str, Any]


def seen(mask: Mask) -> list[Seen]:
    """The accuracies a mask carries, split by split; empty where nothing was noted."""
    return [
        Seen(split, part["task"], language, figure)
        for split, part in mask.chosen.get("evaluated", {}).items()
        for language, figure in part["languages"].items()
    ]


def noted(
    chosen: Mapping[str, Any], split: str, task: str, figures: Mapping[str, Mapping[str, Any]], **more: Any
) -> dict[str, Any]:
    """`chosen` with the figures of a split ({language: figure}), in place of what it said of that split.

    more: size and ablation, where they are known.
    """
    if not figures:
        return dict(chosen)
    part = {"task": task, **more, "languages": {name: dict(figure) for name, figure in figures.items()}}
    return {**chosen, "evaluated": {**chosen.get("evaluated", {}), split: part}}


COLUMNS = (
    "mask",
    "split",
    "task",
    "language",
    "examples",
    "accuracy %",
    "unpruned %",
    "difference, points",
    "95 % interval",
)


def accuracy_table(masks: Mapping[str, Mask]) -> Table:
    """What the masks carry of accuracies, one row a mask, split and language. masks: by the name to show."""
    rows = []
    for name, mask in masks.items():
        for split, task, language, figure in seen(mask):
            low, high = figure.get("low"), figure.get("high")
            interval = None if low is None or high is None else f"{100 * low:+.1f} … {100 * high:+.1f}"
            points = [_percent(figure.get(key)) for key in ("accuracy", "baseline", "difference")]
            rows.append((name, split, shown(task), shown(language), int(figure["n"]), *points, interval))
    formats = ("", "", "", "", "d", ".1f", ".1f", "+.1f", "")
    return Table("mask-accuracies", "Accuracies that the masks carry", COLUMNS, formats, tuple(rows))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
