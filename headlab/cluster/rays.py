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
RAY_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
REACH_SECONDS = 5.0
ADDRESS_WORDS = {
    "local": "processes of its own on this machine",
    "auto": "the cluster that this machine belongs to",
}


@dataclass(frozen=True)
class Shares:
    """How a cluster is divided.

    Attributes:
        count: Number of actors.
        gpus: GPUs of each actor.
        cpus: CPUs of each actor.
        threads: CPU threads of an actor without a GPU.
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
        workers: Number of actors; None for one per GPU or CPU.

    Raises:
        HeadlabError: For no workers, or no GPUs and CPUs.
    """
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    cpus = [int(node.get("CPU", 0)) for node in nodes]
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
    processors_each = max(
        size for size in range(1, max(cpus) + 1) if sum(node // size for node in cpus) >= count
    )
    return Shares(count, 0.0, float(processors_each), processors_each)


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
        return with_translated_errors(answer, self._ray.exceptions)

    def end(self) -> None:
        """See `Device.end`."""
        with suppress(self._ray.exceptions.RayError):  # it has ended already
            self._ray.kill(self.actor)


def with_translated_errors(answer: Future[object], errors: ModuleType) -> Future[object]:
    """The same answer, with Ray's errors translated.

    A task's own error becomes a HeadlabError, any other `Lost`.

    Args:
        answer: Answer to a call of an actor.
        errors: Ray's module of exceptions.
    """
    translated_answer: Future[object] = Future()

    def pass_on(ray_answer: Future[object]) -> None:
        error = ray_answer.exception()
        with suppress(InvalidStateError):
            if error is None:
                translated_answer.set_result(ray_answer.result())
            elif isinstance(error, errors.RayTaskError):
                translated_answer.set_exception(_error_of_task(error))
            else:
                translated_answer.set_exception(Lost(_first_line(error)))

    answer.add_done_callback(pass_on)
    return translated_answer


def _error_of_task(error: BaseException) -> BaseException:
    """The HeadlabError for what a task raised."""
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
        workers: Number of actors; None for one per GPU, or one per CPU without GPUs.
        loader: Loads the model in each actor.

    Raises:
        HeadlabError: If Ray is not installed or cannot be reached.
    """
    origin = Origin.of(model)
    with _connected_ray(address, workers) as ray:
        cluster_shares = shares(
            [node["Resources"] for node in ray.nodes() if node["Alive"]], workers
        )
        kind = cluster_shares.kind
        threads = cluster_shares.threads if kind == "cpu" else None
        actor = ray.remote(
            num_gpus=cluster_shares.gpus, num_cpus=cluster_shares.cpus, max_restarts=0
        )(Actor)

        def make() -> Replica:
            return Replica(origin, __version__, kind, threads, loader)

        pool = Pool(
            lambda: RayDevice(ray, actor.remote(make)), cluster_shares.count, cluster_shares.kind
        )
        try:
            yield Team(pool)
        finally:
            pool.close()


@contextmanager
def _connected_ray(address: str, workers: int | None) -> Iterator[ModuleType]:
    """Ray, connected until the block ends; an existing connection is used and left open.

    Args:
        address: As in `team`.
        workers: Number of actors that Ray on this machine must have processors for, if given.
    """
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    _require_reachable(address)
    local_settings = {}
    if address == "local":
        local_settings["num_cpus"] = max(workers or 0, allowed_processors())
    try:
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            **local_settings,
        )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise _unreachable_error(address, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    """Raise HeadlabError unless something listens at an address that names a host.

    Ray itself would try for minutes.
    """
    named_address = address
    if address == "auto":
        named_address = os.environ.get("RAY_ADDRESS", address)
    if named_address in ADDRESS_WORDS:
        return
    try:
        parsed_address = urlsplit(f"//{named_address}")
        if "/" in named_address:
            raise ValueError("an address has no slashes: headlab runs on a machine of the cluster")
        if not parsed_address.hostname or not parsed_address.port:
            raise ValueError("not of the form host:port")
        socket.create_connection(
            (parsed_address.hostname, parsed_address.port), REACH_SECONDS
        ).close()
    except (OSError, ValueError) as error:
        raise _unreachable_error(named_address, error) from error


def _unreachable_error(address: str, error: Exception) -> HeadlabError:
    """The error for an address at which there is no Ray cluster."""
    reason = _first_line(error)
    return HeadlabError(
        f"no Ray cluster at {address!r} ({reason}); use local, auto on a machine of the cluster, "
        "or its host:port",
        code="ray.cluster_unreachable",
    )


def _import_ray() -> ModuleType:
    """Ray, imported with the settings of `RAY_ENVIRONMENT` that the environment does not have."""
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise HeadlabError(
            "Ray is not installed here; run: pip install 'headlab[ray]'", code="package.ray_missing"
        ) from error
    return ray
