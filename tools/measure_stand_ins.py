"""Measures what stands in closed players' places: the files that docs/results-players.md is made of.

    python tools/measure_stand_ins.py rankings  --cache CACHE --data DATA [--tasks ioi,lm]
    python tools/measure_stand_ins.py streaming --cache CACHE [--scores kvpress.json]
    python tools/measure_stand_ins.py languages --cache CACHE

`rankings` scores SmolLM2's heads under each ablation, and removes the lowest of each ranking.
`streaming` lets half of its key-value groups see few tokens, chosen by scores and at random.
`languages` scores the embedded encoder's heads under each ablation in 15 languages.
Scores are kept in the cache, so that a run that was stopped goes on; `python
tools/results_players.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import headlab
from headlab.core import Bools, Evaluation, Floats, read_json
from headlab.evaluation import Evaluator, compare
from headlab.evaluation.generation import Likelihood, gain, likelihood
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.methods.neuron_groups import model_with_players
from headlab.results import HeadScores, Store
from headlab.stats import paired_bootstrap

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "players"
DECODER = "smollm2-135m"
ENCODER = "e5-small-intents"

# Of `rankings`.
ABLATIONS_BY_TASK: Mapping[str, tuple[str, ...]] = {
    "ioi": ("zero", "resample", "counterfactual"),
    "agreement": ("zero", "resample", "counterfactual"),
    "needle:40": ("zero", "resample", "counterfactual"),
    "repeats": ("zero", "resample"),
    "lm": ("zero", "resample"),
}
"""Tasks without contrasts have no counterfactual texts."""
DEV_EXAMPLES_BY_TASK = {"ioi": 64, "agreement": 64, "needle:40": 24, "repeats": 32, "lm": 24}
TEST_EXAMPLES_BY_TASK = {"ioi": 128, "agreement": 128, "needle:40": 64, "repeats": 32, "lm": 32}
REMOVED_COUNTS = (27, 54)
"""A tenth and a fifth of 270 heads."""
RANDOM_REMOVALS = 3

# Of `streaming`.
STREAMING = "streaming:4,64"
STREAMING_DEV_EXAMPLES = 24
STREAMING_SAMPLES = 48
STREAMING_TEST_EXAMPLES = 64
RANDOM_CHOICES = 10

# Of `languages`.
ENCODER_ABLATIONS = ("zero", "mean", "resample")
ENCODER_SAMPLES = 64
ENCODER_TEST_EXAMPLES = 500
ENCODER_REMOVED = 10


def main() -> None:
    """Measure what is asked for, and write its file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("rankings", "streaming", "languages"))
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tasks", default=",".join(ABLATIONS_BY_TASK))
    parser.add_argument("--scores", type=Path, help="scores of key-value groups by kvpress")
    arguments = parser.parse_args()
    store = Store(arguments.cache)
    if arguments.what == "rankings":
        for task_name in arguments.tasks.split(","):
            add("rankings", task_name, rankings_of(task_name, store, arguments.data))
    elif arguments.what == "streaming":
        write("streaming", streaming_of(store, arguments.scores))
    else:
        write("languages", languages_of(store))


