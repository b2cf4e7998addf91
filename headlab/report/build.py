"""From the results a user names to one HTML file that needs no network and no scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template

from headlab import __version__
from headlab.core import (
    HeadlabError,
    Report,
    Table,
    content_key,
    is_file,
    is_folder,
    part,
    read_json,
    write_atomic,
)
from headlab.masks import MASK_FORMAT as MASK
from headlab.masks import Mask, mask_from_json
from headlab.methods import earlier_keys
from headlab.report.commands import Known
from headlab.report.parts import (
    MAX_ROWS,
    Facts,
    Folded,
    Item,
    Made,
    Printed,
    Section,
    model_of,
    printed,
)
from headlab.report.sections.curves import curves_section
from headlab.report.sections.experiments import report_section
from headlab.report.sections.gates import gates_section
from headlab.report.sections.masks import mask_section
from headlab.report.sections.scores import scores_section
from headlab.results import Curve, FilePlaces, HeadScores, LearnedGates, Store
from headlab.results.store.codecs import CODECS, Result, read_result
from headlab.results.store.folder import check_parts, kind_of
from headlab.tasks import read_declaration

# From what a user names to results: a run's key or its beginning, a run's folder, or a file.

KEY = re.compile(r"[0-9a-f]+")
SHORTEST = 4  # characters of a key that name a run
SHOWN_KEY_LENGTH = 12  # characters of a key in a message
WHAT_TO_NAME = (
    "give the key of a run or its beginning (headlab cache lists them), a run's folder, a report's JSON file or a mask "
    "file"
)
MAX_NESTING = 3  # levels of nesting searched for reports: {"reports": {task: {experiment: report}}}


def find_results(words: Sequence[str], store: Store) -> tuple[Item[Any], ...]:
    """The results that words name, each once.

    Args:
        words: Keys of runs or their beginnings, folders of runs, JSON files of reports, mask files.
        store: Where keys are looked up.

    Raises:
        HeadlabError: A word names nothing, or several runs.
    """
    items_by_content: dict[str, Item[Any]] = {}
    for word in words:
        for item in _items_named(word, store):
            items_by_content.setdefault(_content(item), item)
    if not items_by_content:
        raise HeadlabError(f"nothing to report; {WHAT_TO_NAME}", code="report.nothing_named")
    return tuple(_with_unique_names(items_by_content.values()))


def _items_named(word: str, store: Store) -> Iterator[Item[Any]]:
    path = Path(word)
    if is_folder(word):
        yield from _folder(path.resolve())
    elif is_file(word):
        yield from _file(path)
    elif KEY.fullmatch(word):
        yield _run(_by_key(word, store))
    else:
        raise HeadlabError(
            f"there is no run and no file {word!r:.200}; {WHAT_TO_NAME}", code="report.unknown"
        )


def _content(item: Item[Any]) -> str:
    """A key for a result's content, wherever it is: a report may be both a run and a file."""
    try:
        match item.record:
            case Report() as report:
                took = ("example_forwards", "seconds")
                return content_key(
                    {name: value for name, value in report.to_json().items() if name not in took}
                )
            case Mask() as mask:
                return content_key([mask.digest, dict(mask.model), dict(mask.chosen)])
    except ValueError:  # NaN or half a surrogate pair: a file may hold anything
        return f"{item.file}: {item.key}"
    return item.key


def _with_unique_names(items: Iterable[Item[Any]]) -> Iterator[Item[Any]]:
    """The items; those from a file are named by the shortest end of its path that no other has."""
    items = list(items)
    paths = {item.file: Path(item.file).parts for item in items if item.file}
    unique_ends = {
        file: _unique_end(path_parts, paths.values()) for file, path_parts in paths.items()
    }
    for item in items:
        if not item.file:
            yield item
            continue
        name_in_file = item.key[len(Path(item.file).name) :]
        yield replace(
            item,
            key=unique_ends[item.file] + name_in_file,
            file=unique_ends[item.file],
            path=item.file,
        )


