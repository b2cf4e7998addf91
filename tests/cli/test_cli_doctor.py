"""`headlab doctor` as people and scripts use it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headlab.cli import doctor
from headlab.cli.run import main

SCRIPTS = Path(__file__).parents[1] / "data" / "v4_scripts"


def test_it_lists_findings_by_kind_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(SCRIPTS)]) == doctor.FOUND == 1
    output = capsys.readouterr()
    assert output.err == ""
    lines = output.out.splitlines()
    assert f"    {SCRIPTS / 'train.py'}:88  model.prune_heads" in lines
    assert f"    {SCRIPTS / 'explore.ipynb'}, cell 8, line 1  model.prune_heads" in lines
    assert "prune_heads (3)" in lines
    assert any(line.startswith("  transformers 5: AttributeError") for line in lines)
    assert lines[-1] == "15 findings in 4 files read; 1 could not be read."
    assert any("old_report.py:6  Python 3" in line for line in lines)
    remedies = [line for line in lines if line.startswith("  instead: ")]
    assert sum("as above" in line for line in remedies) > 4


def test_json_has_every_finding_with_its_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(SCRIPTS), "--json"]) == 1
    output = capsys.readouterr()
    record = json.loads(output.out)
    assert output.err == ""
    assert record.keys() == {"path", "complete", "read", "skipped", "unread", "findings"}
    assert len(record["findings"]) == 15
    fields = {"file", "line", "cell", "kind", "found", "does", "instead"}
    assert all(finding.keys() == fields for finding in record["findings"])


def test_nothing_found_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(SCRIPTS / "predict.py")]) == 0
    assert capsys.readouterr().out == "Nothing found in 1 file read.\n"


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["nowhere"], "there is no file or folder nowhere"),
        ([str(SCRIPTS / "old_report.py")], "line 6"),
        ([str(SCRIPTS), "--max-files", "0"], "--max-files"),
        ([], "PATH"),
    ],
)
def test_a_mistake_is_2(words: list[str], phrase: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert phrase in output.err


def test_the_end_at_the_largest_number_of_files_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", str(SCRIPTS), "--max-files", "2"]) == 1
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line.startswith("Stopped after 2 files; there are more. Raise --max-files")


def test_many_unread_files_are_counted_and_odd_names_stay_on_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(doctor.MAX_UNREAD + 3):
        (tmp_path / f"{number:02}\n.py").write_text("(")
    assert main(["doctor", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "not read (23)"
    assert lines[-3] == "    and 3 more; --json lists all"
    assert f"    {tmp_path}/00?.py:1  " in lines[1]


def test_it_imports_neither_torch_nor_transformers_and_what_it_reads_is_not_run(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, folder)
    (folder / "danger.py").write_text("raise SystemExit(open('ran', 'w').write('x'))\n")
    program = (
        "import sys; from headlab.cli import main; code = main(['doctor', 'scripts']);"
        "print(code, [name for name in ('torch', 'transformers', 'scipy') if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert finished.stdout.endswith("1 []\n")
    assert not (tmp_path / "ran").exists()


def test_progress_is_a_line_now_and_then_where_stderr_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "SECONDS_BETWEEN_LINES", 0)
    assert main(["doctor", str(SCRIPTS / "checkpoint")]) == 1
    assert capsys.readouterr().err == f"files read: 1, now in {SCRIPTS / 'checkpoint'}\n"
