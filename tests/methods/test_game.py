"""The game of a model against one full forward pass at a time; and what happens when memory runs out."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import VALUE_FUNCTIONS, Bools, Ints, is_out_of_memory, value_function_of
from headlab.evaluation import Evaluator
from headlab.hooks import gated
from headlab.methods.model_game import CoalitionBatch, ModelGame

RESUMABLE = ("bert", "xlm-roberta", "gpt2", "llama", "modernbert", "distilbert")
IN_FULL = ("deberta-v2", "albert")
KEYS = tuple(VALUE_FUNCTIONS)
# Batches of one row each, of some, and of all; the first and the last for two ways of asking only.
FEW = [("mean", "probability"), ("zero", "log-probability")]
WAYS = {8: FEW, 50: [(ablation, key) for ablation in ("zero", "mean") for key in KEYS], 10**6: FEW}


class Truth:
    """Values by one full forward pass of one example under one mask, kept for the next who asks."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.seen: dict[tuple[Any, ...], list[float]] = {}

    def value(self, key: str, kept: Bools, example: int, ablation: str) -> float:
        at = (kept.tobytes(), int(example), ablation)
        if at not in self.seen:
            model = self.evaluator.model
            fill = self.evaluator.fill(ablation)
            inputs = self.evaluator.tensors(np.array([example]))
            with (
                torch.no_grad(),
                gated(model, model.grid.gates(kept), ablation=ablation, means=fill),
            ):
                self.seen[at] = model.module(**inputs).logits[0].tolist()
        return reference.worth(key, self.seen[at], int(self.evaluator.examples[example].label))

    def walk(self, key: str, order: Ints, example: int, ablation: str) -> Any:
        kept = np.ones(self.evaluator.model.grid.size, bool)
        values = []
        for player in (None, *order):
            if player is not None:
                kept[player] = False
            values.append(self.value(key, kept.copy(), example, ablation))
        return -np.diff(values)

    def marginal(self, key: str, kept: Bools, player: int, example: int, ablation: str) -> float:
        present = kept.copy()
        absent = kept.copy()
        present[player], absent[player] = True, False
        return self.value(key, present, example, ablation) - self.value(
            key, absent, example, ablation
        )


@pytest.fixture(scope="module", params=[*RESUMABLE, *IN_FULL])
def truth(request: pytest.FixtureRequest) -> Truth:
    model = tiny_model(request.param, tokenizer=tiny_tokenizer())
    assert model.resumable == (request.param in RESUMABLE)
    return Truth(Evaluator(model, tiny_task(), "xx", "dev", 12, batch_size=5))


def bert(size: int = 12) -> Evaluator:
    return Evaluator(tiny_model("bert", tokenizer=tiny_tokenizer()), tiny_task(), "xx", "dev", size)


def game_of(evaluator: Evaluator, key: str, ablation: str, tokens: int | None) -> ModelGame:
    return ModelGame(evaluator, ablation, value_function_of(key), tokens)


def coalitions(rng: np.random.Generator, players: int) -> tuple[Bools, Bools, Ints]:
    """Few and many present, few and many asked for, one with nobody present and one with nobody gone."""
    kept = rng.random((7, players)) < np.array([0.2, 0.5, 0.8, 0.5, 0.5, 0, 1])[:, None]
    wanted = rng.random((7, players)) < np.array([0.9, 0.1, 0.5, 1, 0, 0.3, 0.3])[:, None]
    return kept, wanted, rng.integers(12, size=7)


@pytest.mark.parametrize("tokens", WAYS)
def test_marginals_equal_full_forwards(truth: Truth, rng: np.random.Generator, tokens: int) -> None:
    kept, wanted, examples = coalitions(rng, truth.evaluator.model.grid.size)
    moved = 0.0
    for ablation, key in WAYS[tokens]:
        got = game_of(truth.evaluator, key, ablation, tokens).marginals(kept, wanted, examples)
        assert got.dtype == np.float64
        assert (got[~wanted] == 0).all()
        for row, player in np.argwhere(wanted):
            want = truth.marginal(key, kept[row], player, examples[row], ablation)
            assert got[row, player] == pytest.approx(want, abs=1e-9), (ablation, key, row, player)
        moved += float(np.abs(got).sum())
    assert moved > 0.1


@pytest.mark.parametrize("tokens", WAYS)
def test_gains_equal_full_forwards(truth: Truth, rng: np.random.Generator, tokens: int) -> None:
    players = truth.evaluator.model.grid.size
    orders = np.stack([rng.permutation(players) for _ in range(5)])
    orders[3] = np.arange(players)[::-1]  # from the last layer up: every step starts further down
    examples = rng.integers(12, size=5)
    wanted = rng.random(players) < 0.3
    wanted[orders[0, 0]] = False  # a walk whose start nobody asks for
    for ablation, key in WAYS[tokens]:
        game = game_of(truth.evaluator, key, ablation, tokens)
        want = np.stack(
            [truth.walk(key, o, e, ablation) for o, e in zip(orders, examples, strict=True)]
        )
        assert_allclose(game.gains(orders, examples), want, atol=1e-9)
        assert_allclose(game.gains(orders, examples, wanted), want * wanted[orders], atol=1e-9)
        assert_allclose(game.gains(orders[:, :5], examples), want[:, :5], atol=1e-9)


