"""Mask rules, and the file format: round trip, refusals, fuzz."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
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

GRID = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (2,))))
VALUES = np.array([0.3, -0.1, 0.0, 0.2, -0.1, 0.5, 0.0])
HIGH = np.array([0.4, -0.05, 0.1, 0.3, 0.02, 0.6, 0.1])
MODEL = {"name": "m", "revision": "r", "fingerprint": "f" * 64}


def removed(kept: np.ndarray) -> list[int]:
    return np.flatnonzero(~kept).tolist()


def test_rules() -> None:
    assert removed(heads_kept_by_rule(GRID, VALUES, HIGH, "harmful")) == [1]
    assert removed(heads_kept_by_rule(GRID, VALUES, HIGH, "threshold", threshold=0.0)) == [1, 4]
    # a tie keeps the lower (layer, head)
    assert removed(heads_kept_by_rule(GRID, VALUES, None, "bottom", k=1)) == [4]
    assert removed(heads_kept_by_rule(GRID, VALUES, None, "bottom", k=3)) == [1, 4, 6]


def test_bottom_removes_exactly_k_and_nests(rng: np.random.Generator) -> None:
    values = rng.integers(0, 3, 7).astype(float)  # many ties
    with pytest.warns(UserWarning, match="removes"):
        masks = [heads_kept_by_rule(GRID, values, None, "bottom", k=k) for k in range(8)]
    for k, mask in enumerate(masks):
        assert (~mask).sum() == k
    assert all((later <= earlier).all() for earlier, later in pairwise(masks))


@pytest.mark.parametrize(
    ("rule", "options", "expected"),
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
    rule: str, options: dict[str, float], expected: tuple[object, ...]
) -> None:
    with raises(*expected):
        heads_kept_by_rule(GRID, VALUES, HIGH, rule, **options)  # type: ignore[arg-type]


def test_a_correction_that_cannot_be_had_is_refused() -> None:
    bare = HeadScores(
        GRID, "de", "shapley", VALUES, "e", "accuracy", 1, 1.0, low=HIGH - 1, high=HIGH
    )
    with raises("rule.correction_unknown", "bonferroni", "raw, holm, bh"):
        bare.mask(correction="bonferroni")
    with raises("rule.option_unused", "bottom"):
        bare.mask("bottom", k=1, correction="holm")
    with raises("rule.needs_p_values", "holm"):
        bare.mask(correction="holm")
    assert bare.mask().kept.tolist() == bare.mask(correction="raw").kept.tolist()


def test_corrected_harmful_heads_are_those_whose_p_survives(rng: np.random.Generator) -> None:
    """Against the step-down procedure, and against Benjamini–Hochberg by its definition."""
    for _ in range(50):
        p = rng.random(GRID.size) ** 3
        high = rng.normal(size=GRID.size)
        own = {"low": high - 2, "high": high, "p_values": p}
        tested = HeadScores(GRID, "de", "shapley", high - 1, "e", "accuracy", 1, 1.0, **own)
        # a value below 0: claims of help are no claims of harm
        harms = np.sort(np.where(high < 1, p, 1.0))
        by_rank = harms <= 0.05 * np.arange(1, GRID.size + 1) / GRID.size
        bound = harms[np.flatnonzero(by_rank)[-1]] if by_rank.any() else -1.0
        sure = {"holm": np.array(reference.holm_by_steps(p.tolist())) <= 0.05, "bh": p <= bound}
        for correction, holds in sure.items():
            assert (~tested.mask(correction=correction).kept).tolist() == (
                holds & (high < 0)
            ).tolist()


def test_few_of_the_heads_removed_with_benjamini_hochberg_are_false_though_many_heads_help(
    rng: np.random.Generator,
) -> None:
    """144 heads, 60 of which surely help and 10 surely harm; the others' p-values are uniform, with either sign."""
    grid = HeadGrid((Stack("encoder", (12,) * 12),))
    shares = []
    for _ in range(400):
        p = rng.random(144)
        values = rng.choice([-1.0, 1.0], 144)
        p[:70], values[:60], values[60:70] = 1e-6, 1.0, -1.0
        high = np.where((p <= 0.05) & (values < 0), -0.1, 2.0)
        own = {"low": values - 3, "high": high, "p_values": p}
        gone = (
            ~HeadScores(grid, "de", "shapley", values, "e", "accuracy", 1, 1.0, **own)
            .mask(correction="bh")
            .kept
        )
        assert gone[60:70].all()
        shares.append(gone[70:].sum() / gone.sum())
    assert np.mean(shares) <= 0.05


