"""Values of heads that are sampled until their sign is decided lean away from 0.

How far they lean, and where users are told.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.cached_scores import made_scores

from headlab.cli.score import print_scores, scores_record
from headlab.dashboard.panels.heads.head_tables import table_of_heads
from headlab.dashboard.widgets import maps_title
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


def sampled_outcome(
    up_chance: float,
    down_chance: float,
    stop: str,
    weight: int = WEIGHT,
) -> Outcome:
    """Made-up heads that are all alike, sampled as `shapley` samples them.

    Args:
        up_chance: Probability of a gain of 1.
        down_chance: Probability of a gain of -1.
        stop: The setting of that name, `sign` or `width`.
        weight: The weight of a gain that is computed; it is drawn as much more rarely.
    """
    rng = np.random.default_rng([7, weight])
    support = weighted_support(1, weight)
    tally = empty_tally(
        HEADS,
        support,
        SamplingPlan(
            samples=CYCLE * CYCLES,
            target=TARGET,
            stop=stop,
            level=0.95,
            span=1.0,
        ),
        0,
    )
    zero = len(support) // 2
    top = len(support) - 1
    while not tally.is_finished:
        uniforms = rng.random((CYCLE, HEADS))
        levels = np.full(uniforms.shape, zero)
        levels[uniforms > 1 - down_chance / weight] = 0
        levels[uniforms < up_chance / weight] = top
        active = np.broadcast_to(tally.active, uniforms.shape)
        in_second_half = np.zeros(CYCLE, bool)
        tally = tally.add(levels, active, CYCLE, in_second_half)
        tally = tally.without_satisfied_heads().learned()
    return tally.outcome()


def outward_lean(outcome: Outcome, truth: float) -> tuple[float, float]:
    """How far values lie beyond the truth, away from 0: mean over heads and its standard error."""
    leans = np.sign(truth) * (outcome.values - truth)
    standard_error = leans.std() / np.sqrt(len(leans))
    return float(leans.mean()), float(standard_error)


@pytest.mark.parametrize(
    ("up_chance", "down_chance"),
    [(0.16, 0.06), (0.08, 0.03), (0.04, 0.01), (0.015, 0.045)],
)
def test_reported_14_with_stop_sign_values_lean_away_from_0_and_with_stop_width_they_do_not(
    up_chance, down_chance
):
    truth = up_chance - down_chance
    lean, error = outward_lean(sampled_outcome(up_chance, down_chance, "sign"), truth)
    assert lean > 3 * error
    assert 0.03 * abs(truth) < lean < 0.3 * abs(truth)  # a tenth or so
    lean, error = outward_lean(sampled_outcome(up_chance, down_chance, "width"), truth)
    assert abs(lean) < max(3.5 * error, 0.001)


def test_reported_14_small_values_of_decided_heads_lean_by_half_or_more():
    """They were decided because they came out large; their wide intervals say so."""
    truth = 0.01
    outcome = sampled_outcome(0.02, 0.01, "sign")
    is_decided = (outcome.low > 0) | (outcome.high < 0)
    assert 0.1 < is_decided.mean() < 0.9
    assert (outcome.values[is_decided] - truth).mean() > truth / 2
    is_covered = (outcome.low <= truth) & (truth <= outcome.high)
    assert is_covered.mean() > 0.95


def test_reported_14_rare_gains_lean_by_next_to_nothing_with_stop_width():
    """Where nearly all gains are 0, an interval narrows sooner if few are not: values lean to 0."""
    lean, _ = outward_lean(sampled_outcome(0.004, 0.0, "width"), 0.004)
    assert -0.001 < lean < 0.0005


@pytest.mark.parametrize(
    ("heads", "runs", "max_lean"),
    [(1, 60, 0.02), (12, 15, 0.002)],
)
def test_reported_14_where_a_run_ends_for_all_heads_at_once_the_lean_is_divided_by_their_number(
    heads, runs, max_lean
):
    rng = np.random.default_rng(heads)
    truth = 0.05
    plan = SamplingPlan(
        samples=8192,
        target=TARGET,
        stop="sign",
        level=0.95,
        span=1.0,
    )
    leans = []
    for _ in range(runs):
        tally = Tally.start(heads, even_support(1), plan)
        while not tally.is_finished:
            uniforms = rng.random((monte_carlo.CHECK_INTERVAL, heads))
            levels = np.ones(uniforms.shape, np.int64)
            levels[uniforms > 0.97] = 0
            levels[uniforms < 0.08] = 2
            draws = len(levels)
            is_sampled = np.ones(levels.shape, bool)
            in_second_half = np.zeros(draws, bool)
            tally = tally.add(levels, is_sampled, draws, in_second_half)
            if tally.satisfied().all():
                tally = tally.without_satisfied_heads()
        leans.append((tally.outcome().values - truth).mean())
    min_lean = 0.003 if heads == 1 else -0.001
    assert min_lean < np.mean(leans) < max_lean


def test_reported_14_the_papers_recipe_leans_too():
    rng = np.random.default_rng(3)
    runs = 2000
    truth = 0.1
    zeros = np.zeros(runs)
    moments = paper.Moments(
        count=zeros.astype(np.int64),
        total=zeros,
        square=zeros,
        draws=0,
        samples=400,
        delta=0.1,
        span=1.0,
    )
    while not moments.is_finished:
        is_sampled = moments.active
        possible_gains = np.clip(rng.normal(truth, 0.2, runs), -1, 1)
        gains = np.where(is_sampled, possible_gains, 0)
        moments = paper.Moments(
            count=moments.count + is_sampled,
            total=moments.total + gains,
            square=moments.square + gains**2,
            draws=moments.draws + 1,
            samples=moments.samples,
            delta=moments.delta,
            span=moments.span,
        )
    assert 0.001 < (moments.mean - truth).mean() < 0.006


# Where it is said.


def shapley(
    stop: str = "sign",
    samples: int = 512,
    width: float = 0.02,
    target: float | None = TARGET,
) -> HeadScores:
    """Two heads help, one harms, and the others are undecided."""
    scores = made_scores("de", "shapley")
    values = np.zeros(scores.grid.size)
    values[:2] = 0.1
    values[2] = -0.1
    options = {**scores.spec["method"]["options"], "stop": stop, "target": target}
    method = {**scores.spec["method"], "options": options, "version": 3}
    samples_by_head = np.full(scores.grid.size, 8192)
    samples_by_head[:3] = samples
    return replace(
        scores,
        values=values,
        low=values - width,
        high=values + width,
        samples=samples_by_head,
        spec={**scores.spec, "method": method},
    )


def test_reported_14_heads_stopped_at_their_sign_are_neither_narrow_nor_fully_sampled():
    stopped_heads = np.flatnonzero(stopped_at_sign(shapley()))
    assert stopped_heads.tolist() == [0, 1, 2]
    for scores in (
        shapley("width"),
        shapley(samples=8192),
        shapley(width=0.009),
        shapley(target=None),
    ):
        assert not stopped_at_sign(scores).any()
        assert remarks([scores]) == ()
    (remark,) = remarks([shapley(), shapley("width")])
    assert remark.startswith(
        "3 of 288 heads were let go as soon as their sign was decided: their values lean away "
    )
    assert "stop=width" in remark


def test_reported_14_runs_of_other_methods_have_a_remark_where_they_lean():
    walk_length = (144 + 1) // 2
    scores = shapley()
    samples_by_head = np.full(144, 300 * walk_length // 144)
    by_orders = replace(scores, method="monte-carlo", samples=samples_by_head)
    # With so many heads, the last one to be decided hardly moves the others.
    assert remarks([by_orders]) == ()
    assert costs.ended_at_sign(by_orders)
    fully_sampled = replace(by_orders, samples=np.full(144, 8192), estimand="shapley")
    assert not costs.ended_at_sign(fully_sampled)
    paper_spec = {**scores.spec, "method": {"name": "paper", "options": {}}}
    by_recipe = replace(scores, method="paper", spec=paper_spec, samples=np.full(144, 40))
    assert any(
        remark.startswith("3 of 144 heads") and "0.001 to 0.003" in remark
        for remark in remarks([by_recipe])
    )
    fully_sampled = replace(by_recipe, samples=np.full(144, 100))
    assert not any("lean" in remark for remark in remarks([fully_sampled]))
    assert remarks([made_scores("de", "leave-one-out")]) == ()
    assert remarks([replace(scores, method="another-package-s")]) == ()


def test_reported_14_the_command_line_prints_the_remark_and_json_holds_it(capsys):
    scores = {"de": shapley(), "th": shapley("width")}
    print_scores(scores)
    german, thai = capsys.readouterr().out.splitlines()
    (remark,) = remarks([scores["de"]])
    assert german.endswith(remark)
    assert "lean" not in thai
    assert scores_record(scores["de"])["notes"] == [remark]
    assert "notes" not in scores_record(scores["th"])


def test_reported_14_a_choice_of_heads_by_size_has_the_remark_and_one_by_sign_has_none():
    scores = {"de": shapley(), "th": shapley("width")}
    for rule in ("bottom", "threshold"):
        remarks_on_german = remarks_on_choice([scores["de"]], rule)
        assert remarks_on_german == remarks([scores["de"]])
        assert remarks_on_german != ()
        assert remarks_on_choice([scores["th"]], rule) == ()
    assert remarks_on_choice([scores["de"]], "harmful") == ()


def test_reported_14_the_remark_stands_beside_values_on_pages_in_the_report_and_in_csv():
    scores = {"de": shapley(), "th": replace(shapley("width"), language="th")}
    (remark,) = remarks(scores.values())
    assert "were let go as soon as their sign was decided" in maps_title(scores)
    table = table_of_heads(scores)
    german_notes = table.loc[table["language"] == "de", "note"]
    thai_notes = table.loc[table["language"] == "th", "note"]
    assert set(german_notes) == set(remarks([scores["de"]]))
    assert thai_notes.isna().all()
    assert "note" not in table_of_heads({"th": scores["th"]})
    items = [Item(scores_of_language, name) for name, scores_of_language in scores.items()]
    page = html_of_document(document(items)).decode()
    assert remark[10:60] in page
