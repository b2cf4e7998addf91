"""Estimators of Shapley values on games with known answers: right, and repeatable to the bit."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import permutations
from math import comb
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import reference
import torch
import transformers as hf
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare
from support.expected_errors import raises
from support.table_game import TableGame, last_snapshot, majority, members, same_arrays, smooth
from support.tiny_models import LABEL_OPTIONS, SMALL_OPTIONS
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import Floats, Progress
from headlab.hooks import Model, make_gateable
from headlab.methods import METHODS, exact, monte_carlo, paper, sampling, tmab
from headlab.methods.run import score
from headlab.methods.sampling import SamplingPlan, Tally, even_support, plan_of, weighted_support
from headlab.methods.work import Arrays, Outcome
from headlab.models.checkpoint import Checkpoint
from headlab.results import Store

PLAYERS = (1, 2, 3, 5, 6, 7)
ESTIMANDS = ("shapley-top50", "shapley")
GAMES = {"majority": (majority, 1), "smooth": (smooth, 64)}
SAMPLERS = {"shapley": tmab, "monte-carlo": monte_carlo}
ESTIMATORS: dict[str, Any] = {**SAMPLERS, "paper": paper, "exact": exact}


def table(
    name: str,
    players: int,
    examples: int = 6,
    **fields: Any,
) -> TableGame:
    value, steps = GAMES[name]
    return TableGame(players, examples, value, steps=steps, **fields)


def truth(game: TableGame, estimand: str) -> Floats:
    """By enumeration of all orders, in the value's unit."""
    enumerate_orders = (
        reference.full_shapley if estimand == "shapley" else reference.top_half_shapley
    )
    return np.asarray(game.span * enumerate_orders(game.mean, game.players))


def sampling_plan(samples: int) -> SamplingPlan:
    """A plan without a target, at the level of 95 %."""
    return SamplingPlan(
        samples=samples,
        target=None,
        stop="sign",
        level=0.95,
        span=1.0,
    )


def options_of(method: str, **settings: Any) -> dict[str, Any]:
    """All options of a method: these settings, and defaults."""
    return METHODS[method].resolve(settings)


def snapshots(
    method: str,
    game: TableGame,
    seed: int = 0,
    start: Any = None,
    **settings: Any,
) -> Iterator[Any]:
    """An estimator's snapshots on a game, as its `run` makes them."""
    estimand = options_of(method, **settings)["estimand"]
    if start is None:
        start = restore(method, {}, game, **settings)
    if method == "exact":
        return iter(exact.estimate(game, start))
    if method == "paper":
        return iter(paper.estimate(game, start, seed=seed, estimand=estimand))
    estimate = ESTIMATORS[method].estimate
    return iter(estimate(game, start.plan, seed=seed, estimand=estimand, saved=start))


def last_outcome(
    method: str,
    game: TableGame,
    seed: int = 0,
    **settings: Any,
) -> Outcome:
    """What an estimator ends with on a game."""
    last = last_snapshot(snapshots(method, game, seed, **settings))
    outcome: Outcome = last.outcome()
    return outcome


def restore(
    method: str,
    arrays: Arrays,
    game: TableGame,
    **settings: Any,
) -> Any:
    """The snapshot that arrays hold, for a run of that method on that game."""
    options = options_of(method, **settings)
    if method in SAMPLERS:
        return ESTIMATORS[method].restore(
            arrays,
            options,
            game.players,
            game.steps,
        )
    return ESTIMATORS[method].restore(arrays, options, game.players)


def covers(outcome: Outcome, want: Floats) -> bool:
    """Whether every interval holds its value."""
    assert outcome.low is not None
    assert outcome.high is not None
    assert (outcome.low <= outcome.values).all()
    assert (outcome.values <= outcome.high).all()
    is_above_low = outcome.low <= want + 1e-10
    is_below_high = want <= outcome.high + 1e-10
    return bool((is_above_low & is_below_high).all())


def many_samples(method: str) -> dict[str, Any]:
    """Settings with which a method comes close to the truth."""
    if method == "exact":
        return {}
    if method == "paper":
        return {"samples": 200}
    return {"samples": 900, "target": None}


