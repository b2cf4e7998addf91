"""How close the game comes to what the device can do: gains a second against plain matrix products.

    python benchmarks/throughput.py                        the embedded model on this machine's processor
    python benchmarks/throughput.py --model xlmr-base      XLM-R base's size, random weights and pairs
    python benchmarks/throughput.py --compile              torch.compile too (needs a C++ compiler)
    python benchmarks/throughput.py --smoke                seconds; a tiny model, writes nothing

Takes a GPU where there is one. Writes benchmarks/results/throughput-MODEL-DEVICE.json. The floor of
a gain's time is the number of operations in its matrix products, divided by the measured rate of
such products alone; attention, norms and Python come on top. Times to a guarantee assume the number
of samples that the demo needed (headlab/embedded/results/), as the JSON says.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from torch.profiler import ProfilerActivity, profile

import headlab
from headlab.evaluation import Evaluator, token_budget
from headlab.hooks import Model, make_gateable
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import removed_and_measured
from headlab.models.checkpoint import Checkpoint
from headlab.results import Store
from headlab.tasks import Example, Split, Task

ROOT = Path(__file__).resolve().parents[1]
# Words of a premise and of a hypothesis of XNLI, English dev: median, and deviation of the logarithm.
PAIR_WORDS = ((18.0, 0.55), (9.0, 0.38))
EXAMPLES = 512
LANGUAGES = 15


def made_up_pairs(words: Sequence[str]) -> Task:
    """Pairs of random words, as long as XNLI's, with random labels."""

    def read(_language: str, split: Split, seed: int) -> list[Example]:
        rng = np.random.default_rng([seed, len(split)])
        examples = []
        for row in range(EXAMPLES):
            texts = []
            for median_words, spread in PAIR_WORDS:
                length = max(2, int(rng.lognormal(np.log(median_words), spread)))
                texts.append(" ".join(rng.choice(words, length)))
            examples.append(Example(str(row), texts[0], int(rng.integers(3)), texts[1]))
        return examples

    return Task("made-up pairs", ("0", "1", "2"), ("xx",), False, read)


def random_model(size: str, device: str, dtype: torch.dtype) -> Model:
    """A model of a known shape with random weights; the tokenizer is the embedded model's."""
    tokenizer = headlab.load("e5-small-intents", device="cpu").tokenizer
    shape = {
        "xlmr-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
        "tiny": {"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4},
    }[size]
    width = shape["hidden_size"]
    config = transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer),
        intermediate_size=4 * width,
        max_position_embeddings=514,
        type_vocab_size=1,
        id2label={number: str(number) for number in range(3)},
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    torch.manual_seed(0)
    module = transformers.XLMRobertaForSequenceClassification(config)
    module = module.to(device=device, dtype=dtype).eval()
    return make_gateable(Checkpoint(size, "random", f"random-{size}-0", module, tokenizer))


def build(size: str, device: str, dtype: torch.dtype) -> Evaluator:
    """The model of a size, with the examples it is measured on."""
    if size == "e5-small-intents":
        model = headlab.load(size, device=device, dtype=str(dtype).removeprefix("torch."))
        return Evaluator(model, headlab.task("intents"), "de")
    model = random_model(size, device, dtype)
    pieces = model.tokenizer.convert_ids_to_tokens(range(1000, 9000))
    words = [piece.lstrip("▁") for piece in pieces if piece.startswith("▁")]
    return Evaluator(model, made_up_pairs([word for word in words if word]), "xx")


