"""A run on many devices, here threads, gives the same bits, even if devices are lost."""

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
from support.waiting import wait_until
from support.without_gradient import forbid_gradients

from headlab import __version__, load
from headlab.cluster.distributed_game import Origin, Replica, Team
from headlab.cluster.pool import DeviceCall, Lost, Pool, RunEnded, run_side_by_side
from headlab.cluster.rays import Shares, shares, with_translated_errors
from headlab.core import HeadlabError
from headlab.hooks import Model
from headlab.methods.joined import WHY_NO_SLOPES
from headlab.methods.run import score
from headlab.results import Store
from headlab.studies.run import Pieces, run_experiment

METHODS: dict[str, dict[str, Any]] = {
    "shapley": {"samples": 24, "value": "probability"},
    "monte-carlo": {"samples": 70, "value": "log-probability"},
    "paper": {"samples": 2},
    "smoothed": {"samples": 200},
    "leave-one-out": {},
    "gradient": {},
    "confidence": {},
    "random": {},
}


class ThreadDevice:
    """A device that is a thread.

    Args:
        make: Makes the object whose methods it calls, a `Replica` for example.
        calls_survived: After how many calls it is lost.
    """

    def __init__(self, make: Callable[[], Any], calls_survived: int = 10**9) -> None:
        self._make = make
        self._calls_left = calls_survived
        self._target: Any = None
        self._pool = ThreadPoolExecutor(1)
        self.ended = False

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        return self._pool.submit(self._do, method, arguments)

    def _do(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self._calls_left -= 1
        if self._calls_left < 0:
            raise Lost("killed")
        self._target = self._target or self._make()
        return getattr(self._target, method)(*arguments)

    def end(self) -> None:
        self.ended = True
        self._pool.shutdown(wait=False)


class Echo:
    """Answers a number with its square.

    Args:
        failing_method: The method that raises an error, if any.
    """

    def __init__(self, failing_method: str = "") -> None:
        self.failing_method = failing_method
        self.keys_met: set[str] = set()

    def hello(self) -> str:
        if self.failing_method == "hello":
            raise HeadlabError("another model under this name", code="ray.other_model")
        return "cpu"

    def meet(self, key: str, subject: str) -> None:
        if self.failing_method == "meet":
            raise HeadlabError("a text is too long", code="model.text_too_long")
        self.keys_met.add(key)

    def answer(self, key: str, number: int) -> int:
        assert key in self.keys_met
        if self.failing_method == "answer" and number == 3:
            raise HeadlabError("number 3 is odd", code="test.odd")
        return number * number


@contextmanager
def pool_of(hire: Callable[[], ThreadDevice], size: int) -> Iterator[Pool]:
    pool = Pool(hire, size)
    try:
        yield pool
    finally:
        pool.close()


def calls(count: int) -> Iterator[DeviceCall]:
    return (DeviceCall("a", "subject", "answer", (number,)) for number in range(count))


def squares(count: int) -> list[int]:
    """The answers to `calls`."""
    return [number * number for number in range(count)]


def no_tick() -> None:
    pass


@pytest.mark.parametrize("size", [1, 2, 7])
def test_answers_come_in_the_order_of_the_calls(size: int) -> None:
    with pool_of(lambda: ThreadDevice(Echo), size) as pool:
        assert list(pool.ask(calls(40), no_tick)) == squares(40)


def test_answers_that_come_in_another_order_are_given_in_the_order_of_the_calls() -> None:
    arrivals: list[int] = []
    second_is_answered = threading.Event()

    class SecondAnswersFirst(Echo):
        """The second call is answered before the first, by another device."""

        def answer(self, key: str, number: int) -> int:
            if number == 0:
                assert second_is_answered.wait(60)
            arrivals.append(number)
            if number == 1:
                second_is_answered.set()
            return super().answer(key, number)

    with pool_of(lambda: ThreadDevice(SecondAnswersFirst), 2) as pool:
        wait_until(lambda: pool.ready_count == 2)
        assert list(pool.ask(calls(40), no_tick)) == squares(40)
    assert arrivals.index(1) < arrivals.index(0)


def test_calls_are_made_only_a_little_ahead_of_their_answers() -> None:
    numbers_called: list[int] = []

    def recorded_calls() -> Iterator[DeviceCall]:
        for call in calls(40):
            numbers_called.append(call.arguments[0])
            yield call

    with pool_of(lambda: ThreadDevice(Echo), 2) as pool:
        answers = pool.ask(recorded_calls(), no_tick)
        next(answers)
        assert len(numbers_called) <= 4
        assert len(list(answers)) == 39


@pytest.mark.parametrize("calls_survived", [1, 2, 3, 5, 9])
def test_calls_of_a_lost_device_are_made_on_another(calls_survived: int) -> None:
    """Every second device is lost after some calls, the greeting included."""
    devices: list[ThreadDevice] = []

    def hire() -> ThreadDevice:
        is_second = len(devices) % 2 == 1
        device = ThreadDevice(Echo, calls_survived) if is_second else ThreadDevice(Echo)
        devices.append(device)
        return device

    with pool_of(hire, 3) as pool:
        assert list(pool.ask(calls(60), no_tick)) == squares(60)
        assert pool.lost >= 1
    assert all(device.ended for device in devices)


def test_a_call_that_loses_every_device_is_given_up() -> None:
    class Killer(Echo):
        def answer(self, key: str, number: int) -> int:
            raise Lost("out of memory")

    with pool_of(lambda: ThreadDevice(Killer), 2) as pool, pytest.raises(HeadlabError) as caught:
        list(pool.ask(calls(3), no_tick))
    assert caught.value.code in ("ray.workers_lost", "ray.no_worker_left")


def test_devices_that_never_come_are_given_up() -> None:
    with pool_of(lambda: ThreadDevice(Echo, 0), 2) as pool, raises("ray.no_worker_left"):
        list(pool.ask(calls(3), no_tick))


@pytest.mark.parametrize(
    ("failing_method", "code"),
    [("hello", "ray.other_model"), ("meet", "model.text_too_long"), ("answer", "test.odd")],
)
def test_an_error_of_a_device_is_raised_here(failing_method: str, code: str) -> None:
    with pool_of(lambda: ThreadDevice(lambda: Echo(failing_method)), 2) as pool, raises(code):
        list(pool.ask(calls(9), no_tick))


def test_a_hire_that_fails_is_an_error_unless_there_are_other_devices() -> None:
    devices: list[ThreadDevice] = []

    def hire() -> ThreadDevice:
        if devices:
            raise HeadlabError("no room for a second one", code="memory.model_too_large")
        devices.append(ThreadDevice(Echo))
        return devices[0]

    with pool_of(hire, 2) as pool:
        assert len(list(pool.ask(calls(9), no_tick))) == 9

    def never() -> ThreadDevice:
        raise HeadlabError("no room at all", code="memory.model_too_large")

    with pool_of(never, 2) as pool, raises("memory.model_too_large", "at all"):
        list(pool.ask(calls(9), no_tick))


def test_a_replacement_that_cannot_be_hired_leaves_the_rest_at_work() -> None:
    devices: list[ThreadDevice] = []

    def hire() -> ThreadDevice:
        if len(devices) == 2:
            raise ConnectionError("the head of the cluster does not answer")
        device = ThreadDevice(Echo) if devices else ThreadDevice(Echo, 6)
        devices.append(device)
        return device

    with pool_of(hire, 2) as pool:
        assert list(pool.ask(calls(60), no_tick)) == squares(60)
        assert pool.lost == 1

    def never() -> ThreadDevice:
        raise ConnectionError("the head of the cluster does not answer")

    with pool_of(never, 1) as pool, raises("ray.no_worker_left"):
        list(pool.ask(calls(3), no_tick))


class Late(Future[int]):
    """A future whose answer comes just as the wait for it ends."""

    def result(self, timeout: float | None = None) -> int:
        if not self.done():
            self.set_result(42)
            raise TimeoutError
        return super().result(timeout)


def test_an_answer_that_comes_as_the_wait_ends_is_taken() -> None:
    with pool_of(lambda: ThreadDevice(Echo), 1) as pool:
        assert pool.wait(Late(), no_tick) == 42
        failed_future: Future[int] = Future()
        failed_future.set_exception(TimeoutError("the disk did not answer"))
        with pytest.raises(TimeoutError, match="the disk"):
            pool.wait(failed_future, no_tick)


def test_a_setting_that_a_device_refuses_fails_its_own_calls_only() -> None:
    has_begun = threading.Event()
    are_refused = threading.Event()

    def good_calls() -> Iterator[DeviceCall]:
        """Calls whose last 17 are made once the bad calls have been refused."""
        yield from calls(3)
        assert are_refused.wait(60)
        yield from list(calls(20))[3:]

    class Picky(Echo):
        def meet(self, key: str, subject: str) -> None:
            if key == "bad":
                raise HeadlabError("a text is too long", code="model.text_too_long")
            super().meet(key, subject)

        def answer(self, key: str, number: int) -> int:
            has_begun.set()
            return super().answer(key, number)

    with pool_of(lambda: ThreadDevice(Picky), 1) as pool:
        answers: list[int] = []
        good_caller = threading.Thread(
            target=lambda: answers.extend(pool.ask(good_calls(), no_tick))
        )
        good_caller.start()
        assert has_begun.wait(60)
        bad_call = DeviceCall("bad", "subject", "answer", (1,))
        for _ in range(3):
            with raises("model.text_too_long"):
                list(pool.ask([bad_call], no_tick))
        are_refused.set()
        good_caller.join()
    assert answers == squares(20)


@pytest.mark.parametrize(
    "cause",
    [
        MemoryError(),
        ValueError("my private sentence"),
        HeadlabError("no such label", code="data.label_unknown"),
    ],
)
def test_an_error_of_a_remote_task_is_raised_without_what_it_quotes(cause: Exception) -> None:
    class TaskError(Exception):
        pass

    errors = SimpleNamespace(RayTaskError=TaskError)
    remote_future: Future[Any] = Future()
    local_future = with_translated_errors(remote_future, errors)
    error = TaskError("")
    error.cause = cause  # type: ignore[attr-defined]
    remote_future.set_exception(error)
    message = str(local_future.exception(1))
    if isinstance(cause, HeadlabError):
        assert message == "no such label"
    else:
        assert type(cause).__name__ in message
    assert "private" not in message
    lost_future: Future[Any] = Future()
    local_future_of_loss = with_translated_errors(lost_future, errors)
    lost_future.set_exception(RuntimeError())
    assert isinstance(local_future_of_loss.exception(1), Lost)


def test_a_caller_that_stops_waiting_leaves_the_pool_to_others() -> None:
    with pool_of(lambda: ThreadDevice(Echo), 2) as pool:
        answers = pool.ask(calls(50), no_tick)
        next(answers)
        answers.close()

        def stop() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(pool.ask(calls(5), stop))
        assert list(pool.ask(calls(5), no_tick)) == squares(5)


def test_several_callers_may_ask_at_once() -> None:
    with pool_of(lambda: ThreadDevice(Echo), 3) as pool:

        def run(name: str, tick: Callable[[], None]) -> tuple[str, list[int]]:
            return name, list(pool.ask(calls(20), tick))

        answers_by_name = run_side_by_side("abcde", run, 5, no_tick)
    assert answers_by_name == {name: (name, squares(20)) for name in "abcde"}


def test_closing_the_pool_ends_the_calls_that_wait() -> None:
    has_begun = threading.Event()
    is_closed = threading.Event()

    class Slow(Echo):
        def answer(self, key: str, number: int) -> int:
            has_begun.set()
            assert is_closed.wait(60)
            return number

    pool = Pool(lambda: ThreadDevice(Slow), 1)

    def close() -> None:
        has_begun.wait(60)
        pool.close()
        is_closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    with raises("ray.ended"):
        list(pool.ask(calls(9), no_tick))
    closing.join()


def test_runs_side_by_side_end_together_when_one_fails() -> None:
    ended_runs = []
    all_have_begun = threading.Barrier(3)

    def run(name: str, tick: Callable[[], None]) -> str:
        all_have_begun.wait(60)
        if name == "b":
            raise HeadlabError("b has no examples", code="task.no_examples")
        try:
            while True:
                tick()
        except RunEnded:
            ended_runs.append(name)
            raise

    with raises("task.no_examples", "b"):
        run_side_by_side("abc", run, 3, no_tick)
    assert sorted(ended_runs) == ["a", "c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(tmp_path_factory.mktemp("model") / "bert", "bert")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(str(folder))


def replica_of(model: Model) -> Replica:
    return Replica(Origin.of(model), __version__)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "size", [2, *(pytest.param(size, marks=pytest.mark.soak) for size in (1, 7))]
)
def test_any_number_of_devices_gives_the_bits_of_a_local_run(
    model: Model, method: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 3})
    settings = {
        "language": "xx",
        "method": method,
        "size": 24,
        **METHODS[method],
    }
    local_scores = score(model, tiny_task(), **settings)
    with pool_of(lambda: ThreadDevice(lambda: replica_of(model)), size) as pool:
        pool_scores = score(model, tiny_task(), helpers=Team(pool), **settings)
    assert pool_scores.values_sha256() == local_scores.values_sha256()
    np.testing.assert_array_equal(pool_scores.sample_means, local_scores.sample_means)
    assert pool_scores.slopes == local_scores.slopes
    assert pool_scores.example_forwards == local_scores.example_forwards
    assert pool_scores.spec == local_scores.spec  # which says nothing of where it was computed


