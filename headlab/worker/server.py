"""The worker's process and its HTTP interface: typed requests in, typed answers out."""

from __future__ import annotations

import asyncio
import faulthandler
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Any, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from headlab import __version__
from headlab.core import (
    CACHE_VARIABLE,
    CHOOSE_CACHE,
    HeadlabError,
    LockedFile,
    set_mode,
    unwritable_error,
    write_json,
)
from headlab.jobs import Estimate, ForecastBasis, Measured, Refusal, reason_of
from headlab.jobs.table import check_queued
from headlab.methods import Forecast
from headlab.results import store_with_demo
from headlab.worker import catalogue
from headlab.worker.apidocs import add_docs
from headlab.worker.catalogue import IMPORTING, Submission, submission_type
from headlab.worker.engine import Engine, LiveRequest, Message, left_by_reader_refusal
from headlab.worker.jobs import JobList
from headlab.worker.middleware import (
    REQUEST_SECONDS,
    TOO_LARGE,
    AccessControl,
    AllowedModels,
    Connection,
    admit_local,
    named_models,
    refusal_response,
)
from headlab.worker.process import Home, announce, take_home, token_of_environment
from headlab.worker.runner import Bench
from headlab.worker.schemas import (
    LOG_NAME,
    AttentionRequest,
    Changed,
    Deleted,
    EvaluateRequest,
    Figure,
    GradientRequest,
    Health,
    JobLog,
    JobRow,
    LoadedModel,
    LoadedPlayers,
    ModelRequest,
    PlayersRequest,
    Problem,
    Scores,
    Snapshot,
    Submitted,
    Weights,
    code_of,
    is_last,
    log_failure,
    sentence_of,
)

# From the device's thread to the server's: the records of one live request as they arrive.

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.25
AskEngine = Callable[[Callable[[Message], None]], LiveRequest]
T = TypeVar("T")


