"""Puts the reports under docs/results into the cache, where every page finds them: `python tools/fill_cache.py`.

They are of models and data that are not shipped, so that nobody can make them here again; a report holds numbers and no
sentence of the data. Their date is that of the commit that last changed their file.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from headlab.files import read_json
from headlab.store import Store
from headlab.tables import Report

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
FOLDERS = ("held", "roles")
DATED = "by the commit of its file under docs/results"


def reports() -> Iterator[tuple[Path, Report]]:
    """(file, report) of every committed report on one model; a summary over several models is none."""
    for folder in FOLDERS:
        for path in sorted((RESULTS / folder).glob("*.json")):
            report = Report.from_json(read_json(path))
            if "model" in report.spec:
                yield path, report


def committed(path: Path) -> str:
    """When a file was last committed, ISO 8601."""
    asked = ["git", "log", "-1", "--format=%cI", "--", str(path)]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Write those that the cache lacks."""
    store = Store(ROOT / "cache")
    for path, report in reports():
        run = store.run(report.spec)
        if not run.finished:
            run.finish(report, {"created": committed(path), "dated": DATED})


if __name__ == "__main__":
    main()
