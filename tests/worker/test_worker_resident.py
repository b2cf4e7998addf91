"""The real bench on a tiny real model: figures as the library gives them, and no mask ever mixed with another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.running_worker import Running, evaluation, look, running
from support.tiny_models import LABELS, VOCAB, tiny_model
from support.waiting import until
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headlab.core import Head, HeadlabError
from headlab.evaluation import Evaluator, compare
from headlab.hooks import Model
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


def words() -> PreTrainedTokenizerFast:
    vocabulary = {"[PAD]": 0, "[UNK]": 1, **{f"w{n}": n for n in range(2, VOCAB)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


def sentences(language: str, split: str, seed: int) -> Sequence[Example]:
    rng = np.random.default_rng([len(language), ord(language[0]), seed])
    return [
        Example(
            f"{language}-{n}",
            " ".join(f"w{w}" for w in rng.integers(2, VOCAB, rng.integers(3, 9))),
            int(rng.integers(5)),
        )
        for n in range(320)
    ]


def toy(_: str) -> Task:
    return Task("intents", LABELS, LANGUAGES, False, sentences)


def load(name: str) -> Model:
    if name != NAME:
        raise HeadlabError(f"no model {name}; there is {NAME}", code="model.unknown")
    return tiny_model("bert", torch.float32, tokenizer=words())


def masks(model: Model, count: int) -> list[Mask]:
    rng = np.random.default_rng(7)
    identity = {"name": NAME, "fingerprint": model.fingerprint}
    return [Mask(model.grid, rng.random(model.grid.size) < 0.7, identity) for _ in range(count)]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, lambda: ModelHost(tmp_path, "cpu", loader=load, tasks=toy)) as run:
        yield run


def expected(model: Model, language: str, mask: Mask) -> dict[str, Any]:
    evaluator = Evaluator(model, toy("intents"), language, "dev", 320)
    both = compare(evaluator.evaluate(None), evaluator.evaluate(mask))
    assert both.omissions is not None
    beside = {"omissions": both.omissions.to_json(), **equal_texts_record(evaluator.equal_texts)}
    return {**both.__dict__, **beside, "done": True, "note": ""}


def ask(worker: Running, language: str, mask: Mask | None) -> list[dict[str, Any]]:
    figures = worker.client.evaluate(evaluation(NAME, "intents", language, mask, size=320))
    return [figure.model_dump(mode="json", exclude_none=True) for figure in figures]


def test_the_model_is_described(worker: Running) -> None:
    loaded = worker.client.model(NAME)
    assert loaded.grid.to_json() == {"encoder": [4, 4, 4]}
    assert loaded.fingerprint == load(NAME).fingerprint
    assert worker.client.health().model == NAME


def test_figures_are_the_library_s(worker: Running) -> None:
    model = load(NAME)
    mask = masks(model, 1)[0]
    figures = ask(worker, "de", mask)
    assert [f["n"] for f in figures] == [16, 256, 320]
    assert figures[-1] == expected(model, "de", mask)
    whole = ask(worker, "de", None)[-1]
    assert whole["accuracy"] == figures[-1]["baseline"]
    assert whole["low"] < whole["accuracy"] < whole["high"]


@pytest.mark.filterwarnings("default:this mask removes")
def test_many_sessions_with_different_masks_never_mix_while_a_job_runs(
    worker: Running, tmp_path: Path
) -> None:
    model = load(NAME)
    chosen = masks(model, 6)
    want = {
        (language, n): expected(model, language, mask)
        for language in LANGUAGES
        for n, mask in enumerate(chosen)
    }
    assert len({figure["accuracy"] for figure in want.values()}) > len(chosen)
    job = worker.client.submit(spec=SPEC).id
    until(lambda: worker.client.job(job).state == "running")

    def last(which: tuple[str, int]) -> dict[str, Any]:
        return ask(worker, which[0], chosen[which[1]])[-1]

    with ThreadPoolExecutor(8) as pool:
        for which, got in zip(want, pool.map(last, want), strict=True):
            assert got == want[which]
    until(lambda: worker.client.job(job).state == "done")
    for language in LANGUAGES:
        undisturbed = score(
            model, toy("intents"), language=language, method="shapley", size=96, samples=256
        )
        kept = Store(tmp_path).find(language=language)[0].record
        assert kept.values_sha256() == undisturbed.values_sha256()
        assert kept.spec == undisturbed.spec


def test_a_job_done_before_is_found_in_the_store(worker: Running) -> None:
    small = {**SPEC, "method": "random", "options": {}}
    ids = []
    for _ in range(2):
        ids.append(worker.client.submit(spec=small).id)
        until(lambda: worker.client.job(ids[-1]).state == "done")
    assert ids[0] != ids[1]
    assert worker.client.job(ids[1]).note == "de, fr done"


def test_a_mask_of_another_model_is_refused(worker: Running) -> None:
    model = load(NAME)
    foreign = Mask(
        model.grid, np.ones(model.grid.size, bool), {"name": "other", "fingerprint": "0" * 64}
    )
    with raises("mask.other_model", "other"):
        ask(worker, "de", foreign)
    with raises("task.language_unknown", "'th'"):
        ask(worker, "th", None)
    with raises("model.unknown", "other"):
        worker.client.model("other")


def test_attention_of_chosen_heads(worker: Running) -> None:
    heads = [["encoder", 1, 2], ["encoder", 2, 0]]
    text = " ".join(f"w{n % 90 + 3}" for n in range(64))
    answer = worker.client.attention(look(NAME, text, heads))
    assert answer.tokens == text.split()
    assert not answer.truncated
    assert list(answer.weights) == ["encoder.1.2", "encoder.2.0"]
    for rows in answer.weights.values():
        np.testing.assert_allclose(np.array(rows).sum(axis=1), 1, atol=64 * 0.0005)
    assert worker.client.attention(look(NAME, text + " w5", heads)).truncated
    with raises("head.unknown"):
        worker.client.attention(look(NAME, text, [["encoder", 3, 0]]))
    assert answer.answers == []
    told = worker.client.attention(look(NAME, text, heads, task="intents"))
    assert told.weights == answer.weights
    assert [one.word for one in told.answers] == [None]
    unknown = worker.client.attention(
        look(NAME, text, heads, task="intents", label_map={"nothing": "a"})
    )
    assert unknown.weights == answer.weights
    assert (unknown.answers, "has no class for" in unknown.note) == ([], True)


def test_kept_layer_inputs_stay_within_the_limit_and_change_no_figure(tmp_path: Path) -> None:
    """Both languages under way at once, as the Prune page asks for them."""
    found = []
    for limit in (1, 400_000, 1 << 30):
        bench = ModelHost(tmp_path / str(limit), "cpu", loader=load, tasks=toy, state_bytes=limit)
        streams = [
            bench.evaluate(EvaluateRequest(model=NAME, task="intents", language=name))
            for name in LANGUAGES
        ]
        figures = []
        for together in zip(*streams, strict=True):
            figures.append(together)
            assert sum(bench.cached_bytes) <= max(limit, *bench.cached_bytes)
        found.append(figures)
    assert found[0] == found[1] == found[2]
    assert sum(bench.cached_bytes) > 400_000  # the limit before this one did bind


def counted(forwards: list[int], seed: int = 0) -> Model:
    """The model; what it computes is counted."""
    model = tiny_model("bert", torch.float32, seed, tokenizer=words())
    model.module.register_forward_hook(lambda *_: forwards.append(1))
    return model


def told(
    cache: Path, mask: Mask | None = None, seed: int = 0, task: Callable[[str], Task] = toy
) -> tuple[Any, int]:
    """A new worker's last figure in German, and how many batches it ran for it."""
    forwards: list[int] = []
    bench = ModelHost(cache, "cpu", loader=lambda _: counted(forwards, seed), tasks=task)
    bench.need(NAME)
    forwards.clear()
    return list(
        bench.evaluate(EvaluateRequest(model=NAME, task="intents", language="de", mask=mask))
    )[-1], len(forwards)


