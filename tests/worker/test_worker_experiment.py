"""Experiment jobs from end to end on a tiny model: params, the report, its cost, cancel, resume, kill."""

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
from support.checked_jobs import checked
from support.expected_errors import raises
from support.running_worker import Running, evaluation, running
from support.saved_models import save_family
from support.tiny_task import tiny_task
from support.waiting import until

from headlab import load
from headlab.core import HeadlabError
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
    return load(str(save_family(tmp_path_factory.mktemp("model") / "bert", "bert")))


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task(), "absent": absent_task}
    )


@pytest.fixture
def worker(model: Model, tmp_path: Path) -> Iterator[Running]:
    with at_work(model, tmp_path / "cache") as run:
        yield run


def at_work(model: Model, cache: Path) -> Any:
    cache.mkdir(exist_ok=True)
    return running(
        cache, partial(ModelHost, cache, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    )


def spec_of(model: Model, **changes: Any) -> dict[str, Any]:
    spec = {
        "experiment": "targeted",
        "model": model.name,
        "task": "tiny",
        "languages": ["xx", "yy"],
    }
    spec |= {"method": METHOD, "options": {"k": 2, "runs": 2}, "dev_size": 12, "test_size": 16}
    return {**spec, **changes}


def come_to(worker: Running, job: int, state: str) -> JobRow:
    until(lambda: worker.client.job(job).state not in ("queued", "running"))
    ended = worker.client.job(job)
    assert ended.state == state, ended.error
    return ended


def by_library(model: Model) -> Any:
    pieces = Pieces(model, tiny_task(), dev_size=12, test_size=16)
    return run_experiment("targeted", pieces, options={"method": METHOD, "k": 2, "runs": 2})


# Params


def test_equal_work_has_equal_params() -> None:
    short = {
        "experiment": "targeted",
        "model": "m",
        "task": "tiny",
        "languages": "all",
        "method": "tmab",
    }
    full = checked("experiment", short)
    assert full == checked("experiment", {**short, "languages": ["xx", "yy"], "method": "shapley"})
    assert full == checked("experiment", full)
    assert full["options"] == {"k": None, "runs": 10, "leave_one_out": True}
    assert full["method_options"]["samples"] == 8192
    assert (full["dev_size"], full["test_size"], full["seed"], full["ablation"]) == (
        512,
        None,
        0,
        "zero",
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
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
    model: Model, changes: dict[str, Any], expected: tuple[object, ...]
) -> None:
    with raises(*expected) as caught:
        checked("experiment", spec_of(model, **changes))
    if isinstance(caught.value, Refusal):
        assert caught.value.status == 422


def test_options_of_orderings_are_in_full_in_the_params() -> None:
    short = {"experiment": "iterative", "model": "m", "task": "tiny", "languages": "all"}
    full = checked("experiment", short)
    assert full["method_options"]["samples"] == 8192
    assert full["options"]["monte_carlo_options"]["samples"] == 1024
    assert full == checked("experiment", full)


def test_a_text_longer_than_any_needs_to_be_is_refused() -> None:
    with raises("job.text_too_long", 1000, kind=Refusal):
        experiment.within_limits_of_jobs({"orderings": "x" * 1001})


def test_what_does_not_fit_is_refused_at_the_door_and_nothing_is_queued(
    worker: Running, model: Model
) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"experiment": "dance"},
        {"dev_size": 0},
        {"more": 1},
        {"languages": []},
    )
    for change in (
        *changes,
        {"task": "absent", "languages": "all"},
        {"options": {"runs": [1]}},
        {"test_size": 10**9},
    ):
        body = {"kind": "experiment", "spec": spec_of(model, **change)}
        answer = httpx.post(f"{worker.url}/jobs", json=body)
        assert (answer.status_code, list(answer.json())) == (422, ["error", "code"])
    assert (
        httpx.post(
            f"{worker.url}/jobs",
            json={"kind": "experiment", "spec": spec_of(model), "place": "ray"},
        ).status_code
        == 422
    )
    assert worker.client.jobs() == []


# The report


def test_a_job_leaves_the_library_s_report_and_a_second_one_costs_nothing(
    worker: Running, model: Model, tmp_path: Path
) -> None:
    before = worker.client.forecast("experiment", spec_of(model))
    assert before.forwards > 2 * 12 * 12  # leave-one-out alone, in two languages
    assert before.seconds > 0
    done = come_to(worker, int(worker.client.submit("experiment", spec_of(model)).id), "done")
    (kept,) = Store(tmp_path / "cache").reports().results
    assert done.result == {"keys": [kept.key]}
    assert [table.rows for table in kept.record.tables] == [
        table.rows for table in by_library(model).tables
    ]
    assert done.done == done.total
    told = [line[21:] for line in worker.client.log(done.id)]
    assert "xx: leave-one-out scores stored" in told
    assert told.count("xx: answers started") == 1  # not once a mask
    after = worker.client.forecast("experiment", spec_of(model))
    assert (after.forwards, after.seconds, after.basis) == (
        0,
        0.0,
        "the report is in the cache already",
    )
    again = come_to(worker, int(worker.client.submit("experiment", spec_of(model)).id), "done")
    assert again.result == done.result


