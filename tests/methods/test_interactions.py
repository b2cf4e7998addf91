"""Interactions of pairs: right by enumeration, whatever the screen says, and repeatable."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom
from scipy.stats import t as student_t
from support.pair_table_game import PAIR_SCREENS, PairTableGame
from support.table_game import last_snapshot, majority, same_arrays, smooth
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from benchmarks.pair_slopes import plant_copy
from headlab.core import value_function_of
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import full_mask
from headlab.methods import interactions, screen
from headlab.methods.interactions import (
    chosen_halvings,
    estimate,
    pair_plan,
    restored_tally,
    started_tally,
)
from headlab.methods.joined import CYCLES_BEFORE_SLOPES
from headlab.methods.pair_game import (
    PAIR_SCALE,
    ModelPairGame,
    all_pairs,
    pair_nearness,
)
from headlab.methods.sampling import draws_of
from headlab.methods.tmab import ScreenedTally
from headlab.stats import holm
from headlab.tasks import Example, Split

SHAPIQ_PYTHON = "HEADLAB_SHAPIQ_PYTHON"
"""Names an interpreter that has shapiq 1.8, whose newest versions need another than headlab's."""
EXACT_BY_SHAPIQ = """
import json, sys
import numpy as np
from shapiq.game_theory.exact import ExactComputer

values = np.array(json.load(sys.stdin))
players = len(values).bit_length() - 1
bits = 1 << np.arange(players)
computer = ExactComputer(n_players=players, game=lambda coalitions: values[coalitions @ bits])
index = computer("SII", order=2)
pairs = [(i, j) for i in range(players) for j in range(i + 1, players)]
print(json.dumps([float(index[pair]) for pair in pairs]))
"""


def run(
    game: PairTableGame | ModelPairGame,
    samples: int,
    *,
    target: float | None = None,
    halvings: int | None = None,
    seed: int = 0,
) -> ScreenedTally:
    """The last tally of a run."""
    plan = pair_plan(game.span, samples, target)
    chosen = chosen_halvings(game, plan) if halvings is None else halvings
    return last_snapshot(estimate(game, started_tally(game, plan, chosen), seed=seed))


def conjunction(_: int, present: frozenset[int]) -> float:
    """Right only where players 0 and 1 are both present."""
    return float({0, 1} <= present)


def copies(_: int, present: frozenset[int]) -> float:
    """Players 0 and 1 are copies of each other: either makes it right."""
    return float(bool({0, 1} & present))


def additive(example: int, present: frozenset[int]) -> float:
    """Each player adds its part, whoever else is there."""
    return sum((1 + player) / 32 for player in present) + (example % 2) / 4


# By enumeration.


@pytest.mark.parametrize(
    ("value", "steps", "want"), [(conjunction, 1, 1.0), (copies, 1, -1.0), (additive, 32, 0.0)]
)
def test_games_whose_interactions_are_known(
    value: Callable[[int, frozenset[int]], float], steps: int, want: float
) -> None:
    game = PairTableGame(5, 4, value, steps=steps)
    outcome = run(game, 400).outcome()
    wanted = np.zeros(len(game.pairs))
    wanted[0] = want
    assert_allclose(game.truth, wanted, atol=1e-12)
    assert_allclose(outcome.values, wanted, atol=1e-9)
    assert (outcome.low <= wanted).all()
    assert (wanted <= outcome.high).all()


def test_copies_are_decided_and_players_that_do_not_interact_are_not() -> None:
    outcome = run(PairTableGame(5, 4, copies), 400).outcome()
    assert outcome.high is not None
    assert outcome.low is not None
    assert outcome.high[0] < 0
    assert (outcome.low[1:] < 0).all()
    assert (outcome.high[1:] > 0).all()


@pytest.mark.parametrize(("value", "steps"), [(majority, 1), (smooth, 64)])
def test_means_are_those_of_the_enumeration(value: Any, steps: int) -> None:
    """The mean over seeds, by its own standard error; a miss would come once in 10,000 times."""
    game = PairTableGame(6, 6, value, steps=steps)
    means = np.array([run(game, 240, seed=seed).outcome().values for seed in range(24)])
    assert_unbiased(means, game.truth)


def assert_unbiased(means: np.ndarray, truth: np.ndarray) -> None:
    seeds, pairs = means.shape
    standard_error = means.std(axis=0, ddof=1) / np.sqrt(seeds)
    quantile = student_t.ppf(1 - 1e-4 / (2 * pairs), seeds - 1)
    assert (np.abs(means.mean(axis=0) - truth) <= quantile * standard_error + 1e-9).all()


