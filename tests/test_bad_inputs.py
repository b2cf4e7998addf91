"""The runner of the bad inputs: what it calls a refusal, a traceback and a hang, and that it survives them."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from bad_inputs import runner  # noqa: E402 - found there
from bad_inputs.case import Verdict, answer_of_process, process_answer  # noqa: E402
from toy_bad_inputs import READERS  # noqa: E402


def test_every_answer_is_seen_and_none_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # One input keeps its process for ever and one ends it; those after them are attempted all the same.
    hanging = tmp_path / "hanging"
    monkeypatch.setenv("TOY_HANGING", str(hanging))
    wait = runner.Connection.poll

    def wait_unless_hanging(connection: runner.Connection, seconds: float) -> bool:
        while not wait(connection, 0.05):
            if hanging.exists():
                hanging.unlink()
                return False
        return True

    monkeypatch.setattr(runner.Connection, "poll", wait_unless_hanging)
    attempts = list(runner.attempts("toy_bad_inputs", len(READERS), 0))
    in_process = [(attempt.begun.wrong, attempt.answer.verdict) for attempt in attempts if not attempt.begun.for_real]
    assert in_process == [
        ("taken", Verdict.ACCEPTED),
        ("refused", Verdict.REFUSED),
        ("refused_without_words", Verdict.TRACEBACK),
        ("failed", Verdict.TRACEBACK),
        ("taken", Verdict.ACCEPTED),
        ("never_ends", Verdict.HANG),
        ("died", Verdict.TRACEBACK),
        ("refused", Verdict.REFUSED),
    ]
    counts = runner.summary(attempts, 1.0)
    assert counts["inputs"] == len(READERS)
    assert (counts["for_real"], counts["refused"]) == (1, 3)
    assert (counts["tracebacks"], counts["hangs"], counts["http_500"]) == (3, 1, 0)
    assert [failure["number"] for failure in counts["failures"]] == [2, 3, 5, 6]


def test_a_family_that_makes_no_input_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match="died"):
        list(runner.attempts("no_such_family", 1, 0))


@pytest.mark.parametrize(
    ("family", "count"), [pytest.param("model-folders", 6, marks=pytest.mark.slow), ("stored-files", 60)]
)
def test_reported_19_a_family_is_drawn_from_its_seed_and_answered_in_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    answers, contents = [], []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        inputs = list(islice(runner.family_inputs(family, folder, 7), count))
        contents.append([bad_input.content for bad_input in inputs])
        if number == 0:
            answers = [bad_input.attempt() for bad_input in inputs]
    assert contents[0] == contents[1]
    assert len(set(contents[0])) == count
    assert {answer.verdict for answer in answers} <= {Verdict.ACCEPTED, Verdict.REFUSED}


@pytest.mark.parametrize(
    ("exit_status", "stderr", "verdict"),
    [
        (0, b"", Verdict.ACCEPTED),
        (1, b"Error: there is no task x", Verdict.REFUSED),
        (2, b"Usage: headlab", Verdict.REFUSED),
        (1, b"", Verdict.TRACEBACK),
        (-11, b"", Verdict.TRACEBACK),
        (1, b"Traceback (most recent call last):\n  KeyError", Verdict.TRACEBACK),
        (0, b"Traceback (most recent call last):\n  in a thread", Verdict.TRACEBACK),
    ],
)
def test_a_process_is_judged_by_status_and_words(exit_status: int, stderr: bytes, verdict: Verdict) -> None:
    assert answer_of_process(exit_status, b"", stderr).verdict == verdict


def test_a_real_command_is_refused_in_words(tmp_path: Path) -> None:
    answer = process_answer(["score", "--no-such-flag"], tmp_path)
    assert answer.verdict == Verdict.REFUSED
    assert "no-such-flag" in answer.words


def test_an_argument_that_no_process_can_have_is_refused(tmp_path: Path) -> None:
    assert process_answer(["score", "a\0b"], tmp_path).verdict == Verdict.REFUSED
