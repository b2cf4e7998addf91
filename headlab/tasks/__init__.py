"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from headlab.errors import HeadlabError
from headlab.tasks.base import Example, Split, Task
from headlab.tasks.intents import intents_task
from headlab.tasks.xnli import xnli_task

__all__ = ["TASKS", "Example", "Split", "Task", "task"]

def embedded_intents(_: Path | None) -> Task:
    """The task intents, whose data come with the packages."""
    return intents_task()


# Each is made from the folder its files are in (None: $HEADLAB_DATA, or what comes with it).
TASKS: Mapping[str, Callable[[Path | None], Task]] = MappingProxyType({"intents": embedded_intents, "xnli": xnli_task})


def task(name: str, languages: Sequence[str] | str | None = None, *, data: Path | None = None) -> Task:
    """A task with some of its languages; all of them for None or "all".

    data: folder of the task's files; None takes $HEADLAB_DATA.  Raises HeadlabError for an unknown task
    or language, with those that exist.
    """
    if name not in TASKS:
        raise HeadlabError(f"no task {name!r}; there is {', '.join(TASKS)}")
    whole = TASKS[name](data)
    if languages is None or languages == "all":
        return whole
    chosen = tuple(dict.fromkeys([languages] if isinstance(languages, str) else languages))
    if not chosen:
        raise HeadlabError(f"no language given; task {name} has {', '.join(whole.languages)}")
    return whole.restricted(chosen)
