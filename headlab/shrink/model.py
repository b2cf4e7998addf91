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
    HEADS_KEY,
    MASKED_KEY,
    PREFIX,
    AttentionLayer,
    HeadsByStack,
    attention_layers,
    base_type,
    cut_state,
)

# The dtype that weights are written in: the checkpoint's own, unless another is given.


def check_numbers(name: str | None) -> None:
    """Raise HeadlabError unless weights can be written in this dtype; None is the checkpoint's own."""
    if name is not None and name not in DTYPES:
        raise HeadlabError(
            f"unknown dtype {name!r}; use one of {', '.join(DTYPES)}, or leave it out for the "
            "model's own",
            code="dtype.unknown",
        )


def stored(model: Model) -> str:
    """Dtype of a model's checkpoint, whatever it was loaded in."""
    name = str(model.module.config.dtype).removeprefix("torch.")
    return name if name in DTYPES else model.dtype


def dtype_to_write(model: Model) -> str:
    """The dtype to write a model in: its checkpoint's, if that holds its weights exactly and is no wider."""
    own_dtype = stored(model)
    is_no_wider = DTYPES[own_dtype].itemsize <= DTYPES[model.dtype].itemsize
    return (
        own_dtype
        if is_no_wider and not any(_changes_in(t, own_dtype) for t in _weights(model.module))
        else model.dtype
    )


@contextmanager
def rounded_weights(module: PreTrainedModel, dtype: str) -> Iterator[bool]:
    """Round every weight to this dtype within the block. Yields whether that changes any."""
    with torch.no_grad():
        changed_weights = [
            (weight, weight.clone()) for weight in _weights(module) if _changes_in(weight, dtype)
        ]
        for weight, _ in changed_weights:
            weight.copy_(weight.to(DTYPES[dtype]))
    try:
        yield bool(changed_weights)
    finally:
        with torch.no_grad():
            for weight, exact_weight in changed_weights:
                weight.copy_(exact_weight)


def bytes_in(parameters: int, dtype: str) -> int:
    """Size in bytes of this many parameters."""
    return parameters * DTYPES[dtype].itemsize


def _weights(module: nn.Module) -> list[torch.Tensor]:
    return [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]


def _changes_in(weight: torch.Tensor, dtype: str) -> bool:
    rounded_weight = weight.to(DTYPES[dtype]).to(weight.dtype)
    return not torch.equal(rounded_weight.nan_to_num(), weight.nan_to_num())


# A smaller model with the masked model's outputs.

WRITTEN_ANEW = ("model_type", "transformers_version", "architectures", HEADS_KEY, MASKED_KEY)


@dataclass(frozen=True)
class Shrunk:
    """A model without the heads of a mask, and what became of them.

    Attributes:
        module: Transformers module of its own, in evaluation mode; the original is unchanged.
        masked: Removed heads whose weights stay because others of their group need the same key and
            value; their output is 0.
    """

    module: PreTrainedModel
    mask: Mask
    masked: tuple[Head, ...]
    parameters_before: int
    parameters_after: int

    @property
    def removed_count(self) -> int:
        """Number of heads whose weights were removed."""
        return len(self.mask.removed) - len(self.masked)


def shrink_model(model: Model, mask: Mask) -> Shrunk:
    """Remove a mask's heads from a copy of the model, whose outputs are then those of the model under the mask.

    Layers may keep any number of heads, or none.  Query heads that share keys and values are
    removed in whole groups only; the others stay and output 0.  Raises HeadlabError for another
    model's mask, a mask chosen under mean ablation, and a family that cannot be shrunk.
    """
    mask.check(model.grid, model.fingerprint)
    require_zero(mask)
    model.require_whole("shrinking")
    parameters_before = parameters_of(model.module)
    if isinstance(model.module, AllAttentionForCausalLM):
        smaller: PreTrainedModel = remove_heads(model.module, mask)
        return Shrunk(smaller.eval(), mask, (), parameters_before, parameters_of(smaller))
    require_family(model)
    kept_by_layer = _kept_by_layer(model, mask)
    remaining = _heads_by_stack(kept_by_layer, lambda unit, row: _heads_in_kept_groups(unit, row))
    switched_off = _heads_by_stack(
        kept_by_layer, lambda unit, row: [h for h in _heads_in_kept_groups(unit, row) if not row[h]]
    )
    smaller = _build(model.module, remaining, switched_off)
    masked_heads = tuple(
        Head(s, layer, h)
        for s, rows in switched_off.items()
        for layer, row in enumerate(rows)
        for h in row
    )
    return Shrunk(smaller, mask, masked_heads, parameters_before, parameters_of(smaller))


