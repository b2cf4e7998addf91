"""From what a user names to results: a key or its beginning, a run's folder, a report's JSON file or a mask file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.htmlreport.parts import Item
from headlab.masks import Mask, mask_from_json
from headlab.masks.mask import FORMAT as MASK
from headlab.records import content_key
from headlab.store import GATES, REPORT, Store
from headlab.store.codecs import CURVE, read_curve, read_gates, read_report, read_result
from headlab.store.folder import SCORE, kind_of
from headlab.tables import Report

KEY, SHORTEST, SHOWN = re.compile(r"[0-9a-f]+"), 4, 12
FITS = (
    "give the key of a run or its beginning (headlab cache lists them), a run's folder, a report's JSON file or a mask "
    "file"
)
DEEP = 3  # reports within reports: {"reports": {task: {experiment: report}}}


def find(words: Sequence[str], store: Store) -> tuple[Item, ...]:
    """What the words name, each result once. Raises HeadlabError for a word that names nothing, or too much."""
    found: dict[str, Item] = {}
    for word in words:
        for item in _named(word, store):
            found.setdefault(_content(item), item)
    if not found:
        raise HeadlabError(f"nothing to report; {FITS}", code="report.nothing_named")
    return tuple(_told_apart(found.values()))


def _named(word: str, store: Store) -> Iterator[Item]:
    path = Path(word)
    if word and path.is_dir():
        yield from _folder(path.resolve())
    elif word and path.is_file():
        yield from _file(path)
    elif KEY.fullmatch(word):
        yield _run(_by_key(word, store))
    else:
        raise HeadlabError(f"there is no run and no file {word!r:.200}; {FITS}", code="report.unknown")


def _content(item: Item) -> str:
    """What tells a result from all others, wherever it lies: a report is kept as a run and written as a file."""
    try:
        match item.record:
            case Report() as report:
                took = ("example_forwards", "seconds")
                return content_key({name: value for name, value in report.to_json().items() if name not in took})
            case Mask() as mask:
                return content_key([mask.digest, dict(mask.model), dict(mask.chosen)])
    except ValueError:  # no number, or half a surrogate pair: a file may hold anything
        return f"{item.file}: {item.key}"
    return item.key


def _told_apart(items: Iterable[Item]) -> Iterator[Item]:
    """The items; those of a file are called by as much of its path as tells it from the other files here."""
    items = list(items)
    paths = {item.file: Path(item.file).parts for item in items if item.file}
    short = {file: _end(own, paths.values()) for file, own in paths.items()}
    for item in items:
        within = item.key[len(Path(item.file).name) :]
        yield replace(item, key=short[item.file] + within, file=short[item.file]) if item.file else item


def _end(own: tuple[str, ...], every: Iterable[tuple[str, ...]]) -> str:
    """The shortest end of a path that no other one has."""
    n = next(n for n in range(1, len(own) + 1) if n == len(own) or sum(p[-n:] == own[-n:] for p in every) == 1)
    return Path(*own[-n:]).as_posix()


def _by_key(word: str, store: Store) -> Path:
    """The one run folder whose name begins so."""
    if len(word) < SHORTEST:
        raise HeadlabError(
            f"{word!r} is too short for the beginning of a key; give {SHORTEST} letters or more",
            code="report.key_too_short",
        )
    found = [folder for folder in store.folders() if folder.name.startswith(word)]
    if not found:
        raise HeadlabError(f"no run in {store.root} begins with {word:.80}; {FITS}", code="report.key_unknown")
    if len(found) > 1:
        keys = ", ".join(folder.name[: max(SHOWN, len(word) + 2)] for folder in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise HeadlabError(
            f"{len(found)} runs in {store.root} begin with {word} ({keys}{more}); give more letters",
            code="report.key_ambiguous",
        )
    return found[0]


def _folder(folder: Path) -> Iterator[Item]:
    if (folder / "spec.json").exists():
        yield _run(folder)
    elif (folder / "report.json").exists():
        yield from _file(folder / "report.json")
    else:
        raise HeadlabError(
            f"{folder.name} holds neither a run (spec.json) nor a report (report.json); {FITS}",
            code="report.folder_empty",
        )


def _run(folder: Path) -> Item:
    """A finished run. Raises HeadlabError for one that is not finished, torn, or holds no result of its own."""
    kind = kind_of(read_json(folder / "spec.json"))
    if kind not in READERS:
        raise HeadlabError(
            f"{folder.name[:SHOWN]} holds {kind or 'nothing known'}, of which there is no report; {FITS}",
            code="report.kind_unknown",
        )
    if not (folder / "result.npz").exists():
        raise HeadlabError(
            f"{folder.name[:SHOWN]} is not finished; run its command again, then make the report",
            code="report.run_unfinished",
        )
    return READERS[kind](folder)


def _score(folder: Path) -> Item:
    found = read_result(folder)
    return Item(found.scores, found.key, dict(found.meta))


def _curve(folder: Path) -> Item:
    found = read_curve(folder)
    return Item(found.curve, found.key, dict(found.meta))


def _report(folder: Path) -> Item:
    found = read_report(folder)
    return Item(found.report, found.key, dict(found.meta))


def _gates(folder: Path) -> Item:
    found = read_gates(folder)
    return Item(found.gates, found.key, dict(found.meta))


READERS: Mapping[str, Callable[[Path], Item]] = {SCORE: _score, CURVE: _curve, REPORT: _report, GATES: _gates}


def _file(path: Path) -> Iterator[Item]:
    items = list(_reports(read_json(path), path.name, "", DEEP))
    if not items:
        raise HeadlabError(f"{path} holds neither a report nor a mask; {FITS}", code="report.file_unknown")
    yield from (replace(item, file=str(path.absolute())) for item in items)


def _reports(value: Any, key: str, command: str, deep: int) -> Iterator[Item]:
    """Every report and mask in parsed JSON, in its order."""
    if not isinstance(value, dict):
        return
    if value.get("format") == MASK:
        yield Item(mask_from_json(value, key), key)
        return
    command = value["command"] if isinstance(value.get("command"), str) else command
    if "tables" in value:
        try:
            yield Item(Report.from_json(value), key, {}, command)
        except HeadlabError as error:
            raise HeadlabError(f"{key}: {error}", code=error.code) from error
        return
    for name, inner in value.items() if deep else ():
        if isinstance(inner, dict):
            yield from _reports(inner, f"{key}: {name}", command, deep - 1)
