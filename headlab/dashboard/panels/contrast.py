"""Two results side by side: both maps, their difference, and the heads whose rank or sign changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import streamlit as st

from headlab.core import (
    HEAD,
    HEAD_FORMATS,
    Bools,
    Cell,
    Floats,
    Head,
    HeadGrid,
    Table,
    content_key,
    fingerprint_of,
    shown_unit,
)
from headlab.dashboard.frame import stored_results
from headlab.dashboard.frame.stored_scores import describe_variant, variant_name
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.widgets import (
    draw_map,
    keep_known_choice,
    remembered_choice,
    set_widget,
    show_table,
)
from headlab.methods import METHODS, remarks, spec_of
from headlab.pictures import MINUS, OWN, HeadMap, head_map, maps_of, value_format, value_words
from headlab.results import Contrast, HeadScores, Result, contrast
from headlab.stats import spearman_interval

PARAM, NOTHING, SHORT = "against", "", 12

BESIDE = "beside"  # key of the widget for the language, on pages that show several; links hold it

HEADING = "Beside another result"

SCORES = "scores"  # kind of result of most pages; the roles and the gates of heads are compared with their own kind

ABOUT = {
    SCORES: "Another method, estimand, language, task or checkpoint: any result on the same heads.",
    "roles": "Another report of this model: other sentences, another language or checkpoint.",
    "gates": "Another run of this model: another λ, language, seed or checkpoint.",
}

SURELY = "both intervals: each excludes 0, on opposite sides."

SEED = 0  # of the resamples behind the interval of ρ

Click = Callable[[Head], None]


def fitting(
    results: Sequence[Result[HeadScores]], shown: HeadScores
) -> Iterator[Result[HeadScores]]:
    """The results on the same heads, without those that are shown."""
    return (r for r in results if r.record.grid == shown.grid and r.record.spec != shown.spec)


def rivals(
    results: Sequence[Result[HeadScores]], shown: HeadScores
) -> dict[str, tuple[str, HeadScores]]:
    """{short key: (label, scores)} of those that fit: of the same language first, and of the same model and task."""

    def order(one: tuple[str, str, HeadScores]) -> tuple[bool, bool, str, str]:
        key, words, record = one
        other = [
            spec_of(record, part, "name") != spec_of(shown, part, "name")
            for part in ("model", "task")
        ]
        return record.language != shown.language, any(other), words, key

    found = [(r.key, label(r.record, shown), r.record) for r in fitting(results, shown)]
    return {key[:SHORT]: (words, record) for key, words, record in sorted(found, key=order)}


def label(other: HeadScores, shown: HeadScores) -> str:
    """Language, method and settings of a result, and where it is of another model or task than the one shown, which."""
    estimand, *settings = variant_name(other).split(", ")
    named = METHODS.get(other.method)
    words = [
        other.method,
        *([f"estimand {estimand}"] if named and "estimand" in named.options else []),
        *settings,
    ]
    for part in ("model", "task"):
        if (name := spec_of(other, part, "name")) != spec_of(shown, part, "name"):
            words.append(f"{part} {name}")
    weights = [fingerprint_of(s.spec) for s in (other, shown)]
    if weights[0] != weights[1] and not words[-1].startswith("model "):
        words.append(f"weights {str(weights[0])[:SHORT]}")
    if (size := spec_of(other, "task", "size")) != spec_of(shown, "task", "size"):
        words.append(f"{size} examples")
    return f"{language_title(other.language)}: {', '.join(words)}"


def of_languages(
    scores: Mapping[str, HeadScores], on_click: Callable[[str, Head], None] | None = None
) -> None:
    """On pages that show several languages at once, folded: the widget that chooses one, and its comparison."""
    results = stored_results(HeadScores).results
    if not any(True for shown in scores.values() for _ in fitting(results, shown)):
        return
    with st.expander(HEADING, icon=":material/compare_arrows:", expanded=PARAM in st.query_params):
        languages = list(scores)
        keep_known_choice(BESIDE, "language", languages)
        start = (
            languages.index(remembered_choice("focus"))
            if remembered_choice("focus") in languages
            else 0
        )
        one = st.selectbox(
            "Language", languages, index=start, format_func=str, key=BESIDE, bind="query-params"
        )
        of_scores(scores[one], None, None if on_click is None else lambda head: on_click(one, head))


def of_scores(shown: HeadScores, head: Head | None, on_click: Click | None) -> None:
    """The list of scores to compare with and, when one is chosen, the comparison."""
    results = stored_results(HeadScores).results
    there = rivals(results, shown)
    labels = {key: words for key, (words, _) in there.items()}
    if not there:
        st.caption("There is no other result on these heads.")
    key = pick(
        labels,
        SCORES,
        f"{shown.language}-{shown.values_sha256()[:SHORT]}",
        [r.key for r in results],
    )
    if key == NOTHING:
        return
    words, other = there[key]
    names = f"{label(shown, other)} (shown)", words
    compare(
        shown,
        other,
        names,
        notes(shown, other),
        content_key([shown.spec, other.spec]),
        head,
        on_click,
    )


def draw(shown: HeadScores, head: Head, on_click: Click) -> None:
    """The comparison of one language's scores under its own heading; nothing where there is nothing to compare."""
    if any(True for _ in fitting(stored_results(HeadScores).results, shown)):
        st.subheader(HEADING)
        of_scores(shown, head, on_click)


