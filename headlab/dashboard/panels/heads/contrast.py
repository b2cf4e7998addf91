"""Two results side by side: both maps, their difference, and heads that changed.

A head has changed if its rank or sign has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import streamlit as st

from headlab.core import (
    HEAD_COLUMNS,
    HEAD_FORMATS,
    HEADS,
    Bools,
    Cell,
    Floats,
    Head,
    HeadGrid,
    Table,
    content_key,
    display_unit,
    fingerprint_of,
    percent_text,
)
from headlab.dashboard.frame import describe_variant, store_of_folder, stored_results
from headlab.dashboard.frame.stored_scores import variant_name
from headlab.dashboard.names import count_words, language_title, plain
from headlab.dashboard.panels.masks import MEAN_OF_LANGUAGES, pooled_scores
from headlab.dashboard.widgets import (
    draw_map,
    keep_known_choice,
    remembered_choice,
    set_widget,
    show_table,
)
from headlab.methods import METHODS, remarks, spec_of
from headlab.pictures import (
    MINUS,
    OWN_INTERVAL,
    HeadMap,
    head_map,
    maps_of_scores,
    value_format,
    value_words,
)
from headlab.results import Contrast, HeadScores, Result, contrast, default_root
from headlab.stats import spearman_interval

COMPARED_PARAM = "against"
"""Parameter of a link: the result to compare with."""
NO_COMPARISON = ""
"""In place of a key: compare with no result."""
NO_COMPARISON_IN_LINK = "none"
"""How a link says so, on pages that compare with something by themselves."""
OTHER_LANGUAGES = "others"
"""In place of a key: compare with the mean of the other languages shown."""
COMPARED_KEY_LENGTH = 12
"""Characters of a result's key, enough to tell results apart in a link."""
LANGUAGE_WIDGET = "beside"
"""Key of the widget for the language, on pages that show several; links hold it."""
COMPARISON_HEADING = "Beside another result"
SCORES_KIND = "scores"
"""Kind of result of most pages.

The roles and the gates of heads are compared with their own kind.
"""

HELP_BY_KIND = {
    SCORES_KIND: "Another method, estimand, language, task or checkpoint: any result on the same heads.",
    "roles": "Another report of this model: other sentences, another language or checkpoint.",
    "gates": "Another run of this model: another λ, language, seed or checkpoint.",
}

JOINED_NOTE = "Ranks, signs and differences are of the means of samples; the maps of values lean on slopes too."
OPPOSITE_SIGNS_NOTE = "both intervals: each excludes 0, on opposite sides."

SEED = 0
"""Of the resamples behind the interval of ρ."""
FEWEST_RANKED = 3
"""With fewer heads there is no ranking to speak of."""

HeadAction = Callable[[Head], None]


@dataclass
class ComparedResult:
    """The result of one kind that one session compares with.

    Attributes:
        chosen_key: Short key of the result, `NO_COMPARISON` or `OTHER_LANGUAGES`; None before
            anything was chosen.
        written_key: What the page itself put in its link last; None if it has not yet.
    """

    chosen_key: str | None = None
    written_key: str | None = None

    def start_key(self, default_key: str) -> str:
        """What is compared with at first: what was chosen last, or else the page's own choice."""
        if self.chosen_key is None:
            return default_key
        return self.chosen_key

    @classmethod
    def of_session(cls, kind: str) -> ComparedResult:
        """This session's object for a kind of result; each kind has a choice of its own."""
        key = f"_against-{kind}"
        compared_result = st.session_state.get(key)
        if not isinstance(compared_result, cls):
            compared_result = cls()
            st.session_state[key] = compared_result
        return compared_result


def results_on_same_heads(
    results: Sequence[Result[HeadScores]], shown_scores: HeadScores
) -> Iterator[Result[HeadScores]]:
    """The results on the same heads, without those that are shown."""
    for result in results:
        scores = result.record
        if scores.grid == shown_scores.grid and scores.spec != shown_scores.spec:
            yield result