def _unique_end(path_parts: tuple[str, ...], all_path_parts: Iterable[tuple[str, ...]]) -> str:
    """The shortest end of a path that no other path shares."""
    for length in range(1, len(path_parts)):
        end = path_parts[-length:]
        if sum(other[-length:] == end for other in all_path_parts) == 1:
            return Path(*end).as_posix()
    return Path(*path_parts).as_posix()


def _by_key(word: str, store: Store) -> Path:
    """The only run folder whose name begins with a word.

    Raises:
        HeadlabError: There is none or there are several, or the word is too short.
    """
    if len(word) < SHORTEST:
        raise HeadlabError(
            f"{word!r} is too short for the beginning of a key; give {SHORTEST} characters or more",
            code="report.key_too_short",
        )
    found = [folder for folder in store.folders() if folder.name.startswith(word)]
    if not found:
        raise HeadlabError(
            f"no run in {store.root} begins with {word:.80}; {WHAT_TO_NAME}",
            code="report.key_unknown",
        )
    if len(found) > 1:
        keys = ", ".join(
            folder.name[: max(SHOWN_KEY_LENGTH, len(word) + 2)] for folder in found[:5]
        )
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise HeadlabError(
            f"{len(found)} runs in {store.root} begin with {word} ({keys}{more}); give more characters",
            code="report.key_ambiguous",
        )
    return found[0]


def _folder(folder: Path) -> Iterator[Item[Any]]:
    if (folder / "spec.json").exists():
        yield _run(folder)
    elif (folder / "report.json").exists():
        yield from _file(folder / "report.json")
    else:
        raise HeadlabError(
            f"{folder.name} holds neither a run (spec.json) nor a report (report.json); {WHAT_TO_NAME}",
            code="report.folder_empty",
        )


def _run(folder: Path) -> Item[Any]:
    """A finished run.

    Raises:
        HeadlabError: It is unfinished, damaged or of a kind that has no section.
    """
    kind = kind_of(read_json(folder / "spec.json"))
    kinds = {codec.kind: record for record, codec in CODECS.items()}
    if kind not in kinds:
        raise HeadlabError(
            f"{folder.name[:SHOWN_KEY_LENGTH]} holds {kind or 'nothing that headlab knows'}, which cannot be reported on; {WHAT_TO_NAME}",
            code="report.kind_unknown",
        )
    if not (folder / "result.npz").exists():
        raise HeadlabError(
            f"{folder.name[:SHOWN_KEY_LENGTH]} is not finished; run its command again, then make the report",
            code="report.run_unfinished",
        )
    result: Result[Any] = read_result(folder, kinds[kind])
    return Item(result.record, result.key, dict(result.meta))


def _file(path: Path) -> Iterator[Item[Any]]:
    items = list(_reports(read_json(path), path.name, "", MAX_NESTING))
    if not items:
        raise HeadlabError(
            f"{path} holds neither a report nor a mask; {WHAT_TO_NAME}", code="report.file_unknown"
        )
    yield from (replace(item, file=str(path.absolute())) for item in items)


def _reports(value: Any, key: str, command: str, levels: int) -> Iterator[Item[Any]]:
    """Every report and mask in parsed JSON, in document order.

    Args:
        value: The parsed JSON.
        key: Name of this part of the file.
        command: That made it, according to what is around it; empty if unknown.
        levels: Levels of nesting that are still searched.
    """
    if not isinstance(value, dict):
        return
    if value.get("format") == MASK:
        yield Item(mask_from_json(value, key), key)
        return
    command = value["command"] if isinstance(value.get("command"), str) else command
    if "tables" in value:
        try:
            report = Report.from_json(value)
            check_parts(report.spec)
        except HeadlabError as error:
            raise HeadlabError(f"{key}: {error}", code=error.code) from error
        yield Item(report, key, {}, command)
        return
    for name, inner in value.items() if levels else ():
        if isinstance(inner, dict):
            yield from _reports(inner, f"{key}: {name}", command, levels - 1)


