"""The jobs that pages submitted to a made-up worker."""

from __future__ import annotations

from typing import Any, NamedTuple

from support.fake_client import FakeClient


class SubmittedJob(NamedTuple):
    """One submission.

    Attributes:
        kind: The key of the job's class.
        params: The job's fields.
        place: Where the job runs, "here" or "ray".
    """

    kind: str
    params: dict[str, Any]
    place: str


def submitted_jobs(client: FakeClient) -> list[SubmittedJob]:
    """All submissions, the first one first."""
    submissions = [call for call in client.calls if call[0] == "submit"]
    return [SubmittedJob(*arguments) for _, *arguments in submissions]
