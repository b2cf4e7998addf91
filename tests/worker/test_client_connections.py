"""Connections that pages keep to the worker: when one breaks, no request on it is lost."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from support.expected_errors import raises
from support.running_worker import attention_request, evaluate_request

from headlab.core import HeadGrid, Stack
from headlab.studies.savings import Costs, LayerCost
from headlab.worker.client import CONNECTION_LIMITS, Client, error_of
from headlab.worker.middleware import REQUEST_SECONDS
from headlab.worker.schemas import (
    Answer,
    Deleted,
    ExampleCard,
    JobRow,
    LoadedModel,
    ModelCard,
    Submitted,
    TaskCard,
)
from headlab.worker.server import server_of

T = TypeVar("T")
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
# SO_LINGER: closing tells the other side that what it sent was not read
RESET = struct.pack("ii", 1, 0)


class ForgetfulServer:
    """A server whose connections break with their second request.

    Attributes:
        request_lines: First line of every request that it was sent.
    """

    def __init__(self) -> None:
        self.request_lines: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # the test is over and has closed the listener
                return
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        self._read_request(connection)
        body = b"[]" if self.request_lines[-1].startswith(b"GET") else b"{}"
        connection.sendall(ANSWER % (len(body), body))
        self._read_request(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()

    def _read_request(self, connection: socket.socket) -> None:
        first_line, *_ = connection.recv(65536).split(b"\r\n")
        self.request_lines.append(first_line)


@pytest.fixture
def forgetful() -> Iterator[ForgetfulServer]:
    server = ForgetfulServer()
    yield server
    server.listener.close()


@pytest.fixture
def client(forgetful: ForgetfulServer) -> Iterator[Client]:
    _, port = forgetful.listener.getsockname()
    client = Client(f"http://127.0.0.1:{port}")
    yield client
    client.close()


def test_a_request_on_a_connection_that_breaks_is_sent_again(
    forgetful: ForgetfulServer, client: Client
) -> None:
    assert client.jobs() == []
    assert client.jobs() == []
    assert forgetful.request_lines[:3] == [b"GET /jobs HTTP/1.1"] * 3


def test_a_request_for_figures_is_sent_again_too(
    forgetful: ForgetfulServer, client: Client
) -> None:
    """A session's `evaluate` changes nothing, though it is a POST.

    The server answers with something that is no figure, which is an error of its own.
    """
    assert client.jobs() == []
    with raises("worker.not_a_worker"):
        list(client.evaluate(evaluate_request("m", "intents", "de")))
    get_line, *post_lines = forgetful.request_lines[:3]
    assert get_line == b"GET /jobs HTTP/1.1"
    assert post_lines == [b"POST /evaluate HTTP/1.1"] * 2


def test_a_request_that_changes_something_is_not_sent_twice(
    forgetful: ForgetfulServer, client: Client
) -> None:
    assert client.jobs() == []
    with raises("worker.unreachable", "the worker ended before it had answered"):
        client.cancel(1)
    assert forgetful.request_lines == [b"GET /jobs HTTP/1.1", b"POST /jobs/1/cancel HTTP/1.1"]


def test_the_error_says_whether_the_worker_starts_again_by_itself() -> None:
    def address() -> str:
        return "http://127.0.0.1:9"

    starts_again = "the worker is not running; it starts again by itself, and its jobs go on"
    with raises("worker.unreachable", starts_again):
        Client(address).jobs()
    must_be_checked = "the worker is not running; check that it runs at http://127.0.0.1:9"
    with raises("worker.unreachable", must_be_checked):
        Client(address()).jobs()


def test_an_error_keeps_its_code_on_the_way_and_an_older_worker_s_gets_a_general_one() -> None:
    error_with_code = error_of({"error": "no job 3", "code": "job.unknown"})
    error_without_code = error_of({"error": "no job 3"})
    assert str(error_with_code) == "no job 3"
    assert error_with_code.code == "job.unknown"
    assert str(error_without_code) == "no job 3"
    assert error_without_code.code == "worker.error"


def test_a_worker_keeps_connections_for_much_longer_than_its_clients_do() -> None:
    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        raise AssertionError("never called")

    assert CONNECTION_LIMITS.keepalive_expiry is not None
    keep_alive_seconds = min(REQUEST_SECONDS, server_of(app).config.timeout_keep_alive)
    assert keep_alive_seconds >= CONNECTION_LIMITS.keepalive_expiry + 5


# Answers that end early


ACCURACY = b'"language": "de", "total": 512, "accuracy": 0.5, "low": 0.4, "high": 0.6'
FIRST_LINE = b'{%s, "n": 16, "done": false}\n' % ACCURACY
LAST_LINE = b'{%s, "n": 512, "done": true}\n' % ACCURACY
HEAD_WITHOUT_LENGTH = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
)
CHUNKED_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(line: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(line), line)


class OneAnswerServer:
    """A server that answers one request with the given bytes and cuts the connection.

    Args:
        answer: The bytes.
        reset: Whether it resets the connection instead of closing it in good order.
    """

    def __init__(self, answer: bytes, *, reset: bool = False) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self._reset = reset
        threading.Thread(target=self._serve, daemon=True).start()

    def client(self) -> Client:
        _, port = self.listener.getsockname()
        return Client(f"http://127.0.0.1:{port}")

    def _serve(self) -> None:
        connection, _ = self.listener.accept()
        connection.recv(65536)
        connection.sendall(self._answer)
        if self._reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()
        self.listener.close()


@pytest.mark.parametrize(
    "answer",
    [
        HEAD_WITHOUT_LENGTH,
        HEAD_WITHOUT_LENGTH + FIRST_LINE,
        HEAD_WITHOUT_LENGTH + FIRST_LINE + LAST_LINE[:20],
        CHUNKED_HEAD + chunk(FIRST_LINE),
        CHUNKED_HEAD + chunk(FIRST_LINE) + chunk(LAST_LINE)[:20],
        CHUNKED_HEAD + chunk(FIRST_LINE) + b"0\r\n\r\n",
        CHUNKED_HEAD + b"0\r\n\r\n",
    ],
)
def test_reported_16_figures_that_end_before_the_last_one_are_an_error(answer: bytes) -> None:
    client = OneAnswerServer(answer).client()
    with raises("worker.stopped_midway"):
        list(client.evaluate(evaluate_request("m", "intents", "de")))
    client.close()


def test_reported_16_a_connection_reset_between_figures_is_an_error() -> None:
    client = OneAnswerServer(CHUNKED_HEAD + chunk(FIRST_LINE), reset=True).client()
    with raises("worker.stopped_midway"):
        list(client.evaluate(evaluate_request("m", "intents", "de")))
    client.close()


@pytest.mark.parametrize(
    "answer",
    [
        HEAD_WITHOUT_LENGTH + FIRST_LINE + LAST_LINE,
        CHUNKED_HEAD + chunk(FIRST_LINE) + chunk(LAST_LINE),
        CHUNKED_HEAD + chunk(LAST_LINE),
    ],
)
def test_reported_16_a_connection_cut_after_the_last_figure_loses_nothing(answer: bytes) -> None:
    client = OneAnswerServer(answer).client()
    *_, last_figure = client.evaluate(evaluate_request("m", "intents", "de"))
    assert last_figure.n == 512
    assert last_figure.done is True
    client.close()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"error": "no room", "code": "memory.full"}\n', "memory.full"),
        # from an older worker
        (b'{"superseded": true, "done": false}\n', "worker.request_superseded"),
        (b"[1, 2]\n", "worker.not_a_worker"),
        (b'{"n": 3}\n', "worker.not_a_worker"),
    ],
)
def test_reported_16_a_last_line_that_is_no_figure_is_its_error(line: bytes, code: str) -> None:
    client = OneAnswerServer(HEAD_WITHOUT_LENGTH + line).client()
    with raises(code):
        list(client.evaluate(evaluate_request("m", "intents", "de")))
    client.close()


def test_reported_16_a_server_with_too_many_connections_is_asked_again_later() -> None:
    answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 19\r\n\r\nService Unavailable"
    client = OneAnswerServer(answer).client()
    with raises("worker.overloaded", 503):
        client.jobs()
    client.close()


# Answers as the schema's models.

ROW = JobRow(
    id=7,
    kind="score",
    params={"seed": 1},
    place="here",
    state="running",
    done=1,
    total=2,
    note="de",
    error=None,
    result=None,
    seconds_left=None,
    attempts=1,
    created=0.0,
    started=1.0,
    ended=None,
)


def read_by_client(content: object, ask: Callable[[Client], T]) -> T:
    """What the client returns when the worker answers with `content`."""
    body = json.dumps(content).encode()
    answer = ANSWER % (len(body), body)
    client = OneAnswerServer(answer).client()
    try:
        return ask(client)
    finally:
        client.close()


def test_fields_that_a_newer_worker_adds_are_ignored() -> None:
    newer_row = {**ROW.model_dump(), "priority": 3}
    snapshot = {"job": newer_row, "scores": None, "more": 1}
    submission = {"id": 7, "state": "queued", "queue": "fast"}
    assert read_by_client([newer_row], Client.jobs) == [ROW]
    assert read_by_client(newer_row, lambda client: client.cancel(7)) == ROW
    assert read_by_client(snapshot, lambda client: client.snapshot(7)) == (ROW, None)
    assert read_by_client(submission, Client.submit) == Submitted(id=7, state="queued")
    assert (
        read_by_client({"deleted": True, "log": []}, lambda client: client.delete(7)) == Deleted()
    )
    log = {"lines": ["a"], "more": False}
    assert read_by_client(log, lambda client: client.log(7)) == ["a"]


@pytest.mark.parametrize("content", [{}, [], "text", {**ROW.model_dump(), "state": "lost"}])
def test_an_answer_that_is_no_job_is_not_a_workers(content: object) -> None:
    with raises("worker.not_a_worker"):
        read_by_client(content, lambda client: client.job(7))
    with raises("worker.not_a_worker"):
        read_by_client({"job": content}, lambda client: client.snapshot(7))


FIRST_VERSION_MODEL = {
    "name": "m",
    "revision": "r",
    "fingerprint": "f",
    "grid": {"decoder": [2], "encoder": [4, 4]},
    "device": "cpu",
    "note": "",
}
LAYER_COST = LayerCost(0, 4, 2, 3, 2, 1)
COSTS = Costs(9, (0, 1, 2), (LAYER_COST,), "why not")


def test_a_model_s_heads_and_costs_arrive_as_the_classes_that_they_are() -> None:
    newer_model = {**FIRST_VERSION_MODEL, "costs": COSTS.to_json(), "colour": "red"}
    model = read_by_client(newer_model, lambda client: client.load_model("m"))
    encoder = Stack("encoder", (4, 4))
    decoder = Stack("decoder", (2,))
    assert model.grid == HeadGrid((encoder, decoder))
    assert model.costs == COSTS
    assert model.identity == {"name": "m", "revision": "r", "fingerprint": "f"}
    model_json = LoadedModel(**{**FIRST_VERSION_MODEL, "costs": COSTS}).model_dump_json()
    assert json.loads(model_json)["costs"] == COSTS.to_json()
    assert json.loads(model_json)["grid"] == {"encoder": [4, 4], "decoder": [2]}
    with raises("costs.malformed"):
        read_by_client(
            {**newer_model, "costs": {"parameters": 1}}, lambda client: client.load_model("m")
        )


def test_answers_of_older_workers_are_read() -> None:
    """They say neither what heads cost, nor which tokens are special.

    Their tasks lack the fields about how to get the examples.
    """
    model = read_by_client(FIRST_VERSION_MODEL, lambda client: client.load_model("m"))
    assert model.costs is None
    assert model.projections == []
    assert model.former_fingerprints == []
    weights = {"tokens": ["a"], "weights": {"encoder.0.0": [[1.0]]}, "truncated": False}
    attention = read_by_client(
        weights, lambda client: client.attention(attention_request("m", "a", [["encoder", 0, 0]]))
    )
    assert attention.weights == {"encoder.0.0": [[1.0]]}
    assert attention.special == []
    assert attention.answers == []
    card = {
        "name": "t",
        "labels": ["a"],
        "languages": ["de"],
        "aligned": True,
    }
    assert read_by_client([card], Client.tasks) == [TaskCard(**card)]
    example = {"id": "1", "text": "licht an", "label": "on"}
    examples = read_by_client([example], lambda client: client.sentences("t", "de"))
    assert examples == [ExampleCard(**example, pair=None, words=[], labels=[])]


def test_what_a_newer_worker_adds_to_models_and_attention_is_ignored() -> None:
    card = {
        "name": "m",
        "summary": "",
        "embedded": True,
        "fingerprint": None,
    }
    assert read_by_client([{**card, "size": 3}], Client.models) == [ModelCard(**card)]
    head_answer = {
        "word": None,
        "on": "a",
        "p_on": 0.5,
        "off": "b",
        "p_off": 0.25,
    }
    newer_weights = {
        "tokens": [],
        "weights": {},
        "truncated": True,
        "answers": [{**head_answer, "rank": 1}],
        "layers": 12,
    }
    attention = read_by_client(
        newer_weights, lambda client: client.attention(attention_request("m", "a", []))
    )
    assert attention.answers == [Answer(**head_answer)]
