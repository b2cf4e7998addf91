"""How long resampled Shapley samples take beside those of zero ablation, on equal draws.

    python benchmarks/stand_ins.py                                  e5-small-intents, German
    python benchmarks/stand_ins.py --model smollm2-135m --task ioi --languages en --size 64
    python benchmarks/stand_ins.py --model smollm2-135m --task needle --languages en --size 8 --samples 8 --ablations streaming
    python benchmarks/stand_ins.py --smoke                          few samples; writes nothing

Figures are added to benchmarks/results/stand_ins.json, by model, task and ablation. All are timed
in turn in one process, each with the recording of outputs that it needs, and without slopes, which
zero ablation alone takes. The goal is a ratio of 1.5 at most of resampling.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine_facts, write_json

import headlab
from headlab.core import is_of_other_texts, read_ablation
from headlab.evaluation import Evaluator
from headlab.methods import METHODS
from headlab.methods.run import outcome_of
from headlab.methods.work import Work

ROOT = Path(__file__).resolve().parents[1]
RESULT_FILE = ROOT / "benchmarks" / "results" / "stand_ins.json"
GOAL = 1.5


def seconds_of(evaluator: Evaluator, ablation: str, samples: int) -> tuple[float, int, int]:
    """Seconds of a run, its forward passes, and bytes of recorded outputs.

    Seconds are of the process's own threads, so that other programs on the machine count less.
    """
    method = METHODS["shapley"]
    options = method.resolve({"samples": samples, "target": None})
    work = Work(evaluator, 0, options, ablation, samples_only=True)
    started = time.process_time()
    outcome = outcome_of(method, work)
    seconds = time.process_time() - started
    assert np.isfinite(outcome.values).all()
    kept = evaluator.donor_texts(ablation).bytes if is_of_other_texts(ablation) else 0
    return seconds, evaluator.forwards, kept


def figures_of(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each ablation by round, and the median of the rounds' ratios."""
    model = headlab.load(args.model)
    task = headlab.task(args.task)
    (language,) = args.languages.split(",")
    ablations = ("zero", *map(read_ablation, args.ablations.split("+")))
    seconds: dict[str, list[float]] = {ablation: [] for ablation in ablations}
    forwards: dict[str, int] = {}
    kept = 0
    for number in range(args.rounds + 1):
        for ablation in ablations:
            evaluator = Evaluator(model, task, language, "dev", args.size)
            taken, forwards[ablation], bytes_kept = seconds_of(evaluator, ablation, args.samples)
            kept = max(kept, bytes_kept)
            if number:  # the first round warms up
                seconds[ablation].append(taken)
    ratios = {
        ablation: [
            replaced / zero
            for zero, replaced in zip(seconds["zero"], seconds[ablation], strict=True)
        ]
        for ablation in ablations[1:]
    }
    return {
        "language": language,
        "examples": args.size,
        "samples": args.samples,
        "seconds": seconds,
        "forwards": forwards,
        "ratio": {name: statistics.median(of_rounds) for name, of_rounds in ratios.items()},
        "ratios": ratios,
        "bytes_kept": kept,
        "machine": machine_facts(),
    }


def main() -> int:
    """Measure, print, and write unless it is a smoke run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="e5-small-intents")
    parser.add_argument("--task", default="intents")
    parser.add_argument("--languages", default="de")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--ablations", default="resample", help="joined by +")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.size, args.samples, args.rounds = 16, 8, 1
    figures = figures_of(args)
    print(
        json.dumps({name: figures[name] for name in ("seconds", "ratio", "bytes_kept")}, indent=1)
    )
    for ablation, ratio in figures["ratio"].items():
        print(f"{ablation}: ratio {ratio:.2f}, goal {GOAL}")
    if not args.smoke:
        results = json.loads(RESULT_FILE.read_text()) if RESULT_FILE.is_file() else {}
        results[f"{args.model}, {args.task}, {args.ablations}"] = figures
        write_json(RESULT_FILE, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
