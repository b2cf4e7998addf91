"""Masks side by side: their differences, combined masks, and the accuracies recorded in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headlab.core import (
    HEADS,
    Bools,
    Cell,
    Head,
    HeadGrid,
    HeadlabError,
    JsonLike,
    JsonRecord,
    Omissions,
    Table,
    ablation_title,
    by_layer,
    replacement_of,
)
from headlab.masks.mask import (
    MIXED_ABLATION,
    Mask,
    RecordedAccuracy,
    as_safe_line,
    common_ablation,
    is_object,
)

# Two masks side by side: heads removed by only one of them, and their similarity.


@dataclass(frozen=True)
class MaskDifference:
    """Heads removed by two masks of one grid, bool [head] for each."""

    grid: HeadGrid
    removed_by_a: Bools
    removed_by_b: Bools

    @property
    def only_a(self) -> tuple[Head, ...]:
        """Heads that only the first mask removes, in grid order."""
        return self._heads(self.removed_by_a & ~self.removed_by_b)

    @property
    def only_b(self) -> tuple[Head, ...]:
        """Heads that only the second mask removes, in grid order."""
        return self._heads(self.removed_by_b & ~self.removed_by_a)

    @property
    def removed_by_both(self) -> tuple[Head, ...]:
        """Heads that both masks remove, in grid order."""
        return self._heads(self.removed_by_a & self.removed_by_b)

    @property
    def jaccard(self) -> float:
        """Heads that both masks remove, as a share of those that either removes.

        It is 1 where neither removes any.
        """
        return jaccard(self.removed_by_a, self.removed_by_b)

    def _heads(self, in_set: Bools) -> tuple[Head, ...]:
        return tuple(self.grid.heads[index] for index in np.flatnonzero(in_set))


def jaccard(in_a: Bools, in_b: Bools) -> float:
    """Size of the intersection of two sets over that of their union; 1 for two empty sets.

    Args:
        in_a: bool [head], whether each head is in the first set.
        in_b: bool [head], whether each head is in the second set.
    """
    union_size = int((in_a | in_b).sum())
    if union_size == 0:
        return 1.0
    return int((in_a & in_b).sum()) / union_size


def compare_masks(mask_a: Mask, mask_b: Mask) -> MaskDifference:
    """The heads that two masks remove.

    Raises:
        HeadlabError: The masks have different grids; the message names both.
    """
    same_grid([mask_a, mask_b])
    return MaskDifference(mask_a.grid, ~mask_a.kept, ~mask_b.kept)


def same_grid(masks: Sequence[Mask]) -> HeadGrid:
    """The common grid of several masks.

    Raises:
        HeadlabError: There is no mask, or their grids differ.
    """
    if not masks:
        raise HeadlabError("no mask is given; name at least one mask file", code="mask.none")
    for mask in masks[1:]:
        if mask.grid != masks[0].grid:
            raise HeadlabError(
                f"the masks are for different models: one has {masks[0].grid}, another "
                f"{mask.grid}. Give masks for one model",
                code="mask.other_grid",
            )
    return masks[0].grid


COUNT_COLUMNS = (HEADS, "off in A", "off in B", "off in both", "only A", "only B", "Jaccard")


def _count_columns(grid: HeadGrid) -> tuple[str, ...]:
    """The columns of counts, of which the first says what is counted."""
    return (grid.noun, *COUNT_COLUMNS[1:])


def _table_title(grid: HeadGrid, parts: str) -> str:
    """What a table counts, by layer or by stack."""
    return f"{grid.noun[0].upper()}{grid.noun[1:]} off, by {parts}"


def removed_by_layer(difference: MaskDifference) -> Table:
    """Heads off in each mask, in both and in only one, layer by layer."""
    grid = difference.grid
    titles = {stack.name: stack.title for stack in grid.stacks}
    layers_of_a = by_layer(difference.grid, difference.removed_by_a)
    layers_of_b = by_layer(difference.grid, difference.removed_by_b)
    rows = []
    for (stack, layer, off_a), (_, _, off_b) in zip(layers_of_a, layers_of_b, strict=True):
        rows.append((titles[stack], layer, *_overlap_counts(off_a, off_b)))
    return Table(
        "mask-layers",
        _table_title(grid, "layer"),
        ("stack", "layer", *_count_columns(grid)),
        ("", "d", *COUNT_FORMATS),
        tuple(rows),
    )


def removed_by_stack(difference: MaskDifference) -> Table:
    """Heads off in each mask, in both and in only one, stack by stack and in total."""
    stack_names = np.array([head.stack for head in difference.grid.heads])
    rows: list[tuple[Cell, ...]] = []
    for stack in difference.grid.stacks:
        in_stack = stack_names == stack.name
        counts = _overlap_counts(
            difference.removed_by_a[in_stack], difference.removed_by_b[in_stack]
        )
        rows.append((stack.title, *counts))
    if len(rows) > 1:
        rows.append(("all", *_overlap_counts(difference.removed_by_a, difference.removed_by_b)))
    return Table(
        "mask-stacks",
        _table_title(difference.grid, "stack"),
        ("stack", *_count_columns(difference.grid)),
        ("", *COUNT_FORMATS),
        tuple(rows),
    )


COUNT_FORMATS = ("d", "d", "d", "d", "d", "d", ".2f")


def _overlap_counts(off_a: Bools, off_b: Bools) -> tuple[int | float, ...]:
    """The cells of `COUNT_COLUMNS` for heads off in each of two masks, bool [head]."""
    head_sets = (off_a, off_b, off_a & off_b, off_a & ~off_b, off_b & ~off_a)
    sizes = (int(heads.sum()) for heads in head_sets)
    return (len(off_a), *sizes, jaccard(off_a, off_b))


# Several masks combined: heads that all keep, that any keeps, or that most keep.

COMBINATIONS = {
    "and": "keeps the heads that all of them keep",
    "or": "keeps the heads that at least one of them keeps",
    "majority": "removes the heads that more than half of them remove",
}


def combine_masks(masks: Sequence[Mask], way: str) -> Mask:
    """One mask combined from several of one model; `COMBINATIONS` says what each way keeps.

    Where some masks name a model by its fingerprint and others do not, `chosen["note"]` says so.

    Raises HeadlabError for an unknown way, for fewer than two masks, and for masks of more than one
    model.
    """
    if way not in COMBINATIONS:
        raise HeadlabError(
            f"unknown way to combine masks {way!r}; use {', '.join(COMBINATIONS)}",
            code="mask.way_unknown",
        )
    if len(masks) < 2:
        raise HeadlabError(
            f"{len(masks)} mask is given; name two or more to combine", code="mask.too_few"
        )
    grid = same_grid(masks)
    model = _one_model(masks)
    kept_by_mask = np.array([mask.kept for mask in masks]).reshape(len(masks), grid.size)
    kept_heads = combine_kept_heads(kept_by_mask, way)
    parts = [_part_record(mask) for mask in masks]
    choice: dict[str, JsonLike] = {"rule": f"combined: {way}", "combined": parts}
    for name in ("method", "estimand", "task"):
        common_value = parts[0].get(name)
        if common_value is not None and all(part.get(name) == common_value for part in parts):
            choice[name] = common_value
    ablation = common_ablation({mask.ablation for mask in masks})
    if ablation is not None:
        choice["ablation"] = ablation
    without_fingerprint = [mask for mask in masks if not mask.fingerprint]
    if without_fingerprint and len(without_fingerprint) < len(masks):
        choice["note"] = (
            f"{len(without_fingerprint)} of the {len(masks)} masks have no fingerprint, so whether "
            "they are of this model was not checked"
        )
    languages = [language for mask in masks for language in mask.languages]
    if languages:
        choice["languages"] = list(dict.fromkeys(languages))
    return Mask(grid, kept_heads, model, choice)


def combine_kept_heads(kept_by_mask: Bools, way: str) -> Bools:
    """Heads that a combination keeps, bool [head]; a tied majority keeps the head.

    Args:
        kept_by_mask: bool [mask, head], the heads that each mask keeps.
        way: One of `COMBINATIONS`.
    """
    if way == "majority":
        removals = (~kept_by_mask).sum(axis=0)
        return np.asarray(2 * removals <= len(kept_by_mask))
    if way == "and":
        return np.asarray(kept_by_mask.all(axis=0))
    return np.asarray(kept_by_mask.any(axis=0))


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
    """The model that masks were made for, as a mask records it.

    Raises:
        HeadlabError: Masks name different models.
    """
    model_by_fingerprint = {mask.fingerprint: mask.model for mask in masks if mask.fingerprint}
    if len(model_by_fingerprint) > 1:
        names = ", ".join(
            f"{as_safe_line(str(model.get('name')))} ({as_safe_line(fingerprint[:12])})"
            for fingerprint, model in model_by_fingerprint.items()
        )
        raise HeadlabError(
            f"the masks were made for different models: {names}. The shapes agree, but heads of "
            "one model say nothing about another's",
            code="mask.other_model",
        )
    if not model_by_fingerprint and len({mask.model.get("name") for mask in masks}) > 1:
        return {"name": None, "fingerprint": None}  # not known to be of one model
    return next(iter(model_by_fingerprint.values()), masks[0].model)


# Accuracies recorded in a mask: by split and language, with intervals.


class RecordedFigure(NamedTuple):
    """One language's figures on one split.

    They are accuracy, n, and the others that docs/mask-format.md lists.
    """

    split: str
    task: str
    language: str
    figure: RecordedAccuracy


def seen(mask: Mask) -> list[RecordedFigure]:
    """The accuracies recorded in a mask, split by split; empty if there are none."""
    return [
        RecordedFigure(split, split_record["task"], language, figure)
        for split, split_record in mask.evaluated.items()
        for language, figure in split_record["languages"].items()
    ]


def noted(
    choice: JsonRecord,
    split: str,
    task: str,
    figures: Mapping[str, JsonRecord],
    **split_fields: JsonLike,
) -> dict[str, JsonLike]:
    """`choice` with the figures of a split added, replacing earlier ones of that split.

    Args:
        choice: How a mask was chosen, as its file records it.
        split: The split of the figures.
        task: Name of the task.
        figures: The figures of each language.
        split_fields: size, ablation and label_map, where known.
    """
    if not figures:
        return dict(choice)
    split_record = {
        "task": task,
        **split_fields,
        "languages": {name: dict(figure) for name, figure in figures.items()},
    }
    earlier = choice.get("evaluated")
    accuracies_by_split = dict(earlier) if is_object(earlier) else {}
    accuracies_by_split[split] = split_record
    return {**choice, "evaluated": accuracies_by_split}


ABLATION_COLUMN = "ablation"
"""Of the table of accuracies, where one was not measured under zero ablation."""
ACCURACY_COLUMNS = (
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

    Where one was measured, or a mask was chosen, under another ablation than zero, a column says
    which the accuracies are by.

    Args:
        masks: Masks by the name to show.
    """
    rows: list[tuple[Cell, ...]] = []
    ablations = []
    for name, mask in masks.items():
        for split, task, language, figure in seen(mask):
            low = figure.get("low")
            high = figure.get("high")
            interval = None
            if low is not None and high is not None:
                interval = f"{100 * low:+.1f} … {100 * high:+.1f}"
            shares = [figure.get("accuracy"), figure.get("baseline"), figure.get("difference")]
            points = [None if share is None else 100 * share for share in shares]
            rows.append(
                (
                    name,
                    split,
                    as_safe_line(task),
                    as_safe_line(language),
                    int(figure["n"]),
                    *points,
                    interval,
                )
            )
            ablations.append(mask.evaluated[split].get("ablation"))
    columns: tuple[str, ...] = ACCURACY_COLUMNS
    formats: tuple[str, ...] = ("", "", "", "", "d", ".1f", ".1f", "+.1f", "")
    chosen_ablations = {mask.ablation for mask in masks.values()}
    if not {*ablations, *chosen_ablations} <= {None, "zero"}:
        columns += (ABLATION_COLUMN,)
        formats += ("",)
        rows = [
            (*row, "not said" if ablation is None else ablation_title(ablation))
            for row, ablation in zip(rows, ablations, strict=True)
        ]
    return Table(
        "mask-accuracies", "Accuracies that the masks carry", columns, formats, tuple(rows)
    )


