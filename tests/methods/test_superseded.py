"""Which stored scores a newer version of their method replaces, and that no others are removed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.versioned_scores import (
    GRID,
    OTHER_GRID,
    keep_scores,
    keys_in,
    tear,
    versioned_scores,
)

from headlab.core import HeadGrid, HeadlabError, RunSpec
from headlab.methods import (
    METHODS,
    earlier_keys,
    remove_superseded,
    stored_result,
    superseded_results,
    version_of,
)
from headlab.results import HeadScores, Store

PRESENT = METHODS["shapley"].version


def superseded_keys(root: Path) -> dict[str, str]:
    """The keys of the results that are replaced, with those of their successors."""
    entries = superseded_results(Store(root).scan().results)
    return {entry.result.key: entry.successor.key for entry in entries}


def remove_all(root: Path) -> set[str]:
    """Remove every result that is replaced, and give the keys of those that are gone."""
    store = Store(root)
    removed_keys = set()
    for entry in superseded_results(store.scan().results):
        if not remove_superseded(store, entry):
            removed_keys.add(entry.result.key)
    return removed_keys


def test_the_newest_version_replaces_all_earlier_ones(tmp_path: Path) -> None:
    first_key = keep_scores(tmp_path, versioned_scores(None))
    second_key = keep_scores(tmp_path, versioned_scores(2))
    newest_key = keep_scores(tmp_path, versioned_scores(PRESENT))
    assert superseded_keys(tmp_path) == {first_key: newest_key, second_key: newest_key}
    assert remove_all(tmp_path) == {first_key, second_key}
    assert keys_in(tmp_path) == {newest_key}
    (result,) = Store(tmp_path).scan().results
    assert result.record.values_sha256() == versioned_scores(PRESENT).values_sha256()


def test_a_newer_version_that_is_not_the_present_one_replaces_too(tmp_path: Path) -> None:
    first_key = keep_scores(tmp_path, versioned_scores(None))
    second_key = keep_scores(tmp_path, versioned_scores(2))
    assert superseded_keys(tmp_path) == {first_key: second_key}


def test_a_torn_newer_result_replaces_nothing(tmp_path: Path) -> None:
    keep_scores(tmp_path, versioned_scores(2))
    tear(tmp_path, keep_scores(tmp_path, versioned_scores(PRESENT)))
    assert superseded_keys(tmp_path) == {}


def test_an_unfinished_newer_result_replaces_nothing(tmp_path: Path) -> None:
    keep_scores(tmp_path, versioned_scores(2))
    Store(tmp_path).run(versioned_scores(PRESENT).spec).make_folder()
    assert superseded_keys(tmp_path) == {}


def test_a_torn_older_result_is_left_to_the_user(tmp_path: Path) -> None:
    tear(tmp_path, keep_scores(tmp_path, versioned_scores(2)))
    keep_scores(tmp_path, versioned_scores(PRESENT))
    assert superseded_keys(tmp_path) == {}


@pytest.mark.parametrize(
    "settings",
    [
        {"seed": 1},
        {"language": "th"},
        {"ablation": "mean"},
        {"options": {"samples": 16}},
        {"grid": OTHER_GRID},
        {"method": "leave-one-out"},
    ],
    ids=str,
)
def test_a_result_of_other_settings_replaces_nothing(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    keep_scores(tmp_path, versioned_scores(2))
    keep_scores(tmp_path, versioned_scores(PRESENT, **settings))
    assert superseded_keys(tmp_path) == {}


@pytest.mark.parametrize("change", ["model", "task", "means"])
def test_a_result_of_another_model_task_or_means_replaces_nothing(
    change: str, tmp_path: Path
) -> None:
    newer = versioned_scores(PRESENT, ablation="mean")
    spec = newer.spec
    other_spec = {
        "model": replace(spec, model=replace(spec.model, fingerprint="g")),
        "task": replace(spec, task=replace(spec.task, data_hash="i")),
        "means": replace(spec, means="j"),
    }[change]
    keep_scores(tmp_path, versioned_scores(2, ablation="mean"))
    keep_scores(tmp_path, replace(newer, spec=other_spec))
    assert superseded_keys(tmp_path) == {}


def test_renewed_settings_are_replaced_by_their_own_version(tmp_path: Path) -> None:
    """Form token of `gradient` is of version 3, and its other forms are of version 2."""
    token = {"method": "gradient", "options": {"form": "token"}}
    example = {"method": "gradient", "options": {"form": "example"}}
    earlier_key = keep_scores(tmp_path, versioned_scores(2, **token))
    keep_scores(tmp_path, versioned_scores(2, **example))
    assert superseded_keys(tmp_path) == {}
    present_key = keep_scores(tmp_path, versioned_scores(3, **token))
    assert superseded_keys(tmp_path) == {earlier_key: present_key}
    keep_scores(tmp_path, versioned_scores(3, **example))
    assert superseded_keys(tmp_path) == {earlier_key: present_key}


def test_a_version_that_only_a_newer_headlab_makes_replaces_nothing(tmp_path: Path) -> None:
    """This headlab would compute the present version again, since it does not look it up."""
    keep_scores(tmp_path, versioned_scores(PRESENT))
    keep_scores(tmp_path, versioned_scores(PRESENT + 1))
    assert superseded_keys(tmp_path) == {}


def test_a_method_that_is_not_installed_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_scores(tmp_path, versioned_scores(None))
    newer = versioned_scores(2)
    keep_scores(tmp_path, newer)
    others = {key: method for key, method in METHODS.items() if key != "shapley"}
    monkeypatch.setattr("headlab.methods.superseded.METHODS", others)
    assert superseded_keys(tmp_path) == {}
    assert earlier_keys(newer.spec) == []


def test_a_version_without_intervals_replaces_one_with_them_only_as_the_present_one(
    tmp_path: Path,
) -> None:
    first_key = keep_scores(tmp_path, versioned_scores(None))
    keep_scores(tmp_path, versioned_scores(2, has_intervals=False))
    assert superseded_keys(tmp_path) == {}
    present_key = keep_scores(tmp_path, versioned_scores(PRESENT, has_intervals=False))
    assert superseded_keys(tmp_path)[first_key] == present_key


def test_of_versions_without_intervals_the_newer_one_replaces(tmp_path: Path) -> None:
    first_key = keep_scores(tmp_path, versioned_scores(None, has_intervals=False))
    second_key = keep_scores(tmp_path, versioned_scores(2, has_intervals=False))
    assert superseded_keys(tmp_path) == {first_key: second_key}


def test_a_successor_that_was_torn_since_keeps_the_older_result(tmp_path: Path) -> None:
    older_key = keep_scores(tmp_path, versioned_scores(2))
    newer_key = keep_scores(tmp_path, versioned_scores(PRESENT))
    store = Store(tmp_path)
    (entry,) = superseded_results(store.scan().results)
    tear(tmp_path, newer_key)
    assert "can no longer be read" in remove_superseded(store, entry)
    assert older_key in keys_in(tmp_path)


def test_a_successor_without_its_intervals_since_keeps_the_older_result(tmp_path: Path) -> None:
    older_key = keep_scores(tmp_path, versioned_scores(None))
    keep_scores(tmp_path, versioned_scores(2))
    store = Store(tmp_path)
    (entry,) = superseded_results(store.scan().results)
    keep_scores(tmp_path, versioned_scores(2, has_intervals=False))
    assert remove_superseded(store, entry) == "the newer result no longer replaces it"
    assert older_key in keys_in(tmp_path)


def test_the_earlier_keys_of_a_result_are_those_that_it_replaces(tmp_path: Path) -> None:
    first_key = keep_scores(tmp_path, versioned_scores(None))
    second_key = keep_scores(tmp_path, versioned_scores(2))
    third_key = keep_scores(tmp_path, versioned_scores(3))
    assert earlier_keys(versioned_scores(PRESENT).spec) == [first_key, second_key, third_key]
    assert earlier_keys(versioned_scores(None).spec) == []
    assert earlier_keys(versioned_scores(10**12).spec) == []


# Whatever is in a cache, what is looked up in it is found as before.

METHODS_OF_CACHES: dict[str, dict[str, Any]] = {
    "shapley": {"method": "shapley"},
    "token": {"method": "gradient", "options": {"form": "token"}},
    "example": {"method": "gradient", "options": {"form": "example"}},
}


@dataclass(frozen=True)
class StoredCase:
    """A result of a drawn cache.

    Attributes:
        settings: Key in `METHODS_OF_CACHES`.
        version: Of the method.
        seed: Of the run.
        has_intervals: Whether it has intervals.
        has_other_grid: Whether it is of other heads.
        state: What has become of it.
    """

    settings: str
    version: int
    seed: int
    has_intervals: bool
    has_other_grid: bool
    state: str

    def scores(self) -> HeadScores:
        """Its scores."""
        return versioned_scores(
            self.version if self.version > 1 else None,
            seed=self.seed,
            has_intervals=self.has_intervals,
            grid=OTHER_GRID if self.has_other_grid else GRID,
            **METHODS_OF_CACHES[self.settings],
        )

    def keep(self, root: Path) -> str:
        """Store it, and give its key."""
        scores = self.scores()
        if self.state == "unfinished":
            stored_run = Store(root).run(scores.spec)
            stored_run.make_folder()
            return stored_run.key
        key = keep_scores(root, scores)
        if self.state == "torn":
            tear(root, key)
        if self.state == "checkpoint":
            (root / key / "checkpoint.npz").write_bytes(b"")
        if self.state == "foreign":
            (root / key / "notes.txt").write_text("mine")
        return key


STATES = ("sound", "sound", "sound", "torn", "unfinished", "checkpoint", "foreign")


def cases_of(settings_name: str, version: int, seed: int = 0) -> st.SearchStrategy[StoredCase]:
    """Cases of a result of this version."""
    return st.builds(
        StoredCase,
        settings=st.just(settings_name),
        version=st.just(version),
        seed=st.just(seed),
        has_intervals=st.booleans(),
        has_other_grid=st.sampled_from((False, False, False, False, True)),
        state=st.sampled_from(STATES),
    )


def caches_of(settings_name: str) -> st.SearchStrategy[list[StoredCase]]:
    """Caches with results of some versions, and perhaps one of another seed."""
    cases = [st.none() | cases_of(settings_name, version) for version in range(1, 5)]
    stranger = st.none() | cases_of(settings_name, 3, seed=1)
    return st.tuples(*cases, stranger).map(
        lambda drawn_cases: [case for case in drawn_cases if case is not None]
    )


CACHES = st.sampled_from(("shapley", "shapley", "token", "example")).flatmap(caches_of)


def found_in(root: Path, spec: RunSpec, grid: HeadGrid) -> tuple[str, str]:
    """What a look-up in a cache gives: a key and the hash of its values, or an error's code."""
    try:
        result = stored_result(Store(root).run(spec), grid)
    except HeadlabError as error:
        return "error", error.code
    if result is None:
        return "", ""
    return result.key, result.record.values_sha256()


