"""What a mask does, in one sentence: in the language of the headline, then in all of them.

No streamlit here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headlab.dashboard.names import count_words, language_title
from headlab.dashboard.panels.masks.mask_figures import (
    AccuracyQuestion,
    figure_to_show,
    has_enough_examples,
    signed_points,
)
from headlab.dashboard.panels.masks.suggestion import MEAN_OF_LANGUAGES
from headlab.stats import holm
from headlab.studies.differences import ALPHA
from headlab.worker import Figure

MAX_NAMED_LANGUAGES = 6
"""Languages whose codes the sentence lists; of more it gives the number alone."""
TEST_DECIDES = "Heads are chosen on dev, so test decides"
PLAYERS_TEST_DECIDES = "The choice is made on dev, so test decides"


def mask_verdict(
    figures_by_language: Mapping[str, Figure],
    languages: Sequence[str],
    question: AccuracyQuestion,
    headline: str,
) -> str:
    """What a mask does, in words, as far as it is known.

    The language of the headline is judged by the interval of its own difference, which is said
    where there are several; all languages together by p-values after Holm's correction, once all
    are final. On dev nothing is called better or worse, because heads are chosen there.

    Args:
        figures_by_language: Those that have arrived.
        languages: All that were asked for.
        question: What they answer.
        headline: The language that is judged first, or `MEAN_OF_LANGUAGES`.
    """
    title = headline_title(headline, len(languages))
    subject = f"{title} on {question.split}"
    figure = figure_to_show(figures_by_language, languages, headline)
    if figure is None:
        return f"{subject}: being measured …"
    if question.mask is None:
        accuracy = f"{100 * figure.accuracy:.1f} %"
        return (
            f"{subject}: {accuracy} with all {question.noun} on{'' if figure.done else ', so far'}."
        )
    if figure.difference is None or (
        headline != MEAN_OF_LANGUAGES and not has_enough_examples(figure)
    ):
        return f"{subject}: being measured …"
    points = f"{signed_points(figure.difference)} points"
    if not figure.done:
        return f"{subject}: {points} so far …"
    low = figure.low
    high = figure.high
    sentences = [f"{subject}: {points} [{signed_points(low)}, {signed_points(high)}]"]
    if question.split == "test":
        direction = direction_words(figure.difference, low, high)
        is_claim = direction in ("better", "worse")
        own_interval = " by its own interval" if is_claim and len(languages) > 1 else ""
        sentences[0] += f", {direction}{own_interval}"
    counts = changed_languages_words(figures_by_language, languages, question.split)
    if counts:
        sentences.append(counts)
    if question.split == "dev":
        is_of_heads = question.mask.grid.has_only_heads
        sentences.append(TEST_DECIDES if is_of_heads else PLAYERS_TEST_DECIDES)
    return f"{'. '.join(sentences)}."


def headline_title(headline: str, language_count: int) -> str:
    """The headline in words: 'German (de)', or 'Mean of 15 languages'."""
    if headline == MEAN_OF_LANGUAGES:
        return f"Mean of {count_words(language_count, 'language')}"
    return language_title(headline)


def direction_words(difference: float, low: float, high: float) -> str:
    """What a difference on test shows, given its 95 % interval."""
    if low > 0:
        return "better"
    if high < 0:
        return "worse"
    if difference > 0:
        return "not proven better"
    if difference < 0:
        return "not proven worse"
    if low == high:
        return "no difference"
    return "no difference proven"


def changed_languages_words(
    figures_by_language: Mapping[str, Figure], languages: Sequence[str], split: str
) -> str:
    """In how many of several languages a mask makes a difference that stands Holm's correction.

    Empty for one language, and before all are final.
    """
    figures = [figures_by_language.get(language) for language in languages]
    p_values = []
    differences = []
    for figure in figures:
        if figure is None or not figure.done or figure.p is None or figure.difference is None:
            return ""
        p_values.append(figure.p)
        differences.append(figure.difference)
    if len(languages) < 2:
        return ""
    is_proven = holm(np.array(p_values, float)) <= ALPHA
    higher = []
    lower = []
    for language, difference, proven in zip(languages, differences, is_proven, strict=True):
        if proven and difference > 0:
            higher.append(language)
        elif proven and difference < 0:
            lower.append(language)
    better_word, worse_word = ("Better", "worse") if split == "test" else ("Higher", "lower")
    total = f"of {len(languages)} languages"
    if not higher and not lower:
        return f"{better_word} or {worse_word} in none {total} after Holm's correction"
    return (
        f"{better_word} in {len(higher) or 'none'} {total}{_codes(higher)}, "
        f"{worse_word} in {len(lower) or 'none'}{_codes(lower)}, after Holm's correction"
    )


def _codes(languages: Sequence[str]) -> str:
    """Their codes in brackets, unless there are none or too many."""
    if not languages or len(languages) > MAX_NAMED_LANGUAGES:
        return ""
    return f" ({', '.join(languages)})"
