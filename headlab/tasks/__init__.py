"""Tasks by name: those that are built in, and a user's own that whoever runs this has named in $HEADLAB_TASKS."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from headlab.errors import HeadlabError
from headlab.extensions import Registry
from headlab.tasks import translation, udpos, xnli
from headlab.tasks.base import TREEBANK, Example, Source, Split, Task
from headlab.tasks.declared import declared_source, declared_task, read_declaration
from headlab.tasks.intents import intents_task
from headlab.tasks.slots import slots_task

# The declarations that whoever runs headlab has named in $HEADLAB_TASKS: the only ones a request may ask for.

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


__all__ = ["TASKS", "Example", "Split", "Task", "names", "problems", "source", "task"]

Maker = Callable[[Path | None], Task]


def embedded_intents(_: Path | None) -> Task:
    """The task intents, whose data come with the packages."""
    return intents_task()


# Each is made from the folder its files are in (None: $HEADLAB_DATA, or what comes with it).
BUILT_IN: dict[str, Maker] = {
    "intents": embedded_intents,
    "slots": slots_task,
    "xnli": xnli.xnli_task,
    "udpos": udpos.udpos_task,
    "translation": translation.translation_task,
}


def _fits(key: str, entry: object) -> bool:
    return callable(entry) and key != TREEBANK


TASKS: Mapping[str, Maker] = Registry(BUILT_IN, "headlab.tasks", _fits)
SOURCES: Mapping[str, Callable[[Path | None], Source]] = MappingProxyType(
    {"xnli": xnli.source, "udpos": udpos.source, "translation": translation.source}
)


def names() -> tuple[str, ...]:
    """Tasks that can be asked for by name."""
    return (*TASKS, *named_tasks(TASKS).makers)


def problems() -> list[str]:
    """What is wrong with declarations that $HEADLAB_TASKS names and that are therefore left out."""
    return [*(TASKS.problems if isinstance(TASKS, Registry) else ()), *named_tasks(TASKS).problems]


def task(name: str, languages: Sequence[str] | str | None = None, *, data: Path | None = None) -> Task:
    """A task with some of its languages; all of them for None or "all".

    Takes names only, never a path: what a request may ask for.  `headlab.task` takes the path of a
    declaration as well.  data: folder of the task's files; None takes $HEADLAB_DATA.  Raises HeadlabError
    for an unknown task or language, with those that exist.
    """
    return chosen(maker(name)(data), languages)


def maker(name: str) -> Maker:
    """What makes the task of this name. Raises HeadlabError for an unknown one."""
    if name in BUILT_IN:
        return TASKS[name]
    if name in TASKS:
        return partial(_made_elsewhere, name)
    own = named_tasks(TASKS)
    if name in own.makers:
        return own.makers[name]
    told = [f"no task {name!r:.300}; choose from {', '.join((*TASKS, *own.makers))}", *own.problems]
    if "/" in name or "\\" in name or name.endswith(".toml"):
        told.insert(1, f"a task of one's own is asked for by its name, once {VARIABLE} lists its declaration")
    raise HeadlabError("; ".join(told), code="task.unknown")


def _made_elsewhere(name: str, data: Path | None) -> Task:
    """The task that an installed package makes. Raises HeadlabError where that fails, or is no task of this name."""
    try:
        made: object = TASKS[name](data)
    except HeadlabError:
        raise
    except Exception as error:  # the package may do anything
        raise HeadlabError(
            f"the installed package that has task {name} could not create it ({type(error).__name__}: {error}); mend "
            "or "
            "remove that package",
            code="task.package_failed",
        ) from error
    if not isinstance(made, Task) or made.name != name:
        raise HeadlabError(
            f"the installed package that has task {name} did not return a task; fix or remove that package",
            code="task.package_failed",
        )
    return made


def chosen(whole: Task, languages: Sequence[str] | str | None) -> Task:
    """The task with these languages. Raises HeadlabError for none, or one it has not."""
    if languages is None or languages == "all":
        return whole
    some = tuple(dict.fromkeys([languages] if isinstance(languages, str) else languages))
    if not some:
        raise HeadlabError(
            f"no language given; task {whole.name} has {', '.join(whole.languages)}", code="language.none"
        )
    return whole.restricted(some)


def source(name: str, data: Path | None = None) -> Source:
    """Where a task's examples come from, and whether they are here; never raises for a name that `names` has."""
    if name not in SOURCES:
        return named_tasks(TASKS).sources.get(
            name, Source(f"comes with {'headlab' if name in BUILT_IN else 'an installed package'}")
        )
    try:
        return SOURCES[name](data)
    except HeadlabError as error:
        return Source("a folder that cannot be read", False, str(error))