def write(name: str, value: Any) -> None:
    """Write one file of results."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def say(name: str, figures: Mapping[str, Any]) -> None:
    """Print a line of what was measured."""
    sys.stdout.write(f"{name}: {json.dumps(figures)}\n")
    sys.stdout.flush()


def add(name: str, key: str, value: Any) -> None:
    """Write one entry of a file of results; the others stay."""
    path = RESULTS / f"{name}.json"
    entries = read_json(path) if path.is_file() else {}
    write(name, {**entries, key: value})


# Rankings of a decoder's heads under each ablation, and what removing the lowest does.


def rankings_of(task_name: str, store: Store, data: Path | None) -> dict[str, Any]:
    """Leave-one-out values of every head by ablation, and what removing the lowest costs on test."""
    model = headlab.load(DECODER, dtype="bfloat16")
    task = headlab.task(task_name, data=data)
    scores_by_ablation = {
        ablation: headlab.score(
            model,
            task,
            language="en",
            method="leave-one-out",
            value="log-probability",
            size=DEV_EXAMPLES_BY_TASK[task_name],
            ablation=ablation,
            store=store,
        )
        for ablation in ABLATIONS_BY_TASK[task_name]
    }
    evaluator = Evaluator(model, task, "en", "test", TEST_EXAMPLES_BY_TASK[task_name])
    untouched = Untouched(likelihood(evaluator), evaluator.evaluate())
    removals = []
    for count in REMOVED_COUNTS:
        kept_by_ranking = {
            ablation: kept_without_lowest(scores.values, count)
            for ablation, scores in scores_by_ablation.items()
        }
        for draw in range(RANDOM_REMOVALS):
            kept_by_ranking[f"random {draw}"] = kept_without_random(model.grid.size, count, draw)
        for ranking, kept in kept_by_ranking.items():
            for stand_in in ABLATIONS_BY_TASK[task_name]:
                mask = Mask(model.grid, kept)
                change = change_of(evaluator, mask, stand_in, untouched)
                removal = {"removed": count, "ranking": ranking, "stand_in": stand_in}
                removals.append({**removal, **change})
                say(task_name, removals[-1])
    return {
        "examples": DEV_EXAMPLES_BY_TASK[task_name],
        "test_examples": TEST_EXAMPLES_BY_TASK[task_name],
        "untouched": untouched.figures(),
        "scores": {name: figures_of(scores) for name, scores in scores_by_ablation.items()},
        "removals": removals,
    }


def figures_of(scores: HeadScores) -> dict[str, Any]:
    """Values and intervals of all heads, rounded, and what they took."""
    assert scores.low is not None
    assert scores.high is not None
    return {
        "values": rounded(scores.values),
        "low": rounded(scores.low),
        "high": rounded(scores.high),
        "seconds": round(scores.seconds, 1),
        "forwards": scores.example_forwards,
    }


def rounded(values: Floats) -> list[float]:
    """Figures of heads for JSON, with five decimals."""
    figures: list[float] = np.round(np.asarray(values, dtype=np.float64), 5).tolist()
    return figures


def kept_without_lowest(values: Floats, count: int) -> Bools:
    """All players but those of the lowest values, bool [player]."""
    kept = np.ones(values.size, dtype=bool)
    kept[np.argsort(values, axis=None, kind="stable")[:count]] = False
    return kept


def kept_without_random(players: int, count: int, draw: int) -> Bools:
    """All players but some at random, bool [player]."""
    dice = np.random.default_rng([draw, count])
    kept = np.ones(players, dtype=bool)
    kept[dice.choice(players, count, replace=False)] = False
    return kept


class Untouched(NamedTuple):
    """What the model with all players gives on the examples of test."""

    likelihood: Likelihood
    evaluation: Evaluation

    def figures(self) -> dict[str, float]:
        """Mean nats an answer, and the accuracy."""
        nats = float(self.likelihood.nats.mean())
        return {"nats": nats, "accuracy": self.evaluation.accuracy}


def change_of(
    evaluator: Evaluator, mask: Mask, ablation: str, untouched: Untouched
) -> dict[str, float]:
    """What a mask changes, in nats an answer and in points, with paired intervals."""
    in_nats = gain(untouched.likelihood, likelihood(evaluator, mask, ablation=ablation))
    in_accuracy = compare(untouched.evaluation, evaluator.evaluate(mask, ablation=ablation))
    return {
        "nats": in_nats.difference,
        "nats_low": in_nats.low,
        "nats_high": in_nats.high,
        "points": 100 * in_accuracy.difference,
        "points_low": 100 * in_accuracy.low,
        "points_high": 100 * in_accuracy.high,
    }


# Half of the key-value groups see the first and last tokens alone.


def streaming_of(store: Store, kvpress_scores: Path | None) -> dict[str, Any]:
    """Half of the groups streaming, chosen by scores and at random, on test."""
    task = headlab.task("needle", languages=["en"])
    model = model_with_players(headlab.load(DECODER, dtype="bfloat16"), task, "kv-groups")
    values_by_choice = streaming_values(model, task, store)
    if kvpress_scores is not None:
        answer = read_json(kvpress_scores)
        values_by_choice[f"kvpress: {answer['press']}"] = np.array(answer["scores"], dtype=float)
    streaming_count = model.grid.size // 2
    kept_by_choice = {
        name: kept_without_lowest(values, streaming_count)
        for name, values in values_by_choice.items()
    }
    for draw in range(RANDOM_CHOICES):
        kept_by_choice[f"random {draw}"] = kept_without_random(
            model.grid.size, streaming_count, draw
        )
    kept_by_choice["all stream"] = np.zeros(model.grid.size, dtype=bool)
    evaluator = Evaluator(model, task, "en", "test", STREAMING_TEST_EXAMPLES)
    untouched = Untouched(likelihood(evaluator), evaluator.evaluate())
    likelihoods = {}
    choices = {}
    for name, kept in kept_by_choice.items():
        mask = Mask(model.grid, kept)
        likelihoods[name] = likelihood(evaluator, mask, ablation=STREAMING)
        choices[name] = {
            **change_of(evaluator, mask, STREAMING, untouched),
            "streaming": [
                [layer, group]
                for layer, group in np.argwhere(~kept.reshape(model.grid.layers, -1)).tolist()
            ],
        }
        say(name, choices[name])
    return {
        "sizes": STREAMING.partition(":")[2],
        "streaming_groups": streaming_count,
        "groups": model.grid.size,
        "tokens": float(evaluator.lengths.mean()),
        "test_examples": STREAMING_TEST_EXAMPLES,
        "untouched": untouched.figures(),
        "choices": choices,
        "against_random": {
            name: against_random(name, likelihoods, untouched.likelihood.groups)
            for name in values_by_choice
        },
    }


def streaming_values(model: Model, task: Any, store: Store) -> dict[str, Floats]:
    """Values of the groups by the ways that they are chosen."""
    shapley = headlab.score(
        model,
        task,
        method="shapley",
        size=STREAMING_DEV_EXAMPLES,
        ablation=STREAMING,
        store=store,
        estimand="shapley",
        samples=STREAMING_SAMPLES,
        target=None,
    )
    values_by_choice = {"shapley, streaming": shapley.values}
    for ablation in (STREAMING, "zero"):
        scores = headlab.score(
            model,
            task,
            method="leave-one-out",
            value="log-probability",
            size=STREAMING_DEV_EXAMPLES,
            ablation=ablation,
            store=store,
        )
        values_by_choice[f"leave-one-out, {ablation.partition(':')[0]}"] = scores.values
    return values_by_choice


def against_random(
    name: str, likelihoods: Mapping[str, Likelihood], groups: tuple[str, ...]
) -> dict[str, float]:
    """How many nats an answer a choice is above the mean of the random ones, paired."""
    random_nats = np.mean(
        [chosen.nats for other, chosen in likelihoods.items() if other.startswith("random")],
        axis=0,
    )
    difference = paired_bootstrap(
        random_nats, likelihoods[name].nats, groups, np.random.default_rng(0)
    )
    draws_as_good = [
        other
        for other, chosen in likelihoods.items()
        if other.startswith("random") and chosen.nats.mean() >= likelihoods[name].nats.mean()
    ]
    return {
        "nats": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "draws_as_good": len(draws_as_good),
    }


# The embedded encoder's heads under each ablation, in all languages.


def languages_of(store: Store) -> dict[str, Any]:
    """Shapley values by language and ablation, and what removing the lowest ten does on test."""
    model = headlab.load(ENCODER)
    task = headlab.task("intents")
    entries: dict[str, Any] = {}
    for language in task.languages:
        evaluator = Evaluator(model, task, language, "test", ENCODER_TEST_EXAMPLES)
        before = evaluator.evaluate()
        entry: dict[str, Any] = {"test_accuracy": before.accuracy, "scores": {}, "removals": {}}
        for ablation in ENCODER_ABLATIONS:
            scores = headlab.score(
                model,
                task,
                language=language,
                ablation=ablation,
                store=store,
                samples=ENCODER_SAMPLES,
                target=None,
            )
            entry["scores"][ablation] = figures_of(scores)
            mask = Mask(model.grid, kept_without_lowest(scores.values, ENCODER_REMOVED))
            change = compare(before, evaluator.evaluate(mask))
            entry["removals"][ablation] = {
                "points": 100 * change.difference,
                "low": 100 * change.low,
                "high": 100 * change.high,
            }
        say(language, entry["removals"])
        entries[language] = entry
        write("languages", entries)
    return entries


if __name__ == "__main__":
    main()
