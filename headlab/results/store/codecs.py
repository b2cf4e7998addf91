"""Every kind of result as the bytes of its file, validated when read back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar, cast

import numpy as np

from headlab.core import (
    Bools,
    Evaluation,
    HeadGrid,
    HeadlabError,
    Ints,
    Json,
    JsonRecord,
    Omissions,
    Report,
    RunSpec,
    SlopeUse,
    canonical_json,
    content_key,
    parse_json,
    part,
)
from headlab.results.l0_gates import HardConcrete, LearnedGates
from headlab.results.scores import (
    MEMBERS,
    OMISSIONS,
    SCORE_ARRAYS,
    SCORE_VALUES,
    SIGNED_FIELD,
    SLOPES,
    Curve,
    HeadScores,
    Plain,
    PlainType,
    members_field,
)
from headlab.results.store.folder import (
    RESULT_FORMAT,
    SCORE_KIND,
    Array,
    Arrays,
    check_array,
    check_parts,
    kind_of,
    located_errors,
    npz,
    read_arrays,
    read_content,
    read_field,
    read_grid,
    read_spec,
)
from headlab.tasks import Example, answer_names

# Answers under a mask, one file per mask.

ANSWERS_KIND = "answers"
COUNT_TYPES = (np.uint8, np.uint16, np.uint32)


def pack_evaluation(digest: str, evaluation: Evaluation, units: Ints, spec: RunSpec) -> bytes:
    """A complete evaluation as npz bytes.

    Right or wrong are stored as bits, predictions in the smallest integer type.

    Args:
        digest: Digest of the mask.
        evaluation: Answers and accuracy under the mask.
        units: int [example], answers per example.
        spec: Spec of the run folder.

    Raises:
        HeadlabError: The evaluation is incomplete.
    """
    if not evaluation.is_complete:
        raise HeadlabError(
            f"{evaluation.n} of {evaluation.total} answers are there; only complete evaluations "
            "are stored",
            code="answers.incomplete",
        )
    arrays = {
        "correct": np.packbits(evaluation.correct),
        "predicted": _smallest_type(evaluation.predicted),
        "units": _smallest_type(units),
    }
    description: dict[str, Json] = {
        "format": RESULT_FORMAT,
        "run": spec.key,
        "mask": digest,
        "ids_sha256": content_key(list(evaluation.ids)),
        "sha256": _answers_sha256(arrays),
    }
    if evaluation.omissions is not None:
        description[OMISSIONS] = evaluation.omissions.to_json()
    return npz({**arrays, "about": np.array(canonical_json(description))})


def read_evaluation(
    path: Path, digest: str, spec: RunSpec, examples: Sequence[Example]
) -> Evaluation:
    """Inverse of `pack_evaluation`.

    Args:
        path: The file.
        digest: Digest of the mask.
        spec: Spec of the run folder.
        examples: The examples of the task.

    Raises:
        HeadlabError: If the file is damaged, or belongs to another run, mask or set of examples.
    """
    arrays, description = _checked_answers(path, digest, spec)
    units = _read_counts("units", arrays)
    predictions = _read_counts("predicted", arrays)
    if len(units) != len(examples) or int(units.sum()) != len(predictions):
        raise HeadlabError(
            f"{path.name} has a different number of examples or answers",
            code="answers.counts_mismatch",
        )
    ids, groups = answer_names(examples, units)
    if description.get("ids_sha256") != content_key(list(ids)):
        raise HeadlabError(f"{path.name} was made on other examples", code="answers.other_examples")
    return Evaluation(
        spec.task.language,
        _right_answers(arrays, len(ids)),
        predictions,
        ids,
        groups,
        len(ids),
        _read_omissions(description),
    )


def read_right_answers(path: Path, digest: str, spec: RunSpec) -> Bools:
    """Which answers of a stored evaluation are right, bool [answer], without its examples.

    Args:
        path: The file.
        digest: Digest of the mask.
        spec: Spec of the run folder.

    Raises:
        HeadlabError: If the file is damaged, or belongs to another run or mask.
    """
    arrays, _ = _checked_answers(path, digest, spec)
    return _right_answers(arrays, len(_read_counts("predicted", arrays)))


def _right_answers(arrays: Arrays, count: int) -> Bools:
    """Which of `count` answers are right, bool [answer]."""
    byte_count = -(-count // 8)
    check_array("correct", arrays["correct"], (byte_count,), np.uint8)
    return np.unpackbits(arrays["correct"], count=count).astype(bool)


def _checked_answers(
    path: Path, digest: str, spec: RunSpec
) -> tuple[dict[str, Array], Mapping[str, Json]]:
    """The arrays of a file of answers and what it says about them.

    Raises:
        HeadlabError: If the file is damaged, or belongs to another run or mask.
    """
    arrays = read_arrays(path)
    description = _read_description(arrays)
    missing_names = {"correct", "predicted", "units"} - set(arrays)
    if missing_names:
        raise HeadlabError(
            f"{path.name} lacks {', '.join(sorted(missing_names))}", code="answers.fields_missing"
        )
    if description.get("format") != RESULT_FORMAT:
        raise HeadlabError(
            f"{path.name} has format {description.get('format')}; this headlab reads {RESULT_FORMAT}",
            code="answers.format_unknown",
        )
    if description.get("run") != spec.key or description.get("mask") != digest:
        raise HeadlabError(f"{path.name} belongs to another run or mask", code="answers.other_run")
    if description.get("sha256") != _answers_sha256(arrays):
        raise HeadlabError(
            f"{path.name} holds answers that differ from those written", code="answers.changed"
        )
    return arrays, description


def _smallest_type(values: Ints) -> Array:
    """Counts in the smallest of `COUNT_TYPES` that holds them all."""
    if len(values) and int(values.min()) < 0:
        raise HeadlabError(
            "an answer is missing; only complete evaluations are stored", code="answers.incomplete"
        )
    largest = int(values.max(initial=0))
    return values.astype(next(kind for kind in COUNT_TYPES if largest <= np.iinfo(kind).max))


def _read_counts(name: str, arrays: Arrays) -> Ints:
    """One of the arrays of counts in a file of answers."""
    array = arrays[name]
    if array.ndim != 1 or array.dtype not in COUNT_TYPES:
        raise HeadlabError(
            f"its {name} is {array.dtype} {array.shape}, not counts in a row",
            code="answers.counts_invalid",
        )
    return array.astype(np.int64)


def _read_description(arrays: Arrays) -> Mapping[str, Json]:
    """What a file of answers says about them."""
    text = arrays.get("about")
    if text is None or text.shape != () or text.dtype.kind != "U":
        raise HeadlabError("its answers have no description", code="answers.about_missing")
    description: Json = parse_json(str(text), "about")
    if not isinstance(description, dict):
        raise HeadlabError(
            "the description of its answers cannot be read", code="answers.about_torn"
        )
    return description


def _answers_sha256(arrays: Arrays) -> str:
    """sha256 of the arrays in a file of answers, with their types and shapes."""
    digest = hashlib.sha256()
    for name in ("correct", "predicted", "units"):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


# The result of a run, whatever its kind.

T = TypeVar("T")
ScoredRecord = TypeVar("ScoredRecord", HeadScores, Curve, LearnedGates)
Record = HeadScores | Curve | Report | LearnedGates
# The arrays of a file, and what it says about them as JSON.
Content = tuple[Mapping[str, Array], dict[str, Json]]


@dataclass(frozen=True)
class Result(Generic[T]):
    """A finished run: its record, and metadata about how it was made."""

    key: str
    folder: Path
    record: T
    meta: Mapping[str, Json]


@dataclass(frozen=True)
class Codec(Generic[T]):
    """How a kind of record is stored.

    Attributes:
        kind: Name of the kind in a spec.
        words: What it is, with its article, for messages.
        command: The command that makes it, for messages.
        pack: A record to the content of its file; raises HeadlabError for one that cannot be
            stored.
        unpack: The inverse, from arrays, description and spec; raises HeadlabError for anything
            else.
        required_objects: Paths of the objects that its spec has, beside those of every spec.
    """

    kind: str
    words: str
    command: str
    pack: Callable[[T], Content]
    unpack: Callable[[Arrays, Mapping[str, Json], RunSpec], T]
    required_objects: tuple[tuple[str, ...], ...] = ()


def pack(record: Record, meta: JsonRecord) -> bytes:
    """A record as npz bytes: arrays and one JSON text.

    Raises:
        HeadlabError: For one that cannot be stored.
    """
    arrays, description = codec_of(type(record)).pack(record)
    description_json = canonical_json(description | {"format": RESULT_FORMAT, "meta": dict(meta)})
    return npz({**arrays, "about": np.array(description_json)})


def read_result(folder: Path, kind: type[T]) -> Result[T]:
    """Read and validate one run folder.

    Args:
        folder: The run folder.
        kind: Class of the record that it should hold.

    Raises:
        HeadlabError: It holds another kind of result or is damaged; the message names the folder
            and the remedy.
    """
    codec = codec_of(kind)
    with located_errors(folder, codec.command):
        spec = read_spec(folder)
        if kind_of(spec) != codec.kind:
            raise HeadlabError(
                f"it holds a result of kind {kind_of(spec)!r}, not {codec.words}",
                code="result.other_kind",
            )
        check_parts(spec, codec.required_objects)
        description, arrays = read_content(folder)
        meta = description["meta"]
        assert isinstance(meta, dict), "read_content checks it"
        return Result(folder.name, folder, codec.unpack(arrays, description, spec), meta)


def _require_arrays(arrays: Arrays, names: set[str]) -> None:
    """Raise HeadlabError for arrays that a result lacks."""
    missing_names = names - set(arrays)
    if missing_names:
        raise HeadlabError(
            f"its result lacks {', '.join(sorted(missing_names))}", code="result.fields_missing"
        )


def _object_with_checksum(value: Json, sha256: Json) -> dict[str, Json] | None:
    """The value if it is a JSON object with this `content_key`, else None."""
    try:
        if isinstance(value, dict) and sha256 == content_key(value):
            return value
        return None
    except ValueError:  # a lone surrogate, or a number that overflows
        return None


# Scores as the result of a run.

ROUNDING = 1e-9  # of floats


def _pack_scores(scores: HeadScores) -> Content:
    """Raises HeadlabError if a value is not finite or an interval or p-value is impossible."""
    arrays = {name: array for name, array in scores.arrays().items() if array is not None}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise HeadlabError(
            f"{scores.method} gave a value that is not a number for {scores.language}; nothing was "
            "stored. Check that the model gives finite outputs on this data",
            code="score.method_not_finite",
        )
    _check_intervals(scores, "head")
    return arrays, _describe_record(scores, scores.plain_values())


def _describe_record(
    record: HeadScores | Curve | LearnedGates, plain_values: Mapping[str, Plain]
) -> dict[str, Json]:
    """The description of a record: plain values, grid, checksum, and what else it records."""
    description: dict[str, Json] = {**plain_values}
    if not isinstance(record, LearnedGates) and record.omissions is not None:
        description[OMISSIONS] = record.omissions.to_json()
    if isinstance(record, HeadScores) and record.slopes is not None:
        description[SLOPES] = record.slopes.to_json()
    description["grid"] = {stack: [*heads] for stack, heads in record.grid.to_json().items()}
    description |= members_field(record.grid)
    description["values_sha256"] = record.values_sha256()
    return description


def _read_plain_values(
    description: Mapping[str, Json], types_by_name: Mapping[str, PlainType]
) -> dict[str, Plain]:
    """The plain values of a description. Raises HeadlabError for one of another type."""
    plain_values: dict[str, Plain] = {}
    for name, kind in types_by_name.items():
        plain_values[name] = read_field(description, name, kind)
    return plain_values


def _read_omissions(description: Mapping[str, Json]) -> Omissions | None:
    """What was omitted of the examples of a result; None where that was not recorded."""
    if OMISSIONS in description:
        return Omissions.from_json(description[OMISSIONS])
    return None


def _grid_of(description: Mapping[str, Json], spec: RunSpec) -> HeadGrid:
    """The players of a result. Raises HeadlabError where its groups of neurons are not its spec's."""
    grid = read_grid(description.get("grid"), description.get(MEMBERS))
    if grid.members_sha256 != spec.groups:
        raise HeadlabError(
            "its groups of neurons are not those that its spec names", code="result.groups_mismatch"
        )
    return grid


