"""Targeted pruning and the gap between dev and test, against a slow second derivation.

The second derivation evaluates every mask with an evaluator of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from support.group_labels import equal_groups
from support.masked_answers import HARMFUL_HEADS, VALUES, correct_answers
from support.planted_scores import plant_scores
from support.table_rows import rows_where
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import Report
from headlab.hooks import Model
from headlab.results import Store
from headlab.stats import bootstrap, group_bootstrap, stratified_bootstrap
from headlab.studies import differences
from headlab.studies.differences import (
    Gain,
    MeanDifference,
    difference,
    difference_between,
    gain_over,
    holm_of_differences,
    over_languages,
)
from headlab.studies.run import Pieces, forecast, missing_pieces, run_experiment
from headlab.studies.table import earlier_scores_sentence, study

GRADIENT_FORMS = {
    "gradient (example)": "example",
    "gradient (token)": "token",
    "gradient (batch)": "batch",
}
RUNS = 3


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def root(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which three heads harm xx and none harms yy."""
    store_root = tmp_path_factory.mktemp("store")
    pieces = Pieces(model, tiny_task(), Store(store_root), dev_size=12)
    p_values = np.full(12, 0.5)
    p_values[list(HARMFUL_HEADS)] = 0.001, 0.006, 0.03
    plant_scores(pieces, "xx", VALUES, HARMFUL_HEADS, p_values=p_values)
    plant_scores(pieces, "yy", VALUES[::-1])
    return store_root


@pytest.fixture
def make(model: Model, root: Path) -> Callable[[], Pieces]:
    return lambda: Pieces(model, tiny_task(), Store(root), dev_size=12)


@pytest.fixture(scope="module")
def report(model: Model, root: Path) -> Report:
    pieces = Pieces(model, tiny_task(), Store(root), dev_size=12)
    return run_experiment("targeted", pieces, options={"runs": RUNS})


def without_lowest_values(values: Any, k: int) -> list[bool]:
    """The heads kept when the k lowest are removed one by one; the last of equals goes first."""
    kept = [True] * len(values)
    for _ in range(k):
        kept_heads = [head for head, is_kept in enumerate(kept) if is_kept]
        lowest_head = min(kept_heads, key=lambda head: (values[head], -head))
        kept[lowest_head] = False
    return kept


def masks_by_choice(model: Model, language: str, k: int) -> dict[str, list[list[bool]]]:
    """The masks that each choice of heads makes in a language, as whether each head is kept."""
    task = tiny_task()

    def without_lowest_scored(method: str, seed: int = 0, **options: Any) -> list[bool]:
        scores = headlab.score(
            model, task, language=language, method=method, size=12, seed=seed, **options
        )
        return without_lowest_values(scores.values.tolist(), k)

    values = VALUES if language == "xx" else VALUES[::-1]
    without_harmful_heads = []
    for head in range(12):
        without_harmful_heads.append(head not in HARMFUL_HEADS or language == "yy")
    masks = {
        "harmful": [without_harmful_heads],
        "shapley": [without_lowest_values(values.tolist(), k)],
    }
    for choice, form in GRADIENT_FORMS.items():
        masks[choice] = [without_lowest_scored("gradient", form=form)]
    masks["leave-one-out"] = [without_lowest_scored("leave-one-out")]
    masks["random"] = []
    for seed in range(RUNS):
        masks["random"].append(without_lowest_scored("random", seed))
    return masks


GROUPS = equal_groups(30, 2)


