"""A plugin of pytest that records a run of `make soak` in a file: `pytest -m soak --soak-out=FILE`.

Write the equals sign: pytest would take an existing file, given as an argument of its own, for
tests to run.
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


class SoakRecorder:
    """Records outcome, counts and seconds of every test, set-up and tear-down included."""

    def __init__(self, path: Path, command: str) -> None:
        self._out = path
        self._command = command
        self._commit = tested_commit()  # the tree may change before the run ends
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
        rows = []
        for name, test in sorted(self._tests.items()):
            row = {
                "test": name,
                "outcome": test["outcome"],
                "seconds": round(test["seconds"], 1),
            }
            if test["counts"]:
                row["counts"] = test["counts"]
            rows.append(row)
        soak_record = {
            "command": self._command,
            "commit": self._commit,
            "python": platform.python_version(),
            "cores": allowed_processors(),
            "exit": int(exitstatus),
            "seconds": round(sum(row["seconds"] for row in rows), 1),
            "tests": rows,
        }
        self._out.parent.mkdir(parents=True, exist_ok=True)
        self._out.write_text(json.dumps(soak_record, indent=1) + "\n", encoding="utf-8")


def tested_commit() -> str:
    """The commit that is tested, with a "+" if the tree differs from it."""
    root = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        process = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
        return process.stdout.strip()

    head_commit = git("rev-parse", "HEAD")
    if head_commit and git("status", "--porcelain", "--untracked-files=no"):
        return head_commit + "+"
    return head_commit


def register_recorder(config: pytest.Config) -> None:
    """Register the plugin if pytest was given `--soak-out`; with `-n`, in the main process only."""
    path = config.getoption("--soak-out")
    if path is not None and not hasattr(config, "workerinput"):
        command = shlex.join(["pytest", *map(str, config.invocation_params.args)])
        config.pluginmanager.register(SoakRecorder(Path(path), command), "soaking")
