"""Tasks of likelihood: next tokens and choices, against passes one by one.

They go through evaluator, game and scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import log_probabilities, next_token_log_probabilities
from support.expected_errors import raises
from support.likelihood_tasks import CHOICES, SINGLE, TEXTS, language_model, random_words
from support.tiny_models import tiny_model, tiny_module
from support.tiny_task import tiny_tokenizer
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast

from headlab.core import Bools, value_function_of
from headlab.evaluation import (
    Choices,
    Decoding,
    Evaluator,
    LanguageSetup,
    NextTokens,
    changes,
    check_bleu,
    encoding,
    likelihood,
    nats_per_unit,
    right_by_bytes,
    text_rates,
)
from headlab.evaluation.generation import answer_log_probabilities
from headlab.hooks import Model, gated
from headlab.masks import Mask
from headlab.methods.gradient import gate_gradients
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score
from headlab.models.load import examine_model
from headlab.roles import of_task
from headlab.roles.study import study
from headlab.shrink.proof import compare
from headlab.tasks import Example, Task
from headlab.training.steps import check_examples

CAUSAL = ("llama-lm", "gpt2-lm")


def choice_task(*examples: Example) -> Task:
    return replace(CHOICES, read=lambda *_: examples)


@pytest.fixture(scope="module", params=CAUSAL)
def model(request: pytest.FixtureRequest) -> Model:
    return language_model(request.param)


def context_tokens(model: Model, text: str) -> list[int]:
    tokens = list(model.tokenizer(text)["input_ids"])
    return tokens[:-1]  # without </s>


def gates_of(evaluator: Evaluator, seed: int = 3) -> np.ndarray:
    """Random gates of 0 and 1 for every example of an evaluator."""
    grid = evaluator.model.grid
    rng = np.random.default_rng(seed)
    random_numbers = rng.random((len(evaluator.examples), grid.size))
    return grid.gates(random_numbers < 0.7)


def continuation_log_probabilities(
    model: Model, example: Example, gates: np.ndarray
) -> list[list[float]]:
    """Log-probabilities of the tokens of each continuation."""
    context = context_tokens(model, example.text)
    log_probabilities_by_text = []
    with gated(model, gates):
        for text in example.choices or (example.target or "",):
            whole_text = context_tokens(model, example.text + text)
            continuation = whole_text[len(context) :]
            log_probabilities_by_text.append(
                next_token_log_probabilities(model.module, context, continuation)
            )
    return log_probabilities_by_text


def check_choices(
    model: Model, log_probabilities_alone: Callable[[Example, np.ndarray], list[float]]
) -> None:
    """Each choice has the log-probability that it has alone, under gates that differ by row."""
    evaluator = Evaluator(model, CHOICES, "xx")
    gates = gates_of(evaluator)
    rows = np.arange(len(evaluator.examples))
    with torch.inference_mode(), gated(model, gates):
        logits = evaluator.logits(evaluator.tensors(rows)).numpy()
    for row, example in enumerate(evaluator.examples):
        expected_logits = log_probabilities_alone(example, gates[row])
        choices = len(expected_logits)
        assert logits[row, :choices] == pytest.approx(expected_logits, abs=1e-9)
        assert (logits[row, choices:] == -np.inf).all()
    choices_by_row = (logits > -np.inf).sum(axis=1)
    assert len(set(choices_by_row.tolist())) > 1


def test_choices_have_the_log_probability_that_they_have_alone(model: Model):
    def log_probabilities_alone(example: Example, gates: np.ndarray) -> list[float]:
        tokens_by_choice = continuation_log_probabilities(model, example, gates)
        return [sum(tokens) for tokens in tokens_by_choice]

    check_choices(model, log_probabilities_alone)


def test_each_token_of_a_text_but_its_context_is_an_answer(model: Model):
    evaluator = Evaluator(model, TEXTS, "xx")
    gates = gates_of(evaluator)
    word_counts = []
    for example in evaluator.examples:
        words = (example.target or "").split()
        word_counts.append(len(words))
    assert list(evaluator.inputs.units) == word_counts
    for row, example in enumerate(evaluator.examples):
        (token_log_probabilities,) = continuation_log_probabilities(model, example, gates[row])
        with torch.inference_mode(), gated(model, gates[row]):
            inputs = evaluator.tensors(np.array([row]))
            logits = evaluator.logits(inputs)
        log_probabilities_by_token = torch.log_softmax(logits, dim=-1)[0]
        (targets,) = evaluator.targets(np.array([row]), logits)
        log_probabilities_of_targets = []
        for n, token in enumerate(targets):
            log_probability = log_probabilities_by_token[n, token]
            log_probabilities_of_targets.append(float(log_probability))
        assert log_probabilities_of_targets == pytest.approx(token_log_probabilities, abs=1e-9)


@pytest.mark.parametrize("task", [CHOICES, TEXTS], ids=["choices", "texts"])
@pytest.mark.parametrize("key", ["accuracy", "log-probability"])
def test_gains_are_those_of_whole_passes_however_they_are_computed(
    model: Model, task: Task, key: str
):
    evaluator = Evaluator(model, task, "xx")
    game = ModelGame(evaluator, value=value_function_of(key))
    rng = np.random.default_rng(1)
    coalitions = rng.random((6, game.players)) < 0.8
    examples = np.arange(6)
    expected_gains = np.zeros(coalitions.shape)
    for player in range(game.players):
        with_player_flipped = coalitions.copy()
        with_player_flipped[:, player] ^= True
        values = game.values(coalitions, examples)
        values_when_flipped = game.values(with_player_flipped, examples)
        direction = np.where(coalitions[:, player], 1, -1)
        expected_gains[:, player] = (values - values_when_flipped) * direction
    all_players = np.ones_like(coalitions)
    marginals = game.marginals(coalitions, all_players, examples)
    assert marginals == pytest.approx(expected_gains, abs=1e-9)
    if game.scale is not None:  # a decoder's gains of probabilities are not screened
        shape_of_halvings = (game.scale.bins, game.players)
        halvings = np.zeros(shape_of_halvings, dtype=np.int64)
        screened = game.screened(
            coalitions,
            all_players,
            examples,
            halvings,
            np.zeros(coalitions.shape),
        )
        assert screened[2] == pytest.approx(expected_gains, abs=1e-9)
    orders = np.array([rng.permutation(game.players) for _ in range(3)])
    gains = game.gains(orders, examples[:3])
    every_head_on = np.full((3, game.players), True)
    all_on = game.values(every_head_on, examples[:3])
    all_off = game.values(~every_head_on, examples[:3])
    total_gains = gains.sum(axis=1)
    assert total_gains == pytest.approx(all_on - all_off, abs=1e-9)


@pytest.mark.parametrize("task", [CHOICES, TEXTS], ids=["choices", "texts"])
def test_every_method_takes_such_a_task(model: Model, task: Task):
    shapley = score(
        model,
        task,
        method="shapley",
        size=None,
        value="log-probability",
        samples=40,
        target=None,
    )
    gradient = score(model, task, method="gradient", size=None)
    leave_one_out = score(model, task, method="leave-one-out", size=None)
    evaluator = Evaluator(model, task, "xx", size=None)
    ones = np.ones(model.grid.size, bool)
    baseline = evaluator.evaluate().accuracy
    drops = []
    for head in range(model.grid.size):
        all_but_one = ones & (np.arange(len(ones)) != head)
        mask = Mask(model.grid, all_but_one)
        drops.append(baseline - evaluator.evaluate(mask).accuracy)
    assert leave_one_out.values == pytest.approx(drops, abs=1e-9)
    assert shapley.values.any()
    assert gradient.values.any()


@pytest.mark.parametrize("value", ["log-probability", "probability"])
@pytest.mark.parametrize("task", [CHOICES, TEXTS], ids=["choices", "texts"])
def test_leave_one_out_values_answers_as_it_is_told(model: Model, task: Task, value: str):
    """An answer weighs the same, whichever example it belongs to."""
    scores = score(model, task, method="leave-one-out", value=value, size=None)
    evaluator = Evaluator(model, task, "xx", size=None)

    def mean_value(kept: Bools) -> float:
        nats, _ = answer_log_probabilities(evaluator, Mask(model.grid, kept), "zero")
        answer_values = np.exp(nats) if value == "probability" else np.maximum(nats, -10)
        return float(answer_values.mean())

    all_heads = np.ones(model.grid.size, bool)
    drops = [
        mean_value(all_heads) - mean_value(all_heads & (np.arange(len(all_heads)) != head))
        for head in range(model.grid.size)
    ]
    assert scores.values.flatten() == pytest.approx(drops, abs=1e-6)
    assert scores.unit == ("probability" if value == "probability" else "nats")
    assert scores.low is not None
    assert scores.high is not None
    assert (scores.low <= scores.values + 1e-9).all()
    assert (scores.values <= scores.high + 1e-9).all()


def test_leave_one_out_of_accuracy_keeps_its_key(model: Model):
    of_accuracy = score(model, CHOICES, method="leave-one-out", value="accuracy", size=None)
    assert of_accuracy.spec["method"]["options"] == {"level": 0.95}
    in_nats = score(model, CHOICES, method="leave-one-out", value="log-probability", size=None)
    assert in_nats.spec["method"]["options"] == {"level": 0.95, "value": "log-probability"}


def test_a_mask_is_tried_as_on_any_task(model: Model):
    evaluator = Evaluator(model, CHOICES, "xx")
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[0, 1, 5, 6, 7]] = False
    mask = Mask(model.grid, kept_heads)
    expected_correct = []
    for example in evaluator.examples:
        gates = model.grid.gates(kept_heads)
        choices = continuation_log_probabilities(model, example, gates)
        sums = [sum(choice) for choice in choices]
        likeliest_choice = int(np.argmax(sums))
        expected_correct.append(likeliest_choice == example.label)
    under_mask = evaluator.evaluate(mask)
    baseline = evaluator.evaluate()
    assert list(under_mask.correct) == expected_correct
    assert list(baseline.predicted) != list(under_mask.predicted)


def choice_probabilities(model: Model, example: Example, kept_heads: np.ndarray) -> np.ndarray:
    """The softmax over an example's choices under a mask."""
    gates = model.grid.gates(kept_heads)
    tokens_by_choice = continuation_log_probabilities(model, example, gates)
    log_probabilities_by_choice = np.array([sum(tokens) for tokens in tokens_by_choice])
    weights = np.exp(log_probabilities_by_choice - log_probabilities_by_choice.max())
    return weights / weights.sum()


