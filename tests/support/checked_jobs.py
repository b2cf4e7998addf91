"""The fields of a job as the worker queues them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headlab.jobs.table import job_class


def checked_fields(kind: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Check the fields of a job and fill in the missing ones.

    Args:
        kind: The job's kind, such as "score".
        params: Its fields, as a request gives them.

    Raises:
        HeadlabError: For anything unknown or invalid.
        ValidationError: For fields of another type.
    """
    return job_class(kind).model_validate(dict(params)).resolve_or_refuse().model_dump()
