"""Games in which a closed head streams: exact values by enumeration, a planted reader, refusals."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.likelihood_tasks import CHOICES, language_model
from support.players_by_hand import playing
from support.streaming_by_hand import by_hand, closed_by_hand
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import value_function_of
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score
from headlab.methods.spec import answers_spec
from headlab.results import Store

EXAMPLES = 6
ABLATION = "streaming:1,2"
GAMES = (("llama", "kv-groups"), ("llama", "attention"), ("gpt2", "attention"))


@cache
def model_of(family: str) -> Model:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    model.module.double()
    return model


def evaluator_of(model: Model, size: int = EXAMPLES) -> Evaluator:
    return Evaluator(model, tiny_task(), "xx", "dev", size)


def closed_heads(variant: Model, closed: np.ndarray) -> list[tuple[int, int]]:
    """The heads of closed players, (layer, head) each."""
    heads = variant.head_grid.width
    found = []
    for player, is_closed in zip(variant.grid.heads, closed, strict=True):
        if is_closed:
            shared = heads // variant.grid.width
            first = player.head * shared
            found += [(player.layer, head) for head in range(first, first + shared)]
    return found


def logits_by_hand(slow: torch.nn.Module, evaluator: Evaluator, row: int) -> torch.Tensor:
    ids = evaluator.tensors(np.array([row]))["input_ids"]
    logits: torch.Tensor = slow(input_ids=ids).logits[0]
    return logits


@pytest.mark.parametrize(("family", "players"), GAMES)
def test_exact_values_are_those_of_a_slow_loop_over_coalitions(family: str, players: str) -> None:
    model = model_of(family)
    variant = playing(model, players)
    evaluator = evaluator_of(variant)
    slow = by_hand(model.module)
    values: dict[frozenset[int], float] = {}

    def value(present: frozenset[int]) -> float:
        if present not in values:
            kept = np.isin(np.arange(variant.grid.size), list(present))
            worths = []
            with torch.no_grad(), closed_by_hand(closed_heads(variant, ~kept), 1, 2):
                for row in range(EXAMPLES):
                    label = evaluator.examples[row].label
                    worths.append(float(logits_by_hand(slow, evaluator, row).softmax(-1)[label]))
            values[present] = float(np.mean(worths))
        return values[present]

    settings = {"language": "xx", "size": EXAMPLES, "value": "probability", "estimand": "shapley"}
    scores = score(variant, tiny_task(), method="exact", ablation=ABLATION, **settings)
    assert_allclose(scores.values, reference.full_shapley(value, variant.grid.size), atol=1e-7)
    assert (scores.values != 0).any()
    assert scores.spec.ablation == ABLATION


def test_samples_cover_the_exact_values() -> None:
    variant = playing(model_of("llama"), "attention")
    settings = {"language": "xx", "size": 12, "value": "probability", "ablation": ABLATION}
    settings["estimand"] = "shapley"
    exact = score(variant, tiny_task(), method="exact", **settings)
    covered = []
    for seed in range(6):
        sampled = score(
            variant, tiny_task(), method="shapley", seed=seed, samples=48, target=None, **settings
        )
        assert sampled.low is not None
        assert sampled.high is not None
        assert sampled.slopes is None or not sampled.slopes.draws
        covered.append((sampled.low <= exact.values) & (exact.values <= sampled.high))
    assert np.mean(covered) >= 0.95


@pytest.mark.parametrize("players", ["heads", "kv-groups"])
def test_resumed_and_branched_passes_give_the_gains_of_full_ones(players: str) -> None:
    variant = playing(model_of("llama"), players)
    game = ModelGame(evaluator_of(variant), ABLATION, value_function_of("probability"))
    rng = np.random.default_rng(1)
    kept = rng.random((8, game.players)) < 0.5
    examples = rng.integers(EXAMPLES, size=8)
    everyone = np.ones_like(kept)
    full = np.zeros(kept.shape)
    for player in range(game.players):
        with_player, without = kept.copy(), kept.copy()
        with_player[:, player], without[:, player] = True, False
        full[:, player] = game.values(with_player, examples) - game.values(without, examples)
    assert full.any()
    assert_allclose(game.marginals(kept, everyone, examples), full, atol=1e-7)
    no_halvings = np.zeros((64, game.players), np.int64)
    screened = game.screened(kept, everyone, examples, no_halvings, np.zeros(kept.shape))
    assert_allclose(screened[2], full, atol=1e-7)
    orders = np.stack([rng.permutation(game.players) for _ in range(8)])
    walked = game.gains(orders, examples)
    for row, order in enumerate(orders):
        present = np.ones((game.players + 1, game.players), dtype=bool)
        for step, player in enumerate(order):
            present[step + 1 :, player] = False
        values = game.values(present, np.full(game.players + 1, examples[row]))
        assert_allclose(walked[row], values[:-1] - values[1:], atol=1e-7)


def test_masks_answer_as_by_hand_and_other_sizes_are_other_evaluations() -> None:
    model = model_of("llama")
    evaluator = evaluator_of(model, 10)
    kept = np.arange(model.grid.size) % 3 != 0
    mask = Mask(model.grid, kept)
    slow = by_hand(model.module)
    with torch.no_grad(), closed_by_hand(closed_heads(model, ~kept), 1, 2):
        expected = [int(logits_by_hand(slow, evaluator, row).argmax()) for row in range(10)]
    zero = evaluator.evaluate(mask)
    streamed = evaluator.evaluate(mask, ablation=ABLATION)
    assert streamed.predicted.tolist() == expected
    assert_array_equal(evaluator.evaluate(mask).predicted, zero.predicted)
    whole = evaluator.evaluate(mask, ablation="streaming:4,40")
    assert_array_equal(whole.predicted, evaluator.evaluate().predicted)
    assert evaluator.has_evaluation(mask, ABLATION)
    assert not evaluator.has_evaluation(mask, "streaming:2,2")
    specs = {
        answers_spec(evaluator.dataset, name).key for name in (ABLATION, "streaming:2,2", "zero")
    }
    assert len(specs) == 3
    assert answers_spec(evaluator.dataset, "streaming").ablation == "streaming:4,64"


@pytest.mark.parametrize("family", ["llama-lm", "gpt2-lm"])
def test_choices_that_share_a_row_stream_as_if_each_were_alone(family: str) -> None:
    model = language_model(family)
    model.module.double()
    evaluator = Evaluator(model, CHOICES, "xx", "dev", 12)
    kept = np.arange(model.grid.size) % 3 != 0
    slow = by_hand(model.module)

    def scores_of(ablation: str) -> list[torch.Tensor]:
        return evaluator.each(
            np.arange(12),
            Mask(model.grid, kept),
            ablation,
            lambda _batch, logits, _targets: list(logits),
        )

    def score_alone(text: str, choice: str) -> float:
        context = len(model.tokenizer(text, add_special_tokens=False).input_ids)
        ids = model.tokenizer(text + choice, add_special_tokens=False).input_ids
        ids = [model.tokenizer.bos_token_id, *ids]
        log_probabilities = slow(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        return sum(
            float(log_probabilities[place - 1, ids[place]])
            for place in range(context + 1, len(ids))
        )

    untouched = [row.clone() for row in scores_of("streaming:4,12")]
    for first, last in ((0, 2), (1, 3), (5, 2)):
        streamed = scores_of(f"streaming:{first},{last}")
        with torch.no_grad(), closed_by_hand(closed_heads(model, ~kept), first, last):
            for example, row in zip(evaluator.examples, streamed, strict=True):
                for choice, found in zip(example.choices, row.tolist(), strict=False):
                    assert_allclose(found, score_alone(example.text, choice), atol=1e-6)
    # The longest row has more tokens than the longest text, which 16 tokens see whole.
    open_scores = evaluator.each(
        np.arange(12),
        Mask(model.grid, np.ones_like(kept)),
        "zero",
        lambda _batch, logits, _targets: list(logits),
    )
    assert all(map(torch.equal, untouched, open_scores))


def test_results_of_other_sizes_are_stored_beside_each_other(tmp_path: Path) -> None:
    store = Store(tmp_path)
    variant = playing(model_of("llama"), "attention")
    for ablation in ("streaming:1,2", "streaming:1,3", "streaming:01,2", "zero"):
        score(
            variant,
            tiny_task(),
            language="xx",
            method="leave-one-out",
            size=4,
            ablation=ablation,
            store=store,
        )
    results = store.scan(players="attention").results
    recorded = sorted(result.record.spec.ablation for result in results)
    assert recorded == ["streaming:1,2", "streaming:1,3", "zero"]


def test_a_planted_reader_of_the_beginning_is_the_one_head_that_streaming_harms() -> None:
    """One layer, whose head 2 reads the first word at the last; the others read all a little."""
    model = tiny_model("gpt2", tokenizer=tiny_tokenizer())
    module = model.module.double()
    block = module.transformer.h
    width = module.config.n_embd
    size = width // 4
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for layer in block:
            layer.ln_1.weight.fill_(1)
        module.transformer.ln_f.weight.fill_(1)
        generator = torch.Generator().manual_seed(0)
        words = module.transformer.wte.weight
        words.copy_(torch.randn(words.shape, generator=generator, dtype=words.dtype))
        words[:, -2:] = 0
        # The second token has a mark, which head 2 of the first layer looks for.
        module.transformer.wpe.weight[1, -1] = 8
        first = block[0].attn
        first.c_attn.bias[2 * size] = 8.0
        first.c_attn.weight[width - 1, width + 2 * size] = 8.0
        # The others read all words alike, and say little.
        values = torch.full((width,), 0.1, dtype=words.dtype)
        values[2 * size : 3 * size] = 1
        first.c_attn.weight[:, 2 * width :] = torch.diag(values)
        first.c_proj.weight.copy_(torch.eye(width, dtype=words.dtype))
        module.score.weight.copy_(
            torch.randn(module.score.weight.shape, generator=generator, dtype=words.dtype)
        )
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 24)
    game = ModelGame(evaluator, "streaming:0,2", value_function_of("probability"))
    rows = np.flatnonzero(evaluator.lengths > 5)
    kept = np.ones((len(rows), game.players), dtype=bool)
    untouched = game.values(kept, rows)
    changes = []
    for player in range(game.players):
        without = kept.copy()
        without[:, player] = False
        changes.append(np.abs(game.values(without, rows) - untouched).mean())
    changes = np.array(changes)
    assert changes.argmax() == 2
    assert changes[2] > 2 * np.delete(changes, 2).max()
    # With the first two tokens in sight it loses nothing that it reads.
    near = ModelGame(evaluator, "streaming:2,2", value_function_of("probability"))
    without = kept.copy()
    without[:, 2] = False
    assert_allclose(near.values(without, rows), untouched, atol=1e-6)


@pytest.mark.parametrize("method", ["gradient", "confidence"])
def test_methods_that_close_nothing_are_refused(method: str) -> None:
    with raises("ablation.method", "streaming:4,64"):
        score(
            model_of("llama"),
            tiny_task(),
            language="xx",
            method=method,
            size=4,
            ablation="streaming:4,64",
        )


@pytest.mark.parametrize("family", ["bert", "bloom"])
def test_models_that_cannot_stream_are_refused_wherever_they_answer(family: str) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = evaluator_of(model, 4)
    code = "ablation.streaming_decoders" if family == "bert" else "ablation.streaming_attention"
    with raises(code):
        evaluator.evaluate(ablation="streaming")
    with raises(code):
        evaluator.stand_in("streaming", np.arange(2))
    with raises(code):
        score(
            model, tiny_task(), language="xx", method="leave-one-out", size=4, ablation="streaming"
        )


def test_more_tokens_than_the_model_takes_are_refused() -> None:
    evaluator = evaluator_of(model_of("llama"), 4)
    with raises("ablation.streaming_length", 65, 64):
        evaluator.evaluate(ablation="streaming:1,64")
    assert evaluator.evaluate(ablation="streaming:0,64").is_complete
