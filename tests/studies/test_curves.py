"""Pruning curves, against a slow truth; interrupted and resumed; and what is read off them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.expected_errors import raises
from support.saved_models import save_classifier
from support.several_answers import PAIRS, WORDS
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.cli.evaluate import chosen_ablation
from headlab.cli.run import main
from headlab.core import HeadGrid, Progress, Stack
from headlab.evaluation import Evaluator, compare, evaluator
from headlab.hooks import Model
from headlab.masks import Mask, heads_kept_by_rule, mask_from_json
from headlab.methods.run import score
from headlab.methods.work import Arrays
from headlab.results import Curve, HeadScores, Store, band, compare_areas, removed_counts
from headlab.studies.curves import BLOCK_BYTES, Walk, caution_of, curve_spec, prune_curve
from headlab.tasks import Task

ONE_STACK = HeadGrid((Stack("encoder", (2, 2)),))
# One language of a task that each family can do.
CASES: dict[str, Task] = {
    "bert": tiny_task(),
    "deberta-v2": tiny_task(),
    "gpt2": tiny_task(),
    "bert-tokens": WORDS,
    "marian": PAIRS,
}


@pytest.fixture(autouse=True)
def _examples_in_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute all examples in one chunk of one batch, so that steps can be counted."""
    monkeypatch.setattr(evaluator, "CHUNKS", (32,))
    monkeypatch.setattr(evaluator, "FIRST_DIVISOR", 1)


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def scores(model: Model) -> HeadScores:
    return score(model, tiny_task(), language="xx", method="leave-one-out", size=24)


def group_count_of(evaluator: Evaluator) -> int:
    return len({example.group or example.id for example in evaluator.examples})


