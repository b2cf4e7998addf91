"""The task `intents` before splitting: its classes, templates and sampled sentences.

Templates are parsed with hassil.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from math import factorial, prod
from typing import NamedTuple, TypeVar

import numpy as np
from hassil import (
    Alternative,
    Expression,
    Group,
    IntentData,
    Intents,
    ListReference,
    Permutation,
    RangeSlotList,
    RuleReference,
    Sentence,
    TextChunk,
    TextSlotList,
)
from home_assistant_intents import get_intents

from headlab.core import HeadlabError
from headlab.tasks.intents.classes import CLASSES as CLASSES
from headlab.tasks.intents.classes import LABELS as LABELS
from headlab.tasks.intents.classes import LANGUAGES as LANGUAGES
from headlab.tasks.intents.classes import SIZES as SIZES

# Fillers of one language: device names by kind, places, list items, timer names, commands.

# The kinds of device that a template's context may require: keys of the names in the filler files.
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
# Template list -> filler list.
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
class Fillers:
    """The fillers of one language.

    Attributes:
        names: Kind -> device names.
        slots: Values of area, floor, item, timer_name, command, zone.
        refuse: Pattern of sentences that two classes can produce ("stop the timer": pause or
            cancel), which are left out.
        lists: Values that replace a list of the source whose templates give broken forms.
        clean: (pattern, replacement) pairs that correct articles and endings in a finished
            sentence.
    """

    names: Mapping[str, Sequence[str]]
    slots: Mapping[str, Sequence[str]]
    lists: Mapping[str, Sequence[str]]
    clean: Sequence[tuple[re.Pattern[str], str]]
    refuse: re.Pattern[str] | None


def load_words(language: str) -> Fillers:
    """The fillers of a language, from its file."""
    data = json.loads((files(__package__) / "fillers" / f"{language}.json").read_text("utf-8"))
    clean = tuple(
        (re.compile(with_heads(pattern, data["heads"])), replacement)
        for pattern, replacement in data["clean"]
    )
    slots = {slot: data[slot] for slot in SLOTS}
    refuse = re.compile(data["refuse"]) if data["refuse"] else None
    return Fillers(data["names"], slots, data["lists"], clean, refuse)


def ambiguous_groups(language: str) -> Mapping[str, Sequence[str]]:
    """The templates that `ambiguous_templates` found to fit other classes too.

    Returns:
        {group of the template: names of the other classes}.
    """
    groups_by_language: dict[str, dict[str, list[str]]] = json.loads(
        (files(__package__) / "ambiguous.json").read_text("utf-8")
    )
    return groups_by_language.get(language, {})


def with_heads(pattern: str, heads: Mapping[str, str]) -> str:
    """A pattern with %F, %M ... replaced by the head nouns of that gender."""
    for gender, nouns in heads.items():
        pattern = pattern.replace(f"%{gender}", nouns)
    return pattern


def numbers(name: str, start: int, stop: int) -> tuple[str, ...]:
    """Values of a number list, as digits: the usual ones in [start, stop], or all if none is."""
    usual_start, usual_end, step = NUMBERS.get(name, PERCENT)
    usual_numbers = [n for n in range(usual_start, usual_end + 1, step) if start <= n <= stop]
    return tuple(map(str, usual_numbers or range(start, stop + 1)))


# Templates of one language: parsed with hassil, merged if they differ only in optional words.

# "<turn> on {name} <light>": the name there is a place ("the kitchen lights"), not a lamp ("the
# floor lamp lights").
LIGHT_RULE = re.compile(r"<(light|lights|luces|licht|lichter|lumiere|valo)>")
OPEN_STATES = ("bs_open", "bs_door", "bs_opening")
MAX_CAPACITY = 10**6  # enough, since capacities are compared only up to a few hundred

Value = str | Expression


@dataclass(frozen=True)
class Variant:
    """One sentence of the source: its parsed form and the names that fit its context."""

    expression: Expression
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Template:
    """Sentences of one class that differ at most in optional words; each is assigned to a split.

    Attributes:
        label: Index of the class.
        group: 8 hex digits of the sha256 of (language, class, skeleton).
        capacity: Upper bound on the number of different sentences.
    """

    label: int
    intent: str
    skeleton: str
    group: str
    variants: tuple[Variant, ...]
    capacity: int


@dataclass(frozen=True)
class TemplateBook:
    """All templates of one language, with the rules and lists they refer to.

    Attributes:
        sentences: Number of source sentences before merging.
    """

    language: str
    templates: tuple[Template, ...]
    rules: Mapping[str, Sentence]
    lists: Mapping[str, Sequence[Value]]
    words: Fillers
    sentences: int

    def templates_of(self, label: int) -> tuple[Template, ...]:
        """The templates of one class."""
        return tuple(t for t in self.templates if t.label == label)


def read_book(language: str, *, ambiguous: bool = False) -> TemplateBook:
    """Parse the source's sentences for the 17 classes.

    Raises HeadlabError if the source lacks the language.

    Args:
        ambiguous: Keep the templates that `ambiguous_templates` found to belong to two classes.
    """
    raw = get_intents(language)
    if raw is None:
        raise HeadlabError(
            f"the installed home-assistant-intents lacks {language}; install the pinned version "
            "with pip",
            code="intents.language_missing",
        )
    intents = Intents.from_dict(raw)
    rules = intents.expansion_rules
    words = load_words(language)
    lists = list_values(intents, words)
    variants_by_skeleton: dict[tuple[int, str], list[tuple[str, Variant]]] = {}
    for label, intent_class in enumerate(CLASSES):
        for intent in intent_class.intents:
            for sentence, block in _sentences(intents, intent):
                variant = make_variant(sentence, block, rules, words)
                key = (label, skeleton(variant))
                variants_by_skeleton.setdefault(key, []).append((intent, variant))
    excluded_groups = () if ambiguous else ambiguous_groups(language)
    templates = []
    for key, variants in variants_by_skeleton.items():
        template = merge_variants(language, key, variants, rules, lists)
        if template.group not in excluded_groups:
            templates.append(template)
    sentence_count = sum(map(len, variants_by_skeleton.values()))
    return TemplateBook(language, tuple(templates), rules, lists, words, sentence_count)


def _sentences(intents: Intents, intent: str) -> Iterator[tuple[Sentence, IntentData]]:
    """The source's sentences for an intent, each with the block that it stands in."""
    if intent not in intents.intents:
        return
    for block in intents.intents[intent].data:
        for sentence in block.sentences:
            yield sentence, block


