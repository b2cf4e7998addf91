"""From templates to splits: no two splits share a sentence, or a template if its class has several."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from headlab.tasks.base import Example
from headlab.tasks.intents.templates import (
    LABELS,
    SIZES,
    TRAIN_LANGUAGE,
    Book,
    Dice,
    Said,
    Template,
    read_book,
    sample,
)

# Share of a class's templates, weighted by how many sentences they can give (up to ENOUGH).
SHARES = {True: {"test": 0.3, "dev": 0.2, "train": 0.5}, False: {"test": 0.6, "dev": 0.4}}
ENOUGH = 100
# A single word may also be a sentence in another language ("pause"), so train has none.
LEAST_WORDS = {"train": 2, "dev": 1, "test": 1}
TRIES = 25  # draws in a row without a new sentence before a template counts as used up

Plan = Mapping[str, Mapping[int, Sequence[Template]]]
Row = tuple[Said, Template]


@dataclass(frozen=True)
class Splits:
    """The splits of one language and how they were made.

    plan: split -> class -> templates.  said: split -> each example's sentence and its pieces.
    shared: classes whose only template is in both dev and test.
    ambiguous: number of sentences left out because two classes can produce them.
    repeats: draws refused because another template of the class had already produced the sentence.
    """

    book: Book
    plan: Plan
    examples: Mapping[str, tuple[Example, ...]]
    said: Mapping[str, tuple[Said, ...]]
    ambiguous: int
    repeats: int

    @property
    def shared(self) -> tuple[int, ...]:
        """Classes with a single template, whose dev and test differ only in their sentences."""
        return tuple(label for label in range(len(LABELS)) if len(self.book.of(label)) == 1)


@dataclass
class Draw:
    """The state of one drawing of sentences.

    banned: sentences that two classes can produce.  owner: sentence -> template that produced it.  clashes: newly
    found ambiguous sentences.  repeats: refused draws, as in `Splits`.  said: sentences drawn so far.
    """

    book: Book
    dice: Dice
    banned: frozenset[str]
    owner: dict[str, Template] = field(default_factory=dict)
    clashes: set[str] = field(default_factory=set)
    repeats: int = 0
    said: set[str] = field(default_factory=set)

    def fresh(self, template: Template, least: int) -> Said | None:
        """A new sentence of at least `least` words; None if TRIES draws gave none."""
        for _ in range(TRIES):
            said = sample(self.book, template, self.dice)
            if (
                said is None
                or (key := said.text.casefold()) in self.banned
                or len(said.text.split()) < least
            ):
                continue
            holder = self.owner.setdefault(key, template)
            if holder is template and key not in self.said:
                self.said.add(key)
                return said
            self.repeats += holder is not template
            if holder.label != template.label:
                self.clashes.add(key)
        return None

    def rows(self, templates: Sequence[Template], least: int) -> Iterator[Row]:
        """New sentences of a class, taking templates in turn until all are used up."""
        left = self.dice.shuffled(templates)
        while left:
            for template in tuple(left):
                said = self.fresh(template, least)
                if said is not None:
                    yield said, template
                else:
                    left.remove(template)

    def split(self, name: str, plan: Mapping[int, Sequence[Template]]) -> list[Row]:
        """The sentences of a split in rounds of one per class, so that every prefix is balanced.

        A class that is used up leaves the rounds, and its share goes to the others evenly.
        """
        size, least = SIZES[name], LEAST_WORDS[name]
        streams = {label: self.rows(templates, least) for label, templates in plan.items()}
        out: list[Row] = []
        while streams and len(out) < size:
            for label in self.dice.shuffled(tuple(streams)):
                row = next(streams[label], None)
                if row is None:
                    del streams[label]
                else:
                    out.append(row)
        return out[:size]


@lru_cache(maxsize=32)
def build(language: str, seed: int) -> Splits:
    """All splits of one language; the same for the same seed in any process and on any machine."""
    book = read_book(language)
    plan = assign(book, seeded(seed, language, "plan"))
    banned: frozenset[str] = frozenset()
    while True:
        draw = Draw(book, seeded(seed, language, "draw"), banned)
        rows = {split: draw.split(split, plan[split]) for split in plan}
        if not draw.clashes:
            examples = {split: to_examples(language, split, rows[split]) for split in rows}
            said = {split: tuple(one for one, _ in rows[split]) for split in rows}
            return Splits(book, plan, examples, said, len(banned), draw.repeats)
        banned |= draw.clashes


def seeded(seed: int, language: str, purpose: str) -> Dice:
    """Dice for one purpose: different languages and purposes get independent streams."""
    word = hashlib.sha256(f"{language}/{purpose}".encode()).digest()
    return Dice(np.random.default_rng([seed, int.from_bytes(word[:8], "big")]))


def assign(book: Book, dice: Dice) -> Plan:
    """Assign every template to one split; the only template of a class goes to both dev and test."""
    shares = SHARES[book.language == TRAIN_LANGUAGE]
    plan: dict[str, dict[int, list[Template]]] = {
        split: {} for split in ("dev", "test", "train") if split in shares
    }
    for label in range(len(LABELS)):
        templates = book.of(label)
        if len(templates) == 1:
            plan["dev"][label] = plan["test"][label] = list(templates)
        for template, split in deal(templates, shares, dice) if len(templates) > 1 else ():
            plan[split].setdefault(label, []).append(template)
    return plan


def deal(
    templates: Sequence[Template], shares: Mapping[str, float], dice: Dice
) -> Iterator[tuple[Template, str]]:
    """Each template with the split that is furthest below its share, of the intent plus of the class.

    Templates with most sentences come first; ties are in random order.
    """
    weights = {t.group: min(t.capacity, ENOUGH) for t in templates}
    whole, given = sum(weights.values()), dict.fromkeys(shares, 0.0)
    for intent in sorted({t.intent for t in templates}):
        mine = [t for t in templates if t.intent == intent]
        total, got = sum(weights[t.group] for t in mine), dict.fromkeys(shares, 0.0)
        for template in sorted(dice.shuffled(mine), key=lambda t: -weights[t.group]):
            split = max(shares, key=lambda s: shares[s] * (total + whole) - got[s] - given[s])
            got[split] += weights[template.group]
            given[split] += weights[template.group]
            yield template, split


def to_examples(language: str, split: str, rows: Sequence[Row]) -> tuple[Example, ...]:
    """Rows as examples with stable ids: position in the split and hash of text and label."""
    out = []
    for i, ((text, _), template) in enumerate(rows):
        digest = hashlib.sha256(f"{text}\n{LABELS[template.label]}".encode()).hexdigest()[:8]
        out.append(
            Example(
                f"intents/{language}/{split}/{i:05d}-{digest}",
                text,
                template.label,
                None,
                template.group,
            )
        )
    return tuple(out)
