"""Modules by the names they had before they moved into rooms: `headlab.core.records` is `headlab.core.records`.

Programs and notebooks of the version before import by these names, which README and `docs/` showed. They get the same
module, so that a class is one class by either name.
"""

from __future__ import annotations

import sys
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
OTHERS = {"ui": "headlab.dashboard", "ui.shell": "headlab.dashboard.frame.shell"}
"""Modules that pages of other packages import, as `docs/extending.md` showed them, by their former paths."""


def present_name(former_name: str) -> str | None:
    """The name of a module now, or None if its name is no former one.

    Args:
        former_name: The full name, such as `headlab.results.store.codecs`.
    """
    package, _, path = former_name.partition(".")
    if package != "headlab":
        return None
    if path in OTHERS:
        return OTHERS[path]
    for room, modules in ROOMS.items():
        if path.split(".")[0] in modules:
            return f"headlab.{room}.{path}"
    return None


class FormerNames(MetaPathFinder, Loader):
    """Finds a module by its former name, after all other finders have failed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec that loads the module of the present name; None if the name is no former one."""
        if present_name(fullname) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, imported by its present name."""
        name = present_name(spec.name)
        assert name is not None
        module = import_module(name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Put back what the import system has just overwritten; the module ran when it was imported."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let programs import modules by their former names. Once is enough; more does no harm."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
