"""Intervals hold where sampling stops: many distributions and tiny models, played by the estimator itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from scipy.stats import binom
from table_game import TableGame
from tiny import tiny_model
from tiny_task import tiny_task, tiny_tokenizer

from benchmarks.intervals import DISTRIBUTIONS, Gains, peeking, ternary
from headlab.evaluator import Evaluator
from headlab.methods import exact
from headlab.methods.game import Ask, in_turn
from headlab.methods.model_game import ModelGame
from headlab.methods.tally import Plan, Tally
from headlab.methods.tmab import ESTIMANDS, FULL, TOP50, estimate
from headlab.stats import Interval, benjamini_hochberg, holm, sample_mean

LEVEL = 0.95
RUNS, EXAMPLES = 200, 64
PLAYED = (
    *DISTRIBUTIONS,
    ternary(0.5, 0.5), ternary(0.3, 0.3), ternary(0.45, 0.55), ternary(1, 0), ternary(0.001, 0), ternary(0.0005, 0.002),
    ternary(0.3, 0.3, True), Gains("any number", ((1, -1, 1),), 8), Gains("near one", ((1, 0.6, 1),), 8),
)  # fmt: skip


def too_many(missed: int, tries: int, rate: float = 1 - LEVEL) -> bool:
    """More misses than chance allows at this rate: it would happen once in 10,000 times."""
    return bool(missed > binom.ppf(1 - 1e-4, tries, rate))


def last(tallies: object) -> Tally:
    *_, found = tallies  # type: ignore[misc] # an iterator
    return found


def missed(tally: Tally, truth: np.ndarray) -> np.ndarray:
    outcome = tally.outcome()
    return (outcome.low > truth + 1e-12) | (truth - 1e-12 > outcome.high)


class DrawnGame:
    """Every player is a run of its own: its gains are drawn anew, whoever is there.

    uneven: a few examples have most of the gains, as in a real task; else all examples are alike, which
    leaves balanced cycles nothing to balance.
    """

    span, round, weights = 1.0, EXAMPLES, None
    players, examples = RUNS, EXAMPLES

    def __init__(self, gains: Gains, seed: int, *, uneven: bool) -> None:
        self.steps, self.rng = gains.steps, np.random.default_rng([seed, 3])
        shares, low, high = (np.array(column) for column in zip(*gains.parts, strict=True))
        weight = self.rng.gamma(0.3 if uneven else 1e9, size=(EXAMPLES, len(shares)))
        chance = shares * weight / weight.mean(axis=0)
        self.chance = chance / np.maximum(chance.sum(axis=1, keepdims=True), 1)  # of one draw, together at most 1
        self.low, self.high = np.append(low, 0.0), np.append(high, 0.0)
        self.truth = float((self.chance @ ((low + high) / 2)).mean())

    @property
    def lengths(self) -> np.ndarray:
        return np.ones(self.examples, np.int64)

    def answers(self, asks: Iterable[Ask]) -> Iterator[np.ndarray]:
        return in_turn(self, asks)

    def marginals(self, kept: np.ndarray, wanted: np.ndarray, examples: np.ndarray) -> np.ndarray:
        del kept
        drawn = self.rng.random(wanted.shape)
        at = sum((drawn >= edge[:, None]).astype(np.int64) for edge in self.chance.cumsum(axis=1)[examples].T)
        return np.where(wanted, self.low[at] + (self.high - self.low)[at] * self.rng.random(wanted.shape), 0)


def played(gains: Gains, seed: int, *, uneven: bool = False) -> tuple[np.ndarray, Tally]:
    """Which of 200 runs missed the truth where they stopped: at whole cycles, with a decided sign or ±0.04."""
    game = DrawnGame(gains, seed, uneven=uneven)
    plan = Plan(16 * EXAMPLES, 0.04, "sign", LEVEL, 1.0)
    tally = last(estimate(game, plan, seed=seed, estimand=FULL if gains.two else TOP50))
    return missed(tally, np.full(RUNS, game.truth)), tally


@cache
def played_all() -> dict[str, np.ndarray]:
    return {
        f"{gains.name}, {uneven}": played(gains, number, uneven=uneven)[0]
        for number, gains in enumerate(PLAYED)
        for uneven in (False, True)
    }


@pytest.mark.parametrize("uneven", [False, True], ids=["alike", "uneven"])
@pytest.mark.parametrize("gains", PLAYED, ids=lambda g: g.name)
def test_coverage_where_the_estimator_stops(gains: Gains, uneven: bool) -> None:
    assert not too_many(played_all()[f"{gains.name}, {uneven}"].sum(), RUNS)


def test_coverage_over_all_distributions(record_testsuite_property: Callable[[str, object], None]) -> None:
    assert len(played_all()) == 2 * len(PLAYED) >= 40
    misses = np.concatenate(list(played_all().values()))
    record_testsuite_property("share missed, all distributions", float(misses.mean()))
    assert not too_many(misses.sum(), len(misses))


def test_runs_stop_at_different_cycles_and_only_there() -> None:
    """Otherwise the tests above would be of a fixed number of draws."""
    _, tally = played(ternary(0.06, 0.02), 1)
    draws = tally.counts.sum(axis=0)
    assert (draws % EXAMPLES == 0).all()
    assert len(np.unique(draws)) > 2


def normal_interval(
    support: np.ndarray, counts: np.ndarray, level: float = LEVEL, errors: float = 1.959964
) -> Interval:
    """So many standard errors: right at one fixed number of draws, if large; wrong when looked at again and again."""
    assert level == LEVEL
    mean = sample_mean(support, counts)
    draws = np.maximum(counts.sum(axis=0), 1)
    width = errors * np.sqrt(np.maximum(support**2 @ counts / draws - mean**2, 0) / draws)
    return Interval(mean - width, mean + width)


@pytest.mark.parametrize("gains", [ternary(0.5, 0.5), ternary(0.3, 0.3), ternary(0.2, 0.2)], ids=lambda g: g.name)
def test_the_check_finds_an_interval_that_does_not_pay_for_looking(
    gains: Gains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.tally.betting_interval", normal_interval)
    assert too_many(played(gains, 5)[0].sum(), RUNS)


def test_equation_4_does_not_hold_when_looked_at_again_and_again() -> None:
    runs = 1000
    called = peeking(runs, 1)
    assert too_many(round(called["Equation 4, range 1"] * runs), runs)
    assert not too_many(round(called["headlab"] * runs), runs)


TINY = ("bert", "gpt2", "distilbert")
SEEDS = 16


@cache
def model_game(family: str) -> ModelGame:
    """A tiny model asked for its own answers: heads then matter; random labels leave hardly a sign to be found."""
    model, task = tiny_model(family, torch.float32, tokenizer=tiny_tokenizer()), tiny_task()
    first = Evaluator(model, task, "xx", "dev", 24)
    *_, found = first.stream()
    own = [replace(example, label=int(label)) for example, label in zip(first.examples, found.predicted, strict=True)]
    return ModelGame(Evaluator(model, replace(task, read=lambda *_: own), "xx", "dev", 24), tokens=4096)


@cache
def tabulated(family: str) -> TableGame:
    """All 4,096 coalitions of a tiny model's 12 heads, on 24 examples."""
    game = model_game(family)
    kept = exact.members(np.arange(1 << game.players), game.players)
    values = game.values(np.repeat(kept, game.examples, axis=0), np.tile(np.arange(game.examples), len(kept)))
    table = values.reshape(len(kept), -1)
    return TableGame(
        game.players, game.examples, lambda e, present: table[sum(1 << p for p in present), e], round=game.examples
    )


