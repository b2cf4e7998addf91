"""Many people at one worker: nobody sees another's gates, nobody waits for ever, whatever the others do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from support.expected_errors import raises
from support.fake_worker import FakeBench
from support.running_worker import Running, evaluation, look, running, until
from support.tiny_models import VOCAB, tiny_model
from support.tiny_task import tiny_tokenizer

from headlab.core import Head, HeadlabError, canonical_json
from headlab.dashboard.panels.accuracy import AccuracyQuestion, stream_figures
from headlab.evaluation import Evaluator, accuracy_interval, changes, compare
from headlab.hooks import Model, attention_of_heads, gated
from headlab.hooks.state import active_for
from headlab.jobs import Refusal
from headlab.masks import Mask
from headlab.methods.run import score
from headlab.results import Store
from headlab.tasks import Example, Task, equal_texts_record
from headlab.worker.engine import MAX_NEW_IN_A_ROW, MAX_OF_ONE, LiveRequest, RequestQueue
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import EvaluateRequest, Figure

NAME = "tiny-bert"
SIZE = 160
ROUNDS = 4
SESSIONS = [4, pytest.param(20, marks=pytest.mark.soak)]
LANGUAGES = ("de", "fr", "th")
BROKEN = "xx"  # a language with a word that makes the forward pass fail
POISON = VOCAB - 1
HEADS = [["encoder", 1, 2], *(["encoder", 2, head] for head in range(4))]
TEXT = " ".join(f"w{n}" for n in range(10, 30))
SPEC = {"model": NAME, "task": "intents", "languages": ["de", "fr"], "size": 64, "seed": 3}
OPTIONS = {"samples": 192}
pytestmark = pytest.mark.filterwarnings("default:this mask removes")


def read(language: str, split: str, seed: int) -> Sequence[Example]:
    rng = np.random.default_rng([ord(language[0]), ord(language[1]), seed])
    last = POISON + 1 if language == BROKEN else POISON
    rows = [rng.integers(10, last, rng.integers(3, 9)) for _ in range(SIZE)]
    if language == BROKEN:
        rows[SIZE // 2 :] = [np.append(row, POISON) for row in rows[SIZE // 2 :]]
    return [
        Example(f"{language}-{n}", " ".join(f"w{w}" for w in row), int(rng.integers(5)))
        for n, row in enumerate(rows)
    ]


def toy(_: str) -> Task:
    return Task("intents", tuple("abcde"), (*LANGUAGES, BROKEN), False, read)


def load(_: str) -> Model:
    """A tiny model whose forward pass fails on one word, as a real one might run out of memory."""
    model = tiny_model("bert", torch.float32, tokenizer=tiny_tokenizer())

    def look(_: Any, given: tuple[torch.Tensor, ...]) -> None:
        if (given[0] == POISON).any():
            raise RuntimeError("a secret of the forward pass")

    model.module.get_input_embeddings().register_forward_pre_hook(look)
    return model


@pytest.fixture
def model() -> Model:
    return load(NAME)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, lambda: ModelHost(tmp_path, "cpu", loader=load, tasks=toy)) as run:
        yield run


def masks(model: Model, seed: int, count: int) -> list[Mask]:
    rng = np.random.default_rng([5, seed])
    identity = {"name": NAME, "fingerprint": model.fingerprint}
    return [Mask(model.grid, rng.random(model.grid.size) < 0.7, identity) for _ in range(count)]


def alone(model: Model, language: str, mask: Mask | None, size: int = SIZE) -> dict[str, Any]:
    """What the library says, computed by itself: the last figure a session must be shown."""
    evaluator = Evaluator(model, toy("intents"), language, "dev", size)
    baseline = evaluator.evaluate(None)
    beside = {
        "done": True,
        "note": "",
        "omissions": evaluator.omissions.to_json(),
        **equal_texts_record(evaluator.equal_texts),
    }
    if mask is not None:
        return asdict(compare(baseline, evaluator.evaluate(mask))) | beside
    low, high = accuracy_interval(baseline)
    figures = {
        "n": baseline.n,
        "total": baseline.total,
        "accuracy": baseline.accuracy,
        "low": low,
        "high": high,
    }
    return {"language": language} | figures | beside


def ask(
    run: Running, language: str, mask: Mask | None, size: int = SIZE, session: str | None = None
) -> list[Any]:
    request = evaluation(NAME, "intents", language, mask, size=size, session=session)
    figures = run.client.evaluate(request)
    return [figure.model_dump(mode="json", exclude_none=True) for figure in figures]


def test_changed_answers_are_the_librarys(worker: Running, model: Model) -> None:
    (mask,) = masks(model, 1, 1)
    ask(worker, LANGUAGES[0], mask)
    answer = worker.client.changes(NAME, "intents", LANGUAGES[0], mask, size=SIZE)
    found = changes(Evaluator(model, toy("intents"), LANGUAGES[0], "dev", SIZE), mask)
    assert (answer.language, answer.total) == (LANGUAGES[0], len(found))
    assert found
    for sent, one in zip(answer.answers, found, strict=True):
        assert asdict(sent) == asdict(one) | {
            name: pytest.approx(getattr(one, name)) for name in ("p_before", "p_after")
        }
    with raises("mask.other_model"):
        other = replace(mask, model={"name": NAME, "fingerprint": "0" * 64})
        worker.client.changes(NAME, "intents", LANGUAGES[0], other)


def weights_alone(model: Model) -> dict[str, Any]:
    """Attention of the untouched model."""
    heads = [Head(*head) for head in HEADS]  # type: ignore[arg-type] # stack, layer, head
    found = attention_of_heads(model, model.tokenizer(TEXT, return_tensors="pt"), heads)
    return {
        f"{h.stack}.{h.layer}.{h.head}": found[h].double().numpy().round(3).tolist() for h in heads
    }


def together(works: Sequence[Callable[[], Any]], seconds: float = 240.0) -> list[Any]:
    """Do all at once, a thread each, begun at one moment. A thread that hangs fails the test and is left behind."""
    start = threading.Barrier(len(works))
    results = [None] * len(works)
    errors: list[BaseException] = []

    def work(n: int) -> None:
        try:
            start.wait(30)
            results[n] = works[n]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads), "a session waits for ever"
    if errors:
        raise errors[0]
    return results


# Nothing is mixed


class Session:
    """One person: other masks, languages and habits than anybody else, and what must come of it."""

    def __init__(self, number: int, model: Model) -> None:
        self.number, self.name, self.rng = (
            number,
            f"person {number}",
            np.random.default_rng([9, number]),
        )
        # looked at, and left before its figures are there
        self.dropped = masks(model, 1000 + number, 1)[0]
        self.plan = [
            (str(language), mask, alone(model, str(language), mask))
            for language, mask in zip(
                self.rng.choice(LANGUAGES, ROUNDS), masks(model, number, ROUNDS), strict=True
            )
        ]
        # A size that nobody else asks for: nothing of it can be remembered, so it is computed there and then.
        self.own = SIZE - 1 - number
        self.untouched = alone(model, "de", None, self.own)

    def use(self, run: Running, weights: dict[str, Any]) -> int:
        """Use the worker for some rounds. Returns how many figures were compared."""
        compared = 0
        for language, mask, wanted in self.plan:
            habit = self.rng.integers(4)
            if habit == 0:  # looks at the first figure and leaves
                with closing(
                    run.client.evaluate(evaluation(NAME, "intents", language, mask, size=SIZE))
                ) as left:  # type: ignore[type-var]
                    next(left)
            if habit == 1:  # changes the mask before the figures of the one before are there
                self._supersede(run, language, self.dropped)
            if habit == 2:
                with raises("worker.failed", "RuntimeError"):
                    ask(run, BROKEN, mask, session=self.name)
            if habit == 3:
                assert run.client.attention(look(NAME, TEXT, HEADS)).weights == weights
            assert ask(run, language, mask, session=self.name)[-1] == wanted
            compared += 1
        assert ask(run, "de", None, self.own, self.name)[-1] == self.untouched
        assert run.client.attention(look(NAME, TEXT, HEADS)).weights == weights
        return compared

    def _supersede(self, run: Running, language: str, mask: Mask) -> None:
        older = run.client.evaluate(
            evaluation(NAME, "intents", language, mask, size=SIZE, session=self.name)
        )
        next(older)
        newer = ask(run, language, None, session=self.name)
        assert newer[-1]["done"]
        with suppress(HeadlabError):  # it may have been done already
            list(older)


@pytest.mark.parametrize("many", SESSIONS)
def test_sessions_see_their_own_figures_only_while_a_job_runs(
    worker: Running, tmp_path: Path, model: Model, many: int
) -> None:
    """Every final figure is, to the last bit, what the library computes for that mask and language by itself."""
    sessions = [Session(number, model) for number in range(many)]
    shown = {canonical_json(wanted) for session in sessions for _, _, wanted in session.plan}
    assert len(shown) > many * ROUNDS * 0.7  # a mix-up would show
    weights = weights_alone(model)
    worker.client.model(NAME)
    job = worker.client.submit("score", {**SPEC, "method": "shapley", "options": OPTIONS}).id
    until(lambda: worker.client.job(job).state == "running")
    compared = together([lambda s=s: s.use(worker, weights) for s in sessions])  # type: ignore[misc]
    assert compared == [ROUNDS] * many
    until(lambda: worker.client.job(job).state == "done", 240)
    for language in ("de", "fr"):
        wanted = score(
            model, toy("intents"), language=language, method="shapley", size=64, seed=3, **OPTIONS
        )
        (kept,) = Store(tmp_path).find(language=language)
        assert kept.record.values_sha256() == wanted.values_sha256()
    assert ask(worker, "th", None, SIZE - 50)[-1] == alone(model, "th", None, SIZE - 50)


def test_a_failed_forward_pass_leaves_no_gate_behind(worker: Running, model: Model) -> None:
    weights = weights_alone(model)
    for number, mask in enumerate(masks(model, 77, 4)):
        with raises("worker.failed", "RuntimeError") as caught:
            ask(worker, BROKEN, mask)
        assert "secret" not in str(caught.value)
        assert ask(worker, "de", None, SIZE - number)[-1] == alone(model, "de", None, SIZE - number)
        assert worker.client.attention(look(NAME, TEXT, HEADS)).weights == weights


def test_gates_are_gone_between_the_steps_of_interleaved_requests(
    tmp_path: Path, model: Model
) -> None:
    """What the engine does, by hand: many requests a step each in turn, the model looked at after every one."""
    bench = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=toy)
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        before = model.module(**inputs).logits
    got: dict[int, Any] = {}
    chosen = masks(model, 3, 8)
    lives = [live_of(bench, n, mask, got) for n, mask in enumerate(chosen)]
    steps = 0
    while lives:
        lives = [live for live in lives if live.step()]
        steps += 1
        with torch.no_grad():
            assert torch.equal(model.module(**inputs).logits, before)
        assert active_for(model.owner) is None
        if steps == 1:
            lives[0].is_stopped = True  # its client has gone
    assert sorted(got) == list(range(1, 8))
    assert all(got[n] == alone(model, "de", chosen[n]) for n in got)


def test_reported_16_figures_that_another_session_was_faster_with_are_taken_over(
    tmp_path: Path, model: Model
) -> None:
    """Two sessions ask for the same mask: the slower one ends with the faster one's figure, computing nothing more."""
    bench = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=toy)
    mask = masks(model, 6, 1)[0]
    got: dict[int, Any] = {}
    slower = live_of(bench, 0, mask, got)
    faster = live_of(bench, 1, mask, got)
    assert slower.step()
    while faster.step():
        pass
    batches: list[int] = []
    bench.tick = lambda: batches.append(1)
    assert not slower.step()
    assert got[0] == got[1] == alone(model, "de", mask)
    assert batches == []


