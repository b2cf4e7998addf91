"""The folder a fine-tuning leaves behind: adapter, labels and how it was made."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import save

from headlab.errors import HeadlabError
from headlab.files import unwritable, write_atomic, write_json
from headlab.models.adapter import CONFIG, LABELS, TRAINING, WEIGHTS
from headlab.training.options import FinetuneOptions
from headlab.training.state import State

LIBRARIES = ("torch", "transformers", "peft", "tokenizers", "numpy")
TAIL = 20  # steps whose mean loss is recorded as the final one


def training_record(
    options: FinetuneOptions, state: State, *, base: tuple[str, str], data: tuple[int, str], device: str
) -> dict[str, object]:
    """What made an adapter, ready for JSON. base: name, sha256.  data: number of examples, sha256."""
    return {
        "options": asdict(options),
        "base": {"name": base[0], "sha256": base[1]},
        "data": {"examples": data[0], "sha256": data[1]},
        "loss": {"first": state.losses[0], "last": float(np.mean(state.losses[-TAIL:]))},
        "seconds": round(state.seconds, 1),
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
    }


def write_adapter(
    out: Path, model: PeftModel, labels: Sequence[str], base_name: str, record: Mapping[str, object]
) -> None:
    """Write the folder beside its place, then put it there instead of an older one. Raises HeadlabError."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        build = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        build.chmod(0o755)
    except OSError as error:
        raise unwritable(out, error) from error
    try:
        weights = {
            name: t.detach().cpu().contiguous()
            for name, t in get_peft_model_state_dict(model, save_embedding_layers=False).items()
        }
        write_atomic(build / WEIGHTS, save(weights, metadata={"format": "pt"}))
        write_json(build / CONFIG, adapter_config(model, base_name))
        write_json(build / LABELS, {"labels": list(labels), "prefix": ""})
        write_json(build / TRAINING, dict(record))
        replace(build, out)
    finally:
        shutil.rmtree(build, ignore_errors=True)


def adapter_config(model: PeftModel, base_name: str) -> dict[str, object]:
    """The library's own description, sorted, with the base's name instead of a path on this machine."""
    found = model.peft_config["default"].to_dict()
    facts = {name: sorted(value) if isinstance(value, set | list) else value for name, value in found.items()}
    return dict(sorted((facts | {"base_model_name_or_path": base_name, "inference_mode": True}).items()))


def check_out(out: Path) -> None:
    """Raise HeadlabError unless this is a new name, an empty folder, or an adapter to replace."""
    if not out.name or out.resolve() == Path.cwd():
        raise HeadlabError(f"{out} is the folder you work in; give the adapter a folder of its own, like --out adapter")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out.is_dir() and all((out / name).is_file() for name in (CONFIG, LABELS))):
        raise HeadlabError(f"{out} exists and holds no adapter, so it is not replaced; name another folder with --out")


def replace(build: Path, out: Path) -> None:
    """Put a finished folder in the place of another."""
    try:
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
            out.replace(old)
            build.replace(out)
            shutil.rmtree(old)
        else:
            build.replace(out)
    except OSError as error:
        raise unwritable(out, error) from error