def timed_call(evaluator: Evaluator, call: Callable[..., Any], *args: object) -> tuple[float, Any]:
    """Seconds of a call, with the device's queue emptied before and after, and its result."""
    cuda = evaluator.model.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = call(*args)
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def matrix_rate(evaluator: Evaluator, tokens: int) -> float:
    """Operations a second of the model's own feed-forward products, alone."""
    config = evaluator.model.module.config
    width = config.hidden_size
    inner_width = config.intermediate_size
    dtype = evaluator.model.module.dtype
    expand = torch.nn.Linear(width, inner_width, device=evaluator.model.device, dtype=dtype)
    contract = torch.nn.Linear(inner_width, width, device=evaluator.model.device, dtype=dtype)
    activations = torch.randn(tokens, width, device=evaluator.model.device, dtype=dtype)
    operations = 4 * tokens * width * inner_width
    repeats = max(3, int((2e12 if evaluator.model.device.type == "cuda" else 5e9) / operations))

    def products() -> None:
        with torch.inference_mode():
            for _ in range(repeats):
                contract(expand(activations))

    timed_call(evaluator, products)
    return operations * repeats / median(timed_call(evaluator, products)[0] for _ in range(3))


def operations_a_gain(
    evaluator: Evaluator, kept_heads: np.ndarray, measured_heads: np.ndarray, examples: np.ndarray
) -> float:
    """Operations of the matrix products of branching passes, per gain, without attention's own.

    Args:
        evaluator: The model and its examples.
        kept_heads: Bool [draw, head], the coalition.
        measured_heads: Bool [draw, head].
        examples: Int [draw].
    """
    config = evaluator.model.module.config
    width = config.hidden_size
    inner_width = config.intermediate_size
    operations_of_layer = 2 * (4 * width * width + 2 * width * inner_width)
    layers = evaluator.model.grid.layers
    layers_from_head = layers - evaluator.model.grid.flat[:, 0]
    layer_rows = layers + measured_heads @ layers_from_head
    return float(
        (layer_rows * evaluator.lengths[examples]).sum()
        * operations_of_layer
        / measured_heads.sum()
    )


@dataclass(frozen=True)
class Measurement:
    """One way to compute gains, measured.

    Attributes:
        what: The kind of pass.
        dtype: Number format of the model.
        tokens: Of a batch.
        ms_a_gain: Milliseconds of the measurement by its gains.
        share_of_floor: The floor of a gain's time by the time it took.
        agreement: Share of gains equal to the first measurement of the same kind; None for that one
            itself.
    """

    what: str
    dtype: str
    tokens: int
    ms_a_gain: float
    share_of_floor: float
    agreement: float | None