def test_table_2_equals_masks_that_are_evaluated_anew(model: Model, report: Report) -> None:
    baseline = correct_answers(model, "xx", [True] * 12)
    all_masks = masks_by_choice(model, "xx", 3)
    shapley_answers = correct_answers(model, "xx", all_masks["shapley"][0])
    shapley_gain = reference.gains(baseline, [shapley_answers])
    (accuracy_row,) = rows_where(report.table("targeted-accuracy"), language="xx")
    assert accuracy_row["harmful heads"] == 3
    assert accuracy_row["K"] == 3
    baseline_accuracy = 100 * sum(baseline) / 30
    assert accuracy_row["untouched, %"] == pytest.approx(baseline_accuracy)
    for choice, choice_masks in all_masks.items():
        runs = [correct_answers(model, "xx", kept) for kept in choice_masks]
        gain = reference.gains(baseline, runs)
        (row,) = rows_where(report.table("targeted"), language="xx", removed_by=choice)
        shares = [100 * sum(answers) / 30 for answers in runs]
        assert choice_masks[0].count(False) == 3
        assert row["heads removed"] == 3
        accuracy = row["accuracy, %"]
        assert accuracy == pytest.approx(np.mean(shares))
        assert accuracy == pytest.approx(accuracy_row[f"{choice}, %"])
        mean_gain = 100 * sum(gain) / 30
        assert row["difference, points"] == pytest.approx(mean_gain, abs=1e-9)
        # Gains times runs are whole numbers, so a resample that loses as much as it gains is 0.
        run_count = float(len(runs))
        whole_gains = np.rint(np.array([gain]) * run_count)
        low, high, p = group_bootstrap(
            whole_gains,
            GROUPS,
            np.random.default_rng(0),
            pseudo_values=(run_count, -run_count),
            draws=10_000,
        )
        low_points = 100 * low[0] / run_count
        high_points = 100 * high[0] / run_count
        assert row["low, points"] == pytest.approx(low_points, abs=1e-9)
        assert row["high, points"] == pytest.approx(high_points, abs=1e-9)
        assert row["p"] == pytest.approx(p[0], abs=1e-9)
        lowest_and_highest = (row["lowest run, %"], row["highest run, %"])
        if choice == "random":
            expected_shares = (min(shares), max(shares))
            assert lowest_and_highest == pytest.approx(expected_shares)
        else:
            assert lowest_and_highest == (None, None)
        if choice != "shapley":
            against_table = report.table("targeted-against")
            (against,) = rows_where(against_table, language="xx", removed_by=choice)
            gain_over_shapley = sum(gain) - sum(shapley_gain)
            mean_gain_over_shapley = 100 * gain_over_shapley / 30
            assert against["difference, points"] == pytest.approx(mean_gain_over_shapley, abs=1e-9)
    rows = report.table("targeted").rows
    effects = {tuple(row[3:]) for row in rows}
    assert len(effects) > 4  # the choices differ


def test_a_language_without_harmful_heads_says_so_and_gains_nothing(report: Report) -> None:
    for row in rows_where(report.table("targeted"), language="yy"):
        assert row["heads removed"] == 0
        assert row["difference, points"] == 0
        assert row["low, points"] is None
        assert row["p"] is None
        assert row["P < 0.05"] == ""
    explanation = "No head has an interval below 0 in yy: nothing to remove"
    assert any(explanation in note for note in report.notes)
    (mean_row,) = rows_where(report.table("targeted"), language="mean", removed_by="harmful")
    (xx_row,) = rows_where(report.table("targeted"), language="xx", removed_by="harmful")
    mean_difference = mean_row["difference, points"]
    assert mean_difference == pytest.approx(xx_row["difference, points"] / 2)
    assert mean_row["low, points"] <= mean_difference <= mean_row["high, points"]


def test_runs_that_cancel_out_lie_on_both_sides_of_0() -> None:
    """Thirds do not add up to 0 in binary; as counts they do."""
    thirds = Gain(
        np.array([1 / 3, -2 / 3, 1 / 3, 0.0] * 5),
        tuple("abcd" * 5),
        3,
    )
    difference_of_thirds = difference(thirds, 0)
    counts = np.array([[1.0, -2.0, 1.0, 0.0] * 5])
    rng = np.random.default_rng(0)
    low, high, p = group_bootstrap(
        counts,
        thirds.groups,
        rng,
        pseudo_values=(3.0, -3.0),
        draws=10_000,
    )
    assert difference_of_thirds == (
        0.0,
        low[0] / 3,
        high[0] / 3,
        p[0],
    )
    halves = Gain(np.full(20, 0.5), thirds.groups, 2)
    gain_over_halves = gain_over(thirds, halves)
    assert gain_over_halves.runs == 6
    assert difference(gain_over_halves, 0).mean == pytest.approx(-0.5)