@pytest.mark.parametrize("tokens", WAYS)
def test_values_equal_full_forwards(truth: Truth, rng: np.random.Generator, tokens: int) -> None:
    kept, _, examples = coalitions(rng, truth.evaluator.model.grid.size)
    for ablation, key in WAYS[tokens]:
        got = game_of(truth.evaluator, key, ablation, tokens).values(kept, examples)
        want = [truth.value(key, k, e, ablation) for k, e in zip(kept, examples, strict=True)]
        assert_allclose(got, want, atol=1e-9)


def test_a_walk_in_which_nobody_is_asked_for_costs_nothing(truth: Truth) -> None:
    game = game_of(truth.evaluator, "probability", "zero", None)
    before = truth.evaluator.forwards
    nobody = np.zeros(game.players, bool)
    assert (game.gains(np.arange(4)[None], np.array([2]), nobody) == 0).all()
    assert truth.evaluator.forwards == before


def test_the_game_knows_its_size_and_unit() -> None:
    game = game_of(bert(), "log-probability", "zero", None)
    assert (game.players, game.examples, game.span, game.steps) == (12, 12, 10.0, 64)
    assert game.round >= 1


def test_forwards_are_counted_where_they_are_made(rng: np.random.Generator) -> None:
    """Evaluations of one example under one coalition, whatever part of the layers they took."""
    evaluator = bert()
    game = game_of(evaluator, "accuracy", "zero", 50)

    def cost(act: Callable[[], object]) -> int:
        before = evaluator.forwards
        act()
        return evaluator.forwards - before

    kept, wanted, examples = coalitions(rng, 12)
    wanted[:, 0] = True
    assert cost(lambda: game.values(kept, examples)) == 7
    assert cost(lambda: game.marginals(kept, wanted, examples)) == 7 + wanted.sum()
    orders = np.stack([rng.permutation(12)[:6] for _ in range(7)])
    assert cost(lambda: game.gains(orders, examples)) == 7 * 7
    one = np.zeros(12, bool)
    one[orders[0, 2]] = True
    walks = (orders == orders[0, 2]).any(axis=1)
    assert cost(lambda: game.gains(orders, examples, one)) == 2 * walks.sum()
    two = one.copy()
    two[orders[0, 3]] = True  # next to each other: three evaluations, not four
    assert cost(lambda: game.gains(orders[:1], examples[:1], two)) == 3


@pytest.mark.usefixtures("one_lane")  # beside each other they end at no fixed number of ticks
def test_the_game_stops_between_batches_when_it_is_told_to(rng: np.random.Generator) -> None:
    evaluator = bert()
    ticks = [0]

    def tick() -> None:
        ticks[0] += 1
        if ticks[0] == 3:
            raise KeyboardInterrupt

    evaluator.tick = tick
    kept, wanted, examples = coalitions(rng, 12)
    with pytest.raises(KeyboardInterrupt):
        game_of(evaluator, "accuracy", "zero", 8).marginals(kept, wanted, examples)
    assert ticks[0] == 3


@contextmanager
def room_for(
    evaluator: Evaluator, rows: int, error: BaseException | None = None
) -> Iterator[list[int]]:
    """A device whose memory is full when a forward pass has more rows than that; the sizes that were tried."""
    tried: list[int] = []

    def full(_module: torch.nn.Module, _args: Any, given: dict[str, Any]) -> None:
        tried.append(len(given["input_ids"]))
        if tried[-1] > rows:
            raise error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    hook = evaluator.model.module.register_forward_pre_hook(full, with_kwargs=True)
    try:
        yield tried
    finally:
        hook.remove()


def ask(game: ModelGame, what: str, rng: np.random.Generator) -> Any:
    kept, wanted, examples = coalitions(rng, game.players)
    if what == "values":
        return game.values(kept, examples)
    if what == "marginals":
        return game.marginals(kept, wanted, examples)
    return game.gains(
        np.stack([rng.permutation(game.players) for _ in range(7)]), examples, wanted[0]
    )


