"""Which models stay in memory together, which are freed, and that their figures never mix."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.running_worker import evaluate_request, started_worker
from support.tiny_models import LABELS, tiny_model, tiny_module
from support.tiny_task import read_tiny, tiny_tokenizer
from support.worker_jobs import wait_for_state

from headlab.core import HeadlabError
from headlab.evaluation import Evaluator
from headlab.hooks import Model, load
from headlab.masks import Mask
from headlab.methods.run import score
from headlab.models import EMBEDDED, expected_bytes
from headlab.results import Store
from headlab.tasks import Task
from headlab.worker.model_host import ModelHost
from headlab.worker.resident import MOST_MODELS, SMALL_BYTES, ResidentModels, weight_bytes

CPU = torch.device("cpu")
SEEDS = {"first": 1, "second": 2, "third": 3}
SMALL = SMALL_BYTES - 1


def small_model(name: str) -> Model:
    if name not in SEEDS:
        raise HeadlabError(f"no model {name}; there are {', '.join(SEEDS)}", code="model.unknown")
    return tiny_model("bert", torch.float32, SEEDS[name], tokenizer=tiny_tokenizer())


def residents(
    load_model: Callable[[str], Model] = small_model, **expected: int | None
) -> ResidentModels:
    """Models of which each is expected to be small, unless another size is stated."""
    return ResidentModels(load_model, CPU, lambda name: expected.get(name, SMALL))


def test_two_small_models_stay_and_a_third_takes_the_place_of_the_one_used_longest_ago() -> None:
    models = residents()
    first = models.need("first")
    second = models.need("second")
    assert models.need("first") is first
    assert models.names == ("second", "first")
    models.need("third")
    assert models.names == ("first", "third")
    assert len(models.names) == MOST_MODELS
    assert models.get("second") is None
    assert models.need("second").model is not second.model


@pytest.mark.parametrize("expected", [SMALL_BYTES, None])
def test_a_model_is_freed_before_one_is_loaded_that_is_large_or_of_unknown_size(
    expected: int | None,
) -> None:
    names_while_loading: list[tuple[str, ...]] = []

    def load_model(name: str) -> Model:
        names_while_loading.append(models.names)
        return small_model(name)

    models = residents(load_model, second=expected)
    models.need("first")
    models.need("second")
    assert names_while_loading == [(), ()]
    assert models.names == ("second",)


def test_a_model_is_gone_from_memory_when_the_next_one_is_loaded() -> None:
    """As a device may have room for one alone."""
    are_alive: list[bool] = []
    first_module: list[weakref.ref[torch.nn.Module]] = []

    def load_model(name: str) -> Model:
        are_alive.extend(module() is not None for module in first_module)
        model = small_model(name)
        if not first_module:
            first_module.append(weakref.ref(model.module))
        return model

    models = residents(load_model, second=SMALL_BYTES)
    models.need("first")
    models.need("second")
    assert are_alive == [False]


def test_a_large_model_is_freed_before_a_small_one_is_loaded() -> None:
    models = residents()
    models.need("first").bytes = SMALL_BYTES
    models.need("second")
    assert models.names == ("second",)


def test_a_model_that_turns_out_to_be_large_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    models = residents()
    models.need("first")
    monkeypatch.setattr("headlab.worker.resident.weight_bytes", lambda _: SMALL_BYTES)
    models.need("second")
    assert models.names == ("second",)


def test_a_model_larger_than_expected_is_refused_beside_the_running_job_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = residents()
    first = models.need("first")
    models.begin_job("first")
    monkeypatch.setattr("headlab.worker.resident.weight_bytes", lambda _: SMALL_BYTES)
    with raises("worker.other_model_in_use", "first", "second"):
        models.need("second")
    assert models.need("first") is first


def test_the_running_job_s_model_is_freed_for_no_other_request() -> None:
    models = residents(third=SMALL_BYTES)
    models.need("first")
    models.begin_job("first")
    models.need("second")
    assert models.may_join("first")
    assert models.may_join("second")
    assert not models.may_join("third")
    models.end_job()
    assert models.may_join("third")
    models = residents()
    models.need("first")
    models.begin_job("first")
    models.need("second")  # so that the job's was used longest ago
    assert models.may_join("third")
    models.need("third")
    assert models.names == ("first", "third")


def test_a_job_whose_model_is_not_loaded_yet_is_joined_by_no_other() -> None:
    models = residents()
    models.begin_job("first")
    assert not models.may_join("second")


def test_a_model_that_has_no_room_beside_another_is_loaded_alone() -> None:
    def load_model(name: str) -> Model:
        if models.names:
            raise HeadlabError(f"{name} does not fit", code="memory.model_too_large")
        return small_model(name)

    models = residents(load_model)
    models.need("first")
    models.need("second")
    assert models.names == ("second",)


def test_a_model_that_cannot_be_loaded_costs_the_other_nothing() -> None:
    models = residents()
    first = models.need("first")
    with raises("model.unknown", "fourth"):
        models.need("fourth")
    assert models.need("first") is first


def saved_model(folder: Path, seed: int) -> None:
    module = tiny_module("bert", torch.float32, seed)
    module.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def test_a_folder_that_has_changed_is_loaded_again_and_one_that_has_gone_stays(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    saved_model(folder, 1)
    models = ResidentModels(partial(load, device="cpu"), CPU)
    name = str(folder)
    former = models.need(name)
    assert models.need(name) is former
    weights = folder / "model.safetensors"
    former_stat = weights.stat()
    saved_model(folder, 2)
    os.utime(weights, ns=(former_stat.st_atime_ns, former_stat.st_mtime_ns + 1_000_000))
    changed = models.need(name)
    assert changed.model.fingerprint != former.model.fingerprint
    (folder / "README.md").write_text("read by nobody")
    assert models.need(name) is changed
    models.begin_job(name)
    os.utime(weights, ns=(former_stat.st_atime_ns, former_stat.st_mtime_ns + 2_000_000))
    assert models.need(name) is changed  # a job is of one model
    models.end_job()
    loaded_again = models.need(name)
    assert loaded_again is not changed
    shutil.rmtree(folder)
    assert models.need(name) is loaded_again


def test_the_expected_size_is_that_of_the_loaded_weights(tmp_path: Path) -> None:
    saved_model(tmp_path / "model", 1)
    name = str(tmp_path / "model")
    expected = expected_bytes(name)
    assert expected is not None
    module = load(name, device="cpu").module
    assert expected == sum(4 * parameter.numel() for parameter in module.parameters())
    assert expected <= weight_bytes(module) < 1.1 * expected  # positions are a buffer
    assert expected_bytes(str(tmp_path / "nowhere")) is None
    (tmp_path / "model" / "config.json").write_text("{")
    assert expected_bytes(name) is None


def test_weights_that_two_layers_share_count_once() -> None:
    layer = torch.nn.Linear(4, 4, bias=False)
    tied = torch.nn.Sequential(layer, torch.nn.Linear(4, 4, bias=False))
    assert weight_bytes(tied) == 128
    tied[1].weight = layer.weight
    assert weight_bytes(tied) == 64


@pytest.mark.parametrize("name", ["e5-small-intents", "e5-small-slots"])
def test_the_embedded_models_have_as_many_parameters_as_stated(name: str) -> None:
    module = load(name, device="cpu").module
    assert EMBEDDED[name].parameters == sum(weight.numel() for weight in module.parameters())
    assert expected_bytes(name) == 4 * EMBEDDED[name].parameters


# The worker.


def task(_: str = "") -> Task:
    """The tiny task by a name that a job may ask for."""
    return Task("intents", LABELS, ("de", "fr"), False, read_tiny)


def score_spec(samples: int) -> dict[str, Any]:
    """A job that scores the heads of the first model."""
    return {
        "model": "first",
        "task": "intents",
        "languages": ["de"],
        "method": "shapley",
        "size": 48,
        "options": {"samples": samples},
    }


def host(folder: Path, **expected: int | None) -> ModelHost:
    return ModelHost(
        folder,
        "cpu",
        loader=small_model,
        tasks=task,
        expect_bytes=lambda name: expected.get(name, SMALL),
    )


def test_figures_of_two_models_are_those_of_each(tmp_path: Path) -> None:
    """Evaluators and paces are kept by model, and those of one that is freed go with it."""
    bench = host(tmp_path)
    masks = {}
    expected = {}
    for name in SEEDS:
        model = small_model(name)
        identity = {"name": name, "fingerprint": model.fingerprint}
        masks[name] = Mask(model.grid, np.arange(12) < 6, identity)
        evaluator = Evaluator(model, task(), "de", "dev", 48)
        expected[name] = evaluator.evaluate(masks[name]).accuracy
    assert len(set(expected.values())) > 1
    for name in (*SEEDS, *SEEDS, "first", "third", "first"):
        request = evaluate_request(name, "intents", "de", masks[name], size=48)
        assert list(bench.evaluate(request))[-1].accuracy == expected[name]
        bench.paces[("probe",)] = float(SEEDS[name])
    assert bench.residents == ("third", "first")
    assert len(bench.cached_bytes) == 2
    assert bench.paces[("probe",)] == 1.0
    bench.need("third")
    assert bench.paces[("probe",)] == 3.0


def test_a_second_small_model_is_used_while_a_job_computes_with_the_first(tmp_path: Path) -> None:
    make = partial(host, tmp_path, third=SMALL_BYTES)
    with started_worker(tmp_path, make) as worker:
        job = int(worker.client.submit(spec=score_spec(samples=4096)).id)
        wait_for_state(worker.client, job, "running")
        evaluator = Evaluator(small_model("second"), task(), "de", "dev", 48)
        expected = evaluator.evaluate(None).accuracy
        requests = [evaluate_request("second", "intents", "de", size=48) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            streams = pool.map(lambda request: list(worker.client.evaluate(request)), requests)
            for figures in streams:
                assert figures[-1].accuracy == expected
        assert worker.client.job(job).state == "running"
        with raises("worker.other_model_in_use", "first", "third"):
            worker.client.load_model("third")
        worker.client.cancel(job)
        wait_for_state(worker.client, job, "cancelled")
        assert worker.client.load_model("third").fingerprint == "bert-3"


def test_a_job_beside_requests_for_another_model_gives_the_library_s_scores(tmp_path: Path) -> None:
    with started_worker(tmp_path, partial(host, tmp_path)) as worker:
        job = int(worker.client.submit(spec=score_spec(samples=256)).id)
        while worker.client.job(job).state in ("queued", "running"):
            list(worker.client.evaluate(evaluate_request("second", "intents", "de", size=48)))
        wait_for_state(worker.client, job, "done")
    settings = {"language": "de", "method": "shapley", "size": 48}
    expected = score(small_model("first"), task(), **settings, samples=256)
    stored = Store(tmp_path).find(language="de", method="shapley")[0].record
    assert stored.values_sha256() == expected.values_sha256()
