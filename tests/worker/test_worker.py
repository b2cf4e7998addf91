"""The worker's promises: live before jobs, nothing lost, nothing mixed, every refusal a sentence."""

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
from support.checked_jobs import checked
from support.expected_errors import expect, raises
from support.fake_worker import MODEL, STEPS, FakeBench
from support.network_disk import on_python_path
from support.running_worker import Running, evaluation, look, running
from support.waiting import until

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
FAKE = (sys.executable, str(Path(__file__).parents[1] / "support" / "fake_worker.py"))
SPEC: dict[str, Any] = {
    "model": MODEL,
    "task": "intents",
    "languages": ["de"],
    "method": "random",
    "seed": 1,
}
SECRET = "turn off the secret lamp"


class Fixture:
    """A running worker around a fake bench."""

    def __init__(self, run: Running, benches: list[FakeBench]) -> None:
        self.client = run.client
        self.url = run.url
        self.jobs = run.jobs
        self.engine = run.engine
        self._benches = benches

    @property
    def bench(self) -> FakeBench:
        until(lambda: bool(self._benches))
        return self._benches[0]

    def idle(self) -> bool:
        return self.engine.idle

    def evaluate(self, language: str = "de", **options: Any) -> Iterator[Figure]:
        return self.client.evaluate(evaluation(MODEL, "intents", language, **options))

    def started_job(self, **options: Any) -> int:
        job = int(self.client.submit(spec={**SPEC, **options}).id)
        until(lambda: self.client.job(job).done >= 2)
        return job


def made(benches: list[FakeBench], folder: Path, pause: float) -> FakeBench:
    benches.append(FakeBench(folder, pause))
    return benches[0]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Fixture]:
    benches: list[FakeBench] = []
    with running(tmp_path, partial(made, benches, tmp_path, 0.02)) as run:
        yield Fixture(run, benches)


@pytest.fixture
def slow_worker(tmp_path: Path) -> Iterator[Fixture]:
    """Long batches, so that what happens in the middle of an answer can be seen."""
    benches: list[FakeBench] = []
    with running(tmp_path, partial(made, benches, tmp_path, 0.1)) as run:
        yield Fixture(run, benches)


# Live requests


def test_an_answer_grows_and_ends_done(worker: Fixture) -> None:
    figures = list(worker.evaluate())
    assert [f.n for f in figures] == [64, 256, 512]
    assert [f.done for f in figures] == [False, False, True]
    assert figures[0].baseline is None


def test_a_live_request_does_not_wait_for_a_job(worker: Fixture) -> None:
    worker.bench.stop_at = 5
    job = int(worker.client.submit(spec=SPEC).id)
    until(lambda: "step 4" in worker.bench.log)
    figures = list(worker.evaluate())
    assert figures[-1].done
    assert worker.client.job(job).state == "running"
    worker.bench.stop_at = STEPS + 1
    until(lambda: worker.client.job(job).state == "done")


def test_first_figures_go_before_the_rest_of_longer_answers(slow_worker: Fixture) -> None:
    bench = slow_worker.bench
    bench.pause = 0.01
    bench.free = (
        2  # the third batch, behind the first figure, does not end before the other request waits
    )
    bench.go.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(list, slow_worker.evaluate())
        until(lambda: bench.batches == 2)
        second = pool.submit(list, slow_worker.evaluate("fr"))
        until(lambda: slow_worker.engine.waiting == 1)
        bench.go.set()
        assert first.result()[-1].done
        assert second.result()[-1].done
    order = [
        bench.figures.index(figure) for figure in (("de", 64), ("fr", 64), ("de", 256), ("de", 512))
    ]
    assert order == sorted(order)


