"""What is said and what is logged when something fails: neither ever carries a sentence or a token."""

from __future__ import annotations

import logging
import traceback

from headlab.errors import HeadlabError

LOG_NAME = "worker.log"


def sentence_of(error: BaseException) -> str:
    """What the asker is told."""
    if isinstance(error, HeadlabError):
        return str(error)
    return f"the worker failed ({type(error).__name__}); see the worker's log, .worker/{LOG_NAME} below the cache"


def code_of(error: BaseException) -> str:
    """The code that goes with `sentence_of`."""
    return error.code if isinstance(error, HeadlabError) else "worker.failed"


def log_failure(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log types and places, not messages: those of foreign exceptions may quote what a user wrote."""
    lines = [f"{what}: {type(error).__name__}"]
    seen: BaseException | None = error
    while seen is not None:
        lines += [f"  {type(seen).__name__}"]
        lines += [
            f"    {frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(seen.__traceback__)
        ]
        seen = seen.__cause__ or seen.__context__
    log.error("%s", "\n".join(lines))
