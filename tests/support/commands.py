"""Fixtures that run commands in this process; a file of tests imports those that it asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headlab.cli.run import main


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def go(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return go


@pytest.fixture
def json_output(run_command: Callable[..., tuple[int, str, str]]) -> Callable[..., Any]:
    def go(*arguments: object) -> Any:
        code, stdout, stderr = run_command(*arguments, "--json")
        assert (code, stderr) == (0, "")
        return json.loads(stdout)

    return go


@pytest.fixture
def refused(run_command: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Runs a command that must end with a sentence; gives the sentence."""

    def go(*arguments: object) -> str:
        code, stdout, stderr = run_command(*arguments)
        assert (code, stdout) == (2, "")
        assert stderr.startswith("headlab: ")
        assert "Traceback" not in stderr
        return stderr

    return go
