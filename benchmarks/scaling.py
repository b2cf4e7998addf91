"""How much sooner a run is done on two Ray workers than on one, and what a unit of work costs.

    python benchmarks/scaling.py              four minutes
    python benchmarks/scaling.py --smoke      a few samples; writes nothing

Writes benchmarks/results/scaling-MODEL-DEVICE.json.

The same run (Shapley, `--samples` of every head, no checkpoint) is timed in this process and on 1 to
`--workers` Ray workers of one machine, each with an equal share of it: a GPU, or one thread. The
clock runs from when every worker has the model to the last answer. The bits must be the same
everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import headlab
from headlab.cluster.rays import team
from headlab.core import allowed_processors
from headlab.hooks import Model
from headlab.methods.run import score
from headlab.models.checkpoint import software_versions
from headlab.results import HeadScores

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LANGUAGE = "de"


@dataclass(frozen=True)
class TimedRun:
    """One run.

    Attributes:
        workers: Ray workers; 0 for this process by itself.
        threads: Of this process, or of each worker.
        seconds: Of the run.
        start: Seconds until every worker had the model.
        gains: Samples of all heads together.
        values_sha256: Of the scores.
    """

    workers: int
    threads: int
    seconds: float
    start: float
    gains: int
    values_sha256: str

    @property
    def rate(self) -> float:
        """Gains a second."""
        return self.gains / self.seconds


def timed_scores(model: Model, samples: int, **options: Any) -> tuple[HeadScores, float]:
    """Scores of the run that is timed, and its seconds."""
    began = time.perf_counter()
    task = headlab.task("intents")
    scores = score(model, task, language=LANGUAGE, samples=samples, target=None, **options)
    return scores, time.perf_counter() - began


def time_in_process(model: Model, samples: int, threads: int) -> TimedRun:
    """Time the run in this process, with a number of threads."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        scores, seconds = timed_scores(model, samples)
    finally:
        torch.set_num_threads(threads_before)
    return timed_run(scores, 0, threads, seconds, 0.0)


def time_on_ray(model: Model, samples: int, workers: int) -> TimedRun:
    """Time the run on a number of Ray workers, each with one thread or one GPU."""
    began = time.perf_counter()
    import ray

    ray.init(
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    try:
        with team(model, "local", workers) as helpers:
            while helpers.pool.ready_count < workers:
                time.sleep(0.05)
            start = time.perf_counter() - began
            scores, seconds = timed_scores(model, samples, helpers=helpers)
    finally:
        ray.shutdown()
    return timed_run(scores, workers, 1, seconds, start)


def timed_run(
    scores: HeadScores, workers: int, threads: int, seconds: float, start: float
) -> TimedRun:
    """The record of a run."""
    assert scores.samples is not None
    gains = int(scores.samples.sum())
    return TimedRun(workers, threads, seconds, start, gains, scores.values_sha256())


def commit() -> str:
    """The commit that was measured, with a + if files differ from it."""
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True
    )
    return process.stdout.strip()


def main() -> None:
    """Time the runs, print them, write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="e5-small-intents")
    parser.add_argument("--samples", type=int, default=96, help="of every head")
    parser.add_argument("--workers", type=int, default=2, help="at most")
    parser.add_argument("--repeat", type=int, default=2, help="rounds; the fastest of each counts")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    samples = 8 if arguments.smoke else arguments.samples
    repeat = 1 if arguments.smoke else arguments.repeat
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    model = headlab.load(arguments.model)
    timed_scores(model, 8)  # the first passes are slower
    runs: list[TimedRun] = []
    for _ in range(repeat):
        for workers in range(1, arguments.workers + 1):
            runs.append(time_on_ray(model, samples, workers))
        for threads in (1, torch.get_num_threads()):
            runs.append(time_in_process(model, samples, threads))
    fastest_by_key: dict[tuple[int, int], TimedRun] = {}
    for timed in runs:
        fastest = fastest_by_key.setdefault(repetition_key(timed), timed)
        if timed.seconds < fastest.seconds:
            fastest_by_key[repetition_key(timed)] = timed
    fastest_runs = list(fastest_by_key.values())
    one_worker = fastest_runs[0]
    for timed in fastest_runs:
        speedup = one_worker.seconds / timed.seconds
        print(
            f"{title_of(timed):20} {timed.seconds:7.1f} s  {timed.rate:7.0f} gains/s  "
            f"x{speedup:.2f}  ready after {timed.start:.1f} s  {timed.values_sha256[:12]}"
        )
    same_bits = len({timed.values_sha256 for timed in runs}) == 1
    print("the same bits everywhere" if same_bits else "THE BITS DIFFER")
    if not arguments.smoke:
        write_figures(arguments, fastest_runs, runs, same_bits)
    sys.exit(not same_bits)


def repetition_key(timed: TimedRun) -> tuple[int, int]:
    """What runs have in common that are repetitions of each other."""
    return timed.workers, timed.threads


def title_of(timed: TimedRun) -> str:
    """Where a run was, in words."""
    if timed.workers:
        return f"{timed.workers} Ray worker{'s' * (timed.workers > 1)}"
    return f"here, threads: {timed.threads}"


def write_figures(
    arguments: argparse.Namespace,
    fastest_runs: list[TimedRun],
    runs: list[TimedRun],
    same_bits: bool,
) -> None:
    """Write the figures."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    one_worker = fastest_runs[0]
    speedups = {}
    for timed in fastest_runs:
        if timed.workers:
            speedups[str(timed.workers)] = one_worker.seconds / timed.seconds
    result_file = RESULTS / f"scaling-{arguments.model.replace('/', '-')}-{device}.json"
    report = {
        "command": " ".join(["python", "benchmarks/scaling.py", *sys.argv[1:]]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {
            "cpus": allowed_processors(),
            "processor": platform.processor() or platform.machine(),
            "device": device,
        },
        "versions": software_versions(),
        "language": LANGUAGE,
        "samples": arguments.samples,
        "same_bits": same_bits,
        "speedup": speedups,
        "runs": [asdict(timed) | {"gains_per_second": timed.rate} for timed in runs],
    }
    result_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"written: {result_file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
