"""The arithmetic of the comparison of estimators, without the peers.

`estimators.py --smoke` compares the peers with exact values.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import before  # noqa: E402 - found there
import sessions  # noqa: E402 - found there
import suite  # noqa: E402 - found there
from comparison import (  # noqa: E402 - found there
    exactness,
    guarantee,
    peers,
    previous,
    quiet,
    race,
    recipe,
    report,
    setting,
    shapiq_process,
    to_error,
)
from comparison.estimates import Estimate, Point, SmallRounds, mean_values, watch  # noqa: E402
from support.tiny_models import tiny_model  # noqa: E402
from support.tiny_task import tiny_task, tiny_tokenizer  # noqa: E402

from headlab.core import HeadGrid, content_key  # noqa: E402
from headlab.evaluation import Evaluator  # noqa: E402
from headlab.masks import full_mask  # noqa: E402
from headlab.methods.game import Game  # noqa: E402
from headlab.methods.model_game import ModelGame  # noqa: E402
from headlab.methods.sampling import SamplingPlan, Tally  # noqa: E402
from headlab.methods.tmab import ALL_SIZES, TOP50  # noqa: E402
from headlab.stats import bernstein_width  # noqa: E402

BENCHMARKS = ROOT / "benchmarks"
RESULTS = ROOT / "benchmarks" / "results" / "estimators.json"


def small_game(players: int = 6, examples: int = 4) -> exactness.TableGame:
    """Made-up right and wrong answers."""
    rng = np.random.default_rng(0)
    is_right = rng.integers(0, 2, (2**players, examples))
    return exactness.TableGame(is_right.astype(np.float64), players)


def present_value(game: exactness.TableGame, present: frozenset[int]) -> float:
    """The value of the coalition of the players present."""
    row = sum(1 << player for player in present)
    return float(game.table[row].mean())


def test_the_truth_is_the_average_over_all_orders() -> None:
    game = small_game()

    def value(present: frozenset[int]) -> float:
        return present_value(game, present)

    shapley = reference.full_shapley(value, game.players)
    assert_allclose(exactness.truth(game), shapley, atol=1e-12)


def test_the_table_gives_the_same_gains_as_the_model() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", exactness.EXAMPLES)
    game = ModelGame(evaluator)
    table = exactness.tiny_game()
    rng = np.random.default_rng(1)
    orders = np.stack([rng.permutation(12)[:5] for _ in range(6)])
    rows = rng.integers(16, size=6)
    coalitions, players = rng.random((2, 6, 12)) < 0.5
    table_gains = table.gains(orders, rows)
    model_gains = game.gains(orders, rows)
    assert_array_equal(table_gains, model_gains)
    table_marginals = table.marginals(coalitions, players, rows)
    model_marginals = game.marginals(coalitions, players, rows)
    assert_array_equal(table_marginals, model_marginals)


def test_own_estimators_meet_the_exact_values_and_a_wrong_one_is_caught() -> None:
    game = small_game()
    exact = exactness.truth(game)
    for start in race.HEADLAB.values():
        assert exactness.excess(start, game, exact) <= 0

    def leave_one_out(game: Game, seed: int) -> Iterator[Estimate]:
        all_on = np.ones((1, game.players), bool)
        one_off = ~np.eye(game.players, dtype=bool)
        while True:
            value_of_all = mean_values(game, all_on)
            values_without_one = mean_values(game, one_off)
            yield Estimate(value_of_all - values_without_one)

    assert exactness.excess(leave_one_out, game, exact) > 0


@pytest.mark.parametrize("span", [1.0, 2.0])
def test_turns_are_the_fewest_that_equation_four_asks_for(span: float) -> None:
    turns = recipe.orders_for_a_head(2e-4, 0.01, span)
    variance = np.array(2e-4)
    widths = []
    for n in (turns - 1, turns):
        width = bernstein_width(variance, np.array(n), recipe.DELTA, span)
        widths.append(float(width))
    assert widths[0] > 0.01 >= widths[1]


def test_the_recipe_is_played_until_every_head_had_its_turns() -> None:
    one_turn = recipe.recipe_work(1, 10)
    assert one_turn.orders >= 2
    assert one_turn.coalitions <= one_turn.orders * 6
    many_turns = recipe.recipe_work(300, 10)
    assert 600 <= many_turns.orders < 800  # a head has its turn in every second order
    assert 600 * 6 * 0.95 < many_turns.coalitions <= many_turns.orders * 6


def test_a_walk_evaluates_both_ends_of_every_step_asked_for() -> None:
    assert recipe.coalitions_evaluated(np.array([True, True, True])) == 4
    assert recipe.coalitions_evaluated(np.array([True, False, True])) == 4
    assert recipe.coalitions_evaluated(np.array([True, False, False])) == 2
    assert recipe.coalitions_evaluated(np.array([False, False])) == 0


def test_the_variance_of_orders_is_told_from_that_of_examples(rng: np.random.Generator) -> None:
    orders = np.stack([rng.permutation(4) for _ in range(4000)])
    gains_of_orders = rng.normal(0, 0.1, (4000, 1, 4))
    noise_of_examples = rng.normal(0, 0.5, (4000, 5, 4))
    gains = gains_of_orders + noise_of_examples
    variance = recipe.order_variance(gains, orders, players=4, examples=100)
    expected_variance = 0.1**2 + 0.5**2 / 100
    assert_allclose(variance, expected_variance, rtol=0.2)


def test_padded_inputs_are_all_of_one_length_and_answer_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recipe, "PADDED_LENGTH", 40)
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 16)
    padded_evaluator = recipe.PaddedEvaluator(model, tiny_task(), "xx", "dev", 16)
    rng = np.random.default_rng(2)
    is_kept = rng.random((16, 12)) < 0.7
    gates = model.grid.gates(is_kept)
    rows = np.arange(16)
    padded_ids = padded_evaluator.tensors(rows)["input_ids"]
    assert padded_ids.shape == (16, 40)
    is_right = evaluator.correct(gates, rows)
    is_right_when_padded = padded_evaluator.correct(gates, rows)
    assert_array_equal(is_right, is_right_when_padded)


def made_up_setting(folder: Path, game: exactness.TableGame) -> SimpleNamespace:
    folder.mkdir(exist_ok=True)
    return SimpleNamespace(
        game=game,
        work=folder,
        evaluator=SimpleNamespace(forwards=0),
        key=lambda **fields: content_key(fields),
    )


def test_a_long_run_goes_on_where_it_was_left(tmp_path: Path) -> None:
    plan = SamplingPlan(64, None, "width", 0.95, 1.0)
    game = small_game()
    uninterrupted_setting = made_up_setting(tmp_path / "a", game)
    uninterrupted_run = setting.long_run(uninterrupted_setting, plan, 3, ALL_SIZES, 60)  # type: ignore[arg-type]
    resumed_setting = made_up_setting(tmp_path / "b", game)
    first_part = setting.long_run(resumed_setting, plan, 3, ALL_SIZES, 0)  # type: ignore[arg-type]
    assert first_part.tally.draws == game.round
    resumed_run = setting.long_run(resumed_setting, plan, 3, ALL_SIZES, 60)  # type: ignore[arg-type]
    assert_array_equal(resumed_run.tally.counts, uninterrupted_run.tally.counts)
    assert resumed_run.seconds > first_part.seconds


def test_a_run_cut_short_is_extrapolated_and_a_finished_one_is_not(tmp_path: Path) -> None:
    game = small_game()
    target = 0.15
    made_up = made_up_setting(tmp_path, game)
    cut_run = setting.long_run(made_up, guarantee.plan(target), 3, TOP50, 0)  # type: ignore[arg-type]
    extrapolation = guarantee.ours(cut_run, target, game.examples)
    assert not extrapolation.measured
    assert extrapolation.seconds > extrapolation.spent_seconds
    finished_run = setting.long_run(made_up, guarantee.plan(target), 3, TOP50, 600)  # type: ignore[arg-type]
    measurement = guarantee.ours(finished_run, target, game.examples)
    assert measurement.measured
    assert measurement.seconds == measurement.spent_seconds
    assert measurement.widest <= target
    samples_needed = guarantee.samples_needed(cut_run.tally, target, game.examples)
    assert (samples_needed >= cut_run.tally.counts.sum(axis=0)).all()
    samples_drawn = finished_run.tally.counts.sum(axis=0)
    assert_allclose(samples_needed.mean(), samples_drawn.mean(), rtol=1.0)


def test_watching_stops_when_the_time_is_up_after_one_estimate_at_least() -> None:
    def steady_estimates() -> Iterator[Estimate]:
        for n in count():
            values = np.array([float(n)])
            yield Estimate(values, lambda: 0.5)

    steps = steady_estimates()
    (point,) = watch(steps, SimpleNamespace(forwards=0), 0)  # type: ignore[arg-type]
    assert point.values == [0.0]
    assert point.width == 0.5
    points = watch(steps, SimpleNamespace(forwards=0), 0.05)  # type: ignore[arg-type]
    seconds = [point.seconds for point in points]
    assert seconds == sorted(seconds)
    assert seconds[-1] >= 0.05


def test_small_rounds_change_no_number() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 16)
    ours = race.HEADLAB[race.OURS]
    coarse = ours(ModelGame(evaluator), 5)
    fine = ours(SmallRounds(evaluator), 5)
    coarse_estimate = next(coarse)
    *_, fourth_fine_estimate = [next(fine) for _ in range(4)]
    assert_array_equal(coarse_estimate.values, fourth_fine_estimate.values)


def made_up_runs(rng: np.random.Generator, constants: dict[str, float]) -> list[race.Run]:
    """Runs whose squared error is constant / seconds, against a truth of 0."""
    runs = []
    for title, constant in constants.items():
        for seed in (1, 2):
            points = []
            for seconds in (1.0, 2.0, 4.0):
                error = np.sqrt(constant / seconds)
                values = rng.normal(0, error, 4000)
                forwards = int(100 * seconds)
                points.append(Point(seconds, forwards, values))
            runs.append(race.Run(title, seed, points))
    return runs


# Seconds until an error stays below a bound.


def points_of_errors(*errors: float) -> list[Point]:
    """A point a second, whose error is the same for every head."""
    return [Point(float(second), 0, np.full(9, error)) for second, error in enumerate(errors, 1)]


@pytest.mark.parametrize(
    ("errors", "seconds", "is_measured"),
    [
        ((0.006, 0.0015, 0.001), np.sqrt(2), True),  # half way down, half of the way in log seconds
        ((0.002, 0.006, 0.0015), np.sqrt(6), True),  # what it was before by chance does not count
        ((0.03, 0.0), np.sqrt(2), True),  # no error at all counts as a tenth of the bound
        ((0.001, 0.001), 1.0, True),
        ((0.02, 0.006), 8.0, False),  # twice the bound: four times as long
    ],
)
def test_a_run_arrives_where_its_error_stays_below_the_bound(
    errors: tuple[float, ...], seconds: float, is_measured: bool
) -> None:
    truth = race.Reference(np.zeros(9), np.zeros(9), 1)
    arrival = to_error.arrival(points_of_errors(*errors), truth, 0.003)
    assert arrival.seconds == pytest.approx(seconds)
    assert arrival.is_measured == is_measured


@dataclass
class StartedRuns:
    """An entrant that counts how often it is started, and the setting that it runs in.

    Attributes:
        setting: With a small game and a folder of finished runs.
        seeds: Of the runs started so far.
    """

    setting: Any
    seeds: list[int] = field(default_factory=list)

    @property
    def entrant(self) -> to_error.Entrant:
        return to_error.Entrant("counting", self._start, 0.01, 2)

    def _start(self, game: Game, seed: int) -> Iterator[Estimate]:
        self.seeds.append(seed)
        for number in count():
            yield Estimate(np.full(game.players, float(number)))


@pytest.fixture
def started_runs(tmp_path: Path) -> StartedRuns:
    setting = SimpleNamespace(
        work=tmp_path,
        key=lambda **run: content_key(run),
        small_rounds=small_game,
        evaluator=SimpleNamespace(forwards=0),
    )
    return StartedRuns(setting)


def test_a_finished_run_is_read_and_an_unfinished_one_is_run(started_runs: StartedRuns) -> None:
    setting, entrant = started_runs.setting, started_runs.entrant
    first = to_error.points_of_run(setting, entrant, 1, only_when_quiet=False)
    again = to_error.points_of_run(setting, entrant, 1, only_when_quiet=False)
    to_error.points_of_run(setting, entrant, 2, only_when_quiet=False)
    assert started_runs.seeds == [1, 2]
    for point, point_read in zip(first, again, strict=True):
        assert (point.seconds, point.forwards) == (point_read.seconds, point_read.forwards)
        assert_array_equal(point.values, point_read.values)


def test_a_run_beside_other_programs_is_done_again(
    started_runs: StartedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = [(0, 0, 0), (10, 0, 5), (10, 0, 5), (20, 1, 14)]  # half of the first by others
    times = (quiet.ProcessorTime(*moment) for moment in moments)
    monkeypatch.setattr(to_error, "wait_until_quiet", lambda: None)
    monkeypatch.setattr(quiet.ProcessorTime, "now", lambda: next(times))
    to_error.points_of_run(started_runs.setting, started_runs.entrant, 1, only_when_quiet=True)
    assert started_runs.seeds == [1, 1]


def test_others_use_what_is_neither_idle_nor_own() -> None:
    before = quiet.ProcessorTime(total=100.0, idle=50.0, own=3.0)
    after = quiet.ProcessorTime(total=110.0, idle=54.0, own=8.0)
    assert after.share_of_others_since(before) == pytest.approx(0.1)
    assert before.share_of_others_since(before) == 0.0  # no clock tick between them


@pytest.mark.skipif(not quiet.STAT.exists(), reason="processor times are read on Linux")
def test_processor_times_of_this_moment_are_read() -> None:
    moment = quiet.ProcessorTime.now()
    assert moment.total > moment.idle > 0
    assert 0 < moment.own < moment.total


def test_speedups_are_ratios_of_mean_seconds_to_those_of_joined_values() -> None:
    arrivals = {
        to_error.JOINED: [to_error.Arrival(seconds, True) for seconds in (4.0, 6.0)],
        "slow": [to_error.Arrival(seconds, False) for seconds in (90.0, 110.0)],
    }
    rows = to_error.speedups(arrivals)
    assert set(rows) == {"slow"}
    assert rows["slow"]["times"] == pytest.approx(20.0)
    assert rows["slow"]["low"] < 20 < rows["slow"]["high"]


@pytest.mark.parametrize("title", to_error.HEADLAB)
def test_headlab_s_estimators_give_estimates_of_a_model(title: str) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    game = SmallRounds(Evaluator(model, tiny_task(), "xx", "dev", 16))
    estimates = to_error.HEADLAB[title](game, 1)
    for _ in range(3):
        assert np.isfinite(next(estimates).values).all()


def test_equal_error_is_the_ratio_of_squared_error_times_seconds(rng: np.random.Generator) -> None:
    truth = race.Reference(np.zeros(4000), np.zeros(4000), 1)
    slow = f"slow ({peers.ONE_EXAMPLE})"
    slower = f"slower ({peers.WHOLE_SET})"
    constants = {
        race.OURS: 0.01,
        race.FORMER: 0.02,
        slow: 0.04,
        slower: 0.1,
    }
    runs = made_up_runs(rng, constants)
    comparison = report.race_figures(runs, {"late": 900.0}, truth)
    speedups = comparison["speedup_to_equal_error"]
    assert speedups[slow]["times"] == pytest.approx(4, rel=0.1)
    assert speedups[slower]["times"] == pytest.approx(10, rel=0.1)
    for ratio in speedups.values():
        assert ratio["low"] < ratio["times"] < ratio["high"]
    assert set(speedups) == {slow, slower}
    assert comparison["best_peer"] == slow
    assert comparison["best_peer_by_wrapping"] == {
        peers.ONE_EXAMPLE: slow,
        peers.WHOLE_SET: slower,
    }
    assert comparison["equal_error"] == pytest.approx(0.1, rel=0.1)
    slopes = [row["slope"] for row in comparison["race"]]
    assert slopes == pytest.approx([-1] * 4, abs=0.1)
    speedup_over_previous = comparison["speedup_over_previous"]
    assert speedup_over_previous["equal_error"] == pytest.approx(2, rel=0.1)
    goals = report.goals(comparison)
    assert [goal["met"] for goal in goals] == [False, False]
    lines = report.table(comparison).splitlines()
    assert len(lines) == 2 + 4 + 1
    assert "900 s" in lines[-1]


def test_the_interval_of_a_ratio_of_means_covers_it(rng: np.random.Generator) -> None:
    """Squared errors times seconds have heavy tails, and there are eight seeds."""
    ratios = []
    for _ in range(2000):
        numerators, denominators = rng.lognormal([[2.0], [0.0]], 0.7, (2, 8))
        ratios.append(race.ratio_of_means(numerators, denominators))
    hits = interval_hits(ratios, np.exp(2.0))
    assert len(hits) == 2000
    assert 0.92 < np.mean(hits) < 0.99
    # the same with a numerator that is known
    ratios = []
    for _ in range(2000):
        denominators = rng.lognormal(0.0, 0.3, 8)
        ratios.append(race.ratio_of_means(7.0, denominators))
    hits = interval_hits(ratios, 7.0 / np.exp(0.3**2 / 2))
    assert 0.92 < np.mean(hits) < 0.99


def interval_hits(ratios: list[race.Ratio], truth: float) -> list[bool]:
    """Whether the truth is in the interval, for each ratio that has one."""
    hits = []
    for ratio in ratios:
        if ratio.low and ratio.high:
            hits.append(ratio.low < truth < ratio.high)
    return hits


def test_one_run_gives_no_interval() -> None:
    ratio_of_one_run = race.ratio_of_means([3.0], [1.5])
    assert ratio_of_one_run == race.Ratio(2.0, None, None)
    ratio_of_two_runs = race.ratio_of_means(3.0, [1.0, 1.0])
    assert ratio_of_two_runs == race.Ratio(3.0, 3.0, 3.0)


def test_arrays_go_through_a_pipe_as_they_are_and_its_end_is_told() -> None:
    arrays = [
        np.zeros(0),
        np.array([[True, False], [True, True]]),
        np.array([0.1, -2.5]),
    ]
    pipe = BytesIO()
    for array in arrays:
        shapiq_process.send(pipe, array)
    without_last_byte = pipe.getvalue()[:-1]
    pipe.seek(0)
    for array in arrays:
        received_array = shapiq_process.receive(pipe)
        assert received_array.dtype == array.dtype
        assert_array_equal(received_array, array)
    assert shapiq_process.receive(pipe) is None
    pipe = BytesIO(without_last_byte)
    is_at_end = [shapiq_process.receive(pipe) is None for _ in arrays]
    assert is_at_end == [False, False, True]


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A program that asks for coalitions as shapiq does, and answers with made-up values."""
    program = tmp_path / "python"
    text = STAND_IN.format(python=sys.executable, benchmarks=str(BENCHMARKS))
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program


