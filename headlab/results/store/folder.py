"""Checks shared by all run folders, and arrays as npz files, read without unpickling anything."""

from __future__ import annotations

import ast
import io
import math
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from headlab.core import RESULT_FORMAT as RESULT_FORMAT
from headlab.core import SCORE_KIND as SCORE_KIND
from headlab.core import HeadGrid, HeadlabError, Json, RunSpec, json_at, parse_json, read_json

# Arrays as npz files, as numpy.savez writes them; objects are never unpickled.

MAX_ARRAY_BYTES = 64 << 20
MAX_HEADER_BYTES = 10_000  # as in numpy
Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


def npz(arrays: Arrays) -> bytes:
    """Arrays by name as the bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    return buffer.getvalue()


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays of an npz file, without unpickling.

    Raises:
        HeadlabError: If it is damaged, too large or not an npz file.
    """
    try:
        if not path.is_file():  # reading a pipe or a device might never end
            raise HeadlabError(f"{path.name} is missing or is not a file", code="arrays.missing")
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAX_ARRAY_BYTES:
                raise HeadlabError(
                    f"{path.name} unpacks to more than {MAX_ARRAY_BYTES >> 20} MiB; it is not one "
                    "of headlab's",
                    code="arrays.too_large",
                )
            arrays = {}
            for entry in entries:
                arrays[entry.filename.removesuffix(".npy")] = _read_array(archive, entry)
            return arrays
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise HeadlabError(
            f"{path.name} is damaged or is not an npz file ({type(error).__name__})",
            code="arrays.torn",
        ) from error


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """One array.

    Its data is read in full and its checksum verified before any of it is interpreted.
    """
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("compressed, which headlab's files are not")
    data = archive.read(entry)
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not the version of the npy format that headlab writes")
    try:
        # numpy would take a torn header for one of Python 2's, which headlab never wrote, and warn.
        header_bytes = min(int.from_bytes(data[8:10], "little"), MAX_HEADER_BYTES)
        ast.literal_eval(data[10 : 10 + header_bytes].decode())
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except (
        SyntaxError,
        TypeError,
        MemoryError,
        tokenize.TokenError,
    ) as error:  # from the parser of the header
        raise ValueError("a header that is not numpy's") from error
    # numpy allocates what the header claims before it reads.
    array_bytes = math.prod(shape) * dtype.itemsize
    has_valid_shape = min(shape, default=0) >= 0
    if dtype.hasobject or not has_valid_shape or array_bytes != len(data) - file.tell():
        raise ValueError("another size than its header says")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


# Checks of run folders that do not depend on the kind of result.


@contextmanager
def located_errors(folder: Path, command: str) -> Iterator[None]:
    """Add the folder and the remedy to an error about its contents.

    Args:
        command: The one that makes such a result.
    """
    try:
        yield
    except HeadlabError as error:
        raise HeadlabError(
            f"{folder.name}: {error}. Delete that folder of the cache and run the {command} again",
            code=error.code,
        ) from error


def kind_of(spec: object) -> str:
    """The kind of result of a spec: "score" unless it names another; empty if it is not a spec."""
    if not isinstance(spec, Mapping):
        return ""
    return str(spec.get("kind", SCORE_KIND))


def read_spec(folder: Path) -> RunSpec:
    """The spec of a run folder.

    Raises:
        HeadlabError: Unless it is complete and its hash is the folder's name.
    """
    spec: Json = read_json(folder / "spec.json")
    if not isinstance(spec, dict) or spec.get("format") != RESULT_FORMAT:
        raise HeadlabError(
            f"its spec has format {spec.get('format') if isinstance(spec, dict) else '?'}; this "
            f"headlab reads {RESULT_FORMAT}",
            code="result.format_unknown",
        )
    run_spec = RunSpec.from_json(spec)
    if _key_or_empty(run_spec) != folder.name:
        raise HeadlabError(
            "its name does not match its spec, so it was changed or copied by hand",
            code="result.name_mismatch",
        )
    required_fields = {
        "model": ("name", "fingerprint"),
        "task": ("name", "language", "split", "data_hash"),
    }
    for name_of_part, names in required_fields.items():
        spec_part = spec.get(name_of_part)
        has_names = isinstance(spec_part, dict) and all(
            isinstance(spec_part.get(name), str) for name in names
        )
        if not has_names:
            raise HeadlabError(
                f"its spec does not say which {name_of_part} it is of ({', '.join(names)})",
                code="result.spec_incomplete",
            )
    if not isinstance(spec.get("ablation"), str):
        raise HeadlabError("its spec does not name its ablation", code="result.ablation_missing")
    return run_spec


