"""Head maps as SVG, of values and of roles: one cell per head, layers from top to bottom, one drawing per stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headlab.core import Bools, Floats, HeadGrid, Report, Stack
from headlab.pictures import (
    CORRECTED,
    DIVERGING,
    SEQUENTIAL,
    HeadMap,
    ink_on,
    look_of,
    named,
    on_scale,
    role_map_of,
)
from headlab.report.svg import element, hint, picture, width_of, words
from headlab.roles import read

# Head maps as SVG: one cell per head, layers from top to bottom, one drawing per stack.

CELL, SMALL, FEW = 28, 15, 16  # pixels of a cell; of a cell if a layer has more than FEW heads
LEFT, TOP, FOOT = 34, 32, 4
KEY_WIDTH, KEY_HEIGHT, SHADES = 240, 34, 24
ALONE = ".axis,.tick{font:10px sans-serif;fill:#444}"  # as in the report's stylesheet
BLANK = "#e4e6ea"  # of a head without a value


class Cell(NamedTuple):
    """How a head is drawn: its colour, the text on it, the tooltip, its mark as in `HeadMap`, and a picture's URI."""

    colour: str
    words: str
    told: str
    mark: int = 0
    image: str = ""


def stack_maps(grid: HeadGrid, cells: Sequence[Cell], label: str) -> tuple[str, ...]:
    """One drawing per stack. cells: in the grid's order.  label: what they show, for screen readers."""
    out, at, several = [], 0, len(grid.stacks) > 1
    for stack in grid.stacks:
        mine = cells[at : at + stack.size]
        at += stack.size
        out.append(
            _map(
                stack,
                mine,
                f"{label}, {stack.name}" if several else label,
                stack.name if several else "",
            )
        )
    return tuple(out)


def _map(stack: Stack, cells: Sequence[Cell], label: str, title: str) -> str:
    wide = max(stack.heads, default=0)
    size = CELL if wide <= FEW else SMALL
    width, height = LEFT + size * max(wide, 1) + 2, TOP + size * stack.layers + FOOT
    parts = [words(LEFT, 11, f"{title} · head" if title else "head", class_="axis")]
    step = 1 if size == CELL else 4
    for head in range(0, wide, step):
        parts.append(
            words(
                LEFT + size * (head + 0.5), TOP - 5, str(head), class_="tick", text_anchor="middle"
            )
        )
    parts.append(words(2, TOP - 5, "layer", class_="axis"))
    rest = iter(cells)
    for layer, heads in enumerate(stack.heads):
        y = TOP + size * layer
        if layer % step == 0:
            parts.append(
                words(LEFT - 6, y + size / 2 + 4, str(layer), class_="tick", text_anchor="end")
            )
        parts += [_cell(next(rest), LEFT + size * head, y, size) for head in range(heads)]
    return picture(width, height, label, *parts)


def _cell(cell: Cell, x: float, y: float, size: int) -> str:
    inner, ink = size - 1.5, ink_on(cell.colour)
    box = element("rect", x=x, y=y, width=inner, height=inner, fill=cell.colour)
    shown = element(
        "image", x=x + 3, y=y + 3, width=inner - 6, height=inner - 6, href=cell.image, preserveAspectRatio="none",
        style="image-rendering:pixelated",
    )  # fmt: skip
    parts = [
        hint(cell.told),
        box,
        *([shown] if cell.image else []),
        *_mark_of(cell.mark, x + inner, y, size, ink, cell.colour),
    ]
    if cell.words and size == CELL:
        font = min(10.0, (size - 3) / (0.56 * len(cell.words)))
        parts.append(words(
            x + inner / 2, y + inner / 2 + 0.36 * font + 1.5 * bool(cell.mark), cell.words, fill=ink, font_size=font,
            text_anchor="middle",
        ))  # fmt: skip
    return element("g", *parts)


def _mark_of(mark: int, right: float, top: float, size: int, ink: str, ground: str) -> list[str]:
    """A ring with the head's sign, in a cell's upper right corner: hollow, or filled where the mark is CORRECTED."""
    if not mark:
        return []
    radius, sure = size / 7.5, abs(mark) == CORRECTED
    x, y, arm = right - radius - 1, top + radius + 1, 0.55 * radius
    ring = element(
        "circle", cx=x, cy=y, r=radius, fill=ink if sure else "none", stroke=ink, stroke_width=1.0
    )
    upright = f"M{x:.2f} {y - arm:.2f}v{2 * arm:.2f}" if mark > 0 else ""
    path = f"M{x - arm:.2f} {y:.2f}h{2 * arm:.2f}{upright}"
    return [
        ring,
        element("path", d=path, stroke=ground if sure else ink, stroke_width=1.0, fill="none"),
    ]


def scores_cells(shown: HeadMap) -> list[Cell]:
    """Cells of scores, labelled with the value and marked where the interval excludes 0."""
    return [
        Cell(
            colour or BLANK,
            brief(value, shown.limit),
            f"{named(head)}: {tip.replace(chr(10), ', ')}",
            mark,
        )
        for head, colour, value, tip, mark in zip(
            shown.grid.heads,
            shown.colours,
            shown.values.tolist(),
            shown.tips,
            shown.marks.tolist(),
            strict=True,
        )
    ]


