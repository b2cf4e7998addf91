"""The folder of a shrunk model: written whole or not at all, proved, read back, and never half-loaded by others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises
from support.saved_models import save_model
from support.shrunk_families import logits, mask_of, random_model, uneven_mask
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import HeadlabError
from headlab.evaluation import Evaluator
from headlab.hooks import gated
from headlab.masks import load_mask
from headlab.models.load import read_folder
from headlab.shrink import proof as proofs
from headlab.shrink import shrink_model
from headlab.shrink.folder import write_shrunk
from headlab.shrink.proof import Speed, escape_markdown

FILES = {
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "README.md",
    "mask.json",
    "proof.json",
}
FIGURES = {
    "accuracy": 0.5,
    "n": 100,
    "accuracy_low": 0.4,
    "accuracy_high": 0.6,
    "baseline": 0.6,
    "difference": -0.1,
    "low": -0.15,
    "high": -0.05,
}
EVALUATIONS = {
    "test": {"task": "intents|<b>", "languages": {"de": FIGURES, "en": {"accuracy": 0.5, "n": 9}}}
}


def original(family="bert"):
    return random_model(family, tiny_tokenizer(), dtype=torch.float32)


def write_shrunk_model(model, folder, mask=None, **options):
    shrunk = shrink_model(model, mask or uneven_mask(model))
    batches = [tiny_batch(model.module)]
    return write_shrunk(model, shrunk, folder, batches, compared_on={"task": None}, **options)


@pytest.fixture(scope="module")
def model():
    return original()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return write_shrunk_model(model, tmp_path_factory.mktemp("shrunk") / "m").folder


def test_the_folder_holds_all_that_belongs_to_a_model(model, folder):
    assert {path.name for path in folder.iterdir()} - {"generation_config.json"} == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["m"]
    mask = load_mask(folder / "mask.json")
    assert mask.digest == uneven_mask(model).digest
    assert str(folder.parent) not in (folder / "config.json").read_text()


def test_the_proof_says_what_was_compared(model, folder):
    proof = json.loads((folder / "proof.json").read_text())
    mask = uneven_mask(model)
    batch = tiny_batch(model.module)
    with gated(model, mask):
        masked_logits = logits(model.module, batch)
    shrunk_module = headlab.load_shrunk(folder)
    difference = (logits(shrunk_module, batch) - masked_logits).abs().max().item()
    mask_changes = (logits(model.module, batch) - masked_logits).abs().max().item()
    assert proof["max_logit_difference"] == pytest.approx(difference)
    assert proof["mask_changes"] == pytest.approx(mask_changes)
    assert proof["max_logit"] == pytest.approx(masked_logits.abs().max().item())
    assert proof["tolerance"] == pytest.approx(1e-4 * (1 + proof["max_logit"]))
    assert proof["holds"] is True
    assert proof["other_answers"] == 0
    assert proof["examples"] == 3
    assert proof["computed_in"] == "float32"
    assert proof["dtype_before"] == proof["dtype_after"] == "float32"
    assert proof["cut_alone"] is None
    assert proof["bytes_after"] == (folder / "model.safetensors").stat().st_size
    assert proof["model"] == model.identity()
    assert proof["fingerprint"] == headlab.load(str(folder)).fingerprint != model.fingerprint
    parameters = sum(parameter.numel() for parameter in shrunk_module.parameters())
    assert proof["parameters_after"] == parameters


def test_headlab_loads_the_folder_with_the_remaining_heads_and_evaluates_it_alike(model, folder):
    mask = uneven_mask(model)
    smaller_model = headlab.load(str(folder))
    # the grid has no layer without heads in either
    heads_by_layer = [heads for heads in smaller_model.grid.stacks[0].heads if heads]
    kept_by_layer = [heads for heads in mask.kept.reshape(3, 4).sum(1) if heads]
    assert heads_by_layer == kept_by_layer
    assert type(smaller_model.module).__name__ == "ShrunkBertForSequenceClassification"
    task = tiny_task()
    masked_evaluation = Evaluator(model, task, "xx").evaluate(mask)
    evaluator = Evaluator(smaller_model, task, "xx")
    assert np.array_equal(evaluator.evaluate().predicted, masked_evaluation.predicted)
    all_but_first = np.arange(smaller_model.grid.size) > 0
    mask_of_smaller_model = mask_of(smaller_model, all_but_first)
    evaluation = Evaluator(smaller_model, task, "xx").evaluate(mask_of_smaller_model)
    assert evaluation.n == masked_evaluation.n


def test_the_folder_is_read_as_a_transformers_model_that_can_be_trained_and_saved(
    model, folder, tmp_path
):
    module = headlab.load_shrunk(folder, device="cpu")
    assert isinstance(module, hf.BertForSequenceClassification)
    assert not module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    save_model(tmp_path / "again", module, tiny_tokenizer())
    batch = tiny_batch(module)
    saved_again = read_folder(tmp_path / "again", "folder", "again").module
    assert torch.equal(logits(saved_again, batch), logits(module, batch))


def test_a_llama_whose_layers_keep_as_many_groups_is_an_ordinary_llama(tmp_path):
    model = original("llama")
    # one group of each layer; half of the last one's
    mask = mask_of(model, [1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0])
    folder = write_shrunk_model(model, tmp_path / "m", mask).folder
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert config["num_attention_heads"] == 2
    assert config["num_key_value_heads"] == 1
    assert config["head_dim"] == 6
    batch = tiny_batch(model.module)
    with gated(model, mask):
        masked_logits = logits(model.module, batch)
    llama = hf.LlamaForSequenceClassification.from_pretrained(folder).eval()
    torch.testing.assert_close(logits(llama, batch), masked_logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        logits(headlab.load_shrunk(folder), batch), masked_logits, atol=1e-5, rtol=0
    )
    assert "transformers loads it without headlab" in (folder / "README.md").read_text()
    assert "1 heads of the mask stay in the weights" in (folder / "README.md").read_text()


def test_the_model_card_shows_before_and_after_and_what_the_mask_file_says(model, tmp_path):
    mask = mask_of(model, uneven_mask(model).kept, evaluated=EVALUATIONS)
    speed = Speed(0.8, 0.75, 0.85, "cpu, batches of 16")
    folder = write_shrunk_model(model, tmp_path / "m", mask, speed=speed).folder
    card = (folder / "README.md").read_text()
    assert "| parameters | 16,949 | " in card
    assert "| dtype of the weights | float32 | float32 |" in card
    assert "| weights | 67.8 kB | " in card
    assert "are removed from the weights; nothing else changed." in card
    assert f"| attention heads | 12 | {int(mask.kept.sum())} |" in card
    assert "| attention layers with heads | 3 | 2 |" in card
    assert "| time of a forward pass | 1 | 0.80 [0.75, 0.85] |" in card
    assert "## Accuracy on test of task intents\\|\\<b\\>" in card
    assert "| de | 60.0% | 50.0% [40.0%, 60.0%] | -10.0 [-15.0, -5.0] | 100 |" in card
    assert "| en | – | 50.0% | – | 9 |" in card


def test_names_in_the_card_are_plain_text():
    assert escape_markdown("a\n|b <script>`") == "a \\|b \\<script\\>\\`"


def test_a_model_that_answers_otherwise_leaves_no_folder(model, tmp_path):
    shrunk = shrink_model(model, uneven_mask(model))
    with torch.no_grad():
        shrunk.module.classifier.bias.add_(0.01)
    with raises("shrink.model_differs", 0.01):
        write_shrunk(model, shrunk, tmp_path / "m", [tiny_batch(model.module)], compared_on={})
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_answers_with_nan_is_no_proof(model):
    mask = uneven_mask(model)
    broken = shrink_model(model, mask).module
    with torch.no_grad():
        broken.classifier.bias.fill_(torch.nan)
    proof = proofs.prove(model, mask, broken, [tiny_batch(model.module)])
    assert not proof.holds
    with raises("shrink.model_differs", "inf"):
        proof.check("it")
    with raises("shrink.no_examples"):
        proofs.prove(model, mask, broken, [])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_an_original_that_answers_with_nan_or_inf_proves_nothing(value, tmp_path):
    model = original()
    mask = uneven_mask(model)
    shrunk = shrink_model(model, mask)
    with torch.no_grad():
        model.module.classifier.bias[0] = value
    assert not proofs.prove(model, mask, shrunk.module, [tiny_batch(model.module)]).holds
    with raises("shrink.original_not_finite"):
        write_shrunk(model, shrunk, tmp_path / "m", [tiny_batch(model.module)], compared_on={})
    assert list(tmp_path.iterdir()) == []


def made_up_proof(*, is_rounded: bool, usual: float, largest: float) -> proofs.Proof:
    return proofs.Proof(
        max_logit_difference=largest,
        usual_difference=usual,
        tolerance=0.1,
        max_logit=9.0,
        mask_changes=1.0,
        other_answers=1,
        equal_answers=0.99,
        examples=100,
        inputs="0",
        is_rounded=is_rounded,
    )


def test_of_rounded_weights_the_usual_difference_counts_and_of_others_the_largest():
    assert made_up_proof(is_rounded=True, usual=0.05, largest=38.0).holds
    assert not made_up_proof(is_rounded=False, usual=0.05, largest=38.0).holds
    assert not made_up_proof(is_rounded=True, usual=0.2, largest=38.0).holds
    assert not made_up_proof(is_rounded=True, usual=0.05, largest=np.inf).holds


def test_the_usual_difference_is_exceeded_by_at_most_one_answer_in_a_hundred(model):
    shrunk = shrink_model(model, uneven_mask(model))
    batches = [tiny_batch(model.module, seed=seed) for seed in range(60)]
    answers = 0
    differences = []

    def other_logits(batch):
        nonlocal answers
        with torch.no_grad():
            logits = shrunk.module(**batch).logits.clone()
        for row in logits:
            differences.append(float(answers))
            row[0] += answers  # each answer differs by its number
            answers += 1
        return logits

    proof = proofs.compare(model, uneven_mask(model), other_logits, batches, is_rounded=True)
    assert proof.is_rounded
    share_above = np.mean(np.array(differences) > proof.usual_difference + 1e-3)
    assert 0 < share_above <= 1 - proofs.USUAL_SHARE
    assert proof.max_logit_difference == pytest.approx(max(differences), rel=1e-4)


def test_an_example_that_is_compared_twice_counts_once(model):
    mask = uneven_mask(model)
    batch = tiny_batch(model.module)
    shrunk = shrink_model(model, mask)
    padded_batch = {name: torch.nn.functional.pad(tensor, (0, 2)) for name, tensor in batch.items()}
    proof = proofs.prove(model, mask, shrunk.module, [batch, batch, padded_batch])
    assert proof.examples == 3


def test_a_full_disk_is_refused_in_a_sentence_and_leaves_nothing(model, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    shrunk = shrink_model(model, uneven_mask(model))
    monkeypatch.setattr(shrunk.module, "save_pretrained", fail)
    with raises("file.no_space"):
        write_shrunk(model, shrunk, tmp_path / "m", [tiny_batch(model.module)], compared_on={})
    assert list(tmp_path.iterdir()) == []


def test_padding_counts_in_no_proof():
    batch = tiny_batch(original("gpt2-lm").module)
    is_token = batch["attention_mask"].bool()
    assert torch.equal(proofs.real_tokens(batch, torch.zeros(3, 7, 97)), is_token)
    assert proofs.real_tokens(batch, torch.zeros(3, 5)).all()
    batch_of_pairs = batch | {"decoder_input_ids": batch["input_ids"][:, :6]}
    assert proofs.real_tokens(batch_of_pairs, torch.zeros(3, 6, 97)).all()
    decoder_mask = torch.tensor([[1, 1, 0]] * 3)
    padded_pairs = {
        "decoder_input_ids": decoder_mask,
        "decoder_attention_mask": decoder_mask,
        "attention_mask": decoder_mask.flip(1),
    }
    is_decoder_token = proofs.real_tokens(padded_pairs, torch.zeros(3, 3, 97))
    assert torch.equal(is_decoder_token, decoder_mask.bool())


def change_heads(folder, heads):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"headlab_heads": heads}))


WRONG_HEADS = [
    (None, "model.weights_missing"),
    ([], "model.weights_missing"),
    ({}, "model.weights_missing"),
    ({"encoder": [[0], [0]]}, "shrunk.layers_mismatch"),
    ({"encoder": [[0, 0], [1], [2]]}, "shrunk.heads_mismatch"),
    ({"encoder": [[4], [1], [2]]}, "shrunk.heads_mismatch"),
    ({"decoder": [[], [], []]}, "shrunk.stacks_mismatch"),
    ({"encoder": [[], "x", []]}, "shrunk.heads_mismatch"),
    ({"encoder": 3}, "shrunk.layers_mismatch"),
    ({"encoder": [[True], [], []]}, "shrunk.heads_mismatch"),
]


@pytest.mark.parametrize(("heads", "code"), WRONG_HEADS)
def test_a_configuration_with_other_heads_is_refused_with_a_reason(folder, tmp_path, heads, code):

    copy = Path(shutil.copytree(folder, tmp_path / "m"))
    change_heads(copy, heads)
    with raises(code) as caught:
        read_folder(copy, "folder", "my-model")
    assert str(caught.value).startswith("my-model ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["encoder", "cross", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(heads=JSON)
def test_whatever_the_configuration_names_the_folder_is_read_right_or_refused(
    folder, tmp_path, heads
):

    copy = tmp_path / "m"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    change_heads(copy, heads)
    with pytest.raises(HeadlabError):
        read_folder(copy, "folder", "m")


def test_a_family_this_headlab_does_not_know_is_named(folder, tmp_path):

    copy = Path(shutil.copytree(folder, tmp_path / "m"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "headlab-shrunk-fnet"}))
    with raises("model.type_unknown", "headlab-shrunk-fnet"):
        headlab.load(str(copy))


def test_load_shrunk_reads_its_own_folders_only(model, tmp_path):
    save_model(tmp_path / "other", model.module, tiny_tokenizer())
    with raises("shrink.not_a_folder"):
        headlab.load_shrunk(tmp_path / "other")
    with raises("device.unusable", "'nope'"):
        headlab.load_shrunk(tmp_path / "other", device="nope")


def test_the_copy_of_a_mask_in_the_folder_keeps_what_it_was_chosen_by(model, tmp_path):
    mask = mask_of(model, uneven_mask(model).kept, rule="bottom", k=5)
    mask = replace(mask, created="2026-01-02T03:04:05+00:00")
    folder = write_shrunk_model(model, tmp_path / "m", mask).folder
    mask_read = load_mask(folder / "mask.json")
    assert mask_read.chosen == mask.chosen
    assert mask_read.created == mask.created
