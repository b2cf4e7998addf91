"""Pruning curves, against a slow truth; interrupted and resumed; and what is read off them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.expected_errors import raises
from support.saved_models import save_classifier
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from test_inputs import PAIRS, WORDS

import headlab
from headlab.cli.evaluate import chosen_ablation
from headlab.cli.main import main
from headlab.core import HeadGrid, Progress, Stack
from headlab.evaluation import Evaluator, compare, evaluator
from headlab.hooks import Model
from headlab.masks import Mask, heads_kept_by_rule, mask_from_json
from headlab.methods.run import score
from headlab.methods.work import Arrays
from headlab.results import Curve, HeadScores, Store, band, compare_areas, removed_counts
from headlab.studies.curves import BLOCK_BYTES, Walk, caution_of, curve_spec, prune_curve
from headlab.tasks import Task

ONE = HeadGrid((Stack("encoder", (2, 2)),))
# One language of a task that each family can do.
CASES: dict[str, Task] = {
    "bert": tiny_task(),
    "deberta-v2": tiny_task(),
    "gpt2": tiny_task(),
    "bert-tokens": WORDS,
    "marian": PAIRS,
}


@pytest.fixture(autouse=True)
def _one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples of these tests are computed in one part, as in one batch, so that steps can be counted."""
    monkeypatch.setattr(evaluator, "CHUNKS", (32,))
    monkeypatch.setattr(evaluator, "FIRST_SHARE", 1)


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def scores(model: Model) -> HeadScores:
    return score(model, tiny_task(), language="xx", method="leave-one-out", size=24)


def shared_groups(evaluator: Evaluator) -> int:
    return len({example.group or example.id for example in evaluator.examples})


def in_blocks(model: Model, tokens: int, patch: pytest.MonkeyPatch) -> None:
    """Let a walk keep the layer inputs of so many tokens only."""
    layer = model.module.config.hidden_size * model.module.dtype.itemsize
    patch.setitem(BLOCK_BYTES, "cpu", tokens * (model.grid.layers + 1) * layer)


