"""The worker's process from start to end: doors, folder, port, engine, and leaving with its parent."""

from __future__ import annotations

import faulthandler
import ipaddress
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from headlab.errors import HeadlabError
from headlab.files import write_json
from headlab.store import Store
from headlab.worker import catalogue
from headlab.worker.catalogue import IMPORTING
from headlab.worker.engine import Engine
from headlab.worker.jobs import Jobs
from headlab.worker.middleware import REQUEST_SECONDS, Allowed, Connection, admit_local, named_models
from headlab.worker.runner import Bench
from headlab.worker.schemas import LOG_NAME
from headlab.worker.server import LOCAL_HOSTS, create_app
from headlab.worker.state_dir import Home, announce, take_home, token_of_environment

log = logging.getLogger(__name__)
PORT = 8700
RAY = "HEADLAB_RAY"
MAX_CONNECTIONS = 512
MAX_HEADER_BYTES = 16 << 10
LOG_BYTES = 2 << 20
PARENT_SECONDS = 0.25
LAST_SECONDS = 8.0


@dataclass(frozen=True)
class Settings:
    """How a worker is started.

    port: 0 takes a free one.  warm: a model to load at once.  parent: process id whose end ends the
    worker.  told: a file that takes {"url"} or {"error", "code"} once it is known.  allow: models besides the
    embedded ones that a worker which others can reach may load.  ray, workers: where jobs placed on Ray go, as in
    `headlab score`; None has no such place.
    """

    cache: Path
    host: str = "127.0.0.1"
    port: int = PORT
    device: str | None = None
    warm: str | None = None
    parent: int | None = None
    told: Path | None = None
    allow: tuple[str, ...] = ()
    ray: str | None = field(default_factory=lambda: os.environ.get(RAY) or None)
    workers: int | None = None


@dataclass(frozen=True)
class Entrance:
    """Where a worker listens and whom it lets in.  hosts: Host headers it answers."""

    listener: socket.socket
    url: str
    token: str | None
    hosts: tuple[str, ...]
    admit: Callable[[str], str]


def serve(settings: Settings, make: Callable[[], Bench] | None = None) -> None:
    """Run a worker until it is told to stop. make: gives the bench; the real one if None.

    Raises HeadlabError if it cannot start: port in use, no token where one is needed, folder not writable.
    """
    try:
        entrance = open_entrance(settings)
        home = take_home(settings.cache)
        jobs = Jobs(home.folder / "jobs.db")
    except HeadlabError as error:
        if settings.told is not None:
            write_json(settings.told, {"error": str(error), "code": error.code})
        raise
    _log_to(home.folder / LOG_NAME)
    announce(home, entrance.url, settings.parent)
    if settings.told is not None:
        write_json(settings.told, {"url": entrance.url})
    _run(settings, home, entrance, jobs, make or partial(_real_bench, settings))
    log.info("stopped")


def _run(settings: Settings, home: Home, entrance: Entrance, jobs: Jobs, make: Callable[[], Bench]) -> None:
    engine = Engine(make, jobs, catalogue.CHECKS, Store(settings.cache), settings.warm, ray=word_for(settings.ray))
    app = create_app(
        engine,
        token=entrance.token,
        hosts=entrance.hosts,
        admit=entrance.admit,
        state=home.label,
        note=home.note,
    )
    server = server_of(app)
    if settings.parent is not None:
        threading.Thread(target=_leave_with, args=(settings.parent, engine, server), name="parent", daemon=True).start()
    log.info("process %d listens at %s, state in %s", os.getpid(), entrance.url, home.label)
    server.run(sockets=[entrance.listener])
    if engine.stop(0):
        jobs.close()
    else:
        # A thread deep in a forward pass cannot be ended; the job stays "running" and the next start queues it.
        log.warning("a batch did not end in time; leaving without it")
        logging.shutdown()
        os._exit(0)


def server_of(app: ASGIApp) -> uvicorn.Server:
    """The HTTP server of a worker, with limits on connections, heads and waiting."""
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
    return uvicorn.Server(config)


def _real_bench(settings: Settings) -> Bench:
    # Imported in the device's thread: torch takes seconds, and /health answers meanwhile.
    with IMPORTING:
        from headlab.cluster.rays import team
        from headlab.worker.model_host import Resident

    helping = None if settings.ray is None else partial(team, address=settings.ray, workers=settings.workers)
    return Resident(settings.cache, settings.device, helping=helping)


def word_for(ray: str | None) -> str:
    """What people are told of the place that jobs on Ray go to."""
    return "" if ray is None else "local" if ray == "local" else "cluster"


def open_entrance(settings: Settings) -> Entrance:
    """Listen, and decide by the address that was really taken who may come in.

    Raises HeadlabError: port in use, no or a weak token where one is needed, a model that cannot be allowed.
    """
    token = token_of_environment()
    warm = () if settings.warm is None else (settings.warm,)
    allowed = Allowed((*named_models(settings.allow), *warm))
    listener = _listen(settings.host, settings.port)
    address, port = listener.getsockname()[:2]
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{name}:{port}"
    if ipaddress.ip_address(address).is_loopback:
        return Entrance(listener, url, token, (*LOCAL_HOSTS, name.lower()), admit_local)
    if token is None:
        listener.close()
        raise HeadlabError(
            f"a worker on {settings.host} could be asked by anyone who reaches it: set HEADLAB_TOKEN to a long random "
            "text here and where the app runs, or leave the host at 127.0.0.1",
            code="worker.token_missing",
        )
    # The token is what a page lacks that makes its own name point here.
    return Entrance(listener, url, token, ("*",), allowed)


def _listen(host: str, port: int) -> socket.socket:
    try:
        if not host:
            raise OSError(0, "no address is named")
        six = ":" in host
        family = socket.AF_INET6 if six else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=host == "::")
    except (OSError, OverflowError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise HeadlabError(
            f"cannot listen on {host}:{port} ({why}); choose another port with --port, 0 for any free one, or an "
            "address of this machine with --host",
            code="worker.port_unusable",
        ) from error


def _log_to(path: Path) -> None:
    handlers: list[logging.Handler] = [RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")]
    if sys.stderr is not None and sys.stderr.isatty():
        handlers.append(logging.StreamHandler())
    logging.basicConfig(
        level=logging.INFO, handlers=handlers, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.captureWarnings(True)
    path.chmod(0o600)
    faulthandler.enable()


def _leave_with(parent: int, engine: Engine, server: uvicorn.Server) -> None:
    """Stop in order once the parent has gone; hard if that takes too long."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    log.info("the process that started this worker has gone")
    engine.stop(0)
    server.should_exit = True
    time.sleep(LAST_SECONDS)
    os._exit(0)
