"""What a mask does in one sentence, and which language is measured first."""

from __future__ import annotations

import numpy as np
import pytest

from headlab.core import HeadGrid, Stack
from headlab.dashboard.panels.masks.mask_figures import (
    SHOWN_SHARE,
    AccuracyQuestion,
    share_measured,
    stream_figures,
    time_left_words,
)
from headlab.dashboard.panels.masks.suggestion import MEAN_OF_LANGUAGES
from headlab.dashboard.panels.masks.verdict import (
    MAX_NAMED_LANGUAGES,
    direction_words,
    mask_verdict,
)
from headlab.masks import Mask
from headlab.stats import holm
from headlab.worker import Figure

GRID = HeadGrid((Stack("encoder", (3, 3)),))
LANGUAGES = ("de", "fi", "hu", "th")


def question(split: str = "test", *, is_pruned: bool = True) -> AccuracyQuestion:
    kept_heads = np.ones(GRID.size, bool)
    kept_heads[2] = False
    mask = Mask(GRID, kept_heads, {}, {"rule": "by hand"}) if is_pruned else None
    return AccuracyQuestion.unchecked("a/model", "f" * 64, "intents", split, mask)


def figure(
    language: str,
    points: float = 1.7,
    half_width: float = 1.9,
    *,
    p: float = 0.2,
    n: int = 1000,
    is_pruned: bool = True,
) -> Figure:
    """A figure of a made-up mask, which is final if it is on 1,000 examples."""
    difference = points / 100
    return Figure(
        language=language,
        n=n,
        total=1000,
        accuracy=0.66 + difference,
        low=difference - half_width / 100,
        high=difference + half_width / 100,
        done=n == 1000,
        difference=difference if is_pruned else None,
        p=p if is_pruned and n == 1000 else None,
    )


def figures(**figure_by_language: Figure) -> dict[str, Figure]:
    return figure_by_language


def all_figures(*points_and_p: tuple[float, float]) -> dict[str, Figure]:
    return {
        language: figure(language, points, p=p)
        for language, (points, p) in zip(LANGUAGES, points_and_p, strict=True)
    }


def test_the_sentence_of_the_plan():
    figures_by_language = all_figures((1.7, 0.2), (4.0, 0.001), (5.0, 0.002), (-1.0, 0.4))
    assert mask_verdict(figures_by_language, LANGUAGES, question(), "de") == (
        "German (de) on test: +1.7 points [−0.2, +3.6], not proven better. "
        "Better in 2 of 4 languages (fi, hu), worse in none, after Holm's correction."
    )


@pytest.mark.parametrize(
    ("points", "half_width", "words"),
    [
        (3.0, 1.0, "better"),
        (-3.0, 1.0, "worse"),
        (1.0, 2.0, "not proven better"),
        (-1.0, 2.0, "not proven worse"),
        (0.0, 0.0, "no difference"),
        (0.0, 2.0, "no difference proven"),
        (1.0, 1.0, "not proven better"),  # the interval touches 0
    ],
)
def test_a_difference_is_better_or_worse_only_if_its_interval_excludes_0(points, half_width, words):
    low = (points - half_width) / 100
    high = (points + half_width) / 100
    assert direction_words(points / 100, low, high) == words
    verdict = mask_verdict(figures(de=figure("de", points, half_width)), ["de"], question(), "de")
    assert verdict.endswith(f"], {words}.")


def test_on_dev_nothing_is_called_better_since_heads_are_chosen_there():
    figures_by_language = all_figures((4.0, 0.001), (4.0, 0.001), (-5.0, 0.001), (0.0, 1.0))
    verdict = mask_verdict(figures_by_language, LANGUAGES, question("dev"), "de")
    assert "better" not in verdict.lower()
    assert "worse" not in verdict.lower()
    assert "Higher in 2 of 4 languages (de, fi), lower in 1 (hu), after Holm's" in verdict
    assert verdict.endswith("Heads are chosen on dev, so test decides.")


def test_counts_of_languages_are_those_of_holm_by_a_slow_loop(rng):
    for _ in range(50):
        p_values = rng.uniform(0, 0.06, len(LANGUAGES))
        points = rng.choice([-2.0, 2.0], len(LANGUAGES))
        figures_by_language = all_figures(*zip(points, p_values, strict=True))
        order = np.argsort(p_values)
        proven = set()
        for rank, index in enumerate(order):  # Holm's steps, one after the other
            if p_values[index] > 0.05 / (len(LANGUAGES) - rank):
                break
            proven.add(int(index))
        assert set(np.flatnonzero(holm(p_values) <= 0.05)) == proven
        better = [LANGUAGES[index] for index in sorted(proven) if points[index] > 0]
        worse = [LANGUAGES[index] for index in sorted(proven) if points[index] < 0]
        verdict = mask_verdict(figures_by_language, LANGUAGES, question(), "de")
        if not proven:
            assert "Better or worse in none of 4 languages" in verdict
        for codes in (better, worse):
            assert not codes or f"{len(codes)}" in verdict
            assert not codes or f"({', '.join(codes)})" in verdict


