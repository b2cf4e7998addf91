"""Head maps as SVG: a cell a head, layers from top to bottom, a drawing a stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headlab.htmlreport.style import DIVERGING, SEQUENTIAL, ink_on, on_scale
from headlab.htmlreport.svg import element, hint, picture, width_of, words
from headlab.records import Bools, Floats, Head, HeadGrid, Stack

CELL, SMALL, FEW = 28, 15, 16  # pixels of a cell; of one where a layer has more heads than FEW
LEFT, TOP, FOOT = 34, 32, 4
KEY_WIDTH, KEY_HEIGHT, SHADES = 240, 34, 24


class Cell(NamedTuple):
    """How a head is drawn: its colour, the words on it, what the pointer shows, and whether it is ringed."""

    colour: str
    words: str
    told: str
    ringed: bool = False


def stack_maps(grid: HeadGrid, cells: Sequence[Cell], label: str) -> tuple[str, ...]:
    """A drawing for every stack. cells: in the grid's order.  label: what they show, for those who cannot see it."""
    out, at, several = [], 0, len(grid.stacks) > 1
    for stack in grid.stacks:
        mine = cells[at : at + stack.size]
        at += stack.size
        out.append(_map(stack, mine, f"{label}, {stack.name}" if several else label, stack.name if several else ""))
    return tuple(out)


def _map(stack: Stack, cells: Sequence[Cell], label: str, title: str) -> str:
    wide = max(stack.heads, default=0)
    size = CELL if wide <= FEW else SMALL
    width, height = LEFT + size * max(wide, 1) + 2, TOP + size * stack.layers + FOOT
    parts = [words(LEFT, 11, f"{title} · head" if title else "head", class_="axis")]
    step = 1 if size == CELL else 4
    for head in range(0, wide, step):
        parts.append(words(LEFT + size * (head + 0.5), TOP - 5, str(head), class_="tick", text_anchor="middle"))
    parts.append(words(2, TOP - 5, "layer", class_="axis"))
    rest = iter(cells)
    for layer, heads in enumerate(stack.heads):
        y = TOP + size * layer
        if layer % step == 0:
            parts.append(words(LEFT - 6, y + size / 2 + 4, str(layer), class_="tick", text_anchor="end"))
        parts += [_cell(next(rest), LEFT + size * head, y, size) for head in range(heads)]
    return picture(width, height, label, *parts)


def _cell(cell: Cell, x: float, y: float, size: int) -> str:
    inner = size - 1.5
    ring, thick = (ink_on(cell.colour), 2.0) if cell.ringed else (None, None)
    inset = 1.0 if cell.ringed else 0.0
    box = element(
        "rect", x=x + inset, y=y + inset, width=inner - 2 * inset, height=inner - 2 * inset, fill=cell.colour,
        stroke=ring, stroke_width=thick,
    )  # fmt: skip
    if not cell.words or size != CELL:
        return element("g", hint(cell.told), box)
    font = min(10.0, (size - 3) / (0.56 * len(cell.words)))
    written = words(
        x + inner / 2, y + inner / 2 + 0.36 * font, cell.words, fill=ink_on(cell.colour), font_size=font,
        text_anchor="middle",
    )  # fmt: skip
    return element("g", hint(cell.told), box, written)


def coloured_around(values: Floats, low: Floats | None) -> bool:
    """Whether scores belong on a scale around 0: some are negative, or their intervals could be."""
    return low is not None or bool((values < 0).any())


def scores_cells(
    grid: HeadGrid, values: Floats, low: Floats | None, high: Floats | None, limit: float, unit: str, signed: bool
) -> list[Cell]:
    """Cells of scores: colours run to `limit`, around 0 if signed; ringed where the interval excludes 0.

    values, low, high: float [head] in `unit`.
    """
    out = []
    for place, head in enumerate(grid.heads):
        value = float(values[place])
        span = "" if low is None or high is None else f" [{low[place]:+.2f}, {high[place]:+.2f}]"
        sure = low is not None and high is not None and bool(low[place] > 0 or high[place] < 0)
        out.append(
            Cell(coloured(value, limit, signed), brief(value, limit), f"{named(head)}: {value:+.3g} {unit}{span}", sure)
        )
    return out


