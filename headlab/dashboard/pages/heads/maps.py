"""Heads as tables, as a card with their uncertainty, and as maps that sharpen while scores are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from headlab import plots
from headlab.core import Floats, Head, HeadGrid, duration, fingerprint_of, p_is, shown_unit
from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    errors_as_sentences,
    samples_note,
    worker_client,
)
from headlab.dashboard.names import head_key, head_words, language_title, page_link, plain
from headlab.dashboard.panels.attention import SIDE_BY_SIDE
from headlab.dashboard.panels.history import encode, history_of
from headlab.dashboard.panels.job_actions import bar, known_jobs, refusal, said, start, watch
from headlab.dashboard.panels.job_format import languages_in
from headlab.dashboard.panels.job_offer import price, work_of
from headlab.dashboard.widgets import (
    button,
    draw_map,
    figure,
    redraw_every,
    table_height,
    with_p_values,
)
from headlab.methods.costs import PRECISION, caution, remarks, spec_of
from headlab.methods.table import METHODS
from headlab.pictures import MINUS, HeadMap, adjusted, common_limit, maps_of
from headlab.results import HeadScores, coarse
from headlab.worker.schemas import JobRow

# Head scores as tables: every head in every language, or one head across languages.


def _column(values: np.ndarray[tuple[int], np.dtype[np.generic]] | None, size: int) -> Floats:
    return np.full(size, np.nan) if values is None else np.asarray(values, float)


def every_head(scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """One row per language and head, in the scores' own unit, as in the CSV file.

    Columns that a method does not provide (interval, samples, p) are left out.
    """
    holms = adjusted(scores)
    parts = [_one_language(name, s, holms.get(name)) for name, s in scores.items()]
    return (
        pd.concat(parts, ignore_index=True).dropna(axis="columns", how="all")
        if parts
        else pd.DataFrame()
    )


def _one_language(name: str, s: HeadScores, holms: Floats | None) -> pd.DataFrame:
    heads, n = s.grid.heads, s.grid.size
    return pd.DataFrame(
        {
            "language": name,
            "stack": [h.stack for h in heads],
            "layer": [h.layer for h in heads],
            "head": [h.head for h in heads],
            "value": s.values,
            "low": _column(s.low, n),
            "high": _column(s.high, n),
            "half_width": _column(s.half_width, n),
            "samples": s.samples if s.samples is not None else _column(None, n),
            "rank": s.ranks,
            "p": _column(s.p_values, n),
            "p_holm": _column(holms, n),
            "method": s.method,
            "estimand": s.estimand,
            "unit": s.unit,
            "note": "; ".join(remarks([s])) or None,
        }
    )


def one_head(
    scores: Mapping[str, HeadScores], head: Head, confidence: Mapping[str, HeadScores] | None = None
) -> pd.DataFrame:
    """One row per language for a head, in the unit shown (accuracies in points).

    Columns: language, value, low, high, half_width, rank, samples, p, p_holm, confidence; NaN where
    a method or language lacks it.
    """
    holms, confidence = adjusted(scores), confidence or {}
    rows = []
    for name, s in scores.items():
        i, (factor, _) = s.grid.index(head), shown_unit(s.unit)
        row, sure = _one_language(name, s, holms.get(name)).iloc[[i]].copy(), confidence.get(name)
        row[SCALED] *= factor
        row["confidence"] = np.nan if sure is None or sure.grid != s.grid else sure.values[i]
        rows.append(row[["language", *SCALED, "rank", "samples", "p", "p_holm", "confidence"]])
    return pd.concat(rows, ignore_index=True)


SCALED = ["value", "low", "high", "half_width"]  # columns in the scores' own unit


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


# A head's card: its value in every language with its uncertainty, and links to other pages.


def _columns(sign: str) -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "language": st.column_config.TextColumn("Language", pinned=True),
        "value": number("Value", format=f"%{sign}.3f"),
        "low": number("From", format=f"%{sign}.3f", help="Lower end of the interval"),
        "high": number("To", format=f"%{sign}.3f", help="Upper end of the interval"),
        "half_width": number("Half-width", format="%.3f", help="Half the interval's length"),
        "rank": number("Rank", help="1 = the most useful head of this language"),
        "samples": number("Samples", format="localized"),
        "p": number("p", help="Of “this head does nothing”, two-sided"),
        "p_holm": number("p (Holm)", help="Adjusted for every head of every language shown"),
        "confidence": number(
            "Confidence", format="%.2f", help="Mean of its largest attention weight"
        ),
    }


def _sign(s: HeadScores) -> str:
    """The format flag for a plus before positive values, if there are negative ones too."""
    return "+" if s.signed else ""


def _without(grid: HeadGrid, head: Head) -> str:
    kept = np.ones(grid.size, bool)
    kept[grid.index(head)] = False
    return encode(kept)


def shown_value(s: HeadScores, head: Head) -> str:
    """A head's value with its interval, where there is one, in the unit shown."""
    i, (factor, unit) = s.grid.index(head), shown_unit(s.unit)
    value, *both = (
        f"{factor * a[i]:{_sign(s)}.2f}" for a in (s.values, s.low, s.high) if a is not None
    )
    ends = f" [{', '.join(both)}]" if both else ""  # seldom symmetric, so no ± here
    return f"**{value.replace('-', MINUS)} {plain(unit)}**{ends.replace('-', MINUS)}"


