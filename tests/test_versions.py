"""The commit is asked of git in a checkout, read from a build, and else unknown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headlab.core import versions
from headlab.core.versions import UNKNOWN_COMMIT, commit, commit_of_checkout

IDENTITY = ("-c", "user.name=tests", "-c", "user.email=tests@example.org")


def repository(folder: Path) -> Path:
    (folder / "file").write_text("one")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "one")):
        subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True)
    return folder


def test_the_commit_of_a_checkout_has_a_plus_if_files_differ(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    clean = commit_of_checkout(folder)
    assert len(clean) == 12
    (folder / "file").write_text("two")
    assert commit_of_checkout(folder) == f"{clean}+"


def test_a_repository_further_up_is_somebody_else_s(tmp_path: Path) -> None:
    folder = repository(tmp_path) / "environment"
    folder.mkdir()
    assert commit_of_checkout(folder) == UNKNOWN_COMMIT


def test_without_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of_checkout(folder) == UNKNOWN_COMMIT


def test_what_a_build_wrote_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "commit.txt"
    file.write_text("0123456789ab\n")
    monkeypatch.setattr(versions, "COMMIT_FILE", file)
    assert commit() == "0123456789ab"
