"""Masks side by side: their differences, combined masks, and the accuracies recorded in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headlab.core import (
    Bools,
    Cell,
    Head,
    HeadGrid,
    HeadlabError,
    JsonLike,
    JsonRecord,
    Omissions,
    Table,
    by_layer,
)
from headlab.masks.mask import Mask, RecordedAccuracy, common_ablation, record, shown

# Two masks side by side: heads removed by only one of them, and their similarity.


@dataclass(frozen=True)
class Difference:
    """Heads removed by two masks of one grid, bool [head] for each."""

    grid: HeadGrid
    a: Bools
    b: Bools

    @property
    def only_a(self) -> tuple[Head, ...]:
        """Heads that only the first mask removes, in grid order."""
        return self._heads(self.a & ~self.b)

    @property
    def only_b(self) -> tuple[Head, ...]:
        """Heads that only the second mask removes, in grid order."""
        return self._heads(self.b & ~self.a)

    @property
    def both(self) -> tuple[Head, ...]:
        """Heads that both masks remove, in grid order."""
        return self._heads(self.a & self.b)

    @property
    def jaccard(self) -> float:
        """Heads that both masks remove, as a share of those that either removes; 1 where neither removes any."""
        return jaccard(self.a, self.b)

    def _heads(self, which: Bools) -> tuple[Head, ...]:
        return tuple(self.grid.heads[i] for i in np.flatnonzero(which))


def jaccard(a: Bools, b: Bools) -> float:
    """|a and b| / |a or b| of two sets given as bool [head]; 1 for two empty ones."""
    either = int((a | b).sum())
    return int((a & b).sum()) / either if either else 1.0


def compare(a: Mask, b: Mask) -> Difference:
    """The heads two masks remove. Raises HeadlabError, naming both grids, unless they have the same grid."""
    same_grid([a, b])
    return Difference(a.grid, ~a.kept, ~b.kept)


def same_grid(masks: Sequence[Mask]) -> HeadGrid:
    """The common grid of some masks. Raises HeadlabError without masks, or if their grids differ."""
    if not masks:
        raise HeadlabError("no mask is given; name at least one mask file", code="mask.none")
    for mask in masks[1:]:
        if mask.grid != masks[0].grid:
            raise HeadlabError(
                f"the masks are for different models: one has {masks[0].grid}, another {mask.grid}. "
                "Give masks for one model",
                code="mask.other_grid",
            )
    return masks[0].grid


COUNTS = ("heads", "off in A", "off in B", "off in both", "only A", "only B", "Jaccard")


def by_layer_table(found: Difference) -> Table:
    """Heads off in each mask, in both and in only one, layer by layer."""
    parts = zip(by_layer(found.grid, found.a), by_layer(found.grid, found.b), strict=True)
    rows = [(stack, layer, *_counts(a, b)) for (stack, layer, a), (_, _, b) in parts]
    return Table(
        "mask-layers",
        "Heads off, by layer",
        ("stack", "layer", *COUNTS),
        ("", "d", *FORMATS),
        tuple(rows),
    )


def by_stack_table(found: Difference) -> Table:
    """Heads off in each mask, in both and in only one, stack by stack and in total."""
    names = np.array([head.stack for head in found.grid.heads])
    rows: list[tuple[Cell, ...]] = [
        (stack.name, *_counts(found.a[names == stack.name], found.b[names == stack.name]))
        for stack in found.grid.stacks
    ]
    if len(rows) > 1:
        rows.append(("all", *_counts(found.a, found.b)))
    return Table(
        "mask-stacks", "Heads off, by stack", ("stack", *COUNTS), ("", *FORMATS), tuple(rows)
    )


FORMATS = ("d", "d", "d", "d", "d", "d", ".2f")


def _counts(a: Bools, b: Bools) -> tuple[int | float, ...]:
    counts = (a, b, a & b, a & ~b, b & ~a)
    return (len(a), *(int(which.sum()) for which in counts), jaccard(a, b))


# Several masks combined: heads that all keep, that any keeps, or that most keep.

WAYS = {
    "and": "keeps the heads that all of them keep",
    "or": "keeps the heads that at least one of them keeps",
    "majority": "removes the heads that more than half of them remove",
}


def combine(masks: Sequence[Mask], how: str) -> Mask:
    """One mask combined from several of one model; `WAYS` says what each way keeps.

    Where some masks name a model by its fingerprint and others do not, `chosen["note"]` says so.

    Raises HeadlabError for an unknown way, for fewer than two masks, and for masks of more than one model.
    """
    if how not in WAYS:
        raise HeadlabError(
            f"unknown way to combine masks {how!r}; use {', '.join(WAYS)}", code="mask.way_unknown"
        )
    if len(masks) < 2:
        raise HeadlabError(
            f"{len(masks)} mask is given; name two or more to combine", code="mask.too_few"
        )
    grid, model = same_grid(masks), _one_model(masks)
    kept = combined(np.array([mask.kept for mask in masks]).reshape(len(masks), grid.size), how)
    parts = [_part_record(mask) for mask in masks]
    chosen: dict[str, JsonLike] = {"rule": f"combined: {how}", "combined": parts}
    for name in ("method", "estimand", "task"):
        common_value = parts[0].get(name)
        if common_value is not None and all(part.get(name) == common_value for part in parts):
            chosen[name] = common_value
    if (ablation := common_ablation({mask.ablation for mask in masks})) is not None:
        chosen["ablation"] = ablation
    loose = [mask for mask in masks if not mask.fingerprint]
    if loose and len(loose) < len(masks):
        chosen["note"] = (
            f"{len(loose)} of the {len(masks)} masks have no fingerprint, so whether they are of this model was not "
            "checked"
        )
    languages = [language for mask in masks for language in mask.languages]
    if languages:
        chosen["languages"] = list(dict.fromkeys(languages))
    return Mask(grid, kept, model, chosen)


def combined(kept: Bools, how: str) -> Bools:
    """Heads kept, bool [head], from the masks' bool [mask, head]; a tied majority keeps the head."""
    if how == "majority":
        return np.asarray(2 * (~kept).sum(axis=0) <= len(kept))
    return np.asarray(kept.all(axis=0) if how == "and" else kept.any(axis=0))