def test_draws_are_of_the_law_of_the_index() -> None:
    """By the coalitions of the others in many draws, whose weights the index gives."""
    draws = interactions.pair_draws(PairTableGame(4, 5, majority), range(12_000), 0)
    others = draws.kept[:, 2:]
    for first in (False, True):
        for second in (False, True):
            count = int((others == (first, second)).all(axis=1).sum())
            size = first + second
            weight = 1 / (3 * comb(2, size))
            low, high = binom.ppf([1e-5, 1 - 1e-5], len(others), weight)
            assert low <= count <= high


# The screen.


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen that always foresees and computes few interactions."""
    monkeypatch.setattr(screen, "PASS_COST", 1e9)
    monkeypatch.setattr(screen, "EAGERNESSES", (0.5,))
    monkeypatch.setattr(screen, "FIRST_EAGERNESS", 0.5)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", PAIR_SCREENS)
@pytest.mark.parametrize(("value", "steps"), [(majority, 1), (smooth, 64)])
def test_no_screen_biases_interactions(value: Any, steps: int, kind: str) -> None:
    game = PairTableGame(5, 24, value, steps=steps, pair_foresight=PAIR_SCREENS[kind])
    tallies = [run(game, 240, halvings=4, seed=seed) for seed in range(24)]
    assert_unbiased(np.array([tally.outcome().values for tally in tallies]), game.truth)
    share_computed = game.pair_counts.sum() / sum(tally.counts.sum() for tally in tallies)
    assert share_computed < 0.9, "the screen spared hardly anything, so this says nothing"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", PAIR_SCREENS)
def test_rounds_and_interruptions_do_not_change_a_run(kind: str) -> None:
    def game_with(rounds: int) -> PairTableGame:
        foresight = PAIR_SCREENS[kind]
        return PairTableGame(5, 7, smooth, steps=64, round=rounds, pair_foresight=foresight)

    plan = pair_plan(1.0, 100, 0.9)
    empty = started_tally(game_with(1), plan, 4)
    snapshots = [tally.arrays() for tally in estimate(game_with(6), empty, seed=3)]
    assert len(snapshots) > 5
    for rounds in (1, 64):
        tally = last_snapshot(estimate(game_with(rounds), empty, seed=3))
        assert same_arrays(tally.arrays(), snapshots[-1])
    for number, arrays in enumerate(snapshots[:-1], start=1):
        start = restored_tally(arrays, empty)
        resumed = [tally.arrays() for tally in estimate(game_with(6), start, seed=3)]
        assert same_arrays(resumed[-1], snapshots[-1])
        assert len(resumed) == len(snapshots) - number


def test_arrays_of_another_run_are_no_start() -> None:
    game = PairTableGame(5, 7, majority)
    empty = started_tally(game, pair_plan(1.0, 50), 0)
    arrays = last_snapshot(estimate(game, empty, seed=3)).arrays()
    assert restored_tally(arrays, empty).draws == 50
    fewer_pairs = PairTableGame(5, 7, majority, chosen=(0, 1, 2))
    other_empty = started_tally(fewer_pairs, pair_plan(1.0, 50), 0)
    assert restored_tally(arrays, other_empty) is other_empty
    assert restored_tally({}, empty) is empty
    del arrays["early"]
    assert restored_tally(arrays, empty) is empty


def test_draws_share_nothing_with_those_of_shapley() -> None:
    game = PairTableGame(6, 8, majority)
    draws = interactions.pair_draws(game, range(64), 0)
    assert_array_equal(np.sort(draws.examples.reshape(8, 8)), np.tile(np.arange(8), (8, 1)))
    other_draws = interactions.pair_draws(game, range(64), 1)
    assert not np.array_equal(draws.kept, other_draws.kept)
    for first in (0, CYCLES_BEFORE_SLOPES * game.examples):
        of_shapley = draws_of(game, range(first, first + 64), 0, game.players)
        assert not np.array_equal(draws.kept, of_shapley.kept)
        assert (draws.kept == of_shapley.kept).all(axis=1).sum() < 32


def test_few_pairs_are_computed_whole_and_many_for_a_narrow_width_are_screened() -> None:
    few = PairTableGame(6, 8, majority, chosen=(0, 1, 2), pair_foresight=PAIR_SCREENS["right"])
    assert chosen_halvings(few, pair_plan(1.0, 512)) == 0

    class ManyPairs(PairTableGame):
        @property
        def pair_costs(self) -> np.ndarray:
            return np.full(190, 0.7)

    many = ManyPairs(6, 8, majority, pair_foresight=PAIR_SCREENS["right"])
    assert chosen_halvings(many, pair_plan(1.0, 1 << 20, 0.002)) > 0
    unforeseen = replace(many, pair_foresight=None)
    assert chosen_halvings(unforeseen, pair_plan(1.0, 1 << 20, 0.002)) == 0


# Intervals.


@pytest.mark.parametrize("kind", [None, "right", "opposite"])
@pytest.mark.parametrize("value", [majority, copies])
def test_intervals_hold_where_pairs_stop(value: Any, kind: str | None) -> None:
    foresight = None if kind is None else PAIR_SCREENS[kind]
    game = PairTableGame(6, 24, value, pair_foresight=foresight)
    truth = game.truth
    misses = 0
    runs = 25
    for seed in range(runs):
        outcome = run(game, 960, target=0.25, halvings=2 if kind else 0, seed=seed).outcome()
        assert outcome.low is not None
        assert outcome.high is not None
        misses += int(((outcome.low > truth + 1e-9) | (truth > outcome.high + 1e-9)).sum())
    assert misses <= binom.ppf(1 - 1e-4, runs * len(truth), 0.05)


def test_pairs_stop_at_the_end_of_a_cycle_once_they_are_narrow() -> None:
    game = PairTableGame(5, 16, copies)
    tally = run(game, 4096, target=0.3)
    assert tally.draws < 4096
    assert tally.draws % 16 == 0
    outcome = tally.outcome()
    assert outcome.low is not None
    assert outcome.high is not None
    assert (outcome.high - outcome.low <= 0.6).all()


# What a gradient foresees.


def test_an_interaction_is_foreseen_where_flips_do_not_add_up() -> None:
    level = np.array([1.0])
    pairs = np.array([[0, 1], [0, 2], [1, 2], [0, 3]])
    change = np.array([[-0.6, -0.6, 0.0, -3.0]])
    nearness = pair_nearness(level, change, pairs)
    assert nearness[0, 0] < 0  # only both together flip it
    assert nearness[0, 1] > 0
    assert nearness[0, 2] > 0
    assert nearness[0, 3] > 0  # one flips it, with the other or without
    assert np.isnan(pair_nearness(level, np.full((1, 4), np.nan), pairs)).all()
    assert PAIR_SCALE.bins_of(np.array([np.nan]))[0] == 0


def test_bins_are_in_order_of_what_may_happen_in_them() -> None:
    assert len(PAIR_SCALE.edges) == PAIR_SCALE.bins - 1
    assert (np.diff(PAIR_SCALE.edges) > 0).all()
    assert (np.diff(PAIR_SCALE.prior) <= 0).all()


# On a model.


def model_game(architecture: str, key: str = "accuracy", chosen: Any = None) -> ModelPairGame:
    model = tiny_model(architecture, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 12, batch_size=5)
    players = np.arange(model.grid.size) if chosen is None else np.array(chosen)
    return ModelPairGame(evaluator, value=value_function_of(key), pairs=all_pairs(players))


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "modernbert", "deberta-v2", "albert"])
@pytest.mark.parametrize("tokens", [8, 10**6])
def test_interactions_equal_full_forwards(
    architecture: str, tokens: int, rng: np.random.Generator
) -> None:
    game = replace(model_game(architecture, "probability"), tokens=tokens)
    kept = rng.random((6, game.players)) < np.array([0.2, 0.5, 0.8, 0.5, 0, 1])[:, None]
    examples = rng.integers(12, size=6)
    wanted = rng.random((6, len(game.pairs))) < 0.3
    got = game.interactions(kept, wanted, examples)
    assert_array_equal(got[~wanted], 0)
    assert np.abs(got).max() > 1e-4
    want = halves_by_values(game, kept, examples)
    assert_allclose(got[wanted], want[wanted], atol=1e-9)


def halves_by_values(game: ModelPairGame, kept: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """Half of each interaction from four full forward passes, [row, pair]."""
    halves = np.zeros((len(kept), len(game.pairs)))
    for index, pair in enumerate(game.pairs):
        total = np.zeros(len(kept))
        for first, second, sign in ((1, 1, 1), (1, 0, -1), (0, 1, -1), (0, 0, 1)):
            coalitions = kept.copy()
            coalitions[:, pair] = (first, second)
            total += sign * game.values(coalitions, examples)
        halves[:, index] = total / 2
    return halves


@pytest.mark.parametrize("key", ["accuracy", "probability"])
def test_screened_interactions_are_those_computed_or_none(
    key: str, rng: np.random.Generator
) -> None:
    game = model_game("bert", key)
    scale = game.pair_scale
    assert scale is not None
    kept = rng.random((6, game.players)) < 0.6
    examples = rng.integers(12, size=6)
    wanted = rng.random((6, len(game.pairs))) < 0.5
    uniforms = rng.random(wanted.shape)
    halvings = np.tile(np.arange(scale.bins)[:, None] % 3, (1, len(game.pairs)))
    bins, foreseen, halves = game.screened_interactions(kept, wanted, examples, halvings, uniforms)
    assert np.isnan(bins[~wanted]).all()
    assert_array_equal(foreseen[wanted], 0)
    chances = 2.0 ** -(bins[wanted] % 3)
    is_computed = uniforms[wanted] < chances
    assert_array_equal(np.isnan(halves[wanted]), ~is_computed)
    want = halves_by_values(game, kept, examples)
    assert_allclose(halves[wanted][is_computed], want[wanted][is_computed], atol=1e-9)


def test_decoders_and_models_that_cannot_resume_are_not_screened() -> None:
    assert model_game("bert").pair_scale is not None
    assert model_game("gpt2").pair_scale is None
    assert model_game("albert").pair_scale is None


def exact_halves(game: ModelPairGame) -> np.ndarray:
    """The mean of the estimator's samples over all of its draws, exactly, [pair]."""
    players = game.players
    coalitions = (np.arange(1 << players)[:, None] >> np.arange(players) & 1).astype(bool)
    sizes = coalitions.sum(axis=1)
    chances = np.array([1 / (players + 1) / comb(players, int(size)) for size in sizes])
    total = np.zeros(len(game.pairs))
    for example in range(game.examples):
        examples = np.full(len(coalitions), example)
        wanted = np.ones((len(coalitions), len(game.pairs)), bool)
        total += chances @ game.interactions(coalitions, wanted, examples)
    return total / game.examples