def test_a_newer_request_of_a_session_ends_the_older_ones(
    slow_worker: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = slow_worker.bench
    come = []
    ask = slow_worker.engine.evaluate

    def asked(request: Any, send: Any) -> Any:
        live = ask(request, send)
        come.append(request.size)
        return live

    monkeypatch.setattr(slow_worker.engine, "evaluate", asked)
    bench.pause = 0.01
    bench.go.clear()
    with ThreadPoolExecutor(5) as pool:
        other = pool.submit(list, slow_worker.evaluate(session="b", size=5))
        until(lambda: bench.log == ["begin b 5"])
        older = []
        for size in (1, 2, 3, 4):
            older.append(pool.submit(list, slow_worker.evaluate(session="a", size=size)))
            until(lambda size=size: come[-1] == size)  # type: ignore[misc]
        bench.go.set()
        assert older.pop().result()[-1].done
        assert other.result()[-1].done
        for asked in older:
            expect(asked.exception(), "worker.request_superseded")
    assert [line for line in slow_worker.bench.log if line.startswith("end a")] == ["end a 4"]


def test_two_languages_of_a_session_do_not_end_each_other(worker: Fixture) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(
            pool.map(lambda language: list(worker.evaluate(language, session="a")), ("de", "fr"))
        )
    assert all(figures[-1].done for figures in both)


def test_an_answer_stops_when_its_reader_has_gone(slow_worker: Fixture) -> None:
    figures = slow_worker.evaluate()
    next(figures)
    figures.close()  # type: ignore[attr-defined] # a generator
    until(slow_worker.idle)
    assert slow_worker.bench.batches < 13
    assert not any(line.startswith("end") for line in slow_worker.bench.log)


def test_nothing_is_computed_for_a_client_that_left_while_it_waited(slow_worker: Fixture) -> None:
    slow_worker.bench.pause = 0.5
    body = {"model": MODEL, "task": "intents", "language": "de", "session": "gone"}
    patience = httpx.Timeout(60, read=0.05)  # the question is sent whole, however slow the machine
    with httpx.Client(timeout=patience) as impatient, pytest.raises(httpx.TimeoutException):
        impatient.post(f"{slow_worker.url}/evaluate", json=body)
    until(lambda: slow_worker.bench.log == ["begin gone 512"])
    until(slow_worker.idle)
    assert slow_worker.bench.batches <= 2


def test_gates_of_a_job_are_unseen_by_live_requests(worker: Fixture) -> None:
    """The fake job sets a context variable as gates do; the fake evaluation asserts that it sees none."""
    worker.started_job()
    assert list(worker.evaluate())[-1].done
    assert list(worker.evaluate())[-1].done


def test_another_model_is_refused_while_a_job_runs(worker: Fixture) -> None:
    worker.started_job()
    with raises("worker.other_model_in_use", "fake"):
        worker.client.model("other")
    assert worker.client.model(MODEL).grid.to_json() == {"encoder": [4, 4]}


def test_too_many_waiting_requests_are_refused(
    slow_worker: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.worker.engine.MAX_WAITING", 1)
    first = slow_worker.evaluate()
    next(first)
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(lambda: list(slow_worker.evaluate())) for _ in range(6)]
        errors = [str(a.exception()) for a in answers if a.exception() is not None]
    assert errors
    assert all("waiting for the worker; try again in a moment" in error for error in errors)


def test_health_answers_before_the_device_is_there(tmp_path: Path) -> None:
    ready = threading.Event()

    def make() -> FakeBench:
        ready.wait(20)
        return FakeBench(tmp_path)

    with running(tmp_path, make, wait=False) as run:
        health = run.client.health()
        assert health.ok
        assert (health.device, health.model, health.pid) == (None, None, os.getpid())
        ready.set()
        run.client.model(MODEL)
        assert (run.client.health().device, run.client.health().model) == (
            "fake device",
            MODEL,
        )


def test_starting_a_worker_does_not_import_torch() -> None:
    code = "import sys, headlab.worker.server, headlab.worker.process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_device_that_cannot_be_set_up_is_told_to_everyone(tmp_path: Path) -> None:
    def make() -> FakeBench:
        raise HeadlabError("device 'cuda' cannot be used here; use cpu", code="device.unusable")

    with running(tmp_path, make, wait=False) as run:
        until(lambda: not run.client.health().ok)
        assert "use cpu" in run.client.health().note
        with raises("device.unusable", "cuda", "use cpu"):
            run.client.model(MODEL)


# Jobs


def test_the_same_job_twice_is_one_job(worker: Fixture) -> None:
    job = worker.started_job()
    assert worker.client.submit(spec=SPEC).id == job
    assert worker.client.submit(spec={**SPEC, "options": {}, "split": "dev"}).id == job
    assert worker.client.submit(spec={**SPEC, "seed": 2}).id != job
    until(lambda: worker.client.job(job).state == "done")
    assert worker.client.submit(spec=SPEC).id > job


def test_all_languages_are_filled_in_when_a_job_is_submitted() -> None:
    params = checked("score", {**SPEC, "languages": "all"})
    assert len(params["languages"]) == 15
    assert params == checked("score", {**SPEC, "languages": params["languages"]})


def test_progress_and_time_left(worker: Fixture) -> None:
    job = worker.started_job()
    until(lambda: worker.client.job(job).seconds_left is not None)
    seen = worker.client.job(job)
    assert seen.total == STEPS
    assert seen.note.startswith("step ")
    assert 0 < seen.seconds_left < 20 * STEPS * worker.bench.pause
    assert worker.client.health().jobs_running == 1
    until(lambda: worker.client.job(job).state == "done")
    assert worker.client.job(job).seconds_left is None
    assert [j.id for j in worker.client.jobs()] == [job]


def test_cancel_a_running_and_a_waiting_job_and_resume(worker: Fixture) -> None:
    job = worker.started_job()
    waiting = worker.client.submit(spec={**SPEC, "seed": 2}).id
    assert worker.client.cancel(waiting).state == "cancelled"
    worker.client.cancel(job)
    until(lambda: worker.client.job(job).state == "cancelled")
    done = worker.client.job(job).done
    assert 2 <= done < STEPS
    assert worker.client.resume(job).state == "queued"
    until(lambda: worker.client.job(job).state == "done")
    steps = [line for line in worker.bench.log if line.startswith("step")]
    assert steps == [f"step {n}" for n in range(1, STEPS + 1)]
    with raises("job.not_resumable", f"job {job}", "done"):
        worker.client.resume(job)


def test_a_cancelled_job_that_was_asked_for_again_is_not_resumed_twice(worker: Fixture) -> None:
    running_job = worker.started_job()
    first = worker.client.submit(spec={**SPEC, "seed": 5}).id
    worker.client.cancel(first)
    again = worker.client.submit(spec={**SPEC, "seed": 5}).id
    assert again != first
    with raises("job.work_queued_elsewhere"):
        worker.client.resume(first)
    worker.client.cancel(running_job)


def test_a_failed_job_says_so_and_the_next_one_runs(
    worker: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    bad = worker.client.submit(spec={**SPEC, "seed": 13}).id
    good = worker.client.submit(spec=SPEC).id
    until(lambda: worker.client.job(good).state == "done")
    failed = worker.client.job(bad)
    assert failed.state == "failed"
    assert "worker.log" in failed.error
    assert "KeyError" in caplog.text
    assert SECRET not in failed.error + caplog.text


def test_params_that_do_not_fit_are_refused_before_they_are_queued(worker: Fixture) -> None:
    with raises("method.unknown", "'magic'", "shapley"):
        worker.client.submit(spec={**SPEC, "method": "magic"})
    with raises("task.language_unknown", "'tlh'"):
        worker.client.submit(spec={**SPEC, "languages": ["tlh"]})
    with raises("method.option_unknown", "depth"):
        worker.client.submit(spec={**SPEC, "options": {"depth": 3}})
    assert worker.client.jobs() == []


def test_stopping_in_order_puts_the_job_back(tmp_path: Path) -> None:
    with running(tmp_path, lambda: FakeBench(tmp_path)) as run:
        job = run.client.submit(spec=SPEC).id
        until(lambda: run.client.job(job).done >= 2)
    jobs = JobList(tmp_path / "jobs.db")
    assert (jobs.get(job).state, jobs.get(job).attempts) == ("queued", 0)
    jobs.close()


def test_a_job_that_kills_its_worker_is_given_up(tmp_path: Path) -> None:
    for attempt in range(1, MAX_ATTEMPTS + 1):
        jobs = JobList(tmp_path / "jobs.db")
        jobs.submit("score", SPEC)
        claimed = jobs.claim()
        assert claimed is not None
        assert claimed.attempts == attempt
        jobs.close()  # and never another word: as after kill -9
    jobs = JobList(tmp_path / "jobs.db")
    given_up = jobs.get(claimed.id)
    assert given_up.state == "failed"
    assert given_up.error is not None
    assert "died 3 times" in given_up.error
    assert jobs.claim() is None
    assert jobs.resume(claimed.id).attempts == 0
    jobs.close()


def test_a_job_that_gets_on_between_kills_is_never_given_up(tmp_path: Path) -> None:
    for number in range(3 * MAX_ATTEMPTS):
        jobs = JobList(tmp_path / "jobs.db")
        jobs.submit("score", SPEC)
        claimed = jobs.claim()
        assert claimed is not None
        running = RunningJob(jobs, claimed, lambda: None)
        store = WatchedStore(tmp_path, on_stored=lambda *_, job=running: job.note_stored())
        if number % 2:
            store.run({"format": 1}).save({"n": np.zeros(1)})
        else:
            store.run({"format": 1}).finish(Report("made up", ()), {})
        jobs.close()  # and never another word: as after kill -9
    jobs = JobList(tmp_path / "jobs.db")
    assert jobs.get(claimed.id).state == "queued"
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
    first = jobs.submit("score", SPEC).id
    copy = tmp_path / "copied.db"
    for suffix in (
        "",
        "-wal",
    ):  # as a killed worker leaves it: the job stands in the write-ahead log only
        copy.with_name(copy.name + suffix).write_bytes(
            path.with_name(path.name + suffix).read_bytes()
        )
    jobs.close()
    unlocked = JobList(copy, without_locks=True)
    second = unlocked.submit("score", {**SPEC, "seed": 2}).id
    assert not copy.with_name("copied.db-shm").exists()
    unlocked.close()
    with_locks = JobList(copy)
    assert [job.id for job in with_locks.list()] == [second, first]
    with_locks.close()


def test_reported_17_a_job_list_without_shared_memory_is_used_without(
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


def test_errors_are_sentences(worker: Fixture) -> None:
    with raises("task.language_unknown", "'xx'", "en, de"):
        list(worker.evaluate("xx"))
    with raises("model.unknown", "missing", "fake"):
        worker.client.model("missing")
    with raises("job.unknown", 77):
        worker.client.job(77)
    with raises("task.unknown", "'nothing'"):
        worker.client.sentences("nothing", "de")
    assert list(worker.evaluate())[-1].done


@pytest.mark.parametrize("language", ["boom", "late"])
def test_the_unexpected_is_logged_without_what_was_typed(
    worker: Fixture, caplog: pytest.LogCaptureFixture, language: str
) -> None:
    with raises("worker.failed", "KeyError", "worker.log") as caught:
        list(worker.evaluate(language))
    assert "fake_worker.py" in caplog.text
    assert SECRET not in caplog.text + str(caught.value)
    assert list(worker.evaluate())[-1].done


def test_a_crash_outside_the_device_is_a_sentence_too(
    worker: Fixture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash() -> list[Any]:
        raise KeyError(SECRET)

    monkeypatch.setattr("headlab.worker.catalogue.tasks", crash)
    with raises("worker.failed", "KeyError"):
        worker.client.tasks()
    assert "GET /tasks: KeyError" in caplog.text
    assert SECRET not in caplog.text


def test_every_request_is_described(worker: Fixture) -> None:
    described = httpx.get(f"{worker.url}/openapi.json").json()
    assert set(described["paths"]) == {
        *(
            "/health",
            "/models",
            "/tasks",
            "/sentences",
            "/model",
            "/evaluate",
            "/changes",
            "/attention",
            "/gradient",
        ),
        *("/forecast", "/jobs", "/jobs/{job}", "/jobs/{job}/snapshot", "/jobs/{job}/log"),
        *("/jobs/{job}/cancel", "/jobs/{job}/resume", "/check"),
    }
    for path, ways in described["paths"].items():
        for method, way in ways.items():
            if "requestBody" in way:
                assert typed(way["requestBody"]), (method, path)
            assert all(typed(answer) for answer in way["responses"].values()), (method, path)
            assert {"400", "422", "429"} <= set(way["responses"])
    asked = described["paths"]["/jobs"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    kinds = {"score", "curve", "experiment", "roles", "finetune", "gates", "front", "worth"}
    assert set(asked["discriminator"]["mapping"]) == kinds
    assert "session" in described["components"]["schemas"]["EvaluateRequest"]["properties"]
    assert {"place", "result"} <= set(described["components"]["schemas"]["JobRow"]["properties"])


def typed(body: dict[str, Any]) -> bool:
    """Whether a body is of named types: one, a list of one, or one of several."""
    ((_, content),) = body["content"].items()
    schema = content["schema"]
    return "$ref" in schema.get("items", schema) or all(
        "$ref" in one for one in schema.get("oneOf", [{}])
    )


def test_limits_of_a_request(worker: Fixture) -> None:
    heads = [["encoder", 0, h] for h in range(MAX_HEADS + 1)]
    with raises("request.field_invalid", "heads", 48):
        worker.client.attention(look(MODEL, "hello", heads))
    with raises("request.field_invalid", "text", 2000) as caught:
        worker.client.attention(look(MODEL, "a secret" * MAX_CHARACTERS, heads[:1]))
    assert "secret" not in str(caught.value)
    with raises("request.field_invalid", "language"):
        list(worker.evaluate("../../etc"))
    with raises("request.field_invalid", "size"):
        list(worker.evaluate(size=0))
    assert worker.client.attention(look(MODEL, "hello", heads[:1])).tokens == ["a"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"model": "fake", "colour": 1}', "application/json", 422),
        (b'{"model": "fa', "application/json", 422),
        (b'{"model": "fake"}', "text/plain", 422),
        (b'{"model": "' + b"x" * (1 << 20) + b'"}', "application/json", 413),
    ],
)
def test_a_strange_body_is_refused(worker: Fixture, body: bytes, kind: str, status: int) -> None:
    for path in ("/model", "/gradient", "/jobs", "/forecast"):
        answer = httpx.post(worker.url + path, content=body, headers={"content-type": kind})
        assert answer.status_code == status
        assert answer.json().keys() == {"error", "code"}


def test_a_body_without_a_length_is_cut_off(worker: Fixture) -> None:
    endless = (b"x" * 65536 for _ in range(64))
    answer = httpx.post(
        f"{worker.url}/model", content=endless, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


def test_a_page_of_another_site_is_refused(worker: Fixture) -> None:
    assert (
        httpx.get(f"{worker.url}/tasks", headers={"origin": "https://evil.example"}).status_code
        == 403
    )
    assert httpx.get(f"{worker.url}/tasks", headers={"host": "evil.example"}).status_code == 400
    assert httpx.get(f"{worker.url}/tasks", headers={"origin": worker.url}).status_code == 200


def test_a_token_is_needed_where_there_is_one(tmp_path: Path) -> None:
    with running(tmp_path, lambda: FakeBench(tmp_path), token="right") as run:
        assert run.client.model(MODEL).name == MODEL
        for wrong in (None, "wrong", "righ", "rightt"):
            stranger = Client(run.url, wrong)
            for ask in (
                stranger.models,
                stranger.jobs,
                partial(stranger.log, 1),
                partial(stranger.delete, 1),
            ):
                with raises("token.wrong", "HEADLAB_TOKEN"):
                    ask()
            assert stranger.health().ok
            stranger.close()


def test_an_open_worker_serves_embedded_models_only(tmp_path: Path) -> None:
    with running(
        tmp_path, lambda: FakeBench(tmp_path), token="right", admit=AllowedModels()
    ) as run:
        for name in ("/etc", "../..", "someone/model"):
            with raises("model.not_allowed", "e5-small-intents, e5-small-slots"):
                run.client.model(name)
            with raises("model.not_allowed", "e5-small-intents, e5-small-slots"):
                run.client.submit(spec={**SPEC, "model": name})
            with raises("model.not_allowed", "e5-small-intents, e5-small-slots"):
                run.client.forecast("curve", {**SPEC, "model": name})
            with raises("model.not_allowed", "e5-small-intents, e5-small-slots"):
                run.client.gradient(name, "intents", "de")


# Processes


def test_a_port_in_use_and_an_open_host_without_token_are_refused(
    tmp_path: Path,
    worker: Fixture,
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
def local(tmp_path: Path) -> Iterator[LocalWorker]:
    started = LocalWorker(tmp_path, command=FAKE)
    yield started
    started.stop()


def test_a_killed_worker_is_started_again_and_its_job_goes_on(
    local: LocalWorker, tmp_path: Path
) -> None:
    client = local.client()
    job = client.submit(spec=SPEC).id
    until(lambda: client.job(job).done >= 4)
    killed = local.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: local.pid is None)
    kept = int((tmp_path / f"job-{job}.txt").read_text())
    assert kept >= 4
    seen = client.job(job)  # starts it again
    assert local.pid not in (None, killed)
    assert seen.state in ("queued", "running")
    until(lambda: client.job(job).attempts == 2 and client.job(job).done >= kept)
    until(lambda: client.job(job).state == "done")
    assert client.health().state == ".worker"


def test_a_second_worker_on_one_cache_keeps_its_own_list(
    local: LocalWorker, tmp_path: Path
) -> None:
    other = LocalWorker(tmp_path, command=FAKE)
    try:
        assert other.url != local.url
        health = other.client().health()
        assert health.state == ".worker/2"
        assert "another worker uses this cache" in health.note
        assert local.client().health().note == ""
    finally:
        other.stop()


def test_the_lock_is_freed_with_its_holder(local: LocalWorker, tmp_path: Path) -> None:
    local.stop()
    home = take_home(tmp_path)
    assert home.label == ".worker"
    home.lock.close()
    with raises("worker.stopped"):
        local.client().health()


def test_reported_17_workers_on_a_disk_without_flock_keep_each_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", on_python_path(tmp_path / "network_disk"))
    monkeypatch.setenv("SWAPS_NAMES", "no")
    cache = tmp_path / "cache"
    first = LocalWorker(cache, command=FAKE)
    assert first.client().health().state == ".worker"
    job = int(first.client().submit(spec=SPEC).id)
    other = LocalWorker(cache, command=FAKE)
    try:
        health = other.client().health()
        assert health.state == ".worker/2"
        assert f"process {first.pid}" in health.note
        assert "delete" in health.note
    finally:
        other.stop()
    log = (cache / ".worker" / "worker.log").read_text()
    assert log.count("no locks (flock)") == 1
    assert "no locks (flock)" in (cache / ".worker" / "2" / "worker.log").read_text()
    assert not (cache / ".worker" / "2" / "worker.lock.holder").exists()
    killed = first.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: first.pid is None)
    heir = LocalWorker(cache, command=FAKE)
    try:
        health = heir.client().health()
        assert (health.state, health.note) == (".worker", "")
        assert [row.id for row in heir.client().jobs()] == [job]
    finally:
        heir.stop()
        first.stop()


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headlab.worker.process import LocalWorker\n"
        f"w = LocalWorker(Path({str(tmp_path)!r}), command={FAKE!r}); w.client().submit(spec={SPEC!r})\n"
        "print(w.pid, flush=True); sys.stdin.read()"
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
        heir = LocalWorker(tmp_path, command=FAKE)
        assert heir.client().health().state == ".worker"
        (job,) = heir.client().jobs()
        until(lambda: heir.client().job(job.id).state == "done")
        heir.stop()
    until(
        lambda: (
            not Path(f"/proc/{pid}/stat").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text()
        )
    )


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_reported_16_a_worker_that_is_told_to_end_puts_its_job_back_and_ends_well(
    tmp_path: Path, signal_number: signal.Signals
) -> None:
    told = tmp_path / "told.json"
    command = [*FAKE, "--port", "0", "--cache", str(tmp_path), "--told", str(told)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(told.exists)
            client = Client(json.loads(told.read_text())["url"])
            job = client.submit(spec=SPEC).id
            until(lambda: client.job(job).done >= 1)
            process.send_signal(signal_number)
            client.close()
            assert process.communicate(timeout=ENDING_SECONDS)[1] == ""
            assert process.returncode == 0
        finally:
            process.kill()
    jobs = JobList(tmp_path / ".worker" / "jobs.db")
    assert jobs.get(job).state == "queued"
    jobs.close()


def test_a_worker_on_any_free_port_says_which_one_it_took(tmp_path: Path) -> None:
    command = [*FAKE, "--port", "0", "--cache", str(tmp_path)]
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
        LocalWorker(tmp_path / "file", command=FAKE)


def test_a_named_worker_is_checked(worker: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADLAB_WORKER", worker.url + "/")
    named = process.connect()
    assert isinstance(named, RemoteWorker)
    assert named.client().model(MODEL).name == MODEL
    named.stop()
    monkeypatch.setenv("HEADLAB_WORKER", "http://127.0.0.1:9")
    with raises("worker.unreachable", "127.0.0.1:9"):
        process.connect()
    monkeypatch.setenv("HEADLAB_WORKER", "localhost:8700")
    with raises("worker.url_invalid"):
        process.connect(Path("nowhere"))


def test_logs_stay_with_the_owner(local: LocalWorker, tmp_path: Path) -> None:
    assert local.client().health().ok
    for name in ("worker.log", "jobs.db"):
        assert (tmp_path / ".worker" / name).stat().st_mode & 0o077 == 0
    assert logging.getLogger("headlab.worker").isEnabledFor(logging.ERROR)


def test_a_mask_travels_as_its_json(worker: Fixture) -> None:
    mask = full_mask(HeadGrid((Stack("encoder", (4, 4)),)))
    assert list(worker.evaluate(mask=mask))[-1].done
    assert np.all(mask.kept)
