"""Configuration of an All-attention Transformer, or of an ordinary one built from the same parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from transformers import PretrainedConfig

from headlab.errors import HeadlabError
from headlab.models.allattention import LEARNED, POSITIONS, RELATIVE

MODEL_TYPE = "headlab-all-attention"
LOW = {"vocab_size": 2, "hidden_size": 1, "head_size": 1, "persistent": 0, "feed_forward": 0,
       "max_position_embeddings": 1}  # fmt: skip


class AllAttentionConfig(PretrainedConfig):
    """Configuration of a decoder-only language model whose layers may differ in their number of heads.

    heads_per_layer: heads of each layer; a layer with 0 has no attention.  head_size: width of a head's queries,
    keys and values.  persistent: trained key and value vectors per head, besides those of the tokens (Sukhbaatar et
    al., 2019, section 4).  feed_forward: inner width of a feed-forward part after the attention (0: none); with it and
    persistent 0 the model is an ordinary Transformer.  positions: "relative" (a trained vector per distance, up to
    max_position_embeddings - 1, which also serves larger distances; Shaw et al., 2018) or "learned" (a trained vector
    per position, so that no text may be longer).  pre_norm: normalise before each part, not after it.
    Raises HeadlabError for invalid sizes.
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
        self.vocab_size, self.hidden_size, self.head_size = vocab_size, hidden_size, head_size
        self.heads_per_layer = list(heads_per_layer)
        self.persistent, self.feed_forward = persistent, feed_forward
        self.positions, self.max_position_embeddings = positions, max_position_embeddings
        self.pre_norm, self.dropout = pre_norm, dropout
        self.initializer_range, self.layer_norm_eps = initializer_range, layer_norm_eps
        self.bos_token_id, self.eos_token_id, self.pad_token_id = bos_token_id, eos_token_id, pad_token_id
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
        for name, low in LOW.items():
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
                f"positions is {self.positions!r}; use {RELATIVE} or {LEARNED}", code="model.config_positions_unknown"
            )
        if not 0 <= self.dropout < 1:
            raise HeadlabError(
                f"dropout is {self.dropout}; choose a number from 0 to below 1", code="model.config_dropout_invalid"
            )


# Number of parameters of a configuration's model, without building it.


class Parameters(NamedTuple):
    """Numbers of parameters of the whole model, of its layers, and of one head (with its persistent vectors)."""

    whole: int
    layers: int
    head: int


def parameters(config: AllAttentionConfig) -> Parameters:
    """Numbers of parameters of a configuration's model; a test compares them with real models."""
    wide, size = config.hidden_size, config.head_size
    head = 4 * wide * size + 2 * config.persistent * size
    distances = config.max_position_embeddings * size if config.positions == RELATIVE else 0
    feed_forward = 2 * wide * config.feed_forward + config.feed_forward + wide if config.feed_forward else 0
    layers = 0
    for heads in config.heads_per_layer:
        layers += heads * head + (distances if heads else 0) + feed_forward
        layers += 2 * wide * (bool(heads or not config.pre_norm) + bool(config.feed_forward))
    places = config.max_position_embeddings * wide if config.positions == LEARNED else 0
    norm = 2 * wide if config.pre_norm else 0
    return Parameters(config.vocab_size * wide + places + layers + norm, layers, head)
