"""Mask rules, and the file format: round trip, refusals, fuzz."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.errors import HeadlabError
from headlab.masks import Mask, choose, full_mask, load_mask, mask_from_json, mask_from_text
from headlab.records import Head, HeadGrid, Stack

GRID = HeadGrid((Stack("encoder", (3, 2)), Stack("cross", (2,))))
VALUES = np.array([0.3, -0.1, 0.0, 0.2, -0.1, 0.5, 0.0])
HIGH = np.array([0.4, -0.05, 0.1, 0.3, 0.02, 0.6, 0.1])
MODEL = {"name": "m", "revision": "r", "fingerprint": "f" * 64}


def removed(kept: np.ndarray) -> list[int]:
    return np.flatnonzero(~kept).tolist()


def test_rules() -> None:
    assert removed(choose(GRID, VALUES, HIGH, "harmful")) == [1]
    assert removed(choose(GRID, VALUES, HIGH, "threshold", threshold=0.0)) == [1, 4]
    assert removed(choose(GRID, VALUES, None, "bottom", k=1)) == [4]  # a tie keeps the lower (layer, head)
    assert removed(choose(GRID, VALUES, None, "bottom", k=3)) == [1, 4, 6]


def test_bottom_removes_exactly_k_and_nests(rng: np.random.Generator) -> None:
    values = rng.integers(0, 3, 7).astype(float)  # many ties
    with pytest.warns(UserWarning, match="removes"):
        masks = [choose(GRID, values, None, "bottom", k=k) for k in range(8)]
    for k, mask in enumerate(masks):
        assert (~mask).sum() == k
    assert all((later <= earlier).all() for earlier, later in pairwise(masks))


@pytest.mark.parametrize(
    ("rule", "options", "text"),
    [
        ("bottom", {"k": 8}, "7 heads"),
        ("bottom", {}, "k=None"),
        ("bottom", {"k": 1, "threshold": 0.1}, "takes no threshold"),
        ("threshold", {"threshold": float("nan")}, "finite"),
        ("harmful", {"k": 1}, "takes no k"),
        ("best", {}, "unknown rule"),
    ],
)
def test_unfitting_options_are_refused(rule: str, options: dict[str, float], text: str) -> None:
    with pytest.raises(HeadlabError, match=text):
        choose(GRID, VALUES, HIGH, rule, **options)  # type: ignore[arg-type]


def test_harmful_needs_intervals() -> None:
    with pytest.raises(HeadlabError, match="bottom with k"):
        choose(GRID, VALUES, None, "harmful")


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
    with pytest.raises(HeadlabError, match="fingerprint"):
        mask.check(GRID, "0" * 64)
    with pytest.raises(HeadlabError, match="12×12"):
        mask.check(HeadGrid((Stack("encoder", (12,) * 12),)), "f" * 64)


def spoil(**changes: object) -> dict[str, object]:
    return Mask(GRID, np.ones(7, bool), MODEL).to_json() | changes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (spoil(format="x"), "not a headlab mask"),
        (spoil(version=99), "version 99"),
        (spoil(grid={"encoder": [3, -1]}), "grid"),
        (spoil(grid={}), "grid"),
        (spoil(kept={"encoder": [[1, 1, 1], [1, 1]]}), "stacks"),
        (spoil(kept={"encoder": [[1, 1], [1, 1]], "cross": [[1, 1]]}), "encoder"),
        (spoil(kept={"encoder": [[1, 1, 2], [1, 1]], "cross": [[1, 1]]}), "0 or 1"),
        (spoil(kept={"encoder": [[1, 1, "x"], [1, 1]], "cross": [[1, 1]]}), "one number"),
        (spoil(kept={"encoder": [[1, 1, [0]], [1, 1]], "cross": [[1, 1]]}), "one number"),
        (spoil(model="m"), "objects"),
        (spoil(model={"name": "m", "fingerprint": 3}), "fingerprint"),
        (spoil(model={"name": "m"}), "fingerprint"),
        ([1], "not a headlab mask"),
    ],
)
def test_broken_masks_say_what_is_wrong(value: object, text: str) -> None:
    with pytest.raises(HeadlabError, match=text):
        mask_from_json(value)


def test_missing_torn_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(HeadlabError, match="cannot read"):
        load_mask(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text(json.dumps(spoil())[:40])
    with pytest.raises(HeadlabError, match="not valid JSON"):
        load_mask(tmp_path / "torn.json")
    with pytest.raises(HeadlabError, match="not valid JSON"):
        mask_from_text(b"\xff\xfe")
    with pytest.raises(HeadlabError, match="not valid JSON"):
        mask_from_text("[" * 100_000)


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["format", "version", "grid", "kept", "model", "chosen"]), junk))
def test_fuzz_only_headlab_errors(changes: dict[str, object]) -> None:
    value = spoil(**changes)
    try:
        mask = mask_from_json(value)
    except HeadlabError:
        return
    assert mask.grid.to_json() == value["grid"]
    assert mask.to_json()["kept"] == value["kept"]
