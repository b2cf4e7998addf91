"""Counting a model's parameters and multiply-accumulates, and each head's part of them, from its modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlab.errors import HeadlabError
from headlab.gates import Model
from headlab.models.allattention.modelling import AllAttention, AllAttentionForCausalLM
from headlab.models.allattention.positions import RELATIVE
from headlab.shrink.model import require_family
from headlab.worth.costs import Costs, LayerCost

FUSED = "aten._scaled_dot_product_flash_attention_for_cpu"  # a processor's; torch's table lacks it
PROBES = (2, 4, 6)  # tokens: a polynomial of second degree goes through three points
Tensors = Mapping[str, torch.Tensor]


def costs_of(model: Model) -> Costs:
    """A model's costs. Runs three short made-up texts through it."""
    parameters, macs = parameters_of(model.module), polynomial(model.module)
    try:
        return Costs(parameters, macs, layers_of(model))
    except HeadlabError as error:
        return Costs(parameters, macs, (), str(error))


def parameters_of(module: nn.Module) -> int:
    """Parameters; those that several layers share count once."""
    return sum(p.numel() for p in module.parameters())


def macs_of(module: nn.Module, inputs: Tensors) -> int:
    """Multiply-accumulates of one forward pass: those of matrix products, attention included, padding too.

    A causal model's attention is counted whole, as a processor computes it.
    """
    counter = _Counter()
    with torch.no_grad(), counter:
        module(**inputs)
    return counter.flops // 2


class _Counter(TorchDispatchMode):
    """Adds up what torch's own formulas say of each operation; torch's counter hooks every module."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=found))
        elif str(func._overloadpacket) == FUSED:
            self.flops += 4 * args[0].numel() * args[1].shape[2]  # query times key, and weights times value
        return found


def polynomial(module: PreTrainedModel) -> tuple[int, int, int]:
    """Multiply-accumulates of one text by powers of its tokens; a target is as long as its source."""
    step, (a, b, c) = PROBES[0], (macs_of(module, made_up(module, n)) for n in PROBES)
    square = (c - 2 * b + a) // (2 * step**2)
    line = (b - a) // step - 3 * step * square
    return a - step * line - step**2 * square, line, square


def made_up(module: PreTrainedModel, tokens: int) -> dict[str, torch.Tensor]:
    """One made-up text of so many tokens, as the model takes it."""
    config, vocabulary = module.config, int(getattr(module.config.get_text_config(), "vocab_size", 100))
    ids = (torch.arange(tokens, device=module.device) * 7 + 5)[None] % vocabulary
    end = config.eos_token_id
    if config.is_encoder_decoder and isinstance(end, int):
        ids[:, -1] = end  # some classifiers read the state at the end of the sentence
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return inputs | ({"decoder_input_ids": ids.flip(1)} if config.is_encoder_decoder else {})


def layers_of(model: Model) -> tuple[LayerCost, ...]:
    """What the heads of each layer cost, by row of the gate array.

    Raises HeadlabError for a family whose heads cannot be taken out, or told apart: layers that share their weights,
    or other projections than one each for query, key and value, or one for all three.
    """
    if isinstance(model.module, AllAttentionForCausalLM):
        return _all_attention(model.module)
    require_family(model)
    names = {module: name for name, module in model.module.named_modules()}
    heads = [n for stack in model.grid.stacks for n in stack.heads]
    if len(set(model.projections)) < len(model.projections):
        raise HeadlabError(
            f"the layers of {model.name} share their weights, so no head can be taken out of one layer",
            code="costs.weights_shared",
        )
    out, first = [], 0
    for projection, count in zip(model.projections, heads, strict=True):
        out.append(_layer(model, names[projection], projection, first, count))
        first += count
    return tuple(out)


def _layer(model: Model, name: str, projection: nn.Module, first: int, heads: int) -> LayerCost:
    if not heads:
        return LayerCost(first, 0, 1, 0, 0, 0)
    wide, outside = sides(projection)
    size, beside = wide // heads, _beside(model.module, name, projection)
    narrow = {sides(module)[1] for module in beside} - {wide, 3 * wide}
    groups = narrow.pop() // size if narrow else heads
    if narrow or not beside or not groups or heads % groups or wide % heads:
        raise HeadlabError(
            f"cannot tell what a head of {model.name} costs: the projections beside {name} are not one each for "
            "query, key and value, nor one for all three",
            code="costs.head_unknown",
        )
    together, parameters, weights = heads // groups, 0, 0
    for module in beside:
        rows = size if (out := sides(module)[1]) < wide else out // wide * together * size
        inputs = sides(module)[0]
        weights += rows * inputs
        parameters += rows * (inputs + (module.bias is not None))
    own = together * size * outside  # the output projection's bias stays
    return LayerCost(first, heads, together, parameters + own, weights + own, 2 * together * size)


def _all_attention(module: AllAttentionForCausalLM) -> tuple[LayerCost, ...]:
    """Of headlab's own family: a head's persistent vectors go with it, distances and norm with a layer's last one."""
    config, out, first = module.config, list[LayerCost](), 0
    size, persistent, relative = config.head_size, config.persistent, config.positions == RELATIVE
    own, pair = 4 * size * config.hidden_size + 2 * persistent * size, (3 if relative else 2) * size
    for layer in module.model.layers:
        if isinstance(layer.attention, AllAttention):
            rest = config.max_position_embeddings * size if relative else 0
            rest += 2 * config.hidden_size if config.pre_norm else 0
            out.append(LayerCost(first, layer.attention.heads, 1, own, own, pair, rest))
            first += layer.attention.heads
    return tuple(out)


def _beside(module: nn.Module, name: str, projection: nn.Module) -> list[nn.Linear | Conv1D]:
    """What makes queries, keys and values for an output projection: in the nearest module above it that has any."""
    wide = sides(projection)[0]
    while name:
        name = name.rpartition(".")[0]
        found = [m for m in _products(module.get_submodule(name)) if m is not projection]
        fitting = [m for m in found if sides(m)[1] in (wide, 3 * wide) or not wide % sides(m)[1]]
        if fitting:
            return fitting
    return []


def _products(module: nn.Module) -> Iterator[nn.Linear | Conv1D]:
    return (m for m in module.modules() if isinstance(m, nn.Linear | Conv1D))


def sides(module: nn.Module) -> tuple[int, int]:
    """Numbers that go in and come out of a projection."""
    if isinstance(module, Conv1D):
        return module.weight.shape[0], module.weight.shape[1]
    if isinstance(module, nn.Linear):
        return module.weight.shape[1], module.weight.shape[0]
    raise HeadlabError(
        f"{type(module).__name__} is not a projection that headlab can count", code="costs.projection_unknown"
    )