class Inbox:
    """Messages of one live request, sent from the device's thread, read in the server's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Message] = asyncio.Queue()

    def send(self, message: Message) -> None:
        """Called from any thread; does nothing once the server has stopped."""
        with suppress(RuntimeError):  # its loop is closed, which may happen at any moment
            self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    async def read(self) -> BaseModel:
        """The next record. Raises the exception that ended the request."""
        message = await self._queue.get()
        if isinstance(message, Exception):
            raise message
        return message


async def while_connected(waiting: Awaitable[T], http: Request) -> T:
    """What is waited for, as long as the client is connected.

    Raises:
        Refusal: (408) once it has left.
    """
    answer = asyncio.ensure_future(waiting)
    try:
        while not (await asyncio.wait({answer}, timeout=LOOK_SECONDS))[0]:
            if await http.is_disconnected():
                raise left_by_reader_refusal()
        return answer.result()
    finally:
        answer.cancel()


async def only_record(http: Request, engine: Engine, ask: AskEngine) -> BaseModel:
    """The only record of a request."""
    inbox = Inbox()
    live = ask(inbox.send)
    try:
        return await while_connected(inbox.read(), http)
    finally:
        engine.withdraw(live)


async def json_lines(inbox: Inbox, first_record: BaseModel) -> AsyncIterator[str]:
    """All records, including the first, as one line of JSON each.

    The last is final, or an error with its code.
    """
    record = first_record
    try:
        yield _line(record)
        while not is_last(record):
            record = await inbox.read()
            yield _line(record)
    except Exception as error:  # the status has been sent: the error is the last line
        if not isinstance(error, HeadlabError):
            log_failure(log, "a live request", error)
        yield json.dumps({"error": sentence_of(error), "code": code_of(error)}) + "\n"


def _line(record: BaseModel) -> str:
    return record.model_dump_json(exclude_none=True) + "\n"


class FigureLines(StreamingResponse):
    """The figures of a request, line by line."""

    def __init__(self, lines: AsyncIterator[str], leave: Callable[[], None]) -> None:
        """Nothing is sent yet.

        Args:
            lines: The figures, a line each.
            leave: Called when the answer ends, also if the client left before it began.
        """
        super().__init__(lines, media_type=LINES_TYPE)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the figures."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def figure_lines(http: Request, engine: Engine, request: EvaluateRequest) -> FigureLines:
    """The figures of a request as they come.

    An error before the first is an ordinary HTTP error.
    """
    inbox = Inbox()
    live = engine.evaluate(request, inbox.send)
    try:
        first_figure = await while_connected(inbox.read(), http)
    except BaseException:  # a client that left, too
        engine.withdraw(live)
        raise
    return FigureLines(json_lines(inbox, first_figure), partial(engine.withdraw, live))


# What a job will cost, from stored results and, where these are too few, from what was just timed.


def estimate_of(engine: Engine, request: Submission, measured: Measured | None = None) -> Estimate:
    """A job's cost as far as it is known.

    It reads the store, so it waits for the disk but not for the device.

    Args:
        engine: Has the store and the device.
        request: For the job.
        measured: What was just timed for it, if anything was.

    Raises:
        HeadlabError: For invalid params.
        Refusal: Before the device is ready (503).
    """
    job = request.spec.resolve_or_refuse()
    device = engine.device
    if device is None:
        raise engine.refusal(
            "the worker is getting its device ready; try again in a moment", code="worker.starting"
        )
    known = ForecastBasis.of_store(engine.store, device, measured, players=job.players_switched)
    return job.forecast(known)


# Routes about jobs: forecasting, submitting, following and ending them.

JobId = Annotated[int, PathParameter(ge=1, lt=1 << 63)]


def _add_jobs(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    submission = submission_type()

    def submit(request: Submission) -> Submitted:
        """Queue a job; the same work submitted twice is one job, wherever it is computed."""
        _admit(request, admit)
        return engine.submit(request.spec, request.place)

    async def forecast(request: Submission, http: Request) -> Forecast:
        """What a job will cost; if its pace is unknown, a few batches are timed."""
        await run_in_threadpool(_admit, request, admit)
        estimate = await run_in_threadpool(estimate_of, engine, request)
        if estimate.measure_request is None:
            return estimate.forecast
        measure_request = estimate.measure_request

        def ask(send: Callable[[Message], None]) -> LiveRequest:
            def measure(bench: Bench) -> BaseModel:
                return bench.measure(measure_request)

            return engine.ask(measure, measure_request.model, send, is_long=True)

        try:
            measured = await only_record(http, engine, ask)
        except Refusal as refusal:
            # A job holds another model, or too many wait: return what is known.
            basis = f"{estimate.forecast.basis} ({refusal})"
            return estimate.forecast.model_copy(update={"basis": basis})
        assert isinstance(measured, Measured)
        return (await run_in_threadpool(estimate_of, engine, request, measured)).forecast

    # Each kind of job has a type of its own, which is known only now: packages may have added some.
    submit.__annotations__["request"] = submission
    forecast.__annotations__["request"] = submission
    app.post("/jobs", status_code=202)(submit)
    app.post("/forecast")(forecast)

    @app.get("/jobs")
    def jobs() -> list[JobRow]:
        return engine.jobs.list()


def _add_job(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    @app.get("/jobs/{job}")
    def one(job: JobId) -> JobRow:
        return engine.jobs.get(job)

    @app.get("/jobs/{job}/snapshot")
    def snapshot(job: JobId) -> Snapshot:
        row = engine.jobs.get(job)
        scores = engine.scores_so_far(job)
        return Snapshot(
            job=row,
            scores=None if scores is None else Scores.from_scores(scores),
            front=engine.front_so_far(job),
        )

    @app.get("/jobs/{job}/log")
    def lines(job: JobId) -> JobLog:
        """The last 500 lines of a job's log."""
        return JobLog(lines=list(engine.jobs.log(job)))

    @app.delete("/jobs/{job}")
    def delete(job: JobId) -> Deleted:
        """Delete a job that is not running, with its log and checkpoints; results stay."""
        engine.delete(job)
        return Deleted()

    @app.post("/jobs/{job}/cancel")
    def cancel(job: JobId) -> JobRow:
        return engine.jobs.cancel(job)

    @app.post("/jobs/{job}/resume")
    def resume(job: JobId) -> JobRow:
        """Queue a cancelled or failed job again; it continues from its checkpoint."""
        model = engine.jobs.get(job).params.get("model")
        if model is not None:
            admit(str(model))  # it may date from when the worker was on loopback
        return engine.resume(job)


def _admit(request: Submission, admit: Callable[[str], str]) -> None:
    """Refuse a job on a model that may not be requested; fine-tuning has its own base model."""
    model = getattr(request.spec, "model", None)
    if model is not None:
        admit(str(model))


