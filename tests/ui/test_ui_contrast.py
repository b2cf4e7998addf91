"""Two results side by side: what differs, how surely, and what the Heads page says of it."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from support.app_pages import app_on, run_page, said
from support.cached_reports import keep as keep_report
from support.cached_scores import GRID, fill, made_up
from support.expected_errors import raises
from support.fake_client import loaded_model
from support.synthetic_gates import THREE, keep, made_gates
from support.synthetic_roles import OWN, TWO, made_roles

from headlab.core import Head, HeadGrid, Stack
from headlab.dashboard.pages.gates.other_runs import shared_heads_sentence
from headlab.dashboard.pages.roles.other_reports import roles_that_differ
from headlab.dashboard.panels.contrast import (
    comparable_scores_by_key,
    comparison_label,
    comparison_maps,
    comparison_notes,
    comparison_sentence,
    head_changes_table,
)
from headlab.results import HeadScores, Result, Store, contrast
from headlab.roles import read_roles

pytestmark = pytest.mark.usefixtures("native_buttons")
SMALL = HeadGrid((Stack("encoder", (2, 2)),))


def scores(
    values: list[float], width: float | None = 0.5, unit: str = "accuracy", level: float = 0.95
) -> HeadScores:
    at = np.array(values)
    ends = {} if width is None else {"low": at - width, "high": at + width}
    return HeadScores(SMALL, "de", "shapley", at, "shapley", unit, 0, 0.0, level=level, **ends)


def stored(*every: HeadScores) -> list[Result[HeadScores]]:
    return [
        Result[HeadScores](f"{at:02d}" * 32, Path(), record, {}) for at, record in enumerate(every)
    ]


def test_every_head_s_difference_rank_and_sign() -> None:
    found = contrast(
        scores([1.0, -1.0, 0.2, 3.0]), scores([-1.0, -2.5, -0.1, 2.5], 0.25, level=0.99)
    )
    assert_allclose(found.difference, [2.0, 1.5, 0.3, 0.5])
    assert_allclose(found.low, [1.25, 0.75, -0.45, -0.25])
    assert_allclose(found.high, [2.75, 2.25, 1.05, 1.25])
    assert found.level == pytest.approx(0.94)
    assert [ranks.tolist() for ranks in found.ranks] == [[2, 4, 3, 1], [3, 4, 2, 1]]
    assert found.turned.tolist() == [True, False, True, False]
    assert found.surely.tolist() == [True, False, False, False]
    assert found.clear.tolist() == [True, True, False, False]


def test_the_interval_covers_as_often_as_it_says_in_the_worst_case() -> None:
    """Each interval misses by far in one run of twenty, and never both at once: that uses up the whole allowance."""
    runs = 4000
    miss = 0.05
    far = 50.0
    drawn = np.random.default_rng(0).random((runs, 4))
    one = np.where(drawn < miss, far, 0.0)
    other = np.where((miss <= drawn) & (drawn < 2 * miss), far, 0.0)
    hit = []
    for left, right in zip(one, other, strict=True):
        found = contrast(scores(list(left)), scores(list(1 + right)))
        assert found.low is not None
        assert found.high is not None
        hit.append((found.low <= -1) & (found.high >= -1))
    assert found.level == pytest.approx(1 - 2 * miss)
    # less is promised nowhere, and more does not hold
    assert np.mean(hit) == pytest.approx(found.level, abs=0.01)


def test_results_in_other_units_or_without_intervals_are_compared_as_far_as_they_can_be() -> None:
    ranked = contrast(scores([1.0, 2.0, 3.0, 4.0]), scores([4.0, 3.0, 2.0, 1.0], unit="loss"))
    assert (ranked.difference, ranked.low, ranked.high) == (None, None, None)
    assert not ranked.clear.any()
    bare = contrast(scores([1.0, 2.0, 3.0, 4.0]), scores([4.0, 3.0, 2.0, 1.0], None))
    assert_allclose(bare.difference, [-3, -1, 1, 3])
    assert (bare.low, bare.high, int(bare.surely.sum())) == (None, None, 0)


def test_results_on_other_heads_are_refused() -> None:
    wide = made_up("de", "shapley")
    with raises("score.grids_differ", str(SMALL), str(wide.grid)):
        contrast(scores([0.0] * 4), wide)


def test_the_words_and_the_table_say_what_was_compared() -> None:
    one = made_up("de", "shapley")
    other = made_up("th", "shapley")
    found = contrast(one, other)
    words = comparison_sentence(found, one, other)
    table = head_changes_table(found, one, other, comparison_notes(one, other))
    rho = spearmanr(one.values, other.values).statistic
    assert f"ρ = {rho:.2f}".replace("-", "−") in words
    turned = int((one.values * other.values < 0).sum())
    assert (
        f"{turned} of 144 heads have opposite signs, 0 of them with both intervals excluding 0."
        in words
    )
    assert "at a confidence of at least 90 %" in words
    assert "different quantities" not in words
    assert "different quantities" in comparison_sentence(
        found, one, dataclasses.replace(other, estimand="shapley")
    )
    difference = np.array(table.column("difference, points"))
    assert_allclose(np.abs(difference), np.sort(np.abs(100 * (one.values - other.values)))[::-1])
    first = table.rows[0]
    at = GRID.index(GRID.heads[first[1] * 12 + first[2]])
    assert_allclose(first[3:5], [100 * one.values[at], 100 * other.values[at]])
    assert table.column("ranks above the other") == [
        b - a for a, b in zip(table.column("rank"), table.column("other rank"), strict=True)
    ]
    assert [note.split(",")[0] for note in table.notes[:2]] == [
        "Shown: e5-small-intents on intents",
        "Other: e5-small-intents on intents",
    ]


def test_the_maps_share_a_scale_where_the_unit_is_one_and_else_show_ranks() -> None:
    one = made_up("de", "shapley")
    other = made_up("th", "shapley")
    left, right, difference = comparison_maps(contrast(one, other), one, other, ("a", "b")).values()
    assert left.limit == right.limit
    assert_allclose(difference.values, 100 * (one.values - other.values))
    found = contrast(one, other)
    assert_array_equal(difference.marks != 0, found.clear)
    rival = made_up("de", "gradient")
    *_, moved = comparison_maps(contrast(one, rival), one, rival, ("a", "b")).values()
    assert_array_equal(moved.values, rival.ranks - one.ranks)
    assert "opposite signs" not in comparison_sentence(contrast(one, rival), one, rival)
    assert set(
        head_changes_table(contrast(one, rival), one, rival, ()).column("opposite signs")
    ) == {None}


def test_a_constant_result_has_no_order() -> None:
    one = made_up("de", "shapley")
    flat = dataclasses.replace(one, values=np.zeros(GRID.size))
    assert "no order to compare" in comparison_sentence(contrast(one, flat), one, flat)


def test_rivals_are_told_apart_by_what_differs() -> None:
    shown = made_up("de", "shapley")
    other_weights = made_up("de", "shapley", "1" * 64)
    named = made_up("de", "shapley", "2" * 64, "another")
    smaller = dataclasses.replace(
        shown, spec={**shown.spec, "task": {**shown.spec["task"], "size": 64}}
    )
    twice = dataclasses.replace(smaller, spec={**smaller.spec, "format": 2})
    foreign = dataclasses.replace(scores([0.0] * 4), spec=shown.spec)
    found = comparable_scores_by_key(
        stored(made_up("ar", "gradient"), shown, other_weights, named, smaller, twice, foreign),
        shown,
    )
    estimand = "German (de): shapley, estimand shapley-top50"
    assert [words for words, _ in found.values()] == [
        f"{estimand}, 64 examples",
        f"{estimand}, 64 examples",
        f"{estimand}, weights 111111111111",
        f"{estimand}, model another",
        "Arabic (ar): gradient",
    ]
    odd = dataclasses.replace(
        named, spec={**named.spec, "method": {"name": "shapley", "options": ["a", "b"]}}
    )
    assert comparison_label(odd, shown).startswith("German (de): shapley")
    assert comparison_label(made_up("de", "leave-one-out"), shown) == "German (de): leave-one-out"


# On the page.


@pytest.fixture
def filled(tmp_path):
    with app_on(fill(tmp_path / "cache")):
        yield tmp_path / "cache"


def box(app):
    return next(one for one in app.selectbox if one.label == "Compare with")


def chosen(app) -> str:
    return box(app).format_func(box(app).value)


def test_a_result_is_chosen_on_the_heads_page_and_by_a_link(filled) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de")
    assert chosen(app) == "nothing"
    key = thai(app)
    box(app).set_value(key).run()
    assert not app.exception
    assert "Their rankings of the heads have Spearman" in said(app)
    assert app.query_params["against"] in (key, [key])
    linked = run_page("heads", langs=["de", "th"], focus="de", against=key)
    assert chosen(linked).startswith("Thai (th): shapley")
    assert "Their rankings of the heads have Spearman" in said(linked)


def thai(app) -> str:
    """Key of the Thai result by the method that is shown."""
    named = zip(keys(), box(app).options, strict=True)
    return next(key for key, words in named if words.startswith("Thai (th): shapley"))


def keys() -> list[str]:
    from headlab.dashboard.frame import stored_results

    (shown,) = (
        r.record
        for r in stored_results(HeadScores).results
        if r.record.spec == made_up("de", "shapley").spec
    )
    return ["", *comparable_scores_by_key(stored_results(HeadScores).results, shown)]


def test_the_choice_holds_while_the_result_itself_is_looked_at(filled) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de")
    key = thai(app)
    box(app).set_value(key).run()
    app.selectbox(key="focus").set_value("th").run()
    assert chosen(app) == "nothing"  # it is the one that is shown
    app.selectbox(key="focus").set_value("de").run()
    assert chosen(app).startswith("Thai (th): shapley")


def test_the_choice_holds_over_a_visit_to_another_page(filled) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de")
    box(app).set_value(thai(app)).run()
    app.switch_page("pages/jobs.py").run()
    app.query_params.clear()
    app.switch_page("pages/heads.py").run()
    assert chosen(app).startswith("Thai (th): shapley")


def test_a_link_to_a_result_that_is_not_here_says_so(filled) -> None:
    app = run_page("heads", langs=["de", "th"], focus="de", against="0123456789ab")
    assert "asks to compare with result '0123456789ab', which is not in the cache" in said(app)
    assert chosen(app) == "nothing"


def test_a_cache_of_one_result_has_nothing_to_compare(tmp_path) -> None:
    only = made_up("de", "shapley")
    Store(tmp_path).run(only.spec).finish(only, {"versions": {}})
    with app_on(tmp_path):
        app = run_page("heads", langs=["de"])
        assert "Beside another result" not in [heading.value for heading in app.subheader]


# On pages that show all languages at once, and on those of roles and gates.


def headings(app) -> list[str]:
    return [heading.value for heading in app.subheader]


@pytest.mark.parametrize("page", ["overview", "prune"])
def test_a_page_of_several_languages_compares_one_of_them(worker, cache, page) -> None:
    fill(cache)
    worker.model = partial(loaded_model, grid=GRID)
    worker.evaluate = lambda *given, **more: iter(())
    app = run_page(page, langs=["de", "th"], beside="th")
    assert app.selectbox(key="beside").value == "th"
    named = zip(["", *there("th")], box(app).options, strict=True)
    box(app).set_value(
        next(key for key, words in named if words.startswith("German (de): shapley"))
    ).run()
    assert not app.exception
    assert "Their rankings of the heads have Spearman" in said(app)
    linked = run_page(page, langs=["de", "th"], beside="th", against=app.query_params["against"])
    assert chosen(linked).startswith("German (de): shapley")


def there(language: str) -> list[str]:
    from headlab.dashboard.frame import stored_results

    every = stored_results(HeadScores).results
    (shown,) = (r.record for r in every if r.record.spec == made_up(language, "shapley").spec)
    return list(comparable_scores_by_key(every, shown))


def test_a_page_with_one_result_compares_nothing(worker, cache) -> None:
    only = made_up("de", "shapley")
    Store(cache).run(only.spec).finish(only, {"versions": {}})
    app = run_page("overview", langs=["de"])
    assert not [one for one in app.selectbox if one.label == "Compare with"]


def test_two_reports_of_roles_stand_side_by_side(worker, cache) -> None:
    keep_report(cache, made_roles("en"))
    key = keep_report(cache, made_roles("de", seed=1, shift=1))
    app = run_page("roles", langs=["en", "de"], focus="en")
    assert "Beside another result" in headings(app)
    box(app).set_value(key[:12]).run()
    assert not app.exception
    assert app.selectbox(key="contrast-measure").options[0] == "Confidence"
    assert "Their rankings of the heads have Spearman" in said(app)
    table = next(f.value for f in app.dataframe if "has it there" in f.value.columns)
    assert len(table) == 2 * (len(OWN) + len(TWO))  # each head's roles have moved to the next one
    assert (table["has it"] != table["has it there"]).all()


def test_roles_that_differ_have_the_interval_of_both_shares() -> None:
    one, other = (read_roles(made_roles("en", seed=seed, shift=seed)) for seed in (0, 1))
    table = roles_that_differ(one, other, ("a", "b"))
    of = [{(row.head, row.role): row for row in roles.rows} for roles in (one, other)]
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
        mine, theirs = (found.get((Head(stack, layer, head), role)) for found in of)
        assert (has, has_there) == (bool(mine and mine.has), bool(theirs and theirs.has))
        assert has != has_there
        if mine and theirs:
            assert difference == pytest.approx(share - share_there)
            assert low == pytest.approx(mine.numbers["low, %"] - theirs.numbers["high, %"])
            assert high == pytest.approx(mine.numbers["high, %"] - theirs.numbers["low, %"])
        else:
            assert (difference, low, high) == (None, None, None)
    assert len(table.rows) > 0


def test_two_runs_of_gates_stand_side_by_side(worker, cache) -> None:
    *_, key = (keep(cache, made_gates(weight=weight)) for weight in (0.01, 0.06))
    app = run_page("gates", langs=["de"], weight="0.01")
    box(app).set_value(key[:12]).run()
    assert not app.exception
    assert (
        "They keep 10 and 6 of 11 heads with a gate; both keep 6, and by chance it would be 5.5 on average"
        in said(app)
    )
    assert "Neither has intervals" in said(app)
    assert "Head by head, the largest change first" in said(app)


def test_heads_without_a_gate_are_no_agreement() -> None:
    one = made_gates(weight=0.01, grid=THREE, stacks="cross")
    other = made_gates(weight=0.06, grid=THREE, stacks="cross")
    both = one.gated & other.gated
    assert 0 < both.sum() < THREE.size
    assert f"of {both.sum()} heads with a gate" in shared_heads_sentence(one, other)


def test_heads_without_a_value_are_in_no_rank_correlation_and_no_row() -> None:
    one = scores([1.0, np.nan, 3.0, 2.0], None)
    other = scores([2.0, np.nan, 1.0, 3.0], None)
    found = contrast(one, other)
    assert f"ρ = {spearmanr([1, 3, 2], [2, 1, 3]).statistic:.2f}".replace(
        "-", "−"
    ) in comparison_sentence(found, one, other)
    assert [row[1:3] for row in head_changes_table(found, one, other, ()).rows] == [
        (1, 0),
        (0, 0),
        (1, 1),
    ]
    *_, difference = comparison_maps(found, one, other, ("a", "b")).values()
    assert difference.tips[1] == "no value"
    assert difference.colours[1] is None