def test_harmful_needs_intervals() -> None:
    with raises("rule.needs_intervals"):
        heads_kept_by_rule(GRID, VALUES, None, "harmful")


def test_round_trip(tmp_path: Path) -> None:
    kept = np.array([1, 0, 1, 1, 0, 1, 0], bool)
    mask = Mask(GRID, kept, MODEL, {"rule": "bottom", "k": 3, "languages": ["zh-CN"]})
    mask.save(tmp_path / "m.json")
    read = load_mask(tmp_path / "m.json")
    assert (read.kept == kept).all()
    assert (read.grid, read.model, read.chosen) == (GRID, MODEL, mask.chosen)
    assert read.removed == (Head("encoder", 0, 1), Head("encoder", 1, 1), Head("cross", 0, 1))
    assert read.digest == mask.digest != full_mask(GRID).digest


def test_other_models_and_shapes_are_refused() -> None:
    mask = Mask(GRID, np.ones(7, bool), MODEL)
    mask.check(GRID, "f" * 64)
    with raises("mask.other_model"):
        mask.check(GRID, "0" * 64)
    with raises("mask.other_grid", "12×12"):
        mask.check(HeadGrid((Stack("encoder", (12,) * 12),)), "f" * 64)


def spoil(**changes: object) -> dict[str, object]:
    return Mask(GRID, np.ones(7, bool), MODEL).to_json() | changes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (spoil(format="x"), ("mask.not_a_mask",)),
        (spoil(version=99), ("mask.version_newer", 99)),
        (spoil(grid={"encoder": [3, -1]}), ("mask.grid_malformed",)),
        (spoil(grid={}), ("mask.grid_malformed",)),
        (spoil(kept={"encoder": [[1, 1, 1], [1, 1]]}), ("grid.stacks_mismatch", "['encoder']")),
        (
            spoil(kept={"encoder": [[1, 1], [1, 1]], "cross": [[1, 1]]}),
            ("grid.layers_mismatch", "encoder"),
        ),
        (
            spoil(kept={"encoder": [[1, 1, 2], [1, 1]], "cross": [[1, 1]]}),
            ("mask.kept_not_binary",),
        ),
        (
            spoil(kept={"encoder": [[1, 1, "x"], [1, 1]], "cross": [[1, 1]]}),
            ("mask.kept_not_binary",),
        ),
        (
            spoil(kept={"encoder": [[1, 1, [0]], [1, 1]], "cross": [[1, 1]]}),
            ("mask.kept_not_binary",),
        ),
        (spoil(model="m"), ("mask.field_invalid", "model", "an object")),
        (spoil(model={"name": "m", "fingerprint": 3}), ("mask.field_invalid", "model.fingerprint")),
        (spoil(model={"name": "m"}), ("mask.field_missing", "model.fingerprint")),
        ([1], ("mask.not_a_mask",)),
    ],
)
def test_broken_masks_say_what_is_wrong(value: object, expected: tuple[object, ...]) -> None:
    with raises(*expected):
        mask_from_json(value)


