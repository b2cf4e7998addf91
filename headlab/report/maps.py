"""Head maps as SVG, of values and of roles.

There is a cell per head, layer by layer, and a drawing per stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headlab.core import HEADS, Bools, Floats, HeadGrid, Report, Stack, nouns_of_kinds, percent_text
from headlab.pictures import (
    HOLM_CORRECTED,
    SEQUENTIAL,
    SWITCHES,
    HeadMap,
    colour_on_scale,
    head_in_words,
    ink_on,
    look_of,
    role_map_of,
)
from headlab.report.svg import element, hint, picture, width_of, words
from headlab.roles import read_roles

CELL = 28
SMALL = 15
FEW = 16  # pixels of a cell; of a cell if a layer has more than FEW heads
LEFT = 34
TOP = 32
FOOT = 4
KEY_WIDTH = 240
KEY_HEIGHT = 34
SHADES = 24
ALONE = ".axis,.tick{font:10px sans-serif;fill:#444}"  # as in the report's stylesheet
BLANK = "#e4e6ea"  # of a head without a value


class Cell(NamedTuple):
    """How a head is drawn.

    Attributes:
        colour: "#rrggbb".
        words: The text on it.
        told: The tooltip.
        mark: As in `HeadMap`.
        image: URI of a picture on it; empty for none.
    """

    colour: str
    words: str
    told: str
    mark: int = 0
    image: str = ""


def stack_maps(
    grid: HeadGrid, cells: Sequence[Cell], label: str, links: Sequence[str] = ()
) -> tuple[str, ...]:
    """One drawing per stack.

    Args:
        grid: The heads.
        cells: How each is drawn, in the grid's order.
        label: What they show, for screen readers.
        links: Where a click on each head leads, in the grid's order; empty for nowhere.
    """
    drawings = []
    first_cell = 0
    has_stacks = len(grid.stacks) > 1
    for stack in grid.stacks:
        stack_heads = slice(first_cell, first_cell + stack.size)
        first_cell += stack.size
        stack_label = label
        stack_title = ""
        if has_stacks:
            stack_label = f"{label}, {stack.title}"
            stack_title = stack.name if stack.kind == HEADS else stack.base
        drawings.append(
            _map(stack, cells[stack_heads], stack_label, stack_title, links[stack_heads])
        )
    return tuple(drawings)


def _map(stack: Stack, cells: Sequence[Cell], label: str, title: str, links: Sequence[str]) -> str:
    most_heads = max(stack.heads, default=0)
    size = CELL if most_heads <= FEW else SMALL
    width = LEFT + size * max(most_heads, 1) + 2
    height = TOP + size * stack.layers + FOOT
    one = nouns_of_kinds([stack.kind])[0]
    parts = [words(LEFT, 11, f"{title} · {one}" if title else one, class_="axis")]
    step = 1 if size == CELL else 4
    for head in range(0, most_heads, step):
        parts.append(
            words(
                LEFT + size * (head + 0.5), TOP - 5, str(head), class_="tick", text_anchor="middle"
            )
        )
    parts.append(words(2, TOP - 5, "layer", class_="axis"))
    drawn_cells = iter(zip(cells, links or [""] * len(cells), strict=True))
    for layer, heads in enumerate(stack.heads):
        y = TOP + size * layer
        if layer % step == 0:
            parts.append(
                words(LEFT - 6, y + size / 2 + 4, str(layer), class_="tick", text_anchor="end")
            )
        for head in range(heads):
            cell, link = next(drawn_cells)
            drawing = _cell(cell, LEFT + size * head, y, size)
            if link:
                drawing = element("a", drawing, href=link, aria_label=cell.told, tabindex="-1")
            parts.append(drawing)
    role = "group" if links else "img"
    return picture(width, height, label, *parts, role=role)


def _cell(cell: Cell, x: float, y: float, size: int) -> str:
    inner = size - 1.5
    ink = ink_on(cell.colour)
    box = element("rect", x=x, y=y, width=inner, height=inner, fill=cell.colour)
    image = element(
        "image",
        x=x + 3,
        y=y + 3,
        width=inner - 6,
        height=inner - 6,
        href=cell.image,
        preserveAspectRatio="none",
        style="image-rendering:pixelated",
    )
    parts = [
        hint(cell.told),
        box,
        *([image] if cell.image else []),
        *_mark_of(cell.mark, x + inner, y, size, ink, cell.colour),
    ]
    if cell.words and size == CELL:
        font = min(10.0, (size - 3) / (0.56 * len(cell.words)))
        baseline = y + inner / 2 + 0.36 * font + 1.5 * bool(cell.mark)
        label = words(
            x + inner / 2, baseline, cell.words, fill=ink, font_size=font, text_anchor="middle"
        )
        parts.append(label)
    return element("g", *parts)


def _mark_of(mark: int, right: float, top: float, size: int, ink: str, ground: str) -> list[str]:
    """A ring with the head's sign in a cell's upper right corner.

    Filled if the mark is CORRECTED.
    """
    if not mark:
        return []
    radius = size / 7.5
    is_corrected = abs(mark) == HOLM_CORRECTED
    x = right - radius - 1
    y = top + radius + 1
    arm = 0.55 * radius
    ring = element(
        "circle",
        cx=x,
        cy=y,
        r=radius,
        fill=ink if is_corrected else "none",
        stroke=ink,
        stroke_width=1.0,
    )
    upright = f"M{x:.2f} {y - arm:.2f}v{2 * arm:.2f}" if mark > 0 else ""
    path = f"M{x - arm:.2f} {y:.2f}h{2 * arm:.2f}{upright}"
    return [
        ring,
        element(
            "path", d=path, stroke=ground if is_corrected else ink, stroke_width=1.0, fill="none"
        ),
    ]


def scores_cells(head_map: HeadMap) -> list[Cell]:
    """Cells of scores, labelled with the value and marked where the interval excludes 0."""
    return [
        Cell(
            colour or BLANK,
            brief(value, head_map.limit),
            f"{head_in_words(head)}: {tip.replace(chr(10), ', ')}",
            mark,
        )
        for head, colour, value, tip, mark in zip(
            head_map.grid.heads,
            head_map.colours,
            head_map.values.tolist(),
            head_map.tips,
            head_map.marks.tolist(),
            strict=True,
        )
    ]


def map_of_pictures(head_map: HeadMap, pictures: Sequence[str], label: str) -> str:
    """A drawing that stands alone, on the head's colour.

    It shows a picture of each head of the first stack.
    """
    cells = [
        cell._replace(words="", image=image)
        for cell, image in zip(scores_cells(head_map), pictures, strict=True)
    ]
    return stack_maps(head_map.grid, cells, label)[0].replace(
        "</svg>", f"<style>{ALONE}</style></svg>"
    )


def brief(value: float, limit: float) -> str:
    """A value in at most five characters.

    It has one decimal, or two if all values lie between -1 and 1.
    """
    if limit <= 1:
        if abs(value) >= 0.005:
            return f"{value:.2f}".replace("0.", ".", 1)
        return "0"
    if abs(value) >= 9.95:
        if abs(value) < 99999:
            return f"{value:.0f}"
        return f"{value:.0e}"
    if abs(value) >= 0.05:
        return f"{value:.1f}"
    return "0"


def share_cells(
    grid: HeadGrid, shares: Floats, what: str, *, blank: Bools | None = None
) -> list[Cell]:
    """Cells of shares from 0 to 1, on the scale of gates: pale at 0, dark at 1.

    Args:
        grid: The heads.
        shares: Float [head].
        what: What they are shares of, before the number in the tooltip.
        blank: Bool [head], heads without a gate; None if all have one.
    """
    cells = []
    for index, head in enumerate(grid.heads):
        if blank is not None and blank[index]:
            cells.append(Cell(BLANK, "", f"{head_in_words(head)}: no gate"))
            continue
        share = float(shares[index])
        cells.append(
            Cell(
                colour_on_scale(SWITCHES, share),
                f"{share:.0%}"[:-1],
                f"{head_in_words(head)}: {what} {percent_text(share, 1)}",
            )
        )
    return cells


def mask_cells(grid: HeadGrid, kept: Bools) -> list[Cell]:
    """Cells of a mask: kept heads dark, removed heads pale with a cross."""
    looks = {
        True: (colour_on_scale(SWITCHES, 0.8), "", "kept"),
        False: (colour_on_scale(SWITCHES, 0.0), "×", "removed"),
    }
    looks_by_head = [looks[bool(stays)] for stays in kept.tolist()]
    return [
        Cell(colour, mark, f"{head_in_words(head, grid)}: {state}")
        for head, (colour, mark, state) in zip(grid.heads, looks_by_head, strict=True)
    ]


def order_cells(grid: HeadGrid, order: Sequence[int]) -> list[Cell]:
    """Cells with each head's turn in the removal order: 1 is the first, dark the last.

    Args:
        grid: The heads.
        order: Their indices, the first to be removed first.
    """
    turns = np.empty(grid.size, np.int64)
    turns[list(order)] = np.arange(1, grid.size + 1)
    return [
        Cell(
            colour_on_scale(SEQUENTIAL, place / grid.size),
            str(place),
            f"{head_in_words(head)}: leaves as number {place}",
        )
        for head, place in zip(grid.heads, turns.tolist(), strict=True)
    ]


def scale_key(head_maps: Sequence[HeadMap]) -> str:
    """The key to the colours of several maps on one scale."""
    values = np.concatenate([head_map.values for head_map in head_maps])
    signed = any(head_map.signed for head_map in head_maps)
    joined_map = replace(head_maps[0], values=values, signed=signed)
    return key(joined_map.scale, joined_map.ends, joined_map.unit)


def key(scale: Sequence[tuple[float, str]], ends: Sequence[str], unit: str) -> str:
    """A strip of a scale's colours, labelled with `ends` at equal distances and with the unit."""
    step = KEY_WIDTH / SHADES
    left = max(8.0, width_of(ends[0], 12) / 2)
    shades = [
        element(
            "rect",
            x=left + step * i,
            y=2,
            width=step + 0.3,
            height=10,
            fill=colour_on_scale(scale, i / (SHADES - 1)),
        )
        for i in range(SHADES)
    ]
    marks = [
        words(left + KEY_WIDTH * i / (len(ends) - 1), 25, end, class_="tick", text_anchor="middle")
        for i, end in enumerate(ends)
    ]
    unit_left = left + KEY_WIDTH + max(14.0, width_of(ends[-1], 12) / 2 + 4)
    unit_words = words(unit_left, 12, unit, class_="tick")
    label = f"colours from {ends[0]} to {ends[-1]} {unit}"
    return picture(
        unit_left + width_of(unit, 12) + 8, KEY_HEIGHT, label, *shades, *marks, unit_words
    )


