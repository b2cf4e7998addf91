"""Who may use the worker and the app, and how: tokens, hosts, models, requests.

What they answer to slow and strange requests, and what they log.
"""

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
from support.running_worker import (
    RunningWorker,
    attention_request,
    evaluate_request,
    started_worker,
)
from support.waiting import HANG_SECONDS, wait_until
from support.worker_jobs import wait_for_state

from headlab.core import HeadGrid, Stack
from headlab.jobs import Refusal
from headlab.masks import full_mask
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

import api_docs  # noqa: E402 - it lies in tools/

MASK = full_mask(HeadGrid((Stack("encoder-feed-forward", (1, 1)),))).to_json()

FAKE_WORKER = Path(__file__).parents[1] / "support" / "fake_worker.py"
FAKE_COMMAND = (sys.executable, str(FAKE_WORKER))
TOKEN = "a-token-of-some-length"
AUTHORIZATION = {"authorization": f"Bearer {TOKEN}"}
CODES_OF_WEAK_TOKENS = {
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
PATHS_WITH_BODY = [
    path
    for path, operations in api_docs.description()["paths"].items()
    if "requestBody" in operations.get("post", {})
]
EMBEDDED_MODEL = "e5-small-intents"


@pytest.fixture(autouse=True)
def no_settings_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TOKEN_VARIABLE, MODELS_VARIABLE, "HEADLAB_WORKER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    folder = tmp_path_factory.mktemp("worker")
    with started_worker(folder, lambda: FakeBench(folder, 0.001)) as worker:
        yield worker


@pytest.fixture(scope="module")
def guarded_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    """A worker as others would reach it: a token, and the embedded models only."""
    folder = tmp_path_factory.mktemp("locked")
    with started_worker(
        folder, lambda: FakeBench(folder, 0.001), token=TOKEN, admit=AllowedModels()
    ) as worker:
        yield worker


def sample_value(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """A value that fits a schema, or nearly: enough to get past the types.

    Args:
        schema: The schema of the value, in OpenAPI's form.
        schemas: All named schemas, which `$ref` refers to.
    """
    if "$ref" in schema:
        _, _, name = schema["$ref"].rpartition("/")
        return sample_value(schemas[name], schemas)
    for alternatives in ("anyOf", "oneOf"):
        if alternatives in schema:
            return sample_value(schema[alternatives][0], schemas)
    if "default" in schema or "const" in schema or "enum" in schema:
        first_choice = schema.get("enum", [None])[0]
        return schema.get("default", schema.get("const", first_choice))
    if schema.get("type") == "object":
        value = {
            name: sample_value(schema["properties"][name], schemas)
            for name in schema.get("required", ())
        }
        if "mask" in value:  # an object of which the schema says no more
            value["mask"] = MASK
        return value
    if "prefixItems" in schema:
        return [sample_value(item_schema, schemas) for item_schema in schema["prefixItems"]]
    if schema.get("type") == "array":
        return [sample_value(schema.get("items", {}), schemas)]
    values_by_type = {
        "string": "de",
        "integer": 1,
        "number": 1.0,
        "boolean": True,
    }
    return values_by_type.get(schema.get("type", ""), {})


def body_schema(path: str) -> dict[str, Any]:
    """Schema of the JSON that a route takes."""
    operation = api_docs.description()["paths"][path]["post"]
    schema: dict[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
    return schema


# The token


@pytest.mark.parametrize("token", CODES_OF_WEAK_TOKENS)
def test_a_weak_token_is_refused_at_start_and_not_repeated(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    for host in ("127.0.0.1", "0.0.0.0"):
        assert main(["--host", host, "--port", "0", "--cache", str(tmp_path)]) == 2
        stderr_text = capsys.readouterr().err
        assert "HEADLAB_TOKEN" in stderr_text
        assert "secrets.token_urlsafe(32)" in stderr_text
        assert token.strip() == "" or token not in stderr_text
    with raises(CODES_OF_WEAK_TOKENS[token], "HEADLAB_TOKEN"):
        LocalWorker(tmp_path, command=FAKE_COMMAND)
    with raises(CODES_OF_WEAK_TOKENS[token], "HEADLAB_TOKEN"):
        RemoteWorker("http://127.0.0.1:9")


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
    create_server = socket.create_server

    def create_open_server(address: tuple[str, int], **options: Any) -> socket.socket:
        return create_server(("0.0.0.0", 0), backlog=1)

    monkeypatch.setattr(socket, "create_server", create_open_server)
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
    for name in ("some/model", "other/model", "third/model", "warm/model", EMBEDDED_MODEL):
        assert entrance.admit(name) == name
    with raises("model.not_allowed", "'fourth/model'", kind=Refusal):
        entrance.admit("fourth/model")


@pytest.mark.parametrize(
    ("host", "expected_error"),
    [
        ("", ("worker.port_unusable", "no address")),
        ("192.0.2.1", ("worker.port_unusable", "--host")),
        ("no.such.invalid", ("worker.port_unusable", "--host")),
    ],
)
def test_an_address_that_cannot_be_taken_is_a_sentence(
    host: str, expected_error: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with raises(*expected_error):
        open_entrance(WorkerSettings(Path(), host=host, port=0))


def test_the_check_of_the_token_takes_the_same_time_wherever_it_differs() -> None:
    """The token is compared by `hmac.compare_digest` and in no other way."""
    tree = ast.parse((ROOT / "headlab/worker/middleware.py").read_text(encoding="utf-8"))
    assert "hmac.compare_digest" in ast.unparse(tree)
    comparisons = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    texts = [ast.unparse(comparison) for comparison in comparisons]
    token_comparisons = [text for text in texts if "_token" in text]
    assert token_comparisons == ["self._token is None"]


@pytest.mark.parametrize(
    "authorization",
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
def test_a_wrong_token_opens_nothing(guarded_worker: RunningWorker, authorization: str) -> None:
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
            f"{guarded_worker.url}{path}",
            headers={"authorization": authorization.encode()},
        )
        assert answer.status_code == 401
        assert answer.json().keys() == {"error", "code"}
        assert answer.json()["code"] == "token.wrong"
    assert httpx.get(f"{guarded_worker.url}/health").json()["ok"]


def test_an_app_s_own_worker_is_closed_to_other_users_of_the_machine(tmp_path: Path) -> None:
    local_worker = LocalWorker(tmp_path, command=FAKE_COMMAND)
    try:
        assert local_worker.client().load_model(MODEL).name == MODEL
        assert httpx.get(f"{local_worker.url}/models").status_code == 401
        assert httpx.get(f"{local_worker.url}/health").status_code == 200
    finally:
        local_worker.stop()


# Models


def test_models_are_compared_letter_by_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "yours"):
        (tmp_path / name).mkdir()
    allowed_models = AllowedModels([str(tmp_path / "mine"), "./yours", "someone/model"])
    for name in (str(tmp_path / "mine"), "./yours", "someone/model", EMBEDDED_MODEL):
        assert allowed_models(name) == name
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
        f"{EMBEDDED_MODEL}/",
        f"{EMBEDDED_MODEL}\x00",
        "",
        "\x00",
        "a" * 100_000,
        "../" * 5000,
        "\ud800",
    ):
        with raises("model.not_allowed", kind=Refusal) as caught:
            allowed_models(name)
        assert caught.value.status == 404


def test_the_embedded_models_are_known_without_torch() -> None:
    from headlab.models.embedded import EMBEDDED

    assert set(embedded_names()) == set(EMBEDDED)
    code = (
        "import sys, headlab.worker.middleware as middleware; "
        "middleware.AllowedModels()('e5-small-intents'); "
        "sys.exit('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert process.returncode == 0


def test_a_folder_that_leads_elsewhere_later_is_refused(tmp_path: Path) -> None:
    for name in ("mine", "yours"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "mine")
    allowed_models = AllowedModels([str(link)])
    assert allowed_models(str(link)) == str(link)
    link.unlink()
    with raises("model.moved", kind=Refusal):
        allowed_models(str(link))
    link.symlink_to(tmp_path / "yours")
    with raises("model.moved", kind=Refusal):
        allowed_models(str(link))


def test_a_folder_made_later_does_not_take_the_place_of_a_hub_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    allowed_models = AllowedModels(["someone/model"])
    assert allowed_models("someone/model")
    (tmp_path / "someone" / "model").mkdir(parents=True)
    with raises("model.moved", kind=Refusal):
        allowed_models("someone/model")


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


def test_every_route_that_names_a_model_asks_whether_it_may(guarded_worker: RunningWorker) -> None:
    schemas = api_docs.description()["components"]["schemas"]
    paths_with_model = []
    for path in PATHS_WITH_BODY:
        body = sample_value(body_schema(path), schemas)
        request = body.get("spec", body)
        if "model" not in request:
            continue
        paths_with_model.append(path)
        for name in ("/etc", "..", "someone/else"):
            request["model"] = name
            answer = httpx.post(f"{guarded_worker.url}{path}", json=body, headers=AUTHORIZATION)
            assert (answer.status_code, path) == (404, path), answer.text
            refusal = f"serves {', '.join(embedded_names())} only, not {name!r}"
            assert refusal in answer.json()["error"]
    assert set(paths_with_model) >= {"/model", "/attention", "/evaluate", "/jobs"}
    assert guarded_worker.jobs.list() == []


def test_a_job_of_a_model_that_is_not_allowed_is_not_resumed(tmp_path: Path) -> None:
    """It may stand in the list from a time when the worker was on loopback."""
    with started_worker(
        tmp_path, lambda: FakeBench(tmp_path, 0.5), token=TOKEN, admit=AllowedModels()
    ) as worker:
        # The job takes twenty seconds, so that it is not over before it is cancelled.
        job = worker.jobs.submit("score", {"model": "/etc", "seed": 1}).id
        worker.jobs.cancel(job)
        # If it has begun, it ends at its next batch.
        wait_until(lambda: worker.jobs.get(job).state == "cancelled")
        answer = httpx.post(f"{worker.url}/jobs/{job}/resume", headers=AUTHORIZATION)
        assert answer.status_code == 404
        assert worker.jobs.get(job).state == "cancelled"


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
def test_only_names_of_this_machine_are_answered(
    worker: RunningWorker, host: str, status: int
) -> None:
    answer = httpx.get(f"{worker.url}/tasks", headers={"host": host})
    assert answer.status_code == status


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
    worker: RunningWorker, origin: str, host: str, status: int
) -> None:
    answer = httpx.get(f"{worker.url}/tasks", headers={"host": host, "origin": origin})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_a_browser_s_preflight_request_is_refused(worker: RunningWorker) -> None:
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    answer = httpx.options(f"{worker.url}/jobs", headers=headers)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path", ["/health", "/jobs", "/nothing", "/jobs/77", "/docs", "/openapi.json"]
)
@pytest.mark.parametrize("headers", [{}, {"host": "evil.example"}, {"origin": "null"}])
def test_every_answer_tells_a_browser_to_do_nothing_with_it(
    worker: RunningWorker, path: str, headers: dict[str, str]
) -> None:
    answer = httpx.get(f"{worker.url}{path}", headers=headers)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


# Slow, many and strange


def connection_to_worker(worker: RunningWorker) -> socket.socket:
    connection = connection_to(worker.url)
    connection.settimeout(20)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """All bytes until the worker closes the connection; raises `TimeoutError` if it does not."""
    received_bytes = b""
    while part := connection.recv(65536):
        received_bytes += part
    connection.close()
    return received_bytes


@pytest.fixture
def impatient_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningWorker]:
    """A worker behind the server that `serve` starts, with time limits of a third of a second."""
    monkeypatch.setattr(middleware, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.3)
    uvicorn_stand_in = SimpleNamespace(
        Config=uvicorn.Config, Server=lambda config: server_of(config.app)
    )
    monkeypatch.setattr(running_worker, "uvicorn", uvicorn_stand_in)
    with started_worker(tmp_path, lambda: FakeBench(tmp_path, 0.04)) as worker:
        yield worker


POST_HEAD = b"POST /model HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    "first_bytes", [b"", b"G", b"GET /health HTTP/1.1\r\nhost: local", POST_HEAD]
)
def test_a_head_that_does_not_arrive_is_not_waited_for(
    impatient_worker: RunningWorker, first_bytes: bytes
) -> None:
    connection = connection_to_worker(impatient_worker)
    connection.sendall(first_bytes)
    assert read_to_end(connection) == b""
    assert impatient_worker.client.health().ok


