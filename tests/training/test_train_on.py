"""Training on without gates: the baseline of pruning, which differs from it by the gates alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.toy_language import toy_task
from support.training_runs import Stop, assert_same_weights, model_weights

pytest.importorskip("sentencepiece")

import headlab
from headlab.core import HeadGrid
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.training import GateOptions, TranslationOptions, l0_learn
from headlab.training.l0_learn import Learner, learn_gates, train_on
from headlab.training.translation import train_translation

OPTIONS = GateOptions(steps=6, batch=16, trained="all", model_rate=0.01, dev_size=4, test_size=4)
PAIR = "aa-bb"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    options = TranslationOptions(
        steps=3,
        batch=16,
        warmup=2,
        vocabulary=40,
        width=16,
        feed_forward=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_heads=2,
        decoder_heads=4,
    )
    folder = tmp_path_factory.mktemp("on") / "model"
    examples = toy_task().examples(PAIR, "train")
    train_translation(examples, pair=PAIR, out=folder, options=options)
    return headlab.load(str(folder))


def test_the_weights_are_those_of_learning_gates_that_are_all_open(
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    folder = train_on(model, toy_task(), PAIR, out=tmp_path / "on", options=OPTIONS)
    original_gates = Learner.gates

    def open_gates(self: Learner, uniforms: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(original_gates(self, uniforms))

    monkeypatch.setattr(Learner, "gates", open_gates)
    learn_gates(model, toy_task(), PAIR, options=OPTIONS, out=tmp_path / "gates")
    weights = model_weights(folder)
    weights_with_open_gates = model_weights(tmp_path / "gates")
    assert weights.keys() == weights_with_open_gates.keys()
    weights_before = model.module.state_dict()
    assert any(not torch.equal(tensor, weights_before[name]) for name, tensor in weights.items())
    for name, tensor in weights.items():
        assert torch.allclose(tensor, weights_with_open_gates[name], atol=1e-5), name


def test_heads_that_are_off_stay_off_without_a_mask(model: Model, tmp_path: Path):
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[0, 3, 7]] = False
    mask = Mask(model.grid, kept_heads)
    folder = train_on(
        model,
        toy_task(),
        PAIR,
        out=tmp_path / "off",
        options=OPTIONS,
        mask=mask,
    )
    trained_model = headlab.load(str(folder))
    columns_of_first_head = trained_model.projections[0].weight[:, :8]
    assert (columns_of_first_head == 0).all()
    record = json.loads((folder / "training.json").read_text())
    recorded_heads = [tuple(head) for head in record["removed"]]
    assert recorded_heads == [tuple(head) for head in mask.removed]
    assert record["example_forwards"] == 6 * 16
    assert record["seconds"] >= 0
    assert "weight" not in record["options"]
    assert record["options"]["model_rate"] == 0.01
    other_grid = HeadGrid.from_json({"encoder": [2, 2]})
    other_mask = Mask(other_grid, np.ones(4, bool))
    with raises("mask.other_grid"):
        train_on(
            model,
            toy_task(),
            PAIR,
            out=tmp_path / "no",
            options=OPTIONS,
            mask=other_mask,
        )


def test_options_that_leave_the_model_untrained_are_refused(model: Model, tmp_path: Path):
    with raises("training.trained_in_part", "'gates'", "trained='all'"):
        train_on(
            model,
            toy_task(),
            PAIR,
            out=tmp_path / "no",
            options=GateOptions(),
        )
    assert not list(tmp_path.iterdir())


def test_a_model_trained_on_or_jointly_has_each_weight_once_on_disk(model: Model, tmp_path: Path):
    train_on(model, toy_task(), PAIR, out=tmp_path / "on", options=OPTIONS)
    learn_gates(model, toy_task(), PAIR, options=OPTIONS, out=tmp_path / "gates")
    for name in ("on", "gates"):
        stored_weights = model_weights(tmp_path / name)
        assert not [key for key in stored_weights if "embed_tokens" in key or "lm_head" in key]
        loaded_weights = headlab.load(str(tmp_path / name)).module.state_dict()
        for key, tensor in loaded_weights.items():
            if "embed_tokens" in key:
                assert torch.equal(tensor, stored_weights["model.shared.weight"])


def test_it_resumes_to_the_same_bits_and_leaves_the_given_model_alone(
    model: Model,
    tmp_path: Path,
    monkeypatch: Any,
):
    weights_before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    uninterrupted_folder = train_on(
        model, toy_task(), PAIR, out=tmp_path / "whole", options=OPTIONS
    )
    monkeypatch.setattr(l0_learn, "CHECKPOINT_STEPS", 1)

    def stop(step: Any) -> None:
        if step.step == 4:
            raise Stop

    with pytest.raises(Stop):
        train_on(
            model,
            toy_task(),
            PAIR,
            out=tmp_path / "cut",
            options=OPTIONS,
            progress=stop,
        )
    steps: list[int] = []
    resumed_folder = train_on(
        model,
        toy_task(),
        PAIR,
        out=tmp_path / "cut",
        options=OPTIONS,
        progress=lambda step: steps.append(step.step),
    )
    assert 1 < steps[0] <= 5
    assert_same_weights(resumed_folder, uninterrupted_folder)
    weights_after = model.module.state_dict()
    for name, tensor in weights_before.items():
        assert torch.equal(tensor, weights_after[name])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]