def limit_block_tokens(model: Model, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a walk to blocks of at most this many tokens, whose layer inputs it keeps in memory."""
    bytes_per_layer = model.module.config.hidden_size * model.module.dtype.itemsize
    bytes_per_token = (model.grid.layers + 1) * bytes_per_layer
    monkeypatch.setitem(BLOCK_BYTES, "cpu", tokens * bytes_per_token)


@pytest.mark.parametrize(
    ("ablation", "tokens"),
    [("zero", None), ("zero", 40), ("mean", None)],
)
@pytest.mark.parametrize("family", CASES)
@pytest.mark.usefixtures("one_lane")  # a tie in the last bit must fall the same way on both sides
def test_every_point_equals_a_model_of_its_own(
    family: str, ablation: str, tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each point equals a new evaluator's, one example a batch, compared as `evaluate --mask` does.

    No layer inputs are kept between the passes of these evaluators.
    """
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    task = CASES[family]
    if tokens is not None:
        limit_block_tokens(model, tokens, monkeypatch)
    scores = score(model, task, language="xx", method="random", seed=3, ablation=ablation)
    curve = prune_curve(
        model, task, language="xx", scores=scores, ablation=ablation, seed=5, points=6
    )
    values = scores.values.tolist()

    def ascending_value(head: int) -> tuple[float, int]:
        return values[head], -head

    by_value = sorted(range(len(values)), key=ascending_value)
    assert curve.order.tolist() == by_value

    def fresh_evaluator() -> Evaluator:
        return Evaluator(model, task, "xx", "test", None, batch_size=1, state_bytes=0)

    baseline = fresh_evaluator().evaluate()
    assert len(curve.removed) == 6
    for point, removed_count in enumerate(curve.removed.tolist()):
        keeps_head = np.ones(len(values), dtype=bool)
        keeps_head[by_value[:removed_count]] = False
        mask = Mask(model.grid, keeps_head)
        evaluation = fresh_evaluator().evaluate(mask, ablation=ablation)
        row = compare(baseline, evaluation, seed=5)
        assert curve.correct[point].tolist() == evaluation.correct.tolist()
        assert curve.n == row.n
        assert curve.accuracy[point] == pytest.approx(row.accuracy, abs=1e-15)
        expected = (0.0, 0.0, 0.0, 1.0)
        if removed_count:
            expected = (row.difference, row.low, row.high, row.p)
        assert curve.difference[point] == pytest.approx(expected[0], abs=1e-12)
        assert curve.low[point] == pytest.approx(expected[1], abs=1e-12)
        assert curve.high[point] == pytest.approx(expected[2], abs=1e-12)
        assert curve.p_values[point] == pytest.approx(expected[3], abs=1e-12)
    assert len(set(curve.groups.tolist())) == group_count_of(fresh_evaluator())
    # The untrained translator guesses hardly any of 97 words right, whatever is removed.
    assert curve.difference.any() or family == "marian"


def test_a_point_is_the_mask_that_the_rule_bottom_makes(model: Model, scores: HeadScores) -> None:
    tied = replace(scores, values=np.round(scores.values, 1))
    assert len(set(tied.values.tolist())) < model.grid.size
    curve = prune_curve(
        model, tiny_task(), language="xx", scores=tied, size=8, points=2, ablation="mean"
    )
    for k in (0, 1, 5, 6):
        mask = curve.mask(k)
        kept_by_rule = heads_kept_by_rule(tied.grid, tied.values, None, "bottom", k=k)
        assert mask.kept.tolist() == kept_by_rule.tolist()
        mask.check(model.grid, model.fingerprint)
        assert chosen_ablation(mask_from_json(mask.to_json())) == "mean"
    with raises("head.count_out_of_range", 13, 12):
        curve.mask(13)


@given(heads=st.integers(1, 400), data=st.data())
def test_counts_rise_evenly_from_none_to_all(heads: int, data: st.DataObject) -> None:
    points = data.draw(st.integers(2, heads + 1))
    counts = removed_counts(heads, points)
    assert counts[0] == 0
    assert counts[-1] == heads
    assert len(counts) == points
    steps = np.diff(counts)
    assert steps.min() >= 1
    assert steps.max() - steps.min() <= 1
    every_count = list(range(heads + 1))
    assert removed_counts(heads) == every_count
    assert removed_counts(heads, heads + 1) == every_count


@pytest.mark.parametrize("points", [-1, 0, 1, 14])
def test_a_number_of_points_that_no_curve_has_is_refused(
    model: Model, scores: HeadScores, points: int
) -> None:
    with raises("curve.points_out_of_range", 2, 13):
        prune_curve(model, tiny_task(), language="xx", scores=scores, points=points)


# What is read off a curve


def curve_with_right_counts(
    right_counts: list[int], n: int = 100, removed: list[int] | None = None, **fields: Any
) -> Curve:
    """A curve of 4 heads whose intervals reach one point (0.01) to either side.

    Args:
        right_counts: How many examples are answered right at each point; they are the first ones.
        n: The number of examples.
        removed: How many heads are removed at each point; 0, 1, 2 and so on by default.
        fields: Fields of the curve to set to something else.
    """
    example_indices = np.arange(n)
    counts = np.array(right_counts)
    correct = example_indices[None, :] < counts[:, None]
    difference = (counts - right_counts[0]) / n
    if removed is None:
        removed = list(range(len(right_counts)))
    defaults = {
        "grid": ONE_STACK,
        "language": "xx",
        "split": "test",
        "ordering": "shapley",
        "order": np.arange(4),
        "removed": np.array(removed),
        "correct": correct,
        "groups": example_indices,
        "low": difference - 0.01,
        "high": difference + 0.01,
        "p_values": np.ones(len(right_counts)),
        "example_forwards": 0,
        "seconds": 0.0,
    }
    return Curve(**defaults | fields)


def test_the_area_by_hand() -> None:
    assert curve_with_right_counts([80, 60, 40, 20, 0]).area == pytest.approx(0.4)
    assert curve_with_right_counts([80, 80, 80, 80, 80]).area == pytest.approx(0.8)
    # 0 to 1 of 4 heads: mean 0.7 over a quarter; 1 to 4: mean 0.4 over three quarters.
    assert curve_with_right_counts([80, 60, 20], removed=[0, 1, 4]).area == pytest.approx(
        0.7 / 4 + 0.4 * 3 / 4
    )
    assert curve_with_right_counts([100, 0], removed=[0, 4]).area == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("right_counts", "expected_heads"),
    [
        pytest.param([80, 80, 81, 79, 80], 4, id="never"),
        pytest.param([80, 70, 60, 50, 40], 0, id="at once"),
        pytest.param([80, 79, 79, 78, 10], 2, id="just one point is not more than one"),
        pytest.param([80, 80, 70, 80, 80], 1, id="what comes back later does not count"),
        pytest.param([80, 85, 90, 79, 78], 3, id="a gain first"),
    ],
)
def test_heads_until_a_point_is_lost(right_counts: list[int], expected_heads: int) -> None:
    assert curve_with_right_counts(right_counts).heads_until() == expected_heads
    assert curve_with_right_counts(right_counts).heads_until(0.01, by="estimate") == expected_heads