def test_answers_that_a_mask_changes_are_named_by_the_examples_own_choices(model: Model):
    evaluator = Evaluator(model, CHOICES, "xx")
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[0, 1, 5, 6, 7]] = False
    mask = Mask(model.grid, kept_heads)
    expected_answers = {}
    for example in evaluator.examples:
        names = [choice.strip() for choice in example.choices]
        baseline = choice_probabilities(model, example, np.ones_like(kept_heads))
        under_mask = choice_probabilities(model, example, kept_heads)
        if baseline.argmax() != under_mask.argmax():
            expected_answers[example.id] = (
                names[example.label],
                names[baseline.argmax()],
                names[under_mask.argmax()],
                pytest.approx(baseline.max(), abs=1e-9),
                pytest.approx(under_mask.max(), abs=1e-9),
            )
    changed_answers = {}
    for change in changes(evaluator, mask):
        changed_answers[change.id] = (
            change.label,
            change.before,
            change.after,
            change.p_before,
            change.p_after,
        )
    assert changed_answers == expected_answers
    assert changed_answers
    with raises("changes.no_labels", "texts"):
        changes(Evaluator(model, TEXTS, "xx"), mask)


def test_roles_are_found_on_such_texts_whole(model: Model):
    for task in (CHOICES, TEXTS):
        report = study(model, of_task(task, "xx"))
        measures = next(table for table in report.tables if table.name == "measures")
        word_counts = []
        for example in task.examples("xx"):
            context_words = example.text.split()
            target_words = (example.target or "").split()
            word_counts.append(len(context_words) + len(target_words))
        (tokens,) = {*measures.column("tokens")}
        # <s> and </s>, which may not be counted
        words = sum(word_counts)
        special_tokens = 2 * len(word_counts)
        assert words <= tokens <= words + special_tokens


