"""A smaller model with the masked model's outputs, and the dtype of its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from headlab.core import Bools, Head, HeadlabError, replacement_of
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models import DTYPES, building_alone
from headlab.models.allattention import AllAttentionForCausalLM, remove_heads
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
    NEURONS_KEY,
    PREFIX,
    AttentionLayer,
    HeadsByStack,
    attention_layers,
    base_type,
)
from headlab.models.shrunk_rest import (
    Rest,
    StackLayer,
    require_layers,
    sizes_left,
    stack_layers,
    state_of_rest,
)
from headlab.shrink.kept_parts import KeptParts, kept_parts

if TYPE_CHECKING:
    from headlab.shrink.vocabulary_cut import SmallerVocabulary, VocabularyCut

# The dtype that weights are written in: the checkpoint's own, unless another is given.


def check_dtype(name: str | None) -> None:
    """Raise HeadlabError unless weights can be written in this dtype.

    None is the checkpoint's own.
    """
    if name is not None and name not in DTYPES:
        raise HeadlabError(
            f"unknown dtype {name!r}; use one of {', '.join(DTYPES)}, or leave it out for the "
            "model's own",
            code="dtype.unknown",
        )


def checkpoint_dtype(model: Model) -> str:
    """Dtype of a model's checkpoint, whatever it was loaded in."""
    name = str(model.module.config.dtype).removeprefix("torch.")
    return name if name in DTYPES else model.dtype


def dtype_to_write(model: Model) -> str:
    """The dtype to write a model in.

    It is its checkpoint's, if that holds its weights exactly and is no wider.
    """
    own_dtype = checkpoint_dtype(model)
    if own_dtype == model.dtype:
        return own_dtype
    if DTYPES[own_dtype].itemsize > DTYPES[model.dtype].itemsize:
        return model.dtype
    if changes_weights(model.module, own_dtype):
        return model.dtype
    return own_dtype


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


def changes_weights(module: PreTrainedModel, dtype: str) -> bool:
    """Whether rounding to this dtype changes any weight."""
    return any(_changes_in(weight, dtype) for weight in _weights(module))


def bytes_in(parameters: int, dtype: str) -> int:
    """Size in bytes of this many parameters."""
    return parameters * DTYPES[dtype].itemsize


def _weights(module: nn.Module) -> list[torch.Tensor]:
    return [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]


def _changes_in(weight: torch.Tensor, dtype: str) -> bool:
    rounded_weight = weight.to(DTYPES[dtype]).to(weight.dtype)
    return not torch.equal(rounded_weight.nan_to_num(), weight.nan_to_num())


# A smaller model with the masked model's outputs.

WRITTEN_ANEW = (
    "model_type",
    "transformers_version",
    "architectures",
    HEADS_KEY,
    MASKED_KEY,
    NEURONS_KEY,
)


Form = Literal["small", "folder", "gguf"]
"""How a model without a mask's heads is written.

It is really smaller, of the original's shapes, or a file for llama.cpp, really smaller too.
"""


@dataclass(frozen=True)
class PartCounts:
    """How many parts of a model there are.

    Attributes:
        heads: Query heads.
        neurons: Neurons of feed-forward parts.
        layers: Layers, each with one or two attentions and a feed-forward part.
    """

    heads: int
    neurons: int
    layers: int


@dataclass(frozen=True)
class Shrunk:
    """A model without the heads and other players of a mask, and what became of them.

    Attributes:
        module: Transformers module of its own, in evaluation mode; the original is unchanged.
        masked_heads: Removed heads whose weights stay. Their output is 0, or their mean if there
            are `means`. In the form "small" others of their group need the same key and value.
        form: "small" and "gguf" without the weights of what is removed; "folder" with all.
        means: Mean output of every head, [layer, head, head_dim], that a removed head gives; None
            for zero.
        vocabulary: The smaller vocabulary, if it was cut.
        before: What the original has; None where its parts other than heads were not counted.
        after: What has an effect in this one, so without `masked_heads` in the form "folder".
    """

    module: PreTrainedModel
    mask: Mask
    masked_heads: tuple[Head, ...]
    parameters_before: int
    parameters_after: int
    form: Form = "small"
    means: torch.Tensor | None = None
    vocabulary: SmallerVocabulary | None = None
    before: PartCounts | None = None
    after: PartCounts | None = None

    @property
    def cut(self) -> VocabularyCut | None:
        """Which pieces of the vocabulary stay; None where all do."""
        return None if self.vocabulary is None else self.vocabulary.cut

    @property
    def removed_count(self) -> int:
        """Number of heads whose weights were removed."""
        if self.mask.grid.has_only_heads or self.before is None or self.after is None:
            return len(self.mask.removed) - len(self.masked_heads)
        return 0 if self.form == "folder" else self.before.heads - self.after.heads


