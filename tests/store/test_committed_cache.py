"""Every entry of the committed cache: under its key, and as its kind of result.

Each is the same after it was written in another way.
"""

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

CACHE = Path(__file__).parents[2] / "headlab" / "embedded" / "results"
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


def assert_equal_scores(scores: HeadScores, copy: HeadScores, *ignored_fields: str) -> None:
    """All fields but the ignored ones are equal, types of numbers included."""
    for field in fields(HeadScores):
        if field.name in ignored_fields:
            continue
        value = getattr(scores, field.name)
        copied_value = getattr(copy, field.name)
        assert type(value) is type(copied_value), field.name
        if isinstance(value, np.ndarray):
            assert value.dtype == copied_value.dtype, field.name
            assert np.array_equal(value, copied_value), field.name
        else:
            assert value == copied_value, field.name


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
        run_spec = RunSpec.from_json(spec)
        assert canonical_json(run_spec.to_json()) == canonical_json(spec)
        assert run_spec == spec
        assert not run_spec.more
        assert run_spec.model.name == spec["model"]["name"]
        assert run_spec.task.language == spec["task"]["language"]


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
            description = json.loads(str(read_arrays(file)["about"]))
            assert (description["run"], description["mask"]) == (folder.name, file.stem)
            assert RunSpec.from_json(spec).kind == ANSWERS_KIND


WAYS: dict[str, Callable[[HeadScores], Any]] = {
    "json": lambda record: json.loads(json.dumps(record.to_json())),
    "http": lambda record: json.loads(Scores.from_scores(record).model_dump_json()),
}


@pytest.mark.parametrize("way", WAYS)
def test_scores_come_back_from_json_and_from_http(way: str):
    for record in scores():
        assert_equal_scores(record, HeadScores.from_json(WAYS[way](record)), "halves")


def test_scores_come_back_from_another_file(tmp_path: Path):
    for record in scores():
        stored_run = StoredRun(tmp_path / record.spec.key, record.spec)
        stored_run.finish(record, {})
        assert_equal_scores(record, read_result(stored_run.folder, HeadScores).record)


def test_the_fields_of_scores_are_written_once():
    """A field that the tables lack would be lost in every way of writing."""
    names = {field.name for field in fields(HeadScores)}
    other_names = {"grid", "spec", "signed", "omissions", "slopes"}
    assert names == {*SCORE_ARRAYS, *SCORE_VALUES, *other_names}
    # The grid that is sent has its groups of neurons beside it.
    assert {*Scores.model_fields} == names - {"halves"} | {"members"}
