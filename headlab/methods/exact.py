"""Exact Shapley values of heads from all coalitions: the reference for the samplers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from headlab.core import Bools, Floats, Ints, Progress, value_of
from headlab.methods.costs import refuse
from headlab.methods.game import Ask, Game
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.table import method
from headlab.methods.tmab import sizes
from headlab.methods.work import Arrays, Outcome, Work, drive

CHUNK = 64


@dataclass(frozen=True)
class Table:
    """A snapshot: mean value of every coalition so far, as a share of the span.

    values: float [2 ** players]; bit p of an index says whether player p is present.  done: entries filled.
    """

    values: Floats
    done: int
    players: int
    estimand: str
    span: float

    def arrays(self) -> Arrays:
        """What `restore` needs."""
        return {"values": self.values, "done": np.array(self.done)}

    def outcome(self) -> Outcome:
        """The values, exact on these examples: intervals of length 0; NaN until all coalitions are evaluated."""
        if self.done < len(self.values):
            nothing = np.full(self.players, np.nan)
            return Outcome(nothing, nothing, nothing)
        # Sums of up to 2 ** 16 terms: rounded so that rounding errors do not count as a sign.
        found = np.round(shapley(self.values, self.players, self.estimand), 12) * self.span
        coalitions = np.full(self.players, len(self.values) // 2, np.int64)
        return Outcome(found, found, found, coalitions, np.where(found == 0, 1.0, 0.0), 1.0)

    def progress(self) -> Progress:
        """Number of coalitions evaluated."""
        return Progress(self.done, len(self.values), "coalitions")


def shapley(values: Floats, players: int, estimand: str) -> Floats:
    """Shapley values [player] of a game given by all its values [2 ** players] (Shapley 1953).

    `shapley-top50` gives weight only to coalitions with fewer than half of the players removed.
    """
    place = np.arange(len(values))
    gone = players - np.array([int(p).bit_count() for p in place])
    steps = sizes(estimand, players)
    out = np.empty(players)
    for player in range(players):
        without = place[(place >> player) & 1 == 0]
        others = gone[without] - 1  # players removed before this one
        weight = np.array(
            [1 / (steps * comb(players - 1, int(k))) if k < steps else 0.0 for k in range(players)]
        )
        out[player] = weight[others] @ (values[without | (1 << player)] - values[without])
    return out


def estimate(game: Game, start: Table) -> Iterator[Table]:
    """Snapshots after every 64 coalitions, until all are evaluated on all examples."""
    values, done, every = start.values.copy(), start.done, np.arange(game.examples)
    chunks = [np.arange(at, min(at + CHUNK, len(values))) for at in range(done, len(values), CHUNK)]

    def ask(chunk: Ints) -> Ask:
        kept = np.repeat(members(chunk, game.players), len(every), axis=0)
        return Ask("values", {"kept": kept, "examples": np.tile(every, len(chunk))})

    for chunk, found in zip(chunks, game.answers(map(ask, chunks)), strict=True):
        values[chunk] = np.average(found.reshape(len(chunk), -1), axis=1, weights=game.weights)
        yield Table(values.copy(), int(chunk[-1]) + 1, start.players, start.estimand, start.span)


def members(places: npt.ArrayLike, players: int) -> Bools:
    """Members of each coalition: int [coalition] -> bool [coalition, player]."""
    return np.asarray((np.asarray(places)[:, None] >> np.arange(players)) & 1, dtype=bool)


def run(work: Work) -> Outcome:
    """Evaluate every coalition. Raises HeadlabError for too many heads."""
    game = game_of(work)
    start = restore(work.saved or {}, work.options, game.players)
    return drive(work, start, estimate(game, start))


def restore(saved: Arrays, options: Options, players: int) -> Table:
    """The snapshot stored in a checkpoint; an empty one if it does not fit."""
    refuse(method("exact"), players)
    estimand, span = str(options["estimand"]), value_of(str(options["value"])).span
    if {"values", "done"} <= set(saved) and saved["values"].shape == (2**players,):
        return Table(
            saved["values"].astype(np.float64), int(saved["done"]), players, estimand, span
        )
    return Table(np.zeros(2**players), 0, players, estimand, span)
