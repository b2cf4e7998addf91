"""Learned gates in the store: as they were written, or a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises

from headlab.core import HeadGrid, Stack, content_key
from headlab.results import (
    GATES_KIND,
    RESULT_FORMAT,
    HardConcrete,
    HeadScores,
    LearnedGates,
    Store,
    trained_folder,
)

GRID = HeadGrid((Stack("encoder", (2, 3)), Stack("cross", (2,))))
HEADS_WITH_GATES = [0, 2, 3, 6]  # heads 1, 4 and 5 have no gate


def spec_of(language: str = "de", weight: float = 0.02, seed: int = 0) -> dict[str, Any]:
    return {
        "format": RESULT_FORMAT,
        "kind": GATES_KIND,
        "version": 1,
        "model": {"name": "m", "revision": "r", "fingerprint": "f"},
        "task": {
            "name": "t",
            "language": language,
            "split": "train",
            "size": 5,
            "seed": 0,
            "data_hash": "h",
        },
        "judged": {},
        "ablation": "zero",
        "options": {"weight": weight},
        "seed": seed,
    }


def gates_of(spec: dict[str, Any]) -> LearnedGates:
    rng = np.random.default_rng(spec["seed"])
    log_alpha = np.full((3, GRID.size), np.nan, np.float32)
    log_alpha[:, HEADS_WITH_GATES] = rng.normal(0, 3, (3, len(HEADS_WITH_GATES)))
    return LearnedGates(
        GRID,
        spec["task"]["language"],
        np.array([0, 5, 9]),
        log_alpha,
        np.array([np.nan, 0.7, 0.1 + 0.2]),
        np.array([0.1, 0.08, 0.05]),
        spec["options"]["weight"],
        123,
        4.5,
        HardConcrete(0.5, -0.2, 1.3),
        {"dev": {"n": 9, "accuracy": 0.5, "low": -0.1}},
        spec,
        {"name": "m2", "fingerprint": "f2", "folder": "model"},
        ("know this",),
    )


def write_gates(root: Path, spec: dict[str, Any]) -> Path:
    stored_run = Store(root).run(spec)
    stored_run.finish(gates_of(spec), {"created": "today", "step_seconds": 0.5})
    return stored_run.folder


ARRAY_FIELDS = ("steps", "log_alpha", "loss", "penalty")
OTHER_FIELDS = (
    "grid",
    "language",
    "weight",
    "example_forwards",
    "seconds",
    "concrete",
    "measured",
    "spec",
    "trained",
    "notes",
)


def assert_equal_gates(gates: LearnedGates, copy: LearnedGates) -> None:
    for name in OTHER_FIELDS:
        assert getattr(gates, name) == getattr(copy, name), name
    for name in ARRAY_FIELDS:
        assert np.array_equal(getattr(gates, name), getattr(copy, name), equal_nan=True), name


def test_gates_come_back_as_they_were(tmp_path: Path) -> None:
    spec = spec_of()
    folder = write_gates(tmp_path, spec)
    (result,) = Store(tmp_path).gates().results
    assert_equal_gates(result.record, gates_of(spec_of()))
    assert (result.key, result.folder, result.meta["step_seconds"]) == (folder.name, folder, 0.5)
    assert np.flatnonzero(result.record.has_gate).tolist() == HEADS_WITH_GATES
    assert result.record.has_gate.shape == (GRID.size,)
    assert result.record.log_alpha.dtype == np.float32
    result_of_run = Store(tmp_path).run(spec).result(LearnedGates)
    assert result_of_run is not None
    assert_equal_gates(result_of_run.record, gates_of(spec_of()))
    assert Store(tmp_path).run(spec_of(seed=1)).result(LearnedGates) is None


def test_gates_are_listed_apart_from_scores_curves_and_reports(tmp_path: Path) -> None:
    write_gates(tmp_path, spec_of())
    store = Store(tmp_path)
    for listing in (store.scan(), store.curves(), store.reports()):
        assert (listing.results, listing.problems) == ((), ())
    with raises("result.other_kind", "gates", "scores"):
        store.run(spec_of()).result(HeadScores)


def test_a_finished_run_leaves_no_checkpoint(tmp_path: Path) -> None:
    stored_run = Store(tmp_path).run(spec_of())
    stored_run.make_folder()
    for name in ("checkpoint.npz", "checkpoint.safetensors"):
        (stored_run.folder / name).write_bytes(b"state")
    stored_run.finish(gates_of(spec_of()), {})
    assert sorted(p.name for p in stored_run.folder.iterdir()) == ["result.npz", "spec.json"]


def test_the_trained_model_is_found_below_the_run_only(tmp_path: Path) -> None:
    folder = write_gates(tmp_path, spec_of())
    (result,) = Store(tmp_path).gates().results
    assert trained_folder(result) is None
    (folder / "model").mkdir()
    assert trained_folder(result) == folder / "model"
    for name in ("", "..", "../model", str(tmp_path), 3):
        elsewhere = replace(result, record=replace(result.record, trained={"folder": name}))
        assert trained_folder(elsewhere) is None


def test_a_mask_says_which_gates_it_is_of(tmp_path: Path) -> None:
    gates = gates_of(spec_of())
    for time in (0, 1, -1):
        mask = gates.mask(time)
        log_alpha = gates.log_alpha[time]
        more_often_zero = gates.concrete.probability_zero(
            log_alpha
        ) > gates.concrete.probability_one(log_alpha)
        assert mask.kept.tolist() == (~more_often_zero).tolist()
        assert (mask.chosen["weight"], mask.chosen["step"]) == (0.02, int(gates.steps[time]))
        assert mask.model == {"name": "m2", "fingerprint": "f2"}
    assert replace(gates, trained={}).mask().model["name"] == "m"
    assert gates.mask().kept[[1, 4, 5]].all()
    assert gates.kept_by_stack()["encoder"] == (int(gates.kept[:5].sum()), 5)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"penalty": np.array([0.1, np.inf, 0.0])}, "gate.not_finite"),
        ({"loss": np.array([np.nan, np.nan, 1.0])}, "gate.not_finite"),
        ({"measured": {"dev": np.nan}}, "gate.measured_unstorable"),
    ],
)
def test_gates_that_are_no_numbers_are_not_stored(
    tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    with raises(code):
        Store(tmp_path).run(spec_of()).finish(replace(gates_of(spec_of()), **change), {})
    assert list(tmp_path.iterdir()) == []


def spoil(folder: Path, fields: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Rewrite a result with other arrays, None removing one, and other fields in its text."""
    with np.load(folder / "result.npz") as file:
        all_arrays = {**file, **arrays}
    text = json.loads(str(all_arrays["about"])) | fields
    all_arrays["about"] = np.array(json.dumps(text))
    remaining = {name: array for name, array in all_arrays.items() if array is not None}
    np.savez(folder / "result.npz", **remaining)


