"""Which interval needs the fewest samples, and which ones hold, under the stopping rule of headlab.

    python benchmarks/intervals.py            everything; writes benchmarks/results/intervals.json
    python benchmarks/intervals.py --smoke    a few runs; writes nothing

Needs no model: gains are drawn from distributions whose means are known. The library `confseq` is
part of the comparison if it can be imported (PYTHONPATH may name it).
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headlab import stats
from headlab.core import allowed_processors
from headlab.methods.sampling import SamplingPlan, Tally, even_support, level_indices_of
from headlab.stats import betting as bets

ROOT = Path(__file__).resolve().parents[1]
RESULT_FILE = ROOT / "benchmarks" / "results" / "intervals.json"
CYCLE = 512
LOOKS = 32
TARGET = 0.01
LEVEL = 0.95
RULES = ("width", "sign")
FORMER_FRACTIONS = (0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.4, 0.6, 0.75, 0.86, 0.93, 0.97)
DRAWS_AT_LOOKS = CYCLE * np.arange(1, LOOKS + 1)


@dataclass(frozen=True)
class Gains:
    """A distribution of gains in [-1, 1].

    Attributes:
        name: As it stands in the results.
        parts: (share, low, high): with the chance `share` a gain is uniform on [low, high]; else 0.
        steps: Into how many steps gains between 0 and 1 are counted.
        two: Whether a sample is the mean of two such gains.
    """

    name: str
    parts: tuple[tuple[float, float, float], ...]
    steps: int = 1
    two: bool = False

    @property
    def mean(self) -> float:
        """The mean that intervals must hold."""
        total = 0.0
        for share, low, high in self.parts:
            total += share * (low + high) / 2
        return total

    @property
    def support(self) -> np.ndarray:
        """Values that a sample can take, float [level]."""
        return even_support(self.steps * (1 + self.two))

    def draw(self, rng: np.random.Generator, runs: int, draws: int) -> np.ndarray:
        """Levels from 0, int [run, draw]."""
        gains = [self._draw_gains(rng, (draws, runs)) for _ in range(1 + self.two)]
        levels = sum(gains).T
        return np.ascontiguousarray(levels).astype(np.int16)

    def _draw_gains(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        shares = [share for share, _, _ in self.parts]
        part_indices = np.searchsorted(np.cumsum(shares), rng.random(shape), side="right")
        lows = np.array([low for _, low, _ in self.parts] + [0.0])
        highs = np.array([high for _, _, high in self.parts] + [0.0])
        low = lows[part_indices]
        high = highs[part_indices]
        gains = low
        if self.steps > 1:
            gains = low + (high - low) * rng.random(shape)
        seed = int(rng.integers(1 << 31))
        return level_indices_of(gains, even_support(self.steps), seed, 0)


def ternary(up: float, down: float, two: bool = False) -> Gains:
    """Gains of -1, 0 or 1, as accuracy gains are.

    Args:
        up: Chance of 1.
        down: Chance of -1.
        two: Whether a sample is the mean of two of them.
    """
    kind = "mean of two ternary" if two else "ternary"
    name = f"{kind}, P(+1) = {up:g}, P(-1) = {down:g}"
    parts = ((up, 1, 1), (down, -1, -1))
    return Gains(name, parts, two=two)


def smooth(name: str, *parts: tuple[float, float, float], two: bool = False) -> Gains:
    """Gains of any number in [-1, 1], counted in 64 steps, as probability gains are."""
    return Gains(name, parts, 64, two)


# Like the committed results for intents: P(gain is not 0) 0.004 to 0.13, means -0.03 to 0.1.
DISTRIBUTIONS = (
    ternary(0, 0),
    ternary(0.004, 0),
    ternary(0.002, 0.002),
    ternary(0, 0.006),
    ternary(0.008, 0.002),
    ternary(0.01, 0.01),
    ternary(0.005, 0.015),
    ternary(0.02, 0.01),
    ternary(0.015, 0.02),
    ternary(0.03, 0.02),
    ternary(0.015, 0.045),
    ternary(0.04, 0.01),
    ternary(0.05, 0.05),
    ternary(0.08, 0.03),
    ternary(0.065, 0.065),
    ternary(0.115, 0.015),
    ternary(0.01, 0.01, True),
    ternary(0.03, 0.02, True),
    ternary(0.02, 0.05, True),
    ternary(0.07, 0.06, True),
    smooth("mostly tiny, both signs", (0.97, -0.004, 0.004), (0.03, -0.3, 0.3)),
    smooth("mostly tiny, rarely a jump up", (0.985, -0.003, 0.003), (0.015, 0.2, 1.0)),
    smooth("a tenth moves, to both sides", (0.06, 0.0, 0.5), (0.04, -0.6, 0.0)),
    smooth("small and harmful", (0.8, -0.02, 0.012), (0.02, -0.4, 0.1)),
    smooth("mean of two, mostly tiny", (0.96, -0.005, 0.007), (0.04, -0.25, 0.25), two=True),
)


@dataclass(frozen=True)
class StoppedRuns:
    """Where runs stopped.

    Attributes:
        draws: Int [run].
        covered: Bool [run], whether the interval held the true mean there.
    """

    draws: np.ndarray
    covered: np.ndarray


def stop_runs(
    low: np.ndarray,
    high: np.ndarray,
    draws_at_looks: np.ndarray,
    truth: float,
    rule: str,
) -> StoppedRuns:
    """Stop each run at the first look at which the rule is met, or at the last look.

    Args:
        low: Lower bounds, float [run, look].
        high: Upper bounds, float [run, look].
        draws_at_looks: Int [look].
        truth: The true mean.
        rule: One of `RULES`.
    """
    rule_met = (high - low) / 2 <= TARGET
    if rule == "sign":
        rule_met |= (low > 0) | (high < 0)
    look = np.where(
        rule_met.any(axis=1),
        rule_met.argmax(axis=1),
        len(draws_at_looks) - 1,
    )
    row = np.arange(len(low))
    low = low[row, look]
    high = high[row, look]
    covered = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    return StoppedRuns(draws_at_looks[look], covered)


# (distribution, levels [run, draw]) -> lower and upper bounds, both [run, look], and the draws at
# each look [look].
Method = Callable[[Gains, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def betting(
    gains: Gains,
    levels: np.ndarray,
    *,
    learning: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`stats.betting_interval` of the counts after each cycle.

    Args:
        gains: The distribution.
        levels: Int [run, draw].
        learning: Whether stakes are learned from the first cycle.
    """
    runs = len(levels)
    size = len(gains.support)
    low = np.full((runs, LOOKS), -1.0)
    high = np.full((runs, LOOKS), 1.0)
    sampled = np.ones(runs, bool)
    counts = np.zeros((size, runs), np.int64)
    learned_stakes = None
    for look in range(LOOKS):
        cycle_levels = levels[:, look * CYCLE : (look + 1) * CYCLE]
        bins = cycle_levels + size * np.arange(runs)[:, None]
        bin_counts = np.bincount(bins.ravel(), minlength=size * runs)
        counts += bin_counts.reshape(runs, size).T
        stakes = None
        if learned_stakes is not None:
            stakes = stats.LearnedStakes(
                learned_stakes.counts[:, sampled],
                learned_stakes.shares[:, sampled],
            )
        low[sampled, look], high[sampled, look] = stats.betting_interval(
            gains.support,
            counts[:, sampled],
            LEVEL,
            stakes,
        )
        if learning and look == 0:
            learned_stakes = stats.learn_stakes(gains.support, counts.copy(), TARGET)
        half_width = (high[:, look] - low[:, look]) / 2
        sampled &= half_width > TARGET
        if not sampled.any():
            break
    return low, high, DRAWS_AT_LOOKS


