"""The wheel and the source archive, installed into an empty environment outside the checkout.

The environment gets the packages of the extra `app` in the versions of requirements.txt, or in the
lowest that pyproject.toml allows: all but torch, whose older files are the CUDA build's. As for
these, PIP_EXTRA_INDEX_URL names an index of torch without CUDA.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.built_wheel import BuiltWheel, build_wheel, served_app
from support.saved_models import save_classifier

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.txt"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltWheel:
    return build_wheel(tmp_path_factory.mktemp("built"), with_source=True)


def lowest_versions(folder: Path) -> Path:
    """A file with the lowest versions that pyproject.toml allows of what the extra `app` needs."""
    venv.create(folder, with_pip=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (uv,) = project["dependency-groups"]["lock"]
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", uv], check=True)
    torch_pin = re.search(r"^torch==\S+", LOCK.read_text("utf-8"), re.MULTILINE)
    assert torch_pin is not None
    (folder / "torch.txt").write_text(f"{torch_pin.group()}\n")
    lowest = folder / "lowest.txt"
    command: list[str | Path] = [folder / "bin" / "uv", "pip", "compile", ROOT / "pyproject.toml"]
    command += ["--extra", "app", "--resolution", "lowest-direct", "--quiet", "--no-annotate"]
    command += ["--constraint", folder / "torch.txt", "--output-file", lowest]
    subprocess.run(command, check=True)
    return lowest


@pytest.fixture(scope="module", params=["locked", "lowest"])
def scripts(
    request: pytest.FixtureRequest, built: BuiltWheel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The folder of the programs of an environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    versions = LOCK if request.param == "locked" else lowest_versions(folder / "uv")
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    wanted = f"{built.path}[app]"
    install = [programs / "python", "-I", "-m", "pip", "install", "--quiet", "-c", versions, wanted]
    subprocess.run(install, check=True)
    yield programs
    shutil.rmtree(folder)  # it has more than a gigabyte


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    variables = {**os.environ, "HEADLAB_CACHE": str(tmp_path / "cache")}
    for name in ("PYTHONPATH", "HEADLAB_DEMO"):
        variables.pop(name, None)
    return variables


def test_the_source_archive_holds_what_the_wheel_is_made_of(built: BuiltWheel) -> None:
    assert built.source is not None
    names = subprocess.run(
        ["tar", "tzf", built.source], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "headlab-0.1.0/headlab/commit.txt" in names
    assert "headlab-0.1.0/headlab/dashboard/entry/.streamlit/config.toml" in names


def test_the_eight_lines_of_the_readme_run(
    scripts: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    lines = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert lines is not None
    program = lines.group(1).replace(
        'method="shapley")', 'method="shapley", target=0.2, samples=64, size=64)'
    )
    assert "target" in program
    subprocess.run(
        [scripts / "python", "-I", "-c", program], cwd=tmp_path, env=environment, check=True
    )
    assert (tmp_path / "mask.json").is_file()


def test_a_mask_is_chosen_and_evaluated(
    scripts: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    def printed(*words: str) -> dict[str, object]:
        finished = subprocess.run(
            [scripts / "headlab", *words, "--json"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        answer: dict[str, object] = json.loads(finished.stdout)
        return answer

    prune = ("prune", "--languages", "de", "--method", "gradient", "--rule", "bottom", "--k", "5")
    printed(*prune, "--out", "m.json")
    evaluated = printed("evaluate", "--languages", "de", "--mask", "m.json", "--size", "100")
    assert "de" in json.dumps(evaluated)


def test_the_app_serves_and_answers(
    scripts: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    with (
        served_app([str(scripts / "headlab")], tmp_path, environment) as address,
        urllib.request.urlopen(f"{address}/", timeout=60) as answer,
    ):
        assert b"<title>" in answer.read()


def test_the_core_alone_scores_a_model_of_one_s_own(
    built: BuiltWheel, tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> None:
    """Without any extra: the library works, and what needs an extra says which."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-I", "-m", "pip", "install", "--quiet", "-c", LOCK, built.path], check=True
    )
    save_classifier(folder / "tiny", layers=1)
    (folder / "en.dev.csv").write_text("text,label\n" + "stop,turn_off\ngo,turn_on\n" * 20)
    (folder / "mine.toml").write_text(
        'name = "mine"\nformat = "csv"\nfiles = "{language}.{split}.csv"\n'
        'columns = { text = "text", label = "label" }\n'
    )
    run = subprocess.run(
        [python, "-I", "-c", SCORE_WITHOUT_EXTRAS],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "pip install 'headlab[demo]'" in run.stdout
    shutil.rmtree(folder)


SCORE_WITHOUT_EXTRAS = """
import headlab
model = headlab.load("tiny")
task = headlab.task("mine.toml")
scores = headlab.score(model, task, language="en", method="gradient", size=16)
assert len(scores.values) == model.grid.size
try:
    headlab.load("e5-small-intents")
except headlab.HeadlabError as error:
    print(error)
"""
