"""How much sooner a run is done on two Ray workers than on one, and what a unit of work costs.

    python benchmarks/scaling.py              four minutes; writes benchmarks/results/scaling-MODEL-DEVICE.json
    python benchmarks/scaling.py --smoke      a few samples; writes nothing

The same run (Shapley, `--samples` of every head, no checkpoint) is timed here and on 1 ... `--workers` Ray
workers of one machine, each with an equal share of it: a GPU, or one thread. The clock runs from when every worker
has the model to the last answer. The bits must be the same everywhere.
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
class Timed:
    """One run.

    Attributes:
        workers: 0 is this process by itself.
        start: Seconds until every worker had the model.
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


def run(model: Model, samples: int, **more: Any) -> tuple[HeadScores, float]:
    """The run that is timed, and its seconds."""
    began = time.perf_counter()
    task = headlab.task("intents")
    scores = score(model, task, language=LANGUAGE, samples=samples, target=None, **more)
    return scores, time.perf_counter() - began


def here(model: Model, samples: int, threads: int) -> Timed:
    """In this process, with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        scores, seconds = run(model, samples)
    finally:
        torch.set_num_threads(before)
    return timed(scores, 0, threads, seconds, 0.0)


def there(model: Model, samples: int, workers: int) -> Timed:
    """On so many Ray workers, each with one thread or one GPU."""
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
            while helpers.pool.ready < workers:
                time.sleep(0.05)
            start = time.perf_counter() - began
            scores, seconds = run(model, samples, helpers=helpers)
    finally:
        ray.shutdown()
    return timed(scores, workers, 1, seconds, start)


def timed(scores: HeadScores, workers: int, threads: int, seconds: float, start: float) -> Timed:
    """The record of a run."""
    assert scores.samples is not None
    return Timed(
        workers, threads, seconds, start, int(scores.samples.sum()), scores.values_sha256()
    )


def commit() -> str:
    """The commit that was measured; "+" where the tree differs from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip()


def main() -> None:
    """Time the runs, print them, keep them."""
    given = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given.add_argument("--model", default="e5-small-intents")
    given.add_argument("--samples", type=int, default=96, help="of every head")
    given.add_argument("--workers", type=int, default=2, help="at most")
    given.add_argument("--repeat", type=int, default=2, help="rounds; the fastest of each counts")
    given.add_argument("--smoke", action="store_true")
    args = given.parse_args()
    samples, repeat = (8, 1) if args.smoke else (args.samples, args.repeat)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    model = headlab.load(args.model)
    run(model, 8)  # the first passes are slower
    rows: list[Timed] = []
    for _ in range(repeat):
        rows += [there(model, samples, workers) for workers in range(1, args.workers + 1)]
        rows += [here(model, samples, threads) for threads in (1, torch.get_num_threads())]
    best = [
        min((r for r in rows if key(r) == k), key=lambda r: r.seconds)
        for k in dict.fromkeys(map(key, rows))
    ]
    one = best[0]
    for row in best:
        where = (
            f"{row.workers} Ray worker{'s' * (row.workers > 1)}"
            if row.workers
            else f"here, threads: {row.threads}"
        )
        print(
            f"{where:20} {row.seconds:7.1f} s  {row.rate:7.0f} gains/s  x{one.seconds / row.seconds:.2f}"
            f"  ready after {row.start:.1f} s  {row.values_sha256[:12]}"
        )
    same = len({row.values_sha256 for row in rows}) == 1
    print("the same bits everywhere" if same else "THE BITS DIFFER")
    if not args.smoke:
        keep(args, best, rows, same)
    sys.exit(not same)


def key(row: Timed) -> tuple[int, int]:
    """What runs have in common that are repetitions of each other."""
    return row.workers, row.threads


def keep(args: argparse.Namespace, best: list[Timed], rows: list[Timed], same: bool) -> None:
    """Write the figures."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = RESULTS / f"scaling-{args.model.replace('/', '-')}-{device}.json"
    said = {
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
        "samples": args.samples,
        "same_bits": same,
        "speedup": {str(row.workers): best[0].seconds / row.seconds for row in best if row.workers},
        "runs": [asdict(row) | {"gains_per_second": row.rate} for row in rows],
    }
    out.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    print(f"written: {out.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
