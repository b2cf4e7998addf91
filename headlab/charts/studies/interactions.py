"""Interactions of heads: a graph over the grid of heads, and sets foreseen against measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.charts.chart import Axis, Chart, Line, Points, Series
from headlab.core import Floats, Head, HeadGrid
from headlab.pictures import LINE_COLOURS, MINUS, UNSURE
from headlab.studies.interactions import (
    InteractionsResult,
    PairInteraction,
    Relation,
    SetLoss,
    head_name,
)

STAND_IN = LINE_COLOURS[3]
NEED = LINE_COLOURS[2]
"""Colours of the two signs; blue and orange are those of heads that help and harm."""
SIGN_WORDS: dict[Relation, str] = {
    "stand in": "stand in for each other",
    "need": "need each other",
    "open": "open",
}
WIDEST = 7.0
THINNEST = 1.2
OPEN_WIDTH = 1.0  # widths of lines, in pixels
OPEN_DRAWN = 40
"""Pairs whose sign is open that are drawn, the largest first."""
BOW = 0.12
"""How far a line bows out, as a share of its length: heads of a layer lie on one straight line."""
STEPS = 13
LAYER_HEIGHT = 34
LEAST_HEIGHT = 320
MOST_HEIGHT = 760


def figures(result: InteractionsResult) -> dict[str, Chart]:
    """A graph for each language, and the sets that were removed."""
    charts = {}
    heads = [row.head for row in result.alone.rows]
    for language in result.languages:
        name = "interactions" if len(result.languages) == 1 else f"interactions-{language}"
        pairs = result.of_language(language)
        charts[name] = interaction_graph(pairs, heads, result.unit, None)
    if result.sets.rows:
        charts["interactions-sets"] = sets_chart(result.sets.rows, result.unit)
    return charts


def interaction_graph(
    pairs: Sequence[PairInteraction], heads: Sequence[Head], unit: str, grid: HeadGrid | None
) -> Chart:
    """A dot for each head at its place in the grid, a line for each pair.

    A line is the wider the larger the interaction. Those whose interval excludes 0 are drawn
    through, the others dotted, of which the largest are drawn (`OPEN_DRAWN`).

    Args:
        pairs: Of one language.
        heads: The heads whose pairs they are.
        unit: Of the interactions.
        grid: All heads of the model, drawn faintly; None if it is not known.
    """
    all_heads = list(dict.fromkeys(heads)) if grid is None else list(grid.heads)
    rows = list(dict.fromkeys((head.stack, head.layer) for head in sorted(all_heads, key=_place)))
    many_stacks = len({stack for stack, _ in rows}) > 1
    chosen = list(dict.fromkeys(heads))
    place_of = {
        name: np.array([head.head, rows.index((head.stack, head.layer))], np.float64)
        for head in chosen
        for name in (head_name(head, with_stack=True), head_name(head, with_stack=False))
    }
    series: list[Series] = list(_lines(pairs, place_of, unit))
    others = [head for head in all_heads if head not in set(chosen)]
    if others:
        series.append(_dots(others, rows, "other heads", is_chosen=False))
    series.append(_dots(chosen, rows, "chosen heads", is_chosen=True))
    labels = [f"{stack} {layer}" if many_stacks else str(layer) for stack, layer in rows]
    width = max((head.head for head in all_heads), default=0)
    return Chart(
        "interactions of heads",
        series,
        x=Axis("head", (-0.7, width + 0.7), _ticks(width + 1), has_grid=False),
        y=Axis(
            "layer",
            (len(rows) - 0.4, -0.6),
            tuple((float(number), label) for number, label in enumerate(labels)),
            has_grid=False,
        ),
        height=min(MOST_HEIGHT, max(LEAST_HEIGHT, 120 + LAYER_HEIGHT * len(rows))),
        has_legend=True,
    )


def _place(head: Head) -> tuple[str, int, int]:
    """What heads are sorted by: encoders come first, then layers."""
    return "" if head.stack == "encoder" else head.stack, head.layer, head.head


def _ticks(count: int) -> tuple[tuple[float, str], ...]:
    step = 1 if count <= 16 else 2 if count <= 32 else 4
    return tuple((float(number), str(number)) for number in range(0, count, step))


def _dots(
    heads: Sequence[Head], rows: Sequence[tuple[str, int]], name: str, *, is_chosen: bool
) -> Points:
    return Points(
        name,
        [head.head for head in heads],
        [rows.index((head.stack, head.layer)) for head in heads],
        UNSURE,
        "circle",
        is_filled=[is_chosen] * len(heads),
        sizes=11 if is_chosen else 5,
        is_faint=() if is_chosen else [True] * len(heads),
        texts=[f"head {head}" for head in heads],
    )


def _lines(pairs: Sequence[PairInteraction], place_of: dict[str, Floats], unit: str) -> list[Line]:
    """The lines of the pairs, those that matter least first, so that others cover them."""
    by_size = sorted(pairs, key=lambda pair: abs(pair.interaction))
    open_pairs = [pair for pair in by_size if pair.relation == "open"]
    decided_pairs = [pair for pair in by_size if pair.relation != "open"]
    largest = max((abs(pair.interaction) for pair in pairs), default=0.0) or 1.0
    lines: list[Line] = []
    names: set[str] = set()
    for pair in (*open_pairs[-OPEN_DRAWN:], *decided_pairs):
        start = place_of.get(pair.first)
        end = place_of.get(pair.second)
        if start is None or end is None:
            continue
        is_open = pair.relation == "open"
        name = SIGN_WORDS[pair.relation]
        curve = _curve(start, end)
        lines.append(
            Line(
                name,
                curve[:, 0],
                curve[:, 1],
                STAND_IN if pair.interaction < 0 else NEED,
                dashes="dot" if is_open else "solid",
                width=OPEN_WIDTH
                if is_open
                else THINNEST + (WIDEST - THINNEST) * abs(pair.interaction) / largest,
                tip=pair_words(pair, unit),
                is_in_legend=name not in names,
            )
        )
        names.add(name)
    return lines


def pair_words(pair: PairInteraction, unit: str) -> str:
    """A pair with its interaction and interval, in a line."""
    numbers = f"{pair.interaction:+.2f} [{pair.low:+.2f}, {pair.high:+.2f}]".replace("-", MINUS)
    return f"{pair.first} and {pair.second}: {numbers} {unit}"


def _curve(start: Floats, end: Floats) -> Floats:
    """Points of a line that bows out to one side, [point, 2]."""
    share = np.linspace(0, 1, STEPS)[:, None]
    across = np.array([start[1] - end[1], end[0] - start[0]])
    bend = 4 * share * (1 - share) * BOW
    return np.asarray(start + share * (end - start) + bend * across)


def sets_chart(sets: Sequence[SetLoss], unit: str) -> Chart:
    """What sets cost: measured against foreseen, with pairs and without."""
    measured = [row.measured for row in sets]
    series: list[Series] = []
    ends = [0.0, *measured, *(row.alone for row in sets), *(row.foreseen for row in sets)]
    low, high = min(ends), max(ends)
    series.append(Line("as foreseen", [low, high], [low, high], UNSURE, dashes="dash", width=1.0))
    kinds = (
        ("sum of each alone", UNSURE, "diamond", [row.alone for row in sets], False),
        ("with pairs", STAND_IN, "circle", [row.foreseen for row in sets], True),
    )
    for name, colour, symbol, foreseen, is_filled in kinds:
        series.append(
            Points(
                name,
                foreseen,
                measured,
                colour,
                symbol,
                is_filled=[is_filled] * len(sets),
                texts=[f"{row.language}: {_set_words(row)}" for row in sets],
                tip="{name}, {text}",
            )
        )
    return Chart(
        "loss of sets of heads: measured against foreseen",
        series,
        x=Axis(f"foreseen loss, {unit}"),
        y=Axis(f"measured loss, {unit}"),
        has_legend=True,
    )


MOST_NAMED = 4
"""Heads of a set that are named; of a larger one, their number is given."""


def _set_words(row: SetLoss) -> str:
    return row.heads if row.size <= MOST_NAMED else f"{row.size} heads"
