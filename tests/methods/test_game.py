"""The game of a model against one full forward pass at a time, and its ways out of full memory."""

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
# Ablations and value functions by the token budget of a batch, for batches of one row, of some
# rows and of all. The smallest and the largest budget are for two of them only.
TWO_WAYS = [("mean", "probability"), ("zero", "log-probability")]
ALL_WAYS = [(ablation, key) for ablation in ("zero", "mean") for key in KEYS]
WAYS = {8: TWO_WAYS, 50: ALL_WAYS, 10**6: TWO_WAYS}


class Truth:
    """Values by one full forward pass of one example under one mask; logits are cached."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.logits: dict[tuple[Any, ...], list[float]] = {}

    def value(
        self,
        key: str,
        coalition: Bools,
        example: int,
        ablation: str,
    ) -> float:
        """The value of a coalition on an example, by the value function of this key."""
        cache_key = (coalition.tobytes(), int(example), ablation)
        if cache_key not in self.logits:
            model = self.evaluator.model
            gates = model.grid.gates(coalition)
            means = self.evaluator.fill(ablation)
            inputs = self.evaluator.tensors(np.array([example]))
            with torch.no_grad(), gated(model, gates, ablation=ablation, means=means):
                self.logits[cache_key] = model.module(**inputs).logits[0].tolist()
        label = int(self.evaluator.examples[example].label)
        return reference.worth(key, self.logits[cache_key], label)

    def walk(
        self,
        key: str,
        order: Ints,
        example: int,
        ablation: str,
    ) -> Any:
        """The gains of the heads in the order of their removal, float [step]."""
        coalition = np.ones(self.evaluator.model.grid.size, bool)
        values = [self.value(key, coalition, example, ablation)]
        for player in order:
            coalition[player] = False
            values.append(self.value(key, coalition, example, ablation))
        return -np.diff(values)

    def marginal(
        self,
        key: str,
        coalition: Bools,
        player: int,
        example: int,
        ablation: str,
    ) -> float:
        """What a coalition is worth with a player, less what it is worth without."""
        with_player = coalition.copy()
        with_player[player] = True
        without_player = coalition.copy()
        without_player[player] = False
        value_with = self.value(key, with_player, example, ablation)
        value_without = self.value(key, without_player, example, ablation)
        return value_with - value_without


@pytest.fixture(scope="module", params=[*RESUMABLE, *IN_FULL])
def truth(request: pytest.FixtureRequest) -> Truth:
    model = tiny_model(request.param, tokenizer=tiny_tokenizer())
    assert model.resumable == (request.param in RESUMABLE)
    return Truth(Evaluator(model, tiny_task(), "xx", "dev", 12, batch_size=5))


def bert(size: int = 12) -> Evaluator:
    return Evaluator(
        tiny_model("bert", tokenizer=tiny_tokenizer()),
        tiny_task(),
        "xx",
        "dev",
        size,
    )


def game_of(
    evaluator: Evaluator,
    key: str,
    ablation: str,
    tokens: int | None,
) -> ModelGame:
    return ModelGame(evaluator, ablation, value_function_of(key), tokens)


def random_queries(rng: np.random.Generator, players: int) -> tuple[Bools, Bools, Ints]:
    """Coalitions, the players that are asked for in each, and its example.

    Few and many players are present, few and many are asked for; one coalition is empty and one is
    full.
    """
    present_shares = np.array([0.2, 0.5, 0.8, 0.5, 0.5, 0, 1])
    wanted_shares = np.array([0.9, 0.1, 0.5, 1, 0, 0.3, 0.3])
    coalitions = rng.random((7, players)) < present_shares[:, None]
    wanted_players = rng.random((7, players)) < wanted_shares[:, None]
    examples = rng.integers(12, size=7)
    return coalitions, wanted_players, examples


@pytest.mark.parametrize("tokens", WAYS)
def test_marginals_equal_full_forwards(
    truth: Truth,
    rng: np.random.Generator,
    tokens: int,
) -> None:
    players = truth.evaluator.model.grid.size
    coalitions, wanted_players, examples = random_queries(rng, players)
    total_change = 0.0
    for ablation, key in WAYS[tokens]:
        game = game_of(truth.evaluator, key, ablation, tokens)
        got = game.marginals(coalitions, wanted_players, examples)
        assert got.dtype == np.float64
        assert (got[~wanted_players] == 0).all()
        for row, player in np.argwhere(wanted_players):
            want = truth.marginal(
                key,
                coalitions[row],
                player,
                examples[row],
                ablation,
            )
            assert got[row, player] == pytest.approx(want, abs=1e-9), (ablation, key, row, player)
        total_change += float(np.abs(got).sum())
    assert total_change > 0.1


@pytest.mark.parametrize("tokens", WAYS)
def test_gains_equal_full_forwards(
    truth: Truth,
    rng: np.random.Generator,
    tokens: int,
) -> None:
    players = truth.evaluator.model.grid.size
    orders = np.stack([rng.permutation(players) for _ in range(5)])
    orders[3] = np.arange(players)[::-1]  # from the last layer up: every step starts further down
    examples = rng.integers(12, size=5)
    is_wanted = rng.random(players) < 0.3
    is_wanted[orders[0, 0]] = False  # a walk whose start nobody asks for
    for ablation, key in WAYS[tokens]:
        game = game_of(truth.evaluator, key, ablation, tokens)
        walks = zip(orders, examples, strict=True)
        want = np.stack([truth.walk(key, order, example, ablation) for order, example in walks])
        assert_allclose(game.gains(orders, examples), want, atol=1e-9)
        wanted_gains = game.gains(orders, examples, is_wanted)
        assert_allclose(wanted_gains, want * is_wanted[orders], atol=1e-9)
        first_gains = game.gains(orders[:, :5], examples)
        assert_allclose(first_gains, want[:, :5], atol=1e-9)


@pytest.mark.parametrize("tokens", WAYS)
def test_values_equal_full_forwards(
    truth: Truth,
    rng: np.random.Generator,
    tokens: int,
) -> None:
    players = truth.evaluator.model.grid.size
    coalitions, _, examples = random_queries(rng, players)
    for ablation, key in WAYS[tokens]:
        game = game_of(truth.evaluator, key, ablation, tokens)
        got = game.values(coalitions, examples)
        want = [
            truth.value(key, coalition, example, ablation)
            for coalition, example in zip(coalitions, examples, strict=True)
        ]
        assert_allclose(got, want, atol=1e-9)


def test_a_walk_in_which_nobody_is_asked_for_costs_nothing(truth: Truth) -> None:
    game = game_of(truth.evaluator, "probability", "zero", None)
    earlier_forwards = truth.evaluator.forwards
    nobody = np.zeros(game.players, bool)
    orders = np.arange(4)[None]
    gains = game.gains(orders, np.array([2]), nobody)
    assert (gains == 0).all()
    assert truth.evaluator.forwards == earlier_forwards


def test_the_game_knows_its_size_and_unit() -> None:
    game = game_of(bert(), "log-probability", "zero", None)
    assert game.players == 12
    assert game.examples == 12
    assert game.span == 10.0
    assert game.steps == 4096
    assert game.round >= 1


def test_forwards_are_counted_where_they_are_made(rng: np.random.Generator) -> None:
    """Evaluations of one example under one coalition, whatever part of the layers they took."""
    evaluator = bert()
    game = game_of(evaluator, "accuracy", "zero", 50)

    def cost(act: Callable[[], object]) -> int:
        earlier_forwards = evaluator.forwards
        act()
        return evaluator.forwards - earlier_forwards

    coalitions, wanted_players, examples = random_queries(rng, 12)
    wanted_players[:, 0] = True
    assert cost(lambda: game.values(coalitions, examples)) == 7
    marginals_cost = cost(lambda: game.marginals(coalitions, wanted_players, examples))
    assert marginals_cost == 7 + wanted_players.sum()
    orders = np.stack([rng.permutation(12)[:6] for _ in range(7)])
    assert cost(lambda: game.gains(orders, examples)) == 7 * 7
    one_player = np.zeros(12, bool)
    one_player[orders[0, 2]] = True
    has_player = (orders == orders[0, 2]).any(axis=1)
    cost_of_one_player = cost(lambda: game.gains(orders, examples, one_player))
    assert cost_of_one_player == 2 * has_player.sum()
    two_players = one_player.copy()
    two_players[orders[0, 3]] = True  # next to each other: three evaluations, not four
    cost_of_two_players = cost(lambda: game.gains(orders[:1], examples[:1], two_players))
    assert cost_of_two_players == 3


@pytest.mark.usefixtures("one_lane")  # beside each other they end at no fixed number of ticks
def test_the_game_stops_between_batches_when_it_is_told_to(rng: np.random.Generator) -> None:
    evaluator = bert()
    ticks = [0]

    def tick() -> None:
        ticks[0] += 1
        if ticks[0] == 3:
            raise KeyboardInterrupt

    evaluator.tick = tick
    coalitions, wanted_players, examples = random_queries(rng, 12)
    game = game_of(evaluator, "accuracy", "zero", 8)
    with pytest.raises(KeyboardInterrupt):
        game.marginals(coalitions, wanted_players, examples)
    assert ticks[0] == 3


@contextmanager
def room_for(
    evaluator: Evaluator,
    rows: int,
    error: BaseException | None = None,
) -> Iterator[list[int]]:
    """A device whose memory is full when a forward pass has more rows than that.

    Yields:
        The number of rows of each pass that was tried, in a list that grows.
    """
    row_counts: list[int] = []

    def check_memory(
        _module: torch.nn.Module,
        _args: Any,
        inputs: dict[str, Any],
    ) -> None:
        row_counts.append(len(inputs["input_ids"]))
        if row_counts[-1] > rows:
            raise error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    hook = evaluator.model.module.register_forward_pre_hook(check_memory, with_kwargs=True)
    try:
        yield row_counts
    finally:
        hook.remove()


def ask(
    game: ModelGame,
    question: str,
    seed: int = 3,
) -> Any:
    """The game's answer to a random question: `values`, `marginals` or `gains`."""
    rng = np.random.default_rng(seed)
    coalitions, wanted_players, examples = random_queries(rng, game.players)
    if question == "values":
        return game.values(coalitions, examples)
    if question == "marginals":
        return game.marginals(coalitions, wanted_players, examples)
    orders = np.stack([rng.permutation(game.players) for _ in range(7)])
    return game.gains(orders, examples, wanted_players[0])


