"""Outputs that are not finite: no method and no evaluation takes them for answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.saved_models import save_classifier
from support.several_answers import PAIRS, WORDS
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.evaluation import Evaluator, likelihood, translations
from headlab.hooks import Model, attention_of_heads
from headlab.masks import Mask
from headlab.methods import METHODS
from headlab.methods.run import score
from headlab.roles import of_task
from headlab.roles.study import study
from headlab.tasks import Task

CODE = "model.answers_not_finite"
KINDS = {
    "texts": ("bert", tiny_task()),
    "words": ("bert-tokens", WORDS),
    "pairs": ("marian", PAIRS),
}
# so many that each of 24 examples is drawn
OPTIONS = {name: {"samples": 32} for name in ("shapley", "monte-carlo", "paper")}


def spoilt_model(family: str, task: Task, value: float) -> tuple[Model, str]:
    """A model in which one word is not finite, and the id of the only example that has it.

    The words of a Marian are its outputs, too, so that every example of it fails and the id is "".
    """
    model = tiny_model(family, torch.float32, tokenizer=tiny_tokenizer())
    examples = task.examples("xx", "dev")
    ids_by_example = []
    for example in examples:
        tokens = model.tokenizer(example.text)
        ids_by_example.append(set(tokens["input_ids"]))
    for index, example_ids in enumerate(ids_by_example):
        ids_before = set().union(*ids_by_example[:index])
        ids_after = set().union(*ids_by_example[index + 1 :])
        unique_ids = example_ids - ids_before - ids_after
        if unique_ids:
            embeddings = model.module.get_input_embeddings()
            with torch.no_grad():
                embeddings.weight[min(unique_ids)] = value
            if family == "marian":
                return model, ""
            return model, examples[index].id
    raise AssertionError("every word is in several examples")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_stops_and_names_the_example(kind, value):
    model, name = spoilt_model(*KINDS[kind], value)
    evaluator = Evaluator(model, KINDS[kind][1], "xx")
    mask_without_one = Mask(model.grid, np.arange(model.grid.size) != 1)
    for mask in (None, mask_without_one):
        with raises(CODE, name, "xx", "dev"):
            evaluator.evaluate(mask)
    n = len(evaluator.examples)
    is_kept = np.ones((n, model.grid.size), bool)
    gates = model.grid.gates(is_kept)
    with raises(CODE, name):
        evaluator.correct(gates, np.arange(n))


@pytest.mark.parametrize("method", [key for key in METHODS if key not in ("random", "exact")])
def test_no_method_scores_heads_by_outputs_that_are_not_finite(method):
    model, _ = spoilt_model(*KINDS["texts"], float("nan"))
    options = OPTIONS.get(method, {})
    with raises(CODE, model.name):
        score(model, tiny_task(), language="xx", method=method, size=24, **options)


@pytest.mark.parametrize("value", ["probability", "log-probability"])
def test_no_value_function_takes_probabilities_that_are_not_finite(value):
    model, _ = spoilt_model(*KINDS["texts"], float("nan"))
    with raises(CODE, model.name):
        score(model, tiny_task(), language="xx", size=24, samples=32, value=value)


def test_a_class_that_is_never_possible_is_no_answer_either():
    model = tiny_model("bert", torch.float32, tokenizer=tiny_tokenizer())
    with torch.no_grad():
        model.module.classifier.bias[2] = float("-inf")
    with raises(CODE, "float32" if model.dtype != "float32" else "damaged"):
        Evaluator(model, tiny_task(), "xx").evaluate()


def test_translations_and_their_likelihood_stop():
    model, name = spoilt_model(*KINDS["pairs"], float("nan"))
    evaluator = Evaluator(model, PAIRS, "xx")
    with raises(CODE, name):
        likelihood(evaluator)
    with raises(CODE, "translates"):
        translations(evaluator)


def test_attention_stops():
    model, name = spoilt_model(*KINDS["texts"], float("nan"))
    texts = {example.id: example.text for example in tiny_task().examples("xx", "dev")}
    head = model.grid.heads[1]
    for example, text in texts.items():
        inputs = model.tokenizer(text, return_tensors="pt")
        if example != name:
            attention = attention_of_heads(model, inputs, [head])[head]
            assert attention.isfinite().all()
        else:
            with raises(CODE, head.layer, head.head):
                attention_of_heads(model, inputs, [head])


def test_roles_stop():
    model, _ = spoilt_model(*KINDS["texts"], float("nan"))
    with raises(CODE, "sentences"):
        study(model, of_task(tiny_task(), "xx", "dev", 24))


def test_a_model_that_never_gives_finite_outputs_is_refused_when_it_is_loaded(tmp_path):
    folder = save_classifier(tmp_path / "model")
    headlab.load(str(folder))
    weights = folder / "model.safetensors"
    from safetensors.torch import load_file, save_file

    tensors = load_file(weights)
    tensors["classifier.bias"][0] = float("nan")
    save_file(tensors, weights, {"format": "pt"})
    with raises(CODE, "damaged"):
        headlab.load(str(folder))
