"""A wheel of this checkout's files, built as `make wheel` does it, and the app that it serves.

Nothing is built or written in the checkout.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.waiting import wait_until

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


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served_app(
    program: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[str]:
    """The address of `headlab app`, which serves until the block ends.

    Args:
        program: The words before `app`.
        folder: In which it runs; its log is written there.
        environment: Of its process.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    log_path = folder / "app.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*program, "app", "--port", str(port)],
            cwd=folder,
            env=dict(environment),
            stdout=log,
            stderr=log,
        )

        def answers() -> bool:
            assert process.poll() is None, log_path.read_text()[-2000:]
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=10) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        try:
            wait_until(answers, "an answer of the app")
            yield address
        finally:
            process.terminate()
            process.wait()
