"""Which headlab this is: its version and the commit that it was built from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from headlab import __version__

PACKAGE = Path(__file__).parents[1]
COMMIT_FILE = PACKAGE / "commit.txt"
"""Written when a wheel or a source archive is built (setup.py); a checkout has none."""
UNKNOWN_COMMIT = "unknown"
GIT_SECONDS = 10.0


def commit() -> str:
    """The commit that headlab was built from, with a + if files differed from it.

    In a checkout it is asked of git. Without git, and without the file that a build writes, it is
    `UNKNOWN_COMMIT`.
    """
    if COMMIT_FILE.is_file():
        return COMMIT_FILE.read_text("utf-8").strip() or UNKNOWN_COMMIT
    return commit_of_checkout(PACKAGE.parent)


def commit_of_checkout(folder: Path) -> str:
    """The commit of a checkout, with a + if files differ from it; `UNKNOWN_COMMIT` for none.

    Args:
        folder: The folder that holds `.git`: another one above it, as where headlab is installed
            below somebody else's project, is none of headlab's.
    """
    if not (folder / ".git").exists():
        return UNKNOWN_COMMIT
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        described = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN_COMMIT
    return described.stdout.strip() or UNKNOWN_COMMIT


def version_line() -> str:
    """What `headlab --version` prints."""
    return f"headlab {__version__} (commit {commit()})"
