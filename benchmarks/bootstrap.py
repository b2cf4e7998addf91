"""What resampling costs: the group bootstrap against its former version, and the rank agreement of 15 languages.

10,000 resamples of 5,000 examples, on one core. The former version drew all groups by one multinomial and summed
them in one matrix product; it is kept here to be compared with, and timed once. Of the present one the fastest of
several times counts. Seconds are of processor time, so that other work on the machine does not count as much.

`python benchmarks/bootstrap.py` writes results/bootstrap.json; `--smoke` resamples little and writes nothing.
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

from machine import installed, machine, write  # noqa: E402 - beside this file

from headlab import stats  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "bootstrap.json"
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
    """Seconds of one kind of data, now and before; ends of the interval, now and before."""

    name: str
    rows: int
    seconds: float
    former: float
    interval: tuple[float, float]
    former_interval: tuple[float, float]

    @property
    def ratio(self) -> float:
        """How many times faster."""
        return self.former / self.seconds


def former(
    values: Any, groups: tuple[str, ...], rng: np.random.Generator, draws: int
) -> stats.Bootstrap:
    """`stats.group_bootstrap` as it was."""
    _, member = np.unique(np.array(groups), return_inverse=True)
    count = int(member.max()) + 1
    sums = np.stack([np.bincount(member, row, minlength=count) for row in values])
    sums = np.concatenate([sums, np.tile((1.0, -1.0), (len(sums), 1))], axis=1)
    sizes = np.append(np.bincount(member), [1, 1])
    picks = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=draws).astype(
        np.float64
    )
    resampled = (picks @ sums.T) / np.maximum(picks @ sizes, 1)[:, None]
    low, high = np.quantile(resampled, [0.025, 0.975], axis=0)
    tail = 1 + np.minimum((resampled <= 0).sum(axis=0), (resampled >= 0).sum(axis=0))
    return stats.Bootstrap(low, high, np.minimum(1.0, 2 * tail / (draws + 1)))


def data(examples: int) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Gains [row, example] and groups, by what is special about them."""
    rng = np.random.default_rng(0)
    gains = rng.choice([-1.0, 0.0, 1.0], size=(25, examples), p=[0.05, 0.85, 0.1])
    alone = tuple(map(str, range(examples)))
    threes = tuple(str(i // 3) for i in range(examples))
    uneven = tuple(str(group) for group in rng.integers(max(2, examples // 16), size=examples))
    return {
        "gains −1, 0, 1, each example a group": (gains[:1], alone),
        "the same, groups of three": (gains[:1], threes),
        "the same, groups of 1 to about 30": (gains[:1], uneven),
        "25 rows, groups of three": (gains, threes),
        "any gains, each example a group": (rng.normal(size=(1, examples)), alone),
        "any gains, groups of three": (rng.normal(size=(1, examples)), threes),
    }


def fastest(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Processor seconds of the fastest run, and what it gave."""
    best = float("inf")
    found = None
    for _ in range(times):
        began = time.process_time()
        found = work()
        best = min(best, time.process_time() - began)
    return best, found


def bootstraps(examples: int, draws: int, times: int) -> list[Row]:
    """Every kind of data, now and before."""
    out = []
    for name, (values, groups) in data(examples).items():
        now, new = fastest(
            lambda v=values, g=groups: stats.group_bootstrap(
                v, g, np.random.default_rng(1), draws=draws
            ),
            times,
        )
        then, old = fastest(
            lambda v=values, g=groups: former(v, g, np.random.default_rng(1), draws), 1
        )
        ends = [(float(found.low[0]), float(found.high[0])) for found in (new, old)]
        out.append(Row(name, len(values), now, then, *ends))
    return out


def agreements(draws: int, times: int) -> dict[str, float]:
    """Seconds for every pair of languages: the correlations alone, and everything of the agreement."""
    rng = np.random.default_rng(0)
    halves = rng.normal(size=HEADS) + rng.normal(size=(LANGUAGES, 2, HEADS))
    values = halves.mean(axis=1)
    return {
        "spearman_interval": fastest(
            lambda: stats.spearman_interval(values, np.random.default_rng(1), draws), times
        )[0],
        "agreement": fastest(
            lambda: stats.agreement(values, halves, np.random.default_rng(1), draws), times
        )[0],
    }


def main() -> int:
    """Time it, print it, and write it unless it is a smoke test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="resample little and write nothing")
    smoke = parser.parse_args().smoke
    about = machine()
    examples, draws, times = (200, 100, 1) if smoke else (EXAMPLES, DRAWS, 4)
    rows = bootstraps(examples, draws, times)
    heads = agreements(50 if smoke else HEAD_DRAWS, times)
    print(f"{draws:,} resamples of {examples:,} examples, one core\n")
    print(
        "| values and groups | seconds | before | times faster | interval | before |\n| --- "
        + "| ---: " * 5
        + "|"
    )
    for row in rows:
        new, old = (f"[{low:.4f}, {high:.4f}]" for low, high in (row.interval, row.former_interval))
        print(
            f"| {row.name} | {row.seconds:.4f} | {row.former:.2f} | {row.ratio:.0f} | {new} | {old} |"
        )
    for name, seconds in heads.items():
        print(f"\n{name}: {seconds:.2f} s for {LANGUAGES} languages and {HEADS} heads")
    if smoke:
        return 0
    told = {
        "command": "python benchmarks/bootstrap.py",
        "machine": about,
        "versions": {name: installed(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write(
        OUT,
        {
            **told,
            "examples": examples,
            "draws": draws,
            "limit": LIMIT,
            "rows": [asdict(row) | {"ratio": row.ratio} for row in rows],
            "languages": LANGUAGES,
            "heads": HEADS,
            "head_draws": HEAD_DRAWS,
            "head_limit": HEAD_LIMIT,
            "seconds": heads,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