def parameters_of(module: torch.nn.Module) -> int:
    """Number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def require_zero(mask: Mask) -> None:
    """Raise HeadlabError for a mask chosen under mean ablation, as a removed head outputs 0."""
    if mask.of_means:
        raise HeadlabError(
            "this mask, or one it was made of, was chosen under mean ablation: its heads give "
            "their mean, but a removed head gives 0; choose a mask made with --ablation zero",
            code="shrink.mask_of_means",
        )


def require_family(model: Model) -> None:
    """Raise HeadlabError unless heads can be removed from models of this family."""
    family = base_type(model.module.config)
    if family not in FAMILIES:
        raise HeadlabError(
            f"{model.name} is of the family {family}, which headlab cannot shrink; it can shrink "
            f"{', '.join(FAMILIES)} and headlab's All-attention models. The mask itself still "
            f"works on {model.name}",
            code="shrink.family_unknown",
        )


def _kept_by_layer(model: Model, mask: Mask) -> list[tuple[AttentionLayer, Bools]]:
    """Every attention layer with its heads kept, bool [head]; layers without heads need not be in the grid."""
    rows = {
        stack.name: [
            np.asarray(row)
            for row in np.split(mask.kept[start : start + stack.size], np.cumsum(stack.heads)[:-1])
        ]
        for stack, start in zip(
            model.grid.stacks, np.cumsum([0, *(s.size for s in model.grid.stacks)]), strict=False
        )
    }
    kept_by_layer: list[tuple[AttentionLayer, Bools]] = []
    for name, own in rows.items():
        layers = [unit for unit in attention_layers(model.module) if unit.stack == name]
        own = [row for row in own if len(row)]
        if [unit.heads for unit in layers if unit.heads] != [len(row) for row in own]:
            raise HeadlabError(
                f"{model.name} is a {type(model.module).__name__}, whose {name} heads are not "
                "where headlab looks for them; it cannot be shrunk",
                code="shrink.heads_not_found",
            )
        remaining_rows = iter(own)
        kept_by_layer += [
            (unit, next(remaining_rows) if unit.heads else np.zeros(0, bool)) for unit in layers
        ]
    return kept_by_layer


def _heads_by_stack(
    kept_by_layer: Sequence[tuple[AttentionLayer, Bools]],
    choose: Callable[[AttentionLayer, Bools], list[int]],
) -> dict[str, list[list[int]]]:
    """{stack: [layer][heads]} that a function picks in each layer."""
    heads_by_stack: dict[str, list[list[int]]] = {}
    for layer, kept_heads in kept_by_layer:
        heads_by_stack.setdefault(layer.stack, []).append(choose(layer, kept_heads))
    return heads_by_stack


def _heads_in_kept_groups(layer: AttentionLayer, kept_heads: Bools) -> list[int]:
    """Heads that stay: all heads of a group in which any is kept."""
    groups = {int(head) // layer.group for head in np.flatnonzero(kept_heads)}
    return [head for head in range(layer.heads) if head // layer.group in groups]


def _build(
    module: PreTrainedModel, remaining: HeadsByStack, switched_off: HeadsByStack
) -> PreTrainedModel:
    """The smaller model with its weights, on the same device and in the same dtype."""
    family = base_type(module.config)
    make_known(PREFIX + family)
    config = plain_config(module, remaining) or _config(
        module.config, family, remaining, switched_off
    )
    kind = shrunk_class(_transformers_class(module), family) if is_shrunk(config) else type(module)
    with alone():
        model_and_info = kind.from_pretrained(
            None, config=config, state_dict=cut_state(module, remaining, switched_off), dtype=module.dtype,
            output_loading_info=True,
        )  # fmt: skip
    smaller, loading_info = cast(
        "tuple[PreTrainedModel, Mapping[str, Sequence[str]]]", model_and_info
    )
    if loading_info["missing_keys"] or loading_info["mismatched_keys"]:
        raise HeadlabError(
            f"{type(module).__name__} keeps weights in places that headlab does not know; it "
            "cannot be shrunk",
            code="shrink.weights_not_found",
        )
    torch.nn.Module.to(smaller, device=module.device)
    if module.can_generate():
        smaller.generation_config = copy.deepcopy(module.generation_config)
    smaller.eval()
    return smaller


def _transformers_class(module: PreTrainedModel) -> Any:
    """The transformers class of a model, whether it was shrunk before or not."""
    classes = (kind for kind in type(module).__mro__ if kind.__module__.startswith("transformers."))
    return next(classes)


def _config(
    old: PretrainedConfig, family: str, stay: HeadsByStack, closed: HeadsByStack
) -> PretrainedConfig:
    """The family's configuration with the remaining heads, numbered as in the model before any removal."""
    before: HeadsByStack | None = getattr(old, HEADS_KEY, None) if is_shrunk(old) else None
    masked: HeadsByStack | None = getattr(old, MASKED_KEY, None) if is_shrunk(old) else None

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
    facts = {name: value for name, value in old.to_dict().items() if name not in WRITTEN_ANEW}
    return shrunk_config(family).from_dict(facts | {HEADS_KEY: heads, MASKED_KEY: off})
