"""Fillers of one language: device names by kind, places, list items, timer names, commands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

# The kinds of device a template's context may ask for, and where their names stand in the filler files.
KINDS = (
    "light",
    "switch",
    "fan",
    "media_player",
    "climate",
    "cover",
    "valve",
    "lock",
    "vacuum",
    "scene",
    "script",
    "button",
    "sensor",
    "opening",
    "occupancy",
    "person",
    "weather",
    "todo",
)
SLOTS = ("area", "floor", "item", "timer_name", "command", "zone")
# Which filler list answers for which template list.
WILDCARDS = {
    "area": "area",
    "floor": "floor",
    "shopping_list_item": "item",
    "todo_list_item": "item",
    "timer_name": "timer_name",
    "timer_command": "command",
    "zone": "zone",
}
# Numbers people say: (first, last, step), within what the language's list allows.
NUMBERS = {
    "temperature": (16, 26, 1),
    "color_temperature": (2000, 6500, 100),
    "timer_hours": (2, 12, 1),
    "timer_minutes": (2, 59, 1),
    "timer_seconds": (5, 59, 1),
    "volume_step_up": (5, 50, 5),
    "volume_step_down": (5, 50, 5),
    "volume_level": (5, 100, 5),
}
PERCENT = (5, 100, 5)


@dataclass(frozen=True)
class Words:
    """What may be said in a slot.

    names: kind -> device names.  slots: area, floor, item, timer_name, command, zone.
    refuse: what two classes can say ("stop the timer": pause or cancel); such sentences are left out.
    lists: values that replace a list of the source whose templates give broken forms.
    clean: (pattern, replacement) pairs that mend articles and endings in a finished sentence.
    """

    names: Mapping[str, Sequence[str]]
    slots: Mapping[str, Sequence[str]]
    lists: Mapping[str, Sequence[str]]
    clean: Sequence[tuple[re.Pattern[str], str]]
    refuse: re.Pattern[str] | None


def load_words(language: str) -> Words:
    """The filler file of a language of the task."""
    data = json.loads((files(__package__) / "fillers" / f"{language}.json").read_text("utf-8"))
    clean = tuple((re.compile(with_heads(pattern, data["heads"])), to) for pattern, to in data["clean"])
    return Words(
        data["names"],
        {slot: data[slot] for slot in SLOTS},
        data["lists"],
        clean,
        re.compile(data["refuse"]) if data["refuse"] else None,
    )


def ambiguous_groups(language: str) -> Mapping[str, Sequence[str]]:
    """Groups of the templates that belong to another class too, as `ambiguity` found them -> those classes."""
    found: dict[str, dict[str, list[str]]] = json.loads((files(__package__) / "ambiguous.json").read_text("utf-8"))
    return found.get(language, {})


def with_heads(pattern: str, heads: Mapping[str, str]) -> str:
    """A pattern with %F, %M ... replaced by the head nouns of that gender."""
    for gender, nouns in heads.items():
        pattern = pattern.replace(f"%{gender}", nouns)
    return pattern


def numbers(name: str, start: int, stop: int) -> tuple[str, ...]:
    """What is said for a number list: the usual values inside [start, stop], as digits."""
    first, last, step = NUMBERS.get(name, PERCENT)
    usual = [n for n in range(first, last + 1, step) if start <= n <= stop]
    return tuple(map(str, usual or range(start, stop + 1)))
