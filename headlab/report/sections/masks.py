"""Masks as sections: which heads are kept, how they were chosen, and the known accuracies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from headlab.core import Cell, Table, by_layer, part
from headlab.jobs import subject_words
from headlab.jobs.experiment import largest_size
from headlab.jobs.table import MASK_PLACEHOLDER
from headlab.masks import MIXED_ABLATION, Mask, RecordedFigure, accuracy_notes, seen
from headlab.report.again import Again, joined
from headlab.report.commands import (
    MADE_FROM,
    NOT_SHRUNK,
    Known,
    MaskFile,
    mask_again,
    model_word,
    surroundings,
)
from headlab.report.maps import mask_cells, stack_maps
from headlab.report.parts import (
    MAX_VALUE_LENGTH,
    Facts,
    Folded,
    Item,
    Made,
    ReportFigure,
    Section,
    as_text,
)

EVALUATED = "evaluated"
UNNAMED = "not said"
MODEL = "MODEL"  # stands for a model that the file does not name
HIDDEN = (*MADE_FROM, EVALUATED)  # parts of how heads were chosen that are no facts of their own
MAX_OPEN_ROWS = 12  # of the table of layers; a longer one is folded


class NumberColumn(NamedTuple):
    """How a number in a mask file is shown.

    Attributes:
        title: Of its column; {} stands for what the mask switches.
        number_format: As in `format`.
        factor: From the number in the file to the number shown.
    """

    title: str
    number_format: str
    factor: int = 100


NUMBER_COLUMNS = {
    "n": NumberColumn("answers", ",d", 1),
    "accuracy": NumberColumn("accuracy, %", ".1f"),
    "accuracy_low": NumberColumn("accuracy low, %", ".1f"),
    "accuracy_high": NumberColumn("accuracy high, %", ".1f"),
    "baseline": NumberColumn("all {}, %", ".1f"),
    "difference": NumberColumn("difference, points", "+.1f"),
    "low": NumberColumn("low, points", "+.1f"),
    "high": NumberColumn("high, points", "+.1f"),
    "p": NumberColumn("p", ".4f", 1),
}


def mask_section(item: Item[Mask], number: int, known: Known) -> Section:
    """The section of one mask.

    Args:
        item: The mask.
        number: Its number among several masks, from 1; 0 if it is the only one.
        known: What the store of the report knows.
    """
    mask = item.record
    name = str(mask.model.get("name") or UNNAMED)
    removed = len(mask.removed)
    maps = stack_maps(
        mask.grid, mask_cells(mask.grid, mask.kept), f"{mask.grid.noun} kept and removed"
    )
    caption = f"Dark is kept, a cross is removed: {removed} of {mask.grid.size} {mask.grid.noun}."
    layers = _layer_table(mask)
    return Section(
        f"Mask {item.key}: {mask.grid.size - removed} of {mask.grid.size} {mask.grid.noun} kept",
        "mask",
        (name, str(mask.model.get("fingerprint") or "")),
        [ReportFigure(maps, caption)],
        [layers if len(layers.rows) <= MAX_OPEN_ROWS else Folded(layers), *_accuracy_tables(mask)],
        list(_notes(mask)),
        [Made(item.key, "mask", _facts(mask))],
        mask_commands(item, number, known),
    )


def _layer_table(mask: Mask) -> Table:
    """A row per layer; stacks are named if there are several."""
    columns = ["layer", "kept", "of", f"removed {mask.grid.noun}"]
    formats = ["d", "d", "d", ""]
    has_stacks = len(mask.grid.stacks) > 1
    titles = {stack.name: stack.title for stack in mask.grid.stacks}
    if has_stacks:
        columns.insert(0, "stack")
        formats.insert(0, "")
    rows: list[tuple[Cell, ...]] = []
    for stack, layer, kept in by_layer(mask.grid, mask.kept):
        removed = [str(head) for head, is_kept in enumerate(kept.tolist()) if not is_kept]
        row = (layer, int(kept.sum()), len(kept), ", ".join(removed) or "none")
        rows.append((titles[stack], *row) if has_stacks else row)
    return Table("mask-layers", "By layer", tuple(columns), tuple(formats), tuple(rows))


def _accuracy_tables(mask: Mask) -> Iterator[Table]:
    """The accuracies in the file, one table per split and task.

    Columns without a number are left out.
    """
    by_split_and_task: dict[tuple[str, str], list[RecordedFigure]] = {}
    for accuracy in seen(mask):
        by_split_and_task.setdefault((accuracy.split, accuracy.task), []).append(accuracy)
    for (split, task), accuracies in by_split_and_task.items():
        columns = {
            field: column
            for field, column in NUMBER_COLUMNS.items()
            if any(accuracy.figure.get(field) is not None for accuracy in accuracies)
        }
        rows: list[tuple[Cell, ...]] = []
        for accuracy in accuracies:
            numbers = [
                _number(accuracy.figure.get(field), column.factor)
                for field, column in columns.items()
            ]
            rows.append((accuracy.language, *numbers))
        yield Table(
            f"mask-{split}",
            f"Accuracy with the mask on {task}, {split}",
            ("language", *(column.title.format(mask.grid.noun) for column in columns.values())),
            ("", *(column.number_format for column in columns.values())),
            tuple(rows),
        )


def _number(value: Any, factor: int) -> Cell:
    """A number of a mask file in the unit shown."""
    if value is None:
        return None
    number: Cell = value if factor == 1 else float(factor * value)
    return number


def _facts(mask: Mask) -> Facts:
    """What the file says of the model, of how the heads were chosen, and of itself."""
    values: dict[str, object] = {}
    for name, value in mask.model.items():
        values["model" if name == "name" else name] = value
    rows = [
        *values.items(),
        (mask.grid.noun, str(mask.grid)),
        *((name, value) for name, value in mask.chosen.items() if name not in HIDDEN),
        ("digest (sha256)", mask.digest),
        ("versions", mask.versions or None),
        ("written", mask.created),
    ]
    return tuple(
        (name.replace("_", " "), as_text(value, name)[:MAX_VALUE_LENGTH])
        for name, value in rows
        if value is not None
    )


def mask_commands(item: Item[Mask], number: int, known: Known) -> Again:
    """How a mask is made again, evaluated and applied.

    Args:
        item: The mask.
        number: Its number among several masks, from 1; 0 if it is the only one.
        known: What the store of the report knows.
    """
    mask = item.record
    spec = _recorded_spec(mask)
    name = str(mask.model.get("name") or MODEL)
    model = model_word(name, known.places(spec).model)
    notes = []
    if name == MODEL:
        notes.append("The file names no model: put yours in place of MODEL.")
    is_whole_file = item.key == item.file  # and not one of several things in its file
    is_json_file = is_whole_file and item.key.endswith(".json")
    path = item.path if is_whole_file else ""
    if not path and not is_json_file:
        path = MASK_PLACEHOLDER
        notes.append(
            f"{MASK_PLACEHOLDER} stands for this mask ({item.key}): save it under that name, or put its "
            "path in its place."
        )
    output = item.key if is_json_file else MASK_PLACEHOLDER
    making = mask_again(MaskFile(mask, model, output, known))
    model_and_mask = ["--model", model, "--mask", path or item.key]
    evaluate_flags = _evaluate_flags(mask, {**spec, "model": dict(mask.model)}, known)
    commands = [("headlab", "evaluate", *model_and_mask, *evaluate_flags)]
    if mask.of_means or mask.beyond_weights:
        notes.append(NOT_SHRUNK)
    else:
        folder = f"smaller-{number}" if number else "smaller"
        commands.append(("headlab", "shrink", *model_and_mask, "--out", folder))
    return joined([making, Again(tuple(commands), tuple(notes))])


def _recorded_spec(mask: Mask) -> Mapping[str, object]:
    """The spec that a mask's heads were chosen by, or else what the mask says of task and model."""
    specs = (mask.chosen.get(name) for name in MADE_FROM)
    recorded = next((spec for spec in specs if part(spec, "task", "name")), None)
    if isinstance(recorded, Mapping):
        return recorded
    task = mask.chosen.get("task")
    return {"model": dict(mask.model), "task": {"name": task} if task else {}}