def test_heads_until_by_the_interval_does_not_look_at_the_estimate() -> None:
    curve = curve_with_right_counts(
        [80, 80, 79, 78, 70], low=np.array([0.0, -0.005, -0.01, -0.02, -0.2])
    )
    assert curve.heads_until(by="interval") == 2
    assert curve.heads_until() == 2
    assert curve.heads_until(0.02, by="interval") == 3
    assert curve.heads_until(0.03) == 3
    curve_with_wide_interval = curve_with_right_counts(
        [80, 81, 82, 83, 84], low=np.array([0.0, -0.02, 0.0, 0.0, 0.0])
    )
    assert curve_with_wide_interval.heads_until(by="interval") == 0
    assert curve_with_wide_interval.heads_until() == 4
    assert curve_with_right_counts([80, 79, 78, 77, 76]).heads_until(0) == 0


def test_heads_until_counts_only_what_was_measured() -> None:
    assert curve_with_right_counts([80, 80, 10], removed=[0, 3, 4]).heads_until() == 3
    assert curve_with_right_counts([80, 10], removed=[0, 4]).heads_until() == 0


def test_heads_until_refuses_what_it_cannot_tell() -> None:
    for loss in (-0.01, float("nan")):
        with raises("curve.loss_out_of_range", 0):
            curve_with_right_counts([80, 10]).heads_until(loss)
    with raises("curve.loss_way_unknown", '"estimate"', '"interval"'):
        curve_with_right_counts([80, 10]).heads_until(by="guess")  # type: ignore[arg-type]


def test_a_band_is_lowest_median_and_highest_of_the_curves() -> None:
    curves = [
        curve_with_right_counts([80, 60, 0]),
        curve_with_right_counts([80, 50, 4]),
        curve_with_right_counts([80, 70, 9]),
    ]
    removed = np.array([0, 2, 4])
    curve_band = band([replace(curve, removed=removed) for curve in curves])
    assert curve_band.low.tolist() == [0.8, 0.5, 0.0]
    assert curve_band.median.tolist() == [0.8, 0.6, 0.04]
    assert curve_band.high.tolist() == [0.8, 0.7, 0.09]
    assert curve_band.removed.tolist() == [0, 2, 4]
    assert curve_band.ordering == "shapley"
    assert curve_band.curves == 3


def test_a_band_of_curves_that_do_not_fit_is_refused() -> None:
    with raises("band.empty"):
        band([])
    other_grid = HeadGrid((Stack("encoder", (4,)),))
    for unfitting_curve in (
        curve_with_right_counts([80, 60, 0], removed=[0, 1, 4]),
        curve_with_right_counts([80, 60, 0], removed=[0, 2, 4], grid=other_grid),
    ):
        with raises("band.curves_differ"):
            band([curve_with_right_counts([80, 60, 0], removed=[0, 2, 4]), unfitting_curve])


