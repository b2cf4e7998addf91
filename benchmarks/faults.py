"""Kills at random moments, and what it costs to be ready for them.

    python benchmarks/faults.py                 100 kills and the cost of checkpoints; three minutes
    python benchmarks/faults.py --kills 300     more kills
    python benchmarks/faults.py --smoke         six kills, a tiny model only; writes nothing

Real processes of `headlab score` and `headlab worker` on a tiny model are killed with SIGKILL after
random times and started again until they are done; every result is compared with that of an
undisturbed run, bit by bit. The cost of checkpoints is the share of a run's time that goes into
writing them: for the embedded model and, as the worst case, for the tiny one, whose rounds take
milliseconds. Writes benchmarks/results/faults.json. Needs Linux and requirements-dev.txt.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "store"), str(ROOT)]

from support.killable_processes import (  # noqa: E402 - after the path to it
    Child,
    KillCounts,
    Nursery,
    kill_until_done,
    phase_of,
)
from support.running_worker import wait_until  # noqa: E402
from support.saved_models import save_classifier  # noqa: E402
from test_kills import (  # noqa: E402
    METHODS,
    address_of,
    score_arguments,
    sha_of,
    spec_of,
    wait_until_done,
)

import headlab  # noqa: E402
from headlab.results import Store, StoredRun  # noqa: E402
from headlab.worker.client import Client  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "faults.json"
GOAL = 0.02
WORKER_SHARE = 5  # one kill in five is of a worker, whose start takes longer
LONG_RUN = {"samples": 1024, "target": "none"}


@dataclass(frozen=True)
class TimedRun(StoredRun):
    """A run that notes how long each of its checkpoints took."""

    seconds: list[float] = field(default_factory=list)

    def save(self, arrays: Mapping[str, Any]) -> None:
        """Keep arrays for a later run of the same spec."""
        start = time.perf_counter()
        super().save(arrays)
        self.seconds.append(time.perf_counter() - start)


class TimedStore(Store):
    """A store whose runs note how long their checkpoints take."""

    seconds: list[float]

    def run(self, spec: Mapping[str, Any]) -> StoredRun:
        """The run of a spec, finished or not."""
        self.seconds = []
        folder = self.root / headlab.core.records.content_key(spec)
        return TimedRun(folder, spec, seconds=self.seconds)


def checkpoint_cost(model: str, folder: Path, size: int, samples: int) -> dict[str, Any]:
    """Share of a German `shapley` run that goes into its checkpoints."""
    loaded_model = headlab.load(model, device="cpu")
    store = TimedStore(folder)
    scores = headlab.score(
        loaded_model,
        headlab.task("intents", ["de"]),
        language="de",
        method="shapley",
        size=size,
        store=store,
        samples=samples,
        target=None,
    )
    return {
        "heads": loaded_model.grid.size,
        "examples": size,
        "samples": samples,
        "seconds": scores.seconds,
        "checkpoints": len(store.seconds),
        "median_ms": 1000 * median(store.seconds),
        "longest_ms": 1000 * max(store.seconds),
        "share": sum(store.seconds) / scores.seconds,
    }


def kill_commands(nursery: Nursery, model: Path, folder: Path, kill_count: int) -> dict[str, Any]:
    """Kill commands of every method with checkpoints, each up to six times before it may end.

    Args:
        nursery: Starts processes.
        model: Folder of the model.
        folder: Where the caches are written.
        kill_count: How many kills there must be in all.
    """
    rng = np.random.default_rng(0)
    kills = KillCounts({})
    runs = 0
    identical = 0
    undisturbed: dict[str, tuple[str, float]] = {}
    for method, options in METHODS.items():
        start = time.monotonic()
        process = nursery.start(score_arguments(model, folder / method, method, **options))
        sha = sha_of(process.wait())
        undisturbed[method] = (sha, time.monotonic() - start)
    while kills.count < kill_count:
        method = list(METHODS)[runs % len(METHODS)]
        cache = folder / f"{runs}-{method}"
        runs += 1

        def begin(method: str = method, cache: Path = cache) -> Child:
            return nursery.start(score_arguments(model, cache, method, **METHODS[method]))

        max_kills = min(6, kill_count - kills.count)
        undisturbed_sha, undisturbed_seconds = undisturbed[method]
        last_process = kill_until_done(
            begin, rng, undisturbed_seconds, max_kills, partial(phase_of, cache), kills
        )
        identical += sha_of(last_process) == undisturbed_sha
        progress = f"{kills.count:4d} kills of a command, {identical} of {runs} runs identical"
        print(progress, flush=True)
    return {
        "kills": kills.count,
        "hit": dict(sorted(kills.phases.items())),
        "runs": runs,
        "identical": identical,
    }


def kill_workers(nursery: Nursery, model: Path, folder: Path, kill_count: int) -> dict[str, Any]:
    """Kill workers with a job, each up to five times before the job may end.

    Args:
        nursery: Starts processes.
        model: Folder of the model.
        folder: Where the caches are written.
        kill_count: How many kills there must be in all.
    """
    rng = np.random.default_rng(1)
    kills = KillCounts({})
    runs = 0
    identical = 0
    process = nursery.start(score_arguments(model, folder / "alone", "shapley", **LONG_RUN))
    undisturbed_sha = sha_of(process.wait())
    while kills.count < kill_count:
        cache = folder / f"worker-{runs}"
        runs += 1
        job = 0
        for kills_left in range(min(5, kill_count - kills.count), -1, -1):
            child = nursery.start(["worker", "--port", "0", "--cache", str(cache)])
            address = partial(address_of, cache / ".worker", child.pid)
            wait_until(lambda: address() is not None)  # noqa: B023 - waited for here
            client = Client(str(address()))
            job = job or int(client.submit(spec=spec_of(model)).id)
            # A job that a worker died of too often is left for a person to resume.
            if client.job(job).state == "failed":
                client.resume(job)
            if kills_left:
                time.sleep(float(rng.uniform(0.05, 1.5)))
            else:
                wait_until_done(client, job)
            client.close()
            child.kill()
            if kills_left:
                kills.note(phase_of(cache))
        (stored,) = Store(cache).scan().results
        identical += stored.record.values_sha256() == undisturbed_sha
        progress = f"{kills.count:4d} kills of a worker, {identical} of {runs} jobs identical"
        print(progress, flush=True)
    return {
        "kills": kills.count,
        "hit": dict(sorted(kills.phases.items())),
        "runs": runs,
        "identical": identical,
    }


def provenance(command: str) -> dict[str, Any]:
    """When, where and by which command."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        "command": command,
        "commit": commit.stdout.strip(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {platform.system()}",
        "headlab": headlab.__version__,
    }


