"""Gains that are computed by chance: right whatever the screen foresees, and cheaper where it foresees well."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

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
    last,
    majority,
    members,
    right,
    same,
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

ESTIMANDS = tmab.ESTIMANDS
GAMES = {"majority": (majority, 1), "smooth": (smooth, 64)}


def plan(draws: int, target: float | None = None) -> SamplingPlan:
    return SamplingPlan(draws, target, "width", 0.95, 1.0)


def table(name: str, players: int, examples: int, screen: str | None) -> TableGame:
    value, steps = GAMES[name]
    return TableGame(
        players, examples, value, steps=steps, foresight=None if screen is None else SCREENS[screen]
    )


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen that always foresees, and computes little: on so few players it would not pay."""
    monkeypatch.setattr(screen, "PASS_COST", 1e9)
    monkeypatch.setattr(screen, "EAGERNESSES", (0.5,))
    monkeypatch.setattr(screen, "FIRST_EAGERNESS", 0.5)


def test_stakes_are_learned_once_from_whole_cycles() -> None:
    game = table("majority", 5, 100, "right")
    counts = []
    for now in tmab.estimate(game, plan(2000, 0.1), seed=1):
        counts.append(now.counts if now.draws == 300 else np.zeros_like(now.counts))
        assert now.early.any() == (now.draws >= 300)
        assert_array_equal(now.early, np.sum(counts, axis=0))
        assert (now.stakes() is None) == (now.draws < 300)
    assert now.draws > 300
    assert last(tmab.estimate(game, plan(400), seed=1)).stakes() is not None
    assert last(tmab.estimate(game, plan(200), seed=1)).stakes() is None


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_stakes_learned_for_a_width_out_of_reach_do_not_widen_intervals(
    estimand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stakes for ±0.001 suit hundreds of thousands of samples, and these are 640."""
    game = table("majority", 6, 64, "right")
    unreachable = plan(640, 0.001)
    learned = last(tmab.estimate(game, unreachable, seed=1, estimand=estimand))
    monkeypatch.setattr(tmab, "MIN_LEARNING_DRAWS", np.inf)
    usual = last(tmab.estimate(game, unreachable, seed=1, estimand=estimand))
    assert learned.stakes() is not None
    assert usual.stakes() is None
    (low, high), (usual_low, usual_high) = learned.interval(), usual.interval()
    assert (high - low < 1.02 * (usual_high - usual_low)).all()
    assert (high - low).mean() < (usual_high - usual_low).mean()


def test_a_width_that_is_just_reachable_needs_just_the_samples_of_the_plan() -> None:
    tally = last(tmab.estimate(table("majority", 5, 100, "right"), plan(600, 0.01), seed=1))
    for head, width in enumerate(tally.reachable(tally.counts)):
        asked = replace(tally, plan=plan(600, float(width)))
        assert asked.needed()[head] == pytest.approx(600)


@pytest.mark.parametrize("target", [None, 0.05])
def test_where_nothing_is_foreseen_no_interval_pays_for_weights(target: float | None) -> None:
    game = table("majority", 5, 40, None)
    *_, tally = tmab.estimate(game, plan(400, target), seed=1)
    assert tally.reach == 1
    again = tmab.tally_from(tally.arrays(), tally.plan, 5, (1, 64))
    assert_array_equal(again.support, tally.support)
    assert_array_equal(again.interval(), tally.interval())


# One sample.


@pytest.mark.parametrize("halvings", [0, 1, 3, 6])
def test_a_sample_is_the_gain_on_average_whatever_was_foreseen(halvings: int) -> None:
    gains = np.array([[0.0, 1.0, -1.0, 0.3]])
    foreseen = np.array([[0.25, 0.5, 0.0, -0.2]])
    p = 2.0**-halvings
    ran, spared = (
        weighted_samples(foreseen, g, np.full((1, 4), halvings))
        for g in (gains, np.full((1, 4), np.nan))
    )
    assert_array_equal(spared, foreseen)
    assert_allclose(p * ran + (1 - p) * spared, gains, atol=1e-12)


def test_samples_of_feasible_gains_stay_within_their_reach() -> None:
    rng = np.random.default_rng(0)
    kept = rng.random((400, 5)) < 0.5
    value = rng.random(400)
    other = rng.random((400, 5))
    gains = np.where(kept, value[:, None] - other, other - value[:, None])
    foreseen = feasible(rng.normal(0, 2, (400, 5)), value, kept)
    assert (np.abs(foreseen) <= 1).all()
    for halvings in range(7):
        assert (
            np.abs(weighted_samples(foreseen, gains, np.full(kept.shape, halvings))).max()
            <= 2**halvings
        )
    assert_array_equal(feasible(gains, value, kept), gains)  # what can be is not changed
    assert_array_equal(feasible(np.array([[np.nan]]), np.array([0.5]), np.array([[True]])), [[0.0]])


# The estimate.


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
def test_with_every_gain_computed_the_screen_changes_nothing(
    name: str, estimand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tmab, "max_halvings", lambda _: 0)
    whole, screened = (
        last(tmab.estimate(table(name, 5, 6, screen), plan(60), seed=2, estimand=estimand))
        for screen in (None, "blind")
    )
    assert_array_equal(screened.counts, whole.counts)
    assert not screened.screen.whole
    assert_array_equal(screened.screen.computed, screened.screen.foreseen)


@cache
def estimates(
    name: str, estimand: str, kind: str, seeds: int = 24
) -> tuple[TableGame, np.ndarray, np.ndarray, float]:
    """A game, the estimates and squared errors of each seed [seed, player], and the share of gains computed."""
    found = []
    game = table(name, 4, 24, kind)
    drawn = 0
    for seed in range(seeds):
        tally = last(tmab.estimate(game, plan(240), seed=seed, estimand=estimand))
        assert tally.draws == 240
        drawn += tally.counts.sum()
        found.append(tally.support @ tally.counts / tally.counts.sum(axis=0))
    enumerate_orders = (
        reference.full_shapley if estimand == "shapley" else reference.top_half_shapley
    )
    truth = np.array(enumerate_orders(game.mean, game.players))
    return game, np.array(found), truth, float(game.asked.sum() / drawn)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("kind", SCREENS)
@pytest.mark.parametrize("name", ["smooth", pytest.param("majority", marks=pytest.mark.soak)])
def test_no_screen_biases_the_estimate(name: str, kind: str, estimand: str) -> None:
    """The mean over seeds against enumeration, by its own standard error: a miss would come once in 10,000 times."""
    _, found, truth, share = estimates(name, estimand, kind)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (
        np.abs(found.mean(axis=0) - truth)
        <= student_t.ppf(1 - 1e-4 / 8, len(found) - 1) * error + 1e-9
    ).all()
    assert share < 0.9, "the screen spared hardly anything, so this says nothing"


@pytest.mark.usefixtures("eager")
def test_a_right_screen_costs_less_and_errs_less_than_a_wrong_one() -> None:
    errors = {}
    shares = {}
    for kind in SCREENS:
        _, found, truth, shares[kind] = estimates("smooth", "shapley", kind)
        errors[kind] = float(((found - truth) ** 2).mean())
    assert errors["right"] * shares["right"] < errors["blind"] * shares["blind"]
    assert errors["right"] < errors["adversarial"]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", SCREENS)
def test_rounds_and_interruptions_do_not_change_a_screened_run(kind: str) -> None:
    given = {"seed": 3, "estimand": "shapley"}
    runs = []
    for size in (1, 3, 16):
        game = table("smooth", 5, 7, kind)
        game.round = size
        runs.append([t.arrays() for t in tmab.estimate(game, plan(100, 0.9), **given)])
    assert all(same(run[-1], runs[0][-1]) for run in runs)
    options = {"target": 0.9, "samples": 100, "stop": "width", "level": 0.95, "value": "accuracy"}
    for at, arrays in enumerate(runs[1][:-1]):
        saved = tmab.restore(arrays, options, 5, 64)
        game = table("smooth", 5, 7, kind)
        game.round = 3
        rest = [t.arrays() for t in tmab.estimate(game, saved.plan, **given, saved=saved)]
        assert len(rest) == len(runs[1]) - at - 1
        assert all(same(a, b) for a, b in zip(rest, runs[1][at + 1 :], strict=True))


def rare(example: int, present: frozenset[int]) -> int:
    """Right, but where player 0 is alone among the even ones, on one example in eight: then only without it."""
    return int(not (example % 8 == 0 and 0 in present and not present & {2, 4}))


def foresees_nothing_of_player_0(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Certain that player 0 changes nothing; right about the others."""
    bins, foreseen = right(gains)
    bins[:, 0] = 2
    return bins, np.where(np.arange(gains.shape[1]) == 0, 0.0, foreseen)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_flips_that_no_gradient_foresees_widen_the_interval(estimand: str) -> None:
    """They are drawn rarely and weigh much: an interval that did not pay for them would exclude the truth."""
    game = TableGame(6, 64, rare, foresight=foresees_nothing_of_player_0)
    enumerate_orders = (
        reference.full_shapley if estimand == "shapley" else reference.top_half_shapley
    )
    truth = np.array(enumerate_orders(game.mean, game.players))
    assert truth[0] < -0.004
    widths = []
    for seed in range(20):
        tally = last(tmab.estimate(game, plan(640, 0.001), seed=seed, estimand=estimand))
        outcome = tally.outcome()
        assert ((outcome.low <= truth + 1e-9) & (truth <= outcome.high + 1e-9)).all()
        widths.append(outcome.high - outcome.low)
    assert np.mean(widths, axis=0)[0] > np.mean(widths, axis=0)[1:].max()


# The probabilities.


def learned(scale: Scale, rates: np.ndarray, costs: np.ndarray, rows: int = 2000) -> Screen:
    """A screen that has seen so many rows of every bin and player, a share of which surprised."""
    many = np.full((scale.bins, len(costs)), rows, np.int64)
    off = np.broadcast_to(rates[:, None] * rows, many.shape).astype(np.float64)
    return replace(
        Screen.start(scale.bins, len(costs)), foreseen=many, computed=many, surprise=off, square=off
    )


def test_probabilities_suit_what_was_seen() -> None:
    """Against a search over all ways to halve, by a second derivation of variance and cost."""
    costs = np.ones(20)
    active = np.ones(20, bool)
    rates = np.array([0.5, 0.02, 0.0005])
    found = learned(BINS, rates, costs).with_best_probabilities(BINS, costs, active, 6, 0.0)
    assert not found.whole
    assert_array_equal(found.halvings, np.tile(found.halvings[:, :1], 20))
    chosen = product(rates, found.halvings[:, 0])
    best = min(
        product(rates, np.array([a, b, c])) for a in range(7) for b in range(7) for c in range(7)
    )
    assert chosen <= 1.05 * best
    assert (np.diff(found.halvings[:, 0]) >= 0).all()


def product(rates: np.ndarray, halvings: np.ndarray) -> float:
    """Variance times cost of a draw with 20 players, each bin as often as the others."""
    p = 2.0**-halvings
    return float(np.mean(rates / p) * (screen.FORESEEN_PASS_COST + 20 * np.mean(p)))


def test_where_foresight_costs_more_than_it_spares_every_gain_is_computed() -> None:
    costs = np.array([0.5])
    found = learned(BINS, np.array([0.5, 0.4, 0.3]), costs).with_best_probabilities(
        BINS, costs, np.ones(1, bool), 6, 0.0
    )
    assert found.whole


def test_what_an_interval_needs_makes_for_more_gains() -> None:
    costs = np.ones(20)
    rates = np.array([0.5, 0.02, 0.0005])
    many, few = (
        learned(BINS, rates, costs)
        .with_best_probabilities(BINS, costs, np.ones(20, bool), 6, slack)
        .halvings
        for slack in (0.0, 10.0)
    )
    assert (few >= many).all()
    assert (few > many).any()


def test_gains_that_are_cheap_are_computed_always() -> None:
    costs = np.array([1.0, ALWAYS_COMPUTED_COST / 2])
    found = Screen.start(BINS.bins, 2).with_best_probabilities(
        BINS, costs, np.ones(2, bool), 6, 0.0
    )
    assert not found.whole
    assert found.halvings[:, 0].max() > 0
    assert found.halvings[:, 1].max() == 0


@pytest.mark.usefixtures("eager")
def test_probabilities_change_at_fixed_draws_only() -> None:
    game = TableGame(4, 300, majority, round=7, foresight=SCREENS["blind"])
    changed = []
    before = None
    for tally in tmab.estimate(game, plan(900), seed=0):
        if before is not None and not np.array_equal(tally.screen.halvings, before[1]):
            changed.append(before[0])
        before = tally.draws, tally.screen.halvings
    assert set(changed) <= {64, 128, 256, 300, 600}
    assert 64 in changed


def test_layers_that_surprise_alike_are_grouped() -> None:
    costs = np.maximum((12 - np.repeat(np.arange(12), 2) - 2 / 3) / (12 - 2 / 3), 0.05)
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
    evaluator: Evaluator, key: str, ablation: str, tokens: int
) -> None:
    game = ModelGame(evaluator, ablation, value_function_of(key), tokens)
    scale = game.scale
    rng = np.random.default_rng(4)
    assert scale is not None
    kept = rng.random((7, game.players)) < 0.6
    wanted = rng.random((7, game.players)) < 0.7
    wanted[4] = False
    examples = rng.integers(12, size=7)
    chance = rng.random(kept.shape)
    want = game.marginals(kept, wanted, examples)
    for halvings in (0, 1):
        table = np.full((scale.bins, game.players), halvings)
        bins, foreseen, gains = game.screened(kept, wanted, examples, table, chance)
        ran = ~np.isnan(gains)
        assert_array_equal(ran, wanted & (chance < 2.0**-halvings))
        assert_allclose(gains[ran], want[ran], atol=1e-9)
        assert np.isnan(foreseen[~wanted]).all()
        assert ((bins[wanted] >= 0) & (bins[wanted] < scale.bins)).all()