def card(
    scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head, focus: str
) -> None:
    """The card of a head. focus: the language it was clicked in."""
    s = scores[focus]
    unit = shown_unit(s.unit)[1]
    table = one_head(scores, head, confidence).set_index("language", drop=False)
    st.subheader(plain(head_words(head, several=len(s.grid.stacks) > 1)))
    rank = f"rank {table['rank'].loc[focus]} of {s.grid.size}"
    st.markdown(
        f"In {plain(language_title(focus))} {shown_value(s, head)}, {rank}; {verdict(s, head, scores)}."
    )
    names = [str(name) for name in table.index]
    value, low, high = (table[column].to_numpy(float) for column in ("value", "low", "high"))
    chart = plots.across_languages(names, value, low, high, f"value ({unit})")
    name = f"head-{head_key(head)}"
    figure(
        chart,
        name,
        key="head-figure",
        alt=f"Value of {head_key(head)} in every language",
        about=f"{s.method}, estimand {s.estimand}. {samples_note(scores)}",
    )
    with st.container(horizontal=True, gap="medium"):
        side = [focus, *(name for name in scores if name != focus)][:SIDE_BY_SIDE]
        page_link("attention", "What it attends to", {"heads": [head_key(head)], "side": side})
        link = _without(s.grid, head)
        history_of(str(fingerprint_of(s.spec)), s.grid).linked.discard(
            link
        )  # this link must apply its mask
        page_link("prune", "Switch it off", {"m": link, "from": focus})


def details(
    scores: Mapping[str, HeadScores], confidence: Mapping[str, HeadScores], head: Head
) -> None:
    """The card's figures as a table, the same as its chart."""
    table = one_head(scores, head, confidence).dropna(axis="columns", how="all")
    columns = _columns(_sign(next(iter(scores.values()))))
    height = table_height(len(table), 738)
    st.dataframe(with_p_values(table), hide_index=True, column_config=columns, height=height)
    if "p_holm" in table:
        tests = sum(s.grid.size for s in scores.values())
        where = f"each of the {len(scores)} languages" if len(scores) > 1 else "the language"
        st.caption(f"p (Holm) is adjusted for {tests:,} tests: every head in {where} shown.")
    if "confidence" not in table:
        st.caption(
            "Confidence is not cached for these languages: run method `confidence` to see it here."
        )


# A map that sharpens: the scores so far of the language that a job is computing.


def picture(
    job: JobRow,
    scores: HeadScores,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    clicked: Callable[[Head], None],
) -> None:
    """The large map of a running job, and its progress. stored: sets the colour scale."""
    st.markdown(plain(line(job, scores)))
    draw_map(
        shown(scores, stored), key="sharpening", title=language_title(scores.language),
        selected=known(scores, selected), on_click=clicked,
    )  # fmt: skip


def shown(scores: HeadScores, stored: Mapping[str, HeadScores]) -> HeadMap:
    """The map of the scores so far, on the scale of the stored ones and corrected together with them."""
    (*_, own) = maps_of(
        {**{k: s for k, s in stored.items() if k != scores.language}, scores.language: scores}
    ).values()
    return replace(own, limit=common_limit(stored.values() or [scores]))


def about_head(scores: HeadScores, stored: Mapping[str, HeadScores], selected: Head | None) -> None:
    """The scores so far of the selected head, or of the highest one if none is selected."""
    head = known(scores, selected) or scores.grid.heads[int(scores.values.argmax())]
    name = head_words(head, several=len(scores.grid.stacks) > 1)
    st.markdown(f"{plain(name)}, so far: {shown_value(scores, head)}; {verdict(scores, head)}.")
    if scores.language in stored:
        st.caption("The stored result is used until this one is done.")


