"""Methods but the estimators of Shapley values, against slow truths; the table of methods; runs and their store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.tiny_models import LABELS, tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from torch.nn.functional import cross_entropy

from headlab.core import HeadGrid, HeadlabError, Progress, content_key
from headlab.dashboard.frame.stored_scores import variants
from headlab.evaluation import Evaluator
from headlab.hooks import Model, gated
from headlab.methods import METHODS, costs, gradient, method, remarks, renewal_of
from headlab.methods.model_game import ROUND
from headlab.methods.run import score
from headlab.methods.spec import make_spec
from headlab.methods.table import ALIASES, BUILT_IN
from headlab.methods.work import Arrays, Saver, Work, saves_of
from headlab.results import HeadScores, Store
from headlab.tasks import Example, Split, Task


@pytest.fixture(scope="module", params=["bert", "albert", "gpt2"])
def model(request: pytest.FixtureRequest) -> Model:
    return tiny_model(request.param, tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def evaluator(model: Model) -> Evaluator:
    return Evaluator(model, tiny_task(), "xx", "dev", 16, batch_size=5)


def test_leave_one_out_equals_one_mask_at_a_time(model: Model, evaluator: Evaluator) -> None:
    scores = score(model, tiny_task(), language="xx", method="leave-one-out", size=16)
    whole = evaluator.evaluate().accuracy
    for head in range(model.grid.size):
        kept = np.ones(model.grid.size, bool)
        kept[head] = False
        gates = np.repeat(model.grid.gates(kept)[None], 16, axis=0)
        assert scores.values[head] == pytest.approx(
            whole - evaluator.correct(gates, np.arange(16)).mean(), abs=1e-12
        )
    assert scores.low is not None
    assert scores.high is not None
    assert (scores.low <= scores.values).all()
    assert (scores.values <= scores.high).all()


def example_loss(evaluator: Evaluator, row: int) -> Callable[[np.ndarray], float]:
    inputs = evaluator.tensors(np.array([row]))
    label = torch.tensor([evaluator.examples[row].label])

    def loss(gates: np.ndarray) -> float:
        with torch.no_grad(), gated(evaluator.model, gates):
            return float(cross_entropy(evaluator.model.module(**inputs).logits, label))

    return loss


def test_gradient_equals_finite_differences(model: Model, evaluator: Evaluator) -> None:
    ones = np.ones((model.grid.layers, model.grid.width))
    slopes = np.stack(
        [reference.finite_difference(example_loss(evaluator, r), ones) for r in range(16)]
    )
    ask = {"language": "xx", "method": "gradient", "size": 16, "batch_size": 4}
    got = {
        form: score(model, tiny_task(), form=form, **ask).values for form in ("example", "batch")
    }
    assert_allclose(
        got["example"], np.abs(slopes).mean(axis=0)[tuple(model.grid.flat.T)], atol=1e-6
    )
    batched = np.abs(slopes.reshape(4, 4, *ones.shape).mean(axis=1)).mean(axis=0)
    assert_allclose(got["batch"], batched[tuple(model.grid.flat.T)], atol=1e-6)
    assert (got["batch"] <= got["example"] + 1e-12).all()


def test_token_gradients_sum_to_the_example_gradient(evaluator: Evaluator) -> None:
    for batch in evaluator.batches(np.arange(16)):
        summed = gradient.gate_gradients(evaluator, batch, per_token=True).sum(dim=-1)
        assert_allclose(summed, gradient.gate_gradients(evaluator, batch), atol=1e-10)


def test_token_form_does_not_depend_on_padding(model: Model) -> None:
    ask = {"language": "xx", "method": "gradient", "size": 16, "form": "token"}
    one, many = (score(model, tiny_task(), batch_size=size, **ask) for size in (1, 16))
    for name in ("values", "low", "high", "halves"):
        assert_allclose(getattr(one, name), getattr(many, name), atol=1e-10)


def test_sizes_are_means_over_examples_with_the_interval_that_leaves_out_one_at_a_time(
    model: Model, evaluator: Evaluator
) -> None:
    each = np.zeros((16, model.grid.size))
    groups = [e.group or e.id for e in evaluator.examples]
    for batch in evaluator.batches(np.arange(16)):
        each[batch.rows] = (
            gradient.gate_gradients(evaluator, batch).abs().numpy()[:, *model.grid.flat.T]
        )

    def shares(values: np.ndarray) -> np.ndarray:
        return np.concatenate([v / np.linalg.norm(v) for v in model.grid.nest(values)])

    for normalise, of in ((False, np.asarray), (True, shares)):
        found = score(
            model, tiny_task(), language="xx", method="gradient", size=16, normalise=normalise
        )
        assert_allclose(found.values, of(each.mean(axis=0)), rtol=1e-9)
        assert_allclose(
            found.halves, [of(half.mean(axis=0)) for half in (each[:8], each[8:])], rtol=1e-9
        )
        want = reference.left_out_interval(each, [1.0] * 16, groups, of)
        assert_allclose(np.stack([found.low, found.high], axis=1), want, rtol=1e-6)
        assert not found.signed
        assert not (found.helpful | found.harmful).any()


def test_normalised_layers_have_length_one(model: Model) -> None:
    scores = score(model, tiny_task(), language="xx", method="gradient", size=8, normalise=True)
    for layer in scores.grid.nest(scores.values):
        assert np.linalg.norm(layer) == pytest.approx(1)


def test_confidence_equals_a_loop(model: Model, evaluator: Evaluator) -> None:
    from headlab.hooks import attention_of_heads

    got = score(model, tiny_task(), language="xx", method="confidence", size=16).values
    totals = np.zeros(model.grid.size)
    tokens = 0
    for row in range(16):
        inputs = evaluator.tensors(np.array([row]))
        ids = inputs["input_ids"][0].tolist()
        found = attention_of_heads(model, inputs, model.grid.heads)
        for i, head in enumerate(model.grid.heads):
            part, _ = reference.confidence(found[head], ids, {2})
            totals[i] += part
        tokens += len(ids)
    assert_allclose(got, totals / tokens, atol=1e-6)


class Interrupted(Exception):
    pass


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize("after", [5, 9])
def test_an_interrupted_leave_one_out_ends_the_same_bit_for_bit(
    model: Model, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampled methods: tests/methods/test_estimators.py."""
    monkeypatch.setattr("headlab.methods.model_game.token_budget", lambda _: 60)
    monkeypatch.setitem(ROUND, "cpu", 4)
    ask = {"language": "xx", "method": "leave-one-out", "size": 24}
    want = score(model, tiny_task(), **ask)

    def interrupt(progress: Progress) -> None:
        if progress.done > after:
            raise Interrupted

    with pytest.raises(Interrupted):
        score(model, tiny_task(), store=Store(tmp_path), on_progress=interrupt, **ask)
    seen: list[int] = []
    got = score(
        model, tiny_task(), store=Store(tmp_path), on_progress=lambda p: seen.append(p.done), **ask
    )
    assert got.values_sha256() == want.values_sha256()
    assert got.example_forwards == want.example_forwards
    assert seen[0] > 1
    again = score(model, tiny_task(), store=Store(tmp_path), **ask)
    assert again.seconds == got.seconds  # read, not computed