STAND_IN = """#!{python}
import sys
sys.path.insert(0, {benchmarks!r})
import numpy as np
from comparison.shapiq_process import receive, send
name = sys.argv[2]
players, seed, count = map(int, sys.argv[3:])
requests = sys.stdout.buffer
values = sys.stdin.buffer
if name == "OddSHAP":
    sys.exit("not here")
send(requests, np.zeros(0))
for times in (1, 3):
    coalitions = np.random.default_rng(seed).random((times * count, players)) < 0.5
    send(requests, coalitions)
    send(requests, np.full(players, 1.0 * times) + 0 * receive(values).sum())
"""


def test_a_process_asks_for_values_and_its_runs_count_by_their_coalitions(stand_in: Path) -> None:
    game = small_game()
    peer_of_name = {peer.name: peer for peer in peers.newer(stand_in)}
    estimates = peer_of_name["shapiq RegressionMSR"].start(game, 1)
    first_estimate = next(estimates)
    assert_array_equal(first_estimate.values, np.full(game.players, 1.0))
    second_estimate = next(estimates)
    mean_by_coalitions = (1 * 1 + 3 * 3) / 4
    assert_allclose(second_estimate.values, np.full(game.players, mean_by_coalitions))
    with raises("benchmark.process_ended", "RegressionMSR", "Python 3.12"):
        next(estimates)
    with raises("benchmark.process_ended", "OddSHAP"):
        peer_of_name["shapiq OddSHAP"].start(game, 1)