# What they estimate.


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
def test_exact_equals_enumeration(
    name: str,
    estimand: str,
    players: int,
) -> None:
    game = table(name, players, 3)
    outcome = last_outcome("exact", game, estimand=estimand)
    assert_allclose(outcome.values, truth(game, estimand), atol=1e-11)
    assert_array_equal(outcome.low, outcome.high)
    assert game.row_count == 3 * 2**players


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("method", SAMPLERS)
def test_samplers_meet_enumeration_within_their_intervals(
    method: str,
    name: str,
    estimand: str,
    players: int,
) -> None:
    game = table(name, players, round=256)
    settings = {"samples": 900, "target": None, "level": 0.999}
    outcome = last_outcome(method, game, estimand=estimand, **settings)
    assert covers(outcome, truth(game, estimand))
    assert_allclose(outcome.values, truth(game, estimand), atol=0.1)


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_the_papers_recipe_meets_enumeration_within_its_intervals(
    estimand: str, players: int
) -> None:
    game = table("majority", players)
    outcome = last_outcome("paper", game, estimand=estimand, samples=200, delta=0.001)
    assert covers(outcome, truth(game, estimand))
    assert_allclose(outcome.values, truth(game, estimand), atol=0.1)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_examples_count_by_their_weights(method: str) -> None:
    """Where an example asks for more answers than another, it has a larger share of every value."""
    # Player 5 votes for the first and the third example, and against the others.
    weights = np.array([0.5, 0.1, 0.3, 0.1])
    game = table("majority", 6, 4, round=64, weights=weights)
    want = truth(game, "shapley")
    outcome = last_outcome(method, game, estimand="shapley", **many_samples(method))
    assert covers(outcome, want)
    tolerance = {"exact": 1e-10, "paper": 0.15}.get(method, 0.06)
    assert_allclose(outcome.values, want, atol=tolerance)
    unweighted_truth = truth(table("majority", 6, 4), "shapley")
    assert np.abs(want - unweighted_truth).max() > 0.1


def test_values_come_in_the_unit_of_the_value_function() -> None:
    game = TableGame(5, 4, smooth, span=10.0, steps=64, round=64)
    settings = {"value": "log-probability", "estimand": "shapley"}
    samples_by_method: dict[str, dict[str, Any]] = {
        "exact": {},
        "shapley": {"samples": 600, "target": None},
        "monte-carlo": {"samples": 900, "target": None},
        "paper": {"samples": 100},
    }
    want = truth(game, "shapley")
    for method, samples in samples_by_method.items():
        outcome = last_outcome(method, game, **settings, **samples)
        assert_allclose(outcome.values, want, atol=0.4)
        assert covers(outcome, want)
        assert np.abs(want).max() > 1
    options = options_of("shapley", **settings, target=2.5, stop="width", samples=10**6)
    small_game = TableGame(3, 32, smooth, span=10.0, steps=64)
    tally = last_snapshot(tmab.estimate(small_game, plan_of(options), seed=0))
    outcome = tally.outcome()
    assert outcome.low is not None
    half_widths = (outcome.high - outcome.low) / 2
    assert (half_widths <= 2.5).all()  # nats, not shares of the span
    assert (half_widths > 0.5).all()


# What they promise exactly.


@pytest.mark.parametrize("name", GAMES)
def test_full_shapley_values_share_out_what_all_heads_are_worth(name: str) -> None:
    game = table(name, 6, round=64)
    value_of_all = game.mean(frozenset(range(6)))
    gap = value_of_all - game.mean(frozenset())
    exact_values = last_outcome("exact", game, estimand="shapley").values
    assert exact_values.sum() == pytest.approx(gap, abs=1e-10)
    outcome = last_outcome("shapley", game, estimand="shapley", samples=600, target=None)
    assert outcome.low.sum() <= gap <= outcome.high.sum()
    assert outcome.values.sum() == pytest.approx(gap, abs=0.1)


@pytest.mark.parametrize("samples", [1, 2, 17])
def test_on_one_example_every_order_shares_out_the_same(samples: int) -> None:
    game = TableGame(6, 1, majority)
    value_of_all = majority(0, frozenset(range(6)))
    gap = value_of_all - majority(0, frozenset())
    outcome = last_outcome("monte-carlo", game, samples=samples, target=None)
    assert outcome.values.sum() == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
