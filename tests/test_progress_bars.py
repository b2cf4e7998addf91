"""Bars of progress: shown where a person looks or asks, closed however the work ends."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from tqdm.auto import tqdm

import headlab
from headlab.core import Progress, progress_bars, shown_progress
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.results import HeadScores
from headlab.studies.run import Pieces, run_experiment
from headlab.studies.savings_run import measure

HOUSE = Path(headlab.__file__).parent
WITH_A_BAR = {"score", "prune_curve", "run_experiment", "measure", "evaluate"}


class Terminal:
    """Stderr, as a terminal.

    Attributes:
        capture: What takes what is written there.
    """

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture
        self._text = ""

    def getvalue(self) -> str:
        """All that was written."""
        self._text += self.capture.readouterr().err
        return self._text


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr as a terminal, on which a bar comes at once."""
    # Of the class: the stream of the test itself is made when the test begins.
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True)
    monkeypatch.setattr(progress_bars, "SECONDS_UNSEEN", 0.0)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return Terminal(capsys)


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def scores(model: Model) -> HeadScores:
    return score(model)


def score(model: Model, **arguments: Any) -> HeadScores:
    return headlab.score(model, tiny_task(), language="xx", method="gradient", size=8, **arguments)


def count_open_bars() -> int:
    """How many bars are open: the line of a new one."""
    bar = tqdm(total=1, file=io.StringIO())
    line = abs(bar.pos)
    bar.close()
    return line


def mask_of(scores: HeadScores) -> Mask:
    return scores.mask("bottom", k=1)


CALLS = {
    "gradient, xx": lambda model, scores, **arguments: score(model, **arguments),
    "curve, xx": lambda model, scores, **arguments: headlab.prune_curve(
        model, tiny_task(), language="xx", scores=scores, size=8, points=3, **arguments
    ),
    "evaluate": lambda model, scores, **arguments: headlab.evaluate(
        model, tiny_task(), mask_of(scores), size=8, **arguments
    ),
    "passes": lambda model, scores, **arguments: measure(
        model, mask_of(scores), task=tiny_task(), batch_sizes=[2], rounds=6, examples=2, **arguments
    ),
    "targeted": lambda model, scores, **arguments: run_experiment(
        "targeted",
        Pieces(model, tiny_task(), dev_size=8, test_size=8),
        options={"method": "leave-one-out", "k": 1, "runs": 2, "leave_one_out": False},
        **arguments,
    ),
}


