"""A plugin: what a run of `make soak` did, as a file. `pytest -m soak --soak-out=FILE`.

With the sign: pytest takes a file that is there, as a word of its own, for tests to run.
"""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headlab.core import allowed_processors


class Kept:
    """Outcome and seconds of every test of a run, set-up and tear-down included, and what it counted."""

    def __init__(self, out: Path, command: str) -> None:
        # as it is when the run begins
        self._out, self._command, self._commit = (
            out,
            command,
            commit(),
        )
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self._tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        row["seconds"] += report.duration
        row["counts"] = {
            name: value for name, value in report.user_properties if isinstance(value, int)
        }
        outcome = str(report.outcome)
        if outcome == "failed" or (outcome == "skipped" and row["outcome"] == "passed"):
            row["outcome"] = outcome

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        rows = [
            {"test": name, "outcome": row["outcome"], "seconds": round(row["seconds"], 1)}
            | ({"counts": row["counts"]} if row["counts"] else {})
            for name, row in sorted(self._tests.items())
        ]
        found = {
            "command": self._command,
            "commit": self._commit,
            "python": platform.python_version(),
            "cores": allowed_processors(),
            "exit": int(exitstatus),
            "seconds": round(sum(row["seconds"] for row in rows), 1),
            "tests": rows,
        }
        self._out.parent.mkdir(parents=True, exist_ok=True)
        self._out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def commit() -> str:
    """The commit that is tested; "+" where the tree differs from it."""
    root = Path(__file__).parents[2]

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    found = git("rev-parse", "HEAD")
    if found and git("status", "--porcelain", "--untracked-files=no"):
        return found + "+"
    return found


def keep(config: pytest.Config) -> None:
    """Write the file at the end, if it is asked for; with `-n`, in the process that started the others."""
    out = config.getoption("--soak-out")
    if out is not None and not hasattr(config, "workerinput"):
        words = shlex.join(["pytest", *map(str, config.invocation_params.args)])
        config.pluginmanager.register(Kept(Path(out), words), "soaking")