def known(scores: HeadScores, head: Head | None) -> Head | None:
    """The head if these scores have it, else None: it may be another model's."""
    return head if head in scores.grid.heads else None


def line(job: JobRow, scores: HeadScores) -> str:
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


def language_at(job: JobRow) -> str:
    """The language that a running job is computing: its note starts with it."""
    return job.note.partition(":")[0]


# The Heads page while its scores are computed: the map that sharpens, and buttons where maps are missing.

SECONDS = 2.0
AT, PICKED = "_sharpening", "_sharpening_picked"
HELP = "Its map then sharpens here and, larger, at the top."


def sharpening(
    choice: Choice,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    pick: Callable[[str, Head], None],
) -> None:
    """The map of the language that a job of this choice is computing, redrawn every two seconds, and waiting jobs.

    It does not replace a stored result until the job is done; the page then reruns.
    stored: sets the colour scale.  pick: called with language and head on a click.
    """
    said()
    jobs = known_jobs(choice)
    if not jobs:
        return
    watch(jobs)
    job = jobs[0]
    is_running = job.state == "running"
    if is_running:
        st.session_state[AT] = language_at(job)
        room = st.container()
        bar(job)
        with room:
            redraw_every(_look, SECONDS)(job.id, stored, selected, pick)
    for waiting in jobs[1:] if is_running else jobs:
        bar(waiting)


def _look(
    number: int,
    stored: Mapping[str, HeadScores],
    selected: Head | None,
    pick: Callable[[str, Head], None],
) -> None:
    """The map that sharpens. Its clicks go through the log of presses, so redrawing loses none."""
    with errors_as_sentences():
        job, scores = worker_client().snapshot(number)
        if st.session_state.pop(PICKED, False) or language_at(job) != st.session_state.get(AT):
            st.rerun()  # the card, the other maps and the stored result are drawn outside this fragment
        if scores is None:
            return
        language = scores.language

        def clicked(head: Head) -> None:
            pick(language, head)
            st.session_state[PICKED] = True

        st.subheader(f"{plain(language_title(language))}, being computed")
        left, right = st.columns([10, 11], gap="large")
        with left:
            picture(job, scores, stored, selected, clicked)
        with right:
            about_head(scores, stored, selected)


def in_place_of_maps(choice: Choice, results: StoredScores) -> dict[str, Callable[[], None]]:
    """Functions that draw in place of missing languages' maps: a button, or the map that sharpens."""
    if not results.missing or refusal(choice):
        return {}
    jobs = known_jobs(choice)
    waiting = {language for job in jobs for language in languages_in(job)}
    running = jobs[0] if jobs and jobs[0].state == "running" else None

    def draw_one(language: str) -> None:
        if running is not None and language == language_at(running):
            redraw_every(_small, SECONDS)(running.id, language, results.scores)
            return
        with st.container(border=True):
            st.markdown(f"**{plain(language_title(language))}**")
            if language in waiting:
                st.caption("Waiting for the worker.")
            else:
                button(
                    "Compute",
                    key=f"compute-{language}",
                    help=HELP,
                    on_press=start,
                    args=(work_of(choice, [language], results.like),),
                )

    return {language: partial(draw_one, language) for language in results.missing}


def _small(job: int, language: str, stored: Mapping[str, HeadScores]) -> None:
    with errors_as_sentences():
        _, scores = worker_client().snapshot(job)
        if scores is None or scores.language != language:
            st.markdown(f"**{plain(language_title(language))}**")
            st.caption("Being computed; the first samples are on their way.")
            return
        draw_map(
            shown(scores, stored),
            key="sharpening-small",
            title=language_title(language),
            compact=True,
        )
        st.caption("Sharpening; larger at the top.")


def offer_again(choice: Choice, stored: HeadScores) -> None:
    """The button that recomputes a stored result whose precision differs from the current defaults."""
    options = METHODS[choice.method].options
    given = spec_of(stored, "method", "options") or {}
    usual = {name: options[name].default for name in PRECISION if name in options}
    if "target" not in usual or all(given.get(name) == value for name, value in usual.items()):
        return
    if any(stored.language in languages_in(job) for job in known_jobs(choice)):
        return
    job = work_of(choice, [stored.language], stored)
    text = f"Until every head's sign is decided or its half-width is {usual['target']:g}. {price(choice, job)}"
    label = f"Sharpen {language_title(stored.language)}"
    button(label, key="sharpen", help=text, on_press=start, args=(job,))