@pytest.mark.parametrize("key", ["probability", "log-probability"])
def test_foreseen_gains_are_the_gates_slopes(evaluator: Evaluator, key: str) -> None:
    """By differences of full forward passes with a gate a little further open or closed."""
    model = evaluator.model
    value = value_function_of(key)
    rng = np.random.default_rng(5)
    game = ModelGame(evaluator, value=value)
    kept = rng.random((4, game.players)) < 0.6
    examples = np.array([0, 3, 5, 7])
    table = np.full((SIZE_SCALE.bins, game.players), 6)
    bins, foreseen, _ = game.screened(
        kept, np.ones_like(kept), examples, table, np.ones(kept.shape)
    )
    slopes = np.zeros(kept.shape)
    for player, (layer, head) in enumerate(model.grid.flat):
        ends = []
        for step in (1e-5, -1e-5):
            gates = torch.as_tensor(model.grid.gates(kept), dtype=torch.float64)
            gates[:, layer, head] += step
            with torch.no_grad(), model.active(ActiveGates(gates=gates)):
                ends.append(evaluator.worth(examples, value))
        slopes[:, player] = (ends[0] - ends[1]) / 2e-5
    assert_allclose(foreseen, feasible(slopes, game.values(kept, examples), kept), atol=1e-6)
    assert_array_equal(bins, SIZE_SCALE.bins_of(-np.abs(foreseen)))


