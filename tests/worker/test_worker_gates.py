"""Gate jobs from end to end on a tiny model: params, runs, their cost, cancel and resume."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from support.checked_jobs import checked_fields
from support.expected_errors import raises
from support.running_worker import RunningWorker, started_worker
from support.saved_models import save_family
from support.synthetic_gates import keep_gates, made_gates
from support.tiny_task import SIZES, tiny_task
from support.waiting import wait_until
from support.worker_jobs import log_lines, wait_for_end

from headlab import load
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.jobs import ForecastBasis, Measured, Refusal
from headlab.jobs import gates as gates_job
from headlab.jobs.gates import GatesJob, examples_of, forwards_of
from headlab.results import Store
from headlab.tasks import Task
from headlab.training.l0_learn import learn_gates
from headlab.training.l0_options import options_of
from headlab.worker.model_host import ModelHost

SHORT_RUN: dict[str, Any] = {
    "steps": 6,
    "batch": 4,
    "history": 3,
    "dev_size": 8,
    "test_size": 10,
    "gate_rate": 1.0,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = save_family(tmp_path_factory.mktemp("model") / "bert", "bert")
    return load(str(folder))


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})


@pytest.fixture
def worker(model: Model, tmp_path: Path) -> Iterator[RunningWorker]:
    make = partial(ModelHost, tmp_path, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    with started_worker(tmp_path, make) as worker:
        yield worker


def spec_of(model: Model, **changes: Any) -> dict[str, Any]:
    spec = {
        "model": model.name,
        "task": "tiny",
        "languages": ["yy"],
        "weights": [0.5, 0.0],
        "options": SHORT_RUN,
    }
    return {**spec, **changes}


def submit(worker: RunningWorker, spec: dict[str, Any]) -> int:
    return int(worker.client.submit("gates", spec).id)


# Params


def test_equal_work_has_equal_params() -> None:
    spec_with_stacks = {
        "model": "m",
        "task": "tiny",
        "languages": ["xx"],
        "options": {"stacks": "cross, encoder", "high": 2},
    }
    options = checked_fields("gates", spec_with_stacks)["options"]
    assert options["stacks"] == "encoder,cross"
    assert type(options["high"]) is float
    spec_with_weights = {
        "model": "m",
        "task": "tiny",
        "languages": "all",
        "weights": [0.1, 0.05, 0.1],
    }
    params = checked_fields("gates", spec_with_weights)
    assert params == checked_fields("gates", params)
    assert params["languages"] == ["xx", "yy"]
    assert params["seed"] == 0
    assert params["weights"] == [0.05, 0.1]
    assert params["options"]["steps"] == 400
    assert "weight" not in params["options"]
    short_spec = {"model": "m", "task": "tiny", "languages": ["xx"]}
    assert checked_fields("gates", short_spec)["weights"] == [0.01]


@pytest.mark.parametrize(
    ("changes", "expected_error"),
    [
        ({"languages": ["zz"]}, ("task.language_unknown", "'zz'")),
        ({"task": "nothing"}, ("task.unknown", "'nothing'")),
        ({"options": {"size": 4, "more": 1}}, ("option.unknown", "more")),
        ({"options": {"weight": 0.1}}, ("gate.weight_misplaced",)),
        ({"options": {"start": 1.0}}, ("option.invalid", "start", 1.0)),
        (
            {"options": {"stacks": "encoders"}},
            ("gate.stacks_invalid", "'encoders'", "encoder, decoder, cross", "all"),
        ),
        ({"options": {"steps": 10**6}}, ("job.number_too_large", "steps", 1000000, "100,000")),
    ],
)
def test_params_that_do_not_fit_are_refused(
    model: Model, changes: dict[str, Any], expected_error: tuple[object, ...]
) -> None:
    with raises(*expected_error, kind=Refusal) as caught:
        checked_fields("gates", spec_of(model, **changes))
    assert caught.value.status == 422


def test_a_job_is_refused_if_any_of_its_languages_cannot_be_read(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tiny_task()

    def read(language: str, split: Any, seed: int) -> Any:
        if (language, split) == ("yy", "train"):
            raise HeadlabError(
                "yy.train.tsv, line 7: 2 fields where the header has 3", code="data.fields_mismatch"
            )
        return task.read(language, split, seed)

    broken_task = dataclasses.replace(task, read=read)
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: broken_task})
    checked_fields("gates", spec_of(model, languages=["xx"]))
    with raises("data.fields_mismatch", "line 7", kind=Refusal):
        checked_fields("gates", spec_of(model, languages=["xx", "yy"]))


def test_a_request_that_does_not_fit_is_refused_and_nothing_is_queued(
    worker: RunningWorker, model: Model
) -> None:
    changes: list[dict[str, Any]] = [
        {"weights": []},
        {"weights": [-1]},
        {"weights": ["x"]},
        {"more": 1},
        {"weights": [0.1] * 21},
        {"languages": ["zz"]},
    ]
    for change in changes:
        body = {"kind": "gates", "spec": spec_of(model, **change)}
        answer = httpx.post(f"{worker.url}/jobs", json=body)
        assert answer.status_code == 422
        assert list(answer.json()) == ["error", "code"]
    assert worker.client.jobs() == []


# Runs


@pytest.fixture
def threads() -> Iterator[None]:
    """Use as many threads here as the worker's device thread does: the last bits depend on it."""
    former_count = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(former_count)


