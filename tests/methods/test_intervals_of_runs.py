"""Runs of `shapley` whose intervals are planned, or hold on average over the heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal
from scipy.stats import binom
from support.expected_errors import raises
from support.sloped_game import (
    EXAMPLES,
    PLAYERS,
    SlopedGame,
    bert,
    shapley_scores,
    slope_plan_of,
    sloped_game,
    tallies_of,
)
from support.table_game import last_snapshot, right, same_arrays
from support.tiny_task import tiny_task

from headlab.cli import main
from headlab.evaluation import Evaluator
from headlab.methods import METHODS, joined, make_spec, remarks, settings, tmab
from headlab.methods.costs import is_alike, select, stopped_at_sign, typical_samples
from headlab.methods.sampling import SamplingPlan
from headlab.results import (
    AVERAGE,
    INTERVALS,
    PLANNED,
    HeadScores,
    Store,
    has_planned_intervals,
    value_notes,
)
from headlab.stats import PLANNED_LOOKS, betting_interval
from headlab.studies.table import STUDIES

ESTIMANDS = ("shapley", "shapley-top50")


def plan_with(interval: str, **settings: Any) -> SamplingPlan:
    fields = {"samples": 2048, "target": 0.1, "stop": "width", "level": 0.95, "span": 1.0}
    return SamplingPlan(**{**fields, **settings}, interval=interval)


def options_with(interval: str, plan: SamplingPlan, estimand: str) -> dict[str, Any]:
    return METHODS["shapley"].resolve(
        {
            "estimand": estimand,
            "samples": plan.samples,
            "target": plan.target,
            "stop": plan.stop,
            "interval": interval,
        }
    )


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("interval", [PLANNED, AVERAGE])
def test_a_run_that_goes_on_from_any_snapshot_gives_the_same_bits(
    interval: str, estimand: str
) -> None:
    plan = plan_with(interval, stop="sign", target=0.12)
    tallies = tallies_of(sloped_game(), plan, estimand)
    options = options_with(interval, plan, estimand)
    for tally in tallies[:: max(1, len(tallies) // 8)]:
        restored = joined.restore(tally.arrays(), options, PLAYERS, 1)
        later = joined.estimate(
            sloped_game(), plan, slope_plan_of(estimand), seed=0, saved=restored
        )
        last = last_snapshot([restored, *later])
        assert same_arrays(last.arrays(), tallies[-1].arrays())
        for name in ("values", "low", "high", "p_values", "average_error"):
            assert_array_equal(getattr(last.outcome(), name), getattr(tallies[-1].outcome(), name))


def smooth_worth(example: int, present: frozenset[int]) -> float:
    """A value of many levels: small steps, and a large one for the first player in one example."""
    small = sum((0.02, 0.05, 0.01, 0.03)[player - 1] for player in present if player)
    return small + (0.6 if 0 in present and example == 3 else 0.0)


@pytest.mark.parametrize("interval", [PLANNED, AVERAGE])
def test_rounds_and_interruptions_do_not_change_a_run_of_many_levels(interval: str) -> None:
    """Made-up gains are as large as the largest that came, which grows as a run goes on."""
    plan = plan_with(interval, stop="sign", target=0.02, samples=512)

    def game_of(size: int) -> SlopedGame:
        return SlopedGame(PLAYERS, EXAMPLES, smooth_worth, steps=64, foresight=right, round=size)

    tallies = tallies_of(game_of(3), plan)
    for size in (1, 16):
        last = tallies_of(game_of(size), plan)[-1]
        assert same_arrays(last.arrays(), tallies[-1].arrays())
    options = options_with(interval, plan, "shapley")
    for tally in tallies[:: max(1, len(tallies) // 6)]:
        restored = joined.restore(tally.arrays(), options, PLAYERS, 64)
        later = joined.estimate(game_of(3), plan, slope_plan_of("shapley"), seed=0, saved=restored)
        last = last_snapshot([restored, *later])
        assert same_arrays(last.arrays(), tallies[-1].arrays())


@pytest.mark.parametrize("stop", ["width", "sign"])
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_planned_intervals_hold_the_true_values(estimand: str, stop: str) -> None:
    enumerate_orders = {
        "shapley": reference.full_shapley,
        "shapley-top50": reference.top_half_shapley,
    }[estimand]
    truth = enumerate_orders(sloped_game().mean, PLAYERS)
    misses = 0
    tries = 0
    for seed in range(60):
        plan = plan_with(PLANNED, stop=stop, target=0.06)
        tally = tallies_of(sloped_game(), plan, estimand, seed=seed)[-1]
        outcome = tally.outcome()
        assert tally.samples.looks.taken.max() <= PLANNED_LOOKS
        misses += int(((outcome.low > truth) | (outcome.high < truth)).sum())
        tries += PLAYERS
        widths = (outcome.high - outcome.low) / 2
        is_decided = (outcome.low > 0) | (outcome.high < 0)
        is_done = (widths <= 1.05 * 0.06) | (is_decided if stop == "sign" else False)
        assert is_done.all()
    assert misses <= binom.ppf(1 - 1e-4, tries, 0.05)


def test_planned_intervals_take_fewer_samples_to_a_width() -> None:
    samples = {}
    for interval in INTERVALS:
        tally = tallies_of(sloped_game(), plan_with(interval, samples=1 << 14, target=0.04))[-1]
        samples[interval] = tally.samples.counts.sum()
    assert samples[PLANNED] < 0.6 * samples["anytime"]
    assert samples[AVERAGE] < samples[PLANNED]


def test_a_planned_run_without_a_target_has_its_last_look_at_its_end() -> None:
    plan = plan_with(PLANNED, samples=200, target=None)  # not a multiple of the examples
    tallies = tallies_of(sloped_game(), plan)
    assert tallies[-1].samples.looks.is_last.all()
    assert not any(tally.samples.looks.is_last.any() for tally in tallies[:-1])
    assert tallies[-1].samples.draws == 200


def test_the_largest_weight_is_smaller_where_intervals_pay_for_it() -> None:
    largest_weights = {}
    for interval in INTERVALS:
        for target in (None, 0.1):
            plan = plan_with(interval, target=target)
            largest_weights[interval, target] = 1 << tmab.max_halvings(plan)
    assert largest_weights == {
        ("anytime", None): 64,
        ("anytime", 0.1): 4,
        (PLANNED, None): 8,
        (PLANNED, 0.1): 8,
        (AVERAGE, None): 64,
        (AVERAGE, 0.1): 8,
    }


def test_a_planned_run_that_cannot_reach_its_width_ends_with_a_wider_interval() -> None:
    outcome = tallies_of(sloped_game(), plan_with(PLANNED, samples=128, target=0.001))[-1].outcome()
    assert outcome.samples.max() == 128
    assert ((outcome.high - outcome.low) / 2 > 0.001).all()


def test_an_average_run_ends_when_its_average_error_is_small_and_marks_by_other_intervals() -> None:
    plan = plan_with(AVERAGE, stop="sign", target=0.08)
    tallies = tallies_of(sloped_game(), plan)
    last = tallies[-1]
    assert last.samples.draws % EXAMPLES == 0
    assert last.samples.draws < plan.samples
    assert last.outcome().average_error.mean() <= plan.target
    earlier = [tally for tally in tallies if 0 < tally.samples.draws < last.samples.draws]
    whole_cycles = [tally for tally in earlier if tally.samples.draws % EXAMPLES == 0]
    assert all(tally.outcome().average_error.mean() > plan.target for tally in whole_cycles)
    outcome = last.outcome()
    by_betting = betting_interval(
        last.samples.support / last.samples.reach,
        last.samples.counts,
        plan.level,
        last.samples.stakes(),
    )
    assert_array_equal(outcome.low, np.maximum(by_betting.low * last.samples.reach, -1))
    assert_array_equal(outcome.high, np.minimum(by_betting.high * last.samples.reach, 1))


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_true_values_lie_within_the_average_error_for_most_heads(estimand: str) -> None:
    enumerate_orders = {
        "shapley": reference.full_shapley,
        "shapley-top50": reference.top_half_shapley,
    }[estimand]
    truth = enumerate_orders(sloped_game().mean, PLAYERS)
    within = []
    for factor in (1.0, 0.6):
        for seed in range(40):
            game = sloped_game(slope_factor=factor)
            outcome = tallies_of(game, plan_with(AVERAGE), estimand, seed=seed)[-1].outcome()
            within.append(np.abs(outcome.values - truth) <= outcome.average_error)
    assert np.mean(within) >= 0.93


# In results, by option, on the command line.


def test_results_of_today_keep_their_keys() -> None:
    evaluator = Evaluator(bert(), tiny_task(), "xx", "dev", 16)
    method = METHODS["shapley"]
    spec = make_spec(evaluator.dataset, method, method.resolve({}), 0, "zero")
    assert "interval" not in (spec.method.options or {})
    planned = make_spec(evaluator.dataset, method, method.resolve({"interval": PLANNED}), 0, "zero")
    assert (planned.method.options or {})["interval"] == PLANNED
    assert planned.key != spec.key
    for study in STUDIES.values():
        options = study.resolve({})
        assert "interval" not in str(options.get("method_options", ""))


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_result_says_which_intervals_it_has_and_is_read_back(
    interval: str, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    given = {"store": store, "target": 0.3, "samples": 64, "interval": interval}
    scores = shapley_scores(bert(), **given)
    assert scores.average_error is not None
    again = shapley_scores(bert(), **given)
    assert_array_equal(again.average_error, scores.average_error)
    from_json = HeadScores.from_json(scores.to_json())
    assert_array_equal(from_json.average_error, scores.average_error)
    notes = " ".join(value_notes([scores]))
    assert "95\N{NO-BREAK SPACE}% of the heads" in notes
    remark = " ".join(remarks([scores]))
    assert ("approximate: they hold at a few planned looks" in remark) == (interval == PLANNED)
    assert settings(scores) == settings(shapley_scores(bert(), target=0.3, samples=64))
    options = METHODS["shapley"].resolve({"target": 0.3, "samples": 64, "interval": interval})
    assert is_alike(scores, METHODS["shapley"], options)


def test_guaranteed_intervals_stand_for_a_language_however_narrow_planned_ones_are(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    for interval in (PLANNED, "anytime"):
        shapley_scores(bert(), store=store, target=0.3, samples=64, interval=interval)
    results = store.scan().results
    assert len(results) == 2
    chosen = select(results, ["xx"]).results["xx"]
    assert not has_planned_intervals(chosen.record)


def test_a_planned_head_that_has_stopped_keeps_its_interval_whatever_comes_after() -> None:
    plan = plan_with(PLANNED, stop="sign", target=0.12, span=1.0)
    intervals: dict[int, tuple[float, float, float]] = {}
    for tally in tallies_of(sloped_game(), plan):
        outcome = tally.outcome()
        for head in np.flatnonzero(~tally.samples.active):
            numbers = (outcome.low[head], outcome.high[head], outcome.p_values[head])
            assert intervals.setdefault(int(head), numbers) == numbers
    assert len(intervals) == PLAYERS


def test_an_average_run_lets_no_head_go_by_its_sign() -> None:
    scores = shapley_scores(bert(), target=0.3, samples=64, interval=AVERAGE)
    assert not stopped_at_sign(scores).any()


def test_scores_without_average_errors_are_read_as_before() -> None:
    scores = shapley_scores(bert())
    record = scores.to_json()
    del record["average_error"]
    assert HeadScores.from_json(record).average_error is None


def test_a_narrow_target_is_foreseen_to_take_fewer_samples() -> None:
    samples = {}
    for interval in INTERVALS:
        options = METHODS["shapley"].resolve({"target": 0.01, "interval": interval})
        samples[interval] = typical_samples(options, 4)
    assert samples[AVERAGE] < samples[PLANNED] < samples["anytime"] / 2


def test_an_unknown_kind_of_interval_is_refused() -> None:
    with raises("method.option_invalid", "anytime or planned or average"):
        METHODS["shapley"].resolve({"interval": "bayes"})


def test_a_command_takes_the_kind_of_interval_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["score", "--languages", "de", "--interval", PLANNED, "-o", "interval=average"]
    assert main(words) == 2
    assert "--interval planned and -o interval=average differ" in capsys.readouterr().err
