"""What a language model's training is told, and what it tells while it runs; command lines read it without torch."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.errors import HeadlabError
from headlab.l0_gates import HardConcrete
from headlab.models.allattention import POSITIONS, RELATIVE
from headlab.options import Options, option
from headlab.training.options import StepMade, rising_and_falling

ALL_ATTENTION, TRANSFORMER = "all-attention", "transformer"
BPE, WORD = "bpe", "word"


@dataclass(frozen=True)
class Windows(Options):
    """How a text is gone through: windows of it, and what an update does with them."""

    block: int = option(128, "tokens a window", kind=int, low=1)
    batch: int = option(16, "windows a step", kind=int, low=1)
    micro_batch: int | None = option(None, "windows computed together", kind=int, low=1, optional=True)
    weight_decay: float = option(0.01, "of AdamW, of matrices alone", kind=float, low=0, high=1)
    clip: float | None = option(
        1.0, "greatest norm of the gradient", kind=float, low=0, high=1e9, open=True, optional=True
    )
    seed: int = option(0, "of everything random", kind=int, low=0)


@dataclass(frozen=True)
class LmOptions(Windows):
    """Everything that a trained language model depends on, besides text and thread count.

    kind: "all-attention", or "transformer" with a feed-forward part in each layer; `persistent` is the number of
    persistent vectors a head in the one and the feed-forward part's inner width in the other, which gives both the same
    number of weights.  learning_rate: at its highest, after `warmup` (share of the steps), falling to 0 in a line.
    """

    kind: str = option(ALL_ATTENTION, "all-attention or transformer", (ALL_ATTENTION, TRANSFORMER))
    tokenizer: str = option(BPE, "bpe or word", (BPE, WORD))
    vocabulary: int = option(8000, "entries of the vocabulary at most", kind=int, low=3)
    layers: int = option(6, "layers", kind=int, low=1)
    heads: int = option(8, "heads a layer", kind=int, low=1)
    width: int = option(256, "width of the hidden states", kind=int, low=1)
    persistent: int = option(
        512, "persistent vectors a head; inner width of a transformer's feed-forward part", kind=int, low=1
    )
    positions: str = option(RELATIVE, "relative or learned", POSITIONS)
    pre_norm: bool = option(True, "normalise before each part, not after it", kind=bool)
    dropout: float = option(0.1, "share of numbers left out while training", kind=float, low=0, high=0.9)
    steps: int = option(3000, "training steps", kind=int, low=1)
    learning_rate: float = option(1e-3, "highest learning rate", kind=float, low=0, high=1, open=True)
    warmup: float = option(0.1, "share of the steps that the rate rises for", kind=float, low=0, high=0.99)
    head_size: int | None = option(None, "width of a head; none: width / heads", kind=int, low=1, optional=True)

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        super().check()
        if self.head_size is None and self.width % self.heads:
            raise HeadlabError(
                f"width {self.width} is not a multiple of {self.heads} heads; change one of them",
                code="training.width_mismatch",
            )

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        return rising_and_falling(self.learning_rate, self.warmup, self.steps, step)


@dataclass(frozen=True)
class LmGateOptions(Windows):
    """Everything that pruning a language model by gates depends on, besides model, text and thread count.

    Shim et al. (2021): the loss is nats a token + weight · Σ P(gate ≠ 0) over all
    heads, the model is trained along.  warm_up: the weight rises from 0 in a line over `warmup_share` of the steps.
    open_start: P(gate ≠ 0) is `start` at first, else a gate's parameter is 0, which leaves its median half open.
    scale: each layer's output is multiplied by heads / sum of gates.  model_rate, tune_rate: fall to 0 in a line, the
    one beside the gates, the other in the `tune_steps` after the heads are gone; gate_rate stays.
    """

    weight: float = option(0.01, "λ, penalty in nats for a gate that is open", kind=float, low=0, high=1e9)
    warm_up: bool = option(True, "let λ rise from 0", kind=bool)
    open_start: bool = option(True, "begin with gates that are likely open", kind=bool)
    scale: bool = option(True, "multiply a layer's output by heads / sum of gates", kind=bool)
    warmup_share: float = option(0.5, "share of the steps that λ rises for", kind=float, low=0, high=1)
    start: float = option(0.95, "P(gate ≠ 0) of such a gate", kind=float, low=0, high=1, open=True)
    steps: int = option(1000, "steps with gates", kind=int, low=1)
    gate_rate: float = option(0.05, "learning rate of the gates", kind=float, low=0, high=1, open=True)
    model_rate: float = option(
        3e-4, "learning rate of the model beside the gates", kind=float, low=0, high=1, open=True
    )
    tune_steps: int = option(500, "steps of fine-tuning after the heads are gone", kind=int, low=0)
    tune_rate: float = option(3e-4, "learning rate of the fine-tuning", kind=float, low=0, high=1, open=True)
    history: int = option(60, "times that the gates are kept, beside the first", kind=int, low=1)
    temperature: float = option(
        HardConcrete.temperature, "of the gates' distribution", kind=float, low=0, high=1e3, open=True
    )
    low: float = option(HardConcrete.low, "lower end of that, stretched", kind=float, low=-1e3, high=0, open=True)
    high: float = option(HardConcrete.high, "upper end of that, stretched", kind=float, low=1, high=1e3, open=True)

    def check(self) -> None:
        """Raise HeadlabError for a value that cannot be trained with."""
        super().check()
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
class LmStep(StepMade):
    """A step of a part of a language model's training; loss in nats a token.

    open: gates likelier open than closed, if any.
    """

    part: str = ""
    open: int | None = None
