"""Tasks of likelihood: next tokens and choices, through evaluator, game and scores, against passes one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import continued, log_probabilities
from support.expected_errors import raises
from support.tiny_models import VOCAB, tiny_model, tiny_module
from support.tiny_task import tiny_tokenizer
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast

from headlab.core import value_function_of
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
from headlab.hooks import Model, gated
from headlab.masks import Mask
from headlab.methods.gradient import gate_gradients
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score
from headlab.models.load import examine_model
from headlab.roles import of_task
from headlab.roles.study import study
from headlab.shrink.proof import compare
from headlab.tasks import Example, Split, Task
from headlab.training.steps import check_examples

CAUSAL = ("llama-lm", "gpt2-lm")


def words(rng: np.random.Generator, least: int, most: int) -> str:
    return " ".join(
        f"w{word}" for word in rng.integers(4, VOCAB, int(rng.integers(least, most + 1)))
    )


def read_choices(
    _language: str, split: Split, seed: int, least: int = 1, most: int = 3
) -> list[Example]:
    rng = np.random.default_rng([seed, len(split), most])
    out = []
    for row in range(12):
        own = list(
            dict.fromkeys(f" {words(rng, least, most)}" for _ in range(int(rng.integers(2, 5))))
        )
        out.append(
            Example(
                str(row),
                words(rng, 2, 6),
                int(rng.integers(len(own))),
                group=str(row // 2),
                choices=tuple(own),
            )
        )
    return out


def read_texts(_language: str, split: Split, seed: int) -> list[Example]:
    rng = np.random.default_rng([seed, len(split), 5])
    return [
        Example(
            str(row),
            words(rng, 2, 4) if row % 3 else "",
            group=str(row // 3),
            target=f" {words(rng, 2, 7)}",
        )
        for row in range(12)
    ]


CHOICES = Task("choices", (), ("xx",), False, read_choices, likelihood="choices")
SINGLE = replace(CHOICES, read=partial(read_choices, most=1))
TEXTS = Task("texts", (), ("xx",), False, read_texts, likelihood="tokens")


def language_model(family: str) -> Model:
    return tiny_model(family, tokenizer=tiny_tokenizer())


def of(*examples: Example) -> Task:
    return replace(CHOICES, read=lambda *_: examples)


@pytest.fixture(scope="module", params=CAUSAL)
def model(request: pytest.FixtureRequest) -> Model:
    return language_model(request.param)


def tokens(model: Model, text: str) -> list[int]:
    return list(model.tokenizer(text)["input_ids"][:-1])  # without </s>


def gates_of(evaluator: Evaluator, seed: int = 3) -> np.ndarray:
    grid = evaluator.model.grid
    return grid.gates(
        np.random.default_rng(seed).random((len(evaluator.examples), grid.size)) < 0.7
    )


def slow(model: Model, example: Example, gates: np.ndarray) -> list[list[float]]:
    """Log-probabilities of the tokens of each continuation."""
    context = tokens(model, example.text)
    with gated(model, gates):
        return [
            continued(model.module, context, tokens(model, example.text + text)[len(context) :])
            for text in example.choices or (example.target or "",)
        ]


def check_choices(model: Model, alone: Callable[[Example, np.ndarray], list[float]]) -> None:
    """Each choice has the log-probability that it has alone, under gates that differ by row."""
    evaluator = Evaluator(model, CHOICES, "xx")
    gates = gates_of(evaluator)
    rows = np.arange(len(evaluator.examples))
    with torch.inference_mode(), gated(model, gates):
        found = evaluator.logits(evaluator.tensors(rows)).numpy()
    for row, example in enumerate(evaluator.examples):
        want = alone(example, gates[row])
        assert found[row, : len(want)] == pytest.approx(want, abs=1e-9)
        assert (found[row, len(want) :] == -np.inf).all()
    assert len({int(row) for row in (found > -np.inf).sum(axis=1)}) > 1


def test_choices_have_the_log_probability_that_they_have_alone(model: Model):
    check_choices(model, lambda example, gates: [sum(each) for each in slow(model, example, gates)])


def test_each_token_of_a_text_but_its_context_is_an_answer(model: Model):
    evaluator = Evaluator(model, TEXTS, "xx")
    gates = gates_of(evaluator)
    assert list(evaluator.inputs.units) == [
        len((e.target or "").split()) for e in evaluator.examples
    ]
    for row, example in enumerate(evaluator.examples):
        (want,) = slow(model, example, gates[row])
        with torch.inference_mode(), gated(model, gates[row]):
            logits = evaluator.logits(evaluator.tensors(np.array([row])))
        likely = torch.log_softmax(logits, dim=-1)[0]
        right = evaluator.targets(np.array([row]), logits)[0]
        assert [float(likely[n, token]) for n, token in enumerate(right)] == pytest.approx(
            want, abs=1e-9
        )


@pytest.mark.parametrize("task", [CHOICES, TEXTS], ids=["choices", "texts"])
@pytest.mark.parametrize("key", ["accuracy", "log-probability"])
def test_gains_are_those_of_whole_passes_however_they_are_computed(
    model: Model, task: Task, key: str
):
    evaluator = Evaluator(model, task, "xx")
    game = ModelGame(evaluator, value=value_function_of(key))
    rng = np.random.default_rng(1)
    kept = rng.random((6, game.players)) < 0.8
    examples = np.arange(6)
    want = np.zeros(kept.shape)
    for player in range(game.players):
        other = kept.copy()
        other[:, player] ^= True
        want[:, player] = (game.values(kept, examples) - game.values(other, examples)) * np.where(
            kept[:, player], 1, -1
        )
    every = np.ones_like(kept)
    assert game.marginals(kept, every, examples) == pytest.approx(want, abs=1e-9)
    halvings = np.zeros((game.scale.bins, game.players), dtype=np.int64)
    assert game.screened(kept, every, examples, halvings, np.zeros(kept.shape))[2] == pytest.approx(
        want, abs=1e-9
    )
    orders = np.array([rng.permutation(game.players) for _ in range(3)])
    walked = game.gains(orders, examples[:3])
    ends = [game.values(np.full((3, game.players), kept), examples[:3]) for kept in (True, False)]
    assert walked.sum(axis=1) == pytest.approx(ends[0] - ends[1], abs=1e-9)


@pytest.mark.parametrize("task", [CHOICES, TEXTS], ids=["choices", "texts"])
def test_every_method_takes_such_a_task(model: Model, task: Task):
    near = score(
        model, task, method="shapley", size=None, value="log-probability", samples=40, target=None
    )
    slope = score(model, task, method="gradient", size=None)
    without = score(model, task, method="leave-one-out", size=None)
    evaluator = Evaluator(model, task, "xx", size=None)
    ones = np.ones(model.grid.size, bool)
    whole = evaluator.evaluate().accuracy
    want = []
    for head in range(model.grid.size):
        mask = Mask(model.grid, ones & (np.arange(len(ones)) != head))
        want.append(whole - evaluator.evaluate(mask).accuracy)
    assert without.values == pytest.approx(want, abs=1e-9)
    assert near.values.any()
    assert slope.values.any()


def test_a_mask_is_tried_as_on_any_task(model: Model):
    evaluator = Evaluator(model, CHOICES, "xx")
    kept = np.ones(model.grid.size, bool)
    kept[[0, 1, 5, 6, 7]] = False
    mask = Mask(model.grid, kept)
    want = []
    for example in evaluator.examples:
        each = slow(model, example, model.grid.gates(kept))
        want.append(int(np.argmax([sum(one) for one in each])) == example.label)
    assert list(evaluator.evaluate(mask).correct) == want
    assert list(evaluator.evaluate().predicted) != list(evaluator.evaluate(mask).predicted)


def test_answers_that_a_mask_changes_are_named_by_the_examples_own_choices(model: Model):
    evaluator = Evaluator(model, CHOICES, "xx")
    kept = np.ones(model.grid.size, bool)
    kept[[0, 1, 5, 6, 7]] = False
    mask = Mask(model.grid, kept)
    want = {}
    for example in evaluator.examples:
        names = [choice.strip() for choice in example.choices]
        before, after = (
            np.array([sum(one) for one in slow(model, example, model.grid.gates(gates))])
            for gates in (np.ones_like(kept), kept)
        )
        if before.argmax() != after.argmax():
            shares = [
                np.exp(one - one.max()) / np.exp(one - one.max()).sum() for one in (before, after)
            ]
            want[example.id] = (
                names[example.label],
                names[before.argmax()],
                names[after.argmax()],
                pytest.approx(shares[0].max(), abs=1e-9),
                pytest.approx(shares[1].max(), abs=1e-9),
            )
    found = {
        one.id: (one.label, one.before, one.after, one.p_before, one.p_after)
        for one in changes(evaluator, mask)
    }
    assert found == want
    assert found
    with raises("changes.no_labels", "texts"):
        changes(Evaluator(model, TEXTS, "xx"), mask)


def test_roles_are_found_on_such_texts_whole(model: Model):
    for task in (CHOICES, TEXTS):
        report = study(model, of_task(task, "xx"))
        measures = next(table for table in report.tables if table.name == "measures")
        words = [len(e.text.split()) + len((e.target or "").split()) for e in task.examples("xx")]
        (tokens,) = {*measures.column("tokens")}
        # <s> and </s>, which may not be counted
        assert sum(words) <= tokens <= sum(words) + 2 * len(words)


def test_accuracy_by_byte_leaves_out_the_space_before_a_choice(model: Model):
    evaluator = Evaluator(model, CHOICES, "xx")
    whole = np.ones((model.grid.layers, model.grid.width))
    for example, right in zip(evaluator.examples, right_by_bytes(evaluator), strict=True):
        each = [
            sum(one) / len(text[1:].encode())
            for one, text in zip(slow(model, example, whole), example.choices, strict=True)
        ]
        assert right == (int(np.argmax(each)) == example.label)


def test_single_tokens_need_no_room_of_their_own():
    evaluator = Evaluator(language_model("bloom-lm"), SINGLE, "xx")  # its positions cannot be given
    assert set(evaluator.tensors(np.arange(3))) == {
        "input_ids",
        "attention_mask",
        "asked",
        "wanted",
        "choice",
    }
    whole = np.ones((evaluator.model.grid.layers, evaluator.model.grid.width))
    found = evaluator.logits(evaluator.tensors(np.arange(12))).detach().numpy()
    for row, example in enumerate(evaluator.examples):
        want = [sum(one) for one in slow(evaluator.model, example, whole)]
        assert found[row, : len(want)] == pytest.approx(want, abs=1e-9)


def test_a_model_that_cannot_share_a_context_says_so(monkeypatch: pytest.MonkeyPatch):
    with raises("model.choices_unshared", "tiny-bloom-lm", "choices"):
        Evaluator(language_model("bloom-lm"), CHOICES, "xx")
    short = of(
        Example("1", "w4 w5", 0, choices=(" w6 w7", " w8")),
        Example("2", "w4", 0, choices=(" w6", " w9")),
    )
    assert Evaluator(language_model("window-lm"), short, "xx").evaluate().n == 2
    long = of(Example("1", "w4 w5 w4 w5 w4 w6 w7 w8", 0, choices=(" w6 w7", " w8")))
    with raises("model.choices_unshared", "tiny-window-lm"):
        Evaluator(language_model("window-lm"), long, "xx")
    # more tokens, but not in a row
    wide = Example("2", "w4", 0, choices=tuple(f" w{n} w5 w6" for n in range(10, 20)))
    with raises("model.choices_unshared", "tiny-window-lm"):
        Evaluator(language_model("window-lm"), of(wide, *long.read("xx", "dev", 0)), "xx")
    # a window is refused all the same
    monkeypatch.setattr(encoding, "TOLERANCE", {"float32": 1e9, "float64": 1e9})
    with raises("model.choices_unshared", "tiny-window-lm"):
        Evaluator(language_model("window-lm"), long, "xx")


class Joining:
    """A tokenizer that merges across the border of a context and its continuation, and adds nothing around a text."""

    @staticmethod
    def made(**names: str) -> PreTrainedTokenizerFast:
        letters = {
            letter: place
            for place, letter in enumerate(["[PAD]", "<s>", "</s>", *"abcd ", "ab", "abc", " d"])
        }
        bpe = models.BPE(letters, [("a", "b"), ("ab", "c"), (" ", "d")])
        return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(bpe), **names)


def test_a_choice_that_merges_with_its_context_shares_less_of_it():
    model = tiny_model("llama-lm", tokenizer=Joining.made(bos_token="<s>"))
    example = Example("1", "d ab", 1, choices=("c", "d", " d"))
    evaluator = Evaluator(model, of(example), "xx")
    assert (
        model.tokenizer("d abc")["input_ids"][: len(model.tokenizer("d ab")["input_ids"])]
        != (model.tokenizer("d ab")["input_ids"])
    )
    start = model.tokenizer("d ")["input_ids"]
    want = [
        sum(
            continued(
                model.module, start, model.tokenizer(f"d ab{choice}")["input_ids"][len(start) :]
            )
        )
        for choice in example.choices
    ]
    found = evaluator.logits(evaluator.tensors(np.array([0])))[0].detach().numpy()
    assert found == pytest.approx(want, abs=1e-9)


def test_a_text_without_a_context_follows_a_start_token_if_there_is_one():
    text = Example("1", "", target="abcd")
    for names, first in (({"bos_token": "<s>"}, [1]), ({"eos_token": "</s>"}, [2]), ({}, [])):
        inputs = NextTokens(tiny_model("llama-lm", tokenizer=Joining.made(**names)), TEXTS, [text])
        whole = inputs.model.tokenizer("abcd")["input_ids"]
        row = inputs.tensors(np.array([0]))["input_ids"][0].tolist()
        assert row == (first + whole)[:-1]
        assert list(inputs.answers) == (whole if first else whole[1:])
        assert ("the first token of each text is not predicted" in inputs.note) == (not first)
    assert NextTokens(inputs.model, TEXTS, [replace(text, text="d ")]).note == ""
    with raises("data.text_too_short", "1"):
        NextTokens(
            tiny_model("llama-lm", tokenizer=Joining.made()), TEXTS, [replace(text, target="a")]
        )
    with raises("data.context_empty", "1"):
        Choices(
            tiny_model("llama-lm", tokenizer=Joining.made()),
            CHOICES,
            [Example("1", "", 0, choices=("ab", "d"))],
        )


def test_choices_without_a_context_have_the_likelihood_of_whole_texts():
    model = tiny_model("llama-lm", tokenizer=Joining.made(bos_token="<s>"))
    evaluator = Evaluator(model, of(Example("1", "", 0, choices=("abcd", "dab"))), "xx")
    want = [
        sum(continued(model.module, [1], model.tokenizer(text)["input_ids"]))
        for text in ("abcd", "dab")
    ]
    assert evaluator.logits(evaluator.tensors(np.array([0])))[0].tolist() == pytest.approx(
        want, abs=1e-9
    )


def marked(before: str, behind: str, **names: str) -> PreTrainedTokenizerFast:
    """Words with special tokens around a text, as some decoders have them."""
    tokenizer = tiny_tokenizer().backend_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{before} $A {behind}".strip(), special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **names
    )


@pytest.mark.parametrize(
    ("before", "behind", "names"),
    [
        ("</s>", "", {"bos_token": "</s>", "eos_token": "</s>"}),  # OPT
        ("<s>", "</s>", {"bos_token": "<s>"}),  # an end that is no eos_token, as of BERT's decoders
        ("<s>", "</s>", {"bos_token": "<s>", "eos_token": "</s>"}),
        ("", "", {"bos_token": "<s>"}),
        ("", "</s>", {"eos_token": "<s>"}),
    ],
)
def test_what_a_tokenizer_puts_around_a_text_is_no_answer_and_there_once(
    before: str, behind: str, names: dict
):
    model = tiny_model("llama-lm", tokenizer=marked(before, behind, **names))
    first = {"": 1, "<s>": 1, "</s>": 2}[before]
    text = NextTokens(model, TEXTS, [Example("1", "", target="w5 w6 w7")])
    assert text.tensors(np.array([0]))["input_ids"].tolist() == [[first, 5, 6]]
    assert list(text.answers) == [5, 6, 7]
    empty = Choices(model, CHOICES, [Example("1", "", 0, choices=("w5", "w6 w7"))]).tensors(
        np.array([0])
    )
    assert (empty["input_ids"].tolist(), empty["wanted"].tolist()) == ([[first, 6]], [[5, 6, 7]])
    behind_context = Choices(
        model, CHOICES, [Example("1", "w4", 0, choices=(" w5", " w6"))]
    ).tensors(np.array([0]))
    start = [first] if before else []
    assert behind_context["input_ids"].tolist() == [[*start, 4]]


def test_a_model_that_sees_later_tokens_is_no_language_model():
    for family in ("xlm-lm", "bert-both-ways"):
        with raises("model.not_language_model", family):
            Evaluator(language_model(family), TEXTS, "xx")


def test_a_model_whose_scores_come_from_no_layer_says_so():
    with raises("model.positions_unread", "MobileBert"):
        Evaluator(tiny_model("mobilebert-lm", tokenizer=masked_tokenizer()), TEXTS, "xx").evaluate()


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
    told = [examine_model(str(tmp_path / "llama-lm"), task)[-1] for task in (CHOICES, TEXTS)]
    assert [(fact.what, fact.ok) for fact in told] == [("Answers", True)] * 2
    assert examine_model(str(tmp_path / "bert"), CHOICES)[-1].ok is False
    tiny_module("marian").save_pretrained(tmp_path / "marian")
    tiny_tokenizer().save_pretrained(tmp_path / "marian")
    assert [examine_model(str(tmp_path / "marian"), task)[-1].ok for task in (CHOICES, TEXTS)] == [
        True,
        False,
    ]
    heads = {
        family: examine_model(str(tmp_path / family))[4].words for family in ("llama-lm", "bert")
    }
    assert "heads 0 to 1 of a layer share keys and values" in heads["llama-lm"]
    assert "share" not in heads["bert"]


def test_a_smaller_decoder_is_compared_on_such_a_task(model: Model):
    kept = np.ones(model.grid.size, bool)
    kept[[1, 6]] = False
    evaluator = Evaluator(model, CHOICES, "xx")

    def masked(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        with torch.inference_mode(), gated(model, model.grid.gates(kept)):
            logits: torch.Tensor = model.module(**batch).logits
        return logits

    found = compare(model, Mask(model.grid, kept), masked, [evaluator.tensors(np.arange(4))])
    assert found.max_logit_difference <= found.tolerance < found.mask_changes


def test_half_precision_is_no_reason_to_refuse():
    model = tiny_model("llama-lm", torch.bfloat16, tokenizer=tiny_tokenizer())
    assert Evaluator(model, CHOICES, "xx").evaluate().n == 12


def test_every_token_has_to_be_known_also_the_last_ones():
    small = tiny_model("llama-lm", tokenizer=tiny_tokenizer())
    small.tokenizer.add_tokens(["w200"])
    for task in (
        of(Example("1", "w4", 0, choices=(" w200", " w8"))),
        replace(TEXTS, read=lambda *_: [LAST]),
    ):
        with raises("tokenizer.larger_than_model", "w200"):
            Evaluator(small, task, "xx")


LAST = Example("1", "w4", target=" w5 w200")


def test_choices_need_room_for_the_longest_alone():
    example = Example("1", "w5 " * 40, 0, choices=tuple(f" w{n}" * 15 for n in range(6, 10)))
    assert Evaluator(language_model("llama-lm"), of(example), "xx").evaluate().n == 1


# Choices of encoder-decoders.


@pytest.fixture(scope="module", params=["t5", "marian"])
def pairs(request: pytest.FixtureRequest) -> Model:
    return language_model(request.param)


def slow_pairs(model: Model, example: Example, gates: np.ndarray) -> list[float]:
    """Log-probability of each continuation of a context, a token and a whole pass at a time."""
    ids = model.tokenizer(example.text, return_tensors="pt")["input_ids"]
    start = [model.module.config.decoder_start_token_id]
    with gated(model, gates):
        return [
            sum(
                log_probabilities(
                    model.module, ids, start, model.tokenizer(choice)["input_ids"][1:-1]
                )
            )
            for choice in example.choices
        ]


def test_an_encoder_decoder_gives_each_choice_the_log_probability_of_its_tokens(pairs: Model):
    check_choices(pairs, partial(slow_pairs, pairs))


def test_an_encoder_decoder_does_choices_by_every_method(pairs: Model):
    evaluator = Evaluator(pairs, CHOICES, "xx", size=None)
    ones = np.ones(pairs.grid.size, bool)
    want = []
    whole = evaluator.evaluate()
    for head in range(pairs.grid.size):
        mask = Mask(pairs.grid, ones & (np.arange(len(ones)) != head))
        want.append(whole.accuracy - evaluator.evaluate(mask).accuracy)
    assert score(pairs, CHOICES, method="leave-one-out", size=None).values == pytest.approx(
        want, abs=1e-9
    )
    near = score(
        pairs,
        CHOICES,
        method="shapley",
        size=None,
        value="log-probability",
        samples=20,
        target=None,
    )
    slope = score(pairs, CHOICES, method="gradient", size=None)
    assert near.values.any()
    assert slope.values.all()
    assert np.isfinite(slope.values).all()
    answers = [
        int(np.argmax(slow_pairs(pairs, e, pairs.grid.gates(ones)))) for e in evaluator.examples
    ]
    assert list(whole.predicted) == answers
    assert np.isfinite(
        score(pairs, CHOICES, method="leave-one-out", size=None, ablation="mean").values
    ).all()


def test_the_gradient_of_an_encoder_decoder_is_that_of_each_example_alone(pairs: Model):
    """Examples of a batch have different numbers of choices: what one lacks must not reach another's gradient."""
    evaluator = Evaluator(pairs, CHOICES, "xx")
    rows = np.arange(len(evaluator.examples))
    (whole,) = evaluator.batches(rows, len(rows))
    found = gate_gradients(evaluator, whole)
    for place, row in enumerate(whole.rows.tolist()):
        (alone,) = evaluator.batches(np.array([row]), 1)
        assert torch.allclose(found[place], gate_gradients(evaluator, alone)[0], atol=1e-9)