def learned_betting(gains: Gains, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `shapley` reports: the same, with stakes learned from the first cycle."""
    return betting(gains, levels, learning=True)


@contextmanager
def mixture(fractions: tuple[float, ...], shares: tuple[float, ...]) -> Iterator[None]:
    """Another mixture of bets than the package's."""
    package_mixture = bets.FRACTIONS, bets.SHARES
    bets.FRACTIONS = fractions
    bets.SHARES = shares
    try:
        yield
    finally:
        bets.FRACTIONS, bets.SHARES = package_mixture


def former_betting(gains: Gains, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mixture that headlab used before: equal shares, and more of them on high stakes."""
    number = len(FORMER_FRACTIONS)
    equal_shares = (1 / number,) * number
    with mixture(FORMER_FRACTIONS, equal_shares):
        return betting(gains, levels)


def bernstein_sequence(
    gains: Gains, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The predictable plug-in empirical Bernstein confidence sequence.

    Waudby-Smith & Ramdas 2023, theorem 2.
    """
    low, high = empirical_bernstein(gains.support[levels], 1 - LEVEL)
    cycle_ends = DRAWS_AT_LOOKS - 1
    return low[:, cycle_ends], high[:, cycle_ends], DRAWS_AT_LOOKS


def empirical_bernstein(draws: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds after every draw, of draws in [-1, 1]; all float [run, draw]."""
    x = (1 + draws) / 2  # the theorem is for [0, 1]
    number = np.arange(1, x.shape[1] + 1)
    mean = (0.5 + x.cumsum(axis=1)) / (number + 1)
    variance = (0.25 + ((x - mean) ** 2).cumsum(axis=1)) / (number + 1)
    first_variance = np.full((len(x), 1), 0.25)
    variance_before = np.hstack([first_variance, variance[:, :-1]])
    bet = np.minimum(
        np.sqrt(2 * np.log(2 / alpha) / (variance_before * number * np.log(1 + number))),
        0.5,
    )
    first_guess = np.full((len(x), 1), 0.5)
    guess = np.hstack([first_guess, mean[:, :-1]])
    spread = ((x - guess) ** 2 * (-np.log1p(-bet) - bet)).cumsum(axis=1)  # 4 (x - guess)^2 psi / 4
    total = bet.cumsum(axis=1)
    centre = (bet * x).cumsum(axis=1) / total
    width = (np.log(2 / alpha) + spread) / total
    low = np.maximum(2 * (centre - width) - 1, -1)
    high = np.minimum(2 * (centre + width) - 1, 1)
    return low, high


def moments(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of the draws so far, both [run, draw], and their number [draw]."""
    number = np.arange(1, draws.shape[1] + 1)
    mean = draws.cumsum(axis=1) / number
    variance = np.maximum((draws**2).cumsum(axis=1) / number - mean**2, 0)
    return mean, variance, number


def equation_4(gains: Gains, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Equation 4 of Held & Yang with their range 1, looked at after every draw."""
    mean, variance, number = moments(gains.support[levels])
    draws = np.broadcast_to(number, mean.shape)
    width = stats.bernstein_width(variance, draws, 1 - LEVEL, 1.0)
    return mean - width, mean + width, number


def public_script(gains: Gains, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Equation 4 as that paper's public script has it.

    It divides the deviation by the number of draws instead of by its square root.
    """
    mean, variance, number = moments(gains.support[levels])
    log = np.log(3 / (1 - LEVEL))
    width = np.sqrt(2 * variance * log) / number + 3 * log / number
    return mean - width, mean + width, number


def normal(gains: Gains, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The textbook interval, 1.96 standard errors, looked at after every cycle."""
    mean, variance, number = moments(gains.support[levels])
    width = 1.959964 * np.sqrt(variance / number)
    low = mean - width
    high = mean + width
    cycle_ends = DRAWS_AT_LOOKS - 1
    return low[:, cycle_ends], high[:, cycle_ends], DRAWS_AT_LOOKS


METHODS: dict[str, Method] = {
    "headlab": learned_betting,
    "headlab, one mixture": betting,
    "headlab, former mixture": former_betting,
    "empirical Bernstein sequence": bernstein_sequence,
    "Equation 4, range 1, every draw": equation_4,
    "the public script's width, every draw": public_script,
    "1.96 standard errors, every cycle": normal,
}


def confseq_module() -> Any:
    """`confseq.betting`, or None if it is not installed.

    Its version 0.0.11 needs `np.float_`, which numpy 2 has no more, so that name is added.
    """
    if not hasattr(np, "float_"):
        np.float_ = np.float64
    try:
        import confseq.betting
    except ImportError:
        return None
    return confseq.betting


def library_method(module: Any) -> Method:
    """The library's betting martingale with its own stakes.

    Its bounds after each cycle are found by bisection.
    """

    def lower_end(x: np.ndarray, low: float, high: float) -> float:
        for _ in range(14):
            middle = (low + high) / 2
            capital = module.betting_mart(x, middle, alpha=1 - LEVEL)[-1]
            if capital <= 1 / (1 - LEVEL):
                high = middle
            else:
                low = middle
        return low

    def run(gains: Gains, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        low = np.full((len(levels), LOOKS), -1.0)
        high = np.full((len(levels), LOOKS), 1.0)
        for row, draws in enumerate((1 + gains.support[levels]) / 2):
            for look, count in enumerate(DRAWS_AT_LOOKS):
                x = draws[:count]
                end_below = lower_end(x, 0.0, float(x.mean()))
                end_above = lower_end(1 - x, 0.0, float(1 - x.mean()))
                low[row, look] = 2 * end_below - 1
                high[row, look] = 1 - 2 * end_above
                if high[row, look] - low[row, look] <= 2 * TARGET:
                    break
        return low, high, DRAWS_AT_LOOKS

    return run


def compare_methods(runs: int, confseq_runs: int, seed: int) -> list[dict[str, Any]]:
    """Compare all methods on all distributions: an entry for each of them and each rule.

    Args:
        runs: Of every distribution.
        confseq_runs: How many of them the library `confseq` gets, which is slow.
        seed: What gains are drawn from.
    """
    module = confseq_module()
    entries = []
    methods = dict(METHODS)
    if module is not None:
        methods["confseq, betting"] = library_method(module)
    for number, gains in enumerate(DISTRIBUTIONS):
        rng = np.random.default_rng([seed, number])
        levels = gains.draw(rng, runs, CYCLE * LOOKS)
        for name, method in methods.items():
            method_levels = levels[:confseq_runs] if name.startswith("confseq") else levels
            low, high, draws_at_looks = method(gains, method_levels)
            for rule in RULES:
                stopped = stop_runs(low, high, draws_at_looks, gains.mean, rule)
                entries.append(
                    {
                        "gains": gains.name,
                        "mean": gains.mean,
                        "method": name,
                        "rule": rule,
                        "runs": len(method_levels),
                        "draws": float(stopped.draws.mean()),
                        "missed": int((~stopped.covered).sum()),
                        "draws_of_first": float(stopped.draws[:confseq_runs].mean()),
                    }
                )
        print(f"  {number + 1} of {len(DISTRIBUTIONS)}: {gains.name}", flush=True)
    return entries


def summary(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each method: mean draws and misses over all distributions, and the most misses."""
    rows = []
    for name in dict.fromkeys(entry["method"] for entry in entries):
        row: dict[str, Any] = {"method": name}
        for rule in RULES:
            columns: dict[str, list[Any]] = {
                "draws": [],
                "draws_of_first": [],
                "missed": [],
                "runs": [],
            }
            for entry in entries:
                if entry["method"] == name and entry["rule"] == rule:
                    for column, values in columns.items():
                        values.append(entry[column])
            run_counts = columns["runs"]
            missed_counts = columns["missed"]
            missed_shares = []
            for missed_count, run_count in zip(missed_counts, run_counts, strict=True):
                missed_shares.append(missed_count / run_count)
            row |= {
                f"{rule}_draws": float(np.mean(columns["draws"])),
                f"{rule}_draws_of_first": float(np.mean(columns["draws_of_first"])),
                f"{rule}_missed": sum(missed_counts) / sum(run_counts),
                f"{rule}_missed_worst": max(missed_shares),
            }
        rows.append(row)
    return rows


HEADS = 144
CYCLES = 16
MAX_MEAN = 0.1
MIN_MEAN = -0.03


def joint_figures(runs: int, seed: int) -> dict[str, Any]:
    """144 heads sampled as `tmab` does: how often all intervals hold, and how many signs are wrong.

    A third of the heads has a mean of exactly 0; the others' means are mostly small. Each example has
    chances of its own, so that examples differ.
    """
    rng = np.random.default_rng([seed, 144])
    plan = SamplingPlan(CYCLE * CYCLES, TARGET, "sign", LEVEL, 1.0)
    covered_shares = []
    all_covered = []
    procedures = ("interval", "holm", "benjamini_hochberg")
    claim_counts = dict.fromkeys(procedures, 0)
    false_claim_counts = dict.fromkeys(procedures, 0)
    runs_with_false_claims = dict.fromkeys(procedures, 0)
    for _ in range(runs):
        chance_up, chance_down = chances_of_heads(rng)
        truth = (chance_up - chance_down).mean(axis=0)
        tally = Tally.start(HEADS, even_support(1), plan)
        while not tally.is_finished:
            uniforms = rng.random((CYCLE, HEADS))
            is_up = uniforms < chance_up
            is_down = uniforms > 1 - chance_down
            gains = is_up.astype(np.int64) - is_down
            tally = tally.add(
                1 + gains,
                tally.active,
                CYCLE,
                np.zeros(CYCLE, bool),
            ).without_satisfied_heads()
        outcome = tally.outcome()
        covered = (outcome.low <= truth + 1e-12) & (truth - 1e-12 <= outcome.high)
        covered_shares.append(covered.mean())
        all_covered.append(bool(covered.all()))
        p_values = stats.betting_p(tally.support, tally.counts)
        claimed_by_method = {
            "interval": (outcome.low > 0) | (outcome.high < 0),
            "holm": stats.holm(p_values) <= 1 - LEVEL,
            "benjamini_hochberg": stats.benjamini_hochberg(p_values) <= 1 - LEVEL,
        }
        for name, claimed in claimed_by_method.items():
            true_sign = np.sign(np.round(truth, 12))
            wrong = claimed & (np.sign(outcome.values) != true_sign)
            claim_counts[name] += int(claimed.sum())
            false_claim_counts[name] += int(wrong.sum())
            runs_with_false_claims[name] += int(wrong.any())
    return {
        "runs": runs,
        "heads": HEADS,
        "covered": float(np.mean(covered_shares)),
        "all_covered": float(np.mean(all_covered)),
        "claims": {
            name: {
                "claims_a_run": claim_counts[name] / runs,
                "false_a_run": false_claim_counts[name] / runs,
                "runs_with_a_false_one": runs_with_false_claims[name] / runs,
            }
            for name in procedures
        },
    }


def chances_of_heads(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Chances of +1 and of -1 for every example and head, [example, head]."""
    moving = rng.uniform(0.004, 0.13, HEADS)
    has_mean_zero = np.arange(HEADS) % 3 == 0
    mean = np.clip(rng.normal(0, 0.02, HEADS), MIN_MEAN, MAX_MEAN)
    mean = np.clip(mean * ~has_mean_zero, -moving, moving)
    weight = rng.gamma(0.5, size=(CYCLE, HEADS))
    weight = np.minimum(weight / weight.mean(axis=0), 0.5 / moving)
    chance_up = weight * ((moving + mean) / 2)
    chance_down = weight * ((moving - mean) / 2)
    chance_down[:, has_mean_zero] = chance_up[:, has_mean_zero]
    return chance_up, chance_down


def peeking(runs: int, seed: int) -> dict[str, float]:
    """Share of runs that ever call the sign of a fair coin (+1 or -1, mean 0), by method.

    A run is looked at from 16 to 1e8 draws, 320 times, 5 % apart. Looking after every draw could only
    raise the shares.
    """
    rng = np.random.default_rng([seed, 2])
    alpha = 1 - LEVEL
    looks = np.geomspace(16, 1e8, 320)
    draw_counts = np.unique(looks.astype(np.int64))
    new_draws = np.diff(draw_counts, prepend=0)
    new_ups = rng.binomial(new_draws, 0.5, size=(runs, len(draw_counts)))
    ups = new_ups.cumsum(axis=1)
    downs = draw_counts - ups
    mean = 2 * ups / draw_counts - 1
    number = np.broadcast_to(draw_counts, mean.shape)
    counts = np.stack([downs.ravel(), ups.ravel()])
    zero = np.zeros(counts.shape[1])
    ends = np.array([-1.0, 1.0])
    capital = np.maximum(
        stats.log_capital(ends, counts, zero),
        stats.log_capital(-ends, counts, zero),
    )
    variance = 1 - mean**2
    bernstein_width = stats.bernstein_width(variance, number, alpha, 1.0)
    standard_error = np.sqrt(variance / number)
    sign_called = {
        "headlab": capital.reshape(mean.shape) >= np.log(2 / alpha),
        "Equation 4, range 1": np.abs(mean) > bernstein_width,
        "1.96 standard errors": np.abs(mean) > 1.959964 * standard_error,
    }
    shares = {}
    for name, called in sign_called.items():
        shares[name] = float(called.any(axis=1).mean())
    return shares


def interval_seconds(module: Any) -> dict[str, float]:
    """Processor seconds of an interval for each of 144 heads after 8192 draws, by method."""
    rng = np.random.default_rng(0)
    seconds = {}
    gains_by_name = {
        "3 levels": ternary(0.03, 0.02),
        "129 levels": DISTRIBUTIONS[22],
    }
    for name, gains in gains_by_name.items():
        levels = gains.draw(rng, HEADS, CYCLE * CYCLES)
        support = gains.support
        counts_of_heads = [np.bincount(row, minlength=len(support)) for row in levels]
        counts = np.stack(counts_of_heads, axis=1)
        seconds[f"headlab, {name}"] = processor_seconds(
            partial(stats.betting_interval, support, counts, LEVEL)
        )
    draws = gains.support[levels]
    seconds["empirical Bernstein sequence"] = processor_seconds(
        lambda: empirical_bernstein(draws, 1 - LEVEL)
    )
    if module:
        seconds_of_one_head = processor_seconds(
            lambda: module.betting_cs((1 + draws[0]) / 2, alpha=1 - LEVEL, breaks=1000)
        )
        seconds["confseq betting_cs, grid of 1000, one head times 144"] = (
            seconds_of_one_head * HEADS
        )
    return seconds


def processor_seconds(call: Callable[[], Any]) -> float:
    """Processor seconds of a call, so that a busy machine does not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table of the summary."""
    lines = [
        "| method | draws to ±0.01 | missed | worst | draws to sign or ±0.01 | missed | worst |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = []
        for rule in RULES:
            cells += [
                f"{row[f'{rule}_draws']:.0f}",
                f"{row[f'{rule}_missed']:.1%}",
                f"{row[f'{rule}_missed_worst']:.0%}",
            ]
        lines.append(f"| {row['method']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def provenance() -> dict[str, Any]:
    """The machine, the versions and the commit."""
    info = Path("/proc/cpuinfo")
    cpu_name = None
    if info.exists():
        cpu_name = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
    git = ("git", "-C", str(ROOT))
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    changes = subprocess.run(
        [*git, "status", "--porcelain"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit + (" and changes" if changes else ""),
        "machine": {
            "cpu": cpu_name.group(1) if cpu_name else platform.machine(),
            "cores": allowed_processors(),
            "system": platform.platform(),
        },
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="a few runs, to see that it works; writes nothing",
    )
    parser.add_argument("--runs", type=int, default=100, help="runs of every distribution")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    runs = 4 if arguments.smoke else arguments.runs
    confseq_runs = 1 if arguments.smoke else 3
    joint_runs = 1 if arguments.smoke else 40
    entries = compare_methods(runs, confseq_runs, arguments.seed)
    module = confseq_module()
    rows = summary(entries)
    joint = joint_figures(joint_runs, arguments.seed)
    seconds = interval_seconds(module)
    coin = peeking(20 * runs, arguments.seed)
    print(table(rows))
    other_figures = {
        "joint": joint,
        "coin": coin,
        "seconds": seconds,
    }
    print(json.dumps(other_figures, indent=1))
    if arguments.smoke:
        return 0
    report = {
        "command": f"python benchmarks/intervals.py --runs {runs} --seed {arguments.seed}",
        **provenance(),
        "confseq": "0.0.11, its Python sources" if module else "not importable here",
        "settings": {
            "cycle": CYCLE,
            "looks": LOOKS,
            "target": TARGET,
            "level": LEVEL,
            "runs_of_confseq": confseq_runs,
        },
        "summary": rows,
        "joint": joint,
        "fair_coin_called": coin,
        "processor_seconds_a_call_144_heads": seconds,
        "entries": entries,
    }
    rounded_numbers = json.loads(json.dumps(report), parse_float=lambda text: round(float(text), 5))
    RESULT_FILE.write_text(
        json.dumps(rounded_numbers, indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
    print(f"written to {RESULT_FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
