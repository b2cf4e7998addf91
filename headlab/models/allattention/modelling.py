"""The All-attention Transformer as a transformers model.

From Sukhbaatar et al. 2019 and Shim et al. 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headlab.core import Bools, HeadlabError
from headlab.masks import Mask
from headlab.models.allattention.positions import LEARNED, POSITIONS, RELATIVE
from headlab.models.checkpoint import building_alone

# The configuration of a model, or of an ordinary Transformer built from the same parts.

MODEL_TYPE = "headlab-all-attention"
MINIMUMS = {
    "vocab_size": 2,
    "hidden_size": 1,
    "head_size": 1,
    "persistent": 0,
    "feed_forward": 0,
    "max_position_embeddings": 1,
}


class AllAttentionConfig(PretrainedConfig):
    """Configuration of a decoder-only language model.

    Its layers may differ in their number of heads.

    Raises HeadlabError for invalid sizes.

    Args:
        heads_per_layer: Heads of each layer; a layer with 0 has no attention.
        head_size: Width of a head's queries, keys and values.
        persistent: Trained key and value vectors per head, besides those of the tokens (Sukhbaatar
            et al., 2019, section 4).
        feed_forward: Inner width of a feed-forward part after the attention (0: none); with it and
            persistent 0 the model is an ordinary Transformer.
        positions: "relative" (a trained vector per distance, up to max_position_embeddings - 1,
            which also serves larger distances; Shaw et al., 2018) or "learned" (a trained vector
            per position, so that no text may be longer).
        pre_norm: Normalise before each part, not after it.
    """

    model_type = MODEL_TYPE

    def __init__(
        self,
        vocab_size: int = 8000,
        hidden_size: int = 256,
        head_size: int = 32,
        heads_per_layer: Sequence[int] = (8, 8, 8, 8, 8, 8),
        persistent: int = 512,
        feed_forward: int = 0,
        positions: str = RELATIVE,
        max_position_embeddings: int = 128,
        pre_norm: bool = True,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-5,
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        pad_token_id: int | None = None,
        **more: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.head_size = head_size
        self.heads_per_layer = list(heads_per_layer)
        self.persistent = persistent
        self.feed_forward = feed_forward
        self.positions = positions
        self.max_position_embeddings = max_position_embeddings
        self.pre_norm = pre_norm
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id
        self._check()
        super().__init__(**more)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers, including those without heads."""
        return len(self.heads_per_layer)

    @property
    def num_attention_heads(self) -> int:
        """Largest number of heads in any layer."""
        return max(self.heads_per_layer)

    def _check(self) -> None:
        for name, low in MINIMUMS.items():
            value = getattr(self, name)
            if type(value) is not int or value < low:
                raise HeadlabError(
                    f"{name} is {value!r}; it must be a whole number of {low} or more",
                    code="model.config_number_invalid",
                )
        heads = self.heads_per_layer
        if not heads or not all(type(n) is int and n >= 0 for n in heads):
            raise HeadlabError(
                f"heads_per_layer is {heads}; give one whole number a layer, like [8, 8, 8]",
                code="model.config_heads_invalid",
            )
        if self.positions not in POSITIONS:
            raise HeadlabError(
                f"positions is {self.positions!r}; use {RELATIVE} or {LEARNED}",
                code="model.config_positions_unknown",
            )
        if not 0 <= self.dropout < 1:
            raise HeadlabError(
                f"dropout is {self.dropout}; choose a number from 0 to below 1",
                code="model.config_dropout_invalid",
            )


# Number of parameters of a configuration's model, without building it.


class ParameterCounts(NamedTuple):
    """Numbers of parameters of the whole model, of its layers, and of one head.

    A head counts with its persistent vectors.
    """

    total: int
    layers: int
    head: int


def parameter_counts(config: AllAttentionConfig) -> ParameterCounts:
    """Numbers of parameters of a configuration's model; a test compares them with real models."""
    width = config.hidden_size
    size = config.head_size
    head = 4 * width * size + 2 * config.persistent * size
    norm = 2 * width
    layers = 0
    for heads in config.heads_per_layer:
        layers += heads * head
        if heads and config.positions == RELATIVE:
            layers += config.max_position_embeddings * size
        if heads or not config.pre_norm:
            layers += norm
        if config.feed_forward:
            layers += 2 * width * config.feed_forward + config.feed_forward + width
            layers += norm
    total = config.vocab_size * width + layers
    if config.positions == LEARNED:
        total += config.max_position_embeddings * width
    if config.pre_norm:
        total += norm
    return ParameterCounts(total, layers, head)