def test_an_encoder_decoder_of_several_languages_is_told_them(monkeypatch: pytest.MonkeyPatch):
    model = language_model("t5")
    task = replace(
        CHOICES,
        languages=("aa-bb",),
        read=lambda *_: [Example("1", "w4", 1, choices=("w6 w7", "w8"))],
    )
    monkeypatch.setattr(
        "headlab.evaluation.inputs.language_setup",
        lambda *_: LanguageSetup(prefix="w9 ", first_token=11, start_token=10),
    )
    evaluator = Evaluator(model, task, "aa-bb")
    inputs = evaluator.tensors(np.array([0]))
    assert inputs["input_ids"].tolist() == [[1, 9, 4, 2]]
    assert inputs["decoder_input_ids"].tolist() == [[10, 11, 8]]  # of the right one
    with torch.inference_mode():
        found = evaluator.logits(inputs)[0].tolist()
    each = [
        log_probabilities(model.module, inputs["input_ids"], [10, 11], own) for own in ([6, 7], [8])
    ]
    assert found == pytest.approx([sum(own) for own in each], abs=1e-9)


def test_a_choice_without_a_token_is_refused():
    with raises("data.choice_empty", "row-7"):
        Evaluator(language_model("t5"), of(Example("row-7", "w4", 0, choices=(" ", " w6"))), "xx")
    long = Example("row-8", "w4 " * 600, 0, choices=(" w5", " w6"))
    with raises("data.text_too_long", "row-8"):
        Evaluator(language_model("t5"), of(long), "xx")


