"""Everything that headlab reads from others, as functions of bytes, and ways to spoil valid bytes.

`tests/test_fuzz.py` tries bytes spoiled from a seed; `python tests/support/fuzz_guided.py READER`
lets atheris look for more.
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
from headlab.dashboard.panels.masks.history import kept_heads_of_link_text, mask_link_text
from headlab.masks import FORMS, Mask, convert_in, convert_out, load_mask, parse_grid
from headlab.methods import METHODS
from headlab.models.load import examine_model
from headlab.results import FilePlaces, Store
from headlab.results.store.places import note_places
from headlab.tasks import Draft, Upload, read_label_map, read_trees, save_task, task
from headlab.tasks.udpos import sentences
from headlab.tasks.xnli import xnli_task
from support.cached_reports import made_report
from support.cached_scores import made_scores
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
# Modification times of the files. Files are written faster than the disk's clock ticks, and what
# was read of a file is cached by its size and time.
FILE_TIMES = count(1_000_000_000)

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
XNLI = (
    "premise\thypothesis\tlabel\n"
    "It rains .\tIt is wet .\t0\n"
    "It rains .\tIt is dry .\t2\n"
    "It rains .\tHi .\t1\n"
)


@dataclass(frozen=True)
class Reader:
    """Something that headlab reads.

    Attributes:
        good: Bytes that it can read.
        read: Raises HeadlabError for bytes that it cannot read.
        dear: Whether a case takes a tenth of a second.
    """

    valid_bytes: Sequence[bytes]
    read: Callable[[bytes], object]
    is_slow: bool = False


def write_younger(path: Path, data: bytes) -> Path:
    """Write a file with a later time than all files written before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    modification_time = next(FILE_TIMES)
    os.utime(path, (modification_time, modification_time))
    return path


def text_of(data: bytes) -> str:
    """Bytes as the text that a person types or a link holds."""
    return data.decode("utf-8", "replace")


def readers(root: Path) -> dict[str, Reader]:
    """All readers by name, each with a folder of its own below `root`."""
    return {
        **dict(_mask_readers(root / "masks")),
        **dict(_result_readers(root / "results")),
        **dict(_data_readers(root / "data")),
        **dict(_model_readers(root / "models")),
        **dict(_text_readers()),
    }


def _mask_readers(root: Path) -> Iterator[tuple[str, Reader]]:
    mask_json = json.dumps(MASK.to_json()).encode()
    yield (
        "mask",
        Reader([mask_json], lambda data: load_mask(write_younger(root / "mask.json", data))),
    )
    masks_of_other_tools = []
    for form in FORMS:
        foreign_mask = convert_out(MASK, form)
        masks_of_other_tools.append(
            foreign_mask if isinstance(foreign_mask, bytes) else foreign_mask.encode()
        )

    def convert_in_every_form(data: bytes) -> None:
        for form in (None, *FORMS):
            try:
                assert convert_in(data, "theirs", form, grid=GRID).kept.shape == (GRID.size,)
            except HeadlabError as error:
                check_error(error)

    yield (
        "mask of another tool",
        Reader([mask_json, *masks_of_other_tools], convert_in_every_form),
    )


def _result_readers(root: Path) -> Iterator[tuple[str, Reader]]:
    kinds: Mapping[str, tuple[Any, Callable[[Store], Any]]] = {
        "scores": (made_scores("de", "shapley"), Store.scan),
        "curve": (made_curve(), Store.curves),
        "report": (made_report("gap"), Store.reports),
        "gates": (made_gates(), Store.gates),
    }
    for kind, (record, list_results) in kinds.items():
        store = Store(root / kind)
        stored_run = store.run(record.spec)
        stored_run.finish(record, {"created": "2026-11-22T01:00:00+00:00", "versions": {}})
        for name in ("spec.json", "result.npz"):
            path = stored_run.folder / name
            read_stored_file = _stored_file_reader(store, path, list_results)
            yield f"{name} of {kind}", Reader([path.read_bytes()], read_stored_file)
    yield "places of files", _file_places_reader(root / "places")
    begun_run = Store(root / "begun").run(made_scores("de", "shapley").spec)
    begun_run.save({"values": np.zeros((2, 3)), "draws": np.arange(4)})
    checkpoint = begun_run.folder / "checkpoint.npz"

    def read_checkpoint(data: bytes) -> object:
        write_younger(checkpoint, data)
        return begun_run.checkpoint()

    yield "checkpoint.npz", Reader([checkpoint.read_bytes()], read_checkpoint)


