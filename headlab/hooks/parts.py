"""Feed-forward parts and whole layers of a model: found by what it does, and gated.

A run on the probe's text says in which order linear layers are called. Those of a layer that come
after its last attention must be a feed-forward part and nothing else: one or two that read the
same states, and one that takes what these make and gives states again, the down projection. A
layer whose weights are not all accounted for that way is refused, as one with experts is: zeroing
one of several parts would not be what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlab.core import HeadGrid, HeadlabError
from headlab.hooks.find import AttentionCall, logits
from headlab.hooks.state import (
    LAYER_OUTPUTS,
    NEURON_OUTPUTS,
    ActiveGates,
    LayerForward,
    OtherOutputs,
    Owner,
    active_for,
    in_this_thread,
    number_of_call,
    pick_rows,
)
from headlab.models.shrunk_cut import BiasOnly

CROSS = "cross"  # the stack whose heads are in the layers of the decoder
NUMBERED = re.compile(r"(.*?)\.(\d+)\.")


@dataclass(frozen=True)
class Layer:
    """A layer of the model, and where its parts are.

    Attributes:
        stack: "encoder" or "decoder".
        number: Of the layer in its stack.
        rows: Of its attention in the grid of heads, one or two.
    """

    stack: str
    number: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """The layers of a model, with their feed-forward parts where all have one.

    Attributes:
        layers: In the order of the grid of heads, each once.
        downs: The down projection of each layer; empty where `why_no_neurons` says why.
        ups: What makes the neurons of each layer, one linear layer or two; empty as `downs`.
        modules: The module of each layer; empty where `why_no_layers` says why.
        why_no_neurons: In a clause; empty if feed-forward parts were found.
        why_no_layers: In a clause; empty if modules were found.
    """

    layers: tuple[Layer, ...]
    downs: tuple[nn.Linear | Conv1D, ...]
    ups: tuple[tuple[nn.Linear | Conv1D, ...], ...]
    modules: tuple[nn.Module, ...]
    why_no_neurons: str
    why_no_layers: str

    @property
    def neurons(self) -> tuple[int, ...]:
        """Number of neurons of each layer's feed-forward part."""
        return tuple(widths_of(down)[0] for down in self.downs)


class NotFound(Exception):
    """A part that is not found, with the reason in a clause."""


def widths_of(linear: nn.Module) -> tuple[int, int]:
    """Numbers of inputs and of outputs of a linear layer."""
    if isinstance(linear, nn.Linear):  # whose weights may be packed
        return linear.in_features, linear.out_features
    weight = linear.weight
    assert isinstance(weight, torch.Tensor)  # a Conv1D has [input, output]
    inputs, outputs = weight.shape
    return inputs, outputs


def layers_of(heads: HeadGrid) -> tuple[Layer, ...]:
    """The layers that a grid of heads has rows of."""
    rows_by_layer: dict[tuple[str, int], list[int]] = {}
    row = 0
    for stack in heads.stacks:
        name = "decoder" if stack.name == CROSS else stack.name
        for number in range(stack.layers):
            rows_by_layer.setdefault((name, number), []).append(row)
            row += 1
    return tuple(Layer(*place, tuple(rows)) for place, rows in rows_by_layer.items())


@dataclass(frozen=True)
class LinearCall:
    """A call of a linear layer, or of what stands for an attention, in one pass.

    Attributes:
        module: What was called.
        name: Its path.
        states: Its input.
    """

    module: nn.Module
    name: str
    states: torch.Tensor | None


