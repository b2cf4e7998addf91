"""How long `make test` takes and whether it always passes: whole runs, idle and busy, and presses.

    python benchmarks/suite.py idle idle busy busy busy presses

Each argument is a run of the suite, idle or beside two busy loops, or the 300 presses in a browser
(`tests/browser/test_stress.py` at full size, which starts busy programs of its own).
`benchmarks/results/suite.json` is written after each, so a call that is interrupted loses only the
run under way. Runs are added to those in the file as long as no code has changed since, or with
--add. Each run names its commit, and so do the presses.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT_FILE = ROOT / "benchmarks" / "results" / "suite.json"
COUNTS = ("passed", "failed", "errors", "skipped", "deselected", "rerun")
PRESSES = ["-m", "pytest", "-m", "soak", "tests/browser/test_stress.py"]


def closing_counts(text: str) -> dict[str, int]:
    """The counts of the last of pytest's closing lines in a text; a missing count is 0."""
    lines = [line for line in text.splitlines() if re.search(r"\d+ \w+.* in [\d.]+s", line)]
    closing_line = lines[-1] if lines else ""
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", closing_line)}
    counts["errors"] = counts.get("errors", 0) + counts.pop("error", 0)
    return {name: counts.get(name, 0) for name in COUNTS}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Programs that do nothing but keep a processor busy, until the block ends."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def run_suite(loops: int) -> dict[str, Any]:
    """One `make test`: its counts, seconds and exit code."""
    start = time.monotonic()
    with busy(loops):
        process = subprocess.run(
            ["make", "test"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    seconds = round(time.monotonic() - start)
    if process.returncode:
        print(process.stdout[-20_000:], process.stderr[-5_000:])
    return {
        **closing_counts(process.stdout),
        "busy": loops > 0,
        "seconds": seconds,
        "exit": process.returncode,
    }


def press_counts() -> dict[str, Any]:
    """The presses at full size: how many were made, lost and doubled, by kind."""
    with tempfile.TemporaryDirectory() as folder:
        counts_file = Path(folder) / "presses.json"
        environment = {**os.environ, "HEADLAB_PRESSES_OUT": str(counts_file)}
        process = subprocess.run(
            [sys.executable, *PRESSES], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        if not counts_file.exists():
            raise SystemExit(f"the presses did not come to their end:\n{process.stdout[-5000:]}")
        counts: dict[str, Any] = json.loads(counts_file.read_text("utf-8"))
    if process.returncode:
        print("\n".join(counts["trace"]))
    return counts


def is_same_code(commit: str | None) -> bool:
    """Whether only results have changed since a commit, committed or not."""
    if commit is None:
        return False
    command = ["git", "diff", "--quiet", commit, "--", ".", ":!benchmarks/results"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the arguments name, and write the file after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=("idle", "busy", "presses"))
    parser.add_argument(
        "--add",
        action="store_true",
        help="keep the runs that are there, though the code has changed",
    )
    arguments = parser.parse_args(argv)
    git_output = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commit = git_output.stdout.strip()
    stored = json.loads(RESULT_FILE.read_text("utf-8")) if RESULT_FILE.exists() else {}
    if arguments.add or is_same_code(stored.get("commit")):
        report = {**stored, "commit": commit}
    else:
        report = {"commit": commit, "runs": []}
    for kind in arguments.what:
        if kind == "presses":
            counts = press_counts()
            report |= {
                "presses": counts["presses"],
                "presses_by_kind": counts["made"],
                "presses_commit": commit,
            }
            report |= {
                f"presses_{name}": sum(counts[name].values()) for name in ("lost", "doubled")
            }
        else:
            report["runs"].append({**run_suite(2 if kind == "busy" else 0), "commit": commit})
            idle_seconds = [row["seconds"] for row in report["runs"] if not row["busy"]]
            busy_seconds = [row["seconds"] for row in report["runs"] if row["busy"]]
            report["idle_seconds"] = max(idle_seconds, default=None)
            report["busy_seconds"] = max(busy_seconds, default=None)
        add = " --add" * arguments.add
        report["command"] = f"{report.get('command', 'python benchmarks/suite.py')}{add} {kind}"
        RESULT_FILE.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
        print(kind, json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