def test_reported_16_sessions_with_the_same_mask_all_get_its_figure(
    worker: Running, model: Model
) -> None:
    (mask,) = masks(model, 7, 1)
    wanted = alone(model, "de", mask)
    asked = [lambda n=n: ask(worker, "de", mask, session=f"person {n}") for n in range(6)]  # type: ignore[misc]
    assert [figures[-1] for figures in together(asked)] == [wanted] * 6
    assert ask(worker, "de", mask, session="late") == [wanted]
    assert worker.engine.waiting == 0


def live_of(bench: ModelHost, number: int, mask: Mask, got: dict[int, Any]) -> LiveRequest:
    request = EvaluateRequest(
        model=NAME, task="intents", language="de", mask=mask.to_json(), size=SIZE
    )

    def send(record: object) -> None:
        if isinstance(record, BaseModel) and isinstance(record, Figure) and record.done:
            got[number] = record.model_dump(exclude_none=True)

    return LiveRequest(lambda: bench.evaluate(request), send, NAME)


def test_a_gate_left_open_by_a_request_ends_with_it(tmp_path: Path, model: Model) -> None:
    """A mistake in the code could forget to close a gate: each request has a context of its own, where it stays."""
    opened: list[Any] = []

    def careless() -> Iterator[BaseModel]:
        block = gated(model, closed(model, Head("encoder", 0, 1)))
        block.__enter__()
        opened.append(block)
        assert active_for(model.owner) is not None
        return iter([Figure(language="de", n=1, total=1, accuracy=0, low=0, high=0, done=True)])

    live = LiveRequest(careless, lambda _: None)
    while live.step():
        pass
    assert opened
    assert active_for(model.owner) is None
    bench = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=toy)
    mask = masks(model, 4, 1)[0]
    got: dict[int, Any] = {}
    after = live_of(bench, 0, mask, got)
    while after.step():
        pass
    assert got[0] == alone(model, "de", mask)
    live.context.run(opened[0].__exit__, None, None, None)