def test_accuracy_by_byte_leaves_out_the_space_before_a_choice(model: Model):
    evaluator = Evaluator(model, CHOICES, "xx")
    all_on = np.ones((model.grid.layers, model.grid.width))
    for example, correct in zip(evaluator.examples, right_by_bytes(evaluator), strict=True):
        tokens_by_choice = continuation_log_probabilities(model, example, all_on)
        by_byte = []
        for tokens, text in zip(tokens_by_choice, example.choices, strict=True):
            bytes_without_space = text[1:].encode()
            by_byte.append(sum(tokens) / len(bytes_without_space))
        likeliest_choice = int(np.argmax(by_byte))
        assert correct == (likeliest_choice == example.label)


def test_single_tokens_need_no_room_of_their_own():
    evaluator = Evaluator(language_model("bloom-lm"), SINGLE, "xx")  # its positions cannot be given
    assert set(evaluator.tensors(np.arange(3))) == {
        "input_ids",
        "attention_mask",
        "asked",
        "wanted",
        "choice",
    }
    grid = evaluator.model.grid
    all_on = np.ones((grid.layers, grid.width))
    inputs = evaluator.tensors(np.arange(12))
    logits = evaluator.logits(inputs).detach().numpy()
    for row, example in enumerate(evaluator.examples):
        tokens_by_choice = continuation_log_probabilities(evaluator.model, example, all_on)
        expected_logits = [sum(tokens) for tokens in tokens_by_choice]
        logits_of_choices = logits[row, : len(expected_logits)]
        assert logits_of_choices == pytest.approx(expected_logits, abs=1e-9)