def coalition_draws(evaluator: Evaluator, draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kept heads [draw, head], measured heads [draw, head] and examples [draw] of the estimator."""
    heads = evaluator.model.grid.size
    coalitions = [
        removed_and_measured(0, number, heads, (heads + 1) // 2) for number in range(draws)
    ]
    removed_heads = np.stack([removed for removed, _ in coalitions])
    measured_heads = np.stack([measured for _, measured in coalitions])
    examples = np.random.default_rng(0).permutation(len(evaluator.examples))[:draws]
    return ~removed_heads, measured_heads, examples


def measure(
    size: str,
    device: str,
    dtype: torch.dtype,
    budgets: Sequence[int],
    draws: int,
    truth: dict[str, np.ndarray],
) -> list[Measurement]:
    """Measure branching passes at several batch sizes, and walks and full passes for comparison.

    Args:
        size: Name of the model.
        device: What it runs on.
        dtype: Number format of its weights.
        budgets: Tokens of a batch, for branching passes; the first one is taken for the others.
        draws: Of the estimator.
        truth: {kind of pass: gains of its first measurement}; new kinds are added.
    """
    evaluator = build(size, device, dtype)
    kept_heads, measured_heads, examples = coalition_draws(evaluator, draws)
    rate = matrix_rate(evaluator, max(budgets))
    floor = operations_a_gain(evaluator, kept_heads, measured_heads, examples) / rate
    lines = []

    def note(kind: str, tokens: int, seconds: float, gains: np.ndarray, count: float) -> None:
        agreement = None if kind not in truth else float((gains == truth[kind]).mean())
        truth.setdefault(kind, gains)
        seconds_a_gain = float(seconds / count)
        lines.append(
            Measurement(
                kind,
                str(dtype).removeprefix("torch."),
                tokens,
                1000 * seconds_a_gain,
                floor / seconds_a_gain,
                agreement,
            )
        )
        print(f"{lines[-1]}", flush=True)

    for tokens in budgets:
        game = ModelGame(evaluator, tokens=tokens)
        game.marginals(kept_heads[:4], measured_heads[:4], examples[:4])
        runs = [
            timed_call(evaluator, game.marginals, kept_heads, measured_heads, examples)
            for _ in range(2)
        ]
        seconds = min(run_seconds for run_seconds, _ in runs)
        gains = runs[0][1][measured_heads]
        note("branching pass", tokens, seconds, gains, measured_heads.sum())
    game = ModelGame(evaluator, tokens=budgets[0])
    heads = kept_heads.shape[1]
    orders = np.stack(
        [
            np.random.default_rng(row).permutation(heads)[: heads // 2]
            for row in range(len(kept_heads))
        ]
    )
    seconds, gains = timed_call(evaluator, game.gains, orders, examples)
    note("walk", budgets[0], seconds, gains, orders.size)
    first_measured_heads = measured_heads & (np.cumsum(measured_heads, axis=1) <= 6)
    evaluator.model.resumable = False
    seconds, gains = timed_call(
        evaluator, game.marginals, kept_heads, first_measured_heads, examples
    )
    measured_gains = gains[first_measured_heads]
    note("full passes", budgets[0], seconds, measured_gains, measured_gains.size)
    print(f"matrix rate {rate / 1e9:.0f} GFLOP/s, floor {1000 * floor:.3f} ms a gain", flush=True)
    return lines


# Kinds that operators' time is counted as; the rest of the measured time is Python and waiting.
OPERATOR_KINDS = {
    "matrix products": ("addmm", "::mm", "linear", "bmm"),
    "attention": ("scaled_dot_product", "flash", "efficient_attention"),
    "activations and norms": ("gelu", "layer_norm", "softmax", "tanh"),
}
OTHER_OPERATORS = "copies and the rest"


def operator_kind(operator: str) -> str:
    """The kind that an operator's time is counted as, by a part of its name."""
    for kind, name_parts in OPERATOR_KINDS.items():
        if any(part in operator for part in name_parts):
            return kind
    return OTHER_OPERATORS


def time_shares(
    evaluator: Evaluator, kept_heads: np.ndarray, measured_heads: np.ndarray, examples: np.ndarray
) -> dict[str, float]:
    """Shares of the branching passes' time by kind of operator, and the share of padding tokens."""
    cuda = evaluator.model.device.type == "cuda"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * cuda
    game = ModelGame(evaluator)
    # The profiler sees only threads that were started before it, so everything runs in this one.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with profile(activities=activities) as profiled:
            seconds, _ = timed_call(evaluator, game.marginals, kept_heads, measured_heads, examples)
    finally:
        torch.set_num_threads(threads)
    seconds_by_kind = dict.fromkeys([*OPERATOR_KINDS, OTHER_OPERATORS], 0.0)
    for event in profiled.key_averages():
        microseconds = event.self_device_time_total if cuda else event.self_cpu_time_total
        seconds_by_kind[operator_kind(event.key)] += microseconds / 1e6
    shares = {kind: seconds_spent / seconds for kind, seconds_spent in seconds_by_kind.items()}
    shares["outside of operators"] = max(0.0, 1 - sum(shares.values()))
    rows = 1 + measured_heads.sum(axis=1)
    lengths = evaluator.lengths[examples]
    batches = game._parts(examples, rows)
    padded_tokens = sum(rows[batch].sum() * lengths[batch].max() for batch in batches)
    shares["tokens that are padding"] = float(1 - (rows * lengths).sum() / padded_tokens)
    return shares


def compiled_measurement(size: str, device: str, draws: int) -> Measurement:
    """Measure branching passes under torch.compile, after a warm-up with the same shapes."""
    evaluator = build(size, device, torch.float32)
    kept_heads, measured_heads, examples = coalition_draws(evaluator, draws)
    module = evaluator.model.module
    module.forward = torch.compile(module.forward, dynamic=True)
    game = ModelGame(evaluator)
    game.marginals(kept_heads, measured_heads, examples)
    seconds, _ = timed_call(evaluator, game.marginals, kept_heads, measured_heads, examples)
    return Measurement(
        "branching pass, torch.compile",
        "float32",
        0,
        1000 * seconds / int(measured_heads.sum()),
        float("nan"),
        None,
    )


def demo_samples() -> float:
    """Samples of all heads together that a language of the demo needed on average; 0 if none did."""
    sums = []
    for result in Store(ROOT / "headlab" / "embedded" / "results").scan().results:
        scores = result.record
        if scores.method != "shapley" or scores.samples is None:
            continue
        if "stop" in scores.spec["method"]["options"]:
            sums.append(float(scores.samples.sum()))
    return float(np.mean(sums)) if sums else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results unless it is a smoke run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="e5-small-intents", choices=("e5-small-intents", "xlmr-base", "tiny")
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--draws", type=int, default=None, help="draws of the estimator a measurement"
    )
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args(argv)
    size = "tiny" if arguments.smoke else arguments.model
    cuda = arguments.device.startswith("cuda")
    draws = 256 if cuda else 8
    if arguments.smoke:
        draws = 2
    draws = arguments.draws or draws
    budgets: tuple[int, ...] = (512, 1024, 2048, 4096)
    if cuda:
        budgets = (1 << 14, 1 << 16, 1 << 18)
    elif arguments.smoke:
        budgets = (1024,)
    truth: dict[str, np.ndarray] = {}
    lines: list[Measurement] = []
    for dtype in (torch.float32, torch.bfloat16):
        lines += measure(size, arguments.device, dtype, budgets, draws, truth)
    if cuda:
        torch.set_float32_matmul_precision("high")
        tf32 = measure(size, arguments.device, torch.float32, budgets, draws, truth)
        lines += [replace(line, dtype="tf32") for line in tf32]
    evaluator = build(size, arguments.device, torch.float32)
    shares = time_shares(evaluator, *coalition_draws(evaluator, draws))
    compiled_ms = None
    if arguments.compile:
        compiled_ms = compiled_measurement(size, arguments.device, draws).ms_a_gain
    fastest_by_dtype: dict[str, float] = {}
    for line in lines:
        if line.what.startswith("branching"):
            fastest_ms = fastest_by_dtype.get(line.dtype, line.ms_a_gain)
            fastest_by_dtype[line.dtype] = min(fastest_ms, line.ms_a_gain)
    samples = demo_samples()
    minutes: dict[str, float] = {}
    if samples:
        for name, ms_a_gain in fastest_by_dtype.items():
            minutes[name] = LANGUAGES * samples * ms_a_gain / 60000
    device_name = f"{platform.machine()}, {torch.get_num_threads()} threads"
    if cuda:
        device_name = torch.cuda.get_device_name()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    report = {
        "command": "python benchmarks/throughput.py "
        + " ".join(argv if argv is not None else sys.argv[1:]),
        "commit": commit.stdout.strip(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": size,
        "device": device_name,
        "torch": torch.__version__,
        "default_tokens": token_budget(evaluator.model),
        "lines": [asdict(line) for line in lines],
        "time_of_branching_passes": shares,
        "compiled_ms_a_gain": compiled_ms,
        "samples_a_language_in_the_demo": samples,
        "minutes_for_15_languages": minutes,
    }
    shown_report = {name: value for name, value in report.items() if name != "lines"}
    print(json.dumps(shown_report, indent=1))
    if not arguments.smoke:
        device_kind = arguments.device.partition(":")[0]
        result_file = ROOT / "benchmarks" / "results" / f"throughput-{size}-{device_kind}.json"
        result_file.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
