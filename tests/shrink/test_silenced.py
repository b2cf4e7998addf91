"""Heads silenced in the weights: a plain model of its family that answers as the masked one."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from reference import silenced_projection
from support.expected_errors import raises
from support.saved_models import save_model
from support.shrunk_families import (
    SHRINKABLE,
    all_attention_model,
    logits,
    mask_of,
    random_model,
    uneven_mask,
)
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer
from torch import nn

import headlab
from headlab.hooks import Model, gated, head_means
from headlab.masks import Mask
from headlab.shrink import shrink_model, silence_model
from headlab.shrink.folder import write_shrunk
from headlab.shrink.proof import random_inputs

CLOSE: dict[str, Any] = {"atol": 1e-9, "rtol": 0}
OTHER_FAMILIES = ("deberta-v2", "modernbert", "bloom", "xlm")
"""Families that cannot be shrunk."""
WITH_BIAS = ("bert", "distilbert", "deberta-v2", "marian", "gpt2", "llama-biased", "bloom", "xlm")
WITHOUT_BIAS = ("llama", "t5", "qwen3", "modernbert")
FIGURES = {"accuracy": 0.5, "n": 100, "baseline": 0.6}


def mean_mask(model: Model) -> Mask:
    """The uneven mask, as if it had been chosen under mean ablation."""
    return mask_of(model, uneven_mask(model).kept, ablation="mean")


def means_on(model: Model, seed: int = 5) -> torch.Tensor:
    return head_means(model, [tiny_batch(model.module, (9, 7, 8, 9), seed)])


def assert_silenced(model: Model, mask: Mask, means: torch.Tensor | None = None) -> nn.Module:
    """The silenced model gives the masked model's outputs, which are not the untouched model's."""
    batch = tiny_batch(model.module)
    ablation = "zero" if means is None else "mean"
    with gated(model, mask, ablation=ablation, means=means):
        masked_logits = logits(model.module, batch)
    assert (logits(model.module, batch) - masked_logits).abs().max() > 1e-3
    silenced = silence_model(model, mask, means)
    torch.testing.assert_close(logits(silenced.module, batch), masked_logits, **CLOSE)
    assert silenced.form == "folder"
    assert silenced.masked_heads == mask.removed
    assert silenced.removed_count == 0
    return silenced.module


@pytest.mark.parametrize("family", [*SHRINKABLE, *OTHER_FAMILIES])
def test_transformers_alone_reads_a_model_that_answers_as_the_masked_one(family, tmp_path):
    model = random_model(family)
    weights_before = copy.deepcopy(model.module.state_dict())
    module = assert_silenced(model, uneven_mask(model))
    for name, weight in model.module.state_dict().items():
        assert torch.equal(weight, weights_before[name]), name
    save_model(tmp_path / "m", module, tiny_tokenizer())
    stock_class = getattr(hf, type(model.module).__name__)
    stock_module = stock_class.from_pretrained(tmp_path / "m", dtype=torch.float64).eval()
    assert stock_module.config.model_type == model.module.config.model_type
    shapes = {name: weight.shape for name, weight in weights_before.items()}
    assert {name: weight.shape for name, weight in stock_module.state_dict().items()} == shapes
    batch = tiny_batch(model.module)
    torch.testing.assert_close(logits(stock_module, batch), logits(module, batch), **CLOSE)


@pytest.mark.parametrize("family", WITH_BIAS)
def test_heads_give_their_means_by_the_bias(family):
    model = random_model(family)
    assert_silenced(model, mean_mask(model), means_on(model))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_weights_are_as_derived_number_by_number(family):
    model = random_model(family)
    mask = mean_mask(model)
    means = means_on(model)
    silenced = silence_model(model, mask, means).module
    paths = {module: path for path, module in model.module.named_modules()}
    kept_gates = model.grid.gates(mask.kept)
    for row, projection in enumerate(model.projections):
        is_conv = not isinstance(projection, nn.Linear)
        weight = projection.weight.detach()
        expected_weight, expected_bias = silenced_projection(
            (weight.T if is_conv else weight).numpy(),
            projection.bias.detach().numpy(),
            means[row].numpy(),
            kept_gates[row],
        )
        changed = silenced.get_submodule(paths[projection])
        changed_weight = changed.weight.T if is_conv else changed.weight
        np.testing.assert_allclose(changed_weight.detach(), expected_weight, atol=1e-12)
        np.testing.assert_allclose(changed.bias.detach(), expected_bias, atol=1e-12)


@pytest.mark.parametrize("family", WITHOUT_BIAS)
def test_means_without_a_bias_to_hold_them_are_refused(family):
    model = random_model(family)
    with raises("export.bias_missing", "--ablation zero"):
        silence_model(model, mean_mask(model), means_on(model))


def test_means_and_the_masks_ablation_go_together():
    model = random_model("bert")
    with raises("export.means_missing", "mean ablation"):
        silence_model(model, mean_mask(model))
    with raises("export.means_unused", "zero ablation"):
        silence_model(model, uneven_mask(model), means_on(model))


def test_layers_that_are_one_lose_the_same_heads_or_none():
    model = random_model("albert")
    same_heads = np.tile([True, False, True, True], model.grid.layers)
    assert_silenced(model, mask_of(model, same_heads))
    with raises("export.layers_shared", "one layer used twice"):
        silence_model(model, uneven_mask(model))
    with raises("export.layers_shared"):
        silence_model(model, mask_of(model, same_heads, ablation="mean"), means_on(model))


def test_classes_that_only_headlab_knows_are_refused(tmp_path):
    model = random_model("bert", tiny_tokenizer(), dtype=torch.float32)
    mask = uneven_mask(model)
    batches = [tiny_batch(model.module)]
    write_shrunk(
        model, shrink_model(model, mask), tmp_path / "small", batches, compared_on={"task": None}
    )
    shrunk = headlab.load(str(tmp_path / "small"))
    with raises("export.class_of_headlab", "--as small"):
        silence_model(shrunk, mask_of(shrunk, np.arange(shrunk.grid.size) > 0))
    all_attention = all_attention_model()
    with raises("export.class_of_headlab", "--as small"):
        silence_model(all_attention, mask_of(all_attention, np.arange(all_attention.grid.size) > 0))


def test_quantised_weights_are_refused():
    model = random_model("bert")
    projection = model.projections[1]
    projection.weight = nn.Parameter(projection.weight.to(torch.int8), requires_grad=False)
    with raises("export.weights_quantised", "unquantised"):
        silence_model(model, uneven_mask(model))


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_the_copy_obeys_no_gates_of_the_original(family):
    model = random_model(family)
    mask = uneven_mask(model)
    batch = tiny_batch(model.module)
    silenced = silence_model(model, mask).module
    silenced_logits = logits(silenced, batch)
    with gated(model, np.zeros((model.grid.layers, model.grid.width))):
        assert torch.equal(logits(silenced, batch), silenced_logits)
    with gated(model, mask):  # and the original still obeys its own
        torch.testing.assert_close(logits(model.module, batch), silenced_logits, **CLOSE)


def test_another_models_mask_is_refused():
    model = random_model("bert")
    with raises("mask.other_model"):
        silence_model(model, uneven_mask(random_model("bert", seed=1)))


# The folder.

STOCK_READER = """
import json, sys
sys.modules["headlab"] = None  # an import of it fails
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
folder = sys.argv[1]
module = AutoModelForSequenceClassification.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
with torch.inference_mode():
    logits = module(**tokenizer("ab ba", return_tensors="pt")).logits.tolist()