def test_a_second_worker_answers_for_the_untouched_model_from_the_store(tmp_path: Path) -> None:
    mask = masks(load(NAME), 1)[0]
    fresh, ran = told(tmp_path / "a")
    assert ran
    assert told(tmp_path / "a") == (fresh, 0)
    paired, both = told(tmp_path / "b", mask)
    assert told(tmp_path / "b", mask) == (paired, both - ran)  # those of the mask only
    assert told(tmp_path / "b") == (fresh, 0)


def test_a_damaged_or_foreign_baseline_is_computed_anew(tmp_path: Path) -> None:
    fresh, ran = told(tmp_path)
    other, _ = told(tmp_path, seed=1)  # other weights
    (path, their) = sorted(
        tmp_path.glob("*/*.npz"),
        key=lambda path: "bert-1" in path.with_name("spec.json").read_text(),
    )
    good = path.read_bytes()
    for wrong in (b"", good[:-9], their.read_bytes()):
        path.write_bytes(wrong)
        assert told(tmp_path) == (fresh, ran)
        assert path.read_bytes() == good
    assert "skipped" in (path.parent / "log.txt").read_text()
    assert told(tmp_path, seed=1) == (other, 0)


def test_answers_of_another_kind_of_device_are_other_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """So neither live figures nor experiments, which share this, take one device's answers for another's."""
    model = tiny_model("bert", tokenizer=words())
    evaluator = Evaluator(
        model, Task("intents", LABELS, LANGUAGES, False, sentences), LANGUAGES[0], "dev", 8
    )
    here = answers_spec(evaluator.dataset)
    monkeypatch.setattr(Model, "device", property(lambda _: torch.device("cuda")))
    assert answers_spec(evaluator.dataset) == here | {"device": "cuda"}


