"""Write the table of the slowest test files into docs/contributing.md; the suite begins with them.

make test PYTEST="--durations=0" > run.log; python tools/durations.py run.log
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "contributing.md"
LINE = re.compile(r"^([\d.]+)s (setup|call|teardown) +(tests/\S+?\.py)::", re.MULTILINE)
TABLE = re.compile(r"(?<=\| --- \| --- \| --- \|\n)(\| .*\n)+")
SHORTEST = 5.0  # seconds


def table(log: str) -> str:
    """The table's rows: one for each slow file, one for all other files, and one for the sum.

    Args:
        log: What pytest printed with --durations=0.

    Raises:
        SystemExit: There are no durations in the log.
    """
    seconds_by_file = Counter[str]()
    fixture_seconds = Counter[str]()
    for seconds, phase, file in LINE.findall(log):
        seconds_by_file[file] += float(seconds)
        fixture_seconds[file] += float(seconds) * (phase != "call")
    if not seconds_by_file:
        raise SystemExit(
            "there are no durations in this log; make it with: make test PYTEST=--durations=0"
        )
    slow_files = [file for file, seconds in seconds_by_file.most_common() if seconds >= SHORTEST]
    rows = [
        f"| `{file}` | {fixture_seconds[file]:.0f} | {seconds_by_file[file]:.0f} |"
        for file in slow_files
    ]
    other_files = [file for file in seconds_by_file if file not in slow_files]
    other_fixtures = sum(fixture_seconds[file] for file in other_files)
    other_seconds = sum(seconds_by_file[file] for file in other_files)
    rows.append(f"| {len(other_files)} other files | {other_fixtures:.0f} | {other_seconds:.0f} |")
    rows.append(f"| all | {fixture_seconds.total():.0f} | {seconds_by_file.total():.0f} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write the table; the only argument is the log's name."""
    rows = table(Path(sys.argv[1]).read_text("utf-8"))
    PAGE.write_text(TABLE.sub(lambda _: rows, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
