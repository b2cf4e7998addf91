"""Batches side by side: the same bits on any number of threads, nothing lost when one fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.waiting import wait_until

from headlab.core.parallel import Rows, Tick, one_thread, run_in_parallel
from headlab.hooks import Model
from headlab.methods.run import score

CPU = SimpleNamespace(device=torch.device("cpu"), is_offloaded=False)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restore the number of threads after the test."""
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)


def batches(*sizes: int) -> list[Rows]:
    return [Rows(np.arange(n)) for n in sizes]


def no_tick() -> None:
    pass


@pytest.mark.usefixtures("threads")
def test_weights_that_come_and_go_allow_one_batch_at_a_time() -> None:
    torch.set_num_threads(4)
    offloaded_model = SimpleNamespace(device=torch.device("cpu"), is_offloaded=True)
    results = run_in_parallel(
        batches(1, 2, 3), lambda *_: threading.current_thread(), model=offloaded_model, tick=no_tick
    )
    assert {thread for _, thread in results} == {threading.current_thread()}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_results_come_in_order_and_operations_use_one_thread(lanes: int) -> None:
    torch.set_num_threads(lanes)
    ends = {n: threading.Event() for n in range(1, 13)}

    def run(batch: Rows, tick: Tick) -> tuple[int, int]:
        n = len(batch.rows)
        if lanes > 1 and n % 2:  # it ends after the one that follows it
            assert ends[n + 1].wait(120)
        ends[n].set()
        return n, torch.get_num_threads()

    results = run_in_parallel(batches(*range(1, 13)), run, model=CPU, tick=no_tick)
    assert [result for _, result in results] == [(n, 1) for n in range(1, 13)]
    assert torch.get_num_threads() == lanes


@pytest.mark.usefixtures("threads")
def test_as_many_at_once_as_there_are_threads() -> None:
    torch.set_num_threads(3)
    active = 0
    max_active = 0
    lock = threading.Lock()
    three_batches = threading.Barrier(3)

    def run(batch: Rows, tick: Tick) -> None:
        nonlocal active, max_active
        with lock:
            active += 1
            max_active = max(max_active, active)
        three_batches.wait(120)
        with lock:
            active -= 1

    assert len(list(run_in_parallel(batches(*[1] * 9), run, model=CPU, tick=no_tick))) == 9
    assert max_active == 3


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("lanes", [1, 3])
def test_what_does_not_fit_is_cut_and_nothing_is_lost(lanes: int) -> None:
    torch.set_num_threads(lanes)

    def run(batch: Rows, tick: Tick) -> int:
        if len(batch.rows) > 3:
            raise torch.OutOfMemoryError("too many")
        return int(batch.rows.sum())

    results = list(run_in_parallel(batches(8, 2, 5), run, model=CPU, tick=no_tick))
    assert sum(row_sum for _, row_sum in results) == 28 + 1 + 10
    assert all(len(batch.rows) <= 3 for batch, _ in results)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("lanes", [1, 3])
def test_what_cannot_be_cut_is_said(lanes: int) -> None:
    torch.set_num_threads(lanes)

    def run(batch: Rows, tick: Tick) -> None:
        raise torch.OutOfMemoryError("too many")

    with raises("memory.example_too_large"):
        list(run_in_parallel(batches(2, 2), run, model=CPU, tick=no_tick))
    assert torch.get_num_threads() == lanes


