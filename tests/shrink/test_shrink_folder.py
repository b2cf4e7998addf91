"""The folder of a shrunk model: written whole or not at all, proved, read back, and never half-loaded by others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises
from support.saved_models import save
from support.shrunk_families import logits, mask_of, model_of, uneven
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
FIGURES = {"accuracy": 0.5, "n": 100, "accuracy_low": 0.4, "accuracy_high": 0.6, "baseline": 0.6, "difference": -0.1,
           "low": -0.15, "high": -0.05}  # fmt: skip
EVALUATED = {
    "test": {"task": "intents|<b>", "languages": {"de": FIGURES, "en": {"accuracy": 0.5, "n": 9}}}
}


def original(family="bert"):
    return model_of(family, tiny_tokenizer(), dtype=torch.float32)


def written(model, out, mask=None, **options):
    mask = mask or uneven(model)
    return write_shrunk(
        model,
        shrink_model(model, mask),
        out,
        [tiny_batch(model.module)],
        compared_on={"task": None},
        **options,
    )


@pytest.fixture(scope="module")
def model():
    return original()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return written(model, tmp_path_factory.mktemp("shrunk") / "m").folder


def test_the_folder_holds_all_that_belongs_to_a_model(model, folder):
    assert {path.name for path in folder.iterdir()} - {"generation_config.json"} == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["m"]
    mask = load_mask(folder / "mask.json")
    assert mask.digest == uneven(model).digest
    assert str(folder.parent) not in (folder / "config.json").read_text()


def test_the_proof_says_what_was_compared(model, folder):
    proof = json.loads((folder / "proof.json").read_text())
    mask = uneven(model)
    batch = tiny_batch(model.module)
    with gated(model, mask):
        masked = logits(model.module, batch)
    loaded = headlab.load_shrunk(folder)
    assert proof["max_logit_difference"] == pytest.approx(
        (logits(loaded, batch) - masked).abs().max().item()
    )
    assert proof["mask_changes"] == pytest.approx(
        (logits(model.module, batch) - masked).abs().max().item()
    )
    assert proof["max_logit"] == pytest.approx(masked.abs().max().item())
    assert proof["tolerance"] == pytest.approx(1e-4 * (1 + proof["max_logit"]))
    assert (proof["holds"], proof["other_answers"], proof["examples"], proof["computed_in"]) == (
        True,
        0,
        3,
        "float32",
    )
    assert (proof["dtype_before"], proof["dtype_after"], proof["cut_alone"]) == (
        "float32",
        "float32",
        None,
    )
    assert proof["bytes_after"] == (folder / "model.safetensors").stat().st_size
    assert proof["model"] == model.identity()
    assert proof["fingerprint"] == headlab.load(str(folder)).fingerprint != model.fingerprint
    assert proof["parameters_after"] == sum(p.numel() for p in loaded.parameters())


def test_headlab_loads_it_with_the_heads_that_are_left_and_evaluates_it_alike(model, folder):
    smaller = headlab.load(str(folder))
    assert [n for n in smaller.grid.stacks[0].heads if n] == [
        n for n in uneven(model).kept.reshape(3, 4).sum(1) if n
    ]
    assert type(smaller.module).__name__ == "ShrunkBertForSequenceClassification"
    task = tiny_task()
    want = Evaluator(model, task, "xx").evaluate(uneven(model))
    got = Evaluator(smaller, task, "xx").evaluate()
    assert np.array_equal(got.predicted, want.predicted)
    one_less = np.arange(smaller.grid.size) > 0
    assert Evaluator(smaller, task, "xx").evaluate(mask_of(smaller, one_less)).n == want.n


def test_it_comes_back_as_a_transformers_model_that_can_be_trained_and_saved(
    model, folder, tmp_path
):
    module = headlab.load_shrunk(folder, device="cpu")
    assert isinstance(module, hf.BertForSequenceClassification)
    assert not module.training
    assert all(p.requires_grad for p in module.parameters())
    save(tmp_path / "again", module, tiny_tokenizer())
    batch = tiny_batch(module)
    again = read_folder(tmp_path / "again", "folder", "again").module
    assert torch.equal(logits(again, batch), logits(module, batch))


def test_a_llama_whose_layers_keep_as_many_groups_is_an_ordinary_llama(tmp_path):
    model = original("llama")
    # one group of each layer; half of the last one's
    mask = mask_of(model, [1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0])
    out = written(model, tmp_path / "m", mask).folder
    config = json.loads((out / "config.json").read_text())
    assert [
        config[k] for k in ("model_type", "num_attention_heads", "num_key_value_heads", "head_dim")
    ] == ["llama", 2, 1, 6]
    batch = tiny_batch(model.module)
    with gated(model, mask):
        want = logits(model.module, batch)
    plain = hf.LlamaForSequenceClassification.from_pretrained(out).eval()
    torch.testing.assert_close(logits(plain, batch), want, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits(headlab.load_shrunk(out), batch), want, atol=1e-5, rtol=0)
    assert "transformers loads it without headlab" in (out / "README.md").read_text()
    assert "1 heads of the mask stay in the weights" in (out / "README.md").read_text()


def test_the_model_card_shows_before_and_after_and_what_the_mask_file_says(model, tmp_path):
    mask = mask_of(model, uneven(model).kept, evaluated=EVALUATED)
    out = written(
        model, tmp_path / "m", mask, speed=Speed(0.8, 0.75, 0.85, "cpu, batches of 16")
    ).folder
    card = (out / "README.md").read_text()
    assert "| parameters | 16,949 | " in card
    assert "| dtype of the weights | float32 | float32 |" in card
    assert "| weights | 67.8 kB | " in card
    assert "are gone from the weights; nothing else changed." in card
    assert f"| attention heads | 12 | {int(mask.kept.sum())} |" in card
    assert "| attention layers with heads | 3 | 2 |" in card
    assert "| time of a forward pass | 1 | 0.80 [0.75, 0.85] |" in card
    assert "## Accuracy on test of task intents\\|\\<b\\>" in card
    assert "| de | 60.0% | 50.0% [40.0%, 60.0%] | -10.0 [-15.0, -5.0] | 100 |" in card
    assert "| en | – | 50.0% | – | 9 |" in card


def test_names_in_the_card_are_plain_text():
    assert escape_markdown("a\n|b <script>`") == "a \\|b \\<script\\>\\`"


def test_a_model_that_answers_otherwise_leaves_no_folder(model, tmp_path):
    shrunk = shrink_model(model, uneven(model))
    with torch.no_grad():
        shrunk.module.classifier.bias.add_(0.01)
    with raises("shrink.model_differs", 0.01):
        write_shrunk(model, shrunk, tmp_path / "m", [tiny_batch(model.module)], compared_on={})
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_answers_with_nan_is_no_proof(model):
    mask = uneven(model)
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
    mask = uneven(model)
    shrunk = shrink_model(model, mask)
    with torch.no_grad():
        model.module.classifier.bias[0] = value
    assert not proofs.prove(model, mask, shrunk.module, [tiny_batch(model.module)]).holds
    with raises("shrink.original_not_finite"):
        write_shrunk(model, shrunk, tmp_path / "m", [tiny_batch(model.module)], compared_on={})
    assert list(tmp_path.iterdir()) == []


def test_an_example_that_is_compared_twice_counts_once(model):
    mask = uneven(model)
    batch = tiny_batch(model.module)
    # the same, with more padding
    wider = {name: torch.nn.functional.pad(t, (0, 2)) for name, t in batch.items()}
    proof = proofs.prove(model, mask, shrink_model(model, mask).module, [batch, batch, wider])
    assert proof.examples == 3


def test_a_full_disk_is_a_sentence_and_leaves_nothing(model, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    shrunk = shrink_model(model, uneven(model))
    monkeypatch.setattr(shrunk.module, "save_pretrained", full)
    with raises("file.no_space"):
        write_shrunk(model, shrunk, tmp_path / "m", [tiny_batch(model.module)], compared_on={})
    assert list(tmp_path.iterdir()) == []


def test_padding_counts_in_no_proof():
    model = original("gpt2-lm")
    batch = tiny_batch(model.module)
    real = proofs.real_tokens(batch, torch.zeros(3, 7, 97))
    assert torch.equal(real, batch["attention_mask"].bool())
    assert proofs.real_tokens(batch, torch.zeros(3, 5)).all()
    pairs = batch | {"decoder_input_ids": batch["input_ids"][:, :6]}
    assert proofs.real_tokens(pairs, torch.zeros(3, 6, 97)).all()
    asked = torch.tensor([[1, 1, 0]] * 3)
    pairs = {
        "decoder_input_ids": asked,
        "decoder_attention_mask": asked,
        "attention_mask": asked.flip(1),
    }
    assert torch.equal(proofs.real_tokens(pairs, torch.zeros(3, 3, 97)), asked.bool())


def change(folder, heads):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"headlab_heads": heads}))


WRONG = [
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


@pytest.mark.parametrize(("heads", "code"), WRONG)
def test_a_configuration_with_other_heads_is_refused_with_a_reason(folder, tmp_path, heads, code):
    import shutil

    copy = Path(shutil.copytree(folder, tmp_path / "m"))
    change(copy, heads)
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
    import shutil

    copy = tmp_path / "m"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    change(copy, heads)
    with pytest.raises(HeadlabError):
        read_folder(copy, "folder", "m")


def test_a_family_this_headlab_does_not_know_is_named(folder, tmp_path):
    import shutil

    copy = Path(shutil.copytree(folder, tmp_path / "m"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "headlab-shrunk-fnet"}))
    with raises("model.type_unknown", "headlab-shrunk-fnet"):
        headlab.load(str(copy))


def test_load_shrunk_reads_its_own_folders_only(model, tmp_path):
    save(tmp_path / "other", model.module, tiny_tokenizer())
    with raises("shrink.not_a_folder"):
        headlab.load_shrunk(tmp_path / "other")
    with raises("device.unusable", "'nope'"):
        headlab.load_shrunk(tmp_path / "other", device="nope")


def test_a_masks_copy_in_the_folder_keeps_what_it_was_chosen_by(model, tmp_path):
    mask = replace(
        mask_of(model, uneven(model).kept, rule="bottom", k=5), created="2026-01-02T03:04:05+00:00"
    )
    out = written(model, tmp_path / "m", mask).folder
    again = load_mask(out / "mask.json")
    assert (again.chosen, again.created) == (mask.chosen, mask.created)
