"""Many sessions at one worker: none sees another's gates, and none waits for ever."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from support.expected_errors import raises
from support.fake_worker import FakeBench
from support.running_worker import (
    RunningWorker,
    attention_request,
    evaluate_request,
    started_worker,
    wait_until,
)
from support.tiny_models import VOCAB, tiny_model
from support.tiny_task import tiny_tokenizer
from support.worker_jobs import wait_for_state

from headlab.core import Head, HeadlabError, canonical_json
from headlab.dashboard.panels.masks.mask_figures import AccuracyQuestion, stream_figures
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
SPEC = {
    "model": NAME,
    "task": "intents",
    "languages": ["de", "fr"],
    "size": 64,
    "seed": 3,
}
OPTIONS = {"samples": 192}
pytestmark = pytest.mark.filterwarnings("default:this mask removes")


def read_examples(language: str, split: str, seed: int) -> Sequence[Example]:
    letters = [ord(letter) for letter in language[:2]]
    rng = np.random.default_rng([*letters, seed])
    max_word = POISON + 1 if language == BROKEN else POISON
    sentences = []
    for _ in range(SIZE):
        length = rng.integers(3, 9)
        sentences.append(rng.integers(10, max_word, length))
    if language == BROKEN:
        for number in range(SIZE // 2, SIZE):
            sentences[number] = np.append(sentences[number], POISON)
    examples = []
    for number, words in enumerate(sentences):
        text = " ".join(f"w{word}" for word in words)
        label = int(rng.integers(5))
        examples.append(Example(f"{language}-{number}", text, label))
    return examples


def toy_task(_: str) -> Task:
    return Task("intents", tuple("abcde"), (*LANGUAGES, BROKEN), False, read_examples)


def load(_: str) -> Model:
    """A tiny model whose forward pass fails on one word, as a real one might run out of memory."""
    model = tiny_model("bert", torch.float32, tokenizer=tiny_tokenizer())

    def fail_on_poison(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        if (inputs[0] == POISON).any():
            raise RuntimeError("a secret of the forward pass")

    model.module.get_input_embeddings().register_forward_pre_hook(fail_on_poison)
    return model


@pytest.fixture
def model() -> Model:
    return load(NAME)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RunningWorker]:
    make = partial(ModelHost, tmp_path, "cpu", loader=load, tasks=toy_task)
    with started_worker(tmp_path, make) as worker:
        yield worker


def masks(model: Model, seed: int, count: int) -> list[Mask]:
    rng = np.random.default_rng([5, seed])
    identity = {"name": NAME, "fingerprint": model.fingerprint}
    random_masks = []
    for _ in range(count):
        kept_heads = rng.random(model.grid.size) < 0.7
        random_masks.append(Mask(model.grid, kept_heads, identity))
    return random_masks


def library_figure(
    model: Model, language: str, mask: Mask | None, size: int = SIZE
) -> dict[str, Any]:
    """The last figure that a session must be shown, computed by the library itself."""
    evaluator = Evaluator(model, toy_task("intents"), language, "dev", size)
    baseline = evaluator.evaluate(None)
    other_fields = {
        "done": True,
        "note": "",
        "omissions": evaluator.omissions.to_json(),
        **equal_texts_record(evaluator.equal_texts),
    }
    if mask is not None:
        return asdict(compare(baseline, evaluator.evaluate(mask))) | other_fields
    low, high = accuracy_interval(baseline)
    return {
        "language": language,
        "n": baseline.n,
        "total": baseline.total,
        "accuracy": baseline.accuracy,
        "low": low,
        "high": high,
        **other_fields,
    }


def figures_for(
    worker: RunningWorker,
    language: str,
    mask: Mask | None,
    size: int = SIZE,
    session: str | None = None,
) -> list[Any]:
    request = evaluate_request(NAME, "intents", language, mask, size=size, session=session)
    figures = worker.client.evaluate(request)
    return [figure.model_dump(mode="json", exclude_none=True) for figure in figures]


def test_changed_answers_are_the_librarys(worker: RunningWorker, model: Model) -> None:
    (mask,) = masks(model, 1, 1)
    figures_for(worker, LANGUAGES[0], mask)
    answer = worker.client.changes(NAME, "intents", LANGUAGES[0], mask, size=SIZE)
    evaluator = Evaluator(model, toy_task("intents"), LANGUAGES[0], "dev", SIZE)
    library_changes = changes(evaluator, mask)
    assert answer.language == LANGUAGES[0]
    assert answer.total == len(library_changes)
    assert library_changes
    for sent_change, library_change in zip(answer.answers, library_changes, strict=True):
        expected_fields = asdict(library_change)
        for name in ("p_before", "p_after"):
            expected_fields[name] = pytest.approx(expected_fields[name])
        assert asdict(sent_change) == expected_fields
    foreign_mask = replace(mask, model={"name": NAME, "fingerprint": "0" * 64})
    with raises("mask.other_model"):
        worker.client.changes(NAME, "intents", LANGUAGES[0], foreign_mask)


def library_weights(model: Model) -> dict[str, Any]:
    """Attention of the baseline, as the worker sends it."""
    heads = [Head(*names) for names in HEADS]  # type: ignore[arg-type] # stack, layer, head
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    attention = attention_of_heads(model, inputs, heads)
    weights = {}
    for head in heads:
        rounded_weights = attention[head].double().numpy().round(3)
        name = f"{head.stack}.{head.layer}.{head.head}"
        weights[name] = rounded_weights.tolist()
    return weights


def attention_weights(worker: RunningWorker) -> dict[str, Any]:
    """The weights of attention as the worker sends them."""
    return worker.client.attention(attention_request(NAME, TEXT, HEADS)).weights


def run_at_once(calls: Sequence[Callable[[], Any]], seconds: float = 240.0) -> list[Any]:
    """Results of all calls, each made in a thread of its own from the same moment on.

    A thread that hangs fails the test and is left behind.
    """
    start = threading.Barrier(len(calls))
    results = [None] * len(calls)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            start.wait(30)
            results[number] = calls[number]()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(calls))
    ]
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
    """A session with masks, languages and habits of its own, and the figures it must be shown."""

    def __init__(self, number: int, model: Model) -> None:
        self.number = number
        self.name = f"person {number}"
        self.rng = np.random.default_rng([9, number])
        # Evaluated, and left before its figures are there.
        self.abandoned_mask = masks(model, 1000 + number, 1)[0]
        languages = [str(language) for language in self.rng.choice(LANGUAGES, ROUNDS)]
        self.plan = [
            (language, mask, library_figure(model, language, mask))
            for language, mask in zip(languages, masks(model, number, ROUNDS), strict=True)
        ]
        # No other session uses this size: nothing is cached for it, so it is computed at once.
        self.own_size = SIZE - 1 - number
        self.baseline_figure = library_figure(model, "de", None, self.own_size)

    def use(self, worker: RunningWorker, weights: dict[str, Any]) -> int:
        """Use the worker for some rounds.

        Args:
            worker: The worker.
            weights: The attention that it must show, whatever the mask.

        Returns:
            How many figures were compared.
        """
        figures_compared = 0
        for language, mask, expected_figure in self.plan:
            habit = self.rng.integers(4)
            if habit == 0:  # waits for the first figure and leaves
                request = evaluate_request(NAME, "intents", language, mask, size=SIZE)
                with closing(worker.client.evaluate(request)) as stream:  # type: ignore[type-var]
                    next(stream)
            if habit == 1:  # asks for a new mask before all figures of the former one are there
                self._supersede(worker, language, self.abandoned_mask)
            if habit == 2:
                with raises("worker.failed", "RuntimeError"):
                    figures_for(worker, BROKEN, mask, session=self.name)
            if habit == 3:
                assert attention_weights(worker) == weights
            figures = figures_for(worker, language, mask, session=self.name)
            assert figures[-1] == expected_figure
            figures_compared += 1
        figures = figures_for(worker, "de", None, self.own_size, self.name)
        assert figures[-1] == self.baseline_figure
        assert attention_weights(worker) == weights
        return figures_compared

    def _supersede(self, worker: RunningWorker, language: str, mask: Mask) -> None:
        request = evaluate_request(NAME, "intents", language, mask, size=SIZE, session=self.name)
        older_figures = worker.client.evaluate(request)
        next(older_figures)
        newer_figures = figures_for(worker, language, None, session=self.name)
        assert newer_figures[-1]["done"]
        with suppress(HeadlabError):  # the older request may have been done already
            list(older_figures)


@pytest.mark.parametrize("session_count", SESSIONS)
def test_sessions_see_their_own_figures_only_while_a_job_runs(
    worker: RunningWorker, tmp_path: Path, model: Model, session_count: int
) -> None:
    """Every last figure is, to the last bit, the library's for that mask and language."""
    sessions = [Session(number, model) for number in range(session_count)]
    distinct_figures = {
        canonical_json(figure) for session in sessions for _, _, figure in session.plan
    }
    assert len(distinct_figures) > session_count * ROUNDS * 0.7  # a mix-up would show
    weights = library_weights(model)
    worker.client.load_model(NAME)
    job = worker.client.submit("score", {**SPEC, "method": "shapley", "options": OPTIONS}).id
    wait_for_state(worker.client, job, "running")
    figures_compared = run_at_once([partial(session.use, worker, weights) for session in sessions])
    assert figures_compared == [ROUNDS] * session_count
    wait_for_state(worker.client, job, "done", 240)
    for language in ("de", "fr"):
        settings = {
            "language": language,
            "method": "shapley",
            "size": 64,
            "seed": 3,
            **OPTIONS,
        }
        library_scores = score(model, toy_task("intents"), **settings)
        (stored_result,) = Store(tmp_path).find(language=language)
        assert stored_result.record.values_sha256() == library_scores.values_sha256()
    last_figure = figures_for(worker, "th", None, SIZE - 50)[-1]
    assert last_figure == library_figure(model, "th", None, SIZE - 50)


