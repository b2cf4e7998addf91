"""Gates in forward passes, by thread, and passes that start at a later layer."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from headlab.core import HeadlabError, StreamingSizes, UngatedPassWarning
from headlab.core.devices import on_device
from headlab.hooks.streaming import streamed

# Starting a forward pass at the layer that changed, which may differ between the rows of a batch.

Rows = torch.Tensor | slice
Inner = Callable[..., torch.Tensor]  # a layer's forward pass


class Pass:
    """How the layers of one forward pass are run when not all rows need every layer.

    Attributes:
        rows: Rows of the batch passed to the layer that is running; None for all of them.
        first_token: Whether the last layer's feed-forward part is run on the first token only, for
            models whose answer is read there.
    """

    rows: Rows | None = None
    first_token = False

    def run(
        self,
        inner: Inner,
        layer: int,
        hidden: torch.Tensor,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> torch.Tensor:
        """Output of a layer, given its input [row, token, width] and the function for it."""
        raise NotImplementedError

    def _run_on(
        self,
        rows: Rows,
        batch: int,
        inner: Inner,
        hidden: torch.Tensor,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> torch.Tensor:
        """Output of a layer for some rows of a batch, given their input and all arguments."""
        self.rows = rows
        try:
            output = inner(
                hidden,
                *(_take_rows(value, rows, batch) for value in args),
                **{name: _take_rows(value, rows, batch) for name, value in kwargs.items()},
            )
        finally:
            self.rows = None
        return output


class Indices:
    """Lists of row numbers that are needed one after another, brought to each device in one copy.

    A model's layers may be on several devices.

    Args:
        lists: The row numbers, each int [row], on the processor.
    """

    def __init__(self, lists: Sequence[torch.Tensor]) -> None:
        self._counts = [len(rows) for rows in lists]
        self._joined = torch.cat(list(lists))
        self._by_device: dict[torch.device, tuple[torch.Tensor, ...]] = {}

    def count(self, number: int) -> int:
        """How many rows a list has."""
        return self._counts[number]

    def rows_on(self, device: torch.device, number: int) -> torch.Tensor:
        """One of the lists on a device, int [row]."""
        if device not in self._by_device:
            self._by_device[device] = on_device(self._joined, device).split(self._counts)
        return self._by_device[device][number]


def pick_rows(tensor: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Some rows of a tensor, which may be on another device than the row numbers."""
    return tensor[rows if isinstance(rows, slice) else rows.to(tensor.device)]


def _take_rows(value: object, rows: Rows, batch: int) -> object:
    """The given rows of every per-row tensor in nested arguments.

    Values shared by all rows are unchanged.
    """
    if isinstance(value, torch.Tensor):
        if value.dim() > 1 and len(value) == batch:
            return pick_rows(value, rows)
        return value
    if isinstance(value, tuple | list):
        return type(value)(_take_rows(v, rows, batch) for v in value)
    if isinstance(value, dict):
        return {k: _take_rows(v, rows, batch) for k, v in value.items()}
    return value


