"""How long it takes to name harmful heads among candidates that slopes choose, and in all heads.

    python benchmarks/naming.py                 German intents, ten heads; writes naming.json
    python benchmarks/naming.py --minutes 10    no run is longer; it says what was named until then
    python benchmarks/naming.py --smoke         few examples and heads; writes nothing

Seconds are of this machine with all that it does besides; `forwards` are passes of one example, whole
or from a head's layer on. What a run that was ended had named is read from its last checkpoint. The
median of the seconds until ten heads are named stands in estimators.json, too (`ten_names`); it is null
where some run had not named ten. The harm of a named head is checked against the demo's stored values, which
are of another seed: `upheld` counts named heads whose stored interval lies below 0, `denied` those whose
stored interval lies above.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from comparison import report  # noqa: E402 - after the path to it

import headlab  # noqa: E402
from headlab.core import demo_results  # noqa: E402
from headlab.evaluation import Evaluator  # noqa: E402
from headlab.methods import METHODS, make_spec, score, scores_so_far  # noqa: E402
from headlab.results import HeadScores, Store  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "naming.json"
ESTIMATORS_FILE = RESULT_FILE.with_name("estimators.json")
MODEL = "e5-small-intents"
TASK = "intents"
LANGUAGE = "de"
SEEDS = (7, 8, 9)
LEVEL = 0.95
NAMES = 10


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


class TimeIsUp(Exception):
    """The time that a run may take is over."""


def scores_within(
    model: headlab.Model, size: int, seed: int, options: dict[str, Any], seconds: float
) -> tuple[HeadScores, bool]:
    """The scores of a run, which ends once so many seconds have passed.

    Returns:
        The scores, of the last checkpoint if the time was up; and whether the run came to its end.
    """
    deadline = time.perf_counter() + seconds

    def end_in_time(_progress: object) -> None:
        if time.perf_counter() > deadline:
            raise TimeIsUp

    task = headlab.task(TASK)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        try:
            scores = score(
                model,
                task,
                language=LANGUAGE,
                size=size,
                seed=seed,
                store=store,
                on_progress=end_in_time,
                **options,
            )
        except TimeIsUp:
            method = METHODS["shapley"]
            dataset = Evaluator(model, task, LANGUAGE, "dev", size).dataset
            spec = make_spec(dataset, method, method.resolve(options), seed, "zero")
            checkpoint = scores_so_far(store.run(spec), model.grid)
            if checkpoint is None:
                raise
            return checkpoint, False
    return scores, True


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
    parser.add_argument("--names", type=int, default=NAMES, help="heads to name (10)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="runs (3)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of a run at most (no end)")
    arguments = parser.parse_args()
    names = 2 if arguments.smoke else arguments.names
    size = 24 if arguments.smoke else 512
    model = headlab.load(MODEL)
    stored = stored_scores(model)
    rows = []
    for seed in SEEDS[: 1 if arguments.smoke else arguments.seeds]:
        options = {"names": names, "samples": 64 if arguments.smoke else 1 << 15}
        start = time.perf_counter()
        scores, is_finished = scores_within(model, size, seed, options, 60 * arguments.minutes)
        seconds = time.perf_counter() - start
        figures = figures_of(scores, seconds, stored)
        rows.append({"seed": seed, "finished": is_finished, **figures})
        print(json.dumps(rows[-1]), flush=True)
    if not arguments.smoke:
        record = {
            **report.provenance(" ".join(["python", "benchmarks/naming.py", *sys.argv[1:]])),
            "model": MODEL,
            "language": LANGUAGE,
            "names": names,
            "level": LEVEL,
            "median_seconds": float(np.median([row["seconds"] for row in rows])),
            "runs": rows,
        }
        report.write(RESULT_FILE, record)
        if names == NAMES:
            estimators = json.loads(ESTIMATORS_FILE.read_text("utf-8"))
            have_all = all(row["named"] >= names for row in rows)
            estimators["seconds_to"]["ten_names"] = record["median_seconds"] if have_all else None
            report.write(ESTIMATORS_FILE, estimators)


if __name__ == "__main__":
    main()
