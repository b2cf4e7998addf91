"""What sections of several kinds of results say in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headlab.core import part
from headlab.report.parts import Item, Made, cost_facts, facts_of
from headlab.results import Curve, HeadScores, LearnedGates
from headlab.tasks import notes_of_record


def origin_of(item: Item[HeadScores | Curve | LearnedGates], title: str) -> Made:
    """Where a result comes from, and what it took.

    Args:
        item: The result.
        title: What distinguishes it from the others of its section.

    Returns:
        Its key and its facts.
    """
    record = item.record
    cost = cost_facts(record.example_forwards, record.seconds)
    if not isinstance(record, LearnedGates):
        cost += (("values (sha256)", record.values_sha256()),)
    return Made(item.key, title, facts_of(record.spec, item.meta, cost))


def equal_texts_notes(items: Sequence[Item[HeadScores]] | Sequence[Item[Curve]]) -> Iterator[str]:
    """What was counted beside the results of texts that are in dev and test, once per language."""
    notes = []
    for item in items:
        language = part(item.record.spec, "task", "language")
        split = str(part(item.record.spec, "task", "split"))
        notes += [f"{language}: {note}." for note in notes_of_record(item.meta, split)]
    yield from dict.fromkeys(notes)
