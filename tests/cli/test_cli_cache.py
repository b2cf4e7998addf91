"""`headlab cache`: sizes of results, and the removal of those that newer ones replace."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cached_reports import made_report
from support.printed_commands import commands_in
from support.synthetic_curves import made_curve
from support.synthetic_gates import keep_gates, made_gates
from support.versioned_scores import keep_scores, keys_in, tear, versioned_scores

from headlab.cli.run import main
from headlab.core import HeadGrid, Stack, Table
from headlab.report.build import ordered_on
from headlab.results import HeadScores, Store

ROOT = Path(__file__).parents[2]
REMOVE = ("cache", "--remove-superseded", "--cache")
RunCommand = Callable[..., tuple[int, str, str]]
Answer = Callable[[str], None]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """A function that runs a command and gives its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


class Terminal(io.StringIO):
    """What a person has typed."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, run_command: RunCommand) -> Answer:
    """A function that lets a person at a terminal type something."""

    def type_text(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return type_text


@pytest.fixture
def replaced_keys(tmp_path: Path) -> list[str]:
    """The keys of two results in a cache that a third one replaces."""
    older_keys = [keep_scores(tmp_path, versioned_scores(version)) for version in (None, 2)]
    keep_scores(tmp_path, versioned_scores(3))
    return older_keys


def file_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def keep(root: Path, record: Any) -> str:
    """Store a record of any kind, and give its key."""
    stored_run = Store(root).run(record.spec)
    stored_run.finish(record, {"versions": {}})
    return stored_run.key


def with_key(key: str) -> Any:
    """A report that names a result's key in its spec, its table and its notes."""
    report = made_report("heads")
    table = Table("runs", "Runs.", ("run",), ("",), ((key,),))
    spec = replace(report.spec, options={**(report.spec.options or {}), "run": key})
    return replace(report, tables=(*report.tables, table), notes=(f"From {key}.",), spec=spec)


# Sizes.


def test_sizes_are_those_of_the_files(tmp_path: Path, run_command: RunCommand) -> None:
    keep_scores(tmp_path, versioned_scores(3))
    keep(tmp_path, made_curve())
    keep(tmp_path, made_report("heads"))
    gates_key = keep_gates(tmp_path, made_gates())
    (tmp_path / gates_key / "model").mkdir()
    (tmp_path / gates_key / "model" / "weights").write_bytes(bytes(10**6))
    Store(tmp_path).run(versioned_scores(3, seed=1).spec).make_folder()
    (tmp_path / ".worker").mkdir()
    (tmp_path / ".worker" / "jobs").write_bytes(bytes(1000))
    code, stdout, stderr = run_command("cache", "--cache", tmp_path, "--json")
    assert (code, stderr) == (0, "")
    listing = json.loads(stdout)
    assert listing["bytes"] == file_bytes(tmp_path)
    for kind in ("results", "curves", "reports", "gates"):
        (row,) = listing[kind]
        assert row["bytes"] == file_bytes(tmp_path / row["key"]) > 0
    assert listing["gates"][0]["bytes"] > 10**6
    code, stdout, _ = run_command("cache", "--cache", tmp_path)
    assert code == 0
    assert stdout.splitlines()[-1] == f"4 results, 0 skipped, in {tmp_path} (1.0 MB)"


def test_a_cache_that_does_not_exist_holds_no_bytes(
    tmp_path: Path, run_command: RunCommand
) -> None:
    code, stdout, _ = run_command("cache", "--cache", tmp_path / "none", "--json")
    assert (code, json.loads(stdout)["bytes"]) == (0, 0)
    code, stdout, _ = run_command(*REMOVE, tmp_path / "none", "--json", "--yes")
    assert (code, json.loads(stdout)["removed"]) == (0, [])
    assert list(tmp_path.iterdir()) == []


# What is removed.