def test_a_failed_forward_pass_leaves_no_gate_behind(worker: RunningWorker, model: Model) -> None:
    weights = library_weights(model)
    for number, mask in enumerate(masks(model, 77, 4)):
        with raises("worker.failed", "RuntimeError") as caught:
            figures_for(worker, BROKEN, mask)
        assert "secret" not in str(caught.value)
        last_figure = figures_for(worker, "de", None, SIZE - number)[-1]
        assert last_figure == library_figure(model, "de", None, SIZE - number)
        assert attention_weights(worker) == weights


def test_no_gate_stays_between_the_steps_of_interleaved_requests(
    tmp_path: Path, model: Model
) -> None:
    """As the engine does, each request makes a step in turn; the model is checked after each."""
    bench = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=toy_task)
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        baseline_logits = model.module(**inputs).logits
    last_figures: dict[int, Any] = {}
    request_masks = masks(model, 3, 8)
    requests = [
        live_request(bench, number, mask, last_figures) for number, mask in enumerate(request_masks)
    ]
    steps = 0
    while requests:
        requests = [request for request in requests if request.step()]
        steps += 1
        with torch.no_grad():
            assert torch.equal(model.module(**inputs).logits, baseline_logits)
        assert active_for(model.owner) is None
        if steps == 1:
            requests[0].is_stopped = True  # its client has gone
    assert sorted(last_figures) == list(range(1, 8))
    for number, figure in last_figures.items():
        assert figure == library_figure(model, "de", request_masks[number])