def comparable_scores_by_key(
    results: Sequence[Result[HeadScores]], shown_scores: HeadScores
) -> dict[str, tuple[str, HeadScores]]:
    """Scores on the same heads, by short key.

    Those of the same language come first, then those of the same model and task.

    Returns:
        {short key: (label, scores)}.
    """

    def order(labelled_scores: tuple[str, str, HeadScores]) -> tuple[bool, bool, str, str]:
        key, label_text, scores = labelled_scores
        is_other_language = scores.language != shown_scores.language
        is_other_subject = any(
            spec_of(scores, part, "name") != spec_of(shown_scores, part, "name")
            for part in ("model", "task")
        )
        return is_other_language, is_other_subject, label_text, key

    labelled_results = [
        (result.key, comparison_label(result.record, shown_scores), result.record)
        for result in results_on_same_heads(results, shown_scores)
    ]
    return {
        key[:COMPARED_KEY_LENGTH]: (named_by_people(key, label_text), scores)
        for key, label_text, scores in sorted(labelled_results, key=order)
    }


def named_by_people(key: str, label_text: str) -> str:
    """A result in words, with the name that people gave to it before them, if they gave it one.

    Args:
        key: Of the result.
        label_text: What it is, in words.
    """
    store = store_of_folder(default_root())
    name = store.label(key).name if store.has_labels else ""
    return f"“{name}”: {label_text}" if name else label_text


def comparison_label(other_scores: HeadScores, shown_scores: HeadScores) -> str:
    """Language, method and settings of a result.

    Where it is of another model or task than the one shown, that too.
    """
    estimand, *setting_parts = variant_name(other_scores).split(", ")
    known_method = METHODS.get(other_scores.method)
    parts = [other_scores.method]
    if known_method and "estimand" in known_method.options:
        parts.append(f"estimand {estimand}")
    parts += setting_parts
    for subject in ("model", "task"):
        name = spec_of(other_scores, subject, "name")
        if name != spec_of(shown_scores, subject, "name"):
            parts.append(f"{subject} {name}")
    other_fingerprint = fingerprint_of(other_scores.spec)
    has_other_weights = other_fingerprint != fingerprint_of(shown_scores.spec)
    if has_other_weights and not parts[-1].startswith("model "):
        parts.append(f"weights {str(other_fingerprint)[:COMPARED_KEY_LENGTH]}")
    size = spec_of(other_scores, "task", "size")
    if size != spec_of(shown_scores, "task", "size"):
        parts.append(f"{size} examples")
    return f"{language_title(other_scores.language)}: {', '.join(parts)}"


def draw_comparison_by_language(
    scores: Mapping[str, HeadScores], on_click: Callable[[str, Head], None] | None = None
) -> None:
    """For pages that show several languages: a fold with the comparison of one of them.

    A widget chooses the language.
    """
    first_scores = next(iter(scores.values()), None)
    players = HEADS if first_scores is None else _players_of(first_scores)
    results = stored_results(HeadScores, players).results
    if not any(_has_comparable(results, language_scores) for language_scores in scores.values()):
        return
    with st.expander(
        COMPARISON_HEADING,
        icon=":material/compare_arrows:",
        expanded=COMPARED_PARAM in st.query_params,
    ):
        languages = list(scores)
        keep_known_choice(LANGUAGE_WIDGET, "language", languages)
        focus = remembered_choice("focus")
        language = st.selectbox(
            "Language",
            languages,
            index=languages.index(focus) if focus in languages else 0,
            format_func=str,
            key=LANGUAGE_WIDGET,
            bind="query-params",
        )
        on_head_click = None if on_click is None else partial(on_click, language)
        draw_comparison_of_scores(scores[language], None, on_head_click)


def _has_comparable(results: Sequence[Result[HeadScores]], shown_scores: HeadScores) -> bool:
    """Whether there is any result to compare these scores with."""
    return next(results_on_same_heads(results, shown_scores), None) is not None


