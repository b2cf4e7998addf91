"""Heads that a study lists by kind, and the languages in which a head differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from headlab.core import Head
from headlab.studies.head_kinds import (
    HeadKind,
    heads_by_kind,
    heads_listed_by_kind,
    languages_that_differ,
)
from headlab.studies.result import Column, HeadCells, Records, StudyResult, TableName

FIRST_HEAD, SECOND_HEAD, THIRD_HEAD = (Head("encoder", 0, number) for number in range(3))


@dataclass(frozen=True)
class Listed:
    """A head in a study of some package, which calls its field as it likes."""

    which: HeadCells
    positive_languages: Annotated[str, Column("up in")] = ""
    negative_languages: Annotated[str, Column("down in")] = ""


@dataclass(frozen=True)
class Named:
    """A record of no head."""

    name: Annotated[str, Column("name")]


@dataclass(frozen=True, kw_only=True)
class Lists(StudyResult):
    """The result of some package's study."""

    surely: Annotated[Records[Listed], TableName("surely"), HeadKind.SPECIFIC]
    maybe: Annotated[Records[Listed], TableName("maybe"), HeadKind.SPECIFIC]
    everywhere: Annotated[Records[Listed] | None, TableName("everywhere"), HeadKind.AGNOSTIC] = None
    names: Annotated[Records[Named] | None, TableName("names"), HeadKind.AGNOSTIC] = None
    unmarked: Annotated[Records[Listed] | None, TableName("unmarked")] = None


def study_result(
    surely: tuple[Listed, ...] = (), maybe: tuple[Listed, ...] = (), **further_rows: Any
) -> Lists:
    """A result with these rows in its lists."""
    lists: dict[str, Any] = {"surely": Records("Surely", surely), "maybe": Records("Maybe", maybe)}
    for name, rows in further_rows.items():
        lists[name] = Records("X.", rows)
    return Lists(**lists)


def test_the_heads_of_a_kind_are_those_of_its_first_list_that_has_any() -> None:
    maybe = (Listed(SECOND_HEAD), Listed(THIRD_HEAD), Listed(SECOND_HEAD))
    heads = heads_by_kind(
        heads_listed_by_kind(study_result(maybe=maybe, everywhere=(Listed(FIRST_HEAD),)))
    )
    assert heads == {"agnostic": [FIRST_HEAD], "specific": [SECOND_HEAD, THIRD_HEAD]}
    assert list(heads) == ["agnostic", "specific"]
    surely = heads_by_kind(heads_listed_by_kind(study_result((Listed(FIRST_HEAD),), maybe)))
    assert surely == {"specific": [FIRST_HEAD]}


def test_records_without_a_mark_or_a_head_list_none() -> None:
    result = study_result(unmarked=(Listed(FIRST_HEAD),), names=(Named("a"),))
    assert heads_by_kind(heads_listed_by_kind(result)) == {}
    assert heads_by_kind(heads_listed_by_kind(None)) == {}


def test_the_attention_of_a_specific_head_opens_with_languages_that_differ() -> None:
    surely = [Listed(FIRST_HEAD, "de, th, fi", "en"), Listed(SECOND_HEAD, "", "ru, bg, el")]
    assert languages_that_differ([surely], FIRST_HEAD) == ["de", "th", "en"]
    assert languages_that_differ([[Named("a")], surely], SECOND_HEAD) == ["ru", "bg"]
    assert languages_that_differ([surely], THIRD_HEAD) == []
