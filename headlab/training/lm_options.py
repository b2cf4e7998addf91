"""What a language model's training is told, and what it tells while it runs; command lines read it without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from headlab.errors import HeadlabError
from headlab.l0_gates import HardConcrete
from headlab.models.allattention import POSITIONS, RELATIVE
from headlab.options import Option

ALL_ATTENTION, TRANSFORMER = "all-attention", "transformer"
BPE, WORD = "bpe", "word"
SWITCH = "true or false"

SHARED: Mapping[str, Option] = MappingProxyType(
    {
        "block": Option(128, "tokens a window", kind=int, low=1),
        "batch": Option(16, "windows a step", kind=int, low=1),
        "micro_batch": Option(None, "windows computed together", kind=int, low=1, optional=True),
        "weight_decay": Option(0.01, "of AdamW, of matrices alone", kind=float, low=0, high=1),
        "clip": Option(1.0, "greatest norm of the gradient", kind=float, low=0, high=1e9, open=True, optional=True),
        "seed": Option(0, "of everything random", kind=int, low=0),
    }
)
OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "kind": Option(ALL_ATTENTION, "all-attention or transformer", (ALL_ATTENTION, TRANSFORMER)),
        "tokenizer": Option(BPE, "bpe or word", (BPE, WORD)),
        "vocabulary": Option(8000, "entries of the vocabulary at most", kind=int, low=3),
        "layers": Option(6, "layers", kind=int, low=1),
        "heads": Option(8, "heads a layer", kind=int, low=1),
        "width": Option(256, "width of the hidden states", kind=int, low=1),
        "persistent": Option(
            512, "persistent vectors a head; inner width of a transformer's feed-forward part", kind=int, low=1
        ),
        "positions": Option(RELATIVE, "relative or learned", POSITIONS),
        "pre_norm": Option(True, "normalise before each part, not after it", kind=bool),
        "head_size": Option(None, "width of a head; none: width / heads", kind=int, low=1, optional=True),
        "dropout": Option(0.1, "share of numbers left out while training", kind=float, low=0, high=0.9),
        "steps": Option(3000, "training steps", kind=int, low=1),
        "learning_rate": Option(1e-3, "highest learning rate", kind=float, low=0, high=1, open=True),
        "warmup": Option(0.1, "share of the steps that the rate rises for", kind=float, low=0, high=0.99),
        **SHARED,
    }
)
GATE_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "weight": Option(0.01, "λ, penalty in nats for a gate that is open", kind=float, low=0, high=1e9),
        "warm_up": Option(True, "let λ rise from 0", kind=bool),
        "warmup_share": Option(0.5, "share of the steps that λ rises for", kind=float, low=0, high=1),
        "open_start": Option(True, "begin with gates that are likely open", kind=bool),
        "start": Option(0.95, "P(gate ≠ 0) of such a gate", kind=float, low=0, high=1, open=True),
        "scale": Option(True, "multiply a layer's output by heads / sum of gates", kind=bool),
        "steps": Option(1000, "steps with gates", kind=int, low=1),
        "gate_rate": Option(0.05, "learning rate of the gates", kind=float, low=0, high=1, open=True),
        "model_rate": Option(3e-4, "learning rate of the model beside the gates", kind=float, low=0, high=1, open=True),
        "tune_steps": Option(500, "steps of fine-tuning after the heads are gone", kind=int, low=0),
        "tune_rate": Option(3e-4, "learning rate of the fine-tuning", kind=float, low=0, high=1, open=True),
        "history": Option(60, "times that the gates are kept, beside the first", kind=int, low=1),
        "temperature": Option(
            HardConcrete.temperature, "of the gates' distribution", kind=float, low=0, high=1e3, open=True
        ),
        "low": Option(HardConcrete.low, "lower end of that, stretched", kind=float, low=-1e3, high=0, open=True),
        "high": Option(HardConcrete.high, "upper end of that, stretched", kind=float, low=1, high=1e3, open=True),
        **SHARED,
    }
)


@dataclass(frozen=True)
class LmOptions:
    """Everything that a trained language model depends on, besides text and thread count; `OPTIONS` says what is what.

    kind: "all-attention", or "transformer" with a feed-forward part in each layer; `persistent` is the number of
    persistent vectors a head in the one and the feed-forward part's inner width in the other, which gives both the same
    number of weights.  learning_rate: at its highest, after `warmup` (share of the steps), falling to 0 in a line.
    """

    kind: str = ALL_ATTENTION
    tokenizer: str = BPE
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
    clip: float | None = 1.0
    micro_batch: int | None = None
    seed: int = 0
    head_size: int | None = None

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        check(OPTIONS, asdict(self))
        if self.head_size is None and self.width % self.heads:
            raise HeadlabError(
                f"width {self.width} is not a multiple of {self.heads} heads; change one of them",
                code="training.width_mismatch",
            )

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        return rising_and_falling(self.learning_rate, self.warmup, self.steps, step)

    def record(self) -> dict[str, Any]:
        """The options by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LmGateOptions:
    """Everything that pruning a language model by gates depends on, besides model, text and thread count.

    `GATE_OPTIONS` says what is what.  Shim et al. (2021): the loss is nats a token + weight · Σ P(gate ≠ 0) over all
    heads, the model is trained along.  warm_up: the weight rises from 0 in a line over `warmup_share` of the steps.
    open_start: P(gate ≠ 0) is `start` at first, else a gate's parameter is 0, which leaves its median half open.
    scale: each layer's output is multiplied by heads / sum of gates.  model_rate, tune_rate: fall to 0 in a line, the
    one beside the gates, the other in the `tune_steps` after the heads are gone; gate_rate stays.
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
    clip: float | None = 1.0
    micro_batch: int | None = None
    history: int = 60
    temperature: float = HardConcrete.temperature
    low: float = HardConcrete.low
    high: float = HardConcrete.high
    seed: int = 0

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        check(GATE_OPTIONS, asdict(self))
        self.concrete.check(self.start)

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
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
    """Fine-tuning of a smaller model; its rate falls to 0 in a line."""

    seed: int
    steps: int
    batch: int
    block: int
    micro_batch: int | None
    clip: float | None
    learning_rate: float

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
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


def lm_options(given: Mapping[str, Any]) -> LmOptions:
    """The options with some values of one's own, checked. Raises HeadlabError for an unknown name or a bad value."""
    options = LmOptions(**known(OPTIONS, given))
    options.check()
    return options


