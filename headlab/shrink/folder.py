"""The folder of a shrunk model: written beside its place, read back, proved, and only then put there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.files import unwritable, write_atomic, write_json
from headlab.gates import Model
from headlab.models.alone import alone
from headlab.models.checkpoint import Checkpoint
from headlab.models.load import pick_device, read_folder
from headlab.models.versions import versions
from headlab.shrink.card import Speed, card, short_name
from headlab.shrink.model import Shrunk
from headlab.shrink.proof import Inputs, Proof, prove
from headlab.training.output import replace

PROOF, MASK, CARD, CONFIG = "proof.json", "mask.json", "README.md", "config.json"
PROOF_VERSION = 1


@dataclass(frozen=True)
class Written:
    """A folder that was written: where, what the proof saw, the model's fingerprint; onnx: the same of model.onnx."""

    folder: Path
    proof: Proof
    fingerprint: str
    onnx: dict[str, Any] | None = None


def write_shrunk(
    model: Model, shrunk: Shrunk, out: Path, inputs: Inputs, *, of: Mapping[str, Any], speed: Speed | None = None,
    onnx: bool = False,
) -> Written:  # fmt: skip
    """Write model, tokenizer, mask, model card and proof; the folder is there whole or not at all.

    inputs: batches of real examples.  of: what they are (task, languages, ...), for the record.  speed: what was
    measured, for the card.  onnx: also model.onnx, compared with the masked model on the same inputs.  The model is
    read back from the new folder and compared with the masked one before the folder gets its name.  Raises
    HeadlabError where they differ by more than rounding, or `out` holds something else.
    """
    check_out(out)
    build = _beside(out)
    try:
        _save(shrunk, model, build)
        again = read_folder(build, "folder", out.name)
        proof = _proved(model, shrunk, again, inputs, out)
        record = _record(model, shrunk, proof, again, of)
        if onnx:
            from headlab.shrink.onnx import write_onnx

            record["onnx"] = write_onnx(again.module, build, model, shrunk.mask, inputs).record()
        write_json(build / PROOF, record)
        shrunk.mask.save(build / MASK)
        write_atomic(build / CARD, card(model, shrunk, record, speed).encode())
        _synced(build)
        replace(build, out)
    except (OSError, SafetensorError) as error:
        raise unwritable(out, error if isinstance(error, OSError) else OSError(0, str(error))) from error
    finally:
        shutil.rmtree(build, ignore_errors=True)
    return Written(out, proof, again.fingerprint, record.get("onnx"))


def load_shrunk(folder: str | Path, device: str | None = None) -> PreTrainedModel:
    """The model of a folder that `headlab shrink` wrote, in evaluation mode, its weights trainable.

    device: as in `headlab.load`.  Raises HeadlabError if the folder holds no such model, or not all of it.
    """
    place, path = pick_device(device), Path(folder)
    if not (path / PROOF).is_file():
        raise HeadlabError(
            f"{folder} is no folder that headlab shrink wrote (it has no {PROOF}); headlab.load reads other models"
        )
    module = read_folder(path, "folder", str(folder)).module
    torch.nn.Module.to(module, device=place)
    module.eval()
    return module


def check_out(out: Path) -> None:
    """Raise HeadlabError unless this is a new name, an empty folder, or a shrunk model to replace."""
    if not out.name or out.resolve() == Path.cwd():
        raise HeadlabError(f"{out} is the folder you work in; give the model a folder of its own, like --out smaller")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out.is_dir() and all((out / name).is_file() for name in (CONFIG, PROOF, MASK))):
        raise HeadlabError(
            f"{out} exists and holds nothing that shrink made, so it is not replaced; name another folder with --out"
        )


def _beside(out: Path) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        build = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        build.chmod(0o755)
    except OSError as error:
        raise unwritable(out, error) from error
    return build


def _save(shrunk: Shrunk, model: Model, build: Path) -> None:
    with alone():
        shrunk.module.save_pretrained(build)
        model.tokenizer.save_pretrained(str(build))


def _proved(model: Model, shrunk: Shrunk, again: Checkpoint, inputs: Inputs, out: Path) -> Proof:
    torch.nn.Module.to(again.module, device=model.device, dtype=model.module.dtype)
    proof = prove(model, shrunk.mask, again.module.eval(), inputs)
    proof.check(f"the model for {out}")
    return proof


def _record(
    model: Model, shrunk: Shrunk, proof: Proof, again: Checkpoint, of: Mapping[str, Any]
) -> dict[str, Any]:  # fmt: skip
    """proof.json, but for the ONNX file's part."""
    return {
        "format": "headlab-proof", "version": PROOF_VERSION, **proof.record(),
        "compared_on": dict(of), "dtype": model.dtype, "device": model.device.type,
        "parameters_before": shrunk.parameters_before, "parameters_after": shrunk.parameters_after,
        "heads_before": model.grid.size, "heads_removed": shrunk.gone,
        "heads_masked": [list(head) for head in shrunk.masked],
        "model": model.identity() | {"name": short_name(model)}, "mask": shrunk.mask.digest,
        "fingerprint": again.fingerprint, "versions": versions(),
    }  # fmt: skip


def _synced(folder: Path) -> None:
    """Have every file on the disk before the folder gets its name."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
