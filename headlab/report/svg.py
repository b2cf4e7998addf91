"""Drawings as SVG text: escaped elements, head maps' parts and shaded words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from unicodedata import east_asian_width

from headlab.pictures import colour_on_scale, ink_on

# SVG as text: attributes and text are escaped here and nowhere else.

FONT_WIDTH = 0.56  # mean width of a letter, in font sizes; slightly too wide, since browsers differ
Attribute = str | float | None


def number(value: float) -> str:
    """A coordinate with at most two decimals, without trailing zeros."""
    if value % 1:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.0f}"


def element(name: str, *children: str, **attributes: Attribute) -> str:
    """An SVG element.

    Args:
        name: Its tag.
        children: SVG already.
        attributes: Numbers are shortened, strings escaped, None omitted; `stroke_width` stands for
            stroke-width, `class_` for class.
    """
    attribute_text = ""
    for key, value in attributes.items():
        if value is None:
            continue
        text = number(value) if isinstance(value, int | float) else escape(value)
        attribute_text += f' {key.rstrip("_").replace("_", "-")}="{text}"'
    inner = "".join(children)
    if inner:
        return f"<{name}{attribute_text}>{inner}</{name}>"
    return f"<{name}{attribute_text}/>"


def words(x: float, y: float, text: str, **attributes: Attribute) -> str:
    """Text at a position."""
    return element("text", escape(text, quote=False), x=x, y=y, **attributes)


def hint(text: str) -> str:
    """A tooltip for the parent element; empty for an empty text."""
    if text:
        return element("title", escape(text, quote=False))
    return ""


def picture(width: float, height: float, label: str, *children: str, role: str = "img") -> str:
    """A whole drawing.

    Args:
        width: In pixels.
        height: In pixels.
        label: What it shows, for screen readers.
        children: SVG already.
        role: What it is for them: "img", or "group" where it holds links.
    """
    return element(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role=role,
        aria_label=label,
    )


def width_of(text: str, size: float) -> float:
    """Approximate width of a text, in the unit of its font size.

    East Asian characters count 1.8 times.
    """
    letters = sum(1.8 if east_asian_width(letter) in "WF" else 1.0 for letter in text)
    return letters * FONT_WIDTH * size


# Words on shaded ground.

CHIP = 14
PAGE = 900
PAD = 6  # font size, width of the drawing, and room around a word, in pixels


def shaded_words(
    rows: Sequence[tuple[str, Sequence[tuple[str, float, bool]]]],
    colour: str,
    label: str,
    *,
    rtl: bool,
) -> str:
    """Words in lines, each on its share of a colour, as a drawing that stands alone.

    Args:
        rows: A title, and [(word, share from 0 to 1, whether it is framed)], of each row.
        colour: Of a share of 1, "#rrggbb".
        label: What is shown, for screen readers.
        rtl: Whether lines run from right to left.
    """
    parts = []
    y = 0.0
    for title, words_in_row in rows:
        parts.append(words(PAD, y + 18, title, font_weight="bold"))
        x = float(PAD)
        y = y + 28
        for word, share, is_framed in words_in_row:
            width = width_of(word, CHIP) + 2 * PAD
            if x + width > PAGE and x > PAD:
                x = float(PAD)
                y = y + 30
            left = PAGE - x - width if rtl else x
            ground = colour_on_scale(((0.0, "#ffffff"), (1.0, colour)), 0.7 * share)
            line = {
                "stroke": "#222222" if is_framed else "#cccccc",
                "stroke_width": 2 if is_framed else 1,
            }
            parts.append(
                element("rect", x=left, y=y, width=width, height=24, rx=3, fill=ground, **line)
            )
            parts.append(
                words(left + width / 2, y + 17, word, fill=ink_on(ground), text_anchor="middle")
            )
            x += width + 3
        y += 34
    ground = element("rect", width=PAGE, height=y, fill="#ffffff")
    return picture(
        PAGE, y, label, element("g", ground, *parts, font_family="sans-serif", font_size=CHIP)
    )
