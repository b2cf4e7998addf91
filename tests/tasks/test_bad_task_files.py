"""The first bad task files, declarations and uploads of `benchmarks/bad_inputs`; the benchmark tries them all."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from bad_inputs.case import Verdict  # noqa: E402 - benchmarks/ is on the path only now
from bad_inputs.task_files import inputs, sample_answers  # noqa: E402

NUMBER_OF_INPUTS = 70


def test_reported_19_task_files_with_one_thing_wrong_are_read_or_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for bad_input in islice(inputs(tmp_path, 42), NUMBER_OF_INPUTS):
        answer = bad_input.attempt()
        assert answer.verdict in (Verdict.ACCEPTED, Verdict.REFUSED), (
            f"{bad_input.wrong}: {answer.words}"
        )


def test_reported_19_nothing_is_wrong_with_the_samples_themselves(tmp_path: Path) -> None:
    answers = sample_answers(tmp_path)
    not_accepted = [
        title for title, answer in answers.items() if answer.verdict != Verdict.ACCEPTED
    ]
    assert not_accepted == []
    assert len(answers) > 20


def test_reported_19_a_seed_gives_the_same_inputs_wherever_their_folder_is(tmp_path: Path) -> None:
    inputs_by_folder = []
    for name in ("a", "b"):
        bad_inputs = islice(inputs(tmp_path / name, 7), 200)
        inputs_by_folder.append([(bad_input.wrong, bad_input.content) for bad_input in bad_inputs])
    assert inputs_by_folder[0] == inputs_by_folder[1]
    contents = {content for _, content in inputs_by_folder[0]}
    assert len(contents) > 190