def value_table(game: ModelPairGame) -> np.ndarray:
    """Value of every coalition on all examples, [bits of the coalition]."""
    players = game.players
    coalitions = (np.arange(1 << players)[:, None] >> np.arange(players) & 1).astype(bool)
    totals = np.zeros(len(coalitions))
    for example in range(game.examples):
        totals += game.values(coalitions, np.full(len(coalitions), example))
    return totals / game.examples


@cache
def exact_of_twelve_heads() -> tuple[np.ndarray, np.ndarray]:
    """The value of every coalition, and the exact mean of all draws of five heads' pairs."""
    game = twelve_heads()
    return value_table(game), 2 * exact_halves(game)


def twelve_heads() -> ModelPairGame:
    """Five of the twelve heads of a tiny model, on one example."""
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    assert model.grid.size == 12
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 1)
    pairs = all_pairs(np.array([0, 3, 5, 8, 11]))
    return ModelPairGame(evaluator, value=value_function_of("probability"), pairs=pairs)


def test_on_twelve_heads_all_draws_have_the_mean_of_the_index() -> None:
    table, means = exact_of_twelve_heads()

    def index_of(first: int, second: int) -> float:
        """By the formula with weights; orders of eleven would take too long."""
        total = 0.0
        for bits in range(1 << 12):
            if bits >> first & 1 or bits >> second & 1:
                continue
            size = bits.bit_count()
            one = table[bits | 1 << first] + table[bits | 1 << second]
            total += (table[bits | 1 << first | 1 << second] - one + table[bits]) / (
                11 * comb(10, size)
            )
        return total

    want = [index_of(int(first), int(second)) for first, second in twelve_heads().pairs]
    assert np.abs(want).max() > 1e-5
    assert_allclose(means, want, atol=1e-9)