def test_a_leaked_gate_would_be_seen(model: Model) -> None:
    """What the tests above look at does change when one head is closed that should be open."""
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    heads = model.grid.heads

    def look() -> tuple[list[float], float]:
        with torch.no_grad():
            return model.module(**inputs).logits[0].tolist(), alone_within(model, "de")

    logits, accuracy = look()
    assert accuracy == alone(model, "de", None)["accuracy"]
    seen = []
    for head in heads:
        with gated(model, closed(model, head)):
            seen.append(look())
    assert all(found != logits for found, _ in seen)
    assert sum(found != accuracy for _, found in seen) > len(heads) // 2
    assert look() == (logits, accuracy)


def closed(model: Model, head: Head) -> Mask:
    kept = np.ones(model.grid.size, bool)
    kept[model.grid.index(head)] = False
    return Mask(model.grid, kept, {"name": NAME, "fingerprint": model.fingerprint})


def alone_within(model: Model, language: str) -> float:
    """Accuracy of the model as it is just now, gates and all."""
    examples = toy("intents").examples(language, "dev", SIZE)
    inputs = model.tokenizer([e.text for e in examples], padding=True, return_tensors="pt")
    with torch.no_grad():
        said = model.module(**inputs).logits.argmax(1)
    return float(np.mean([int(said[n]) == example.label for n, example in enumerate(examples)]))


