"""Names and notes of results: kept, replaced, removed, and damaged."""

from __future__ import annotations

import json
import random

import pytest
from support import fuzzing
from support.cached_scores import fill_cache

from headlab.core import HeadlabError, content_key
from headlab.results import MAX_NAME_LENGTH, NO_LABEL, HeadScores, ResultLabel, Store

LABEL = ResultLabel("before the cut", "Seed 3, all of dev.\nทดสอบ 中文")


@pytest.fixture
def store(tmp_path):
    return Store(fill_cache(tmp_path))


@pytest.fixture
def key(store):
    return store.scan().results[0].key


def label_file(store, key):
    return store.root / ".labels" / f"{key}.json"


def test_a_label_is_read_as_it_was_given_and_the_result_stays_the_same(store, key):
    before = {path: path.read_bytes() for path in (store.root / key).iterdir()}
    assert store.label(key) == NO_LABEL
    assert not store.has_labels
    store.set_label(key, LABEL)
    assert store.has_labels
    assert Store(store.root).label(key) == LABEL
    assert LABEL.words == "“before the cut”: Seed 3, all of dev. ทดสอบ 中文"
    assert {path: path.read_bytes() for path in (store.root / key).iterdir()} == before
    assert key in {result.key for result in store.scan().results}
    assert not store.scan().problems


def test_a_later_label_replaces_an_earlier_one_and_an_empty_one_removes_it(store, key):
    store.set_label(key, LABEL)
    store.set_label(key, ResultLabel("after"))
    assert store.label(key) == ResultLabel("after")
    store.set_label(key, NO_LABEL)
    assert store.label(key) == NO_LABEL
    assert not label_file(store, key).exists()
    store.set_label(key, NO_LABEL)


def test_a_result_of_the_demo_can_be_named_and_its_folder_stays_as_it_is(tmp_path):
    demo = fill_cache(tmp_path / "demo")
    store = Store(tmp_path / "own", demo=demo)
    key = store.listing(HeadScores).results[0].key
    files = sorted(path for path in demo.rglob("*") if path.is_file())
    store.set_label(key, LABEL)
    assert store.label(key) == LABEL
    assert sorted(path for path in demo.rglob("*") if path.is_file()) == files


def test_a_result_that_is_gone_cannot_be_named(store):
    key = content_key({"never": "computed"})
    with pytest.raises(HeadlabError, match="not in the cache any more") as error:
        store.set_label(key, LABEL)
    assert error.value.code == "label.result_gone"
    assert not label_file(store, key).exists()


def test_too_long_a_name_keeps_the_earlier_one(store, key):
    store.set_label(key, LABEL)
    with pytest.raises(HeadlabError, match="81 characters"):
        store.set_label(key, ResultLabel("x" * (MAX_NAME_LENGTH + 1)))
    assert store.label(key) == LABEL


def test_a_cache_that_cannot_be_written_is_a_sentence(store, key, monkeypatch):
    store.set_label(key, LABEL)
    file = label_file(store, key)
    file.unlink()
    file.mkdir()
    with pytest.raises(HeadlabError):
        store.set_label(key, ResultLabel("other"))
    with pytest.raises(HeadlabError, match="cannot be removed"):
        store.set_label(key, NO_LABEL)


@pytest.mark.parametrize("other_key", ["", "../spec", "a/b", "A" * 64])
def test_what_is_no_key_of_a_run_has_no_label(store, other_key):
    assert store.label(other_key) == NO_LABEL


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"name": 3}', '{"name": ["x"], "note": {}}', '{"name": "\\ud800"}']
)
def test_a_damaged_file_is_no_label_or_a_readable_one(store, key, content):
    store.set_label(key, LABEL)
    label_file(store, key).write_text(content)
    label = store.label(key)
    assert (label.name + label.note).encode("utf-8") in (b"", b"?")


@pytest.mark.parametrize("cases", [50, pytest.param(5000, marks=pytest.mark.soak)])
def test_no_file_of_a_label_breaks_a_listing(store, key, cases):
    rng = random.Random(cases)
    good = json.dumps({"name": LABEL.name, "note": LABEL.note}).encode()
    store.set_label(key, LABEL)
    for _ in range(cases):
        label_file(store, key).write_bytes(fuzzing.spoil(rng, [good]))
        label = store.label(key)
        assert (label.name + label.note).encode("utf-8") is not None
