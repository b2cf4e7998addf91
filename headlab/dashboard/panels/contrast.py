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

LANGUAGE_WIDGET = (
    "beside"  # key of the widget for the language, on pages that show several; links hold it
)

HEADING = "Beside another result"

SCORES = "scores"  # kind of result of most pages; the roles and the gates of heads are compared with their own kind

HELP_BY_KIND = {
    SCORES: "Another method, estimand, language, task or checkpoint: any result on the same heads.",
    "roles": "Another report of this model: other sentences, another language or checkpoint.",
    "gates": "Another run of this model: another λ, language, seed or checkpoint.",
}

SURELY = "both intervals: each excludes 0, on opposite sides."

SEED = 0  # of the resamples behind the interval of ρ

Click = Callable[[Head], None]


def fitting(
    results: Sequence[Result[HeadScores]], shown_scores: HeadScores
) -> Iterator[Result[HeadScores]]:
    """The results on the same heads, without those that are shown."""
    return (
        r
        for r in results
        if r.record.grid == shown_scores.grid and r.record.spec != shown_scores.spec
    )


def rivals(
    results: Sequence[Result[HeadScores]], shown_scores: HeadScores
) -> dict[str, tuple[str, HeadScores]]:
    """{short key: (label, scores)} of those that fit: of the same language first, and of the same model and task."""

    def order(labelled_scores: tuple[str, str, HeadScores]) -> tuple[bool, bool, str, str]:
        key, label_text, scores = labelled_scores
        is_other = [
            spec_of(scores, part, "name") != spec_of(shown_scores, part, "name")
            for part in ("model", "task")
        ]
        return scores.language != shown_scores.language, any(is_other), label_text, key

    labelled = [
        (r.key, label(r.record, shown_scores), r.record) for r in fitting(results, shown_scores)
    ]
    return {
        key[:SHORT]: (label_text, scores) for key, label_text, scores in sorted(labelled, key=order)
    }


def label(other_scores: HeadScores, shown_scores: HeadScores) -> str:
    """Language, method and settings of a result, and where it is of another model or task than the one shown, which."""
    estimand, *setting_parts = variant_name(other_scores).split(", ")
    known_method = METHODS.get(other_scores.method)
    words = [
        other_scores.method,
        *([f"estimand {estimand}"] if known_method and "estimand" in known_method.options else []),
        *setting_parts,
    ]
    for part in ("model", "task"):
        if (name := spec_of(other_scores, part, "name")) != spec_of(shown_scores, part, "name"):
            words.append(f"{part} {name}")
    fingerprints = [fingerprint_of(s.spec) for s in (other_scores, shown_scores)]
    if fingerprints[0] != fingerprints[1] and not words[-1].startswith("model "):
        words.append(f"weights {str(fingerprints[0])[:SHORT]}")
    if (size := spec_of(other_scores, "task", "size")) != spec_of(shown_scores, "task", "size"):
        words.append(f"{size} examples")
    return f"{language_title(other_scores.language)}: {', '.join(words)}"


def of_languages(
    scores: Mapping[str, HeadScores], on_click: Callable[[str, Head], None] | None = None
) -> None:
    """On pages that show several languages at once, folded: the widget that chooses one, and its comparison."""
    results = stored_results(HeadScores).results
    if not any(
        True for language_scores in scores.values() for _ in fitting(results, language_scores)
    ):
        return
    with st.expander(HEADING, icon=":material/compare_arrows:", expanded=PARAM in st.query_params):
        languages = list(scores)
        keep_known_choice(LANGUAGE_WIDGET, "language", languages)
        start = (
            languages.index(remembered_choice("focus"))
            if remembered_choice("focus") in languages
            else 0
        )
        language = st.selectbox(
            "Language",
            languages,
            index=start,
            format_func=str,
            key=LANGUAGE_WIDGET,
            bind="query-params",
        )
        of_scores(
            scores[language],
            None,
            None if on_click is None else lambda head: on_click(language, head),
        )


