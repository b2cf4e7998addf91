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
    """Seconds: of an example-forward, padded to 128 or sorted by length; of a gain, by way of computing it."""

    padded_forward: float
    sorted_forward: float
    gain: Mapping[str, float]
    order_variance: float
    order_variance_top50: float

    def resume_speedup(self) -> dict[str, float]:
        """How much faster a gain is when only changed layers are computed: of branching passes, and of walks."""
        pairs = {"marginals": "branching", "walks": "walking"}
        return {name: self.gain[f"{way}, full"] / self.gain[way] for name, way in pairs.items()}


def median_seconds_in_turns(
    tasks: Mapping[str, Callable[[], int]], seconds: float
) -> dict[str, float]:
    """Median seconds a unit of each task, all run in turns until the time is up; a task returns its units."""
    for task in tasks.values():
        task()  # warm
    seconds_by_task: dict[str, list[float]] = {name: [] for name in tasks}
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or not all(seconds_by_task.values()):
        for name, task in tasks.items():
            start = time.perf_counter()
            units = task()
            seconds_by_task[name].append((time.perf_counter() - start) / units)
    return {name: median(times) for name, times in seconds_by_task.items()}


def random_coalitions(players: int, count: int, seed: int) -> Bools:
    """Random coalitions with at most half of the heads gone, bool [coalition, player]."""
    return ~np.stack(
        [removed_and_measured(seed, number, players, players // 2)[0] for number in range(count)]
    )


def measure(setting: Setting, seconds: float) -> Costs:
    """All costs. The longest batches of the padded recipe are of 64 examples."""
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
    """Seconds of an example-forward, sorted by length."""
    game = setting.game
    batch = np.arange(min(BATCH, setting.game.examples))
    batch_coalitions = random_coalitions(game.players, len(batch), 3)
    return median_seconds_in_turns(
        {"sorted": lambda: len(game.values(batch_coalitions, batch))}, 0
    )["sorted"]


def variances(game: ModelGame, walks: tuple[int, int]) -> tuple[float, float]:
    """Mean over heads of the variance of an order's gain: over whole walks, and over their first halves.

    Args:
        walks: Orders, and examples that each is walked with.
    """
    gains, orders = sampled_walks(game, *walks, seed=6)
    half_length = (game.players + 1) // 2
    whole_walks = order_variance(gains, orders, game.players, game.examples)
    first_halves = order_variance(
        gains[:, :, :half_length], orders[:, :half_length], game.players, game.examples
    )
    return max(0.0, float(np.nanmean(whole_walks))), max(0.0, float(np.nanmean(first_halves)))