def test_harmful_heads_are_named_and_the_rest_of_the_time_is_worked_out() -> None:
    """Two of four heads are surely harmful; a third would be after more of the same."""
    gains = np.array(
        [
            [900, 900, 40, 0],
            [124, 124, 964, 1000],
            [0, 0, 20, 24],
        ]
    )
    plan = SamplingPlan(1 << 20, 0.001, "width", 0.95, 1.0)
    tally = Tally(
        counts=gains,
        draws=1024,
        active=np.ones(4, bool),
        plan=plan,
        second=gains // 2,
        support=np.array([-1.0, 0.0, 1.0]),
    )
    long_run = setting.LongRun(tally, 10.0, 100)
    two_heads = guarantee.seconds_to_named_heads(long_run, 512, 2)
    assert two_heads == guarantee.Named(2, 10.0, True, 2)
    three_heads = guarantee.seconds_to_named_heads(long_run, 512, 3)
    assert three_heads.measured is False
    assert three_heads.named == 2
    assert three_heads.seconds > 10
    assert three_heads.seconds % 5 == 0  # full cycles of 5 s


def fake_peer(wrapping: str, min_coalitions: int) -> peers.Peer:
    def start(game: Game, seed: int) -> Iterator[Estimate]:
        values = np.full(game.players, float(seed))
        return (Estimate(values) for _ in count())

    return peers.Peer(
        f"needs {min_coalitions}",
        wrapping,
        "",
        start,
        lambda players: min_coalitions,
    )


