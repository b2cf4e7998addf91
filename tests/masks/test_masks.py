"""Mask rules, and the file format: round trip, refusals, fuzz."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.expected_errors import raises

from headlab.cli.mask import choice_words, model_words
from headlab.core import Head, HeadGrid, HeadlabError, Stack
from headlab.masks import (
    Mask,
    accuracy_notes,
    accuracy_table,
    combine_masks,
    convert_out,
    full_mask,
    heads_kept_by_rule,
    load_mask,
    mask_from_json,
    mask_from_text,
    noted,
    seen,
)
from headlab.results import HeadScores

ENCODER = Stack("encoder", (3, 2))
CROSS = Stack("cross", (2,))
GRID = HeadGrid((ENCODER, CROSS))
VALUES = np.array([0.3, -0.1, 0.0, 0.2, -0.1, 0.5, 0.0])
HIGH = np.array([0.4, -0.05, 0.1, 0.3, 0.02, 0.6, 0.1])
MODEL = {"name": "m", "revision": "r", "fingerprint": "f" * 64}


def removed_numbers(is_kept: np.ndarray) -> list[int]:
    return np.flatnonzero(~is_kept).tolist()


def test_rules() -> None:
    harmful = heads_kept_by_rule(GRID, VALUES, HIGH, "harmful")
    assert removed_numbers(harmful) == [1]
    below_zero = heads_kept_by_rule(GRID, VALUES, HIGH, "threshold", threshold=0.0)
    assert removed_numbers(below_zero) == [1, 4]
    # Of tied heads the lower (layer, head) is kept.
    bottom = heads_kept_by_rule(GRID, VALUES, None, "bottom", k=1)
    assert removed_numbers(bottom) == [4]
    bottom_three = heads_kept_by_rule(GRID, VALUES, None, "bottom", k=3)
    assert removed_numbers(bottom_three) == [1, 4, 6]


def test_bottom_removes_exactly_k_and_nests(rng: np.random.Generator) -> None:
    values = rng.integers(0, 3, 7).astype(float)  # many ties
    with pytest.warns(UserWarning, match="removes"):
        masks = [heads_kept_by_rule(GRID, values, None, "bottom", k=k) for k in range(8)]
    for k, mask in enumerate(masks):
        assert (~mask).sum() == k
    for earlier, later in pairwise(masks):
        assert (later <= earlier).all()


@pytest.mark.parametrize(
    ("rule", "options", "refusal"),
    [
        ("bottom", {"k": 8}, ("rule.k_out_of_range", 7)),
        ("bottom", {}, ("rule.k_out_of_range", "None")),
        ("bottom", {"k": 1, "threshold": 0.1}, ("rule.option_unused", "threshold")),
        ("threshold", {"threshold": float("nan")}, ("rule.threshold_not_finite",)),
        ("harmful", {"k": 1}, ("rule.option_unused", "k")),
        ("best", {}, ("rule.unknown",)),
    ],
)
def test_unfitting_options_are_refused(
    rule: str, options: dict[str, float], refusal: tuple[object, ...]
) -> None:
    with raises(*refusal):
        heads_kept_by_rule(GRID, VALUES, HIGH, rule, **options)  # type: ignore[arg-type]


def test_a_correction_that_is_unknown_or_cannot_be_made_is_refused() -> None:
    scores_without_p_values = HeadScores(
        GRID, "de", "shapley", VALUES, "e", "accuracy", 1, 1.0, low=HIGH - 1, high=HIGH
    )
    with raises("rule.correction_unknown", "bonferroni", "raw, holm, bh"):
        scores_without_p_values.mask(correction="bonferroni")
    with raises("rule.option_unused", "bottom"):
        scores_without_p_values.mask("bottom", k=1, correction="holm")
    with raises("rule.needs_p_values", "holm"):
        scores_without_p_values.mask(correction="holm")
    by_default = scores_without_p_values.mask().kept
    by_raw_intervals = scores_without_p_values.mask(correction="raw").kept
    assert by_default.tolist() == by_raw_intervals.tolist()


def test_corrected_harmful_heads_are_those_whose_p_survives(rng: np.random.Generator) -> None:
    """Holm's step-down procedure and Benjamini–Hochberg by its definition give the same heads."""
    for _ in range(50):
        p_values = rng.random(GRID.size) ** 3
        high = rng.normal(size=GRID.size)
        statistics = {"low": high - 2, "high": high, "p_values": p_values}
        scores = HeadScores(GRID, "de", "shapley", high - 1, "e", "accuracy", 1, 1.0, **statistics)
        # Only a value below 0 claims harm; its upper end is then below 1.
        p_of_harm = np.sort(np.where(high < 1, p_values, 1.0))
        ranks = np.arange(1, GRID.size + 1)
        is_within = p_of_harm <= 0.05 * ranks / GRID.size
        p_limit = -1.0
        if is_within.any():
            last_within = np.flatnonzero(is_within)[-1]
            p_limit = p_of_harm[last_within]
        holm_p_values = np.array(reference.holm_by_steps(p_values.tolist()))
        is_significant = {
            "holm": holm_p_values <= 0.05,
            "bh": p_values <= p_limit,
        }
        for correction, is_significant_head in is_significant.items():
            is_removed = ~scores.mask(correction=correction).kept
            expected_removed = is_significant_head & (high < 0)
            assert is_removed.tolist() == expected_removed.tolist()