def test_with_k_given_every_choice_but_the_harmful_heads_has_k(
    model: Model, make: Callable[[], Pieces], report: Report
) -> None:
    report_of_two = run_experiment("targeted", make(), options={"runs": 2, "k": 2})
    for row in rows_where(report_of_two.table("targeted"), language="yy"):
        expected_count = 0 if row["removed by"] == "harmful" else 2
        assert row["heads removed"] == expected_count
    baseline = correct_answers(model, "yy", [True] * 12)
    kept = masks_by_choice(model, "yy", 2)["shapley"][0]
    (row,) = rows_where(report_of_two.table("targeted"), language="yy", removed_by="shapley")
    answers = correct_answers(model, "yy", kept)
    more_right_answers = sum(answers) - sum(baseline)
    difference_in_points = 100 * more_right_answers / 30
    assert row["difference, points"] == pytest.approx(difference_in_points)
    assert any("the other rows show the 2 lowest" in note for note in report_of_two.notes)
    report_of_seven = run_experiment("targeted", make(), options={"runs": 1, "k": 7})
    warning = "7 of 12 heads are removed; few models keep"
    assert any(warning in note for note in report_of_seven.notes)


def test_leave_one_out_is_left_out_on_request(make: Callable[[], Pieces]) -> None:
    report = run_experiment(
        "targeted",
        make(),
        options={"runs": 1, "k": 2, "leave_one_out": False},
    )
    choices = set(report.table("targeted").column("removed by"))
    assert choices == {"harmful", "random", "shapley", *GRADIENT_FORMS}


def test_p_is_adjusted_over_the_languages_for_each_choice(make: Callable[[], Pieces]) -> None:
    report = run_experiment("targeted", make(), options={"runs": 2, "k": 4})
    for choice in ("shapley", "random", "leave-one-out"):
        language_rows = [
            *rows_where(report.table("targeted"), removed_by=choice, language="xx"),
            *rows_where(report.table("targeted"), removed_by=choice, language="yy"),
        ]
        p_values = [row["p"] for row in language_rows]
        adjusted_p_values = [row["p (Holm)"] for row in language_rows]
        assert adjusted_p_values == pytest.approx(reference.holm_by_steps(p_values))


def test_other_seeds_draw_other_heads(
    model: Model, root: Path, report: Report, make: Callable[[], Pieces]
) -> None:
    report_of_seed_0 = run_experiment("targeted", make(), options={"runs": 1, "k": 5})
    other_pieces = Pieces(model, tiny_task(), Store(root), seed=1, dev_size=12)
    for language in ("xx", "yy"):
        plant_scores(other_pieces, language, VALUES, HARMFUL_HEADS)
    report_of_seed_1 = run_experiment("targeted", other_pieces, options={"runs": 1, "k": 5})

    def accuracies_of_random_masks(report: Report) -> list[float]:
        random_rows = rows_where(report.table("targeted"), removed_by="random")
        return [row["accuracy, %"] for row in random_rows]

    accuracies_of_seed_0 = accuracies_of_random_masks(report_of_seed_0)
    assert accuracies_of_seed_0 != accuracies_of_random_masks(report_of_seed_1)


def test_the_forecast_counts_only_answers_that_are_not_stored(
    make: Callable[[], Pieces], report: Report
) -> None:
    # one random mask more in xx
    forecast_of_one_more = forecast("targeted", make(), {"runs": RUNS + 1})
    assert forecast_of_one_more.forwards == 30
    pieces_without_store = Pieces(make().model, tiny_task(), None, dev_size=12)
    asks = missing_pieces("targeted", pieces_without_store, {"runs": 2})
    answer_forwards = [ask.forwards for ask in asks if ask.kind == "answers"]
    masks_a_language = 1 + 1 + 5 + 2
    assert answer_forwards == [30 * masks_a_language] * 2


# Dev against test


