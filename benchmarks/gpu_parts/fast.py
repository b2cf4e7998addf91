"""How fast: seconds, gains a second, and the share of the rate of plain matrix products."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from headlab.evaluation import Evaluator, token_budget
from headlab.methods import method
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import plan_of, removed_and_measured, uniforms
from headlab.methods.tmab import ALL_SIZES, ScreenedTally, estimate, removal_sizes

from .record import Record
from .setting import LANGUAGES, ROOT, Setting, random_mask, synchronise, tensor_float_32, timed_call

FORMATS = ("float32", "tf32", "bfloat16", "float16")
SHAPE_FORMATS = ("bfloat16", "tf32")  # of the models with random weights
DRAWS_OF_DECODER = 8
# Gains that a screened cycle computes where the model's weights are random, so that a prediction
# means nothing: one of 2 ** 3, about what it is for the embedded model.
HALVINGS = 3


def run(setting: Setting, record: Record) -> None:
    """Matrix rates, XLM-R base by its size, the embedded model, and a decoder of 1 B by its size."""
    rates = matrix_rates(setting)
    record.add("matrix rate, FLOP/s", rates)
    for dtype in SHAPE_FORMATS:
        with tensor_float_32(dtype == "tf32"):
            shape_figures(setting, record, "xlmr-base", dtype, rates)
    embedded_figures(setting, record)
    with tensor_float_32(False):
        shape_figures(setting, record, "decoder-1b", "bfloat16", rates)
    record.measure("15 languages of xlmr-base", lambda: extrapolated_minutes(record.figures))


# What the device can do.


def matrix_rates(setting: Setting) -> dict[str, float]:
    """Operations a second of one large matrix product in each format: the median of ten."""
    rates = {}
    size = setting.sizes.matrix
    for name in FORMATS:
        dtype = torch.float32 if name == "tf32" else getattr(torch, name)
        left_matrix, right_matrix = (
            torch.randn(size, size, device=setting.device, dtype=dtype) for _ in range(2)
        )
        with tensor_float_32(name == "tf32"):
            product = partial(torch.matmul, left_matrix, right_matrix)
            seconds = [timed_call(setting.device, product)[0] for _ in range(13)]
        rates[name] = 2 * size**3 / median(seconds[3:])
    return rates


# Models with random weights, of a real model's size.


def shape_figures(
    setting: Setting, record: Record, shape: str, dtype: str, rates: dict[str, float]
) -> None:
    """Full passes and cycles of one model in one format, alone and as a share of the matrix rate."""
    name = f"{shape}, {dtype}"
    rate = rates[dtype]
    weights_dtype = "float32" if dtype == "tf32" else dtype
    reset_peak(setting)
    if shape == "xlmr-base":
        evaluator = setting.random_encoder(weights_dtype)
    else:
        evaluator = setting.random_decoder(
            weights_dtype, min(DRAWS_OF_DECODER, setting.sizes.speed_examples)
        )
    record.add(f"{name}: tokens", token_figures(evaluator))
    record.measure(f"{name}: full passes", lambda: full_passes(setting, evaluator, rate))
    cycle = Cycle.of_seed_0(evaluator)
    for question in ("marginals", "screened"):
        record.measure(
            f"{name}: {question}",
            partial(cycle_figures, setting, evaluator, cycle, question, rate),
        )
    if dtype == "bfloat16":
        record.measure(f"{name}: tokens a batch", lambda: batch_sizes(setting, evaluator, cycle))
        for question in ("marginals", "screened"):
            record.measure(
                f"{name}: time by kernel, {question}",
                partial(kernel_times, setting, evaluator, cycle, question),
            )
        record.measure(f"{name}: waits", lambda: waits(setting, evaluator, cycle))
    record.add(f"{name}: peak memory, GB", peak_memory(setting))


def token_figures(evaluator: Evaluator) -> dict[str, float]:
    """Lengths of the examples, and the tokens a batch that the device is given."""
    return {
        "examples": len(evaluator.examples),
        "tokens": int(evaluator.lengths.sum()),
        "median": float(np.median(evaluator.lengths)),
        "tokens a batch": token_budget(evaluator.model),
    }


def full_passes(
    setting: Setting, evaluator: Evaluator, rate: float | None = None
) -> dict[str, float]:
    """All examples under a mask, from the first layer on; with a rate, also as a share of it."""
    gates = evaluator.model.grid.gates(random_mask(evaluator.model).kept)
    evaluator.state_bytes = 0
    batches = evaluator.batches_by_tokens(np.arange(len(evaluator.examples)))

    def evaluate() -> None:
        for _ in evaluator.answers(batches, gates, "zero"):
            pass

    evaluate()
    seconds = median(timed_call(setting.device, evaluate)[0] for _ in range(3))
    figures = {"seconds": seconds, "examples a second": len(evaluator.examples) / seconds}
    if rate is not None:
        figures["share of the matrix rate"] = operations_of(evaluate) / seconds / rate
    return figures


@dataclass(frozen=True)
class Cycle:
    """One draw for every example, as `shapley` makes them.

    Attributes:
        kept_heads: Bool [draw, head], the coalition.
        measured_heads: Bool [draw, head].
        examples: Int [draw].
        uniforms: Float [draw, head], from which a screened cycle draws the gains that it computes.
    """

    kept_heads: np.ndarray[Any, Any]
    measured_heads: np.ndarray[Any, Any]
    examples: np.ndarray[Any, Any]
    uniforms: np.ndarray[Any, Any]

    @classmethod
    def of_seed_0(cls, evaluator: Evaluator) -> Cycle:
        """The first cycle of seed 0."""
        heads = evaluator.model.grid.size
        draws = len(evaluator.examples)
        coalitions = [
            removed_and_measured(0, number, heads, removal_sizes(ALL_SIZES, heads))
            for number in range(draws)
        ]
        removed_heads = np.stack([coalition[0] for coalition in coalitions])
        measured_heads = np.stack([coalition[1] for coalition in coalitions])
        drawn_uniforms = np.stack([uniforms(0, number, heads) for number in range(draws)])
        return cls(
            ~removed_heads,
            measured_heads,
            np.random.default_rng(0).permutation(draws),
            drawn_uniforms,
        )

    def play(self, evaluator: Evaluator, question: str, tokens: int | None = None) -> int:
        """Compute the cycle; returns the number of gains that were computed."""
        game = ModelGame(evaluator, tokens=tokens)
        if question == "marginals":
            game.marginals(self.kept_heads, self.measured_heads, self.examples)
            return int(self.measured_heads.sum())
        bins = game.scale.bins if game.scale is not None else 1
        halvings = np.full((bins, game.players), HALVINGS)
        answers = game.screened(
            self.kept_heads, self.measured_heads, self.examples, halvings, self.uniforms
        )
        return int(np.isfinite(answers[2]).sum())


def cycle_figures(
    setting: Setting, evaluator: Evaluator, cycle: Cycle, question: str, rate: float
) -> dict[str, float]:
    """Seconds and gains of a cycle, and the operations of its passes as a share of the matrix rate."""
    gains_computed = cycle.play(evaluator, question)
    seconds = median(
        timed_call(setting.device, lambda: cycle.play(evaluator, question))[0] for _ in range(2)
    )
    operations = operations_of(lambda: cycle.play(evaluator, question))
    return {
        "seconds": seconds,
        "draws": len(cycle.examples),
        "gains": int(cycle.measured_heads.sum()),
        "gains computed": gains_computed,
        "gains a second": float(cycle.measured_heads.sum()) / seconds,
        "operations": float(operations),
        "share of the matrix rate": operations / seconds / rate,
    }


def operations_of(call: Callable[[], object]) -> int:
    """Operations of a call's matrix products and attention, by torch's own count."""
    with single_thread(), FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute in this thread alone, the only one that torch counts and profiles, until the block ends."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def batch_sizes(setting: Setting, evaluator: Evaluator, cycle: Cycle) -> dict[str, float]:
    """Seconds of a screened cycle by the number of tokens a batch."""
    seconds = {}
    for tokens in setting.sizes.batch_tokens:
        play = partial(cycle.play, evaluator, "screened", tokens)
        play()
        seconds[str(tokens)] = timed_call(setting.device, play)[0]
    return seconds


# Where the time goes.

KERNELS = {
    "attention": ("flash", "fmha", "attention", "cudnn_generated"),
    "matrix products": (
        "gemm",
        "cutlass",
        "xmma",
        "cublas",
        "nvjet",
        "addmm",
        "::mm",
        "bmm",
        "linear",
    ),
    "copies": ("memcpy", "memset", "copy_", "_to_copy"),
}


def kernel_times(
    setting: Setting, evaluator: Evaluator, cycle: Cycle, question: str
) -> dict[str, Any]:
    """Seconds of a cycle by class of kernel, what is left idle, and the ten longest kernels."""
    activities = [ProfilerActivity.CUDA] if setting.on_card else [ProfilerActivity.CPU]
    with single_thread(), profile(activities=activities) as profiler:
        seconds, _ = timed_call(setting.device, lambda: cycle.play(evaluator, question))
    by_class: Counter[str] = Counter()
    by_name: Counter[str] = Counter()
    calls = 0
    for event in profiler.key_averages():
        on_device = event.device_type == DeviceType.CUDA
        if setting.on_card and not on_device:
            continue
        microseconds = (
            event.self_device_time_total if setting.on_card else event.self_cpu_time_total
        )
        by_class[kernel_class(event.key)] += microseconds / 1e6
        by_name[event.key[:80]] += microseconds / 1e6
        calls += event.count
    busy = sum(by_class.values())
    return {
        "seconds": seconds,
        "kernels": calls,
        **by_class,
        "idle": max(0.0, seconds - busy),
        "longest": dict(by_name.most_common(10)),
    }


def kernel_class(name: str) -> str:
    """The class that a kernel's time is counted as."""
    lower_case_name = name.lower()
    for kind, parts in KERNELS.items():
        if any(part in lower_case_name for part in parts):
            return kind
    return "elementwise"


