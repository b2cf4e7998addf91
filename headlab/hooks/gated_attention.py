"""Finding a model's heads by observing one forward pass, and the attention function that gates them."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.pytorch_utils import Conv1D

from headlab.errors import HeadlabError
from headlab.hooks.state import Active, Owner, Site, activate, active_for, apply_gates
from headlab.models.shrunk_cut import Headless
from headlab.records import STACKS, HeadGrid, Stack

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
    context, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
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


def attention_weights(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """Softmax weights [row, head, query, key], which SDPA does not return; rows sum to 1."""
    groups = getattr(module, "num_key_value_groups", 1)
    key = repeat_kv(key, groups)
    scores = query @ key.transpose(-1, -2) * (scaling if scaling is not None else query.shape[-1] ** -0.5)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    elif attention_mask is not None:
        scores = scores + attention_mask
    elif query.shape[2] > 1 and (getattr(module, "is_causal", False) if is_causal is None else is_causal):
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    # A row that may attend to nothing (left padding) gives 0 instead of NaN, as in SDPA.
    return torch.softmax(scores.float(), dim=-1).nan_to_num(0.0)


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
            f"transformers' attention functions nor are listed in headlab.hooks.gated_attention.PROJECTIONS",
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
