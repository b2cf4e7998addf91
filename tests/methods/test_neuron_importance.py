"""Importance of neurons in the cache: kept, read again, and never taken where it does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import canonical_json
from headlab.hooks import Model
from headlab.methods import neuron_groups, player_groups
from headlab.results import Store
from headlab.results.store.folder import npz
from headlab.results.store.importance import (
    IMPORTANCE_FORMAT,
    NEURONS_FOLDER,
    importance_path,
    keep_importance,
    read_importance,
)

SPEC = {"model": {"fingerprint": "f"}, "task": {"name": "tiny"}}
SIZES = (3, 2)
IMPORTANCE = [np.array([0.5, 0.0, 2.0]), np.array([1.0, 1.0])]


def new_model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


def test_importance_is_read_as_it_was_kept(tmp_path: Path) -> None:
    assert read_importance(tmp_path, SPEC, SIZES) is None
    keep_importance(tmp_path, SPEC, IMPORTANCE)
    kept = read_importance(tmp_path, SPEC, SIZES)
    assert kept is not None
    for values, expected in zip(kept, IMPORTANCE, strict=True):
        assert np.array_equal(values, expected)
    assert read_importance(tmp_path, {**SPEC, "task": {"name": "other"}}, SIZES) is None
    assert Store(tmp_path).scan(None).problems == ()


def test_importance_of_the_demo_is_read_where_there_is_none_of_ones_own(tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    keep_importance(demo, SPEC, IMPORTANCE)
    store = Store(tmp_path / "own", demo=demo)
    importance = store.importance(SPEC, SIZES)
    assert importance is not None
    assert np.array_equal(importance[0], IMPORTANCE[0])
    store.keep_importance(SPEC, IMPORTANCE[::-1])
    importance = store.importance(SPEC, SIZES[::-1])
    assert importance is not None
    assert np.array_equal(importance[0], IMPORTANCE[1])
    assert len(list((demo / NEURONS_FOLDER).iterdir())) == 1


@pytest.mark.parametrize(
    ("layers", "sizes"),
    [
        (IMPORTANCE, (3, 3)),
        (IMPORTANCE, (3,)),
        (IMPORTANCE, (3, 2, 1)),
        ([IMPORTANCE[0], np.array([np.nan, 1.0])], SIZES),
        ([IMPORTANCE[0], np.array([-1.0, 1.0])], SIZES),
        ([IMPORTANCE[0], np.array([1, 1])], SIZES),
        ([IMPORTANCE[0], np.array([[1.0, 1.0]])], SIZES),
    ],
)
def test_importance_that_does_not_fit_is_not_taken(
    layers: list[np.ndarray], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    keep_importance(tmp_path, SPEC, layers)
    assert read_importance(tmp_path, SPEC, sizes) is None


def test_a_file_of_something_else_under_the_name_is_not_taken(tmp_path: Path) -> None:
    path = importance_path(tmp_path, SPEC)
    keep_importance(tmp_path, {"other": 1}, IMPORTANCE)
    importance_path(tmp_path, {"other": 1}).rename(path)
    assert read_importance(tmp_path, SPEC, SIZES) is None
    spec = np.array(canonical_json({**SPEC, "format": IMPORTANCE_FORMAT + 1}))
    path.write_bytes(npz({"0": IMPORTANCE[0], "1": IMPORTANCE[1], "spec": spec}))
    assert read_importance(tmp_path, SPEC, SIZES) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.binary(min_size=0, max_size=40))
def test_a_damaged_file_is_not_taken(
    tmp_path_factory: pytest.TempPathFactory, place: int, content: bytes
) -> None:
    root = tmp_path_factory.mktemp("cache")
    keep_importance(root, SPEC, IMPORTANCE)
    path = importance_path(root, SPEC)
    data = path.read_bytes()
    place %= len(data)
    path.write_bytes(data[:place] + content + data[place + len(content) :])
    kept = read_importance(root, SPEC, SIZES)
    # Bytes that nothing reads, such as a date, may be any; what is read is what was kept.
    if kept is not None:
        for values, expected in zip(kept, IMPORTANCE, strict=True):
            assert np.array_equal(values, expected)


def test_a_second_process_does_not_measure_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    ticks: list[None] = []
    groups = player_groups(
        new_model(), tiny_task(), 4, store=store, tick=lambda: ticks.append(None)
    )
    assert ticks
    (path,) = (tmp_path / NEURONS_FOLDER).iterdir()
    with monkeypatch.context() as patches:

        def refuse(*_: object) -> None:
            raise AssertionError("measured again")

        patches.setattr(neuron_groups, "measured_importance", refuse)
        assert player_groups(new_model(), tiny_task(), 4, store=store) == groups
        two_groups = player_groups(new_model(), tiny_task(), 2, store=store)
        assert {*two_groups[0]} == {0, 1}
        with pytest.raises(AssertionError, match="measured again"):  # of another task
            player_groups(new_model(), replace(tiny_task(), seed=1), 4, store=store)
    path.write_bytes(b"torn")
    assert player_groups(new_model(), tiny_task(), 4, store=store) == groups
    assert path.read_bytes() != b"torn"
