"""The place of a shrunk model: what may stand there before, and how its files are left."""

from __future__ import annotations

import os
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.training.place import require_folder, resolved
from headlab.training.replaced import Writer, check_replaced

PROOF, MASK, CARD, CONFIG = "proof.json", "mask.json", "README.md", "config.json"
SHRINK = Writer("shrink", ((CONFIG, PROOF, MASK),), PROOF, "give the model a folder of its own, like --out smaller")


def check_out(out: Path, model: str | None = None) -> None:
    """Raise HeadlabError unless this is a new name, an empty folder, or a shrunk model as it was written.

    model: name or folder of the model that is read, which its own smaller one does not replace.
    """
    require_folder(out, SHRINK.do)
    place = resolved(out)
    if model is not None and Path(model).is_dir() and Path(model).resolve() == place:
        raise HeadlabError(
            f"{out} is the model that is shrunk, and would be lost; name another folder with --out",
            code="output.is_model",
        )
    check_replaced(out, SHRINK)


def finish(folder: Path) -> None:
    """Let whoever may read one of its files read all, and have every one on the disk."""
    mode = (folder / PROOF).stat().st_mode  # as new files are made here; safetensors gives its own to the owner only
    for path in folder.rglob("*"):
        if not path.is_dir():
            path.chmod(mode)
            with path.open("rb") as file:
                os.fsync(file.fileno())