def test_devices_on_which_a_model_gives_no_gradient_give_the_bits_of_a_local_run(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answers about slopes are errors, and the run goes on with samples alone."""
    forbid_gradients(monkeypatch, type(model.module))  # devices load models of their own
    settings = {"language": "xx", "method": "shapley", "size": 24, "samples": 24}
    local_scores = score(model, tiny_task(), **settings)
    with pool_of(lambda: ThreadDevice(lambda: replica_of(model)), 3) as pool:
        pool_scores = score(model, tiny_task(), helpers=Team(pool), **settings)
    assert pool_scores.slopes == local_scores.slopes
    assert local_scores.slopes is not None
    assert local_scores.slopes.why_none == WHY_NO_SLOPES["model.gradient_missing"]
    assert pool_scores.values_sha256() == local_scores.values_sha256()


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_lost_devices_change_no_bit(
    model: Model, ablation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 2})
    settings = {
        "language": "xx",
        "size": 24,
        "samples": 48,
        "ablation": ablation,
    }
    local_scores = score(model, tiny_task(), **settings)
    monkeypatch.setattr(
        "headlab.cluster.pool.MAX_TRIES", 100
    )  # however often the same call is lost
    rng = np.random.default_rng(5)

    def hire() -> ThreadDevice:
        calls_survived = int(rng.integers(3, 7))
        return ThreadDevice(lambda: replica_of(model), calls_survived)

    with pool_of(hire, 3) as pool:
        pool_scores = score(model, tiny_task(), helpers=Team(pool), **settings)
        assert pool.lost >= 3  # 24 calls; none answers more than 4, and 3 are left
    assert pool_scores.values_sha256() == local_scores.values_sha256()


class Stop(Exception):
    pass


def test_a_run_begun_here_goes_on_elsewhere_and_back(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 2})
    settings = {"language": "xx", "size": 24, "samples": 48}
    local_scores = score(model, tiny_task(), **settings)
    store = Store(tmp_path)

    def stop_after(reports: int) -> Callable[[object], None]:
        reports_left = iter(range(reports))

        def report(_: object) -> None:
            if next(reports_left, None) is None:
                raise Stop

        return report

    with pool_of(lambda: ThreadDevice(lambda: replica_of(model)), 2) as pool:
        for reports, helpers in ((4, None), (5, Team(pool)), (3, None)):
            with pytest.raises(Stop):
                score(
                    model,
                    tiny_task(),
                    store=store,
                    helpers=helpers,
                    on_progress=stop_after(reports),
                    **settings,
                )
        final_scores = score(model, tiny_task(), store=store, helpers=Team(pool), **settings)
    assert final_scores.values_sha256() == local_scores.values_sha256()
    assert final_scores.example_forwards == local_scores.example_forwards


PAIRS: dict[str, Any] = {"heads": "0.1,1.0,1.2,2.3", "samples": 48}


def pieces_of(model: Model, **settings: Any) -> Pieces:
    return Pieces(model, tiny_task().with_languages(("xx",)), dev_size=10, test_size=20, **settings)


@pytest.mark.parametrize("value", ["accuracy", "probability"])
@pytest.mark.parametrize("is_screened", [False, True])
def test_interactions_on_devices_that_are_lost_have_the_bits_of_a_local_run(
    model: Model, value: str, is_screened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A screen is chosen for pairs so few only if it costs nothing.
    pass_cost = 1e-3 if is_screened else 1e9
    monkeypatch.setattr("headlab.methods.interactions.FORESEEN_PASS_COST", pass_cost)
    options = {**PAIRS, "value": value, "target": 0.002}
    local_pieces = pieces_of(model)
    local_report = run_experiment("interactions", local_pieces, options=options)
    assert is_screened == any("foresaw" in note for note in local_report.notes)
    monkeypatch.setattr("headlab.cluster.pool.MAX_TRIES", 100)
    rng = np.random.default_rng(5)

    def hire() -> ThreadDevice:
        return ThreadDevice(lambda: replica_of(model), int(rng.integers(3, 6)))

    with pool_of(hire, 3) as pool:
        pieces = pieces_of(model, helpers=Team(pool))
        report = run_experiment("interactions", pieces, options=options)
        assert pool.lost >= 3
    assert report.tables == local_report.tables
    assert report.notes == local_report.notes
    assert report.spec == local_report.spec  # which says nothing of where it was computed
    assert pieces.forwards == local_pieces.forwards


def test_interactions_begun_here_go_on_elsewhere_and_back(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 2})
    local_report = run_experiment("interactions", pieces_of(model), options=PAIRS)
    store = Store(tmp_path)
    with pool_of(lambda: ThreadDevice(lambda: replica_of(model)), 2) as pool:
        for steps, helpers in ((4, None), (7, Team(pool)), (9, None)):
            steps_left = iter(range(steps))

            def stop(_: object, steps_left: Iterator[int] = steps_left) -> None:
                if next(steps_left, None) is None:
                    raise Stop

            with pytest.raises(Stop):
                run_experiment(
                    "interactions",
                    pieces_of(model, store=store, helpers=helpers),
                    options=PAIRS,
                    on_progress=stop,
                )
        last_pieces = pieces_of(model, store=store, helpers=Team(pool))
        report = run_experiment("interactions", last_pieces, options=PAIRS)
    assert report.tables == local_report.tables


def test_another_model_or_version_on_a_device_is_refused(model: Model, folder: Path) -> None:
    origin = Origin.of(model)
    with raises("ray.other_model"):
        other_origin = Origin(origin.name, None, "0" * 64, "float32")
        Replica(other_origin, __version__)
    with raises("ray.other_version"):
        Replica(origin, "0.0.0")


@pytest.mark.parametrize(
    ("nodes", "workers", "expected_shares"),
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
def test_a_cluster_is_shared_by_gpus_or_else_by_processors(
    nodes: list[dict[str, float]], workers: int | None, expected_shares: Shares
) -> None:
    assert shares(nodes, workers) == expected_shares


def test_a_cluster_with_nothing_to_share_is_refused() -> None:
    with raises("ray.no_devices"):
        shares([{"memory": 1e9}], None)
    with raises("ray.workers_too_few", 0):
        shares([{"CPU": 2.0}], 0)