@pytest.mark.usefixtures("threads")
def test_a_job_leaves_the_library_s_gates_and_a_second_one_costs_nothing(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    forecast = worker.client.forecast("gates", spec_of(model))
    examples_of_masks = SHORT_RUN["dev_size"] + SHORT_RUN["test_size"]
    assert forecast.forwards == 2 * (2 * 6 * 4 + 2 * examples_of_masks)
    assert forecast.basis.startswith(
        "2 runs of 6 steps of 4 examples, each worth 2 forwards, and the masks measured; "
    )
    assert forecast.seconds > 0
    finished_job = wait_for_end(worker.client, submit(worker, spec_of(model)))
    stored_gates = {result.key: result.record for result in Store(tmp_path).gates().results}
    job_gates = [stored_gates[key] for key in finished_job.result["keys"]]
    assert [gates.weight for gates in job_gates] == [0.0, 0.5]
    options = options_of({**SHORT_RUN, "weight": 0.5})
    library_gates = learn_gates(model, tiny_task(), "yy", options=options)
    assert job_gates[1].spec == library_gates.spec
    assert job_gates[1].measured == library_gates.measured
    np.testing.assert_allclose(job_gates[1].log_alpha, library_gates.log_alpha, rtol=1e-4)
    assert finished_job.done == finished_job.total
    assert log_lines(worker.client, finished_job.id).count("yy: gates started") == 2
    forecast_of_stored = worker.client.forecast("gates", spec_of(model))
    assert forecast_of_stored.forwards == 0
    assert forecast_of_stored.seconds == 0.0
    assert forecast_of_stored.basis == "these gates are in the cache already"
    spec_with_third_weight = spec_of(model, weights=[0.0, 0.5, 1.0])
    forecast_of_third_weight = worker.client.forecast("gates", spec_with_third_weight)
    assert forecast_of_third_weight.forwards == forecast.forwards / 2
    assert "2 of 3 runs are in the cache already" in forecast_of_third_weight.basis
    assert "as in 2 runs of such gates on such a device (cpu)" in forecast_of_third_weight.basis
    second_job = wait_for_end(worker.client, submit(worker, spec_of(model)))
    assert second_job.result == finished_job.result


@pytest.mark.usefixtures("threads")
def test_a_cancelled_job_goes_on_from_its_checkpoint_to_the_same_gates(
    worker: RunningWorker, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SHORT_RUN, "steps": 40}  # a checkpoint is written after 20
    has_reached_step = threading.Event()
    go_on = threading.Event()
    steps = list[int]()
    real_step = gates_job.RunProgress.step

    def step_with_pause(progress: Any, training: Any) -> None:
        steps.append(training.step)
        if training.step == 25:
            has_reached_step.set()
            go_on.wait(30)
        real_step(progress, training)

    # Otherwise the job may be done before it sees the cancellation.
    monkeypatch.setattr("headlab.worker.runner.BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(gates_job.RunProgress, "step", step_with_pause)
    job = submit(worker, spec_of(model, weights=[0.5], options=options))
    assert has_reached_step.wait(60)
    worker.client.cancel(job)
    go_on.set()
    wait_for_end(worker.client, job, "cancelled")
    assert not Store(tmp_path).gates().results
    worker.client.resume(job)
    wait_for_end(worker.client, job, "done")
    assert steps.count(1) == 1  # the second attempt did not begin anew
    (result,) = Store(tmp_path).gates().results
    library_options = options_of({**options, "weight": 0.5})
    library_gates = learn_gates(model, tiny_task(), "yy", options=library_options)
    np.testing.assert_allclose(result.record.log_alpha, library_gates.log_alpha, rtol=1e-4)


# Cost


def estimate_of(tmp_path: Path, measurement: Measured | None = None, **changes: Any) -> Any:
    """The forecast of a gates job, and a request to measure the pace if that is needed.

    Args:
        tmp_path: The cache.
        measurement: The pace that was measured now, if any.
        changes: Fields of the job that differ from the usual ones.
    """
    spec = {
        "model": "e5-small-intents",
        "task": "tiny",
        "languages": ["yy"],
        "weights": [0.01],
        **changes,
    }
    job = GatesJob.model_validate(checked_fields("gates", spec))
    return job.forecast(ForecastBasis((), (), "cpu", tmp_path, measurement))


def test_without_runs_the_device_is_timed_and_with_some_their_pace_is_taken(tmp_path: Path) -> None:
    estimate = estimate_of(tmp_path)
    assert estimate.forecast.seconds is None
    assert estimate.measure_request.model == "e5-small-intents"
    assert estimate.measure_request.language == "yy"
    assert estimate.measure_request.job is None
    timed_estimate = estimate_of(tmp_path, Measured(heads=4, seconds=0.001))
    examples_of_masks = SIZES["dev"] + SIZES["test"]
    forwards = 400 * 32 * 2 + 2 * examples_of_masks
    assert timed_estimate.forecast.forwards == forwards
    assert timed_estimate.forecast.seconds == pytest.approx(0.001 * forwards)
    assert timed_estimate.measure_request is None
    gates = made_gates(task="tiny")
    keep_gates(tmp_path, gates)
    paced_estimate = estimate_of(tmp_path)
    options = options_of({"steps": 100, "history": 6})
    seconds_a_forward = gates.seconds / forwards_of(options, 512 + 1000)
    assert paced_estimate.forecast.seconds == pytest.approx(forwards * seconds_a_forward)
    estimate_with_all_trained = estimate_of(tmp_path, options={"trained": "all"})
    assert estimate_with_all_trained.forecast.forwards - forwards == 400 * 32


@pytest.mark.parametrize(
    "examples", ["many", 10**400, 1e308, [3]], ids=["word", "huge", "large", "list"]
)
def test_a_run_that_does_not_say_what_it_took_is_left_out_of_the_pace(
    tmp_path: Path, examples: Any
) -> None:
    measured_examples = {"dev": {"examples": examples}}
    keep_gates(tmp_path, dataclasses.replace(made_gates(task="tiny"), measured=measured_examples))
    assert estimate_of(tmp_path, weights=[0.5]).forecast.seconds is None
    keep_gates(tmp_path, made_gates(task="tiny", weight=0.02))
    assert estimate_of(tmp_path, weights=[0.5]).forecast.seconds > 0


def test_a_task_without_a_train_split_is_learned_on_dev() -> None:
    task = tiny_task()

    def read(language: str, split: Any, seed: int) -> Any:
        return () if split == "train" else task.read(language, split, seed)

    task_without_train = Task("tiny", task.labels, task.languages, False, read)
    assert examples_of(task, "xx", options_of({})) == SIZES["train"]
    assert examples_of(task_without_train, "xx", options_of({})) == SIZES["dev"]
    assert examples_of(task, "xx", options_of({"split": "dev", "size": 3})) == 3
    with raises("task.no_examples", "train"):
        examples_of(task_without_train, "xx", options_of({"split": "train"}))
    assert GatesJob(model="m", task="t", languages="all").weights == [0.01]


def test_a_deleted_job_s_checkpoint_is_deleted_too(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    options = {**SHORT_RUN, "steps": 400, "trained": "all"}
    job = submit(worker, spec_of(model, weights=[0.5], options=options))
    wait_until(lambda: bool(list(tmp_path.glob("*/checkpoint.safetensors"))))
    worker.client.cancel(job)
    wait_for_end(worker.client, job, "cancelled")
    (checkpoint,) = tmp_path.glob("*/checkpoint.safetensors")
    for name in ("model", ".model.x1y2"):  # the second is left by a kill in the middle of writing
        (checkpoint.parent / name).mkdir()
        (checkpoint.parent / name / "config.json").write_text("{}")
    worker.client.delete(job)
    assert not checkpoint.parent.exists()
