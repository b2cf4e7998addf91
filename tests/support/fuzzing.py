"""Everything that headlab reads from others, as functions of bytes, and ways to spoil good ones.

`tests/test_fuzz.py` tries spoiled ones from a seed; `python tests/support/fuzz_guided.py READER` lets atheris look for more.
"""

from __future__ import annotations

import io
import json
import math
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import headlab
from headlab.core import HeadGrid, HeadlabError, Stack, parse_options
from headlab.dashboard.names import head_from
from headlab.dashboard.panels.history import kept_heads_of_link_text, mask_link_text
from headlab.masks import FORMS, Mask, convert_in, convert_out, load_mask, parse_grid
from headlab.methods import METHODS
from headlab.models.load import examine_model
from headlab.results import FilePlaces, Store
from headlab.results.store.places import note_places
from headlab.tasks import Draft, Upload, read_label_map, read_trees, save_task, task
from headlab.tasks.udpos import sentences
from headlab.tasks.xnli import xnli_task
from support.cached_reports import made_up as made_report
from support.cached_scores import made_up as made_scores
from support.saved_models import save_classifier
from support.synthetic_curves import made_curve
from support.synthetic_gates import made_gates

GRID = HeadGrid((Stack("encoder", (2, 3)),))
MASK = Mask(
    GRID,
    np.array([True, False, True, True, False]),
    {"name": "m", "fingerprint": "0" * 64},
    {"rule": "x"},
)
# They follow each other faster than the clock of the disk ticks, and what is read is remembered by size and time.
SECONDS = count(1_000_000_000)

TREES = """# sent_id = a
# text = zum Haus
1-2\tzum\t_\t_\t_\t_\t_\t_\t_\t_
1\tzu\tzu\tADP\t_\t_\t3\tcase\t_\t_
2\tdem\tder\tDET\t_\t_\t3\tdet\t_\t_
3\tHaus\tHaus\tNOUN\t_\t_\t0\troot\t_\t_

"""
DECLARATION = """name = "mine"
format = "FORMAT"
files = "{language}.{split}.FORMAT"
columns = { text = "review", label = "stars" }
"""
ROWS = {
    "csv": 'review,stars\n"good, really",1\n"a ""bad"" one",0\n',
    "tsv": "review\tstars\ngood\t1\nbad\t0\n",
    "jsonl": '{"review": "good", "stars": 1}\n{"review": "bad", "stars": 0}\n',
}
TOKENS = "-DOCSTART- -X- O\n\n# id 7\nzu ADP O\ndem DET O\n\nHaus NOUN B-LOC\n\nBerg NOUN O\n"
XNLI = "premise\thypothesis\tlabel\nIt rains .\tIt is wet .\t0\nIt rains .\tIt is dry .\t2\nIt rains .\tHi .\t1\n"


@dataclass(frozen=True)
class Reader:
    """Something that headlab reads.

    Attributes:
        good: Bytes that it can read.
        read: Raises HeadlabError for others.
    """

    good: Sequence[bytes]
    read: Callable[[bytes], object]
    dear: bool = False  # a case takes a tenth of a second


