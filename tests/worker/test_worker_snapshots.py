"""Scores so far of a run under way, from its snapshot: by the library and through the worker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.expected_errors import raises
from support.running_worker import RunningWorker, started_worker
from support.tiny_task import tiny_task
from support.waiting import wait_until
from support.worker_jobs import wait_for_state

from headlab import load
from headlab.core import HeadGrid
from headlab.hooks import Model
from headlab.methods import METHODS, costs
from headlab.methods.run import score, scores_so_far
from headlab.results import HeadScores, Store, StoredRun
from headlab.worker.client import scores_of
from headlab.worker.model_host import ModelHost

SIZE = 24
OPTIONS: dict[str, dict[str, Any]] = {
    "shapley": {"samples": 96, "target": None},
    "monte-carlo": {"samples": 96, "target": None},
    "paper": {"samples": 8},
    "exact": {},
}
REPORTS_TO_SAMPLES = {"shapley": 5, "monte-carlo": 2, "paper": 2}
"""Reports of progress after which a run has samples: slopes come first."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    from support.saved_models import save_family

    folder = save_family(tmp_path_factory.mktemp("model") / "bert", "bert")
    return load(str(folder))


class Stop(Exception):
    pass


def interrupted_run(model: Model, root: Path, method: str, reports: int) -> StoredRun:
    """A run that was stopped after some reports of progress.

    Args:
        model: The model.
        root: Folder of the store.
        method: Key of the method.
        reports: How many reports of progress are let pass.
    """
    reports_seen = []

    def stop(progress: object) -> None:
        reports_seen.append(progress)
        if len(reports_seen) > reports:
            raise Stop

    with pytest.raises(Stop):
        run_scores(model, root, method, on_progress=stop)
    (folder,) = (path.parent for path in root.glob("*/spec.json"))
    return StoredRun(folder, json.loads((folder / "spec.json").read_text()))


def run_scores(model: Model, root: Path, method: str, **options_of_run: Any) -> HeadScores:
    options = OPTIONS.get(method, {})
    return score(
        model,
        tiny_task(),
        language="xx",
        method=method,
        size=SIZE,
        store=Store(root),
        **options,
        **options_of_run,
    )


@pytest.mark.parametrize("method", ["shapley", "monte-carlo", "paper"])
def test_scores_so_far_are_those_of_the_samples_so_far(
    model: Model, tmp_path: Path, method: str
) -> None:
    stored_run = interrupted_run(model, tmp_path / "cut", method, REPORTS_TO_SAMPLES[method])
    scores = scores_so_far(stored_run, model.grid)
    assert scores is not None
    assert scores.language == "xx"
    assert scores.method == method
    assert scores.unit == "accuracy"
    assert scores.spec == stored_run.spec
    assert scores.samples is not None
    assert scores.low is not None
    assert scores.high is not None
    draws = int(stored_run.checkpoint()["draws"])  # type: ignore[index] # there is one
    max_samples = scores.samples.max()
    assert 0 < max_samples <= draws < OPTIONS[method]["samples"]
    assert (scores.low <= scores.values).all()
    assert (scores.values <= scores.high).all()
    assert scores.example_forwards > 0
    assert scores.seconds > 0
    final_scores = run_scores(model, tmp_path / "cut", method)
    assert final_scores.samples is not None
    assert final_scores.samples.sum() > scores.samples.sum()
    # The run has ended, and its checkpoint has been deleted.
    assert scores_so_far(stored_run, model.grid) is None