UNKNOWN_KIND = "union_tag_invalid"
"""Pydantic's type of the error of a request for a kind that is not in the union of requests."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503)
}
CODES_BY_STATUS = {  # of refusals by the server itself
    404: "request.path_unknown",
    405: "request.method_unknown",
    408: "request.too_slow",
    413: "request.too_large",
}
LINES_TYPE = "application/x-ndjson"
FIGURES = {"content": {LINES_TYPE: {"schema": {"$ref": "#/components/schemas/Figure"}}}}


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

    Args:
        engine: Does the work.
        token: Required in `Authorization: Bearer` for everything but /health; None for no token.
        hosts: Accepted Host headers; "*" for any.
        admit: Refuses models that may not be requested.
        state: For /health: the worker's folder, relative to the cache.
        note: For /health: what the dashboard says of that folder.
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
    app.add_middleware(AccessControl, token=token, hosts=hosts)
    for problem in (HeadlabError, RequestValidationError, HTTPException):
        app.add_exception_handler(problem, _error_response)
    _add_health(app, engine, state, note)
    catalogue.add_catalogue(app, engine.store.root, admit)
    _add_live(app, engine, admit)
    _add_jobs(app, engine, admit)
    _add_job(app, engine, admit)
    add_docs(app)
    return app


def _add_health(app: FastAPI, engine: Engine, state: str, note: str) -> None:
    @app.get("/health")
    def health() -> Health:
        trouble = engine.trouble
        notes = ("" if trouble is None else sentence_of(trouble), note, engine.jobs.note)
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


def _add_live(app: FastAPI, engine: Engine, admit: Callable[[str], str]) -> None:
    async def ready(http: Request, model: str) -> None:
        """Check that the model may be requested, and fetch its files."""
        await run_in_threadpool(admit, model)
        await while_connected(asyncio.wrap_future(engine.fetch(model)), http)

    async def answer_once(
        http: Request, model: str, work: Callable[[Bench], BaseModel], *, is_long: bool = False
    ) -> BaseModel:
        await ready(http, model)
        return await only_record(
            http, engine, lambda send: engine.ask(work, model, send, is_long=is_long)
        )

    @app.post("/model", response_model=LoadedModel)
    async def model(request: ModelRequest, http: Request) -> BaseModel:
        return await answer_once(http, request.model, lambda bench: bench.load(request.model))

    @app.post("/players", response_model=LoadedPlayers)
    async def players(request: PlayersRequest, http: Request) -> BaseModel:
        """What a model's players cost, those of a mask, and where they are."""
        return await answer_once(http, request.model, lambda bench: bench.players(request))

    @app.post("/attention", response_model=Weights)
    async def attention(request: AttentionRequest, http: Request) -> BaseModel:
        return await answer_once(http, request.model, lambda bench: bench.attention(request))

    @app.post("/changes", response_model=Changed)
    async def changes(request: EvaluateRequest, http: Request) -> BaseModel:
        """The answers that a mask changes in one language, with texts, labels and probabilities."""
        return await answer_once(
            http, request.model, lambda bench: bench.changes(request), is_long=True
        )

    @app.post("/gradient", response_model=Scores)
    async def gradient(request: GradientRequest, http: Request) -> BaseModel:
        """Gradient importance of every head in one language; stored like any result."""
        return await answer_once(
            http, request.model, lambda bench: bench.gradient(request), is_long=True
        )

    @app.post(
        "/evaluate",
        response_model=Figure,
        response_class=StreamingResponse,
        responses={200: FIGURES},
    )
    async def evaluate(request: EvaluateRequest, http: Request) -> Response:
        """One JSON record per line, each over more examples.

        The last has `done` true, or `error` and `code`.
        """
        await ready(http, request.model)
        return await figure_lines(http, engine, request)


def _error_response(_: Request, error: Exception) -> Response:
    if isinstance(error, HeadlabError):
        status = error.status if isinstance(error, Refusal) else 400
        return refusal_response(status, str(error), code=error.code)
    if isinstance(error, RequestValidationError):
        for problem in error.errors():
            if problem["type"] == UNKNOWN_KIND:
                try:
                    check_queued(problem["ctx"]["tag"])
                except Refusal as refusal:
                    return refusal_response(refusal.status, str(refusal), code=refusal.code)
        # The field and the reason, never the value: it may be a sentence.
        parts = [
            f"{_field_name(problem['loc'])}: {reason_of(problem['type'], problem['msg'])}"
            for problem in error.errors()[:5]
        ]
        return refusal_response(422, "; ".join(parts), code="request.field_invalid")
    assert isinstance(error, HTTPException)
    status = error.status_code
    sentence = TOO_LARGE if status == 413 else str(error.detail)
    code = CODES_BY_STATUS.get(status, "request.refused")
    return refusal_response(status, sentence, code=code)


def _field_name(location: Sequence[str | int]) -> str:
    """The field's name; an unknown one may be long, or not encodable."""
    name = ".".join(str(part) for part in location[1:])[:100]
    return name.encode(errors="replace").decode() or "the request"


# The worker's process from start to end: access, folder, port, engine, and stopping with its
# parent.

