"""Scores of heads as a section: findings in each language, a map, and every head's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headlab.core import (
    HEAD_COLUMNS,
    HEAD_FORMATS,
    Cell,
    Floats,
    Table,
    display_unit,
    nouns_of_kinds,
    percent_text,
    replacement_of,
)
from headlab.methods import METHODS, cost_of, remarks
from headlab.pictures import HeadMap, holm_adjusted_p_values, maps_of_scores
from headlab.report.again import joined
from headlab.report.commands import Known
from headlab.report.maps import scale_key, scores_cells, stack_maps
from headlab.report.parts import Folded, Item, ReportFigure, Section, model_of
from headlab.report.sections.shared import equal_texts_notes, origin_of
from headlab.results import (
    SAMPLING_ERROR_LIMIT,
    HeadScores,
    omission_notes,
    value_notes,
    why_holm_rejects_none,
)


def scores_section(items: Sequence[Item[HeadScores]], known: Known) -> Section:
    """The section of one group of scores.

    Args:
        items: At least one; all of one model, task, method, estimand, unit and ablation.
        known: What the store of the report knows.
    """
    results = [item.record for item in items]
    first = results[0]
    maps = list(maps_of_scores(_by_number(results)).values())
    figures = []
    for scores, head_map in zip(results, maps, strict=True):
        caption = scores.language
        if len(results) == 1:
            caption = f"{scores.language}, {head_map.unit}"
        figures.append(ReportFigure(_map_drawings(scores, head_map), caption))
    figures.append(ReportFigure((scale_key(maps),), map_legend(first, maps), wide=True))
    method = METHODS[first.method].title if first.method in METHODS else first.method
    languages = ", ".join(scores.language for scores in results)
    return Section(
        f"{method} on {first.spec['task']['name']}: {languages}",
        f"scores of {first.grid.noun}",
        model_of(first.spec),
        figures,
        [_summary(results), *map(Folded, _head_tables(results))],
        [*_label_notes(items, known), *_notes(results), *equal_texts_notes(items)],
        [origin_of(item, f"{item.record.language}, {item.record.method}") for item in items],
        joined([known.again("score", scores.spec) for scores in results]),
    )


def _label_notes(items: Sequence[Item[HeadScores]], known: Known) -> list[str]:
    """The names and notes that people gave to the results, each text once.

    Args:
        items: The results.
        known: What the store of the report knows.
    """
    languages_by_words: dict[str, list[str]] = {}
    for item in items:
        words = known.label(item.key).words
        if words:
            languages_by_words.setdefault(words, []).append(item.record.language)
    return [f"{', '.join(languages)}: {words}" for words, languages in languages_by_words.items()]


def _by_number(results: Sequence[HeadScores]) -> dict[str, HeadScores]:
    """The results by their number: several may be of one language."""
    return {str(number): scores for number, scores in enumerate(results)}


def _map_drawings(scores: HeadScores, head_map: HeadMap) -> tuple[str, ...]:
    label = f"{scores.method} of every head in {scores.language}, {head_map.unit}"
    return stack_maps(scores.grid, scores_cells(head_map), label)


def map_legend(first: HeadScores, maps: Sequence[HeadMap]) -> str:
    """What the maps' colours and marks mean, in sentences.

    Args:
        first: The scores of the first map.
        maps: All of them.
    """
    sentences = [f"{first.estimand}, in {maps[0].unit}."]
    if any(head_map.signed for head_map in maps):
        sentences.append(
            "Above 0 (blue): the head helps, and that much is lost when it goes; below 0 (orange): "
            "it harms."
        )
    if first.signed and first.low is not None:
        ring = (
            f"A ring in the corner: the head's own {percent_text(first.level)} interval excludes 0"
        )
        tests = max(head_map.tests for head_map in maps)
        if tests:
            ring += f"; a filled one: also after Holm's correction for {tests:,} tests"
        sentences.append(f"{ring}.")
    return " ".join(sentences)


def _summary(results: Sequence[HeadScores]) -> Table:
    """A row per language, without columns in which no row has a value."""
    factor, unit = display_unit(results[0].unit)
    width_format = ".2f" if factor > 1 else ".3g"  # points, or a unit whose values may be small
    format_by_column = {
        "language": "",
        "helpful": "d",
        "harmful": "d",
        "undecided": "d",
        f"half-width, median, {unit}": width_format,
        f"half-width, largest, {unit}": width_format,
        "samples a head, median": ",.0f",
        "examples": ",d",
        "forwards": ",d",
        "seconds": ",.0f",
    }
    columns = tuple(format_by_column)
    formats = tuple(format_by_column.values())
    rows = [_summary_row(scores, factor) for scores in results]
    filled = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
    return Table(
        "scores-summary",
        "What was found",
        tuple(columns[index] for index in filled),
        tuple(formats[index] for index in filled),
        tuple(tuple(row[index] for index in filled) for row in rows),
    )


def _summary_row(scores: HeadScores, factor: float) -> tuple[Cell, ...]:
    """One language's row.

    Args:
        factor: From the unit of the scores to the unit shown.
    """
    cost = cost_of(scores)
    undecided = None
    if cost.narrow is not None and cost.wide is not None:
        undecided = cost.narrow + cost.wide
    widths = [
        None if width is None else factor * width
        for width in (cost.median_half_width, cost.largest_half_width)
    ]
    examples = scores.spec["task"].get("size")
    return (
        scores.language,
        cost.helpful,
        cost.harmful,
        undecided,
        *widths,
        None if cost.samples is None else cost.samples[1],
        examples if isinstance(examples, int) else None,
        cost.forwards,
        cost.seconds,
    )


def _head_tables(results: Sequence[HeadScores]) -> Iterator[Table]:
    """One table per language; p-values are adjusted over all heads and languages that have any."""
    adjusted_p = holm_adjusted_p_values(_by_number(results))
    for number, scores in enumerate(results):
        yield _head_table(scores, adjusted_p.get(str(number)))


def _head_table(scores: HeadScores, adjusted_p: Floats | None) -> Table:
    """A row per head, without columns of what these scores do not have.

    Args:
        scores: In one language.
        adjusted_p: Adjusted p-values, float [head]; None where the scores have none.
    """
    factor, unit = display_unit(scores.unit)
    value_format = "+.3f" if scores.signed else ".4f"
    columns: dict[tuple[str, str], Floats | None] = {
        (f"value, {unit}", value_format): factor * scores.values,
        (f"samples alone, {unit}", value_format): (
            None if scores.sample_means is None else factor * scores.sample_means
        ),
        (f"low, {unit}", value_format): None if scores.low is None else factor * scores.low,
        (f"high, {unit}", value_format): None if scores.high is None else factor * scores.high,
        (f"sampling error, {unit}", value_format.lstrip("+")): (
            None if scores.sampling_error is None else factor * scores.sampling_error
        ),
        (f"average error, {unit}", value_format.lstrip("+")): (
            None if scores.average_error is None else factor * scores.average_error
        ),
        ("samples", ",.0f"): None if scores.samples is None else scores.samples.astype(float),
        ("p", ".4f"): scores.p_values,
        ("p (Holm)", ".4f"): adjusted_p,
    }
    present = {column: values for column, values in columns.items() if values is not None}
    ranks = scores.ranks
    titles = {stack.name: stack.title for stack in scores.grid.stacks}
    rows: list[tuple[Cell, ...]] = []
    for index, head in enumerate(scores.grid.heads):
        numbers = [float(values[index]) for values in present.values()]
        rows.append((titles[head.stack], head.layer, head.head, int(ranks[index]), *numbers))
    return Table(
        f"scores-{scores.language}",
        f"Every {nouns_of_kinds(scores.grid.kinds)[0]}, {scores.language}",
        (*HEAD_COLUMNS[:2], _number_title(scores), "rank", *(name for name, _ in present)),
        (*HEAD_FORMATS, "d", *(number_format for _, number_format in present)),
        tuple(rows),
    )


def _number_title(scores: HeadScores) -> str:
    """Title of the column that tells players of a layer apart."""
    return HEAD_COLUMNS[2] if scores.grid.has_only_heads else "number"


def _notes(results: Sequence[HeadScores]) -> Iterator[str]:
    first = results[0]
    yield from (f"{remark[:1].upper()}{remark[1:]}." for remark in remarks(results))
    heads = sum(scores.test_count for scores in results)
    if first.low is not None and not first.signed:
        yield f"Intervals, each at {percent_text(first.level)}, cover the sampling of the examples."
    elif first.low is not None:
        yield (
            f"{heads:,} intervals are shown, each at {percent_text(first.level)}: some exclude 0 by chance. "
            "p (Holm) is adjusted over all of them."
        )
    why_none_survives = why_holm_rejects_none(results)
    if why_none_survives:
        yield why_none_survives
    if first.sampling_error is not None:
        yield (
            f"The sampling error, at {percent_text(first.level)}, {SAMPLING_ERROR_LIMIT}: no {nouns_of_kinds(first.grid.kinds)[0]} is marked as helping or "
            "harming."
        )
    elif first.low is None:
        yield "These scores have no intervals: what lies close together may be equal."
    yield from value_notes(results)
    yield from omission_notes(results)
    ablation = first.spec["ablation"]
    one, several = nouns_of_kinds(first.grid.kinds)
    counted = several if several == "layers" else f"Layers and {several}"
    yield (
        f"A removed {one} gives {replacement_of(ablation)}. "
        f"{counted[0].upper()}{counted[1:]} count from 0."
    )
