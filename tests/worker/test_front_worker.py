"""Front and worth jobs from end to end on a tiny model: params, results, forecasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import raises
from support.running_worker import RunningWorker, started_worker
from support.saved_models import save_family
from support.tiny_task import tiny_task
from support.waiting import wait_until
from support.worker_jobs import wait_for_end, wait_for_state

from headlab import load
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.results import Store
from headlab.studies.front_so_far import FrontSoFar, GrowingFront
from headlab.studies.run import Pieces, run_experiment
from headlab.studies.savings import Savings
from headlab.worker.client import FRONT_SO_FAR
from headlab.worker.model_host import ModelHost

OPTIONS: dict[str, Any] = {
    "points": 3,
    "within": 5.0,
    "by": "estimate",
    "orders": "mean",
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
    cache = tmp_path / "cache"
    cache.mkdir()
    make = partial(ModelHost, cache, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    with started_worker(cache, make) as worker:
        yield worker


def front_spec(model: Model, **changes: Any) -> dict[str, Any]:
    spec = {
        "model": model.name,
        "task": "tiny",
        "languages": ["xx", "yy"],
        "method": "leave-one-out",
    }
    return {
        **spec,
        "options": OPTIONS,
        "dev_size": 12,
        "test_size": 16,
        **changes,
    }


def worth_spec(model: Model) -> dict[str, Any]:
    return {
        "model": model.name,
        "task": "tiny",
        "languages": ["xx"],
        "mask": mask_of(model).to_json(),
    }


def mask_of(model: Model) -> Mask:
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[0, 1, 5]] = False
    return Mask(model.grid, kept_heads, model.identity())


def test_a_front_job_makes_the_librarys_front_and_forecasts_its_cost(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    forecast = worker.client.forecast("front", front_spec(model))
    assert forecast.forwards > 3 * 12 * 2 + 2 * 16 * 2
    job = worker.client.submit("front", front_spec(model)).id
    (key,) = wait_for_end(worker.client, job).result["keys"]
    (stored_result,) = Store(tmp_path / "cache").reports().results
    pieces = Pieces(model, tiny_task(), dev_size=12, test_size=16)
    assert stored_result.key == key
    options = {**OPTIONS, "method": "leave-one-out"}
    assert stored_result.record.tables == run_experiment("front", pieces, options=options).tables
    log = " ".join(worker.client.log(job))
    assert "walk" in log or "curve" in log
    second_forecast = worker.client.forecast("front", front_spec(model))
    assert second_forecast.forwards == 0
    assert second_forecast.basis == "the report is in the cache already"


class Gate:
    """Stops the device's thread behind a model of a front until it is opened.

    Attributes:
        open: Set to let all models pass.
        looks: How many times the front was looked at.
        first_closed: Number of the look that waits first.
        cuts_off: Whether the job ends in an error once the gate opens.
    """

    def __init__(self, first_closed: int) -> None:
        self.open = threading.Event()
        self.looks = 0
        self.first_closed = first_closed
        self.cuts_off = False

    def __call__(self) -> None:
        self.looks += 1
        if self.looks >= self.first_closed:
            assert self.open.wait(60)
        if self.cuts_off:
            raise HeadlabError("the power is gone; wait for it", code="test.cut_off")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate behind the second model of the first language."""
    gate = Gate(first_closed=3)
    real_take = GrowingFront.take

    def take_at_gate(front: GrowingFront, *arguments: Any) -> None:
        real_take(front, *arguments)
        gate()

    monkeypatch.setattr(GrowingFront, "take", take_at_gate)
    yield gate
    gate.open.set()


