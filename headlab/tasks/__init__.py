"""Tasks by name: built in, from installed packages, declared in $HEADLAB_TASKS, or saved by the dashboard."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from headlab.errors import HeadlabError, require_type
from headlab.extensions import Registry, other_kind
from headlab.files import default_root
from headlab.tasks import generated, texts, translation, udpos, xnli
from headlab.tasks.base import TREEBANK, Example, Source, Split, Task
from headlab.tasks.declared import declared_source, declared_task, read_declaration
from headlab.tasks.intents import intents_task
from headlab.tasks.slots import slots_task

# $HEADLAB_TASKS, set by whoever runs headlab, lists the declarations that a request may use, beside those that the
# dashboard has saved below the cache folder (`headlab.tasks.own`).

VARIABLE = "HEADLAB_TASKS"
SAVED = "tasks"  # folder below the cache: tasks/NAME/NAME.toml, with the files that it declares


class Named(NamedTuple):
    """Declared tasks by name, the sources of their examples, and the problems of declarations that are left out."""

    makers: dict[str, Callable[[Path | None], Task]]
    sources: dict[str, Source]
    problems: list[str]
    declarations: dict[str, Path]


def named_tasks(taken: Collection[str]) -> Named:
    """The tasks of the TOML files in $HEADLAB_TASKS, separated as in $PATH, and the saved ones.

    taken: names they must not have.
    """
    found = Named({}, {}, [], {})
    for where, path in _declarations():
        try:
            said = read_declaration(path)
        except HeadlabError as error:
            found.problems.append(f"{where}: {error}")
            continue
        if said.name in (*taken, *found.makers, TREEBANK):
            found.problems.append(
                f"{where}: {path} declares {said.name}, which is another task's name; change it"
            )
            continue
        found.makers[said.name] = partial(declared_task, path)
        found.sources[said.name] = declared_source(path)
        found.declarations[said.name] = path
    return found


def _declarations() -> list[tuple[str, Path]]:
    """Every declaration, with the word for where it is listed."""
    listed = [
        Path(text.strip())
        for text in os.environ.get(VARIABLE, "").split(os.pathsep)
        if text.strip()
    ]
    root = default_root() / SAVED
    saved = [folder / f"{folder.name}.toml" for folder in sorted(root.glob("[!.]*"))]
    return [
        *((VARIABLE, path) for path in listed),
        *((str(root), path) for path in saved if path.is_file()),
    ]


__all__ = ["TASKS", "Example", "Split", "Task", "names", "problems", "source", "task"]

Maker = Callable[[Path | None], Task]


# Each maker is called with the data folder (None: $HEADLAB_DATA, or the task's embedded data).
BUILT_IN: dict[str, Maker] = {
    "intents": intents_task,
    "slots": slots_task,
    "xnli": xnli.xnli_task,
    "udpos": udpos.udpos_task,
    "translation": translation.translation_task,
    "repeats": generated.repeats_task,
    "ioi": generated.ioi_task,
    "agreement": generated.agreement_task,
    "lm": texts.lm_task,
}


def _misfit(key: str, entry: object) -> str:
    """Why a package's entry makes no task of this name; empty if it does."""
    if key == TREEBANK:
        return f"{key} names headlab's treebanks"
    return "" if callable(entry) else other_kind(entry, "a function that makes a Task")


TASKS: Mapping[str, Maker] = Registry(BUILT_IN, "headlab.tasks", _misfit)
SOURCES: Mapping[str, Callable[[Path | None], Source]] = MappingProxyType(
    {
        "xnli": xnli.source,
        "udpos": udpos.source,
        "translation": translation.source,
        "lm": texts.source,
    }
)


def names() -> tuple[str, ...]:
    """Names of the available tasks."""
    return (*TASKS, *named_tasks(TASKS).makers)


def problems() -> list[str]:
    """Why some entry points and declarations in $HEADLAB_TASKS were left out."""
    return [*(TASKS.problems if isinstance(TASKS, Registry) else ()), *named_tasks(TASKS).problems]


def task(
    name: str, languages: Sequence[str] | str | None = None, *, data: Path | None = None
) -> Task:
    """A task restricted to some of its languages; all of them for None or "all".

    name: never a path, so that a request cannot read arbitrary files; `headlab.task` also takes the path of a
    declaration.  data: folder of the task's files; None means $HEADLAB_DATA.  Raises HeadlabError for an unknown
    task or language, listing those that exist.
    """
    whole = chosen(maker(name)(data), languages)
    return whole if data is None else replace(whole, data=data.absolute())


def declaration_of(name: str) -> Path | None:
    """The file that declares the task of this name; None where no declared task has it."""
    if name in TASKS:
        return None
    declarations = named_tasks(TASKS).declarations
    return declarations[name].absolute() if name in declarations else None


def maker(name: str) -> Maker:
    """The maker of the task of this name. Raises HeadlabError for an unknown one."""
    if name in BUILT_IN:
        return TASKS[name]
    if name in TASKS:
        return partial(_made_elsewhere, name)
    own = named_tasks(TASKS)
    if name in own.makers:
        return own.makers[name]
    told = [
        f"unknown task {name!r:.300}; choose from {', '.join((*TASKS, *own.makers))}",
        *own.problems,
    ]
    if "/" in name or "\\" in name or name.endswith(".toml"):
        told.insert(
            1,
            f"a task of one's own is asked for by its name, once {VARIABLE} lists its declaration",
        )
    raise HeadlabError("; ".join(told), code="task.unknown")


def _made_elsewhere(name: str, data: Path | None) -> Task:
    """The task made by an installed package. Raises HeadlabError if that fails or returns no task of this name."""
    try:
        made: object = TASKS[name](data)
    except HeadlabError:
        raise
    except Exception as error:  # the package can raise anything
        raise HeadlabError(
            f"the installed package that has task {name} could not create it ({type(error).__name__}: {error}); "
            "fix or remove that package",
            code="task.package_failed",
        ) from error
    if not isinstance(made, Task) or made.name != name:
        raise HeadlabError(
            f"the installed package that has task {name} did not return a task; fix or remove that package",
            code="task.package_failed",
        )
    return made


def chosen(whole: Task, languages: Sequence[str] | str | None) -> Task:
    """The task restricted to these languages. Raises HeadlabError if none is given or the task lacks one."""
    if languages is None or languages == "all":
        return whole
    require_type("languages", languages, (str, Iterable), "a language, or a list of them")
    some = tuple(dict.fromkeys([languages] if isinstance(languages, str) else languages))
    if not some:
        raise HeadlabError(
            f"no language given; task {whole.name} has {', '.join(whole.languages)}",
            code="language.none",
        )
    return whole.restricted(some)


def source(name: str, data: Path | None = None) -> Source:
    """Where a task's examples come from and whether they are on this machine; never raises for a name in `names()`."""
    if name not in SOURCES:
        return named_tasks(TASKS).sources.get(
            name, Source(f"comes with {'headlab' if name in BUILT_IN else 'an installed package'}")
        )
    try:
        return SOURCES[name](data)
    except HeadlabError as error:
        return Source("a folder that cannot be read", False, str(error))