def _require_match(
    record: ScoredRecord, description: Mapping[str, Json], spec_names_it: bool
) -> ScoredRecord:
    """A record that was read, if it is the one that was stored.

    Args:
        record: The record.
        description: What its file says about it.
        spec_names_it: Whether the names in it are those of its spec.

    Raises:
        HeadlabError: It has another checksum, or its spec does not name it.
    """
    if record.values_sha256() != description.get("values_sha256") or not spec_names_it:
        raise HeadlabError(
            "its values do not match the stored checksum or spec", code="result.values_mismatch"
        )
    return record


def _unpack_scores(arrays: Arrays, description: Mapping[str, Json], spec: RunSpec) -> HeadScores:
    grid = _grid_of(description, spec)
    score_arrays = {name: arrays[name] for name in SCORE_ARRAYS if name in arrays}
    if "values" not in score_arrays:
        raise HeadlabError("its result lacks the values", code="result.fields_missing")
    for name, array in score_arrays.items():
        check_array(name, array, SCORE_ARRAYS[name].shape(grid), SCORE_ARRAYS[name].number)
    plain_values = _read_plain_values(description, SCORE_VALUES)
    if SIGNED_FIELD in description:
        plain_values[SIGNED_FIELD] = read_field(description, SIGNED_FIELD, bool)
    slopes = SlopeUse.from_json(description[SLOPES]) if SLOPES in description else None
    scores = HeadScores.from_fields(
        grid, spec, plain_values, score_arrays, _read_omissions(description), slopes
    )
    _check_intervals(scores, "head")
    names_in_spec = (spec.task.language, spec.method.name)
    return _require_match(scores, description, (scores.language, scores.method) == names_in_spec)


