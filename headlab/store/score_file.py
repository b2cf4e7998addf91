"""Scores as a run's result: written to bytes, and read back trusting nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import canonical_json
from headlab.scores import HeadScores
from headlab.store.arrays import Arrays, npz
from headlab.store.folder import (
    FORMAT,
    SCORE,
    check_array,
    kind_of,
    read_content,
    read_field,
    read_grid,
    read_spec,
    telling,
)

FLOATS = ("values", "low", "high", "p_values")
ARRAYS = (*FLOATS, "samples", "halves")
FIELDS = {
    "language": str, "method": str, "estimand": str, "unit": str, "level": float, "example_forwards": int,
    "seconds": float,
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A finished run: its scores, and what is known of how it was made."""

    key: str
    folder: Path
    scores: HeadScores
    meta: Mapping[str, Any]


def pack_scores(scores: HeadScores, meta: Mapping[str, Any]) -> bytes:
    """A result as npz bytes: float64 arrays and one JSON text. Raises HeadlabError for what is not a number."""
    given = {name: getattr(scores, name) for name in ARRAYS if getattr(scores, name) is not None}
    if not all(np.isfinite(array).all() for array in given.values()):
        raise HeadlabError(
            f"{scores.method} gave a value that is not a number for {scores.language}; nothing was stored. "
            "Check that the model gives finite outputs on this data",
            code="score.method_not_finite",
        )
    about = {name: getattr(scores, name) for name in FIELDS} | {
        "format": FORMAT,
        "grid": scores.grid.to_json(),
        "values_sha256": scores.values_sha256(),
        "meta": dict(meta),
    }
    return npz({**given, "about": np.array(canonical_json(about))})


def read_result(folder: Path) -> Result:
    """Read one run folder, trusting nothing. Raises HeadlabError that names it, what is wrong and what to do."""
    with telling(folder, "score"):
        return _read(folder)


def _read(folder: Path) -> Result:
    spec = read_spec(folder)
    if kind_of(spec) != SCORE:
        raise HeadlabError(f"it holds a {kind_of(spec)}, not scores", code="result.other_kind")
    about, arrays = read_content(folder)
    return Result(folder.name, folder, _scores(arrays, about, spec), dict(about["meta"]))


def _scores(arrays: Arrays, about: Mapping[str, Any], spec: Mapping[str, Any]) -> HeadScores:
    grid = read_grid(about.get("grid"))
    given = {name: arrays[name] for name in ARRAYS if name in arrays}
    if "values" not in given:
        raise HeadlabError("its result lacks the values", code="result.fields_missing")
    for name, array in given.items():
        shape = (2, grid.size) if name == "halves" else (grid.size,)
        check_array(name, array, shape, np.int64 if name == "samples" else np.float64)
    fields = {name: read_field(about, name, kind) for name, kind in FIELDS.items()}
    scores = HeadScores(grid, spec=spec, **fields, **given)  # type: ignore[arg-type] # checked above
    if scores.values_sha256() != about.get("values_sha256") or (scores.language, scores.method) != _named(spec):
        raise HeadlabError("its values do not fit what is written beside them", code="result.values_mismatch")
    return scores


def _named(spec: Mapping[str, Any]) -> tuple[str, Any]:
    method = spec.get("method")
    return spec["task"]["language"], method.get("name") if isinstance(method, dict) else None