# The model.

NO_LOSS = -100  # label of positions without a loss


class AllAttention(nn.Module):
    """Causal attention over tokens and persistent vectors with one softmax, in a number of heads.

    Sukhbaatar et al. (2019), section 4: every head has its own persistent keys and values, which
    all positions see without a distance term; they are stored divided by the square roots of the
    head's width and of their number, respectively, so that they learn as fast as other weights.
    """

    is_causal = True

    def __init__(self, config: AllAttentionConfig, heads: int) -> None:
        super().__init__()
        self.config = config
        self.heads = heads
        size = config.head_size
        self.persistent = config.persistent  # attention weights' columns after those of the tokens
        self.query, self.key, self.value = (
            nn.Linear(config.hidden_size, heads * size, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(heads * size, config.hidden_size, bias=False)
        if config.persistent:
            self.persistent_keys = nn.Parameter(torch.empty(heads, config.persistent, size))
            self.persistent_values = nn.Parameter(torch.empty(heads, config.persistent, size))
        if config.positions == RELATIVE:
            self.distances = nn.Parameter(torch.empty(config.max_position_embeddings, size))

    def forward(self, hidden: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Attention output, of the shape of hidden.

        Args:
            hidden: [row, token, width].
            visible: bool [row or 1, 1, query, key].
        """
        size = self.config.head_size
        query, key, value = (
            part(hidden).unflatten(-1, (self.heads, size)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scaling = size**-0.5
        added_scores = torch.zeros_like(visible, dtype=hidden.dtype).masked_fill(
            ~visible, torch.finfo(hidden.dtype).min
        )
        if self.config.positions == RELATIVE:
            added_scores = added_scores + scaling * self._by_distance(query)
        if self.persistent:
            # After the tokens, so that the first columns of the weights are still the tokens'.
            key = torch.cat(
                [key, self._for_rows(self.persistent_keys * size**0.5, len(key))], dim=2
            )
            value = torch.cat(
                [value, self._for_rows(self.persistent_values * self.persistent**0.5, len(key))], 2
            )
            added_scores = functional.pad(added_scores, (0, self.persistent))
        attention_function = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, plain_attention
        )
        dropout = self.config.dropout if self.training else 0.0
        context, _ = attention_function(
            self, query, key, value, added_scores, dropout=dropout, scaling=scaling
        )
        output: torch.Tensor = self.out(context.flatten(2))
        return output

    @staticmethod
    def _for_rows(vectors: torch.Tensor, rows: int) -> torch.Tensor:
        return vectors.expand(rows, -1, -1, -1)

    def _by_distance(self, query: torch.Tensor) -> torch.Tensor:
        """Query times the vector of the distance, [row, head, query, key].

        Entries of future keys are arbitrary.

        One product with all distances, largest first, then each row is shifted into place (Dai et
        al., 2019, appendix B).
        """
        tokens = query.shape[2]
        largest_first = torch.arange(tokens - 1, -1, -1, device=query.device).clamp(
            max=len(self.distances) - 1
        )
        products = query @ self.distances[largest_first].T
        shifted_by_row = functional.pad(products, (1, 0)).reshape(
            len(query), self.heads, tokens + 1, tokens
        )
        by_distance: torch.Tensor = shifted_by_row[:, :, 1:]
        return by_distance


def plain_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    *,
    dropout: float,
    scaling: float,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention written out ("eager").

    Returns:
        The heads' outputs [row, query, head, size], and their weights [row, head, query, key].
    """
    weights = (query @ key.transpose(-1, -2) * scaling + mask).softmax(dim=-1)
    dropped_weights = functional.dropout(weights, dropout, module.training)
    return (dropped_weights @ value).transpose(1, 2).contiguous(), weights


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, which persistent vectors replace."""

    def __init__(self, config: AllAttentionConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.feed_forward)
        self.outer = nn.Linear(config.feed_forward, config.hidden_size)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The output at each position."""
        output: torch.Tensor = self.outer(functional.relu(self.inner(hidden)))
        return output


class AllAttentionLayer(nn.Module):
    """Attention if the layer has heads, and a feed-forward part if configured.

    Each has a residual connection.
    """

    def __init__(self, config: AllAttentionConfig, heads: int) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.dropout = nn.Dropout(config.dropout)
        self.attention = AllAttention(config, heads) if heads else None
        self.feed_forward = FeedForward(config) if config.feed_forward else None
        # Post-norm layers without heads still normalise their input.
        if heads or not config.pre_norm:
            self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        if self.feed_forward is not None:
            self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """The next hidden states; visible as in `AllAttention`."""
        hidden = hidden_states
        if self.attention is None:
            if not self.pre_norm:
                hidden = self.attention_norm(hidden)
        elif self.pre_norm:
            hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), visible))
        else:
            hidden = self.attention_norm(hidden + self.dropout(self.attention(hidden, visible)))
        if self.feed_forward is not None and self.pre_norm:
            hidden = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        elif self.feed_forward is not None:
            hidden = self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return hidden


