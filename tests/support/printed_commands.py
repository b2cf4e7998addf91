"""The commands that a report prints, and their arguments as the command line reads them."""

from __future__ import annotations

import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import typer

from headlab.cli.run import build


def commands_in(path: Path) -> list[str]:
    """The commands in a report's file, as a person copies them."""
    text = path.read_text(encoding="utf-8")
    blocks = re.findall("<pre><code>(.*?)</code></pre>", text)
    return [unescape(re.sub("<[^>]+>", "", block)) for block in blocks]


def command_arguments(line: str) -> tuple[str, dict[str, Any]]:
    """The name of a command and its arguments, as the command line reads them."""
    _, name, *arguments = shlex.split(line)
    command = typer.main.get_command(build()).commands[name]  # type: ignore[attr-defined] # a group
    return name, command.make_context(name, arguments).params
