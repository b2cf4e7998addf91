"""One worker a GPU: a lock that the kernel frees, beside whatever cache a worker uses."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO

import torch

from headlab.errors import HeadlabError
from headlab.files import unwritable


def hold_device(device: torch.device, folder: Path | None = None) -> IO[bytes] | None:
    """Lock a GPU for as long as the file that this gives stays open; None for a processor, which is shared.

    folder: of the lock files; the system's temporary one if None.  Raises HeadlabError if another worker of
    this user holds the GPU: two models would not fit where one was measured to.
    """
    return None if device.type != "cuda" else hold(_name(device), str(device), folder)


def hold(name: str, device: str, folder: Path | None = None) -> IO[bytes]:
    """The lock of a device by its own name, whatever it is called here."""
    path = (folder or Path(tempfile.gettempdir())) / f"headlab-{os.getuid()}-{name}.lock"
    try:
        file = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+b")
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = file.read(20).decode("ascii", "replace").strip()
        file.close()
        raise HeadlabError(
            f"another headlab worker (process {holder or 'unknown'}) holds {device}; stop it, use it with "
            "HEADLAB_WORKER, or give this one another device with --device",
            code="device.in_use",
        ) from error
    file.truncate()
    file.write(str(os.getpid()).encode())
    file.flush()
    return file


def _name(device: torch.device) -> str:
    """A GPU's own name: its number depends on what a process may see."""
    return str(torch.cuda.get_device_properties(device).uuid)
