"""The worker's queue holds unanswered requests only; each ends with an answer or a reason."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from support.expected_errors import expect_error, raises
from support.fake_worker import MODEL, FakeBench
from support.running_worker import (
    RunningWorker,
    attention_request,
    evaluate_request,
    started_worker,
)
from support.waiting import HANG_SECONDS, wait_until

from headlab.core import HeadlabError
from headlab.results import Store
from headlab.worker.client import Client
from headlab.worker.engine import (
    MAX_NEW_IN_A_ROW,
    MAX_OF_ONE,
    MAX_WAITING,
    Engine,
    LiveRequest,
    Message,
    RequestQueue,
    superseded_refusal,
)
from headlab.worker.jobs import JobList
from headlab.worker.model_host import MAX_FETCHES, Fetches
from headlab.worker.schemas import Figure, Weights
from headlab.worker.server import FigureLines, create_app, json_lines, server_of

FIGURES = 3
WEIGHTS = Weights(tokens=[], weights={}, separators=[], special=[], truncated=False)
EVALUATION = {"model": MODEL, "task": "intents", "language": "de"}


def figures(count: int = FIGURES, *, is_complete: bool = True) -> Iterator[Figure]:
    """Figures of one evaluation.

    Args:
        count: How many.
        is_complete: Whether the last of them is marked as the end.
    """
    for n in range(1, count + 1):
        yield Figure(
            language="de",
            n=n,
            total=count,
            accuracy=0.5,
            low=0,
            high=1,
            done=is_complete and n == count,
        )


class Reader:
    """A client that asks for figures, or for one record, and the messages it was sent."""

    def __init__(
        self,
        session: str | None = None,
        records: Callable[[], Iterator[BaseModel]] = figures,
        language: str = "de",
    ) -> None:
        self.messages: list[Message] = []
        key = None if session is None else (session, "intents", language, "dev")
        self.live = LiveRequest(records, self.messages.append, MODEL, key)

    @property
    def has_answer(self) -> bool:
        if not self.messages:
            return False
        return isinstance(self.messages[-1], Weights) or self.figure.done

    @property
    def figure(self) -> Figure:
        assert isinstance(self.messages[-1], Figure)
        return self.messages[-1]

    @property
    def error(self) -> Exception:
        assert isinstance(self.messages[-1], Exception)
        return self.messages[-1]


def one_record() -> Iterator[BaseModel]:
    return iter([WEIGHTS])


def serve(queue: RequestQueue) -> LiveRequest | None:
    """Make one turn of the device's thread.

    Returns:
        The request whose turn it was, if any waits.
    """
    live = queue.take()
    if live is None:
        return None
    if live.step():
        queue.put_back(live)
    else:
        queue.forget(live)
    return live


# Requests that are answered, or that nobody reads, are not in the queue.


def test_reported_16_an_answered_request_leaves_the_queue_with_its_last_record() -> None:
    queue = RequestQueue()
    single_reader = Reader(records=one_record)
    figure_reader = Reader("a")
    queue.add(single_reader.live)
    assert serve(queue) is single_reader.live
    assert queue.count == 0
    assert single_reader.messages == [WEIGHTS]
    queue.add(figure_reader.live)
    counts = []
    for _ in range(FIGURES):
        assert serve(queue) is figure_reader.live
        counts.append(queue.count)
    assert counts == [1, 1, 0]
    assert [message.n for message in figure_reader.messages if isinstance(message, Figure)] == [
        1,
        2,
        3,
    ]
    assert len(figure_reader.messages) == FIGURES
    assert queue.take() is None


@pytest.mark.parametrize("records", [one_record, figures], ids=["one record", "figures"])
@pytest.mark.parametrize("session", [None, "a"])
def test_reported_16_a_thousand_requests_of_three_clients_never_fill_the_queue(
    records: Callable[[], Iterator[BaseModel]], session: str | None
) -> None:
    """Each client sends its next request when it has its answer, so at most three wait at once."""
    queue = RequestQueue()
    answer_count = 0
    longest = 0

    def ask(number: int) -> Reader:
        name = None if session is None else f"{session} {number}"
        reader = Reader(name, records)
        queue.add(reader.live)
        return reader

    readers = {number: ask(number) for number in range(3)}
    while answer_count < 1000:
        longest = max(longest, queue.count)
        assert serve(queue) is not None
        for number, reader in readers.items():
            if reader.has_answer:
                answer_count += 1
                readers[number] = ask(number)
    assert longest == 3


@pytest.mark.parametrize("session", [None, "patient"])
def test_reported_16_an_evaluation_waits_for_a_bounded_number_of_quick_requests(
    session: str | None,
) -> None:
    """Quick requests of three clients take at most MAX_NEW_IN_A_ROW turns before each figure.

    The clients always have a next request. How many were answered before the evaluation came
    makes no difference.
    """
    queue = RequestQueue()
    figure_reader = Reader(session)
    quick_turns = 0
    for _ in range(3):
        queue.add(Reader(records=one_record).live)
    for _ in range(300):
        serve(queue)
        queue.add(Reader(records=one_record).live)
    queue.add(figure_reader.live)
    while not figure_reader.has_answer:
        if serve(queue) is not figure_reader.live:
            quick_turns += 1
            queue.add(Reader(records=one_record).live)
    assert quick_turns <= FIGURES * MAX_NEW_IN_A_ROW
    assert queue.count == 3


def test_reported_16_clients_that_leave_before_their_turn_leave_the_queue_at_once() -> None:
    queue = RequestQueue()
    begun_requests = []

    def begin() -> Iterator[BaseModel]:
        begun_requests.append(1)
        return figures()

    for number in range(2 * MAX_WAITING):
        reader = Reader(f"person {number}", begin)
        queue.add(reader.live)
        queue.withdraw(reader.live, superseded_refusal())
        assert queue.count == 0
        expect_error(reader.error, "worker.request_superseded")
    assert queue.take() is None
    assert queue.take_withdrawn() == begun_requests == []


def test_reported_16_a_begun_request_that_nobody_reads_is_closed_by_the_thread_that_began_it() -> (
    None
):
    queue = RequestQueue()
    closing_threads = []

    def watched_figures() -> Iterator[BaseModel]:
        try:
            yield from figures()
        finally:
            closing_threads.append(threading.get_ident())

    reader = Reader("a", watched_figures)
    queue.add(reader.live)
    serve(queue)
    leaving = threading.Thread(target=queue.withdraw, args=(reader.live, superseded_refusal()))
    leaving.start()
    leaving.join()
    assert queue.count == 0
    assert closing_threads == []
    assert queue.take() is None
    for live in queue.take_withdrawn():
        live.end(superseded_refusal())
    assert closing_threads == [threading.get_ident()]
    expect_error(reader.error, "worker.request_superseded")
    assert queue.take_withdrawn() == []


def test_reported_16_a_request_under_way_whose_reader_leaves_is_not_queued_again() -> None:
    queue = RequestQueue()
    reader = Reader("a")
    queue.add(reader.live)
    live = queue.take()
    assert live is reader.live
    assert live.step()
    queue.withdraw(live, superseded_refusal())
    queue.put_back(live)
    assert queue.count == 0
    assert queue.take() is None
    assert queue.take_withdrawn() == [live]


def test_reported_16_requests_that_supersede_older_ones_do_not_fill_a_session_s_share() -> None:
    """A session's superseded requests make room, so they do not count against its limit."""
    queue = RequestQueue()
    for _ in range(3):
        for number in range(MAX_OF_ONE):
            queue.add(Reader("page", language=f"l{number}").live)
            serve(queue)
    assert queue.count == MAX_OF_ONE
    with raises("worker.session_requests_too_many"):
        queue.add(Reader("page", language="one-more").live)


