"""Intervals hold where sampling stops: many distributions and tiny models, played by the estimator itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from scipy.stats import binom
from support.table_game import BINS, TableGame, last
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from benchmarks.intervals import DISTRIBUTIONS, Gains, peeking, ternary
from headlab.evaluation import Evaluator
from headlab.methods import exact
from headlab.methods.game import Query, in_turn
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import SamplingPlan, Tally
from headlab.methods.tmab import ALL_SIZES, ESTIMANDS, TOP50, ScreenedTally, estimate
from headlab.stats import Interval, LearnedStakes, benjamini_hochberg, holm, sample_mean

LEVEL = 0.95
RUNS = 200
EXAMPLES = 64
KINDS = ("alike", "uneven", "screened")
PLAYED = (
    *DISTRIBUTIONS,
    ternary(0.5, 0.5),
    ternary(0.3, 0.3),
    ternary(0.45, 0.55),
    ternary(1, 0),
    ternary(0.001, 0),
    ternary(0.0005, 0.002),
    ternary(0.3, 0.3, True),
    Gains("any number", ((1, -1, 1),), 8),
    Gains("near one", ((1, 0.6, 1),), 8),
)


def too_many(missed: int, tries: int, rate: float = 1 - LEVEL) -> bool:
    """More misses than chance allows at this rate: it would happen once in 10,000 times."""
    return bool(missed > binom.ppf(1 - 1e-4, tries, rate))


def missed(tally: Tally, truth: np.ndarray) -> np.ndarray:
    outcome = tally.outcome()
    return (outcome.low > truth + 1e-12) | (truth - 1e-12 > outcome.high)


class DrawnGame:
    """Every player is a run of its own: its gains are drawn anew, whoever is there.

    Args:
        kind: "uneven", a few examples have most of the gains, as in a real task; "alike", all
            examples are alike, which leaves balanced cycles nothing to balance; "screened", uneven,
            and gains are foreseen, a fifth of them wrongly.
    """

    span = 1.0
    round = EXAMPLES
    weights = None
    players = RUNS
    examples = EXAMPLES
    costs = np.ones(RUNS)

    def __init__(self, gains: Gains, seed: int, kind: str) -> None:
        uneven = kind != "alike"
        self.scale = BINS if kind == "screened" else None
        self.steps, self.rng = gains.steps, np.random.default_rng([seed, 3])
        shares, low, high = (np.array(column) for column in zip(*gains.parts, strict=True))
        weight = self.rng.gamma(0.3 if uneven else 1e9, size=(EXAMPLES, len(shares)))
        chance = shares * weight / weight.mean(axis=0)
        # of one draw, together at most 1
        self.chance = chance / np.maximum(chance.sum(axis=1, keepdims=True), 1)
        self.low, self.high = np.append(low, 0.0), np.append(high, 0.0)
        self.truth = float((self.chance @ ((low + high) / 2)).mean())

    @property
    def lengths(self) -> np.ndarray:
        return np.ones(self.examples, np.int64)

    def answers(self, asks: Iterable[Query]) -> Iterator[np.ndarray]:
        return in_turn(self, asks)

    def marginals(self, kept: np.ndarray, wanted: np.ndarray, examples: np.ndarray) -> np.ndarray:
        del kept
        drawn = self.rng.random(wanted.shape)
        at = sum(
            (drawn >= edge[:, None]).astype(np.int64)
            for edge in self.chance.cumsum(axis=1)[examples].T
        )
        return np.where(
            wanted, self.low[at] + (self.high - self.low)[at] * self.rng.random(wanted.shape), 0
        )

    def screened(
        self,
        kept: np.ndarray,
        wanted: np.ndarray,
        examples: np.ndarray,
        halvings: np.ndarray,
        uniforms: np.ndarray,
    ) -> np.ndarray:
        gains = self.marginals(kept, wanted, examples)
        bins = np.where((gains != 0) ^ (self.rng.random(gains.shape) < 0.2), 0, 2)
        ran = uniforms < 2.0 ** -halvings[bins, np.arange(RUNS)]
        return np.stack([bins, np.zeros(gains.shape), np.where(ran, gains, np.nan)])


def played(gains: Gains, seed: int, kind: str = "alike") -> tuple[np.ndarray, ScreenedTally]:
    """Which of 200 runs missed the truth where they stopped: at whole cycles, with a decided sign or ±0.04."""
    game = DrawnGame(gains, seed, kind)
    plan = SamplingPlan(16 * EXAMPLES, 0.04, "sign", LEVEL, 1.0)
    tally = last(estimate(game, plan, seed=seed, estimand=ALL_SIZES if gains.two else TOP50))
    return missed(tally, np.full(RUNS, game.truth)), tally


@cache
def played_all(kind: str) -> list[np.ndarray]:
    return [played(gains, number, kind)[0] for number, gains in enumerate(PLAYED)]


# The screened kind is the default method; tests/stats/test_stats.py holds balanced cycles without a screen.
EVERY = (*(pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS[:2]), "screened")


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("number", range(len(PLAYED)), ids=[gains.name for gains in PLAYED])
def test_coverage_where_the_estimator_stops(number: int, kind: str) -> None:
    assert not too_many(played_all(kind)[number].sum(), RUNS)


@pytest.mark.parametrize("kind", EVERY)
def test_coverage_over_all_distributions(
    kind: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    assert len(played_all(kind)) >= 20
    misses = np.concatenate(played_all(kind))
    record_testsuite_property(f"share missed, all distributions, {kind}", float(misses.mean()))
    assert not too_many(misses.sum(), len(misses))


def test_runs_stop_at_different_cycles_and_only_there() -> None:
    """Otherwise the tests above would be of a fixed number of draws."""
    game = DrawnGame(ternary(0.06, 0.02), 1, "alike")
    stopped = set()
    active = np.ones(RUNS, bool)
    for tally in estimate(
        game, SamplingPlan(16 * EXAMPLES, 0.04, "sign", LEVEL, 1.0), seed=1, estimand=ALL_SIZES
    ):
        if (active & ~tally.active).any():
            stopped.add(tally.draws)
        active = tally.active
    assert all(draws % EXAMPLES == 0 for draws in stopped)
    assert len(stopped) > 2


def test_the_screen_spares_what_it_is_there_to_spare() -> None:
    """Otherwise "screened" would be "uneven" again."""
    _, tally = played(ternary(0.06, 0.02), 1, "screened")
    assert tally.screen.computed.sum() < 0.6 * tally.screen.foreseen.sum()
    assert tally.counts[np.abs(tally.support) > 1].sum() > 0


def normal_interval(
    support: np.ndarray,
    counts: np.ndarray,
    level: float,
    _: LearnedStakes | None,
    *,
    errors: float = 1.959964,
) -> Interval:
    """So many standard errors: right at one fixed number of draws, if large; wrong when looked at again and again."""
    assert level == LEVEL
    mean = sample_mean(support, counts)
    draws = np.maximum(counts.sum(axis=0), 1)
    width = errors * np.sqrt(np.maximum(support**2 @ counts / draws - mean**2, 0) / draws)
    return Interval(mean - width, mean + width)


@pytest.mark.parametrize(
    "gains", [ternary(0.5, 0.5), ternary(0.3, 0.3), ternary(0.2, 0.2)], ids=lambda g: g.name
)
def test_the_check_finds_an_interval_that_does_not_pay_for_looking(
    gains: Gains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.sampling.betting_interval", normal_interval)
    assert too_many(played(gains, 5)[0].sum(), RUNS)


def test_equation_4_does_not_hold_when_looked_at_again_and_again() -> None:
    runs = 1000
    called = peeking(runs, 1)
    assert too_many(round(called["Equation 4, range 1"] * runs), runs)
    assert not too_many(round(called["headlab"] * runs), runs)


SEEDS = 16


@cache
def model_game(family: str) -> ModelGame:
    """A tiny model asked for its own answers: heads then matter; random labels leave hardly a sign to be found."""
    model = tiny_model(family, torch.float32, tokenizer=tiny_tokenizer())
    task = tiny_task()
    first = Evaluator(model, task, "xx", "dev", 24)
    *_, found = first.stream()
    own = [
        replace(example, label=int(label))
        for example, label in zip(first.examples, found.predicted, strict=True)
    ]
    return ModelGame(
        Evaluator(model, replace(task, read=lambda *_: own), "xx", "dev", 24), tokens=4096
    )


def often_right(gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What moves is foreseen four times of five, and one time of five so is what does not."""
    wrong = np.random.default_rng(gains.size).random(gains.shape) < 0.2
    return np.where((gains != 0) ^ wrong, 0, 2), np.zeros(gains.shape)


