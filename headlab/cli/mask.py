"""`headlab mask show|validate|diff|combine|convert|snippet`: read, compare and convert masks."""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from headlab.cli.evaluate import load_for_mask
from headlab.cli.output import AsJson, Device, print_json
from headlab.core import (
    MAX_JSON_BYTES,
    Head,
    HeadGrid,
    HeadlabError,
    JsonLike,
    by_layer,
    player_name,
    write_atomic,
)
from headlab.masks import (
    COMBINATIONS,
    FORMS,
    MAX_LINE_LENGTH,
    OPTIONS_BY_FORM,
    Mask,
    accuracy_notes,
    accuracy_table,
    as_safe_line,
    convert_in,
    convert_out,
    form_of_file,
    load_mask,
    parse_grid,
    removed_by_layer,
    removed_by_stack,
)
from headlab.masks import combine_masks as combine_masks
from headlab.masks import compare_masks as compare_masks
from headlab.masks import mask_script as snippet_of

# `headlab mask convert|snippet`: masks of other tools, and code that applies masks without headlab.

FORM_HELP = ", ".join(FORMS)
BINARY = ".npy"
MEANINGS = ("kept", "removed")


def convert(
    source: Annotated[
        str, typer.Argument(help='mask file of any form, or the heads themselves: "9:3 10:10"')
    ],
    out: Annotated[
        Path | None, typer.Option(help="file to write (.npy for arrays and pairs); default stdout")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--from", help=f"source form: {FORM_HELP}; default: detected")
    ] = None,
    target_form: Annotated[
        str, typer.Option("--to", help=f"form to write: {FORM_HELP}")
    ] = "headlab",
    model: Annotated[
        str | None, typer.Option(help="model it is for: gives the grid and the fingerprint")
    ] = None,
    grid: Annotated[
        str | None, typer.Option(help="12x12 (layers x heads), 4/4/3, or encoder=6x8,decoder=6x8")
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(help="stack of a form that names none: encoder (default) or decoder"),
    ] = None,
    count_from: Annotated[
        int | None,
        typer.Option(min=0, max=1, help="number of the form's first layer and head; default 0"),
    ] = None,
    lists: Annotated[
        str | None,
        typer.Option(
            help="what an array's 1 or a pair means: kept or removed; default kept, removed"
        ),
    ] = None,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Convert another tool's mask to a headlab mask, or the other way round."""
    if target_form not in FORMS:
        raise HeadlabError(
            f"unknown form {target_form!r}; use one of {', '.join(FORMS)}", code="mask.form_unknown"
        )
    if lists not in (None, *MEANINGS):
        raise HeadlabError(f"--lists is {lists!r}; use kept or removed", code="mask.lists_unknown")
    if json and out is None:
        raise HeadlabError(
            "with --json the mask itself goes to a file; name one with --out",
            code="option.json_needs_out",
        )
    binary = out is not None and out.suffix == BINARY
    if binary and target_form not in ("array", "pairs"):
        raise HeadlabError(
            f"{out} would be a .npy file, but form {target_form} is text; "
            "use --to array, or another ending",
            code="output.ending_is_npy",
        )
    raw, source_name = _read_source(source)
    form = form_of_file(raw, source_name, form)
    read_options, write_options = _form_options(
        form, target_form, {"count_from": count_from, "lists": lists}
    )
    _refuse_unused_stack(stack, form, model, grid)
    model_identity = _model_identity(model, grid, stack or "encoder", device)
    mask = convert_in(
        raw,
        source_name,
        form,
        stack=stack if form == "array" else None,
        **model_identity,
        **read_options,
    )
    converted = convert_out(mask, target_form, binary=binary, **write_options)
    if target_form != "headlab":
        typer.echo(
            f"headlab: note: form {target_form} holds the heads only: "
            "model, method and accuracies are not written",
            err=True,
        )
    if out is None:
        sys.stdout.write(converted.decode())
        return
    write_atomic(out, converted)
    summary: dict[str, JsonLike] = {
        "to": target_form,
        "out": str(out),
        "heads": mask.grid.size,
        "removed": len(mask.removed),
    }
    if json:
        print_json(summary | {"grid": mask.grid.to_json()})
    else:
        typer.echo(f"{out}: {_count_words(mask)}, form {target_form}")


def snippet(
    file: Annotated[Path, typer.Argument(help="mask file of headlab")],
    model: Annotated[
        str | None, typer.Option(help="model to apply it to; default: the one the mask names")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="file to write; default stdout")] = None,
    device: Device = None,
) -> None:
    """Write a short script that applies a mask with PyTorch and transformers."""
    import headlab
    from headlab.hooks import script_model_of

    mask = load_mask(file)
    name = model or mask.model.get("name")
    if not name:
        raise HeadlabError(
            f"{file} names no model; say which one with --model", code="snippet.model_unnamed"
        )
    loaded_model = load_for_mask(partial(headlab.load, str(name), device=device), mask)
    mask.check(loaded_model.grid, loaded_model.fingerprint)
    script = snippet_of(mask, script_model_of(loaded_model))
    if out is None:
        sys.stdout.write(script)
        return
    write_atomic(out, script.encode())
    typer.echo(
        f"{out}: switches {len(mask.removed)} of {mask.grid.count_words(mask.grid.size)} off, "
        "without headlab"
    )


