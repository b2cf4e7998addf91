"""A run on many devices, with devices of this process: the same bits, whoever is lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.expected_errors import raises
from support.saved_models import save_family
from support.tiny_task import tiny_task
from support.waiting import until

from headlab import __version__, load
from headlab.cluster.distributed_game import Origin, Replica, Team
from headlab.cluster.pool import Call, Ended, Lost, Pool, run_side_by_side
from headlab.cluster.rays import Shares, shares, with_translated_errors
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.methods.run import score
from headlab.results import Store

METHODS: dict[str, dict[str, Any]] = {
    "shapley": {"samples": 24, "value": "probability"},
    "monte-carlo": {"samples": 70, "value": "log-probability"},
    "paper": {"samples": 2},
    "leave-one-out": {},
    "gradient": {},
    "confidence": {},
    "random": {},
}


class Thread:
    """A device that is a thread: `Replica` behind it, or any object.

    Args:
        dies: Calls after which it is lost.
    """

    def __init__(self, make: Callable[[], Any], dies: int = 10**9) -> None:
        self._make = make
        self._left = dies
        self._replica: Any = None
        self._pool = ThreadPoolExecutor(1)
        self.ended = False

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        return self._pool.submit(self._do, method, arguments)

    def _do(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Lost("killed")
        self._replica = self._replica or self._make()
        return getattr(self._replica, method)(*arguments)

    def end(self) -> None:
        self.ended = True
        self._pool.shutdown(wait=False)


class Echo:
    """Answers with what it is given."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.met = fails, set()

    def hello(self) -> str:
        if self.fails == "hello":
            raise HeadlabError("another model under this name", code="ray.other_model")
        return "cpu"

    def meet(self, key: str, subject: str) -> None:
        if self.fails == "meet":
            raise HeadlabError("a text is too long", code="model.text_too_long")
        self.met.add(key)

    def answer(self, key: str, number: int) -> int:
        assert key in self.met
        if self.fails == "answer" and number == 3:
            raise HeadlabError("number 3 is odd", code="test.odd")
        return number * number


@contextmanager
def pool_of(hire: Callable[[], Thread], size: int) -> Iterator[Pool]:
    pool = Pool(hire, size)
    try:
        yield pool
    finally:
        pool.close()


def calls(n: int) -> Iterator[Call]:
    return (Call("a", "subject", "answer", (number,)) for number in range(n))


def nothing() -> None:
    pass


@pytest.mark.parametrize("size", [1, 2, 7])
def test_answers_come_in_the_order_of_the_calls(size: int) -> None:
    with pool_of(lambda: Thread(Echo), size) as pool:
        assert list(pool.ask(calls(40), nothing)) == [n * n for n in range(40)]


def test_answers_that_come_in_another_order_are_given_in_that_of_the_calls() -> None:
    come: list[int] = []
    first = threading.Event()

    class Turned(Echo):
        """The second call is answered before the first, by another device."""

        def answer(self, key: str, number: int) -> int:
            if number == 0:
                assert first.wait(60)
            come.append(number)
            if number == 1:
                first.set()
            return super().answer(key, number)

    with pool_of(lambda: Thread(Turned), 2) as pool:
        until(lambda: pool.ready == 2)
        assert list(pool.ask(calls(40), nothing)) == [n * n for n in range(40)]
    assert come.index(1) < come.index(0)


def test_calls_are_made_a_little_ahead_only() -> None:
    made: list[int] = []

    def counted() -> Iterator[Call]:
        for call in calls(40):
            made.append(call.arguments[0])
            yield call

    with pool_of(lambda: Thread(Echo), 2) as pool:
        answers = pool.ask(counted(), nothing)
        next(answers)
        assert len(made) <= 4
        assert len(list(answers)) == 39