@pytest.mark.parametrize("question", ["values", "marginals", "gains"])
@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
@pytest.mark.parametrize("rows", [2, 5])
def test_what_does_not_fit_is_cut_and_gives_the_same(
    question: str,
    family: str,
    rows: int,
) -> None:
    """A coalition whose branches are too many (12 heads, room for 2 rows) is cut by players."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 12)
    want = ask(game_of(evaluator, "probability", "zero", 10**6), question)
    game = game_of(evaluator, "probability", "zero", 10**6)
    with room_for(evaluator, rows) as row_counts:
        got = ask(game, question)
    assert_allclose(got, want, atol=1e-9)
    assert max(row_counts) > rows


@pytest.mark.parametrize("question", ["values", "marginals"])
def test_a_pass_that_did_not_fit_is_not_counted(question: str) -> None:
    evaluator = bert()
    with room_for(evaluator, 5) as row_counts:
        ask(game_of(evaluator, "accuracy", "zero", 10**6), question)
    rows_that_fit = sum(rows for rows in row_counts if rows <= 5)
    if question == "values":
        assert evaluator.forwards == rows_that_fit
        return
    # A coalition whose branches did not fit is run again with some of them, but counts only once.
    coalitions, wanted_players, _ = random_queries(
        np.random.default_rng(3), evaluator.model.grid.size
    )
    min_forwards = int(wanted_players.sum()) + len(coalitions)
    assert min_forwards <= evaluator.forwards < rows_that_fit


def test_a_coalition_that_nobody_asks_about_costs_nothing(rng: np.random.Generator) -> None:
    evaluator = bert()
    coalitions, wanted_players, examples = random_queries(rng, 12)
    wanted_players[:5] = False
    game = game_of(evaluator, "accuracy", "zero", 50)
    game.marginals(coalitions, wanted_players, examples)
    assert evaluator.forwards == 2 + wanted_players.sum()


def test_after_full_memory_batches_are_half_as_large() -> None:
    evaluator = bert()
    full_coalitions = np.ones((8, 12), bool)
    examples = np.zeros(8, np.int64)
    game = game_of(
        evaluator,
        "accuracy",
        "zero",
        8 * int(evaluator.lengths[0]),
    )
    with room_for(evaluator, 4) as row_counts:
        game.values(full_coalitions, examples)
        game.values(full_coalitions, examples)
    assert row_counts == [8, 4, 4, 4, 4]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes")]
)
def test_a_processor_may_run_out_of_memory_too(error: BaseException) -> None:
    evaluator = bert()
    want = ask(game_of(evaluator, "accuracy", "zero", 10**6), "marginals")
    with room_for(evaluator, 4, error):
        got = ask(game_of(evaluator, "accuracy", "zero", 10**6), "marginals")
    assert_array_equal(got, want)


@pytest.mark.parametrize("question", ["values", "marginals", "gains"])
def test_one_row_that_does_not_fit_is_reported(question: str) -> None:
    evaluator = bert()
    with room_for(evaluator, 0) as row_counts, raises("memory.example_too_large"):
        ask(game_of(evaluator, "accuracy", "zero", 10**6), question)
    assert row_counts[-1] <= 2  # a coalition and one player's branch of it


@pytest.mark.parametrize("question", ["values", "marginals", "gains"])
def test_other_errors_pass(question: str) -> None:
    evaluator = bert()
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with (
        room_for(evaluator, 4, error) as row_counts,
        pytest.raises(RuntimeError, match="shapes cannot"),
    ):
        ask(game_of(evaluator, "accuracy", "zero", 10**6), question)
    assert len(row_counts) == 1  # nothing is tried again


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
    wanted_players = rng.random((rows, 9)) < 0.6
    wanted_players[:, :2] = True
    batches_to_cut = [CoalitionBatch(np.arange(rows) + 3, wanted_players)]
    smallest_batches = []
    while batches_to_cut:
        batch = batches_to_cut.pop()
        parts = batch.halves()
        if not parts:
            smallest_batches.append(batch)
        batches_to_cut += parts
    times_asked = np.zeros((rows, 9), int)
    for batch in smallest_batches:
        assert batch.wanted.sum() <= 1
        times_asked[batch.rows - 3] += batch.wanted
    assert_array_equal(times_asked, wanted_players)
