"""Who may come in, and with what: tokens, hosts, models, slow and strange requests; what leaves and what is logged."""

from __future__ import annotations

import ast
import html
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import httpx
import pytest
import uvicorn
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support import running_worker
from support.expected_errors import raises
from support.fake_worker import MODEL, FakeBench
from support.running_worker import Running, evaluation, look, running
from support.waiting import until

from headlab.jobs import Refusal
from headlab.worker import middleware
from headlab.worker.__main__ import main
from headlab.worker.apidocs import html_page, markdown
from headlab.worker.middleware import (
    MODELS_VARIABLE,
    AllowedModels,
    admit_local,
    embedded_names,
    named_models,
)
from headlab.worker.process import TOKEN_VARIABLE, LocalWorker, RemoteWorker
from headlab.worker.server import WorkerSettings, open_entrance, server_of

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

import api_docs  # noqa: E402 - found there

FAKE = (sys.executable, str(Path(__file__).parents[1] / "support" / "fake_worker.py"))
TOKEN = "a-token-of-some-length"
WEAK = {
    "   ": "token.characters_invalid",
    "short": "token.too_weak",
    "a" * 40: "token.too_weak",
    "fifteen-letters": "token.too_weak",
    "with a space inside it": "token.characters_invalid",
    "straße-straße-straße": "token.characters_invalid",
    "line\nbreak-line\nbreak": "token.characters_invalid",
}
ENDING_SECONDS = 60.0  # a limit, not a wait
SECRET = "turn off the secret lamp"
BODIED = [
    path
    for path, ways in api_docs.description()["paths"].items()
    if "requestBody" in ways.get("post", {})
]
OURS = "e5-small-intents"


@pytest.fixture(autouse=True)
def no_settings_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TOKEN_VARIABLE, MODELS_VARIABLE, "HEADLAB_WORKER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("worker")
    with running(folder, lambda: FakeBench(folder, 0.001)) as run:
        yield run


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A worker as others would reach it: a token, and the embedded models only."""
    folder = tmp_path_factory.mktemp("locked")
    with running(
        folder, lambda: FakeBench(folder, 0.001), token=TOKEN, admit=AllowedModels()
    ) as run:
        yield run


def example(schema: dict[str, Any], every: dict[str, Any]) -> Any:
    """A value that fits a schema, or nearly: enough to get past the types."""
    if "$ref" in schema:
        return example(every[schema["$ref"].rpartition("/")[2]], every)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return example(schema[choice][0], every)
    if "default" in schema or "const" in schema or "enum" in schema:
        return schema.get("default", schema.get("const", schema.get("enum", [None])[0]))
    if schema.get("type") == "object":
        return {
            name: example(schema["properties"][name], every) for name in schema.get("required", ())
        }
    if "prefixItems" in schema:
        return [example(one, every) for one in schema["prefixItems"]]
    if schema.get("type") == "array":
        return [example(schema.get("items", {}), every)]
    return {"string": "de", "integer": 1, "number": 1.0, "boolean": True}.get(
        schema.get("type", ""), {}
    )


# The token


@pytest.mark.parametrize("token", WEAK)
def test_a_weak_token_is_refused_at_start_and_not_repeated(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    for host in ("127.0.0.1", "0.0.0.0"):
        assert main(["--host", host, "--port", "0", "--cache", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert "HEADLAB_TOKEN" in said
        assert "secrets.token_urlsafe(32)" in said
        assert token.strip() == "" or token not in said
    for make in (
        lambda: LocalWorker(tmp_path, command=FAKE),
        lambda: RemoteWorker("http://127.0.0.1:9"),
    ):
        with raises(WEAK[token], "HEADLAB_TOKEN"):
            make()


@pytest.mark.parametrize("token", [None, ""])
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_this_machine_a_token_is_required(
    host: str, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if token is not None:
        monkeypatch.setenv(TOKEN_VARIABLE, token)
    with raises("worker.token_missing", host):
        open_entrance(WorkerSettings(Path(), host=host, port=0))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "::1"])
def test_a_worker_on_loopback_needs_no_token(host: str) -> None:
    entrance = open_entrance(WorkerSettings(Path(), host=host, port=0))
    entrance.listener.close()
    assert entrance.token is None
    assert entrance.admit is admit_local
    assert httpx.URL(entrance.url).host == host
    name = f"[{host}]" if ":" in host else host
    assert entrance.url.startswith(f"http://{name}:")
    assert name in entrance.hosts
    assert "*" not in entrance.hosts


def test_the_address_that_was_taken_decides_not_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the hosts file can give `localhost` an address that others reach."""
    real = socket.create_server
    monkeypatch.setattr(
        socket, "create_server", lambda address, **options: real(("0.0.0.0", 0), backlog=1)
    )
    with raises("worker.token_missing", "localhost"):
        open_entrance(WorkerSettings(Path(), host="localhost", port=0))


