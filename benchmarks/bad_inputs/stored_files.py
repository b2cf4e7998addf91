"""Masks, stored results and other files of a cache with one thing wrong, and links that carry them.

Each is given to everything in headlab that reads it: a result to the listing of the cache, to its
row on the command line and to a report; a mask to every reader, comparison and conversion of masks.
"""

from __future__ import annotations

import io
import json
import math
import os
import random
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from support.cached_reports import made_report
from support.cached_scores import made_scores
from support.fuzzing import ODD_VALUES, spoil
from support.synthetic_curves import made_curve
from support.synthetic_fronts import GRID as FRONT_GRID
from support.synthetic_fronts import made_front
from support.synthetic_gates import THREE_STACKS, made_gates
from support.synthetic_pairs import made_pairs
from support.synthetic_roles import made_roles

import headlab
from bad_inputs.case import Answer, BadInput, answer_to, process_answer
from bad_inputs.json_values import json_bytes, value_paths, value_text
from headlab.cli.cache import result_record
from headlab.core import HeadGrid, HeadlabError, Stack, content_key
from headlab.dashboard.frame import stored_scores
from headlab.dashboard.names import head_from
from headlab.dashboard.pages.overview.findings import findings
from headlab.dashboard.pages.prune.stored_fronts import front_label, read_front
from headlab.dashboard.panels.masks.history import kept_heads_of_link_text, mask_link_text
from headlab.dashboard.panels.stored import stored_gates
from headlab.masks import (
    FORMS,
    Mask,
    ScriptModel,
    accuracy_table,
    combine_masks,
    compare_masks,
    convert_in,
    convert_out,
    load_mask,
    mask_from_text,
    mask_script,
    removed_by_layer,
    removed_by_stack,
)
from headlab.report.build import write_report
from headlab.results import Store, StoredRun
from headlab.roles import read_roles
from headlab.tasks import Draft, Upload, registry_problems, save_task, task_names
from headlab.worker.jobs import JobList

CREATED_AT = "2026-11-22T01:00:00+00:00"
GRID = HeadGrid((Stack("encoder", (2, 3)),))
SPEC = "spec.json"
RESULT = "result.npz"
DESCRIPTION = "about.npy"
# Values that some field of a result or a mask may have, but that are wrong in most others.
PLAUSIBLE: tuple[Any, ...] = (
    2, 3, 7, 12, 100, 512, 10**6, 2**31, 2**63, -5, 0.5, 1.5, 1e-9, "score", "curve", "report", "gates", "encoder",
    "de",
    "en,de", "shapley", "zero", "mean", "resample", "dev", "test", "12", "0" * 64, "none", "2026-11-22", "2026-13-45T00:00:00Z",
    [0, 1], [1, 1, 1], [[0, 1], [1, 0, 1]], ["de"], {"encoder": [2, 3]}, {"encoder": [[0, 1], [1, 0, 1]]}, {"de": 3},
    "=1+1", "a|b", "<b>x</b>", "\u202eabc", "e\u0301",
)  # fmt: skip
DTYPES = ("<f8", "<f4", "<i8", "<i4", "|b1", "<U3", "|u1", ">f8", "<c16", "<M8[s]", "<f2")
UPLOADED_ROWS = "text,label\ngood,a\nbad,b\nwell,a\nill,b\n"
MASK_RECORD = Mask(
    GRID,
    np.array([True, False, True, True, False]),
    {
        "name": "m",
        "fingerprint": "0" * 64,
        "revision": "folder",
        "architecture": {"class": "A", "model_type": "a"},
    },
    {
        "rule": "threshold",
        "k": 2,
        "threshold": 0.1,
        "method": "shapley",
        "estimand": "x",
        "task": "intents",
        "languages": ["de", "th"],
        "ablation": "zero",
        "score": {"ablation": "zero", "method": {"name": "shapley", "options": {}}},
        "evaluated": {
            "dev": {
                "task": "intents",
                "size": 512,
                "ablation": "zero",
                "languages": {
                    "de": {
                        "accuracy": 0.8,
                        "n": 512,
                        "baseline": 0.9,
                        "difference": -0.1,
                        "low": -0.2,
                        "high": 0.0,
                        "accuracy_low": 0.7,
                        "accuracy_high": 0.9,
                        "p": 0.01,
                        "flipped_right": 1,
                        "flipped_wrong": 3,
                    }
                },
            }
        },
    },
    {"headlab": "0.9", "torch": "2"},
    CREATED_AT,
)
OTHER_MASK = replace(MASK_RECORD, kept=np.array([True, True, False, True, False]))
EVEN_GRID = HeadGrid((Stack("encoder", (3, 3)),))
EVEN_MASK = replace(
    MASK_RECORD, grid=EVEN_GRID, kept=np.array([True, False, True, True, False, True])
)
VERSION_1 = {
    "format": "headlab-mask", "version": 1, "model": {"name": "m", "fingerprint": "0" * 64, "revision": "r"},
    "grid": {"encoder": [2, 3]}, "kept": {"encoder": [[1, 0], [1, 1, 0]]}, "removed": 2,
    "chosen": {"rule": "by hand", "evaluated": {"split": "dev", "task": "t", "languages": {"de": {"accuracy": 0.5,
        "n": 2}}}},
    "created": CREATED_AT,
}  # fmt: skip


