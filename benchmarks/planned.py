"""How often planned intervals miss where heads stop, and after how many samples they stop.

    python benchmarks/planned.py            everything; writes benchmarks/results/planned.json
    python benchmarks/planned.py --smoke    few heads; writes nothing

Needs no model: gains are drawn from distributions whose means are known. A head stops as
`headlab.methods.tmab` lets it; tests/stats/test_planned.py plays some of the same heads.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headlab.core import Bools, Floats, Ints
from headlab.methods.planned_looks import PlannedLooks
from headlab.methods.sampling import weighted_support
from headlab.methods.tmab import PLANNED_SURPLUS
from headlab.stats import guarded_variances, planned_interval, samples_for_width

RESULT_FILE = Path(__file__).resolve().parent / "results" / "planned.json"
LEVEL = 0.95
TARGET = 0.01
CYCLE = 512
MOST_CYCLES = 100
RATES = (0.0005, 0.005, 0.02, 0.05, 0.1, 0.5, 0.9, 0.99)
LEANS = (0.0, 0.3, 1.0)
WEIGHTS = ((1, 0.0), (4, 0.03), (8, 0.03), (8, 0.1), (16, 0.1))
"""(largest weight, share of the gains that have it)."""
RULES = ("width", "sign")


class MadeUpGains(NamedTuple):
    """Gains of -1, 0 and 1, some of which are seen with a small chance and weigh its inverse.

    Attributes:
        rate: Chance that a gain is not 0.
        lean: From 0, both signs alike, to 1, all of one sign.
        weight: The largest weight, a power of two.
        weighted: Share of the gains that have it.
    """

    rate: float
    lean: float
    weight: int
    weighted: float

    @property
    def mean(self) -> float:
        """The mean that intervals must hold."""
        return self.rate * self.lean

    @property
    def support(self) -> Floats:
        """The values of samples, float [value]."""
        return weighted_support(1, self.weight)

    def chances(self) -> Floats:
        """The chance of each value, float [value]."""
        support = self.support
        chances = np.zeros(len(support))
        for sign, share in ((1, (1 + self.lean) / 2), (-1, (1 - self.lean) / 2)):
            chances[support == sign] += self.rate * share * (1 - self.weighted)
            chances[support == sign * self.weight] += (
                self.rate * share * self.weighted / self.weight
            )
        chances[support == 0] = 1 - chances.sum()
        return chances


class Stops(NamedTuple):
    """Where heads stopped.

    Attributes:
        misses: Whether the interval of the last look misses the mean, bool [head].
        ever_missed: Whether that of any look did, bool [head].
        samples: Number of samples by then, int [head].
        half_widths: Half of the interval's length, float [head].
        looks: Number of looks, int [head].
    """

    misses: Bools
    ever_missed: Bools
    samples: Ints
    half_widths: Floats
    looks: Ints


def play(gains: MadeUpGains, rule: str, heads: int, rng: np.random.Generator) -> Stops:
    """Sample heads in cycles until each has stopped.

    Args:
        gains: Their distribution.
        rule: "sign" lets a head stop when a look decides its sign, "width" does not.
        heads: How many.
        rng: Source of the gains.
    """
    support = gains.support
    chances = gains.chances()
    counts = np.zeros((len(support), heads), np.int64)
    active = np.ones(heads, bool)
    looks = PlannedLooks.start(heads)
    misses = np.zeros(heads, bool)
    ever_missed = np.zeros(heads, bool)
    half_widths = np.zeros(heads)
    unit_gains = np.ones(heads)
    for cycle in range(MOST_CYCLES):
        counts[:, active] += rng.multinomial(CYCLE, chances, size=int(active.sum())).T
        samples = counts.sum(axis=0)
        variances = guarded_variances(support, counts, unit_gains)
        foreseen = samples_for_width(variances, TARGET, 1 - looks.spent, LEVEL)
        planned = PLANNED_SURPLUS * foreseen
        if cycle == MOST_CYCLES - 1:
            planned = np.minimum(planned, samples)
        is_due = active & looks.due(samples, planned)
        looks = looks.with_looks(samples, planned, is_due, 1.0)
        low, high = planned_interval(support, counts, looks.share, LEVEL, unit_gains)
        is_missing = (low > gains.mean) | (high < gains.mean)
        ever_missed |= is_due & is_missing
        stops = is_due & looks.is_last
        if rule == "sign":
            stops |= is_due & ((low > 0) | (high < 0))
        misses = np.where(stops, is_missing, misses)
        half_widths = np.where(stops, (high - low) / 2, half_widths)
        active &= ~stops
        if not active.any():
            break
    return Stops(misses, ever_missed, counts.sum(axis=0), half_widths, looks.taken)


def main() -> None:
    """Play all distributions, print a line each, and store the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="few heads; writes nothing")
    smoke = parser.parse_args().smoke
    heads = 50 if smoke else 4000
    rng = np.random.default_rng(0)
    rows = []
    for (weight, weighted), rate, lean, rule in product(WEIGHTS, RATES, LEANS, RULES):
        stops = play(MadeUpGains(rate, lean, weight, weighted), rule, heads, rng)
        row = {
            "rate": rate,
            "lean": lean,
            "weight": weight,
            "weighted": weighted,
            "stop": rule,
            "missed": float(stops.misses.mean()),
            "missed_at_any_look": float(stops.ever_missed.mean()),
            "samples": float(stops.samples.mean()),
            "half_width": float(stops.half_widths.mean()),
            "looks": float(stops.looks.mean()),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    if not smoke:
        settings = {"heads": heads, "target": TARGET, "level": LEVEL, "cycle": CYCLE}
        record = {"command": "python benchmarks/planned.py", **settings, "rows": rows}
        RESULT_FILE.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
