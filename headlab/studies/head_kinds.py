"""Heads that a study's result lists, by what they are to languages.

Pages offer one of each kind to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Protocol, runtime_checkable

from headlab.core import Head
from headlab.studies.result import DataClass, StudyResult, head_of, marked_records


class HeadKind(StrEnum):
    """The kind of the heads that a field of a result lists; it stands in the field's annotation.

    `shared: Annotated[Records[SharedHead], TableName("heads-agnostic"), HeadKind.AGNOSTIC]`; of
    several fields of one kind the more certain stands first.
    """

    AGNOSTIC = "agnostic"  # they matter in every language
    SPECIFIC = "specific"  # they matter in some languages only, or do the opposite in others


@runtime_checkable
class HasLanguages(Protocol):
    """A record that says in which languages its head helps and harms.

    Codes are separated by `, `.
    """

    @property
    def positive_languages(self) -> str:
        """Where it helps."""
        ...

    @property
    def negative_languages(self) -> str:
        """Where it harms."""
        ...


HeadLists = Mapping[HeadKind, Sequence[Sequence[DataClass]]]
"""Lists of records of heads, by the kind of heads; of one kind the more certain list first."""


def heads_listed_by_kind(result: StudyResult | None) -> HeadLists:
    """A result's lists of heads, by the kind that each list is marked with.

    Args:
        result: What a study found; None gives no lists.
    """
    lists: dict[HeadKind, list[Sequence[DataClass]]] = {}
    if result is not None:
        for kind, records in marked_records(result, HeadKind):
            lists.setdefault(kind, []).append(records.rows)
    return lists


def heads_by_kind(lists: HeadLists) -> dict[HeadKind, list[Head]]:
    """The heads of each kind, from its first list that has any.

    Kinds without heads are left out.
    """
    heads: dict[HeadKind, list[Head]] = {}
    for kind in HeadKind:
        for records in lists.get(kind, ()):
            heads_in_list = [head for head in map(head_of, records) if head is not None]
            if heads_in_list:
                heads[kind] = list(dict.fromkeys(heads_in_list))
                break
    return heads


def languages_that_differ(
    lists: Sequence[Sequence[DataClass]], head: Head, max_languages: int = 2
) -> list[str]:
    """Languages in which a head helps by these lists, then languages in which it harms.

    Args:
        lists: Of heads of one kind.
        head: The head; its first record that names languages counts.
        max_languages: Languages of each sort, at most.
    """
    for record in chain.from_iterable(lists):
        if head_of(record) == head and isinstance(record, HasLanguages):
            sides = record.positive_languages, record.negative_languages
            return [
                name
                for languages_text in sides
                for name in languages_text.split(", ")[:max_languages]
                if name
            ]
    return []