@pytest.mark.parametrize("dies", [1, 2, 3, 5, 9])
def test_what_a_lost_device_had_is_asked_elsewhere(dies: int) -> None:
    """Every second device is lost after so many calls, the greeting included."""
    hired: list[Thread] = []

    def hire() -> Thread:
        hired.append(Thread(Echo, dies if len(hired) % 2 else 10**9))
        return hired[-1]

    with pool_of(hire, 3) as pool:
        assert list(pool.ask(calls(60), nothing)) == [n * n for n in range(60)]
        assert pool.lost >= 1
    assert all(device.ended for device in hired)


def test_a_call_that_loses_every_device_is_given_up() -> None:
    class Killer(Echo):
        def answer(self, key: str, number: int) -> int:
            raise Lost("out of memory")

    with pool_of(lambda: Thread(Killer), 2) as pool, pytest.raises(HeadlabError) as caught:
        list(pool.ask(calls(3), nothing))
    assert caught.value.code in ("ray.workers_lost", "ray.no_worker_left")


def test_devices_that_never_come_are_given_up() -> None:
    with pool_of(lambda: Thread(Echo, 0), 2) as pool, raises("ray.no_worker_left"):
        list(pool.ask(calls(3), nothing))


@pytest.mark.parametrize(
    ("fails", "code"),
    [("hello", "ray.other_model"), ("meet", "model.text_too_long"), ("answer", "test.odd")],
)
def test_what_goes_wrong_elsewhere_is_told(fails: str, code: str) -> None:
    with pool_of(lambda: Thread(lambda: Echo(fails)), 2) as pool, raises(code):
        list(pool.ask(calls(9), nothing))


def test_a_hire_that_fails_is_told_unless_others_are_there() -> None:
    hired: list[Thread] = []

    def hire() -> Thread:
        if hired:
            raise HeadlabError("no room for a second one", code="memory.model_too_large")
        hired.append(Thread(Echo))
        return hired[0]

    with pool_of(hire, 2) as pool:
        assert len(list(pool.ask(calls(9), nothing))) == 9

    def never() -> Thread:
        raise HeadlabError("no room at all", code="memory.model_too_large")

    with pool_of(never, 2) as pool, raises("memory.model_too_large", "at all"):
        list(pool.ask(calls(9), nothing))


def test_a_replacement_that_cannot_be_hired_leaves_the_rest_at_work() -> None:
    hired: list[Thread] = []

    def hire() -> Thread:
        if len(hired) == 2:
            raise ConnectionError("the head of the cluster does not answer")
        hired.append(Thread(Echo, 10**9 if hired else 6))
        return hired[-1]

    with pool_of(hire, 2) as pool:
        assert list(pool.ask(calls(60), nothing)) == [n * n for n in range(60)]
        assert pool.lost == 1

    def never() -> Thread:
        raise ConnectionError("the head of the cluster does not answer")

    with pool_of(never, 1) as pool, raises("ray.no_worker_left"):
        list(pool.ask(calls(3), nothing))


class Late(Future[int]):
    """A future whose answer comes just as the wait for it ends."""

    def result(self, timeout: float | None = None) -> int:
        if not self.done():
            self.set_result(42)
            raise TimeoutError
        return super().result(timeout)


def test_an_answer_that_comes_as_the_wait_ends_is_taken() -> None:
    with pool_of(lambda: Thread(Echo), 1) as pool:
        assert pool.wait(Late(), nothing) == 42
        failed: Future[int] = Future()
        failed.set_exception(TimeoutError("the disk did not answer"))
        with pytest.raises(TimeoutError, match="the disk"):
            pool.wait(failed, nothing)


