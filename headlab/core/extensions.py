"""Methods, studies and tasks that installed packages add to the built-in ones through entry points."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from types import ModuleType
from typing import Generic, NamedTuple, TypeVar, overload

log = logging.getLogger(__name__)
T = TypeVar("T")


class Added(NamedTuple):
    """What a group of entry points adds.

    Attributes:
        entries: by key.
        problems: For each one left out, a sentence saying why.
    """

    entries: dict[str, object]
    problems: list[str]


@cache
def _installed() -> EntryPoints:
    """The entry points of all installed packages: one reading serves every registry."""
    return entry_points()  # type: ignore[return-value]  # before 3.12 a mapping that selects as well


class Registry(Mapping[str, T]):
    """Entries by key: the built-in ones, then those added by the entry points of a group.

    An entry point that cannot be imported, does not fit or has a built-in key is left out; the log
    and `problems` say why. Entry points are read on first use beyond a built-in entry, not on
    import, because the packages that define them import headlab.

    Attributes:
        own: The built-in entries.
        group: Name of the entry points, like "headlab.methods".
        misfit: Why an object is no valid entry for a key, in a clause; empty if it is one.
        taken: Keys that no entry may have besides the built-in ones.
    """

    def __init__(
        self,
        own: Mapping[str, T],
        group: str,
        misfit: Callable[[str, object], str],
        *,
        taken: Collection[str] = (),
    ) -> None:
        self._own = own
        self._group = group
        self._misfit = misfit
        self._taken = taken

    @cached_property
    def _added(self) -> Added:
        found = Added({}, [])
        for point in sorted(_installed().select(group=self._group), key=lambda p: p.name):
            entry, problem = self._loaded(point, found.entries)
            if problem:
                found.problems.append(problem)
                log.warning("%s", problem)
            else:
                found.entries[point.name] = entry
        return found

    def _loaded(self, point: EntryPoint, before: Mapping[str, object]) -> tuple[object, str]:
        """The object of an entry point, and an empty text, or the reason it is left out."""
        of = f"{self._group}: {point.name} ({point.value}{f' of {point.dist.name}' if point.dist else ''})"
        if point.name in self._own or point.name in before or point.name in self._taken:
            return None, f"{of} has a name that is taken; rename it in that package"
        try:
            entry = point.load()
        except (Exception, SystemExit) as error:  # importing a package can raise anything
            return (
                None,
                f"{of} cannot be imported ({type(error).__name__}: {error}); fix or remove that "
                "package",
            )
        if reason := self._misfit(point.name, entry):
            return (
                None,
                f"{of} is not what docs/extending.md asks for: {reason}; fix or remove that "
                "package",
            )
        return entry, ""

    def refresh(self) -> None:
        """Read the entry points again on next use, for example after an installation."""
        self.__dict__.pop("_added", None)
        _installed.cache_clear()

    @property
    def problems(self) -> list[str]:
        """Why entry points were left out."""
        return list(self._added.problems)

    @property
    def added(self) -> tuple[str, ...]:
        """Keys that are not built in."""
        return tuple(self._added.entries)

    def __getitem__(self, key: str) -> T:
        if key in self._own:
            return self._own[key]
        entry: T = self._added.entries[key]  # type: ignore[assignment]  # checked by `misfit`
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter((*self._own, *self._added.entries))

    def __len__(self) -> int:
        return len(self._own) + len(self._added.entries)


def other_kind(entry: object, expected: str) -> str:
    """That an entry is an object of another kind, as a registry says it.

    Args:
        entry: What the entry point names.
        expected: The kind that it must be, with its article.
    """
    found = f"the class {entry.__name__}" if isinstance(entry, type) else repr(entry)
    return f"{found:.80} is not {expected}"


def other_key(key: object, name: str) -> str:
    """That an object's own key is not the name of its entry point; empty if it is.

    Args:
        key: Of the object.
        name: Of the entry point.
    """
    return "" if key == name else f"its key is {key!r:.60}, not {name!r}"


class Keys(Sequence[str], Generic[T]):
    """The keys of a registry whose entries meet a condition, looked up on each access."""

    def __init__(self, of: Mapping[str, T], where: Callable[[T], bool] = lambda _: True) -> None:
        self._of, self._where = of, where

    def _keys(self) -> tuple[str, ...]:
        return tuple(key for key, entry in self._of.items() if self._where(entry))

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._keys()[at]

    def __len__(self) -> int:
        return len(self._keys())


def implementation(module: str, home: str) -> ModuleType:
    """The module named by an entry: below `home`, or by its full dotted path if it belongs to another package."""
    return import_module(module if "." in module else f"{home}.{module}")
