"""The template of a plug-in, copied elsewhere: it installs, its tests pass, headlab finds it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import headlab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "templates" / "plugin"


def run(folder: Path, site: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """What a Python program printed that finds this headlab and the installed plug-in."""
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the template, as a person begins with it."""
    folder = tmp_path_factory.mktemp("copied") / "plugin"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".pytest_cache")
    shutil.copytree(TEMPLATE, folder, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def site(copied: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed it, without a network."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--target", target]
    installed = subprocess.run([*pip, *alone, copied], capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
    return target


def test_it_is_installed_with_its_entry_points_and_without_its_tests(site: Path) -> None:
    (info,) = site.glob("*.dist-info")
    points = (info / "entry_points.txt").read_text("utf-8")
    assert "first-token = headlab_myplugin.first_token:METHOD" in points
    assert {path.name for path in site.iterdir()} == {"headlab_myplugin", info.name}


def test_its_own_tests_pass(copied: Path, site: Path) -> None:
    ran = run(copied, site, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert re.search(r"\b4 passed", ran.stdout), ran.stdout


def test_headlab_lists_its_method_and_its_task(tmp_path: Path, site: Path) -> None:
    refused = run(tmp_path, site, "-m", "headlab.cli", "score", "--method", "no-such")
    assert refused.returncode == 2
    assert re.search(r"use one of .*\bfirst-token\b", refused.stderr), refused.stderr
    listed = run(tmp_path, site, "-m", "headlab.cli", "tasks")
    assert listed.returncode == 0, listed.stderr
    assert "weather" in listed.stdout


def test_it_asks_for_this_version() -> None:
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text("utf-8"))["project"]
    (needed,) = [Requirement(text) for text in project["dependencies"]]
    assert needed.name == "headlab"
    assert isinstance(needed.specifier, SpecifierSet)
    assert headlab.__version__ in needed.specifier


def test_every_file_that_its_readme_names_is_there() -> None:
    names = re.findall(r"`((?:src|tests|\.github)/[\w./-]*)`", (TEMPLATE / "README.md").read_text())
    assert len(names) >= 4
    assert [name for name in names if not (TEMPLATE / name).exists()] == []
