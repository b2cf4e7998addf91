"""Runs of scores, as commands and as jobs of a worker, and the files that they leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headlab.worker.client import Client
from support.killable_processes import ProcessEnd
from support.waiting import wait_until

SIZE = 32


def score_arguments(model: Path, cache: Path, method: str, **options: Any) -> list[str]:
    arguments = ["score", "--model", str(model), "--languages", "de", "--method", method]
    arguments += ["--size", str(SIZE)]
    for name, value in options.items():
        arguments += ["-o", f"{name}={value}"]
    return [*arguments, "--cache", str(cache), "--json"]


def sha_of(process: ProcessEnd) -> str:
    """The hash of the scores that a command printed."""
    assert process.code == 0, process.stderr
    return str(json.loads(process.stdout)["languages"]["de"]["values_sha256"])


def leftovers(cache: Path) -> list[str]:
    """Files of a finished run's folder that should not be there."""
    files_of_a_result = ("spec.json", "result.npz", "log.txt")
    paths = cache.glob("[0-9a-f]*/*")
    return [path.name for path in paths if path.name not in files_of_a_result]


def address_of(home: Path, pid: int | None) -> str | None:
    """Where the worker of a process listens, once it says so; None: of any process."""
    try:
        announcement = json.loads((home / "worker.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return str(announcement["url"]) if pid in (None, announcement["pid"]) else None


def spec_of(model: Path) -> dict[str, Any]:
    return {
        "model": str(model),
        "task": "intents",
        "languages": ["de"],
        "method": "shapley",
        "size": SIZE,
        "options": {"samples": 1024, "target": None},
    }


def wait_until_done(client: Client, job: int) -> None:
    """Wait for the end of a job.

    A job that was given up because its worker died too often is resumed first.
    """
    if client.job(job).state == "failed":
        assert "the worker died" in client.job(job).error
        client.resume(job)
    wait_until(
        lambda: client.job(job).state not in ("queued", "running"), "the end of the job", 240
    )
    assert client.job(job).state == "done", client.job(job)