def test_missing_torn_and_foreign_files(tmp_path: Path) -> None:
    with raises("file.unreadable"):
        load_mask(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text(json.dumps(spoil())[:40])
    with raises("json.invalid"):
        load_mask(tmp_path / "torn.json")
    with raises("json.invalid"):
        mask_from_text(b"\xff\xfe")
    with raises("json.invalid"):
        mask_from_text("[" * 100_000)


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


SCHEMA = json.loads(
    (files("headlab") / "schemas" / "mask-2.schema.json").read_text(encoding="utf-8")
)
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


def whole_mask() -> Mask:
    """A mask that says all that the format can say."""
    chosen = noted(
        {"rule": "bottom", "k": 3, "method": "shapley", "languages": ["th"]},
        "dev",
        "intents",
        {"th": FIGURE},
    )
    chosen = noted(
        chosen, "test", "intents", {"th": FIGURE, "de": FIGURE}, size=1000, ablation="zero"
    )
    model = {
        **MODEL,
        "architecture": {"class": "BertForSequenceClassification", "model_type": "bert"},
    }
    return Mask(GRID, np.array([1, 0, 1, 1, 0, 1, 0], bool), model, chosen)


def agrees_with_the_schema(value: dict[str, object]) -> bool:
    """Whether the schema takes a mask, checked together with what it cannot say: lengths, counts and odd text."""
    problems = list(VALIDATOR.iter_errors(value))
    if problems:
        return False
    kept: Any = value["kept"]
    shape = {name: [len(row) for row in rows] for name, rows in kept.items()}
    off = sum(not head for rows in kept.values() for row in rows for head in row)
    parts = [value.get(name) for name in ("model", "chosen", "versions")]
    figures = [
        f
        for part in value.get("chosen", {}).get("evaluated", {}).values()
        for f in part["languages"].values()
    ]
    try:
        json.dumps(parts, ensure_ascii=False, allow_nan=False).encode()
        date.fromisoformat(value.get("created", "2026-11-21")[:10])
    except ValueError:
        return False
    return (
        shape == value["grid"]
        and value.get("removed", off) == off
        and all(map(is_consistent, figures))
    )


def is_consistent(figure: dict[str, float]) -> bool:
    """Whether low ends are below high ends, and a difference is that of its accuracies."""
    ends = [
        (figure.get(f"{of}low", -math.inf), figure.get(f"{of}high", math.inf))
        for of in ("", "accuracy_")
    ]
    found = figure["accuracy"] - figure.get("baseline", 0)
    known = "baseline" in figure and "difference" in figure
    return all(low <= high for low, high in ends) and (
        not known or abs(figure["difference"] - found) < 0.0021
    )


def can_be_used(mask: Mask) -> None:
    """All that is done with masks that were read: shown, written, combined, converted."""
    told = [
        model_words(mask),
        choice_words(mask.chosen),
        *accuracy_table({"m": mask}).markdown().splitlines()[2:],
    ]
    assert all(line.encode() and line.isprintable() for line in told)
    for made in (
        mask,
        combine_masks([mask, mask], "and"),
        combine_masks([mask, full_mask(mask.grid)], "or"),
    ):
        written = convert_out(made, "headlab")
        assert mask_from_text(written).to_json()["chosen"] == made.chosen
    convert_out(mask, "pairs")


def reads(value: object) -> bool:
    try:
        mask_from_json(value)
    except HeadlabError:
        return False
    return True


def test_the_schema_is_one_and_takes_what_is_written() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    empty = HeadGrid((Stack("decoder", (2, 0, 1)),))
    for mask in (
        whole_mask(),
        full_mask(GRID),
        Mask(GRID, np.zeros(7, bool), MODEL),
        full_mask(empty),
    ):
        assert list(VALIDATOR.iter_errors(mask.to_json())) == []
        assert (mask_from_json(mask.to_json()).kept == mask.kept).all()


def test_everything_a_mask_says_comes_back_the_same(tmp_path: Path) -> None:
    whole_mask().save(tmp_path / "m.json")
    first = json.loads((tmp_path / "m.json").read_text())
    assert set(first["versions"]) == {"headlab", "torch", "transformers"}
    early = first | {"created": "2020-02-03T04:05:06.789+02:00", "versions": {"headlab": "0.0.9"}}
    (tmp_path / "m.json").write_text(json.dumps(early))
    assert load_mask(tmp_path / "m.json").to_json() == early


def test_version_1_is_read_and_written_as_version_2() -> None:
    seen = {"task": "intents", "split": "dev", "size": 512, "languages": {"th": FIGURE}}
    old = {"format": "headlab-mask", "version": 1, "model": MODEL, "grid": GRID.to_json()}
    old |= {"kept": full_mask(GRID).rows(), "removed": 0, "created": "2026-11-21T09:30:00+00:00"}
    chosen = {
        "rule": "by hand",
        "languages": "th",
        "evaluated": seen,
        "started_from": {"rule": "harmful"},
    }
    mask = mask_from_json(old | {"chosen": chosen})
    assert mask.chosen["evaluated"] == {
        "dev": {"task": "intents", "size": 512, "languages": {"th": FIGURE}}
    }
    assert mask.chosen["as_written"] == {"languages": "th"}
    assert (mask.chosen["rule"], mask.chosen["started_from"]) == ("by hand", {"rule": "harmful"})
    new = mask.to_json()
    assert agrees_with_the_schema(new)
    assert (new["version"], new["created"], new["versions"]) == (2, old["created"], {})
    assert mask_from_json(new).to_json() == new


def test_a_newer_version_says_to_update() -> None:
    with raises("mask.version_newer", "this headlab reads versions 1 to 2"):
        mask_from_json(spoil(version=3))
    for version in (0, "2", True, None, [2]):
        with raises("mask.version_unknown", "reads versions 1 to 2"):
            mask_from_json(spoil(version=version))


def test_a_mask_of_no_one_model_is_held_to_the_grid_alone() -> None:
    mask = mask_from_json(spoil(model={"name": None, "fingerprint": None}))
    mask.check(GRID, "0" * 64)
    with raises("mask.other_grid"):
        mask.check(HeadGrid((Stack("encoder", (3, 3)),)), "0" * 64)


def test_what_the_format_does_not_allow_is_not_written() -> None:
    for chosen, code, place in (
        ({"languages": "th"}, "mask.field_invalid", "chosen.languages"),
        ({"evaluated": {"dev": {}}}, "mask.field_missing", "chosen.evaluated.dev"),
        ({"k": -1}, "mask.field_invalid", "chosen.k"),
        ({"evaluated": {"monday": {}}}, "mask.split_unknown", "chosen.evaluated"),
    ):
        with raises(code, place):
            Mask(GRID, np.ones(7, bool), MODEL, chosen).to_json()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"low": 0.2, "high": 0.1}, "low 0.2 is above high 0.1"),
        (
            {"accuracy_low": 0.7, "accuracy_high": 0.6},
            "accuracy_low 0.7 is above accuracy_high 0.6",
        ),
        ({"difference": -0.01}, "difference is -0.01, but accuracy - baseline is 0.01"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(wrong: dict[str, float], told: str) -> None:
    chosen = {"evaluated": {"dev": {"task": "intents", "languages": {"th": FIGURE | wrong}}}}
    with raises("mask.figure_contradictory", told):
        mask_from_json(spoil(chosen=chosen))
    rounded = {
        "evaluated": {
            "dev": {"task": "intents", "languages": {"th": FIGURE | {"difference": 0.011}}}
        }
    }
    mask_from_json(spoil(chosen=rounded))


@pytest.mark.parametrize("wrong", [{"p": 7}, {"p": -0.1}])
def test_a_p_value_is_a_share(wrong: dict[str, float]) -> None:
    with raises("mask.field_invalid", "p"):
        mask_from_json(
            spoil(chosen={"evaluated": {"dev": {"task": "t", "languages": {"th": FIGURE | wrong}}}})
        )


@pytest.mark.parametrize(
    "when", ["2026-99-21T09:30:00Z", "2026-02-30T09:30:00Z", "2026-11-21T25:30:00+00:00"]
)
def test_a_time_that_never_is_is_refused(when: str) -> None:
    with raises("mask.field_invalid", "created"):
        mask_from_json(spoil(created=when))


def test_figures_are_noted_by_split_and_read_back() -> None:
    mask = whole_mask()
    assert [(s.split, s.language, s.figure["accuracy"]) for s in seen(mask)] == [
        ("dev", "th", 0.61),
        ("test", "th", 0.61),
        ("test", "de", 0.61),
    ]
    assert seen(full_mask(GRID)) == []
    assert noted({"rule": "x"}, "dev", "intents", {}) == {"rule": "x"}
    shown = accuracy_table({"mine": mask}).shown()
    assert shown[0] == [
        "mine",
        "dev",
        "intents",
        "th",
        "512",
        "61.0",
        "60.0",
        "+1.0",
        "-1.0 … +3.0",
    ]


def test_what_was_assumed_stands_beside_the_figures_and_is_kept_in_the_file() -> None:
    figure = {"accuracy": 0.5, "n": 10, "note": "Label map: a = LABEL_1, b = LABEL_0"}
    mask = replace(
        full_mask(GRID), chosen=noted({}, "test", "intents", {"de": figure, "th": figure})
    )
    assert agrees_with_the_schema(mask.to_json())
    read = mask_from_json(mask.to_json())
    assert accuracy_notes([read, full_mask(GRID)]) == [figure["note"]]
    with raises("mask.field_invalid", "note"):
        mask_from_json(spoil(chosen=noted({}, "test", "intents", {"de": figure | {"note": 1}})))


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["format", "version", "grid", "kept", "model", "chosen"]), junk)
)
def test_fuzz_only_headlab_errors(changes: dict[str, object]) -> None:
    for version in (1, 2):
        value = spoil(**({"version": version} | changes))
        try:
            mask = mask_from_json(value)
        except HeadlabError:
            continue
        assert mask.grid.to_json() == value["grid"]
        assert mask.to_json()["kept"] == value["kept"]
        assert agrees_with_the_schema(mask.to_json())


