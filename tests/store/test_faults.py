"""Full disks, torn and foreign files, and two processes at one cache.

Each gives a sentence, nothing is lost, and a run ends with the same bits.
"""

from __future__ import annotations

import fcntl
import io
import os
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.expected_errors import raises
from support.killable_processes import Child, Nursery
from support.saved_models import save_classifier
from support.score_runs import (
    address_of,
    leftovers,
    score_arguments,
    sha_of,
    spec_of,
    wait_until_done,
)
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.waiting import wait_until

from headlab.core import Flock, HeadlabError, read_json, write_atomic
from headlab.core import files as atomic_files
from headlab.hooks import Model
from headlab.methods.run import score
from headlab.results import HeadScores, Store, StoredRun
from headlab.worker.client import Client

OPTIONS = {"samples": 96, "target": None}


class Interruption(Exception):
    """The run was interrupted."""


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def undisturbed_scores(model: Model) -> HeadScores:
    return run_score(model, None)


def run_score(
    model: Model,
    store: Store | None,
    language: str = "xx",
    stop: int | None = None,
    method: str = "shapley",
) -> HeadScores:
    """The scores of the tiny model; the run is interrupted at its `stop`-th report."""
    reports = 0

    def report(_: Any) -> None:
        nonlocal reports
        reports += 1
        if reports == stop:
            raise Interruption

    arguments = {"language": language, "method": method, "size": 24, **OPTIONS}
    return score(model, tiny_task(), store=store, on_progress=report, **arguments)


def interrupted_run(
    model: Model, root: Path, language: str = "xx", method: str = "shapley"
) -> StoredRun:
    """A run with a checkpoint and no result."""
    store = Store(root)
    with pytest.raises(Interruption):
        run_score(model, store, language, 4, method)
    folders = {folder for folder in store.folders() if (folder / "checkpoint.npz").exists()}
    (run_folder,) = (f for f in folders if language in (f / "spec.json").read_text())
    return StoredRun(run_folder, read_json(run_folder / "spec.json"))


