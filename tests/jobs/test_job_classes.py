"""What each kind of job says of itself, and jobs that an earlier version left in the queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import raises

from headlab.core import HeadGrid, Stack
from headlab.jobs import Refusal
from headlab.jobs.table import BUILT_IN_KINDS, JOBS, WorthJob, job_class, job_from_params
from headlab.masks import Mask

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


@pytest.mark.parametrize(
    ("grid", "label"),
    [
        (HeadGrid((Stack("encoder", (2, 2)),)), "Heads off"),
        (HeadGrid((Stack("encoder-layers", (2, 2), is_of_heads=True),)), "Heads off"),
        (HeadGrid((Stack("encoder-layers", (1, 1, 1, 1)),)), "Layers off"),
        (HeadGrid((Stack("encoder", (2,)), Stack("encoder-layers", (1, 1)))), "Players off"),
    ],
)
def test_what_a_mask_switches_off_is_called_what_it_is(grid: HeadGrid, label: str) -> None:
    mask = Mask(grid, np.array([True, False, True, False]))
    fields = {"model": "m", "task": "t", "languages": ["de"]}
    assert (label, "2") in WorthJob.model_construct(**fields, mask=mask.to_json()).details()


@pytest.mark.parametrize("mask", [{}, {"grid": 5}, {"format": "headlab-mask", "version": 99}])
def test_a_mask_that_cannot_be_read_is_called_one_of_heads(mask: dict[str, Any]) -> None:
    fields = {"model": "m", "task": "t", "languages": ["de"]}
    assert ("Heads off", "?") in WorthJob.model_construct(**fields, mask=mask).details()