def waits(setting: Setting, evaluator: Evaluator, cycle: Cycle) -> dict[str, Any]:
    """How often a screened cycle makes the processor wait for the card, and where."""
    if not setting.on_card:
        return {"not here": "only a GPU is waited for"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            cycle.play(evaluator, "screened")
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits_by_place = Counter(
        f"{short_path(warning.filename)}:{warning.lineno}" for warning in caught
    )
    return {"waits": sum(waits_by_place.values()), "places": dict(waits_by_place.most_common(12))}


def short_path(filename: str) -> str:
    """A file's path below this repository, or below the folder of installed packages."""
    if Path(filename).is_relative_to(ROOT):
        return Path(filename).relative_to(ROOT).as_posix()
    return filename.rpartition("site-packages/")[2]


def reset_peak(setting: Setting) -> None:
    """Count the device's memory from now on."""
    if setting.on_card:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory(setting: Setting) -> float | None:
    """Largest memory that tensors held on the card since `reset_peak`, GB; None on a processor."""
    if setting.on_card:
        return torch.cuda.max_memory_allocated() / 1e9
    return None


# The embedded model, as a person meets it.


def embedded_figures(setting: Setting, record: Record) -> None:
    """Clicks, cycles and the time to a guaranteed half-width, in float32 without TF32, the default."""
    with tensor_float_32(False):
        reset_peak(setting)
        evaluator = setting.main.evaluator(setting.device, "float32", setting.sizes.speed_examples)
        record.add(f"{setting.main.name}: tokens", token_figures(evaluator))
        record.measure(
            f"{setting.main.name}: click", lambda: click_milliseconds(setting, evaluator)
        )
        record.measure(
            f"{setting.main.name}: shapley", lambda: guarantee_figures(setting, evaluator)
        )
        record.add(f"{setting.main.name}: peak memory, GB", peak_memory(setting))


def click_milliseconds(setting: Setting, evaluator: Evaluator) -> dict[str, float]:
    """Milliseconds from a click on a head to the first figure, and to the final one: medians."""
    rng = np.random.default_rng(0)
    mask = random_mask(evaluator.model, share=1.1)
    first_figures = []
    final_figures = []
    evaluator.evaluate(mask)
    for _ in range(setting.sizes.clicks):
        kept_heads = mask.kept.copy()
        kept_heads[rng.integers(len(kept_heads))] ^= True
        began = time.perf_counter()
        stream = evaluator.stream(type(mask)(evaluator.model.grid, kept_heads))
        next(stream)
        synchronise(setting.device)
        first_figures.append(1000 * (time.perf_counter() - began))
        for _evaluation in stream:
            pass
        synchronise(setting.device)
        final_figures.append(1000 * (time.perf_counter() - began))
    return {"first figure, ms": median(first_figures), "final figure, ms": median(final_figures)}


def guarantee_figures(setting: Setting, evaluator: Evaluator) -> dict[str, Any]:
    """Seconds until every head's guaranteed half-width is at most the target, cycle by cycle.

    Without a target, or where time is short, the seconds of the cycles that were played.
    """
    target = setting.sizes.target
    options = {
        "target": target,
        "stop": "width",
        "samples": 8192 if target else 3 * setting.sizes.draws,
    }
    plan = plan_of(method("shapley").resolve(options))
    game = ModelGame(evaluator)
    limit = setting.sizes.limits["fast"] / 4
    began = time.perf_counter()
    cycle_ends = []
    last_snapshot = None
    for snapshot in with_deadline(estimate(game, plan, seed=0), began + limit):
        last_snapshot = snapshot
        if snapshot.draws % game.examples == 0:
            synchronise(setting.device)
            cycle_ends.append(time.perf_counter() - began)
    seconds = time.perf_counter() - began
    assert last_snapshot is not None
    low, high = last_snapshot.interval()
    gains = int(last_snapshot.counts.sum())
    return {
        "seconds": seconds,
        "reached": bool(last_snapshot.is_finished and target is not None),
        "draws": last_snapshot.draws,
        "gains": gains,
        "gains a second": gains / seconds,
        "computed of screened gains": int(last_snapshot.screen.computed.sum())
        / max(1, int(last_snapshot.screen.foreseen.sum())),
        "largest half-width": float((high - low).max() / 2),
        "seconds at the ends of cycles": cycle_ends[:3] + cycle_ends[-1:],
        "seconds in 15 languages, worked out": LANGUAGES * seconds,
    }


def with_deadline(snapshots: Iterator[ScreenedTally], deadline: float) -> Iterator[ScreenedTally]:
    """Snapshots until there are no more or the time is up."""
    for snapshot in snapshots:
        yield snapshot
        if time.perf_counter() > deadline:
            return


def extrapolated_minutes(figures: dict[str, Any]) -> dict[str, Any]:
    """Minutes that 15 languages of XLM-R base take to the target, from what was measured.

    It takes as many draws as the embedded model needed, and computes the same share of the gains.
    The seconds of a cycle grow evenly with that share, and the estimator's own work between passes
    is what the embedded model's run spent on it at most: all of its time.
    """
    shapley = next(value for name, value in figures.items() if name.endswith(": shapley"))
    share = shapley["computed of screened gains"]
    minutes = {}
    for dtype in SHAPE_FORMATS:
        marginals = figures[f"xlmr-base, {dtype}: marginals"]
        screened = figures[f"xlmr-base, {dtype}: screened"]
        measured_share = screened["gains computed"] / screened["gains"]
        slope = (marginals["seconds"] - screened["seconds"]) / (1 - measured_share)
        cycle_seconds = screened["seconds"] + slope * (share - measured_share)
        cycles = shapley["draws"] / screened["draws"]
        minutes[dtype] = LANGUAGES * (cycles * cycle_seconds + shapley["seconds"]) / 60
    return {
        "minutes": minutes,
        "draws a language": shapley["draws"],
        "share of gains computed": share,
    }
