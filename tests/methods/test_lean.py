"""Values of heads that are sampled until their sign is decided lean away from 0: how far, and where that is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.cached_scores import made_up

from headlab.cli.score import print_scores, scores_record
from headlab.dashboard.pages.heads.tables import table_of_heads
from headlab.dashboard.widgets import how_to_read_maps
from headlab.methods import costs, monte_carlo, paper
from headlab.methods.costs import remarks, remarks_on_choice, stopped_at_sign
from headlab.methods.sampling import SamplingPlan, Tally, even_support, weighted_support
from headlab.methods.tmab import empty_tally
from headlab.methods.work import Outcome
from headlab.report.build import document, html_of_document
from headlab.report.parts import Item
from headlab.results import HeadScores

HEADS = 400
CYCLE = 512
CYCLES = 16
WEIGHT = 4
TARGET = 0.01


def played(up: float, down: float, stop: str, weight: int = WEIGHT) -> Outcome:
    """Made-up heads that are all alike, sampled as `shapley` samples them.

    Args:
        up, down: Probabilities of a gain of 1 and of -1.
        weight: Of a gain that is computed; it is drawn as much more rarely.
    """
    rng = np.random.default_rng([7, weight])
    support = weighted_support(1, weight)
    tally = empty_tally(HEADS, support, SamplingPlan(CYCLE * CYCLES, TARGET, stop, 0.95, 1.0), 0)
    zero = len(support) // 2
    top = len(support) - 1
    while not tally.finished:
        drawn = rng.random((CYCLE, HEADS))
        places = np.where(drawn < up / weight, top, np.where(drawn > 1 - down / weight, 0, zero))
        active = np.broadcast_to(tally.active, drawn.shape)
        tally = tally.add(places, active, CYCLE, np.zeros(CYCLE, bool)).looked_at().learned()
    return tally.outcome()


def outward(outcome: Outcome, truth: float) -> tuple[float, float]:
    """How far the values lie beyond the truth on the mean, away from 0, and the standard error of that."""
    beyond = np.sign(truth) * (outcome.values - truth)
    return float(beyond.mean()), float(beyond.std() / np.sqrt(len(beyond)))


@pytest.mark.parametrize(("up", "down"), [(0.16, 0.06), (0.08, 0.03), (0.04, 0.01), (0.015, 0.045)])
def test_reported_14_with_stop_sign_values_lean_away_from_0_and_with_stop_width_they_do_not(
    up, down
):
    truth = up - down
    lean, error = outward(played(up, down, "sign"), truth)
    assert lean > 3 * error
    assert 0.03 * abs(truth) < lean < 0.3 * abs(truth)  # a tenth or so
    lean, error = outward(played(up, down, "width"), truth)
    assert abs(lean) < max(3.5 * error, 0.001)


def test_reported_14_small_values_of_decided_heads_lean_by_half_or_more():
    """They were decided because they came out large: their intervals are as wide as that says."""
    truth = 0.01
    outcome = played(0.02, 0.01, "sign")
    decided = (outcome.low > 0) | (outcome.high < 0)
    assert 0.1 < decided.mean() < 0.9
    assert (outcome.values[decided] - truth).mean() > truth / 2
    assert ((outcome.low <= truth) & (truth <= outcome.high)).mean() > 0.95


def test_reported_14_rare_gains_lean_by_next_to_nothing_with_stop_width():
    """Where hardly a gain is not 0, an interval is narrow sooner when the gains were few: towards 0, very little."""
    lean, _ = outward(played(0.004, 0.0, "width"), 0.004)
    assert -0.001 < lean < 0.0005


@pytest.mark.parametrize(("heads", "runs", "most"), [(1, 60, 0.02), (12, 15, 0.002)])
def test_reported_14_a_run_that_ends_for_all_heads_leans_by_a_head_s_lean_over_their_number(
    heads, runs, most
):
    rng = np.random.default_rng(heads)
    truth = 0.05
    leans = []
    for _ in range(runs):
        tally = Tally.start(heads, even_support(1), SamplingPlan(8192, TARGET, "sign", 0.95, 1.0))
        while not tally.finished:
            drawn = rng.random((monte_carlo.CHECK_INTERVAL, heads))
            places = np.where(drawn < 0.08, 2, np.where(drawn > 0.97, 0, 1))
            tally = tally.add(
                places, np.ones_like(places, bool), len(places), np.zeros(len(places), bool)
            )
            tally = tally.looked_at() if tally.satisfied().all() else tally
        leans.append((tally.outcome().values - truth).mean())
    assert (0.003 if heads == 1 else -0.001) < np.mean(leans) < most


def test_reported_14_the_papers_recipe_leans_too():
    rng = np.random.default_rng(3)
    runs = 2000
    truth = 0.1
    none = np.zeros(runs)
    now = paper.Moments(none.astype(np.int64), none, none, 0, 400, 0.1, 1.0)
    while not now.finished:
        turn = now.active
        gains = np.where(turn, np.clip(rng.normal(truth, 0.2, runs), -1, 1), 0)
        sums = now.total + gains, now.square + gains**2
        now = paper.Moments(
            now.count + turn, *sums, now.draws + 1, now.samples, now.delta, now.span
        )
    assert 0.001 < (now.mean - truth).mean() < 0.006


# Where it is said.


def shapley(
    stop: str = "sign", samples: int = 512, width: float = 0.02, target: float | None = TARGET
) -> HeadScores:
    """Two heads help, one harms, and the others are undecided."""
    made = made_up("de", "shapley")
    values = np.zeros(made.grid.size)
    values[:2], values[2] = 0.1, -0.1
    options = {**made.spec["method"]["options"], "stop": stop, "target": target}
    spec = {**made.spec, "method": {**made.spec["method"], "options": options, "version": 3}}
    drawn = np.full(made.grid.size, 8192)
    drawn[:3] = samples
    return replace(
        made, values=values, low=values - width, high=values + width, samples=drawn, spec=spec
    )


def test_reported_14_heads_that_a_sign_let_go_are_those_neither_narrow_nor_sampled_to_the_end():
    assert np.flatnonzero(stopped_at_sign(shapley())).tolist() == [0, 1, 2]
    for other in (
        shapley("width"),
        shapley(samples=8192),
        shapley(width=0.009),
        shapley(target=None),
    ):
        assert not stopped_at_sign(other).any()
        assert remarks([other]) == ()
    (remark,) = remarks([shapley(), shapley("width")])
    assert remark.startswith(
        "3 of 288 heads were let go as soon as their sign was decided: their values lean away "
    )
    assert "stop=width" in remark


def test_reported_14_runs_of_other_methods_say_it_where_it_is_so():
    walk = (144 + 1) // 2
    plain = shapley()
    by_orders = replace(plain, method="monte-carlo", samples=np.full(144, 300 * walk // 144))
    assert remarks([by_orders]) == ()  # of so many heads the last one moves none noticeably
    assert costs.ended_at_sign(by_orders)
    all_drawn = replace(by_orders, samples=np.full(144, 8192), estimand="shapley")
    assert not costs.ended_at_sign(all_drawn)
    recipe = replace(
        plain, method="paper", spec={**plain.spec, "method": {"name": "paper", "options": {}}}
    )
    recipe = replace(recipe, samples=np.full(144, 40))
    assert any(
        remark.startswith("3 of 144 heads") and "0.001 to 0.003" in remark
        for remark in remarks([recipe])
    )
    assert not any(
        "lean" in remark for remark in remarks([replace(recipe, samples=np.full(144, 100))])
    )
    assert remarks([made_up("de", "leave-one-out")]) == ()
    assert remarks([replace(plain, method="another-package-s")]) == ()


def test_reported_14_the_command_line_prints_it_and_json_holds_it(capsys):
    scores = {"de": shapley(), "th": shapley("width")}
    print_scores(scores)
    german, thai = capsys.readouterr().out.splitlines()
    (remark,) = remarks([scores["de"]])
    assert german.endswith(remark)
    assert "lean" not in thai
    assert scores_record(scores["de"])["notes"] == [remark]
    assert "notes" not in scores_record(scores["th"])


def test_reported_14_a_choice_of_heads_by_size_says_it_and_one_by_sign_does_not():
    scores = {"de": shapley(), "th": shapley("width")}
    for rule in ("bottom", "threshold"):
        assert remarks_on_choice([scores["de"]], rule) == remarks([scores["de"]]) != ()
        assert remarks_on_choice([scores["th"]], rule) == ()
    assert remarks_on_choice([scores["de"]], "harmful") == ()


def test_reported_14_it_stands_beside_the_values_on_pages_in_the_report_and_in_csv():
    scores = {"de": shapley(), "th": replace(shapley("width"), language="th")}
    (remark,) = remarks(scores.values())
    assert "were let go as soon as their sign was decided" in how_to_read_maps(scores)
    table = table_of_heads(scores)
    assert set(table.loc[table["language"] == "de", "note"]) == set(remarks([scores["de"]]))
    assert table.loc[table["language"] == "th", "note"].isna().all()
    assert "note" not in table_of_heads({"th": scores["th"]})
    page = html_of_document(document([Item(one, name) for name, one in scores.items()])).decode()
    assert remark[10:60] in page
