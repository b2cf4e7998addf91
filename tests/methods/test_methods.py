"""All methods but the estimators of Shapley values; the table of methods; runs and their store."""

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
    baseline = evaluator.evaluate().accuracy
    for head in range(model.grid.size):
        kept_heads = np.ones(model.grid.size, bool)
        kept_heads[head] = False
        gates = np.repeat(model.grid.gates(kept_heads)[None], 16, axis=0)
        accuracy = evaluator.correct(gates, np.arange(16)).mean()
        assert scores.values[head] == pytest.approx(baseline - accuracy, abs=1e-12)
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
    losses = [example_loss(evaluator, row) for row in range(16)]
    slopes = np.stack([reference.finite_difference(loss, ones) for loss in losses])
    settings = {
        "language": "xx",
        "method": "gradient",
        "size": 16,
        "batch_size": 4,
    }
    by_example = score(model, tiny_task(), form="example", **settings).values
    by_batch = score(model, tiny_task(), form="batch", **settings).values
    heads = tuple(model.grid.flat.T)
    mean_of_sizes = np.abs(slopes).mean(axis=0)
    assert_allclose(by_example, mean_of_sizes[heads], atol=1e-6)
    batch_slopes = slopes.reshape(4, 4, *ones.shape).mean(axis=1)
    mean_of_batch_sizes = np.abs(batch_slopes).mean(axis=0)
    assert_allclose(by_batch, mean_of_batch_sizes[heads], atol=1e-6)
    assert (by_batch <= by_example + 1e-12).all()


def test_token_gradients_sum_to_the_example_gradient(evaluator: Evaluator) -> None:
    for batch in evaluator.batches(np.arange(16)):
        token_gradients = gradient.gate_gradients(evaluator, batch, per_token=True)
        example_gradients = gradient.gate_gradients(evaluator, batch)
        assert_allclose(token_gradients.sum(dim=-1), example_gradients, atol=1e-10)


def test_token_form_does_not_depend_on_padding(model: Model) -> None:
    settings = {
        "language": "xx",
        "method": "gradient",
        "size": 16,
        "form": "token",
    }
    unpadded_scores = score(model, tiny_task(), batch_size=1, **settings)
    padded_scores = score(model, tiny_task(), batch_size=16, **settings)
    for name in ("values", "low", "high", "halves"):
        assert_allclose(getattr(unpadded_scores, name), getattr(padded_scores, name), atol=1e-10)


def test_sizes_are_means_over_examples_with_the_interval_that_leaves_out_one_at_a_time(
    model: Model, evaluator: Evaluator
) -> None:
    sizes = np.zeros((16, model.grid.size))
    groups = [example.group or example.id for example in evaluator.examples]
    for batch in evaluator.batches(np.arange(16)):
        gradients = gradient.gate_gradients(evaluator, batch).abs().numpy()
        sizes[batch.rows] = gradients[:, *model.grid.flat.T]

    def with_layers_of_length_one(values: np.ndarray) -> np.ndarray:
        layers = model.grid.nest(values)
        return np.concatenate([layer / np.linalg.norm(layer) for layer in layers])

    settings = {"language": "xx", "method": "gradient", "size": 16}
    for normalise, transform in ((False, np.asarray), (True, with_layers_of_length_one)):
        scores = score(model, tiny_task(), normalise=normalise, **settings)
        assert_allclose(scores.values, transform(sizes.mean(axis=0)), rtol=1e-9)
        first_half = transform(sizes[:8].mean(axis=0))
        second_half = transform(sizes[8:].mean(axis=0))
        assert_allclose(scores.halves, [first_half, second_half], rtol=1e-9)
        want = reference.left_out_interval(sizes, [1.0] * 16, groups, transform)
        assert_allclose(np.stack([scores.low, scores.high], axis=1), want, rtol=1e-6)
        assert not scores.signed
        assert not scores.helpful.any()
        assert not scores.harmful.any()


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
        attention = attention_of_heads(model, inputs, model.grid.heads)
        for head_index, head in enumerate(model.grid.heads):
            confidence_sum, _ = reference.confidence(attention[head], ids, {2})
            totals[head_index] += confidence_sum
        tokens += len(ids)
    assert_allclose(got, totals / tokens, atol=1e-6)


