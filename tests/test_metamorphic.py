"""Questions asked another way have the same answers: on a tiny model, and on the embedded one in `make soak`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom
from support.table_game import TableGame, last
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

REAL = pytest.param("e5-small-intents", marks=pytest.mark.soak)


@dataclass(frozen=True)
class Question:
    """A model, a task, and how much of it is asked.

    Attributes:
        samples: Of one run of `shapley`.
    """

    model: Model
    task: Task
    language: str
    size: int
    samples: int

    def score(self, method: str, **more: object) -> HeadScores:
        given = {"language": self.language, "size": self.size, "method": method, **more}
        return score(self.model, given.pop("task", self.task), **given)  # type: ignore[arg-type] # keywords of score

    def evaluator(self, batch_size: int = 64, task: Task | None = None) -> Evaluator:
        return Evaluator(
            self.model, task or self.task, self.language, "dev", self.size, batch_size=batch_size
        )

    def mask(self) -> Mask:
        """A third of the heads is off."""
        kept = np.random.default_rng(3).random(self.model.grid.size) > 1 / 3
        return Mask(self.model.grid, kept, self.model.identity())


def made(name: str) -> Question:
    if name == "e5-small-intents":
        return Question(
            headlab.load(name, device="cpu"), headlab.task("intents", ["de"]), "de", 64, 640
        )
    family = "bert" if name == "tiny" else name
    return Question(tiny_model(family, tokenizer=tiny_tokenizer()), tiny_task(), "xx", 24, 240)


@pytest.fixture(scope="module", params=["tiny", REAL])
def asked(request: pytest.FixtureRequest) -> Question:
    return made(request.param)


@pytest.fixture(params=["tiny", REAL])
def fresh(request: pytest.FixtureRequest) -> Question:
    """A model of the test's own, which may change it."""
    return made(request.param)


def changed(task: Task, change: object) -> Task:
    """The task with its examples changed by a function of them and a generator."""

    def read(language: str, split: Split, seed: int) -> list[Example]:
        return change(list(task.read(language, split, seed)), np.random.default_rng(7))  # type: ignore[operator]

    return replace(task, read=read)


@pytest.mark.parametrize("method", ["leave-one-out", "gradient", "confidence"])
def test_the_order_of_the_examples_changes_no_score(asked: Question, method: str) -> None:
    def turned(rows: list[Example], rng: np.random.Generator) -> list[Example]:
        return [rows[at] for at in rng.permutation(asked.size)]

    one = asked.score(method)
    two = asked.score(method, task=changed(asked.task, turned))
    if method == "leave-one-out":  # counts of answers
        assert_array_equal(one.values, two.values)
    assert_allclose(one.values, two.values, rtol=1e-4, atol=1e-6 * float(np.abs(one.values).max()))
    assert np.abs(one.values).max() > 0


@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_size_of_batches_changes_no_answer(asked: Question, batch_size: int) -> None:
    for mask in (None, asked.mask()):
        whole = asked.evaluator().evaluate(mask)
        cut = asked.evaluator(batch_size).evaluate(mask)
        assert_array_equal(whole.predicted, cut.predicted)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["tiny", "gpt2", "distilbert", REAL])
def test_the_padding_side_of_a_tokenizer_changes_no_answer(name: str, side: str) -> None:
    """A tokenizer's files may say left; a batch of one row has no padding."""
    fresh = made(name)
    fresh.model.tokenizer.padding_side = side
    alone = fresh.evaluator(batch_size=1).evaluate(fresh.mask())
    assert_array_equal(
        fresh.evaluator(batch_size=7).evaluate(fresh.mask()).predicted, alone.predicted
    )


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_no_bit(asked: Question) -> None:
    found = set()
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        found.add(asked.score("shapley", samples=asked.samples, target=None).values_sha256())
    assert len(found) == 1


class Stopped(Exception):
    pass