def test_the_seed_matters_and_target_stops_early(model: Model) -> None:
    one = score(model, tiny_task(), language="xx", size=8, seed=0, samples=16)
    two = score(model, tiny_task(), language="xx", size=8, seed=1, samples=16)
    assert one.values_sha256() != two.values_sha256()
    early = score(model, tiny_task(), language="xx", size=8, samples=64, target=0.9)
    assert early.samples is not None
    assert early.samples.max() <= 32


def test_mean_ablation_is_another_run(model: Model, tmp_path: Path) -> None:
    both = [
        score(
            model, tiny_task(), language="xx", size=8, samples=8, ablation=a, store=Store(tmp_path)
        )
        for a in ("zero", "mean")
    ]
    assert both[0].spec["ablation"] != both[1].spec["ablation"]
    assert len(Store(tmp_path).scan().results) == 2


@pytest.mark.parametrize("key", sorted(METHODS))
def test_every_method_runs_and_keeps_its_word(key: str, model: Model) -> None:
    # 2 ** 12 coalitions: on two examples that is a second.
    options = {"samples": 4} if "samples" in METHODS[key].options else {}
    scores = score(
        model, tiny_task(), language="yy", method=key, size=2 if key == "exact" else 16, **options
    )
    row = METHODS[key]
    assert scores.method == key
    assert scores.values.shape == (model.grid.size,)
    assert (scores.low is not None) == row.intervals
    assert scores.unit == row.unit
    assert scores.estimand == row.estimand
    assert row.signed or (scores.values >= 0).all()