def test_flips_are_rarer_the_further_an_answer_is_foreseen_from_its_turn(
    evaluator: Evaluator,
) -> None:
    game = ModelGame(evaluator)
    rng = np.random.default_rng(6)
    kept = rng.random((200, game.players)) < rng.random((200, 1))
    examples = rng.integers(12, size=200)
    every = np.ones_like(kept)
    bins, _, gains = game.screened(
        kept,
        every,
        examples,
        np.zeros((NEARNESS_SCALE.bins, game.players), int),
        np.zeros(kept.shape),
    )
    assert_allclose(gains, game.marginals(kept, every, examples), atol=1e-12)
    near, far = (gains[rows] != 0 for rows in (bins <= 8, bins >= 14))
    assert near.mean() > 5 * far.mean()
    assert min(near.size, far.size) > 100


def test_what_is_aimed_at_is_the_distance_from_the_next_turn() -> None:
    value = value_function_of("accuracy")
    rng = np.random.default_rng(7)
    logits = torch.tensor(rng.normal(0, 3, (50, 4, 5)))
    labels = torch.tensor(rng.integers(5, size=(50, 4)))
    labels[::2, 3] = -100
    aim, level = surrogate(value, logits, labels)
    for row in range(50):
        asked = [t for t in range(4) if labels[row, t] >= 0]
        margins = [reference.margin(logits[row, t].tolist(), int(labels[row, t])) for t in asked]
        assert level[row] == pytest.approx(min(abs(m) for m in margins))
        assert aim[row] == pytest.approx(
            reference.soft_distance(
                [logits[row, t].tolist() for t in asked], [int(labels[row, t]) for t in asked], 0.2
            )
        )
    one, at = surrogate(value, logits[:, 0], labels[:, 0])
    alone, there = surrogate(value, logits[:, :1], labels[:, :1])
    assert_array_equal(one, alone)
    assert_array_equal(at, there)


