"""Whether every wrapper estimates what it should: a model of 12 heads, where all coalitions can be evaluated."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from comparison.estimates import Estimate, mean_values
from headlab.core import Bools, Floats, HeadlabError, Ints
from headlab.evaluation import Evaluator
from headlab.methods.exact import members, shapley
from headlab.methods.game import Game, Query, in_turn
from headlab.methods.model_game import ModelGame
from headlab.methods.tmab import ALL_SIZES

TESTS = Path(__file__).resolve().parents[2] / "tests"
EXAMPLES = 16
# Runs that are averaged, estimates of each, and how far off the average may be: in its standard errors, plus a bit.
RUNS = 12
EACH = 10
ERRORS = 5.0
SLACK = 0.005
Starts = Mapping[str, Callable[[Game, int], Iterator[Estimate]]]


@dataclass(frozen=True)
class TableGame:
    """A game read from a table of all its values: float [2 ** player, example]; bit p says whether p is there."""

    table: Floats
    players: int
    span: float = 1.0
    steps: int = 1
    round: int = 4
    weights: None = None

    @property
    def examples(self) -> int:
        """Number of examples."""
        return int(self.table.shape[1])

    @property
    def lengths(self) -> Ints:
        """All alike."""
        return np.ones(self.examples, np.int64)

    @property
    def costs(self) -> Floats:
        """All alike."""
        return np.ones(self.players)

    @property
    def scale(self) -> None:
        """A table foresees nothing."""

    def answers(self, asks: Iterable[Query]) -> Iterator[Floats]:
        """See `Game.answers`."""
        return in_turn(self, asks)

    def values(self, kept: Bools, examples: Ints) -> Floats:
        """See `ModelGame.values`."""
        return np.asarray(self.table[kept @ (1 << np.arange(self.players)), examples])

    def gains(self, orders: Ints, examples: Ints, wanted: Bools | None = None) -> Floats:
        """See `ModelGame.gains`; all are computed."""
        kept = np.ones((len(orders), self.players), bool)
        out = []
        value = self.values(kept, examples)
        for step in orders.T:
            kept[np.arange(len(orders)), step] = False
            after = self.values(kept, examples)
            out.append(value - after)
            value = after
        return np.stack(out, axis=1)

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """See `ModelGame.marginals`."""
        out = np.zeros(kept.shape)
        for player in range(self.players):
            there = kept.copy()
            gone = kept.copy()
            there[:, player], gone[:, player] = True, False
            out[:, player] = self.values(there, examples) - self.values(gone, examples)
        return out * wanted


def tiny_game() -> TableGame:
    """All values of the tests' tiny model on their made-up task."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    tiny = importlib.import_module("support.tiny_models")
    task = importlib.import_module("support.tiny_task")
    model = tiny.tiny_model("bert", tokenizer=task.tiny_tokenizer())
    game = ModelGame(Evaluator(model, task.tiny_task(), "xx", "dev", EXAMPLES))
    kept = members(np.arange(2**game.players), game.players)
    every = np.arange(game.examples)
    values = game.values(np.repeat(kept, len(every), axis=0), np.tile(every, len(kept)))
    return TableGame(values.reshape(len(kept), -1), game.players)


def truth(game: TableGame) -> Floats:
    """Exact Shapley values, from every coalition."""
    kept = members(np.arange(2**game.players), game.players)
    return shapley(mean_values(game, kept), game.players, ALL_SIZES)


def last(estimates: Iterator[Estimate], count: int) -> Floats:
    """The estimate after so many steps."""
    return list(islice(estimates, count))[-1].values


def excess(
    start: Callable[[Game, int], Iterator[Estimate]],
    game: TableGame,
    exact: Floats,
    each: int = EACH,
) -> float:
    """How far the average of several runs is from the truth beyond what chance allows; at most 0 if it is right.

    Args:
        each: Estimates of a run.
    """
    found = np.stack([last(start(game, seed), each) for seed in range(RUNS)])
    error = found.std(axis=0, ddof=1) / np.sqrt(RUNS)
    return float((np.abs(found.mean(axis=0) - exact) - ERRORS * error - SLACK).max())


def check(starts: Starts, each: int = EACH) -> None:
    """Raise HeadlabError naming the estimators that do not meet the exact values of the tiny game.

    Args:
        each: Estimates of a run.
    """
    game = tiny_game()
    exact = truth(game)
    wrong = []
    for title, start in starts.items():
        over = excess(start, game, exact, each)
        print(
            f"  {title}: {'meets the exact values' if over <= 0 else f'off by {over:.3f} more than chance'}",
            flush=True,
        )
        wrong += [title] if over > 0 else []
    if wrong:
        raise HeadlabError(
            f"not the Shapley value of the tiny model: {', '.join(wrong)}; see benchmarks/comparison/",
            code="benchmark.not_shapley",
        )
