"""What the training of a translation model is told: sizes, how long, how fast."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headlab.errors import HeadlabError
from headlab.options import Options, option


@dataclass(frozen=True)
class TranslationOptions(Options):
    """Everything the weights depend on, besides sentences, mask and thread count.

    The defaults are made for some ten thousand short sentences and two cores: about as small as the "tiny"
    Transformers that do best on so little data (Wu et al. 2021, "Good for Misconceived Reasons").
    """

    steps: int = option(5000, "updates", kind=int, low=1)
    batch: int = option(64, "sentences an update", kind=int, low=1)
    micro_batch: int | None = option(None, "sentences computed together", kind=int, low=1, optional=True)
    learning_rate: float = option(0.002, "at its highest", kind=float, low=0, high=1, open=True)
    warmup: int = option(600, "updates that it rises for; it then falls with 1/√update", kind=int, low=1)
    weight_decay: float = option(0.0001, "of AdamW", kind=float, low=0)
    clip: float | None = option(
        1.0, "greatest norm of the gradient", kind=float, low=0, high=1e9, open=True, optional=True
    )
    smoothing: float = option(0.1, "of the labels", kind=float, low=0, high=0.9)
    dropout: float = option(0.1, "share of activations", kind=float, low=0, high=0.9)
    vocabulary: int = option(4000, "pieces of words, at most", kind=int, low=8, high=256_000)
    max_length: int = option(100, "tokens of a sentence; what is longer is cut off", kind=int, low=3, high=512)
    width: int = option(128, "numbers that a token is", kind=int, low=2)
    feed_forward: int = option(256, "width of the feed-forward layers", kind=int, low=1)
    encoder_layers: int = option(4, "layers", kind=int, low=1, high=64)
    decoder_layers: int = option(4, "layers, each with decoder and cross heads", kind=int, low=1, high=64)
    encoder_heads: int = option(8, "heads of an encoder layer", kind=int, low=1)
    decoder_heads: int = option(8, "heads of a decoder layer, and as many cross heads", kind=int, low=1)
    seed: int = option(0, "of weights, batches and dropout", kind=int, low=0)

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        super().check()
        for name in ("encoder_heads", "decoder_heads"):
            heads = getattr(self, name)
            if self.width % heads or self.width % 2:
                raise HeadlabError(
                    f"width {self.width} is not an even multiple of {name} {heads}; choose one that is",
                    code="training.width_mismatch",
                )

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0 (Vaswani et al. 2017, equation 3, scaled to its highest value)."""
        return self.learning_rate * min((step + 1) / self.warmup, math.sqrt(self.warmup / (step + 1)))
