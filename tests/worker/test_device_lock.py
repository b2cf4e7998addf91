"""One worker a GPU, held by a lock that ends with its process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from support.expected_errors import raises

from headlab.worker.model_host import hold, hold_device

HOLDER = """
import sys
from pathlib import Path
from headlab.worker.model_host import hold
lock_file = hold("GPU-1", "cuda:0", Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_processor_is_shared(tmp_path: Path) -> None:
    assert hold_device(torch.device("cpu"), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_second_worker_of_a_gpu_is_refused_until_the_first_has_gone_however_it_ends(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with raises("device.in_use", holder.pid, "cuda:0", "--device"):
            hold("GPU-1", "cuda:0", tmp_path)
        hold("GPU-2", "cuda:1", tmp_path).close()
        holder.kill()
        holder.wait()
    with hold("GPU-1", "cuda:0", tmp_path) as lock_file:
        lock_file.seek(0)
        assert lock_file.read() == str(os.getpid()).encode()


def test_a_lock_file_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    lock_file = tmp_path / f"headlab-{os.getuid()}-GPU-1.lock"
    lock_file.symlink_to(tmp_path / "mine")
    with raises("file.unwritable"):
        hold("GPU-1", "cuda:0", tmp_path)
    assert (tmp_path / "mine").read_text() == "precious"
