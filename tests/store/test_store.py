"""The store: whole or not at all, and nothing trusted that it reads."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import re
import time
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.expected_errors import raises

from headlab.core import Head, HeadGrid, HeadlabError, Stack, canonical_json, content_key
from headlab.methods import remarks
from headlab.methods.costs import stopped_at_sign, target_half_width_of
from headlab.results import MAX_ARRAY_BYTES, RESULT_FORMAT, Curve, HeadScores, Store, read_arrays

GRID = HeadGrid((Stack("encoder", (2, 3)),))


def spec_of(language: str = "de", seed: int = 0) -> dict[str, Any]:
    return {
        "format": RESULT_FORMAT,
        "model": {"name": "m", "revision": "r", "fingerprint": "f"},
        "task": {
            "name": "t",
            "language": language,
            "split": "dev",
            "size": 5,
            "seed": 0,
            "data_hash": "h",
        },
        "ablation": "zero",
        "method": {"name": "shapley", "options": {}},
        "seed": seed,
    }


def scores_of(spec: dict[str, Any]) -> HeadScores:
    rng = np.random.default_rng(spec["seed"])
    values = rng.normal(size=5)
    samples = np.arange(5, dtype=np.int64)
    return HeadScores(
        GRID,
        spec["task"]["language"],
        "shapley",
        values,
        "shapley-top50",
        "accuracy",
        10,
        1.5,
        values - 0.1,
        values + 0.2,
        samples,
        np.full(5, 0.5),
        0.95,
        spec,
    )


def write_scores(root: Path, spec: dict[str, Any]) -> Path:
    stored_run = Store(root).run(spec)
    stored_run.finish(scores_of(spec), {"versions": {"headlab": "x"}})
    return stored_run.folder


def test_scores_come_back_as_they_were(tmp_path: Path) -> None:
    spec = spec_of()
    write_scores(tmp_path, spec)
    (result,) = Store(tmp_path).scan().results
    scores = scores_of(spec)
    for name in ("values", "low", "high", "samples", "p_values"):
        stored_array = getattr(result.record, name)
        assert np.array_equal(stored_array, getattr(scores, name))
    assert result.record.spec == spec
    assert result.record.seconds == 1.5
    assert result.record.estimand == "shapley-top50"
    assert result.meta["versions"]["headlab"] == "x"
    assert Store(tmp_path).find(method="shapley", language="de") != []
    assert Store(tmp_path).find(language="th") == []


def test_tasks_models_and_adapters_beside_the_runs_are_no_damaged_results(tmp_path: Path) -> None:
    """Pages advised to delete the folder of the tasks that they had saved."""
    for name in ("tasks", "models", "adapters"):
        (tmp_path / name / "mine").mkdir(parents=True)
    assert Store(tmp_path).scan().problems == ()


def test_a_store_reads_again_only_what_has_changed(tmp_path: Path) -> None:
    changed_folder = write_scores(tmp_path, spec_of(seed=0))
    unchanged_folder = write_scores(tmp_path, spec_of(seed=1))
    for file in tmp_path.glob("*/*"):
        os.utime(file, ns=(0, 0))
    store = Store(tmp_path)
    result_by_folder = {result.folder: result for result in store.scan().results}
    changed_file = changed_folder / "result.npz"
    changed_file.write_bytes(b"x" * changed_file.stat().st_size)  # as long as it was, and in place
    os.utime(changed_file, ns=(1, 1))
    listing = store.scan()
    (result,) = listing.results
    assert result is result_by_folder[unchanged_folder]
    assert len(listing.problems) == 1
    changed_file.unlink()
    folders = [result.folder for result in store.scan().results]
    assert folders == [unchanged_folder]


def test_what_was_written_just_now_is_not_cached(tmp_path: Path) -> None:
    """A file's time has steps: one that is changed twice within a step keeps time and size."""
    file = write_scores(tmp_path, spec_of()) / "result.npz"
    store = Store(tmp_path)
    future = time.time_ns() + 10**12  # however slow this machine is
    os.utime(file, ns=(future, future))
    assert store.scan().results
    file.write_bytes(b"x" * file.stat().st_size)
    os.utime(file, ns=(future, future))
    assert store.scan().problems