@dataclass(frozen=True)
class Spoiled:
    """A file that was valid before one thing of it was changed.

    Attributes:
        wrong: What was changed.
        data: The file's new content.
    """

    wrong: str
    data: bytes


def inputs(folder: Path, seed: int) -> Iterator[BadInput]:
    """Yield files that are valid but for one thing."""
    rng = random.Random(seed)
    stored_results = _stored_results(folder / "results")
    job_list = _job_list(folder / "jobs.sqlite")
    saved_task = _saved_task_files(folder / "own")
    kinds: Mapping[Callable[[Path, random.Random], BadInput], int] = {
        _mask_input: 25,
        _mask_form_input: 14,
        partial(_result_input, stored_results=stored_results): 34,
        _report_input: 8,
        _unfinished_run_input: 7,
        partial(_jobs_input, job_list=job_list): 4,
        partial(_saved_task_input, files=saved_task): 5,
        _link_input: 3,
    }
    for number in count():
        input_folder = folder / f"input-{number}"
        make = rng.choices(list(kinds), list(kinds.values()))[0]
        yield make(input_folder, rng)


def _input(
    input_folder: Path,
    kind: str,
    change: Spoiled,
    write: Callable[[], object],
    use: Callable[[], object],
    command: Callable[[], Sequence[str]],
) -> BadInput:
    """An input that is written to a folder of its own and removed afterwards.

    Args:
        input_folder: That folder.
        kind: Of file.
        change: What is wrong with it.
        write: Writes it below the folder.
        use: Gives it to headlab in this process.
        command: What follows `headlab` on the command line that reads it.
    """

    def attempt(answer: Callable[[], Answer]) -> Answer:
        input_folder.mkdir()
        try:
            write()
            return answer()
        finally:
            shutil.rmtree(input_folder)

    return BadInput(
        f"{kind}: {change.wrong}",
        f"{kind}\0{change.wrong}\0".encode("utf-8", "surrogatepass") + change.data,
        partial(attempt, partial(answer_to, use)),
        partial(
            attempt,
            lambda: process_answer(command(), input_folder, {"HEADLAB_CACHE": str(input_folder)}),
        ),
    )


# Ways to spoil: a value of a JSON document, an array of an archive, or bytes.