def test_an_open_worker_asks_for_the_token_and_serves_what_its_owner_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(MODELS_VARIABLE, "some/model, other/model")
    entrance = open_entrance(
        WorkerSettings(tmp_path, host="0.0.0.0", port=0, warm="warm/model", allow=("third/model",))
    )
    entrance.listener.close()
    assert entrance.token == TOKEN
    for name in ("some/model", "other/model", "third/model", "warm/model", OURS):
        assert entrance.admit(name) == name
    with raises("model.not_allowed", "'fourth/model'", kind=Refusal):
        entrance.admit("fourth/model")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", ("worker.port_unusable", "no address")),
        ("192.0.2.1", ("worker.port_unusable", "--host")),
        ("no.such.invalid", ("worker.port_unusable", "--host")),
    ],
)
def test_an_address_that_cannot_be_taken_is_a_sentence(
    host: str, expected: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with raises(*expected):
        open_entrance(WorkerSettings(Path(), host=host, port=0))


def test_the_check_of_the_token_takes_the_same_time_wherever_it_differs() -> None:
    """`hmac.compare_digest`, and no comparison of the token beside it."""
    tree = ast.parse((ROOT / "headlab/worker/middleware.py").read_text(encoding="utf-8"))
    assert "hmac.compare_digest" in ast.unparse(tree)
    compared = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    assert [text for text in compared if "_token" in text] == ["self._token is None"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        TOKEN,
        f"Basic {TOKEN}",
        f"bearer {TOKEN}",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        "Bearer Ünïcödé",
    ],
)
def test_a_wrong_token_opens_nothing(locked: Running, given: str) -> None:
    for path in (
        "/models",
        "/jobs",
        "/docs",
        "/openapi.json",
        "/nothing",
        "//health",
        "/health/",
        "/HEALTH",
    ):
        answer = httpx.get(
            f"{locked.url}{path}", headers={"authorization": given.replace("TOKEN", TOKEN).encode()}
        )
        assert answer.status_code == 401
        assert answer.json().keys() == {"error", "code"}
        assert answer.json()["code"] == "token.wrong"
    assert httpx.get(f"{locked.url}/health").json()["ok"]


def test_an_app_s_own_worker_is_closed_to_other_users_of_the_machine(tmp_path: Path) -> None:
    local = LocalWorker(tmp_path, command=FAKE)
    try:
        assert local.client().model(MODEL).name == MODEL
        assert httpx.get(f"{local.url}/models").status_code == 401
        assert httpx.get(f"{local.url}/health").status_code == 200
    finally:
        local.stop()


# Models


def test_models_are_compared_letter_by_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "yours"):
        (tmp_path / name).mkdir()
    allowed = AllowedModels([str(tmp_path / "mine"), "./yours", "someone/model"])
    for name in (str(tmp_path / "mine"), "./yours", "someone/model", OURS):
        assert allowed(name) == name
    for name in (
        f"{tmp_path}/mine/",
        f"{tmp_path}/mine/.",
        f"{tmp_path}/mine/../mine",
        f"{tmp_path}/mine/../yours",
        f"{tmp_path}//mine",
        "mine",
        "yours",
        "./mine",
        str(tmp_path),
        "..",
        ".",
        "/",
        "/etc",
        "~",
        "someone/model/",
        "Someone/model",
        "someone/model@main",
        " someone/model",
        "someone／model",
        "someone/modеl",
        f"{OURS}/",
        f"{OURS}\x00",
        "",
        "\x00",
        "a" * 100_000,
        "../" * 5000,
        "\ud800",
    ):
        with raises("model.not_allowed", kind=Refusal) as caught:
            allowed(name)
        assert caught.value.status == 404


def test_the_embedded_models_are_known_without_torch() -> None:
    from headlab.models.embedded import EMBEDDED

    assert set(embedded_names()) == set(EMBEDDED)
    code = "import sys, headlab.worker.middleware as a; a.AllowedModels()('e5-small-intents'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_folder_that_leads_elsewhere_later_is_refused(tmp_path: Path) -> None:
    for name in ("mine", "yours"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "mine")
    allowed = AllowedModels([str(link)])
    assert allowed(str(link)) == str(link)
    link.unlink()
    with raises("model.moved", kind=Refusal):
        allowed(str(link))
    link.symlink_to(tmp_path / "yours")
    with raises("model.moved", kind=Refusal):
        allowed(str(link))


