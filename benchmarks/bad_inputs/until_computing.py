"""headlab's command as people start it, but ended where it starts a long computation.

    python benchmarks/bad_inputs/until_computing.py score --model model -o samples=10000000

A number may be legal and still mean hours of work. So a command is ended once `MODULES_RUN` modules
of a model have been run, one is given a batch of `NUMBERS_AT_ONCE`, a training has made
`TRAINING_STEPS`, or `headlab doctor` has listed `FOLDERS_LISTED` folders, and a worker or the app once
it is ready to listen. That counts as accepted, since all arguments have been checked by then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any
from unittest import mock

MODULES_RUN = 2000
NUMBERS_AT_ONCE = 500_000
TRAINING_STEPS = 4
FOLDERS_LISTED = 20


class Computing(BaseException):
    """All arguments have been checked, and the work has begun."""


@contextmanager
def ended_when_computing() -> Iterator[None]:
    """Raise Computing once a model has been run for a while, or a worker would listen."""
    import uvicorn
    from torch import Tensor
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from headlab.doctor.files import Walk

    modules_run = 0
    training_steps = 0
    folders_listed = 0
    list_folder = Walk.list_folder

    def count(_: Any, arguments: tuple[Any, ...]) -> None:
        nonlocal modules_run
        modules_run += 1
        numbers = sum(part.numel() for part in arguments if isinstance(part, Tensor))
        if modules_run > MODULES_RUN or numbers > NUMBERS_AT_ONCE:
            raise Computing

    def count_step(*_: Any) -> None:
        nonlocal training_steps
        training_steps += 1
        if training_steps > TRAINING_STEPS:
            raise Computing

    def count_folder(walk: Walk, folder: Path) -> tuple[list[str], list[str]]:
        nonlocal folders_listed
        folders_listed += 1
        if folders_listed > FOLDERS_LISTED:
            raise Computing
        return list_folder(walk, folder)

    def listen(_: uvicorn.Server, sockets: Sequence[socket]) -> None:
        for listening in sockets:
            listening.close()
        raise Computing

    def serve_app(_: Sequence[str]) -> None:
        raise Computing

    hooks = (register_module_forward_pre_hook(count), register_optimizer_step_pre_hook(count_step))
    try:
        with (
            mock.patch.object(uvicorn.Server, "run", listen),
            mock.patch("headlab.cli.app.start_server", serve_app),
            mock.patch.object(Walk, "list_folder", count_folder),
        ):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def main() -> int:
    """Run the command of this process's arguments; 0 if it began to compute."""
    from headlab.cli.run import main as headlab_main

    try:
        with ended_when_computing():
            return headlab_main()
    except Computing:
        return 0


if __name__ == "__main__":
    sys.path[:1] = [str(Path(__file__).resolve().parents[2])]
    sys.exit(main())