@pytest.mark.parametrize("estimand", [ALL_SIZES, TOP50])
def test_the_first_version_meets_the_exact_values_too(estimand: str) -> None:
    """Otherwise its speed would be compared for another quantity."""
    game = small_game()
    plan = SamplingPlan(1200, None, "width", 0.999, 1.0)
    *_, tally = previous.estimate(game, plan, seed=1, estimand=estimand)
    low, high = tally.interval()

    def value(present: frozenset[int]) -> float:
        return present_value(game, present)

    if estimand == ALL_SIZES:
        truth = np.array(reference.full_shapley(value, game.players))
    else:
        truth = np.array(reference.top_half_shapley(value, game.players))
    is_inside = (low <= truth) & (truth <= high)
    assert is_inside.all()
    assert_allclose(tally.outcome().values, truth, atol=0.1)


def test_a_long_run_of_the_first_version_goes_on_where_it_was_left(tmp_path: Path) -> None:
    game = small_game()
    plan = SamplingPlan(64, None, "width", 0.95, 1.0)
    uninterrupted_setting = made_up_setting(tmp_path / "a", game)
    uninterrupted_run = setting.long_run(
        uninterrupted_setting,  # type: ignore[arg-type]
        plan,
        3,
        ALL_SIZES,
        60,
        former=True,
    )
    resumed_setting = made_up_setting(tmp_path / "b", game)
    setting.long_run(resumed_setting, plan, 3, ALL_SIZES, 0, former=True)  # type: ignore[arg-type]
    resumed_run = setting.long_run(resumed_setting, plan, 3, ALL_SIZES, 60, former=True)  # type: ignore[arg-type]
    assert_array_equal(resumed_run.tally.counts, uninterrupted_run.tally.counts)


