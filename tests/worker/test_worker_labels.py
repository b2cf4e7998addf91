"""Label maps: requests and jobs say which class of a model is which label if their names differ."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import raises
from support.running_worker import RunningWorker, evaluate_request, started_worker
from support.saved_models import save_family
from support.tiny_task import tiny_task
from support.waiting import wait_until

from headlab import load
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.methods.run import score
from headlab.results import Store
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import JobRow

CLASSES = ("joy", "fear", "anger", "love", "calm")
TURNED_CLASSES = (*CLASSES[1:], CLASSES[0])
LABEL_MAPS = [
    dict(zip(tiny_task().labels, classes, strict=True)) for classes in (CLASSES, TURNED_CLASSES)
]
KIND_SPECS: dict[str, dict[str, Any]] = {
    "score": {"method": "leave-one-out", "size": 24},
    "curve": {"method": "leave-one-out", "size": 24, "points": 2},
    "experiment": {
        "experiment": "transfer",
        "method": "leave-one-out",
        "dev_size": 24,
        "test_size": 24,
    },
    "front": {"method": "leave-one-out", "dev_size": 24, "test_size": 24},
    "gates": {"weights": [0.1], "options": {"steps": 2, "batch": 4}},
    "worth": {"rounds": 6, "batch_sizes": [2]},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tiny classifier whose classes have other names than the task's labels."""
    folder = save_family(tmp_path_factory.mktemp("model") / "bert", "bert")
    classifier = load(str(folder))
    classifier.module.config.id2label = dict(enumerate(CLASSES))
    return classifier


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})


@pytest.fixture
def worker(model: Model, tmp_path: Path) -> Iterator[RunningWorker]:
    make = partial(ModelHost, tmp_path, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    with started_worker(tmp_path, make) as worker:
        yield worker


def spec_of(model: Model, kind: str, **changes: Any) -> dict[str, Any]:
    spec = {
        "model": model.name,
        "task": "tiny",
        "languages": ["xx", "yy"],
        **KIND_SPECS[kind],
        **changes,
    }
    if kind == "worth":
        kept_heads = np.arange(model.grid.size) > 0
        spec["mask"] = Mask(model.grid, kept_heads, model.identity()).to_json()
    return spec


def run_job(worker: RunningWorker, kind: str, spec: dict[str, Any]) -> JobRow:
    job = worker.client.submit(kind, spec).id
    wait_until(lambda: worker.client.job(job).state not in ("queued", "running"))
    return worker.client.job(job)


@pytest.mark.parametrize("label_map", LABEL_MAPS, ids=["in order", "turned"])
def test_figures_are_those_of_the_stated_classes(
    worker: RunningWorker, model: Model, label_map: dict[str, str]
) -> None:
    request = evaluate_request(model.name, "tiny", "xx", size=24, label_map=label_map)
    figure = list(worker.client.evaluate(request))[-1]
    task = tiny_task().with_label_map(label_map)
    library_evaluation = Evaluator(model, task, "xx", "dev", 24).evaluate()
    assert figure.n == 24
    assert figure.accuracy == library_evaluation.accuracy
    assert figure.note.startswith(f"Label map: a = {label_map['a']}, ")
    gradient = worker.client.gradient(model.name, "tiny", "xx", size=24, label_map=label_map)
    assert gradient.spec["task"]["classes"] == label_map
    library_scores = score(model, task, language="xx", method="gradient", size=24)
    assert (gradient.values == library_scores.values).all()


@pytest.mark.parametrize("kind", KIND_SPECS)
def test_a_job_of_every_kind_takes_a_label_map_and_fails_without_one(
    worker: RunningWorker, model: Model, kind: str
) -> None:
    failed_job = run_job(worker, kind, spec_of(model, kind))
    assert failed_job.state == "failed"
    assert "say which class is which label" in failed_job.error
    finished_job = run_job(worker, kind, spec_of(model, kind, label_map=LABEL_MAPS[0]))
    assert finished_job.state == "done", finished_job.error
    assert finished_job.params["label_map"] == LABEL_MAPS[0]


@pytest.mark.parametrize("kind", ["score", "curve", "gates"])
def test_results_of_another_label_map_are_not_taken_for_those_of_this_one(
    worker: RunningWorker, model: Model, kind: str
) -> None:
    first_map, second_map = LABEL_MAPS
    first_spec = spec_of(model, kind, label_map=first_map)
    second_spec = spec_of(model, kind, label_map=second_map)
    assert run_job(worker, kind, first_spec).state == "done"
    assert worker.client.forecast(kind, first_spec).forwards == 0
    assert worker.client.forecast(kind, second_spec).forwards > 0
    first_keys = run_job(worker, kind, first_spec).result["keys"]
    second_keys = run_job(worker, kind, second_spec).result["keys"]
    assert not set(first_keys) & set(second_keys)


def test_a_map_of_other_labels_is_refused_before_it_is_queued(model: Model) -> None:
    map_without_a = dict(LABEL_MAPS[0])
    del map_without_a["a"]
    for kind in KIND_SPECS:
        with raises("label_map.labels_mismatch", "'a'"):
            checked_fields(kind, spec_of(model, kind, label_map=map_without_a))


def test_stored_scores_say_their_classes(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    assert (
        run_job(worker, "score", spec_of(model, "score", label_map=LABEL_MAPS[1])).state == "done"
    )
    (stored_result,) = Store(tmp_path).find(language="xx")
    assert stored_result.record.spec["task"]["classes"]["a"] == "fear"
