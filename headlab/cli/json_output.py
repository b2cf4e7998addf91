"""JSON on stdout, for commands that need nothing else of the others."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from headlab.core import JsonRecord

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object on stdout")]


def print_json(value: JsonRecord) -> None:
    """Print one indented JSON object on stdout."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # A reader of ASCII, or half a letter: JSON has escapes for what the stream cannot write.
        text = json.dumps(value, indent=1, allow_nan=False)
    sys.stdout.write(text + "\n")
