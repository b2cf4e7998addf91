"""`shapley` joins samples with slopes: what it takes, in which order, and when it does without."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.sloped_game import (
    EXAMPLES,
    PLAYERS,
    bert,
    shapley_scores,
    slope_plan_of,
    sloped_game,
    tallies_of,
)
from support.table_game import last_snapshot, same_arrays
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.without_gradient import forbid_gradients

from headlab.core import Floats, HeadlabError, SlopeUse
from headlab.dashboard.panels.masks.suggestion import pooled_scores
from headlab.evaluation import Evaluator
from headlab.methods import METHODS, joined, make_spec, tmab
from headlab.methods.game import Query
from headlab.methods.joined import DISAGREE, IS_DECODER
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score, scores_so_far, seconds_per_forward
from headlab.methods.sampling import SamplingPlan
from headlab.methods.table import MOST_SLOPE_DRAWS
from headlab.pictures import score_tips
from headlab.results import HeadScores, Store, contrast, slope_notes
from headlab.studies.agreement import rank_agreement_of
from headlab.studies.heads import claimed_signs, in_every_top
from headlab.studies.methods import mean_rho, overlap_records

ESTIMANDS = ("shapley", "shapley-top50")


def plan_of(samples: int = 128, target: float | None = None, span: float = 1.0) -> SamplingPlan:
    return SamplingPlan(samples, target, "width", 0.95, span)


# What is taken, and in which order.


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_samples_are_those_without_slopes_and_so_is_all_that_rests_on_them(estimand: str) -> None:
    plan = plan_of(samples=400, target=0.2)
    joined_tally = tallies_of(sloped_game(), plan, estimand)[-1]
    alone = last_snapshot(tmab.estimate(sloped_game(), plan, seed=0, estimand=estimand))
    assert same_arrays(joined_tally.samples.arrays(), alone.arrays())
    outcome = joined_tally.outcome()
    outcome_alone = alone.outcome()
    assert_array_equal(outcome.sample_means, outcome_alone.values)
    for name in ("low", "high", "samples", "p_values", "halves"):
        assert_array_equal(getattr(outcome, name), getattr(outcome_alone, name))
    assert not np.array_equal(outcome.values, outcome_alone.values)


def test_slopes_come_first_then_three_for_each_draw_then_none() -> None:
    tallies = tallies_of(sloped_game(), plan_of(samples=400))
    draws = {(tally.samples.draws, tally.slopes.draws) for tally in tallies}
    slopes_before = {}
    for tally in tallies:
        slopes_before[tally.samples.draws] = tally.slopes.draws
    assert slopes_before[0] == 256
    assert max(slope_draws for _, slope_draws in draws) == MOST_SLOPE_DRAWS
    for sample_draws, slope_draws in draws:
        updated_at = tmab.last_update(sample_draws, EXAMPLES)
        # Slopes that are due come in parts before the next sample.
        assert slope_draws <= min(MOST_SLOPE_DRAWS, 256 + 3 * updated_at)
    assert tallies[-1].slopes.draws == MOST_SLOPE_DRAWS


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_a_run_that_goes_on_from_any_snapshot_gives_the_same_bits(estimand: str) -> None:
    plan = plan_of(samples=100)
    tallies = tallies_of(sloped_game(), plan, estimand)
    options = METHODS["shapley"].resolve({"estimand": estimand, "samples": 100, "target": None})
    for tally in tallies:
        restored = joined.restore(tally.arrays(), options, PLAYERS, 1)
        assert same_arrays(restored.arrays(), tally.arrays()) or not tally.samples.draws
        later = joined.estimate(
            sloped_game(), plan, slope_plan_of(estimand), seed=0, saved=restored
        )
        last = last_snapshot([restored, *later])
        assert same_arrays(last.arrays(), tallies[-1].arrays())
        assert_array_equal(last.outcome().values, tallies[-1].outcome().values)


def test_a_checkpoint_of_the_version_before_goes_on_with_slopes() -> None:
    plan = plan_of(samples=100)
    whole = tallies_of(sloped_game(), plan)[-1]
    early = next(iter(tmab.estimate(sloped_game(), plan, seed=0, estimand="shapley")))
    options = METHODS["shapley"].resolve({"estimand": "shapley", "samples": 100, "target": None})
    restored = joined.restore(early.arrays(), options, PLAYERS, 1)
    later = tallies_of(sloped_game(), plan, saved=restored)
    assert same_arrays(later[-1].arrays(), whole.arrays())


# The value.


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_with_right_slopes_it_is_nearer_the_truth_than_the_samples(estimand: str) -> None:
    enumerate_orders = {
        "shapley": reference.full_shapley,
        "shapley-top50": reference.top_half_shapley,
    }[estimand]
    truth = enumerate_orders(sloped_game().mean, PLAYERS)
    joined_errors = []
    sample_errors = []
    for seed in range(8):
        outcome = tallies_of(sloped_game(), plan_of(samples=64), estimand, seed=seed)[-1].outcome()
        joined_errors.append(((outcome.values - truth) ** 2).mean())
        sample_errors.append(((outcome.sample_means - truth) ** 2).mean())
        assert outcome.slopes is not None
        assert 0 < outcome.slopes.share < 1
    assert np.mean(joined_errors) < 0.8 * np.mean(sample_errors)


@pytest.mark.parametrize(
    "fields",
    [{"slope_order": (4, 3, 2, 1, 0)}, {"slope_factor": 0.3}, {"slope_factor": 3.0}],
    ids=["scrambled", "flat", "steep"],
)
def test_with_wrong_slopes_the_samples_prevail(fields: dict[str, Any]) -> None:
    truth = reference.full_shapley(sloped_game().mean, PLAYERS)
    outcome = tallies_of(sloped_game(**fields), plan_of(samples=4096))[-1].outcome()
    assert_allclose(outcome.values, outcome.sample_means, atol=0.01)
    assert_allclose(outcome.values, truth, atol=0.05)


def test_a_value_lies_in_its_interval_in_the_unit_of_the_value() -> None:
    span = 7.0
    game = sloped_game(span=span, slope_order=(4, 3, 2, 1, 0))
    for tally in tallies_of(game, plan_of(samples=600, span=span)):
        outcome = tally.outcome()
        assert outcome.low is not None
        assert outcome.high is not None
        assert (outcome.low <= outcome.values).all()
        assert (outcome.values <= outcome.high).all()
    alone = tallies_of(sloped_game(slope_order=(4, 3, 2, 1, 0)), plan_of(samples=600))[-1]
    assert outcome.sample_means == pytest.approx(span * alone.outcome().sample_means)
    assert outcome.values == pytest.approx(span * alone.outcome().values)


def test_before_the_first_sample_it_is_that_of_the_slopes_and_decides_nothing() -> None:
    outcome = tallies_of(sloped_game(), plan_of())[0].outcome()
    truth = reference.full_shapley(sloped_game().mean, PLAYERS)
    assert_allclose(outcome.values, truth, atol=0.1)
    assert outcome.slopes == SlopeUse(128, 1.0, "")
    assert (outcome.samples == 0).all()
    assert (outcome.low == -1).all()
    assert (outcome.high == 1).all()
    assert_allclose(outcome.p_values, 1)


def test_the_variance_of_a_mean_of_samples_is_what_it_is_over_seeds() -> None:
    means = []
    foreseen = []
    for seed in range(200):
        tally = last_snapshot(
            tmab.estimate(sloped_game(), plan_of(samples=256), seed=seed, estimand="shapley")
        )
        means.append(tally.mean(tally.counts))
        foreseen.append(joined.variances_of_means(tally))
    observed = np.var(means, axis=0)
    # Balanced cycles take out what examples differ by, and the mean's square is counted in.
    ratios = np.mean(foreseen, axis=0) / observed
    assert (ratios > 0.8).all()
    assert (ratios < 3).all()


# Without slopes.


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"margin_spread": 0.0}, "method.margins_constant"),
        ({"margin_spread": np.inf}, "method.margins_not_finite"),
        ({"slope_factor": np.nan}, "method.slopes_not_finite"),
        ({"slope_factor": 1e9}, "method.slopes_not_finite"),
    ],
)
def test_where_there_are_no_slopes_the_value_is_the_mean_of_samples_and_says_why(
    fields: dict[str, Any], reason: str
) -> None:
    tallies = tallies_of(sloped_game(**fields), plan_of())
    alone = last_snapshot(tmab.estimate(sloped_game(), plan_of(), seed=0, estimand="shapley"))
    outcome = tallies[-1].outcome()
    assert_array_equal(outcome.values, alone.outcome().values)
    assert outcome.sample_means is None
    assert outcome.slopes == SlopeUse(0, 0.0, joined.WHY_NO_SLOPES[reason])
    options = METHODS["shapley"].resolve({"estimand": "shapley", "samples": 128, "target": None})
    restored = joined.restore(tallies[0].arrays(), options, PLAYERS, 1)
    later = tallies_of(sloped_game(**fields), plan_of(), saved=restored)
    assert same_arrays(later[-1].arrays(), tallies[-1].arrays())


@pytest.mark.parametrize("factor", [-1.0, 0.0, 1e-3])
def test_slopes_that_do_not_foresee_what_heads_are_worth_are_not_used(factor: float) -> None:
    outcome = tallies_of(sloped_game(slope_factor=factor), plan_of())[-1].outcome()
    alone = last_snapshot(tmab.estimate(sloped_game(), plan_of(), seed=0, estimand="shapley"))
    assert_array_equal(outcome.values, alone.outcome().values)
    assert outcome.slopes == SlopeUse(0, 0.0, DISAGREE)


def test_another_error_is_not_taken_for_missing_slopes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> Floats:
        raise HeadlabError("the memory is full", code="memory.full")

    game = sloped_game()
    monkeypatch.setattr(game, "margins", fail)
    with raises("memory.full"):
        tallies_of(game, plan_of())


# Of models.


@pytest.fixture
def any_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes may add up to anything: those of an untrained model do."""
    monkeypatch.setattr("headlab.methods.smoothed.LIMITS_OF_SCALE", (-np.inf, np.inf))