@pytest.mark.parametrize(("ablation", "tokens"), [("zero", None), ("zero", 40), ("mean", None)])
@pytest.mark.parametrize("family", CASES)
@pytest.mark.usefixtures("one_lane")  # a tie in the last bit must fall the same way on both sides
def test_every_point_equals_a_model_of_its_own(
    family: str, ablation: str, tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One evaluator a point, one example a batch, nothing kept between passes, compared as `evaluate --mask` does."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    task = CASES[family]
    if tokens is not None:
        in_blocks(model, tokens, monkeypatch)
    scores = score(model, task, language="xx", method="random", seed=3, ablation=ablation)
    curve = prune_curve(
        model, task, language="xx", scores=scores, ablation=ablation, seed=5, points=6
    )
    values = scores.values.tolist()
    by_value = sorted(range(len(values)), key=lambda head: (values[head], -head))
    assert curve.order.tolist() == by_value

    def fresh(gone: int) -> Evaluator:
        return Evaluator(model, task, "xx", "test", None, batch_size=1, state_bytes=0)

    whole = fresh(0).evaluate()
    assert len(curve.removed) == 6
    for place, gone in enumerate(curve.removed.tolist()):
        kept = np.array([head not in by_value[:gone] for head in range(len(values))])
        found = fresh(gone).evaluate(Mask(model.grid, kept), ablation=ablation)
        row = compare(whole, found, seed=5)
        assert curve.correct[place].tolist() == found.correct.tolist()
        assert (curve.n, curve.accuracy[place]) == (row.n, pytest.approx(row.accuracy, abs=1e-15))
        want = (row.difference, row.low, row.high, row.p) if gone else (0.0, 0.0, 0.0, 1.0)
        got = (curve.difference[place], curve.low[place], curve.high[place], curve.p_values[place])
        assert got == pytest.approx(want, abs=1e-12)
    assert len(set(curve.groups.tolist())) == shared_groups(fresh(0))
    # Of 97 words the untrained translator guesses hardly any right, whatever is removed.
    assert curve.difference.any() or family == "marian"


def test_a_point_is_the_mask_that_the_rule_bottom_makes(model: Model, scores: HeadScores) -> None:
    tied = replace(scores, values=np.round(scores.values, 1))
    assert len(set(tied.values.tolist())) < model.grid.size
    curve = prune_curve(
        model, tiny_task(), language="xx", scores=tied, size=8, points=2, ablation="mean"
    )
    for k in (0, 1, 5, 6):
        mask = curve.mask(k)
        assert (
            mask.kept.tolist()
            == heads_kept_by_rule(tied.grid, tied.values, None, "bottom", k=k).tolist()
        )
        mask.check(model.grid, model.fingerprint)
        assert chosen_ablation(mask_from_json(mask.to_json())) == "mean"
    with raises("head.count_out_of_range", 13, 12):
        curve.mask(13)


@given(heads=st.integers(1, 400), data=st.data())
def test_counts_rise_evenly_from_none_to_all(heads: int, data: st.DataObject) -> None:
    points = data.draw(st.integers(2, heads + 1))
    found = removed_counts(heads, points)
    assert (found[0], found[-1], len(found)) == (0, heads, points)
    steps = np.diff(found)
    assert steps.min() >= 1
    assert steps.max() - steps.min() <= 1
    assert removed_counts(heads) == removed_counts(heads, heads + 1) == list(range(heads + 1))


@pytest.mark.parametrize("points", [-1, 0, 1, 14])
def test_a_number_of_points_that_no_curve_has_is_refused(
    model: Model, scores: HeadScores, points: int
) -> None:
    with raises("curve.points_out_of_range", 2, 13):
        prune_curve(model, tiny_task(), language="xx", scores=scores, points=points)


# What is read off a curve


def made(right: list[int], n: int = 100, removed: list[int] | None = None, **fields: Any) -> Curve:
    """A curve of 4 heads with so many right answers at each point, the first ones; low and high are a point off."""
    correct = np.arange(n)[None, :] < np.array(right)[:, None]
    difference = (np.array(right) - right[0]) / n
    gone = np.arange(len(right)) if removed is None else np.array(removed)
    given = {
        "grid": ONE,
        "language": "xx",
        "split": "test",
        "ordering": "shapley",
        "order": np.arange(4),
        "removed": gone,
        "correct": correct,
        "groups": np.arange(n),
        "low": difference - 0.01,
        "high": difference + 0.01,
        "p_values": np.ones(len(right)),
        "example_forwards": 0,
        "seconds": 0.0,
    }
    return Curve(**given | fields)


def test_the_area_by_hand() -> None:
    assert made([80, 60, 40, 20, 0]).area == pytest.approx(0.4)
    assert made([80, 80, 80, 80, 80]).area == pytest.approx(0.8)
    # 0 to 1 of 4 heads: mean 0.7 over a quarter; 1 to 4: mean 0.4 over three quarters.
    assert made([80, 60, 20], removed=[0, 1, 4]).area == pytest.approx(0.7 / 4 + 0.4 * 3 / 4)
    assert made([100, 0], removed=[0, 4]).area == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("right", "until"),
    [
        pytest.param([80, 80, 81, 79, 80], 4, id="never"),
        pytest.param([80, 70, 60, 50, 40], 0, id="at once"),
        pytest.param([80, 79, 79, 78, 10], 2, id="just one point is not more than one"),
        pytest.param([80, 80, 70, 80, 80], 1, id="what comes back later does not count"),
        pytest.param([80, 85, 90, 79, 78], 3, id="a gain first"),
    ],
)
def test_heads_until_a_point_is_lost(right: list[int], until: int) -> None:
    assert made(right).heads_until() == until
    assert made(right).heads_until(0.01, by="estimate") == until


def test_heads_until_by_the_interval_waits_for_no_estimate() -> None:
    curve = made([80, 80, 79, 78, 70], low=np.array([0.0, -0.005, -0.01, -0.02, -0.2]))
    assert (curve.heads_until(by="interval"), curve.heads_until()) == (2, 2)
    assert (curve.heads_until(0.02, by="interval"), curve.heads_until(0.03)) == (3, 3)
    unsure = made([80, 81, 82, 83, 84], low=np.array([0.0, -0.02, 0.0, 0.0, 0.0]))
    assert (unsure.heads_until(by="interval"), unsure.heads_until()) == (0, 4)
    assert made([80, 79, 78, 77, 76]).heads_until(0) == 0


def test_heads_until_counts_only_what_was_measured() -> None:
    assert made([80, 80, 10], removed=[0, 3, 4]).heads_until() == 3
    assert made([80, 10], removed=[0, 4]).heads_until() == 0