def of_scores(shown_scores: HeadScores, head: Head | None, on_click: Click | None) -> None:
    """The list of scores to compare with and, when one is chosen, the comparison."""
    results = stored_results(HeadScores).results
    comparable = rivals(results, shown_scores)
    labels = {key: other_label for key, (other_label, _) in comparable.items()}
    if not comparable:
        st.caption("There is no other result on these heads.")
    key = pick(
        labels,
        SCORES,
        f"{shown_scores.language}-{shown_scores.values_sha256()[:SHORT]}",
        [r.key for r in results],
    )
    if key == NOTHING:
        return
    other_label, other_scores = comparable[key]
    names = f"{label(shown_scores, other_scores)} (shown)", other_label
    compare(
        shown_scores,
        other_scores,
        names,
        notes(shown_scores, other_scores),
        content_key([shown_scores.spec, other_scores.spec]),
        head,
        on_click,
    )


def draw(shown_scores: HeadScores, head: Head, on_click: Click) -> None:
    """The comparison of one language's scores under its own heading; nothing where there is nothing to compare."""
    if any(True for _ in fitting(stored_results(HeadScores).results, shown_scores)):
        st.subheader(HEADING)
        of_scores(shown_scores, head, on_click)


def compare(
    shown_scores: HeadScores, other_scores: HeadScores, names: tuple[str, str], notes: Sequence[str], key: str, head: Head | None,
    on_click: Click | None,
) -> None:  # fmt: skip
    """Two results in words, as maps, and head by head. key: of the comparison, for its table and its file."""
    comparison = contrast(shown_scores, other_scores)
    st.markdown(plain(sentence(comparison, shown_scores, other_scores)))
    for remark in dict.fromkeys([*remarks([shown_scores]), *remarks([other_scores])]):
        st.caption(f"Caution: {plain(remark)}.")
    maps_by_title = maps(comparison, shown_scores, other_scores, names)
    for map_number, ((title, drawn_map), column) in enumerate(
        zip(maps_by_title.items(), st.columns(len(maps_by_title)), strict=True)
    ):
        with column:
            draw_map(
                drawn_map,
                key=f"contrast-{map_number}",
                title=title,
                selected=head,
                on_click=on_click,
                compact=True,
            )
    show_table(changes(comparison, shown_scores, other_scores, notes), key)


def pick(labels: Mapping[str, str], kind: str, shown_key: str, known_keys: Sequence[str]) -> str:
    """Key of the result to compare with, chosen here or by the link; it holds while other languages are looked at.

    The link has the key itself: streamlit would write the label there, which may be another result's tomorrow.

    labels: {short key: in words}, of those that can be compared.  kind: of result; each kind has a choice of its own.
    shown: what the widget belongs to.  known: keys of all results of the kind, whether or not they can be compared.
    """
    options, kept_as, written_as = [NOTHING, *labels], f"_against-{kind}", f"_against-{kind}-link"
    widget_key, linked_key = f"against-{shown_key}", st.query_params.get(PARAM, NOTHING)
    if linked_key not in (
        NOTHING,
        st.session_state.get(written_as),
    ):  # a new link; another page's has none
        st.session_state[kept_as] = linked_key
        set_widget(widget_key, linked_key if linked_key in options else NOTHING)
    kept_key = st.session_state.get(kept_as, NOTHING)
    if kept_key not in options and not any(key.startswith(kept_key) for key in known_keys):
        st.warning(
            plain(
                f"The link asks to compare with result {kept_key[:80]!r}, which is not in the cache."
            )
        )
    if not labels:
        return NOTHING
    labels_by_key = {NOTHING: "nothing", **labels}
    start_index = options.index(kept_key) if kept_key in options else 0
    chosen_key = st.selectbox(
        "Compare with",
        options,
        index=start_index,
        format_func=labels_by_key.__getitem__,
        help=HELP_BY_KIND[kind],
        key=widget_key,
    )
    if chosen_key != options[start_index]:
        st.session_state[kept_as] = chosen_key
    st.session_state[written_as] = st.session_state.get(kept_as, NOTHING)
    if st.session_state[written_as] == NOTHING:
        st.query_params.pop(PARAM, None)
    else:
        st.query_params[PARAM] = st.session_state[written_as]
    return chosen_key