@cache
def tabulated(family: str) -> TableGame:
    """All 4,096 coalitions of a tiny model's 12 heads, on 24 examples."""
    game = model_game(family)
    kept = exact.members(np.arange(1 << game.players), game.players)
    values = game.values(
        np.repeat(kept, game.examples, axis=0), np.tile(np.arange(game.examples), len(kept))
    )
    table = values.reshape(len(kept), -1)
    return TableGame(
        game.players,
        game.examples,
        lambda e, present: table[sum(1 << p for p in present), e],
        round=game.examples,
        foresight=often_right,
    )


def truth_of(game: TableGame, estimand: str) -> np.ndarray:
    return exact.shapley(game.table.mean(axis=0), game.players, estimand)


PLAN = SamplingPlan(20 * 24, 0.1, "sign", LEVEL, 1.0)


@cache
def tallies(family: str, estimand: str) -> list[Tally]:
    """Where the default method stops on a tiny model, for several seeds."""
    game = tabulated(family)
    return [last(estimate(game, PLAN, seed=seed, estimand=estimand)) for seed in range(SEEDS)]


CASES = [("bert", TOP50), ("bert", ALL_SIZES), ("distilbert", TOP50)]
MORE = [("distilbert", ALL_SIZES), ("gpt2", TOP50), ("gpt2", ALL_SIZES)]