class AllAttentionPreTrainedModel(PreTrainedModel):
    """Base class of the family for transformers."""

    config_class = AllAttentionConfig
    config: AllAttentionConfig
    base_model_prefix = "model"
    _input_embed_layer = "embeddings"
    _supports_sdpa = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Normal weights.

        Persistent vectors with standard deviation 1 / their multiplier in `forward` (section 4).
        """
        spread = self.config.initializer_range
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, 0.0, spread)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        if isinstance(module, AllAttention):
            if self.config.persistent:
                nn.init.normal_(module.persistent_keys, 0.0, self.config.head_size**-0.5)
                nn.init.normal_(module.persistent_values, 0.0, self.config.persistent**-0.5)
            if self.config.positions == RELATIVE:
                nn.init.normal_(module.distances, 0.0, spread)


class AllAttentionModel(AllAttentionPreTrainedModel):
    """Token ids to hidden states."""

    def __init__(self, config: AllAttentionConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.positions == LEARNED:
            self.places = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            AllAttentionLayer(config, heads) for heads in config.heads_per_layer
        )
        self.norm: nn.Module = nn.Identity()
        if config.pre_norm:
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> BaseModelOutput:
        """Hidden states [row, token, width].

        Raises HeadlabError for a text longer than the learned positions.

        Args:
            input_ids: [row, token].
            attention_mask: [row, token], 0 where a token is padding.
        """
        tokens = input_ids.shape[1]
        hidden = self.embeddings(input_ids)
        if self.config.positions == LEARNED:
            hidden = hidden + self._places(input_ids, attention_mask)
        visible = torch.ones(tokens, tokens, dtype=torch.bool, device=input_ids.device).tril()[
            None, None
        ]
        if attention_mask is not None:
            visible = visible & attention_mask.bool()[:, None, None, :]
        hidden = self.dropout(hidden)
        for layer in self.layers:
            hidden = layer(hidden, visible)
        return BaseModelOutput(last_hidden_state=self.norm(hidden))

    def _places(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Position vectors of the tokens, counted from the first one that is not padding."""
        is_token = torch.ones_like(input_ids)
        if attention_mask is not None:
            is_token = attention_mask.long()
        positions = (is_token.cumsum(dim=1) - 1).clamp(min=0)
        longest = int(is_token.sum(dim=1).max())
        max_positions = self.config.max_position_embeddings
        if longest > max_positions:
            raise HeadlabError(
                f"{longest} tokens given; this model has {max_positions} positions; shorten the "
                "text",
                code="model.text_too_long",
            )
        vectors: torch.Tensor = self.places(positions)
        return vectors


class AllAttentionForCausalLM(AllAttentionPreTrainedModel):
    """Token ids to the next token's scores, with the output tied to the token embedding."""

    def __init__(self, config: AllAttentionConfig) -> None:
        super().__init__(config)
        self.model = AllAttentionModel(config)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> CausalLMOutput:
        """Scores [row, token, vocabulary] of each token's successor.

        Arguments as in `AllAttentionModel`.

        Args:
            labels: Ids [row, token] as in input_ids, -100 where there is no loss; the loss is in
                nats per token.
        """
        hidden = self.model(input_ids, attention_mask).last_hidden_state
        logits = functional.linear(hidden, self.model.embeddings.weight)
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=NO_LOSS
            )
        return CausalLMOutput(loss=loss, logits=logits)


# Registering headlab's own model classes with transformers.

OWN_CLASSES: dict[str, type[PreTrainedModel]] = {"AllAttentionForCausalLM": AllAttentionForCausalLM}


