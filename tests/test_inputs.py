"""Tasks with several answers an example: labelled words and generated targets, through evaluator, game and scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.tiny_models import VOCAB, tiny_model
from support.tiny_task import LABELS, tiny_task, tiny_tokenizer

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
from headlab.tasks import Example, Split, Task


def sentence(rng: np.random.Generator, size: int) -> tuple[str, ...]:
    return tuple(f"w{word}" for word in rng.integers(4, VOCAB, size))


def read_words(_language: str, split: Split, seed: int) -> list[Example]:
    rng = np.random.default_rng([seed, len(split)])
    out = []
    for row in range(14):
        words = sentence(rng, int(rng.integers(1, 7)))
        labels = tuple(int(label) for label in rng.integers(len(LABELS), size=len(words)))
        out.append(
            Example(str(row), " ".join(words), group=str(row // 2), words=words, labels=labels)
        )
    return out


def read_pairs(_language: str, split: Split, seed: int) -> list[Example]:
    rng = np.random.default_rng([seed, len(split), 1])
    sides = [[" ".join(sentence(rng, int(rng.integers(1, 6)))) for _ in range(2)] for _ in range(9)]
    return [Example(str(row), source, target=target) for row, (source, target) in enumerate(sides)]


WORDS = Task("words", LABELS, ("xx",), False, read_words)
PAIRS = Task("pairs", (), ("xx",), False, read_pairs)


@pytest.fixture(scope="module")
def words() -> Evaluator:
    return Evaluator(tiny_model("bert-tokens", tokenizer=tiny_tokenizer()), WORDS, "xx")


@pytest.fixture(scope="module")
def pairs() -> Evaluator:
    return Evaluator(tiny_model("marian", tokenizer=tiny_tokenizer()), PAIRS, "xx")


def test_rows_of_a_wider_batch_are_judged_as_alone(words: Evaluator, pairs: Evaluator):
    """As where memory runs out and a batch is cut, or only short sentences' gains are computed."""
    for evaluator in (words, pairs):
        rows = np.argsort(evaluator.lengths)
        inputs = {name: tensor[:2] for name, tensor in evaluator.tensors(rows).items()}
        accuracy = value_function_of("accuracy")
        with torch.inference_mode():
            assert evaluator.logits(inputs).shape[1] > evaluator.inputs.targets(rows[:2]).shape[1]
            assert evaluator.worth(rows[:2], accuracy, inputs) == pytest.approx(
                evaluator.worth(rows[:2], accuracy)
            )
        half, _ = evaluator.cut(rows)[0].cut()
        gates = evaluator.model.grid.gates(np.ones(evaluator.model.grid.size, bool))
        ((_, found),) = evaluator.answers([half], gates, "zero")
        ((_, alone),) = evaluator.answers(evaluator.cut(half.rows), gates, "zero")
        assert (found == alone).all()


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


def test_words_cut_off_by_the_length_limit_ask_nothing():
    assert labels_of_tokens([None, 0, 1, None], [7, 8, 9]) == [NO_TARGET, 7, 8, NO_TARGET]


def test_every_word_counts_once(words: Evaluator):
    evaluation = words.evaluate()
    right = []
    for example in words.examples:
        ids = [1, *(int(word[1:]) for word in example.words), 2]
        logits = words.model.module(torch.tensor([ids])).logits[0, 1:-1]
        right += [
            int(best) == label
            for best, label in zip(logits.argmax(-1), example.labels, strict=True)
        ]
    assert evaluation.n == sum(len(e.words) for e in words.examples)
    np.testing.assert_array_equal(evaluation.correct, right)
    assert evaluation.ids[:2] == ("0#0", "0#1") or len(words.examples[0].words) == 1
    assert words.weights is not None
    values = ModelGame(words).values(np.ones((14, 12), bool), np.arange(14))
    assert np.average(values, weights=words.weights) == pytest.approx(evaluation.accuracy)


def test_masked_words_compare_word_by_word(words: Evaluator, rng: np.random.Generator):
    kept = rng.random(12) < 0.6
    before = words.evaluate()
    after = words.evaluate(Mask(words.model.grid, kept, words.model.identity()))
    found = compare(before, after)
    assert found.n == before.n
    assert found.difference == pytest.approx(after.accuracy - before.accuracy)


