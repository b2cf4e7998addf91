"""Gates that learn: their distribution, what they close and keep, and runs that go on where they stopped."""

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
from support.synthetic_gates import made_gates
from support.tiny_models import tiny_model, tiny_module
from support.tiny_task import LABELS, tiny_task, tiny_tokenizer
from test_generation import TASK as SENTENCES
from test_inputs import PAIRS, WORDS

import headlab
from headlab.cli.main import main
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

NEEDED = ((0, 1), (2, 3))  # (layer, head) of the planted model whose answers hang on them
QUICK = GateOptions(steps=12, batch=6, weight=0.05, history=4, dev_size=24, test_size=30)
EVERY = {"checkpoint_every": 1, "checkpoint_share": 1.0}


class Interrupted(Exception):
    pass


def stop_at(step: int) -> Any:
    def say(made: GateStep) -> None:
        if made.step == step:
            raise Interrupted

    return say


@cache
def tiny() -> Model:
    return tiny_model("bert", torch.float32, tokenizer=tiny_tokenizer())


def dropping() -> Model:
    """With dropout, whose draws an interrupted training must find again."""
    module = tiny_module("bert", torch.float32)
    module.config.hidden_dropout_prob = 0.3
    return make_gateable(Checkpoint("dropping", "test", "dropping", module, tiny_tokenizer()))


@cache
def planted() -> tuple[Model, Task]:
    """A model whose heads give nothing but the needed ones, and a task whose labels are its own answers."""
    module = tiny_module("bert", torch.float32)
    with torch.no_grad():
        for row, layer in enumerate(module.bert.encoder.layer):
            columns = layer.attention.output.dense.weight.unflatten(1, (4, 6))
            for head in range(4):
                columns[:, head] *= 40.0 if (row, head) in NEEDED else 0.0
        module.classifier.weight *= 30.0
    model = make_gateable(Checkpoint("planted", "test", "planted", module, tiny_tokenizer()))
    plain = tiny_task()

    @cache
    def answers(language: str, split: Split, seed: int) -> list[Example]:
        examples = [replace(e, group="") for e in plain.read(language, split, seed)]
        inputs = read_inputs(model, plain, examples, language)
        with torch.inference_mode():
            best = inputs.logits(inputs.tensors(np.arange(len(examples)))).argmax(dim=-1).tolist()
        return [replace(e, label=label) for e, label in zip(examples, best, strict=True)]

    return model, Task("planted", LABELS, ("xx",), False, answers)


def same(one: LearnedGates, other: LearnedGates) -> bool:
    numbers = ("accuracy", "difference", "low", "high", "p")
    return one.values_sha256() == other.values_sha256() and all(
        one.measured[split][name] == other.measured[split][name]
        for split in ("dev", "test")
        for name in numbers
    )


# The distribution


@pytest.mark.parametrize("log_alpha", [-3.0, -0.5, 0.4, 2.5])
@pytest.mark.parametrize("parts", [(0.33, -0.1, 1.1), (0.8, -0.4, 1.2)])
def test_the_moments_are_those_of_the_sum_over_all_draws_and_of_a_sample(log_alpha, parts):
    concrete = HardConcrete(*parts)
    (likely, one, mean, variance) = hard_concrete(log_alpha, *parts)
    assert float(concrete.open(torch.tensor(log_alpha, dtype=torch.float64))) == pytest.approx(
        likely, abs=1e-5
    )
    assert float(concrete.zero(np.array(log_alpha))) == pytest.approx(1 - likely, abs=1e-5)
    assert float(concrete.one(np.array(log_alpha))) == pytest.approx(one, abs=1e-5)
    assert concrete.mean(log_alpha) == pytest.approx(mean, abs=1e-5)
    assert concrete.variance(log_alpha) == pytest.approx(variance, abs=1e-5)
    uniform = torch.as_tensor(np.random.default_rng(0).random(40_000))
    drawn = concrete.sample(torch.tensor(log_alpha, dtype=torch.float64), uniform)
    assert float(drawn.mean()) == pytest.approx(
        concrete.mean(log_alpha), abs=4 * np.sqrt(variance / 40_000)
    )
    spread = float(((drawn - mean) ** 2).std()) / 200
    assert float(drawn.var()) == pytest.approx(concrete.variance(log_alpha), abs=4 * spread)
    for share, probability in (((drawn == 0), 1 - likely), ((drawn == 1), one)):
        assert float(share.double().mean()) == pytest.approx(probability, abs=4 * 0.5 / 200)