def test_scores_come_in_the_unit_of_the_value_function(model: Model) -> None:
    for value, unit in (
        ("accuracy", "accuracy"),
        ("probability", "probability"),
        ("log-probability", "nats"),
    ):
        scores = score(model, tiny_task(), language="xx", size=8, samples=2, value=value)
        assert scores.unit == unit


def test_tmab_is_another_name_of_shapley(model: Model, tmp_path: Path) -> None:
    """The same run, so the same key in the store."""
    assert method("tmab") is METHODS["shapley"]
    assert not set(ALIASES) & set(METHODS)
    ask = {"language": "xx", "size": 8, "samples": 8, "store": Store(tmp_path)}
    one, two = (score(model, tiny_task(), method=name, **ask) for name in ("tmab", "shapley"))
    assert one.method == two.method == "shapley"
    assert one.seconds == two.seconds  # the second was read
    assert len(Store(tmp_path).scan().results) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_what_an_earlier_version_of_a_method_stored_stands(
    version: int, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec of the first version says no version, as it did when there was none."""
    ask = {"language": "xx", "size": 8, "samples": 8, "store": Store(tmp_path)}
    monkeypatch.setitem(BUILT_IN, "shapley", replace(METHODS["shapley"], version=version))
    old = score(model, tiny_task(), **ask)
    assert set(old.spec["method"]) == {"name", "options"} | ({"version"} if version > 1 else set())
    monkeypatch.undo()
    assert METHODS["shapley"].version == 3
    again = score(model, tiny_task(), **ask)
    assert (again.spec, again.seconds) == (old.spec, old.seconds)  # read, not computed
    other = score(model, tiny_task(), **ask, seed=1)
    assert other.spec["method"]["version"] == 3
    assert {r.record.spec["seed"] for r in Store(tmp_path).scan().results} == {0, 1}


def test_stored_scores_of_other_heads_are_not_taken_for_this_models(
    model: Model, tmp_path: Path
) -> None:
    """As those of LongT5 were, before its encoder had heads here: the fingerprint and so the key are the same."""
    ask = {"language": "xx", "size": 8, "method": "leave-one-out", "store": Store(tmp_path)}
    scores = score(model, tiny_task(), **ask)
    (folder,) = Store(tmp_path).folders()
    (folder / "result.npz").unlink()
    fewer = HeadGrid((replace(model.grid.stacks[0], heads=model.grid.stacks[0].heads[:-1]),))
    old = replace(
        scores,
        grid=fewer,
        values=scores.values[: fewer.size],
        **dict.fromkeys(("low", "high", "samples", "p_values", "halves")),
    )
    Store(tmp_path).run(scores.spec).finish(old, {"versions": {}})
    with raises("result.grid_mismatch", str(folder)):
        score(model, tiny_task(), **ask)
    shutil.rmtree(folder)
    assert_array_equal(score(model, tiny_task(), **ask).values, scores.values)


def test_an_earlier_version_stands_for_this_one_if_it_has_intervals(
    model: Model, tmp_path: Path
) -> None:
    ask = {"language": "xx", "size": 16, "method": "gradient", "store": Store(tmp_path)}
    scores = score(model, tiny_task(), **ask)
    method = {name: value for name, value in scores.spec["method"].items() if name != "version"}
    earlier = replace(scores, spec=scores.spec | {"method": method}, seconds=7.0)
    bare = replace(earlier, **dict.fromkeys(("low", "high", "halves")))
    for found, seconds in ((bare, scores.seconds), (earlier, 7.0)):
        shutil.rmtree(tmp_path)
        Store(tmp_path).run(found.spec).finish(found, {"versions": {}})
        again = score(model, tiny_task(), **ask)
        assert again.low is not None
        assert (again.seconds == 7.0) == (seconds == 7.0)
        assert again.values_sha256() == scores.values_sha256()


def test_options_take_their_defaults_and_their_type() -> None:
    found = METHODS["shapley"].resolve({"target": 1, "samples": 5})
    assert found == {
        "estimand": "shapley-top50",
        "value": "accuracy",
        "samples": 5,
        "target": 1.0,
        "stop": "sign",
        "level": 0.95,
    }
    assert type(found["target"]) is float
    assert METHODS["shapley"].resolve({})["target"] == 0.01
    assert METHODS["monte-carlo"].resolve({"target": None})["target"] is None
    assert METHODS["exact"].resolve({}) == {"estimand": "shapley-top50", "value": "accuracy"}


@pytest.mark.parametrize(
    ("key", "name", "value", "shown", "fits"),
    [
        ("shapley", "samples", 0, "0", "a whole number of 1 or more"),
        ("shapley", "samples", True, "True", "a whole number of 1 or more"),
        ("shapley", "samples", None, "None", "a whole number of 1 or more"),
        ("shapley", "target", 0, "0", "a number above 0, or none"),
        ("shapley", "target", float("nan"), "nan", "a number above 0, or none"),
        ("shapley", "target", float("inf"), "inf", "a number above 0, or none"),
        ("monte-carlo", "target", "0.1", "'0.1'", "a number above 0, or none"),
        ("monte-carlo", "stop", "never", "'never'", "sign or width"),
        ("monte-carlo", "level", 1.0, "1.0", "a number between 0 and 1"),
        ("paper", "delta", 0, "0", "a number between 0 and 1"),
        ("paper", "value", "f1", "'f1'", "accuracy or probability or log-probability"),
        ("exact", "estimand", "banzhaf", "'banzhaf'", "shapley-top50 or shapley"),
    ],
)
def test_what_an_option_cannot_be_is_refused(
    key: str, name: str, value: object, shown: str, fits: str
) -> None:
    with raises("method.option_invalid", f"method {key}", name, shown, fits):
        METHODS[key].resolve({name: value})


@pytest.mark.parametrize(
    ("key", "name"), [("shapley", "round"), ("exact", "samples"), ("paper", "target")]
)
def test_options_of_other_methods_are_refused(key: str, name: str) -> None:
    with raises("method.option_unknown", f"method {key}", name, "estimand, value"):
        METHODS[key].resolve({name: 1})


def test_unknown_names_are_refused(model: Model) -> None:
    task: Task = tiny_task()
    with raises("method.unknown", "shapley"):
        method("best")
    with raises("method.option_unknown", "sample"):
        score(model, task, language="xx", sample=3)
    with raises("method.option_invalid", "a whole number"):
        score(model, task, language="xx", samples=1.5)
    with raises("task.language_unknown", "'zz'"):
        score(model, task, language="zz")
    with raises("language.ambiguous", 2):
        score(model, task)


def break_off(work: Work, first: int, second: int) -> None:
    """A run with a second checkpoint right after the first: too soon, and its last."""
    with saves_of(
        work.save, clock=count().__next__
    ) as saver:  # every look at the clock is a second later
        saver.offer(lambda: {"n": np.array(first)})
        saver.offer(lambda: {"n": np.array(second)})
        raise Interrupted


def test_checkpoints_take_a_hundredth_of_the_time_and_the_last_one_is_kept(model: Model) -> None:
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 4)
    now = [0.0]
    kept = []

    def save(arrays: Arrays) -> None:
        now[0] += 0.5  # a slow disk
        kept.append(int(arrays["n"]))

    def run(saver: Saver) -> None:
        for n in range(1000):
            now[0] += 0.1
            saver.offer(lambda n=n: {"n": np.array(n)})

    work = Work(evaluator, 0, {}, save=save)
    run(Saver(work.save, lambda: now[0]))
    assert kept[0] == 0
    assert len(kept) in (2, 3)  # 100 s of work
    assert len(kept) * 0.5 < 0.02 * now[0]
    with pytest.raises(Interrupted):
        break_off(work, 5000, 5001)
    assert kept[-2:] == [5000, 5001]


def test_a_run_broken_off_with_a_full_disk_says_why_it_ended(model: Model) -> None:
    tried: list[int] = []

    def full(arrays: Arrays) -> None:
        tried.append(int(arrays["n"]))
        if len(tried) > 1:
            raise HeadlabError("no space left", code="file.no_space")

    work = Work(Evaluator(model, tiny_task(), "xx", "dev", 4), 0, {}, save=full)
    with pytest.raises(Interrupted):
        break_off(work, 0, 1)
    assert tried == [0, 1]
    with raises("file.no_space"), saves_of(work.save) as saver:
        saver.offer(lambda: {"n": np.array(2)})


def test_a_run_with_mean_ablation_is_named_by_the_examples_the_means_are_of() -> None:
    """They are dev examples, whatever is scored or judged."""
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    task = tiny_task()

    def read(language: str, split: Split, seed: int) -> Sequence[Example]:
        rows = task.read(language, split, seed)
        return rows[1:] if split == "dev" else rows

    def key(of: Task, ablation: str) -> str:
        return content_key(
            make_spec(
                Evaluator(model, of, "xx", "test").dataset, METHODS["random"], {}, 0, ablation
            )
        )

    other = replace(task, read=read)
    assert key(task, "zero") == key(other, "zero")
    assert key(task, "mean") != key(other, "mean")


# Form token of the gradient, as published since version 3 of the method.

TOKEN = {"language": "xx", "method": "gradient", "form": "token"}
PROJECTIONS = {
    "bert": "attention.output.dense",
    "xlm-roberta": "attention.output.dense",
    "distilbert": "attention.out_lin",
    "gpt2": "attn.c_proj",
    "llama": "self_attn.o_proj",
    "modernbert": "attn.Wo",
}


def projections(model: Model, ending: str) -> list[Any]:
    return [module for name, module in model.module.named_modules() if name.endswith(ending)]


@pytest.mark.parametrize("family", PROJECTIONS)
def test_reported_09_form_token_is_the_published_bert_code(family: str) -> None:
    """Encoders that read their first token, and decoders that read their last; padding plays no part."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", size=12)
    sentences = [evaluator.tensors(np.array([row])) for row in range(12)]
    labels = [example.label for example in evaluator.examples]
    assert len({inputs["input_ids"].shape[1] for inputs in sentences}) > 1
    layers = projections(model, PROJECTIONS[family])
    expected = reference.token_importance(model.module, sentences, labels, layers, model.grid.width)
    found = score(model, tiny_task(), size=12, batch_size=5, **TOKEN)
    assert_allclose(found.values, expected[tuple(model.grid.flat.T)], rtol=1e-9)
    assert found.spec["method"]["version"] == 3