def test_many_languages_are_counted_without_their_codes():
    languages = [f"l{number}" for number in range(MAX_NAMED_LANGUAGES + 1)]
    figures_by_language = {name: figure(name, 5.0, 1.0, p=1e-6) for name in languages}
    verdict = mask_verdict(figures_by_language, languages, question(), languages[0])
    assert f"Better in {len(languages)} of {len(languages)} languages, worse in none" in verdict


def test_nothing_is_said_of_all_languages_before_all_are_final():
    figures_by_language = all_figures((1.7, 0.2), (4.0, 0.001), (5.0, 0.002), (-1.0, 0.4))
    figures_by_language["th"] = figure("th", n=600)
    verdict = mask_verdict(figures_by_language, LANGUAGES, question(), "de")
    assert verdict == "German (de) on test: +1.7 points [−0.2, +3.6], not proven better."
    del figures_by_language["th"]
    assert mask_verdict(figures_by_language, LANGUAGES, question(), "de") == verdict


def test_the_mean_is_the_headline_where_no_language_is():
    figures_by_language = all_figures((2.0, 0.2), (4.0, 0.001), (6.0, 0.002), (0.0, 0.4))
    verdict = mask_verdict(figures_by_language, LANGUAGES, question(), MEAN_OF_LANGUAGES)
    assert verdict.startswith(
        "Mean of 4 languages on test: +3.0 points [+1.1, +4.9], better by its own interval. "
    )
    del figures_by_language["th"]
    verdict = mask_verdict(figures_by_language, LANGUAGES, question(), MEAN_OF_LANGUAGES)
    assert verdict == "Mean of 4 languages on test: being measured …"


def test_nothing_is_said_before_a_quarter_of_the_examples():
    early = figures(de=figure("de", n=240))
    assert share_measured(early, ["de"], "de") < SHOWN_SHARE
    assert mask_verdict(early, ["de"], question(), "de") == "German (de) on test: being measured …"
    later = figures(de=figure("de", n=250))
    assert mask_verdict(later, ["de"], question(), "de") == (
        "German (de) on test: +1.7 points so far …"
    )
    assert mask_verdict({}, ["de"], question(), "de").endswith("being measured …")
    halves = figures(de=figure("de"), th=figure("th", n=500))
    assert share_measured(halves, ["de", "th"], MEAN_OF_LANGUAGES) == pytest.approx(0.75)
    assert share_measured({}, ["de", "th"], MEAN_OF_LANGUAGES) == 0


def test_the_time_left_is_that_of_the_pace_since_the_start():
    languages = ["de", "th", "fi", "hu"]
    at_start = figures(de=figure("de"))
    later = figures(de=figure("de"), th=figure("th"))
    assert time_left_words(at_start, later, languages, 4.0) == "about 10 s left"
    assert time_left_words(at_start, later, languages, 5.0) == "about 10 s left"
    assert time_left_words(at_start, later, languages, 5.1) == "about 15 s left"
    assert time_left_words({}, later, languages, 5.1) == "about 10 s left"
    assert time_left_words({}, later, languages, 600.0) == "about 10 min left"
    assert time_left_words({}, later, languages, 1.0) == ""  # too soon
    assert time_left_words(at_start, at_start, languages, 9.0) == ""
    all_figures = figures(**{name: figure(name) for name in languages})
    assert time_left_words(at_start, all_figures, languages, 9.0) == ""
    assert time_left_words({}, {}, languages, 9.0) == ""


def test_with_all_heads_on_the_sentence_is_the_accuracy():
    unpruned = figures(de=figure("de", 0.0, is_pruned=False))
    verdict = mask_verdict(unpruned, ["de"], question(is_pruned=False), "de")
    assert verdict == "German (de) on test: 66.0 % with all heads on."


class Worker:
    """Answers each language in two figures, and keeps in which order they were asked for."""

    def __init__(self):
        self.log: list[tuple[str, int]] = []

    def evaluate(self, request):
        for count in (500, 1000):
            self.log.append((request.language, count))
            yield figure(request.language, n=count)


def test_the_language_of_the_headline_is_measured_to_its_end_first():
    worker = Worker()
    *_, last = stream_figures(worker, question(), ["de", "fi", "hu"], {}, headline="hu")
    assert worker.log == [
        ("hu", 500),
        ("hu", 1000),
        ("de", 500),
        ("fi", 500),
        ("de", 1000),
        ("fi", 1000),
    ]
    assert list(last) == ["de", "fi", "hu"]
    assert all(one_figure.done for one_figure in last.values())