def test_the_gradient_of_the_penalty_is_that_of_the_probability_of_being_open():
    concrete = HardConcrete()
    log_alpha = torch.tensor([-1.0, 0.7], dtype=torch.float64, requires_grad=True)
    concrete.open(log_alpha).sum().backward()
    for value, gradient in zip(log_alpha.tolist(), log_alpha.grad.tolist(), strict=True):
        up, down = (hard_concrete(value + d, 0.33, -0.1, 1.1, 2_000_000)[0] for d in (0.05, -0.05))
        assert gradient == pytest.approx((up - down) / 0.1, abs=2e-4)


def test_the_gradient_of_a_drawn_gate_is_that_of_its_mean():
    log_alpha = torch.full((40_000,), 0.6, dtype=torch.float64, requires_grad=True)
    HardConcrete().sample(
        log_alpha, torch.as_tensor(np.random.default_rng(1).random(40_000))
    ).sum().backward()
    up, down = (hard_concrete(0.6 + d, 0.33, -0.1, 1.1)[2] for d in (0.01, -0.01))
    error = float(log_alpha.grad.std()) / 200
    assert float(log_alpha.grad.mean()) == pytest.approx((up - down) / 0.02, abs=4 * error)


def test_a_gate_starts_at_the_probability_that_was_asked_for():
    for probability in (0.2, 0.9, 0.99):
        start = torch.tensor(HardConcrete().start(probability), dtype=torch.float64)
        assert float(HardConcrete().open(start)) == pytest.approx(probability)


@pytest.mark.parametrize("parts", [(0.33, -0.1, 1.1), (0.8, -0.4, 1.2)])
def test_a_head_is_kept_where_its_gate_is_likelier_one_than_zero(parts):
    concrete = HardConcrete(*parts)
    near = concrete.even + np.array([-0.6, -0.05, 0.05, 0.6])
    learned = replace(
        made_gates(),
        log_alpha=np.tile(near.repeat([3, 3, 3, 2]).astype(np.float32), (7, 1)),
        concrete=concrete,
    )
    probabilities = [hard_concrete(float(value), *parts) for value in learned.log_alpha[-1]]
    assert learned.kept.tolist() == [one > 1 - likely for likely, one, *_ in probabilities]
    assert learned.kept.sum() == 5
    assert HardConcrete().even == pytest.approx(0)


@pytest.mark.parametrize(
    ("value", "sure"), [(HardConcrete().start(0.9), False), (3.1, True), (-3.1, True), (0.0, False)]
)
def test_a_gate_is_decided_once_it_is_surely_one_or_surely_zero(value, sure):
    """A gate that never moved is not: it is open with 0.9, but 1 with 0.65 only."""
    learned = replace(made_gates(), log_alpha=np.full((7, 11), value, np.float32))
    likely, one, *_ = hard_concrete(value, 0.33, -0.1, 1.1)
    assert sure == (max(1 - likely, one) >= 0.9)
    assert learned.undecided() == (0 if sure else 11)


# What is learned


def test_gates_of_heads_that_the_labels_need_stay_open_and_the_others_close():
    model, task = planted()
    options = replace(QUICK, steps=60, gate_rate=0.1, weight=0.05, batch=12)
    learned = learn_gates(model, task, "xx", options=options)
    assert [
        (h.layer, h.head) for h, kept in zip(model.grid.heads, learned.kept, strict=True) if kept
    ] == list(NEEDED)
    assert learned.open_probability[-1][~learned.kept].max() < 0.1
    assert learned.measured["test"]["accuracy"] == learned.measured["test"]["baseline"] == 1.0
    assert learned.measured["test"]["kept"] == 2
    assert learned.penalty[-1] == pytest.approx(0.05 * learned.open_probability[-1].sum())
    assert (learned.steps[0], learned.steps[-1], len(learned.loss)) == (0, 60, len(learned.steps))
    assert learned.open_probability[0] == pytest.approx(0.9)


