"""How long `make test` takes and whether it is calm: whole runs, idle and beside two busy loops, and the presses.

    python benchmarks/suite.py idle idle busy busy busy presses

Each word is a run of the suite, or the 300 presses in a browser (`tests/browser/test_stress.py`, full size, which
brings busy programs of its own). `benchmarks/results/suite.json` is written after each, so a call that is cut off
loses only the run under way; runs are added to those that are there as long as nothing changes that the suite runs,
or with --add: each run says its commit, and so do the presses.
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
OUT = ROOT / "benchmarks" / "results" / "suite.json"
COUNTS = ("passed", "failed", "errors", "skipped", "deselected", "rerun")
PRESSES = ["-m", "pytest", "-m", "soak", "tests/browser/test_stress.py"]


def closing(text: str) -> dict[str, int]:
    """The counts of pytest's closing line, the last one of a text; a count that is not there is 0."""
    lines = [line for line in text.splitlines() if re.search(r"\d+ \w+.* in [\d.]+s", line)]
    found = {
        name.removesuffix("s") if name == "error" else name: int(n)
        for n, name in re.findall(r"(\d+) (\w+)", lines[-1] if lines else "")
    }
    found["errors"] = found.get("errors", 0) + found.pop("error", 0)
    return {name: found.get(name, 0) for name in COUNTS}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many programs that do nothing but keep a processor busy."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def whole_run(loops: int) -> dict[str, Any]:
    """One `make test`: its counts, seconds and exit code."""
    begun = time.monotonic()
    with busy(loops):
        done = subprocess.run(
            ["make", "test"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    seconds = round(time.monotonic() - begun)
    if done.returncode:
        print(done.stdout[-20_000:], done.stderr[-5_000:])
    return {**closing(done.stdout), "busy": loops > 0, "seconds": seconds, "exit": done.returncode}


def presses() -> dict[str, Any]:
    """The presses of the full size: how many were made, lost and doubled, by kind."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "presses.json"
        environment = {**os.environ, "HEADLAB_PRESSES_OUT": str(out)}
        done = subprocess.run(
            [sys.executable, *PRESSES], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        if not out.exists():
            raise SystemExit(f"the presses did not come to their end:\n{done.stdout[-5000:]}")
        told: dict[str, Any] = json.loads(out.read_text("utf-8"))
    if done.returncode:
        print("\n".join(told["trace"]))
    return told


def same_code(commit: str | None) -> bool:
    """Whether nothing but results has changed since a commit, in what is committed and what is not."""
    if commit is None:
        return False
    compared = ["git", "diff", "--quiet", commit, "--", ".", ":!benchmarks/results"]
    return subprocess.run(compared, cwd=ROOT, check=False).returncode == 0


def main(words: Sequence[str] | None = None) -> None:
    """Do what the words ask for, and write the file after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=("idle", "busy", "presses"))
    parser.add_argument(
        "--add",
        action="store_true",
        help="keep the runs that are there, though the code has changed",
    )
    asked = parser.parse_args(words)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    at = commit.stdout.strip()
    kept = json.loads(OUT.read_text("utf-8")) if OUT.exists() else {}
    told = (
        {**kept, "commit": at}
        if asked.add or same_code(kept.get("commit"))
        else {"commit": at, "runs": []}
    )
    for what in asked.what:
        if what == "presses":
            made = presses()
            told |= {
                "presses": made["presses"],
                "presses_by_kind": made["made"],
                "presses_commit": at,
            }
            told |= {f"presses_{name}": sum(made[name].values()) for name in ("lost", "doubled")}
        else:
            told["runs"].append({**whole_run(2 if what == "busy" else 0), "commit": at})
            for name in ("idle", "busy"):
                seconds = [
                    run["seconds"] for run in told["runs"] if run["busy"] == (name == "busy")
                ]
                told[f"{name}_seconds"] = max(seconds, default=None)
        add = " --add" * asked.add
        told["command"] = f"{told.get('command', 'python benchmarks/suite.py')}{add} {what}"
        OUT.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
        print(what, json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
