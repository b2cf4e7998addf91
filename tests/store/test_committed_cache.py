"""Every entry of the committed cache: under its key, as its kind of result, and the same after each way of writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headlab.core import RunSpec, canonical_json
from headlab.results import (
    ANSWERS_KIND,
    GATES_KIND,
    REPORT_KIND,
    SCORE_ARRAYS,
    SCORE_VALUES,
    HeadScores,
    Store,
    StoredRun,
)
from headlab.results.store.codecs import CODECS, read_result
from headlab.results.store.folder import SCORE_KIND, read_arrays
from headlab.worker.schemas import Scores

CACHE = Path(__file__).parents[2] / "cache"
RECORDS = {codec.kind: record for record, codec in CODECS.items()}


@cache
def specs() -> dict[Path, dict[str, Any]]:
    """The JSON of every spec by its folder."""
    return {
        folder: json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        for folder in Store(CACHE).folders()
    }


def results(kind: str) -> list[tuple[Path, dict[str, Any]]]:
    """Folder and spec of the entries of a kind."""
    return [
        (folder, spec) for folder, spec in specs().items() if spec.get("kind", SCORE_KIND) == kind
    ]


@cache
def scores() -> list[HeadScores]:
    """The scores of the cache."""
    return [read_result(folder, HeadScores).record for folder, _ in results(SCORE_KIND)]


def same(one: HeadScores, other: HeadScores, *but: str) -> bool:
    """Whether all fields of two scores but some are equal, types of numbers included."""
    for field in fields(HeadScores):
        a = getattr(one, field.name)
        b = getattr(other, field.name)
        if field.name in but:
            continue
        if isinstance(a, np.ndarray):
            if not isinstance(b, np.ndarray) or a.dtype != b.dtype or not np.array_equal(a, b):
                return False
        elif type(a) is not type(b) or a != b:
            return False
    return True


def test_the_cache_has_entries_of_each_kind_that_is_looked_at_here():
    kinds = {spec.get("kind", SCORE_KIND) for spec in specs().values()}
    assert kinds >= {SCORE_KIND, REPORT_KIND, GATES_KIND, ANSWERS_KIND}
    assert kinds <= {*RECORDS, ANSWERS_KIND}


def test_every_entry_is_found_under_its_key():
    store = Store(CACHE)
    for folder, spec in specs().items():
        assert RunSpec.from_json(spec).key == folder.name
        assert store.run(spec).folder == folder


def test_every_spec_is_the_same_after_it_was_a_typed_one():
    for spec in specs().values():
        typed = RunSpec.from_json(spec)
        assert canonical_json(typed.to_json()) == canonical_json(spec)
        assert typed == spec
        assert not typed.more
        assert (typed.model.name, typed.task.language) == (
            spec["model"]["name"],
            spec["task"]["language"],
        )


def test_every_result_is_read_by_the_codec_of_its_kind():
    for folder, spec in specs().items():
        kind = spec.get("kind", SCORE_KIND)
        if kind == ANSWERS_KIND:
            continue
        result = read_result(folder, RECORDS[kind])
        assert isinstance(result.record, RECORDS[kind])
        assert result.record.spec.key == result.key == folder.name


def test_all_answers_name_their_folder_and_their_mask():
    """Their examples would have to be made again; tests/test_demo_cache.py does that."""
    for folder, spec in results(ANSWERS_KIND):
        files = sorted(folder.glob("*.npz"))
        assert files
        for file in files:
            about = json.loads(str(read_arrays(file)["about"]))
            assert (about["run"], about["mask"]) == (folder.name, file.stem)
            assert RunSpec.from_json(spec).kind == ANSWERS_KIND


WAYS: dict[str, Callable[[HeadScores], Any]] = {
    "json": lambda record: json.loads(json.dumps(record.to_json())),
    "http": lambda record: json.loads(Scores.from_scores(record).model_dump_json()),
}


@pytest.mark.parametrize("way", WAYS)
def test_scores_come_back_from_json_and_from_http(way: str):
    for record in scores():
        assert same(record, HeadScores.from_json(WAYS[way](record)), "halves")


def test_scores_come_back_from_another_file(tmp_path: Path):
    for record in scores():
        run = StoredRun(tmp_path / record.spec.key, record.spec)
        run.finish(record, {})
        assert same(record, read_result(run.folder, HeadScores).record)


def test_the_fields_of_scores_are_written_once():
    """What the table of fields lacks would be lost by every way at once."""
    beside = {"grid", "spec", "signed", "omissions"}
    assert {field.name for field in fields(HeadScores)} == {*SCORE_ARRAYS, *SCORE_VALUES, *beside}
    assert {*Scores.model_fields} == {field.name for field in fields(HeadScores)} - {"halves"}
