"""The demo's results are read below one's own, and nothing is written or removed there."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cached_scores import made_scores
from support.expected_errors import raises

from headlab.cli.run import main
from headlab.core import Evaluation, RunSpec, default_root, demo_results
from headlab.methods import superseded_results
from headlab.methods.run import stored_result
from headlab.results import ANSWERS_KIND, HeadScores, Store, StoredRun, store_with_demo
from headlab.tasks import Example

EXAMPLES = tuple(Example(f"x{number}", "text") for number in range(3))
UNITS = np.ones(3, dtype=np.int64)
SCORES = made_scores("de", "gradient")
OTHER_SCORES = made_scores("th", "gradient")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo's results: one score."""
    folder = tmp_path / "demo"
    Store(folder).run(SCORES.spec).finish(SCORES, {})
    return folder


@pytest.fixture
def store(tmp_path: Path, demo: Path) -> Store:
    return Store(tmp_path / "own", demo=demo)


def answers_spec() -> dict[str, Any]:
    spec = SCORES.spec.to_json()
    kept_parts = {name: spec[name] for name in ("format", "model", "task", "ablation")}
    return kept_parts | {"kind": ANSWERS_KIND}


def answers() -> Evaluation:
    ids = tuple(example.id for example in EXAMPLES)
    correct = np.array([True, False, True])
    return Evaluation("de", correct, np.array([0, 1, 2]), ids, ids, 3)


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_result_of_the_demo_is_found_and_read(store: Store, demo: Path) -> None:
    stored_run = store.run(SCORES.spec)
    assert stored_run.is_finished
    assert stored_run.folder.parent == store.root
    result = stored_run.result(HeadScores)
    assert result is not None
    assert np.array_equal(result.record.values, SCORES.values)
    assert result.folder == demo / SCORES.spec.key
    assert [listed.folder for listed in store.scan().results] == [result.folder]
    assert store.folder_of(result.key) == result.folder
    assert not store.root.exists()


def test_own_results_stand_beside_those_of_the_demo(store: Store, demo: Path) -> None:
    before = files_in(demo)
    store.run(OTHER_SCORES.spec).finish(OTHER_SCORES, {})
    languages = sorted(result.record.language for result in store.scan().results)
    assert languages == ["de", "th"]
    assert store.folder_of(OTHER_SCORES.spec.key).parent == store.root
    assert files_in(demo) == before


def test_one_s_own_result_takes_precedence(store: Store) -> None:
    own_scores = replace(SCORES, values=SCORES.values + 1)
    store.run(SCORES.spec).finish(own_scores, {})
    (listed,) = store.scan().results
    assert np.array_equal(listed.record.values, own_scores.values)
    result = store.run(SCORES.spec).result(HeadScores)
    assert result is not None
    assert np.array_equal(result.record.values, own_scores.values)


def test_a_run_of_one_s_own_that_is_not_finished_does_not_hide_the_demo_s(store: Store) -> None:
    StoredRun(store.root / SCORES.spec.key, SCORES.spec).save({"values": np.zeros(3)})
    assert store.run(SCORES.spec).is_finished
    assert len(store.scan().results) == 1


def test_a_result_of_an_earlier_version_of_its_method_is_found_in_the_demo(
    store: Store, tmp_path: Path
) -> None:
    newer_spec = copy.deepcopy(SCORES.spec.to_json())
    newer_spec["method"]["version"] = 2
    assert stored_result(store.run(newer_spec), SCORES.grid) is not None
    assert stored_result(Store(tmp_path / "none").run(newer_spec), SCORES.grid) is None


def test_a_result_of_the_demo_stays(store: Store, demo: Path) -> None:
    (result,) = store.scan().results
    assert store.is_of_demo(result)
    assert store.remove(result) == "it comes with headlab"
    assert (demo / result.key / "result.npz").exists()


def test_answers_under_new_masks_are_kept_beside_those_of_the_demo(
    store: Store, demo: Path
) -> None:
    spec = answers_spec()
    Store(demo).run(spec).keep_answers("a" * 64, answers(), UNITS)
    before = files_in(demo)
    stored_run = store.run(spec)
    assert stored_run.answers("a" * 64, EXAMPLES) is not None
    assert stored_run.answers("b" * 64, EXAMPLES) is None
    stored_run.keep_answers("b" * 64, answers(), UNITS)
    assert len(list(store.folders())) == 2  # the demo's scores, and the answers once
    assert store.run(spec).answers("b" * 64, EXAMPLES) is not None
    assert store.run(spec).answers("a" * 64, EXAMPLES) is not None
    assert files_in(demo) == before


def test_the_demo_is_hidden_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("off", "OFF", "no", "0"):
        monkeypatch.setenv("HEADLAB_DEMO", word)
        assert demo_results() is None
        assert store_with_demo(Path("own")).demo is None
    for word in ("", "on", "1"):
        monkeypatch.setenv("HEADLAB_DEMO", word)
        folder = demo_results()
        assert folder is not None
        assert folder.is_dir()
        assert store_with_demo(Path("own")).demo == folder


def test_superseded_results_of_the_demo_are_not_offered_for_removal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    for version in (1, 2):
        spec = copy.deepcopy(SCORES.spec.to_json())
        spec["method"]["version"] = version
        versioned_scores = replace(SCORES, spec=RunSpec.of(spec))
        Store(folder).run(spec).finish(versioned_scores, {})
    assert len(superseded_results(Store(folder).scan().results)) == 1
    monkeypatch.setattr("headlab.results.store.demo_results", lambda: folder)
    words = ("cache", "--remove-superseded", "--yes", "--json", "--cache", str(tmp_path / "own"))
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert '"removed": []' in printed
    assert '"stay": []' in printed


def test_results_go_to_the_platform_s_folder_unless_one_is_chosen_or_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HEADLAB_CACHE", "")
    assert default_root() == tmp_path / "data" / "headlab" / "results"
    (tmp_path / "cache").mkdir()
    assert default_root() == Path("cache")
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "chosen"))
    assert default_root() == tmp_path / "chosen"


def test_without_a_home_a_folder_has_to_be_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADLAB_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: Path("~/headlab"))
    with raises("home.unknown", "HEADLAB_CACHE"):
        default_root()