# What pages, reports and commands count with or show, where a spec has it.
SPEC_FIELD_TYPES: Mapping[tuple[str, ...], tuple[type, ...]] = {
    ("model",): (dict,),
    ("task",): (dict,),
    ("options",): (dict,),
    ("seed",): (int,),
    ("version",): (int,),
    ("model", "revision"): (str,),
    ("model", "dtype"): (str,),
    ("task", "size"): (int,),
    ("task", "seed"): (int,),
    ("task", "sizes"): (dict,),
    ("task", "label_map"): (dict,),
    ("method", "version"): (int,),
    ("judged",): (dict,),
}


def check_parts(spec: RunSpec, objects: Iterable[tuple[str, ...]] = ()) -> None:
    """Raise HeadlabError for a spec that headlab never wrote, though its folder has its name.

    Args:
        spec: Spec of a result.
        objects: Paths of the objects that its kind of result has.
    """
    for path in objects:
        if not isinstance(json_at(spec, *path), dict):
            raise HeadlabError(f"its spec has no {'.'.join(path)}", code="result.spec_incomplete")
    for path, kinds in SPEC_FIELD_TYPES.items():
        value = json_at(spec, *path)
        if value is not None and type(value) not in kinds:
            raise HeadlabError(
                f"its spec has {value!r:.60} for {'.'.join(path)}, not {_type_names(kinds)}",
                code="result.spec_incomplete",
            )


def _type_names(kinds: Iterable[type]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _key_or_empty(spec: RunSpec) -> str:
    try:
        return spec.key
    except ValueError:  # a lone surrogate: valid in JSON, but not in UTF-8
        return ""


def read_content(folder: Path) -> tuple[dict[str, Json], Arrays]:
    """The description of a result, and its arrays, read-only.

    Raises:
        HeadlabError: If the file is damaged.
    """
    arrays = read_arrays(folder / "result.npz")
    for array in arrays.values():
        array.flags.writeable = False  # a store shares what it has read among its callers
    text = arrays.get("about")
    if text is None or text.shape != () or text.dtype.kind != "U":
        raise HeadlabError("its result has no description", code="result.about_missing")
    description: Json = parse_json(str(text), "about")
    if not isinstance(description, dict) or not isinstance(description.get("meta"), dict):
        raise HeadlabError(
            "the description of its result is missing or cannot be read", code="result.about_torn"
        )
    return description, arrays


def read_grid(value: Json, members: Json = None) -> HeadGrid:
    """A head grid, {stack: heads per layer}. Raises HeadlabError if it is not one.

    Args:
        value: The grid.
        members: The group of every neuron, where it has groups of neurons.
    """
    counts = value if isinstance(value, dict) else {}
    are_head_counts = all(map(_are_head_counts, counts.values()))
    if not are_head_counts or not any(
        any(heads) for heads in counts.values() if isinstance(heads, list)
    ):
        raise HeadlabError("its grid is not {stack: heads per layer}", code="result.grid_invalid")
    try:
        return HeadGrid.from_json(counts, members)
    except TypeError as error:
        raise HeadlabError(
            f"its groups of neurons are malformed ({error})", code="result.groups_invalid"
        ) from error


def _are_head_counts(value: Json) -> bool:
    """Whether a value is a list of numbers of heads."""
    if not isinstance(value, list):
        return False
    return all(type(count) is int and 0 <= count <= 4096 for count in value)


Plain = TypeVar("Plain", bound=bool | int | float | str)


def read_field(description: Mapping[str, Json], name: str, kind: type[Plain]) -> Plain:
    """A field of a result's description (a float may be stored as an int).

    Raises:
        HeadlabError: For another type.
    """
    value = description.get(name)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise HeadlabError(
            f"its {name} is {value!r:.60}, not a {kind.__name__}", code="result.field_invalid"
        )
    try:
        return kind(value)
    except OverflowError as error:
        raise HeadlabError(
            f"its {name} is too large for a {kind.__name__}", code="result.field_too_large"
        ) from error


def check_array(name: str, array: Array, shape: tuple[int, ...], kind: type[np.generic]) -> None:
    """Raise HeadlabError unless an array has this shape and type, and is finite."""
    if array.shape != shape or array.dtype != kind:
        raise HeadlabError(
            f"its {name} is {array.dtype} {array.shape}, not {np.dtype(kind)} {shape}",
            code="result.array_mismatch",
        )
    if not np.isfinite(array).all():
        raise HeadlabError(
            f"its {name} holds a value that is not a number", code="result.array_not_finite"
        )
