"""`python -m headlab.worker`: the worker's process."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from headlab.core import HeadlabError
from headlab.results import default_root
from headlab.worker.server import PORT, RAY_VARIABLE, WorkerSettings, serve


def parser() -> argparse.ArgumentParser:
    """The worker's options; `headlab worker` takes the same."""
    options = argparse.ArgumentParser(
        prog="headlab worker", description="Own one device: answer the app, run its jobs."
    )
    options.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; any but this machine's own needs HEADLAB_TOKEN",
    )
    options.add_argument(
        "--port", type=int, default=PORT, help="port to listen on; 0 takes a free one"
    )
    options.add_argument(
        "--cache",
        type=Path,
        default=None,
        help="folder of results (default: HEADLAB_CACHE, cache, or this platform's data folder)",
    )
    options.add_argument(
        "--device", default=None, help="cpu, cuda, cuda:1, ... (default: a GPU where there is one)"
    )
    options.add_argument("--warm", metavar="MODEL", default=None, help="a model to load at once")
    options.add_argument(
        "--allow",
        metavar="MODEL",
        action="append",
        default=[],
        help="beyond this machine, a model besides the embedded ones that may be loaded; repeatable",
    )
    options.add_argument(
        "--ray",
        metavar="WHERE",
        default=None,
        help="offer Ray for jobs: local, auto, host:port (default: HEADLAB_RAY)",
    )
    options.add_argument(
        "--workers",
        type=int,
        default=None,
        help="Ray workers (default: one a GPU, or one a processor)",
    )
    options.add_argument("--parent", type=int, default=None, help=argparse.SUPPRESS)
    options.add_argument("--told", type=Path, default=None, help=argparse.SUPPRESS)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run a worker. Returns the exit code: 0, or 2 if it could not start."""
    settings = vars(parser().parse_args(arguments))
    settings["cache"] = settings["cache"] or default_root()
    settings["ray"] = settings["ray"] or os.environ.get(RAY_VARIABLE) or None
    try:
        serve(WorkerSettings(**settings))
    except HeadlabError as error:
        sys.stderr.write(f"headlab worker: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
