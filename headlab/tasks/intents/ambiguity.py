"""Templates whose sentences hassil also assigns to another class ("stop the timer": pause or cancel)."""

from __future__ import annotations

from collections.abc import Iterable

from hassil import Intents, TextSlotList, recognize_all
from home_assistant_intents import get_intents

from headlab.tasks.intents.splits import seeded
from headlab.tasks.intents.templates import CLASSES, WILDCARDS, Book, Template, Words, sample

SAMPLES = 3
DOMAINS = {"opening": "binary_sensor", "occupancy": "binary_sensor"}


class Judge:
    """Finds the classes a sentence of one language may belong to, with hassil's own matcher."""

    def __init__(self, book: Book) -> None:
        """book: templates and fillers of the language."""
        raw = dict(get_intents(book.language) or {})
        used = {intent for c in CLASSES for intent in c.intents}
        raw["intents"] = {name: data for name, data in raw["intents"].items() if name in used}
        self._book = book
        self._intents = Intents.from_dict(raw)
        self._lists = slot_lists(book.words)

    def classes(self, text: str) -> set[int]:
        """Labels of the classes whose templates match the text."""
        area = {"area": self._book.words.slots["area"][0]}
        results = recognize_all(
            text, self._intents, slot_lists=dict(self._lists), intent_context=area, language=self._book.language
        )
        names = {result.intent.name for result in results}
        return {label for label, c in enumerate(CLASSES) if names & set(c.intents)}

    def others(self, template: Template) -> set[int]:
        """Other classes that match sentences of a template, if most of SAMPLES sentences match one."""
        dice = seeded(0, self._book.language, template.group)
        said = [sample(self._book, template, dice) for _ in range(SAMPLES)]
        found = [self.classes(one.text) - {template.label} for one in said if one is not None]
        return set().union(*found) if 2 * sum(map(bool, found)) > len(found) else set()


def slot_lists(words: Words) -> dict[str, TextSlotList]:
    """Fillers of each open slot; the source's wildcards would match any words."""
    names = [(name, name, {"domain": DOMAINS.get(kind, kind)}) for kind, some in words.names.items() for name in some]
    rooms = [(room, room, {"domain": "light"}) for room in words.slots["area"]]  # "the kitchen lights"
    out = {"name": TextSlotList.from_tuples([*names, *rooms], allow_template=False)}
    return out | {
        name: TextSlotList.from_strings(words.slots[slot], allow_template=False) for name, slot in WILDCARDS.items()
    }


def ambiguous_templates(book: Book, templates: Iterable[Template]) -> dict[str, list[str]]:
    """Group -> names of the other classes, for the templates that hassil also assigns to another class."""
    judge = Judge(book)
    found = {template.group: judge.others(template) for template in templates}
    names = {group: [CLASSES[label].name for label in sorted(labels)] for group, labels in sorted(found.items())}
    return {group: others for group, others in names.items() if others}