# Full disks


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A file system of its own at `folder`; skips where it may not be made."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)],
        capture_output=True,
    )
    if mount.returncode:
        pytest.skip(f"no file system may be mounted here: {mount.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file may grow longer: the kernel stops writes in the middle, as a full disk does."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard_limit))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft_limit, hard_limit))
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def workers(nursery: Nursery, cache: Path) -> Iterator[Callable[..., Client]]:
    """A function that starts a worker in place of those before, or in addition to them.

    All are killed at the end.
    """
    children: list[Child] = []
    clients: list[Client] = []

    def end() -> None:
        while children:
            clients.pop().close()
            children.pop().kill()

    def begin(*, is_second: bool = False) -> Client:
        if not is_second:
            end()
        child = nursery.start(["worker", "--port", "0", "--cache", str(cache)])
        children.append(child)
        home = cache / ".worker" / ("2" if is_second else "")
        wait_until(lambda: address_of(home, child.pid) is not None)
        clients.append(Client(str(address_of(home, child.pid))))
        return clients[-1]

    try:
        yield begin
    finally:
        end()


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def fill_disk(ballast: Path) -> None:
    """Write a file until the disk is full."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


@pytest.mark.parametrize("free_pages", [0, 1, 2])
def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(
    model: Model, undisturbed_scores: HeadScores, tmp_path: Path, free_pages: int
) -> None:
    """The free pages are enough for nothing, for the spec, or for the spec and one checkpoint."""
    disk = tmp_path / "disk"
    with small_disk(disk, 256):
        ballast = disk / "ballast"
        fill_disk(ballast)
        os.truncate(ballast, ballast.stat().st_size - 4096 * free_pages)
        with raises("file.no_space"):
            run_score(model, Store(disk / "cache"))
        assert not any(name.endswith(".tmp") for name in files(disk))
        ballast.unlink()
        assert_undisturbed(run_score(model, Store(disk / "cache")), undisturbed_scores)
        assert leftovers(disk / "cache") == []


def assert_undisturbed(scores: HeadScores, undisturbed_scores: HeadScores) -> None:
    """The scores have the bits of an undisturbed run."""
    assert scores.values_sha256() == undisturbed_scores.values_sha256()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_checkpoint_that_does_not_fit_leaves_the_old_one(
    model: Model, undisturbed_scores: HeadScores, tmp_path: Path, share: float
) -> None:
    """The write stops in the middle, with the file partly there."""
    stored_run = interrupted_run(model, tmp_path)
    files_before = files(tmp_path)
    with file_limit(int(share * len(files_before[f"{stored_run.key}/checkpoint.npz"]))):
        with raises("file.no_space", "checkpoint"):
            run_score(model, Store(tmp_path))
        assert files(tmp_path) == files_before
    assert_undisturbed(run_score(model, Store(tmp_path)), undisturbed_scores)


def test_a_result_that_does_not_fit_is_written_by_the_same_command_later(
    model: Model, tmp_path: Path
) -> None:
    """There is room for every checkpoint, but not for the result, which is longer.

    So it is with a method of small checkpoints.
    """
    stored_run = interrupted_run(model, tmp_path, method="monte-carlo")
    with file_limit((stored_run.folder / "checkpoint.npz").stat().st_size + 64):
        with raises("file.no_space", "result"):
            run_score(model, Store(tmp_path), method="monte-carlo")
        names = sorted(path.name for path in stored_run.folder.iterdir())
        assert names == ["checkpoint.npz", "spec.json"]
    undisturbed_scores = run_score(model, None, method="monte-carlo")
    scores = run_score(model, Store(tmp_path), method="monte-carlo")
    assert_undisturbed(scores, undisturbed_scores)


def test_a_log_that_cannot_grow_is_a_sentence(model: Model, tmp_path: Path) -> None:
    stored_run = interrupted_run(model, tmp_path)
    (stored_run.folder / "checkpoint.npz").write_bytes(b"torn")
    with file_limit(0), raises("file.no_space", "log"):
        run_score(model, Store(tmp_path))


def test_a_cache_that_is_read_only_is_read_and_what_it_lacks_is_refused_in_a_sentence(
    model: Model, undisturbed_scores: HeadScores, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 256):
        cache = tmp_path / "disk" / "cache"
        run_score(model, Store(cache))
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        assert_undisturbed(run_score(model, Store(cache)), undisturbed_scores)
        assert [result.record.language for result in Store(cache).scan().results] == ["xx"]
        with raises("file.unwritable", "Read-only file system"):
            run_score(model, Store(cache), "yy")


@pytest.mark.parametrize("start", ["nothing", "a folder whose process died before it was synced"])
def test_what_is_written_is_there_after_a_loss_of_power(
    model: Model, start: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """A name is on the disk once its folder is synced, and a content once its file is.

    The rest may be lost.
    """
    names = set[Path]()
    contents = set[int]()
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        names.update(path.iterdir() if path.is_dir() else ())
        contents.add(os.fstat(descriptor).st_ino)

    root = tmp_path / "new" / "cache"
    if start != "nothing":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)
            dead_run = interrupted_run(model, root)
        names.update({root.parent, root, *dead_run.folder.iterdir()})
        contents.update(path.stat().st_ino for path in dead_run.folder.iterdir())
    monkeypatch.setattr(os, "fsync", fsync)
    stored_run = interrupted_run(model, root)
    for _ in range(2):
        paths = [path for path in stored_run.folder.iterdir() if path.name != "log.txt"]
        assert {path.name for path in paths} & {"checkpoint.npz", "result.npz"}
        assert names >= {root.parent, root, stored_run.folder, *paths}
        assert contents >= {path.stat().st_ino for path in paths}
        run_score(model, Store(root))


@dataclass(frozen=True)
class LongRun:
    """A run that takes long enough for something to happen in its middle.

    Attributes:
        nursery: It starts the processes.
        classifier: Folder of the model.
        sha: The hash of the scores of an undisturbed run.
    """

    nursery: Nursery
    classifier: Path
    sha: str


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongRun]:
    folder = tmp_path_factory.mktemp("long")
    classifier = save_classifier(folder / "tiny")
    nursery = Nursery(folder, score_arguments(classifier, folder / "warm", "shapley", samples=8))
    arguments = score_arguments(
        classifier, folder / "alone", "shapley", samples=1024, target="none"
    )
    yield LongRun(nursery, classifier, sha_of(nursery.start(arguments).wait()))
    nursery.close()


@pytest.mark.slow
def test_a_worker_on_a_full_disk_says_so_and_ends_its_job_when_there_is_room(
    long_run: LongRun, tmp_path: Path
) -> None:
    """The job list is on the same disk as the results."""
    disk = tmp_path / "disk"
    with small_disk(disk, 2048), workers(long_run.nursery, disk) as begin:
        client = begin()
        job = client.submit(spec=spec_of(long_run.classifier)).id
        wait_until(lambda: client.job(job).done > 0)
        fill_disk(disk / "ballast")
        # Where not even the job's end can be written, it stays as it was, and the worker says so.
        wait_until(lambda: client.job(job).state != "running" or client.health().note)
        assert Store(disk).scan().results == ()
        (disk / "ballast").unlink()
        client = begin()
        wait_until_done(client, job)
        (result,) = Store(disk).scan().results
        assert result.record.values_sha256() == long_run.sha
        assert leftovers(disk) == []


# Torn and foreign files


def torn(path: Path, rng: np.random.Generator) -> None:
    data = path.read_bytes() if path.exists() else b"some text"
    path.write_bytes(data[: int(rng.integers(len(data)))])


def noise(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(rng.bytes(int(rng.integers(1, 4000))))


def changed_bytes(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes() if path.exists() else b"some text")
    for offset in rng.integers(len(data), size=int(rng.integers(1, 4))):
        data[offset] ^= int(rng.integers(1, 256))
    path.write_bytes(bytes(data))


def folder_instead(path: Path, _: np.random.Generator) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").write_text("a file of somebody's")


def loop(path: Path, _: np.random.Generator) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def pipe(path: Path, _: np.random.Generator) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def pickle(path: Path, _: np.random.Generator) -> None:
    with path.open("wb") as file:
        np.savez(file, counts=np.array([{"a": 1}], dtype=object), allow_pickle=True)


def bomb(path: Path, _: np.random.Generator) -> None:
    """Forty kilobytes that unpack to forty megabytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (5 << 20,)}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("counts.npy", header.getvalue() + bytes(40 << 20))