def test_reported_09_a_classifier_that_averages_its_tokens_is_divided_the_same_way() -> None:
    """As the published code does, which does not look at what the classifier reads."""
    model = tiny_model("modernbert", tokenizer=tiny_tokenizer())
    model.module.config.classifier_pooling = "mean"
    evaluator = Evaluator(model, tiny_task(), "xx", size=6)
    sentences = [evaluator.tensors(np.array([row])) for row in range(6)]
    labels = [example.label for example in evaluator.examples]
    layers = projections(model, PROJECTIONS["modernbert"])
    expected = reference.token_importance(model.module, sentences, labels, layers, model.grid.width)
    found = score(model, tiny_task(), size=6, **TOKEN).values
    assert_allclose(found, expected[tuple(model.grid.flat.T)], rtol=1e-9)


def word_task() -> Task:
    """Sentences of two to seven words with a label each."""

    def sentences(*_: object) -> list[Example]:
        rng = np.random.default_rng(5)
        found = []
        for row in range(8):
            words = tuple(f"w{w}" for w in rng.integers(4, 97, 2 + row % 6))
            labels = tuple(int(label) for label in rng.integers(len(LABELS), size=len(words)))
            found.append(
                Example(str(row), " ".join(words), group=str(row), words=words, labels=labels)
            )
        return found

    return Task("words", LABELS, ("xx",), False, sentences)