def test_without_a_penalty_no_gate_is_pushed_shut_and_with_a_heavy_one_all_are():
    model, task = planted()
    free, dear = sweep(
        model, task, "xx", [0.0, 1e4], options=replace(QUICK, steps=30, gate_rate=0.2)
    )
    idle = np.array([(h.layer, h.head) not in NEEDED for h in model.grid.heads])
    assert np.array_equal(free.log_alpha[-1][idle], free.log_alpha[0][idle])
    assert int(dear.kept.sum()) == 0
    assert dear.kept_by_stack() == {"encoder": (0, 12)}


def test_the_gradient_is_the_tasks_and_lambda_times_the_penaltys():
    gradients = {}
    for weight in (0.0, 0.3):
        learner = learner_of(replace(QUICK, weight=weight))
        learner.step(0, learner.batch_at(0))
        gradients[weight] = learner.log_alpha.grad.clone()
    likely = torch.tensor(0.9)
    torch.testing.assert_close(
        gradients[0.3] - gradients[0.0], (0.3 * likely * (1 - likely)).expand(12)
    )


def learner_of(
    options: GateOptions, model: Model | None = None, task: Task | None = None
) -> Learner:
    given = GatesDataset(model or tiny(), task or tiny_task(), "xx", options)
    return Learner(given.model, given.inputs(), options, options.heads_with_gate(given.model.grid))


def test_the_loss_is_the_mean_cross_entropy_of_an_answer_under_the_drawn_gates():
    learner = learner_of(replace(QUICK, sample="batch"))
    chosen = learner.batch_at(0)
    uniform = learner.uniform(0, 6)
    assert uniform.shape == (1, 12)
    with (
        torch.inference_mode(),
        headlab.hooks.gated(learner.model, learner.gates(uniform).detach()),
    ):
        logits = learner.inputs.logits(learner.inputs.tensors(chosen)).double()
    right = torch.log_softmax(logits, 1)[range(len(chosen)), learner.inputs.targets(chosen)]
    assert learner.step(0, chosen) == pytest.approx(-float(right.mean()), abs=1e-5)


def test_the_weight_rises_during_the_warm_up_and_the_models_rate_falls():
    options = replace(QUICK, steps=10, warmup=0.4, weight=1.0)
    assert [options.weight_at(step) for step in range(6)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 1]
    )
    assert [options.rate(s) / options.model_rate for s in (0, 5, 9)] == pytest.approx([1, 0.5, 0.1])
    assert replace(QUICK, warmup=0.0).weight_at(0) == QUICK.weight


def test_batches_are_those_of_every_training():
    learner = learner_of(QUICK)
    lengths = learner.inputs.lengths.tolist()
    for step in (0, 1, 2, 5):
        assert learner.batch_at(step).tolist() == step_batch(lengths, 6, 0, step).tolist()
    assert learner.forwards == sum(len(learner.batch_at(step)) for step in range(QUICK.steps))


def test_only_heads_of_the_stacks_that_are_asked_for_have_gates():
    model = tiny_model("marian", torch.float32, tokenizer=tiny_tokenizer())
    options = replace(QUICK, stacks="encoder, cross", steps=4)
    learned = learn_gates(model, PAIRS, "xx", options=options)
    stacks = np.array([head.stack for head in model.grid.heads])
    assert learned.gated.tolist() == (stacks != "decoder").tolist()
    assert learned.kept[stacks == "decoder"].all()
    assert (learned.open_probability[:, stacks == "decoder"] == 1).all()
    assert learned.kept_by_stack()["decoder"] == (9, 9)
    assert (learned.log_alpha[-1][learned.gated] != learned.log_alpha[0][learned.gated]).all()
    for stacks in ("encoders", ",", ""):
        with raises("gate.stacks_invalid", f"'{stacks}'", "encoder, decoder, cross", "all"):
            learn_gates(model, PAIRS, "xx", options=replace(QUICK, stacks=stacks))
    with raises("stack.unknown", "'cross'", "encoder"):
        learn_gates(tiny(), tiny_task(), "xx", options=replace(QUICK, stacks="cross"))


