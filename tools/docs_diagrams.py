"""Draw the flow charts of the documents as SVG, since no script draws on the site.

A document holds a flow chart as Mermaid, which the repository's own view of the page draws. At
every build of the site the same lines are drawn here, so that the two cannot differ. What is
understood is what the documents use: `flowchart TD`, boxes of two lines, and arrows with or without
a number, from each box to one other. Anything else ends the build.
"""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass

DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A flow chart in a document."""
FIRST_LINE = "flowchart TD"
BOX = re.compile(r'(\w+)(?:\["([^"]+)"\])?')
ARROW = re.compile(r"\s*(?:--\s*(\S+)\s*)?-->\s*")
LINE_BREAK = "<br/>"
TAG = re.compile(r"</?b>")

WIDTH = 620
PADDING = 12
TITLE_HEIGHT = 20
LINE_HEIGHT = 17
ARROW_HEIGHT = 26
ARROW_HEAD = 5
MAX_LETTERS = 88
"""Of a line below a title, at 12.5 pixels a letter; a longer one is broken."""


@dataclass(frozen=True)
class Box:
    """A box of a flow chart.

    Attributes:
        title: Its first line.
        below: What stands below the title.
        arrow: What stands beside the arrow that leads to the box; empty for nothing.
    """

    title: str
    below: str
    arrow: str

    @property
    def lines_below(self) -> list[str]:
        """What stands below the title, in lines that fit."""
        return textwrap.wrap(self.below, MAX_LETTERS, break_long_words=False)

    @property
    def height(self) -> int:
        """In pixels."""
        return 2 * PADDING + TITLE_HEIGHT + LINE_HEIGHT * len(self.lines_below)


def boxes_of(diagram: str) -> list[Box]:
    """The boxes of a flow chart, from the first to the last.

    Args:
        diagram: Its lines.

    Raises:
        SystemExit: It is no chain of boxes.
    """
    first_line, *lines = [line.strip() for line in diagram.strip().splitlines()]
    if first_line != FIRST_LINE:
        raise SystemExit(f"a diagram begins with {first_line!r}: only {FIRST_LINE!r} is drawn")
    texts: dict[str, str] = {}
    arrows: dict[str, tuple[str, str]] = {}
    for line in lines:
        _read_line(line, texts, arrows)
    targets = [target for target, _ in arrows.values()]
    starts = [name for name in texts if name not in targets]
    if len(starts) != 1 or len(set(targets)) != len(targets) or len(targets) != len(texts) - 1:
        raise SystemExit(f"a diagram is no chain of boxes: {', '.join(texts)}")
    boxes = []
    name, arrow = starts[0], ""
    while name:
        title, _, below = texts[name].partition(LINE_BREAK)
        boxes.append(Box(TAG.sub("", title), below, arrow))
        name, arrow = arrows.get(name, ("", ""))
    return boxes


def _read_line(line: str, texts: dict[str, str], arrows: dict[str, tuple[str, str]]) -> None:
    """Read one line of a flow chart: a box, or boxes with arrows between them.

    Args:
        line: Of the diagram.
        texts: The texts of boxes by name, which grows.
        arrows: By the name of a box, the box that its arrow leads to and what stands beside it.

    Raises:
        SystemExit: The line says something else.
    """
    position = 0
    source = arrow = ""
    while True:
        box = BOX.match(line, position)
        if box is None:
            raise SystemExit(f"a line of a diagram cannot be drawn: {line}")
        name, text = box.groups()
        if text is not None:
            texts[name] = text
        if name not in texts or source in arrows:
            raise SystemExit(f"a line of a diagram cannot be drawn: {line}")
        if source:
            arrows[source] = (name, arrow)
        position = box.end()
        if position == len(line):
            return
        match = ARROW.match(line, position)
        if match is None:
            raise SystemExit(f"a line of a diagram cannot be drawn: {line}")
        source, arrow = name, match.group(1) or ""
        position = match.end()


def svg_of(diagram: str) -> str:
    """A flow chart as SVG; colours and letters are those of the page, by its style sheet.

    Args:
        diagram: Its lines.
    """
    parts = []
    top = 1
    for box in boxes_of(diagram):
        if parts:
            parts.append(_arrow(top, box.arrow))
            top += ARROW_HEIGHT
        parts.append(_box(top, box))
        top += box.height
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 1}">\n{inner}\n</svg>'
    )


def _box(top: int, box: Box) -> str:
    """A box with its text, its upper edge so many pixels below that of the picture."""
    middle = WIDTH // 2
    baseline = top + PADDING + 14
    lines = [
        f'<rect x="1" y="{top}" width="{WIDTH - 2}" height="{box.height}" rx="5"/>',
        f'<text class="title" x="{middle}" y="{baseline}">{html.escape(box.title)}</text>',
    ]
    for number, line in enumerate(box.lines_below, start=1):
        y = baseline + 2 + number * LINE_HEIGHT
        lines.append(f'<text class="below" x="{middle}" y="{y}">{html.escape(line)}</text>')
    return "\n".join(lines)


def _arrow(top: int, label: str) -> str:
    """An arrow down to the next box, with what stands beside it."""
    middle = WIDTH // 2
    end = top + ARROW_HEIGHT - 2
    lines = [
        f'<path d="M{middle} {top + 2}V{end}M{middle - ARROW_HEAD} {end - ARROW_HEAD}'
        f'L{middle} {end}L{middle + ARROW_HEAD} {end - ARROW_HEAD}"/>'
    ]
    if label:
        y = top + ARROW_HEIGHT // 2 + 5
        lines.append(f'<text class="arrow" x="{middle + 12}" y="{y}">{html.escape(label)}</text>')
    return "\n".join(lines)


def html_of(diagram: str) -> str:
    """A flow chart for a page: the picture, and its lines for the page's Markdown.

    Args:
        diagram: Its lines.
    """
    words = html.escape(diagram.strip())
    return (
        f'<div class="diagram">\n{svg_of(diagram)}\n</div>\n'
        f'<div class="highlight-mermaid diagram-source"><pre>{words}\n</pre></div>'
    )
