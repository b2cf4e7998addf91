"""Two results side by side: both maps, their difference, and the heads whose rank or sign changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st

from headlab.methods.costs import spec_of
from headlab.methods.table import METHODS
from headlab.pictures import MINUS, OWN, HeadMap, head_map, is_signed, maps_of, value_format, value_words
from headlab.records import Floats, Head
from headlab.scores import Contrast, HeadScores, contrast
from headlab.stats import spearman_interval
from headlab.store import Result
from headlab.tables import Cell, Table
from headlab.ui.figures import show
from headlab.ui.headgrid import draw_map
from headlab.ui.names import language_title, plain
from headlab.ui.presses import give
from headlab.ui.results import describe_variant, variant_name
from headlab.ui.shell import Choice, listing
from headlab.value_functions import shown_unit

PARAM, NOTHING, SHORT = "against", "", 12
KEPT, WRITTEN = "_against", "_against_link"  # key of the result compared with, and the one last put in the link
SEED = 0  # of the resamples behind the interval of ρ


@dataclass(frozen=True)
class Rival:
    """A result to compare with, and what tells it from the one shown."""

    record: HeadScores
    label: str


def rivals(results: Sequence[Result[HeadScores]], shown: HeadScores) -> dict[str, Rival]:
    """{short key: result} on the same heads, without the one that is shown: those of its language first."""
    fitting = (r for r in results if r.record.grid == shown.grid and r.record.spec != shown.spec)
    found = [(r.key, Rival(r.record, label(r.record, shown))) for r in fitting]
    found.sort(key=lambda one: (one[1].record.language != shown.language, one[1].label, one[0]))
    return {key[:SHORT]: rival for key, rival in found}


def label(other: HeadScores, shown: HeadScores) -> str:
    """Language, method and settings of a result, and where it is of another model or task than the one shown, which."""
    estimand, *settings = variant_name(other).split(", ")
    named = METHODS.get(other.method)
    words = [other.method, *([f"estimand {estimand}"] if named and "estimand" in named.options else []), *settings]
    for part in ("model", "task"):
        if (name := spec_of(other, part, "name")) != spec_of(shown, part, "name"):
            words.append(f"{part} {name}")
    weights = [spec_of(s, "model", "fingerprint") for s in (other, shown)]
    if weights[0] != weights[1] and not words[-1].startswith("model "):
        words.append(f"weights {str(weights[0])[:SHORT]}")
    if (size := spec_of(other, "task", "size")) != spec_of(shown, "task", "size"):
        words.append(f"{size} examples")
    return f"{language_title(other.language)}: {', '.join(words)}"


def draw(choice: Choice, shown: HeadScores, head: Head, on_click: Callable[[Head], None]) -> None:
    """The list of results to compare with and, when one is chosen, the comparison."""
    there = rivals(listing(HeadScores).results, shown)
    if not there:
        return
    st.subheader("Beside another result")
    key = _pick(there, shown)
    if key == NOTHING:
        return
    other = there[key].record
    found, names = contrast(shown, other), (f"{label(shown, other)} (shown)", there[key].label)
    st.markdown(plain(sentence(found, shown, other)))
    every = maps(found, shown, other, names)
    for at, ((title, drawn), place) in enumerate(zip(every.items(), st.columns(len(every)), strict=True)):
        with place:
            draw_map(drawn, key=f"contrast-{at}", title=title, selected=head, on_click=on_click, compact=True)
    show(changes(found, shown, other), f"{key}-{choice.method}")


def _pick(there: Mapping[str, Rival], shown: HeadScores) -> str:
    """Key of the result to compare with, chosen here or by the link; it holds while other languages are looked at.

    The link has the key itself: streamlit would write the label there, which may be another result's tomorrow.
    """
    box, options = f"against-{shown.language}-{shown.values_sha256()[:SHORT]}", [NOTHING, *there]
    asked = st.query_params.get(PARAM, NOTHING)
    if asked not in (NOTHING, st.session_state.get(WRITTEN)):  # a new link; another page's has none
        st.session_state[KEPT] = asked
        give(box, asked if asked in options else NOTHING)
    kept = st.session_state.get(KEPT, NOTHING)
    if kept not in options and not any(r.key.startswith(kept) for r in listing(HeadScores).results):
        st.warning(plain(f"The link asks to compare with result {kept[:80]!r}, which is not in the cache."))
    words = {NOTHING: "nothing", **{key: rival.label for key, rival in there.items()}}
    about = "Another method, estimand, language, task or checkpoint: any result on the same heads."
    start = options.index(kept) if kept in options else 0
    chosen = st.selectbox("Compare with", options, index=start, format_func=words.__getitem__, help=about, key=box)
    if chosen != options[start]:
        st.session_state[KEPT] = chosen
    st.session_state[WRITTEN] = st.session_state.get(KEPT, NOTHING)
    if st.session_state[WRITTEN] == NOTHING:
        st.query_params.pop(PARAM, None)
    else:
        st.query_params[PARAM] = st.session_state[WRITTEN]
    return chosen


def maps(found: Contrast, shown: HeadScores, other: HeadScores, names: tuple[str, str]) -> dict[str, HeadMap]:
    """Both maps, on one scale where they have one unit, then their difference, or else that of their ranks."""
    pair = maps_of(dict(zip(names, (shown, other), strict=True)), common=shown.unit == other.unit)
    size = shown.grid.size
    if found.difference is None:
        moved = (found.ranks[1] - found.ranks[0]).astype(float)
        tips = [f"rank {one} and {two} of {size}" for one, two in zip(*found.ranks, strict=True)]
        return {**pair, "Ranks, first above second": head_map(moved, shown.grid, unit="ranks", tips=tips)}
    factor, unit = shown_unit(shown.unit)
    marks = OWN * np.sign(found.difference).astype(np.int64) * found.clear
    tips = [_tip(found, at, shown.unit) for at in range(size)]
    difference = head_map(factor * found.difference, shown.grid, unit=unit, marks=marks, tips=tips)
    return {**pair, "Difference, first − second": difference}


def _tip(found: Contrast, at: int, unit: str) -> str:
    assert found.difference is not None
    words = f"{value_words(found.difference[at], unit)} {shown_unit(unit)[1]}"
    if found.low is not None and found.high is not None:
        low, high = (value_words(end[at], unit) for end in (found.low, found.high))
        words += f"\n{found.level:.0%} interval {low} to {high}"
    return words


def sentence(found: Contrast, shown: HeadScores, other: HeadScores) -> str:
    """How alike the two are: rank correlation, heads that changed sign, and differences clear of 0."""
    rho, (low, high) = spearman_interval(np.stack([shown.values, other.values]), np.random.default_rng(SEED))
    if np.isnan(rho[0, 1]):
        words = ["One of the two gives all heads the same value, so there is no order to compare."]
    else:
        three = (f"{part[0, 1]:.2f}".replace("-", MINUS) for part in (rho, low, high))
        words = [
            "Their rankings of the heads have Spearman's ρ = {} [{}, {}] (95 %, by resampling heads).".format(*three)
        ]
    size, signed = shown.grid.size, is_signed(shown) and is_signed(other)
    if signed:
        both = f"{found.surely.sum()} of them with both intervals clear of 0"
        words.append(f"{found.turned.sum()} of {size} heads have opposite signs, {both}.")
    if found.difference is None:
        words.append(f"Their units differ ({shown.unit}, {other.unit}), so only ranks can be compared.")
    elif found.low is None:
        words.append("One of them has no intervals, so it is not known which differences are noise.")
    else:
        words.append(
            f"The difference is clear of 0 at {found.clear.sum()} of {size} heads, each by its own interval at a "
            f"confidence of at least {100 * found.level:g} %, whether or not the two share samples; of so many, some "
            "may be by chance."
        )
    if found.difference is not None and (shown.method, shown.estimand) != (other.method, other.estimand):
        words.append("They estimate different quantities, so a difference need not be an error of either.")
    return " ".join(words)


def changes(found: Contrast, shown: HeadScores, other: HeadScores) -> Table:
    """A row a head, the largest change first: both values, the difference with its interval, both ranks and signs."""
    (factor, unit), (of_other, other_unit) = shown_unit(shown.unit), shown_unit(other.unit)
    moved, signed = found.ranks[1] - found.ranks[0], is_signed(shown) and is_signed(other)
    size = np.abs(moved if found.difference is None else found.difference)
    columns: dict[str, tuple[str, Floats]] = {
        f"value, {unit}": (_form(shown), factor * shown.values),
        f"other value, {other_unit}": (_form(other), of_other * other.values),
    }
    for name in ("difference", "low", "high"):
        if (column := getattr(found, name)) is not None:
            columns[f"{name}, {unit}"] = (value_format(shown.unit), factor * column)
    rows: list[tuple[Cell, ...]] = []
    for at in np.argsort(-size, kind="stable").tolist():
        numbers = [float(column[at]) for _, column in columns.values()]
        ranks = (int(found.ranks[0][at]), int(found.ranks[1][at]), int(moved[at]))
        rows.append((*shown.grid.heads[at], *numbers, *ranks, _turn(found, at) if signed else None))
    formats = [form for form, _ in columns.values()]
    return Table(
        "two-results", "Head by head, the largest change first",
        ("stack", "layer", "head", *columns, "rank", "other rank", "ranks above the other", "opposite signs"),
        ("", "d", "d", *formats, "d", "d", "+d", ""), tuple(rows), notes(shown, other),
    )  # fmt: skip


def _form(scores: HeadScores) -> str:
    return value_format(scores.unit) if is_signed(scores) else ".4g"


def _turn(found: Contrast, at: int) -> str:
    return "both intervals" if found.surely[at] else "yes" if found.turned[at] else ""


def notes(shown: HeadScores, other: HeadScores) -> tuple[str, ...]:
    """What the two results are."""
    of: Mapping[str, HeadScores] = {"Shown": shown, "Other": other}
    lines = [
        f"{name}: {spec_of(s, 'model', 'name')} on {spec_of(s, 'task', 'name')}, {language_title(s.language)}, "
        f"{s.method}, {describe_variant([s])}, {spec_of(s, 'task', 'size')} examples."
        for name, s in of.items()
    ]
    return (*lines, "both intervals: each lies clear of 0 by itself, on opposite sides.")