def test_a_setting_that_cannot_be_met_is_the_trouble_of_its_own_calls() -> None:
    begun = threading.Event()
    refused = threading.Event()

    def good_calls() -> Iterator[Call]:
        """The later ones are asked once the bad ones have been refused."""
        yield from calls(3)
        assert refused.wait(60)
        yield from list(calls(20))[3:]

    class Picky(Echo):
        def meet(self, key: str, subject: str) -> None:
            if key == "bad":
                raise HeadlabError("a text is too long", code="model.text_too_long")
            super().meet(key, subject)

        def answer(self, key: str, number: int) -> int:
            begun.set()
            return super().answer(key, number)

    with pool_of(lambda: Thread(Picky), 1) as pool:
        good = threading.Thread(target=lambda: found.extend(pool.ask(good_calls(), nothing)))
        found: list[int] = []
        good.start()
        assert begun.wait(60)
        for _ in range(3):
            with raises("model.text_too_long"):
                list(pool.ask([Call("bad", "subject", "answer", (1,))], nothing))
        refused.set()
        good.join()
    assert found == [n * n for n in range(20)]


@pytest.mark.parametrize(
    "cause",
    [
        MemoryError(),
        ValueError("my private sentence"),
        HeadlabError("no such label", code="data.label_unknown"),
    ],
)
def test_an_error_elsewhere_is_told_without_what_it_quotes(cause: Exception) -> None:
    class TaskError(Exception):
        pass

    errors = SimpleNamespace(RayTaskError=TaskError)
    there = Future()
    answer = with_translated_errors(there, errors)
    error = TaskError("")
    error.cause = cause  # type: ignore[attr-defined]
    there.set_exception(error)
    said = str(answer.exception(1))
    assert (
        said == "no such label" if isinstance(cause, HeadlabError) else type(cause).__name__ in said
    )
    assert "private" not in said
    gone: Future[Any] = Future()
    lost = with_translated_errors(gone, errors)
    gone.set_exception(RuntimeError())
    assert isinstance(lost.exception(1), Lost)


def test_whoever_stops_waiting_leaves_the_pool_to_others() -> None:
    with pool_of(lambda: Thread(Echo), 2) as pool:
        asked = pool.ask(calls(50), nothing)
        next(asked)
        asked.close()

        def stop() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(pool.ask(calls(5), stop))
        assert list(pool.ask(calls(5), nothing)) == [0, 1, 4, 9, 16]


def test_several_may_ask_at_once() -> None:
    with pool_of(lambda: Thread(Echo), 3) as pool:
        found = run_side_by_side(
            "abcde", lambda name, tick: (name, list(pool.ask(calls(20), tick))), 5, nothing
        )
    assert found == {name: (name, [n * n for n in range(20)]) for name in "abcde"}


def test_closing_tells_those_who_wait() -> None:
    begun = threading.Event()
    closed = threading.Event()

    class Slow(Echo):
        def answer(self, key: str, number: int) -> int:
            begun.set()
            assert closed.wait(60)
            return number

    pool = Pool(lambda: Thread(Slow), 1)
    closing = threading.Thread(target=lambda: (begun.wait(60), pool.close(), closed.set()))
    closing.start()
    with raises("ray.ended"):
        list(pool.ask(calls(9), nothing))
    closing.join()


def test_runs_side_by_side_end_together_when_one_fails() -> None:
    ended = []
    begun = threading.Barrier(3)

    def run(name: str, tick: Callable[[], None]) -> str:
        begun.wait(60)
        if name == "b":
            raise HeadlabError("b has no examples", code="task.no_examples")
        try:
            while True:
                tick()
        except Ended:
            ended.append(name)
            raise

    with raises("task.no_examples", "b"):
        run_side_by_side("abc", run, 3, nothing)
    assert sorted(ended) == ["a", "c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(tmp_path_factory.mktemp("model") / "bert", "bert")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(str(folder))


def hand(model: Model) -> Replica:
    return Replica(Origin.of(model), __version__)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "size", [2, *(pytest.param(size, marks=pytest.mark.soak) for size in (1, 7))]
)
def test_any_number_of_devices_gives_the_bits_of_a_local_run(
    model: Model, method: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 3})
    ask = {"language": "xx", "method": method, "size": 24, **METHODS[method]}
    want = score(model, tiny_task(), **ask)
    with pool_of(lambda: Thread(lambda: hand(model)), size) as pool:
        got = score(model, tiny_task(), helpers=Team(pool), **ask)
    assert got.values_sha256() == want.values_sha256()
    assert got.example_forwards == want.example_forwards
    assert got.spec == want.spec  # where it was computed is not part of what it is


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_lost_devices_change_no_bit(
    model: Model, ablation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 2})
    ask = {"language": "xx", "size": 24, "samples": 48, "ablation": ablation}
    want = score(model, tiny_task(), **ask)
    monkeypatch.setattr("headlab.cluster.pool.MAX_TRIES", 100)  # however often the same call is hit
    rng = np.random.default_rng(5)
    with pool_of(lambda: Thread(lambda: hand(model), int(rng.integers(3, 7))), 3) as pool:
        got = score(model, tiny_task(), helpers=Team(pool), **ask)
        assert pool.lost >= 3  # 24 calls; none answers more than 4, and 3 are left
    assert got.values_sha256() == want.values_sha256()


