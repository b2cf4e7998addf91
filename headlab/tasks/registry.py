"""Tasks by name.

They are built in, from packages, declared in $HEADLAB_TASKS, or saved by the dashboard.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from headlab.core import HeadlabError, Registry, default_root, require_type, wrong_kind_text
from headlab.tasks import generated, texts, translation, udpos, xnli
from headlab.tasks.base import TREEBANK, Example, Likelihood, Source, Split, Task
from headlab.tasks.declared import declared_source, declared_task, read_declaration
from headlab.tasks.intents import intents_task
from headlab.tasks.needle import is_needle, words_of
from headlab.tasks.slots import slots_task

# $HEADLAB_TASKS, set by whoever runs headlab, lists the declarations that a request may use, beside
# those that the dashboard has saved below the cache folder (`headlab.tasks.own`).

TASKS_VARIABLE = "HEADLAB_TASKS"
SAVED_FOLDER = (
    "tasks"  # folder below the cache: tasks/NAME/NAME.toml, with the files that it declares
)


class DeclaredTasks(NamedTuple):
    """Declared tasks by name, the sources of their examples, and problems.

    Problems are of declarations that are left out.
    """

    makers: dict[str, Callable[[Path | None], Task]]
    sources: dict[str, Source]
    problems: list[str]
    declarations: dict[str, Path]


def declared_tasks(reserved: Collection[str]) -> DeclaredTasks:
    """The tasks of the TOML files in $HEADLAB_TASKS, separated as in $PATH, and the saved ones.

    taken: names they must not have.
    """
    declared = DeclaredTasks({}, {}, [], {})
    for listed_in, path in _declarations():
        try:
            contents = read_declaration(path)
        except HeadlabError as error:
            declared.problems.append(f"{listed_in}: {error}")
            continue
        if contents.name in (*reserved, *declared.makers, TREEBANK):
            declared.problems.append(
                f"{listed_in}: {path} declares {contents.name}, which is another task's name; "
                "change it"
            )
            continue
        declared.makers[contents.name] = partial(declared_task, path)
        declared.sources[contents.name] = declared_source(path)
        declared.declarations[contents.name] = path
    return declared


def _declarations() -> list[tuple[str, Path]]:
    """Every declaration, with the word for where it is listed."""
    declarations = []
    for text in os.environ.get(TASKS_VARIABLE, "").split(os.pathsep):
        if text.strip():
            declarations.append((TASKS_VARIABLE, Path(text.strip())))
    root = default_root() / SAVED_FOLDER
    for folder in sorted(root.glob("[!.]*")):
        path = folder / f"{folder.name}.toml"
        if path.is_file():
            declarations.append((str(root), path))
    return declarations


__all__ = ["TASKS", "Example", "Split", "Task", "task", "task_names"]

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
    "needle": generated.needle_task,
    "lm": texts.lm_task,
}


def _misfit(key: str, entry: object) -> str:
    """Why a package's entry makes no task of this name; empty if it does."""
    if key == TREEBANK:
        return f"{key} names headlab's treebanks"
    if not callable(entry):
        return wrong_kind_text(entry, "a function that makes a Task")
    return ""


TASKS: Mapping[str, Maker] = Registry(BUILT_IN, "headlab.tasks", _misfit)
SOURCES: Mapping[str, Callable[[Path | None], Source]] = MappingProxyType(
    {
        "xnli": xnli.source,
        "udpos": udpos.source,
        "translation": translation.source,
        "lm": texts.source,
    }
)


def task_names() -> tuple[str, ...]:
    """Names of the available tasks."""
    return (*TASKS, *declared_tasks(TASKS).makers)


def registry_problems() -> list[str]:
    """Why some entry points and declarations in $HEADLAB_TASKS were left out."""
    entry_point_problems = TASKS.problems if isinstance(TASKS, Registry) else ()
    return [*entry_point_problems, *declared_tasks(TASKS).problems]


