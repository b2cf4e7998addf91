"""A mask as a standalone script that needs PyTorch and transformers, but not headlab."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headlab.core import HEADS, KINDS_OF_HEADS, Bools, HeadGrid, HeadlabError, PlayerCells, by_layer
from headlab.masks.mask import MIXED_ABLATION, Mask, as_safe_line

MAX_LINES = 40
MAX_PLAYERS_LINES = 60  # of a script that also closes neurons and skips layers
WIDTH = 110
FOLDER = "FOLDER"
FOLDER_REVISION = "folder"  # the revision of a model that was read from a folder
LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SCRIPT = '''"""Switches {off} of {size} attention heads of {shown} off. Needs torch and transformers 5.

{about}
"""
{before}{imports}
# Per output projection of the attention: its path, with {{}} for the layer, heads a layer,
# "layer:head,head ..." off.
OFF = [
{rows}
]


def apply_mask(model):
    """Zero the outputs of these heads in every forward pass.

    Returns handles; .remove() of each undoes it.
    """
    handles, modules = [], dict(model.named_modules())
    for path, heads, listed in OFF:
        for layer, off in (word.split(":") for word in listed.split()):
            closed = [int(head) for head in off.split(",")]

            def close(module, args, heads=heads, closed=closed):
                context = args[0].unflatten(-1, (heads, -1)).clone()  # [..., head, head_dim]
                context[..., closed, :] = 0
                return (context.flatten(-2), *args[1:])

            handles.append(modules[path.format(layer)].register_forward_pre_hook(close))
    return handles


if __name__ == "__main__":
    model = {kind}.from_pretrained({source}).eval()
    apply_mask(model)
'''


PLAYERS_SCRIPT = '''"""Switches {off} of {size} {noun} of {shown} off. Needs torch and transformers 5.

{about}
"""
{before}{imports}{tables}

def apply_mask(model):
    """{effect} in every forward pass.

    Returns handles; .remove() of each undoes it.
    """
    handles, modules = [], dict(model.named_modules())
{body}    return handles


if __name__ == "__main__":
    model = {kind}.from_pretrained({source}).eval()
    apply_mask(model)
'''
PARTS_TABLE = """# Per projection that takes heads or neurons: its path, with {{}} for the layer, how many they are,
# "layer:off ...", where bit n of the hexadecimal number off is 1 if head or neuron n is off.
OFF = [
{rows}
]
"""
SKIPPED_TABLE = """# Layers that are skipped.
SKIPPED = [
{rows}
]
"""
PARTS_CODE = """    for path, parts, listed in OFF:
        for layer, bits in (word.split(":") for word in listed.split()):
            off = [part for part in range(parts) if int(bits, 16) >> part & 1]

            def close(module, args, parts=parts, off=off):
                inputs = args[0].unflatten(-1, (parts, -1)).clone()  # [..., head or neuron, size]
                inputs[..., off, :] = 0
                return (inputs.flatten(-2), *args[1:])

            handles.append(modules[path.format(layer)].register_forward_pre_hook(close))
"""
SKIPPING_CODE = """
    def skip(module, args, kwargs, output):
        states = args[0] if args else kwargs["hidden_states"]
        return (states, *output[1:]) if isinstance(output, tuple) else states

    for path in " ".join(SKIPPED).split():
        handles.append(modules[path].register_forward_hook(skip, with_kwargs=True))
