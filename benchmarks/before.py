"""Whether an earlier commit answered sooner: its own benchmarks against today's, in one run.

    python benchmarks/before.py 282cee27            writes benchmarks/results/before.json (40 minutes)
    python benchmarks/before.py 282cee27 --smoke    one repetition of each, in both; writes nothing

Clones this repository twice, at the earlier commit and at HEAD, and runs `benchmarks/ui.py speed`
and `benchmarks/sessions.py` of each clone with the same Python and the same packages: earlier, HEAD,
HEAD, earlier, so that a machine that slows down or speeds up meets both alike. A figure is how many
times as long HEAD takes, as a ratio of medians; its interval resamples the waits of both.

Needs what benchmarks/ui.py needs. Uncommitted changes are not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from machine import ROOT, installed_version, machine_facts, write_json

RESULT_FILE = ROOT / "benchmarks" / "results" / "before.json"
ORDER = ("earlier", "head", "head", "earlier")
PACKAGES = ("torch", "transformers", "streamlit", "numpy")
RESAMPLES = 10_000
FEWEST = 5
SESSION_FIGURES = ("first_p50", "final_p50")


def clone(folder: Path, revision: str) -> str:
    """Check a commit of this repository out into a folder; its full hash."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "--quiet", revision], cwd=folder, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    )
    return head.stdout.strip()


def run_benchmark(folder: Path, name: str, *options: str) -> dict[str, Any]:
    """Run a benchmark of a clone with this Python; the JSON that it wrote.

    The clone's committed figures are removed before, so that they cannot be taken for measured ones.

    Args:
        folder: The clone, whose modules come before the installed ones.
        name: The benchmark, and the name of its result file.
        options: What follows on its command line.
    """
    command = [sys.executable, f"benchmarks/{name}.py", *options]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    result_file = folder / "benchmarks" / "results" / f"{name}.json"
    result_file.unlink(missing_ok=True)
    # sessions.py exits with 1 where a wait is above its limit; its figures are written all the same.
    process = subprocess.run(command, cwd=folder, env=environment, check=False)
    if "--smoke" in options:
        return {}
    if not result_file.exists():
        raise SystemExit(f"{name}.py in {folder.name} ended with {process.returncode}, no figures")
    return dict(json.loads(result_file.read_text(encoding="utf-8")))


def waits_of(folder: Path, smoke: bool) -> dict[str, list[float]]:
    """What one run of both benchmarks of a clone measured, by figure; milliseconds and megabytes."""
    if smoke:
        run_benchmark(folder, "ui", "speed", "--smoke")
        run_benchmark(folder, "sessions", "--smoke")
        return {}
    waits = {
        name: list(figure["measured"])
        for name, figure in run_benchmark(folder, "ui", "speed").items()
        if name.endswith(("_ms", "_mb")) and not name.startswith("decoder")
    }
    for row in run_benchmark(folder, "sessions")["settings"]:
        beside = "_beside_a_job" if row["job"] else ""
        for name in SESSION_FIGURES:
            waits[f"sessions_{row['sessions']}{beside}_{name}_ms"] = [1000 * row[name]]
    return waits


def ratio(earlier: Sequence[float], head: Sequence[float], seed: int = 0) -> dict[str, Any]:
    """How many times as large the median of HEAD's values is, with a 95 % bootstrap interval.

    Waits are resampled as if each were independent; fewer than `FEWEST` have no interval.
    """
    if min(len(earlier), len(head)) < FEWEST:
        times = float(np.median(head) / np.median(earlier))
        return {"times": times, "earlier": list(earlier), "head": list(head)}
    generator = np.random.default_rng(seed)
    medians = []
    for values in (earlier, head):
        rows = generator.choice(np.asarray(values, float), (RESAMPLES, len(values)))
        medians.append(np.median(rows, axis=1))
    low, high = np.percentile(medians[1] / medians[0], [2.5, 97.5])
    return {
        "times": float(np.median(head) / np.median(earlier)),
        "low": float(low),
        "high": float(high),
        "earlier": list(earlier),
        "head": list(head),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="the earlier commit")
    parser.add_argument("--smoke", action="store_true", help="one repetition; writes nothing")
    arguments = parser.parse_args()
    machine = machine_facts()
    waits: dict[str, dict[str, list[float]]] = {"earlier": {}, "head": {}}
    with tempfile.TemporaryDirectory(prefix="headlab-before-") as folder:
        folders = {name: Path(folder, name) for name in waits}
        commits = {
            "earlier": clone(folders["earlier"], arguments.revision),
            "head": clone(folders["head"], "HEAD"),
        }
        for name in ORDER[:2] if arguments.smoke else ORDER:
            for figure, values in waits_of(folders[name], arguments.smoke).items():
                waits[name].setdefault(figure, []).extend(values)
    if arguments.smoke:
        return
    ratios = {
        figure: ratio(waits["earlier"][figure], waits["head"][figure])
        for figure in waits["head"]
        if figure in waits["earlier"]
    }
    for figure, row in ratios.items():
        interval = f"[{row['low']:.2f}, {row['high']:.2f}]" if "low" in row else ""
        print(f"{figure:50} {row['times']:.2f} {interval}")
    report = {
        "command": f"python benchmarks/before.py {arguments.revision}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commits": commits,
        "machine": machine,
        "versions": {name: installed_version(name) for name in PACKAGES},
        "ratios": ratios,
    }
    write_json(RESULT_FILE, report)
    print(f"written to {RESULT_FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