def compare(
    shown: HeadScores, other: HeadScores, names: tuple[str, str], notes: Sequence[str], key: str, head: Head | None,
    on_click: Click | None,
) -> None:  # fmt: skip
    """Two results in words, as maps, and head by head. key: of the comparison, for its table and its file."""
    found = contrast(shown, other)
    st.markdown(plain(sentence(found, shown, other)))
    for remark in dict.fromkeys([*remarks([shown]), *remarks([other])]):
        st.caption(f"Caution: {plain(remark)}.")
    every = maps(found, shown, other, names)
    for at, ((title, drawn), place) in enumerate(
        zip(every.items(), st.columns(len(every)), strict=True)
    ):
        with place:
            draw_map(
                drawn,
                key=f"contrast-{at}",
                title=title,
                selected=head,
                on_click=on_click,
                compact=True,
            )
    show_table(changes(found, shown, other, notes), key)


def pick(labels: Mapping[str, str], kind: str, shown: str, known: Sequence[str]) -> str:
    """Key of the result to compare with, chosen here or by the link; it holds while other languages are looked at.

    The link has the key itself: streamlit would write the label there, which may be another result's tomorrow.

    labels: {short key: in words}, of those that can be compared.  kind: of result; each kind has a choice of its own.
    shown: what the widget belongs to.  known: keys of all results of the kind, whether or not they can be compared.
    """
    options, kept_as, written_as = [NOTHING, *labels], f"_against-{kind}", f"_against-{kind}-link"
    box, asked = f"against-{shown}", st.query_params.get(PARAM, NOTHING)
    if asked not in (
        NOTHING,
        st.session_state.get(written_as),
    ):  # a new link; another page's has none
        st.session_state[kept_as] = asked
        set_widget(box, asked if asked in options else NOTHING)
    kept = st.session_state.get(kept_as, NOTHING)
    if kept not in options and not any(key.startswith(kept) for key in known):
        st.warning(
            plain(f"The link asks to compare with result {kept[:80]!r}, which is not in the cache.")
        )
    if not labels:
        return NOTHING
    words = {NOTHING: "nothing", **labels}
    start = options.index(kept) if kept in options else 0
    chosen = st.selectbox(
        "Compare with",
        options,
        index=start,
        format_func=words.__getitem__,
        help=ABOUT[kind],
        key=box,
    )
    if chosen != options[start]:
        st.session_state[kept_as] = chosen
    st.session_state[written_as] = st.session_state.get(kept_as, NOTHING)
    if st.session_state[written_as] == NOTHING:
        st.query_params.pop(PARAM, None)
    else:
        st.query_params[PARAM] = st.session_state[written_as]
    return chosen


def maps(
    found: Contrast, shown: HeadScores, other: HeadScores, names: tuple[str, str]
) -> dict[str, HeadMap]:
    """Both maps, on one scale where they have one unit, then their difference, or else that of their ranks."""
    pair = maps_of(dict(zip(names, (shown, other), strict=True)), common=shown.unit == other.unit)
    size = shown.grid.size
    if found.difference is None:
        moved = (found.ranks[1] - found.ranks[0]).astype(float)
        tips = [f"rank {one} and {two} of {size}" for one, two in zip(*found.ranks, strict=True)]
        return {
            **pair,
            "Ranks, first above second": head_map(moved, shown.grid, unit="ranks", tips=tips),
        }
    factor, unit = shown_unit(shown.unit)
    marks = OWN * np.sign(np.nan_to_num(found.difference)).astype(np.int64) * found.clear
    there = known(shown, other)
    tips = [_tip(found, at, shown.unit) if there[at] else "no value" for at in range(size)]
    difference = head_map(factor * found.difference, shown.grid, unit=unit, marks=marks, tips=tips)
    return {**pair, "Difference, first − second": difference}


def known(shown: HeadScores, other: HeadScores) -> Bools:
    """Heads of which both results have a value, bool [head]: those without a gate, for one, have none."""
    return np.isfinite(shown.values) & np.isfinite(other.values)


def _tip(found: Contrast, at: int, unit: str) -> str:
    assert found.difference is not None
    words = f"{value_words(found.difference[at], unit)} {shown_unit(unit)[1]}"
    if found.low is not None and found.high is not None:
        low, high = (value_words(end[at], unit) for end in (found.low, found.high))
        words += f"\n{found.level:.0%} interval {low} to {high}"
    return words