@pytest.mark.parametrize("family", ["albert", "deberta-v2", "gpt2", "t5", "bert-tokens"])
def test_every_gate_gets_a_gradient_in_every_kind_of_model(family):
    task = {"t5": PAIRS, "bert-tokens": WORDS}.get(family, tiny_task())
    # hardly a draw is cut to 0 or 1
    soft = replace(QUICK, weight=0.0, temperature=5.0, start=0.9999)
    learner = learner_of(soft, tiny_model(family, torch.float32, tokenizer=tiny_tokenizer()), task)
    learner.step(0, learner.batch_at(0))
    assert learner.log_alpha.grad.isfinite().all()
    assert (learner.log_alpha.grad != 0).all()


def test_the_callers_random_numbers_and_model_are_left_alone():
    before = {name: tensor.clone() for name, tensor in tiny().module.state_dict().items()}
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    learn_gates(tiny(), tiny_task(), "xx", options=replace(QUICK, steps=2))
    assert torch.equal(torch.rand(2), wanted)
    assert all(
        torch.equal(before[name], tensor) for name, tensor in tiny().module.state_dict().items()
    )
    assert not tiny().module.training
    assert all(p.grad is None for p in tiny().module.parameters())


# Going on


@pytest.mark.parametrize("trained", ["gates", "all"])
def test_an_interrupted_learning_ends_with_the_same_bits(tmp_path: Path, trained: str):
    options = replace(QUICK, trained=trained, model_rate=1e-3)
    given = GatesDataset(dropping(), tiny_task(), "xx", options)
    whole = learn(given, options, store=Store(tmp_path / "whole"))
    store = Store(tmp_path / "cut")
    steps = list[int]()
    with pytest.raises(Interrupted):
        learn(given, options, store=store, watch=Watch(stop_at(5), **EVERY))
    assert [p.name for p in store.run(whole.spec).folder.iterdir() if p.name == CHECKPOINT]
    after = learn(
        given, options, store=store, watch=Watch(lambda made: steps.append(made.step), **EVERY)
    )
    assert steps[0] == 6
    assert same(whole, after)
    assert whole.trained == after.trained
    assert not (store.run(whole.spec).folder / CHECKPOINT).exists()
    again = learn(given, options, store=store, watch=Watch(stop_at(1)))  # read, not learned
    assert same(after, again)


def test_a_run_stopped_while_it_is_measured_makes_no_step_again(tmp_path: Path):
    def stop() -> None:
        raise Interrupted

    given = GatesDataset(tiny(), tiny_task(), "xx", QUICK)
    store = Store(tmp_path)
    steps = list[int]()
    with pytest.raises(Interrupted):
        learn(given, QUICK, store=store, watch=Watch(measuring=stop))
    learned = learn(given, QUICK, store=store, watch=Watch(lambda made: steps.append(made.step)))
    assert steps == []
    assert same(learned, learn(given, QUICK, store=None))