@pytest.mark.parametrize("family", ["gpt2", "marian"])
def test_a_model_with_a_decoder_has_no_slopes(family: str) -> None:
    assert joined.why_no_slopes(tiny_model(family).grid) == IS_DECODER
    assert joined.why_no_slopes(bert().grid) == ""


def test_a_decoder_is_scored_by_samples_alone() -> None:
    scores = shapley_scores(tiny_model("gpt2", tokenizer=tiny_tokenizer()))
    assert scores.slopes == SlopeUse(0, 0.0, IS_DECODER)
    assert scores.sample_means is None
    (note,) = slope_notes([scores])
    assert note == f"xx: values are means of samples alone, because {IS_DECODER}."


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_a_model_without_gradients_is_scored_by_samples_alone(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gains are not foreseen either: whether its layers can be resumed or not."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    forbid_gradients(monkeypatch, model.module)
    scores = shapley_scores(model, samples=512, size=8, estimand="shapley", target=None)
    assert scores.slopes == SlopeUse(0, 0.0, joined.WHY_NO_SLOPES["model.gradient_missing"])
    monkeypatch.undo()
    exact = score(model, tiny_task(), language="xx", method="exact", size=8, estimand="shapley")
    assert scores.low is not None
    assert scores.high is not None
    assert (scores.low <= exact.values).all()
    assert (exact.values <= scores.high).all()


@pytest.mark.usefixtures("any_scale")
@pytest.mark.parametrize("value", ["accuracy", "probability"])
def test_one_example_and_one_class_are_scored(value: str) -> None:
    scores = shapley_scores(bert(), size=1, value=value)
    assert np.isfinite(scores.values).all()
    assert scores.slopes is not None


@pytest.mark.usefixtures("any_scale")
def test_scores_are_stored_and_sent_whole(tmp_path: Path) -> None:
    scores = shapley_scores(bert(), value="probability")
    assert scores.sample_means is not None
    assert scores.slopes is not None
    assert scores.slopes.draws > 256
    stored = shapley_scores(bert(), value="probability", store=Store(tmp_path))
    read = shapley_scores(bert(), value="probability", store=Store(tmp_path))
    sent = HeadScores.from_json(json.loads(json.dumps(stored.to_json())))
    for copy in (read, sent):
        assert copy.slopes == scores.slopes
        assert_array_equal(copy.sample_means, scores.sample_means)
        assert copy.values_sha256() == scores.values_sha256()


def test_scores_of_the_version_before_are_read() -> None:
    written = shapley_scores(tiny_model("gpt2", tokenizer=tiny_tokenizer())).to_json()
    del written["slopes"]
    del written["sample_means"]
    scores = HeadScores.from_json(written)
    assert scores.slopes is None
    assert scores.sample_means is None
    assert slope_notes([scores]) == ()


@pytest.mark.parametrize(
    "slopes", ["many", {}, {"draws": 1.5, "share": 0.5, "why_none": ""}, {"draws": 1, "share": 2}]
)
def test_a_record_of_slopes_that_cannot_be_is_refused(slopes: object) -> None:
    with raises("result.slopes_invalid"):
        SlopeUse.from_json(slopes)


@pytest.mark.usefixtures("any_scale")
def test_a_look_at_a_run_before_its_first_sample_shows_the_slopes(tmp_path: Path) -> None:
    """The first picture comes after seconds, and not with the first sample."""

    class Stopped(Exception):
        pass

    def stop_after_slopes(progress: Any) -> None:
        if "slopes come first" in progress.note:
            raise Stopped

    model = bert()
    store = Store(tmp_path)
    with pytest.raises(Stopped):
        shapley_scores(model, store=store, on_progress=stop_after_slopes)
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 16)
    options = METHODS["shapley"].resolve({"samples": 32})
    spec = make_spec(evaluator.dataset, METHODS["shapley"], options, 0, "zero")
    scores = scores_so_far(store.run(spec), model.grid)
    assert scores is not None
    assert scores.slopes == SlopeUse(128, 1.0, "")
    assert scores.values.any()
    assert not scores.helpful.any()
    assert not scores.harmful.any()


