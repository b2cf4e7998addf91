"""Templates of one language: read with hassil, merged where they differ only in optional words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import factorial, prod

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

from headlab.errors import HeadlabError
from headlab.tasks.intents.classes import CLASSES
from headlab.tasks.intents.words import WILDCARDS, Words, ambiguous_groups, load_words, numbers

# "<turn> on {name} <light>": the name there is a place ("the kitchen lights"), not a lamp ("the floor lamp lights").
LIGHT_RULE = re.compile(r"<(light|lights|luces|licht|lichter|lumiere|valo)>")
OPEN_STATES = ("bs_open", "bs_door", "bs_opening")
MOST = 10**6  # enough: capacities are only compared, up to a few hundred

Value = str | Expression


@dataclass(frozen=True)
class Variant:
    """One sentence of the source: its parsed form and the names that suit its context."""

    expression: Expression
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Template:
    """Sentences of one class that differ at most in optional words: what stands in one split only.

    label: index of the class.  group: 8 hex digits of (language, class, skeleton).
    capacity: at most so many different sentences (an upper bound).
    """

    label: int
    intent: str
    skeleton: str
    group: str
    variants: tuple[Variant, ...]
    capacity: int


@dataclass(frozen=True)
class Book:
    """All templates of one language, with the rules and lists they refer to.

    sentences: sentences of the source before merging.
    """

    language: str
    templates: tuple[Template, ...]
    rules: Mapping[str, Sentence]
    lists: Mapping[str, Sequence[Value]]
    words: Words
    sentences: int

    def of(self, label: int) -> tuple[Template, ...]:
        """The templates of one class."""
        return tuple(t for t in self.templates if t.label == label)


def read_book(language: str, *, ambiguous: bool = False) -> Book:
    """Parse the sentences of the 17 classes.

    ambiguous: keep the templates that `ambiguity` found to belong to two classes.
    Raises HeadlabError if the source lacks the language.
    """
    raw = get_intents(language)
    if raw is None:
        raise HeadlabError(
            f"the installed home-assistant-intents has no {language}; pip install the pinned version",
            code="intents.language_missing",
        )
    intents, words = Intents.from_dict(raw), load_words(language)
    lists = list_values(intents, words)
    found: dict[tuple[int, str], list[tuple[str, Variant]]] = {}
    for label, group in enumerate(CLASSES):
        for name in group.intents:
            for block in intents.intents[name].data if name in intents.intents else ():
                for sentence in block.sentences:
                    variant = make_variant(sentence, block, intents.expansion_rules, words)
                    found.setdefault((label, skeleton(variant)), []).append((name, variant))
    templates = tuple(merged(language, key, rows, intents.expansion_rules, lists) for key, rows in found.items())
    dropped = () if ambiguous else ambiguous_groups(language)
    templates = tuple(t for t in templates if t.group not in dropped)
    return Book(language, templates, intents.expansion_rules, lists, words, sum(map(len, found.values())))


def list_values(intents: Intents, words: Words) -> dict[str, Sequence[Value]]:
    """What may stand for each list of the source ({name} apart)."""
    out: dict[str, Sequence[Value]] = {}
    for name, slots in intents.slot_lists.items():
        if isinstance(slots, RangeSlotList):
            out[name] = numbers(name, slots.start, slots.stop)
        elif isinstance(slots, TextSlotList):
            out[name] = [value.text_in for value in slots.values]
    out |= {name: words.slots[slot] for name, slot in WILDCARDS.items()}
    return out | dict(words.lists)


def make_variant(sentence: Sentence, block: IntentData, rules: Mapping[str, Sentence], words: Words) -> Variant:
    """A sentence with the names that its context admits."""
    source = " ".join((sentence.text or "").split())
    refs = set(sentence.list_names(dict(rules)))
    kinds = name_kinds(block.requires_context.get("domain", ()), refs) if "name" in refs else ()
    names = [n for kind in kinds for n in words.names[kind]]
    if kinds == ("light",) and LIGHT_RULE.search(source):
        names, kinds = list(words.slots["area"]), ("area",)
    return Variant(sentence.expression, tuple(dict.fromkeys(names)), kinds, source)


def name_kinds(domains: Sequence[str] | str, refs: set[str]) -> tuple[str, ...]:
    """The filler kinds for the domains that a context requires; all switchable devices if it names none."""
    wanted = [domains] if isinstance(domains, str) else list(domains) or ["light", "switch", "fan"]
    sensor = "opening" if any(ref.startswith(OPEN_STATES) for ref in refs) else "occupancy"
    alias = {"input_boolean": "switch", "input_button": "button", "binary_sensor": sensor}
    if len(wanted) > 1 and "binary_sensor" in wanted:
        wanted.remove("binary_sensor")  # "is the front door on" suits no sensor
    return tuple(dict.fromkeys(alias.get(d, d) for d in wanted))


def skeleton(variant: Variant) -> str:
    """The template without its optional words; the whole of it if nothing else is left."""
    bare = " ".join(render(variant.expression, optional=False).lower().split())
    return bare if re.sub(r"\W", "", re.sub(r"\{(name|area|floor)\}", "", bare)) else variant.source.lower()


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


def merged(
    language: str,
    key: tuple[int, str],
    rows: Sequence[tuple[str, Variant]],
    rules: Mapping[str, Sentence],
    lists: Mapping[str, Sequence[Value]],
) -> Template:
    """One template of the sentences that share a class and a skeleton."""
    label, bare = key
    group = hashlib.sha256(f"{language}\n{CLASSES[label].name}\n{bare}".encode()).hexdigest()[:8]
    variants = tuple({(v.source, v.kinds): v for _, v in rows}.values())
    room = sum(capacity(v.expression, len(v.names), rules, lists) for v in variants)
    return Template(label, rows[0][0], bare, group, variants, min(room, MOST))


def capacity(
    expression: Expression, names: int, rules: Mapping[str, Sentence], lists: Mapping[str, Sequence[Value]]
) -> int:
    """How many sentences an expression can give, at most; counted up to MOST."""
    if isinstance(expression, Group):
        sizes = [capacity(item, names, rules, lists) for item in expression.items]
        total = sum(sizes) if isinstance(expression, Alternative) else prod(sizes)
        return min(total * (factorial(len(sizes)) if isinstance(expression, Permutation) else 1), MOST)
    if isinstance(expression, RuleReference):
        return capacity(rules[expression.rule_name].expression, names, rules, lists)
    if isinstance(expression, ListReference):
        if expression.list_name == "name":
            return names
        values = lists[expression.list_name]
        return sum(1 if isinstance(v, str) else capacity(v, names, rules, lists) for v in values)
    return 1