def test_reported_16_figures_that_another_session_was_faster_with_are_taken_over(
    tmp_path: Path, model: Model
) -> None:
    """Two sessions ask for the same mask.

    The slower one ends with the faster one's figure and computes nothing more.
    """
    bench = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=toy_task)
    mask = masks(model, 6, 1)[0]
    last_figures: dict[int, Any] = {}
    slower = live_request(bench, 0, mask, last_figures)
    faster = live_request(bench, 1, mask, last_figures)
    assert slower.step()
    while faster.step():
        pass
    batches: list[int] = []
    bench.tick = lambda: batches.append(1)
    assert not slower.step()
    assert last_figures[0] == last_figures[1] == library_figure(model, "de", mask)
    assert batches == []


def test_reported_16_sessions_with_the_same_mask_all_get_its_figure(
    worker: RunningWorker, model: Model
) -> None:
    (mask,) = masks(model, 7, 1)
    expected_figure = library_figure(model, "de", mask)
    requests = [
        partial(figures_for, worker, "de", mask, session=f"person {number}") for number in range(6)
    ]
    for figures in run_at_once(requests):
        assert figures[-1] == expected_figure
    assert figures_for(worker, "de", mask, session="late") == [expected_figure]
    assert worker.engine.waiting == 0


def live_request(
    bench: ModelHost, number: int, mask: Mask, last_figures: dict[int, Any]
) -> LiveRequest:
    request = EvaluateRequest(
        model=NAME, task="intents", language="de", mask=mask.to_json(), size=SIZE
    )

    def send(record: object) -> None:
        if isinstance(record, BaseModel) and isinstance(record, Figure) and record.done:
            last_figures[number] = record.model_dump(exclude_none=True)

    return LiveRequest(lambda: bench.evaluate(request), send, NAME)


