"""Options of every training, named presets, and how examples form batches; no model is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from headlab.core import HeadlabError, Json, Options, OptionValue, clock_text, integer_in, option
from headlab.models.allattention import POSITIONS, RELATIVE
from headlab.results import HardConcrete

# Fine-tuning: its options, named presets, and how examples form batches.

# Batches of texts of similar length, a function of seed and step.

Indices = npt.NDArray[np.int64]
POOL = 16  # batches per length-sorted pool: little padding, and still a new mix in every epoch


def epoch(lengths: Sequence[int], batch: int, rng: np.random.Generator) -> list[Indices]:
    """Every example once, in batches of similar length, in random order."""
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    pools = [order[start : start + batch * POOL] for start in range(0, len(order), batch * POOL)]
    sorted_pools = [pool[np.argsort(sizes[pool], kind="stable")] for pool in pools]
    batches = [
        pool[start : start + batch] for pool in sorted_pools for start in range(0, len(pool), batch)
    ]
    return [batches[i] for i in rng.permutation(len(batches))]


def step_batch(lengths: Sequence[int], batch: int, seed: int, step: int) -> Indices:
    """The examples of a step: a function of seed and step alone.

    So a resumed run needs no history.
    """
    epoch_number, batch_number = divmod(step, batches_per_epoch(len(lengths), batch))
    return epoch(lengths, batch, np.random.default_rng((seed, epoch_number)))[batch_number]


def batches_per_epoch(examples: int, batch: int) -> int:
    """Number of batches that `epoch` makes."""
    pools, rest = divmod(examples, batch * POOL)
    return pools * POOL + -(-rest // batch)


# Options of fine-tuning, and the progress it reports.

METHODS = ("lora", "full")
# added after the first adapters
LATER = (
    "method",
    "clip",
    "freeze_embeddings",
    "freeze_layers",
    "micro_batch",
)


class StepOptions:
    """What the options of every training have in common.

    Attributes:
        batch: Examples of a step.
        micro_batch: Examples computed together (None: the batch).
        clip: Greatest norm of the gradient (None: no limit).
    """

    seed: int
    steps: int
    batch: int
    micro_batch: int | None = None
    clip: float | None
    learning_rate: float
    warmup: float = 0.0

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0.

        It rises linearly over `warmup` of the steps, then falls to 0.
        """
        rising = round(self.steps * self.warmup)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (self.steps - step) / max(1, self.steps - rising)


@dataclass(frozen=True)
class FinetuneOptions(StepOptions, Options):
    """Everything the resulting weights depend on, besides base, data and thread count.

    Attributes:
        learning_rate: The peak, reached after `warmup` (share of the steps), then falling linearly
            to 0.
        rank, alpha, targets: Of the LoRA (Hu et al., 2021).
        freeze_layers: With method full, the number of lowest layers to freeze, with the embeddings
            below them.
        micro_batch: Examples computed together (None: the batch); their gradients are added up.
    """

    seed: int = option(0, "seed of batches, dropout and new weights", kind=int, low=0)
    steps: int = option(400, "training steps", kind=int, low=1)
    batch: int = option(32, "examples a step", kind=int, low=1)
    learning_rate: float = option(
        1e-3, "highest learning rate", kind=float, low=0, high=1, open=True
    )
    warmup: float = option(
        0.1, "share of the steps in which the learning rate rises", kind=float, low=0, high=0.99
    )
    weight_decay: float = option(0.01, "weight decay of AdamW", kind=float, low=0)
    rank: int = option(8, "rank of the LoRA", kind=int, low=1)
    alpha: int = option(
        16, "alpha of the LoRA: its update is scaled by alpha / rank", kind=int, low=1
    )
    targets: tuple[str, ...] = ("query", "value")
    max_length: int = option(64, "maximum length of a text, in tokens", kind=int, low=3)
    method: str = option("lora", "a LoRA, or full for all weights", METHODS)
    clip: float | None = option(
        None, "greatest norm of the gradient", kind=float, low=0, open=True, optional=True
    )
    freeze_embeddings: bool = option(False, "freeze the embeddings", kind=bool)
    freeze_layers: int = option(0, "number of lowest layers to freeze", kind=int, low=0)
    micro_batch: int | None = option(
        None, "examples computed together", kind=int, low=1, optional=True
    )

    def check(self) -> None:
        """Raise HeadlabError for an unusable value."""
        super().check()
        if not self.targets:
            raise HeadlabError(
                "targets is empty; name the layers to train, for example query and value",
                code="training.targets_missing",
            )
        if self.method == "lora" and (self.freeze_embeddings or self.freeze_layers):
            raise HeadlabError(
                "a LoRA leaves the base as it is; freeze embeddings or layers with method full",
                code="training.freeze_with_lora",
            )

    def record(self) -> dict[str, Json]:
        """The options by name, ready for JSON.

        Later additions only if they are not at their defaults.

        Results from before those options existed thus keep their key.
        """
        defaults = asdict(FinetuneOptions())
        values = {**asdict(self), "targets": list(self.targets)}
        return {
            name: value
            for name, value in values.items()
            if name not in LATER or value != defaults[name]
        }