def test_few_of_the_heads_removed_with_benjamini_hochberg_are_false_though_many_heads_help(
    rng: np.random.Generator,
) -> None:
    """Of 144 heads 60 certainly help and 10 certainly harm; the others have uniform p-values."""
    grid = HeadGrid((Stack("encoder", (12,) * 12),))
    false_shares = []
    for _ in range(400):
        p_values = rng.random(144)
        values = rng.choice([-1.0, 1.0], 144)
        p_values[:70] = 1e-6
        values[:60] = 1.0
        values[60:70] = -1.0
        is_claimed_harm = (p_values <= 0.05) & (values < 0)
        high = np.where(is_claimed_harm, -0.1, 2.0)
        statistics = {"low": values - 3, "high": high, "p_values": p_values}
        scores = HeadScores(grid, "de", "shapley", values, "e", "accuracy", 1, 1.0, **statistics)
        is_removed = ~scores.mask(correction="bh").kept
        assert is_removed[60:70].all()
        false_count = is_removed[70:].sum()
        false_shares.append(false_count / is_removed.sum())
    assert np.mean(false_shares) <= 0.05


def test_harmful_needs_intervals() -> None:
    with raises("rule.needs_intervals"):
        heads_kept_by_rule(GRID, VALUES, None, "harmful")


def test_round_trip(tmp_path: Path) -> None:
    is_kept = np.array([1, 0, 1, 1, 0, 1, 0], bool)
    chosen = {"rule": "bottom", "k": 3, "languages": ["zh-CN"]}
    mask = Mask(GRID, is_kept, MODEL, chosen)
    mask.save(tmp_path / "m.json")
    mask_from_file = load_mask(tmp_path / "m.json")
    assert (mask_from_file.kept == is_kept).all()
    assert mask_from_file.grid == GRID
    assert mask_from_file.model == MODEL
    assert mask_from_file.chosen == mask.chosen
    assert mask_from_file.removed == (
        Head("encoder", 0, 1),
        Head("encoder", 1, 1),
        Head("cross", 0, 1),
    )
    assert mask_from_file.digest == mask.digest != full_mask(GRID).digest


