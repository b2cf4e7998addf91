"""The folder a fine-tuning leaves behind: weights, labels and how they were made."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import save
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.evaluator import accuracy_interval
from headlab.files import write_atomic, write_json
from headlab.models.adapter import CONFIG, LABELS, TRAINING, WEIGHTS, WORDS
from headlab.models.delta import DELTA
from headlab.records import Evaluation
from headlab.training.base import Base
from headlab.training.options import FinetuneOptions
from headlab.training.place import built
from headlab.training.replaced import Writer, check_replaced, files_of
from headlab.training.state import State

LIBRARIES = ("torch", "transformers", "peft", "tokenizers", "numpy")
TAIL = 20  # steps whose mean loss is recorded as the final one
WHOLE, MODEL_CONFIG, GENERATION = "model.safetensors", "config.json", "generation_config.json"
DIGITS = 6  # of accuracies' intervals: finer than any resampling tells
TRAINER = Writer(
    "a training", ((CONFIG, LABELS, TRAINING), (MODEL_CONFIG, TRAINING)), TRAINING,
    "give the result a folder of its own, like --out adapter",
)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What a training made, ready to be written: tensors, their file, JSON files, a tokenizer where one belongs."""

    weights: Mapping[str, torch.Tensor]
    file: str
    texts: Mapping[str, Mapping[str, Any]]
    tokenizer: PreTrainedTokenizerBase | None = None


def adapter_made(model: PeftModel, labels: Sequence[str], words: bool, base_name: str) -> Made:
    """An adapter: what is laid on the base, and its own head."""
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    named = {"labels": list(labels), "prefix": ""} | ({"answers": WORDS} if words else {})
    return Made(copied(weights), WEIGHTS, {CONFIG: adapter_config(model, base_name), LABELS: named})


def changed_made(module: PreTrainedModel, trained: Mapping[str, torch.Tensor]) -> Made:
    """The changed weights of the embedded base."""
    return Made(copied(trained), DELTA, {MODEL_CONFIG: model_config(module)})


def whole_made(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Made:
    """A whole model, as transformers writes and reads it."""
    texts = {MODEL_CONFIG: model_config(module)}
    settings = getattr(module, "generation_config", None)  # of what writes texts
    if settings is not None:
        texts[GENERATION] = json.loads(settings.to_json_string(use_diff=True))
    return Made(copied(once(module)), WHOLE, texts, tokenizer)


def once(module: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights, those that stand in several places under the name that transformers ties the others to."""
    weights: dict[str, torch.Tensor] = module.state_dict()
    tied: Mapping[str, str] = module.all_tied_weights_keys
    return {name: t for name, t in weights.items() if not _same(t, weights.get(tied.get(name, "")))}


def _same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and one.data_ptr() == other.data_ptr() and one.shape == other.shape


def copied(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of their own in main memory, which nothing that is done with the model changes."""
    return {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in weights.items()}


def model_config(module: PreTrainedModel) -> dict[str, Any]:
    """The model's configuration with its class, without a path on this machine."""
    config: Any = module.config
    facts: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    return dict(sorted((facts | {"architectures": [type(module).__name__]}).items()))


def adapter_config(model: PeftModel, base_name: str) -> dict[str, object]:
    """The library's own description, sorted, with the base's name instead of a path on this machine."""
    found = model.peft_config["default"].to_dict()
    facts = {name: sorted(value) if isinstance(value, set | list) else value for name, value in found.items()}
    return dict(sorted((facts | {"base_model_name_or_path": base_name, "inference_mode": True}).items()))


def training_record(
    options: FinetuneOptions, state: State, *, base: Base, data: tuple[int, str], device: str
) -> dict[str, object]:
    """What made a model, ready for JSON. data: number of examples, sha256."""
    limit = {"rows_that_fitted": state.rows} if state.rows else {}
    return {
        "options": dict(options.record()),
        "base": {"name": base.name, "sha256": base.sha256},
        "data": {"examples": data[0], "sha256": data[1]},
        "loss": {"first": state.losses[0], "last": float(np.mean(state.losses[-TAIL:]))},
        "seconds": round(state.seconds, 1),
        "device": device,
        "threads": torch.get_num_threads(),
        **limit,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
    }


def measured_record(measured: Mapping[str, Evaluation]) -> dict[str, object]:
    """Accuracy by language, with its 95 % interval by group, and over how many answers."""
    if not measured:
        return {"accuracy": {}}
    return {
        "accuracy": {language: found.accuracy for language, found in measured.items()},
        "interval": {
            language: [round(end, DIGITS) for end in accuracy_interval(found)] for language, found in measured.items()
        },
        "answers": {language: found.n for language, found in measured.items()},
    }


def write_folder(out: Path, made: Made, record: Mapping[str, object]) -> None:
    """Write the folder beside its place, then put it there instead of an older one. Raises HeadlabError."""
    with built(out) as build:
        if made.tokenizer is not None:
            made.tokenizer.save_pretrained(str(build))
        write_atomic(build / made.file, save(dict(made.weights), metadata={"format": "pt"}))
        for name, value in made.texts.items():
            write_json(build / name, dict(value))
        write_json(build / TRAINING, {**record, "files": files_of(build, TRAINING)})


def copy_folder(source: Path, out: Path) -> None:
    """Copy a finished folder, as `write_folder` writes one. Raises HeadlabError."""
    with built(out) as build:
        shutil.copytree(source, build, dirs_exist_ok=True)


def check_out(out: Path) -> None:
    """Raise HeadlabError unless this is a new name, an empty folder, or the result of a training to replace."""
    check_replaced(out, TRAINER)
