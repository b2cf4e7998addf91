"""A wheel of this checkout's files, built as `make wheel` does it, but not in the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE")
IDENTITY = ("-c", "user.name=tests", "-c", "user.email=tests@example.org")


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel, and the commit that it was built from.

    Attributes:
        path: Of the wheel.
        source: Of the source archive; None if it was not built.
        commit: As `headlab --version` says it.
    """

    path: Path
    source: Path | None
    commit: str

    def unpack(self, folder: Path) -> Path:
        """Unpack the wheel as if it were installed in a folder, which is returned."""
        with zipfile.ZipFile(self.path) as archive:
            archive.extractall(folder)
        return folder


def build_wheel(folder: Path, *, with_source: bool = False) -> BuiltWheel:
    """Build a wheel of a copy of the checkout in a folder.

    Args:
        folder: An empty folder.
        with_source: Whether the source archive is built too, and the wheel from it.
    """
    checkout = folder / "checkout"
    ignored = shutil.ignore_patterns("__pycache__", "commit.txt")
    shutil.copytree(ROOT / "headlab", checkout / "headlab", ignore=ignored)
    for name in PROJECT_FILES:
        shutil.copy(ROOT / name, checkout / name)
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "as it is")):
        subprocess.run(["git", *IDENTITY, *arguments], cwd=checkout, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    what = [] if with_source else ["--wheel"]
    command = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(folder)]
    built = subprocess.run([*command, str(checkout)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (wheel,) = folder.glob("*.whl")
    return BuiltWheel(wheel, next(folder.glob("*.tar.gz"), None), commit)


def environment_of(unpacked: Path, cache: Path) -> dict[str, str]:
    """The environment of a process that finds headlab in a folder, with the demo's results.

    Args:
        unpacked: The folder.
        cache: Of one's own results.
    """
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "HEADLAB_CACHE": str(cache)}
    for name in ("HEADLAB_DEMO", "HEADLAB_WORKER"):
        environment.pop(name, None)
    return environment