def test_a_peer_that_does_not_fit_into_the_time_is_told_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_peer = fake_peer(peers.WHOLE_SET, 1000)
    fast_peer = fake_peer(peers.WHOLE_SET, 10)
    peer_of_one_example = fake_peer(peers.ONE_EXAMPLE, 1)
    monkeypatch.setattr(race, "PEERS", (slow_peer, fast_peer, peer_of_one_example))
    made_up = SimpleNamespace(
        game=small_game(),
        evaluator=SimpleNamespace(forwards=0),
        seconds=lambda part: 60.0,
    )
    runs, missing = race.whole_set(made_up, forward=0.1)  # type: ignore[arg-type]
    assert [run.title for run in runs] == [fast_peer.title]
    assert missing == {slow_peer.title: pytest.approx(1000 * 4 * 0.1)}


def test_everybody_races_with_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_peer = fake_peer(peers.ONE_EXAMPLE, 1000)
    fast_peers = (fake_peer(peers.ONE_EXAMPLE, 1), fake_peer(peers.WHOLE_SET, 1))
    monkeypatch.setattr(race, "PEERS", (*fast_peers, slow_peer))
    game = small_game()
    made_up = SimpleNamespace(
        small_rounds=lambda: game,
        game=game,
        evaluator=SimpleNamespace(forwards=0),
        seconds=lambda part: 1.0,
        seeds=2,
        newer=None,
    )
    runs, missing = race.race(made_up, forward=0.01)  # type: ignore[arg-type]
    assert missing == {slow_peer.title: pytest.approx(10.0)}
    titles = [
        race.OURS,
        race.FORMER,
        race.PLAIN,
        f"needs 1 ({peers.ONE_EXAMPLE})",
    ]
    expected_runs = []
    for seed in (1, 2):
        expected_runs += [(title, seed) for title in titles]
    assert [(run.title, run.seed) for run in runs] == expected_runs
    assert all(run.points[-1].seconds >= 0.1 for run in runs)
    assert (runs[3].points[-1].values == 1).all()
    assert runs[0].points[-1].width is not None


