"""SIGKILL at any moment: the same command, or the same job, goes on and ends with the bits of an undisturbed run.

Each test counts the processes that it really killed. The suite has a few; `make soak` kills more than forty.
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
    Ended,
    Kills,
    Nursery,
    killed_until_done,
    phase_of,
)
from support.saved_models import save_classifier
from support.waiting import until

from headlab.results import Store
from headlab.worker.client import Client

METHODS: dict[str, dict[str, Any]] = {
    "shapley": {"samples": 256, "target": "none"},
    "monte-carlo": {"samples": 128, "target": "none"},
    "leave-one-out": {},
    "exact": {},
    "paper": {"samples": 16},
}
SIZE = 32
Undisturbed = Callable[[str], tuple[str, float]]


def score_arguments(model: Path, cache: Path, method: str, **options: Any) -> list[str]:
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return [
        "score",
        "--model",
        str(model),
        "--languages",
        "de",
        "--method",
        method,
        "--size",
        str(SIZE),
        *given,
        "--cache",
        str(cache),
        "--json",
    ]


def sha_of(ended: Ended) -> str:
    assert ended.code == 0, ended.err
    return str(json.loads(ended.out)["languages"]["de"]["values_sha256"])


def leftovers(cache: Path) -> list[str]:
    """Files of a finished run's folder that should not be there."""
    return [
        p.name
        for p in cache.glob("[0-9a-f]*/*")
        if p.name not in ("spec.json", "result.npz", "log.txt")
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return save_classifier(folder / "tiny")


@pytest.fixture(scope="module")
def nursery(folder: Path, model: Path) -> Iterator[Nursery]:
    made = Nursery(folder, score_arguments(model, folder / "warm", "shapley", samples=8))
    yield made
    made.close()


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, model: Path, folder: Path) -> Undisturbed:
    """What a method gives when nobody kills it, and the seconds it takes."""

    @cache
    def of(method: str) -> tuple[str, float]:
        begun = time.monotonic()
        arguments = score_arguments(
            model, folder / f"undisturbed-{method}", method, **METHODS[method]
        )
        return sha_of(nursery.start(arguments).wait()), time.monotonic() - begun

    return of


@pytest.mark.soak
def test_methods_have_different_values(undisturbed: Undisturbed) -> None:
    assert len({undisturbed(method)[0] for method in METHODS}) == len(METHODS)


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_a_command_killed_at_random_moments_gives_the_same_bits(
    nursery: Nursery, model: Path, undisturbed: Undisturbed, tmp_path: Path, most: int
) -> None:
    rng = np.random.default_rng(4)
    kills = Kills({})
    life = 0
    while kills.count < most:
        method = list(METHODS)[life % len(METHODS)]
        life += 1
        cache = tmp_path / str(life)
        sha, seconds = undisturbed(method)

        def begin(method: str = method, cache: Path = cache) -> Child:
            return nursery.start(score_arguments(model, cache, method, **METHODS[method]))

        turns = min(4, most - kills.count)
        ended = killed_until_done(
            begin, rng, seconds, turns, lambda cache=cache: phase_of(cache), kills
        )  # type: ignore[misc]
        assert sha_of(ended) == sha, (method, life)
        assert leftovers(cache) == []
    if most == 30:
        assert kills.phases["between checkpoints"] > 0, kills