def draw_comparison_of_scores(
    shown_scores: HeadScores,
    head: Head | None,
    on_click: HeadAction | None,
    other_languages: Mapping[str, HeadScores] | None = None,
) -> None:
    """The list of scores to compare with and, when one is chosen, the comparison.

    Args:
        shown_scores: The first result.
        head: That is marked in the maps.
        on_click: Called with a head that is clicked in a map.
        other_languages: Scores of the other languages shown, whose mean is compared with at first;
            None or empty where there is no such mean.
    """
    results = stored_results(HeadScores, _players_of(shown_scores)).results
    comparable = comparable_scores_by_key(results, shown_scores)
    default_key = NO_COMPARISON
    mean_of_others = pooled_scores(other_languages or {}, MEAN_OF_LANGUAGES)
    if mean_of_others is not None and mean_of_others.grid == shown_scores.grid:
        default_key = OTHER_LANGUAGES
        label_of_mean = mean_of_others_words(list(other_languages or {}))
        comparable = {OTHER_LANGUAGES: (label_of_mean, mean_of_others), **comparable}
    labels = {key: other_label for key, (other_label, _) in comparable.items()}
    if not comparable:
        st.caption(f"There is no other result on these {shown_scores.grid.noun}.")
    key = pick_compared_result(
        labels,
        SCORES_KIND,
        f"{shown_scores.language}-{shown_scores.values_sha256()[:COMPARED_KEY_LENGTH]}",
        [result.key for result in results],
        default_key,
    )
    if key == NO_COMPARISON:
        return
    other_label, other_scores = comparable[key]
    notes = comparison_notes(shown_scores, other_scores)
    if key == OTHER_LANGUAGES:
        languages = ", ".join(map(language_title, other_languages or {}))
        notes = (notes[0], f"Other: the mean of {languages}, by the same method and settings.")
    draw_comparison(
        shown_scores,
        other_scores,
        (f"{comparison_label(shown_scores, other_scores)} (shown)", other_label),
        notes,
        content_key([shown_scores.spec, other_scores.spec, key]),
        head,
        on_click,
    )


def mean_of_others_words(languages: Sequence[str]) -> str:
    """What the mean of the other languages is called.

    Args:
        languages: Their codes, at least one.
    """
    if len(languages) == 1:
        return f"the other language, {language_title(languages[0])}"
    return f"the mean of the other {count_words(len(languages), 'language')}"


def draw_comparison_section(
    scores: Mapping[str, HeadScores], language: str, head: Head, on_click: HeadAction
) -> None:
    """The comparison of one language's scores under its own heading.

    At first it is with the mean of the other languages: what is specific to this one. Nothing is
    drawn where there is nothing to compare.

    Args:
        scores: By language.
        language: Code of the one that is compared.
        head: That is marked in the maps.
        on_click: Called with a head that is clicked in a map.
    """
    other_languages = {name: others for name, others in scores.items() if name != language}
    if other_languages or _has_comparable(
        stored_results(HeadScores, _players_of(scores[language])).results, scores[language]
    ):
        st.subheader(COMPARISON_HEADING)
        draw_comparison_of_scores(scores[language], head, on_click, other_languages)


def draw_comparison(
    shown_scores: HeadScores,
    other_scores: HeadScores,
    names: tuple[str, str],
    notes: Sequence[str],
    key: str,
    head: Head | None,
    on_click: HeadAction | None,
) -> None:
    """Draw two results in words, as maps, and head by head.

    Args:
        shown_scores: The first result.
        other_scores: The second result.
        names: Of both, above their maps.
        notes: Below the table.
        key: Of the comparison, for its table and its file.
        head: That is marked in the maps.
        on_click: Called with a head that is clicked in a map.
    """
    comparison = contrast(shown_scores, other_scores)
    st.markdown(plain(comparison_sentence(comparison, shown_scores, other_scores)))
    for remark in dict.fromkeys([*remarks([shown_scores]), *remarks([other_scores])]):
        st.caption(f"Caution: {plain(remark)}.")
    if shown_scores.sample_means is not None or other_scores.sample_means is not None:
        st.caption(JOINED_NOTE)
    maps_by_title = comparison_maps(comparison, shown_scores, other_scores, names)
    columns = st.columns(len(maps_by_title))
    for map_number, (title, drawn_map) in enumerate(maps_by_title.items()):
        with columns[map_number]:
            draw_map(
                drawn_map,
                key=f"contrast-{map_number}",
                title=title,
                selected_head=head,
                on_click=on_click,
                compact=True,
            )
    show_table(head_changes_table(comparison, shown_scores, other_scores, notes), key)