def test_a_head_that_the_game_ignores_scores_0(
    name: str,
    estimand: str,
    method: str,
) -> None:
    """And heads that may change places without a change of any value score alike."""
    game = table(name, 6, round=64)
    outcome = last_outcome(method, game, estimand=estimand, **many_samples(method))
    assert outcome.values[4] == 0
    tolerance = 1e-10 if method == "exact" else 0.1
    assert outcome.values[0] == pytest.approx(outcome.values[1], abs=tolerance)
    assert outcome.low[0] <= outcome.high[1]
    assert outcome.low[1] <= outcome.high[0]
    assert np.abs(outcome.values).max() > 0.1


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_every_draw_gives_every_head_one_gain_on_every_example(estimand: str, players: int) -> None:
    """With `shapley-top50`, all but the heads that are present once half of them are removed."""
    game = TableGame(players, 4, lambda _, present: len(present) % 2, round=5)
    for tally in snapshots("shapley", game, estimand=estimand, samples=12, target=None):
        measurements = measurements_by_head(players, estimand, range(tally.draws))
        assert_array_equal(tally.counts.sum(axis=0), measurements)
        assert_array_equal(game.gain_counts.sum(axis=0), measurements)
        if estimand == "shapley":
            assert_array_equal(measurements, np.full(players, tally.draws))
            if tally.draws % 4 == 0:
                expected_counts = np.full((4, players), tally.draws // 4)
                assert_array_equal(game.gain_counts, expected_counts)
    assert tally.draws == 12
    # Each step changes the answer, so every gain is 1 or -1.
    other_levels = np.abs(tally.support) != 1
    assert tally.counts[other_levels].sum() == 0


def measurements_by_head(
    players: int,
    estimand: str,
    draws: Iterable[int],
    seed: int = 0,
) -> Any:
    """How many of these draws measure each head, int [head]."""
    max_removed = tmab.removal_sizes(estimand, players)
    measurements = np.zeros(players, np.int64)
    for draw in draws:
        _, is_measured = sampling.removed_and_measured(seed, draw, players, max_removed)
        measurements += is_measured
    return measurements


@pytest.mark.parametrize(
    ("estimand", "steps"),
    [("shapley", 7), ("shapley-top50", 4)],
)
def test_plain_permutations_walk_as_far_as_they_say(estimand: str, steps: int) -> None:
    game = TableGame(7, 4, majority)
    tally = last_snapshot(
        snapshots("monte-carlo", game, estimand=estimand, samples=20, target=None)
    )
    assert game.row_count == tally.draws == 20
    assert game.gain_counts.sum() == tally.counts.sum() == 20 * steps


# When they stop.


def one_strong(_example: int, present: frozenset[int]) -> int:
    """Right if player 0 and at least one of 1, 2 and 3 are present."""
    has_helper = bool(present & {1, 2, 3})
    return int(0 in present and has_helper)


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_heads_that_are_done_are_not_asked_about(estimand: str) -> None:
    game = TableGame(6, 16, one_strong)
    measurements = np.zeros(6, np.int64)
    last_draws = np.zeros(6, np.int64)
    earlier_draws = 0
    active = np.ones(6, bool)
    for tally in snapshots("shapley", game, estimand=estimand, samples=640, target=0.03):
        new_draws = range(earlier_draws, tally.draws)
        measurements += active * measurements_by_head(6, estimand, new_draws)
        last_draws = np.where(active, tally.draws, last_draws)
        earlier_draws = tally.draws
        assert_array_equal(tally.counts.sum(axis=0), measurements)
        assert_array_equal(game.gain_counts.sum(axis=0), measurements)
        assert (tally.active <= active).all()
        active = tally.active
    assert last_draws[0] < 200 < last_draws[4]
    # They leave when all examples were used equally often.
    early_leaves = last_draws[last_draws < tally.draws]
    assert (early_leaves % 16 == 0).all()


@pytest.mark.parametrize("stop", ["sign", "width"])
def test_a_head_leaves_at_the_first_whole_cycle_that_satisfies_it(stop: str) -> None:
    game = TableGame(6, 32, majority, round=5)
    active = np.ones(6, bool)
    for tally in snapshots("shapley", game, samples=1600, target=0.15, stop=stop):
        if tally.draws % 32 == 0:
            low, high = tally.interval()
            is_done = (high - low) / 2 <= 0.15
            if stop == "sign":
                is_done |= (low > 0) | (high < 0)
            active = active & ~is_done
        assert_array_equal(tally.active, active)
    assert not active.any()
    assert 32 < tally.draws < 1600


def test_width_goes_on_where_sign_stops() -> None:
    samples = {}
    widths = {}
    for stop in ("sign", "width"):
        game = TableGame(6, 32, majority)
        outcome = last_outcome("shapley", game, samples=1600, target=0.15, stop=stop)
        widths[stop] = (outcome.high - outcome.low) / 2
        samples[stop] = outcome.samples
        is_done = widths[stop] <= 0.15
        if stop == "sign":
            is_done |= (outcome.low > 0) | (outcome.high < 0)
        assert is_done.all()
    assert (samples["sign"] <= samples["width"]).all()
    assert (samples["sign"] < samples["width"]).any()
    assert (widths["sign"] > 0.15).any()


@pytest.mark.parametrize("method", SAMPLERS)
def test_without_a_target_all_samples_are_drawn(method: str) -> None:
    game = TableGame(4, 4, lambda _, present: int(0 in present))  # decided after a few samples
    tally = last_snapshot(snapshots(method, game, samples=203, target=None, estimand="shapley"))
    assert tally.draws == 203
    assert_array_equal(tally.counts.sum(axis=0), np.full(4, 203))
    sooner = last_snapshot(snapshots(method, game, samples=203, target=0.2, estimand="shapley"))
    assert sooner.draws < 203
    assert sooner.is_finished


def test_the_papers_recipe_stops_measuring_decided_heads() -> None:
    game = TableGame(6, 8, one_strong)
    moments = None
    for moments in snapshots("paper", game, samples=120, estimand="shapley"):
        assert_array_equal(game.gain_counts.sum(axis=0), 8 * moments.count)
    assert moments is not None
    assert moments.draws == 120  # 4 and 5 do nothing, so their signs stay open
    assert_array_equal(moments.count[4:], [120, 120])
    assert moments.count[0] < 60


def test_the_papers_intervals_are_equation_4() -> None:
    game = TableGame(5, 4, majority)
    moments = last_snapshot(snapshots("paper", game, samples=30, delta=0.1, estimand="shapley"))
    gains_by_player: list[list[float]] = [[] for _ in range(5)]
    for draw in range(30):
        present = set(range(5))
        widths = [reference_width(gains, 0.1) for gains in gains_by_player]
        for player in sampling.random_order(0, draw, 5):
            value_with = game.mean(frozenset(present))
            present.remove(int(player))
            gains = gains_by_player[player]
            if abs(np.mean(gains or [0])) <= widths[player]:
                gains.append(value_with - game.mean(frozenset(present)))
    means = [np.mean(gains) for gains in gains_by_player]
    widths = [reference_width(gains, 0.1) for gains in gains_by_player]
    assert_allclose(moments.outcome().values, means, atol=1e-12)
    assert_allclose(moments.width, widths, atol=1e-12)
    gain_counts = [len(gains) for gains in gains_by_player]
    assert_array_equal(moments.outcome().samples, gain_counts)


def reference_width(gains: list[float], delta: float) -> float:
    """Held & Yang 2023, equation 4, with range 1."""
    count = len(gains)
    if not count:
        return float("inf")
    log = np.log(3 / delta)
    spread = np.std(gains) * np.sqrt(2 * log / count)
    return float(spread + 3 * log / count)


# Repeatable.


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("target", [None, 0.8])
def test_rounds_do_not_change_a_bandits_result(
    target: float | None,
    estimand: str,
    name: str,
) -> None:
    settings = {"samples": 60, "target": target, "estimand": estimand}
    ends = []
    for size in (1, 3, 16):
        game = table(name, 6, 7, round=size)
        tally = last_snapshot(snapshots("shapley", game, **settings))
        ends.append(tally.arrays())
    assert same_arrays(ends[0], ends[1])
    assert same_arrays(ends[0], ends[2])
    has_stopped_early = int(ends[0]["draws"]) < 60
    assert has_stopped_early == (target is not None)


@pytest.mark.parametrize("target", [None, 0.5])
def test_rounds_do_not_change_the_result_of_plain_permutations(target: float | None) -> None:
    ends = []
    for size in (1, 3, 16):
        game = table("majority", 6, 7, round=size)
        tally = last_snapshot(snapshots("monte-carlo", game, samples=100, target=target))
        ends.append(tally.arrays())
    has_stopped_early = int(ends[0]["draws"]) < 100
    assert has_stopped_early == (target is not None)
    assert same_arrays(ends[0], ends[1])
    assert same_arrays(ends[0], ends[2])


@pytest.mark.parametrize("method", SAMPLERS)
def test_the_seed_matters(method: str) -> None:
    def counts(seed: int) -> Any:
        game = table("majority", 6)
        tally = last_snapshot(snapshots(method, game, seed=seed, samples=40))
        return tally.counts

    assert np.array_equal(counts(0), counts(0))
    assert not np.array_equal(counts(0), counts(1))


CASES: dict[str, Mapping[str, Any]] = {
    "shapley": {"samples": 26, "target": 0.35, "estimand": "shapley"},
    "monte-carlo": {"samples": 25, "target": None},
    "paper": {"samples": 15},
    "exact": {},
}


def through_a_file(arrays: Arrays) -> dict[str, Any]:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as file:
        return dict(file)


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("name", GAMES)
def test_a_run_resumed_at_any_snapshot_ends_the_same(
    name: str,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "CHUNK_COALITIONS", 10)
    settings = dict(CASES[method])
    if name == "smooth":
        settings["value"] = "probability"
    game = table(name, 6, 7, round=3)
    all_snapshots = list(snapshots(method, game, **settings))
    assert len(all_snapshots) > 5
    for number, snapshot in enumerate(all_snapshots, start=1):
        arrays = through_a_file(snapshot.arrays())
        start = restore(method, arrays, game, **settings)
        resumed_snapshots = list(snapshots(method, game, start=start, **settings))
        assert len(resumed_snapshots) == len(all_snapshots) - number
        for want, got in zip(all_snapshots[number:], resumed_snapshots, strict=True):
            assert same_arrays(want.arrays(), got.arrays())
    outcome = start.outcome()
    last_of_uninterrupted = all_snapshots[-1].outcome()
    for field in ("values", "low", "high", "samples", "p_values"):
        assert_array_equal(getattr(outcome, field), getattr(last_of_uninterrupted, field))


@pytest.mark.parametrize("method", ESTIMATORS)
def test_a_run_does_not_resume_from_arrays_of_another_run(method: str) -> None:
    game = table("majority", 6, 7)
    smaller_game = table("majority", 5, 7)

    def arrays_after_restore(arrays: Arrays) -> Arrays:
        snapshot = restore(method, arrays, game, **CASES[method])
        return cast(Arrays, snapshot.arrays())

    fresh = arrays_after_restore({})
    arrays_of_smaller_game = last_snapshot(
        snapshots(method, smaller_game, **CASES[method])
    ).arrays()
    arrays_of_another_program = {"gains": np.zeros((6, 7)), "done": np.array(1)}
    for foreign in (arrays_of_smaller_game, arrays_of_another_program):
        assert same_arrays(arrays_after_restore(foreign), fresh)
    complete = last_snapshot(snapshots(method, game, **CASES[method])).arrays()
    for missing in complete:
        torn = {name: array for name, array in complete.items() if name != missing}
        assert same_arrays(arrays_after_restore(torn), fresh)
    assert not same_arrays(arrays_after_restore(complete), fresh)


@pytest.mark.parametrize("method", SAMPLERS)
def test_a_run_does_not_resume_from_counts_of_another_value_function(method: str) -> None:
    game = table("majority", 6, 7)
    other_game = table("smooth", 6, 7)
    arrays = last_snapshot(snapshots(method, game, samples=20, target=None)).arrays()
    tally = restore(method, arrays, other_game, samples=20)
    assert int(tally.arrays()["draws"]) == 0


@pytest.mark.parametrize("method", ESTIMATORS)
def test_progress_rises_and_ends_at_its_total(method: str) -> None:
    game = table("majority", 6, 7, round=4)
    all_snapshots = snapshots(method, game, **CASES[method])
    reports = [snapshot.progress() for snapshot in all_snapshots]
    steps_done = [report.done for report in reports]
    assert steps_done == sorted(steps_done)
    assert all(0 < report.done <= report.total for report in reports)
    assert reports[-1].done == reports[-1].total
    assert all(report.note for report in reports)


# The draws.


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize(
    "players",
    [1, 2, 3, 4, 5, 6],
)
def test_over_all_orders_and_cuts_every_coalition_has_its_weight(
    players: int,
    estimand: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How often each head is measured with which others removed.

    All orders and all numbers of removed heads are gone through. The number of others that are
    removed is uniform, and so is which heads they are.
    """
    order: tuple[int, ...] = ()
    count = 0
    max_removed = tmab.removal_sizes(estimand, players)

    class ChosenCount:
        def integers(self, high: int) -> int:
            assert high == max_removed + 1
            return count

    monkeypatch.setattr(sampling, "random_order", lambda *_: np.array(order))
    monkeypatch.setattr(np.random, "default_rng", lambda _: ChosenCount())
    times_measured: Counter[tuple[int, frozenset[int]]] = Counter()
    for order in permutations(range(players)):  # noqa: B007 - read by `random_order` above
        for count in range(max_removed + 1):  # noqa: B007 - read by `ChosenCount` above
            for player, other_heads in measured_players(0, 0, players, max_removed):
                times_measured[player, other_heads] += 1
    total = times_measured.total()
    sets_of_others = 0
    for size in range(max_removed):
        sets_of_others += comb(players - 1, size)
    assert len(times_measured) == players * sets_of_others
    for (_, other_heads), times in times_measured.items():
        sets_of_this_size = comb(players - 1, len(other_heads))
        assert times * players * max_removed * sets_of_this_size == total


def measured_players(
    seed: int,
    draw: int,
    players: int,
    max_removed: int,
) -> list[tuple[int, frozenset[int]]]:
    """The heads that a draw measures, each with the other heads that it removes."""
    is_removed, is_measured = sampling.removed_and_measured(seed, draw, players, max_removed)
    removed_heads = frozenset(np.flatnonzero(is_removed).tolist())
    measured_heads = np.flatnonzero(is_measured).tolist()
    return [(head, removed_heads - {head}) for head in measured_heads]


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("players", [4, 5, 6, 7])
def test_random_draws_give_coalitions_these_weights(players: int, estimand: str) -> None:
    max_removed = tmab.removal_sizes(estimand, players)
    others_by_player: list[Counter[frozenset[int]]] = [Counter() for _ in range(players)]
    for draw in range(2000):
        for player, other_heads in measured_players(11, draw, players, max_removed):
            others_by_player[player][other_heads] += 1
    for times_by_others in others_by_player:
        times_by_size: list[list[int]] = [[] for _ in range(max_removed)]
        for other_heads, times in times_by_others.items():
            times_by_size[len(other_heads)].append(times)
        times_of_sizes = [sum(times) for times in times_by_size]
        assert chisquare(times_of_sizes).pvalue > 1e-4
        for size, times in enumerate(times_by_size):
            undrawn_sets = comb(players - 1, size) - len(times)
            times_of_sets = times + [0] * undrawn_sets
            assert len(times_of_sets) == 1 or chisquare(times_of_sets).pvalue > 1e-4


def test_a_cycle_uses_every_example_once() -> None:
    examples = [sampling.cycled_example(3, draw, 7) for draw in range(14)]
    first_cycle = examples[:7]
    second_cycle = examples[7:]
    assert sorted(first_cycle) == sorted(second_cycle) == list(range(7))
    assert first_cycle != second_cycle


@pytest.mark.parametrize(
    "weights",
    [None, np.array([0.3, 0.05, 0.25, 0.4])],
)
def test_free_draws_of_examples_follow_their_weights(weights: Floats | None) -> None:
    times_drawn: Counter[int] = Counter()
    for draw in range(2000):
        example = sampling.independent_example(3, draw, 4, weights)
        times_drawn[example] += 1
    expected_times = np.full(4, 500.0) if weights is None else 2000 * weights
    times_by_example = [times_drawn[example] for example in range(4)]
    p_value = chisquare(times_by_example, expected_times).pvalue
    assert p_value > 1e-4
    if weights is not None:  # unequal shares do not go into cycles
        for draw in range(40):
            free_example = sampling.independent_example(3, draw, 4, weights)
            assert sampling.cycled_example(3, draw, 4, weights) == free_example


SUPPORTS = {
    "even": even_support(10),
    "fine": even_support(64),
    "turns": weighted_support(1, 64),
    "far": weighted_support(64, 4),
    "finest": weighted_support(4096, 1),
    "finest, far": weighted_support(4096, 8),
}


@pytest.mark.parametrize("support", SUPPORTS.values(), ids=SUPPORTS)
def test_rounding_leaves_what_is_in_the_support_alone(support: Floats) -> None:
    for draw in range(50):
        level_indices = sampling.level_indices_of(support, support, 5, draw)
        assert_array_equal(level_indices, np.arange(len(support)))
    # Multiples of 0.1, were it not for their last bits.
    sums = np.array([0.1 + 0.2, 0.3 - 0.1, 1 - 0.9, 0.7 + 0.1])
    for draw in range(200):
        level_indices = sampling.level_indices_of(sums, even_support(10), 5, draw)
        assert (level_indices == [13, 12, 11, 18]).all()


@pytest.mark.parametrize("support", SUPPORTS.values(), ids=SUPPORTS)
def test_rounding_is_right_on_average(support: Floats) -> None:
    shares_of_largest = np.array([-1.0, -0.777, -0.5, -1 / 128, 0.0, 1e-4, 0.3333, 0.999, 1.0])
    gains = shares_of_largest * support[-1]
    draws = 5000
    level_indices = []
    for draw in range(draws):
        level_indices.append(sampling.level_indices_of(gains, support, 1, draw))
    rounded_gains = support[np.array(level_indices)]
    levels_up_to_gain = np.searchsorted(support, gains, side="right")
    index_below = np.maximum(0, levels_up_to_gain - 1)
    level_below = support[index_below]
    level_above = support[np.searchsorted(support, gains)]
    is_neighbour = (rounded_gains == level_below) | (rounded_gains == level_above)
    assert is_neighbour.all()
    max_standard_error = 0.5 * (level_above - level_below) / np.sqrt(draws)
    errors = np.abs(rounded_gains.mean(axis=0) - gains)
    assert (errors <= 5 * max_standard_error).all()
    assert np.abs(rounded_gains).max() == support[-1]


def test_supports_reach_what_they_say() -> None:
    assert_array_equal(even_support(2), [-1, -0.5, 0, 0.5, 1])
    assert_array_equal(weighted_support(1, 1), even_support(1))
    assert_array_equal(weighted_support(1, 8), [-8, -4, -2, -1, 0, 1, 2, 4, 8])
    positive_levels = [*np.arange(1, 9) / 8, 1.5, 2, 3, 4]
    negative_levels = [-level for level in reversed(positive_levels)]
    assert_array_equal(weighted_support(8, 4), [*negative_levels, 0, *positive_levels])
    for support in SUPPORTS.values():
        assert (np.diff(support) > 0).all()
        assert_array_equal(support, -support[::-1])


def test_levels_of_probabilities_are_as_far_apart_as_gains_are_large() -> None:
    support = weighted_support(4096, 4)
    levels = support[support > 0]
    assert (levels[0], levels[-1]) == (1 / 4096, 4)
    assert {2.0**power for power in range(-12, 3)} <= set(levels)
    steps = np.diff(levels)
    assert (steps[levels[:-1] < 1 / 256] == 1 / 4096).all()
    relative_steps = steps[levels[:-1] >= 1 / 256] / levels[:-1][levels[:-1] >= 1 / 256]
    assert (relative_steps <= 1 / 16 + 1e-12).all()
    lengths = {
        len(weighted_support(step_count, reach))
        for step_count in (1, 64, 4096)
        for reach in (1, 4, 8, 64)
    }
    assert len(lengths) == 12  # a checkpoint's levels say which they are


# Through the store, on a model.


@pytest.fixture(scope="module")
def model() -> Model:
    """Two layers of three heads."""
    return random_bert(num_hidden_layers=2, num_attention_heads=3)


def random_bert(**sizes: int) -> Model:
    """A small BERT of these sizes, with large random weights."""
    torch.manual_seed(0)
    module = hf.BertForSequenceClassification(
        hf.BertConfig(**SMALL_OPTIONS | LABEL_OPTIONS | sizes)
    )
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    module = module.double().eval()
    return make_gateable(
        Checkpoint(
            name="tiny",
            revision="test",
            fingerprint="tiny",
            module=module,
            tokenizer=tiny_tokenizer(),
        )
    )


class Interrupted(Exception):
    pass


def interrupt_after(calls: int) -> Callable[..., None]:
    """A function that may be called so often, and raises after that."""
    remaining_calls = calls

    def count_call(*_: Any) -> None:
        nonlocal remaining_calls
        remaining_calls -= 1
        if remaining_calls < 0:
            raise Interrupted

    return count_call


RUNS: dict[str, dict[str, Any]] = {
    "shapley": {"samples": 18, "target": 0.5, "value": "probability"},
    "monte-carlo": {"samples": 14, "estimand": "shapley-top50"},
    "paper": {"samples": 4, "value": "log-probability"},
    "exact": {"value": "probability"},
}


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize("method", ESTIMATORS)
def test_an_interrupted_run_ends_the_same_bit_for_bit(
    model: Model,
    tmp_path: Path,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broken off at every report and, in the middle of a round, between every few batches."""
    monkeypatch.setattr(exact, "CHUNK_COALITIONS", 16)
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 4})
    monkeypatch.setattr("headlab.methods.model_game.token_budget", lambda _: 60)
    settings = {
        "language": "xx",
        "method": method,
        "size": 6,
        "seed": 3,
        **RUNS[method],
    }
    reports: list[Progress] = []
    ticks: list[None] = []
    want = score(
        model,
        tiny_task(),
        on_progress=reports.append,
        tick=lambda: ticks.append(None),
        **settings,
    )
    assert len(reports) > 3
    interruptions = [{"on_progress": interrupt_after(n)} for n in range(1, len(reports))]
    tick_counts = np.linspace(1, len(ticks) - 1, 5).astype(int)
    interruptions += [{"tick": interrupt_after(count)} for count in tick_counts]
    for number, interruption in enumerate(interruptions):
        store = Store(tmp_path / str(number))
        with pytest.raises(Interrupted):
            score(model, tiny_task(), store=store, **interruption, **settings)
        got = score(model, tiny_task(), store=store, **settings)
        for field in ("values", "low", "high", "samples", "p_values"):
            assert_array_equal(getattr(got, field), getattr(want, field))
        assert got.example_forwards == want.example_forwards
        stored_scores = score(model, tiny_task(), store=store, **settings)
        assert stored_scores.seconds == got.seconds  # read, not computed


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("damage", ["torn", "foreign"])
def test_a_checkpoint_that_does_not_fit_is_ignored(
    model: Model,
    tmp_path: Path,
    method: str,
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 4})
    settings = {
        "language": "xx",
        "method": method,
        "size": 6,
        **RUNS[method],
    }
    want = score(model, tiny_task(), **settings)
    store = Store(tmp_path)
    with pytest.raises(Interrupted):
        score(model, tiny_task(), store=store, on_progress=interrupt_after(1), **settings)
    (path,) = tmp_path.glob("*/checkpoint.npz")
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:100])
    else:
        np.savez(path, gains=np.zeros((9, 9)), done=np.array(4))
    got = score(model, tiny_task(), store=Store(tmp_path), **settings)
    assert got.values_sha256() == want.values_sha256()
    assert got.example_forwards == want.example_forwards


