"""The worker's bench on a tiny model: figures are the library's, and masks are never mixed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.running_worker import (
    RunningWorker,
    attention_request,
    evaluate_request,
    started_worker,
)
from support.tiny_models import LABELS, VOCAB, tiny_model
from support.waiting import wait_until
from support.worker_jobs import wait_for_state
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headlab.core import Head, HeadGrid, HeadlabError
from headlab.evaluation import Evaluator, compare
from headlab.hooks import Model, with_players_of
from headlab.masks import Mask
from headlab.methods.run import score
from headlab.methods.spec import answers_spec
from headlab.results import Store
from headlab.tasks import Example, Task, equal_texts_record
from headlab.worker.model_host import MAX_FETCHES, ModelHost
from headlab.worker.schemas import EvaluateRequest

NAME = "tiny-bert"
LANGUAGES = ("de", "fr")
SPEC: dict[str, Any] = {
    "model": NAME,
    "task": "intents",
    "languages": list(LANGUAGES),
    "method": "shapley",
    "size": 96,
    "options": {"samples": 256},
}


def word_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"[PAD]": 0, "[UNK]": 1}
    vocabulary |= {f"w{number}": number for number in range(2, VOCAB)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")


def sentences(language: str, split: str, seed: int) -> Sequence[Example]:
    rng = np.random.default_rng([len(language), ord(language[0]), seed])
    examples = []
    for number in range(320):
        words = rng.integers(2, VOCAB, rng.integers(3, 9))
        text = " ".join(f"w{word}" for word in words)
        label = int(rng.integers(5))
        examples.append(Example(f"{language}-{number}", text, label))
    return examples


def toy_task(_: str) -> Task:
    return Task("intents", LABELS, LANGUAGES, False, sentences)


def load(name: str) -> Model:
    if name != NAME:
        raise HeadlabError(f"no model {name}; there is {NAME}", code="model.unknown")
    return tiny_model("bert", torch.float32, tokenizer=word_tokenizer())


def masks(model: Model, count: int) -> list[Mask]:
    rng = np.random.default_rng(7)
    identity = {"name": NAME, "fingerprint": model.fingerprint}
    random_masks = []
    for _ in range(count):
        kept_heads = rng.random(model.grid.size) < 0.7
        random_masks.append(Mask(model.grid, kept_heads, identity))
    return random_masks


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RunningWorker]:
    make = partial(ModelHost, tmp_path, "cpu", loader=load, tasks=toy_task)
    with started_worker(tmp_path, make) as worker:
        yield worker


def library_figure(model: Model, language: str, mask: Mask) -> dict[str, Any]:
    evaluator = Evaluator(model, toy_task("intents"), language, "dev", 320)
    comparison = compare(evaluator.evaluate(None), evaluator.evaluate(mask))
    assert comparison.omissions is not None
    return {
        **vars(comparison),
        "omissions": comparison.omissions.to_json(),
        **equal_texts_record(evaluator.equal_texts),
        "done": True,
        "note": "",
    }


def ask(worker: RunningWorker, language: str, mask: Mask | None) -> list[dict[str, Any]]:
    figures = worker.client.evaluate(evaluate_request(NAME, "intents", language, mask, size=320))
    return [figure.model_dump(mode="json", exclude_none=True) for figure in figures]


def test_the_model_is_described(worker: RunningWorker) -> None:
    loaded_model = worker.client.load_model(NAME)
    assert loaded_model.grid.to_json() == {"encoder": [4, 4, 4]}
    assert loaded_model.fingerprint == load(NAME).fingerprint
    assert worker.client.health().model == NAME


def test_figures_are_the_library_s(worker: RunningWorker) -> None:
    model = load(NAME)
    mask = masks(model, 1)[0]
    figures = ask(worker, "de", mask)
    assert [figure["n"] for figure in figures] == [16, 256, 320]
    assert figures[-1] == library_figure(model, "de", mask)
    baseline_figure = ask(worker, "de", None)[-1]
    assert baseline_figure["accuracy"] == figures[-1]["baseline"]
    assert baseline_figure["low"] < baseline_figure["accuracy"] < baseline_figure["high"]


@pytest.mark.filterwarnings("default:this mask removes")
def test_many_sessions_with_different_masks_never_mix_while_a_job_runs(
    worker: RunningWorker, tmp_path: Path
) -> None:
    model = load(NAME)
    session_masks = masks(model, 6)
    expected_figures = {}
    for language in LANGUAGES:
        for number, mask in enumerate(session_masks):
            expected_figures[language, number] = library_figure(model, language, mask)
    accuracies = {figure["accuracy"] for figure in expected_figures.values()}
    assert len(accuracies) > len(session_masks)
    job = worker.client.submit(spec=SPEC).id
    wait_for_state(worker.client, job, "running")

    def last_figure_of(language: str, number: int) -> dict[str, Any]:
        return ask(worker, language, session_masks[number])[-1]

    with ThreadPoolExecutor(8) as pool:
        answers = {session: pool.submit(last_figure_of, *session) for session in expected_figures}
        for session, answer in answers.items():
            assert answer.result() == expected_figures[session]
    wait_for_state(worker.client, job, "done")
    for language in LANGUAGES:
        settings = {
            "language": language,
            "method": "shapley",
            "size": 96,
            "samples": 256,
        }
        library_scores = score(model, toy_task("intents"), **settings)
        stored_scores = Store(tmp_path).find(language=language)[0].record
        assert stored_scores.values_sha256() == library_scores.values_sha256()
        assert stored_scores.spec == library_scores.spec


def test_a_job_done_before_is_found_in_the_store(worker: RunningWorker) -> None:
    spec = {**SPEC, "method": "random", "options": {}}
    ids = []
    for _ in range(2):
        ids.append(worker.client.submit(spec=spec).id)
        wait_for_state(worker.client, ids[-1], "done")
    assert ids[0] != ids[1]
    assert worker.client.job(ids[1]).note == "de, fr done"


def test_a_mask_of_another_model_is_refused(worker: RunningWorker) -> None:
    model = load(NAME)
    other_model = {"name": "other", "fingerprint": "0" * 64}
    foreign_mask = Mask(model.grid, np.ones(model.grid.size, bool), other_model)
    with raises("mask.other_model", "other"):
        ask(worker, "de", foreign_mask)
    with raises("task.language_unknown", "'th'"):
        ask(worker, "th", None)
    with raises("model.unknown", "other"):
        worker.client.load_model("other")


def test_a_job_scores_other_players_and_their_masks_are_evaluated(
    worker: RunningWorker, tmp_path: Path
) -> None:
    spec = {
        "model": NAME,
        "task": "intents",
        "languages": ["de"],
        "method": "leave-one-out",
        "size": 32,
        "players": "neurons:2,heads",
    }
    forecast = worker.client.forecast("score", spec)
    assert "groups of neurons is not counted" in forecast.basis
    number = worker.client.submit(spec=spec).id
    row = wait_for_state(worker.client, number, "done")
    assert row.params["players"] == "heads,neurons:2"
    assert Store(tmp_path).scan().results == ()
    (result,) = Store(tmp_path).scan("heads,neurons:2").results
    grid = result.record.grid
    assert grid.to_json() == {"encoder": [4, 4, 4], "encoder-neurons": [2, 2, 2]}
    again = worker.client.forecast("score", spec)
    assert again.forwards == 0
    mask = result.record.mask("bottom", k=5)
    model = load(NAME)
    of_mask = with_players_of(model, grid)
    figures = ask(worker, "de", mask)
    assert figures[-1] == library_figure(of_mask, "de", mask)
    heads_mask = masks(model, 1)[0]
    assert ask(worker, "de", heads_mask)[-1] == library_figure(model, "de", heads_mask)
    changed = worker.client.changes(NAME, "intents", "de", mask, size=320)
    assert changed.total >= figures[-1]["flipped_right"] + figures[-1]["flipped_wrong"]
    other_groups = {
        name: [list(reversed(groups)) for groups in layers]
        for name, layers in grid.members_json().items()
    }
    other_mask = replace(mask, grid=HeadGrid.from_json(grid.to_json(), other_groups))
    assert ask(worker, "de", other_mask)[-1]["accuracy"] != 2.0  # groups of anybody's are formed


@pytest.mark.parametrize(
    ("players", "code"),
    [
        ("hats", "players.unknown"),
        ("neurons", "players.groups_invalid"),
        ("neurons:0", "players.groups_invalid"),
        ("layers,layers", "players.twice"),
        ("layers:2", "players.number_unused"),
        ("", "players.unknown"),
    ],
)
def test_players_that_do_not_exist_are_refused_with_a_sentence(
    worker: RunningWorker, players: str, code: str
) -> None:
    for kind in ("score", "curve"):
        spec = {"model": NAME, "task": "intents", "languages": ["de"], "players": players}
        with raises(code, "players"):
            worker.client.submit(kind, spec)


def test_a_job_that_names_heads_is_the_job_that_names_nothing(worker: RunningWorker) -> None:
    spec = {**SPEC, "method": "random", "options": {}}
    first_job = worker.client.submit(spec=spec).id
    row = wait_for_state(worker.client, first_job, "done")
    assert "players" not in row.params
    again = worker.client.submit(spec={**spec, "players": "heads"}).id
    assert worker.client.job(again).params == row.params


def test_attention_is_that_of_the_requested_heads(worker: RunningWorker) -> None:
    heads = [["encoder", 1, 2], ["encoder", 2, 0]]
    words = [f"w{number % 90 + 3}" for number in range(64)]
    text = " ".join(words)
    answer = worker.client.attention(attention_request(NAME, text, heads))
    assert answer.tokens == text.split()
    assert not answer.truncated
    assert list(answer.weights) == ["encoder.1.2", "encoder.2.0"]
    for rows in answer.weights.values():
        sums = np.array(rows).sum(axis=1)
        np.testing.assert_allclose(sums, 1, atol=64 * 0.0005)
    assert worker.client.attention(attention_request(NAME, text + " w5", heads)).truncated
    with raises("head.unknown"):
        worker.client.attention(attention_request(NAME, text, [["encoder", 3, 0]]))
    assert answer.answers == []
    answer_with_task = worker.client.attention(attention_request(NAME, text, heads, task="intents"))
    assert answer_with_task.weights == answer.weights
    assert [head_answer.word for head_answer in answer_with_task.answers] == [None]
    request_with_wrong_map = attention_request(
        NAME, text, heads, task="intents", label_map={"nothing": "a"}
    )
    answer_without_class = worker.client.attention(request_with_wrong_map)
    assert answer_without_class.weights == answer.weights
    assert answer_without_class.answers == []
    assert "has no class for" in answer_without_class.note


def test_cached_layer_inputs_stay_within_the_limit_and_change_no_figure(tmp_path: Path) -> None:
    """Both languages are evaluated at once, as the Prune page asks for them."""
    figures_by_limit = []
    for limit in (1, 400_000, 1 << 30):
        cache = tmp_path / str(limit)
        bench = ModelHost(cache, "cpu", loader=load, tasks=toy_task, state_bytes=limit)
        requests = [
            EvaluateRequest(model=NAME, task="intents", language=name) for name in LANGUAGES
        ]
        streams = [bench.evaluate(request) for request in requests]
        figures = []
        for pair_of_figures in zip(*streams, strict=True):
            figures.append(pair_of_figures)
            assert sum(bench.cached_bytes) <= max(limit, *bench.cached_bytes)
        figures_by_limit.append(figures)
    assert figures_by_limit[0] == figures_by_limit[1] == figures_by_limit[2]
    assert sum(bench.cached_bytes) > 400_000  # so the limit before the last one was reached


def counting_model(forwards: list[int], seed: int = 0) -> Model:
    """The model; every forward of it adds an entry to `forwards`."""
    model = tiny_model("bert", torch.float32, seed, tokenizer=word_tokenizer())
    model.module.register_forward_hook(lambda *_: forwards.append(1))
    return model


def figure_of_new_worker(
    cache: Path, mask: Mask | None = None, seed: int = 0, task: Callable[[str], Task] = toy_task
) -> tuple[Any, int]:
    """A new worker's last figure in German, and how many batches it ran for it."""
    forwards: list[int] = []
    bench = ModelHost(cache, "cpu", loader=lambda _: counting_model(forwards, seed), tasks=task)
    bench.need(NAME)
    forwards.clear()
    request = EvaluateRequest(model=NAME, task="intents", language="de", mask=mask)
    figures = list(bench.evaluate(request))
    return figures[-1], len(forwards)


