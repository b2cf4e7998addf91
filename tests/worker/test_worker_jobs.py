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
from support.running_worker import RunningWorker, evaluate_request, started_worker
from support.waiting import wait_until
from support.worker_jobs import wait_for_progress, wait_for_state

from headlab.dashboard.panels.jobs import job_format
from headlab.results import StoredRun
from headlab.worker.jobs import CREATE_VERSION_1, MAX_LOG_LINES, VERSION, JobList
from headlab.worker.runner import clear_checkpoint

SPEC: dict[str, Any] = {
    "model": MODEL,
    "task": "intents",
    "languages": ["de"],
    "method": "random",
    "seed": 1,
}
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RunningWorker]:
    with started_worker(tmp_path, partial(FakeBench, tmp_path, 0.02)) as worker:
        yield worker


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobList]:
    job_list = JobList(tmp_path / "jobs.db")
    yield job_list
    job_list.close()


def submit(worker: RunningWorker, **changes: Any) -> int:
    """Submit a score job, with some fields changed, and return its number."""
    return int(worker.client.submit("score", {**SPEC, **changes}).id)


def begin_job(worker: RunningWorker, **changes: Any) -> int:
    job = submit(worker, **changes)
    wait_for_progress(worker.client, job, 2)
    return job


def cancelled_job(worker: RunningWorker, **changes: Any) -> int:
    job = begin_job(worker, **changes)
    worker.client.cancel(job)
    wait_for_state(worker.client, job, "cancelled")
    return job


def log_lines(worker: RunningWorker, job: int) -> list[str]:
    """The log without its times, which are checked here."""
    lines_with_times = worker.client.log(job)
    assert all(re.match(TIME, line) for line in lines_with_times)
    times = [line[:20] for line in lines_with_times]
    assert times == sorted(times)
    return lines_without_times(lines_with_times)


def lines_without_times(lines: list[str]) -> list[str]:
    return [line[21:] for line in lines]


# Kinds and places


def test_a_job_that_is_done_has_a_result(worker: RunningWorker) -> None:
    job = submit(worker)
    assert worker.client.job(job).result is None
    row = wait_for_state(worker.client, job, "done")
    assert row.result == {"keys": [f"key {job}"]}
    assert row.place == "here"


@pytest.mark.parametrize(
    "body", [{"kind": "dance", "spec": SPEC}, {"spec": SPEC}, {"kind": "score", "spec": {}}]
)
def test_a_kind_that_does_not_exist_is_refused(worker: RunningWorker, body: dict[str, Any]) -> None:
    for path in ("/jobs", "/forecast"):
        assert httpx.post(worker.url + path, json=body).status_code == 422
    assert worker.client.jobs() == []


@pytest.mark.parametrize("kind", ["shrink", "train lm"])
def test_a_job_of_the_terminal_alone_is_refused_with_its_command(
    worker: RunningWorker, kind: str
) -> None:
    for path in ("/jobs", "/forecast"):
        body = {"kind": kind, "spec": {"out": "smaller"}}
        answer = httpx.post(worker.url + path, json=body)
        assert answer.status_code == 422
        assert answer.json()["code"] == "job.terminal_only"
        assert f"run headlab {kind} there" in answer.json()["error"]
    assert worker.client.jobs() == []


@pytest.mark.parametrize(
    ("kind", "change", "expected_words"),
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
    worker: RunningWorker, kind: str, change: dict[str, Any], expected_words: str
) -> None:
    spec = {"task": "intents"} if kind == "finetune" else SPEC
    body = {"kind": kind, "spec": spec, **change}
    answer = httpx.post(f"{worker.url}/jobs", json=body)
    assert answer.status_code == 422
    assert expected_words in answer.json()["error"]
    assert worker.client.jobs() == []


def test_the_same_work_is_one_job_wherever_it_is_computed(tmp_path: Path) -> None:
    with started_worker(tmp_path, partial(FakeBench, tmp_path, 0.02), ray="local") as worker:
        assert worker.client.health().ray == "local"
        job = worker.client.submit("score", SPEC, place="ray").id
        assert worker.client.submit("score", SPEC).id == job
        assert worker.client.job(job).place == "ray"
        assert log_lines(worker, job)[0] == "submitted, to be computed on ray"
        wait_for_progress(worker.client, job, 2)
        worker.client.cancel(job)
        wait_for_state(worker.client, job, "cancelled")
        assert worker.client.resume(job).place == "ray"