class LayerStates(Pass):
    """Cached inputs of every layer for the rows of one batch.

    Later passes can start midway with them.

    Attributes:
        inputs: [row, token, width] for every layer, its input; the last is the last layer's output,
            with `first_token` of that token alone.
    """

    def __init__(self, layers: int, *, first_token: bool = False) -> None:
        self.first_token = first_token
        self.inputs: list[torch.Tensor | None] = [None] * (layers + 1)
        self._rows_by_layer: Indices | None = None

    @property
    def bytes(self) -> int:
        """Memory used by the cached inputs, in bytes."""
        return sum(t.numel() * t.element_size() for t in self.inputs if t is not None)

    def begin(self, start: torch.Tensor | None) -> None:
        """Set the layer at which each row starts in the next pass; None recomputes everything."""
        self.rows = None
        self._rows_by_layer = None
        if start is not None:
            first_layers = start.cpu()
            layers = range(len(self.inputs) - 1)
            self._rows_by_layer = Indices(
                [(first_layers <= layer).nonzero()[:, 0] for layer in layers]
            )

    def run(
        self,
        inner: Inner,
        layer: int,
        hidden: torch.Tensor,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> torch.Tensor:
        """Recompute the rows that have reached their start; the others use the cache."""
        cached_output = self.inputs[layer + 1]
        if cached_output is None or self._rows_by_layer is None:
            return self._run_all(inner, layer, hidden, args, kwargs)
        count = self._rows_by_layer.count(layer)
        if count == 0:
            return cached_output
        if count == len(hidden):
            return self._run_all(inner, layer, hidden, args, kwargs)
        rows = self._rows_by_layer.rows_on(hidden.device, layer)
        output = cached_output.clone()
        # A layer may be on another device than its input.
        output_rows = self._rows_by_layer.rows_on(output.device, layer)
        output[output_rows] = self._run_on(rows, len(hidden), inner, hidden[rows], args, kwargs)
        self.inputs[layer + 1] = output
        return output

    def _run_all(
        self,
        inner: Inner,
        layer: int,
        hidden: torch.Tensor,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> torch.Tensor:
        """Run the layer on all rows, and cache its input and output."""
        self.inputs[layer] = hidden
        output = inner(hidden, *args, **kwargs)
        self.inputs[layer + 1] = output
        return output


class Trunk(Pass):
    """A full pass that stores the input of every layer, so that other rows can branch off it later.

    Attributes:
        inputs: [row, token, width] for every layer, its detached input.
    """

    def __init__(self, layers: int, *, first_token: bool = False) -> None:
        self.first_token = first_token
        self.inputs: list[torch.Tensor | None] = [None] * layers

    def run(
        self,
        inner: Inner,
        layer: int,
        hidden: torch.Tensor,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> torch.Tensor:
        """Store the layer's input, and run the layer on all rows."""
        self.inputs[layer] = hidden.detach()
        return inner(hidden, *args, **kwargs)


class FanOut(Pass):
    """A branching pass: each row joins at its own layer as a copy of the row it branches off.

    A row whose gates equal its origin's below `start` thus only costs the layers from `start` on.

    Args:
        start: int [row], the layer at which a row joins, non-decreasing along the batch.
        origin: int [row], the row it copies there: of the trunk, if one is given, else an earlier
            row of this pass.
    """

    def __init__(
        self,
        start: NDArray[np.int64],
        origin: NDArray[np.int64],
        layers: int,
        *,
        first_token: bool = False,
        trunk: Trunk | None = None,
    ) -> None:
        self.first_token = first_token
        self._live = np.searchsorted(start, np.arange(-1, layers), side="right").tolist()
        self._batch = len(origin)
        joining = [
            torch.as_tensor(origin[rows_before:rows_now])
            for rows_before, rows_now in pairwise(self._live)
        ]
        self._origins_by_layer = Indices(joining)
        self._trunk = trunk

    def run(
        self,
        inner: Inner,
        layer: int,
        hidden: torch.Tensor,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> torch.Tensor:
        """Add the rows that join at this layer, and run it on all rows that have joined."""
        rows_before = self._live[layer]
        rows_now = self._live[layer + 1]
        if layer == 0:  # every row has been embedded, so rows that start here are not copied
            hidden = hidden[:rows_now]
        elif rows_now > rows_before:
            source = hidden if self._trunk is None else self._trunk.inputs[layer]
            assert source is not None
            # Without rows until now, hidden is still where the embeddings are.
            origins = self._origins_by_layer.rows_on(source.device, layer)
            hidden = torch.cat([hidden.to(source.device), source[origins]])
        if not rows_now:
            return hidden
        return self._run_on(slice(0, rows_now), self._batch, inner, hidden, args, kwargs)


# Layers that ask the pass in effect how they are to run. What stands in a layer's place is an
# object, not a closure, so that a copy of the model (`copy.deepcopy`) runs its own layers, as a
# model that nobody gates.


@dataclass
class LayerForward:
    """The forward pass of a layer; without a pass in effect it is unchanged.

    Attributes:
        inner: The layer's own forward pass.
        owner: The model that the layer belongs to.
        index: Number of the layer.
    """

    inner: Inner
    owner: Owner
    index: int

    def __call__(self, *args: object, **kwargs: object) -> torch.Tensor:
        """Output of the layer."""
        current_pass = pass_of(self.owner)
        if current_pass is None:
            return self.inner(*args, **kwargs)
        other_kwargs = dict(kwargs)
        hidden = args[0] if args else other_kwargs.pop("hidden_states")
        states = cast("torch.Tensor", hidden)  # what a layer takes first
        return current_pass.run(self.inner, self.index, states, args[1:], other_kwargs)


@dataclass
class LastFeedForward:
    """The last layer's feed-forward part, on the first token only when a pass requests it.

    Attributes:
        inner: The part itself.
        owner: The model that the layer belongs to.
    """

    inner: Callable[[torch.Tensor], torch.Tensor]
    owner: Owner

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Output of the part, [row, token, width]."""
        current_pass = pass_of(self.owner)
        if current_pass is not None and current_pass.first_token:
            hidden = hidden[:, :1]
        return self.inner(hidden)


def pass_of(owner: Owner) -> Pass | None:
    """How this thread's pass of the owner's model runs its layers.

    None for all rows through all layers.
    """
    active = active_for(owner)
    if active is not None:
        return active.states
    return None


def wrap_feed_forward(layer: nn.Module, owner: Owner) -> bool:
    """Let the last layer's feed-forward part follow the pass in effect.

    Returns whether the layer has that part as a separate method (as in BERT and similar models).
    """
    inner: Callable[[torch.Tensor], torch.Tensor] | None = getattr(
        layer, "feed_forward_chunk", None
    )
    if inner is None:
        return False
    setattr(layer, "feed_forward_chunk", LastFeedForward(inner, owner))  # noqa: B010 - a Module's attributes are typed as tensors
    return True


def wrap_layer(layer: nn.Module, index: int, owner: Owner) -> None:
    """Make a layer's forward pass follow the pass in effect."""
    layer.forward = LayerForward(layer.forward, owner, index)


class PartGates(Protocol):
    """Gates of what is no head, [...] or [row, ...], by the number of the layer in the model."""

    def of_neurons(self, layer: int) -> torch.Tensor | None:
        """Gates of the neurons of a layer's feed-forward part, [neuron] or [row, neuron]."""

    def of_layer(self, layer: int) -> torch.Tensor | None:
        """Gate of a whole layer, a single number or [row]."""


# Parts whose outputs another text's may replace.
GatedPart = Literal["heads", "neurons", "layers"]
HEAD_OUTPUTS: GatedPart = "heads"
NEURON_OUTPUTS: GatedPart = "neurons"
LAYER_OUTPUTS: GatedPart = "layers"


class OtherOutputs(Protocol):
    """Outputs of other texts, which stand in the place of what is closed, row by row."""

    def opened(self, gate: torch.Tensor, active: ActiveGates) -> torch.Tensor:
        """Gates with those of rows open in which nothing would be changed.

        Args:
            gate: The first axis is of rows, or has the length 1.
            active: What is in effect.
        """

    def rows_being_computed(self, active: ActiveGates) -> int:
        """How many rows of the batch are computed now."""

    def output(
        self, part: GatedPart, number: int, own: torch.Tensor, active: ActiveGates
    ) -> torch.Tensor:
        """Other texts' outputs in the place of a batch's own, of the same shape.

        Args:
            part: The kind of part.
            number: The row of the grid of heads, or the number of the layer.
            own: The batch's outputs, [row, position, ...], of the rows that are being computed.
            active: What is in effect.
        """


# Gates, replacement values and observers in effect on a model, per thread.
HookInputs = ParamSpec("HookInputs")
HookOutput = TypeVar("HookOutput")
Observer = Callable[[int, torch.Tensor], None]
PartObserver = Callable[[GatedPart, int, torch.Tensor], None]


@dataclass(eq=False)
class ActiveGates:
    """Gates and observers of one `with` block.

    Attributes:
        gates: [layer, head], [row, layer, head] or [row, layer, head, query]; None gates nothing.
        fill: Output of a closed head in place of 0, [layer, head, head_dim].
        donors: Other texts' outputs in the place of 0, for whatever is closed.
        streaming: What closed heads see of a text, in place of 0.
        contexts: Called with (layer row, a layer's head outputs [row, query, head, head_dim] before
            gating).
        part_outputs: Called with what neurons and whole layers give before gating, by their layer:
            [row, position, neuron], and what a layer adds to its input, float64 [row, position,
            width].
        weights: Called with (layer row, a layer's attention weights [row, head, query, key]).
        weight_layers: Layer rows that `weights` is called for; None for all.
        states: How a pass runs its layers; None for all rows through all layers.
        parts: Gates of neurons and of whole layers; None where heads alone are gated.
        ended: The block has ended, which a context copied inside it does not see.
    """

    gates: torch.Tensor | None = None
    fill: torch.Tensor | None = None
    donors: OtherOutputs | None = None
    streaming: StreamingSizes | None = None
    contexts: Observer | None = None
    part_outputs: PartObserver | None = None
    weights: Observer | None = None
    weight_layers: frozenset[int] | None = None
    states: Pass | None = None
    parts: PartGates | None = None
    ended: bool = False


@dataclass(eq=False)
class Block:
    """A block of `gated` that is open in some thread.

    Attributes:
        active: Its gates.
        model: The model's name.
        thread: The identity of the thread that opened it.
        everywhere: Whether it gates every thread.
        warned: Whether a pass that it does not gate has been warned of.
    """

    active: ActiveGates
    model: str
    thread: int
    everywhere: bool
    warned: bool = False


class PassesOfThread(threading.local):
    """What one thread knows of its passes of a model.

    Attributes:
        calls: {first gate row of a shared module: its calls in this pass}.
        running: Whether a pass of the whole model is running.
        begun_with: The thread's own gates at the pass's beginning, which hold to its end.
        pinned: Gates of another thread's block at the pass's beginning, which hold to its end.
        block: The last block of another thread that gated this one.
    """

    block: Block | None = None
    running = False
    begun_with: ActiveGates | None = None
    pinned: ActiveGates | None = None

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}


class Owner:
    """Identity of one attached model; gates of one owner never affect another's modules.

    Attributes:
        blocks: Open blocks of `gated`, in the order in which they were opened; never changed in
            place.
        passes: What this thread knows of its passes.
        is_quiet: No block is open, and no pass has begun in one that gates it.
    """

    def __init__(self) -> None:
        self.blocks: tuple[Block, ...] = ()
        self.passes = PassesOfThread()
        self.is_quiet = True
        self._pinned_passes = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Owner], tuple[()]]:
        """A copy is another owner, which has no open blocks."""
        return type(self), ()

    def open_block_of(self, block: Block) -> None:
        """Begin a block.

        Raises:
            HeadlabError: Another user's block gates every thread, as this one would.
        """
        with self._lock:
            enclosing = _active.get().get(id(self), ())
            gating_everywhere = [
                earlier_block for earlier_block in self.blocks if earlier_block.everywhere
            ]
            all_enclose_this = all(
                any(earlier_block.active is active for active in enclosing)
                for earlier_block in gating_everywhere
            )
            if block.everywhere and not all_enclose_this:
                raise HeadlabError(
                    f"a block of headlab.gated(..., threads=True) is open on {block.model} "
                    "already, and two cannot both gate every thread; end that one first, or leave "
                    "threads=True out to gate this thread only",
                    code="gate.threads_taken",
                )
            self.blocks = (*self.blocks, block)
            self.is_quiet = False

    def close(self, block: Block) -> None:
        """End a block."""
        with self._lock:
            self.blocks = tuple(
                earlier_block for earlier_block in self.blocks if earlier_block is not block
            )
            self.is_quiet = not self.blocks and not self._pinned_passes

    def begin_pass(self) -> None:
        """Let a pass of the whole model keep to its end the gates that it begins with."""
        self.end_pass()  # a pass that was interrupted from outside has not said so
        passes = self.passes
        passes.calls.clear()
        passes.begun_with = gates_of_thread(self)
        if self.blocks and passes.begun_with is None:
            passes.pinned = self.from_elsewhere()
        if passes.pinned is not None:
            self._count_pinned(1)
        passes.running = True

    def end_pass(self) -> None:
        """The pass has ended, with or without an exception."""
        passes = self.passes
        passes.running = False
        passes.begun_with = None
        if passes.pinned is not None:
            passes.pinned = None
            self._count_pinned(-1)

    def _count_pinned(self, change: int) -> None:
        with self._lock:
            self._pinned_passes += change
            self.is_quiet = not self.blocks and not self._pinned_passes

    def from_elsewhere(self) -> ActiveGates | None:
        """Gates that another thread's block puts on this thread, which has none of its own.

        None if there are none.
        """
        passes = self.passes
        if passes.running:
            return passes.pinned
        blocks = self.blocks
        if not blocks:
            return None
        everywhere = [block for block in blocks if block.everywhere]
        if not everywhere:
            self._warn(blocks)
            return None
        if passes.block is not everywhere[-1]:
            passes.block = everywhere[-1]
            passes.calls.clear()
        return everywhere[-1].active

    def _warn(self, blocks: Iterable[Block]) -> None:
        """Say once a block that it does not gate a pass of this thread."""
        this_thread = threading.get_ident()
        for block in blocks:
            if block.thread == this_thread:
                continue
            with self._lock:
                is_first = not block.warned
                block.warned = True
            if is_first:
                warnings.warn(
                    f"a pass of {block.model} in thread {threading.current_thread().name} is not "
                    "gated: the block of headlab.gated that is open gates only the thread it was "
                    "opened in; headlab.gated(model, gates, threads=True) gates every thread",
                    UngatedPassWarning,
                    stacklevel=2,
                )


_active: ContextVar[Mapping[int, tuple[ActiveGates, ...]]] = ContextVar(
    "headlab_active",
    default={},  # noqa: B039 - never mutated
)


def in_this_thread(
    hook: Callable[HookInputs, HookOutput],
) -> Callable[HookInputs, HookOutput | None]:
    """A hook that does nothing in passes of other threads, which may run the same modules meanwhile.

    Args:
        hook: Of a module; it gives None where it leaves things as they are.
    """
    thread = threading.get_ident()

    def hook_in_thread(*args: HookInputs.args, **kwargs: HookInputs.kwargs) -> HookOutput | None:
        return hook(*args, **kwargs) if threading.get_ident() == thread else None

    return hook_in_thread


def gates_of_thread(owner: Owner) -> ActiveGates | None:
    """Gates and observers that this thread itself has put on the owner's model, or None."""
    stack = _active.get().get(id(owner))
    if not stack:
        return None
    if not stack[-1].ended:
        return stack[-1]
    begun_with = owner.passes.begun_with
    return next(
        (active for active in reversed(stack) if active is begun_with or not active.ended), None
    )


def active_for(owner: Owner) -> ActiveGates | None:
    """Gates and observers that hold for this thread's passes of the owner's model, or None."""
    active = gates_of_thread(owner)
    if active is None and not owner.is_quiet:
        return owner.from_elsewhere()
    return active


@contextmanager
def activate(owner: Owner, active: ActiveGates) -> Iterator[ActiveGates]:
    """Apply `active` to this thread and this model until the block ends.

    Blocks may end in any order, as those of generators do, and in another thread than they began
    in. Where a context was copied inside the block, as for a task of asyncio, passes that begin
    after its end are not gated either.
    """
    key = id(owner)
    active.ended = False
    owner.passes.calls.clear()
    _active.set({**_active.get(), key: (*_active.get().get(key, ()), active)})
    try:
        yield active
    finally:
        active.ended = True
        remaining = tuple(outer for outer in _active.get().get(key, ()) if outer is not active)
        _active.set({**_active.get(), key: remaining})


@contextmanager
def open_block(
    owner: Owner, active: ActiveGates, model: str, *, everywhere: bool
) -> Iterator[None]:
    """Apply gates to this thread, or to every thread, and let others' passes be warned of.

    Args:
        owner: The model.
        active: The gates.
        model: The model's name, for messages.
        everywhere: Whether every thread is gated.

    Raises:
        HeadlabError: Another thread's block gates every thread already.
    """
    block = Block(active, model, threading.get_ident(), everywhere)
    owner.open_block_of(block)
    try:
        with activate(owner, active):
            yield
    finally:
        owner.close(block)


def number_of_call(owner: Owner, numbers: tuple[int, ...], key: int) -> int:
    """Which of the layers that a module stands for this call of it is; counts the call.

    Args:
        owner: The model.
        numbers: Of the layers, in the order in which the module is called for them.
        key: Tells the module's calls from those of others in the same pass.
    """
    if len(numbers) == 1:
        return numbers[0]
    calls = owner.passes.calls  # this thread's: others may run a pass under the same gates
    count = calls.get(key, 0)
    calls[key] = count + 1
    return numbers[count % len(numbers)]


@dataclass(frozen=True)
class Site:
    """Position of an attention module: its rows in the gate array, one for every call."""

    owner: Owner
    rows: tuple[int, ...]
    heads: int

    def row(self) -> int:
        """The gate row of this call; a module shared by several layers is called once per layer."""
        return number_of_call(self.owner, self.rows, self.rows[0])


def apply_gates(context: torch.Tensor, active: ActiveGates, row: int, heads: int) -> torch.Tensor:
    """Scale each head's output: context [row, query, head, head_dim] -> the same shape."""
    if active.contexts is not None:
        active.contexts(row, context)
    if active.gates is None:
        return context
    gate = _gate_of(active, row, heads, context).to(context)
    if active.donors is not None:
        gate = active.donors.opened(gate, active)
        other_context = active.donors.output(HEAD_OUTPUTS, row, context, active)
        # Exactly one of both at gates of 1 and of 0.
        return torch.lerp(other_context, context, gate)
    gated_context = context * gate
    if active.fill is not None:
        fill = active.fill[row, :heads, : context.shape[-1]].to(context)
        gated_context = gated_context + (1 - gate) * fill[None, None]
    return gated_context


def _gate_of(active: ActiveGates, row: int, heads: int, context: torch.Tensor) -> torch.Tensor:
    """Gates of one layer, broadcastable to its context [row, query, head, head_dim].

    Gates with a column for every query may have more columns than this layer has queries: those of
    the longest stack.
    """
    gates = active.gates
    batch = len(context)
    queries = context.shape[1]
    assert gates is not None
    if gates.dim() == 2:
        return gates[row, :heads][None, None, :, None]
    gate = gates[:, row, :heads]
    if active.states is not None and active.states.rows is not None:
        gate = pick_rows(gate, active.states.rows)
    if len(gate) != batch:
        raise HeadlabError(
            f"gates have {len(gate)} rows, the batch has {batch}; pass one row of gates per "
            "example",
            code="gate.rows_mismatch",
        )
    if gate.dim() == 2:
        return gate[:, None, :, None]
    return gate.transpose(1, 2)[:, :queries, :, None]


# The attention function headlab registers with transformers: SDPA, then gates.

IMPLEMENTATION_NAME = "headlab"
SITE_ATTRIBUTE = "_headlab_site"


def register() -> None:
    """Enable `model.set_attn_implementation("headlab")`; may be called repeatedly."""
    AttentionInterface.register(IMPLEMENTATION_NAME, gated_sdpa)
    AttentionMaskInterface.register(IMPLEMENTATION_NAME, sdpa_mask)


class AttentionOptions(TypedDict, total=False):
    """What transformers gives an attention function beside its tensors, as far as headlab reads it.

    Models give more, which is handed on.

    Attributes:
        scaling: Factor of the scores.
        is_causal: Whether a token sees only those before it; by default as the module says.
        position_bias: What is added to the scores, [1, head, query, key].
        softcap: What scores are softly limited to (Gemma 2).
        s_aux: Scores of a sink that is no token, [head] (GPT-OSS).
    """

    scaling: float | None
    is_causal: bool | None
    position_bias: torch.Tensor | None
    softcap: float | None
    s_aux: torch.Tensor | None


def gated_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Unpack[AttentionOptions],
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention whose heads are scaled by this thread's gates.

    Args:
        query: [row, head, query, head_dim].

    Returns:
        ([row, query, head, head_dim], None), as transformers expects of an attention function.
    """
    context = _attention_output(module, query, key, value, attention_mask, **kwargs)
    site: Site | None = getattr(module, SITE_ATTRIBUTE, None)
    active = active_for(site.owner) if site is not None else None
    if site is None or active is None:
        return context, None
    row = site.row()
    is_observed = active.weight_layers is None or row in active.weight_layers
    if active.weights is not None and is_observed:
        weights = attention_weights(module, query, key, attention_mask, **kwargs)
        # All-attention layers also attend to persistent vectors, which are not tokens.
        tokens = weights.shape[-1] - getattr(module, "persistent", 0)
        active.weights(row, weights[..., :tokens])
    if active.streaming is None or active.gates is None:
        return apply_gates(context, active, row, site.heads), None
    if active.contexts is not None:
        active.contexts(row, context)
    gate = _gate_of(active, row, site.heads, context).to(context)
    attend = partial(_attention_output, module)
    tensors = (query, key, value, attention_mask)
    return streamed(context, gate, active.streaming, attend, tensors, dict(kwargs)), None


def _attention_output(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Unpack[AttentionOptions],
) -> torch.Tensor:
    """Outputs of the heads before gates, [row, query, head, head_dim].

    They are computed from the weights where SDPA cannot.
    """
    if kwargs.get("softcap") is None and kwargs.get("s_aux") is None:
        context: torch.Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, **kwargs
        )[0]
        return context
    weights = attention_weights(module, query, key, attention_mask, **kwargs).to(value.dtype)
    value = repeat_kv(value, getattr(module, "num_key_value_groups", 1))
    return (weights @ value).transpose(1, 2).contiguous()


def attention_weights(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: object,
) -> torch.Tensor:
    """Softmax weights [row, head, query, key], which SDPA does not return; rows sum to 1.

    Args:
        softcap: What scores are softly limited to (Gemma 2).
        s_aux: [head], scores of a sink that is no token (GPT-OSS); rows then sum to less than 1.
    """
    groups = getattr(module, "num_key_value_groups", 1)
    key = repeat_kv(key, groups)
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    scores = query @ key.transpose(-1, -2) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if is_causal is None:
        is_causal = getattr(module, "is_causal", False)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    elif attention_mask is not None:
        scores = scores + attention_mask
    elif query.shape[2] > 1 and is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    # A row that may attend to nothing (left padding) gives 0 instead of NaN, as in SDPA; any other
    # NaN is the model's.
    attends_to_nothing = (scores == float("-inf")).all(dim=-1, keepdim=True)
    if s_aux is not None:
        scores = torch.cat(
            [scores, s_aux.to(scores).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], dim=-1
        )
    weights = torch.softmax(scores.float(), dim=-1).masked_fill(attends_to_nothing, 0.0)
    if s_aux is None:
        return weights
    return weights[..., :-1]