def translation_task() -> Task:
    """Short sources with longer targets."""

    def pairs(*_: object) -> list[Example]:
        rng = np.random.default_rng(6)
        sides = [
            [" ".join(f"w{w}" for w in rng.integers(4, 97, n)) for n in (1 + row % 3, 5)]
            for row in range(6)
        ]
        return [
            Example(str(row), source, target=target) for row, (source, target) in enumerate(sides)
        ]

    return Task("pairs", (), ("xx",), False, pairs)


def by_tokens(evaluator: Evaluator, tokens: np.ndarray) -> np.ndarray:
    """Every layer by its number of tokens, [head].

    Args:
        tokens: Of all sentences, by row of the gate array.
    """
    (batch,) = evaluator.batches(np.arange(len(evaluator.examples)), len(evaluator.examples))
    slopes = (
        gradient.gate_gradients(evaluator, batch, per_token=True).abs().sum(dim=(0, -1)).numpy()
    )
    return np.asarray((slopes / tokens[:, None])[tuple(evaluator.model.grid.flat.T)])


def test_reported_09_where_words_have_labels_every_layer_is_divided_by_tokens() -> None:
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    task = word_task()
    evaluator = Evaluator(model, task, "xx", size=None)
    tokens = np.full(model.grid.layers, evaluator.lengths.sum())
    found = score(model, task, size=None, **TOKEN).values
    assert_allclose(found, by_tokens(evaluator, tokens), rtol=1e-9)