# Results assembled into a document: sections by model, and the runs they are based on.

DevSize = Callable[[str], int | None]
NONE_NAMED: Mapping[str, Path] = MappingProxyType({})


@dataclass(frozen=True)
class Document:
    """A document.

    Attributes:
        title: Of the whole.
        sections: Those of one model together.
        models: Name and fingerprint of each, in the order of the sections.
        written: When, in UTC.
        version: Of headlab.
    """

    title: str
    sections: Sequence[Section]
    models: Sequence[tuple[str, str]]
    written: str
    version: str


def document(
    items: Sequence[Item[Any]], *, title: str = "", known: Known | None = None
) -> Document:
    """The document about results.

    Args:
        items: The results.
        title: Names the models by default.
        known: What their store knows of them besides.
    """
    by_model: dict[tuple[str, str], list[Section]] = {}
    for section in _sections(items, known or Known()):
        by_model.setdefault(section.model, []).append(section)
    sections = [section for group in by_model.values() for section in group]
    names = list(dict.fromkeys(name for name, _ in by_model))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Document(
        title or f"{_title_words(items)} of {', '.join(names)}",
        sections,
        list(by_model),
        now,
        __version__,
    )


def _title_words(items: Sequence[Item[Any]]) -> str:
    """What results are about: attention heads, unless some are about other players."""
    are_heads = all(_is_of_heads(item.record) for item in items)
    return "Attention heads" if are_heads else "Parts"


def _is_of_heads(record: object) -> bool:
    """Whether a result is of heads, and of no other players."""
    if isinstance(record, Report):
        return not record.spec.players
    grid = getattr(record, "grid", None)
    return grid is None or bool(grid.has_only_heads)


def _sections(items: Sequence[Item[Any]], known: Known) -> Iterator[Section]:
    """Sections: scores, curves and gates that belong together share one.

    Each other result has one.
    """
    has_several_masks = sum(isinstance(item.record, Mask) for item in items) > 1
    mask_number = 0
    groups: dict[object, list[Item[Any]]] = {}
    for index, item in enumerate(items):
        groups.setdefault(group_of(item.record) or index, []).append(item)
    for group in groups.values():
        match group[0].record:
            case HeadScores():
                yield scores_section(group, known)
            case Curve():
                yield curves_section(group, known)
            case LearnedGates():
                yield gates_section(group, known)
            case Report():
                yield report_section(group[0], known)
            case Mask():
                mask_number += has_several_masks
                yield mask_section(group[0], mask_number, known)


def group_of(record: object) -> tuple[object, ...] | None:
    """What the results of one section share, so that they can be compared.

    Args:
        record: Of a result.

    Returns:
        A key of its group; None for a result that has a section of its own.
    """
    match record:
        case HeadScores():
            shared: tuple[object, ...] = (
                record.method,
                record.estimand,
                record.unit,
                record.spec["ablation"],
                record.spec.players,
                record.spec.groups,
            )
        case Curve():
            spec = record.spec
            shared = (record.split, spec["ablation"], spec.players, spec.groups)
        case LearnedGates():
            shared = (record.language,)
        case _:
            return None
    return (type(record), *model_of(record.spec), record.spec["task"]["name"], *shared)


def known_in(store: Store, declarations: Mapping[str, Path] = NONE_NAMED) -> Known:
    """What a store knows of results besides their specs.

    Args:
        store: That the report is of.
        declarations: Files that declare tasks, by the tasks' names, where the user has named them.
    """

    def places(spec: Mapping[str, Any]) -> FilePlaces:
        places_in_store = store.places(spec)
        declaration = declarations.get(str(part(spec, "task", "name")))
        if declaration is None:
            return places_in_store
        return replace(places_in_store, declaration=declaration.absolute())

    return Known(ordered_on(store), places, label=store.label)


