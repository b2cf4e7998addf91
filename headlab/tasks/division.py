"""The division of rows into dev and test by share, each version of which stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headlab.records import Ints
from headlab.tasks.equal_texts import Text

# 1: a share of the groups of each language, file by file.
# 2: also, rows with equal texts are on the same side, and so are row i of all languages of an aligned task.
VERSIONS = (1, 2)
FIRST, NEWEST = VERSIONS[0], VERSIONS[-1]
SEED = (0, 29)


@dataclass(frozen=True)
class DividedRow:
    """What the division looks at of a row.

    file: number of its file.  language: of the row.  group: the name of what it belongs to; empty for a group of its
    own.  text: as `text_of` gives it.
    """

    file: int
    language: str
    group: str
    text: Text


def dev_rows(rows: Sequence[DividedRow], share: float, *, aligned: bool, version: int) -> set[int]:
    """Divide the rows of all files of a task.

    Args:
        rows: of all files, in their order.
        share: of the rows that become dev, between 0 and 1.
        aligned: whether row i means the same in every language.
        version: one of VERSIONS.

    Returns:
        The indices of the rows that become dev; the others become test.
    """
    if version == FIRST:
        return _by_groups_alone(rows, share)
    return _by_components(rows, share, aligned)


def _by_groups_alone(rows: Sequence[DividedRow], share: float) -> set[int]:
    """Version 1: a random share of each language's groups, so that no group is in both."""
    groups_by_place: dict[tuple[int, str], dict[object, list[int]]] = {}
    for index, row in enumerate(rows):
        groups = groups_by_place.setdefault((row.file, row.language), {})
        groups.setdefault(row.group or index, []).append(index)
    dev = set[int]()
    for groups in groups_by_place.values():  # one seed: rows that mean the same in every language stay together
        members = list(groups.values())
        order = np.random.default_rng(SEED).permutation(len(members))
        dev_size = max(1, min(round(share * len(members)), len(members) - 1))
        dev |= {index for group in order[:dev_size] for index in members[group]}
    return dev


@dataclass
class _Component:
    """Rows that must be on one side.  rank: place in the random order.  sizes: rows by language."""

    rank: int
    rows: list[int] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


def _by_components(rows: Sequence[DividedRow], share: float, aligned: bool) -> set[int]:
    """Version 2: rows that must be on one side go to dev or test together."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.language] = totals.get(row.language, 0) + 1
    wanted = {language: max(1, min(round(share * total), total - 1)) for language, total in totals.items()}
    dev, test = _dealt(_components(rows, aligned), wanted)
    for language in totals:  # heads are chosen on dev, so every language needs some
        if not _has(dev, language):
            _move(_smallest(test, language), test, dev)
    for language in totals:
        if not _has(test, language):
            _give_to_test(dev, test, language)
    return {row for component in dev for row in component.rows}


def _dealt(components: Sequence[_Component], wanted: Mapping[str, int]) -> tuple[list[_Component], list[_Component]]:
    """Dev and test: each component goes to dev if that brings the languages closer to the rows that are wanted there.

    wanted: dev rows by language.
    """
    missing = dict(wanted)
    dev, test = list[_Component](), list[_Component]()
    for component in components:
        closer = sum(
            abs(missing[language]) - abs(missing[language] - size) for language, size in component.sizes.items()
        )
        if closer <= 0:
            test.append(component)
            continue
        dev.append(component)
        for language, size in component.sizes.items():
            missing[language] -= size
    return dev, test


def _has(side: Sequence[_Component], language: str) -> bool:
    return any(language in component.sizes for component in side)


def _smallest(side: Sequence[_Component], language: str) -> _Component:
    """The component of a language with the fewest rows."""
    return min((c for c in side if language in c.sizes), key=lambda component: len(component.rows))


def _move(component: _Component, source: list[_Component], target: list[_Component]) -> None:
    source.remove(component)
    target.append(component)


def _give_to_test(dev: list[_Component], test: list[_Component], language: str) -> None:
    """Move the smallest component of a language to test, if every language then still has dev rows."""
    component = _smallest(dev, language)
    remaining = [other for other in dev if other is not component]
    if all(_has(remaining, code) for code in component.sizes):
        _move(component, dev, test)


def _components(rows: Sequence[DividedRow], aligned: bool) -> list[_Component]:
    """The rows that must be on one side, tied by groups, equal texts and, where aligned, by their place.

    In random order: that of the groups of the longest language, so that without equal texts the rows that have the
    same place in several languages stay together, and version 1's division comes out.
    """
    groups = _group_numbers(rows)
    ties = [
        *_ties([row.text for row in rows]),
        *_ties([row.group or index for index, row in enumerate(rows)]),
    ]
    if aligned:
        ties += _ties(_places(rows))
    labels = _connected(len(rows), ties)
    ranks = np.argsort(np.random.default_rng(SEED).permutation(max(groups) + 1))
    components: dict[int, _Component] = {}
    for index, (row, label) in enumerate(zip(rows, labels.tolist(), strict=True)):
        rank = int(ranks[groups[index]])
        component = components.setdefault(label, _Component(rank))
        component.rank = min(component.rank, rank)
        component.rows.append(index)
        component.sizes[row.language] = component.sizes.get(row.language, 0) + 1
    return sorted(components.values(), key=lambda component: component.rank)


def _group_numbers(rows: Sequence[DividedRow]) -> list[int]:
    """The number of each row's group among those of its language, from 0, in the order of their first rows."""
    numbers_by_language: dict[str, dict[object, int]] = {}
    group_numbers = []
    for index, row in enumerate(rows):
        numbers = numbers_by_language.setdefault(row.language, {})
        group_numbers.append(numbers.setdefault(row.group or index, len(numbers)))
    return group_numbers


def _places(rows: Sequence[DividedRow]) -> list[int]:
    """The place of each row among those of its language, from 0."""
    counts: dict[str, int] = {}
    places = []
    for row in rows:
        places.append(counts.get(row.language, 0))
        counts[row.language] = places[-1] + 1
    return places


def _ties(keys: Sequence[object]) -> list[tuple[int, int]]:
    """Each row with the first one of the same key."""
    first: dict[object, int] = {}
    return [(first.setdefault(key, index), index) for index, key in enumerate(keys)]


def _connected(size: int, ties: Sequence[tuple[int, int]]) -> Ints:
    """The number of each row's component, int [row]. ties: pairs of rows that are in the same one."""
    from scipy.sparse import coo_array  # takes a moment to import, which pages that divide nothing need not wait for
    from scipy.sparse.csgraph import connected_components

    starts, ends = np.array(ties).T
    graph = coo_array((np.ones(len(ties), dtype=bool), (starts, ends)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return np.asarray(labels, dtype=np.int64)
