"""Atomic file writing, and reading of untrusted JSON."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

from headlab.core.errors import HeadlabError, require_type
from headlab.core.locks import Flock, flock, is_older_than

MAX_JSON_BYTES = 4 << 20
MAX_SENT_BYTES = 16 << 20  # of the files that a task is made from on a page
TEMPORARY_NAME = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")
NUMBERS_BELOW_EACH_OTHER = re.compile(r"\[\n *(-?\d+(?:,\n *-?\d+)*)\n *\]")
# The disk is full, the quota exceeded, or the limit of a file's size reached.
FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# a file system that cannot flush one file
NO_SYNC_ERRNOS = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.ENOSYS,
)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}", re.ASCII)
"""A model's name on the hub, like owner/name; the path of a folder may look alike.

A link may name any model on the hub, but no folder on this machine.
"""
POSIX = os.name == "posix"
# Age of a temporary file that counts as abandoned where a file system has no locks.
STALE_SECONDS = 3600.0


CACHE_VARIABLE = "HEADLAB_CACHE"
DEMO_VARIABLE = "HEADLAB_DEMO"
# What `headlab app` tells the dashboard: what it shows first, and where its worker computes.
APP_MODEL_VARIABLE = "HEADLAB_APP_MODEL"
APP_TASK_VARIABLE = "HEADLAB_APP_TASK"
APP_DEVICE_VARIABLE = "HEADLAB_APP_DEVICE"
# What to do if a folder that nobody named cannot be written, as in a container with any user.
CHOOSE_WRITABLE_FOLDER = "choose a folder you may write to"
CHOOSE_CACHE = f"{CHOOSE_WRITABLE_FOLDER} for results, with --cache or {CACHE_VARIABLE}"
CHOOSE_HUB_CACHE = "set HF_HOME to a folder you may write to; files from the hub are kept there"
CHOOSE_MODEL_CACHE = (
    "set XDG_CACHE_HOME to a folder you may write to; models are converted into it once"
)


def default_root() -> Path:
    """Where results and saved tasks are stored.

    $HEADLAB_CACHE, or cache/ in the working folder if there is such a folder, or the folder in
    which this platform keeps the data of programs.

    Raises:
        HeadlabError: This user has no home, in which that folder would be.
    """
    chosen_folder = os.environ.get(CACHE_VARIABLE)
    if chosen_folder:
        return Path(chosen_folder)
    folder_here = Path("cache")
    if folder_here.is_dir():
        return folder_here
    from platformdirs import user_data_path

    data_folder = require_known_home(user_data_path("headlab", appauthor=False), CHOOSE_CACHE)
    return data_folder / "results"


def demo_results() -> Path | None:
    """The folder of the demo's results, which come with headlab; None if $HEADLAB_DEMO is off."""
    if os.environ.get(DEMO_VARIABLE, "").strip().lower() in ("off", "no", "false", "0"):
        return None
    return Path(__file__).parents[1] / "embedded" / "results"


def require_known_home(folder: str | Path, remedy: str) -> Path:
    """A folder that a library gives, as a path, unless its `~` could not be expanded.

    Args:
        folder: The folder as a library gives it; `~` is left in it where the system knows no home
            of this user.
        remedy: What to do, for the message.

    Raises:
        HeadlabError: No home is known, and a folder called `~` would be made where the command
            runs.
    """
    path = Path(folder)
    if path.parts[:1] == ("~",):
        raise HeadlabError(
            f"this user has no home folder (HOME is not set), so {path} cannot be found; {remedy}",
            code="home.unknown",
        )
    return path


def as_path(name: str, value: str | Path) -> Path:
    """An argument as a path. Raises HeadlabError for what is none."""
    require_type(name, value, (str, os.PathLike), "a path")
    return Path(value)


def write_atomic(path: Path, data: bytes, remedy: str = CHOOSE_WRITABLE_FOLDER) -> None:
    """Write a file under a temporary name, sync it, then move it into place.

    Temporary files left in the folder by killed processes are removed.

    Args:
        path: Path of the file; its folder is made if it is missing.
        data: The whole content.
        remedy: What to do if the folder cannot be written, for the message.

    Raises:
        HeadlabError: The disk is full, or the folder cannot be written; the old file then stays. So
            does a device, a pipe or a folder of that name, which would be replaced where the user
            may do so (as root in a container, /dev/null for the whole machine).
    """
    require_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        make_folder(path.parent)
        with _open_locked(temporary) as file:
            file.write(data)
            file.flush()
            sync_file(file.fileno())
            if POSIX:
                temporary.replace(path)  # while still locked
        if not POSIX:
            # Windows cannot rename an open file, and nothing is swept there.
            temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable_error(path, error, remedy) from error
    finally:
        with suppress(OSError):  # the error above matters more than a failed clean-up
            temporary.unlink(missing_ok=True)
    sweep(path.parent)


