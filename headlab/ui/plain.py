"""Text from outside, shown as it is written."""

from __future__ import annotations

import re

MARKS = re.compile(r"([\\`*_\[\]<>~$])")


def plain(text: str) -> str:
    """Markdown that shows a text as it is, without links, images or formulas."""
    return MARKS.sub(r"\\\1", text)