def test_a_model_that_cannot_share_a_context_says_so(monkeypatch: pytest.MonkeyPatch):
    with raises("model.choices_unshared", "tiny-bloom-lm", "choices"):
        Evaluator(language_model("bloom-lm"), CHOICES, "xx")
    short_task = choice_task(
        Example("1", "w4 w5", 0, choices=(" w6 w7", " w8")),
        Example("2", "w4", 0, choices=(" w6", " w9")),
    )
    evaluator = Evaluator(language_model("window-lm"), short_task, "xx")
    assert evaluator.evaluate().n == 2
    long_example = Example("1", "w4 w5 w4 w5 w4 w6 w7 w8", 0, choices=(" w6 w7", " w8"))
    long_task = choice_task(long_example)
    with raises("model.choices_unshared", "tiny-window-lm"):
        Evaluator(language_model("window-lm"), long_task, "xx")
    # more tokens, but not in a row
    choices = tuple(f" w{n} w5 w6" for n in range(10, 20))
    many_choices = Example("2", "w4", 0, choices=choices)
    with raises("model.choices_unshared", "tiny-window-lm"):
        Evaluator(
            language_model("window-lm"),
            choice_task(many_choices, *long_task.read("xx", "dev", 0)),
            "xx",
        )
    # a window is refused all the same
    monkeypatch.setattr(encoding, "TOLERANCE", {"float32": 1e9, "float64": 1e9})
    with raises("model.choices_unshared", "tiny-window-lm"):
        Evaluator(language_model("window-lm"), long_task, "xx")


def merging_tokenizer(**names: str) -> PreTrainedTokenizerFast:
    """A tokenizer that merges across the border of a context and its continuation.

    It adds nothing around a text.
    """
    pieces = ["[PAD]", "<s>", "</s>", *"abcd ", "ab", "abc", " d"]
    vocabulary = {piece: piece_id for piece_id, piece in enumerate(pieces)}
    merges = [("a", "b"), ("ab", "c"), (" ", "d")]
    bpe = models.BPE(vocabulary, merges)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(bpe), **names)


def test_a_choice_that_merges_with_its_context_shares_less_of_it():
    model = tiny_model("llama-lm", tokenizer=merging_tokenizer(bos_token="<s>"))
    example = Example("1", "d ab", 1, choices=("c", "d", " d"))
    evaluator = Evaluator(model, choice_task(example), "xx")
    context = model.tokenizer("d ab")["input_ids"]
    context_and_choice = model.tokenizer("d abc")["input_ids"]
    assert context_and_choice[: len(context)] != context
    shared_context = model.tokenizer("d ")["input_ids"]
    expected_logits = []
    for choice in example.choices:
        tokens = model.tokenizer(f"d ab{choice}")["input_ids"]
        continuation = tokens[len(shared_context) :]
        log_probabilities_of_choice = next_token_log_probabilities(
            model.module, shared_context, continuation
        )
        expected_logits.append(sum(log_probabilities_of_choice))
    inputs = evaluator.tensors(np.array([0]))
    (logits,) = evaluator.logits(inputs).detach().numpy()
    assert logits == pytest.approx(expected_logits, abs=1e-9)


def test_a_text_without_a_context_follows_a_start_token_if_there_is_one():
    text = Example("1", "", target="abcd")
    for names, start_tokens in (
        ({"bos_token": "<s>"}, [1]),
        ({"eos_token": "</s>"}, [2]),
        ({}, []),
    ):
        model = tiny_model("llama-lm", tokenizer=merging_tokenizer(**names))
        inputs = NextTokens(model, TEXTS, [text])
        text_tokens = inputs.model.tokenizer("abcd")["input_ids"]
        tensors = inputs.tensors(np.array([0]))
        (row,) = tensors["input_ids"].tolist()
        assert row == (start_tokens + text_tokens)[:-1]
        answers = text_tokens if start_tokens else text_tokens[1:]
        assert list(inputs.answers) == answers
        lacks_first_token = "the first token of each text is not predicted" in inputs.note
        assert lacks_first_token == (not start_tokens)
    text_with_context = replace(text, text="d ")
    assert NextTokens(inputs.model, TEXTS, [text_with_context]).note == ""
    with raises("data.text_too_short", "1"):
        NextTokens(
            tiny_model("llama-lm", tokenizer=merging_tokenizer()),
            TEXTS,
            [replace(text, target="a")],
        )
    with raises("data.context_empty", "1"):
        Choices(
            tiny_model("llama-lm", tokenizer=merging_tokenizer()),
            CHOICES,
            [Example("1", "", 0, choices=("ab", "d"))],
        )