def test_heads_until_refuses_what_it_cannot_tell() -> None:
    for loss in (-0.01, float("nan")):
        with raises("curve.loss_out_of_range", 0):
            made([80, 10]).heads_until(loss)
    with raises("curve.loss_way_unknown", '"estimate"', '"interval"'):
        made([80, 10]).heads_until(by="guess")  # type: ignore[arg-type]


def test_a_band_is_lowest_median_and_highest_of_the_curves() -> None:
    curves = [made([80, 60, 0]), made([80, 50, 4]), made([80, 70, 9])]
    found = band([replace(c, removed=np.array([0, 2, 4])) for c in curves])
    assert found.low.tolist() == [0.8, 0.5, 0.0]
    assert found.median.tolist() == [0.8, 0.6, 0.04]
    assert found.high.tolist() == [0.8, 0.7, 0.09]
    assert (found.removed.tolist(), found.ordering, found.curves) == ([0, 2, 4], "shapley", 3)


def test_a_band_of_curves_that_do_not_fit_is_refused() -> None:
    with raises("band.empty"):
        band([])
    other = HeadGrid((Stack("encoder", (4,)),))
    for stranger in (
        made([80, 60, 0], removed=[0, 1, 4]),
        made([80, 60, 0], removed=[0, 2, 4], grid=other),
    ):
        with raises("band.curves_differ"):
            band([made([80, 60, 0], removed=[0, 2, 4]), stranger])


def test_two_areas_are_compared_answer_by_answer(rng: np.random.Generator) -> None:
    right = rng.random((2, 5, 60)) < np.linspace(0.9, 0.2, 5)[:, None]
    right[1, 3] = right[0, 3] & right[1, 3]
    groups = np.repeat(np.arange(20), 3)
    one, other = (made([0] * 5, 60, correct=part, groups=groups) for part in right)
    found = compare_areas(one, other, seed=2)
    assert found.difference == pytest.approx(one.area - other.area, abs=1e-12)
    assert found.low < found.difference < found.high
    gains = [
        np.trapezoid(a.astype(float) - b, dx=0.25)
        for a, b in zip(right[0].T, right[1].T, strict=True)
    ]
    totals = np.bincount(groups, gains)
    means = [(totals[picked].sum() / 60) for picked in rng.integers(20, size=(4000, 20))]
    assert (found.low, found.high) == pytest.approx(
        tuple(np.quantile(means, [0.025, 0.975])), abs=0.03
    )
    same = compare_areas(one, one)
    assert (same.difference, same.p) == (0.0, 1.0)
    assert same.low < 0 < same.high
    with raises("curve.other_examples"):
        compare_areas(one, replace(other, groups=groups[::-1]))
    with raises("curve.other_examples"):
        compare_areas(one, replace(other, spec={"task": {"data_hash": "another"}}))


# What is refused, and what is said


def test_scores_of_another_model_are_refused(model: Model, scores: HeadScores) -> None:
    task = tiny_task()
    other = tiny_model("bert", seed=1, tokenizer=tiny_tokenizer())
    with raises("score.other_model", "tiny-bert", "bert-0", "bert-1"):
        prune_curve(other, task, language="xx", scores=scores)
    with raises("score.other_model", "a model that they do not name"):
        prune_curve(model, task, language="xx", scores=replace(scores, spec={}))
    with raises("score.other_grid", "decoder"):
        prune_curve(
            tiny_model("gpt2", tokenizer=tiny_tokenizer()),
            task,
            language="xx",
            scores=replace(scores, grid=HeadGrid((Stack("decoder", (12,)),))),
        )
    with raises("score.not_finite"):
        prune_curve(
            model, task, language="xx", scores=replace(scores, values=scores.values * np.nan)
        )


def test_what_does_not_exist_is_refused(model: Model, scores: HeadScores) -> None:
    task = tiny_task()
    wrong: list[tuple[dict[str, Any], tuple[object, ...]]] = [
        ({"language": "zz"}, ("task.language_unknown", "'zz'")),
        ({}, ("language.ambiguous", 2)),
        ({"language": "xx", "split": "validation"}, ("split.unknown", "validation")),
        ({"language": "xx", "size": 0}, ("task.size_too_small", 0)),
        ({"language": "xx", "seed": -1}, ("seed.invalid", -1)),
        ({"language": "xx", "ablation": "median"}, ("ablation.unknown", "'median'")),
    ]
    for given_, expected in wrong:
        with raises(*expected):
            prune_curve(model, task, scores=scores, points=3, **given_)


