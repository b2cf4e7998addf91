"""Full disks, torn and foreign files, two at one cache: a sentence, nothing lost, and the same bits in the end."""

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
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.waiting import until
from test_kills import address_of, leftovers, score_arguments, sha_of, spec_of, wait_until_done

from headlab.core import Flock, HeadlabError, read_json, write_atomic
from headlab.core import files as whole_files
from headlab.hooks import Model
from headlab.methods.run import score
from headlab.results import HeadScores, Store, StoredRun
from headlab.worker.client import Client

OPTIONS = {"samples": 96, "target": None}


class Cut(Exception):
    """The run was interrupted."""


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def whole(model: Model) -> HeadScores:
    """The scores of an undisturbed run."""
    return run(model, None)


def run(
    model: Model,
    store: Store | None,
    language: str = "xx",
    stop: int | None = None,
    method: str = "shapley",
) -> HeadScores:
    """A score of the tiny model; cut off at its `stop`-th report."""
    reports = 0

    def report(_: Any) -> None:
        nonlocal reports
        reports += 1
        if reports == stop:
            raise Cut

    ask = {"language": language, "method": method, "size": 24, **OPTIONS}
    return score(model, tiny_task(), store=store, on_progress=report, **ask)


def interrupted(
    model: Model, root: Path, language: str = "xx", method: str = "shapley"
) -> StoredRun:
    """A run with a checkpoint and no result."""
    store = Store(root)
    with pytest.raises(Cut):
        run(model, store, language, 4, method)
    before = {folder for folder in store.folders() if (folder / "checkpoint.npz").exists()}
    (found,) = (folder for folder in before if language in (folder / "spec.json").read_text())
    return StoredRun(found, read_json(found / "spec.json"))


# Full disks


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A file system of its own at `folder`; skips where it may not be made."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)],
        capture_output=True,
    )
    if made.returncode:
        pytest.skip(f"no file system may be mounted here: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    """No file may grow longer: the kernel stops writes in the middle, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def workers(nursery: Nursery, cache: Path) -> Iterator[Callable[..., Client]]:
    """Gives a way to start a worker in the place of those before, or beside them; all are killed at the end."""
    children: list[Child] = []
    clients: list[Client] = []

    def end() -> None:
        while children:
            clients.pop().close()
            children.pop().kill()

    def begin(*, beside: bool = False) -> Client:
        if not beside:
            end()
        child = nursery.start(["worker", "--port", "0", "--cache", str(cache)])
        children.append(child)
        home = cache / ".worker" / ("2" if beside else "")
        until(lambda: address_of(home, child.pid) is not None)
        clients.append(Client(str(address_of(home, child.pid))))
        return clients[-1]

    try:
        yield begin
    finally:
        end()


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(
    model: Model, whole: HeadScores, tmp_path: Path, room: int
) -> None:
    """room: pages left when the run begins: none, enough for its spec, for that and one checkpoint."""
    disk = tmp_path / "disk"
    with small_disk(disk, 256):
        ballast = disk / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        os.truncate(ballast, ballast.stat().st_size - 4096 * room)
        with raises("file.no_space"):
            run(model, Store(disk / "cache"))
        assert not any(name.endswith(".tmp") for name in files(disk))
        ballast.unlink()
        assert run(model, Store(disk / "cache")).values_sha256() == whole.values_sha256()
        assert leftovers(disk / "cache") == []


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_checkpoint_that_does_not_fit_leaves_the_old_one(
    model: Model, whole: HeadScores, tmp_path: Path, share: float
) -> None:
    """The write stops in the middle, with the file partly there."""
    begun = interrupted(model, tmp_path)
    before = files(tmp_path)
    with longest_file(int(share * len(before[f"{begun.key}/checkpoint.npz"]))):
        with raises("file.no_space", "checkpoint"):
            run(model, Store(tmp_path))
        assert files(tmp_path) == before
    assert run(model, Store(tmp_path)).values_sha256() == whole.values_sha256()


def test_a_result_that_does_not_fit_is_written_by_the_same_command_later(
    model: Model, tmp_path: Path
) -> None:
    """There is room for every checkpoint, but not for the result, which is longer (of a method that keeps little)."""
    begun = interrupted(model, tmp_path, method="monte-carlo")
    with longest_file((begun.folder / "checkpoint.npz").stat().st_size + 64):
        with raises("file.no_space", "result"):
            run(model, Store(tmp_path), method="monte-carlo")
        assert sorted(p.name for p in begun.folder.iterdir()) == ["checkpoint.npz", "spec.json"]
    whole = run(model, None, method="monte-carlo")
    assert (
        run(model, Store(tmp_path), method="monte-carlo").values_sha256() == whole.values_sha256()
    )


def test_a_log_that_cannot_grow_is_a_sentence(model: Model, tmp_path: Path) -> None:
    begun = interrupted(model, tmp_path)
    (begun.folder / "checkpoint.npz").write_bytes(b"torn")
    with longest_file(0), raises("file.no_space", "log"):
        run(model, Store(tmp_path))


def test_a_cache_that_is_read_only_is_read_and_what_it_lacks_is_refused_in_a_sentence(
    model: Model, whole: HeadScores, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 256):
        cache = tmp_path / "disk" / "cache"
        run(model, Store(cache))
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        assert run(model, Store(cache)).values_sha256() == whole.values_sha256()
        assert [found.record.language for found in Store(cache).scan().results] == ["xx"]
        with raises("file.unwritable", "Read-only file system"):
            run(model, Store(cache), "yy")


@pytest.mark.parametrize("before", ["nothing", "a folder whose process died before it was synced"])
def test_what_is_written_is_there_after_a_loss_of_power(
    model: Model, before: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """A name is on the disk once its folder is synced, and a content once its file is; the rest may be lost."""
    names = set[Path]()
    contents = set[int]()
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        names.update(path.iterdir() if path.is_dir() else ())
        contents.add(os.fstat(descriptor).st_ino)

    root = tmp_path / "new" / "cache"
    if before != "nothing":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)
            left = interrupted(model, root)
        names.update({root.parent, root, *left.folder.iterdir()})
        contents.update(path.stat().st_ino for path in left.folder.iterdir())
    monkeypatch.setattr(os, "fsync", fsync)
    begun = interrupted(model, root)
    for _ in range(2):
        kept = [path for path in begun.folder.iterdir() if path.name != "log.txt"]
        assert {path.name for path in kept} & {"checkpoint.npz", "result.npz"}
        assert names >= {root.parent, root, begun.folder, *kept}
        assert contents >= {path.stat().st_ino for path in kept}
        run(model, Store(root))


@dataclass(frozen=True)
class Long:
    """A nursery, a model for it, and the hash of a job's scores: long enough to be met in its middle."""

    nursery: Nursery
    classifier: Path
    sha: str


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Long]:
    folder = tmp_path_factory.mktemp("long")
    classifier = save_classifier(folder / "tiny")
    nursery = Nursery(folder, score_arguments(classifier, folder / "warm", "shapley", samples=8))
    alone = score_arguments(classifier, folder / "alone", "shapley", samples=1024, target="none")
    yield Long(nursery, classifier, sha_of(nursery.start(alone).wait()))
    nursery.close()


