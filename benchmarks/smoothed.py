"""How far the first map (method `smoothed`) is from Shapley values, by task and language.

    python benchmarks/smoothed.py                     intents, against the committed results
    python benchmarks/smoothed.py --model e5-small-slots --task slots --languages de,fi \
        --samples 4096 --cache DIR                    computes its own references, in DIR
    python benchmarks/smoothed.py --smoke             one language, one seed; writes nothing

Figures are added to benchmarks/results/smoothed.json, by model, task and estimand.

The reference is a result of `shapley`, which has noise of its own. So has a first map. Both give
values from each half of the examples alone, whose noise is independent; the mean product of the two
halves' differences is the squared bias without the noise of either.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine_facts, write_json

import headlab
from headlab.core import Floats
from headlab.hooks import Model
from headlab.results import HeadScores, Store
from headlab.tasks import Task

ROOT = Path(__file__).resolve().parents[1]
RESULT_FILE = ROOT / "benchmarks" / "results" / "smoothed.json"
ESTIMANDS = ("shapley", "shapley-top50")
COMMITTED_OPTIONS = {"target": 0.01, "stop": "width"}
"""Of the committed results on intents, whose seed is 0."""
REFERENCE_SEED = 11
"""Of references that are computed here: not one of the first maps'."""


def signed_root(square: float) -> float:
    """The root of a number that may be below 0 by chance, with its sign."""
    return float(np.sign(square) * abs(square) ** 0.5)


def reference_scores(
    model: Model, task: Task, language: str, estimand: str, samples: int | None, store: Store
) -> HeadScores:
    """The committed result, or one of so many samples a head."""
    options: dict[str, Any] = {"estimand": estimand}
    if samples is None:
        options |= {"seed": 0, **COMMITTED_OPTIONS}
    else:
        options |= {"seed": REFERENCE_SEED, "samples": samples, "target": None}
    return headlab.score(model, task, language=language, method="shapley", store=store, **options)


def halves_of(scores: HeadScores) -> Floats:
    """Values from each half of the examples alone, [half, head]."""
    assert scores.halves is not None, "no halves: there are too few samples"
    return scores.halves


def figures_of(reference: HeadScores, first_maps: list[HeadScores]) -> dict[str, float]:
    """The size of the values, the bias of first maps and their sampling error, and the agreement.

    All are roots of mean squares over heads, in the value's unit.
    """
    first_half, second_half = halves_of(reference)
    size = signed_root(float((first_half * second_half).mean()))
    squared_biases = []
    cross_products = []
    own_products = []
    for scores in first_maps:
        first, second = halves_of(scores)
        squared_biases.append(float(((first_half - first) * (second_half - second)).mean()))
        cross_products.append(float((first_half * second + second_half * first).mean() / 2))
        own_products.append(float((first * second).mean()))
    deviations = 1.959964  # of the level of 95 %
    errors = [scores.sampling_error / deviations for scores in first_maps]
    slope = np.mean(cross_products) / np.mean(own_products)
    correlation = np.mean(cross_products) / (size * np.mean(own_products) ** 0.5)
    return {
        "size": size,
        "bias": signed_root(float(np.mean(squared_biases))),
        "sampling_error": float(np.sqrt(np.mean(np.square(errors)))),
        "slope": float(slope),
        "correlation": float(correlation),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Figures by estimand and language."""
    model = headlab.load(arguments.model)
    task = headlab.task(arguments.task)
    store = Store(arguments.cache)
    figures: dict[str, Any] = {}
    for estimand in arguments.estimands.split(","):
        for language in arguments.languages.split(","):
            reference = reference_scores(model, task, language, estimand, arguments.samples, store)
            first_maps = []
            started_at = time.perf_counter()
            for seed in range(1, 1 + arguments.seeds):
                first_maps.append(
                    headlab.score(
                        model,
                        task,
                        language=language,
                        method="smoothed",
                        estimand=estimand,
                        seed=seed,
                    )
                )
            seconds = (time.perf_counter() - started_at) / arguments.seeds
            row = {**figures_of(reference, first_maps), "seconds": round(seconds, 1)}
            print(
                estimand,
                language,
                {name: round(value, 4) for name, value in row.items()},
                flush=True,
            )
            figures.setdefault(estimand, {})[language] = row
    return figures


def main() -> None:
    """Measure, print, and add the figures to those of other runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="e5-small-intents")
    parser.add_argument("--task", default="intents")
    parser.add_argument("--languages", default="de,fi,ar,th")
    parser.add_argument("--estimands", default=",".join(ESTIMANDS))
    parser.add_argument("--samples", type=int, help="of a reference that is computed here")
    parser.add_argument(
        "--cache",
        type=Path,
        default=ROOT / "headlab" / "embedded" / "results",
        help="where references are",
    )
    parser.add_argument("--seeds", type=int, default=4, help="first maps of each language")
    parser.add_argument(
        "--smoke", action="store_true", help="one language, one seed; writes nothing"
    )
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.languages = arguments.languages.split(",")[0]
        arguments.seeds = 1
    figures = measure(arguments)
    if arguments.smoke:
        return
    stored = json.loads(RESULT_FILE.read_text("utf-8")) if RESULT_FILE.exists() else {}
    name = Path(arguments.model).name
    subject = stored.setdefault("figures", {}).setdefault(f"{name} on {arguments.task}", {})
    for estimand, rows in figures.items():
        subject.setdefault(estimand, {}).update(rows)
    # Without paths, of which only the last part says something to others.
    command = [Path(argument).name if "/" in argument else argument for argument in sys.argv[1:]]
    stored.setdefault("commands", []).append(" ".join(["python benchmarks/smoothed.py", *command]))
    stored["machine"] = machine_facts()
    write_json(RESULT_FILE, stored)


if __name__ == "__main__":
    main()