def test_a_second_worker_takes_the_baseline_from_the_store(tmp_path: Path) -> None:
    mask = masks(load(NAME), 1)[0]
    baseline_figure, baseline_batches = figure_of_new_worker(tmp_path / "a")
    assert baseline_batches
    assert figure_of_new_worker(tmp_path / "a") == (baseline_figure, 0)
    mask_figure, mask_batches = figure_of_new_worker(tmp_path / "b", mask)
    batches_of_mask_only = mask_batches - baseline_batches
    assert figure_of_new_worker(tmp_path / "b", mask) == (mask_figure, batches_of_mask_only)
    assert figure_of_new_worker(tmp_path / "b") == (baseline_figure, 0)


def test_a_worker_takes_answers_under_a_mask_from_the_store_and_stores_none(tmp_path: Path) -> None:
    mask = masks(load(NAME), 1)[0]
    mask_figure, batches = figure_of_new_worker(tmp_path, mask)
    assert not list(tmp_path.glob(f"*/{mask.digest}.npz"))  # people try many masks
    evaluator = Evaluator(counting_model([]), toy_task("intents"), "de", "dev", 512)
    run = Store(tmp_path).run(answers_spec(evaluator.dataset))
    run.keep_answers(mask.digest, evaluator.evaluate(mask), evaluator.inputs.units)
    assert batches
    assert figure_of_new_worker(tmp_path, mask) == (mask_figure, 0)
    (run.folder / f"{mask.digest}.npz").write_bytes(b"torn")
    assert figure_of_new_worker(tmp_path, mask)[0] == mask_figure


