"""What a fine-tuning is told: its options, named presets, and how examples make batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from headlab.errors import HeadlabError

# Batches of texts of like length, the same for a given seed at every step.

Indices = npt.NDArray[np.int64]
POOL = 16  # batches sorted by length together: little padding, and still a new mix in every epoch


def epoch(lengths: Sequence[int], batch: int, rng: np.random.Generator) -> list[Indices]:
    """Every example once, in batches of neighbours by length, in random order."""
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    pools = [order[at : at + batch * POOL] for at in range(0, len(order), batch * POOL)]
    line = [pool[np.argsort(sizes[pool], kind="stable")] for pool in pools]
    out = [pool[at : at + batch] for pool in line for at in range(0, len(pool), batch)]
    return [out[i] for i in rng.permutation(len(out))]


def step_batch(lengths: Sequence[int], batch: int, seed: int, step: int) -> Indices:
    """The examples of a step: a function of seed and step alone, so that a resumed run needs no history."""
    number, at = divmod(step, batches_per_epoch(len(lengths), batch))
    return epoch(lengths, batch, np.random.default_rng((seed, number)))[at]


def batches_per_epoch(examples: int, batch: int) -> int:
    """How many batches `epoch` makes."""
    pools, rest = divmod(examples, batch * POOL)
    return pools * POOL + -(-rest // batch)


# What a fine-tuning is told, and what it tells while it runs.

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


# Hyper-parameters by task, method and base, each with the place it was taken from.


@dataclass(frozen=True)
class Preset:
    """Named hyper-parameters: where they come from, and how long they train (either steps or epochs)."""

    source: str
    options: Mapping[str, Any]
    epochs: float | None = None


_XTREME = {"batch": 32, "learning_rate": 2e-5, "warmup": 0.0, "weight_decay": 0.0, "clip": 1.0, "max_length": 128}
_DE_VRIES = {"batch": 10, "learning_rate": 5e-5, "warmup": 0.0, "weight_decay": 0.0, "clip": 1.0, "max_length": 512}
_SMALL = {"weight_decay": 0.01, "clip": 1.0, "freeze_embeddings": True}
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
            {**_SMALL, "freeze_layers": 6, "steps": 400, "batch": 16, "learning_rate": 5e-4, "max_length": 128},
        ),
        "small-xnli": Preset(
            "headlab's own for texts on the embedded base: about forty minutes of two free cores",
            {**_SMALL, "freeze_layers": 4, "steps": 2_750, "batch": 32, "learning_rate": 2e-4, "max_length": 64},
        ),
    }
)


def usual(words: bool, method: str, embedded: bool) -> str:
    """Name of the preset that fits: the papers' for bases like XLM-R, our own for the embedded one and for LoRA."""
    if method == "lora":
        return "lora"
    if embedded:
        return "small" if words else "small-xnli"
    return "devries-udpos" if words else "xtreme-xnli"


def options_of(name: str, method: str, examples: int, epochs: float | None = None, **given: Any) -> FinetuneOptions:
    """Options from a preset, with what is given in place of its own; None is nothing given.

    epochs: passes over the examples, in place of the preset's length.  Raises HeadlabError for an unknown
    preset, an option that cannot be trained with, or both steps and epochs.
    """
    if name not in PRESETS:
        raise HeadlabError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}", code="training.preset_unknown")
    preset = PRESETS[name]
    chosen = {key: value for key, value in given.items() if value is not None}
    if epochs is not None and "steps" in chosen:
        raise HeadlabError("given both steps and epochs; give one of them", code="training.steps_and_epochs")
    values: dict[str, Any] = {"method": method, **preset.options, **chosen}
    long = epochs if epochs is not None else None if "steps" in chosen else preset.epochs
    if long is not None:
        if not 0 < long < float("inf"):
            raise HeadlabError(f"epochs is {long}; choose a number above 0", code="training.epochs_out_of_range")
        batch = max(1, values.get("batch", FinetuneOptions().batch))
        values["steps"] = max(1, round(long * batches_per_epoch(examples, batch)))
    if method == "lora":  # a preset's freezing is for all weights
        values = {key: value for key, value in values.items() if key in chosen or not key.startswith("freeze")}
    options = FinetuneOptions(**values)
    options.check()
    return options