def test_the_table_is_the_model(rng: np.random.Generator) -> None:
    """Gains read from the table equal the model's own; so the games below are real."""
    kept = rng.random((6, 12)) < 0.6
    wanted = rng.random((6, 12)) < 0.5
    examples = rng.integers(24, size=6)
    table = tabulated("bert").marginals(kept, wanted, examples)
    assert np.array_equal(table, model_game("bert").marginals(kept, wanted, examples))
    assert (table != 0).any()


@pytest.mark.parametrize(
    ("family", "estimand"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.soak) for case in MORE)],
)
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
    monkeypatch.setattr(
        "headlab.methods.sampling.betting_interval", partial(normal_interval, errors=1.0)
    )
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
    made = []
    false = []
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
    for name, correct in (
        ("interval", None),
        ("Holm", holm),
        ("Benjamini-Hochberg", benjamini_hochberg),
    ):
        made, false = claims(correct)
        record_testsuite_property(f"{name}: claims a run", float(made.mean()))
        record_testsuite_property(f"{name}: false claims a run", float(false.mean()))
        record_testsuite_property(f"{name}: runs with a false claim", float((false > 0).mean()))
        assert made.sum() > 0
        if name == "Holm":
            assert not too_many((false > 0).sum(), len(false))
        if name == "Benjamini-Hochberg":
            assert (false / np.maximum(made, 1)).mean() <= 0.05 + 3.7 * np.sqrt(
                0.05 * 0.95 / len(false)
            )


def test_corrections_hold_back_false_claims_of_heads_without_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """200 runs of a mean of exactly 0 are 200 heads without effect: Holm claims none of them, most of the time."""
    # intervals that pay for less claim more
    monkeypatch.setattr("headlab.methods.tmab.max_halvings", lambda _: 0)
    alone = ternary(0.05, 0.05)
    families = 12
    any_raw = 0
    any_holm = 0
    for seed in range(families):
        game = DrawnGame(alone, seed, "alike")
        outcome = last(
            estimate(game, SamplingPlan(8 * EXAMPLES, None, "sign", LEVEL, 1.0), seed=seed)
        ).outcome()
        any_raw += bool(((outcome.low > 0) | (outcome.high < 0)).any())
        any_holm += bool((holm(outcome.p_values) <= 1 - LEVEL).any())
    assert not too_many(any_holm, families)
    assert any_raw > any_holm