def test_a_second_head_that_does_not_arrive_is_not_waited_for(
    impatient_worker: RunningWorker,
) -> None:
    connection = connection_to_worker(impatient_worker)
    connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\nserver:" not in answer.lower()
    connection.sendall(b"GET /health HTTP/1.1\r\nho")
    connection.sendall(b"st")
    read_to_end(connection)


def test_a_body_that_does_not_arrive_is_not_waited_for(impatient_worker: RunningWorker) -> None:
    connection = connection_to_worker(impatient_worker)
    connection.sendall(POST_HEAD + b'content-length: 90\r\n\r\n{"model": ')
    received_bytes = b""
    while b"did not arrive within" not in received_bytes:
        part = connection.recv(65536)
        assert part, received_bytes
        received_bytes += part
    connection.close()
    assert received_bytes.startswith(b"HTTP/1.1 408")


def test_an_answer_may_take_longer_than_its_question(impatient_worker: RunningWorker) -> None:
    impatient_worker.client.load_model(MODEL)
    assert middleware.REQUEST_SECONDS < 13 * 0.04  # thirteen batches
    figures = list(impatient_worker.client.evaluate(evaluate_request(MODEL, "intents", "de")))
    assert figures[-1].done


def test_too_many_requests_at_once_are_refused(
    worker: RunningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_REQUESTS", 0)
    answer = httpx.get(f"{worker.url}/jobs")
    assert answer.status_code == 503
    assert "try again in a moment" in answer.json()["error"]
    monkeypatch.undo()
    assert httpx.get(f"{worker.url}/jobs").status_code == 200


def test_a_request_that_ended_no_longer_counts(
    worker: RunningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "MAX_REQUESTS", 2)
    for _ in range(5):
        assert httpx.get(f"{worker.url}/jobs").status_code == 200


TASK_FROM_FILES = {
    "name": "sent",
    "format": "csv",
    "columns": {"text": "t", "label": "l"},
    "share": 0.5,
}


def upload_request(data: bytes, **changes: Any) -> dict[str, Any]:
    """A request to make a task of one German file."""
    file = {"name": "../../x.csv", "data": b64encode(data).decode(), "language": "de"}
    return {**TASK_FROM_FILES, "sent": [file], **changes}


def test_files_become_a_task_only_with_the_token_and_no_request_names_a_path(
    tmp_path: Path,
) -> None:
    rows = b"t,l\n"
    for number in range(8):
        rows += b"say %d,%d\n" % (number, number % 2)
    with started_worker(
        tmp_path, lambda: FakeBench(tmp_path), token=TOKEN, admit=AllowedModels()
    ) as worker:
        post = partial(
            httpx.post, f"{worker.url}/tasks", headers=AUTHORIZATION, timeout=HANG_SECONDS
        )
        answer = httpx.post(f"{worker.url}/tasks", json=upload_request(rows))
        assert answer.status_code == 401
        for wrong_field in (
            {"name": "../up"},
            {"name": "intents"},
            {"format": "xls"},
            {"share": 2},
            {"path": "x"},
        ):
            answer = post(json=upload_request(rows, **wrong_field))
            assert answer.status_code in (400, 422), wrong_field
        for language in ("../de", "de/..", ""):
            request = upload_request(rows)
            request["sent"][0]["language"] = language
            assert post(json=request).status_code in (400, 422)
        assert not (tmp_path / "tasks").exists()
        saved_task = post(json=upload_request(rows)).json()
        assert saved_task["sizes"] == {"de": {"dev": 4, "test": 4}}
        second_answer = post(json=upload_request(rows + b"more,1\n"))
        assert second_answer.status_code == 400
        assert second_answer.json()["code"] == "upload.taken"
    written_files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.csv")}
    assert written_files == {"tasks/sent/de.dev.csv", "tasks/sent/de.test.csv"}


def test_only_the_route_for_files_takes_large_bodies_and_few_at_a_time(
    worker: RunningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of few lines, which are read at once.
    large_request = upload_request(b"t,l\n" + (b"a" * 1000 + b",1\n") * (1 << 11))
    answer = httpx.post(f"{worker.url}/tasks", json=large_request, timeout=HANG_SECONDS)
    # it was read
    assert answer.status_code == 400
    assert answer.json()["code"] == "upload.label_single"
    assert httpx.post(f"{worker.url}/model", json=large_request).status_code == 413
    monkeypatch.setattr(middleware, "MAX_SENT", 1 << 20)
    assert httpx.post(f"{worker.url}/tasks", json=large_request).status_code == 413
    endless = (b"x" * 65536 for _ in range(64))
    assert httpx.post(f"{worker.url}/tasks", content=endless).status_code == 413
    monkeypatch.setattr(middleware, "MAX_SENDERS", 0)
    assert httpx.post(f"{worker.url}/tasks", json=upload_request(b"")).status_code == 503
    assert httpx.get(f"{worker.url}/tasks").status_code == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 17_000,
        b"GET /" + b"a" * 17_000,
        POST_HEAD + b"content-length: -1\r\n\r\n",
        POST_HEAD + b"content-length: 1e3\r\n\r\n",
        POST_HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n",
        POST_HEAD
        + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/health HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_a_malformed_request_is_refused_not_crashed_on(
    impatient_worker: RunningWorker, request_bytes: bytes
) -> None:
    connection = connection_to_worker(impatient_worker)
    connection.sendall(request_bytes)
    answer = read_to_end(connection)
    assert re.match(rb"HTTP/1\.1 4\d\d ", answer), answer
    assert b"Traceback" not in answer
    assert impatient_worker.client.health().ok


@pytest.mark.parametrize(
    "job", ["0", "-1", str(1 << 63), "9" * 400, "1.5", "%00", "..%2f..%2fetc", "１", "1e3", "nan"]
)
@pytest.mark.parametrize("action", ["", "/snapshot", "/log", "/cancel", "/resume"])
def test_a_strange_job_number_is_a_sentence(worker: RunningWorker, job: str, action: str) -> None:
    send = httpx.post if action in ("/cancel", "/resume") else httpx.get
    answer = send(f"{worker.url}/jobs/{job}{action}")
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


def nearly_valid(schema: dict[str, Any], schemas: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema but for a field or two."""
    valid_value = sample_value(schema, schemas)
    if not isinstance(valid_value, dict):
        return VALUES | st.just(valid_value)
    fields = {}
    for name, value in valid_value.items():
        if isinstance(value, dict):
            inner_fields = {inner: VALUES | st.just(fitting) for inner, fitting in value.items()}
            fields[name] = st.fixed_dictionaries(inner_fields)
        else:
            fields[name] = nearly_valid({"default": value}, schemas)
    further_fields = {"mask": VALUES, "options": VALUES, "colour": VALUES}
    for name in fields:
        further_fields.pop(name, None)
    return st.fixed_dictionaries(fields, optional=further_fields) | VALUES


@cache
def request_bodies(path: str) -> st.SearchStrategy[bytes]:
    schemas = api_docs.description()["components"]["schemas"]
    near_values = nearly_valid(body_schema(path), schemas)
    near_bodies = near_values.map(lambda value: json.dumps(value).encode())
    torn_bodies = st.sampled_from(
        [b"", b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"', b"1" * 50_000, b"\xff\xfe", b"NaN"]
    )
    return near_bodies | st.binary(max_size=40) | torn_bodies


class RecordingHandler(logging.Handler):
    """Keeps every log line, formatted."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    handler = RecordingHandler()
    root = logging.getLogger("headlab")
    former_level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler.lines
    root.setLevel(former_level)
    root.removeHandler(handler)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """One client for many requests, because each new client reads the machine's certificates."""
    with httpx.Client(timeout=HANG_SECONDS) as client:
        yield client


@pytest.mark.parametrize("case_count", [10, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("path", PATHS_WITH_BODY)
def test_no_body_makes_a_route_crash_or_talk(
    worker: RunningWorker,
    http: httpx.Client,
    log_lines: list[str],
    path: str,
    case_count: int,
    record_property: Callable[[str, object], None],
) -> None:
    @settings(max_examples=case_count, deadline=None)
    @given(body=request_bodies(path))
    def holds_its_ground(body: bytes) -> None:
        answer = http.post(
            f"{worker.url}{path}", content=body, headers={"content-type": "application/json"}
        )
        expected_statuses = (200, 202, 400, 404, 409, 413, 422, 429)
        assert answer.status_code in expected_statuses, (answer.status_code, answer.text)
        assert "Traceback" not in answer.text
        if answer.status_code >= 400:
            assert answer.json().keys() == {"error", "code"}
            assert answer.json()["error"].strip()
        assert SECRET not in "".join(log_lines)
        for job in worker.jobs.list():
            worker.jobs.cancel(job.id)

    record_property("cases", case_count)
    holds_its_ground()


def test_the_log_of_a_process_holds_neither_sentences_nor_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    local_worker = LocalWorker(tmp_path, command=FAKE_COMMAND)
    try:
        client = local_worker.client()
        url = local_worker.url
        request = attention_request(MODEL, SECRET, [["encoder", 0, 0]])
        assert client.attention(request).tokens == ["a"]
        for language in ("boom", "late"):
            with raises("worker.failed", "KeyError"):
                list(client.evaluate(evaluate_request(MODEL, "intents", language)))
        for authorization in (f"Bearer {TOKEN}", f"Bearer not-the-{TOKEN}"):
            headers = {
                "authorization": authorization,
                "content-type": "application/json",
                "x-note": SECRET,
            }
            httpx.post(f"{url}/attention?{SECRET}", content=SECRET.encode(), headers=headers)
            httpx.get(f"{url}/{SECRET}/{TOKEN}", headers=headers)
        with connection_to(url) as connection:
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
        wait_for_state(client, job.id, "failed")
    finally:
        local_worker.stop()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / ".worker" / "worker.log" in files
    assert "KeyError" in (tmp_path / ".worker" / "worker.log").read_text(encoding="utf-8")
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
        assert TOKEN.encode() not in path.read_bytes(), path


def connection_to(url: str) -> socket.socket:
    address = httpx.URL(url)
    return socket.create_connection((address.host, address.port or 0), 20)


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
        return httpx.get(
            f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=HANG_SECONDS
        )

    def socket(self, **headers: str) -> bytes:
        """First line of the answer to a browser that opens the session's WebSocket."""
        with self._socket_opening(headers) as answer:
            return answer.readline()

    def socket_answer(self, **headers: str) -> str:
        """Body of the refusal for a browser that opens the session's WebSocket."""
        with self._socket_opening(headers) as answer:
            return answer.read().partition(b"\r\n\r\n")[2].decode()

    @contextmanager
    def _socket_opening(self, headers: dict[str, str]) -> Iterator[BinaryIO]:
        """The answer to a request for the session's WebSocket, to be read."""
        header_fields = {
            "host": f"127.0.0.1:{self.port}",
            **headers,
            "connection": "Upgrade",
            "upgrade": "websocket",
        }
        header_fields |= {
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        lines = [
            b"GET /_stcore/stream HTTP/1.1",
            *(f"{name}: {value}".encode() for name, value in header_fields.items()),
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
            wait_until(lambda: listening_addresses(port) != [])
            yield App(port, output), process
        finally:
            process.terminate()


def listening_addresses(port: int) -> list[str]:
    """Addresses, as the kernel writes them, on which something listens at a port."""
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local_address = line.split()[1]
            state = line.split()[3]
            if state == "0A" and int(local_address.rpartition(":")[2], 16) == port:
                addresses.append(local_address.rpartition(":")[0])
    return addresses


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
def test_the_app_listens_on_this_machine_only(app: App) -> None:
    assert listening_addresses(app.port) == ["0100007F"]
    assert app.get("/_stcore/health").status_code == 200


def test_a_page_of_another_site_cannot_read_the_app(app: App) -> None:
    for path in ("/", "/_stcore/health", "/_stcore/host-config"):
        answer = app.get(path, origin="http://evil.example")
        assert "access-control-allow-origin" not in answer.headers


def test_files_are_sent_to_the_app_with_its_own_token_only(app: App) -> None:
    assert "_streamlit_xsrf" in app.get("/_stcore/health").headers.get("set-cookie", "")
    url = f"http://127.0.0.1:{app.port}/_stcore/upload_file/session/file"
    assert httpx.put(url, files={"file": b"x"}).status_code == 403
    forged_headers = {"X-Xsrftoken": "made up", "Cookie": "_streamlit_xsrf=made up"}
    assert httpx.put(url, files={"file": b"x"}, headers=forged_headers).status_code == 403


def test_only_the_app_s_own_page_opens_a_session(app: App) -> None:
    app_url = f"http://127.0.0.1:{app.port}"
    assert b" 101 " in app.socket(origin=app_url)
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
        assert "headlab app --allow-host app.example" in text
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
        assert "STREAMLIT_SERVER_CORS_ALLOWED_ORIGINS to https://proxy.example" in text
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


def test_reported_23_a_client_that_is_no_browser_is_answered_under_any_host_name(app: App) -> None:
    """The health probes of a container's host use its address as the host name."""
    assert app.get("/", host="10.0.0.7:8501").status_code == 200
    assert app.get("/_stcore/health", host="10.0.0.7:8501").status_code == 200


def test_reported_23_make_app_passes_host_names_on() -> None:
    command = ["make", "-n", "app", "HOSTS=app.example other.example"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"--server\.allowedHosts (\S+)", lines)
    assert names == ["localhost", "127.0.0.1", "::1", "app.example", "other.example"]
    lines_without_hosts = subprocess.run(
        command[:-1], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "allowedHosts" not in lines_without_hosts


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


def test_the_page_about_the_interface_fetches_nothing_and_runs_nothing(
    worker: RunningWorker,
) -> None:
    answer = httpx.get(f"{worker.url}/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script" not in policy
    what_fetches_or_runs = r"<script|<link|<img|<iframe|<form|\son\w+=|src=|url\(|@import|https?://"
    assert not re.search(what_fetches_or_runs, answer.text)
    assert "color-scheme:light dark" in answer.text
    for path, operations in api_docs.description()["paths"].items():
        for http_method in operations:
            assert f">{http_method.upper()} {path}</h3>" in answer.text
    anchors = set(re.findall(r'id="([^"]+)"', answer.text))
    assert set(re.findall(r'href="#([^"]+)"', answer.text)) <= anchors
    for limit in (
        "1 to 2000 characters",
        "1 to 48 entries",
        "from 1 to 100000",
        "429 Too Many Requests",
    ):
        assert limit in answer.text


def test_the_page_needs_the_token_where_there_is_one(guarded_worker: RunningWorker) -> None:
    assert httpx.get(f"{guarded_worker.url}/docs").status_code == 401
    answer = httpx.get(f"{guarded_worker.url}/docs", headers=AUTHORIZATION)
    assert answer.status_code == 200


def test_whatever_a_description_says_is_text_on_the_page() -> None:
    markup = "<script>alert(1)</script>\"'&`<b>`[<i>]"
    field = {"type": "string", "pattern": markup, "default": markup}
    operation = {
        "description": markup,
        "parameters": [{"name": markup, "schema": field}],
        "responses": {"200": {}, "404": {}},
    }
    schema = {"type": "object", "description": markup, "properties": {markup: field}}
    hostile_description = {
        "info": {"version": markup},
        "paths": {f"/{markup}": {"get": operation}},
        "components": {"schemas": {"Nasty": schema}},
    }
    hostile_page = html_page(hostile_description)
    assert hostile_page.count("&lt;script&gt;") >= 6
    assert not re.search(r"<script|<b>|<i>|alert\(1\)</", hostile_page)


def test_every_status_a_route_answers_with_is_explained() -> None:
    api = api_docs.description()
    routes = [
        operation for operations in api["paths"].values() for operation in operations.values()
    ]
    text = markdown(api)
    statuses = {code for operation in routes for code in operation["responses"]}
    for code in statuses:
        assert int(code) < 400 or f"| {code} " in text
    answers = [line for line in text.splitlines() if line.startswith("- answers: ")]
    assert len(answers) == len(routes)
    assert all("[" in line for line in answers if "200:" in line)


def test_docs_api_is_what_the_worker_says_of_itself() -> None:
    assert api_docs.PAGE.read_text(encoding="utf-8") == markdown(api_docs.description()), (
        "the routes have changed: run python tools/api_docs.py"
    )


# What must not be in the code


FORBIDDEN_MODULES = {
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
FORBIDDEN_CALLS = re.compile(
    r"(torch\.(load|save|hub\.load|package)|(pd|pandas)\.(read_pickle|eval)|np\.fromfile|"
    r"\w+\.to_pickle|yaml\.\w+|os\.(system|popen|exec\w+|spawn\w+)|tarfile\.\w+|"
    r"shutil\.unpack_archive|\w+\.extractall|eval|exec|compile|__import__)"
)


# `headlab app` becomes Streamlit's server: this interpreter, with arguments that it has checked.
ALLOWED_CALLS = {("headlab/cli/app.py", "os.execv")}


def test_nothing_that_runs_what_it_reads_is_called() -> None:
    """No module of headlab imports pickle and its kind, or calls what runs data as code.

    `test_no_code_comes_in_with_data` checks the same in use. Ray's transport between its own
    processes is described in docs/security.md.
    """
    violations = []
    for path in [*ROOT.glob("headlab/**/*.py"), *ROOT.glob("pages/*.py"), ROOT / "app.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in imported_modules(node):
                if module.split(".")[0] in FORBIDDEN_MODULES:
                    violations.append(f"{path.name}: imports {module}")
            if isinstance(node, ast.Call) and FORBIDDEN_CALLS.fullmatch(ast.unparse(node.func)):
                call = ast.unparse(node.func)
                if (path.relative_to(ROOT).as_posix(), call) not in ALLOWED_CALLS:
                    violations.append(f"{path.name}:{node.lineno} {call}")
            if isinstance(node, ast.ImportFrom) and node.module == "torch":
                for alias in node.names:
                    if alias.name in ("load", "save"):
                        violations.append(f"{path.name}: from torch import {alias.name}")
    assert violations == []


def imported_modules(node: ast.AST) -> list[str]:
    """Names of the modules that a statement imports; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [str(node.module)]
    return []


def test_arrays_are_read_without_pickle() -> None:
    loads = []
    for path in ROOT.glob("headlab/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            if re.search(r"\b(np\.load|read_array)$", ast.unparse(node.func)):
                loads.append(ast.unparse(node))
    assert loads
    assert [call for call in loads if "allow_pickle=False" not in call] == []


def test_request_paths_name_no_file() -> None:
    """No route takes text in its path, and no field of a request is a path of a file."""
    description = api_docs.description()
    parameter_types = set()
    for operations in description["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                parameter_types.add(parameter["schema"]["type"])
    assert parameter_types == {"integer"}
    fields = set()
    for name, schema in description["components"]["schemas"].items():
        if name.endswith(("Request", "Submission", "Job")):
            fields |= set(schema.get("properties", {}))
    assert {"model", "languages", "method"} <= fields
    assert not [field for field in fields if re.search(r"path|file|folder|dir|cache|output", field)]


# Services


def services() -> dict[str, Any]:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    service_table: dict[str, Any] = compose["services"]
    return service_table


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
    uncommented_block = re.sub(r"^    # ", "    ", block.group(), flags=re.MULTILINE)
    compose_with_gpu = yaml.safe_load(text.replace(block.group(), uncommented_block))
    resources = compose_with_gpu["services"]["worker"]["deploy"]["resources"]
    (device,) = resources["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
