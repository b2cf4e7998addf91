"""A worker in this process: the real engine, job list and HTTP server, on a free port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from headlab.masks import Mask
from headlab.results import Store
from headlab.worker.client import Client
from headlab.worker.engine import Engine
from headlab.worker.jobs import JobList
from headlab.worker.middleware import admit_local
from headlab.worker.runner import Bench
from headlab.worker.schemas import AttentionRequest, EvaluateRequest
from headlab.worker.server import create_app
from support.waiting import wait_until


def evaluate_request(
    model: str, task: str, language: str, mask: Mask | None = None, **settings: object
) -> EvaluateRequest:
    """A request for figures that is not checked before the worker gets it."""
    return EvaluateRequest.model_construct(
        model=model, task=task, language=language, mask=mask, **settings
    )


def attention_request(
    model: str, text: str, heads: Sequence[Sequence[str | int]], **settings: object
) -> AttentionRequest:
    """A request for attention that is not checked before the worker gets it.

    Args:
        model: Name of the model.
        text: The sentence.
        heads: Stack, layer and head of each.
        settings: The other fields of the request.
    """
    return AttentionRequest.model_construct(model=model, text=text, heads=heads, **settings)


@dataclass(frozen=True)
class RunningWorker:
    url: str
    client: Client
    engine: Engine
    jobs: JobList


@contextmanager
def started_worker(
    folder: Path,
    make: Callable[[], Bench],
    token: str | None = None,
    admit: Callable[[str], str] = admit_local,
    ray: str = "",
    *,
    wait: bool = True,
) -> Iterator[RunningWorker]:
    """A worker in this process, on a port of its own.

    Args:
        folder: Its cache.
        make: Makes the bench that the device's thread works with.
        token: The token that requests must carry; None for none.
        admit: Checks the model of a request (see `create_app`).
        ray: Address of a Ray cluster; empty for none.
        wait: Whether to wait for the device; requests that need it are refused until it is there.
    """
    jobs = JobList(folder / "jobs.db")
    engine = Engine(make, jobs, Store(folder), ray=ray)
    app = create_app(engine, token=token, admit=admit, state=".worker")
    listener = socket.create_server(("127.0.0.1", 0))
    # as in a worker's process
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=2)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    client = Client(url, token)
    try:
        if wait:
            wait_until(lambda: engine.device is not None, "the device")
        yield RunningWorker(url, client, engine, jobs)
    finally:
        client.close()
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
        engine.stop(0)
        jobs.close()
        listener.close()