@dataclass(frozen=True, slots=True)
class StepMade:
    """A finished step: its number from 1, the total, mean loss and seconds so far.

    The loss is in nats per answer.

    Attributes:
        kept: The last step whose state is on disk (0: none).
        rows: Examples computed together.
    """

    step: int
    steps: int
    loss: float
    seconds: float
    kept: int = 0
    rows: int = 0

    @property
    def seconds_left(self) -> float:
        """Estimated seconds for the remaining steps, at the mean pace so far."""
        return self.seconds / self.step * (self.steps - self.step)


@dataclass(frozen=True, slots=True)
class FinetuneStep(StepMade):
    """A finished step with its learning rate."""

    learning_rate: float = 0.0

    @property
    def note(self) -> str:
        """The step in words: loss, learning rate, time left."""
        return f"training, loss {self.loss:.3f}, rate {self.learning_rate:.2g}, {clock_text(self.seconds_left)} left"


# Hyper-parameters by task, method and base, each with its source.


@dataclass(frozen=True)
class Preset:
    """Named hyper-parameters: their source, and the length of training (either steps or epochs)."""

    source: str
    options: Mapping[str, OptionValue]
    epochs: float | None = None


_XTREME = {
    "batch": 32,
    "learning_rate": 2e-5,
    "warmup": 0.0,
    "weight_decay": 0.0,
    "clip": 1.0,
    "max_length": 128,
}
_DE_VRIES = {
    "batch": 10,
    "learning_rate": 5e-5,
    "warmup": 0.0,
    "weight_decay": 0.0,
    "clip": 1.0,
    "max_length": 512,
}
_SMALL_BASE = {"weight_decay": 0.01, "clip": 1.0, "freeze_embeddings": True}
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "lora": Preset("headlab's own, as the embedded adapters were made", {}),
        "xtreme-xnli": Preset(
            "Hu et al. 2020 (XTREME), scripts/train_xnli.sh for XLM-R base; its run_classify.py: no warm-up, "
            "no weight decay, gradient norm 1",
            _XTREME,
            5,
        ),
        "xtreme-udpos": Preset(
            "Hu et al. 2020 (XTREME), scripts/train_udpos.sh for XLM-R base; its run_tag.py: no warm-up, "
            "no weight decay, gradient norm 1",
            _XTREME,
            10,
        ),
        "devries-udpos": Preset(
            "de Vries et al. 2022, the README of their repository wietsedv/xpos; the rest at the defaults of the "
            "transformers Trainer it uses: linear decay, no warm-up, no weight decay, gradient norm 1",
            {**_DE_VRIES, "steps": 1_000},
        ),
        "small": Preset(
            "headlab's own for words on the embedded base: about ten minutes of two free cores",
            {
                **_SMALL_BASE,
                "freeze_layers": 6,
                "steps": 400,
                "batch": 16,
                "learning_rate": 5e-4,
                "max_length": 128,
            },
        ),
        "small-xnli": Preset(
            "headlab's own for texts on the embedded base: about forty minutes of two free cores",
            {
                **_SMALL_BASE,
                "freeze_layers": 4,
                "steps": 2_750,
                "batch": 32,
                "learning_rate": 2e-4,
                "max_length": 64,
            },
        ),
    }
)


def default_preset(words: bool, method: str, embedded: bool) -> str:
    """Name of the default preset.

    The papers' for bases like XLM-R, our own for the embedded one and for LoRA.
    """
    if method == "lora":
        return "lora"
    if embedded:
        return "small" if words else "small-xnli"
    if words:
        return "devries-udpos"
    return "xtreme-xnli"


