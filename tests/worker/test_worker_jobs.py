"""The job list: its log, its deletions, lists of an earlier version, and a disk that is full."""

from __future__ import annotations

import errno
import json
import re
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.expected_errors import raises
from support.fake_worker import MODEL, STEPS, FakeBench
from support.running_worker import Running, evaluation, running
from support.waiting import until

from headlab.dashboard.panels import job_format
from headlab.results import StoredRun
from headlab.worker.jobs import CREATE_VERSION_1, MAX_LOG_LINES, VERSION, JobList
from headlab.worker.runner import clear_checkpoint
from headlab.worker.schemas import JobRow

SPEC: dict[str, Any] = {
    "model": MODEL,
    "task": "intents",
    "languages": ["de"],
    "method": "random",
    "seed": 1,
}
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, partial(FakeBench, tmp_path, 0.02)) as run:
        yield run


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobList]:
    opened = JobList(tmp_path / "jobs.db")
    yield opened
    opened.close()


def started(worker: Running, **changes: Any) -> int:
    job = int(worker.client.submit("score", {**SPEC, **changes}).id)
    until(lambda: worker.client.job(job).done >= 2)
    return job


def ended(worker: Running, job: int, state: str) -> JobRow:
    until(lambda: worker.client.job(job).state == state)
    return worker.client.job(job)


def cancelled(worker: Running, **changes: Any) -> int:
    job = started(worker, **changes)
    worker.client.cancel(job)
    ended(worker, job, "cancelled")
    return job


def lines(worker: Running, job: int) -> list[str]:
    """The log without its times, which are checked here."""
    told = worker.client.log(job)
    assert all(re.match(TIME, line) for line in told)
    assert [line[:20] for line in told] == sorted(line[:20] for line in told)
    return [line[21:] for line in told]


# Kinds and places


def test_a_job_that_is_done_has_a_result(worker: Running) -> None:
    job = int(worker.client.submit("score", SPEC).id)
    assert worker.client.job(job).result is None
    done = ended(worker, job, "done")
    assert (done.result, done.place) == ({"keys": [f"key {job}"]}, "here")


@pytest.mark.parametrize(
    "body", [{"kind": "dance", "spec": SPEC}, {"spec": SPEC}, {"kind": "score", "spec": {}}]
)
def test_a_kind_that_does_not_exist_is_refused(worker: Running, body: dict[str, Any]) -> None:
    for path in ("/jobs", "/forecast"):
        assert httpx.post(worker.url + path, json=body).status_code == 422
    assert worker.client.jobs() == []


@pytest.mark.parametrize("kind", ["shrink", "train lm"])
def test_a_job_of_the_terminal_alone_is_refused_with_its_command(
    worker: Running, kind: str
) -> None:
    for path in ("/jobs", "/forecast"):
        answer = httpx.post(worker.url + path, json={"kind": kind, "spec": {"out": "smaller"}})
        assert answer.status_code == 422
        assert answer.json()["code"] == "job.terminal_only"
        assert f"run headlab {kind} there" in answer.json()["error"]
    assert worker.client.jobs() == []


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("score", {"place": "moon"}, "place: Input should be 'here' or 'ray'"),
        ("finetune", {"place": "ray"}, "place: Input should be 'here'"),
        ("score", {"place": "ray"}, "this worker has no Ray"),
        (
            "score",
            {"spec": {**SPEC, "method": "gradient", "options": {"batch_size": 5000}}},
            "1024 at most",
        ),
        ("finetune", {"spec": {"task": "intents", "steps": 10**9}}, "less than or equal to 20000"),
        (
            "curve",
            {"spec": {**SPEC, "points": 1}},
            "points: Input should be greater than or equal to 2",
        ),
    ],
)
def test_what_is_too_large_or_cannot_be_done_here_is_refused(
    worker: Running, kind: str, change: dict[str, Any], said: str
) -> None:
    spec = {"task": "intents"} if kind == "finetune" else SPEC
    answer = httpx.post(f"{worker.url}/jobs", json={"kind": kind, "spec": spec, **change})
    assert answer.status_code == 422
    assert said in answer.json()["error"]
    assert worker.client.jobs() == []


def test_the_same_work_is_one_job_wherever_it_is_computed(tmp_path: Path) -> None:
    with running(tmp_path, partial(FakeBench, tmp_path, 0.02), ray="local") as worker:
        assert worker.client.health().ray == "local"
        first = worker.client.submit("score", SPEC, place="ray").id
        assert worker.client.submit("score", SPEC).id == first
        assert worker.client.job(first).place == "ray"
        assert lines(worker, first)[0] == "submitted, to be computed on ray"
        until(lambda: worker.client.job(first).done >= 2)
        worker.client.cancel(first)
        ended(worker, first, "cancelled")
        assert worker.client.resume(first).place == "ray"