def require_replaceable(path: Path) -> None:
    """Raise HeadlabError if a file cannot be written under this name.

    The name may be none of a file, or belong to something else.
    """
    if not path.name:
        raise HeadlabError(
            f"'{path}' is a folder, not a file to write; name a file in it", code="file.is_folder"
        )
    mode = file_mode(path)
    if mode is None or stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise unwritable_error(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    raise HeadlabError(
        f"{path} is a device or a pipe, and a file would be put in its place; name a file",
        code="file.not_regular",
    )


# What no file can have: a name or a path that is too long, a link that leads back to itself, half a
# letter, a zero.
IMPOSSIBLE_PATH_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def file_mode(path: str | Path) -> int | None:
    """The mode of what is at a path that a user gave, as in `stat`.

    None for nothing, and for a name that no file can have: `Path.exists` and its like raise OSError
    for a name of 256 letters.

    Raises:
        HeadlabError: The system does not let the user look.
    """
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - without the cost of a Path
    except ValueError:
        return None
    except OSError as error:
        if error.errno in IMPOSSIBLE_PATH_ERRNOS:
            return None
        raise HeadlabError(
            f"cannot look at {path} ({error.strerror}); choose a path that you may read",
            code="file.unreadable",
        ) from error


def reason_of(error: OSError | ValueError) -> str:
    """Why a file cannot be used.

    The system raises ValueError for a path with a zero byte or half a letter.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def is_folder(path: str | Path) -> bool:
    """Whether there is a folder at a path that a user gave; errors as in `file_mode`."""
    return stat.S_ISDIR(file_mode(path) or 0)


def is_file(path: str | Path) -> bool:
    """Whether there is a regular file at a path that a user gave; errors as in `file_mode`."""
    return stat.S_ISREG(file_mode(path) or 0)


def _open_locked(temporary: Path) -> BinaryIO:
    """A new locked file, so that no sweep takes it for a dead process's leftover."""
    while True:
        file = temporary.open("wb")
        if not lock_descriptor(file, wait=True) or os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # swept before it was locked


def lock_descriptor(file: BinaryIO | int, *, wait: bool) -> bool:
    """Lock a file until it is closed or its holder is killed.

    Returns False if the lock cannot be taken.
    """
    descriptor = file if isinstance(file, int) else file.fileno()
    try:
        return flock(descriptor, wait=wait) is Flock.TAKEN
    except OSError:
        return False


def sweep(folder: Path) -> None:
    """Remove temporary files that no process is writing."""
    with suppress(OSError):  # another process may be sweeping too, or own the file
        leftovers = [
            path
            for path in folder.iterdir()
            if TEMPORARY_NAME.fullmatch(path.name) and path.is_file()
        ]
        for leftover in leftovers:
            with leftover.open("rb") as file:
                # Another sweep may have removed it since, and its writer created a new file of this
                # name.
                if is_abandoned(leftover, file.fileno()) and os.fstat(file.fileno()).st_nlink:
                    leftover.unlink(missing_ok=True)


def is_abandoned(path: Path, descriptor: int) -> bool:
    """Whether no process holds a file or folder that its writer keeps locked.

    Without flock nothing tells; what has not changed for STALE_SECONDS is then taken for abandoned.

    Args:
        path: Path of the file or folder.
        descriptor: Descriptor of the open file or folder; it is locked afterwards.

    Raises:
        OSError: The file cannot be locked or looked at.
    """
    outcome = flock(descriptor, wait=False)
    if outcome is Flock.MISSING:
        return is_older_than(path, STALE_SECONDS)
    return outcome is Flock.TAKEN


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing; their names survive a power failure."""
    missing_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing_folders:
        sync_folder(path.parent)


def sync_file(descriptor: int) -> None:
    """Write an open file through to the disk, where the file system can.

    Raises:
        OSError: If the disk fails.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC_ERRNOS:
            raise


def set_mode(path: Path, mode: int) -> None:
    """Set the permissions of a file or folder.

    Without effect on a file system that knows none (CIFS, FAT).
    """
    with suppress(OSError):
        path.chmod(mode)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    with suppress(OSError):  # not every file system supports this; the file is in place either way
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_line(path: Path, line: str, remedy: str = CHOOSE_WRITABLE_FOLDER) -> None:
    """Append a line to a text file.

    Args:
        path: Path of the file; its folder is made if it is missing.
        line: The line.
        remedy: As for `write_atomic`.

    Raises:
        HeadlabError: The file cannot be written.
    """
    try:
        make_folder(path.parent)
        # Non-blocking: opening a pipe without a reader would wait for ever.
        descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o666
        )
        with open(descriptor, "a", encoding="utf-8") as file:  # noqa: PTH123 - opens a descriptor
            file.write(line.rstrip("\n") + "\n")
    except OSError as error:
        raise unwritable_error(path, error, remedy) from error