def test_the_sampler_agrees_with_the_exact_values_of_a_model(model: Model) -> None:
    for estimand in ESTIMANDS:
        settings = {
            "language": "xx",
            "size": 6,
            "estimand": estimand,
            "value": "probability",
        }
        want = score(model, tiny_task(), method="exact", **settings)
        got = score(model, tiny_task(), samples=300, target=None, level=0.999, **settings)
        assert got.low is not None
        assert got.high is not None
        assert (got.low <= want.values).all()
        assert (want.values <= got.high).all()
        assert_allclose(got.values, want.values, atol=0.02)
        assert np.abs(want.values).max() > 0.01


def test_more_heads_than_exact_can_do_are_refused_before_anything_is_run() -> None:
    model = random_bert(hidden_size=24, num_hidden_layers=12, num_attention_heads=12)
    calls: list[None] = []
    model.module.register_forward_pre_hook(lambda *_: calls.append(None))
    with raises("method.heads_too_many", 144, 16):
        headlab.score(model, tiny_task(), language="xx", method="exact", size=6)
    assert not calls
    options = options_of("exact")
    estimate = exact.restore({}, options, 16)
    assert estimate.values.shape == (2**16,)
    with raises("method.heads_too_many", 17):
        exact.restore({}, options, 17)


def test_an_unfinished_table_claims_nothing() -> None:
    unfinished_table = exact.restore({}, options_of("exact"), 4)
    assert np.isnan(unfinished_table.outcome().values).all()


