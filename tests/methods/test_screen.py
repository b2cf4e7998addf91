"""Gains computed by chance: right whatever the screen foresees, cheaper where it foresees well."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import t as student_t
from support.table_game import (
    BINS,
    SCREENS,
    TableGame,
    last_snapshot,
    majority,
    members,
    right,
    same_arrays,
    smooth,
)
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import VALUE_FUNCTIONS, surrogate, value_function_of
from headlab.evaluation import Evaluator
from headlab.hooks import ActiveGates
from headlab.methods import screen, tmab
from headlab.methods.model_game import ModelGame, graded_share
from headlab.methods.sampling import SamplingPlan
from headlab.methods.screen import (
    ALWAYS_COMPUTED_COST,
    NEARNESS_SCALE,
    SIZE_SCALE,
    Scale,
    Screen,
    feasible,
    nearness,
    player_groups,
    weighted_samples,
)
from headlab.stats import Interval

ESTIMANDS = tmab.ESTIMANDS
GAMES = {"majority": (majority, 1), "smooth": (smooth, 64)}


def plan(draws: int, target: float | None = None) -> SamplingPlan:
    return SamplingPlan(
        samples=draws,
        target=target,
        stop="width",
        level=0.95,
        span=1.0,
    )


def table(
    name: str,
    players: int,
    examples: int,
    screen: str | None,
) -> TableGame:
    value, steps = GAMES[name]
    foresight = None if screen is None else SCREENS[screen]
    return TableGame(players, examples, value, steps=steps, foresight=foresight)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen that always foresees and computes few gains; it would not pay for few players."""
    monkeypatch.setattr(screen, "PASS_COST", 1e9)
    monkeypatch.setattr(screen, "EAGERNESSES", (0.5,))
    monkeypatch.setattr(screen, "FIRST_EAGERNESS", 0.5)


