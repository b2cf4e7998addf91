"""How close the game comes to what the device can do: gains a second against the rate of plain matrix products.

    python benchmarks/throughput.py                        the embedded model on this machine's processor
    python benchmarks/throughput.py --model xlmr-base      XLM-R base by size, random weights, XNLI-length pairs
    python benchmarks/throughput.py --compile              with torch.compile as one more line (needs a C++ compiler)
    python benchmarks/throughput.py --smoke                seconds; a tiny model, writes nothing

Takes a GPU where there is one. Writes benchmarks/results/throughput-MODEL-DEVICE.json. The floor of a gain is its
matrix products' operations divided by the measured rate of such products alone; attention, norms and Python come
on top. Times to a guarantee take the number of samples that the demo needed (cache/), as the JSON says.
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
# Words of a premise and of a hypothesis of XNLI, English dev: median and spread of their logarithms.
PAIR_WORDS = ((18.0, 0.55), (9.0, 0.38))
EXAMPLES = 512
LANGUAGES = 15


def made_up_pairs(words: Sequence[str]) -> Task:
    """Pairs of random words, as long as XNLI's, with random labels."""

    def read(_language: str, split: Split, seed: int) -> list[Example]:
        rng = np.random.default_rng([seed, len(split)])
        out = []
        for row in range(EXAMPLES):
            texts = [
                " ".join(rng.choice(words, max(2, int(rng.lognormal(np.log(mid), spread)))))
                for mid, spread in PAIR_WORDS
            ]
            out.append(Example(str(row), texts[0], int(rng.integers(3)), texts[1]))
        return out

    return Task("made-up pairs", ("0", "1", "2"), ("xx",), False, read)


def random_model(size: str, device: str, dtype: torch.dtype) -> Model:
    """A model of a known shape with random weights, and the embedded model's tokenizer (that of XLM-R)."""
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
    module = (
        transformers.XLMRobertaForSequenceClassification(config)
        .to(device=device, dtype=dtype)
        .eval()
    )
    return make_gateable(Checkpoint(size, "random", f"random-{size}-0", module, tokenizer))


def build(size: str, device: str, dtype: torch.dtype) -> Evaluator:
    """Model and examples."""
    if size == "e5-small-intents":
        model = headlab.load(size, device=device, dtype=str(dtype).removeprefix("torch."))
        return Evaluator(model, headlab.task("intents"), "de")
    model = random_model(size, device, dtype)
    words = [
        w.lstrip("▁")
        for w in model.tokenizer.convert_ids_to_tokens(range(1000, 9000))
        if w.startswith("▁")
    ]
    return Evaluator(model, made_up_pairs([w for w in words if w]), "xx")


def clock(evaluator: Evaluator, call: Callable[..., Any], *args: object) -> tuple[float, Any]:
    """Seconds of a call, the device's queue included, and what it gave."""
    cuda = evaluator.model.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    found = call(*args)
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start, found


def matrix_rate(evaluator: Evaluator, tokens: int) -> float:
    """Operations a second of the model's own feed-forward products, alone."""
    config = evaluator.model.module.config
    width = config.hidden_size
    wide = config.intermediate_size
    weight = evaluator.model.module.dtype
    up = torch.nn.Linear(width, wide, device=evaluator.model.device, dtype=weight)
    down = torch.nn.Linear(wide, width, device=evaluator.model.device, dtype=weight)
    x = torch.randn(tokens, width, device=evaluator.model.device, dtype=weight)
    operations = 4 * tokens * width * wide
    repeats = max(3, int((2e12 if evaluator.model.device.type == "cuda" else 5e9) / operations))

    def products() -> None:
        with torch.inference_mode():
            for _ in range(repeats):
                down(up(x))

    clock(evaluator, products)
    return operations * repeats / median(clock(evaluator, products)[0] for _ in range(3))


