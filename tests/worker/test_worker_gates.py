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
from support.checked_jobs import checked
from support.expected_errors import raises
from support.running_worker import Running, running
from support.saved_models import save_family
from support.synthetic_gates import keep, made_gates
from support.tiny_task import SIZES, tiny_task
from support.waiting import until

from headlab import load
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.jobs import ForecastBasis, Measured, Refusal
from headlab.jobs import gates as kind
from headlab.jobs.gates import GatesJob, examples_of, forwards_of
from headlab.results import Store
from headlab.tasks import Task
from headlab.training.l0_learn import learn_gates
from headlab.training.l0_options import options_of
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import JobRow

SHORT: dict[str, Any] = {
    "steps": 6,
    "batch": 4,
    "history": 3,
    "dev_size": 8,
    "test_size": 10,
    "gate_rate": 1.0,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(str(save_family(tmp_path_factory.mktemp("model") / "bert", "bert")))


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})


@pytest.fixture
def worker(model: Model, tmp_path: Path) -> Iterator[Running]:
    make = partial(ModelHost, tmp_path, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    with running(tmp_path, make) as run:
        yield run


def spec_of(model: Model, **changes: Any) -> dict[str, Any]:
    about = {
        "model": model.name,
        "task": "tiny",
        "languages": ["yy"],
        "weights": [0.5, 0.0],
        "options": SHORT,
    }
    return {**about, **changes}


def come_to(worker: Running, job: int, state: str) -> JobRow:
    until(lambda: worker.client.job(job).state not in ("queued", "running"))
    ended = worker.client.job(job)
    assert ended.state == state, ended.error
    return ended


def submit(worker: Running, spec: dict[str, Any]) -> int:
    return int(worker.client.submit("gates", spec).id)


# Params


def test_equal_work_has_equal_params() -> None:
    spelled = {
        "model": "m",
        "task": "tiny",
        "languages": ["xx"],
        "options": {"stacks": "cross, encoder", "high": 2},
    }
    options = checked("gates", spelled)["options"]
    assert (options["stacks"], type(options["high"])) == ("encoder,cross", float)
    full = checked(
        "gates", {"model": "m", "task": "tiny", "languages": "all", "weights": [0.1, 0.05, 0.1]}
    )
    assert full == checked("gates", full)
    assert (full["languages"], full["weights"], full["seed"]) == (["xx", "yy"], [0.05, 0.1], 0)
    assert full["options"]["steps"] == 400
    assert "weight" not in full["options"]
    assert checked("gates", {"model": "m", "task": "tiny", "languages": ["xx"]})["weights"] == [
        0.01
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
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
    model: Model, changes: dict[str, Any], expected: tuple[object, ...]
) -> None:
    with raises(*expected, kind=Refusal) as caught:
        checked("gates", spec_of(model, **changes))
    assert caught.value.status == 422


def test_a_job_is_refused_for_a_language_that_cannot_be_read_wherever_it_stands(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_task()

    def read(language: str, split: Any, seed: int) -> Any:
        if (language, split) == ("yy", "train"):
            raise HeadlabError(
                "yy.train.tsv, line 7: 2 fields where the header has 3", code="data.fields_mismatch"
            )
        return whole.read(language, split, seed)

    monkeypatch.setattr(
        "headlab.tasks.registry.TASKS", {"tiny": lambda _: dataclasses.replace(whole, read=read)}
    )
    checked("gates", spec_of(model, languages=["xx"]))
    with raises("data.fields_mismatch", "line 7", kind=Refusal):
        checked("gates", spec_of(model, languages=["xx", "yy"]))


def test_what_does_not_fit_is_refused_at_the_door_and_nothing_is_queued(
    worker: Running, model: Model
) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"weights": []},
        {"weights": [-1]},
        {"weights": ["x"]},
        {"more": 1},
    )
    for change in (*changes, {"weights": [0.1] * 21}, {"languages": ["zz"]}):
        answer = httpx.post(
            f"{worker.url}/jobs", json={"kind": "gates", "spec": spec_of(model, **change)}
        )
        assert (answer.status_code, list(answer.json())) == (422, ["error", "code"])
    assert worker.client.jobs() == []


# Runs


