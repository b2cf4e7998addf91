"""What a language model's training is told, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from headlab.concrete import HardConcrete
from headlab.errors import HeadlabError
from headlab.models.allattention.config import LEARNED, RELATIVE
from headlab.training.lm.tokens import TOKENIZERS

ALL_ATTENTION, TRANSFORMER = "all-attention", "transformer"
KINDS = (ALL_ATTENTION, TRANSFORMER)
# Numbers that may be as low as this; others must be 1 or more.
LOW = {"seed": 0, "warmup": 0.0, "warmup_share": 0.0, "weight_decay": 0.0, "dropout": 0.0, "weight": 0.0,
       "tune_steps": 0}  # fmt: skip
BETWEEN = ("learning_rate", "gate_rate", "model_rate", "tune_rate", "start")  # strictly between 0 and 1


class StepOptions(Protocol):
    """What the steps themselves need of a training's options."""

    @property
    def seed(self) -> int:
        """Of everything random."""
        ...

    @property
    def steps(self) -> int:
        """How many."""
        ...

    @property
    def batch(self) -> int:
        """Windows of text a step."""
        ...

    @property
    def block(self) -> int:
        """Tokens a window."""
        ...

    @property
    def micro_batch(self) -> int | None:
        """Windows computed together; None: the batch."""
        ...

    @property
    def clip(self) -> float:
        """Greatest norm of the model's gradient."""
        ...

    def rate(self, step: int) -> float:
        """Learning rate of the model at a step, counted from 0."""
        ...


