"""Values are log-probabilities by default on tasks of likelihood, and accuracy elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.likelihood_tasks import CHOICES, TEXTS, language_model
from support.sloped_game import bert
from support.table_game import last_snapshot
from support.tiny_task import tiny_task

import headlab
from headlab.cli.run import main
from headlab.core import value_function_of
from headlab.evaluation import Evaluator
from headlab.jobs.table import ExperimentJob, ScoreJob
from headlab.methods import METHODS, method_on, options_on, select, tmab
from headlab.methods.costs import expected_forwards
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score
from headlab.methods.sampling import SamplingPlan
from headlab.methods.screen import SIZE_SCALE
from headlab.results import Store
from headlab.studies.table import STUDIES

LOG = "log-probability"
EMBEDDED_RESULTS = Path(headlab.__file__).parent / "embedded" / "results"
WITH_VALUE = [key for key, method in METHODS.items() if "value" in method.options]
LATER = "leave-one-out"
"""It got the option after it had results, which stay those of its default."""


@pytest.mark.parametrize("key", [key for key in WITH_VALUE if key != LATER])
def test_the_default_is_the_tasks(key: str) -> None:
    assert METHODS[key].options["value"].default == "accuracy"
    for task in ("lm", "repeats", "ioi", "agreement"):
        assert method_on(key, task).resolve({})["value"] == LOG
        assert method_on(key, task).resolve({"value": "accuracy"})["value"] == "accuracy"
    for task in ("intents", "slots", "translation", "nonesuch"):
        assert method_on(key, task) is METHODS[key]


def test_methods_without_a_value_are_as_they_were() -> None:
    assert method_on(LATER, "lm") is METHODS[LATER]
    assert options_on("gradient", "nonesuch") == METHODS["gradient"].options
    assert options_on("nonesuch", "lm") == {}


def test_of_a_task_that_is_unknown_a_command_names_the_value() -> None:
    assert "value" not in options_on("shapley", "nonesuch")
    assert options_on("shapley", "lm")["value"].default == LOG


def value_words(task: str, value: str) -> list[str]:
    job = ScoreJob.model_construct(
        model="smollm2-135m", task=task, languages=["en"], options={"value": value}
    )
    (words,) = job.commands()
    return [word for word in words if word.startswith("value=")]


def test_commands_name_a_value_that_is_not_the_tasks_default() -> None:
    assert value_words("lm", "accuracy") == ["value=accuracy"]
    assert value_words("lm", LOG) == []
    assert value_words("intents", "accuracy") == []
    assert value_words("intents", LOG) == [f"value={LOG}"]
    assert value_words("nonesuch", "accuracy") == ["value=accuracy"]


def test_prune_names_the_value_of_scores_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "decoder"
    model = language_model("llama")
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    paths = ["--model", str(folder), "--cache", str(tmp_path / "cache")]
    question = ["--task", "repeats", "--languages", "en", "--rule", "bottom", "--k", "1"]
    assert main(["prune", *paths, *question, "-o", "value=accuracy"]) == 2
    assert "-o value=accuracy --languages en" in capsys.readouterr().err
    assert main(["prune", *paths, *question]) == 2
    assert "value=" not in capsys.readouterr().err


def test_jobs_are_resolved_by_their_task() -> None:
    job = ScoreJob(model="smollm2-135m", task="ioi", languages=["en"]).resolve()
    assert job.options["value"] == LOG
    job = ScoreJob(model="e5-small-intents", task="intents", languages=["de"]).resolve()
    assert job.options["value"] == "accuracy"


def test_experiments_are_resolved_by_their_task() -> None:
    study = STUDIES["methods"] if "methods" in STUDIES else next(iter(STUDIES.values()))
    assert study.resolve({})["method_options"]["value"] == "accuracy"
    assert study.resolve({}, "tokens")["method_options"]["value"] == LOG
    given: dict[str, Any] = {"method_options": {"value": "accuracy"}}
    assert study.resolve(given, "choices")["method_options"]["value"] == "accuracy"


def test_options_of_a_commands_method_are_completed_on_the_task() -> None:
    job = ExperimentJob.from_flags({"key": "agreement", "method_option": ["samples=64"]})
    assert job.method_options == {"samples": 64}


@pytest.mark.parametrize("task", [CHOICES, TEXTS], ids=["choices", "texts"])
def test_scores_record_their_value_and_those_of_accuracy_stay(task: Any, tmp_path: Path) -> None:
    model = language_model("llama-lm")
    settings = {"language": "xx", "size": 8, "samples": 8, "store": Store(tmp_path)}
    by_accuracy = score(model, task, **settings, value="accuracy")
    assert by_accuracy.unit == "accuracy"
    assert by_accuracy.spec.method.version == 4
    results = Store(tmp_path).scan().results
    assert select(results, ["xx"]).results["xx"].key == by_accuracy.spec.key  # the only ones
    by_default = score(model, task, **settings)
    assert by_default.unit == "nats"
    assert by_default.spec.method.options["value"] == LOG
    assert by_default.spec.method.version == 5
    assert score(model, task, **settings, value="accuracy").seconds == by_accuracy.seconds


def test_scores_of_labels_are_of_accuracy() -> None:
    scores = score(bert(), tiny_task(), language="xx", size=8, samples=8)
    assert (scores.unit, scores.spec.method.version) == ("accuracy", 4)


# No weights where a screen would spare little.


def game_of(family: str, task: Any, key: str) -> ModelGame:
    return ModelGame(
        Evaluator(language_model(family), task, "xx", "dev", 8), value=value_function_of(key)
    )


@pytest.mark.parametrize("key", ["probability", LOG])
@pytest.mark.parametrize("task", [CHOICES, TEXTS], ids=["choices", "texts"])
def test_a_decoders_samples_of_probabilities_weigh_1(task: Any, key: str) -> None:
    game = game_of("llama-lm", task, key)
    assert game.scale is None
    plan = SamplingPlan(12, 0.5, "width", 0.95, game.span)
    tally = last_snapshot(tmab.estimate(game, plan, seed=0))
    assert tally.reach == 1
    assert tally.screen.whole
    assert game_of("llama-lm", task, "accuracy").scale is not None


def test_samples_are_the_gains_but_for_rounding_far_below_them() -> None:
    game = game_of("llama-lm", TEXTS, LOG)
    plan = SamplingPlan(16, None, "width", 0.95, game.span)
    tally = last_snapshot(tmab.estimate(game, plan, seed=0))
    draws = tmab.draws_of(game, range(16), 0, tmab.removal_sizes(tmab.TOP50, game.players))
    gains = game.marginals(*draws)
    sums = np.where(draws.wanted, gains, 0.0).sum(axis=0)
    got = tally.support @ tally.counts
    errors = got - sums
    noise_of_sums = (np.where(draws.wanted, gains, 0.0) ** 2).sum(axis=0)
    assert (errors**2).mean() < 0.01 * noise_of_sums.mean()


def test_forecasts_of_a_decoder_count_every_gain_of_probabilities() -> None:
    method = METHODS["shapley"]
    options = method.resolve({"value": LOG, "target": None, "samples": 100})
    of_decoder, _ = expected_forwards(
        method, options, 12, 50, [], has_slopes=False, likelihood=True
    )
    assert of_decoder == 1200
    of_labels, _ = expected_forwards(method, options, 12, 50, [], has_slopes=False)
    share = method.costs.screening.computed_without_target
    assert of_labels == np.ceil(share * 1200) + 100  # the game has a screen there
    by_accuracy, _ = expected_forwards(
        method, {**options, "value": "accuracy"}, 12, 50, [], has_slopes=False, likelihood=True
    )
    assert by_accuracy < 1200


def test_no_gain_is_foreseen_that_is_larger_than_any_seen() -> None:
    evaluator = Evaluator(bert(), tiny_task(), "xx", "dev", 12)
    game = ModelGame(evaluator, value=value_function_of(LOG))
    kept = np.random.default_rng(3).random((4, game.players)) < 0.6
    halvings = np.full((SIZE_SCALE.bins, game.players), 6)
    query: dict[str, Any] = {
        "kept": kept,
        "wanted": np.ones_like(kept),
        "examples": np.arange(4),
        "halvings": halvings,
        "uniforms": np.ones(kept.shape),
    }
    foreseen = game.screened(**query)[1]
    limit = float(np.median(np.abs(foreseen)))
    bins, clipped, _ = game.screened(**query, largest=np.array(limit))
    np.testing.assert_allclose(clipped, np.clip(foreseen, -limit, limit))
    np.testing.assert_array_equal(bins, SIZE_SCALE.bins_of(-np.abs(clipped)))


def test_the_limit_is_of_the_gains_before_the_last_update() -> None:
    evaluator = Evaluator(bert(), tiny_task(), "xx", "dev", 12)
    game = ModelGame(evaluator, value=value_function_of(LOG))
    plan = SamplingPlan(48, None, "width", 0.95, game.span)
    limits = []
    largest_after = {0: 0.0}
    for tally in tmab.estimate(game, plan, seed=0):
        limits.append((tally.draws, tally.screen.limit, tally.screen.largest))
        largest_after[tally.draws] = tally.screen.largest
        again = tmab.tally_from(tally.arrays(), plan, game.players, [game.steps])
        assert (again.screen.limit, again.screen.largest) == limits[-1][1:]
    assert limits[0][1] == 1  # nothing has been seen yet
    assert 0 < limits[-1][1] < 1
    for draws, limit, _ in limits:
        largest_then = largest_after[tmab.last_update(draws - 1, game.examples)]
        assert limit == (min(largest_then, 1.0) or 1.0)
    assert any(limit < largest for _, limit, largest in limits)  # a later gain is not in it


def test_scores_of_the_demo_by_accuracy_are_shown() -> None:
    """Those of SmolLM2 that come with the package are by accuracy, and stay what pages find."""
    results = [
        result
        for result in Store(EMBEDDED_RESULTS).scan().results
        if result.record.spec.task.name == "repeats" and result.record.method == "shapley"
    ]
    assert [result.record.unit for result in results] == ["accuracy"]
    assert select(results, ["en"]).results["en"].key == results[0].key
