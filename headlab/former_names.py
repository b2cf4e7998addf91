"""Modules by the names they had before they moved into rooms.

`headlab.records` is `headlab.core.records`, for example.

Programs and notebooks of the version before import by these names, which README and `docs/` showed.
They get the same module, so that a class is one class by either name, and a `DeprecationWarning`
that says the present one (docs/stability.md).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ROOMS = {
    "core": (
        "errors",
        "extensions",
        "files",
        "fingerprints",
        "json_types",
        "locks",
        "options",
        "parallel",
        "processors",
        "devices",
        "records",
        "run_spec",
        "tables",
        "value_functions",
    ),
    "results": ("l0_gates", "scores", "store"),
    "evaluation": (
        "bleu",
        "changes",
        "context",
        "encoding",
        "evaluator",
        "generation",
        "harness",
        "inputs",
        "lm_eval",
    ),
    "tasks": ("labels",),
}

# A page from a package took these two from here (docs/extending.md).
PAGES = {"ui": "dashboard", "ui.shell": "dashboard.frame.shell"}


def present_name(former_name: str) -> str | None:
    """The name of a module now, or None if its name is no former one.

    Args:
        former_name: The full name, such as `headlab.store.codecs`.
    """
    package, _, path = former_name.partition(".")
    if package != "headlab":
        return None
    if path in PAGES:
        return f"headlab.{PAGES[path]}"
    for room, modules in ROOMS.items():
        if path.split(".")[0] in modules:
            return f"headlab.{room}.{path}"
    return None


class FormerNames(MetaPathFinder, Loader):
    """Finds a module by its former name.

    It comes before the finder of files: a package that has been imported by its former name has a
    folder, in which that finder would find the package's modules a second time, with classes of
    their own.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec that loads the module of the present name; None if the name is no former one."""
        if present_name(fullname) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, imported by its present name; a warning says that name."""
        name = present_name(spec.name)
        assert name is not None
        warnings.warn(
            f"{spec.name} is now {name}; its former name works until headlab 1.0",
            DeprecationWarning,
            stacklevel=2,  # the line of the import: Python leaves its own import system out
        )
        module = import_module(name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Put back what the import system has just overwritten.

        The module ran when it was imported.
        """
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let programs import modules by their former names. Once is enough; more does no harm."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())