def _ablation_notes(mask: Mask) -> Iterator[str]:
    """Under which ablation the accuracies in a mask were measured, where that is not plain zero."""
    chosen = mask.ablation
    for split, split_record in mask.evaluated.items():
        measured = split_record.get("ablation")
        if measured in (None, "zero") and chosen in (None, "zero"):
            continue
        if measured is None:
            yield (
                f"{split}: the file does not say what the removed gave when its accuracies were "
                f"measured; {_chosen_words(mask)}."
            )
            continue
        as_chosen = f"as the {mask.grid.noun} were chosen"
        if measured != chosen:
            as_chosen = f"and {_chosen_words(mask)}"
        yield (
            f"{split}: measured with {ablation_title(measured)} ablation (what is removed gives "
            f"{replacement_of(measured)}), {as_chosen}."
        )


def _chosen_words(mask: Mask) -> str:
    """Under which ablation a mask was chosen, as the end of a sentence."""
    noun = mask.grid.noun
    if mask.ablation is None:
        return f"it is not recorded under which ablation the {noun} were chosen"
    if mask.ablation == MIXED_ABLATION:
        return f"the {noun} were chosen under several ablations"
    return f"the {noun} were chosen under {ablation_title(mask.ablation)} ablation"


def accuracy_notes(masks: Mapping[str, Mask]) -> list[str]:
    """The notes beside the accuracies recorded in masks, each once.

    They tell which ablation and label map the accuracies were measured with, and which examples
    were cut or have no answer. Of several masks, each note names those that it is of.

    Args:
        masks: Masks by the name to show, as for `accuracy_table`.
    """
    names_by_note: dict[str, list[str]] = {}
    for name, mask in masks.items():
        for note in dict.fromkeys(_notes_of(mask)):
            names_by_note.setdefault(note, []).append(name)
    if len(masks) < 2:
        return list(names_by_note)
    return [f"{', '.join(names)}: {note}" for note, names in names_by_note.items()]


def _notes_of(mask: Mask) -> Iterator[str]:
    """The notes beside the accuracies recorded in one mask, some of them several times."""
    yield from _ablation_notes(mask)
    for _, _, language, figure in seen(mask):
        note = figure.get("note")
        if note:
            yield as_safe_line(note, 500)
        if "examples_cut" in figure:
            sentence = Omissions.from_json(figure).sentence
            if sentence:
                yield as_safe_line(f"{language}: {sentence}.", 500)