def test_a_folder_made_later_does_not_take_the_place_of_a_hub_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    allowed = AllowedModels(["someone/model"])
    assert allowed("someone/model")
    (tmp_path / "someone" / "model").mkdir(parents=True)
    with raises("model.moved", kind=Refusal):
        allowed("someone/model")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("/no/such/folder", "model.folder_missing"),
        ("~/model", "model.folder_missing"),
        ("../nothing-there", "model.folder_missing"),
        ("a\nb", "model.name_invalid"),
        ("a" * 301, "model.name_invalid"),
    ],
)
def test_a_model_that_nobody_could_ask_for_is_refused_at_start(name: str, code: str) -> None:
    with raises(code):
        AllowedModels([name])


def test_the_models_of_option_and_environment_are_taken_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MODELS_VARIABLE, " a/b ,, c/d,a/b")
    assert named_models(("e/f", "c/d")) == ("e/f", "c/d", "a/b")
    monkeypatch.delenv(MODELS_VARIABLE)
    assert named_models() == ()


def test_every_route_that_names_a_model_asks_whether_it_may(locked: Running) -> None:
    spec = api_docs.description()
    asked = []
    every = spec["components"]["schemas"]
    for path in BODIED:
        body = example(
            spec["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"],
            every,
        )
        inner = body.get("spec", body)
        if "model" not in inner:
            continue
        asked.append(path)
        for name in ("/etc", "..", "someone/else"):
            inner["model"] = name
            answer = httpx.post(
                f"{locked.url}{path}", json=body, headers={"authorization": f"Bearer {TOKEN}"}
            )
            assert (answer.status_code, path) == (404, path), answer.text
            assert (
                f"serves {', '.join(embedded_names())} only, not {name!r}" in answer.json()["error"]
            )
    assert set(asked) >= {"/model", "/attention", "/evaluate", "/jobs"}
    assert locked.jobs.list() == []


def test_a_job_of_a_model_that_is_not_allowed_is_not_resumed(tmp_path: Path) -> None:
    """It may stand in the list from a time when the worker was on loopback."""
    with running(
        tmp_path, lambda: FakeBench(tmp_path, 0.5), token=TOKEN, admit=AllowedModels()
    ) as run:
        job = run.jobs.submit(
            "score", {"model": "/etc", "seed": 1}
        ).id  # twenty seconds' work: it is not over before
        run.jobs.cancel(job)
        until(lambda: run.jobs.get(job).state == "cancelled")  # at its next batch, if it has begun
        answer = httpx.post(
            f"{run.url}/jobs/{job}/resume", headers={"authorization": f"Bearer {TOKEN}"}
        )
        assert answer.status_code == 404
        assert run.jobs.get(job).state == "cancelled"


# Hosts, origins, headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8700", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]", 200),
        ("[::1]:8700", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost.evil.example", 400),
        ("evil@127.0.0.1", 400),
        ("127.0.0.1:80:80", 400),
        ("::1", 400),
        ("[::1", 400),
        ("[::2]", 400),
        ("", 400),
        ("127.0.0.1/", 400),
        ("localhost:port", 400),
    ],
)
def test_only_names_of_this_machine_are_answered(worker: Running, host: str, status: int) -> None:
    assert httpx.get(f"{worker.url}/tasks", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://localhost:8700", "localhost:8700", 200),
        ("http://[::1]:8700", "[::1]:8700", 200),
        ("https://127.0.0.1", "127.0.0.1", 200),
        ("http://localhost:8701", "localhost:8700", 403),
        ("http://localhost", "localhost:8700", 403),
        ("null", "localhost", 403),
        ("", "localhost", 403),
        ("http://[::1", "localhost", 403),
        ("http://evil.example", "localhost", 403),
        ("localhost", "localhost", 403),
        ("http://evil.example@localhost", "localhost", 403),
        ("http://localhost.evil.example", "localhost", 403),
    ],
)
def test_only_a_page_of_the_worker_itself_may_ask(
    worker: Running, origin: str, host: str, status: int
) -> None:
    answer = httpx.get(f"{worker.url}/tasks", headers={"host": host, "origin": origin})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_a_browser_s_question_before_the_question_is_not_answered(worker: Running) -> None:
    asks = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    answer = httpx.options(f"{worker.url}/jobs", headers=asks)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path", ["/health", "/jobs", "/nothing", "/jobs/77", "/docs", "/openapi.json"]
)
@pytest.mark.parametrize("headers", [{}, {"host": "evil.example"}, {"origin": "null"}])
def test_every_answer_tells_a_browser_to_do_nothing_with_it(
    worker: Running, path: str, headers: dict[str, str]
) -> None:
    answer = httpx.get(f"{worker.url}{path}", headers=headers)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


# Slow, many and strange


