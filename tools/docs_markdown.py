"""Every page of the built site as Markdown beside it, and llms.txt, which lists the pages.

The Markdown is made of the built pages, so that it holds what they hold: what examples printed,
the reference that is made of docstrings, and links that lead somewhere within the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, SoupStrainer
from bs4.element import NavigableString, PageElement, Tag

# Pages without words of their own.
LEFT_OUT = ("genindex.html", "search.html", "py-modindex.html")
LEFT_OUT_FOLDERS = ("_static", "_modules", "_sources", "_downloads", "_images", "files")
SILENT_CLASSES = {
    "headerlink",
    "sphx-glr-footer",
    "sphx-glr-timing",
    "sphx-glr-download-link-note",
    "toctree-wrapper",
    "chart",
}
MARKED = re.compile(r"([\\`*_\[\]<])")


def write_pages(site: Path) -> None:
    """Write the Markdown of every page.

    Args:
        site: The built site.
    """
    for path in pages(site):
        path.with_suffix(".md").write_text(markdown(path), encoding="utf-8")


def pages(site: Path) -> list[Path]:
    """The pages with words of their own, in the order of their names.

    Args:
        site: The built site.
    """
    found = []
    for path in sorted(site.rglob("*.html")):
        place = path.relative_to(site)
        if place.name not in LEFT_OUT and place.parts[0] not in LEFT_OUT_FOLDERS:
            found.append(path)
    return found


def article_of(path: Path) -> Tag:
    """What a page says, without the parts that all pages have.

    Args:
        path: The page.
    """
    soup = BeautifulSoup(
        path.read_text(encoding="utf-8"),
        "lxml",
        parse_only=SoupStrainer("article", attrs={"role": "main"}),
    )
    article = soup.find("article")
    if not isinstance(article, Tag):
        raise SystemExit(f"{path.name} is no page of the site")
    return article


def markdown(path: Path) -> str:
    """A page as Markdown.

    Args:
        path: The page.
    """
    text = blocks(article_of(path).children).strip()
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def is_silent(tag: Tag) -> bool:
    """Whether an element says nothing in Markdown.

    Args:
        tag: The element.
    """
    classes = set(tag.get("class") or ())
    return tag.name in ("script", "style", "svg", "button", "input") or bool(
        classes & SILENT_CLASSES
    )


def blocks(elements: Iterable[PageElement]) -> str:
    """Elements one below the other.

    Args:
        elements: Of a page.
    """
    texts = []
    for element in elements:
        if isinstance(element, Tag):
            if not is_silent(element):
                texts.append(block(element))
        elif type(element) is NavigableString and element.strip():
            texts.append(escaped(" ".join(element.split())))
    return "\n\n".join(text for text in texts if text.strip())


def block(tag: Tag) -> str:
    """An element that stands for itself.

    Args:
        tag: The element.
    """
    match tag.name:
        case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
            return f"{'#' * int(tag.name[1])} {inline(tag).strip()}"
        case "p" | "summary" | "figcaption":
            return inline(tag).strip()
        case "pre":
            return fenced(tag)
        case "ul" | "ol":
            return list_of(tag)
        case "table":
            return table(tag)
        case "blockquote":
            return indented(blocks(tag.children), "> ", "> ")
        case "dt":
            words = " ".join(tag.get_text().replace("¶", "").split())
            return f"**`{words}`**" if "sig" in (tag.get("class") or ()) else f"**{words}**"
        case "dd":
            return indented(blocks(tag.children), ": ", "  ")
        case "hr":
            return "---"
        case "img" | "a" | "code" | "em" | "strong" | "span":
            return inline_of(tag).strip()
    if not tag.find(["p", "pre", "ul", "ol", "table", "div", "section", "dl", "h1", "h2", "h3"]):
        return inline(tag).strip()
    return blocks(tag.children)


def fenced(tag: Tag) -> str:
    """A block of code.

    Args:
        tag: The element `pre`.
    """
    language = ""
    for parent in tag.parents:
        for name in parent.get("class") or ():
            if name.startswith("highlight-"):
                language = name.removeprefix("highlight-").lower()
        if language:
            break
    if language in ("default", "none", "notranslate"):
        language = ""
    code = tag.get_text().rstrip("\n")
    return f"```{language}\n{code}\n```"


def list_of(tag: Tag) -> str:
    """A list.

    Args:
        tag: The element `ul` or `ol`.
    """
    items = []
    for number, item in enumerate(tag.find_all("li", recursive=False), start=1):
        mark = f"{number}. " if tag.name == "ol" else "- "
        inner = block(item) if item.find(["p", "ul", "ol", "pre", "table"]) else inline(item)
        items.append(indented(inner.strip(), mark, " " * len(mark)))
    return "\n".join(items)


def table(tag: Tag) -> str:
    """A table; its first row is its heading.

    Args:
        tag: The element.
    """
    rows = []
    for row in tag.find_all("tr"):
        cells = [inline(cell).strip().replace("|", "\\|") for cell in row.find_all(["th", "td"])]
        rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        return ""
    columns = len(tag.find("tr").find_all(["th", "td"]))
    return "\n".join([rows[0], f"|{' --- |' * columns}", *rows[1:]])


def inline(tag: Tag) -> str:
    """What stands in a line.

    Args:
        tag: The element around it.
    """
    texts = []
    for child in tag.children:
        if isinstance(child, Tag):
            if not is_silent(child):
                texts.append(inline_of(child))
        elif type(child) is NavigableString:
            texts.append(escaped(re.sub(r"\s+", " ", child)))
    # Types are written as one emphasis after the other.
    return "".join(texts).replace("**", "") if is_type(tag) else "".join(texts)


def is_type(tag: Tag) -> bool:
    """Whether an element describes a parameter, whose type is made of small emphases.

    Args:
        tag: The element.
    """
    is_described = tag.find("strong", recursive=False) is not None
    return is_described and tag.find_parent("dl", class_="field-list") is not None


def inline_of(tag: Tag) -> str:
    """An element in a line.

    Args:
        tag: The element.
    """
    match tag.name:
        case "code" | "tt" | "kbd":
            text = tag.get_text()
            return f"`` {text} ``" if "`" in text else f"`{text}`"
        case "strong" | "b":
            return f"**{inline(tag).strip()}**"
        case "em" | "i":
            return f"*{inline(tag).strip()}*"
        case "br":
            return " "
        case "img":
            return f"![{tag.get('alt', '')}]({tag.get('src', '')})"
        case "a" if tag.get("href"):
            text = inline(tag).strip()
            return f"[{text}]({to_markdown(str(tag['href']))})" if text else ""
    return inline(tag)


def to_markdown(link: str) -> str:
    """A link to a page's Markdown in the place of one to the page.

    Args:
        link: As the page has it.
    """
    parts = urlsplit(link)
    if parts.netloc or not parts.path.endswith(".html"):
        return link
    path = Path(parts.path)
    if path.name in LEFT_OUT or any(part in LEFT_OUT_FOLDERS for part in path.parts):
        return link
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.path.removesuffix('.html')}.md{fragment}"


def indented(text: str, first: str, others: str) -> str:
    """Lines with something before them.

    Args:
        text: The lines.
        first: Before the first one.
        others: Before the others.
    """
    lines = text.splitlines() or [""]
    rest = [f"{others}{line}" if line else others.rstrip() for line in lines[1:]]
    return "\n".join([f"{first}{lines[0]}", *rest])


def escaped(text: str) -> str:
    """A text whose characters mean themselves.

    Args:
        text: As a reader sees it.
    """
    return MARKED.sub(r"\\\1", text)


SECTIONS = {
    "": "Start",
    "howto": "How to",
    "explanation": "Explanation",
    "gallery": "Examples",
    "reference": "Reference",
    "project": "Project",
}
"""Headings of llms.txt by the folders of the pages; pages of errors are named by their list."""


def write_llms_txt(site: Path) -> None:
    """Write the list of the pages' Markdown, with the first sentence of each.

    Args:
        site: The built site.
    """
    lines = [
        "# headlab",
        "",
        "> Which attention heads of a transformer help, which do nothing and which do harm, in "
        "each language: honest statistics, a dashboard, a command line, a library, a smaller model.",
        "",
        "Every error has a code, and a page errors/CODE.md.",
        "",
    ]
    folders = [*SECTIONS, "errors"]
    for folder in folders:
        entries = []
        for path in pages(site):
            place = path.relative_to(site).with_suffix(".md")
            in_folder = place.parent.as_posix() == (folder or ".")
            if not in_folder or (folder == "errors" and place.name != "index.md"):
                continue
            entries.append(entry(path, place.as_posix()))
        lines += [f"## {SECTIONS.get(folder, 'Errors')}", "", *entries, ""]
    (site / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def entry(path: Path, place: str) -> str:
    """A page's line in llms.txt.

    Args:
        path: The page.
        place: Of its Markdown in the site.
    """
    article = article_of(path)
    heading = article.find("h1")
    title = heading.get_text().replace("¶", "").strip() if isinstance(heading, Tag) else place
    paragraph = next((p for p in article.find_all("p") if len(p.get_text().split()) > 4), None)
    about = " ".join(paragraph.get_text().split()) if paragraph is not None else ""
    sentence = re.split(r"(?<=[.?!])\s", about, maxsplit=1)[0]
    return f"- [{title}]({place}): {sentence}" if sentence else f"- [{title}]({place})"
