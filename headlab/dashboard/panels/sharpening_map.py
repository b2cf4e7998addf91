"""A map that sharpens: the scores so far of the language that a job is computing, and what they say of a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import streamlit as st

from headlab.core import Head, duration, p_is, shown_unit
from headlab.dashboard.names import head_words, language_title, plain
from headlab.dashboard.widgets import draw_map
from headlab.methods import METHODS, caution, spec_of
from headlab.pictures import MINUS, HeadMap, adjusted, common_limit, maps_of
from headlab.results import HeadScores, coarse
from headlab.worker import JobRow


def verdict(s: HeadScores, head: Head, among: Mapping[str, HeadScores] | None = None) -> str:
    """What a head's interval says about its effect, in a few words.

    among: all scores on view, for whose heads p is corrected; None where they are not final.
    """
    i = s.grid.index(head)
    if s.low is None or s.high is None:
        return "no interval: these scores say nothing about their uncertainty"
    if not s.signed:
        return "a size, without a sign: it does not say whether the head helps or harms"
    if not (s.harmful[i] or s.helpful[i]):
        return "undecided: its interval contains 0"
    side, end = ("harms", "below") if s.harmful[i] else ("helps", "above")
    holms, words = adjusted(among or {}), coarse((among or {}).values())
    if s.language not in holms or words:
        return f"{side}: its interval lies {end} 0" + (f" ({words.rstrip('.')})" if words else "")
    p, tests = holms[s.language][i], sum(map(len, holms.values()))
    corrected = f"after Holm's correction for {tests:,} tests ({p_is(p)})"
    if p <= 1 - s.level:
        return f"{side}: its interval lies {end} 0, and that holds {corrected}"
    return f"{side} by its own interval, which lies {end} 0, but not {corrected}"


def sign_flag(s: HeadScores) -> str:
    """The format flag for a plus before positive values, if there are negative ones too."""
    return "+" if s.signed else ""


def shown_value(s: HeadScores, head: Head) -> str:
    """A head's value with its interval, where there is one, in the unit shown."""
    i, (factor, unit) = s.grid.index(head), shown_unit(s.unit)
    value, *both = (
        f"{factor * a[i]:{sign_flag(s)}.2f}" for a in (s.values, s.low, s.high) if a is not None
    )
    ends = f" [{', '.join(both)}]" if both else ""  # seldom symmetric, so no ± here
    return f"**{value.replace('-', MINUS)} {plain(unit)}**{ends.replace('-', MINUS)}"


def draw_sharpening_map(
    job: JobRow,
    scores: HeadScores,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    clicked: Callable[[Head], None],
) -> None:
    """The large map of a running job, and its progress. stored: sets the colour scale."""
    st.markdown(plain(sharpening_line(job, scores)))
    draw_map(
        map_so_far(scores, stored),
        key="sharpening",
        title=language_title(scores.language),
        selected=known_head(scores, selected),
        on_click=clicked,
    )


def map_so_far(scores: HeadScores, stored: Mapping[str, HeadScores]) -> HeadMap:
    """The map of the scores so far, on the scale of the stored ones and corrected together with them."""
    (*_, own) = maps_of(
        {**{k: s for k, s in stored.items() if k != scores.language}, scores.language: scores}
    ).values()
    return replace(own, limit=common_limit(stored.values() or [scores]))


def draw_head_so_far(
    scores: HeadScores, stored: Mapping[str, HeadScores], selected: Head | None
) -> None:
    """The scores so far of the selected head, or of the highest one if none is selected."""
    head = known_head(scores, selected) or scores.grid.heads[int(scores.values.argmax())]
    name = head_words(head, several=len(scores.grid.stacks) > 1)
    st.markdown(f"{plain(name)}, so far: {shown_value(scores, head)}; {verdict(scores, head)}.")
    if scores.language in stored:
        st.caption("The stored result is used until this one is done.")


def known_head(scores: HeadScores, head: Head | None) -> Head | None:
    """The head if these scores have it, else None: it may be another model's."""
    return head if head in scores.grid.heads else None


def sharpening_line(job: JobRow, scores: HeadScores) -> str:
    """Progress of a sharpening map, in one line."""
    most = 0 if scores.samples is None else int(scores.samples.max())
    parts = [f"sharpening: {most:,} samples a head so far"]
    heads_done = job.note.partition("; ")[2]  # as the estimator reports it
    if heads_done:
        parts.append(heads_done)
    if job.seconds_left is not None:
        parts.append(f"about {duration(job.seconds_left)} left")
    return "; ".join((", ".join(parts), *_warnings(scores)))


def _warnings(scores: HeadScores) -> list[str]:
    """Caveats about the intervals of a running job."""
    if text := caution(scores.method):
        return [text]
    size, most = (
        spec_of(scores, "task", "size"),
        int(np.max(scores.samples)) if scores.samples is not None else 0,
    )
    known_method = METHODS.get(scores.method)
    in_cycles = known_method is not None and known_method.interval_check == "every cycle"
    is_provisional = in_cycles and size and most % size
    return ["intervals in the middle of a cycle are provisional"] if is_provisional else []


def language_computed(job: JobRow) -> str:
    """The language that a running job is computing: its note starts with it."""
    return job.note.partition(":")[0]
