"""A kind of job from a package has its own command, and is read back from it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.expected_errors import raises
from support.saved_models import save_classifier

from headlab.cli.run import build, main
from headlab.jobs.reading import read_command
from headlab.jobs.table import BUILT_IN_KINDS, COMMANDS, JOBS

MODULE = '''
"""How long the texts of a task are."""

from typing import ClassVar

from headlab.jobs import Part, TaskJob, estimate, setting
from headlab.core.options import Option


class LengthsJob(TaskJob):
    """Lengths of the texts of some languages."""

    limit: int = setting(Option(2, "texts of a language", kind=int, low=1, high=10))
    words: bool = setting(Option(False, "count words, not letters", kind=bool))
    mean: str = setting(Option("mean", "mean or median of the lengths", ("mean", "median")))
    unit: str = setting(Option("word", "what is long", ("word", "text")))
    share: float | None = setting(
        Option(
            None,
            "letters longer than this share",
            kind=float,
            low=0,
            high=1,
            open=True,
            optional=True,
        )
    )

    key: ClassVar[str] = "lengths"
    name: ClassVar[str] = "Text lengths"
    about: ClassVar[str] = "How long the texts of a task are."

    def forecast(self, known):
        pace, basis = known.measured_pace()
        part = Part(self.limit * len(self.languages), pace, (basis,))
        return estimate([part], self.plain_passes())

    def run(self, lab, running):
        lengths = {}
        for place, language in enumerate(self.languages):
            running.tick()
            running.progress(place, len(self.languages), language)
            running.log(f"{language}: counted")
            examples = lab.task(self.task).examples(language, "dev", self.limit)
            texts = [example.text.split() if self.words else example.text for example in examples]
            lengths[language] = list(map(len, texts))
        heads = lab.need(self.model).grid.size
        return {"keys": sorted(lengths), "lengths": lengths, "heads": heads}


class TakenJob(LengthsJob):
    """A job whose command is another one's."""

    key: ClassVar[str] = "prune"
