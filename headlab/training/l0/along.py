"""A model that is trained jointly with its gates: a copy to train, and the folder that it becomes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.gates import Model, attach
from headlab.learned import LearnedGates
from headlab.models.alone import alone
from headlab.models.checkpoint import Checkpoint
from headlab.models.delta import fingerprint_delta, is_delta
from headlab.models.embedded import EMBEDDED
from headlab.models.fingerprint import fingerprint_folder
from headlab.store import GatesResult
from headlab.training.output import (
    LIBRARIES,
    MODEL_CONFIG,
    Made,
    changed_made,
    check_out,
    copy_folder,
    whole_made,
    write_folder,
)

FOLDER = "model"  # in the run's folder


def trainable_copy(model: Model, frozen_embeddings: bool) -> Model:
    """The model again with the same weights, which may be trained; embeddings stay where asked.

    Raises HeadlabError for half precision, whose steps would be lost in rounding.
    """
    given = model.module
    if given.dtype not in (torch.float32, torch.float64):
        name = str(given.dtype).removeprefix("torch.")
        raise HeadlabError(
            f"{model.name} was loaded in {name}; joint training needs float32, so load it in that dtype",
            code="training.not_float32",
        )
    # built, not copied: the given one's layers may have been wrapped, and a copy would call the given ones
    with alone(), torch.random.fork_rng(devices=[]):
        module = type(given)(type(given.config).from_dict(given.config.to_dict()))
    nn.Module.to(module, device=given.device, dtype=given.dtype)
    module.load_state_dict(given.state_dict())
    if getattr(given, "generation_config", None) is not None:  # of what writes texts; its configuration lacks it
        module.generation_config = deepcopy(given.generation_config)
    copy = attach(Checkpoint(model.name, "trained", "", module, model.tokenizer))
    if frozen_embeddings:
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                part.requires_grad_(False)
    return copy


def check_place(out: Path | None) -> Path:
    """Where a trained model goes. Raises HeadlabError if that is nowhere, or taken by what no training made."""
    if out is None:
        raise HeadlabError(
            "a model that is trained jointly needs a place: give a store, or a folder with out",
            code="training.place_missing",
        )
    check_out(out)
    return out


def write_model(model: Model, original: Model, out: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write the trained model as a folder that `headlab.load` reads. Returns what it is then known by."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}
    write_folder(out, _made(model, original), {**record, "base": original.identity(), "versions": versions})
    return {
        "name": f"{original.name} trained with gates",
        "revision": "folder",
        "fingerprint": _fingerprint(out),
        "folder": out.name,
    }


def _fingerprint(folder: Path) -> str:
    return fingerprint_delta(folder) if is_delta(folder) else fingerprint_folder(folder)


def found_again(done: GatesResult, out: Path | None) -> LearnedGates:
    """A finished run's gates, with the model that was trained jointly in `out`, if that is given.

    Where the model is not below the run's folder any more, a note says so.  Raises HeadlabError if it should be
    copied, and for a place that is taken.
    """
    gates, source = done.gates, done.trained_folder
    if not gates.trained or (out is None and source is not None):
        return gates
    again = f"to train it again, delete folder {done.key[:12]}… of the cache and run the same command"
    if out is None:
        lost = f"the model that was trained jointly is not in the cache, but was written elsewhere, or deleted; {again}"
        return replace(gates, notes=(*gates.notes, lost))
    if not _holds(out, str(gates.trained.get("fingerprint"))):
        if source is None:
            raise HeadlabError(
                f"these gates are in the cache, but not the model that was trained jointly; {again}",
                code="training.model_gone",
            )
        check_out(out)
        copy_folder(source, out)
    return replace(gates, trained={**gates.trained, "folder": out.name})


def _holds(out: Path, fingerprint: str) -> bool:
    return (out / MODEL_CONFIG).is_file() and _fingerprint(out) == fingerprint


def _made(model: Model, original: Model) -> Made:
    """The whole model; of an embedded one, whose base is everywhere, only what can have changed."""
    module: PreTrainedModel = model.module
    still = {name for name, p in module.named_parameters() if not p.requires_grad}
    if original.name in EMBEDDED and still:
        return changed_made(module, {n: t for n, t in module.state_dict().items() if n not in still})
    return whole_made(module, model.tokenizer)
