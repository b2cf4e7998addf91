"""What a fine-tuning is told, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from headlab.errors import HeadlabError

METHODS = ("lora", "full")
LATER = ("method", "clip", "freeze_embeddings", "freeze_layers", "micro_batch")  # younger than the first adapters
LOW = {"seed": 0, "warmup": 0.0, "weight_decay": 0.0, "max_length": 3, "freeze_layers": 0}


@dataclass(frozen=True)
class FinetuneOptions:
    """Everything the resulting weights depend on, besides base, data and thread count.

    learning_rate: at its highest, after `warmup` (share of the steps), falling to 0 in a straight line.
    batch: examples a step.  rank, alpha, targets: of the LoRA (Hu et al., 2021).  max_length: in tokens.
    method: "lora", or "full" for all weights.  clip: greatest norm of the gradient (None: any).
    freeze_layers: of method full, the lowest layers that stay as they are, with the embeddings below them.
    micro_batch: examples computed together (None: the batch); their gradients are added up.
    """

    seed: int = 0
    steps: int = 400
    batch: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.01
    rank: int = 8
    alpha: int = 16
    targets: tuple[str, ...] = ("query", "value")
    max_length: int = 64
    method: str = "lora"
    clip: float | None = None
    freeze_embeddings: bool = False
    freeze_layers: int = 0
    micro_batch: int | None = None

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        if self.method not in METHODS:
            raise HeadlabError(
                f"unknown method {self.method!r}; use {' or '.join(METHODS)}", code="training.method_unknown"
            )
        if not self.targets:
            raise HeadlabError(
                "targets is empty; name the layers to train, for example query and value",
                code="training.targets_missing",
            )
        if not 0 < self.learning_rate < 1:
            raise HeadlabError(
                f"learning_rate is {self.learning_rate}; choose one between 0 and 1, for example 0.001",
                code="training.learning_rate_out_of_range",
            )
        if self.method == "lora" and (self.freeze_embeddings or self.freeze_layers):
            raise HeadlabError(
                "a LoRA leaves the base as it is; freeze embeddings or layers with method full",
                code="training.freeze_with_lora",
            )
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            high = 1 if field.name == "warmup" else float("inf")
            if number and field.name not in ("learning_rate", "clip") and not LOW.get(field.name, 1) <= value < high:
                raise HeadlabError(
                    f"{field.name} is {value}; choose {LOW.get(field.name, 1)} or more",
                    code="training.number_too_small",
                )
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise HeadlabError(
                f"clip is {self.clip}; choose a number above 0, for example 1", code="training.clip_out_of_range"
            )

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        rising = round(self.steps * self.warmup)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (self.steps - step) / (self.steps - rising)

    def record(self) -> Mapping[str, Any]:
        """The options by name, ready for JSON; younger ones only where they are not at their defaults.

        So that what was trained before there were such options keeps its name.
        """
        usual = asdict(FinetuneOptions())
        return {name: v for name, v in asdict(self).items() if name not in LATER or v != usual[name]}


@dataclass(frozen=True, slots=True)
class FinetuneStep:
    """One step just made: its number from 1, of how many, its loss (nats an answer), rate and seconds so far.

    kept: the step up to which the state is on disk (0: none is).  rows: examples computed together.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    seconds: float
    kept: int = 0
    rows: int = 0

    @property
    def left(self) -> float:
        """Seconds that the steps left will take at the mean pace so far."""
        return self.seconds / self.step * (self.steps - self.step)
