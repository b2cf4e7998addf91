"""From templates to splits: no two splits share a sentence.

Nor do they share a template if its class has several.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from headlab.tasks.base import Example
from headlab.tasks.intents.classes import LABELS, SIZES, TRAIN_LANGUAGE
from headlab.tasks.intents.templates import (
    Dice,
    DrawnSentence,
    Template,
    TemplateBook,
    read_book,
    sample,
)

# Share of a class's templates, weighted by how many sentences they can give (up to ENOUGH).
SHARES = {True: {"test": 0.3, "dev": 0.2, "train": 0.5}, False: {"test": 0.6, "dev": 0.4}}
MAX_WEIGHT = 100
# A single word may also be a sentence in another language ("pause"), so train has none.
MIN_WORDS = {"train": 2, "dev": 1, "test": 1}
TRIES = 25  # draws in a row without a new sentence before a template counts as used up

TemplatesBySplit = Mapping[str, Mapping[int, Sequence[Template]]]
DrawnRow = tuple[DrawnSentence, Template]


@dataclass(frozen=True)
class Splits:
    """The splits of one language and how they were made.

    Attributes:
        plan: Split -> class -> templates.
        sentences: Split -> each example's sentence and its pieces.
        ambiguous: Number of sentences left out because two classes can produce them.
        repeats: Draws refused because another template of the class had already produced the
            sentence.
    """

    book: TemplateBook
    plan: TemplatesBySplit
    examples: Mapping[str, tuple[Example, ...]]
    sentences: Mapping[str, tuple[DrawnSentence, ...]]
    ambiguous: int
    repeats: int

    @property
    def single_template_classes(self) -> tuple[int, ...]:
        """Classes with a single template, whose dev and test differ only in their sentences."""
        return tuple(
            label for label in range(len(LABELS)) if len(self.book.templates_of(label)) == 1
        )


@dataclass
class SentenceDraw:
    """The state of one drawing of sentences.

    Attributes:
        ambiguous: Sentences that two classes can produce.
        owner: Sentence -> template that produced it.
        clashes: Newly found ambiguous sentences.
        repeats: Refused draws, as in `Splits`.
        drawn: Sentences drawn so far.
    """

    book: TemplateBook
    dice: Dice
    ambiguous: frozenset[str]
    owner: dict[str, Template] = field(default_factory=dict)
    clashes: set[str] = field(default_factory=set)
    repeats: int = 0
    drawn: set[str] = field(default_factory=set)

    def draw_new(self, template: Template, min_words: int) -> DrawnSentence | None:
        """A new sentence of at least `min_words` words; None if TRIES draws gave none."""
        for _ in range(TRIES):
            sentence = sample(self.book, template, self.dice)
            if sentence is None or len(sentence.text.split()) < min_words:
                continue
            plain_text = sentence.text.casefold()
            if plain_text in self.ambiguous:
                continue
            owner = self.owner.setdefault(plain_text, template)
            if owner is template and plain_text not in self.drawn:
                self.drawn.add(plain_text)
                return sentence
            self.repeats += owner is not template
            if owner.label != template.label:
                self.clashes.add(plain_text)
        return None

    def rows(self, templates: Sequence[Template], min_words: int) -> Iterator[DrawnRow]:
        """New sentences of a class, taking templates in turn until all are used up."""
        remaining = self.dice.shuffle(templates)
        while remaining:
            for template in tuple(remaining):
                sentence = self.draw_new(template, min_words)
                if sentence is not None:
                    yield sentence, template
                else:
                    remaining.remove(template)

    def split(self, name: str, plan: Mapping[int, Sequence[Template]]) -> list[DrawnRow]:
        """The sentences of a split in rounds of one per class, so that every prefix is balanced.

        A class that is used up leaves the rounds, and its share goes to the others evenly.
        """
        size = SIZES[name]
        min_words = MIN_WORDS[name]
        streams = {label: self.rows(templates, min_words) for label, templates in plan.items()}
        rows: list[DrawnRow] = []
        while streams and len(rows) < size:
            for label in self.dice.shuffle(tuple(streams)):
                row = next(streams[label], None)
                if row is None:
                    del streams[label]
                else:
                    rows.append(row)
        return rows[:size]


@lru_cache(maxsize=32)
def build(language: str, seed: int) -> Splits:
    """All splits of one language; the same for the same seed in any process and on any machine."""
    book = read_book(language)
    plan = assign(book, dice_for(seed, language, "plan"))
    ambiguous: frozenset[str] = frozenset()
    while True:
        draw = SentenceDraw(book, dice_for(seed, language, "draw"), ambiguous)
        rows = {split: draw.split(split, plan[split]) for split in plan}
        if not draw.clashes:
            examples = {split: to_examples(language, split, rows[split]) for split in rows}
            sentences = {split: tuple(sentence for sentence, _ in rows[split]) for split in rows}
            return Splits(book, plan, examples, sentences, len(ambiguous), draw.repeats)
        ambiguous |= draw.clashes


def dice_for(seed: int, language: str, purpose: str) -> Dice:
    """Dice for one purpose: different languages and purposes get independent streams."""
    digest = hashlib.sha256(f"{language}/{purpose}".encode()).digest()
    return Dice(np.random.default_rng([seed, int.from_bytes(digest[:8], "big")]))


def assign(book: TemplateBook, dice: Dice) -> TemplatesBySplit:
    """Assign every template to one split; the only one of a class goes to both dev and test."""
    shares = SHARES[book.language == TRAIN_LANGUAGE]
    plan: dict[str, dict[int, list[Template]]] = {
        split: {} for split in ("dev", "test", "train") if split in shares
    }
    for label in range(len(LABELS)):
        templates = book.templates_of(label)
        if len(templates) == 1:
            plan["dev"][label] = list(templates)
            plan["test"][label] = list(templates)
            continue
        for template, split in deal(templates, shares, dice):
            plan[split].setdefault(label, []).append(template)
    return plan


def deal(
    templates: Sequence[Template], shares: Mapping[str, float], dice: Dice
) -> Iterator[tuple[Template, str]]:
    """The templates of a class, each with a split.

    That is the split furthest below its share, of the intent plus of the class. Templates with most
    sentences come first; ties are in random order.

    Args:
        templates: All of the class.
        shares: Of the sentences that each split is to have, by its name.
        dice: For the order of ties.
    """
    weights = {template.group: min(template.capacity, MAX_WEIGHT) for template in templates}
    class_weight = sum(weights.values())
    class_given = dict.fromkeys(shares, 0.0)  # weight given to each split
    for intent in sorted({template.intent for template in templates}):
        templates_of_intent = [template for template in templates if template.intent == intent]
        intent_weight = sum(weights[template.group] for template in templates_of_intent)
        intent_given = dict.fromkeys(shares, 0.0)
        shuffled = dice.shuffle(templates_of_intent)
        for template in sorted(shuffled, key=lambda template: -weights[template.group]):
            missing = {
                split: share * (intent_weight + class_weight)
                - intent_given[split]
                - class_given[split]
                for split, share in shares.items()
            }
            split = max(missing, key=missing.__getitem__)
            intent_given[split] += weights[template.group]
            class_given[split] += weights[template.group]
            yield template, split


def to_examples(language: str, split: str, rows: Sequence[DrawnRow]) -> tuple[Example, ...]:
    """Rows as examples with stable ids: position in the split and hash of text and label."""
    examples = []
    for position, ((text, _), template) in enumerate(rows):
        digest = hashlib.sha256(f"{text}\n{LABELS[template.label]}".encode()).hexdigest()[:8]
        example_id = f"intents/{language}/{split}/{position:05d}-{digest}"
        examples.append(Example(example_id, text, template.label, group=template.group))
    return tuple(examples)
