"""Whether every wrapper estimates Shapley values: on a model of 12 heads, whose values are known."""

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
# Runs that are averaged, estimates of each, and how far off the average may be: so many of its
# standard errors, and a little more.
RUNS = 12
ESTIMATES_A_RUN = 10
ERRORS = 5.0
SLACK = 0.005
Starts = Mapping[str, Callable[[Game, int], Iterator[Estimate]]]


@dataclass(frozen=True)
class TableGame:
    """A game whose values are all in a table.

    Attributes:
        table: Float [2 ** players, example]; bit p of a row's number says whether player p is kept.
        players: Number of heads.
        span: As in `Game`, and so are the others.
    """

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
            with_player[:, player] = True
            without_player[:, player] = False
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
    """The values of an estimator's estimate number `count`."""
    return list(islice(estimates, count))[-1].values


def excess(
    start: Callable[[Game, int], Iterator[Estimate]],
    game: TableGame,
    exact: Floats,
    estimates_a_run: int = ESTIMATES_A_RUN,
) -> float:
    """How much farther the average of several runs is from the truth than chance allows.

    It is at most 0 for an estimator that is right.

    Args:
        start: Gives the estimates, of a game and a seed.
        game: What is played.
        exact: Its Shapley values.
        estimates_a_run: The last of them counts.
    """
    estimates = np.stack(
        [last_estimate(start(game, seed), estimates_a_run) for seed in range(RUNS)]
    )
    error = estimates.std(axis=0, ddof=1) / np.sqrt(RUNS)
    return float((np.abs(estimates.mean(axis=0) - exact) - ERRORS * error - SLACK).max())


def check(starts: Starts, estimates_a_run: int = ESTIMATES_A_RUN) -> None:
    """Raise a HeadlabError that names estimators which miss the exact values of the tiny game.

    Args:
        starts: The estimators by title.
        estimates_a_run: The last of them counts.
    """
    game = tiny_game()
    exact = truth(game)
    wrong = []
    for title, start in starts.items():
        off_by = excess(start, game, exact, estimates_a_run)
        verdict = "meets the exact values"
        if off_by > 0:
            verdict = f"off by {off_by:.3f} more than chance"
            wrong.append(title)
        print(f"  {title}: {verdict}", flush=True)
    if wrong:
        raise HeadlabError(
            f"not the Shapley value of the tiny model: {', '.join(wrong)}; see benchmarks/comparison/",
            code="benchmark.not_shapley",
        )