# What rests on samples alone.


@pytest.mark.usefixtures("any_scale")
def test_tests_and_differences_rest_on_samples_and_rankings_on_values() -> None:
    scores = shapley_scores(bert(), value="probability", estimand="shapley")
    assert scores.sample_means is not None
    other = replace(scores, sample_means=-scores.sample_means)
    comparison = contrast(scores, other)
    assert_array_equal(comparison.difference, 2 * scores.sample_means)
    assert_array_equal(comparison.turned, scores.sample_means != 0)
    assert_array_equal(comparison.ranks[0], scores.tested_ranks)
    order = np.argsort(-scores.values, kind="stable")
    assert_array_equal(scores.ranks[order], np.arange(1, scores.grid.size + 1))
    lowest = scores.mask("bottom", k=2)
    assert set(np.flatnonzero(~lowest.kept)) == set(order[-2:])
    notes = slope_notes([scores])
    assert scores.slopes is not None
    assert notes[0].startswith(
        f"On average {scores.slopes.share:.0%} of a value rests on gradients"
    )


def made_up_scores(language: str, **fields: Any) -> HeadScores:
    """Scores of a head grid of which all heads have the same value."""
    grid = bert().grid
    values = np.full(grid.size, 0.01)
    settings = {"estimand": "shapley", "unit": "accuracy", "example_forwards": 1, "seconds": 1.0}
    return HeadScores(grid, language, "shapley", values, **settings, **fields)