def list_values(intents: Intents, words: Fillers) -> dict[str, Sequence[Value]]:
    """The values of each list of the source, except {name}."""
    values_by_list: dict[str, Sequence[Value]] = {}
    for name, slots in intents.slot_lists.items():
        if isinstance(slots, RangeSlotList):
            values_by_list[name] = numbers(name, slots.start, slots.stop)
        elif isinstance(slots, TextSlotList):
            values_by_list[name] = [value.text_in for value in slots.values]
    values_by_list |= {name: words.slots[slot] for name, slot in WILDCARDS.items()}
    return values_by_list | dict(words.lists)


def make_variant(
    sentence: Sentence, block: IntentData, rules: Mapping[str, Sentence], words: Fillers
) -> Variant:
    """A sentence with the names that its context allows."""
    source = " ".join((sentence.text or "").split())
    refs = set(sentence.list_names(dict(rules)))
    kinds: tuple[str, ...] = ()
    if "name" in refs:
        kinds = name_kinds(block.requires_context.get("domain", ()), refs)
    names: Iterable[str] = chain.from_iterable(words.names[kind] for kind in kinds)
    if kinds == ("light",) and LIGHT_RULE.search(source):
        kinds = ("area",)
        names = words.slots["area"]
    return Variant(sentence.expression, tuple(dict.fromkeys(names)), kinds, source)


def name_kinds(domains: Sequence[str] | str, refs: set[str]) -> tuple[str, ...]:
    """The filler kinds for the domains that a context requires.

    All switchable devices if it names none.

    Args:
        domains: That the context requires.
        refs: Names of the lists that the sentence refers to.
    """
    required_domains = [domains] if isinstance(domains, str) else list(domains)
    if not required_domains:
        required_domains = ["light", "switch", "fan"]
    sensor = "occupancy"
    if any(ref.startswith(OPEN_STATES) for ref in refs):
        sensor = "opening"
    alias = {"input_boolean": "switch", "input_button": "button", "binary_sensor": sensor}
    if len(required_domains) > 1 and "binary_sensor" in required_domains:
        required_domains.remove("binary_sensor")  # "is the front door on" fits no sensor
    return tuple(dict.fromkeys(alias.get(d, d) for d in required_domains))


