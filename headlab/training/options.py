"""What a fine-tuning is told, and what it tells while it runs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from headlab.errors import HeadlabError


@dataclass(frozen=True)
class FinetuneOptions:
    """Everything the resulting weights depend on, besides base, data and thread count.

    learning_rate: at its highest, after `warmup` (share of the steps), falling to 0 in a straight line.
    batch: examples a step.  rank, alpha, targets: of the LoRA (Hu et al., 2021).  max_length: in tokens.
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

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        for field in fields(self):
            value = getattr(self, field.name)
            low = {"seed": 0, "warmup": 0.0, "weight_decay": 0.0, "max_length": 3}.get(field.name, 1)
            if field.name == "targets":
                if not value:
                    raise HeadlabError("targets is empty; name the layers to train, for example query and value")
            elif field.name == "learning_rate":
                if not 0 < value < 1:
                    raise HeadlabError(f"learning_rate is {value}; choose one between 0 and 1, for example 0.001")
            elif not low <= value < (1 if field.name == "warmup" else float("inf")):
                raise HeadlabError(f"{field.name} is {value}; choose {low} or more")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        rising = round(self.steps * self.warmup)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (self.steps - step) / (self.steps - rising)


@dataclass(frozen=True, slots=True)
class FinetuneStep:
    """One step just made: its number from 1, of how many, its loss (nats an example), rate and seconds so far."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    seconds: float
