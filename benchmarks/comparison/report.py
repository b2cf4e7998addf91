"""What is written and drawn: figures, everything they depend on, and whether the goals are met."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from comparison.peers import ONE, WHOLE
from comparison.race import FORMER, HEADLAB, Ratio, Reference, Run, equal_error, summarise
from headlab.core import allowed_processors

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("headlab", "torch", "transformers", "numpy", "captum", "shap", "shapiq")
GUARANTEE_GOAL = 500.0
ERROR_GOAL = 8.0
PREVIOUS_GOALS = {"equal_error": 6.0, "guarantee": 1.6}


def machine() -> dict[str, Any]:
    """What this runs on, and how busy it is."""
    info = Path("/proc/cpuinfo")
    cpu_name = (
        re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if info.exists()
        else None
    )
    return {
        "cpu": cpu_name.group(1) if cpu_name else platform.machine(),
        "cores": allowed_processors(),
        "threads": torch.get_num_threads(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
    }


def commit() -> str:
    """The commit that is checked out, marked if files differ from it; "unknown" outside a repository."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        changes = subprocess.run(
            [
                "git",
                "status",
                "--porcelain",
                "headlab",
                "benchmarks/comparison",
                "benchmarks/estimators.py",
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def provenance(command: str) -> dict[str, Any]:
    """Everything that figures depend on besides the setting."""
    return {
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def compared(
    runs: Sequence[Run], missing: dict[str, float], reference: Reference
) -> dict[str, Any]:
    """The race: errors, and speedups to equal error."""
    summaries = summarise(runs, reference)
    error, ratios = equal_error(summaries)
    times = {title: ratio.times for title, ratio in ratios.items()}
    peers = {title: ratio for title, ratio in times.items() if title not in HEADLAB}
    best_by_wrapping = {
        wrapping: min(ratios_of_wrapping, key=ratios_of_wrapping.__getitem__)
        for wrapping in (ONE, WHOLE)
        if (ratios_of_wrapping := of_wrapping(peers, wrapping))
    }
    return {
        "speedup_to_equal_error": {title: asdict(ratios[title]) for title in peers},
        "speedup_to_equal_error_own_baseline": {
            t: asdict(r) for t, r in ratios.items() if t in HEADLAB
        },
        "speedup_over_previous": over_previous("equal_error", ratios.get(FORMER)),
        "best_peer": min(peers, key=peers.__getitem__) if peers else None,
        "best_peer_by_wrapping": best_by_wrapping,
        "equal_error": error,
        "race": [
            asdict(s)
            | {"seconds_to_equal_error": s.seconds_to(error), "extrapolated": s.error > error}
            for s in summaries
        ],
        "not_run": {title: {"seconds_to_first_estimate": need} for title, need in missing.items()},
        "reference": {
            "samples_a_head": reference.samples,
            "standard_error": reference.noise,
            "error_of_nothing": max(reference.squared_error(np.zeros_like(reference.values)), 0.0)
            ** 0.5,
        },
        "curves": curves(runs, reference),
    }


def over_previous(comparison: str, ratio: Ratio | None) -> dict[str, Any]:
    """How many times faster than the first version, and the ends of its interval."""
    if ratio is None:
        return {}
    return {
        comparison: ratio.times,
        "low": {comparison: ratio.low},
        "high": {comparison: ratio.high},
    }


def merged_speedups(speedups: dict[str, Any], more_speedups: dict[str, Any]) -> dict[str, Any]:
    """Two of the answers of `over_previous` in one."""
    ends = {end: {**speedups.get(end, {}), **more_speedups.get(end, {})} for end in ("low", "high")}
    return {**speedups, **more_speedups, **ends}


def of_wrapping(peers: dict[str, float], wrapping: str) -> dict[str, float]:
    """The peers in one wrapping."""
    return {title: ratio for title, ratio in peers.items() if title.endswith(f"({wrapping})")}


def curves(runs: Sequence[Run], reference: Reference) -> list[dict[str, Any]]:
    """Every run's points: seconds, example-forwards, root-mean-square error with the reference's noise taken off."""
    return [
        {
            "title": run.title,
            "seed": run.seed,
            "points": [
                [p.seconds, p.forwards, max(reference.squared_error(p.values), 0.0) ** 0.5]
                for p in run.points
            ],
        }
        for run in runs
    ]


def goals(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """The goals, as far as they were measured."""
    rows = []
    if "speedup_to_guarantee" in figures:
        rows.append(
            _goal(
                "seconds to a guaranteed half-width against the paper's recipe",
                GUARANTEE_GOAL,
                figures["speedup_to_guarantee"]["times"],
            )
        )
    if figures.get("best_peer"):
        best_peer = figures["best_peer"]
        rows.append(
            _goal(
                f"seconds to equal error against the best peer, {best_peer}",
                ERROR_GOAL,
                figures["speedup_to_equal_error"][best_peer]["times"],
            )
        )
    descriptions = {
        "equal_error": "seconds to equal error",
        "guarantee": "seconds to a guaranteed half-width",
    }
    speedups = figures.get("speedup_over_previous", {})
    rows += [
        _goal(
            f"{descriptions[comparison]} against the first version of `shapley`",
            goal,
            speedups[comparison],
        )
        for comparison, goal in PREVIOUS_GOALS.items()
        if speedups.get(comparison)
    ]
    return rows


def _goal(description: str, goal: float, speedup: float) -> dict[str, Any]:
    return {"goal": description, "times": goal, "reached": speedup, "met": bool(speedup >= goal)}


def table(figures: dict[str, Any]) -> str:
    """A Markdown table of the race."""
    lines = [
        "| estimator | seconds | forwards | RMS error | mean half-width | seconds to equal error | ours faster |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    ratios = figures["speedup_to_equal_error"] | figures["speedup_to_equal_error_own_baseline"]
    for row in figures["race"]:
        width = f"{row['width']:.3f}" if row["width"] is not None else "none"
        ratio = ratios.get(row["title"])
        lines.append(
            f"| {row['title']} | {row['seconds']:.1f} | {row['forwards']:.0f} | {row['error']:.4f} | {width} | "
            f"{row['seconds_to_equal_error']:.1f} | {_times(ratio)} |"
        )
    lines += [
        f"| {title} | not run: {m['seconds_to_first_estimate']:.0f} s to its first estimate | | | | | |"
        for title, m in figures["not_run"].items()
    ]
    return "\n".join(lines)


def _times(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return ""
    ends = "" if ratio["low"] is None else f" [{ratio['low']:.1f}, {ratio['high']:.1f}]"
    return f"{ratio['times']:.1f}×{ends}"


def write(path: Path, value: dict[str, Any]) -> None:
    """JSON with figures to five significant digits."""
    rounded_value = json.loads(
        json.dumps(value), parse_float=lambda text: float(f"{float(text):.5g}")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(rounded_value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def draw(path: Path, figures: dict[str, Any]) -> None:
    """Root-mean-square error over seconds, log-log: a colour for each estimator, a line for each seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10.5, 6), layout="constrained")
    titles = list(dict.fromkeys(curve["title"] for curve in figures["curves"]))
    for curve in figures["curves"]:
        title_index = titles.index(curve["title"])
        points = [(s, e) for s, _, e in curve["points"] if e > 0]
        label = curve["title"] if curve["seed"] == 1 else None
        ours = curve["title"] in HEADLAB
        style = {
            "lw": 2.2 if ours else 1.2,
            "marker": "os^Dv<>"[title_index % 7],
            "ms": 5,
            "ls": "-" if ours else "--",
        }
        axes.plot(*zip(*points, strict=True), color=f"C{title_index}", label=label, **style)
    axes.set(
        xscale="log", yscale="log", xlabel="seconds", ylabel="root-mean-square error over heads"
    )
    axes.grid(which="both", alpha=0.25)
    figure.legend(fontsize=8, loc="outside lower center", ncols=3)
    size = figures["setting"]["size"]
    language = figures["setting"]["language"]
    axes.set_title(
        f"Shapley values, e5-small-intents, {size} dev examples ({language})", fontsize=10
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
