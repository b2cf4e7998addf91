"""A smaller model with the masked model's outputs, and the dtype that its weights are written in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from headlab.core import Bools, Head, HeadlabError
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models import DTYPES, alone
from headlab.models.allattention.modelling import AllAttentionForCausalLM, remove_heads
from headlab.models.shrunk_classes import (
    is_shrunk,
    make_known,
    plain_config,
    shrunk_class,
    shrunk_config,
)
from headlab.models.shrunk_cut import (
    FAMILIES,
    HEADS,
    MASKED,
    PREFIX,
    Layers,
    Unit,
    base_type,
    cut_state,
    units,
)

# The dtype that weights are written in: the checkpoint's own, unless another is given.


def check_numbers(name: str | None) -> None:
    """Raise HeadlabError unless weights can be written in this dtype; None is the checkpoint's own."""
    if name is not None and name not in DTYPES:
        raise HeadlabError(
            f"unknown dtype {name!r}; use one of {', '.join(DTYPES)}, or leave it out for the model's own",
            code="dtype.unknown",
        )


def stored(model: Model) -> str:
    """Dtype of a model's checkpoint, whatever it was loaded in."""
    name = str(model.module.config.dtype).removeprefix("torch.")
    return name if name in DTYPES else model.dtype


def written_in(model: Model) -> str:
    """The dtype to write a model in: its checkpoint's, if that holds its weights exactly and is no wider."""
    own = stored(model)
    narrow = DTYPES[own].itemsize <= DTYPES[model.dtype].itemsize
    return (
        own if narrow and not any(_changed(t, own) for t in _weights(model.module)) else model.dtype
    )


@contextmanager
def rounded(module: PreTrainedModel, numbers: str) -> Iterator[bool]:
    """Round every weight to this dtype within the block. Yields whether that changes any."""
    with torch.no_grad():
        kept = [
            (weight, weight.clone()) for weight in _weights(module) if _changed(weight, numbers)
        ]
        for weight, _ in kept:
            weight.copy_(weight.to(DTYPES[numbers]))
    try:
        yield bool(kept)
    finally:
        with torch.no_grad():
            for weight, before in kept:
                weight.copy_(before)


def bytes_in(parameters: int, numbers: str) -> int:
    """Size in bytes of this many parameters."""
    return parameters * DTYPES[numbers].itemsize


def _weights(module: nn.Module) -> list[torch.Tensor]:
    return [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]


def _changed(weight: torch.Tensor, numbers: str) -> bool:
    there = weight.to(DTYPES[numbers]).to(weight.dtype)
    return not torch.equal(there.nan_to_num(), weight.nan_to_num())


# A smaller model with the masked model's outputs.

RECORDED = ("model_type", "transformers_version", "architectures", HEADS, MASKED)


@dataclass(frozen=True)
class Shrunk:
    """A model without the heads of a mask, and what became of them.

    module: transformers module of its own, in evaluation mode; the original is unchanged.  masked: removed heads whose
    weights stay because others of their group need the same key and value; their output is 0.
    """

    module: PreTrainedModel
    mask: Mask
    masked: tuple[Head, ...]
    parameters_before: int
    parameters_after: int

    @property
    def gone(self) -> int:
        """Number of heads whose weights were removed."""
        return len(self.mask.removed) - len(self.masked)


def shrink_model(model: Model, mask: Mask) -> Shrunk:
    """Remove a mask's heads from a copy of the model, whose outputs are then those of the model under the mask.

    Layers may keep any number of heads, or none.  Query heads that share keys and values are removed in whole groups
    only; the others stay and output 0.  Raises HeadlabError for another model's mask, a mask chosen under mean
    ablation, and a family that cannot be shrunk.
    """
    mask.check(model.grid, model.fingerprint)
    require_zero(mask)
    model.require_whole("shrinking")
    before = parameters_of(model.module)
    if isinstance(model.module, AllAttentionForCausalLM):
        smaller: PreTrainedModel = remove_heads(model.module, mask)
        return Shrunk(smaller.eval(), mask, (), before, parameters_of(smaller))
    require_family(model)
    kept = _by_unit(model, mask)
    stay = _layers(kept, lambda unit, row: _whole_groups(unit, row))
    closed = _layers(kept, lambda unit, row: [h for h in _whole_groups(unit, row) if not row[h]])
    smaller = _build(model.module, stay, closed)
    masked = tuple(
        Head(s, layer, h)
        for s, rows in closed.items()
        for layer, row in enumerate(rows)
        for h in row
    )
    return Shrunk(smaller, mask, masked, before, parameters_of(smaller))