def shrink_model(model: Model, mask: Mask) -> Shrunk:
    """A copy of the model without a mask's heads, or other players.

    Its outputs are those of the model under the mask.

    Layers may keep any number of heads and neurons, or none; layers that are closed whole are left
    out. Query heads that share keys and values are removed in whole groups only; the others stay
    and output 0.

    Raises HeadlabError for another model's mask, a mask chosen under mean ablation, and a family
    that cannot be shrunk.
    """
    mask.check(model.grid, model.fingerprint)
    require_zero(mask)
    model.require_whole("shrinking")
    parameters_before = parameters_of(model.module)
    parts = kept_parts(model, mask)
    if isinstance(model.module, AllAttentionForCausalLM):
        return _shrunk_all_attention(model, model.module, mask, parts)
    require_family(model)
    rest = _rest_of(model, parts)
    require_layers(model.module, rest)
    smaller = _build(model.module, rest)
    masked_heads: list[Head] = []
    for stack, layers in rest.switched_off.items():
        for layer, heads in enumerate(layers):
            if rest.stays(stack, layer):
                masked_heads += [Head(stack, layer, head) for head in heads]
    return Shrunk(
        smaller,
        mask,
        tuple(masked_heads),
        parameters_before,
        parameters_of(smaller),
        before=_counts_of(model.module),
        after=_counts_of(smaller),
    )


def _shrunk_all_attention(
    model: Model, module: AllAttentionForCausalLM, mask: Mask, parts: KeptParts
) -> Shrunk:
    """As `shrink_model`, for headlab's own All-attention models, which have heads alone."""
    if parts.skipped or parts.neurons:
        raise HeadlabError(
            f"{model.name} is an All-attention model, which headlab writes without heads only; use "
            "a mask of heads, kv-groups or attention",
            code="shrink.family_of_heads",
        )
    head_mask = mask
    if model.player_set is not None:
        head_mask = Mask(model.head_grid, parts.heads, model.identity())
    smaller: PreTrainedModel = remove_heads(module, head_mask)
    heads = PartCounts(model.head_grid.size, 0, model.head_grid.layers)
    return Shrunk(
        smaller.eval(),
        mask,
        (),
        parameters_of(module),
        parameters_of(smaller),
        before=heads,
        after=replace(heads, heads=int(parts.heads.sum())),
    )


def _counts_of(module: PreTrainedModel) -> PartCounts:
    """The parts of a model of a known family."""
    layers = stack_layers(module)
    return PartCounts(
        heads=sum(layer.heads for layer in attention_layers(module)),
        neurons=sum(layer.neurons for layer in layers),
        layers=len(layers),
    )


