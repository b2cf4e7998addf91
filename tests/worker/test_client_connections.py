"""Kept connections between pages and worker: one that breaks takes no question with it."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from support.expected_errors import raises
from support.running_worker import evaluation, look

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


class Forgetful:
    """A server whose connections break with their second request. heads: first lines of all that it was sent."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.door = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.door.accept()
            except OSError:  # the test is over
                return
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        self.heads.append(connection.recv(65536).split(b"\r\n")[0])
        body = b"[]" if self.heads[-1].startswith(b"GET") else b"{}"
        connection.sendall(ANSWER % (len(body), body))
        self.heads.append(connection.recv(65536).split(b"\r\n")[0])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    server = Forgetful()
    yield server
    server.door.close()


@pytest.fixture
def client(forgetful: Forgetful) -> Iterator[Client]:
    client = Client(f"http://127.0.0.1:{forgetful.door.getsockname()[1]}")
    yield client
    client.close()


def test_a_question_on_a_connection_that_breaks_is_asked_again(
    forgetful: Forgetful, client: Client
) -> None:
    assert client.jobs() == []
    assert client.jobs() == []
    assert forgetful.heads[:3] == [b"GET /jobs HTTP/1.1"] * 3


def test_a_question_for_figures_is_asked_again_too(forgetful: Forgetful, client: Client) -> None:
    """A session's `evaluate` changes nothing, though it is a POST; the answer here is no figure, which is told."""
    assert client.jobs() == []
    with raises("worker.not_a_worker"):
        list(client.evaluate(evaluation("m", "intents", "de")))
    assert forgetful.heads[:3] == [b"GET /jobs HTTP/1.1", *[b"POST /evaluate HTTP/1.1"] * 2]


def test_what_changes_something_is_not_sent_twice(forgetful: Forgetful, client: Client) -> None:
    assert client.jobs() == []
    with raises("worker.unreachable"):
        client.cancel(1)
    assert forgetful.heads == [b"GET /jobs HTTP/1.1", b"POST /jobs/1/cancel HTTP/1.1"]


def test_an_error_keeps_its_code_on_the_way_and_an_older_worker_s_gets_a_general_one() -> None:
    new = error_of({"error": "no job 3", "code": "job.unknown"})
    old = error_of({"error": "no job 3"})
    assert (str(new), new.code) == ("no job 3", "job.unknown")
    assert (str(old), old.code) == ("no job 3", "worker.error")


def test_a_worker_keeps_connections_for_much_longer_than_its_clients_do() -> None:
    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        raise AssertionError("never called")

    assert CONNECTION_LIMITS.keepalive_expiry is not None
    kept = min(REQUEST_SECONDS, server_of(app).config.timeout_keep_alive)
    assert kept >= CONNECTION_LIMITS.keepalive_expiry + 5


# Answers that end early


ACCURACY = b'"language": "de", "total": 512, "accuracy": 0.5, "low": 0.4, "high": 0.6'
FIRST = b'{%s, "n": 16, "done": false}\n' % ACCURACY
LAST = b'{%s, "n": 512, "done": true}\n' % ACCURACY
NO_LENGTH = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(line: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(line), line)


class Answering:
    """A server that answers one request with the given bytes and cuts the connection.

    Args:
        reset: Not in good order.
    """

    def __init__(self, answer: bytes, *, reset: bool = False) -> None:
        self.door = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self._reset = reset
        threading.Thread(target=self._serve, daemon=True).start()

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.door.getsockname()[1]}")

    def _serve(self) -> None:
        connection, _ = self.door.accept()
        connection.recv(65536)
        connection.sendall(self._answer)
        if self._reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()
        self.door.close()


@pytest.mark.parametrize(
    "answer",
    [
        NO_LENGTH,
        NO_LENGTH + FIRST,
        NO_LENGTH + FIRST + LAST[:20],
        CHUNKED + chunk(FIRST),
        CHUNKED + chunk(FIRST) + chunk(LAST)[:20],
        CHUNKED + chunk(FIRST) + b"0\r\n\r\n",
        CHUNKED + b"0\r\n\r\n",
    ],
)
def test_reported_16_figures_that_end_before_the_last_one_are_an_error(answer: bytes) -> None:
    client = Answering(answer).client()
    with raises("worker.stopped_midway"):
        list(client.evaluate(evaluation("m", "intents", "de")))
    client.close()


def test_reported_16_a_connection_reset_between_figures_is_an_error() -> None:
    client = Answering(CHUNKED + chunk(FIRST), reset=True).client()
    with raises("worker.stopped_midway"):
        list(client.evaluate(evaluation("m", "intents", "de")))
    client.close()