def test_an_encoder_needs_a_token_of_the_context():
    bare = tiny_model("t5", tokenizer=Joining.made(pad_token="[PAD]"))
    with raises("data.context_empty", "row-9"):
        Evaluator(bare, of(Example("row-9", "", 0, choices=("ab", "d"))), "xx")
    ended = Evaluator(
        language_model("t5"), of(Example("row-9", "", 0, choices=("w4", "w5 w6"))), "xx"
    )
    assert ended.evaluate().n == 1


def masked_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"mask_token": "[UNK]"})
    return tokenizer


def test_a_masked_language_model_is_asked_for_the_same_few_tokens_every_time():
    model = tiny_model("bert-lm", tokenizer=masked_tokenizer())
    rng = np.random.default_rng(0)
    texts = [
        Example(str(n), "w4 w5" if n % 2 else "", target=f" {words(rng, 3, 30)}") for n in range(8)
    ]
    task = replace(TEXTS, read=lambda *_: texts)
    evaluator = Evaluator(model, task, "xx")
    again = Evaluator(model, task, "xx")
    mask = model.tokenizer.mask_token_id
    assert list(evaluator.inputs.answers) == list(again.inputs.answers)
    for row, example in enumerate(texts):
        inputs = evaluator.tensors(np.array([row]))
        whole = model.tokenizer(example.text + (example.target or ""))["input_ids"]
        ids = inputs["input_ids"][0].tolist()
        asked = inputs["asked"][0].tolist()
        assert [n for n, token in enumerate(ids) if token == mask] == asked
        assert [token if n not in asked else whole[n] for n, token in enumerate(ids)] == whole
        assert min(asked) > 2 * (row % 2)  # the context stays
        with torch.inference_mode():
            plain = model.module(
                inputs["input_ids"], attention_mask=inputs["attention_mask"]
            ).logits[0, asked]
            assert torch.allclose(evaluator.logits(inputs)[0], plain)
    assert text_rates(evaluator, likelihood(evaluator)) == {}
    with raises("model.not_causal", "choices"):
        Evaluator(model, CHOICES, "xx")


