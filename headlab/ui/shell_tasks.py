"""What the sidebar says of a task: whether it can be made, and what is missing before its examples can be read."""

from __future__ import annotations

from headlab.errors import HeadlabError
from headlab.tasks import names, problems, source, task


def unreadable(name: str) -> str:
    """Why a task cannot be made; empty if it can."""
    try:
        task(name)
    except HeadlabError as error:
        return str(error)
    return ""


def notes(name: str) -> list[str]:
    """What to know before a task's examples are asked for: where they are missing, and declarations left out."""
    known = name in names()
    found = [unreadable(name) or source(name).advice if known else "", *problems()]
    return [note for note in found if note]