def _spoil_value(rng: random.Random, document: Any) -> str:
    """Change one value of a JSON document in place, and say what."""
    path = rng.choice(list(value_paths(document, ())))
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    path_text = ".".join(map(str, path))
    chance = rng.random()
    if chance < 0.15:
        del holder[path[-1]]
        return f"without {path_text}"
    if chance < 0.25 and isinstance(holder, dict):
        name = rng.choice(("more", "", "format", "version", "kind", "\u202e", "x" * 300))
        holder[name] = rng.choice(ODD_VALUES)
        return f"{name!r:.30} added beside {path_text}: {value_text(holder[name])}"
    if chance < 0.33 and isinstance(holder, list):
        holder.append(rng.choice((holder[-1], *PLAUSIBLE)))
        return f"one more beside {path_text}: {value_text(holder[-1])}"
    holder[path[-1]] = rng.choice((*ODD_VALUES, *PLAUSIBLE))
    return f"{path_text} = {value_text(holder[path[-1]])}"


def _spoil_json(rng: random.Random, data: bytes) -> Spoiled:
    if rng.random() < 0.2:
        return Spoiled("spoiled bytes", spoil(rng, [data]))
    document = json.loads(data)
    wrong = _spoil_value(rng, document)
    return Spoiled(wrong, json_bytes(document))


