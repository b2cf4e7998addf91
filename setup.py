"""Writes into a wheel or a source archive which commit it was built from; see pyproject.toml."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
COMMIT_FILE = Path("headlab") / "commit.txt"


def write_commit(folder: str) -> None:
    """Write the commit into a tree that is being built, unless its source says it already."""
    if not (ROOT / ".git").exists():
        return  # a source archive, which holds the file
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return  # no git, or one that does not trust this folder: the commit is not known
    (Path(folder) / COMMIT_FILE).write_text(described.stdout, "utf-8")


class BuildWithCommit(build_py):
    """The build of a wheel."""

    def run(self) -> None:
        """Copy the modules, then write the commit beside them."""
        super().run()
        if not self.editable_mode:
            write_commit(self.build_lib)


class SourceWithCommit(sdist):
    """The build of a source archive."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files, then write the commit beside them."""
        super().make_release_tree(base_dir, files)
        write_commit(base_dir)


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SourceWithCommit})