"""


@dataclass(frozen=True)
class ScriptModel:
    """A model's output projections, and how to load it.

    Attributes:
        projections: The path of the module for each layer, stack by stack in the grid's order.
        architecture: Class and model_type.
        source: What `from_pretrained` takes, or None where the model has no complete folder yet.
        revision: Revision of a hub model, so that the script loads the same weights; "folder" means
            none.
        name: What `headlab.load` takes.
        downs: The path of each layer's down projection, where neurons are switched.
        layers: The path of each layer, where whole layers are switched.
        players: What is switched, where it is not heads alone.
    """

    projections: Sequence[str]
    architecture: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    revision: str | None = None
    name: str = "MODEL"
    downs: Sequence[str] = ()
    layers: Sequence[str] = ()
    players: PlayerCells | None = None


def mask_of_heads(mask: Mask, players: PlayerCells | None = None) -> Mask | None:
    """The same mask as one of heads; None where something else than heads is off.

    Args:
        mask: Of any players.
        players: Which heads these contain; without it, key–value groups and attention blocks that
            are off are something else.
    """
    if mask.grid.has_only_heads:
        return mask
    kinds_off = {mask.grid.kind_of(player) for player in mask.removed}
    if players is not None and kinds_off <= KINDS_OF_HEADS:
        return replace(mask, grid=players.heads, kept=players.kept_heads(mask.kept))
    stacks = tuple(stack for stack in mask.grid.stacks if stack.kind == HEADS)
    if not stacks or kinds_off - {HEADS}:
        return None
    grid = HeadGrid(stacks)
    return replace(mask, grid=grid, kept=mask.kept[: grid.size])  # they come first in every grid


def mask_script(mask: Mask, script_model: ScriptModel) -> str:
    """A script of at most 40 lines that applies the mask to the model as loaded by transformers.

    Where something else than heads is off, it has at most 60. A head that is off outputs 0 there, whatever ablation it was chosen under; a neuron too, and a
    layer gives what it is given.

    Raises:
        HeadlabError: The paths do not fit the mask, or layers that share a module have different
            heads off.
    """
    class_name = script_model.architecture.get("class", "")
    if not CLASS_NAME.fullmatch(class_name) or script_model.architecture.get(
        "model_type", ""
    ).startswith("headlab"):
        raise HeadlabError(
            f"{class_name[:40] or 'the model'} is not a transformers class, so a script without "
            "headlab cannot load it; use headlab.gated",
            code="snippet.class_unknown",
        )
    of_heads = mask_of_heads(mask, script_model.players)
    if of_heads is not None:
        rows = _rows_of_heads(of_heads, script_model.projections, _listed)
        return _shortened(
            lambda width: _heads_script(of_heads, script_model, rows, width), rows, MAX_LINES
        )
    if script_model.players is None:
        mask.require_heads("a script without headlab applies")
    rows, skipped = _rows_of_players(mask, script_model)
    return _shortened(
        lambda width: _players_script(mask, script_model, rows, skipped, width),
        rows,
        MAX_PLAYERS_LINES,
    )


ModuleRow = tuple[str, int, list[str]]


def _shortened(
    script_of_width: Callable[[int], str], rows: Sequence[ModuleRow], most_lines: int
) -> str:
    """A script with lines as long as they must be for a number of lines.

    Args:
        script_of_width: Gives the script with lines of so many characters.
        rows: Of its table.
        most_lines: How many lines it may have.

    Raises:
        HeadlabError: It is too long with lines of any length.
    """
    width = WIDTH
    while True:
        text = script_of_width(width)
        if len(text.splitlines()) <= most_lines:
            return text
        if width > 1 << 16:
            raise HeadlabError(
                f"the mask switches off heads in {len(rows)} kinds of modules, too many for "
                f"{most_lines} lines; use headlab shrink, or the mask file",
                code="snippet.too_long",
            )
        width *= 2


def _heads_script(
    mask: Mask, script_model: ScriptModel, rows: Sequence[ModuleRow], width: int
) -> str:
    """The script of a mask of heads."""
    return SCRIPT.format(
        off=len(mask.removed),
        size=mask.grid.size,
        shown=_model_words(mask, script_model),
        about=_docstring_body(mask, script_model),
        before=_folder_comment(script_model),
        imports=f"from transformers import {script_model.architecture['class']}\n",
        rows="\n".join(line for row in rows for line in _entry_lines(*row, width=width)),
        kind=script_model.architecture["class"],
        source=_source_code(script_model),
    )


def _players_script(
    mask: Mask,
    script_model: ScriptModel,
    rows: Sequence[ModuleRow],
    skipped: Sequence[str],
    width: int,
) -> str:
    """The script of a mask of other players.

    Args:
        mask: The mask.
        script_model: Where the model has them.
        rows: A row for every kind of module with heads or neurons off.
        skipped: Paths of layers that are skipped.
        width: Characters of a line.
    """
    tables = []
    body = ""
    effects = []
    if rows:
        lines = [line for row in rows for line in _entry_lines(*row, width=width)]
        tables.append(PARTS_TABLE.format(rows="\n".join(lines)))
        body += PARTS_CODE
        effects.append("zero the outputs of these heads and neurons")
    if skipped:
        paths = _wrapped(" ".join(skipped), width - 10)
        tables.append(SKIPPED_TABLE.format(rows="\n".join(f'    "{line}",' for line in paths)))
        body += SKIPPING_CODE if rows else SKIPPING_CODE.lstrip("\n")
        effects.append("skip these layers")
    effect = " and ".join(effects)
    return PLAYERS_SCRIPT.format(
        off=len(mask.removed),
        size=mask.grid.size,
        noun=mask.grid.noun,
        shown=_model_words(mask, script_model),
        about=_docstring_body(mask, script_model),
        before=_folder_comment(script_model),
        imports=f"from transformers import {script_model.architecture['class']}\n\n",
        tables="".join(tables),
        effect=effect[0].upper() + effect[1:],
        body=body,
        kind=script_model.architecture["class"],
        source=_source_code(script_model),
    )


def _source_code(script_model: ScriptModel) -> str:
    """What `from_pretrained` is called with, as code."""
    source = repr(script_model.source or FOLDER)
    if script_model.source is not None and script_model.revision not in (None, FOLDER_REVISION):
        source += f", revision={script_model.revision!r}"
    return source


def _model_words(mask: Mask, script_model: ScriptModel) -> str:
    """The model's name in a docstring."""
    return _without_quotes(as_safe_line(mask.name or script_model.name))


