"""Training on without gates: the baseline of pruning, which differs from it by the gates alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.expected_errors import raises
from support.toy_language import toy_task

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
    small = TranslationOptions(
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
    train_translation(toy_task().examples(PAIR, "train"), pair=PAIR, out=folder, options=small)
    return headlab.load(str(folder))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_the_weights_are_those_of_learning_gates_that_are_all_open(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = train_on(model, toy_task(), PAIR, out=tmp_path / "on", options=OPTIONS)
    plain = Learner.gates
    monkeypatch.setattr(
        Learner, "gates", lambda self, uniform: torch.ones_like(plain(self, uniform))
    )
    learn_gates(model, toy_task(), PAIR, options=OPTIONS, out=tmp_path / "gates")
    ours = weights(folder)
    theirs = weights(tmp_path / "gates")
    assert ours.keys() == theirs.keys()
    before = model.module.state_dict()
    assert any(not torch.equal(ours[name], before[name]) for name in ours)
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=1e-5), name


def test_heads_that_are_off_stay_off_without_a_mask(model: Model, tmp_path: Path):
    kept = np.ones(model.grid.size, bool)
    kept[[0, 3, 7]] = False
    folder = train_on(
        model, toy_task(), PAIR, out=tmp_path / "off", options=OPTIONS, mask=Mask(model.grid, kept)
    )
    found = headlab.load(str(folder))
    columns = found.projections[0].weight[:, :8]
    assert (columns == 0).all()
    record = json.loads((folder / "training.json").read_text())
    assert [tuple(head) for head in record["removed"]] == [
        tuple(h) for h in Mask(model.grid, kept).removed
    ]
    assert record["example_forwards"] == 6 * 16
    assert record["seconds"] >= 0
    assert "weight" not in record["options"]
    assert record["options"]["model_rate"] == 0.01
    other = Mask(HeadGrid.from_json({"encoder": [2, 2]}), np.ones(4, bool))
    with raises("mask.other_grid"):
        train_on(model, toy_task(), PAIR, out=tmp_path / "no", options=OPTIONS, mask=other)


def test_options_with_which_the_model_stays_are_refused(model: Model, tmp_path: Path):
    with raises("training.trained_in_part", "'gates'", "trained='all'"):
        train_on(model, toy_task(), PAIR, out=tmp_path / "no", options=GateOptions())
    assert not list(tmp_path.iterdir())


def test_a_model_trained_on_or_along_has_each_weight_once_on_disk(model: Model, tmp_path: Path):
    train_on(model, toy_task(), PAIR, out=tmp_path / "on", options=OPTIONS)
    learn_gates(model, toy_task(), PAIR, options=OPTIONS, out=tmp_path / "gates")
    for name in ("on", "gates"):
        written = weights(tmp_path / name)
        found = headlab.load(str(tmp_path / name)).module.state_dict()
        assert not [key for key in written if "embed_tokens" in key or "lm_head" in key]
        assert all(
            torch.equal(found[key], written["model.shared.weight"])
            for key in found
            if "embed_tokens" in key
        )


def test_it_goes_on_to_the_same_bits_and_leaves_the_given_model_alone(
    model: Model, tmp_path: Path, monkeypatch: Any
):
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    whole = train_on(model, toy_task(), PAIR, out=tmp_path / "whole", options=OPTIONS)
    monkeypatch.setattr(l0_learn, "CHECKPOINT_STEPS", 1)

    class Stop(Exception):
        pass

    def stop(step: Any) -> None:
        if step.step == 4:
            raise Stop

    with pytest.raises(Stop):
        train_on(model, toy_task(), PAIR, out=tmp_path / "cut", options=OPTIONS, progress=stop)
    steps: list[int] = []
    again = {
        "out": tmp_path / "cut",
        "options": OPTIONS,
        "progress": lambda step: steps.append(step.step),
    }
    cut = train_on(model, toy_task(), PAIR, **again)
    assert 1 < steps[0] <= 5
    assert all(torch.equal(tensor, weights(cut)[name]) for name, tensor in weights(whole).items())
    assert all(
        torch.equal(tensor, model.module.state_dict()[name]) for name, tensor in before.items()
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]
