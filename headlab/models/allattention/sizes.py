"""How many parameters a model of a configuration has, without making it."""

from __future__ import annotations

from typing import NamedTuple

from headlab.models.allattention.config import AllAttentionConfig
from headlab.models.allattention.positions import LEARNED, RELATIVE


class Parameters(NamedTuple):
    """Parameters of the whole model, of its layers, and of one head (its persistent vectors included)."""

    whole: int
    layers: int
    head: int


def parameters(config: AllAttentionConfig) -> Parameters:
    """Numbers of parameters; a test holds them against models."""
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