# The roles of a report as a head map, with the colour and letter of each head's clearest role.

ROW = 22
COLUMNS = 3


def roles_map(report: Report) -> tuple[str, ...]:
    """Drawings of a report on roles: one map per stack, and a legend.

    Raises:
        HeadlabError: The report is damaged.
    """
    role_map = role_map_of(read_roles(report))
    colours = [look_of(groups[0]).colour if groups else BLANK for groups in role_map.groups]
    cells = [
        Cell(colour, mark, f"{head_in_words(head)}: {tip.replace(chr(10), ', ')}")
        for head, colour, mark, tip in zip(
            role_map.grid.heads, colours, role_map.marks, role_map.tips, strict=True
        )
    ]
    legend = [
        (look_of(name).colour, look_of(name).mark, f"{name}: {heads}")
        for name, heads in role_map.counts.items()
    ]
    legend.append((BLANK, "", f"no role: {role_map.groups.count(())}"))
    return (*stack_maps(role_map.grid, cells, "the clearest role of every head"), _legend(legend))


def _legend(entries: Sequence[tuple[str, str, str]]) -> str:
    parts: list[str] = []
    entry_width = 40 + max(width_of(f"{mark}  {text}", 12) for _, mark, text in entries)
    for index, (colour, mark, text) in enumerate(entries):
        x = entry_width * (index % COLUMNS)
        y = ROW * (index // COLUMNS)
        parts.append(element("rect", x=x + 1, y=y + 2, width=16, height=16, fill=colour))
        parts.append(words(x + 24, y + 14, f"{mark}  {text}", class_="tick"))
    rows = -(-len(entries) // COLUMNS)
    label = "the colours of roles, and how many heads have each"
    return picture(entry_width * min(len(entries), COLUMNS), ROW * rows, label, *parts)
