"""What the worker promises: live requests go first, nothing is lost, refusals are sentences."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import expect_error, raises
from support.fake_worker import MODEL, STEPS, FakeBench
from support.network_disk import on_python_path
from support.running_worker import (
    RunningWorker,
    attention_request,
    evaluate_request,
    started_worker,
)
from support.waiting import wait_until
from support.worker_jobs import wait_for_progress, wait_for_state

from headlab.core import HeadGrid, HeadlabError, Report, Stack
from headlab.jobs import Refusal, WatchedStore
from headlab.masks import full_mask
from headlab.worker import process, server
from headlab.worker.__main__ import main
from headlab.worker.client import Client
from headlab.worker.jobs import MAX_ATTEMPTS, JobList
from headlab.worker.middleware import AllowedModels
from headlab.worker.process import LocalWorker, RemoteWorker, take_home
from headlab.worker.runner import WorkerJob as RunningJob
from headlab.worker.schemas import MAX_CHARACTERS, MAX_HEADS, Figure

ENDING_SECONDS = 60.0  # a limit, not a wait
FAKE_WORKER = Path(__file__).parents[1] / "support" / "fake_worker.py"
FAKE_COMMAND = (sys.executable, str(FAKE_WORKER))
SPEC: dict[str, Any] = {
    "model": MODEL,
    "task": "intents",
    "languages": ["de"],
    "method": "random",
    "seed": 1,
}
SECRET = "turn off the secret lamp"


class WorkerWithBench:
    """A running worker around a fake bench."""

    def __init__(self, worker: RunningWorker, benches: list[FakeBench]) -> None:
        self.client = worker.client
        self.url = worker.url
        self.jobs = worker.jobs
        self.engine = worker.engine
        self._benches = benches

    @property
    def bench(self) -> FakeBench:
        wait_until(lambda: bool(self._benches))
        return self._benches[0]

    def idle(self) -> bool:
        return self.engine.idle

    def evaluate(self, language: str = "de", **options: Any) -> Iterator[Figure]:
        return self.client.evaluate(evaluate_request(MODEL, "intents", language, **options))

    def started_job(self, **options: Any) -> int:
        job = int(self.client.submit(spec={**SPEC, **options}).id)
        wait_for_progress(self.client, job, 2)
        return job


def make_bench(benches: list[FakeBench], folder: Path, pause: float) -> FakeBench:
    benches.append(FakeBench(folder, pause))
    return benches[0]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerWithBench]:
    benches: list[FakeBench] = []
    with started_worker(tmp_path, partial(make_bench, benches, tmp_path, 0.02)) as worker:
        yield WorkerWithBench(worker, benches)


@pytest.fixture
def slow_worker(tmp_path: Path) -> Iterator[WorkerWithBench]:
    """Long batches, so that what happens in the middle of an answer can be seen."""
    benches: list[FakeBench] = []
    with started_worker(tmp_path, partial(make_bench, benches, tmp_path, 0.1)) as worker:
        yield WorkerWithBench(worker, benches)


# Live requests


def test_an_answer_grows_until_it_is_done(worker: WorkerWithBench) -> None:
    figures = list(worker.evaluate())
    assert [figure.n for figure in figures] == [64, 256, 512]
    assert [figure.done for figure in figures] == [False, False, True]
    assert figures[0].baseline is None


def test_a_live_request_does_not_wait_for_a_job(worker: WorkerWithBench) -> None:
    worker.bench.waiting_step = 5
    job = int(worker.client.submit(spec=SPEC).id)
    wait_until(lambda: "step 4" in worker.bench.log)
    figures = list(worker.evaluate())
    assert figures[-1].done
    assert worker.client.job(job).state == "running"
    worker.bench.waiting_step = STEPS + 1
    wait_for_state(worker.client, job, "done")


def test_first_figures_go_before_the_rest_of_longer_answers(slow_worker: WorkerWithBench) -> None:
    bench = slow_worker.bench
    bench.pause = 0.01
    # The third batch, behind the first figure, does not end before the other request waits.
    bench.free_batches = 2
    bench.batches_may_end.clear()
    with ThreadPoolExecutor(2) as pool:
        german = pool.submit(list, slow_worker.evaluate())
        wait_until(lambda: bench.batches == 2)
        french = pool.submit(list, slow_worker.evaluate("fr"))
        wait_until(lambda: slow_worker.engine.waiting == 1)
        bench.batches_may_end.set()
        assert german.result()[-1].done
        assert french.result()[-1].done
    expected_order = [("de", 64), ("fr", 64), ("de", 256), ("de", 512)]
    positions = [bench.figures.index(figure) for figure in expected_order]
    assert positions == sorted(positions)


def test_a_newer_request_of_a_session_ends_the_older_ones(
    slow_worker: WorkerWithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = slow_worker.bench
    arrived_sizes = []
    real_evaluate = slow_worker.engine.evaluate

    def recorded_evaluate(request: Any, send: Any) -> Any:
        live = real_evaluate(request, send)
        arrived_sizes.append(request.size)
        return live

    monkeypatch.setattr(slow_worker.engine, "evaluate", recorded_evaluate)
    bench.pause = 0.01
    bench.batches_may_end.clear()
    with ThreadPoolExecutor(5) as pool:
        other_session = pool.submit(list, slow_worker.evaluate(session="b", size=5))
        wait_until(lambda: bench.log == ["begin b 5"])
        older = []
        for size in (1, 2, 3, 4):
            older.append(pool.submit(list, slow_worker.evaluate(session="a", size=size)))
            wait_until(lambda size=size: arrived_sizes[-1] == size)  # type: ignore[misc]
        bench.batches_may_end.set()
        assert older.pop().result()[-1].done
        assert other_session.result()[-1].done
        for older_request in older:
            expect_error(older_request.exception(), "worker.request_superseded")
    ends = [line for line in slow_worker.bench.log if line.startswith("end a")]
    assert ends == ["end a 4"]


def test_two_languages_of_a_session_do_not_end_each_other(worker: WorkerWithBench) -> None:
    with ThreadPoolExecutor(2) as pool:
        german = pool.submit(list, worker.evaluate("de", session="a"))
        french = pool.submit(list, worker.evaluate("fr", session="a"))
    assert german.result()[-1].done
    assert french.result()[-1].done


def test_an_answer_stops_when_its_reader_has_gone(slow_worker: WorkerWithBench) -> None:
    figures = slow_worker.evaluate()
    next(figures)
    figures.close()  # type: ignore[attr-defined] # a generator
    wait_until(slow_worker.idle)
    assert slow_worker.bench.batches < 13
    assert not any(line.startswith("end") for line in slow_worker.bench.log)


def test_nothing_is_computed_for_a_client_that_left_while_it_waited(
    slow_worker: WorkerWithBench,
) -> None:
    slow_worker.bench.pause = 0.5
    body = {
        "model": MODEL,
        "task": "intents",
        "language": "de",
        "session": "gone",
    }
    patience = httpx.Timeout(60, read=0.05)  # the question is sent whole, however slow the machine
    with httpx.Client(timeout=patience) as impatient, pytest.raises(httpx.TimeoutException):
        impatient.post(f"{slow_worker.url}/evaluate", json=body)
    wait_until(lambda: slow_worker.bench.log == ["begin gone 512"])
    wait_until(slow_worker.idle)
    assert slow_worker.bench.batches <= 2


def test_gates_of_a_job_are_unseen_by_live_requests(worker: WorkerWithBench) -> None:
    """The fake job sets a context variable as gates do.

    The fake evaluation asserts that it does not see it.
    """
    worker.started_job()
    assert list(worker.evaluate())[-1].done
    assert list(worker.evaluate())[-1].done


def test_another_model_is_refused_while_a_job_runs(worker: WorkerWithBench) -> None:
    worker.started_job()
    with raises("worker.other_model_in_use", "fake"):
        worker.client.load_model("other")
    grid = worker.client.load_model(MODEL).grid
    assert grid.to_json() == {"encoder": [4, 4]}


def test_too_many_waiting_requests_are_refused(
    slow_worker: WorkerWithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.worker.engine.MAX_WAITING", 1)
    first_figures = slow_worker.evaluate()
    next(first_figures)
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(lambda: list(slow_worker.evaluate())) for _ in range(6)]
        exceptions = [answer.exception() for answer in answers]
    errors = [str(exception) for exception in exceptions if exception is not None]
    assert errors
    assert all("waiting for the worker; try again in a moment" in error for error in errors)


def test_health_answers_before_the_device_is_there(tmp_path: Path) -> None:
    ready = threading.Event()

    def make() -> FakeBench:
        ready.wait(20)
        return FakeBench(tmp_path)

    with started_worker(tmp_path, make, wait=False) as worker:
        health = worker.client.health()
        assert health.ok
        assert health.device is None
        assert health.model is None
        assert health.pid == os.getpid()
        ready.set()
        worker.client.load_model(MODEL)
        assert worker.client.health().device == "fake device"
        assert worker.client.health().model == MODEL


def test_starting_a_worker_does_not_import_torch() -> None:
    code = (
        "import sys, headlab.worker.server, headlab.worker.process; "
        "sys.exit('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], check=False)
    assert process.returncode == 0


def test_a_device_that_cannot_be_set_up_is_reported_to_every_client(tmp_path: Path) -> None:
    def make() -> FakeBench:
        raise HeadlabError("device 'cuda' cannot be used here; use cpu", code="device.unusable")

    with started_worker(tmp_path, make, wait=False) as worker:
        wait_until(lambda: not worker.client.health().ok)
        assert "use cpu" in worker.client.health().note
        with raises("device.unusable", "cuda", "use cpu"):
            worker.client.load_model(MODEL)


# Jobs


def test_the_same_job_twice_is_one_job(worker: WorkerWithBench) -> None:
    job = worker.started_job()
    assert worker.client.submit(spec=SPEC).id == job
    spec_with_defaults = {**SPEC, "options": {}, "split": "dev"}
    assert worker.client.submit(spec=spec_with_defaults).id == job
    assert worker.client.submit(spec={**SPEC, "seed": 2}).id != job
    wait_for_state(worker.client, job, "done")
    assert worker.client.submit(spec=SPEC).id > job


def test_all_languages_are_filled_in_when_a_job_is_submitted() -> None:
    params = checked_fields("score", {**SPEC, "languages": "all"})
    assert len(params["languages"]) == 15
    assert params == checked_fields("score", {**SPEC, "languages": params["languages"]})


def test_a_running_job_tells_its_progress_and_the_time_left(worker: WorkerWithBench) -> None:
    job = worker.started_job()
    wait_until(lambda: worker.client.job(job).seconds_left is not None)
    row = worker.client.job(job)
    assert row.total == STEPS
    assert row.note.startswith("step ")
    assert 0 < row.seconds_left < 20 * STEPS * worker.bench.pause
    assert worker.client.health().jobs_running == 1
    wait_for_state(worker.client, job, "done")
    assert worker.client.job(job).seconds_left is None
    assert [listed_job.id for listed_job in worker.client.jobs()] == [job]


def test_a_running_and_a_waiting_job_are_cancelled_and_resumed(worker: WorkerWithBench) -> None:
    job = worker.started_job()
    waiting = worker.client.submit(spec={**SPEC, "seed": 2}).id
    assert worker.client.cancel(waiting).state == "cancelled"
    worker.client.cancel(job)
    wait_for_state(worker.client, job, "cancelled")
    steps_done = worker.client.job(job).done
    assert 2 <= steps_done < STEPS
    assert worker.client.resume(job).state == "queued"
    wait_for_state(worker.client, job, "done")
    steps = [line for line in worker.bench.log if line.startswith("step")]
    assert steps == [f"step {number}" for number in range(1, STEPS + 1)]
    with raises("job.not_resumable", f"job {job}", "done"):
        worker.client.resume(job)


def test_a_cancelled_job_that_was_asked_for_again_is_not_resumed_twice(
    worker: WorkerWithBench,
) -> None:
    running_job = worker.started_job()
    cancelled_job = worker.client.submit(spec={**SPEC, "seed": 5}).id
    worker.client.cancel(cancelled_job)
    second_job = worker.client.submit(spec={**SPEC, "seed": 5}).id
    assert second_job != cancelled_job
    with raises("job.work_queued_elsewhere"):
        worker.client.resume(cancelled_job)
    worker.client.cancel(running_job)


def test_a_failed_job_says_so_and_the_next_one_runs(
    worker: WorkerWithBench, caplog: pytest.LogCaptureFixture
) -> None:
    failing_job = worker.client.submit(spec={**SPEC, "seed": 13}).id
    next_job = worker.client.submit(spec=SPEC).id
    wait_for_state(worker.client, next_job, "done")
    failed_row = worker.client.job(failing_job)
    assert failed_row.state == "failed"
    assert "worker.log" in failed_row.error
    assert "KeyError" in caplog.text
    assert SECRET not in failed_row.error + caplog.text


def test_params_that_do_not_fit_are_refused_before_they_are_queued(worker: WorkerWithBench) -> None:
    with raises("method.unknown", "'magic'", "shapley"):
        worker.client.submit(spec={**SPEC, "method": "magic"})
    with raises("task.language_unknown", "'tlh'"):
        worker.client.submit(spec={**SPEC, "languages": ["tlh"]})
    with raises("method.option_unknown", "depth"):
        worker.client.submit(spec={**SPEC, "options": {"depth": 3}})
    assert worker.client.jobs() == []


def test_a_worker_that_stops_in_order_puts_its_job_back(tmp_path: Path) -> None:
    with started_worker(tmp_path, lambda: FakeBench(tmp_path)) as worker:
        job = worker.client.submit(spec=SPEC).id
        wait_for_progress(worker.client, job, 2)
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.get(job).state == "queued"
    assert jobs.get(job).attempts == 0
    jobs.close()


def test_a_job_that_kills_its_worker_is_given_up(tmp_path: Path) -> None:
    for attempt in range(1, MAX_ATTEMPTS + 1):
        jobs = JobList(tmp_path / "jobs.db")
        jobs.submit("score", SPEC)
        claimed_job = jobs.claim()
        assert claimed_job is not None
        assert claimed_job.attempts == attempt
        jobs.close()  # nothing more is written, as after kill -9
    jobs = JobList(tmp_path / "jobs.db")
    given_up = jobs.get(claimed_job.id)
    assert given_up.state == "failed"
    assert given_up.error is not None
    assert "died 3 times" in given_up.error
    assert jobs.claim() is None
    assert jobs.resume(claimed_job.id).attempts == 0
    jobs.close()


def test_a_job_that_makes_progress_between_kills_is_never_given_up(tmp_path: Path) -> None:
    for number in range(3 * MAX_ATTEMPTS):
        jobs = JobList(tmp_path / "jobs.db")
        jobs.submit("score", SPEC)
        claimed_job = jobs.claim()
        assert claimed_job is not None
        running_job = RunningJob(jobs, claimed_job, lambda: None)
        store = WatchedStore(tmp_path, on_stored=lambda *_, job=running_job: job.note_stored())
        if number % 2:
            store.run({"format": 1}).save({"n": np.zeros(1)})
        else:
            store.run({"format": 1}).finish(Report("made up", ()), {})
        jobs.close()  # nothing more is written, as after kill -9
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.get(claimed_job.id).state == "queued"
    jobs.close()


def test_a_cancellation_outlives_the_worker(tmp_path: Path) -> None:
    jobs = JobList(tmp_path / "jobs.db")
    job = jobs.submit("score", SPEC).id
    jobs.claim()
    jobs.cancel(job)
    jobs.close()
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.get(job).state == "cancelled"
    jobs.close()


def test_a_broken_job_list_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"not a database" * 1000)
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.list() == []
    assert "put aside" in jobs.note
    assert len(list(tmp_path.glob("jobs.db.broken-*"))) == 1
    jobs.close()


def test_reported_17_a_job_list_is_read_and_written_without_locks(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    jobs = JobList(path)
    first_job = jobs.submit("score", SPEC).id
    copy = tmp_path / "copied.db"
    # As a killed worker leaves the list: the job stands in the write-ahead log only.
    for suffix in ("", "-wal"):
        contents = path.with_name(path.name + suffix).read_bytes()
        copy.with_name(copy.name + suffix).write_bytes(contents)
    jobs.close()
    jobs_without_locks = JobList(copy, without_locks=True)
    second_job = jobs_without_locks.submit("score", {**SPEC, "seed": 2}).id
    assert not copy.with_name("copied.db-shm").exists()
    jobs_without_locks.close()
    jobs_with_locks = JobList(copy)
    assert [job.id for job in jobs_with_locks.list()] == [second_job, first_job]
    jobs_with_locks.close()


def test_reported_17_a_job_list_is_used_where_there_is_no_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class WithoutSharedMemory(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "pragma journal_mode=wal":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMOPEN
                raise error
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=WithoutSharedMemory))
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.list() == []
    jobs.close()
    assert caplog.text.count("no shared memory") == 1


def test_reported_17_a_job_list_that_cannot_be_opened_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    with raises("file.is_folder", tmp_path / "jobs.db"):
        JobList(tmp_path / "jobs.db")


def test_a_newer_job_list_is_refused_not_overwritten(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "jobs.db")
    db.execute("pragma user_version=99")
    db.close()
    with raises("job.list_newer", 99):
        JobList(tmp_path / "jobs.db")


def test_too_many_waiting_jobs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.worker.jobs.MAX_WAITING", 2)
    jobs = JobList(tmp_path / "jobs.db")
    for seed in range(2):
        jobs.submit("score", {**SPEC, "seed": seed})
    with raises("job.queue_full", 2, kind=Refusal):
        jobs.submit("score", {**SPEC, "seed": 9})
    jobs.close()


# Refusals


def test_errors_are_sentences(worker: WorkerWithBench) -> None:
    with raises("task.language_unknown", "'xx'", "en, de"):
        list(worker.evaluate("xx"))
    with raises("model.unknown", "missing", "fake"):
        worker.client.load_model("missing")
    with raises("job.unknown", 77):
        worker.client.job(77)
    with raises("task.unknown", "'nothing'"):
        worker.client.sentences("nothing", "de")
    assert list(worker.evaluate())[-1].done


@pytest.mark.parametrize("language", ["boom", "late"])
def test_the_unexpected_is_logged_without_what_was_typed(
    worker: WorkerWithBench, caplog: pytest.LogCaptureFixture, language: str
) -> None:
    with raises("worker.failed", "KeyError", "worker.log") as caught:
        list(worker.evaluate(language))
    assert "fake_worker.py" in caplog.text
    assert SECRET not in caplog.text + str(caught.value)
    assert list(worker.evaluate())[-1].done


def test_a_crash_outside_the_device_is_a_sentence_too(
    worker: WorkerWithBench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash() -> list[Any]:
        raise KeyError(SECRET)

    monkeypatch.setattr("headlab.worker.catalogue.tasks", crash)
    with raises("worker.failed", "KeyError"):
        worker.client.tasks()
    assert "GET /tasks: KeyError" in caplog.text
    assert SECRET not in caplog.text


def test_every_request_is_described(worker: WorkerWithBench) -> None:
    description = httpx.get(f"{worker.url}/openapi.json").json()
    assert set(description["paths"]) == {
        "/health",
        "/models",
        "/tasks",
        "/sentences",
        "/model",
        "/players",
        "/evaluate",
        "/changes",
        "/attention",
        "/gradient",
        "/forecast",
        "/jobs",
        "/jobs/{job}",
        "/jobs/{job}/snapshot",
        "/jobs/{job}/log",
        "/jobs/{job}/cancel",
        "/jobs/{job}/resume",
        "/check",
    }
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            if "requestBody" in operation:
                assert has_named_types(operation["requestBody"]), (method, path)
            assert all(has_named_types(answer) for answer in operation["responses"].values()), (
                method,
                path,
            )
            assert {"400", "422", "429"} <= set(operation["responses"])
    submission_body = description["paths"]["/jobs"]["post"]["requestBody"]
    submission_schema = submission_body["content"]["application/json"]["schema"]
    kinds = {"score", "curve", "experiment", "roles", "finetune", "gates", "front", "worth"}
    assert set(submission_schema["discriminator"]["mapping"]) == {*kinds, "interactions", "write"}
    schemas = description["components"]["schemas"]
    assert "session" in schemas["EvaluateRequest"]["properties"]
    assert {"place", "result"} <= set(schemas["JobRow"]["properties"])


def has_named_types(body: dict[str, Any]) -> bool:
    """Whether a body is of a named type, a list of one, or one of several named types."""
    ((_, content),) = body["content"].items()
    schema = content["schema"]
    if "$ref" in schema.get("items", schema):
        return True
    return all("$ref" in alternative for alternative in schema.get("oneOf", [{}]))


def test_a_request_beyond_a_limit_is_refused(worker: WorkerWithBench) -> None:
    heads = [["encoder", 0, head] for head in range(MAX_HEADS + 1)]
    with raises("request.field_invalid", "heads", 48):
        worker.client.attention(attention_request(MODEL, "hello", heads))
    with raises("request.field_invalid", "text", 2000) as caught:
        long_text = "a secret" * MAX_CHARACTERS
        worker.client.attention(attention_request(MODEL, long_text, heads[:1]))
    assert "secret" not in str(caught.value)
    with raises("request.field_invalid", "language"):
        list(worker.evaluate("../../etc"))
    with raises("request.field_invalid", "size"):
        list(worker.evaluate(size=0))
    attention = worker.client.attention(attention_request(MODEL, "hello", heads[:1]))
    assert attention.tokens == ["a"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"model": "fake", "colour": 1}', "application/json", 422),
        (b'{"model": "fa', "application/json", 422),
        (b'{"model": "fake"}', "text/plain", 422),
        (b'{"model": "' + b"x" * (1 << 20) + b'"}', "application/json", 413),
    ],
)
def test_a_strange_body_is_refused(
    worker: WorkerWithBench, body: bytes, kind: str, status: int
) -> None:
    for path in ("/model", "/gradient", "/jobs", "/forecast"):
        answer = httpx.post(worker.url + path, content=body, headers={"content-type": kind})
        assert answer.status_code == status
        assert answer.json().keys() == {"error", "code"}


def test_a_body_without_a_length_is_cut_off(worker: WorkerWithBench) -> None:
    endless = (b"x" * 65536 for _ in range(64))
    answer = httpx.post(
        f"{worker.url}/model", content=endless, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


def test_a_page_of_another_site_is_refused(worker: WorkerWithBench) -> None:
    ask = partial(httpx.get, f"{worker.url}/tasks")
    assert ask(headers={"origin": "https://evil.example"}).status_code == 403
    assert ask(headers={"host": "evil.example"}).status_code == 400
    assert ask(headers={"origin": worker.url}).status_code == 200


def test_a_token_is_needed_where_there_is_one(tmp_path: Path) -> None:
    with started_worker(tmp_path, lambda: FakeBench(tmp_path), token="right") as worker:
        assert worker.client.load_model(MODEL).name == MODEL
        for wrong_token in (None, "wrong", "righ", "rightt"):
            stranger = Client(worker.url, wrong_token)
            for send in (
                stranger.models,
                stranger.jobs,
                partial(stranger.log, 1),
                partial(stranger.delete, 1),
            ):
                with raises("token.wrong", "HEADLAB_TOKEN"):
                    send()
            assert stranger.health().ok
            stranger.close()


def test_an_open_worker_serves_embedded_models_only(tmp_path: Path) -> None:
    with started_worker(
        tmp_path, lambda: FakeBench(tmp_path), token="right", admit=AllowedModels()
    ) as worker:
        refusal = ("model.not_allowed", "e5-small-intents, e5-small-slots")
        for name in ("/etc", "../..", "someone/model"):
            with raises(*refusal):
                worker.client.load_model(name)
            with raises(*refusal):
                worker.client.submit(spec={**SPEC, "model": name})
            with raises(*refusal):
                worker.client.forecast("curve", {**SPEC, "model": name})
            with raises(*refusal):
                worker.client.gradient(name, "intents", "de")


# Processes


def test_a_port_in_use_and_an_open_host_without_token_are_refused(
    tmp_path: Path,
    worker: WorkerWithBench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = worker.url.rpartition(":")[2]
    assert main(["--port", port, "--cache", str(tmp_path)]) == 2
    assert "choose another port with --port" in capsys.readouterr().err
    monkeypatch.delenv("HEADLAB_TOKEN", raising=False)
    with raises("worker.token_missing", "HEADLAB_TOKEN"):
        server.serve(server.WorkerSettings(tmp_path, host="0.0.0.0", port=0))


@pytest.fixture
def local_worker(tmp_path: Path) -> Iterator[LocalWorker]:
    local_worker = LocalWorker(tmp_path, command=FAKE_COMMAND)
    yield local_worker
    local_worker.stop()


def test_a_killed_worker_is_started_again_and_its_job_goes_on(
    local_worker: LocalWorker, tmp_path: Path
) -> None:
    client = local_worker.client()
    job = client.submit(spec=SPEC).id
    wait_for_progress(client, job, 4)
    killed_pid = local_worker.pid
    assert killed_pid is not None
    os.kill(killed_pid, signal.SIGKILL)
    wait_until(lambda: local_worker.pid is None)
    steps_kept = int((tmp_path / f"job-{job}.txt").read_text())
    assert steps_kept >= 4
    row = client.job(job)  # starts it again
    assert local_worker.pid not in (None, killed_pid)
    assert row.state in ("queued", "running")
    wait_until(lambda: client.job(job).attempts == 2)
    wait_for_progress(client, job, steps_kept)
    wait_for_state(client, job, "done")
    assert client.health().state == ".worker"


def test_a_second_worker_on_one_cache_keeps_its_own_list(
    local_worker: LocalWorker, tmp_path: Path
) -> None:
    second_worker = LocalWorker(tmp_path, command=FAKE_COMMAND)
    try:
        assert second_worker.url != local_worker.url
        health = second_worker.client().health()
        assert health.state == ".worker/2"
        assert "another worker uses this cache" in health.note
        assert local_worker.client().health().note == ""
    finally:
        second_worker.stop()


def test_the_lock_is_freed_with_its_holder(local_worker: LocalWorker, tmp_path: Path) -> None:
    local_worker.stop()
    home = take_home(tmp_path)
    assert home.label == ".worker"
    home.lock.close()
    with raises("worker.stopped"):
        local_worker.client().health()


def test_reported_17_workers_on_a_disk_without_flock_keep_each_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", on_python_path(tmp_path / "network_disk"))
    monkeypatch.setenv("SWAPS_NAMES", "no")
    cache = tmp_path / "cache"
    first_worker = LocalWorker(cache, command=FAKE_COMMAND)
    assert first_worker.client().health().state == ".worker"
    job = int(first_worker.client().submit(spec=SPEC).id)
    second_worker = LocalWorker(cache, command=FAKE_COMMAND)
    try:
        health = second_worker.client().health()
        assert health.state == ".worker/2"
        assert f"process {first_worker.pid}" in health.note
        assert "delete" in health.note
    finally:
        second_worker.stop()
    log = (cache / ".worker" / "worker.log").read_text()
    assert log.count("no locks (flock)") == 1
    assert "no locks (flock)" in (cache / ".worker" / "2" / "worker.log").read_text()
    assert not (cache / ".worker" / "2" / "worker.lock.holder").exists()
    killed_pid = first_worker.pid
    assert killed_pid is not None
    os.kill(killed_pid, signal.SIGKILL)
    wait_until(lambda: first_worker.pid is None)
    heir = LocalWorker(cache, command=FAKE_COMMAND)
    try:
        health = heir.client().health()
        assert health.state == ".worker"
        assert health.note == ""
        assert [row.id for row in heir.client().jobs()] == [job]
    finally:
        heir.stop()
        first_worker.stop()


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from headlab.worker.process import LocalWorker\n"
        f"worker = LocalWorker(Path({str(tmp_path)!r}), command={FAKE_COMMAND!r})\n"
        f"worker.client().submit(spec={SPEC!r})\n"
        "print(worker.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        # The next app on this cache waits for the orphan and takes over its job list.
        heir = LocalWorker(tmp_path, command=FAKE_COMMAND)
        assert heir.client().health().state == ".worker"
        (job,) = heir.client().jobs()
        wait_for_state(heir.client(), job.id, "done")
        heir.stop()
    status = Path(f"/proc/{pid}/stat")
    wait_until(lambda: not status.exists() or " Z " in status.read_text())


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_reported_16_a_worker_that_is_told_to_end_puts_its_job_back_and_ends_well(
    tmp_path: Path, signal_number: signal.Signals
) -> None:
    address_file = tmp_path / "told.json"
    command = [*FAKE_COMMAND, "--port", "0", "--cache", str(tmp_path)]
    command += ["--told", str(address_file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(address_file.exists)
            client = Client(json.loads(address_file.read_text())["url"])
            job = client.submit(spec=SPEC).id
            wait_for_progress(client, job, 1)
            process.send_signal(signal_number)
            client.close()
            assert process.communicate(timeout=ENDING_SECONDS)[1] == ""
            assert process.returncode == 0
        finally:
            process.kill()
    jobs = JobList(tmp_path / ".worker" / "jobs.db")
    assert jobs.get(job).state == "queued"
    jobs.close()


def test_a_worker_on_any_free_port_says_which_port_it_took(tmp_path: Path) -> None:
    command = [*FAKE_COMMAND, "--port", "0", "--cache", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("headlab worker: listens at http://127.0.0.1:")
            client = Client(line.split()[-1])
            assert client.health().pid == process.pid
            client.close()
        finally:
            process.kill()


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with raises("worker.ended_at_start"):
        LocalWorker(tmp_path, command=(sys.executable, "-c", "raise SystemExit(3)"))
    (tmp_path / "file").write_text("")
    with raises("file.unwritable"):
        LocalWorker(tmp_path / "file", command=FAKE_COMMAND)


def test_a_named_worker_is_checked(
    worker: WorkerWithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADLAB_WORKER", worker.url + "/")
    remote_worker = process.connect()
    assert isinstance(remote_worker, RemoteWorker)
    assert remote_worker.client().load_model(MODEL).name == MODEL
    remote_worker.stop()
    monkeypatch.setenv("HEADLAB_WORKER", "http://127.0.0.1:9")
    with raises("worker.unreachable", "127.0.0.1:9"):
        process.connect()
    monkeypatch.setenv("HEADLAB_WORKER", "localhost:8700")
    with raises("worker.url_invalid"):
        process.connect(Path("nowhere"))


def test_logs_stay_with_the_owner(local_worker: LocalWorker, tmp_path: Path) -> None:
    assert local_worker.client().health().ok
    for name in ("worker.log", "jobs.db"):
        mode = (tmp_path / ".worker" / name).stat().st_mode
        assert mode & 0o077 == 0
    assert logging.getLogger("headlab.worker").isEnabledFor(logging.ERROR)


def test_a_mask_is_sent_as_its_json(worker: WorkerWithBench) -> None:
    grid = HeadGrid((Stack("encoder", (4, 4)),))
    mask = full_mask(grid)
    assert list(worker.evaluate(mask=mask))[-1].done
    assert np.all(mask.kept)