ODD = (
    0, 1, -1, 2, 1.0, 2.0, 0.5, 1e300, -1e308, 10**400, 2**53, 2**60, math.inf, math.nan, "\ud800", "\u001b[2J\n",
    True, False, None, "", "x", "zero", "mixed", [], {}, ["th"], [1], [[1]],
    {"a": "b"}, {"a": 1}, {"dev": {"task": "t", "languages": {}}},
    {"dev": {"task": "t", "languages": {"th": {"accuracy": 1, "n": 1}}}}, {"test": []},
    {"class": "A", "model_type": "b"}, "2026-11-21T09:30:00Z", "2026-11-21T09:30:00Z\n", "2026-11-21",
)  # fmt: skip


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The path to everything in a value, itself included."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(found for key, part in inner for found in places(part, (*path, key)))]


PLACES = places(whole_mask().to_json())


ALL_NAMES = {step for place in PLACES for step in place if isinstance(step, str)} | {
    "weight",
    "threshold",
    "train",
}


def changed(value: dict[str, object], draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    """Replace, drop or add one part, at any depth; nothing where an earlier change took the place away."""
    *path, last = draw(st.sampled_from([place for place in PLACES if place]))
    spot: Any = value
    for step in path:
        known = (
            spot.keys()
            if isinstance(spot, dict)
            else range(len(spot))
            if isinstance(spot, list)
            else ()
        )
        spot = spot[step] if step in known else None
    what = draw(st.sampled_from(["replace", "drop", "add"]))
    odd = draw(st.sampled_from(ODD))
    if isinstance(spot, dict):
        if what == "drop":
            spot.pop(last, None)
        else:
            spot[
                last if what == "replace" else draw(st.sampled_from(sorted({*ALL_NAMES, "more"})))
            ] = odd
    elif isinstance(spot, list) and isinstance(last, int) and last < len(spot):
        spot[last] = odd


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_reader_and_schema_take_and_refuse_the_same(data: st.DataObject) -> None:
    """A whole mask with one to three parts changed; 15,000 such were tried once."""
    value = whole_mask().to_json()
    for _ in range(data.draw(st.integers(1, 3))):
        changed(value, data.draw)
    if value.get("version") != 1:  # that is another format, without a schema
        assert reads(value) == agrees_with_the_schema(value), value
    if reads(value):
        can_be_used(mask_from_json(value))


@pytest.mark.parametrize(
    ("change", "expected"),
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
def test_what_could_not_be_shown_or_written_again_is_refused_on_reading(
    change: str, expected: tuple[object, ...]
) -> None:
    text = json.dumps(spoil(chosen={"here": 0})).replace('"here": 0', change)
    with raises(*expected):
        mask_from_text(text)


def test_the_count_of_heads_removed_must_be_right() -> None:
    assert mask_from_json(spoil(removed=0.0)).removed == ()
    with raises("mask.removed_mismatch", 77, 0):
        mask_from_json(spoil(removed=77))
    # it was not read there
    assert mask_from_json({**spoil(removed=77), "version": 1}).removed == ()


def test_names_of_stacks_are_words() -> None:
    odd = HeadGrid((Stack("en\x1b[2J", (2,)),))
    with raises("stack.name_invalid"):
        full_mask(odd).to_json()
    with raises("mask.grid_malformed"):
        mask_from_json(spoil(grid={"a b": [2]}, kept={"a b": [[1, 1]]}))


def test_a_mask_says_how_its_heads_were_chosen_to_be_removed() -> None:
    def ablation(chosen: dict[str, Any]) -> str | None:
        return Mask(GRID, np.ones(7, bool), MODEL, chosen).ablation

    assert (
        ablation({"ablation": "mean", "score": {}})
        == ablation({"score": {"ablation": "mean"}})
        == "mean"
    )
    assert (
        ablation({"score": {"ablation": "other"}})
        is ablation({"score": 3, "combined": "x"})
        is None
    )
    zero = {"ablation": "zero"}
    mean = {"score": {"ablation": "mean"}}
    assert ablation({"combined": [zero, mean]}) == ablation({"combined": [mean, {}]}) == "mixed"
    assert ablation({"combined": [zero, zero]}) == "zero"
    assert ablation({"combined": [zero, {}]}) is ablation({"combined": []}) is None
    assert ablation({"combined": [{"combined": [zero, mean]}, zero]}) == "mixed"


def test_a_mask_names_its_model_and_languages_and_is_silent_where_it_knows_none() -> None:
    architecture = {"class": "BertModel", "model_type": "bert"}
    about = {**MODEL, "architecture": architecture}
    known = Mask(GRID, np.ones(7, bool), about, {"languages": ["de", "th"], "rule": "bottom"})
    assert (known.name, known.fingerprint, known.architecture) == ("m", "f" * 64, architecture)
    assert (known.languages, known.choice["rule"]) == (("de", "th"), "bottom")
    unknown = Mask(GRID, np.ones(7, bool), {"name": None, "fingerprint": None})
    assert (unknown.name, unknown.fingerprint, unknown.architecture) == ("", None, None)
    assert (unknown.languages, unknown.evaluated) == ((), {})
