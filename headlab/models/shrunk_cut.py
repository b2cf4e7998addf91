"""Removing heads from a model: where each family has them.

Also how a layer without heads behaves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypedDict, Unpack

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.pytorch_utils import Conv1D

from headlab.core import HeadlabError

# Where each model family has its heads: which modules, and which rows and columns of which weights.

OWN_STACK = "own"  # the only stack of a model, named by whether its attention is causal


@dataclass(frozen=True)
class LayerNames:
    """Where a family has the layers of a stack, and the feed-forward part of each.

    Attributes:
        stack: The stack.
        path: End of the path of the list of layers.
        count: The configuration's field with their number.
        feed_forward: Path of the feed-forward part in a layer; empty where its projections are the
            layer's own.
        ups: Projections that make the neurons; a model may lack some.
        down: The projection that reads them.
        width: The configuration's field with the number of neurons of every layer.
    """

    stack: str
    path: str
    count: str
    feed_forward: str
    ups: tuple[str, ...]
    down: str
    width: str


@dataclass(frozen=True)
class Family:
    """Names of a family's attention modules and, relative to each, of their parts.

    Attributes:
        places: (end of a module's path, its stack).
        layers: The layers of each stack, with their feed-forward parts.
        core: Submodule that computes the attention.
        rows: Projections whose outputs are heads, the query's first.
        fused: Query, key and value side by side in one projection.
        out: The output projection.
        size: The core's attribute with a head's width.
        counts, widths: The core's attributes with its number of heads, and with the width of all of
            them.
        biased: The first layer computes a position bias for all layers.
    """

    places: tuple[tuple[str, str], ...]
    layers: tuple[LayerNames, ...]
    rows: tuple[str, ...]
    out: str
    size: str
    core: str = ""
    fused: bool = False
    counts: tuple[str, ...] = ()
    widths: tuple[str, ...] = ()
    biased: bool = False


BERT = Family(
    ((r"layer\.\d+\.attention", OWN_STACK), (r"layer\.\d+\.crossattention", "cross")),
    (
        LayerNames(
            OWN_STACK,
            "encoder.layer",
            "num_hidden_layers",
            "",
            ("intermediate.dense",),
            "output.dense",
            "intermediate_size",
        ),
    ),
    ("self.query", "self.key", "self.value"),
    "output.dense",
    "attention_head_size",
    core="self",
    counts=("num_attention_heads",),
    widths=("all_head_size",),
)
DISTILBERT = Family(
    ((r"layer\.\d+\.attention", OWN_STACK),),
    (
        LayerNames(
            OWN_STACK, "transformer.layer", "n_layers", "ffn", ("lin1",), "lin2", "hidden_dim"
        ),
    ),
    ("q_lin", "k_lin", "v_lin"),
    "out_lin",
    "attention_head_size",
    counts=("n_heads",),
)
BART = Family(
    (
        (r"encoder\.layers\.\d+\.self_attn", "encoder"),
        (r"decoder\.layers\.\d+\.self_attn", "decoder"),
        (r"decoder\.layers\.\d+\.encoder_attn", "cross"),
    ),
    (
        LayerNames(
            "encoder", "encoder.layers", "encoder_layers", "", ("fc1",), "fc2", "encoder_ffn_dim"
        ),
        LayerNames(
            "decoder", "decoder.layers", "decoder_layers", "", ("fc1",), "fc2", "decoder_ffn_dim"
        ),
    ),
    ("q_proj", "k_proj", "v_proj"),
    "out_proj",
    "head_dim",
    counts=("num_heads",),
)
T5 = Family(
    (
        (r"encoder\.block\.\d+\.layer\.0\.SelfAttention", "encoder"),
        (r"decoder\.block\.\d+\.layer\.0\.SelfAttention", "decoder"),
        (r"decoder\.block\.\d+\.layer\.1\.EncDecAttention", "cross"),
    ),
    (
        LayerNames(
            "encoder",
            "encoder.block",
            "num_layers",
            "layer.1.DenseReluDense",
            ("wi", "wi_0", "wi_1"),
            "wo",
            "d_ff",
        ),
        LayerNames(
            "decoder",
            "decoder.block",
            "num_decoder_layers",
            "layer.2.DenseReluDense",
            ("wi", "wi_0", "wi_1"),
            "wo",
            "d_ff",
        ),
    ),
    ("q", "k", "v"),
    "o",
    "key_value_proj_dim",
    counts=("n_heads",),
    widths=("inner_dim",),
    biased=True,
)
GPT2 = Family(
    ((r"h\.\d+\.attn", "decoder"),),
    (LayerNames("decoder", "h", "n_layer", "mlp", ("c_fc",), "c_proj", "n_inner"),),
    ("c_attn",),
    "c_proj",
    "head_dim",
    fused=True,
    counts=("num_heads",),
    widths=("split_size",),
)
LLAMA = Family(
    ((r"layers\.\d+\.self_attn", "decoder"),),
    (
        LayerNames(
            "decoder",
            "layers",
            "num_hidden_layers",
            "mlp",
            ("gate_proj", "up_proj"),
            "down_proj",
            "intermediate_size",
        ),
    ),
    ("q_proj", "k_proj", "v_proj"),
    "o_proj",
    "head_dim",
)
MODERNBERT = Family(
    ((r"layers\.\d+\.attn", OWN_STACK),),
    (
        LayerNames(
            OWN_STACK, "layers", "num_hidden_layers", "mlp", ("Wi",), "Wo", "intermediate_size"
        ),
    ),
    ("Wqkv",),
    "Wo",
    "head_dim",
    fused=True,
)
FAMILIES = {
    "bert": BERT,
    "roberta": BERT,
    "xlm-roberta": BERT,
    "camembert": BERT,
    "electra": BERT,
    "distilbert": DISTILBERT,
    "marian": BART,
    "bart": BART,
    "mbart": BART,
    "t5": T5,
    "mt5": T5,
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "gemma2": LLAMA,
    "modernbert": MODERNBERT,
}
PREFIX = "headlab-shrunk-"
# fields of a shrunk model's configuration that its family's lacks
HEADS_KEY = "headlab_heads"
MASKED_KEY = "headlab_masked"
NEURONS_KEY = "headlab_neurons"


@dataclass(frozen=True)
class AttentionLayer:
    """One attention layer of a model, with the heads it has now.

    Attributes:
        path: Of the module whose parts `Family` names.
        heads: Number of query heads.
        group: Number of query heads that share a key and a value.
        size: A head's width.
    """

    path: str
    stack: str
    layer: int
    module: nn.Module
    core: nn.Module
    heads: int
    group: int
    size: int


def base_type(config: PretrainedConfig) -> str:
    """The family's own model type, for full and shrunk models."""
    return str(config.model_type).removeprefix(PREFIX)


def attention_layers(module: PreTrainedModel) -> list[AttentionLayer]:
    """Every attention layer of a model of a known family, stack by stack in layer order."""
    family = FAMILIES[base_type(module.config)]
    layers_found: list[AttentionLayer] = []
    layer_counts: dict[str, int] = {}
    for path, stack in _places(module, family):
        part = module.get_submodule(path)
        core = part.get_submodule(family.core)
        size = int(getattr(core, family.size))
        rows = [part.get_submodule(name) for name in family.rows]
        heads = outputs(rows[0]) // size
        group = 1
        if family.fused:
            heads //= 3  # query, key and value
        elif heads:
            group = heads * size // outputs(rows[1])
        number = layer_counts.get(stack, 0)
        layer_counts[stack] = number + 1
        layers_found.append(AttentionLayer(path, stack, number, part, core, heads, group, size))
    return layers_found


def stacks(module: PreTrainedModel) -> list[str]:
    """The stacks that the family's models may have, in the order of `Family.places`."""
    own_stack = "decoder" if getattr(module.config, "is_decoder", False) else "encoder"
    return [
        own_stack if stack == OWN_STACK else stack
        for _, stack in FAMILIES[base_type(module.config)].places
    ]


def _places(module: PreTrainedModel, family: Family) -> Iterator[tuple[str, str]]:
    """(path, stack) of every attention module."""
    for (ending, _), stack in zip(family.places, stacks(module), strict=True):
        for path, _ in module.named_modules():
            if re.search(rf"(?:^|\.){ending}$", path):
                yield path, stack


def outputs(projection: nn.Module) -> int:
    """Number of outputs of a Linear or of GPT-2's Conv1D, whose weight is transposed."""
    return projection_weight(projection).shape[1 - input_dimension(projection)]


def projection_weight(projection: nn.Module) -> torch.Tensor:
    """The weight of a Linear or of GPT-2's Conv1D."""
    weight = projection.weight
    assert isinstance(weight, torch.Tensor)
    return weight


# Attention layers without heads, and layers that share position biases with layers of different
# heads.

# Of a T5 attention: hidden states [row, query, width], position bias, attention weights.
T5Output = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


class LayerAttention(Protocol):
    """An attention that knows which layer it is in, as those that can have a cache do."""

    layer_idx: int


class T5SelfAttention(LayerAttention, Protocol):
    """What headlab uses of a T5 self-attention, whose first layer computes the bias of all."""

    def compute_bias(
        self,
        query_length: int,
        key_length: int,
        device: torch.device | None = None,
        past_seen_tokens: int = 0,
    ) -> torch.Tensor:
        """The position bias of all heads, [1, head, query, key]."""


class BiasOfSomeHeads:
    """A T5 self-attention with some of the heads.

    It uses its heads' part of the bias, but passes on all of it.
    """

    bias_heads: list[int]  # indices of its heads in the bias
    layer_idx: int
    compute_bias: Callable[..., torch.Tensor]

    def forward(
        self,
        hidden_states: torch.Tensor,
        mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **options: object,
    ) -> T5Output:
        """As T5Attention.forward."""
        bias_of_all = position_bias
        if bias_of_all is None:
            bias_of_all = shared_bias(self, hidden_states, past_key_values)
        output, _, weights = super().forward(  # type: ignore[misc] # of the class that it is mixed with
            hidden_states,
            position_bias=bias_of_all[:, self.bias_heads],
            mask=mask,
            key_value_states=key_value_states,
            past_key_values=past_key_values,
            **options,
        )
        return output, bias_of_all, weights


class OwnBias:
    """A T5 cross-attention, whose bias is zero.

    It ignores the bias of the layer before, which has different heads.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_bias: torch.Tensor | None = None,
        **options: object,
    ) -> T5Output:
        """As T5Attention.forward."""
        output: T5Output = super().forward(  # type: ignore[misc] # of the class that it is mixed with
            hidden_states, position_bias=None, **options
        )
        return output


class HeadlessAttention:
    """An attention without heads: only the bias of its output projection is left."""

    out_name: str  # of the output projection; "" where that is not inside this module
    gives_bias: bool  # whether it passes a position bias to the next layer
    layer_idx: int
    config: PretrainedConfig
    compute_bias: Callable[..., torch.Tensor]  # of T5 only

    def forward(
        self,
        hidden_states: torch.Tensor,
        past_key_values: Cache | None = None,
        position_bias: torch.Tensor | None = None,
        *,
        key_value_states: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        **_: object,
    ) -> T5Output | tuple[torch.Tensor, torch.Tensor | None]:
        """As the attention that it replaces."""
        other_states = key_value_states
        if other_states is None:
            other_states = encoder_hidden_states
        if self.gives_bias and other_states is None and position_bias is None:
            position_bias = shared_bias(self, hidden_states, past_key_values)
        weights = None
        if self.config._attn_implementation == "eager":  # the only one that gives weights
            weights = no_weights(self, hidden_states, other_states, past_key_values)
        if past_key_values is not None and other_states is None:
            count_tokens(past_key_values, hidden_states, self.layer_idx)
        output = hidden_states
        if self.out_name:
            output = getattr(self, self.out_name)(hidden_states)
        if self.gives_bias:
            return output, position_bias, weights
        return output, weights


class BiasOnly:
    """An output projection without inputs: its bias, or zero, for every token."""

    bias: torch.Tensor | None
    width: int

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[..., anything] -> [..., width]."""
        shape = (*inputs.shape[:-1], self.width)
        if self.bias is None:
            return inputs.new_zeros(shape)
        return self.bias.expand(shape)


@cache
def mix_classes(forward_class: type, module_class: type) -> type[nn.Module]:
    """The class of `module_class` with the forward pass of `forward_class`."""
    return type(
        f"{forward_class.__name__}{module_class.__name__}", (forward_class, module_class), {}
    )


class HeadlessAttributes(TypedDict, total=False):
    """The attributes that the classes above add to a module, one of which they all have."""

    bias_heads: list[int]
    out_name: str
    gives_bias: bool
    width: int


def replace_forward(
    module: nn.Module, forward_class: type, **attributes: Unpack[HeadlessAttributes]
) -> None:
    """Replace a module's forward pass; its weights, names and children are unchanged."""
    module_class: type = type(module)  # mypy finds no hash in type[nn.Module]
    module.__class__ = mix_classes(forward_class, module_class)
    for name, value in attributes.items():
        setattr(module, name, value)


def shared_bias(
    attention: T5SelfAttention, hidden: torch.Tensor, past: Cache | None
) -> torch.Tensor:
    """T5's position bias of all heads, [1, head, query, key].

    It comes from the layer that has its weights.
    """
    cache = own_cache(past)
    past_tokens = 0 if cache is None else cache.get_seq_length(attention.layer_idx)
    keys = keys_seen(attention, hidden, cache)
    return attention.compute_bias(
        hidden.shape[1], keys, device=hidden.device, past_seen_tokens=past_tokens
    )


def no_weights(
    attention: HeadlessAttention,
    hidden_states: torch.Tensor,
    other_states: torch.Tensor | None,
    past: Cache | None,
) -> torch.Tensor:
    """Attention weights of no heads, [row, 0, query, key].

    Returning nothing would misnumber later layers.
    """
    keys = (
        keys_seen(attention, hidden_states, own_cache(past))
        if other_states is None
        else other_states.shape[1]
    )
    return hidden_states.new_zeros(len(hidden_states), 0, hidden_states.shape[1], keys)


def own_cache(past: Cache | None) -> Cache | None:
    """The cache of self-attention."""
    if isinstance(past, EncoderDecoderCache):
        return past.self_attention_cache
    return past


def keys_seen(attention: LayerAttention, hidden: torch.Tensor, cache: Cache | None) -> int:
    """Number of keys that a layer attends to before these states are added to its cache.

    Args:
        attention: Of the layer.
        hidden: Its input, [row, token, width].
        cache: Of self-attention; None where nothing is cached.
    """
    if cache is None:
        return hidden.shape[1]
    return cache.get_mask_sizes(hidden.shape[1], attention.layer_idx)[0]


def count_tokens(past: Cache, hidden: torch.Tensor, layer: int) -> None:
    """Let the cache count tokens at a layer without heads.

    Transformers reads their number from the first layer.
    """
    cache = past.self_attention_cache if isinstance(past, EncoderDecoderCache) else past
    empty_states = hidden.new_zeros(len(hidden), 1, hidden.shape[1], 1)
    cache.update(empty_states, empty_states, layer)


# Removing heads from a model: rows of query, key and value, columns of the output projection.

HeadsByStack = Mapping[str, Sequence[Sequence[int]]]  # {stack: [layer][heads]}


def indices_to_keep(
    layer: AttentionLayer, family: Family, kept_heads: Sequence[int]
) -> Iterator[tuple[str, int, torch.Tensor]]:
    """(parameter relative to the unit, dimension, indices to keep) for the heads that stay."""
    queries = indices_of_heads(kept_heads, layer.size)
    keys = indices_of_heads(sorted({head // layer.group for head in kept_heads}), layer.size)
    if family.fused:
        width = layer.heads * layer.size
        queries_keys_values = torch.cat([queries + part * width for part in range(3)])
        yield from output_indices(layer.module, family.rows[0], queries_keys_values)
    else:
        for name in family.rows:
            yield from output_indices(
                layer.module, name, queries if name == family.rows[0] else keys
            )
    yield f"{family.out}.weight", input_dimension(layer.module.get_submodule(family.out)), queries


def output_indices(
    module: nn.Module, name: str, indices: torch.Tensor
) -> Iterator[tuple[str, int, torch.Tensor]]:
    """(parameter relative to a module, dimension, indices) for some outputs of a projection.

    Args:
        module: The module.
        name: Path of the projection in it.
        indices: Of the outputs.
    """
    projection = module.get_submodule(name)
    yield f"{name}.weight", 1 - input_dimension(projection), indices
    if projection.bias is not None:
        yield f"{name}.bias", 0, indices


def input_dimension(projection: nn.Module) -> int:
    """The input dimension of a projection's weight: GPT-2's Conv1D has it transposed."""
    if isinstance(projection, nn.Linear):
        return 1
    return 0


def indices_of_heads(heads: Sequence[int], size: int) -> torch.Tensor:
    """Indices of heads in a dimension that holds them side by side, int64 [head × size]."""
    return (
        torch.tensor(list(heads), dtype=torch.long)[:, None] * size + torch.arange(size)
    ).flatten()


def shrink_heads(layer: AttentionLayer, family: Family, kept_heads: Sequence[int]) -> None:
    """Give an attention layer the shapes that it has with these heads, in place."""
    for name, dimension, indices in indices_to_keep(layer, family, kept_heads):
        path, _, parameter_name = name.rpartition(".")
        narrow(layer.module.get_submodule(path), parameter_name, dimension, len(indices))
    for name in family.counts:
        setattr(layer.core, name, len(kept_heads))
    for name in family.widths:
        setattr(layer.core, name, len(kept_heads) * layer.size)


def narrow(projection: nn.Module, parameter_name: str, dimension: int, size: int) -> None:
    """Leave a parameter of a linear layer some of its rows or columns, whichever they are.

    Args:
        projection: The linear layer, changed in place.
        parameter_name: "weight" or "bias".
        dimension: Of the parameter.
        size: How many stay.
    """
    parameter = projection.get_parameter(parameter_name)
    smaller = parameter.detach().narrow(dimension, 0, size).clone()
    setattr(
        projection, parameter_name, nn.Parameter(smaller, requires_grad=parameter.requires_grad)
    )
    if parameter_name == "weight" and isinstance(projection, nn.Linear):
        projection.out_features, projection.in_features = projection.weight.shape
    elif parameter_name == "weight" and isinstance(projection, Conv1D):
        projection.nx, projection.nf = projection.weight.shape


def set_forward(layer: AttentionLayer, family: Family, kept_heads: list[int]) -> None:
    """Give a layer the forward pass that its heads require."""
    if not kept_heads:
        out_name = "" if family.core else family.out
        replace_forward(layer.core, HeadlessAttention, out_name=out_name, gives_bias=family.biased)
        output_projection = layer.module.get_submodule(family.out)
        replace_forward(output_projection, BiasOnly, width=outputs(output_projection))
    elif family.biased and layer.stack == "cross":
        replace_forward(layer.core, OwnBias)
    elif family.biased:
        replace_forward(layer.core, BiasOfSomeHeads, bias_heads=kept_heads)


def without_absent_stacks(
    module: PreTrainedModel, layers: Sequence[AttentionLayer], heads: object
) -> object:
    """The heads without those of stacks that this class lacks.

    A decoder-only class of a family with two stacks lacks one.
    """
    if not isinstance(heads, Mapping):
        return heads
    absent_stacks = set(stacks(module)) - {unit.stack for unit in layers}
    return {name: rows for name, rows in heads.items() if name not in absent_stacks}


def check_heads(attention_layers: Sequence[AttentionLayer], heads: object) -> None:
    """Raise HeadlabError unless {stack: [layer][heads]} lists heads of these layers.

    They must be in order and in whole groups.
    """
    layers_by_stack: dict[str, list[AttentionLayer]] = {}
    for layer in attention_layers:
        layers_by_stack.setdefault(layer.stack, []).append(layer)
    if not isinstance(heads, Mapping) or not set(heads) <= set(layers_by_stack):
        raise HeadlabError(
            f"this model has heads in {', '.join(layers_by_stack)}; its list of heads names other "
            "stacks",
            code="shrunk.stacks_mismatch",
        )
    for stack, rows in heads.items():
        if not isinstance(rows, list | tuple) or len(rows) != len(layers_by_stack[stack]):
            raise HeadlabError(
                f"stack {stack} has {len(layers_by_stack[stack])} layers; its list of heads has a "
                "different number",
                code="shrunk.layers_mismatch",
            )
        for layer, row in zip(layers_by_stack[stack], rows, strict=True):
            if not _fits(layer, row):
                raise HeadlabError(
                    f"stack {stack}, layer {layer.layer} has heads 0 to {layer.heads - 1} in "
                    f"groups of {layer.group}; its list of heads is {row!r}",
                    code="shrunk.heads_mismatch",
                )


def _fits(layer: AttentionLayer, row: object) -> bool:
    if not isinstance(row, list | tuple) or not all(
        type(head) is int and 0 <= head < layer.heads for head in row
    ):
        return False
    groups = {head // layer.group for head in row}
    return list(row) == sorted(set(row)) and len(row) == len(groups) * layer.group
