"""Fonts of drawn text: how wide it is, and which font a PNG file needs for its letters."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from unicodedata import category, combining, east_asian_width, name

import matplotlib
from matplotlib.font_manager import FontEntry, fontManager
from matplotlib.ft2font import FT2Font, LoadFlags

from headlab.core import HeadlabError

USUAL = "DejaVu Sans"  # comes with matplotlib; Latin, Greek, Cyrillic, Arabic, Hebrew and more
CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH")
MAX_NAMED_LETTERS = 12  # letters that a message names
UNSHOWN = ("Cc", "Cf", "Zl", "Zp")  # kinds of characters that no font draws
BOXES = "Last Resort"  # starts the name of a font of matplotlib's that has a box for every letter
FIXED_POINT = 65536  # of FreeType's advances
ELLIPSIS = "…"


@cache
def _usual_file() -> str:
    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")


@cache
def _usual_font() -> FT2Font:
    font = FT2Font(_usual_file())
    font.set_size(12, 72)
    return font


@cache
def _letters(file: str) -> frozenset[int]:
    """The characters that a font file has."""
    return frozenset(FT2Font(file).get_charmap())


@cache
def _advance(character: str) -> float:
    """Width of a character, in sizes of its font; of one that the usual font lacks about."""
    if ord(character) in _letters(_usual_file()):
        glyph = _usual_font().load_char(ord(character), flags=LoadFlags.NO_HINTING)
        return float(glyph.linearHoriAdvance) / FIXED_POINT / 12
    if combining(character) or category(character) in ("Mn", "Me", *UNSHOWN):
        return 0.0
    if east_asian_width(character) in "WF":
        return 1.0
    return 0.65


def width_of(text: str, size: float) -> float:
    """Width of a text, in the unit of its size; the same on every machine."""
    return size * sum(map(_advance, text))


def shortened(text: str, size: float, room: float) -> str:
    """The text, cut with an ellipsis if it is wider than the room."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(text + ELLIPSIS, size) > room:
        text = text[:-1]
    return text + ELLIPSIS


def families_for(texts: Iterable[str]) -> list[str]:
    """Names of fonts here that together have all letters of some texts, the usual one first.

    Args:
        texts: What is drawn.

    Returns:
        Names of font families.

    Raises:
        HeadlabError: No font here has some of the letters; the message names the fonts that do.
    """
    characters = {character for text in texts for character in text}
    visible = {c for c in characters if category(c) not in UNSHOWN and not c.isspace()}
    missing = sorted(c for c in visible if ord(c) not in _letters(_usual_file()))
    families = [USUAL]
    without_font = []
    while missing:
        font = _font_with(missing[0])
        if font is None:
            without_font.append(missing.pop(0))
            continue
        families.append(font.name)
        missing = [c for c in missing if ord(c) not in _letters(font.fname)]
    if without_font:
        fonts = dict.fromkeys(map(suggested, without_font))
        letters = "".join(without_font[:MAX_NAMED_LETTERS])
        raise HeadlabError(
            f"no font here has the letters {letters}; install {', '.join(fonts)}, or use the "
            "SVG file, whose text is drawn with the fonts of whoever opens it",
            code="figure.font_missing",
        )
    return families


def _font_with(character: str) -> FontEntry | None:
    """An upright font here that has a character, one of its script first; None if there is none."""
    family = suggested(character)
    upright = [
        font
        for font in fontManager.ttflist
        if font.style == "normal" and not font.name.startswith(BOXES)
    ]
    ordered = sorted(
        upright,
        key=lambda font: (
            not font.name.startswith(family),
            not font.name.startswith("Noto Sans"),
            abs(_weight(font.weight) - 400),
            font.name,
            font.fname,
        ),
    )
    return next((font for font in ordered if ord(character) in _letters(font.fname)), None)


def _weight(weight: int | str) -> int:
    names = {"light": 300, "normal": 400, "regular": 400, "book": 400, "medium": 500, "bold": 700}
    if isinstance(weight, int):
        return weight
    return names.get(weight, 600)


def suggested(character: str) -> str:
    """The free font that has a character: Google's Noto family has one for each script."""
    script = name(character, "").split(" ")[0].split("-")[0]
    if script in CJK:
        return "Noto Sans CJK"
    if category(character).startswith(("L", "M")):
        return f"Noto Sans {script.title()}"
    return "Noto Sans Symbols"
