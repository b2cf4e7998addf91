"""Runs of `shapley` that name harmful heads: candidates by slopes, tested on samples of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from scipy.stats import binom
from support.expected_errors import raises
from support.sloped_game import SlopedGame, bert, shapley_scores, slope_plan_of, tallies_of
from support.table_game import last_snapshot, right, same_arrays
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import Floats, Ints
from headlab.evaluation import Evaluator
from headlab.methods import METHODS, joined, make_spec, remarks, tmab
from headlab.methods.costs import expected_forwards, require_candidates, select
from headlab.methods.run import score
from headlab.methods.sampling import SamplingPlan
from headlab.methods.table import BANDWIDTH_DRAWS, CANDIDATES_A_NAME, MOST_SLOPE_DRAWS
from headlab.pictures import holm_adjusted_p_values
from headlab.results import HeadScores, Store
from headlab.stats import benjamini_hochberg

PLAYERS = 8
EXAMPLES = 16
LEVEL = 0.95


def plan_to_name(names: int, **fields: Any) -> SamplingPlan:
    settings = {"samples": 1024, "target": None, "stop": "sign", "level": LEVEL, "span": 1.0}
    return SamplingPlan(**{**settings, **fields}, names=names)


def no_head_matters(seed: int) -> SlopedGame:
    """Every coalition is right or wrong at random, and the other way round in a second example."""
    is_right = np.random.default_rng(seed).random((EXAMPLES // 2, 2**PLAYERS)) < 0.5

    def worth(example: int, present: frozenset[int]) -> float:
        bits = sum(1 << player for player in present)
        return float(is_right[example // 2, bits] ^ (example % 2 == 1))

    return SlopedGame(PLAYERS, EXAMPLES, worth, foresight=right, slope_order=tuple(range(PLAYERS)))


HARMFUL = (2, 5)


def two_heads_harm() -> SlopedGame:
    """In half of the examples two heads each spoil the answer; the others help or do nothing."""

    def worth(example: int, present: frozenset[int]) -> float:
        if example < EXAMPLES // 4:
            return float(2 not in present)
        if example < EXAMPLES // 2:
            return float(5 not in present)
        return float(example % PLAYERS in present or 0 in present)

    return SlopedGame(PLAYERS, EXAMPLES, worth, foresight=right, slope_order=tuple(range(PLAYERS)))


def named_by(tally: joined.JoinedTally) -> Ints:
    return np.flatnonzero(tally.samples.named())


def test_planted_heads_are_named_and_nothing_else_is_sampled() -> None:
    tallies = tallies_of(two_heads_harm(), plan_to_name(2), "shapley")
    last = tallies[-1]
    assert set(named_by(last)) == set(HARMFUL)
    assert last.samples.is_finished
    assert last.samples.draws < 1024  # it ends once they are named
    is_candidate = last.samples.counts.sum(axis=0) > 0
    assert is_candidate.sum() == CANDIDATES_A_NAME * 2
    assert is_candidate[list(HARMFUL)].all()
    outcome = last.outcome()
    assert_array_equal(outcome.samples > 0, is_candidate)
    assert (outcome.low[~is_candidate] == -1).all()
    assert (outcome.high[~is_candidate] == 1).all()
    assert outcome.p_values[~is_candidate] == pytest.approx(1)
    assert (outcome.high[list(HARMFUL)] < 0).all()
    truth = reference.full_shapley(two_heads_harm().mean, PLAYERS)
    assert (np.array(truth)[list(HARMFUL)] < 0).all()


def test_candidates_are_chosen_before_the_first_sample_by_all_slopes() -> None:
    tallies = tallies_of(two_heads_harm(), plan_to_name(2), "shapley")
    before = [tally for tally in tallies if not tally.samples.draws]
    assert all(tally.slopes.draws == MOST_SLOPE_DRAWS for tally in tallies if tally.samples.draws)
    chosen = before[-1].samples.active
    assert chosen.sum() == 4
    lowest = np.argsort(before[-1].slopes.mean_slopes(), kind="stable")[:4]
    assert set(np.flatnonzero(chosen)) == set(lowest)


def test_heads_that_do_nothing_are_named_no_more_often_than_may_be() -> None:
    runs_with_names = 0
    runs = 100
    for seed in range(runs):
        game = no_head_matters(seed)
        assert (game.table.mean(axis=0) == 0.5).all()  # so every head's value is 0
        last = tallies_of(game, plan_to_name(2, samples=256), "shapley", seed=seed)[-1]
        runs_with_names += bool(named_by(last).size)
    # So few that runs of which 5 % name a head would have more: at most 1 of 100.
    assert binom.cdf(runs_with_names, runs, 0.05) < 0.05


@pytest.mark.parametrize("target", [None, 0.3])
def test_a_run_that_goes_on_from_any_snapshot_names_the_same(target: float | None) -> None:
    plan = plan_to_name(1, target=target)
    tallies = tallies_of(two_heads_harm(), plan, "shapley")
    options = METHODS["shapley"].resolve(
        {"estimand": "shapley", "samples": 1024, "target": target, "names": 1}
    )
    for tally in tallies[:: max(1, len(tallies) // 8)]:
        restored = joined.restore(tally.arrays(), options, PLAYERS, 1)
        assert restored.samples.plan == plan
        later = joined.estimate(
            two_heads_harm(), plan, slope_plan_of("shapley"), seed=0, saved=restored
        )
        last = last_snapshot([restored, *later])
        assert same_arrays(last.arrays(), tallies[-1].arrays())


@pytest.mark.parametrize("target", [None, 0.3])
def test_progress_counts_names_and_the_samples_of_candidates(target: float | None) -> None:
    tallies = tallies_of(two_heads_harm(), plan_to_name(2, target=target), "shapley")
    first = next(tally for tally in tallies if tally.samples.draws).progress()
    assert first.note == "samples; 0 of 2 named, 4 candidates"
    assert first.total == 4 * 1024  # at most; no width ends the run
    last = tallies[-1].progress()
    assert last.note == "samples; 2 of 2 named, 4 candidates"
    assert last.done == last.total


def test_a_forecast_is_of_every_sample_of_the_candidates() -> None:
    method = METHODS["shapley"]
    for target in (None, 0.05):
        options = method.resolve({"names": 3, "samples": 100, "target": target})
        forwards, basis = expected_forwards(method, options, 144, 50, [])
        screening = method.costs.screening
        assert screening is not None
        gains = np.ceil(screening.computed_with_target * 100 * 6) + 100
        assert forwards == gains + MOST_SLOPE_DRAWS + 2 * 50 + BANDWIDTH_DRAWS
        assert basis == "every sample of 6 candidates is drawn at most"


def test_no_candidate_is_done_because_its_interval_is_narrow() -> None:
    last = tallies_of(no_head_matters(3), plan_to_name(2, target=0.5, samples=256), "shapley")[-1]
    low, high = last.samples.interval()
    is_candidate = last.samples.counts.sum(axis=0) > 0
    assert ((high - low)[is_candidate] / 2 <= 0.5).all()
    assert last.samples.draws == 256


# Through the store, on a model.


def scores_of_candidates(p_values: Floats, samples: Ints) -> HeadScores:
    """The scores of a run that sampled some heads alone."""
    scores = shapley_scores(bert(), samples=16)
    values = np.full(scores.grid.size, -0.1)
    is_sampled = samples > 0
    method = {**scores.spec["method"]["options"], "names": 2}
    spec = {**scores.spec, "method": {**scores.spec["method"], "options": method}}
    return HeadScores(
        grid=scores.grid,
        language="xx",
        method="shapley",
        values=values,
        estimand=scores.estimand,
        unit="accuracy",
        example_forwards=1,
        seconds=1.0,
        low=np.where(is_sampled, -0.2, -1.0),
        high=np.where(is_sampled, -0.01, 1.0),
        samples=samples,
        p_values=np.where(is_sampled, p_values, 1.0),
        spec=spec,
        signed=True,
    )


def test_corrections_count_candidates_alone() -> None:
    samples = np.array([64] * 4 + [0] * 8)
    p_values = np.array([0.01, 0.012, 0.2, 0.9] + [1.0] * 8)
    scores = scores_of_candidates(p_values, samples)
    assert_array_equal(scores.tested, samples > 0)
    assert scores.mask(correction="holm").removed == scores.mask(correction="bh").removed
    assert len(scores.mask(correction="holm").removed) == 2  # 4 · 0.01 and 3 · 0.012
    adjusted = holm_adjusted_p_values({"xx": scores})["xx"]
    assert adjusted[:2] == pytest.approx([0.04, 0.04])
    assert (adjusted[4:] == 1).all()
    assert "4 of 12 heads" in remarks([scores])[-1]
    assert (benjamini_hochberg(p_values) > 0.05).all()  # over all heads nothing would be left


def test_names_are_part_of_a_runs_key_and_other_results_are_shown_before(tmp_path: Path) -> None:
    model = bert()
    method = METHODS["shapley"]
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 8)
    without = make_spec(evaluator.dataset, method, method.resolve({}), 0, "zero")
    assert "names" not in without.method.options
    settings = {"language": "xx", "size": 16, "samples": 16, "store": Store(tmp_path)}
    named = score(model, tiny_task(), **settings, names=2)
    assert named.spec.method.options["names"] == 2
    assert int(named.tested.sum()) == 4
    assert any("candidates" in clause for clause in remarks([named]))
    whole = score(model, tiny_task(), **settings)
    assert whole.tested.all()
    results = Store(tmp_path).scan().results
    assert select(results, ["xx"]).results["xx"].record.spec == whole.spec
    again = score(model, tiny_task(), **settings, names=2)
    assert again.seconds == named.seconds  # read, not computed


def test_heads_are_not_named_where_candidates_cannot_be_chosen() -> None:
    model = bert()
    with raises("method.names_too_many", "names=7", "14 candidates", "12 heads"):
        shapley_scores(model, names=7)
    with raises("method.names_need_anytime", "planned"):
        shapley_scores(model, names=2, interval="planned")
    decoder = tiny_model("gpt2", tokenizer=tiny_tokenizer())
    with raises("method.names_need_slopes", "decoder"):
        shapley_scores(decoder, names=2)
    require_candidates({}, decoder.grid)  # names none


def test_screens_weigh_as_with_a_target() -> None:
    assert tmab.max_halvings(plan_to_name(2)) == tmab.max_halvings(
        SamplingPlan(8, 0.1, "sign", LEVEL, 1.0)
    )