def _form_options(
    source_form: str, target_form: str, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options for reading and for writing: each goes to the one form that uses it.

    Args:
        source_form: That the mask is read in.
        target_form: That it is written in.
        options: By name; None for one that was not given.

    Raises:
        HeadlabError: For an option that neither form uses, or both.
    """
    read_options: dict[str, Any] = {}
    write_options: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        users = []
        if name in OPTIONS_BY_FORM[source_form]:
            users.append(read_options)
        if name in OPTIONS_BY_FORM[target_form]:
            users.append(write_options)
        if len(users) != 1:
            option = f"--{name.replace('_', '-')}"
            if not users:
                raise HeadlabError(
                    f"{option} does not apply to {source_form} or {target_form}; leave it out",
                    code="mask.form_option_unused",
                )
            raise HeadlabError(
                f"{option} could refer to {source_form} or to {target_form}; "
                f"convert to headlab first, and then to {target_form}",
                code="mask.form_option_ambiguous",
            )
        users[0][name] = value
    return read_options, write_options


def _refuse_unused_stack(stack: str | None, form: str, model: str | None, grid: str | None) -> None:
    """Raise HeadlabError for --stack if the model gives the stacks or nothing uses it."""
    if stack is not None and (model is not None or (grid is None and form != "array")):
        stacks_from = "--model" if model is not None else f"form {form}"
        raise HeadlabError(
            f"--stack names the only stack of --grid or of an array; {stacks_from} takes none, "
            "so leave it out",
            code="option.stack_unused",
        )


def _model_identity(
    model: str | None, grid: str | None, stack: str, device: str | None
) -> dict[str, Any]:
    """Grid and identity of the model a mask is for, as far as the options give them."""
    if model is None:
        return {"grid": None if grid is None else parse_grid(grid, stack)}
    if grid is not None:
        raise HeadlabError(
            "--model already gives the grid; leave --grid out", code="option.grid_and_model"
        )
    import headlab
    from headlab.masks import architecture_of

    loaded_model = headlab.load(model, device=device)
    return {
        "grid": loaded_model.grid,
        "model": {**loaded_model.identity(), "architecture": architecture_of(loaded_model.module)},
    }


def _read_source(source: str) -> tuple[bytes, str]:
    """The bytes of a file, or of heads given as text, and what messages call them.

    A source that cannot be read as a file is text if it has a colon and no file ending.

    Raises:
        HeadlabError: It is neither, no regular file, or too large.
    """
    path = Path(source)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device might never end
            raise HeadlabError(f"{source} is not a file; check the path", code="file.missing")
        if status.st_size > MAX_JSON_BYTES:
            raise HeadlabError(
                f"{source} is larger than {MAX_JSON_BYTES >> 20} MiB; this is not a mask",
                code="file.too_large",
            )
        return path.read_bytes(), source
    except (OSError, ValueError) as error:
        if ":" in source and not path.suffix:
            return source.encode(), "the text"
        reason = getattr(error, "strerror", None) or str(error)
        raise HeadlabError(
            f"cannot read {source} ({reason}); check the path", code="file.unreadable"
        ) from error


# `headlab mask show|validate|diff|combine`: what mask files hold, and one combined from several.

MaskFile = Annotated[Path, typer.Argument(help="mask file of headlab")]


def group() -> typer.Typer:
    """The commands of the group."""
    app = typer.Typer(
        help="Mask files: read, compare, convert and combine.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, command in (
        ("show", show),
        ("validate", validate),
        ("diff", diff),
        ("combine", combine),
        ("convert", convert),
        ("snippet", snippet),
    ):
        app.command(name)(command)
    return app


def show(file: MaskFile, json: AsJson = False) -> None:
    """Show a mask: its removed heads, model, choice and recorded accuracies."""
    mask = load_mask(file)
    if json:
        print_json(mask.to_json())
        return
    typer.echo(f"{file}: {_count_words(mask)}")
    typer.echo(f"model: {model_words(mask)}")
    typer.echo(f"chosen: {choice_words(mask.chosen)}")
    typer.echo(text_map(mask))
    masks = {file.name: mask}
    accuracies = accuracy_table(masks)
    if accuracies.rows:
        typer.echo("\n".join([accuracies.markdown(), *accuracy_notes(masks)]))
    made = f"made {mask.created or 'at a time it does not say'}"
    versions = ", ".join(f"{name} {version}" for name, version in (mask.versions or {}).items())
    if as_safe_line(versions):
        made += f" with {as_safe_line(versions)}"
    typer.echo(made)


def validate(file: MaskFile, json: AsJson = False) -> None:
    """Exit with 0 if a file is a valid headlab mask, and with 2 and the reason if not."""
    mask = load_mask(file)
    if json:
        print_json(
            {
                "valid": True,
                "heads": mask.grid.size,
                "removed": len(mask.removed),
                "digest": mask.digest,
            }
        )
    else:
        typer.echo(f"{file} is a valid mask: {_count_words(mask)}, for {model_words(mask)}.")


def diff(first: MaskFile, second: MaskFile, json: AsJson = False) -> None:
    """Compare two masks: heads that only one removes, and their Jaccard index.

    Heads are also counted by layer and stack.
    """
    first_mask = load_mask(first)
    second_mask = load_mask(second)
    comparison = compare_masks(first_mask, second_mask)
    heads_by_side = {
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "both": comparison.removed_by_both,
    }
    if json:
        print_json(
            {"a": str(first), "b": str(second), "jaccard": comparison.jaccard, **heads_by_side}
        )
        return
    for letter, file, mask in (("A", first, first_mask), ("B", second, second_mask)):
        typer.echo(f"{letter} = {file}: {_count_words(mask)}, for {model_words(mask)}")
    for words, heads in zip(
        ("only A removes", "only B removes", "both remove"), heads_by_side.values(), strict=True
    ):
        typer.echo(f"{words} {len(heads)}: {_head_list(heads, comparison.grid)}")
    typer.echo(f"Jaccard {comparison.jaccard:.3f}\n")
    typer.echo(removed_by_layer(comparison).markdown() + "\n")
    typer.echo(removed_by_stack(comparison).markdown())
    masks = {"A": first_mask, "B": second_mask}
    accuracies = accuracy_table(masks)
    if accuracies.rows:
        typer.echo("\n".join(["", accuracies.markdown(), *accuracy_notes(masks)]))


def combine(
    files: Annotated[list[Path], typer.Argument(help="two mask files or more, of one model")],
    out: Annotated[Path, typer.Option(help="mask file to write")],
    how: Annotated[
        str, typer.Option(help="; ".join(f"{way}: {words}" for way, words in COMBINATIONS.items()))
    ] = "majority",
    json: AsJson = False,
) -> None:
    """Combine several masks into one, such as those of many languages."""
    masks = [load_mask(file) for file in files]
    for file in files:
        if out.exists() and out.samefile(file):
            raise HeadlabError(
                f"--out is {file}, one of the masks to combine, which would be lost; "
                "name another file",
                code="output.is_input_mask",
            )
    combined = combine_masks(masks, how)
    combined.save(out)
    note = combined.chosen.get("note")
    if note:
        typer.echo(f"headlab: note: {note}", err=True)
    if json:
        print_json(
            {
                "how": how,
                "masks": len(masks),
                "heads": combined.grid.size,
                "removed": len(combined.removed),
            }
        )
    else:
        typer.echo(
            f"{out}: {_count_words(combined)}; {how} of {len(masks)} masks {COMBINATIONS[how]}"
        )


def _count_words(mask: Mask) -> str:
    return f"{len(mask.removed)} of {mask.grid.size} {mask.grid.noun} off ({mask.grid})"


def model_words(mask: Mask) -> str:
    """The model a mask was made for, on one line."""
    name = as_safe_line(mask.name)
    fingerprint = mask.fingerprint
    if not fingerprint:
        return f"{name or 'no one model'} (without a fingerprint, so only the grid is checked)"
    words = f"{name or 'a model without a name'}, fingerprint {as_safe_line(fingerprint[:12])}"
    architecture = mask.architecture
    if architecture is not None:
        words += (
            f", {as_safe_line(architecture['class'])} ({as_safe_line(architecture['model_type'])})"
        )
    return words


def choice_words(choice: Mapping[str, Any]) -> str:
    """How a mask was chosen, on one line: only the short fields."""
    if not choice:
        return "the file does not say"
    parts = []
    for name, value in choice.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            parts.append(as_safe_line(f"{name} {value}", max_length=4 * MAX_LINE_LENGTH))
        elif isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
            parts.append(
                as_safe_line(f"{name} {', '.join(map(str, value))}", max_length=4 * MAX_LINE_LENGTH)
            )
    return "; ".join(parts) or "the file holds the details"


def text_map(mask: Mask) -> str:
    """The mask as a text map: a dot for a kept head, x for a removed one."""
    lines = []
    titles = {stack.name: stack.title for stack in mask.grid.stacks}
    width = max(8, *map(len, titles.values()))
    for stack, layer, kept_heads in by_layer(mask.grid, mask.kept):
        marks = " ".join("." if is_kept else "x" for is_kept in kept_heads)
        lines.append(
            f"{titles[stack]:>{width}} {layer:>3}  {marks}  {int((~kept_heads).sum())} off"
        )
    return "\n".join(lines)


def _head_list(heads: tuple[Head, ...], grid: HeadGrid) -> str:
    if grid.has_only_heads:
        return ", ".join(map(str, heads)) or "none"
    return "; ".join(player_name(grid, head) for head in heads) or "none"