PORT = 8700
RAY_VARIABLE = "HEADLAB_RAY"
MAX_CONNECTIONS = 512
MAX_HEADER_BYTES = 16 << 10
LOG_BYTES = 2 << 20
PARENT_SECONDS = 0.25
LAST_SECONDS = 8.0


@dataclass(frozen=True)
class WorkerSettings:
    """How a worker is started.

    Attributes:
        cache: Folder of results.
        host: Address to listen on.
        port: Of that address; 0 takes a free one.
        device: Its name; None for a GPU where there is one.
        warm: A model to load at once.
        parent: Id of the process whose end stops the worker.
        told: A file that {"url"} or {"error", "code"} is written to once known.
        allow: Models besides the embedded ones that a worker open to other machines may load.
        ray: Where Ray jobs run, as in `headlab score`; None for no Ray.
        workers: Number of Ray workers; None for one a GPU or processor.
    """

    cache: Path
    host: str = "127.0.0.1"
    port: int = PORT
    device: str | None = None
    warm: str | None = None
    parent: int | None = None
    told: Path | None = None
    allow: Sequence[str] = ()
    ray: str | None = field(default_factory=lambda: os.environ.get(RAY_VARIABLE) or None)
    workers: int | None = None


@dataclass(frozen=True)
class Entrance:
    """Where a worker listens and which requests it accepts.

    Attributes:
        listener: The socket that it listens on.
        url: Its address.
        token: That requests must carry; None for no token.
        hosts: Accepted Host headers.
        admit: Refuses models that may not be requested.
    """

    listener: socket.socket
    url: str
    token: str | None
    hosts: tuple[str, ...]
    admit: Callable[[str], str]


def serve(settings: WorkerSettings, make_bench: Callable[[], Bench] | None = None) -> None:
    """Run a worker until it is stopped.

    Args:
        settings: How it is started.
        make_bench: Makes what does the work; None for the real one.

    Raises:
        HeadlabError: If it cannot start: the port is in use, there is no token where one is needed,
            or the folder cannot be written.
    """
    try:
        entrance = open_entrance(settings)
        try:
            home = take_home(settings.cache)
            _start_log(home.folder / LOG_NAME)
            _warn_of_lock(home.lock)
            jobs = JobList(home.folder / "jobs.db", without_locks=bool(home.lock.notice))
            announce(home, entrance.url, settings.parent)
        except HeadlabError:
            entrance.listener.close()
            raise
    except HeadlabError as error:
        if settings.told is not None:
            write_json(settings.told, {"error": str(error), "code": error.code})
        raise
    catalogue.read_entry_points()
    os.environ[CACHE_VARIABLE] = str(settings.cache)  # tasks are looked up where they are saved
    if settings.told is not None:
        write_json(settings.told, {"url": entrance.url})
    try:
        _run_server(settings, home, entrance, jobs, make_bench or partial(_model_host, settings))
    finally:
        home.lock.close()
    log.info("stopped")


def _run_server(
    settings: WorkerSettings,
    home: Home,
    entrance: Entrance,
    jobs: JobList,
    make_bench: Callable[[], Bench],
) -> None:
    ray = ""
    if settings.ray is not None:
        ray = "local" if settings.ray == "local" else "cluster"
    engine = Engine(make_bench, jobs, store_with_demo(settings.cache), settings.warm, ray=ray)
    app = create_app(
        engine,
        token=entrance.token,
        hosts=entrance.hosts,
        admit=entrance.admit,
        state=home.label,
        note=home.note,
    )
    server = server_of(app, lambda: engine.stop(0))
    if settings.parent is not None:
        threading.Thread(
            target=_stop_with_parent,
            args=(settings.parent, engine, server),
            name="parent",
            daemon=True,
        ).start()
    _tell_address(entrance.url, home, is_told=settings.told is not None)
    if threading.current_thread() is threading.main_thread():
        # uvicorn sends itself the signal again once it has stopped, which would end the process
        # before it tidies up.
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, server.handle_exit)
    server.run(sockets=[entrance.listener])
    if engine.stop(0):
        jobs.close()
    else:
        # A thread in a forward pass cannot be stopped; the job stays "running" and the next start
        # requeues it.
        log.warning("a batch did not end in time; leaving without it")
        home.lock.close()
        logging.shutdown()
        os._exit(0)