def test_what_a_store_gives_cannot_be_written_to(tmp_path: Path) -> None:
    write_scores(tmp_path, spec_of())
    (result,) = Store(tmp_path).scan().results
    with pytest.raises(ValueError, match="read-only"):
        result.record.values[0] = 0


def test_heads_of_three_stacks_come_back_as_heads_of_the_same_stacks(tmp_path: Path) -> None:
    stacks = (
        Stack("encoder", (2,)),
        Stack("decoder", (3,)),
        Stack("cross", (1,)),
    )
    grid = HeadGrid(stacks)
    scores = replace(
        scores_of(spec_of()),
        grid=grid,
        values=np.arange(6.0),
        low=None,
        high=None,
        samples=None,
        p_values=None,
    )
    Store(tmp_path).run(spec_of()).finish(scores, {})
    (result,) = Store(tmp_path).scan().results
    assert result.record.grid == grid
    assert result.record.grid.heads[2] == Head("decoder", 0, 0)


def test_equal_specs_share_a_folder_others_do_not(tmp_path: Path) -> None:
    same_spec = dict(reversed(spec_of().items()))
    specs = (
        spec_of(),
        same_spec,
        spec_of("th"),
        spec_of(seed=1),
    )
    folders = {write_scores(tmp_path, spec) for spec in specs}
    assert len(folders) == 3


@pytest.mark.parametrize("size", [0, 1, 100, 400])
def test_a_torn_result_becomes_a_sentence(tmp_path: Path, size: int) -> None:
    sound_folder = write_scores(tmp_path, spec_of())
    torn_folder = write_scores(tmp_path, spec_of("th"))
    tear(torn_folder, size)
    listing = Store(tmp_path).scan()
    assert [r.folder for r in listing.results] == [sound_folder]
    (problem,) = listing.problems
    assert torn_folder.name in problem
    assert "run the score again" in problem
    with raises("arrays.torn"):
        Store(tmp_path).run(spec_of("th")).result(HeadScores)


def tear(folder: Path, size: int) -> None:
    """Cut a result's file off after some bytes."""
    path = folder / "result.npz"
    path.write_bytes(path.read_bytes()[:size])


def test_foreign_older_and_renamed_folders_become_sentences(tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    folder = write_scores(tmp_path, spec_of())
    folder.rename(tmp_path / ("0" * 64))
    older_folder = write_scores(tmp_path, spec_of("th"))
    (older_folder / "spec.json").write_text('{"format": 0}')
    listing = Store(tmp_path).scan()
    assert listing.results == ()
    assert len(listing.problems) == 3
    assert any("format 0" in p for p in listing.problems)


def test_swapped_values_are_noticed(tmp_path: Path) -> None:
    folder = write_scores(tmp_path, spec_of())
    other_folder = write_scores(tmp_path, spec_of("th"))
    (folder / "result.npz").write_bytes((other_folder / "result.npz").read_bytes())
    assert "do not match" in Store(tmp_path).scan().problems[0]


def test_pickles_are_never_read(tmp_path: Path) -> None:
    folder = write_scores(tmp_path, spec_of())
    array_of_objects = np.array([{"a": 1}], dtype=object)
    np.savez(folder / "result.npz", about=array_of_objects)
    assert "damaged or is not an npz" in Store(tmp_path).scan().problems[0]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, 3000), byte=st.integers(0, 255))
def test_fuzz_a_changed_byte_never_crashes(tmp_path: Path, position: int, byte: int) -> None:
    path = write_scores(tmp_path, spec_of()) / "result.npz"
    data = bytearray(path.read_bytes())
    data[position % len(data)] = byte
    path.write_bytes(bytes(data))
    listing = Store(tmp_path).scan()
    if listing.results:
        stored_values = listing.results[0].record.values
        expected_values = scores_of(spec_of()).values
        assert np.array_equal(stored_values, expected_values)