@pytest.mark.slow
def test_a_worker_on_a_full_disk_says_so_and_ends_its_job_when_there_is_room(
    long: Long, tmp_path: Path
) -> None:
    """The job list is on the same disk as the results."""
    disk = tmp_path / "disk"
    with small_disk(disk, 2048), workers(long.nursery, disk) as begin:
        client = begin()
        job = client.submit(spec=spec_of(long.classifier)).id
        until(lambda: client.job(job).done > 0)
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        # Where not even its end can be written, it stays as it was, and the worker says so.
        until(lambda: client.job(job).state != "running" or client.health().note)
        assert Store(disk).scan().results == ()
        (disk / "ballast").unlink()
        client = begin()
        wait_until_done(client, job)
        (found,) = Store(disk).scan().results
        assert found.record.values_sha256() == long.sha
        assert leftovers(disk) == []


# Torn and foreign files


def torn(path: Path, rng: np.random.Generator) -> None:
    data = path.read_bytes() if path.exists() else b"some text"
    path.write_bytes(data[: int(rng.integers(len(data)))])


def noise(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(rng.bytes(int(rng.integers(1, 4000))))


def changed(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes() if path.exists() else b"some text")
    for place in rng.integers(len(data), size=int(rng.integers(1, 4))):
        data[place] ^= int(rng.integers(1, 256))
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


def pickled(path: Path, _: np.random.Generator) -> None:
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
    """An array that says it has 2 ** 50 numbers."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("counts.npy", header.getvalue() + bytes(64))


def other_arrays(path: Path, rng: np.random.Generator) -> None:
    """A good file of somebody else's with the names of a checkpoint."""
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
    changed,
    folder_instead,
    loop,
    pipe,
    pickled,
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
    """Runs with one file damaged, each in a cache of its own; deterministic damages are done once."""
    begun = interrupted(model, folder / "begun")
    if finish:
        run(model, Store(folder / "begun"))
    for turn in range(times if damage in (torn, noise, changed) else 1):
        copy = folder / str(turn)
        (copy / begun.key).mkdir(parents=True)
        for path in begun.folder.iterdir():
            (copy / begun.key / path.name).write_bytes(path.read_bytes())
        damage(copy / begun.key / name, np.random.default_rng([turn, len(name)]))
        yield StoredRun(copy / begun.key, begun.spec)


def attempt(model: Model, broken: StoredRun) -> HeadScores | str:
    """The scores, or the sentence that is said instead."""
    try:
        return run(model, Store(broken.folder.parent))
    except HeadlabError as error:
        return str(error)


def content(path: Path) -> Any:
    """Enough of a file, a folder, a link or a pipe to see that nobody changed it."""
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
    whole: HeadScores,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path, np.random.Generator], None],
) -> None:
    for broken in damaged_runs(model, tmp_path, name, damage, 6, finish=True):
        before = content(broken.folder / name)
        listing = Store(broken.folder.parent).scan()
        got = attempt(model, broken)
        if isinstance(got, str):
            assert "Delete that folder of the cache and run the score again" in got
            assert listing.results == ()
        else:  # a changed byte may be one that is not read
            assert got.values_sha256() == whole.values_sha256()
        if not (damage is loop and name == "result.npz"):  # such a link counts as no file at all
            assert content(broken.folder / name) == before