class Server(uvicorn.Server):
    """A server that stops the work before it waits for the answers under way.

    So these end with a reason.
    """

    def __init__(self, config: uvicorn.Config, stop_work: Callable[[], object]) -> None:
        super().__init__(config)
        self._stop_work = stop_work

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the work, then serve what remains of the answers."""
        self._stop_work()
        await super().shutdown(sockets)


def server_of(app: ASGIApp, stop_work: Callable[[], object] = lambda: None) -> uvicorn.Server:
    """The HTTP server of a worker, with limits on connections, header size and waiting time.

    Args:
        app: What it serves.
        stop_work: Called when the server is to stop, before it waits for the answers under way.
    """
    config = uvicorn.Config(
        app,
        http=Connection,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=int(REQUEST_SECONDS),
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    return Server(config, stop_work)


def _model_host(settings: WorkerSettings) -> Bench:
    # Imported in the device's thread: torch takes seconds, and /health answers meanwhile.
    with IMPORTING:
        from headlab.cluster.rays import team
        from headlab.worker.model_host import ModelHost

    helping = (
        None
        if settings.ray is None
        else partial(team, address=settings.ray, workers=settings.workers)
    )
    return ModelHost(settings.cache, settings.device, make_helpers=helping)


def open_entrance(settings: WorkerSettings) -> Entrance:
    """Listen, and decide who is admitted by the address actually bound.

    Raises HeadlabError: port in use, no or a weak token where one is needed, a model that cannot be
    allowed.
    """
    token = token_of_environment()
    warm = () if settings.warm is None else (settings.warm,)
    allowed_models = AllowedModels((*named_models(settings.allow), *warm))
    listener = _listen(settings.host, settings.port)
    address, port = listener.getsockname()[:2]
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{name}:{port}"
    if ipaddress.ip_address(address).is_loopback:
        return Entrance(listener, url, token, (*LOCAL_HOSTS, name.lower()), admit_local)
    if token is None:
        listener.close()
        raise HeadlabError(
            f"a worker on {settings.host} could be used by anyone who can reach it: set "
            "HEADLAB_TOKEN to a long random text here and where the app runs, or leave the host "
            "at 127.0.0.1",
            code="worker.token_missing",
        )
    # Any host: a page whose own name resolves to this machine (DNS rebinding) still lacks the
    # token.
    return Entrance(listener, url, token, ("*",), allowed_models)


def _listen(host: str, port: int) -> socket.socket:
    try:
        if not host:
            raise OSError(0, "no address is named")
        host.encode("idna")  # raises ValueError for a name that no machine can have
        is_ipv6 = ":" in host
        family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
        return socket.create_server(
            (host, port), family=family, backlog=128, dualstack_ipv6=host == "::"
        )
    except (OSError, OverflowError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise HeadlabError(
            f"cannot listen on {host}:{port} ({reason}); choose another port with --port, 0 for "
            "any free one, or an address of this machine with --host",
            code="worker.port_unusable",
        ) from error


def _warn_of_lock(lock: LockedFile) -> None:
    """Say in the log and where the worker was started that the kernel does not keep this lock."""
    if not lock.notice:
        return
    log.warning("%s", lock.notice)
    if sys.stderr is not None and not sys.stderr.isatty():  # on a terminal the log is shown anyway
        sys.stderr.write(f"headlab worker: {lock.notice}\n")


def _tell_address(url: str, home: Home, *, is_told: bool) -> None:
    """Say in the log and where the worker was started at which address it listens.

    Args:
        url: The address, with the port that it really has.
        home: The worker's folder.
        is_told: Whether another program that started it has read the address from a file.
    """
    log.info("process %d listens at %s, state in %s", os.getpid(), url, home.label)
    # On a terminal the log is shown anyway.
    if is_told or sys.stderr is None or sys.stderr.isatty():
        return
    sys.stderr.write(f"headlab worker: listens at {url}\n")
    sys.stderr.flush()


def _start_log(path: Path) -> None:
    """Write the log to a file that only its owner can read, and to a terminal if there is one."""
    try:
        file = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        raise unwritable_error(path, error, CHOOSE_CACHE) from error
    set_mode(path, 0o600)
    handlers: list[logging.Handler] = [file]
    if sys.stderr is not None and sys.stderr.isatty():
        handlers.append(logging.StreamHandler())
    logging.basicConfig(
        level=logging.INFO,
        handlers=handlers,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        force=True,
    )
    logging.captureWarnings(True)
    # Without stderr, or with one that is not a file, there is nowhere to write what ends the
    # process.
    with suppress(RuntimeError, OSError):
        faulthandler.enable()


def _stop_with_parent(parent: int, engine: Engine, server: uvicorn.Server) -> None:
    """Stop gracefully once the parent has ended, by force if that takes too long."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    log.info("the process that started this worker has gone")
    engine.stop(0)
    server.should_exit = True
    time.sleep(LAST_SECONDS)
    os._exit(0)
