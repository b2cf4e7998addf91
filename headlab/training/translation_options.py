"""What the training of a translation model is told: sizes, how long, how fast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from headlab.errors import HeadlabError
from headlab.options import Option

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "steps": Option(5000, "updates", kind=int, low=1),
        "batch": Option(64, "sentences an update", kind=int, low=1),
        "micro_batch": Option(None, "sentences computed together", kind=int, low=1, optional=True),
        "learning_rate": Option(0.002, "at its highest", kind=float, low=0, high=1, open=True),
        "warmup": Option(600, "updates that it rises for; it then falls with 1/√update", kind=int, low=1),
        "weight_decay": Option(0.0001, "of AdamW", kind=float, low=0),
        "clip": Option(1.0, "greatest norm of the gradient", kind=float, low=0, high=1e9, open=True, optional=True),
        "smoothing": Option(0.1, "of the labels", kind=float, low=0, high=0.9),
        "dropout": Option(0.1, "share of activations", kind=float, low=0, high=0.9),
        "vocabulary": Option(4000, "pieces of words, at most", kind=int, low=8, high=256_000),
        "max_length": Option(100, "tokens of a sentence; what is longer is cut off", kind=int, low=3, high=512),
        "width": Option(128, "numbers that a token is", kind=int, low=2),
        "feed_forward": Option(256, "width of the feed-forward layers", kind=int, low=1),
        "encoder_layers": Option(4, "layers", kind=int, low=1, high=64),
        "decoder_layers": Option(4, "layers, each with decoder and cross heads", kind=int, low=1, high=64),
        "encoder_heads": Option(8, "heads of an encoder layer", kind=int, low=1),
        "decoder_heads": Option(8, "heads of a decoder layer, and as many cross heads", kind=int, low=1),
        "seed": Option(0, "of weights, batches and dropout", kind=int, low=0),
    }
)


@dataclass(frozen=True)
class TranslationOptions:
    """Everything the weights depend on, besides sentences, mask and thread count; `OPTIONS` says what is what.

    The defaults are made for some ten thousand short sentences and two cores: about as small as the "tiny"
    Transformers that do best on so little data (Wu et al. 2021, "Good for Misconceived Reasons").
    """

    steps: int = 5000
    batch: int = 64
    micro_batch: int | None = None
    learning_rate: float = 0.002
    warmup: int = 600
    weight_decay: float = 0.0001
    clip: float | None = 1.0
    smoothing: float = 0.1
    dropout: float = 0.1
    vocabulary: int = 4000
    max_length: int = 100
    width: int = 128
    feed_forward: int = 256
    encoder_layers: int = 4
    decoder_layers: int = 4
    encoder_heads: int = 8
    decoder_heads: int = 8
    seed: int = 0

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        for name, value in asdict(self).items():
            option = OPTIONS[name]
            if not (option.fits(value) or (value is None and option.optional)):
                raise HeadlabError(f"{name} is {value!r:.40}; choose {option.range}", code="training.option_invalid")
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

    def record(self) -> Mapping[str, Any]:
        """The options by name, ready for JSON."""
        return asdict(self)


def translation_options(given: Mapping[str, Any]) -> TranslationOptions:
    """The options with some values of one's own, checked. Raises HeadlabError for an unknown name or a bad value."""
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise HeadlabError(
            f"unknown option {unknown[0]!r:.40}; choose from {', '.join(OPTIONS)}", code="training.option_unknown"
        )
    options = TranslationOptions(**given)
    options.check()
    return options
