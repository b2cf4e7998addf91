"""Targeted pruning and the gap between dev and test, against a slow derivation from masks evaluated afresh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from support.planted_scores import plant
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import Report, Table
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.results import Store
from headlab.stats import bootstrap, group_bootstrap, stratified_bootstrap
from headlab.studies import differences
from headlab.studies.differences import (
    Difference,
    Gain,
    difference,
    difference_between,
    gain_over,
    holm_of_differences,
    over_languages,
)
from headlab.studies.run import Pieces, forecast, missing_pieces, run_experiment
from headlab.studies.table import earlier_scores_sentence, study

HARM = (2, 5, 7)
VALUES = np.array([0.3, 0.1, -0.2, 0.0, 0.05, -0.4, 0.2, -0.1, -0.15, 0.02, 0.01, 0.03])
GRADIENT = {
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
    root = tmp_path_factory.mktemp("store")
    pieces = Pieces(model, tiny_task(), Store(root), dev_size=12)
    p = np.full(12, 0.5)
    p[list(HARM)] = 0.001, 0.006, 0.03
    plant(pieces, "xx", VALUES, HARM, p_values=p)
    plant(pieces, "yy", VALUES[::-1])
    return root


@pytest.fixture
def make(model: Model, root: Path) -> Callable[[], Pieces]:
    return lambda: Pieces(model, tiny_task(), Store(root), dev_size=12)


@pytest.fixture(scope="module")
def report(model: Model, root: Path) -> Report:
    return run_experiment(
        "targeted", Pieces(model, tiny_task(), Store(root), dev_size=12), options={"runs": RUNS}
    )


def right(
    model: Model, language: str, kept: Any, split: Any = "test", size: int | None = None
) -> list[bool]:
    """Which answers are right under a mask, by an evaluator of its own."""
    evaluator = Evaluator(model, tiny_task(), language, split, size)
    return [bool(one) for one in evaluator.evaluate(Mask(model.grid, np.array(kept))).correct]


def lowest(values: Any, k: int) -> list[bool]:
    """Heads kept: all but the k lowest, found one by one; of equals the last goes."""
    kept = [True] * len(values)
    for _ in range(k):
        left = [i for i, here in enumerate(kept) if here]
        kept[min(left, key=lambda i: (values[i], -i))] = False
    return kept


def masks(model: Model, language: str, k: int) -> dict[str, list[list[bool]]]:
    def scored(method: str, seed: int = 0, **options: Any) -> list[bool]:
        scores = headlab.score(
            model, tiny_task(), language=language, method=method, size=12, seed=seed, **options
        )
        return lowest(scores.values.tolist(), k)

    own = VALUES if language == "xx" else VALUES[::-1]
    return {
        "harmful": [[i not in HARM or language == "yy" for i in range(12)]],
        "shapley": [lowest(own.tolist(), k)],
        **{name: [scored("gradient", form=form)] for name, form in GRADIENT.items()},
        "leave-one-out": [scored("leave-one-out")],
        "random": [scored("random", seed) for seed in range(RUNS)],
    }


def rows(table: Table, **where: str) -> list[dict[str, Any]]:
    named = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    places = {name.replace("_", " "): value for name, value in where.items()}
    return [row for row in named if all(row[name] == value for name, value in places.items())]


GROUPS = tuple(str(i // 2) for i in range(30))


def test_table_2_equals_masks_that_are_evaluated_afresh(model: Model, report: Report) -> None:
    whole = right(model, "xx", [True] * 12)
    all_masks = masks(model, "xx", 3)
    own = reference.gains(whole, [right(model, "xx", all_masks["shapley"][0])])
    (wide,) = rows(report.table("targeted-accuracy"), language="xx")
    assert (wide["harmful heads"], wide["K"], wide["untouched, %"]) == (
        3,
        3,
        pytest.approx(100 * sum(whole) / 30),
    )
    for choice, several in all_masks.items():
        runs = [right(model, "xx", kept) for kept in several]
        gain = reference.gains(whole, runs)
        (row,) = rows(report.table("targeted"), language="xx", removed_by=choice)
        shares = [100 * sum(run) / 30 for run in runs]
        assert row["heads removed"] == sum(not here for here in several[0]) == 3
        assert (
            row["accuracy, %"]
            == pytest.approx(sum(shares) / len(shares))
            == pytest.approx(wide[f"{choice}, %"])
        )
        assert row["difference, points"] == pytest.approx(100 * sum(gain) / 30, abs=1e-9)
        # As whole numbers, so that resamples that lose as much as they gain do so exactly.
        runs_n = float(len(runs))
        exact = np.rint(np.array([gain]) * runs_n)
        ends_of = (runs_n, -runs_n)
        low, high, p = group_bootstrap(
            exact, GROUPS, np.random.default_rng(0), pseudo_values=ends_of, draws=10_000
        )
        low = low / runs_n
        high = high / runs_n
        found = (row["low, points"], row["high, points"], row["p"])
        assert found == pytest.approx((100 * low[0], 100 * high[0], p[0]), abs=1e-9)
        ends = (min(shares), max(shares)) if choice == "random" else (None, None)
        assert (row["lowest run, %"], row["highest run, %"]) == (
            pytest.approx(ends) if ends[0] else ends
        )
        if choice != "shapley":
            (against,) = rows(report.table("targeted-against"), language="xx", removed_by=choice)
            more = 100 * sum(a - b for a, b in zip(gain, own, strict=True)) / 30
            assert against["difference, points"] == pytest.approx(more, abs=1e-9)
    assert len({tuple(row[3:]) for row in report.table("targeted").rows}) > 4  # the choices differ


def test_a_language_without_harmful_heads_says_so_and_gains_nothing(report: Report) -> None:
    for row in rows(report.table("targeted"), language="yy"):
        assert (row["heads removed"], row["difference, points"], row["low, points"], row["p"]) == (
            0,
            0,
            None,
            None,
        )
        assert row["P < 0.05"] == ""
    assert any(
        "No head has an interval below 0 in yy: nothing to remove" in note for note in report.notes
    )
    (mean,) = rows(report.table("targeted"), language="mean", removed_by="harmful")
    (alone,) = rows(report.table("targeted"), language="xx", removed_by="harmful")
    assert mean["difference, points"] == pytest.approx(alone["difference, points"] / 2)
    assert mean["low, points"] <= mean["difference, points"] <= mean["high, points"]


def test_runs_that_cancel_out_lie_on_both_sides_of_0() -> None:
    """Thirds do not add up to 0 in binary; as counts they do."""
    thirds = Gain(np.array([1 / 3, -2 / 3, 1 / 3, 0.0] * 5), tuple("abcd" * 5), 3)
    found = difference(thirds, 0)
    counts = np.array([[1.0, -2.0, 1.0, 0.0] * 5])
    rng = np.random.default_rng(0)
    low, high, p = group_bootstrap(
        counts, thirds.groups, rng, pseudo_values=(3.0, -3.0), draws=10_000
    )
    assert found == (0.0, low[0] / 3, high[0] / 3, p[0])
    halves = gain_over(thirds, Gain(np.full(20, 0.5), tuple("abcd" * 5), 2))
    assert halves.runs == 6
    assert difference(halves, 0).mean == pytest.approx(-0.5)


def test_with_k_given_every_choice_but_the_harmful_heads_has_k(
    model: Model, make: Callable[[], Pieces], report: Report
) -> None:
    found = run_experiment("targeted", make(), options={"runs": 2, "k": 2})
    for row in rows(found.table("targeted"), language="yy"):
        assert row["heads removed"] == (0 if row["removed by"] == "harmful" else 2)
    whole = right(model, "yy", [True] * 12)
    kept = masks(model, "yy", 2)["shapley"][0]
    (row,) = rows(found.table("targeted"), language="yy", removed_by="shapley")
    assert row["difference, points"] == pytest.approx(
        100 * (sum(right(model, "yy", kept)) - sum(whole)) / 30
    )
    assert any("the other rows show the 2 lowest" in note for note in found.notes)
    most = run_experiment("targeted", make(), options={"runs": 1, "k": 7})
    assert any("7 of 12 heads are removed; few models keep" in note for note in most.notes)


def test_leave_one_out_is_left_out_on_request(make: Callable[[], Pieces]) -> None:
    found = run_experiment("targeted", make(), options={"runs": 1, "k": 2, "leave_one_out": False})
    chosen = set(found.table("targeted").column("removed by"))
    assert chosen == {
        "harmful",
        "random",
        "shapley",
        *(f"gradient ({form})" for form in ("example", "token", "batch")),
    }


def test_p_is_adjusted_over_the_languages_for_each_choice(make: Callable[[], Pieces]) -> None:
    found = run_experiment("targeted", make(), options={"runs": 2, "k": 4})
    for choice in ("shapley", "random", "leave-one-out"):
        both = [
            *rows(found.table("targeted"), removed_by=choice, language="xx"),
            *rows(found.table("targeted"), removed_by=choice, language="yy"),
        ]
        want = reference.holm_by_steps([row["p"] for row in both])
        assert [row["p (Holm)"] for row in both] == pytest.approx(want)


def test_other_seeds_draw_other_heads(
    model: Model, root: Path, report: Report, make: Callable[[], Pieces]
) -> None:
    one = run_experiment("targeted", make(), options={"runs": 1, "k": 5})
    other_pieces = Pieces(model, tiny_task(), Store(root), seed=1, dev_size=12)
    for language in ("xx", "yy"):
        plant(other_pieces, language, VALUES, HARM)
    other = run_experiment("targeted", other_pieces, options={"runs": 1, "k": 5})

    def drawn(found: Report) -> list[float]:
        return [row["accuracy, %"] for row in rows(found.table("targeted"), removed_by="random")]

    assert drawn(one) != drawn(other)


def test_the_forecast_knows_the_masks_of_scores_that_are_there(
    make: Callable[[], Pieces], report: Report
) -> None:
    # one random mask more in xx
    assert forecast("targeted", make(), {"runs": RUNS + 1}).forwards == 30
    cold = Pieces(make().model, tiny_task(), None, dev_size=12)
    answers = [
        a.forwards for a in missing_pieces("targeted", cold, {"runs": 2}) if a.kind == "answers"
    ]
    assert answers == [30 * (1 + 1 + 5 + 2)] * 2


# Dev against test


def test_the_gap_equals_masks_that_are_evaluated_afresh_on_both_splits(
    model: Model, make: Callable[[], Pieces]
) -> None:
    found = run_experiment("gap", make(), options={"k": 2})
    for rule, kept in (
        ("harmful", masks(model, "xx", 2)["harmful"][0]),
        ("K lowest", lowest(VALUES.tolist(), 2)),
    ):
        (row,) = rows(found.table("gap"), language="xx", rule=rule)
        sides: dict[str, Difference] = {}
        for split, size in (("dev", 12), ("test", 30)):
            whole = right(model, "xx", [True] * 12, split, size)
            gain = reference.gains(whole, [right(model, "xx", kept, split, size)])
            assert row[f"{split}, points"] == pytest.approx(100 * sum(gain) / size, abs=1e-9)
            sides[split] = difference(Gain(np.array(gain), GROUPS[:size]), 0)
            assert row[f"{split} low, points"] == pytest.approx(100 * (sides[split].low or 0))
        curse = difference_between(sides["dev"], sides["test"])
        assert row["dev minus test, points"] == pytest.approx(
            row["dev, points"] - row["test, points"]
        )
        assert (row["low, points"], row["high, points"]) == pytest.approx(curse.cells[1:3])
    (empty,) = rows(found.table("gap"), language="yy", rule="harmful")
    assert (empty["heads removed"], empty["dev minus test, points"], empty["low, points"]) == (
        0,
        0,
        None,
    )
    (mean,) = rows(found.table("gap"), language="mean", rule="K lowest")
    both = [
        row["test, points"]
        for row in rows(found.table("gap"), rule="K lowest")
        if row["language"] != "mean"
    ]
    assert mean["test, points"] == pytest.approx(sum(both) / 2)


def test_heads_that_stay_harmful_are_counted_per_language_and_over_all(
    make: Callable[[], Pieces],
) -> None:
    found = run_experiment("gap", make())
    named = {row["language"]: row for row in rows(found.table("gap-heads"))}
    p = [0.5] * 9 + [0.001, 0.006, 0.03]
    by_holm = sum(x <= 0.05 + 1e-12 for x in reference.holm_by_steps(p))
    assert (named["xx"]["heads"], named["xx"]["interval below 0"]) == (12, 3)
    assert (named["xx"]["Holm"], named["xx"]["Benjamini–Hochberg"]) == (by_holm, 2) == (1, 2)
    assert (named["yy"]["interval below 0"], named["yy"]["Holm"]) == (0, 0)
    every = sum(x <= 0.05 for x in reference.holm_by_steps(p + [0.5] * 12))
    assert (named["all"]["heads"], named["all"]["Holm"]) == (24, every)


def test_a_method_without_p_values_says_nothing_of_all_heads_together(
    model: Model, tmp_path: Path
) -> None:
    pieces = Pieces(model, tiny_task().restricted(["xx"]), Store(tmp_path), dev_size=12)
    plant(pieces, "xx", VALUES, HARM, method="paper", p_values=None)
    found = run_experiment("gap", pieces, options={"method": "paper"})
    assert found.table("gap-heads").rows == (("xx", 12, 3, None, None),)
    assert any("paper gives no p-values" in note for note in found.notes)


# Differences


def test_the_mean_over_languages_weighs_them_alike_and_is_resampled_as_a_slow_derivation_has_it() -> (
    None
):
    rng = np.random.default_rng(1)
    names = [tuple(f"g{i // 3}" for i in range(90)), tuple(f"g{i // 2}" for i in range(60))]
    values = [
        rng.choice([-1.0, 0.0, 1.0], 90, p=[0.1, 0.7, 0.2]),
        rng.choice([-1.0, 0.0, 1.0], 60, p=[0.2, 0.7, 0.1]),
    ]
    found = over_languages(
        {"a": Gain(values[0], names[0]), "b": Gain(values[1], names[1])}, 0, are_aligned=True
    )
    assert found.mean == pytest.approx((values[0].mean() + values[1].mean()) / 2)
    want = reference.resampled_difference(
        [list(v) for v in values], [list(n) for n in names], 2000, seed=3
    )
    assert (found.low, found.high) == pytest.approx(want, abs=0.015)


@pytest.mark.parametrize("aligned", [True, False])
def test_the_interval_of_a_mean_over_languages_covers_it(
    aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differences, "DRAWS", 600)
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(150):
        # a group that a mask helps in one language, it helps in the others
        shared = rng.normal(0, 0.3, 40)
        gains = {}
        for name, size in (("a", 80), ("b", 40), ("c", 120)):
            own = shared if aligned else rng.normal(0, 0.3, 40)
            member = np.arange(size) % 40
            gains[name] = Gain(
                np.clip(0.05 + own[member] + rng.normal(0, 0.3, size), -1, 1),
                tuple(map(str, member)),
            )
        found = over_languages(gains, int(rng.integers(1 << 30)), are_aligned=aligned)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 0.05 <= found.high
    assert missed <= 16  # 7.5 expected


def far_apart(rng: np.random.Generator, runs: int = 1) -> dict[str, Gain]:
    """Two languages of means 0.7 and -0.5, groups of three and of two: a pool of both varies most by which is drawn."""
    out = {}
    for name, size, wide, mean in (("a", 90, 3, 0.7), ("b", 60, 2, -0.5)):
        of_group = rng.random(size // wide) < abs(mean)
        out[name] = Gain(
            np.repeat(np.sign(mean) * of_group, wide),
            tuple(f"g{i // wide}" for i in range(size)),
            runs,
        )
    return out


def test_languages_that_are_not_aligned_are_resampled_each_for_itself_as_a_slow_derivation_has_it() -> (
    None
):
    gains = far_apart(np.random.default_rng(4))
    found = over_languages(gains, 0, are_aligned=False)
    assert found.mean == pytest.approx(np.mean([gain.values.mean() for gain in gains.values()]))
    lists = [[list(gain[place]) for gain in gains.values()] for place in (0, 1)]
    slow = reference.resampled_apart(*lists, 2000, seed=3, made_up=(1.0, -1.0))
    low, high = np.quantile(slow, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.015)
    assert found.p == pytest.approx(2 * min(np.mean(slow <= 0), np.mean(slow >= 0)), abs=0.05)
    named = {
        name: Gain(g.values, tuple(f"{name} {label}" for label in g.groups))
        for name, g in gains.items()
    }
    pool = over_languages(named, 0, are_aligned=True)
    assert found.low is not None
    assert found.high is not None
    assert pool.low is not None
    assert pool.high is not None
    assert 1.3 * (found.high - found.low) < pool.high - pool.low
    assert over_languages({"a": gains["a"]}, 0, are_aligned=False) == difference(gains["a"], 0)


def test_the_mean_over_languages_that_differ_is_missed_as_often_as_its_interval_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Missed by none of 200, as the pool's interval is, would be too wide."""
    monkeypatch.setattr(differences, "DRAWS", 600)
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(200):
        found = over_languages(far_apart(rng), int(rng.integers(1 << 30)), are_aligned=False)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 0.1 <= found.high
    assert 2 <= missed <= 20  # 10 expected