def make_known() -> None:
    """Let AutoConfig and AutoModelForCausalLM read folders of headlab's own models.

    May be called repeatedly.
    """
    AutoConfig.register(MODEL_TYPE, AllAttentionConfig, exist_ok=True)
    AutoModelForCausalLM.register(AllAttentionConfig, AllAttentionForCausalLM, exist_ok=True)


# Removing heads permanently, together with their persistent vectors.

ROWS = ("query", "key", "value")
COLUMNS = ("out",)
PERSISTENT = ("persistent_keys", "persistent_values")


def remove_heads(
    model: AllAttentionForCausalLM, mask: Mask, *, rescale: bool = False
) -> AllAttentionForCausalLM:
    """A smaller model without the heads the mask removes and their persistent vectors.

    The given one is unchanged.

    Its outputs equal those of the given one with these heads' gates at 0.

    Raises HeadlabError if the mask has another grid.

    Args:
        rescale: Multiply each layer's attention output by heads before / heads after, as in gates
            trained with output scaling (Shim et al., 2021). A layer may lose all its heads.
    """
    kept_by_layer = kept_heads_by_layer(model.config, mask)
    sizes = model.config.to_dict() | {
        "heads_per_layer": [int(layer.sum()) for layer in kept_by_layer]
    }
    config = AllAttentionConfig.from_dict(sizes)
    with building_alone():
        smaller = AllAttentionForCausalLM(config)
    torch.nn.Module.to(smaller, device=model.device, dtype=model.dtype)
    smaller.load_state_dict(_weights_without(model, kept_by_layer, rescale))
    smaller.train(model.training)
    return smaller


def kept_heads_by_layer(config: AllAttentionConfig, mask: Mask) -> list[Bools]:
    """Heads kept, bool [head], of every layer.

    Layers without heads are not rows of the mask's grid.
    """
    head_counts = tuple(n for n in config.heads_per_layer if n)
    if len(mask.grid.stacks) != 1 or mask.grid.stacks[0].heads != head_counts:
        raise HeadlabError(
            f"the mask is for a model with {mask.grid}; this model has layers of "
            f"{list(head_counts)} heads",
            code="mask.other_grid",
        )
    ends = np.cumsum(config.heads_per_layer)
    return np.split(mask.kept, ends[:-1])


@torch.no_grad()
def _weights_without(
    model: AllAttentionForCausalLM, kept_by_layer: Sequence[Bools], rescale: bool
) -> dict[str, torch.Tensor]:
    """All weights without those of the removed heads; arguments as in `remove_heads`."""
    weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    layers = zip(model.model.layers, kept_by_layer, strict=True)
    for number, (layer, kept_heads) in enumerate(layers):
        attention = layer.attention
        if not isinstance(attention, AllAttention):
            continue
        path = f"model.layers.{number}.attention"
        if not kept_heads.any():
            # A layer's norm goes with its attention, but a post-norm layer needs it.
            removed_prefixes = (f"{path}.", f"{path}_") if model.config.pre_norm else (f"{path}.",)
            for name in [name for name in weights if name.startswith(removed_prefixes)]:
                del weights[name]
            continue
        heads = torch.as_tensor(np.flatnonzero(kept_heads), device=model.device)
        scale = len(kept_heads) / len(heads) if rescale else 1.0
        weights |= _layer_without(attention, path, heads, scale)
    return weights


def _layer_without(
    attention: AllAttention, path: str, heads: torch.Tensor, scale: float
) -> dict[str, torch.Tensor]:
    """The changed tensors of one attention.

    Args:
        attention: Of the layer.
        path: Of the attention, with which the names of its tensors begin.
        heads: That stay, int64 [head].
        scale: What the outputs of the heads are multiplied by.
    """
    size = attention.config.head_size
    indices = (heads[:, None] * size + torch.arange(size, device=heads.device)).flatten()
    tensors: dict[str, torch.Tensor] = {}
    for name in ROWS:
        tensors[f"{path}.{name}.weight"] = getattr(attention, name).weight[indices].clone()
    for name in COLUMNS:
        tensors[f"{path}.{name}.weight"] = getattr(attention, name).weight[:, indices] * scale
    if attention.config.persistent:
        for name in PERSISTENT:
            tensors[f"{path}.{name}"] = getattr(attention, name)[heads].clone()
    return tensors
