"""Removing finished scores: whole or not at all, and none that another process uses."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.expected_errors import raises
from support.network_disk import without_flock
from support.versioned_scores import keep_scores, keys_in, versioned_scores

from headlab.results import HeadScores, Result, Store, bytes_in, reason_to_stay

LEFTOVER = f".{'a' * 64}.0123abcd.removed"


def kept_result(root: Path) -> Result[HeadScores]:
    """The only result of a new cache."""
    keep_scores(root, versioned_scores(2))
    (result,) = Store(root).scan().results
    return result


def test_bytes_are_those_of_all_files_and_links_lead_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "one").write_bytes(bytes(100))
    (folder / "inner" / ".two").write_bytes(bytes(11))
    (tmp_path / "large").write_bytes(bytes(10**5))
    (folder / "link").symlink_to(tmp_path / "large")
    (folder / "link-to-folder").symlink_to(tmp_path)
    link_bytes = (folder / "link").lstat().st_size
    assert bytes_in(folder) == 111 + link_bytes
    assert bytes_in(tmp_path / "missing") == 0


def test_a_removed_result_is_gone_with_its_folder(tmp_path: Path) -> None:
    result = kept_result(tmp_path)
    (result.folder / "log.txt").write_text("a line\n")
    other_key = keep_scores(tmp_path, versioned_scores(3))
    assert Store(tmp_path).remove(result) == ""
    assert [path.name for path in tmp_path.iterdir()] == [other_key]


def test_a_result_that_is_gone_already_is_no_error(tmp_path: Path) -> None:
    result = kept_result(tmp_path)
    assert Store(tmp_path).remove(result) == ""
    assert Store(tmp_path).remove(result) == ""


@pytest.mark.parametrize(
    "name", ["checkpoint.npz", "checkpoint.safetensors", "notes.txt", "model", ".nfs0001"]
)
def test_a_folder_that_holds_more_than_finished_scores_stays(tmp_path: Path, name: str) -> None:
    result = kept_result(tmp_path)
    if name == "model":
        (result.folder / name).mkdir()
    else:
        (result.folder / name).write_text("")
    assert name in reason_to_stay(result.folder)
    assert name in Store(tmp_path).remove(result)
    assert keys_in(tmp_path) == {result.key}


@pytest.mark.parametrize("name", ["spec.json", ".result.npz.1.0123abcd.tmp", ""])
def test_a_folder_or_file_that_another_process_has_locked_stays(tmp_path: Path, name: str) -> None:
    result = kept_result(tmp_path)
    path = result.folder / name
    if name.endswith(".tmp"):
        path.write_bytes(b"half")
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert "another process" in Store(tmp_path).remove(result)
        assert keys_in(tmp_path) == {result.key}
        assert Store(tmp_path).scan().problems == ()
    finally:
        os.close(descriptor)
    assert Store(tmp_path).remove(result) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_folder_elsewhere_stays(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    result = kept_result(tmp_path / "elsewhere")
    (cache / result.key).symlink_to(result.folder)
    (linked_result,) = Store(cache).scan().results
    assert "link" in Store(cache).remove(linked_result)
    assert keys_in(cache) == keys_in(tmp_path / "elsewhere") == {result.key}


def test_a_file_that_is_a_link_keeps_its_folder(tmp_path: Path) -> None:
    result = kept_result(tmp_path)
    (result.folder / "log.txt").symlink_to(tmp_path / "log")
    assert "log.txt" in Store(tmp_path).remove(result)


def test_without_flock_what_is_being_written_stays_and_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = kept_result(tmp_path)
    temporary = result.folder / ".result.npz.1.0123abcd.tmp"
    temporary.write_bytes(b"half")
    without_flock(monkeypatch)
    assert temporary.name in Store(tmp_path).remove(result)
    temporary.unlink()
    assert Store(tmp_path).remove(result) == ""
    assert list(tmp_path.iterdir()) == []


def refuse(*_: Any, **__: Any) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("refused", [(Path, "rename"), (shutil, "rmtree"), (os, "open")])
def test_a_cache_that_cannot_be_written_keeps_the_whole_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[Any, str]
) -> None:
    result = kept_result(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(*refused, refuse)
        with raises("run.unremovable", result.key, "Permission denied", tmp_path):
            Store(tmp_path).remove(result)
    assert [path.name for path in tmp_path.iterdir()] == [result.key]
    assert [kept.key for kept in Store(tmp_path).scan().results] == [result.key]


def test_a_folder_that_cannot_be_looked_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = kept_result(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refuse)
        assert "Permission denied" in reason_to_stay(result.folder)


def test_a_sweep_deletes_what_killed_removals_left_and_nothing_else(tmp_path: Path) -> None:
    result = kept_result(tmp_path)
    (tmp_path / LEFTOVER).mkdir()
    (tmp_path / LEFTOVER / "spec.json").write_text("{}")
    (tmp_path / ".places").mkdir()
    (tmp_path / ".mine.removed").mkdir()
    Store(tmp_path).sweep()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {result.key, ".places", ".mine.removed"}
    Store(tmp_path / "missing").sweep()


def test_a_sweep_leaves_what_another_process_is_deleting(tmp_path: Path) -> None:
    leftover = tmp_path / LEFTOVER
    leftover.mkdir()
    descriptor = os.open(leftover, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    Store(tmp_path).sweep()
    assert leftover.is_dir()
    os.close(descriptor)
    Store(tmp_path).sweep()
    assert not leftover.exists()


# SIGKILL in the middle of a removal.

KILLED = """
import os, signal, sys
from headlab.results import Store

event, ending, root = sys.argv[1:]

def kill(name, arguments):
    if name == event and any(str(argument).endswith(ending) for argument in arguments[:2]):
        os.kill(os.getpid(), signal.SIGKILL)

store = Store(root)
result = next(result for result in store.scan().results if result.record.spec.seed == 0)
sys.addaudithook(kill)
store.remove(result)
"""


@pytest.mark.parametrize(
    ("event", "ending", "is_gone"),
    [
        ("os.rename", ".removed", False),
        ("shutil.rmtree", ".removed", True),
        ("os.remove", "spec.json", True),
        ("os.remove", "result.npz", True),
        ("os.rmdir", ".removed", True),
    ],
)
def test_a_killed_removal_leaves_all_or_none_and_the_next_one_cleans_up(
    tmp_path: Path, event: str, ending: str, is_gone: bool
) -> None:
    key = keep_scores(tmp_path, versioned_scores(2))
    other_key = keep_scores(tmp_path, versioned_scores(2, seed=1))
    arguments = [sys.executable, "-c", KILLED, event, ending, str(tmp_path)]
    process = subprocess.run(arguments, cwd=Path(__file__).parents[2], check=False)
    assert process.returncode == -signal.SIGKILL
    listing = Store(tmp_path).scan()
    assert listing.problems == ()
    listed_keys = {result.key for result in listing.results}
    assert listed_keys == ({other_key} if is_gone else {other_key, key})
    leftovers = list(tmp_path.glob(".*.removed"))
    assert len(leftovers) == is_gone
    Store(tmp_path).sweep()
    assert list(tmp_path.glob(".*")) == []
    assert {result.key for result in Store(tmp_path).scan().results} == keys_in(tmp_path)