def test_scores_of_the_last_checkpoint_of_a_run_are_its_result(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.work.SAVING_SHARE", 1e9)  # a checkpoint after every round
    checkpoints = {}

    def keep(progress: object) -> None:
        for path in (tmp_path / "run").glob("*/checkpoint.npz"):
            checkpoints[path] = path.read_bytes()

    final_scores = run_scores(model, tmp_path / "run", "shapley", on_progress=keep)
    ((path, data),) = checkpoints.items()
    path.write_bytes(data)
    scores = scores_so_far(StoredRun(path.parent, final_scores.spec), model.grid)
    assert scores is not None
    assert scores.values_sha256() == final_scores.values_sha256()
    np.testing.assert_array_equal(scores.low, final_scores.low)
    for field in ("estimand", "unit", "level"):
        assert getattr(scores, field) == getattr(final_scores, field)


def test_exact_has_no_scores_before_its_end(model: Model, tmp_path: Path) -> None:
    stored_run = interrupted_run(model, tmp_path, "exact", 2)
    assert scores_so_far(stored_run, model.grid) is None


def test_a_method_without_snapshots_has_no_scores_before_its_end(
    model: Model, tmp_path: Path
) -> None:
    spec = {"method": {"name": "leave-one-out", "options": {}}, "task": {"language": "xx"}}
    stored_run = Store(tmp_path).run(spec)
    stored_run.save({"sums": np.ones(3)})
    assert scores_so_far(stored_run, model.grid) is None


def test_a_torn_checkpoint_gives_no_scores(model: Model, tmp_path: Path) -> None:
    stored_run = interrupted_run(model, tmp_path, "shapley", 2)
    path = stored_run.folder / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:100])
    assert scores_so_far(stored_run, model.grid) is None
    assert not (stored_run.folder / "log.txt").exists()  # reading a snapshot writes nothing
    path.unlink()
    assert scores_so_far(stored_run, model.grid) is None


def test_scores_are_sent_unchanged(model: Model, tmp_path: Path) -> None:
    for method in ("shapley", "random"):
        scores = run_scores(model, tmp_path, method)
        text = json.dumps(scores.to_json())
        scores_received = scores_of(json.loads(text))
        assert scores_received.halves is None  # of no use before the end
        for name, value in vars(replace(scores, halves=None)).items():
            np.testing.assert_array_equal(getattr(scores_received, name), value)


@pytest.mark.parametrize(
    "broken_field", [{"values": [0.5]}, {"low": "x"}, {"grid": None}, {"language": ...}]
)
def test_an_answer_that_does_not_fit_is_a_sentence(
    model: Model, tmp_path: Path, broken_field: dict[str, Any]
) -> None:
    """A field whose value is `...` is left out."""
    answer = run_scores(model, tmp_path, "random").to_json() | broken_field
    answer = {name: value for name, value in answer.items() if value is not ...}
    with raises("worker.snapshot_malformed"):
        scores_of(answer)


# Through the worker, whose device's thread stands still meanwhile.


