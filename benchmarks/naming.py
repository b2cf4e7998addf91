"""How long it takes to name harmful heads among candidates that slopes choose, and in all heads.

    python benchmarks/naming.py                 German intents, ten heads; writes naming.json
    python benchmarks/naming.py --smoke         few examples and heads; writes nothing

Seconds are of this machine with all that it does besides; `forwards` are passes of one example, whole
or from a head's layer on. The harm of a named head is checked against the demo's stored values, which
are of another seed: `upheld` counts named heads whose stored interval lies below 0, `denied` those whose
stored interval lies above.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import headlab  # noqa: E402 - after the path to it
from headlab.core import demo_results  # noqa: E402
from headlab.methods import score  # noqa: E402
from headlab.results import HeadScores, Store  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "naming.json"
MODEL = "e5-small-intents"
TASK = "intents"
LANGUAGE = "de"
SEEDS = (7, 8, 9)
LEVEL = 0.95


def figures_of(scores: HeadScores, seconds: float, stored: HeadScores | None) -> dict[str, Any]:
    """What a run named, and what it took.

    Args:
        scores: Of the run.
        seconds: That it took.
        stored: Scores of the same heads from another seed, if there are any.
    """
    named = ~scores.mask(correction="bh").kept
    figures: dict[str, Any] = {
        "seconds": seconds,
        "forwards": scores.example_forwards,
        "candidates": int(scores.tested.sum()),
        "named": int(named.sum()),
        "samples": int(scores.samples.max()) if scores.samples is not None else 0,
        "gains": int(scores.samples.sum()) if scores.samples is not None else 0,
        "mean_of_named": float(scores.tested_values[named].mean()) if named.any() else None,
    }
    if stored is not None and stored.low is not None and stored.high is not None:
        figures["upheld"] = int((named & (stored.high < 0)).sum())
        figures["denied"] = int((named & (stored.low > 0)).sum())
    return figures


def stored_scores(model: Any) -> HeadScores | None:
    """The demo's values of the same heads by the default settings; None without any."""
    folder = demo_results()
    if folder is None:
        return None
    for result in Store(folder).scan().results:
        scores = result.record
        if scores.method != "shapley" or scores.language != LANGUAGE or scores.grid != model.grid:
            continue
        if scores.spec.task.name == TASK and scores.estimand == "shapley-top50":
            return scores
    return None


def main() -> None:
    """Name heads with each seed, print a line each, and store the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="few examples and heads")
    parser.add_argument("--names", type=int, default=10, help="heads to name (10)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="runs (3)")
    arguments = parser.parse_args()
    names = 2 if arguments.smoke else arguments.names
    size = 24 if arguments.smoke else 512
    model = headlab.load(MODEL)
    stored = stored_scores(model)
    rows = []
    for seed in SEEDS[: 1 if arguments.smoke else arguments.seeds]:
        start = time.perf_counter()
        options = {"names": names, "samples": 64 if arguments.smoke else 1 << 15}
        scores = score(
            model, headlab.task(TASK), language=LANGUAGE, size=size, seed=seed, **options
        )
        seconds = time.perf_counter() - start
        rows.append({"seed": seed, **figures_of(scores, seconds, stored)})
        print(json.dumps(rows[-1]), flush=True)
    if not arguments.smoke:
        record = {
            "command": " ".join(["python", "benchmarks/naming.py", *sys.argv[1:]]),
            "model": MODEL,
            "language": LANGUAGE,
            "names": names,
            "level": LEVEL,
            "median_seconds": float(np.median([row["seconds"] for row in rows])),
            "runs": rows,
        }
        RESULT_FILE.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
