"""Estimators of Shapley values on games with known answers: right, exact where promised, and repeatable."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import permutations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
import transformers as hf
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare
from support.expected_errors import raises
from support.table_game import TableGame, last, majority, members, same, smooth
from support.tiny_models import NAMES, SMALL
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
SAMPLED = {"shapley": tmab, "monte-carlo": monte_carlo}
ESTIMATORS: dict[str, Any] = {**SAMPLED, "paper": paper, "exact": exact}


def table(name: str, players: int, examples: int = 6, **more: Any) -> TableGame:
    value, steps = GAMES[name]
    return TableGame(players, examples, value, steps=steps, **more)


def truth(game: TableGame, estimand: str) -> Floats:
    """By enumeration of all orders, in the value's unit."""
    enumerate_orders = (
        reference.full_shapley if estimand == "shapley" else reference.top_half_shapley
    )
    return np.asarray(game.span * enumerate_orders(game.mean, game.players))


def planned(
    samples: int, target: float | None = None, stop: str = "sign", level: float = 0.95
) -> SamplingPlan:
    return SamplingPlan(samples, target, stop, level, 1.0)


def options_of(method: str, **given: Any) -> dict[str, Any]:
    return METHODS[method].resolve(given)


def snapshots(
    method: str, game: TableGame, seed: int = 0, start: Any = None, **given: Any
) -> Iterator[Any]:
    """An estimator's snapshots on a game, as its `run` makes them."""
    options = options_of(method, **given)
    start = restored(method, {}, game, **given) if start is None else start
    if method == "exact":
        return iter(exact.estimate(game, start))
    if method == "paper":
        return iter(paper.estimate(game, start, seed=seed, estimand=options["estimand"]))
    return iter(
        ESTIMATORS[method].estimate(
            game, start.plan, seed=seed, estimand=options["estimand"], saved=start
        )
    )


def restored(method: str, saved: Arrays, game: TableGame, **given: Any) -> Any:
    """The snapshot that arrays hold, for a run of that method on that game."""
    counted = (game.steps,) if method in SAMPLED else ()
    return ESTIMATORS[method].restore(saved, options_of(method, **given), game.players, *counted)


def inside(outcome: Outcome, want: Floats) -> bool:
    assert outcome.low is not None
    assert outcome.high is not None
    assert (outcome.low <= outcome.values).all()
    assert (outcome.values <= outcome.high).all()
    return bool((outcome.low <= want + 1e-10).all() and (want <= outcome.high + 1e-10).all())


# What they estimate.


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
def test_exact_equals_enumeration(name: str, estimand: str, players: int) -> None:
    game = table(name, players, 3)
    outcome = last(snapshots("exact", game, estimand=estimand)).outcome()
    assert_allclose(outcome.values, truth(game, estimand), atol=1e-11)
    assert_array_equal(outcome.low, outcome.high)
    assert game.rows == 3 * 2**players


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("method", SAMPLED)
def test_samplers_meet_enumeration_within_their_intervals(
    method: str, name: str, estimand: str, players: int
) -> None:
    game = table(name, players, round=256)
    found = last(snapshots(method, game, estimand=estimand, samples=900, target=None, level=0.999))
    assert inside(found.outcome(), truth(game, estimand))
    assert_allclose(found.outcome().values, truth(game, estimand), atol=0.1)


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_the_papers_recipe_meets_enumeration_within_its_intervals(
    estimand: str, players: int
) -> None:
    game = table("majority", players)
    outcome = last(snapshots("paper", game, estimand=estimand, samples=200, delta=0.001)).outcome()
    assert inside(outcome, truth(game, estimand))
    assert_allclose(outcome.values, truth(game, estimand), atol=0.1)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_examples_count_by_their_weights(method: str) -> None:
    """Where an example asks for more answers than another, it has a larger share of every value."""
    # player 5 votes for the first and third, against the others
    weights = np.array([0.5, 0.1, 0.3, 0.1])
    game = table("majority", 6, 4, round=64, weights=weights)
    want = truth(game, "shapley")
    more = {"exact": {}, "paper": {"samples": 200}}.get(method, {"samples": 900, "target": None})
    outcome = last(snapshots(method, game, estimand="shapley", **more)).outcome()
    assert inside(outcome, want)
    assert_allclose(outcome.values, want, atol={"exact": 1e-10, "paper": 0.15}.get(method, 0.06))
    assert np.abs(want - truth(table("majority", 6, 4), "shapley")).max() > 0.1


