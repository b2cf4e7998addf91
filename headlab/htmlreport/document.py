"""Results put together to a document: sections by model, the runs they rest on, and what to know of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headlab import __version__
from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.htmlreport import of_curves, of_gates, of_masks, of_reports, of_scores
from headlab.htmlreport.commands import part
from headlab.htmlreport.find import KEY
from headlab.htmlreport.parts import Item, Section
from headlab.l0_gates import LearnedGates
from headlab.masks import Mask
from headlab.scores import Curve, HeadScores
from headlab.store import Store
from headlab.tables import Report

DevSize = Callable[[str], int | None]


@dataclass(frozen=True)
class Document:
    """A document. models: name and fingerprint of each, as the sections come.  written: when, in UTC."""

    title: str
    sections: Sequence[Section]
    models: Sequence[tuple[str, str]]
    written: str
    version: str


def document(items: Sequence[Item], *, title: str = "", dev_size: DevSize = lambda _: None) -> Document:
    """The document about results. title: by default what they are of.  dev_size: as `of_curves.section` takes it."""
    by_model: dict[tuple[str, str], list[Section]] = {}
    for section in _sections(items, dev_size):
        by_model.setdefault(section.model, []).append(section)
    sections = [section for group in by_model.values() for section in group]
    names = list(dict.fromkeys(name for name, _ in by_model))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Document(title or f"Attention heads of {', '.join(names)}", sections, list(by_model), now, __version__)


def _sections(items: Sequence[Item], dev_size: DevSize) -> Iterator[Section]:
    """Scores, curves and gates that belong together share a section; reports and masks have their own."""
    several, number = sum(isinstance(item.record, Mask) for item in items) > 1, 0
    for group in _groups(items):
        match group[0].record:
            case HeadScores():
                yield of_scores.section(_with(group, HeadScores))
            case Curve():
                yield of_curves.section(_with(group, Curve), dev_size)
            case LearnedGates():
                yield of_gates.section(_with(group, LearnedGates))
            case Report() as report:
                yield of_reports.section(group[0], report)
            case Mask() as mask:
                number += several
                yield of_masks.section(group[0], mask, number)


def _with(group: Sequence[Item], kind: type[Any]) -> list[tuple[Item, Any]]:
    return [(item, item.record) for item in group if isinstance(item.record, kind)]


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    found: dict[tuple[object, ...], list[Item]] = {}
    for at, item in enumerate(items):
        found.setdefault(_group(item.record, at), []).append(item)
    return list(found.values())


def _group(record: object, at: int) -> tuple[object, ...]:
    match record:
        case HeadScores():
            return ("scores", *of_scores.group_of(record))
        case Curve():
            return ("curve", *of_curves.group_of(record))
        case LearnedGates():
            return ("gates", *of_gates.group_of(record))
    return ("alone", at)


def ordered_on(store: Store) -> DevSize:
    """How many examples the scores of a key are from, where the store has them."""

    def size(key: str) -> int | None:
        if not KEY.fullmatch(key):
            return None
        try:
            found = part(read_json(store.root / key / "spec.json"), "task", "size")
        except HeadlabError:  # the scores are not here; the command says so
            return None
        return found if isinstance(found, int) else None

    return size