def task(
    name: str, languages: Sequence[str] | str | None = None, *, data: Path | None = None
) -> Task:
    """A task restricted to some of its languages; all of them for None or "all".

    Raises HeadlabError for an unknown task or language, listing those that exist.

    Args:
        name: Never a path, so that a request cannot read arbitrary files; `headlab.task` also takes
            the path of a declaration.
        data: Folder of the task's files; None means $HEADLAB_DATA.
    """
    restricted_task = with_languages(maker(name)(data), languages)
    if data is None:
        return restricted_task
    return replace(restricted_task, data=data.absolute())


def likelihood_of(name: str) -> Likelihood | None:
    """How answers to a task are found (`Task.likelihood`); None for one that is not known here.

    Args:
        name: Of the task.
    """
    try:
        return maker(name)(None).likelihood
    except HeadlabError:
        return None


def declaration_of(name: str) -> Path | None:
    """The file that declares the task of this name; None where no declared task has it."""
    if name in TASKS:
        return None
    path = declared_tasks(TASKS).declarations.get(name)
    if path is None:
        return None
    return path.absolute()


def maker(name: str) -> Maker:
    """The maker of the task of this name. Raises HeadlabError for an unknown one."""
    if name in BUILT_IN:
        return TASKS[name]
    if name in TASKS:
        return partial(_make_from_package, name)
    declared = declared_tasks(TASKS)
    if name in declared.makers:
        return declared.makers[name]
    if is_needle(name):  # of another length
        return partial(_make_needle, words_of(name))
    sentences = [
        f"unknown task {name!r:.300}; choose from {', '.join((*TASKS, *declared.makers))}",
        *declared.problems,
    ]
    if "/" in name or "\\" in name or name.endswith(".toml"):
        sentences.insert(
            1,
            f"a task of one's own is asked for by its name, once {TASKS_VARIABLE} lists its "
            "declaration",
        )
    raise HeadlabError("; ".join(sentences), code="task.unknown")


def _make_needle(words: int, data: Path | None) -> Task:
    """Task `needle` with so many words between facts and question."""
    return generated.needle_task(data, words=words)


def _make_from_package(name: str, data: Path | None) -> Task:
    """The task made by an installed package.

    Raises HeadlabError if that fails or returns no task of this name.
    """
    try:
        package_task: object = TASKS[name](data)
    except HeadlabError:
        raise
    except Exception as error:  # the package can raise anything
        raise HeadlabError(
            f"the installed package that has task {name} could not create it "
            f"({type(error).__name__}: {error}); fix or remove that package",
            code="task.package_failed",
        ) from error
    if not isinstance(package_task, Task) or package_task.name != name:
        raise HeadlabError(
            f"the installed package that has task {name} did not return a task; fix or remove "
            "that package",
            code="task.package_failed",
        )
    return package_task


def with_languages(full_task: Task, languages: Sequence[str] | str | None) -> Task:
    """The task restricted to these languages.

    Raises HeadlabError if none is given or the task lacks one.
    """
    if languages is None or languages == "all":
        return full_task
    require_type("languages", languages, (str, Iterable), "a language, or a list of them")
    named_languages = [languages] if isinstance(languages, str) else languages
    codes = tuple(dict.fromkeys(named_languages))
    if not codes:
        raise HeadlabError(
            f"no language given; task {full_task.name} has {', '.join(full_task.languages)}",
            code="language.none",
        )
    return full_task.with_languages(codes)


def source_of(name: str, data: Path | None = None) -> Source:
    """Where a task's examples come from, and whether they are on this machine.

    Never raises for a name in `names()`.
    """
    if name not in SOURCES:
        package = "headlab" if name in BUILT_IN or is_needle(name) else "an installed package"
        return declared_tasks(TASKS).sources.get(name, Source(f"comes with {package}"))
    try:
        return SOURCES[name](data)
    except HeadlabError as error:
        return Source("a folder that cannot be read", is_present=False, advice=str(error))
