"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from headlab.errors import HeadlabError
from headlab.tasks.base import Example, Split, Task
from headlab.tasks.intents import intents_task

__all__ = ["TASKS", "Example", "Split", "Task", "task"]

TASKS: Mapping[str, Callable[[], Task]] = MappingProxyType({"intents": intents_task})


def task(name: str, languages: Sequence[str] | str | None = None) -> Task:
    """A task with some of its languages; all of them for None or "all".

    Raises HeadlabError for an unknown task or language, with those that exist.
    """
    if name not in TASKS:
        raise HeadlabError(f"no task {name!r}; there is {', '.join(TASKS)}")
    whole = TASKS[name]()
    if languages is None or languages == "all":
        return whole
    chosen = tuple(dict.fromkeys([languages] if isinstance(languages, str) else languages))
    if not chosen:
        raise HeadlabError(f"no language given; task {name} has {', '.join(whole.languages)}")
    return whole.restricted(chosen)