def put(path: Path, data: bytes) -> Path:
    """Write a file, younger than all before it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    at = next(SECONDS)
    os.utime(path, (at, at))
    return path


def text_of(data: bytes) -> str:
    """Bytes as what a person types or a link says."""
    return data.decode("utf-8", "replace")


def readers(root: Path) -> dict[str, Reader]:
    """All of them, each with a folder of its own below this one."""
    return {
        **dict(_masks(root / "masks")),
        **dict(_results(root / "results")),
        **dict(_data(root / "data")),
        **dict(_models(root / "models")),
        **dict(_words()),
    }


def _masks(root: Path) -> Iterator[tuple[str, Reader]]:
    whole = json.dumps(MASK.to_json()).encode()
    yield "mask", Reader([whole], lambda data: load_mask(put(root / "mask.json", data)))
    every = [convert_out(MASK, form) for form in FORMS]
    theirs = [one if isinstance(one, bytes) else one.encode() for one in every]

    def foreign(data: bytes) -> None:
        for form in (None, *FORMS):
            try:
                assert convert_in(data, "theirs", form, grid=GRID).kept.shape == (GRID.size,)
            except HeadlabError as error:
                check(error)

    yield "mask of another tool", Reader([whole, *theirs], foreign)


def _results(root: Path) -> Iterator[tuple[str, Reader]]:
    kinds: Mapping[str, tuple[Any, Callable[[Store], Any]]] = {
        "scores": (made_scores("de", "shapley"), Store.scan),
        "curve": (made_curve(), Store.curves),
        "report": (made_report("gap"), Store.reports),
        "gates": (made_gates(), Store.gates),
    }
    for kind, (record, listed) in kinds.items():
        store = Store(root / kind)
        run = store.run(record.spec)
        run.finish(record, {"created": "2026-11-22T01:00:00+00:00", "versions": {}})
        for name in ("spec.json", "result.npz"):
            yield (
                f"{name} of {kind}",
                Reader([(run.folder / name).read_bytes()], _file(store, run.folder / name, listed)),
            )
    yield "places of files", _places(root / "places")
    begun = Store(root / "begun").run(made_scores("de", "shapley").spec)
    begun.save({"values": np.zeros((2, 3)), "draws": np.arange(4)})
    checkpoint = begun.folder / "checkpoint.npz"
    yield (
        "checkpoint.npz",
        Reader(
            [checkpoint.read_bytes()], lambda data: (put(checkpoint, data), begun.checkpoint())[1]
        ),
    )


def _places(root: Path) -> Reader:
    """The notes on where the files of a result are."""
    store = Store(root)
    spec = made_scores("de", "shapley").spec
    note_places(root, spec, FilePlaces(declaration=root / "mine.toml", model=root))
    notes = sorted(root.rglob("*.json"))
    good = [note.read_bytes() for note in notes]

    def read(data: bytes) -> None:
        for note in notes:
            put(note, data)
        assert {type(path) for path in vars(store.places(spec)).values()} <= {
            type(None),
            type(root),
        }

    return Reader(good, read)


def _file(store: Store, path: Path, listed: Callable[[Store], Any]) -> Callable[[bytes], None]:
    whole = path.read_bytes()

    def read(data: bytes) -> None:
        put(path, data)
        try:
            found = listed(store)
            # a spec of another kind is another listing's
            assert len(found.results) + len(found.problems) <= 1
        finally:
            put(path, whole)

    return read


def _data(root: Path) -> Iterator[tuple[str, Reader]]:
    yield (
        "CoNLL-U, trees",
        Reader([TREES.encode()], lambda data: read_trees(put(root / "trees.conllu", data))),
    )
    yield (
        "CoNLL-U, tags",
        Reader([TREES.encode()], lambda data: list(sentences(put(root / "tags.conllu", data)))),
    )
    yield (
        "XNLI",
        Reader(
            [XNLI.encode()],
            lambda data: (
                put(root / "xnli" / "de.dev.tsv", data),
                list(xnli_task(root).examples("de")),
            ),
        ),
    )
    for kind, rows in ROWS.items():
        declared = DECLARATION.replace("FORMAT", kind).encode()

        def read(data: bytes, kind: str = kind, declared: bytes = declared) -> None:
            put(root / kind / f"de.dev.{kind}", data)
            list(headlab.task(str(put(root / kind / "mine.toml", declared))).examples("de"))

        yield kind, Reader([rows.encode()], read)
        yield (
            f"{kind} that was sent",
            Reader([rows.encode()], lambda data, kind=kind: sent(data, kind, root / "sent")),
        )
    yield (
        "CoNLL-U that was sent",
        Reader([TREES.encode()], lambda data: sent(data, "conllu", root / "sent")),
    )
    yield (
        "tokens that were sent",
        Reader([TOKENS.encode()], lambda data: sent(data, "conll", root / "sent")),
    )
    put(root / "declared" / "de.dev.csv", ROWS["csv"].encode())
    yield (
        "declaration of a task",
        Reader(
            [DECLARATION.replace("FORMAT", "csv").encode()],
            lambda data: list(
                headlab.task(str(put(root / "declared" / "mine.toml", data))).examples("de")
            ),
        ),
    )


SENT_COLUMNS = {
    "conllu": {"words": "FORM", "labels": "UPOS"},
    "conll": {"words": "1", "labels": "2"},
}


def sent(data: bytes, kind: str, cache: Path) -> None:
    """Make a task of a file, as the dashboard does; what is found right is saved, and what is saved is read."""
    columns = SENT_COLUMNS.get(kind, {"text": "review", "label": "stars"})
    draft = Draft(
        f"mine-{next(SECONDS)}", kind, columns, (Upload(f"x.{kind}", data, "de"),), share=0.5
    )
    try:
        found = save_task(draft, cache)
        made = headlab.task(str(cache / "tasks" / draft.name / f"{draft.name}.toml"))
        assert sum(found.sizes.values()) == sum(
            len(made.examples(code, split)) for code, split in found.sizes
        )
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def _models(root: Path) -> Iterator[tuple[str, Reader]]:
    folder = save_classifier(root / "model")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        path = folder / name
        whole = path.read_bytes()

        def read(data: bytes, path: Path = path, whole: bytes = whole) -> None:
            put(path, data)
            try:
                headlab.load(path.parent, device="cpu")
            finally:
                put(path, whole)

        yield f"{name} of a model", Reader([whole], read, dear=True)

        def look(data: bytes, path: Path = path, whole: bytes = whole) -> None:
            put(path, data)
            try:
                assert all(fact.words for fact in examine_model(str(path.parent), task("intents")))
            finally:
                put(path, whole)

        yield f"{name} of a model that is checked", Reader([whole], look, dear=True)


def _words() -> Iterator[tuple[str, Reader]]:
    known = METHODS["shapley"].options
    yield (
        "label map",
        Reader(
            [b"good=LABEL_0,bad=1", b'{"good": "LABEL_0"}'],
            lambda data: read_label_map(text_of(data)),
        ),
    )
    yield (
        "mask of a link",
        Reader(
            [mask_link_text(MASK.kept).encode()],
            lambda data: kept_heads_of_link_text(text_of(data), GRID),
        ),
    )
    yield "head of a link", Reader([b"encoder.3.7"], lambda data: head_from(text_of(data)))
    yield "grid", Reader([b"12x12", b"2x3"], lambda data: parse_grid(text_of(data)))
    yield (
        "options",
        Reader(
            [b"samples=512", b"target=none", b'estimand="shapley"'],
            lambda data: METHODS["shapley"].resolve(parse_options([text_of(data)], known)),
        ),
    )


def check(error: HeadlabError) -> None:
    """An error is a sentence with a code."""
    assert error.code
    assert str(error).strip()


def attempt(reader: Reader, data: bytes) -> bool:
    """Whether it can be read; anything but a HeadlabError gets through."""
    try:
        reader.read(data)
    except HeadlabError as error:
        check(error)
        return False
    return True


# Ways to spoil.

ODD: tuple[Any, ...] = (
    0,
    1,
    -1,
    2.5,
    1e300,
    -1e308,
    10**400,
    2**53 + 1,
    math.inf,
    math.nan,
    "\ud800",
    "\x1b[2J\n",
    True,
    False,
    None,
    "",
    "x" * 5000,
    "../../x",
    "zero",
    [],
    {},
    [1],
    [[1]],
    {"a": 1},
    {"a": {"b": []}},
)
SCRAPS = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\n\n",
    b"\t",
    b" ",
    b'"',
    b"'",
    b",",
    b"=",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\\",
    b"-",
    b"_",
    b"#",
    b"1",
    b"999999999999",
    b"1e999",
    b"NaN",
    b"null",
    "\u2028".encode(),
    "é".encode(),
    b"[" * 2000,
    b"a" * 3000,
)


def spoiled(rng: random.Random, good: Sequence[bytes]) -> bytes:
    """One of these, spoiled in one to four places: as bytes, as JSON where it is JSON, or inside an archive."""
    data = rng.choice(good)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        ways = [_bytes, _bytes]
        ways += [_json] if data[:1] in b"{[" and data else []
        ways += [_archive] * 4 if data[:2] == b"PK" else []
        data = rng.choice(ways)(rng, data)
    return data


def _bytes(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return rng.choice(SCRAPS)
    at = rng.randrange(len(data))
    length = rng.choice((1, 1, 2, 8, 64))
    there = data[at : at + length]
    put_in = rng.choice((b"", rng.choice(SCRAPS), rng.randbytes(length), there * 2, there[::-1]))
    return rng.choice(
        (data[:at] + put_in + data[at + length :], data[:at] + put_in + data[at:], data[:at])
    )


def _json(rng: random.Random, data: bytes) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _bytes(rng, data)
    spots = list(_spots(value))
    if not spots:
        return json.dumps(rng.choice(ODD)).encode()
    inside, key = rng.choice(spots)
    if rng.random() < 0.25:
        del inside[key]
    elif rng.random() < 0.2 and isinstance(inside, dict):
        inside[rng.choice(("more", "", "format", "version", "\u202e"))] = rng.choice(ODD)
    else:
        inside[key] = rng.choice(ODD)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: what it is in, and its key or number there."""
    inner = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    for key, part in inner:
        yield value, key
        yield from _spots(part)


def undated(name: str) -> zipfile.ZipInfo:
    """A file of an archive without the time of its writing, which would make other bytes of the same seed."""
    return zipfile.ZipInfo(name)


def _archive(rng: random.Random, data: bytes) -> bytes:
    """One of the files inside spoiled, left out or written twice; the archive itself is whole."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, EOFError):
        return _bytes(rng, data)
    if not files:
        return _bytes(rng, data)
    chosen = rng.choice(sorted(files))
    out = io.BytesIO()
    what = rng.random()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            if name != chosen:
                archive.writestr(undated(name), content)
            elif what > 0.1:
                archive.writestr(undated(name), _bytes(rng, content))
    return out.getvalue()
