"""Methods against slow truths: enumeration, finite differences, loops; and resume bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tiny import tiny_model
from tiny_task import tiny_task, tiny_tokenizer
from torch.nn.functional import cross_entropy

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.gates import Model, gated
from headlab.methods import gradient, shapley
from headlab.methods.game import ModelGame
from headlab.methods.run import score
from headlab.methods.table import METHODS, method
from headlab.methods.work import Progress
from headlab.store import Store
from headlab.tasks.base import Task


class TableGame:
    """A game with known answers: v(example, present players) is read from a function."""

    def __init__(self, players: int, examples: int, value: Callable[[int, frozenset[int]], int]) -> None:
        self.players, self.examples, self.value = players, examples, value

    def gains(self, orders: np.ndarray, examples: np.ndarray) -> np.ndarray:
        out = np.zeros(orders.shape, dtype=np.int8)
        for row, (order, example) in enumerate(zip(orders, examples, strict=True)):
            present = set(range(self.players))
            before = self.value(int(example), frozenset(present))
            for step, player in enumerate(order):
                present.remove(int(player))
                after = self.value(int(example), frozenset(present))
                out[row, step], before = before - after, after
        return out


def majority(example: int, present: frozenset[int]) -> int:
    """Right if the present players' votes reach a bar; player 4 is ignored, 0 and 1 are twins."""
    votes = (2, 2, -1, 1, 0, 3 if example % 2 else -2)
    return int(sum(votes[p] for p in present) >= 2 + example % 3)


def last(game: TableGame, estimand: str, pairs: int, seed: int = 0) -> shapley.Tally:
    return next(shapley.estimate(game, seed=seed, estimand=estimand, pairs_per_round=pairs))


@pytest.mark.parametrize(
    ("estimand", "truth"), [("shapley", reference.full_shapley), ("shapley-top50", reference.top_half_shapley)]
)
def test_estimates_meet_enumeration_within_their_intervals(estimand: str, truth: Callable[..., np.ndarray]) -> None:
    game = TableGame(6, 6, majority)
    want = np.mean([truth(lambda s, e=e: majority(e, s), 6) for e in range(6)], axis=0)
    outcome = last(game, estimand, 6000).outcome(0.999)
    assert outcome.low is not None
    assert outcome.high is not None
    assert (outcome.low <= want).all()
    assert (want <= outcome.high).all()
    assert_allclose(outcome.values, want, atol=0.03)
    assert outcome.values[4] == 0
    assert_allclose(outcome.values[0], outcome.values[1], atol=0.04)


def test_full_shapley_is_efficient_in_every_round() -> None:
    game = TableGame(5, 4, lambda e, s: majority(e, s))
    tally = last(game, "shapley", 4 * 7)
    gap = np.mean([majority(e, frozenset(range(5))) - majority(e, frozenset()) for e in range(4)])
    assert tally.mean.sum() == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize("players", [5, 6])
def test_every_pair_gives_every_head_one_gain(players: int) -> None:
    tally = last(TableGame(players, 3, lambda e, s: len(s) % 2), "shapley-top50", 12)
    assert_array_equal(tally.counts.sum(axis=0), np.full(players, 12))
    # each step flips the value, so every gain is -1 or 1
    if players % 2 == 0:
        assert tally.counts[1].sum() == 0


def test_a_cycle_uses_every_example_once() -> None:
    seen = [shapley._example(3, pair, 7) for pair in range(14)]
    assert sorted(seen[:7]) == sorted(seen[7:]) == list(range(7))
    assert seen[:7] != seen[7:]


def test_rounds_do_not_change_the_tally() -> None:
    game = TableGame(6, 5, majority)
    whole = last(game, "shapley-top50", 20)
    tally = None
    for size in (3, 10, 7):
        tally = next(shapley.estimate(game, seed=0, pairs_per_round=size, start=tally))
    assert tally is not None
    assert_array_equal(tally.counts, whole.counts)
    assert not np.array_equal(last(game, "shapley-top50", 20, seed=1).counts, whole.counts)


