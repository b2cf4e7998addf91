"""Gates in forward passes: those in effect in each thread, passes that start at a later layer, and finding heads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.pytorch_utils import Conv1D

from headlab.errors import HeadlabError
from headlab.models.shrunk_cut import Headless
from headlab.records import STACKS, HeadGrid, Ints, Stack

# Starting a forward pass at the layer that changed, which may differ between the rows of a batch.

Rows = torch.Tensor | slice
Inner = Callable[..., Any]


class Pass(Protocol):
    """How the layers of one forward pass are run when not all rows need every layer.

    rows: rows of the batch passed to the layer that is running; None for all of them.  first_token: the
    last layer's feed-forward part is run on the first token only, for models whose answer is read there.
    """

    rows: Rows | None
    first_token: bool

    def run(
        self, inner: Inner, layer: int, hidden: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Output of a layer, given its input [row, token, width] and the function that computes it."""
        ...


class LayerStates:
    """Cached inputs of every layer for the rows of one batch, so that later passes can start midway.

    inputs[l]: [row, token, width], the input of layer l; inputs[layers] is the last layer's output.
    start: int [row], first layer to recompute; below it a row uses the cache.
    """

    def __init__(self, layers: int) -> None:
        self.inputs: list[torch.Tensor | None] = [None] * (layers + 1)
        self.start: torch.Tensor | None = None
        self.rows: Rows | None = None
        self.first_token = False

    @property
    def bytes(self) -> int:
        """Memory used by the cached inputs, in bytes."""
        return sum(t.numel() * t.element_size() for t in self.inputs if t is not None)

    def begin(self, start: torch.Tensor | None) -> None:
        """Set the layer at which each row starts in the next pass; None recomputes everything."""
        self.start, self.rows = start, None

    def run(
        self, inner: Inner, layer: int, hidden: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Recompute the rows that have reached their start; the others use the cache."""
        kept = self.inputs[layer + 1]
        rows = None if self.start is None or kept is None else (self.start <= layer).nonzero()[:, 0]
        if kept is not None and rows is not None and len(rows) == 0:
            return kept
        if kept is None or rows is None or len(rows) == len(hidden):
            self.inputs[layer] = hidden
            out: torch.Tensor = inner(hidden, *args, **kwargs)
            self.inputs[layer + 1] = out
            return out
        self.rows = rows
        try:
            part = inner(hidden[rows], *_take(args, rows, len(hidden)), **_take(kwargs, rows, len(hidden)))
        finally:
            self.rows = None
        out = kept.clone()
        out[rows] = part
        self.inputs[layer + 1] = out
        return out


class Trunk:
    """A full pass that stores the input of every layer, so that other rows can branch off it later.

    inputs[l]: [row, token, width], the input of layer l, detached.
    """

    def __init__(self, layers: int, *, first_token: bool = False) -> None:
        self.rows: Rows | None = None
        self.first_token = first_token
        self.inputs: list[torch.Tensor | None] = [None] * layers

    def run(
        self, inner: Inner, layer: int, hidden: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Store the layer's input, and run the layer on all rows."""
        self.inputs[layer] = hidden.detach()
        out: torch.Tensor = inner(hidden, *args, **kwargs)
        return out


class FanOut:
    """A branching pass: each row joins at its own layer as a copy of the row it branches off.

    start: int [row], the layer at which a row joins, non-decreasing along the batch.  origin: int [row], the row
    it copies there: of the trunk, if one is given, else an earlier row of this pass. A row whose
    gates equal its origin's below `start` thus only costs the layers from `start` on.
    """

    def __init__(
        self, start: Ints, origin: Ints, layers: int, *, first_token: bool = False, trunk: Trunk | None = None
    ) -> None:
        self.rows: Rows | None = None
        self.first_token = first_token
        self._live = np.searchsorted(start, np.arange(-1, layers), side="right").tolist()
        self._origin = torch.as_tensor(origin)
        self._trunk = trunk

    def run(
        self, inner: Inner, layer: int, hidden: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Add the rows that join at this layer, and run it on all rows that have joined."""
        before, now, batch = self._live[layer], self._live[layer + 1], len(self._origin)
        if layer == 0:  # every row has been embedded, so rows that start here are not copied
            hidden = hidden[:now]
        elif now > before:
            source = hidden if self._trunk is None else self._trunk.inputs[layer]
            assert source is not None
            hidden = torch.cat([hidden, source[self._origin[before:now].to(hidden.device)]])
        if not now:
            return hidden
        self.rows = slice(0, now)
        try:
            out: torch.Tensor = inner(hidden, *_take(args, self.rows, batch), **_take(kwargs, self.rows, batch))
        finally:
            self.rows = None
        return out


def _take(value: Any, rows: Rows, batch: int) -> Any:
    """The given rows of every per-row tensor in nested arguments; values shared by all rows are unchanged."""
    if isinstance(value, torch.Tensor):
        return value[rows] if value.dim() > 1 and len(value) == batch else value
    if isinstance(value, tuple | list):
        return type(value)(_take(v, rows, batch) for v in value)
    if isinstance(value, dict):
        return {k: _take(v, rows, batch) for k, v in value.items()}
    return value


def wrap_feed_forward(layer: nn.Module, current: Callable[[], Pass | None]) -> bool:
    """Let the last layer's feed-forward part run on the first token only, when a pass requests it.

    Returns whether the layer has that part as a separate method (as in BERT and similar models).
    """
    inner: Callable[[torch.Tensor], torch.Tensor] | None = getattr(layer, "feed_forward_chunk", None)
    if inner is None:
        return False

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        how = current()
        return inner(hidden[:, :1] if how is not None and how.first_token else hidden)

    setattr(layer, "feed_forward_chunk", forward)  # noqa: B010 - a Module's attributes are typed as tensors
    return True


def wrap_layer(layer: nn.Module, index: int, current: Callable[[], Pass | None]) -> None:
    """Make a layer's forward pass consult `current()`; with None it is unchanged."""
    inner = layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        how = current()
        if how is None:
            return inner(*args, **kwargs)
        if args:
            hidden, rest, named = args[0], args[1:], kwargs
        else:
            named = dict(kwargs)
            hidden, rest = named.pop("hidden_states"), ()
        return how.run(inner, index, hidden, rest, named)

    layer.forward = forward


# Gates, replacement values and observers in effect on a model, per thread.

Observer = Callable[[int, torch.Tensor], None]


class Owner:
    """Identity of one attached model; gates of one owner never affect another's modules."""


@dataclass
class Active:
    """Gates and observers of one `with` block.

    gates: [layer, head], [row, layer, head] or [row, layer, head, query]; None gates nothing.
    fill: output of a closed head in place of 0, [layer, head, head_dim].  contexts, weights: called
    with (layer row, tensor): a layer's head outputs [row, query, head, head_dim] before gating, or its attention
    weights [row, head, query, key].
    """

    gates: torch.Tensor | None = None
    fill: torch.Tensor | None = None
    contexts: Observer | None = None
    weights: Observer | None = None
    weight_layers: frozenset[int] | None = None
    states: Pass | None = None
    calls: dict[int, int] = field(default_factory=dict)


_active: ContextVar[Mapping[int, Active]] = ContextVar("headlab_active", default={})  # noqa: B039 - never mutated


def active_for(owner: Owner) -> Active | None:
    """Gates and observers of this thread for the owner's model; None if there are none."""
    return _active.get().get(id(owner))


@contextmanager
def activate(owner: Owner, active: Active) -> Iterator[Active]:
    """Apply `active` to this thread and this model until the block ends, with or without an exception."""
    token = _active.set({**_active.get(), id(owner): active})
    try:
        yield active
    finally:
        _active.reset(token)


@dataclass(frozen=True)
class Site:
    """Position of an attention module: its rows in the gate array, one per call in a forward pass."""

    owner: Owner
    rows: tuple[int, ...]
    heads: int

    def row(self, active: Active) -> int:
        """The gate row of this call; a module shared by several layers is called once per layer."""
        if len(self.rows) == 1:
            return self.rows[0]
        count = active.calls.get(self.rows[0], 0)
        active.calls[self.rows[0]] = count + 1
        return self.rows[count % len(self.rows)]


def apply_gates(context: torch.Tensor, active: Active, row: int, heads: int) -> torch.Tensor:
    """Scale each head's output: context [row, query, head, head_dim] -> the same shape."""
    if active.contexts is not None:
        active.contexts(row, context)
    if active.gates is None:
        return context
    gate = _gate_of(active, row, heads, len(context)).to(context.dtype)
    out = context * gate
    if active.fill is not None:
        out = out + (1 - gate) * active.fill[row, :heads, : context.shape[-1]].to(context.dtype)[None, None]
    return out


def _gate_of(active: Active, row: int, heads: int, batch: int) -> torch.Tensor:
    """Gates of one layer, broadcastable to [row, query, head, head_dim]."""
    gates = active.gates
    assert gates is not None
    if gates.dim() == 2:
        return gates[row, :heads][None, None, :, None]
    gate = gates[:, row, :heads]
    if active.states is not None and active.states.rows is not None:
        gate = gate[active.states.rows]
    if len(gate) != batch:
        raise HeadlabError(
            f"gates have {len(gate)} rows, the batch has {batch}; pass one row of gates per example",
            code="gate.rows_mismatch",
        )
    return gate[:, None, :, None] if gate.dim() == 2 else gate.transpose(1, 2)[..., None]


# The attention function headlab registers with transformers: SDPA, then gates.

NAME = "headlab"
SITE = "_headlab_site"


def register() -> None:
    """Enable `model.set_attn_implementation("headlab")`; may be called repeatedly."""
    AttentionInterface.register(NAME, gated_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def gated_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention whose heads are scaled by this thread's gates.

    query: [row, head, query, head_dim].  Returns ([row, query, head, head_dim], None), as transformers
    expects of an attention function.
    """
    context = _attended(module, query, key, value, attention_mask, **kwargs)
    site: Site | None = getattr(module, SITE, None)
    active = active_for(site.owner) if site is not None else None
    if site is None or active is None:
        return context, None
    row = site.row(active)
    if active.weights is not None and (active.weight_layers is None or row in active.weight_layers):
        weights = attention_weights(module, query, key, attention_mask, **kwargs)
        # All-attention layers also attend to persistent vectors, which are not tokens
        active.weights(row, weights[..., : weights.shape[-1] - getattr(module, "persistent", 0)])
    return apply_gates(context, active, row, site.heads), None


def _attended(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> torch.Tensor:
    """Outputs of the heads before gates, [row, query, head, head_dim]; by way of the weights where SDPA cannot."""
    if kwargs.get("softcap") is None and kwargs.get("s_aux") is None:
        context: torch.Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)[0]
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
    **_: Any,
) -> torch.Tensor:
    """Softmax weights [row, head, query, key], which SDPA does not return; rows sum to 1.

    softcap: what scores are softly limited to (Gemma 2).  s_aux: [head], scores of a sink that is no token (GPT-OSS);
    rows then sum to less than 1.
    """
    groups = getattr(module, "num_key_value_groups", 1)
    key = repeat_kv(key, groups)
    scores = query @ key.transpose(-1, -2) * (scaling if scaling is not None else query.shape[-1] ** -0.5)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    elif attention_mask is not None:
        scores = scores + attention_mask
    elif query.shape[2] > 1 and (getattr(module, "is_causal", False) if is_causal is None else is_causal):
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    # A row that may attend to nothing (left padding) gives 0 instead of NaN, as in SDPA; any other NaN is the model's.
    nothing = (scores == float("-inf")).all(dim=-1, keepdim=True)
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.to(scores).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], dim=-1)
    weights = torch.softmax(scores.float(), dim=-1).masked_fill(nothing, 0.0)
    return weights if s_aux is None else weights[..., :-1]


# Finding a model's heads by observing one forward pass, not from its class name.

PROBE_TOKENS = 6
# Architectures that do not use transformers' attention functions: paths of their output projections.
PROJECTIONS = {
    "deberta": r"attention\.output\.dense$",
    "deberta-v2": r"attention\.output\.dense$",
    "xlm": r"attentions\.\d+\.out_lin$",
    "flaubert": r"attentions\.\d+\.out_lin$",
    "bloom": r"self_attention\.dense$",
}


@dataclass
class Call:
    """One attention computation of the probe: its module and its number of heads."""

    name: str
    module: nn.Module
    heads: int
    context: torch.Tensor
    projection: nn.Module | None = None  # the attention module itself for a layer without heads


def probe_inputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """A short artificial input that any text model accepts."""
    vocab = int(getattr(model.config.get_text_config(), "vocab_size", 100))
    ids = (torch.arange(PROBE_TOKENS, device=model.device) * 7 + 5)[None] % vocab
    end = model.config.eos_token_id  # some classifiers read the state at the end of sentence
    if model.config.is_encoder_decoder and isinstance(end, int):
        ids[:, -1] = end
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids.flip(1)
    return inputs


def logits(module: PreTrainedModel) -> torch.Tensor:
    """First output for the probe input: logits, or hidden states for a model without a task head."""
    with torch.inference_mode():
        out = module(**probe_inputs(module))
    return next(v for v in out.values() if isinstance(v, torch.Tensor) and v.dim() >= 2).clone()


def watch(model: PreTrainedModel) -> tuple[list[Call], bool]:
    """Every attention computation of one forward pass, in order, and whether it went through `gated_sdpa`."""
    names = {module: name for name, module in model.named_modules()}
    family = model.config.model_type
    calls = (
        _watch_projections(model, names, PROJECTIONS[family])
        if family in PROJECTIONS
        else _watch_function(model, names)
    )
    if not calls or any(call.projection is None for call in calls):
        raise HeadlabError(
            f"cannot find the attention heads of {type(model).__name__} (model type {family}): its layers neither use "
            f"transformers' attention functions nor are listed in headlab.hooks.state.PROJECTIONS",
            code="model.heads_not_found",
        )
    return calls, family not in PROJECTIONS


def _watch_function(model: PreTrainedModel, names: dict[nn.Module, str]) -> list[Call]:
    register()
    try:
        model.set_attn_implementation(NAME)
    except (ValueError, KeyError, NotImplementedError):
        return []
    calls: list[Call] = []
    modules, owner = list(model.modules()), Owner()

    def note(number: int, context: torch.Tensor) -> None:
        module = modules[number]
        calls.append(Call(names[module], module, context.shape[2], context))

    with ExitStack() as undo:
        for number, module in enumerate(modules):
            setattr(module, SITE, Site(owner, (number,), 0))
            undo.callback(delattr, module, SITE)
            if isinstance(module, Headless):
                undo.callback(module.register_forward_pre_hook(_note_headless(calls, names)).remove)
            undo.callback(module.register_forward_pre_hook(_note_projection(calls)).remove)
        with activate(owner, Active(contexts=note)), torch.inference_mode():
            model(**probe_inputs(model))
    return calls


def _note_headless(calls: list[Call], names: dict[nn.Module, str]) -> Any:
    """Record a layer without heads, which computes no attention, as a row of 0 heads: layers keep their numbers."""

    def hook(module: nn.Module, _args: tuple[Any, ...]) -> None:
        calls.append(Call(names[module], module, 0, torch.empty(0), module))

    return hook


def _note_projection(calls: list[Call]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        if not isinstance(module, nn.Linear | Conv1D) or not args or not calls:
            return
        call = calls[-1]
        if call.projection is not None:
            return
        flat = call.context.flatten(2)
        if args[0].shape == flat.shape and torch.equal(args[0], flat):
            call.projection = module

    return hook


def _watch_projections(model: PreTrainedModel, names: dict[nn.Module, str], pattern: str) -> list[Call]:
    heads = int(model.config.num_attention_heads)
    calls: list[Call] = []

    def note(module: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(module, nn.Linear)
        calls.append(Call(names[module], module, heads, args[0], module))

    with ExitStack() as undo:
        for module, name in names.items():
            if re.search(pattern, name):
                undo.callback(module.register_forward_pre_hook(note).remove)
        with torch.inference_mode():
            model(**probe_inputs(model))
    return calls


def stack_of(name: str, model: PreTrainedModel) -> str:
    """encoder, decoder or cross, from a module's path."""
    if re.search(
        r"cross_?attn|crossattention|cross_attention|encoder_attn|EncDecAttention|encoder_attention",
        name,
        re.IGNORECASE,
    ):
        return "cross"
    if model.config.is_encoder_decoder:
        return "decoder" if re.search(r"(^|\.)decoder\.", name) else "encoder"
    return "decoder" if causal(model) else "encoder"


def causal(model: PreTrainedModel) -> bool:
    """Whether a single-stack model uses causal attention."""
    flags = [bool(m.is_causal) for m in model.modules() if hasattr(m, "is_causal") and "tention" in type(m).__name__]
    return any(flags) or bool(getattr(model.config, "is_decoder", False)) or model.config.model_type == "bloom"


def grid_of(calls: list[Call], model: PreTrainedModel) -> tuple[HeadGrid, list[int]]:
    """The head grid, and for every call its row in the gate array (stack by stack)."""
    stacks: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        stacks.setdefault(stack_of(call.name, model), []).append(number)
    order = [name for name in STACKS if name in stacks]
    rows = [0] * len(calls)
    for row, number in enumerate(number for name in order for number in stacks[name]):
        rows[number] = row
    return HeadGrid(tuple(Stack(name, tuple(calls[i].heads for i in stacks[name])) for name in order)), rows