def test_two_areas_are_compared_answer_by_answer(rng: np.random.Generator) -> None:
    probabilities = np.linspace(0.9, 0.2, 5)
    is_right = rng.random((2, 5, 60)) < probabilities[:, None]
    is_right[1, 3] = is_right[0, 3] & is_right[1, 3]
    groups = np.repeat(np.arange(20), 3)
    first_curve, second_curve = (
        curve_with_right_counts([0] * 5, 60, correct=is_right_of_one, groups=groups)
        for is_right_of_one in is_right
    )
    comparison = compare_areas(first_curve, second_curve, seed=2)
    difference = first_curve.area - second_curve.area
    assert comparison.difference == pytest.approx(difference, abs=1e-12)
    assert comparison.low < comparison.difference < comparison.high
    is_right_by_answer = is_right[0].T.astype(float)
    answer_differences = is_right_by_answer - is_right[1].T
    area_gains = [np.trapezoid(differences, dx=0.25) for differences in answer_differences]
    group_totals = np.bincount(groups, area_gains)
    resampled_groups = rng.integers(20, size=(4000, 20))
    resampled_means = group_totals[resampled_groups].sum(axis=1) / 60
    expected_interval = tuple(np.quantile(resampled_means, [0.025, 0.975]))
    assert (comparison.low, comparison.high) == pytest.approx(expected_interval, abs=0.03)
    comparison_with_itself = compare_areas(first_curve, first_curve)
    assert comparison_with_itself.difference == 0.0
    assert comparison_with_itself.p == 1.0
    assert comparison_with_itself.low < 0 < comparison_with_itself.high
    with raises("curve.other_examples"):
        compare_areas(first_curve, replace(second_curve, groups=groups[::-1]))
    with raises("curve.other_examples"):
        compare_areas(first_curve, replace(second_curve, spec={"task": {"data_hash": "another"}}))


# What is refused, and what is said


def test_scores_of_another_model_are_refused(model: Model, scores: HeadScores) -> None:
    task = tiny_task()
    other_model = tiny_model("bert", seed=1, tokenizer=tiny_tokenizer())
    with raises("score.other_model", "tiny-bert", "bert-0", "bert-1"):
        prune_curve(other_model, task, language="xx", scores=scores)
    with raises("score.other_model", "a model that they do not name"):
        prune_curve(model, task, language="xx", scores=replace(scores, spec={}))
    decoder = tiny_model("gpt2", tokenizer=tiny_tokenizer())
    other_grid = HeadGrid((Stack("decoder", (12,)),))
    scores_of_other_layers = replace(scores, grid=other_grid)
    with raises("score.other_grid", "decoder"):
        prune_curve(decoder, task, language="xx", scores=scores_of_other_layers)
    scores_of_nan = replace(scores, values=scores.values * np.nan)
    with raises("score.not_finite"):
        prune_curve(model, task, language="xx", scores=scores_of_nan)


def test_curves_of_what_does_not_exist_are_refused(model: Model, scores: HeadScores) -> None:
    task = tiny_task()
    refused: list[tuple[dict[str, Any], tuple[object, ...]]] = [
        ({"language": "zz"}, ("task.language_unknown", "'zz'")),
        ({}, ("language.ambiguous", 2)),
        ({"language": "xx", "split": "validation"}, ("split.unknown", "validation")),
        ({"language": "xx", "size": 0}, ("task.size_too_small", 0)),
        ({"language": "xx", "seed": -1}, ("seed.invalid", -1)),
        ({"language": "xx", "ablation": "median"}, ("ablation.unknown", "'median'")),
    ]
    for options, refusal in refused:
        with raises(*refusal):
            prune_curve(model, task, scores=scores, points=3, **options)