def _listed(is_kept: Bools) -> str:
    """The heads that are off: "3,7"."""
    return ",".join(map(str, np.flatnonzero(~is_kept).tolist()))


def _as_bits(is_kept: Bools) -> str:
    """Which heads or neurons are off, as a hexadecimal number: bit n is the n-th of them."""
    bits = 0
    for number in np.flatnonzero(~is_kept).tolist():
        bits |= 1 << number
    return f"{bits:x}"


def _rows_of_heads(
    mask: Mask, projections: Sequence[str], words_of: Callable[[Bools], str]
) -> list[ModuleRow]:
    """The rows of the script's table, of a mask of heads; errors as of `_table_rows`."""
    layers = [is_kept for _, _, is_kept in by_layer(mask.grid, mask.kept)]
    if len(projections) != len(layers):
        raise _mismatch(f"{len(layers)} layers", f"{len(projections)} output projections")
    return _table_rows(zip(projections, layers, strict=True), words_of)


def _rows_of_players(mask: Mask, script_model: ScriptModel) -> tuple[list[ModuleRow], list[str]]:
    """The rows of the script's table, and the paths of layers that are skipped.

    Args:
        mask: Of the script model's players.
        script_model: Where the model has them.

    Raises:
        HeadlabError: The paths or the players do not fit the mask, or layers that share a module
            are not all skipped, or have different heads or neurons off.
    """
    players = script_model.players
    assert players is not None
    mask.check(players.grid, None)
    gates = players.grid.gates(mask.kept)
    rows: list[ModuleRow] = []
    if players.head_cells:
        of_heads = Mask(players.heads, players.kept_heads(mask.kept))
        rows += _rows_of_heads(of_heads, script_model.projections, _as_bits)
    if players.neuron_cells:
        count = len(players.neuron_cells)
        if len(script_model.downs) != count:
            raise _mismatch(f"{count} layers", f"{len(script_model.downs)} down projections")
        kept_neurons = [~players.closed_neurons(gates, layer) for layer in range(count)]
        rows += _table_rows(zip(script_model.downs, kept_neurons, strict=True), _as_bits, "neurons")
    is_skipped = players.skipped_layers(gates)
    if len(script_model.layers) != len(is_skipped):
        raise _mismatch(f"{len(is_skipped)} layers", f"{len(script_model.layers)}")
    skipped_by_path: dict[str, bool] = {}
    for path, skipped in zip(script_model.layers, is_skipped, strict=True):
        if skipped_by_path.setdefault(path, skipped) != skipped:
            raise _shared_error(path, "skips only some of these layers")
    return rows, [path for path, skipped in skipped_by_path.items() if skipped]


