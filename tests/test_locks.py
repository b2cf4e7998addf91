"""Locks of files, on file systems with flock and without, and of processes that were killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import MarkerSoftFileLock
from support.network_disk import on_python_path, without_flock

from headlab.core import STALE_SECONDS, Flock, flock, holder_of, lock_file, marker_of, write_atomic
from headlab.models.files import replacing_folder

HOLDER = """
import sys
from pathlib import Path
from headlab.core.locks import lock_file

lock = lock_file(Path(sys.argv[1]))
print("refused" if lock is None else "held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def network_disk(tmp_path: Path) -> str:
    """A value of PYTHONPATH that takes flock away from a process."""
    return on_python_path(tmp_path / "network_disk")


@contextmanager
def process_on(
    network_disk: str, path: Path, swaps_names: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that tries to hold a lock, and its answer: held or refused."""
    environment = {**os.environ, "PYTHONPATH": network_disk, "SWAPS_NAMES": swaps_names}
    command = [sys.executable, "-c", HOLDER, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_lock_of_the_kernel_needs_no_marker(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    lock = lock_file(path)
    assert lock is not None
    assert lock.notice == ""
    assert lock_file(path) is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.lock"]
    lock.close()
    next_lock = lock_file(path)
    assert next_lock is not None
    next_lock.close()


def test_a_lock_of_the_kernel_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    root = str(Path(__file__).parents[1])
    with process_on(root, path, "yes") as (holder, answer):
        assert answer == "held"
        assert lock_file(path) is None
        holder.kill()
        holder.wait()
        lock = lock_file(path)
        assert lock is not None
        lock.close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL])
def test_reported_17_without_flock_a_marker_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    without_flock(monkeypatch, number)
    path = tmp_path / "x.lock"
    lock = lock_file(path)
    assert lock is not None
    assert str(marker_of(path)) in lock.notice
    assert f"process {os.getpid()}" in holder_of(path)
    assert lock_file(path) is None
    lock.close()
    assert not marker_of(path).exists()
    assert holder_of(path) == ""


def test_reported_17_a_lock_that_fails_otherwise_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_flock(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        lock_file(tmp_path / "x.lock")


def test_reported_17_a_marker_is_heeded_where_flock_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.lock"
    with monkeypatch.context() as patch:
        without_flock(patch)
        marker_lock = lock_file(path)
    assert marker_lock is not None
    assert lock_file(path) is None
    marker_lock.close()
    lock = lock_file(path)
    assert lock is not None
    lock.close()


@pytest.mark.parametrize("swaps_names", ["yes", "no"])
def test_reported_17_the_lock_of_a_killed_process_is_taken_over(
    tmp_path: Path, network_disk: str, swaps_names: str
) -> None:
    path = tmp_path / "x.lock"
    with process_on(network_disk, path, swaps_names) as (holder, first_answer):
        assert first_answer == "held"
        with process_on(network_disk, path, swaps_names) as (_, answer):
            assert answer == "refused"
        holder.kill()
        holder.wait()
        assert marker_of(path).exists()
        with process_on(network_disk, path, swaps_names) as (heir, answer):
            assert answer == "held"
            assert f"process {heir.pid} " in holder_of(path)
            with process_on(network_disk, path, swaps_names) as (_, later_answer):
                assert later_answer == "refused"


def test_reported_17_an_abandoned_takeover_is_taken_over_too(
    tmp_path: Path, network_disk: str
) -> None:
    path = tmp_path / "x.lock"
    with process_on(network_disk, path, "no") as (holder, _):
        holder.kill()
        holder.wait()
    takeover = marker_of(path).with_name(f"{marker_of(path).name}.takeover")
    takeover.write_bytes(marker_of(path).read_bytes())
    with process_on(network_disk, path, "no") as (_, answer):
        assert answer == "held"
        assert not takeover.exists()


def marker_content(folder: Path, **changes: object) -> bytes:
    """What filelock writes of this process, with some fields changed."""
    with MarkerSoftFileLock(folder / "record") as marker:
        owner = marker.owner
    assert owner is not None
    fields = {
        "pid": owner.pid,
        "host": owner.hostname,
        "mode": "exclusive",
        "start": owner.start,
    } | changes
    lines = [f"{name}={value}\n" for name, value in fields.items()]
    return "".join(["filelock/2\n", *lines]).encode()


def test_reported_17_the_lock_of_another_computer_stays_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_flock(monkeypatch)
    path = tmp_path / "x.lock"
    marker_of(path).write_bytes(marker_content(tmp_path, host="node7", pid=4_000_000))
    assert lock_file(path) is None
    advice = holder_of(path)
    assert "node7" in advice
    assert "delete" in advice
    marker_of(path).unlink()
    lock = lock_file(path)
    assert lock is not None
    lock.close()


@pytest.mark.parametrize("changes", [{"start": 1}, {"start": (1 << 64) + 1}])
def test_reported_17_a_process_id_that_was_given_out_again_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int]
) -> None:
    without_flock(monkeypatch)
    monkeypatch.setattr("platform.machine", lambda: "unknown")
    path = tmp_path / "x.lock"
    marker_of(path).write_bytes(marker_content(tmp_path, **changes))
    lock = lock_file(path)
    assert lock is not None
    lock.close()


def test_reported_17_of_many_who_take_over_at_once_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_flock(monkeypatch)
    for attempt in range(10):
        path = tmp_path / f"{attempt}.lock"
        marker_of(path).write_bytes(marker_content(tmp_path, pid=2**31 - 1))
        with ThreadPoolExecutor(8) as threads:
            attempts = list(threads.map(lock_file, [path] * 8))
        locks = [lock for lock in attempts if lock is not None]
        assert len(locks) <= 1
        lock = locks[0] if locks else lock_file(path)
        assert lock is not None
        lock.close()


def test_reported_17_without_flock_old_leftovers_are_swept_and_new_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_flock(monkeypatch)
    old_file, new_file = (tmp_path / f".x.npz.{pid}.0a1b2c3d.tmp" for pid in (1, 2))
    old_build, new_build = (tmp_path / f".model.{name}.new" for name in ("aaaaaaaa", "bbbbbbbb"))
    for file in (old_file, new_file):
        file.write_bytes(b"half")
    for build in (old_build, new_build):
        build.mkdir()
    for path in (old_file, old_build):
        change_time = path.stat().st_mtime - 2 * STALE_SECONDS
        os.utime(path, (change_time, change_time))
    write_atomic(tmp_path / "y.npz", b"whole")
    with replacing_folder(tmp_path / "model") as folder:
        (folder / "config.json").write_text("{}")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {new_file.name, new_build.name, "y.npz", "model"}


def test_reported_17_a_disk_that_flushes_no_single_file_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refuse)
    write_atomic(tmp_path / "x.json", b"{}")
    assert (tmp_path / "x.json").read_bytes() == b"{}"


def test_flock_tells_a_holder_from_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    with path.open("wb") as holder, path.open("wb") as waiter:
        assert flock(holder.fileno(), wait=False) is Flock.TAKEN
        assert flock(waiter.fileno(), wait=False) is Flock.HELD
        with ThreadPoolExecutor(1) as threads:
            attempt = threads.submit(flock, waiter.fileno(), wait=True)
            holder.close()
            assert attempt.result() is Flock.TAKEN
        without_flock(monkeypatch)
        assert flock(waiter.fileno(), wait=False) is Flock.MISSING