def claims(path: Path, _: np.random.Generator) -> None:
    """An array that claims to have 2 ** 50 numbers."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("counts.npy", header.getvalue() + bytes(64))


def other_arrays(path: Path, rng: np.random.Generator) -> None:
    """A sound file of somebody else with the names of a checkpoint."""
    with path.open("wb") as file:
        np.savez(
            file,
            counts=rng.normal(size=(2, 3)),
            draws=np.array("many"),
            active=np.zeros(1),
            seconds=np.arange(2),
        )


def deep(path: Path, _: np.random.Generator) -> None:
    path.write_bytes(b"[" * 100_000)


DAMAGES = [
    torn,
    noise,
    changed_bytes,
    folder_instead,
    loop,
    pipe,
    pickle,
    bomb,
    claims,
    other_arrays,
    deep,
]


def damaged_runs(
    model: Model,
    folder: Path,
    name: str,
    damage: Callable[[Path, np.random.Generator], None],
    times: int,
    finish: bool,
) -> Iterator[StoredRun]:
    """Runs with one file damaged, each in a cache of its own.

    Args:
        model: The tiny model.
        folder: Where the caches are made.
        name: The file that is damaged.
        damage: A function that damages it.
        times: Number of runs; a damage without randomness is done once.
        finish: Whether the runs have a result, and not only a checkpoint.
    """
    sound_run = interrupted_run(model, folder / "begun")
    if finish:
        run_score(model, Store(folder / "begun"))
    for turn in range(times if damage in (torn, noise, changed_bytes) else 1):
        copy = folder / str(turn) / sound_run.key
        copy.mkdir(parents=True)
        for path in sound_run.folder.iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        damage(copy / name, np.random.default_rng([turn, len(name)]))
        yield StoredRun(copy, sound_run.spec)


def attempt(model: Model, broken: StoredRun) -> HeadScores | str:
    """The scores, or the sentence of the error."""
    try:
        return run_score(model, Store(broken.folder.parent))
    except HeadlabError as error:
        return str(error)


def content(path: Path) -> Any:
    """Enough of a file, a folder, a link or a pipe to see whether it was changed."""
    if path.is_symlink():
        return str(path.readlink())
    if path.is_file():
        return path.read_bytes()
    if path.is_dir():
        return sorted(p.name for p in path.iterdir())
    return "pipe"


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["result.npz", "spec.json"])
def test_a_damaged_result_is_a_sentence_and_is_not_computed_over(
    model: Model,
    undisturbed_scores: HeadScores,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path, np.random.Generator], None],
) -> None:
    for broken in damaged_runs(model, tmp_path, name, damage, 6, finish=True):
        content_before = content(broken.folder / name)
        listing = Store(broken.folder.parent).scan()
        scores_or_message = attempt(model, broken)
        if isinstance(scores_or_message, str):
            assert "Delete that folder of the cache and run the score again" in scores_or_message
            assert listing.results == ()
        else:  # a changed byte may be one that is not read
            assert_undisturbed(scores_or_message, undisturbed_scores)
        if not (damage is loop and name == "result.npz"):  # such a link counts as no file at all
            assert content(broken.folder / name) == content_before


@pytest.mark.parametrize("times", [1, pytest.param(6, marks=pytest.mark.soak)])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(
    "name", ["checkpoint.npz", "spec.json", "log.txt", ".checkpoint.npz.1.0a1b2c3d.tmp"]
)
def test_with_a_damaged_checkpoint_the_run_ends_with_the_same_bits(
    model: Model,
    undisturbed_scores: HeadScores,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path, np.random.Generator], None],
    times: int,
) -> None:
    for broken in damaged_runs(model, tmp_path, name, damage, times, finish=False):
        Store(broken.folder.parent).scan()
        scores_or_message = attempt(model, broken)
        if isinstance(scores_or_message, str):
            assert damage in (folder_instead, pipe, loop)
            assert str(broken.folder / name) in scores_or_message  # what is in the way is named
            continue
        assert_undisturbed(scores_or_message, undisturbed_scores)
        results = Store(broken.folder.parent).scan().results
        assert [result.key for result in results] == [broken.key]


def test_the_log_names_a_torn_checkpoint(model: Model, tmp_path: Path) -> None:
    for broken in damaged_runs(model, tmp_path, "checkpoint.npz", torn, 6, finish=False):
        run_score(model, Store(broken.folder.parent))
        assert "checkpoint skipped: " in (broken.folder / "log.txt").read_text()


def test_the_checkpoint_of_another_run_is_not_resumed(
    model: Model, undisturbed_scores: HeadScores, tmp_path: Path
) -> None:
    """It has the same shapes, in another language: only the key inside tells them apart."""
    stored_run = interrupted_run(model, tmp_path)
    other_run = interrupted_run(model, tmp_path, "yy")
    other_checkpoint = (other_run.folder / "checkpoint.npz").read_bytes()
    (stored_run.folder / "checkpoint.npz").write_bytes(other_checkpoint)
    assert_undisturbed(run_score(model, Store(tmp_path)), undisturbed_scores)
    assert "another run" in (stored_run.folder / "log.txt").read_text()


def test_a_result_of_another_run_is_refused(model: Model, tmp_path: Path) -> None:
    run_score(model, Store(tmp_path))
    run_score(model, Store(tmp_path), "yy")
    source, target = Store(tmp_path).folders()
    foreign_result = (source / "result.npz").read_bytes()
    (target / "result.npz").write_bytes(foreign_result)
    refusals = 0
    for language in ("xx", "yy"):
        try:
            run_score(model, Store(tmp_path), language)
        except HeadlabError as error:
            refusals += error.code == "result.values_mismatch"
    assert refusals == 1
    assert (target / "result.npz").read_bytes() == foreign_result


def test_strangers_in_the_cache_are_skipped(
    model: Model, undisturbed_scores: HeadScores, tmp_path: Path
) -> None:
    run_score(model, Store(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "elsewhere").symlink_to("/")
    os.mkfifo(tmp_path / "pipe")
    for name in ("empty", "\udcff", "x" * 200):
        (tmp_path / name).mkdir()
    listing = Store(tmp_path).scan()
    (result,) = listing.results
    assert_undisturbed(result.record, undisturbed_scores)
    assert len(listing.problems) == 4
    assert_undisturbed(run_score(model, Store(tmp_path)), undisturbed_scores)


def test_results_of_a_newer_version_are_left_alone_and_named(
    model: Model, undisturbed_scores: HeadScores, tmp_path: Path, monkeypatch: Any
) -> None:
    """Two versions use one cache.

    The newer one finishes this very run in its own format, and stops within another.
    """
    with monkeypatch.context() as patch:
        for module in (
            "headlab.results.store.folder",
            "headlab.results.store.codecs",
            "headlab.methods.spec",
        ):
            patch.setattr(f"{module}.RESULT_FORMAT", 2)
        run_score(model, Store(tmp_path))
        interrupted_run(model, tmp_path, "yy")
    folders = list(Store(tmp_path).folders())
    paths = [path for folder in folders for path in folder.iterdir()]
    content_by_path = {path: path.read_bytes() for path in paths}
    assert len(folders) == 2
    assert "format 2; this headlab reads 1" in Store(tmp_path).scan().problems[0]
    assert_undisturbed(run_score(model, Store(tmp_path)), undisturbed_scores)
    run_score(model, Store(tmp_path), "yy")
    assert {path: path.read_bytes() for path in paths} == content_by_path
    assert {result.record.language for result in Store(tmp_path).scan().results} == {"xx", "yy"}


# Files


def test_a_dead_process_s_temporary_file_is_removed_a_living_one_s_stays(tmp_path: Path) -> None:
    dead, living = (tmp_path / f".x.npz.{pid}.0a1b2c3d.tmp" for pid in (1, 2))
    foreign = tmp_path / ".vimrc.tmp"
    for path in (dead, living, foreign):
        path.write_bytes(b"half")
    with living.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_atomic(tmp_path / "y.npz", b"whole")
    assert {p.name for p in tmp_path.iterdir()} == {living.name, foreign.name, "y.npz"}


def test_many_writers_of_one_file_do_not_sweep_each_other_away(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(40):
            write_atomic(tmp_path / "x.npz", bytes([number]) * 5000)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]
    assert len(set((tmp_path / "x.npz").read_bytes())) == 1


def test_a_sweeper_that_comes_second_leaves_the_writer_s_new_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = tmp_path / ".x.npz.1.00000000.tmp"
    leftover.write_bytes(b"left by a killed process")
    flock = atomic_files.flock

    def slow_flock(descriptor: int, *, wait: bool) -> Flock:
        leftover.unlink()  # by the first sweeper, after this one opened it
        leftover.write_bytes(b"the writer tried again")
        return flock(descriptor, wait=wait)

    monkeypatch.setattr(atomic_files, "flock", slow_flock)
    atomic_files.sweep(tmp_path)
    assert leftover.read_bytes() == b"the writer tried again"


# Two at one cache


@pytest.mark.slow
def test_two_command_lines_at_one_run_end_with_the_same_bits(
    long_run: LongRun, tmp_path: Path
) -> None:
    command = score_arguments(long_run.classifier, tmp_path, "shapley", samples=1024, target="none")
    children = [long_run.nursery.start(command) for _ in range(2)]
    assert [sha_of(child.wait()) for child in children] == [long_run.sha, long_run.sha]
    assert_only_result(tmp_path, long_run.sha)


def assert_only_result(cache: Path, sha: str) -> None:
    """A cache has one result, with these scores, and nothing else."""
    listing = Store(cache).scan()
    assert [result.record.values_sha256() for result in listing.results] == [sha]
    assert listing.problems == ()
    assert leftovers(cache) == []


@pytest.mark.soak
def test_two_workers_at_one_run_end_with_the_same_bits(long_run: LongRun, tmp_path: Path) -> None:
    with workers(long_run.nursery, tmp_path) as begin:
        clients = [begin(), begin(is_second=True)]
        assert [client.health().state for client in clients] == [".worker", ".worker/2"]
        jobs = [client.submit(spec=spec_of(long_run.classifier)).id for client in clients]
        for client, job in zip(clients, jobs, strict=True):
            wait_until_done(client, job)
    assert_only_result(tmp_path, long_run.sha)


# Too little memory


@pytest.mark.soak
@pytest.mark.data
@pytest.mark.parametrize("megabytes", [1000, 1400, 1700, 1850, 2000, 2200])
def test_with_too_little_memory_a_command_ends_with_a_sentence_and_later_with_its_result(
    megabytes: int, tmp_path: Path
) -> None:
    """From too little for the weights to too little for a batch; what fits differs by machine."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    command = [sys.executable, "-m", "headlab.cli", "score", "--method", "gradient"]
    command += ["--languages", "de", "--size", "16"]
    environment = os.environ | {"HEADLAB_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    with_limit = subprocess.run(
        command, env=environment, preexec_fn=limit, capture_output=True, text=True
    )
    assert with_limit.returncode in (0, 2), with_limit.stderr
    if with_limit.returncode:
        # torch may write more as it ends
        message = with_limit.stderr.partition("Exception ignored in")[0].strip()
        assert message.startswith("headlab: ")
        assert "memory" in message
    without_limit = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert without_limit.returncode == 0, without_limit.stderr
    assert "de     gradient:" in without_limit.stdout
