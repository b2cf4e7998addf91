"""Scores that a newer version of their method replaces: which they are, and their removal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headlab.core import HeadlabError, RunSpec
from headlab.methods.method import recorded_version
from headlab.methods.table import METHODS
from headlab.results import HeadScores, Result, Store
from headlab.results.store.codecs import read_result


@dataclass(frozen=True)
class Superseded:
    """A stored result, and the one that is used in its place.

    Attributes:
        result: The result of an earlier version of the method.
        successor: The result of a newer version with the same settings.
    """

    result: Result[HeadScores]
    successor: Result[HeadScores]


def version_of(spec: RunSpec) -> int:
    """The version of the method that a spec of scores names.

    Args:
        spec: The spec.
    """
    return spec.method.version or 1


def superseded_results(results: Iterable[Result[HeadScores]]) -> list[Superseded]:
    """The results that a newer version of their method replaces, in their order.

    Each is given with the newest result that replaces it, which no other replaces.

    Args:
        results: Finished results that were read back: one that cannot be read replaces nothing.
    """
    results_by_settings: dict[str, list[Result[HeadScores]]] = {}
    all_results = list(results)
    for result in all_results:
        results_by_settings.setdefault(_settings_key(result.record.spec), []).append(result)
    superseded = []
    for result in all_results:
        rivals = results_by_settings[_settings_key(result.record.spec)]
        successors = [rival for rival in rivals if _replaces(rival.record, result.record)]
        if successors:
            newest = max(successors, key=lambda successor: version_of(successor.record.spec))
            superseded.append(Superseded(result, newest))
    return superseded


def _settings_key(spec: RunSpec) -> str:
    """What results share that differ in the version of their method only.

    Args:
        spec: Of the scores.
    """
    return with_version(spec, 1).key


def with_version(spec: RunSpec, version: int) -> RunSpec:
    """The spec of the same settings under another version of their method.

    Args:
        spec: Of scores.
        version: The other version.
    """
    return replace(spec, method=replace(spec.method, version=recorded_version(version)))


def _replaces(newer: HeadScores, older: HeadScores) -> bool:
    """Whether `headlab.methods.run.stored_result` never takes one result where another is stored.

    Versions of methods that are not installed are not judged, nor those that only a newer headlab
    makes. Without intervals, a result stands for its version alone, so it does not replace one that
    has them before the method's present version is stored.

    Args:
        newer: Scores that may replace the other.
        older: Scores with the same settings.
    """
    method = METHODS.get(newer.method)
    if method is None:
        return False
    newer_version = version_of(newer.spec)
    present_version = method.version_of(newer.spec.method.options or {})
    stands_for_older = (
        newer_version == present_version or newer.low is not None or older.low is None
    )
    return (
        version_of(older.spec) < newer_version <= present_version
        and stands_for_older
        and newer.grid == older.grid
    )


def remove_superseded(store: Store, superseded: Superseded) -> str:
    """Remove a result that is replaced, once both have been read again.

    Args:
        store: That holds both.
        superseded: The result and its successor.

    Returns:
        Why the result stays, in a clause; empty if it is gone.

    Raises:
        HeadlabError: Its folder may not be renamed or deleted.
    """
    try:
        result = read_result(superseded.result.folder, HeadScores)
        successor = read_result(superseded.successor.folder, HeadScores)
    except HeadlabError as error:
        return f"it or the newer result can no longer be read ({error})"
    if not _replaces(successor.record, result.record):
        return "the newer result no longer replaces it"
    return store.remove(result)


def earlier_keys(spec: RunSpec) -> list[str]:
    """The keys of the results that this one may have replaced.

    Args:
        spec: Of scores.
    """
    method = METHODS.get(spec.method.name)
    newest = version_of(spec)
    if method is None or newest > method.version_of(spec.method.options or {}):
        return []
    return [with_version(spec, version).key for version in range(1, newest)]