@pytest.mark.parametrize(
    "answer",
    [NO_LENGTH + FIRST + LAST, CHUNKED + chunk(FIRST) + chunk(LAST), CHUNKED + chunk(LAST)],
)
def test_reported_16_a_connection_cut_after_the_last_figure_loses_nothing(answer: bytes) -> None:
    client = Answering(answer).client()
    *_, last = client.evaluate(evaluation("m", "intents", "de"))
    assert (last.n, last.done) == (512, True)
    client.close()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"error": "no room", "code": "memory.full"}\n', "memory.full"),
        (
            b'{"superseded": true, "done": false}\n',
            "worker.request_superseded",
        ),  # an older worker's
        (b"[1, 2]\n", "worker.not_a_worker"),
        (b'{"n": 3}\n', "worker.not_a_worker"),
    ],
)
def test_reported_16_a_last_line_that_is_no_figure_is_its_error(line: bytes, code: str) -> None:
    client = Answering(NO_LENGTH + line).client()
    with raises(code):
        list(client.evaluate(evaluation("m", "intents", "de")))
    client.close()


def test_reported_16_a_server_with_too_many_connections_is_asked_again_later() -> None:
    client = Answering(
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 19\r\n\r\nService Unavailable"
    ).client()
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


def answered(content: object, question: Callable[[Client], T]) -> T:
    """What the client makes of an answer."""
    body = json.dumps(content).encode()
    client = Answering(ANSWER % (len(body), body)).client()
    try:
        return question(client)
    finally:
        client.close()


def test_fields_that_a_newer_worker_adds_are_ignored() -> None:
    newer = {**ROW.model_dump(), "priority": 3}
    snapshot = {"job": newer, "scores": None, "more": 1}
    submitted = {"id": 7, "state": "queued", "queue": "fast"}
    assert answered([newer], Client.jobs) == [ROW]
    assert answered(newer, lambda client: client.cancel(7)) == ROW
    assert answered(snapshot, lambda client: client.snapshot(7)) == (ROW, None)
    assert answered(submitted, Client.submit) == Submitted(id=7, state="queued")
    assert answered({"deleted": True, "log": []}, lambda client: client.delete(7)) == Deleted()
    assert answered({"lines": ["a"], "more": False}, lambda client: client.log(7)) == ["a"]


@pytest.mark.parametrize("content", [{}, [], "text", {**ROW.model_dump(), "state": "lost"}])
def test_an_answer_that_is_no_job_is_not_a_workers(content: object) -> None:
    with raises("worker.not_a_worker"):
        answered(content, lambda client: client.job(7))
    with raises("worker.not_a_worker"):
        answered({"job": content}, lambda client: client.snapshot(7))


OF_FIRST_VERSION = {
    "name": "m",
    "revision": "r",
    "fingerprint": "f",
    "grid": {"decoder": [2], "encoder": [4, 4]},
    "device": "cpu",
    "note": "",
}
COSTS = Costs(9, (0, 1, 2), (LayerCost(0, 4, 2, 3, 2, 1),), "why not")


def test_a_model_s_heads_and_costs_arrive_as_the_classes_that_they_are() -> None:
    described = {**OF_FIRST_VERSION, "costs": COSTS.to_json(), "colour": "red"}
    model = answered(described, lambda client: client.model("m"))
    assert model.grid == HeadGrid((Stack("encoder", (4, 4)), Stack("decoder", (2,))))
    assert model.costs == COSTS
    assert model.identity == {"name": "m", "revision": "r", "fingerprint": "f"}
    sent = LoadedModel(**{**OF_FIRST_VERSION, "costs": COSTS}).model_dump_json()
    assert json.loads(sent)["costs"] == COSTS.to_json()
    assert json.loads(sent)["grid"] == {"encoder": [4, 4], "decoder": [2]}
    with raises("costs.malformed"):
        answered({**described, "costs": {"parameters": 1}}, lambda client: client.model("m"))


def test_answers_of_older_workers_are_read() -> None:
    """They say neither what heads cost, nor which tokens are special, nor how to get a task's examples."""
    model = answered(OF_FIRST_VERSION, lambda client: client.model("m"))
    assert (model.costs, model.projections, model.former_fingerprints) == (None, [], [])
    weights = {"tokens": ["a"], "weights": {"encoder.0.0": [[1.0]]}, "truncated": False}
    seen = answered(weights, lambda client: client.attention(look("m", "a", [["encoder", 0, 0]])))
    assert (seen.weights, seen.special, seen.answers) == ({"encoder.0.0": [[1.0]]}, [], [])
    card = {"name": "t", "labels": ["a"], "languages": ["de"], "aligned": True}
    assert answered([card], Client.tasks) == [TaskCard(**card)]
    example = {"id": "1", "text": "licht an", "label": "on"}
    examples = answered([example], lambda client: client.sentences("t", "de"))
    assert examples == [ExampleCard(**example, pair=None, words=[], labels=[])]


def test_what_a_newer_worker_adds_to_models_and_attention_is_ignored() -> None:
    card = {"name": "m", "summary": "", "embedded": True, "fingerprint": None}
    assert answered([{**card, "size": 3}], Client.models) == [ModelCard(**card)]
    answer = {"word": None, "on": "a", "p_on": 0.5, "off": "b", "p_off": 0.25}
    weights = {
        "tokens": [],
        "weights": {},
        "truncated": True,
        "answers": [{**answer, "rank": 1}],
        "layers": 12,
    }
    seen = answered(weights, lambda client: client.attention(look("m", "a", [])))
    assert seen.answers == [Answer(**answer)]
