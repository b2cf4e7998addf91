"""Defaults of methods' options on a task: those of tasks of likelihood may be others."""

from __future__ import annotations

from collections.abc import Mapping

from headlab.core import Option
from headlab.methods.method import Method
from headlab.methods.table import METHODS
from headlab.methods.table import method as method_of
from headlab.tasks import likelihood_of


def method_on(key: str, task: str) -> Method:
    """A method with the defaults that its options have on a task.

    Args:
        key: Of the method.
        task: Name of the task; one that is not known here is taken to have labels.

    Raises:
        HeadlabError: The method is unknown.
    """
    method = method_of(key)
    if not method.likelihood_defaults:
        return method
    return method.for_task(likelihood_of(task) or "")


def options_on(key: str, task: str) -> Mapping[str, Option]:
    """The options of a method whose defaults on a task are known; empty for an unknown method.

    Of a task that is not known here, those are left out that tasks of likelihood may have others
    of, so that a command names them.

    Args:
        key: Of the method.
        task: Name of the task.
    """
    if key not in METHODS:
        return {}
    method = METHODS[key]
    if not method.likelihood_defaults:
        return method.options
    likelihood = likelihood_of(task)
    if likelihood is not None:
        return method.for_task(likelihood).options
    return {
        name: option
        for name, option in method.options.items()
        if name not in method.likelihood_defaults
    }
