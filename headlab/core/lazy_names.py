"""Names of a package that are imported from its modules when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def names_on_demand(
    package: str, names_by_module: Mapping[str, Sequence[str]]
) -> Callable[[str], object]:
    """The `__getattr__` of a package whose modules are slow to import.

    Modules that need torch are such. The package imports the same names below `if TYPE_CHECKING:`,
    so that tools know them.

    Args:
        package: The package's full name, its `__name__`.
        names_by_module: {module of the package: the names that the package offers from it}.

    Returns:
        A function that imports the module of the name that it is given.
    """
    module_of_name = {}
    for module, names in names_by_module.items():
        for name in names:
            module_of_name[name] = f"{package}.{module}"

    def import_on_use(name: str) -> object:
        if name not in module_of_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        member: object = getattr(import_module(module_of_name[name]), name)
        return member

    return import_on_use