@pytest.mark.usefixtures("threads")
def test_stopping_does_not_wait_for_the_end_of_a_long_batch() -> None:
    torch.set_num_threads(2)
    start = threading.Event()
    sizes_at_end = []

    def run(batch: Rows, tick: Tick) -> None:
        start.set()
        try:
            wait_until(tick, "the end of a batch that has none")
        except AssertionError:
            sizes_at_end.append(0)
        finally:
            sizes_at_end.append(len(batch.rows))

    def stop() -> None:
        if start.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_in_parallel(batches(1, 2, 3), run, model=CPU, tick=stop))
    assert set(sizes_at_end) <= {1, 2}
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("threads")
def test_batches_wait_while_their_caller_uses_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a job would share the cores with the live request that it makes way for."""
    torch.set_num_threads(2)
    serving = threading.Event()
    end_of_a_batch = threading.Event()
    waits: list[str] = []

    class CountingEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread().name.startswith("lane"):
                waits.append("a batch waits")
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Event", CountingEvent)

    def run(batch: Rows, tick: Tick) -> int:
        assert serving.wait(120)
        tick()
        end_of_a_batch.set()
        return len(batch.rows)

    def serve() -> None:
        if not serving.is_set():
            serving.set()
            wait_until(lambda: len(waits) == 2, "both batches to wait")
            assert not end_of_a_batch.is_set()

    results = list(run_in_parallel(batches(1, 2), run, model=CPU, tick=serve))
    assert [size for _, size in results] == [1, 2]
    assert end_of_a_batch.is_set()


def test_an_error_in_a_batch_passes(threads: None) -> None:
    torch.set_num_threads(2)

    def run(batch: Rows, tick: Tick) -> None:
        if len(batch.rows) == 2:
            raise ValueError("no such label")

    with pytest.raises(ValueError, match="no such label"):
        list(run_in_parallel(batches(1, 2, 3), run, model=CPU, tick=no_tick))


@pytest.mark.usefixtures("threads")
def test_another_device_keeps_its_threads() -> None:
    torch.set_num_threads(2)
    with one_thread(torch.device("meta")) as lanes:
        assert (lanes, torch.get_num_threads()) == (1, 2)
    with one_thread(CPU.device) as lanes:
        assert (lanes, torch.get_num_threads()) == (2, 1)
    assert torch.get_num_threads() == 2


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("shapley", {"samples": 24, "value": "probability"}),
        ("monte-carlo", {"samples": 20, "value": "log-probability"}),
        ("paper", {"samples": 2}),
        ("exact", {"value": "probability", "size": 2, "tokens": 1000}),  # 4,096 coalitions
        ("leave-one-out", {}),
        ("smoothed", {"samples": 100, "estimand": "shapley"}),
        ("gradient", {"batch_size": 3}),
        ("gradient", {"form": "batch", "batch_size": 5}),
        ("gradient", {"form": "token", "batch_size": 5}),
        ("confidence", {}),
    ],
)
def test_scores_are_the_same_bits_on_any_number_of_threads(
    model: Model, method: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"size": 12, **options}
    tokens = options.pop("tokens", 60)
    monkeypatch.setattr("headlab.methods.model_game.token_budget", lambda _: tokens)
    # Slopes of an untrained model may add up to anything.
    monkeypatch.setattr("headlab.methods.smoothed.LIMITS_OF_SCALE", (-np.inf, np.inf))
    results = []
    for lanes in (1, 2, 7):
        torch.set_num_threads(lanes)
        results.append(score(model, tiny_task(), language="xx", method=method, **options))
    assert len({scores.values_sha256() for scores in results}) == 1
    assert len({scores.example_forwards for scores in results}) == 1
    assert_array_equal(results[0].values, results[2].values)


@pytest.mark.usefixtures("threads")
def test_two_runs_at_once_leave_the_threads_as_they_were() -> None:
    torch.set_num_threads(4)
    both_inside = threading.Barrier(2)
    one_outside = threading.Barrier(2)
    lanes_of_runs: list[int] = []

    def leave_last() -> None:
        with one_thread(CPU.device) as lanes:
            lanes_of_runs.append(lanes)
            both_inside.wait(60)
            one_outside.wait(60)

    def leave_first() -> None:
        with one_thread(CPU.device) as lanes:
            lanes_of_runs.append(lanes)
            both_inside.wait(60)
        one_outside.wait(60)

    threads = [threading.Thread(target=target) for target in (leave_last, leave_first)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lanes_of_runs == [4, 4]
    assert torch.get_num_threads() == 4
