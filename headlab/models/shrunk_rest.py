"""What is left of a model of a known family: of every layer its heads and neurons, or no layer.

One description, `Rest`, says it; weights, shapes and the configuration follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from headlab.core import HeadlabError
from headlab.models.shrunk_cut import (
    FAMILIES,
    OWN_STACK,
    BiasOnly,
    HeadsByStack,
    LayerNames,
    attention_layers,
    base_type,
    check_heads,
    indices_of_heads,
    indices_to_keep,
    input_dimension,
    narrow,
    output_indices,
    outputs,
    replace_forward,
    set_forward,
    shrink_heads,
    stacks,
    without_absent_stacks,
)

CROSS = "cross"
POSITION_BIAS = "layer.0.SelfAttention.relative_attention_bias.weight"
"""Of T5's layers the first of a stack has it, for all of them."""


@dataclass(frozen=True)
class StackLayer:
    """A layer of a model, and its feed-forward part.

    Attributes:
        path: Of the layer.
        stack: "encoder" or "decoder".
        number: Of the layer in its stack.
        names: What its family calls its parts.
        part: The module that has the projections of the feed-forward part.
        ups: Projections in it that make the neurons.
        neurons: How many there are.
    """

    path: str
    stack: str
    number: int
    names: LayerNames
    part: nn.Module
    ups: tuple[str, ...]
    neurons: int

    @property
    def part_path(self) -> str:
        """Path of the module that has the projections."""
        return f"{self.path}.{self.names.feed_forward}".rstrip(".")

    @property
    def down_path(self) -> str:
        """Path of the projection that reads the neurons."""
        return f"{self.part_path}.{self.names.down}"

    @property
    def down(self) -> nn.Module:
        """The projection that reads the neurons."""
        return self.part.get_submodule(self.names.down)


def stack_layers(module: PreTrainedModel) -> list[StackLayer]:
    """Every layer of a model of a known family, stack by stack."""
    layers_found: list[StackLayer] = []
    for names, path in _lists_of_layers(module):
        for number, layer in enumerate(module.get_submodule(path).children()):
            part = layer.get_submodule(names.feed_forward)
            ups = tuple(name for name in names.ups if hasattr(part, name.split(".")[0]))
            down = part.get_submodule(names.down)
            weight = down.weight
            assert isinstance(weight, torch.Tensor)
            layers_found.append(
                StackLayer(
                    path=f"{path}.{number}",
                    stack=_stack_of(module, names),
                    number=number,
                    names=names,
                    part=part,
                    ups=ups,
                    neurons=weight.shape[input_dimension(down)],
                )
            )
    return layers_found


def _lists_of_layers(module: PreTrainedModel) -> Iterator[tuple[LayerNames, str]]:
    """(names, path) of the list of layers of every stack that a model has."""
    for names in FAMILIES[base_type(module.config)].layers:
        for path, part in module.named_modules():
            is_list = isinstance(part, nn.ModuleList)
            if is_list and re.search(rf"(?:^|\.){re.escape(names.path)}$", path):
                yield names, path


def _stack_of(module: PreTrainedModel, names: LayerNames) -> str:
    """The stack that some layers are of."""
    return stacks(module)[0] if names.stack == OWN_STACK else names.stack


# What is left.


@dataclass(frozen=True)
class Rest:
    """What is left of a model; all numbers are those before anything goes.

    Attributes:
        heads: Query heads that stay in the weights.
        switched_off: Those of them whose output is 0, as others of their group need the same key
            and value.
        neurons: Neurons that stay, {stack: [layer][neuron]}; without a stack that loses none.
        layers_gone: Numbers of the layers that are left out, {stack: numbers}; the cross-attention
            of a layer goes with it.
    """

    heads: HeadsByStack
    switched_off: HeadsByStack
    neurons: Mapping[str, Sequence[Sequence[int]]]
    layers_gone: Mapping[str, frozenset[int]]

    def stays(self, stack: str, layer: int) -> bool:
        """Whether a layer stays."""
        base = "decoder" if stack == CROSS else stack
        return layer not in self.layers_gone.get(base, ())

    def of_layers(self, rows: HeadsByStack) -> dict[str, list[list[int]]]:
        """{stack: [layer][...]} without the layers that are left out."""
        return {
            stack: [list(row) for layer, row in enumerate(layers) if self.stays(stack, layer)]
            for stack, layers in rows.items()
        }

    def neurons_of(self, layer: StackLayer) -> Sequence[int]:
        """The neurons of a layer that stay."""
        if layer.stack in self.neurons:
            return self.neurons[layer.stack][layer.number]
        return range(layer.neurons)