def pictured(shown: HeadMap, pictures: Sequence[str], label: str) -> str:
    """A drawing that stands alone: a picture of every head of the first stack, framed by the head's colour."""
    cells = [
        cell._replace(words="", image=image)
        for cell, image in zip(scores_cells(shown), pictures, strict=True)
    ]
    return stack_maps(shown.grid, cells, label)[0].replace(
        "</svg>", f"<style>{ALONE}</style></svg>"
    )


def brief(value: float, limit: float) -> str:
    """A value in at most five characters: one decimal, or two if all values lie between -1 and 1."""
    if limit <= 1:
        return f"{value:.2f}".replace("0.", ".", 1) if abs(value) >= 0.005 else "0"
    if abs(value) >= 9.95:
        return f"{value:.0f}" if abs(value) < 99999 else f"{value:.0e}"
    return f"{value:.1f}" if abs(value) >= 0.05 else "0"


def share_cells(
    grid: HeadGrid, shares: Floats, what: str, *, blank: Bools | None = None
) -> list[Cell]:
    """Cells of shares from 0 to 1, on the scale of gates: orange at 0, blue at 1.

    blank: bool [head], heads without a gate.
    """
    out = []
    for place, head in enumerate(grid.heads):
        if blank is not None and blank[place]:
            out.append(Cell(BLANK, "", f"{named(head)}: no gate"))
            continue
        share = float(shares[place])
        out.append(
            Cell(
                on_scale(DIVERGING, share),
                f"{share:.0%}"[:-1],
                f"{named(head)}: {what} {share:.1%}",
            )
        )
    return out


def mask_cells(grid: HeadGrid, kept: Bools) -> list[Cell]:
    """Cells of a mask: kept heads blue, removed heads pale with a cross."""
    looks = {True: (on_scale(DIVERGING, 0.8), "", "kept"), False: ("#f3e3d3", "×", "removed")}
    drawn = [looks[bool(stays)] for stays in kept.tolist()]
    return [
        Cell(colour, mark, f"{named(head)}: {told}")
        for head, (colour, mark, told) in zip(grid.heads, drawn, strict=True)
    ]


def order_cells(grid: HeadGrid, order: Sequence[int]) -> list[Cell]:
    """Cells with each head's place in the removal order: 1 is the first, dark the last. order: flat indices."""
    turn = np.empty(grid.size, np.int64)
    turn[list(order)] = np.arange(1, grid.size + 1)
    return [
        Cell(
            on_scale(SEQUENTIAL, place / grid.size),
            str(place),
            f"{named(head)}: leaves as number {place}",
        )
        for head, place in zip(grid.heads, turn.tolist(), strict=True)
    ]


def scale_key(shown: Sequence[HeadMap]) -> str:
    """The key to the colours of several maps on one scale."""
    values, signed = np.concatenate([one.values for one in shown]), any(one.signed for one in shown)
    every = replace(shown[0], values=values, signed=signed)
    return key(every.scale, every.ends, every.unit)


def key(scale: Sequence[tuple[float, str]], ends: Sequence[str], unit: str) -> str:
    """A strip of a scale's colours, labelled with `ends` at equal distances and with the unit."""
    step, left = KEY_WIDTH / SHADES, max(8.0, width_of(ends[0], 12) / 2)
    shades = [
        element(
            "rect",
            x=left + step * i,
            y=2,
            width=step + 0.3,
            height=10,
            fill=on_scale(scale, i / (SHADES - 1)),
        )
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


# The roles of a report as a head map, with the colour and letter of each head's clearest role.

ROW, COLUMNS = 22, 3


def roles_map(report: Report) -> tuple[str, ...]:
    """Drawings of a report on roles: one map per stack, and a legend. Raises HeadlabError for a damaged one."""
    shown = role_map_of(read(report))
    colours = [look_of(own[0]).colour if own else BLANK for own in shown.groups]
    cells = [
        Cell(colour, mark, f"{named(head)}: {tip.replace(chr(10), ', ')}")
        for head, colour, mark, tip in zip(
            shown.grid.heads, colours, shown.marks, shown.tips, strict=True
        )
    ]
    legend = [
        (look_of(name).colour, look_of(name).mark, f"{name}: {heads}")
        for name, heads in shown.counts.items()
    ]
    legend.append((BLANK, "", f"no role: {shown.groups.count(())}"))
    return (*stack_maps(shown.grid, cells, "the clearest role of every head"), _legend(legend))


def _legend(entries: Sequence[tuple[str, str, str]]) -> str:
    parts, wide = (
        list[str](),
        40 + max(width_of(f"{mark}  {text}", 12) for _, mark, text in entries),
    )
    for at, (colour, mark, text) in enumerate(entries):
        x, y = wide * (at % COLUMNS), ROW * (at // COLUMNS)
        parts.append(element("rect", x=x + 1, y=y + 2, width=16, height=16, fill=colour))
        parts.append(words(x + 24, y + 14, f"{mark}  {text}", class_="tick"))
    rows = -(-len(entries) // COLUMNS)
    label = "the colours of roles, and how many heads have each"
    return picture(wide * min(len(entries), COLUMNS), ROW * rows, label, *parts)