def test_what_cannot_be_asked_is_a_sentence():
    with raises("model.not_language_model", "tiny-bert", "texts"):
        Evaluator(tiny_model("bert", tokenizer=tiny_tokenizer()), TEXTS, "xx")
    long = Example("row-7", " ".join(["w5"] * 70), 0, choices=(" w6", " w7"))
    with raises("data.text_too_long", "row-7", 71, 64):
        Evaluator(language_model("llama-lm"), of(long), "xx")


def test_choices_of_which_one_begins_another_are_told():
    start = Example("1", "w4", 0, choices=(" w5", " w5 w6"))
    other = Example("2", "w4", 0, choices=(" w5", " w6 w5"))
    model = language_model("llama-lm")
    alike = Example("3", "w4", 1, choices=(" x", " y"))  # both unknown
    assert "in 1 of 2 examples a choice begins" in Evaluator(model, of(start, other), "xx").note
    assert "in 1 of 2 examples the tokenizer" in Evaluator(model, of(alike, other), "xx").note
    assert Evaluator(model, of(other), "xx").note == ""


def test_bits_and_perplexity_are_ratios_of_sums(model: Model):
    evaluator = Evaluator(model, TEXTS, "xx")
    sure = likelihood(evaluator)
    whole = np.ones((model.grid.layers, model.grid.width))
    nats = -sum(sum(one) for e in evaluator.examples for one in slow(model, e, whole))
    found = text_rates(evaluator, sure)
    size = sum(len((e.target or "").encode()) for e in evaluator.examples)
    many = sum(len((e.target or "").split()) for e in evaluator.examples)
    assert found["bits_per_byte"] == pytest.approx(nats / np.log(2) / size)
    assert found["word_perplexity"] == pytest.approx(np.exp(nats / many))
    unspaced = Evaluator(model, replace(TEXTS, languages=("zh",)), "zh")
    assert [*text_rates(unspaced, sure)] == [
        "bits_per_byte",
        "bits_per_byte_low",
        "bits_per_byte_high",
    ]
    # a run of letters: no float holds this perplexity
    sure = replace(sure, nats=np.full_like(sure.nats, -1e4))
    assert [*text_rates(evaluator, sure)] == [
        "bits_per_byte",
        "bits_per_byte_low",
        "bits_per_byte_high",
    ]
    for name in ("bits_per_byte", "word_perplexity"):
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]


