"""The wheel is the whole product: library, commands, dashboard, and the demo's results."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.built_wheel import BuiltWheel, build_wheel, environment_of

MAX_WHEEL_BYTES = 15_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> BuiltWheel:
    return build_wheel(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def unpacked(wheel: BuiltWheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.unpack(tmp_path_factory.mktemp("site-packages"))


def output_of(unpacked: Path, folder: Path, *words: str) -> str:
    """What a command prints that is run from the unpacked wheel, elsewhere than the checkout."""
    finished = subprocess.run(
        [sys.executable, "-m", "headlab.cli", *words],
        cwd=folder,
        env=environment_of(unpacked, folder / "cache"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_wheel_installs_headlab_alone_and_is_small(wheel: BuiltWheel) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        top_names = {name.split("/")[0] for name in archive.namelist()}
        hidden = [name for name in archive.namelist() if "/." in name]
    assert hidden == ["headlab/dashboard/entry/.streamlit/config.toml"]
    assert top_names == {"headlab", "headlab-0.1.0.dist-info"}
    assert wheel.path.stat().st_size < MAX_WHEEL_BYTES


def test_a_wheel_knows_its_commit(wheel: BuiltWheel, unpacked: Path, tmp_path: Path) -> None:
    line = output_of(unpacked, tmp_path, "--version")
    assert line == f"headlab 0.1.0 (commit {wheel.commit})\n"


def test_info_says_where_a_wheel_is_and_what_its_extras_miss(
    unpacked: Path, tmp_path: Path
) -> None:
    facts = json.loads(output_of(unpacked, tmp_path, "info", "--json"))
    assert Path(facts["folder"]) == unpacked / "headlab"
    assert Path(facts["demo_results"]) == unpacked / "headlab" / "embedded" / "results"
    assert Path(facts["cache"]["folder"]) == tmp_path / "cache"
    assert facts["extras"]["app"] == []
    assert ("lm-eval" in facts["packages"]) == (facts["extras"]["lm-eval"] == [])
    assert "torch" in facts["packages"]
    assert "HEADLAB_TOKEN" not in facts["variables"]


def test_the_results_of_the_demo_are_read_from_a_wheel_and_own_ones_are_written_beside_them(
    unpacked: Path, tmp_path: Path
) -> None:
    listed = json.loads(output_of(unpacked, tmp_path, "cache", "--json"))
    methods = {result["method"] for result in listed["results"]}
    assert {"shapley", "gradient"} <= methods
    assert listed["bytes"] == 0
    assert not (tmp_path / "cache").exists()
    scores = ("score", "--languages", "de", "--method", "random", "--size", "8", "--json")
    output_of(unpacked, tmp_path, *scores)
    own_keys = {path.name for path in (tmp_path / "cache").iterdir() if len(path.name) == 64}
    assert len(own_keys) == 1
    listed_again = json.loads(output_of(unpacked, tmp_path, "cache", "--json"))
    assert len(listed_again["results"]) == len(listed["results"]) + 1


def test_nothing_is_written_into_an_installed_headlab(unpacked: Path, tmp_path: Path) -> None:
    results = unpacked / "headlab" / "embedded" / "results"
    names_before = sorted(results.iterdir())
    prune = ("prune", "--languages", "de", "--method", "gradient", "--rule", "bottom", "--k", "3")
    output_of(unpacked, tmp_path, *prune, "--json")
    assert sorted(results.iterdir()) == names_before
