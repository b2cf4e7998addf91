"""Pruning curves as a run's result: written to bytes, and read back trusting nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import Bools, canonical_json
from headlab.scores import Curve
from headlab.store.arrays import Array, Arrays, npz
from headlab.store.folder import FORMAT, check_array, kind_of, read_content, read_field, read_grid, read_spec, telling

CURVE = "curve"
FLOATS = ("low", "high", "p_values")
FIELDS = {
    "language": str, "split": str, "ordering": str, "example_forwards": int, "seconds": float, "caution": str,
}  # fmt: skip


@dataclass(frozen=True)
class CurveResult:
    """A finished curve, and what is known of how it was made."""

    key: str
    folder: Path
    curve: Curve
    meta: Mapping[str, Any]


def pack_answers(correct: Bools) -> Array:
    """Answers, bool [point, answer] -> uint8 [point, byte], eight answers a byte."""
    return np.packbits(correct, axis=1)


def unpack_answers(packed: Array, points: int, answers: int) -> Bools:
    """Inverse of `pack_answers`. Raises HeadlabError if the shape or the type is another."""
    check_array("correct", packed, (points, -(-answers // 8)), np.uint8)
    return np.unpackbits(packed, axis=1, count=answers).astype(bool)


def pack_curve(curve: Curve, meta: Mapping[str, Any]) -> bytes:
    """A curve as npz bytes: arrays and one JSON text."""
    about = {name: getattr(curve, name) for name in FIELDS} | {
        "format": FORMAT,
        "grid": curve.grid.to_json(),
        "values_sha256": curve.values_sha256(),
        "meta": dict(meta),
    }
    arrays = {name: getattr(curve, name) for name in (*FLOATS, "order", "removed", "groups")}
    return npz({**arrays, "correct": pack_answers(curve.correct), "about": np.array(canonical_json(about))})


def read_curve(folder: Path) -> CurveResult:
    """Read one curve's folder, trusting nothing. Raises HeadlabError that names it, what is wrong and what to do."""
    with telling(folder, "curve"):
        spec = read_spec(folder)
        if kind_of(spec) != CURVE:
            raise HeadlabError(f"it holds a {kind_of(spec)}, not a curve", code="result.other_kind")
        about, arrays = read_content(folder)
        return CurveResult(folder.name, folder, _curve(arrays, about, spec), dict(about["meta"]))


def _curve(arrays: Arrays, about: Mapping[str, Any], spec: Mapping[str, Any]) -> Curve:
    grid = read_grid(about.get("grid"))
    lacking = {*FLOATS, "order", "removed", "groups", "correct"} - set(arrays)
    if lacking:
        raise HeadlabError(f"its result lacks {', '.join(sorted(lacking))}", code="result.fields_missing")
    points, answers = len(np.atleast_1d(arrays["removed"])), len(np.atleast_1d(arrays["groups"]))
    check_array("order", arrays["order"], (grid.size,), np.int64)
    check_array("removed", arrays["removed"], (points,), np.int64)
    check_array("groups", arrays["groups"], (answers,), np.int64)
    for name in FLOATS:
        check_array(name, arrays[name], (points,), np.float64)
    correct = unpack_answers(arrays["correct"], points, answers)
    _check_counts(arrays, grid.size)
    given = {name: arrays[name] for name in (*FLOATS, "order", "removed", "groups")}
    fields = {name: read_field(about, name, kind) for name, kind in FIELDS.items()}
    curve = Curve(grid, correct=correct, spec=spec, **fields, **given)  # type: ignore[arg-type] # checked above
    if curve.values_sha256() != about.get("values_sha256") or _said(curve) != _named(spec):
        raise HeadlabError("its values do not fit what is written beside them", code="result.values_mismatch")
    return curve


def _check_counts(arrays: Arrays, size: int) -> None:
    """Raise HeadlabError unless the order names every head once, and the counts rise from none to all."""
    order, removed = arrays["order"], arrays["removed"]
    if not np.array_equal(np.sort(order), np.arange(size)):
        raise HeadlabError("its order does not name every head once", code="curve.order_invalid")
    if len(removed) < 2 or removed[0] != 0 or removed[-1] != size or (np.diff(removed) <= 0).any():
        raise HeadlabError("its counts of removed heads do not rise from 0 to all heads", code="curve.counts_invalid")
    if not len(arrays["groups"]) or (arrays["groups"] < 0).any():
        raise HeadlabError("it has no answers, or groups that are not counted from 0", code="curve.answers_invalid")


def _said(curve: Curve) -> tuple[object, ...]:
    return curve.language, curve.split, curve.ordering, curve.removed.tolist()


def _named(spec: Mapping[str, Any]) -> tuple[object, ...]:
    order = spec.get("order")
    method = order.get("method") if isinstance(order, dict) else None
    return spec["task"]["language"], spec["task"]["split"], method, spec.get("removed")