def truth_of(game: TableGame, estimand: str) -> np.ndarray:
    return exact.shapley(game.table.mean(axis=0), game.players, estimand)


PLAN = Plan(20 * 24, 0.1, "sign", LEVEL, 1.0)


@cache
def tallies(family: str, estimand: str) -> list[Tally]:
    """Where the default method stops on a tiny model, for several seeds."""
    game = tabulated(family)
    return [last(estimate(game, PLAN, seed=seed, estimand=estimand)) for seed in range(SEEDS)]


CASES = [(family, estimand) for family in TINY for estimand in ESTIMANDS]


def test_the_table_is_the_model(rng: np.random.Generator) -> None:
    """Gains read from the table equal the model's own; so the games below are real."""
    kept, wanted, examples = rng.random((6, 12)) < 0.6, rng.random((6, 12)) < 0.5, rng.integers(24, size=6)
    table = tabulated("gpt2").marginals(kept, wanted, examples)
    assert np.array_equal(table, model_game("gpt2").marginals(kept, wanted, examples))
    assert (table != 0).any()


@pytest.mark.parametrize(("family", "estimand"), CASES)
def test_coverage_on_a_real_tiny_model(
    family: str, estimand: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Every head's interval against the exact value, where the default method stops it."""
    truth = truth_of(tabulated(family), estimand)
    assert (np.abs(truth) > 0.02).any()
    misses = np.stack([missed(tally, truth) for tally in tallies(family, estimand)])
    record_testsuite_property("share missed", float(misses.mean()))
    record_testsuite_property("runs with all 12 heads covered", float((~misses.any(axis=1)).mean()))
    assert not too_many(misses.sum(), misses.size)


def test_the_check_on_a_tiny_model_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.methods.tally.betting_interval", partial(normal_interval, errors=1.0))
    game = tabulated("bert")
    plan = replace(PLAN, target=0.02)  # more looks before it stops
    wrong = [
        missed(last(estimate(game, plan, seed=seed, estimand=estimand)), truth_of(game, estimand))
        for estimand in ESTIMANDS
        for seed in range(SEEDS)
    ]
    assert too_many(np.sum(wrong), np.size(wrong))


def claims(correct: Callable[[np.ndarray], np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
    """Signs claimed and false signs claimed in every run of every case, both int [run]."""
    made, false = [], []
    for family, estimand in CASES:
        truth = np.sign(np.round(truth_of(tabulated(family), estimand), 12))
        for tally in tallies(family, estimand):
            outcome = tally.outcome()
            if correct is None:
                claimed = (outcome.low > 0) | (outcome.high < 0)
            else:
                claimed = correct(outcome.p_values) <= 1 - LEVEL
            made.append(claimed.sum())
            false.append((claimed & (np.sign(outcome.values) != truth)).sum())
    return np.array(made), np.array(false)


def test_joint_claims_of_12_heads(record_testsuite_property: Callable[[str, object], None]) -> None:
    """Holm: hardly a run with any false sign. Benjamini-Hochberg: few of the signs claimed are false."""
    for name, correct in (("interval", None), ("Holm", holm), ("Benjamini-Hochberg", benjamini_hochberg)):
        made, false = claims(correct)
        record_testsuite_property(f"{name}: claims a run", float(made.mean()))
        record_testsuite_property(f"{name}: false claims a run", float(false.mean()))
        record_testsuite_property(f"{name}: runs with a false claim", float((false > 0).mean()))
        assert made.sum() > 0
        if name == "Holm":
            assert not too_many((false > 0).sum(), len(false))
        if name == "Benjamini-Hochberg":
            assert (false / np.maximum(made, 1)).mean() <= 0.05 + 3.7 * np.sqrt(0.05 * 0.95 / len(false))


def test_corrections_hold_back_false_claims_of_heads_without_effect() -> None:
    """200 runs of a mean of exactly 0 are 200 heads without effect: Holm claims none of them, most of the time."""
    alone = ternary(0.05, 0.05)
    families = 12
    any_raw, any_holm = 0, 0
    for seed in range(families):
        game = DrawnGame(alone, seed, uneven=False)
        outcome = last(estimate(game, Plan(8 * EXAMPLES, None, "sign", LEVEL, 1.0), seed=seed)).outcome()
        any_raw += bool(((outcome.low > 0) | (outcome.high < 0)).any())
        any_holm += bool((holm(outcome.p_values) <= 1 - LEVEL).any())
    assert not too_many(any_holm, families)
    assert any_raw > any_holm
