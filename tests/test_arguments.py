"""Arguments of the wrong type: the library says what it was given and what fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.hooks import Model
from headlab.results import HeadScores, Store


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def scores(model: Model) -> HeadScores:
    return headlab.score(model, tiny_task(), language="xx", method="gradient", size=8)


def test_the_public_names_are_listed():
    assert set(headlab.__all__) <= set(dir(headlab))


# A call with an argument of a wrong type, the argument's name, and its value as the error has it.
CALLS = {
    "load a number": (lambda model, scores: headlab.load(3), "name", 3),
    "load nothing": (lambda model, scores: headlab.load(None), "name", "None"),
    "read a mask": (lambda model, scores: headlab.load_mask(None), "path", "None"),
    "read a shrunk model": (lambda model, scores: headlab.load_shrunk(7), "folder", 7),
    "a store": (lambda model, scores: Store(7), "root", 7),
    "languages": (lambda model, scores: headlab.task("intents", 3), "languages", 3),
    "gates": (
        lambda model, scores: headlab.gated(model, "mask.json").__enter__(),
        "gates",
        "mask.json",
    ),
    "a mask's path": (
        lambda model, scores: headlab.evaluate(model, tiny_task(), "mask.json"),
        "mask",
        "mask.json",
    ),
    "a model's name": (
        lambda model, scores: headlab.evaluate("tiny", tiny_task()),
        "model",
        "tiny",
    ),
    "a task's name": (lambda model, scores: headlab.evaluate(model, "intents"), "task", "intents"),
    "a size": (lambda model, scores: headlab.evaluate(model, tiny_task(), size=1.5), "size", 1.5),
    "a score's task": (lambda model, scores: headlab.score(model, "intents"), "task", "intents"),
    "a score's seed": (
        lambda model, scores: headlab.score(model, tiny_task(), language="xx", seed=1.5),
        "seed",
        1.5,
    ),
    "a score's store": (
        lambda model, scores: headlab.score(model, tiny_task(), store="cache"),
        "store",
        "cache",
    ),
    "a curve's scores": (
        lambda model, scores: headlab.prune_curve(model, tiny_task(), scores=3),
        "scores",
        3,
    ),
    "a curve's model": (
        lambda model, scores: headlab.prune_curve("tiny", tiny_task(), scores=scores),
        "model",
        "tiny",
    ),
    "a curve's points": (
        lambda model, scores: headlab.prune_curve(model, tiny_task(), scores=scores, points=2.5),
        "points",
        2.5,
    ),
    "heads to remove": (lambda model, scores: scores.mask("bottom", k=1.5), "k", 1.5),
    "true as a number": (lambda model, scores: scores.mask("bottom", k=True), "k", "True"),
    "a threshold": (
        lambda model, scores: scores.mask("threshold", threshold="0.1"),
        "threshold",
        "0.1",
    ),
}


@pytest.mark.parametrize("title", CALLS)
def test_a_wrong_type_is_refused(title: str, model: Model, scores: HeadScores) -> None:
    call, argument, value = CALLS[title]
    with raises("argument.wrong_type", argument, value):
        call(model, scores)


def test_languages_may_come_in_any_collection_and_gates_in_any_nesting(model: Model) -> None:
    assert headlab.task("intents", dict.fromkeys(["de", "fr"]).keys()).languages == ("de", "fr")
    with headlab.gated(model, ((1, 1, 0, 1),) * 3):
        pass


def test_numbers_of_numpy_and_paths_are_taken(
    model: Model, scores: HeadScores, tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "cache"))
    three = np.int64(3)
    scores_by_numpy_numbers = headlab.score(
        model,
        tiny_task(),
        language="xx",
        method="gradient",
        size=np.int64(8),
        seed=three,
        store=store,
    )
    assert (scores_by_numpy_numbers.values == scores.values).all()
    assert store.scan().results[0].record.spec["seed"] == 3
    scores.mask("bottom", k=three).save(tmp_path / "mask.json")
    assert headlab.load_mask(tmp_path / "mask.json").chosen["k"] == 3
    with raises("model.no_safetensors"):
        headlab.load(tmp_path)