def pick_compared_result(
    labels: Mapping[str, str],
    kind: str,
    shown_key: str,
    known_keys: Sequence[str],
    default_key: str = NO_COMPARISON,
) -> str:
    """Key of the result to compare with, chosen here or by the link.

    It holds while other languages are looked at.

    The link has the key itself: streamlit would write the label there, which may be another
    result's tomorrow.

    Args:
        labels: {short key: in words}, of those that can be compared.
        kind: Of result; each kind has a choice of its own.
        shown_key: What the widget belongs to.
        known_keys: Keys of all results of the kind, whether or not they can be compared.
        default_key: What is compared with before anything was chosen.

    Returns:
        A key of `labels`, or `NO_COMPARISON`.
    """
    options = [NO_COMPARISON, *labels]
    widget_key = f"against-{shown_key}"
    compared_result = ComparedResult.of_session(kind)
    linked_key = st.query_params.get(COMPARED_PARAM)
    if linked_key and linked_key != compared_result.written_key:  # a new link
        is_nothing = linked_key == NO_COMPARISON_IN_LINK
        compared_result.chosen_key = NO_COMPARISON if is_nothing else linked_key
        set_widget(widget_key, linked_key if linked_key in options else NO_COMPARISON)
    start_key = compared_result.start_key(default_key)
    is_other_pages = start_key == OTHER_LANGUAGES and default_key != OTHER_LANGUAGES
    is_known = any(key.startswith(start_key) for key in known_keys)
    if start_key not in options and not is_other_pages and not is_known:
        problem = (
            f"The link asks to compare with result {start_key[:80]!r}, which is not in the cache."
        )
        st.warning(plain(problem))
    if not labels:
        return NO_COMPARISON
    labels_by_key = {NO_COMPARISON: "nothing", **labels}
    start_index = options.index(start_key) if start_key in options else 0
    chosen_key = st.selectbox(
        "Compare with",
        options,
        index=start_index,
        format_func=labels_by_key.__getitem__,
        help=HELP_BY_KIND[kind],
        key=widget_key,
    )
    if chosen_key != options[start_index]:
        compared_result.chosen_key = chosen_key
    compared_result.written_key = compared_result.chosen_key
    if compared_result.chosen_key == NO_COMPARISON and default_key != NO_COMPARISON:
        compared_result.written_key = NO_COMPARISON_IN_LINK
    if is_other_pages:
        compared_result.written_key = None
    if compared_result.written_key:
        st.query_params[COMPARED_PARAM] = compared_result.written_key
    else:
        st.query_params.pop(COMPARED_PARAM, None)
    return chosen_key


def comparison_maps(
    comparison: Contrast, shown_scores: HeadScores, other_scores: HeadScores, names: tuple[str, str]
) -> dict[str, HeadMap]:
    """Both maps, then their difference, or that of their ranks.

    Maps of one unit have one scale.
    """
    both_maps = maps_of_scores(
        dict(zip(names, (shown_scores, other_scores), strict=True)),
        common=shown_scores.unit == other_scores.unit,
    )
    size = shown_scores.grid.size
    has_both_values = has_both_values_of(shown_scores, other_scores)
    tips = ["no value"] * size
    if comparison.difference is None:
        rank_changes = np.where(has_both_values, comparison.ranks[1] - comparison.ranks[0], np.nan)
        for index in np.flatnonzero(has_both_values).tolist():
            shown_rank, other_rank = (ranks[index] for ranks in comparison.ranks)
            tips[index] = f"rank {shown_rank} and {other_rank} of {has_both_values.sum()}"
        rank_map = head_map(rank_changes, shown_scores.grid, unit="ranks", tips=tips)
        return {**both_maps, "Ranks, first above second": rank_map}
    factor, unit = display_unit(shown_scores.unit)
    marks = (
        OWN_INTERVAL
        * np.sign(np.nan_to_num(comparison.difference)).astype(np.int64)
        * comparison.clear
    )
    for index in np.flatnonzero(has_both_values).tolist():
        tips[index] = _difference_tip(comparison, index, shown_scores.unit)
    difference = head_map(
        factor * comparison.difference, shown_scores.grid, unit=unit, marks=marks, tips=tips
    )
    return {**both_maps, "Difference, first − second": difference}


