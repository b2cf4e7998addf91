"""What each kind of job says of itself, and jobs that an earlier version left in the queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import raises

from headlab.jobs import Refusal
from headlab.jobs.table import BUILT_IN_KINDS, JOBS, job_class, job_from_params

# Jobs as the version before headlab.jobs stored them, with the texts that its pages showed.
QUEUED_JOBS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "queued_before.json").read_text("utf-8")
)


@pytest.mark.parametrize("kind", QUEUED_JOBS)
def test_a_job_that_an_earlier_version_queued_is_the_same_job(kind: str) -> None:
    row = QUEUED_JOBS[kind]
    job = job_from_params(kind, row["params"])
    assert job is not None
    assert job.model_dump() == row["params"]
    assert checked_fields(kind, row["params"]) == row["params"]
    assert job.title() == row["title"]
    assert job.describe() == row["words"]
    assert job.terminal_lines() == row["line"]


def test_a_job_of_another_package_or_version_has_no_class_but_raises_nothing() -> None:
    assert job_from_params("no-such", {}) is None
    assert job_from_params("score", {"model": "m", "from_the_future": 1}) is None
    with raises("job.kind_unknown", "no-such", "score", kind=Refusal):
        job_class("no-such")


def test_scores_of_another_split_than_dev_have_no_command() -> None:
    fields = {"model": "m", "task": "intents", "languages": ["de"]}
    assert JOBS["score"].model_validate({**fields, "split": "dev"}).terminal_lines()
    assert JOBS["score"].model_validate({**fields, "split": "test"}).terminal_lines() == ""


@pytest.mark.parametrize("kind", BUILT_IN_KINDS)
def test_every_kind_says_what_it_is(kind: str) -> None:
    job = JOBS[kind]
    assert job.key == kind
    assert job.name
    assert job.about.endswith(".")
    assert job.summary.endswith(".")
    assert set(job.settings()) <= set(job.model_fields)
    settings_of_both = set(job.settings()) | set(job.command_only)
    assert settings_of_both <= set(job.command_settings()) | {"batch_sizes"}