def test_the_noise_of_the_reference_is_taken_off(rng: np.random.Generator) -> None:
    noise = rng.normal(0, 0.3, 50_000)
    noisy = race.Reference(noise, np.full(50_000, 0.3), 1)
    estimates = rng.normal(0, 0.4, 50_000)
    assert noisy.squared_error(estimates) == pytest.approx(0.16, rel=0.05)


def test_a_regression_stays_below_the_size_where_shapiq_lists_all_single_heads() -> None:
    for players in (12, 144):
        sizes = np.arange(1, players)
        shares = 1 / (sizes * (players - sizes))
        share_of_single_heads = shares[0] / shares.sum()
        single_heads = peers.regression_size(players) * share_of_single_heads
        assert single_heads < players


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def spec_unless_shapiq(name: str) -> str | None:
        return None if name == "shapiq" else name

    monkeypatch.setattr(importlib.util, "find_spec", spec_unless_shapiq)
    with raises("package.missing", "shapiq", "pip install -r requirements-bench"):
        peers.require()


@pytest.mark.parametrize("shares", [setting.SHARES, setting.OTHER_SHARES])
def test_the_parts_leave_a_little_of_the_time(shares) -> None:
    assert 0.9 < sum(shares.values()) < 1


@pytest.mark.skipif(not RESULTS.exists(), reason="the comparison has not been run")
def test_the_committed_figures_say_what_they_depend_on() -> None:
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert {
        "machine",
        "commit",
        "command",
        "resume_speedup",
        "speedup_to_guarantee",
        "speedup_to_equal_error",
    } <= set(figures)
    assert figures["finished"]
    assert figures["setting"]["size"] == 512
    all_peers = (*peers.PEERS, *peers.newer(Path("python3.12")))
    titles = {*figures["speedup_to_equal_error"], *figures["not_run"]}
    assert {peer.title for peer in all_peers} - titles <= {"shapiq PolySHAP (one example)"}
    for goal in figures["goals"]:
        assert goal["met"] == (goal["reached"] >= goal["times"])
    speedups = [figures["speedup_to_guarantee"]]
    speedups += figures["speedup_to_equal_error"].values()
    for ratio in speedups:
        assert ratio["low"] <= ratio["times"] <= ratio["high"]
    ours = figures["guarantee"]["ours"]
    paper = figures["guarantee"]["paper_extrapolated"]["range 1"]
    seconds = np.mean([run["seconds"] for run in ours])
    expected_speedup = paper["seconds_padded_to_128"] / seconds
    speedup = figures["speedup_to_guarantee"]["times"]
    assert speedup == pytest.approx(expected_speedup, rel=1e-3)
    assert {"equal_error", "guarantee"} <= set(figures["speedup_over_previous"])