def test_the_heads_of_a_layer_are_a_line_of_the_file(tmp_path: Path) -> None:
    words = "[\n 1,\n 2\n] [ 3, 4 ]"
    mask = Mask(GRID, np.array([1, 0, 1, 1, 0, 1, 0], bool), MODEL, {"rule": words})
    mask.save(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text(encoding="utf-8")
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    assert lines.index("[1, 0, 1]") + 1 == lines.index("[1, 0]")
    assert '"encoder": [3, 2]' in lines
    assert load_mask(tmp_path / "m.json").chosen["rule"] == words
    assert json.loads(text) == mask.to_json()
    assert convert_out(mask, "headlab").decode() == text


def test_other_models_and_shapes_are_refused() -> None:
    mask = Mask(GRID, np.ones(7, bool), MODEL)
    mask.check(GRID, "f" * 64)
    with raises("mask.other_model"):
        mask.check(GRID, "0" * 64)
    with raises("mask.other_grid", "12×12"):
        other_grid = HeadGrid((Stack("encoder", (12,) * 12),))
        mask.check(other_grid, "f" * 64)


def mask_json_with(**changes: object) -> dict[str, object]:
    mask = Mask(GRID, np.ones(7, bool), MODEL)
    return mask.to_json() | changes


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        (mask_json_with(format="x"), ("mask.not_a_mask",)),
        (mask_json_with(version=99), ("mask.version_newer", 99)),
        (mask_json_with(grid={"encoder": [3, -1]}), ("mask.grid_malformed",)),
        (mask_json_with(grid={}), ("mask.grid_malformed",)),
        (
            mask_json_with(kept={"encoder": [[1, 1, 1], [1, 1]]}),
            ("grid.stacks_mismatch", "['encoder']"),
        ),
        (
            mask_json_with(kept={"encoder": [[1, 1], [1, 1]], "cross": [[1, 1]]}),
            ("grid.layers_mismatch", "encoder"),
        ),
        (
            mask_json_with(kept={"encoder": [[1, 1, 2], [1, 1]], "cross": [[1, 1]]}),
            ("mask.kept_not_binary",),
        ),
        (
            mask_json_with(kept={"encoder": [[1, 1, "x"], [1, 1]], "cross": [[1, 1]]}),
            ("mask.kept_not_binary",),
        ),
        (
            mask_json_with(kept={"encoder": [[1, 1, [0]], [1, 1]], "cross": [[1, 1]]}),
            ("mask.kept_not_binary",),
        ),
        (mask_json_with(model="m"), ("mask.field_invalid", "model", "an object")),
        (
            mask_json_with(model={"name": "m", "fingerprint": 3}),
            ("mask.field_invalid", "model.fingerprint"),
        ),
        (mask_json_with(model={"name": "m"}), ("mask.field_missing", "model.fingerprint")),
        ([1], ("mask.not_a_mask",)),
    ],
)
def test_broken_masks_say_what_is_wrong(value: object, refusal: tuple[object, ...]) -> None:
    with raises(*refusal):
        mask_from_json(value)


def test_missing_torn_and_foreign_files(tmp_path: Path) -> None:
    with raises("file.unreadable"):
        load_mask(tmp_path / "none.json")
    torn_text = json.dumps(mask_json_with())[:40]
    (tmp_path / "torn.json").write_text(torn_text)
    with raises("json.invalid"):
        load_mask(tmp_path / "torn.json")
    with raises("json.invalid"):
        mask_from_text(b"\xff\xfe")
    with raises("json.invalid"):
        mask_from_text("[" * 100_000)


JSON_NUMBERS = st.integers(-3, 5) | st.floats(allow_nan=False)
JSON_LEAVES = st.none() | st.booleans() | JSON_NUMBERS | st.text(max_size=4)


def json_containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(values, max_size=4)
    return lists | st.dictionaries(st.text(max_size=3), values, max_size=3)


JSON_VALUES = st.recursive(JSON_LEAVES, json_containers, max_leaves=12)


SCHEMA_FILE = files("headlab") / "schemas" / "mask-2.schema.json"
SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
FIGURE = {
    "accuracy": 0.61,
    "n": 512,
    "baseline": 0.6,
    "difference": 0.01,
    "low": -0.01,
    "high": 0.03,
    "p": 0.4,
}