def require_layers(module: PreTrainedModel, rest: Rest) -> None:
    """Raise HeadlabError unless a model can go without the layers that are left out."""
    if not any(rest.layers_gone.values()):
        return
    staying = {layer.stack: 0 for layer in stack_layers(module)}
    for layer in stack_layers(module):
        staying[layer.stack] += rest.stays(layer.stack, layer.number)
    for stack, count in staying.items():
        if not count:
            raise HeadlabError(
                f"the mask closes every layer of the {stack}, and a model needs one or more; open "
                "a layer, or close its attention and its feed-forward part instead",
                code="shrink.no_layer_left",
            )
    for stack, gone in rest.layers_gone.items():
        layers = [layer for layer in stack_layers(module) if layer.stack == stack]
        first = next(layer for layer in layers if rest.stays(stack, layer.number))
        if 0 in gone and _weights_in(module, layers[0]) != _weights_in(module, first):
            raise HeadlabError(
                f"the first layer of the {stack} is made otherwise than the others, so that none of "
                "them can take its place; keep it, or close its attention and its feed-forward part "
                "instead",
                code="shrink.first_layer_differs",
            )
    if getattr(module.config, "scale_attn_by_inverse_layer_idx", False):
        raise HeadlabError(
            "this model's attention is scaled by the number of its layer, which would change for "
            "the layers after one that is left out; close its attention and its feed-forward part "
            "instead",
            code="shrink.layers_numbered",
        )


def _weights_in(module: PreTrainedModel, layer: StackLayer) -> set[str]:
    """The names of a layer's weights, but for the position bias, which a next layer takes over."""
    return {*module.get_submodule(layer.path).state_dict()} - {POSITION_BIAS}


def sizes_left(
    module: PreTrainedModel, rest: Rest
) -> tuple[dict[str, object], dict[str, list[int]]]:
    """What a configuration says of the layers that stay.

    Args:
        module: The model before anything goes.
        rest: What is left of it.

    Returns:
        Fields of the family's own configuration with their values; and {stack: [neurons of each
            layer]} of stacks whose layers no such field can describe.
    """
    fields: dict[str, object] = {}
    counts_by_field: dict[str, dict[str, list[int]]] = {}
    counts_before: dict[str, set[int]] = {}
    for layer in stack_layers(module):
        counts_before.setdefault(layer.names.width, set()).add(layer.neurons)
        counts = counts_by_field.setdefault(layer.names.width, {}).setdefault(layer.stack, [])
        if rest.stays(layer.stack, layer.number):
            counts.append(len(rest.neurons_of(layer)))
    uneven: dict[str, list[int]] = {}
    for field, counts_by_stack in counts_by_field.items():
        all_counts = {count for counts in counts_by_stack.values() for count in counts}
        if len(all_counts) > 1 or not all(all_counts):
            uneven |= counts_by_stack
        elif all_counts != counts_before[field]:
            fields[field] = all_counts.pop()
    for names, path in _lists_of_layers(module):
        stack = _stack_of(module, names)
        gone = rest.layers_gone.get(stack, frozenset())
        if not gone:
            continue
        count = len(list(module.get_submodule(path).children()))
        fields[names.count] = count - len(gone)
        kinds = getattr(module.config, "layer_types", None)
        if kinds:
            fields["layer_types"] = [kind for n, kind in enumerate(kinds) if n not in gone]
    return fields, uneven


# The weights that are left.


def state_of_rest(module: PreTrainedModel, rest: Rest) -> dict[str, torch.Tensor]:
    """All weights of what is left of a model; the model is not changed.

    Args:
        module: The model.
        rest: What is left of it.
    """
    family = FAMILIES[base_type(module.config)]
    state = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    for layer in attention_layers(module):
        if layer.stack not in rest.heads or not rest.stays(layer.stack, layer.layer):
            continue
        output_weight = f"{layer.path}.{family.out}.weight"
        columns = indices_of_heads(rest.switched_off[layer.stack][layer.layer], layer.size).to(
            state[output_weight].device
        )
        state[output_weight].index_fill_(
            input_dimension(layer.module.get_submodule(family.out)), columns, 0
        )
        kept_heads = rest.heads[layer.stack][layer.layer]
        for name, dimension, indices in indices_to_keep(layer, family, kept_heads):
            _select(state, f"{layer.path}.{name}", dimension, indices)
    for feed_forward in stack_layers(module):
        neurons = rest.neurons_of(feed_forward)
        is_whole = len(neurons) == feed_forward.neurons
        if is_whole or not rest.stays(feed_forward.stack, feed_forward.number):
            continue
        for name, dimension, indices in _neurons_to_keep(feed_forward, neurons):
            _select(state, f"{feed_forward.part_path}.{name}", dimension, indices)
    for names, path in _lists_of_layers(module):
        gone = rest.layers_gone.get(_stack_of(module, names), frozenset())
        if gone:
            state = _without_layers(state, path, gone)
    return state


def _select(
    state: dict[str, torch.Tensor], name: str, dimension: int, indices: torch.Tensor
) -> None:
    """Leave some rows or columns of a weight."""
    state[name] = state[name].index_select(dimension, indices.to(state[name].device))


