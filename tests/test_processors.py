"""How many threads a process uses: as many as affinity and cgroups allow.

The cgroups are made up; affinity is that of real processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headlab.core import THREADS_VARIABLE, allowed_processors, limit_threads, quotas

# The mounts of version 2, and of version 1's controllers, as in mountinfo, below a test's folder.
VERSION_2 = "31 23 0:28 {root} {folder}/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
VERSION_1 = "33 31 0:30 {root} {folder}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
OTHER_MOUNTS = [
    "32 31 0:29 / {folder}/cpuset rw - cgroup cgroup rw,cpuset",
    "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw",
]


def process_folder(
    folder: Path, mounts: list[str], memberships: list[str], files: dict[str, str], root: str = "/"
) -> Path:
    """A folder like /proc/self, of a process in cgroups whose files are below `folder`."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    process = folder / "self"
    process.mkdir()
    folder_in_mountinfo = str(folder).replace(" ", "\\040")
    lines = [
        line.format(folder=folder_in_mountinfo, root=root) for line in [*mounts, *OTHER_MOUNTS]
    ]
    (process / "mountinfo").write_text("\n".join(lines) + "\n")
    (process / "cgroup").write_text("\n".join(memberships) + "\n")
    return process


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({"unified/cpu.max": "150000 100000\n"}, [1.5]),
        ({"unified/cpu.max": "max 100000\n"}, []),
        ({"unified/cpu.max": "50000\n"}, [0.5]),
        ({"unified/cpu.max": ""}, []),
        ({"unified/cpu.max": "nonsense of a kernel\n"}, []),
        ({"unified/cpu.max": "100000 0\n"}, []),
        ({}, []),
        ({"unified/a/b/cpu.max": "max 100000\n", "unified/a/cpu.max": "300000 100000\n"}, [3.0]),
        (
            {"unified/a/b/cpu.max": "400000 100000\n", "unified/a/cpu.max": "300000 100000\n"},
            [4.0, 3.0],
        ),
        ({"unified/a/other/cpu.max": "100000 100000\n"}, []),
    ],
)
def test_reported_25_every_cgroup_above_a_process_limits_it(
    tmp_path: Path, files: dict[str, str], limits: list[float]
) -> None:
    process = process_folder(tmp_path, [VERSION_2], ["0::/a/b"], files)
    assert [*quotas(process)] == limits


@pytest.mark.parametrize(
    ("quota", "limits"),
    [("250000", [2.5]), ("-1", []), ("0", []), ("", []), ("not a number", [])],
)
def test_reported_25_quotas_of_version_1_are_read_beside_an_empty_version_2(
    tmp_path: Path, quota: str, limits: list[float]
) -> None:
    files = {
        "cpu,cpuacct/job/cpu.cfs_quota_us": f"{quota}\n",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
    }
    memberships = ["4:cpuset:/elsewhere", "3:cpu,cpuacct:/job", "0::/"]
    process = process_folder(tmp_path, [VERSION_1, VERSION_2], memberships, files)
    assert [*quotas(process)] == limits


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/docker/c0ffee", "/docker/c0ffee"),
        ("/docker/c0ffee", "/elsewhere"),
        ("/../job", "/"),
        ("/", "/"),
    ],
)
def test_reported_25_a_container_sees_its_own_cgroup_at_the_mount(
    tmp_path: Path, path: str, root: str
) -> None:
    files = {"unified/cpu.max": "200000 100000\n"}
    process = process_folder(tmp_path, [VERSION_2], [f"0::{path}"], files, root)
    assert [*quotas(process)] == [2.0]


def test_reported_25_paths_with_spaces_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "c groups"
    folder.mkdir()
    files = {"unified/my job/cpu.max": "200000 100000\n"}
    process = process_folder(folder, [VERSION_2], ["0::/my job"], files)
    assert [*quotas(process)] == [2.0]


@pytest.mark.parametrize(
    ("quota", "processors"), [(1, 1), (110_000, 2), (200_000, 2), (10_000_000, 8)]
)
def test_reported_25_a_quota_is_rounded_up_and_affinity_is_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: int, processors: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(8)}, raising=False)
    files = {"unified/cpu.max": f"{quota} 100000\n"}
    process = process_folder(tmp_path, [VERSION_2], ["0::/"], files)
    assert allowed_processors(process) == processors


def test_reported_25_where_nothing_is_limited_all_processors_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the figures and content keys of an unlimited machine stay the same."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    environment: dict[str, str] = {}
    limit_threads(environment, tmp_path / "no such folder")
    assert (allowed_processors(tmp_path / "no such folder"), environment) == (12, {})


@pytest.mark.parametrize(
    ("variables", "threads"),
    [({}, "2"), ({THREADS_VARIABLE: ""}, "2"), ({THREADS_VARIABLE: "5"}, "5")],
)
def test_reported_25_commands_heed_a_quota_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], threads: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(8)}, raising=False)
    environment = dict(variables)
    files = {"unified/cpu.max": "200000 100000\n"}
    limit_threads(environment, process_folder(tmp_path, [VERSION_2], ["0::/"], files))
    assert environment[THREADS_VARIABLE] == threads


WORKER_THREADS = """
import sys, torch
from pathlib import Path
from headlab.worker.model_host import ModelHost
ModelHost(Path(sys.argv[1]), "cpu")
print(torch.get_num_threads())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_reported_25_a_worker_on_one_processor_computes_on_one_thread(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != THREADS_VARIABLE}
    processor = min(os.sched_getaffinity(0))
    process = subprocess.run(
        [sys.executable, "-c", WORKER_THREADS, str(tmp_path)],
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(process.stdout) == 1
