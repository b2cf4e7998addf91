"""SIGKILL at any moment: the same command, or the same job, resumes and ends with the same bits.

They are compared with those of an undisturbed run. Each test counts the processes that it really
killed. The suite has a few; `make soak` kills more than forty.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.killable_processes import (
    ROOT,
    SETTINGS,
    Child,
    KillCounts,
    Nursery,
    kill_until_done,
    phase_of,
)
from support.saved_models import save_classifier
from support.score_runs import (
    address_of,
    leftovers,
    score_arguments,
    sha_of,
    spec_of,
    wait_until_done,
)
from support.waiting import wait_until

from headlab.results import Store
from headlab.worker.client import Client

METHODS: dict[str, dict[str, Any]] = {
    "shapley": {"samples": 256, "target": "none"},
    "monte-carlo": {"samples": 128, "target": "none"},
    "leave-one-out": {},
    "exact": {},
    "paper": {"samples": 16},
}
UndisturbedRun = Callable[[str], tuple[str, float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return save_classifier(folder / "tiny")


@pytest.fixture(scope="module")
def nursery(folder: Path, model: Path) -> Iterator[Nursery]:
    new_nursery = Nursery(folder, score_arguments(model, folder / "warm", "shapley", samples=8))
    yield new_nursery
    new_nursery.close()


@pytest.fixture(scope="module")
def undisturbed_run(nursery: Nursery, model: Path, folder: Path) -> UndisturbedRun:
    """A function that runs a method without kills: the hash of its scores, and seconds."""

    @cache
    def run_method(method: str) -> tuple[str, float]:
        start = time.monotonic()
        cache_folder = folder / f"undisturbed-{method}"
        arguments = score_arguments(model, cache_folder, method, **METHODS[method])
        return sha_of(nursery.start(arguments).wait()), time.monotonic() - start

    return run_method


@pytest.mark.soak
def test_methods_have_different_values(undisturbed_run: UndisturbedRun) -> None:
    assert len({undisturbed_run(method)[0] for method in METHODS}) == len(METHODS)


@pytest.mark.slow
@pytest.mark.parametrize("min_kills", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_a_command_killed_at_random_moments_gives_the_same_bits(
    nursery: Nursery, model: Path, undisturbed_run: UndisturbedRun, tmp_path: Path, min_kills: int
) -> None:
    rng = np.random.default_rng(4)
    kills = KillCounts({})
    turn = 0
    while kills.count < min_kills:
        method = list(METHODS)[turn % len(METHODS)]
        turn += 1
        cache = tmp_path / str(turn)
        sha, seconds = undisturbed_run(method)

        def begin(method: str = method, cache: Path = cache) -> Child:
            return nursery.start(score_arguments(model, cache, method, **METHODS[method]))

        max_kills = min(4, min_kills - kills.count)
        process = kill_until_done(
            begin, rng, seconds, max_kills, lambda cache=cache: phase_of(cache), kills
        )  # type: ignore[misc]
        assert sha_of(process) == sha, (method, turn)
        assert leftovers(cache) == []
    if min_kills == 30:
        assert kills.phases["between checkpoints"] > 0, kills


@pytest.mark.slow
@pytest.mark.parametrize(
    "deaths",
    [
        [("open", ".tmp", 1)],  # nothing written yet
        [("os.rename", "spec.json", 1)],  # the spec complete, but not in place
        [("os.rename", "checkpoint.npz", 1)],
        [("open", ".tmp", 3), ("os.rename", "checkpoint.npz", 1)],  # with an older one in place
        [("os.rename", "result.npz", 1)],  # computed, not in place
        [("os.remove", "checkpoint.npz", 1)],  # the result in place, its checkpoint too
    ],
    ids=lambda deaths: "-".join(f"{event}-{path}" for event, path, _ in deaths),
)
def test_killed_in_the_middle_of_a_write_it_gives_the_same_bits(
    nursery: Nursery,
    model: Path,
    undisturbed_run: UndisturbedRun,
    tmp_path: Path,
    deaths: list[tuple[str, str, int]],
) -> None:
    arguments = score_arguments(model, tmp_path, "shapley", **METHODS["shapley"])
    for death in deaths:
        assert nursery.start(arguments, death).wait().was_killed
    assert len([*tmp_path.glob("*/.*.tmp")]) == (deaths[-1][0] == "os.rename")
    sha, _ = undisturbed_run("shapley")
    assert sha_of(nursery.start(arguments).wait()) == sha
    assert list(tmp_path.glob("*/.*.tmp")) == []  # the dead process's file is swept away
    assert leftovers(tmp_path) == []  # and so is its checkpoint
    assert Store(tmp_path).scan().problems == ()


def has_got_on(client: Client, job: int, steps: int) -> bool:
    """Whether a job has made more steps than these, or all of them."""
    state = client.job(job)
    return state.done > steps or state.state == "done"


@pytest.fixture(scope="module")
def job_sha(nursery: Nursery, model: Path, folder: Path) -> str:
    options = {"samples": 1024, "target": "none"}
    arguments = score_arguments(model, folder / "job", "shapley", **options)
    return sha_of(nursery.start(arguments).wait())


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.soak)])
def test_a_worker_killed_at_random_moments_ends_its_job_with_the_same_bits(
    nursery: Nursery, model: Path, job_sha: str, tmp_path: Path, kills: int
) -> None:
    rng = np.random.default_rng(5)
    job = 0
    arguments = ["worker", "--port", "0", "--cache", str(tmp_path)]
    for turn in range(kills + 1):
        child = nursery.start(arguments)
        client = Client(
            str(
                wait_until(
                    lambda child=child: address_of(tmp_path / ".worker", child.pid), "a worker"
                )
            )
        )  # type: ignore[misc]
        try:
            job = job or client.submit(spec=spec_of(model)).id
            if turn == kills:
                wait_until_done(client, job)
                break
            if client.job(job).state == "failed":
                client.resume(job)
            assert child.ended_within(rng.uniform(0.1, 1.2)) is None
        finally:
            client.close()
            process = child.kill()
        assert process.was_killed
    (result,) = Store(tmp_path).scan().results
    assert result.record.values_sha256() == job_sha
    assert leftovers(tmp_path) == []


TOKEN = "for-the-worker-of-the-killed-app"


@contextmanager
def app(cache: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`streamlit run app.py` with one visitor; killed at the end."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from websockets.sync.client import connect

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "HEADLAB_WORKER"}
    environment |= {**SETTINGS, "HEADLAB_CACHE": str(cache), "HEADLAB_TOKEN": TOKEN}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    with (cache / "app.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/_stcore/health"), "the app")
        visit = BackMsg()
        visit.rerun_script.query_string = ""
        with connect(f"ws://127.0.0.1:{port}/_stcore/stream", max_size=None) as visitor:
            visitor.send(visit.SerializeToString())
            visitor.recv(timeout=60)
            yield process
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and " Z " not in stat.read_text()


@pytest.mark.soak
def test_the_app_killed_while_its_worker_computes_finds_the_job_again(
    model: Path, job_sha: str, tmp_path: Path
) -> None:
    job = 0
    pids = []
    for turn in range(2):
        with app(tmp_path) as process:
            wait_until(partial(has_worker, tmp_path, process.pid))
            client = Client(str(address_of(tmp_path / ".worker", None)), TOKEN)
            pids.append(json.loads((tmp_path / ".worker" / "worker.json").read_text())["pid"])
            try:
                job = job or client.submit(spec=spec_of(model)).id
                assert [row.id for row in client.jobs()] == [job]
                if turn == 1:
                    wait_until_done(client, job)
                else:
                    steps = client.job(job).done
                    wait_until(partial(has_got_on, client, job, steps))
            finally:
                client.close()
            assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        wait_until(lambda: not alive(pids[-1]))  # the worker ends with its app
    assert len(set(pids)) == 2
    (result,) = Store(tmp_path).scan().results
    assert result.record.values_sha256() == job_sha


def has_worker(cache: Path, app_pid: int) -> bool:
    """Whether a worker listens and the last one that announced itself was started by this app."""
    if address_of(cache / ".worker", None) is None:
        return False
    announcement = json.loads((cache / ".worker" / "worker.json").read_text())
    return bool(announcement["parent"] == app_pid)


@pytest.mark.soak
def test_the_command_line_on_the_embedded_model_killed_gives_the_same_bits(tmp_path: Path) -> None:
    """As a user starts it: a new process each time, on all cores."""
    rng = np.random.default_rng(6)
    score = [sys.executable, "-m", "headlab.cli", "score", "--languages", "de", "--size", "32"]
    score += ["-o", "samples=16", "-o", "target=none", "--json"]

    def begin(cache: str) -> subprocess.Popen[str]:
        command = [*score, "--cache", str(tmp_path / cache)]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def sha_at_end(process: subprocess.Popen[str]) -> str:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        return str(json.loads(output)["languages"]["de"]["values_sha256"])

    start = time.monotonic()
    undisturbed_sha = sha_at_end(begin("undisturbed"))
    seconds = time.monotonic() - start
    # if other programs end meanwhile, this one is faster and the kill may come too late
    for cache_name in ("killed", "killed-again", "killed-once-more"):
        process = begin(cache_name)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=float(rng.uniform(0.3, 0.7)) * seconds)
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            break
    assert process.returncode == -signal.SIGKILL
    assert sha_at_end(begin(cache_name)) == undisturbed_sha
    assert Store(tmp_path / cache_name).scan().problems == ()
