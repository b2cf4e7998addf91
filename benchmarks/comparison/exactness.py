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
ESTIMATES_A_RUN = 10
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
        coalitions = np.ones((len(orders), self.players), bool)
        gains = []
        value_before = self.values(coalitions, examples)
        for step in orders.T:
            coalitions[np.arange(len(orders)), step] = False
            value_after = self.values(coalitions, examples)
            gains.append(value_before - value_after)
            value_before = value_after
        return np.stack(gains, axis=1)

    def marginals(self, kept: Bools, wanted: Bools, examples: Ints) -> Floats:
        """See `ModelGame.marginals`."""
        marginals = np.zeros(kept.shape)
        for player in range(self.players):
            with_player = kept.copy()
            without_player = kept.copy()
            with_player[:, player], without_player[:, player] = True, False
            marginals[:, player] = self.values(with_player, examples) - self.values(
                without_player, examples
            )
        return marginals * wanted


def tiny_game() -> TableGame:
    """All values of the tests' tiny model on their made-up task."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    tiny = importlib.import_module("support.tiny_models")
    task = importlib.import_module("support.tiny_task")
    model = tiny.tiny_model("bert", tokenizer=task.tiny_tokenizer())
    game = ModelGame(Evaluator(model, task.tiny_task(), "xx", "dev", EXAMPLES))
    coalitions = members(np.arange(2**game.players), game.players)
    examples = np.arange(game.examples)
    values = game.values(
        np.repeat(coalitions, len(examples), axis=0), np.tile(examples, len(coalitions))
    )
    return TableGame(values.reshape(len(coalitions), -1), game.players)


def truth(game: TableGame) -> Floats:
    """Exact Shapley values, from every coalition."""
    coalitions = members(np.arange(2**game.players), game.players)
    return shapley(mean_values(game, coalitions), game.players, ALL_SIZES)


def last_estimate(estimates: Iterator[Estimate], count: int) -> Floats:
    """The estimate after so many steps."""
    return list(islice(estimates, count))[-1].values


def excess(
    start: Callable[[Game, int], Iterator[Estimate]],
    game: TableGame,
    exact: Floats,
    estimates_a_run: int = ESTIMATES_A_RUN,
) -> float:
    """How far the average of several runs is from the truth beyond what chance allows; at most 0 if it is right.

    Args:
        each: Estimates of a run.
    """
    estimates = np.stack(
        [last_estimate(start(game, seed), estimates_a_run) for seed in range(RUNS)]
    )
    error = estimates.std(axis=0, ddof=1) / np.sqrt(RUNS)
    return float((np.abs(estimates.mean(axis=0) - exact) - ERRORS * error - SLACK).max())


def check(starts: Starts, estimates_a_run: int = ESTIMATES_A_RUN) -> None:
    """Raise HeadlabError naming the estimators that do not meet the exact values of the tiny game.

    Args:
        each: Estimates of a run.
    """
    game = tiny_game()
    exact = truth(game)
    wrong = []
    for title, start in starts.items():
        off_by = excess(start, game, exact, estimates_a_run)
        print(
            f"  {title}: {'meets the exact values' if off_by <= 0 else f'off by {off_by:.3f} more than chance'}",
            flush=True,
        )
        wrong += [title] if off_by > 0 else []
    if wrong:
        raise HeadlabError(
            f"not the Shapley value of the tiny model: {', '.join(wrong)}; see benchmarks/comparison/",
            code="benchmark.not_shapley",
        )
