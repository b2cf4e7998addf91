"""`headlab train`: models trained from scratch, on files of one's own."""

from __future__ import annotations

import typer

from headlab.cli.train_lm import lm, lm_prune
from headlab.cli.train_translation import translation


def group() -> typer.Typer:
    """The commands of the group, a model each."""
    made = typer.Typer(
        help="Models trained from scratch, on files of your own.", no_args_is_help=True, rich_markup_mode=None
    )
    made.command("translation")(translation)
    made.command("lm")(lm)
    made.command("lm-prune")(lm_prune)
    # With one command alone, typer would make the group that command.
    made.callback()(_nothing)
    return made


def _nothing() -> None:
    """Models trained from scratch, on files of your own."""
