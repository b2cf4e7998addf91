"""Jobs of a running worker: how one ended, and what its log says."""

from __future__ import annotations

from headlab.worker.schemas import JobRow
from support.running_worker import Running
from support.waiting import until

TIME_LENGTH = len("2026-01-31T12:00:00Z ")


def wait_for_end(worker: Running, job: int, state: str = "done") -> JobRow:
    """Wait until a job has ended, and check how.

    Args:
        worker: The worker that runs it.
        job: Its number.
        state: The state in which it must end.
    """
    until(lambda: worker.client.job(job).state not in ("queued", "running"))
    row = worker.client.job(job)
    assert row.state == state, row.error
    return row


def log_lines(worker: Running, job: int) -> list[str]:
    """The log of a job without its times."""
    return [line[TIME_LENGTH:] for line in worker.client.log(job)]