@pytest.mark.parametrize("key", ["accuracy", "probability", "log-probability"])
def test_words_gain_the_same_in_branching_and_in_full_passes(
    words: Evaluator, key: str, rng: np.random.Generator
):
    game = ModelGame(words, value=value_function_of(key))
    rows = rng.integers(14, size=8)
    kept = rng.random((8, 12)) < 0.7
    wanted = rng.random((8, 12)) < 0.5
    found = game.marginals(kept, wanted, rows)
    for row, head in zip(*np.nonzero(wanted), strict=True):
        both = np.tile(kept[row], (2, 1))
        both[0, head], both[1, head] = True, False
        with_it, without = game.values(both, rows[[row, row]])
        assert found[row, head] == pytest.approx(with_it - without, abs=1e-9)
    assert words.model.resumable
    assert not words.model.first_token


def test_word_scores_agree_with_every_coalition(words: Evaluator):
    truth = score(words.model, WORDS, method="exact", size=3)
    found = score(words.model, WORDS, method="shapley", samples=100, target=None, size=3)
    assert truth.values.any()
    assert found.low is not None
    assert found.high is not None
    assert ((found.low <= truth.values) & (truth.values <= found.high)).all()
    assert np.abs(found.values - truth.values).max() < 0.15


def test_leave_one_out_of_words_is_by_word_and_so_is_its_interval(words: Evaluator):
    scores = score(words.model, WORDS, method="leave-one-out", size=None)
    whole = words.evaluate()
    assert scores.low is not None
    assert scores.high is not None
    for head in (0, 5, 11):
        kept = np.ones(12, bool)
        kept[head] = False
        without = words.evaluate(Mask(words.model.grid, kept, words.model.identity()))
        assert scores.values[head] == pytest.approx(whole.accuracy - without.accuracy, abs=1e-9)
        lost = np.subtract(whole.correct, without.correct, dtype=float)
        low, high, _ = group_bootstrap(lost[None], whole.groups, np.random.default_rng([0, 4]))
        assert (scores.low[head], scores.high[head]) == (low[0], high[0])


def test_confidence_of_translations_is_over_the_tokens_that_each_stack_attends_from_and_to(
    pairs: Evaluator,
):
    scores = score(pairs.model, PAIRS, method="confidence", size=None)
    largest, tokens, apart = *np.zeros((2, 26)), 0
    for row in range(len(pairs.examples)):
        inputs = pairs.tensors(np.array([row]))
        sides = {
            "source": inputs["input_ids"][0].tolist(),
            "target": inputs["decoder_input_ids"][0].tolist(),
        }
        apart += len(sides["source"]) != len(sides["target"])
        weights = attention_of_heads(pairs.model, inputs, pairs.model.grid.heads)
        for at, head in enumerate(pairs.model.grid.heads):
            queries = sides["source" if head.stack == "encoder" else "target"]
            keys = sides["target" if head.stack == "decoder" else "source"]
            counted = [place for place, token in enumerate(keys) if token != 2]  # the separator
            largest[at] += sum(
                float(weights[head][place, counted].max()) for place in range(len(queries))
            )
            tokens[at] += len(queries)
    assert apart > 3
    np.testing.assert_allclose(scores.values, largest / tokens, atol=1e-6)


def test_log_probability_of_a_target_is_the_model_s_own_loss(pairs: Evaluator):
    values = ModelGame(pairs, value=value_function_of("log-probability")).values(
        np.ones((9, 26), bool), np.arange(9)
    )
    for example, value in zip(pairs.examples, values, strict=True):
        source, target = (
            torch.tensor([[1, *(int(word[1:]) for word in text.split()), 2]])
            for text in (example.text, example.target or "")
        )
        with torch.inference_mode():
            logits = pairs.model.module(input_ids=source, labels=target).logits[0]
        each = torch.log_softmax(logits, -1)[torch.arange(len(logits)), target[0]]
        assert value == pytest.approx(1 + float(each.clamp(min=-CLIP).mean()) / CLIP, abs=1e-9)