def test_values_come_in_the_unit_of_the_value_function() -> None:
    game = TableGame(5, 4, smooth, span=10.0, steps=64, round=64)
    given = {"value": "log-probability", "estimand": "shapley"}
    for method, more in {
        "exact": {},
        "shapley": {"samples": 600, "target": None},
        "monte-carlo": {"samples": 900, "target": None},
        "paper": {"samples": 100},
    }.items():
        outcome = last(snapshots(method, game, **given, **more)).outcome()
        assert_allclose(outcome.values, truth(game, "shapley"), atol=0.4)
        assert inside(outcome, truth(game, "shapley"))
        assert np.abs(truth(game, "shapley")).max() > 1
    plan = plan_of(options_of("shapley", **given, target=2.5, stop="width", samples=10**6))
    narrow = last(
        tmab.estimate(TableGame(3, 32, smooth, span=10.0, steps=64), plan, seed=0)
    ).outcome()
    assert narrow.low is not None
    assert ((narrow.high - narrow.low) / 2 <= 2.5).all()  # nats, not shares of the span
    assert ((narrow.high - narrow.low) / 2 > 0.5).all()


# What they promise exactly.


@pytest.mark.parametrize("name", GAMES)
def test_full_shapley_values_share_out_what_all_heads_are_worth(name: str) -> None:
    game = table(name, 6, round=64)
    gap = game.mean(frozenset(range(6))) - game.mean(frozenset())
    assert last(
        snapshots("exact", game, estimand="shapley")
    ).outcome().values.sum() == pytest.approx(gap, abs=1e-10)
    outcome = last(
        snapshots("shapley", game, estimand="shapley", samples=600, target=None)
    ).outcome()
    assert outcome.low.sum() <= gap <= outcome.high.sum()
    assert outcome.values.sum() == pytest.approx(gap, abs=0.1)


@pytest.mark.parametrize("samples", [1, 2, 17])
def test_on_one_example_every_order_shares_out_the_same(samples: int) -> None:
    game = TableGame(6, 1, majority)
    gap = majority(0, frozenset(range(6))) - majority(0, frozenset())
    values = last(snapshots("monte-carlo", game, samples=samples, target=None)).outcome().values
    assert values.sum() == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("name", GAMES)