def _check_intervals(record: HeadScores | Curve, owner: str) -> None:
    """Raise HeadlabError for an interval or a p-value that is impossible.

    An interval rises from low to high, and a p-value is from 0 to 1.

    Args:
        record: What the intervals are of.
        owner: What each interval belongs to, "head" or "point".
    """
    low = record.low
    high = record.high
    if low is not None and high is not None:
        reversed_indices = np.flatnonzero(~(low <= high + ROUNDING))
        if reversed_indices.size:
            index = int(reversed_indices[0])
            raise HeadlabError(
                f"the interval of {owner} {index} has its low end, {low[index]:g}, above its high "
                f"end, {high[index]:g}",
                code="result.interval_reversed",
            )
    p = record.p_values
    if p is not None:
        impossible_indices = np.flatnonzero(~((p >= 0) & (p <= 1 + ROUNDING)))
        if impossible_indices.size:
            index = int(impossible_indices[0])
            raise HeadlabError(
                f"the p-value of {owner} {index} is {p[index]:g}, not from 0 to 1",
                code="result.p_value_invalid",
            )


# Pruning curves as the result of a run.

CURVE = "curve"
CURVE_FLOATS = ("low", "high", "p_values")
CURVE_ARRAYS = (*CURVE_FLOATS, "order", "removed", "groups")
CURVE_VALUES: Mapping[str, PlainType] = {
    "language": str,
    "split": str,
    "ordering": str,
    "example_forwards": int,
    "seconds": float,
    "caution": str,
}