def find_parts(module: PreTrainedModel, calls: Sequence[AttentionCall], heads: HeadGrid) -> Parts:
    """The feed-forward parts and the layers of a model.

    Args:
        module: The model.
        calls: The attention computation of every row of the grid of heads.
        heads: The grid of heads.
    """
    layers = layers_of(heads)
    containers = _containers(module, calls, layers)
    with ExitStack() as undo:
        linear_calls = undo.enter_context(_linear_calls_of(module, calls))
        flow = undo.enter_context(_flow_through(containers))
        run_children = undo.enter_context(_children_run_of(containers))
        logits(module)
    linears: tuple[tuple[nn.Linear | Conv1D, ...], ...] = ()
    why_no_neurons = ""
    try:
        linears = _feed_forward_parts(module, calls, layers, linear_calls, run_children)
    except NotFound as error:
        why_no_neurons = str(error)
    modules: tuple[nn.Module, ...] = ()
    why_no_layers = ""
    try:
        modules = _whole_layers(containers, layers, flow)
    except NotFound as error:
        why_no_layers = str(error)
    return Parts(
        layers,
        downs=tuple(part[-1] for part in linears),
        ups=tuple(part[:-1] for part in linears),
        modules=modules,
        why_no_neurons=why_no_neurons,
        why_no_layers=why_no_layers,
    )


def _place_of(name: str) -> tuple[str, int] | None:
    """The path of the first numbered list that a module is in, and its number there."""
    match = NUMBERED.match(f"{name}.")
    return (match[1], int(match[2])) if match else None


def _containers(
    module: PreTrainedModel, calls: Sequence[AttentionCall], layers: Sequence[Layer]
) -> list[nn.Module | None]:
    """The numbered module that each layer's attention is in; None where there is none."""
    containers: list[nn.Module | None] = []
    for layer in layers:
        place = _place_of(calls[layer.rows[0]].name)
        path = "" if place is None else f"{place[0]}.{place[1]}"
        containers.append(module.get_submodule(path) if path else None)
    return containers


@contextmanager
def _linear_calls_of(
    module: PreTrainedModel, calls: Sequence[AttentionCall]
) -> Iterator[list[LinearCall]]:
    """The calls of linear layers, and of attention without heads, while the block lasts."""
    linear_calls: list[LinearCall] = []
    headless = {call.projection for call in calls if not call.heads}
    with ExitStack() as undo:
        for name, part in module.named_modules():
            if not isinstance(part, nn.Linear | Conv1D) and part not in headless:
                continue

            def note(called: nn.Module, args: tuple[object, ...], name: str = name) -> None:
                states = args[0] if args and isinstance(args[0], torch.Tensor) else None
                linear_calls.append(LinearCall(called, name, states))

            undo.callback(part.register_forward_pre_hook(in_this_thread(note)).remove)
        yield linear_calls


@contextmanager
def _flow_through(
    containers: Sequence[nn.Module | None],
) -> Iterator[list[tuple[nn.Module, torch.Tensor | None, torch.Tensor | None]]]:
    """(module, its input, its output) of each call of the layers' modules while the block lasts."""
    flow: list[tuple[nn.Module, torch.Tensor | None, torch.Tensor | None]] = []

    def note(
        called: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object
    ) -> None:
        states = args[0] if args else kwargs.get("hidden_states")
        result = output[0] if isinstance(output, tuple) and output else output
        flow.append((called, _as_tensor(states), _as_tensor(result)))

    with ExitStack() as undo:
        for container in {container for container in containers if container is not None}:
            hook = in_this_thread(note)
            undo.callback(container.register_forward_hook(hook, with_kwargs=True).remove)
        yield flow


@contextmanager
def _children_run_of(containers: Sequence[nn.Module | None]) -> Iterator[set[nn.Module]]:
    """The parts of layers that are run while the block lasts, themselves or by what is in them."""
    run_children: set[nn.Module] = set()
    with ExitStack() as undo:
        for container in {container for container in containers if container is not None}:
            for child in container.children():
                for part in child.modules():

                    def note(_called: nn.Module, _args: object, child: nn.Module = child) -> None:
                        run_children.add(child)

                    undo.callback(part.register_forward_pre_hook(in_this_thread(note)).remove)
        yield run_children