class Stop(Exception):
    pass


def test_a_run_begun_here_goes_on_elsewhere_and_back(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 2})
    ask = {"language": "xx", "size": 24, "samples": 48}
    want = score(model, tiny_task(), **ask)
    store = Store(tmp_path)

    def stop_after(n: int) -> Callable[[object], None]:
        seen = iter(range(n))

        def report(_: object) -> None:
            if next(seen, None) is None:
                raise Stop

        return report

    with pool_of(lambda: Thread(lambda: hand(model)), 2) as pool:
        for n, helpers in ((4, None), (5, Team(pool)), (3, None)):
            with pytest.raises(Stop):
                score(
                    model,
                    tiny_task(),
                    store=store,
                    helpers=helpers,
                    on_progress=stop_after(n),
                    **ask,
                )
        got = score(model, tiny_task(), store=store, helpers=Team(pool), **ask)
    assert got.values_sha256() == want.values_sha256()
    assert got.example_forwards == want.example_forwards


def test_another_model_or_version_elsewhere_is_refused(model: Model, folder: Path) -> None:
    origin = Origin.of(model)
    with raises("ray.other_model"):
        Replica(Origin(origin.name, None, "0" * 64, "float32"), __version__)
    with raises("ray.other_version"):
        Replica(origin, "0.0.0")


@pytest.mark.parametrize(
    ("nodes", "workers", "want"),
    [
        ([{"CPU": 2.0}], None, Shares(2, 0.0, 1.0, 1)),
        ([{"CPU": 16.0}], 4, Shares(4, 0.0, 4.0, 4)),
        ([{"CPU": 16.0}], 5, Shares(5, 0.0, 3.0, 3)),
        ([{"CPU": 2.0}], 7, Shares(7, 0.0, 1 / 4, 1)),
        ([{"CPU": 1.0}, {"CPU": 1.0}], 1, Shares(1, 0.0, 1.0, 1)),  # no actor spans two machines
        ([{"CPU": 8.0}, {"CPU": 4.0}], 3, Shares(3, 0.0, 4.0, 4)),
        ([{"CPU": 64.0, "GPU": 8.0}] * 2, None, Shares(16, 1.0, 0.0, 1)),
        ([{"CPU": 64.0, "GPU": 8.0}, {"CPU": 32.0}], 4, Shares(4, 1.0, 0.0, 1)),
        ([{"CPU": 128.0, "GPU": 1.0}], 2, Shares(2, 0.5, 0.0, 1)),
    ],
)
def test_a_cluster_is_cut_by_gpus_or_else_by_processors(
    nodes: list[dict[str, float]], workers: int | None, want: Shares
) -> None:
    assert shares(nodes, workers) == want


def test_a_cluster_with_nothing_to_share_is_refused() -> None:
    with raises("ray.no_devices"):
        shares([{"memory": 1e9}], None)
    with raises("ray.workers_too_few", 0):
        shares([{"CPU": 2.0}], 0)