def maps(
    comparison: Contrast, shown_scores: HeadScores, other_scores: HeadScores, names: tuple[str, str]
) -> dict[str, HeadMap]:
    """Both maps, on one scale where they have one unit, then their difference, or else that of their ranks."""
    both_maps = maps_of(
        dict(zip(names, (shown_scores, other_scores), strict=True)),
        common=shown_scores.unit == other_scores.unit,
    )
    size = shown_scores.grid.size
    if comparison.difference is None:
        rank_changes = (comparison.ranks[1] - comparison.ranks[0]).astype(float)
        tips = [
            f"rank {shown_rank} and {other_rank} of {size}"
            for shown_rank, other_rank in zip(*comparison.ranks, strict=True)
        ]
        return {
            **both_maps,
            "Ranks, first above second": head_map(
                rank_changes, shown_scores.grid, unit="ranks", tips=tips
            ),
        }
    factor, unit = shown_unit(shown_scores.unit)
    marks = OWN * np.sign(np.nan_to_num(comparison.difference)).astype(np.int64) * comparison.clear
    has_both_values = known(shown_scores, other_scores)
    tips = [
        _difference_tip(comparison, index, shown_scores.unit)
        if has_both_values[index]
        else "no value"
        for index in range(size)
    ]
    difference = head_map(
        factor * comparison.difference, shown_scores.grid, unit=unit, marks=marks, tips=tips
    )
    return {**both_maps, "Difference, first − second": difference}


def known(shown_scores: HeadScores, other_scores: HeadScores) -> Bools:
    """Heads of which both results have a value, bool [head]: those without a gate, for one, have none."""
    return np.isfinite(shown_scores.values) & np.isfinite(other_scores.values)


def _difference_tip(comparison: Contrast, index: int, unit: str) -> str:
    assert comparison.difference is not None
    text = f"{value_words(comparison.difference[index], unit)} {shown_unit(unit)[1]}"
    if comparison.low is not None and comparison.high is not None:
        low, high = (value_words(end[index], unit) for end in (comparison.low, comparison.high))
        text += f"\n{comparison.level:.0%} interval {low} to {high}"
    return text


@st.cache_data(max_entries=64, show_spinner=False)
def _spearman_rho(values: Floats) -> tuple[float, float, float]:
    """Spearman's ρ of two rows and the ends of its interval; cached, as a page asks again with every click."""
    rho, (low, high) = spearman_interval(values, np.random.default_rng(SEED))
    return float(rho[0, 1]), float(low[0, 1]), float(high[0, 1])


def sentence(comparison: Contrast, shown_scores: HeadScores, other_scores: HeadScores) -> str:
    """How alike the two are: rank correlation, heads that changed sign, and differences clear of 0."""
    rho_and_interval = _spearman_rho(
        np.stack([shown_scores.values, other_scores.values])[:, known(shown_scores, other_scores)]
    )
    if np.isnan(rho_and_interval[0]):
        sentences = [
            "One of the two gives all heads the same value, so there is no order to compare."
        ]
    else:
        rho_and_interval_text = (f"{part:.2f}".replace("-", MINUS) for part in rho_and_interval)
        sentences = [
            "Their rankings of the heads have Spearman's ρ = {} [{}, {}] (95 %, by resampling heads).".format(
                *rho_and_interval_text
            )
        ]
    size, have_signs = shown_scores.grid.size, bool(shown_scores.signed and other_scores.signed)
    if have_signs:
        surely_words = f"{comparison.surely.sum()} of them with both intervals excluding 0"
        sentences.append(
            f"{comparison.turned.sum()} of {size} heads have opposite signs, {surely_words}."
        )
    if comparison.difference is None:
        sentences.append(
            f"Their units differ ({shown_scores.unit}, {other_scores.unit}), so only ranks can be compared."
        )
    elif comparison.low is None:
        lack = (
            "Neither has"
            if shown_scores.low is None and other_scores.low is None
            else "One of them has no"
        )
        sentences.append(f"{lack} intervals, so it is not known which differences are noise.")
    else:
        sentences.append(
            f"The difference is significant at {comparison.clear.sum()} of {size} heads, each by its own interval at a "
            f"confidence of at least {100 * comparison.level:g} %, whether or not the two share samples; among so many, "
            "some may be by chance."
        )
    if comparison.difference is not None and (shown_scores.method, shown_scores.estimand) != (
        other_scores.method,
        other_scores.estimand,
    ):
        sentences.append(
            "They estimate different quantities, so a difference need not be an error of either."
        )
    return " ".join(sentences)