def test_a_checkpoint_of_another_length_or_torn_starts_over_and_says_so(tmp_path: Path, caplog):
    given = GatesDataset(tiny(), tiny_task(), "xx", QUICK)
    store = Store(tmp_path)
    whole = learn(given, QUICK, store=None)
    path = store.run(given.spec(QUICK)).folder / CHECKPOINT
    for spoil in (lambda data: data[: len(data) // 2], lambda data: data):
        with pytest.raises(Interrupted):
            learn(given, QUICK, store=store, watch=Watch(stop_at(5), **EVERY))
        path.write_bytes(spoil(path.read_bytes()))
        if spoil(b"ab") == b"ab":  # whole, but its history is another's
            learner = learner_of(QUICK)
            learner.state.losses = [1.0] * 7
            learner.state.save(path, store.run(given.spec(QUICK)).key)
        with caplog.at_level(logging.WARNING):
            assert same(whole, learn(given, QUICK, store=store, watch=Watch(**EVERY)))
        assert "starting afresh" in caplog.text
        caplog.clear()
        (path.parent / "result.npz").unlink()


def test_a_batch_that_does_not_fit_is_added_up_from_parts(monkeypatch, caplog):
    whole = learner_of(QUICK)
    short = learner_of(QUICK)
    losses = [whole.step(step, whole.batch_at(step)) for step in range(3)]
    real = Texts.logits

    def logits(self: Texts, inputs: Any) -> torch.Tensor:
        if len(inputs["input_ids"]) > 4:
            raise torch.OutOfMemoryError("made up")
        return real(self, inputs)

    monkeypatch.setattr(Texts, "logits", logits)
    assert [short.step(step, short.batch_at(step)) for step in range(3)] == pytest.approx(
        losses, abs=1e-5
    )
    assert short.state.rows == 3
    assert "6 examples together do not fit" in caplog.text
    torch.testing.assert_close(short.log_alpha, whole.log_alpha, atol=1e-3, rtol=0)


# The model along


def test_a_model_trained_along_is_written_read_and_measured(tmp_path: Path):
    options = replace(QUICK, trained="all", model_rate=1e-2, clip=None)
    store = Store(tmp_path)
    before = {n: t.clone() for n, t in tiny().module.state_dict().items()}
    learned = learn_gates(tiny(), tiny_task(), "xx", options=options, store=store)
    result = store.run(learned.spec).result(LearnedGates)
    assert result is not None
    assert trained_folder(result) is not None
    loaded = headlab.load(str(trained_folder(result)))
    after = loaded.module.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert not any(name.endswith("embeddings.weight") for name in moved)
    found = headlab.evaluate(loaded, tiny_task().restricted(["xx"]), learned.mask())["xx"]
    assert found.accuracy == learned.measured["dev"]["accuracy"]
    assert "trained jointly" in learned.notes[0]
    assert all(torch.equal(before[n], t) for n, t in tiny().module.state_dict().items())
    with raises("mask.other_model", "tiny-bert trained with gates"):
        headlab.evaluate(tiny(), tiny_task(), learned.mask())


def test_a_model_trained_along_is_copied_out_of_the_cache_or_said_to_be_lost(
    tmp_path: Path, monkeypatch
):
    options = replace(QUICK, trained="all", steps=2)
    store = Store(tmp_path / "cache")
    learned = learn_gates(tiny(), tiny_task(), "xx", options=options, store=store)
    # from here on nothing is learned
    monkeypatch.setattr("headlab.training.l0_learn.Learner", None)

    def again(out: Path | None) -> LearnedGates:
        return learn_gates(tiny(), tiny_task(), "xx", options=options, store=store, out=out)

    assert again(tmp_path / "copy").trained == {**learned.trained, "folder": "copy"}
    assert headlab.load(str(tmp_path / "copy")).fingerprint == learned.trained["fingerprint"]
    assert again(None).notes == learned.notes
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    with raises("output.not_replaceable"):
        again(tmp_path / "mine")
    shutil.rmtree(store.run(learned.spec).folder / "model")
    assert again(tmp_path / "copy").trained["folder"] == "copy"
    assert f"delete folder {store.run(learned.spec).key[:12]}" in again(None).notes[-1]
    with raises("training.model_gone", "to train it again, delete"):
        again(tmp_path / "other")


def test_a_translation_model_trained_along_writes_by_the_settings_that_were_given(tmp_path: Path):
    model = tiny_model("marian", torch.float32, tokenizer=tiny_tokenizer())
    free = translations(Evaluator(model, SENTENCES, "aa-bb"))
    written = {
        n for text in free for n in model.tokenizer(text, add_special_tokens=False)["input_ids"]
    }
    model.module.generation_config.bad_words_ids = [[n] for n in sorted(written)]
    wanted = translations(Evaluator(model, SENTENCES, "aa-bb"))
    assert wanted != free
    # weights stay, to the bit
    options = replace(QUICK, trained="all", model_rate=1e-12, steps=1, batch=2)
    learn_gates(model, SENTENCES, "aa-bb", options=options, out=tmp_path / "model")
    assert (
        translations(Evaluator(headlab.load(str(tmp_path / "model")), SENTENCES, "aa-bb")) == wanted
    )


def test_a_model_trained_along_needs_a_place_and_whole_numbers(tmp_path: Path):
    options = replace(QUICK, trained="all", steps=1)
    with raises("training.place_missing"):
        learn_gates(tiny(), tiny_task(), "xx", options=options)
    half = tiny_model("bert", torch.bfloat16, tokenizer=tiny_tokenizer())
    with raises("training.not_float32", "bfloat16"):
        learn_gates(half, tiny_task(), "xx", options=options, out=tmp_path / "out")


# Splits, options, faults


def test_dev_is_learned_on_where_there_is_no_train_split_and_that_is_told():
    plain = tiny_task()
    lacking = replace(
        plain,
        read=lambda lang, s, seed: [] if s in ("train", "test") else plain.read(lang, s, seed),
    )
    learned = learn_gates(tiny(), lacking, "xx", options=replace(QUICK, steps=2))
    assert learned.spec["task"]["split"] == "dev"
    assert list(learned.measured) == ["dev"]
    assert "optimistic" in learned.notes[0]
    assert "not measured on test" in learned.notes[1]
    with raises("task.no_examples", "train"):
        learn_gates(tiny(), lacking, "xx", options=replace(QUICK, split="train"))


def test_a_train_split_that_cannot_be_read_is_told_and_not_passed_over():
    plain = tiny_task()

    def read(language: str, split: Split, seed: int) -> Any:
        if split == "train":
            raise HeadlabError(
                "xx.train.tsv, line 7: 2 fields where the header has 3", code="data.fields_mismatch"
            )
        return plain.read(language, split, seed)

    with raises("data.fields_mismatch", "line 7"):
        GatesDataset(tiny(), replace(plain, read=read), "xx", QUICK)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (0, ("gate.diverged", "a gate", "gate_rate")),
        (-1, ("gate.diverged", "the weight", "model_rate")),
    ],
)
def test_what_the_last_step_made_no_number_is_a_sentence(
    tmp_path: Path, monkeypatch, place: int, expected: tuple[object, ...]
):
    monkeypatch.setattr(
        Learner,
        "update",
        lambda self: [*self.state.parameters.values()][place].data.fill_(float("inf")),
    )
    with raises(*expected):
        learn_gates(
            tiny(),
            tiny_task(),
            "xx",
            options=replace(QUICK, steps=1, trained="all"),
            out=tmp_path / "model",
        )
    assert not (tmp_path / "model").exists()