@pytest.mark.slow
@pytest.mark.parametrize(
    "deaths",
    [
        [("open", ".tmp", 1)],  # nothing written yet
        [("os.rename", "spec.json", 1)],  # the spec whole, but not in place
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
    undisturbed: Undisturbed,
    tmp_path: Path,
    deaths: list[tuple[str, str, int]],
) -> None:
    arguments = score_arguments(model, tmp_path, "shapley", **METHODS["shapley"])
    for death in deaths:
        assert nursery.start(arguments, death).wait().killed
    assert len([*tmp_path.glob("*/.*.tmp")]) == (deaths[-1][0] == "os.rename")
    assert sha_of(nursery.start(arguments).wait()) == undisturbed("shapley")[0]
    assert list(tmp_path.glob("*/.*.tmp")) == []  # the dead process's file is swept away
    assert leftovers(tmp_path) == []  # and so is its checkpoint
    assert Store(tmp_path).scan().problems == ()


def address_of(home: Path, pid: int | None) -> str | None:
    """Where the worker of this process listens, once it says so."""
    try:
        said = json.loads((home / "worker.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return str(said["url"]) if pid in (None, said["pid"]) else None


def spec_of(model: Path) -> dict[str, Any]:
    return {
        "model": str(model),
        "task": "intents",
        "languages": ["de"],
        "method": "shapley",
        "size": SIZE,
        "options": {"samples": 1024, "target": None},
    }


def has_got_on(client: Client, job: int, steps: int) -> bool:
    """Whether a job has made more steps than these, or all of them."""
    state = client.job(job)
    return state.done > steps or state.state == "done"


def wait_until_done(client: Client, job: int) -> None:
    """To the end of a job; one that was given up because its worker died too often is resumed by hand."""
    if client.job(job).state == "failed":
        assert "the worker died" in client.job(job).error
        client.resume(job)
    until(lambda: client.job(job).state not in ("queued", "running"), "the end of the job", 240)
    assert client.job(job).state == "done", client.job(job)


@pytest.fixture(scope="module")
def job_sha(nursery: Nursery, model: Path, folder: Path) -> str:
    options = {"samples": 1024, "target": "none"}
    return sha_of(
        nursery.start(score_arguments(model, folder / "job", "shapley", **options)).wait()
    )


@pytest.mark.slow
@pytest.mark.parametrize("most", [2, pytest.param(6, marks=pytest.mark.soak)])
def test_a_worker_killed_at_random_moments_ends_its_job_with_the_same_bits(
    nursery: Nursery, model: Path, job_sha: str, tmp_path: Path, most: int
) -> None:
    rng = np.random.default_rng(5)
    killed = 0
    job = 0
    arguments = ["worker", "--port", "0", "--cache", str(tmp_path)]
    while True:
        child = nursery.start(arguments)
        client = Client(
            str(until(lambda child=child: address_of(tmp_path / ".worker", child.pid), "a worker"))
        )  # type: ignore[misc]
        try:
            job = job or client.submit(spec=spec_of(model)).id
            if killed >= most:
                wait_until_done(client, job)
                break
            if client.job(job).state == "failed":
                client.resume(job)
            assert child.ended_within(rng.uniform(0.1, 1.2)) is None
        finally:
            client.close()
            ended = child.kill()
        assert ended.killed
        killed += 1
    (found,) = Store(tmp_path).scan().results
    assert found.record.values_sha256() == job_sha
    assert leftovers(tmp_path) == []


TOKEN = "for-the-worker-of-the-killed-app"


@contextmanager
def app(cache: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`streamlit run app.py` with one visitor; killed at the end."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from websockets.sync.client import connect

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = (
        {k: v for k, v in os.environ.items() if k != "HEADLAB_WORKER"}
        | SETTINGS
        | {"HEADLAB_CACHE": str(cache), "HEADLAB_TOKEN": TOKEN}
    )
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    with (cache / "app.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/_stcore/health"), "the app")
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
            until(
                lambda: (
                    (address_of(tmp_path / ".worker", None) is not None)
                    and worker_of(tmp_path, process.pid)
                )
            )
            client = Client(str(address_of(tmp_path / ".worker", None)), TOKEN)
            pids.append(json.loads((tmp_path / ".worker" / "worker.json").read_text())["pid"])
            try:
                job = job or client.submit(spec=spec_of(model)).id
                assert [found.id for found in client.jobs()] == [job]
                if turn == 1:
                    wait_until_done(client, job)
                else:
                    at = client.job(job).done
                    until(partial(has_got_on, client, job, at))
            finally:
                client.close()
            assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        until(lambda: not alive(pids[-1]))  # the worker ends with its app
    assert len(set(pids)) == 2
    (found,) = Store(tmp_path).scan().results
    assert found.record.values_sha256() == job_sha


def worker_of(cache: Path, app: int) -> bool:
    """Whether the worker that announced itself last was started by this app."""
    return bool(json.loads((cache / ".worker" / "worker.json").read_text())["parent"] == app)


@pytest.mark.soak
def test_the_command_line_on_the_embedded_model_killed_gives_the_same_bits(tmp_path: Path) -> None:
    """As a user starts it: a new process each time, on all cores."""
    rng = np.random.default_rng(6)
    command = [
        sys.executable,
        "-m",
        "headlab.cli",
        "score",
        "--languages",
        "de",
        "--size",
        "32",
        "-o",
        "samples=16",
        "-o",
        "target=none",
        "--json",
        "--cache",
    ]

    def begin(cache: str) -> subprocess.Popen[str]:
        whole = [*command, str(tmp_path / cache)]
        return subprocess.Popen(
            whole, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def end(process: subprocess.Popen[str]) -> str:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        return str(json.loads(out)["languages"]["de"]["values_sha256"])

    started = time.monotonic()
    whole = end(begin("undisturbed"))
    seconds = time.monotonic() - started
    for killed in (
        "killed",
        "killed-again",
        "killed-once-more",
    ):  # where other programs ended, it may be too late
        process = begin(killed)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=float(rng.uniform(0.3, 0.7)) * seconds)
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            break
    assert process.returncode == -signal.SIGKILL
    assert end(begin(killed)) == whole
    assert Store(tmp_path / killed).scan().problems == ()
