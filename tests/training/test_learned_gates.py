"""Gates that learn: their distribution, what they close and keep, and runs that are resumed."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import hard_concrete
from support.expected_errors import raises
from support.saved_models import save_classifier
from support.several_answers import PAIRS, WORDS
from support.synthetic_gates import made_gates
from support.tiny_models import tiny_model, tiny_module
from support.tiny_task import LABELS, tiny_task, tiny_tokenizer
from support.translation_task import TASK as SENTENCES

import headlab
from headlab.cli.run import main
from headlab.core import HeadlabError, content_key
from headlab.evaluation import Evaluator, Texts, read_inputs, translations
from headlab.hooks import Model, make_gateable
from headlab.masks import load_mask
from headlab.models.checkpoint import Checkpoint
from headlab.results import HardConcrete, LearnedGates, Store, trained_folder
from headlab.tasks import Example, Split, Task
from headlab.training import GateOptions, GateStep, run_notes
from headlab.training.l0_learn import CHECKPOINT, GatesDataset, Learner, learn, learn_gates, sweep
from headlab.training.l0_options import options_of
from headlab.training.options import step_batch
from headlab.training.steps import Watch, dropout_seed

# The heads, (layer, head), that the answers of the planted model depend on.
NEEDED_HEADS = ((0, 1), (2, 3))
QUICK = GateOptions(steps=12, batch=6, weight=0.05, history=4, dev_size=24, test_size=30)
CHECKPOINT_AT_EVERY_STEP = {"checkpoint_every": 1, "checkpoint_share": 1.0}


class Interrupted(Exception):
    pass


def stop_at(step: int) -> Any:
    def on_step(gate_step: GateStep) -> None:
        if gate_step.step == step:
            raise Interrupted

    return on_step


@cache
def tiny() -> Model:
    return tiny_model("bert", torch.float32, tokenizer=tiny_tokenizer())


def model_with_dropout() -> Model:
    """An interrupted training must find the draws of dropout again."""
    module = tiny_module("bert", torch.float32)
    module.config.hidden_dropout_prob = 0.3
    return make_gateable(
        Checkpoint(
            name="dropping",
            revision="test",
            fingerprint="dropping",
            module=module,
            tokenizer=tiny_tokenizer(),
        )
    )


@cache
def planted_model_and_task() -> tuple[Model, Task]:
    """A model of which only the needed heads give anything, and a task of its own answers."""
    module = tiny_module("bert", torch.float32)
    with torch.no_grad():
        for row, layer in enumerate(module.bert.encoder.layer):
            columns = layer.attention.output.dense.weight.unflatten(1, (4, 6))
            for head in range(4):
                columns[:, head] *= 40.0 if (row, head) in NEEDED_HEADS else 0.0
        module.classifier.weight *= 30.0
    model = make_gateable(
        Checkpoint(
            name="planted",
            revision="test",
            fingerprint="planted",
            module=module,
            tokenizer=tiny_tokenizer(),
        )
    )
    task = tiny_task()

    @cache
    def answered_examples(
        language: str,
        split: Split,
        seed: int,
    ) -> list[Example]:
        examples = task.read(language, split, seed)
        examples = [replace(example, group="") for example in examples]
        inputs = read_inputs(model, task, examples, language)
        tensors = inputs.tensors(np.arange(len(examples)))
        with torch.inference_mode():
            answers = inputs.logits(tensors).argmax(dim=-1).tolist()
        examples_with_answers = []
        for example, answer in zip(examples, answers, strict=True):
            examples_with_answers.append(replace(example, label=answer))
        return examples_with_answers

    return model, Task(
        name="planted",
        labels=LABELS,
        languages=("xx",),
        aligned=False,
        read=answered_examples,
    )


def assert_same_gates(got: LearnedGates, want: LearnedGates) -> None:
    assert got.values_sha256() == want.values_sha256()
    for split in ("dev", "test"):
        for name in ("accuracy", "difference", "low", "high", "p"):
            assert got.measured[split][name] == want.measured[split][name]


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of a module's tensors."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_same_state(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert torch.equal(got[name], tensor)


# The distribution


@pytest.mark.parametrize(
    "log_alpha",
    [-3.0, -0.5, 0.4, 2.5],
)
@pytest.mark.parametrize(
    "parts",
    [(0.33, -0.1, 1.1), (0.8, -0.4, 1.2)],
)
def test_the_moments_are_those_of_the_sum_over_all_draws_and_of_a_sample(log_alpha, parts):
    concrete = HardConcrete(*parts)
    location = torch.tensor(log_alpha, dtype=torch.float64)
    open_probability, one_probability, mean, variance = hard_concrete(log_alpha, *parts)
    zero_probability = 1 - open_probability
    assert float(concrete.probability_open(location)) == pytest.approx(open_probability, abs=1e-5)
    assert float(concrete.probability_zero(np.array(log_alpha))) == pytest.approx(
        zero_probability, abs=1e-5
    )
    assert float(concrete.probability_one(np.array(log_alpha))) == pytest.approx(
        one_probability, abs=1e-5
    )
    assert concrete.mean(log_alpha) == pytest.approx(mean, abs=1e-5)
    assert concrete.variance(log_alpha) == pytest.approx(variance, abs=1e-5)
    uniforms = torch.as_tensor(np.random.default_rng(0).random(40_000))
    sample = concrete.sample(location, uniforms)
    mean_error = np.sqrt(variance / 40_000)
    assert float(sample.mean()) == pytest.approx(concrete.mean(log_alpha), abs=4 * mean_error)
    variance_error = float(((sample - mean) ** 2).std()) / 200
    assert float(sample.var()) == pytest.approx(
        concrete.variance(log_alpha),
        abs=4 * variance_error,
    )
    max_share_error = 0.5 / 200
    zero_share = float((sample == 0).double().mean())
    assert zero_share == pytest.approx(zero_probability, abs=4 * max_share_error)
    one_share = float((sample == 1).double().mean())
    assert one_share == pytest.approx(one_probability, abs=4 * max_share_error)


def test_the_gradient_of_the_penalty_is_that_of_the_probability_of_being_open():
    concrete = HardConcrete()
    log_alpha = torch.tensor([-1.0, 0.7], dtype=torch.float64, requires_grad=True)
    concrete.probability_open(log_alpha).sum().backward()
    for value, gradient in zip(log_alpha.tolist(), log_alpha.grad.tolist(), strict=True):
        open_above, *_ = hard_concrete(value + 0.05, 0.33, -0.1, 1.1, 2_000_000)
        open_below, *_ = hard_concrete(value - 0.05, 0.33, -0.1, 1.1, 2_000_000)
        slope = (open_above - open_below) / 0.1
        assert gradient == pytest.approx(slope, abs=2e-4)


def test_the_gradient_of_a_drawn_gate_is_that_of_its_mean():
    log_alpha = torch.full((40_000,), 0.6, dtype=torch.float64, requires_grad=True)
    uniforms = torch.as_tensor(np.random.default_rng(1).random(40_000))
    HardConcrete().sample(log_alpha, uniforms).sum().backward()
    _, _, mean_above, _ = hard_concrete(0.6 + 0.01, 0.33, -0.1, 1.1)
    _, _, mean_below, _ = hard_concrete(0.6 - 0.01, 0.33, -0.1, 1.1)
    slope = (mean_above - mean_below) / 0.02
    error = float(log_alpha.grad.std()) / 200
    assert float(log_alpha.grad.mean()) == pytest.approx(slope, abs=4 * error)


def test_a_gate_starts_at_the_probability_that_was_asked_for():
    for probability in (0.2, 0.9, 0.99):
        concrete = HardConcrete()
        start = torch.tensor(concrete.start(probability), dtype=torch.float64)
        probability_open = float(concrete.probability_open(start))
        assert probability_open == pytest.approx(probability)


@pytest.mark.parametrize(
    "parts",
    [(0.33, -0.1, 1.1), (0.8, -0.4, 1.2)],
)
def test_a_head_is_kept_where_its_gate_is_likelier_one_than_zero(parts):
    concrete = HardConcrete(*parts)
    values_near_even = concrete.even_log_alpha + np.array([-0.6, -0.05, 0.05, 0.6])
    log_alpha = values_near_even.repeat([3, 3, 3, 2]).astype(np.float32)
    gates = replace(
        made_gates(),
        log_alpha=np.tile(log_alpha, (7, 1)),
        concrete=concrete,
    )
    likelier_one = []
    for value in gates.log_alpha[-1]:
        open_probability, one_probability, *_ = hard_concrete(float(value), *parts)
        likelier_one.append(one_probability > 1 - open_probability)
    assert gates.kept.tolist() == likelier_one
    assert gates.kept.sum() == 5
    assert HardConcrete().even_log_alpha == pytest.approx(0)


@pytest.mark.parametrize(
    ("value", "is_decided"),
    [
        (HardConcrete().start(0.9), False),
        (3.1, True),
        (-3.1, True),
        (0.0, False),
    ],
)
def test_a_gate_is_decided_once_it_is_surely_one_or_surely_zero(value, is_decided):
    """A gate that never moved is undecided: open with probability 0.9, but 1 with 0.65 only."""
    log_alpha = np.full((7, 11), value, np.float32)
    gates = replace(made_gates(), log_alpha=log_alpha)
    open_probability, one_probability, *_ = hard_concrete(value, 0.33, -0.1, 1.1)
    likelier_end = max(1 - open_probability, one_probability)
    assert is_decided == (likelier_end >= 0.9)
    assert gates.undecided_count() == (0 if is_decided else 11)


# What is learned


def test_gates_of_heads_that_the_labels_need_stay_open_and_the_others_close():
    model, task = planted_model_and_task()
    options = replace(QUICK, steps=60, gate_rate=0.1, weight=0.05, batch=12)
    gates = learn_gates(model, task, "xx", options=options)
    kept_heads = []
    for index in np.flatnonzero(gates.kept):
        head = model.grid.heads[index]
        kept_heads.append((head.layer, head.head))
    assert kept_heads == list(NEEDED_HEADS)
    assert gates.open_probability[-1][~gates.kept].max() < 0.1
    measures = gates.measured["test"]
    assert measures["accuracy"] == 1.0
    assert measures["baseline"] == 1.0
    assert measures["kept"] == 2
    expected_open = gates.open_probability[-1].sum()
    assert gates.penalty[-1] == pytest.approx(0.05 * expected_open)
    assert gates.steps[0] == 0
    assert gates.steps[-1] == 60
    assert len(gates.loss) == len(gates.steps)
    assert gates.open_probability[0] == pytest.approx(0.9)


def test_without_a_penalty_no_gate_is_pushed_shut_and_with_a_heavy_one_all_are():
    model, task = planted_model_and_task()
    options = replace(QUICK, steps=30, gate_rate=0.2)
    without_penalty, heavy_penalty = sweep(model, task, "xx", [0.0, 1e4], options=options)
    heads = [(head.layer, head.head) for head in model.grid.heads]
    idle = np.array([head not in NEEDED_HEADS for head in heads])
    first_log_alpha = without_penalty.log_alpha[0]
    last_log_alpha = without_penalty.log_alpha[-1]
    assert np.array_equal(last_log_alpha[idle], first_log_alpha[idle])
    assert int(heavy_penalty.kept.sum()) == 0
    assert heavy_penalty.kept_by_stack() == {"encoder": (0, 12)}


def test_the_gradient_is_the_tasks_and_lambda_times_the_penaltys():
    def gradient(weight: float) -> torch.Tensor:
        learner = learner_of(replace(QUICK, weight=weight))
        learner.step(0, learner.batch_at(0))
        return learner.log_alpha.grad.clone()

    open_probability = torch.tensor(0.9)
    gradient_of_penalty = 0.3 * open_probability * (1 - open_probability)
    difference = gradient(0.3) - gradient(0.0)
    torch.testing.assert_close(difference, gradient_of_penalty.expand(12))


def learner_of(
    options: GateOptions,
    model: Model | None = None,
    task: Task | None = None,
) -> Learner:
    dataset = GatesDataset(model or tiny(), task or tiny_task(), "xx", options)
    heads_with_gate = options.heads_with_gate(dataset.model.grid)
    return Learner(dataset.model, dataset.inputs(), options, heads_with_gate)


def test_the_loss_is_the_mean_cross_entropy_of_an_answer_under_the_drawn_gates():
    learner = learner_of(replace(QUICK, sample="batch"))
    rows = learner.batch_at(0)
    uniforms = learner.uniform(0, 6)
    assert uniforms.shape == (1, 12)
    gates = learner.gates(uniforms).detach()
    with torch.inference_mode(), headlab.hooks.gated(learner.model, gates):
        logits = learner.inputs.logits(learner.inputs.tensors(rows))
    log_probabilities = torch.log_softmax(logits.double(), 1)
    targets = learner.inputs.targets(rows)
    of_right_answers = log_probabilities[range(len(rows)), targets]
    want = -float(of_right_answers.mean())
    assert learner.step(0, rows) == pytest.approx(want, abs=1e-5)


def test_the_weight_rises_during_the_warm_up_and_the_models_rate_falls():
    options = replace(QUICK, steps=10, warmup=0.4, weight=1.0)
    weights = [options.weight_at(step) for step in range(6)]
    assert weights == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    rate_shares = [options.rate(step) / options.model_rate for step in (0, 5, 9)]
    assert rate_shares == pytest.approx([1, 0.5, 0.1])
    assert replace(QUICK, warmup=0.0).weight_at(0) == QUICK.weight


def test_batches_are_those_of_every_training():
    learner = learner_of(QUICK)
    lengths = learner.inputs.lengths.tolist()
    for step in (0, 1, 2, 5):
        batch = learner.batch_at(step)
        assert batch.tolist() == step_batch(lengths, 6, 0, step).tolist()
    batch_sizes = [len(learner.batch_at(step)) for step in range(QUICK.steps)]
    assert learner.forwards == sum(batch_sizes)


def test_only_heads_of_the_stacks_that_are_asked_for_have_gates():
    model = tiny_model("marian", torch.float32, tokenizer=tiny_tokenizer())
    options = replace(QUICK, stacks="encoder, cross", steps=4)
    gates = learn_gates(model, PAIRS, "xx", options=options)
    in_decoder = np.array([head.stack == "decoder" for head in model.grid.heads])
    assert gates.has_gate.tolist() == (~in_decoder).tolist()
    assert gates.kept[in_decoder].all()
    assert (gates.open_probability[:, in_decoder] == 1).all()
    assert gates.kept_by_stack()["decoder"] == (9, 9)
    first_log_alpha = gates.log_alpha[0][gates.has_gate]
    last_log_alpha = gates.log_alpha[-1][gates.has_gate]
    assert (last_log_alpha != first_log_alpha).all()
    for stacks in ("encoders", ",", ""):
        options = replace(QUICK, stacks=stacks)
        with raises("gate.stacks_invalid", f"'{stacks}'", "encoder, decoder, cross", "all"):
            learn_gates(model, PAIRS, "xx", options=options)
    with raises("stack.unknown", "'cross'", "encoder"):
        learn_gates(
            tiny(),
            tiny_task(),
            "xx",
            options=replace(QUICK, stacks="cross"),
        )


@pytest.mark.parametrize("family", ["albert", "deberta-v2", "gpt2", "t5", "bert-tokens"])
def test_every_gate_gets_a_gradient_in_every_kind_of_model(family):
    task = {"t5": PAIRS, "bert-tokens": WORDS}.get(family, tiny_task())
    model = tiny_model(family, torch.float32, tokenizer=tiny_tokenizer())
    # At this temperature, hardly a draw is cut off to 0 or 1.
    options = replace(QUICK, weight=0.0, temperature=5.0, start=0.9999)
    learner = learner_of(options, model, task)
    learner.step(0, learner.batch_at(0))
    assert learner.log_alpha.grad.isfinite().all()
    assert (learner.log_alpha.grad != 0).all()


def test_the_callers_random_numbers_and_model_are_left_alone():
    module = tiny().module
    state_before = state_of(module)
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    learn_gates(tiny(), tiny_task(), "xx", options=replace(QUICK, steps=2))
    assert torch.equal(torch.rand(2), want)
    assert_same_state(state_of(module), state_before)
    assert not module.training
    assert all(parameter.grad is None for parameter in module.parameters())


# Going on


@pytest.mark.parametrize("what_is_trained", ["gates", "all"])
def test_an_interrupted_learning_ends_with_the_same_bits(tmp_path: Path, what_is_trained: str):
    options = replace(QUICK, trained=what_is_trained, model_rate=1e-3)
    dataset = GatesDataset(model_with_dropout(), tiny_task(), "xx", options)
    uninterrupted_gates = learn(dataset, options, store=Store(tmp_path / "whole"))
    store = Store(tmp_path / "cut")
    checkpoint = store.run(uninterrupted_gates.spec).folder / CHECKPOINT
    with pytest.raises(Interrupted):
        learn(
            dataset,
            options,
            store=store,
            watch=Watch(stop_at(5), **CHECKPOINT_AT_EVERY_STEP),
        )
    assert checkpoint.exists()
    steps: list[int] = []
    watch = Watch(lambda step: steps.append(step.step), **CHECKPOINT_AT_EVERY_STEP)
    resumed_gates = learn(dataset, options, store=store, watch=watch)
    assert steps[0] == 6
    assert_same_gates(resumed_gates, uninterrupted_gates)
    assert resumed_gates.trained == uninterrupted_gates.trained
    assert not checkpoint.exists()
    # The third time they are read and not learned, or the watch would stop it.
    stored_gates = learn(dataset, options, store=store, watch=Watch(stop_at(1)))
    assert_same_gates(stored_gates, resumed_gates)


def test_a_run_stopped_while_it_is_measured_makes_no_step_again(tmp_path: Path):
    def stop() -> None:
        raise Interrupted

    dataset = GatesDataset(tiny(), tiny_task(), "xx", QUICK)
    store = Store(tmp_path)
    with pytest.raises(Interrupted):
        learn(dataset, QUICK, store=store, watch=Watch(measuring=stop))
    steps: list[int] = []
    watch = Watch(lambda step: steps.append(step.step))
    resumed_gates = learn(dataset, QUICK, store=store, watch=watch)
    assert steps == []
    assert_same_gates(resumed_gates, learn(dataset, QUICK, store=None))


def test_a_checkpoint_of_another_length_or_torn_starts_over_and_says_so(tmp_path: Path, caplog):
    dataset = GatesDataset(tiny(), tiny_task(), "xx", QUICK)
    store = Store(tmp_path)
    uninterrupted_gates = learn(dataset, QUICK, store=None)
    run = store.run(dataset.spec(QUICK))
    checkpoint = run.folder / CHECKPOINT

    def tear() -> None:
        data = checkpoint.read_bytes()
        checkpoint.write_bytes(data[: len(data) // 2])

    def replace_with_another_history() -> None:
        learner = learner_of(QUICK)
        learner.state.losses = [1.0] * 7
        learner.state.save(checkpoint, run.key)

    for spoil in (tear, replace_with_another_history):
        watch = Watch(stop_at(5), **CHECKPOINT_AT_EVERY_STEP)
        with pytest.raises(Interrupted):
            learn(dataset, QUICK, store=store, watch=watch)
        spoil()
        watch = Watch(**CHECKPOINT_AT_EVERY_STEP)
        with caplog.at_level(logging.WARNING):
            gates = learn(dataset, QUICK, store=store, watch=watch)
        assert_same_gates(gates, uninterrupted_gates)
        assert "starting afresh" in caplog.text
        caplog.clear()
        (run.folder / "result.npz").unlink()


def test_a_batch_that_does_not_fit_is_added_up_from_parts(monkeypatch, caplog):
    def losses(learner: Learner) -> list[float]:
        return [learner.step(step, learner.batch_at(step)) for step in range(3)]

    much_memory = learner_of(QUICK)
    little_memory = learner_of(QUICK)
    want = losses(much_memory)
    original_logits = Texts.logits

    def logits_of_4_rows(self: Texts, inputs: Any) -> torch.Tensor:
        if len(inputs["input_ids"]) > 4:
            raise torch.OutOfMemoryError("made up")
        return original_logits(self, inputs)

    monkeypatch.setattr(Texts, "logits", logits_of_4_rows)
    assert losses(little_memory) == pytest.approx(want, abs=1e-5)
    assert little_memory.state.row_limit == 3
    assert "6 examples together do not fit" in caplog.text
    torch.testing.assert_close(
        little_memory.log_alpha,
        much_memory.log_alpha,
        atol=1e-3,
        rtol=0,
    )


# The model trained jointly


def test_a_model_trained_jointly_is_written_read_and_measured(tmp_path: Path):
    options = replace(QUICK, trained="all", model_rate=1e-2, clip=None)
    store = Store(tmp_path)
    state_before = state_of(tiny().module)
    gates = learn_gates(tiny(), tiny_task(), "xx", options=options, store=store)
    result = store.run(gates.spec).result(LearnedGates)
    assert result is not None
    assert trained_folder(result) is not None
    trained_model = headlab.load(str(trained_folder(result)))
    trained_state = trained_model.module.state_dict()
    changed_names = {
        name
        for name, tensor in state_before.items()
        if not torch.equal(tensor, trained_state[name])
    }
    assert changed_names
    assert not any(name.endswith("embeddings.weight") for name in changed_names)
    task = tiny_task().with_languages(["xx"])
    evaluation = headlab.evaluate(trained_model, task, gates.mask())["xx"]
    assert evaluation.accuracy == gates.measured["dev"]["accuracy"]
    assert "trained jointly" in gates.notes[0]
    assert_same_state(state_of(tiny().module), state_before)
    with raises("mask.other_model", "tiny-bert trained with gates"):
        headlab.evaluate(tiny(), tiny_task(), gates.mask())


def test_a_model_trained_jointly_is_copied_out_of_the_cache_or_reported_missing(
    tmp_path: Path, monkeypatch
):
    options = replace(QUICK, trained="all", steps=2)
    store = Store(tmp_path / "cache")
    gates = learn_gates(tiny(), tiny_task(), "xx", options=options, store=store)
    run = store.run(gates.spec)
    # From here on nothing is learned.
    monkeypatch.setattr("headlab.training.l0_learn.Learner", None)

    def stored_gates(folder: Path | None) -> LearnedGates:
        return learn_gates(tiny(), tiny_task(), "xx", options=options, store=store, out=folder)

    assert stored_gates(tmp_path / "copy").trained == {**gates.trained, "folder": "copy"}
    copied_model = headlab.load(str(tmp_path / "copy"))
    assert copied_model.fingerprint == gates.trained["fingerprint"]
    assert stored_gates(None).notes == gates.notes
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    with raises("output.not_replaceable"):
        stored_gates(tmp_path / "mine")
    shutil.rmtree(run.folder / "model")
    assert stored_gates(tmp_path / "copy").trained["folder"] == "copy"
    last_note = stored_gates(None).notes[-1]
    assert f"delete folder {run.key[:12]}" in last_note
    with raises("training.model_gone", "to train it again, delete"):
        stored_gates(tmp_path / "other")


def test_a_translation_model_trained_jointly_keeps_its_generation_settings(tmp_path: Path):
    model = tiny_model("marian", torch.float32, tokenizer=tiny_tokenizer())
    by_default = translations(Evaluator(model, SENTENCES, "aa-bb"))
    default_ids: set[int] = set()
    for text in by_default:
        default_ids.update(model.tokenizer(text, add_special_tokens=False)["input_ids"])
    model.module.generation_config.bad_words_ids = [[token] for token in sorted(default_ids)]
    by_settings = translations(Evaluator(model, SENTENCES, "aa-bb"))
    assert by_settings != by_default
    # At this rate, the weights do not change by a bit.
    options = replace(QUICK, trained="all", model_rate=1e-12, steps=1, batch=2)
    learn_gates(model, SENTENCES, "aa-bb", options=options, out=tmp_path / "model")
    trained_model = headlab.load(str(tmp_path / "model"))
    assert translations(Evaluator(trained_model, SENTENCES, "aa-bb")) == by_settings


def test_a_model_trained_jointly_needs_a_folder_and_float32(tmp_path: Path):
    options = replace(QUICK, trained="all", steps=1)
    with raises("training.place_missing"):
        learn_gates(tiny(), tiny_task(), "xx", options=options)
    bfloat16_model = tiny_model("bert", torch.bfloat16, tokenizer=tiny_tokenizer())
    with raises("training.not_float32", "bfloat16"):
        learn_gates(bfloat16_model, tiny_task(), "xx", options=options, out=tmp_path / "out")


# Splits, options, faults


def test_gates_are_learned_on_dev_where_there_is_no_train_split_and_a_note_says_so():
    task = tiny_task()

    def read_dev_only(
        language: str,
        split: Split,
        seed: int,
    ) -> Any:
        return task.read(language, split, seed) if split == "dev" else []

    dev_task = replace(task, read=read_dev_only)
    gates = learn_gates(tiny(), dev_task, "xx", options=replace(QUICK, steps=2))
    assert gates.spec["task"]["split"] == "dev"
    assert list(gates.measured) == ["dev"]
    assert "optimistic" in gates.notes[0]
    assert "not measured on test" in gates.notes[1]
    with raises("task.no_examples", "train"):
        learn_gates(tiny(), dev_task, "xx", options=replace(QUICK, split="train"))


def test_a_train_split_that_cannot_be_read_is_reported_and_not_passed_over():
    task = tiny_task()

    def read(
        language: str,
        split: Split,
        seed: int,
    ) -> Any:
        if split == "train":
            raise HeadlabError(
                "xx.train.tsv, line 7: 2 fields where the header has 3", code="data.fields_mismatch"
            )
        return task.read(language, split, seed)

    with raises("data.fields_mismatch", "line 7"):
        GatesDataset(tiny(), replace(task, read=read), "xx", QUICK)


@pytest.mark.parametrize(
    ("parameter_index", "refusal"),
    [
        (0, ("gate.diverged", "a gate", "gate_rate")),
        (-1, ("gate.diverged", "the weight", "model_rate")),
    ],
)
def test_a_parameter_that_the_last_step_made_infinite_is_refused_with_a_sentence(
    tmp_path: Path,
    monkeypatch,
    parameter_index: int,
    refusal: tuple[object, ...],
):
    def make_infinite(self: Learner) -> None:
        parameters = list(self.state.parameters.values())
        parameters[parameter_index].data.fill_(float("inf"))

    monkeypatch.setattr(Learner, "update", make_infinite)
    options = replace(QUICK, steps=1, trained="all")
    with raises(*refusal):
        learn_gates(
            tiny(),
            tiny_task(),
            "xx",
            options=options,
            out=tmp_path / "model",
        )
    assert not (tmp_path / "model").exists()


def test_any_seed_can_be_learned_with():
    learner = learner_of(replace(QUICK, seed=1 << 80))
    assert np.isfinite(learner.step(0, learner.batch_at(0)))
    assert [dropout_seed(0, step) for step in (0, 7)] == [1, 8]
    assert dropout_seed(3, 1) == 3 * 1_000_003 + 2


def test_a_loss_that_is_no_number_is_refused_with_a_sentence(monkeypatch):
    def logits_without_numbers(_: Texts, inputs: Any) -> torch.Tensor:
        return torch.full((len(inputs["input_ids"]), 5), torch.nan)

    def loss_without_number(self: Learner, *_: object) -> torch.Tensor:
        return self.log_alpha.sum() * torch.nan

    monkeypatch.setattr(Texts, "logits", logits_without_numbers)
    monkeypatch.setattr(Learner, "loss", loss_without_number)
    learner = learner_of(QUICK)
    with raises("training.loss_not_finite", 1, "nan"):
        learner.step(0, learner.batch_at(0))


def test_the_table_of_options_and_the_dataclass_say_the_same():
    defaults = {field.name: field.default for field in fields(GateOptions)}
    assert defaults.pop("seed") == 0
    table = GateOptions.table()
    assert defaults == {name: option.default for name, option in table.items()}
    assert list(defaults) == list(table)
    options = options_of({"weight": 1, "size": None, "stacks": "encoder"}, seed=4)
    assert options.weight == 1.0
    assert type(options.weight) is float
    assert options.seed == 4
    assert options.stacks == "encoder"
    assert "model_rate" not in options.record()
    assert replace(options, trained="all").record()["model_rate"] == 2e-5
    short_history = replace(QUICK, steps=10, history=3)
    long_history = replace(QUICK, steps=3, history=60)
    assert short_history.times == (0, 3, 7, 10)
    assert long_history.times == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"weight": -1}, ("option.invalid", "weight", -1, "a number of 0 or more")),
        ({"weight": float("inf")}, ("option.invalid", "weight", "inf")),
        ({"steps": 0}, ("option.invalid", "steps", 0)),
        ({"start": 1.0}, ("option.invalid", "start", 1.0)),
        ({"trained": "model"}, ("option.invalid", "trained", "'model'", "gates or all")),
        ({"low": 0.1}, ("option.invalid", "low", 0.1)),
        ({"size": 0}, ("option.invalid", "size", 0)),
        ({"temperature": 0}, ("option.invalid", "temperature", 0)),
        ({"split": "test"}, ("option.invalid", "split", "'test'")),
        ({"rate": 1}, ("option.unknown", "rate")),
        ({"low": -1e17}, ("gate.distribution_invalid", "-1e+17", 1.1, 0.33)),
        ({"low": -1e308, "high": 1e308}, ("gate.distribution_invalid",)),
        ({"low": -1e300, "high": 1e300}, ("gate.distribution_invalid",)),
        ({"low": -10, "high": 1.0000000000000002}, ("gate.distribution_invalid",)),
        ({"temperature": 1e39}, ("gate.distribution_invalid",)),
    ],
)
def test_unusable_options_are_refused(settings, refusal):
    with raises(*refusal):
        options_of(settings)


def test_extreme_distributions_that_floats_can_represent_can_be_learned_with():
    for settings in (
        {"low": -1e6, "high": 1e6},
        {"low": -1e-300},
        {"temperature": 1e-3},
        {"start": 1e-300},
    ):
        options = options_of(settings)
        resolved_settings = {name: getattr(options, name) for name in settings}
        learner = learner_of(replace(QUICK, **resolved_settings))
        assert np.isfinite(learner.step(0, np.arange(4)))


def test_equal_options_have_one_key_and_keys_of_stored_runs_stay():
    def key(**options: Any) -> str:
        return content_key(GateOptions(**options).record())

    key_of_integers = key(weight=1, high=2, clip=None, trained="all")
    key_of_floats = key(weight=1.0, high=2.0, clip=None, trained="all")
    assert key_of_integers == key_of_floats
    assert key(stacks=" cross, encoder,cross") == key(stacks="encoder, cross")
    assert key(stacks="encoder,cross") == key(stacks="encoder, cross")
    assert key(stacks="encoder,all") == key()
    assert key(stacks="encoder") != key()
    assert key(weight=0.01, steps=300)[:12] == "426abcafa845"
    assert key(weight=0.01, steps=300, stacks="encoder")[:12] == "f1b76ab8b761"
    assert options_of({"stacks": "decoder , encoder"}).stacks == "encoder,decoder"


def test_a_negative_seed_and_an_empty_sweep_are_refused():
    with raises("seed.invalid", -1):
        options_of({}, seed=-1)
    with raises("gate.weights_missing"):
        sweep(tiny(), tiny_task(), "xx", [])


def test_the_command_makes_a_sweep_and_masks_and_finds_them_again(tmp_path: Path, capsys):
    folder = save_classifier(tmp_path / "model")
    cache_folder = tmp_path / "cache"

    def times_of_results() -> list[int]:
        return [path.stat().st_mtime_ns for path in cache_folder.glob("*/result.npz")]

    command = ["gates", "--model", str(folder), "--weight", "0", "--lambda", "9"]
    command += ["--cache", str(cache_folder)]
    for setting in ("steps=3", "batch=4", "gate_rate=2", "size=16", "dev_size=8", "test_size=8"):
        command += ["-o", setting]
    assert main([*command, "--out", str(tmp_path / "masks"), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["weight"] for run in runs] == [0.0, 9.0]
    assert runs[1]["kept"] == 0
    assert runs[1]["stacks"] == {"encoder": {"kept": 0, "heads": 6}}
    mask = load_mask(tmp_path / "masks" / "gates-9.json")
    assert mask.digest == runs[1]["mask_digest"]
    assert len(mask.removed) == 6
    times = times_of_results()
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "| 9 | 0 | 6 | 6 |" in text
    assert times_of_results() == times
    assert main(["cache", "--cache", str(cache_folder)]) == 0
    assert "intents/en  gates at λ 9, 0 of 6 heads" in capsys.readouterr().out
    assert main([*command, "-o", "weight=3"]) == 2
    assert "weight is set by --weight" in capsys.readouterr().err


def test_the_command_says_where_a_model_is_that_was_trained_jointly(tmp_path: Path, capsys):
    folder = save_classifier(tmp_path / "model")
    command = ["gates", "--model", str(folder), "--weight", "0", "--weight", "9"]
    command += ["--cache", str(tmp_path / "cache")]
    for setting in ("steps=1", "batch=2", "size=4", "dev_size=4", "test_size=4"):
        command += ["-o", setting]
    assert main([*command, "--train-model", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    for run in runs:
        model = headlab.load(run["model_folder"])
        assert model.fingerprint == run["trained"]["fingerprint"]
    shutil.rmtree(runs[1]["model_folder"])
    assert main([*command, "--train-model"]) == 0
    text = capsys.readouterr().out
    assert f"model of λ = 0: {runs[0]['model_folder']}" in text
    assert "model of λ = 9" not in text
    assert "λ = 9: the model that was trained jointly is not in the cache" in text
    assert main([*command, "--json"]) == 0
    assert "model_folder" not in json.loads(capsys.readouterr().out)["runs"][0]


def test_notes_of_all_runs_stand_once_and_others_with_their_weights():
    notes_by_weight = {
        0.01: ("all", "two"),
        0.02: ("all",),
        0.05: ("all", "two", "last"),
    }
    runs = []
    for weight, notes in notes_by_weight.items():
        runs.append(replace(made_gates(weight=weight), notes=notes))
    assert run_notes(runs) == ["all", "λ = 0.01, 0.05: two", "λ = 0.05: last"]


@pytest.mark.parametrize(
    ("weights", "folder", "message"),
    [
        (
            ["0.1", "0.1000000000000001"],
            "masks",
            "λ = 0.1 and λ = 0.1000000000000001 would have the same",
        ),
        (["0.1"], "taken", "taken is a file; name a folder"),
        (["0.1"], "taken/masks", "taken is a file"),
    ],
)
def test_masks_that_could_not_be_written_are_refused_before_anything_is_learned(
    tmp_path: Path,
    capsys,
    monkeypatch,
    weights: list[str],
    folder: str,
    message: str,
):
    monkeypatch.setattr("headlab.training.l0_learn.sweep", None)
    (tmp_path / "taken").write_text("mine")
    command = ["gates", "--out", str(tmp_path / folder), "--cache", str(tmp_path / "cache")]
    for weight in weights:
        command += ["--weight", weight]
    assert main(command) != 0
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert (tmp_path / "taken").read_text() == "mine"


def test_the_options_are_documented_with_their_defaults():
    path = Path(__file__).parents[2] / "docs" / "gates.md"
    page = path.read_text(encoding="utf-8")
    default_texts = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            default_texts[cells[0].strip("`")] = cells[1]
    expected_texts = {}
    for name, option in GateOptions.table().items():
        expected_texts[name] = f"`{json.dumps(option.default)}`"
    assert default_texts == expected_texts