def options_of(
    name: str,
    method: str,
    examples: int,
    epochs: float | None = None,
    *,
    targets: tuple[str, ...] | None = None,
    **values_given: OptionValue,
) -> FinetuneOptions:
    """Options from a preset, overridden by those given; None counts as not given.

    Raises HeadlabError for an unknown preset, an unusable option, or both steps and epochs.

    Args:
        epochs: Passes over the examples, instead of the preset's length.
        targets: The layers that a LoRA trains.
    """
    if name not in PRESETS:
        raise HeadlabError(
            f"unknown preset {name!r}; choose from {', '.join(PRESETS)}",
            code="training.preset_unknown",
        )
    preset = PRESETS[name]
    chosen_values = {key: value for key, value in values_given.items() if value is not None}
    if epochs is not None and "steps" in chosen_values:
        raise HeadlabError(
            "given both steps and epochs; give one of them", code="training.steps_and_epochs"
        )
    values: dict[str, OptionValue] = {"method": method, **preset.options, **chosen_values}
    passes = epochs if epochs is not None else None if "steps" in chosen_values else preset.epochs
    if passes is not None:
        if not 0 < passes < float("inf"):
            raise HeadlabError(
                f"epochs is {passes}; choose a number above 0", code="training.epochs_out_of_range"
            )
        batch = max(1, integer_in({"batch": FinetuneOptions().batch, **values}, "batch"))
        values["steps"] = max(1, round(passes * batches_per_epoch(examples, batch)))
    if method == "lora":  # presets freeze parts for full fine-tuning only
        values = {
            key: value
            for key, value in values.items()
            if key in chosen_values or not key.startswith("freeze")
        }
    return FinetuneOptions.of(values, **({} if targets is None else {"targets": targets}))


# Options of language-model training, and the progress it reports; the command line reads them
# without torch.

ALL_ATTENTION = "all-attention"
TRANSFORMER = "transformer"
BPE = "bpe"
WORD = "word"
# More entries than any text has words; the tokenizer's own limit is that of a machine word.
MAX_VOCABULARY = 10_000_000


@dataclass(frozen=True)
class Windows(StepOptions, Options):
    """How a text is cut into windows, and how an update uses them."""

    block: int = option(128, "tokens a window", kind=int, low=1)
    batch: int = option(16, "windows a step", kind=int, low=1)
    micro_batch: int | None = option(
        None, "windows computed together", kind=int, low=1, optional=True
    )
    weight_decay: float = option(
        0.01, "weight decay of AdamW, for matrices alone", kind=float, low=0, high=1
    )
    clip: float | None = option(
        1.0, "greatest norm of the gradient", kind=float, low=0, high=1e9, open=True, optional=True
    )
    seed: int = option(0, "seed of everything random", kind=int, low=0)


@dataclass(frozen=True)
class LmOptions(Windows):
    """Everything that a trained language model depends on, besides text and thread count.

    Attributes:
        kind: "all-attention", or "transformer" with a feed-forward part in each layer; `persistent`
            is the number of persistent vectors per head in the former and the feed-forward part's
            inner width in the latter, which gives both the same number of weights.
        learning_rate: The peak, reached after `warmup` (share of the steps), then falling linearly
            to 0.
    """

    kind: str = option(ALL_ATTENTION, "all-attention or transformer", (ALL_ATTENTION, TRANSFORMER))
    tokenizer: str = option(BPE, "bpe or word", (BPE, WORD))
    vocabulary: int = option(
        8000, "entries of the vocabulary at most", kind=int, low=3, high=MAX_VOCABULARY
    )
    layers: int = option(6, "layers", kind=int, low=1)
    heads: int = option(8, "heads a layer", kind=int, low=1)
    width: int = option(256, "width of the hidden states", kind=int, low=1)
    persistent: int = option(
        512,
        "persistent vectors a head; inner width of a transformer's feed-forward part",
        kind=int,
        low=1,
    )
    positions: str = option(RELATIVE, "relative or learned", POSITIONS)
    pre_norm: bool = option(True, "normalise before each part, not after it", kind=bool)
    dropout: float = option(
        0.1, "dropout: share of activations set to 0 in training", kind=float, low=0, high=0.9
    )
    steps: int = option(3000, "training steps", kind=int, low=1)
    learning_rate: float = option(
        1e-3, "highest learning rate", kind=float, low=0, high=1, open=True
    )
    warmup: float = option(
        0.1, "share of the steps in which the learning rate rises", kind=float, low=0, high=0.99
    )
    head_size: int | None = option(
        None, "width of a head; none: width / heads", kind=int, low=1, optional=True
    )

    def check(self) -> None:
        """Raise HeadlabError for an unusable value."""
        super().check()
        if self.head_size is None and self.width % self.heads:
            raise HeadlabError(
                f"width {self.width} is not a multiple of {self.heads} heads; change one of them",
                code="training.width_mismatch",
            )