def operations_a_gain(
    evaluator: Evaluator, kept: np.ndarray, wanted: np.ndarray, examples: np.ndarray
) -> float:
    """Operations of the matrix products that the branching passes need, per gain; attention's own are left out."""
    config = evaluator.model.module.config
    width = config.hidden_size
    wide = config.intermediate_size
    of_layer = 2 * (4 * width * width + 2 * width * wide)
    layers = evaluator.model.grid.layers
    from_layer = layers - evaluator.model.grid.flat[:, 0]
    layer_rows = layers + wanted @ from_layer
    return float((layer_rows * evaluator.lengths[examples]).sum() * of_layer / wanted.sum())


@dataclass(frozen=True)
class Line:
    """One setting, measured.

    Attributes:
        agreement: Share of gains equal to the first measurement of the same kind; None for that one
            itself.
    """

    what: str
    dtype: str
    tokens: int
    ms_a_gain: float
    share_of_floor: float
    agreement: float | None


def draw(evaluator: Evaluator, draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coalitions, measured heads and examples of a few draws of the estimator."""
    heads = evaluator.model.grid.size
    away, wanted = (
        np.stack(s)
        for s in zip(
            *(removed_and_measured(0, n, heads, (heads + 1) // 2) for n in range(draws)),
            strict=True,
        )
    )
    return ~away, wanted, np.random.default_rng(0).permutation(len(evaluator.examples))[:draws]


def measure(
    size: str,
    device: str,
    dtype: torch.dtype,
    budgets: Sequence[int],
    draws: int,
    truth: dict[str, np.ndarray],
) -> list[Line]:
    """Branching passes at several batch sizes, and walks and full passes beside them."""
    evaluator = build(size, device, dtype)
    kept, wanted, examples = draw(evaluator, draws)
    rate = matrix_rate(evaluator, max(budgets))
    floor = operations_a_gain(evaluator, kept, wanted, examples) / rate
    lines = []

    def note(what: str, tokens: int, seconds: float, gains: np.ndarray, count: float) -> None:
        same = None if what not in truth else float((gains == truth[what]).mean())
        truth.setdefault(what, gains)
        each = float(seconds / count)
        lines.append(
            Line(what, str(dtype).removeprefix("torch."), tokens, 1000 * each, floor / each, same)
        )
        print(f"{lines[-1]}", flush=True)

    for tokens in budgets:
        game = ModelGame(evaluator, tokens=tokens)
        game.marginals(kept[:4], wanted[:4], examples[:4])
        runs = [clock(evaluator, game.marginals, kept, wanted, examples) for _ in range(2)]
        note(
            "branching pass",
            tokens,
            min(seconds for seconds, _ in runs),
            runs[0][1][wanted],
            wanted.sum(),
        )
    game = ModelGame(evaluator, tokens=budgets[0])
    heads = kept.shape[1]
    orders = np.stack(
        [np.random.default_rng(row).permutation(heads)[: heads // 2] for row in range(len(kept))]
    )
    seconds, gains = clock(evaluator, game.gains, orders, examples)
    note("walk", budgets[0], seconds, gains, orders.size)
    few = wanted & (np.cumsum(wanted, axis=1) <= 6)
    evaluator.model.resumable = False
    seconds, gains = clock(evaluator, game.marginals, kept, few, examples)
    note("full passes", budgets[0], seconds, gains[few], few.sum())
    print(f"matrix rate {rate / 1e9:.0f} GFLOP/s, floor {1000 * floor:.3f} ms a gain", flush=True)
    return lines


# What an operator's time is counted as; the rest of the clock's time is Python and waiting.
KINDS = {
    "matrix products": ("addmm", "::mm", "linear", "bmm"),
    "attention": ("scaled_dot_product", "flash", "efficient_attention"),
    "activations and norms": ("gelu", "layer_norm", "softmax", "tanh"),
}


def shares(
    evaluator: Evaluator, kept: np.ndarray, wanted: np.ndarray, examples: np.ndarray
) -> dict[str, float]:
    """Where the time of the branching passes goes, by the profiler's own times, and how much of it is padding."""
    cuda = evaluator.model.device.type == "cuda"
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * cuda
    game = ModelGame(evaluator)
    # The profiler sees the threads that were there before it: one thread, so that no batch runs in another.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with profile(activities=kinds) as seen:
            seconds, _ = clock(evaluator, game.marginals, kept, wanted, examples)
    finally:
        torch.set_num_threads(threads)
    found = dict.fromkeys(KINDS, 0.0) | {"copies and the rest": 0.0}
    for event in seen.key_averages():
        spent = (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6
        kind = next(
            (k for k, names in KINDS.items() if any(n in event.key for n in names)),
            "copies and the rest",
        )
        found[kind] += spent
    out = {kind: spent / seconds for kind, spent in found.items()}
    out["outside of operators"] = max(0.0, 1 - sum(out.values()))
    rows = 1 + wanted.sum(axis=1)
    lengths = evaluator.lengths[examples]
    padded = sum(rows[part].sum() * lengths[part].max() for part in game._parts(examples, rows))
    return out | {"tokens that are padding": float(1 - (rows * lengths).sum() / padded)}


def compiled(size: str, device: str, draws: int) -> Line:
    """The branching passes under torch.compile, after a warm-up with the same shapes."""
    evaluator = build(size, device, torch.float32)
    kept, wanted, examples = draw(evaluator, draws)
    module = evaluator.model.module
    module.forward = torch.compile(module.forward, dynamic=True)
    game = ModelGame(evaluator)
    game.marginals(kept, wanted, examples)
    seconds, _ = clock(evaluator, game.marginals, kept, wanted, examples)
    return Line(
        "branching pass, torch.compile",
        "float32",
        0,
        1000 * seconds / int(wanted.sum()),
        float("nan"),
        None,
    )


def demo_samples() -> float:
    """Samples of all heads that the demo's languages needed, on average; 0 if there are none."""
    found = [r.record for r in Store(ROOT / "cache").scan().results if r.record.method == "shapley"]
    sums = [
        float(s.samples.sum())
        for s in found
        if s.samples is not None and "stop" in s.spec["method"]["options"]
    ]
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
    given = parser.parse_args(argv)
    size = "tiny" if given.smoke else given.model
    cuda = given.device.startswith("cuda")
    draws = given.draws or (2 if given.smoke else 256 if cuda else 8)
    budgets = (
        (1 << 14, 1 << 16, 1 << 18) if cuda else (1024,) if given.smoke else (512, 1024, 2048, 4096)
    )
    truth: dict[str, np.ndarray] = {}
    lines: list[Line] = []
    for dtype in (torch.float32, torch.bfloat16):
        lines += measure(size, given.device, dtype, budgets, draws, truth)
    if cuda:
        torch.set_float32_matmul_precision("high")
        tf32 = measure(size, given.device, torch.float32, budgets, draws, truth)
        lines += [replace(line, dtype="tf32") for line in tf32]
    evaluator = build(size, given.device, torch.float32)
    profiled = shares(evaluator, *draw(evaluator, draws))
    with_compile = asdict(compiled(size, given.device, draws)) if given.compile else None
    branching = [line for line in lines if line.what.startswith("branching")]
    samples = demo_samples()
    best = {
        line.dtype: min(x.ms_a_gain for x in branching if x.dtype == line.dtype)
        for line in branching
    }
    report = {
        "command": "python benchmarks/throughput.py "
        + " ".join(argv if argv is not None else sys.argv[1:]),
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": size,
        "device": torch.cuda.get_device_name()
        if cuda
        else f"{platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "default_tokens": token_budget(evaluator.model),
        "lines": [asdict(line) for line in lines],
        "time_of_branching_passes": profiled,
        "compiled_ms_a_gain": with_compile and with_compile["ms_a_gain"],
        "samples_a_language_in_the_demo": samples,
        "minutes_for_15_languages": {k: LANGUAGES * samples * ms / 60000 for k, ms in best.items()}
        if samples
        else {},
    }
    print(json.dumps({k: v for k, v in report.items() if k != "lines"}, indent=1))
    if not given.smoke:
        out = (
            ROOT
            / "benchmarks"
            / "results"
            / f"throughput-{size}-{given.device.partition(':')[0]}.json"
        )
        out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