def test_a_head_that_the_game_ignores_scores_0(name: str, estimand: str, method: str) -> None:
    """And heads that may change places without anybody noticing score alike."""
    game = table(name, 6, round=64)
    more = {"exact": {}, "paper": {"samples": 200}}.get(method, {"samples": 900, "target": None})
    outcome = last(snapshots(method, game, estimand=estimand, **more)).outcome()
    assert outcome.values[4] == 0
    assert outcome.values[0] == pytest.approx(
        outcome.values[1], abs=1e-10 if method == "exact" else 0.1
    )
    assert outcome.low[0] <= outcome.high[1]
    assert outcome.low[1] <= outcome.high[0]
    assert np.abs(outcome.values).max() > 0.1


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_every_draw_gives_every_head_one_gain_on_every_example(estimand: str, players: int) -> None:
    """But for those that are there when half are gone, of the estimand that ends there."""
    game = TableGame(players, 4, lambda _, s: len(s) % 2, round=5)
    for tally in snapshots("shapley", game, estimand=estimand, samples=12, target=None):
        drawn = measured(players, estimand, range(tally.draws))
        assert_array_equal(tally.counts.sum(axis=0), drawn)
        assert_array_equal(game.asked.sum(axis=0), drawn)
        if estimand == "shapley":
            assert_array_equal(drawn, np.full(players, tally.draws))
            if tally.draws % 4 == 0:
                assert_array_equal(game.asked, np.full((4, players), tally.draws // 4))
    assert tally.draws == 12
    assert tally.counts[np.abs(tally.support) != 1].sum() == 0  # each step turns the answer round


def measured(players: int, estimand: str, numbers: Iterable[int], seed: int = 0) -> Any:
    """How many of these draws measure each head, int [head]."""
    most = tmab.removal_sizes(estimand, players)
    return sum(
        (sampling.removed_and_measured(seed, n, players, most)[1] for n in numbers),
        np.zeros(players, np.int64),
    )


@pytest.mark.parametrize(("estimand", "steps"), [("shapley", 7), ("shapley-top50", 4)])
def test_plain_permutations_walk_as_far_as_they_say(estimand: str, steps: int) -> None:
    game = TableGame(7, 4, majority)
    tally = last(snapshots("monte-carlo", game, estimand=estimand, samples=20, target=None))
    assert game.rows == tally.draws == 20
    assert game.asked.sum() == tally.counts.sum() == 20 * steps


# When they stop.


def one_strong(_example: int, present: frozenset[int]) -> int:
    """Right with player 0 alone, unless 1, 2 and 3 have left together."""
    return int(0 in present and bool(present & {1, 2, 3}))


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_heads_that_are_done_are_not_asked_about(estimand: str) -> None:
    game = TableGame(6, 16, one_strong)
    drawn = np.zeros(6, np.int64)
    left = np.zeros(6, np.int64)
    before = 0
    active = np.ones(6, bool)
    for tally in snapshots("shapley", game, estimand=estimand, samples=640, target=0.03):
        drawn += active * measured(6, estimand, range(before, tally.draws))
        left = np.where(active, tally.draws, left)
        before = tally.draws
        assert_array_equal(tally.counts.sum(axis=0), drawn)
        assert_array_equal(game.asked.sum(axis=0), drawn)
        assert (tally.active <= active).all()
        active = tally.active
    assert left[0] < 200 < left[4]
    assert (
        left[left < tally.draws] % 16 == 0
    ).all()  # they leave when every example was used as often


@pytest.mark.parametrize("stop", ["sign", "width"])
def test_a_head_leaves_at_the_first_whole_cycle_that_satisfies_it(stop: str) -> None:
    game = TableGame(6, 32, majority, round=5)
    active = np.ones(6, bool)
    for tally in snapshots("shapley", game, samples=1600, target=0.15, stop=stop):
        if tally.draws % 32 == 0:
            low, high = tally.interval()
            narrow = (high - low) / 2 <= 0.15
            done = narrow | (low > 0) | (high < 0) if stop == "sign" else narrow
            active = active & ~done
        assert_array_equal(tally.active, active)
    assert not active.any()
    assert 32 < tally.draws < 1600


def test_width_goes_on_where_sign_stops() -> None:
    runs = {}
    for stop in ("sign", "width"):
        game = TableGame(6, 32, majority)
        outcome = last(snapshots("shapley", game, samples=1600, target=0.15, stop=stop)).outcome()
        width = (outcome.high - outcome.low) / 2
        decided = (outcome.low > 0) | (outcome.high < 0)
        assert ((width <= 0.15) | (decided if stop == "sign" else False)).all()
        runs[stop] = (outcome.samples, width)
    assert (runs["sign"][0] <= runs["width"][0]).all()
    assert (runs["sign"][0] < runs["width"][0]).any()
    assert (runs["sign"][1] > 0.15).any()


@pytest.mark.parametrize("method", SAMPLED)
def test_without_a_target_all_samples_are_drawn(method: str) -> None:
    game = TableGame(4, 4, lambda _, s: int(0 in s))  # decided after a few
    tally = last(snapshots(method, game, samples=203, target=None, estimand="shapley"))
    assert tally.draws == 203
    assert_array_equal(tally.counts.sum(axis=0), np.full(4, 203))
    sooner = last(snapshots(method, game, samples=203, target=0.2, estimand="shapley"))
    assert sooner.draws < 203
    assert sooner.finished


def test_the_papers_recipe_stops_measuring_decided_heads() -> None:
    game = TableGame(6, 8, one_strong)
    now = None
    for now in snapshots("paper", game, samples=120, estimand="shapley"):
        assert_array_equal(game.asked.sum(axis=0), 8 * now.count)
    assert now is not None
    assert now.draws == 120  # 4 and 5 do nothing, so their signs stay open
    assert_array_equal(now.count[4:], [120, 120])
    assert now.count[0] < 60


def test_the_papers_intervals_are_equation_4() -> None:
    game = TableGame(5, 4, majority)
    run = last(snapshots("paper", game, samples=30, delta=0.1, estimand="shapley"))
    gains: list[list[float]] = [[] for _ in range(5)]
    for draw in range(30):
        present = set(range(5))
        width = [reference_width(g, 0.1) for g in gains]
        for player in sampling.random_order(0, draw, 5):
            before = game.mean(frozenset(present))
            present.remove(int(player))
            if abs(np.mean(gains[player] or [0])) <= width[player]:
                gains[player].append(before - game.mean(frozenset(present)))
    assert_allclose(run.outcome().values, [np.mean(g) for g in gains], atol=1e-12)
    assert_allclose(run.width, [reference_width(g, 0.1) for g in gains], atol=1e-12)
    assert_array_equal(run.outcome().samples, [len(g) for g in gains])


def reference_width(gains: list[float], delta: float) -> float:
    """Held & Yang 2023, equation 4, with range 1."""
    t = len(gains)
    log = np.log(3 / delta)
    if t:
        return float(np.std(gains) * np.sqrt(2 * log / t) + 3 * log / t)
    return float("inf")


# Repeatable.


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("target", [None, 0.8])
def test_rounds_do_not_change_a_bandits_result(
    target: float | None, estimand: str, name: str
) -> None:
    ends = []
    for size in (1, 3, 16):
        game = table(name, 6, 7, round=size)
        ends.append(
            last(snapshots("shapley", game, samples=60, target=target, estimand=estimand)).arrays()
        )
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])
    assert (int(ends[0]["draws"]) < 60) == (target is not None)


