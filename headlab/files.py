"""Writing files whole or not at all, and reading JSON that may be anything."""

from __future__ import annotations

import errno
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError

MAX_JSON_BYTES = 4 << 20


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, sync it, then put it in place.

    Raises HeadlabError when the disk is full or the folder cannot be written; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):  # the sentence above says more than a failed clean-up
            temporary.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError) -> HeadlabError:
    """The sentence for a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HeadlabError(
            f"no space left to write {path}; free some and run the same command again, it goes on where it was"
        )
    return HeadlabError(f"cannot write {path} ({error.strerror}); choose a folder you may write to")


def write_json(path: Path, value: object) -> None:
    """Write readable JSON atomically; refuses NaN."""
    write_atomic(path, (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """JSON from a file. Raises HeadlabError if it is missing, too large, or not JSON."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise HeadlabError(
                f"{path} is larger than {MAX_JSON_BYTES >> 20} MiB; this is not one of headlab's JSON files"
            )
        text = path.read_bytes()
    except OSError as error:
        raise HeadlabError(f"cannot read {path} ({error.strerror}); check the path") from error
    return parse_json(text, str(path))


def parse_json(text: bytes | str, what: str) -> Any:
    """JSON from text. Raises HeadlabError naming `what` if it is not valid JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise HeadlabError(f"{what} is not valid JSON ({error}); export it again") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