@pytest.mark.parametrize("what", ["values", "marginals", "gains"])
@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
@pytest.mark.parametrize("rows", [2, 5])
def test_what_does_not_fit_is_cut_and_gives_the_same(what: str, family: str, rows: int) -> None:
    """Where even one coalition's fan is too large (12 heads, room for 2 rows), it is cut by players."""
    evaluator = Evaluator(
        tiny_model(family, tokenizer=tiny_tokenizer()), tiny_task(), "xx", "dev", 12
    )
    want = ask(game_of(evaluator, "probability", "zero", 10**6), what, np.random.default_rng(3))
    game = game_of(evaluator, "probability", "zero", 10**6)
    with room_for(evaluator, rows) as tried:
        got = ask(game, what, np.random.default_rng(3))
    assert_allclose(got, want, atol=1e-9)
    assert max(tried) > rows


@pytest.mark.parametrize("what", ["values", "marginals"])
def test_a_pass_that_did_not_fit_is_not_counted(what: str) -> None:
    evaluator = bert()
    with room_for(evaluator, 5) as tried:
        ask(game_of(evaluator, "accuracy", "zero", 10**6), what, np.random.default_rng(3))
    fitted = sum(rows for rows in tried if rows <= 5)
    if what == "values":
        assert evaluator.forwards == fitted
    else:  # a coalition whose branches did not fit is run again with some of them, and counts once it is through
        kept, wanted, _ = coalitions(np.random.default_rng(3), evaluator.model.grid.size)
        assert int(wanted.sum()) + len(kept) <= evaluator.forwards < fitted


def test_a_coalition_that_nobody_asks_about_costs_nothing(rng: np.random.Generator) -> None:
    evaluator = bert()
    kept, wanted, examples = coalitions(rng, 12)
    wanted[:5] = False
    game_of(evaluator, "accuracy", "zero", 50).marginals(kept, wanted, examples)
    assert evaluator.forwards == 2 + wanted.sum()


def test_after_full_memory_batches_are_half_as_large() -> None:
    evaluator = bert()
    kept = np.ones((8, 12), bool)
    examples = np.zeros(8, np.int64)
    game = game_of(evaluator, "accuracy", "zero", 8 * int(evaluator.lengths[0]))
    with room_for(evaluator, 4) as tried:
        game.values(kept, examples)
        game.values(kept, examples)
    assert tried == [8, 4, 4, 4, 4]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes")]
)
def test_a_processor_may_run_out_of_memory_too(error: BaseException) -> None:
    evaluator = bert()
    want = ask(game_of(evaluator, "accuracy", "zero", 10**6), "marginals", np.random.default_rng(3))
    with room_for(evaluator, 4, error):
        got = ask(
            game_of(evaluator, "accuracy", "zero", 10**6), "marginals", np.random.default_rng(3)
        )
    assert_array_equal(got, want)


@pytest.mark.parametrize("what", ["values", "marginals", "gains"])
def test_one_row_that_does_not_fit_is_said_so(what: str) -> None:
    evaluator = bert()
    with (
        room_for(evaluator, 0) as tried,
        raises("memory.example_too_large"),
    ):
        ask(game_of(evaluator, "accuracy", "zero", 10**6), what, np.random.default_rng(3))
    assert tried[-1] <= 2  # a coalition and one player's side of it


@pytest.mark.parametrize("what", ["values", "marginals", "gains"])
def test_other_errors_pass(what: str) -> None:
    evaluator = bert()
    with (
        room_for(evaluator, 4, RuntimeError("mat1 and mat2 shapes cannot be multiplied")) as tried,
        pytest.raises(RuntimeError, match="shapes cannot"),
    ):
        ask(game_of(evaluator, "accuracy", "zero", 10**6), what, np.random.default_rng(3))
    assert len(tried) == 1  # nothing is tried again


def test_only_full_memory_counts_as_full_memory() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert is_out_of_memory(RuntimeError("std::bad_alloc"))
    assert is_out_of_memory(RuntimeError("could not create a primitive"))
    assert not is_out_of_memory(
        RuntimeError("could not create a primitive descriptor for a matmul primitive")
    )
    assert not is_out_of_memory(OSError(errno.ENOENT, "No such file"))
    assert is_out_of_memory(
        ImportError("libtorch_cpu.so: failed to map segment from shared object")
    )
    assert not is_out_of_memory(ImportError("No module named 'torch'"))
    assert not is_out_of_memory(None)
    assert not is_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_parts_of_a_batch_ask_for_what_it_asked_for(
    rows: int, rng: np.random.Generator
) -> None:
    wanted = rng.random((rows, 9)) < 0.6
    wanted[:, :2] = True
    waiting = [CoalitionBatch(np.arange(rows) + 3, wanted)]
    leaves = []
    while waiting:
        batch = waiting.pop()
        parts = batch.cut()
        leaves += [] if parts else [batch]
        waiting += parts
    found = np.zeros((rows, 9), int)
    for leaf in leaves:
        assert leaf.wanted.sum() <= 1
        found[leaf.rows - 3] += leaf.wanted
    assert_array_equal(found, wanted)