@pytest.mark.parametrize("target", [None, 0.5])
def test_rounds_do_not_change_the_result_of_plain_permutations(target: float | None) -> None:
    ends = [
        last(
            snapshots(
                "monte-carlo", table("majority", 6, 7, round=size), samples=100, target=target
            )
        ).arrays()
        for size in (1, 3, 16)
    ]
    assert (int(ends[0]["draws"]) < 100) == (target is not None)
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])


@pytest.mark.parametrize("method", SAMPLED)
def test_the_seed_matters(method: str) -> None:
    one, again, two = (
        last(snapshots(method, table("majority", 6), seed=s, samples=40)).counts for s in (0, 0, 1)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, two)


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
def test_a_run_taken_up_at_any_snapshot_ends_the_same(
    name: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "CHUNK_COALITIONS", 10)
    given = CASES[method] | ({"value": "probability"} if name == "smooth" else {})
    game = table(name, 6, 7, round=3)
    whole = list(snapshots(method, game, **given))
    assert len(whole) > 5
    for at, snapshot in enumerate(whole):
        start = restored(method, through_a_file(snapshot.arrays()), game, **given)
        rest = list(snapshots(method, game, start=start, **given))
        assert len(rest) == len(whole) - at - 1
        assert all(same(a.arrays(), b.arrays()) for a, b in zip(whole[at + 1 :], rest, strict=True))
    for field in ("values", "low", "high", "samples", "p_values"):
        assert_array_equal(getattr(start.outcome(), field), getattr(whole[-1].outcome(), field))


@pytest.mark.parametrize("method", ESTIMATORS)
def test_arrays_of_another_run_are_not_gone_on_from(method: str) -> None:
    given = CASES[method]
    game = table("majority", 6, 7)
    other = last(snapshots(method, table("majority", 5, 7), **given)).arrays()
    fresh = restored(method, {}, game, **given).arrays()
    own = last(snapshots(method, game, **given)).arrays()
    for foreign in (other, {"gains": np.zeros((6, 7)), "done": np.array(1)}):
        assert same(restored(method, foreign, game, **given).arrays(), fresh)
    for name in own:
        torn = {key: array for key, array in own.items() if key != name}
        assert same(restored(method, torn, game, **given).arrays(), fresh)
    assert not same(restored(method, own, game, **given).arrays(), fresh)