def test_what_was_removed_is_one_json_object(
    tmp_path: Path, run_command: RunCommand, replaced_keys: list[str]
) -> None:
    _, stdout, _ = run_command("cache", "--cache", tmp_path, "--json")
    rows_before = {row["key"]: row for row in json.loads(stdout)["results"]}
    bytes_before = file_bytes(tmp_path)
    (newest_key,) = set(rows_before) - set(replaced_keys)
    code, stdout, stderr = run_command(*REMOVE, tmp_path, "--json", "--yes")
    assert (code, stderr) == (0, "")
    outcome = json.loads(stdout)
    assert set(outcome) == {"root", "bytes", "removed", "stay", "problems"}
    assert outcome["root"] == str(tmp_path)
    assert (outcome["stay"], outcome["problems"]) == ([], [])
    versions = {}
    for row in outcome["removed"]:
        versions[row["key"]] = row.pop("version")
        assert (row.pop("successor"), row.pop("successor_version")) == (newest_key, 3)
        assert row | {"demo": False} == rows_before[row["key"]]
    assert versions == dict(zip(replaced_keys, (1, 2), strict=True))
    assert outcome["bytes"] == bytes_before - file_bytes(tmp_path) > 0
    assert keys_in(tmp_path) == {newest_key}
    _, stdout, _ = run_command("cache", "--cache", tmp_path, "--json")
    assert json.loads(stdout)["results"] == [rows_before[newest_key]]
    _, stdout, _ = run_command(*REMOVE, tmp_path, "--json", "--yes")
    assert json.loads(stdout) == {**outcome, "bytes": 0, "removed": []}


def test_only_replaced_scores_go(tmp_path: Path, run_command: RunCommand) -> None:
    replaced_key = keep_scores(tmp_path, versioned_scores(2))
    keep_scores(tmp_path, versioned_scores(3))
    keep_scores(tmp_path, versioned_scores(2, seed=1))
    keep_scores(tmp_path, versioned_scores(2, seed=2))
    tear(tmp_path, keep_scores(tmp_path, versioned_scores(3, seed=2)))
    keep_scores(tmp_path, versioned_scores(2, seed=3))
    Store(tmp_path).run(versioned_scores(3, seed=3).spec).make_folder()
    keep(tmp_path, made_curve())
    keep(tmp_path, made_report("heads"))
    keep_gates(tmp_path, made_gates())
    (tmp_path / "stranger").mkdir()
    (tmp_path / "adapters").mkdir()
    keys_before = keys_in(tmp_path)
    code, stdout, _ = run_command(*REMOVE, tmp_path, "--yes")
    assert code == 0
    assert "2 results cannot be read" in stdout
    assert stdout.splitlines()[-1].startswith("removed 1 result, ")
    assert keys_in(tmp_path) == keys_before - {replaced_key}
    assert (tmp_path / "adapters").is_dir()


NEURONS = HeadGrid((Stack("encoder-neurons", (2, 2), ((0, 1, 1, 0), (1, 0, 0, 1))),))
OTHER_GROUPS = HeadGrid((Stack("encoder-neurons", (2, 2), ((0, 0, 1, 1), (1, 0, 0, 1))),))


def scores_of_neurons(version: int, grid: HeadGrid = NEURONS) -> HeadScores:
    """Scores of groups of neurons under a version of their method."""
    made = versioned_scores(version, grid=grid)
    return replace(made, spec=replace(made.spec, players="neurons:2", groups=grid.members_sha256))


def test_replaced_scores_of_other_players_go_too(tmp_path: Path, run_command: RunCommand) -> None:
    replaced_key = keep_scores(tmp_path, scores_of_neurons(2))
    newest_key = keep_scores(tmp_path, scores_of_neurons(3))
    other_key = keep_scores(tmp_path, scores_of_neurons(2, OTHER_GROUPS))
    heads_key = keep_scores(tmp_path, versioned_scores(2))
    code, stdout, _ = run_command(*REMOVE, tmp_path, "--json", "--yes")
    assert code == 0
    (removed,) = json.loads(stdout)["removed"]
    assert (removed["key"], removed["successor"]) == (replaced_key, newest_key)
    assert removed["players"] == "neurons:2"
    assert keys_in(tmp_path) == {newest_key, other_key, heads_key}
    keep_scores(tmp_path, scores_of_neurons(2))
    code, stdout, _ = run_command(*REMOVE, tmp_path, "--yes")
    assert code == 0
    assert "players neurons:2  version 2, replaced by version 3" in stdout
    assert "these are scores, and all else stays" in stdout
    assert keys_in(tmp_path) == {newest_key, other_key, heads_key}


def test_a_result_that_is_in_use_stays_and_says_why(
    tmp_path: Path, run_command: RunCommand, replaced_keys: list[str]
) -> None:
    (tmp_path / replaced_keys[0] / "checkpoint.npz").write_bytes(b"")
    (tmp_path / replaced_keys[1] / "notes.txt").write_text("mine")
    code, stdout, _ = run_command(*REMOVE, tmp_path, "--json", "--yes")
    assert code == 0
    outcome = json.loads(stdout)
    reasons = {row["key"]: row["reason"] for row in outcome["stay"]}
    assert outcome["removed"] == []
    assert "checkpoint.npz" in reasons[replaced_keys[0]]
    assert "notes.txt" in reasons[replaced_keys[1]]
    code, stdout, _ = run_command(*REMOVE, tmp_path, "--yes")
    assert f"! {replaced_keys[0]:.12} stays: " in stdout
    assert "0 results replaced by newer versions" in stdout
    assert set(replaced_keys) < keys_in(tmp_path)