@pytest.mark.parametrize("times", [1, pytest.param(6, marks=pytest.mark.soak)])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(
    "name", ["checkpoint.npz", "spec.json", "log.txt", ".checkpoint.npz.1.0a1b2c3d.tmp"]
)
def test_with_a_damaged_checkpoint_the_run_ends_with_the_same_bits(
    model: Model,
    whole: HeadScores,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path, np.random.Generator], None],
    times: int,
) -> None:
    for broken in damaged_runs(model, tmp_path, name, damage, times, finish=False):
        Store(broken.folder.parent).scan()
        got = attempt(model, broken)
        if isinstance(got, str):
            assert damage in (folder_instead, pipe, loop)
            assert str(broken.folder / name) in got  # what is in the way is named
            continue
        assert got.values_sha256() == whole.values_sha256()
        assert [found.key for found in Store(broken.folder.parent).scan().results] == [broken.key]


def test_a_torn_checkpoint_is_told_in_the_log(model: Model, tmp_path: Path) -> None:
    for broken in damaged_runs(model, tmp_path, "checkpoint.npz", torn, 6, finish=False):
        run(model, Store(broken.folder.parent))
        assert "checkpoint skipped: " in (broken.folder / "log.txt").read_text()


def test_a_checkpoint_of_another_run_is_not_gone_on_with(
    model: Model, whole: HeadScores, tmp_path: Path
) -> None:
    """Of the same shapes, in another language: only the key inside tells them apart."""
    begun = interrupted(model, tmp_path)
    other = interrupted(model, tmp_path, "yy")
    (begun.folder / "checkpoint.npz").write_bytes((other.folder / "checkpoint.npz").read_bytes())
    assert run(model, Store(tmp_path)).values_sha256() == whole.values_sha256()
    assert "another run" in (begun.folder / "log.txt").read_text()


def test_a_result_of_another_run_is_refused(model: Model, tmp_path: Path) -> None:
    run(model, Store(tmp_path))
    run(model, Store(tmp_path), "yy")
    one, two = Store(tmp_path).folders()
    foreign = (one / "result.npz").read_bytes()
    (two / "result.npz").write_bytes(foreign)
    refused = 0
    for language in ("xx", "yy"):
        try:
            run(model, Store(tmp_path), language)
        except HeadlabError as error:
            refused += error.code == "result.values_mismatch"
    assert refused == 1
    assert (two / "result.npz").read_bytes() == foreign