@pytest.mark.parametrize("method", SAMPLED)
def test_counts_of_another_value_function_are_not_gone_on_from(method: str) -> None:
    own = last(snapshots(method, table("majority", 6, 7), samples=20, target=None)).arrays()
    assert int(restored(method, own, table("smooth", 6, 7), samples=20).arrays()["draws"]) == 0


@pytest.mark.parametrize("method", ESTIMATORS)
def test_progress_rises_and_ends_at_its_total(method: str) -> None:
    seen = [
        s.progress() for s in snapshots(method, table("majority", 6, 7, round=4), **CASES[method])
    ]
    done = [p.done for p in seen]
    assert done == sorted(done)
    assert all(0 < p.done <= p.total for p in seen)
    assert seen[-1].done == seen[-1].total
    assert all(p.note for p in seen)


# The draws.


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("players", [1, 2, 3, 4, 5, 6])
def test_over_all_orders_and_cuts_every_coalition_has_its_weight(
    players: int, estimand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law of what a head is measured at, counted out: the number gone is uniform, and so is who they are."""
    line: tuple[int, ...] = ()
    count = 0
    most = tmab.removal_sizes(estimand, players)

    class Chosen:
        def integers(self, high: int) -> int:
            assert high == most + 1
            return count

    monkeypatch.setattr(sampling, "random_order", lambda *_: np.array(line))
    monkeypatch.setattr(np.random, "default_rng", lambda _: Chosen())
    found: Counter[tuple[int, frozenset[int]]] = Counter()
    for line in permutations(range(players)):  # noqa: B007 - read by `order` above
        for count in range(most + 1):  # noqa: B007 - read by `Chosen` above
            away, measured = sampling.removed_and_measured(0, 0, players, most)
            for player in np.flatnonzero(measured):
                found[int(player), frozenset(np.flatnonzero(away).tolist()) - {int(player)}] += 1
    total = sum(found.values())
    assert len(found) == players * sum(comb(players - 1, gone) for gone in range(most))
    for (_, gone), times in found.items():
        assert times * players * most * comb(players - 1, len(gone)) == total


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("players", [4, 5, 6, 7])
def test_the_draws_that_are_made_follow_that_law(players: int, estimand: str) -> None:
    most = tmab.removal_sizes(estimand, players)
    sets: list[Counter[frozenset[int]]] = [Counter() for _ in range(players)]
    for number in range(2000):
        away, measured = sampling.removed_and_measured(11, number, players, most)
        for player in np.flatnonzero(measured):
            sets[player][frozenset(np.flatnonzero(away).tolist()) - {int(player)}] += 1
    for counter in sets:
        near = [len(g) for g in counter]
        sizes = np.bincount(near, weights=list(counter.values()), minlength=most)
        assert len(sizes) == most
        assert chisquare(sizes).pvalue > 1e-4
        for k in range(most):
            among = [n for n, size in zip(counter.values(), near, strict=True) if size == k]
            among += [0] * (comb(players - 1, k) - len(among))
            assert len(among) == 1 or chisquare(among).pvalue > 1e-4


def test_a_cycle_uses_every_example_once() -> None:
    seen = [sampling.cycled_example(3, number, 7) for number in range(14)]
    assert sorted(seen[:7]) == sorted(seen[7:]) == list(range(7))
    assert seen[:7] != seen[7:]


@pytest.mark.parametrize("weights", [None, np.array([0.3, 0.05, 0.25, 0.4])])
def test_free_draws_of_examples_follow_their_weights(weights: Floats | None) -> None:
    free = Counter(sampling.free_example(3, number, 4, weights) for number in range(2000))
    expected = np.full(4, 500.0) if weights is None else 2000 * weights
    assert chisquare([free[e] for e in range(4)], expected).pvalue > 1e-4
    if weights is not None:  # unequal shares do not go into cycles
        assert all(
            sampling.cycled_example(3, n, 4, weights) == sampling.free_example(3, n, 4, weights)
            for n in range(40)
        )


SUPPORTS = {
    "even": even_support(10),
    "fine": even_support(64),
    "turns": weighted_support(1, 64),
    "far": weighted_support(64, 4),
}


@pytest.mark.parametrize("support", SUPPORTS.values(), ids=SUPPORTS)
def test_rounding_leaves_what_is_in_the_support_alone(support: Floats) -> None:
    for number in range(50):
        assert_array_equal(
            sampling.level_indices_of(support, support, 5, number), np.arange(len(support))
        )
    # multiples of 0.1, were it not for their last bits
    sums = np.array([0.1 + 0.2, 0.3 - 0.1, 1 - 0.9, 0.7 + 0.1])
    assert all(
        (sampling.level_indices_of(sums, even_support(10), 5, n) == [13, 12, 11, 18]).all()
        for n in range(200)
    )


@pytest.mark.parametrize("support", SUPPORTS.values(), ids=SUPPORTS)
def test_rounding_is_right_on_average(support: Floats) -> None:
    gains = np.array([-1.0, -0.777, -0.5, -1 / 128, 0.0, 1e-4, 0.3333, 0.999, 1.0]) * support[-1]
    found = support[
        np.array([sampling.level_indices_of(gains, support, 1, number) for number in range(5000)])
    ]
    below = support[np.maximum(0, np.searchsorted(support, gains, side="right") - 1)]
    above = support[np.searchsorted(support, gains)]
    assert ((found == below) | (found == above)).all()
    assert (np.abs(found.mean(axis=0) - gains) <= 5 * 0.5 * (above - below) / np.sqrt(5000)).all()
    assert np.abs(found).max() == support[-1]


def test_supports_reach_what_they_say() -> None:
    assert_array_equal(even_support(2), [-1, -0.5, 0, 0.5, 1])
    assert_array_equal(weighted_support(1, 1), even_support(1))
    assert_array_equal(weighted_support(1, 8), [-8, -4, -2, -1, 0, 1, 2, 4, 8])
    assert_array_equal(
        weighted_support(8, 4),
        [*-weighted_support(8, 4)[:12:-1], 0, *np.arange(1, 9) / 8, 1.5, 2, 3, 4],
    )
    for support in SUPPORTS.values():
        assert (np.diff(support) > 0).all()
        assert_array_equal(support, -support[::-1])


# Through the store, on a model.


@pytest.fixture(scope="module")
def model() -> Model:
    """Two layers of three heads."""
    return attached(num_hidden_layers=2, num_attention_heads=3)


def attached(**sizes: int) -> Model:
    torch.manual_seed(0)
    module = hf.BertForSequenceClassification(hf.BertConfig(**SMALL | NAMES | sizes))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    return make_gateable(
        Checkpoint("tiny", "test", "tiny", module.double().eval(), tiny_tokenizer())
    )


class Interrupted(Exception):
    pass


def after(calls: int) -> Callable[..., None]:
    """Something to be called that raises once it was called so often."""
    left = [calls]

    def count(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted

    return count


RUNS: dict[str, dict[str, Any]] = {
    "shapley": {"samples": 18, "target": 0.5, "value": "probability"},
    "monte-carlo": {"samples": 14, "estimand": "shapley-top50"},
    "paper": {"samples": 4, "value": "log-probability"},
    "exact": {"value": "probability"},
}


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize("method", ESTIMATORS)
def test_an_interrupted_run_ends_the_same_bit_for_bit(
    model: Model, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off at every report and, in the middle of a round, between every few batches."""
    monkeypatch.setattr(exact, "CHUNK_COALITIONS", 16)
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 4})
    monkeypatch.setattr("headlab.methods.model_game.token_budget", lambda _: 60)
    ask = {"language": "xx", "method": method, "size": 6, "seed": 3, **RUNS[method]}
    reports: list[Progress] = []
    ticks: list[None] = []
    want = score(
        model, tiny_task(), on_progress=reports.append, tick=lambda: ticks.append(None), **ask
    )
    assert len(reports) > 3
    stops = [{"on_progress": after(n)} for n in range(1, len(reports))]
    stops += [{"tick": after(n)} for n in np.linspace(1, len(ticks) - 1, 5).astype(int)]
    for number, stop in enumerate(stops):
        store = Store(tmp_path / str(number))
        with pytest.raises(Interrupted):
            score(model, tiny_task(), store=store, **stop, **ask)
        got = score(model, tiny_task(), store=store, **ask)
        for field in ("values", "low", "high", "samples", "p_values"):
            assert_array_equal(getattr(got, field), getattr(want, field))
        assert got.example_forwards == want.example_forwards
        again = score(model, tiny_task(), store=store, **ask)
        assert again.seconds == got.seconds  # read, not computed


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("damage", ["torn", "foreign"])
def test_a_checkpoint_that_does_not_fit_is_left_alone(
    model: Model, tmp_path: Path, method: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 4})
    ask = {"language": "xx", "method": method, "size": 6, **RUNS[method]}
    want = score(model, tiny_task(), **ask)
    with pytest.raises(Interrupted):
        score(model, tiny_task(), store=Store(tmp_path), on_progress=after(1), **ask)
    (path,) = tmp_path.glob("*/checkpoint.npz")
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:100])
    else:
        np.savez(path, gains=np.zeros((9, 9)), done=np.array(4))
    got = score(model, tiny_task(), store=Store(tmp_path), **ask)
    assert got.values_sha256() == want.values_sha256()
    assert got.example_forwards == want.example_forwards