def _neurons_to_keep(
    layer: StackLayer, neurons: Sequence[int]
) -> Iterator[tuple[str, int, torch.Tensor]]:
    """(parameter relative to the feed-forward part, dimension, indices) for neurons that stay."""
    indices = torch.tensor(list(neurons), dtype=torch.long)
    for name in layer.ups:
        # A gated part may make both numbers of a neuron with one projection, one half each.
        halves = outputs(layer.part.get_submodule(name)) // max(layer.neurons, 1)
        indices_of_halves = [indices + half * layer.neurons for half in range(halves)]
        yield from output_indices(layer.part, name, torch.cat([*indices_of_halves, indices[:0]]))
    yield f"{layer.names.down}.weight", input_dimension(layer.down), indices


def _without_layers(
    state: Mapping[str, torch.Tensor], path: str, gone: frozenset[int]
) -> dict[str, torch.Tensor]:
    """Weights without those of some layers of a list; the others are numbered anew.

    Args:
        state: All weights.
        path: Of the list of layers.
        gone: Numbers of the layers that are left out.
    """
    pattern = re.compile(rf"{re.escape(path)}\.(\d+)\.(.+)")
    remaining: dict[str, torch.Tensor] = {}
    for name, weight in state.items():
        match = pattern.fullmatch(name)
        if match is None:
            remaining[name] = weight
        elif int(match[1]) not in gone:
            number = int(match[1]) - sum(other < int(match[1]) for other in gone)
            remaining[f"{path}.{number}.{match[2]}"] = weight
        elif match[1] == "0" and match[2] == POSITION_BIAS:
            remaining[name] = weight
    return remaining


# The shapes of a model that is built with what is left.


def shrink_structure(
    module: PreTrainedModel, heads: HeadsByStack, neurons: Mapping[str, Sequence[int]] | None = None
) -> None:
    """Give a full model's layers the shapes they have with what is left, in place.

    The weights become meaningless.

    Args:
        module: The model, with as many layers as stay.
        heads: The heads that each keeps, {stack: [layer][heads]}.
        neurons: How many neurons each keeps, {stack: [number]}.

    Raises:
        HeadlabError: The model has no such layers, heads or neurons.
    """
    family = FAMILIES[base_type(module.config)]
    layers = attention_layers(module)
    check_heads(layers, without_absent_stacks(module, layers, heads))
    feed_forwards = stack_layers(module)
    _check_neurons(module, feed_forwards, neurons or {})
    for layer in layers:
        if layer.stack in heads:
            kept_heads = list(heads[layer.stack][layer.layer])
            shrink_heads(layer, family, kept_heads)
            set_forward(layer, family, kept_heads)
    for feed_forward in feed_forwards:
        if neurons and feed_forward.stack in neurons:
            _shrink_neurons(feed_forward, neurons[feed_forward.stack][feed_forward.number])


def _shrink_neurons(layer: StackLayer, count: int) -> None:
    """Give a feed-forward part the shapes that it has with so many neurons, in place."""
    for name, dimension, indices in _neurons_to_keep(layer, range(count)):
        path, _, parameter_name = name.rpartition(".")
        narrow(layer.part.get_submodule(path), parameter_name, dimension, len(indices))
    if not count:
        replace_forward(layer.down, BiasOnly, width=outputs(layer.down))


def _check_neurons(module: PreTrainedModel, layers: Sequence[StackLayer], neurons: object) -> None:
    """Raise HeadlabError unless {stack: [number]} are numbers of neurons of these layers.

    Stacks that this class lacks, as a decoder alone does, need not fit.
    """
    widths_by_stack: dict[str, list[int]] = {}
    for layer in layers:
        widths_by_stack.setdefault(layer.stack, []).append(layer.neurons)
    if not isinstance(neurons, Mapping) or not set(neurons) <= set(stacks(module)) - {CROSS}:
        raise HeadlabError(
            f"this model has neurons in {', '.join(widths_by_stack)}; its list of neurons names "
            "other stacks",
            code="shrunk.stacks_mismatch",
        )
    for stack, widths in widths_by_stack.items():
        counts = neurons.get(stack, widths)
        is_list = isinstance(counts, list | tuple) and len(counts) == len(widths)
        if not is_list or not all(
            type(count) is int and 0 <= count <= width
            for count, width in zip(counts, widths, strict=True)
        ):
            raise HeadlabError(
                f"the {len(widths)} layers of the {stack} have up to {max(widths):,} neurons; their "
                f"list of neurons is {str(counts)[:80]}",
                code="shrunk.neurons_mismatch",
            )


def parts_of_layers(module: PreTrainedModel) -> tuple[str, ...]:
    """Paths of the attentions and of the projections of feed-forward parts."""
    paths = [layer.path for layer in attention_layers(module)]
    for layer in stack_layers(module):
        paths += [f"{layer.part_path}.{name}" for name in (*layer.ups, layer.names.down)]
    return tuple(paths)