@pytest.mark.parametrize("aligned", [True, False])
def test_over_languages_thirds_that_cancel_out_lie_on_both_sides_of_0(aligned: bool) -> None:
    """Equally many answers: all is counted in thirds, and runs of one language may differ from the other's."""
    rng = np.random.default_rng(6)
    counts = rng.integers(-2, 3, size=(2, 24)).astype(float)
    counts[1] -= counts.sum() / 24
    counts[1] = np.rint(counts[1])
    groups = tuple(str(i // 3) for i in range(24))
    found = over_languages(
        {"a": Gain(counts[0] / 3, groups, 3), "b": Gain(counts[1] / 6, groups, 6)},
        0,
        are_aligned=aligned,
    )
    whole = [2 * counts[0], counts[1]]  # sixths
    if aligned:
        want = group_bootstrap(
            np.concatenate(whole)[None],
            groups * 2,
            np.random.default_rng(0),
            pseudo_values=(6.0, -6.0),
        )
    else:
        strata = [(row[None], groups) for row in whole]
        want = stratified_bootstrap(strata, np.random.default_rng(0), pseudo_values=(6.0, -6.0))
    assert found[1:] == (want.low[0] / 6, want.high[0] / 6, want.p[0])


def test_ties_are_ties_where_languages_have_unequally_many_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirds that weigh 10/9 and 10/11: as whole numbers, 110 and 90 of 297, the same resamples are exactly 0."""
    monkeypatch.setattr(bootstrap, "BIN_PICKS", 10**9)  # picked, so that both draw the same groups
    rng = np.random.default_rng(7)
    by_last_bit = []
    for _ in range(5):
        counts = [rng.integers(-1, 2, size).astype(float) for size in (18, 22)]
        groups = [tuple(str(i % 6) for i in range(len(row))) for row in counts]
        gains = [Gain(row / 3, of, 3) for row, of in zip(counts, groups, strict=True)]
        found = over_languages(dict(zip("ab", gains, strict=True)), 0, are_aligned=True)
        whole = np.concatenate([110 * counts[0], 90 * counts[1]])[None]
        want = group_bootstrap(
            whole, groups[0] + groups[1], np.random.default_rng(0), pseudo_values=(297.0, -297.0)
        )
        assert found.p == want.p[0]
        assert (found.low, found.high) == pytest.approx((want.low[0] / 297, want.high[0] / 297))
        with monkeypatch.context() as exact:
            exact.setattr(bootstrap, "DIGITS", 17)
            by_last_bit.append(
                over_languages(dict(zip("ab", gains, strict=True)), 0, are_aligned=True).p
                != want.p[0]
            )
    assert any(by_last_bit)  # the rounding is what makes them equal


def test_the_interval_of_a_difference_between_splits_covers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(differences, "DRAWS", 600)
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(200):
        sides = []
        for size, mean in ((60, 0.1), (150, 0.02)):
            values = rng.choice([-1.0, 0.0, 1.0], size, p=[0.1, 0.8 - mean, 0.1 + mean])
            sides.append(
                difference(Gain(values, tuple(map(str, range(size)))), int(rng.integers(1 << 30)))
            )
        found = difference_between(*sides)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 0.08 <= found.high
    assert missed <= 19  # 10 expected


def test_holm_leaves_out_what_was_not_tested() -> None:
    found = [Difference(0.1, 0, 0.2, p) for p in (0.01, None, 0.04)]
    assert holm_of_differences(found) == pytest.approx([0.02, None, 0.04])
    assert holm_of_differences([Difference(0.0, None, None, None)]) == [None]
    assert [d.mark for d in found] == ["higher", "", "higher"]
    assert Difference(-0.1, -0.2, 0.0, 0.03).mark == "lower"


ROOT = Path(__file__).parents[2]


def test_reported_09_a_report_says_which_version_of_form_token_it_is_of(report: Report) -> None:
    assert report.spec["method_versions"] == {"gradient (token)": 3}
    assert earlier_scores_sentence(report.spec) == ""
    before = {name: value for name, value in report.spec.items() if name != "method_versions"}
    sentence = earlier_scores_sentence(before)
    assert sentence.startswith(
        "Made with an earlier version of gradient (token): form token before version 3 "
    )


def test_reported_09_other_reports_keep_their_spec_and_say_nothing() -> None:
    for key, options in (
        ("iterative", {}),
        ("agreement", {"method": "gradient"}),
        ("front", {"method": "gradient"}),
    ):
        assert study(key).renewed(study(key).resolve(options)) == {}
    token = {"method": "gradient", "method_options": {"form": "token"}}
    assert [
        version
        for _, version in study("agreement").renewed(study("agreement").resolve(token)).values()
    ] == [3]
    ordered = study("iterative").resolve({"orderings": "random,gradient-token"})
    assert list(study("iterative").renewed(ordered)) == ["gradient-token"]
    assert earlier_scores_sentence({"experiment": "iterative", "options": ordered}) != ""
    for odd in (
        {},
        {"experiment": "targeted"},
        {"experiment": "targeted", "options": 3},
        {"experiment": ["targeted"]},
    ):
        assert earlier_scores_sentence(odd) == ""


def test_reported_09_committed_reports_of_targeted_pruning_stay_and_say_so() -> None:
    results = [r for r in Store(ROOT / "cache").reports().results if r.record.name == "targeted"]
    assert results
    for result in results:
        assert "earlier version of gradient (token)" in earlier_scores_sentence(result.record.spec)