class Gated(StepOptions):
    """What options with gates have in common.

    Attributes:
        model_rate: Of the model's weights, where they are trained too.
    """

    weight: float
    gate_rate: float
    model_rate: float
    history: int
    temperature: float
    low: float
    high: float

    @property
    def concrete(self) -> HardConcrete:
        """The gates' distribution."""
        return HardConcrete(self.temperature, self.low, self.high)

    @property
    def rising(self) -> int:
        """Steps over which λ rises from 0, in a line."""
        raise NotImplementedError

    def rate(self, step: int) -> float:
        """Learning rate of the model's weights at a step, counted from 0.

        That of the gates stays the same.
        """
        return self.model_rate * (self.steps - step) / self.steps

    def weight_at(self, step: int) -> float:
        """λ at a step, counted from 0."""
        if self.rising:
            return self.weight * min(1.0, (step + 1) / self.rising)
        return self.weight

    @property
    def times(self) -> tuple[int, ...]:
        """Steps after which the gates are recorded, 0 and the last among them."""
        count = min(self.history, self.steps)
        return tuple((2 * self.steps * i + count) // (2 * count) for i in range(count + 1))


@dataclass(frozen=True)
class LmGateOptions(Gated, Windows):
    """Everything that pruning a language model by gates depends on.

    Model, text and thread count are not in it.

    Shim et al. (2021): the loss is nats per token + weight · Σ P(gate ≠ 0) over all heads; the
    model is trained jointly.

    Attributes:
        warm_up: The weight rises linearly from 0 over `warmup_share` of the steps.
        open_start: P(gate ≠ 0) starts at `start`; otherwise a gate's parameter starts at 0, which
            makes its median half open.
        scale: Each layer's output is multiplied by heads / sum of gates.
        model_rate, tune_rate: Fall linearly to 0, the first while gates are learned, the second in
            the `tune_steps` after head removal; gate_rate is constant.
    """

    weight: float = option(
        0.01, "λ, penalty in nats for a gate that is open", kind=float, low=0, high=1e9
    )
    warm_up: bool = option(True, "raise λ from 0 to its value", kind=bool)
    open_start: bool = option(True, "begin with gates that are likely open", kind=bool)
    scale: bool = option(True, "multiply a layer's output by heads / sum of gates", kind=bool)
    warmup_share: float = option(
        0.5, "share of the steps that λ rises for", kind=float, low=0, high=1
    )
    start: float = option(
        0.95, "P(gate ≠ 0) at the beginning, with open_start", kind=float, low=0, high=1, open=True
    )
    steps: int = option(1000, "steps with gates", kind=int, low=1)
    gate_rate: float = option(
        0.05, "learning rate of the gates", kind=float, low=0, high=1, open=True
    )
    model_rate: float = option(
        3e-4,
        "learning rate of the model while the gates learn",
        kind=float,
        low=0,
        high=1,
        open=True,
    )
    tune_steps: int = option(
        500, "steps of fine-tuning after the heads are removed", kind=int, low=0
    )
    tune_rate: float = option(
        3e-4, "learning rate of the fine-tuning", kind=float, low=0, high=1, open=True
    )
    history: int = option(
        60, "number of times the gates are recorded, besides the start", kind=int, low=1
    )
    temperature: float = option(
        HardConcrete.temperature,
        "of the gates' distribution",
        kind=float,
        low=0,
        high=1e3,
        open=True,
    )
    low: float = option(
        HardConcrete.low, "lower end of that, stretched", kind=float, low=-1e3, high=0, open=True
    )
    high: float = option(
        HardConcrete.high, "upper end of that, stretched", kind=float, low=1, high=1e3, open=True
    )

    def check(self) -> None:
        """Raise HeadlabError for an unusable value."""
        super().check()
        self.concrete.check(self.start)

    @property
    def rising(self) -> int:
        """Steps over which λ rises from 0, in a line."""
        if self.warm_up:
            return round(self.steps * self.warmup_share)
        return 0

    @property
    def initial_log_alpha(self) -> float:
        """Initial value of the gates' parameter."""
        if self.open_start:
            return self.concrete.start(self.start)
        return 0.0

    def tuning(self) -> Tuning:
        """The options of the fine-tuning that follows."""
        shared_options = {
            name: getattr(self, name) for name in ("block", "batch", "micro_batch", "clip")
        }
        return Tuning(
            **shared_options,
            seed=self.seed + 1,
            steps=self.tune_steps,
            learning_rate=self.tune_rate,
        )


@dataclass(frozen=True)
class Tuning(Windows):
    """Fine-tuning of a smaller model; its learning rate falls linearly to 0."""

    steps: int = 0
    learning_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class LmStep(StepMade):
    """A finished step of one part of a language model's training; loss in nats per token.

    Attributes:
        open: Number of gates more likely open than closed, if any.
    """

    part: str = ""
    open: int | None = None

    @property
    def note(self) -> str:
        """The step in words: its part, loss, open gates, time left in that part."""
        gates = "" if self.open is None else f", {self.open} gates open"
        return f"{self.part}, loss {self.loss:.3f}{gates}, {clock_text(self.seconds_left)} left of this part"


# Options of training a translation model: sizes, length, learning rate.


@dataclass(frozen=True)
class TranslationOptions(StepOptions, Options):
    """Everything the weights depend on, besides sentences, mask and thread count.

    The defaults suit about ten thousand short sentences and two cores: about as small as the "tiny"
    Transformers that do best on so little data (Wu et al. 2021, "Good for Misconceived Reasons").
    """

    steps: int = option(5000, "updates", kind=int, low=1)
    batch: int = option(64, "sentences an update", kind=int, low=1)
    micro_batch: int | None = option(
        None, "sentences computed together", kind=int, low=1, optional=True
    )
    learning_rate: float = option(
        0.002, "highest learning rate", kind=float, low=0, high=1, open=True
    )
    warmup: int = option(
        600, "warm-up updates; the learning rate then decays as 1/√update", kind=int, low=1
    )
    weight_decay: float = option(0.0001, "weight decay of AdamW", kind=float, low=0)
    clip: float | None = option(
        1.0, "greatest norm of the gradient", kind=float, low=0, high=1e9, open=True, optional=True
    )
    smoothing: float = option(0.1, "label smoothing", kind=float, low=0, high=0.9)
    dropout: float = option(0.1, "share of activations", kind=float, low=0, high=0.9)
    vocabulary: int = option(4000, "pieces of words, at most", kind=int, low=8, high=256_000)
    max_length: int = option(
        100, "tokens of a sentence; what is longer is cut off", kind=int, low=3, high=512
    )
    width: int = option(128, "width of the hidden states", kind=int, low=2)
    feed_forward: int = option(256, "width of the feed-forward layers", kind=int, low=1)
    encoder_layers: int = option(4, "layers", kind=int, low=1, high=64)
    decoder_layers: int = option(
        4, "layers, each with decoder and cross heads", kind=int, low=1, high=64
    )
    encoder_heads: int = option(8, "heads of an encoder layer", kind=int, low=1)
    decoder_heads: int = option(
        8, "heads of a decoder layer, and as many cross heads", kind=int, low=1
    )
    seed: int = option(0, "seed of weights, batches and dropout", kind=int, low=0)

    def check(self) -> None:
        """Raise HeadlabError for an unusable value."""
        super().check()
        for name in ("encoder_heads", "decoder_heads"):
            heads = getattr(self, name)
            if self.width % heads or self.width % 2:
                raise HeadlabError(
                    f"width {self.width} is not an even multiple of {name} {heads}; choose one that is",
                    code="training.width_mismatch",
                )

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0.

        Vaswani et al. 2017, equation 3, scaled to its peak.
        """
        return self.learning_rate * min(
            (step + 1) / self.warmup, math.sqrt(self.warmup / (step + 1))
        )
