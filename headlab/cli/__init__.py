"""The command line: `headlab COMMAND`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code.

    Args:
        arguments: The words after `headlab`; None for those of this process.
    """
    try:
        from headlab.cli.main import main as run_command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "headlab":
            raise
        sys.stderr.write(
            f"headlab: the command line needs the package {error.name}, which is not installed; "
            "run: pip install 'headlab[cli]'\n"
        )
        return 2
    return run_command(arguments)