def test_a_result_that_changes_while_the_question_waits_stays(
    tmp_path: Path,
    run_command: RunCommand,
    replaced_keys: list[str],
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class SlowPerson(Terminal):
        def readline(self, *_: Any) -> str:
            (newest_key,) = keys_in(tmp_path) - set(replaced_keys)
            tear(tmp_path, newest_key)
            return "y\n"

    answer("")
    monkeypatch.setattr(sys, "stdin", SlowPerson())
    code, stdout, _ = run_command(*REMOVE, tmp_path)
    assert code == 0
    assert stdout.count("can no longer be read") == 2
    assert "removed 0 results" in stdout
    assert set(replaced_keys) < keys_in(tmp_path)


# The question.


@pytest.mark.parametrize("text", ["y\n", "yes\n", " Y \n", "YES"])
def test_yes_removes_them(
    tmp_path: Path,
    run_command: RunCommand,
    replaced_keys: list[str],
    answer: Answer,
    text: str,
) -> None:
    replaced_bytes = sum(file_bytes(tmp_path / key) for key in replaced_keys)
    answer(text)
    code, stdout, stderr = run_command(*REMOVE, tmp_path)
    assert (code, stderr) == (0, "Remove these 2 results? [y/N] ")
    size = f"{replaced_bytes / 1000:.1f} kB"
    *rows, summary, outcome = stdout.splitlines()
    assert [row[:12] for row in rows] == sorted(key[:12] for key in replaced_keys)
    assert all("replaced by version 3" in row for row in rows)
    assert summary.startswith("2 results replaced by newer versions of their methods")
    assert f"in {tmp_path} ({size}); these are scores" in summary
    assert outcome == f"removed 2 results, {size}"
    assert len(keys_in(tmp_path)) == 1


@pytest.mark.parametrize("text", ["n\n", "\n", "", "no\n", "yep\n", "x"])
def test_anything_else_removes_nothing(
    tmp_path: Path,
    run_command: RunCommand,
    replaced_keys: list[str],
    answer: Answer,
    text: str,
) -> None:
    answer(text)
    code, stdout, stderr = run_command(*REMOVE, tmp_path)
    assert (code, stderr) == (0, "Remove these 2 results? [y/N] ")
    assert stdout.endswith("\nnothing was removed\n")
    assert set(replaced_keys) < keys_in(tmp_path)


def test_nothing_is_asked_where_nothing_is_replaced(
    tmp_path: Path, run_command: RunCommand, answer: Answer
) -> None:
    keep_scores(tmp_path, versioned_scores(3))
    answer("y\n")
    code, stdout, stderr = run_command(*REMOVE, tmp_path)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("0 results replaced by newer versions")


def test_one_result_is_asked_for_in_the_singular(
    tmp_path: Path, run_command: RunCommand, answer: Answer
) -> None:
    keep_scores(tmp_path, versioned_scores(2))
    keep_scores(tmp_path, versioned_scores(3))
    answer("y\n")
    code, stdout, stderr = run_command(*REMOVE, tmp_path)
    assert (code, stderr) == (0, "Remove this result? [y/N] ")
    assert "removed 1 result, " in stdout


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--remove-superseded",), "no terminal to ask on"),
        (("--remove-superseded", "--json"), "with --json nothing is asked"),
        (("--yes",), "give that too"),
        (("--yes", "--json"), "give that too"),
    ],
)
@pytest.mark.parametrize("has_stdin", [True, False])
def test_without_an_answer_nothing_is_removed(
    tmp_path: Path,
    run_command: RunCommand,
    replaced_keys: list[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    advice: str,
    has_stdin: bool,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n") if has_stdin else None)
    code, stdout, stderr = run_command("cache", *arguments, "--cache", tmp_path)
    assert (code, stdout) == (2, "")
    assert stderr.startswith("headlab: ")
    assert stderr.count("\n") == 1
    assert advice in stderr
    assert set(replaced_keys) < keys_in(tmp_path)


@pytest.mark.parametrize(("typed", "are_gone"), [(b"y\n", True), (b"\n", False)])
def test_the_question_is_asked_on_a_real_terminal(
    tmp_path: Path, replaced_keys: list[str], typed: bytes, are_gone: bool
) -> None:
    person, terminal = pty.openpty()
    os.write(person, typed)
    command = [sys.executable, "-m", "headlab.cli", *REMOVE, str(tmp_path)]
    process = subprocess.run(
        command, cwd=ROOT, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, check=False
    )
    os.close(terminal)
    os.close(person)
    assert process.returncode == 0
    assert (b"removed 2 results" in process.stdout) == are_gone
    assert (set(replaced_keys) < keys_in(tmp_path)) != are_gone


# Where something is in the way.


def test_a_cache_that_cannot_be_written_is_a_sentence_and_says_how_many_are_gone(
    tmp_path: Path,
    run_command: RunCommand,
    replaced_keys: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rename = Path.rename
    last_key = sorted(replaced_keys)[1]

    def rename_all_but_the_last(path: Path, target: Path) -> Path:
        if path.name == last_key:
            raise OSError(30, "Read-only file system")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_all_but_the_last)
    code, stdout, stderr = run_command(*REMOVE, tmp_path, "--json", "--yes")
    assert (code, stdout) == (2, "")
    assert stderr.count("\n") == 1
    for phrase in (last_key, "Read-only file system", "1 result removed before it"):
        assert phrase in stderr
    assert last_key in keys_in(tmp_path)
    assert len(Store(tmp_path).scan().results) == 2


def test_a_cache_with_what_a_killed_removal_left_lists_cleanly_and_is_swept(
    tmp_path: Path, run_command: RunCommand, replaced_keys: list[str]
) -> None:
    leftover = tmp_path / f".{replaced_keys[0]}.0123abcd.removed"
    (tmp_path / replaced_keys[0]).rename(leftover)
    (leftover / "result.npz").unlink()
    _, stdout, _ = run_command("cache", "--cache", tmp_path, "--json")
    listing = json.loads(stdout)
    assert (len(listing["results"]), listing["problems"]) == (2, [])
    assert listing["bytes"] == file_bytes(tmp_path)
    _, stdout, _ = run_command(*REMOVE, tmp_path, "--json", "--yes")
    assert [row["key"] for row in json.loads(stdout)["removed"]] == [replaced_keys[1]]
    assert not leftover.exists()


# What names a removed result stays true.


def test_a_report_that_names_a_removed_result_still_opens(
    tmp_path: Path, run_command: RunCommand, replaced_keys: list[str]
) -> None:
    report = with_key(replaced_keys[0])
    report_key = keep(tmp_path, report)
    assert run_command(*REMOVE, tmp_path, "--yes")[0] == 0
    assert replaced_keys[0] not in keys_in(tmp_path)
    (result,) = Store(tmp_path).reports().results
    assert result.record == report
    out = tmp_path / "report.html"
    code, _, stderr = run_command("report", report_key, "--cache", tmp_path, "--out", out)
    assert (code, stderr) == (0, "")
    assert replaced_keys[0] in out.read_text(encoding="utf-8")


def test_the_command_of_a_curve_still_says_how_many_examples_ordered_its_heads(
    tmp_path: Path, run_command: RunCommand, replaced_keys: list[str]
) -> None:
    curve = made_curve()
    order = {**(curve.spec.order or {}), "run": replaced_keys[1]}
    curve_key = keep(tmp_path, replace(curve, spec=replace(curve.spec, order=order)))
    commands = []
    for is_removed in (False, True):
        if is_removed:
            assert run_command(*REMOVE, tmp_path, "--yes")[0] == 0
        out = tmp_path / f"{is_removed}.html"
        assert run_command("report", curve_key, "--cache", tmp_path, "--out", out)[0] == 0
        (command,) = commands_in(out)
        commands.append(command)
    assert commands[0] == commands[1]
    assert "--dev-size 48" in commands[0]
    assert ordered_on(Store(tmp_path))(replaced_keys[0]) == 48
    assert ordered_on(Store(tmp_path))("f" * 64) is None


def test_the_newer_scores_are_what_the_store_gives(
    tmp_path: Path, run_command: RunCommand, replaced_keys: list[str]
) -> None:
    assert run_command(*REMOVE, tmp_path, "--yes")[0] == 0
    stored_run = Store(tmp_path).run(versioned_scores(3).spec)
    result = stored_run.result(HeadScores)
    assert result is not None
    assert result.record.values_sha256() == versioned_scores(3).values_sha256()
