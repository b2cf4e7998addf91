"""The list of commands imports none of them, and says what each one's help says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from headlab import __version__
from headlab.cli.application import COMMANDS, build, on_demand
from headlab.cli.run import main
from headlab.core import versions

EAGER = typer.main.get_command(build())


def test_the_sentence_of_each_command_is_the_first_of_its_help() -> None:
    for name, command in EAGER.commands.items():
        first_sentence = " ".join((command.help or "").split("\n\n")[0].split())
        assert first_sentence.startswith(COMMANDS[name].about.rstrip(".")), name


def test_every_command_is_found_on_demand() -> None:
    root = on_demand()
    assert root.list_commands(None) == list(COMMANDS) == list(EAGER.commands)
    for name, command in EAGER.commands.items():
        found = root.get_command(None, name)
        options = [parameter.opts for parameter in command.params]
        assert [parameter.opts for parameter in found.params] == options
        if COMMANDS[name].kind == "group":
            assert list(found.commands) == list(command.commands)
    assert root.get_command(None, "no-such-command") is None


def test_help_imports_no_command() -> None:
    program = (
        "import sys; from headlab.cli import main; main(['--help']);"
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'scipy')"
        " or name.startswith('headlab.jobs')])"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output.endswith("[]\n")
    assert "  prune " in output


def test_the_version_is_printed_with_the_commit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "commit", lambda: "abc123")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"headlab {__version__} (commit abc123)\n"


def test_without_the_packages_of_the_command_line_its_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['typer'] = None;"
        "from headlab.cli import main; sys.exit(main(['--help']))"
    )
    refused = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "needs the package typer" in refused.stderr
    assert "pip install 'headlab[cli]'" in refused.stderr


def test_a_command_that_misses_a_package_names_it() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None;"
        "from headlab.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ("report", "0121f33c", "--out", "report.html")
    refused = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HEADLAB_DEMO": "on"},
    )
    assert refused.returncode == 2
    assert "needs the package matplotlib" in refused.stderr


def test_completion_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out


def test_commands_are_completed() -> None:
    environment = {
        "_HEADLAB_COMPLETE": "complete_bash",
        "COMP_WORDS": "headlab pru",
        "COMP_CWORD": "1",
    }
    program = "from headlab.cli import main; main([])"
    output = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    ).stdout
    assert output.split() == ["prune"]
