"""HTTP requests that the worker answers, with one thing wrong.

Every route, every schema and every kind of job, on a model of six heads. What is wrong is drawn from
the seed: a field, the body's text, the method, the path, the query or a header. In process the
requests go through the worker's ASGI application with its real engine; for real, as bytes over a
socket to a worker process.

A job that is accepted is waited for a moment: it counts as a traceback if it fails with anything
but a sentence, and is cancelled if it would take longer, so that nothing goes on computing. It ends
at its next batch, which a later request makes sure of: a job that goes on for `LATE_SECONDS` after
that is a hang.
"""

from __future__ import annotations

import asyncio
import copy
import http.client
import json
import os
import random
import secrets
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import huggingface_hub.constants
from support.fuzzing import ODD_VALUES

from bad_inputs.case import Answer, BadInput, Verdict
from bad_inputs.command_lines import NUMBERS, OTHERWISE, TEXTS
from bad_inputs.commands import BYTES_OF_OTHER_KINDS, write_files
from headlab.results import Store
from headlab.worker.engine import Engine
from headlab.worker.jobs import JobList
from headlab.worker.model_host import ModelHost
from headlab.worker.process import TOKEN_VARIABLE, LocalWorker, start_local
from headlab.worker.server import create_app

MODEL = "model"
ON_TASK = {"model": MODEL, "task": "intents"}
IN_GERMAN = {**ON_TASK, "language": "de", "size": 6}
TO_SCORE = {**ON_TASK, "languages": ["de"], "seed": 1}
JOB_SECONDS = 0.7
CANCELLED_SECONDS = 3.0
LATE_SECONDS = 60.0
WORKER_FAILED = "worker.failed"
ENDED_STATES = ("done", "failed", "cancelled")
JSON = (b"content-type", b"application/json")
OTHER_BYTES = tuple(BYTES_OF_OTHER_KINDS.values())


@dataclass(frozen=True)
class Request:
    """A request to the worker.

    Attributes:
        method: Of HTTP.
        target: Path and query, percent-encoded.
        body: As bytes.
        headers: Besides host, content-length and authorization.
        length: Content-Length as sent, None for the body's own.
        host: The header of that name.
    """

    method: str
    target: str
    body: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = (JSON,)
    length: bytes | None = None
    host: bytes = b"127.0.0.1"

    @property
    def sent_headers(self) -> list[tuple[bytes, bytes]]:
        """All headers except the token."""
        length = str(len(self.body)).encode() if self.length is None else self.length
        return [(b"host", self.host), *self.headers, (b"content-length", length)]

    @property
    def breaks_off(self) -> bool:
        """Whether fewer bytes are sent than announced."""
        announced_length = self.length or b""
        return (
            announced_length.isdigit()
            and len(announced_length) < 20
            and int(announced_length) > len(self.body)
        )

    @property
    def content(self) -> bytes:
        """All of it as bytes."""
        lines = [f"{self.method} {self.target}".encode("utf-8", "surrogatepass")]
        lines += [name + b": " + value for name, value in self.sent_headers]
        return b"\r\n".join([*lines, b"", self.body])


@dataclass(frozen=True)
class Base:
    """A request that the worker answers, its body still as a value.

    Attributes:
        method: Of HTTP.
        path: Of the route.
        body: JSON, None for no body.
    """

    method: str
    path: str
    body: Any = None

    def request(self) -> Request:
        """The request with nothing wrong."""
        return Request(self.method, self.path, b"" if self.body is None else _json(self.body))


def _json(value: Any) -> bytes:
    """JSON as bytes; half of a surrogate pair becomes its escape, and NaN the word."""
    return json.dumps(value).encode()


