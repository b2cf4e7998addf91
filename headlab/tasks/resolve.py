"""A task for library and command-line users: by name, or by the path of a declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headlab.core import HeadlabError
from headlab.tasks import registry
from headlab.tasks.base import TREEBANK, Source, Task, data_root
from headlab.tasks.declared import declared_source, declared_task

DECLARATION_ENDING = ".toml"


def task(
    name: str | Path,
    languages: Sequence[str] | str | None = None,
    *,
    data: Path | str | None = None,
    label_map: Mapping[str, str] | None = None,
) -> Task:
    """A task restricted to some of its languages; all of them for None or "all".

    Raises HeadlabError for an unknown task or language, listing those that exist, for data that are
    not a folder, whether or not the task reads any, and for a label map of a task without labels.

    Args:
        name: A built-in task, one declared in $HEADLAB_TASKS, or the path of a declaration (TOML).
        data: Folder of the task's files; None means $HEADLAB_DATA, or the declaration's own folder.
        label_map: {label: class of the model, by its name or number}, for a model whose names of
            its classes do not say which is which; None matches names, or tries all orders on dev.
    """
    return _task_named(name, languages, data).with_label_map(label_map)


def _task_named(
    name: str | Path, languages: Sequence[str] | str | None, data: Path | str | None
) -> Task:
    name = str(name)
    folder = None if data is None else data_root(Path(data))
    if not name.endswith(DECLARATION_ENDING):
        return registry.task(name, languages, data=folder)
    declared = declared_task(Path(name), folder)
    if declared.name in (*registry.TASKS, TREEBANK):
        raise HeadlabError(
            f"{name} declares {declared.name}, which is a built-in task's name; change it",
            code="declaration.name_taken",
        )
    return registry.with_languages(declared, languages)


def source(name: str, data: Path | None = None) -> Source:
    """Where the examples of a task made by `task` come from.

    Args:
        name, data: As given to `task`.
    """
    if name.endswith(DECLARATION_ENDING):
        return declared_source(Path(name), data)
    return registry.source_of(name, data)