@pytest.mark.soak
def test_the_throughput_of_a_tiny_model_can_be_measured() -> None:
    """The path that a GPU takes, from the command line to the report; it writes nothing."""
    times_before = times_of_results()
    script = str(ROOT / "benchmarks" / "throughput.py")
    command = [sys.executable, script, "--smoke", "--device", "cpu"]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=ROOT,
    )
    start = process.stdout.index("\n{")
    report = json.loads(process.stdout[start:])
    assert report["model"] == "tiny"
    shares = report["time_of_branching_passes"]
    assert shares["matrix products"] + shares["attention"] > 0
    assert process.stdout.count("agreement=1.0") >= 3
    assert times_of_results() == times_before


def times_of_results() -> dict[Path, int]:
    """When each file of results was last written."""
    return {path: path.stat().st_mtime_ns for path in RESULTS.parent.iterdir()}


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (
            "= 1 failed, 4432 passed, 30 skipped, 1 rerun in 2112.97s (0:35:12) =",
            (4432, 1, 0, 30, 0, 1),
        ),
        ("12 passed, 3 deselected in 5.01s", (12, 0, 0, 0, 3, 0)),
        ("= 2 passed, 1 error in 3.00s =", (2, 0, 1, 0, 0, 0)),
        ("make: *** [test] Error 2", (0, 0, 0, 0, 0, 0)),
    ],
)
def test_the_suites_closing_line_is_read(line, counts):
    line_of_an_earlier_run = "= 9 passed in 1.00s =\n" if any(counts) else ""
    assert tuple(suite.closing_counts(line_of_an_earlier_run + line).values()) == counts