def test_any_seed_can_be_learned_with():
    learner = learner_of(replace(QUICK, seed=1 << 80))
    assert np.isfinite(learner.step(0, learner.batch_at(0)))
    assert [dropout_seed(0, step) for step in (0, 7)] == [1, 8]
    assert dropout_seed(3, 1) == 3 * 1_000_003 + 2


def test_a_loss_that_is_no_number_is_a_sentence(monkeypatch):
    monkeypatch.setattr(
        Texts, "logits", lambda self, inputs: torch.full((len(inputs["input_ids"]), 5), torch.nan)
    )
    learner = learner_of(QUICK)
    monkeypatch.setattr(
        Learner, "loss", lambda self, logits, part: self.log_alpha.sum() * torch.nan
    )
    with raises("training.loss_not_finite", 1, "nan"):
        learner.step(0, learner.batch_at(0))


def test_the_table_of_options_and_the_dataclass_say_the_same():
    names = {f.name: f.default for f in fields(GateOptions)}
    assert names.pop("seed") == 0
    assert names == {name: option.default for name, option in GateOptions.table().items()}
    assert list(names) == list(GateOptions.table())
    made = options_of({"weight": 1, "size": None, "stacks": "encoder"}, seed=4)
    assert (made.weight, type(made.weight), made.seed, made.stacks) == (1.0, float, 4, "encoder")
    assert "model_rate" not in made.record()
    assert replace(made, trained="all").record()["model_rate"] == 2e-5
    assert replace(QUICK, steps=10, history=3).times == (0, 3, 7, 10)
    assert replace(QUICK, steps=3, history=60).times == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_unusable_options_are_refused(given, expected):
    with raises(*expected):
        options_of(given)


def test_far_ends_that_floats_have_room_for_can_be_learned_with():
    for given in (
        {"low": -1e6, "high": 1e6},
        {"low": -1e-300},
        {"temperature": 1e-3},
        {"start": 1e-300},
    ):
        options = options_of(given)
        assert np.isfinite(
            learner_of(replace(QUICK, **{name: getattr(options, name) for name in given})).step(
                0, np.arange(4)
            )
        )