def mask_with_every_field() -> Mask:
    """A mask that says all that the format can say."""
    choice = {"rule": "bottom", "k": 3, "method": "shapley", "languages": ["th"]}
    choice = noted(choice, "dev", "intents", {"th": FIGURE})
    test_figures = {"th": FIGURE, "de": FIGURE}
    choice = noted(choice, "test", "intents", test_figures, size=1000, ablation="zero")
    architecture = {"class": "BertForSequenceClassification", "model_type": "bert"}
    model = {**MODEL, "architecture": architecture}
    is_kept = np.array([1, 0, 1, 1, 0, 1, 0], bool)
    return Mask(GRID, is_kept, model, choice)


def fits_schema(value: dict[str, object]) -> bool:
    """Whether the schema accepts the JSON of a mask, and what the schema cannot say holds too.

    That is: the numbers of layers and heads, the count of removed heads, text that can be written,
    a date that exists and figures that do not contradict each other.
    """
    problems = list(VALIDATOR.iter_errors(value))
    if problems:
        return False
    rows_by_stack: Any = value["kept"]
    head_counts = {}
    removed_count = 0
    for name, rows in rows_by_stack.items():
        head_counts[name] = [len(row) for row in rows]
        for row in rows:
            removed_count += sum(not is_kept for is_kept in row)
    free_parts = [value.get(name) for name in ("model", "chosen", "versions")]
    figures: list[dict[str, float]] = []
    for split_record in value.get("chosen", {}).get("evaluated", {}).values():
        figures += split_record["languages"].values()
    try:
        json.dumps(free_parts, ensure_ascii=False, allow_nan=False).encode()
        date.fromisoformat(value.get("created", "2026-11-21")[:10])
    except ValueError:
        return False
    if head_counts != value["grid"]:
        return False
    if value.get("removed", removed_count) != removed_count:
        return False
    return all(is_consistent(figure) for figure in figures)


def is_consistent(figure: dict[str, float]) -> bool:
    """Whether low ends are below high ends, and a difference is that of its accuracies."""
    for prefix in ("", "accuracy_"):
        low = figure.get(f"{prefix}low", -math.inf)
        high = figure.get(f"{prefix}high", math.inf)
        if not low <= high:
            return False
    if "baseline" not in figure or "difference" not in figure:
        return True
    difference = figure["accuracy"] - figure["baseline"]
    return abs(figure["difference"] - difference) < 0.0021


def use(mask: Mask) -> None:
    """Show, combine, write and convert a mask that was read."""
    table = accuracy_table({"m": mask}).markdown()
    table_rows = table.splitlines()[2:]
    for line in (model_words(mask), choice_words(mask.chosen), *table_rows):
        assert line.encode()
        assert line.isprintable()
    combined_with_itself = combine_masks([mask, mask], "and")
    combined_with_all_heads = combine_masks([mask, full_mask(mask.grid)], "or")
    for mask_to_write in (mask, combined_with_itself, combined_with_all_heads):
        file_text = convert_out(mask_to_write, "headlab")
        assert mask_from_text(file_text).to_json()["chosen"] == mask_to_write.chosen
    convert_out(mask, "pairs")


def is_readable(value: object) -> bool:
    try:
        mask_from_json(value)
    except HeadlabError:
        return False
    return True


def test_the_schema_is_valid_and_accepts_masks_as_they_are_written() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    grid_with_empty_layer = HeadGrid((Stack("decoder", (2, 0, 1)),))
    for mask in (
        mask_with_every_field(),
        full_mask(GRID),
        Mask(GRID, np.zeros(7, bool), MODEL),
        full_mask(grid_with_empty_layer),
    ):
        assert list(VALIDATOR.iter_errors(mask.to_json())) == []
        assert (mask_from_json(mask.to_json()).kept == mask.kept).all()


def test_everything_a_mask_says_comes_back_the_same(tmp_path: Path) -> None:
    mask_with_every_field().save(tmp_path / "m.json")
    written = json.loads((tmp_path / "m.json").read_text())
    assert set(written["versions"]) == {"headlab", "torch", "transformers"}
    older_mask = written | {
        "created": "2020-02-03T04:05:06.789+02:00",
        "versions": {"headlab": "0.0.9"},
    }
    (tmp_path / "m.json").write_text(json.dumps(older_mask))
    assert load_mask(tmp_path / "m.json").to_json() == older_mask