def changes(
    comparison: Contrast, shown_scores: HeadScores, other_scores: HeadScores, notes: Sequence[str]
) -> Table:
    """A row a head, the largest change first: both values, the difference with its interval, both ranks and signs."""
    (factor, unit), (other_factor, other_unit) = (
        shown_unit(shown_scores.unit),
        shown_unit(other_scores.unit),
    )
    rank_changes, have_signs = (
        comparison.ranks[1] - comparison.ranks[0],
        bool(shown_scores.signed and other_scores.signed),
    )
    change_sizes = np.abs(rank_changes if comparison.difference is None else comparison.difference)
    columns: dict[str, tuple[str, Floats]] = {
        f"value, {unit}": (_value_format_of(shown_scores), factor * shown_scores.values),
        f"other value, {other_unit}": (
            _value_format_of(other_scores),
            other_factor * other_scores.values,
        ),
    }
    for name in ("difference", "low", "high"):
        if (column := getattr(comparison, name)) is not None:
            columns[f"{name}, {unit}"] = (value_format(shown_scores.unit), factor * column)
    rows: list[tuple[Cell, ...]] = []
    for index in filter(
        known(shown_scores, other_scores).__getitem__,
        np.argsort(-change_sizes, kind="stable").tolist(),
    ):
        numbers = [float(column[index]) for _, column in columns.values()]
        ranks = (
            int(comparison.ranks[0][index]),
            int(comparison.ranks[1][index]),
            int(rank_changes[index]),
        )
        rows.append(
            (
                *shown_scores.grid.heads[index],
                *numbers,
                *ranks,
                _sign_change_words(comparison, index) if have_signs else None,
            )
        )
    formats = [form for form, _ in columns.values()]
    return Table(
        "two-results", "Head by head, the largest change first",
        (*HEAD, *columns, "rank", "other rank", "ranks above the other", "opposite signs"),
        (*HEAD_FORMATS, *formats, "d", "d", "+d", ""), tuple(rows), (*notes, *([SURELY] if have_signs else [])),
    )  # fmt: skip


def _value_format_of(scores: HeadScores) -> str:
    return value_format(scores.unit) if scores.signed else ".4g"


def _sign_change_words(comparison: Contrast, index: int) -> str:
    return (
        "both intervals" if comparison.surely[index] else "yes" if comparison.turned[index] else ""
    )


def notes(shown_scores: HeadScores, other_scores: HeadScores) -> tuple[str, ...]:
    """What the two results are."""
    return tuple(
        f"{name}: {spec_of(s, 'model', 'name')} on {spec_of(s, 'task', 'name')}, {language_title(s.language)}, "
        f"{s.method}, {describe_variant([s])}, {spec_of(s, 'task', 'size')} examples."
        for name, s in (("Shown", shown_scores), ("Other", other_scores))
    )


def bare_scores(grid: HeadGrid, language: str, name: str, values: Floats) -> HeadScores:
    """Values of heads that no method of scores gives, in no unit and without intervals."""
    return HeadScores(grid, language, f"{name} of heads", values, name, name, 0, 0.0)
