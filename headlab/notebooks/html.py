"""Records as HTML for notebooks: no script, the notebook's own colours, intervals on hover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from headlab.api import Report, accuracy_interval
from headlab.core import Cell, Comparison, Evaluation, Table, missing_package
from headlab.masks import Mask
from headlab.notebooks.figures import ShownRecord, chart_of
from headlab.pictures import MINUS, map_of_scores
from headlab.report.maps import mask_cells, scale_key, scores_cells, stack_maps
from headlab.report.sections.scores import map_legend
from headlab.results import Curve, HeadScores, curve_points, curve_summary, omission_notes
from headlab.tasks import language_title

# Text and lines take the colour of the notebook's text, so that they turn with its theme.
FRAME_STYLE = (
    "color:inherit;fill:currentColor;font:13px/1.4 sans-serif;max-width:62rem;"
    "--ink:currentColor;--soft:currentColor;--line:rgba(128,128,128,.4)"
)
TITLE_STYLE = "font-weight:600;margin:.3em 0"
DRAWINGS_STYLE = "display:flex;flex-wrap:wrap;gap:1em;align-items:flex-end;font-size:12px"
NOTE_STYLE = "opacity:.8;max-width:46rem;margin:.3em 0"
CELL_STYLE = "padding:.2em .6em;border-bottom:1px solid rgba(128,128,128,.4);background:none;white-space:nowrap;"
HEAD_STYLE = "white-space:normal;vertical-align:bottom"
POINT_AT_A_HEAD = "Point at a head for its numbers."


def html_of(record: ShownRecord) -> str:
    """A record as one HTML element.

    Args:
        record: Scores, a mask, a curve, evaluations, or those of one language.

    Returns:
        The element, which needs no script and no style sheet.
    """
    match record:
        case HeadScores():
            return _framed(_scores_parts(record))
        case Mask():
            return _framed(_mask_parts(record))
        case Curve():
            return _framed(_curve_parts(record))
        case Report():
            return _framed([table_html(evaluations_table(list(record.values())))])
        case Comparison() | Evaluation():
            return _framed([table_html(evaluations_table([record]))])
    raise TypeError(f"headlab does not show a {type(record).__name__}")


def _framed(parts: Iterable[str]) -> str:
    return f'<div class="headlab" style="{FRAME_STYLE}">{"".join(parts)}</div>'


def _line(text: str, style: str) -> str:
    return f'<div style="{style}">{escape(text)}</div>'


def _drawings(drawings: Sequence[str]) -> str:
    return f'<div style="{DRAWINGS_STYLE}">{"".join(drawings)}</div>'


# Heads.


def _scores_parts(scores: HeadScores) -> list[str]:
    """A map with its scale, and what its colours and marks mean."""
    head_map = map_of_scores(scores)
    language = language_title(scores.language)
    label = f"{scores.method} of every head in {language}, {head_map.unit}"
    model, task = scores.spec.model.name, scores.spec.task.name
    place = f", {model} on {task}" if model and task else ""
    return [
        _line(f"{scores.grid.size:,} heads by {scores.method}: {language}{place}", TITLE_STYLE),
        _drawings(stack_maps(scores.grid, scores_cells(head_map), label)),
        _drawings([scale_key([head_map])]),
        _line(f"{map_legend(scores, [head_map])} {POINT_AT_A_HEAD}", NOTE_STYLE),
        *(_line(note, NOTE_STYLE) for note in omission_notes([scores])),
    ]


def _mask_parts(mask: Mask) -> list[str]:
    """A grid on which removed heads are pale, and how the heads were chosen, where that is known."""
    removed_count = len(mask.removed)
    title = f"Mask: {removed_count:,} of {mask.grid.size:,} heads removed"
    if mask.name:
        title += f", {mask.name}"
    choice = [
        f"{word} {mask.chosen[word]}"
        for word in ("rule", "method", "task")
        if mask.chosen.get(word)
    ]
    languages = mask.chosen.get("languages")
    if isinstance(languages, list | tuple) and languages:
        choice.append(f"languages {', '.join(map(str, languages))}")
    legend = "Dark: kept. Pale, with ×: removed."
    if choice:
        legend += f" Chosen by {', '.join(choice)}."
    return [
        _line(title, TITLE_STYLE),
        _drawings(stack_maps(mask.grid, mask_cells(mask.grid, mask.kept), title)),
        _line(legend, NOTE_STYLE),
    ]


# Curves and evaluations.


def _curve_parts(curve: Curve) -> list[str]:
    """The curve's line, its summary, and its points below a fold; no line without matplotlib."""
    summary = curve_summary([curve])
    points = curve_points(curve, f"{curve.language} by {curve.ordering}")
    parts = [_line(summary.title, TITLE_STYLE)]
    try:
        from headlab.charts import static  # imports matplotlib
    except ModuleNotFoundError as error:
        if not missing_package(error):
            raise
    else:
        parts.append(_drawings([static.svg(chart_of(curve), is_inline=True)]))
    folded = f"<summary>{escape(points.title)}</summary>{table_html(points, title='')}"
    return [*parts, table_html(summary, title=""), f"<details>{folded}</details>"]


