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

from comparison.peers import ONE_EXAMPLE, WHOLE_SET
from comparison.race import FORMER, HEADLAB, Ratio, Reference, Run, equal_error, summarise
from headlab import __version__
from headlab.core import allowed_processors

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "transformers", "numpy", "captum", "shap", "shapiq")
GUARANTEE_GOAL = 500.0
ERROR_GOAL = 8.0
PREVIOUS_GOALS = {"equal_error": 6.0, "guarantee": 1.6}


def machine() -> dict[str, Any]:
    """What this runs on, and how busy it is."""
    info = Path("/proc/cpuinfo")
    cpu_name = None
    if info.exists():
        cpu_name = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
    return {
        "cpu": cpu_name.group(1) if cpu_name else platform.machine(),
        "cores": allowed_processors(),
        "threads": torch.get_num_threads(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
    }


def commit() -> str:
    """The commit that is checked out, marked if measured files differ from it.

    "unknown" outside a repository.
    """
    measured_paths = ["headlab", "benchmarks/comparison", "benchmarks/estimators.py"]
    try:
        head = _git_output("rev-parse", "HEAD")
        changes = _git_output("status", "--porcelain", *measured_paths)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+changes" if changes else "")


def _git_output(*arguments: str) -> str:
    process = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def provenance(command: str) -> dict[str, Any]:
    """Everything that figures depend on besides the setting."""
    return {
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            "headlab": __version__,  # a clone that is not installed has one too
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def race_figures(
    runs: Sequence[Run], missing: dict[str, float], reference: Reference
) -> dict[str, Any]:
    """Figures of the race: errors, and speedups to equal error."""
    summaries = summarise(runs, reference)
    error, ratios = equal_error(summaries)
    times = {title: ratio.times for title, ratio in ratios.items()}
    peers = {title: ratio for title, ratio in times.items() if title not in HEADLAB}
    best_by_wrapping = {}
    for wrapping in (ONE_EXAMPLE, WHOLE_SET):
        ratios_of_wrapping = of_wrapping(peers, wrapping)
        if ratios_of_wrapping:
            best_by_wrapping[wrapping] = min(ratios_of_wrapping, key=ratios_of_wrapping.__getitem__)
    rows = []
    for summary in summaries:
        row = asdict(summary)
        row["seconds_to_equal_error"] = summary.seconds_to(error)
        row["extrapolated"] = summary.error > error
        rows.append(row)
    error_of_zeros = reference.squared_error(np.zeros_like(reference.values))
    return {
        "speedup_to_equal_error": {title: asdict(ratios[title]) for title in peers},
        "speedup_to_equal_error_own_baseline": {
            title: asdict(ratio) for title, ratio in ratios.items() if title in HEADLAB
        },
        "speedup_over_previous": over_previous("equal_error", ratios.get(FORMER)),
        "best_peer": min(peers, key=peers.__getitem__) if peers else None,
        "best_peer_by_wrapping": best_by_wrapping,
        "equal_error": error,
        "race": rows,
        "not_run": {title: {"seconds_to_first_estimate": need} for title, need in missing.items()},
        "reference": {
            "samples_a_head": reference.samples,
            "standard_error": reference.noise,
            "error_of_nothing": max(error_of_zeros, 0.0) ** 0.5,
        },
        "curves": curves(runs, reference),
    }


def over_previous(comparison: str, ratio: Ratio | None) -> dict[str, Any]:
    """How many times faster than the first version, and the bounds of the interval.

    Args:
        comparison: What was compared, a key of `PREVIOUS_GOALS`.
        ratio: None where the first version was not run.
    """
    if ratio is None:
        return {}
    return {
        comparison: ratio.times,
        "low": {comparison: ratio.low},
        "high": {comparison: ratio.high},
    }


def merged_speedups(speedups: dict[str, Any], more_speedups: dict[str, Any]) -> dict[str, Any]:
    """Join what two calls of `over_previous` returned."""
    low = {**speedups.get("low", {}), **more_speedups.get("low", {})}
    high = {**speedups.get("high", {}), **more_speedups.get("high", {})}
    return {**speedups, **more_speedups, "low": low, "high": high}


def of_wrapping(peers: dict[str, float], wrapping: str) -> dict[str, float]:
    """The peers in one wrapping."""
    return {title: ratio for title, ratio in peers.items() if title.endswith(f"({wrapping})")}


def curves(runs: Sequence[Run], reference: Reference) -> list[dict[str, Any]]:
    """The points of every run: seconds, example-forwards and root-mean-square error.

    The error is without the reference's own noise.
    """
    run_curves = []
    for run in runs:
        points = []
        for point in run.points:
            error = max(reference.squared_error(point.values), 0.0) ** 0.5
            points.append([point.seconds, point.forwards, error])
        run_curves.append({"title": run.title, "seed": run.seed, "points": points})
    return run_curves


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
        "| estimator | seconds | forwards | RMS error | mean half-width "
        "| seconds to equal error | ours faster |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    ratios = figures["speedup_to_equal_error"] | figures["speedup_to_equal_error_own_baseline"]
    for row in figures["race"]:
        width = f"{row['width']:.3f}" if row["width"] is not None else "none"
        ratio = ratios.get(row["title"])
        cells = [
            row["title"],
            f"{row['seconds']:.1f}",
            f"{row['forwards']:.0f}",
            f"{row['error']:.4f}",
            width,
            f"{row['seconds_to_equal_error']:.1f}",
            _times(ratio),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for title, need in figures["not_run"].items():
        reason = f"not run: {need['seconds_to_first_estimate']:.0f} s to its first estimate"
        lines.append(f"| {title} | {reason} | | | | | |")
    return "\n".join(lines)


def _times(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return ""
    ends = ""
    if ratio["low"] is not None:
        ends = f" [{ratio['low']:.1f}, {ratio['high']:.1f}]"
    return f"{ratio['times']:.1f}×{ends}"


def write(path: Path, value: dict[str, Any]) -> None:
    """Write JSON with figures to five significant digits."""
    rounded_value = json.loads(
        json.dumps(value), parse_float=lambda text: float(f"{float(text):.5g}")
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(rounded_value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def draw(path: Path, figures: dict[str, Any]) -> None:
    """Draw root-mean-square error over seconds on logarithmic axes.

    Each estimator has a colour, and each seed a line.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10.5, 6), layout="constrained")
    titles = list(dict.fromkeys(curve["title"] for curve in figures["curves"]))
    for curve in figures["curves"]:
        title_index = titles.index(curve["title"])
        points = [(seconds, error) for seconds, _, error in curve["points"] if error > 0]
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