def test_strangers_in_the_cache_are_skipped(
    model: Model, whole: HeadScores, tmp_path: Path
) -> None:
    run(model, Store(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "elsewhere").symlink_to("/")
    os.mkfifo(tmp_path / "pipe")
    for name in ("empty", "\udcff", "x" * 200):
        (tmp_path / name).mkdir()
    listing = Store(tmp_path).scan()
    assert [found.record.values_sha256() for found in listing.results] == [whole.values_sha256()]
    assert len(listing.problems) == 4
    assert run(model, Store(tmp_path)).values_sha256() == whole.values_sha256()


def test_what_a_newer_version_wrote_is_left_alone_and_said(
    model: Model, whole: HeadScores, tmp_path: Path, monkeypatch: Any
) -> None:
    """Two versions on one cache: the newer one finishes this very run in its own format, and stops within another."""
    with monkeypatch.context() as patch:
        for module in (
            "headlab.results.store.folder",
            "headlab.results.store.codecs",
            "headlab.methods.spec",
        ):
            patch.setattr(f"{module}.RESULT_FORMAT", 2)
        run(model, Store(tmp_path))
        begun = interrupted(model, tmp_path, "yy")
    (theirs,) = (folder for folder in Store(tmp_path).folders() if folder != begun.folder)
    before = {path: path.read_bytes() for path in (*theirs.iterdir(), *begun.folder.iterdir())}
    assert "format 2; this headlab reads 1" in Store(tmp_path).scan().problems[0]
    assert run(model, Store(tmp_path)).values_sha256() == whole.values_sha256()
    run(model, Store(tmp_path), "yy")
    assert {path: path.read_bytes() for path in before} == before
    assert {found.record.language for found in Store(tmp_path).scan().results} == {"xx", "yy"}


# Files


def test_a_dead_process_s_temporary_file_is_removed_a_living_one_s_stays(tmp_path: Path) -> None:
    dead, living = (tmp_path / f".x.npz.{pid}.0a1b2c3d.tmp" for pid in (1, 2))
    foreign = tmp_path / ".vimrc.tmp"
    for path in (dead, living, foreign):
        path.write_bytes(b"half")
    with living.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
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
    left = tmp_path / ".x.npz.1.00000000.tmp"
    left.write_bytes(b"left by a killed process")
    flock = whole_files.flock

    def slow(descriptor: int, *, wait: bool) -> Flock:
        left.unlink()  # by the first sweeper, after this one opened it
        left.write_bytes(b"the writer tried again")
        return flock(descriptor, wait=wait)

    monkeypatch.setattr(whole_files, "flock", slow)
    whole_files.sweep(tmp_path)
    assert left.read_bytes() == b"the writer tried again"


# Two at one cache


@pytest.mark.slow
def test_two_command_lines_at_one_run_end_with_the_same_bits(long: Long, tmp_path: Path) -> None:
    words = score_arguments(long.classifier, tmp_path, "shapley", samples=1024, target="none")
    both = [long.nursery.start(words) for _ in range(2)]
    assert [sha_of(child.wait()) for child in both] == [long.sha, long.sha]
    listing = Store(tmp_path).scan()
    assert ([found.record.values_sha256() for found in listing.results], listing.problems) == (
        [long.sha],
        (),
    )
    assert leftovers(tmp_path) == []


@pytest.mark.soak
def test_two_workers_at_one_run_end_with_the_same_bits(long: Long, tmp_path: Path) -> None:
    with workers(long.nursery, tmp_path) as begin:
        clients = [begin(), begin(beside=True)]
        assert [client.health().state for client in clients] == [".worker", ".worker/2"]
        jobs = [client.submit(spec=spec_of(long.classifier)).id for client in clients]
        for client, job in zip(clients, jobs, strict=True):
            wait_until_done(client, job)
    listing = Store(tmp_path).scan()
    assert ([found.record.values_sha256() for found in listing.results], listing.problems) == (
        [long.sha],
        (),
    )
    assert leftovers(tmp_path) == []


# Too little memory


@pytest.mark.soak
@pytest.mark.data
@pytest.mark.parametrize("megabytes", [1000, 1400, 1700, 1850, 2000, 2200])
def test_with_too_little_memory_a_command_ends_with_a_sentence_and_later_with_its_result(
    megabytes: int, tmp_path: Path
) -> None:
    """From too little for the weights to too little for a batch: what fits where differs by machine."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    command = [
        sys.executable,
        "-m",
        "headlab.cli",
        "score",
        "--method",
        "gradient",
        "--languages",
        "de",
        "--size",
        "16",
    ]
    given = os.environ | {"HEADLAB_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    short = subprocess.run(command, env=given, preexec_fn=limit, capture_output=True, text=True)
    assert short.returncode in (0, 2), short.stderr
    if short.returncode:
        told = short.stderr.partition("Exception ignored in")[0].strip()  # of torch, as it ends
        assert told.startswith("headlab: ")
        assert "memory" in told
    enough = subprocess.run(command, env=given, capture_output=True, text=True)
    assert enough.returncode == 0, enough.stderr
    assert "de     gradient:" in enough.stdout