def shapiq_python() -> Path:
    """An interpreter with shapiq, of at least the version with an exact computer."""
    if find_spec("shapiq") is not None:
        import sys

        return Path(sys.executable)
    python = os.environ.get(SHAPIQ_PYTHON, "")
    if not python:
        pytest.skip(f"shapiq is not installed, and {SHAPIQ_PYTHON} names no interpreter with it")
    return Path(python)


def exact_by_shapiq(table: np.ndarray) -> np.ndarray:
    """Shapiq's exact index of every pair, in the order of `all_pairs`."""
    command = [str(shapiq_python()), "-c", EXACT_BY_SHAPIQ]
    process = subprocess.run(
        command, input=json.dumps(table.tolist()), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return np.array(json.loads(process.stdout))


def test_on_twelve_heads_the_index_is_that_of_shapiqs_exact_computer() -> None:
    shapiq_python()  # skips before anything is computed
    table, means = exact_of_twelve_heads()
    indices = exact_by_shapiq(table)
    number = {tuple(pair): index for index, pair in enumerate(all_pairs(np.arange(12)).tolist())}
    want = [indices[number[tuple(pair)]] for pair in twelve_heads().pairs.tolist()]
    assert_allclose(means, want, atol=1e-9)


def test_the_reference_is_that_of_shapiqs_exact_computer() -> None:
    shapiq_python()
    game = PairTableGame(6, 6, smooth)
    table = np.array([game.table[:, bits].mean() for bits in range(1 << 6)])
    assert_allclose(exact_by_shapiq(table), game.truth, atol=1e-9)


def plant_strong_copy(model: Model, layer: int, head: int, copy: int, scale: float) -> None:
    """Make one head of a BERT strong, and another of its layer a copy of it."""
    attention = model.module.bert.encoder.layer[layer].attention
    width = attention.self.attention_head_size
    with torch.no_grad():
        attention.output.dense.weight[:, head * width : (head + 1) * width] *= scale
    plant_copy(model, layer, head, copy)


def test_a_planted_copy_of_a_head_is_found() -> None:
    """Its labels are the model's own answers, which either of the two heads is enough for."""
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    plant_strong_copy(model, layer=1, head=0, copy=2, scale=40.0)
    task = tiny_task()
    answers = Evaluator(model, task, "xx", "dev", 24).evaluate(full_mask(model.grid)).predicted

    def read(language: str, split: Split, seed: int) -> list[Example]:
        examples = task.read(language, split, seed)
        pairs = zip(examples, answers.tolist(), strict=True)
        return [replace(example, label=label) for example, label in pairs]

    evaluator = Evaluator(model, replace(task, read=read), "xx", "dev", 24)
    heads = np.arange(model.grid.size)
    game = ModelPairGame(evaluator, value=value_function_of("accuracy"), pairs=all_pairs(heads))
    plan = pair_plan(1.0, 480)
    outcome = last_snapshot(estimate(game, started_tally(game, plan, 0), seed=0)).outcome()
    assert outcome.high is not None
    assert outcome.p_values is not None
    decided = np.flatnonzero((outcome.high < 0) & (holm(outcome.p_values) <= 0.05))
    strongest = int(np.argmin(outcome.values))
    assert game.pairs[strongest].tolist() == [4, 6]
    assert strongest in decided


@pytest.mark.parametrize("halvings", [0, 3])
def test_lanes_do_not_change_a_run(halvings: int) -> None:
    """Some batches at once on a thread each, and all in turn."""
    threads_before = torch.get_num_threads()
    arrays = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            game = replace(model_game("bert", chosen=(0, 3, 5, 8)), tokens=60)
            empty = started_tally(game, pair_plan(1.0, 36), halvings)
            arrays.append(last_snapshot(estimate(game, empty, seed=2)).arrays())
    finally:
        torch.set_num_threads(threads_before)
    assert same_arrays(*arrays)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("slopes", ["scrambled", "constant", "opposite", "none"])
def test_whatever_the_gradient_says_interactions_of_a_model_stay_unbiased(
    slopes: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    game = model_game("bert", chosen=(0, 5, 8, 11))
    true_values = ModelPairGame.graded_values

    def misled(self: ModelPairGame, *arguments: Any) -> Any:
        values, level, slope = true_values(self, *arguments)
        wrong = {
            "scrambled": rng.permuted(slope, axis=1),
            "constant": np.ones_like(slope),
            "opposite": -slope,
            "none": np.full_like(slope, np.nan),
        }
        return values, level, wrong[slopes]

    plan = pair_plan(1.0, 72)
    whole = np.array(
        [
            last_snapshot(estimate(game, started_tally(game, plan, 0), seed=seed)).outcome().values
            for seed in range(12)
        ]
    )
    monkeypatch.setattr(ModelPairGame, "graded_values", misled)
    screened = np.array(
        [
            last_snapshot(estimate(game, started_tally(game, plan, 3), seed=seed)).outcome().values
            for seed in range(12)
        ]
    )
    difference = screened - whole  # of the same draws
    if slopes != "none":  # without a gradient everything is computed
        assert difference.any(), "the screen spared nothing, so this says nothing"
    standard_error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    quantile = student_t.ppf(1 - 1e-4 / (2 * difference.shape[1]), len(difference) - 1)
    assert (np.abs(difference.mean(axis=0)) <= quantile * standard_error + 1e-9).all()
