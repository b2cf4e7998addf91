"""Output that commands share: the command that is recorded, and a report as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headlab.cli.output import command_without_paths, print_report, recorded_command, write_report
from headlab.core import Report, Table

REPORT = Report(
    "found", (Table("one", "One.", ("a",), ("d",), ((1,),)),), ("beware",), {"seed": 0}, 7, 1.5
)


def test_the_recorded_command_is_the_one_that_ran_without_its_paths() -> None:
    flags = {"--smoke": True, "--part": ["xnli", "intents"], "--weight": [0.03, 1.0], "--nli-model": Path("a/model"),
             "--seed": 3, "--device": None, "--quiet": False, "--pair": []}  # fmt: skip
    assert recorded_command("gates", flags) == (
        "headlab reproduce gates --data DIR --smoke --part xnli --part intents --weight 0.03 --weight 1 "
        "--nli-model FOLDER --seed 3"
    )
    assert recorded_command("x", {"--pair": "a b"}) == "headlab reproduce x --data DIR --pair 'a b'"


def test_a_seed_of_0_and_folders_that_were_not_given_are_left_out() -> None:
    command = command_without_paths("held", False, {"--a": None, "--b": Path("x")}, "float32", 0)
    assert command == "headlab reproduce held --data DIR --b FOLDER --dtype float32"
    assert command_without_paths("held", True, {}, "float32", 2).endswith(
        "--smoke --dtype float32 --seed 2"
    )


def test_a_report_is_written_with_its_command_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_report(REPORT, tmp_path, "headlab reproduce x")
    value = json.loads((tmp_path / "found.json").read_text())
    assert value["command"] == "headlab reproduce x"
    assert Report.from_json(value) == REPORT
    assert (tmp_path / "one.csv").read_text() == "a\n1\n"
    print_report(REPORT)
    stdout = capsys.readouterr().out
    assert "### One." in stdout
    assert "note: beware" in stdout