def test_a_gate_left_open_by_a_request_ends_with_it(tmp_path: Path, model: Model) -> None:
    """If code forgot to close a gate, it would stay in the request's own context."""
    open_blocks: list[Any] = []

    def evaluate_and_leave_gate_open() -> Iterator[BaseModel]:
        mask = mask_without(model, Head("encoder", 0, 1))
        block = gated(model, mask)
        block.__enter__()
        open_blocks.append(block)
        assert active_for(model.owner) is not None
        figure = Figure(language="de", n=1, total=1, accuracy=0, low=0, high=0, done=True)
        return iter([figure])

    live = LiveRequest(evaluate_and_leave_gate_open, lambda _: None)
    while live.step():
        pass
    assert open_blocks
    assert active_for(model.owner) is None
    bench = ModelHost(tmp_path, "cpu", loader=lambda _: model, tasks=toy_task)
    mask = masks(model, 4, 1)[0]
    last_figures: dict[int, Any] = {}
    later_request = live_request(bench, 0, mask, last_figures)
    while later_request.step():
        pass
    assert last_figures[0] == library_figure(model, "de", mask)
    live.context.run(open_blocks[0].__exit__, None, None, None)


def test_a_leaked_gate_would_be_seen(model: Model) -> None:
    """The logits and accuracy that the tests above compare change with any head switched off."""
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    heads = model.grid.heads

    def logits_and_accuracy() -> tuple[list[float], float]:
        with torch.no_grad():
            logits = model.module(**inputs).logits[0].tolist()
        return logits, current_accuracy(model, "de")

    logits, accuracy = logits_and_accuracy()
    assert accuracy == library_figure(model, "de", None)["accuracy"]
    accuracy_changes = 0
    for head in heads:
        with gated(model, mask_without(model, head)):
            logits_without, accuracy_without = logits_and_accuracy()
        assert logits_without != logits
        accuracy_changes += accuracy_without != accuracy
    assert accuracy_changes > len(heads) // 2
    assert logits_and_accuracy() == (logits, accuracy)


def mask_without(model: Model, head: Head) -> Mask:
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[model.grid.index(head)] = False
    return Mask(model.grid, kept_heads, {"name": NAME, "fingerprint": model.fingerprint})


def current_accuracy(model: Model, language: str) -> float:
    """Accuracy of the model under the gates that are in force just now."""
    examples = toy_task("intents").examples(language, "dev", SIZE)
    texts = [example.text for example in examples]
    labels = np.array([example.label for example in examples])
    inputs = model.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        predictions = model.module(**inputs).logits.argmax(1).numpy()
    return float(np.mean(predictions == labels))


# Nobody waits for ever


FAKE_LANGUAGES = [f"l{letter}" for letter in "abcdefghijklmno"]


def waiting_request(session: str | None, language: str = "de") -> LiveRequest:
    key = None if session is None else (session, "intents", language, "dev")
    return LiveRequest(lambda: iter(()), lambda _: None, NAME, key)


def take_requests(queue: RequestQueue, count: int, **options: Any) -> list[LiveRequest]:
    requests = [queue.take(**options) for _ in range(count)]
    return [live for live in requests if live is not None]


def test_sessions_have_their_turns_however_much_one_asks_for() -> None:
    queue = RequestQueue()
    for language in range(15):
        queue.add(waiting_request("greedy", f"l{language}"))
    for number in range(19):
        queue.add(waiting_request(f"modest {number}"))
    order = [str(live.session) for live in take_requests(queue, 34)]
    assert order[0] == "greedy"
    modest_sessions = {f"modest {number}" for number in range(19)}
    assert len(order[1:20]) == len(modest_sessions)
    assert set(order[1:20]) == modest_sessions
    assert order[20:] == ["greedy"] * 14
    assert queue.take() is None