BAD_GATES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no losses": ({}, {"loss": None}, "lacks loss"),
    "a gate too many": (
        {},
        {"gated": np.array([0, 2, 3, 7])},
        "do not belong to the heads of its grid",
    ),
    "a head twice": (
        {},
        {"gated": np.array([0, 2, 2, 6])},
        "do not belong to the heads of its grid",
    ),
    "no gates": (
        {},
        {"gated": np.array([], np.int64), "log_alpha": np.zeros((3, 0), np.float32)},
        "do not belong",
    ),
    "steps that fall": ({}, {"steps": np.array([0, 9, 5])}, "do not rise from 0"),
    "steps from 1": ({}, {"steps": np.array([1, 5, 9])}, "do not rise from 0"),
    "one time": (
        {},
        {
            "steps": np.array([0]),
            "log_alpha": np.zeros((1, 4), np.float32),
            "loss": np.zeros(0),
            "penalty": np.zeros(1),
        },
        "do not rise from 0",
    ),
    "a short history": ({}, {"log_alpha": np.zeros((2, 4), np.float32)}, "its log_alpha is"),
    "wide gates": ({}, {"log_alpha": np.zeros((3, 4))}, "its log_alpha is"),
    "a gate that is no number": (
        {},
        {"log_alpha": np.full((3, 4), np.nan, np.float32)},
        "not a number",
    ),
    "other losses": ({}, {"loss": np.array([1.0, 2.0])}, "do not match"),
    "steps without end": ({}, {"steps": np.array(3)}, "its steps is"),
    "another language": ({"language": "th"}, {}, "do not match"),
    "another weight": ({"weight": 0.5}, {}, "do not match"),
    "a weight in words": ({"weight": "much"}, {}, "its weight is 'much'"),
    "another distribution": (
        {"concrete": {"temperature": 0.3, "low": 0.1, "high": 1.1}},
        {},
        "its distribution",
    ),
    "half a distribution": ({"concrete": {"temperature": 0.3}}, {}, "its distribution"),
    "a distribution that no float holds": (
        {"concrete": {"temperature": 0.33, "low": -1e17, "high": 1.1}},
        {},
        "make no gates that can be computed",
    ),
    "a weight that no float holds": (
        {"weight": 10**400},
        {},
        "its weight is too large for a float",
    ),
    "seconds that no float holds": (
        {"seconds": -(10**400)},
        {},
        "its seconds is too large for a float",
    ),
    "no distribution": ({"concrete": None}, {}, "its distribution"),
    "another measurement": (
        {"told": {"measured": {}, "trained": {}, "notes": []}},
        {},
        "what was measured",
    ),
    "no measurement": ({"told": None}, {}, "what was measured"),
    "half a letter": ({"told": {"notes": ["\ud800"]}}, {}, "what was measured"),
    "another grid": ({"grid": {"encoder": [2]}}, {}, "do not belong to the heads of its grid"),
    "no grid": ({"grid": []}, {}, "its grid is not"),
}


