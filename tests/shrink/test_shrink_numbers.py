"""The dtype in which a shrunk model is written: the checkpoint's, or another that weights are rounded to, which is told."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from support.expected_errors import raises
from support.saved_models import save_model
from support.shrunk_families import logits, random_model, uneven_mask
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.hooks import gated
from headlab.shrink import shrink_model
from headlab.shrink.folder import write_shrunk
from headlab.shrink.model import checkpoint_dtype, dtype_to_write, rounded_weights


def save_and_load(folder, family, saved_dtype, *, loaded_dtype="float32"):
    """A tiny model read from a folder that has its weights in another dtype."""
    original = random_model(family, tiny_tokenizer(), dtype=getattr(torch, saved_dtype))
    save_model(folder, original.module, tiny_tokenizer())
    return headlab.load(str(folder), dtype=loaded_dtype, device="cpu")


def write_shrunk_model(model, folder, dtype=None):
    shrunk = shrink_model(model, uneven_mask(model))
    batches = [tiny_batch(model.module)]
    return write_shrunk(model, shrunk, folder, batches, compared_on={}, dtype=dtype)


def stored_dtypes(folder):
    weights = load_file(folder / "model.safetensors").values()
    return {str(weight.dtype).removeprefix("torch.") for weight in weights}


def copy_of_weights(module):
    return {name: weight.clone() for name, weight in module.state_dict().items()}


def assert_same_weights(module, weights):
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, weights[name]), name


@pytest.mark.parametrize("family", ["bert", "llama", "t5", "marian", "gpt2"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_weights_are_written_as_the_checkpoint_has_them_and_compared_in_float32(
    family, dtype, tmp_path
):
    folder = tmp_path / "out"
    model = save_and_load(tmp_path / "m", family, dtype)
    proof = write_shrunk_model(model, folder).record
    assert proof["dtype_before"] == proof["dtype_after"] == dtype
    assert proof["computed_in"] == "float32"
    assert stored_dtypes(folder) == {dtype}
    assert proof["cut_alone"] is None
    assert proof["max_logit_difference"] <= proof["tolerance"] < 1e-2
    file_size = (folder / "model.safetensors").stat().st_size
    assert proof["bytes_after"] == file_size < proof["bytes_before"]
    # what is in the folder, and not what was in memory, answers so
    shrunk_model = headlab.load(str(folder), device="cpu")
    batch = tiny_batch(model.module)
    with gated(model, uneven_mask(model)):
        masked_logits = logits(model.module, batch)
    torch.testing.assert_close(
        logits(shrunk_model.module, batch), masked_logits, atol=proof["tolerance"], rtol=0
    )


def test_a_model_of_float64_is_written_in_float64(tmp_path):
    model = save_and_load(tmp_path / "m", "bert", "float64", loaded_dtype="float64")
    assert write_shrunk_model(model, tmp_path / "out").record["computed_in"] == "float64"
    assert stored_dtypes(tmp_path / "out") == {"float64"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_is_told_apart_from_the_cut(dtype, tmp_path):
    model = save_and_load(tmp_path / "m", "bert", "float32")
    weights_before = copy_of_weights(model.module)
    proof = write_shrunk_model(model, tmp_path / "out", dtype).record
    assert proof["dtype_before"] == "float32"
    assert proof["dtype_after"] == dtype
    assert stored_dtypes(tmp_path / "out") == {dtype}
    proof_before_rounding = proof["cut_alone"]
    assert (
        proof_before_rounding["max_logit_difference"]
        <= proof_before_rounding["tolerance"]
        < proof["tolerance"]
    )
    assert proof_before_rounding["max_logit_difference"] < proof["max_logit_difference"] / 10
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"the others were rounded from float32 to {dtype}" in card
    assert "nothing else changed" not in card
    assert f"| dtype of the weights | float32 | {dtype} |" in card
    assert f"That is the rounding to {dtype}." in card
    assert_same_weights(model.module, weights_before)


def test_numbers_that_cannot_hold_the_weights_are_refused_and_named(tmp_path):
    model = save_and_load(tmp_path / "m", "bert", "float32")
    with torch.no_grad():
        model.module.bert.embeddings.LayerNorm.weight.mul_(1e6)
    with raises("shrink.original_not_finite", "--dtype float32"):
        write_shrunk_model(model, tmp_path / "out", "float16")
    with raises("dtype.unknown", "'int8'", "float32"):
        write_shrunk_model(model, tmp_path / "out", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_rounding_that_changes_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("headlab.shrink.proof.TOLERANCE", {"float32": 1e-4, "bfloat16": 1e-6})
    model = save_and_load(tmp_path / "m", "bert", "float32")
    with raises("shrink.rounding_too_large", "bfloat16", "--dtype"):
        write_shrunk_model(model, tmp_path / "out", "bfloat16")


def test_weights_that_were_changed_since_they_were_loaded_are_not_rounded_unasked(tmp_path):
    model = save_and_load(tmp_path / "m", "bert", "bfloat16")
    assert checkpoint_dtype(model) == dtype_to_write(model) == "bfloat16"
    with torch.no_grad():
        model.module.classifier.bias.add_(1e-4)
    assert dtype_to_write(model) == "float32"
    bfloat16_model = save_and_load(tmp_path / "n", "bert", "float32", loaded_dtype="bfloat16")
    assert dtype_to_write(bfloat16_model) == "bfloat16"


def test_rounding_is_undone_whatever_happens():
    module = random_model("t5", dtype=torch.float32).module
    weights_before = copy_of_weights(module)
    with rounded_weights(module, "bfloat16") as has_changed:
        assert has_changed
        for weight in module.state_dict().values():
            assert torch.equal(weight, weight.bfloat16().float())
    assert_same_weights(module, weights_before)
    with pytest.raises(KeyboardInterrupt), rounded_weights(module, "bfloat16"):
        raise KeyboardInterrupt
    assert_same_weights(module, weights_before)
    with rounded_weights(module, "float32") as has_changed:
        assert not has_changed
