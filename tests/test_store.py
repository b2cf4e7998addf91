"""The store: whole or not at all, and nothing trusted that it reads."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headlab.errors import HeadlabError
from headlab.records import HeadGrid, Stack
from headlab.scores import HeadScores
from headlab.store import FORMAT, Store

GRID = HeadGrid((Stack("encoder", (2, 3)),))


def spec_of(language: str = "de", seed: int = 0) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": {"name": "m", "revision": "r", "fingerprint": "f"},
        "task": {"name": "t", "language": language, "split": "dev", "size": 5, "seed": 0, "data_hash": "h"},
        "ablation": "zero",
        "method": {"name": "shapley", "options": {}},
        "seed": seed,
    }


def scores_of(spec: dict[str, Any]) -> HeadScores:
    values = np.random.default_rng(spec["seed"]).normal(size=5)
    samples = np.arange(5, dtype=np.int64)
    return HeadScores(
        GRID, spec["task"]["language"], "shapley", values, "shapley-top50", "accuracy", 10, 1.5,
        values - 0.1, values + 0.2, samples, np.full(5, 0.5), 0.95, spec,
    )  # fmt: skip


def write(root: Path, spec: dict[str, Any]) -> Path:
    run = Store(root).run(spec)
    run.finish(scores_of(spec), {"versions": {"headlab": "x"}})
    return run.folder


def test_round_trip(tmp_path: Path) -> None:
    write(tmp_path, spec := spec_of())
    (result,) = Store(tmp_path).scan().results
    want = scores_of(spec)
    for name in ("values", "low", "high", "samples", "p_values"):
        assert np.array_equal(getattr(result.scores, name), getattr(want, name))
    assert (result.scores.spec, result.scores.seconds, result.scores.estimand) == (spec, 1.5, "shapley-top50")
    assert result.meta["versions"]["headlab"] == "x"
    assert Store(tmp_path).find(method="shapley", language="de") != []
    assert Store(tmp_path).find(language="th") == []


def test_equal_specs_share_a_folder_others_do_not(tmp_path: Path) -> None:
    folders = {
        write(tmp_path, spec) for spec in (spec_of(), dict(reversed(spec_of().items())), spec_of("th"), spec_of(seed=1))
    }
    assert len(folders) == 3


@pytest.mark.parametrize("keep", [0, 1, 100, 400])
def test_a_torn_result_becomes_a_sentence(tmp_path: Path, keep: int) -> None:
    good, bad = write(tmp_path, spec_of()), write(tmp_path, spec_of("th"))
    data = (bad / "result.npz").read_bytes()
    (bad / "result.npz").write_bytes(data[:keep])
    listing = Store(tmp_path).scan()
    assert [r.folder for r in listing.results] == [good]
    assert len(listing.problems) == 1
    assert bad.name in listing.problems[0]
    assert "run the score again" in listing.problems[0]
    with pytest.raises(HeadlabError):
        Store(tmp_path).run(spec_of("th")).result()


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
    one, two = write(tmp_path, spec_of()), write(tmp_path, spec_of("th"))
    (one / "result.npz").write_bytes((two / "result.npz").read_bytes())
    assert "do not fit" in Store(tmp_path).scan().problems[0]


def test_pickles_are_never_read(tmp_path: Path) -> None:
    folder = write(tmp_path, spec_of())
    np.savez(folder / "result.npz", about=np.array([{"a": 1}], dtype=object))
    assert "torn or not an npz" in Store(tmp_path).scan().problems[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 3000), byte=st.integers(0, 255))
def test_fuzz_a_changed_byte_never_crashes(tmp_path: Path, at: int, byte: int) -> None:
    folder = write(tmp_path, spec_of())
    data = bytearray((folder / "result.npz").read_bytes())
    data[at % len(data)] = byte
    (folder / "result.npz").write_bytes(bytes(data))
    listing = Store(tmp_path).scan()
    if listing.results:
        assert np.array_equal(listing.results[0].scores.values, scores_of(spec_of()).values)


def test_no_space_is_a_sentence_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, spec_of())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HeadlabError, match="no space left"):
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