def test_a_curve_says_when_it_is_an_optimistic_estimate(model: Model, scores: HeadScores) -> None:
    def caution(scores: HeadScores, **options: Any) -> str:
        return prune_curve(
            model, tiny_task(), language="xx", scores=scores, points=2, **options
        ).caution

    assert caution(scores) == ""
    assert "ordered on the dev split too, so the curve gives an optimistic estimate" in caution(
        scores, split="dev"
    )
    assert "of zero ablation, the curve is of mean" in caution(scores, ablation="mean")
    unknown = replace(scores, spec={"model": model.identity()})
    assert "do not say which examples" in caution(unknown)
    chance = score(model, tiny_task(), language="xx", method="random", size=24)
    assert caution(chance, split="dev", ablation="mean") == ""


def test_an_order_from_another_language_is_kept_in_the_spec(model: Model) -> None:
    scores = score(model, tiny_task(), language="yy", method="random", seed=4)
    curve = prune_curve(model, tiny_task(), language="xx", scores=scores, points=2)
    assert (curve.language, curve.spec["order"]["language"], curve.spec["order"]["seed"]) == (
        "xx",
        "yy",
        4,
    )
    assert caution_of(curve.spec) == curve.caution == ""


# What it costs


def test_every_point_is_one_pass_over_the_examples(model: Model, scores: HeadScores) -> None:
    steps: list[Progress] = []
    curve = prune_curve(model, tiny_task(), language="xx", scores=scores, on_progress=steps.append)
    assert curve.example_forwards == 13 * 30
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert (done[0], done[-1], {step.total for step in steps}) == (0, 13 * 30, {13 * 30})
    assert (steps[0].note, steps[-1].note) == ("0 of 13 points", "13 of 13 points")


