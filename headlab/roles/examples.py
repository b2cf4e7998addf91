"""Sentences in which the best head of a role does what it is said to do, and in which it does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headlab.batches import Batch
from headlab.gates import Model, sum_weights
from headlab.records import Head
from headlab.roles.given import Given
from headlab.roles.judge import HEAD, Row
from headlab.roles.looking import answers, batches, judged, right
from headlab.roles.questions import Question, scene
from headlab.roles.table import kind_of
from headlab.tables import Cell, Table

SEEN = 256  # sentences among which examples are sought


def examples_table(
    model: Model, given: Given, rows: Sequence[Row], offsets: dict[str, int], count: int, exclude: str
) -> Table:
    """Of every kind of role that a head has, its best head: `count` sentences with a hit and as many with a miss."""
    best: dict[str, Row] = {}
    for row in rows:
        kind = kind_of(row.role)
        if row.has and (kind not in best or row.share[0] > best[kind].share[0]):
            best[kind] = row
    wanted = {row.role: row.head for row in best.values()}
    out: list[tuple[Cell, ...]] = []
    if count and wanted:
        finder = _Finder(model, given, wanted, offsets, count, exclude)
        seen = 0
        found = batches(model, given)
        middle = len(found) // 2  # neither the shortest sentences nor the longest
        for batch in (*found[middle:], *found[:middle][::-1]):
            if seen >= SEEN or finder.done:
                break
            finder.look(batch)
            seen += len(batch.rows)
        out = finder.rows()
    return Table(
        "role-examples",
        "Where the best head of each role looks as the role wants, and where it does not",
        ("role", *HEAD, "right", "sentence", "word", "looks at", "should look at"),
        ("", "", "d", "d", "", "", "", "", ""),
        tuple(out),
    )


class _Finder:
    """Collects one answer a sentence, right or wrong, until there are enough of each."""

    def __init__(
        self, model: Model, given: Given, wanted: dict[str, Head], offsets: dict[str, int], count: int, exclude: str
    ) -> None:
        self.model, self.given, self.wanted, self.count = model, given, wanted, count
        self.offsets, self.exclude = offsets, exclude
        self._found: dict[tuple[str, bool], list[tuple[Cell, ...]]] = {
            (role, good): [] for role in wanted for good in (True, False)
        }

    @property
    def done(self) -> bool:
        """Whether there are enough."""
        return all(len(rows) >= self.count for rows in self._found.values())

    def rows(self) -> list[tuple[Cell, ...]]:
        """What was found, role by role, hits first."""
        return [row for rows in self._found.values() for row in rows]

    def look(self, batch: Batch) -> None:
        """Add what a batch has."""
        stacks = judged(self.model, self.given)
        scenes = {
            stack: scene(self.model, self.given, batch, stack, self.exclude, self.offsets)
            for stack in self.given.stacks
        }
        grid = self.model.grid
        columns = {role: grid.flat[grid.index(head)].tolist() for role, head in self.wanted.items()}

        def observe(row: int, weights: torch.Tensor) -> None:
            for question, most in answers(scenes[stacks[row]], weights):
                layer, column = columns.get(question.role, (-1, 0))
                if layer == row:
                    self._add(question, batch, most[:, column], right(question, most)[:, column])

        sum_weights(self.model, batch.inputs, observe, {layer for layer, _ in columns.values()})

    def _add(self, question: Question, batch: Batch, most: torch.Tensor, hits: torch.Tensor) -> None:
        asked = (question.asked & (most >= 0)).cpu().numpy()
        for row, sentence in enumerate(batch.rows.tolist()):
            for good in (True, False):
                places = np.flatnonzero(asked[row] & (hits[row].cpu().numpy() == good))
                kept = self._found[question.role, good]
                if len(places) and len(kept) < self.count:
                    at = int(places[0])
                    wants = question.right[row, at].nonzero().flatten().tolist()
                    named = [
                        self._name(question, batch, row, sentence, place) for place in (at, int(most[row, at]), *wants)
                    ]
                    head, text = self.wanted[question.role], self._text(sentence)
                    kept.append((question.role, *head, good, text, named[0], named[1], " / ".join(named[2:])))

    def _text(self, sentence: int) -> str:
        words = self.given.words[sentence]
        return " ".join(words) if words else str(self.model.tokenizer.decode(self.given.ids[sentence]))

    def _name(self, question: Question, batch: Batch, row: int, sentence: int, place: int) -> str:
        """A word, or a token as the tokenizer spells it."""
        if question.among == "words":
            return self.given.words[sentence][place]
        stack = self.wanted[question.role].stack
        ids = batch.inputs["decoder_input_ids" if stack == "decoder" and len(self.given.stacks) > 1 else "input_ids"]
        return str(self.model.tokenizer.convert_ids_to_tokens([int(ids[row, place])])[0])