def test_the_sampler_agrees_with_the_exact_values_of_a_model(model: Model) -> None:
    for estimand in ESTIMANDS:
        ask = {"language": "xx", "size": 6, "estimand": estimand, "value": "probability"}
        want = score(model, tiny_task(), method="exact", **ask)
        got = score(model, tiny_task(), samples=300, target=None, level=0.999, **ask)
        assert got.low is not None
        assert got.high is not None
        assert ((got.low <= want.values) & (want.values <= got.high)).all()
        assert_allclose(got.values, want.values, atol=0.02)
        assert np.abs(want.values).max() > 0.01


def test_more_heads_than_exact_can_do_are_refused_before_anything_is_run() -> None:
    large = attached(hidden_size=24, num_hidden_layers=12, num_attention_heads=12)
    calls: list[None] = []
    large.module.register_forward_pre_hook(lambda *_: calls.append(None))
    with raises("method.heads_too_many", 144, 16):
        headlab.score(large, tiny_task(), language="xx", method="exact", size=6)
    assert not calls
    options = options_of("exact")
    assert exact.restore({}, options, 16).values.shape == (2**16,)
    with raises("method.heads_too_many", 17):
        exact.restore({}, options, 17)


def test_an_unfinished_table_claims_nothing() -> None:
    assert np.isnan(exact.restore({}, options_of("exact"), 4).outcome().values).all()