def skeleton(variant: Variant) -> str:
    """The template without its optional words.

    It is the whole template where nothing but names would be left.
    """
    without_options = " ".join(render(variant.expression, optional=False).lower().split())
    without_names = re.sub(r"\{(name|area|floor)\}", "", without_options)
    if re.sub(r"\W", "", without_names):
        return without_options
    return variant.source.lower()


def render(expression: Expression, *, optional: bool) -> str:
    """An expression as template text, with or without its optional parts."""
    if isinstance(expression, TextChunk):
        return expression.original_text
    if isinstance(expression, ListReference):
        return "{" + expression.list_name + "}"
    if isinstance(expression, RuleReference):
        return f"<{expression.rule_name}>"
    assert isinstance(expression, Group)
    if isinstance(expression, Alternative):
        if expression.is_optional and not optional:
            return ""
        return "(" + "|".join(render(item, optional=optional) for item in expression.items) + ")"
    if isinstance(expression, Permutation):
        return "(" + ";".join(render(item, optional=optional) for item in expression.items) + ")"
    return "".join(render(item, optional=optional) for item in expression.items)


def merge_variants(
    language: str,
    key: tuple[int, str],
    rows: Sequence[tuple[str, Variant]],
    rules: Mapping[str, Sentence],
    lists: Mapping[str, Sequence[Value]],
) -> Template:
    """One template of the sentences that share a class and a skeleton."""
    label, template_skeleton = key
    group = hashlib.sha256(
        f"{language}\n{CLASSES[label].name}\n{template_skeleton}".encode()
    ).hexdigest()[:8]
    variants = tuple({(v.source, v.kinds): v for _, v in rows}.values())
    room = sum(capacity(v.expression, len(v.names), rules, lists) for v in variants)
    return Template(label, rows[0][0], template_skeleton, group, variants, min(room, MAX_CAPACITY))


def capacity(
    expression: Expression,
    names: int,
    rules: Mapping[str, Sentence],
    lists: Mapping[str, Sequence[Value]],
) -> int:
    """Upper bound on the number of sentences of an expression, at most MAX_CAPACITY.

    Args:
        expression: Parsed from a template.
        names: How many names fit its {name}.
        rules: That it may refer to, by name.
        lists: Values of the lists that it may refer to, by name.
    """
    if isinstance(expression, Group):
        sizes = [capacity(item, names, rules, lists) for item in expression.items]
        if isinstance(expression, Alternative):
            return min(sum(sizes), MAX_CAPACITY)
        total = prod(sizes)
        if isinstance(expression, Permutation):
            total *= factorial(len(sizes))
        return min(total, MAX_CAPACITY)
    if isinstance(expression, RuleReference):
        return capacity(rules[expression.rule_name].expression, names, rules, lists)
    if isinstance(expression, ListReference):
        if expression.list_name == "name":
            return names
        total = 0
        for value in lists[expression.list_name]:
            total += 1 if isinstance(value, str) else capacity(value, names, rules, lists)
        return total
    return 1


# Random sentences from a parsed template: a random walk through its tree.

# Rules that contain only articles: a sentence of articles and names alone ("the kitchen lamp") is
# no command.
ARTICLES = frozenset({"the", "le", "artikel_bestimmt"})
PLACES = frozenset({"name", "area", "floor"})
BROKEN = re.compile(r"[{}<>\[\]()|;\\]")
BLOCK = 8192

T = TypeVar("T")