class Interrupted(Exception):
    pass


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize("last_step", [5, 9])
def test_an_interrupted_leave_one_out_ends_the_same_bit_for_bit(
    model: Model,
    tmp_path: Path,
    last_step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For the sampled methods, see tests/methods/test_estimators.py."""
    monkeypatch.setattr("headlab.methods.model_game.token_budget", lambda _: 60)
    monkeypatch.setitem(ROUND, "cpu", 4)
    settings = {"language": "xx", "method": "leave-one-out", "size": 24}
    want = score(model, tiny_task(), **settings)

    def interrupt(progress: Progress) -> None:
        if progress.done > last_step:
            raise Interrupted

    with pytest.raises(Interrupted):
        score(model, tiny_task(), store=Store(tmp_path), on_progress=interrupt, **settings)
    reports: list[Progress] = []
    got = score(
        model,
        tiny_task(),
        store=Store(tmp_path),
        on_progress=reports.append,
        **settings,
    )
    assert got.values_sha256() == want.values_sha256()
    assert got.example_forwards == want.example_forwards
    assert reports[0].done > 1
    stored_scores = score(model, tiny_task(), store=Store(tmp_path), **settings)
    assert stored_scores.seconds == got.seconds  # read, not computed


def test_the_seed_matters_and_target_stops_early(model: Model) -> None:
    settings = {"language": "xx", "size": 8}
    seed_0 = score(model, tiny_task(), seed=0, samples=16, **settings)
    seed_1 = score(model, tiny_task(), seed=1, samples=16, **settings)
    assert seed_0.values_sha256() != seed_1.values_sha256()
    with_target = score(model, tiny_task(), samples=64, target=0.9, **settings)
    assert with_target.samples is not None
    assert with_target.samples.max() <= 32


def test_mean_ablation_is_another_run(model: Model, tmp_path: Path) -> None:
    settings = {
        "language": "xx",
        "size": 8,
        "samples": 8,
        "store": Store(tmp_path),
    }
    with_zeros = score(model, tiny_task(), ablation="zero", **settings)
    with_means = score(model, tiny_task(), ablation="mean", **settings)
    assert with_zeros.spec["ablation"] != with_means.spec["ablation"]
    assert len(Store(tmp_path).scan().results) == 2


@pytest.mark.parametrize("key", sorted(METHODS))
def test_every_method_runs_and_keeps_its_word(
    key: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = METHODS[key]
    options = {}
    if "samples" in row.options:
        options["samples"] = max(4, int(row.options["samples"].low or 0))
    # The exact method computes 2 ** 12 coalitions; on two examples that takes a second.
    size = 2 if key == "exact" else 16
    # Slopes of an untrained model may add up to anything.
    monkeypatch.setattr("headlab.methods.smoothed.LIMITS_OF_SCALE", (-np.inf, np.inf))
    if key == "smoothed" and model.grid.stacks[0].name == "decoder":
        with raises("method.decoder_unsuited"):
            score(model, tiny_task(), language="yy", method=key, size=size, **options)
        return
    scores = score(model, tiny_task(), language="yy", method=key, size=size, **options)
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
    settings = {
        "language": "xx",
        "size": 8,
        "samples": 8,
        "store": Store(tmp_path),
    }
    by_alias = score(model, tiny_task(), method="tmab", **settings)
    by_name = score(model, tiny_task(), method="shapley", **settings)
    assert by_alias.method == by_name.method == "shapley"
    assert by_alias.seconds == by_name.seconds  # the second was read
    assert len(Store(tmp_path).scan().results) == 1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_results_of_an_earlier_version_of_a_method_stay_valid(
    version: int,
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The spec of the first version says no version, as it did when there was none."""
    settings = {
        "language": "xx",
        "size": 8,
        "samples": 8,
        "store": Store(tmp_path),
    }
    earlier_method = replace(METHODS["shapley"], version=version)
    monkeypatch.setitem(BUILT_IN, "shapley", earlier_method)
    earlier = score(model, tiny_task(), **settings)
    fields = {"name", "options"}
    if version > 1:
        fields.add("version")
    assert set(earlier.spec["method"]) == fields
    monkeypatch.undo()
    assert METHODS["shapley"].version == 4
    stored_scores = score(model, tiny_task(), **settings)
    assert stored_scores.spec == earlier.spec
    assert stored_scores.seconds == earlier.seconds  # read, not computed
    computed_scores = score(model, tiny_task(), **settings, seed=1)
    assert computed_scores.spec["method"]["version"] == 4
    results = Store(tmp_path).scan().results
    assert {result.record.spec["seed"] for result in results} == {0, 1}


def test_stored_scores_of_other_heads_are_not_taken_for_this_models(
    model: Model, tmp_path: Path
) -> None:
    """Scores of LongT5 were of fewer heads, before its encoder had heads here.

    The fingerprint, and so the key, stayed the same.
    """
    store = Store(tmp_path)
    settings = {
        "language": "xx",
        "size": 8,
        "method": "leave-one-out",
        "store": store,
    }
    scores = score(model, tiny_task(), **settings)
    (folder,) = store.folders()
    (folder / "result.npz").unlink()
    stack = model.grid.stacks[0]
    smaller_grid = HeadGrid((replace(stack, heads=stack.heads[:-1]),))
    scores_of_fewer_heads = replace(
        scores,
        grid=smaller_grid,
        values=scores.values[: smaller_grid.size],
        **dict.fromkeys(("low", "high", "samples", "p_values", "halves")),
    )
    store.run(scores.spec).finish(scores_of_fewer_heads, {"versions": {}})
    with raises("result.grid_mismatch", str(folder)):
        score(model, tiny_task(), **settings)
    shutil.rmtree(folder)
    assert_array_equal(score(model, tiny_task(), **settings).values, scores.values)


def test_an_earlier_version_stands_for_this_one_if_it_has_intervals(
    model: Model, tmp_path: Path
) -> None:
    settings = {
        "language": "xx",
        "size": 16,
        "method": "gradient",
        "store": Store(tmp_path),
    }
    scores = score(model, tiny_task(), **settings)
    method = dict(scores.spec["method"])
    method.pop("version", None)
    earlier = replace(scores, spec=scores.spec | {"method": method}, seconds=7.0)
    without_intervals = replace(earlier, **dict.fromkeys(("low", "high", "halves")))
    for stored_scores, seconds in ((without_intervals, scores.seconds), (earlier, 7.0)):
        shutil.rmtree(tmp_path)
        Store(tmp_path).run(stored_scores.spec).finish(stored_scores, {"versions": {}})
        scores_again = score(model, tiny_task(), **settings)
        assert scores_again.low is not None
        assert (scores_again.seconds == 7.0) == (seconds == 7.0)
        assert scores_again.values_sha256() == scores.values_sha256()


def test_options_take_their_defaults_and_their_type() -> None:
    options = METHODS["shapley"].resolve({"target": 1, "samples": 5})
    assert options == {
        "estimand": "shapley-top50",
        "value": "accuracy",
        "samples": 5,
        "target": 1.0,
        "stop": "sign",
        "level": 0.95,
        "interval": "anytime",
        "names": None,
    }
    assert type(options["target"]) is float
    assert METHODS["shapley"].resolve({})["target"] == 0.01
    assert METHODS["monte-carlo"].resolve({"target": None})["target"] is None
    assert METHODS["exact"].resolve({}) == {"estimand": "shapley-top50", "value": "accuracy"}


@pytest.mark.parametrize(
    ("method_key", "name", "value", "value_text", "allowed_values"),
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
    method_key: str,
    name: str,
    value: object,
    value_text: str,
    allowed_values: str,
) -> None:
    with raises("method.option_invalid", f"method {method_key}", name, value_text, allowed_values):
        METHODS[method_key].resolve({name: value})


@pytest.mark.parametrize(
    ("method_key", "name"), [("shapley", "round"), ("exact", "samples"), ("paper", "target")]
)
def test_options_of_other_methods_are_refused(method_key: str, name: str) -> None:
    with raises("method.option_unknown", f"method {method_key}", name, "estimand, value"):
        METHODS[method_key].resolve({name: 1})


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


def break_off(
    work: Work,
    first_number: int,
    last_number: int,
) -> None:
    """A run that is interrupted after a second checkpoint, which comes too soon after the first.

    Args:
        work: The run.
        first_number: What the first checkpoint holds.
        last_number: What the second and last one holds.
    """
    # By this clock, a second passes between any two looks at it.
    with saves_of(work.save, clock=count().__next__) as saver:
        saver.offer(lambda: {"n": np.array(first_number)})
        saver.offer(lambda: {"n": np.array(last_number)})
        raise Interrupted


def test_checkpoints_take_a_hundredth_of_the_time_and_the_last_one_is_kept(model: Model) -> None:
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 4)
    seconds = 0.0
    saved_numbers = []

    def save(arrays: Arrays) -> None:
        nonlocal seconds
        seconds += 0.5  # a slow disk
        saved_numbers.append(int(arrays["n"]))

    work = Work(evaluator, 0, {}, save=save)
    saver = Saver(work.save, lambda: seconds)
    for number in range(1000):
        seconds += 0.1
        saver.offer(lambda number=number: {"n": np.array(number)})
    assert saved_numbers[0] == 0
    assert len(saved_numbers) in (2, 3)  # 100 s of work
    assert len(saved_numbers) * 0.5 < 0.02 * seconds
    with pytest.raises(Interrupted):
        break_off(work, 5000, 5001)
    assert saved_numbers[-2:] == [5000, 5001]


