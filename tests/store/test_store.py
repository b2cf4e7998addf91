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
from headlab.methods.costs import stopped_at_sign, target_of
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
    values = np.random.default_rng(spec["seed"]).normal(size=5)
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


def write(root: Path, spec: dict[str, Any]) -> Path:
    run = Store(root).run(spec)
    run.finish(scores_of(spec), {"versions": {"headlab": "x"}})
    return run.folder


def test_round_trip(tmp_path: Path) -> None:
    write(tmp_path, spec := spec_of())
    (result,) = Store(tmp_path).scan().results
    want = scores_of(spec)
    for name in ("values", "low", "high", "samples", "p_values"):
        assert np.array_equal(getattr(result.record, name), getattr(want, name))
    assert (result.record.spec, result.record.seconds, result.record.estimand) == (
        spec,
        1.5,
        "shapley-top50",
    )
    assert result.meta["versions"]["headlab"] == "x"
    assert Store(tmp_path).find(method="shapley", language="de") != []
    assert Store(tmp_path).find(language="th") == []


def test_a_store_reads_again_only_what_has_changed(tmp_path: Path) -> None:
    folders = [write(tmp_path, spec_of(seed=seed)) for seed in range(2)]
    for file in tmp_path.glob("*/*"):
        os.utime(file, ns=(0, 0))
    store = Store(tmp_path)
    before = {result.folder: result for result in store.scan().results}
    again = folders[0] / "result.npz"
    again.write_bytes(b"x" * again.stat().st_size)  # as long as it was, and in place
    os.utime(again, ns=(1, 1))
    listing = store.scan()
    assert [result is before[folders[1]] for result in listing.results] == [True]
    assert len(listing.problems) == 1
    again.unlink()
    assert [result.folder for result in store.scan().results] == [folders[1]]


def test_what_was_written_just_now_is_not_remembered(tmp_path: Path) -> None:
    """A file's time has steps: one that is changed twice within a step keeps time and size."""
    file = write(tmp_path, spec_of()) / "result.npz"
    store = Store(tmp_path)
    soon = time.time_ns() + 10**12  # however slow this machine is
    os.utime(file, ns=(soon, soon))
    assert store.scan().results
    file.write_bytes(b"x" * file.stat().st_size)
    os.utime(file, ns=(soon, soon))
    assert store.scan().problems


def test_what_a_store_gives_cannot_be_written_to(tmp_path: Path) -> None:
    write(tmp_path, spec_of())
    (result,) = Store(tmp_path).scan().results
    with pytest.raises(ValueError, match="read-only"):
        result.record.values[0] = 0


def test_heads_of_three_stacks_come_back_as_heads_of_the_same_stacks(tmp_path: Path) -> None:
    grid = HeadGrid((Stack("encoder", (2,)), Stack("decoder", (3,)), Stack("cross", (1,))))
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
    (found,) = Store(tmp_path).scan().results
    assert found.record.grid == grid
    assert found.record.grid.heads[2] == Head("decoder", 0, 0)


def test_equal_specs_share_a_folder_others_do_not(tmp_path: Path) -> None:
    folders = {
        write(tmp_path, spec)
        for spec in (spec_of(), dict(reversed(spec_of().items())), spec_of("th"), spec_of(seed=1))
    }
    assert len(folders) == 3


@pytest.mark.parametrize("keep", [0, 1, 100, 400])
def test_a_torn_result_becomes_a_sentence(tmp_path: Path, keep: int) -> None:
    good = write(tmp_path, spec_of())
    bad = write(tmp_path, spec_of("th"))
    data = (bad / "result.npz").read_bytes()
    (bad / "result.npz").write_bytes(data[:keep])
    listing = Store(tmp_path).scan()
    assert [r.folder for r in listing.results] == [good]
    assert len(listing.problems) == 1
    assert bad.name in listing.problems[0]
    assert "run the score again" in listing.problems[0]
    with raises("arrays.torn"):
        Store(tmp_path).run(spec_of("th")).result(HeadScores)


def test_foreign_older_and_renamed_folders_become_sentences(tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    folder = write(tmp_path, spec_of())
    folder.rename(tmp_path / ("0" * 64))
    older = write(tmp_path, spec_of("th"))
    (older / "spec.json").write_text('{"format": 0}')
    listing = Store(tmp_path).scan()
    assert listing.results == ()
    assert len(listing.problems) == 3
    assert any("format 0" in p for p in listing.problems)


def test_swapped_values_are_noticed(tmp_path: Path) -> None:
    one = write(tmp_path, spec_of())
    two = write(tmp_path, spec_of("th"))
    (one / "result.npz").write_bytes((two / "result.npz").read_bytes())
    assert "do not match" in Store(tmp_path).scan().problems[0]


def test_pickles_are_never_read(tmp_path: Path) -> None:
    folder = write(tmp_path, spec_of())
    np.savez(folder / "result.npz", about=np.array([{"a": 1}], dtype=object))
    assert "damaged or is not an npz" in Store(tmp_path).scan().problems[0]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 3000), byte=st.integers(0, 255))
