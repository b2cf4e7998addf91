"""What one forward pass and one gain cost here, each against the other, taken in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from comparison.recipe import PaddedEvaluator, order_variance, sampled_walks
from comparison.setting import Setting
from headlab.core import Bools
from headlab.evaluation import Evaluator
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import random_order, removed_and_measured

BATCH = 64


@dataclass(frozen=True)
class Costs:
    """What computing costs, in seconds, and how much gains vary from order to order.

    Attributes:
        padded_forward: Of one example in a batch padded to 128 tokens.
        sorted_forward: Of one example in a batch sorted by length.
        gain: Of a gain, by the way it is computed.
        order_variance: Mean variance of gains over whole orders.
        order_variance_top50: The same over the first halves of orders.
    """

    padded_forward: float
    sorted_forward: float
    gain: Mapping[str, float]
    order_variance: float
    order_variance_top50: float

    def resume_speedup(self) -> dict[str, float]:
        """How much faster a gain is if only changed layers are computed."""
        return {
            "marginals": self.gain["branching, full"] / self.gain["branching"],
            "walks": self.gain["walking, full"] / self.gain["walking"],
        }


def median_seconds_in_turns(
    tasks: Mapping[str, Callable[[], int]], seconds: float
) -> dict[str, float]:
    """Median seconds of one unit of work by task.

    Args:
        tasks: {name: does some work and returns how many units it was}; they are run in turns, so
            that a busy machine slows all of them alike.
        seconds: How long to go on; each task is run once at least.
    """
    for task in tasks.values():
        task()  # the first run is slower
    seconds_by_task: dict[str, list[float]] = {name: [] for name in tasks}
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or not all(seconds_by_task.values()):
        for name, task in tasks.items():
            start = time.perf_counter()
            units = task()
            seconds_by_task[name].append((time.perf_counter() - start) / units)
    return {name: median(times) for name, times in seconds_by_task.items()}


def random_coalitions(players: int, count: int, seed: int) -> Bools:
    """Random coalitions with at most half of the heads removed, bool [coalition, player]."""
    removed_heads = []
    for number in range(count):
        removed, _ = removed_and_measured(seed, number, players, players // 2)
        removed_heads.append(removed)
    return ~np.stack(removed_heads)


def measure(setting: Setting, seconds: float) -> Costs:
    """Measure all costs. The largest batches of the padded recipe have 64 examples."""
    game = setting.game
    players = setting.game.players
    model_without_resuming = replace(
        setting.model, resumable=False
    )  # every row from the first layer
    full_game = ModelGame(
        Evaluator(model_without_resuming, setting.task, setting.language, "dev", setting.size)
    )
    batch = np.arange(min(BATCH, game.examples))
    batch_coalitions = random_coalitions(players, len(batch), 3)
    padded_evaluator = PaddedEvaluator(
        setting.model, setting.task, setting.language, "dev", setting.size
    )
    examples = np.random.default_rng(0).choice(game.examples, setting.rows, replace=False)
    coalitions = random_coalitions(players, len(examples), 4)
    all_heads = np.ones((len(examples), players), bool)
    walks = np.stack([random_order(5, row, players) for row in range(len(examples))])

    def branching(timed_game: ModelGame) -> Callable[[], int]:
        return lambda: timed_game.marginals(coalitions, all_heads, examples).size

    def walking(timed_game: ModelGame) -> Callable[[], int]:
        return lambda: timed_game.gains(walks, examples).size

    seconds_by_task = median_seconds_in_turns(
        {
            "padded": lambda: len(
                padded_evaluator.correct(setting.model.grid.gates(batch_coalitions), batch)
            ),
            "sorted": lambda: len(game.values(batch_coalitions, batch)),
            "branching": branching(game),
            "branching, full": branching(full_game),
            "walking": walking(game),
            "walking, full": walking(full_game),
        },
        seconds,
    )
    return Costs(
        seconds_by_task.pop("padded"),
        seconds_by_task.pop("sorted"),
        seconds_by_task,
        *variances(game, setting.walks),
    )


def forward_seconds(setting: Setting) -> float:
    """Seconds of one example in a batch sorted by length."""
    game = setting.game
    batch = np.arange(min(BATCH, setting.game.examples))
    batch_coalitions = random_coalitions(game.players, len(batch), 3)
    return median_seconds_in_turns(
        {"sorted": lambda: len(game.values(batch_coalitions, batch))}, 0
    )["sorted"]


def variances(game: ModelGame, walks: tuple[int, int]) -> tuple[float, float]:
    """Mean over heads of the variance of a head's gain from order to order.

    Args:
        game: The model's game.
        walks: Orders, and examples that each is walked with.

    Returns:
        Over whole walks, and over their first halves.
    """
    gains, orders = sampled_walks(game, *walks, seed=6)
    half_length = (game.players + 1) // 2
    whole_walks = order_variance(gains, orders, game.players, game.examples)
    first_halves = order_variance(
        gains[:, :, :half_length], orders[:, :half_length], game.players, game.examples
    )
    mean_of_walks = max(0.0, float(np.nanmean(whole_walks)))
    mean_of_halves = max(0.0, float(np.nanmean(first_halves)))
    return mean_of_walks, mean_of_halves
