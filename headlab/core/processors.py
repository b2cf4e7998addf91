"""How many processors this process may use, by its affinity and its cgroups.

`loky.cpu_count` reads affinity and the quota of the topmost cgroup alone, and torch the affinity
alone; a batch system or a systemd slice limits a cgroup further down.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import NamedTuple

THREADS_VARIABLE = (
    "OMP_NUM_THREADS"  # read by torch and by the libraries below it as they are loaded
)
PROCESS_FOLDER = Path("/proc/self")
# Controllers, none for version 2, and the path of a cgroup.
CGROUP_LINE = re.compile(r"\d+:([^:]*):(.*)")
OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")  # how spaces of paths are written in mountinfo


def allowed_processors(process: Path = PROCESS_FOLDER) -> int:
    """Processors that this process may use.

    They are those of its affinity, or its cgroups' quota if that is less.

    Args:
        process: Folder in which the kernel describes this process.

    Returns:
        At least 1; a quota of one and a half is 2.
    """
    return max(1, min([processors_of_affinity(), *map(math.ceil, quotas(process))]))


def processors_of_affinity() -> int:
    """Processors that this process may run on.

    All of the machine where the system keeps no such list.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_threads(environment: MutableMapping[str, str], process: Path = PROCESS_FOLDER) -> None:
    """Let torch take no more threads than a cgroup's quota allows.

    For a process that has not loaded it yet.

    Nothing changes where the environment names a number of threads, nor where affinity is the only
    limit, as torch heeds that itself.

    Args:
        environment: The environment of this process.
        process: As in `allowed_processors`.
    """
    allowed_count = allowed_processors(process)
    if allowed_count < processors_of_affinity() and not environment.get(THREADS_VARIABLE):
        environment[THREADS_VARIABLE] = str(allowed_count)


class Mount(NamedTuple):
    """A mounted hierarchy of cgroups.

    Attributes:
        root: The cgroup that is seen at `point`.
        version: 1 or 2.
    """

    version: int
    root: str
    point: Path
    controllers: frozenset[str]

    def limits_time(self, controllers: str) -> bool:
        """Whether it is the hierarchy of these controllers of a process, and may limit its time."""
        if not controllers:
            return self.version == 2
        return "cpu" in controllers.split(",") and "cpu" in self.controllers


def quotas(process: Path = PROCESS_FOLDER) -> Iterator[float]:
    """Processors' worth of time that each limited cgroup of this process may use."""
    for folder in cgroup_folders(process):
        limit = _quota_of_version_2(folder) or _quota_of_version_1(folder)
        if limit is not None:
            yield limit


def cgroup_folders(process: Path = PROCESS_FOLDER) -> Iterator[Path]:
    """Folders of the cgroups that limit the time of this process, and of all that they are in."""
    mounts = [*_mounts(process)]
    for membership in filter(None, map(CGROUP_LINE.fullmatch, _lines(process / "cgroup"))):
        controllers, path = membership.groups()
        for mount in mounts:
            if mount.limits_time(controllers):
                yield from _folders_up(mount, path)


def _mounts(process: Path) -> Iterator[Mount]:
    """Hierarchies of cgroups that this process sees; see proc_pid_mountinfo(5)."""
    for line in _lines(process / "mountinfo"):
        mount_text, _, type_text = line.partition(" - ")
        file_system, *_, options = type_text.split(" ")
        if file_system in ("cgroup", "cgroup2"):
            version = 2 if file_system == "cgroup2" else 1
            root, point = map(_without_escapes, mount_text.split(" ")[3:5])
            yield Mount(version, root, Path(point), frozenset(options.split(",")))


def _without_escapes(path: str) -> str:
    """A path of mountinfo with its spaces as they are."""
    return OCTAL_ESCAPE.sub(lambda code: chr(int(code[1], 8)), path)


def _folders_up(mount: Mount, path: str) -> Iterator[Path]:
    """The folder of a cgroup, and of those that it is in.

    Only the topmost for one outside of what is mounted.
    """
    relative_path = Path()
    if Path(path).is_relative_to(mount.root):
        relative_path = Path(path).relative_to(mount.root)
    if ".." in relative_path.parts:
        relative_path = Path()
    yield mount.point / relative_path
    yield from (mount.point / parent for parent in relative_path.parents)


def _quota_of_version_2(folder: Path) -> float | None:
    quota, period, *_ = [*_words(folder / "cpu.max"), "", ""]
    return _processors_of_quota(quota, period or "100000")


def _quota_of_version_1(folder: Path) -> float | None:
    quota = "".join(_words(folder / "cpu.cfs_quota_us"))
    period = "".join(_words(folder / "cpu.cfs_period_us"))
    return _processors_of_quota(quota, period)


def _processors_of_quota(quota: str, period: str) -> float | None:
    """A quota as a number of processors.

    None for "max", -1 and what is missing, which limit nothing.
    """
    if not quota.isdecimal() or not period.isdecimal() or not int(quota) or not int(period):
        return None
    return int(quota) / int(period)


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    """Lines of a file of the kernel's; none where this system or this cgroup does not have it."""
    try:
        return file.read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