def _as_tensor(value: object) -> torch.Tensor | None:
    return value if isinstance(value, torch.Tensor) else None


# Feed-forward parts.


def _feed_forward_parts(
    module: PreTrainedModel,
    calls: Sequence[AttentionCall],
    layers: Sequence[Layer],
    linear_calls: Sequence[LinearCall],
    run_children: set[nn.Module],
) -> tuple[tuple[nn.Linear | Conv1D, ...], ...]:
    """The linear layers of every feed-forward part, the down projection last.

    Raises NotFound with the reason.
    """
    ends = _attention_ends(calls, linear_calls)
    boundaries = sorted(ends.values())
    roots = _attention_roots(calls)
    parts: list[tuple[nn.Linear | Conv1D, ...]] = []
    for layer in layers:
        last = max(ends[row] for row in layer.rows)
        end = next((boundary for boundary in boundaries if boundary > last), len(linear_calls))
        following = linear_calls[last + 1 : end]
        own_calls = _calls_of_layer(calls[layer.rows[-1]].name, following, roots)
        linears = _linears_of(own_calls, f"layer {layer.number} of the {layer.stack}")
        earlier = {call.module for call in linear_calls[: last + 1]}
        accounted = earlier | {call.module for call in own_calls}
        _require_nothing_else(
            module, calls[layer.rows[0]].name, accounted, roots, layer, run_children
        )
        parts.append(linears)
    downs = [part[-1] for part in parts]
    for down in set(downs):
        times = sum(call.module is down for call in linear_calls)
        if times != sum(other is down for other in downs):
            raise NotFound("a feed-forward part is run more than once a layer")
    return tuple(parts)


def _attention_ends(
    calls: Sequence[AttentionCall], linear_calls: Sequence[LinearCall]
) -> dict[int, int]:
    """For each row of the grid of heads, which linear call is that of its output projection."""
    rows_by_projection: dict[nn.Module, list[int]] = {}
    for row, call in enumerate(calls):
        rows_by_projection.setdefault(call.projection, []).append(row)
    ends: dict[int, int] = {}
    for index, linear_call in enumerate(linear_calls):
        rows = rows_by_projection.get(linear_call.module)
        if rows:
            # What stands for an attention without heads may be followed by what is left of its
            # output projection.
            following = linear_calls[index + 1 : index + 2]
            is_followed = any(isinstance(call.module, BiasOnly) for call in following)
            ends[rows.pop(0)] = index + is_followed
    if len(ends) < len(calls):
        raise NotFound("not every attention is run on a short text")
    return ends


def _attention_roots(calls: Sequence[AttentionCall]) -> tuple[str, ...]:
    """Paths of modules that hold attention and nothing else."""
    roots = set()
    for call in calls:
        parent, _, last_name = call.name.rpartition(".")
        is_numbered = parent.rpartition(".")[2].isdigit()
        holds_layer = call.through_function or not call.heads or is_numbered or not last_name
        roots.add(call.name if holds_layer else parent)
    return tuple(roots)