def job_specs(mask: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A small spec of every kind of job.

    Args:
        mask: Of the tiny model, as in a mask file.
    """
    scored_subject = {**TO_SCORE, "method": "leave-one-out"}
    sizes = {"dev_size": 6, "test_size": 6}
    return {
        "score": {**TO_SCORE, "size": 6, "method": "shapley", "options": {"samples": 8}},
        "curve": {**TO_SCORE, "size": 6, "method": "random", "points": 3, "split": "test"},
        "experiment": {
            **scored_subject,
            **sizes,
            "experiment": "targeted",
            "options": {"k": 1, "runs": 20},
        },
        "front": {**TO_SCORE, **sizes, "method": "random", "options": {"points": 3}},
        "interactions": {
            **TO_SCORE,
            "dev_size": 6,
            "options": {"heads": "0.0,1.1", "samples": 4},
        },
        "roles": {**ON_TASK, "languages": ["de"], "source": "task", "size": 6, "options": {}},
        "gates": {**TO_SCORE, "weights": [0.1], "options": {"steps": 2}},
        "worth": {**TO_SCORE, "mask": dict(mask), "batch_sizes": [1], "rounds": 6},
        "finetune": {"task": "intents", "steps": 1, "learning_rate": 0.001, "seed": 0},
    }


def mask_of_layers(mask: Mapping[str, Any]) -> dict[str, Any]:
    """A mask that switches the last layer off, made of one of heads.

    Args:
        mask: Of the tiny model, as in a mask file.
    """
    layers = len(mask["grid"]["encoder"])
    kept = [[1]] * (layers - 1) + [[0]]
    return {
        **mask,
        "version": 3,
        "grid": {"encoder-layers": [1] * layers},
        "kept": {"encoder-layers": kept},
        "removed": 1,
        "chosen": {},
    }


def bases(folder: Path) -> list[Base]:
    """Requests to every route.

    Args:
        folder: Where `mask.json` is.
    """
    mask = json.loads((folder / "mask.json").read_text(encoding="utf-8"))
    rows = b64encode(b"review,stars\ngood,1\nbad,0\nfine,1\npoor,0\n").decode()
    task = {
        "name": "sent",
        "format": "csv",
        "columns": {"text": "review", "label": "stars"},
        "sent": [{"name": "a.csv", "data": rows, "language": "de", "split": "dev"}],
        "splits": {},
        "aligned": False,
        "share": None,
    }
    heads = [["encoder", 0, 1], ["encoder", 1, 2]]
    paths = ("/health", "/models", "/tasks", "/jobs", "/docs", "/openapi.json")
    requests = [Base("GET", path) for path in paths]
    requests += [Base("GET", f"/jobs/1{part}") for part in ("", "/snapshot", "/log")]
    requests += [
        Base("DELETE", "/jobs/2"),
        Base("POST", "/jobs/1/cancel"),
        Base("POST", "/jobs/1/resume"),
    ]
    requests += [
        Base("POST", "/model", {"model": MODEL}),
        Base("POST", "/check", {**ON_TASK, "label_map": {"turn_on": "0", "turn_off": "1"}}),
        Base("POST", "/sentences", {"task": "intents", "language": "de", "split": "dev", "n": 3}),
        Base(
            "POST",
            "/attention",
            {**ON_TASK, "text": "Licht an", "heads": heads, "pair": None, "maps": True},
        ),
        Base(
            "POST",
            "/attention",
            {"model": MODEL, "text": "a b", "heads": heads, "words": ["a", "b"]},
        ),
        Base(
            "POST", "/evaluate", {**IN_GERMAN, "split": "dev", "ablation": "zero", "session": "me"}
        ),
        Base("POST", "/evaluate", {**IN_GERMAN, "mask": mask}),
        Base("POST", "/evaluate", {**IN_GERMAN, "mask": mask_of_layers(mask)}),
        Base("POST", "/changes", {**IN_GERMAN, "mask": mask, "ablation": "mean"}),
        Base("POST", "/gradient", {**IN_GERMAN, "form": "token", "normalise": True}),
        Base("POST", "/tasks", task),
    ]
    of_players = {**TO_SCORE, "size": 6, "method": "leave-one-out", "players": "heads,neurons:2"}
    submission = {"kind": "score", "spec": of_players, "place": "here"}
    requests += [Base("POST", "/jobs", submission), Base("POST", "/forecast", submission)]
    for kind, spec in job_specs(mask).items():
        submission = {"kind": kind, "spec": spec, "place": "here"}
        # Fine-tuning reads the embedded base before its first step, and cannot be cancelled meanwhile.
        times = 1 if kind == "finetune" else 3
        requests += [Base("POST", "/jobs", submission)] * times
        requests += [Base("POST", "/forecast", submission)]
    return requests


# What can be wrong with a request.


def _items_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every item inside a JSON value: the object or list that it is in, and its name or number."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for name, part in items:
        yield value, name
        yield from _items_in(part)


def _odd_value(rng: random.Random) -> Any:
    """A value that fits no field, or only just."""
    table = rng.choice((ODD_VALUES, ODD_VALUES, TEXTS, NUMBERS))
    return copy.deepcopy(rng.choice(table))


# What is wrong, and the request.
Wrong = tuple[str, Request]
# A way to spoil a request.
Way = Callable[[random.Random, Base], Wrong]


def wrong_field(rng: random.Random, base: Base) -> Wrong:
    """One field of the body has an odd value."""
    if base.body is None:
        return wrong_target(rng, base)
    body = copy.deepcopy(base.body)
    holder, name = rng.choice(list(_items_in(body)))
    holder[name] = _odd_value(rng)
    return f"{name} is {str(holder[name])[:40]!r}", replace(base.request(), body=_json(body))


def no_field(rng: random.Random, base: Base) -> Wrong:
    """One field is missing."""
    if base.body is None:
        return wrong_target(rng, base)
    body = copy.deepcopy(base.body)
    holder, name = rng.choice(list(_items_in(body)))
    del holder[name]
    return f"without {name}", replace(base.request(), body=_json(body))


def more_fields(rng: random.Random, base: Base) -> Wrong:
    """There are more fields than there should be, or more items in a list."""
    if base.body is None:
        return wrong_target(rng, base)
    body = copy.deepcopy(base.body)
    parts = [body]
    for part, name in _items_in(body):
        parts.append(part[name])
    holder = rng.choice(parts)
    value = _odd_value(rng)
    if isinstance(holder, dict):
        name = rng.choice(
            ("more", "model", "seed", "size", "samples", "batch_size", "steps", *TEXTS[:60])
        )
        holder[name] = value
        wrong = f"more: {name[:40]!r} is {str(value)[:40]!r}"
    elif isinstance(holder, list):
        count = rng.choice((1, 1, 60, 3000))
        added_items = [value] if rng.random() < 0.5 else copy.deepcopy(holder[:1])
        holder += added_items * count
        wrong = f"{count} items more in a list"
    else:
        body = [body]
        wrong = "the body in a list"
    return wrong, replace(base.request(), body=_json(body))


def name_twice(rng: random.Random, base: Base) -> Wrong:
    """A field is there twice."""
    if base.body is None:
        return wrong_header(rng, base)
    name = rng.choice(list(base.body))
    second_field = f"{json.dumps(name)}: {json.dumps(_odd_value(rng))}".encode()
    body = _json(base.body)
    if rng.random() < 0.5:
        body = b"{" + second_field + b", " + body[1:]
    else:
        body = body[:-1] + b", " + second_field + b"}"
    return f"{name} twice", replace(base.request(), body=body)


def wrong_text(rng: random.Random, base: Base) -> Wrong:
    """The body is not the JSON that it should be."""
    body = _json(base.body if base.body is not None else {"a": 1})
    position = rng.randrange(len(body))
    many_fields = b"".join(b', "n%d": 1' % number for number in range(5000))
    kinds: Mapping[str, bytes] = {
        "cut off": body[:position],
        "with a zero byte": body[:position] + b"\0" + body[position:],
        "with a byte that is no UTF-8": body[:position] + b"\xff" + body[position:],
        "with a letter doubled": body[:position] + body[position : position + 1] + body[position:],
        "with more behind it": body + rng.choice((b"}", b"{}", b"\0", b"x")),
        "in UTF-16": body.decode().encode("utf-16"),
        "in UTF-32": body.decode().encode("utf-32"),
        "with a byte-order mark": b"\xef\xbb\xbf" + body,
        "of another kind": rng.choice(OTHER_BYTES),
        "as a form": b"model=model&task=intents",
        "too large": body[:-1] + b" " * (1 << 20) + body[-1:],
        "deep": body[:-1] + b', "mask": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
        "very deep": body[:-1] + b', "options": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "with many names": body[:-1] + many_fields + b"}",
    }
    kind = rng.choice(list(kinds))
    return f"the body is {kind} ({position})", replace(base.request(), body=kinds[kind])


def wrong_header(rng: random.Random, base: Base) -> Wrong:
    """A header is odd, missing or there twice."""
    request = base.request()
    body = rng.choice((request.body, b"{}", b""))
    length = str(len(body))
    odd_text = rng.choice([text for text in TEXTS + NUMBERS if text.isprintable()])
    odd = odd_text.encode("utf-8", "replace")[:4000]
    choice = rng.randrange(6)
    if choice == 0:
        types = (
            b"",
            b"text/plain",
            b"application/x-www-form-urlencoded",
            b"multipart/form-data; boundary=x",
            b"application/json; charset=utf-16",
            b"application/json; charset=nothing",
            b"multipart/form-data",
            odd,
        )
        value = rng.choice(types)
        headers = ((b"content-type", value),)
        return f"content-type {value[:40]!r}", replace(request, body=body, headers=headers)
    if choice == 1:
        lengths = (
            b"-1",
            b"",
            b"x",
            b"1e3",
            b"+5",
            b"0",
            b"1",
            b"9" * 30,
            f"{length},{length}".encode(),
            str(len(body) + 7).encode(),
            str(2 << 20).encode(),
            odd,
        )
        value = rng.choice(lengths)
        return f"content-length {value[:40]!r}", replace(request, body=body, length=value)
    if choice == 2:
        return f"host {odd[:40]!r}", replace(request, body=body, host=odd)
    names = (
        b"origin",
        b"accept",
        b"accept-encoding",
        b"cookie",
        b"range",
        b"expect",
        b"connection",
        b"x-forwarded-for",
        b"x-http-method-override",
        b"if-none-match",
        b"transfer-encoding",
        b"content-encoding",
        b"upgrade",
        b"x" * 300,
        b"referer",
        b"forwarded",
        b"te",
        b"user-agent",
    )
    added_headers = ((rng.choice(names), odd),) * rng.choice((1, 1, 2, 100))
    wrong = f"{len(added_headers)} times {added_headers[0][0][:40].decode()}: {odd[:40]!r}"
    return wrong, replace(request, headers=(*request.headers, *added_headers))


def wrong_method(rng: random.Random, base: Base) -> Wrong:
    """The method is one that the route does not have."""
    methods = (
        "GET",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "HEAD",
        "OPTIONS",
        "TRACE",
        "CONNECT",
        "get",
        "X",
        "G" * 300,
        "POST_",
    )
    method = rng.choice([name for name in methods if name != base.method])
    return f"method {method[:20]}", replace(base.request(), method=method)


def wrong_target(rng: random.Random, base: Base) -> Wrong:
    """The path or the query is odd."""
    value = rng.choice(TEXTS + NUMBERS)
    quoted = quote(value.encode("utf-8", "surrogatepass"), safe="/" if rng.random() < 0.5 else "")
    shapes = (
        f"/jobs/{quoted}",
        f"/jobs/{quoted}/log",
        f"/jobs/{quoted}/snapshot",
        f"{base.path}?{quoted}",
        f"{base.path}?model={quoted}&model={quoted}",
        f"{base.path}/{quoted}",
        f"{base.path}/",
        f"/{quoted}{base.path}",
        f"{base.path}%00",
        f"{base.path};{quoted}",
        f"{base.path}?{'a=1&' * 500}",
        f"/{base.path}",
        f"/%2e%2e{base.path}",
        f"{base.path}#{quoted}",
        f"{base.path}%ff",
        f"{base.path}?%ff={quoted}",
    )
    target = rng.choice(shapes)
    return f"target {target[:60]}", replace(base.request(), target=target)


# The ways to spoil a request, and how often each is drawn.
WAYS: Mapping[Way, int] = {
    wrong_field: 12,
    no_field: 2,
    more_fields: 4,
    name_twice: 2,
    wrong_text: 3,
    wrong_header: 3,
    wrong_method: 1,
    wrong_target: 3,
}


# Where requests go.


@dataclass(frozen=True)
class Response:
    """An answer of the worker.

    Attributes:
        status: Of HTTP; 0 for a connection that was closed without an answer.
        body: As bytes.
    """

    status: int
    body: bytes


class RunningWorker:
    """A worker that answers requests.

    Attributes:
        unended: {id: when it was cancelled} of jobs that had not ended when last looked at.
    """

    def __init__(self) -> None:
        self.unended: dict[int, float] = {}

    def answer(self, request: Request) -> Response:
        """Send a request, and wait for the whole answer."""
        raise NotImplementedError

    def job(self, number: int) -> Any:
        """A job as the worker describes it; None if there is no such job any more."""
        job_fields = _json_or_none(self.answer(Request("GET", f"/jobs/{number}", headers=())).body)
        return job_fields if "state" in job_fields else None


class Application(RunningWorker):
    """The worker's ASGI application in this process, with its real engine and device thread."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        cache.mkdir()
        jobs = JobList(cache / "jobs.db")
        engine = Engine(lambda: ModelHost(cache, "cpu"), jobs, Store(cache))
        self._application = create_app(engine, state=".worker")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="application", daemon=True).start()
        engine.start()
        while engine.device is None:
            if engine.trouble is not None:
                raise RuntimeError("the device could not be set up") from engine.trouble
            time.sleep(0.05)

    def answer(self, request: Request) -> Response:
        """Send a request, and wait for the whole answer; raise what the application raises."""
        future = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        return future.result()

    async def _answer(self, request: Request) -> Response:
        path, _, query = request.target.partition("#")[0].partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": request.sent_headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8700),
            "state": {},
        }
        events = [{"type": "http.request", "body": request.body, "more_body": request.breaks_off}]
        status = 0
        parts = []
        forever = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if events:
                return events.pop(0)
            if not request.breaks_off:
                # The client stays until it has the whole answer.
                await forever.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._application(scope, receive, send)
        return Response(status, b"".join(parts))