def test_of_several_languages_it_is_said_which_lean_on_slopes() -> None:
    means = np.zeros(bert().grid.size)
    samples = np.full(bert().grid.size, 64)
    english = made_up_scores(
        "en", sample_means=means, slopes=SlopeUse(256, 0.5, ""), samples=samples
    )
    german = made_up_scores(
        "de", sample_means=means, slopes=SlopeUse(256, 0.25, ""), samples=samples
    )
    finnish = made_up_scores("fi", slopes=SlopeUse(0, 0.0, DISAGREE))
    thai = made_up_scores("th")  # of an earlier version
    (note,) = slope_notes([english, german])
    assert note.startswith("On average 25% to 50% of a value rests on gradients")
    shared, no_slopes, earlier = slope_notes([english, finnish, thai])
    assert shared.startswith("en: on average 50% of a value")
    assert no_slopes == f"fi: values are means of samples alone, because {DISAGREE}."
    assert earlier == (
        "th: values are means of samples alone, because they were made without slopes."
    )
    assert slope_notes([thai]) == ()
    only_slopes = replace(english, samples=np.zeros_like(samples))
    (so_far,) = slope_notes([only_slopes])
    assert so_far.startswith("So far the values are slopes")
    assert all("samples alone" not in tip for tip in score_tips(only_slopes))
    assert all("0.00 by samples alone" in tip for tip in score_tips(english))


