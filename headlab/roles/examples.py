"""Sentences in which the best head of a role does what it is said to do, and in which it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headlab.batches import Batch
from headlab.gates import Model, sides, sum_weights
from headlab.lanes import Tick, spread
from headlab.records import Head
from headlab.roles.given import Given
from headlab.roles.judge import HEAD, Row
from headlab.roles.looking import answers, batches, judged, right
from headlab.roles.questions import Question, scene
from headlab.roles.table import INDUCTION, kind_of
from headlab.tables import Cell, Table

SEEN = 256  # sentences among which examples are sought
Found = dict[tuple[str, bool], list[tuple[Cell, ...]]]  # rows of each role, hits and misses


def examples_table(
    model: Model,
    given: Given,
    again: Given | None,
    rows: Sequence[Row],
    offsets: Mapping[str, int],
    *,
    count: int,
    exclude: str,
    tick: Tick,
) -> Table:
    """Of every kind of role that a head has, its best head: `count` sentences with a hit and as many with a miss.

    again: the sentences given twice, on which alone induction is asked.  tick: called between batches; may raise
    to stop.
    """
    best: dict[str, Row] = {}
    for row in rows:
        kind = kind_of(row.role)
        if row.has and (kind not in best or row.share[0] > best[kind].share[0]):
            best[kind] = row
    wanted = {row.role: row.head for row in best.values()}
    found: Found = {(role, good): [] for role in wanted for good in (True, False)}
    for part in (given, again):
        asked = {role: head for role, head in wanted.items() if (role == INDUCTION) == (part is again)}
        if part is not None and asked and count:
            found |= _Finder(model, part, asked, offsets, count, exclude).find(tick)
    return Table(
        "role-examples",
        "Where the best head of each role looks as the role wants, and where it does not",
        ("role", *HEAD, "right", "sentence", "word", "looks at", "should look at"),
        ("", "", "d", "d", "", "", "", "", ""),
        tuple(row for kept in found.values() for row in kept),
    )


def _sought(model: Model, given: Given) -> list[Batch]:
    """Batches of SEEN sentences at most, those of middle length first: neither the shortest nor the longest."""
    found = batches(model, given)
    middle, left, out = len(found) // 2, SEEN, list[Batch]()
    for batch in (*found[middle:], *found[:middle][::-1]):
        if left > 0:
            out.append(Batch(batch.rows[:left], {name: t[:left] for name, t in batch.inputs.items()}))
            left -= len(batch.rows)
    return out


@dataclass(frozen=True)
class _Finder:
    """Looks for one answer a sentence, right or wrong, until there are enough of each."""

    model: Model
    given: Given
    wanted: Mapping[str, Head]
    offsets: Mapping[str, int]
    count: int
    exclude: str

    def find(self, tick: Tick) -> Found:
        """`count` rows of every role, hits and misses, or what there is; the same on any number of lanes."""
        found: Found = {(role, good): [] for role in self.wanted for good in (True, False)}

        def missing() -> set[str]:
            return {role for (role, _), rows in found.items() if len(rows) < self.count}

        def run(batch: Batch, lane_tick: Tick) -> Found:
            lane_tick()
            # More roles may be missing here than when the batch's turn comes, never fewer.
            return self._look(batch, missing())

        for _, more in spread(_sought(self.model, self.given), run, device=self.model.device, tick=tick):
            for key, rows in more.items():
                found[key].extend(rows[: self.count - len(found[key])])
            if not missing():
                break
        return found

    def _look(self, batch: Batch, roles: set[str]) -> Found:
        """What a batch has of some roles."""
        out: Found = {}
        if not roles:
            return out
        stacks = judged(self.model, self.given)
        grid = self.model.grid
        columns = {role: grid.flat[grid.index(self.wanted[role])].tolist() for role in roles}
        layers = {layer for layer, _ in columns.values()}
        scenes = {
            stack: scene(self.model, self.given, batch, stack, self.exclude, self.offsets)
            for stack in {stacks[layer] for layer in layers}
        }

        def observe(row: int, weights: torch.Tensor) -> None:
            for question, most in answers(scenes[stacks[row]], weights):
                layer, column = columns.get(question.role, (-1, 0))
                if layer == row:
                    hits = right(question, most)[:, column]
                    for good in (True, False):
                        out[question.role, good] = self._shown(question, batch, most[:, column], hits, good)

        sum_weights(self.model, batch.inputs, observe, layers)
        return out

    def _shown(
        self, question: Question, batch: Batch, most: torch.Tensor, hits: torch.Tensor, good: bool
    ) -> list[tuple[Cell, ...]]:
        """Rows of the first sentences that have such an answer."""
        asked = (question.asked & (most >= 0) & (hits == good)).cpu().numpy()
        head, out = self.wanted[question.role], list[tuple[Cell, ...]]()
        for row in np.flatnonzero(asked.any(axis=1))[: self.count].tolist():
            at, sentence = int(np.flatnonzero(asked[row])[0]), int(batch.rows[row])
            word = self._name(question, batch, row, at, 0)
            wants = question.right[row, at].nonzero().flatten().tolist()
            looks, *should = (self._name(question, batch, row, place, 1) for place in (int(most[row, at]), *wants))
            out.append((question.role, *head, good, self._text(sentence), word, looks, " / ".join(should)))
        return out

    def _text(self, sentence: int) -> str:
        words = self.given.words[sentence] if self.given.words else ()
        return " ".join(words) if words else str(self.model.tokenizer.decode(self.given.ids[sentence]))

    def _name(self, question: Question, batch: Batch, row: int, place: int, side: int) -> str:
        """A word, or a token as the tokenizer spells it; side: 0 of what looks, 1 of what is looked at."""
        if question.among == "words":
            return self.given.words[int(batch.rows[row])][place]
        ids = sides(self.model, batch.inputs, self.wanted[question.role].stack)[side][0]
        return str(self.model.tokenizer.convert_ids_to_tokens([int(ids[row, place])])[0])
