"""Results on disk: one folder a run, named by what the run depends on, written whole or not at all."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import parse_json, read_json, unwritable, write_atomic, write_json
from headlab.records import HeadGrid, canonical_json, content_key
from headlab.scores import HeadScores

FORMAT = 1
MAX_ARRAY_BYTES = 64 << 20
FLOATS = ("values", "low", "high", "p_values")
Arrays = Mapping[str, np.ndarray[Any, Any]]


def default_root() -> Path:
    """Where results are kept: $HEADLAB_CACHE, or the folder cache/ where one works."""
    return Path(os.environ.get("HEADLAB_CACHE", "cache"))


@dataclass(frozen=True)
class Result:
    """A finished run: its scores, and what is known of how it was made."""

    key: str
    folder: Path
    scores: HeadScores
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class Listing:
    """Every readable result, and a sentence for everything that was skipped."""

    results: tuple[Result, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """The folder of one spec: result, checkpoint, log."""

    folder: Path
    spec: Mapping[str, Any]

    @property
    def key(self) -> str:
        """sha256 of the spec: the folder's name."""
        return content_key(self.spec)

    def open(self) -> None:
        """Make the folder and write its spec, if they are not there."""
        path = self.folder / "spec.json"
        try:
            same = path.exists() and read_json(path) == self.spec
        except HeadlabError:
            same = False
        if not same:
            write_json(path, self.spec)

    def result(self) -> Result | None:
        """The finished result, or None. Raises HeadlabError if a file is there but cannot be trusted."""
        return read_result(self.folder) if (self.folder / "result.npz").exists() else None

    def finish(self, scores: HeadScores, meta: Mapping[str, Any]) -> None:
        """Write the result whole, then drop the checkpoint."""
        for name in FLOATS:
            array = getattr(scores, name)
            if array is not None and not np.isfinite(array).all():
                raise HeadlabError(
                    f"{scores.method} gave a value that is not a number for {scores.language}; nothing was stored. "
                    "Check that the model gives finite outputs on this data"
                )
        self.open()
        write_atomic(self.folder / "result.npz", pack(scores, meta))
        (self.folder / "checkpoint.npz").unlink(missing_ok=True)

    def checkpoint(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """Arrays saved by an interrupted run, or None (also when the file is torn: the run starts over)."""
        path = self.folder / "checkpoint.npz"
        try:
            return read_arrays(path) if path.exists() else None
        except HeadlabError as error:
            self.log(f"checkpoint skipped: {error}")
            return None

    def save(self, arrays: Arrays) -> None:
        """Keep arrays for a later run of the same spec."""
        self.open()
        write_atomic(self.folder / "checkpoint.npz", _npz(arrays))

    def log(self, line: str) -> None:
        """Append a line to the run's log."""
        path = self.folder / "log.txt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(line.rstrip("\n") + "\n")
        except OSError as error:
            raise unwritable(path, error) from error


class Store:
    """A folder of runs."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root

    def run(self, spec: Mapping[str, Any]) -> Run:
        """The run of a spec, finished or not."""
        return Run(self.root / content_key(spec), spec)

    def folders(self) -> Iterator[Path]:
        """Run folders, in name order."""
        if self.root.is_dir():
            yield from sorted(p for p in self.root.iterdir() if p.is_dir() and not p.name.startswith("."))

    def scan(self) -> Listing:
        """Read every result; a torn, foreign or older one becomes a sentence instead."""
        results, problems = [], []
        for folder in self.folders():
            if not (folder / "result.npz").exists() and (folder / "spec.json").exists():
                continue  # begun, not finished: nothing is wrong with it
            try:
                results.append(read_result(folder))
            except HeadlabError as error:
                problems.append(f"skipped: {error}")
        return Listing(tuple(results), tuple(problems))

    def find(
        self,
        *,
        model: str | None = None,
        task: str | None = None,
        method: str | None = None,
        language: str | None = None,
    ) -> list[Result]:
        """Results whose model name, task name, method and language are as given (None: any)."""
        return [r for r in self.scan().results if matches(r, model, task, method, language)]


def matches(result: Result, model: str | None, task: str | None, method: str | None, language: str | None) -> bool:
    """Whether a result is of this model, task, method and language (None: any)."""
    spec = result.scores.spec
    have = (spec["model"]["name"], spec["task"]["name"], result.scores.method, result.scores.language)
    return all(want is None or want == got for want, got in zip((model, task, method, language), have, strict=True))


def pack(scores: HeadScores, meta: Mapping[str, Any]) -> bytes:
    """A result as npz bytes: float64 arrays and one JSON text; no pickle."""
    arrays = {name: getattr(scores, name) for name in (*FLOATS, "samples") if getattr(scores, name) is not None}
    about = {
        "format": FORMAT,
        "grid": scores.grid.to_json(),
        "language": scores.language,
        "method": scores.method,
        "estimand": scores.estimand,
        "unit": scores.unit,
        "level": scores.level,
        "example_forwards": scores.example_forwards,
        "seconds": scores.seconds,
        "values_sha256": scores.values_sha256(),
        "meta": dict(meta),
    }
    return _npz({**arrays, "about": np.array(canonical_json(about))})


def _npz(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    return buffer.getvalue()


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of an npz file, never unpickling. Raises HeadlabError if it is torn, too large or not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_ARRAY_BYTES:
                raise HeadlabError(
                    f"{path.name} unpacks to more than {MAX_ARRAY_BYTES >> 20} MiB; it is not one of headlab's"
                )
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise HeadlabError(f"{path.name} is torn or not an npz file ({type(error).__name__})") from error


def read_result(folder: Path) -> Result:
    """Read one run folder, trusting nothing. Raises HeadlabError that names it, what is wrong and what to do."""
    try:
        return _read_result(folder)
    except HeadlabError as error:
        raise HeadlabError(
            f"{folder.name}: {error}. Delete that folder of the cache and run the score again"
        ) from error


def _read_result(folder: Path) -> Result:
    spec = read_json(folder / "spec.json")
    if not isinstance(spec, dict) or spec.get("format") != FORMAT:
        raise HeadlabError(
            f"its spec has format {spec.get('format') if isinstance(spec, dict) else '?'}; this headlab reads {FORMAT}"
        )
    key = content_key(spec)
    if key != folder.name:
        raise HeadlabError("its name does not fit its spec, so it was changed or copied by hand")
    arrays = read_arrays(folder / "result.npz")
    try:
        about = parse_json(str(arrays["about"]), "about")
        scores, meta = _scores(arrays, about, spec), dict(about["meta"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise HeadlabError(f"its result lacks or mangles a field ({type(error).__name__}: {error})") from error
    return Result(key, folder, scores, meta)


def _scores(arrays: Arrays, about: Mapping[str, Any], spec: Mapping[str, Any]) -> HeadScores:
    grid = HeadGrid.from_json(about["grid"])
    given = {name: arrays[name] for name in (*FLOATS, "samples") if name in arrays}
    for name, array in given.items():
        if array.shape != (grid.size,) or array.dtype != (np.int64 if name == "samples" else np.float64):
            raise HeadlabError(f"its {name} is {array.dtype} {array.shape}, the grid is {grid}")
        if not np.isfinite(array).all():
            raise HeadlabError(f"its {name} holds a value that is not a number")
    names = ("language", "method", "estimand", "unit", "example_forwards", "seconds", "level")
    scores = HeadScores(grid, spec=spec, **{name: about[name] for name in names}, **given)  # type: ignore[arg-type] # checked above
    if scores.values_sha256() != about["values_sha256"] or (scores.language, scores.method) != _named(spec):
        raise HeadlabError("its values do not fit what is written beside them")
    return scores


def _named(spec: Mapping[str, Any]) -> tuple[str, str]:
    return spec["task"]["language"], spec["method"]["name"]