def coloured(value: float, limit: float, signed: bool) -> str:
    """The colour of a value on the scale that ends at `limit`."""
    return on_scale(DIVERGING, 0.5 + value / limit / 2) if signed else on_scale(SEQUENTIAL, value / limit)


def brief(value: float, limit: float) -> str:
    """A value in at most five letters: with one digit, or with two where all lie between -1 and 1."""
    if limit <= 1:
        return f"{value:.2f}".replace("0.", ".", 1) if abs(value) >= 0.005 else "0"
    if abs(value) >= 9.95:
        return f"{value:.0f}" if abs(value) < 99999 else f"{value:.0e}"
    return f"{value:.1f}" if abs(value) >= 0.05 else "0"


def share_cells(grid: HeadGrid, shares: Floats, what: str, *, blank: Bools | None = None) -> list[Cell]:
    """Cells of shares from 0 to 1, on the scale of gates: orange at 0, blue at 1.

    blank: bool [head], heads that have none.
    """
    out = []
    for place, head in enumerate(grid.heads):
        if blank is not None and blank[place]:
            out.append(Cell("#e4e6ea", "", f"{named(head)}: no gate"))
            continue
        share = float(shares[place])
        out.append(Cell(on_scale(DIVERGING, share), f"{share:.0%}"[:-1], f"{named(head)}: {what} {share:.1%}"))
    return out


def mask_cells(grid: HeadGrid, kept: Bools) -> list[Cell]:
    """Cells of a mask: kept heads are blue, removed ones pale with a cross."""
    looks = {True: (on_scale(DIVERGING, 0.8), "", "kept"), False: ("#f3e3d3", "×", "removed")}
    drawn = [looks[bool(stays)] for stays in kept.tolist()]
    return [
        Cell(colour, mark, f"{named(head)}: {told}")
        for head, (colour, mark, told) in zip(grid.heads, drawn, strict=True)
    ]


def order_cells(grid: HeadGrid, order: Sequence[int]) -> list[Cell]:
    """Cells that say as which a head leaves: 1 is the first, dark the last. order: flat indices as they go."""
    turn = np.empty(grid.size, np.int64)
    turn[list(order)] = np.arange(1, grid.size + 1)
    return [
        Cell(on_scale(SEQUENTIAL, place / grid.size), str(place), f"{named(head)}: leaves as number {place}")
        for head, place in zip(grid.heads, turn.tolist(), strict=True)
    ]


def named(head: Head) -> str:
    """A head in words."""
    stack = "" if head.stack == "encoder" else f"{head.stack} "
    return f"{stack}layer {head.layer}, head {head.head}"


def scale_key(limit: float, unit: str, signed: bool) -> str:
    """What the colours of `scores_cells` mean."""
    scale, ends = (DIVERGING, (-limit, 0.0, limit)) if signed else (SEQUENTIAL, (0.0, limit / 2, limit))
    return key(scale, [f"{end:+.3g}" if signed and end else f"{end:.3g}" for end in ends], unit)


def key(scale: Sequence[tuple[float, str]], ends: Sequence[str], unit: str) -> str:
    """A strip of a scale's colours with words at its start, middle and end."""
    step, left = KEY_WIDTH / SHADES, max(8.0, width_of(ends[0], 12) / 2)
    shades = [
        element("rect", x=left + step * i, y=2, width=step + 0.3, height=10, fill=on_scale(scale, i / (SHADES - 1)))
        for i in range(SHADES)
    ]
    marks = [
        words(left + KEY_WIDTH * i / (len(ends) - 1), 25, end, class_="tick", text_anchor="middle")
        for i, end in enumerate(ends)
    ]
    right = left + KEY_WIDTH + max(14.0, width_of(ends[-1], 12) / 2 + 4)
    unit_words = words(right, 12, unit, class_="tick")
    label = f"colours from {ends[0]} to {ends[-1]} {unit}"
    return picture(right + width_of(unit, 12) + 8, KEY_HEIGHT, label, *shades, *marks, unit_words)
