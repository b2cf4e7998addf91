"""Exact Shapley values of heads from all coalitions: the reference for the samplers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import comb

import numpy as np
import numpy.typing as npt

from headlab.core import (
    MOST_DONOR_EXAMPLES,
    Bools,
    Floats,
    HeadlabError,
    Ints,
    Progress,
    value_function_of,
)
from headlab.methods.costs import require_few_heads
from headlab.methods.game import Game, Query
from headlab.methods.method import Options
from headlab.methods.model_game import game_of
from headlab.methods.table import method
from headlab.methods.tmab import removal_sizes
from headlab.methods.work import Arrays, Outcome, Work, final_outcome

CHUNK_COALITIONS = 64


@dataclass(frozen=True)
class CoalitionValues:
    """A snapshot: mean value of every coalition so far, as a share of the span.

    Attributes:
        values: The values, float [2 ** players]; bit p of an index says whether player p is there.
        done: Number of coalitions that are evaluated; the first ones.
        players: Number of players.
        estimand: Which coalitions count.
        span: Of the value function.
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
        """The Shapley values, exact on these examples, with intervals of length 0.

        They are NaN until all coalitions are evaluated.
        """
        if self.done < len(self.values):
            unknown = np.full(self.players, np.nan)
            return Outcome(unknown, unknown, unknown)
        # Sums of up to 2 ** 16 terms: rounded so that rounding errors do not count as a sign.
        shares = np.round(shapley(self.values, self.players, self.estimand), 12)
        shapley_values = shares * self.span
        return Outcome(
            values=shapley_values,
            low=shapley_values,
            high=shapley_values,
            samples=np.full(self.players, len(self.values) // 2, np.int64),
            p_values=np.where(shapley_values == 0, 1.0, 0.0),
            level=1.0,
        )

    def progress(self) -> Progress:
        """Number of coalitions evaluated."""
        return Progress(self.done, len(self.values), "coalitions")


def shapley(values: Floats, players: int, estimand: str) -> Floats:
    """Shapley values [player] of a game given by all its values [2 ** players] (Shapley 1953).

    Args:
        values: The value of each coalition, float [2 ** players].
        players: Number of players.
        estimand: `shapley-top50` gives weight only to coalitions with fewer than half of the
            players removed.
    """
    coalitions = np.arange(len(values))
    removed_counts = players - np.array([int(c).bit_count() for c in coalitions])
    sizes_that_count = removal_sizes(estimand, players)
    weight_by_removed = np.zeros(players)
    for removed in range(min(sizes_that_count, players)):
        weight_by_removed[removed] = 1 / (sizes_that_count * comb(players - 1, removed))
    shapley_values = np.empty(players)
    for player in range(players):
        without = coalitions[(coalitions >> player) & 1 == 0]
        removed_besides_player = removed_counts[without] - 1
        gains = values[without | (1 << player)] - values[without]
        shapley_values[player] = weight_by_removed[removed_besides_player] @ gains
    return shapley_values


def estimate(game: Game, start: CoalitionValues) -> Iterator[CoalitionValues]:
    """Snapshots after every 64 coalitions, until all are evaluated on all examples."""
    values = start.values.copy()
    all_examples = np.arange(game.examples)
    chunks = []
    for first in range(start.done, len(values), CHUNK_COALITIONS):
        end = min(first + CHUNK_COALITIONS, len(values))
        chunks.append(np.arange(first, end))

    rows, donors = all_examples, None
    if getattr(game, "draws_donors", False):
        rows, donors = every_donor(game.examples)

    def ask(chunk: Ints) -> Query:
        kept = np.repeat(members(chunk, game.players), len(rows), axis=0)
        arrays = {"kept": kept, "examples": np.tile(rows, len(chunk))}
        if donors is not None:
            arrays["donors"] = np.tile(donors, len(chunk))
        return Query("values", arrays)

    for chunk, chunk_values in zip(chunks, game.answers(map(ask, chunks)), strict=True):
        values_by_example = chunk_values.reshape(len(chunk), game.examples, -1).mean(axis=2)
        values[chunk] = np.average(values_by_example, axis=1, weights=game.weights)
        yield replace(start, values=values.copy(), done=int(chunk[-1]) + 1)


def every_donor(examples: int) -> tuple[Ints, Ints]:
    """Every example with each other one as its donor: examples and donors, both int [row].

    Samples draw one of them, so that these are what they converge to.

    Raises:
        HeadlabError: There are too many examples.
    """
    if examples > MOST_DONOR_EXAMPLES:
        raise HeadlabError(
            f"exact averages over every other example in a closed player's place under resample, so it takes "
            f"{MOST_DONOR_EXAMPLES} examples at most, and there are {examples:,}; give --size {MOST_DONOR_EXAMPLES}, "
            "or use shapley, which draws them",
            code="ablation.too_many_donors",
        )
    rows, donors = np.nonzero(~np.eye(examples, dtype=bool))
    return rows, donors


def members(coalitions: npt.ArrayLike, players: int) -> Bools:
    """Members of each coalition: int [coalition] -> bool [coalition, player]."""
    return np.asarray((np.asarray(coalitions)[:, None] >> np.arange(players)) & 1, dtype=bool)


def run(work: Work) -> Outcome:
    """Evaluate every coalition.

    Raises:
        HeadlabError: The model has too many heads.
    """
    game = game_of(work)
    start = restore(work.saved or {}, work.options, game.players)
    return final_outcome(work, start, estimate(game, start))


def restore(saved: Arrays, options: Options, players: int) -> CoalitionValues:
    """The snapshot stored in a checkpoint; an empty one if it does not fit."""
    require_few_heads(method("exact"), players)
    estimand = str(options["estimand"])
    span = value_function_of(str(options["value"])).span
    values = np.zeros(2**players)
    evaluated = 0
    if {"values", "done"} <= set(saved) and saved["values"].shape == values.shape:
        values = saved["values"].astype(np.float64)
        evaluated = int(saved["done"])
    return CoalitionValues(values, evaluated, players, estimand, span)