@pytest.fixture
def threads() -> Iterator[None]:
    """As many threads here as the worker's device thread takes: the last bits depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_a_job_leaves_the_library_s_gates_and_a_second_one_costs_nothing(
    worker: Running, model: Model, tmp_path: Path
) -> None:
    before = worker.client.forecast("gates", spec_of(model))
    judged = SHORT["dev_size"] + SHORT["test_size"]
    assert before.forwards == 2 * (2 * 6 * 4 + 2 * judged)
    assert before.basis.startswith(
        "2 runs of 6 steps of 4 examples, each worth 2 forwards, and the masks measured; "
    )
    assert before.seconds > 0
    done = come_to(worker, submit(worker, spec_of(model)), "done")
    kept = {result.key: result.record for result in Store(tmp_path).gates().results}
    found = [kept[key] for key in done.result["keys"]]
    assert [gates.weight for gates in found] == [0.0, 0.5]
    own = learn_gates(model, tiny_task(), "yy", options=options_of({**SHORT, "weight": 0.5}))
    assert found[1].spec == own.spec
    assert found[1].measured == own.measured
    np.testing.assert_allclose(found[1].log_alpha, own.log_alpha, rtol=1e-4)
    assert done.done == done.total
    assert [line[21:] for line in worker.client.log(done.id)].count("yy: gates started") == 2
    after = worker.client.forecast("gates", spec_of(model))
    assert (after.forwards, after.seconds) == (0, 0.0)
    assert after.basis == "these gates are in the cache already"
    more = worker.client.forecast("gates", spec_of(model, weights=[0.0, 0.5, 1.0]))
    assert more.forwards == before.forwards / 2
    assert "2 of 3 runs are in the cache already" in more.basis
    assert "as in 2 runs of such gates on such a device (cpu)" in more.basis
    again = come_to(worker, submit(worker, spec_of(model)), "done")
    assert again.result == done.result


@pytest.mark.usefixtures("threads")
def test_a_cancelled_job_goes_on_from_its_checkpoint_to_the_same_gates(
    worker: Running, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {**SHORT, "steps": 40}  # the state is kept after 20
    reached = threading.Event()
    go_on = threading.Event()
    steps = list[int]()

    def stop_at(made: Any) -> None:
        steps.append(made.step)
        if made.step == 25:
            reached.set()
            go_on.wait(30)

    step = kind.RunProgress.step
    # else it may be done before it looks
    monkeypatch.setattr("headlab.worker.runner.BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(
        kind.RunProgress, "step", lambda watch, made: (stop_at(made), step(watch, made))[1]
    )
    job = submit(worker, spec_of(model, weights=[0.5], options=long))
    assert reached.wait(60)
    worker.client.cancel(job)
    go_on.set()
    come_to(worker, job, "cancelled")
    assert not Store(tmp_path).gates().results
    worker.client.resume(job)
    come_to(worker, job, "done")
    assert steps.count(1) == 1  # the second attempt did not begin anew
    (result,) = Store(tmp_path).gates().results
    own = learn_gates(model, tiny_task(), "yy", options=options_of({**long, "weight": 0.5}))
    np.testing.assert_allclose(result.record.log_alpha, own.log_alpha, rtol=1e-4)


# Cost


def foretell(tmp_path: Path, measured: Measured | None = None, **changes: Any) -> Any:
    spec = {
        "model": "e5-small-intents",
        "task": "tiny",
        "languages": ["yy"],
        "weights": [0.01],
        **changes,
    }
    full = checked("gates", spec)
    return GatesJob.model_validate(full).forecast(ForecastBasis((), (), "cpu", tmp_path, measured))


def test_without_runs_the_device_is_timed_and_with_some_their_pace_is_taken(tmp_path: Path) -> None:
    first = foretell(tmp_path)
    assert first.forecast.seconds is None
    assert (
        first.measure_request.model,
        first.measure_request.language,
        first.measure_request.job,
    ) == (
        "e5-small-intents",
        "yy",
        None,
    )
    timed = foretell(tmp_path, Measured(heads=4, seconds=0.001))
    judged = SIZES["dev"] + SIZES["test"]
    assert timed.forecast.forwards == 400 * 32 * 2 + 2 * judged
    assert timed.forecast.seconds == pytest.approx(0.001 * timed.forecast.forwards)
    assert timed.measure_request is None
    gates = made_gates(task="tiny")
    keep(tmp_path, gates)
    paced = foretell(tmp_path)
    options = options_of({"steps": 100, "history": 6})
    assert paced.forecast.seconds == pytest.approx(
        timed.forecast.forwards * gates.seconds / forwards_of(options, 512 + 1000)
    )
    along = foretell(tmp_path, options={"trained": "all"})
    assert along.forecast.forwards - timed.forecast.forwards == 400 * 32


@pytest.mark.parametrize(
    "examples", ["many", 10**400, 1e308, [3]], ids=["word", "huge", "large", "list"]
)
def test_a_run_that_does_not_say_what_it_took_is_left_out_of_the_pace(
    tmp_path: Path, examples: Any
) -> None:
    keep(
        tmp_path,
        dataclasses.replace(made_gates(task="tiny"), measured={"dev": {"examples": examples}}),
    )
    assert foretell(tmp_path, weights=[0.5]).forecast.seconds is None
    keep(tmp_path, made_gates(task="tiny", weight=0.02))
    assert foretell(tmp_path, weights=[0.5]).forecast.seconds > 0


def test_a_task_without_a_train_split_is_learned_on_dev() -> None:
    whole = tiny_task()

    def read(language: str, split: Any, seed: int) -> Any:
        return () if split == "train" else whole.read(language, split, seed)

    without = Task("tiny", whole.labels, whole.languages, False, read)
    assert examples_of(whole, "xx", options_of({})) == SIZES["train"]
    assert examples_of(without, "xx", options_of({})) == SIZES["dev"]
    assert examples_of(whole, "xx", options_of({"split": "dev", "size": 3})) == 3
    with raises("task.no_examples", "train"):
        examples_of(without, "xx", options_of({"split": "train"}))
    assert GatesJob(model="m", task="t", languages="all").weights == [0.01]


def test_a_deleted_job_takes_its_checkpoint_along(
    worker: Running, model: Model, tmp_path: Path
) -> None:
    job = submit(
        worker, spec_of(model, weights=[0.5], options={**SHORT, "steps": 400, "trained": "all"})
    )
    until(lambda: bool(list(tmp_path.glob("*/checkpoint.safetensors"))))
    worker.client.cancel(job)
    come_to(worker, job, "cancelled")
    (checkpoint,) = tmp_path.glob("*/checkpoint.safetensors")
    for name in ("model", ".model.x1y2"):  # the second is left by a kill in the middle of writing
        (checkpoint.parent / name).mkdir()
        (checkpoint.parent / name / "config.json").write_text("{}")
    worker.client.delete(job)
    assert not checkpoint.parent.exists()