def has_both_values_of(shown_scores: HeadScores, other_scores: HeadScores) -> Bools:
    """Heads of which both results have a value to compare, bool [head].

    A head without a gate or without a sample has none, for example.
    """
    return np.isfinite(shown_scores.tested_values) & np.isfinite(other_scores.tested_values)


def _difference_tip(comparison: Contrast, index: int, unit: str) -> str:
    assert comparison.difference is not None
    text = f"{value_words(comparison.difference[index], unit)} {display_unit(unit)[1]}"
    if comparison.low is not None and comparison.high is not None:
        low = value_words(comparison.low[index], unit)
        high = value_words(comparison.high[index], unit)
        text += f"\n{percent_text(comparison.level)} interval {low} to {high}"
    return text


@st.cache_data(max_entries=64, show_spinner=False)
def _spearman_rho(values: Floats) -> tuple[float, float, float]:
    """Spearman's ρ of two rows and the ends of its interval.

    Cached, as a page asks again with every click.
    """
    rho, (low, high) = spearman_interval(values, np.random.default_rng(SEED))
    return float(rho[0, 1]), float(low[0, 1]), float(high[0, 1])


def comparison_sentence(
    comparison: Contrast, shown_scores: HeadScores, other_scores: HeadScores
) -> str:
    """How alike two results are: rank correlation, signs that changed, and clear differences.

    A difference is clear if its interval excludes 0.
    """
    both_values = np.stack([shown_scores.tested_values, other_scores.tested_values])
    has_both_values = has_both_values_of(shown_scores, other_scores)
    size = int(has_both_values.sum())
    noun = shown_scores.grid.noun
    sentences = [ranking_sentence(both_values[:, has_both_values], noun)]
    if shown_scores.signed and other_scores.signed:
        surely_words = f"{comparison.surely.sum()} of them with both intervals excluding 0"
        sentences.append(
            f"{comparison.turned.sum()} of {size} {noun} have opposite signs, {surely_words}."
        )
    if comparison.difference is None:
        sentences.append(
            f"Their units differ ({shown_scores.unit}, {other_scores.unit}), so only ranks can be compared."
        )
    elif comparison.low is None:
        has_neither = shown_scores.low is None and other_scores.low is None
        lack = "Neither has" if has_neither else "One of them has no"
        sentences.append(f"{lack} intervals, so it is not known which differences are noise.")
    else:
        sentences.append(
            f"The difference is significant at {comparison.clear.sum()} of {size} {noun}, each by its own interval at a "
            f"confidence of at least {100 * comparison.level:g} %, whether or not the two share samples; among so many, "
            "some may be by chance."
        )
    shown_quantity = (shown_scores.method, shown_scores.estimand)
    other_quantity = (other_scores.method, other_scores.estimand)
    if comparison.difference is not None and shown_quantity != other_quantity:
        sentences.append(
            "They estimate different quantities, so a difference need not be an error of either."
        )
    return " ".join(sentences)


def ranking_sentence(both_values: Floats, noun: str = HEADS) -> str:
    """How alike two rankings of the heads are.

    Args:
        both_values: By which they are ranked, float [2, head], all of them finite.
        noun: What is ranked.
    """
    if both_values.shape[1] < FEWEST_RANKED:
        return f"Too few {noun} have both values to compare their order."
    rho, low, high = _spearman_rho(both_values)
    if np.isnan(rho):
        return f"One of the two gives all {noun} the same value, so there is no order to compare."
    rho_text, low_text, high_text = (f"{n:.2f}".replace("-", MINUS) for n in (rho, low, high))
    return (
        f"Their rankings of the {noun} have Spearman's ρ = {rho_text} [{low_text}, {high_text}] "
        f"(95 %, by resampling {noun})."
    )