@dataclass(frozen=True)
class LmOptions:
    """Everything that a trained language model depends on, besides text and thread count.

    kind: "all-attention", or "transformer" with a feed-forward part in each layer; `persistent` is the number of
    persistent vectors a head in the one and the feed-forward part's inner width in the other, which gives both the same
    number of weights.  tokenizer: "bpe" or "word", with `vocabulary` entries at most.  block: tokens a window.  batch:
    windows a step.  learning_rate: at its highest, after `warmup` (share of the steps), falling to 0 in a line.
    heads: a layer; their width is width / heads.
    """

    kind: str = ALL_ATTENTION
    tokenizer: str = "bpe"
    vocabulary: int = 8000
    layers: int = 6
    heads: int = 8
    width: int = 256
    persistent: int = 512
    positions: str = RELATIVE
    pre_norm: bool = True
    dropout: float = 0.1
    block: int = 128
    batch: int = 16
    steps: int = 3000
    learning_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    micro_batch: int | None = None
    seed: int = 0
    head_size: int | None = None

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        _one_of("kind", self.kind, KINDS)
        _one_of("tokenizer", self.tokenizer, TOKENIZERS)
        _one_of("positions", self.positions, (RELATIVE, LEARNED))
        check_numbers(self)
        if self.head_size is None and self.width % self.heads:
            raise HeadlabError(f"width {self.width} is no multiple of {self.heads} heads; change one of them")

    def rate(self, step: int) -> float:
        """See `StepOptions.rate`."""
        return rising_and_falling(self.learning_rate, self.warmup, self.steps, step)

    def record(self) -> dict[str, Any]:
        """The options by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LmGateOptions:
    """Everything that pruning a language model by gates depends on, besides model, text and thread count.

    Shim et al. (2021): the loss is nats a token + weight · Σ P(gate ≠ 0) over all heads, the model is trained along.
    warm_up: the weight rises from 0 in a line over `warmup_share` of the steps.  open_start: P(gate ≠ 0) is `start` at
    first, else a gate's parameter is 0, which leaves its median half open.  scale: each layer's output is multiplied
    by heads / sum of gates.  tune_steps: of fine-tuning after the heads are gone (0: none), at `tune_rate` at first.
    model_rate: of the model beside the gates.  Both rates fall to 0 in a line; gate_rate stays.
    """

    weight: float = 0.01
    warm_up: bool = True
    open_start: bool = True
    scale: bool = True
    warmup_share: float = 0.5
    start: float = 0.95
    steps: int = 1000
    batch: int = 16
    block: int = 128
    gate_rate: float = 0.05
    model_rate: float = 3e-4
    tune_steps: int = 500
    tune_rate: float = 3e-4
    weight_decay: float = 0.01
    clip: float = 1.0
    micro_batch: int | None = None
    history: int = 60
    temperature: float = HardConcrete.temperature
    low: float = HardConcrete.low
    high: float = HardConcrete.high
    seed: int = 0

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        check_numbers(self, free=("low", "high", "temperature"))
        if not (self.low < 0 and self.high > 1 and self.temperature > 0):
            raise HeadlabError(
                f"gates stretch from {self.low} to {self.high} at temperature {self.temperature}; "
                "they need low < 0, high > 1 and temperature > 0"
            )

    def rate(self, step: int) -> float:
        """See `StepOptions.rate`."""
        return rising_and_falling(self.model_rate, 0.0, self.steps, step)

    def weight_at(self, step: int) -> float:
        """λ at a step, counted from 0."""
        rising = round(self.steps * self.warmup_share) if self.warm_up else 0
        return self.weight * min(1.0, (step + 1) / rising) if rising else self.weight

    @property
    def concrete(self) -> HardConcrete:
        """The gates' distribution."""
        return HardConcrete(self.temperature, self.low, self.high)

    @property
    def first(self) -> float:
        """The gates' parameter at the start."""
        return self.concrete.start(self.start) if self.open_start else 0.0

    @property
    def times(self) -> tuple[int, ...]:
        """After how many steps the gates are kept: 0 and the last among them."""
        count = min(self.history, self.steps)
        return tuple((2 * self.steps * i + count) // (2 * count) for i in range(count + 1))

    def tuning(self) -> Tuning:
        """The options of the fine-tuning that follows."""
        return Tuning(self.seed + 1, self.tune_steps, self.batch, self.block, self.micro_batch, self.clip,
                      self.tune_rate)  # fmt: skip

    def record(self) -> dict[str, Any]:
        """The options by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Tuning:
    """Fine-tuning of a smaller model; see `StepOptions`."""

    seed: int
    steps: int
    batch: int
    block: int
    micro_batch: int | None
    clip: float
    learning_rate: float

    def rate(self, step: int) -> float:
        """See `StepOptions.rate`."""
        return rising_and_falling(self.learning_rate, 0.0, self.steps, step)


@dataclass(frozen=True, slots=True)
class LmStep:
    """One step just made: of which part, its number from 1, of how many, its loss (nats a token) and seconds so far.

    kept: the step up to which the state is on disk (0: none is).  open: gates likelier open than closed, if any.
    """

    part: str
    step: int
    steps: int
    loss: float
    seconds: float
    kept: int = 0
    open: int | None = None

    @property
    def left(self) -> float:
        """Seconds that the steps left of this part will take at the mean pace so far."""
        return self.seconds / self.step * (self.steps - self.step)


def rising_and_falling(highest: float, warmup: float, steps: int, step: int) -> float:
    """A learning rate that rises to its highest over a share of the steps, then falls to 0, both in a line."""
    rising = round(steps * warmup)
    if step < rising:
        return highest * (step + 1) / rising
    return highest * (steps - step) / max(1, steps - rising)


def check_numbers(options: LmOptions | LmGateOptions, free: tuple[str, ...] = ()) -> None:
    """Raise HeadlabError unless every number of the options lies where it may."""
    values: Mapping[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)}
    for name, value in values.items():
        if name in free or not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if name in BETWEEN:
            if not 0 < value < 1:
                raise HeadlabError(f"{name} is {value}; choose a number between 0 and 1")
            continue
        low = LOW.get(name, 0.001 if name == "clip" else 1)
        high = 1 if name in ("warmup", "warmup_share", "dropout") else float("inf")
        if not low <= value < high:
            raise HeadlabError(f"{name} is {value}; choose {low} or more" + (", below 1" if high == 1 else ""))


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise HeadlabError(f"{name} is {value!r}; use {' or '.join(choices)}")
