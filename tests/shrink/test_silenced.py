"""Heads silenced in the weights: a plain model of its family that answers as the masked one."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from reference import silenced_projection
from support.expected_errors import raises
from support.saved_models import save_model
from support.shrunk_families import SHRINKABLE, logits, mask_of, random_model, uneven_mask
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


def test_quantised_weights_are_refused():
    model = random_model("bert")
    projection = model.projections[1]
    projection.weight = nn.Parameter(projection.weight.to(torch.int8), requires_grad=False)
    with raises("export.weights_quantised", "unquantised"):
        silence_model(model, uneven_mask(model))


def test_another_models_mask_is_refused():
    model = random_model("bert")
    with raises("mask.other_model"):
        silence_model(model, uneven_mask(random_model("bert", seed=1)))


# The folder.

STOCK_READER = """
import json, sys
sys.modules["headlab"] = None  # an import of it fails
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder = sys.argv[1]
module = AutoModelForSequenceClassification.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
with torch.inference_mode():
    print(json.dumps(module(**tokenizer("ab ba", return_tensors="pt")).logits.tolist()))
"""


@pytest.fixture(scope="module")
def model() -> Model:
    return random_model("bert", tiny_tokenizer(), dtype=torch.float32)


def write(model: Model, mask: Mask, folder: Any, means: torch.Tensor | None = None) -> Any:
    compared_on = {"task": "intents", "languages": ["de", "th"], "split": "dev", "seed": 0}
    return write_shrunk(
        model,
        silence_model(model, mask, means),
        folder,
        [tiny_batch(model.module)],
        compared_on=compared_on,
        command=["headlab", "export"],
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
    stock_logits = torch.tensor(json.loads(output))
    torch.testing.assert_close(stock_logits, masked_logits, atol=1e-5, rtol=0)
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
    assert written.record["means_of"] == written.record["compared_on"]
    card = (written.folder / "README.md").read_text()
    assert (
        "their mean output is in its bias, as taken on 3 dev examples of task intents (de, th)"
        in card
    )
    assert "each language's heads gave their mean over its own dev examples" in card


def test_modules_of_sentence_transformers_come_along(tmp_path):
    source = tmp_path / "source"
    random_bert = random_model("bert-model", tiny_tokenizer(), dtype=torch.float32)
    save_model(source, random_bert.module, tiny_tokenizer())
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "Pooling"},
        {"idx": 2, "name": "2", "path": "../elsewhere", "type": "Normalize"},
    ]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "sentence_bert_config.json").write_text("{}")
    for folder in (source / "1_Pooling", tmp_path / "elsewhere"):
        folder.mkdir()
        (folder / "config.json").write_text('{"pooling_mode_cls_token": true}')
    model = headlab.load(str(source))
    folder = write(model, uneven_mask(model), tmp_path / "m").folder
    assert json.loads((folder / "modules.json").read_text()) == modules
    assert (folder / "1_Pooling" / "config.json").is_file()
    assert (folder / "sentence_bert_config.json").is_file()
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