def test_version_1_is_read_and_written_as_version_2() -> None:
    evaluated = {"task": "intents", "split": "dev", "size": 512, "languages": {"th": FIGURE}}
    version_1 = {"format": "headlab-mask", "version": 1, "model": MODEL, "grid": GRID.to_json()}
    version_1 |= {
        "kept": full_mask(GRID).rows(),
        "removed": 0,
        "created": "2026-11-21T09:30:00+00:00",
    }
    chosen = {
        "rule": "by hand",
        "languages": "th",
        "evaluated": evaluated,
        "started_from": {"rule": "harmful"},
    }
    mask = mask_from_json(version_1 | {"chosen": chosen})
    dev_record = {"task": "intents", "size": 512, "languages": {"th": FIGURE}}
    assert mask.chosen["evaluated"] == {"dev": dev_record}
    assert mask.chosen["as_written"] == {"languages": "th"}
    assert mask.chosen["rule"] == "by hand"
    assert mask.chosen["started_from"] == {"rule": "harmful"}
    version_2 = mask.to_json()
    assert fits_schema(version_2)
    assert version_2["version"] == 2
    assert version_2["created"] == version_1["created"]
    assert version_2["versions"] == {}
    assert mask_from_json(version_2).to_json() == version_2


def test_a_newer_version_says_to_update() -> None:
    with raises("mask.version_newer", "this headlab reads versions 1 to 3"):
        mask_from_json(mask_json_with(version=4))
    for version in (0, "2", True, None, [2]):
        with raises("mask.version_unknown", "reads versions 1 to 3"):
            mask_from_json(mask_json_with(version=version))


def test_a_mask_without_a_model_is_checked_by_its_grid_alone() -> None:
    mask = mask_from_json(mask_json_with(model={"name": None, "fingerprint": None}))
    mask.check(GRID, "0" * 64)
    with raises("mask.other_grid"):
        other_grid = HeadGrid((Stack("encoder", (3, 3)),))
        mask.check(other_grid, "0" * 64)


def test_what_the_format_does_not_allow_is_not_written() -> None:
    for chosen, code, field in (
        ({"languages": "th"}, "mask.field_invalid", "chosen.languages"),
        ({"evaluated": {"dev": {}}}, "mask.field_missing", "chosen.evaluated.dev"),
        ({"k": -1}, "mask.field_invalid", "chosen.k"),
        ({"evaluated": {"monday": {}}}, "mask.split_unknown", "chosen.evaluated"),
    ):
        with raises(code, field):
            mask = Mask(GRID, np.ones(7, bool), MODEL, chosen)
            mask.to_json()