def test_a_head_of_any_stack_can_matter_to_a_target(pairs: Evaluator, rng: np.random.Generator):
    game = ModelGame(pairs, value=value_function_of("log-probability"))
    rows = np.arange(9)
    kept = rng.random((9, 26)) < 0.8
    wanted = np.ones((9, 26), bool)
    gains = game.marginals(kept, wanted, rows)
    layer, head = pairs.model.grid.flat.T
    for row in (0, 4):
        gates = pairs.model.grid.gates(kept[[row]])
        for player in (0, 9, 25):
            both = np.concatenate([gates, gates])
            both[0, layer[player], head[player]], both[1, layer[player], head[player]] = True, False
            with torch.inference_mode(), gated(pairs.model, both):
                with_it, without = pairs.worth(np.array([row, row]), game.value)
            assert gains[row, player] == pytest.approx(with_it - without, abs=1e-9)
    for stack in range(3):
        assert np.abs(gains[:, [0, 9, 18][stack]]).max() > 0


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

    def means(rows: list[list[int]]) -> torch.Tensor:
        return head_means(pairs.model, (pairs.tensors(np.array(part)) for part in rows))

    every = list(range(len(pairs.examples)))
    apart = means([[row] for row in every])
    torch.testing.assert_close(means([every]), apart, atol=1e-12, rtol=0)
    torch.testing.assert_close(means([every[:4], every[4:]]), apart, atol=1e-12, rtol=0)


def test_gradients_of_words_are_those_of_their_summed_loss(words: Evaluator):
    scores = score(words.model, WORDS, method="gradient", size=1)
    example = words.examples[0]
    gates = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[1, *(int(word[1:]) for word in example.words), 2]])
    with gated(words.model, gates):
        logits = words.model.module(ids).logits[0, 1:-1]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(example.labels), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, gates)
    np.testing.assert_allclose(scores.values, gradient.abs().flatten().numpy(), atol=1e-9)


def test_a_model_of_another_kind_is_refused(words: Evaluator, pairs: Evaluator):
    for model, task, expected in (
        (words.model, tiny_task(), ("model.wrong_kind", "sequence classifier")),
        (
            tiny_model("bert", tokenizer=tiny_tokenizer()),
            WORDS,
            ("model.wrong_kind", "token classifier"),
        ),
        (words.model, PAIRS, ("model.not_encoder_decoder",)),
    ):
        with raises(*expected):
            Evaluator(model, task, "xx")


def test_labels_and_targets_are_part_of_the_data_hash():
    rows = [read_words("xx", "dev", 0), read_pairs("xx", "dev", 0)]
    other = [
        replace(rows[0][0], labels=(4,) * len(rows[0][0].words)),
        replace(rows[1][0], target="w9"),
    ]
    for task, examples, changed in zip((WORDS, PAIRS), rows, other, strict=True):
        assert task.data_hash(examples) != task.data_hash([changed, *examples[1:]])


# Words without an answer: `n` counts those with one, and the rest is said with the reason.


def labelled(*sentences: str) -> Task:
    """Sentences whose every word has a label; a word of one space is one that the tokenizer gives no token."""
    examples = [
        Example(
            str(row),
            text,
            words=tuple(word or " " for word in text.split("_")),
            labels=(1,) * len(text.split("_")),
        )
        for row, text in enumerate(sentences)
    ]
    return replace(WORDS, read=lambda *_: examples)


def test_reported_06_words_without_a_token_and_beyond_the_limit_are_counted_apart():
    """As of a zero-width space, a lone combining mark, and a sentence of 709 words."""
    long = "_".join(["w5"] * 100 + [" "] * 3)
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, labelled("w4_ _w6", long, "w7_w8"), "xx")
    evaluation = evaluator.evaluate()
    assert evaluation.n == 2 + 62 + 2
    assert evaluation.omissions == Omissions(3, 1, 64, {WITHOUT_TOKEN: 4, BEYOND_LIMIT: 38})
    words = sum(len(example.words) for example in evaluator.examples)
    assert words == evaluation.n + sum((evaluation.omissions.words_left_out or {}).values())
    masked = evaluator.evaluate(Mask(model.grid, np.arange(12) > 2, model.identity()))
    assert compare(evaluation, masked).omissions == evaluation.omissions
    assert "n=66" in evaluation_line(evaluation)
    assert evaluation.omissions.sentence in evaluation_line(evaluation)
    assert evaluation_record(evaluation)["words_left_out"] == {WITHOUT_TOKEN: 4, BEYOND_LIMIT: 38}


def test_reported_06_words_without_a_label_are_not_missed():
    example = Example("1", "w4 w5", words=("w4", " "), labels=(1, NO_TARGET))
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    omissions = Evaluator(model, replace(WORDS, read=lambda *_: [example]), "xx").omissions
    assert omissions == Omissions(1, 0, 64, {WITHOUT_TOKEN: 0, BEYOND_LIMIT: 0})
    assert omissions.sentence == ""