@pytest.mark.parametrize("tokens", [1, 9, 50, 150, 10_000])
def test_blocks_hold_every_example_once_and_no_more_than_fits(
    model: Model, scores: HeadScores, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(model, tokens, monkeypatch)
    evaluator = Evaluator(model, tiny_task(), "xx", "test", None)
    blocks = Walk(evaluator, curve_spec(evaluator.dataset, scores), np.arange(12), None).blocks
    assert [row for block in blocks for row in range(30)[block]] == list(range(30))
    for block in blocks:
        assert evaluator.lengths[block].sum() <= tokens or block.stop - block.start == 1
    joined = [evaluator.lengths[a.start : b.stop].sum() for a, b in pairwise(blocks)]
    assert all(together > tokens for together in joined)
    mean = Walk(
        evaluator, curve_spec(evaluator.dataset, scores, ablation="mean"), np.arange(12), None
    )
    assert mean.blocks == [slice(0, 30)]


def test_progress_of_several_blocks_never_falls(
    model: Model, scores: HeadScores, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(model, 60, monkeypatch)
    steps: list[Progress] = []
    prune_curve(
        model, tiny_task(), language="xx", scores=scores, on_progress=steps.append, points=3
    )
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert (done[0], done[-1], {step.total for step in steps}) == (0, 90, {90})
    assert steps[0].note == "0 of 3 points on block 1 of 4"
    assert steps[-1].note == "3 of 3 points on block 4 of 4"


def test_a_point_starts_at_the_first_layer_that_lost_a_head(
    model: Model, scores: HeadScores
) -> None:
    calls: list[int] = []
    layers = model.module.bert.encoder.layer
    watched = [
        layer.attention.register_forward_pre_hook(lambda *_, at=at: calls.append(at))
        for at, layer in enumerate(layers)
    ]
    try:
        curve = prune_curve(model, tiny_task(), language="xx", scores=scores, size=30)
    finally:
        for hook in watched:
            hook.remove()
    first = [0, *(model.grid.heads[head].layer for head in curve.order)]
    assert len(set(first)) == 3
    want = [layer for start in first for layer in range(start, 3)]
    assert calls == want  # 30 examples are one batch


# Kept and resumed


class Stop(Exception):
    pass


def stopping(after: int) -> Callable[[], None]:
    left = iter(range(after))

    def tick() -> None:
        if next(left, None) is None:
            raise Stop

    return tick


def arrays(store: Store) -> dict[str, bytes]:
    """Every array of the store's only result, but for the text with times; and the files beside it."""
    (folder,) = store.folders()
    with np.load(folder / "result.npz") as file:
        out = {name: file[name].tobytes() for name in file.files if name != "about"}
        about = json.loads(str(file["about"]))
    about.pop("seconds")
    about["meta"].pop("created")
    return out | {
        "about": json.dumps(about).encode(),
        "files": repr(sorted(p.name for p in folder.iterdir())).encode(),
    }


@pytest.mark.parametrize(
    ("ablation", "tokens", "steps"), [("zero", 10_000, 5), ("zero", 100, 15), ("mean", 100, 5)]
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
    in_blocks(model, tokens, monkeypatch)
    task = tiny_task()
    ask: dict[str, Any] = {
        "language": "xx",
        "scores": scores,
        "size": 30,
        "points": 5,
        "ablation": ablation,
    }
    seen: list[Progress] = []
    whole = prune_curve(
        model, task, store=Store(tmp_path / "whole"), on_progress=seen.append, **ask
    )
    want = arrays(Store(tmp_path / "whole"))
    starts = sorted({step.done for step in seen})  # a block is one batch
    assert len(starts) == steps + 1
    for after in range(steps):
        store = Store(tmp_path / f"cut{after}")
        with pytest.raises(Stop):
            prune_curve(model, task, store=store, tick=stopping(after), **ask)
        for listing in (store.curves(), store.scan()):
            assert (listing.results, listing.problems) == ((), ())
        again: list[Progress] = []
        curve = prune_curve(model, task, store=store, on_progress=again.append, **ask)
        assert again[0].note.startswith(f"{after % 5} of 5 points")
        assert again[0].done == starts[after]
        assert curve.values_sha256() == whole.values_sha256()
        assert arrays(store) == want


def test_stopped_at_every_batch_it_gets_there_all_the_same(
    model: Model, scores: HeadScores, tmp_path: Path
) -> None:
    """Every attempt is given one point more than the last one kept."""
    store = Store(tmp_path)
    attempts = 0
    while not store.curves().results:
        attempts += 1
        try:
            prune_curve(
                model, tiny_task(), language="xx", scores=scores, store=store, tick=stopping(1)
            )
        except Stop:
            continue
    assert attempts == 13
    (result,) = store.curves().results
    assert result.record.values_sha256() == (
        prune_curve(model, tiny_task(), language="xx", scores=scores).values_sha256()
    )


def no_file(path: Path) -> None:
    path.unlink()


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def foreign(path: Path) -> None:
    np.savez(path, counts=np.arange(3))


def of(**changes: Any) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        with np.load(path) as file:
            np.savez(path, **{**file, **changes})

    return harm


WRONG = {
    "no file": no_file,
    "torn": torn,
    "foreign": foreign,
    "fewer answers": of(correct=np.zeros((13, 3), np.uint8)),
    "fewer points": of(correct=np.zeros((12, 4), np.uint8)),
    "another type": of(correct=np.zeros((13, 4))),
    "other blocks": of(blocks=np.array([10, 30])),
    "too many steps": of(done=np.array(14)),
    "steps below none": of(done=np.array(-1)),
    "steps of another shape": of(done=np.arange(3)),
    "time without end": of(seconds=np.array(np.inf)),
}


@pytest.mark.parametrize("harm", WRONG.values(), ids=WRONG)
def test_a_checkpoint_that_does_not_fit_starts_the_curve_over_and_says_so(
    model: Model, scores: HeadScores, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    ask: dict[str, Any] = {"language": "xx", "scores": scores, "store": Store(tmp_path)}
    with pytest.raises(Stop):
        prune_curve(model, tiny_task(), tick=stopping(3), **ask)
    (checkpoint,) = tmp_path.glob("*/checkpoint.npz")
    harm(checkpoint)
    steps: list[Progress] = []
    curve = prune_curve(model, tiny_task(), on_progress=steps.append, **ask)
    assert steps[0].done == 0
    assert (
        curve.values_sha256()
        == prune_curve(model, tiny_task(), language="xx", scores=scores).values_sha256()
    )
    log = checkpoint.parent / "log.txt"
    assert harm is no_file or "checkpoint skipped" in log.read_text(encoding="utf-8")


def test_a_finished_curve_is_read_and_a_torn_one_is_not_made_over(
    model: Model, scores: HeadScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask: dict[str, Any] = {
        "language": "xx",
        "scores": scores,
        "store": Store(tmp_path),
        "points": 4,
    }
    first = prune_curve(model, tiny_task(), **ask)

    def never(*_: Any) -> Curve:
        raise AssertionError("measured again")

    monkeypatch.setattr(Walk, "go", never)
    second = prune_curve(model, tiny_task(), **ask)
    assert (second.values_sha256(), second.spec) == (first.values_sha256(), first.spec)
    (result,) = tmp_path.glob("*/result.npz")
    torn(result)
    with raises("arrays.torn", "curve"):
        prune_curve(model, tiny_task(), **ask)


def test_what_changes_the_numbers_changes_the_key(model: Model, scores: HeadScores) -> None:
    task = tiny_task()

    def key(
        given_: HeadScores = scores, language: str = "xx", size: int | None = None, **options: Any
    ) -> str:
        evaluator = Evaluator(model, task, language, "test", size)
        return Store(Path()).run(curve_spec(evaluator.dataset, given_, **options)).key

    reversed_ = replace(scores, values=-scores.values)
    others = [
        key(reversed_),
        key(language="yy"),
        key(size=8),
        key(points=3),
        key(ablation="mean"),
        key(seed=1),
        key(replace(scores, method="gradient")),
    ]
    assert len({key(), *others}) == 8
    assert key() == key(points=13)


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


def command(folder: Path, cache: Path, *more: object) -> list[str]:
    given_ = [
        "curve",
        "--model",
        folder,
        "--languages",
        "de,en",
        "--method",
        "random",
        "--size",
        40,
        "--dev-size",
        16,
    ]
    return [str(word) for word in (*given_, "--cache", cache, *more)]


def test_the_command_prints_the_curve_of_the_library(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(folder, tmp_path, "--points", 4, "--seed", 2, "--json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["split"], list(answer["languages"])) == ("test", ["de", "en"])
    model = headlab.load(str(folder))
    task = headlab.task("intents", ["de"])
    scores = headlab.score(model, task, method="random", seed=2, size=16)
    curve = headlab.prune_curve(model, task, scores=scores, size=40, points=4, seed=2)
    row = answer["languages"]["de"]
    for name in ("removed", "accuracy", "difference", "low", "high", "p_values"):
        assert row[name] == getattr(curve, name).tolist(), name
    assert row["order"] == [list(model.grid.heads[head]) for head in curve.order]
    assert row["heads_until_point_lost"] == {
        by: curve.heads_until(0.01, by) for by in ("estimate", "interval")
    }
    assert (row["area"], row["n"], row["ordering"], row["caution"]) == (
        curve.area,
        40,
        "random",
        "",
    )
    assert row["values_sha256"] == curve.values_sha256()


def test_the_command_prints_a_table_and_two_numbers_a_language(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(folder, tmp_path, "--points", 3)) == 0
    out = capsys.readouterr().out
    assert out.count("Every point, ") == out.count(" | test | 40 | ") == 2
    rows = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("|")]
    assert rows == ["heads removed", "---:", "0", "3", "6"] * 2 + ["language", "---", "de", "en"]
    assert "on the dev split too" not in out
    assert (
        main(
            [
                *command(folder, tmp_path, "--points", 3, "--split", "dev"),
                "--method",
                "leave-one-out",
            ]
        )
        == 0
    )
    assert "the heads were ordered on the dev split too" in capsys.readouterr().out


def test_the_command_refuses_before_it_scores(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        ("--points", 9): "2 to 7",
        ("--split", "validation"): "unknown split",
        ("--ablation", "median"): "unknown ablation",
        ("--method", "magic"): "magic",
    }
    for more, sentence in wrong.items():
        assert main(command(folder, tmp_path, *more)) == 2
        assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_goes_on_where_it_stopped(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(command(folder, tmp_path / "whole", "--json")) == 0
    want = json.loads(capsys.readouterr().out)["languages"]
    save = Walk.save

    def stop(walk: Walk, arrays: Arrays) -> None:
        save(walk, arrays)
        if walk.done == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # a checkpoint after every point
        patch.setattr("headlab.methods.work.SAVING_SHARE", float("inf"))
        patch.setattr(Walk, "save", stop)
        assert main(command(folder, tmp_path / "cut", "--json")) == 130
    assert "curve" in capsys.readouterr().err
    (left,) = (tmp_path / "cut").glob("*/checkpoint.npz")
    assert int(np.load(left)["done"]) == 4
    assert main(command(folder, tmp_path / "cut", "--json")) == 0
    got = json.loads(capsys.readouterr().out)["languages"]
    for rows in (want, got):
        for row in rows.values():
            row.pop("seconds")
    assert got == want
    assert not left.exists()