# Every request ends with its last record or with a reason.


def test_reported_16_an_older_request_ends_with_the_reason_that_a_newer_one_came() -> None:
    for turns in (0, 1):
        queue = RequestQueue()
        older = Reader("a")
        newer = Reader("a")
        queue.add(older.live)
        for _ in range(turns):
            serve(queue)
        queue.add(newer.live)
        for live in queue.take_withdrawn():
            live.end(live.reason or HeadlabError("no reason", code="test.no_reason"))
        expect_error(older.error, "worker.request_superseded")
        assert len(older.messages) == turns + 1
        while serve(queue):
            pass
        assert newer.has_answer
        assert newer.figure.n == FIGURES


def none_at_all() -> Iterator[BaseModel]:
    return iter(())


def without_the_last() -> Iterator[BaseModel]:
    return figures(is_complete=False)


def an_iterator_s_end_inside() -> Iterator[BaseModel]:
    return iter([next(one_record()), next(none_at_all())])


@pytest.mark.parametrize("records", [none_at_all, without_the_last])
def test_reported_16_work_that_ends_without_its_last_record_is_an_error(
    records: Callable[[], Iterator[BaseModel]],
) -> None:
    queue = RequestQueue()
    reader = Reader("a", records)
    queue.add(reader.live)
    while serve(queue):
        pass
    expect_error(reader.error, "worker.answer_missing")
    assert queue.count == 0