def test_a_damaged_or_foreign_baseline_is_computed_anew(tmp_path: Path) -> None:
    baseline_figure, batches = figure_of_new_worker(tmp_path)
    foreign_figure, _ = figure_of_new_worker(tmp_path, seed=1)  # other weights

    def is_foreign(path: Path) -> bool:
        return "bert-1" in path.with_name("spec.json").read_text()

    path, foreign_path = sorted(tmp_path.glob("*/*.npz"), key=is_foreign)
    valid_bytes = path.read_bytes()
    for damaged_bytes in (b"", valid_bytes[:-9], foreign_path.read_bytes()):
        path.write_bytes(damaged_bytes)
        assert figure_of_new_worker(tmp_path) == (baseline_figure, batches)
        assert path.read_bytes() == valid_bytes
    assert "skipped" in (path.parent / "log.txt").read_text()
    assert figure_of_new_worker(tmp_path, seed=1) == (foreign_figure, 0)


def test_answers_of_another_kind_of_device_have_another_spec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So neither live figures nor experiments take one device's answers for another's."""
    model = tiny_model("bert", tokenizer=word_tokenizer())
    evaluator = Evaluator(model, toy_task("intents"), LANGUAGES[0], "dev", 8)
    spec_of_cpu = answers_spec(evaluator.dataset)
    monkeypatch.setattr(Model, "device", property(lambda _: torch.device("cuda")))
    assert answers_spec(evaluator.dataset) == spec_of_cpu | {"device": "cuda"}


def test_a_changed_weight_or_example_gets_no_stale_figure(tmp_path: Path) -> None:
    former_figure, former_batches = figure_of_new_worker(tmp_path)

    def with_first_label_changed(language: str, split: str, seed: int) -> Sequence[Example]:
        first_example, *other_examples = sentences(language, split, seed)
        other_label = (first_example.label + 1) % 5
        return [replace(first_example, label=other_label), *other_examples]

    def changed_task(_: str) -> Task:
        return Task("intents", LABELS, LANGUAGES, False, with_first_label_changed)

    changes: list[dict[str, Any]] = [{"seed": 1}, {"task": changed_task}]
    for change in changes:
        figure, batches = figure_of_new_worker(tmp_path, **change)
        assert batches == former_batches
        assert figure.accuracy != former_figure.accuracy
        figure_without_cache, _ = figure_of_new_worker(tmp_path / "elsewhere", **change)
        assert figure == figure_without_cache


def test_a_cache_that_cannot_be_written_costs_no_figure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    baseline_figure, _ = figure_of_new_worker(tmp_path)
    assert figure_of_new_worker(tmp_path / "cache")[0] == baseline_figure


class SlowHub:
    """A hub from which a model takes as long as the test says."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.arrived = threading.Event()

    def __call__(self, model: str) -> None:
        self.requests.append(model)
        if "/" in model:
            assert self.arrived.wait(30)
            if model == "no/such":
                raise HeadlabError("the hub has no model no/such", code="hub.model_unknown")


