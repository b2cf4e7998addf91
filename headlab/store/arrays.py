"""Arrays as npz files: plain ones, as numpy.savez writes them, and never an unpickled object."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headlab.errors import HeadlabError

MAX_ARRAY_BYTES = 64 << 20
Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


def npz(arrays: Arrays) -> bytes:
    """Arrays by name as the bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    return buffer.getvalue()


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays of an npz file, never unpickling. Raises HeadlabError if it is torn, too large or not one."""
    try:
        if not path.is_file():  # a pipe would be waited for, a device read for ever
            raise HeadlabError(f"{path.name} is missing or no file", code="arrays.missing")
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAX_ARRAY_BYTES:
                raise HeadlabError(
                    f"{path.name} unpacks to more than {MAX_ARRAY_BYTES >> 20} MiB; it is not one of headlab's",
                    code="arrays.too_large",
                )
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise HeadlabError(
            f"{path.name} is torn or not an npz file ({type(error).__name__})", code="arrays.torn"
        ) from error


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """One array, read whole and against its checksum before a byte of it is interpreted."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("compressed, which headlab's files are not")
    data = archive.read(entry)
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not the version of the npy format that headlab writes")
    try:
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except (SyntaxError, TypeError, tokenize.TokenError) as error:  # of the parser that numpy hands the header to
        raise ValueError("a header that is not numpy's") from error
    # numpy makes room for what the header claims before it reads.
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError("another size than its header says")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