def _file_places_reader(root: Path) -> Reader:
    """The notes on where the files of a result lie."""
    store = Store(root)
    spec = made_scores("de", "shapley").spec
    note_places(root, spec, FilePlaces(declaration=root / "mine.toml", model=root))
    notes = sorted(root.rglob("*.json"))
    valid_notes = [note.read_bytes() for note in notes]

    def read(data: bytes) -> None:
        for note in notes:
            write_younger(note, data)
        path_types = {type(path) for path in vars(store.places(spec)).values()}
        assert path_types <= {type(None), type(root)}

    return Reader(valid_notes, read)


def _stored_file_reader(
    store: Store, path: Path, list_results: Callable[[Store], Any]
) -> Callable[[bytes], None]:
    valid_bytes = path.read_bytes()

    def read(data: bytes) -> None:
        write_younger(path, data)
        try:
            listing = list_results(store)
            # A spec of another kind belongs to another listing.
            assert len(listing.results) + len(listing.problems) <= 1
        finally:
            write_younger(path, valid_bytes)

    return read


def _data_readers(root: Path) -> Iterator[tuple[str, Reader]]:
    def read_sentence_trees(data: bytes) -> None:
        read_trees(write_younger(root / "trees.conllu", data))

    def read_tagged_sentences(data: bytes) -> None:
        list(sentences(write_younger(root / "tags.conllu", data)))

    def read_xnli(data: bytes) -> None:
        write_younger(root / "xnli" / "de.dev.tsv", data)
        list(xnli_task(root).examples("de"))

    yield "CoNLL-U, trees", Reader([TREES.encode()], read_sentence_trees)
    yield "CoNLL-U, tags", Reader([TREES.encode()], read_tagged_sentences)
    yield "XNLI", Reader([XNLI.encode()], read_xnli)
    for kind, rows in ROWS.items():
        declaration = DECLARATION.replace("FORMAT", kind).encode()

        def read(data: bytes, kind: str = kind, declaration: bytes = declaration) -> None:
            write_younger(root / kind / f"de.dev.{kind}", data)
            declaration_path = write_younger(root / kind / "mine.toml", declaration)
            list(headlab.task(str(declaration_path)).examples("de"))

        yield kind, Reader([rows.encode()], read)
        yield (
            f"{kind} that was sent",
            Reader([rows.encode()], lambda data, kind=kind: save_upload(data, kind, root / "sent")),
        )
    yield (
        "CoNLL-U that was sent",
        Reader([TREES.encode()], lambda data: save_upload(data, "conllu", root / "sent")),
    )
    yield (
        "tokens that were sent",
        Reader([TOKENS.encode()], lambda data: save_upload(data, "conll", root / "sent")),
    )
    write_younger(root / "declared" / "de.dev.csv", ROWS["csv"].encode())

    def read_declaration(data: bytes) -> None:
        declaration_path = write_younger(root / "declared" / "mine.toml", data)
        list(headlab.task(str(declaration_path)).examples("de"))

    csv_declaration = DECLARATION.replace("FORMAT", "csv").encode()
    yield "declaration of a task", Reader([csv_declaration], read_declaration)


UPLOAD_COLUMNS = {
    "conllu": {"words": "FORM", "labels": "UPOS"},
    "conll": {"words": "1", "labels": "2"},
}


def save_upload(data: bytes, kind: str, cache: Path) -> None:
    """Make a task of an uploaded file, as the dashboard does, and read what was saved."""
    columns = UPLOAD_COLUMNS.get(kind, {"text": "review", "label": "stars"})
    draft = Draft(
        f"mine-{next(FILE_TIMES)}", kind, columns, (Upload(f"x.{kind}", data, "de"),), share=0.5
    )
    try:
        saved_task = save_task(draft, cache)
        task_of_file = headlab.task(str(cache / "tasks" / draft.name / f"{draft.name}.toml"))
        examples_read = sum(
            len(task_of_file.examples(language, split)) for language, split in saved_task.sizes
        )
        assert sum(saved_task.sizes.values()) == examples_read
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def _model_readers(root: Path) -> Iterator[tuple[str, Reader]]:
    folder = save_classifier(root / "model")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        path = folder / name
        valid_bytes = path.read_bytes()

        def load_folder(data: bytes, path: Path = path, valid_bytes: bytes = valid_bytes) -> None:
            write_younger(path, data)
            try:
                headlab.load(path.parent, device="cpu")
            finally:
                write_younger(path, valid_bytes)

        yield f"{name} of a model", Reader([valid_bytes], load_folder, is_slow=True)

        def examine_folder(
            data: bytes, path: Path = path, valid_bytes: bytes = valid_bytes
        ) -> None:
            write_younger(path, data)
            try:
                assert all(fact.words for fact in examine_model(str(path.parent), task("intents")))
            finally:
                write_younger(path, valid_bytes)

        yield (
            f"{name} of a model that is checked",
            Reader([valid_bytes], examine_folder, is_slow=True),
        )