def main() -> int:
    """Kill, measure, write; 1 where a result differed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="processes to kill")
    parser.add_argument(
        "--smoke", action="store_true", help="six kills and the tiny model only; writes nothing"
    )
    parser.add_argument("--out", type=Path, default=RESULT, help="where the figures go")
    arguments = parser.parse_args()
    kill_count = 6 if arguments.smoke else arguments.kills
    start = time.monotonic()
    report = provenance(" ".join(["python", "benchmarks/faults.py", *sys.argv[1:]]))
    with tempfile.TemporaryDirectory(prefix="headlab-faults-") as name:
        folder = Path(name)
        tiny = save_classifier(folder / "tiny")
        report["checkpoints"] = {
            "tiny": checkpoint_cost(
                str(tiny), folder / "cost-tiny", 32, 64 if arguments.smoke else 1024
            )
        }
        if not arguments.smoke:
            report["checkpoints"]["e5-small-intents"] = checkpoint_cost(
                "e5-small-intents", folder / "cost", 512, 128
            )
        nursery = Nursery(folder, score_arguments(tiny, folder / "warm", "shapley", samples=8))
        try:
            workers = max(2, kill_count // WORKER_SHARE)
            report["commands"] = kill_commands(nursery, tiny, folder, kill_count - workers)
            report["workers"] = kill_workers(nursery, tiny, folder, workers)
        finally:
            nursery.close()
    parts = (report["commands"], report["workers"])
    report["kills"] = sum(part["kills"] for part in parts)
    report["all_identical"] = all(part["identical"] == part["runs"] for part in parts)
    report["minutes"] = (time.monotonic() - start) / 60
    print(json.dumps(report, indent=1))
    for model, figures in report["checkpoints"].items():
        verdict = "met" if figures["share"] < GOAL else "MISSED"
        share = f"{100 * figures['share']:.2f} % of the run (goal {100 * GOAL:g} %)"
        print(f"checkpoints of {model}: {share}: {verdict}")
    if not arguments.smoke:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if report["all_identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