@pytest.mark.parametrize(
    ("wrong_figures", "contradiction"),
    [
        ({"low": 0.2, "high": 0.1}, "low 0.2 is above high 0.1"),
        (
            {"accuracy_low": 0.7, "accuracy_high": 0.6},
            "accuracy_low 0.7 is above accuracy_high 0.6",
        ),
        ({"difference": -0.01}, "difference is -0.01, but accuracy - baseline is 0.01"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(
    wrong_figures: dict[str, float], contradiction: str
) -> None:
    with raises("mask.figure_contradictory", contradiction):
        mask_from_json(mask_json_with(chosen=choice_with(FIGURE | wrong_figures)))
    rounded_figures = FIGURE | {"difference": 0.011}
    mask_from_json(mask_json_with(chosen=choice_with(rounded_figures)))


def choice_with(figures: dict[str, float]) -> dict[str, object]:
    """A record of a choice of heads whose mask has these figures for Thai on dev."""
    dev_record = {"task": "intents", "languages": {"th": figures}}
    return {"evaluated": {"dev": dev_record}}


@pytest.mark.parametrize("wrong_figures", [{"p": 7}, {"p": -0.1}])
def test_a_p_value_is_a_share(wrong_figures: dict[str, float]) -> None:
    with raises("mask.field_invalid", "p"):
        mask_from_json(mask_json_with(chosen=choice_with(FIGURE | wrong_figures)))


@pytest.mark.parametrize(
    "created", ["2026-99-21T09:30:00Z", "2026-02-30T09:30:00Z", "2026-11-21T25:30:00+00:00"]
)
def test_a_time_that_does_not_exist_is_refused(created: str) -> None:
    with raises("mask.field_invalid", "created"):
        mask_from_json(mask_json_with(created=created))


def test_figures_are_recorded_by_split_and_read_back() -> None:
    mask = mask_with_every_field()
    records = seen(mask)
    splits_and_languages = [(record.split, record.language) for record in records]
    assert splits_and_languages == [("dev", "th"), ("test", "th"), ("test", "de")]
    accuracies_of_records = [record.figure["accuracy"] for record in records]
    assert accuracies_of_records == [0.61, 0.61, 0.61]
    assert seen(full_mask(GRID)) == []
    assert noted({"rule": "x"}, "dev", "intents", {}) == {"rule": "x"}
    table_cells = accuracy_table({"mine": mask}).shown_cells()
    accuracies = ["61.0", "60.0", "+1.0", "-1.0 … +3.0"]
    assert table_cells[0] == ["mine", "dev", "intents", "th", "512", *accuracies]


def test_notes_on_figures_are_shown_beside_them_and_stay_in_the_file() -> None:
    figure = {"accuracy": 0.5, "n": 10, "note": "Label map: a = LABEL_1, b = LABEL_0"}
    choice = noted({}, "test", "intents", {"de": figure, "th": figure})
    mask = replace(full_mask(GRID), chosen=choice)
    assert fits_schema(mask.to_json())
    mask_from_file = mask_from_json(mask.to_json())
    assert accuracy_notes({"m.json": mask_from_file}) == [figure["note"]]
    of_two = {"A": full_mask(GRID), "B": mask_from_file}
    assert accuracy_notes(of_two) == [f"B: {figure['note']}"]
    assert accuracy_notes({**of_two, "A": mask_from_file}) == [f"A, B: {figure['note']}"]
    choice = noted({}, "test", "intents", {"de": figure | {"note": 1}})
    with raises("mask.field_invalid", "note"):
        mask_from_json(mask_json_with(chosen=choice))


@pytest.mark.parametrize(
    ("chosen", "measured", "note"),
    [
        (None, None, ""),
        (None, "zero", ""),
        ("zero", None, ""),
        ("zero", "zero", ""),
        (
            None,
            "mean",
            "test: measured with mean ablation (what is removed gives its mean output), and it is "
            "not recorded under which ablation the heads were chosen.",
        ),
        (
            "zero",
            "mean",
            "test: measured with mean ablation (what is removed gives its mean output), and the "
            "heads were chosen under zero ablation.",
        ),
        (
            "mean",
            "mean",
            "test: measured with mean ablation (what is removed gives its mean output), as the "
            "heads were chosen.",
        ),
        (
            "mixed",
            "zero",
            "test: measured with zero ablation (what is removed gives zeros), and the heads were "
            "chosen under several ablations.",
        ),
        (
            "mean",
            None,
            "test: the file does not say what the removed gave when its accuracies were measured; "
            "the heads were chosen under mean ablation.",
        ),
    ],
)
def test_a_note_says_under_what_accuracies_were_measured_and_heads_chosen(
    chosen: str | None, measured: str | None, note: str
) -> None:
    measured_under = {} if measured is None else {"ablation": measured}
    choice = noted({}, "test", "intents", {"de": {"accuracy": 0.5, "n": 10}}, **measured_under)
    mask = replace(full_mask(GRID), chosen=choice | ({"ablation": chosen} if chosen else {}))
    assert accuracy_notes({"m.json": mask}) == ([note] if note else [])


def test_a_note_names_the_players_that_were_chosen() -> None:
    grid = HeadGrid((Stack("encoder-layers", (1, 1)),))
    choice = noted({"ablation": "zero"}, "dev", "t", {"de": {"n": 1}}, ablation="mean")
    (note,) = accuracy_notes({"m.json": replace(full_mask(grid), chosen=choice)})
    assert note.endswith("and the layers were chosen under zero ablation.")


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["format", "version", "grid", "kept", "model", "chosen"]), JSON_VALUES
    )
)
def test_fuzz_only_headlab_errors(changes: dict[str, object]) -> None:
    for version in (1, 2):
        value = mask_json_with(**({"version": version} | changes))
        try:
            mask = mask_from_json(value)
        except HeadlabError:
            continue
        assert mask.grid.to_json() == value["grid"]
        assert mask.to_json()["kept"] == value["kept"]
        assert fits_schema(mask.to_json())