'''
ENTRY_POINTS = """
[headlab.jobs]
lengths = headlab_lengths:LengthsJob
prune = headlab_lengths:TakenJob
"""
ROWS = "text,label\nstop it now,alarm\ngo,weather\n"
TOML = """\
name = "mood"
format = "csv"
files = "{language}.{split}.csv"
columns = { text = "text", label = "label" }
"""
RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as pip installs it."""
    site = tmp_path / "site"
    distribution_info = site / "headlab_lengths-0.1.dist-info"
    distribution_info.mkdir(parents=True)
    (site / "headlab_lengths.py").write_text(MODULE)
    (distribution_info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: headlab-lengths\nVersion: 0.1\n"
    )
    (distribution_info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    JOBS.refresh()
    yield
    monkeypatch.undo()
    JOBS.refresh()
    sys.modules.pop("headlab_lengths", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """A function that runs a command and gives its exit code, stdout and stderr."""

    def go(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return go


def test_it_is_listed_with_the_flags_of_its_fields(run_command: RunCommand) -> None:
    code, commands, _ = run_command("--help")
    assert code == 0
    assert "lengths" in commands
    code, flags, _ = run_command("lengths", "--help")
    assert code == 0
    assert "How long the texts of a task are." in flags
    for flag in ("--model", "--task", "--data", "--languages", "--limit", "--words / --no-words"):
        assert flag in flags
    for flag in ("--device", "--dtype", "--cache", "--json"):
        assert flag in flags
    assert flags.index("texts of a language") < flags.index("--cache")


def test_its_help_names_the_limits_that_hold(run_command: RunCommand) -> None:
    _, text, _ = run_command("lengths", "--help")
    help_text = " ".join(text.split())
    assert "texts of a language (a whole number from 1 to 10) [default: 2]" in help_text
    assert "letters longer than this share (a number between 0 and 1, both excluded)" in help_text
    assert "or none" not in help_text
    assert "mean or median of the lengths [default: mean]" in help_text
    assert "what is long (word or text) [default: word]" in help_text
    assert "count words, not letters [default: no-words]" in help_text


def test_too_small_and_too_large_are_refused_in_one_way(
    run_command: RunCommand, folder: Path
) -> None:
    for limit in (0, 11):
        code, text, messages = run_command("lengths", "--model", folder, "--limit", limit)
        assert (code, text) == (2, "")
        assert messages == (
            f"headlab: [job.field_invalid] limit is {limit}; choose a whole number from 1 to 10\n"
        )


def test_it_is_forecast_and_run_in_this_process(
    run_command: RunCommand, folder: Path, tmp_path: Path
) -> None:
    command = ["lengths", "--model", folder, "--languages", "de,en", "--cache", tmp_path / "cache"]
    code, text, messages = run_command(*command)
    assert code == 0
    keys_and_figures = text.splitlines()
    assert keys_and_figures[:2] == ["de", "en"]
    assert [line.split(":")[0] for line in keys_and_figures[2:]] == ["lengths", "heads"]
    assert messages.startswith("lengths: 4 forwards, about ")
    assert "measured now" in messages
    assert "de: counted\n" in messages
    code, text, _ = run_command(*command, "--limit", 1, "--words", "--json")
    outcome = json.loads(text)
    assert code == 0
    assert outcome["keys"] == ["de", "en"]
    assert [len(lengths) for lengths in outcome["lengths"].values()] == [1, 1]


def test_its_task_may_be_the_path_of_a_declaration(
    run_command: RunCommand, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADLAB_TASKS", raising=False)
    (tmp_path / "en.dev.csv").write_text(ROWS)
    (tmp_path / "mood.toml").write_text(TOML)
    command = ["lengths", "--model", folder, "--task", tmp_path / "mood.toml", "--words", "--json"]
    command += ["--label-map", "alarm=0,weather=1", "--cache", tmp_path / "cache"]
    code, text, messages = run_command(*command)
    assert code == 0, messages
    assert json.loads(text)["lengths"] == {"en": [3, 1]}
    assert "HEADLAB_TASKS" not in os.environ
    code, _, messages = run_command(*command, "--data", tmp_path)
    assert code == 2
    assert "leave --data out" in messages


def test_its_data_folder_is_that_of_the_command(
    run_command: RunCommand, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADLAB_DATA", raising=False)
    command = ["lengths", "--model", folder, "--task", "udpos", "--languages", "de"]
    (tmp_path / "ud").mkdir()
    (tmp_path / "ud" / "en.dev.conllu").touch()
    code, _, messages = run_command(*command, "--data", tmp_path)
    assert code == 2
    assert "no language 'de'; it has en" in messages
    code, _, messages = run_command(*command, "--data", tmp_path / "nowhere")
    assert code == 2
    assert "not a folder" in messages
    assert "HEADLAB_DATA" not in os.environ


def test_a_field_that_does_not_fit_is_refused_in_one_sentence(
    run_command: RunCommand, folder: Path
) -> None:
    code, text, messages = run_command("lengths", "--model", folder, "--limit", 11)
    assert (code, text) == (2, "")
    assert messages == (
        "headlab: [job.field_invalid] limit is 11; choose a whole number from 1 to 10\n"
    )
    with raises("job.field_invalid", 11, "limit"):
        read_command("headlab lengths --limit 11")


@pytest.mark.parametrize("words", [True, False])
def test_its_line_is_read_back(words: bool) -> None:
    job = JOBS["lengths"].model_validate(
        {"model": "m", "task": "intents", "languages": ["de"], "limit": 3, "words": words}
    )
    line = job.terminal_lines()
    assert line.endswith("--limit 3 --words" if words else "--limit 3")
    assert read_command(line) == job


def test_a_key_that_another_command_has_is_left_out() -> None:
    assert JOBS.added_keys == ("lengths",)
    (problem,) = JOBS.problems
    assert "prune" in problem
    assert "taken" in problem


def test_every_command_is_of_a_job_or_reserved() -> None:
    app = build()
    names = {command.name for command in app.registered_commands}
    names |= {group.name for group in app.registered_groups}
    job_commands = {key.split()[0] for key, kind in BUILT_IN_KINDS.items() if kind.has_command}
    assert names == {*job_commands, *COMMANDS, "lengths"}
