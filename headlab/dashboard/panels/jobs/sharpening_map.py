"""A map that sharpens: the scores so far of the language that a job is computing.

Words say what they tell of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import streamlit as st

from headlab.core import Head, HeadlabError, display_unit, duration_text, p_equals_text
from headlab.dashboard.names import head_from, head_words, language_title, plain
from headlab.dashboard.widgets import draw_map
from headlab.methods import METHODS, caution, spec_of
from headlab.pictures import (
    MINUS,
    HeadMap,
    common_limit,
    holm_adjusted_p_values,
    maps_of_scores,
    sampling_error_words,
)
from headlab.results import HeadScores, has_planned_intervals, why_holm_rejects_none
from headlab.worker import JobRow


def interval_verdict(
    scores: HeadScores, head: Head, corrected_with: Mapping[str, HeadScores] | None = None
) -> str:
    """What a head's interval says about its effect, in a few words.

    Args:
        scores: Of the head's language.
        head: The head.
        corrected_with: All scores on view, for whose heads p is corrected; None where they are not
            final.
    """
    index = scores.grid.index(head)
    if scores.sampling_error is not None:
        error_words = sampling_error_words(scores, index)
        return f"± {error_words}: it marks none of the {scores.grid.noun} as helping or harming"
    if scores.low is None or scores.high is None:
        return "no interval: these scores say nothing about their uncertainty"
    if not scores.signed:
        return "a size, without a sign: it does not say whether the head helps or harms"
    if scores.test_count and not scores.tested[index]:
        return "not tested: it was not sampled"
    if not (scores.harmful[index] or scores.helpful[index]):
        return "undecided: its interval contains 0"
    effect, side_of_zero = ("harms", "below") if scores.harmful[index] else ("helps", "above")
    own_interval_words = f"{effect}: its interval lies {side_of_zero} 0"
    all_scores = corrected_with or {}
    coarse_note = why_holm_rejects_none(all_scores.values())
    if coarse_note:
        return f"{own_interval_words} ({coarse_note.rstrip('.')})"
    p_values_by_language = holm_adjusted_p_values(all_scores)
    if scores.language not in p_values_by_language:
        return own_interval_words
    adjusted_p = p_values_by_language[scores.language][index]
    test_count = sum(all_scores[language].test_count for language in p_values_by_language)
    correction = f"after Holm's correction for {test_count:,} tests ({p_equals_text(adjusted_p)})"
    if adjusted_p <= 1 - scores.level:
        return f"{own_interval_words}, and that holds {correction}"
    return f"{effect} by its own interval, which lies {side_of_zero} 0, but not {correction}"


def sign_flag(scores: HeadScores) -> str:
    """The format flag for a plus before positive values, if there are negative ones too."""
    return "+" if scores.signed else ""


def head_value_words(scores: HeadScores, head: Head) -> str:
    """A head's value with its interval, where there is one, in the unit shown."""
    index = scores.grid.index(head)
    factor, unit = display_unit(scores.unit)

    def number_text(number: float) -> str:
        return f"{factor * number:{sign_flag(scores)}.2f}".replace("-", MINUS)

    text = f"**{number_text(scores.values[index])} {plain(unit)}**"
    # Ends rather than ±, as an interval is seldom symmetric.
    ends = [number_text(end[index]) for end in (scores.low, scores.high) if end is not None]
    if ends:
        return f"{text} [{', '.join(ends)}]"
    return text


def draw_sharpening_map(
    job: JobRow,
    scores: HeadScores,
    stored_scores: Mapping[str, HeadScores],
    selected_head: Head | str | None,
    on_click: Callable[[Head], None],
) -> None:
    """Draw the large map of a running job, and its progress.

    Args:
        job: The job.
        scores: So far, of the language that it is computing.
        stored_scores: By language; they set the colour scale.
        selected_head: That is marked in the map; as a link names it where the grid was not known.
        on_click: Called with a head that is clicked.
    """
    st.markdown(plain(sharpening_line(job, scores)))
    draw_map(
        map_so_far(scores, stored_scores),
        key="sharpening",
        title=language_title(scores.language),
        selected_head=known_head(scores, selected_head),
        on_click=on_click,
    )


def map_so_far(scores: HeadScores, stored_scores: Mapping[str, HeadScores]) -> HeadMap:
    """The map of the scores so far.

    It has the scale of the stored ones and is corrected together with them.
    """
    other_languages = {name: s for name, s in stored_scores.items() if name != scores.language}
    map_of_language = maps_of_scores({**other_languages, scores.language: scores})[scores.language]
    return replace(map_of_language, limit=common_limit(stored_scores.values() or [scores]))


def draw_head_so_far(
    scores: HeadScores, stored_scores: Mapping[str, HeadScores], selected_head: Head | str | None
) -> None:
    """The scores so far of the selected head, or of the highest one if none is selected."""
    head = known_head(scores, selected_head) or scores.grid.heads[int(scores.values.argmax())]
    name = head_words(head, scores.grid)
    st.markdown(
        f"{plain(name)}, so far: {head_value_words(scores, head)}; {interval_verdict(scores, head)}."
    )
    if scores.language in stored_scores:
        st.caption("The stored result is used until this one is done.")


def known_head(scores: HeadScores, head: Head | str | None) -> Head | None:
    """The head if these scores have it, else None: it may be another model's."""
    if isinstance(head, str):
        try:
            head = head_from(head, scores.grid)
        except HeadlabError:
            return None
    if head in scores.grid.heads:
        return head
    return None


def sharpening_line(job: JobRow, scores: HeadScores) -> str:
    """Progress of a sharpening map, in one line."""
    max_samples = 0 if scores.samples is None else int(scores.samples.max())
    parts = [f"sharpening: {max_samples:,} samples a head so far"]
    if scores.slopes is not None and not max_samples:
        parts = [f"sharpening: slopes of {scores.slopes.draws:,} draws so far, samples come next"]
    heads_done = job.note.partition("; ")[2]  # as the estimator reports it
    if heads_done:
        parts.append(heads_done)
    if job.seconds_left is not None:
        parts.append(f"about {duration_text(job.seconds_left)} left")
    return "; ".join((", ".join(parts), *_warnings(scores)))


def _warnings(scores: HeadScores) -> list[str]:
    """Caveats about the intervals of a running job."""
    if method_caution := caution(scores.method):
        return [method_caution]
    if has_planned_intervals(scores):
        return ["intervals are provisional until the run ends"]
    example_count = spec_of(scores, "task", "size")
    max_samples = 0 if scores.samples is None else int(np.max(scores.samples))
    known_method = METHODS.get(scores.method)
    in_cycles = known_method is not None and known_method.interval_check == "every cycle"
    is_provisional = in_cycles and example_count and max_samples % example_count
    if is_provisional:
        return ["intervals in the middle of a cycle are provisional"]
    return []


def language_computed(job: JobRow) -> str:
    """The language that a running job is computing: its note starts with it."""
    return job.note.partition(":")[0]
