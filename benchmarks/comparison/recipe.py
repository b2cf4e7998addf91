"""What the published recipe would cost, from measured parts: running it would take weeks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from headlab.core import Bools, Floats, Ints
from headlab.evaluation import Evaluator
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import random_order
from headlab.methods.tmab import TOP50, removal_sizes
from headlab.stats import bernstein_width

DELTA = 0.1
PADDED_LENGTH = 128


class PaddedEvaluator(Evaluator):
    """The same evaluator with every input padded to 128 tokens, as the published script does."""

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to 128."""
        inputs = super().tensors(rows)
        token_lists = [
            {name: tensor[row].tolist() for name, tensor in inputs.items()}
            for row in range(len(rows))
        ]
        padded = self.model.tokenizer.pad(
            token_lists, padding="max_length", max_length=PADDED_LENGTH, return_tensors="pt"
        )
        return {name: tensor.to(self.model.device) for name, tensor in padded.items()}


def orders_for_a_head(variance: float, target: float, span: float) -> int:
    """Orders a head must have had its turn in before Equation 4 gives `target` as half-width."""

    def narrow(count: int) -> bool:
        return bool(bernstein_width(np.array(variance), np.array(count), DELTA, span) <= target)

    high = 1
    while not narrow(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if narrow(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True)
class Work:
    """Orders until every head has had its turns, and the coalitions that these orders evaluate."""

    orders: int
    coalitions: int


def recipe_work(turns: int, players: int, seed: int = 0) -> Work:
    """Play the bandit through, without a model.

    Heads that have had their turns leave, and coalitions that only they need are not evaluated.
    """
    steps = removal_sizes(TOP50, players)
    turns_had = np.zeros(players, np.int64)
    orders = 0
    coalitions = 0
    while (turns_had < turns).any():
        order = random_order(seed, orders, players)[:steps]
        coalitions += coalitions_evaluated(turns_had[order] < turns)
        turns_had[order] += 1
        orders += 1
    return Work(orders, coalitions)


def coalitions_evaluated(steps_to_measure: Bools) -> int:
    """How many coalitions of a walk are evaluated: those before and after each measured step.

    Args:
        steps_to_measure: Bool [step].
    """
    is_before_a_step = np.append(steps_to_measure, False)
    is_after_a_step = np.append(False, steps_to_measure)
    return int((is_before_a_step | is_after_a_step).sum())


def order_variance(gains: Floats, orders: Ints, players: int, examples: int) -> Floats:
    """Variance over orders of a head's gain averaged over all examples, float [player], at least 0.

    Args:
        gains: float [order, example, step], each order on a sample of the examples.
        orders: int [order, step].
        players: Number of heads.
        examples: Number of all examples.

    It comes from the two mean squares of a one-way layout: the part within orders is scaled to all
    examples.
    """
    examples_drawn = gains.shape[1]
    variance_within = np.full(players, np.nan)
    variance_between = np.full(players, np.nan)
    for player in range(players):
        turn_orders, turn_steps = np.nonzero(orders == player)
        player_gains = gains[turn_orders, :, turn_steps]  # [turn, example]
        if len(player_gains) > 1:
            variance_within[player] = player_gains.var(axis=1, ddof=1).mean()
            variance_between[player] = player_gains.mean(axis=1).var(ddof=1)
    return np.asarray(
        variance_between - variance_within / examples_drawn + variance_within / examples
    )


def sampled_walks(game: ModelGame, count: int, examples: int, seed: int) -> tuple[Floats, Ints]:
    """Gains [order, example, step] and orders [order, step] of full walks on random examples."""
    rng = np.random.default_rng([seed, 11])
    orders = np.stack(
        [random_order(seed, 1_000_000 + number, game.players) for number in range(count)]
    )
    rows = np.stack([rng.choice(game.examples, examples, replace=False) for _ in range(count)])
    gains = game.gains(np.repeat(orders, examples, axis=0), rows.ravel())
    return gains.reshape(count, examples, -1), orders
