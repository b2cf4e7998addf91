"""How often planned intervals miss where gains are probabilities: of all sizes, some rare and large.

    python benchmarks/planned_tails.py                      made-up gains; writes planned-tails.json
    python benchmarks/planned_tails.py --gains lm.npz …     and gains as they came in runs
    python benchmarks/planned_tails.py --smoke              few runs; writes nothing

A run draws the gains of all heads at once and looks once, as runs without a target do. Gains of heads
differ in scale; "null" heads are the same ones with their means taken off, so that every sign that is
claimed of them is false. Files of gains hold `gains`, float [draw, head], as shares of the span; draws
are taken from them with replacement, whole, so that heads depend on each other as they do.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import Floats
from headlab.methods.sampling import level_indices_of, weighted_support
from headlab.stats import benjamini_hochberg, holm, made_up_gains, planned_interval, planned_p

RESULT_FILE = Path(__file__).resolve().parent / "results" / "planned-tails.json"
LEVEL = 0.95
SUPPORT = weighted_support(4096, 1)
HEADS = 270
SAMPLES = (64, 128, 256)
RUNS = 200
DrawGains = Callable[[np.random.Generator, int], Floats]


def scales(heads: int) -> Floats:
    """Typical sizes of the gains of heads: the largest are thirty times the smallest, [head]."""
    return np.geomspace(0.001, 0.03, heads)


def normal(rng: np.random.Generator, samples: int) -> Floats:
    """Gains without tails, [sample, head]."""
    return scales(HEADS) * rng.normal(size=(samples, HEADS))


def student(rng: np.random.Generator, samples: int) -> Floats:
    """Heavy tails on both sides: Student's t with 3 degrees of freedom, [sample, head]."""
    return scales(HEADS) * rng.standard_t(3, size=(samples, HEADS))


def skewed(rng: np.random.Generator, samples: int) -> Floats:
    """A heavy tail on one side: lognormal with a mean of 0, [sample, head]."""
    sizes = np.exp(1.2 * rng.normal(size=(samples, HEADS)))
    return scales(HEADS) * (sizes - np.exp(0.72))


def rare(rng: np.random.Generator, samples: int) -> Floats:
    """Small gains, and one in a hundred twenty times as large, all of one sign, [sample, head]."""
    is_rare = rng.random((samples, HEADS)) < 0.01
    return scales(HEADS) * (rng.normal(size=(samples, HEADS)) + 20 * (is_rare - 0.01))


def rare_in_few(rng: np.random.Generator, samples: int) -> Floats:
    """The same in one head of nine alone: the others say nothing of it, [sample, head]."""
    is_rare = rng.random((samples, HEADS)) < 0.01
    is_rare &= np.arange(HEADS) % 9 == 0
    shares = np.where(np.arange(HEADS) % 9 == 0, 0.01, 0.0)
    return scales(HEADS) * (rng.normal(size=(samples, HEADS)) + 20 * (is_rare - shares))


FAMILIES: dict[str, DrawGains] = {
    "normal": normal,
    "heavy tails": student,
    "one heavy tail": skewed,
    "rare large ones": rare,
    "rare large ones in few heads": rare_in_few,
}


def resampled(gains: Floats) -> DrawGains:
    """Draws of gains that came in a run, with replacement.

    Args:
        gains: float [draw, head].
    """

    def draw(rng: np.random.Generator, samples: int) -> Floats:
        return gains[rng.integers(len(gains), size=samples)]

    return draw


def counts_of(gains: Floats, seed: int) -> np.ndarray:
    """How often each head had each value of the support, int [value, head]."""
    level_indices = level_indices_of(np.clip(gains, -1, 1), SUPPORT, seed, 0)
    heads = gains.shape[1]
    cells = (level_indices * heads + np.arange(heads)).ravel()
    return np.bincount(cells, minlength=len(SUPPORT) * heads).reshape(len(SUPPORT), heads)


def play(draw: DrawGains, truth: Floats, samples: int, runs: int) -> dict[str, float]:
    """How often intervals miss, and how many signs are claimed, over some runs.

    Args:
        draw: Draws gains.
        truth: The mean of each head's gains, float [head].
        samples: Draws of a run.
        runs: How many.
    """
    rng = np.random.default_rng(samples)
    missed = np.zeros(len(truth))
    claimed = {"raw": [], "holm": [], "bh": []}
    wrong = {"raw": [], "holm": [], "bh": []}
    widths = []
    for run in range(runs):
        counts = counts_of(draw(rng, samples), run)
        gains = made_up_gains(SUPPORT, counts)
        shares = np.ones(len(truth))
        low, high = planned_interval(SUPPORT, counts, shares, LEVEL, gains)
        p_values = planned_p(SUPPORT, counts, shares, gains)
        missed += (low > truth) | (high < truth)
        signs = np.sign(low + high)
        widths.append(np.median(high - low) / 2)
        for name, adjusted in (
            ("raw", p_values),
            ("holm", holm(p_values)),
            ("bh", benjamini_hochberg(p_values)),
        ):
            is_claimed = adjusted <= 1 - LEVEL
            claimed[name].append(is_claimed.sum())
            wrong[name].append((is_claimed & (signs * truth <= 0)).sum())
    figures = {
        "missed": float(missed.mean() / runs),
        "missed_of_worst_head": float(missed.max() / runs),
        "half_width": float(np.median(widths)),
    }
    for name in claimed:
        figures[f"signs_{name}"] = float(np.mean(claimed[name]))
        figures[f"wrong_{name}"] = float(np.mean(wrong[name]))
    figures["runs_with_wrong_holm"] = float(np.mean(np.array(wrong["holm"]) > 0))
    shares_wrong = np.array(wrong["bh"]) / np.maximum(claimed["bh"], 1)
    figures["share_wrong_bh"] = float(shares_wrong.mean())
    return figures


def cells(paths: list[Path]) -> dict[str, tuple[DrawGains, Floats]]:
    """What is played: (draws of gains, their means) by name."""
    played: dict[str, tuple[DrawGains, Floats]] = {}
    for name, draw in FAMILIES.items():
        played[f"{name}, null"] = (draw, np.zeros(HEADS))
    for path in paths:
        with np.load(path) as arrays:
            gains = np.asarray(arrays["gains"], np.float64)
        means = gains.mean(axis=0)
        played[path.stem] = (resampled(gains), means)
        played[f"{path.stem}, null"] = (resampled(gains - means), np.zeros(len(means)))
    return played


def main() -> None:
    """Play all cells, print a line each, and store the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gains", type=Path, nargs="*", default=[], help="files of gains")
    parser.add_argument("--smoke", action="store_true", help="few runs; writes nothing")
    arguments = parser.parse_args()
    runs = 10 if arguments.smoke else RUNS
    rows: list[dict[str, Any]] = []
    for name, (draw, truth) in cells(arguments.gains).items():
        for samples in SAMPLES:
            rows.append({"gains": name, "samples": samples, **play(draw, truth, samples, runs)})
            print(json.dumps(rows[-1]), flush=True)
    if not arguments.smoke:
        record = {"runs": runs, "level": LEVEL, "heads": HEADS, "rows": rows}
        RESULT_FILE.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
