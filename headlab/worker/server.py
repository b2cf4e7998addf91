"""The worker's HTTP face: typed requests in, typed answers or one sentence out."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse, Response, StreamingResponse

from headlab import __version__
from headlab.errors import HeadlabError
from headlab.worker import catalogue
from headlab.worker.doors import TOO_LARGE, Doors
from headlab.worker.engine import Engine
from headlab.worker.failures import log_failure, sentence_of
from headlab.worker.live import End, Live, Message
from headlab.worker.schemas import (
    AttentionRequest,
    EvaluateRequest,
    ExampleCard,
    Figure,
    Health,
    Job,
    LoadedModel,
    ModelCard,
    ModelRequest,
    Problem,
    Refusal,
    Scores,
    SentencesRequest,
    Snapshot,
    SubmitRequest,
    Submitted,
    TaskCard,
    Weights,
)
from headlab.worker.snapshots import told

log = logging.getLogger(__name__)
LOCAL_HOSTS = ("127.0.0.1", "localhost")
LOOK_SECONDS = 0.25
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
}
Ask = Callable[[Callable[[Message], None]], Live]


class Inbox:
    """Messages of one live request, sent from the device's thread, read in the server's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Message] = asyncio.Queue()

    def send(self, message: Message) -> None:
        """Called from the device's thread; a server that has gone takes nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    async def read(self) -> BaseModel | End:
        """The next record, or the end. Raises what ended the request."""
        message = await self._queue.get()
        if isinstance(message, Exception):
            raise message
        return message


def create_app(
    engine: Engine,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = LOCAL_HOSTS,
    admit: Callable[[str], str] = catalogue.admit_local,
    state: str = "",
    note: str = "",
) -> FastAPI:
    """The worker's application around an engine.

    token: needed in `Authorization: Bearer` for everything but /health, if given.  hosts: Host headers
    that are answered ("*": any).  admit: refuses models that may not be asked for.  state, note: for /health.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await run_in_threadpool(engine.stop)

    app = FastAPI(
        title="headlab worker",
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.add_middleware(Doors, token=token)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app.add_exception_handler(HeadlabError, _say)
    app.add_exception_handler(RequestValidationError, _say_invalid)
    app.add_exception_handler(HTTPException, _say_http)
    _add_health(app, engine, state, note)
    _add_lists(app)
    _add_live(app, engine, admit)
    _add_jobs(app, engine, admit)
    return app


def _add_health(app: FastAPI, engine: Engine, state: str, note: str) -> None:
    @app.get("/health")
    def health() -> Health:
        notes = (engine.trouble, note, engine.jobs.note)
        return Health(
            ok=engine.alive,
            device=engine.device,
            model=engine.resident,
            jobs_running=engine.jobs.count("running"),
            version=__version__,
            pid=os.getpid(),
            state=state,
            note="; ".join(n for n in notes if n),
        )


def _add_lists(app: FastAPI) -> None:
    @app.get("/models")
    def models() -> list[ModelCard]:
        return catalogue.models()

    @app.get("/tasks")
    def tasks() -> list[TaskCard]:
        return catalogue.tasks()

    @app.post("/sentences")
    def sentences(request: SentencesRequest) -> list[ExampleCard]:
        return catalogue.sentences(request)


def _add_live(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    @app.post("/model", response_model=LoadedModel)
    async def model(request: ModelRequest, http: Request) -> BaseModel:
        await run_in_threadpool(admit, request.model)
        return await _only(http, lambda send: engine.load(request.model, send))

    @app.post("/attention", response_model=Weights)
    async def attention(request: AttentionRequest, http: Request) -> BaseModel:
        await run_in_threadpool(admit, request.model)
        return await _only(http, lambda send: engine.attention(request, send))

    @app.post("/evaluate", response_model=Figure, response_class=StreamingResponse)
    async def evaluate(request: EvaluateRequest, http: Request) -> Response:
        """One JSON record a line, each over more examples; the last has `done`."""
        await run_in_threadpool(admit, request.model)
        inbox = Inbox()
        live = engine.evaluate(request, inbox.send)
        # An error before any figure is an ordinary HTTP error.
        first = await _first(live, inbox, http)
        return StreamingResponse(_lines(live, inbox, first), media_type="application/x-ndjson")


async def _first(live: Live, inbox: Inbox, http: Request) -> BaseModel | End:
    """The first record; nothing is computed for a client that has gone while it waited."""
    reading = asyncio.ensure_future(inbox.read())
    try:
        while not (await asyncio.wait({reading}, timeout=LOOK_SECONDS))[0]:
            live.stopped = live.stopped or await http.is_disconnected()
    except asyncio.CancelledError:
        live.stopped = True
        reading.cancel()
        raise
    return reading.result()


async def _only(http: Request, ask: Ask) -> BaseModel:
    """The one record of a request."""
    inbox = Inbox()
    record = await _first(ask(inbox.send), inbox, http)
    if isinstance(record, End):
        raise Refusal("the worker is going down; try again in a moment", 503)
    return record


async def _lines(live: Live, inbox: Inbox, first: BaseModel | End) -> AsyncIterator[str]:
    record = first
    try:
        while not isinstance(record, End):
            yield record.model_dump_json(exclude_none=True) + "\n"
            record = await inbox.read()
        if record.superseded:
            yield '{"superseded": true, "done": false}\n'
    except Exception as error:  # the status has been sent: the sentence travels as the last line
        yield json.dumps({"error": _told(error)}) + "\n"
    finally:
        live.stopped = True


def _add_jobs(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    @app.post("/jobs", status_code=202)
    def submit(request: SubmitRequest) -> Submitted:
        admit(request.spec.model)
        return engine.submit(request.kind, request.spec.model_dump())

    @app.get("/jobs")
    def jobs() -> list[Job]:
        return engine.jobs.list()

    @app.get("/jobs/{job}")
    def one(job: int) -> Job:
        return engine.jobs.get(job)

    @app.get("/jobs/{job}/snapshot")
    def snapshot(job: int) -> Snapshot:
        found, scores = engine.jobs.get(job), engine.look(job)
        return Snapshot(job=found, scores=None if scores is None else Scores(**told(scores)))

    @app.post("/jobs/{job}/cancel")
    def cancel(job: int) -> Job:
        return engine.jobs.cancel(job)

    @app.post("/jobs/{job}/resume")
    def resume(job: int) -> Job:
        return engine.resume(job)


def _told(error: Exception) -> str:
    """What the asker is told; what nobody expected goes to the log."""
    if not isinstance(error, HeadlabError):
        log_failure(log, "a live request", error)
    return sentence_of(error)


def _say(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, error.status if isinstance(error, Refusal) else 400)


def _say_invalid(_: Request, error: Exception) -> Response:
    """Where and why, never what was given: it may be a sentence of the user's."""
    assert isinstance(error, RequestValidationError)
    parts = [f"{'.'.join(str(p) for p in e['loc'][1:]) or 'the request'}: {e['msg']}" for e in error.errors()[:5]]
    return JSONResponse({"error": "; ".join(parts)}, 422)


def _say_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = TOO_LARGE if error.status_code == 413 else str(error.detail)
    return JSONResponse({"error": sentence}, error.status_code)
