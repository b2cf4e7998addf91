"""Games whose players are not heads: exact values against a slow loop, planted players, resuming."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.players_by_hand import DOWNS, closed_by_hand, neuron_groups, playing
from support.task_answers import task_answered_by
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import value_function_of
from headlab.evaluation import Evaluator
from headlab.hooks import Model, neurons_of, with_players, with_players_of
from headlab.masks import Mask
from headlab.methods import METHODS, model_with_players, player_groups
from headlab.methods.model_game import ModelGame
from headlab.methods.neuron_groups import grouping_language
from headlab.methods.run import score
from headlab.methods.spec import make_spec
from headlab.results import HeadScores, Store

EXAMPLES = 12
# At most six players, so that all their orders can be tried.
SMALL_GAMES = (
    ("bert", "attention"),
    ("bert", "feed-forward"),
    ("bert", "neurons:2"),
    ("bert", "layers"),
    ("bert", "attention,feed-forward"),
    ("bert", "feed-forward,layers"),
    ("llama", "kv-groups"),
    ("llama", "neurons:2"),
    ("llama", "layers"),
    ("gpt2", "attention,layers"),
    ("albert", "neurons:2"),
    ("albert", "layers"),
)


@cache
def model_of(family: str) -> Model:
    return tiny_model(family, tokenizer=tiny_tokenizer())


def by_hand(model: Model, family: str, grid_players: Model, kept: np.ndarray) -> np.ndarray:
    """Whether each answer is right, with the weights of the players that are not kept zeroed."""
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", EXAMPLES)
    closed = [
        player for player, stays in zip(grid_players.grid.heads, kept, strict=True) if not stays
    ]
    rows = np.arange(EXAMPLES)
    with torch.no_grad(), closed_by_hand(model, family, closed):
        logits = model.module(**evaluator.tensors(rows)).logits
    labels = torch.tensor([example.label for example in evaluator.examples])
    right = logits.argmax(dim=-1) == labels
    return np.asarray(right.numpy(), dtype=np.float64)


@pytest.mark.parametrize(("family", "players"), [g for g in SMALL_GAMES if g[0] != "albert"])
def test_exact_values_are_those_of_a_slow_loop_over_zeroed_weights(
    family: str, players: str
) -> None:
    model = model_of(family)
    variant = playing(model, players)
    values: dict[frozenset[int], float] = {}

    def value(present: frozenset[int]) -> float:
        if present not in values:
            kept = np.isin(np.arange(variant.grid.size), list(present))
            values[present] = float(by_hand(model, family, variant, kept).mean())
        return values[present]

    settings = {"language": "xx", "method": "exact", "size": EXAMPLES}
    scores = score(variant, tiny_task(), estimand="shapley", **settings)
    assert_allclose(scores.values, reference.full_shapley(value, variant.grid.size), atol=1e-9)
    top_half = score(variant, tiny_task(), estimand="shapley-top50", **settings)
    want = reference.top_half_shapley(value, variant.grid.size)
    assert_allclose(top_half.values, want, atol=1e-9)
    assert scores.grid == variant.grid


@pytest.mark.parametrize(("family", "players"), SMALL_GAMES)
def test_leave_one_out_and_samples_agree_with_enumeration(family: str, players: str) -> None:
    variant = playing(model_of(family), players)
    size = variant.grid.size
    settings = {"language": "xx", "size": EXAMPLES}
    exact = score(variant, tiny_task(), method="exact", estimand="shapley", **settings)
    sampled = score(
        variant,
        tiny_task(),
        method="shapley",
        estimand="shapley",
        samples=600,
        target=None,
        **settings,
    )
    assert sampled.low is not None
    assert sampled.high is not None
    assert (sampled.low <= exact.values + 1e-12).all()
    assert (exact.values <= sampled.high + 1e-12).all()
    assert sampled.slopes is None or sampled.slopes.draws == 0
    assert_allclose(sampled.values, exact.values, atol=0.2)
    without = score(variant, tiny_task(), method="leave-one-out", **settings)
    evaluator = Evaluator(variant, tiny_task(), "xx", "dev", EXAMPLES)
    baseline = evaluator.evaluate().accuracy
    for player in range(size):
        kept = np.arange(size) != player
        accuracy = evaluator.evaluate(Mask(variant.grid, kept)).accuracy
        assert without.values[player] == pytest.approx(baseline - accuracy, abs=1e-12)


@pytest.mark.parametrize("players", ["neurons:2", "attention,layers"])
def test_intervals_of_players_cover_exact_values(players: str) -> None:
    variant = playing(model_of("bert"), players)
    settings = {"language": "xx", "size": EXAMPLES, "value": "probability"}
    exact = score(variant, tiny_task(), method="exact", estimand="shapley-top50", **settings)
    covered = []
    for seed in range(10):
        sampled = score(
            variant, tiny_task(), method="shapley", seed=seed, samples=48, target=None, **settings
        )
        assert sampled.low is not None
        assert sampled.high is not None
        covered.append((sampled.low <= exact.values) & (exact.values <= sampled.high))
    assert np.mean(covered) >= 0.95


@pytest.mark.parametrize(
    ("family", "players"),
    [
        ("bert", "heads,attention,feed-forward,neurons:2,layers"),
        ("llama", "heads,kv-groups,neurons:2,layers"),
        ("albert", "heads,neurons:2,layers"),
    ],
)
@pytest.mark.parametrize("value", ["accuracy", "probability"])
def test_gains_of_one_pass_equal_those_of_full_passes(
    family: str, players: str, value: str
) -> None:
    """Branches, walks and screening start at the layer of the player."""
    variant = playing(model_of(family), players)
    game = ModelGame(
        Evaluator(variant, tiny_task(), "xx", "dev", EXAMPLES), value=value_function_of(value)
    )
    rng = np.random.default_rng(4)
    players_count = game.players
    kept = rng.random((5, players_count)) < 0.8
    examples = rng.integers(EXAMPLES, size=5)
    toggled = np.repeat(kept, players_count, axis=0)
    each = np.tile(np.arange(players_count), 5)
    toggled[np.arange(len(each)), each] ^= True
    values = game.values(kept, examples)
    toggled_values = game.values(toggled, np.repeat(examples, players_count))
    signs = np.where(kept, 1, -1)
    want = (values[:, None] - toggled_values.reshape(5, -1)) * signs
    wanted = np.ones(kept.shape, bool)
    assert_allclose(game.marginals(kept, wanted, examples), want, atol=1e-9)
    if game.scale is not None:
        halvings = np.zeros((game.scale.bins, players_count), np.int64)
        screened = game.screened(kept, wanted, examples, halvings, np.zeros(kept.shape))
        assert_allclose(screened[2], want, atol=1e-9)
    orders = np.stack([rng.permutation(players_count) for _ in range(3)])
    gains = game.gains(orders, examples[:3])
    for row, order in enumerate(orders):
        coalitions = np.ones((players_count + 1, players_count), bool)
        for step, player in enumerate(order):
            coalitions[step + 1 :, player] = False
        walk = game.values(coalitions, np.full(len(coalitions), examples[row]))
        assert_allclose(gains[row], walk[:-1] - walk[1:], atol=1e-9)


def test_slopes_are_those_of_finite_differences() -> None:
    variant = playing(model_of("bert"), "heads,feed-forward,neurons:2,layers")
    game = ModelGame(Evaluator(variant, tiny_task(), "xx", "dev", EXAMPLES))
    kept = np.ones((2, game.players), bool)
    slopes = game.slopes(kept, np.array([0, 3]), np.array(1.0))
    assert np.isfinite(slopes).all()
    assert (np.abs(slopes) > 0).mean() > 0.9


def test_a_mask_after_another_resumes_at_the_layer_that_changed() -> None:
    variant = playing(model_of("bert"), "heads,attention,feed-forward,neurons:2,layers")
    assert variant.resumable
    grid = variant.grid
    evaluator = Evaluator(variant, tiny_task(), "xx", "dev", EXAMPLES)
    rng = np.random.default_rng(0)
    kept = np.ones(grid.size, bool)
    for _ in range(12):
        kept = kept.copy()
        kept[rng.integers(grid.size)] ^= True
        got = evaluator.evaluate(Mask(grid, kept))
        fresh = Evaluator(variant, tiny_task(), "xx", "dev", EXAMPLES, state_bytes=0)
        assert_array_equal(got.predicted, fresh.evaluate(Mask(grid, kept)).predicted)


def test_a_group_of_noise_harms_and_a_dead_block_does_nothing() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer(), seed=3)
    layers = model.module.bert.encoder.layer
    with torch.no_grad():
        layers[1].output.dense.weight.zero_()  # a dead block, but for its bias
        noise = torch.randn(24, 16, generator=torch.Generator().manual_seed(1))
        layers[2].output.dense.weight[:, 0::2] = noise.double() * 3
        layers[2].intermediate.dense.bias[0::2] = 1.0
    variant = playing(model, "feed-forward,neurons:2")
    names = {str(player): number for number, player in enumerate(variant.grid.heads)}
    noisy, dead = names["encoder-neurons 2.0"], names["encoder-feed-forward 1.0"]
    kept = np.ones(variant.grid.size, bool)
    kept[noisy] = False
    task = task_answered_by(variant, Mask(variant.grid, kept))
    settings = {"language": "xx", "size": 24}
    without = score(variant, task, method="leave-one-out", **settings)
    assert without.values[noisy] < -0.2
    assert without.values[dead] == 0
    sampled = score(variant, task, method="shapley", samples=2000, target=0.05, **settings)
    assert sampled.harmful[noisy]
    assert sampled.values[dead] == 0
    assert not sampled.helpful[dead]
    mask = sampled.mask("bottom", k=1)
    assert mask.removed == (variant.grid.heads[noisy],)
    assert Evaluator(variant, task, "xx").evaluate(mask).accuracy == 1


def test_methods_that_look_at_heads_refuse_other_players() -> None:
    variant = playing(model_of("bert"), "neurons:2")
    for method in ("confidence", "relevance"):
        with raises("method.players", "neurons", "leave-one-out"):
            score(variant, tiny_task(), language="xx", method=method, size=4)
    with raises("method.players", "form=example"):
        score(variant, tiny_task(), language="xx", method="gradient", form="token", size=4)
    with raises("ablation.players", "neurons:2"):
        score(variant, tiny_task(), language="xx", method="exact", ablation="mean", size=4)
    of_heads = playing(model_of("bert"), "attention")
    mean = score(of_heads, tiny_task(), language="xx", method="exact", ablation="mean", size=4)
    assert np.isfinite(mean.values).all()


@pytest.mark.parametrize("method", ["gradient", "smoothed", "monte-carlo", "paper", "random"])
def test_every_method_that_sees_a_game_scores_players(method: str) -> None:
    variant = playing(model_of("bert"), "heads,feed-forward,layers")
    options = {} if method in ("gradient", "random") else {"samples": 64}
    scores = score(variant, tiny_task(), language="xx", method=method, size=8, **options)
    assert scores.values.shape == (variant.grid.size,)
    assert np.isfinite(scores.values).all()


def test_specs_name_players_and_groups_and_those_of_heads_are_as_before(tmp_path: Path) -> None:
    model = model_of("bert")

    def spec_of(some_model: Model) -> dict[str, object]:
        evaluator = Evaluator(some_model, tiny_task(), "xx", "dev", 4)
        return make_spec(evaluator.dataset, METHODS["random"], {}, 0, "zero").to_json()

    plain = spec_of(model)
    assert not {"players", "groups"} & set(plain)
    variant = playing(model, "heads,neurons:2")
    assert spec_of(variant) == plain | {
        "players": "heads,neurons:2",
        "groups": variant.grid.members_sha256,
    }
    other_groups = tuple(tuple(reversed(layer)) for layer in neuron_groups(model))
    other = with_players(model, "heads,neurons:2", other_groups)
    assert spec_of(other)["groups"] != spec_of(variant)["groups"]
    store = Store(tmp_path)
    settings = {"language": "xx", "method": "exact", "size": 4, "store": store}
    neurons = playing(model, "neurons:2")
    scores = score(neurons, tiny_task(), **settings)
    assert score(neurons, tiny_task(), **settings).seconds == scores.seconds  # read, not computed
    assert store.scan().results == ()  # nobody takes them for heads
    (result,) = store.scan("neurons:2").results
    assert result.record.grid == neurons.grid
    assert HeadScores.from_json(scores.to_json()).grid == neurons.grid
    # A file whose groups of neurons are not those of its spec is damaged.
    other_grid = with_players(model, "neurons:2", other_groups).grid
    other_store = Store(tmp_path / "other")
    other_store.run(scores.spec).finish(replace(scores, grid=other_grid), {})
    listing = other_store.scan(None)
    assert listing.results == ()
    assert len(listing.problems) == 1


def test_groups_are_formed_by_importance_in_one_language_for_all() -> None:
    model = model_of("bert")
    task = tiny_task()
    groups = player_groups(model, task.with_languages(["yy"]), 4)
    assert grouping_language(task) == "xx"
    assert groups == player_groups(model, task, 4)
    variant = model_with_players(model, task.with_languages(["yy"]), "neurons:4")
    assert variant.grid.stacks[0].members == groups
    assert with_players_of(model, variant.grid) is variant
    # The slow way: the loss's slope by each neuron's gate, example by example.
    sizes = neurons_of(model)
    evaluator = Evaluator(model, task, "xx", "dev", None)
    importance = np.zeros((3, sizes[0]))
    downs = [
        dict(model.module.bert.named_modules())[f"encoder.{DOWNS['bert'].format(layer)}"]
        for layer in range(3)
    ]
    for row, example in enumerate(evaluator.examples):
        gates = [torch.ones(sizes[0], dtype=torch.float64, requires_grad=True) for _ in downs]
        hooks = [
            down.register_forward_pre_hook(lambda _, args, gate=gate: (args[0] * gate,))
            for down, gate in zip(downs, gates, strict=True)
        ]
        logits = model.module(**evaluator.tensors(np.array([row]))).logits
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([example.label]))
        for hook in hooks:
            hook.remove()
        slopes = torch.autograd.grad(loss, gates)
        importance += np.stack([slope.abs().numpy() for slope in slopes])
    for layer in range(3):
        means = [importance[layer][np.array(groups[layer]) == group].mean() for group in range(4)]
        assert means == sorted(means, reverse=True)
        assert np.bincount(groups[layer]).tolist() == [8, 8, 8, 8]
        first = np.flatnonzero(np.array(groups[layer]) == 0)
        assert set(first) == set(np.argsort(-importance[layer])[:8])
    with raises("players.too_many_groups", "neurons:33"):
        player_groups(model, task, 33)