def test_health_counts_what_waits(worker: Running) -> None:
    started(worker)
    worker.client.submit("score", {**SPEC, "seed": 2})
    health = worker.client.health()
    assert (health.jobs_running, health.jobs_waiting, health.ray) == (1, 1, "")


# Log


def test_a_log_tells_what_happened(worker: Running) -> None:
    job = cancelled(worker)
    worker.client.resume(job)
    ended(worker, job, "done")
    assert lines(worker, job) == [
        "submitted",
        "started, attempt 1",
        "de: scores started",
        "to be cancelled at its next batch",
        "cancelled",
        "resumed",
        "started, attempt 1",
        "de: scores started",
        "done",
    ]
    failed = int(worker.client.submit("score", {**SPEC, "seed": 13}).id)
    error = ended(worker, failed, "failed").error
    assert lines(worker, failed)[-1] == f"failed: {error}"
    with raises("job.unknown", 99):
        worker.client.log(99)


def test_a_waiting_job_s_cancellation_is_told_once(worker: Running) -> None:
    started(worker)
    waiting = int(worker.client.submit("score", {**SPEC, "seed": 2}).id)
    for _ in range(2):
        worker.client.cancel(waiting)
    assert lines(worker, waiting) == ["submitted", "cancelled"]


def test_a_log_outlives_the_worker_and_says_how_it_went(tmp_path: Path) -> None:
    with running(tmp_path, partial(FakeBench, tmp_path, 0.02)) as worker:
        job = started(worker)
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.log(job)[-1].endswith("requeued: the worker is shutting down")
    assert jobs.claim() is not None
    jobs.close()  # and never another word: as after kill -9
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.log(job)[-1].endswith("the worker died")
    jobs.close()


def test_a_log_keeps_its_last_lines(jobs: JobList) -> None:
    first, other = (jobs.submit("score", {"seed": seed}).id for seed in (1, 2))
    for number in range(MAX_LOG_LINES + 20):
        jobs.add_log_line(first, f"line {number}")
    told = jobs.log(first)
    assert len(told) == MAX_LOG_LINES
    assert told[-1].endswith(f"line {MAX_LOG_LINES + 19}")
    assert told[0].endswith("line 20")
    assert len(jobs.log(other)) == 1


# Deleting


def test_a_job_is_deleted_with_its_log_and_checkpoint(worker: Running, tmp_path: Path) -> None:
    job = cancelled(worker)
    (checkpoint,) = tmp_path.glob("*/checkpoint.npz")
    assert httpx.delete(f"{worker.url}/jobs/{job}").json() == {"deleted": True}
    assert not checkpoint.parent.exists()
    assert worker.client.jobs() == []
    for ask in (worker.client.job, worker.client.log, worker.client.delete):
        with raises("job.unknown", f"job {job}"):
            ask(job)


def test_a_running_job_is_not_deleted(worker: Running) -> None:
    job = started(worker)
    assert httpx.delete(f"{worker.url}/jobs/{job}").status_code == 409
    with raises("job.running", f"job {job}"):
        worker.client.delete(job)
    assert ended(worker, job, "done").error is None


def test_a_waiting_job_is_deleted_and_never_runs(worker: Running) -> None:
    first = started(worker)
    waiting = int(worker.client.submit("score", {**SPEC, "seed": 2}).id)
    worker.client.delete(waiting)
    ended(worker, first, "done")
    assert [job.id for job in worker.client.jobs()] == [first]


def test_a_finished_result_outlives_its_job(worker: Running, tmp_path: Path) -> None:
    job = cancelled(worker)
    (checkpoint,) = tmp_path.glob("*/checkpoint.npz")
    result = checkpoint.with_name("result.npz")
    result.write_bytes(b"scores")
    worker.client.delete(job)
    assert sorted(path.name for path in result.parent.iterdir()) == ["result.npz", "spec.json"]


