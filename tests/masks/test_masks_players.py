"""Mask files of version 3: heads, groups, neurons, feed-forward parts and layers."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.expected_errors import raises

from headlab.cli.evaluate import load_for_mask
from headlab.core import HeadGrid, HeadlabError, Stack
from headlab.jobs.shrink import ShrinkJob
from headlab.masks import Mask, convert_out, full_mask, load_mask, mask_from_json
from headlab.masks.compare import combine_masks
from headlab.masks.convert import parse_grid
from headlab.report.maps import mask_cells

SCHEMA_FILE = files("headlab") / "schemas" / "mask-3.schema.json"
VALIDATOR = Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
MEMBERS = ((0, 1, 1, 0), (1, 0, 0, 1))
GRID = HeadGrid(
    (
        Stack("encoder", (2, 3)),
        Stack("encoder-attention", (1, 1)),
        Stack("encoder-neurons", (2, 2), MEMBERS),
        Stack("encoder-layers", (1, 1)),
    )
)
MODEL = {"name": "m", "fingerprint": "f" * 64}


def mask_of_players() -> Mask:
    kept = np.ones(GRID.size, bool)
    kept[[1, 7, GRID.size - 1]] = False
    return Mask(GRID, kept, MODEL, {"rule": "bottom", "k": 3})


def test_players_are_written_as_version_3_and_read_back(tmp_path: Path) -> None:
    mask = mask_of_players()
    file = tmp_path / "mask.json"
    mask.save(file)
    value = json.loads(file.read_text())
    assert value["version"] == 3
    assert value["members"] == {"encoder-neurons": [list(groups) for groups in MEMBERS]}
    assert list(VALIDATOR.iter_errors(value)) == []
    got = load_mask(file)
    assert got.grid == GRID
    assert got.kept.tolist() == mask.kept.tolist()
    assert got.digest == mask.digest
    assert [str(player) for player in got.removed] == [
        "0.1",
        "encoder-neurons 0.0",
        "encoder-layers 1.0",
    ]
    shuffled = dict(sorted(value.items()))
    shuffled["grid"] = dict(sorted(value["grid"].items()))
    assert mask_from_json(shuffled).grid == GRID


def test_masks_of_heads_are_written_as_before() -> None:
    grid = HeadGrid((Stack("encoder", (2, 3)),))
    value = full_mask(grid).to_json()
    assert value["version"] == 2
    assert "members" not in value


def test_a_mask_of_another_model_is_refused_before_players_are_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def make_players(*_arguments: object) -> None:
        raise AssertionError("players were made")

    monkeypatch.setattr("headlab.hooks.with_players_of", make_players)
    mask = mask_of_players()
    mask.check_model("f" * 64)
    mask.check_model(None)
    module = SimpleNamespace(config=SimpleNamespace(dtype="float32"))
    model: Any = SimpleNamespace(fingerprint="e" * 64, dtype="float32", module=module)
    with raises("mask.other_model", "made for m (fingerprint ffffffffffff)", "eeeeeeeeeeee"):
        load_for_mask(lambda: model, mask)
    mask.save(tmp_path / "mask.json")
    job = ShrinkJob.model_construct(mask=tmp_path / "mask.json", dtype="float32")
    lab: Any = SimpleNamespace(need=lambda name: model)
    with raises("mask.other_model"):
        job.exact_model(lab)


STACKS_LIKE_PLAYERS = (
    "encoder-layers",
    "encoder-neurons",
    "encoder-feed-forward",
    "decoder-attention",
    "cross-kv-groups",
)
"""Names that other players have, which a file of version 2 may give to heads."""


def file_of_heads(counts: dict[str, list[int]], *, version: int = 2) -> dict[str, Any]:
    """A mask file of version 1 or 2 whose stacks are called as they please; a head is off."""
    kept = {name: [[1] * heads for heads in layers] for name, layers in counts.items()}
    next(iter(kept.values()))[0][0] = 0
    return {
        "format": "headlab-mask",
        "version": version,
        "model": {"name": "m", "fingerprint": "f" * 64},
        "grid": counts,
        "kept": kept,
        "removed": 1,
        "chosen": {},
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", STACKS_LIKE_PLAYERS)
def test_a_file_of_heads_holds_heads_whatever_its_stacks_are_called(
    name: str, version: int, tmp_path: Path
) -> None:
    mask = mask_from_json(file_of_heads({name: [2, 3]}, version=version))
    assert mask.grid.has_only_heads
    assert mask.grid.noun == "heads"
    assert {mask.grid.kind_of(head) for head in mask.grid.heads} == {"heads"}
    file = tmp_path / "mask.json"
    mask.save(file)
    assert json.loads(file.read_text())["version"] == 2
    got = load_mask(file)
    assert got.grid == mask.grid
    assert got.digest == mask.digest
    assert got.kept.tolist() == mask.kept.tolist()
    players = HeadGrid.from_json({name: [2, 3]})
    assert Mask(players, mask.kept).digest != mask.digest
    with raises("mask.other_players"):
        mask.check(players, None)
    assert f"{name} layer 0, head 0: removed" in [
        cell.told for cell in mask_cells(mask.grid, mask.kept)
    ]


@settings(max_examples=150, deadline=None)
@given(
    counts=st.dictionaries(
        st.sampled_from((*STACKS_LIKE_PLAYERS, "encoder", "decoder", "cross", "mine", "x-layers")),
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    ),
    version=st.sampled_from([1, 2]),
)
def test_fuzzed_stack_names_leave_masks_of_heads_as_they_are(
    counts: dict[str, list[int]], version: int
) -> None:
    mask = mask_from_json(file_of_heads(counts, version=version))
    assert mask.grid.has_only_heads
    assert len(mask.removed) == 1
    written = mask.to_json()
    assert written["version"] == 2
    assert written["grid"] == counts
    got = mask_from_json(json.loads(json.dumps(written)))
    assert got.grid == mask.grid
    assert got.digest == mask.digest


def test_masks_of_other_tools_are_of_heads_whatever_the_grid_calls_its_stacks() -> None:
    grid = parse_grid("encoder-layers=2x3")
    assert grid.has_only_heads
    assert Mask(grid, np.ones(grid.size, bool), MODEL).to_json()["version"] == 2


def test_other_groups_of_neurons_are_another_mask() -> None:
    mask = mask_of_players()
    stacks = list(GRID.stacks)
    stacks[2] = Stack("encoder-neurons", (2, 2), ((0, 0, 1, 1), (1, 0, 0, 1)))
    other_groups = HeadGrid(tuple(stacks))
    assert Mask(other_groups, mask.kept).digest != mask.digest
    with raises("mask.other_groups"):
        mask.check(other_groups, None)
    with raises("mask.other_players", "heads", "neurons"):
        mask.check(HeadGrid((Stack("encoder", (2, 3)),)), None)
    with raises("mask.other_grid"):
        mask.check(HeadGrid((*GRID.stacks[:3], Stack("encoder-layers", (1,)))), None)
    mask.check(GRID, "f" * 64)


def test_forms_of_other_tools_hold_heads_only() -> None:
    with raises("mask.not_of_heads", "neurons"):
        convert_out(mask_of_players(), "pairs")
    assert mask_from_json(json.loads(convert_out(mask_of_players(), "headlab"))).grid == GRID


def test_masks_of_players_are_combined() -> None:
    both = combine_masks([mask_of_players(), full_mask(GRID)], "and")
    assert both.grid == GRID
    assert both.kept.tolist() == mask_of_players().kept.tolist()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"members": None}, "mask.members_missing"),
        ({"members": {}}, "mask.members_missing"),
        ({"members": {"encoder": [[0]]}}, "mask.members_missing"),
        ({"members": {"encoder-neurons": 3}}, "mask.members_malformed"),
        ({"members": {"encoder-neurons": [[0, 1], [0, "a"]]}}, "mask.members_malformed"),
        ({"members": {"encoder-neurons": [[0, 1]]}}, "mask.members_mismatch"),
        ({"members": {"encoder-neurons": [[0, 1], [0, 0]]}}, "mask.members_mismatch"),
        ({"members": {"encoder-neurons": [[0, 1], [0, 2]]}}, "mask.members_mismatch"),
        ({"grid": {"mine": [1]}, "kept": {"mine": [[1]]}, "removed": 0}, "mask.players_unknown"),
        ({"version": 4}, "mask.version_newer"),
        ({"removed": 1}, "mask.removed_mismatch"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], code: str) -> None:
    value = mask_of_players().to_json() | changes
    with raises(code):
        mask_from_json({name: part for name, part in value.items() if part is not None})


ODD_VALUES = (
    0,
    1,
    2,
    -1,
    1.0,
    0.5,
    True,
    None,
    "",
    "x",
    [],
    {},
    [0],
    [[0, 1]],
    [[0, 1], [1, 0]],
    3,
    4096,
)
NAMES = ("encoder", "encoder-neurons", "decoder-layers", "encoder-heads", "members", "x-neurons")


def paths_in(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    paths = [path] if path else []
    for key in keys:
        paths += paths_in(value[key], (*path, key))  # type: ignore[index] # it has this key
    return paths


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_fuzzed_files_are_read_or_refused_with_a_sentence(data: st.DataObject) -> None:
    """A file of version 3 of which one or two parts are changed; the schema takes what is read."""
    value: Any = copy.deepcopy(json.loads(json.dumps(mask_of_players().to_json())))
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(paths_in(value)))
        container = value
        for step in path:
            container = container[step]
        action = data.draw(st.sampled_from(["replace", "drop", "rename"]))
        if action == "replace" or not isinstance(container, dict):
            container[last] = data.draw(st.sampled_from(ODD_VALUES))
        elif action == "drop":
            del container[last]
        else:
            container[data.draw(st.sampled_from(NAMES))] = container.pop(last)
    try:
        mask = mask_from_json(value)
    except HeadlabError:
        return
    if value["version"] == 3:
        assert list(VALIDATOR.iter_errors(value)) == []
    assert mask_from_json(mask.to_json()).digest == mask.digest