# Nobody waits for ever


def waiting(session: str | None, language: str = "de") -> LiveRequest:
    key = None if session is None else (session, "intents", language, "dev")
    return LiveRequest(lambda: iter(()), lambda _: None, NAME, key)


def taken(queue: RequestQueue, count: int, **options: Any) -> list[LiveRequest]:
    return [live for _ in range(count) if (live := queue.take(**options)) is not None]


def test_sessions_have_their_turns_however_much_one_asks_for() -> None:
    queue = RequestQueue()
    for language in range(15):
        queue.add(waiting("greedy", f"l{language}"))
    for number in range(19):
        queue.add(waiting(f"modest {number}"))
    order = [str(live.session) for live in taken(queue, 34)]
    assert order[0] == "greedy"
    assert sorted(order[1:20]) == sorted(f"modest {number}" for number in range(19))
    assert order[20:] == ["greedy"] * 14
    assert queue.take() is None


def test_of_too_many_sessions_the_turn_that_is_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headlab.worker.engine.MAX_SESSIONS", 2)
    queue = RequestQueue()
    for session in ("first", "second", "third"):
        queue.add(waiting(session))
        assert len(taken(queue, 1)) == 1
    for session in ("third", "second", "first"):
        queue.add(waiting(session, "fr"))
    assert [live.session for live in taken(queue, 3)] == ["first", "second", "third"]


def test_requests_without_a_session_have_one_turn_together() -> None:
    queue = RequestQueue()
    for _ in range(10):
        queue.add(waiting(None))
    queue.add(waiting("a"))
    queue.add(waiting("b"))
    assert [live.session for live in taken(queue, 4)] == [None, "a", "b", None]


def test_a_session_that_never_stops_toggling_does_not_keep_others_from_their_end() -> None:
    queue = RequestQueue()
    queue.add(waiting("patient"))
    patient = queue.take()
    assert patient is not None
    queue.put_back(patient)
    for step in range(3):
        for number in range(MAX_NEW_IN_A_ROW + 1):
            queue.add(waiting("toggler", f"l{step}-{number}"))
            if queue.take() is patient:
                break
        else:
            pytest.fail("the patient session is not served while another toggles")
        queue.put_back(patient)