@pytest.fixture(scope="module", params=["bert", "albert", "gpt2"])
def model(request: pytest.FixtureRequest) -> Model:
    return tiny_model(request.param, tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def evaluator(model: Model) -> Evaluator:
    return Evaluator(model, tiny_task(), "xx", "dev", 16, batch_size=5)


def test_gains_equal_full_forwards(model: Model, evaluator: Evaluator, rng: np.random.Generator) -> None:
    """Ragged starts and per-row coalitions against one full forward for every prefix."""
    orders = np.stack([rng.permutation(model.grid.size)[:7] for _ in range(9)])
    examples = rng.integers(16, size=9)
    got = ModelGame(evaluator, tokens=30).gains(orders, examples)
    for row in range(9):
        right = []
        for step in range(8):
            kept = np.ones(model.grid.size, bool)
            kept[orders[row, :step]] = False
            right.append(int(evaluator.correct(model.grid.gates(kept)[None], examples[[row]])[0]))
        assert_array_equal(got[row], -np.diff(right))


def test_leave_one_out_equals_one_mask_at_a_time(model: Model, evaluator: Evaluator) -> None:
    scores = score(model, tiny_task(), language="xx", method="leave-one-out", size=16)
    whole = evaluator.evaluate().accuracy
    for head in range(model.grid.size):
        kept = np.ones(model.grid.size, bool)
        kept[head] = False
        gates = np.repeat(model.grid.gates(kept)[None], 16, axis=0)
        assert scores.values[head] == pytest.approx(whole - evaluator.correct(gates, np.arange(16)).mean(), abs=1e-12)
    assert scores.low is not None
    assert scores.high is not None
    assert (scores.low <= scores.values).all()
    assert (scores.values <= scores.high).all()


def example_loss(evaluator: Evaluator, row: int) -> Callable[[np.ndarray], float]:
    inputs = evaluator.tensors(np.array([row]))
    label = torch.tensor([evaluator.labels[row]])

    def loss(gates: np.ndarray) -> float:
        with torch.no_grad(), gated(evaluator.model, gates):
            return float(cross_entropy(evaluator.model.module(**inputs).logits, label))

    return loss


def test_gradient_equals_finite_differences(model: Model, evaluator: Evaluator) -> None:
    ones = np.ones((model.grid.layers, model.grid.width))
    slopes = np.stack([reference.finite_difference(example_loss(evaluator, r), ones) for r in range(16)])
    got = {form: gradient.importance(evaluator, form, 4) for form in ("example", "batch")}
    assert_allclose(got["example"], np.abs(slopes).mean(axis=0)[tuple(model.grid.flat.T)], atol=1e-6)
    batched = np.abs(slopes.reshape(4, 4, *ones.shape).mean(axis=1)).mean(axis=0)
    assert_allclose(got["batch"], batched[tuple(model.grid.flat.T)], atol=1e-6)
    assert (got["batch"] <= got["example"] + 1e-12).all()


def test_token_gradients_sum_to_the_example_gradient(evaluator: Evaluator) -> None:
    for batch in evaluator.batches(np.arange(16)):
        summed = gradient.gate_gradients(evaluator, batch, per_token=True).sum(dim=-1)
        assert_allclose(summed, gradient.gate_gradients(evaluator, batch), atol=1e-10)


def test_token_form_does_not_depend_on_padding(evaluator: Evaluator) -> None:
    assert_allclose(gradient.importance(evaluator, "token", 1), gradient.importance(evaluator, "token", 16), atol=1e-10)


def test_normalised_layers_have_length_one(model: Model) -> None:
    scores = score(model, tiny_task(), language="xx", method="gradient", size=8, normalise=True)
    for layer in scores.grid.nest(scores.values):
        assert np.linalg.norm(layer) == pytest.approx(1)


def test_confidence_equals_a_loop(model: Model, evaluator: Evaluator) -> None:
    from headlab.gates import attention

    got = score(model, tiny_task(), language="xx", method="confidence", size=16).values
    totals, tokens = np.zeros(model.grid.size), 0
    for row in range(16):
        inputs = evaluator.tensors(np.array([row]))
        ids = inputs["input_ids"][0].tolist()
        found = attention(model, inputs, model.grid.heads)
        for i, head in enumerate(model.grid.heads):
            part, _ = reference.confidence(found[head], ids, {2})
            totals[i] += part
        tokens += len(ids)
    assert_allclose(got, totals / tokens, atol=1e-6)


class Interrupted(Exception):
    pass


def interrupted(model: Model, store: Store, after: int, method: str, options: dict[str, int]) -> None:
    """Start a run and break it off once its progress has passed `after`."""

    def interrupt(progress: Progress) -> None:
        if progress.done > after:
            raise Interrupted

    with pytest.raises(Interrupted):
        score(model, tiny_task(), language="xx", method=method, store=store, on_progress=interrupt, **options)


@pytest.mark.parametrize(
    ("key", "after", "options"),
    [("shapley", n, {"samples": 20, "round": 5, "size": 8, "seed": 3}) for n in (6, 11, 17)]
    + [("leave-one-out", n, {"size": 24}) for n in (5, 9)],
)
def test_an_interrupted_run_ends_the_same_bit_for_bit(
    model: Model, tmp_path: Path, key: str, after: int, options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelGame, "tokens", 60)
    want = score(model, tiny_task(), language="xx", method=key, **options)
    interrupted(model, Store(tmp_path), after, key, options)
    seen: list[int] = []
    watch = {"store": Store(tmp_path), "on_progress": lambda p: seen.append(p.done)}
    got = score(model, tiny_task(), language="xx", method=key, **watch, **options)
    assert got.values_sha256() == want.values_sha256()
    assert got.example_forwards == want.example_forwards
    assert seen[0] > 1
    again = score(model, tiny_task(), language="xx", method=key, store=Store(tmp_path), **options)
    assert again.seconds == got.seconds  # read, not computed


def test_the_seed_matters_and_target_stops_early(model: Model) -> None:
    one = score(model, tiny_task(), language="xx", size=8, seed=0, samples=16)
    two = score(model, tiny_task(), language="xx", size=8, seed=1, samples=16)
    assert one.values_sha256() != two.values_sha256()
    early = score(model, tiny_task(), language="xx", size=8, samples=64, target=0.9, round=4)
    assert early.samples is not None
    assert early.samples.max() == 8  # the first whole cycle


def test_mean_ablation_is_another_run(model: Model, tmp_path: Path) -> None:
    both = [
        score(model, tiny_task(), language="xx", size=8, samples=8, ablation=a, store=Store(tmp_path))
        for a in ("zero", "mean")
    ]
    assert both[0].spec["ablation"] != both[1].spec["ablation"]
    assert len(Store(tmp_path).scan().results) == 2


@pytest.mark.parametrize("key", sorted(METHODS))
def test_every_method_runs_and_keeps_its_word(key: str, model: Model) -> None:
    options = {"samples": 8} if key == "shapley" else {}
    scores = score(model, tiny_task(), language="yy", method=key, size=8, **options)
    row = METHODS[key]
    assert scores.values.shape == (model.grid.size,)
    assert (scores.low is not None) == row.intervals
    assert scores.unit == row.unit
    assert row.signed or (scores.values >= 0).all()


def test_unknown_names_are_refused(model: Model) -> None:
    task: Task = tiny_task()
    with pytest.raises(HeadlabError, match="shapley"):
        method("best")
    with pytest.raises(HeadlabError, match="no option sample"):
        score(model, task, language="xx", sample=3)
    with pytest.raises(HeadlabError, match="must be int"):
        score(model, task, language="xx", samples=1.5)
    with pytest.raises(HeadlabError, match="has no language 'zz'"):
        score(model, task, language="zz")
    with pytest.raises(HeadlabError, match="2 languages"):
        score(model, task)
