"""Writes docs/api.md from the worker's description of its routes, after a route has changed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from headlab.results import Store
from headlab.worker.apidocs import markdown
from headlab.worker.engine import Engine
from headlab.worker.jobs import JobList
from headlab.worker.runner import Bench
from headlab.worker.server import create_app

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def description() -> dict[str, Any]:
    """The OpenAPI description of a worker that is never started."""

    def no_bench() -> Bench:
        raise AssertionError("the device is not needed to describe the routes")

    with tempfile.TemporaryDirectory(prefix="headlab-") as folder:
        jobs = JobList(Path(folder) / "jobs.db")
        try:
            return create_app(Engine(no_bench, jobs, Store(Path(folder)))).openapi()
        finally:
            jobs.close()


def main() -> None:
    """Write the page."""
    PAGE.write_text(markdown(description()), encoding="utf-8")


if __name__ == "__main__":
    main()