def test_a_curve_says_when_it_is_an_optimistic_estimate(model: Model, scores: HeadScores) -> None:
    task = tiny_task()

    def caution(scores: HeadScores, **options: Any) -> str:
        curve = prune_curve(model, task, language="xx", scores=scores, points=2, **options)
        return curve.caution

    assert caution(scores) == ""
    dev_caution = caution(scores, split="dev")
    optimistic = "ordered on the dev split too, so the curve gives an optimistic estimate"
    assert optimistic in dev_caution
    assert "of zero ablation, the curve is of mean" in caution(scores, ablation="mean")
    scores_of_unknown_examples = replace(scores, spec={"model": model.identity()})
    assert "do not say which examples" in caution(scores_of_unknown_examples)
    random_scores = score(model, tiny_task(), language="xx", method="random", size=24)
    assert caution(random_scores, split="dev", ablation="mean") == ""


def test_an_order_from_another_language_is_kept_in_the_spec(model: Model) -> None:
    scores = score(model, tiny_task(), language="yy", method="random", seed=4)
    curve = prune_curve(model, tiny_task(), language="xx", scores=scores, points=2)
    assert curve.language == "xx"
    assert curve.spec["order"]["language"] == "yy"
    assert curve.spec["order"]["seed"] == 4
    assert caution_of(curve.spec) == curve.caution == ""


# What it costs


def test_every_point_is_one_pass_over_the_examples(model: Model, scores: HeadScores) -> None:
    steps: list[Progress] = []
    curve = prune_curve(model, tiny_task(), language="xx", scores=scores, on_progress=steps.append)
    assert curve.example_forwards == 13 * 30
    progress = [step.done for step in steps]
    assert progress == sorted(progress)
    assert progress[0] == 0
    assert progress[-1] == 13 * 30
    assert {step.total for step in steps} == {13 * 30}
    assert steps[0].note == "0 of 13 points"
    assert steps[-1].note == "13 of 13 points"