@pytest.mark.parametrize("title", CALLS)
def test_a_long_function_shows_a_bar_where_it_is_asked_to(
    title: str, model: Model, scores: HeadScores, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS[title](model, scores, progress=True)
    output = capsys.readouterr()
    assert output.out == ""
    assert f"{title}: 100%|" in output.err
    assert output.err.endswith("\n")


@pytest.mark.parametrize("title", CALLS)
def test_a_long_function_shows_nothing_where_nobody_looks(
    title: str, model: Model, scores: HeadScores, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS[title](model, scores)
    CALLS[title](model, scores, progress=False)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == ""


@pytest.mark.parametrize("title", CALLS)
def test_a_long_function_shows_a_bar_on_a_terminal(
    title: str, model: Model, scores: HeadScores, terminal: Terminal
) -> None:
    CALLS[title](model, scores)
    assert f"{title}: 100%|" in terminal.getvalue()


@pytest.mark.parametrize("title", CALLS)
def test_no_bar_on_a_terminal_where_it_is_switched_off(
    title: str,
    model: Model,
    scores: HeadScores,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    CALLS[title](model, scores, progress=False)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    CALLS[title](model, scores)
    assert terminal.getvalue() == ""


def test_the_argument_counts_more_than_the_variable(
    model: Model, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")
    score(model, progress=True)
    assert "100%|" in terminal.getvalue()


def test_a_bar_changes_no_result(model: Model, scores: HeadScores, terminal: Terminal) -> None:
    scores_with_bar = score(model, progress=True)
    assert (scores_with_bar.values == scores.values).all()
    assert scores_with_bar.spec == scores.spec
    assert scores_with_bar.example_forwards == scores.example_forwards
    plain = headlab.evaluate(model, tiny_task(), mask_of(scores), size=8)
    watched = headlab.evaluate(model, tiny_task(), mask_of(scores), size=8, progress=True)
    assert str(watched) == str(plain)


def test_whoever_takes_the_progress_gets_no_second_bar(model: Model, terminal: Terminal) -> None:
    steps: list[Progress] = []
    score(model, on_progress=steps.append)
    assert steps
    assert terminal.getvalue() == ""
    steps.clear()
    score(model, on_progress=steps.append, progress=True)
    assert steps
    assert "100%|" in terminal.getvalue()


def test_an_evaluation_counts_its_languages(model: Model, scores: HeadScores) -> None:
    steps: list[Progress] = []
    headlab.evaluate(model, tiny_task(), mask_of(scores), on_progress=steps.append)
    assert {step.note for step in steps} == {"xx", "yy"}
    assert {step.total for step in steps} == {2000}
    units_done = [step.done for step in steps]
    assert units_done == sorted(units_done)
    assert units_done[-1] <= 2000


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_bar_is_closed_where_the_work_is_interrupted_or_fails(
    error: type[BaseException], terminal: Terminal
) -> None:
    bars_before = count_open_bars()

    def work() -> None:
        with shown_progress("work", None) as report:
            report(Progress(1, 4, "a step"))
            assert count_open_bars() == bars_before + 1
            raise error

    with pytest.raises(error):
        work()
    assert count_open_bars() == bars_before
    assert "work:  25%|" in terminal.getvalue()
    assert "100%" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\n")


@pytest.mark.parametrize("title", ["gradient, xx", "curve, xx", "evaluate"])
def test_ctrl_c_closes_the_bar_of_a_call(
    title: str, model: Model, scores: HeadScores, terminal: Terminal
) -> None:
    def interrupt(step: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CALLS[title](model, scores, progress=True, on_progress=interrupt)
    assert count_open_bars() == 0
    assert terminal.getvalue().endswith("\n")


def test_short_work_shows_no_bar_by_itself(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bars, "SECONDS_UNSEEN", 3600.0)
    with shown_progress("work", None) as report:
        report(Progress(1, 2))
    assert terminal.getvalue() == ""


def test_a_bar_goes_back_where_the_total_grows_and_cuts_long_notes(terminal: Terminal) -> None:
    with shown_progress("work", True) as report:
        for step in (Progress(1, 2), Progress(1, 4), Progress(0, 0), Progress(9, 3, "n" * 200)):
            report(step)
    assert "n" * 47 + "…" in terminal.getvalue()
    assert "n" * 48 not in terminal.getvalue()
    assert "work: 100%|" in terminal.getvalue()


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such terminals")
def test_a_terminal_that_does_not_say_its_size_shows_a_whole_bar() -> None:
    import pty

    controller, terminal = pty.openpty()
    code = (
        "from headlab.core import Progress, shown_progress\n"
        "with shown_progress('work', True) as report: report(Progress(1, 2, 'words'))\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "TQDM_DISABLE"}
    environment["PYTHONPATH"] = str(HOUSE.parent)
    command = [sys.executable, "-c", code]
    subprocess.run(command, stderr=terminal, env=environment, check=True)
    os.close(terminal)
    shown = os.read(controller, 10_000).decode()
    os.close(controller)
    assert "work: 100%|" in shown
    assert shown.rstrip().endswith("words")


def test_a_process_without_a_console_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with shown_progress("work", None) as report:
            report(Progress(1, 2))


def test_a_notebook_shows_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(progress_bars, "SECONDS_UNSEEN", 0.0)
    with shown_progress("work", None) as report:
        report(Progress(1, 2))
    assert "work: 100%|" in capsys.readouterr().err
    shell.config = {"TerminalIPythonApp": {}}
    with shown_progress("work", None) as report:
        report(Progress(1, 2))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("title", CALLS)
def test_what_is_neither_true_nor_false_is_refused(
    title: str, model: Model, scores: HeadScores
) -> None:
    with raises("argument.wrong_type", "progress", "print"):
        CALLS[title](model, scores, progress=print)


def test_calls_within_headlab_show_no_bar_of_their_own() -> None:
    """Commands and the worker have their own progress: a second bar would stand in it."""
    calls = 0
    for path in sorted(HOUSE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        imported = {
            alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name in WITH_A_BAR
        }
        for node in nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id not in imported:
                continue
            calls += 1
            arguments = {keyword.arg for keyword in node.keywords}
            is_watched = arguments & {"on_progress", "on_round", "progress"}
            assert is_watched, f"{path.name}:{node.lineno} shows a bar of its own"
    assert calls >= 8