def test_fuzz_a_changed_byte_never_crashes(tmp_path: Path, at: int, byte: int) -> None:
    folder = write(tmp_path, spec_of())
    data = bytearray((folder / "result.npz").read_bytes())
    data[at % len(data)] = byte
    (folder / "result.npz").write_bytes(bytes(data))
    listing = Store(tmp_path).scan()
    if listing.results:
        assert np.array_equal(listing.results[0].record.values, scores_of(spec_of()).values)


def test_no_space_is_a_sentence_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, spec_of())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises("file.no_space"):
        Store(tmp_path).run(spec_of()).finish(scores_of(spec_of()), {})
    monkeypatch.undo()
    assert [p.name for p in folder.iterdir() if p.name.endswith(".tmp")] == []
    assert len(Store(tmp_path).scan().results) == 1


def test_two_processes_leave_one_good_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write, args=(tmp_path, spec_of())) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    listing = Store(tmp_path).scan()
    assert (len(listing.results), listing.problems) == (1, ())


def test_a_torn_checkpoint_starts_over_and_says_so(tmp_path: Path) -> None:
    run = Store(tmp_path).run(spec_of())
    run.save({"counts": np.arange(3)})
    assert np.array_equal((run.checkpoint() or {})["counts"], np.arange(3))
    (run.folder / "checkpoint.npz").write_bytes(b"PK\x03\x04 torn")
    assert run.checkpoint() is None
    assert "checkpoint skipped" in (run.folder / "log.txt").read_text()


# Pruning curves in the same folder


def curve_spec_of(language: str = "de", seed: int = 0) -> dict[str, Any]:
    spec = {k: v for k, v in spec_of(language, seed).items() if k != "method"}
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
    run = Store(root).run(spec)
    run.finish(curve_of(spec), {"versions": {"headlab": "x"}})
    return run.folder


CURVE_ARRAYS = ("order", "removed", "correct", "groups", "low", "high", "p_values")


def test_a_curve_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = write_curve(tmp_path, spec := curve_spec_of())
    listing = Store(tmp_path).curves()
    (result,) = listing.results
    want = curve_of(spec)
    for name in CURVE_ARRAYS:
        got = getattr(result.record, name)
        assert got.dtype == getattr(want, name).dtype
        assert np.array_equal(got, getattr(want, name)), name
    for field in fields(Curve):
        if field.name not in CURVE_ARRAYS:
            assert getattr(result.record, field.name) == getattr(want, field.name), field.name
    assert (result.key, result.folder, listing.problems) == (folder.name, folder, ())
    assert result.meta == {"versions": {"headlab": "x"}}
    assert Store(tmp_path).run(spec).result(Curve) is not None
    assert Store(tmp_path).run(curve_spec_of("th")).result(Curve) is None


def test_scores_and_curves_are_listed_apart(tmp_path: Path) -> None:
    score = write(tmp_path, spec_of())
    curve = write_curve(tmp_path, curve_spec_of())
    other = Store(tmp_path).run({"format": RESULT_FORMAT, "kind": "finetune"})
    other.open()
    (other.folder / "result.npz").write_bytes(b"of another kind")
    begun = Store(tmp_path).run(curve_spec_of("th"))
    begun.save({"done": np.array(1)})
    scores = Store(tmp_path).scan()
    curves = Store(tmp_path).curves()
    assert ([r.folder for r in scores.results], scores.problems) == ([score], ())
    assert ([r.folder for r in curves.results], curves.problems) == ([curve], ())
    with raises("result.other_kind", "curve", "scores"):
        Store(tmp_path).run(curve_spec_of()).result(HeadScores)
    with raises("result.other_kind", "score", "a curve"):
        Store(tmp_path).run(spec_of()).result(Curve)


def test_a_torn_spec_is_told_once(tmp_path: Path) -> None:
    folder = write_curve(tmp_path, curve_spec_of())
    (folder / "spec.json").write_text('{"format"')
    assert Store(tmp_path).curves().problems == ()
    assert len(Store(tmp_path).scan().problems) == 1