def test_choices_without_a_context_have_the_likelihood_of_whole_texts():
    model = tiny_model("llama-lm", tokenizer=merging_tokenizer(bos_token="<s>"))
    example = Example("1", "", 0, choices=("abcd", "dab"))
    evaluator = Evaluator(model, choice_task(example), "xx")
    expected_logits = []
    for text in ("abcd", "dab"):
        tokens = model.tokenizer(text)["input_ids"]
        log_probabilities_of_text = next_token_log_probabilities(model.module, [1], tokens)
        expected_logits.append(sum(log_probabilities_of_text))
    inputs = evaluator.tensors(np.array([0]))
    (logits,) = evaluator.logits(inputs).tolist()
    assert logits == pytest.approx(expected_logits, abs=1e-9)


def tokenizer_with_marks(start_mark: str, end_mark: str, **names: str) -> PreTrainedTokenizerFast:
    """Words with special tokens around a text, as some decoders have them."""
    tokenizer = tiny_tokenizer().backend_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start_mark} $A {end_mark}".strip(), special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **names
    )


@pytest.mark.parametrize(
    ("start_mark", "end_mark", "names"),
    [
        ("</s>", "", {"bos_token": "</s>", "eos_token": "</s>"}),  # OPT
        ("<s>", "</s>", {"bos_token": "<s>"}),  # an end that is no eos_token, as of BERT's decoders
        ("<s>", "</s>", {"bos_token": "<s>", "eos_token": "</s>"}),
        ("", "", {"bos_token": "<s>"}),
        ("", "</s>", {"eos_token": "<s>"}),
    ],
)
def test_what_a_tokenizer_puts_around_a_text_is_no_answer_and_there_once(
    start_mark: str, end_mark: str, names: dict
):
    model = tiny_model("llama-lm", tokenizer=tokenizer_with_marks(start_mark, end_mark, **names))
    start_token = {"": 1, "<s>": 1, "</s>": 2}[start_mark]
    text_example = Example("1", "", target="w5 w6 w7")
    text = NextTokens(model, TEXTS, [text_example])
    text_inputs = text.tensors(np.array([0]))
    assert text_inputs["input_ids"].tolist() == [[start_token, 5, 6]]
    assert list(text.answers) == [5, 6, 7]
    empty_example = Example("1", "", 0, choices=("w5", "w6 w7"))
    empty_choices = Choices(model, CHOICES, [empty_example])
    empty = empty_choices.tensors(np.array([0]))
    assert empty["input_ids"].tolist() == [[start_token, 6]]
    assert empty["wanted"].tolist() == [[5, 6, 7]]
    example_with_context = Example("1", "w4", 0, choices=(" w5", " w6"))
    choices_with_context = Choices(model, CHOICES, [example_with_context])
    behind_context = choices_with_context.tensors(np.array([0]))
    context_start = [start_token] if start_mark else []
    assert behind_context["input_ids"].tolist() == [[*context_start, 4]]


def test_a_model_that_sees_later_tokens_is_no_language_model():
    for family in ("xlm-lm", "bert-both-ways"):
        with raises("model.not_language_model", family):
            Evaluator(language_model(family), TEXTS, "xx")


def test_a_model_whose_scores_come_from_no_layer_says_so():
    model = tiny_model("mobilebert-lm", tokenizer=masked_tokenizer())
    with raises("model.positions_unread", "MobileBert"):
        Evaluator(model, TEXTS, "xx").evaluate()


def test_relevance_says_that_it_explains_no_choice(model: Model):
    with raises("method.not_for_choices", "choices"):
        score(model, CHOICES, method="relevance", size=None)


def test_what_is_not_for_language_models_says_so(tmp_path: Path):
    with raises("training.task_generates"):
        check_examples(CHOICES.examples("xx"), ("a", "b"))
    for task in (CHOICES, TEXTS):
        with raises("task.not_translation", task.name):
            check_bleu(task, "xx", "dev", Decoding())
    for family in ("llama-lm", "bert"):
        tiny_module(family).save_pretrained(tmp_path / family)
        tiny_tokenizer().save_pretrained(tmp_path / family)
    for task in (CHOICES, TEXTS):
        *_, answer_fact = examine_model(str(tmp_path / "llama-lm"), task)
        assert answer_fact.what == "Answers"
        assert answer_fact.ok is True
    bert_facts = examine_model(str(tmp_path / "bert"), CHOICES)
    assert bert_facts[-1].ok is False
    tiny_module("marian").save_pretrained(tmp_path / "marian")
    tiny_tokenizer().save_pretrained(tmp_path / "marian")
    marian_folder = str(tmp_path / "marian")
    assert examine_model(marian_folder, CHOICES)[-1].ok is True
    assert examine_model(marian_folder, TEXTS)[-1].ok is False
    heads_fact = {}
    for family in ("llama-lm", "bert"):
        facts = examine_model(str(tmp_path / family))
        heads_fact[family] = facts[4].words
    assert "heads 0 to 1 of a layer share keys and values" in heads_fact["llama-lm"]
    assert "share" not in heads_fact["bert"]


