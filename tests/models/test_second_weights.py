"""Files of weights that are not loaded: neither shown nor counted, and what was recorded while they counted stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from support.expected_errors import raises
from support.saved_models import save_family
from support.tiny_task import tiny_task

import headlab
from headlab.core import former_specs, is_same_model
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models.files import fingerprint_files
from headlab.models.load import examine_model
from headlab.results import Store
from headlab.training.output import find_base

SINGLE = "model.safetensors"
SECOND = "consolidated.safetensors"
UNUSED_FILES = [
    SECOND,
    "model.fp16.safetensors",
    "adapter_model.safetensors",
    "model-00001-of-00002.safetensors",
    "original/model.safetensors",
    "pytorch_model.bin",
    "optimizer.pt",
    "tf_model.h5",
    "model.Q4_K_M.gguf",
]


def load_on_cpu(folder: Path) -> Model:
    return headlab.load(folder, device="cpu")


def earlier_fingerprint(folder: Path) -> str:
    """The fingerprint that versions which counted every safetensors file gave."""
    patterns = (
        "*.safetensors",
        "tokenizer*.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab*",
    )
    files = {folder / "config.json"}
    for pattern in patterns:
        files |= set(folder.glob(pattern))
    return fingerprint_files((path.name, path) for path in files)


def add_second_file(folder: Path, name: str = SECOND) -> Path:
    """Put the same weights into the folder a second time."""
    (folder / name).parent.mkdir(exist_ok=True)
    shutil.copy(folder / SINGLE, folder / name)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_family(tmp_path / "m", "bert")


def size_shown(folder: Path) -> str:
    return next(fact.words for fact in examine_model(str(folder)) if fact.what == "Weights")


@pytest.mark.parametrize("name", UNUSED_FILES)
def test_reported_18_a_file_that_is_not_loaded_changes_neither_size_nor_fingerprint(folder, name):
    fingerprint = load_on_cpu(folder).fingerprint
    size = size_shown(folder)
    assert fingerprint == earlier_fingerprint(folder)  # without such a file it is what it was
    add_second_file(folder, name)
    assert load_on_cpu(folder).fingerprint == fingerprint
    assert size_shown(folder) == size
    assert find_base(str(folder)).sha256 == fingerprint


def split_into_shards(folder: Path) -> Path:
    """Split the weights into two files with an index."""
    weights = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    names = sorted(weights)
    file_by_name = {}
    for number, names_in_shard in enumerate((names[::2], names[1::2]), 1):
        file_name = f"model-{number:05}-of-00002.safetensors"
        shard = {name: weights[name] for name in names_in_shard}
        save_file(shard, folder / file_name, metadata={"format": "pt"})
        file_by_name |= dict.fromkeys(names_in_shard, file_name)
    index = {"metadata": {}, "weight_map": file_by_name}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_reported_18_shards_that_the_index_does_not_name_do_not_count(folder):
    fingerprint = load_on_cpu(split_into_shards(folder)).fingerprint
    size = size_shown(folder)
    assert fingerprint == earlier_fingerprint(folder)
    for number in (1, 2, 3):
        shutil.copy(
            folder / "model-00001-of-00002.safetensors",
            folder / f"model-0000{number}-of-00003.safetensors",
        )
    assert load_on_cpu(folder).fingerprint == fingerprint
    assert size_shown(folder) == size


def test_reported_18_weights_named_by_the_configuration_count(folder):
    add_second_file(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"transformers_weights": SECOND}))
    fingerprint = load_on_cpu(folder).fingerprint
    (folder / SINGLE).unlink()
    assert load_on_cpu(folder).fingerprint == fingerprint == earlier_fingerprint(folder)


def test_reported_18_a_second_file_that_cannot_be_read_is_no_trouble(folder):
    fingerprint = load_on_cpu(folder).fingerprint
    (folder / SECOND).mkdir()
    assert load_on_cpu(folder).fingerprint == fingerprint


def test_reported_18_masks_of_the_old_fingerprint_are_of_this_model(folder):
    old_fingerprint = earlier_fingerprint(add_second_file(folder))
    model = load_on_cpu(folder)
    assert old_fingerprint != model.fingerprint
    is_kept = np.ones(model.grid.size, dtype=bool)
    is_kept[0] = False
    mask = Mask(model.grid, is_kept, {"name": "m", "fingerprint": old_fingerprint})
    mask.check(model.grid, model.fingerprint)
    assert {*headlab.evaluate(model, tiny_task(), mask)} == {*tiny_task().languages}
    mask_of_other_model = Mask(model.grid, is_kept, {"name": "m", "fingerprint": "0" * 64})
    with raises("mask.other_model"):
        mask_of_other_model.check(model.grid, model.fingerprint)


def test_reported_18_scores_of_the_old_fingerprint_are_not_computed_again(folder, tmp_path):
    model = load_on_cpu(add_second_file(folder))
    store = Store(tmp_path / "cache")
    options = {"language": "xx", "method": "gradient", "store": store}
    scores = headlab.score(model, tiny_task(), **options)
    specs = {spec["model"]["fingerprint"]: spec for spec in former_specs(scores.spec)}
    earlier_spec = specs[earlier_fingerprint(folder)]
    stored_run = store.run(scores.spec)
    earlier_store = Store(tmp_path / "earlier")
    earlier_store.run(earlier_spec).finish(scores, {})
    shutil.rmtree(stored_run.folder)
    scores_from_store = headlab.score(model, tiny_task(), **options | {"store": earlier_store})
    assert np.array_equal(scores_from_store.values, scores.values)
    assert [path.name for path in earlier_store.folders()] == [earlier_store.run(earlier_spec).key]
    curve = headlab.prune_curve(
        model, tiny_task(), scores=scores_from_store, language="xx", points=3, store=earlier_store
    )
    assert is_same_model(curve.spec["model"]["fingerprint"], model.fingerprint)
