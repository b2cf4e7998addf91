"""Jobs of a worker: waiting for their states, and what their logs say."""

from __future__ import annotations

from headlab.worker.client import Client
from headlab.worker.schemas import JobRow
from support.waiting import wait_until

TIME_LENGTH = len("2026-01-31T12:00:00Z ")


def wait_for_state(client: Client, job: int, state: str, seconds: float = 120.0) -> JobRow:
    """Wait until a job is in a state.

    Args:
        client: Client of the worker.
        job: Number of the job.
        state: The state.
        seconds: After how many seconds the test fails.
    """
    wait_until(lambda: client.job(job).state == state, f"state {state} of job {job}", seconds)
    return client.job(job)


def wait_for_end(client: Client, job: int, state: str = "done", seconds: float = 120.0) -> JobRow:
    """Wait until a job has ended, and check how.

    Args:
        client: Client of the worker.
        job: Number of the job.
        state: The state in which it must end.
        seconds: After how many seconds the test fails.
    """
    unfinished_states = ("queued", "running")
    wait_until(
        lambda: client.job(job).state not in unfinished_states, f"the end of job {job}", seconds
    )
    row = client.job(job)
    assert row.state == state, row.error
    return row


def wait_for_progress(client: Client, job: int, steps: int) -> None:
    """Wait until a job has done so many of its steps."""
    wait_until(lambda: client.job(job).done >= steps, f"step {steps} of job {job}")


def log_lines(client: Client, job: int) -> list[str]:
    """The log of a job without its times."""
    return [line[TIME_LENGTH:] for line in client.log(job)]