def _players_of(scores: HeadScores) -> str:
    """What scores are of, as `stored_results` takes it."""
    return str(spec_of(scores, "players") or HEADS)


def head_changes_table(
    comparison: Contrast, shown_scores: HeadScores, other_scores: HeadScores, notes: Sequence[str]
) -> Table:
    """A row a head, the largest change first.

    It has both values, the difference with its interval, both ranks and signs.
    """
    factor, unit = display_unit(shown_scores.unit)
    other_factor, other_unit = display_unit(other_scores.unit)
    shown_ranks, other_ranks = comparison.ranks
    rank_changes = other_ranks - shown_ranks
    have_signs = bool(shown_scores.signed and other_scores.signed)
    change_sizes = np.abs(rank_changes if comparison.difference is None else comparison.difference)
    columns: dict[str, tuple[str, Floats]] = {
        f"{_tested_name(shown_scores)}, {unit}": (
            _value_format_of(shown_scores),
            factor * shown_scores.tested_values,
        ),
        f"other {_tested_name(other_scores)}, {other_unit}": (
            _value_format_of(other_scores),
            other_factor * other_scores.tested_values,
        ),
    }
    for name in ("difference", "low", "high"):
        column = getattr(comparison, name)
        if column is not None:
            columns[f"{name}, {unit}"] = (value_format(shown_scores.unit), factor * column)
    has_both_values = has_both_values_of(shown_scores, other_scores)
    is_of_heads = shown_scores.grid.has_only_heads
    stack_titles = {stack.name: stack.title for stack in shown_scores.grid.stacks}
    rows: list[tuple[Cell, ...]] = []
    for index in np.argsort(-change_sizes, kind="stable").tolist():
        if not has_both_values[index]:
            continue
        numbers = [float(column[index]) for _, column in columns.values()]
        ranks = (int(shown_ranks[index]), int(other_ranks[index]), int(rank_changes[index]))
        sign_change = _sign_change_words(comparison, index) if have_signs else None
        stack, layer, number = shown_scores.grid.heads[index]
        rows.append((stack_titles[stack], layer, number, *numbers, *ranks, sign_change))
    formats = [number_format for number_format, _ in columns.values()]
    all_notes = [*notes, OPPOSITE_SIGNS_NOTE] if have_signs else notes
    return Table(
        "two-results",
        "Head by head, the largest change first" if is_of_heads else "The largest change first",
        (
            *HEAD_COLUMNS[:2],
            HEAD_COLUMNS[2] if is_of_heads else "number",
            *columns,
            "rank",
            "other rank",
            "ranks above the other",
            "opposite signs",
        ),
        (*HEAD_FORMATS, *formats, "d", "d", "+d", ""),
        tuple(rows),
        tuple(all_notes),
    )


def _tested_name(scores: HeadScores) -> str:
    """What the values are called that differences rest on."""
    if scores.sample_means is None:
        return "value"
    return "mean of samples"


def _value_format_of(scores: HeadScores) -> str:
    if scores.signed:
        return value_format(scores.unit)
    return ".4g"


def _sign_change_words(comparison: Contrast, index: int) -> str:
    """Whether a head's values have opposite signs, and whether both intervals say so.

    The text is empty if they have not.
    """
    if comparison.surely[index]:
        return "both intervals"
    if comparison.turned[index]:
        return "yes"
    return ""


def comparison_notes(shown_scores: HeadScores, other_scores: HeadScores) -> tuple[str, ...]:
    """What the two results are."""
    return _note("Shown", shown_scores), _note("Other", other_scores)


def _note(name: str, scores: HeadScores) -> str:
    model = spec_of(scores, "model", "name")
    task = spec_of(scores, "task", "name")
    size = spec_of(scores, "task", "size")
    return (
        f"{name}: {model} on {task}, {language_title(scores.language)}, {scores.method}, "
        f"{describe_variant([scores])}, {size} examples."
    )


def unitless_scores(grid: HeadGrid, language: str, name: str, values: Floats) -> HeadScores:
    """Values of heads that no method of scores gives, in no unit and without intervals."""
    return HeadScores(grid, language, f"{name} of heads", values, name, name, 0, 0.0)
