"""A document as one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from headlab.errors import HeadlabError
from headlab.files import write_atomic
from headlab.htmlreport.document import Document, document, ordered_on
from headlab.htmlreport.find import find
from headlab.htmlreport.parts import Facts, Folded, Made
from headlab.htmlreport.tabled import MOST_ROWS, Printed, printed
from headlab.store import Store
from headlab.tables import Table

LIMIT = 5_000_000  # bytes of a file
STARTS, HTML = 200, (b"<!doctype html", b"<html")  # bytes that are looked at, and what an HTML file begins with
SHORT = (MOST_ROWS, 100, 25)  # rows of a table at most: the first that keeps the file below the limit
# C0 and C1 controls but for tab and line ends, halves of surrogate pairs, and what may not stand in a text at all.
UNFIT: Mapping[int, str] = {  # noqa: C420 - nothing is called at import
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
}


def write_report(words: Sequence[str], out: Path, store: Store, *, title: str = "") -> tuple[Document, int]:
    """Write the report about what the words name, whole or not at all; the document, and how many bytes it took.

    words: as `headlab.htmlreport.find.find` reads them.  Raises HeadlabError for a word that names nothing, a result
    that cannot be read, a report that would be too large, a file that cannot be written, or one that is there and is
    no HTML.
    """
    items = find(words, store)
    check_replaceable(out)
    found = document(items, title=title, dev_size=ordered_on(store))
    data = html(found)
    write_atomic(out, data)
    return found, len(data)


def check_replaceable(out: Path) -> None:
    """Raise HeadlabError where a report would take the place of another kind of file, like a mask that it is about."""
    if not out.is_file():  # what is not a file cannot be written, and says so then
        return
    try:
        with out.open("rb") as file:
            begins = file.read(STARTS)
    except OSError as error:
        raise HeadlabError(
            f"{out} is there and cannot be read ({error.strerror}); give --out another name", code="output.unreadable"
        ) from error
    if begins.strip() and not begins.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(HTML):
        raise HeadlabError(
            f"{out} exists and is not an HTML file, so it is not a report; give --out another name: report.html",
            code="output.not_html",
        )


def html(found: Document) -> bytes:
    """The document as an HTML file in UTF-8, below 5 MB: long tables are cut further where it would be more.

    Raises HeadlabError where it is more even then.
    """
    data = b""
    for most in SHORT:
        data = rendered(found, most)
        if len(data) <= LIMIT:
            return data
    raise HeadlabError(
        f"the report of these results would have {len(data) / 1e6:.1f} MB, {LIMIT / 1e6:.0f} MB at most are allowed; "
        "name fewer results, and make several reports",
        code="report.too_large",
    )


def rendered(found: Document, most: int) -> bytes:
    """The HTML file, with so many rows a table at most; letters that HTML cannot hold are replaced."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(file_text("report.html")).render(
        document=found,
        css=file_text("report.css"),
        table=partial(_table, most=most),
        origin=origin,
        several=len(found.models) > 1,
    )
    return text.translate(UNFIT).encode("utf-8")


def _table(given: Table | Folded, most: int) -> Printed:
    return printed(given.table, folded=True, most=most) if isinstance(given, Folded) else printed(given, most=most)


def origin(made: Sequence[Made]) -> tuple[Facts, Printed | None]:
    """What all runs of a section share, and a table of what sets them apart; None of one run alone."""
    if len(made) == 1:
        return (("run or file", made[0].key), *made[0].facts), None
    every = [dict(one.facts) for one in made]
    names = list(dict.fromkeys(name for facts in every for name in facts))
    shared = [name for name in names if len({facts.get(name) for facts in every}) == 1]
    apart = [name for name in names if name not in shared]
    rows = tuple(
        (one.title, one.key, *(facts.get(name) for name in apart)) for one, facts in zip(made, every, strict=True)
    )
    columns = ("result", "run or file", *apart)
    table = Table("runs", "What sets these runs apart", columns, ("",) * len(columns), rows)
    return tuple((name, every[0][name]) for name in shared), printed(table, folded=False)


def file_text(name: str) -> str:
    """A file of those that a report is made of."""
    return (resources.files("headlab.htmlreport") / name).read_text("utf-8")


def summary(found: Document) -> list[dict[str, Any]]:
    """What a document holds, ready for JSON: its sections with the runs they rest on."""
    return [
        {"title": section.title, "kind": section.kind, "model": section.model[0], "runs": [m.key for m in section.made]}
        for section in found.sections
    ]