@pytest.mark.parametrize("method", SAMPLERS)
def test_an_unknown_estimand_is_refused(method: str) -> None:
    game = table("majority", 3)
    tallies = ESTIMATORS[method].estimate(
        game,
        sampling_plan(4),
        seed=0,
        estimand="banzhaf",
    )
    with raises("method.estimand_unknown", "'banzhaf'", "shapley-top50 or shapley"):
        next(tallies)


def test_members_are_read_off_the_bits() -> None:
    numbers = np.arange(16)
    membership = exact.members(numbers, 4)
    for number, is_member in zip(numbers, membership, strict=True):
        players = np.flatnonzero(is_member).tolist()
        assert frozenset(players) == members(int(number), 4)


def test_halves_are_of_different_examples() -> None:
    for estimand in ESTIMANDS:
        game = table("majority", 4)
        outcome = last_outcome("shapley", game, samples=64, estimand=estimand)
        assert outcome.halves is not None
        assert outcome.halves.shape == (2, 4)


def test_a_tally_counts_what_is_added_to_it() -> None:
    empty = Tally.start(2, even_support(2), sampling_plan(10))
    levels = 2 + np.array([[-2, 0], [1, 2], [1, -1]])
    is_drawn = np.array([[True, True], [True, False], [True, True]])
    in_second_half = np.array([False, True, True])
    tally = empty.add(levels, is_drawn, 3, in_second_half)
    assert_array_equal(tally.counts, [[1, 0], [0, 1], [0, 1], [2, 0], [0, 0]])
    assert_array_equal(tally.second, [[0, 0], [0, 1], [0, 0], [2, 0], [0, 0]])
    assert_allclose(tally.outcome().values, [0, -0.25])
    assert_allclose(tally.outcome().halves, [[-1, 0], [0.5, -0.5]])
    only_second_half = empty.add(levels, is_drawn, 3, np.ones(3, bool))
    assert only_second_half.outcome().halves is None
    assert tally.draws == 3
    assert empty.draws == 0