classify = pipeline("text-classification", model=folder, device="cpu")
print(json.dumps([logits, classify("ab ba")[0]["label"]]))
"""


@pytest.fixture(scope="module")
def model() -> Model:
    return random_model("bert", tiny_tokenizer(), dtype=torch.float32)


MEANS_OF = {"task": "intents", "split": "dev", "examples": {"de": 2, "th": 1}}


def write(
    model: Model, mask: Mask, folder: Any, means: torch.Tensor | None = None, **options: Any
) -> Any:
    return write_shrunk(
        model,
        silence_model(model, mask, means),
        folder,
        [tiny_batch(model.module)],
        compared_on={"task": "intents", "languages": ["de", "th"], "split": "dev", "seed": 0},
        means_of=None if means is None else MEANS_OF,
        command=["headlab", "export"],
        **options,
    )


def test_a_process_without_headlab_reads_the_folder(model, tmp_path):
    mask = uneven_mask(model)
    folder = write(model, mask, tmp_path / "m").folder
    output = subprocess.run(
        [sys.executable, "-c", STOCK_READER, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    inputs = model.tokenizer("ab ba", return_tensors="pt")
    with gated(model, mask), torch.inference_mode():
        masked_logits = model.module(**inputs).logits
    stock_logits, label = json.loads(output)
    torch.testing.assert_close(torch.tensor(stock_logits), masked_logits, atol=1e-5, rtol=0)
    assert label == model.module.config.id2label[int(masked_logits.argmax())]
    # headlab reads it too, with all heads of the original
    assert headlab.load(str(folder)).grid == model.grid


def test_the_proof_and_the_card_say_what_was_done(model, tmp_path):
    mask = uneven_mask(model)
    written = write(model, mask, tmp_path / "m")
    proof = json.loads((written.folder / "proof.json").read_text())
    assert proof["form"] == "folder"
    assert proof["command"] == ["headlab", "export"]
    assert proof["parameters_before"] == proof["parameters_after"]
    assert len(proof["heads_masked"]) == len(mask.removed)
    assert proof["heads_removed"] == 0
    assert proof["equal_answers"] == 1
    assert proof["means_of"] is None
    for numbers in (proof, proof["random_input"]):
        assert numbers["max_logit_difference"] <= 1e-5
        assert numbers["mask_changes"] > 1e-3
    assert proof["random_input"]["inputs"] != proof["inputs"]
    card = (written.folder / "README.md").read_text()
    assert f"{len(mask.removed)} of 12 attention heads silenced" in card
    assert "without headlab" in card
    assert "still" not in card
    assert "bias" not in card


def test_means_are_recorded_with_what_they_were_taken_on(model, tmp_path):
    evaluated = {"test": {"task": "intents", "languages": {"de": FIGURES}}}
    kept_heads = uneven_mask(model).kept
    mask = mask_of(model, kept_heads, ablation="mean", evaluated=evaluated)
    means = head_means(model, [tiny_batch(model.module)])
    written = write(model, mask, tmp_path / "m", means)
    assert written.record["means_of"] == MEANS_OF
    card = (written.folder / "README.md").read_text()
    assert "their mean output is in its bias, as taken on dev examples of task intents" in card
    assert "(de 2, th 1)" in card
    assert "each language's heads gave their mean over its own dev examples" in card


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_means_are_written_in_half_the_bytes_too(dtype, tmp_path):
    """What the means add to a bias is rounded, although all weights of the original are exact."""
    model = random_model("bert", tiny_tokenizer(), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.copy_(parameter.to(getattr(torch, dtype)))
    mask = mean_mask(model)
    written = write(model, mask, tmp_path / "m", means_on(model), dtype=dtype)
    assert written.record["dtype_after"] == dtype
    assert written.record["cut_alone"]["max_logit_difference"] <= 1e-4
    assert 0 < written.record["max_logit_difference"] <= written.record["tolerance"]
    zeros = write(model, uneven_mask(model), tmp_path / "zeros", dtype=dtype)
    assert zeros.record["cut_alone"] is None


def test_a_full_disk_leaves_a_sentence_and_no_folder(model, tmp_path, monkeypatch):
    def save(*_arguments: Any, **_options: Any) -> None:
        raise Exception("No space left on device (os error 28)")  # as the library tokenizers does

    monkeypatch.setattr(model.tokenizer, "save_pretrained", save)
    with raises("file.unwritable", "No space left on device"):
        write(model, uneven_mask(model), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def sentence_model(source: Path, modules: list[dict[str, Any]]) -> Model:
    """A model whose folder says how sentence-transformers reads it."""
    bert = random_model("bert-model", tiny_tokenizer(), dtype=torch.float32)
    save_model(source, bert.module, tiny_tokenizer())
    (source / "modules.json").write_text(json.dumps(modules))
    for module in modules:
        (source / module["path"]).mkdir(exist_ok=True)
    return headlab.load(str(source))


def test_what_sentence_transformers_would_read_unpruned_is_refused(tmp_path):
    inner = {"idx": 0, "name": "0", "path": "0_Transformer", "type": "models.Transformer"}
    model = sentence_model(tmp_path / "source", [inner])
    (tmp_path / "source" / "0_Transformer" / "config.json").write_text('{"model_type": "bert"}')
    with raises("export.sentence_model_elsewhere", "0_Transformer"):
        write(model, uneven_mask(model), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_module_without_its_weights_is_refused(tmp_path):
    dense = {"idx": 1, "name": "1", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    model = sentence_model(tmp_path / "source", [dense])
    with raises("export.sentence_weights_missing", "2_Dense"):
        write(model, uneven_mask(model), tmp_path / "m")
    (tmp_path / "source" / "2_Dense" / "model.safetensors").write_bytes(b"weights")
    folder = write(model, uneven_mask(model), tmp_path / "m").folder
    assert (folder / "2_Dense" / "model.safetensors").read_bytes() == b"weights"


def test_modules_of_sentence_transformers_come_along(tmp_path):
    source = tmp_path / "source"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "Pooling"},
        {"idx": 2, "name": "2", "path": "../elsewhere", "type": "Normalize"},
    ]
    model = sentence_model(source, modules)
    for name in ("sentence_bert_config.json", "sentence_xlm-roberta_config.json"):
        (source / name).write_text("{}")
    for folder in (source / "1_Pooling", tmp_path / "elsewhere"):
        (folder / "config.json").write_text('{"pooling_mode_cls_token": true}')
    folder = write(model, uneven_mask(model), tmp_path / "m").folder
    assert json.loads((folder / "modules.json").read_text()) == modules
    assert (folder / "1_Pooling" / "config.json").is_file()
    assert (folder / "sentence_bert_config.json").is_file()
    assert (folder / "sentence_xlm-roberta_config.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "m", "source"]
    files = json.loads((folder / "proof.json").read_text())["files"]
    assert "1_Pooling/config.json" in files


def test_random_input_keeps_special_tokens_and_padding(model):
    batch = tiny_batch(model.module)
    special_ids = torch.tensor(model.tokenizer.all_special_ids)
    batch["input_ids"][0, 0] = special_ids[0]
    (random_batch,) = random_inputs(model, [batch], seed=0)
    assert torch.equal(random_batch["attention_mask"], batch["attention_mask"])
    is_special = torch.isin(batch["input_ids"], special_ids)
    assert torch.equal(torch.isin(random_batch["input_ids"], special_ids), is_special)
    assert torch.equal(random_batch["input_ids"][is_special], batch["input_ids"][is_special])
    assert not torch.equal(random_batch["input_ids"], batch["input_ids"])
    (again,) = random_inputs(model, [batch], seed=0)
    assert torch.equal(again["input_ids"], random_batch["input_ids"])


def test_random_tokens_of_a_target_are_of_its_own_vocabulary():
    model = random_model("marian")
    batch = tiny_batch(model.module) | {"decoder_input_ids": torch.full((3, 40), 7)}
    model.module.config.decoder_vocab_size = 11
    (random_batch,) = random_inputs(model, [batch], seed=0)
    assert int(random_batch["decoder_input_ids"].max()) < 11
    assert int(random_batch["input_ids"].max()) >= 11
