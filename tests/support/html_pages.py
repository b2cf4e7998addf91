"""HTML pages of reports, read as a browser without script reads them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

# Elements that have no end.
VOID_TAGS = {"meta", "br"}


class HtmlPage(HTMLParser):
    """A page of HTML; making one asserts that every element is closed in its turn.

    Attributes:
        tags: (name, attributes) of every element, in order.
        words: Every text between tags, in order.
        rows: The cells of every row of a table.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open_tags: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(data.decode("utf-8"))
        assert self.open_tags == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID_TAGS:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self.open_tags):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        """All text, including what the pointer shows."""
        return "\n".join(self.words)

    def head_titles(self) -> list[str]:
        """What the pointer shows on the cells of head grids."""
        head = re.compile(r"(decoder |cross )?layer \d+, head \d+: ")
        return [text for text in self.words if head.match(text)]
