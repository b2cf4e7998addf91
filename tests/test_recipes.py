"""The recipes for other places, which are never run here, agree with pyproject.toml and the README."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import headlab

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WHEEL = f"headlab-{PROJECT['version']}-py3-none-any.whl"
# The names of packages at conda-forge, where they differ.
CONDA_NAMES = {
    "huggingface-hub": "huggingface_hub",
    "matplotlib": "matplotlib-base",
    "torch": "pytorch",
}


def text(path: str) -> str:
    return (RECIPES / path).read_text("utf-8")


def test_every_place_has_the_same_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert headlab.__version__ == PROJECT["version"] == citation["version"]
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## (\d\S*) – (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert released[0] == (PROJECT["version"], str(citation["date-released"]))


@pytest.mark.parametrize(
    "path", ["hub-space/README.md", "hub-space/Dockerfile", "colab/headlab.ipynb"]
)
def test_a_recipe_installs_the_wheel_of_this_version(path: str):
    assert set(re.findall(r"headlab-[\d.]+\S*?\.whl", text(path))) == {WHEEL}


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "hub-space/README.md",
        "hub-space/Dockerfile",
        "conda/recipe.yaml",
        "colab/headlab.ipynb",
    ],
)
def test_a_recipe_says_that_it_was_not_run(path: str):
    assert re.search(r"was(\*\*)? (not )?run", text(path))


def test_conda_asks_for_what_the_library_and_the_command_line_need():
    recipe = yaml.safe_load(text("conda/recipe.yaml"))
    assert recipe["context"]["version"] == PROJECT["version"]
    needed = {"python": SpecifierSet(PROJECT["requires-python"])}
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cli"]]:
        requirement = Requirement(line)
        needed[CONDA_NAMES.get(requirement.name, requirement.name)] = requirement.specifier
    asked = {}
    for line in recipe["requirements"]["run"]:
        name, _, versions = line.partition(" ")
        asked[name] = SpecifierSet(versions)
    assert asked == needed
    system = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]
    for line in system["requires"]:
        requirement = Requirement(line)
        assert f"{requirement.name} {requirement.specifier}" in recipe["requirements"]["host"]
    scripts = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]


def test_the_space_serves_the_port_that_its_card_names():
    _, front_matter, _ = text("hub-space/README.md").split("---\n", 2)
    card = yaml.safe_load(front_matter)
    dockerfile = text("hub-space/Dockerfile")
    assert card["sdk"] == "docker"
    assert card["license"] == PROJECT["license"].lower()
    assert f"EXPOSE {card['app_port']}\n" in dockerfile
    assert f"--port={card['app_port']}" in dockerfile
    (base,) = re.findall(r"^FROM python:([\d.]+)-", dockerfile, re.MULTILINE)
    assert f"{base}.0" in SpecifierSet(PROJECT["requires-python"])
    assert set(re.findall(r"\.whl\[(\w+)\]", dockerfile)) <= set(PROJECT["optional-dependencies"])


def test_the_notebook_has_the_eight_lines_of_the_readme():
    notebook = json.loads(text("colab/headlab.ipynb"))
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells[-1] == block.rstrip("\n")
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])