def _archive_files(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(files: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            # Without a date of its own, an archive would be another one a second later.
            entry = zipfile.ZipInfo(name, (2026, 11, 22, 0, 0, 0))
            entry.compress_type = compression
            archive.writestr(entry, content)
    return buffer.getvalue()


def _as_npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _spoil_array(rng: random.Random, name: str, data: bytes) -> tuple[str, bytes]:
    """Change one array of an archive: what was changed, and its new content."""
    array = np.load(io.BytesIO(data))
    fault = rng.randrange(8)
    if fault == 0:
        dtype = rng.choice(DTYPES)
        return f"{name} of dtype {dtype}", _as_npy(np.zeros(array.shape, dtype))
    if fault == 1:
        longer_shapes = ((*array.shape, 1), (2, *array.shape))
        shape = rng.choice(((), (0,), (1,), *longer_shapes, array.shape[:-1], (10**5,)))
        return f"{name} of shape {shape}", _as_npy(np.zeros(shape, array.dtype))
    if fault == 2:
        return f"{name} reversed", _as_npy(np.flip(array))
    if fault == 3 and array.size and array.dtype.kind in "fiu":
        changed_array = array.copy()
        value = rng.choice((math.nan, math.inf, -math.inf, 1e308, -1.0, 0.0, 7.0, 2.0**53))
        index = rng.randrange(array.size)
        with np.errstate(all="ignore"):
            changed_array.flat[index] = np.array(value).astype(array.dtype)
        return f"{name} with {changed_array.flat[index]} at {index}", _as_npy(changed_array)
    if fault == 4:
        return f"{name} of objects", _as_npy(np.array([{"a": 1}, None], dtype=object))
    if fault == 5:
        return f"{name} in the order of Fortran", _as_npy(np.asfortranarray(np.zeros((3, 2))))
    if fault == 6:
        return f"{name} cut to {len(data) // 2} bytes", data[: len(data) // 2]
    return f"{name} with spoiled bytes", spoil(rng, [data])


def _spoil_archive(rng: random.Random, data: bytes) -> Spoiled:
    files = _archive_files(data)
    name = rng.choice(sorted(files))
    fault = rng.randrange(9)
    if fault == 0:
        return Spoiled("spoiled bytes", spoil(rng, [data]))
    if fault == 1:
        del files[name]
        return Spoiled(f"without {name}", _archive(files))
    if fault == 2:
        new_name = rng.choice(
            ("../x.npy", "/x.npy", "x", name + ".npy", "about.npy ", "\u202e.npy", "more.npy")
        )
        files[new_name] = files[name]
        return Spoiled(f"with {name} again as {new_name!r}", _archive(files))
    if fault == 3:
        files["n.npy"] = _as_npy(np.array(rng.random()))
        return Spoiled("compressed", _archive(files, zipfile.ZIP_DEFLATED))
    if name == DESCRIPTION or fault == 4:
        array = files.get(DESCRIPTION, _as_npy(np.array("{}")))
        description = json.loads(str(np.load(io.BytesIO(array))))
        wrong = _spoil_value(rng, description) if description else "an empty description"
        # numpy keeps no lone surrogate; it is written as JSON writes it.
        files[DESCRIPTION] = _as_npy(np.array(json.dumps(description)))
        return Spoiled(f"described with {wrong}", _archive(files))
    wrong, files[name] = _spoil_array(rng, name, files[name])
    return Spoiled(wrong, _archive(files))


# Masks.


def _mask_bytes(rng: random.Random) -> bytes:
    if rng.random() < 0.25:
        return json_bytes(VERSION_1)
    return json_bytes(MASK_RECORD.to_json())


def _mask_input(input_folder: Path, rng: random.Random) -> BadInput:
    change = _spoil_json(rng, _mask_bytes(rng))
    file = input_folder / "mask.json"
    other_file = input_folder / "other.json"
    output = input_folder / "out"
    command = rng.choice(("show", "validate", "diff", "combine", "convert", "snippet", "report"))

    def write() -> None:
        file.write_bytes(change.data)
        OTHER_MASK.save(other_file)

    def arguments() -> Sequence[str]:
        if command == "report":
            return ["report", str(file), "--out", str(output), "--cache", str(input_folder)]
        files = {
            "diff": [str(file), str(other_file)],
            "combine": [str(file), str(other_file), "--out", str(output)],
        }
        return ["mask", command, *files.get(command, [str(file)])]

    return _input(
        input_folder, "mask", change, write, partial(_use_mask, file, change.data), arguments
    )


def _use_mask(file: Path, data: bytes) -> None:
    """Read a mask as a file and as an upload, and do with it all that headlab does with masks."""
    mask = load_mask(file)
    if mask_from_text(data).digest != mask.digest:
        raise ValueError("the uploaded mask is another one than that of the file")
    mask.to_json()
    for form in FORMS:
        _unless_refused(partial(convert_out, mask, form))
    _unless_refused(partial(compare_masks, mask, OTHER_MASK))
    _unless_refused(lambda: combine_masks([mask, OTHER_MASK], "union"))
    _unless_refused(lambda: accuracy_table({"a": mask, "b": OTHER_MASK}).markdown())
    architecture = {"class": "A", "model_type": "a"}
    model = ScriptModel(["a"] * mask.grid.layers, architecture, "m", "r", "m")
    _unless_refused(partial(mask_script, mask, model))
    _unless_refused(lambda: _tables(mask))
    _unless_refused(lambda: mask.check(GRID, "0" * 64))
    kept_heads_of_link_text(mask_link_text(mask.kept), mask.grid)
    write_report([str(file)], file.with_name("report.html"), Store(file.parent))


def _tables(mask: Mask) -> None:
    comparison = compare_masks(mask, OTHER_MASK)
    removed_by_layer(comparison).markdown()
    removed_by_stack(comparison).markdown()


def _unless_refused(use: Callable[[], object]) -> None:
    """Use something; a HeadlabError in words is fine."""
    try:
        use()
    except HeadlabError as error:
        if not error.code or not str(error).strip():
            raise ValueError("an error without a code or without words") from error


def _mask_form_input(input_folder: Path, rng: random.Random) -> BadInput:
    form = rng.choice([*FORMS])
    binary = form in ("array", "pairs") and rng.random() < 0.5
    # A .npy file has as many heads in every layer.
    mask = EVEN_MASK if binary else MASK_RECORD
    mask_bytes = convert_out(mask, form, binary=binary)
    if binary:
        wrong, data = _spoil_array(rng, form, mask_bytes)
        change = Spoiled(wrong, data)
    elif mask_bytes[:1] in (b"{", b"["):
        change = _spoil_json(rng, mask_bytes)
    else:
        change = Spoiled("spoiled bytes", spoil(rng, [mask_bytes]))
    file = input_folder / ("mask.npy" if binary else "mask.json")
    stated_form = rng.choice([None, form, *FORMS])
    options = [] if stated_form is None else ["--from", stated_form]
    return _input(
        input_folder,
        f"mask as {form}, taken for {stated_form or 'what it looks like'}",
        change,
        lambda: file.write_bytes(change.data),
        partial(_convert, change.data, stated_form, mask.grid),
        lambda: ["mask", "convert", str(file), "--grid", "3/3" if binary else "2/3", *options],
    )


def _convert(data: bytes, form: str | None, grid: HeadGrid) -> None:
    mask = convert_in(data, "theirs", form, grid=grid)
    if mask.kept.shape != (mask.grid.size,):
        raise ValueError("a mask of another size than its grid")
    mask.to_json()


# Results of every kind.


@dataclass(frozen=True)
class StoredResult:
    """A finished run, as it is on disk.

    Attributes:
        kind: Scores, a curve, a report or gates.
        spec: Of the run.
        data: Of its result.npz.
    """

    kind: str
    spec: Mapping[str, Any]
    data: bytes


def _stored_results(root: Path) -> list[StoredResult]:
    """One result of every kind, which headlab has written and can read."""
    records: Mapping[str, Any] = {
        "scores": made_scores("de", "shapley"),
        "plain scores": made_scores("th", "confidence"),
        "curve": made_curve(),
        "report on the gap": made_report("gap"),
        "report on heads": made_report("heads"),
        "front": made_front(),
        "pairs": made_pairs(),
        "roles": made_roles(),
        "gates": made_gates(),
        "gates of three stacks": made_gates(grid=THREE_STACKS),
    }
    stored_results = []
    for kind, record in records.items():
        stored_run = Store(root).run(record.spec)
        stored_run.finish(
            record, {"created": CREATED_AT, "versions": {"headlab": "0.9"}, "device": "cpu"}
        )
        data = _archive(_archive_files((stored_run.folder / RESULT).read_bytes()))
        stored_results.append(
            StoredResult(kind, json.loads((stored_run.folder / SPEC).read_bytes()), data)
        )
    _use_results(root)
    shutil.rmtree(root)
    return stored_results


def _result_input(
    input_folder: Path, rng: random.Random, stored_results: Sequence[StoredResult]
) -> BadInput:
    """A run with a wrong spec or a wrong result.

    If a value of the spec is wrong, the folder has the name that goes with that spec.
    """
    result = rng.choice(stored_results)
    spec: Any = json.loads(json.dumps(result.spec))
    key = content_key(result.spec)
    spec_data = json_bytes(result.spec)
    data = result.data
    chance = rng.random()
    if chance < 0.1:
        change = _spoil_json(rng, spec_data)
        change = Spoiled(f"{SPEC} {change.wrong}", change.data)
        spec_data = change.data
    elif chance < 0.35:
        wrong = _spoil_value(rng, spec)
        spec_data = json_bytes(spec)
        key = _key_of(spec, key)
        change = Spoiled(f"{SPEC} {wrong}, in the folder of that name", spec_data)
    elif chance < 0.65 and b'"told_sha256"' not in data and _description_of(data).get("report"):
        change = _resealed_report(rng, data)
        data = change.data
    else:
        change = _spoil_archive(rng, data)
        data = change.data
    folder = input_folder / key

    def write() -> None:
        folder.mkdir()
        (folder / SPEC).write_bytes(spec_data)
        (folder / RESULT).write_bytes(data)

    commands = (
        ["cache", "--cache", str(input_folder)],
        ["cache", "--cache", str(input_folder), "--json"],
        [
            "report",
            key[:12],
            "--cache",
            str(input_folder),
            "--out",
            str(input_folder / "report.html"),
        ],
    )
    command = rng.choice(commands)
    return _input(
        input_folder,
        result.kind,
        change,
        write,
        partial(_use_results, input_folder),
        lambda: command,
    )


def _key_of(spec: Any, otherwise: str) -> str:
    try:
        return content_key(spec)
    except ValueError:  # half a surrogate pair, or a number that overflows
        return otherwise


def _description_of(data: bytes) -> Any:
    return json.loads(str(np.load(io.BytesIO(_archive_files(data)[DESCRIPTION]))))


def _resealed_report(rng: random.Random, data: bytes) -> Spoiled:
    """Change a value of a report, and its checksum accordingly."""
    files = _archive_files(data)
    description = _description_of(data)
    wrong = _spoil_value(rng, description["report"])
    description["sha256"] = _key_of(description["report"], description["sha256"])
    files[DESCRIPTION] = _as_npy(np.array(json.dumps(description)))
    return Spoiled(f"with {wrong}, and its checksum", _archive(files))


def _use_results(root: Path) -> None:
    """List all results of a cache, show each in a row, and write a report on each.

    Raises:
        HeadlabError: The listing says that one of them cannot be read, or there are none.
    """
    store = Store(root)
    listings: list[Any] = [store.scan(), store.curves(), store.reports(), store.gates()]
    for listing in listings:
        for result in listing.results:
            json.dumps(result_record(result))
            write_report([result.key], root / "report.html", store)
            for table in getattr(result.record, "tables", ()):
                table.markdown()
                table.csv()
    _show_on_pages(*(listing.results for listing in listings))
    problems = [problem for listing in listings for problem in listing.problems]
    if problems:
        raise HeadlabError(problems[0], code="result.skipped")
    if not any(listing.results for listing in listings):
        raise HeadlabError("the cache has no results", code="result.none")


def _show_on_pages(
    scores: Sequence[Any], curves: Sequence[Any], reports: Sequence[Any], gates: Sequence[Any]
) -> None:
    """Make what the pages show of results."""
    specs = [result.record.spec for result in (*scores, *curves, *reports, *gates)]
    stored_scores.stored_subjects(specs)
    stored_scores.languages_with_results(specs, "intents")
    stored_scores.variants(scores)
    comparable = stored_scores.comparable_scores(scores, ["de", "th"])
    stored_scores.samples_note(comparable.scores)
    reports_by_name = {
        name: [report for report in reports if report.record.name == name]
        for name in ("front", "targeted")
    }
    findings(comparable.scores, reports_by_name, ["de"])
    for sweep in stored_gates.grouped_sweeps(gates):
        stored_gates.sweep_label(sweep, "0" * 64)
        stored_gates.measured_splits(sweep)
        for result in sweep.runs:
            stored_gates.run_hover_text(result.record, "dev")
            stored_gates.run_facts(result)
            stored_gates.head_gates_table(result.record)
    for result in reports:
        if result.record.name == "front":
            _unless_refused(partial(read_front, result, FRONT_GRID))
            front_label(result)
        elif result.record.name == "roles":
            _unless_refused(partial(read_roles, result.record))


# Reports as JSON files.


def _report_input(input_folder: Path, rng: random.Random) -> BadInput:
    report = rng.choice((made_report("gap"), made_report("transfer"), made_front(), made_roles()))
    document: Any = report.to_json()
    if rng.random() < 0.3:
        reports = {"intents": {report.name: document}}
        document = {"reports": reports, "command": "headlab experiment gap"}
    change = _spoil_json(rng, json_bytes(document))
    file = input_folder / "report.json"
    return _input(
        input_folder,
        f"report on {report.name} as a file",
        change,
        lambda: file.write_bytes(change.data),
        lambda: write_report([str(file)], input_folder / "report.html", Store(input_folder)),
        lambda: [
            "report",
            str(file),
            "--cache",
            str(input_folder),
            "--out",
            str(input_folder / "report.html"),
        ],
    )


# What a run leaves before it is finished: a checkpoint, and answers under masks.


def _unfinished_run_input(input_folder: Path, rng: random.Random) -> BadInput:
    spec = made_scores("de", "shapley").spec
    stored_run = StoredRun(input_folder / content_key(spec), spec)
    buffer = io.BytesIO()
    np.savez(buffer, values=np.zeros((2, 3)), draws=np.arange(4), run=np.array(stored_run.key))
    change = _spoil_archive(rng, _archive(_archive_files(buffer.getvalue())))
    name = rng.choice(("checkpoint.npz", f"{MASK_RECORD.digest}.npz"))

    def write() -> None:
        stored_run.make_folder()
        (stored_run.folder / name).write_bytes(change.data)

    def read() -> None:
        """Resume the run; the log says why something that cannot be read is left out."""
        stored_run.checkpoint()
        stored_run.answers(MASK_RECORD.digest, headlab.task("intents").examples("de", "dev", 8))

    return _input(
        input_folder,
        name[-14:],
        change,
        write,
        read,
        lambda: ["cache", "--cache", str(input_folder)],
    )


# The worker's list of jobs.


def _job_list(path: Path) -> bytes:
    """A list with a job in each state."""
    path.parent.mkdir(exist_ok=True)
    with closing(JobList(path)) as jobs:
        for number in range(4):
            jobs.submit(
                "score", {"model": "m", "task": "intents", "language": "de", "seed": number}
            )
        for state in ("done", "failed"):
            job = jobs.claim()
            if job is None:
                raise RuntimeError("no job to claim")
            jobs.record_folder(job.id, "a" * 64, "de")
            jobs.end(job.id, state, None if state == "done" else "it failed", {"key": "x"})
        jobs.claim()
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma journal_mode=delete")
        # With the times of the clock, the same seed would not give the same inputs.
        database.execute("update jobs set created=1, started=2, ended=3")
        database.execute("update events set at=1")
        database.commit()
        database.execute("vacuum")
    data = path.read_bytes()
    path.unlink()
    return data


COLUMNS = (
    "id",
    "dedup",
    "kind",
    "params",
    "place",
    "state",
    "done",
    "total",
    "note",
    "seconds_left",
    "cancel",
    "attempts",
    "error",
    "result",
    "created",
    "started",
    "ended",
)
CELLS = (
    None, 0, -1, 2**62, 1e308, "", "x", "running", "queued", "done", "none", "{}", "[]", "{", "null", "\0",
        "x" * 100_000,
    b"\xff", b"", '{"a": NaN}', '{"model": 3}', "ray", "here",
)  # fmt: skip


def _jobs_input(input_folder: Path, rng: random.Random, job_list: bytes) -> BadInput:
    path = input_folder / "jobs.sqlite"
    column = rng.choice(COLUMNS)
    cell = rng.choice(CELLS)
    job = rng.randrange(1, 5)
    version = rng.choice((-1, 0, 1, 3, 99))
    fault = rng.randrange(5)
    if fault < 3:
        change = Spoiled(f"{column} of job {job} = {cell!r:.40}", job_list)
        statement = f"update jobs set {column}=? where id=?"
        values = (cell, job)
    elif fault == 3:
        table = rng.choice(("jobs", "events", "runs"))
        faults_of_tables = (
            (f"without {table}", f"drop table {table}"),
            (f"of version {version}", f"pragma user_version={version}"),
            ("without the column note", "alter table jobs drop column note"),
        )
        wrong, statement = rng.choice(faults_of_tables)
        change = Spoiled(wrong, job_list)
        values = ()
    else:
        change = Spoiled("spoiled bytes", spoil(rng, [job_list]))
        statement = ""
        values = ()

    def write() -> None:
        path.write_bytes(change.data)
        if statement:
            with closing(sqlite3.connect(path)) as database:
                try:
                    database.execute(statement, values)
                except sqlite3.IntegrityError:  # the tables allow no such value
                    return
                database.commit()

    return _input(
        input_folder,
        "job list",
        change,
        write,
        partial(_use_jobs, path),
        lambda: ["cache", "--cache", str(input_folder)],
    )


def _use_jobs(path: Path) -> None:
    """Do with a list of jobs what a worker does when it starts."""
    with closing(JobList(path)) as jobs:
        job_rows = jobs.list()
        for job in job_rows:
            job.model_dump_json()
            _unless_refused(partial(jobs.log, job.id))
        jobs.unfinished_jobs()
        claimed_job = jobs.claim()
        if claimed_job is not None:
            jobs.run_folders(claimed_job.id)
            jobs.end(claimed_job.id, "failed", "x")
        jobs.submit("score", {"model": "another"})


# Tasks that the page has saved in the cache.


def _saved_task_files(cache: Path) -> Mapping[str, bytes]:
    """The files of a task that the page has saved, by path below the cache."""
    columns = {"text": "text", "label": "label"}
    upload = Upload("x.csv", UPLOADED_ROWS.encode(), "de")
    save_task(Draft("mine", "csv", columns, (upload,), share=0.5), cache)
    files = {}
    for path in sorted(cache.rglob("*")):
        if path.is_file():
            files[path.relative_to(cache).as_posix()] = path.read_bytes()
    shutil.rmtree(cache)
    return files


def _saved_task_input(
    input_folder: Path, rng: random.Random, files: Mapping[str, bytes]
) -> BadInput:
    name = rng.choice([*files])
    fault = rng.choice(("bytes", "bytes", "bytes", "bytes", "missing", "empty", "folder", "link"))
    data = spoil(rng, [files[name]]) if fault == "bytes" else b""
    change = Spoiled(f"{name}: {fault}", data)

    def write() -> None:
        for file_name, content in files.items():
            path = input_folder / file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        path = input_folder / name
        path.unlink()
        if fault == "folder":
            path.mkdir()
        elif fault == "link":
            path.symlink_to(path.name)
        elif fault != "missing":
            path.write_bytes(data)

    return _input(
        input_folder,
        "own task",
        change,
        write,
        partial(_use_tasks, input_folder),
        lambda: ["tasks"],
    )


def _use_tasks(cache: Path) -> None:
    """List the tasks of a cache and read the saved one."""
    cache_before = os.environ.get("HEADLAB_CACHE")
    os.environ["HEADLAB_CACHE"] = str(cache)
    try:
        task_names()
        problems = registry_problems()
        if problems:
            raise HeadlabError(problems[0], code="task.skipped")
        headlab.task("mine").examples("de")
    finally:
        os.environ.pop("HEADLAB_CACHE")
        if cache_before is not None:
            os.environ["HEADLAB_CACHE"] = cache_before


# Links of the page.


def _link_input(input_folder: Path, rng: random.Random) -> BadInput:
    kind = rng.choice(("mask", "head"))
    link_text = mask_link_text(MASK_RECORD.kept) if kind == "mask" else "encoder.1.2"
    text = spoil(rng, [link_text.encode()]).decode("utf-8", "replace")
    read_link: Callable[[], object] = partial(_head_in_grid, text)
    if kind == "mask":
        read_link = partial(kept_heads_of_link_text, text, GRID)
    return BadInput(
        f"{kind} of a link: {text!r:.80}",
        f"link\0{kind}\0{text}".encode(),
        partial(answer_to, read_link),
        lambda: process_answer(
            ["mask", "convert", text, "--grid", "encoder=2/3"], input_folder.parent
        ),
    )


def _head_in_grid(text: str) -> None:
    head = head_from(text)
    if head not in GRID.heads:
        raise HeadlabError(f"this model has no head {text}", code="head.unknown")