def test_equal_options_have_one_key_and_those_of_runs_that_are_kept_stay():
    def key(**options: Any) -> str:
        return content_key(GateOptions(**options).record())

    assert key(weight=1, high=2, clip=None, trained="all") == key(
        weight=1.0, high=2.0, clip=None, trained="all"
    )
    assert (
        key(stacks=" cross, encoder,cross")
        == key(stacks="encoder,cross")
        == key(stacks="encoder, cross")
    )
    assert key(stacks="encoder,all") == key() != key(stacks="encoder")
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
    arguments = [
        "gates",
        "--model",
        str(folder),
        "--weight",
        "0",
        "--lambda",
        "9",
        "--cache",
        str(tmp_path / "cache"),
    ]
    small = ("steps=3", "batch=4", "gate_rate=2", "size=16", "dev_size=8", "test_size=8")
    arguments += [word for pair in small for word in ("-o", pair)]
    assert main([*arguments, "--out", str(tmp_path / "masks"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["weight"] for run in told["runs"]] == [0.0, 9.0]
    assert told["runs"][1]["kept"] == 0
    assert told["runs"][1]["stacks"] == {"encoder": {"kept": 0, "heads": 6}}
    mask = load_mask(tmp_path / "masks" / "gates-9.json")
    assert mask.digest == told["runs"][1]["mask_digest"]
    assert len(mask.removed) == 6
    made = [path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/result.npz")]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "| 9 | 0 | 6 | 6 |" in text
    assert [path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/result.npz")] == made
    assert main(["cache", "--cache", str(tmp_path / "cache")]) == 0
    assert "intents/en  gates at λ 9, 0 of 6 heads" in capsys.readouterr().out
    assert main([*arguments, "-o", "weight=3"]) == 2
    assert "weight is set by --weight" in capsys.readouterr().err


def test_the_command_says_where_a_model_is_that_was_trained_along(tmp_path: Path, capsys):
    arguments = [
        "gates",
        "--model",
        str(save_classifier(tmp_path / "model")),
        "--weight",
        "0",
        "--weight",
        "9",
    ]
    small = ("steps=1", "batch=2", "size=4", "dev_size=4", "test_size=4")
    arguments += [
        "--cache",
        str(tmp_path / "cache"),
        *(word for pair in small for word in ("-o", pair)),
    ]
    assert main([*arguments, "--train-model", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [headlab.load(run["model_folder"]).fingerprint for run in runs] == [
        run["trained"]["fingerprint"] for run in runs
    ]
    shutil.rmtree(runs[1]["model_folder"])
    assert main([*arguments, "--train-model"]) == 0
    text = capsys.readouterr().out
    assert f"model of λ = 0: {runs[0]['model_folder']}" in text
    assert "model of λ = 9" not in text
    assert "λ = 9: the model that was trained jointly is not in the cache" in text
    assert main([*arguments, "--json"]) == 0
    assert "model_folder" not in json.loads(capsys.readouterr().out)["runs"][0]


def test_notes_of_all_runs_stand_once_and_others_with_their_weights():
    notes = {0.01: ("all", "two"), 0.02: ("all",), 0.05: ("all", "two", "last")}
    found = run_notes(
        [replace(made_gates(weight=weight), notes=own) for weight, own in notes.items()]
    )
    assert found == ["all", "λ = 0.01, 0.05: two", "λ = 0.05: last"]


@pytest.mark.parametrize(
    ("weights", "out", "words"),
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
    tmp_path: Path, capsys, monkeypatch, weights: list[str], out: str, words: str
):
    monkeypatch.setattr("headlab.training.l0_learn.sweep", None)
    (tmp_path / "taken").write_text("mine")
    given = [word for weight in weights for word in ("--weight", weight)]
    assert (
        main(["gates", *given, "--out", str(tmp_path / out), "--cache", str(tmp_path / "cache")])
        != 0
    )
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert (tmp_path / "taken").read_text() == "mine"


def test_the_options_are_documented_with_their_defaults():
    page = (Path(__file__).parents[2] / "docs" / "gates.md").read_text(encoding="utf-8")
    rows = [
        [c.strip() for c in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    documented = {cells[0].strip("`"): cells[1] for cells in rows if len(cells) == 3}
    assert documented == {
        name: f"`{json.dumps(option.default)}`" for name, option in GateOptions.table().items()
    }