def lm_gate_options(given: Mapping[str, Any]) -> LmGateOptions:
    """The options with some values of one's own, checked. Raises HeadlabError for an unknown name or a bad value."""
    options = LmGateOptions(**known(GATE_OPTIONS, given))
    options.check()
    return options


def known(options: Mapping[str, Option], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was given, each the name of an option. Raises HeadlabError."""
    unknown = sorted(set(given) - set(options))
    if unknown:
        raise HeadlabError(
            f"unknown option {unknown[0]!r:.40}; choose from {', '.join(options)}", code="training.option_unknown"
        )
    return given


def check(options: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Raise HeadlabError unless every value is what its option may be."""
    for name, value in values.items():
        option = options[name]
        # any float may be as large as infinity, where no end is named
        if not ((value is None and option.optional) or (option.fits(value) and value != float("inf"))):
            fits = SWITCH if option.kind is bool else option.range
            raise HeadlabError(f"{name} is {value!r:.40}; choose {fits}", code="training.option_invalid")


def rising_and_falling(highest: float, warmup: float, steps: int, step: int) -> float:
    """A learning rate that rises to its highest over a share of the steps, then falls to 0, both in a line."""
    rising = round(steps * warmup)
    if step < rising:
        return highest * (step + 1) / rising
    return highest * (steps - step) / max(1, steps - rising)