def ordered_on(store: Store) -> DevSize:
    """A function from the key of scores to the number of their examples.

    Scores that a newer version of their method has replaced were made on as many examples as the
    newer ones. It gives None for scores of which neither is in the store.

    Args:
        store: The store.
    """

    @cache
    def sizes_of_replaced() -> dict[str, int]:
        """The numbers of examples by the keys that stored scores had under earlier versions."""
        sizes = dict[str, int]()
        for result in store.scan(None).results:
            spec = result.record.spec
            if spec.task.size is not None:
                sizes |= dict.fromkeys(earlier_keys(spec), spec.task.size)
        return sizes

    def size(key: str) -> int | None:
        if not KEY.fullmatch(key):
            return None
        try:
            examples = part(read_json(store.folder_of(key) / "spec.json"), "task", "size")
        except HeadlabError:  # the scores are not here
            return sizes_of_replaced().get(key)
        if isinstance(examples, int):
            return examples
        return None

    return size


# A document as one HTML file that needs no network and no scripts.


class PageLink(NamedTuple):
    """A link of the navigation of pages that belong together.

    Attributes:
        file: Name of the page's file.
        title: Text of the link.
        is_current: Whether it is the page that the link stands on.
    """

    file: str
    title: str
    is_current: bool


LIMIT = 5_000_000  # bytes of a file
BYTES_LOOKED_AT = 200  # bytes of a file that are looked at
HTML = (b"<!doctype html", b"<html")  # what an HTML file begins with
# Maximum rows of a table: the first number that keeps the file below the limit is taken.
ROW_LIMITS = (MAX_ROWS, 100, 25)
# C0 and C1 controls except tab and line ends, halves of surrogate pairs, and noncharacters.
REPLACED_CHARACTERS: Mapping[int, str] = {  # noqa: C420 - nothing is called at import
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (
        *range(9),
        11,
        12,
        *range(14, 32),
        *range(127, 160),
        *range(0xD800, 0xE000),
        0xFFFE,
        0xFFFF,
    )
}


def write_report(
    words: Sequence[str],
    out: Path,
    store: Store,
    *,
    title: str = "",
    declarations: Sequence[Path] = (),
    paths: bool = True,
) -> tuple[Document, int]:
    """Write the report about what the words name, atomically.

    Args:
        words: As in `headlab.report.build.find_results`.
        out: File to write.
        store: Of the results.
        title: Of the report; names the models by default.
        declarations: Files that declare tasks, for results that do not say where theirs are.
        paths: Whether its commands name files of this machine; otherwise readers put in their own.

    Returns:
        The document, and the size of the file in bytes.

    Raises:
        HeadlabError: For a word that names nothing, a result or a declaration that cannot be read,
            a report that would be too large, a file that cannot be written, or an existing file
            that is not HTML.
    """
    report, _, _ = document_of_words(
        words, store, title=title, declarations=declarations, paths=paths
    )
    check_replaceable(out)
    data = html_of_document(report)
    write_atomic(out, data)
    return report, len(data)


def document_of_words(
    words: Sequence[str],
    store: Store,
    *,
    title: str = "",
    declarations: Sequence[Path] = (),
    paths: bool = True,
) -> tuple[Document, tuple[Item[Any], ...], Known]:
    """The document about what the words name.

    Args:
        words: As in `headlab.report.build.find_results`.
        store: Of the results.
        title: Of the document; names the models by default.
        declarations: Files that declare tasks, for results that do not say where theirs are.
        paths: Whether its commands name files of this machine; otherwise readers put in their own.

    Returns:
        The document, the results, and what their store knows of them besides.

    Raises:
        HeadlabError: For a word that names nothing, or a result or a declaration that cannot be
            read.
    """
    by_name = {read_declaration(path).name: path for path in declarations}
    items = find_results(words, store)
    if paths:
        known = known_in(store, by_name)
    else:
        items = tuple(replace(item, path="") for item in items)
        known = Known(ordered_on(store), paths=False)
    return document(items, title=title, known=known), items, known