@pytest.mark.parametrize("ends", ["queued", "cancelled"])
def test_a_checkpoint_that_another_job_would_go_on_from_stays(
    worker: Running, tmp_path: Path, ends: str
) -> None:
    """Two languages, one of them shared with a job that has never run, or that was cancelled in the middle."""
    job = cancelled(worker, languages=["de", "fr"])
    if ends == "queued":
        busy = started(worker, seed=7, method="gradient")
        other = int(worker.client.submit("score", SPEC).id)
        assert worker.client.job(other).state == "queued"
    else:
        busy = job
        other = cancelled(worker)
    bench = FakeBench(tmp_path)
    german, french = (bench.run_of(SPEC, language) for language in ("de", "fr"))
    assert german.checkpoint() is not None
    assert french.checkpoint() is not None
    worker.client.delete(job)
    assert german.checkpoint() is not None
    assert not french.folder.exists()
    if busy != job:
        worker.client.cancel(busy)
    worker.client.cancel(other)
    ended(worker, other, "cancelled")
    if ends == "cancelled":
        worker.client.delete(other)
        assert not german.folder.exists()


def test_only_folders_of_runs_are_cleared(tmp_path: Path) -> None:
    for name in ("precious", "adapters", f"{'a' * 64}x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checkpoint.npz").write_bytes(b"x")
        clear_checkpoint(tmp_path, name)
        assert (tmp_path / name / "checkpoint.npz").exists()
    clear_checkpoint(tmp_path / "precious", "../adapters")
    assert (tmp_path / "adapters" / "checkpoint.npz").exists()
    run = tmp_path / ("b" * 64)
    run.mkdir()
    for name in ("checkpoint.npz", "spec.json", "notes.txt"):
        (run / name).write_bytes(b"x")
    clear_checkpoint(tmp_path, run.name)
    assert [path.name for path in run.iterdir()] == ["notes.txt"]
    clear_checkpoint(tmp_path, "c" * 64)  # was never there


# Lists of an earlier version


def old_list(path: Path) -> None:
    """A job list as version 1 wrote it: one job running, one done."""
    db = sqlite3.connect(path)
    for statement in CREATE_VERSION_1:
        db.execute(statement)
    insert = "insert into jobs(dedup,kind,params,state,done,total,attempts,created,started) values(?,?,?,?,?,?,1,1.5,2.5)"
    for seed, state in ((1, "running"), (2, "done")):
        params = json.dumps({**SPEC, "seed": seed}, sort_keys=True, separators=(",", ":"))
        db.execute(insert, (f"score:{params}", "score", params, state, 5, 9))
    db.execute("pragma user_version=1")
    db.commit()
    db.close()


def test_a_list_of_the_earlier_version_keeps_its_jobs(tmp_path: Path) -> None:
    old_list(tmp_path / "jobs.db")
    for _ in range(2):  # and again once it is of this version
        jobs = JobList(tmp_path / "jobs.db")
        done, waiting = jobs.list()
        assert (waiting.id, waiting.state, waiting.place, waiting.done, waiting.created) == (
            1,
            "queued",
            "here",
            5,
            1.5,
        )
        assert (done.id, done.state, done.result, done.params["seed"]) == (2, "done", None, 2)
        assert jobs.submit("score", waiting.params).id == 1
        assert [line[21:] for line in jobs.log(1)] == ["the worker died"]
        assert jobs.note == ""
        jobs.close()
    db = sqlite3.connect(tmp_path / "jobs.db")
    assert db.execute("pragma user_version").fetchone() == (VERSION,)
    db.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("done", "[]"),
        ("started", ""),
        ("result", -1),
        ("params", "{"),
        ("params", "[]"),
        ("state", "none"),
        ("place", "x"),
    ],
)
def test_reported_19_a_job_that_cannot_be_read_does_not_keep_the_others(
    tmp_path: Path, column: str, value: object
) -> None:
    jobs = JobList(tmp_path / "jobs.db")
    ids = [jobs.submit("score", {"seed": seed}).id for seed in range(3)]
    jobs.close()
    db = sqlite3.connect(tmp_path / "jobs.db")
    with db:
        db.execute(f"update jobs set {column}=? where id=?", (value, ids[1]))
    db.close()
    jobs = JobList(tmp_path / "jobs.db")
    try:
        assert [job.id for job in jobs.list()] == [ids[2], ids[0]]
        assert f"job {ids[1]} " in jobs.note
        claimed = jobs.claim()
        assert claimed is not None
        assert claimed.id == ids[0]
    finally:
        jobs.close()


def test_a_change_of_version_is_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_list(tmp_path / "jobs.db")
    broken = (
        CREATE_VERSION_1,
        ("alter table jobs add column place text not null default 'here'", "create nonsense"),
    )
    with monkeypatch.context() as patch:
        patch.setattr("headlab.worker.jobs.UPGRADES", broken)
        with raises("job.list_unusable"):
            JobList(tmp_path / "jobs.db")
    jobs = JobList(tmp_path / "jobs.db")
    assert len(jobs.list()) == 2
    jobs.close()


