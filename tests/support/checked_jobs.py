"""A job's fields as the worker queues them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headlab.jobs.table import job_class


def checked(kind: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, checked and filled in.

    Raises:
        HeadlabError: For anything unknown or invalid.
        ValidationError: For fields of another type.
    """
    return job_class(kind).model_validate(dict(params)).resolve_or_refuse().model_dump()
