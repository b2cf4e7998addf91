"""The declarations that whoever runs headlab has named in $HEADLAB_TASKS: the only ones a request may ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headlab.errors import HeadlabError
from headlab.tasks.base import Source, Task
from headlab.tasks.declared import declared_source, declared_task, read_declaration

VARIABLE = "HEADLAB_TASKS"


class Named(NamedTuple):
    """Declared tasks by name, where their examples come from, and what is wrong with declarations that are left out."""

    makers: dict[str, Callable[[Path | None], Task]]
    sources: dict[str, Source]
    problems: list[str]


def named_tasks(taken: Collection[str]) -> Named:
    """The tasks of the TOML files in $HEADLAB_TASKS, separated as in $PATH.  taken: names they may not have."""
    found = Named({}, {}, [])
    for text in os.environ.get(VARIABLE, "").split(os.pathsep):
        path = Path(text.strip())
        if not text.strip():
            continue
        try:
            said = read_declaration(path)
        except HeadlabError as error:
            found.problems.append(f"{VARIABLE}: {error}")
            continue
        if said.name in taken or said.name in found.makers:
            found.problems.append(f"{VARIABLE}: {path} declares {said.name}, which is another task's name; change it")
            continue
        found.makers[said.name] = partial(declared_task, path)
        found.sources[said.name] = declared_source(path)
    return found