def test_a_smaller_decoder_is_compared_on_such_a_task(model: Model):
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[1, 6]] = False
    evaluator = Evaluator(model, CHOICES, "xx")

    def masked_logits(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        with torch.inference_mode(), gated(model, model.grid.gates(kept_heads)):
            logits: torch.Tensor = model.module(**batch).logits
        return logits

    mask = Mask(model.grid, kept_heads)
    batches = [evaluator.tensors(np.arange(4))]
    comparison = compare(model, mask, masked_logits, batches)
    assert comparison.max_logit_difference <= comparison.tolerance < comparison.mask_changes


def test_half_precision_is_no_reason_to_refuse():
    model = tiny_model("llama-lm", torch.bfloat16, tokenizer=tiny_tokenizer())
    assert Evaluator(model, CHOICES, "xx").evaluate().n == 12


def test_every_token_has_to_be_known_also_the_last_ones():
    model = tiny_model("llama-lm", tokenizer=tiny_tokenizer())
    model.tokenizer.add_tokens(["w200"])
    for task in (
        choice_task(Example("1", "w4", 0, choices=(" w200", " w8"))),
        replace(TEXTS, read=lambda *_: [UNKNOWN_LAST]),
    ):
        with raises("tokenizer.larger_than_model", "w200"):
            Evaluator(model, task, "xx")


UNKNOWN_LAST = Example("1", "w4", target=" w5 w200")


def test_choices_need_room_for_the_longest_alone():
    choices = tuple(f" w{n}" * 15 for n in range(6, 10))
    example = Example("1", "w5 " * 40, 0, choices=choices)
    evaluator = Evaluator(language_model("llama-lm"), choice_task(example), "xx")
    assert evaluator.evaluate().n == 1


# Choices of encoder-decoders.


@pytest.fixture(scope="module", params=["t5", "marian"])
def pairs(request: pytest.FixtureRequest) -> Model:
    return language_model(request.param)


def choice_log_probabilities(model: Model, example: Example, gates: np.ndarray) -> list[float]:
    """Log-probability of each continuation of a context, a token and a whole pass at a time."""
    ids = model.tokenizer(example.text, return_tensors="pt")["input_ids"]
    start = [model.module.config.decoder_start_token_id]
    log_probabilities_by_choice = []
    with gated(model, gates):
        for choice in example.choices:
            tokens = model.tokenizer(choice)["input_ids"][1:-1]
            token_log_probabilities = log_probabilities(model.module, ids, start, tokens)
            log_probabilities_by_choice.append(sum(token_log_probabilities))
    return log_probabilities_by_choice


def test_an_encoder_decoder_gives_each_choice_the_log_probability_of_its_tokens(pairs: Model):
    check_choices(pairs, partial(choice_log_probabilities, pairs))


def test_an_encoder_decoder_does_choices_by_every_method(pairs: Model):
    evaluator = Evaluator(pairs, CHOICES, "xx", size=None)
    ones = np.ones(pairs.grid.size, bool)
    drops = []
    baseline = evaluator.evaluate()
    for head in range(pairs.grid.size):
        all_but_one = ones & (np.arange(len(ones)) != head)
        mask = Mask(pairs.grid, all_but_one)
        under_mask = evaluator.evaluate(mask)
        drops.append(baseline.accuracy - under_mask.accuracy)
    leave_one_out = score(pairs, CHOICES, method="leave-one-out", size=None)
    assert leave_one_out.values == pytest.approx(drops, abs=1e-9)
    shapley = score(
        pairs,
        CHOICES,
        method="shapley",
        size=None,
        value="log-probability",
        samples=20,
        target=None,
    )
    gradient = score(pairs, CHOICES, method="gradient", size=None)
    assert shapley.values.any()
    assert gradient.values.all()
    assert np.isfinite(gradient.values).all()
    answers = []
    for example in evaluator.examples:
        choices = choice_log_probabilities(pairs, example, pairs.grid.gates(ones))
        answers.append(int(np.argmax(choices)))
    assert list(baseline.predicted) == answers
    under_mean = score(pairs, CHOICES, method="leave-one-out", size=None, ablation="mean")
    assert np.isfinite(under_mean.values).all()


def test_the_gradient_of_an_encoder_decoder_is_that_of_each_example_alone(pairs: Model):
    """Examples of a batch have different numbers of choices.

    The empty places of one example must not reach another's gradient.
    """
    evaluator = Evaluator(pairs, CHOICES, "xx")
    rows = np.arange(len(evaluator.examples))
    (batch,) = evaluator.batches(rows, len(rows))
    batch_gradients = gate_gradients(evaluator, batch)
    for index, row in enumerate(batch.rows.tolist()):
        single_row = np.array([row])
        (single_batch,) = evaluator.batches(single_row, 1)
        gradient_alone = gate_gradients(evaluator, single_batch)[0]
        assert torch.allclose(batch_gradients[index], gradient_alone, atol=1e-9)


def test_an_encoder_decoder_of_several_languages_is_told_them(monkeypatch: pytest.MonkeyPatch):
    model = language_model("t5")
    example = Example("1", "w4", 1, choices=("w6 w7", "w8"))
    task = replace(CHOICES, languages=("aa-bb",), read=lambda *_: [example])
    monkeypatch.setattr(
        "headlab.evaluation.inputs.language_setup",
        lambda *_: LanguageSetup(prefix="w9 ", first_token=11, start_token=10),
    )
    evaluator = Evaluator(model, task, "aa-bb")
    inputs = evaluator.tensors(np.array([0]))
    assert inputs["input_ids"].tolist() == [[1, 9, 4, 2]]
    assert inputs["decoder_input_ids"].tolist() == [[10, 11, 8]]  # of the right one
    with torch.inference_mode():
        logits = evaluator.logits(inputs)[0].tolist()
    expected_logits = []
    for choice_tokens in ([6, 7], [8]):
        token_log_probabilities = log_probabilities(
            model.module, inputs["input_ids"], [10, 11], choice_tokens
        )
        expected_logits.append(sum(token_log_probabilities))
    assert logits == pytest.approx(expected_logits, abs=1e-9)


def test_a_choice_without_a_token_is_refused():
    empty_choice = Example("row-7", "w4", 0, choices=(" ", " w6"))
    with raises("data.choice_empty", "row-7"):
        Evaluator(language_model("t5"), choice_task(empty_choice), "xx")
    long_example = Example("row-8", "w4 " * 600, 0, choices=(" w5", " w6"))
    with raises("data.text_too_long", "row-8"):
        Evaluator(language_model("t5"), choice_task(long_example), "xx")


def test_an_encoder_needs_a_token_of_the_context():
    without_end_token = tiny_model("t5", tokenizer=merging_tokenizer(pad_token="[PAD]"))
    task_of_letters = choice_task(Example("row-9", "", 0, choices=("ab", "d")))
    with raises("data.context_empty", "row-9"):
        Evaluator(without_end_token, task_of_letters, "xx")
    task_of_words = choice_task(Example("row-9", "", 0, choices=("w4", "w5 w6")))
    with_end_token = Evaluator(language_model("t5"), task_of_words, "xx")
    assert with_end_token.evaluate().n == 1


def masked_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"mask_token": "[UNK]"})
    return tokenizer