def evaluations_table(rows: Sequence[Comparison | Evaluation]) -> Table:
    """A row per language, in percent and points, with its 95 % interval.

    Args:
        rows: Comparisons with the untouched model, or evaluations without a mask.
    """
    notes = [
        f"{language_title(row.language)}: {row.omissions.sentence}"
        for row in rows
        if row.omissions is not None and row.omissions.sentence
    ]
    if not any(isinstance(row, Comparison) for row in rows):
        return Table(
            "evaluations",
            "Accuracy with all heads",
            ("language", "accuracy, %", "95 % low", "95 % high", "answers"),
            ("", ".1f", ".1f", ".1f", ",d"),
            tuple(_evaluation_cells(row) for row in rows if isinstance(row, Evaluation)),
            tuple(notes),
        )
    columns = (
        "language",
        "accuracy, %",
        "all heads, %",
        "difference, points",
        "95 % low",
        "95 % high",
        "p",
        "now right",
        "now wrong",
        "answers",
    )
    cells = tuple(_comparison_cells(row) for row in rows if isinstance(row, Comparison))
    formats = ("", ".1f", ".1f", "+.1f", "+.1f", "+.1f", ".4f", ",d", ",d", ",d")
    title = "Accuracy under the mask, against all heads"
    return Table("evaluations", title, columns, formats, cells, tuple(notes))


def _evaluation_cells(row: Evaluation) -> tuple[Cell, ...]:
    low, high = accuracy_interval(row)
    return (language_title(row.language), 100 * row.accuracy, 100 * low, 100 * high, row.n)


def _comparison_cells(row: Comparison) -> tuple[Cell, ...]:
    return (
        language_title(row.language),
        100 * row.accuracy,
        100 * row.baseline,
        100 * row.difference,
        100 * row.low,
        100 * row.high,
        row.p,
        row.flipped_right,
        row.flipped_wrong,
        row.n,
    )


def table_html(table: Table, title: str | None = None) -> str:
    """A table as HTML, numbers to the right, its notes below.

    Args:
        table: The table.
        title: Above it; None for its own, empty for none.
    """
    heading = table.title if title is None else title
    styles = [
        CELL_STYLE + ("text-align:right" if number_format else "text-align:left")
        for number_format in table.formats
    ]
    head = _row("th", table.columns, [f"{style};{HEAD_STYLE}" for style in styles])
    rows = []
    for cells in table.shown_cells():
        numbers_and_words = [
            cell.replace("-", MINUS) if number_format else cell
            for cell, number_format in zip(cells, table.formats, strict=True)
        ]
        rows.append(_row("td", numbers_and_words, styles))
    body = "".join(rows)
    parts = [
        _line(heading, TITLE_STYLE) if heading else "",
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;font:inherit;color:inherit">',
        f"<thead>{head}</thead><tbody>{body}</tbody></table></div>",
        *(_line(note, NOTE_STYLE) for note in table.notes),
    ]
    return "".join(parts)


def _row(tag: str, cells: Sequence[str], styles: Sequence[str]) -> str:
    columns = [
        f'<{tag} style="{style}">{escape(cell)}</{tag}>'
        for cell, style in zip(cells, styles, strict=True)
    ]
    return f"<tr>{''.join(columns)}</tr>"
