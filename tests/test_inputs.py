"""Tasks with several answers an example, through evaluator, game and scores.

Their answers are the labels of words, or a target to generate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.several_answers import PAIRS, WORDS, read_pairs, read_words
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.api import evaluation_line
from headlab.cli.evaluate import evaluation_record
from headlab.core import BEYOND_LIMIT, CLIP, WITHOUT_TOKEN, Omissions, value_function_of
from headlab.evaluation import NO_TARGET, Evaluator, compare, labels_of_tokens
from headlab.hooks import attention_of_heads, gated, head_means
from headlab.masks import Mask
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score
from headlab.results import HeadScores, Store, omission_notes
from headlab.stats import group_bootstrap
from headlab.studies.curves import prune_curve
from headlab.studies.run import Pieces
from headlab.tasks import Example, Task


@pytest.fixture(scope="module")
def words() -> Evaluator:
    return Evaluator(tiny_model("bert-tokens", tokenizer=tiny_tokenizer()), WORDS, "xx")


@pytest.fixture(scope="module")
def pairs() -> Evaluator:
    return Evaluator(tiny_model("marian", tokenizer=tiny_tokenizer()), PAIRS, "xx")


def token_ids(words: Iterable[str]) -> list[int]:
    """The ids that the tiny tokenizer gives words such as "w5"."""
    return [1, *(int(word[1:]) for word in words), 2]


def test_rows_of_a_wider_batch_are_judged_as_alone(words: Evaluator, pairs: Evaluator):
    """So it is where memory runs out and a batch is cut, or only short sentences are in a batch."""
    for evaluator in (words, pairs):
        rows = np.argsort(evaluator.lengths)
        first_rows = rows[:2]
        inputs = {}
        for name, tensor in evaluator.tensors(rows).items():
            inputs[name] = tensor[:2]
        accuracy = value_function_of("accuracy")
        with torch.inference_mode():
            logits = evaluator.logits(inputs)
            targets = evaluator.inputs.targets(first_rows)
            assert logits.shape[1] > targets.shape[1]
            worth_in_wide_batch = evaluator.worth(first_rows, accuracy, inputs)
            worth = evaluator.worth(first_rows, accuracy)
            assert worth_in_wide_batch == pytest.approx(worth)
        first_batch = evaluator.batches_by_tokens(rows)[0]
        half_batch, _ = first_batch.halves()
        batches_of_half = evaluator.batches_by_tokens(half_batch.rows)
        grid = evaluator.model.grid
        gates = grid.gates(np.ones(grid.size, bool))
        ((_, answers_in_wide_batch),) = evaluator.answers([half_batch], gates, "zero")
        ((_, answers),) = evaluator.answers(batches_of_half, gates, "zero")
        assert (answers_in_wide_batch == answers).all()


def test_a_word_is_judged_at_its_first_token():
    assert labels_of_tokens([None, 0, 0, 1, 2, 2, None], [7, 8, 9]) == [
        NO_TARGET,
        7,
        NO_TARGET,
        8,
        9,
        NO_TARGET,
        NO_TARGET,
    ]


def test_words_cut_off_by_the_length_limit_have_no_answer():
    labels = labels_of_tokens([None, 0, 1, None], [7, 8, 9])
    assert labels == [NO_TARGET, 7, 8, NO_TARGET]


def test_every_word_counts_once(words: Evaluator):
    evaluation = words.evaluate()
    correct = []
    for example in words.examples:
        ids = torch.tensor([token_ids(example.words)])
        logits = words.model.module(ids).logits[0, 1:-1]
        predictions = logits.argmax(-1)
        for prediction, label in zip(predictions, example.labels, strict=True):
            correct.append(int(prediction) == label)
    assert evaluation.n == sum(len(example.words) for example in words.examples)
    np.testing.assert_array_equal(evaluation.correct, correct)
    first_has_one_word = len(words.examples[0].words) == 1
    assert evaluation.ids[:2] == ("0#0", "0#1") or first_has_one_word
    assert words.weights is not None
    all_on = np.ones((14, 12), bool)
    values = ModelGame(words).values(all_on, np.arange(14))
    mean_value = np.average(values, weights=words.weights)
    assert mean_value == pytest.approx(evaluation.accuracy)


def test_masked_words_compare_word_by_word(words: Evaluator, rng: np.random.Generator):
    kept_heads = rng.random(12) < 0.6
    mask = Mask(words.model.grid, kept_heads, words.model.identity())
    baseline = words.evaluate()
    under_mask = words.evaluate(mask)
    comparison = compare(baseline, under_mask)
    difference = under_mask.accuracy - baseline.accuracy
    assert comparison.n == baseline.n
    assert comparison.difference == pytest.approx(difference)


@pytest.mark.parametrize("key", ["accuracy", "probability", "log-probability"])
def test_words_gain_the_same_in_branching_and_in_full_passes(
    words: Evaluator,
    key: str,
    rng: np.random.Generator,
):
    game = ModelGame(words, value=value_function_of(key))
    rows = rng.integers(14, size=8)
    coalitions = rng.random((8, 12)) < 0.7
    requested_players = rng.random((8, 12)) < 0.5
    gains = game.marginals(coalitions, requested_players, rows)
    for row, head in zip(*np.nonzero(requested_players), strict=True):
        with_and_without = np.tile(coalitions[row], (2, 1))
        with_and_without[:, head] = (True, False)
        value_with, value_without = game.values(with_and_without, rows[[row, row]])
        gain = value_with - value_without
        assert gains[row, head] == pytest.approx(gain, abs=1e-9)
    assert words.model.resumable
    assert not words.model.first_token


def test_word_scores_agree_with_every_coalition(words: Evaluator):
    exact = score(words.model, WORDS, method="exact", size=3)
    shapley = score(
        words.model,
        WORDS,
        method="shapley",
        samples=100,
        target=None,
        size=3,
    )
    assert exact.values.any()
    assert shapley.low is not None
    assert shapley.high is not None
    assert (shapley.low <= exact.values).all()
    assert (exact.values <= shapley.high).all()
    errors = np.abs(shapley.values - exact.values)
    assert errors.max() < 0.15


def test_leave_one_out_of_words_is_by_word_and_so_is_its_interval(words: Evaluator):
    scores = score(words.model, WORDS, method="leave-one-out", size=None)
    baseline = words.evaluate()
    assert scores.low is not None
    assert scores.high is not None
    for head in (0, 5, 11):
        kept_heads = np.ones(12, bool)
        kept_heads[head] = False
        mask = Mask(words.model.grid, kept_heads, words.model.identity())
        head_off = words.evaluate(mask)
        drop = baseline.accuracy - head_off.accuracy
        assert scores.values[head] == pytest.approx(drop, abs=1e-9)
        drops = np.subtract(baseline.correct, head_off.correct, dtype=float)
        rng = np.random.default_rng([0, 4])
        low, high, _ = group_bootstrap(drops[None], baseline.groups, rng)
        assert scores.low[head] == low[0]
        assert scores.high[head] == high[0]


def test_confidence_of_translations_is_over_the_tokens_that_each_stack_attends_from_and_to(
    pairs: Evaluator,
):
    scores = score(pairs.model, PAIRS, method="confidence", size=None)
    largest_weights = np.zeros(26)
    tokens = np.zeros(26)
    unequal_lengths = 0
    for row in range(len(pairs.examples)):
        inputs = pairs.tensors(np.array([row]))
        sides = {
            "source": inputs["input_ids"][0].tolist(),
            "target": inputs["decoder_input_ids"][0].tolist(),
        }
        unequal_lengths += len(sides["source"]) != len(sides["target"])
        weights = attention_of_heads(pairs.model, inputs, pairs.model.grid.heads)
        for index, head in enumerate(pairs.model.grid.heads):
            queries = sides["source" if head.stack == "encoder" else "target"]
            keys = sides["target" if head.stack == "decoder" else "source"]
            columns = []
            for column, token in enumerate(keys):
                if token != 2:  # the separator
                    columns.append(column)
            for query in range(len(queries)):
                weights_of_query = weights[head][query, columns]
                largest_weights[index] += float(weights_of_query.max())
            tokens[index] += len(queries)
    assert unequal_lengths > 3
    np.testing.assert_allclose(scores.values, largest_weights / tokens, atol=1e-6)


def test_log_probability_of_a_target_is_the_model_s_own_loss(pairs: Evaluator):
    values = ModelGame(pairs, value=value_function_of("log-probability")).values(
        np.ones((9, 26), bool),
        np.arange(9),
    )
    for example, value in zip(pairs.examples, values, strict=True):
        source, target = (
            torch.tensor([token_ids(text.split())]) for text in (example.text, example.target or "")
        )
        with torch.inference_mode():
            logits = pairs.model.module(input_ids=source, labels=target).logits[0]
        log_probabilities = torch.log_softmax(logits, -1)
        positions = torch.arange(len(logits))
        nats = log_probabilities[positions, target[0]]
        mean_nats = float(nats.clamp(min=-CLIP).mean())
        assert value == pytest.approx(1 + mean_nats / CLIP, abs=1e-9)


def test_a_head_of_any_stack_can_matter_to_a_target(pairs: Evaluator, rng: np.random.Generator):
    game = ModelGame(pairs, value=value_function_of("log-probability"))
    rows = np.arange(9)
    coalitions = rng.random((9, 26)) < 0.8
    all_players = np.ones((9, 26), bool)
    gains = game.marginals(coalitions, all_players, rows)
    layer, head = pairs.model.grid.flat.T
    for row in (0, 4):
        gates = pairs.model.grid.gates(coalitions[[row]])
        for player in (0, 9, 25):
            with_and_without = np.concatenate([gates, gates])
            with_and_without[:, layer[player], head[player]] = (True, False)
            row_twice = np.array([row, row])
            with torch.inference_mode(), gated(pairs.model, with_and_without):
                value_with, value_without = pairs.worth(row_twice, game.value)
            gain = value_with - value_without
            assert gains[row, player] == pytest.approx(gain, abs=1e-9)
    for first_of_stack in (0, 9, 18):
        assert np.abs(gains[:, first_of_stack]).max() > 0


def test_scores_of_a_translation_model_are_in_nats(pairs: Evaluator):
    scores = score(
        pairs.model,
        PAIRS,
        method="shapley",
        value="log-probability",
        samples=3,
        target=None,
        size=4,
    )
    assert scores.unit == "nats"
    assert scores.grid.size == 26
    assert scores.high is not None
    assert scores.high.max() <= CLIP


def test_the_means_of_heads_do_not_depend_on_what_shares_a_batch(pairs: Evaluator):
    """Padding of the source counts nowhere, nor does padding of the target."""

    def means(batches: list[list[int]]) -> torch.Tensor:
        tensors = (pairs.tensors(np.array(batch)) for batch in batches)
        return head_means(pairs.model, tensors)

    rows = list(range(len(pairs.examples)))
    one_by_one = means([[row] for row in rows])
    in_one_batch = means([rows])
    in_two_batches = means([rows[:4], rows[4:]])
    torch.testing.assert_close(in_one_batch, one_by_one, atol=1e-12, rtol=0)
    torch.testing.assert_close(in_two_batches, one_by_one, atol=1e-12, rtol=0)


def test_gradients_of_words_are_those_of_their_summed_loss(words: Evaluator):
    scores = score(words.model, WORDS, method="gradient", size=1)
    example = words.examples[0]
    gates = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([token_ids(example.words)])
    with gated(words.model, gates):
        logits = words.model.module(ids).logits[0, 1:-1]
    loss = torch.nn.functional.cross_entropy(
        logits,
        torch.tensor(example.labels),
        reduction="sum",
    )
    (gradient,) = torch.autograd.grad(loss, gates)
    gradient_sizes = gradient.abs().flatten().numpy()
    np.testing.assert_allclose(scores.values, gradient_sizes, atol=1e-9)


def test_a_model_of_another_kind_is_refused(words: Evaluator, pairs: Evaluator):
    with raises("model.wrong_kind", "sequence classifier"):
        Evaluator(words.model, tiny_task(), "xx")
    with raises("model.wrong_kind", "token classifier"):
        Evaluator(tiny_model("bert", tokenizer=tiny_tokenizer()), WORDS, "xx")
    with raises("model.not_encoder_decoder"):
        Evaluator(words.model, PAIRS, "xx")


def test_labels_and_targets_are_part_of_the_data_hash():
    first_example, *other_examples = read_words("xx", "dev", 0)
    other_labels = (4,) * len(first_example.words)
    with_other_labels = replace(first_example, labels=other_labels)
    data_hash = WORDS.data_hash([first_example, *other_examples])
    assert data_hash != WORDS.data_hash([with_other_labels, *other_examples])
    first_example, *other_examples = read_pairs("xx", "dev", 0)
    with_other_target = replace(first_example, target="w9")
    data_hash = PAIRS.data_hash([first_example, *other_examples])
    assert data_hash != PAIRS.data_hash([with_other_target, *other_examples])


# Words without an answer: `n` counts those with one; the others are reported with the reason.


def task_of_sentences(*sentences: str) -> Task:
    """A task of sentences whose every word has a label.

    Args:
        sentences: Words joined by "_"; a word of one space is one that gets no token.
    """
    examples = []
    for row, text in enumerate(sentences):
        words = tuple(word or " " for word in text.split("_"))
        example = Example(
            str(row),
            text,
            words=words,
            labels=(1,) * len(words),
        )
        examples.append(example)
    return replace(WORDS, read=lambda *_: examples)


def test_reported_06_words_without_a_token_and_beyond_the_limit_are_counted_apart():
    """Such words are a zero-width space, a lone combining mark, or in a sentence of 709 words."""
    long_sentence = "_".join(["w5"] * 100 + [" "] * 3)
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, task_of_sentences("w4_ _w6", long_sentence, "w7_w8"), "xx")
    evaluation = evaluator.evaluate()
    words_left_out = {WITHOUT_TOKEN: 4, BEYOND_LIMIT: 38}
    assert evaluation.n == 2 + 62 + 2
    assert evaluation.omissions == Omissions(3, 1, 64, words_left_out)
    words = sum(len(example.words) for example in evaluator.examples)
    reported_words = evaluation.omissions.words_left_out or {}
    assert words == evaluation.n + sum(reported_words.values())
    kept_heads = np.arange(12) > 2
    mask = Mask(model.grid, kept_heads, model.identity())
    under_mask = evaluator.evaluate(mask)
    assert compare(evaluation, under_mask).omissions == evaluation.omissions
    assert "n=66" in evaluation_line(evaluation)
    assert evaluation.omissions.sentence in evaluation_line(evaluation)
    assert evaluation_record(evaluation)["words_left_out"] == words_left_out


def test_reported_06_words_without_a_label_are_not_missed():
    example = Example(
        "1",
        "w4 w5",
        words=("w4", " "),
        labels=(1, NO_TARGET),
    )
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    task = replace(WORDS, read=lambda *_: [example])
    omissions = Evaluator(model, task, "xx").omissions
    words_left_out = {WITHOUT_TOKEN: 0, BEYOND_LIMIT: 0}
    assert omissions == Omissions(1, 0, 64, words_left_out)
    assert omissions.sentence == ""


def test_reported_06_sentences_may_lose_every_word_but_not_all_of_them():
    """These may be the first ones, on which the first figure would be computed."""
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    task = task_of_sentences(*[" _ "] * 20, "w4_w5")
    evaluator = Evaluator(model, task, "xx")
    (figure,) = evaluator.stream()
    assert figure.n == 2
    assert figure.accuracy in (0, 0.5, 1)
    words_left_out = {WITHOUT_TOKEN: 40, BEYOND_LIMIT: 0}
    assert figure.omissions == Omissions(21, 0, 64, words_left_out)
    for method in ("leave-one-out", "gradient", "confidence", "shapley"):
        scores = score(model, task, method=method)
        assert np.isfinite(scores.values).all()
        assert scores.low is None or np.isfinite(scores.low).all()
        assert scores.omissions == figure.omissions
    with raises("data.words_unanswered", "words"):
        Evaluator(model, task_of_sentences(" _ ", " "), "xx")


def test_reported_06_a_limit_that_is_met_exactly_cuts_nothing():
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    task = task_of_sentences("_".join(["w5"] * 62))
    omissions = Evaluator(model, task, "xx").omissions
    assert omissions.examples_cut == 0
    assert omissions.words_left_out == {WITHOUT_TOKEN: 0, BEYOND_LIMIT: 0}


def test_reported_06_words_lost_on_the_left_are_beyond_the_limit_too():
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    model.tokenizer.truncation_side = "left"
    task = task_of_sentences("_".join(["w5"] * 70))
    omissions = Evaluator(model, task, "xx").omissions
    assert omissions.examples_cut == 1
    assert omissions.words_left_out == {WITHOUT_TOKEN: 0, BEYOND_LIMIT: 8}


def test_reported_06_texts_and_translations_say_how_many_were_cut():
    """A translation is cut in its source or in its target; both at once count as one."""
    long_text = " ".join(["w5"] * 90)
    texts = [
        Example("a", long_text, 0),
        Example("b", "w4", 1, pair=long_text),
    ]
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    task = replace(tiny_task(), read=lambda *_: texts)
    evaluation = Evaluator(model, task, "xx").evaluate()
    assert evaluation.omissions == Omissions(2, 2, 64)
    pairs = [
        Example("a", long_text, target="w4"),
        Example("b", "w4", target=long_text),
        Example("c", long_text, target=long_text),
        Example("d", "w4", target="w5"),
    ]
    task = replace(PAIRS, read=lambda *_: pairs)
    translation_model = tiny_model("marian", tokenizer=tiny_tokenizer())
    omissions = Evaluator(translation_model, task, "xx").omissions
    assert omissions == Omissions(4, 3, 64)


def test_reported_06_results_hold_omissions_and_older_ones_say_nothing(tmp_path: Path):
    """The key of a result stays the same.

    A result without the field gets it when it is asked for again.
    """
    long_sentence = "_".join(["w5"] * 100)
    task = task_of_sentences("w4_ _w6", long_sentence)
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    store = Store(tmp_path)
    scores = score(model, task, method="leave-one-out", store=store)
    words_left_out = {WITHOUT_TOKEN: 1, BEYOND_LIMIT: 38}
    omissions = Omissions(2, 1, 64, words_left_out)
    curve = prune_curve(
        model,
        task,
        scores=scores,
        split="dev",
        points=3,
        store=store,
    )
    assert scores.omissions == omissions
    assert curve.omissions == omissions
    (stored_result,) = store.scan().results
    assert stored_result.record.omissions == omissions
    assert store.curves().results[0].record.omissions == omissions
    record = json.loads(json.dumps(stored_result.record.to_json()))
    assert HeadScores.from_json(record).omissions == omissions
    older_scores = replace(scores, omissions=None)
    store.run(scores.spec).finish(older_scores, {})
    (older_result,) = store.scan().results
    assert older_result.key == stored_result.key
    assert older_result.record.omissions is None
    record = older_result.record.to_json()
    del record["omissions"]
    assert HeadScores.from_json(record).omissions is None
    assert score(model, task, method="leave-one-out", store=store).omissions == omissions
    pieces = Pieces(model, task, store)
    pieces.answers("xx", split="dev")
    assert pieces.omission_notes() == (f"xx, dev: {omissions.sentence}.",)
    cached_pieces = Pieces(model, task, store)
    cached_pieces.answers("xx", split="dev")
    assert cached_pieces.forwards == 0
    assert cached_pieces.omission_notes() == pieces.omission_notes()
    assert omission_notes([older_result.record]) == ()
    assert omissions.sentence in omission_notes([stored_result.record])[0]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"examples": 1},
        {"examples": 1, "examples_cut": -1, "token_limit": 3},
        {"examples": 1, "examples_cut": True, "token_limit": 3},
        {"examples": "1", "examples_cut": 0, "token_limit": 3},
        {"examples": 1, "examples_cut": 0, "token_limit": 3, "words_left_out": {"a": 0.5}},
        {"examples": 1, "examples_cut": 0, "token_limit": float("inf"), "words_left_out": []},
    ],
)
def test_reported_06_what_is_no_count_is_refused(value: object):
    with raises("result.omissions_invalid"):
        Omissions.from_json(value)