def test_a_masked_language_model_is_asked_for_the_same_few_tokens_every_time():
    model = tiny_model("bert-lm", tokenizer=masked_tokenizer())
    rng = np.random.default_rng(0)
    texts = []
    for n in range(8):
        context = "w4 w5" if n % 2 else ""
        target = f" {random_words(rng, 3, 30)}"
        texts.append(Example(str(n), context, target=target))
    task = replace(TEXTS, read=lambda *_: texts)
    evaluator = Evaluator(model, task, "xx")
    second_evaluator = Evaluator(model, task, "xx")
    mask = model.tokenizer.mask_token_id
    assert list(evaluator.inputs.answers) == list(second_evaluator.inputs.answers)
    for row, example in enumerate(texts):
        inputs = evaluator.tensors(np.array([row]))
        text = example.text + (example.target or "")
        text_tokens = model.tokenizer(text)["input_ids"]
        ids = inputs["input_ids"][0].tolist()
        masked_positions = inputs["asked"][0].tolist()
        positions_of_mask = [n for n, token in enumerate(ids) if token == mask]
        assert positions_of_mask == masked_positions
        unmasked_ids = list(ids)
        for n in masked_positions:
            unmasked_ids[n] = text_tokens[n]
        assert unmasked_ids == text_tokens
        assert min(masked_positions) > 2 * (row % 2)  # the context stays
        with torch.inference_mode():
            output = model.module(
                inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
            )
            ungated_logits = output.logits[0, masked_positions]
            assert torch.allclose(evaluator.logits(inputs)[0], ungated_logits)
    assert text_rates(evaluator, likelihood(evaluator)) == {}
    with raises("model.not_causal", "choices"):
        Evaluator(model, CHOICES, "xx")