def test_first_figures_go_ahead_between_batches_a_few_at_a_time() -> None:
    queue = RequestQueue()
    for number in range(MAX_NEW_IN_A_ROW + 5):
        queue.add(waiting(f"person {number}"))
    assert len(taken(queue, MAX_NEW_IN_A_ROW + 5, include_begun=False)) == MAX_NEW_IN_A_ROW
    assert queue.take() is not None  # the one whose batches those were has ended: the next begins
    assert len(taken(queue, 9, include_begun=False)) == 4


def test_one_session_cannot_fill_the_queue() -> None:
    queue = RequestQueue()
    for number in range(MAX_OF_ONE):
        queue.add(waiting("greedy", f"l{number}"))
    with raises("worker.session_requests_too_many", kind=Refusal) as caught:
        queue.add(waiting("greedy", "one-more"))
    assert caught.value.status == 429
    queue.add(waiting("modest"))


class Gatekeeper(FakeBench):
    """Begins only when told to, so that a test can see in which order those who wait are served."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 0.0005)
        self.held, self.open = threading.Event(), threading.Event()
        self.served: list[str] = []

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        if request.language == "hold":
            self.held.set()
            assert self.open.wait(600)
        for figure in super().evaluate(request):
            self.served.append(str(request.session))
            yield figure


def all_wait(run: Running, asked: Sequence[Future[Any]]) -> None:
    """Until all that was asked waits for its turn; raises what one of them raised instead."""
    until(lambda: run.engine.waiting == len(asked) or any(f.done() for f in asked))
    assert [f.result() for f in asked if f.done()] == []


def test_no_session_waits_a_multiple_of_the_others(tmp_path: Path) -> None:
    """Counted in figures served to others between one's question and one's answer, not in seconds."""
    benches: list[Gatekeeper] = []

    def make() -> Gatekeeper:
        benches.append(Gatekeeper(tmp_path))
        return benches[0]

    with running(tmp_path, make) as run, ThreadPoolExecutor(40) as pool:
        run.client.model("fake")

        def use(session: str, language: str) -> int:
            return len(
                list(run.client.evaluate(evaluation("fake", "intents", language, session=session)))
            )

        hold = pool.submit(use, "hold", "hold")
        assert benches[0].held.wait(600)  # else one of the next may be served before it
        greedy = [pool.submit(use, "greedy", f"l{chr(97 + n)}") for n in range(15)]
        all_wait(run, greedy)
        modest = [pool.submit(use, f"modest {n}", "de") for n in range(19)]
        all_wait(run, [*greedy, *modest])
        benches[0].open.set()
        assert [f.result(600) for f in (hold, *greedy, *modest)] == [3] * 35
    order = [name for name in benches[0].served if name != "hold"]
    first = {name: order.index(name) for name in set(order)}
    last = {name: len(order) - order[::-1].index(name) for name in set(order)}
    # everyone's first figure comes in the first round or so
    assert max(first.values()) < 19 + 2 * MAX_NEW_IN_A_ROW
    # everyone's last in the third
    assert max(last[name] for name in last if name != "greedy") <= 3 * 20 + 2 * MAX_NEW_IN_A_ROW
    assert Counter(order) == {"greedy": 45, **{f"modest {n}": 3 for n in range(19)}}


@pytest.mark.parametrize("many", SESSIONS)
def test_sessions_with_every_language_at_once_all_get_their_figures(
    tmp_path: Path, many: int
) -> None:
    """As the Prune page asks: one client for all, a stream a language, none read to its end before all are begun."""
    languages = [f"l{chr(97 + n)}" for n in range(15)]
    with running(tmp_path, lambda: FakeBench(tmp_path, 0.0002)) as run:
        run.client.model("fake")

        def use(number: int) -> dict[str, Any]:
            question = AccuracyQuestion.unchecked(
                "fake", "f" * 64, "intents", "dev", None, f"person {number}"
            )
            *_, last = stream_figures(run.client, question, languages, {})
            return last

        for rows in together([lambda n=n: use(n) for n in range(many)], 120.0):  # type: ignore[misc]
            assert list(rows) == languages
            assert all(row.done for row in rows.values())