def test_a_run_broken_off_with_a_full_disk_says_why_it_ended(model: Model) -> None:
    numbers: list[int] = []

    def save_once(arrays: Arrays) -> None:
        numbers.append(int(arrays["n"]))
        if len(numbers) > 1:
            raise HeadlabError("no space left", code="file.no_space")

    work = Work(
        Evaluator(model, tiny_task(), "xx", "dev", 4),
        0,
        {},
        save=save_once,
    )
    with pytest.raises(Interrupted):
        break_off(work, 0, 1)
    assert numbers == [0, 1]
    with raises("file.no_space"), saves_of(work.save) as saver:
        saver.offer(lambda: {"n": np.array(2)})


def test_a_run_with_mean_ablation_is_named_by_the_examples_the_means_are_of() -> None:
    """They are dev examples, whichever split is scored."""
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    task = tiny_task()

    def read(
        language: str,
        split: Split,
        seed: int,
    ) -> Sequence[Example]:
        examples = task.read(language, split, seed)
        return examples[1:] if split == "dev" else examples

    def key(scored_task: Task, ablation: str) -> str:
        dataset = Evaluator(model, scored_task, "xx", "test").dataset
        return content_key(make_spec(dataset, METHODS["random"], {}, 0, ablation))

    with_other_dev_examples = replace(task, read=read)
    assert key(task, "zero") == key(with_other_dev_examples, "zero")
    assert key(task, "mean") != key(with_other_dev_examples, "mean")


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
    """For encoders that read their first token and decoders that read their last, with padding."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", size=12)
    assert len(set(evaluator.lengths.tolist())) > 1
    want = published_scores(evaluator, family)
    scores = score(model, tiny_task(), size=12, batch_size=5, **TOKEN)
    assert_allclose(scores.values, want, rtol=1e-9)
    assert scores.spec["method"]["version"] == 3


def published_scores(evaluator: Evaluator, family: str) -> np.ndarray:
    """What the published code says every head is worth, [head]."""
    model = evaluator.model
    rows = range(len(evaluator.examples))
    sentences = [evaluator.tensors(np.array([row])) for row in rows]
    labels = [example.label for example in evaluator.examples]
    layers = projections(model, PROJECTIONS[family])
    width = model.grid.width
    importance = reference.token_importance(model.module, sentences, labels, layers, width)
    return np.asarray(importance[tuple(model.grid.flat.T)])


def test_reported_09_a_classifier_that_averages_its_tokens_is_divided_the_same_way() -> None:
    """As the published code does, which does not look at what the classifier reads."""
    model = tiny_model("modernbert", tokenizer=tiny_tokenizer())
    model.module.config.classifier_pooling = "mean"
    evaluator = Evaluator(model, tiny_task(), "xx", size=6)
    scores = score(model, tiny_task(), size=6, **TOKEN)
    assert_allclose(scores.values, published_scores(evaluator, "modernbert"), rtol=1e-9)


def word_task() -> Task:
    """Sentences of two to seven words with a label each."""

    def sentences(*_: object) -> list[Example]:
        rng = np.random.default_rng(5)
        examples = []
        for row in range(8):
            count = 2 + row % 6
            words = tuple(f"w{word}" for word in rng.integers(4, 97, count))
            labels = tuple(rng.integers(len(LABELS), size=count).tolist())
            text = " ".join(words)
            examples.append(Example(str(row), text, group=str(row), words=words, labels=labels))
        return examples

    return Task(
        name="words",
        labels=LABELS,
        languages=("xx",),
        aligned=False,
        read=sentences,
    )


def translation_task() -> Task:
    """Short sources with longer targets."""

    def pairs(*_: object) -> list[Example]:
        rng = np.random.default_rng(6)

        def text(words: int) -> str:
            return " ".join(f"w{word}" for word in rng.integers(4, 97, words))

        examples = []
        for row in range(6):
            source = text(1 + row % 3)
            examples.append(Example(str(row), source, target=text(5)))
        return examples

    return Task(
        name="pairs",
        labels=(),
        languages=("xx",),
        aligned=False,
        read=pairs,
    )


def by_tokens(evaluator: Evaluator, tokens: np.ndarray) -> np.ndarray:
    """The sum of a head's gradients, divided by its layer's number of tokens, [head].

    Args:
        evaluator: The examples and the model.
        tokens: Number of tokens of all sentences, by row of the gate array.
    """
    examples = len(evaluator.examples)
    (batch,) = evaluator.batches(np.arange(examples), examples)
    slopes = gradient.gate_gradients(evaluator, batch, per_token=True)
    sizes = slopes.abs().sum(dim=(0, -1)).numpy()
    mean_sizes = sizes / tokens[:, None]
    return np.asarray(mean_sizes[tuple(evaluator.model.grid.flat.T)])


def test_reported_09_where_words_have_labels_every_layer_is_divided_by_tokens() -> None:
    model = tiny_model("bert-tokens", tokenizer=tiny_tokenizer())
    task = word_task()
    evaluator = Evaluator(model, task, "xx", size=None)
    tokens = np.full(model.grid.layers, evaluator.lengths.sum())
    values = score(model, task, size=None, **TOKEN).values
    assert_allclose(values, by_tokens(evaluator, tokens), rtol=1e-9)


@pytest.mark.parametrize("family", ["t5", "mbart"])
def test_reported_09_an_encoder_decoder_is_divided_by_the_tokens_of_each_stack(family: str) -> None:
    """It broke where source and target had different numbers of tokens."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    task = translation_task()
    evaluator = Evaluator(model, task, "xx", size=None)
    inputs = evaluator.tensors(np.arange(len(evaluator.examples)))
    source_tokens = int(inputs["attention_mask"].sum())
    target_tokens = int(inputs["decoder_attention_mask"].sum())
    assert source_tokens != target_tokens
    tokens = np.array(
        [source_tokens if stack == "encoder" else target_tokens for stack in model.grid.rows]
    )
    values = score(model, task, size=None, **TOKEN).values
    assert_allclose(values, by_tokens(evaluator, tokens), rtol=1e-9)