def raise_no_space(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_space_is_a_sentence_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_scores(tmp_path, spec_of())
    monkeypatch.setattr(os, "fsync", raise_no_space)
    with raises("file.no_space"):
        Store(tmp_path).run(spec_of()).finish(scores_of(spec_of()), {})
    monkeypatch.undo()
    names = [path.name for path in folder.iterdir()]
    assert [name for name in names if name.endswith(".tmp")] == []
    assert len(Store(tmp_path).scan().results) == 1


def test_two_processes_leave_one_good_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    arguments = (tmp_path, spec_of())
    processes = [context.Process(target=write_scores, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    listing = Store(tmp_path).scan()
    assert len(listing.results) == 1
    assert listing.problems == ()


def test_a_torn_checkpoint_starts_over_and_says_so(tmp_path: Path) -> None:
    stored_run = Store(tmp_path).run(spec_of())
    stored_run.save({"counts": np.arange(3)})
    assert np.array_equal((stored_run.checkpoint() or {})["counts"], np.arange(3))
    (stored_run.folder / "checkpoint.npz").write_bytes(b"PK\x03\x04 torn")
    assert stored_run.checkpoint() is None
    assert "checkpoint skipped" in (stored_run.folder / "log.txt").read_text()


# Pruning curves in the same folder


def curve_spec_of(language: str = "de", seed: int = 0) -> dict[str, Any]:
    spec = spec_of(language, seed)
    del spec["method"]
    spec["task"] |= {"split": "test"}
    return spec | {
        "kind": "curve",
        "order": {"method": "shapley", "values_sha256": "v"},
        "removed": [0, 2, 5],
    }


def curve_of(spec: dict[str, Any]) -> Curve:
    rng = np.random.default_rng(spec["seed"])
    low = rng.normal(size=3)
    return Curve(
        GRID,
        spec["task"]["language"],
        "test",
        "shapley",
        rng.permutation(5),
        np.array([0, 2, 5]),
        rng.random((3, 21)) < 0.5,
        np.repeat(np.arange(7), 3),
        low,
        low + 1,
        rng.random(3),
        63,
        2.5,
        "beware",
        spec,
    )


def write_curve(root: Path, spec: dict[str, Any]) -> Path:
    stored_run = Store(root).run(spec)
    stored_run.finish(curve_of(spec), {"versions": {"headlab": "x"}})
    return stored_run.folder


CURVE_ARRAYS = ("order", "removed", "correct", "groups", "low", "high", "p_values")


def test_a_curve_comes_back_as_it_was(tmp_path: Path) -> None:
    spec = curve_spec_of()
    folder = write_curve(tmp_path, spec)
    listing = Store(tmp_path).curves()
    (result,) = listing.results
    curve = curve_of(spec)
    for name in CURVE_ARRAYS:
        array = getattr(curve, name)
        stored_array = getattr(result.record, name)
        assert stored_array.dtype == array.dtype
        assert np.array_equal(stored_array, array), name
    for field in fields(Curve):
        if field.name not in CURVE_ARRAYS:
            stored_value = getattr(result.record, field.name)
            assert stored_value == getattr(curve, field.name), field.name
    assert result.key == folder.name
    assert result.folder == folder
    assert listing.problems == ()
    assert result.meta == {"versions": {"headlab": "x"}}
    stored_run = Store(tmp_path).run(spec)
    assert stored_run.result(Curve) is not None
    run_of_thai = Store(tmp_path).run(curve_spec_of("th"))
    assert run_of_thai.result(Curve) is None


def test_scores_and_curves_are_listed_apart(tmp_path: Path) -> None:
    scores_folder = write_scores(tmp_path, spec_of())
    curve_folder = write_curve(tmp_path, curve_spec_of())
    run_of_another_kind = Store(tmp_path).run({"format": RESULT_FORMAT, "kind": "finetune"})
    run_of_another_kind.make_folder()
    (run_of_another_kind.folder / "result.npz").write_bytes(b"of another kind")
    unfinished_run = Store(tmp_path).run(curve_spec_of("th"))
    unfinished_run.save({"done": np.array(1)})
    scores = Store(tmp_path).scan()
    curves = Store(tmp_path).curves()
    assert [result.folder for result in scores.results] == [scores_folder]
    assert scores.problems == ()
    assert [result.folder for result in curves.results] == [curve_folder]
    assert curves.problems == ()
    with raises("result.other_kind", "curve", "scores"):
        Store(tmp_path).run(curve_spec_of()).result(HeadScores)
    with raises("result.other_kind", "score", "a curve"):
        Store(tmp_path).run(spec_of()).result(Curve)


def test_a_torn_spec_is_told_once(tmp_path: Path) -> None:
    folder = write_curve(tmp_path, curve_spec_of())
    (folder / "spec.json").write_text('{"format"')
    assert Store(tmp_path).curves().problems == ()
    assert len(Store(tmp_path).scan().problems) == 1


@pytest.mark.parametrize("size", [0, 1, 100, 400, 1500])
def test_a_torn_curve_becomes_a_sentence(tmp_path: Path, size: int) -> None:
    sound_folder = write_curve(tmp_path, curve_spec_of())
    torn_folder = write_curve(tmp_path, curve_spec_of("th"))
    tear(torn_folder, size)
    listing = Store(tmp_path).curves()
    assert [r.folder for r in listing.results] == [sound_folder]
    (problem,) = listing.problems
    assert torn_folder.name in problem
    assert "run the curve again" in problem
    assert Store(tmp_path).scan().problems == ()


def spoil(path: Path, fields: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Rewrite a result with other arrays, None removing one, and other fields in its text."""
    with np.load(path) as file:
        stored_arrays = {**file}
    text = json.loads(str(stored_arrays["about"])) | fields
    stored_arrays["about"] = np.array(json.dumps(text))
    new_arrays = {}
    for name, array in (stored_arrays | arrays).items():
        if array is not None:
            new_arrays[name] = array
    np.savez(path, **new_arrays)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("low", [0, 0, 0, 9, 0], "the interval of head 3 has its low end, 9, above"),
        ("p_values", [0, 1, 0.5, 0.5, 7], "the p-value of head 4 is 7, not from 0 to 1"),
        ("p_values", [-0.1, 1, 0.5, 0.5, 0.5], "the p-value of head 0 is -0.1"),
    ],
)
def test_impossible_intervals_and_p_values_are_neither_read_nor_stored(
    tmp_path: Path, name: str, values: list[float], message: str
) -> None:
    folder = write_scores(tmp_path, spec_of())
    array = np.array(values, np.float64)
    spoil(folder / "result.npz", {}, {name: array})
    (problem,) = Store(tmp_path).scan().problems
    assert message in problem
    stored_run = Store(tmp_path).run(spec_of("th"))
    impossible_scores = replace(scores_of(spec_of("th")), **{name: array})
    with pytest.raises(HeadlabError, match=re.escape(message)):
        stored_run.finish(impossible_scores, {})
    assert not (stored_run.folder / "result.npz").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("low", 9.0),
        ("low", np.nan),
        ("p_values", 7.0),
        ("p_values", np.nan),
    ],
)
def test_a_curve_with_an_impossible_interval_or_p_value_is_not_stored(
    tmp_path: Path, name: str, value: float
) -> None:
    curve = curve_of(curve_spec_of())
    array = getattr(curve, name).copy()
    array[1] = value
    stored_run = Store(tmp_path).run(curve.spec)
    with pytest.raises(HeadlabError, match=r"of point 1 "):
        stored_run.finish(replace(curve, **{name: array}), {})
    assert not (stored_run.folder / "result.npz").exists()


BAD_ARRAYS = {
    "a head twice": {"order": np.array([0, 1, 2, 3, 3])},
    "a head too few": {"order": np.arange(4)},
    "counts that fall": {"removed": np.array([0, 5, 2])},
    "counts that stay": {"removed": np.array([0, 5, 5])},
    "counts that begin late": {"removed": np.array([1, 2, 5])},
    "counts that end early": {"removed": np.array([0, 2, 4])},
    "one count": {"removed": np.array(5)},
    "no answers": {"groups": np.zeros(0, np.int64)},
    "a group below 0": {"groups": np.full(21, -1)},
    "answers of another type": {"correct": np.zeros((3, 21), bool)},
    "too few answers": {"correct": np.zeros((3, 2), np.uint8)},
    "answers of too few points": {"correct": np.zeros((2, 3), np.uint8)},
    "an interval that is no number": {"low": np.array([0.0, np.nan, 0.0])},
    "p-values without end": {"p_values": np.array([0.0, np.inf, 0.0])},
    "p-values of one precision less": {"p_values": np.zeros(3, np.float32)},
    "no interval": {"high": None},
    "no text": {"about": None},
    "text in a list": {"about": np.array(["{}"])},
    "text of numbers": {"about": np.array(3)},
}


@pytest.mark.parametrize("arrays", BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_a_curve_whose_arrays_do_not_fit_becomes_a_sentence(
    tmp_path: Path, arrays: dict[str, Any]
) -> None:
    folder = write_curve(tmp_path, curve_spec_of())
    spoil(folder / "result.npz", {}, arrays)
    listing = Store(tmp_path).curves()
    assert listing.results == ()
    assert "Delete that folder" in listing.problems[0]
    # this is checked before hashes are compared
    assert "do not match the stored checksum" not in listing.problems[0]


BAD_FIELDS = {
    "a language that is a number": {"language": 3},
    "another language": {"language": "th"},
    "another split": {"split": "dev"},
    "another ordering": {"ordering": "random"},
    "time as text": {"seconds": "long"},
    "forwards in parts": {"example_forwards": 1.5},
    "a caution that is none": {"caution": None},
    "no grid": {"grid": None},
    "a grid of numbers": {"grid": [2, 3]},
    "a grid that goes below 0": {"grid": {"encoder": [-1, 6]}},
    "a grid larger than the world": {"grid": {"encoder": [10**12]}},
    "a grid without heads": {"grid": {"encoder": []}},
    "notes that are none": {"meta": []},
    "another hash": {"values_sha256": "0" * 64},
}


@pytest.mark.parametrize("fields", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_curve_whose_text_does_not_fit_becomes_a_sentence(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    folder = write_curve(tmp_path, curve_spec_of())
    spoil(folder / "result.npz", fields, {})
    listing = Store(tmp_path).curves()
    assert listing.results == ()
    assert "Delete that folder" in listing.problems[0]


BAD_SCORE_FIELDS = {
    title: values
    for title, values in BAD_FIELDS.items()
    if set(values) <= {"language", "seconds", "grid", "meta"}
}


@pytest.mark.parametrize("fields", BAD_SCORE_FIELDS.values(), ids=BAD_SCORE_FIELDS)
def test_scores_whose_text_does_not_fit_become_a_sentence(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    folder = write_scores(tmp_path, spec_of())
    spoil(folder / "result.npz", fields, {})
    listing = Store(tmp_path).scan()
    assert listing.results == ()
    assert "Delete that folder" in listing.problems[0]


BAD_SPECS: dict[str, Any] = {
    "no model": {"model": None},
    "a model without a name": {"model": {"fingerprint": "f"}},
    "a task without data": {"task": {"name": "t", "language": "de", "split": "test"}},
    "no ablation": {"ablation": None},
    "an order that is text": {"order": "shapley"},
    "no counts": {"removed": None},
    "half a letter": {"model": {"name": "\ud800", "fingerprint": "f"}},
}


@pytest.mark.parametrize("spec", BAD_SPECS.values(), ids=BAD_SPECS)
def test_a_folder_rightly_named_for_a_spec_that_says_too_little_becomes_a_sentence(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """Anybody can name a folder by a hash; pages read fields of the spec."""
    curve_folder = write_curve(tmp_path, curve_spec_of())
    wrong_spec = curve_spec_of() | spec
    text = canonical_json(wrong_spec)
    name = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    folder = curve_folder.rename(tmp_path / name)
    (folder / "spec.json").write_text(json.dumps(wrong_spec))
    listing = Store(tmp_path).curves()
    assert listing.results == ()
    assert "Delete that folder" in listing.problems[0]
    assert Store(tmp_path).find(model="m") == []


SPECS_NEVER_WRITTEN: dict[str, Any] = {
    "a size that is text": {"task": {**spec_of()["task"], "size": "mean"}},
    "a size that is a list": {"task": {**spec_of()["task"], "size": [5]}},
    "a seed that is text": {"seed": "zero"},
    "a dtype that is a number": {"model": {**spec_of()["model"], "dtype": 16}},
    "a method without options": {"method": {"name": "shapley"}},
    "options that are a list": {"method": {"name": "shapley", "options": []}},
}


@pytest.mark.parametrize("changes", SPECS_NEVER_WRITTEN.values(), ids=SPECS_NEVER_WRITTEN)
def test_reported_19_a_spec_that_headlab_never_wrote_becomes_a_sentence(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """It does although its folder has the right name: pages, reports and commands rely on specs."""
    scores_folder = write_scores(tmp_path, spec_of())
    wrong_spec = spec_of() | changes
    folder = scores_folder.rename(tmp_path / content_key(wrong_spec))
    (folder / "spec.json").write_text(json.dumps(wrong_spec))
    listing = Store(tmp_path).scan()
    assert listing.results == ()
    assert "its spec" in listing.problems[0]


def npy_file(header: str) -> bytes:
    """An npy file of 16 bytes of data with a header that may claim more."""
    line = header.ljust(117) + "\n"
    length = len(line).to_bytes(2, "little")
    return b"\x93NUMPY\x01\x00" + length + line.encode("latin1") + bytes(16)


def npy_file_of(dtype: str, shape: str) -> bytes:
    return npy_file(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}")


BOMBS: dict[str, bytes] = {
    "more room than there is": npy_file_of("<f8", "(1000000000000,)"),
    "a shape that wraps around": npy_file_of("<f8", "(4294967296, 4294967296)"),
    "less than nothing": npy_file_of("<f8", "(-2, -1)"),
    "things instead of numbers": npy_file_of("|O", "(2,)"),
    "a thousand billion empty texts": npy_file_of("<U0", "(1000000000000,)"),
    "code": npy_file("__import__('os').abort()"),
    "an open bracket": npy_file("((((((((("),
    "no header": b"\x93NUMPY\x01\x00\xff\xff",
    "another version": b"\x93NUMPY\x03\x00" + bytes(64),
    "no array": b"hello",
    "nothing": b"",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_an_array_that_claims_too_much_is_refused_before_room_is_made(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "result.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("low.npy", data)
    with raises("arrays.torn"):
        read_arrays(path)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("low.npy", bytes(MAX_ARRAY_BYTES + 1))
    assert path.stat().st_size < 1 << 20
    with raises("arrays.too_large", 64):
        read_arrays(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compressed_archive_is_none_of_ours(tmp_path: Path, method: int) -> None:
    path = tmp_path / "result.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("low.npy", bytes(100))
    with raises("arrays.torn"):
        read_arrays(path)


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
@pytest.mark.parametrize("kind", ["scores", "curve"])
def test_every_byte_changed_in_turn_crashes_nothing(tmp_path: Path, kind: str, flip: int) -> None:
    """A result that can be read all the same holds the numbers that were written."""
    store = Store(tmp_path)
    if kind == "curve":
        spec = curve_spec_of()
        record_type = Curve
        values_sha256 = curve_of(spec).values_sha256()
        folder = write_curve(tmp_path, spec)
    else:
        spec = spec_of()
        record_type = HeadScores
        values_sha256 = scores_of(spec).values_sha256()
        folder = write_scores(tmp_path, spec)
    path = folder / "result.npz"
    data = path.read_bytes()
    refusals = 0
    step = 3 if flip == 0xFF else 11
    for offset in range(0, len(data), step):
        changed_data = bytearray(data)
        changed_data[offset] ^= flip
        path.write_bytes(changed_data)
        try:
            result = store.run(spec).result(record_type)
        except HeadlabError:
            refusals += 1
            continue
        assert result is not None
        assert result.record.values_sha256() == values_sha256
    assert refusals > 100


def test_no_space_for_a_curve_leaves_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_run = Store(tmp_path).run(curve_spec_of())
    stored_run.save({"done": np.array(7)})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raise_no_space)
        with raises("file.no_space"):
            stored_run.finish(curve_of(curve_spec_of()), {})
    names = sorted(path.name for path in stored_run.folder.iterdir())
    assert names == ["checkpoint.npz", "spec.json"]
    checkpoint = stored_run.checkpoint() or {}
    assert int(checkpoint["done"]) == 7
    stored_run.finish(curve_of(curve_spec_of()), {})
    names = sorted(path.name for path in stored_run.folder.iterdir())
    assert names == ["result.npz", "spec.json"]


def test_scores_that_are_no_numbers_are_not_stored(tmp_path: Path) -> None:
    low = np.array([0.0, np.nan, 0.0, 0.0, 0.0])
    scores = replace(scores_of(spec_of()), low=low)
    stored_run = Store(tmp_path).run(spec_of())
    with raises("score.method_not_finite", "de"):
        stored_run.finish(scores, {})
    assert not stored_run.is_finished


def test_a_checkpoint_of_another_run_is_not_resumed(tmp_path: Path) -> None:
    stored_run = Store(tmp_path).run(spec_of())
    other_run = Store(tmp_path).run(spec_of("th"))
    stored_run.save({"counts": np.arange(3)})
    other_run.save({"counts": np.arange(3)})
    assert set(stored_run.checkpoint() or {}) == {"counts"}
    checkpoint = stored_run.folder / "checkpoint.npz"
    checkpoint.write_bytes((other_run.folder / "checkpoint.npz").read_bytes())
    assert stored_run.checkpoint() is None
    log = (stored_run.folder / "log.txt").read_text()
    assert "checkpoint skipped: checkpoint.npz is another run's" in log
    np.savez(checkpoint, counts=np.arange(3))
    assert stored_run.checkpoint() is None


def test_a_spec_that_was_changed_is_written_again_and_the_log_says_so(tmp_path: Path) -> None:
    stored_run = Store(tmp_path).run(spec_of())
    stored_run.make_folder()
    assert not (stored_run.folder / "log.txt").exists()
    spec_file = stored_run.folder / "spec.json"
    for text in (canonical_json(spec_of("th")), "{"):
        spec_file.write_text(text)
        stored_run.make_folder()
        assert json.loads(spec_file.read_text()) == spec_of()
    assert (stored_run.folder / "log.txt").read_text().count("spec.json written again") == 2


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    stored_run = Store(tmp_path).run(spec_of())
    stored_run.make_folder()
    os.mkfifo(stored_run.folder / "result.npz")
    os.mkfifo(stored_run.folder / "checkpoint.npz")
    assert stored_run.checkpoint() is None
    assert "missing or is not a file" in Store(tmp_path).scan().problems[0]


def test_a_checkpoint_that_cannot_go_does_not_undo_the_result(tmp_path: Path) -> None:
    stored_run = Store(tmp_path).run(spec_of())
    stored_run.make_folder()
    (stored_run.folder / "checkpoint.npz").mkdir()
    stored_run.finish(scores_of(spec_of()), {})
    assert len(Store(tmp_path).scan().results) == 1
    assert "checkpoint.npz stays" in (stored_run.folder / "log.txt").read_text()


@pytest.mark.parametrize(
    "options",
    [
        {"target": [1]},
        {"samples": "mean"},
        {"target": "x", "stop": "sign"},
    ],
)
def test_reported_19_options_that_are_no_numbers_count_as_none(options: dict[str, Any]) -> None:
    scores = scores_of(spec_of())
    spec = {**spec_of(), "method": {"name": "shapley", "options": options}}
    scores_with_options = replace(scores, spec=spec)
    assert target_half_width_of(scores_with_options) == target_half_width_of(scores)
    assert not stopped_at_sign(scores_with_options).any()
    assert remarks([scores_with_options]) == remarks([scores])
