"""Masks as sections: which heads are kept, how that was chosen, and what is known of their worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from headlab.htmlreport.commands import LANGUAGES, Again, joined, part
from headlab.htmlreport.facts import LONGEST, told
from headlab.htmlreport.maps import mask_cells, stack_maps
from headlab.htmlreport.masks_made import MADE_FROM, cut
from headlab.htmlreport.parts import Facts, Figure, Folded, Item, Made, Section
from headlab.masks import Mask
from headlab.masks.compare import Seen, seen
from headlab.records import by_layer
from headlab.tables import Cell, Table

EVALUATED, UNNAMED = "evaluated", "not said"
MODEL, MASK = "MODEL", "MASK.json"  # stand for what the file does not name


class Number(NamedTuple):
    """How a number that a mask carries is shown."""

    column: str
    form: str
    factor: int = 100


NUMBERS = {
    "n": Number("answers", ",d", 1),
    "accuracy": Number("accuracy, %", ".1f"),
    "accuracy_low": Number("accuracy low, %", ".1f"),
    "accuracy_high": Number("accuracy high, %", ".1f"),
    "baseline": Number("all heads, %", ".1f"),
    "difference": Number("difference, points", "+.1f"),
    "low": Number("low, points", "+.1f"),
    "high": Number("high, points", "+.1f"),
    "p": Number("p", ".4f", 1),
}


def section(item: Item, mask: Mask, number: int = 0) -> Section:
    """The section of one mask. number: which of several it is, from 1; 0 where it is the only one."""
    name, gone = str(mask.model.get("name") or UNNAMED), len(mask.removed)
    model = (name, str(mask.model.get("fingerprint") or ""))
    drawn = stack_maps(mask.grid, mask_cells(mask.grid, mask.kept), "heads kept and removed")
    layers = _layers(mask)
    tables: list[Table | Folded] = [layers if len(layers.rows) <= 12 else Folded(layers), *_worth(mask)]
    made = Made(item.key, "mask", _facts(mask))
    caption = f"Blue is kept, a cross is removed: {gone} of {mask.grid.size} heads."
    return Section(
        f"Mask {item.key}: {mask.grid.size - gone} of {mask.grid.size} heads kept", "mask", model,
        [Figure(drawn, caption)], tables, list(_notes(mask)), [made], _again(item, mask, name, number),
    )  # fmt: skip


def _layers(mask: Mask) -> Table:
    several = len(mask.grid.stacks) > 1
    rows = tuple(
        (*((stack,) if several else ()), layer, int(kept.sum()), len(kept),
         ", ".join(str(head) for head, stays in enumerate(kept.tolist()) if not stays) or "none")
        for stack, layer, kept in by_layer(mask.grid, mask.kept)
    )  # fmt: skip
    columns = ("layer", "kept", "of", "removed heads")
    forms = ("d", "d", "d", "")
    if several:
        columns, forms = ("stack", *columns), ("", *forms)  # type: ignore[assignment] # one column more
    return Table("mask-layers", "By layer", columns, forms, rows)


def _worth(mask: Mask) -> Iterator[Table]:
    """The accuracies that the file carries, a table a split; columns that no language has are left out."""
    parts: dict[tuple[str, str], list[Seen]] = {}
    for one in seen(mask):
        parts.setdefault((one.split, one.task), []).append(one)
    for (split, task), rows in parts.items():
        given = [name for name in NUMBERS if any(one.figure.get(name) is not None for one in rows)]
        cells = tuple((one.language, *(_cell(one.figure.get(name), NUMBERS[name]) for name in given)) for one in rows)
        columns = ("language", *(NUMBERS[name].column for name in given))
        forms = ("", *(NUMBERS[name].form for name in given))
        yield Table(f"mask-{split}", f"Accuracy with the mask on {task}, {split}", columns, forms, cells)


def _cell(value: Any, how: Number) -> Cell:
    return None if value is None else float(how.factor * value) if how.factor != 1 else value


def _facts(mask: Mask) -> Facts:
    chosen = {name: value for name, value in mask.chosen.items() if name not in (*MADE_FROM, EVALUATED)}
    model = {("model" if name == "name" else name): value for name, value in mask.model.items()}
    rows = [*model.items(), ("heads", str(mask.grid)), *chosen.items(), ("digest (sha256)", mask.digest)]
    rows += [("versions", mask.versions or None), ("written", mask.created)]
    return tuple((name.replace("_", " "), told(value)[:LONGEST]) for name, value in rows if value is not None)


def _again(item: Item, mask: Mask, name: str, number: int) -> Again:
    """How it is made again, judged and applied."""
    model, file = MODEL if name == UNNAMED else name, item.key
    notes = ["The file names no model: put yours in place of MODEL."] if name == UNNAMED else []
    if item.key != item.file or not item.key.endswith(".json"):
        file = MASK
        notes.append(
            f"{MASK} stands for this mask ({item.key}): save it under that name, or put its path in its place."
        )
    elif "/" in item.key:
        notes.append(f"{item.key} is the end of its path: give the path that it has where you are.")
    made = cut(mask, model, file)
    about = ["--model", model, "--mask", file]
    use = ["headlab", "evaluate", *about, "--split", "test", *_asked(mask)]
    shrink = ["headlab", "shrink", *about, "--out", f"smaller-{number}" if number else "smaller"]
    return joined([made, Again((tuple(use), tuple(shrink)), tuple(notes))])


def _asked(mask: Mask) -> list[str]:
    """Task and languages that its heads were chosen for."""
    specs = (mask.chosen.get(name) for name in MADE_FROM)
    task = next((found for spec in specs if (found := part(spec, "task", "name"))), None) or mask.chosen.get("task")
    languages = mask.chosen.get("languages")
    return [
        *(["--task", str(task)] if task else []),
        *([LANGUAGES, ",".join(map(str, languages))] if languages else []),
    ]


def _notes(mask: Mask) -> Iterator[str]:
    if 2 * len(mask.removed) > mask.grid.size:
        yield "This mask removes more than half of the heads: few models keep their accuracy beyond that."
    if not seen(mask):
        yield "The file carries no accuracies: judge the mask on test, by the command below."
    yield "A mask alone makes a model no faster: it switches heads off. headlab shrink takes them out."
