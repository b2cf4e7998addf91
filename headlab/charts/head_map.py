"""The map of heads as a chart: a row per layer, a column per head."""

from __future__ import annotations

import numpy as np

from headlab.charts.chart import Axis, Cells, Chart
from headlab.pictures import HOLM_CORRECTED, MINUS, HeadMap

ROW_PIXELS = 26.0
"""Height of a layer's row."""
OUTSIDE_ROWS = 150.0
"""Height of what is above and below the rows."""


def head_map_chart(title: str, head_map: HeadMap) -> Chart:
    """A map of heads, its stacks below each other.

    Args:
        title: What it shows.
        head_map: The map, whose marks stand on the cells as signs.

    Returns:
        The chart.
    """
    stacks = head_map.grid.stacks
    most_heads = max((max(stack.heads, default=0) for stack in stacks), default=0)
    row_names: list[str] = []
    values = np.full((sum(stack.layers for stack in stacks), most_heads), np.nan)
    texts: list[list[str]] = []
    details: list[list[str]] = []
    tips = [tip.replace("\n", ", ") for tip in head_map.tips]
    first_head = 0
    for stack in stacks:
        for layer, head_count in enumerate(stack.heads):
            of_layer = slice(first_head, first_head + head_count)
            values[len(row_names), :head_count] = head_map.values[of_layer]
            marks = [mark_text(int(mark)) for mark in head_map.marks[of_layer]]
            blanks = [""] * (most_heads - head_count)
            texts.append(marks + blanks)
            details.append(tips[of_layer] + blanks)
            row_names.append(f"{stack.name} {layer}" if len(stacks) > 1 else str(layer))
            first_head += head_count
    cells = Cells(
        row_names,
        None,
        values,
        texts,
        low=head_map.lowest,
        high=head_map.limit,
        scale=head_map.scale,
        scale_title=head_map.unit,
        tip="layer {row}, head {column}: " + ("{details}" if tips else "{value:.3g} {text}"),
        details=details if tips else (),
    )
    return Chart(
        title,
        (cells,),
        x=Axis("head", is_on_top=True),
        y=Axis("layer"),
        height=OUTSIDE_ROWS + ROW_PIXELS * len(row_names),
    )


def mark_text(mark: int) -> str:
    """The signs of a mark: one for a head's own interval, two after the correction.

    Args:
        mark: As in `HeadMap`.
    """
    if mark == 0:
        return ""
    sign = "+" if mark > 0 else MINUS
    return 2 * sign if abs(mark) == HOLM_CORRECTED else sign


def marks_in_words(head_map: HeadMap) -> str:
    """What the signs on a map mean; empty where it has none.

    Args:
        head_map: The map.
    """
    sentences = []
    for size, meaning in head_map.meanings.items():
        if np.any(np.abs(head_map.marks) >= size):
            sentences.append(f"{mark_text(size)} and {mark_text(-size)}: {meaning}")
    return "; ".join(sentences)
