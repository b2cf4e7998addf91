"""`headlab mask show|validate|diff|combine`: what mask files say, and one made of several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headlab.cli.mask_convert import convert, snippet
from headlab.cli.output import AsJson, print_json
from headlab.errors import HeadlabError
from headlab.masks import WAYS, Mask, load_mask
from headlab.masks import combine as combine_masks
from headlab.masks.compare import accuracy_table, by_layer_table, by_stack_table
from headlab.masks.compare import compare as compare_masks
from headlab.masks.mask import LINE, shown
from headlab.records import Head, by_layer

MaskFile = Annotated[Path, typer.Argument(help="mask file of headlab")]


def group() -> typer.Typer:
    """The commands of the group."""
    made = typer.Typer(
        help="Mask files: read, compare, convert and combine.", no_args_is_help=True, rich_markup_mode=None
    )
    for name, command in (
        ("show", show), ("validate", validate), ("diff", diff), ("combine", combine), ("convert", convert),
        ("snippet", snippet),
    ):  # fmt: skip
        made.command(name)(command)
    return made


def show(file: MaskFile, json: AsJson = False) -> None:
    """What a mask removes, of what model, how it was chosen, and the accuracies it carries."""
    mask = load_mask(file)
    if json:
        print_json(mask.to_json())
        return
    typer.echo(f"{file}: {_counted(mask)}")
    typer.echo(f"model: {model_words(mask)}")
    typer.echo(f"chosen: {chosen_words(mask.chosen)}")
    typer.echo(map_words(mask))
    found = accuracy_table({file.name: mask})
    if found.rows:
        typer.echo(found.markdown())
    made = shown(", ".join(f"{name} {version}" for name, version in (mask.versions or {}).items()))
    typer.echo(f"made {mask.created or 'at a time it does not say'}" + (f" with {made}" if made else ""))


def validate(file: MaskFile, json: AsJson = False) -> None:
    """Exit with 0 if a file is a mask that headlab reads, with 2 and the reason if not."""
    mask = load_mask(file)
    if json:
        print_json({"valid": True, "heads": mask.grid.size, "removed": len(mask.removed), "digest": mask.digest})
    else:
        typer.echo(f"{file} is a valid mask: {_counted(mask)}, for {model_words(mask)}.")


def diff(first: MaskFile, second: MaskFile, json: AsJson = False) -> None:
    """What only one of two masks removes, by layer and stack, and how alike they are (Jaccard index)."""
    a, b = load_mask(first), load_mask(second)
    found = compare_masks(a, b)
    lists = {"only_a": found.only_a, "only_b": found.only_b, "both": found.both}
    if json:
        named = {name: [list(head) for head in heads] for name, heads in lists.items()}
        print_json({"a": str(first), "b": str(second), "jaccard": found.jaccard, **named})
        return
    for letter, file, mask in (("A", first, a), ("B", second, b)):
        typer.echo(f"{letter} = {file}: {_counted(mask)}, for {model_words(mask)}")
    for words, heads in zip(("only A removes", "only B removes", "both remove"), lists.values(), strict=True):
        typer.echo(f"{words} {len(heads)}: {_listed(heads)}")
    typer.echo(f"Jaccard {found.jaccard:.3f}\n")
    typer.echo(by_layer_table(found).markdown() + "\n")
    typer.echo(by_stack_table(found).markdown())
    accuracies = accuracy_table({"A": a, "B": b})
    if accuracies.rows:
        typer.echo("\n" + accuracies.markdown())


def combine(
    files: Annotated[list[Path], typer.Argument(help="two mask files or more, of one model")],
    out: Annotated[Path, typer.Option(help="mask file to write")],
    how: Annotated[str, typer.Option(help="; ".join(f"{way}: {words}" for way, words in WAYS.items()))] = "majority",
    json: AsJson = False,
) -> None:
    """Make one mask of several, such as those of many languages."""
    masks = [load_mask(file) for file in files]
    for file in files:
        if out.exists() and out.samefile(file):
            raise HeadlabError(
                f"--out is {file}, one of the masks to combine, which would be lost; name another file",
                code="output.is_input_mask",
            )
    made = combine_masks(masks, how)
    made.save(out)
    if note := made.chosen.get("note"):
        typer.echo(f"headlab: note: {note}", err=True)
    if json:
        print_json({"how": how, "masks": len(masks), "heads": made.grid.size, "removed": len(made.removed)})
    else:
        typer.echo(f"{out}: {_counted(made)}; {how} of {len(masks)} masks {WAYS[how]}")


def _counted(mask: Mask) -> str:
    return f"{len(mask.removed)} of {mask.grid.size} heads off ({mask.grid})"


def model_words(mask: Mask) -> str:
    """The model a mask was made for, on one line."""
    model = mask.model
    name, fingerprint = shown(model.get("name") or ""), model.get("fingerprint")
    if not fingerprint:
        return f"{name or 'no one model'} (without a fingerprint, so only the grid is checked)"
    words = f"{name or 'a model without a name'}, fingerprint {shown(fingerprint[:12])}"
    if (kind := model.get("architecture")) is not None:
        words += f", {shown(kind['class'])} ({shown(kind['model_type'])})"
    return words


def chosen_words(chosen: Mapping[str, Any]) -> str:
    """How a mask was chosen, on one line: what is short enough for it."""
    if not chosen:
        return "the file does not say"
    parts = []
    for name, value in chosen.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            parts.append(shown(f"{name} {value}", longest=4 * LINE))
        elif isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
            parts.append(shown(f"{name} {', '.join(map(str, value))}", longest=4 * LINE))
    return "; ".join(parts) or "the file holds the details"


def map_words(mask: Mask) -> str:
    """The mask as a map in text: a dot for a head that is kept, x for one that is off."""
    lines = []
    for stack, layer, kept in by_layer(mask.grid, mask.kept):
        lines.append(f"{stack:>8} {layer:>3}  {' '.join('.' if on else 'x' for on in kept)}  {int((~kept).sum())} off")
    return "\n".join(lines)


def _listed(heads: tuple[Head, ...]) -> str:
    return ", ".join(map(str, heads)) or "none"