def parameters_of(module: torch.nn.Module) -> int:
    """Number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def require_zero(mask: Mask) -> None:
    """Raise HeadlabError for a mask chosen under another ablation, as a removed head outputs 0."""
    require_in_weights(mask)
    if mask.of_means:
        raise HeadlabError(
            "this mask, or one it was made of, was chosen under mean ablation: its heads give "
            "their mean, but a removed head gives 0; choose a mask made with --ablation zero, or "
            "write it with headlab export --as folder",
            code="shrink.mask_of_means",
        )


def require_in_weights(mask: Mask) -> None:
    """Raise HeadlabError for a mask whose heads give what no weights can hold."""
    if mask.beyond_weights:
        raise HeadlabError(
            f"this mask, or one it was made of, was chosen under {mask.beyond_weights} ablation: its heads give "
            f"{replacement_of(mask.beyond_weights)}, which no weights can hold; choose a mask made with --ablation zero",
            code="shrink.mask_of_other_texts",
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


def _rest_of(model: Model, parts: KeptParts) -> Rest:
    """What is left of a model.

    Raises:
        HeadlabError: Its heads, neurons or layers are not where headlab looks for them.
    """
    kept_by_layer = _kept_by_layer(model, parts.heads)
    layers = stack_layers(model.module)
    skipped = set(parts.skipped)
    neurons = dict(parts.neurons)
    layers_gone: dict[str, set[int]] = {}
    for layer in layers:
        if layer.path in skipped:
            skipped.remove(layer.path)
            layers_gone.setdefault(layer.stack, set()).add(layer.number)
    kept_neurons = [_kept_neurons(layer, neurons.pop(layer.down_path, None)) for layer in layers]
    if skipped or neurons:
        raise HeadlabError(
            f"{model.name} is a {type(model.module).__name__}, whose layers or neurons are not "
            "where headlab looks for them; it cannot be shrunk by a mask of these",
            code="shrink.neurons_not_found",
        )
    neurons_by_stack: dict[str, list[list[int]]] = {}
    if parts.neurons:
        for layer, kept in zip(layers, kept_neurons, strict=True):
            neurons_by_stack.setdefault(layer.stack, []).append(kept)
    return Rest(
        heads=_heads_by_stack(kept_by_layer, _heads_in_kept_groups),
        switched_off=_heads_by_stack(kept_by_layer, _switched_off_heads),
        neurons=neurons_by_stack,
        layers_gone={stack: frozenset(numbers) for stack, numbers in layers_gone.items()},
    )


def _kept_neurons(layer: StackLayer, kept: Bools | None) -> list[int]:
    """Numbers of the neurons of a layer that stay; all where nothing is said of them."""
    if kept is None:
        return list(range(layer.neurons))
    return [int(neuron) for neuron in np.flatnonzero(kept)]


def _kept_by_layer(model: Model, kept: Bools) -> list[tuple[AttentionLayer, Bools]]:
    """Every attention layer with its heads kept, bool [head].

    Layers without heads need not be in the grid.

    Args:
        model: The model.
        kept: Which heads are kept, bool [head].
    """
    kept_by_layer: list[tuple[AttentionLayer, Bools]] = []
    start = 0
    for stack in model.head_grid.stacks:
        kept_in_stack = kept[start : start + stack.size]
        start += stack.size
        rows = [row for row in np.split(kept_in_stack, np.cumsum(stack.heads)[:-1]) if len(row)]
        layers = [layer for layer in attention_layers(model.module) if layer.stack == stack.name]
        if [layer.heads for layer in layers if layer.heads] != [len(row) for row in rows]:
            raise HeadlabError(
                f"{model.name} is a {type(model.module).__name__}, whose {stack.name} heads are "
                "not where headlab looks for them; it cannot be shrunk",
                code="shrink.heads_not_found",
            )
        next_rows = iter(rows)
        for layer in layers:
            kept_heads = next(next_rows) if layer.heads else np.zeros(0, bool)
            kept_by_layer.append((layer, kept_heads))
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


def _switched_off_heads(layer: AttentionLayer, kept_heads: Bools) -> list[int]:
    """Heads that stay for others of their group, but output 0."""
    return [head for head in _heads_in_kept_groups(layer, kept_heads) if not kept_heads[head]]


def _build(module: PreTrainedModel, rest: Rest) -> PreTrainedModel:
    """The smaller model with its weights, on the same device and in the same dtype."""
    family = base_type(module.config)
    make_known(PREFIX + family)
    config = plain_config(module, rest) or _config(module, family, rest)
    model_class = (
        shrunk_class(_transformers_class(module), family) if is_shrunk(config) else type(module)
    )
    with building_alone():
        model_and_info = model_class.from_pretrained(
            None,
            config=config,
            state_dict=state_of_rest(module, rest),
            dtype=module.dtype,
            output_loading_info=True,
        )
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


def _config(module: PreTrainedModel, family: str, rest: Rest) -> PretrainedConfig:
    """The family's configuration with what is left.

    Heads are numbered as in the model before any removal.

    Args:
        module: The model that something is removed from, which may be a shrunk one.
        family: Model type of the family.
        rest: What is left of it.
    """
    full_config = module.config
    heads_before: HeadsByStack = {}
    masked_before: HeadsByStack = {}
    if is_shrunk(full_config):
        heads_before = getattr(full_config, HEADS_KEY, None) or {}
        masked_before = getattr(full_config, MASKED_KEY, None) or {}
    heads = _numbered_as_before(rest.heads, heads_before)
    masked = _numbered_as_before(rest.switched_off, heads_before)
    for stack in masked_before:
        for layer, still_masked in enumerate(masked.get(stack, [])):
            of_before = set(masked_before[stack][layer]) & set(heads[stack][layer])
            masked[stack][layer] = sorted({*still_masked, *of_before})
    fields, uneven_neurons = sizes_left(module, rest)
    values = {
        name: value for name, value in full_config.to_dict().items() if name not in WRITTEN_ANEW
    }
    values |= fields | {HEADS_KEY: rest.of_layers(heads), MASKED_KEY: rest.of_layers(masked)}
    if uneven_neurons:
        values[NEURONS_KEY] = uneven_neurons
    return shrunk_config(family).from_dict(values)


def _numbered_as_before(
    heads: HeadsByStack, heads_before: HeadsByStack
) -> dict[str, list[list[int]]]:
    """Heads by their numbers before any removal.

    Args:
        heads: By their current numbers in the layer.
        heads_before: The numbers of the current heads before any removal; without a stack that has
            lost none.
    """
    numbered: dict[str, list[list[int]]] = {}
    for stack, layers in heads.items():
        numbered[stack] = [list(heads_of_layer) for heads_of_layer in layers]
        if stack in heads_before:
            for layer, numbers in enumerate(heads_before[stack]):
                numbered[stack][layer] = [numbers[head] for head in numbered[stack][layer]]
    return numbered