def raw(run: Running) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", httpx.URL(run.url).port or 0), 20)
    made.settimeout(20)
    return made


def rest(connection: socket.socket) -> bytes:
    """What comes until the worker closes; fails by timeout if it does not."""
    said = b""
    while part := connection.recv(65536):
        said += part
    connection.close()
    return said


@pytest.fixture
def hurried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A worker behind the server that `serve` starts, which waits for a third of a second only."""
    monkeypatch.setattr(middleware, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.3)
    served = SimpleNamespace(Config=uvicorn.Config, Server=lambda config: server_of(config.app))
    monkeypatch.setattr(running_worker, "uvicorn", served)
    with running(tmp_path, lambda: FakeBench(tmp_path, 0.04)) as run:
        yield run


HEAD = b"POST /model HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize("said", [b"", b"G", b"GET /health HTTP/1.1\r\nhost: local", HEAD])
def test_a_head_that_does_not_come_is_not_waited_for(hurried: Running, said: bytes) -> None:
    connection = raw(hurried)
    connection.sendall(said)
    assert rest(connection) == b""
    assert hurried.client.health().ok


def test_a_second_head_that_does_not_come_is_not_waited_for(hurried: Running) -> None:
    connection = raw(hurried)
    connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\nserver:" not in answer.lower()
    connection.sendall(b"GET /health HTTP/1.1\r\nho")
    connection.sendall(b"st")
    rest(connection)


def test_a_body_that_does_not_come_is_not_waited_for(hurried: Running) -> None:
    connection = raw(hurried)
    connection.sendall(HEAD + b'content-length: 90\r\n\r\n{"model": ')
    said = b""
    while b"did not arrive within" not in said:
        part = connection.recv(65536)
        assert part, said
        said += part
    connection.close()
    assert said.startswith(b"HTTP/1.1 408")


def test_an_answer_may_take_longer_than_its_question(hurried: Running) -> None:
    hurried.client.model(MODEL)
    assert middleware.REQUEST_SECONDS < 13 * 0.04  # thirteen batches
    assert list(hurried.client.evaluate(evaluation(MODEL, "intents", "de")))[-1].done


def test_too_many_requests_at_once_are_refused(
    worker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_REQUESTS", 0)
    answer = httpx.get(f"{worker.url}/jobs")
    assert answer.status_code == 503
    assert "try again in a moment" in answer.json()["error"]
    monkeypatch.undo()
    assert httpx.get(f"{worker.url}/jobs").status_code == 200


def test_a_request_that_ended_no_longer_counts(
    worker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_REQUESTS", 2)
    for _ in range(5):
        assert httpx.get(f"{worker.url}/jobs").status_code == 200


SENT = {"name": "sent", "format": "csv", "columns": {"text": "t", "label": "l"}, "share": 0.5}


def sent(data: bytes, **more: Any) -> dict[str, Any]:
    """A request to make a task of one German file."""
    return (
        SENT
        | {"sent": [{"name": "../../x.csv", "data": b64encode(data).decode(), "language": "de"}]}
        | more
    )


def test_files_become_a_task_for_who_has_the_token_and_no_request_names_a_place(
    tmp_path: Path,
) -> None:
    rows = b"t,l\n" + b"".join(b"say %d,%d\n" % (i, i % 2) for i in range(8))
    with running(tmp_path, lambda: FakeBench(tmp_path), token=TOKEN, admit=AllowedModels()) as run:
        ask = partial(
            httpx.post, f"{run.url}/tasks", headers={"authorization": f"Bearer {TOKEN}"}, timeout=60
        )
        assert httpx.post(f"{run.url}/tasks", json=sent(rows)).status_code == 401
        for wrong in (
            {"name": "../up"},
            {"name": "intents"},
            {"format": "xls"},
            {"share": 2},
            {"path": "x"},
        ):
            assert ask(json=sent(rows, **wrong)).status_code in (400, 422), wrong
        for language in ("../de", "de/..", ""):
            one = sent(rows)
            one["sent"][0]["language"] = language
            assert ask(json=one).status_code in (400, 422)
        assert not (tmp_path / "tasks").exists()
        assert ask(json=sent(rows)).json()["sizes"] == {"de": {"dev": 4, "test": 4}}
        other = ask(json=sent(rows + b"more,1\n"))
        assert (other.status_code, other.json()["code"]) == (400, "upload.taken")
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.csv")}
    assert found == {"tasks/sent/de.dev.csv", "tasks/sent/de.test.csv"}


def test_only_the_route_for_files_takes_large_bodies_and_few_at_a_time(
    worker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = sent(b"t,l\n" + b"a,1\n" * (1 << 19))
    answer = httpx.post(f"{worker.url}/tasks", json=large, timeout=60)
    # it was read
    assert (answer.status_code, answer.json()["code"]) == (
        400,
        "upload.label_single",
    )
    assert httpx.post(f"{worker.url}/model", json=large).status_code == 413
    monkeypatch.setattr(middleware, "MAX_SENT", 1 << 20)
    assert httpx.post(f"{worker.url}/tasks", json=large).status_code == 413
    endless = (b"x" * 65536 for _ in range(64))
    assert httpx.post(f"{worker.url}/tasks", content=endless).status_code == 413
    monkeypatch.setattr(middleware, "MAX_SENDERS", 0)
    assert httpx.post(f"{worker.url}/tasks", json=sent(b"")).status_code == 503
    assert httpx.get(f"{worker.url}/tasks").status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 17_000,
        b"GET /" + b"a" * 17_000,
        HEAD + b"content-length: -1\r\n\r\n",
        HEAD + b"content-length: 1e3\r\n\r\n",
        HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n",
        HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/health HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_a_malformed_request_is_refused_not_crashed_on(hurried: Running, said: bytes) -> None:
    connection = raw(hurried)
    connection.sendall(said)
    answer = rest(connection)
    assert re.match(rb"HTTP/1\.1 4\d\d ", answer), answer
    assert b"Traceback" not in answer
    assert hurried.client.health().ok


@pytest.mark.parametrize(
    "job", ["0", "-1", str(1 << 63), "9" * 400, "1.5", "%00", "..%2f..%2fetc", "１", "1e3", "nan"]
)
@pytest.mark.parametrize("after", ["", "/snapshot", "/log", "/cancel", "/resume"])
def test_a_strange_job_number_is_a_sentence(worker: Running, job: str, after: str) -> None:
    ask = httpx.post if after in ("/cancel", "/resume") else httpx.get
    answer = ask(f"{worker.url}/jobs/{job}{after}")
    assert answer.status_code in (404, 422)
    assert answer.json().keys() == {"error", "code"}
    assert len(answer.text) < 1000


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([SECRET, MODEL, "de"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def near(schema: dict[str, Any], every: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema but for a field or two."""
    fits = example(schema, every)
    if not isinstance(fits, dict):
        return VALUES | st.just(fits)
    inner = {name: near({"default": value}, every) for name, value in fits.items()}
    for name, value in fits.items():
        if isinstance(value, dict):
            inner[name] = st.fixed_dictionaries({n: VALUES | st.just(v) for n, v in value.items()})
    return (
        st.fixed_dictionaries(inner, optional={"mask": VALUES, "options": VALUES, "colour": VALUES})
        | VALUES
    )


