"""The command line: `headlab COMMAND`."""

from headlab.cli.main import main

__all__ = ["main"]
