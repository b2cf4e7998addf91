"""What a document consists of: sections with drawings, tables, notes and the way to make them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headlab.htmlreport.commands import Again
from headlab.tables import Table

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figure:
    """Drawings that belong together.

    drawings: SVG, one beside the other where there is room.  caption: below them.  wide: with no other figure beside.
    """

    drawings: Sequence[str]
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Folded:
    """A table that is behind a line to click on, on the screen; on paper it is there as all others are."""

    table: Table


@dataclass(frozen=True)
class Made:
    """Where a result comes from. key: of its run, or the file's name.  facts: names and values, in reading order."""

    key: str
    title: str
    facts: Facts


@dataclass(frozen=True)
class Section:
    """What is told of results that belong together.

    model: name and fingerprint of the model they are of.  kind: of result, in a word or two.
    """

    title: str
    kind: str
    model: tuple[str, str]
    figures: Sequence[Figure] = ()
    tables: Sequence[Table | Folded] = ()
    notes: Sequence[str] = ()
    made: Sequence[Made] = ()
    again: Again = field(default_factory=lambda: Again(()))


@dataclass(frozen=True)
class Item:
    """A result to report. record: what `headlab.store` reads, a report or a mask.  key: its name in the document.

    meta: when and with what it was made.  command: that the file it was read from says made it, or empty.  file: that
    it was read from, by as much of its path as tells it from the others; equal to `key` where it is all of that file,
    empty for a run.
    """

    record: object
    key: str
    meta: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    file: str = ""
