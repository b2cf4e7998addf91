"""Matrices: one value for each pair of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headlab.charts.chart import Axis, Cells, Chart
from headlab.charts.dots import ROW_PIXELS
from headlab.core import EMPTY_CELL, Bools, Floats
from headlab.pictures import MINUS, SEQUENTIAL

MOST_LEGIBLE = 20  # columns up to which correlations stand on the cells
MOST_NUMBERS = 10  # columns up to which other texts do, legible on a narrow screen
MARK = "●"  # of what is sure
SIGN_LIMIT = 1.6  # end of the scale of signs, which are 1 and -1: paler than the ends


def correlations_chart(
    title: str,
    rho: Floats,
    names: Sequence[str],
    details: Sequence[Sequence[str]] = (),
) -> Chart:
    """Rank correlations of every pair of names, on a colour scale from -1 to 1.

    Args:
        title: What the chart shows.
        rho: Float [name, name], NaN where one cannot be computed.
        names: Of rows and columns.
        details: [name][name], what the tip says of a pair; empty for the correlation alone.

    Returns:
        The chart.
    """
    texts = np.where(np.isnan(rho), EMPTY_CELL, np.char.mod("%.2f", np.nan_to_num(rho)))
    cells = Cells(
        names,
        names,
        rho,
        texts.tolist(),
        low=-1,
        high=1,
        scale_title="Spearman ρ",
        scale_step=0.5,
        tip="{row} and {column}: {details}" if details else "{row} and {column}: ρ = {text}",
        details=details,
        are_texts_drawn=len(names) <= MOST_LEGIBLE,
    )
    height = max(260, 110 + ROW_PIXELS * len(names))
    return Chart(title, (cells,), x=Axis(is_on_top=True), height=height)


def marked_cells(
    values: Floats,
    texts: Sequence[Sequence[str]],
    is_sure: Bools,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    scale_title: str,
    tip: str,
) -> Cells:
    """One cell per row and column, on a scale centred at 0, marked by a dot where it is sure.

    Args:
        values: Float [row, column], NaN for none.
        texts: [row][column]; of many columns they are in the tips only, since they would be too
            small to read.
        is_sure: Bool [row, column].
        rows: Names of the rows.
        columns: Names of the columns.
        scale_title: Title of the key to the colours.
        tip: Text that describes a cell, as of `Cells`; {details} is its text.

    Returns:
        The cells.
    """
    limit = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    marks = np.where(is_sure & ~np.isnan(values), MARK, "")
    marked_texts = [
        [text + mark for text, mark in zip(row_texts, row_marks, strict=True)]
        for row_texts, row_marks in zip(texts, marks.tolist(), strict=True)
    ]
    are_legible = len(columns) <= MOST_NUMBERS
    return Cells(
        rows,
        columns,
        values,
        marked_texts if are_legible else np.where(is_sure, MARK, "").tolist(),
        low=-limit,
        high=limit,
        scale_title=scale_title,
        tip=tip,
        details=marked_texts,
    )


def transfer_chart(
    title: str, values: Floats, is_sure: Bools, rows: Sequence[str], columns: Sequence[str]
) -> Chart:
    """Effect of masks chosen on one language (rows) on others (columns).

    Args:
        title: What the chart shows.
        values: Float [row, column] in points, NaN for none.
        is_sure: Bool [row, column], marked by a dot.
        rows: Languages that chose.
        columns: Languages that were tested.

    Returns:
        The chart.
    """
    texts = [
        [EMPTY_CELL if np.isnan(value) else f"{round(value, 1) + 0.0:+.1f}" for value in row]
        for row in values.tolist()
    ]
    tip = "chosen on {row}, tested on {column}: {details} points"
    cells = marked_cells(values, texts, is_sure, rows, columns, scale_title="points", tip=tip)
    return Chart(
        title,
        (cells,),
        x=Axis("tested on", is_on_top=True),
        y=Axis("chosen on"),
        height=max(260, 130 + ROW_PIXELS * len(rows)),
    )


def signs_chart(
    title: str,
    helps: Sequence[Sequence[str]],
    harms: Sequence[Sequence[str]],
    heads: Sequence[str],
    languages: Sequence[str],
) -> Chart:
    """In which languages heads help (blue, +) and harm (orange, −); other cells are empty.

    Args:
        title: What the chart shows.
        helps: For each head, the languages where it helps.
        harms: For each head, the languages where it harms.
        heads: Names of the rows.
        languages: Names of the columns.

    Returns:
        The chart.
    """
    signs = np.full((len(heads), len(languages)), np.nan)
    for row, (helped, harmed) in enumerate(zip(helps, harms, strict=True)):
        for column, language in enumerate(languages):
            if language in helped:
                signs[row, column] = 1.0
            if language in harmed:
                signs[row, column] = -1.0
    cells = Cells(
        heads,
        languages,
        signs,
        np.select([signs > 0, signs < 0], ["+", MINUS], "").tolist(),
        low=-SIGN_LIMIT,
        high=SIGN_LIMIT,
        tip="head {row}, {column}: {text}",
    )
    height = max(180, 90 + ROW_PIXELS * len(heads))
    return Chart(title, (cells,), x=Axis(is_on_top=True), y=Axis("head"), height=height)


def shares_chart(title: str, values: Mapping[tuple[str, int, int], float], unit: str) -> Chart:
    """A map of non-negative values, one per head, layer by layer, stacks one below the other.

    Args:
        title: What the chart shows.
        values: {(stack, layer, head): value in `unit`}.
        unit: Of the values; it stands beside the key to the colours.

    Returns:
        The chart.
    """
    has_stacks = len({stack for stack, _, _ in values}) > 1
    layers = list(dict.fromkeys((stack, layer) for stack, layer, _ in values))
    value_rows = np.full((len(layers), 1 + max(head for _, _, head in values)), np.nan)
    for (stack, layer, head), value in values.items():
        value_rows[layers.index((stack, layer)), head] = value
    row_names = [f"{stack} {layer}" if has_stacks else str(layer) for stack, layer in layers]
    cells = Cells(
        row_names,
        None,
        value_rows,
        [
            ["" if np.isnan(value) else f"{value:.0f}" for value in row]
            for row in value_rows.tolist()
        ],
        low=0,
        high=None,
        scale=SEQUENTIAL,
        scale_title=unit,
        tip="layer {row}, head {column}: {value:.1f}",
    )
    height = 110 + ROW_PIXELS * len(layers)
    return Chart(title, (cells,), x=Axis("head"), y=Axis("layer"), height=height)
