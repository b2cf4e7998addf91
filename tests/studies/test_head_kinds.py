"""Heads that a study lists by kind: which are offered, and the languages in which one differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from headlab.core import Head
from headlab.studies.head_kinds import (
    HeadKind,
    heads_by_kind,
    heads_listed_by_kind,
    languages_that_differ,
)
from headlab.studies.result import Column, HeadCells, Records, StudyResult, TableName

FIRST, SECOND, THIRD = (Head("encoder", 0, number) for number in range(3))


@dataclass(frozen=True)
class Listed:
    """A head of some package's study, whose field has a name of its own."""

    which: HeadCells
    positive_languages: Annotated[str, Column("up in")] = ""
    negative_languages: Annotated[str, Column("down in")] = ""


@dataclass(frozen=True)
class Named:
    """A record of no head."""

    name: Annotated[str, Column("name")]


@dataclass(frozen=True, kw_only=True)
class Lists(StudyResult):
    """What some package's study found."""

    surely: Annotated[Records[Listed], TableName("surely"), HeadKind.SPECIFIC]
    maybe: Annotated[Records[Listed], TableName("maybe"), HeadKind.SPECIFIC]
    everywhere: Annotated[Records[Listed] | None, TableName("everywhere"), HeadKind.AGNOSTIC] = None
    names: Annotated[Records[Named] | None, TableName("names"), HeadKind.AGNOSTIC] = None
    unmarked: Annotated[Records[Listed] | None, TableName("unmarked")] = None


def lists(surely: tuple[Listed, ...] = (), maybe: tuple[Listed, ...] = (), **more: object) -> Lists:
    others = {name: Records("X.", rows) for name, rows in more.items()}
    return Lists(surely=Records("Surely", surely), maybe=Records("Maybe", maybe), **others)  # type: ignore[arg-type] # of each field its own


def test_the_heads_of_a_kind_are_those_of_its_first_list_that_has_any() -> None:
    maybe = (Listed(SECOND), Listed(THIRD), Listed(SECOND))
    heads = heads_by_kind(heads_listed_by_kind(lists(maybe=maybe, everywhere=(Listed(FIRST),))))
    assert heads == {"agnostic": [FIRST], "specific": [SECOND, THIRD]}
    assert list(heads) == ["agnostic", "specific"]
    surely = heads_by_kind(heads_listed_by_kind(lists((Listed(FIRST),), maybe)))
    assert surely == {"specific": [FIRST]}


def test_records_without_a_mark_or_a_head_list_none() -> None:
    shown = lists(unmarked=(Listed(FIRST),), names=(Named("a"),))
    assert heads_by_kind(heads_listed_by_kind(shown)) == {}
    assert heads_by_kind(heads_listed_by_kind(None)) == {}


def test_the_attention_of_a_specific_head_opens_with_languages_that_differ() -> None:
    surely = [Listed(FIRST, "de, th, fi", "en"), Listed(SECOND, "", "ru, bg, el")]
    assert languages_that_differ([surely], FIRST) == ["de", "th", "en"]
    assert languages_that_differ([[Named("a")], surely], SECOND) == ["ru", "bg"]
    assert languages_that_differ([surely], THIRD) == []