class Process(RunningWorker):
    """A worker process, reached over a socket."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self._token = secrets.token_urlsafe(32)
        os.environ[TOKEN_VARIABLE] = self._token
        self._worker: LocalWorker = start_local(cache)

    def answer(self, request: Request) -> Response:
        """Send a request as bytes, and read the answer."""
        host, port = self._worker.url.removeprefix("http://").split(":")
        head = [f"{request.method} {request.target} HTTP/1.1".encode("utf-8", "surrogatepass")]
        headers = [
            *request.sent_headers,
            (b"authorization", f"Bearer {self._token}".encode()),
            (b"connection", b"close"),
        ]
        head += [name + b": " + value for name, value in headers]
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            try:
                connection.sendall(b"\r\n".join([*head, b"", request.body]))
                if request.breaks_off:
                    connection.shutdown(socket.SHUT_WR)
                return _response(connection, request.method)
            except (ConnectionError, http.client.RemoteDisconnected):
                return Response(0, b"")


def _response(connection: socket.socket, method: str) -> Response:
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    try:
        return Response(response.status, response.read())
    except http.client.IncompleteRead as error:
        return Response(response.status, error.partial)


# What the answers mean.


def judge(worker: RunningWorker, request: Request) -> Answer:
    """Send a request, say what came of it, and end what it started."""
    late_numbers = late_jobs(worker)
    if late_numbers:
        words = f"jobs {late_numbers} go on {LATE_SECONDS:g} s after they were cancelled"
        return Answer(Verdict.HANG, words)
    response = worker.answer(request)
    answer = answer_of_response(request, response)
    if answer.verdict != Verdict.ACCEPTED or request.method not in ("POST", "PUT"):
        return answer
    job_fields = _json_or_none(response.body)
    if (
        isinstance(job_fields, dict)
        and isinstance(job_fields.get("id"), int)
        and "state" in job_fields
    ):
        return answer_of_job(worker, job_fields["id"])
    return answer


def answer_of_response(request: Request, response: Response) -> Answer:
    """What a response says about its request, apart from what becomes of a job."""
    words = response.body[:2000].decode("utf-8", "replace")
    if response.status == 0:
        return Answer(Verdict.REFUSED, "the connection was closed")
    problem = _json_or_none(response.body)
    code = problem.get("code") if isinstance(problem, dict) else None
    says_failed = code == WORKER_FAILED or f'"code": "{WORKER_FAILED}"' in words
    if response.status == 500 or says_failed:
        return Answer(Verdict.HTTP_500, words)
    if response.status < 300:
        return Answer(Verdict.ACCEPTED, words)
    in_words = bool(words.strip()) or request.method == "HEAD" or response.status < 400
    return Answer(Verdict.REFUSED if in_words else Verdict.TRACEBACK, f"{response.status} {words}")


def _json_or_none(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def answer_of_job(worker: RunningWorker, number: int) -> Answer:
    """Wait a moment for a job, then cancel it and wait a little longer."""
    began = time.monotonic()
    job = worker.job(number)
    while job["state"] not in ENDED_STATES and time.monotonic() - began < JOB_SECONDS:
        time.sleep(0.02)
        job = worker.job(number)
    if job["state"] not in ENDED_STATES:
        worker.answer(Request("POST", f"/jobs/{number}/cancel", headers=()))
        worker.unended[number] = time.monotonic()
    while job["state"] not in ENDED_STATES and time.monotonic() - began < CANCELLED_SECONDS:
        time.sleep(0.02)
        job = worker.job(number)
    if job["state"] == "failed" and "the worker failed (" in str(job["error"]):
        return Answer(Verdict.TRACEBACK, f"job {number}, {job['kind']}: {job['error']}")
    return Answer(Verdict.ACCEPTED, f"job {number} {job['state']}: {job['error'] or job['note']}")


def late_jobs(worker: RunningWorker) -> list[int]:
    """The jobs that were cancelled long ago and have not ended; those that have are forgotten."""
    for number in list(worker.unended):
        job = worker.job(number)
        if job is None or job["state"] in ENDED_STATES:
            del worker.unended[number]
    deadline = time.monotonic() - LATE_SECONDS
    return [number for number, cancelled_at in worker.unended.items() if cancelled_at < deadline]


class Workers:
    """The application and the worker process, each started when a request needs it first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.application = Application(folder / "in-process")
        self._process: Process | None = None

    def process(self) -> Process:
        """The worker process."""
        if self._process is None:
            self._process = Process(self._folder / "over-a-socket")
        return self._process


def inputs(folder: Path, seed: int) -> Iterator[BadInput]:
    """Yield requests without end; see `case.py`.

    Args:
        folder: The working directory.
        seed: What is drawn.
    """
    os.environ.update(OTHERWISE)
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    write_files(folder)
    rng = random.Random(seed)
    valid = bases(folder)
    workers = Workers(folder)
    while True:
        base = rng.choice(valid)
        (way,) = rng.choices(list(WAYS), list(WAYS.values()))
        wrong, request = way(rng, base)
        kind = f" {base.body['kind']}" if base.body and "kind" in base.body else ""
        title = f"{base.method} {base.path}{kind}: {wrong}"
        yield BadInput(
            wrong=title.encode("utf-8", "backslashreplace").decode(),
            content=request.content,
            attempt=partial(judge, workers.application, request),
            attempt_for_real=partial(attempt_for_real, workers, request),
        )


def attempt_for_real(workers: Workers, request: Request) -> Answer:
    """Send a request to the worker process."""
    return judge(workers.process(), request)
