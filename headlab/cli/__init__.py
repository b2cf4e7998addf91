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
    from headlab.core import HeadlabError, needs_extra

    try:
        with needs_extra("cli"):
            from headlab.cli.run import main as run_command
    except HeadlabError as error:
        sys.stderr.write(f"headlab: [{error.code}] {error}\n")
        return 2
    return run_command(arguments)