# What the system says of a disk, and not of a network: its client raises OSError for that, too.
DISK_ERRNOS = (
    *FULL_ERRNOS,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOENT,
    errno.EIO,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EMFILE,
    errno.ENFILE,
)


def is_disk_error(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error says that a file or folder could not be written.

    A failure of the network is none.
    """
    return isinstance(error, OSError) and error.errno in DISK_ERRNOS


def unwritable_error(
    path: Path, error: OSError, remedy: str = CHOOSE_WRITABLE_FOLDER
) -> HeadlabError:
    """The error for a file that could not be written.

    Args:
        remedy: What to do where the folder is the reason.
    """
    if error.errno in FULL_ERRNOS:
        return HeadlabError(
            f"no space left to write {path}; free some, then run the same command again to resume",
            code="file.no_space",
        )
    if error.errno == errno.EISDIR:
        return HeadlabError(
            f"cannot write {path}: a folder has that name; move it away and run the command again",
            code="file.is_folder",
        )
    return HeadlabError(f"cannot write {path} ({error.strerror}); {remedy}", code="file.unwritable")


def json_with_rows(value: object) -> str:
    """Readable JSON in which a list of whole numbers is one line; refuses NaN."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)

    def as_row(numbers: re.Match[str]) -> str:
        return f"[{', '.join(number.strip() for number in numbers[1].split(','))}]"

    # No string holds a line break, which JSON writes as two characters there.
    return NUMBERS_BELOW_EACH_OTHER.sub(as_row, text)


def write_json(path: Path, value: object, remedy: str = CHOOSE_WRITABLE_FOLDER) -> None:
    """Write readable JSON atomically; refuses NaN.

    Args:
        remedy: As for `write_atomic`.
    """
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, f"{text}\n".encode(), remedy)


def read_json(path: Path) -> Any:
    """JSON from a file. Raises HeadlabError if it is missing, too large, or not JSON."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device might never end
            raise HeadlabError(f"{path} is not a file; check the path", code="file.missing")
        if status.st_size > MAX_JSON_BYTES:
            raise HeadlabError(
                f"{path} is larger than {MAX_JSON_BYTES >> 20} MiB; this is not one of headlab's "
                "JSON files",
                code="file.json_too_large",
            )
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        raise HeadlabError(
            f"cannot read {path} ({reason_of(error)}); check the path", code="file.unreadable"
        ) from error
    return parse_json(text, str(path))


def parse_json(text: bytes | str, source: str) -> Any:
    """JSON from text.

    Args:
        text: The JSON.
        source: What it was read from, for messages.

    Raises:
        HeadlabError: It is not valid JSON, repeats a field in an object, or holds a number that
            overflows a float (1e999).
    """
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
            object_pairs_hook=_object_without_repeats,
        )
    except (ValueError, RecursionError) as error:
        raise HeadlabError(
            f"{source} is not valid JSON ({error}); export it again",
            code=error.code if isinstance(error, _RejectedJson) else "json.invalid",
        ) from error


class _RejectedJson(ValueError):
    """JSON that Python's parser accepts and headlab rejects."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


def is_text(value: str) -> bool:
    """Whether a text can be encoded as UTF-8; JSON may contain a lone surrogate, which cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> float:
    raise _RejectedJson(f"{name} is not a JSON number", code="json.constant")


def _parse_finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _RejectedJson(
            f"{digits[:20]} is too large for a number", code="json.number_too_large"
        )
    return value


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of an object's fields. Raises _Unfit if a name is repeated."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        repeated_name = next(repeated for repeated in names if names.count(repeated) > 1)
        raise _RejectedJson(
            f"an object has the name {repeated_name[:40]!r} twice", code="json.name_twice"
        )
    return value