def _part_record(mask: Mask) -> dict[str, JsonLike]:
    """How a part was chosen, without its own accuracies and without the full spec of its scores."""
    part = {
        name: value
        for name, value in mask.chosen.items()
        if name not in ("evaluated", "score", "gates")
    }
    if mask.ablation is not None:
        part["ablation"] = mask.ablation
    return part | {"removed": len(mask.removed)}


def _one_model(masks: Sequence[Mask]) -> JsonRecord:
    named = {mask.fingerprint: mask.model for mask in masks if mask.fingerprint}
    if len(named) > 1:
        names = ", ".join(
            f"{shown(str(model.get('name')))} ({shown(fingerprint[:12])})"
            for fingerprint, model in named.items()
        )
        raise HeadlabError(
            f"the masks were made for different models: {names}. The shapes agree, but heads of one model say nothing "
            "about another's",
            code="mask.other_model",
        )
    if not named and len({mask.model.get("name") for mask in masks}) > 1:
        return {"name": None, "fingerprint": None}  # not known to be of one model
    return next(iter(named.values()), masks[0].model)


# Accuracies recorded in a mask: by split and language, with intervals.


class Seen(NamedTuple):
    """One language's figures on one split: accuracy, n, and the others listed in docs/mask-format.md."""

    split: str
    task: str
    language: str
    figure: RecordedAccuracy


def seen(mask: Mask) -> list[Seen]:
    """The accuracies recorded in a mask, split by split; empty if there are none."""
    return [
        Seen(split, part["task"], language, figure)
        for split, part in mask.evaluated.items()
        for language, figure in part["languages"].items()
    ]


def noted(
    chosen: JsonRecord,
    split: str,
    task: str,
    figures: Mapping[str, JsonRecord],
    **more: JsonLike,
) -> dict[str, JsonLike]:
    """`chosen` with the figures of a split ({language: figure}) added, replacing earlier ones of that split.

    Args:
        more: size, ablation and label_map, where known.
    """
    if not figures:
        return dict(chosen)
    part = {
        "task": task,
        **more,
        "languages": {name: dict(figure) for name, figure in figures.items()},
    }
    earlier = chosen.get("evaluated")
    evaluated = {**earlier, split: part} if record(earlier) else {split: part}
    return {**chosen, "evaluated": evaluated}


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
    """The accuracies recorded in masks, one row per mask, split and language.

    Args:
        masks: by the name to show.
    """
    rows = []
    for name, mask in masks.items():
        for split, task, language, figure in seen(mask):
            low, high = figure.get("low"), figure.get("high")
            interval = (
                None if low is None or high is None else f"{100 * low:+.1f} … {100 * high:+.1f}"
            )
            shares = [figure.get("accuracy"), figure.get("baseline"), figure.get("difference")]
            points = [None if share is None else 100 * share for share in shares]
            rows.append(
                (name, split, shown(task), shown(language), int(figure["n"]), *points, interval)
            )
    formats = ("", "", "", "", "d", ".1f", ".1f", "+.1f", "")
    return Table(
        "mask-accuracies", "Accuracies that the masks carry", COLUMNS, formats, tuple(rows)
    )


def accuracy_notes(masks: Iterable[Mask]) -> list[str]:
    """What stands beside the accuracies recorded in masks, each once.

    Such are the label map they were measured with, and what of the examples was cut or has no answer.
    """
    notes = list[str]()
    for mask in masks:
        for _, _, language, figure in seen(mask):
            if note := figure.get("note"):
                notes.append(shown(note, 500))
            if "examples_cut" in figure and (sentence := Omissions.from_json(figure).sentence):
                notes.append(shown(f"{language}: {sentence}.", 500))
    return list(dict.fromkeys(notes))