def test_reading_many_languages_lets_others_pass(model: Model, tmp_path: Path) -> None:
    ticks: list[int] = []
    lab = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    spec = experiment.ExperimentJob.model_validate(spec_of(model))
    pieces = spec.pieces(lab, lambda: ticks.append(1))
    for language in ("xx", "yy", "xx"):
        pieces.examples(language, "test")
    assert len(ticks) == 2  # once a file


def test_an_experiment_that_cannot_be_made_fails_with_a_sentence(
    worker: Running, model: Model
) -> None:
    many = spec_of(model, options={"k": 400, "runs": 1})
    job = come_to(worker, int(worker.client.submit("experiment", many).id), "failed")
    assert "400" in job.error


# Cancel, resume, kill


@dataclass
class Pause:
    """Stops an experiment after so many finished pieces until it is let go; live requests are served meanwhile."""

    at: int = 3
    seen: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, told: Any, run: StoredRun, finished: bool) -> None:
        self.real(told, run, finished)
        self.seen += finished
        if self.seen == self.at and not self.go.is_set():
            self.reached.set()

            def gone() -> bool:
                told.running.tick()
                return self.go.is_set()

            until(gone, "leave to go on")

    real: Any = None


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pause]:
    made = Pause(real=experiment.PieceLog.__call__)
    monkeypatch.setattr(
        experiment.PieceLog, "__call__", lambda told, run, finished: made(told, run, finished)
    )
    yield made
    made.go.set()


def pieces_in(cache: Path) -> dict[str, int]:
    """Finished pieces and when they were written."""
    return {str(p.relative_to(cache)): p.stat().st_mtime_ns for p in cache.glob("[0-9a-f]*/*.npz")}


def test_a_cancelled_experiment_goes_on_with_what_it_has_and_ends_with_the_same_report(
    worker: Running, model: Model, tmp_path: Path, pause: Pause
) -> None:
    job = int(worker.client.submit("experiment", spec_of(model)).id)
    assert pause.reached.wait(60)
    assert list(worker.client.evaluate(evaluation(model.name, "tiny", "xx")))[
        -1
    ].done  # live requests go first
    worker.client.cancel(job)
    come_to(worker, job, "cancelled")
    kept = pieces_in(tmp_path / "cache")
    assert len(kept) >= 3
    pause.go.set()
    worker.client.resume(job)
    come_to(worker, job, "done")
    now = pieces_in(tmp_path / "cache")
    assert {name: now[name] for name in kept} == kept  # nothing was made again
    (report,) = Store(tmp_path / "cache").reports().results
    assert [t.rows for t in report.record.tables] == [t.rows for t in by_library(model).tables]


def test_what_a_killed_worker_leaves_is_gone_on_from(
    model: Model, tmp_path: Path, pause: Pause
) -> None:
    """A copy of the cache while the job runs is what SIGKILL leaves."""
    with at_work(model, tmp_path / "cache") as first:
        job = int(first.client.submit("experiment", spec_of(model)).id)
        assert pause.reached.wait(60)
        shutil.copytree(tmp_path / "cache", tmp_path / "left")
        first.client.cancel(job)
        come_to(first, job, "cancelled")
    kept = pieces_in(tmp_path / "left")
    pause.go.set()
    with at_work(model, tmp_path / "left") as second:
        come_to(second, job, "done")
        assert "started, attempt 2" in [line[21:] for line in second.client.log(job)]
    now = pieces_in(tmp_path / "left")
    assert len(kept) >= 3
    assert {name: now[name] for name in kept} == kept
    (report,) = Store(tmp_path / "left").reports().results
    assert [t.rows for t in report.record.tables] == [t.rows for t in by_library(model).tables]


def test_a_score_job_that_waits_keeps_the_checkpoints_an_experiment_began(model: Model) -> None:
    def job(number: int, kind: str, state: str, **params: Any) -> JobRow:
        about = {"model": model.name, "task": "tiny", **params}
        made = {
            "id": number,
            "kind": kind,
            "params": about,
            "place": "here",
            "state": state,
            "done": 0,
            "total": 0,
        }
        made |= {
            "note": "",
            "error": None,
            "result": None,
            "seconds_left": None,
            "attempts": 1,
            "created": 0.0,
        }
        return JobRow(**made, started=None, ended=None)

    ours = job(1, "experiment", "cancelled", experiment="targeted")
    assert may_need_run(job(2, "score", "queued", method="shapley"), ours, "xx")
    assert not may_need_run(job(2, "score", "queued", task="other"), ours, "xx")
    assert not may_need_run(job(2, "score", "done"), ours, "xx")