def pack_answers(correct: Bools) -> Array:
    """Answers, bool [point, answer] -> uint8 [point, byte], eight answers per byte."""
    return np.packbits(correct, axis=1)


def unpack_answers(packed_answers: Array, points: int, answers: int) -> Bools:
    """Inverse of `pack_answers`. Raises HeadlabError if the shape or type is wrong."""
    check_array("correct", packed_answers, (points, -(-answers // 8)), np.uint8)
    return np.unpackbits(packed_answers, axis=1, count=answers).astype(bool)


def _pack_curve(curve: Curve) -> Content:
    """Raises HeadlabError if an interval or p-value is impossible."""
    _check_intervals(curve, "point")
    arrays = {name: getattr(curve, name) for name in CURVE_ARRAYS}
    plain_values = {name: getattr(curve, name) for name in CURVE_VALUES}
    return {**arrays, "correct": pack_answers(curve.correct)}, _describe_record(curve, plain_values)


def _unpack_curve(arrays: Arrays, description: Mapping[str, Json], spec: RunSpec) -> Curve:
    grid = _grid_of(description, spec)
    _require_arrays(arrays, {*CURVE_ARRAYS, "correct"})
    points = len(np.atleast_1d(arrays["removed"]))
    answers = len(np.atleast_1d(arrays["groups"]))
    check_array("order", arrays["order"], (grid.size,), np.int64)
    check_array("removed", arrays["removed"], (points,), np.int64)
    check_array("groups", arrays["groups"], (answers,), np.int64)
    for name in CURVE_FLOATS:
        check_array(name, arrays[name], (points,), np.float64)
    correct = unpack_answers(arrays["correct"], points, answers)
    _check_counts(arrays, grid.size)
    curve = Curve(
        grid,
        correct=correct,
        spec=spec,
        omissions=_read_omissions(description),
        **_read_plain_values(description, CURVE_VALUES),  # type: ignore[arg-type] # CURVE_VALUES has their types
        **{name: arrays[name] for name in CURVE_ARRAYS},  # type: ignore[arg-type] # checked above
    )
    _check_intervals(curve, "point")
    names_in_spec = (
        spec.task.language,
        spec.task.split,
        part(spec, "order", "method"),
        spec.removed,
    )
    removed_counts = tuple(curve.removed.tolist())
    names = (curve.language, curve.split, curve.ordering, removed_counts)
    return _require_match(curve, description, names == names_in_spec)


def _check_counts(arrays: Arrays, size: int) -> None:
    """Raise HeadlabError unless the order is complete and the counts rise from 0 to all."""
    order = arrays["order"]
    removed_counts = arrays["removed"]
    if not np.array_equal(np.sort(order), np.arange(size)):
        raise HeadlabError("its order does not name every head once", code="curve.order_invalid")
    is_from_none_to_all = (
        len(removed_counts) >= 2 and removed_counts[0] == 0 and removed_counts[-1] == size
    )
    if not is_from_none_to_all or (np.diff(removed_counts) <= 0).any():
        raise HeadlabError(
            "its counts of removed heads do not rise from 0 to all heads",
            code="curve.counts_invalid",
        )
    if not len(arrays["groups"]) or (arrays["groups"] < 0).any():
        raise HeadlabError(
            "it has no answers, or groups that are not counted from 0", code="curve.answers_invalid"
        )


# Reports of experiments as the result of a run.

REPORT_KIND = "report"


def _pack_report(report: Report) -> Content:
    """Raises HeadlabError for a value that JSON cannot represent, like NaN."""
    content: dict[str, Json] = report.to_json()
    del content["spec"]
    try:
        return {}, {"report": content, "sha256": content_key(content)}
    except (TypeError, ValueError) as error:
        raise HeadlabError(
            f"the report of {report.name} holds a value that is neither a number nor a text "
            f"({error}); it is not stored",
            code="report.value_unstorable",
        ) from error


def _unpack_report(_: Arrays, description: Mapping[str, Json], spec: RunSpec) -> Report:
    content = _object_with_checksum(description.get("report"), description.get("sha256"))
    if content is None:
        raise HeadlabError(
            "its tables do not match the stored checksum or spec", code="result.values_mismatch"
        )
    report = Report.from_json({**content, "spec": {}})
    if report.name != spec.get("experiment"):
        raise HeadlabError(
            f"it is a report of {report.name}, not of {spec.get('experiment')}",
            code="result.other_report",
        )
    return replace(report, spec=spec)


# Learned gates as the result of a run.

GATES_KIND = "gates"
GATES_VALUES: Mapping[str, PlainType] = {
    "language": str,
    "weight": float,
    "example_forwards": int,
    "seconds": float,
}
EXTRA_FIELDS = ("measured", "trained", "notes")
CONCRETE_FIELDS = ("temperature", "low", "high")


def trained_folder(result: Result[LearnedGates]) -> Path | None:
    """Folder of the jointly trained model.

    None if the model was not trained or was written elsewhere.
    """
    name = result.record.trained.get("folder")
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        return None
    folder = result.folder / name
    return folder if folder.is_dir() else None


def _pack_gates(gates: LearnedGates) -> Content:
    """Arrays of the gated heads only. Raises HeadlabError if a value is not finite."""
    gated_indices = np.flatnonzero(gates.has_gate).astype(np.int64)
    arrays: dict[str, Array] = {
        "steps": gates.steps,
        "gated": gated_indices,
        "log_alpha": np.ascontiguousarray(gates.log_alpha[:, gated_indices], np.float32),
        "loss": np.asarray(gates.loss[1:], np.float64),
        "penalty": np.asarray(gates.penalty, np.float64),
    }
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise HeadlabError(
            f"the gates for {gates.language} became a value that is not a number; nothing was "
            "stored. Learn with a lower rate",
            code="gate.not_finite",
        )
    try:
        extra_fields: dict[str, Json] = {
            "measured": {split: dict(figures) for split, figures in gates.measured.items()},
            "trained": dict(gates.trained),
            "notes": list(gates.notes),
        }
        concrete: dict[str, Json] = {
            name: float(value) for name, value in asdict(gates.concrete).items()
        }
        description: dict[str, Json] = {
            "concrete": concrete,
            "told": extra_fields,
            "told_sha256": content_key(extra_fields),
        }
        description |= _describe_record(
            gates, {name: getattr(gates, name) for name in GATES_VALUES}
        )
        canonical_json(description)  # raises for what JSON cannot represent
        return arrays, description
    except (TypeError, ValueError) as error:
        raise HeadlabError(
            f"what was measured of the gates for {gates.language} is neither a number nor a text "
            f"({error}); nothing was stored",
            code="gate.measured_unstorable",
        ) from error


def _unpack_gates(arrays: Arrays, description: Mapping[str, Json], spec: RunSpec) -> LearnedGates:
    grid = _grid_of(description, spec)
    _check_gate_arrays(arrays, grid)
    times = len(arrays["steps"])
    log_alpha = np.full((times, grid.size), np.nan, np.float32)
    log_alpha[:, arrays["gated"]] = arrays["log_alpha"]
    plain_values = _read_plain_values(description, GATES_VALUES)
    figures_by_split, trained_model, notes = _read_extra_fields(description)
    gates = LearnedGates(
        grid,
        steps=arrays["steps"],
        log_alpha=log_alpha,
        loss=np.concatenate([[np.nan], arrays["loss"]]),
        penalty=arrays["penalty"],
        concrete=_read_distribution(description.get("concrete")),
        spec=spec,
        measured=figures_by_split,
        trained=trained_model,
        notes=notes,
        **plain_values,  # type: ignore[arg-type] # GATES_VALUES has their types
    )
    names_in_spec = spec.task.language, part(spec, "options", "weight")
    return _require_match(gates, description, (gates.language, gates.weight) == names_in_spec)


def _check_gate_arrays(arrays: Arrays, grid: HeadGrid) -> None:
    """Raise HeadlabError unless the arrays form one history of some of the grid's heads."""
    _require_arrays(arrays, {"steps", "gated", "log_alpha", "loss", "penalty"})
    times = len(np.atleast_1d(arrays["steps"]))
    heads = len(np.atleast_1d(arrays["gated"]))
    check_array("steps", arrays["steps"], (times,), np.int64)
    check_array("gated", arrays["gated"], (heads,), np.int64)
    check_array("log_alpha", arrays["log_alpha"], (times, heads), np.float32)
    check_array("loss", arrays["loss"], (times - 1,), np.float64)
    check_array("penalty", arrays["penalty"], (times,), np.float64)
    steps = arrays["steps"]
    gated_indices = arrays["gated"]
    if times < 2 or steps[0] != 0 or (np.diff(steps) <= 0).any():
        raise HeadlabError(
            "the steps of its history do not rise from 0", code="result.history_invalid"
        )
    if (
        not heads
        or gated_indices[0] < 0
        or gated_indices[-1] >= grid.size
        or (np.diff(gated_indices) <= 0).any()
    ):
        raise HeadlabError(
            "its gates do not belong to the heads of its grid", code="result.gates_mismatch"
        )


def _read_distribution(value: Json) -> HardConcrete:
    parts = value if isinstance(value, dict) else {}
    numbers = {name: part for name, part in parts.items() if isinstance(part, float)}
    invalid = HeadlabError(
        "its distribution is not {temperature, low, high}", code="result.distribution_invalid"
    )
    if not set(parts) == set(numbers) == set(CONCRETE_FIELDS):
        raise invalid
    concrete = HardConcrete(**numbers)
    stretches_below_and_above = concrete.low < 0 and 1 < concrete.high < np.inf
    if not (0 < concrete.temperature < np.inf and stretches_below_and_above):
        raise invalid
    concrete.check()
    return concrete


ExtraFields = tuple[dict[str, dict[str, Json]], dict[str, Json], tuple[str, ...]]


def _read_extra_fields(description: Mapping[str, Json]) -> ExtraFields:
    """The fields stored beside the arrays: measured, trained, notes.

    Raises:
        HeadlabError: If they are invalid.
    """
    extra_fields = _object_with_checksum(description.get("told"), description.get("told_sha256"))
    if extra_fields is None or set(extra_fields) != set(EXTRA_FIELDS):
        raise HeadlabError(
            "what was measured does not match the stored checksum or spec",
            code="result.measured_mismatch",
        )
    measured_value, trained_model, notes = (extra_fields[name] for name in EXTRA_FIELDS)
    if not (
        isinstance(measured_value, dict)
        and isinstance(trained_model, dict)
        and isinstance(notes, list)
    ):
        raise _measured_invalid()
    figures_by_split = {
        name: part for name, part in measured_value.items() if isinstance(part, dict)
    }
    if len(figures_by_split) < len(measured_value):
        raise _measured_invalid()
    texts = [note for note in notes if isinstance(note, str)]
    if len(texts) < len(notes):
        raise HeadlabError("its notes are not texts", code="result.notes_invalid")
    return figures_by_split, trained_model, tuple(texts)


def _measured_invalid() -> HeadlabError:
    return HeadlabError("what was measured is not {split: numbers}", code="result.measured_invalid")


AnyCodec = Codec[HeadScores] | Codec[Curve] | Codec[Report] | Codec[LearnedGates]
CODECS: Mapping[type, AnyCodec] = {
    HeadScores: Codec(
        SCORE_KIND, "scores", "score", _pack_scores, _unpack_scores, (("method", "options"),)
    ),
    Curve: Codec(CURVE, "a curve", "curve", _pack_curve, _unpack_curve, (("order",),)),
    Report: Codec(
        REPORT_KIND, "a report", "experiment", _pack_report, _unpack_report, (("options",),)
    ),
    LearnedGates: Codec(
        GATES_KIND, "gates", GATES_KIND, _pack_gates, _unpack_gates, (("options",),)
    ),
}


def codec_of(kind: type[T]) -> Codec[T]:
    """How records of a class are stored. Raises KeyError for a class that is not stored."""
    return cast("Codec[T]", CODECS[kind])