def _mismatch(of_mask: str, of_model: str) -> HeadlabError:
    """The error of a mask and a model that do not fit."""
    return HeadlabError(
        f"the mask has {of_mask}, the model {of_model}; give the mask's model",
        code="snippet.layers_mismatch",
    )


def _shared_error(path: str, clause: str) -> HeadlabError:
    """The error of layers that share a module.

    Args:
        path: Of the module.
        clause: What the mask does with the layers.
    """
    return HeadlabError(
        f"several layers of this model share the module {path}, and the mask {clause}; a script of "
        "plain hooks cannot tell the layers apart, so use headlab.gated",
        code="snippet.module_shared",
    )


def _table_rows(
    kept_by_path: Iterable[tuple[str, Bools]],
    words_of: Callable[[Bools], str],
    noun: str = "heads",
) -> list[ModuleRow]:
    """The rows of the script's table: one for every kind of module with heads or neurons off.

    Args:
        kept_by_path: For each layer, the path of the module and which heads or neurons are on.
        words_of: Gives those that are off as text.
        noun: What they are.

    Returns:
        (path with {} for the layer, heads or neurons per layer, words "layer:off") of each kind.

    Raises:
        HeadlabError: Layers that share a module have different ones off.
    """
    off_by_path: dict[str, list[int]] = {}
    rows: dict[tuple[str, int], list[str]] = {}
    for path, is_kept in kept_by_path:
        off = np.flatnonzero(~is_kept).tolist()
        if off_by_path.setdefault(path, off) != off:
            raise _shared_error(path, f"switches off different {noun} in each")
        numbers = LAYER_NUMBER.findall(path)
        template, layer = (
            (LAYER_NUMBER.sub("{}", path, count=1), numbers[0]) if numbers else (path, "0")
        )
        word = f"{layer}:{words_of(is_kept)}"
        if off and word not in rows.setdefault((template, len(is_kept)), []):
            rows[template, len(is_kept)].append(word)
    return [(path, parts, words) for (path, parts), words in rows.items() if words]


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of a text that breaks between words alone."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _entry_lines(path: str, heads: int, words: list[str], *, width: int) -> list[str]:
    """One entry of the list, its heads wrapped between words."""
    opening = f'    ("{path}", {heads},'
    wrapped_words = _wrapped(" ".join(words), width - 10)
    literals = [f'"{part} "' for part in wrapped_words[:-1]] + [f'"{wrapped_words[-1]}"']
    if len(literals) == 1 and len(opening) + len(literals[0]) < width:
        return [f"{opening} {literals[0]}),"]
    return [opening, *(f"     {part}" for part in literals[:-1]), f"     {literals[-1]}),"]


def _docstring_body(mask: Mask, place: ScriptModel) -> str:
    """What the script's docstring says about the mask."""
    lines = []
    fingerprint = mask.model.get("fingerprint")
    if fingerprint:
        short_fingerprint = _without_quotes(as_safe_line(str(fingerprint)[:12]))
        lines.append(f"Made for the weights with headlab's fingerprint {short_fingerprint}.")
    if mask.ablation not in (None, "zero"):
        is_mixed = mask.ablation == MIXED_ABLATION
        noun = mask.grid.noun
        subject = f"Some of the {noun}" if is_mixed else f"The {noun}"
        ablation = (mask.beyond_weights or "mean") if is_mixed else mask.ablation
        lines.append(f"{subject} were chosen under {ablation} ablation; here they give 0.")
    return "\n".join(lines) or "Made by headlab."


def _folder_comment(place: ScriptModel) -> str:
    """The code that writes the model's folder, where there is none.

    It stands in a comment, since it needs headlab and the script does not. A comment, unlike the
    text of a docstring, holds any name as Python writes it.
    """
    if place.source is not None:
        return ""
    return (
        "# Write the model first: "
        f"headlab.load({place.name!a}).module.save_pretrained({FOLDER!r})\n"
    )


def _without_quotes(line: str) -> str:
    """A line that cannot end the docstring that contains it."""
    return line.replace('"', "?").replace("\\", "?")
