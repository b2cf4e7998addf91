"""Hyper-parameters by task, method and base, each with the place it was taken from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from headlab.errors import HeadlabError
from headlab.training.batches import batches_per_epoch
from headlab.training.options import FinetuneOptions


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