def test_a_row_that_asks_for_nothing_has_a_gradient_all_the_same() -> None:
    logits = torch.zeros((1, 2, 3), requires_grad=True)
    aim, _ = surrogate(value_function_of("accuracy"), logits, torch.full((1, 2), -100))
    (slope,) = torch.autograd.grad(aim.sum(), logits)
    assert_array_equal(slope, np.zeros((1, 2, 3)))


def test_nearness_is_in_units_of_what_the_gradient_may_be_wrong_by() -> None:
    found = nearness(np.array([1.0]), np.array([[-2.0, 0.0, 1.0]]))
    usual = np.sqrt(5 / 3)
    assert_allclose(
        found, [[-1 / (2.02 + 0.1 * usual), 1 / (0.02 + 0.1 * usual), 2 / (1.02 + 0.1 * usual)]]
    )


def test_gains_are_foreseen_in_a_callers_inference_mode_too(evaluator: Evaluator) -> None:
    game = ModelGame(evaluator)
    rng = np.random.default_rng(8)
    kept = rng.random((6, game.players)) < 0.6
    examples = rng.integers(12, size=6)
    asked = (
        kept,
        np.ones_like(kept),
        examples,
        np.ones((NEARNESS_SCALE.bins, game.players), int),
        rng.random(kept.shape),
    )
    want = game.screened(*asked)
    with torch.inference_mode():
        assert_array_equal(game.screened(*asked), want)


