"""The method `smoothed`: its slopes, its mean on games with known values, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from support.expected_errors import raises
from support.several_answers import WORDS
from support.table_game import last_snapshot, same_arrays
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.without_gradient import forbid_gradients

from headlab.core import Bools, Floats, Ints, value_function_of
from headlab.evaluation import Evaluator
from headlab.hooks import Model, gated
from headlab.methods import METHODS, smoothed
from headlab.methods.game import Query, in_turn
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score
from headlab.methods.smoothed import SlopePlan, SlopeTally
from headlab.pictures import score_tips
from headlab.results import HeadScores, Store

ESTIMANDS = ("shapley", "shapley-top50")
PLAYERS = 5
EXAMPLES = 16


def words_evaluator() -> Evaluator:
    """Of examples with a label for each word."""
    return Evaluator(tiny_model("bert-tokens", tokenizer=tiny_tokenizer()), WORDS, "xx")


# Slopes of a model, against differences of full passes.


@pytest.fixture(scope="module", params=["bert", "deberta-v2"])
def evaluator(request: pytest.FixtureRequest) -> Evaluator:
    """Of a model whose layers can be resumed, and of one whose layers cannot."""
    model = tiny_model(request.param, tokenizer=tiny_tokenizer())
    return Evaluator(model, tiny_task(), "xx", "dev", 12)


@pytest.mark.parametrize("ablation", ["zero", "mean"])
@pytest.mark.parametrize("tokens", [8, 10**6])
def test_slopes_are_those_of_differences(evaluator: Evaluator, ablation: str, tokens: int) -> None:
    model = evaluator.model
    rng = np.random.default_rng(3)
    kept = rng.random((4, model.grid.size)) < 0.6
    examples = np.array([0, 3, 3, 7])
    game = ModelGame(evaluator, ablation, tokens=tokens)
    slopes = game.slopes(kept, examples, np.array(0.3))
    layers, columns = model.grid.flat.T
    means = evaluator.fill(ablation)
    for row, example in enumerate(examples):
        inputs = evaluator.tensors(np.array([example]))

        def logits_under(gates: Floats, inputs=inputs) -> list[float]:
            with torch.no_grad(), gated(model, gates, ablation=ablation, means=means):
                return model.module(**inputs).logits[0].tolist()

        gates = model.grid.gates(kept[row]).astype(float)
        label = int(evaluator.examples[example].label)
        expected = reference.smoothed_slopes(logits_under, gates, label, 0.3)
        assert_allclose(slopes[row], expected[layers, columns], atol=1e-6)


def test_of_several_answers_the_slope_is_the_mean_of_theirs() -> None:
    evaluator = words_evaluator()
    game = ModelGame(evaluator)
    model = evaluator.model
    kept = np.ones((1, model.grid.size), bool)
    for example in range(3):
        examples = np.array([example])
        inputs = evaluator.tensors(examples)
        labels = evaluator.targets(examples, model.module(**inputs).logits)[0]

        def mean_of_answers(gates: Floats, inputs=inputs, labels=labels) -> float:
            with torch.no_grad(), gated(model, gates):
                logits = model.module(**inputs).logits[0]
            values = []
            for token in torch.nonzero(labels >= 0)[:, 0].tolist():
                right = int(labels[token])
                others = torch.cat([logits[token, :right], logits[token, right + 1 :]])
                margin = logits[token, right] - 0.2 * torch.logsumexp(others / 0.2, 0)
                values.append(float(ndtr(float(margin) / 0.5)))
            return float(np.mean(values))

        gates = np.ones((model.grid.layers, model.grid.width))
        slopes = game.slopes(kept, examples, np.array(0.5))[0]
        for index, (layer, column) in enumerate(model.grid.flat):
            above, below = gates.copy(), gates.copy()
            above[layer, column] += 1e-4
            below[layer, column] -= 1e-4
            difference = (mean_of_answers(above) - mean_of_answers(below)) / 2e-4
            assert_allclose(slopes[index], difference, atol=1e-6)


@pytest.mark.parametrize("key", ["probability", "log-probability"])
def test_other_values_are_smooth_as_they_are(key: str) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 12)
    game = ModelGame(evaluator, value=value_function_of(key))
    kept = np.ones((1, model.grid.size), bool)
    examples = np.array([5])
    slopes = game.slopes(kept, examples, np.array(9.0))[0]
    inputs = evaluator.tensors(examples)
    label = int(evaluator.examples[5].label)

    def value(gates: Floats) -> float:
        with torch.no_grad(), gated(model, gates):
            return reference.worth(key, model.module(**inputs).logits[0].tolist(), label)

    for index, (layer, column) in enumerate(model.grid.flat):
        above = np.ones((model.grid.layers, model.grid.width))
        below = above.copy()
        above[layer, column] += 1e-4
        below[layer, column] -= 1e-4
        assert_allclose(slopes[index], (value(above) - value(below)) / 2e-4, atol=1e-6)


def test_moments_of_margins_are_those_of_the_answers() -> None:
    evaluator = words_evaluator()
    model = evaluator.model
    kept = np.ones((3, model.grid.size), bool)
    moments = ModelGame(evaluator).margins(kept, np.arange(3))
    for example in range(3):
        examples = np.array([example])
        with torch.no_grad():
            logits = model.module(**evaluator.tensors(examples)).logits
        labels = evaluator.targets(examples, logits)[0]
        margins = []
        for token in torch.nonzero(labels >= 0)[:, 0].tolist():
            scores = logits[0, token].tolist()
            right_score = scores.pop(int(labels[token]))
            margins.append(right_score - max(scores))
        expected = [len(margins), sum(margins), sum(margin**2 for margin in margins)]
        assert_allclose(moments[example], expected)


# The mean of slopes, on games with known values.


@dataclass
class ProductGame:
    """A game of sums of products, whose slopes are its gains: v = sum of w_pq s_p s_q, by example.

    Attributes:
        weights_of_pairs: w, float [example, player, player].
        slope_factor: What the slopes are multiplied by: 1 for true ones.
        margin_spread: Standard deviation of the margins; 0 for equal ones.
    """

    weights_of_pairs: Floats
    slope_factor: float = 1.0
    margin_spread: float = 1.0

    players = PLAYERS
    examples = EXAMPLES
    weights = None
    round = 3

    def value(self, present: frozenset[int]) -> float:
        """The mean over examples, for the enumeration of all orders."""
        s = np.array([player in present for player in range(PLAYERS)], float)
        return float(np.einsum("epq,p,q->", self.weights_of_pairs, s, s) / EXAMPLES)

    def values(self, kept: Bools, examples: Ints) -> Floats:
        s = kept.astype(float)
        return np.einsum("rpq,rp,rq->r", self.weights_of_pairs[examples], s, s)

    def slopes(self, kept: Bools, examples: Ints, bandwidth: Floats) -> Floats:
        assert 0 < float(bandwidth) < 100
        weights = self.weights_of_pairs[examples]
        diagonal = np.einsum("rpp->rp", weights)
        both_ways = weights + weights.transpose(0, 2, 1)
        others = np.einsum("rpq,rq->rp", both_ways, kept) - 2 * diagonal * kept
        return self.slope_factor * (others + diagonal)

    def margins(self, kept: Bools, examples: Ints) -> Floats:
        margins = self.margin_spread * np.where(np.arange(len(kept)) % 2, 1.0, -1.0)
        return np.stack([np.ones(len(kept)), margins, margins**2], axis=1)

    def answers(self, asks: Iterable[Query]) -> Iterator[Floats]:
        return in_turn(self, asks)


def product_game(seed: int = 0, **fields: float) -> ProductGame:
    rng = np.random.default_rng(seed)
    shared = rng.normal(0.01, 0.02, (PLAYERS, PLAYERS))
    own = rng.normal(0, 0.01, (EXAMPLES, PLAYERS, PLAYERS))
    return ProductGame(shared + own, **fields)


def plan_of(estimand: str, samples: int = 64) -> SlopePlan:
    return SlopePlan(samples=samples, span=1.0, estimand=estimand, level=0.95)


def tally_of(game: ProductGame, plan: SlopePlan, seed: int = 0) -> SlopeTally:
    return last_snapshot(smoothed.estimate(game, plan, seed=seed, bandwidth=0.4))


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_on_a_game_whose_slopes_are_its_gains_the_mean_is_the_shapley_value(estimand: str) -> None:
    game = product_game()
    enumerate_orders = {
        "shapley": reference.full_shapley,
        "shapley-top50": reference.top_half_shapley,
    }[estimand]
    truth = enumerate_orders(game.value, PLAYERS)
    outcome = tally_of(game, plan_of(estimand, samples=64 * EXAMPLES)).outcome()
    assert (np.abs(outcome.values - truth) < 3 * outcome.sampling_error).all()
    assert np.corrcoef(outcome.values, truth)[0, 1] > 0.95
    assert (outcome.sampling_error < 0.02).all()


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_the_sampling_error_covers_the_mean_slope_as_often_as_its_level_says(
    estimand: str,
) -> None:
    game = product_game(seed=1)
    enumerate_orders = {
        "shapley": reference.full_shapley,
        "shapley-top50": reference.top_half_shapley,
    }[estimand]
    truth = enumerate_orders(game.value, PLAYERS)
    runs = 100
    misses = 0
    for seed in range(runs):
        outcome = tally_of(game, plan_of(estimand), seed).outcome()
        misses += int((np.abs(outcome.values - truth) > outcome.sampling_error).sum())
    # Balanced cycles make it rarer; 5 % of 500 is 25, and more than 45 come once in 10,000 times.
    assert misses <= 45


@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_slopes_that_are_too_steep_or_flat_are_scaled_to_add_up(factor: float) -> None:
    game = product_game()
    plan = plan_of("shapley", samples=512)
    worth = game.value(frozenset(range(PLAYERS))) - game.value(frozenset())
    outcome = tally_of(game, plan).outcome()
    assert_allclose(outcome.values.sum(), worth, rtol=0.02)
    scaled_outcome = tally_of(replace(game, slope_factor=factor), plan).outcome()
    assert_allclose(scaled_outcome.values.sum(), worth, rtol=0.02)
    assert_allclose(scaled_outcome.values, outcome.values, rtol=0.03, atol=1e-4)
    assert_allclose(scaled_outcome.sampling_error, outcome.sampling_error, rtol=0.1)


def test_the_scale_is_the_posterior_mean_of_a_grid() -> None:
    tally = tally_of(product_game(slope_factor=1.3), plan_of("shapley-top50"))
    slopes = tally.sums.sum(axis=0) / 2**20 / tally.counts.sum(axis=0)
    mean_total_square = tally.total_squares / 2**16 / tally.draws
    variance_of_totals = mean_total_square - (tally.totals / 2**20 / tally.draws) ** 2
    noise = tally.worth_variance + variance_of_totals / (tally.draws - 1)
    scales = np.linspace(-2, 4, 60_001)
    log_density = -((scales - 1) ** 2) / 2 / 0.3**2
    log_density -= (tally.worth - scales * slopes.sum()) ** 2 / 2 / noise
    density = np.exp(log_density - log_density.max())
    assert_allclose(tally.scale, (scales * density).sum() / density.sum(), rtol=1e-6)


@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.1, 10.0])
def test_slopes_that_do_not_foresee_what_heads_are_worth_are_refused(factor: float) -> None:
    game = product_game(slope_factor=factor)
    plan = plan_of("shapley")
    with raises("method.slopes_disagree", "xx", "shapley"):
        last_snapshot(smoothed.estimate(game, plan, seed=0, bandwidth=0.4, language="xx"))


def test_a_finished_run_that_goes_on_is_refused_again() -> None:
    game = product_game()
    tally = tally_of(game, plan_of("shapley"))
    opposite = replace(tally, sums=-tally.sums)
    with raises("method.slopes_disagree"):
        last_snapshot(smoothed.estimate(game, tally.plan, seed=0, bandwidth=0.4, saved=opposite))


def test_the_order_and_the_grouping_of_draws_change_no_bit() -> None:
    rng = np.random.default_rng(2)
    slopes = rng.standard_t(3, (40, PLAYERS)) / 7
    is_measured = rng.random((40, PLAYERS)) < 0.8
    in_second_half = rng.random(40) < 0.5
    empty = SlopeTally.start(PLAYERS, plan_of("shapley"))
    whole = empty.add(slopes, is_measured, in_second_half)
    shuffled = empty
    for part in np.array_split(rng.permutation(40), 7):
        shuffled = shuffled.add(slopes[part], is_measured[part], in_second_half[part])
    assert same_arrays(whole.arrays(), shuffled.arrays())
    for head in range(PLAYERS):
        measured = slopes[is_measured[:, head], head]
        assert_allclose(whole.mean_slopes()[head], measured.mean(), atol=1e-6)


def test_the_variance_is_that_of_the_scaled_mean_over_draws() -> None:
    """By leaving out one draw at a time (the jackknife), where every head is measured."""
    rng = np.random.default_rng(6)
    slopes = rng.normal(0.02, 0.05, (400, PLAYERS))
    in_first_half = np.zeros(400, bool)
    empty = replace(SlopeTally.start(PLAYERS, plan_of("shapley")), worth=0.15, worth_variance=1e-4)

    def tally_without(row: int | None) -> SlopeTally:
        rows = np.arange(400) != row
        return empty.add(slopes[rows], np.ones((rows.sum(), PLAYERS), bool), in_first_half[rows])

    def scaled_means(tally: SlopeTally) -> Floats:
        return tally.scale * tally.mean_slopes()

    tally = tally_without(None)
    left_out = np.stack([scaled_means(tally_without(row)) for row in range(400)])
    jackknife_variance = 399 * left_out.var(axis=0)
    step = 1e-5
    raised = replace(tally, worth=tally.worth + step)
    by_worth = (scaled_means(raised) - scaled_means(tally)) / step
    expected = jackknife_variance + by_worth**2 * 1e-4
    assert_allclose(tally.variance(), expected, rtol=0.05)


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_a_run_that_goes_on_from_any_snapshot_gives_the_same_bits(estimand: str) -> None:
    game = product_game()
    plan = plan_of(estimand, samples=400)
    snapshots = list(smoothed.estimate(game, plan, seed=4, bandwidth=0.4))
    assert len(snapshots) == 4
    for snapshot in snapshots:
        options = METHODS["smoothed"].resolve({"estimand": estimand, "samples": 400})
        restored = smoothed.restore(snapshot.arrays(), options, PLAYERS)
        later = smoothed.estimate(game, plan, seed=4, bandwidth=0.4, saved=restored)
        last = last_snapshot([restored, *later])
        assert same_arrays(last.arrays(), snapshots[-1].arrays())


def test_a_snapshot_of_another_method_or_model_is_not_gone_on_from() -> None:
    options = METHODS["smoothed"].resolve({})
    tally = tally_of(product_game(), plan_of("shapley"))
    for arrays in ({}, {"counts": np.zeros(3)}, tally.arrays()):
        assert smoothed.restore(arrays, options, PLAYERS + 1).draws == 0


# What cannot be smoothed.


def test_equal_margins_have_no_slope() -> None:
    with raises("method.margins_constant", "shapley"):
        tally_of(product_game(margin_spread=0.0), plan_of("shapley"))


@pytest.mark.parametrize("factor", [np.nan, np.inf, 1e7])
def test_slopes_that_are_no_numbers_are_said(factor: float) -> None:
    with raises("method.slopes_not_finite", "float32"):
        tally_of(product_game(slope_factor=factor), plan_of("shapley"))


@pytest.fixture
def any_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes may add up to anything: those of an untrained model do."""
    monkeypatch.setattr("headlab.methods.smoothed.LIMITS_OF_SCALE", (-np.inf, np.inf))