class Dice:
    """Uniform choices from a numpy generator, drawn in blocks: the same on every machine."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Dice on a generator.

        Args:
            rng: Source of the random numbers.
        """
        self._rng = rng
        self._left: list[float] = []

    def roll(self) -> float:
        """A float in [0, 1)."""
        if not self._left:
            self._left = self._rng.random(BLOCK).tolist()
        return self._left.pop()

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, uniformly at random."""
        return items[int(self.roll() * len(items))]

    def shuffle(self, items: Sequence[T]) -> list[T]:
        """The items in random order (Fisher-Yates)."""
        shuffled_items = list(items)
        for i in range(len(shuffled_items) - 1, 0, -1):
            j = int(self.roll() * (i + 1))
            shuffled_items[i], shuffled_items[j] = shuffled_items[j], shuffled_items[i]
        return shuffled_items


class Piece(NamedTuple):
    """A part of a sentence inserted in one step.

    Attributes:
        slot: The one it fills; empty for the template's own words.
    """

    text: str
    slot: str = ""


class DrawnSentence(NamedTuple):
    """A sentence, and the pieces it was assembled from, before corrections."""

    text: str
    pieces: tuple[Piece, ...]


class TemplateWalk:
    """A random walk that builds one sentence.

    Attributes:
        says_something: Whether it has anything besides articles, names and places.
        used: Fillers already in the sentence.
    """

    def __init__(self, book: TemplateBook, variant: Variant, dice: Dice) -> None:
        """A walk that has not begun.

        Args:
            book: Templates and fillers of the language.
            variant: The sentence template to walk.
            dice: What chooses among alternatives.
        """
        self.book = book
        self.variant = variant
        self.dice = dice
        self.says_something = False
        self.used: set[str] = set()

    def pieces(self, expression: Expression) -> list[Piece]:
        """Pieces of an expression, with choices made at random."""
        if isinstance(expression, TextChunk):
            if any(character.isalnum() for character in expression.original_text):
                self.says_something = True
            return [Piece(expression.original_text)]
        if isinstance(expression, ListReference):
            return [Piece(self.filler(expression.list_name), expression.slot_name)]
        if isinstance(expression, RuleReference):
            return self.rule(expression.rule_name)
        assert isinstance(expression, Group)
        if isinstance(expression, Alternative):
            return self.choice(expression)
        items: Sequence[Expression] = expression.items
        if isinstance(expression, Permutation):
            items = self.dice.shuffle(items)
        return list(chain.from_iterable(map(self.pieces, items)))

    def choice(self, expression: Alternative) -> list[Piece]:
        """Pieces of one alternative; an optional part is left out half of the time."""
        if not expression.is_optional:
            return self.pieces(self.dice.pick(expression.items))
        if self.dice.roll() >= 0.5:
            return []
        return self.pieces(self.dice.pick(expression.items[:-1]))

    def rule(self, name: str) -> list[Piece]:
        """Pieces of an expansion rule."""
        said_before = self.says_something
        pieces = self.pieces(self.book.rules[name].expression)
        if name in ARTICLES:
            self.says_something = said_before
        return pieces

    def filler(self, name: str) -> str:
        """A value of a list, if possible one that is not in the sentence yet."""
        values: Sequence[Value] = self.variant.names if name == "name" else self.book.lists[name]
        self.says_something = self.says_something or name not in PLACES
        text = ""
        for _ in range(8):
            value = self.dice.pick(values)
            text = value if isinstance(value, str) else join_pieces(self.pieces(value))
            if text not in self.used:
                break
        self.used.add(text)
        return text


def join_pieces(pieces: Sequence[Piece]) -> str:
    """The text of some pieces."""
    return "".join(piece.text for piece in pieces)


def sample(book: TemplateBook, template: Template, dice: Dice) -> DrawnSentence | None:
    """One random sentence of a template; None if it is a bare name, broken or refused."""
    variant = dice.pick(template.variants)
    walk = TemplateWalk(book, variant, dice)
    pieces = tuple(walk.pieces(variant.expression))
    text = tidy(join_pieces(pieces), book.words.clean)
    is_refused = book.words.refuse and book.words.refuse.search(text)
    is_command = (
        walk.says_something and len(text) > 1 and not is_refused and not BROKEN.search(text)
    )
    if not is_command:
        return None
    return DrawnSentence(text, pieces)


def tidy(text: str, clean: Sequence[tuple[re.Pattern[str], str]]) -> str:
    """A sentence with its spaces normalised and the language's corrections applied."""
    text = " ".join(text.split())
    for pattern, replacement in clean:
        text = pattern.sub(replacement, text)
    return text.strip()