def parameters_of(module: torch.nn.Module) -> int:
    """Number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def require_zero(mask: Mask) -> None:
    """Raise HeadlabError for a mask chosen under mean ablation, as a removed head outputs 0."""
    if mask.of_means:
        raise HeadlabError(
            "this mask, or one it was made of, was chosen under mean ablation: its heads give their mean, but a "
            "removed head gives 0; choose a mask made with --ablation zero",
            code="shrink.mask_of_means",
        )


def require_family(model: Model) -> None:
    """Raise HeadlabError unless heads can be removed from models of this family."""
    family = base_type(model.module.config)
    if family not in FAMILIES:
        raise HeadlabError(
            f"{model.name} is of the family {family}, which headlab cannot shrink; it can shrink "
            f"{', '.join(FAMILIES)} and headlab's All-attention models. The mask itself still works on {model.name}",
            code="shrink.family_unknown",
        )


def _by_unit(model: Model, mask: Mask) -> list[tuple[Unit, Bools]]:
    """Every attention layer with its heads kept, bool [head]; layers without heads need not be in the grid."""
    rows = {
        stack.name: [
            np.asarray(row)
            for row in np.split(mask.kept[at : at + stack.size], np.cumsum(stack.heads)[:-1])
        ]
        for stack, at in zip(
            model.grid.stacks, np.cumsum([0, *(s.size for s in model.grid.stacks)]), strict=False
        )
    }
    found: list[tuple[Unit, Bools]] = []
    for name, own in rows.items():
        layers = [unit for unit in units(model.module) if unit.stack == name]
        own = [row for row in own if len(row)]
        if [unit.heads for unit in layers if unit.heads] != [len(row) for row in own]:
            raise HeadlabError(
                f"{model.name} is a {type(model.module).__name__}, whose {name} heads are not where headlab looks for "
                "them; it cannot be shrunk",
                code="shrink.heads_not_found",
            )
        left = iter(own)
        found += [(unit, next(left) if unit.heads else np.zeros(0, bool)) for unit in layers]
    return found


def _layers(
    kept_by_layer: Sequence[tuple[Unit, Bools]], choose: Callable[[Unit, Bools], list[int]]
) -> dict[str, list[list[int]]]:
    """{stack: [layer][heads]} that a function picks in each layer."""
    heads_by_stack: dict[str, list[list[int]]] = {}
    for unit, kept in kept_by_layer:
        heads_by_stack.setdefault(unit.stack, []).append(choose(unit, kept))
    return heads_by_stack


def _whole_groups(unit: Unit, row: Bools) -> list[int]:
    """Heads that stay: all heads of a group in which any is kept."""
    groups = {int(head) // unit.group for head in np.flatnonzero(row)}
    return [head for head in range(unit.heads) if head // unit.group in groups]


def _build(module: PreTrainedModel, stay: Layers, closed: Layers) -> PreTrainedModel:
    """The smaller model with its weights, on the same device and in the same dtype."""
    family = base_type(module.config)
    make_known(PREFIX + family)
    config = plain_config(module, stay) or _config(module.config, family, stay, closed)
    kind = shrunk_class(_whole_class(module), family) if is_shrunk(config) else type(module)
    with alone():
        loaded = kind.from_pretrained(
            None, config=config, state_dict=cut_state(module, stay, closed), dtype=module.dtype,
            output_loading_info=True,
        )  # fmt: skip
    smaller, loading = cast("tuple[PreTrainedModel, Mapping[str, Sequence[str]]]", loaded)
    if loading["missing_keys"] or loading["mismatched_keys"]:
        raise HeadlabError(
            f"{type(module).__name__} keeps weights in places that headlab does not know; it cannot be shrunk",
            code="shrink.weights_not_found",
        )
    torch.nn.Module.to(smaller, device=module.device)
    if module.can_generate():
        smaller.generation_config = copy.deepcopy(module.generation_config)
    smaller.eval()
    return smaller


def _whole_class(module: PreTrainedModel) -> Any:
    """The transformers class of a model, whether it was shrunk before or not."""
    classes = (kind for kind in type(module).__mro__ if kind.__module__.startswith("transformers."))
    return next(classes)


def _config(old: PretrainedConfig, family: str, stay: Layers, closed: Layers) -> PretrainedConfig:
    """The family's configuration with the remaining heads, numbered as in the model before any removal."""
    before: Layers | None = getattr(old, HEADS, None) if is_shrunk(old) else None
    masked: Layers | None = getattr(old, MASKED, None) if is_shrunk(old) else None

    def numbers(stack: str, layer: int, heads: Sequence[int]) -> list[int]:
        return (
            list(heads)
            if before is None or stack not in before
            else [before[stack][layer][h] for h in heads]
        )

    heads = {s: [numbers(s, i, row) for i, row in enumerate(rows)] for s, rows in stay.items()}
    off = {s: [numbers(s, i, row) for i, row in enumerate(rows)] for s, rows in closed.items()}
    if masked is not None:
        off = {s: [sorted({*row, *(set(masked[s][i]) & set(heads[s][i]))}) for i, row in enumerate(rows)]
               for s, rows in off.items()}  # fmt: skip
    facts = {name: value for name, value in old.to_dict().items() if name not in RECORDED}
    return shrunk_config(family).from_dict(facts | {HEADS: heads, MASKED: off})
