"""What an unfinished job leaves below the cache, and which other job would go on from it."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path

from headlab.files import unwritable
from headlab.worker.schemas import Job

RUN = re.compile(r"[0-9a-f]{64}")
ADAPTER = re.compile(r"adapters/[0-9a-f]{24}")
LIVE = ("queued", "running")
PUT_TOGETHER = {"experiment", "front"}  # kinds that are made of pieces which others need too
# Details that may differ between jobs that share a run: a curve needs the scores that a score job computes.
OWN = ("languages", "split", "size", "points", "weights")
CHECKPOINTS = ("checkpoint.npz", "checkpoint.safetensors")  # of a method, and of a training
TRAINED = "model"  # below a run: the model that was trained along with gates


def needed_by(other: Job, job: Job, language: str) -> bool:
    """Whether a waiting or running job may come to a run that another job began. Rather too often than not."""
    if other.state in LIVE and PUT_TOGETHER & {other.kind, job.kind}:  # one may need any piece of its model and task
        return all(other.params.get(name) == job.params.get(name) for name in ("model", "task"))
    theirs, ours = ({k: v for k, v in one.params.items() if k not in OWN} for one in (other, job))
    return other.state in LIVE and theirs == ours and language in other.params.get("languages", [language])


def clear(root: Path, folder: str) -> None:
    """Delete the checkpoint of an unfinished run; a finished result stays. Raises HeadlabError.

    folder: below the cache, as the job list has it; any other name is left alone.
    """
    try:
        if RUN.fullmatch(folder):
            _clear_run(root / folder)
        elif ADAPTER.fullmatch(folder):
            name = Path(folder).name
            for path in (root / folder).parent.glob(f".{name}-*.checkpoint.safetensors"):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(root / folder, error) from error


def _clear_run(folder: Path) -> None:
    for name in CHECKPOINTS:
        (folder / name).unlink(missing_ok=True)
    if (folder / "result.npz").exists():
        return
    for left in (folder / TRAINED, *folder.glob(f".{TRAINED}.*")):  # the latter: killed while it was written
        if left.is_dir():
            shutil.rmtree(left)
    for name in ("spec.json", "log.txt"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # gone already, or it holds something that is not ours to delete
        folder.rmdir()