def _text_readers() -> Iterator[tuple[str, Reader]]:
    shapley_options = METHODS["shapley"].options
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
            lambda data: METHODS["shapley"].resolve(
                parse_options([text_of(data)], shapley_options)
            ),
        ),
    )


def check_error(error: HeadlabError) -> None:
    """An error is a sentence with a code."""
    assert error.code
    assert str(error).strip()


def can_read(reader: Reader, data: bytes) -> bool:
    """Whether a reader can read the bytes; errors other than HeadlabError are not caught."""
    try:
        reader.read(data)
    except HeadlabError as error:
        check_error(error)
        return False
    return True


# Ways to spoil bytes.

ODD_VALUES: tuple[Any, ...] = (
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
ODD_BYTES = (
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


def spoil(rng: random.Random, valid_bytes: Sequence[bytes]) -> bytes:
    """One of the valid bytes, spoiled in one to four places as bytes, as JSON or in an archive."""
    data = rng.choice(valid_bytes)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        spoilers = [_spoil_bytes, _spoil_bytes]
        if data and data[:1] in b"{[":
            spoilers += [_spoil_json]
        if data[:2] == b"PK":
            spoilers += [_spoil_archive] * 4
        data = rng.choice(spoilers)(rng, data)
    return data


def _spoil_bytes(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return rng.choice(ODD_BYTES)
    start = rng.randrange(len(data))
    length = rng.choice((1, 1, 2, 8, 64))
    removed_bytes = data[start : start + length]
    inserted_bytes = rng.choice(
        (
            b"",
            rng.choice(ODD_BYTES),
            rng.randbytes(length),
            removed_bytes * 2,
            removed_bytes[::-1],
        )
    )
    with_replacement = data[:start] + inserted_bytes + data[start + length :]
    with_insertion = data[:start] + inserted_bytes + data[start:]
    beginning = data[:start]
    return rng.choice((with_replacement, with_insertion, beginning))


def _spoil_json(rng: random.Random, data: bytes) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _spoil_bytes(rng, data)
    places = list(_places_in(value))
    if not places:
        return json.dumps(rng.choice(ODD_VALUES)).encode()
    container, key = rng.choice(places)
    if rng.random() < 0.25:
        del container[key]
    elif rng.random() < 0.2 and isinstance(container, dict):
        container[rng.choice(("more", "", "format", "version", "\u202e"))] = rng.choice(ODD_VALUES)
    else:
        container[key] = rng.choice(ODD_VALUES)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value: its container, and its key or index there."""
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    else:
        children = []
    for key, part in children:
        yield value, key
        yield from _places_in(part)


def undated_zip_entry(name: str) -> zipfile.ZipInfo:
    """An archive entry without a time, so that a seed always gives the same bytes."""
    return zipfile.ZipInfo(name)


def _spoil_archive(rng: random.Random, data: bytes) -> bytes:
    """Spoil or leave out one of the files inside an archive; the archive itself stays readable."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, EOFError):
        return _spoil_bytes(rng, data)
    if not files:
        return _spoil_bytes(rng, data)
    spoiled_name = rng.choice(sorted(files))
    spoiled_archive = io.BytesIO()
    fate = rng.random()
    with zipfile.ZipFile(spoiled_archive, "w") as archive:
        for name, content in files.items():
            if name != spoiled_name:
                archive.writestr(undated_zip_entry(name), content)
            elif fate > 0.1:
                archive.writestr(undated_zip_entry(name), _spoil_bytes(rng, content))
    return spoiled_archive.getvalue()
