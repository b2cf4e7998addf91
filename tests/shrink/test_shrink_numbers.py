"""The numbers a shrunk model's weights are written in: the checkpoint's own, or rounded to others, which is told."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from support.expected_errors import raises
from support.saved_models import save
from support.shrunk_families import logits, model_of, uneven
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.hooks import gated
from headlab.shrink import shrink_model
from headlab.shrink.folder import write_shrunk
from headlab.shrink.model import checkpoint_dtype, dtype_to_write, rounded_weights


def on_disk(folder, family, numbers, *, loaded="float32"):
    """A tiny model read from a folder that has it in these numbers."""
    made = model_of(family, tiny_tokenizer(), dtype=getattr(torch, numbers))
    return headlab.load(
        str(save(folder, made.module, tiny_tokenizer())), dtype=loaded, device="cpu"
    )


def written(model, out, dtype=None):
    batch = tiny_batch(model.module)
    return write_shrunk(
        model, shrink_model(model, uneven(model)), out, [batch], compared_on={}, dtype=dtype
    )


def numbers_in(folder):
    return {
        str(t.dtype).removeprefix("torch.")
        for t in load_file(folder / "model.safetensors").values()
    }


@pytest.mark.parametrize("family", ["bert", "llama", "t5", "marian", "gpt2"])
@pytest.mark.parametrize("numbers", ["bfloat16", "float16", "float32"])
def test_weights_are_written_as_the_checkpoint_has_them_and_compared_in_float32(
    family, numbers, tmp_path
):
    model = on_disk(tmp_path / "m", family, numbers)
    found = written(model, tmp_path / "out").record
    assert (found["dtype_before"], found["dtype_after"], found["computed_in"]) == (
        numbers,
        numbers,
        "float32",
    )
    assert numbers_in(tmp_path / "out") == {numbers}
    assert found["cut_alone"] is None
    assert found["max_logit_difference"] <= found["tolerance"] < 1e-2
    assert (
        found["bytes_after"]
        == (tmp_path / "out" / "model.safetensors").stat().st_size
        < found["bytes_before"]
    )
    # what is in the folder, and not what was in memory, answers so
    again = headlab.load(str(tmp_path / "out"), device="cpu")
    batch = tiny_batch(model.module)
    with gated(model, uneven(model)):
        want = logits(model.module, batch)
    torch.testing.assert_close(logits(again.module, batch), want, atol=found["tolerance"], rtol=0)


def test_a_model_of_float64_is_written_so(tmp_path):
    model = on_disk(tmp_path / "m", "bert", "float64", loaded="float64")
    assert written(model, tmp_path / "out").record["computed_in"] == "float64"
    assert numbers_in(tmp_path / "out") == {"float64"}


@pytest.mark.parametrize("numbers", ["float16", "bfloat16"])
def test_rounding_is_told_apart_from_the_cut(numbers, tmp_path):
    model = on_disk(tmp_path / "m", "bert", "float32")
    before = {name: t.clone() for name, t in model.module.state_dict().items()}
    found = written(model, tmp_path / "out", numbers).record
    assert (found["dtype_before"], found["dtype_after"]) == ("float32", numbers)
    assert numbers_in(tmp_path / "out") == {numbers}
    cut = found["cut_alone"]
    assert cut["max_logit_difference"] <= cut["tolerance"] < found["tolerance"]
    assert cut["max_logit_difference"] < found["max_logit_difference"] / 10
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"the others were rounded from float32 to {numbers}" in card
    assert "nothing else changed" not in card
    assert f"| dtype of the weights | float32 | {numbers} |" in card
    assert f"That is the rounding to {numbers}." in card
    assert all(torch.equal(before[name], t) for name, t in model.module.state_dict().items())


def test_numbers_that_cannot_hold_the_weights_are_refused_and_named(tmp_path):
    model = on_disk(tmp_path / "m", "bert", "float32")
    with torch.no_grad():
        model.module.bert.embeddings.LayerNorm.weight.mul_(1e6)
    with raises("shrink.original_not_finite", "--dtype float32"):
        written(model, tmp_path / "out", "float16")
    with raises("dtype.unknown", "'int8'", "float32"):
        written(model, tmp_path / "out", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_rounding_that_changes_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("headlab.shrink.proof.TOLERANCE", {"float32": 1e-4, "bfloat16": 1e-6})
    model = on_disk(tmp_path / "m", "bert", "float32")
    with raises("shrink.rounding_too_large", "bfloat16", "--dtype"):
        written(model, tmp_path / "out", "bfloat16")


def test_weights_that_were_changed_since_they_were_loaded_are_not_rounded_unasked(tmp_path):
    model = on_disk(tmp_path / "m", "bert", "bfloat16")
    assert (checkpoint_dtype(model), dtype_to_write(model)) == ("bfloat16", "bfloat16")
    with torch.no_grad():
        model.module.classifier.bias.add_(1e-4)
    assert dtype_to_write(model) == "float32"
    assert (
        dtype_to_write(on_disk(tmp_path / "n", "bert", "float32", loaded="bfloat16")) == "bfloat16"
    )


def test_rounding_is_undone_whatever_happens():
    module = model_of("t5", dtype=torch.float32).module
    before = {name: t.clone() for name, t in module.state_dict().items()}
    with rounded_weights(module, "bfloat16") as changed:
        assert changed
        assert all(torch.equal(t, t.bfloat16().float()) for t in module.state_dict().values())
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())
    with pytest.raises(KeyboardInterrupt), rounded_weights(module, "bfloat16"):
        raise KeyboardInterrupt
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())
    with rounded_weights(module, "float32") as changed:
        assert not changed