def test_of_too_many_sessions_the_one_whose_turn_is_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headlab.worker.engine.MAX_SESSIONS", 2)
    queue = RequestQueue()
    for session in ("first", "second", "third"):
        queue.add(waiting_request(session))
        assert len(take_requests(queue, 1)) == 1
    for session in ("third", "second", "first"):
        queue.add(waiting_request(session, "fr"))
    assert [live.session for live in take_requests(queue, 3)] == ["first", "second", "third"]


def test_requests_without_a_session_have_one_turn_together() -> None:
    queue = RequestQueue()
    for _ in range(10):
        queue.add(waiting_request(None))
    queue.add(waiting_request("a"))
    queue.add(waiting_request("b"))
    sessions = [live.session for live in take_requests(queue, 4)]
    assert sessions == [None, "a", "b", None]


def test_a_session_that_never_stops_toggling_does_not_keep_others_from_their_end() -> None:
    queue = RequestQueue()
    queue.add(waiting_request("patient"))
    patient = queue.take()
    assert patient is not None
    queue.put_back(patient)
    for step in range(3):
        for number in range(MAX_NEW_IN_A_ROW + 1):
            queue.add(waiting_request("toggler", f"l{step}-{number}"))
            if queue.take() is patient:
                break
        else:
            pytest.fail("the patient session is not served while another toggles")
        queue.put_back(patient)


def test_first_figures_go_ahead_between_batches_a_few_at_a_time() -> None:
    queue = RequestQueue()
    for number in range(MAX_NEW_IN_A_ROW + 5):
        queue.add(waiting_request(f"person {number}"))
    assert len(take_requests(queue, MAX_NEW_IN_A_ROW + 5, include_begun=False)) == MAX_NEW_IN_A_ROW
    assert queue.take() is not None  # the request whose batches those were has ended
    assert len(take_requests(queue, 9, include_begun=False)) == 4


def test_one_session_cannot_fill_the_queue() -> None:
    queue = RequestQueue()
    for number in range(MAX_OF_ONE):
        queue.add(waiting_request("greedy", f"l{number}"))
    with raises("worker.session_requests_too_many", kind=Refusal) as caught:
        queue.add(waiting_request("greedy", "one-more"))
    assert caught.value.status == 429
    queue.add(waiting_request("modest"))