@pytest.mark.parametrize(("fields", "arrays", "reason"), BAD_GATES.values(), ids=BAD_GATES)
def test_gates_that_do_not_fit_become_a_sentence(
    tmp_path: Path, fields: dict[str, Any], arrays: dict[str, Any], reason: str
) -> None:
    sound_folder = write_gates(tmp_path, spec_of())
    bad_folder = write_gates(tmp_path, spec_of(seed=1))
    spoil(bad_folder, fields, arrays)
    listing = Store(tmp_path).gates()
    assert [r.folder for r in listing.results] == [sound_folder]
    (problem,) = listing.problems
    assert bad_folder.name in problem
    assert reason in problem
    assert "run the gates again" in problem


def test_the_measurements_are_checked_even_if_their_hash_fits(tmp_path: Path) -> None:
    folder = write_gates(tmp_path, spec_of())
    for measurements in (
        {"measured": [], "trained": {}, "notes": []},
        {"measured": {"dev": 3}, "trained": {}, "notes": []},
        {"measured": {}, "trained": [], "notes": []},
        {"measured": {}, "trained": {}, "notes": [3]},
        {"measured": {}},
    ):
        spoil(folder, {"told": measurements, "told_sha256": content_key(measurements)}, {})
        assert Store(tmp_path).gates().results == ()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_fuzz_a_changed_byte_of_gates_never_crashes(
    tmp_path: Path, position: int, byte: int
) -> None:
    path = write_gates(tmp_path, spec_of()) / "result.npz"
    data = bytearray(path.read_bytes())
    data[position % len(data)] = byte
    path.write_bytes(bytes(data))
    listing = Store(tmp_path).gates()
    assert len(listing.results) + len(listing.problems) == 1
    for result in listing.results:
        assert_equal_gates(result.record, gates_of(spec_of()))


@pytest.mark.parametrize("size", [0, 1, 200, 900])
def test_torn_gates_become_a_sentence(tmp_path: Path, size: int) -> None:
    path = write_gates(tmp_path, spec_of()) / "result.npz"
    path.write_bytes(path.read_bytes()[:size])
    assert len(Store(tmp_path).gates().problems) == 1