ODD_VALUES = (
    0, 1, -1, 2, 1.0, 2.0, 0.5, 1e300, -1e308, 10**400, 2**53, 2**60, math.inf, math.nan, "\ud800", "\u001b[2J\n",
    True, False, None, "", "x", "zero", "mixed", [], {}, ["th"], [1], [[1]],
    {"a": "b"}, {"a": 1}, {"dev": {"task": "t", "languages": {}}},
    {"dev": {"task": "t", "languages": {"th": {"accuracy": 1, "n": 1}}}}, {"test": []},
    {"class": "A", "model_type": "b"}, "2026-11-21T09:30:00Z", "2026-11-21T09:30:00Z\n", "2026-11-21",
)  # fmt: skip


def keys_of(value: object) -> Iterable[Any]:
    """The names in a JSON object, the indices of a JSON list; none of another value."""
    if isinstance(value, dict):
        return value.keys()
    if isinstance(value, list):
        return range(len(value))
    return ()


def paths_in(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The paths to all parts of a JSON value, and to the value itself."""
    paths = [path]
    for key in keys_of(value):
        paths += paths_in(value[key], (*path, key))  # type: ignore[index] # it has this key
    return paths


PATHS = paths_in(mask_with_every_field().to_json())


NAMES = {step for path in PATHS for step in path if isinstance(step, str)}
NAMES_TO_ADD = sorted({*NAMES, "weight", "threshold", "train", "more"})


def change_one_part(
    value: dict[str, object], draw: Callable[[st.SearchStrategy[Any]], Any]
) -> None:
    """Replace, drop or add one part at any depth, unless what holds it was dropped before."""
    inner_paths = [path for path in PATHS if path]
    *path, last_step = draw(st.sampled_from(inner_paths))
    container: Any = value
    for step in path:
        container = container[step] if step in keys_of(container) else None
    action = draw(st.sampled_from(["replace", "drop", "add"]))
    odd_value = draw(st.sampled_from(ODD_VALUES))
    if isinstance(container, dict):
        if action == "drop":
            container.pop(last_step, None)
        elif action == "replace":
            container[last_step] = odd_value
        else:
            container[draw(st.sampled_from(NAMES_TO_ADD))] = odd_value
    elif isinstance(container, list) and isinstance(last_step, int) and last_step < len(container):
        container[last_step] = odd_value


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_reader_and_schema_accept_and_refuse_the_same(data: st.DataObject) -> None:
    """A mask with every field, of which one to three parts are changed; 15,000 were tried once."""
    value = mask_with_every_field().to_json()
    for _ in range(data.draw(st.integers(1, 3))):
        change_one_part(value, data.draw)
    if value.get("version") != 1:  # version 1 has no schema
        assert is_readable(value) == fits_schema(value), value
    if is_readable(value):
        use(mask_from_json(value))


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ('"threshold": 1e999', ("json.number_too_large", "1e999")),
        ('"threshold": 1e301', ("mask.field_invalid", "chosen.threshold", "a number")),
        ('"note": "\\ud800"', ("mask.text_surrogate", "chosen.note")),
        ('"note": {"\\udfff": 1}', ("mask.text_surrogate", "chosen.note")),
        ('"k": 9007199254740993', ("mask.field_invalid", "chosen.k", "a whole number")),
        ('"note": ' + 150 * "[" + 150 * "]", ("mask.nested_too_deep", 100)),
        ('"rule": "a", "rule": "b"', ("json.name_twice", "'rule'")),
    ],
)
def test_text_that_could_not_be_shown_or_written_again_is_refused_on_reading(
    change: str, refusal: tuple[object, ...]
) -> None:
    unchanged_text = json.dumps(mask_json_with(chosen={"here": 0}))
    text = unchanged_text.replace('"here": 0', change)
    with raises(*refusal):
        mask_from_text(text)


def test_the_count_of_heads_removed_must_be_right() -> None:
    assert mask_from_json(mask_json_with(removed=0.0)).removed == ()
    with raises("mask.removed_mismatch", 77, 0):
        mask_from_json(mask_json_with(removed=77))
    # Version 1 did not check the count.
    version_1 = {**mask_json_with(removed=77), "version": 1}
    assert mask_from_json(version_1).removed == ()


def test_names_of_stacks_are_words() -> None:
    grid_of_odd_name = HeadGrid((Stack("en\x1b[2J", (2,)),))
    with raises("stack.name_invalid"):
        full_mask(grid_of_odd_name).to_json()
    with raises("mask.grid_malformed"):
        value = mask_json_with(grid={"a b": [2]}, kept={"a b": [[1, 1]]})
        mask_from_json(value)


def test_a_mask_says_how_its_heads_were_chosen_to_be_removed() -> None:
    def ablation(chosen: dict[str, Any]) -> str | None:
        return Mask(GRID, np.ones(7, bool), MODEL, chosen).ablation

    assert ablation({"ablation": "mean", "score": {}}) == "mean"
    assert ablation({"score": {"ablation": "mean"}}) == "mean"
    assert ablation({"score": {"ablation": "other"}}) is None
    assert ablation({"score": 3, "combined": "x"}) is None
    zero = {"ablation": "zero"}
    mean = {"score": {"ablation": "mean"}}
    assert ablation({"combined": [zero, mean]}) == "mixed"
    assert ablation({"combined": [mean, {}]}) == "mixed"
    assert ablation({"combined": [zero, zero]}) == "zero"
    assert ablation({"combined": [zero, {}]}) is None
    assert ablation({"combined": []}) is None
    combined = {"combined": [zero, mean]}
    assert ablation({"combined": [combined, zero]}) == "mixed"


def test_a_mask_of_several_ablations_is_of_means_only_if_one_of_them_is() -> None:
    def mask(*ablations: str) -> Mask:
        parts = [{"ablation": name} for name in ablations]
        return Mask(GRID, np.ones(7, bool), MODEL, {"combined": parts})

    assert mask("zero", "mean").of_means
    assert mask("resample", "mean").of_means
    assert not mask("zero", "resample").of_means
    assert not mask("resample", "counterfactual").of_means
    assert not mask("zero", "zero").of_means
    unknown = Mask(GRID, np.ones(7, bool), MODEL, {"ablation": "mixed"})
    assert unknown.of_means


def test_a_mask_names_its_model_and_languages_if_it_knows_them() -> None:
    architecture = {"class": "BertModel", "model_type": "bert"}
    model = {**MODEL, "architecture": architecture}
    chosen = {"languages": ["de", "th"], "rule": "bottom"}
    mask = Mask(GRID, np.ones(7, bool), model, chosen)
    assert mask.name == "m"
    assert mask.fingerprint == "f" * 64
    assert mask.architecture == architecture
    assert mask.languages == ("de", "th")
    assert mask.choice["rule"] == "bottom"
    unknown_model = {"name": None, "fingerprint": None}
    mask_of_unknown_model = Mask(GRID, np.ones(7, bool), unknown_model)
    assert mask_of_unknown_model.name == ""
    assert mask_of_unknown_model.fingerprint is None
    assert mask_of_unknown_model.architecture is None
    assert mask_of_unknown_model.languages == ()
    assert mask_of_unknown_model.evaluated == {}