@pytest.mark.parametrize("method", SAMPLED)
def test_an_unknown_estimand_is_refused(method: str) -> None:
    with raises("method.estimand_unknown", "'banzhaf'", "shapley-top50 or shapley"):
        next(
            ESTIMATORS[method].estimate(
                table("majority", 3), planned(4), seed=0, estimand="banzhaf"
            )
        )


def test_members_are_read_off_the_bits() -> None:
    places = np.arange(16)
    for place, row in zip(places, exact.members(places, 4), strict=True):
        assert frozenset(np.flatnonzero(row).tolist()) == members(int(place), 4)


def test_halves_are_of_different_examples() -> None:
    for estimand in ESTIMANDS:
        halves = (
            last(snapshots("shapley", table("majority", 4), samples=64, estimand=estimand))
            .outcome()
            .halves
        )
        assert halves is not None
        assert halves.shape == (2, 4)


def test_a_tally_counts_what_it_is_given() -> None:
    tally = Tally.start(2, even_support(2), planned(10))
    places = 2 + np.array([[-2, 0], [1, 2], [1, -1]])
    drawn = np.array([[True, True], [True, False], [True, True]])
    more = tally.add(places, drawn, 3, np.array([False, True, True]))
    assert_array_equal(more.counts, [[1, 0], [0, 1], [0, 1], [2, 0], [0, 0]])
    assert_array_equal(more.second, [[0, 0], [0, 1], [0, 0], [2, 0], [0, 0]])
    assert_allclose(more.outcome().values, [0, -0.25])
    assert_allclose(more.outcome().halves, [[-1, 0], [0.5, -0.5]])
    # nothing of the first half
    assert tally.add(places, drawn, 3, np.ones(3, bool)).outcome().halves is None
    assert more.draws == 3
    assert tally.draws == 0