# A full disk


def fill(jobs: JobList) -> None:
    """No more room in the file of the job list: not a page, and not a corner of one."""
    run = jobs.database.run
    ((pages,),) = run("pragma page_count")
    assert [tuple(row) for row in run(f"pragma max_page_count={pages}")] == [(pages,)]
    for size in (4000, 400, 40, 4, 0):
        one = partial(run, "insert into events(job,at,line) values(0,0,?)", "x" * size)
        with raises("file.no_space", "full"):
            deque(iter(one, None), maxlen=0)


def free(jobs: JobList) -> None:
    jobs.database.run("pragma max_page_count=100000")


def test_a_job_list_without_room_says_so_and_the_worker_goes_on(worker: Running) -> None:
    job = started(worker)
    fill(worker.jobs)
    answer = httpx.post(f"{worker.url}/jobs", json={"kind": "score", "spec": {**SPEC, "seed": 3}})
    assert answer.status_code == 503
    assert "disk is full); free some space" in answer.json()["error"]
    # The job ends, though nothing of that can be written down yet.
    until(lambda: "free some space" in worker.client.health().note)
    assert worker.client.job(job).state == "running"
    assert list(worker.client.evaluate(evaluation(MODEL, "intents", "de")))[-1].done
    free(worker.jobs)
    assert ended(worker, job, "done").result == {"keys": [f"key {job}"]}
    until(lambda: worker.client.health().note == "")
    again = int(worker.client.submit("score", {**SPEC, "seed": 3}).id)
    ended(worker, again, "done")


def test_a_locked_job_list_does_not_end_a_job(worker: Running, tmp_path: Path) -> None:
    job = started(worker)
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("begin immediate")
    kept = tmp_path / f"job-{job}.txt"
    steps = int(kept.read_text() or 0)
    until(lambda: int(kept.read_text() or 0) >= steps + 3)  # it goes on without being written
    other.execute("commit")
    other.close()
    assert ended(worker, job, "done").attempts == 1


def test_a_job_on_a_full_disk_fails_with_what_to_do_and_is_resumed(
    worker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headlab.core.files.os.fsync", full)
        job = int(worker.client.submit("score", SPEC).id)
        failed = ended(worker, job, "failed")
    assert re.match("no space left to write .*; free some", failed.error)
    assert list(worker.client.evaluate(evaluation(MODEL, "intents", "de")))[-1].done
    worker.client.resume(job)
    assert ended(worker, job, "done").done == STEPS


def test_two_threads_submit_the_same_work_once(jobs: JobList) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(jobs.submit("score", SPEC).id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [1] * 8
    assert [line[21:] for line in jobs.log(1)] == ["submitted"]


def test_a_run_s_checkpoint_is_what_a_run_writes(tmp_path: Path) -> None:
    """`clear` knows the files by name; this is where they come from."""
    run = StoredRun(tmp_path / ("d" * 64), {"x": 1})
    run.save({"draws": np.array(1)})
    run.log("a line")
    assert {path.name for path in run.folder.iterdir()} == {
        "checkpoint.npz",
        "spec.json",
        "log.txt",
    }
    clear_checkpoint(tmp_path, run.folder.name)
    assert not run.folder.exists()


def test_a_clock_that_jumps_changes_neither_the_order_of_jobs_nor_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back a day, on a century, back again: with every look at it."""
    clock = deque([1e9, 1e9 - 86_400, 5e9, 1e9])

    def look() -> float:
        clock.rotate(-1)
        return clock[0]

    monkeypatch.setattr("headlab.worker.jobs.time.time", look)
    jobs = JobList(tmp_path / "jobs.db")
    made = [jobs.submit("score", {**SPEC, "seed": seed}).id for seed in range(4)]
    for job in made[:3]:
        claimed = jobs.claim()
        assert claimed is not None
        assert claimed.id == job
        jobs.add_log_line(job, "at work")
    jobs.end(made[0], "done", result={"keys": []})
    jobs.close()
    jobs = JobList(tmp_path / "jobs.db")  # a worker that died left the others running
    assert [(job.id, job.state) for job in jobs.list()] == [
        *((job, "queued") for job in made[:0:-1]),
        (made[0], "done"),
    ]
    assert [line[21:] for line in jobs.log(made[1])][-2:] == ["at work", "the worker died"]
    for job in jobs.list():
        assert "-" not in job_format.ended_line(job, look())
        assert job_format.waiting_line(job, 1, look())
    jobs.close()