def test_a_changed_weight_or_example_gets_no_stale_figure(tmp_path: Path) -> None:
    fresh, ran = told(tmp_path)

    def one_changed(language: str, split: str, seed: int) -> Sequence[Example]:
        first, *rest = sentences(language, split, seed)
        return [replace(first, label=(first.label + 1) % 5), *rest]

    elsewhere = tmp_path / "elsewhere"
    weights = {"seed": 1}
    task = {"task": lambda _: Task("intents", LABELS, LANGUAGES, False, one_changed)}
    for changed in (weights, task):
        found, batches = told(tmp_path, **changed)
        assert batches == ran
        assert found.accuracy != fresh.accuracy
        assert found == told(elsewhere, **changed)[0]


def test_a_cache_that_cannot_be_written_costs_no_figure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    fresh, _ = told(tmp_path)
    assert told(tmp_path / "cache")[0] == fresh


class Slow:
    """A hub from which a model takes as long as the test says."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.arrived = threading.Event()

    def __call__(self, model: str) -> None:
        self.asked.append(model)
        if "/" in model:
            assert self.arrived.wait(30)
            if model == "no/such":
                raise HeadlabError("the hub has no model no/such", code="hub.model_unknown")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Running, Slow]]:
    slow = Slow()
    names = (NAME, "some/model")
    loader = lambda name: load(NAME if name in names else name)  # noqa: E731 # both are the one tiny model
    with running(
        tmp_path, lambda: ModelHost(tmp_path, "cpu", loader=loader, tasks=toy, fetch=slow)
    ) as run:
        yield run, slow
        slow.arrived.set()


def test_a_model_on_its_way_from_the_hub_keeps_nobody_waiting(hub: tuple[Running, Slow]) -> None:
    worker, slow = hub
    with ThreadPoolExecutor(3) as pool:
        coming = [
            pool.submit(worker.client.model, name)
            for name in ("some/model", "some/model", "no/such")
        ]
        until(lambda: len(slow.asked) == 2)
        assert ask(worker, "de", None)[-1]["done"]
        assert worker.client.health().model == NAME
        slow.arrived.set()
        assert [answer.result().name for answer in coming[:2]] == ["tiny-bert"] * 2
        with raises("hub.model_unknown", "no/such"):
            coming[2].result()
    assert sorted(slow.asked) == ["no/such", "some/model", NAME]  # asked for twice, fetched once


def test_a_job_waits_for_its_model_while_live_requests_go_on(hub: tuple[Running, Slow]) -> None:
    worker, slow = hub
    spec = {**SPEC, "model": "some/model", "method": "gradient", "options": {}}
    job = worker.client.submit("score", spec).id
    until(lambda: slow.asked == ["some/model"])
    assert ask(worker, "de", None)[-1]["done"]
    assert worker.client.job(job).state == "running"
    other = worker.client.submit("score", {**spec, "seed": 2}).id
    worker.client.cancel(job)
    until(lambda: worker.client.job(job).state == "cancelled")
    slow.arrived.set()
    until(lambda: worker.client.job(other).state == "done")
    bad = worker.client.submit("score", {**spec, "model": "no/such"}).id
    until(lambda: worker.client.job(bad).state == "failed")
    assert worker.client.job(bad).error == "the hub has no model no/such"


def test_not_too_many_models_come_from_the_hub_at_once(hub: tuple[Running, Slow]) -> None:
    worker, slow = hub
    with ThreadPoolExecutor(MAX_FETCHES) as pool:
        coming = [pool.submit(worker.client.model, f"some/model{n}") for n in range(MAX_FETCHES)]
        until(lambda: len(slow.asked) == MAX_FETCHES)
        assert httpx.post(f"{worker.url}/model", json={"model": "one/more"}).status_code == 429
        slow.arrived.set()
        assert all("no model some/model" in str(answer.exception()) for answer in coming)


@pytest.mark.slow
def test_a_toggle_of_the_embedded_model_does_not_wait_for_a_job(tmp_path: Path) -> None:
    """Its figures come while the job goes on."""
    name = "e5-small-intents"
    job = {"task": "intents", "languages": ["de"]}
    with running(tmp_path, lambda: ModelHost(tmp_path)) as run:
        loaded = run.client.model(name)
        grid = loaded.grid
        kept = np.ones(grid.size, bool)
        kept[grid.index(Head("encoder", 6, 3))] = False
        mask = Mask(grid, kept, {"name": name, "fingerprint": loaded.fingerprint})
        whole = list(run.client.evaluate(evaluation(name, "intents", "th")))[-1]
        number = run.client.submit(spec={"model": name, **job}).id
        until(lambda: run.client.job(number).state == "running")
        figures = run.client.evaluate(evaluation(name, "intents", "th", mask))
        assert next(figures).n == 16
        assert run.client.job(number).state == "running"
        last = list(figures)[-1]
        assert last.done
        assert last.baseline == whole.accuracy
        assert run.client.cancel(number).state in ("running", "cancelled")  # it may end at once
        until(lambda: run.client.job(number).state == "cancelled")