def test_health_counts_running_and_waiting_jobs(worker: RunningWorker) -> None:
    begin_job(worker)
    submit(worker, seed=2)
    health = worker.client.health()
    assert health.jobs_running == 1
    assert health.jobs_waiting == 1
    assert health.ray == ""


# Log


def test_a_log_tells_what_happened(worker: RunningWorker) -> None:
    job = cancelled_job(worker)
    worker.client.resume(job)
    wait_for_state(worker.client, job, "done")
    assert log_lines(worker, job) == [
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
    failed_job = submit(worker, seed=13)
    error = wait_for_state(worker.client, failed_job, "failed").error
    assert log_lines(worker, failed_job)[-1] == f"failed: {error}"
    with raises("job.unknown", 99):
        worker.client.log(99)


def test_a_waiting_job_s_cancellation_is_logged_once(worker: RunningWorker) -> None:
    begin_job(worker)
    waiting_job = submit(worker, seed=2)
    for _ in range(2):
        worker.client.cancel(waiting_job)
    assert log_lines(worker, waiting_job) == ["submitted", "cancelled"]


def test_a_log_outlives_the_worker_and_says_how_it_ended(tmp_path: Path) -> None:
    with started_worker(tmp_path, partial(FakeBench, tmp_path, 0.02)) as worker:
        job = begin_job(worker)
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.log(job)[-1].endswith("requeued: the worker is shutting down")
    assert jobs.claim() is not None
    jobs.close()  # nothing more is written, as after kill -9
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.log(job)[-1].endswith("the worker died")
    jobs.close()


def test_a_log_keeps_its_last_lines(jobs: JobList) -> None:
    long_log_job = jobs.submit("score", {"seed": 1}).id
    other_job = jobs.submit("score", {"seed": 2}).id
    for number in range(MAX_LOG_LINES + 20):
        jobs.add_log_line(long_log_job, f"line {number}")
    logged_lines = jobs.log(long_log_job)
    assert len(logged_lines) == MAX_LOG_LINES
    assert logged_lines[-1].endswith(f"line {MAX_LOG_LINES + 19}")
    assert logged_lines[0].endswith("line 20")
    assert len(jobs.log(other_job)) == 1


# Deleting


def test_a_job_is_deleted_with_its_log_and_checkpoint(
    worker: RunningWorker, tmp_path: Path
) -> None:
    job = cancelled_job(worker)
    (checkpoint,) = tmp_path.glob("*/checkpoint.npz")
    answer = httpx.delete(f"{worker.url}/jobs/{job}")
    assert answer.json() == {"deleted": True}
    assert not checkpoint.parent.exists()
    assert worker.client.jobs() == []
    for ask in (worker.client.job, worker.client.log, worker.client.delete):
        with raises("job.unknown", f"job {job}"):
            ask(job)


def test_a_running_job_is_not_deleted(worker: RunningWorker) -> None:
    job = begin_job(worker)
    assert httpx.delete(f"{worker.url}/jobs/{job}").status_code == 409
    with raises("job.running", f"job {job}"):
        worker.client.delete(job)
    assert wait_for_state(worker.client, job, "done").error is None


def test_a_waiting_job_is_deleted_and_never_runs(worker: RunningWorker) -> None:
    running_job = begin_job(worker)
    waiting_job = submit(worker, seed=2)
    worker.client.delete(waiting_job)
    wait_for_state(worker.client, running_job, "done")
    assert [job.id for job in worker.client.jobs()] == [running_job]


def test_a_finished_result_outlives_its_job(worker: RunningWorker, tmp_path: Path) -> None:
    job = cancelled_job(worker)
    (checkpoint,) = tmp_path.glob("*/checkpoint.npz")
    result = checkpoint.with_name("result.npz")
    result.write_bytes(b"scores")
    worker.client.delete(job)
    names = sorted(path.name for path in result.parent.iterdir())
    assert names == ["result.npz", "spec.json"]


@pytest.mark.parametrize("other_state", ["queued", "cancelled"])
def test_a_checkpoint_that_another_job_would_go_on_from_stays(
    worker: RunningWorker, tmp_path: Path, other_state: str
) -> None:
    """The deleted job has two languages, one of them shared with the other job.

    The other job has never run, or was cancelled in the middle.
    """
    job = cancelled_job(worker, languages=["de", "fr"])
    if other_state == "queued":
        running_job = begin_job(worker, seed=7, method="gradient")
        other_job = submit(worker)
        assert worker.client.job(other_job).state == "queued"
    else:
        running_job = job
        other_job = cancelled_job(worker)
    bench = FakeBench(tmp_path)
    german = bench.run_of(SPEC, "de")
    french = bench.run_of(SPEC, "fr")
    assert german.checkpoint() is not None
    assert french.checkpoint() is not None
    worker.client.delete(job)
    assert german.checkpoint() is not None
    assert not french.folder.exists()
    if running_job != job:
        worker.client.cancel(running_job)
    worker.client.cancel(other_job)
    wait_for_state(worker.client, other_job, "cancelled")
    if other_state == "cancelled":
        worker.client.delete(other_job)
        assert not german.folder.exists()


def test_only_folders_of_runs_are_cleared(tmp_path: Path) -> None:
    for name in ("precious", "adapters", f"{'a' * 64}x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checkpoint.npz").write_bytes(b"x")
        clear_checkpoint(tmp_path, name)
        assert (tmp_path / name / "checkpoint.npz").exists()
    clear_checkpoint(tmp_path / "precious", "../adapters")
    assert (tmp_path / "adapters" / "checkpoint.npz").exists()
    run_folder = tmp_path / ("b" * 64)
    run_folder.mkdir()
    for name in ("checkpoint.npz", "spec.json", "notes.txt"):
        (run_folder / name).write_bytes(b"x")
    clear_checkpoint(tmp_path, run_folder.name)
    assert [path.name for path in run_folder.iterdir()] == ["notes.txt"]
    clear_checkpoint(tmp_path, "c" * 64)  # was never there


# Lists of an earlier version


def write_version_1(path: Path) -> None:
    """Write a job list as version 1 did: one job running, one done."""
    db = sqlite3.connect(path)
    for statement in CREATE_VERSION_1:
        db.execute(statement)
    insert = (
        "insert into jobs(dedup,kind,params,state,done,total,attempts,created,started) "
        "values(?,?,?,?,?,?,1,1.5,2.5)"
    )
    for seed, state in ((1, "running"), (2, "done")):
        params = json.dumps({**SPEC, "seed": seed}, sort_keys=True, separators=(",", ":"))
        db.execute(insert, (f"score:{params}", "score", params, state, 5, 9))
    db.execute("pragma user_version=1")
    db.commit()
    db.close()


def test_a_list_of_the_earlier_version_keeps_its_jobs(tmp_path: Path) -> None:
    write_version_1(tmp_path / "jobs.db")
    for _ in range(2):  # the second time the list is of this version already
        jobs = JobList(tmp_path / "jobs.db")
        done_job, waiting_job = jobs.list()
        assert waiting_job.id == 1
        assert waiting_job.state == "queued"
        assert waiting_job.place == "here"
        assert waiting_job.done == 5
        assert waiting_job.created == 1.5
        assert done_job.id == 2
        assert done_job.state == "done"
        assert done_job.result is None
        assert done_job.params["seed"] == 2
        assert jobs.submit("score", waiting_job.params).id == 1
        assert lines_without_times(jobs.log(1)) == ["the worker died"]
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
def test_reported_19_a_job_that_cannot_be_read_does_not_hold_up_the_others(
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
        claimed_job = jobs.claim()
        assert claimed_job is not None
        assert claimed_job.id == ids[0]
    finally:
        jobs.close()


def test_a_change_of_version_is_made_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_version_1(tmp_path / "jobs.db")
    broken_upgrades = (
        CREATE_VERSION_1,
        ("alter table jobs add column place text not null default 'here'", "create nonsense"),
    )
    with monkeypatch.context() as patch:
        patch.setattr("headlab.worker.jobs.UPGRADES", broken_upgrades)
        with raises("job.list_unusable"):
            JobList(tmp_path / "jobs.db")
    jobs = JobList(tmp_path / "jobs.db")
    assert len(jobs.list()) == 2
    jobs.close()


# A full disk


def fill(jobs: JobList) -> None:
    """Leave no room in the file of the job list, neither for a page nor in the last one."""
    run_sql = jobs.database.run
    ((pages,),) = run_sql("pragma page_count")
    ((max_pages,),) = run_sql(f"pragma max_page_count={pages}")
    assert max_pages == pages
    for size in (4000, 400, 40, 4, 0):
        insert_row = partial(run_sql, "insert into events(job,at,line) values(0,0,?)", "x" * size)
        with raises("file.no_space", "full"):
            deque(iter(insert_row, None), maxlen=0)


def free(jobs: JobList) -> None:
    jobs.database.run("pragma max_page_count=100000")


def test_a_job_list_without_room_says_so_and_the_worker_goes_on(worker: RunningWorker) -> None:
    job = begin_job(worker)
    fill(worker.jobs)
    body = {"kind": "score", "spec": {**SPEC, "seed": 3}}
    answer = httpx.post(f"{worker.url}/jobs", json=body)
    assert answer.status_code == 503
    assert "disk is full); free some space" in answer.json()["error"]
    # The job ends, though its end cannot be written yet.
    wait_until(lambda: "free some space" in worker.client.health().note)
    assert worker.client.job(job).state == "running"
    figures = list(worker.client.evaluate(evaluate_request(MODEL, "intents", "de")))
    assert figures[-1].done
    free(worker.jobs)
    row = wait_for_state(worker.client, job, "done")
    assert row.result == {"keys": [f"key {job}"]}
    wait_until(lambda: worker.client.health().note == "")
    second_job = submit(worker, seed=3)
    wait_for_state(worker.client, second_job, "done")


def steps_in(steps_file: Path) -> int:
    """How many steps the fake job has made; its file is empty while it is written."""
    return int(steps_file.read_text() or 0)


def test_a_locked_job_list_does_not_end_a_job(worker: RunningWorker, tmp_path: Path) -> None:
    job = begin_job(worker)
    locking_connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    locking_connection.execute("begin immediate")
    steps_file = tmp_path / f"job-{job}.txt"
    steps = steps_in(steps_file)
    # The job goes on, though its progress cannot be written.
    wait_until(lambda: steps_in(steps_file) >= steps + 3)
    locking_connection.execute("commit")
    locking_connection.close()
    assert wait_for_state(worker.client, job, "done").attempts == 1


def test_a_job_on_a_full_disk_fails_with_what_to_do_and_is_resumed(
    worker: RunningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_for_space(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headlab.core.files.os.fsync", refuse_for_space)
        job = submit(worker)
        failed_row = wait_for_state(worker.client, job, "failed")
    assert re.match("no space left to write .*; free some", failed_row.error)
    figures = list(worker.client.evaluate(evaluate_request(MODEL, "intents", "de")))
    assert figures[-1].done
    worker.client.resume(job)
    assert wait_for_state(worker.client, job, "done").done == STEPS


def test_two_threads_submit_the_same_work_once(jobs: JobList) -> None:
    job_ids: list[int] = []
    threads = [
        threading.Thread(target=lambda: job_ids.append(jobs.submit("score", SPEC).id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert job_ids == [1] * 8
    assert lines_without_times(jobs.log(1)) == ["submitted"]


def test_a_run_s_checkpoint_is_what_a_run_writes(tmp_path: Path) -> None:
    """`clear_checkpoint` knows these files by their names."""
    stored_run = StoredRun(tmp_path / ("d" * 64), {"x": 1})
    stored_run.save({"draws": np.array(1)})
    stored_run.log("a line")
    names = {path.name for path in stored_run.folder.iterdir()}
    assert names == {"checkpoint.npz", "spec.json", "log.txt"}
    clear_checkpoint(tmp_path, stored_run.folder.name)
    assert not stored_run.folder.exists()


def test_a_clock_that_jumps_changes_neither_the_order_of_jobs_nor_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every reading the clock jumps: back a day, forward a century, back again."""
    clock = deque([1e9, 1e9 - 86_400, 5e9, 1e9])

    def read_clock() -> float:
        clock.rotate(-1)
        return clock[0]

    monkeypatch.setattr("headlab.worker.jobs.time.time", read_clock)
    jobs = JobList(tmp_path / "jobs.db")
    job_ids = [jobs.submit("score", {**SPEC, "seed": seed}).id for seed in range(4)]
    for job in job_ids[:3]:
        claimed_job = jobs.claim()
        assert claimed_job is not None
        assert claimed_job.id == job
        jobs.add_log_line(job, "at work")
    jobs.end(job_ids[0], "done", result={"keys": []})
    jobs.close()
    jobs = JobList(tmp_path / "jobs.db")  # a worker that died left the others running
    first_job, *other_jobs = job_ids
    queued_rows = [(job, "queued") for job in reversed(other_jobs)]
    rows = [(job.id, job.state) for job in jobs.list()]
    assert rows == [*queued_rows, (first_job, "done")]
    last_lines = lines_without_times(jobs.log(job_ids[1]))[-2:]
    assert last_lines == ["at work", "the worker died"]
    for job in jobs.list():
        assert "-" not in job_format.ended_line(job, read_clock())
        assert job_format.waiting_line(job, 1, read_clock())
    jobs.close()