def test_the_gap_equals_masks_that_are_evaluated_anew_on_both_splits(
    model: Model, make: Callable[[], Pieces]
) -> None:
    gap_report = run_experiment("gap", make(), options={"k": 2})
    kept_by_rule = {
        "harmful": masks_by_choice(model, "xx", 2)["harmful"][0],
        "K lowest": without_lowest_values(VALUES.tolist(), 2),
    }
    for rule, kept in kept_by_rule.items():
        (row,) = rows_where(gap_report.table("gap"), language="xx", rule=rule)
        differences_by_split: dict[str, MeanDifference] = {}
        for split, size in (("dev", 12), ("test", 30)):
            baseline = correct_answers(model, "xx", [True] * 12, split, size)
            answers = correct_answers(model, "xx", kept, split, size)
            gain = reference.gains(baseline, [answers])
            mean_gain = 100 * sum(gain) / size
            assert row[f"{split}, points"] == pytest.approx(mean_gain, abs=1e-9)
            gain_on_split = Gain(np.array(gain), GROUPS[:size])
            split_difference = difference(gain_on_split, 0)
            low = split_difference.low or 0
            low_in_points = row[f"{split} low, points"]
            assert low_in_points == pytest.approx(100 * low)
            differences_by_split[split] = split_difference
        dev_difference = differences_by_split["dev"]
        dev_minus_test = difference_between(dev_difference, differences_by_split["test"])
        expected_difference = row["dev, points"] - row["test, points"]
        assert row["dev minus test, points"] == pytest.approx(expected_difference)
        _, low, high, _ = dev_minus_test.cells
        assert row["low, points"] == pytest.approx(low)
        assert row["high, points"] == pytest.approx(high)
    (harmful_row,) = rows_where(gap_report.table("gap"), language="yy", rule="harmful")
    assert harmful_row["heads removed"] == 0
    assert harmful_row["dev minus test, points"] == 0
    assert harmful_row["low, points"] is None
    (mean_row,) = rows_where(gap_report.table("gap"), language="mean", rule="K lowest")
    test_gains = []
    for row in rows_where(gap_report.table("gap"), rule="K lowest"):
        if row["language"] != "mean":
            test_gains.append(row["test, points"])
    mean_test_gain = sum(test_gains) / 2
    assert mean_row["test, points"] == pytest.approx(mean_test_gain)


def test_heads_that_stay_harmful_are_counted_per_language_and_over_all(
    make: Callable[[], Pieces],
) -> None:
    report = run_experiment("gap", make())
    rows_by_language = {}
    for row in rows_where(report.table("gap-heads")):
        rows_by_language[row["language"]] = row
    p_values = [0.5] * 9 + [0.001, 0.006, 0.03]
    adjusted_p_values = np.array(reference.holm_by_steps(p_values))
    by_holm = (adjusted_p_values <= 0.05 + 1e-12).sum()
    assert rows_by_language["xx"]["heads"] == 12
    assert rows_by_language["xx"]["interval below 0"] == 3
    assert rows_by_language["xx"]["Holm"] == by_holm == 1
    assert rows_by_language["xx"]["Benjamini–Hochberg"] == 2
    assert rows_by_language["yy"]["interval below 0"] == 0
    assert rows_by_language["yy"]["Holm"] == 0
    p_values_over_all = p_values + [0.5] * 12
    adjusted_over_all = np.array(reference.holm_by_steps(p_values_over_all))
    assert rows_by_language["all"]["heads"] == 24
    assert rows_by_language["all"]["Holm"] == (adjusted_over_all <= 0.05).sum()


def test_a_method_without_p_values_says_nothing_of_all_heads_together(
    model: Model, tmp_path: Path
) -> None:
    pieces = Pieces(
        model,
        tiny_task().with_languages(["xx"]),
        Store(tmp_path),
        dev_size=12,
    )
    plant_scores(
        pieces,
        "xx",
        VALUES,
        HARMFUL_HEADS,
        method="paper",
        p_values=None,
    )
    report = run_experiment("gap", pieces, options={"method": "paper"})
    (row,) = report.table("gap-heads").rows
    assert row == ("xx", 12, 3, None, None)
    assert any("paper gives no p-values" in note for note in report.notes)


# Differences