def expect_harmless_removal(cases: list[StoredCase]) -> None:
    """Remove what is replaced in a cache of these cases, and check that nothing else changes."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        case_by_key = {case.keep(root): case for case in cases}
        readable = {result.key: result for result in Store(root).scan().results}
        look_ups = []
        for name, method_settings in METHODS_OF_CACHES.items():
            for seed in (0, 1):
                scores = versioned_scores(None, seed=seed, **method_settings)
                method = METHODS[scores.method]
                present = method.version_of(scores.spec.method.options or {})
                spec = replace(scores.spec, method=replace(scores.spec.method, version=present))
                look_ups.append((name, seed, spec))
        requests = [(spec, grid) for *_, spec in look_ups for grid in (GRID, OTHER_GRID)]
        found_before = [found_in(root, spec, grid) for spec, grid in requests]

        removed_keys = remove_all(root)

        assert [found_in(root, spec, grid) for spec, grid in requests] == found_before
        assert keys_in(root) == set(case_by_key) - removed_keys
        assert all(case_by_key[key].state == "sound" for key in removed_keys)
        for name, seed, _ in look_ups:
            versions = {
                key: version_of(result.record.spec)
                for key, result in readable.items()
                if (case_by_key[key].settings, case_by_key[key].seed) == (name, seed)
            }
            newest = max(versions.values(), default=0)
            assert all(versions.get(key, 0) < newest for key in removed_keys & set(versions))
        assert remove_all(root) == set()


@settings(max_examples=100)
@given(cases=CACHES)
def test_property_what_is_looked_up_is_found_as_before(cases: list[StoredCase]) -> None:
    expect_harmless_removal(cases)


# Of each version: not there, or with or without intervals.
INTERVALS_OF_VERSIONS = list(product((None, True, False), repeat=3))


@pytest.mark.parametrize("intervals", INTERVALS_OF_VERSIONS, ids=str)
def test_versions_with_and_without_intervals_are_looked_up_as_before(
    intervals: tuple[bool | None, ...],
) -> None:
    cases = [
        StoredCase("shapley", version, 0, has_intervals, False, "sound")
        for version, has_intervals in enumerate(intervals, start=1)
        if has_intervals is not None
    ]
    expect_harmless_removal(cases)
