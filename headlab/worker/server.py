"""The worker's HTTP face: typed requests in, typed answers or one sentence out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from headlab import __version__
from headlab.errors import HeadlabError
from headlab.worker import catalogue
from headlab.worker.admission import admit_local
from headlab.worker.apidocs import add_docs
from headlab.worker.doors import TOO_LARGE, Doors, refused
from headlab.worker.engine import Engine
from headlab.worker.schemas import (
    AttentionRequest,
    EvaluateRequest,
    ExampleCard,
    Figure,
    GradientRequest,
    Health,
    LoadedModel,
    ModelCard,
    ModelRequest,
    Problem,
    Refusal,
    Scores,
    SentencesRequest,
    TaskCard,
    Weights,
)
from headlab.worker.server_jobs import add_jobs
from headlab.worker.streams import Inbox, first_of, lines_of, only

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503)
}
CODES = {  # of what the server itself refuses
    404: "request.path_unknown",
    405: "request.method_unknown",
    408: "request.too_slow",
    413: "request.too_large",
}
LINES = "application/x-ndjson"
FIGURES = {"content": {LINES: {"schema": {"$ref": "#/components/schemas/Figure"}}}}


def create_app(
    engine: Engine,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = LOCAL_HOSTS,
    admit: Callable[[str], str] = admit_local,
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
    app.add_middleware(Doors, token=token, hosts=hosts)
    app.add_exception_handler(HeadlabError, _say)
    app.add_exception_handler(RequestValidationError, _say_invalid)
    app.add_exception_handler(HTTPException, _say_http)
    _add_health(app, engine, state, note)
    _add_lists(app)
    _add_live(app, engine, admit)
    add_jobs(app, engine, admit)
    add_docs(app)
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
            jobs_waiting=engine.jobs.count("queued"),
            ray=engine.ray,
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
    async def ready(model: str) -> None:
        """The model may be asked for, and its files are here."""
        await run_in_threadpool(admit, model)
        await asyncio.wrap_future(engine.fetch(model))

    @app.post("/model", response_model=LoadedModel)
    async def model(request: ModelRequest, http: Request) -> BaseModel:
        await ready(request.model)
        return await only(http, lambda send: engine.load(request.model, send))

    @app.post("/attention", response_model=Weights)
    async def attention(request: AttentionRequest, http: Request) -> BaseModel:
        await ready(request.model)
        return await only(http, lambda send: engine.attention(request, send))

    @app.post("/gradient", response_model=Scores)
    async def gradient(request: GradientRequest, http: Request) -> BaseModel:
        """Gradient importance of every head in one language; kept in the store like any result."""
        await ready(request.model)
        return await only(http, lambda send: engine.gradient(request, send))

    @app.post("/evaluate", response_model=Figure, response_class=StreamingResponse, responses={200: FIGURES})
    async def evaluate(request: EvaluateRequest, http: Request) -> Response:
        """One JSON record a line, each over more examples; the last has `done`."""
        await ready(request.model)
        inbox = Inbox()
        live = engine.evaluate(request, inbox.send)
        # An error before any figure is an ordinary HTTP error.
        first = await first_of(live, inbox, http)
        return StreamingResponse(lines_of(live, inbox, first), media_type=LINES)


def _say(_: Request, error: Exception) -> Response:
    assert isinstance(error, HeadlabError)
    return refused(error.status if isinstance(error, Refusal) else 400, str(error), code=error.code)


def _say_invalid(_: Request, error: Exception) -> Response:
    """Where and why, never what was given: it may be a sentence of the user's."""
    assert isinstance(error, RequestValidationError)
    parts = [f"{_where(e['loc'])}: {e['msg']}" for e in error.errors()[:5]]
    return refused(422, "; ".join(parts), code="request.field_invalid")


def _where(place: Sequence[str | int]) -> str:
    """The field's name; a made-up one may be long, or no text at all."""
    name = ".".join(str(part) for part in place[1:])[:100]
    return name.encode(errors="replace").decode() or "the request"


def _say_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = TOO_LARGE if error.status_code == 413 else str(error.detail)
    return refused(error.status_code, sentence, code=CODES.get(error.status_code, "request.refused"))
