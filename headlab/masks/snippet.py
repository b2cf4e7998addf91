"""A mask as a standalone script that needs PyTorch and transformers, but not headlab."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headlab.core import HeadlabError, by_layer
from headlab.masks.mask import MIXED_ABLATION, Mask, as_safe_line

MAX_LINES = 40
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
    """

    projections: Sequence[str]
    architecture: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    revision: str | None = None
    name: str = "MODEL"


def mask_script(mask: Mask, script_model: ScriptModel) -> str:
    """A script of at most 40 lines that applies the mask to the model as loaded by transformers.

    A head that is off outputs 0 there, whatever ablation it was chosen under.

    Raises:
        HeadlabError: The paths do not fit the mask, or layers that share a module have different
            heads off.
    """
    mask.require_heads("a script without headlab applies")
    rows = _table_rows(mask, script_model.projections)
    class_name = script_model.architecture.get("class", "")
    source = repr(script_model.source or FOLDER)
    if script_model.source is not None and script_model.revision not in (None, FOLDER_REVISION):
        source += f", revision={script_model.revision!r}"
    if not CLASS_NAME.fullmatch(class_name) or script_model.architecture.get(
        "model_type", ""
    ).startswith("headlab"):
        raise HeadlabError(
            f"{class_name[:40] or 'the model'} is not a transformers class, so a script without "
            "headlab cannot load it; use headlab.gated",
            code="snippet.class_unknown",
        )
    width = WIDTH
    while True:
        lines = [line for row in rows for line in _entry_lines(*row, width=width)]
        text = SCRIPT.format(
            off=len(mask.removed),
            size=mask.grid.size,
            shown=_without_quotes(as_safe_line(mask.name or script_model.name)),
            about=_docstring_body(mask, script_model),
            before=_folder_comment(script_model),
            imports=f"from transformers import {class_name}\n",
            rows="\n".join(lines),
            kind=class_name,
            source=source,
        )
        if len(text.splitlines()) <= MAX_LINES:
            return text
        if width > 1 << 16:
            raise HeadlabError(
                f"the mask switches off heads in {len(rows)} kinds of modules, too many for "
                f"{MAX_LINES} lines; use headlab shrink, or the mask file",
                code="snippet.too_long",
            )
        width *= 2


def _table_rows(mask: Mask, projections: Sequence[str]) -> list[tuple[str, int, list[str]]]:
    """The rows of the script's table: one for every kind of module with heads off.

    Args:
        mask: The mask.
        projections: The path of the module for each layer.

    Returns:
        (path with {} for the layer, heads per layer, words "layer:head,head") of each kind.
    """
    layers = list(by_layer(mask.grid, mask.kept))
    if len(projections) != len(layers):
        raise HeadlabError(
            f"the mask has {len(layers)} layers, the model {len(projections)} output projections; "
            "give the mask's model",
            code="snippet.layers_mismatch",
        )
    off_by_path: dict[str, list[int]] = {}
    rows: dict[tuple[str, int], list[str]] = {}
    for path, (_, _, is_kept) in zip(projections, layers, strict=True):
        heads_off = [head for head, head_stays in enumerate(is_kept) if not head_stays]
        if off_by_path.setdefault(path, heads_off) != heads_off:
            raise HeadlabError(
                f"several layers of this model share the module {path}, and the mask switches off "
                "different heads in each; a script of plain hooks cannot tell the layers apart, "
                "so use headlab.gated",
                code="snippet.module_shared",
            )
        numbers = LAYER_NUMBER.findall(path)
        template, layer = (
            (LAYER_NUMBER.sub("{}", path, count=1), numbers[0]) if numbers else (path, "0")
        )
        word = f"{layer}:{','.join(map(str, heads_off))}"
        if heads_off and word not in rows.setdefault((template, len(is_kept)), []):
            rows[template, len(is_kept)].append(word)
    return [(path, heads, words) for (path, heads), words in rows.items() if words]


def _entry_lines(path: str, heads: int, words: list[str], *, width: int) -> list[str]:
    """One entry of the list, its heads wrapped between words."""
    opening = f'    ("{path}", {heads},'
    wrapped_words = textwrap.wrap(
        " ".join(words), width - 10, break_long_words=False, break_on_hyphens=False
    )
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
        subject = "Some of the heads" if is_mixed else "The heads"
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