def test_reported_06_sentences_may_lose_every_word_but_not_all_of_them():
    """Also the first ones, of which the first figure would be."""
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, labelled(*[" _ "] * 20, "w4_w5"), "xx")
    figures = list(evaluator.stream())
    assert [(figure.n, figure.accuracy in (0, 0.5, 1)) for figure in figures] == [(2, True)]
    assert figures[-1].omissions == Omissions(21, 0, 64, {WITHOUT_TOKEN: 40, BEYOND_LIMIT: 0})
    for method in ("leave-one-out", "gradient", "confidence", "shapley"):
        scores = score(model, labelled(*[" _ "] * 20, "w4_w5"), method=method)
        assert np.isfinite(scores.values).all()
        assert scores.low is None or np.isfinite(scores.low).all()
        assert scores.omissions == figures[-1].omissions
    with raises("data.words_unanswered", "words"):
        Evaluator(model, labelled(" _ ", " "), "xx")


def test_reported_06_a_limit_that_is_met_exactly_cuts_nothing():
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    omissions = Evaluator(model, labelled("_".join(["w5"] * 62)), "xx").omissions
    assert (omissions.examples_cut, omissions.words_left_out) == (
        0,
        {WITHOUT_TOKEN: 0, BEYOND_LIMIT: 0},
    )


def test_reported_06_words_lost_on_the_left_are_beyond_the_limit_too():
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    model.tokenizer.truncation_side = "left"
    omissions = Evaluator(model, labelled("_".join(["w5"] * 70)), "xx").omissions
    assert (omissions.examples_cut, omissions.words_left_out) == (
        1,
        {WITHOUT_TOKEN: 0, BEYOND_LIMIT: 8},
    )


def test_reported_06_texts_and_translations_say_how_many_were_cut():
    """A translation is cut in its source or in its target; both at once count as one."""
    long = " ".join(["w5"] * 90)
    texts = replace(
        tiny_task(), read=lambda *_: [Example("a", long, 0), Example("b", "w4", 1, pair=long)]
    )
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluation = Evaluator(model, texts, "xx").evaluate()
    assert evaluation.omissions == Omissions(2, 2, 64)
    pairs = [
        Example("a", long, target="w4"),
        Example("b", "w4", target=long),
        Example("c", long, target=long),
    ]
    task = replace(PAIRS, read=lambda *_: [*pairs, Example("d", "w4", target="w5")])
    omissions = Evaluator(tiny_model("marian", tokenizer=tiny_tokenizer()), task, "xx").omissions
    assert omissions == Omissions(4, 3, 64)


def test_reported_06_results_hold_it_and_older_ones_say_nothing(tmp_path: Path):
    """The key of a result stays the same, and a result that lacks the field is given it when it is asked for again."""
    task = labelled("w4_ _w6", "_".join(["w5"] * 100))
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    store = Store(tmp_path)
    scores = score(model, task, method="leave-one-out", store=store)
    expected = Omissions(2, 1, 64, {WITHOUT_TOKEN: 1, BEYOND_LIMIT: 38})
    curve = prune_curve(model, task, scores=scores, split="dev", points=3, store=store)
    assert scores.omissions == curve.omissions == expected
    (stored,) = store.scan().results
    assert (stored.record.omissions, store.curves().results[0].record.omissions) == (
        expected,
        expected,
    )
    assert (
        HeadScores.from_json(json.loads(json.dumps(stored.record.to_json()))).omissions == expected
    )
    store.run(scores.spec).finish(replace(scores, omissions=None), {})
    (older,) = store.scan().results
    assert (older.key, older.record.omissions) == (stored.key, None)
    assert (
        HeadScores.from_json(
            {k: v for k, v in older.record.to_json().items() if k != "omissions"}
        ).omissions
        is None
    )
    assert score(model, task, method="leave-one-out", store=store).omissions == expected
    pieces = Pieces(model, task, store)
    pieces.answers("xx", split="dev")
    assert pieces.omission_notes() == (f"xx, dev: {expected.sentence}.",)
    again = Pieces(model, task, store)
    again.answers("xx", split="dev")
    assert (again.forwards, again.omission_notes()) == (0, pieces.omission_notes())
    assert omission_notes([older.record]) == ()
    assert expected.sentence in omission_notes([stored.record])[0]


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
