"""Learned gates as a run's result: written to bytes, and read back trusting nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headlab.concrete import HardConcrete
from headlab.errors import HeadlabError
from headlab.learned import LearnedGates
from headlab.records import HeadGrid, canonical_json, content_key
from headlab.store.arrays import Array, Arrays, npz
from headlab.store.folder import FORMAT, check_array, kind_of, read_content, read_field, read_grid, read_spec, telling

GATES = "gates"
FIELDS = {"language": str, "weight": float, "example_forwards": int, "seconds": float}
TOLD = ("measured", "trained", "notes")
PARTS = ("temperature", "low", "high")


@dataclass(frozen=True)
class GatesResult:
    """Gates whose learning is finished, and what is known of how that was done."""

    key: str
    folder: Path
    gates: LearnedGates
    meta: Mapping[str, Any]

    @property
    def trained_folder(self) -> Path | None:
        """Where the model that was trained along is, or None: it stayed as it was, or was written elsewhere."""
        name = self.gates.trained.get("folder")
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
            return None
        found = self.folder / name
        return found if found.is_dir() else None


def pack_gates(gates: LearnedGates, meta: Mapping[str, Any]) -> bytes:
    """Learned gates as npz bytes: arrays of the heads that have a gate, and one JSON text.

    Raises HeadlabError for a value that is not a number.
    """
    gated = np.flatnonzero(gates.gated).astype(np.int64)
    arrays: dict[str, Array] = {
        "steps": gates.steps,
        "gated": gated,
        "log_alpha": np.ascontiguousarray(gates.log_alpha[:, gated], np.float32),
        "loss": np.asarray(gates.loss[1:], np.float64),
        "penalty": np.asarray(gates.penalty, np.float64),
    }
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise HeadlabError(
            f"the gates for {gates.language} became a value that is not a number; nothing was stored. "
            "Learn with a lower rate",
            code="gate.not_finite",
        )
    told = {"measured": dict(gates.measured), "trained": dict(gates.trained), "notes": list(gates.notes)}
    try:
        about = {name: getattr(gates, name) for name in FIELDS} | {
            "format": FORMAT,
            "grid": gates.grid.to_json(),
            "concrete": {name: float(value) for name, value in asdict(gates.concrete).items()},
            "values_sha256": gates.values_sha256(),
            "told": told,
            "told_sha256": content_key(told),
            "meta": dict(meta),
        }
        return npz({**arrays, "about": np.array(canonical_json(about))})
    except (TypeError, ValueError) as error:
        raise HeadlabError(
            f"what was measured of the gates for {gates.language} is neither a number nor a text ({error}); "
            "nothing was stored",
            code="gate.measured_unstorable",
        ) from error


def read_gates(folder: Path) -> GatesResult:
    """Read one folder of gates, trusting nothing. Raises HeadlabError that names it, what is wrong and what to do."""
    with telling(folder, GATES):
        spec = read_spec(folder)
        if kind_of(spec) != GATES:
            raise HeadlabError(f"it holds a {kind_of(spec)}, not gates", code="result.other_kind")
        about, arrays = read_content(folder)
        return GatesResult(folder.name, folder, _gates(arrays, about, spec), dict(about["meta"]))


def _gates(arrays: Arrays, about: Mapping[str, Any], spec: Mapping[str, Any]) -> LearnedGates:
    grid = read_grid(about.get("grid"))
    _check(arrays, grid)
    times = len(arrays["steps"])
    log_alpha = np.full((times, grid.size), np.nan, np.float32)
    log_alpha[:, arrays["gated"]] = arrays["log_alpha"]
    fields = {name: read_field(about, name, kind) for name, kind in FIELDS.items()}
    told = _told(about)
    gates = LearnedGates(
        grid, steps=arrays["steps"], log_alpha=log_alpha, loss=np.concatenate([[np.nan], arrays["loss"]]),
        penalty=arrays["penalty"], concrete=_concrete(about.get("concrete")), spec=spec, **fields,
        measured=told["measured"], trained=told["trained"], notes=tuple(told["notes"]),
    )  # fmt: skip
    asked = spec.get("options")
    named = asked.get("weight") if isinstance(asked, dict) else None
    if gates.values_sha256() != about.get("values_sha256") or (gates.language, gates.weight) != (
        spec["task"]["language"],
        named,
    ):
        raise HeadlabError("its values do not fit what is written beside them", code="result.values_mismatch")
    return gates


def _check(arrays: Arrays, grid: HeadGrid) -> None:
    """Raise HeadlabError unless the arrays are of one history of some of the grid's heads."""
    lacking = {"steps", "gated", "log_alpha", "loss", "penalty"} - set(arrays)
    if lacking:
        raise HeadlabError(f"its result lacks {', '.join(sorted(lacking))}", code="result.fields_missing")
    times, heads = len(np.atleast_1d(arrays["steps"])), len(np.atleast_1d(arrays["gated"]))
    check_array("steps", arrays["steps"], (times,), np.int64)
    check_array("gated", arrays["gated"], (heads,), np.int64)
    check_array("log_alpha", arrays["log_alpha"], (times, heads), np.float32)
    check_array("loss", arrays["loss"], (times - 1,), np.float64)
    check_array("penalty", arrays["penalty"], (times,), np.float64)
    steps, gated = arrays["steps"], arrays["gated"]
    if times < 2 or steps[0] != 0 or (np.diff(steps) <= 0).any():
        raise HeadlabError("the steps of its history do not rise from 0", code="result.history_invalid")
    if not heads or gated[0] < 0 or gated[-1] >= grid.size or (np.diff(gated) <= 0).any():
        raise HeadlabError("its gates are not of heads of its grid", code="result.gates_mismatch")


def _concrete(value: Any) -> HardConcrete:
    good = isinstance(value, dict) and set(value) == set(PARTS) and all(type(value[name]) is float for name in PARTS)
    if not good or not (0 < value["temperature"] < np.inf and value["low"] < 0 and 1 < value["high"] < np.inf):
        raise HeadlabError("its distribution is not {temperature, low, high}", code="result.distribution_invalid")
    concrete = HardConcrete(**value)
    concrete.check()
    return concrete


def _told(about: Mapping[str, Any]) -> dict[str, Any]:
    """What is told beside the arrays: measured, trained, notes."""
    told = about.get("told")
    try:
        good = isinstance(told, dict) and about.get("told_sha256") == content_key(told)
    except ValueError:  # half a surrogate pair, or a number too large for one
        good = False
    if not good or not isinstance(told, dict) or set(told) != set(TOLD):
        raise HeadlabError("what was measured does not fit what is written beside it", code="result.measured_mismatch")
    measured, trained, notes = (told[name] for name in TOLD)
    split = isinstance(measured, dict) and all(isinstance(part, dict) for part in measured.values())
    if not split or not isinstance(trained, dict) or not isinstance(notes, list):
        raise HeadlabError("what was measured is not {split: numbers}", code="result.measured_invalid")
    if not all(isinstance(note, str) for note in notes):
        raise HeadlabError("its notes are not texts", code="result.notes_invalid")
    return told
