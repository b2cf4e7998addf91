"""What reads scores of which only candidates were sampled: no other head is a test, a rank or a 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from support.cached_scores import made_scores
from support.expected_errors import raises

from headlab.charts.head_measures import rank_measure, value_measure
from headlab.core import RunSpec
from headlab.dashboard.pages.overview.findings import findings
from headlab.dashboard.panels.heads.contrast import comparison_sentence, head_changes_table
from headlab.dashboard.panels.jobs.sharpening_map import interval_verdict
from headlab.dashboard.panels.masks.suggestion import pooled_scores
from headlab.dashboard.widgets.headgrid import maps_details
from headlab.methods import METHODS, remarks, remarks_on_choice
from headlab.methods.costs import heads_named_early, stopped_at_sign
from headlab.report.commands import Known
from headlab.report.parts import Item
from headlab.report.sections.scores import scores_section
from headlab.results import HeadScores, contrast
from headlab.studies import gap, heads
from headlab.studies.agreement import rank_agreement_of
from headlab.studies.methods import overlap_records


def twenty_of_144(**fields: Any) -> HeadScores:
    """A run of 144 heads that sampled twenty, of which five harm by their intervals."""
    samples = np.array([64] * 20 + [0] * 124)
    is_sampled = samples > 0
    p_values = np.array([0.002, 0.002, 0.004, 0.004, 0.004] + [0.9] * 15 + [1.0] * 124)
    harms = p_values < 0.005
    every_head = made_scores("de", "shapley")
    method = {**every_head.spec["method"], "options": METHODS["shapley"].resolve({"names": 10})}
    scores = replace(
        every_head,
        values=np.where(is_sampled, -0.05, 0.02),
        sample_means=np.where(is_sampled, -0.05, 0.0),
        low=np.where(is_sampled, -0.2, -1.0),
        high=np.where(harms, -0.01, np.where(is_sampled, 0.1, 1.0)),
        samples=samples,
        p_values=p_values,
        spec=RunSpec.of({**every_head.spec, "method": method}),
    )
    return replace(scores, **fields)


def every_head_of_144() -> HeadScores:
    return replace(
        made_scores("th", "shapley"),
        values=np.linspace(0.05, -0.05, 144),
        low=np.full(144, -0.2),
        high=np.full(144, 0.2),
    )


def test_studies_count_the_candidates_alone_as_masks_do() -> None:
    scores = twenty_of_144()
    by_bh = len(scores.mask(correction="bh").removed)
    by_holm = len(scores.mask(correction="holm").removed)
    assert (by_bh, by_holm) == (5, 2)  # 20 · 0.002 is 0.04, 18 · 0.004 is 0.072
    (harmful,) = gap.head_records({"de": scores}).rows
    assert (harmful.after_benjamini_hochberg, harmful.after_holm) == (5, 2)
    signs = heads.claimed_signs({"de": scores})
    assert signs[heads.BH].harms.sum() == 5
    assert signs[heads.HOLM].harms.sum() == 2
    both = heads.claimed_signs({"de": scores, "th": replace(scores, language="th")})
    assert both[heads.HOLM].harms.sum() == 0  # 40 tests
    assert both[heads.BH].harms.sum(axis=1).tolist() == [5, 5]


def test_words_count_the_candidates_alone() -> None:
    scores = twenty_of_144()
    shown = {"de": scores}
    named_head, harmful_head, other_head = (scores.grid.heads[index] for index in (0, 2, 100))
    assert "for 20 tests" in interval_verdict(scores, named_head, shown)
    assert "but not after Holm's correction for 20 tests" in interval_verdict(
        scores, harmful_head, shown
    )
    assert interval_verdict(scores, other_head, shown) == "not tested: it was not sampled"
    (harm, *_) = findings(shown, {})
    assert "; 2 of them after Holm's correction for all 20 (" in harm.sentence
    assert "for all 20 tests" in maps_details(shown)
    section = scores_section([Item(scores, "de")], Known())
    assert any(note.startswith("20 intervals are shown") for note in section.notes)


def test_heads_without_a_sample_are_compared_with_nothing() -> None:
    named, full = twenty_of_144(), every_head_of_144()
    for comparison in (contrast(full, named), contrast(named, full)):
        assert comparison.difference is not None
        assert comparison.low is not None
        assert np.isfinite(comparison.difference).sum() == 20
        assert np.isfinite(comparison.low).sum() == 20
        assert not comparison.turned[20:].any()
        assert not comparison.clear[20:].any()
        assert all((np.sort(ranks[:20]) == np.arange(1, 21)).all() for ranks in comparison.ranks)
    sentence = comparison_sentence(contrast(full, named), full, named)
    assert "20 of 20 heads have opposite signs" in sentence
    first_two = np.array([64] * 2 + [0] * 142)
    few = comparison_sentence(contrast(full, named), full, replace(named, samples=first_two))
    assert few.startswith("Too few heads")
    table = head_changes_table(contrast(full, named), full, named, ())
    assert len(table.rows) == 20
    pooled = pooled_scores({"de": named, "th": full}, "mean")
    assert pooled is not None
    assert np.isfinite(pooled.tested_values).tolist() == [True] * 20 + [False] * 124
    without_slopes = replace(named, sample_means=None)
    pooled = pooled_scores({"de": without_slopes, "th": without_slopes}, "mean")
    assert pooled is not None
    assert np.isfinite(pooled.tested_values).sum() == 20
    for measure in (value_measure(without_slopes, "value"), rank_measure(named, "rank")):
        assert np.isfinite(measure.ranked_values).tolist() == [True] * 20 + [False] * 124


def test_a_ranking_needs_every_head() -> None:
    named, full = twenty_of_144(), every_head_of_144()
    with raises("score.heads_untested", "20 of 144", "names"):
        rank_agreement_of({"de": full, "th": named})
    with raises("score.heads_untested", "20 of 144", "names"):
        overlap_records({"de": {"shapley": named, "other": full}}, 10)


def test_heads_without_a_sample_are_of_no_kind() -> None:
    named = twenty_of_144()
    rows = heads.head_counts({"de": named, "th": named}, 30, 1).rows
    counts = {row.kind: row.counts["values"] for row in rows}
    assert counts["among the top 30 of every language"] == 20
    assert rows[0].by_chance is None
    assert counts["help in every language"] == 0  # 124 slopes are above 0
    assert counts["harm in every language"] == 20


def test_remarks_say_which_candidates_were_let_go_and_which_heads_were_tested() -> None:
    scores = twenty_of_144()
    assert scores.harmful.sum() == 5  # decided, before all samples, and wider than the target
    assert not stopped_at_sign(scores).any()
    assert np.flatnonzero(heads_named_early(scores)).tolist() == [0, 1, 2, 3, 4]
    all_samples = np.where(scores.tested, METHODS["shapley"].options["samples"].default, 0)
    assert not heads_named_early(replace(scores, samples=all_samples)).any()
    text = "; ".join(remarks([scores]))
    assert "5 heads were let go once named" in text
    assert "stop=width" not in text
    assert "as soon as their sign was decided" not in text
    (remark,) = remarks_on_choice(iter([scores]), "harmful")
    assert remark.startswith("only 20 of 144 heads of de were sampled")
    assert remarks_on_choice([every_head_of_144()], "harmful") == ()