class Gate:
    """Stops the device's thread between two batches until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.batches = 0

    def __call__(self, progress: Any) -> None:
        self.batches += 1
        if self.batches > 6:
            assert self.open.wait(60)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def worker(
    model: Model, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningWorker]:
    """A worker whose job stands still in the middle of its first language."""
    real_score = score

    def score_at_gate(*arguments: Any, on_progress: Any, **options: Any) -> HeadScores:
        def report_and_wait(progress: Any) -> None:
            on_progress(progress)
            gate(progress)

        return real_score(*arguments, on_progress=report_and_wait, **options)

    monkeypatch.setattr("headlab.methods.run.score", score_at_gate)
    make = partial(ModelHost, tmp_path, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    with started_worker(tmp_path, make) as worker:
        yield worker
        gate.open.set()


def submit_job(worker: RunningWorker, method: str = "shapley") -> int:
    spec = {
        "model": "tiny",
        "task": "tiny",
        "languages": ["xx", "yy"],
        "method": method,
        "size": SIZE,
    }
    return int(worker.client.submit(spec={**spec, "options": OPTIONS[method]}).id)


def test_a_running_job_s_snapshot_is_given_while_the_device_is_busy(
    worker: RunningWorker, model: Model, gate: Gate
) -> None:
    job = submit_job(worker)
    wait_until(lambda: gate.batches > 6)
    row, scores = worker.client.snapshot(job)
    assert row.id == job
    assert row.state == "running"
    assert scores is not None
    assert scores.language == "xx"
    assert scores.grid == model.grid
    assert scores.samples is not None
    assert int(scores.samples.max()) < 96  # none while slopes are taken, which come first
    assert scores.values.any()
    _, second_scores = worker.client.snapshot(job)
    assert second_scores is not None
    assert second_scores.samples is not None
    assert second_scores.samples.tolist() == scores.samples.tolist()
    gate.open.set()
    wait_for_state(worker.client, job, "done")
    row, scores = worker.client.snapshot(job)
    assert row.state == "done"
    assert scores is None
    with raises("job.unknown", 99):
        worker.client.snapshot(99)


def test_a_waiting_job_s_snapshot_has_no_scores(worker: RunningWorker, gate: Gate) -> None:
    running_job = submit_job(worker)
    wait_until(lambda: gate.batches > 6)
    waiting_job = submit_job(worker, "exact")
    assert worker.client.snapshot(waiting_job)[0].state == "queued"
    assert worker.client.snapshot(waiting_job)[1] is None
    assert worker.client.snapshot(running_job)[1] is not None


def test_a_job_s_method_has_one_name(worker: RunningWorker, gate: Gate) -> None:
    spec = {
        "model": "tiny",
        "task": "tiny",
        "languages": ["xx"],
        "method": "tmab",
    }
    job = worker.client.submit(spec=spec).id
    assert worker.client.job(job).params["method"] == "shapley"
    assert worker.client.submit(spec={**spec, "method": "shapley"}).id == job
    worker.client.cancel(job)


# What a method costs, and where it cannot be used.


def test_only_the_paper_s_recipe_comes_with_a_caution() -> None:
    assert {key for key in METHODS if costs.caution(key)} == {"paper"}
    assert "not anytime-valid" in costs.caution("paper")


def test_exact_is_refused_for_more_heads_than_it_can_do() -> None:
    costs.require_few_heads(METHODS["exact"], 16)
    costs.require_few_heads(METHODS["shapley"], 10_000)
    with raises("method.heads_too_many", 144, 16):
        costs.require_few_heads(METHODS["exact"], 144)


@pytest.mark.parametrize("method", ["shapley", "monte-carlo", "paper", "leave-one-out"])
def test_no_run_takes_more_forwards_than_forecast(
    model: Model, tmp_path: Path, method: str
) -> None:
    options = METHODS[method].resolve(OPTIONS.get(method, {}))
    max_forwards = METHODS[method].max_forwards(options, model.grid.size, SIZE)
    # Each walk takes one more forward, of the baseline or of a coalition.
    walks = {
        "shapley": 2 * 96,
        "monte-carlo": 96,
        "paper": 8 * SIZE,
        "leave-one-out": SIZE,
    }
    forwards = run_scores(model, tmp_path, method).example_forwards
    assert forwards <= max_forwards + walks[method]
    assert forwards > max_forwards / 4


def test_exact_takes_every_coalition_on_every_example() -> None:
    assert METHODS["exact"].max_forwards({}, 12, 24) == 24 * 4096


def test_costs_count_heads_by_sign_and_by_width_of_their_intervals() -> None:
    grid = HeadGrid.from_json({"encoder": [4]})
    low = np.array([0.01, -0.03, -0.004, -0.02])
    high = np.array([0.03, -0.01, 0.004, 0.03])
    scores = HeadScores(
        grid,
        "de",
        "shapley",
        (low + high) / 2,
        "shapley-top50",
        "accuracy",
        40,
        2.0,
        low,
        high,
        np.array([512, 512, 1024, 8192]),
    )
    cost = costs.cost_of(scores)
    assert cost.helpful == 1
    assert cost.harmful == 1
    assert cost.narrow == 1
    assert cost.wide == 1
    assert cost.samples == (512, 768, 8192)
    assert (cost.median_half_width, cost.largest_half_width) == pytest.approx((0.01, 0.025))
    spec_with_target = {"method": {"name": "shapley", "options": {"target": 0.003}}}
    assert costs.cost_of(replace(scores, spec=spec_with_target)).narrow == 0
    assert costs.pace([scores], "m", "t") is None
    scores_of_m_on_t = replace(scores, spec={"model": {"name": "m"}, "task": {"name": "t"}})
    assert costs.pace([scores, scores_of_m_on_t], "m", "t") == pytest.approx(0.05)
