"""The worker's process from start to end: doors, folder, port, engine, and leaving with its parent."""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path

import uvicorn

from headlab.errors import HeadlabError
from headlab.files import write_json
from headlab.worker import catalogue
from headlab.worker.engine import Bench, Engine
from headlab.worker.failures import LOG_NAME
from headlab.worker.home import Home, announce, take_home
from headlab.worker.jobs import Jobs
from headlab.worker.server import LOCAL_HOSTS, create_app

log = logging.getLogger(__name__)
PORT = 8700
LOG_BYTES = 2 << 20
PARENT_SECONDS = 0.25
LAST_SECONDS = 8.0


@dataclass(frozen=True)
class Settings:
    """How a worker is started.

    port: 0 takes a free one.  warm: a model to load at once.  parent: process id whose end ends the
    worker.  told: a file that takes {"url"} or {"error"} once it is known.
    """

    cache: Path
    host: str = "127.0.0.1"
    port: int = PORT
    device: str | None = None
    warm: str | None = None
    parent: int | None = None
    told: Path | None = None


def serve(settings: Settings, make: Callable[[], Bench] | None = None) -> None:
    """Run a worker until it is told to stop. make: gives the bench; the real one if None.

    Raises HeadlabError if it cannot start: port in use, no token where one is needed, folder not writable.
    """
    try:
        token = _token(settings.host)
        listener = _listen(settings.host, settings.port)
        home = take_home(settings.cache)
    except HeadlabError as error:
        if settings.told is not None:
            write_json(settings.told, {"error": str(error)})
        raise
    _log_to(home.folder / LOG_NAME)
    url = f"http://{settings.host}:{listener.getsockname()[1]}"
    announce(home, url, settings.parent)
    if settings.told is not None:
        write_json(settings.told, {"url": url})
    _run(settings, home, listener, token, make or partial(_real_bench, settings))
    log.info("stopped")


def _run(settings: Settings, home: Home, listener: socket.socket, token: str | None, make: Callable[[], Bench]) -> None:
    jobs = Jobs(home.folder / "jobs.db")
    engine = Engine(make, jobs, catalogue.CHECKS, settings.warm)
    local = settings.host in LOCAL_HOSTS
    app = create_app(
        engine,
        token=token,
        hosts=LOCAL_HOSTS if local else ("*",),  # elsewhere the token is what a rebound page lacks
        admit=catalogue.admit_local if local else catalogue.admit_embedded,
        state=home.label,
        note=home.note,
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    server = uvicorn.Server(config)
    if settings.parent is not None:
        threading.Thread(target=_leave_with, args=(settings.parent, engine, server), name="parent", daemon=True).start()
    log.info("process %d listens on port %d, state in %s", os.getpid(), listener.getsockname()[1], home.label)
    server.run(sockets=[listener])
    if engine.stop(0):
        jobs.close()
    else:
        # A thread deep in a forward pass cannot be ended; the job stays "running" and the next start queues it.
        log.warning("a batch did not end in time; leaving without it")
        logging.shutdown()
        os._exit(0)


def _real_bench(settings: Settings) -> Bench:
    # Imported in the device's thread: torch takes seconds, and /health answers meanwhile.
    from headlab.worker.resident import Resident

    return Resident(settings.cache, settings.device)


def _token(host: str) -> str | None:
    token = os.environ.get("HEADLAB_TOKEN") or None
    if host not in LOCAL_HOSTS and token is None:
        raise HeadlabError(
            f"a worker on {host} could be asked by anyone who reaches it: set HEADLAB_TOKEN to a long random text "
            "here and where the app runs, or leave the host at 127.0.0.1"
        )
    return token


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=128)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise HeadlabError(
            f"cannot listen on {host}:{port} ({why}); choose another port with --port, or 0 for any free one"
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
