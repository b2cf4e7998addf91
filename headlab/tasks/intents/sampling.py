"""Random sentences from a parsed template: a walk through its tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from hassil import (
    Alternative,
    Expression,
    Group,
    ListReference,
    Permutation,
    RuleReference,
    TextChunk,
)

from headlab.tasks.intents.templates import Book, Template, Value, Variant

# Rules that hold only articles: a sentence of articles and names alone ("the kitchen lamp") says nothing.
ARTICLES = frozenset({"the", "le", "artikel_bestimmt"})
PLACES = frozenset({"name", "area", "floor"})
BROKEN = re.compile(r"[{}<>\[\]()|;\\]")
BLOCK = 8192

T = TypeVar("T")


class Dice:
    """Uniform choices from a numpy generator, drawn in blocks: the same on every machine."""

    def __init__(self, rng: np.random.Generator) -> None:
        """rng: where the numbers come from."""
        self._rng = rng
        self._left: list[float] = []

    def roll(self) -> float:
        """A float in [0, 1)."""
        if not self._left:
            self._left = self._rng.random(BLOCK).tolist()
        return self._left.pop()

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely."""
        return items[int(self.roll() * len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in random order (Fisher-Yates)."""
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = int(self.roll() * (i + 1))
            out[i], out[j] = out[j], out[i]
        return out


class Piece(NamedTuple):
    """A part of a sentence that was put in at once.  slot: what it fills; empty for the template's own words."""

    text: str
    slot: str = ""


class Said(NamedTuple):
    """A sentence, and the pieces it was put together from, before its repairs."""

    text: str
    pieces: tuple[Piece, ...]


class Walk:
    """One sentence in the making.

    said: did anything but articles and places come up.  used: fillers already in the sentence.
    """

    def __init__(self, book: Book, variant: Variant, dice: Dice) -> None:
        """variant: the sentence template to walk."""
        self.book, self.variant, self.dice = book, variant, dice
        self.said = False
        self.used: set[str] = set()

    def pieces(self, expression: Expression) -> list[Piece]:
        """Pieces of an expression, its choices made at random."""
        if isinstance(expression, TextChunk):
            self.said = self.said or any(c.isalnum() for c in expression.original_text)
            return [Piece(expression.original_text)]
        if isinstance(expression, ListReference):
            return [Piece(self.filler(expression.list_name), expression.slot_name)]
        if isinstance(expression, RuleReference):
            return self.rule(expression.rule_name)
        assert isinstance(expression, Group)
        if isinstance(expression, Alternative):
            return self.choice(expression)
        items = self.dice.shuffled(expression.items) if isinstance(expression, Permutation) else expression.items
        return [piece for item in items for piece in self.pieces(item)]

    def choice(self, expression: Alternative) -> list[Piece]:
        """One alternative; an optional part is left out half of the time."""
        if not expression.is_optional:
            return self.pieces(self.dice.pick(expression.items))
        return self.pieces(self.dice.pick(expression.items[:-1])) if self.dice.roll() < 0.5 else []

    def rule(self, name: str) -> list[Piece]:
        """Pieces of an expansion rule."""
        before = self.said
        pieces = self.pieces(self.book.rules[name].expression)
        if name in ARTICLES:
            self.said = before
        return pieces

    def filler(self, name: str) -> str:
        """A value of a list that this sentence does not hold yet, as far as there is one."""
        values: Sequence[Value] = self.variant.names if name == "name" else self.book.lists[name]
        self.said = self.said or name not in PLACES
        text = ""
        for _ in range(8):
            value = self.dice.pick(values)
            text = value if isinstance(value, str) else joined(self.pieces(value))
            if text not in self.used:
                break
        self.used.add(text)
        return text


def joined(pieces: Sequence[Piece]) -> str:
    """The text of pieces."""
    return "".join(piece.text for piece in pieces)


def sample(book: Book, template: Template, dice: Dice) -> Said | None:
    """One random sentence of a template; None if it came out as a bare name, broken or refused."""
    variant = dice.pick(template.variants)
    walk = Walk(book, variant, dice)
    pieces = tuple(walk.pieces(variant.expression))
    text = tidy(joined(pieces), book.words.clean)
    refused = book.words.refuse and book.words.refuse.search(text)
    said = walk.said and len(text) > 1 and not refused and not BROKEN.search(text)
    return Said(text, pieces) if said else None


def tidy(text: str, clean: Sequence[tuple[re.Pattern[str], str]]) -> str:
    """Single spaces, none at the ends, then the language's own repairs."""
    text = " ".join(text.split())
    for pattern, replacement in clean:
        text = pattern.sub(replacement, text)
    return text.strip()
