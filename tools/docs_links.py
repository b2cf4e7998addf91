"""Count the links of a built site: those within it that lead nowhere, and those to outside."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKING = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, and what can be linked to in it.

    Attributes:
        links: As they are written.
        anchors: Ids and names of elements.
    """

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element's link and names.

        Args:
            tag: Of the element.
            attrs: Its attributes.
        """
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        link = values.get(LINKING.get(tag, ""), "")
        if link:
            self.links.append(link)


@dataclass(frozen=True)
class Counts:
    """What was counted.

    Attributes:
        pages: HTML files.
        internal: Links within the site.
        dead: Those of them that lead nowhere, as "page: link".
        outside: Links to other hosts, which are not followed.
    """

    pages: int
    internal: int
    dead: tuple[str, ...]
    outside: int


def count(site: Path) -> Counts:
    """Read every page of a site and look up each of its links.

    Args:
        site: The folder.
    """
    pages = {path: read_page(path) for path in sorted(site.rglob("*.html"))}
    dead = []
    internal = 0
    outside = 0
    for path, page in pages.items():
        for link in page.links:
            if is_outside(link):
                outside += 1
                continue
            if link.startswith(("data:", "mailto:", "javascript:")):
                continue
            internal += 1
            if not leads_somewhere(path, link, pages):
                dead.append(f"{path.relative_to(site).as_posix()}: {link}")
    for path in sorted(site.rglob("*.md")):
        for link in markdown_links(path):
            if is_outside(link):
                continue
            internal += 1
            if not (path.parent / unquote(link.partition("#")[0])).exists():
                dead.append(f"{path.relative_to(site).as_posix()}: {link}")
    return Counts(len(pages), internal, tuple(dead), outside)


def read_page(path: Path) -> Page:
    """Read a page.

    Args:
        path: Of its file.
    """
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def is_outside(link: str) -> bool:
    """Whether a link leads to another host.

    Args:
        link: As it is written.
    """
    return bool(urlsplit(link).netloc)


def leads_somewhere(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    """Whether a link within the site leads to a file, and to an element of it if it names one.

    Args:
        path: The page.
        link: As it is written.
        pages: Of the site.
    """
    parts = urlsplit(link)
    target = path
    if parts.path:
        target = (path.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return False
    if not parts.fragment or target not in pages:
        return True
    return unquote(parts.fragment) in pages[target].anchors


def markdown_links(path: Path) -> Iterator[str]:
    """The links of a page's Markdown.

    Args:
        path: Of its file.
    """
    import re

    in_code = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        if not in_code:
            without_code = re.sub(r"`[^`]*`", "", line)
            for link in re.findall(r"\]\(([^)\s]+)\)", without_code):
                if not link.startswith("#"):
                    yield link


if __name__ == "__main__":
    counts = count(Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve())
    sys.stdout.write(
        f"{counts.pages} pages, {counts.internal} links within the site, "
        f"{len(counts.dead)} of them dead, {counts.outside} to outside\n"
    )
    sys.stdout.writelines(f"{line}\n" for line in counts.dead)
    sys.exit(bool(counts.dead))
