"""`headlab app` checks what it is told, tells the dashboard, and becomes Streamlit's server."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.saved_models import save_classifier

from headlab.cli import app as app_command
from headlab.cli.run import main
from headlab.core import APP_DEVICE_VARIABLE, APP_MODEL_VARIABLE, APP_TASK_VARIABLE

TOLD = (APP_MODEL_VARIABLE, APP_TASK_VARIABLE, APP_DEVICE_VARIABLE)


@pytest.fixture
def server_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The arguments with which the server would have been started; empty until it would be."""
    arguments: list[str] = []
    monkeypatch.setattr(app_command, "start_server", arguments.extend)
    for name in (*TOLD, "HEADLAB_WORKER", "HEADLAB_DATA", "HEADLAB_TASKS"):
        monkeypatch.setenv(name, "")  # so that what the command sets is undone
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    return arguments


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> str:
    """A port, as a word, that nobody asks whether it is free: another process might take it."""
    monkeypatch.setattr(app_command, "require_free_port", lambda address, port: None)
    return "8599"


def test_it_listens_on_this_computer_alone_and_opens_no_browser(
    server_arguments: list[str], port: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["app", "--port", port]) == 0
    *start, entry, address_option, port_option = server_arguments
    options = [address_option, port_option]
    assert start == ["-P", "-m", "streamlit", "run"]
    assert Path(entry).parent.joinpath(".streamlit", "config.toml").is_file()
    assert options == ["--server.address=127.0.0.1", f"--server.port={port}"]
    assert (tmp_path / "cache").is_dir()
    assert capsys.readouterr().err == ""


def test_another_address_of_this_computer_is_answered_too(
    server_arguments: list[str], port: str
) -> None:
    assert main(["app", "--port", port, "--address", "127.0.0.2"]) == 0
    assert "--server.allowedHosts=127.0.0.2" in server_arguments


def test_a_worker_elsewhere_needs_no_folder_that_can_be_written(
    server_arguments: list[str], port: str
) -> None:
    words = ["app", "--port", port, "--worker", "http://127.0.0.1:8700", "--cache", "/proc/here"]
    assert main(words) == 0
    assert os.environ["HEADLAB_WORKER"] == "http://127.0.0.1:8700"


def test_what_pages_show_first_is_told_in_variables(
    server_arguments: list[str], port: str, tmp_path: Path
) -> None:
    folder = save_classifier(tmp_path / "tiny", layers=1)
    words = ["app", "--port", port, "--model", str(folder), "--task", "slots", "--device", "cpu"]
    assert main([*words, "--data", str(tmp_path), "--cache", str(tmp_path / "own")]) == 0
    assert os.environ[APP_MODEL_VARIABLE] == str(folder.absolute())
    assert os.environ[APP_TASK_VARIABLE] == "slots"
    assert os.environ[APP_DEVICE_VARIABLE] == "cpu"
    assert os.environ["HEADLAB_DATA"] == str(tmp_path)
    assert os.environ["HEADLAB_CACHE"] == str(tmp_path / "own")
    assert server_arguments


def test_a_declaration_is_added_to_those_that_pages_know(
    server_arguments: list[str], port: str, tmp_path: Path
) -> None:
    (tmp_path / "en.dev.csv").write_text("text,label\nstop,alarm\ngo,weather\n")
    declaration = tmp_path / "mine.toml"
    declaration.write_text(
        'name = "mine"\nformat = "csv"\nfiles = "{language}.{split}.csv"\n'
        'columns = { text = "text", label = "label" }\n'
    )
    status = main(["app", "--port", port, "--task", str(declaration)])
    assert status == 0
    assert os.environ[APP_TASK_VARIABLE] == "mine"
    assert os.environ["HEADLAB_TASKS"] == str(declaration)


def test_other_computers_are_let_in_with_a_warning(
    server_arguments: list[str], port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "--port", port, "--address", "0.0.0.0"]) == 0
    errors = capsys.readouterr().err
    assert "no log-in" in errors
    assert "--allow-host" in errors
    assert not any(word.startswith("--server.allowedHosts") for word in server_arguments)


def test_names_of_other_computers_are_added_to_this_one_s(
    server_arguments: list[str], port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["app", "--port", port, "--address", "0.0.0.0", "--allow-host", "box.example"]
    assert main(words) == 0
    hosts = [word.partition("=")[2] for word in server_arguments if "allowedHosts" in word]
    assert hosts == ["localhost", "127.0.0.1", "::1", "box.example"]
    assert "--allow-host" not in capsys.readouterr().err


def test_a_browser_is_opened_without_a_question_for_an_address(
    server_arguments: list[str], port: str
) -> None:
    assert main(["app", "--port", port, "--open"]) == 0
    assert server_arguments[-2:] == ["--server.headless=false", "--server.showEmailPrompt=false"]


def test_a_taken_port_is_refused_before_anything_is_made(
    server_arguments: list[str],
    taken_port: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["app", "--port", str(taken_port)]) == 2
    assert f"port {taken_port} of 127.0.0.1 cannot be used" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()
    assert server_arguments == []


@pytest.mark.parametrize("address", ["no such name", "192.0.2.1", "a" * 300])
def test_an_address_of_another_computer_is_refused(
    address: str, server_arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "--address", address]) == 2
    assert "is no address of this computer" in capsys.readouterr().err
    assert server_arguments == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "no-such-model"], "there is no model 'no-such-model'; --model takes"),
        (["--task", "no-such-task"], "unknown task 'no-such-task'"),
        (["--data", "no-such-folder"], "there is no folder no-such-folder"),
        (["--worker", "http://host:8700", "--device", "cpu"], "leave one of them out"),
        (["--worker", "host"], "--worker takes an address like http://host:8700"),
        (["--worker", "http://\0"], "--worker takes an address"),
        (["--device", "gpu"], "--device takes cpu, cuda, cuda:1 or mps"),
        (["--allow-host", "http://x"], "--allow-host takes a name or number"),
        (["--model", "\ud800"], "there is no model"),
        (["--model", "a\0b"], "there is no model"),
        (["--cache", "/proc/here"], "cannot write /proc/here"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    words: list[str],
    sentence: str,
    server_arguments: list[str],
    port: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["app", "--port", port, *words]) == 2
    assert sentence in capsys.readouterr().err
    assert server_arguments == []


def test_missing_packages_are_named_with_their_extra(
    server_arguments: list[str],
    port: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def find_spec_without_streamlit(name: str) -> object:
        return None if name == "streamlit" else find_spec(name)

    monkeypatch.setattr(app_command.importlib.util, "find_spec", find_spec_without_streamlit)
    assert main(["app", "--port", port]) == 2
    errors = capsys.readouterr().err
    assert "(streamlit)" in errors
    assert "pip install 'headlab[app]'" in errors


def test_where_the_worker_does_not_run_it_says_so(
    server_arguments: list[str],
    port: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(app_command, "HAS_WORKER", False)
    assert main(["app", "--port", port]) == 2
    assert "WSL" in capsys.readouterr().err


def test_the_process_becomes_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: calls.append((path, words)))
    app_command.start_server(["-m", "streamlit"])
    assert calls == [(sys.executable, [sys.executable, "-m", "streamlit"])]