def test_the_interval_of_a_rate_holds_the_truth_as_often_as_it_says():
    """Documents of random size whose own rates differ; the rate of all documents is known."""
    held = 0
    runs = 150
    for seed in range(runs):
        rng = np.random.default_rng([seed, 4])
        groups = np.repeat(np.arange(40), rng.integers(1, 6, 40))
        own = rng.normal(1.0, 0.2, 40)[groups]
        sizes = rng.uniform(20, 60, len(groups))
        lost = sizes * (own + rng.normal(0, 0.1, len(groups)))
        _, low, high = nats_per_unit(
            lost, sizes, [str(g) for g in groups], (4.0, 10.0), seed=seed, draws=400
        )
        held += low <= 1.0 <= high
    assert held / runs > 0.9


def shapes(evaluator: Evaluator) -> Sequence[int]:
    return [
        int(batch.inputs["input_ids"].shape[1])
        for batch in evaluator.cut(np.arange(len(evaluator.examples)))
    ]


def test_rows_of_a_wider_batch_are_answered_as_alone(model: Model):
    for task in (CHOICES, TEXTS):
        evaluator = Evaluator(model, task, "xx")
        rows = np.argsort(evaluator.lengths)
        inputs = {name: tensor[:2] for name, tensor in evaluator.tensors(rows).items()}
        accuracy = value_function_of("log-probability")
        with torch.inference_mode():
            assert evaluator.worth(rows[:2], accuracy, inputs) == pytest.approx(
                evaluator.worth(rows[:2], accuracy)
            )
        assert max(shapes(evaluator)) == evaluator.lengths.max()
