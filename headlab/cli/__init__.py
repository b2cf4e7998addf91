"""The command line: `headlab score|evaluate|prune|finetune|models|tasks|cache|worker`."""

from headlab.cli.main import main

__all__ = ["main"]
