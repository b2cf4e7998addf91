"""A shrunk model as an ONNX file answers as the masked model does, for any number of rows and tokens."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch
from support.shrunk_families import model_of, uneven
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer

from headlab.hooks import gated
from headlab.shrink import shrink_model
from headlab.shrink.folder import ONNX_PACKAGES, widest_batch, write_shrunk

LACKING = [name for name in ONNX_PACKAGES if find_spec(name) is None]
# An encoder; the soak has a decoder alone, and two with both.
FAMILIES = (
    "bert",
    *(pytest.param(family, marks=pytest.mark.soak) for family in ("llama-lm", "marian", "t5")),
)


@pytest.mark.slow
@pytest.mark.skipif(bool(LACKING), reason=f"the extra onnx is not installed: {', '.join(LACKING)}")
@pytest.mark.parametrize("family", FAMILIES)
def test_onnxruntime_answers_as_the_masked_model(family, tmp_path):
    import onnxruntime

    model = model_of(family, tiny_tokenizer(), dtype=torch.float32)
    mask = uneven(model)
    batches = [tiny_batch(model.module), tiny_batch(model.module, (9, 4), seed=3)]
    out = write_shrunk(
        model, shrink_model(model, mask), tmp_path / "m", batches, compared_on={}, onnx=True
    ).folder
    session = onnxruntime.InferenceSession(
        str(out / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    other = tiny_batch(model.module, (3, 11, 6, 2), seed=5)
    (got,) = session.run(["logits"], {name: t.numpy() for name, t in other.items()})
    with gated(model, mask):
        want = model.module(**other).logits
    real = (
        other["attention_mask"].bool()
        if want.dim() == 3 and "decoder_input_ids" not in other
        else slice(None)
    )
    torch.testing.assert_close(torch.as_tensor(got)[real], want[real], atol=1e-3, rtol=0)
    proof = json.loads((out / "proof.json").read_text())["onnx"]
    assert proof["max_logit_difference"] <= proof["tolerance"]
    assert (proof["file"], proof["inputs"]) == ("model.onnx", list(other))


def test_a_trace_is_made_of_two_rows_or_more():
    batch = tiny_batch(model_of("bert").module, (4,))
    wide = widest_batch([batch])
    assert {name: tuple(t.shape) for name, t in wide.items()} == dict.fromkeys(batch, (2, 4))
    assert torch.equal(wide["input_ids"][0], wide["input_ids"][1])
