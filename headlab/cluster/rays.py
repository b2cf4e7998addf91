"""Devices of a Ray cluster: one actor per GPU, or per share of the CPUs."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol
from urllib.parse import urlsplit

from headlab import __version__
from headlab.cluster.distributed_game import Origin, Replica, Team
from headlab.cluster.pool import Lost, Pool
from headlab.core import HeadlabError, allowed_processors
from headlab.hooks import Model, load

# Read by Ray as it starts: no usage is reported, and a future default of Ray is set now.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
REACH_SECONDS = 5.0
WORDS = {
    "local": "processes of its own on this machine",
    "auto": "the cluster that this machine belongs to",
}


@dataclass(frozen=True)
class Shares:
    """How a cluster is divided.

    Attributes:
        count: actors.
        gpus, cpus: Per actor.
        threads: of an actor on CPUs.
    """

    count: int
    gpus: float
    cpus: float
    threads: int

    @property
    def kind(self) -> str:
        """What each actor computes on."""
        return "cuda" if self.gpus else "cpu"


def shares(nodes: Sequence[Mapping[str, float]], workers: int | None) -> Shares:
    """One actor per GPU if there are any, else one per CPU; `workers` of them if given.

    Fewer workers than CPUs get several each; more workers than GPUs or CPUs share them.

    Args:
        nodes: Resources of each machine; no actor spans two.

    Raises:
        HeadlabError: For no workers, or no GPUs and CPUs.
    """
    gpus, cpus = ([int(node.get(name, 0)) for node in nodes] for name in ("GPU", "CPU"))
    if workers is not None and workers < 1:
        raise HeadlabError(
            f"{workers} workers cannot compute anything; ask for 1 or more",
            code="ray.workers_too_few",
        )
    if not any(gpus) and not any(cpus):
        raise HeadlabError(
            "the Ray cluster offers neither GPUs nor processors; start a node that has some",
            code="ray.no_devices",
        )
    if any(gpus):
        count = workers or sum(gpus)
        return Shares(count, 1 / -(-count // sum(gpus)), 0.0, 1)
    count = workers or sum(cpus)
    if count > sum(cpus):
        return Shares(count, 0.0, 1 / -(-count // sum(cpus)), 1)
    each = max(
        size for size in range(1, max(cpus) + 1) if sum(node // size for node in cpus) >= count
    )
    return Shares(count, 0.0, float(each), each)


class Actor:
    """A `Replica` in a Ray process.

    The model is loaded by its first call, `hello`, so that its errors are reported.
    """

    def __init__(self, make: Callable[[], Replica]) -> None:
        self._make = make
        self._replica: Replica | None = None

    def do(self, method: str, *arguments: object) -> object:
        """Call a method of the replica."""
        if self._replica is None:
            self._replica = self._make()
        answer: object = getattr(self._replica, method)(*arguments)
        return answer


class Reference(Protocol):
    """Ray's reference to an answer that is not there yet."""

    def future(self) -> Future[object]:
        """The answer as a future."""


class RemoteMethod(Protocol):
    """`Actor.do` of an actor in a Ray process."""

    def remote(self, method: str, *arguments: object) -> Reference:
        """Start a call."""


class RemoteActor(Protocol):
    """Ray's handle of an `Actor`."""

    @property
    def do(self) -> RemoteMethod:
        """Its method."""


class RayDevice:
    """An actor as the pool sees it."""

    def __init__(self, ray: ModuleType, actor: RemoteActor) -> None:
        self._ray = ray
        self.actor = actor

    def call(self, method: str, *arguments: object) -> Future[object]:
        """See `Device.call`."""
        try:
            answer = self.actor.do.remote(method, *arguments).future()
        except self._ray.exceptions.RayError as error:
            answer = Future()
            answer.set_exception(error)
        return translated(answer, self._ray.exceptions)

    def end(self) -> None:
        """See `Device.end`."""
        with suppress(self._ray.exceptions.RayError):  # it has ended already
            self._ray.kill(self.actor)


def translated(answer: Future[object], errors: ModuleType) -> Future[object]:
    """The same answer, with Ray's errors translated: a task's own error to HeadlabError, any other to `Lost`.

    Args:
        answer: Of a call of an actor.
        errors: Ray's module of exceptions.
    """
    translated_answer: Future[object] = Future()

    def pass_on(done: Future[object]) -> None:
        error = done.exception()
        with suppress(InvalidStateError):
            if error is None:
                translated_answer.set_result(done.result())
            elif isinstance(error, errors.RayTaskError):
                translated_answer.set_exception(_own(error))
            else:
                translated_answer.set_exception(Lost(_first_line(error)))

    answer.add_done_callback(pass_on)
    return translated_answer


def _own(error: BaseException) -> BaseException:
    cause = getattr(error, "cause", None)
    if isinstance(cause, HeadlabError):
        return HeadlabError(str(cause), code=cause.code)
    # Its message is not passed on: it may quote an example.
    return HeadlabError(
        f"a Ray worker failed ({type(cause or error).__name__}); the same run without --ray shows "
        "more",
        code="ray.worker_failed",
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextmanager
def team(
    model: Model, address: str, workers: int | None = None, loader: Callable[..., Model] = load
) -> Iterator[Team]:
    """Devices of a Ray cluster for runs of one model, released at the end.

    Args:
        address: "local" starts Ray on this machine for the duration, "auto" finds the cluster that
            this machine belongs to, "host:port" names one.
        workers: actors; None for one per GPU, or one per CPU without GPUs.

    Raises:
        HeadlabError: If Ray is not installed or cannot be reached.
    """
    origin = Origin.of(model)
    with _connected(address, workers) as ray:
        cut = shares([node["Resources"] for node in ray.nodes() if node["Alive"]], workers)
        kind, threads = cut.kind, cut.threads if cut.kind == "cpu" else None
        actor = ray.remote(num_gpus=cut.gpus, num_cpus=cut.cpus, max_restarts=0)(Actor)

        def make() -> Replica:
            return Replica(origin, __version__, kind, threads, loader)

        pool = Pool(lambda: RayDevice(ray, actor.remote(make)), cut.count, cut.kind)
        try:
            yield Team(pool)
        finally:
            pool.close()


@contextmanager
def _connected(address: str, workers: int | None) -> Iterator[ModuleType]:
    """Ray, connected; an existing connection is used and left open."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    _reach(address)
    cores = {"num_cpus": max(workers or 0, allowed_processors())} if address == "local" else {}
    try:
        ray.init(
            address=address, include_dashboard=False if address == "local" else None, log_to_driver=False,
            logging_level=logging.ERROR, configure_logging=False, **cores,
        )  # fmt: skip
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise _nowhere(address, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise HeadlabError unless something listens at an address that names a host: Ray itself would try for minutes."""
    named = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if named in WORDS:
        return
    try:
        where = urlsplit(f"//{named}")
        if "/" in named:
            raise ValueError("an address has no slashes: headlab runs on a machine of the cluster")
        if not where.hostname or not where.port:
            raise ValueError("not of the form host:port")
        socket.create_connection((where.hostname, where.port), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        raise _nowhere(named, error) from error


def _nowhere(address: str, error: Exception) -> HeadlabError:
    why = _first_line(error)
    return HeadlabError(
        f"no Ray cluster at {address!r} ({why}); use local, auto on a machine of the cluster, or "
        "its host:port",
        code="ray.cluster_unreachable",
    )


def _ray() -> ModuleType:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise HeadlabError(
            "Ray is not installed here; run: pip install 'headlab[ray]'", code="package.ray_missing"
        ) from error
    return ray