def as_version_2(scores: HeadScores) -> HeadScores:
    """The same as version 2 stored it, told apart by its seconds."""
    method = {**scores.spec["method"], "version": 2}
    return replace(scores, spec={**scores.spec, "method": method}, seconds=7.0)


def test_reported_09_results_of_the_earlier_version_stay_and_never_stand_for_new_ones(
    model: Model, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    current = score(model, tiny_task(), size=8, **TOKEN)
    earlier = as_version_2(current)
    store.run(earlier.spec).finish(earlier, {"versions": {}})
    assert content_key(dict(earlier.spec)) != content_key(dict(current.spec))
    recomputed_scores = score(model, tiny_task(), size=8, store=store, **TOKEN)
    assert recomputed_scores.seconds != 7.0
    results = store.scan().results
    versions = [result.record.spec["method"]["version"] for result in results]
    assert sorted(versions) == [2, 3]
    clause = renewal_of(earlier.spec)
    assert "form token before version 3 of the method" in clause
    assert remarks([earlier]) == (clause,)
    assert remarks([recomputed_scores]) == ()
    assert costs.variant(earlier) != costs.variant(recomputed_scores)
    selected_record = costs.select(results, ["xx"]).results["xx"].record
    assert selected_record.spec["method"]["version"] == 3
    assert [name.endswith("earlier version") for name in variants(results)] == [False, True]


@pytest.mark.parametrize("form", ["example", "batch"])
def test_reported_09_other_forms_keep_their_version_and_key(form: str, model: Model) -> None:
    scores = score(model, tiny_task(), language="xx", method="gradient", form=form, size=8)
    assert scores.spec["method"]["version"] == 2
    assert renewal_of(scores.spec) == ""


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