def test_what_cannot_be_asked_is_a_sentence():
    with raises("model.not_language_model", "tiny-bert", "texts"):
        Evaluator(tiny_model("bert", tokenizer=tiny_tokenizer()), TEXTS, "xx")
    long_text = " ".join(["w5"] * 70)
    long_example = Example("row-7", long_text, 0, choices=(" w6", " w7"))
    with raises("data.text_too_long", "row-7", 71, 64):
        Evaluator(language_model("llama-lm"), choice_task(long_example), "xx")


def test_choices_of_which_one_begins_another_are_told():
    with_prefix = Example("1", "w4", 0, choices=(" w5", " w5 w6"))
    distinct = Example("2", "w4", 0, choices=(" w5", " w6 w5"))
    model = language_model("llama-lm")
    unknown = Example("3", "w4", 1, choices=(" x", " y"))  # both unknown
    note_on_prefix = Evaluator(model, choice_task(with_prefix, distinct), "xx").note
    note_on_unknown = Evaluator(model, choice_task(unknown, distinct), "xx").note
    assert "in 1 of 2 examples a choice begins" in note_on_prefix
    assert "in 1 of 2 examples the tokenizer" in note_on_unknown
    assert Evaluator(model, choice_task(distinct), "xx").note == ""


def test_bits_and_perplexity_are_ratios_of_sums(model: Model):
    evaluator = Evaluator(model, TEXTS, "xx")
    text_likelihood = likelihood(evaluator)
    all_on = np.ones((model.grid.layers, model.grid.width))
    nats = 0.0
    byte_count = 0
    word_count = 0
    for example in evaluator.examples:
        for continuation in continuation_log_probabilities(model, example, all_on):
            nats -= sum(continuation)
        target = example.target or ""
        byte_count += len(target.encode())
        word_count += len(target.split())
    rates = text_rates(evaluator, text_likelihood)
    bits = nats / np.log(2)
    assert rates["bits_per_byte"] == pytest.approx(bits / byte_count)
    perplexity_of_a_word = np.exp(nats / word_count)
    assert rates["word_perplexity"] == pytest.approx(perplexity_of_a_word)
    chinese = Evaluator(model, replace(TEXTS, languages=("zh",)), "zh")
    chinese_rates = text_rates(chinese, text_likelihood)
    assert [*chinese_rates] == [
        "bits_per_byte",
        "bits_per_byte_low",
        "bits_per_byte_high",
    ]
    # a run of letters: no float holds this perplexity
    many_nats = np.full_like(text_likelihood.nats, -1e4)
    text_likelihood = replace(text_likelihood, nats=many_nats)
    assert [*text_rates(evaluator, text_likelihood)] == [
        "bits_per_byte",
        "bits_per_byte_low",
        "bits_per_byte_high",
    ]
    for name in ("bits_per_byte", "word_perplexity"):
        low = rates[f"{name}_low"]
        high = rates[f"{name}_high"]
        assert low < rates[name] < high


def test_the_interval_of_a_rate_holds_the_truth_as_often_as_it_says():
    """Documents of random size whose own rates differ; the rate of all documents is known."""
    hits = 0
    runs = 150
    for seed in range(runs):
        rng = np.random.default_rng([seed, 4])
        group_sizes = rng.integers(1, 6, 40)
        groups = np.repeat(np.arange(40), group_sizes)
        document_rates = rng.normal(1.0, 0.2, 40)[groups]
        sizes = rng.uniform(20, 60, len(groups))
        noise = rng.normal(0, 0.1, len(groups))
        nats = sizes * (document_rates + noise)
        _, low, high = nats_per_unit(
            nats,
            sizes,
            [str(g) for g in groups],
            (4.0, 10.0),
            seed=seed,
            draws=400,
        )
        hits += low <= 1.0 <= high
    assert hits / runs > 0.9


def batch_widths(evaluator: Evaluator) -> Sequence[int]:
    rows = np.arange(len(evaluator.examples))
    widths = []
    for batch in evaluator.batches_by_tokens(rows):
        _, width = batch.inputs["input_ids"].shape
        widths.append(int(width))
    return widths


def test_rows_of_a_wider_batch_are_answered_as_alone(model: Model):
    for task in (CHOICES, TEXTS):
        evaluator = Evaluator(model, task, "xx")
        rows = np.argsort(evaluator.lengths)
        inputs = {}
        for name, tensor in evaluator.tensors(rows).items():
            inputs[name] = tensor[:2]
        accuracy = value_function_of("log-probability")
        with torch.inference_mode():
            worth_in_wider_batch = evaluator.worth(rows[:2], accuracy, inputs)
            worth_alone = evaluator.worth(rows[:2], accuracy)
            assert worth_in_wider_batch == pytest.approx(worth_alone)
        assert max(batch_widths(evaluator)) == evaluator.lengths.max()