class Gatekeeper(FakeBench):
    """Begins only when told to, so that a test sees in which order waiting requests are served."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 0.0005)
        self.is_held = threading.Event()
        self.open = threading.Event()
        self.served: list[str] = []

    def evaluate(self, request: EvaluateRequest) -> Iterator[Figure]:
        if request.language == "hold":
            self.is_held.set()
            assert self.open.wait(600)
        for figure in super().evaluate(request):
            self.served.append(str(request.session))
            yield figure


def wait_until_queued(worker: RunningWorker, answers: Sequence[Future[Any]]) -> None:
    """Wait until all requests wait for their turn; raises what one of them raised instead."""

    def all_wait_or_one_ended() -> bool:
        is_any_done = any(answer.done() for answer in answers)
        return is_any_done or worker.engine.waiting == len(answers)

    wait_until(all_wait_or_one_ended)
    assert [answer.result() for answer in answers if answer.done()] == []


def test_no_session_waits_a_multiple_of_the_others(tmp_path: Path) -> None:
    """Waiting is counted in figures served to other sessions, not in seconds."""
    benches: list[Gatekeeper] = []

    def make() -> Gatekeeper:
        benches.append(Gatekeeper(tmp_path))
        return benches[0]

    with started_worker(tmp_path, make) as worker, ThreadPoolExecutor(40) as pool:
        worker.client.load_model("fake")

        def use(session: str, language: str) -> int:
            request = evaluate_request("fake", "intents", language, session=session)
            return len(list(worker.client.evaluate(request)))

        hold = pool.submit(use, "hold", "hold")
        assert benches[0].is_held.wait(600)  # or a later request may be served before it
        greedy = [pool.submit(use, "greedy", language) for language in FAKE_LANGUAGES]
        wait_until_queued(worker, greedy)
        modest = [pool.submit(use, f"modest {number}", "de") for number in range(19)]
        wait_until_queued(worker, [*greedy, *modest])
        benches[0].open.set()
        for answer in (hold, *greedy, *modest):
            assert answer.result(600) == 3
    order = [name for name in benches[0].served if name != "hold"]
    first_turns: dict[str, int] = {}
    last_turns: dict[str, int] = {}
    for turn, name in enumerate(order):
        first_turns.setdefault(name, turn)
        last_turns[name] = turn + 1
    last_turns.pop("greedy")
    # every session's first figure comes in the first round or so
    assert max(first_turns.values()) < 19 + 2 * MAX_NEW_IN_A_ROW
    # and its last figure in the third
    assert max(last_turns.values()) <= 3 * 20 + 2 * MAX_NEW_IN_A_ROW
    expected_counts = {f"modest {number}": 3 for number in range(19)}
    expected_counts["greedy"] = 45
    assert Counter(order) == expected_counts


def test_who_waits_for_another_model_does_not_wait_for_streams_that_have_begun(
    tmp_path: Path,
) -> None:
    """Between the batches of a long request, a stream gets its first figure and no more."""
    benches: list[FakeBench] = []

    def make() -> FakeBench:
        benches.append(FakeBench(tmp_path, 0.0002))
        benches[0].batches_may_end.clear()
        return benches[0]

    with started_worker(tmp_path, make) as worker, ThreadPoolExecutor(3) as pool:
        worker.client.load_model("fake")
        stream = evaluate_request("fake", "intents", "de", session="s", size=512)
        long_answer = pool.submit(worker.client.gradient, "fake", "intents", "de")
        wait_until(lambda: "begin gradient" in benches[0].log)
        streamed = pool.submit(lambda: list(worker.client.evaluate(stream)))
        wait_until(lambda: worker.engine.waiting == 1)
        loaded = pool.submit(worker.client.load_model, "another")
        wait_until(lambda: worker.engine.waiting == 2)
        benches[0].batches_may_end.set()
        long_answer.result(600)
        assert loaded.result(600).name == "another"
        assert len(streamed.result(600)) == 3
    assert benches[0].log == ["begin gradient", "begin s 512", "end gradient", "end s 512"]


def test_who_asks_for_another_model_in_memory_does_not_wait_for_a_long_request(
    tmp_path: Path,
) -> None:
    """It gets its first figure between the batches, as a request for the same model does."""
    benches: list[FakeBench] = []

    def make() -> FakeBench:
        benches.append(FakeBench(tmp_path, 0.0002))
        benches[0].joins = True
        benches[0].batches_may_end.clear()
        return benches[0]

    with started_worker(tmp_path, make) as worker, ThreadPoolExecutor(2) as pool:
        worker.client.load_model("another")
        long_answer = pool.submit(worker.client.gradient, "fake", "intents", "de")
        wait_until(lambda: "begin gradient" in benches[0].log)
        stream = evaluate_request("another", "intents", "de", session="s", size=512)
        streamed = pool.submit(lambda: list(worker.client.evaluate(stream)))
        wait_until(lambda: worker.engine.waiting == 1)
        assert set(worker.engine.residents) == {"another", "fake"}
        benches[0].batches_may_end.set()
        long_answer.result(600)
        assert len(streamed.result(600)) == 3
    assert benches[0].log.index("begin s 512") < benches[0].log.index("end gradient")


@pytest.mark.parametrize("session_count", SESSIONS)
def test_sessions_with_every_language_at_once_all_get_their_figures(
    tmp_path: Path, session_count: int
) -> None:
    """As the Prune page asks: one client for all sessions, and a stream for each language.

    No stream is read to its end before all have begun.
    """
    with started_worker(tmp_path, lambda: FakeBench(tmp_path, 0.0002)) as worker:
        worker.client.load_model("fake")

        def use(number: int) -> dict[str, Any]:
            question = AccuracyQuestion.unchecked(
                "fake", "f" * 64, "intents", "dev", None, f"person {number}"
            )
            *_, last_figures = stream_figures(worker.client, question, FAKE_LANGUAGES, {})
            return last_figures

        calls = [partial(use, number) for number in range(session_count)]
        for figures in run_at_once(calls, 120.0):
            assert list(figures) == FAKE_LANGUAGES
            assert all(figure.done for figure in figures.values())