@pytest.mark.parametrize("family", ["t5", "mbart"])
def test_reported_09_an_encoder_decoder_is_divided_by_the_tokens_of_each_stack(family: str) -> None:
    """It broke where source and target had different numbers of tokens."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    task = translation_task()
    evaluator = Evaluator(model, task, "xx", size=None)
    inputs = evaluator.tensors(np.arange(len(evaluator.examples)))
    source, target = (
        int(inputs[name].sum()) for name in ("attention_mask", "decoder_attention_mask")
    )
    assert source != target
    tokens = np.array([source if stack == "encoder" else target for stack in model.grid.rows])
    found = score(model, task, size=None, **TOKEN).values
    assert_allclose(found, by_tokens(evaluator, tokens), rtol=1e-9)


def as_version_2(scores: HeadScores) -> HeadScores:
    """The same as version 2 stored it, which takes as long as nothing else."""
    method = {**scores.spec["method"], "version": 2}
    return replace(scores, spec={**scores.spec, "method": method}, seconds=7.0)


def test_reported_09_results_of_the_earlier_version_stay_and_never_stand_for_new_ones(
    model: Model, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    new = score(model, tiny_task(), size=8, **TOKEN)
    old = as_version_2(new)
    store.run(old.spec).finish(old, {"versions": {}})
    assert content_key(dict(old.spec)) != content_key(dict(new.spec))
    computed = score(model, tiny_task(), size=8, store=store, **TOKEN)
    assert computed.seconds != 7.0
    results = store.scan().results
    assert sorted(result.record.spec["method"]["version"] for result in results) == [2, 3]
    clause = renewal_of(old.spec)
    assert "form token before version 3 of the method" in clause
    assert remarks([old]) == (clause,)
    assert remarks([computed]) == ()
    assert costs.variant(old) != costs.variant(computed)
    chosen = costs.select(results, ["xx"]).results["xx"].record
    assert chosen.spec["method"]["version"] == 3
    assert [name.endswith("earlier version") for name in variants(results)] == [False, True]


@pytest.mark.parametrize("form", ["example", "batch"])
def test_reported_09_other_forms_keep_their_version_and_key(form: str, model: Model) -> None:
    found = score(model, tiny_task(), language="xx", method="gradient", form=form, size=8)
    assert found.spec["method"]["version"] == 2
    assert renewal_of(found.spec) == ""


@pytest.mark.parametrize(
    "method",
    [
        None,
        "gradient",
        {"name": "gradient", "options": {"form": ["token"]}},
        {"name": ["x"]},
        {"name": "gradient", "version": "x", "options": 3},
    ],
)
def test_reported_09_specs_of_other_programs_are_of_no_earlier_version_unless_they_say_so(
    method: Any,
) -> None:
    assert renewal_of({"method": method}) == ""
