"""What resampling costs: the group bootstrap and its former version, and the rank agreement.

10,000 resamples of 5,000 examples, on one core; the agreement is of 15 languages. The former version
drew all groups by one multinomial and summed them in one matrix product; it is kept here for the
comparison, and timed once. The present version is timed several times, and the fastest counts.
Seconds are of processor time, so that other work on the machine matters less.

`python benchmarks/bootstrap.py` writes results/bootstrap.json; `--smoke` resamples little and writes
nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from machine import installed_version, machine_facts, write_json  # noqa: E402 - beside this file

from headlab import stats  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "bootstrap.json"
EXAMPLES = 5000
DRAWS = 10_000
LIMIT = 0.2
LANGUAGES = 15
HEADS = 144
HEAD_DRAWS = 2000
HEAD_LIMIT = 1.0
PACKAGES = ("headlab", "numpy", "scipy")


@dataclass(frozen=True)
class Row:
    """The present and the former version on one kind of data.

    Attributes:
        name: What is special about the data.
        rows: How many rows of gains it has.
        seconds: Of the present version.
        former: Seconds of the former version.
        interval: Of the first row, by the present version.
        former_interval: The same by the former version.
    """

    name: str
    rows: int
    seconds: float
    former: float
    interval: tuple[float, float]
    former_interval: tuple[float, float]

    @property
    def ratio(self) -> float:
        """How many times faster the present version is."""
        return self.former / self.seconds


def former_group_bootstrap(
    values: Any, groups: tuple[str, ...], rng: np.random.Generator, draws: int
) -> stats.Bootstrap:
    """The former version of `stats.group_bootstrap`."""
    _, group_indices = np.unique(np.array(groups), return_inverse=True)
    count = int(group_indices.max()) + 1
    sums = np.stack([np.bincount(group_indices, row, minlength=count) for row in values])
    sums = np.concatenate([sums, np.tile((1.0, -1.0), (len(sums), 1))], axis=1)
    sizes = np.append(np.bincount(group_indices), [1, 1])
    picks = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=draws).astype(
        np.float64
    )
    means = (picks @ sums.T) / np.maximum(picks @ sizes, 1)[:, None]
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    tail = 1 + np.minimum((means <= 0).sum(axis=0), (means >= 0).sum(axis=0))
    return stats.Bootstrap(low, high, np.minimum(1.0, 2 * tail / (draws + 1)))


def example_data(examples: int) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """{what is special about the data: gains [row, example], and the group of each example}."""
    rng = np.random.default_rng(0)
    gains = rng.choice([-1.0, 0.0, 1.0], size=(25, examples), p=[0.05, 0.85, 0.1])
    single_examples = tuple(map(str, range(examples)))
    groups_of_three = tuple(str(i // 3) for i in range(examples))
    uneven_groups = tuple(
        str(group) for group in rng.integers(max(2, examples // 16), size=examples)
    )
    return {
        "gains −1, 0, 1, each example a group": (gains[:1], single_examples),
        "the same, groups of three": (gains[:1], groups_of_three),
        "the same, groups of 1 to about 30": (gains[:1], uneven_groups),
        "25 rows, groups of three": (gains, groups_of_three),
        "any gains, each example a group": (rng.normal(size=(1, examples)), single_examples),
        "any gains, groups of three": (rng.normal(size=(1, examples)), groups_of_three),
    }


def fastest(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Processor seconds of the fastest run, and the result of the last one."""
    best_seconds = float("inf")
    result = None
    for _ in range(times):
        began = time.process_time()
        result = work()
        best_seconds = min(best_seconds, time.process_time() - began)
    return best_seconds, result


def bootstrap_rows(examples: int, draws: int, times: int) -> list[Row]:
    """Time both versions on every kind of data."""
    rows = []
    for name, (values, groups) in example_data(examples).items():

        def resample(values: Any = values, groups: tuple[str, ...] = groups) -> stats.Bootstrap:
            return stats.group_bootstrap(values, groups, np.random.default_rng(1), draws=draws)

        def resample_formerly(
            values: Any = values, groups: tuple[str, ...] = groups
        ) -> stats.Bootstrap:
            return former_group_bootstrap(values, groups, np.random.default_rng(1), draws)

        present_seconds, present = fastest(resample, times)
        former_seconds, former = fastest(resample_formerly, 1)
        rows.append(
            Row(
                name,
                len(values),
                present_seconds,
                former_seconds,
                interval=(float(present.low[0]), float(present.high[0])),
                former_interval=(float(former.low[0]), float(former.high[0])),
            )
        )
    return rows


def agreement_seconds(draws: int, times: int) -> dict[str, float]:
    """Seconds for all pairs of languages: of the correlations alone, and of the whole agreement."""
    rng = np.random.default_rng(0)
    halves = rng.normal(size=HEADS) + rng.normal(size=(LANGUAGES, 2, HEADS))
    values = halves.mean(axis=1)
    correlation_seconds, _ = fastest(
        lambda: stats.spearman_interval(values, np.random.default_rng(1), draws), times
    )
    all_seconds, _ = fastest(
        lambda: stats.agreement(values, halves, np.random.default_rng(1), draws), times
    )
    return {"spearman_interval": correlation_seconds, "agreement": all_seconds}


def interval_text(interval: tuple[float, float]) -> str:
    """An interval with four decimals."""
    low, high = interval
    return f"[{low:.4f}, {high:.4f}]"


def main() -> int:
    """Time it, print it, and write it unless it is a smoke test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="resample little and write nothing")
    smoke = parser.parse_args().smoke
    machine = machine_facts()
    examples = 200 if smoke else EXAMPLES
    draws = 100 if smoke else DRAWS
    times = 1 if smoke else 4
    rows = bootstrap_rows(examples, draws, times)
    agreement_times = agreement_seconds(50 if smoke else HEAD_DRAWS, times)
    print(f"{draws:,} resamples of {examples:,} examples, one core\n")
    print("| values and groups | seconds | before | times faster | interval | before |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        timings = f"{row.seconds:.4f} | {row.former:.2f} | {row.ratio:.0f}"
        intervals = f"{interval_text(row.interval)} | {interval_text(row.former_interval)}"
        print(f"| {row.name} | {timings} | {intervals} |")
    for name, seconds in agreement_times.items():
        print(f"\n{name}: {seconds:.2f} s for {LANGUAGES} languages and {HEADS} heads")
    if smoke:
        return 0
    provenance = {
        "command": "python benchmarks/bootstrap.py",
        "machine": machine,
        "versions": {name: installed_version(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(
        RESULT_FILE,
        {
            **provenance,
            "examples": examples,
            "draws": draws,
            "limit": LIMIT,
            "rows": [asdict(row) | {"ratio": row.ratio} for row in rows],
            "languages": LANGUAGES,
            "heads": HEADS,
            "head_draws": HEAD_DRAWS,
            "head_limit": HEAD_LIMIT,
            "seconds": agreement_times,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