@cache
def bodies(path: str) -> st.SearchStrategy[bytes]:
    spec = api_docs.description()
    schema = spec["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    sent = near(schema, spec["components"]["schemas"]).map(lambda value: json.dumps(value).encode())
    torn = st.sampled_from(
        [b"", b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"', b"1" * 50_000, b"\xff\xfe", b"NaN"]
    )
    return sent | st.binary(max_size=40) | torn


class Everything(logging.Handler):
    """All that is logged, formatted."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def logged() -> Iterator[list[str]]:
    kept = Everything()
    root = logging.getLogger("headlab")
    before = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    yield kept.lines
    root.setLevel(before)
    root.removeHandler(kept)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """For many questions: each client reads the machine's certificates anew."""
    with httpx.Client(timeout=60) as client:
        yield client


@pytest.mark.parametrize("many", [10, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("path", BODIED)
def test_no_body_makes_a_route_crash_or_talk(
    worker: Running,
    http: httpx.Client,
    logged: list[str],
    path: str,
    many: int,
    record_property: Callable[[str, object], None],
) -> None:
    @settings(max_examples=many, deadline=None)
    @given(body=bodies(path))
    def holds_its_ground(body: bytes) -> None:
        answer = http.post(
            f"{worker.url}{path}", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (200, 202, 400, 404, 409, 413, 422, 429), (
            answer.status_code,
            answer.text,
        )
        assert "Traceback" not in answer.text
        if answer.status_code >= 400:
            assert answer.json().keys() == {"error", "code"}
            assert answer.json()["error"].strip()
        assert SECRET not in "".join(logged)
        for job in worker.jobs.list():
            worker.jobs.cancel(job.id)

    record_property("cases", many)
    holds_its_ground()


def test_the_log_of_a_process_holds_neither_sentences_nor_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    local = LocalWorker(tmp_path, command=FAKE)
    try:
        client = local.client()
        url = local.url
        assert client.attention(look(MODEL, SECRET, [["encoder", 0, 0]])).tokens == ["a"]
        for language in ("boom", "late"):
            with raises("worker.failed", "KeyError"):
                list(client.evaluate(evaluation(MODEL, "intents", language)))
        for given in (f"Bearer {TOKEN}", f"Bearer not-the-{TOKEN}"):
            headers = {"authorization": given, "content-type": "application/json", "x-note": SECRET}
            httpx.post(f"{url}/attention?{SECRET}", content=SECRET.encode(), headers=headers)
            httpx.get(f"{url}/{SECRET}/{TOKEN}", headers=headers)
        with raw_to(url) as connection:
            connection.sendall(f"{SECRET} {TOKEN}\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 400")
        job = client.submit(
            spec={
                "model": MODEL,
                "task": "intents",
                "languages": ["de"],
                "method": "random",
                "seed": 13,
            }
        )
        until(lambda: client.job(job.id).state == "failed")
    finally:
        local.stop()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / ".worker" / "worker.log" in written
    assert "KeyError" in (tmp_path / ".worker" / "worker.log").read_text(encoding="utf-8")
    for path in written:
        assert SECRET.encode() not in path.read_bytes(), path
        assert TOKEN.encode() not in path.read_bytes(), path


def raw_to(url: str) -> socket.socket:
    where = httpx.URL(url)
    return socket.create_connection((where.host, where.port or 0), 20)


# The app


@dataclass(frozen=True)
class App:
    """`streamlit run app.py` as anybody starts it, with no session yet."""

    port: int
    output: Path

    def log(self) -> str:
        """What the server has printed."""
        return self.output.read_text()

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=20)

    def socket(self, **headers: str) -> bytes:
        """First line of the answer to a browser that opens the session's WebSocket."""
        with self._socket_opening(headers) as answer:
            return answer.readline()

    def socket_answer(self, **headers: str) -> str:
        """Body of the refusal that a browser gets which opens the session's WebSocket."""
        with self._socket_opening(headers) as answer:
            return answer.read().partition(b"\r\n\r\n")[2].decode()

    @contextmanager
    def _socket_opening(self, headers: dict[str, str]) -> Iterator[BinaryIO]:
        """The answer to a request for the session's WebSocket, to be read."""
        told = {
            "host": f"127.0.0.1:{self.port}",
            **headers,
            "connection": "Upgrade",
            "upgrade": "websocket",
        }
        told |= {"sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
        lines = [
            b"GET /_stcore/stream HTTP/1.1",
            *(f"{name}: {value}".encode() for name, value in told.items()),
        ]
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
            with connection.makefile("rb") as answer:
                yield answer


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with started_app(tmp_path_factory.mktemp("cache")) as (app, _process):
        yield app


@contextmanager
def started_app(cache: Path) -> Iterator[tuple[App, subprocess.Popen[bytes]]]:
    """The app on a free port, and its process, which ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    environment = {**os.environ, "HEADLAB_CACHE": str(cache)}
    output = cache / "app.log"
    with (
        output.open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            until(lambda: listening(port) != [])
            yield App(port, output), process
        finally:
            process.terminate()


def listening(port: int) -> list[str]:
    """Addresses, as the kernel writes them, on which something listens at a port."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            where = line.split()[1]
            state = line.split()[3]
            if state == "0A" and int(where.rpartition(":")[2], 16) == port:
                found.append(where.rpartition(":")[0])
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
def test_the_app_listens_on_this_machine_only(app: App) -> None:
    assert listening(app.port) == ["0100007F"]
    assert app.get("/_stcore/health").status_code == 200


def test_a_page_of_another_site_reads_nothing_of_the_app(app: App) -> None:
    for path in ("/", "/_stcore/health", "/_stcore/host-config"):
        answer = app.get(path, origin="http://evil.example")
        assert "access-control-allow-origin" not in answer.headers


def test_files_are_sent_to_the_app_with_its_own_token_only(app: App) -> None:
    assert "_streamlit_xsrf" in app.get("/_stcore/health").headers.get("set-cookie", "")
    url = f"http://127.0.0.1:{app.port}/_stcore/upload_file/session/file"
    assert httpx.put(url, files={"file": b"x"}).status_code == 403
    forged = {"X-Xsrftoken": "made up", "Cookie": "_streamlit_xsrf=made up"}
    assert httpx.put(url, files={"file": b"x"}, headers=forged).status_code == 403


def test_only_the_app_s_own_page_opens_a_session(app: App) -> None:
    own = f"http://127.0.0.1:{app.port}"
    assert b" 101 " in app.socket(origin=own)
    assert b" 101 " in app.socket(
        host=f"localhost:{app.port}", origin=f"http://localhost:{app.port}"
    )
    assert b" 403 " in app.socket(origin="http://evil.example")
    # DNS rebinding
    assert b" 403 " in app.socket(host="evil.example", origin="http://evil.example")
    assert b" 403 " in app.socket(host=f"evil.example:{app.port}")


def test_reported_23_the_app_says_which_option_allows_another_host(app: App) -> None:
    refusal = app.socket_answer(
        host=f"app.example:{app.port}", origin=f"http://app.example:{app.port}"
    )
    page = app.get("/prune", host=f"app.example:{app.port}", accept="text/html,*/*;q=0.8")
    assert page.status_code == 403
    for text in (refusal, html.unescape(page.text)):
        assert "--server.allowedHosts localhost --server.allowedHosts app.example" in text
        assert "HOSTS=app.example" in text
        assert 'STREAMLIT_SERVER_ALLOWED_HOSTS to "localhost app.example"' in text
    app.socket_answer(host=f"app.example:{app.port}")
    assert app.log().count("headlab: This app was opened as app.example,") == 1


def test_reported_23_the_app_says_what_a_proxy_that_changes_the_host_needs(app: App) -> None:
    refusal = app.socket_answer(origin="https://proxy.example")
    health = app.get("/_stcore/health", referer="https://proxy.example/prune?model=m")
    # streamlit's page shows the text of this answer, and none of a 403
    assert health.status_code == 421
    for text in (refusal, health.text, app.log()):
        assert "--server.corsAllowedOrigins https://proxy.example" in text
        assert "proxy_set_header Host" in text
    assert app.get("/_stcore/health", referer="https://another.example/").status_code == 200
    assert app.get("/_stcore/health").status_code == 200


@pytest.mark.parametrize(
    "host", ["<script>alert(1)</script>", "a b", "[::1", "x" * 400, "", "app.example:99999"]
)
def test_reported_23_a_host_that_cannot_be_read_is_not_repeated(app: App, host: str) -> None:
    page = app.get("/", host=host, accept="text/html")
    assert page.status_code in (400, 403)
    assert "<script" not in page.text
    assert host == "" or "alert" not in app.log()


def test_reported_23_what_asks_without_a_browser_is_answered_under_any_name(app: App) -> None:
    """The probes of a container's host name it by its address."""
    assert app.get("/", host="10.0.0.7:8501").status_code == 200
    assert app.get("/_stcore/health", host="10.0.0.7:8501").status_code == 200


def test_reported_23_make_app_passes_host_names_on() -> None:
    command = ["make", "-n", "app", "HOSTS=app.example other.example"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"--server\.allowedHosts (\S+)", lines)
    assert names == ["localhost", "127.0.0.1", "::1", "app.example", "other.example"]
    without = subprocess.run(
        command[:-1], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "allowedHosts" not in without


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_reported_23_an_app_that_is_told_to_end_does_what_is_registered_for_its_exit(
    tmp_path: Path, signal_number: signal.Signals
) -> None:
    """A process that a signal kills ends with another status, and leaves its worker behind."""
    with started_app(tmp_path) as (app, process):
        assert app.get("/_stcore/health").status_code == 200
        process.send_signal(signal_number)
        assert process.wait(ENDING_SECONDS) == 0
    assert "Traceback" not in app.log()
    assert "Aborted" not in app.log()


def test_the_app_cannot_be_driven_without_a_browser(app: App) -> None:
    answer = httpx.post(f"http://127.0.0.1:{app.port}/_stcore/agent/interact", json={})
    assert answer.status_code in (403, 404)


# The page about the interface


def test_the_page_about_the_interface_fetches_nothing_and_runs_nothing(worker: Running) -> None:
    answer = httpx.get(f"{worker.url}/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script" not in policy
    assert not re.search(
        r"<script|<link|<img|<iframe|<form|\son\w+=|src=|url\(|@import|https?://", answer.text
    )
    assert "color-scheme:light dark" in answer.text
    for path, ways in api_docs.description()["paths"].items():
        for way in ways:
            assert f">{way.upper()} {path}</h3>" in answer.text
    anchors = set(re.findall(r'id="([^"]+)"', answer.text))
    assert set(re.findall(r'href="#([^"]+)"', answer.text)) <= anchors
    for limit in (
        "1 to 2000 characters",
        "1 to 48 entries",
        "from 1 to 100000",
        "429 Too Many Requests",
    ):
        assert limit in answer.text


def test_the_page_needs_the_token_where_there_is_one(locked: Running) -> None:
    assert httpx.get(f"{locked.url}/docs").status_code == 401
    assert (
        httpx.get(f"{locked.url}/docs", headers={"authorization": f"Bearer {TOKEN}"}).status_code
        == 200
    )


def test_whatever_a_description_says_is_text_on_the_page() -> None:
    nasty = "<script>alert(1)</script>\"'&`<b>`[<i>]"
    field = {"type": "string", "pattern": nasty, "default": nasty}
    hostile = {
        "info": {"version": nasty},
        "paths": {f"/{nasty}": {"get": {"description": nasty, "parameters": [{"name": nasty, "schema": field}],
                                        "responses": {"200": {}, "404": {}}}}},
        "components": {"schemas": {"Nasty": {"type": "object", "description": nasty, "properties": {nasty: field}}}},
    }  # fmt: skip
    hostile_page = html_page(hostile)
    assert hostile_page.count("&lt;script&gt;") >= 6
    assert not re.search(r"<script|<b>|<i>|alert\(1\)</", hostile_page)


def test_every_status_a_route_answers_with_is_explained() -> None:
    api = api_docs.description()
    routes = [what for ways in api["paths"].values() for what in ways.values()]
    text = markdown(api)
    assert all(
        f"| {code} " in text for what in routes for code in what["responses"] if int(code) >= 400
    )
    answers = [line for line in text.splitlines() if line.startswith("- answers: ")]
    assert len(answers) == len(routes)
    assert all("[" in line for line in answers if "200:" in line)


def test_docs_api_is_what_the_worker_says_of_itself() -> None:
    assert api_docs.PAGE.read_text(encoding="utf-8") == markdown(api_docs.description()), (
        "the routes have changed: run python tools/api_docs.py"
    )


# What must not be in the code


FORBIDDEN = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "yaml",
    "ftplib",
    "telnetlib",
}
CALLS = re.compile(
    r"(torch\.(load|save|hub\.load|package)|(pd|pandas)\.(read_pickle|eval)|np\.fromfile|\w+\.to_pickle|yaml\.\w+|"
    r"os\.(system|popen|exec\w+|spawn\w+)|tarfile\.\w+|shutil\.unpack_archive|\w+\.extractall|eval|exec|compile|__import__)"
)


def test_nothing_that_runs_what_it_reads_is_called() -> None:
    """Besides `test_no_code_comes_in_with_data`. Ray's transport between its own processes is in docs/security.md."""
    wrong = []
    for path in [*ROOT.glob("headlab/**/*.py"), *ROOT.glob("pages/*.py"), ROOT / "app.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.name}: imports {n}" for n in names if n.split(".")[0] in FORBIDDEN]
            if isinstance(node, ast.Call) and CALLS.fullmatch(ast.unparse(node.func)):
                wrong.append(f"{path.name}:{node.lineno} {ast.unparse(node.func)}")
            if isinstance(node, ast.ImportFrom) and node.module == "torch":
                wrong += [
                    f"{path.name}: from torch import {a.name}"
                    for a in node.names
                    if a.name in ("load", "save")
                ]
    assert wrong == []


def test_arrays_are_read_without_pickle() -> None:
    loads = [
        ast.unparse(node)
        for path in ROOT.glob("headlab/**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and re.search(r"\b(np\.load|read_array)$", ast.unparse(node.func))
    ]
    assert loads
    assert [call for call in loads if "allow_pickle=False" not in call] == []


def test_request_paths_name_no_file() -> None:
    """No route takes text in its path, and no field of a request is a path of a file."""
    spec = api_docs.description()
    kinds = {
        p["schema"]["type"]
        for ways in spec["paths"].values()
        for w in ways.values()
        for p in w.get("parameters", [])
    }
    assert kinds == {"integer"}
    asked = [n for n in spec["components"]["schemas"] if n.endswith(("Request", "Spec"))]
    fields = {
        f for name in asked for f in spec["components"]["schemas"][name].get("properties", {})
    }
    assert not [f for f in fields if re.search(r"path|file|folder|dir|cache|output", f)]


# Services


def services() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))[
        "services"
    ]
    return read


def test_compose_opens_the_app_on_this_machine_only_and_the_worker_to_nobody() -> None:
    worker = services()["worker"]
    app = services()["app"]
    assert "ports" not in worker
    assert app["ports"] == ["127.0.0.1:8501:8501"]
    assert app["environment"]["HEADLAB_WORKER"] == "http://worker:8600"
    for service in (worker, app):
        assert service["environment"]["HEADLAB_TOKEN"].startswith("${HEADLAB_TOKEN:?")
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_gpu_variant_of_compose_is_there_to_be_uncommented() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    block = re.search(r"^    # deploy:\n(?:    # .*\n)+", text, re.MULTILINE)
    assert block is not None
    with_gpu = yaml.safe_load(
        text.replace(block.group(), re.sub(r"^    # ", "    ", block.group(), flags=re.MULTILINE))
    )
    (device,) = with_gpu["services"]["worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
