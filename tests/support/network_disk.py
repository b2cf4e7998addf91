"""A file system without flock, as NFS or Lustre may be, in this process or in its children."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

# Python runs this before anything else. Like NFS, the disk cannot swap two names either, which
# filelock tries on processors that it knows.
SITE_CUSTOMISATION = """
import errno, fcntl, os, platform

def flock(*arguments):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

fcntl.flock = flock
if os.environ.get("SWAPS_NAMES") == "no":
    platform.machine = lambda: "unknown"
"""


def without_flock(monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOLCK) -> None:
    """Let flock fail in this process."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


def on_python_path(folder: Path) -> str:
    """A value of PYTHONPATH that takes flock away from a process."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SITE_CUSTOMISATION)
    return f"{folder}{os.pathsep}{Path(__file__).parents[2]}"
