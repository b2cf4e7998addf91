"""Whether an earlier commit answered sooner: its own benchmarks against today's, in one run.

    python benchmarks/before.py 282cee27            writes benchmarks/results/before.json (45 minutes)
    python benchmarks/before.py 282cee27 pages      only this part; the rest of before.json stays
    python benchmarks/before.py 282cee27 --smoke    one repetition of each, in both; writes nothing

Clones this repository twice, at the earlier commit and at HEAD, and measures three parts of each
clone with the same Python and the same packages: `pages` by `benchmarks/ui.py speed`, `sessions` by
`benchmarks/sessions.py`, and `scores` by `headlab score`. They run earlier, HEAD, HEAD, earlier, so
that a machine that slows down or speeds up meets both alike. A figure is how many times as long HEAD
takes, as a ratio of medians; its interval resamples the waits of both. Of scores it says, too,
whether both have the same bits.

Needs what benchmarks/ui.py needs. Uncommitted changes are not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
PARTS = ("pages", "sessions", "scores")
SESSION_FIGURES = ("first_p50", "final_p50")
SCORE_OPTIONS = {
    "shapley": ("--method", "shapley", "-o", "samples=24"),
    "smoothed": ("--method", "smoothed", "-o", "samples=1024"),
    "leave_one_out": ("--method", "leave-one-out", "--size", "64"),
    "gradient": ("--method", "gradient"),
}
"""What is scored, on the dev examples of one language, by the name of its figure."""


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


@dataclass
class Measured:
    """What one run of a clone measured.

    Attributes:
        waits: By figure; milliseconds and megabytes.
        digests: Of the values of scores, by figure.
    """

    waits: dict[str, list[float]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


def measured_pages(folder: Path) -> Measured:
    """How long a visitor waits, one tab at a time."""
    waits = {
        name: list(figure["measured"])
        for name, figure in run_benchmark(folder, "ui", "speed").items()
        if name.endswith(("_ms", "_mb")) and not name.startswith("decoder")
    }
    return Measured(waits)


def measured_sessions(folder: Path) -> Measured:
    """How long several visitors wait at once."""
    waits = {}
    for row in run_benchmark(folder, "sessions")["settings"]:
        beside = "_beside_a_job" if row["job"] else ""
        for name in SESSION_FIGURES:
            waits[f"sessions_{row['sessions']}{beside}_{name}_ms"] = [1000 * row[name]]
    return Measured(waits)


def measured_scores(folder: Path, *more_options: str) -> Measured:
    """How long methods compute, and what. Every run has a cache of its own.

    Args:
        folder: The clone.
        more_options: Of `headlab score`, besides those of the figures.
    """
    measured = Measured()
    for name, options in SCORE_OPTIONS.items():
        with tempfile.TemporaryDirectory(prefix="headlab-before-cache-") as cache:
            command = [sys.executable, "-m", "headlab.cli", "score", "--model", "e5-small-intents"]
            command += ["--task", "intents", "--languages", "de", "--json", *options, *more_options]
            environment = {
                **os.environ,
                "PYTHONPATH": str(folder),
                "HEADLAB_CACHE": cache,
                "HEADLAB_DEMO": "off",  # its scores would not be computed
            }
            process = subprocess.run(
                command, cwd=folder, env=environment, check=True, capture_output=True, text=True
            )
        scores = json.loads(process.stdout)["languages"]["de"]
        measured.waits[f"score_{name}_ms"] = [1000 * scores["seconds"]]
        measured.digests[name] = scores["values_sha256"]
    return measured


def try_parts(folder: Path, parts: Sequence[str]) -> None:
    """Run one repetition of each part of a clone, to see that it works."""
    if "pages" in parts:
        run_benchmark(folder, "ui", "speed", "--smoke")
    if "sessions" in parts:
        run_benchmark(folder, "sessions", "--smoke")
    if "scores" in parts:
        measured_scores(folder, "--size", "16")


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


def measure_both(
    folders: Mapping[str, Path], parts: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, bool]]:
    """Measure both clones, one after the other and back again.

    Args:
        folders: Of the clones, by "earlier" and "head".
        parts: Which of `PARTS`.

    Returns:
        The ratio of each figure, and whether the values of each kind of scores have the same bits.
    """
    measure_part = {
        "pages": measured_pages,
        "sessions": measured_sessions,
        "scores": measured_scores,
    }
    waits: dict[str, dict[str, list[float]]] = {name: {} for name in folders}
    digests: dict[str, set[str]] = {}
    for part in parts:
        for name in ORDER:
            measured = measure_part[part](folders[name])
            for figure, values in measured.waits.items():
                waits[name].setdefault(figure, []).extend(values)
            for figure, digest in measured.digests.items():
                digests.setdefault(figure, set()).add(digest)
    ratios = {
        figure: ratio(waits["earlier"][figure], waits["head"][figure])
        for figure in waits["head"]
        if figure in waits["earlier"]
    }
    return ratios, {name: len(different) == 1 for name, different in digests.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="the earlier commit")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--smoke", action="store_true", help="one repetition; writes nothing")
    arguments = parser.parse_args()
    parts = arguments.parts or list(PARTS)
    machine = machine_facts()
    with tempfile.TemporaryDirectory(prefix="headlab-before-") as folder:
        folders = {name: Path(folder, name) for name in dict.fromkeys(ORDER)}
        commits = {
            "earlier": clone(folders["earlier"], arguments.revision),
            "head": clone(folders["head"], "HEAD"),
        }
        if arguments.smoke:
            for clone_folder in folders.values():
                try_parts(clone_folder, parts)
            return
        ratios, has_same_bits = measure_both(folders, parts)
    for figure, row in ratios.items():
        interval = f"[{row['low']:.2f}, {row['high']:.2f}]" if "low" in row else ""
        print(f"{figure:50} {row['times']:.2f} {interval}")
    for name, is_same in has_same_bits.items():
        print(f"{name}: {'the same bits' if is_same else 'OTHER BITS'}")
    write_report(parts, ratios, has_same_bits, commits, machine, arguments.revision)
    print(f"written to {RESULT_FILE.relative_to(ROOT)}")


def write_report(
    parts: Sequence[str],
    ratios: Mapping[str, Any],
    has_same_bits: Mapping[str, bool],
    commits: Mapping[str, str],
    machine: Mapping[str, Any],
    revision: str,
) -> None:
    """Write what was measured against a commit; its parts that were not stay, as other commits do.

    Args:
        parts: Those that were measured.
        ratios: By figure.
        has_same_bits: By kind of scores; empty if no scores were measured.
        commits: Hashes, by "earlier" and "head".
        machine: From `machine_facts`, before the measurement.
        revision: As it was typed.
    """
    provenance = {
        "command": " ".join(["python benchmarks/before.py", revision, *parts]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commits": dict(commits),
        "machine": dict(machine),
        "versions": {name: installed_version(name) for name in PACKAGES},
    }
    reports: dict[str, Any] = {}
    if RESULT_FILE.is_file():
        reports = json.loads(RESULT_FILE.read_text(encoding="utf-8"))
    report = reports.setdefault(revision, {"made": {}, "ratios": {}, "same_bits": {}})
    report["made"] |= dict.fromkeys(parts, provenance)
    report["ratios"] |= ratios
    report["same_bits"] |= has_same_bits
    write_json(RESULT_FILE, reports)


if __name__ == "__main__":
    main()
