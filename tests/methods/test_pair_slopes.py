"""Interactions of all pairs by slopes, which are measured and not offered: right by enumeration."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb, lcm
from typing import Any

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose
from support.table_game import majority, smooth
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from benchmarks.pair_slopes import drawn_slopes, pairs_by_presence, plant_copy, shrunk_means
from headlab.evaluation import Evaluator
from headlab.masks import full_mask
from headlab.methods.pair_game import ModelPairGame
from headlab.tasks import Example, Split

PLAYERS = 5


def every_coalition() -> np.ndarray:
    """All coalitions, as often as coalitions of all sizes are drawn, bool [draw, player].

    Each number of players is as frequent as every other, and so is each coalition of one number.
    """
    often = lcm(*(comb(PLAYERS, size) for size in range(PLAYERS + 1)))
    rows: list[tuple[bool, ...]] = []
    for kept in product([False, True], repeat=PLAYERS):
        rows += [kept] * (often // comb(PLAYERS, sum(kept)))
    return np.array(rows)


def gains_at(value: Any, kept: np.ndarray) -> np.ndarray:
    """Each player's gain at the coalition of the others in each row, [row, player]."""
    gains = np.zeros(kept.shape)
    for row, coalition in enumerate(kept):
        present = frozenset(np.flatnonzero(coalition).tolist())
        for player in range(kept.shape[1]):
            gains[row, player] = value(present | {player}) - value(present - {player})
    return gains


@pytest.mark.parametrize("value", [majority, smooth])
@pytest.mark.parametrize("example", [0, 3])
def test_with_true_gains_the_mean_over_the_draws_is_the_index(value: Any, example: int) -> None:
    def value_of(present: frozenset[int]) -> float:
        return float(value(example, present))

    kept = every_coalition()
    estimates = pairs_by_presence(kept, gains_at(value_of, kept))
    for first in range(PLAYERS):
        for second in range(first):
            index = reference.interaction_index(value_of, PLAYERS, first, second)
            assert estimates.means[first, second] == pytest.approx(index, abs=1e-12)
            assert estimates.means[second, first] == pytest.approx(index, abs=1e-12)


def test_a_gain_that_nobody_changes_is_no_interaction() -> None:
    kept = every_coalition()
    own = np.arange(PLAYERS) / 8
    means = pairs_by_presence(kept, np.broadcast_to(own, kept.shape)).means
    assert_allclose(means, 0, atol=1e-12)


def test_means_and_errors_are_those_of_one_draw_after_the_other(rng: np.random.Generator) -> None:
    kept = rng.random((40, PLAYERS)) < rng.random((40, 1))
    kept[:2] = [[False] * PLAYERS, [True] * PLAYERS]
    gains = rng.normal(size=kept.shape)
    estimates = pairs_by_presence(kept, gains)
    for first in range(PLAYERS):
        for second in range(first):
            samples = [
                reference.interaction_by_presence(coalition, gain, first, second)
                for coalition, gain in zip(kept.tolist(), gains.tolist(), strict=True)
            ]
            assert estimates.means[first, second] == pytest.approx(np.mean(samples))
            variance = np.var(samples) / (len(samples) - 1)
            assert estimates.variances[first, second] == pytest.approx(variance)


def test_shrunk_estimates_are_0_where_there_is_only_noise_and_near_the_truth_where_there_is_more(
    rng: np.random.Generator,
) -> None:
    kept = rng.random((4000, PLAYERS)) < rng.random((4000, 1))
    noise = 0.01 * rng.normal(size=kept.shape)
    stand_in = noise.copy()
    stand_in[:, 0] += np.where(kept[:, 1], 0.0, 1.0)
    stand_in[:, 1] += np.where(kept[:, 0], 0.0, 1.0)
    estimates = pairs_by_presence(kept, stand_in)
    shrunk = shrunk_means(estimates, stand_in)
    assert shrunk[0, 1] == pytest.approx(estimates.means[0, 1], rel=0.05)
    assert shrunk[0, 1] < -0.8
    of_noise = pairs_by_presence(kept, noise)
    assert (np.abs(shrunk_means(of_noise, noise)) <= np.abs(of_noise.means)).all()


def test_a_planted_copy_of_a_strong_head_is_the_largest_pair() -> None:
    """Its labels are the model's own answers, which either of the two heads is enough for."""
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    plant_copy(model, layer=1, head=0, copy=2)
    with torch.no_grad():
        output = model.module.bert.encoder.layer[1].attention.output.dense.weight
        width = output.shape[1] // model.grid.width
        for head in (0, 2):
            output[:, head * width : (head + 1) * width] *= 40.0
    task = tiny_task()
    answers = Evaluator(model, task, "xx", "dev", 24).evaluate(full_mask(model.grid)).predicted

    def read(language: str, split: Split, seed: int) -> list[Example]:
        examples = task.read(language, split, seed)
        return [
            replace(example, label=label)
            for example, label in zip(examples, answers.tolist(), strict=True)
        ]

    game = ModelPairGame(Evaluator(model, replace(task, read=read), "xx", "dev", 24))
    means, variances = pairs_by_presence(*drawn_slopes(game, 2048, seed=0))
    assert means[4, 6] < -4 * np.sqrt(variances[4, 6])
    upper = np.triu_indices(game.players, 1)
    most_alike = int(np.argmin(means[upper]))
    assert (upper[0][most_alike], upper[1][most_alike]) == (4, 6)
