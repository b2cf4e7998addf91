"""What gates cost: a step that learns them against a plain fine-tuning step on the same batch.

The embedded model, 32 voice commands a step. The kinds of steps take turns, so that a busy machine
slows all of them alike.

`python benchmarks/gates.py` writes results/gates.json; `--smoke` makes two rounds and writes
nothing.
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

from machine import installed_version, machine_facts, write_json  # noqa: E402 - beside this file

RESULT_FILE = ROOT / "benchmarks" / "results" / "gates.json"
ROUNDS = 15
SMOKE = 2
MODEL = "e5-small-intents"
TASK = "intents"
LANGUAGE = "en"
BATCH = 32
SIZE = 512
PACKAGES = ("headlab", "torch", "transformers", "numpy")
PLAIN = "fine-tuning, no gates"


def step_functions() -> dict[str, Callable[[int], object]]:
    """{kind of step: a function that makes the step with a number}.

    Steps that train the model train the same weights.
    """
    import torch

    import headlab
    from headlab.training import GateOptions
    from headlab.training.l0_learn import GatesDataset, Learner, trainable_copy

    model = headlab.load(MODEL, device="cpu")
    task = headlab.task(TASK, LANGUAGE)
    frozen_options = GateOptions(batch=BATCH, size=SIZE)
    joint_options = GateOptions(batch=BATCH, size=SIZE, trained="all")
    dataset = GatesDataset(model, task, LANGUAGE, frozen_options)
    heads = frozen_options.heads_with_gate(model.grid)
    frozen_learner = Learner(model, dataset.inputs(), frozen_options, heads)

    def new_learner() -> Learner:
        copy = trainable_copy(model, frozen_embeddings=True)
        return Learner(copy, dataset.inputs(copy), joint_options, heads)

    joint_learner = new_learner()
    plain_learner = new_learner()

    def all_on(uniform: torch.Tensor) -> torch.Tensor:
        return torch.ones(model.grid.layers, model.grid.width)

    plain_learner.gates = all_on  # type: ignore[method-assign]

    def forward(step: int) -> None:
        with torch.inference_mode():
            tensors = frozen_learner.inputs.tensors(frozen_learner.batch_at(step))
            frozen_learner.inputs.logits(tensors)

    def learning(learner: Learner) -> Callable[[int], object]:
        return lambda step: learner.step(step, learner.batch_at(step))

    return {
        "a forward pass": forward,
        "gates, the model as it is": learning(frozen_learner),
        "gates, the model along": learning(joint_learner),
        PLAIN: learning(plain_learner),
    }


def seconds_of_steps(
    steps: dict[str, Callable[[int], object]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each step by kind, without those of a first round, which sets the optimizers up."""
    seconds: dict[str, list[float]] = {kind: [] for kind in steps}
    for step in range(rounds + 1):
        for kind, make in steps.items():
            began = time.perf_counter()
            make(step)
            if step:
                seconds[kind].append(time.perf_counter() - began)
    return seconds


def rows_of(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Median seconds by kind, and the median over rounds of the ratio to the plain step."""
    plain = np.array(seconds[PLAIN])
    return [
        {
            "step": kind,
            "median seconds": float(np.median(kind_seconds)),
            "ratio to fine-tuning": float(np.median(np.array(kind_seconds) / plain)),
            "rounds": len(kind_seconds),
        }
        for kind, kind_seconds in seconds.items()
    ]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--smoke", action="store_true", help="two rounds, to see that it works; writes nothing"
    )
    arguments = parser.parse_args()
    machine = machine_facts()
    rows = rows_of(seconds_of_steps(step_functions(), SMOKE if arguments.smoke else ROUNDS))
    print("| a step of 32 examples | median seconds | ratio to fine-tuning |")
    print("| --- | ---: | ---: |")
    for row in rows:
        seconds = f"{row['median seconds']:.3f}"
        ratio = f"{row['ratio to fine-tuning']:.2f}"
        print(f"| {row['step']} | {seconds} | {ratio} |")
    if not arguments.smoke:
        write_json(
            RESULT_FILE,
            {
                "command": "python benchmarks/gates.py",
                "date": datetime.now(UTC).date().isoformat(),
                "machine": machine,
                "packages": {package: installed_version(package) for package in PACKAGES},
                "rows": rows,
            },
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
