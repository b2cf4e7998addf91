"""Questions asked another way have the same answers.

They are asked of a tiny model, and in `make soak` of the embedded one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom
from support.table_game import TableGame, last_snapshot
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import Floats, Progress
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.methods import tmab
from headlab.methods.run import score
from headlab.methods.sampling import SamplingPlan
from headlab.results import HeadScores, Store
from headlab.tasks import Example, Split, Task

REAL_MODEL = pytest.param("e5-small-intents", marks=pytest.mark.soak)


@dataclass(frozen=True)
class Setting:
    """A model and a task, and how many examples and samples are used.

    Attributes:
        model: The model.
        task: The task.
        language: Of the examples.
        size: Number of examples.
        samples: Number of samples of one run of `shapley`.
    """

    model: Model
    task: Task
    language: str
    size: int
    samples: int

    def score(self, method: str, task: Task | None = None, **options: Any) -> HeadScores:
        return score(
            self.model,
            task or self.task,
            language=self.language,
            size=self.size,
            method=method,
            **options,
        )

    def shapley(self, **options: Any) -> HeadScores:
        return self.score("shapley", samples=self.samples, target=None, **options)

    def evaluator(self, batch_size: int = 64) -> Evaluator:
        return Evaluator(
            self.model,
            self.task,
            self.language,
            "dev",
            self.size,
            batch_size=batch_size,
        )

    def mask(self) -> Mask:
        """A third of the heads is off."""
        rng = np.random.default_rng(3)
        kept_heads = rng.random(self.model.grid.size) > 1 / 3
        return Mask(self.model.grid, kept_heads, self.model.identity())


def setting_of(name: str) -> Setting:
    if name == "e5-small-intents":
        model = headlab.load(name, device="cpu")
        return Setting(model, headlab.task("intents", ["de"]), "de", 64, 640)
    family = "bert" if name == "tiny" else name
    return Setting(tiny_model(family, tokenizer=tiny_tokenizer()), tiny_task(), "xx", 24, 240)


@pytest.fixture(scope="module", params=["tiny", REAL_MODEL])
def setting(request: pytest.FixtureRequest) -> Setting:
    return setting_of(request.param)


@pytest.fixture(params=["tiny", REAL_MODEL])
def fresh_setting(request: pytest.FixtureRequest) -> Setting:
    """A setting whose model the test may change."""
    return setting_of(request.param)


ExampleChange = Callable[[list[Example], np.random.Generator], list[Example]]


def task_with_change(task: Task, change: ExampleChange) -> Task:
    """The task with its examples changed by a function of them and a generator."""

    def read(language: str, split: Split, seed: int) -> list[Example]:
        examples = list(task.read(language, split, seed))
        return change(examples, np.random.default_rng(7))

    return replace(task, read=read)


@pytest.mark.parametrize("method", ["leave-one-out", "gradient", "confidence"])
def test_the_order_of_the_examples_changes_no_score(setting: Setting, method: str) -> None:
    def shuffle(examples: list[Example], rng: np.random.Generator) -> list[Example]:
        return [examples[index] for index in rng.permutation(setting.size)]

    values = setting.score(method).values
    shuffled_task = task_with_change(setting.task, shuffle)
    other_values = setting.score(method, shuffled_task).values
    if method == "leave-one-out":  # counts of answers
        assert_array_equal(values, other_values)
    largest = float(np.abs(values).max())
    assert_allclose(values, other_values, rtol=1e-4, atol=1e-6 * largest)
    assert largest > 0


@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_size_of_batches_changes_no_answer(setting: Setting, batch_size: int) -> None:
    for mask in (None, setting.mask()):
        predictions = setting.evaluator().evaluate(mask).predicted
        small_batch_predictions = setting.evaluator(batch_size).evaluate(mask).predicted
        assert_array_equal(predictions, small_batch_predictions)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["tiny", "gpt2", "distilbert", REAL_MODEL])
def test_the_padding_side_of_a_tokenizer_changes_no_answer(name: str, side: str) -> None:
    """A tokenizer's files may say left; a batch of one row has no padding."""
    setting = setting_of(name)
    setting.model.tokenizer.padding_side = side
    mask = setting.mask()
    without_padding = setting.evaluator(batch_size=1).evaluate(mask)
    with_padding = setting.evaluator(batch_size=7).evaluate(mask)
    assert_array_equal(with_padding.predicted, without_padding.predicted)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restore the number of threads after the test."""
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)


@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_no_bit(setting: Setting) -> None:
    hashes = set()
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        hashes.add(setting.shapley().values_sha256())
    assert len(hashes) == 1


class Interruption(Exception):
    pass


def test_the_moment_of_an_interruption_changes_no_bit(setting: Setting, tmp_path: Path) -> None:
    """A run that is stopped at each of its reports ends as one that nobody stopped."""
    uninterrupted_scores = setting.shapley()
    stops: set[int] = set()

    def stop(progress: Progress) -> None:
        if 0 < progress.done < progress.total and progress.done not in stops:
            stops.add(progress.done)
            raise Interruption

    for _ in range(100):
        try:
            scores = setting.shapley(store=Store(tmp_path), on_progress=stop)
            break
        except Interruption:
            continue
    assert len(stops) > 2
    assert scores.values_sha256() == uninterrupted_scores.values_sha256()
    assert_array_equal(scores.low, uninterrupted_scores.low)


def test_labels_that_say_nothing_give_scores_of_nothing(setting: Setting) -> None:
    def shuffle_labels(examples: list[Example], rng: np.random.Generator) -> list[Example]:
        labels = [example.label for example in examples]
        shuffled_labels = rng.permutation(labels).tolist()
        changed_examples = []
        for example, label in zip(examples, shuffled_labels, strict=True):
            changed_examples.append(replace(example, label=label))
        return changed_examples

    scores = setting.shapley(task=task_with_change(setting.task, shuffle_labels))
    misses = ((scores.low > 0) | (scores.high < 0)).sum()
    assert misses <= binom.ppf(1 - 1e-4, setting.model.grid.size, 0.05)


def test_heads_that_are_the_same_have_the_same_value(fresh_setting: Setting) -> None:
    """Head 1 of the first layer becomes a copy of head 0.

    Its queries, keys and values are copied, and the columns of the layer's output.
    """
    attention = fresh_setting.model.module.base_model.encoder.layer[0].attention
    width = attention.self.attention_head_size
    head_0 = slice(0, width)
    head_1 = slice(width, 2 * width)
    output_weight = attention.output.dense.weight
    with torch.no_grad():
        for linear in (attention.self.query, attention.self.key, attention.self.value):
            linear.weight[head_1] = linear.weight[head_0].clone()
            linear.bias[head_1] = linear.bias[head_0].clone()
        output_weight[:, head_1] = output_weight[:, head_0].clone()
    values = fresh_setting.score("leave-one-out").values
    assert values[0] == values[1]
    gradient = fresh_setting.score("gradient").values
    assert gradient[0] == pytest.approx(gradient[1], rel=1e-3)
    shapley = fresh_setting.shapley()
    assert shapley.low[0] <= shapley.high[1]
    assert shapley.low[1] <= shapley.high[0]
    if fresh_setting.model.grid.size <= 16:
        four_examples = replace(fresh_setting, size=4)
        exact = four_examples.score("exact").values
        assert exact[0] == pytest.approx(exact[1], abs=1e-12)


def one_is_enough(example: int, present: frozenset[int]) -> float:
    """Right without heads 0 and 1; either of them makes three examples of four wrong."""
    return float(example % 4 == 0 or not present & {0, 1})


@pytest.mark.parametrize("estimand", ["shapley", "shapley-top50"])
def test_harm_that_needs_two_heads_to_go_is_told_by_their_intervals(estimand: str) -> None:
    """Switching off one of them alone changes nothing, so leave-one-out gives 0 to both."""
    game = TableGame(5, 16, one_is_enough)
    all_on = np.ones((1, 5), bool)
    leave_one_out: Floats = game.marginals(all_on, all_on, np.array([1]))
    assert_array_equal(leave_one_out, np.zeros((1, 5)))
    enumerate_orders = (
        reference.full_shapley if estimand == "shapley" else reference.top_half_shapley
    )
    truth = np.array(enumerate_orders(game.mean, game.players))
    plan = SamplingPlan(1600, None, "width", 0.95, 1.0)
    snapshots = tmab.estimate(game, plan, seed=1, estimand=estimand)
    outcome = last_snapshot(snapshots).outcome()
    assert (outcome.low <= truth).all()
    assert (truth <= outcome.high).all()
    both_harm = (truth[:2] < 0).all()
    both_are_told = (outcome.high[:2] < 0).all()
    assert both_are_told == both_harm
    assert not (outcome.low[2:] > 0).any()
    assert not (outcome.high[2:] < 0).any()
    if estimand == "shapley":
        assert (outcome.high[:2] < 0).all()
