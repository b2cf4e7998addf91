"""Experiment jobs from end to end on a tiny model: params, report, cost, cancel, resume, kill."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import raises
from support.running_worker import RunningWorker, evaluate_request, started_worker
from support.saved_models import save_family
from support.tiny_task import tiny_task
from support.waiting import wait_until
from support.worker_jobs import log_lines, wait_for_end

from headlab import load
from headlab.core import HeadlabError, Report
from headlab.hooks import Model
from headlab.jobs import Refusal, experiment
from headlab.results import Store, StoredRun
from headlab.studies.run import Pieces, run_experiment
from headlab.tasks import Task
from headlab.worker.model_host import ModelHost
from headlab.worker.runner import may_need_run
from headlab.worker.schemas import JobRow

METHOD = "leave-one-out"
WALK: dict[str, Any] = {"experiment": "iterative", "options": {}}


def absent_task(data: Path | None = None) -> Task:
    def read(*_: Any) -> Any:
        raise HeadlabError(
            "task absent needs its files: name their folder with --data or $HEADLAB_DATA",
            code="data.folder_missing",
        )

    return Task("absent", ("a", "b"), ("xx",), False, read)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = save_family(tmp_path_factory.mktemp("model") / "bert", "bert")
    return load(str(folder))


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task(), "absent": absent_task}
    )


@pytest.fixture
def worker(model: Model, tmp_path: Path) -> Iterator[RunningWorker]:
    with running_worker(model, tmp_path / "cache") as worker:
        yield worker


def running_worker(model: Model, cache: Path) -> Any:
    cache.mkdir(exist_ok=True)
    make = partial(ModelHost, cache, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    return started_worker(cache, make)


def spec_of(model: Model, **changes: Any) -> dict[str, Any]:
    spec = {
        "experiment": "targeted",
        "model": model.name,
        "task": "tiny",
        "languages": ["xx", "yy"],
    }
    spec |= {"method": METHOD, "options": {"k": 2, "runs": 2}, "dev_size": 12, "test_size": 16}
    return {**spec, **changes}


def submit(worker: RunningWorker, spec: dict[str, Any]) -> int:
    return int(worker.client.submit("experiment", spec).id)


def rows_of(report: Report) -> list[object]:
    """The rows of each table of a report."""
    return [table.rows for table in report.tables]


def library_report(model: Model) -> Any:
    pieces = Pieces(model, tiny_task(), dev_size=12, test_size=16)
    return run_experiment("targeted", pieces, options={"method": METHOD, "k": 2, "runs": 2})


# Params


def test_equal_work_has_equal_params() -> None:
    short_spec = {
        "experiment": "targeted",
        "model": "m",
        "task": "tiny",
        "languages": "all",
        "method": "tmab",
    }
    params = checked_fields("experiment", short_spec)
    spec_in_full = {**short_spec, "languages": ["xx", "yy"], "method": "shapley"}
    assert params == checked_fields("experiment", spec_in_full)
    assert params == checked_fields("experiment", params)
    assert params["options"] == {"k": None, "runs": 10, "leave_one_out": True}
    assert params["method_options"]["samples"] == 8192
    assert params["dev_size"] == 512
    assert params["test_size"] is None
    assert params["seed"] == 0
    assert params["ablation"] == "zero"


@pytest.mark.parametrize(
    ("changes", "expected_error"),
    [
        ({"experiment": "dance"}, ("experiment.unknown", "'dance'", "agreement")),
        ({"task": "nothing"}, ("task.unknown", "'nothing'")),
        ({"task": "absent", "languages": "all"}, ("data.folder_missing", "absent")),
        ({"languages": ["tlh"]}, ("task.language_unknown", "'tlh'")),
        (
            {"experiment": "transfer", "languages": ["xx"], "options": {}},
            ("experiment.languages_too_few", 2, 1),
        ),
        ({"method": "gradient"}, ("experiment.option_invalid", "method", "'gradient'")),
        ({"options": {"k": 0}}, ("experiment.option_invalid", "k", 0)),
        ({"options": {"size": 4}}, ("experiment.option_unknown", "size")),
        ({"options": {"method": "shapley"}}, ("experiment.option_misplaced", "method")),
        ({"method_options": {"samples": 4}}, ("method.option_unknown", "samples")),
        ({"options": {"runs": 10**9}}, ("job.number_too_large", "runs", 1000)),
        (
            {"method": "shapley", "method_options": {"samples": 10**9}},
            ("job.number_too_large", "samples", 1000000000),
        ),
        (
            {**WALK, "method_options": {"samples": 10**9}},
            ("job.number_too_large", "samples", 1000000000),
        ),
        (
            {**WALK, "options": {"monte_carlo_options": {"samples": 10**9}}},
            ("job.number_too_large", "samples", 1000000000),
        ),
        ({**WALK, "method_options": {"samples": -3}}, ("method.option_invalid", "samples", -3)),
        (
            {**WALK, "options": {"monte_carlo_options": {"nope": 1}}},
            ("method.option_unknown", "monte-carlo", "nope"),
        ),
        (
            {**WALK, "options": {"orderings": "foo"}},
            ("experiment.list_item_unknown", "orderings", "foo"),
        ),
    ],
)
def test_params_that_do_not_fit_are_refused(
    model: Model, changes: dict[str, Any], expected_error: tuple[object, ...]
) -> None:
    with raises(*expected_error) as caught:
        checked_fields("experiment", spec_of(model, **changes))
    if isinstance(caught.value, Refusal):
        assert caught.value.status == 422


def test_options_of_orderings_are_in_full_in_the_params() -> None:
    short_spec = {
        "experiment": "iterative",
        "model": "m",
        "task": "tiny",
        "languages": "all",
    }
    params = checked_fields("experiment", short_spec)
    assert params["method_options"]["samples"] == 8192
    assert params["options"]["monte_carlo_options"]["samples"] == 1024
    assert params == checked_fields("experiment", params)


def test_a_text_longer_than_any_needs_to_be_is_refused() -> None:
    with raises("job.text_too_long", 1000, kind=Refusal):
        experiment.within_limits_of_jobs({"orderings": "x" * 1001})


def test_a_request_that_does_not_fit_is_refused_and_nothing_is_queued(
    worker: RunningWorker, model: Model
) -> None:
    changes: list[dict[str, Any]] = [
        {"experiment": "dance"},
        {"dev_size": 0},
        {"more": 1},
        {"languages": []},
        {"task": "absent", "languages": "all"},
        {"options": {"runs": [1]}},
        {"test_size": 10**9},
    ]
    for change in changes:
        body = {"kind": "experiment", "spec": spec_of(model, **change)}
        answer = httpx.post(f"{worker.url}/jobs", json=body)
        assert answer.status_code == 422
        assert list(answer.json()) == ["error", "code"]
    body_for_ray = {"kind": "experiment", "spec": spec_of(model), "place": "ray"}
    assert httpx.post(f"{worker.url}/jobs", json=body_for_ray).status_code == 422
    assert worker.client.jobs() == []


# The report


def test_a_job_leaves_the_library_s_report_and_a_second_one_costs_nothing(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    forecast = worker.client.forecast("experiment", spec_of(model))
    assert forecast.forwards > 2 * 12 * 12  # leave-one-out alone, in two languages
    assert forecast.seconds > 0
    finished_job = wait_for_end(worker.client, submit(worker, spec_of(model)))
    (stored_result,) = Store(tmp_path / "cache").reports().results
    assert finished_job.result == {"keys": [stored_result.key]}
    assert rows_of(stored_result.record) == rows_of(library_report(model))
    assert finished_job.done == finished_job.total
    lines = log_lines(worker.client, finished_job.id)
    assert "xx: leave-one-out scores stored" in lines
    assert lines.count("xx: answers started") == 1  # not once for each mask
    forecast_of_stored = worker.client.forecast("experiment", spec_of(model))
    assert forecast_of_stored.forwards == 0
    assert forecast_of_stored.seconds == 0.0
    assert forecast_of_stored.basis == "the report is in the cache already"
    second_job = wait_for_end(worker.client, submit(worker, spec_of(model)))
    assert second_job.result == finished_job.result


def test_reading_many_languages_lets_live_requests_pass(model: Model, tmp_path: Path) -> None:
    ticks: list[int] = []
    lab = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    spec = experiment.ExperimentJob.model_validate(spec_of(model))
    pieces = spec.pieces(lab, lambda: ticks.append(1))
    for language in ("xx", "yy", "xx"):
        pieces.examples(language, "test")
    assert len(ticks) == 2  # once for each file


def test_an_experiment_that_cannot_be_run_fails_with_a_sentence(
    worker: RunningWorker, model: Model
) -> None:
    spec_of_400_heads = spec_of(model, options={"k": 400, "runs": 1})
    row = wait_for_end(worker.client, submit(worker, spec_of_400_heads), "failed")
    assert "400" in row.error


# Cancel, resume, kill


@dataclass
class Pause:
    """Stops an experiment after some finished pieces until it may go on.

    Live requests are served meanwhile.
    """

    at_piece: int = 3
    pieces_finished: int = 0
    has_paused: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    real_call: Any = None

    def __call__(self, piece_log: Any, stored_run: StoredRun, is_finished: bool) -> None:
        self.real_call(piece_log, stored_run, is_finished)
        self.pieces_finished += is_finished
        if self.pieces_finished == self.at_piece and not self.go.is_set():
            self.has_paused.set()

            def may_go_on() -> bool:
                piece_log.running.tick()
                return self.go.is_set()

            wait_until(may_go_on, "leave to go on")


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pause]:
    experiment_pause = Pause(real_call=experiment.PieceLog.__call__)

    def call_with_pause(piece_log: Any, stored_run: StoredRun, is_finished: bool) -> None:
        experiment_pause(piece_log, stored_run, is_finished)

    monkeypatch.setattr(experiment.PieceLog, "__call__", call_with_pause)
    yield experiment_pause
    experiment_pause.go.set()


def times_of_pieces(cache: Path) -> dict[str, int]:
    """When each finished piece was written."""
    return {
        str(path.relative_to(cache)): path.stat().st_mtime_ns
        for path in cache.glob("[0-9a-f]*/*.npz")
    }


def test_a_cancelled_experiment_keeps_its_pieces_and_ends_with_the_same_report(
    worker: RunningWorker, model: Model, tmp_path: Path, pause: Pause
) -> None:
    job = submit(worker, spec_of(model))
    assert pause.has_paused.wait(60)
    figures = list(worker.client.evaluate(evaluate_request(model.name, "tiny", "xx")))
    assert figures[-1].done  # live requests go first
    worker.client.cancel(job)
    wait_for_end(worker.client, job, "cancelled")
    times_when_cancelled = times_of_pieces(tmp_path / "cache")
    assert len(times_when_cancelled) >= 3
    pause.go.set()
    worker.client.resume(job)
    wait_for_end(worker.client, job, "done")
    times_at_end = times_of_pieces(tmp_path / "cache")
    # No piece was written again.
    assert {name: times_at_end[name] for name in times_when_cancelled} == times_when_cancelled
    (report,) = Store(tmp_path / "cache").reports().results
    assert rows_of(report.record) == rows_of(library_report(model))


def test_an_experiment_goes_on_from_what_a_killed_worker_leaves(
    model: Model, tmp_path: Path, pause: Pause
) -> None:
    """A copy of the cache while the job runs is what SIGKILL leaves."""
    with running_worker(model, tmp_path / "cache") as killed_worker:
        job = submit(killed_worker, spec_of(model))
        assert pause.has_paused.wait(60)
        shutil.copytree(tmp_path / "cache", tmp_path / "left")
        killed_worker.client.cancel(job)
        wait_for_end(killed_worker.client, job, "cancelled")
    times_when_killed = times_of_pieces(tmp_path / "left")
    pause.go.set()
    with running_worker(model, tmp_path / "left") as next_worker:
        wait_for_end(next_worker.client, job, "done")
        assert "started, attempt 2" in log_lines(next_worker.client, job)
    times_at_end = times_of_pieces(tmp_path / "left")
    assert len(times_when_killed) >= 3
    assert {name: times_at_end[name] for name in times_when_killed} == times_when_killed
    (report,) = Store(tmp_path / "left").reports().results
    assert rows_of(report.record) == rows_of(library_report(model))


def test_a_score_job_that_waits_keeps_the_checkpoints_an_experiment_began(model: Model) -> None:
    def job(number: int, kind: str, state: str, **params: Any) -> JobRow:
        return JobRow(
            id=number,
            kind=kind,
            params={"model": model.name, "task": "tiny", **params},
            place="here",
            state=state,
            done=0,
            total=0,
            note="",
            error=None,
            result=None,
            seconds_left=None,
            attempts=1,
            created=0.0,
            started=None,
            ended=None,
        )

    experiment_job = job(1, "experiment", "cancelled", experiment="targeted")
    assert may_need_run(job(2, "score", "queued", method="shapley"), experiment_job, "xx")
    assert not may_need_run(job(2, "score", "queued", task="other"), experiment_job, "xx")
    assert not may_need_run(job(2, "score", "done"), experiment_job, "xx")