@pytest.mark.parametrize("keep", [0, 1, 100, 400, 1500])
def test_a_torn_curve_becomes_a_sentence(tmp_path: Path, keep: int) -> None:
    good = write_curve(tmp_path, curve_spec_of())
    bad = write_curve(tmp_path, curve_spec_of("th"))
    (bad / "result.npz").write_bytes((bad / "result.npz").read_bytes()[:keep])
    listing = Store(tmp_path).curves()
    assert [r.folder for r in listing.results] == [good]
    assert len(listing.problems) == 1
    assert bad.name in listing.problems[0]
    assert "run the curve again" in listing.problems[0]
    assert Store(tmp_path).scan().problems == ()


def change(path: Path, about: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Rewrite a result with other arrays, and other fields in the text about it; None leaves one out."""
    with np.load(path) as file:
        held = {**file}
    text = json.loads(str(held["about"])) | about
    changed = held | {"about": np.array(json.dumps(text))} | arrays
    np.savez(path, **{name: array for name, array in changed.items() if array is not None})


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("low", [0, 0, 0, 9, 0], "the interval of head 3 has its low end, 9, above"),
        ("p_values", [0, 1, 0.5, 0.5, 7], "the p-value of head 4 is 7, not from 0 to 1"),
        ("p_values", [-0.1, 1, 0.5, 0.5, 0.5], "the p-value of head 0 is -0.1"),
    ],
)
def test_impossible_intervals_and_p_values_are_neither_read_nor_stored(
    tmp_path: Path, name: str, values: list[float], told: str
) -> None:
    folder = write(tmp_path, spec_of())
    odd = np.array(values, np.float64)
    change(folder / "result.npz", {}, {name: odd})
    (problem,) = Store(tmp_path).scan().problems
    assert told in problem
    run = Store(tmp_path).run(spec_of("th"))
    with pytest.raises(HeadlabError, match=re.escape(told)):
        run.finish(replace(scores_of(spec_of("th")), **{name: odd}), {})
    assert not (run.folder / "result.npz").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("low", 9.0), ("low", np.nan), ("p_values", 7.0), ("p_values", np.nan)]
)
def test_a_curve_with_an_impossible_interval_or_p_value_is_not_stored(
    tmp_path: Path, name: str, value: float
) -> None:
    curve = curve_of(curve_spec_of())
    odd = getattr(curve, name).copy()
    odd[1] = value
    run = Store(tmp_path).run(curve.spec)
    with pytest.raises(HeadlabError, match=r"of point 1 "):
        run.finish(replace(curve, **{name: odd}), {})
    assert not (run.folder / "result.npz").exists()


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
    change(folder / "result.npz", {}, arrays)
    listing = Store(tmp_path).curves()
    assert listing.results == ()
    assert "Delete that folder" in listing.problems[0]
    # it is told before hashes are compared
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


@pytest.mark.parametrize("about", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_curve_whose_text_does_not_fit_becomes_a_sentence(
    tmp_path: Path, about: dict[str, Any]
) -> None:
    folder = write_curve(tmp_path, curve_spec_of())
    change(folder / "result.npz", about, {})
    listing = Store(tmp_path).curves()
    assert listing.results == ()
    assert "Delete that folder" in listing.problems[0]


SCORE_FIELDS = {
    name: about
    for name, about in BAD_FIELDS.items()
    if set(about) <= {"language", "seconds", "grid", "meta"}
}


@pytest.mark.parametrize("about", SCORE_FIELDS.values(), ids=SCORE_FIELDS)
def test_scores_whose_text_does_not_fit_become_a_sentence(
    tmp_path: Path, about: dict[str, Any]
) -> None:
    folder = write(tmp_path, spec_of())
    change(folder / "result.npz", about, {})
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
    curve = write_curve(tmp_path, curve_spec_of())
    wrong = curve_spec_of() | spec
    text = canonical_json(wrong)
    name = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    folder = curve.rename(tmp_path / name)
    (folder / "spec.json").write_text(json.dumps(wrong))
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
    """Though its folder has its name: pages, reports and commands count with what it says."""
    scores = write(tmp_path, spec_of())
    wrong = spec_of() | changes
    folder = scores.rename(tmp_path / content_key(wrong))
    (folder / "spec.json").write_text(json.dumps(wrong))
    listing = Store(tmp_path).scan()
    assert listing.results == ()
    assert "its spec" in listing.problems[0]


def header(text: str) -> bytes:
    """An npy file of 16 bytes of data that claims what the text says."""
    padded = text.ljust(117) + "\n"
    return (
        b"\x93NUMPY\x01\x00"
        + len(padded).to_bytes(2, "little")
        + padded.encode("latin1")
        + bytes(16)
    )


BOMBS: dict[str, bytes] = {
    "more room than there is": header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    ),
    "a shape that wraps around": header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"
    ),
    "less than nothing": header("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -1), }"),
    "things instead of numbers": header("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"),
    "a thousand billion empty texts": header(
        "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }"
    ),
    "code": header("__import__('os').abort()"),
    "an open bracket": header("((((((((("),
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
    """What is read all the same holds the numbers that were written."""
    store = Store(tmp_path)
    curve = kind == "curve"
    folder = write_curve(tmp_path, curve_spec_of()) if curve else write(tmp_path, spec_of())
    data = (folder / "result.npz").read_bytes()
    want = (
        curve_of(curve_spec_of()).values_sha256() if curve else scores_of(spec_of()).values_sha256()
    )
    refused = 0
    for at in range(0, len(data), 3 if flip == 0xFF else 11):
        (folder / "result.npz").write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
        try:
            run = store.run(curve_spec_of() if curve else spec_of())
            found = run.result(Curve if curve else HeadScores)
        except HeadlabError:
            refused += 1
            continue
        assert found is not None
        assert found.record.values_sha256() == want
    assert refused > 100


def test_no_space_for_a_curve_leaves_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Store(tmp_path).run(curve_spec_of())
    run.save({"done": np.array(7)})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with raises("file.no_space"):
            run.finish(curve_of(curve_spec_of()), {})
    assert sorted(p.name for p in run.folder.iterdir()) == ["checkpoint.npz", "spec.json"]
    assert int((run.checkpoint() or {})["done"]) == 7
    run.finish(curve_of(curve_spec_of()), {})
    assert sorted(p.name for p in run.folder.iterdir()) == ["result.npz", "spec.json"]


def test_scores_that_are_no_numbers_are_not_stored(tmp_path: Path) -> None:
    scores = replace(scores_of(spec_of()), low=np.array([0.0, np.nan, 0.0, 0.0, 0.0]))
    run = Store(tmp_path).run(spec_of())
    with raises("score.method_not_finite", "de"):
        run.finish(scores, {})
    assert not run.finished


def test_a_checkpoint_of_another_run_is_not_gone_on_from(tmp_path: Path) -> None:
    one = Store(tmp_path).run(spec_of())
    other = Store(tmp_path).run(spec_of("th"))
    for run in (one, other):
        run.save({"counts": np.arange(3)})
    assert set(one.checkpoint() or {}) == {"counts"}
    (one.folder / "checkpoint.npz").write_bytes((other.folder / "checkpoint.npz").read_bytes())
    assert one.checkpoint() is None
    assert (
        "checkpoint skipped: checkpoint.npz is another run's"
        in (one.folder / "log.txt").read_text()
    )
    np.savez(one.folder / "checkpoint.npz", counts=np.arange(3))
    assert one.checkpoint() is None


def test_a_spec_that_was_changed_is_written_anew_and_that_is_told(tmp_path: Path) -> None:
    run = Store(tmp_path).run(spec_of())
    run.open()
    assert not (run.folder / "log.txt").exists()
    for text in (canonical_json(spec_of("th")), "{"):
        (run.folder / "spec.json").write_text(text)
        run.open()
        assert json.loads((run.folder / "spec.json").read_text()) == spec_of()
    assert (run.folder / "log.txt").read_text().count("spec.json written again") == 2


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    run = Store(tmp_path).run(spec_of())
    run.open()
    os.mkfifo(run.folder / "result.npz")
    os.mkfifo(run.folder / "checkpoint.npz")
    assert run.checkpoint() is None
    assert "missing or is not a file" in Store(tmp_path).scan().problems[0]


def test_a_checkpoint_that_cannot_go_does_not_undo_the_result(tmp_path: Path) -> None:
    run = Store(tmp_path).run(spec_of())
    run.open()
    (run.folder / "checkpoint.npz").mkdir()
    run.finish(scores_of(spec_of()), {})
    assert len(Store(tmp_path).scan().results) == 1
    assert "checkpoint.npz stays" in (run.folder / "log.txt").read_text()


@pytest.mark.parametrize(
    "options", [{"target": [1]}, {"samples": "mean"}, {"target": "x", "stop": "sign"}]
)
def test_reported_19_options_that_are_no_numbers_count_as_none(options: dict[str, Any]) -> None:
    scores = scores_of(spec_of())
    odd = replace(scores, spec={**spec_of(), "method": {"name": "shapley", "options": options}})
    assert target_of(odd) == target_of(scores)
    assert not stopped_at_sign(odd).any()
    assert remarks([odd]) == remarks([scores])
