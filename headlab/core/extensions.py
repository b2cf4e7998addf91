"""Methods, studies and tasks that installed packages add through entry points."""

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


class Additions(NamedTuple):
    """What a group of entry points adds.

    Attributes:
        entries: Entries by key.
        problems: A sentence for each entry point that was left out, saying why.
    """

    entries: dict[str, object]
    problems: list[str]


@cache
def _installed_entry_points() -> EntryPoints:
    """The entry points of all installed packages: one reading serves every registry."""
    return entry_points()  # type: ignore[return-value]  # before 3.12 a mapping that selects as well


def has_entry_points(group: str) -> bool:
    """Whether an installed package adds to a group of entry points; it is not imported for this.

    Args:
        group: Name of the entry points, like "headlab.methods".
    """
    return bool(_installed_entry_points().select(group=group))


class Registry(Mapping[str, T]):
    """Entries by key: the built-in ones, then those added by the entry points of a group.

    An entry point that cannot be imported, does not fit or has a built-in key is left out; the log
    and `problems` say why. Entry points are read on first use beyond a built-in entry, not on
    import, because the packages that define them import headlab.

    Args:
        built_in: The built-in entries.
        group: Name of the entry points, like "headlab.methods".
        misfit: Why an object is no valid entry for a key, in a clause; empty if it is one.
        reserved_keys: Keys that no entry may have besides the built-in ones.
    """

    def __init__(
        self,
        built_in: Mapping[str, T],
        group: str,
        misfit: Callable[[str, object], str],
        *,
        reserved_keys: Collection[str] = (),
    ) -> None:
        self._own = built_in
        self._group = group
        self._misfit = misfit
        self._taken = reserved_keys

    @cached_property
    def _additions(self) -> Additions:
        additions = Additions({}, [])
        for point in sorted(
            _installed_entry_points().select(group=self._group),
            key=lambda entry_point: entry_point.name,
        ):
            entry, problem = self._load(point, additions.entries)
            if problem:
                additions.problems.append(problem)
                log.warning("%s", problem)
            else:
                additions.entries[point.name] = entry
        return additions

    def _load(
        self, entry_point: EntryPoint, entries_so_far: Mapping[str, object]
    ) -> tuple[object, str]:
        """The object of an entry point, and an empty text, or the reason it is left out."""
        package = f" of {entry_point.dist.name}" if entry_point.dist else ""
        description = f"{self._group}: {entry_point.name} ({entry_point.value}{package})"
        is_taken = any(
            entry_point.name in keys for keys in (self._own, entries_so_far, self._taken)
        )
        if is_taken:
            return None, f"{description} has a name that is taken; rename it in that package"
        try:
            entry = entry_point.load()
        except (Exception, SystemExit) as error:  # importing a package can raise anything
            return (
                None,
                f"{description} cannot be imported ({type(error).__name__}: {error}); fix or "
                "remove that package",
            )
        reason = self._misfit(entry_point.name, entry)
        if reason:
            return (
                None,
                f"{description} is not what docs/extending.md asks for: {reason}; fix or remove "
                "that package",
            )
        return entry, ""

    def refresh(self) -> None:
        """Read the entry points again on next use, for example after an installation."""
        self.__dict__.pop("_additions", None)
        _installed_entry_points.cache_clear()

    @property
    def problems(self) -> list[str]:
        """Why entry points were left out."""
        return list(self._additions.problems)

    @property
    def added_keys(self) -> tuple[str, ...]:
        """Keys that are not built in."""
        return tuple(self._additions.entries)

    def __getitem__(self, key: str) -> T:
        if key in self._own:
            return self._own[key]
        entry: T = self._additions.entries[key]  # type: ignore[assignment]  # checked by `misfit`
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter((*self._own, *self._additions.entries))

    def __len__(self) -> int:
        return len(self._own) + len(self._additions.entries)


def wrong_kind_text(entry: object, expected_kind: str) -> str:
    """That an entry is an object of another kind, as a registry says it.

    Args:
        entry: What the entry point names.
        expected_kind: The kind that it must be, with its article.
    """
    entry_text = f"the class {entry.__name__}" if isinstance(entry, type) else repr(entry)
    return f"{entry_text:.80} is not {expected_kind}"


def wrong_key_text(key: object, name: str) -> str:
    """That an object's own key is not the name of its entry point; empty if it is.

    Args:
        key: Key of the object.
        name: Name of the entry point.
    """
    if key == name:
        return ""
    return f"its key is {key!r:.60}, not {name!r}"


class KeysWhere(Sequence[str], Generic[T]):
    """The keys of a registry whose entries meet a condition, looked up on each access."""

    def __init__(self, of: Mapping[str, T], where: Callable[[T], bool] = lambda _: True) -> None:
        self._of = of
        self._where = where

    def _keys(self) -> tuple[str, ...]:
        return tuple(key for key, entry in self._of.items() if self._where(entry))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._keys()[index]

    def __len__(self) -> int:
        return len(self._keys())


def import_implementation(module: str, home: str) -> ModuleType:
    """The module named by an entry.

    Args:
        module: Name of a module below `home`, or the full dotted path of one of another package.
        home: The package of headlab's own modules of this kind.
    """
    return import_module(module if "." in module else f"{home}.{module}")