def test_the_mean_over_languages_weighs_them_alike_and_is_resampled_as_derived_slowly() -> None:
    rng = np.random.default_rng(1)
    outcomes = [-1.0, 0.0, 1.0]
    first_values = rng.choice(outcomes, 90, p=[0.1, 0.7, 0.2])
    second_values = rng.choice(outcomes, 60, p=[0.2, 0.7, 0.1])
    first_gain = Gain(first_values, equal_groups(90, 3))
    second_gain = Gain(second_values, equal_groups(60, 2))
    mean_difference = over_languages({"a": first_gain, "b": second_gain}, 0, are_aligned=True)
    mean_of_means = (first_values.mean() + second_values.mean()) / 2
    assert mean_difference.mean == pytest.approx(mean_of_means)
    expected_interval = reference.resampled_difference(
        [list(first_values), list(second_values)],
        [list(first_gain.groups), list(second_gain.groups)],
        2000,
        seed=3,
    )
    measured_interval = (mean_difference.low, mean_difference.high)
    assert measured_interval == pytest.approx(expected_interval, abs=0.015)


@pytest.mark.parametrize("are_aligned", [True, False])
def test_the_interval_of_a_mean_over_languages_covers_it(
    are_aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differences, "DRAWS", 600)
    rng = np.random.default_rng(2)
    missed_count = 0
    for _ in range(150):
        # A group that a mask helps in one language is helped in the others too.
        shared_effects = rng.normal(0, 0.3, 40)
        gains = {}
        for name, size in (("a", 80), ("b", 40), ("c", 120)):
            group_effects = shared_effects if are_aligned else rng.normal(0, 0.3, 40)
            group_indices = np.arange(size) % 40
            noise = rng.normal(0, 0.3, size)
            effects = 0.05 + group_effects[group_indices] + noise
            values = np.clip(effects, -1, 1)
            groups = tuple(map(str, group_indices))
            gains[name] = Gain(values, groups)
        seed = int(rng.integers(1 << 30))
        mean_difference = over_languages(gains, seed, are_aligned=are_aligned)
        assert mean_difference.low is not None
        assert mean_difference.high is not None
        missed_count += not mean_difference.low <= 0.05 <= mean_difference.high
    assert missed_count <= 16  # 7.5 expected