def test_reported_16_a_mask_that_was_asked_for_before_is_one_figure_first_and_final() -> None:
    """Many sessions ask for the same masks with one head off.

    The worker remembers their figures and sends the final one at once.
    """
    mask = full_mask(HeadGrid.from_json({"encoder": [2]}))
    for figures in ([{"done": True}], [{"done": False}, {"done": True}]):
        client = SimpleNamespace(evaluate=lambda _, figures=figures: iter(figures))
        first_seconds, final_seconds = sessions.toggle(client, "de", mask, "a")
        assert 0 <= first_seconds <= final_seconds
        is_final_at_once = first_seconds == final_seconds
        assert is_final_at_once == (len(figures) == 1)


def test_the_ratio_of_waits_is_that_of_medians_and_few_waits_have_no_interval():
    earlier = [100.0, 110.0, 90.0, 105.0, 95.0]
    head = [2 * wait for wait in earlier]
    row = before.ratio(earlier, head)
    assert row["times"] == 2.0
    assert row["low"] < 2.0 < row["high"]
    assert before.ratio(earlier, head) == row
    few = before.ratio([100.0, 110.0], [105.0, 105.0])
    assert few["times"] == 1.0
    assert "low" not in few


def test_figures_that_a_clone_came_with_are_not_taken_for_measured_ones(tmp_path):
    folder = tmp_path / "clone"
    results = folder / "benchmarks" / "results"
    results.mkdir(parents=True)
    (results / "sessions.json").write_text('{"settings": []}')
    (folder / "benchmarks" / "sessions.py").write_text("raise SystemExit('a session failed')")
    with pytest.raises(SystemExit, match="no figures"):
        before.run_benchmark(folder, "sessions")
