"""A shrunk model as an ONNX file answers as the masked model does, for any number of rows and tokens."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch
from support.shrunk_families import random_model, uneven_mask
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer

from headlab.hooks import gated
from headlab.shrink import shrink_model
from headlab.shrink.folder import ONNX_PACKAGES, widest_batch, write_shrunk

MISSING_PACKAGES = [name for name in ONNX_PACKAGES if find_spec(name) is None]
# The suite tests an encoder alone; the soak a decoder, and two models that have both.
FAMILIES = (
    "bert",
    *(pytest.param(family, marks=pytest.mark.soak) for family in ("llama-lm", "marian", "t5")),
)


@pytest.mark.slow
@pytest.mark.skipif(
    bool(MISSING_PACKAGES),
    reason=f"the extra onnx is not installed: {', '.join(MISSING_PACKAGES)}",
)
@pytest.mark.parametrize("family", FAMILIES)
def test_onnxruntime_answers_as_the_masked_model(family, tmp_path):
    import onnxruntime

    model = random_model(family, tiny_tokenizer(), dtype=torch.float32)
    mask = uneven_mask(model)
    shrunk = shrink_model(model, mask)
    batches = [tiny_batch(model.module), tiny_batch(model.module, (9, 4), seed=3)]
    result = write_shrunk(model, shrunk, tmp_path / "m", batches, compared_on={}, onnx=True)
    session = onnxruntime.InferenceSession(
        str(result.folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    batch = tiny_batch(model.module, (3, 11, 6, 2), seed=5)
    inputs = {name: tensor.numpy() for name, tensor in batch.items()}
    (onnx_logits,) = session.run(["logits"], inputs)
    with gated(model, mask):
        masked_logits = model.module(**batch).logits
    compared = slice(None)
    if masked_logits.dim() == 3 and "decoder_input_ids" not in batch:
        compared = batch["attention_mask"].bool()
    torch.testing.assert_close(
        torch.as_tensor(onnx_logits)[compared], masked_logits[compared], atol=1e-3, rtol=0
    )
    proof = json.loads((result.folder / "proof.json").read_text())["onnx"]
    assert proof["max_logit_difference"] <= proof["tolerance"]
    assert proof["file"] == "model.onnx"
    assert proof["inputs"] == list(batch)


def test_a_trace_is_made_of_two_rows_or_more():
    batch = tiny_batch(random_model("bert").module, (4,))
    traced_batch = widest_batch([batch])
    shapes = {name: tuple(tensor.shape) for name, tensor in traced_batch.items()}
    assert shapes == dict.fromkeys(batch, (2, 4))
    assert torch.equal(traced_batch["input_ids"][0], traced_batch["input_ids"][1])