def test_a_running_front_can_be_looked_at_and_goes_on_where_it_was_cut_off(
    worker: RunningWorker, model: Model, gate: Gate
) -> None:
    job = worker.client.submit("front", front_spec(model)).id
    wait_until(lambda: gate.looks == 3, "two models of the first language")
    row, front = worker.client.front_so_far(job)
    assert row.state == "running"
    assert front is not None
    assert front.languages == ("xx", "yy")
    assert (front.planned, front.measured, front.measured_in("xx")) == (3, 0, 2)
    assert [part.all_answers for part in front.models[1].languages] == [12]
    assert front.models[1].parameters is not None
    gate.cuts_off = True
    gate.open.set()
    wait_for_state(worker.client, job, "failed")
    assert worker.client.front_so_far(job)[1] is None
    gate.open.clear()
    gate.looks, gate.first_closed, gate.cuts_off = 0, 1, False
    worker.client.resume(job)
    wait_until(lambda: gate.looks == 1, "the front that goes on")
    resumed_front = worker.client.front_so_far(job)[1]
    assert resumed_front is not None
    assert resumed_front.models[:2] == front.models[:2]
    gate.open.set()
    wait_for_end(worker.client, job)


def test_a_front_so_far_of_a_newer_worker_is_read() -> None:
    record = {
        "languages": ["xx"],
        "planned": 3,
        "models": [],
        "news": 1,
    }
    assert FRONT_SO_FAR.validate_python(record, extra="ignore") == FrontSoFar(("xx",), 3, ())
    assert FRONT_SO_FAR.validate_python(None) is None


def test_a_worth_job_measures_a_mask_and_its_result_is_in_the_job(
    worker: RunningWorker, model: Model
) -> None:
    spec = {**worth_spec(model), "batch_sizes": [16], "rounds": 6}
    assert worker.client.forecast("worth", spec).forwards == 3 * 2 * 6 * 32
    job = worker.client.submit("worth", spec).id
    savings = Savings.from_json(wait_for_end(worker.client, job).result["worth"])
    assert savings.removed_heads == 3
    assert savings.spec["mask"] == mask_of(model).digest
    assert [speed.rows for speed in savings.speeds] == [16]
    short_passes = {**spec, "examples": 4}
    assert worker.client.forecast("worth", short_passes).forwards == 3 * 2 * 6 * 16
    assert worker.client.forecast("worth", {**short_passes, "batch_sizes": [1]}).forwards == 144


def test_equal_work_has_equal_params() -> None:
    short_spec = {
        "model": "m",
        "task": "tiny",
        "languages": "all",
        "method": "tmab",
    }
    params = checked_fields("front", short_spec)
    assert params == checked_fields("front", params)
    assert params["options"] == {
        "orders": "mean,weakest,cost",
        "points": 25,
        "within": 1.0,
        "heads": None,
        "by": "bound",
    }
    assert params["experiment"] == "front"
    assert params["method"] == "shapley"
    assert params["languages"] == ["xx", "yy"]


@pytest.mark.parametrize(
    ("kind", "changes", "expected_error"),
    [
        ("front", {"options": {"within": 1.0, "heads": 3}}, ("front.two_questions",)),
        (
            "front",
            {"options": {"orders": "best"}},
            ("experiment.list_item_unknown", "orders", "best"),
        ),
        ("front", {"options": {"method": "shapley"}}, ("experiment.option_misplaced",)),
        (
            "front",
            {"options": {"within": 200.0}},
            ("experiment.option_invalid", "a number from 0 to 100"),
        ),
        ("front", {"task": "nothing"}, ("task.unknown", "'nothing'")),
        ("front", {"method": "dance"}, ("method.unknown", "dance")),
        ("experiment", {}, ("experiment.unknown", "'front'")),
        ("worth", {"mask": {}}, ("mask.not_a_mask",)),
        ("worth", {"languages": ["tlh"]}, ("task.language_unknown", "'tlh'")),
    ],
)
def test_params_that_do_not_fit_are_refused(
    model: Model, kind: str, changes: dict[str, Any], expected_error: tuple[object, ...]
) -> None:
    specs = {
        "front": front_spec(model),
        "experiment": front_spec(model, experiment="front"),
        "worth": worth_spec(model),
    }
    with raises(*expected_error):
        checked_fields(kind, {**specs[kind], **changes})