def check_replaceable(out: Path) -> None:
    """Refuse to overwrite another kind of file, such as the mask that the report is about.

    Raises:
        HeadlabError: The file exists and is no HTML.
    """
    if not out.is_file():  # writing to what is not a file raises its own error
        return
    try:
        with out.open("rb") as file:
            first_bytes = file.read(BYTES_LOOKED_AT)
    except OSError as error:
        raise HeadlabError(
            f"{out} exists and cannot be read ({error.strerror}); give --out another name",
            code="output.unreadable",
        ) from error
    content = first_bytes.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if first_bytes.strip() and not content.startswith(HTML):
        raise HeadlabError(
            f"{out} exists and is not an HTML file, so it is not a report; give --out another name: report.html",
            code="output.not_html",
        )


def html_of_document(report: Document, links: Sequence[PageLink] = ()) -> bytes:
    """The document as an HTML file in UTF-8, at most 5 MB: long tables are cut further to fit.

    Args:
        report: The document.
        links: The navigation above it; empty for a file that stands alone.

    Raises:
        HeadlabError: It is still too large.
    """
    data = b""
    for max_rows in ROW_LIMITS:
        data = rendered_html(report, max_rows, links)
        if len(data) <= LIMIT:
            return data
    raise HeadlabError(
        f"the report of these results would have {len(data) / 1e6:.1f} MB; the limit is {LIMIT / 1e6:.0f} MB. "
        "Name fewer results, or make several reports",
        code="report.too_large",
    )


def rendered_html(report: Document, max_rows: int, links: Sequence[PageLink] = ()) -> bytes:
    """The HTML file; characters that HTML cannot hold are replaced.

    Args:
        report: The document.
        max_rows: Of a table, at most.
        links: As in `html_of_document`.
    """
    text = page_template(template_text("report.html")).render(
        document=report,
        css=template_text("report.css"),
        table=partial(_table, max_rows=max_rows),
        origin=origin,
        several=len(report.models) > 1,
        links=links,
    )
    return replaced_characters(text).encode("utf-8")


def page_template(text: str) -> Template:
    """A template of a page: what is filled in is escaped, and nothing may be missing."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text)


def replaced_characters(text: str) -> str:
    """The text with a replacement character for each character that HTML cannot hold."""
    return text.translate(REPLACED_CHARACTERS)


def _table(table: Table | Folded, max_rows: int) -> Printed:
    if isinstance(table, Folded):
        return printed(table.table, folded=True, max_rows=max_rows)
    return printed(table, max_rows=max_rows)


def origin(made: Sequence[Made]) -> tuple[Facts, Printed | None]:
    """The facts that all runs of a section share, and a table of those that differ.

    There is no table for a single run.
    """
    if len(made) == 1:
        return (("run or file", made[0].key), *made[0].facts), None
    facts_by_run = [dict(run.facts) for run in made]
    names = list(dict.fromkeys(name for facts in facts_by_run for name in facts))
    shared = [name for name in names if len({facts.get(name) for facts in facts_by_run}) == 1]
    differing = [name for name in names if name not in shared]
    rows = tuple(
        (run.title, run.key, *(facts.get(name) for name in differing))
        for run, facts in zip(made, facts_by_run, strict=True)
    )
    columns = ("result", "run or file", *differing)
    table = Table("runs", "What sets these runs apart", columns, ("",) * len(columns), rows)
    return tuple((name, facts_by_run[0][name]) for name in shared), printed(table, folded=False)


def template_text(name: str) -> str:
    """The text of one of the report's template files."""
    return (resources.files("headlab.report") / name).read_text("utf-8")


def summary(report: Document) -> list[dict[str, Any]]:
    """A document's contents, ready for JSON: its sections with the runs they are based on."""
    return [
        {
            "title": section.title,
            "kind": section.kind,
            "model": section.model[0],
            "runs": [run.key for run in section.made],
        }
        for section in report.sections
    ]
