"""A model with its weights in several places gives what the same folder gives on one device."""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_equal
from support.device_spreads import all_results, device_map_of
from support.expected_errors import raises
from support.pretended_devices import FIRST_DEVICE, SECOND_DEVICE, results_on_two_devices
from support.saved_models import save_family

import headlab
from headlab.cluster.distributed_game import Origin
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.shrink.model import shrink_model
from headlab.training.l0_learn import trainable_copy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(tmp_path_factory.mktemp("models") / "bert", "bert")


@pytest.fixture(scope="module")
def spread(folder: Path) -> Model:
    """A model whose weights are half on the disk."""
    device_map = device_map_of(headlab.load(folder).module, "cpu", "disk")
    return headlab.load(folder, device_map=device_map)


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2-lm", "mbart", "t5"])
def test_layers_on_the_disk_change_nothing(family: str, tmp_path: Path):
    one_device_model = headlab.load(save_family(tmp_path / "m", family))
    spread = headlab.load(
        tmp_path / "m", device_map=device_map_of(one_device_model.module, "cpu", "disk")
    )
    assert spread.is_offloaded
    assert not one_device_model.is_offloaded
    assert spread.spec_identity() == one_device_model.spec_identity()
    assert spread.grid == one_device_model.grid
    assert spread.resumable == one_device_model.resumable
    assert spread.first_token == one_device_model.first_token
    want = all_results(one_device_model)
    got = all_results(spread)
    assert want.keys() == got.keys()
    for name, value in want.items():
        assert_equal(got[name], value, name)
    # No pass has kept the weights that it read from the disk.
    assert any(weight.is_meta for weight in spread.module.parameters())


def test_one_device_by_a_strategy_is_that_device(folder: Path):
    """Without a GPU, every strategy is the CPU: such a model is not spread."""
    for strategy in ("auto", "sequential"):
        model = headlab.load(folder, device_map=strategy, dtype="bfloat16")
        assert str(model.device) == "cpu"
        assert model.dtype == "bfloat16"
        assert not model.is_offloaded
        model.require_whole("anything")


@pytest.mark.parametrize(
    ("load_options", "error_code", "named_in_message"),
    [
        ({"device_map": "auto", "device": "cpu"}, "device_map.and_device", []),
        ({"device_map": "everywhere"}, "device_map.unknown", ["everywhere", "balanced_low_0"]),
        ({"device_map": 1}, "argument.wrong_type", ["device_map"]),
        ({"device_map": {"": None}}, "argument.wrong_type", ["disk"]),
        ({"device_map": {"": "moon"}}, "device.unusable", ["moon"]),
        ({"device_map": {"": "meta"}}, "device.unusable", ["meta"]),
        ({"device_map": {"bert": "cpu"}}, "device_map.not_covering", ["classifier.weight"]),
        (
            {"device_map": {"": "cpu", "bert.pooler": "disk"}},
            "device_map.not_covering",
            ["bert.pooler.dense.weight"],
        ),
        ({"device_map": {"": "cpu", "bart": "cpu"}}, "device_map.not_covering", ["bart"]),
    ],
)
def test_a_map_that_cannot_be_used_is_refused(
    folder: Path,
    load_options: dict[str, Any],
    error_code: str,
    named_in_message: list[str],
):
    with raises(error_code, *named_in_message):
        headlab.load(folder, **load_options)


def test_embedded_models_are_loaded_whole():
    with raises("device_map.embedded", "e5-small-intents"):
        headlab.load("e5-small-intents", device_map="auto")


@pytest.mark.parametrize("family", ["mobilebert-lm", "marian"])
def test_a_weight_that_no_pass_finds_is_refused_with_a_sentence(family: str, tmp_path: Path):
    """Two such weights: one is used by another module than its own, one is computed and not stored.

    PyTorch would compute with the first as if it were there.
    """
    save_family(tmp_path / "m", family)
    with raises("device_map.not_running", "device_map"):
        headlab.load(tmp_path / "m", device_map={"": "disk"})


def test_what_needs_the_weights_refuses_a_spread_model(spread: Model):
    mask = Mask(spread.grid, np.arange(spread.grid.size) > 0)
    with raises("device_map.not_whole", spread.name):
        shrink_model(spread, mask)
    with raises("device_map.not_whole", spread.name):
        trainable_copy(spread, False)
    with raises("device_map.not_whole", spread.name):
        Origin.of(spread)


def test_weights_that_must_be_written_go_with_the_model(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert gettempdir() == str(tmp_path)
    model = headlab.load(folder, device_map={"": "disk"})
    assert len([*tmp_path.iterdir()]) == 1
    del model
    gc.collect()
    assert [*tmp_path.iterdir()] == []


def assert_almost_equal(got: dict[str, Any], want: dict[str, Any]) -> None:
    """The same results but for rounding, as two devices may add in another order."""
    assert got.keys() == want.keys()
    for name, value in want.items():
        if isinstance(value, np.ndarray):
            assert_allclose(got[name], value, atol=1e-5, err_msg=name)
        else:
            assert_equal(got[name], value, name)


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2-lm", "t5"])
def test_no_tensor_is_left_behind_on_another_device(
    family: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    # Accelerate picks the device of the inputs out of a set; with this seed it is the first device.
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    one_device_model = headlab.load(save_family(tmp_path / "m", family))
    devices = device_map_of(one_device_model.module, FIRST_DEVICE, SECOND_DEVICE)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        results = process.submit(results_on_two_devices, tmp_path / "m", devices).result()
    assert results.pop("grid") == one_device_model.grid
    assert results.pop("resumable") == (one_device_model.resumable, one_device_model.first_token)
    assert_almost_equal(results, all_results(one_device_model))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus(tmp_path: Path):
    one_device_model = headlab.load(save_family(tmp_path / "m", "llama"), device="cuda:0")
    device_map = device_map_of(one_device_model.module, "cuda:0", "cuda:1")
    spread = headlab.load(tmp_path / "m", device_map=device_map)
    assert_almost_equal(all_results(spread), all_results(one_device_model))
