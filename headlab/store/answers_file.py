"""Answers under a mask, one file a mask: written to bytes, and read back trusting nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import parse_json
from headlab.records import Bools, Evaluation, Ints, canonical_json, content_key
from headlab.store.arrays import Array, Arrays, npz, read_arrays
from headlab.store.folder import FORMAT, check_array
from headlab.tasks.base import Example

ANSWERS = "answers"
COUNTS = (np.uint8, np.uint16, np.uint32)


def pack_evaluation(digest: str, evaluation: Evaluation, units: Ints, spec: Mapping[str, Any]) -> bytes:
    """A whole evaluation as npz bytes: right or wrong a bit, predictions in as few bytes as hold them.

    digest: of the mask.  units: int [example], answers an example asks for.  spec: of the run folder.
    Raises HeadlabError for an evaluation that is still under way.
    """
    if not evaluation.done:
        raise HeadlabError(
            f"{evaluation.n} of {evaluation.total} answers are there; only whole evaluations are kept",
            code="answers.incomplete",
        )
    arrays = {
        "correct": np.packbits(evaluation.correct),
        "predicted": _small(evaluation.predicted),
        "units": _small(units),
    }
    about = {
        "format": FORMAT,
        "run": content_key(dict(spec)),
        "mask": digest,
        "ids_sha256": content_key(list(evaluation.ids)),
        "sha256": _sha256(arrays),
    }
    return npz({**arrays, "about": np.array(canonical_json(about))})


def read_evaluation(path: Path, digest: str, spec: Mapping[str, Any], examples: Sequence[Example]) -> Evaluation:
    """Inverse of `pack_evaluation`, on the task's own examples.

    Raises HeadlabError if the file is torn, or of another run, mask or set of examples.
    """
    arrays = read_arrays(path)
    about = _about(arrays)
    lacking = {"correct", "predicted", "units"} - set(arrays)
    if lacking:
        raise HeadlabError(f"{path.name} lacks {', '.join(sorted(lacking))}", code="answers.fields_missing")
    if about.get("format") != FORMAT:
        raise HeadlabError(
            f"{path.name} has format {about.get('format')}; this headlab reads {FORMAT}", code="answers.format_unknown"
        )
    if about.get("run") != content_key(dict(spec)) or about.get("mask") != digest:
        raise HeadlabError(f"{path.name} is of another run or mask", code="answers.other_run")
    if about.get("sha256") != _sha256(arrays):
        raise HeadlabError(f"{path.name} holds other answers than were written", code="answers.changed")
    units, predicted = _counts("units", arrays), _counts("predicted", arrays)
    if len(units) != len(examples) or int(units.sum()) != len(predicted):
        raise HeadlabError(f"{path.name} is of another number of examples or answers", code="answers.counts_mismatch")
    ids, groups = named(examples, units)
    if about.get("ids_sha256") != content_key(list(ids)):
        raise HeadlabError(f"{path.name} is of other examples", code="answers.other_examples")
    return Evaluation(spec["task"]["language"], _correct(arrays["correct"], len(ids)), predicted, ids, groups, len(ids))


def named(examples: Sequence[Example], units: Ints) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids and groups of all answers, example by example, as `headlab.evaluator` names them."""
    asked = [(e, place, n) for e, n in zip(examples, units.tolist(), strict=True) for place in range(n)]
    ids = tuple(e.id if n == 1 else f"{e.id}#{place}" for e, place, n in asked)
    return ids, tuple(e.group or e.id for e, _, _ in asked)


def _small(values: Ints) -> Array:
    if len(values) and int(values.min()) < 0:
        raise HeadlabError("an answer is missing; only whole evaluations are kept", code="answers.incomplete")
    return values.astype(next(kind for kind in COUNTS if int(values.max(initial=0)) <= np.iinfo(kind).max))


def _counts(name: str, arrays: Arrays) -> Ints:
    array = arrays[name]
    if array.ndim != 1 or array.dtype not in COUNTS:
        raise HeadlabError(
            f"its {name} is {array.dtype} {array.shape}, not counts in a row", code="answers.counts_invalid"
        )
    return array.astype(np.int64)


def _correct(packed: Array, answers: int) -> Bools:
    check_array("correct", packed, (-(-answers // 8),), np.uint8)
    return np.unpackbits(packed, count=answers).astype(bool)


def _about(arrays: Arrays) -> Mapping[str, Any]:
    text = arrays.get("about")
    if text is None or text.shape != () or text.dtype.kind != "U":
        raise HeadlabError("its answers lack the text about them", code="answers.about_missing")
    about = parse_json(str(text), "about")
    if not isinstance(about, dict):
        raise HeadlabError("its answers mangle the text about them", code="answers.about_torn")
    return about


def _sha256(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in ("correct", "predicted", "units"):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