@pytest.mark.parametrize("tokens", [1, 9, 50, 150, 10_000])
def test_blocks_hold_every_example_once_and_at_most_the_limit(
    model: Model, scores: HeadScores, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_block_tokens(model, tokens, monkeypatch)
    evaluator = Evaluator(model, tiny_task(), "xx", "test", None)
    spec = curve_spec(evaluator.dataset, scores)
    blocks = Walk(evaluator, spec, np.arange(12), None).blocks
    example_indices = []
    for block in blocks:
        example_indices += range(30)[block]
    assert example_indices == list(range(30))
    for block in blocks:
        is_one_example = block.stop - block.start == 1
        assert is_one_example or evaluator.lengths[block].sum() <= tokens
    for block, next_block in pairwise(blocks):
        tokens_of_both = evaluator.lengths[block.start : next_block.stop].sum()
        assert tokens_of_both > tokens
    mean_spec = curve_spec(evaluator.dataset, scores, ablation="mean")
    mean_walk = Walk(evaluator, mean_spec, np.arange(12), None)
    assert mean_walk.blocks == [slice(0, 30)]


def test_progress_of_several_blocks_never_falls(
    model: Model, scores: HeadScores, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_block_tokens(model, 60, monkeypatch)
    steps: list[Progress] = []
    prune_curve(
        model, tiny_task(), language="xx", scores=scores, on_progress=steps.append, points=3
    )
    progress = [step.done for step in steps]
    assert progress == sorted(progress)
    assert progress[0] == 0
    assert progress[-1] == 90
    assert {step.total for step in steps} == {90}
    assert steps[0].note == "0 of 3 points on block 1 of 4"
    assert steps[-1].note == "3 of 3 points on block 4 of 4"


def test_a_point_starts_at_the_first_layer_that_lost_a_head(
    model: Model, scores: HeadScores
) -> None:
    calls: list[int] = []

    def note_call(layer_index: int, *_: Any) -> None:
        calls.append(layer_index)

    layers = model.module.bert.encoder.layer
    hooks = []
    for layer_index, layer in enumerate(layers):
        note_layer = partial(note_call, layer_index)
        hooks.append(layer.attention.register_forward_pre_hook(note_layer))
    try:
        curve = prune_curve(model, tiny_task(), language="xx", scores=scores, size=30)
    finally:
        for hook in hooks:
            hook.remove()
    first_layers = [0, *(model.grid.heads[head].layer for head in curve.order)]
    assert len(set(first_layers)) == 3
    expected_calls = []
    for first_layer in first_layers:
        expected_calls += range(first_layer, 3)
    assert calls == expected_calls  # 30 examples are one batch


# Stored and resumed


class Stop(Exception):
    pass


def tick_that_stops_after(ticks: int) -> Callable[[], None]:
    remaining_ticks = iter(range(ticks))

    def tick() -> None:
        if next(remaining_ticks, None) is None:
            raise Stop

    return tick


def stored_bytes(store: Store) -> dict[str, bytes]:
    """The bytes of every array of the store's only result, by name, without its times.

    The names of the files in the result's folder are there too, under "files".
    """
    (folder,) = store.folders()
    with np.load(folder / "result.npz") as file:
        bytes_by_name = {}
        for name in file.files:
            if name != "about":
                bytes_by_name[name] = file[name].tobytes()
        metadata = json.loads(str(file["about"]))
    metadata.pop("seconds")
    metadata["meta"].pop("created")
    file_names = sorted(path.name for path in folder.iterdir())
    bytes_by_name["about"] = json.dumps(metadata).encode()
    bytes_by_name["files"] = repr(file_names).encode()
    return bytes_by_name


@pytest.mark.parametrize(
    (
        "ablation",
        "tokens",
        "steps",
    ),
    [("zero", 10_000, 5), ("zero", 100, 15), ("mean", 100, 5)],
)
def test_stopped_between_any_two_batches_it_ends_with_the_same_bytes(
    model: Model,
    scores: HeadScores,
    tmp_path: Path,
    ablation: str,
    tokens: int,
    steps: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit_block_tokens(model, tokens, monkeypatch)
    task = tiny_task()
    options: dict[str, Any] = {
        "language": "xx",
        "scores": scores,
        "size": 30,
        "points": 5,
        "ablation": ablation,
    }
    uninterrupted_steps: list[Progress] = []
    uninterrupted = prune_curve(
        model,
        task,
        store=Store(tmp_path / "whole"),
        on_progress=uninterrupted_steps.append,
        **options,
    )
    expected_bytes = stored_bytes(Store(tmp_path / "whole"))
    starts = sorted({step.done for step in uninterrupted_steps})  # a block is one batch
    assert len(starts) == steps + 1
    for batches in range(steps):
        store = Store(tmp_path / f"cut{batches}")
        with pytest.raises(Stop):
            prune_curve(model, task, store=store, tick=tick_that_stops_after(batches), **options)
        for listing in (store.curves(), store.scan()):
            assert listing.results == ()
            assert listing.problems == ()
        resumed_steps: list[Progress] = []
        curve = prune_curve(model, task, store=store, on_progress=resumed_steps.append, **options)
        assert resumed_steps[0].note.startswith(f"{batches % 5} of 5 points")
        assert resumed_steps[0].done == starts[batches]
        assert curve.values_sha256() == uninterrupted.values_sha256()
        assert stored_bytes(store) == expected_bytes


def test_stopped_at_every_batch_it_ends_all_the_same(
    model: Model, scores: HeadScores, tmp_path: Path
) -> None:
    """Every attempt computes one point more than the attempt before it stored."""
    task = tiny_task()
    options: dict[str, Any] = {"language": "xx", "scores": scores}
    store = Store(tmp_path)
    attempts = 0
    while not store.curves().results:
        attempts += 1
        try:
            prune_curve(model, task, store=store, tick=tick_that_stops_after(1), **options)
        except Stop:
            continue
    assert attempts == 13
    (result,) = store.curves().results
    uninterrupted = prune_curve(model, task, **options)
    assert result.record.values_sha256() == uninterrupted.values_sha256()


def delete(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def overwrite_with_foreign_arrays(path: Path) -> None:
    np.savez(path, counts=np.arange(3))


def harm_that_replaces(**changes: Any) -> Callable[[Path], None]:
    """A function that replaces arrays of a checkpoint by these."""

    def harm(path: Path) -> None:
        with np.load(path) as file:
            np.savez(path, **{**file, **changes})

    return harm


CHECKPOINT_HARMS = {
    "no file": delete,
    "torn": truncate,
    "foreign": overwrite_with_foreign_arrays,
    "fewer answers": harm_that_replaces(correct=np.zeros((13, 3), np.uint8)),
    "fewer points": harm_that_replaces(correct=np.zeros((12, 4), np.uint8)),
    "another type": harm_that_replaces(correct=np.zeros((13, 4))),
    "other blocks": harm_that_replaces(blocks=np.array([10, 30])),
    "too many steps": harm_that_replaces(done=np.array(14)),
    "steps below none": harm_that_replaces(done=np.array(-1)),
    "steps of another shape": harm_that_replaces(done=np.arange(3)),
    "time without end": harm_that_replaces(seconds=np.array(np.inf)),
}


@pytest.mark.parametrize("harm", CHECKPOINT_HARMS.values(), ids=CHECKPOINT_HARMS)
def test_a_checkpoint_that_does_not_fit_starts_the_curve_over_and_says_so(
    model: Model, scores: HeadScores, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    options: dict[str, Any] = {
        "language": "xx",
        "scores": scores,
        "store": Store(tmp_path),
    }
    with pytest.raises(Stop):
        prune_curve(model, tiny_task(), tick=tick_that_stops_after(3), **options)
    (checkpoint,) = tmp_path.glob("*/checkpoint.npz")
    harm(checkpoint)
    steps: list[Progress] = []
    curve = prune_curve(model, tiny_task(), on_progress=steps.append, **options)
    assert steps[0].done == 0
    without_store = prune_curve(model, tiny_task(), language="xx", scores=scores)
    assert curve.values_sha256() == without_store.values_sha256()
    log = checkpoint.parent / "log.txt"
    assert harm is delete or "checkpoint skipped" in log.read_text(encoding="utf-8")


def test_a_finished_curve_is_read_and_a_torn_one_is_not_computed_again(
    model: Model, scores: HeadScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "language": "xx",
        "scores": scores,
        "store": Store(tmp_path),
        "points": 4,
    }
    computed = prune_curve(model, tiny_task(), **options)

    def never(*_: Any) -> Curve:
        raise AssertionError("measured again")

    monkeypatch.setattr(Walk, "go", never)
    read_back = prune_curve(model, tiny_task(), **options)
    assert read_back.values_sha256() == computed.values_sha256()
    assert read_back.spec == computed.spec
    (result_path,) = tmp_path.glob("*/result.npz")
    truncate(result_path)
    with raises("arrays.torn", "curve"):
        prune_curve(model, tiny_task(), **options)


def test_what_changes_the_numbers_changes_the_key(model: Model, scores: HeadScores) -> None:
    task = tiny_task()

    def key(
        ordering_scores: HeadScores = scores,
        language: str = "xx",
        size: int | None = None,
        **options: Any,
    ) -> str:
        evaluator = Evaluator(model, task, language, "test", size)
        run = Store(Path()).run(curve_spec(evaluator.dataset, ordering_scores, **options))
        return run.key

    reversed_scores = replace(scores, values=-scores.values)
    changed_keys = [
        key(reversed_scores),
        key(language="yy"),
        key(size=8),
        key(points=3),
        key(ablation="mean"),
        key(seed=1),
        key(replace(scores, method="gradient")),
    ]
    assert len({key(), *changed_keys}) == 8
    assert key() == key(points=13)


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


def curve_command(folder: Path, cache: Path, *further_arguments: object) -> list[str]:
    """The words of a `curve` command with these arguments after the usual ones."""
    arguments = ["curve", "--model", folder, "--languages", "de,en", "--method", "random"]
    arguments += ["--size", 40, "--dev-size", 16, "--cache", cache, *further_arguments]
    return [str(argument) for argument in arguments]


def test_the_command_prints_the_curve_of_the_library(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(curve_command(folder, tmp_path, "--points", 4, "--seed", 2, "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["split"] == "test"
    assert list(printed["languages"]) == ["de", "en"]
    model = headlab.load(str(folder))
    task = headlab.task("intents", ["de"])
    scores = headlab.score(model, task, method="random", seed=2, size=16)
    curve = headlab.prune_curve(model, task, scores=scores, size=40, points=4, seed=2)
    language_row = printed["languages"]["de"]
    for name in ("removed", "accuracy", "difference", "low", "high", "p_values"):
        assert language_row[name] == getattr(curve, name).tolist(), name
    ordered_heads = [list(model.grid.heads[head]) for head in curve.order]
    assert language_row["order"] == ordered_heads
    assert language_row["heads_until_point_lost"] == {
        "estimate": curve.heads_until(0.01, "estimate"),
        "interval": curve.heads_until(0.01, "interval"),
    }
    assert language_row["area"] == curve.area
    assert language_row["n"] == 40
    assert language_row["ordering"] == "random"
    assert language_row["caution"] == ""
    assert language_row["values_sha256"] == curve.values_sha256()


def test_the_command_prints_a_table_and_two_numbers_a_language(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(curve_command(folder, tmp_path, "--points", 3)) == 0
    printed = capsys.readouterr().out
    assert printed.count("Every point, ") == printed.count(" | test | 40 | ") == 2
    first_cells = [
        line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")
    ]
    assert first_cells == ["heads removed", "---:", "0", "3", "6"] * 2 + [
        "language",
        "---",
        "de",
        "en",
    ]
    assert "on the dev split too" not in printed
    on_dev = curve_command(folder, tmp_path, "--points", 3, "--split", "dev")
    assert main([*on_dev, "--method", "leave-one-out"]) == 0
    assert "the heads were ordered on the dev split too" in capsys.readouterr().out


def test_the_command_refuses_before_it_scores(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentences_by_arguments = {
        ("--points", 9): "2 to 7",
        ("--split", "validation"): "unknown split",
        ("--ablation", "median"): "unknown ablation",
        ("--method", "magic"): "magic",
    }
    for wrong_arguments, sentence in sentences_by_arguments.items():
        assert main(curve_command(folder, tmp_path, *wrong_arguments)) == 2
        assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_goes_on_where_it_stopped(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(curve_command(folder, tmp_path / "whole", "--json")) == 0
    expected = json.loads(capsys.readouterr().out)["languages"]
    save = Walk.save

    def stop(walk: Walk, arrays: Arrays) -> None:
        save(walk, arrays)
        if walk.done == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # a checkpoint after every point
        patch.setattr("headlab.methods.work.SAVING_SHARE", float("inf"))
        patch.setattr(Walk, "save", stop)
        assert main(curve_command(folder, tmp_path / "cut", "--json")) == 130
    assert "curve" in capsys.readouterr().err
    (checkpoint,) = (tmp_path / "cut").glob("*/checkpoint.npz")
    assert int(np.load(checkpoint)["done"]) == 4
    assert main(curve_command(folder, tmp_path / "cut", "--json")) == 0
    resumed = json.loads(capsys.readouterr().out)["languages"]
    for rows in (expected, resumed):
        for row in rows.values():
            row.pop("seconds")
    assert resumed == expected
    assert not checkpoint.exists()