def test_the_moment_of_an_interruption_changes_no_bit(asked: Question, tmp_path: Path) -> None:
    """A run that is stopped wherever it reports, again and again, ends as one that nobody stopped."""
    want = asked.score("shapley", samples=asked.samples, target=None)

    def stop(progress: Progress) -> None:
        if 0 < progress.done < progress.total and progress.done not in seen:
            seen.add(progress.done)
            raise Stopped

    seen: set[int] = set()
    for _ in range(100):
        try:
            got = asked.score(
                "shapley",
                samples=asked.samples,
                target=None,
                store=Store(tmp_path),
                on_progress=stop,
            )
            break
        except Stopped:
            continue
    assert len(seen) > 2
    assert got.values_sha256() == want.values_sha256()
    assert_array_equal(got.low, want.low)


def test_labels_that_say_nothing_give_scores_of_nothing(asked: Question) -> None:
    def shuffled(rows: list[Example], rng: np.random.Generator) -> list[Example]:
        labels = rng.permutation([row.label for row in rows])
        return [replace(row, label=int(label)) for row, label in zip(rows, labels, strict=True)]

    found = asked.score(
        "shapley", samples=asked.samples, target=None, task=changed(asked.task, shuffled)
    )
    beside = ((found.low > 0) | (found.high < 0)).sum()
    assert beside <= binom.ppf(1 - 1e-4, asked.model.grid.size, 0.05)


def test_heads_that_are_the_same_have_the_same_value(fresh: Question) -> None:
    """Head 1 of the first layer becomes a second head 0: queries, keys, values, and what the layer takes of them."""
    attention = fresh.model.module.base_model.encoder.layer[0].attention
    width = attention.self.attention_head_size
    one = slice(0, width)
    two = slice(width, 2 * width)
    with torch.no_grad():
        for part in (attention.self.query, attention.self.key, attention.self.value):
            part.weight[two], part.bias[two] = part.weight[one].clone(), part.bias[one].clone()
        attention.output.dense.weight[:, two] = attention.output.dense.weight[:, one].clone()
    values = fresh.score("leave-one-out").values
    assert values[0] == values[1]
    gradient = fresh.score("gradient").values
    assert gradient[0] == pytest.approx(gradient[1], rel=1e-3)
    sampled = fresh.score("shapley", samples=fresh.samples, target=None)
    assert sampled.low[0] <= sampled.high[1]
    assert sampled.low[1] <= sampled.high[0]
    if fresh.model.grid.size <= 16:
        exact = fresh.score("exact", size=4).values
        assert exact[0] == pytest.approx(exact[1], abs=1e-12)


def one_is_enough(example: int, present: frozenset[int]) -> float:
    """Right without heads 0 and 1; either of them makes three examples of four wrong."""
    return float(example % 4 == 0 or not present & {0, 1})


@pytest.mark.parametrize("estimand", ["shapley", "shapley-top50"])
def test_harm_that_needs_two_heads_to_go_is_told_by_their_intervals(estimand: str) -> None:
    """Switching off one of them alone changes nothing, so leave-one-out gives 0 to both."""
    game = TableGame(5, 16, one_is_enough)
    alone: Floats = game.marginals(np.ones((1, 5), bool), np.ones((1, 5), bool), np.array([1]))
    assert_array_equal(alone, np.zeros((1, 5)))
    enumerate_orders = (
        reference.full_shapley if estimand == "shapley" else reference.top_half_shapley
    )
    truth = np.array(enumerate_orders(game.mean, game.players))
    found = last(
        tmab.estimate(game, SamplingPlan(1600, None, "width", 0.95, 1.0), seed=1, estimand=estimand)
    ).outcome()
    assert ((found.low <= truth) & (truth <= found.high)).all()
    assert (truth[:2] < 0).all() == (found.high[:2] < 0).all()
    assert not (found.low[2:] > 0).any()
    assert not (found.high[2:] < 0).any()
    if estimand == "shapley":
        assert (found.high[:2] < 0).all()
