"""What gates cost: a step that learns them, against a plain fine-tuning step on the same batch in the same run.

The embedded model, 32 voice commands a step; the kinds of steps take turns, so that a busy machine is unfair to none.

`python benchmarks/gates.py` writes results/gates.json; `--smoke` makes two rounds and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from machine import installed, machine, write  # noqa: E402 - beside this file

OUT = ROOT / "benchmarks" / "results" / "gates.json"
ROUNDS = 15
SMOKE = 2
MODEL = "e5-small-intents"
TASK = "intents"
LANGUAGE = "en"
BATCH = 32
SIZE = 512
PACKAGES = ("headlab", "torch", "transformers", "numpy")
PLAIN = "fine-tuning, no gates"


def kinds() -> dict[str, Callable[[int], object]]:
    """{kind of step: a function of its number}; those that train the model train the same of its weights."""
    import torch

    import headlab
    from headlab.training import GateOptions
    from headlab.training.l0_learn import GatesDataset, Learner, trainable_copy

    model = headlab.load(MODEL, device="cpu")
    task = headlab.task(TASK, LANGUAGE)
    frozen = GateOptions(batch=BATCH, size=SIZE)
    along = GateOptions(batch=BATCH, size=SIZE, trained="all")
    given = GatesDataset(model, task, LANGUAGE, frozen)
    every = frozen.heads_with_gate(model.grid)
    still = Learner(model, given.inputs(), frozen, every)

    def learner() -> Learner:
        copy = trainable_copy(model, frozen_embeddings=True)
        return Learner(copy, given.inputs(copy), along, every)

    moving = learner()
    plain = learner()
    plain.gates = lambda uniform: torch.ones(model.grid.layers, model.grid.width)  # type: ignore[method-assign]

    def forward(step: int) -> None:
        with torch.inference_mode():
            still.inputs.logits(still.inputs.tensors(still.batch_at(step)))

    return {
        "a forward pass": forward,
        "gates, the model as it is": lambda step: still.step(step, still.batch_at(step)),
        "gates, the model along": lambda step: moving.step(step, moving.batch_at(step)),
        PLAIN: lambda step: plain.step(step, plain.batch_at(step)),
    }


def race(steps: dict[str, Callable[[int], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, kind by kind; a first round, which makes the optimizers' means, is not counted."""
    seconds: dict[str, list[float]] = {kind: [] for kind in steps}
    for step in range(rounds + 1):
        for kind, make in steps.items():
            began = time.perf_counter()
            make(step)
            seconds[kind] += [time.perf_counter() - began] if step else []
    return seconds


def rows_of(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Median seconds by kind, and the median over rounds of the ratio to the plain step."""
    plain = np.array(seconds[PLAIN])
    return [
        {
            "step": kind,
            "median seconds": float(np.median(found)),
            "ratio to fine-tuning": float(np.median(np.array(found) / plain)),
            "rounds": len(found),
        }
        for kind, found in seconds.items()
    ]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--smoke", action="store_true", help="two rounds, to see that it works; writes nothing"
    )
    given = parser.parse_args()
    about = machine()
    rows = rows_of(race(kinds(), SMOKE if given.smoke else ROUNDS))
    print(
        "| a step of 32 examples | median seconds | ratio to fine-tuning |\n| --- | ---: | ---: |"
    )
    for row in rows:
        print(
            f"| {row['step']} | {row['median seconds']:.3f} | {row['ratio to fine-tuning']:.2f} |"
        )
    if not given.smoke:
        write(
            OUT,
            {
                "command": "python benchmarks/gates.py",
                "date": datetime.now(UTC).date().isoformat(),
                "machine": about,
                "packages": {package: installed(package) for package in PACKAGES},
                "rows": rows,
            },
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
