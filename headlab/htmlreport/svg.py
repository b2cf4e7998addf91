"""SVG as text: elements whose attributes and words are escaped here and nowhere else."""

from __future__ import annotations

from html import escape
from unicodedata import east_asian_width

FONT_WIDTH = 0.56  # mean width of a letter, in font sizes; browsers differ, so places are kept a little too wide
Attribute = str | float | None


def number(value: float) -> str:
    """A coordinate with two digits at most, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def element(name: str, *children: str, **attributes: Attribute) -> str:
    """An element; children are SVG already.

    Attributes: numbers are shortened, texts escaped, None is left out; `stroke_width` stands for stroke-width, `class_`
    for class.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, int | float) else escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(children)
    return f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>"


def words(x: float, y: float, text: str, **attributes: Attribute) -> str:
    """A text at a place."""
    return element("text", escape(text, quote=False), x=x, y=y, **attributes)


def hint(text: str) -> str:
    """What the pointer shows on the element that this is a child of."""
    return element("title", escape(text, quote=False)) if text else ""


def picture(width: float, height: float, label: str, *children: str) -> str:
    """A whole drawing. label: what it shows, for those who cannot see it."""
    return element(
        "svg", *children, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {number(width)} {number(height)}",
        width=width, height=height, role="img", aria_label=label,
    )  # fmt: skip


def width_of(text: str, size: float) -> float:
    """About how wide a text is, in the unit of its font size; East Asian letters are twice as wide."""
    letters = sum(1.8 if east_asian_width(letter) in "WF" else 1.0 for letter in text)
    return letters * FONT_WIDTH * size


def shortened(text: str, size: float, room: float) -> str:
    """The text, cut with an ellipsis where it is wider than the room."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(text, size) > room - size:
        text = text[:-1]
    return f"{text}…"