def test_what_is_held_against_chance_goes_by_samples_alone() -> None:
    """Values that lean on one gradient agree though the heads' samples do not."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=bert().grid.size)
    means = [rng.normal(size=len(values)) for _ in range(2)]
    joined_scores = {
        language: replace(made_up_scores(language), values=values, sample_means=mean)
        for language, mean in zip(("de", "en"), means, strict=True)
    }
    samples_alone = {
        language: replace(scores, values=scores.tested_values, sample_means=None)
        for language, scores in joined_scores.items()
    }
    rho = rank_agreement_of(joined_scores).statistics.rho
    assert_array_equal(rho.value, rank_agreement_of(samples_alone).statistics.rho.value)
    assert rho.value[0, 1] < 0.9
    assert_array_equal(in_every_top(joined_scores, 3), in_every_top(samples_alone, 3))
    by_method = {"xx": {"first": joined_scores["de"], "second": joined_scores["en"]}}
    by_method_alone = {"xx": {"first": samples_alone["de"], "second": samples_alone["en"]}}
    assert overlap_records(by_method, 3) == overlap_records(by_method_alone, 3)
    mean = mean_rho(by_method, 0, draws=50)
    assert_array_equal(mean.value, mean_rho(by_method_alone, 0, draws=50).value)
    pooled = pooled_scores(joined_scores, "all")
    assert pooled is not None
    assert_allclose(pooled.tested_values, np.mean(means, axis=0))
    pooled_alone = pooled_scores(samples_alone, "all")
    assert pooled_alone is not None
    assert pooled_alone.sample_means is None


def test_the_pace_of_a_forecast_is_that_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes come first and take whole passes; the samples that follow take half as long."""
    questions = []

    def noting(asks: Iterable[Query]) -> Iterator[Query]:
        for ask in asks:
            questions.append(ask.question)
            yield ask

    answers = ModelGame.answers
    monkeypatch.setattr(ModelGame, "answers", lambda game, asks: answers(game, noting(asks)))
    evaluator = Evaluator(bert(), tiny_task(), "xx", "dev", 16)
    assert seconds_per_forward(evaluator, "shapley", {"samples": 16}) > 0
    assert set(questions) <= {"screened", "marginals"}


def test_a_correction_tests_the_heads_whose_samples_harm() -> None:
    """Values that lean to the other side change nothing about who is tested."""
    heads = bert().grid.size
    harmful_count = 3
    means = np.full(heads, 0.01)
    means[:harmful_count] = -0.01
    p_values = np.full(heads, 0.9)
    p_values[:harmful_count] = 1e-6
    scores = made_up_scores(
        "xx", sample_means=means, low=means - 0.005, high=means + 0.005, p_values=p_values
    )
    assert (~scores.mask("harmful", correction="bh").kept).sum() == harmful_count
    harms = claimed_signs({"xx": scores})["Benjamini–Hochberg"].harms
    assert harms.sum() == harmful_count