def smoothed_scores(model: Model, **settings: object) -> HeadScores:
    settings = {"language": "xx", "method": "smoothed", "size": 16, "samples": 64, **settings}
    return score(model, tiny_task(), **settings)


def test_a_decoder_is_refused() -> None:
    with raises("method.decoder_unsuited", "decoder", "shapley"):
        smoothed_scores(tiny_model("gpt2", tokenizer=tiny_tokenizer()))


def test_a_model_without_gradients_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    forbid_gradients(monkeypatch, model.module)
    for method in ("smoothed", "gradient"):
        with raises("model.gradient_missing", "leave-one-out"):
            score(model, tiny_task(), language="xx", method=method, size=8)


@pytest.mark.usefixtures("any_scale")
def test_one_example_is_enough() -> None:
    scores = smoothed_scores(tiny_model("bert", tokenizer=tiny_tokenizer()), size=1)
    assert np.isfinite(scores.values).all()
    assert scores.halves is None


# As results.

LOOK = {"estimand": "shapley", "value": "probability"}


@pytest.fixture
def scores(any_scale: None) -> HeadScores:
    return smoothed_scores(tiny_model("bert", tokenizer=tiny_tokenizer()), **LOOK)


def test_they_mark_no_head_and_no_rule_chooses_by_them(scores: HeadScores) -> None:
    assert scores.signed
    assert scores.sampling_error is not None
    assert (scores.sampling_error > 0).all()
    assert scores.low is None
    assert scores.p_values is None
    assert not scores.harmful.any()
    assert not scores.helpful.any()
    for rule, option in (("harmful", {}), ("bottom", {"k": 2}), ("threshold", {"threshold": 0.0})):
        with raises("rule.scores_for_looking", "shapley"):
            scores.mask(rule, **option)
    assert all("does not cover its bias" in tip for tip in score_tips(scores))


def test_they_are_stored_and_sent_whole(scores: HeadScores, tmp_path) -> None:
    store = Store(tmp_path)
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    stored = smoothed_scores(model, store=store, **LOOK)
    read = smoothed_scores(model, store=store, **LOOK)
    sent = HeadScores.from_json(json.loads(json.dumps(stored.to_json())))
    for copy in (read, sent):
        assert_array_equal(copy.sampling_error, scores.sampling_error)
        assert copy.values_sha256() == scores.values_sha256()


def test_scores_written_before_there_were_sampling_errors_are_read(scores: HeadScores) -> None:
    written = replace(scores, sampling_error=None).to_json()
    del written["sampling_error"]
    assert HeadScores.from_json(written).sampling_error is None


def test_it_is_near_the_exact_value_of_a_model() -> None:
    """Of a smooth value there is no blur, so all that is left is slopes in the place of steps."""
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    settings = {"value": "probability", "estimand": "shapley", "size": 8}
    exact = score(model, tiny_task(), language="xx", method="exact", **settings)
    near = smoothed_scores(model, samples=4096, **settings)
    assert np.corrcoef(near.values, exact.values)[0, 1] > 0.9