def test_reported_16_an_iterator_that_ends_inside_the_work_is_its_error_not_its_end() -> None:
    reader = Reader(records=an_iterator_s_end_inside)
    assert not reader.live.step()
    assert isinstance(reader.error, StopIteration)


def test_reported_16_a_request_that_comes_as_the_worker_stops_is_refused_not_forgotten() -> None:
    queue = RequestQueue()
    readers = [Reader("begun"), Reader("waiting")]
    queue.add(readers[0].live)
    serve(queue)
    queue.add(readers[1].live)
    assert [live.session for live in queue.close()] == ["waiting", "begun"]
    assert queue.count == 0
    with raises("worker.going_down"):
        queue.add(Reader("late").live)


# Through the engine and over the wire.


@pytest.fixture
def bench(tmp_path: Path) -> FakeBench:
    return FakeBench(tmp_path, 0.0)


@pytest.fixture
def worker(tmp_path: Path, bench: FakeBench) -> Iterator[RunningWorker]:
    def make() -> FakeBench:
        bench.thread = threading.get_ident()
        return bench

    with started_worker(tmp_path, make) as worker:
        yield worker
        bench.batches_may_end.set()


def test_reported_16_three_clients_over_the_wire_are_answered_every_time_and_nothing_stays(
    worker: RunningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.worker.engine.MAX_WAITING", 3)
    refusals: list[HeadlabError] = []
    lengths: list[int] = []

    def use(number: int) -> None:
        for turn in range(40):
            try:
                if turn % 4:
                    worker.client.attention(
                        attention_request(MODEL, "turn it off", [["encoder", 0, 0]])
                    )
                else:
                    *_, last_figure = worker.client.evaluate(
                        evaluate_request(MODEL, "intents", "de", session=f"person {number}")
                    )
                    assert last_figure.done
            except HeadlabError as error:
                refusals.append(error)
            lengths.append(worker.engine.waiting)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals == []
    assert len(lengths) == 3 * 40
    assert max(lengths) <= 2  # the requests of the two others: its own has been answered
    assert worker.engine.waiting == 0


def test_reported_16_readers_that_stop_at_the_last_figure_leave_nothing(
    worker: RunningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.worker.engine.MAX_WAITING", 1)
    for turn in range(40):
        stream = worker.client.evaluate(
            evaluate_request(MODEL, "intents", "de", session=f"person {turn % 3}")
        )
        while not next(stream).done:
            pass
        assert worker.engine.waiting == 0
        stream.close()  # type: ignore[attr-defined] # a generator


@pytest.mark.parametrize("is_begun", [False, True])
def test_reported_16_an_older_request_s_stream_ends_with_the_reason(
    worker: RunningWorker, bench: FakeBench, is_begun: bool
) -> None:
    bench.free_batches = int(is_begun)
    bench.batches_may_end.clear()
    if not is_begun:  # another client's batch keeps the device busy
        other_client = threading.Thread(
            target=lambda: list(worker.client.evaluate(evaluate_request(MODEL, "intents", "fr")))
        )
        other_client.start()
        wait_until(lambda: bench.log != [])
    lines: list[str] = []

    def ask() -> None:
        url = f"{worker.url}/evaluate"
        body = {**EVALUATION, "session": "a"}
        with httpx.stream("POST", url, json=body, timeout=HANG_SECONDS) as answer:
            lines.append(str(answer.status_code))
            lines.extend(answer.iter_lines())

    older_client = threading.Thread(target=ask)
    older_client.start()
    if is_begun:
        wait_until(lambda: len(bench.figures) == 1)
    else:
        wait_until(lambda: worker.engine.waiting == 1)
    newer_figures: list[Any] = []
    newer_request = evaluate_request(**EVALUATION, session="a")  # type: ignore[arg-type]
    newer_client = threading.Thread(
        target=lambda: newer_figures.extend(worker.client.evaluate(newer_request))
    )
    newer_client.start()
    if is_begun:
        wait_until(lambda: worker.engine.waiting == 1)
    else:
        older_client.join(60)  # it ends at once, though the device is busy
    bench.batches_may_end.set()
    for thread in (older_client, newer_client, *([] if is_begun else [other_client])):
        thread.join(60)
    assert newer_figures[-1].done
    assert lines[0] == ("200" if is_begun else "409")
    last_record = json.loads(lines[-1])
    assert last_record.keys() == {"error", "code"}
    assert last_record["code"] == "worker.request_superseded"


def test_reported_16_a_worker_that_stops_tells_those_who_read(
    tmp_path: Path, bench: FakeBench
) -> None:
    bench.free_batches = 1
    bench.batches_may_end.clear()

    def make() -> FakeBench:
        bench.thread = threading.get_ident()
        return bench

    jobs = JobList(tmp_path / "jobs.db")
    engine = Engine(make, jobs, Store(tmp_path))
    server = server_of(create_app(engine), lambda: engine.stop(0))
    server.config.timeout_graceful_shutdown = 60
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}")
    stream = client.evaluate(evaluate_request(MODEL, "intents", "de"))
    assert next(stream).n == 64
    (connection,) = server.server_state.connections
    # Without TCP_NODELAY a line that waits for an acknowledgement costs 40 ms.
    client_socket = connection.transport.get_extra_info("socket")
    assert client_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    server.should_exit = True
    wait_until(lambda: not engine.alive)
    bench.batches_may_end.set()
    with raises("worker.going_down"):
        list(stream)
    thread.join(60)
    assert not thread.is_alive()
    client.close()
    jobs.close()
    listener.close()


# Clients that leave.


def test_reported_16_a_client_that_left_before_the_first_line_is_noticed() -> None:
    """Its connection ends before the answer starts, so no line of it is ever asked for."""
    notices: list[str] = []

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise OSError("nobody is there")

    async def answer() -> None:
        lines = json_lines(None, next(figures()))  # type: ignore[arg-type]
        response = FigureLines(lines, lambda: notices.append("left"))
        scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
        await response(scope, receive, send)  # type: ignore[arg-type]

    # In a thread of its own, because playwright keeps a loop running in the thread of the tests.
    with ThreadPoolExecutor(1) as pool, pytest.raises(ClientDisconnect):
        pool.submit(lambda: asyncio.run(answer())).result()
    assert notices == ["left"]


def test_reported_16_a_client_that_leaves_while_a_model_is_fetched_holds_no_place(
    worker: RunningWorker, bench: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    coming: Future[None] = Future()
    monkeypatch.setattr("headlab.worker.middleware.MAX_REQUESTS", 1)
    monkeypatch.setattr(bench, "fetch", lambda _: coming)
    address = httpx.URL(worker.url)
    url_of_tasks = f"{worker.url}/tasks"
    with socket.create_connection((address.host, address.port)) as impatient:
        body = json.dumps({"model": "some/model"}).encode()
        head = f"POST /model HTTP/1.1\r\nhost: {address.host}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        impatient.sendall(head.encode() + body)
        wait_until(lambda: httpx.get(url_of_tasks).status_code == 503)
    wait_until(lambda: httpx.get(url_of_tasks).status_code == 200)


def test_reported_16_local_models_do_not_count_as_models_to_fetch(tmp_path: Path) -> None:
    have_arrived = threading.Event()

    def fetch(_: str) -> None:
        assert have_arrived.wait(60)

    fetches = Fetches(fetch)
    local_models = [str(tmp_path / f"model-{number}") for number in range(2 * MAX_FETCHES)]
    hub_models = [f"some/model{number}" for number in range(MAX_FETCHES)]
    fetched_models = [fetches.start(model) for model in (*local_models, *hub_models)]
    with raises("worker.fetches_too_many", MAX_FETCHES):
        fetches.start("one/more")
    have_arrived.set()
    assert len(fetched_models) == 3 * MAX_FETCHES
    for fetched_model in fetched_models:
        assert fetched_model.result(60) is None