@st.cache_data(max_entries=64, show_spinner=False)
def _rho(values: Floats) -> tuple[float, float, float]:
    """Spearman's ρ of two rows and the ends of its interval; cached, as a page asks again with every click."""
    rho, (low, high) = spearman_interval(values, np.random.default_rng(SEED))
    return float(rho[0, 1]), float(low[0, 1]), float(high[0, 1])


def sentence(found: Contrast, shown: HeadScores, other: HeadScores) -> str:
    """How alike the two are: rank correlation, heads that changed sign, and differences clear of 0."""
    three = _rho(np.stack([shown.values, other.values])[:, known(shown, other)])
    if np.isnan(three[0]):
        words = ["One of the two gives all heads the same value, so there is no order to compare."]
    else:
        told = (f"{part:.2f}".replace("-", MINUS) for part in three)
        words = [
            "Their rankings of the heads have Spearman's ρ = {} [{}, {}] (95 %, by resampling heads).".format(
                *told
            )
        ]
    size, signed = shown.grid.size, bool(shown.signed and other.signed)
    if signed:
        both = f"{found.surely.sum()} of them with both intervals excluding 0"
        words.append(f"{found.turned.sum()} of {size} heads have opposite signs, {both}.")
    if found.difference is None:
        words.append(
            f"Their units differ ({shown.unit}, {other.unit}), so only ranks can be compared."
        )
    elif found.low is None:
        lack = "Neither has" if shown.low is None and other.low is None else "One of them has no"
        words.append(f"{lack} intervals, so it is not known which differences are noise.")
    else:
        words.append(
            f"The difference is significant at {found.clear.sum()} of {size} heads, each by its own interval at a "
            f"confidence of at least {100 * found.level:g} %, whether or not the two share samples; among so many, "
            "some may be by chance."
        )
    if found.difference is not None and (shown.method, shown.estimand) != (
        other.method,
        other.estimand,
    ):
        words.append(
            "They estimate different quantities, so a difference need not be an error of either."
        )
    return " ".join(words)


def changes(found: Contrast, shown: HeadScores, other: HeadScores, notes: Sequence[str]) -> Table:
    """A row a head, the largest change first: both values, the difference with its interval, both ranks and signs."""
    (factor, unit), (of_other, other_unit) = shown_unit(shown.unit), shown_unit(other.unit)
    moved, signed = found.ranks[1] - found.ranks[0], bool(shown.signed and other.signed)
    size = np.abs(moved if found.difference is None else found.difference)
    columns: dict[str, tuple[str, Floats]] = {
        f"value, {unit}": (_form(shown), factor * shown.values),
        f"other value, {other_unit}": (_form(other), of_other * other.values),
    }
    for name in ("difference", "low", "high"):
        if (column := getattr(found, name)) is not None:
            columns[f"{name}, {unit}"] = (value_format(shown.unit), factor * column)
    rows: list[tuple[Cell, ...]] = []
    for at in filter(known(shown, other).__getitem__, np.argsort(-size, kind="stable").tolist()):
        numbers = [float(column[at]) for _, column in columns.values()]
        ranks = (int(found.ranks[0][at]), int(found.ranks[1][at]), int(moved[at]))
        rows.append((*shown.grid.heads[at], *numbers, *ranks, _turn(found, at) if signed else None))
    formats = [form for form, _ in columns.values()]
    return Table(
        "two-results", "Head by head, the largest change first",
        (*HEAD, *columns, "rank", "other rank", "ranks above the other", "opposite signs"),
        (*HEAD_FORMATS, *formats, "d", "d", "+d", ""), tuple(rows), (*notes, *([SURELY] if signed else [])),
    )  # fmt: skip


def _form(scores: HeadScores) -> str:
    return value_format(scores.unit) if scores.signed else ".4g"


def _turn(found: Contrast, at: int) -> str:
    return "both intervals" if found.surely[at] else "yes" if found.turned[at] else ""


def notes(shown: HeadScores, other: HeadScores) -> tuple[str, ...]:
    """What the two results are."""
    return tuple(
        f"{name}: {spec_of(s, 'model', 'name')} on {spec_of(s, 'task', 'name')}, {language_title(s.language)}, "
        f"{s.method}, {describe_variant([s])}, {spec_of(s, 'task', 'size')} examples."
        for name, s in (("Shown", shown), ("Other", other))
    )


def bare_scores(grid: HeadGrid, language: str, name: str, values: Floats) -> HeadScores:
    """Values of heads that no method of scores gives, in no unit and without intervals."""
    return HeadScores(grid, language, f"{name} of heads", values, name, name, 0, 0.0)