def test_stakes_are_learned_once_from_whole_cycles() -> None:
    game = table("majority", 5, 100, "right")
    counts_to_learn_from = np.zeros(())
    for tally in tmab.estimate(game, plan(2000, 0.1), seed=1):
        if tally.draws == 300:
            counts_to_learn_from = tally.counts
        assert tally.early.any() == (tally.draws >= 300)
        assert_array_equal(tally.early, np.broadcast_to(counts_to_learn_from, tally.early.shape))
        assert (tally.stakes() is None) == (tally.draws < 300)
    assert tally.draws > 300
    long_run = last_snapshot(tmab.estimate(game, plan(400), seed=1))
    assert long_run.stakes() is not None
    short_run = last_snapshot(tmab.estimate(game, plan(200), seed=1))
    assert short_run.stakes() is None


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_stakes_learned_for_a_width_out_of_reach_do_not_widen_intervals(
    estimand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stakes for ±0.001 suit hundreds of thousands of samples, and these are 640."""
    game = table("majority", 6, 64, "right")
    unreachable = plan(640, 0.001)
    with_learning = last_snapshot(tmab.estimate(game, unreachable, seed=1, estimand=estimand))
    monkeypatch.setattr(tmab, "MIN_LEARNING_DRAWS", np.inf)
    without_learning = last_snapshot(tmab.estimate(game, unreachable, seed=1, estimand=estimand))
    assert with_learning.stakes() is not None
    assert without_learning.stakes() is None
    width_with = width_of(with_learning.interval())
    width_without = width_of(without_learning.interval())
    assert (width_with < 1.02 * width_without).all()
    assert width_with.mean() < width_without.mean()


def width_of(interval: Interval) -> np.ndarray:
    return np.asarray(interval.high - interval.low)


def test_a_width_that_is_just_reachable_needs_just_the_samples_of_the_plan() -> None:
    game = table("majority", 5, 100, "right")
    tally = last_snapshot(tmab.estimate(game, plan(600, 0.01), seed=1))
    for head, width in enumerate(tally.reachable_width(tally.counts)):
        tally_for_width = replace(tally, plan=plan(600, float(width)))
        assert tally_for_width.samples_needed()[head] == pytest.approx(600)


@pytest.mark.parametrize("target", [None, 0.05])
def test_where_nothing_is_foreseen_no_interval_pays_for_weights(target: float | None) -> None:
    game = table("majority", 5, 40, None)
    *_, tally = tmab.estimate(game, plan(400, target), seed=1)
    assert tally.reach == 1
    restored_tally = tmab.tally_from(tally.arrays(), tally.plan, 5, (1, 64))
    assert_array_equal(restored_tally.support, tally.support)
    assert_array_equal(restored_tally.interval(), tally.interval())


# One sample.


@pytest.mark.parametrize("halvings", [0, 1, 3, 6])
def test_a_sample_is_the_gain_on_average_whatever_was_foreseen(halvings: int) -> None:
    gains = np.array([[0.0, 1.0, -1.0, 0.3]])
    foreseen = np.array([[0.25, 0.5, 0.0, -0.2]])
    probability = 2.0**-halvings
    halvings_by_player = np.full((1, 4), halvings)
    not_computed = np.full((1, 4), np.nan)
    samples_if_computed = weighted_samples(foreseen, gains, halvings_by_player)
    samples_if_not = weighted_samples(foreseen, not_computed, halvings_by_player)
    assert_array_equal(samples_if_not, foreseen)
    mean = probability * samples_if_computed + (1 - probability) * samples_if_not
    assert_allclose(mean, gains, atol=1e-12)


def test_samples_of_feasible_gains_stay_within_their_reach() -> None:
    rng = np.random.default_rng(0)
    coalitions = rng.random((400, 5)) < 0.5
    values = rng.random(400)
    values_after_change = rng.random((400, 5))
    changes = values_after_change - values[:, None]
    gains = np.where(coalitions, -changes, changes)
    foreseen = feasible(rng.normal(0, 2, (400, 5)), values, coalitions)
    assert (np.abs(foreseen) <= 1).all()
    for halvings in range(7):
        samples = weighted_samples(foreseen, gains, np.full(gains.shape, halvings))
        assert np.abs(samples).max() <= 2**halvings
    assert_array_equal(feasible(gains, values, coalitions), gains)  # what can be is not changed
    no_number = np.array([[np.nan]])
    feasible_gain = feasible(no_number, np.array([0.5]), np.array([[True]]))
    assert_array_equal(feasible_gain, [[0.0]])


# The estimate.


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
def test_with_every_gain_computed_the_screen_changes_nothing(
    name: str,
    estimand: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tmab, "max_halvings", lambda _: 0)
    plain_game = table(name, 5, 6, None)
    screened_game = table(name, 5, 6, "blind")
    plain_tally = last_snapshot(tmab.estimate(plain_game, plan(60), seed=2, estimand=estimand))
    screened_tally = last_snapshot(
        tmab.estimate(screened_game, plan(60), seed=2, estimand=estimand)
    )
    assert_array_equal(screened_tally.counts, plain_tally.counts)
    assert not screened_tally.screen.whole
    assert_array_equal(screened_tally.screen.computed, screened_tally.screen.foreseen)


@cache
def estimates(
    name: str,
    estimand: str,
    kind: str,
    seeds: int = 24,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Estimates [seed, player], true values [player], and the share of gains that was computed."""
    estimates_by_seed = []
    game = table(name, 4, 24, kind)
    samples = 0
    for seed in range(seeds):
        tally = last_snapshot(tmab.estimate(game, plan(240), seed=seed, estimand=estimand))
        assert tally.draws == 240
        samples += tally.counts.sum()
        estimates_by_seed.append(tally.support @ tally.counts / tally.counts.sum(axis=0))
    share_computed = float(game.gain_counts.sum() / samples)
    return np.array(estimates_by_seed), truth_of(game, estimand), share_computed


def truth_of(game: TableGame, estimand: str) -> np.ndarray:
    """By enumeration of all orders, float [player]."""
    if estimand == "shapley":
        return np.array(reference.full_shapley(game.mean, game.players))
    return np.array(reference.top_half_shapley(game.mean, game.players))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("kind", SCREENS)
@pytest.mark.parametrize(
    "name",
    ["smooth", pytest.param("majority", marks=pytest.mark.soak)],
)
def test_no_screen_biases_the_estimate(
    name: str,
    kind: str,
    estimand: str,
) -> None:
    """The mean over seeds against enumeration, by its own standard error.

    A miss would come once in 10,000 times.
    """
    estimates_by_seed, truth, share_computed = estimates(name, estimand, kind)
    seeds = len(estimates_by_seed)
    standard_error = estimates_by_seed.std(axis=0, ddof=1) / np.sqrt(seeds)
    quantile = student_t.ppf(1 - 1e-4 / 8, seeds - 1)
    errors = np.abs(estimates_by_seed.mean(axis=0) - truth)
    assert (errors <= quantile * standard_error + 1e-9).all()
    assert share_computed < 0.9, "the screen spared hardly anything, so this says nothing"


@pytest.mark.usefixtures("eager")
def test_a_right_screen_costs_less_and_errs_less_than_a_wrong_one() -> None:
    errors = {}
    shares = {}
    for kind in SCREENS:
        estimates_by_seed, truth, shares[kind] = estimates("smooth", "shapley", kind)
        errors[kind] = float(((estimates_by_seed - truth) ** 2).mean())
    error_times_cost = {kind: errors[kind] * shares[kind] for kind in SCREENS}
    assert error_times_cost["right"] < error_times_cost["blind"]
    assert errors["right"] < errors["adversarial"]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", SCREENS)
def test_rounds_and_interruptions_do_not_change_a_screened_run(kind: str) -> None:
    settings = {"seed": 3, "estimand": "shapley"}

    def snapshots(
        round_size: int,
        plan: SamplingPlan,
        start: tmab.ScreenedTally | None,
    ) -> Any:
        game = table("smooth", 5, 7, kind)
        game.round = round_size
        tallies = tmab.estimate(game, plan, saved=start, **settings)
        return [tally.arrays() for tally in tallies]

    snapshots_of_three = snapshots(3, plan(100, 0.9), None)
    for round_size in (1, 16):
        *_, last_snapshot = snapshots(round_size, plan(100, 0.9), None)
        assert same_arrays(last_snapshot, snapshots_of_three[-1])
    options = {
        "target": 0.9,
        "samples": 100,
        "stop": "width",
        "level": 0.95,
        "value": "accuracy",
    }
    for number, arrays in enumerate(snapshots_of_three[:-1], start=1):
        saved_tally = tmab.restore(arrays, options, 5, 64)
        resumed_snapshots = snapshots(3, saved_tally.plan, saved_tally)
        assert len(resumed_snapshots) == len(snapshots_of_three) - number
        for got, want in zip(resumed_snapshots, snapshots_of_three[number:], strict=True):
            assert same_arrays(got, want)


def rare(example: int, present: frozenset[int]) -> int:
    """Right, but on one example in eight where player 0 is present and neither 2 nor 4 is."""
    is_alone = 0 in present and not present & {2, 4}
    return int(not (example % 8 == 0 and is_alone))


def foresees_nothing_of_player_0(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Certain that player 0 changes nothing; right about the others."""
    bins, foreseen = right(gains)
    bins[:, 0] = 2
    foreseen = foreseen.copy()
    foreseen[:, 0] = 0.0
    return bins, foreseen


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_flips_that_no_gradient_foresees_widen_the_interval(estimand: str) -> None:
    """They are drawn rarely and weigh much: without them, intervals would exclude the truth."""
    game = TableGame(6, 64, rare, foresight=foresees_nothing_of_player_0)
    truth = truth_of(game, estimand)
    assert truth[0] < -0.004
    widths = []
    for seed in range(20):
        tally = last_snapshot(tmab.estimate(game, plan(640, 0.001), seed=seed, estimand=estimand))
        outcome = tally.outcome()
        assert (outcome.low <= truth + 1e-9).all()
        assert (truth <= outcome.high + 1e-9).all()
        widths.append(outcome.high - outcome.low)
    mean_widths = np.mean(widths, axis=0)
    assert mean_widths[0] > mean_widths[1:].max()


# The probabilities.


def learned_screen(
    scale: Scale,
    rates: np.ndarray,
    costs: np.ndarray,
    rows: int = 2000,
) -> Screen:
    """A screen that has seen some rows of every bin and player.

    Args:
        scale: The bins.
        rates: The share of rows that surprised, float [bin].
        costs: Of each player's gain, float [player].
        rows: How many of every bin and player.
    """
    row_counts = np.full((scale.bins, len(costs)), rows, np.int64)
    surprises = np.repeat(rates[:, None] * rows, len(costs), axis=1)
    return replace(
        Screen.start(scale.bins, len(costs)),
        foreseen=row_counts,
        computed=row_counts,
        surprise=surprises,
        square=surprises,
    )


def test_probabilities_are_nearly_the_best_for_the_surprises_seen() -> None:
    """Against a search over all ways to halve, by a second derivation of variance and cost."""
    costs = np.ones(20)
    active = np.ones(20, bool)
    rates = np.array([0.5, 0.02, 0.0005])
    surprised_screen = learned_screen(BINS, rates, costs)
    best_screen = surprised_screen.with_best_probabilities(BINS, costs, active, 6, 0.0)
    assert not best_screen.whole
    halvings = best_screen.halvings[:, 0]
    assert_array_equal(best_screen.halvings, np.tile(halvings[:, None], 20))
    least_product = min(
        variance_times_cost(rates, np.array(possible_halvings))
        for possible_halvings in product(range(7), repeat=3)
    )
    assert variance_times_cost(rates, halvings) <= 1.05 * least_product
    assert (np.diff(halvings) >= 0).all()


def variance_times_cost(rates: np.ndarray, halvings: np.ndarray) -> float:
    """Of a draw with 20 players that falls into every bin equally often."""
    probabilities = 2.0**-halvings
    variance = np.mean(rates / probabilities)
    cost = screen.FORESEEN_PASS_COST + 20 * np.mean(probabilities)
    return float(variance * cost)


def test_where_foresight_costs_more_than_it_spares_every_gain_is_computed() -> None:
    costs = np.array([0.5])
    active = np.ones(1, bool)
    surprised_screen = learned_screen(BINS, np.array([0.5, 0.4, 0.3]), costs)
    assert surprised_screen.with_best_probabilities(BINS, costs, active, 6, 0.0).whole


def test_the_less_slack_there_is_the_more_gains_are_computed() -> None:
    costs = np.ones(20)
    rates = np.array([0.5, 0.02, 0.0005])
    active = np.ones(20, bool)
    surprised_screen = learned_screen(BINS, rates, costs)
    without_slack = surprised_screen.with_best_probabilities(BINS, costs, active, 6, 0.0)
    with_slack = surprised_screen.with_best_probabilities(BINS, costs, active, 6, 10.0)
    assert (with_slack.halvings >= without_slack.halvings).all()
    assert (with_slack.halvings > without_slack.halvings).any()


def test_gains_that_are_cheap_are_computed_always() -> None:
    costs = np.array([1.0, ALWAYS_COMPUTED_COST / 2])
    active = np.ones(2, bool)
    empty = Screen.start(BINS.bins, 2)
    best_screen = empty.with_best_probabilities(BINS, costs, active, 6, 0.0)
    assert not best_screen.whole
    assert best_screen.halvings[:, 0].max() > 0
    assert best_screen.halvings[:, 1].max() == 0


@pytest.mark.usefixtures("eager")
def test_probabilities_change_at_fixed_draws_only() -> None:
    game = TableGame(4, 300, majority, round=7, foresight=SCREENS["blind"])
    draws_before_change = set()
    tallies = list(tmab.estimate(game, plan(900), seed=0))
    for tally, next_tally in pairwise(tallies):
        if not np.array_equal(next_tally.screen.halvings, tally.screen.halvings):
            draws_before_change.add(tally.draws)
    assert draws_before_change <= {64, 128, 256, 300, 600}
    assert 64 in draws_before_change


def test_layers_that_surprise_alike_are_grouped() -> None:
    layers = np.repeat(np.arange(12), 2)
    costs = np.maximum((12 - layers - 2 / 3) / (12 - 2 / 3), 0.05)
    assert player_groups(costs).tolist() == [2] * 6 + [3] * 14 + [1] * 2 + [0] * 2
    assert player_groups(np.ones(4)).tolist() == [0] * 4
    assert set(player_groups(np.array([0.5, 1.0])).tolist()) == {0, 1}


@pytest.mark.parametrize("scale", [NEARNESS_SCALE, SIZE_SCALE])
def test_what_a_scale_expects_falls_from_bin_to_bin(scale: Scale) -> None:
    assert scale.bins == len(scale.edges) + 1
    assert (np.diff(scale.edges) > 0).all()
    assert (np.diff(scale.prior) <= 0).all()
    assert 0 < min(scale.prior) < max(scale.prior) <= 1
    assert scale.bins_of(np.array([np.nan])) == [0]
    assert scale.bins_of(np.array([np.inf])) == [scale.bins - 1]


# The game of a model.


@pytest.fixture(scope="module", params=["bert", "xlm-roberta", "gpt2", "distilbert"])
def evaluator(request: pytest.FixtureRequest) -> Evaluator:
    model = tiny_model(request.param, torch.float64, tokenizer=tiny_tokenizer())
    return Evaluator(model, tiny_task(), "xx", "dev", 12)


@pytest.mark.parametrize("ablation", ["zero", "mean"])
@pytest.mark.parametrize("key", VALUE_FUNCTIONS)
@pytest.mark.parametrize("tokens", [8, 10**6])
def test_computed_gains_are_the_models(
    evaluator: Evaluator,
    key: str,
    ablation: str,
    tokens: int,
) -> None:
    game = ModelGame(evaluator, ablation, value_function_of(key), tokens)
    scale = game.scale
    rng = np.random.default_rng(4)
    assert scale is not None
    coalitions = rng.random((7, game.players)) < 0.6
    is_wanted = rng.random((7, game.players)) < 0.7
    is_wanted[4] = False
    examples = rng.integers(12, size=7)
    uniforms = rng.random(coalitions.shape)
    want = game.marginals(coalitions, is_wanted, examples)
    for halvings in (0, 1):
        table = np.full((scale.bins, game.players), halvings)
        bins, foreseen, gains = game.screened(
            kept=coalitions,
            wanted=is_wanted,
            examples=examples,
            halvings=table,
            uniforms=uniforms,
        )
        is_computed = ~np.isnan(gains)
        assert_array_equal(is_computed, is_wanted & (uniforms < 2.0**-halvings))
        assert_allclose(gains[is_computed], want[is_computed], atol=1e-9)
        assert np.isnan(foreseen[~is_wanted]).all()
        assert (bins[is_wanted] >= 0).all()
        assert (bins[is_wanted] < scale.bins).all()


@pytest.mark.parametrize("key", ["probability", "log-probability"])
def test_foreseen_gains_are_the_gates_slopes(evaluator: Evaluator, key: str) -> None:
    """By differences of full forward passes with a gate a little further open or closed."""
    model = evaluator.model
    value = value_function_of(key)
    rng = np.random.default_rng(5)
    game = ModelGame(evaluator, value=value)
    coalitions = rng.random((4, game.players)) < 0.6
    everybody = np.ones_like(coalitions)
    examples = np.array([0, 3, 5, 7])
    halvings = np.full((SIZE_SCALE.bins, game.players), 6)
    uniforms = np.ones(coalitions.shape)
    bins, foreseen, _ = game.screened(
        kept=coalitions,
        wanted=everybody,
        examples=examples,
        halvings=halvings,
        uniforms=uniforms,
    )

    def worth_with_gate(
        layer: int,
        head: int,
        step: float,
    ) -> np.ndarray:
        gates = torch.as_tensor(model.grid.gates(coalitions), dtype=torch.float64)
        gates[:, layer, head] += step
        with torch.no_grad(), model.active(ActiveGates(gates=gates)):
            return evaluator.worth(examples, value)

    slopes = np.zeros(coalitions.shape)
    for player, (layer, head) in enumerate(model.grid.flat):
        worth_above = worth_with_gate(layer, head, 1e-5)
        worth_below = worth_with_gate(layer, head, -1e-5)
        slopes[:, player] = (worth_above - worth_below) / 2e-5
    want = feasible(slopes, game.values(coalitions, examples), coalitions)
    assert_allclose(foreseen, want, atol=1e-6)
    assert_array_equal(bins, SIZE_SCALE.bins_of(-np.abs(foreseen)))


def test_flips_are_rarer_the_further_an_answer_is_foreseen_from_changing(
    evaluator: Evaluator,
) -> None:
    game = ModelGame(evaluator)
    rng = np.random.default_rng(6)
    coalitions = rng.random((200, game.players)) < rng.random((200, 1))
    examples = rng.integers(12, size=200)
    everybody = np.ones_like(coalitions)
    halvings = np.zeros((NEARNESS_SCALE.bins, game.players), int)
    uniforms = np.zeros(coalitions.shape)
    bins, _, gains = game.screened(
        kept=coalitions,
        wanted=everybody,
        examples=examples,
        halvings=halvings,
        uniforms=uniforms,
    )
    assert_allclose(gains, game.marginals(coalitions, everybody, examples), atol=1e-12)
    near_flips = gains[bins <= 8] != 0
    far_flips = gains[bins >= 14] != 0
    assert near_flips.mean() > 5 * far_flips.mean()
    assert near_flips.size > 100
    assert far_flips.size > 100


def test_the_surrogate_is_the_distance_from_the_next_flip() -> None:
    value = value_function_of("accuracy")
    rng = np.random.default_rng(7)
    logits = torch.tensor(rng.normal(0, 3, (50, 4, 5)))
    labels = torch.tensor(rng.integers(5, size=(50, 4)))
    labels[::2, 3] = -100
    aim, level = surrogate(value, logits, labels)
    for row in range(50):
        has_label = labels[row] >= 0
        row_logits = logits[row, has_label].tolist()
        row_labels = labels[row, has_label].tolist()
        margins = [
            reference.margin(token_logits, label)
            for token_logits, label in zip(row_logits, row_labels, strict=True)
        ]
        least_margin = min(abs(margin) for margin in margins)
        assert level[row] == pytest.approx(least_margin)
        soft_distance = reference.soft_distance(row_logits, row_labels, 0.2)
        assert aim[row] == pytest.approx(soft_distance)
    aim_of_class, level_of_class = surrogate(value, logits[:, 0], labels[:, 0])
    aim_of_token, level_of_token = surrogate(value, logits[:, :1], labels[:, :1])
    assert_array_equal(aim_of_class, aim_of_token)
    assert_array_equal(level_of_class, level_of_token)


def test_a_row_without_labels_has_a_gradient_all_the_same() -> None:
    logits = torch.zeros((1, 2, 3), requires_grad=True)
    no_labels = torch.full((1, 2), -100)
    aim, _ = surrogate(value_function_of("accuracy"), logits, no_labels)
    (slope,) = torch.autograd.grad(aim.sum(), logits)
    assert_array_equal(slope, np.zeros((1, 2, 3)))


def test_nearness_is_in_units_of_what_the_gradient_may_be_wrong_by() -> None:
    changes = np.array([[-2.0, 0.0, 1.0]])
    possible_error = 0.1 * np.sqrt(5 / 3)  # a tenth of the root of the mean square of changes
    want = [
        -1 / (2.02 + possible_error),
        1 / (0.02 + possible_error),
        2 / (1.02 + possible_error),
    ]
    assert_allclose(nearness(np.array([1.0]), changes), [want])


def test_gains_are_foreseen_in_a_callers_inference_mode_too(evaluator: Evaluator) -> None:
    game = ModelGame(evaluator)
    rng = np.random.default_rng(8)
    coalitions = rng.random((6, game.players)) < 0.6
    arguments = (
        coalitions,
        np.ones_like(coalitions),
        rng.integers(12, size=6),
        np.ones((NEARNESS_SCALE.bins, game.players), int),
        rng.random(coalitions.shape),
    )
    want = game.screened(*arguments)
    with torch.inference_mode():
        assert_array_equal(game.screened(*arguments), want)


def test_a_slope_that_is_no_number_surprises_most(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = ModelGame(evaluator, value=value_function_of("probability"))
    everybody = np.ones((2, game.players), bool)

    def slopes_without_numbers(
        _: object, gates: torch.Tensor, **_options: object
    ) -> tuple[torch.Tensor]:
        return (torch.full_like(gates, torch.nan),)

    monkeypatch.setattr(torch.autograd, "grad", slopes_without_numbers)
    halvings = np.zeros((SIZE_SCALE.bins, game.players), int)
    uniforms = np.zeros(everybody.shape)
    bins, foreseen, gains = game.screened(
        kept=everybody,
        wanted=everybody,
        examples=np.arange(2),
        halvings=halvings,
        uniforms=uniforms,
    )
    assert_array_equal(bins, np.zeros_like(bins))
    assert_array_equal(foreseen, np.zeros_like(foreseen))
    assert np.isfinite(gains).all()


@pytest.mark.parametrize(
    ("layers", "width", "share"),
    [(12, 384, 1.0), (24, 1024, 0.267)],
)
def test_a_pass_that_keeps_everything_is_of_fewer_tokens_in_a_large_model(
    layers: int,
    width: int,
    share: float,
) -> None:
    text_config = SimpleNamespace(hidden_size=width)
    config = SimpleNamespace(get_text_config=lambda: text_config)
    model: Any = SimpleNamespace(
        module=SimpleNamespace(config=config, dtype=torch.float32),
        device=torch.device("cpu"),
        depth=layers,
    )
    assert graded_share(model, 1024) == pytest.approx(share, abs=1e-3)


def test_a_model_whose_layers_cannot_be_resumed_has_every_gain_computed() -> None:
    model = tiny_model("deberta-v2", tokenizer=tiny_tokenizer())
    game = ModelGame(Evaluator(model, tiny_task(), "xx", "dev", 6))
    assert game.scale is None
    tally = last_snapshot(tmab.estimate(game, plan(4), seed=0))
    assert tally.screen.whole
    weighted_levels = np.abs(tally.support) > 1
    assert tally.counts[weighted_levels].sum() == 0


def test_members_of_a_table_are_what_the_screens_see() -> None:
    """The screens of the tables above get the true gains; otherwise they would mean nothing."""
    game = TableGame(4, 3, smooth, steps=64, foresight=right)
    coalitions = np.array([[True, False, True, True]])
    everybody = np.ones((1, 4), bool)
    halvings = np.zeros((3, 4), int)
    uniforms = np.zeros((1, 4))
    _, foreseen, gains = game.screened(
        kept=coalitions,
        wanted=everybody,
        examples=np.array([1]),
        halvings=halvings,
        uniforms=uniforms,
    )
    assert_array_equal(foreseen, gains)
    value_with = smooth(1, members(0b1101, 4))
    value_without = smooth(1, members(0b1100, 4))
    assert gains[0, 0] == pytest.approx(value_with - value_without)