def test_a_slope_that_is_no_number_surprises_most(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = ModelGame(evaluator, value=value_function_of("probability"))
    kept = np.ones((2, game.players), bool)
    monkeypatch.setattr(
        torch.autograd, "grad", lambda _, gates: (torch.full_like(gates, torch.nan),)
    )
    halvings = np.zeros((SIZE_SCALE.bins, game.players), int)
    bins, foreseen, gains = game.screened(kept, kept, np.arange(2), halvings, np.zeros(kept.shape))
    assert_array_equal(bins, np.zeros_like(bins))
    assert_array_equal(foreseen, np.zeros_like(foreseen))
    assert np.isfinite(gains).all()


@pytest.mark.parametrize(("layers", "width", "share"), [(12, 384, 1.0), (24, 1024, 0.267)])
def test_a_pass_that_keeps_everything_is_of_fewer_tokens_in_a_large_model(
    layers: int, width: int, share: float
) -> None:
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=width))
    module = SimpleNamespace(config=config, dtype=torch.float32)
    model = SimpleNamespace(
        module=module, device=torch.device("cpu"), grid=SimpleNamespace(layers=layers)
    )
    assert graded_share(model, 1024) == pytest.approx(share, abs=1e-3)  # type: ignore[arg-type] # a stand-in


def test_a_model_whose_layers_cannot_be_resumed_has_every_gain_computed() -> None:
    model = tiny_model("deberta-v2", tokenizer=tiny_tokenizer())
    game = ModelGame(Evaluator(model, tiny_task(), "xx", "dev", 6))
    assert game.scale is None
    tally = last(tmab.estimate(game, plan(4), seed=0))
    assert tally.screen.whole
    assert tally.counts[np.abs(tally.support) > 1].sum() == 0


def test_members_of_a_table_are_what_the_screens_see() -> None:
    """The screens of the tables above are told true gains: else they would say nothing."""
    game = TableGame(4, 3, smooth, steps=64, foresight=right)
    kept = np.array([[True, False, True, True]])
    every = np.ones((1, 4), bool)
    _, foreseen, gains = game.screened(
        kept, every, np.array([1]), np.zeros((3, 4), int), np.zeros((1, 4))
    )
    assert_array_equal(foreseen, gains)
    assert gains[0, 0] == pytest.approx(
        smooth(1, members(0b1101, 4)) - smooth(1, members(0b1100, 4))
    )