@pytest.fixture
def worker_and_hub(tmp_path: Path) -> Iterator[tuple[RunningWorker, SlowHub]]:
    slow_hub = SlowHub()

    def load_either_name(name: str) -> Model:
        """The tiny model, which the hub has as some/model."""
        return load(NAME if name == "some/model" else name)

    make = partial(
        ModelHost, tmp_path, "cpu", loader=load_either_name, tasks=toy_task, fetch=slow_hub
    )
    with started_worker(tmp_path, make) as worker:
        yield worker, slow_hub
        slow_hub.arrived.set()


def test_a_model_on_its_way_from_the_hub_keeps_nobody_waiting(
    worker_and_hub: tuple[RunningWorker, SlowHub],
) -> None:
    worker, slow_hub = worker_and_hub
    with ThreadPoolExecutor(3) as pool:
        model_answers = [
            pool.submit(worker.client.load_model, name)
            for name in ("some/model", "some/model", "no/such")
        ]
        wait_until(lambda: len(slow_hub.requests) == 2)
        assert ask(worker, "de", None)[-1]["done"]
        assert worker.client.health().model == NAME
        slow_hub.arrived.set()
        for answer in model_answers[:2]:
            assert answer.result().name == "tiny-bert"
        with raises("hub.model_unknown", "no/such"):
            model_answers[2].result()
    assert sorted(slow_hub.requests) == [
        "no/such",
        "some/model",
        NAME,
    ]  # asked for twice, fetched once