def _evaluate_flags(mask: Mask, spec: Mapping[str, object], known: Known) -> list[str]:
    """Flags of `headlab evaluate`: what a mask was chosen for, and the examples of its figures.

    Args:
        mask: The mask.
        spec: That its heads were chosen by.
        known: What the store of the report knows.
    """
    test = part(mask.chosen, EVALUATED, "test") or {}
    surroundings_of_spec = surroundings(spec, known.places(spec), paths=False)
    task = part(spec, "task", "name")
    if not isinstance(task, str):  # a file of anybody's may hold anything there
        task = None
    flags = ["--split", "test"]
    if task or surroundings_of_spec.data:
        label_map = test.get("label_map")
        if not isinstance(label_map, Mapping):
            label_map = part(spec, "task", "classes")
        flags += subject_words(
            replace(surroundings_of_spec, model=None),
            task=task,
            label_map=label_map,
            languages=list(mask.languages) if mask.languages else None,
        )
    size = test.get("size")
    if not size and test:
        size = largest_size(part(spec, "task", "sizes", "test"))
    ablation = test.get("ablation") or None
    if not ablation and mask.ablation == MIXED_ABLATION:
        ablation = "zero"  # of several, headlab evaluate has to be told one
    for flag, value in (("--size", size), ("--ablation", ablation)):
        if value is not None:
            flags += [flag, str(value)]
    return flags


def _notes(mask: Mask) -> Iterator[str]:
    if 2 * len(mask.removed) > mask.grid.size:
        yield (
            f"This mask removes more than half of the {mask.grid.noun}: few models keep their accuracy "
            "beyond that."
        )
    if not seen(mask):
        yield "The file carries no accuracies: judge the mask on test, by the command below."
    yield from accuracy_notes({"": mask})
    yield (
        f"A mask alone makes a model no faster: it switches {mask.grid.noun} off. headlab shrink takes "
        "them out."
    )