def _is_in(name: str, roots: Sequence[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def _calls_of_layer(
    attention_name: str, following: Sequence[LinearCall], roots: Sequence[str]
) -> list[LinearCall]:
    """The linear calls after a layer's attention that belong to the same layer.

    They are in the same numbered module or, where lists of attentions and of feed-forward parts
    stand side by side, have its number in another list.
    """
    place = _place_of(attention_name)
    outside = [call for call in following if not _is_in(call.name, roots)]
    if place is None:
        return outside
    places = [_place_of(call.name) for call in outside]
    inside = [call for call, other in zip(outside, places, strict=True) if other == place]
    if inside:
        return inside
    path, number = place
    return [
        call
        for call, other in zip(outside, places, strict=True)
        if other is not None and other[1] == number and other[0] != path
    ]


def _linears_of(own_calls: Sequence[LinearCall], place: str) -> tuple[nn.Linear | Conv1D, ...]:
    """The linear layers that are called after a layer's attention, the down projection last.

    Raises:
        NotFound: They are not those of one feed-forward part.
    """
    if len(own_calls) < 2:
        raise NotFound(f"{place} has no feed-forward part of two linear layers")
    *ups, last_call = own_calls
    down = last_call.module
    assert isinstance(down, nn.Linear | Conv1D)
    neurons, width = widths_of(down)
    inputs = [up.states for up in ups]
    reads_same = all(_same(states, inputs[0]) for states in inputs)
    made = sum(widths_of(up.module)[1] for up in ups)
    # A gated part makes two numbers a neuron, with one linear layer or two.
    if not reads_same or made not in (neurons, 2 * neurons) or len(ups) > 2:
        raise NotFound(
            f"{place} has more linear layers after its attention than those of one feed-forward "
            "part, as layers with experts or bottlenecks have"
        )
    if any(widths_of(up.module)[0] != width for up in ups):
        raise NotFound(f"the feed-forward part of {place} changes the width")
    return tuple(cast("nn.Linear | Conv1D", call.module) for call in own_calls)


def _same(states: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether two inputs are the same states, also where one is another view of them."""
    if states is None or other is None:
        return False
    if states is other:
        return True
    other = other.to(states.device)
    return states.numel() == other.numel() and torch.equal(states.flatten(), other.flatten())


def _require_nothing_else(
    module: PreTrainedModel,
    attention_name: str,
    accounted: set[nn.Module],
    roots: Sequence[str],
    layer: Layer,
    run_children: set[nn.Module],
) -> None:
    """Raise NotFound if a layer has weights that belong to no part that was found.

    Vectors, like those of norms, may be there, and modules that are not run, like the attention of
    a decoder to a source that the model does not read.
    """
    place = _place_of(attention_name)
    if place is None:
        return
    path = f"{place[0]}.{place[1]}"
    container = module.get_submodule(path)
    unrun = [
        f"{path}.{name}" for name, child in container.named_children() if child not in run_children
    ]
    for name, part in container.named_modules(prefix=path):
        if part in accounted or _is_in(name, roots) or _is_in(name, unrun):
            continue
        if any(parameter.dim() > 1 for parameter in part.parameters(recurse=False)):
            raise NotFound(
                f"layer {layer.number} of the {layer.stack} has weights that belong neither to its "
                f"attention nor to one feed-forward part ({name})"
            )


# Whole layers.


def _whole_layers(
    containers: Sequence[nn.Module | None],
    layers: Sequence[Layer],
    flow: Sequence[tuple[nn.Module, torch.Tensor | None, torch.Tensor | None]],
) -> tuple[nn.Module, ...]:
    """The modules of the layers, each of which takes what the one before it gives.

    Raises NotFound with the reason.
    """
    modules: list[nn.Module] = []
    for container in containers:
        if container is None:
            raise NotFound("its layers are not modules of a list")
        modules.append(container)
    if len(flow) != len(layers):
        raise NotFound("no module of a list holds exactly one layer")
    if any(called is not module for (called, _, _), module in zip(flow, modules, strict=True)):
        raise NotFound("its layers are not run one after another")
    for _, states, result in flow:
        if states is None or result is None:
            raise NotFound("its layers do not take and give states alone")
        if states.shape != result.shape:
            raise NotFound("its layers change the number of tokens or the width")
    for index in range(1, len(layers)):
        if layers[index].stack != layers[index - 1].stack:
            continue
        result, states = flow[index - 1][2], flow[index][1]
        if not _same(result, states):
            raise NotFound("a layer does not take just what the layer before it gives")
    return tuple(modules)


# Gates on them.


@dataclass(frozen=True)
class PartSite:
    """Where a part is gated: the layers that its module stands for, one for every call.

    Attributes:
        owner: The model.
        layers: Numbers of the layers, as in `Parts.layers`.
        kind: Tells the calls of one kind of part from another's.
    """

    owner: Owner
    layers: tuple[int, ...]
    kind: int

    def layer(self) -> int:
        """The layer of this call; a shared module is called once for each of its layers."""
        key = -(2 * self.layers[0] + self.kind + 1)  # rows of heads are counted from 0 on
        return number_of_call(self.owner, self.layers, key)


NEURON_SITES = 0
LAYER_SITES = 1


def gate_of_rows(
    gate: torch.Tensor, dimensions: int, active: ActiveGates, batch: int
) -> torch.Tensor:
    """Gates for the rows that are being computed.

    Args:
        gate: With a first axis of rows, or without.
        dimensions: Of a gate without that axis.
        active: What is in effect.
        batch: Rows that are being computed.

    Raises:
        HeadlabError: There are gates for another number of rows.
    """
    if gate.dim() == dimensions:
        return gate
    if active.states is not None and active.states.rows is not None:
        gate = pick_rows(gate, active.states.rows)
    if len(gate) != batch:
        raise HeadlabError(
            f"gates have {len(gate)} rows, the batch has {batch}; pass one row of gates per "
            "example",
            code="gate.rows_mismatch",
        )
    return gate


@dataclass
class NeuronGate:
    """A hook on a down projection: scales its input by the gates of the neurons.

    Attributes:
        site: Where it is.
    """

    site: PartSite

    def __call__(
        self, _module: nn.Module, args: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...] | None:
        """The gated input; None leaves it as it is."""
        active = active_for(self.site.owner)
        if active is None or (active.parts is None and active.part_outputs is None):
            return None
        layer = self.site.layer()
        neurons, *other_args = args
        if active.part_outputs is not None:
            active.part_outputs(NEURON_OUTPUTS, layer, neurons)
        gate = None if active.parts is None else active.parts.of_neurons(layer)
        if gate is None:
            return None
        gate = gate.to(neurons)
        if active.donors is not None:
            return (_with_donors(neurons, gate, active, active.donors, layer), *other_args)
        if gate.dim() == 1:
            return (neurons * gate, *other_args)
        if neurons.dim() > 2:  # [row, token, neuron]
            gate = gate_of_rows(gate, 1, active, len(neurons))
            gate = gate.reshape(len(neurons), *[1] * (neurons.dim() - 2), -1)
            return (neurons * gate, *other_args)
        # [row and token, neuron]: the tokens of a row stand together.
        rows = _rows_being_computed(gate, active)
        gate = gate_of_rows(gate, 1, active, rows)
        if len(neurons) % rows:
            raise HeadlabError(
                f"gates have {rows} rows, and the model computes {len(neurons)} tokens; pass one "
                "row of gates per example",
                code="gate.rows_mismatch",
            )
        return (neurons * gate.repeat_interleave(len(neurons) // rows, dim=0), *other_args)


def _with_donors(
    neurons: torch.Tensor,
    gate: torch.Tensor,
    active: ActiveGates,
    donors: OtherOutputs,
    layer: int,
) -> torch.Tensor:
    """Neurons by their gates, with other texts' in the place of closed ones.

    Args:
        neurons: [row, token, neuron], or [row and token, neuron], where the tokens of a row stand
            together.
        gate: [neuron] or [row, neuron].
        active: What is in effect.
        donors: The other texts.
        layer: Number of the layer.
    """
    by_row = neurons
    if neurons.dim() == 2:
        rows = donors.rows_being_computed(active)
        by_row = neurons.reshape(rows, -1, neurons.shape[-1])
    gate = gate_of_rows(gate, 1, active, len(by_row))
    gate = donors.opened(gate.reshape(-1, 1, gate.shape[-1]), active)
    other = donors.output(NEURON_OUTPUTS, layer, by_row, active)
    return torch.lerp(other, by_row, gate).reshape(neurons.shape)


def _rows_being_computed(gate: torch.Tensor, active: ActiveGates) -> int:
    """How many rows of a batch with these gates are computed now."""
    rows = None if active.states is None else active.states.rows
    if rows is None:
        return len(gate)
    return len(range(len(gate))[rows]) if isinstance(rows, slice) else len(rows)


@dataclass
class GatedLayer:
    """The forward pass of a layer that may be skipped, whole, row by row.

    It gives gate × what the layer gives + (1 − gate) × what it was given: exactly one of both at
    gates of 1 and of 0.

    Attributes:
        inner: The layer's own forward pass.
        site: Where it is.
    """

    inner: object
    site: PartSite

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Output of the layer, or its input."""
        output = self.inner(*args, **kwargs)  # type: ignore[operator] # a forward pass
        active = active_for(self.site.owner)
        if active is None or (active.parts is None and active.part_outputs is None):
            return output
        layer = self.site.layer()
        states = args[0] if args else kwargs["hidden_states"]
        assert isinstance(states, torch.Tensor)
        if active.part_outputs is not None:
            result = output[0] if isinstance(output, tuple) else output
            assert isinstance(result, torch.Tensor)
            # In float64, where a difference of two numbers keeps all digits of both.
            added = result.double() - states.to(result.device).double()
            active.part_outputs(LAYER_OUTPUTS, layer, added)
        gate = None if active.parts is None else active.parts.of_layer(layer)
        if gate is None:
            return output
        if isinstance(output, tuple):
            return (self._mixed(gate, states, output[0], active, layer), *output[1:])
        return self._mixed(gate, states, output, active, layer)

    @staticmethod
    def _mixed(
        gate: torch.Tensor, states: torch.Tensor, output: object, active: ActiveGates, layer: int
    ) -> torch.Tensor:
        """Input and output by the gates; of the first tokens where the output has no others.

        What the layer adds on another text is added to the input where there is one.
        """
        assert isinstance(output, torch.Tensor)
        gate = gate_of_rows(gate, 0, active, len(output)).to(output)
        if gate.dim():
            gate = gate.reshape(-1, *[1] * (output.dim() - 1))
        passed_by = states[:, : output.shape[1]].to(output.device)
        if active.donors is not None:
            gate = active.donors.opened(gate.reshape(-1, *[1] * (output.dim() - 1)), active)
            added = active.donors.output(LAYER_OUTPUTS, layer, output, active)
            passed_by = (passed_by.double() + added).to(output.dtype)
        return gate * output + (1 - gate) * passed_by


def gate_parts(parts: Parts, owner: Owner, *, neurons: bool, layers: bool) -> None:
    """Gate the parts of a model, once: gates that nobody closes change nothing.

    Args:
        parts: Of the model.
        owner: The model.
        neurons: Whether neurons are gated.
        layers: Whether whole layers are.
    """
    if neurons:
        for down, numbers in _numbers_by_module(parts.downs).items():
            down.register_forward_pre_hook(NeuronGate(PartSite(owner, numbers, NEURON_SITES)))
    if layers:
        for module, numbers in _numbers_by_module(parts.modules).items():
            site = PartSite(owner, numbers, LAYER_SITES)
            forward = module.forward
            if isinstance(forward, LayerForward):  # runs some rows of a batch, and these are gated
                forward.inner = GatedLayer(forward.inner, site)  # type: ignore[assignment] # as the layer's own
            else:
                module.forward = GatedLayer(forward, site)


def _numbers_by_module(modules: Sequence[nn.Module]) -> Mapping[nn.Module, tuple[int, ...]]:
    """The layers that each module stands for."""
    numbers: dict[nn.Module, list[int]] = {}
    for number, module in enumerate(modules):
        numbers.setdefault(module, []).append(number)
    return {module: tuple(layers) for module, layers in numbers.items()}