def test_a_job_waits_for_its_model_while_live_requests_go_on(
    worker_and_hub: tuple[RunningWorker, SlowHub],
) -> None:
    worker, slow_hub = worker_and_hub
    spec = {
        **SPEC,
        "model": "some/model",
        "method": "gradient",
        "options": {},
    }
    job = worker.client.submit("score", spec).id
    wait_until(lambda: slow_hub.requests == ["some/model"])
    assert ask(worker, "de", None)[-1]["done"]
    assert worker.client.job(job).state == "running"
    next_job = worker.client.submit("score", {**spec, "seed": 2}).id
    worker.client.cancel(job)
    wait_for_state(worker.client, job, "cancelled")
    slow_hub.arrived.set()
    wait_for_state(worker.client, next_job, "done")
    failing_job = worker.client.submit("score", {**spec, "model": "no/such"}).id
    wait_for_state(worker.client, failing_job, "failed")
    assert worker.client.job(failing_job).error == "the hub has no model no/such"


def test_not_too_many_models_come_from_the_hub_at_once(
    worker_and_hub: tuple[RunningWorker, SlowHub],
) -> None:
    worker, slow_hub = worker_and_hub
    with ThreadPoolExecutor(MAX_FETCHES) as pool:
        model_answers = [
            pool.submit(worker.client.load_model, f"some/model{number}")
            for number in range(MAX_FETCHES)
        ]
        wait_until(lambda: len(slow_hub.requests) == MAX_FETCHES)
        assert httpx.post(f"{worker.url}/model", json={"model": "one/more"}).status_code == 429
        slow_hub.arrived.set()
        assert all("no model some/model" in str(answer.exception()) for answer in model_answers)


@pytest.mark.slow
def test_a_toggle_of_the_embedded_model_does_not_wait_for_a_job(tmp_path: Path) -> None:
    """Its figures come while the job goes on."""
    name = "e5-small-intents"
    spec = {"task": "intents", "languages": ["de"]}
    with started_worker(tmp_path, lambda: ModelHost(tmp_path)) as worker:
        loaded_model = worker.client.load_model(name)
        grid = loaded_model.grid
        kept_heads = np.ones(grid.size, bool)
        kept_heads[grid.index(Head("encoder", 6, 3))] = False
        mask = Mask(grid, kept_heads, {"name": name, "fingerprint": loaded_model.fingerprint})
        baseline_figures = list(worker.client.evaluate(evaluate_request(name, "intents", "th")))
        job = worker.client.submit(spec={"model": name, **spec}).id
        wait_for_state(worker.client, job, "running")
        figures = worker.client.evaluate(evaluate_request(name, "intents", "th", mask))
        assert next(figures).n == 16
        assert worker.client.job(job).state == "running"
        last_figure = list(figures)[-1]
        assert last_figure.done
        assert last_figure.baseline == baseline_figures[-1].accuracy
        assert worker.client.cancel(job).state in ("running", "cancelled")  # it may end at once
        wait_for_state(worker.client, job, "cancelled")