def gains_of_far_languages(rng: np.random.Generator, runs: int = 1) -> dict[str, Gain]:
    """Gains of two languages with means 0.7 and -0.5, in groups of three and of two.

    A pool of both varies most with how often each language is drawn.
    """
    gains_by_language = {}
    for name, size, group_size, mean in (("a", 90, 3, 0.7), ("b", 60, 2, -0.5)):
        is_flipped = rng.random(size // group_size) < abs(mean)
        values = np.repeat(np.sign(mean) * is_flipped, group_size)
        gains_by_language[name] = Gain(values, equal_groups(size, group_size), runs)
    return gains_by_language


def test_languages_that_are_not_aligned_are_resampled_one_by_one_as_derived_slowly() -> None:
    gains = gains_of_far_languages(np.random.default_rng(4))
    mean_difference = over_languages(gains, 0, are_aligned=False)
    means = [gain.values.mean() for gain in gains.values()]
    assert mean_difference.mean == pytest.approx(np.mean(means))
    values = [list(gain.values) for gain in gains.values()]
    groups = [list(gain.groups) for gain in gains.values()]
    resampled_means = reference.resampled_apart(
        values,
        groups,
        2000,
        seed=3,
        made_up=(1.0, -1.0),
    )
    low, high = np.quantile(resampled_means, [0.025, 0.975])
    measured_interval = (mean_difference.low, mean_difference.high)
    assert measured_interval == pytest.approx((low, high), abs=0.015)
    share_below = np.mean(resampled_means <= 0)
    share_above = np.mean(resampled_means >= 0)
    expected_p = 2 * min(share_below, share_above)
    assert mean_difference.p == pytest.approx(expected_p, abs=0.05)
    gains_with_own_groups = {}
    for language, gain in gains.items():
        own_groups = [f"{language} {label}" for label in gain.groups]
        gains_with_own_groups[language] = Gain(gain.values, tuple(own_groups))
    pooled_difference = over_languages(gains_with_own_groups, 0, are_aligned=True)
    assert mean_difference.low is not None
    assert mean_difference.high is not None
    assert pooled_difference.low is not None
    assert pooled_difference.high is not None
    width = mean_difference.high - mean_difference.low
    pooled_width = pooled_difference.high - pooled_difference.low
    assert 1.3 * width < pooled_width
    difference_of_one_language = over_languages({"a": gains["a"]}, 0, are_aligned=False)
    assert difference_of_one_language == difference(gains["a"], 0)


def test_the_mean_over_languages_that_differ_is_missed_as_often_as_its_interval_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interval that misses none of 200, as that of the pool does, would be too wide."""
    monkeypatch.setattr(differences, "DRAWS", 600)
    rng = np.random.default_rng(5)
    missed_count = 0
    for _ in range(200):
        gains = gains_of_far_languages(rng)
        seed = int(rng.integers(1 << 30))
        mean_difference = over_languages(gains, seed, are_aligned=False)
        assert mean_difference.low is not None
        assert mean_difference.high is not None
        missed_count += not mean_difference.low <= 0.1 <= mean_difference.high
    assert 2 <= missed_count <= 20  # 10 expected


@pytest.mark.parametrize("are_aligned", [True, False])
def test_over_languages_thirds_that_cancel_out_lie_on_both_sides_of_0(are_aligned: bool) -> None:
    """Languages with equally many answers are counted in sixths, though one has 3 runs, one 6."""
    rng = np.random.default_rng(6)
    counts = rng.integers(-2, 3, size=(2, 24)).astype(float)
    counts[1] -= counts.sum() / 24
    counts[1] = np.rint(counts[1])
    groups = equal_groups(24, 3)
    gain_in_thirds = Gain(counts[0] / 3, groups, 3)
    gain_in_sixths = Gain(counts[1] / 6, groups, 6)
    gains = {"a": gain_in_thirds, "b": gain_in_sixths}
    mean_difference = over_languages(gains, 0, are_aligned=are_aligned)
    counts_in_sixths = [2 * counts[0], counts[1]]
    if are_aligned:
        expected = group_bootstrap(
            np.concatenate(counts_in_sixths)[None],
            groups * 2,
            np.random.default_rng(0),
            pseudo_values=(6.0, -6.0),
        )
    else:
        strata = [(language_counts[None], groups) for language_counts in counts_in_sixths]
        expected = stratified_bootstrap(
            strata,
            np.random.default_rng(0),
            pseudo_values=(6.0, -6.0),
        )
    assert mean_difference.low == expected.low[0] / 6
    assert mean_difference.high == expected.high[0] / 6
    assert mean_difference.p == expected.p[0]


SIZES = (("a", 18), ("b", 22))


def test_ties_are_ties_where_languages_have_unequally_many_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same resamples are exactly 0 in thirds of weights 10/9 and 10/11 as in whole numbers.

    As whole numbers the thirds weigh 110 and 90 of 297.
    """
    # Groups are picked, not binned, so that both bootstraps draw the same ones.
    monkeypatch.setattr(bootstrap, "BIN_PICKS", 10**9)
    rng = np.random.default_rng(7)
    differs_without_rounding = []
    for _ in range(5):
        counts = {}
        for language, size in SIZES:
            whole_counts = rng.integers(-1, 2, size)
            counts[language] = whole_counts.astype(float)
        gains = {}
        for language, size in SIZES:
            groups = [str(answer % 6) for answer in range(size)]
            values = counts[language] / 3
            gains[language] = Gain(values, tuple(groups), 3)
        mean_difference = over_languages(gains, 0, are_aligned=True)
        weighted_counts = [110 * counts["a"], 90 * counts["b"]]
        whole_numbers = np.concatenate(weighted_counts)
        expected = group_bootstrap(
            whole_numbers[None],
            gains["a"].groups + gains["b"].groups,
            np.random.default_rng(0),
            pseudo_values=(297.0, -297.0),
        )
        assert mean_difference.p == expected.p[0]
        expected_low = expected.low[0] / 297
        expected_high = expected.high[0] / 297
        assert mean_difference.low == pytest.approx(expected_low)
        assert mean_difference.high == pytest.approx(expected_high)
        with monkeypatch.context() as without_rounding:
            without_rounding.setattr(bootstrap, "DIGITS", 17)
            unrounded_difference = over_languages(gains, 0, are_aligned=True)
        differs_without_rounding.append(unrounded_difference.p != expected.p[0])
    assert any(differs_without_rounding)  # so the rounding is what makes them equal


def test_the_interval_of_a_difference_between_splits_covers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(differences, "DRAWS", 600)
    rng = np.random.default_rng(3)
    missed_count = 0
    for _ in range(200):
        split_differences = []
        for size, mean in ((60, 0.1), (150, 0.02)):
            values = rng.choice(
                [-1.0, 0.0, 1.0],
                size,
                p=[0.1, 0.8 - mean, 0.1 + mean],
            )
            seed = int(rng.integers(1 << 30))
            gain = Gain(values, equal_groups(size))
            split_differences.append(difference(gain, seed))
        dev_minus_test = difference_between(*split_differences)
        assert dev_minus_test.low is not None
        assert dev_minus_test.high is not None
        missed_count += not dev_minus_test.low <= 0.08 <= dev_minus_test.high
    assert missed_count <= 19  # 10 expected


def test_holm_leaves_out_what_was_not_tested() -> None:
    tested_differences = []
    for p in (0.01, None, 0.04):
        tested_differences.append(MeanDifference(0.1, 0, 0.2, p))
    adjusted_p_values = holm_of_differences(tested_differences)
    assert adjusted_p_values == pytest.approx([0.02, None, 0.04])
    untested_difference = MeanDifference(0.0, None, None, None)
    assert holm_of_differences([untested_difference]) == [None]
    marks = [tested_difference.mark for tested_difference in tested_differences]
    assert marks == ["higher", "", "higher"]
    assert MeanDifference(-0.1, -0.2, 0.0, 0.03).mark == "lower"


ROOT = Path(__file__).parents[2]


def test_reported_09_a_report_says_which_version_of_form_token_it_is_of(report: Report) -> None:
    assert report.spec["method_versions"] == {"gradient (token)": 3}
    assert earlier_scores_sentence(report.spec) == ""
    spec_without_versions = dict(report.spec)
    del spec_without_versions["method_versions"]
    sentence = earlier_scores_sentence(spec_without_versions)
    beginning = "Made with an earlier version of gradient (token): form token before version 3 "
    assert sentence.startswith(beginning)


def test_reported_09_other_reports_keep_their_spec_and_say_nothing() -> None:
    for key, options in (
        ("iterative", {}),
        ("agreement", {"method": "gradient"}),
        ("front", {"method": "gradient"}),
    ):
        resolved_options = study(key).resolve(options)
        assert study(key).renewed(resolved_options) == {}
    token = {"method": "gradient", "method_options": {"form": "token"}}
    agreement = study("agreement")
    renewed_methods = agreement.renewed(agreement.resolve(token))
    versions = [version for _, version in renewed_methods.values()]
    assert versions == [3]
    iterative_options = study("iterative").resolve({"orderings": "random,gradient-token"})
    assert list(study("iterative").renewed(iterative_options)) == ["gradient-token"]
    iterative_spec = {"experiment": "iterative", "options": iterative_options}
    assert earlier_scores_sentence(iterative_spec) != ""
    for incomplete_spec in (
        {},
        {"experiment": "targeted"},
        {"experiment": "targeted", "options": 3},
        {"experiment": ["targeted"]},
    ):
        assert earlier_scores_sentence(incomplete_spec) == ""


def test_reported_09_committed_reports_of_targeted_pruning_stay_and_say_so() -> None:
    stored_reports = Store(ROOT / "headlab" / "embedded" / "results").reports().results
    targeted_reports = []
    for stored_report in stored_reports:
        if stored_report.record.name == "targeted":
            targeted_reports.append(stored_report)
    assert targeted_reports
    for stored_report in targeted_reports:
        sentence = earlier_scores_sentence(stored_report.record.spec)
        assert "earlier version of gradient (token)" in sentence
