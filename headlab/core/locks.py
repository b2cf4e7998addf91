"""Locks that end with their holder: flock, or where there is none a file that names the holder.

Both are taken with filelock. Its `FileLock`, which joins the two, would not do: it turns to a file
for the error ENOSYS alone, while NFS and Lustre report others, and takes over from a killed holder
by swapping two names, which these file systems cannot do.
"""

from __future__ import annotations

import errno
import io
import os
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported where a file is locked: most commands lock none
    from filelock import MarkerSoftFileLock, OwnerRecord

# What flock says on a file system without it: NFS without a lock daemon, Lustre without `-o flock`,
# some FUSE.
NO_FLOCK = frozenset(
    (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)
)
# Between attempts to take a lock: those that are waited for are held that short.
RETRY_SECONDS = 0.001
MARKER_SUFFIX = ".holder"
TAKEOVER_SUFFIX = ".takeover"
# Age of a marker without a holder's name whose maker was killed before it wrote the name.
UNWRITTEN_SECONDS = 60.0
# Field of /proc/PID/stat, counted from the state, which follows the name of the command.
START_TIME_FIELD = 19


class Flock(Enum):
    """What came of an attempt to take a lock with flock."""

    TAKEN = "taken"
    HELD = "held by another process"
    MISSING = "not known to this file system"


def flock(descriptor: int, *, wait: bool) -> Flock:
    """Lock an open file or folder until it is closed or its holder is killed.

    Args:
        descriptor: Of the open file.
        wait: Whether to wait until no other process holds it.

    Raises:
        OSError: The lock failed for another reason than a holder or the file system.
    """
    from filelock import lock_descriptor

    try:
        is_taken = lock_descriptor(descriptor, blocking=wait, poll_interval=RETRY_SECONDS)
    except OSError as error:
        if error.errno in NO_FLOCK:
            return Flock.MISSING
        raise
    return Flock.TAKEN if is_taken else Flock.HELD


class LockedFile(io.FileIO):
    """A file that this process alone holds, from `lock_file` until it is closed.

    Attributes:
        marker: The file beside it that names this process; None where the kernel keeps the lock.
    """

    marker: MarkerSoftFileLock | None = None

    @property
    def notice(self) -> str:
        """What the user should know of a lock that the kernel does not keep.

        Empty where it does.
        """
        if self.marker is None:
            return ""
        return (
            f"the file system of {self.name} has no locks (flock), so {self.marker.lock_file} "
            "stands in for one: it names this process, and a later one on this computer takes it "
            "over if this one is killed"
        )

    def close(self) -> None:
        """Give the lock up, and close the file."""
        marker = self.marker
        self.marker = None
        try:
            if marker is not None:
                marker.release()
        finally:
            super().close()


def lock_file(path: Path, opener: Callable[[str, int], int] | None = None) -> LockedFile | None:
    """Open a file and hold it against all other processes, without waiting.

    None if another process holds it. Where the file system has no flock, a marker beside the file
    stands in. A marker is heeded where flock works too: another computer may see the same folder
    without it.

    Args:
        path: Path of the file, which is created if it is missing; its folder exists.
        opener: Opens the path with flags, as for `open`; None for a plain one.

    Raises:
        OSError: The file or the marker cannot be opened or written.
    """
    file = LockedFile(path, "a+", opener=opener)
    try:
        outcome = flock(file.fileno(), wait=False)
        if outcome is Flock.HELD:
            file.close()
            return None
        marker_path = marker_of(path)
        if outcome is Flock.MISSING or marker_path.exists():
            file.marker = take_marker(marker_path)
            if file.marker is None:
                file.close()
                return None
    except BaseException:
        file.close()
        raise
    return file


def marker_of(path: Path) -> Path:
    """Path of the marker that stands in for flock on a file."""
    return path.with_name(path.name + MARKER_SUFFIX)


def holder_of(path: Path) -> str:
    """Which process and computer the marker of a file names, and what to do if it has ended.

    Empty without a marker.
    """
    marker_path = marker_of(path)
    if not marker_path.exists():
        return ""
    from filelock import MarkerSoftFileLock

    holder = MarkerSoftFileLock(marker_path).owner
    holder_text = "no process"
    if holder is not None:
        holder_text = f"process {holder.pid} on {holder.hostname.partition('?')[0]}"
    return f"{marker_path} names {holder_text} as its holder; if that has ended, delete this file"


def take_marker(path: Path) -> MarkerSoftFileLock | None:
    """Create a file that names this process, or take over that of a process that has ended.

    None if another process holds it. filelock itself takes over from a process that has ended on
    this computer, by swapping two names, which network file systems cannot do. There the old marker
    is deleted by whoever holds a second marker, whose own abandoned ones are taken over in the same
    way: so no marker is deleted that another process has just created.

    Raises:
        OSError: The marker cannot be written.
    """
    from filelock import MarkerSoftFileLock

    marker = MarkerSoftFileLock(path, timeout=0, thread_local=False)
    if _acquire(marker):
        return marker
    takeover = take_marker(path.with_name(path.name + TAKEOVER_SUFFIX))
    if takeover is None:
        return None
    try:
        if not _is_abandoned(marker, takeover):
            return None
        path.unlink(missing_ok=True)
        return marker if _acquire(marker) else None
    finally:
        takeover.release()


def _acquire(marker: MarkerSoftFileLock) -> bool:
    from filelock import Timeout

    try:
        marker.acquire()
    except Timeout:
        return False
    return True


def _is_abandoned(marker: MarkerSoftFileLock, own_marker: MarkerSoftFileLock) -> bool:
    """Whether the holder of a marker has certainly ended.

    Args:
        marker: The marker.
        own_marker: A marker that names this process.
    """
    holder = marker.owner
    this_process = own_marker.owner
    if holder is not None and this_process is not None:
        return _has_ended(holder, this_process)
    try:
        age = Path(own_marker.lock_file).stat().st_mtime - Path(marker.lock_file).stat().st_mtime
    except FileNotFoundError:  # given up meanwhile
        return True
    return age > UNWRITTEN_SECONDS


def _has_ended(holder: OwnerRecord, this_process: OwnerRecord) -> bool:
    """Whether a process of this computer has ended; False for one of another computer or container.

    A start time of filelock holds the computer's boot in its upper bits, and clock ticks since then
    in the lower 64.
    """
    if holder.hostname != this_process.hostname:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it runs, as another user
        pass
    if holder.start is None or this_process.start is None:
        return False
    boots = {holder.start >> 64, this_process.start >> 64} - {0}  # 0: could not be read
    if len(boots) > 1:
        return True
    ticks = _start_ticks(holder.pid)
    return ticks is not None and ticks != holder.start % 2**64


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None where that cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[START_TIME_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def is_older_than(path: Path, seconds: float) -> bool:
    """Whether a file was last changed longer ago than this; a folder with all directly in it."""
    modification_times = [path.stat().st_mtime]
    if path.is_dir():
        modification_times += [entry.lstat().st_mtime for entry in path.iterdir()]
    return time.time() - max(modification_times) > seconds
