"""Two results side by side: what differs, with which intervals, and what the pages say of it."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from support.app_pages import app_on, page_text, run_page
from support.cached_reports import keep_report
from support.cached_scores import GRID, fill_cache, made_scores
from support.expected_errors import raises
from support.fake_client import loaded_model
from support.page_actions import choose
from support.synthetic_gates import THREE_STACKS, keep_gates, made_gates
from support.synthetic_roles import HEAD_ROLES, TWO_ROLES, made_roles

from headlab.core import Head, HeadGrid, Stack
from headlab.dashboard.pages.gates.other_runs import shared_heads_sentence
from headlab.dashboard.pages.roles.other_reports import roles_that_differ
from headlab.dashboard.panels.heads.contrast import (
    NO_COMPARISON,
    OTHER_LANGUAGES,
    comparable_scores_by_key,
    comparison_label,
    comparison_maps,
    comparison_notes,
    comparison_sentence,
    head_changes_table,
)
from headlab.results import HeadScores, Result, ResultLabel, Store, contrast
from headlab.roles import read_roles

pytestmark = pytest.mark.usefixtures("native_buttons")
SMALL_GRID = HeadGrid((Stack("encoder", (2, 2)),))


def scores(
    values: list[float], width: float | None = 0.5, unit: str = "accuracy", level: float = 0.95
) -> HeadScores:
    """Scores of four heads.

    Args:
        values: A value for each head.
        width: The half-width of each interval; None for scores without intervals.
        unit: What the values are counted in.
        level: The confidence of the intervals.
    """
    head_values = np.array(values)
    bounds = {}
    if width is not None:
        bounds = {"low": head_values - width, "high": head_values + width}
    return HeadScores(
        SMALL_GRID, "de", "shapley", head_values, "shapley", unit, 0, 0.0, level=level, **bounds
    )


def results_of(*records: HeadScores) -> list[Result[HeadScores]]:
    """Stored results with keys that are counted up."""
    results = []
    for number, record in enumerate(records):
        key = f"{number:02d}" * 32
        results.append(Result[HeadScores](key, Path(), record, {}))
    return results


def test_every_head_s_difference_rank_and_sign() -> None:
    wide_scores = scores([1.0, -1.0, 0.2, 3.0])
    narrow_scores = scores([-1.0, -2.5, -0.1, 2.5], 0.25, level=0.99)
    comparison = contrast(wide_scores, narrow_scores)
    assert_allclose(comparison.difference, [2.0, 1.5, 0.3, 0.5])
    assert_allclose(comparison.low, [1.25, 0.75, -0.45, -0.25])
    assert_allclose(comparison.high, [2.75, 2.25, 1.05, 1.25])
    assert comparison.level == pytest.approx(0.94)
    wide_ranks, narrow_ranks = comparison.ranks
    assert wide_ranks.tolist() == [2, 4, 3, 1]
    assert narrow_ranks.tolist() == [3, 4, 2, 1]
    assert comparison.turned.tolist() == [True, False, True, False]
    assert comparison.surely.tolist() == [True, False, False, False]
    assert comparison.clear.tolist() == [True, True, False, False]


def test_the_interval_covers_as_often_as_it_says_in_the_worst_case() -> None:
    """The worst case: each interval misses in one run of twenty, and never both in the same run."""
    runs = 4000
    miss = 0.05
    error_size = 50.0
    rng = np.random.default_rng(0)
    draws = rng.random((runs, 4))
    errors = np.where(draws < miss, error_size, 0.0)
    other_misses = (miss <= draws) & (draws < 2 * miss)
    other_errors = np.where(other_misses, error_size, 0.0)
    is_covered = []
    for errors_in_run, other_errors_in_run in zip(errors, other_errors, strict=True):
        scores_at_0 = scores(list(errors_in_run))
        scores_at_1 = scores(list(1 + other_errors_in_run))
        comparison = contrast(scores_at_0, scores_at_1)
        assert comparison.low is not None
        assert comparison.high is not None
        is_above_low = comparison.low <= -1
        is_below_high = comparison.high >= -1
        is_covered.append(is_above_low & is_below_high)
    assert comparison.level == pytest.approx(1 - 2 * miss)
    # The promised level is reached exactly: a higher one would not hold.
    assert np.mean(is_covered) == pytest.approx(comparison.level, abs=0.01)


def test_results_in_other_units_or_without_intervals_are_compared_as_far_as_they_can_be() -> None:
    rising = scores([1.0, 2.0, 3.0, 4.0])
    falling_loss = scores([4.0, 3.0, 2.0, 1.0], unit="loss")
    by_rank = contrast(rising, falling_loss)
    assert by_rank.difference is None
    assert by_rank.low is None
    assert by_rank.high is None
    assert not by_rank.clear.any()
    falling_without_bounds = scores([4.0, 3.0, 2.0, 1.0], None)
    without_bounds = contrast(rising, falling_without_bounds)
    assert_allclose(without_bounds.difference, [-3, -1, 1, 3])
    assert without_bounds.low is None
    assert without_bounds.high is None
    assert not without_bounds.surely.any()


def test_results_on_other_heads_are_refused() -> None:
    scores_of_144_heads = made_scores("de", "shapley")
    with raises("score.grids_differ", str(SMALL_GRID), str(scores_of_144_heads.grid)):
        contrast(scores([0.0] * 4), scores_of_144_heads)


def test_the_sentence_and_the_table_say_what_was_compared() -> None:
    german = made_scores("de", "shapley")
    thai = made_scores("th", "shapley")
    comparison = contrast(german, thai)
    sentence = comparison_sentence(comparison, german, thai)
    table = head_changes_table(comparison, german, thai, comparison_notes(german, thai))
    rho = spearmanr(german.values, thai.values).statistic
    assert f"ρ = {rho:.2f}".replace("-", "−") in sentence
    have_opposite_signs = german.values * thai.values < 0
    opposite_count = int(have_opposite_signs.sum())
    assert f"{opposite_count} of 144 heads have opposite signs, " in sentence
    assert " opposite signs, 0 of them with both intervals excluding 0." in sentence
    assert "at a confidence of at least 90 %" in sentence
    assert "different quantities" not in sentence
    thai_of_other_estimand = dataclasses.replace(thai, estimand="shapley")
    sentence = comparison_sentence(comparison, german, thai_of_other_estimand)
    assert "different quantities" in sentence
    shown_differences = np.abs(table.column("difference, points"))
    differences = np.abs(100 * (german.values - thai.values))
    sorted_differences = np.sort(differences)
    assert_allclose(shown_differences, sorted_differences[::-1])
    first_row = table.rows[0]
    layer = first_row[1]
    head = first_row[2]
    head_index = GRID.index(GRID.heads[12 * layer + head])
    values_of_head = [
        100 * german.values[head_index],
        100 * thai.values[head_index],
    ]
    assert_allclose(first_row[3:5], values_of_head)
    ranks = np.array(table.column("rank"))
    other_ranks = np.array(table.column("other rank"))
    assert table.column("ranks above the other") == (other_ranks - ranks).tolist()
    assert table.notes[0].startswith("Shown: e5-small-intents on intents,")
    assert table.notes[1].startswith("Other: e5-small-intents on intents,")


def test_the_maps_share_a_scale_where_the_unit_is_one_and_else_show_ranks() -> None:
    german = made_scores("de", "shapley")
    thai = made_scores("th", "shapley")
    comparison = contrast(german, thai)
    maps = comparison_maps(comparison, german, thai, ("a", "b"))
    german_map, thai_map, difference_map = maps.values()
    assert german_map.limit == thai_map.limit
    differences = 100 * (german.values - thai.values)
    assert_allclose(difference_map.values, differences)
    assert_array_equal(difference_map.marks != 0, comparison.clear)
    gradient_scores = made_scores("de", "gradient")
    comparison = contrast(german, gradient_scores)
    maps = comparison_maps(comparison, german, gradient_scores, ("a", "b"))
    *_, rank_map = maps.values()
    assert_array_equal(rank_map.values, gradient_scores.ranks - german.ranks)
    sentence = comparison_sentence(comparison, german, gradient_scores)
    assert "opposite signs" not in sentence
    table = head_changes_table(comparison, german, gradient_scores, ())
    assert set(table.column("opposite signs")) == {None}


def test_a_constant_result_has_no_order() -> None:
    german = made_scores("de", "shapley")
    flat = dataclasses.replace(german, values=np.zeros(GRID.size))
    sentence = comparison_sentence(contrast(german, flat), german, flat)
    assert "no order to compare" in sentence


def test_a_result_with_a_name_has_it_in_the_list_of_results_to_compare_with(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path))
    store = Store(tmp_path)
    other_scores = made_scores("ar", "gradient")
    store.run(other_scores.spec).finish(other_scores, {"versions": {}})
    (other_result,) = store.scan().results
    store.set_label(other_result.key, ResultLabel("before the cut"))
    comparable_scores = comparable_scores_by_key([other_result], made_scores("de", "shapley"))
    assert [label for label, _ in comparable_scores.values()] == [
        "“before the cut”: Arabic (ar): gradient"
    ]


def test_labels_of_comparable_results_say_what_differs() -> None:
    shown_scores = made_scores("de", "shapley")
    other_weights = made_scores("de", "shapley", "1" * 64)
    another_model = made_scores("de", "shapley", "2" * 64, "another")
    task = {**shown_scores.spec["task"], "size": 64}
    smaller = dataclasses.replace(shown_scores, spec={**shown_scores.spec, "task": task})
    same_label = dataclasses.replace(smaller, spec={**smaller.spec, "format": 2})
    four_scores = scores([0.0] * 4)
    other_grid = dataclasses.replace(four_scores, spec=shown_scores.spec)
    results = results_of(
        made_scores("ar", "gradient"),
        shown_scores,
        other_weights,
        another_model,
        smaller,
        same_label,
        other_grid,
    )
    comparable_scores = comparable_scores_by_key(results, shown_scores)
    estimand = "German (de): shapley, estimand shapley-top50"
    assert [label for label, _ in comparable_scores.values()] == [
        f"{estimand}, 64 examples",
        f"{estimand}, 64 examples",
        f"{estimand}, weights 111111111111",
        f"{estimand}, model another",
        "Arabic (ar): gradient",
    ]

    method = {"name": "shapley", "options": ["a", "b"]}
    spec = {**another_model.spec, "method": method}
    odd_options = dataclasses.replace(another_model, spec=spec)
    assert comparison_label(odd_options, shown_scores).startswith("German (de): shapley")
    leave_one_out = made_scores("de", "leave-one-out")
    assert comparison_label(leave_one_out, shown_scores) == "German (de): leave-one-out"


# On the page.


@pytest.fixture
def filled_cache(tmp_path):
    with app_on(fill_cache(tmp_path / "cache")):
        yield tmp_path / "cache"


def compare_box(app):
    """The list of results to compare with."""
    (select_box,) = (box for box in app.selectbox if box.label == "Compare with")
    return select_box


def chosen_label(app) -> str:
    """The label of the result that is compared with."""
    select_box = compare_box(app)
    return select_box.format_func(select_box.value)


def test_a_result_is_chosen_on_the_heads_page_and_by_a_link(filled_cache) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de")
    key = thai_key(app)
    compare_box(app).set_value(key).run()
    assert not app.exception
    assert "Their rankings of the heads have Spearman" in page_text(app)
    assert app.query_params["against"] in (key, [key])
    linked_app = run_page("heads", langs=["de", "th"], focus="de", against=key)
    assert chosen_label(linked_app).startswith("Thai (th): shapley")
    assert "Their rankings of the heads have Spearman" in page_text(linked_app)


def thai_key(app) -> str:
    """Key of the Thai result by the method that is shown, with German as the language."""
    return key_of_label(app, "de", "Thai (th): shapley")


def key_of_label(app, language: str, label_start: str) -> str:
    """Key of the result that is listed under a label.

    Args:
        app: A page that shows scores of one language.
        language: That language.
        label_start: How the label begins.
    """
    labels = compare_box(app).options
    keys = [NO_COMPARISON, *keys_of_comparable_results(language)]
    if len(labels) > len(keys):
        keys.insert(1, OTHER_LANGUAGES)
    return next(
        key for key, label in zip(keys, labels, strict=True) if label.startswith(label_start)
    )


def keys_of_comparable_results(language: str) -> list[str]:
    from headlab.dashboard.frame import stored_results

    results = stored_results(HeadScores).results
    shown_spec = made_scores(language, "shapley").spec
    records = [result.record for result in results]
    (shown_scores,) = (record for record in records if record.spec == shown_spec)
    return list(comparable_scores_by_key(results, shown_scores))


def test_the_choice_is_remembered_while_the_chosen_result_itself_is_shown(filled_cache) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de")
    key = thai_key(app)
    compare_box(app).set_value(key).run()
    choose(app, "focus", "th")
    assert chosen_label(app) == "nothing"  # no result is compared with itself
    choose(app, "focus", "de")
    assert chosen_label(app).startswith("Thai (th): shapley")


def test_the_choice_holds_over_a_visit_to_another_page(filled_cache) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de")
    compare_box(app).set_value(thai_key(app)).run()
    app.switch_page("pages/jobs.py").run()
    app.query_params.clear()
    app.switch_page("pages/heads.py").run()
    assert chosen_label(app).startswith("Thai (th): shapley")


def test_a_language_is_compared_with_the_mean_of_the_others_at_first(filled_cache) -> None:
    app = run_page("heads", langs=["de", "th", "fi"], focus="de")
    assert chosen_label(app) == "the mean of the other 2 languages"
    assert "Other: the mean of Thai (th), Finnish (fi), by the same method" in page_text(app)
    (table,) = [
        frame.value
        for frame in app.dataframe
        if "rank" in frame.value and "other rank" in frame.value
    ]
    row = table[(table["layer"] == 3) & (table["head"] == 7)].iloc[0]
    german, thai, finnish = (made_scores(name, "shapley").values for name in ("de", "th", "fi"))
    expected = 100 * (german - (thai + finnish) / 2)[3 * 12 + 7]
    assert row["difference, points"] == pytest.approx(expected)
    linked_app = run_page("heads", langs=["de", "th"], focus="de")
    assert chosen_label(linked_app) == "the other language, Thai (th)"


def test_comparing_with_nothing_is_a_choice_that_the_link_holds(filled_cache) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de")
    compare_box(app).set_value(NO_COMPARISON).run()
    assert app.query_params["against"] in ("none", ["none"])
    assert "Their rankings of the heads" not in page_text(app)
    linked_app = run_page("heads", langs=["de", "th"], focus="de", against="none")
    assert chosen_label(linked_app) == "nothing"


def test_one_language_is_compared_with_nothing_at_first(filled_cache) -> None:
    app = run_page("heads", langs=["de"])
    assert chosen_label(app) == "nothing"
    assert "against" not in app.query_params


def test_a_link_to_a_result_that_is_not_here_says_so(filled_cache) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de", against="0123456789ab")
    assert "asks to compare with result '0123456789ab', which is not in the cache" in page_text(app)
    assert chosen_label(app) == "nothing"


def test_a_cache_of_one_result_has_nothing_to_compare(tmp_path) -> None:
    german = made_scores("de", "shapley")
    Store(tmp_path).run(german.spec).finish(german, {"versions": {}})
    with app_on(tmp_path):
        app = run_page("heads", langs=["de"])
        assert "Beside another result" not in [heading.value for heading in app.subheader]


# On pages that show all languages at once, and on those of roles and gates.


def headings(app) -> list[str]:
    return [heading.value for heading in app.subheader]


@pytest.mark.parametrize("page", ["overview", "prune"])
def test_a_page_of_several_languages_compares_one_of_them(worker, cache, page) -> None:
    fill_cache(cache)
    worker.load_model = partial(loaded_model, grid=GRID)
    worker.evaluate = lambda *arguments, **options: iter(())
    app = run_page(page, langs=["de", "th"], beside="th")
    assert app.selectbox(key="beside").value == "th"
    german_key = key_of_label(app, "th", "German (de): shapley")
    compare_box(app).set_value(german_key).run()
    assert not app.exception
    assert "Their rankings of the heads have Spearman" in page_text(app)
    link = {"beside": "th", "against": app.query_params["against"]}
    linked_app = run_page(page, langs=["de", "th"], **link)
    assert chosen_label(linked_app).startswith("German (de): shapley")


def test_a_page_with_one_result_compares_nothing(worker, cache) -> None:
    german = made_scores("de", "shapley")
    Store(cache).run(german.spec).finish(german, {"versions": {}})
    app = run_page("overview", langs=["de"])
    assert not [select_box for select_box in app.selectbox if select_box.label == "Compare with"]


def test_two_reports_of_roles_stand_side_by_side(worker, cache) -> None:
    keep_report(cache, made_roles("en"))
    key = keep_report(cache, made_roles("de", seed=1, shift=1))
    app = run_page("roles", langs=["en", "de"], focus="en")
    assert "Beside another result" in headings(app)
    compare_box(app).set_value(key[:12]).run()
    assert not app.exception
    assert app.selectbox(key="contrast-measure").options[0] == "Confidence"
    assert "Their rankings of the heads have Spearman" in page_text(app)
    tables = [frame.value for frame in app.dataframe]
    table = next(table for table in tables if "has it there" in table.columns)
    assert len(table) == 2 * (
        len(HEAD_ROLES) + len(TWO_ROLES)
    )  # each head's roles have moved to the next one
    assert (table["has it"] != table["has it there"]).all()


def test_roles_that_differ_have_the_interval_of_both_shares() -> None:
    roles_here = read_roles(made_roles("en", seed=0, shift=0))
    roles_there = read_roles(made_roles("en", seed=1, shift=1))
    table = roles_that_differ(roles_here, roles_there, ("a", "b"))
    rows_here = {}
    for row in roles_here.rows:
        rows_here[row.head, row.role] = row
    rows_there = {}
    for row in roles_there.rows:
        rows_there[row.head, row.role] = row
    for (
        stack,
        layer,
        head,
        role,
        has,
        has_there,
        share,
        share_there,
        difference,
        low,
        high,
    ) in table.rows:
        head_and_role = (Head(stack, layer, head), role)
        row_here = rows_here.get(head_and_role)
        row_there = rows_there.get(head_and_role)
        assert has == bool(row_here and row_here.has)
        assert has_there == bool(row_there and row_there.has)
        assert has != has_there
        if row_here and row_there:
            bounds_here = row_here.numbers
            bounds_there = row_there.numbers
            assert difference == pytest.approx(share - share_there)
            lowest = bounds_here["low, %"] - bounds_there["high, %"]
            highest = bounds_here["high, %"] - bounds_there["low, %"]
            assert low == pytest.approx(lowest)
            assert high == pytest.approx(highest)
        else:
            assert difference is None
            assert low is None
            assert high is None
    assert len(table.rows) > 0


def test_two_runs_of_gates_stand_side_by_side(worker, cache) -> None:
    keep_gates(cache, made_gates(weight=0.01))
    key = keep_gates(cache, made_gates(weight=0.06))
    app = run_page("gates", langs=["de"], weight="0.01")
    compare_box(app).set_value(key[:12]).run()
    assert not app.exception
    sentence = (
        "They keep 10 and 6 of 11 heads with a gate; both keep 6, "
        "and by chance it would be 5.5 on average"
    )
    assert sentence in page_text(app)
    assert "Neither has intervals" in page_text(app)
    assert "Head by head, the largest change first" in page_text(app)


def test_heads_without_a_gate_do_not_count_as_agreement() -> None:
    light_run = made_gates(weight=0.01, grid=THREE_STACKS, stacks="cross")
    heavy_run = made_gates(weight=0.06, grid=THREE_STACKS, stacks="cross")
    gated_in_both = light_run.has_gate & heavy_run.has_gate
    assert 0 < gated_in_both.sum() < THREE_STACKS.size
    sentence = shared_heads_sentence(light_run, heavy_run)
    assert f"of {gated_in_both.sum()} heads with a gate" in sentence


def test_heads_without_a_value_are_in_no_rank_correlation_and_no_row() -> None:
    scores_a = scores([1.0, np.nan, 3.0, 2.0], None)
    scores_b = scores([2.0, np.nan, 1.0, 3.0], None)
    comparison = contrast(scores_a, scores_b)
    rho = spearmanr([1, 3, 2], [2, 1, 3]).statistic
    sentence = comparison_sentence(comparison, scores_a, scores_b)
    assert f"ρ = {rho:.2f}".replace("-", "−") in sentence
    table = head_changes_table(comparison, scores_a, scores_b, ())
    layers_and_heads = [row[1:3] for row in table.rows]
    assert layers_and_heads == [(1, 0), (0, 0), (1, 1)]
    maps = comparison_maps(comparison, scores_a, scores_b, ("a", "b"))
    *_, difference_map = maps.values()
    assert difference_map.tips[1] == "no value"
    assert difference_map.colours[1] is None
